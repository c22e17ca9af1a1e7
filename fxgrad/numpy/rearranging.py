"""Moving elements about: roll, tile, repeat, take, diagonals, triangles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.sizes import SymbolicDim, has_symbolic_dim
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_axis_size,
    as_integer,
    as_shape,
    axis_of,
    common_shape,
    constant_array,
    new_array,
    refuse_out,
    require_concrete,
    shape_of,
)
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.ops.indexing import take_along
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.pointwise import add, scalar_like
from fxgrad.engine.ops.select import select_n
from fxgrad.engine.ops.shaping import pad, slice_in_dim
from fxgrad.engine.ops.shaping import tile as tiled
from fxgrad.engine.ops.structural import broadcast_to, reshape, transpose
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import AxisError, ShapeError
from fxgrad.numpy.arithmetic import minimum, remainder, subtract
from fxgrad.numpy.creation import arange, diagonal_number, lower_triangle
from fxgrad.numpy.ordering import cumsum, searchsorted
from fxgrad.numpy.positions import gather_indices, take_along_one, without_negatives
from fxgrad.numpy.reductions import sum
from fxgrad.numpy.shaping import ravel

# --- rolling and repeating ----------------------------------------------------------------------------------------


def roll(a: Any, shift: Any, axis: int | Sequence[int] | None = None) -> Any:
    """Return `a` with its elements moved on by `shift` places along `axis`, those at the end to the beginning.

    Without `axis` the flattened array is rolled. `shift` may be a traced integer, or a sequence with as many `axis`;
    several along one axis add up.

    >>> roll([1, 2, 3], 1)
    array([3, 1, 2])
    """
    a = given = as_array_operand(a)
    if axis is None:
        return new_array(reshape(roll(ravel(a), shift, 0), shape_of(a)), given)
    axes = axis if isinstance(axis, Sequence | np.ndarray) else [axis]
    several = isinstance(shift, Sequence) or shape_of(shift)
    if several and any(type(each) is not SymbolicDim and shape_of(each) for each in shift):
        raise ShapeError(at_user_line(f"roll: shift must be an integer or a vector of integers, got {shift!r}"))
    shifts = [shift[place] for place in range(len(shift))] if several else [shift]
    if len(shifts) != len(axes):
        if 1 not in (len(shifts), len(axes)):
            raise ShapeError(at_user_line(f"roll: {len(shifts)} shifts along {len(axes)} axes; equal numbers, or one "
                                          "of either, are needed"))
        shifts, axes = [*shifts] * max(len(axes) // len(shifts), 1), [*axes] * max(len(shifts) // len(axes), 1)
    for each, at in zip(shifts, axes, strict=True):
        a = _roll(a, each, axis_of("roll", at, len(shape_of(a))))
    return new_array(a, given)


def _roll(a: Any, shift: Any, axis: int) -> Any:
    extent = shape_of(a)[axis]
    if not extent:
        return a
    if type(shift) is Tracer:
        places = remainder(subtract(arange(extent), shift), extent)
        return take_along_one(a, places, axis, "promise_in_bounds", promises=("unique",))
    first = -as_integer("roll", shift) % extent
    if not has_symbolic_dim(first) and not first:
        return a
    return concatenate([slice_in_dim(a, first, extent, axis), slice_in_dim(a, 0, first, axis)], axis)


def tile(A: Any, reps: Any) -> Any:
    """Return `A` repeated as a whole, `reps` times along its last axes.

    >>> tile([1, 2], 2)
    array([1, 2, 1, 2])
    """
    A = as_array_operand(A)
    counts, sizes = as_shape(reps, "tile: the number of repetitions"), shape_of(A)
    rank = max(len(counts), len(sizes))
    counts = (1,) * (rank - len(counts)) + counts
    return tiled(reshape(A, (1,) * (rank - len(sizes)) + sizes), counts)


def repeat(a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None,
           out_sharding: Any = None) -> Any:
    """Return `a` with each element repeated along `axis` (None: in the flattened array).

    `repeats` is a number or one number for each element; it must be known, unless `total_repeat_length` gives the size
    of the result, which is then cut, or filled with the last entry.

    >>> repeat([1, 2], 2)
    array([1, 1, 2, 2])
    """
    if out_sharding is not None:
        return place_array("repeat", repeat(a, repeats, axis, total_repeat_length=total_repeat_length), out_sharding)
    a = ravel(a) if axis is None else as_array_operand(a)
    sizes = shape_of(a)
    at = axis_of("repeat", 0 if axis is None else axis, len(sizes))
    if total_repeat_length is not None:
        ends = cumsum(broadcast_to(ravel(as_array_operand(repeats)), (sizes[at],)))
        places = searchsorted(ends, np.arange(total_repeat_length), side="right")
        return take_along_one(a, minimum(places, max(sizes[at] - 1, 0)), at, "promise_in_bounds", promises=("sorted",))
    counts = require_concrete(repeats, "repeats, which decide the size of the result,")
    if counts.size == 1:
        count = as_axis_size("repeat", counts.reshape(()))
        wide = broadcast_to(reshape(a, (*sizes[:at + 1], 1, *sizes[at + 1:])),
                         (*sizes[:at + 1], count, *sizes[at + 1:]))
        return new_array(reshape(wide, (*sizes[:at], sizes[at] * count, *sizes[at + 1:])), a)
    if counts.shape != (sizes[at],):
        raise ShapeError(at_user_line(f"repeat: repeats of shape {counts.shape} for an axis of size {sizes[at]}; one "
                                      "number, or one for each element, is needed"))
    places = np.repeat(np.arange(sizes[at]), counts)
    return take_along_one(a, places, at, "promise_in_bounds", promises=("sorted",))


# --- taking -------------------------------------------------------------------------------------------------------


def take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str | None = None,
         unique_indices: bool = False, indices_are_sorted: bool = False, fill_value: Any = None) -> Any:
    """Return the elements of `a` at integer `indices` along `axis` (None: in the flattened array).

    `mode` handles indices out of range: None and `"raise"` raise `IndexingError` (under `jit` they give `fill_value`),
    `"clip"` and `"wrap"` move them into range, `"fill"` gives `fill_value` (NaN, the least integer).

    >>> take([10, 20, 30], [2, -1])
    array([30, 30])
    """
    refuse_out("take", out)
    a = ravel(a) if axis is None else as_array_operand(a)
    at = axis_of("take", 0 if axis is None else axis, len(shape_of(a)))
    places, how = gather_indices("take", indices, shape_of(a)[at], at, mode)
    promises = tuple(name for name, made in (("sorted", indices_are_sorted), ("unique", unique_indices)) if made)
    return take_along_one(a, places, at, how, fill_value, promises)


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1, mode: str | None = None,
                    fill_value: Any = None, *, wrap_negative_indices: bool | None = None) -> Any:
    """Return elements of `arr` along `axis`, at indices that differ for each position on the other axes (broadcast).

    `mode` as in `take`; with `wrap_negative_indices=False` negative indices are out of range, too. Raises `ShapeError`
    if the numbers of axes differ.

    >>> take_along_axis([[1, 2], [3, 4]], [[1], [0]], axis=1)
    array([[2],
           [3]])
    """
    arr, places = (ravel(arr), ravel(indices)) if axis is None else (as_array_operand(arr), as_array_operand(indices))
    sizes, wanted = shape_of(arr), shape_of(places)
    if len(sizes) != len(wanted):
        raise ShapeError(at_user_line(f"take_along_axis: an array of shape {sizes} and indices of shape {wanted}; "
                                      "equally many axes are needed"))
    if wrap_negative_indices is False:
        places = without_negatives("take_along_axis", places, mode)
    at = axis_of("take_along_axis", -1 if axis is None else axis, len(sizes))
    places, how = gather_indices("take_along_axis", places, sizes[at], at, mode)
    others = common_shape("take_along_axis", (*sizes[:at], 1, *sizes[at + 1:]), (*wanted[:at], 1, *wanted[at + 1:]))
    arr = broadcast_to(arr, (*others[:at], sizes[at], *others[at + 1:]))
    places = broadcast_to(places, (*others[:at], wanted[at], *others[at + 1:]))
    return take_along(arr, places, at, how, fill_value=fill_value)


# --- diagonals and triangles --------------------------------------------------------------------------------------


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the elements of `a` on a diagonal of the plane of two axes, as a new last axis.

    `offset` counts diagonals upward from the main one. Raises `AxisError` if the axes are equal or do not exist.

    >>> diagonal([[1, 2], [3, 4]])
    array([1, 4])
    """
    a, offset = as_array_operand(a), as_integer("diagonal", offset)
    rank = len(shape_of(a))
    first, second = (axis_of("diagonal", axis, rank) for axis in (axis1, axis2))
    if first == second:
        raise AxisError(at_user_line(f"diagonal: axis1 and axis2 must differ, both are {axis1}"))
    others = [axis for axis in range(rank) if axis not in (first, second)]
    a = transpose(a, [*others, first, second])
    *kept, rows, columns = shape_of(a)
    count = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    begin = offset if offset >= 0 else -offset * columns
    flat = reshape(a, (*kept, rows * columns))
    if not count:
        return slice_in_dim(flat, 0, 0, len(kept))
    return slice_in_dim(flat, begin, begin + (count - 1) * (columns + 1) + 1, len(kept), columns + 1)


def diag(v: Any, k: int = 0) -> Any:
    """Return the `k`-th diagonal of a matrix, or a matrix with the vector `v` there and zeros elsewhere.

    Raises `ShapeError` for arrays of other ranks.

    >>> diag([1, 2])
    array([[1, 0],
           [0, 2]])
    """
    v = as_array_operand(v)
    rank = len(shape_of(v))
    if rank == 2:
        return diagonal(v, k)
    if rank != 1:
        raise ShapeError(at_user_line(f"diag: a vector or a matrix is needed, the shape is {shape_of(v)}"))
    count, = shape_of(v)
    k = as_integer("diag", k)
    extent = count + abs(k)
    if not count:
        return constant_array((extent, extent), 0, aval_of(v).dtype)
    # In the flattened matrix the elements are equally spaced.
    before = k if k >= 0 else -k * extent
    behind = extent * extent - before - (count - 1) * (extent + 1) - 1
    return reshape(pad(v, scalar_like(0, v), [(before, behind, extent)]), (extent, extent))


def diagflat(v: Any, k: int = 0) -> Any:
    """Return a matrix with the elements of `v` on its `k`-th diagonal.

    >>> diagflat([[1, 2]]).shape
    (2, 2)
    """
    return diag(ravel(v), k)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    """Return the sum of a diagonal; the arguments are those of `diagonal`.

    >>> int(trace([[1, 2], [3, 4]]))
    5
    """
    refuse_out("trace", out)
    return sum(diagonal(a, offset, axis1, axis2), -1, dtype)


def _triangle(name: str, m: Any, k: int, lower: bool) -> Any:
    m = as_array_operand(m)
    if len(shape_of(m)) < 2:
        raise ShapeError(at_user_line(f"{name}: at least two axes are needed, the shape is {shape_of(m)}"))
    rows, columns = shape_of(m)[-2:]
    k = diagonal_number(name, k)
    mask = lower_triangle(rows, columns, k if lower else add(k, -1) if isinstance(k, Tracer) else k - 1)
    zero = scalar_like(0, m)
    return select_n(mask, zero, m) if lower else select_n(mask, m, zero)


def tril(m: Any, k: int = 0) -> Any:
    """Return `m` with zeros above its `k`-th diagonal (in the plane of the last two axes).

    >>> tril([[1, 2], [3, 4]])
    array([[1, 0],
           [3, 4]])
    """
    return _triangle("tril", m, k, True)


def triu(m: Any, k: int = 0) -> Any:
    """Return `m` with zeros below its `k`-th diagonal (in the plane of the last two axes).

    >>> triu([[1, 2], [3, 4]])
    array([[1, 2],
           [0, 4]])
    """
    return _triangle("triu", m, k, False)
