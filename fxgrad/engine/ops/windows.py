"""Gather and scatter on NumPy arrays: their dimension numbers, checks, and kernels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.caches import cached
from fxgrad.engine.core.avals import Aval, Shape
from fxgrad.engine.core.parameter_classes import declare_parameter_class
from fxgrad.engine.core.sizes import surely_less
from fxgrad.engine.dtypes import DType
from fxgrad.engine.ops.families import check_kind
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, IndexingError, ShapeError

Axes = tuple[int, ...]

MODES = ("checked", "clip", "fill", "promise_in_bounds")
"""The handling of indices out of range.

| mode | NumPy | XLA |
|---|---|---|
| `checked` | `IndexingError`; negative ones count from the end | as `fill`; negative ones count from the end |
| `clip` | moved into range | the same |
| `fill` | gather gives `fill_value`, scatter drops the update | the same |
| `promise_in_bounds` | unchecked: the caller guarantees that there are none | the same |
"""

PROMISES = ("sorted", "unique")
"""Properties of indices that the caller may promise, for faster code: sorted; no element addressed twice."""


class Windows(NamedTuple):
    """The addressing of windows of an array, in the terms of `lax.GatherDimensionNumbers`.

    `indices[..., k]` is the start of the window along axis `start_index_map[k]`. In the result, the axes
    `offset_dims` run over the window, without its axes `collapsed_slice_dims`, and the others over `indices`. Along
    `operand_batching_dims` the window moves with the axes `start_indices_batching_dims` of `indices`.
    """

    offset_dims: Axes
    collapsed_slice_dims: Axes
    start_index_map: Axes
    operand_batching_dims: Axes = ()
    start_indices_batching_dims: Axes = ()

    def window_axes(self, rank: int) -> list[int]:
        """Return the axes of the operand that the result keeps."""
        gone = {*self.collapsed_slice_dims, *self.operand_batching_dims}
        return [axis for axis in range(rank) if axis not in gone]

    def result_shape(self, slice_sizes: Shape, batch_shape: Shape) -> Shape:
        """Return the shape of a gathered result, which is that of the updates of a scatter."""
        window = iter([slice_sizes[axis] for axis in self.window_axes(len(slice_sizes))])
        batch = iter(batch_shape)
        rank = len(self.offset_dims) + len(batch_shape)
        return tuple(next(window) if axis in self.offset_dims else next(batch) for axis in range(rank))

    def slice_sizes(self, rank: int, updates_shape: Shape) -> Shape:
        """Return the sizes of the windows that updates of this shape fill."""
        sizes = dict(zip(self.window_axes(rank), (updates_shape[axis] for axis in self.offset_dims), strict=True))
        return tuple(sizes.get(axis, 1) for axis in range(rank))


declare_parameter_class(Windows)

# --- checks -------------------------------------------------------------------------------------------------------


def check_windows(name: str, operand: Aval, indices: Aval, windows: Windows, slice_sizes: Shape) -> None:
    """Raise `ShapeError` or `DTypeError` unless the numbers address windows inside the operand."""
    check_kind(f"{name} (indices)", "integer", indices)
    problem = _problem(operand.shape, indices.shape, windows, slice_sizes)
    if problem:
        raise ShapeError(f"{name}: {problem}, for an array of shape {operand.shape}, indices of shape "
                         f"{indices.shape}, windows of sizes {slice_sizes} and {windows}")


def _problem(shape: Shape, indices: Shape, windows: Windows, slice_sizes: Shape) -> str:
    """Return the problem with the numbers, or ""."""
    rank, batched = len(shape), windows.operand_batching_dims
    if not indices or indices[-1] != len(windows.start_index_map):
        return "the last axis of the indices must have one entry for each axis in start_index_map"
    for field, bound in (("offset_dims", len(windows.offset_dims) + len(indices) - 1), ("collapsed_slice_dims", rank),
                         ("start_index_map", rank), ("operand_batching_dims", rank),
                         ("start_indices_batching_dims", len(indices) - 1)):
        axes = getattr(windows, field)
        if len(set(axes)) != len(axes) or any(not 0 <= axis < bound for axis in axes):
            return f"{field} must be distinct axes from 0 to {bound - 1}"
        if field in ("offset_dims", "collapsed_slice_dims", "operand_batching_dims") and list(axes) != sorted(axes):
            return f"{field} must be in order"
    if set(batched) & {*windows.collapsed_slice_dims, *windows.start_index_map}:
        return "an axis in operand_batching_dims may not be collapsed or indexed too"
    if [shape[axis] for axis in batched] != [indices[axis] for axis in windows.start_indices_batching_dims]:
        return "batching axes must have equal sizes in the array and the indices"
    if len(windows.offset_dims) != len(windows.window_axes(rank)):
        return "there must be one axis in offset_dims for each axis of the window that is kept"
    return _window_problem(shape, indices, windows, slice_sizes)


def _window_problem(shape: Shape, indices: Shape, windows: Windows, slice_sizes: Shape) -> str:
    if len(slice_sizes) != len(shape) or any(size < 0 for size in slice_sizes):
        return "there must be one window size for each axis"
    if any(surely_less(1, slice_sizes[axis])
           for axis in (*windows.collapsed_slice_dims, *windows.operand_batching_dims)):
        return "the window must have size 1 along axes that are collapsed or batched"
    # Windows may exceed an axis of size 0 if there are none of them.
    if any(surely_less(extent, size)
           for size, extent in zip(slice_sizes, shape, strict=True)) \
            and 0 not in windows.result_shape(slice_sizes, indices[:-1]):
        return "the windows are larger than the array"
    return ""


def check_mode(name: str, mode: str, promises: tuple[str, ...]) -> None:
    """Raise `ArgumentError` for an unknown mode or promise."""
    if mode not in MODES:
        raise ArgumentError(f"{name}: mode {mode!r}; it is one of {', '.join(map(repr, MODES))}")
    if not set(promises) <= set(PROMISES):
        raise ArgumentError(f"{name}: promises {promises!r}; those that can be made are 'sorted' and 'unique'")


def default_fill(dtype: DType) -> Any:
    """Return the replacement of elements out of range: NaN, the least or largest integer, True; as in jax."""
    if dtypes.is_inexact(dtype):
        return dtype.type(np.nan)
    if dtype.kind == "b":
        return np.True_
    return dtype.type(dtypes.iinfo(dtype).min if dtypes.kind_of(dtype) == "i" else dtypes.iinfo(dtype).max)


# --- plans ----------------------------------------------------------------------------------------------------------


class _Plan(NamedTuple):
    """The work of a kernel, as far as shapes determine it.

    The operand is viewed with the indexed axes in front (`order`); indexing it gives the axes (batch, window along
    indexed axes, rest of the window), and `out_order` puts these into the order of the result.
    """

    order: Axes
    sizes: np.ndarray  # of the indexed axes
    upper: np.ndarray  # the last start of a window in range, along each
    steps: list[Any]  # added to the starts along each indexed axis: the offsets within the window, or 0
    fixed: list[Any]  # the indices of the batching axes, and of others that are not indexed by the starts
    lifted: bool  # whether the operand needs another axis in front, because none of its own is indexed
    rest: tuple[slice, ...]
    extra: int  # the number of window axes along indexed axes
    out_order: Axes | None
    in_order: Axes  # the inverse
    mask_shape: Shape  # the shape of one value for each window, broadcastable to the result
    batch_shape: Shape
    take_axis: int  # the axis if the whole is x.take(indices, axis), else -1


@cached("plans of windows", 4096)
def _plan(shape: Shape, indices_shape: Shape, windows: Windows, slice_sizes: Shape) -> _Plan:
    rank, batch_shape = len(shape), indices_shape[:-1]
    indexed, batching = windows.start_index_map, windows.operand_batching_dims
    kept = windows.window_axes(rank)
    moving = [axis for axis in kept if axis in indexed]
    resting = [axis for axis in kept if axis not in indexed]
    extra, nbatch = len(moving), len(batch_shape)

    def along(position: int, count: int, total: int) -> Any:
        return np.arange(count).reshape([count if axis == position else 1 for axis in range(total)])

    steps = [along(nbatch + moving.index(axis), slice_sizes[axis], nbatch + extra) if slice_sizes[axis] != 1 else 0
             for axis in indexed]
    fixed = [along(position, batch_shape[position], nbatch) for position in windows.start_indices_batching_dims]
    collapsed = [axis for axis in windows.collapsed_slice_dims if axis not in indexed]
    lifted = not (indexed or fixed or collapsed)
    fixed += [np.zeros(batch_shape, np.intp)] * (len(collapsed) + lifted)
    if not indexed:
        fixed = [np.broadcast_to(column, batch_shape) for column in fixed]
    # Axes of the result in the order in which indexing yields them: batch, moving, resting.
    position_of = dict(zip(kept, windows.offset_dims, strict=True))
    out_rank = nbatch + len(kept)
    batch_positions = [axis for axis in range(out_rank) if axis not in windows.offset_dims]
    yielded = [*batch_positions, *(position_of[axis] for axis in moving), *(position_of[axis] for axis in resting)]
    out_order = tuple(yielded.index(axis) for axis in range(out_rank))
    whole = all(slice_sizes[axis] == shape[axis] for axis in resting)
    takes = len(indexed) == 1 and not batching and not moving and whole and (
        batch_positions == list(range(indexed[0], indexed[0] + nbatch)))
    order = (0, *(axis + 1 for axis in resting)) if lifted else (*indexed, *batching, *collapsed, *resting)
    return _Plan(
        order=order, sizes=np.array([shape[axis] for axis in indexed], np.intp),
        upper=np.array([shape[axis] - slice_sizes[axis] for axis in indexed], np.intp), steps=steps,
        fixed=fixed, lifted=lifted, rest=tuple(slice(0, slice_sizes[axis]) for axis in resting),
        extra=extra, out_order=None if out_order == tuple(range(out_rank)) else out_order, in_order=tuple(yielded),
        mask_shape=tuple(batch_shape[batch_positions.index(axis)] if axis in batch_positions else 1
                         for axis in range(out_rank)),
        batch_shape=batch_shape, take_axis=indexed[0] if takes else -1)


def _in_range(plan: _Plan, indices: Any, windows: Windows, mode: str) -> tuple[Any, Any]:
    """Return the starts of all windows, moved into range, and a mask of those that were in range (None: all)."""
    starts = indices.astype(np.intp, copy=False)
    if mode == "promise_in_bounds" or not starts.size:
        return starts, None
    if mode == "clip":
        if indices.dtype == np.uint64:
            starts = np.where(starts < 0, plan.upper, starts)  # too large for the signed type
        return np.minimum(np.maximum(starts, 0), plan.upper), None
    if mode == "checked" and starts.min() < 0:
        starts = np.where(starts < 0, starts + plan.sizes, starts)
    outside = (starts < 0) | (starts > plan.upper)
    if not outside.any():
        return starts, None
    if mode == "checked":
        first = tuple(np.argwhere(outside)[0])
        component = first[-1]
        raise IndexingError(at_user_line(
            f"index {indices[first]} is out of range for axis {windows.start_index_map[component]} of size "
            f"{plan.sizes[component]}; in range are {-plan.sizes[component]} to {plan.upper[component]}"))
    return np.minimum(np.maximum(starts, 0), np.maximum(plan.upper, 0)), ~outside.any(axis=-1)


def _grid(plan: _Plan, starts: Any, inside: Any) -> tuple[Any, ...]:
    """Return index arrays for the leading axes, of shapes that broadcast to (batch, window along indexed axes).

    With `inside`, only windows where it holds, and one batch axis.
    """
    columns = [starts[..., k] for k in range(starts.shape[-1])] + plan.fixed
    steps = plan.steps
    if inside is not None:
        columns = [np.broadcast_to(column, plan.batch_shape)[inside] for column in columns]
        gone = max(len(plan.batch_shape) - 1, 0)
        steps = [step if type(step) is int else step.reshape(step.shape[gone:]) for step in steps]
    if plan.extra:
        wider = (..., *(np.newaxis,) * plan.extra)
        columns = [column[wider] for column in columns]
    return tuple(column if type(step) is int else column + step for column, step in zip_longest(
        columns, steps, fillvalue=0))


def _seen(plan: _Plan, x: Any) -> Any:
    """Return a view of the operand that the grid and `plan.rest` index."""
    return (x[np.newaxis] if plan.lifted else x).transpose(plan.order)


# --- kernels --------------------------------------------------------------------------------------------------------


def gather_numpy(x: Any, indices: Any, *, offset_dims: Axes, collapsed_slice_dims: Axes, start_index_map: Axes,
                 operand_batching_dims: Axes, start_indices_batching_dims: Axes, slice_sizes: Shape, mode: str,
                 fill_value: Any, promises: tuple[str, ...]) -> Any:
    """The NumPy rule of `gather`."""
    windows = Windows(offset_dims, collapsed_slice_dims, start_index_map, operand_batching_dims,
                      start_indices_batching_dims)
    plan = _plan(x.shape, indices.shape, windows, slice_sizes)
    starts, inside = _in_range(plan, indices, windows, mode)
    if plan.take_axis >= 0 and type(x) is np.ndarray and x.flags.c_contiguous:
        out = x.take(starts[..., 0], plan.take_axis)
    else:
        out = _seen(plan, np.asarray(x))[(*_grid(plan, starts, None), *plan.rest)]
        if plan.out_order is not None:
            out = out.transpose(plan.out_order)
    if inside is not None:
        missing = default_fill(x.dtype) if fill_value is None else x.dtype.type(fill_value)
        out = np.where(inside.reshape(plan.mask_shape), out, missing)
    return out


def scatter_numpy(combine: np.ufunc | None, x: Any, indices: Any, updates: Any, windows: Windows, mode: str,
                  promises: Sequence[str]) -> Any:
    """Return a copy of `x` with `updates` combined into its windows, or put there if `combine` is None."""
    plan = _plan(x.shape, indices.shape, windows, windows.slice_sizes(x.ndim, updates.shape))
    starts, inside = _in_range(plan, indices, windows, mode)
    out = np.array(x, order="C")
    updates = updates.transpose(plan.in_order)
    if inside is not None:
        updates = updates[inside]
    grid = _grid(plan, starts, inside)
    distinct = "unique" in promises or starts.size == starts.shape[-1]
    seen = _seen(plan, out)
    if combine is None or distinct:
        place = (*grid, *plan.rest)
        seen[place] = updates if combine is None else combine(seen[place], updates)
    else:
        # The one form of `at` that is fast: one index array for a flat array.
        # The indices of the updates' elements in the flattened array.
        strides = [stride // seen.itemsize for stride in seen.strides]
        front = np.asarray(sum(column * stride for column, stride in zip(grid, strides, strict=False)))
        front = front[(..., *(np.newaxis,) * len(plan.rest))]
        for position, (piece, stride) in enumerate(zip(plan.rest, strides[len(grid):], strict=True)):
            within = np.arange(piece.stop) * stride
            front = front + within.reshape(-1, *(1,) * (len(plan.rest) - position - 1))
        addresses = np.broadcast_to(front, updates.shape)
        combine.at(out.reshape(-1), addresses.ravel(), updates.ravel())
    return out
