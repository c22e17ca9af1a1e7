"""Tracing blocks that Python cannot choose or count: branches become `cond`, loops `while`.

The variables of a block are cells that its function shares with the user's. A block is traced with tracers in the cells
of what it changes; then they get the results.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import CellType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.control_flow.arrays import (
    BlockArrays,
    Item,
    Left,
    is_array,
    is_sole,
    mark_shared,
    own_tracer,
    owned_arrays,
    owned_items,
    shared_items,
    shared_leaves,
)
from fxgrad.engine.control_flow.blocks import (
    UNSET,
    Block,
    Changes,
    block,
    note_change,
    note_choice,
    note_mark,
    probes,
    refuse,
    undo,
)
from fxgrad.engine.control_flow.names import RESULT, is_generated
from fxgrad.engine.control_flow.structures import (
    Flat,
    Kept,
    UnknownLength,
    containers_in,
    copy_of,
    flatten,
    has_unknown_length,
    items_with_kept,
    replace_items,
    shared_in,
    unflatten,
    with_kept,
    word_for,
)
from fxgrad.engine.core.avals import PYTHON_SCALARS, Aval, Literal, array_aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.derivation.derive import derive
from fxgrad.engine.frontend.flat import TracedCall
from fxgrad.engine.higher_order.branch import bind_branches
from fxgrad.engine.higher_order.loop import bind_for
from fxgrad.engine.higher_order.while_loop import bind_while
from fxgrad.engine.higher_order.wiring import cast_to
from fxgrad.engine.ops import arithmetic, comparison
from fxgrad.engine.ops.comparison import and_, lt, ne, or_
from fxgrad.engine.ops.parts import abs_p
from fxgrad.engine.ops.pointwise import add, add_p
from fxgrad.engine.ops.select import select_n
from fxgrad.engine.ops.structural import convert, reshape, zeros
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import Tape, aval_of, current
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.user_lines import user_line
from fxgrad.lax.bodies import join_branches, trace_body

Cells = Mapping[str, CellType]
Values = dict[str, Any]


class Names(NamedTuple):
    """Names of a block: those it changes that are live after it, those whose arrays it changes in place, and, of a
    loop, those that a turn reads first.
    """

    live: Sequence[str]
    stored: Sequence[str] = ()
    turn: Sequence[str] = ()


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
    if name.startswith(_ITEMS):
        word = name.removeprefix(_ITEMS)
        return "a list" if word.isdigit() else f"`{word}`"
    return "the returned value" if name == RESULT else "a value" if is_generated(name) else f"`{name}`"


# --- lists and dicts that blocks change ---------------------------------------------------------------------------

_ITEMS = "~items "
"""Begins the name under which the items of a list or dict are variables."""


class _Containers:
    """Lists and dicts that blocks change, by the names under which their items are variables."""

    def __init__(self, cells: Cells) -> None:
        self._words = {id(value): name for name, value in read(cells).items() if not is_generated(name)}
        self.by_name: dict[str, Any] = {}
        self._lines: dict[str, str] = {}

    def shown(self, name: str) -> str:
        """Return a list or dict as messages name it, with the line that changes it."""
        return f"{shown_name(name)}, which changes at {self._lines[name]},"

    def add(self, changes: Changes) -> list[str]:
        """Add the containers that changed, and return the names of those that were not known."""
        known = {id(container) for container in self.by_name.values()}
        names = []
        for key, change in changes.items():
            if key not in known:
                names.append(f"{_ITEMS}{self._words.get(key, len(self.by_name))}")
                self.by_name[names[-1]], self._lines[names[-1]] = change.container, change.line
        return names

    def read(self) -> Values:
        """Return the items of all."""
        return {name: copy_of(container) for name, container in self.by_name.items()}

    def with_kept(self, name: str, value: Any, made: Mapping[int, Any]) -> tuple[Any, list[Any]]:
        """Return a value of a name with the containers that were not `made` in a block as objects, and those."""
        container = self.by_name.get(name)
        return with_kept(value, made) if container is None else items_with_kept(container, made)

    def write(self, values: Values) -> Values:
        """Set the items that are among values of variables; return the other values."""
        for name, container in self.by_name.items():
            if name in values:
                replace_items(container, values[name])
        return {name: value for name, value in values.items() if name not in self.by_name}

    def change(self, values: Values) -> Values:
        """Do the same for good: the blocks around give the items back."""
        for container in self.by_name.values():
            note_change(container)
        return self.write(values)


def joined_aval(one: Aval, other: Aval) -> Aval | None:
    """Return the type of values of two types, as an addition promotes them; None if the shapes differ."""
    if one.shape != other.shape:
        return None
    dtype, weak = dtypes.promote((one.dtype, one.weak), (other.dtype, other.weak))
    return Aval(one.shape, dtype, weak, one.vma | other.vma)


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two leaves are one value that Python knows."""
    if one is other:
        return True
    return type(one) is type(other) and type(one) in (*PYTHON_SCALARS, str, bytes) and repr(one) == repr(other)


def _with_outputs(program: Program, recipe: Sequence[tuple[int | None, Aval]]) -> Program:
    """Return the program with the outputs of the recipe: each one of its own, converted to a type, or zeros."""
    if len(recipe) == len(program.outputs) and all(place == number and aval == program.out_avals[number]
                                                   for number, (place, aval) in enumerate(recipe)):
        return program
    def build(*values: Any) -> tuple[list[Any], None]:
        outputs = apply_equations(program, values)
        return [zeros(aval) if place is None else cast_to(outputs[place], aval) for place, aval in recipe], None

    made = derive(program, ("control flow", tuple(recipe)), build, program.in_avals).program
    return made.replace(captured=program.captured) if program.captured else made


# --- branches -------------------------------------------------------------------------------------------------------


class _Side(NamedTuple):
    """A traced side: the values that it leaves, and in `kept` those that hold lists or dicts from before, as objects.

    `outer` are these objects; `places` are the numbers of the outputs, by the identity of the flat value and the leaf.
    `shared` are the arrays from before that an array may be, by the name and the number of the leaf.
    """

    traced: TracedCall
    values: dict[str, Flat | None]
    kept: dict[str, Flat]
    outer: dict[str, list[Any]]
    places: dict[tuple[int, int], int]
    shared: dict[tuple[str, int], list[Any]]


class _Traced:
    """The function of a block, as tracing shows it: the user's, with the changing variables as parameters."""

    def __init__(self, function: FunctionType, names: Sequence[str] = ()) -> None:
        self.__name__, self.__code__ = function.__name__, function.__code__
        self.__closure__, self.__defaults__ = function.__closure__, None
        kind = inspect.Parameter.POSITIONAL_ONLY
        self.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])

    def __call__(self) -> None:
        raise AssertionError("never called")

    def forget_variables(self) -> None:
        """Drop the variables: recordings outlive the block, and would keep what they hold."""
        self.__closure__ = None


_Result = Callable[[], tuple[Values, Left]]


def _trace_side(function: Callable[[], Any], result: _Result, what: str, when: str, named: Any,
                containers: _Containers) -> _Side:
    """Trace one side of a branch, which is named as the function `named`.

    `result` returns the values that it leaves, and which of their arrays others may have.

    Lists and dicts that it changes are added to `containers`, and have their items again.
    """
    values: dict[str, Flat | None] = {}
    kept: dict[str, Flat] = {}
    outer: dict[str, list[Any]] = {}
    places: dict[tuple[int, int], int] = {}
    outputs: list[Any] = []
    shared_arrays: dict[tuple[str, int], list[Any]] = {}
    around = Block("if" if what == "rest" else what, repeats=False)

    def call() -> list[Any]:
        with around:
            function()
            left, shared_in_side = result()
        containers.add(around.changed)
        found = {**left, **containers.read()}
        shared = shared_in(found.values())
        for name, value in found.items():
            values[name] = None if value is UNSET else flatten(value)
            objects, outer[name] = containers.with_kept(name, value, around.made)
            if outer[name]:
                kept[name] = flatten(objects)
            outer[name] += [each for each in containers_in(value) if id(each) in shared]
        for flat in (*values.values(), *kept.values()):
            for number, aval in enumerate(() if flat is None else flat.avals):
                if aval is not None and flat is not None:
                    places[id(flat), number] = len(outputs)
                    outputs.append(flat.leaves[number])
        for name, flat in values.items():
            if flat is not None and (name not in left or shared_in_side.is_shared(name)):
                shared_arrays.update({(name, number): sources for number, sources in shared_leaves(
                    flat.leaves, None if name in left else shared_in_side.in_items).items()})
        return outputs

    shown = _Traced(named)
    try:
        traced = trace_body(what, shown, call, [], [])
    except Exception as error:
        where = (f"code at {around.line}, which runs if {_JUMPS[when == 'true']}" if what == "rest" else
                 f"side of the `{what}` at {around.line} for a condition that is {when}")
        if not any(each.startswith("while tracing the ") for each in getattr(error, "__notes__", ())):
            error.add_note(f"while tracing the {where}; both sides are traced")
        raise
    finally:
        shown.forget_variables()
        undo(around.changed)
    return _Side(traced, values, kept, outer, places, shared_arrays)


def branch(condition: Any, then: FunctionType, other: FunctionType | None, names: Names, what: str) -> None:
    """Run one of two blocks in the program; live variables get their joint values."""
    cells = cells_of(then, other)
    owned, items = owned_arrays(cells), owned_items()
    before = read(cells)
    live = [name for name in names.live if name in cells]
    predicate = truth(condition, what)
    containers = _Containers(cells)
    sides: list[_Side] = []
    while not sides or sides[0].values.keys() != sides[1].values.keys():  # one side changes a list, and so both have it
        sides.clear()
        try:
            for function, when in ((then, "true"), (other, "false")):
                arrays = BlockArrays(cells, before, live, owned, names.stored, items)
                run = functools.partial(_run_side, function, arrays)
                leave = functools.partial(_left_values, cells, live, arrays, containers)
                sides.append(_trace_side(run, leave, what, when, then, containers))
                write(cells, before)
        finally:
            write(cells, before)
    write(cells, containers.change(_choose(what, predicate, sides, containers)))


def _run_side(function: FunctionType | None, arrays: BlockArrays) -> None:
    arrays.hold()
    if function is not None:
        function()


def _left_values(cells: Cells, live: Sequence[str], arrays: BlockArrays, containers: _Containers,
                 ) -> tuple[Values, Left]:
    shared = arrays.release(containers.by_name.values())
    return read({name: cells[name] for name in live}), shared


def _nothing() -> None:
    pass


def _run_expression(function: Callable[[], Any], arrays: BlockArrays, results: list[Any]) -> None:
    arrays.hold()
    results.append(function())


def _left_value(results: list[Any], containers: _Containers) -> tuple[Values, Left]:
    around = block.get()
    assert around is not None
    shared = not is_sole(Item(results, 0))  # a name has it too
    return {"~value": results[0]}, Left(
        lambda _: shared, shared_items([*containers.by_name.values(), *(
            change.container for change in around.changed.values())]))


def choose(what: str, condition: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """Return the value of one of two expressions, chosen in the program."""
    predicate = truth(condition, what)
    arrays = BlockArrays({}, {}, (), (), (), owned_items())
    containers = _Containers({})
    sides: list[_Side] = []
    while not sides or sides[0].values.keys() != sides[1].values.keys():
        sides.clear()
        for function, when in ((then, "true"), (other, "false")):
            results: list[Any] = []
            sides.append(_trace_side(
                functools.partial(_run_expression, function, arrays, results),
                functools.partial(_left_value, results, containers), what, when, then, containers))
    return containers.change(_choose(what, predicate, sides, containers))["~value"]


def choose_at_hand(what: str, condition: Any, one: Any, other: Any) -> Any:
    """Return one of two values, chosen in the program: a selection between scalars."""
    avals = [aval_of(each) if type(each) is Tracer else array_aval(each) for each in (one, other)]
    if _is_same(one, other) or any(aval is None or aval.shape for aval in avals):
        return choose(what, condition, lambda: one, lambda: other)
    joined = joined_aval(*avals)  # type: ignore[arg-type]
    assert joined is not None
    return _select(truth(condition, what), cast_to(one, joined), cast_to(other, joined))


def _choose(what: str, predicate: Any, sides: Sequence[_Side], containers: _Containers) -> Values:
    """Bind the choice between two traced sides; return the joint values by name."""
    then, second_side = sides
    results: Values = {}
    recipes: tuple[list[Any], list[Any]] = ([], [])
    waiting: list[tuple[str, list[Any], list[int], TreeDef]] = []
    for name in then.values:
        one, two = then.values[name], second_side.values[name]
        objects = [side.kept.get(name) for side in sides]
        if _holds_same(*objects):  # the lists from before stay the objects that they are
            one, two = objects
        if one is None and two is None:
            continue
        if one is None or two is None:
            if not is_generated(name):
                raise refuse(f"`{name}` is set only if {_case(what, one is not None)}, and it is used after. Set it on "
                             "both sides, or before")
            whole = one or two
            assert whole is not None
            one = two = whole
        if name.startswith(_ITEMS) and _lengths_differ(one, two):
            raise refuse(f"{containers.shown(name)} is {_count_items(one)} if {_case(what, True)}, and "
                         f"{_count_items(two)} otherwise. Both sides must leave as many items: choose a value first "
                         "and change the list after the block, or write into an array with x[i] = v, and "
                         "count")
        if one.structure != two.structure or any(
                (first is None) != (second is None) for first, second in zip(one.avals, two.avals, strict=True)):
            raise refuse(f"{_differing(name, what, str(one), str(two))}. {_way_for(one, two)}")
        leaves: list[Any] = []
        open_leaves = []
        for number, (first, second) in enumerate(zip(one.leaves, two.leaves, strict=True)):
            lacks = [side.values[name] is None for side in sides]
            if one.avals[number] is None:
                if not _is_equal(first, second):
                    raise refuse(f"{_differing(name, what, word_for(first), word_for(second))}. Only arrays and "
                                 f"numbers can be chosen by a traced condition{_way_for_objects(first, second)}")
                leaves.append(first)
            elif _is_same(first, second) and not any(lacks) and (
                    type(first) is not Tracer or not first.tape.closed):
                leaves.append(first)
            else:
                aval = joined_aval(one.avals[number], two.avals[number])  # type: ignore[arg-type]
                if aval is None:
                    raise refuse(f"{_differing(name, what, str(one.avals[number]), str(two.avals[number]))}. Both "
                                 "sides must give arrays of one shape")
                open_leaves.append(number)
                leaves.append(None)
                for side, flat, recipe, lack in zip(sides, (one, two), recipes, lacks, strict=True):
                    recipe.append((None if lack else side.places[id(flat), number], aval))
        waiting.append((name, leaves, open_leaves, one.structure))
    programs = [_with_outputs(side.traced.program, recipe) for side, recipe in zip(sides, recipes, strict=True)]
    out_tree = tree.structure([0] * len(recipes[0]))
    joined = join_branches(what, [_nothing, _nothing], ["true", "false"], [
        TracedCall(program, side.traced.captured, out_tree) for program, side in zip(programs, sides, strict=True)])
    outputs = iter(_bind_choice(predicate, joined.programs, joined.captured))
    for name, leaves, open_leaves, structure in waiting:
        for number in open_leaves:
            leaves[number] = mark_shared(next(outputs), [side.shared.get((name, number)) for side in sides])
        results[name] = unflatten(structure, leaves)
        stay = {id(leaf.container) for leaf in leaves if type(leaf) is Kept}
        note_choice(containers_in(results[name], stay), [
            each for side in sides for each in side.outer[name] if id(each) not in stay])
    return results


def _holds_same(one: Flat | None, two: Flat | None) -> bool:
    """Return whether two sides leave the same lists or dicts from before in the same places."""
    return one is not None and two is not None and one.structure == two.structure and all(
        first == second for first, second in zip(one.leaves, two.leaves, strict=True) if type(first) is Kept)


_JUMP = "traced `break`, `continue` or `return` came before"
_JUMPS = (f"a {_JUMP}", f"no {_JUMP}")


def _way_for(one: Flat, two: Flat) -> str:
    """Return what to write in the place of values whose structures differ."""
    if _NOTHING in (one.structure, two.structure):
        return ("In the place of None, give values of the same type, and beside them a flag: found = True on one side, "
                "and False on the other")
    if has_unknown_length(one) != has_unknown_length(two):
        return "Choose the bounds of the slice on both sides, and slice the array after the block"
    if {*_keys(one)} == {*_keys(two)} != set() and _keys(one) != _keys(two):
        return "Write the keys in one order"
    return "Both sides must give values of one structure and type"


def _keys(flat: Flat) -> list[Any]:
    value = unflatten(flat.structure, flat.leaves)
    return [*value] if type(value) is dict else []


def _way_for_objects(one: Any, two: Any) -> str:
    if callable(one) and callable(two):
        return ". Call them in the branches"
    if isinstance(one, str) and isinstance(two, str):
        return ". Choose a number, and look the text up outside of the compiled function"
    return ""


def _lengths_differ(one: Flat, two: Flat) -> bool:
    """Return whether a list has two lengths."""
    lists = [unflatten(flat.structure, flat.leaves) for flat in (one, two)]
    return type(lists[0]) is list and len(lists[0]) != len(lists[1])


def _count_items(flat: Flat) -> str:
    """Return the number of items of a list in words."""
    count = len(unflatten(flat.structure, flat.leaves))
    return f"{count} item{'s' * (count != 1)} long"


def _case(what: str, when: bool) -> str:
    return _JUMPS[when] if what == "rest" else f"the condition of this `{what}` is {'true' if when else 'false'}"


def _differing(name: str, what: str, one: str, other: str) -> str:
    """Return the sentence on a variable whose values on two sides do not fit together."""
    if name == RESULT:
        return f"the function returns {one} on one path and {other} on another, and a traced condition chooses"
    return f"{shown_name(name)} is {one} if {_case(what, True)}, and {other} otherwise"


def _bind_choice(predicate: Any, programs: Sequence[Program], captured: Sequence[Any]) -> list[Any]:
    """Bind a choice between two programs; between scalars at hand, or cheap tests, it is a selection."""
    then = programs[0]
    if not then.outputs:
        return []
    scalars = all(aval.shape == () for aval in then.out_avals)
    tests = all(aval.dtype == dtypes.bool_ for aval in then.out_avals)
    if scalars and all(not program.equations or (tests and all(
            equation.primitive in _CHEAP for equation in program.equations)) for program in programs):
        sides = [apply_equations(program, captured) for program in programs]
        return [_select(predicate, *pair) for pair in zip(*sides, strict=True)]
    return bind_branches(convert(predicate, dtypes.int32), programs[::-1], captured)


def _select(predicate: Any, then: Any, other: Any) -> Any:
    """Return one of two scalars, chosen by the predicate."""
    if aval_of(then).dtype == dtypes.bool_:
        if _is_known(other, False):
            return and_(predicate, then)
        if _is_known(then, True):
            return or_(predicate, other)
    return select_n(predicate, other, then)


def _is_known(value: Any, wanted: bool) -> bool:
    value = value.value if type(value) is Literal else value
    return isinstance(value, bool | np.bool_) and bool(value) is wanted


_CHEAP = {comparison.eq_p, comparison.ne_p, comparison.lt_p, comparison.le_p, comparison.gt_p, comparison.ge_p,
          comparison.not_p, comparison.and_p, comparison.or_p, add_p, arithmetic.sub_p, arithmetic.mul_p,
          arithmetic.neg_p, abs_p}
"""Operations that nothing is lost by computing in vain: they cost less than a branch, and warn of nothing."""


def _is_equal(one: Any, other: Any) -> bool:
    """Return whether two objects that are no arrays may stand for one."""
    if one is other:
        return True
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # noqa: BLE001  (of the user's class)
        return False


# --- loops ----------------------------------------------------------------------------------------------------------


class Counter(NamedTuple):
    """The number of turns of a `for` loop, and the item of each, by its number."""

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


class _Loop:
    def __init__(self, what: str, test: FunctionType | None, body: FunctionType, cells: Cells, before: Values,
                 names: Names, owned: set[str], items: Sequence[Any], counter: Counter | None,
                 guaranteed: bool) -> None:
        self.what, self.test, self.body, self.cells, self.before = what, test, body, cells, before
        self.others, self.items = owned - {*names.live}, items
        self.shared: dict[str, dict[int, list[Any]]] = {name: {0: [_elements_of(before[name])]} for name in names.live
                                                        if (name in cells and name not in owned and (
                                                            _is_elements(before[name])))}
        self.counter, self.line = counter, user_line()
        self.containers = _Containers(cells)
        self.names = [name for name in dict.fromkeys(names.live) if name in cells]
        self.values: dict[str, Flat | None] = {}
        self.kept: dict[str, dict[int, Any]] = {}
        self.outer: dict[str, dict[int, Any]] = {}
        for name in self.names:
            value = before[name]
            if value is UNSET and not is_generated(name) and not (guaranteed and name not in names.turn):
                raise refuse(f"`{name}` has no value before this `{what}`, whose number of turns is traced and may be "
                             f"0, and it is used later. Set `{name}` before the loop, to a value of the same type")
            self.values[name] = None if value is UNSET else self._begin(name, value)
        self.avals = {name: [*flat.avals] for name, flat in self.values.items() if flat is not None}

    def bind(self) -> Values:
        for _ in range(12):
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
                    begin.append(zeros(aval) if flat is None or name in self.missing else
                                 cast_to(flat.leaves[leaf_number], aval))
        recipe = [*enumerate([_COUNTER] * number),
                  *((place, aval) for place, aval in zip(places, self._flat_avals(), strict=True))]
        step = _with_outputs(program, recipe)
        if self.counter is None:
            assert asked is not None
            outputs = bind_while(asked.program, asked.captured, step, captured, begin)
        elif asked is None:
            outputs = bind_for(self.counter.length, step, captured, [zeros(_COUNTER), *begin])[1:]
        else:
            outputs = bind_while(asked.program, asked.captured, step, captured, [zeros(_COUNTER), *begin])[1:]
        for (name, number), output in zip(self._places(), outputs, strict=True):
            mark_shared(output, [self.shared.get(name, {}).get(number)])
        return self._values_of(outputs)

    shared: dict[str, dict[int, list[Any]]]
    """The arrays from before that the leaves of a name may be, for those that something else may have."""
    kept: dict[str, dict[int, Any]]
    """The containers from before the loop that a name has in every turn, as far as is known."""
    outer: dict[str, dict[int, Any]]
    """Those that a name may have before or after a turn only; their items are among the variables."""
    missing: frozenset[str] = frozenset()
    """Names without a value before the loop, which get one in its first turn."""

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
            parts = [leaf if aval is None else next(given)
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
        shown = _Traced(function, parameters)
        try:
            return trace_body(self.what, shown, lambda *tracers: call(tracers), avals, names,
                              [structure] * len(avals))
        finally:
            shown.forget_variables()
            write(self.cells, self.containers.write({**self.before, **items}))

    def _trace_body(self) -> tuple[Program | None, list[Any], list[int]]:
        """Trace a turn; without a program if types changed, so that it must be traced again."""
        after: dict[str, Flat | None] = {}
        places: list[int] = []
        widened: list[str] = []
        new: list[str] = []
        new_shared: list[str] = []
        counter = self.counter
        around = Block(self.what, repeats=True)

        def call(tracers: Sequence[Any]) -> list[Any]:
            outputs: list[Any] = []
            if counter is not None:
                number, *tracers = tracers
                outputs.append(add(number, Literal(1, _COUNTER)))
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
            del begin  # nothing else refers to the tracers now
            names = [name for name in self.names if name in self.cells]
            arrays = BlockArrays(self.cells, self.before, names, self.others, (), self.items)
            try:
                with around:
                    arrays.hold()
                    if counter is None:
                        self.body()
                    else:
                        self.body(counter.item(number))
                    left = arrays.release(self.containers.by_name.values())
                values = {**read({name: self.cells[name] for name in names}), **self.containers.read()}
                shared = shared_in(values.values())
                for name, value in values.items():
                    flat = after[name] = None if value is UNSET else self._after(name, value, around, widened)
                    with_others: dict[int, list[Any]] = {}
                    if flat is not None and (name not in names or left.is_shared(name)):
                        with_others = shared_leaves(flat.leaves, None if name in names else left.in_items)
                    known = self.shared.setdefault(name, {})
                    if (_is_elements(value) or name not in names) and with_others.keys() - known.keys():
                        new_shared.append(name)
                    for place, sources in with_others.items():
                        known[place] = [*known.get(place, ()), *sources]
                    self.outer.setdefault(name, {}).update({
                        id(each): each for each in containers_in(value, self.kept.get(name, {})) if id(each) in shared})
                    for leaf, aval in zip(*((flat.leaves, flat.avals) if flat else ((), ())), strict=True):
                        if aval is not None:
                            places.append(len(outputs))
                            outputs.append(leaf)
            finally:
                new.extend(self.containers.add(around.changed))
                undo(around.changed)
            return outputs

        traced = self._trace(self.body, call)
        if new:  # their items are variables from now on
            for name in new:
                begins = self.values[name] = self._begin(name, None)
                self.avals[name] = [*begins.avals]
                self.shared[name] = {number: [leaf] for number, leaf in enumerate(begins.leaves)
                                     if is_array(leaf) and not any(leaf is each for each in self.items)}
            self.names += new
        for name in widened:  # other containers come out of a turn: their items are variables from now on
            begins = self.values[name] = self._begin(name, self.before.get(name))
            self.avals[name] = [*begins.avals]
            self.shared[name] = {number: [leaf] for number, leaf in enumerate(begins.leaves) if is_array(leaf)}
        if new or widened:
            return None, [], []
        changed = bool(new_shared)
        for name in self.names:
            before, flat = self.values[name], after[name]
            if flat is None:
                if before is None and is_generated(name) and not name.startswith(_ITEMS):
                    continue  # the value of a `return` that Python knows not to run
                if before is None:
                    raise refuse(f"{shown_name(name)} has no value after a turn of this `{self.what}`, and it is used "
                                 "later. Set it before the loop")
                raise refuse(f"`{name}` is deleted in a turn of this `{self.what}`, whose number of turns is traced. "
                             "Leave it, or set it again in the turn")
            if before is None:
                self.missing |= {name}
                self.values[name], self.avals[name], changed = flat, [*flat.avals], True
                if any(aval is None for aval in flat.avals):
                    raise refuse(f"{shown_name(name)} is {flat} after this `{self.what}`, and has no value "
                                 "before. Only arrays and numbers can come out of a loop whose number of turns is "
                                 "traced")
                continue
            changed |= self._join(name, before, flat)
        return (None if changed else traced.program), traced.captured, places

    def _join(self, name: str, before: Flat, after: Flat) -> bool:
        """Join the types of a variable before and after a turn; return whether they changed."""
        if name.startswith(_ITEMS) and _lengths_differ(before, after):
            raise refuse(f"{self.containers.shown(name)} is {_count_items(before)} before a turn of this `{self.what}` "
                         f"and {_count_items(after)} after it; the number of turns is traced, so the length must stay. "
                         "Begin with an array of the greatest length, and write into it with x[i] = v")
        if before.structure != after.structure and _NOTHING in (before.structure, after.structure):
            raise refuse(f"{shown_name(name)} is {before} before a turn of this `{self.what}` and {after} after it; "
                         "the number of turns is traced, so the type must stay. In the place of None, begin with a "
                         "value of the same type, and beside it a flag: found = False")
        if has_unknown_length(before) != has_unknown_length(after):
            raise refuse(f"{shown_name(name)} is {before} before a turn of this `{self.what}` and {after} after it; "
                         "the number of turns is traced, so the type must stay. Keep the array, and the bounds in two "
                         "numbers: x[start:stop] where it is read")
        if before.structure != after.structure:
            raise refuse(f"{shown_name(name)} is {before} before a turn of this `{self.what}` and "
                         f"{after} after it; the number of turns is traced, so the structure must stay. Use an "
                         "array of fixed length, and x[i] = v")
        changed = False
        for number, (one, two) in enumerate(zip(self.avals[name], after.avals, strict=True)):
            if one is None or two is None:
                if (one is None) != (two is None) or not _is_equal(before.leaves[number], after.leaves[number]):
                    raise refuse(f"{shown_name(name)} is {word_for(before.leaves[number])} before a turn of this "
                                 f"`{self.what}` and {after} after it. Only arrays and numbers can change in a loop "
                                 "whose number of turns is traced")
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
        outer, kept, before = self.outer.setdefault(name, {}), self.kept.get(name, {}), self.values[name]
        made = {**around.made, **around.of_turn, **outer}
        known = {id(each) for container in kept.values() for each in containers_in(container)}
        while True:
            objects, found = self.containers.with_kept(name, value, made)
            others = {id(each): each for each in found if id(each) not in known}
            if not others:
                break
            made |= others
            outer |= others
        flat = flatten(objects)
        if kept and not _holds_same(before, flat):
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
                more = lt(number, convert(counter.length, _COUNTER.dtype))
            write(self.cells, self.containers.write(self._values_of(tracers)))
            with Block(self.what, repeats=True) as around:
                value = test()
            if around.changed:
                raise refuse(f"the condition of this `{self.what}` changes a list or dict, and it is traced apart from "
                             "the turn. Change it in the turn, and write the condition without the change")
            value = truth(value, self.what) if type(value) is Tracer else bool(value)
            return value if more is None else more & value
        return self._trace(test, call)


_NOTHING = tree.structure(None)
_COUNTER = Aval((), np.dtype("int64"), weak=True)
"""The type of the number of a turn: that of Python's integers."""


def _unique(names: Sequence[str]) -> list[str]:
    """Return identifiers: the names, numbered where they come again, and words for generated ones."""
    found: list[str] = []
    for name in names:
        word = name.removeprefix(_ITEMS) if shown_name(name) != "a list" else "items"
        word = word.strip("~").partition(" ")[0]
        numbered = (word if not number else f"{word}_{number}" for number in itertools.count())
        found.append(next(each for each in numbered if each not in found and (each == name or each not in names)))
    return found


# --- turns that are recorded, and forgotten if the next one turns out to be traced ----------------------------------


class Mark:
    """A place in the recordings of all current tapes, with the values of variables, to go back to."""

    def __init__(self, cells: Cells) -> None:
        self._cells, self.values = cells, read(cells)
        note_mark(self)
        self.changes: Changes = {}
        self._tapes: list[tuple[Tape, Any]] = []
        tape = current.get()
        while tape is not None:
            self._tapes.append((tape, tape.mark()))
            tape = tape.parent

    def __enter__(self) -> None:
        self._token = probes.set((*probes.get(), self.changes))

    def __exit__(self, *_: object) -> None:
        probes.reset(self._token)

    def rewind(self) -> None:
        """Forget what was recorded since, and set the variables back, and lists that changed within the mark."""
        write(self._cells, self.values)
        undo(self.changes)
        for tape, mark in self._tapes:
            tape.rewind(mark)
