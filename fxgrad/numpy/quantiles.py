"""Quantiles, percentiles and medians, by all of NumPy's methods, weighted and without NaNs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_dtype,
    axes_of,
    is_concrete,
    promote_inexact,
    refuse_complex,
    refuse_out,
    shape_of,
)
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.ops import cumulative
from fxgrad.engine.ops import ordering as sorting
from fxgrad.engine.ops.indexing import take_along
from fxgrad.engine.ops.structural import broadcast_to, convert, reshape, transpose
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError
from fxgrad.numpy.arithmetic import add, clip, divide, maximum, minimum, multiply, remainder, subtract
from fxgrad.numpy.elementwise import ceil, floor, isnan, round
from fxgrad.numpy.logic import equal, less, less_equal, logical_and, logical_not, logical_or, where
from fxgrad.numpy.positions import take_along_one
from fxgrad.numpy.reductions import any, kept_shape, sum

Axis = int | Sequence[int] | None

_LINES = {"linear": (1.0, 1.0), "interpolated_inverted_cdf": (0.0, 1.0), "hazen": (0.5, 0.5), "weibull": (0.0, 0.0),
          "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8)}
"""The methods that interpolate linearly, by their (alpha, beta): Hyndman and Fan, 1996."""
_STEPS = ("lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf", "closest_observation")
NEAREST_EVEN = "nearest, the even of two"
"""The method that NumPy's functions call `"nearest"`; jax's takes the lower of two that are equally near."""


def quantile(a: Any, q: Any, axis: Axis = None, out: Any = None, overwrite_input: bool = False,
             method: str = "linear", keepdims: bool = False, *, weights: Any = None) -> Any:
    """Return the values below which the fractions `q` of the elements over `axis` lie; NaN if there is a NaN.

    Between two elements the value is interpolated (`"linear"`), or by `method` it is the `"lower"`, `"higher"` or
    `"nearest"` of them, their `"midpoint"`, or the value of NumPy's other methods (Hyndman and Fan, Sample quantiles in
    statistical packages, 1996). `weights`, with `"inverted_cdf"` only, are the weights of the elements. The axes of `q`
    come first. Raises `ShapeError` for no elements, `DTypeError` for complex ones, `ArgumentError` for a known `q`
    outside of 0 to 1.

    >>> float(quantile([1.0, 2.0, 4.0], 0.75))
    3.0
    """
    refuse_out("quantile", out)
    del overwrite_input
    return _quantile("quantile", a, q, axis, method, keepdims, weights, spare=False)


def percentile(a: Any, q: Any, axis: Axis = None, out: Any = None, overwrite_input: bool = False,
               method: str = "linear", keepdims: bool = False, *, weights: Any = None, out_sharding: Any = None) -> Any:
    """Return quantiles like `quantile`, with `q` from 0 to 100.

    >>> float(percentile([1.0, 2.0, 4.0], 75.0))
    3.0
    """
    if out_sharding is not None:
        return place_array("percentile",
                           percentile(a, q, axis, out, overwrite_input, method, keepdims, weights=weights),
                                                    out_sharding)
    fractions = divide(_check_fractions("percentile", q, 100), 100.0)
    return quantile(a, fractions, axis, out, overwrite_input, method, keepdims, weights=weights)


def median(a: Any, axis: Axis = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """Return the middle one of the elements over `axis`, or the mean of the middle two.

    It is NaN if there is a NaN, and of no elements. Raises `DTypeError` for complex ones.

    >>> float(median([3.0, 1.0, 2.0, 10.0]))
    2.5
    """
    refuse_out("median", out)
    del overwrite_input
    return _quantile("median", a, 0.5, axis, "midpoint", keepdims, None, spare=False)


def nanquantile(a: Any, q: Any, axis: Axis = None, out: Any = None, overwrite_input: bool = False,
                method: str = "linear", keepdims: bool = False, *, weights: Any = None) -> Any:
    """Return quantiles like `quantile`, with NaNs left out; NaN where there is nothing else.

    >>> float(nanquantile([1.0, float("nan"), 2.0, 4.0], 0.75))
    3.0
    """
    refuse_out("nanquantile", out)
    del overwrite_input
    return _quantile("nanquantile", a, q, axis, method, keepdims, weights, spare=True)


def nanpercentile(a: Any, q: Any, axis: Axis = None, out: Any = None, overwrite_input: bool = False,
                  method: str = "linear", keepdims: bool = False, *, weights: Any = None) -> Any:
    """Return percentiles like `percentile`, with NaNs left out; NaN where there is nothing else.

    >>> float(nanpercentile([1.0, float("nan"), 2.0, 4.0], 75.0))
    3.0
    """
    fractions = divide(_check_fractions("nanpercentile", q, 100), 100.0)
    return nanquantile(a, fractions, axis, out, overwrite_input, method, keepdims, weights=weights)


def nanmedian(a: Any, axis: Axis = None, out: Any = None, overwrite_input: bool = False,
              keepdims: bool = False) -> Any:
    """Return the median like `median`, with NaNs left out; NaN where there is nothing else.

    >>> float(nanmedian([3.0, float("nan"), 2.0, 10.0]))
    3.0
    """
    refuse_out("nanmedian", out)
    del overwrite_input
    return _quantile("nanmedian", a, 0.5, axis, "midpoint", keepdims, None, spare=True)


def _quantile(name: str, a: Any, q: Any, axis: Axis, method: str, keepdims: bool, weights: Any, spare: bool) -> Any:
    if method not in (*_LINES, *_STEPS, NEAREST_EVEN):
        raise ArgumentError(at_user_line(f"{name}: method must be one of {', '.join((*_LINES, *_STEPS))}, got "
                                         f"{method!r}"))
    if weights is not None and method != "inverted_cdf":
        raise UnsupportedError(at_user_line(f"{name}: weights= with method={method!r} is not supported; only "
                                            "'inverted_cdf' is"))
    a, = promote_inexact(as_array_operand(a))
    refuse_complex(name, a)
    shape, dtype, weak = shape_of(a), aval_of(a).dtype, aval_of(a).weak
    axes = axes_of(name, axis, len(shape))
    flat = _joined(a, axes)
    *kept, count = shape_of(flat)
    if not count:
        if spare or name == "median":
            return convert(broadcast_to(as_array_operand(math.nan), (
                *shape_of(as_array_operand(q)), *(kept_shape(shape, axes) if keepdims else kept))), dtype, weak)
        raise ShapeError(at_user_line(f"{name}: an array of shape {shape} has no elements along axis {axis}"))
    # Positions among many elements need more digits than a narrow float has.
    exact = dtypes.float64 if dtype == dtypes.float64 else dtypes.float32
    q = as_dtype(_check_fractions(name, q, 1), exact)
    ones = (1,) * len(shape_of(q))
    absent = isnan(flat)
    there = as_dtype(reshape(sum(logical_not(absent), -1), (*kept, *ones)), exact) if spare else count
    last = len(kept)
    if weights is None:
        ordered = sorting.sort([flat], last)[0]
        low, high, weight = _neighbours(method, q, there)
    else:
        spread = _joined(_broadcast_weights(name, weights, shape, axes), axes)
        ordered, beside = sorting.sort([flat, as_dtype(spread, dtype)], last)
        low, high, weight = *[_weighted_place(ordered, beside, q)] * 2, 0.0
        absent = logical_or(absent, logical_or(less(spread, 0), isnan(spread)))
    result = _read(ordered, low, q, there)
    if high is not low:
        result = add(multiply(as_dtype(result, exact), subtract(1.0, weight)),
                     multiply(as_dtype(_read(ordered, high, q, there), exact), weight))
    nothing = equal(there, 0) if spare else reshape(any(absent, -1), (*kept, *ones))
    if spare and weights is not None:
        bad = logical_or(less(spread, 0), isnan(spread))
        nothing = logical_or(nothing, reshape(any(bad, -1), (*kept, *ones)))
    result = convert(where(nothing, math.nan, result), dtype, weak)
    result = transpose(result, [*range(last, len(shape_of(result))), *range(last)])
    return reshape(result, (*shape_of(q), *kept_shape(shape, axes))) if keepdims else result


def _check_fractions(name: str, q: Any, most: int) -> Any:
    """Return the caller's `q`; raise `ArgumentError` if it is known and not between 0 and `most`."""
    q = as_array_operand(q)
    if is_concrete(q) and not np.all((np.asarray(q) >= 0) & (np.asarray(q) <= most)):
        raise ArgumentError(at_user_line(f"{name}: q must lie from 0 to {most}, got {np.asarray(q).tolist()}"))
    return q


def _joined(a: Any, axes: tuple[int, ...]) -> Any:
    """Return the array with the reduced axes joined into its last one."""
    shape = shape_of(a)
    kept = [at for at in range(len(shape)) if at not in axes]
    moved = transpose(a, [*kept, *axes])
    return reshape(moved, (*(shape[at] for at in kept), math.prod(shape[at] for at in axes)))


def _neighbours(method: str, q: Any, count: Any) -> tuple[Any, Any, Any]:
    """Return the sorted positions around the fractions `q` of `count` elements, and the weight of the upper one."""
    if method in _LINES:
        alpha, beta = _LINES[method]
        place = multiply(q, subtract(count, 1)) if method == "linear" else \
            add(multiply(q, add(count, 1 - alpha - beta)), alpha - 1)
        place = clip(place, 0.0, maximum(subtract(count, 1), 0))
        low = floor(place)
        return low, ceil(place), subtract(place, low)
    if method == "inverted_cdf":
        place = subtract(ceil(multiply(q, count)), 1)
        return place, place, 0.0
    if method == "averaged_inverted_cdf":
        place = subtract(multiply(q, count), 1)
        low = floor(place)
        return low, add(low, 1), where(equal(low, place), 0.5, 1.0)
    if method == "closest_observation":
        place = subtract(multiply(q, count), 1.5)
        low = floor(place)
        stays = logical_and(equal(low, place), equal(remainder(low, 2), 1))
        place = where(stays, low, add(low, 1))
        return place, place, 0.0
    place = multiply(q, subtract(count, 1))
    low, high = floor(place), ceil(place)
    if method == "midpoint":
        return low, high, 0.5
    if method == NEAREST_EVEN:
        chosen = round(place)
    else:
        chosen = {"lower": low, "higher": high, "nearest": where(less_equal(subtract(place, low), 0.5), low, high)}[
            method]
    return chosen, chosen, 0.0


def _read(ordered: Any, place: Any, q: Any, count: Any) -> Any:
    """Return the elements at positions of the last axis, clipped to its range; the axes of `q` come last."""
    last = len(shape_of(ordered)) - 1
    place = as_dtype(maximum(minimum(place, subtract(count, 1)), 0), np.int32)
    if shape_of(place) == shape_of(q):
        return take_along_one(ordered, place, last, "clip")
    kept = shape_of(ordered)[:-1]
    result = take_along(ordered, reshape(place, (*kept, math.prod(shape_of(q)))), last, "clip")
    return reshape(result, (*kept, *shape_of(q)))


def _broadcast_weights(name: str, weights: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    weights = as_array_operand(weights)
    refuse_complex(name, weights)
    own = shape_of(weights)
    if own == shape:
        return weights
    if own != tuple(shape[at] for at in axes):
        raise ShapeError(at_user_line(f"{name}: weights of shape {own} for an array of shape {shape} along {axes}; the "
                                      "shape of the array, or that of the axes, is needed"))
    return broadcast_to(reshape(weights, tuple(size if at in axes else 1 for at, size in enumerate(shape))), shape)


def _weighted_place(ordered: Any, weights: Any, q: Any) -> Any:
    """Return the first position at which the cumulative weight reaches the fraction `q` of all."""
    clean = where(logical_or(isnan(ordered), logical_or(isnan(weights), less(weights, 0))), 0.0, weights)
    running = cumulative.cumsum(clean, len(shape_of(clean)) - 1)
    *kept, count = shape_of(running)
    ones = (1,) * len(shape_of(q))
    total = sum(clean, -1)
    before = less(reshape(running, (*kept, *ones, count)),
                  reshape(multiply(q, reshape(total, (*kept, *ones))), (*kept, *shape_of(q), 1)))
    return sum(before, -1)
