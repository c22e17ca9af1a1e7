"""Making, shaping, joining and rearranging arrays, against jax.numpy and against NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError, AxisError, ShapeError
from tests.support.with_numpy import (
    Call,
    assert_equal,
    call,
    check,
    check_all,
    check_gradient,
    check_gradients,
    draw,
    each,
    in_groups,
    together,
)

V, W, A, B, M = (draw(shape) for shape in ((3,), (4,), (2, 3), (2, 3, 4), (3, 4)))
ONES = draw((1, 3, 1))

SHAPING: list[tuple[Any, ...]] = [
    ("reshape", B, (3, 8)), ("reshape", B, -1), ("reshape", B, (2, -1)), ("reshape", V, (1, 3)),
    ("reshape", draw((0, 3)), (-1, 3)), ("ravel", B), ("squeeze", ONES), ("squeeze", ONES, 0),
    ("squeeze", ONES, (0, -1)),
    ("expand_dims", B, 0), ("expand_dims", B, -1), ("expand_dims", B, (0, 2)), ("atleast_1d", V), ("atleast_2d", V),
    ("atleast_2d", V, A), ("atleast_3d", V), ("atleast_3d", A), ("transpose", B), ("transpose", B, (1, 0, 2)),
    ("transpose", B, (0, -1, 1)), ("matrix_transpose", B), ("swapaxes", B, 0, -1), ("moveaxis", B, 0, -1),
    ("moveaxis", B, (0, 1), (1, 2)), ("moveaxis", B, (0, 1), (2, 0)), ("broadcast_to", V, (2, 3)),
    ("broadcast_arrays", V, A), ("flip", B), ("flip", B, 1), ("flip", B, (0, 2)), ("fliplr", A), ("flipud", A),
    ("rot90", A), ("rot90", A, 2), ("rot90", A, -1), ("rot90", B, 1, (2, 0)), ("roll", B, 1), ("roll", B, -2, 1),
    ("roll", B, (1, 2), (0, 1)), ("roll", V, 7), ("tile", A, 2), ("tile", A, (2, 1, 3)), ("repeat", A, 2),
    ("repeat", A, 2, 1), ("repeat", A, 0, 1), ("diag", V), ("diag", V, 1), ("diag", V, -2), ("diag", A), ("diag", M, 2),
    ("diag", M, -1), ("diag", draw((0,)), 2), ("diagonal", A), ("diagonal", B, 1, 0, 2), ("diagonal", B, -1, 2, 1),
    ("diagonal", M, -5), ("diagflat", A, 1), ("trace", A), ("trace", B, 1, 1, 2), ("trace", draw((3, 3), "int8")),
    ("tril", A), ("tril", B, 1), ("triu", M, -1), ("triu", A), ("unstack", A),
]
JOINING: list[tuple[Any, ...]] = [
    ("split", A, 3, 1), ("split", A, [1, 2], 1), ("array_split", W, 3),
    ("array_split", A, 2, 1),
    ("hsplit", A, 3), ("hsplit", V, 3), ("vsplit", A, 2), ("dsplit", B, 2), ("append", V, W), ("append", A, A, 0),
    ("concatenate", B), ("concatenate", B, 1), ("stack", A), ("stack", A, 1),
]


@in_groups([call(*case) for case in SHAPING + JOINING])
def test_against_jax(calls: list[Call]) -> None:
    check_all(*calls)


LISTS: list[tuple[Any, ...]] = [
    ("concatenate", [A, A]), ("concatenate", [A, A], 1), ("concatenate", [A, V], None), ("stack", [A, A], -1),
    ("concatenate", [V, draw((2,), "int8")]), ("stack", [V, draw((3,), "bool")], 1), ("hstack", [A, A]),
    ("hstack", [V, W]), ("vstack", [A, V]), ("dstack", [V, V]), ("dstack", [A, A]), ("column_stack", [V, V]),
    ("column_stack", [A, A]), ("broadcast_arrays", V, A), ("meshgrid", V, W), ("meshgrid", V, W, V),
]


def test_steps_of_linspace() -> None:
    for num in (0, 1, 2, 5):
        for endpoint in (True, False):
            ours = [fnp.linspace(0.0, 3.0, num, endpoint, True), fxgrad.jit(
                lambda stop, num=num, endpoint=endpoint: fnp.linspace(0.0, stop, num, endpoint, True))(3.0)]
            for numbers, step in ours:
                expected = np.linspace(0.0, 3.0, num, endpoint, True)
                np.testing.assert_allclose(numbers, expected[0], rtol=1e-6)
                np.testing.assert_allclose(step, expected[1], rtol=1e-6)


@pytest.mark.parametrize("case", LISTS, ids=lambda case: f"{case[0]}-{len(case[1])}")
def test_lists_of_arrays(case: tuple[Any, ...]) -> None:
    name, arrays, *rest = case
    if not isinstance(arrays, list):
        check(*case)
        return
    traced = fxgrad.make_program(lambda *arrays: getattr(fnp, name)(list(arrays), *rest))
    assert_equal(traced(*arrays)(*arrays), getattr(jnp, name)([jnp.asarray(each) for each in arrays], *rest))
    assert_equal(getattr(fnp, name)(arrays, *rest), getattr(np, name)(arrays, *rest).astype(np.float32))


def test_column_order() -> None:
    for shape in ((6, 4), (4, -1), -1):
        assert_equal(fnp.reshape(B, shape, order="F"), np.reshape(B, shape, order="F"))
    assert_equal(fnp.ravel(B, "F"), np.ravel(B, "F"))


def test_split_beyond_the_end() -> None:
    for got, expected in zip(fnp.split(A, [2, 1, 7], 1), np.split(A, [2, 1, 7], 1), strict=True):
        assert_equal(got, expected)


def test_traced_shift_and_known_repeats() -> None:
    assert_equal(fxgrad.jit(lambda x, n: fnp.roll(x, n, 1))(B, 5), np.roll(B, 5, 1))
    assert_equal(fxgrad.jit(lambda x: fnp.repeat(x, np.array([0, 2, 1]), 1))(B), np.repeat(B, [0, 2, 1], 1))


@each("mode", ["clip", "wrap", "fill"])
def test_take(mode: str) -> None:
    places = np.array([[1, 7], [-1, -9]], np.int32)
    check("take", A, places, axis=1, mode=mode)
    check("take", A, places, mode=mode)
    assert_equal(fnp.take(A, [1, -1], axis=1), np.take(A, [1, -1], axis=1))
    assert_equal(fnp.take(A, 1), np.take(A, 1))


@together()
def test_take_along_axis() -> None:
    check("take_along_axis", A, np.array([[0, 1], [1, -1]], np.int32), 1)
    check("take_along_axis", A, np.array([[0, 1, 0]], np.int32), 0)
    check("take_along_axis", V, np.array([2, 0], np.int32), None)
    check("take_along_axis", B, np.zeros((1, 1, 2), np.int32), 2)


PAD_WIDTHS: list[Any] = [1, (1, 2), ((1, 2), (0, 3)), ((0, 0), (5, 4)), 0]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
def test_pad(mode: str) -> None:
    check_all(*(call("pad", array, width, mode=mode) for width in PAD_WIDTHS for array in (A, draw((4, 2), "int8"))))
    check_gradients(*(call("pad", draw((2, 3), "float64"), width, mode=mode) for width in PAD_WIDTHS))


@together()
def test_pad_with_values() -> None:
    for values in (5, (1, 2.5), ((1, 2), (3, 4))):
        check("pad", A, 2, constant_values=values)
    check_gradient("pad", draw((2,), "float64"), 1, constant_values=2.0)
    gradient = fxgrad.grad(lambda c: fnp.sum(fnp.pad(V, 2, constant_values=c)))(1.0)
    assert gradient == 4.0


@each("name", ["diag", "diagonal", "tril", "roll", "repeat", "flip", "rot90", "tile", "trace"])
def test_gradients(name: str) -> None:
    extra = {"roll": [1], "repeat": [2], "tile": [2]}.get(name, [])
    check_gradient(name, draw((3, 4), "float64"), *extra)


# --- creation -----------------------------------------------------------------------------------------------------

CREATION: list[tuple[Any, ...]] = [
    ("zeros", 3), ("zeros", (2, 0), "int8"), ("ones", (2,)), ("full", 2, 3.0), ("full", (2, 3), 1), ("full", (), 1),
    ("eye", 3), ("eye", 2, 3, 1), ("eye", 3, 3, -1, "int32"), ("identity", 2), ("tri", 3), ("tri", 3, 4, 1),
    ("tri", 2, 3, -1, "int32"), ("arange", 3), ("arange", 3.0), ("arange", 1, 7, 2), ("arange", 0, 1, 0.25),
    ("arange", 5, 0, -2), ("arange", 3, None, None, "float32"), ("arange", 20), ("arange", 3, 60, 3),
    ("linspace", 0.0, 1.0, 5), ("linspace", 0, 10, 5), ("linspace", 0.0, 1.0, 1), ("linspace", 0.0, 1.0, 0),
    ("linspace", 1.0, 2.0, 4, False), ("linspace", 0, 9, 4, True, False, "int32"), ("logspace", 0.0, 2.0, 3),
    ("geomspace", 1.0, 100.0, 3), ("array", [1, 2]), ("array", [1.0, 2]), ("array", [[True]]), ("array", 2.0),
    ("asarray", [1j]), ("asarray", [True, 2]), ("array", [[1, 2]], "float16"),
]


def test_creation() -> None:
    expected = jax.jit(lambda: [getattr(jnp, name)(*args) for name, *args in CREATION])()
    staged = fxgrad.jit(lambda _: [getattr(fnp, name)(*args) for name, *args in CREATION])(0.0)
    for (name, *args), wanted, also in zip(CREATION, expected, staged, strict=True):
        assert_equal(getattr(fnp, name)(*args), wanted, f"{name}{args}")
        assert_equal(also, wanted, f"compiled {name}{args}")


@together()
def test_likes_and_conversions() -> None:
    for name in ("zeros_like", "ones_like"):
        check(name, draw((2, 3), "int8"))
        check(name, A, dtype="int32")
    assert fnp.empty_like(A).shape == A.shape
    check("full_like", draw((2,), "int32"), 1.5)
    check("astype", A, "int32")
    check("linspace", V, 2 * V, 4)
    check("array", A, "float16")
    assert fnp.array(A, ndmin=3).shape == (1, 2, 3)
    assert not np.shares_memory(fnp.array(A), A)


def test_wide_integers_and_doubles_stay() -> None:
    assert fnp.array([2 ** 40]).dtype == np.int64
    assert fnp.asarray(np.ones(2)).dtype == np.float64
    with fxgrad.default_dtype("float64"):
        assert fnp.ones(2).dtype == np.float64


def test_lists_with_traced_elements() -> None:
    gradient = fxgrad.grad(lambda x: fnp.sum(fnp.array([x[0], 2 * x[1], 3.0]) * [1.0, 2.0, 3.0]))(np.ones(2))
    np.testing.assert_array_equal(gradient, [1.0, 4.0])
    nested = fxgrad.make_program(lambda x: fnp.array([[x, 1], [2, x]]))(3.0)
    assert_equal(nested(3.0), np.array([[3.0, 1], [2, 3]]))


# --- errors -------------------------------------------------------------------------------------------------------


def message(function: Any, error: Any) -> str:
    with pytest.raises(error) as caught:
        fxgrad.make_program(lambda x: function(x))(A)
    return str(caught.value).partition("\n  at ")[0]


@pytest.mark.parametrize(("function", "error", "text"), [
    (lambda x: fnp.reshape(x, (4, 2)), ShapeError,
     ("reshape: an array of shape (2, 3) has 6 elements, and shape (4, 2) has 8; the numbers must be equal (one size "
      "may be given as -1)")),
    (lambda x: fnp.reshape(x, (4, -1)), ShapeError,
     "reshape: an array of shape (2, 3) has 6 elements, which do not fill shape (4, -1) for any size in place of -1"),
    (lambda x: fnp.reshape(x, (-1, -1)), ShapeError,
     "reshape: shape (-1, -1) has -1 more than once; only one size can be left out"),
    (lambda x: fnp.reshape(x, 6, order="Z"), ArgumentError, "reshape: order must be 'C' or 'F', got 'Z'"),
    (lambda x: fnp.squeeze(x, 0), ShapeError,
     "squeeze: axis 0 of an array of shape (2, 3); only axes of size 1 can go"),
    (lambda x: fnp.transpose(x, (0, 0)), AxisError,
     "transpose: axes (0, 0) of an array with 2 axes; each must be named once"),
    (lambda x: fnp.moveaxis(x, 0, (0, 1)), AxisError,
     "moveaxis: source 0 and destination (0, 1); as many distinct axes in both are needed"),
    (lambda x: fnp.concatenate([x, x[0]]), ShapeError,
     "concatenate: arrays of shapes (2, 3), (3,) along axis 0; all other sizes must be equal"),
    (lambda x: fnp.concatenate([1.0, x[0, 0]]), ShapeError,
     "concatenate: scalars cannot be joined; use stack, or x.reshape(1)"),
    (lambda x: fnp.stack([x, x[0]]), ShapeError, "stack: arrays of shapes (2, 3), (3,); all must be equal"),
    (lambda x: fnp.stack([]), ShapeError, "stack: at least one array is needed"),
    (lambda x: fnp.array([x, x[0]]), ShapeError,
     "array: a list of arrays of shapes (2, 3), (3,); all must be equal"),
    (lambda x: fnp.split(x, 2, 1), ShapeError,
     "split: axis 1 of size 3 does not split into 2 equal parts; array_split allows parts that differ by one"),
    (lambda x: fnp.diag(x[None]), ShapeError, "diag: a vector or a matrix is needed, the shape is (1, 2, 3)"),
    (lambda x: fnp.pad(x, -1), ShapeError, "pad: pad_width -1 has negative entries; cut off with a slice"),
    (lambda x: fnp.pad(x, 1, "edge", constant_values=1), ArgumentError,
     "pad: mode 'edge' has no option constant_values"),
    (lambda x: fnp.broadcast_to(x, (2, 2)), ShapeError,
     ("broadcast_to: shapes (2, 3) and (2, 2) do not broadcast: axis -1 has sizes 2 and 3, where equal sizes or 1 are "
      "needed. Insert an axis with x[:, None] or x.reshape(...), or transpose one of them")),
    (lambda x: fnp.sum("no"), ArgumentError, "an operand must be an array or a number, got str"),
])
def test_messages(function: Any, error: Any, text: str) -> None:
    assert message(function, error) == text
