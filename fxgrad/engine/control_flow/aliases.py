"""Who else has an object: references to it, without those of this library, and the arrays that a traced one may be."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import ContextVar
from types import CellType
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np

from fxgrad.engine.control_flow.blocks import Change, ChangeLog, block, probe_logs, refuse
from fxgrad.engine.tracing.tape import current
from fxgrad.engine.tracing.tracer import Tracer

# --- references -------------------------------------------------------------------------------------------------------


def references(holders: list[Any], place: int = 0) -> int:
    """Return how many references there are to an object that a list has."""
    return sys.getrefcount(holders[place])


ALONE = references([object()])
"""How many there are if nothing else refers to it."""


class _Assigned:
    """Counts the references to a value assigned to an item: in `__setitem__`, and in a function called there."""

    def __setitem__(self, _: Any, value: Any) -> None:
        self.here, self.passed_on = sys.getrefcount(value), self._count(value)

    def _count(self, value: Any) -> int:
        return sys.getrefcount(value)


_assigned = _Assigned()
_assigned[0] = object()
ASSIGNED, ASSIGNED_AND_PASSED = _assigned.here, _assigned.passed_on
"""How many there are to a value without a name, in `x[i] = value`."""


def count_others(holders: list[Any]) -> int:
    """Return how many references there are to the object in a list, without the list and the notes of this library."""
    value = holders[0]
    noted, tape = count_marks(value) + count_copies(value) + count_arguments(value), current.get()
    while tape is not None:
        noted += tape.count_references(value)
        tape = tape.parent
    return references(holders) - ALONE - noted - 1  # `value` is one


current_marks: ContextVar[WeakSet[Any] | None] = ContextVar("marks_of_call", default=None)
"""Objects with the `values` of variables at an earlier place, and the `changes` of lists since."""


def note_mark(mark: Any) -> None:
    """Note an object whose `values` and `changes` do not count as names for lists."""
    marks = current_marks.get()
    if marks is not None:
        marks.add(mark)


def count_marks(value: Any) -> int:
    """Return how many references the notes of earlier places are to a value."""
    key, noted = id(value), 0
    for mark in current_marks.get() or ():
        noted += sum(id(each) == key for each in mark.values.values()) + (key in mark.changes)
        noted += _count_in(value, mark.changes)
    return noted


def count_copies(value: Any) -> int:
    """Return how many references to a value the copies of containers are that change in the blocks around."""
    around, noted = block.get(), 0
    while around is not None:
        noted += _count_in(value, around.changed)
        around = around.parent
    return noted


def _count_in(value: Any, changes: ChangeLog) -> int:
    """Return how often copies from before the changes hold a value."""
    return sum(each is value for change in changes.values() if type(change.before) in (list, dict)
               for each in (change.before.values() if type(change.before) is dict else change.before))


class Lends(Protocol):
    """The call of a function that changes arrays of its caller: `borrowers` are the variables that take them.

    Those `outside` do not, since a block around, such as an expression, would not give them back.
    """

    borrowers: list[CellType]
    outside: list[CellType]

    def count_references(self, value: Any) -> int:
        """Return how many references to a value the arguments of the call are, and notes of it."""


loans: ContextVar[tuple[Lends, ...]] = ContextVar("loans", default=())


def count_arguments(value: Any) -> int:
    """Return how many references to a value the calls around have that change arrays of their caller."""
    return sum(loan.count_references(value) for loan in loans.get())


# --- arrays that a traced one may be ----------------------------------------------------------------------------------


shared_arrays: ContextVar[WeakSet[Any] | None] = ContextVar("shared_arrays", default=None)
"""All that exist: a change of one of their `sources` would not reach the traced array."""


class Shared:
    """What a traced array may be, or may be a view of: `sources`; of arrays that came out of a traced block, any."""

    def __init__(self, sources: Sequence[Any]) -> None:
        self.sources = [*sources]
        known = shared_arrays.get()
        if known is not None:
            known.add(self)


def may_be(value: Any, sources: Sequence[Any]) -> Any:
    """Return a value; if it is an array, it is marked as one that may be, or be a view of, one of `sources`."""
    if type(value) is Tracer and value.shape:
        value.viewed = Shared(sources)
    return value


def note_array_change(array: Any, name: str) -> None:
    """Note an array of NumPy's that is about to change, for turns that may be undone.

    Raises if an array that came out of a traced block may be the same one.
    """
    owner = _owner(array)
    if any(_owner(source) is owner for each in shared_arrays.get() or () for source in each.sources):
        raise refuse(f"`{name}` changes in place, and a traced array may be the same or a view of it: one that a "
                     f"traced condition chose, or a row at a traced index. Write {name} = {name}.copy() before")
    for log in probe_logs.get():
        if id(array) not in log:
            log[id(array)] = Change(array, array.copy(), "")


def _owner(array: Any) -> Any:
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array
