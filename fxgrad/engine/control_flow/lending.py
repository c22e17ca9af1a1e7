"""Calls of functions that change an array of their caller: the parameter takes the array, and gives it back after.

While the function runs, the caller's variable, item or attribute is without the array. So the parameter alone has it,
and the function's own code stores items as it does for arrays that it made.
"""

from __future__ import annotations

import copy
import functools
import itertools
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from types import CellType, FunctionType, MethodType
from typing import Any

import numpy as np

from fxgrad.engine.api.checking import check
from fxgrad.engine.control_flow.aliases import Shared, count_others, loans
from fxgrad.engine.control_flow.arrays import ArrayItems, ArrayRows, Part
from fxgrad.engine.control_flow.assigned_items import ItemInPlace
from fxgrad.engine.control_flow.blocks import Cells, refuse
from fxgrad.engine.control_flow.conversion import ConvertedFunction, converted_callee
from fxgrad.engine.control_flow.names import CHANGES
from fxgrad.engine.control_flow.ownership import Item, Slot, cell_of, content_of, is_array, is_carried, is_sole
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.errors import ControlFlowError

Position = int | str
"""The position of an argument, or its keyword."""


# --- which parameters change ------------------------------------------------------------------------------------------


def passed(*arguments: tuple[str, bool, Callable[[], Any], Position]) -> tuple[set[str], set[str]]:
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


def _changes_argument(called: Any, place: Position, seen: set[tuple[Any, str]]) -> bool:
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


def _note_of(function: FunctionType) -> tuple[str, tuple[str, ...], tuple[tuple[str, str, Position], ...]]:
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


Argument = tuple[Position, Callable[[], Any]]
"""The place of an argument in a call, and a function that returns where the caller has it."""


def lending(function: FunctionType, depth: int, arguments: Sequence[Argument]) -> Any:
    """Return what to call in the place of a converted function: it may change arrays of its arguments.

    `depth` is the number of traced blocks around the calling function.
    """
    if not any(_note_of(function)[1:]):
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        changed = _changed_parameters(function, args)
        if not changed:
            return function(*args, **kwargs)
        slots: list[tuple[Slot, str, int | None]] = []
        parts: list[tuple[Position, Part | ArrayRows]] = []
        for place, where in arguments:
            if _name_at(function, place) not in changed:
                continue
            found = where()
            if type(found) is ItemInPlace:
                found.refused()
            if type(found) is ArrayItems:
                slots.append(found.slot)
            elif isinstance(found, Part | ArrayRows) and _is_view(_argument(args, kwargs, place), found):
                parts.append((place, found))
        _check_apart([part for _, part in parts])
        read: list[Any] = []
        for place, part in parts:
            args, kwargs = _with_copies(part, place, arguments, changed, function, args, kwargs, read)
            args, kwargs = _with_argument(args, kwargs, place, copy.copy(_argument(args, kwargs, place)))
        # Now nothing refers to the views.
        lent = [all(is_sole(whole.slot[0]) and _is_given_back(*whole.slot, depth) for whole in part.wholes)
                for _, part in parts]
        views: list[_View] = []
        not_lent: list[Any] = []
        for (place, part), is_lent in zip(parts, lent, strict=True):
            if not is_lent:
                args, kwargs = _with_argument(args, kwargs, place, part.value)
                if not all(_is_given_back(*whole.slot, depth) for whole in part.wholes):
                    not_lent.append(_argument(args, kwargs, place))
        for (place, part), is_lent in zip(parts, lent, strict=True):
            if is_lent:
                views.append(_View(part, _argument(args, kwargs, place), read))
                slots.append((views[-1].cell, "", None))
        del parts, read
        try:
            with Loan(slots, depth, function, changed, not_lent, args, kwargs):
                result = function(*args, **kwargs)
        except ControlFlowError:
            raise
        except BaseException:
            del args, kwargs
            _give_back(views, None)
            raise
        del args, kwargs
        return _give_back(views, result)
    call.lends_to = function  # type: ignore[attr-defined]
    return call


def _check_apart(parts: Sequence[Part | ArrayRows]) -> None:
    """Raise if two parts of one array that a function changes have elements in common; traced indices are checked."""
    for one, other in itertools.combinations(parts, 2):
        if not any(whole.value is each.value for whole in one.wholes for each in other.wholes):
            continue
        apart = one.is_apart(other) if type(one) is type(other) is Part else False
        if apart is False:
            raise refuse("a function changes two parts of one array, which have elements in common, or may have them: "
                         "in NumPy it would change both by each. Give it rows at different indices, or copies")
        if apart is not True:
            check(apart, "a function changes two rows of one array, and here they are one row. Write `if i != j:` "
                  "around the call")


def _with_copies(part: Part | ArrayRows, place: Position, arguments: Sequence[Argument], changed: Collection[str],
                 function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], copies: list[Any],
                 ) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with copies of the rows that it reads beside one that it changes.

    They are added to `copies`. Rows at traced indices must differ, which the program checks.
    """
    for other, where in arguments:
        if other == place or _name_at(function, other) in changed or not is_array(_argument(args, kwargs, other)):
            continue
        read = where()
        if any(_argument(args, kwargs, other) is each for each in copies):
            continue
        if not (type(read) is type(part) is Part and _is_view(_argument(args, kwargs, other), read)) or (
                read.wholes[0].value is not part.wholes[0].value):
            continue
        apart = part.is_apart(read)
        if apart is False:
            continue
        if apart is not True:
            check(apart, "a function changes a row and reads another one of the same array, and here they are one row. "
                  "Write x[k].copy() for the one that it reads")
        copies.append(copy.copy(_argument(args, kwargs, other)))
        args, kwargs = _with_argument(args, kwargs, other, copies[-1])
    return args, kwargs


def _argument(args: tuple[Any, ...], kwargs: Mapping[str, Any], place: Position) -> Any:
    return args[place] if isinstance(place, int) else kwargs[place]


def _with_argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: Position, value: Any,
                   ) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with another one in a place."""
    if isinstance(place, int):
        return (*args[:place], value, *args[place + 1:]), kwargs
    return args, {**kwargs, place: value}


def shifted(arguments: Sequence[Argument], by: int) -> list[Argument]:
    """Return the arguments of a call for a function that gets others before them."""
    return [(place + by if isinstance(place, int) else place, where) for place, where in arguments]


def _name_at(function: FunctionType, place: Position) -> str | None:
    """Return the parameter that gets an argument."""
    code = function.__code__
    if isinstance(place, str):
        return place
    return code.co_varnames[place] if place < code.co_argcount else None


def _measure_references() -> tuple[int, int]:
    """Return how many references `call` above has to an argument by position beside one by keyword, and to that.

    Without keywords, it has one to an argument by position.
    """
    def count(value: Any, unused: Any = None) -> int:  # noqa: ARG001  (stands for a keyword)
        return sys.getrefcount(value)

    def call(*args: Any, **kwargs: Any) -> int:
        with nullcontext():
            return count(*args, **kwargs)
    alone = call(object()) - 1
    return call(object(), unused=None) - alone, call(value=object()) - alone


_BESIDE_KEYWORDS, _KEYWORD = _measure_references()


class Loan:
    """The call of a function that changes arrays of its caller.

    `slots` are the caller's places of the arguments, with their names, and the number of traced blocks around the
    function that has a variable, if it is not the caller; a part of an array has no name. `changed` are the parameters
    that change, `not_lent` parts of arrays that may not.
    """

    def __init__(self, slots: Sequence[tuple[Slot, str, int | None]], depth: int, function: FunctionType,
                 changed: Collection[str], not_lent: Sequence[Any], args: tuple[Any, ...],
                 kwargs: Mapping[str, Any]) -> None:
        self._slots, self._depth, self._changed, self._not_lent = slots, depth, changed, not_lent
        self.code, self._args, self._kwargs = function.__code__, args, kwargs
        self.borrowers: list[CellType] = []
        self.outside: list[CellType] = []
        self._taken: list[tuple[Slot, CellType, Any]] = []

    def __enter__(self) -> None:
        self._token = loans.set((*loans.get(), self))

    def __exit__(self, kind: object, *_: object) -> None:
        loans.reset(self._token)
        while self._taken:
            self._give_back(*self._taken.pop(), raised=kind is not None)

    def _give_back(self, slot: Slot, cell: CellType, before: Any, *, raised: bool = False) -> None:
        after = content_of(cell)
        if type(after) is Tracer and type(before) is Tracer and after.variable is before.variable:
            after = None
            after = before if is_sole(cell) else content_of(cell)  # the result may be the parameter
        if raised:  # the traceback keeps the variable
            cell.cell_contents = _Lent()
        slot.cell_contents = after

    def end(self, cell: CellType) -> None:
        """Give back the array of a parameter that gets another one."""
        for number, taken in enumerate(self._taken):
            if taken[1] is cell:
                del taken
                self.borrowers.remove(cell)
                self._give_back(*self._taken.pop(number))
                break

    def count_references(self, value: Any) -> int:
        """Return how many references to a value the arguments of the call are, and notes of it."""
        by_position = sum(each is value for each in self._args)
        return sum(each is value for *_, each in self._taken) + (
            _BESIDE_KEYWORDS if self._kwargs else 1) * by_position + (
            _KEYWORD * sum(each is value for each in self._kwargs.values()))

    def take(self, cells: Cells) -> None:
        """Give changed parameters the arrays of the caller's places, if nothing else refers to them."""
        for name, cell in cells.items():
            if any(content_of(cell) is each for each in self._not_lent):
                self.outside.append(cell)
            elif name in self._changed and is_array(content_of(cell)):
                places = [place for place in self._slots if content_of(place[0]) is content_of(cell)]
                if len(places) == 1 and self._may_take(cell, *places[0]):
                    self._take(cell, places[0][0])

    def _may_take(self, cell: CellType, slot: Slot, name: str, depth: int | None) -> bool:
        if (name or type(slot) is Item) and not _is_given_back(slot, name, depth, self._depth):
            if type(slot) is not Item:
                self.outside.append(cell)
            return False
        return is_sole(cell, beside=1)  # the caller's place

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


def given_back(parameter: FunctionType, value: Any) -> Any:
    """Return the value that a parameter gets in the place of the array that it took, which the caller has again."""
    for loan in loans.get():
        if isinstance(loan, Loan):
            loan.end(cell_of(parameter))
    return value


class _View:
    """A part of an array, such as a row, that a function changes: `cell` has an array of its own in its place.

    `read` are copies of other parts, which the function reads.
    """

    def __init__(self, part: Part | ArrayRows, own: Any, read: list[Any]) -> None:
        self.cell, self._read = CellType(own), read
        self._changed: Tracer | None = None
        self._part, self._before = part, own.copy() if isinstance(own, np.ndarray) else own.variable
        # Another part of the array may have taken it.
        self._wholes = [(whole.slot[0], whole.value) for whole in part.wholes if type(whole.value) is not _Lent]
        for slot, _ in self._wholes:
            slot.cell_contents = _Lent()

    def put_back(self, result: Any) -> None:
        """Store the part where it is from."""
        value = self.cell.cell_contents
        del self.cell.cell_contents
        while self._wholes:
            slot, whole = self._wholes.pop()
            slot.cell_contents = whole
            del whole
        if type(value) is Tracer:
            if value.variable is not self._before:
                self._part.fill(value)
            self._changed = value
            return
        self.is_result = value is result
        if not self.is_result and count_others([value]) > 1:
            raise _refuse_kept()
        if value.tobytes() != self._before.tobytes():
            self._part.fill(value)

    def mark(self, result: Any) -> Any:
        """Mark the part as a view of the array, as it is in NumPy; return the result of the function.

        Others may have the part, such as the result.
        """
        self._mark_read()
        value, self._changed = self._changed, None
        if value is not None:
            wholes = [each.value for each in self._part.wholes]
            value.viewed = Shared([*wholes, *getattr(getattr(value, "viewed", None), "sources", ())])
            return result
        return self._part.value if self.is_result else result

    def _mark_read(self) -> None:
        """Mark what the function read as views again."""
        while self._read:
            copied = self._read.pop()
            if type(copied) is Tracer:
                copied.viewed = Shared([each.value for each in self._part.wholes])
            elif count_others([copied]) > 1:
                raise _refuse_kept()


def _give_back(views: Sequence[_View], result: Any) -> Any:
    """Store the parts that a function changed, and return its result."""
    for view in views:
        view.put_back(result)
    for view in views:
        result = view.mark(result)
    return result


def _refuse_kept() -> Exception:
    return refuse("a function changes a part of an array, and keeps it or another one, which in NumPy is a view of the "
                  "array. Keep a copy")


def _is_view(given: Any, part: Part | ArrayRows) -> bool:
    """Return whether an argument is a view of the arrays that a part is of, and no copy."""
    wholes = [whole.value for whole in part.wholes]
    if isinstance(given, np.ndarray):
        return all(np.may_share_memory(given, whole) for whole in wholes)
    base = getattr(given, "viewed", None) if is_array(given) else None
    while type(base) is Tracer and base is not wholes[0]:
        base = getattr(base, "viewed", None)
    sources = base.sources if type(base) is Shared else [base]
    return all(any(source is whole for source in sources) for whole in wholes)


def _is_given_back(slot: Slot, name: str, depth: int | None, depth_of_caller: int) -> bool:
    """Return whether the blocks around give back the array of the caller's place."""
    if type(slot) is Item:
        return slot.may_change()
    return is_carried(slot, name, depth_of_caller if depth is None else depth)


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
