"""Indexing `x[...]`: an index is read once into a plan of slices, reversals, reshapes and at most one gather.

NumPy's rules hold. Integers drop an axis, slices keep it, None adds one, and `...` stands for the missing full slices.
Arrays of integers or bools are broadcast together; if they are adjacent, their axes take their place, otherwise they
come first. Plain integers count as arrays only if there is an array too.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.core.sizes import SymbolicDim, has_symbolic_dim, index_of, slice_indices
from fxgrad.engine.frontend.operands import common_shape, from_nested, is_concrete, shape_of
from fxgrad.engine.ops.indexing import gather
from fxgrad.engine.ops.joining import stack
from fxgrad.engine.ops.shaping import rev
from fxgrad.engine.ops.shaping import slice as slice_
from fxgrad.engine.ops.structural import broadcast_to, convert, reshape
from fxgrad.engine.ops.windows import Windows
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.engine.user_source import node_text, running_code
from fxgrad.errors import FxgradError, IndexingError
from fxgrad.numpy.positions import check_in_range, gather_indices, place_in

Index = Any


class IndexPlan(NamedTuple):
    """An index applied to a shape: first a slice, then a reversal, then new axes, then a gather.

    `kept` is the shape after the slice, without the axes of integers; `shape` adds the new axes of None. `arrays` are
    the index arrays by their axis in `kept`, broadcast together; `placed` is the position of their axes in the result.
    """

    starts: list[int]
    limits: list[int]
    strides: list[int]
    reversed_axes: list[int]
    dropped: list[int]
    new: list[int]
    arrays: dict[int, Any]
    placed: int
    sliced: bool

    def is_basic(self) -> bool:
        """Return whether the index has no arrays: every element is addressed at most once, in order."""
        return not self.arrays


def plan_index(shape: Shape, index: Index, mode: str | None = None) -> IndexPlan:
    """Return the plan of `index` for an array of `shape`; raise `IndexingError` for an invalid index.

    With a `mode` in which integers may be out of range, all of them are left to `gather`.
    """
    strict = mode in (None, "raise", "promise_in_bounds")
    entries = expand_index(shape, index)
    plan = IndexPlan([], [], [], [], [], [], {}, 0, sliced=False)
    # A traced integer alone does not count as an array; it is gathered without affecting the others.
    advanced = any(_is_array(entry) and shape_of_entry(entry) for entry in entries)
    axis, out = 0, 0  # the axis of the operand, and that of the result of all but the gather
    places: list[int] = []  # of arrays among the entries
    arrays: list[tuple[int, Any]] = []
    sliced = False
    for place, entry in enumerate(entries):
        if entry is None or isinstance(entry, _Flag):
            plan.new.append(out)
            if entry is not None:
                places.append(place)
                arrays.append((out, entry.positions))
            out += 1
            continue
        extent = shape[axis]
        begin, stop, step = 0, extent, 1
        if _is_array(entry) or ((advanced or not strict) and not isinstance(entry, slice)):
            places.append(place)
            arrays.append((out, _positions(entry, extent, axis, strict)))
            out += 1
        elif isinstance(entry, slice):
            begin, stop, step = _bounds(entry, extent)
            if step < 0:
                plan.reversed_axes.append(axis)
                step = -step
            out += 1
        else:
            begin = place_in("x[...]", entry, extent, axis)
            stop = begin + 1
            plan.dropped.append(axis)
        sliced = sliced or (begin, stop, step) != (0, extent, 1)
        plan.starts.append(begin)
        plan.limits.append(stop)
        plan.strides.append(step)
        axis += 1
    side_by_side = places == [*range(places[0], places[0] + len(places))] if places else True
    for at, indices in arrays:
        plan.arrays[at] = indices
    return plan._replace(placed=arrays[0][0] if arrays and side_by_side else 0, sliced=sliced)


# --- reading the entries ------------------------------------------------------------------------------------------


def expand_index(shape: Shape, index: Index) -> list[Any]:
    """Return one entry for each axis, and None for each new one: `...` and missing entries become full slices."""
    given = index if isinstance(index, tuple) else (index,)
    entries: list[Any] = []
    for entry in given:
        entries += _read(entry)
    dots = [place for place, entry in enumerate(entries) if entry is Ellipsis]
    if len(dots) > 1:
        raise IndexingError(at_user_line("x[...]: an index can have only one '...'"))
    used = sum(not (entry is None or entry is Ellipsis or isinstance(entry, _Flag)) for entry in entries)
    missing = len(shape) - used
    if missing < 0:
        raise IndexingError(at_user_line(f"x[...]: {used} indices for an array with {len(shape)} axes (shape {shape})"))
    place = dots[0] if dots else len(entries)
    entries[place:place + len(dots)] = [slice(None)] * missing
    _check_masks(shape, entries)
    return entries


class _MaskPart(NamedTuple):
    """The positions of a mask's true elements along one of its axes."""

    positions: Any
    mask_shape: Shape
    part: int


class _Flag(NamedTuple):
    """A single bool: a new axis, of size 1 or 0."""

    positions: Any


def _read(entry: Any) -> list[Any]:
    """Return an entry as entries for one axis each: a mask of several axes becomes one array for each."""
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return [entry]
    if isinstance(entry, bool | np.bool_):
        return [_Flag(np.zeros(int(entry), np.intp))]
    if isinstance(entry, int | np.integer):
        return [entry]
    if isinstance(entry, list | tuple):
        entry = from_nested(entry)
    if not (type(entry) is Tracer or isinstance(entry, np.ndarray | np.generic | jax.Array)):
        try:
            return [index_of(entry)]
        except (TypeError, AttributeError):
            raise _entry_error(entry) from None
    dtype = aval_of(entry).dtype
    if dtype == dtypes.bool_:
        return _mask(entry)
    if dtypes.kind_of(dtype) not in "iu" and not (is_concrete(entry) and not entry.size):
        raise IndexingError(at_user_line(f"x[...]: an index must be an integer, got {dtype.name}; convert with "
                                         "i.astype(int)"))
    if is_concrete(entry) and not shape_of(entry):
        return [int(entry)]
    return [entry]


def _entry_error(entry: Any) -> IndexingError:
    """Return the error for an index of no known kind; for a name, as of a dict that is another argument, in full."""
    done, hint = "x[...]", ""
    running = running_code().expression
    if isinstance(entry, str) and isinstance(running, ast.Subscript):
        done, hint = node_text(running), f". {node_text(running.value)} is an array here, and no dict"
    return IndexingError(at_user_line(f"{done}: an index must be an integer, a slice, None, '...', or an array of "
                                      f"integers or bools, got {type(entry).__name__}{hint}"))


def _mask(mask: Any) -> list[Any]:
    """Return a mask as its positions; it must be known, since it decides the shape of the result."""
    known = mask.tape.force(mask, "a mask x[mask], whose result has a size that depends on it, for which you can "
                            "write where(mask, x, 0): it") if type(mask) is Tracer else np.asarray(mask)
    if not known.shape:
        return [_Flag(np.zeros(int(known), np.intp))]
    return [_MaskPart(positions, known.shape, part) for part, positions in enumerate(np.nonzero(known))]


def _check_masks(shape: Shape, entries: list[Any]) -> None:
    """Raise `IndexingError` unless masks have the sizes of their axes."""
    axis = 0
    for entry in entries:
        if entry is None or isinstance(entry, _Flag):
            continue
        if isinstance(entry, _MaskPart) and entry.mask_shape[entry.part] != shape[axis]:
            raise IndexingError(at_user_line(
                f"x[mask]: a mask of shape {entry.mask_shape} for an array of shape {shape}: axis {axis} has size "
                f"{shape[axis]}, where the mask has size {entry.mask_shape[entry.part]}"))
        axis += 1


def _is_array(entry: Any) -> bool:
    return not (entry is None or isinstance(entry, slice | int | np.integer | SymbolicDim))


def shape_of_entry(entry: Any) -> Shape:
    """Return the shape of an index array."""
    return entry.positions.shape if isinstance(entry, _MaskPart | _Flag) else shape_of(entry)


def _positions(entry: Any, extent: int, axis: int, strict: bool) -> Any:
    """Return index arrays, checked if they are known."""
    if isinstance(entry, _MaskPart):
        return entry.positions
    if not is_concrete(entry):
        return entry
    known = np.asarray(entry, np.intp)
    return check_in_range("x[...]", known, extent, axis) if strict else known


def _bounds(entry: slice, extent: int) -> tuple[int, int, int]:
    """Return start, limit and stride of a slice of an axis; the stride is negative for reversed ones."""
    try:
        begin, stop, step = entry.indices(extent)
    except FxgradError:
        if not has_symbolic_dim(extent, entry.start, entry.stop):
            raise  # of a traced bound, with its own advice
        begin, count, step = slice_indices(entry, extent)
        last = begin + (count - 1) * step
        return (begin, begin + count if step == 1 else last + 1, step) if step > 0 else (last, begin + 1, step)
    except (TypeError, ValueError) as error:
        raise IndexingError(at_user_line(f"x[...]: {entry} is no slice of integers: {error}")) from None
    count = len(range(begin, stop, step))
    if not count:
        return 0, 0, 1
    if step > 0:
        return begin, begin + (count - 1) * step + 1, step if count > 1 else 1
    return begin + (count - 1) * step, begin + 1, step if count > 1 else 1


# --- applying the plan --------------------------------------------------------------------------------------------


def basic_shape(plan: IndexPlan) -> Shape:
    """Return the shape after slicing, dropping and adding axes."""
    sizes = [-(-(limit - start) // stride) for start, limit, stride in
             zip(plan.starts, plan.limits, plan.strides, strict=True)]
    kept = [size for axis, size in enumerate(sizes) if axis not in plan.dropped]
    for axis in plan.new:
        kept.insert(axis, 1)
    return tuple(kept)


def getitem(x: Any, index: Index, mode: str | None = None, fill_value: Any = None) -> Any:
    """Return `x[index]` by NumPy's rules; `mode` is that of `take`, for index arrays that are traced.

    Raises `IndexingError`, naming index, axis and size, for an index that is out of range or invalid.
    """
    shape = shape_of(x)
    if (type(index) is int or type(index) is slice) and shape and mode is None:
        return _first_axis(x, shape, index)
    if type(index) is tuple:
        widened = _widened(shape, index)
        if widened is not None:
            return reshape(x, widened)
    plan = plan_index(shape, index, mode)
    x = apply_basic(x, plan)
    if plan.is_basic():
        return x
    windows, window, indices, how = gather_form(shape_of(x), plan, mode)
    return gather(x, indices, windows, window, how, fill_value)


_ALL = slice(None)


def _widened(shape: Shape, index: tuple[Any, ...]) -> Shape | None:
    """Return the shape of `x[None, :]`, and of other indices of None and full slices; None for all others."""
    widened: list[int] = []
    axis = 0
    for entry in index:
        if entry is None:
            widened.append(1)
        elif type(entry) is slice and entry == _ALL and axis < len(shape):
            widened.append(shape[axis])
            axis += 1
        else:
            return None
    return (*widened, *shape[axis:])


def _first_axis(x: Any, shape: Shape, index: Any) -> Any:
    """Return `x[3]` and `x[1:]`, without the plan: the path of loops over rows."""
    extent: Any = shape[0]
    rest = shape[1:]
    zeros, ones = (0,) * len(rest), (1,) * len(rest)
    if type(index) is int:
        begin = index if type(extent) is not SymbolicDim and 0 <= index < extent else place_in("x[...]", index, extent,
                                                                                               0)
        row = x if extent == 1 else slice_(x, (begin, *zeros), (begin + 1, *rest), (1, *ones))
        return reshape(row, rest)
    begin, stop, step = _bounds(index, extent)
    if (begin, stop, abs(step)) != (0, extent, 1):
        x = slice_(x, (begin, *zeros), (stop, *rest), (abs(step), *ones))
    return rev(x, (0,)) if step < 0 else x


def apply_basic(x: Any, plan: IndexPlan) -> Any:
    """Apply all of the index but its arrays."""
    if plan.sliced:
        x = slice_(x, plan.starts, plan.limits, plan.strides)
    if plan.reversed_axes:
        x = rev(x, plan.reversed_axes)
    return reshape(x, basic_shape(plan))


def gather_form(shape: Shape, plan: IndexPlan, mode: str | None) -> tuple[Windows, Shape, Any, str]:
    """Return the arguments of `gather` and `scatter` for the index arrays: dimension numbers, window, indices, mode."""
    axes = sorted(plan.arrays)
    read = [gather_indices("x[...]", plan.arrays[axis], shape[axis], axis, mode) for axis in axes]
    how = "checked" if any(each == "checked" for _, each in read) else read[0][1]
    arrays = [array for array, _ in read]
    common = common_shape("x[...]", *map(shape_of, arrays))
    indices = _joined([broadcast_to(array, common) for array in arrays])
    rank = len(shape) - len(axes) + len(common)
    offset = tuple(at for at in range(rank) if not plan.placed <= at < plan.placed + len(common))
    window = tuple(1 if axis in plan.arrays else extent for axis, extent in enumerate(shape))
    return Windows(offset, tuple(axes), tuple(axes)), window, indices, how


def _joined(arrays: Sequence[Any]) -> Any:
    """Return index arrays as the columns of one."""
    if all(map(is_concrete, arrays)):
        return np.stack([np.asarray(array, np.int32) for array in arrays], -1)
    if len(arrays) == 1:
        return reshape(arrays[0], (*shape_of(arrays[0]), 1))
    wide = any(aval_of(array).dtype in (dtypes.int64, np.uint64, np.uint32) for array in arrays)
    dtype = dtypes.int64 if wide and not all(map(is_concrete, arrays)) else dtypes.int32
    return stack([np.asarray(array, dtype) if is_concrete(array) else convert(array, dtype) for array in arrays],
                 len(shape_of(arrays[0])))
