"""Values at the edges: negative and outside places, narrow dtypes, no elements, numbers out of range; on every path."""

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
import fxgrad.scipy.linalg
from fxgrad.errors import ArgumentError, FxgradError, ShapeError

Function = Callable[..., Any]


def paths(function: Function, *args: Any) -> list[Any]:
    """The result by itself, compiled, batched, and called three times un-jitted under a transformation."""
    batch = [np.stack([arg]) for arg in args]
    mapped = fxgrad.vmap(function)
    with np.errstate(all="ignore"):
        return [function(*args), fxgrad.jit(function)(*args), *(mapped(*batch)[0] for _ in range(3))]


def on_every_path(function: Function, args: tuple[Any, ...], expected: Any, *, exact: bool = True,
                  dtype: Any = None) -> None:
    for result in paths(function, *args):
        got = np.asarray(result)
        assert got.dtype == (np.asarray(expected).dtype if dtype is None else dtype)
        if exact:
            np.testing.assert_array_equal(got, expected)
            if got.dtype.kind == "f":
                there = ~np.isnan(got)
                np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(expected)[there])
        else:
            np.testing.assert_allclose(got, expected, rtol=4e-15 if got.dtype.itemsize >= 8 else 2e-6)


X = np.array([1.0, 2.0, 3.0, 4.0])
PLACES = np.array([-1, -6, 5], np.int32)


def test_piecewise_takes_the_last_condition_that_holds() -> None:
    on_every_path(lambda x: fnp.piecewise(x, [x > 0, x > 1.5], [10.0, 20.0]), (X,), np.array([10.0, 20, 20, 20]))
    on_every_path(lambda x: fnp.piecewise(x, [x > 1, x > 2], [10.0, 20.0, 5.0]), (X,), np.array([5.0, 10, 20, 20]))


@pytest.mark.parametrize("mode", ["clip", "fill", "drop", "wrap", "promise_in_bounds"])
@pytest.mark.parametrize("dtype", [np.int8, *(pytest.param(each, marks=pytest.mark.slow) for each in (
    np.int32, np.int64, np.uint8))])
def test_negative_places(mode: str, dtype: Any) -> None:
    """They count from the end, on every path; `take` alone clips them, as NumPy does."""
    array = np.arange(200.0)
    places = np.array([3, 100], dtype) if dtype == np.uint8 else np.array([-1, -100, 5], dtype)
    expected = array[places.astype(int)]
    on_every_path(lambda x, i: fnp.take_along_axis(x, i, 0, mode=mode), (array, places), expected)
    if mode != "wrap":
        on_every_path(lambda x, i: fnp.at(x)[i].get(mode=mode), (array, places), expected)
        changed = array.copy()
        changed[places.astype(int)] = -9.0
        on_every_path(lambda x, i: fnp.at(x)[i].set(-9.0, mode=mode), (array, places), changed)


@pytest.mark.parametrize("mode", ["clip", "fill", "drop"])
def test_places_out_of_range(mode: str) -> None:
    """As jax has them."""
    on_every_path(lambda x, i: fnp.at(x)[i].get(mode=mode), (X, PLACES), np.asarray(jnp.asarray(X).at[PLACES].get(
        mode=mode), np.float64))
    on_every_path(lambda x, i: fnp.at(x)[i].set(9.0, mode=mode), (X, PLACES), np.asarray(jnp.asarray(X).at[PLACES].set(
        9.0, mode=mode), np.float64))


def test_places_that_are_clipped_onto_one_another_have_one_winner() -> None:
    for put in (lambda v: fnp.put(np.zeros(3), np.array([2, 7]), v, inplace=False),
                lambda v: fnp.at(np.zeros(3))[np.array([2, 7])].set(v, mode="clip")):
        v = np.array([1.0, 2.0])
        assert put(v).tolist() == [0.0, 0.0, 2.0]
        assert fxgrad.grad(lambda v, put=put: np.sum(put(v)))(v).tolist() == [0.0, 1.0]


def test_put_of_negative_places() -> None:
    on_every_path(lambda x, i: fnp.put(x, i, 9.0, inplace=False), (X, np.array([-1])), np.array([1.0, 2, 3, 9]))
    on_every_path(lambda x, i: fnp.put(x, i, 9.0, inplace=False), (X, PLACES), np.array([9.0, 2, 3, 9]))
    on_every_path(lambda x: fnp.put(x, [], [], inplace=False), (X,), X)
    assert fnp.put(X, [], [], inplace=False) is not X


def test_fill_values_keep_their_sign() -> None:
    for fill in (0.0, -0.0, 0.0):
        on_every_path(lambda x, i, fill=fill: fnp.take(x, i, mode="fill", fill_value=fill), (X, np.array([9])),
                      np.array([fill]))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.complex128])
@pytest.mark.parametrize("name", ["linspace", "logspace", "geomspace"])
def test_spaces_are_computed_in_their_dtype(name: str, dtype: Any) -> None:
    for bounds in ((0.1, 1.0), (3, 7), ([0.1, 0.2], 2.0)):
        expected = getattr(np, name)(*bounds, 7, dtype=dtype)
        def make(bounds: Any = bounds) -> Any:
            return getattr(fnp, name)(*bounds, 7, dtype=dtype)

        for result in (make(), fxgrad.jit(make)()):
            got = np.asarray(result)
            assert got.dtype == dtype
            np.testing.assert_allclose(got, expected, rtol=1e-6 if dtype == np.float32 else 1e-14)


@pytest.mark.parametrize(("name", "bounds"), [
    ("geomspace", (1e-30, 1e30, 5)), ("geomspace", (-2.0, -54.0, 4)), ("geomspace", (1, 8, 0)),
    ("logspace", (-30, 30, 61))])
def test_spaces_by_factors_are_rounded_once(name: str, bounds: tuple[Any, ...]) -> None:
    expected = getattr(np, name)(*bounds).astype("float32")
    for result in (getattr(fnp, name)(*bounds), fxgrad.jit(lambda: getattr(fnp, name)(*bounds))()):
        assert result.dtype == np.float32
        np.testing.assert_array_equal(np.asarray(result), expected)


@pytest.mark.parametrize("name", ["mean", "var", "std", "average"])
def test_statistics_of_integers_of_32_bits_are_rounded_once(name: str) -> None:
    limits = np.array([-2**31, 2**31 - 1, 0, 1], np.int32)
    for integers in (limits, np.array([2**25, 2**25 + 1], np.int32)):
        on_every_path(getattr(fnp, name), (integers,), np.float32(getattr(np, name)(integers)))


def test_differences_of_order_0() -> None:
    on_every_path(lambda x: fnp.diff(x, n=0, prepend=0.0, append=9.0), (X,), X)
    assert fnp.diff(X, n=0) is not X
    with pytest.raises(ArgumentError, match="diff: n=-1; the number of differences must not be negative"):
        fnp.diff(X, n=-1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
def test_cumulative_sums_of_narrow_integers(dtype: Any) -> None:
    """Unlike `cumsum`, they are widened."""
    narrow = np.array([100, 100, 100], dtype)
    wide = np.dtype(f"{np.dtype(dtype).kind}4")
    on_every_path(lambda x: fnp.cumulative_sum(x), (narrow,), np.array([100, 200, 300], wide))
    on_every_path(lambda x: fnp.cumulative_prod(x), (narrow,), np.array([100, 10000, 1000000], wide))


def test_initial_numbers_are_of_the_results_dtype() -> None:
    on_every_path(lambda x: fnp.max(x, initial=0), (np.array([True, False]),), np.array(True))
    on_every_path(lambda x: fnp.min(x, initial=2.7), (np.array([3, 4], np.int32),), np.array(2, np.int32))
    on_every_path(lambda x: fnp.sum(x, initial=2.5), (np.array([3, 4], np.int32),), np.array(9, np.int32))
    for reduction in (fnp.sum, fnp.prod, fnp.max, fnp.min):
        with pytest.raises(ShapeError, match=f"{reduction.__name__}: initial must be a number, and has the shape"):
            reduction(np.ones((2, 3)), axis=1, initial=np.zeros((5, 2)))


@pytest.mark.parametrize("name", ["nanvar", "nanstd", "nanmean", "nansum", "nanprod", "nanmax", "nanmin"])
def test_derivatives_where_nans_are_left_out(name: str) -> None:
    """They are those of what is left, and 0 where a NaN was."""
    x = np.array([np.nan, 1.0, 2.0, 4.0])
    ours, theirs = getattr(fnp, name), getattr(fnp, name.removeprefix("nan"))
    np.testing.assert_allclose(fxgrad.grad(ours)(x), [0.0, *fxgrad.grad(theirs)(x[1:])], rtol=1e-12)
    np.testing.assert_allclose(fxgrad.hessian(ours)(x)[1:, 1:], fxgrad.hessian(theirs)(x[1:]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (1,), (2, 1), (0, 3)])
def test_covariances_of_too_few(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape)
    for result in (fnp.cov(x), fxgrad.jit(fnp.cov)(x)):
        np.testing.assert_array_equal(result, np.full(jnp.cov(x).shape, np.nan))


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.5, -7.25, 1e300, -5e-324, 0.1])
PAIRS = tuple(each.ravel() for each in np.meshgrid(SPECIAL, SPECIAL))
WHOLE = {dtype: np.array([*range(5), 7, np.iinfo(dtype).max, np.iinfo(dtype).min, np.iinfo(dtype).min + 1,
                          *(() if np.dtype(dtype).kind == "u" else (-1, -2, -3))], object).astype(dtype)
         for dtype in (np.int8, np.uint8, np.int32, np.int64, np.uint64)}


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "divide", "copysign", "hypot", "arctan2", "fmax",
                                  "maximum", "heaviside", "logaddexp"])
def test_operations_on_peculiar_floats(name: str) -> None:
    function = getattr(fnp, name)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(*PAIRS)
    subnormal = (np.abs(PAIRS[0]) < 1e-300) & (PAIRS[0] != 0) | (np.abs(PAIRS[1]) < 1e-300) & (PAIRS[1] != 0)
    for place, got in enumerate(paths(function, *PAIRS)):
        compared = ~subnormal if place == 1 else np.full(subnormal.shape, True)  # XLA takes those for zeros
        np.testing.assert_allclose(np.asarray(got)[compared], expected[compared], rtol=1e-15)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "add", "subtract", "multiply", "power", "gcd",
                                  "lcm", "bitwise_xor", "maximum", "divide"])
@pytest.mark.parametrize("dtype", [each if np.dtype(each).itemsize == 1 else pytest.param(each, marks=pytest.mark.slow)
                                   for each in WHOLE])
def test_operations_on_peculiar_integers(name: str, dtype: Any) -> None:
    x, y = (each.ravel() for each in np.meshgrid(WHOLE[dtype], WHOLE[dtype]))
    if name == "power":
        x, y = x[y >= 0], y[y >= 0]
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
    for got in paths(getattr(fnp, name), x, y):
        np.testing.assert_allclose(got, expected, rtol=3e-7 if name == "divide" else 0)


@pytest.mark.parametrize("target", [np.uint8, np.int8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("dtype", ["float32", "float64", *(pytest.param(name, marks=pytest.mark.slow) for name in
                                                           ("float16", "bfloat16"))])
def test_floats_out_of_the_range_of_integers(dtype: str, target: Any) -> None:
    """The nearest integer that there is, and 0 for a NaN, on every path."""
    info = np.iinfo(target)
    numbers = [0.0, -0.9, -1.5, 300.0, -300.0, np.nan, np.inf, -np.inf, 127.9, -128.9, 2.0**31, -(2.0**31), 2.0**63,
               1e30, float(info.max), float(info.min), 65504.0]
    x = jnp.asarray(numbers, dtype) if dtype == "bfloat16" else np.array(numbers)
    with np.errstate(all="ignore"):
        x = np.asarray(x).astype(dtype)
    exact = [0 if np.isnan(each) else max(min(each, info.max), info.min) for each in map(float, x)]
    on_every_path(lambda x: fnp.astype(x, target), (x,), np.array([int(each) for each in exact], object).astype(target))
    few = fnp.astype(x[:3], target)
    np.testing.assert_array_equal(few, np.array([int(each) for each in exact[:3]], object).astype(target))


def test_signs_of_nans_and_zeros() -> None:
    x = np.array([0.0, -0.0, np.nan, -np.nan, 1.0, -1.0, np.inf, -np.inf])
    for dtype in (np.float16, np.float32, np.float64):
        on_every_path(fnp.signbit, (x.astype(dtype),), np.signbit(x))
        for got in paths(fnp.copysign, np.full(8, 2.0, dtype), x.astype(dtype)):
            np.testing.assert_array_equal(np.signbit(got), np.signbit(x))


def test_logarithms_of_complex_zero() -> None:
    z = np.array([0j, 1 + 0j, -1 + 0j, 8 + 8j])
    for name in ("log2", "log10"):
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(z)
        for got in paths(getattr(fnp, name), z):
            np.testing.assert_allclose(got, expected, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", ["log1p", "expm1"])
def test_small_complex_numbers_keep_their_digits(name: str, dtype: Any) -> None:
    random = np.random.default_rng(0)
    sizes = 10.0 ** random.uniform(-12, 0.5, 200)
    z = (sizes * np.exp(1j * random.uniform(-3, 3, 200))).astype(dtype)
    z = np.concatenate([z, [1e-9, 1e-5j, 0.3 + 0j, -0.2]]).astype(dtype)
    wide = z.astype(np.clongdouble)
    exact = np.expm1(wide.real) * np.cos(wide.imag) - 2 * np.sin(wide.imag / 2)**2 + 1j * np.exp(wide.real) * np.sin(
        wide.imag) if name == "expm1" else np.log1p(wide.real * (2 + wide.real) + wide.imag**2) / 2 + 1j * np.arctan2(
            wide.imag, 1 + wide.real)
    got = getattr(fnp, name)(z)
    tolerance = 1e-6 if dtype == np.complex64 else 1e-14
    np.testing.assert_array_less(np.abs(got - exact) / np.abs(exact), tolerance)
    assert fnp.expm1(np.array([complex(np.inf, 0)]))[0] == complex(np.inf, 0)


@pytest.mark.slow
def test_functions_are_applied_as_often_as_an_element_is_addressed() -> None:
    x, i = np.array([1.0, -2.0, 3.0]), np.array([1, 1, 2, 1])
    expected = np.array([1.0, 256.0, 9.0])
    on_every_path(lambda x: fnp.at(x)[i].apply(np.square), (x,), expected)
    on_every_path(lambda x, i: fnp.at(x)[i].apply(np.square), (x, i), expected)
    on_every_path(lambda x: fnp.at(x)[i].power(2.0), (x,), expected)
    on_every_path(lambda x: fnp.at(x)[1:].apply(np.square), (x,), np.array([1.0, 4.0, 9.0]))
    np.testing.assert_allclose(fxgrad.grad(lambda x: fnp.sum(fnp.at(x)[i].apply(np.square)))(x), [1.0, -1024.0, 6.0],
                               rtol=1e-12)
    many = np.array([0, 1, 1, 0, 2, 0, 0, 1, 0, 0])
    expected = np.array([0.5, 0.5, 0.5])
    for _ in range(6):
        expected[:1] = np.cos(expected[:1])
    expected[1], expected[2] = np.cos(np.cos(np.cos(0.5))), np.cos(0.5)
    on_every_path(lambda x, i: fnp.at(x)[i].apply(np.cos), (np.full(3, 0.5), many), expected, exact=False)
    total = fxgrad.grad(lambda x, i: fnp.sum(fnp.at(x)[i].apply(np.cos)))
    np.testing.assert_allclose(fxgrad.jit(total)(np.full(3, 0.5), many), total(np.full(3, 0.5), many), rtol=1e-14)


def test_complex_numbers_with_nans_have_one_order() -> None:
    """NumPy's under its names: those with a NaN last; else jax's: by the real parts, then by the imaginary ones."""
    nan = np.nan
    z = np.array([complex(1, nan), complex(nan, 1), 0, complex(nan, nan), 2 - 1j, complex(np.inf, nan), complex(2, nan),
                  complex(nan, 0), complex(-0.0, -1), 1], np.complex64)
    keys = np.arange(10) % 2
    functions: list[Function] = [np.sort, lambda z: np.argsort(z, kind="stable"), np.sort_complex,
                                 lambda z: np.lexsort((keys, z)), lambda z: np.lexsort((z, keys)),
                                 lambda z: np.sort(np.stack([z, z[::-1]]), axis=0)]
    for function in functions:
        expected = function(z)
        for got in paths(function, z):
            np.testing.assert_array_equal(got, expected)
    for name in ("sort", "argsort", "sort_complex"):
        expected = np.asarray(getattr(jnp, name)(z))
        for got in paths(getattr(fnp, name), z):
            np.testing.assert_array_equal(got, expected)
    expected = np.asarray(jnp.lexsort((jnp.asarray(z), jnp.asarray(keys))))
    for got in paths(lambda z: fnp.lexsort((z, keys)), z):
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(fxgrad.vmap(lambda z: z.argsort())(z[None])[0], np.argsort(z, kind="stable"))


@pytest.mark.parametrize("make", [
    lambda: fnp.zeros(-1), lambda: fnp.ones((2, -1)), lambda: fnp.empty(-1), lambda: fnp.full(-1, 2.0),
    lambda: fnp.zeros_like(np.ones(2), shape=-1), lambda: fnp.indices((-1,)),
    lambda: fnp.broadcast_to(np.ones(1), (-1,)), lambda: fxgrad.lax.full((-1,), 1.0),
    lambda: fxgrad.lax.broadcast(np.ones(2), (-1,)), lambda: fxgrad.lax.broadcasted_iota("int32", (-1,), 0),
    lambda: fxgrad.nn.initializers.zeros(fxgrad.random.key(0), (-1,))])
def test_negative_sizes_are_refused(make: Function) -> None:
    for made in (make, fxgrad.jit(make)):
        with pytest.raises(ShapeError, match=r"^\w+: the shape \(.*-1,?\) has a negative size"):
            made()


def test_negative_counts_are_refused() -> None:
    for make in (lambda: fnp.repeat(np.ones(2), -1), lambda: fxgrad.nn.one_hot(np.array([1]), -1)):
        with pytest.raises(ArgumentError, match=r"^\w+: the size must be non-negative, got -1"):
            make()


def test_python_numbers_give_way_in_result_type() -> None:
    for dtype in (np.uint8, np.int16, np.uint32, np.float16):
        for number in (1, True) if dtype != np.float16 else (1, 1.5, True):
            assert fnp.result_type(dtype, number) == np.dtype(dtype) == fnp.result_type(np.ones(2, dtype), number)
    for pair in ((np.uint8, 1.5), (np.uint32, 1.5), (np.int8, 1j)):
        assert fnp.result_type(*pair) == jnp.result_type(*pair)


def test_rolls_by_several_shifts() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    for shift, axis in ((np.array([1]), (0,)), (np.array([1, -2]), (1, 2)), ([1, 2], 2), (2, (0, 2)), (np.array(1), 1)):
        on_every_path(lambda x, shift=shift, axis=axis: fnp.roll(x, shift, axis), (x,), np.roll(x, shift, axis))
    got = fxgrad.jit(lambda x, shift: fnp.roll(x, shift, (0, 1)))(x, np.array([1, 2]))
    np.testing.assert_array_equal(got, np.roll(x, (1, 2), (0, 1)))
    with pytest.raises(ShapeError, match="roll: 2 shifts along 3 axes; equal numbers, or one of either, are needed"):
        fnp.roll(x, (1, 2), (0, 1, 2))


CONTAINERS: dict[str, Function] = {
    "gradient": np.gradient, "meshgrid": lambda x: np.meshgrid(x[0], x[1]), "split": lambda x: np.split(x, 3, 1),
    "broadcast_arrays": lambda x: np.broadcast_arrays(x, x[0]), "array_split": lambda x: np.array_split(x, 2, 1),
    "atleast_1d": lambda x: np.atleast_1d(x, x), "atleast_2d": lambda x: np.atleast_2d(x, x),
    "atleast_3d": lambda x: np.atleast_3d(x, x), "hsplit": lambda x: np.hsplit(x, 3),
    "vsplit": lambda x: np.vsplit(x, 2), "modf": np.modf, "frexp": np.frexp, "divmod": lambda x: np.divmod(x, 2.0),
    "histogram": lambda x: np.histogram(x, 3)}


@pytest.mark.parametrize("name", CONTAINERS)
def test_tuples_stay_tuples(name: str) -> None:
    """And lists stay lists: what NumPy's function returns it returns of traced arrays."""
    x = np.arange(6.0).reshape(2, 3) + 1
    expected = CONTAINERS[name](x)
    for got in (fxgrad.jit(CONTAINERS[name])(x), fxgrad.vmap(CONTAINERS[name])(x[None])):
        assert type(got) is type(expected)
        assert len(got) == len(expected)


@pytest.mark.parametrize("precision", [fxgrad.lax.Precision.HIGHEST, jax.lax.Precision.DEFAULT, "highest", None])
def test_precisions_of_every_kind(precision: Any) -> None:
    x = np.arange(4.0).reshape(2, 2)
    for function in (fnp.matmul, fnp.dot, fnp.tensordot, fnp.inner, lambda x, y, precision: fnp.einsum(
            "ij,jk", x, y, precision=precision)):
        on_every_path(lambda x, function=function: function(x, x, precision=precision), (x,),
                      np.asarray(function(x, x, precision=None)))


MESSAGES: list[tuple[Function, str]] = [
    (lambda x: fnp.tensordot(x, x, "a"),
     "tensordot: axes must be a number of axes or a pair of sequences of axes, got 'a'"),
    (lambda x: fnp.tensordot(x, x, (0, 1, 2)),
     "tensordot: axes must be a number of axes or a pair of sequences of axes, got (0, 1, 2)"),
    (lambda x: fnp.tensordot(x, x, 1.5),
     "tensordot: axes must be a number of axes or a pair of sequences of axes, got 1.5"),
    (lambda x: fnp.ones("a"), "a shape is an integer or a sequence of integers, got 'a'"),
    (lambda x: fnp.zeros((2, 1.5)), "a shape is an integer or a sequence of integers, got (2, 1.5)"),
    (lambda x: fnp.reshape(x, "a"), "a shape is an integer or a sequence of integers, got 'a'"),
    (lambda x: fnp.split(x, 1.5), "split: a number of parts or the places to cut at are integers, got 1.5"),
    (lambda x: fnp.split(x, [0.5]), "split: a number of parts or the places to cut at are integers, got [0.5]"),
    (lambda x: fxgrad.vmap(lambda x: x[1.5:2])(x), (
        "x[...]: slice(1.5, 2, None) is no slice of integers: slice indices must be integers or None or have an "
        "__index__ method")),
    (lambda x: fxgrad.lax.while_loop(lambda c: 3.0 - c, lambda c: c + 1, np.float32(0)),
     "while_loop: function must return a bool, got f32[]. Compare it, for example with != 0"),
    (lambda x: fxgrad.linearize(fnp.sum, np.arange(3))[1](np.ones((7, 2))),
     ("linearize: the tangent of leaf 0 of the arguments has the shape (7, 2), and the primal is i64[3], which has "
      "no tangent but zero. Write np.zeros((3,), fxgrad.dtypes.float0)")),
]


@pytest.mark.parametrize("case", range(len(MESSAGES)))
def test_messages(case: int) -> None:
    function, message = MESSAGES[case]
    with pytest.raises(FxgradError) as raised:
        function(np.ones((2, 3)))
    assert str(raised.value).splitlines()[0] == message


def test_shapes_may_be_arrays() -> None:
    assert fnp.ones(np.array(4)).shape == (4,)
    assert fnp.ones(np.array([4, 2])).shape == (4, 2)


def test_convolutions_of_integers_in_a_dtype_of_integers() -> None:
    a = np.array([100, 3, -7], np.int8)
    on_every_path(lambda a: fnp.convolve(a, a, preferred_element_type=np.int32), (a,),
                  np.convolve(a.astype(np.int32), a.astype(np.int32)))


def test_convolutions_of_no_images() -> None:
    kernel, images = np.ones((1, 1, 2, 2), np.float32), np.ones((0, 1, 1, 4, 4), np.float32)
    convolve = lambda image: fxgrad.lax.conv(image, kernel, (1, 1), "VALID")
    assert fxgrad.vmap(convolve)(images).shape == (0, 1, 1, 3, 3)
    assert fxgrad.vmap(fxgrad.grad(lambda image: fnp.sum(convolve(image))))(images).shape == images.shape


def test_strict_promotion_of_jax_is_for_jax_code() -> None:
    with jax.numpy_dtype_promotion("strict"):
        for function in (fxgrad.scipy.linalg.expm, fxgrad.jit(fxgrad.scipy.linalg.expm)):
            np.testing.assert_allclose(function(np.zeros((2, 2), np.complex64)), np.eye(2))


def test_linear_transposes() -> None:
    """Of integers too, and of functions of which other results are not linear, or not asked for."""
    x = np.arange(3, dtype=np.int32)
    for function in (lambda x: 2 * x, fxgrad.jit(lambda x: 2 * x)):
        transposed, = fxgrad.linear_transpose(function, x)(x)
        np.testing.assert_array_equal(transposed, 2 * x)
        assert transposed.dtype == np.int32
    both = fxgrad.jit(lambda x: (x > 0, 2 * x))
    assert fxgrad.linear_transpose(lambda x: both(x)[1], 1.0)(1.0) == (2.0,)
    assert fxgrad.linear_transpose(lambda x: (x > 0, 2 * x)[1], 1.0)(1.0) == (2.0,)


def test_rows_of_the_jacobian_of_a_real_function_of_complex_numbers() -> None:
    def size(z: Any) -> Any:
        return fnp.sum(fnp.abs(z) ** 2)

    z = np.array([1 + 1j, 2 - 3j])
    np.testing.assert_allclose(fxgrad.jacrev(size)(z), fxgrad.grad(size)(z), rtol=1e-12)
    np.testing.assert_allclose(fxgrad.jacrev(size)(z), jax.jacrev(lambda z: jnp.sum(jnp.abs(z) ** 2))(z), rtol=1e-6)


ROWS = fxgrad.lax.GatherDimensionNumbers((), (0,), (0,))
PLACED = fxgrad.lax.ScatterDimensionNumbers((), (0,), (0,))


@pytest.mark.parametrize("mode", [None, "clip", "fill", "promise_in_bounds"])
def test_gather_and_scatter_take_places_as_they_are(mode: Any) -> None:
    """Negative places do not count from the end in `jax.lax`, and a promise that is broken is so in the same way."""
    x, places, ones = X[:3], np.array([[-1], [-6], [5], [1]]), np.ones(4)
    with jax.enable_x64(True):
        taken = np.asarray(jax.lax.gather(x, places, ROWS, (1,), mode=mode))
        added = np.asarray(jax.lax.scatter_add(x, places, ones, PLACED, mode=mode))
    on_every_path(lambda x, i: fxgrad.lax.gather(x, i, ROWS, (1,), mode=mode), (x, places), taken)
    on_every_path(lambda x, i, u: fxgrad.lax.scatter_add(x, i, u, PLACED, mode=mode), (x, places, ones), added)


PARTS = (np.nan, np.inf, -np.inf, 1.0, 0.0)
POINTS = np.array([complex(real, imaginary) for real in PARTS for imaginary in PARTS])


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extrema_of_complex_numbers_are_the_first_nan(name: str) -> None:
    x, y = (points.ravel() for points in np.meshgrid(POINTS, POINTS))
    ufunc = getattr(np, name)
    for f in (getattr(fnp, name), ufunc):
        on_every_path(f, (x, y), ufunc(x, y))
    reduced, running = getattr(fnp, name[:3]), getattr(fxgrad.lax, f"cum{name[:3]}")
    for points in (POINTS, POINTS[::-1], POINTS[18:20]):
        on_every_path(reduced, (points,), ufunc.reduce(points))
        on_every_path(running, (points,), ufunc.accumulate(points))
    on_every_path(lambda z: reduced(z, 1), (POINTS.reshape(5, 5),), ufunc.reduce(POINTS.reshape(5, 5), 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_spacing_to_the_bit(dtype: Any) -> None:
    """Of numbers of all sizes, of subnormal ones too, which XLA takes for 0 in arithmetic."""
    width = np.dtype(dtype).itemsize
    bits = np.random.default_rng(0).integers(0, 2**(8 * width) - 1, 1000, f"u{width}")
    small = np.arange(100, dtype=bits.dtype) << np.finfo(dtype).nmant >> 1
    x = np.concatenate([bits.view(dtype), small.view(dtype), -small.view(dtype)])
    with np.errstate(invalid="ignore"):
        expected = np.spacing(x)
    on_every_path(fnp.spacing, (x,), expected)


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (0, 0), (3, 0, 2), (3, 2, 0)])
@pytest.mark.parametrize("order", ["fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf])
def test_norms_of_matrices_without_elements(shape: tuple[int, ...], order: Any) -> None:
    x = np.zeros(shape)
    try:
        expected = np.linalg.norm(x, order, (-2, -1))
    except ValueError:  # there is no least of nothing; before version 2.3 NumPy refuses the greatest, too
        if order in (2, 1, np.inf):
            np.testing.assert_array_equal(fnp.linalg.norm(x, order, (-2, -1)), np.zeros(shape[:-2]))
            return
        with pytest.raises(ShapeError, match=re.escape(
                f"norm: ord={order!r} is the least of several numbers, of which an empty array has none; ord=2, 1 and "
                "inf, the greatest, are 0 there")):
            fnp.linalg.norm(x, order, (-2, -1))
    else:
        np.testing.assert_array_equal(fnp.linalg.norm(x, order, (-2, -1)), expected)
        mapped = fxgrad.vmap(lambda x: fnp.linalg.norm(x, order, (-2, -1)))
        np.testing.assert_array_equal(mapped(np.stack([x, x])), [expected] * 2)


def test_the_greatest_norm_of_an_empty_vector() -> None:
    assert float(fnp.linalg.norm(np.zeros(0), np.inf)) == 0.0
    assert float(fnp.linalg.norm(np.array([-3.0, 2.0]), np.inf)) == 3.0


@pytest.mark.parametrize("shape", [(3, 0), (0, 3)])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_unique_of_slices_without_elements(shape: tuple[int, ...], axis: int | None) -> None:
    x = np.zeros(shape)
    asked = {"return_index": True, "return_inverse": True, "return_counts": True, "axis": axis}
    for got, expected in zip(fnp.unique(x, **asked), np.unique(x, **asked), strict=True):
        np.testing.assert_array_equal(got, expected)
        assert got.shape == expected.shape


def test_tridiagonal_of_one_complex_number_is_that_of_its_real_part() -> None:
    on_every_path(lambda a: fxgrad.lax.linalg.tridiagonal(a)[0], (np.array([[1.0 + 2.0j]]),), np.array([[1.0 + 0.0j]]))


TOO_LARGE = ("the integer 1180591620717411303424 has more than 64 bits. Write it as a float, for example 2.0**70, or "
             "give dtype='float64'")


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda: fnp.asarray(2**70), OverflowError, TOO_LARGE),
    (lambda: fnp.full(4, [1, 2.0, 2**63, 2**70]), OverflowError, TOO_LARGE),
    (lambda: fnp.array([1, 300], "uint8"), OverflowError,
     "the integer 300 is out of bounds for uint8, which holds 0 to 255. Give a wider dtype"),
    (lambda: fnp.asarray(-1, "uint8"), OverflowError,
     "the integer -1 is out of bounds for uint8, which holds 0 to 255. Give a wider dtype"),
    (lambda: fnp.arange("a"), ArgumentError, "arange: start, stop and step are real numbers, got 'a'"),
    (lambda: fnp.arange(1j), ArgumentError, "arange: start, stop and step are real numbers, got 1j"),
    (lambda: fnp.arange(None), ArgumentError, "arange: start, stop and step are real numbers, got None"),
    (lambda: fnp.arange(np.ones(2)), ArgumentError,
     "arange: start, stop and step are real numbers, got array([1., 1.])"),
    (lambda: fnp.arange(0, 3, 0), ArgumentError,
     "arange: it counts from 0 to 3 in steps of 0; finite numbers and a step that is not 0 are needed"),
    (lambda: fnp.arange(np.nan), ArgumentError,
     "arange: it counts from 0 to nan in steps of 1; finite numbers and a step that is not 0 are needed"),
    (lambda: fnp.eye(2.5), ArgumentError, "eye: an integer is needed, got 2.5"),
    (lambda: fnp.eye(3, k=1.5), ArgumentError, "eye: an integer is needed, got 1.5"),
    (lambda: fnp.eye(3, -2), ArgumentError, "eye: the size must be non-negative, got -2"),
    (lambda: fnp.tri("a"), ArgumentError, "tri: an integer is needed, got 'a'"),
    (lambda: fnp.linspace(0, 1, 2.5), ArgumentError, "linspace: an integer is needed, got 2.5"),
    (lambda: fnp.tile(np.ones(2), 1.5), ArgumentError,
     "tile: the number of repetitions is an integer or a sequence of integers, got 1.5"),
])
def test_numbers_that_make_no_array(make: Function, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        make()
    text, _, line = str(raised.value).partition("\n")
    assert text == message
    assert "test_values.py" in line


def test_numbers_that_fit() -> None:
    assert fnp.asarray([0, 255], "uint8").tolist() == [0, 255]
    assert fnp.asarray(2**70, "float64") == 2.0**70
    assert fnp.asarray(2**63).dtype == np.uint64
    assert fnp.asarray([], "uint8").shape == (0,)
    assert fnp.asarray(-1, bool)
    assert fnp.arange(np.int64(2), np.float32(4)).tolist() == [2.0, 3.0]


def test_dtypes_make_numbers() -> None:
    for name in ("bfloat16", "float16", "float32", "int8", "uint32", "complex64"):
        made, expected = getattr(fnp, name)(1.5), getattr(jnp, name)(1.5)
        assert np.dtype(getattr(fnp, name)) == made.dtype == expected.dtype
        assert made == expected
        assert fnp.zeros(2, getattr(fnp, name)).dtype == expected.dtype
