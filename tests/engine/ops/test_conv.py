"""Convolutions as users call them, against jax: values, dtypes, derivatives, batches; messages, also of windows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax as jlax

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.lax import convolution, windows
from tests.support.with_jax import agree, compare, drawn

pytestmark = pytest.mark.slow  # jax, the oracle, compiles in every test; the laws and the examples are quick


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 8, 7), (4, 3, 3, 2), {"window_strides": (1, 1), "padding": "VALID"}),
    "same": ((2, 3, 8, 7), (4, 3, 3, 2), {"window_strides": (2, 3), "padding": "SAME"}),
    "same lower": ((2, 3, 8, 7), (4, 3, 3, 2), {"window_strides": (2, 3), "padding": "SAME_LOWER"}),
    "dilated same": ((2, 3, 8, 7), (4, 3, 3, 2), {"window_strides": (2, 1), "padding": "SAME",
                                                  "rhs_dilation": (2, 3)}),
    "everything": ((2, 7, 8, 4), (2, 3, 2, 6), {
        "window_strides": (2, 1), "padding": ((2, -1), (-2, 3)), "lhs_dilation": (2, 3), "rhs_dilation": (3, 2),
        "dimension_numbers": ("NWHC", "HWIO", "CNHW"), "feature_group_count": 2}),
    "batch groups": ((6, 2, 7), (9, 2, 2), {"window_strides": (2,), "padding": ((1, 0),), "batch_group_count": 3}),
    "depthwise": ((2, 9, 4), (3, 1, 8), {"window_strides": (1,), "padding": "SAME", "feature_group_count": 4,
                                         "dimension_numbers": ("NHC", "HIO", "NHC")}),
    "three axes": ((1, 2, 4, 3, 5), (2, 2, 2, 2, 3), {"window_strides": (1, 2, 1), "padding": "SAME"}),
    "no axes": ((3, 4), (5, 4), {"window_strides": (), "padding": "VALID"}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution_is_jaxs(case: str) -> None:
    image, kernel, options = CONVOLUTIONS[case]
    compare(lambda x, k: convolution.conv_general_dilated(x, k, **options),
            lambda x, k: jlax.conv_general_dilated(x, k, **options), drawn(*image), drawn(*kernel, seed=1))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "complex64", "complex128", "int32", "int8",
                                   "bool"])
def test_convolution_has_jaxs_dtypes(dtype: str) -> None:
    values = np.random.default_rng(0).integers(-3, 4, (2, 3, 6)) + (1j if dtype.startswith("complex") else 0)
    image, kernel = values.astype(jnp.dtype(dtype)), values[:, :, :2].astype(jnp.dtype(dtype))
    with jax.enable_x64(True):
        expected = jlax.conv(image, kernel, (2,), "SAME")
    agree(convolution.conv(image, kernel, (2,), "SAME"), expected)
    agree(fxgrad.jit(lambda x, k: convolution.conv(x, k, (2,), "SAME"))(image, kernel), expected)


def test_narrow_dtypes_can_be_summed_in_wide_ones() -> None:
    image, kernel = drawn(1, 8, 9, dtype="float16"), drawn(2, 8, 3, dtype="float16", seed=1)
    agree(convolution.conv(image, kernel, (1,), "VALID", preferred_element_type=np.float32),
          jlax.conv(image, kernel, (1,), "VALID", preferred_element_type=np.float32))
    whole = np.full((1, 4, 5), 100, "int8")
    agree(convolution.conv(whole, whole[:, :, :2], (1,), "VALID", preferred_element_type="int32"),
          jlax.conv(whole, whole[:, :, :2], (1,), "VALID", preferred_element_type="int32"))
    slope = fxgrad.grad(lambda x: fnp.sum(convolution.conv(x, kernel, (1,), "VALID", None, "float32")))(image)
    assert slope.dtype == np.float16


def test_precision_in_all_its_forms() -> None:
    image, kernel = drawn(1, 2, 5), drawn(3, 2, 2)
    plain = convolution.conv(image, kernel, (1,), "SAME")
    for precision in ("highest", "HIGHEST", "float32", fxgrad.lax.Precision.HIGHEST, jlax.Precision.HIGHEST,
                      (jlax.Precision.DEFAULT, jlax.Precision.HIGH)):
        agree(fxgrad.jit(lambda x, k, precision=precision: convolution.conv(x, k, (1,), "SAME", precision))(
            image, kernel), plain)
        agree(fxgrad.jit(lambda x, k, precision=precision: fnp.convolve(x, k, precision=precision))(
            image[0, 0], kernel[0, 0]), np.convolve(image[0, 0], kernel[0, 0]))
    for precision in ("best", 3, fxgrad.lax.DotAlgorithmPreset.F32_F32_F32, ("high", "F32_F32_F32")):
        with pytest.raises(errors.ArgumentError, match=re.escape(
                "a Precision is needed, such as fxgrad.lax.Precision.HIGHEST, or a name of theirs: default, high, "
                "highest, fastest, bfloat16, bfloat16_3x, tensorfloat32, float32")):
            convolution.conv(image, kernel, (1,), "SAME", precision)


def test_large_images_take_the_path_without_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    image, kernel = drawn(2, 4, 6, 7), drawn(6, 2, 3, 2, seed=1)
    options: dict[str, Any] = {"window_strides": (2, 1), "padding": "SAME", "rhs_dilation": (1, 2),
                               "feature_group_count": 2}
    expected = convolution.conv_general_dilated(image, kernel, **options)
    monkeypatch.setattr("fxgrad.engine.ops.convolution.PATCH_LIMIT", 10)
    agree(convolution.conv_general_dilated(image, kernel, **options), expected)


TRANSPOSED = {
    "same": ((2, 5, 6, 3), (3, 2, 3, 4), {"strides": (2, 3), "padding": "SAME"}),
    "valid": ((2, 5, 6, 3), (3, 2, 3, 4), {"strides": (2, 3), "padding": "VALID"}),
    "pairs": ((2, 5, 6, 3), (3, 2, 3, 4), {"strides": (2, 3), "padding": [(1, 0), (2, 1)]}),
    "consistent": ((2, 5, 6, 3), (3, 2, 3, 4), {"strides": (2, 3), "padding": [(1, 0), (2, 1)],
                                               "use_consistent_padding": True}),
    "turned": ((2, 5, 3), (4, 2, 3), {"strides": (2,), "padding": "SAME", "transpose_kernel": True}),
    "dilated": ((2, 5, 3), (3, 3, 2), {"strides": (2,), "padding": "SAME", "rhs_dilation": (2,)}),
    "first": ((2, 3, 5), (4, 3, 2), {"strides": (2,), "padding": "SAME",
                                     "dimension_numbers": ("NCH", "OIH", "NCH")}),
    "three axes": ((1, 2, 3, 2, 3), (2, 2, 1, 3, 2), {"strides": (2, 1, 1), "padding": "VALID"}),
}


@pytest.mark.parametrize("case", TRANSPOSED)
def test_transposed_convolution_is_jaxs(case: str) -> None:
    image, kernel, options = TRANSPOSED[case]
    compare(lambda x, k: convolution.conv_transpose(x, k, **options),
            lambda x, k: jlax.conv_transpose(x, k, **options), drawn(*image), drawn(*kernel, seed=1), second=False)


PATCHES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 6, 5), (2, 3), {"window_strides": (1, 2), "padding": "SAME"}),
    ((6, 2, 5, 3), (2, 3), {"window_strides": (1, 2), "padding": "VALID", "rhs_dilation": (2, 1),
                            "dimension_numbers": ("HNWC", "OIWH", "CNHW")}),
]


@pytest.mark.parametrize(("image", "window", "options"), PATCHES)
def test_patches_and_local_kernels_are_jaxs(image: Any, window: Any, options: dict[str, Any]) -> None:
    x = drawn(*image)
    compare(lambda x: convolution.conv_general_dilated_patches(x, window, **options),
            lambda x: jlax.conv_general_dilated_patches(x, window, **options), x, second=False)
    numbers = jlax.conv_dimension_numbers(image, (1, 1, *window), options.get("dimension_numbers"))
    patches = jlax.conv_general_dilated_patches(x, window, **options).shape
    sizes = dict(zip(numbers.rhs_spec, (4, *(patches[axis] for axis in numbers.out_spec[1:])), strict=True))
    kernel = drawn(*(sizes[axis] for axis in range(len(image))), seed=3)
    compare(lambda x, k: convolution.conv_general_dilated_local(x, k, filter_shape=window, **options),
            lambda x, k: jlax.conv_general_dilated_local(x, k, filter_shape=window, **options), x, kernel, second=False)


def test_shapes_and_numbers_are_jaxs() -> None:
    numbers = ("NHWC", "HWIO", "NWHC")
    assert convolution.conv_general_permutations(numbers) == jlax.conv_general_permutations(numbers)
    assert tuple(convolution.conv_dimension_numbers((1,) * 4, (1,) * 4, numbers)) == \
        tuple(jlax.conv_dimension_numbers((1,) * 4, (1,) * 4, numbers))
    assert convolution.conv_dimension_numbers((1,) * 4, (1,) * 4, jlax.ConvDimensionNumbers(*([0, 1, 2, 3],) * 3)) == \
        ((0, 1, 2, 3),) * 3
    for padding in ("SAME", "VALID", "SAME_LOWER"):
        assert convolution.padtype_to_pads((7, 8), (3, 4), (2, 3), padding) == \
            jlax.padtype_to_pads((7, 8), (3, 4), (2, 3), padding)
    for padding in ("SAME", "VALID", [(1, 2), (0, 3)]):
        for name in ("conv_general_shape_tuple", "conv_transpose_shape_tuple"):
            args = ((2, 7, 8, 3), (3, 2, 3, 5), (2, 3), padding, numbers)
            if name != "conv_transpose_shape_tuple" or isinstance(padding, str):
                assert getattr(convolution, name)(*args) == tuple(map(int, getattr(jlax, name)(*args)))
    assert convolution.conv_shape_tuple((4, 3, 9), (2, 3, 2), (2,), [(1, 1)], 2) == \
        tuple(map(int, jlax.conv_shape_tuple((4, 3, 9), (2, 3, 2), (2,), [(1, 1)], 2)))
    assert windows.reduce_window_shape_tuple((5, 6), (2, 3), (1, 2), [(0, 1), (2, 0)], (2, 1), (1, 2)) == \
        tuple(map(int, jlax.reduce_window_shape_tuple((5, 6), (2, 3), (1, 2), [(0, 1), (2, 0)], (2, 1), (1, 2))))


# --- messages ---------------------------------------------------------------------------------------------------------

IMAGE, KERNEL = np.ones((2, 3, 8)), np.ones((4, 3, 2))
BROKEN = convolution.ConvDimensionNumbers((0, 1, 1), (0, 1, 2), (0, 1, 2))
SHOWN = "conv_general_dilated: an image of shape (2, 3, 8) and a kernel of shape (4, 3, 2): "


def slid(image: Any = IMAGE, kernel: Any = KERNEL, strides: Any = (1,), padding: Any = ((0, 0),),
         **options: Any) -> Any:
    return convolution.conv_general_dilated(image, kernel, strides, padding, **options)


MESSAGES: list[tuple[type[Exception], Callable[[], Any], str]] = [
    (errors.ShapeError, lambda: slid(kernel=np.ones((4, 2, 2))),
     ("conv_general_dilated: an image of shape (2, 3, 8) and a kernel of shape (4, 2, 2): the image has 3 features "
      "(axis 1) and the kernel takes 2 (axis 1), which must be equal. Axes in another order are named with "
      "dimension_numbers")),
    (errors.ShapeError, lambda: slid(kernel=np.ones((4, 2, 2)), feature_group_count=3),
     ("conv_general_dilated: an image of shape (2, 3, 8) and a kernel of shape (4, 2, 2): the image has 3 features "
      "(axis 1) and the kernel takes 2 (axis 1) times feature_group_count=3, which must be equal. Axes in another "
      "order are named with dimension_numbers")),
    (errors.ShapeError, lambda: slid(kernel=np.ones((4, 1, 2)), feature_group_count=3),
     ("conv_general_dilated: an image of shape (2, 3, 8) and a kernel of shape (4, 1, 2): the kernel has 4 output "
      "features (axis 0), which 3 groups must divide")),
    (errors.ShapeError, lambda: slid(batch_group_count=4),
     SHOWN + "the batch has size 2 (axis 0), which batch_group_count=4 must divide"),
    (errors.ShapeError, lambda: slid(feature_group_count=0),
     SHOWN + "feature_group_count=0 and batch_group_count=1; both must be at least 1, and one of them must be 1"),
    (errors.ShapeError, lambda: slid(strides=(1, 1)),
     (SHOWN + "window_strides has 2 entries; one is needed for each of the 1 spatial axes: those that are neither "
      "batch nor features")),
    (errors.ShapeError, lambda: slid(strides=(0,)),
     SHOWN + "window_strides is (0,), where numbers from 1 on are needed"),
    (errors.ShapeError, lambda: slid(padding=[(-5, -4)]),
     SHOWN + "padding (-5, -4) removes more than there is along spatial axis 0 (axis 2 of the image, of size 8)"),
    (errors.ShapeError, lambda: slid(kernel=np.ones((4, 3, 0))),
     ("conv_general_dilated: an image of shape (2, 3, 8) and a kernel of shape (4, 3, 0): the kernel has size 0 along "
      "spatial axis 0 (axis 2); at least 1 is needed")),
    (errors.ShapeError, lambda: slid(dimension_numbers=BROKEN),
     SHOWN + "lhs_spec is (0, 1, 1), which must name each axis from 0 to 2 once"),
    (errors.ShapeError, lambda: slid(kernel=np.ones((4, 3))),
     ("a convolution of an image of shape (2, 3, 8) with a kernel of shape (4, 3); they must have equally many axes. "
      "Insert one with x[None]")),
    (errors.DTypeError, lambda: slid(kernel=np.ones((4, 3, 2), "float32")),
     ("conv_general_dilated: dtypes float64 and float32 differ, where equal ones are needed; convert one with "
      "x.astype(...), or call the function of fxgrad.numpy, which promotes")),
    (errors.ArgumentError, lambda: slid(padding="SAM"),
     "padding 'SAM'; it is 'VALID', 'SAME', 'SAME_LOWER', or a pair (low, high) for each axis"),
    (errors.ArgumentError, lambda: slid(padding=[1]),
     "conv_general_dilated: padding [1]; a string or a pair (low, high) for each spatial axis is needed"),
    (errors.ArgumentError, lambda: slid(padding="SAME", lhs_dilation=(2,)),
     ("conv_general_dilated: padding 'SAME' of an image with lhs_dilation (2,); give pairs of numbers, or call "
      "conv_transpose")),
    (errors.ArgumentError, lambda: slid(dimension_numbers=("NHC", "HIO", "NCW")),
     "dimension_numbers ('NHC', 'HIO', 'NCW'): the spatial axes must have the same letters in all three"),
    (errors.ArgumentError, lambda: slid(dimension_numbers=("NHC", "HOO", "NHC")),
     ("dimension_numbers: 'HOO' in ('NHC', 'HOO', 'NHC') must have 'O', 'I' and one other letter for each spatial "
      "axis, each once")),
    (errors.ArgumentError, lambda: slid(dimension_numbers=("NHWC", "HIO", "NHC")),
     "dimension_numbers ('NHWC', 'HIO', 'NHC') for arrays with 3 axes; one letter is needed for each axis"),
    (errors.ShapeError, lambda: windows.reduce_window(IMAGE, 0.0, np.add, (2, 2)),
     ("reduce_window: window_dimensions (2, 2) for an array of shape (2, 3, 8); one entry is needed for each of the 3 "
      "axes")),
    (errors.ShapeError, lambda: windows.reduce_window(IMAGE, 0.0, np.add, (1, 0, 2)),
     "reduce_window: window_dimensions (1, 0, 2); numbers from 1 on are needed"),
    (errors.ShapeError, lambda: windows.reduce_window(IMAGE, 0.0, np.add, (1, 1, 2),
                                                      padding=[(0, 0), (-2, -2), (0, 0)]),
     "reduce_window: padding (-2, -2) removes more than there is along axis 1 of an array of shape (2, 3, 8)"),
    (errors.DTypeError, lambda: windows.reduce_window(IMAGE, np.float32(0), np.add, (1, 1, 2)),
     ("reduce_window: init_value is float32 and the operand float64; equal dtypes are needed: "
      "init_value.astype(operand.dtype)")),
    (errors.ShapeError, lambda: windows.reduce_window(IMAGE, np.zeros(2), np.add, (1, 1, 2)),
     "reduce_window: init_value of shape (2,); a scalar is needed"),
    (errors.ArgumentError, lambda: windows.reduce_window(IMAGE, 0.0, lambda x, y: x < y, (1, 1, 2)),
     "reduce_window: the computation of [f64[]] and [f64[]] returned [bool[]]; the types of its arguments are needed"),
    (errors.ShapeError, lambda: windows.top_k(IMAGE, 9),
     "top_k: k=9 of an axis of size 8 (axis 2 of shape (2, 3, 8)); a number from 0 to 8 is needed"),
    (errors.DTypeError, lambda: windows.top_k(IMAGE + 1j, 2),
     "top_k: not defined for complex128; it takes ordered dtypes. Convert first, for example x.astype('float32')"),
    (errors.UnsupportedError, lambda: windows.approx_max_k(IMAGE, 2, aggregate_to_topk=False),
     "approx_max_k: aggregate_to_topk=False is not supported: there are no partial results to return. Leave it out"),
]


@pytest.mark.parametrize(("kind", "call", "text"), MESSAGES, ids=[text[:60] for _, _, text in MESSAGES])
def test_messages(kind: type[Exception], call: Callable[[], Any], text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert re.sub(r"\n  at .*", "", str(caught.value)) == text


def test_messages_name_the_users_line() -> None:
    with pytest.raises(errors.ShapeError, match=r"which must be equal.*\n  at test_conv.py:\d+"):
        fxgrad.grad(lambda x: fnp.sum(slid(image=x)))(np.ones((2, 4, 8)))
