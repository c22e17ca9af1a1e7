"""Reductions, statistics, sorting and running results against jax.numpy, and their derivatives."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError, AxisError, ShapeError
from tests.support.with_numpy import DTYPES, assert_equal, call, check, check_all, check_gradient, draw, each, together

SUMS = ["sum", "prod", "nansum", "nanprod"]
EXTREMA = ["max", "min", "ptp", "nanmax", "nanmin"]
TESTS = ["all", "any", "count_nonzero"]
MEANS = ["mean", "var", "std", "nanmean", "nanvar", "nanstd"]
ALL = SUMS + EXTREMA + TESTS + MEANS
AXES: list[dict[str, Any]] = [{}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": (0, -1)}, {"keepdims": True},
                              {"axis": ()}]


def dtypes_of(name: str) -> list[str]:
    if name in ("ptp", "var", "std", "nanvar", "nanstd"):
        return [dtype for dtype in DTYPES if dtype != "bool" and not (name == "ptp" and dtype == "complex64")]
    return list(DTYPES)


QUICK_DTYPES = ["int8", "float32", "bfloat16"]


@each("name", ALL)
def test_quick_dtypes(name: str) -> None:
    for dtype in QUICK_DTYPES:
        check(name, draw((2, 3, 2), dtype), axis=(0, 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_other_dtypes(name: str) -> None:
    check_all(*(call(name, draw((2, 3, 2), dtype), axis=(0, 2)) for dtype in dtypes_of(name)
                if dtype not in QUICK_DTYPES))


@each("name", ALL, size=6)
def test_axes(name: str) -> None:
    for options in AXES:
        check(name, draw((2, 3, 4)), **options)


@each("name", SUMS + MEANS + TESTS)
def test_of_nothing(name: str) -> None:
    check(name, draw((0, 3)))
    check(name, draw((0, 3)), axis=1)


@each("name", ["nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd", "max", "mean", "median"])
def test_nans(name: str) -> None:
    x = draw((3, 4))
    x[0, 1], x[1] = np.nan, np.nan
    check(name, x, axis=1)


@together()
def test_options_of_sums() -> None:
    x, mask = draw((2, 3)), draw((2, 3), "bool")
    for name in ("sum", "prod"):
        check(name, x, where=mask, axis=1)
        check(name, x, initial=2.5, axis=1, keepdims=True)
        check(name, x, dtype="int32")
        check(name, draw((3,), "int8"), dtype="float32")
        check(name, draw((3,), "int8"), promote_integers=False)
    for name in ("max", "min"):
        check(name, x, where=mask, initial=0.5, axis=1)
        check(name, x, initial=2.5, axis=1, keepdims=True)
    for name in ("mean", "var", "std", "all", "any", "nanmean"):
        check(name, x, where=mask, axis=1)
    check("mean", draw((4,), "int32"), dtype="float16")
    check("var", x, ddof=1, axis=1)
    check("var", x, ddof=5, axis=1)
    check("std", x, correction=1)


@each("name", ["argmax", "argmin"])
def test_positions(name: str) -> None:
    x = draw((2, 3, 4))
    for options in ({}, {"axis": 1}, {"axis": -1, "keepdims": True}, {"keepdims": True}):
        check(name, x, **options)
    x[0, 1, 2] = np.nan
    check(name, x, axis=1)
    check("nan" + name, x, axis=1)
    check(name, draw((2, 3), "int8"), axis=1)


@together()
def test_averages() -> None:
    x = draw((2, 3))
    check("average", x)
    check("average", x, axis=1, weights=np.array([1, 2, 3], np.float32))
    check("average", x, weights=np.abs(x), returned=True)
    check("cov", x)
    check("cov", x, rowvar=False, bias=True)


# --- order --------------------------------------------------------------------------------------------------------


@each("name, dtype", list(itertools.product(["sort", "argsort", "cumsum", "cumprod"],
                                            ["int8", "float32", "bfloat16", "bool"])), size=8)
def test_along_axes(name: str, dtype: str) -> None:
    for options in ({}, {"axis": None}, {"axis": 0}):  # type: dict[str, Any]
        check(name, draw((3, 4), dtype), **options)


@together()
def test_sorting_downwards() -> None:
    check("sort", draw((3, 4)), axis=0, descending=True)
    check("argsort", np.array([1, 1, 0, 1, 0], np.int32), descending=True)
    check("cumulative_sum", draw((2, 3)), axis=1, include_initial=True)
    check("cumulative_prod", draw((3,)), include_initial=True)
    np.testing.assert_array_equal(fnp.lexsort([[1, 2, 1], [0, 0, -1]]), np.lexsort([[1, 2, 1], [0, 0, -1]]))


@each("method", ["linear", "lower", "higher", "midpoint"])
def test_quantiles(method: str) -> None:
    check("quantile", draw((2, 3, 4)), 0.3, axis=1, method=method)
    check("percentile", draw((2, 3, 4)), np.array([10, 50], np.float32), axis=(1, 2), keepdims=True, method=method)


@together()
def test_medians() -> None:
    for options in ({}, {"axis": 1}, {"axis": (0, 2), "keepdims": True}):
        check("median", draw((2, 3, 4)), **options)
    check("median", draw((5,), "int32"))


@together()
def test_searches() -> None:
    check("searchsorted", np.sort(draw((4,))), draw((2, 3)))
    check("searchsorted", np.arange(5, dtype=np.int32), np.array([[1, 2], [3, 7]], np.int32), side="right")
    points = np.array([-1, 0, 2], np.float32)
    check("interp", draw((2, 3)), points, draw((3,), seed="f"))
    check("interp", draw((2, 3)), points, draw((3,), seed="f"), left=-7.0, right=8.0)
    check_gradient("interp", draw((4,), "float64"), np.array([-1.0, 0.0, 2.0]), draw((3,), "float64"))


@pytest.mark.slow
@each("dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_compiled_sorts_move_the_same_bits(dtype: str) -> None:
    def bits(x: Any) -> Any:
        known = np.asarray(x)
        return np.where(np.isnan(known.astype(np.float32)), -1, known.view(f"int{8 * known.itemsize}"))
    for special in ([], [np.nan, -np.nan, np.inf, -np.inf, 0.1], [0.0, -0.0, np.nan, 0.0, -0.0, -1.0], [-0.0]):
        x = draw((40, 30), "float64").astype(fnp.dtype(dtype))
        x[1:, :len(special)] = np.array(special).astype(x.dtype)
        for axis in (0, 1):
            want, order = bits(fnp.sort(x, axis)), fnp.argsort(x, axis)
            np.testing.assert_array_equal(bits(fxgrad.jit(lambda x, axis=axis: fnp.sort(x, axis))(x)), want)
            np.testing.assert_array_equal(fxgrad.jit(lambda x, axis=axis: fnp.argsort(x, axis))(x), order)
            np.testing.assert_array_equal(bits(fxgrad.jit(fxgrad.vmap(fnp.sort, 1 - axis, 1 - axis))(x)), want)
    text = fxgrad.jit(fnp.sort).lower(x).as_text()
    assert "SIGNED" in text  # a comparison of integers
    assert "SIGNED" not in fxgrad.jit(fnp.sort).lower(x[:, :20]).as_text()
    empty = fxgrad.jit(fnp.sort)(x[:, :0])
    assert (empty.shape, empty.dtype) == ((40, 0), x.dtype)


@pytest.mark.slow
@each("side", ["left", "right"])
def test_searches_in_long_arrays(side: str) -> None:
    def find(ordered: Any, wanted: Any) -> Any:
        return np.searchsorted(ordered, wanted, side)
    def find_three_ways(ordered: Any, wanted: Any) -> Any:
        return find(ordered, wanted), fxgrad.vmap(find)(np.stack([ordered, ordered]), wanted[:2]), find(
            ordered, wanted[0, 0])

    for dtype in ("float64", "float32", "int8", "uint8", "bool", "complex64"):
        cases = []
        for count in (33, 64, 99):
            ordered, wanted = np.sort(draw((count,), dtype)), draw((3, 5), dtype, seed="w")
            ordered[5:9] = ordered[9]
            wanted[0, :2] = ordered[5], ordered[-1]
            if dtype.startswith("float"):
                ordered[0], ordered[-5:] = -np.inf, [np.inf, np.inf, np.nan, np.nan, np.nan]
                wanted[1] = [np.nan, np.inf, -np.inf, -0.0, 0.1]
            cases.append((ordered, wanted))
        compiled = fxgrad.jit(lambda cases: [find_three_ways(*case) for case in cases])(cases)
        for case, (found, batched, of_one) in zip(cases, compiled, strict=True):
            want = np.searchsorted(*case, side).astype(np.int32)
            assert_equal(found, want)
            assert_equal(fxgrad.vmap(find, (None, 0))(*case), want)
            assert_equal(batched, want[:2])
            assert_equal(of_one, want[0, 0])
    for spec in (fxgrad.symbolic_spec("n"), fxgrad.symbolic_spec(40)):
        program = fxgrad.make_program(find)(spec, fxgrad.symbolic_spec("m"))
        assert_equal(program(np.arange(40.0), np.array([3.0, 3.5])), np.array([3 + (side == "right"), 4], np.int32))
    program = fxgrad.make_program(find)(np.arange(1000.0), np.zeros(3))
    assert [equation.params["length"] for equation in program.equations if equation.primitive.name == "scan"] == [9]


@together()
def test_differences() -> None:
    check("diff", draw((2, 3, 4)))
    check("diff", draw((2, 3, 4)), n=2, axis=1)
    check("diff", draw((4,), "bool"))
    x = draw((3,), "float64")
    assert_equal(fnp.diff(x, prepend=0.0, append=x), np.diff(x, prepend=0.0, append=x))


@each("name", ["sum", "prod", "max", "min", "mean", "var", "std", "nanmean", "cumsum", "cumprod",
                                  "sort", "median", "ptp"])
def test_gradients(name: str) -> None:
    check_gradient(name, draw((3, 4), "float64"), axis=1)


def test_gradients_at_ties() -> None:
    tied = np.array([1.0, 3.0, 3.0])
    np.testing.assert_array_equal(fxgrad.grad(fnp.max)(tied), [0.0, 0.5, 0.5])


# --- errors -------------------------------------------------------------------------------------------------------


def message(function: Any, *args: Any, error: Any, **options: Any) -> str:
    with pytest.raises(error) as caught:
        fxgrad.make_program(lambda *args: function(*args, **options))(*args)
    return str(caught.value).partition("\n  at ")[0]


def test_messages() -> None:
    x, empty = np.ones((2, 3)), np.ones((0, 3))
    assert message(fnp.sum, x, axis=2, error=AxisError) == (
        "sum: axis 2 of an array with 2 axes; an axis from -2 to 1 is needed")
    for function in (fnp.ptp, fnp.count_nonzero):
        assert message(function, x, axis=2, error=AxisError) == (
            f"{function.__name__}: axis 2 of an array with 2 axes; an axis from -2 to 1 is needed")
    assert message(fnp.sum, x, axis=(0, -2), error=AxisError) == (
        "sum: axis=(0, -2) names an axis twice; name each once")
    assert message(fnp.mean, 1.0, axis=0, error=AxisError) == (
        "mean: axis 0 of an array with 0 axes; a scalar has no axes")
    assert message(fnp.sum, x, axis=1.5, error=ArgumentError) == "sum: axis must be an integer, got 1.5"
    assert message(fnp.max, empty, error=ShapeError) == (
        "max: an array of shape (0, 3) has no elements along axis None, and there is no max of none; give initial=")
    assert message(fnp.max, x, where=x > 0, error=ArgumentError) == (
        "max: where= needs initial=, the result where no element counts")
    assert message(fnp.argmax, empty, axis=0, error=ShapeError) == (
        "argmax: an array of shape (0, 3) has no elements to choose from")
    assert message(fnp.average, x, weights=np.ones(2), error=ShapeError) == (
        "average: weights of shape (2,) for an array of shape (2, 3) along axis None; the same shape, or that of "
        "the axes, is needed")
    points = np.arange(2.0)
    assert message(fnp.interp, x, points, points, period=points, error=ShapeError) == (
        "interp: period must be a number, its shape is (2,)")
    assert message(fnp.interp, x, points, np.ones(3), error=ShapeError) == (
        "interp: xp and fp of shapes (2,) and (3,); vectors of one size are needed")
    assert message(fnp.interp, x, points, points, left="flat", error=ArgumentError) == (
        "interp: left and right are a number or 'extrapolate', got 'flat'")
    assert message(fnp.quantile, x, 0.5, method="best", error=ArgumentError) == (
        "quantile: method must be one of linear, interpolated_inverted_cdf, hazen, weibull, median_unbiased, "
        "normal_unbiased, lower, higher, midpoint, nearest, inverted_cdf, averaged_inverted_cdf, closest_observation, "
        "got 'best'")


def test_dtype_holds_the_digits_of_integers() -> None:
    """Neither the default dtype nor float32 lies between 32-bit integers and the dtype that is given."""
    x = np.array([2 ** 24 + 1, 2 ** 24 + 1, 2 ** 24 + 4], np.int32)
    several: list[Callable[[Any, Any], Any]] = [
        lambda xp, x: xp.mean(x, dtype=float), lambda xp, x: xp.var(x, dtype=float),
        lambda xp, x: xp.std(x, dtype=float), lambda xp, x: x.mean(dtype=float),
        lambda xp, x: xp.mean(x, dtype=np.int32), lambda xp, x: xp.mean(x, dtype=np.int64),
        lambda xp, x: xp.mean(x, dtype=complex), lambda xp, x: xp.mean(x, dtype=float, where=x > 0),
        lambda xp, x: xp.var(x, dtype=float, where=x > 0, ddof=1), lambda xp, x: xp.nanmean(x, dtype=float),
        lambda xp, x: xp.nanvar(x, dtype=float), lambda xp, x: xp.nanstd(x, dtype=float),
        lambda xp, x: xp.cov(x, dtype=float), lambda xp, x: xp.cov(x, x[::-1], dtype=float)]
    for function in several:
        expected = function(np, x)
        for found in (function(fnp, fnp.asarray(x)), fxgrad.jit(functools.partial(function, fnp))(x)):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_integers_beside_distances_in_float64_keep_their_digits() -> None:
    y, x = np.array([2 ** 24 + 1, 2 ** 24 + 1, 2 ** 24 + 4], np.int32), np.array([1.0, 2.0, 3.0])
    several: list[Callable[[Any, Any, Any], Any]] = [
        lambda xp, y, x: xp.trapezoid(y, x), lambda xp, y, x: xp.trapezoid(y, dx=x[2]),
        lambda xp, y, x: xp.gradient(y, x), lambda xp, y, x: xp.gradient(y, x[1]),
        lambda xp, y, x: xp.interp(x + 0.5, x, y), lambda xp, y, x: xp.interp(x, y[[1, 0, 2]] - y[0], y)]
    for function in several:
        expected = function(np, y, x)
        for found in (function(fnp, *map(fnp.asarray, (y, x))), fxgrad.jit(functools.partial(function, fnp))(y, x)):
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert fnp.trapezoid(fnp.asarray(y), dx=0.5).dtype == np.float32
