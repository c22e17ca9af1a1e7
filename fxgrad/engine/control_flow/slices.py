"""Slices with traced bounds, in converted code: which elements they select, and arrays of unknown length.

The length of `x[a:b]` is not known, so it is read as a `TracedSlice`: an array of the greatest length, of which a
traced number of leading rows counts. Operations, reductions and assignments to other slices are those of NumPy on these
rows.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes
from fxgrad.engine.api.checking import check
from fxgrad.engine.control_flow.aliases import ASSIGNED_AND_PASSED, Shared
from fxgrad.engine.control_flow.blocks import is_unknown, refuse
from fxgrad.engine.control_flow.items import (
    entries_of,
    from_front,
    has_unknown_bound,
    number_name,
    refuse_bound,
    select,
)
from fxgrad.engine.control_flow.structures import UnknownLength, as_elements
from fxgrad.engine.frontend.operands import shape_of
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import IndexingError
from fxgrad.numpy.updates import is_unknown_mask

# --- which elements a slice selects -----------------------------------------------------------------------------------


def item(container: Any, index: Any) -> Any:
    """Return `container[index]`, which may be traced; a slice with traced bounds, or a mask, gives a `TracedSlice`."""
    if isinstance(container, UnknownLength):
        return container[index]
    if (name := number_name(container)) and index is not Ellipsis and not (type(index) is tuple and not index):
        raise TypeError(at_user_line(f"{name!r} object is not subscriptable"))
    if isinstance(container, np.ndarray) or type(container) is Tracer:
        if type(index) is OpenMesh:
            rows, columns = index.of_matrix(container)
            return _part_of_matrix(item(container, rows), columns)
        if are_places(index):
            return _rows_at(container, index)
        part, mask = _split_mask(index)
        if mask is not None:
            return chosen_rows(container if part is None else select(container, part), mask)
        if type(index) is tuple and len(shape_of(container)) == 1 and has_unknown_bound(index) and (
                sum(each is not None for each in index) == 1):
            part = item(container, next(each for each in index if each is not None))
            return part[tuple(None if each is None else slice(None) for each in index)]
        if _is_of_matrix(container, index):
            return _part_of_matrix(item(container, index[0]), index[1])
        if is_condition(index):  # of a number, as if it had an axis
            array, mask = (fnp.reshape(each, (1, *each.shape)) for each in (container, index))
            return chosen_rows(array, mask, _mask_key(index))
    refuse_chosen_places(index)
    if type(index) not in (slice, tuple) or not has_unknown_bound(index):
        return select(container, index)
    if isinstance(container, np.ndarray) or (type(container) is Tracer and container.shape):
        return _read(container, index)
    raise refuse_bound(container)


def _is_of_matrix(array: Any, index: Any) -> bool:
    """Return whether an index chooses columns of a matrix, whose number is not known, and rows."""
    if type(index) is not tuple or not len(index) == len(shape_of(array)) == 2:
        return False
    if isinstance(index[1], slice):
        return has_unknown_bound(index[1]) and (isinstance(index[0], slice) or _is_mask(index[0]))
    return isinstance(index[0], slice) and _is_mask(index[1])  # two masks choose pairs


class OpenMesh:
    """The masks of rows and of columns of `np.ix_`, one of which is traced. Those of a tuple would choose pairs."""

    def __init__(self, rows: Any, columns: Any) -> None:
        self._masks = rows, columns

    def of_matrix(self, array: Any) -> tuple[Any, Any]:
        """Return the masks, for the array that they are an index of."""
        if len(shape_of(array)) != 2:
            raise unsupported("np.ix_ of an array that is no matrix")
        return self._masks


def _part_of_matrix(rows: Any, part: Any) -> Any:
    """Return the columns of a matrix, or of a slice of its rows, that a slice with traced bounds or a mask selects."""
    is_span = type(rows) is TracedSlice
    array = rows.values if is_span else rows
    columns = item(array.T, part)
    if type(columns) is not TracedSlice:
        return rows.with_rows(columns.T)
    return FUNCTIONS["matrix"](columns.values.T, (rows.length, rows.key) if is_span else None,
                               (columns.length, columns.key), [array] * isinstance(part, slice))


def refuse_chosen_places(index: Any) -> None:
    """Raise if an index has as many entries as a traced mask has true elements, as in `x[np.nonzero(mask)]`."""
    if has_traced_slice([index]):
        raise refuse("an index is an array whose length is traced, as of np.nonzero(mask). Write x[mask], or go over "
                     "the places in a loop, for i in np.nonzero(mask)[0]")


def are_places(index: Any) -> bool:
    """Return whether an index has arrays of places of one traced length, as `np.nonzero(mask)` gives, and numbers."""
    entries = entries_of(index)
    places = [each for each in entries if type(each) is TracedSlice]
    return bool(places) and all(
        each.ndim == 1 and each.key == places[0].key and dtypes.kind_of(each.dtype) in "iu" for each in places) and all(
        type(each) is TracedSlice or not (isinstance(each, slice) or each is None or each is Ellipsis or np.shape(each))
        for each in entries)


def _rows_at(array: Any, index: Any) -> TracedSlice:
    """Return the elements of an array at places of a traced length."""
    entries = entries_of(index)
    places = next(each for each in entries if type(each) is TracedSlice)
    rows = select(array, tuple(each.filled(0) if type(each) is TracedSlice else each for each in entries))
    return TracedSlice(rows, places.length, places.key)


def places_and_values(array: Any, index: Any, value: Any) -> tuple[Any, Any]:
    """Return an index and a value to store at places of a traced length; places out of range stand for no place.

    A check of the program compares the lengths.
    """
    shape = shape_of(array)
    entries = entries_of(index)
    places = next(each for each in entries if type(each) is TracedSlice)
    size = places.values.shape[0]
    if type(value) is TracedSlice:
        value = value.values[:size] if value.key == places.key else value.broadcast(places.length, size)
        size = min(size, value.shape[0])
    elif len(np.shape(value)) > len(shape) - len(entries) and np.shape(value)[0] != 1:
        check_lengths(places.length, np.shape(value)[0])
        value = as_elements(value)[np.minimum(np.arange(size), np.shape(value)[0] - 1)]
    return tuple(each.astype("int64").filled(shape[axis])[:size] if type(each) is TracedSlice else each
                 for axis, each in enumerate(entries)), value


def _is_mask(index: Any) -> bool:
    return is_unknown_mask(index) and is_unknown(index)  # which notes the question


def has_mask(index: Any) -> bool:
    """Return whether an index is a traced mask, or has one among its entries."""
    return any(map(_is_mask, index)) if type(index) is tuple else _is_mask(index)


def _split_mask(index: Any) -> tuple[Any, Any]:
    """Return `part` and `mask`, such that `x[part][mask]` is `x[index]`; no part for all of `x`, else (None, None).

    The mask stands before the slices: the axis of the elements that it selects is the first of the result.
    """
    if type(index) is not tuple:
        return None, (index if _is_mask(index) else None)
    if not has_mask(index) or has_unknown_bound(index) or has_traced_slice(index):
        return None, None
    has_axes = [isinstance(each, slice) or each is None or each is Ellipsis or bool(np.shape(each)) for each in index]
    at = has_axes.index(True)
    if not _is_mask(index[at]) or any(
            each is not Ellipsis and each is not None and np.shape(each) for each in index[at + 1:]):
        return None, None
    mask = index[at]
    return (*index[:at], *[slice(None)] * mask.ndim, *index[at + 1:]), mask


def _check_mask(mask: Any, shape: Sequence[int]) -> None:
    if mask.shape != shape[:mask.ndim]:
        raise refuse(f"a mask of shape {mask.shape} selects from an array of shape {shape}")


def chosen_rows(array: Any, mask: Any, key: Any = None) -> TracedSlice:
    """Return `array[mask]` for a traced mask: the elements, or rows, where it is true, and their number."""
    shape = shape_of(array)
    _check_mask(mask, shape)
    places = fnp.argsort(fnp.logical_not(fnp.ravel(mask)), stable=True)
    rows = fnp.reshape(fnp.asarray(array), (mask.size, *shape[mask.ndim:]))
    return TracedSlice(rows[places], convert(fnp.sum(mask), np.dtype("int64"), weak=True), key or _mask_key(mask))


def is_condition(index: Any) -> bool:
    """Return whether an index is a traced bool, which selects all or nothing along a new axis."""
    return type(index) is Tracer and not index.shape and index.dtype == np.bool_ and is_unknown(index)


def _mask_key(mask: Any) -> Any:
    return "mask", mask.variable


def mask_of(array: Any, index: Any) -> Any:
    """Return which elements an index selects if their number is unknown: by a mask, or a slice; None otherwise."""
    shape = shape_of(array)
    if are_places(index):
        return None
    refuse_chosen_places(index)
    if _is_mask(index):
        _check_mask(index, shape)
        return fnp.reshape(index, (*index.shape, *[1] * (len(shape) - index.ndim)))
    if type(index) is OpenMesh:
        rows, columns = index.of_matrix(array)
        return fnp.logical_and(rows[:, None], columns)
    if has_mask(index):
        return fnp.at(np.zeros(shape, bool))[index].set(True)
    if not has_unknown_bound(index):
        return None
    mask = None
    for axis, entry in enumerate(_entries(index, shape)):
        if isinstance(entry, slice) and entry.start is entry.stop is entry.step is None:
            continue
        places = np.reshape(np.arange(shape[axis]), (shape[axis], *[1] * (len(shape) - axis - 1)))
        part = in_slice(places, entry, shape[axis]) if isinstance(entry, slice) else fnp.equal(
            places, from_front(entry, shape[axis]))
        mask = part if mask is None else mask & part
    return mask


def aligned(array: Any, index: Any, value: Any) -> Any:
    """Return a value to assign to `array[index]`, with each element at the place in the array that it goes to.

    The result broadcasts to the shape of the array. A check of the program compares the lengths.
    """
    if not isinstance(value, UnknownLength) and not np.shape(value):
        return value
    shape = shape_of(array)
    part, mask = _split_mask(index)
    if type(value) is TracedSlice and mask is not None:
        place = fnp.clip(fnp.cumsum(fnp.ravel(mask)) - 1, 0, max(value.values.shape[0] - 1, 0))
        if value.key != _mask_key(mask):
            place = _places_of_length(place, fnp.sum(mask), value.length)
        rows = fnp.reshape(value.values[place], (*mask.shape, *value.values.shape[1:]))
        return rows if part is None else fnp.at(np.zeros(shape, value.dtype))[part].set(rows)
    is_unknown_length = isinstance(value, UnknownLength)
    if has_mask(index) and not is_unknown_length:
        # The elements that stay must not make NaNs.
        return fnp.at(np.ones(shape, fnp.asarray(value).dtype))[index].set(value)
    entries = ([*index.of_matrix(array)] if type(index) is OpenMesh else
               _entries_with_mask(index, shape) if has_mask(index) else _entries(index, shape))
    sliced = [axis for axis, entry in enumerate(entries) if isinstance(entry, slice) or np.ndim(entry)]
    values = value.values if is_unknown_length else as_elements(value)
    spans: Any = ([(value.length, value.key)] if type(value) is TracedSlice else
                  value.extents if is_unknown_length else [])
    while values.ndim > len(sliced) and values.shape[0] == 1 and not is_unknown_length:
        values = values[0]  # NumPy leaves out leading axes
    if values.ndim > len(sliced):
        raise refuse(f"x[...] = v: v has {values.ndim} axes, and the slice has {len(sliced)}")
    offset = len(sliced) - values.ndim
    for number, axis in enumerate(sliced[offset:]):
        span: Any = spans[number] if number < len(spans) else None
        is_span = span is not None
        size = span[0] if is_span else values.shape[number]
        if not is_span and size == 1:
            continue
        place, length, key = _places_along(entries[axis], shape[axis])
        if is_span and span[1] != key and is_unknown(size):  # one row is stored in all
            place = _places_of_length(place, length, size)
        elif not is_span:
            check_lengths(length, size)
        values = fnp.take(values, fnp.clip(place, 0, values.shape[number] - 1), axis=number)
    kept = iter(values.shape)
    whole = [next(kept) if axis in sliced[offset:] else 1 for axis in range(len(shape))]
    return fnp.reshape(values, whole)


def _places_of_length(places: Any, length: Any, size: Any) -> Any:
    """Return places in a slice of `size` rows for one of `length`: one row is stored in all; else both must agree."""
    check(fnp.equal(length, size) | fnp.equal(size, 1), "the slices and arrays must have one length, got {} and {}",
          length, size)
    return fnp.where(fnp.equal(size, 1), 0, places)


def _places_along(entry: Any, size: int) -> tuple[Any, Any, Any]:
    """Return for each place in an axis its number in what a slice or a mask selects, how many there are, and a key."""
    if not isinstance(entry, slice):
        return fnp.cumsum(entry) - 1, fnp.sum(entry), _mask_key(entry) if is_unknown(entry) else None
    start, length, step = _bounds(entry, size)
    return (np.arange(size) - start) // step, length, _key(entry, size)


def _entries_with_mask(index: Any, shape: Sequence[int]) -> list[Any]:
    """Return an index with slices and the mask of one axis as one entry for each axis."""
    masks = [each for each in index if not isinstance(each, slice)]
    if len(masks) > 1 or np.ndim(masks[0]) != 1:
        raise unsupported("x[...] = v with these masks")
    return [*index, *[slice(None)] * (len(shape) - len(index))]


def _entries(index: Any, shape: Sequence[int]) -> list[Any]:
    """Return an index with slices as one entry for each axis: numbers and slices."""
    entries = [*entries_of(index)]
    if any(each is Ellipsis for each in entries):
        place = next(number for number, each in enumerate(entries) if each is Ellipsis)
        entries[place:place + 1] = [slice(None)] * (len(shape) - len(entries) + 1)
    if len(entries) > len(shape) or not all(isinstance(each, slice) or (
            each is not None and not np.shape(each) and dtypes.kind_of(fnp.asarray(each).dtype) in "iu")
            for each in entries):
        raise refuse("a bound of this slice is traced, and beside it may stand numbers and slices. Write a loop")
    return [*entries, *[slice(None)] * (len(shape) - len(entries))]


def _clipped(part: slice, size: Any) -> tuple[Any, Any, Any]:
    """Return the start, the stop and the step of a slice of an axis, as `slice.indices` does."""
    step = 1 if part.step is None else part.step
    rises = fnp.greater(step, 0)
    least, most = fnp.where(rises, 0, -1), fnp.where(rises, size, size - 1)

    def place_of(bound: Any, default: Any) -> Any:
        return default if bound is None else fnp.clip(from_front(bound, size), least, most)

    start, stop = place_of(part.start, fnp.where(rises, 0, size - 1)), place_of(part.stop, fnp.where(rises, size, -1))
    return start, stop, step


def in_slice(places: Any, part: slice, size: Any) -> Any:
    """Return which places in an axis a slice selects, whose bounds may be traced."""
    start, stop, step = _clipped(part, size)
    rises = fnp.greater(step, 0)
    inside = fnp.where(rises, (places >= start) & (places < stop), (places <= start) & (places > stop))
    return inside & ((places - start) % fnp.maximum(fnp.abs(step), 1) == 0)


def _bounds(part: slice, size: Any) -> tuple[Any, Any, Any]:
    """Return the start, the length and the step of a slice of an axis, whose size may be traced too."""
    if not any(map(is_unknown, (part.start, part.stop, part.step, size))):
        start, stop, step = part.indices(size)
        return start, len(range(start, stop, step)), step
    start, stop, step = _clipped(part, size)
    if not is_unknown(step):
        span = stop - start if step > 0 else start - stop
        return start, fnp.maximum(span + (abs(step) - 1), 0) // abs(step), step
    span = fnp.where(step > 0, stop - start, start - stop)
    return start, fnp.maximum(span + (fnp.abs(step) - 1), 0) // fnp.maximum(fnp.abs(step), 1), step


def _key(part: slice, size: Any) -> tuple[Any, ...]:
    """Return what is equal for slices of one length: the bounds, as far as they are one value, and the size."""
    return tuple(each.variable if type(each) is Tracer else each for each in (part.start, part.stop, part.step, size))


def check_lengths(one: Any, other: Any) -> None:
    """Check in the program that two lengths are equal; raise if they are known and differ."""
    if is_unknown(one) or is_unknown(other):
        check(fnp.equal(one, other), "the slices and arrays must have one length, got {} and {}", one, other)
    elif int(one) != int(other):
        raise refuse(f"the slices and arrays must have one length, got {int(one)} and {int(other)}")


# --- arrays of unknown length -----------------------------------------------------------------------------------------


def _read(array: Any, index: Any) -> TracedSlice:
    shape = shape_of(array)
    entries = _entries(index, shape)
    unknown = [axis for axis, entry in enumerate(entries) if has_unknown_bound(entry)]
    if len(unknown) > 1 or any(isinstance(entry, slice) for entry in entries[:unknown[0]]):
        raise refuse("a slice with a traced bound is read along the first axis of the result, and this one is not. "
                     "Write x.T[a:b], or go over the items in a loop with an `if`")
    axis = unknown[0]
    start, length, step = _bounds(entries[axis], shape[axis])
    whole = select(array, (*entries[:axis], slice(None), *entries[axis + 1:]))
    if type(whole) is Tracer:  # a recording that captures it would refer to the array that it is a view of
        whole = Tracer(whole.tape, whole.variable)
    part = entries[axis]
    if part.start is None and part.step is None:
        values = whole
    else:
        values = select(whole, fnp.clip(start + step * np.arange(shape[axis]), 0, max(shape[axis] - 1, 0)))
    return TracedSlice(values, convert(length, np.dtype("int64"), weak=True), _key(part, shape[axis]), [array])


def least(dtype: Any) -> Any:
    """Return the least number of a dtype."""
    kind = dtypes.kind_of(dtype)
    return False if kind == "b" else -np.inf if kind == "f" else np.iinfo(dtype).min


def greatest(dtype: Any) -> Any:
    """Return the greatest number of a dtype."""
    kind = dtypes.kind_of(dtype)
    return True if kind == "b" else np.inf if kind == "f" else np.iinfo(dtype).max


def _reduced(function: Any, neutral: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the method that reduces elements by a function, to which a neutral number makes no difference."""
    def method(self: Any, axis: Any = None, keepdims: bool = False, **options: Any) -> Any:
        if options:
            raise unsupported(f"{function.__name__} with {', '.join(sorted(options))}=")
        return self._reduce(function, neutral, axis, keepdims)
    return method


class Selection(UnknownLength):
    """What slices and matrices of unknown length have in common: NumPy's methods of arrays."""

    __slots__ = ()
    __array_priority__ = 2000
    __hash__ = None  # type: ignore[assignment]

    def with_rows(self, values: Any) -> Any:
        """Return one of other elements that is as long."""
        raise NotImplementedError

    def filled(self, fill: Any) -> Any:
        """Return the elements, with a number in the place of those that do not count."""
        raise NotImplementedError

    def ravel(self) -> TracedSlice:
        """Return all elements, along one axis."""
        raise NotImplementedError

    def _reduce(self, function: Any, neutral: Callable[[Any], Any], axis: Any, keepdims: bool = False) -> Any:
        """Reduce elements along axes, by default all; those that do not count are the dtype's neutral number."""
        raise NotImplementedError

    def _count(self, axis: Any) -> Any:
        """Return how many elements a reduction is over."""
        raise NotImplementedError

    def axes(self, axis: Any) -> tuple[int, ...]:
        """Return the axes that a reduction is over."""
        return tuple(range(self.ndim)) if axis is None else np.lib.array_utils.normalize_axis_tuple(axis, self.ndim)

    def check_ordered(self, name: str) -> None:
        """Raise for complex numbers, which have no order here."""
        if dtypes.is_complex(self.dtype):
            raise unsupported(f"{name} of complex numbers")

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""
        return self.values.dtype

    def __bool__(self) -> bool:
        raise refuse_bound()

    def __setitem__(self, *_: object) -> None:
        raise refuse("a slice with a traced bound changes in place. Write x[a:b] = v or x[i] = v on the array; give "
                     "functions the array and the bounds")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
        return call_ufunc(ufunc, method, *args, **kwargs)

    def __array_function__(self, function: Any, _: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return call(function, *args, **kwargs)

    sum = _reduced(np.sum, lambda _: 0)
    prod = _reduced(np.prod, lambda _: 1)
    any = _reduced(np.any, lambda _: 0)
    all = _reduced(np.all, lambda _: 1)
    max = _reduced(np.max, least)
    min = _reduced(np.min, greatest)

    def mean(self, axis: Any = None, **options: Any) -> Any:
        """Return the mean of elements along axes, by default of all."""
        return self.sum(axis, **options) / self._count(axis)

    def var(self, axis: Any = None, ddof: Any = 0, **options: Any) -> Any:
        """Return the variance of elements along axes, by default of all."""
        apart = self - self.mean(axis, keepdims=True)
        square = np.real(apart * apart.conj()) if dtypes.is_complex(self.dtype) else apart * apart
        return square.sum(axis, **options) / fnp.maximum(self._count(axis) - ddof, 0)

    def std(self, axis: Any = None, ddof: Any = 0, **options: Any) -> Any:
        """Return the standard deviation of elements along axes, by default of all."""
        return np.sqrt(self.var(axis, ddof, **options))

    def conj(self) -> Any:
        """Return the complex conjugates."""
        return self.with_rows(np.conj(self.values))

    def dot(self, other: Any) -> Any:
        """Return the product with an array, a slice or a matrix."""
        return FUNCTIONS["matmul"](self, other)

    def copy(self) -> Any:
        """Return a copy."""
        return self.with_rows(self.values)

    def round(self, decimals: int = 0) -> Any:
        """Return the elements rounded to a number of decimals."""
        return self.with_rows(np.round(self.values, decimals))

    def clip(self, *bounds: Any) -> Any:
        """Return the elements, none below or above bounds."""
        return call(np.clip, self, *bounds)

    @property
    def real(self) -> Any:
        """The real parts."""
        return self.with_rows(np.real(self.values))

    @property
    def imag(self) -> Any:
        """The imaginary parts."""
        return self.with_rows(np.imag(self.values))

    def astype(self, dtype: Any) -> Any:
        """Return the elements in another dtype."""
        return self.with_rows(self.values.astype(dtype))

    def __matmul__(self, other: Any) -> Any:
        return FUNCTIONS["matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return FUNCTIONS["matmul"](other, self)

    def release(self) -> None:
        """Forget the array that this is a view of, since nothing reads it later."""
        self.values.viewed = None


class TracedSlice(Selection):
    """The first `length` rows of `values`, which has more; they are a view of the arrays `sources`.

    Slices with one `key` have one length.
    """

    __slots__ = ("key", "length", "values")

    def __init__(self, values: Any, length: Any, key: Any, sources: Sequence[Any] = ()) -> None:
        self.length, self.key = length, key
        self.values = self.filled(1, values)  # the other rows must not make NaNs
        self.values.viewed = Shared(sources) if sources else None

    def parts(self) -> list[Any]:
        """Return the rows and their number."""
        return [self.values, self.length]

    @classmethod
    def of_parts(cls, parts: Sequence[Any]) -> TracedSlice:
        """Return the slice with these rows and their number, which a block gives."""
        found = cls.__new__(cls)
        found.values, found.length = parts
        found.key = object()
        return found

    def with_rows(self, values: Any) -> TracedSlice:
        return TracedSlice(values, self.length, self.key)

    def filled(self, fill: Any, values: Any = None) -> Any:
        values = self.values if values is None else values
        is_row = fnp.reshape(self.is_row(values.shape[0]), (-1, *[1] * (values.ndim - 1)))
        return fnp.where(is_row, values, np.asarray(fill).astype(values.dtype))

    def is_row(self, size: int | None = None) -> Any:
        """Return for each row, or the first `size` ones, whether it counts."""
        return fnp.less(np.arange(self.values.shape[0] if size is None else size), self.length)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return int(self.values.ndim)

    @property
    def size(self) -> Any:
        """The number of elements."""
        return self.length * int(np.prod(self.values.shape[1:]))

    def __getattr__(self, name: str) -> Any:
        if name == "shape":
            raise refuse("the shape of a slice with traced bounds is traced. Write len(x) in converted code, or stop - "
                         "start")
        raise AttributeError(name) if name.startswith("__") else unsupported(name)

    def __iter__(self) -> Any:
        raise refuse_bound()

    def __len__(self) -> int:
        raise refuse("the length of a slice with traced bounds is traced, and this needs a number of Python. Write "
                     "len(x) in converted code, or stop - start")

    def __getitem__(self, index: Any) -> Any:
        first, *rest = entries_of(index)
        if isinstance(first, slice):
            rows = self if first == slice(None) else self._rows(first)
            if _is_of_matrix(self.values, (slice(None), *rest)):
                return _part_of_matrix(rows, *rest)
            return rows if not rest else TracedSlice(
                select(rows.values, (slice(None), *rest)), rows.length, rows.key, [self.values])
        if first is None and self.ndim == 1 and rest in ([], [slice(None)]):
            return FUNCTIONS["matrix"](self.values[None], None, (self.length, self.key), [self.values])
        if first is None or first is Ellipsis or has_mask(first):
            raise refuse_bound()
        if type(first) is TracedSlice and first.dtype == dtypes.bool_ and first.key == self.key and not rest:
            return chosen_rows(self.values, first.filled(False))
        is_span = type(first) is TracedSlice
        numbers = first.filled(0) if is_span else fnp.asarray(first)
        if dtypes.kind_of(numbers.dtype) not in "iu":
            raise refuse_bound()
        if not self.values.shape[0] and numbers.size:
            raise IndexingError(at_user_line(f"index {first} is out of bounds for a slice with 0 elements"))
        places = from_front(numbers, self.length)
        is_inside = fnp.greater_equal(places, 0) & fnp.less(places, self.length)
        if is_span:
            is_inside |= fnp.greater_equal(np.arange(numbers.shape[0]), first.length)
        check(is_inside, "index {} is out of bounds for a slice with {} elements", numbers, self.length)
        found = self.values[(fnp.clip(places, 0, self.values.shape[0] - 1), *rest)]
        return TracedSlice(found, first.length, first.key) if is_span else found

    def _rows(self, part: slice) -> TracedSlice:
        start, length, step = _bounds(part, self.length)
        most = self.values.shape[0] - 1
        return TracedSlice(self.values[fnp.clip(start + step * np.arange(most + 1), 0, most)], length, (
            self.key, _key(part, None)), [self.values])

    @staticmethod
    def elementwise(function: Callable[..., Any], *args: Any) -> Any:
        """Apply a function of elements to the rows that count.

        With an array of known length the result has that length: a slice has as many rows, or one.
        """
        spans: list[Any] = [each for each in args if isinstance(each, UnknownLength)]
        ndim = max(each.ndim for each in spans)
        if any(type(each) is not TracedSlice or each.ndim != ndim for each in spans):
            return FUNCTIONS["elementwise"](function, *args)
        shapes: list[tuple[int, ...]] = [() if type(each) is TracedSlice else np.shape(each) for each in args]
        if any(len(shape) > ndim for shape in shapes):
            raise unsupported("an operation with an array that has more axes")
        known = [shape[0] for shape in shapes if len(shape) == ndim and shape[0] != 1]
        if not known and all(each.key == spans[0].key for each in spans):
            size = min(each.values.shape[0] for each in spans)
            operands = [each.values[:size] if type(each) is TracedSlice else each for each in args]
            return TracedSlice(function(*operands), spans[0].length, spans[0].key)
        size = known[0] if known else max(each.values.shape[0] for each in spans)
        length: Any = known[0] if known else functools.reduce(
            lambda one, other: fnp.where(fnp.equal(one, 1), other, one), [each.length for each in spans])
        result = function(*[each.broadcast(length, size) if type(each) is TracedSlice else each for each in args])
        return result if known else TracedSlice(result, length, object())

    def broadcast(self, length: Any, size: int) -> Any:
        """Return an array of `size` rows, of which `length` count: those of the slice, or its only one again and again.

        Checks in the program that it has as many rows, or one.
        """
        check(fnp.equal(self.length, length) | fnp.equal(self.length, 1), "the slices and arrays must have one length, "
              "got {} and {}", self.length, length)
        if not self.values.shape[0]:
            return fnp.zeros((size, *self.values.shape[1:]), self.dtype)
        rows = self.values[np.minimum(np.arange(size), self.values.shape[0] - 1)]
        return fnp.where(fnp.equal(self.length, 1), self.values[:1], rows)

    def check_not_empty(self, name: str) -> None:
        """Check in the program that there are elements."""
        check(fnp.greater(self.length, 0), f"{name} of a slice without elements")

    def _reduce(self, function: Any, neutral: Callable[[Any], Any], axis: Any, keepdims: bool = False) -> Any:
        name = function.__name__
        if neutral in (least, greatest):
            self.check_ordered(name)
        axes = self.axes(axis)
        if 0 not in axes:
            return self.with_rows(function(self.values, axis=axes, keepdims=keepdims))
        if neutral in (least, greatest):
            self.check_not_empty(name)
        return function(self.filled(neutral(self.dtype)), axis=axes, keepdims=keepdims)

    def _count(self, axis: Any) -> Any:
        axes = self.axes(axis)
        return math.prod(self.values.shape[each] for each in axes if each) * (self.length if 0 in axes else 1)

    def argmax(self) -> Any:
        """Return the number of the greatest element."""
        self._check_flat("argmax")
        return fnp.argmax(self.filled(least(self.dtype)))  # of equal elements the first, which counts

    def argmin(self) -> Any:
        """Return the number of the least element."""
        self._check_flat("argmin")
        return fnp.argmin(self.filled(greatest(self.dtype)))

    def _check_flat(self, name: str) -> None:
        if self.ndim > 1:
            raise unsupported(f"{name} of more than one axis")
        self.check_ordered(name)
        self.check_not_empty(name)

    def sort(self) -> None:
        """Refuse to sort in place."""
        self[...] = None

    def sorted(self, axis: int | None = -1) -> TracedSlice:
        """Return the elements in order along an axis."""
        return self._in_order("sort", fnp.sort, axis)

    def argsort(self, axis: int | None = -1) -> TracedSlice:
        """Return the places of the elements in order along an axis."""
        return self._in_order("argsort", fnp.argsort, axis)

    def _in_order(self, name: str, function: Callable[..., Any], axis: int | None) -> TracedSlice:
        self.check_ordered(name)
        rows = self.ravel() if axis is None else self
        last = np.nan if dtypes.kind_of(self.dtype) == "f" else greatest(self.dtype)  # stays behind those that count
        return rows.with_rows(function(rows.filled(last), axis=0 if axis is None else axis, stable=True))

    @property
    def T(self) -> Any:  # noqa: N802
        """The transposed matrix."""
        if self.ndim > 2:
            raise unsupported("transpose of more than two axes")
        return self if self.ndim == 1 else FUNCTIONS["matrix"](self.values.T, None, (self.length, self.key),
                                                               [self.values])

    def ravel(self) -> TracedSlice:
        size = math.prod(self.values.shape[1:])
        return self if self.ndim == 1 else TracedSlice(fnp.ravel(self.values), self.length * size, (self.key, size))

def is_temporary(value: Any) -> bool:
    """Return whether a value that a method was called with, and its caller was called with, has no name."""
    return isinstance(value, UnknownLength) and sys.getrefcount(value) <= ASSIGNED_AND_PASSED


FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""NumPy's functions of slices and matrices by their names: those of `slice_functions.py` and `matrices.py`.

`matrix` makes a slice of columns, and `elementwise` is for operands of which some are such."""
_ELEMENTWISE = {each for each in dir(np) if isinstance(getattr(np, each), np.ufunc)} | {
    "where", "clip", "real", "imag", "nan_to_num", "abs", "sign", "round"}
_ELEMENTWISE -= {"matmul", "vecdot", "matvec", "vecmat"}
_REDUCTIONS: dict[np.ufunc, str] = {np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min",
                                    np.logical_and: "all", np.logical_or: "any"}


def named(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function in the table, by names of NumPy's."""
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS.update(dict.fromkeys(names, function))
        return function
    return enter


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the result of a function, of NumPy's or fxgrad.numpy's, for arguments among which there are slices."""
    name = function.__name__
    if name in _ELEMENTWISE and not kwargs.keys() & {"out", "where"} and not has_traced_slice([*kwargs.values()]):
        return TracedSlice.elementwise(functools.partial(function, **kwargs), *args)
    found = FUNCTIONS.get(name)
    if found is None:
        raise unsupported(name)
    if not takes(found, args, kwargs):
        raise unsupported(f"{name} with these arguments")
    return found(*args, **kwargs)


def takes(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether a function takes these arguments."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def call_ufunc(ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
    """Return the result of a method of a ufunc for arguments among which there are slices."""
    first = args[0]
    if method == "__call__":
        return call(ufunc, *args, **kwargs)
    if type(first) is TracedSlice and len(args) == 1 and not kwargs.keys() - {"axis"} and (
            kwargs.get("axis", 0) in (0, -first.ndim)):
        if method == "accumulate":
            return TracedSlice(ufunc.accumulate(first.values), first.length, first.key)
        if method == "reduce" and ufunc in _REDUCTIONS:
            return getattr(first, _REDUCTIONS[ufunc])(axis=0)
    raise unsupported(f"np.{ufunc.__name__}.{method}")


def unsupported(what: str) -> Exception:
    """Return the error of something that needs a known length."""
    return refuse(f"{what} does not take a slice with a traced bound, whose length is not known. Go over the items in "
                  "a loop with an `if`")


def set_operators(kind: Any, elementwise: Callable[..., Any]) -> None:
    """Give a class the operators on each element, which `elementwise` applies; those in place are refused."""
    def operation(name: str) -> Callable[..., Any]:
        return lambda self, *others: elementwise(getattr(operator, name), self, *others)

    def reflected(name: str) -> Callable[..., Any]:
        return lambda self, other: elementwise(getattr(operator, name), other, self)

    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
        function = f"{name}_" if name in ("and", "or") else name
        setattr(kind, f"__{name}__", operation(function))
        setattr(kind, f"__r{name}__", reflected(function))
        setattr(kind, f"__i{name}__", kind.__setitem__)
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert"):
        setattr(kind, f"__{name}__", operation(name))


set_operators(TracedSlice, TracedSlice.elementwise)


def has_traced_slice(values: Sequence[Any]) -> bool:
    """Return whether there is a slice of unknown length among values, or in a list of them."""
    return any(isinstance(each, UnknownLength) or (type(each) in (list, tuple) and any(
        isinstance(part, UnknownLength) for part in each)) for each in values)
