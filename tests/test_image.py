"""Resizing of images, against jax: values, dtypes, derivatives, batches, messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, image

pytestmark = pytest.mark.slow  # jax, the oracle, compiles in every test; the laws and the examples are quick

METHODS = ("linear", "cubic", "lanczos3", "lanczos5", "cubic-pytorch", "area")


def drawn(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def same(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(np.asarray(ours, "float64"), np.asarray(theirs, "float64"), tolerance, tolerance)


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("method", ["nearest", *METHODS])
def test_resize_is_jaxs(method: str, antialias: bool) -> None:
    x = drawn(2, 7, 9, 3)
    for shape in ((2, 14, 5, 3), (2, 3, 20, 3), (2, 7, 9, 3), (1, 1, 4, 3)):
        expected = jax.image.resize(x, shape, method, antialias)
        same(image.resize(x, shape, method, antialias), expected)
        same(fxgrad.jit(lambda x, shape=shape: image.resize(x, shape, method, antialias))(x), expected)


@pytest.mark.parametrize("method", ["nearest", *METHODS])
def test_resize_is_linear(method: str) -> None:
    x = drawn(5, 4)
    same(fxgrad.grad(lambda x: fnp.sum(image.resize(x, (3, 9), method) ** 2))(x),
         jax.jit(jax.grad(lambda x: jnp.sum(jax.image.resize(x, (3, 9), method) ** 2)))(x), 1e-4)
    same(fxgrad.vmap(lambda x: image.resize(x, (7,), method), in_axes=1)(x),
         jax.vmap(lambda x: jax.image.resize(x, (7,), method), in_axes=1)(x))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "uint8"])
@pytest.mark.parametrize("method", ["nearest", "linear"])
def test_resize_has_jaxs_dtypes(method: str, dtype: str) -> None:
    x = np.arange(12).reshape(3, 4).astype(jnp.dtype(dtype))
    with jax.enable_x64(dtype == "float64"):
        expected = jax.image.resize(x, (5, 2), method)
    same(image.resize(x, (5, 2), method), expected, 1e-2 if x.dtype.itemsize == 2 else 1e-5)


def test_methods_in_both_forms() -> None:
    x = drawn(5)
    for method in jax.image.ResizeMethod:
        assert image.ResizeMethod[method.name].value == method.value
        expected = jax.image.resize(x, (8,), method)
        same(image.resize(x, (8,), image.ResizeMethod[method.name]), expected)
        same(image.resize(x, (8,), method), expected)


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_scale_and_translate_is_jaxs(method: str, antialias: bool) -> None:
    x = drawn(6, 3, 5)
    for scale, translation in (([0.6, 1.7], [0.3, -1.2]), ([2.0, 1.0], [0.0, 1.0])):
        moves = np.float32(scale), np.float32(translation)
        options = {"method": method, "antialias": antialias}
        expected = jax.jit(lambda x, moves=moves, options=options: jax.image.scale_and_translate(
            x, (8, 3, 4), (0, 2), *moves, **options))(x)
        same(image.scale_and_translate(x, (8, 3, 4), (0, -1), *moves, **options), expected, 2e-5)
        if method == "cubic-pytorch":
            continue  # jax wants a static scale there
        same(fxgrad.jit(lambda *moves, options=options: image.scale_and_translate(
            x, (8, 3, 4), (0, 2), *moves, **options))(*moves), expected, 2e-5)


@pytest.mark.parametrize("method", ["linear", "cubic", "lanczos3"])
def test_scale_and_translate_has_jaxs_derivatives(method: str) -> None:
    x, moves = drawn(6, 5), (np.float32([0.61, 1.73]), np.float32([0.31, -0.57]))

    def ours(x, scale, translation):
        return fnp.sum(image.scale_and_translate(x, (5, 6), (0, 1), scale, translation, method) ** 2)

    def theirs(x, scale, translation):
        return jnp.sum(jax.image.scale_and_translate(x, (5, 6), (0, 1), scale, translation, method) ** 2)

    expected = jax.jit(jax.grad(theirs, (0, 1, 2)))(x, *moves)
    for mine, other in zip(fxgrad.grad(ours, (0, 1, 2))(x, *moves), expected, strict=True):
        same(mine, other, 1e-3)


def test_no_axes_to_move() -> None:
    x = drawn(3)
    np.testing.assert_array_equal(image.scale_and_translate(x, (3,), (), np.zeros(0), np.zeros(0), "linear"), x)


MESSAGES: list[tuple[type[Exception], Callable[[], Any], str]] = [
    (errors.ShapeError, lambda: image.resize(np.ones((2, 3)), (4,), "linear"),
     "resize: a new shape (4,) for an image of shape (2, 3); one size is needed for each axis"),
    (errors.ArgumentError, lambda: image.resize(np.ones(3), (4,), "quintic"),
     ("resize: method 'quintic'; it is one of 'nearest', 'linear', 'bilinear', 'trilinear', 'triangle', 'lanczos3', "
      "'lanczos5', 'cubic', 'bicubic', 'tricubic', 'cubic-pytorch', 'bicubic-pytorch', 'area'")),
    (errors.ArgumentError, lambda: image.scale_and_translate(np.ones(3), (4,), (0,), [1.0], [1.0], "nearest"),
     "scale_and_translate: the method 'nearest' is not possible here; take 'linear' or call resize"),
    (errors.ShapeError, lambda: image.scale_and_translate(np.ones(3), (4,), (0,), [1.0, 2.0], [1.0], "linear"),
     "scale_and_translate: scale of shape (2,); one number is needed for each of the 1 axes in spatial_dims"),
    (errors.AxisError, lambda: image.scale_and_translate(np.ones(3), (4,), (1,), [1.0], [1.0], "linear"),
     "scale_and_translate: axis 1 of an array with 1 axes; an axis from -1 to 0 is needed"),
]


@pytest.mark.parametrize(("kind", "call", "text"), [(*case,) for case in MESSAGES])
def test_messages(kind: type[Exception], call: Callable[[], Any], text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert re.sub(r"\n  at .*", "", str(caught.value)) == text
