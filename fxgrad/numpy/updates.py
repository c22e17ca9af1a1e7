"""Updated copies, `x.at[index].set(...)` and others: item assignment for immutable arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval, Shape
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.frontend.flat import trace_flat
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    cast_operand,
    common_type,
    is_concrete,
    new_array,
    operand,
    shape_of,
)
from fxgrad.engine.higher_order.loop import for_p
from fxgrad.engine.ops.comparison import gt
from fxgrad.engine.ops.families import broadcast_shapes
from fxgrad.engine.ops.indexing import Windows, scatter
from fxgrad.engine.ops.reductions import reduce_max
from fxgrad.engine.ops.shaping import rev
from fxgrad.engine.ops.structural import broadcast_to, convert, reshape
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.engine.user_source import item_assignment, running_code
from fxgrad.errors import ArgumentError, IndexingError, MutationError, ShapeError
from fxgrad.numpy.arithmetic import add, divide, maximum, minimum, multiply, power, subtract
from fxgrad.numpy.indexing import IndexPlan, apply_basic, basic_shape, expand_index, gather_form, getitem, plan_index
from fxgrad.numpy.logic import where
from fxgrad.numpy.positions import without_negatives


def _assignment_error() -> MutationError:
    """Return the error for `x.at[i] = value`, with the call that is meant."""
    found = item_assignment(running_code().statement, "{array}")
    array, updated = found.instead.split(" = ", 1) if found else ("x.at", "x.at[i].set(value)")
    return MutationError(at_user_line(f"{found.done if found else 'x.at[i] = value'}: arrays cannot change, and x.at "
                                      f"returns a changed copy. Write {array.removesuffix('.at')} = {updated}"))


class Updates:
    """`x.at`: index it, and call one of the methods of the result.

    >>> import numpy as np
    >>> Updates(np.array([1.0, 2.0, 3.0]))[1:].add(10.0)
    array([ 1., 12., 13.])
    """

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> Place:
        return Place(self._array, index)

    def __setitem__(self, *_: Any) -> None:
        raise _assignment_error()

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise ArgumentError(at_user_line("x.at takes an index in brackets. Write x = x.at[i].set(value)"))

    def __repr__(self) -> str:
        return f"<updates of {aval_of(self._array)}>"


class Place:
    """`x.at[index]`: each method returns a copy of `x` that differs at `index` only.

    Values broadcast to the shape of `x[index]` and take the dtype of `x`. If an element is addressed more than once,
    `add`, `multiply`, `min`, `max` combine all values, and `set` keeps one of them. `mode` is that of `take`, for index
    arrays that are traced: by default out of range is an error (under `jit` such values are dropped); `"drop"` drops
    them always. With `wrap_negative_indices=False` negative indices are out of range, too. `unique_indices=True`
    promises that no element is addressed twice, for faster code.
    """

    __slots__ = ("_array", "_index")

    def __init__(self, array: Any, index: Any) -> None:
        self._array, self._index = array, index

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise ArgumentError(at_user_line("x.at[...] is called by one of its methods. Write x = x.at[...].set(value)"))

    def _change(self, _: Any) -> Any:
        raise _assignment_error()

    __iadd__ = __isub__ = __imul__ = __itruediv__ = _change

    def get(self, *, mode: str | None = None, fill_value: Any = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, wrap_negative_indices: bool = True) -> Any:
        """Return `x[index]`, with a choice of `mode`."""
        del indices_are_sorted, unique_indices  # promises that do not make reading faster
        index = self._index if wrap_negative_indices else without_negatives("x[...]", self._index, mode)
        return getitem(self._array, index, mode, fill_value)

    def set(self, values: Any, **options: Any) -> Any:
        """Return a copy with `values` there."""
        return self._combined("set", values, **options)

    def add(self, values: Any, **options: Any) -> Any:
        """Return a copy with `values` added there."""
        return self._combined("add", values, **options)

    def subtract(self, values: Any, **options: Any) -> Any:
        """Return a copy with `values` subtracted there."""
        return self._combined("sub", values, **options)

    def multiply(self, values: Any, **options: Any) -> Any:
        """Return a copy with these elements multiplied by `values`."""
        return self._combined("mul", values, **options)

    mul = multiply

    def min(self, values: Any, **options: Any) -> Any:
        """Return a copy with the elementwise minimum of these elements and `values`."""
        return self._combined("min", values, **options)

    def max(self, values: Any, **options: Any) -> Any:
        """Return a copy with the elementwise maximum of these elements and `values`."""
        return self._combined("max", values, **options)

    def divide(self, values: Any, **options: Any) -> Any:
        """Return a copy with these elements divided by `values`."""
        factors = np.ones(shape_of(self._array), aval_of(self._array).dtype)
        return convert(divide(self._array, apply_update(factors, self._index, "mul", values, **options)),
                       aval_of(self._array).dtype)

    def power(self, values: Any, **options: Any) -> Any:
        """Return a copy with these elements raised to the power `values`."""
        exponents = np.ones(shape_of(self._array), aval_of(operand(values)).dtype)
        return convert(power(self._array, apply_update(exponents, self._index, "mul", values, **options)),
                       aval_of(self._array).dtype)

    def apply(self, function: Callable[[Any], Any], **options: Any) -> Any:
        """Return a copy with `function`, which takes and returns arrays elementwise, applied to these elements.

        It is applied as often as an element is addressed; `unique_indices=True` promises that indices that are traced
        differ.
        """
        array, index, mode = self._array, self._index, options.get("mode")
        if not options.pop("wrap_negative_indices", True):
            index = without_negatives("x[...]", index, mode)

        def applied(x: Any) -> Any:
            return apply_update(x, index, "set", function(getitem(x, index, mode)), **options)

        result = applied(array)
        if options.get("unique_indices") or plan_index(shape_of(array), index, mode).is_basic():
            return result
        times = apply_update(np.zeros(shape_of(array), np.int32), index, "add", 1, mode=mode)
        most = math.prod(shape_of(getitem(array, index, mode)))
        if is_concrete(times):
            most = int(np.max(times, initial=0))
        elif most > 3:
            return _apply_repeatedly(applied, function, times, result)
        for done in range(1, most):
            result = where(gt(times, done), applied(result), result)
        return result

    def _combined(self, combine: str, values: Any, **options: Any) -> Any:
        return apply_update(self._array, self._index, combine, values, **options)

    def __repr__(self) -> str:
        return f"<an index of {aval_of(self._array)}>"


def _apply_repeatedly(applied: Callable[[Any], Any], function: Callable[[Any], Any], times: Any, result: Any) -> Any:
    """Apply `function` as many times as each element is addressed; `applied` has one application already."""
    def step(done: Any, current: Any) -> list[Any]:
        return [add(done, 1), where(gt(times, done), applied(current), current)]

    traced = trace_flat(step, [Aval((), np.dtype("int32")), aval_of(result).strong()], "x.at[...].apply", function)
    captured = traced.captured
    return bind(for_p, subtract(reduce_max(times, range(len(shape_of(times)))), 1), *captured, np.int32(1), result,
                program=traced.program, num_consts=len(captured))[1]


def at(x: Any) -> Updates:
    """Return the updates of an array of any kind; traced arrays have them as `x.at` too.

    >>> at([1.0, 2.0])[0].set(5.0)
    array([5., 2.])
    """
    return Updates(as_array_operand(x))


# --- carrying them out --------------------------------------------------------------------------------------------


def apply_update(x: Any, index: Any, combine: str, values: Any, *, mode: str | None = None,
                 unique_indices: bool = False, indices_are_sorted: bool = False,
                 wrap_negative_indices: bool = True) -> Any:
    """Return `x` with `values` combined into `x[index]`; see `Place` for the arguments."""
    x = as_array_operand(x)
    if not wrap_negative_indices:
        index = without_negatives("x[...]", index, mode)
    entries = index if isinstance(index, tuple) else (index,)
    if sum(map(is_unknown_mask, entries)) == 1 and all(map(_is_beside_mask, entries)):
        return _update_where(x, entries, combine, _as_values(operand(values), aval_of(x)), mode)
    plan = plan_index(shape_of(x), index, mode)
    values = _as_values(operand(values), aval_of(x))
    if plan.is_basic():
        return _update_basic(x, plan, combine, values)
    # The slice is taken out, updated at the index arrays, and put back.
    inner = apply_basic(x, plan)
    windows, window, indices, how = gather_form(shape_of(inner), plan, mode)
    values = _broadcast_to_place(values, windows.result_shape(window, shape_of(indices)[:-1]))
    are_places = _are_places(indices, shape_of(inner), windows, how)
    promises = _promises(indices if are_places else None, unique_indices, indices_are_sorted)
    updated = scatter(inner, indices, values, windows, combine=combine, mode=how, promises=promises)
    return updated if inner is x else _update_basic(x, plan, "set", updated)


_COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda x, value: value, "add": add.function, "sub": subtract.function, "mul": multiply.function,
    "min": minimum.function, "max": maximum.function}


def is_unknown_mask(entry: Any) -> bool:
    """Return whether an entry of an index is a mask of unknown value: how many elements it selects is not known."""
    return (type(entry) is Tracer and bool(entry.shape) and entry.dtype == np.bool_
            and entry.tape.concrete_value(entry) is None)


def _is_beside_mask(entry: Any) -> bool:
    """Return whether an entry of an index with such a mask is the mask, a slice, `...` or one integer."""
    if isinstance(entry, slice) or entry is Ellipsis or is_unknown_mask(entry):
        return True
    return entry is not None and not isinstance(entry, bool | np.bool_) and not shape_of(operand(entry)) and (
        dtypes.kind_of(aval_of(operand(entry)).dtype) in "iu")


def _update_where(x: Any, entries: tuple[Any, ...], combine: str, values: Any, mode: str | None) -> Any:
    """Return `x` with values combined where a mask of unknown value is true, each of which goes to all its places.

    The part that the other entries select is combined as a whole, and the mask chooses among its elements.
    """
    at = next(number for number, entry in enumerate(entries) if is_unknown_mask(entry))
    mask = entries[at]
    around = tuple(expand_index(shape_of(x), (*entries[:at], *[slice(None)] * mask.ndim, *entries[at + 1:])))
    is_behind = any(entry is Ellipsis for entry in entries[:at])
    first = len(around) - (len(entries) - at - 1) - mask.ndim if is_behind else at  # of the axes of the mask
    part = x if all(isinstance(entry, slice) and entry == slice(None) for entry in around) else getitem(x, around, mode)
    kept = [number for number, entry in enumerate(around) if isinstance(entry, slice)]
    axis = kept.index(first)
    shape = shape_of(part)
    if shape[axis:axis + mask.ndim] != mask.shape:
        raise IndexingError(at_user_line(f"x.at[mask]: a mask of shape {mask.shape} for an array of shape "
                                         f"{shape_of(x)}"))
    # In NumPy's result the elements that the mask selects are one axis, the first if a slice parts it from an integer.
    arrays = [number for number, entry in enumerate(around)
              if not isinstance(entry, slice) or first <= number < first + mask.ndim]
    place = axis if arrays == [*range(arrays[0], arrays[-1] + 1)] else 0
    rest = (*shape[:axis], *shape[axis + mask.ndim:])
    values = _beside(values, place, rest, mask)
    values = reshape(values, (*shape_of(values)[:axis], *[1] * mask.ndim, *shape_of(values)[axis:]))
    mask = reshape(mask, (*[1] * axis, *mask.shape, *[1] * (len(rest) - axis)))
    # Elements that stay must not make NaNs in derivatives: 0 times inf.
    old = where(mask, part, np.ones((), aval_of(part).dtype)) if combine == "mul" else part
    changed = where(mask, _COMBINED[combine](old, values), part)
    return changed if part is x else apply_update(x, around, "set", changed, mode=mode)


def _beside(values: Any, place: int, rest: Shape, mask: Any) -> Any:
    """Return values with one size for each axis beside those of the mask; raise if they differ along the latter."""
    shape = shape_of(values)
    surplus = len(shape) - len(rest) - 1
    if surplus > 0 and set(shape[:surplus]) == {1}:
        shape, surplus = shape[surplus:], 0
    whole = (*[1] * -surplus, *shape)
    beside = (*whole[:place], *whole[place + 1:])
    if surplus > 0 or whole[place] != 1 or any(
            size not in (1, other) for size, other in zip(beside, rest, strict=True)):
        raise ShapeError(at_user_line(
            f"x.at[mask]: values of shape {shape_of(values)} for a mask of shape {mask.shape} that is traced, so that "
            f"how many elements it selects is not known. Values for all of them must broadcast to {rest}; to choose "
            "among arrays of the shape of x, write fxgrad.numpy.where(mask, values, x)"))
    return reshape(values, beside)


def _as_values(values: Any, aval: Any) -> Any:
    """Return the values in the dtype of the updated array."""
    dtype, weak = common_type([aval, aval_of(values)])
    if dtype == aval.dtype:
        return cast_operand(values, dtype, weak and aval.weak)
    if is_concrete(values):
        values = np.asarray(values)
    return convert(values, aval.dtype)


def _broadcast_to_place(values: Any, shape: Shape) -> Any:
    """Return the values broadcast to the shape of the updated part; surplus leading axes of size 1 are dropped."""
    given = shape_of(values)
    surplus = len(given) - len(shape)
    if surplus > 0 and set(given[:surplus]) == {1}:
        values, given = reshape(values, given[surplus:]), given[surplus:]
    try:
        fits = broadcast_shapes("x.at[...]", given, shape) == shape
    except ShapeError:
        fits = False
    if not fits:
        raise ShapeError(at_user_line(f"x.at[...]: values of shape {given} for a place of shape {shape}; they must "
                                      "broadcast to it"))
    return broadcast_to(values, shape)


def _are_places(indices: Any, shape: Shape, windows: Windows, how: str) -> bool:
    """Return False if known indices are out of range, so that one would be clipped to the place of another."""
    limits = [shape[axis] for axis in windows.start_index_map]
    if not is_concrete(indices) or (how != "clip" and not has_symbolic_dim(*limits)):
        return True
    if has_symbolic_dim(*limits):  # the position of negative ones is unknown
        return how != "clip" and bool(np.all(indices >= 0))
    return bool(np.all((indices >= 0) & (indices < np.array(limits))))


def _promises(indices: Any, unique: bool, in_order: bool) -> tuple[str, ...]:
    """Return promises about indices, also found by testing them if that is cheap; `indices` may be None."""
    if indices is None:
        return tuple(name for name, made in (("sorted", in_order), ("unique", unique)) if made)
    shape = shape_of(indices)
    if not unique and is_concrete(indices) and (rows := math.prod(shape[:-1])) <= 10_000:
        unique = rows < 2 or len(np.unique(np.reshape(indices, (rows, -1)), axis=0)) == rows
    return tuple(name for name, made in (("sorted", in_order), ("unique", unique)) if made)


def _update_basic(x: Any, plan: IndexPlan, combine: str, values: Any) -> Any:
    """Slices with stride 1 are one window; all others are addressed element by element along the axes concerned."""
    shape = shape_of(x)
    values = _broadcast_to_place(values, basic_shape(plan))
    sizes = [-(-(limit - start) // stride) for start, limit, stride in
             zip(plan.starts, plan.limits, plan.strides, strict=True)]
    kept = tuple(size for axis, size in enumerate(sizes) if axis not in plan.dropped)
    values = reshape(values, kept)
    if 0 in sizes:
        return new_array(x, x)
    if plan.reversed_axes:
        backward = [sum(other not in plan.dropped for other in range(axis)) for axis in plan.reversed_axes]
        values = rev(values, backward)
    if set(plan.strides) <= {1}:
        window = tuple(axis for axis in range(len(shape)) if axis not in plan.dropped)
        windows = Windows(tuple(range(len(window))), tuple(plan.dropped), tuple(range(len(shape))))
        return scatter(x, np.array(plan.starts, np.int32), values, windows, combine=combine,
                       mode="promise_in_bounds", promises=("unique",))
    return _update_strided(x, plan, combine, values, sizes)


def _update_strided(x: Any, plan: IndexPlan, combine: str, values: Any, sizes: list[int]) -> Any:
    axes = [axis for axis, size in enumerate(sizes)
            if (size, plan.starts[axis]) != (shape_of(x)[axis], 0) or axis in plan.dropped]
    grids = np.meshgrid(*(plan.starts[axis] + plan.strides[axis] * np.arange(sizes[axis], dtype=np.int32)
                          for axis in axes), indexing="ij")
    indices = np.stack(grids, -1).astype(np.int32)
    batch = [axis for axis in axes if axis not in plan.dropped]
    indices = indices.reshape(*(sizes[axis] for axis in batch), len(axes))
    rank = len(sizes) - len(plan.dropped)
    place = {axis: at for at, axis in enumerate(axis for axis in range(len(sizes)) if axis not in plan.dropped)}
    offset = tuple(at for at in range(rank) if at not in {place[axis] for axis in batch})
    windows = Windows(offset, tuple(axes), tuple(axes))
    return scatter(x, indices, values, windows, combine=combine, mode="promise_in_bounds", promises=("unique",))
