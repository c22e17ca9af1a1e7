"""Calls of functions that change an array of their caller: the parameter takes the array, and gives it back after.

While the function runs, the caller's variable, item or attribute is without the array. So the parameter alone has it,
and the function's own code stores items as it does for arrays that it made.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from types import CellType, FunctionType, MethodType
from typing import Any

from fxgrad.engine.control_flow.arrays import (
    ArrayItems,
    Cells,
    Item,
    Slot,
    content_of,
    count_others,
    is_array,
    is_carried,
    is_sole,
    owns_elements,
)
from fxgrad.engine.control_flow.blocks import block, loans, refuse
from fxgrad.engine.control_flow.conversion import ConvertedFunction, converted_callee
from fxgrad.engine.control_flow.names import CHANGES
from fxgrad.engine.tracing.tracer import Tracer

Place = int | str
"""The position of an argument, or its keyword."""


# --- which parameters change ------------------------------------------------------------------------------------------


def passed(*arguments: tuple[str, bool, Callable[[], Any], Place]) -> tuple[set[str], set[str]]:
    """Return which names of a block functions change that they are passed to, and which nothing changes.

    Each argument has the name, whether the block changes it otherwise, the function and the place.
    """
    changed = set()
    for name, _, function, place in arguments:
        try:
            called = function()
        except (NameError, AttributeError):  # not set yet
            continue
        if _changes_argument(called, place, set()):
            changed.add(name)
    return changed, {name for name, otherwise, *_ in arguments if not otherwise} - changed


def _changed_parameters(function: FunctionType, args: Sequence[Any]) -> set[str]:
    """Return the parameters whose arrays a converted function changes, by itself or by functions that it calls."""
    _, stored, others = _note_of(function)
    return {*stored} | {name for name, *_ in others if _changes(function, name, args[:1], set())}


def _changes_argument(called: Any, place: Place, seen: set[tuple[Any, str]]) -> bool:
    first: list[Any] = []
    if isinstance(called, MethodType):
        called, first = called.__func__, [called.__self__]
        place = place + 1 if isinstance(place, int) else place
    if type(called) is ConvertedFunction:
        called = called.__wrapped__  # type: ignore[attr-defined]
    if type(called) is not FunctionType:
        return False
    function = converted_callee(called)
    code = function.__code__
    names = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
    if isinstance(place, int) and place >= code.co_argcount:
        return False
    return _changes(function, names[place] if isinstance(place, int) else place, first, seen)


def _changes(function: FunctionType, name: str, first: Sequence[Any], seen: set[tuple[Any, str]]) -> bool:
    """Return whether a converted function changes the array of a parameter; `first` has the first argument, if any."""
    _, stored, others = _note_of(function)
    if name in stored or (function.__code__, name) in seen:
        return name in stored
    seen.add((function.__code__, name))
    return any(_changes_argument(_resolved(function, path, first), place, seen)
               for parameter, path, place in others if parameter == name)


def _note_of(function: FunctionType) -> tuple[str, tuple[str, ...], tuple[tuple[str, str, Place], ...]]:
    """Return the note that converted code has of its parameters: those that it changes, and those that it passes on."""
    for constant in function.__code__.co_consts:
        if type(constant) is tuple and constant[:1] == (CHANGES,):
            return constant
    return CHANGES, (), ()


def _resolved(function: FunctionType, path: str, first: Sequence[Any]) -> Any:
    """Return the object that `a.b` is in a function; None if that is not known before it runs."""
    root, *attributes = path.split(".")
    code = function.__code__
    try:
        if root in code.co_freevars:
            found = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))[root].cell_contents
        elif code.co_argcount and root == code.co_varnames[0] and first:
            found = first[0]
        else:
            found = function.__globals__[root]
        return functools.reduce(getattr, attributes, found)
    except (KeyError, ValueError, AttributeError):
        return None


# --- calls ------------------------------------------------------------------------------------------------------------


def lending(function: FunctionType, depth: int, places: Sequence[Callable[[], Any]]) -> Any:
    """Return what to call in the place of a converted function: it may change arrays of its arguments.

    `places` return where the caller has them; `depth` is the number of traced blocks around the calling function.
    """
    if not any(_note_of(function)[1:]):
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        changed = _changed_parameters(function, args)
        slots = [found.slot for found in (place() for place in places) if type(found) is ArrayItems] if changed else []
        if not slots:
            return function(*args, **kwargs)
        with Loan(slots, depth, function, changed, args, kwargs):
            return function(*args, **kwargs)
    return call


def _references_by_keyword() -> int:
    """Return how many references `call` above has to an argument by keyword; one by position has one."""
    def count(value: Any) -> int:
        return sys.getrefcount(value)

    def call(*args: Any, **kwargs: Any) -> int:
        with nullcontext():
            return count(*args, **kwargs)
    return 1 + call(value=object()) - call(object())


_KEYWORD = _references_by_keyword()


class Loan:
    """The call of a function that changes arrays of its caller.

    `slots` are the caller's places of the arguments, with their names, and the number of traced blocks around the
    function that has a variable, if it is not the caller; `changed` are the parameters that change.
    """

    def __init__(self, slots: Sequence[tuple[Slot, str, int | None]], depth: int, function: FunctionType,
                 changed: Collection[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._slots, self._depth, self._changed = slots, depth, changed
        self.code, self._args, self._kwargs = function.__code__, args, kwargs
        self.borrowers: list[CellType] = []
        self.outside: list[CellType] = []
        self._taken: list[tuple[Slot, CellType, Any]] = []

    def __enter__(self) -> None:
        self._token = loans.set((*loans.get(), self))

    def __exit__(self, kind: object, *_: object) -> None:
        loans.reset(self._token)
        while self._taken:
            slot, cell, before = self._taken.pop()
            after = content_of(cell)
            if type(after) is Tracer and type(before) is Tracer and after.variable is before.variable:
                after = None
                after = before if is_sole(cell) else content_of(cell)  # the result may be the parameter
            if kind is not None:  # the traceback keeps the variable
                cell.cell_contents = _Lent()
            slot.cell_contents = after

    def count_references(self, value: Any) -> int:
        """Return how many references to a value the arguments of the call are, and notes of it."""
        return sum(each is value for each in (*self._args, *(array for *_, array in self._taken))) + (
            _KEYWORD * sum(each is value for each in self._kwargs.values()))

    def take(self, cells: Cells) -> None:
        """Give changed parameters the arrays of the caller's places, if nothing else refers to them."""
        for name, cell in cells.items():
            if name in self._changed and is_array(content_of(cell)):
                places = [place for place in self._slots if content_of(place[0]) is content_of(cell)]
                if len(places) == 1 and self._may_take(cell, *places[0]):
                    self._take(cell, places[0][0])

    def _may_take(self, cell: CellType, slot: Slot, name: str, depth: int | None) -> bool:
        holders: list[Any] = [content_of(cell)]
        around = block.get()
        expected = 1 if around is None else around.alone.get(id(holders[0]), 1)
        if count_others(holders) != expected + 1 or not owns_elements(holders[0]):
            return False
        if type(slot) is Item:
            return slot.may_change()
        if is_carried(slot, name, self._depth if depth is None else depth):
            return True
        self.outside.append(cell)
        return False

    def _take(self, cell: CellType, slot: Slot) -> None:
        array = slot.cell_contents
        self._taken.append((slot, cell, array))
        self.borrowers.append(cell)
        slot.cell_contents = _Lent()
        if type(array) is Tracer:
            cell.cell_contents = copied = Tracer(array.tape, array.variable)
            copied.viewed = None


def entered(parameters: FunctionType, _: object) -> None:
    """Begin a function whose parameters may change: they take the arrays that the caller lends."""
    calls = loans.get()
    if calls and isinstance(calls[-1], Loan) and sys._getframe(1).f_code is calls[-1].code:
        calls[-1].take(dict(zip(parameters.__code__.co_freevars, parameters.__closure__ or (), strict=True)))


class _Lent:
    """Stands in the place of an array while a function that changes it runs."""

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        raise _refuse_lent()

    def __array__(self, *_: object, **__: object) -> Any:
        raise _refuse_lent()


def _raise_lent(*_: object) -> Any:
    raise _refuse_lent()


for _name in ("getitem", "setitem", "len", "iter", "bool", "eq", "ne", "lt", "le", "gt", "ge", "neg", "abs", *(
        f"{_side}{_operator}" for _operator in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow")
        for _side in ("", "r"))):
    setattr(_Lent, f"__{_name}__", _raise_lent)


def _refuse_lent() -> Exception:
    return refuse("an array is read by another name while a function that it was passed to changes it. Read it by the "
                  "name of the parameter")
