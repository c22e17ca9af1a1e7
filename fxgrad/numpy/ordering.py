"""Order and running results: sort, argsort, cumulative sums, searches, medians and quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.core.tape import aval_of
from fxgrad.errors import ArgumentError, ShapeError, at_user_line
from fxgrad.numpy.arithmetic import add, clip, divide, multiply, subtract
from fxgrad.numpy.logic import equal, less, less_equal, not_equal, where
from fxgrad.numpy.mathematics import ceil, floor, isnan
from fxgrad.numpy.operands import (
    as_array,
    as_dtype,
    axes_of,
    axis_of,
    operand,
    operands,
    promoted,
    promoted_inexact,
    refuse_out,
    settled,
    shape_of,
)
from fxgrad.numpy.positions import take_along_one
from fxgrad.numpy.reductions import any, kept_shape, sum
from fxgrad.numpy.shaping import ravel
from fxgrad.ops import cumulative
from fxgrad.ops import sort as sorting
from fxgrad.ops.arithmetic import sub
from fxgrad.ops.join import concatenate, unstack
from fxgrad.ops.pointwise import scalar_like
from fxgrad.ops.shape import rev, slice_in_dim
from fxgrad.ops.space import broadcast_to, convert, full, reshape, transpose

# --- sorting ------------------------------------------------------------------------------------------------------


def _along(name: str, a: Any, axis: int | None) -> tuple[Any, int]:
    """The array and its axis, counted from the front; flattened for None."""
    a = ravel(a) if axis is None else as_array(a)
    return a, axis_of(name, -1 if axis is None else axis, len(shape_of(a)))


def sort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: bool = True,
         descending: bool = False) -> Any:
    """`a` with its elements in order along `axis` (None: flattened), NaNs last; with `descending` from the greatest.

    >>> sort([3, 1, 2])
    array([1, 2, 3])
    """
    del kind, order, stable  # every sort here is stable
    a, at = _along("sort", a, axis)
    result = sorting.sort([a], at)[0]
    return rev(result, [at]) if descending else result


def argsort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: bool = True,
            descending: bool = False) -> Any:
    """The positions (int32) that put `a` in order along `axis`; the arguments are those of `sort`.

    >>> argsort([3, 1, 2])
    array([1, 2, 0], dtype=int32)
    """
    del kind, order, stable
    a, at = _along("argsort", a, axis)
    if not descending:
        return sorting.argsort(a, at)
    backward = sorting.argsort(rev(a, [at]), at)
    return sub(scalar_like(shape_of(a)[at] - 1, backward), rev(backward, [at]))


def lexsort(keys: Any, axis: int = -1) -> Any:
    """The positions (int32) that put several keys in order, the last one mattering most.

    >>> lexsort([[3, 2, 1], [0, 0, 1]])
    array([1, 0, 2], dtype=int32)
    """
    arrays = [as_array(key) for key in keys]
    at = axis_of("lexsort", axis, len(shape_of(arrays[0])))
    places = np.broadcast_to(np.arange(shape_of(arrays[0])[at], dtype=np.int32).reshape(
        [-1 if axis == at else 1 for axis in range(len(shape_of(arrays[0])))]), shape_of(arrays[0]))
    return sorting.sort([*arrays[::-1], places], at, len(arrays))[-1]


def searchsorted(a: Any, v: Any, side: str = "left") -> Any:
    """Where each of `v` belongs in the sorted vector `a` (int32): before equal elements, or with `"right"` behind them.

    Every element is compared with every one of `a`.

    >>> searchsorted([1.0, 2.0, 3.0], [2.5, 0.0])
    array([2, 0], dtype=int32)
    """
    if side not in ("left", "right"):
        raise ArgumentError(at_user_line(f"searchsorted: side must be 'left' or 'right', got {side!r}"))
    a, v = settled(promoted(*operands(a, v)))
    if len(shape_of(a)) != 1:
        raise ShapeError(at_user_line(f"searchsorted: a must be a vector, its shape is {shape_of(a)}"))
    before = (less if side == "left" else less_equal)(a, reshape(v, (*shape_of(v), 1)))
    return sum(before, -1)


# --- running results ----------------------------------------------------------------------------------------------


def _running(name: str, operation: Callable[..., Any], a: Any, axis: int | None, dtype: Any) -> Any:
    a, at = _along(name, a, 0 if axis is None and len(shape_of(as_array(a))) == 1 else axis)
    own = aval_of(a).dtype
    wanted = dtypes.canonical(dtype) if dtype is not None else dtypes.int32 if own == dtypes.bool_ else own
    inner = dtypes.float32 if wanted.itemsize == 2 and dtypes.is_floating(wanted) else wanted
    result = operation(as_dtype(a, inner), at)
    return result if inner == wanted else convert(result, wanted)


def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """The running sum along `axis` (None: of the flattened array).

    >>> cumsum([1, 2, 3])
    array([1, 3, 6])
    """
    refuse_out("cumsum", out)
    return _running("cumsum", cumulative.cumsum, a, axis, dtype)


def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """The running product along `axis` (None: of the flattened array).

    >>> cumprod([1, 2, 3])
    array([1, 2, 6])
    """
    refuse_out("cumprod", out)
    return _running("cumprod", cumulative.cumprod, a, axis, dtype)


def _cumulative(name: str, function: Callable[..., Any], first: int, x: Any, axis: int | None, dtype: Any,
                include_initial: bool) -> Any:
    x = as_array(x)
    if axis is None and len(shape_of(x)) != 1:
        raise ArgumentError(at_user_line(f"{name}: axis must be given for an array of shape {shape_of(x)}"))
    at = axis_of(name, 0 if axis is None else axis, len(shape_of(x)))
    result = function(x, at, dtype)
    if not include_initial:
        return result
    begin = full(kept_shape(shape_of(x), (at,)), first, aval_of(result).dtype)
    return concatenate([begin, result], at)


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """As `cumsum`, with the sum of no elements in front if `include_initial`.

    >>> cumulative_sum([1, 2], include_initial=True)
    array([0, 1, 3])
    """
    return _cumulative("cumulative_sum", cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """As `cumprod`, with the product of no elements in front if `include_initial`.

    >>> cumulative_prod([2, 3], include_initial=True)
    array([1, 2, 6])
    """
    return _cumulative("cumulative_prod", cumprod, 1, x, axis, dtype, include_initial)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbouring elements along `axis`, taken `n` times; `prepend` and `append` are joined first.

    >>> diff([1, 4, 9])
    array([3, 5])
    """
    at = axis_of("diff", axis, len(shape_of(as_array(a))))
    given = [part for part in (prepend, a, append) if part is not None]
    parts = promoted(*operands(*given))
    shape = kept_shape(shape_of(parts[prepend is not None]), (at,))
    a = concatenate([part if shape_of(part) else broadcast_to(part, shape) for part in settled(parts)], at)
    for _ in range(n):
        extent = shape_of(a)[at]
        later, earlier = slice_in_dim(a, min(1, extent), extent, at), slice_in_dim(a, 0, max(extent - 1, 0), at)
        a = not_equal(later, earlier) if aval_of(a).dtype == dtypes.bool_ else subtract(later, earlier)
    return a


# --- quantiles ----------------------------------------------------------------------------------------------------


def _flat_axes(name: str, a: Any, axis: int | Sequence[int] | None) -> tuple[Any, tuple[int, ...]]:
    """The array with the axes that are reduced joined into its last one, and those axes."""
    axes = axes_of(name, axis, len(shape_of(a)))
    kept = [at for at in range(len(shape_of(a))) if at not in axes]
    moved = transpose(a, [*kept, *axes])
    return reshape(moved, (*(shape_of(a)[at] for at in kept), math.prod(shape_of(a)[at] for at in axes))), axes


def quantile(a: Any, q: Any, axis: int | Sequence[int] | None = None, out: Any = None, overwrite_input: bool = False,
             method: str = "linear", keepdims: bool = False) -> Any:
    """The values below which the fractions `q` of the elements over `axis` lie; a NaN if there is one.

    Between two elements the value is interpolated (`"linear"`), or by `method` the `"lower"`, `"higher"` of them, or
    their `"midpoint"`. The axes of `q` come first.

    >>> float(quantile([1.0, 2.0, 4.0], 0.75))
    3.0
    """
    refuse_out("quantile", out)
    del overwrite_input
    a, = promoted_inexact(as_array(a))
    q = as_dtype(operand(q), aval_of(a).dtype)
    flat, axes = _flat_axes("quantile", a, axis)
    count = shape_of(flat)[-1]
    if not count:
        raise ShapeError(at_user_line(f"quantile: an array of shape {shape_of(a)} has no elements along axis {axis}"))
    ordered = sorting.sort([flat], len(shape_of(flat)) - 1)[0]
    place = multiply(q, count - 1)
    low, high = floor(place), ceil(place)
    below, above = (take_along_one(ordered, as_dtype(clip(each, 0, count - 1), np.int32), len(shape_of(ordered)) - 1,
                                   "clip") for each in (low, high))
    weights = {"linear": subtract(place, low), "lower": 0.0, "higher": 1.0, "midpoint": 0.5}
    if method not in weights:
        raise ArgumentError(at_user_line(f"quantile: method must be one of {', '.join(weights)}, got {method!r}"))
    weight = weights[method]
    result = add(multiply(below, subtract(1.0, weight)), multiply(above, weight))
    result = where(reshape(any(isnan(flat), -1), (*shape_of(flat)[:-1], *(1,) * len(shape_of(q)))), math.nan, result)
    rank = len(shape_of(flat)) - 1
    result = transpose(result, [*range(rank, len(shape_of(result))), *range(rank)])
    return reshape(result, (*shape_of(q), *kept_shape(shape_of(a), axes))) if keepdims else result


def percentile(a: Any, q: Any, axis: int | Sequence[int] | None = None, out: Any = None,
               overwrite_input: bool = False, method: str = "linear", keepdims: bool = False) -> Any:
    """As `quantile`, with `q` from 0 to 100.

    >>> float(percentile([1.0, 2.0, 4.0], 75.0))
    3.0
    """
    return quantile(a, divide(q, 100.0), axis, out, overwrite_input, method, keepdims)


def median(a: Any, axis: int | Sequence[int] | None = None, out: Any = None, overwrite_input: bool = False,
           keepdims: bool = False) -> Any:
    """The middle one of the elements over `axis`, or the mean of the middle two; a NaN if there is one.

    >>> float(median([3.0, 1.0, 2.0, 10.0]))
    2.5
    """
    return quantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    """The piecewise linear function through the points (`xp`, `fp`), `xp` increasing, at `x`.

    Outside of the points it is constant, or `left` and `right`. Raises `ShapeError` unless `xp` and `fp` are vectors
    of one size.

    >>> float(interp(1.5, [1.0, 2.0], [10.0, 20.0]))
    15.0
    """
    x, xp, fp = settled(promoted_inexact(*operands(x, xp, fp)))
    if len(shape_of(xp)) != 1 or shape_of(xp) != shape_of(fp) or not shape_of(xp)[0]:
        raise ShapeError(at_user_line(f"interp: xp and fp of shapes {shape_of(xp)} and {shape_of(fp)}; vectors of one "
                                      "size are needed"))
    above = clip(searchsorted(xp, x, "right"), 1, max(shape_of(xp)[0] - 1, 1))
    x_low, f_low = (take_along_one(values, subtract(above, 1), 0, "clip") for values in (xp, fp))
    x_high, f_high = (take_along_one(values, above, 0, "clip") for values in (xp, fp))
    gap = subtract(x_high, x_low)
    flat = equal(gap, 0.0)
    part = divide(subtract(x, x_low), where(flat, 1.0, gap))
    result = where(flat, f_low, add(f_low, multiply(part, subtract(f_high, f_low))))
    ends = np.array([0, shape_of(xp)[0] - 1], np.int32)
    (x_first, x_last), (first, last) = (unstack(take_along_one(values, ends, 0, "clip"), 0) for values in (xp, fp))
    result = where(less(x, x_first), first if left is None else left, result)
    return where(less(x_last, x), last if right is None else right, result)
