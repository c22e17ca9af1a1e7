"""What `for` loops of converted code go over: ranges, arrays, rows, and `zip` and its kin, with traced lengths."""

from __future__ import annotations

import builtins
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes, tree
from fxgrad.engine.control_flow.arrays import Row, RowSource
from fxgrad.engine.control_flow.blocks import Thunk, is_unknown, refuse
from fxgrad.engine.control_flow.containers import fresh
from fxgrad.engine.control_flow.growing import columns as columns_of
from fxgrad.engine.control_flow.matrices import TracedMatrix
from fxgrad.engine.control_flow.ownership import is_array
from fxgrad.engine.control_flow.slices import TracedSlice
from fxgrad.engine.control_flow.structures import is_growing, joint_type
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of, current
from fxgrad.engine.tracing.tracer import Tracer


class Sequences:
    """What a `for` loop goes over, with items that a traced number selects; there are `most` at most, if known."""

    def __init__(self, length: Any, item: Callable[[Any], Any], plain: Callable[[], Iterator[Any]],
                 most: int | None = None) -> None:
        self.length, self.item, self.plain = length, item, plain
        self.most = most if is_unknown(length) else length

    def __iter__(self) -> Iterator[Any]:
        if is_unknown(self.length):
            raise refuse("the length of this sequence is traced. Go over it in a `for` statement, or in sum(), any() "
                         "or all() of a comprehension")
        return self.plain()


def as_sequence(iterable: Any) -> Sequences | None:
    """Return what a traced number can select from; None if Python must go over it."""
    if isinstance(iterable, Sequences):
        return iterable
    if isinstance(iterable, builtins.range):
        return Sequences(len(iterable), _steps(iterable.start, iterable.step), lambda: iter(iterable))
    if is_growing(iterable):
        parts, structure = columns_of(iterable)
        return Sequences(parts[0].length, lambda number: tree.unflatten(
            structure, [part.values[number] for part in parts]), lambda: iter(iterable), len(iterable))
    if type(iterable) is TracedSlice:
        values = iterable.values
        length = iterable.length if values.shape[0] else 0
        return Sequences(length, lambda number: values[number], lambda: iter(iterable if values.shape[0] else ()),
                         values.shape[0])
    if type(iterable) is TracedMatrix:
        return Sequences(iterable.length, iterable.row, lambda: iter(iterable), iterable.values.shape[0])
    if isinstance(iterable, np.ndarray) or (type(iterable) is Tracer and iterable.shape):
        rows: Any = iterable
        array = fnp.asarray(rows)
        return Sequences(rows.shape[0], lambda number: array[number], lambda: iter(rows))
    if isinstance(iterable, list | tuple) and iterable and all(
            isinstance(each, int | float | complex | np.generic) for each in iterable):
        dtype, weak = joint_type(iterable)
        numbers = fnp.asarray(np.asarray(iterable, dtype))
        return Sequences(len(iterable), lambda number: convert(numbers[number], dtype, weak), lambda: iter(iterable))
    return None


def numbered(plain: Thunk, bounds: Thunk, reads_elements: bool, *wholes: tuple[Thunk, Thunk, bool]) -> Any:
    """Return what a loop goes over that may change the rows of an array: rows by their numbers, if there is one.

    A whole has the array, its place, and whether its columns are meant. Elements are read at the beginning of a turn,
    if `reads_elements`. Otherwise, as for bounds that are not known, it is what `plain` returns.
    """
    for array, place_of, columns in wholes if current.get() is not None else ():
        whole = array()
        if is_array(whole):
            axes, shape, limits = np.ndim(whole), np.shape(whole), bounds()
            if not (axes == 2 if columns else axes > 1 or reads_elements) or limits[2] == 0 or not all(
                    each is None or isinstance(each, int | np.integer) for each in limits):
                break
            return _rows_of(RowSource(array, place_of, columns), builtins.range(shape[columns])[slice(*limits)], axes)
    return plain()


def _rows_of(source: RowSource, numbers: builtins.range, axes: int) -> Sequences:
    """Return the rows of an array with these numbers, or its elements if it has one axis."""
    def row(number: Any) -> Any:
        return Row(source, number).value if axes == 1 else fresh(Row(source, number))

    counted = cast(Sequences, as_sequence(numbers))
    return Sequences(counted.length, lambda number: row(counted.item(number)), lambda: map(row, numbers))


def _range(*args: Any) -> Any:
    if not any(map(is_unknown, args)):
        return builtins.range(*args)
    start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
    for bound in (start, stop, step):
        if dtypes.kind_of(fnp.asarray(bound).dtype) not in "iu" or np.shape(bound):
            raise refuse(f"range() takes integer scalars, got {bound!r}. Convert it with .astype('int32')")
    if not is_unknown(step) and step == 0:
        raise ValueError("range() arg 3 must not be zero")
    return Sequences(_range_length(start, stop, step), _steps(start, step), lambda: iter(builtins.range(*args)))


def _arange(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the numbers of `np.arange`: if a bound is traced, as those of a range."""
    if kwargs or not any(map(is_unknown, args)) or not all(
            dtypes.kind_of(fnp.asarray(each).dtype) in "iu" for each in args):
        return function(*args, **kwargs)
    return _range(*args)


def _steps(start: Any, step: Any) -> Callable[[Any], Any]:
    """Return the function that gives the items of a range by their number, without operations that change nothing."""
    def item(number: Any) -> Any:
        moved = number if type(step) is int and step == 1 else number * step
        return moved if type(start) is int and start == 0 else start + moved
    return item


def _range_length(start: Any, stop: Any, step: Any) -> Any:
    """Return the length of a range with traced bounds; it may be negative, and stands for 0 then.

    A difference is one of int64, since those of narrower integers may overflow.
    """
    if not is_unknown(start) and not is_unknown(step) and (start, step) == (0, 1) and aval_of(stop).dtype.itemsize >= 4:
        return stop
    start, stop, step = (convert(each, np.dtype("int64")) if is_unknown(each) else int(each)
                         for each in (start, stop, step))
    if is_unknown(step):
        first, last, size = fnp.where(step > 0, start, stop), fnp.where(step > 0, stop, start), fnp.abs(step)
    else:
        first, last, size = (start, stop, step) if step > 0 else (stop, start, -step)
    span = fnp.where(first < last, last - first, 0)
    return span if not is_unknown(size) and size == 1 else (span + (size - 1)) // size


def _zip(*parts: Any, strict: bool = False) -> Any:
    found = [sequence for sequence in map(as_sequence, parts) if sequence is not None]
    lengths = [sequence.length for sequence in found]
    unknown = any(map(is_unknown, lengths))
    if len(found) < len(parts) or not parts or (strict and not unknown and len({*lengths}) > 1):
        if not unknown:
            return zip(*parts, strict=strict)
        raise refuse("zip() of a range with traced bounds takes arrays and ranges. Make arrays of the others")
    if strict and unknown:
        raise refuse("zip(strict=True) compares lengths, and one of a range with traced bounds is traced. Leave out "
                     "strict=True")
    length = functools.reduce(fnp.minimum, lengths) if unknown else min(lengths)
    return Sequences(length, lambda number: tuple(sequence.item(number) for sequence in found),
                     lambda: zip(*(sequence.plain() for sequence in found), strict=strict),
                     min((sequence.most for sequence in found if sequence.most is not None), default=None))


def plain_enumerate(iterable: Any, start: Any = 0) -> Any:
    """Return `enumerate(iterable, start)`, whose first number may be traced."""
    if not is_unknown(start):
        return enumerate(iterable, start)
    return ((start + number, each) for number, each in enumerate(iterable))


def _enumerate(iterable: Any, start: Any = 0) -> Any:
    found = as_sequence(iterable)
    if found is None:
        return plain_enumerate(iterable, start)
    return Sequences(found.length, lambda number: (number + start, found.item(number)),
                     lambda: zip(itertools.count(start), found.plain(), strict=False), found.most)


def _reversed(iterable: Any) -> Any:
    found = as_sequence(iterable)
    if found is None:
        return reversed(iterable)
    length = convert(found.length, np.dtype("int64")) if is_unknown(found.length) else found.length
    return Sequences(found.length, lambda number: found.item(length - 1 - number),
                     lambda: iter([*found.plain()][::-1]), found.most)


ENDLESS = 2 ** 63 - 1
"""The length of `itertools.count()`: there are no more numbers of turns."""


def _count(start: Any = 0, step: Any = 1) -> Any:
    return Sequences(ENDLESS, _steps(start, step), lambda: itertools.count(start, step))


SEQUENCES: dict[Any, Any] = {builtins.range: _range, zip: _zip, enumerate: _enumerate, reversed: _reversed,
                             itertools.count: _count,
                             **{each: functools.partial(_arange, each) for each in (np.arange, fnp.arange)}}


class _Index:
    def __getitem__(self, index: Any) -> Any:
        return index


index = _Index()
"""`index[...]` is the index that stands in the brackets, with slices."""
