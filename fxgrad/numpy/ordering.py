"""Order and running results: sort, argsort, partition, searches, cumulative sums, differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.frontend.flat import TracedCall, trace_flat
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_dtype,
    as_integer,
    as_numpy_scalars,
    axis_of,
    is_concrete,
    new_array,
    operands,
    promote_operands,
    refuse_out,
    shape_of,
)
from fxgrad.engine.higher_order.scan import bind_scan
from fxgrad.engine.ops import cumulative
from fxgrad.engine.ops import ordering as sorting
from fxgrad.engine.ops.arithmetic import sub
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.shaping import rev, slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to, convert, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, IndexingError, ShapeError
from fxgrad.numpy.arithmetic import add, minimum, subtract
from fxgrad.numpy.elementwise import isnan
from fxgrad.numpy.logic import equal, less, less_equal, logical_and, logical_or, not_equal, where
from fxgrad.numpy.positions import take_along_one
from fxgrad.numpy.reductions import kept_shape, sum, summing_dtype
from fxgrad.numpy.shaping import ravel

# --- sorting ------------------------------------------------------------------------------------------------------


def flatten_if_none(name: str, a: Any, axis: int | None) -> tuple[Any, int]:
    """Return the array and its axis, counted from the front; flattened for None."""
    a = ravel(a) if axis is None else as_array_operand(a)
    return a, axis_of(name, -1 if axis is None else axis, len(shape_of(a)))


def sort(a: Any, axis: int | None = -1, *, kind: Any = None, order: Any = None, stable: bool = True,
         descending: bool = False) -> Any:
    """Return `a` sorted along `axis` (None: flattened), NaNs last; with `descending` from the greatest.

    >>> sort([3, 1, 2])
    array([1, 2, 3])
    """
    del kind, order, stable  # every sort here is stable
    a, at = flatten_if_none("sort", a, axis)
    result = sorting.sort([a], at)[0]
    return rev(result, [at]) if descending else result


def argsort(a: Any, axis: int | None = -1, *, kind: Any = None, order: Any = None, stable: bool = True,
            descending: bool = False, dtype: Any = None) -> Any:
    """Return the positions (int32, or `dtype`) that put `a` in order along `axis`; the arguments are those of `sort`.

    >>> argsort([3, 1, 2])
    array([1, 2, 0], dtype=int32)
    """
    del kind, order, stable
    a, at = flatten_if_none("argsort", a, axis)
    if not descending:
        return as_dtype(sorting.argsort(a, at), dtype)
    backward = sorting.argsort(rev(a, [at]), at)
    return as_dtype(sub(scalar_like(shape_of(a)[at] - 1, backward), rev(backward, [at])), dtype)


def lexsort(keys: Any, axis: int = -1) -> Any:
    """Return the positions (int32) that put several keys in order; the last key is the primary one.

    Raises `ArgumentError` without keys.

    >>> lexsort([[3, 2, 1], [0, 0, 1]])
    array([1, 0, 2], dtype=int32)
    """
    arrays = [as_array_operand(key) for key in keys]
    if not arrays:
        raise ArgumentError(at_user_line("lexsort: no keys. Give at least one array to sort by, lexsort([x])"))
    at = axis_of("lexsort", axis, len(shape_of(arrays[0])))
    places = np.broadcast_to(np.arange(shape_of(arrays[0])[at], dtype=np.int32).reshape(
        [-1 if axis == at else 1 for axis in range(len(shape_of(arrays[0])))]), shape_of(arrays[0]))
    return sorting.sort([*arrays[::-1], places], at, len(arrays))[-1]


def sort_complex(a: Any) -> Any:
    """Return `a` as complex numbers with its elements in order along the last axis, by their real parts first.

    >>> sort_complex([2.0, 1.0])
    array([1.+0.j, 2.+0.j])
    """
    a = as_array_operand(a)
    return sort(as_dtype(a, dtypes.complex_dtype(dtypes.inexact_dtype(aval_of(a).dtype))))


def partition(a: Any, kth: int, axis: int | None = -1) -> Any:
    """Return `a` with the elements along `axis` split at rank `kth`: smaller ones before it, others after it.

    The elements are sorted, which is one such order.

    >>> partition([3, 1, 2], 1)
    array([1, 2, 3])
    """
    a, at = flatten_if_none("partition", a, axis)
    _check_place("partition", kth, shape_of(a)[at])
    return sort(a, at)


def argpartition(a: Any, kth: int, axis: int | None = -1) -> Any:
    """Return the positions (int32) that put `a` in the order of `partition`.

    >>> argpartition([3, 1, 2], 1)
    array([1, 2, 0], dtype=int32)
    """
    a, at = flatten_if_none("argpartition", a, axis)
    _check_place("argpartition", kth, shape_of(a)[at])
    return argsort(a, at)


def _check_place(name: str, kth: Any, extent: int) -> None:
    place = as_integer(name, kth)
    if not -extent <= place < extent:
        raise IndexingError(at_user_line(f"{name}: kth={place} for an axis of size {extent}; in range are {-extent} to "
                                         f"{extent - 1}" if extent else f"{name}: the axis has no elements"))


_SEARCHES = ("scan", "scan_unrolled", "sort", "compare_all")


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan") -> Any:
    """Return where each of `v` belongs in the sorted vector `a` (int32): before equal elements, or `"right"` after.

    `sorter` are positions that put `a` in order. `method` is one of jax's, for traced elements: with `"sort"`, `v` is
    sorted among `a`; with `"compare_all"`, and for few elements of `a`, each of `v` is compared with all; otherwise the
    interval in which it belongs is halved in each turn of a loop.

    >>> searchsorted([1.0, 2.0, 3.0], [2.5, 0.0])
    array([2, 0], dtype=int32)
    """
    if side not in ("left", "right"):
        raise ArgumentError(at_user_line(f"searchsorted: side must be 'left' or 'right', got {side!r}"))
    if method not in _SEARCHES:
        raise ArgumentError(at_user_line(f"searchsorted: method must be one of {', '.join(_SEARCHES)}, got {method!r}"))
    a, v = as_numpy_scalars(promote_operands(*operands(a, v)))
    if len(shape_of(a)) != 1:
        raise ShapeError(at_user_line(f"searchsorted: a must be a vector, its shape is {shape_of(a)}"))
    if sorter is not None:
        a = take_along_one(a, as_array_operand(sorter), 0, "clip")
    if is_concrete(a) and is_concrete(v):
        values = [each.astype(np.float32) if dtypes.is_floating(each.dtype) and each.dtype.itemsize < 4 else each
                  for each in map(np.asarray, (a, v))]
        return np.searchsorted(*values, side=side).astype(np.int32)  # type: ignore[call-overload]
    count = shape_of(a)[0]
    comes_before = _before_or_equal if side == "right" else _before
    if method == "sort":
        # How many of `a` come before each of `v`: its rank among all, less that among `v`.
        values = reshape(v, (math.prod(shape_of(v)),))
        wanted = shape_of(values)[0]
        together = _ranks(concatenate([values, a] if side == "left" else [a, values], 0))
        begin = 0 if side == "left" else count
        return reshape(sub(slice_in_dim(together, begin, begin + wanted, 0), _ranks(values)), shape_of(v))
    if method == "compare_all" or has_symbolic_dim(count) or count <= _FEW:
        return sum(comes_before(a, reshape(v, (*shape_of(v), 1))), -1)

    def advance(place: Any, step: Any) -> Any:
        """Return `place`, before which all elements come before v, further by `step` if they do so there, too."""
        further = add(place, step)
        element = take_along_one(a, minimum(subtract(further, np.int32(1)), np.int32(count - 1)), 0,
                                 "promise_in_bounds")
        return where(logical_and(less_equal(further, np.int32(count)), comes_before(element, v)), further, place)

    half, *rest = (1 << bit for bit in reversed(range(count.bit_length())))
    middle = reshape(slice_in_dim(a, half - 1, half, 0), ())
    place = where(comes_before(middle, v), np.int32(half), np.int32(0))
    turn: TracedCall = trace_flat(advance, [aval_of(place), Aval((), dtypes.int32)], "searchsorted", searchsorted)
    return bind_scan(turn.program, turn.captured, [place], [np.array(rest, np.int32)], len(rest))[0]


_FEW = 32
"""Most elements with which others are all compared faster than found by a search."""


def _before(x: Any, y: Any) -> Any:
    """Return whether x comes before y in sorted order, in which NaNs are last."""
    before = less(x, y)
    return before if not dtypes.is_inexact(aval_of(x).dtype) else logical_or(before, logical_and(isnan(y), equal(x, x)))


def _before_or_equal(x: Any, y: Any) -> Any:
    before = less_equal(x, y)
    return before if not dtypes.is_inexact(aval_of(x).dtype) else logical_or(before, isnan(y))


def _ranks(x: Any) -> Any:
    """Return the rank of each element of a vector: the inverse of the permutation that sorts it."""
    return sorting.argsort(sorting.argsort(x, 0), 0)


# --- running results ----------------------------------------------------------------------------------------------


def _running(name: str, operation: Callable[..., Any], a: Any, axis: int | None, dtype: Any) -> Any:
    a, at = flatten_if_none(name, a, 0 if axis is None and len(shape_of(as_array_operand(a))) == 1 else axis)
    own = aval_of(a)
    wanted = dtypes.canonical(dtype) if dtype is not None else dtypes.int32 if own.dtype == dtypes.bool_ else own.dtype
    inner = dtypes.float32 if wanted.itemsize < 4 and dtypes.is_floating(wanted) else wanted
    result = operation(convert(a, inner, own.weak and dtype is None and inner == own.dtype), at)
    return result if inner == wanted else convert(result, wanted)


def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Return the running sum along `axis` (None: of the flattened array).

    >>> cumsum([1, 2, 3])
    array([1, 3, 6])
    """
    refuse_out("cumsum", out)
    return _running("cumsum", cumulative.cumsum, a, axis, dtype)


def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Return the running product along `axis` (None: of the flattened array).

    >>> cumprod([1, 2, 3])
    array([1, 2, 6])
    """
    refuse_out("cumprod", out)
    return _running("cumprod", cumulative.cumprod, a, axis, dtype)


def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Return the running sum like `cumsum`, with NaNs counted as 0.

    >>> nancumsum([1.0, float("nan"), 3.0])
    array([1., 1., 4.])
    """
    return cumsum(_without_nans(a, 0), axis, dtype, out)


def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Return the running product like `cumprod`, with NaNs counted as 1.

    >>> nancumprod([1.0, float("nan"), 3.0])
    array([1., 1., 3.])
    """
    return cumprod(_without_nans(a, 1), axis, dtype, out)


def _without_nans(a: Any, value: int) -> Any:
    a = as_array_operand(a)
    return where(isnan(a), scalar_like(value, a), a) if dtypes.is_inexact(aval_of(a).dtype) else a


def _cumulative(name: str, function: Callable[..., Any], first: int, x: Any, axis: int | None, dtype: Any,
                include_initial: bool) -> Any:
    x = as_array_operand(x)
    if axis is None and len(shape_of(x)) != 1:
        raise ArgumentError(at_user_line(f"{name}: axis must be given for an array of shape {shape_of(x)}"))
    at = axis_of(name, 0 if axis is None else axis, len(shape_of(x)))
    own = aval_of(x).dtype
    result = function(x, at, summing_dtype(own) if dtype is None and summing_dtype(own) != own else dtype)
    if not include_initial:
        return result
    begin = broadcast_to(scalar_like(first, result), kept_shape(shape_of(x), (at,)))
    return concatenate([begin, result], at)


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Return the running sum, with a 0 in front if `include_initial`; small integers become 32 bits wide.

    >>> cumulative_sum([1, 2], include_initial=True)
    array([0, 1, 3])
    """
    return _cumulative("cumulative_sum", cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Return the running product, with a 1 in front if `include_initial`; dtypes as in `cumulative_sum`.

    >>> cumulative_prod([2, 3], include_initial=True)
    array([1, 2, 6])
    """
    return _cumulative("cumulative_prod", cumprod, 1, x, axis, dtype, include_initial)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Return differences of neighbours along `axis`, taken `n` times; `prepend` and `append` are joined first.

    >>> diff([1, 4, 9])
    array([3, 5])
    """
    n = as_integer("diff", n)
    if n < 0:
        raise ArgumentError(at_user_line(f"diff: n={n}; the number of differences must not be negative"))
    at = axis_of("diff", axis, len(shape_of(as_array_operand(a))))
    if not n:
        return new_array(as_array_operand(a), a)  # unchanged, without additions at its ends
    given = [part for part in (prepend, a, append) if part is not None]
    parts = promote_operands(*operands(*given))
    shape = kept_shape(shape_of(parts[prepend is not None]), (at,))
    a = concatenate([part if shape_of(part) else broadcast_to(part, shape) for part in as_numpy_scalars(parts)], at)
    for _ in range(n):
        extent = shape_of(a)[at]
        later, earlier = slice_in_dim(a, min(1, extent), extent, at), slice_in_dim(a, 0, max(extent - 1, 0), at)
        a = not_equal(later, earlier) if aval_of(a).dtype == dtypes.bool_ else subtract(later, earlier)
    return a
