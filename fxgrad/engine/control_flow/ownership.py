"""Who has an array: whether one variable, item or attribute alone has it, which reference counts tell.

Inside a traced block the names of such arrays hold tracers that only they refer to; an array that leaves a block and
may be that of another name is marked (`Shared`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import CellType, FunctionType
from typing import Any, NamedTuple, Protocol

import numpy as np

from fxgrad.engine.control_flow.aliases import Shared, count_others
from fxgrad.engine.control_flow.assigned_items import Place, attributed, mutable
from fxgrad.engine.control_flow.blocks import UNSET, Cells, block, refuse
from fxgrad.engine.control_flow.containers import is_made_here, made_containers, note_change
from fxgrad.engine.control_flow.structures import ChosenMember, OptionalValue, UnknownLength, is_container, parts_of
from fxgrad.engine.tracing.tape import Tape, current
from fxgrad.engine.tracing.tracer import Tracer


def is_array(value: Any) -> bool:
    """Return whether a value is an array whose items can change, and no number."""
    return isinstance(value, np.ndarray) or (type(value) is Tracer and bool(value.variable.aval.shape))


class Slot(Protocol):
    """Where an array is: a variable, an item of a list or dict, or an attribute."""

    @property
    def cell_contents(self) -> Any:
        """The array."""

    @cell_contents.setter
    def cell_contents(self, value: Any) -> None: ...


class Item:
    """An item of a list or dict, or an attribute of an object, as a place for an array."""

    def __init__(self, container: Any, key: Any) -> None:
        self._container, self._key = container, key

    @property
    def cell_contents(self) -> Any:
        """The array."""
        return parts_of(self._container)[self._key]

    @cell_contents.setter
    def cell_contents(self, value: Any) -> None:
        (mutable if type(self._container) in (list, dict) else attributed)(self._container)
        parts_of(self._container)[self._key] = value

    def may_change(self) -> bool:
        """Return whether the container may change in the blocks around, which note that it does."""
        return is_made_here(self._container) and note_change(self._container)

    def check(self, name: str) -> None:
        """Raise if the container is not one that the converted code made."""
        if is_made_here(self._container):
            return
        kind = type(self._container).__name__
        copied = f"{kind}(x)" if type(self._container) in (list, dict) else "copy.copy(x)"
        raise refuse(f"{name}[...] = v changes the array of `{name}`, and the {kind} that holds it was not made by the "
                     f"converted code: others would see a traced array in it. Write x = {copied} for the {kind}, and "
                     "give x a copy of the array")


# --- whether one place alone has an array -----------------------------------------------------------------------------


def is_sole(cell: Slot, beside: int = 0) -> bool:
    """Return whether one place alone has its array: no other name, container, view or caller would see a change.

    There may be as many references `beside` it, such as a view that is about to be dropped.
    """
    holders: list[Any] = [content_of(cell)]
    expected = _expected_references(holders) + beside
    return is_array(holders[0]) and count_others(holders) == expected and owns_elements(holders[0])


def _expected_references(holders: list[Any]) -> int:
    """Return how many references there are to the object in a list if one place alone has it."""
    around = block.get()
    return 1 if around is None else around.alone.get(id(holders[0]), 1)


def _has_alone(cell: CellType) -> bool:
    """Return whether one variable alone has its array, or the array that it has if it is not None."""
    holders: list[Any] = [content_of(cell)]
    if type(holders[0]) is not OptionalValue:
        holders.clear()
        return is_sole(cell)
    inside: list[Any] = [holders[0].value]
    return (count_others(holders) == _expected_references(holders) and is_array(inside[0])
            and count_others(inside) == 1 and owns_elements(inside[0]))


def _tuple_has_alone(cell: CellType) -> bool:
    """Return whether a variable has a tuple of arrays and numbers, and the tuple alone has the arrays."""
    parts = content_of(cell)
    return type(parts) is tuple and not any(type(each) is tuple or is_container(each) for each in parts) and all(
        count_others([parts[number]]) == 1 and owns_elements(parts[number])
        for number in range(len(parts)) if is_array(parts[number]))


def owns_elements(array: Any) -> bool:
    """Return whether an array is no view, or one of an array that nothing else refers to; and not a caller's."""
    if type(array) is Tracer:
        base = getattr(array, "viewed", array)
        if base is array:
            return array.tape.owns_inputs or not any(var is array.variable for var in array.tape.root.outputs)
    else:
        base = array.base
    if base is None:
        return True
    holders = [base]
    del base
    return is_array(holders[0]) and count_others(holders) == 1 and owns_elements(holders[0])


def is_carried(cell: Slot, name: str, depth: int) -> bool:
    """Return whether the blocks around, but for the `depth` outermost ones, give back the array of a variable."""
    around, value = block.get(), content_of(cell)
    while around is not None and around.depth > depth:
        if around.cells.get(name) is not cell or around.before[name] is value:
            return False
        value, around = around.before[name], around.parent
    return True


# --- traced blocks ----------------------------------------------------------------------------------------------------


def owned_arrays(cells: Cells) -> set[str]:
    """Return the names of variables that alone have their arrays."""
    return {name for name, cell in cells.items() if _has_alone(cell)}


def owned_items() -> list[Any]:
    """Return the arrays that items and attributes alone have, of containers that converted code made."""
    return [slot.cell_contents for slot in _item_slots(made_containers()) if is_sole(slot)]


def _item_slots(containers: Iterable[Any]) -> Iterator[Item]:
    """Yield the places for arrays in containers, and in containers in them."""
    seen: dict[int, Any] = {}
    waiting = [*containers]
    while waiting:
        container = waiting.pop()
        if type(container) is tuple:
            waiting += [each for each in container if type(each) is tuple or is_container(each)]
        elif id(container) not in seen and is_container(container):
            seen[id(container)] = container
            parts = parts_of(container)
            for key in [*parts] if type(parts) is dict else range(len(parts)):
                if is_array(parts[key]):  # without a name, which would be one more reference
                    yield Item(container, key)
                elif type(parts[key]) is tuple or is_container(parts[key]):
                    waiting.append(parts[key])


class BlockArrays:
    """The arrays of the variables of a block while it is traced.

    `live` are the names live after it, `owned` those with arrays that nothing else has, `stored` those whose arrays
    change in place. `before` has the values from before the block, `items` the arrays that containers alone have.
    """

    def __init__(self, cells: Cells, before: Mapping[str, Any], live: Sequence[str], owned: Collection[str],
                 stored: Collection[str], items: Sequence[Any]) -> None:
        self._cells, self._before, self._live = cells, before, live
        self._owned, self._stored, self._items = owned, {*stored}, items
        self._held: dict[str, Any] = {}

    def hold(self) -> None:
        """Give each owned name whose array changes a tracer, on the tape of the block, that only the name has.

        Of the other owned arrays it is noted how many references there are, with those that trace the block.
        """
        around = block.get()
        assert around is not None
        around.cells, around.before, around.live = self._cells, self._before, self._live
        for name in self._owned:
            if name in self._stored:
                self._held[name] = hold_copy(self._cells[name], self._before[name])
            else:
                around.alone[id(self._before[name])] = count_others([self._before[name]])
                if type(self._before[name]) is OptionalValue:  # its value may become that of the variable
                    around.alone[id(self._before[name].value)] = 2
        for number in range(len(self._items)):
            around.alone[id(self._items[number])] = count_others([self._items[number]])

    def release(self, containers: Iterable[Any] = ()) -> Left:
        """Drop the values of dead names, and return which arrays others may have.

        These are those of names, and those in `containers` and in others that the block changes.
        """
        around = block.get()
        assert around is not None
        forget_dead(self._cells, self._before, self._live)
        shared = {name for name in self._live
                  if content_of(self._cells[name]) is not None and not _has_alone(self._cells[name])
                  and not _tuple_has_alone(self._cells[name])}
        in_items = shared_items([*containers, *(change.container for change in around.changed.values())])
        for name, variable in self._held.items():
            if has_variable(self._cells[name], variable):  # unchanged
                self._cells[name].cell_contents = self._before[name]
        return Left(lambda name: name in shared, in_items)


class Left(NamedTuple):
    """Which arrays that a block leaves others may have: those of names, and those in containers, by identity."""

    is_shared: Callable[[str], bool]
    in_items: dict[int, Any]


def cell_of(variable: FunctionType) -> CellType:
    """Return the variable that a function of converted code reads."""
    assert variable.__closure__ is not None
    return variable.__closure__[0]


def content_of(cell: Slot) -> Any:
    """Return what a variable has; None without a value."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def has_variable(cell: CellType, variable: Any) -> bool:
    """Return whether a variable still has the array of this `Var`."""
    value = content_of(cell)
    if type(value) is OptionalValue:
        value = value.value
    return type(value) is Tracer and value.variable is variable


def forget_dead(cells: Cells, before: Mapping[str, Any], live: Collection[str]) -> None:
    """Give variables that are not live after a block the values from before it."""
    for name, cell in cells.items():
        if name not in live and content_of(cell) is not before[name] and isinstance(
                content_of(cell), np.ndarray | Tracer | UnknownLength | OptionalValue | ChosenMember | Place):
            if before[name] is UNSET:
                del cell.cell_contents
            else:
                cell.cell_contents = before[name]


def mark_shared(value: Any, sources: Iterable[Sequence[Any] | None]) -> Any:
    """Return an array that comes out of a block, marked if it may be another one; None stands for no other."""
    found = [each for each in sources if each is not None]
    if found and type(value) is Tracer and value.variable.aval.shape:
        value.viewed = Shared([source for each in found for source in each])
    return value


def shared_items(containers: Iterable[Any]) -> dict[int, Any]:
    """Return the arrays in containers, and in containers in them, that something else has too, by their identities."""
    return {id(slot.cell_contents): slot.cell_contents for slot in _item_slots(containers) if not is_sole(slot)}


def shared_leaves(leaves: Sequence[Any], among: Mapping[int, Any] | None) -> dict[int, list[Any]]:
    """Return, for leaves that are arrays of others, those from before the current tape that each may be.

    These are the arrays in `among`, by identity; all, if that is None.
    """
    tape = current.get()
    assert tape is not None
    return {number: sources_of(leaf, tape) for number, leaf in enumerate(leaves)
            if is_array(leaf) and (among is None or id(leaf) in among)}


def hold_copy(cell: CellType, array: Any) -> Any:
    """Give a variable a tracer of the array, of the innermost tape, that nothing else refers to; return its `Var`.

    It may be the array that the variable has if it is not None.
    """
    if type(array) is OptionalValue:
        held = own_tracer(array.value)
        cell.cell_contents = OptionalValue(array.is_set, held)
    else:
        cell.cell_contents = held = own_tracer(array)
    return held.variable


def own_tracer(array: Any, *, owned: bool = True) -> Tracer:
    """Return a tracer of an array, of the innermost tape, that nothing else refers to; one that may be others' if not
    `owned`.
    """
    tape = current.get()
    assert tape is not None
    held = Tracer(tape, array.variable) if type(array) is Tracer and array.tape is tape else tape.capture(array)
    held.viewed = None if owned else Shared([])
    return held


def sources_of(value: Any, tape: Tape) -> list[Any]:
    """Return the arrays from outside of a tape that an array on it may be, or may be a view of."""
    found: list[Any] = []
    while isinstance(value, np.ndarray) or type(value) is Tracer:
        if type(value) is not Tracer or value.tape is not tape:
            found.append(value)
            base = value.base if isinstance(value, np.ndarray) else getattr(value, "viewed", None)
        else:
            base = getattr(value, "viewed", None)
            if base is None:
                found += [source for var, source in tape.captures() if var is value.variable]
        value = base
    if type(value) is Shared:
        found += value.sources
    return found
