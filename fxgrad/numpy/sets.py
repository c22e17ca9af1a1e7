"""Sets: the distinct elements of arrays, elements common to several arrays, and membership.

The number of distinct elements depends on the values. These must be known, or `size` must be given.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_numpy_scalars,
    axis_of,
    constant_array,
    equally_strong,
    operands,
    promote_operands,
    shape_of,
)
from fxgrad.engine.ops import ordering as sorting
from fxgrad.engine.ops.arithmetic import sub
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.indexing import scatter
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.parts import imag, real
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to, convert, move_axis, reshape
from fxgrad.engine.ops.windows import Windows
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ShapeError
from fxgrad.numpy.elementwise import isnan
from fxgrad.numpy.finding import size_of, true_places
from fxgrad.numpy.logic import (
    equal,
    greater_equal,
    less,
    logical_and,
    logical_not,
    logical_or,
    not_equal,
    where,
)
from fxgrad.numpy.ordering import _FEW, cumsum, searchsorted, sort
from fxgrad.numpy.positions import take_along_one
from fxgrad.numpy.reductions import any


class UniqueAllResult(NamedTuple):
    """The result of `unique_all`."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCountsResult(NamedTuple):
    """The result of `unique_counts`."""

    values: Any
    counts: Any


class UniqueInverseResult(NamedTuple):
    """The result of `unique_inverse`."""

    values: Any
    inverse_indices: Any


class _Groups(NamedTuple):
    """Rows in sorted order: `order` are their positions, `first` marks the first row of each group of equal ones."""

    order: Any
    first: Any


def unique(ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
           axis: int | None = None, *, equal_nan: bool = True, size: int | None = None, fill_value: Any = None,
           sorted: bool = True) -> Any:
    """Return the distinct elements of an array in order, or with `axis` the distinct slices along it.

    On request these follow: the positions of their first occurrences, the positions in the result that rebuild the
    array, and the numbers of occurrences (all int32). With `equal_nan`, NaNs are one element. Values must be known
    unless `size` is given, to which the result is then cut or filled, with `fill_value` or its least element.
    Derivatives flow to the first occurrences.

    >>> unique([3, 1, 3])
    array([1, 3])
    >>> unique([3, 1, 3], return_counts=True, size=3, fill_value=0)
    (array([1, 3, 0]), array([1, 2, 0], dtype=int32))
    """
    del sorted  # they always are
    ar = as_array_operand(ar)
    shape = shape_of(ar)
    at = 0 if axis is None else axis_of("unique", axis, len(shape))
    rows = reshape(ar, (math.prod(shape),)) if axis is None else move_axis(ar, at, 0)
    count = given = shape_of(rows)[0]
    wanted = size_of("unique", size)
    if wanted and not count:
        if fill_value is None:
            raise ShapeError(at_user_line(f"unique: an array of shape {shape} has no elements to fill size={wanted} "
                                          "with; give fill_value"))
        rows, count = broadcast_to(convert(as_array_operand(fill_value), aval_of(ar).dtype),
                                   (1, *shape_of(rows)[1:])), 1
    groups = _group_rows(rows, equal_nan)
    # One more than requested: the end of the last one.
    ends = true_places(groups.first, None if wanted is None else wanted + 1, count,
                       "np.unique, whose result has a size that depends on the values unless size= gives it,")
    places = ends if wanted is None else slice_in_dim(ends, 0, wanted, 0)
    found = take_along_one(groups.order, places, 0, "clip") if count else constant_array(shape_of(places), 0,
                                                                                         dtypes.int32)
    result = take_along_one(rows, found, 0, "promise_in_bounds")
    beyond = greater_equal(places, scalar_like(count, places)) if wanted else None
    if wanted:
        least = take_along_one(groups.order, np.zeros(wanted, np.int32), 0, "promise_in_bounds")
        found = where(beyond, least, found)
        fill = take_along_one(rows, least, 0, "promise_in_bounds") if fill_value is None else \
            convert(as_array_operand(fill_value), aval_of(rows).dtype)
        result = where(reshape(beyond, (wanted, *(1,) * (len(shape_of(rows)) - 1))), fill, result)
    results = [move_axis(result, 0, at)]
    if return_index:
        results.append(found)
    if return_inverse:
        inverse = _inverse(groups) if given else constant_array((0,), 0, dtypes.int32)
        results.append(reshape(inverse, shape) if axis is None else inverse)
    if return_counts:
        # The distances between positions, the last one to the end unless one more is given; 0 without a group.
        if wanted is None:
            ends = concatenate([ends, np.full(1, count, np.int32)], 0)
        last = shape_of(ends)[0] - 1
        results.append(sub(slice_in_dim(ends, 1, last + 1, 0), slice_in_dim(ends, 0, last, 0)))
    return results[0] if len(results) == 1 else tuple(results)


def _group_rows(rows: Any, equal_nan: bool) -> _Groups:
    """Return the rows in lexicographic order, each compared with the one before it."""
    count = shape_of(rows)[0]
    width = math.prod(shape_of(rows)[1:])
    if equal_nan and aval_of(rows).dtype.kind == "c":  # a NaN in either part makes the number a NaN
        rows = where(isnan(rows), math.nan, rows)
    columns = [reshape(part, (count,)) for part in _columns(reshape(rows, (count, width)), width)]
    places = iota(dtypes.int32, (count,))
    if not count or not columns:
        return _Groups(places, np.arange(count) == 0)
    *ordered, order = sorting.sort([*columns, places], 0, len(columns))
    differs: Any = None
    for column in ordered:
        apart = _changes(column, equal_nan)
        differs = apart if differs is None else logical_or(differs, apart)
    return _Groups(order, differs)


def _changes(x: Any, equal_nan: bool = True) -> Any:
    """Return whether each element of a sorted vector differs from the one before it; `equal_nan` makes NaNs equal."""
    count = shape_of(x)[0]
    later, earlier = slice_in_dim(x, 1, count, 0), slice_in_dim(x, 0, count - 1, 0)
    apart = not_equal(later, earlier)
    if equal_nan and dtypes.is_inexact(aval_of(x).dtype):
        apart = logical_and(apart, logical_not(logical_and(isnan(later), isnan(earlier))))
    return concatenate([np.ones(1, np.bool_), apart], 0)


def _columns(rows: Any, width: int) -> list[Any]:
    if aval_of(rows).dtype.kind == "c" and width > 1:
        return [part for column in range(width) for whole in [slice_in_dim(rows, column, column + 1, 1)]
                for part in (real(whole), imag(whole))]
    return [slice_in_dim(rows, column, column + 1, 1) for column in range(width)]


def _inverse(groups: _Groups) -> Any:
    """For each row the number of its group."""
    count = shape_of(groups.order)[0]
    start = constant_array((count,), 0, dtypes.int32)
    if not count:
        return start
    number = sub(cumsum(groups.first, 0, np.int32), scalar_like(1, start))
    return scatter(start, reshape(groups.order, (count, 1)), number, Windows((), (0,), (0,)),
                   mode="promise_in_bounds", promises=("unique",))


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAllResult:
    """Return the distinct elements (NaNs are distinct), their first positions, the inverse positions and the counts.

    `size` and `fill_value` as in `unique`.

    >>> unique_all([3, 1, 3]).indices
    array([1, 0], dtype=int32)
    """
    return UniqueAllResult(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCountsResult:
    """Return the distinct elements (NaNs are distinct) and how often each occurs.

    `size` and `fill_value` as in `unique`.

    >>> unique_counts([3, 1, 3]).counts
    array([1, 2], dtype=int32)
    """
    return UniqueCountsResult(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverseResult:
    """Return the distinct elements (NaNs are distinct) and the positions among them that rebuild `x`.

    `size` and `fill_value` as in `unique`.

    >>> unique_inverse([3, 1, 3]).inverse_indices
    array([1, 0, 1], dtype=int32)
    """
    return UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the distinct elements (NaNs are distinct). `size` and `fill_value` as in `unique`.

    >>> unique_values([3, 1, 3])
    array([1, 3])
    """
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


# --- two sets -----------------------------------------------------------------------------------------------------


def _flat(*arrays: Any) -> list[Any]:
    return [reshape(array, (math.prod(shape_of(array)),))
            for array in equally_strong(as_numpy_scalars(promote_operands(*operands(*arrays))))]


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the distinct elements of either array, in order. `size` and `fill_value` as in `unique`.

    >>> union1d([3, 1], [2, 1])
    array([1, 2, 3])
    """
    return unique(concatenate(_flat(ar1, ar2), 0), size=size, fill_value=fill_value)


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None,
              fill_value: Any = None) -> Any:
    """Return the distinct elements of `ar1` that are not in `ar2`: in order, or unchanged if they are distinct already.

    Values must be known unless `size` is given, to which the result is then cut or filled, with `fill_value` or 0.

    >>> setdiff1d([3, 1, 2], [2])
    array([1, 3])
    """
    first, second = _flat(as_array_operand(ar1), as_array_operand(ar2))
    first = convert(first, aval_of(as_array_operand(ar1)).dtype)
    if assume_unique:
        keep = isin(first, second, invert=True)
    else:
        groups = _group_rows(first, True)
        ordered = take_along_one(first, groups.order, 0, "promise_in_bounds", promises=("unique",)), groups.first
        first = ordered[0]
        keep = logical_and(ordered[1], isin(first, second, invert=True))
    return _select_kept("setdiff1d", first, keep, size, fill_value)


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None,
             fill_value: Any = None) -> Any:
    """Return the distinct elements that are in just one of two arrays, in order; NaNs are in no other array.

    `size` and `fill_value` as in `unique`. With `assume_unique` the caller promises that no array has an element twice.

    >>> setxor1d([3, 1], [2, 1])
    array([2, 3])
    """
    del assume_unique  # it would save little
    parts = _flat(ar1, ar2)
    count = shape_of(parts[0])[0]
    joined = concatenate(parts, 0)
    if not shape_of(joined)[0]:
        return _select_kept("setxor1d", joined, constant_array((0,), False, dtypes.bool_), size, fill_value)
    # Equal elements are ordered by array: the first of each array is marked, unless the other array has one too.
    origin = np.arange(shape_of(joined)[0]) >= count
    values, origin, order = sorting.sort([joined, origin, iota(dtypes.int32, shape_of(joined))], 0, 2)
    first = logical_or(_changes(values), _changes(origin))
    others = logical_or(logical_and(origin, isin(values, parts[0])), logical_and(logical_not(origin),
                                                                                isin(values, parts[1])))
    values = take_along_one(joined, order, 0, "promise_in_bounds", promises=("unique",))
    return _select_kept("setxor1d", values, logical_and(first, logical_not(others)), size, fill_value, least=True)


def _select_kept(name: str, x: Any, keep: Any, size: int | None, fill_value: Any,
                 least: bool = False) -> Any:
    """Return the elements to keep, cut or filled to `size`: with `fill_value`, or with 0, or the `least` of them."""
    count = shape_of(x)[0]
    wanted = size_of(name, size)
    places = true_places(keep, wanted, count,
                         f"np.{name}, whose result has a size that depends on the values unless size= gives it,")
    if not count:
        return convert(constant_array(shape_of(places), 0 if fill_value is None else fill_value, aval_of(x).dtype),
                       aval_of(x).dtype)
    found = take_along_one(x, places, 0, "clip")
    if wanted is None:
        return found
    if fill_value is None and least:
        fill = _least(found, places, count)
    else:
        fill = convert(as_array_operand(0 if fill_value is None else fill_value), aval_of(x).dtype)
    return where(less(places, scalar_like(count, places)), found, fill)


def _least(found: Any, places: Any, count: int) -> Any:
    """Return the first of the found elements, or 0 if there are none."""
    first, place = (slice_in_dim(part, 0, min(shape_of(part)[0], 1), 0) for part in (found, places))
    return where(less(place, scalar_like(count, place)), first, scalar_like(0, first))


def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False, *,
                size: int | None = None, fill_value: Any = None) -> Any:
    """Return the distinct elements that two arrays have in common, in order; on request their positions in both.

    Positions are int32. Values must be known unless `size` is given, to which the result is then cut or filled, with
    `fill_value` or the least element; missing positions are the sizes of the arrays. With `assume_unique` the caller
    promises that no array has an element twice.

    >>> intersect1d([3, 1, 2], [2, 3, 4])
    array([2, 3])
    """
    del assume_unique  # it would save little
    first, second = _flat(ar1, ar2)
    groups = _group_rows(first, True)
    use = "np.intersect1d, whose result has a size that depends on the values unless size= gives it,"
    wanted = size_of("intersect1d", size)
    counts = shape_of(first)[0], shape_of(second)[0]
    if not all(counts):
        places: Any = true_places(np.zeros(counts[0], np.bool_), wanted, counts[0], use)
        filled = convert(constant_array(shape_of(places), 0 if fill_value is None else fill_value,
                                        aval_of(first).dtype),
                         aval_of(first).dtype)
        return (filled, places, places * 0 + counts[1]) if return_indices else filled
    values = take_along_one(first, groups.order, 0, "promise_in_bounds", promises=("unique",))
    common = logical_and(groups.first, isin(values, second))
    places = true_places(common, wanted, counts[0], use)
    result = take_along_one(values, places, 0, "clip")
    beyond = greater_equal(places, scalar_like(counts[0], places))
    if wanted:
        fill = _least(result, places, counts[0]) if fill_value is None else \
            convert(as_array_operand(fill_value), aval_of(first).dtype)
        result = where(beyond, fill, result)
    if not return_indices:
        return result
    at_first = where(beyond, np.int32(counts[0]), take_along_one(groups.order, places, 0, "clip"))
    other = sorting.argsort(second, 0)
    near = searchsorted(take_along_one(second, other, 0, "promise_in_bounds"), result)
    return result, at_first, where(beyond, np.int32(counts[1]), take_along_one(other, near, 0, "clip"))


def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
         method: str = "auto") -> Any:
    """Return whether each of `element` is in `test_elements`, or with `invert` is not; a NaN never is.

    `method` is one of jax's, all of which have the same result.

    >>> isin([1, 2, 3], [2, 5])
    array([False,  True, False])
    """
    del assume_unique, method
    x, among = as_numpy_scalars(promote_operands(*operands(element, test_elements)))
    among = reshape(among, (math.prod(shape_of(among)),))
    count = shape_of(among)[0]
    if not count:
        found = constant_array(shape_of(x), False, dtypes.bool_)
    elif count <= _FEW or aval_of(x).dtype.kind == "c":
        found = any(equal(reshape(x, (*shape_of(x), 1)), among), -1)
    else:
        ordered = sort(among)
        found = equal(take_along_one(ordered, searchsorted(ordered, x), 0, "clip"), x)
    return logical_not(found) if invert else found
