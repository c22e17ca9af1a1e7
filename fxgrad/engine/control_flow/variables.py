"""The variables of traced blocks: the cells that blocks share with the user's function, and items of containers."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import CellType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.control_flow.blocks import UNSET, Cells, ChangeLog, refuse
from fxgrad.engine.control_flow.containers import has_choices, note_change
from fxgrad.engine.control_flow.names import RESULT, is_generated
from fxgrad.engine.control_flow.structures import (
    Flat,
    Kept,
    copy_of,
    items_with_kept,
    parts_of,
    replace_items,
    unflatten,
    with_kept,
)
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.derivation.derive import derive
from fxgrad.engine.higher_order.wiring import cast_to
from fxgrad.engine.ops.comparison import ne
from fxgrad.engine.ops.structural import convert, reshape, zeros
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.provenance import is_shown, note_tag
from fxgrad.engine.tracing.tape import aval_of, current
from fxgrad.engine.tracing.tracer import Tracer

Values = dict[str, Any]


class Names(NamedTuple):
    """Names of a block: those it changes that are live after it, those whose arrays it changes in place, and, of a
    loop, those that a turn reads first.

    Of `optional` names the code asks whether they are None.
    """

    live: Sequence[str]
    stored: Sequence[str] = ()
    turn: Sequence[str] = ()
    optional: Collection[str] = ()


Passed = Callable[[], tuple[set[str], set[str]]] | None
"""Returns which names functions change that they are passed to, and which nothing changes."""


def names_of_block(live: Sequence[str], turn: Sequence[str], stored: Sequence[str], passed: Passed,
                   optional: Sequence[str]) -> Names:
    """Return the names of a block, when functions that arrays are passed to say which of them they change."""
    if passed is None:
        return Names(live, stored, turn, optional)
    changed, unchanged = passed()
    return Names([name for name in live if name not in unchanged], [*{*stored, *changed}],
                 [name for name in turn if name not in unchanged], optional)


def cells_of(*functions: FunctionType | None) -> dict[str, CellType]:
    """Return the variables that functions share with the ones around them, by name."""
    cells: dict[str, CellType] = {}
    for function in functions:
        if function is not None:
            cells.update(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return cells


def read(cells: Cells) -> Values:
    """Return the values of variables."""
    values: Values = {}
    for name, cell in cells.items():
        try:
            values[name] = cell.cell_contents
        except ValueError:
            values[name] = UNSET
    return values


def write(cells: Cells, values: Values) -> None:
    """Set variables; those that are `UNSET` lose their values."""
    for name, value in values.items():
        if value is not UNSET:
            cells[name].cell_contents = value
            continue
        with contextlib.suppress(ValueError):  # it has none
            del cells[name].cell_contents


def forget(names: FunctionType) -> None:
    """Unset variables that are not read again: what they held has a name less, where it matters for changes."""
    if has_choices() or current.get() is not None:
        write(cells_of(names), dict.fromkeys(cells_of(names), UNSET))


def forgetting(value: Any, names: FunctionType) -> Any:
    """Return a value, after which variables are not read again."""
    forget(names)
    return value


def truth(value: Any, what: str) -> Any:
    """Return the truth of a traced scalar as a bool scalar."""
    aval = aval_of(value)
    if aval.size != 1:
        raise refuse(f"the condition of this `{what}` is {aval}, and the truth of an array with {aval.size} elements "
                     "is ambiguous. Write np.any(x) or np.all(x), or fxgrad.numpy.where to choose for each element")
    value = reshape(value, ()) if aval.shape else value
    return value if aval.dtype == dtypes.bool_ else ne(value, 0)


def shown_name(name: str) -> str:
    """Return a variable as messages name it."""
    if name.startswith(ITEMS):
        word = name.removeprefix(ITEMS)
        return "a list" if word.isdigit() else f"`{word}`"
    return "the returned value" if name == RESULT else "a value" if is_generated(name) else f"`{name}`"


def note_names(values: Values, outputs: Sequence[Any]) -> None:
    """Note the names that variables give to `outputs` of a block, for programs that are shown: no line assigns them."""
    made = {id(output) for output in outputs if type(output) is Tracer and is_shown(output.tape)}
    for name, value in values.items() if made else ():
        word = name.removeprefix(ITEMS)
        if is_generated(word) or word.isdigit():
            continue
        for path, leaf in tree.leaves_with_path(value):
            if id(leaf) in made:
                note_tag(leaf, tree.path_name(path, word))


# --- lists and dicts that blocks change ---------------------------------------------------------------------------

ITEMS = "~items of "
"""Begins the name under which the items of a list or dict are variables."""


class Containers:
    """Lists and dicts that blocks change, by the names under which their items are variables."""

    def __init__(self, cells: Cells) -> None:
        self._words = {id(value): name for name, value in read(cells).items() if not is_generated(name)}
        self.by_name: dict[str, Any] = {}
        self._lines: dict[str, str] = {}

    def shown(self, name: str) -> str:
        """Return a list or dict as messages name it, with the line that changes it."""
        return f"{shown_name(name)}, which changes at {self._lines[name]},"

    def add(self, changes: ChangeLog) -> list[str]:
        """Add the containers that changed, and return the names of those that were not known."""
        known = {id(container) for container in self.by_name.values()}
        names = []
        for key, change in changes.items():
            if key not in known:
                names.append(f"{ITEMS}{self._words.get(key, len(self.by_name))}")
                self.by_name[names[-1]], self._lines[names[-1]] = change.container, change.line
        return names

    def read(self) -> Values:
        """Return the items of all."""
        return {name: copy_of(container) for name, container in self.by_name.items()}

    def before(self, changes: ChangeLog) -> list[Any]:
        """Return the items that all had before these changes."""
        changed = {id(change.container): change.before for change in changes.values()}
        return [changed.get(id(container), parts_of(container)) for container in self.by_name.values()]

    def with_kept(self, name: str, value: Any, made: Mapping[int, Any]) -> tuple[Any, list[Any]]:
        """Return a value of a name with the containers that were not `made` in a block as objects, and those.

        Of a list or dict the value are its items, which are read where it is None.
        """
        container = self.by_name.get(name)
        if container is None:
            return with_kept(value, made)
        return items_with_kept(copy_of(container) if value is None else value, made)

    def write(self, values: Values) -> Values:
        """Set the items that are among values of variables; return the other values."""
        for name, container in self.by_name.items():
            if name in values:
                replace_items(container, values[name])
        return {name: value for name, value in values.items() if name not in self.by_name}

    def change(self, values: Values) -> Values:
        """Do the same for good: the blocks around give the items back."""
        for container in self.by_name.values():
            note_change(container, is_known=True)
        return self.write(values)


def tries_for(what: str) -> Iterator[int]:
    """Yield while a block is traced again, with the lists that it turned out to change among its variables.

    Raise where that does not end: lists that it makes in each trace, and that are not known to be new, seem others.
    """
    yield from range(12)
    raise refuse(f"a list or dict changes in this `{what}` that a function of a library made in it. Give it a name "
                 "before it is stored, as a copy: row = list(row)")


def joined_aval(one: Aval, other: Aval) -> Aval | None:
    """Return the type of values of two types, as an addition promotes them; None if the shapes differ."""
    if one.shape != other.shape:
        return None
    dtype, weak = dtypes.promote((one.dtype, one.weak), (other.dtype, other.weak))
    return Aval(one.shape, dtype, weak, one.vma | other.vma)


def placeholder(aval: Aval) -> Any:
    """Return a value of a type, for a variable that has none: no result depends on it."""
    return convert(zeros(aval), aval.dtype, aval.weak)


def with_outputs(program: Program, recipe: Sequence[tuple[int | None, Aval]]) -> Program:
    """Return the program with the outputs of the recipe: each one of its own, converted to a type, or zeros."""
    if len(recipe) == len(program.outputs) and all(place == number and aval == program.out_avals[number]
                                                   for number, (place, aval) in enumerate(recipe)):
        return program
    def build(*values: Any) -> tuple[list[Any], None]:
        outputs = apply_equations(program, values)
        return [placeholder(aval) if place is None else cast_to(outputs[place], aval) for place, aval in recipe], None

    made = derive(program, ("control flow", tuple(recipe)), build, program.in_avals).program
    return made.replace(captured=program.captured) if program.captured else made


class TracedFunction:
    """The function of a block, as tracing shows it: the user's, with the changing variables as parameters."""

    def __init__(self, function: FunctionType, names: Sequence[str] = ()) -> None:
        self.__name__, self.__code__ = function.__name__, function.__code__
        # The recording of a displayed program keeps what a function closes over: an array would have one more holder.
        self.__closure__: Any = tuple(cell for cell, value in zip(function.__closure__ or (), read(cells_of(
            function)).values(), strict=True) if not isinstance(value, np.ndarray | Tracer))
        self.__defaults__ = None
        kind = inspect.Parameter.POSITIONAL_ONLY
        self.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])

    def __call__(self) -> None:
        raise AssertionError("never called")

    def forget_variables(self) -> None:
        """Drop the variables: recordings outlive the block, and would keep what they hold."""
        self.__closure__ = None


def holds_same(one: Flat | None, two: Flat | None) -> bool:
    """Return whether two sides leave the same lists or dicts from before in the same places."""
    return one is not None and two is not None and one.structure == two.structure and all(
        first == second for first, second in zip(one.leaves, two.leaves, strict=True) if type(first) is Kept)


def lengths_differ(one: Flat, two: Flat) -> bool:
    """Return whether a list has two lengths."""
    lists = [unflatten(flat.structure, flat.leaves) for flat in (one, two)]
    return type(lists[0]) is list and len(lists[0]) != len(lists[1])


def count_items(flat: Flat) -> str:
    """Return the number of items of a list in words."""
    count = len(unflatten(flat.structure, flat.leaves))
    return f"{count} item{'s' * (count != 1)} long"
