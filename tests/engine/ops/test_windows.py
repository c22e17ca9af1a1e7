"""Windows slid over arrays, top_k and ragged_dot as users call them, against jax: values, derivatives, batches."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax as jlax

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.lax import ragged, windows
from tests.support.with_jax import agree, compare, drawn

pytestmark = pytest.mark.slow  # jax, the oracle, compiles in every test; the laws and the examples are quick

POOLS: list[dict[str, Any]] = [
    {"window_dimensions": (1, 2, 3), "window_strides": (1, 2, 1), "padding": "VALID"},
    {"window_dimensions": (2, 2, 3), "window_strides": (1, 3, 2), "padding": "SAME"},
    {"window_dimensions": (1, 3, 2), "padding": ((0, 0), (1, 2), (0, 1))},
    {"window_dimensions": (1, 2, 2), "window_strides": (1, 2, 1), "padding": "SAME_LOWER", "base_dilation": (1, 2, 1)},
]
HOLES: dict[str, Any] = {"window_dimensions": (1, 3, 2), "padding": ((0, 0), (-1, 2), (0, 1)),
                         "window_dilation": (1, 2, 3)}


@pytest.mark.parametrize("options", POOLS, ids=str)
@pytest.mark.parametrize("name", ["add", "max", "min"])
def test_windows_are_jaxs(name: str, options: dict[str, Any]) -> None:
    start = {"add": 0.0, "max": -np.inf, "min": np.inf}[name]
    ours = {"add": np.add, "max": lambda x, y: np.maximum(y, x), "min": fnp.minimum}[name]
    compare(lambda x: windows.reduce_window(x, start, ours, **options),
            lambda x: jlax.reduce_window(x, start, getattr(jlax, name), **options), drawn(2, 6, 7))


@pytest.mark.parametrize("name", ["add", "max", "min"])
def test_windows_with_holes(name: str) -> None:
    """jax does not transpose maxima of windows with holes: there its forward mode is the oracle."""
    start = {"add": 0.0, "max": -np.inf, "min": np.inf}[name]
    combine = {"add": np.add, "max": np.maximum, "min": np.minimum}[name]
    x, tangent = drawn(2, 8, 9), drawn(2, 8, 9, seed=1)

    def ours(x):
        return windows.reduce_window(x, start, combine, **HOLES)

    theirs = lambda x: jlax.reduce_window(x, start, getattr(jlax, name), **HOLES)
    agree(fxgrad.jvp(ours, (x,), (tangent,)), jax.jit(lambda x: jax.jvp(theirs, (x,), (tangent,)))(x))
    out, pull = fxgrad.vjp(ours, x)
    cotangent = drawn(*out.shape, seed=2)
    expected = fxgrad.jvp(ours, (x,), (tangent,))[1]
    for back in (pull(cotangent)[0], fxgrad.jit(lambda x: fxgrad.vjp(ours, x)[1](cotangent)[0])(x)):
        np.testing.assert_allclose(np.sum(np.asarray(back) * tangent), np.sum(cotangent * expected), 1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "uint8", "complex64"])
@pytest.mark.parametrize("name", ["add", "max"])
def test_windows_have_jaxs_dtypes(name: str, dtype: str) -> None:
    if dtype == "complex64" and name == "max":
        return  # complex numbers have no order
    x = np.random.default_rng(0).integers(0, 9, (3, 6)).astype(jnp.dtype(dtype))
    with jax.enable_x64(True):
        start = np.zeros((), x.dtype) if name == "add" else np.asarray(0 if dtype[0] == "u" else -2.0 ** 31
                                                                      if dtype == "int32" else -np.inf).astype(x.dtype)
        expected = jlax.reduce_window(x, start[()], getattr(jlax, name), (2, 3), (1, 2), "SAME")
    agree(windows.reduce_window(x, start[()], {"add": np.add, "max": np.maximum}[name], (2, 3), (1, 2), "SAME"),
          expected)


def test_ties_go_to_the_first_element_of_a_window() -> None:
    x = np.array([1.0, 1.0, 1.0, 2.0, 2.0], "float32")

    def ours(x):
        return fnp.sum(windows.reduce_window(x, -np.inf, np.maximum, (2,)))

    expected = jax.grad(lambda x: jlax.reduce_window(x, -jnp.inf, jlax.max, (2,), (1,), "VALID").sum())(x)
    np.testing.assert_array_equal(expected, [1, 1, 0, 2, 0])
    np.testing.assert_array_equal(fxgrad.grad(ours)(x), expected)
    np.testing.assert_array_equal(fxgrad.jit(fxgrad.grad(ours))(x), expected)
    square = np.array([[1.0, 1.0], [1.0, 1.0]], "float32")
    for grad in (fxgrad.grad, lambda f: fxgrad.jit(fxgrad.grad(f))):
        np.testing.assert_array_equal(
            grad(lambda x: fnp.sum(windows.reduce_window(x, -np.inf, np.maximum, (2, 2))))(square), [[1, 0], [0, 0]])


def test_windows_of_any_function() -> None:
    options: dict[str, Any] = {"window_dimensions": (1, 3, 2), "window_strides": (1, 2, 1), "padding": "SAME",
                               "window_dilation": (1, 1, 2)}
    x, tangent = drawn(2, 5, 6), drawn(2, 5, 6, seed=1)
    for start, ours, theirs in ((1.0, np.multiply, jlax.mul), (-np.inf, np.logaddexp, jnp.logaddexp)):
        def reduced(x, start=start, combine=ours):
            return windows.reduce_window(x, start, combine, **options)

        def expected(x, start=start, combine=theirs):
            return jlax.reduce_window(x, start, combine, **options)

        # jax has no reverse mode of these.
        value, slope = fxgrad.jvp(reduced, (x,), (tangent,))
        agree((value, slope), jax.jvp(expected, (x,), (tangent,)))
        agree(fxgrad.jit(reduced)(x), expected(x))
        cotangent = drawn(*value.shape, seed=2)
        back, = fxgrad.vjp(reduced, x)[1](cotangent)
        np.testing.assert_allclose(np.sum(back * tangent), np.sum(cotangent * slope), 2e-5)
        agree(fxgrad.vmap(reduced, in_axes=1)(np.stack([x, -x], 1)), np.stack([expected(x), expected(-x)]))
    # A sum that does not start from 0 counts its start, and as often as it is in the padding.
    agree(windows.reduce_window(x, 0.5, np.add, (1, 2, 2)), jlax.reduce_window(x, 0.5, jlax.add, (1, 2, 2)))
    around = np.pad(x, ((0, 0), (1, 0), (0, 2)), constant_values=0.5)
    agree(windows.reduce_window(x, 0.5, np.add, (1, 2, 2), padding=((0, 0), (1, 0), (0, 2))),
          jlax.reduce_window(around, 0.5, jlax.add, (1, 2, 2)))
    bits = np.random.default_rng(0).integers(0, 2, (3, 4)).astype(bool)
    agree(windows.reduce_window(bits, True, np.logical_and, (2, 2)),
          jlax.reduce_window(bits, True, jlax.bitwise_and, (2, 2)))


def test_windows_of_several_arrays_and_captured_ones() -> None:
    keys, values = drawn(9), np.arange(9, dtype="int32")

    def ours(left, right):
        is_greater = left["key"] >= right["key"]
        return {name: fnp.where(is_greater, left[name], right[name]) for name in left}

    def theirs(left, right):
        is_greater = left["key"] >= right["key"]
        return {name: jnp.where(is_greater, left[name], right[name]) for name in left}

    start = {"key": np.float32(-np.inf), "value": np.int32(-1)}
    given = {"key": keys, "value": values}
    agree(windows.reduce_window(given, start, ours, (3,), (2,), "SAME"),
          jlax.reduce_window(given, start, theirs, (3,), (2,), "SAME"))
    weight = np.float32(0.5)

    def weighted(x, w):
        return windows.reduce_window(x, np.float32(0), lambda a, b: a * w + b, (3,))

    np.testing.assert_allclose(weighted(keys, weight), [keys[i] / 4 + keys[i + 1] / 2 + keys[i + 2] for i in range(7)],
                               rtol=1e-5)
    slope = fxgrad.grad(lambda w: fnp.sum(weighted(keys, w)))(weight)
    np.testing.assert_allclose(slope, sum(keys[i] + keys[i + 1] for i in range(7)), rtol=2e-5)


# --- top_k ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_top_k_is_jaxs(axis: int) -> None:
    x = drawn(6, 7)
    for ours, theirs in ((windows.top_k, jlax.top_k),
                         (lambda x, k, axis: windows.approx_max_k(x, k, axis),
                          lambda x, k, axis: jlax.approx_max_k(x, k, axis)),
                         (lambda x, k, axis: windows.approx_min_k(x, k, axis),
                          lambda x, k, axis: jlax.approx_min_k(x, k, axis))):
        agree(ours(x, 3, axis=axis), theirs(x, 3, axis=axis))
        compare(lambda x, ours=ours: ours(x, 3, axis=axis)[0],
                lambda x, theirs=theirs: theirs(x, 3, axis=axis)[0], x)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint32", "bool"])
def test_top_k_orders_as_jax(dtype: str) -> None:
    values = [3, 0, 1, 3, 0, 2, 3] + ([np.nan, -0.0, np.inf, -np.inf, 0.0, -np.nan] if "float" in dtype else [])
    x = np.array(values).astype(jnp.dtype(dtype))
    for ours, theirs in zip(windows.top_k(x, len(x)), jlax.top_k(x, len(x)), strict=True):
        np.testing.assert_array_equal(np.asarray(ours, "float64"), np.asarray(theirs, "float64"))
        np.testing.assert_array_equal(*(np.signbit(np.asarray(each, "float64")) for each in (ours, theirs)))


# --- products with groups of rows -------------------------------------------------------------------------------------


def test_ragged_dot_is_jaxs() -> None:
    lhs, rhs = drawn(7, 3), drawn(4, 3, 5, seed=1)
    for sizes in (np.int32([2, 0, 4, 1]), np.int32([1, 2, 0, 1]), np.array([3, 3, 3, 3])):
        def by_definition(x, y, sizes=sizes):
            ends = np.cumsum(sizes)
            rows = [x[begin:end] @ y[group] for group, (begin, end) in enumerate(zip([0, *ends], ends, strict=False))]
            return jnp.concatenate([*rows, jnp.zeros((7, 5), x.dtype)])[:7]

        agree(by_definition(lhs, rhs), jlax.ragged_dot(lhs, rhs, sizes.astype("int32")))
        compare(lambda x, y, sizes=sizes: ragged.ragged_dot(x, y, sizes), by_definition, lhs, rhs,
                second=sizes[0] == 2)
    sizes = np.int32([2, 0, 4, 1])
    agree(ragged.ragged_dot(lhs.astype("bfloat16"), rhs.astype("bfloat16"), sizes, "highest", "float32"),
          jlax.ragged_dot(lhs.astype("bfloat16"), rhs.astype("bfloat16"), sizes, None, np.float32))
    with pytest.raises(errors.ShapeError, match=re.escape(
            "ragged_dot: shapes (7, 3), (4, 3, 5) and (3,); (rows, inner), (groups, inner, columns) and (groups,) are "
            "needed")):
        ragged.ragged_dot(lhs, rhs, sizes[:3])
    with pytest.raises(errors.UnsupportedError, match="group_offset="):
        ragged.ragged_dot(lhs, rhs, sizes, group_offset=np.int32([0]))
