"""Tracing loops whose turns Python cannot count: they become `while` or `for`, with the variables as carried values.

A turn is traced with tracers in the cells of what it changes, again where types change; then they get the results.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.control_flow.aliases import note_mark
from fxgrad.engine.control_flow.blocks import (
    UNSET,
    Block,
    Cells,
    ChangeLog,
    of_items,
    probe_logs,
    refuse,
    refuse_caught,
    undo,
)
from fxgrad.engine.control_flow.containers import made_containers, note_choice
from fxgrad.engine.control_flow.growing import Places, has_items, places_of, with_places
from fxgrad.engine.control_flow.names import is_generated
from fxgrad.engine.control_flow.ownership import (
    BlockArrays,
    Left,
    is_array,
    mark_shared,
    own_tracer,
    owned_arrays,
    owned_items,
    shared_leaves,
)
from fxgrad.engine.control_flow.structures import (
    NOTHING,
    Flat,
    Kept,
    OptionalParts,
    UnknownLength,
    as_chosen,
    as_optional,
    containers_in,
    flatten,
    has_unknown_length,
    is_equal,
    member_place,
    number_type,
    number_types,
    optional_parts,
    shared_in,
    unflatten,
    way_for_objects,
    word_for,
)
from fxgrad.engine.control_flow.variables import (
    ITEMS,
    Containers,
    Names,
    TracedFunction,
    Values,
    cells_of,
    count_items,
    holds_same,
    joined_aval,
    lengths_differ,
    note_names,
    placeholder,
    read,
    shown_name,
    tries_for,
    truth,
    with_outputs,
    write,
)
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.program import Program
from fxgrad.engine.frontend.flat import TracedCall
from fxgrad.engine.higher_order.checks import is_check
from fxgrad.engine.higher_order.loop import bind_for
from fxgrad.engine.higher_order.while_loop import bind_while
from fxgrad.engine.higher_order.wiring import cast_to
from fxgrad.engine.ops.comparison import lt
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.structural import convert, zeros
from fxgrad.engine.tracing.tape import Tape, current
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.errors import ControlFlowError
from fxgrad.lax.bodies import trace_body


class Counter(NamedTuple):
    """The number of turns of a `for` loop, which may be traced, and the item of each, by its number."""

    length: Any
    item: Callable[[Any], Any]


def loop(what: str, test: FunctionType | None, body: FunctionType, names: Names, counter: Counter | None, *,
         guaranteed: bool) -> None:
    """Run a loop in the program: while `test()` is true, or for the turns of `counter`, or while both allow.

    `guaranteed`: there is a first turn.
    """
    cells = cells_of(test, body)
    owned, items = owned_arrays(cells), owned_items()
    before = read(cells)
    try:
        staged = _Loop(what, test, body, cells, before, names, owned, items, counter, guaranteed)
        outputs = staged.bind()
    finally:
        write(cells, before)
    for name, value in outputs.items():
        kept, outer = (which.get(name, {}) for which in (staged.kept, staged.outer))
        note_choice(containers_in(value, kept), [*outer.values()])
    write(cells, staged.containers.change(outputs))


def _is_elements(value: Any) -> bool:
    """Return whether a value is an array, of known length or not."""
    return is_array(value) or isinstance(value, UnknownLength)


def _elements_of(value: Any) -> Any:
    return value.parts()[0] if isinstance(value, UnknownLength) else value


@dataclass
class _Turn:
    """What one turn of a loop leaves: the variables `after` it, and the `places` of their arrays among its outputs.

    `new` are variables of items that it changed first, `widened` those in whose place other containers came, and
    `new_shared` those whose arrays others have now.
    """

    after: dict[str, Flat | None] = field(default_factory=dict)
    places: list[int] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)
    new_shared: list[str] = field(default_factory=list)


class _Loop:
    def __init__(self, what: str, test: FunctionType | None, body: FunctionType, cells: Cells, before: Values,
                 names: Names, owned: set[str], items: Sequence[Any], counter: Counter | None,
                 guaranteed: bool) -> None:
        self.what, self.test, self.body, self.cells, self.before = what, test, body, cells, before
        self.others, self.items = owned - {*names.live}, items
        self.shared: dict[str, dict[int, list[Any]]] = {name: {0: [_elements_of(before[name])]} for name in names.live
                                                        if (name in cells and name not in owned and (
                                                            _is_elements(before[name])))}
        self.counter = counter
        self.containers = Containers(cells)
        self.names = [name for name in dict.fromkeys(names.live) if name in cells]
        self.set_first = {name for name in self.names if guaranteed and name not in names.turn
                          and not is_generated(name)}
        self.may_be_none, self.optional = {*names.optional}, {}
        self.values: dict[str, Flat | None] = {}
        self.kept: dict[str, dict[int, Any]] = {}
        self.outer: dict[str, dict[int, Any]] = {}
        self.unset = {name for name in self.names if before[name] is UNSET and not is_generated(name)}
        self.guaranteed = guaranteed
        self.existing = {id(each) for value in (*before.values(), *made_containers()) for each in containers_in(value)}
        for name in self.names:
            value = before[name]
            self.values[name] = None if value is UNSET else self._begin(name, value)
        self.avals = {name: [*flat.avals] for name, flat in self.values.items() if flat is not None}

    def bind(self) -> Values:
        for _ in tries_for(self.what):
            program, captured, places = self._trace_body()
            if program is not None:
                break
        assert program is not None
        number = int(self.counter is not None)
        while True:
            asked = self._trace_test()
            if asked is None or all(asked.program.out_avals[0].vma <= aval.vma for aval in self._flat_avals()):
                break
            vma = asked.program.out_avals[0].vma  # the carry varies over the devices as the number of turns does
            self.avals = {name: [aval and aval.varying(vma) for aval in avals] for name, avals in self.avals.items()}
            program, captured, places = self._trace_body()
            assert program is not None
        begin: list[Any] = []
        for name in self.names:
            flat = self.values[name]
            for leaf_number, aval in enumerate(self.avals.get(name, ())):
                if aval is not None:
                    begin.append(placeholder(aval) if flat is None or name in self.missing else
                                 cast_to(member_place(flat.leaves[leaf_number]), aval))
        recipe = [*enumerate([_COUNTER] * number),
                  *((place, aval) for place, aval in zip(places, self._flat_avals(), strict=True))]
        step = with_outputs(program, recipe)
        if self.counter is None:
            assert asked is not None
            outputs = bind_while(asked.program, asked.captured, step, captured, begin)
        elif asked is None:
            outputs = bind_for(self.counter.length, step, captured, [zeros(_COUNTER), *begin])[1:]
        else:
            outputs = bind_while(asked.program, asked.captured, step, captured, [zeros(_COUNTER), *begin])[1:]
        for (name, number), output in zip(self._places(), outputs, strict=True):
            mark_shared(output, [self.shared.get(name, {}).get(number)])
        values = self._values_of(outputs)
        note_names(values, outputs)
        return values

    shared: dict[str, dict[int, list[Any]]]
    """The arrays from before that the leaves of a name may be, for those that something else may have."""
    kept: dict[str, dict[int, Any]]
    """The containers from before the loop that a name has in every turn, as far as is known."""
    outer: dict[str, dict[int, Any]]
    """Those that a name may have before or after a turn only; their items are among the variables."""
    set_first: set[str]
    """Names that each turn sets before it reads them; there is a first turn."""
    optional: dict[str, OptionalParts | Places]
    """Names of which all or a part is None before the loop or after a turn, with what that is otherwise.

    For lists that get shorter, the places of their items.
    """
    unset: set[str]
    """Names without a value before the loop: a turn may not read them first, nor code after a loop without turns."""
    missing: frozenset[str] = frozenset()
    """Names whose value before the loop is none, or not used: they get one in its first turn."""

    def _flat_avals(self) -> list[Aval]:
        return [aval for name in self.names for aval in self.avals.get(name, ()) if aval is not None]

    def _places(self) -> list[tuple[str, int]]:
        """Return the name and the number of the leaf of each array that is carried."""
        return [(name, number) for name in self.names for number, aval in enumerate(self.avals.get(name, ()))
                if aval is not None]

    def _values_of(self, leaves: Sequence[Any]) -> Values:
        """Return the values of the variables for these arrays."""
        given = iter(leaves)
        values: Values = {}
        for name in self.names:
            flat = self.values[name]
            if flat is None:
                values[name] = UNSET
                continue
            parts = [leaf if aval is None else as_chosen(leaf, next(given))
                     for leaf, aval in zip(flat.leaves, self.avals[name], strict=True)]
            values[name] = unflatten(flat.structure, parts)
        return values

    def _shown_names(self) -> list[str]:
        return [name for name in self.names for aval in self.avals.get(name, ()) if aval is not None]

    def _trace(self, function: FunctionType, call: Callable[[Sequence[Any]], Any]) -> TracedCall:
        avals = [*([_COUNTER] if self.counter is not None else []), *self._flat_avals()]
        names = [*(["the number of the turn"] if self.counter is not None else []), *self._shown_names()]
        parameters = _unique([*(["turn"] if self.counter is not None else []), *self._shown_names()])
        structure = tree.structure(0)
        items = self.containers.read()
        shown = TracedFunction(function, parameters)
        try:
            return trace_body(self.what, shown, lambda *tracers: call(tracers), avals, names,
                              [structure] * len(avals))
        except Exception as error:
            refuse_caught(self.what, error)
            raise
        finally:
            shown.forget_variables()
            write(self.cells, self.containers.write({**self.before, **items}))

    def _trace_body(self) -> tuple[Program | None, list[Any], list[int]]:
        """Trace a turn; without a program if types changed, so that it must be traced again."""
        turn = _Turn()
        counter = self.counter
        around = Block(self.what, repeats=True)

        def call(tracers: Sequence[Any]) -> list[Any]:
            outputs: list[Any] = []
            if counter is not None:
                number, *tracers = tracers
                outputs.append(add(number, Literal(1, _COUNTER)))
            self._begin_turn(tracers, around)
            names = [name for name in self.names if name in self.cells]
            arrays = BlockArrays(self.cells, self.before, names, self.others, (), self.items)
            try:
                with around:
                    arrays.hold()
                    try:
                        self.body(*([] if counter is None else [counter.item(number)]))
                    except NameError as error:
                        for name in self.unset:
                            if repr(name) in str(error):
                                raise self._refuse_unset(name) from None
                        raise
                    left = arrays.release(self.containers.by_name.values())
                self._end_turn(turn, names, left, around, outputs)
            finally:
                turn.new.extend(self.containers.add(around.changed))
                undo(around.changed)
            return outputs

        traced = self._trace(self.body, call)
        if turn.new or turn.widened:
            self._add_variables(turn)
            return None, [], []
        changed = self._join_turn(turn.after) or bool(turn.new_shared)
        return (None if changed else traced.program), traced.captured, turn.places

    def _begin_turn(self, tracers: Sequence[Any], around: Block) -> None:
        """Give the variables the values that they have before a turn; nothing else refers to these tracers then."""
        begin = self._values_of([
            own_tracer(each, owned=number not in self.shared.get(name, ())) if is_array(each) else each
            for (name, number), each in zip(self._places(), tracers, strict=True)])
        around.of_turn = {id(each): each for name in self.kept
                          for each in containers_in(begin[name], self.kept[name])
                          if name in self.cells or each is not begin[name]}  # that is a copy of the items
        write(self.cells, self.containers.write(begin))
        for name in self.names:
            if name in self.cells and is_array(begin[name]):
                self.cells[name].cell_contents = begin[name]

    def _end_turn(self, turn: _Turn, names: Sequence[str], left: Left, around: Block, outputs: list[Any]) -> None:
        """Read the variables after a turn: add their arrays to `outputs`, and note in `turn` what is new of them."""
        values = {**read({name: self.cells[name] for name in names}), **self.containers.read()}
        shared = shared_in(values.values())
        for name, value in values.items():
            flat = turn.after[name] = None if value is UNSET else self._after(name, value, around, turn.widened)
            with_others: dict[int, list[Any]] = {}
            if flat is not None and (name not in names or left.is_shared(name)):
                with_others = shared_leaves(flat.leaves, None if name in names else left.in_items)
            known = self.shared.setdefault(name, {})
            if (_is_elements(value) or name not in names) and with_others.keys() - known.keys():
                turn.new_shared.append(name)
            for place, sources in with_others.items():
                known[place] = [*known.get(place, ()), *sources]
            self.outer.setdefault(name, {}).update({
                id(each): each for each in containers_in(value, self.kept.get(name, {})) if id(each) in shared})
            for leaf, aval in zip(*((flat.leaves, flat.avals) if flat else ((), ())), strict=True):
                if aval is not None:
                    turn.places.append(len(outputs))
                    outputs.append(member_place(leaf))

    def _add_variables(self, turn: _Turn) -> None:
        """Make variables of the items of containers that a turn changes, or in whose place it puts others."""
        for name in turn.new:
            begins = self.values[name] = self._begin(name, None)
            self.avals[name] = [*begins.avals]
            self.shared[name] = {number: [leaf] for number, leaf in enumerate(begins.leaves)
                                 if is_array(leaf) and not any(leaf is each for each in self.items)}
        self.names += turn.new
        for name in turn.widened:
            begins = self.values[name] = self._begin(name, self.before.get(name))
            self.avals[name] = [*begins.avals]
            self.shared[name] = {number: [leaf] for number, leaf in enumerate(begins.leaves) if is_array(leaf)}

    def _join_turn(self, after: Mapping[str, Flat | None]) -> bool:
        """Join the types of all variables before and after a turn; return whether they changed."""
        changed = False
        for name in self.names:
            before, flat = self.values[name], after[name]
            if flat is None:
                if before is None:
                    continue  # it is set, or a `return` gives it, only where Python knows not to run
                raise refuse(f"`{name}` is deleted in a turn of this `{self.what}`, whose number of turns is traced. "
                             "Leave it, or set it again in the turn")
            if before is None and name in self.unset and not self.guaranteed:
                raise self._refuse_unset(name)
            is_unused = name in self.set_first - self.missing and not _fits(before, flat)
            if before is None or is_unused:
                self.missing |= {name}
                self.values[name], self.avals[name], changed = flat, [*flat.avals], True
                if name not in self.set_first and any(
                        aval is None and type(leaf) is not Kept for leaf, aval in zip(*flat[1:], strict=True)):
                    raise refuse(f"{shown_name(name)} is {flat} after this `{self.what}`, and has no value "
                                 "before. Only arrays and numbers can come out of a loop whose number of turns is "
                                 "traced")
                continue
            inside = self._optional_parts(name, before, flat)
            if inside is not None:
                value = unflatten(before.structure, before.leaves)
                before = self._begin(name, as_optional(value, inside, placeholder, {id(value): None}))
                self.optional[name], changed = inside, True
                self.values[name], self.avals[name] = before, [*before.avals]
                continue
            places = places_of(before, flat, in_loop=True) if name.startswith(ITEMS) else None
            if places is not None:
                items = unflatten(before.structure, before.leaves)
                before = self._begin(name, with_places(items, places, placeholder))
                self.optional[name], changed = places, True
                self.values[name], self.avals[name] = before, [*before.avals]
                continue
            changed |= self._join(name, before, flat)
        return changed

    def _refuse_unset(self, name: str) -> ControlFlowError:
        return refuse(f"`{name}` has no value before this `{self.what}`, whose number of turns is traced and may be "
                      f"0, and it is used later. Set `{name}` before the loop, to a value of the same type")

    def _optional_parts(self, name: str, before: Flat | None, after: Flat) -> OptionalParts | None:
        """Return what of a variable is None before or after a turn, if it may be."""
        return optional_parts(before, after) if name in self.may_be_none or name.startswith(ITEMS) else None

    def _join(self, name: str, before: Flat, after: Flat) -> bool:
        """Join the types of a variable before and after a turn; return whether they changed."""
        if name.startswith(ITEMS) and lengths_differ(before, after):
            raise of_items(refuse(
                f"{self.containers.shown(name)} is {count_items(before)} before a turn of this `{self.what}` and "
                f"{count_items(after)} after it; the number of turns is traced, so the length must stay. Begin with an "
                "array of the greatest length, and write into it with x[i] = v"))
        if before.structure != after.structure and NOTHING in (before.structure, after.structure):
            raise refuse(f"{shown_name(name)} is {before} before a turn of this `{self.what}` and {after} after it; "
                         "the number of turns is traced, so the type must stay. In the place of None, begin with a "
                         "value of the same type, and beside it a flag: found = False")
        if has_unknown_length(before) != has_unknown_length(after):
            raise refuse(f"{shown_name(name)} is {before} before a turn of this `{self.what}` and {after} after it; "
                         "the number of turns is traced, so the type must stay. Keep the array, and the bounds in two "
                         "numbers: x[start:stop] where it is read")
        if before.structure != after.structure:
            error = refuse(f"{shown_name(name)} is {before} before a turn of this `{self.what}` and "
                           f"{after} after it; the number of turns is traced, so the structure must stay. Use an "
                           "array of fixed length, and x[i] = v")
            raise of_items(error) if name.startswith(ITEMS) else error
        changed = False
        for number, (one, two) in enumerate(zip(self.avals[name], after.avals, strict=True)):
            leaf = before.leaves[number]
            one, two = number_types(leaf, after.leaves[number], (one, two))  # noqa: PLW2901
            if one is not None and two is not None and self.avals[name][number] is None:
                before.leaves[number], self.avals[name][number], changed = as_chosen(leaf), one, True
            if one is None or two is None:
                if (one is None) != (two is None) or not is_equal(before.leaves[number], after.leaves[number]):
                    raise refuse(f"{shown_name(name)} is {word_for(before.leaves[number])} before a turn of this "
                                 f"`{self.what}` and {after} after it. Only arrays and numbers can change in a loop "
                                 "whose number of turns is traced"
                                 f"{way_for_objects(before.leaves[number], after.leaves[number])}")
                continue
            joined = joined_aval(one, two)
            if joined is None:
                raise refuse(f"{shown_name(name)} is {one} before a turn of this `{self.what}` and {two} after it; the "
                             "number of turns is traced, so the shape must stay. Begin with an array of the final "
                             "shape, and fill it with x[i] = v")
            if joined != one:
                self.avals[name][number], changed = joined, True
        return changed

    def _begin(self, name: str, value: Any) -> Flat:
        """Return the value of a name before the loop; containers stay objects that are not in `outer`."""
        objects, kept = self.containers.with_kept(name, value, self.outer.setdefault(name, {}))
        self.kept[name] = {id(each): each for each in kept}
        return flatten(objects)

    def _after(self, name: str, value: Any, around: Block, widened: list[str]) -> Flat:
        """Return the value of a name after a turn, with the containers that it had before as objects.

        If it has others, those from before are added to `outer`, and the name to `widened`.
        """
        optional = self.optional.get(name)
        if isinstance(optional, list):
            value = with_places(value, optional, placeholder)
        elif optional is not None:
            value = as_optional(value, optional, placeholder, around.made if name in self.cells else {
                **around.made, id(value): None})
        outer, kept, before = self.outer.setdefault(name, {}), self.kept.get(name, {}), self.values[name]
        made = {**around.made, **around.of_turn, **outer}
        if before is None:  # the one that a turn gives it is the only one that it may have
            kept = self.kept[name] = {id(each): each for each in self.containers.with_kept(name, value, made)[1]
                                      if id(each) in self.existing}
        known = {id(each) for container in kept.values() for each in containers_in(container)}
        while True:
            objects, found = self.containers.with_kept(name, value, made)
            others = {id(each): each for each in found if id(each) not in known}
            if not others:
                break
            made |= others
            outer |= others
        flat = flatten(objects)
        for number, (leaf, aval) in enumerate(zip(flat.leaves, self.avals.get(name, ()), strict=False)):
            if aval is not None and flat.avals[number] is None and number_type(leaf, None) is not None:
                flat.leaves[number], flat.avals[number] = as_chosen(leaf), number_type(leaf, None)
        if kept and before is not None and not holds_same(before, flat) and (
                self._optional_parts(name, before, flat) is None):
            there = {id(each) for each in found}
            outer |= {key: each for key, each in kept.items() if key not in there} or kept
            widened.append(name)
        return flat

    def _trace_test(self) -> TracedCall | None:
        """Trace whether there is another turn; None if the number of turns alone decides."""
        counter, test = self.counter, self.test
        if test is None:
            return None

        def call(tracers: Sequence[Any]) -> Any:
            more = None
            if counter is not None:
                number, *tracers = tracers
                more = lt(number, Literal(counter.length, _COUNTER) if isinstance(counter.length, int) else
                          convert(counter.length, _COUNTER.dtype))
            write(self.cells, self.containers.write(self._values_of(tracers)))
            with Block(self.what, repeats=True) as around:
                value = has_items(test())
            if around.changed:
                raise refuse(f"the condition of this `{self.what}` changes a list or dict, and it is traced apart from "
                             "the turn. Change it in the turn, and write the condition without the change")
            value = truth(value, self.what) if type(value) is Tracer else bool(value)
            return value if more is None else more & value
        return self._trace(test, call)


def _fits(before: Flat | None, after: Flat) -> bool:
    """Return whether a variable may have one of two values: their structures and shapes are equal."""
    return before is not None and before.structure == after.structure and all(
        is_equal(one, two) if aval is None or other is None else joined_aval(aval, other) is not None
        for one, two, aval, other in zip(before.leaves, after.leaves, before.avals, after.avals, strict=True))


_COUNTER = Aval((), np.dtype("int64"), weak=True)
"""The type of the number of a turn: that of Python's integers."""


def _unique(names: Sequence[str]) -> list[str]:
    """Return identifiers: the names, numbered where they come again, and words for generated ones."""
    found: list[str] = []
    for name in names:
        word = name.removeprefix(ITEMS) if shown_name(name) != "a list" else "items"
        word = word.strip("~").partition(" ")[0]
        numbered = (word if not number else f"{word}_{number}" for number in itertools.count())
        found.append(next(each for each in numbered if each not in found and (each == name or each not in names)))
    return found


class Mark:
    """A place in the recordings of all current tapes, with the values of variables, to go back to."""

    def __init__(self, cells: Cells) -> None:
        self._cells, self.values = cells, read(cells)
        note_mark(self)
        self.changes: ChangeLog = {}
        self._tapes: list[tuple[Tape, Any]] = []
        tape = current.get()
        while tape is not None:
            self._tapes.append((tape, tape.mark()))
            tape = tape.parent

    def __enter__(self) -> None:
        self._token = probe_logs.set((*probe_logs.get(), self.changes))

    def __exit__(self, *_: object) -> None:
        probe_logs.reset(self._token)

    def has_checks(self) -> bool:
        """Return whether checks were recorded since."""
        return any(is_check(equation) for tape, mark in self._tapes for equation in tape.equations(mark))

    def rewind(self) -> None:
        """Forget what was recorded since, and set the variables back, and lists that changed within the mark."""
        write(self._cells, self.values)
        undo(self.changes)
        for tape, mark in self._tapes:
            tape.rewind(mark)
