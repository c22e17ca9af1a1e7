"""Tracing branches that Python cannot choose: they become `cond`, or both sides run where nothing is lost by it.

Each side is traced with the cells of what it changes; then they get the results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.api.checking import check_raise
from fxgrad.engine.control_flow.blocks import (
    UNSET,
    Block,
    Cells,
    SideRaisesError,
    block,
    refuse,
    refuse_caught,
    refuse_in_try,
    undo,
)
from fxgrad.engine.control_flow.containers import fresh, made_containers, note_choice
from fxgrad.engine.control_flow.growing import Places, places_of, with_places
from fxgrad.engine.control_flow.names import RESULT, is_generated
from fxgrad.engine.control_flow.ownership import (
    BlockArrays,
    Item,
    Left,
    is_sole,
    mark_shared,
    owned_arrays,
    owned_items,
    shared_items,
    shared_leaves,
)
from fxgrad.engine.control_flow.printing import template
from fxgrad.engine.control_flow.structures import (
    NOTHING,
    Flat,
    Kept,
    OptionalParts,
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
    required,
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
from fxgrad.engine.core.avals import PYTHON_SCALARS, Aval, Literal, array_aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.program_properties import has_effects
from fxgrad.engine.frontend.flat import TracedCall
from fxgrad.engine.higher_order.branch import bind_branches
from fxgrad.engine.higher_order.checks import mark_untaken
from fxgrad.engine.higher_order.wiring import cast_to
from fxgrad.engine.ops import arithmetic, comparison
from fxgrad.engine.ops.comparison import and_, or_
from fxgrad.engine.ops.parts import abs_p
from fxgrad.engine.ops.pointwise import add_p
from fxgrad.engine.ops.select import select_n
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.tree import TreeDef
from fxgrad.lax.bodies import join_branches, trace_body


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


_Result = Callable[[], tuple[Values, Left]]


def _trace_side(function: Callable[[], Any], result: _Result, what: str, when: str, named: Any,
                containers: Containers, optional: Mapping[str, OptionalParts | Places], is_statement: bool = False,
                without_unchanged: bool = False) -> _Side:
    """Trace one side of a branch, which is named as the function `named`.

    `result` returns the values that it leaves, and which of their arrays others may have. What is `optional` of them
    may be None.

    Lists and dicts that it changes are added to `containers`, and have their items again. Their items from before are
    no outputs, if it is traced `without_unchanged`: of a long list that gets one more, that would be most of the work.
    Raises `SideRaisesError` if the side of a statement ends in a `raise`.
    """
    values: dict[str, Flat | None] = {}
    kept: dict[str, Flat] = {}
    outer: dict[str, list[Any]] = {}
    places: dict[tuple[int, int], int] = {}
    outputs: list[Any] = []
    shared_arrays: dict[tuple[str, int], list[Any]] = {}
    ends: list[Exception] = []
    around = Block("if" if what == "rest" else what, repeats=False)
    around.is_side = is_statement

    def call() -> list[Any]:
        with around:
            try:
                function()
            except Exception as error:
                if error is not around.raised:
                    raise
                ends.append(error)
                return []  # what it checked and printed before is recorded
            left, shared_in_side = result()
        containers.add(around.changed)
        found = {**left, **containers.read()}
        made, shared = {**around.made}, shared_in(found.values())
        for name in optional.keys() & found.keys():
            inside = optional[name]
            if isinstance(inside, list):
                outer[name] = [] if name not in left else [
                    each for each in (found[name],) if id(each) in shared or id(each) not in around.made]
                found[name] = with_places(found[name], inside, placeholder)
                made[id(found[name])] = found[name]
            elif found[name] is not UNSET:
                copies = {} if name in left else {id(found[name]): None}
                found[name] = as_optional(found[name], inside, placeholder, {**around.made, **copies})
        for name, value in found.items():
            values[name] = None if value is UNSET else flatten(value)
            objects, others = containers.with_kept(name, value, made)
            if others:
                kept[name] = flatten(objects)
            outer[name] = [*outer.get(name, ()), *others,
                           *(each for each in containers_in(value) if id(each) in shared)]
        unchanged = {id(leaf) for items in containers.before(around.changed) for leaf in flatten(items).leaves
                     if type(leaf) is Tracer} if without_unchanged else set()
        for flat in (*values.values(), *kept.values()):
            for number, leaf in enumerate(() if flat is None else flat.leaves):
                assert flat is not None
                if id(leaf) not in unchanged and number_type(leaf, flat.avals[number]) is not None:
                    places[id(flat), number] = len(outputs)
                    outputs.append(member_place(leaf))
        for name, flat in values.items():
            if flat is not None and (name not in left or shared_in_side.is_shared(name)):
                shared_arrays.update({(name, number): sources for number, sources in shared_leaves(
                    flat.leaves, None if name in left else shared_in_side.in_items).items()})
        return outputs

    shown = TracedFunction(named)
    try:
        traced = trace_body(what, shown, call, [], [])
    except Exception as error:
        refuse_caught("if" if what == "rest" else what, error)
        where = (f"code at {around.line}, which runs if {_JUMPS[when == 'true']}" if what == "rest" else
                 f"side of the `{what}` at {around.line} for a condition that is {when}")
        if not any(each.startswith("while tracing the ") for each in getattr(error, "__notes__", ())):
            error.add_note(f"while tracing the {where}; both sides are traced")
        raise
    finally:
        shown.forget_variables()
        undo(around.changed)
    if ends:
        raise SideRaisesError(ends[0], traced)
    return _Side(traced, values, kept, outer, places, shared_arrays)


def branch(condition: Any, then: FunctionType, other: FunctionType | None, names: Names, what: str,
           returned: bool | None = None) -> None:
    """Run one of two blocks in the program; live variables get their joint values.

    Variables may stay unset on the side after which the function has `returned`.
    """
    cells = cells_of(then, other)
    owned, items = owned_arrays(cells), owned_items()
    before = read(cells)
    live = [name for name in names.live if name in cells]
    predicate = truth(condition, what)
    containers = Containers(cells)
    sides: list[_Side] = []
    optional: dict[str, OptionalParts | Places] = {}
    raises, ends, without_unchanged = False, None, True
    for _ in tries_for(what):
        sides.clear()
        try:
            for function, when in ((then, "true"), (other, "false")):
                arrays = BlockArrays(cells, before, live, owned, names.stored, items)
                run = functools.partial(_run_side, function, arrays)
                leave = functools.partial(_left_values, cells, live, arrays, containers)
                sides.append(_trace_side(run, leave, what, when, then, containers, optional, is_statement=True,
                                         without_unchanged=without_unchanged))
                write(cells, before)
        except SideRaisesError as found:
            raises, ends = when == "true", found
            break
        finally:
            write(cells, before)
        if not _find_optional(sides, names.optional, optional) and (
                sides[0].values.keys() == sides[1].values.keys()):  # if one side changes a list, both have it
            if not (without_unchanged and _lack_outputs(sides)):
                break
            without_unchanged = False
    if ends is not None:  # the other side runs, for the values of this one are never used
        refuse_in_try("raise", type(ends.error))
        program = ends.traced.program
        programs = [program, program.replace(equations=[])]
        _bind_choice(predicate, programs if raises else programs[::-1], ends.traced.captured)
        form, values = template(f"{type(ends.error).__name__}: {ends.error}")
        check_raise(comparison.not_(predicate) if raises else predicate, type(ends.error), form, *values)
        rest = other if raises else then
        if rest is not None:
            try:
                rest()
            except Exception as error:
                refuse_caught("if" if what == "rest" else what, error)
                mark_untaken(error)
                raise
        return
    write(cells, containers.change(_choose(what, predicate, sides, containers, returned, before)))


def _lack_outputs(sides: Sequence[_Side]) -> bool:
    """Return whether a value that the sides leave differs, and is no output of one of them."""
    for values in ([side.values for side in sides], [side.kept for side in sides]):
        for name in values[0].keys() & values[1].keys():
            one, two = (each[name] for each in values)
            pairs = enumerate(zip(one.leaves, two.leaves, strict=False) if one and two else ())
            same = {number for number, pair in pairs if _is_same(*pair)}
            for flat, side in zip((one, two), sides, strict=True):
                if any(type(leaf) is Tracer and (id(flat), number) not in side.places and number not in same
                       for number, leaf in enumerate(flat.leaves if flat else ())):
                    return True
    return False


def _run_side(function: FunctionType | None, arrays: BlockArrays) -> None:
    arrays.hold()
    if function is not None:
        function()


def _left_values(cells: Cells, live: Sequence[str], arrays: BlockArrays, containers: Containers) -> tuple[Values, Left]:
    shared = arrays.release(containers.by_name.values())
    return read({name: cells[name] for name in live}), shared


def _find_optional(sides: Sequence[_Side], names: Collection[str], optional: dict[str, OptionalParts | Places]) -> bool:
    """Add the names that have None on one side, by themselves or in a part, to `optional`; return if there are any.

    So are lists that the sides leave with other numbers of items, with the places of these.
    """
    one, other = (side.values for side in sides)
    found: dict[str, OptionalParts | Places] = {
        name: inside for name in one.keys() - optional.keys() if (name in names or name.startswith(ITEMS)) and (
            inside := optional_parts(one[name], other.get(name))) is not None}
    found.update({name: places for name in one.keys() - optional.keys() - found.keys()
                  if not holds_same(*(side.kept.get(name) for side in sides)) and (
                      places := places_of(one[name], other.get(name))) is not None})
    optional.update(found)
    return bool(found)


def _nothing() -> None:
    pass


def _run_expression(function: Callable[[], Any], arrays: BlockArrays, results: list[Any], optional: bool) -> None:
    arrays.hold()
    results.append(function() if optional else required(function()))


def _left_value(results: list[Any], containers: Containers) -> tuple[Values, Left]:
    around = block.get()
    assert around is not None
    shared = not is_sole(Item(results, 0))  # a name has it too
    return {"~value": results[0]}, Left(
        lambda _: shared, shared_items([*containers.by_name.values(), *(
            change.container for change in around.changed.values())]))


def choose(what: str, condition: Any, then: Callable[[], Any], other: Callable[[], Any], *, optional: bool = False,
           ) -> Any:
    """Return the value of one of two expressions, chosen in the program; one may be None if it is `optional`."""
    predicate = truth(condition, what)
    arrays = BlockArrays({}, {}, (), (), (), owned_items())
    containers = Containers({})
    sides: list[_Side] = []
    found: dict[str, OptionalParts | Places] = {}
    for _ in tries_for(what):
        sides.clear()
        for function, when in ((then, "true"), (other, "false")):
            results: list[Any] = []
            sides.append(_trace_side(
                functools.partial(_run_expression, function, arrays, results, optional),
                functools.partial(_left_value, results, containers), what, when, then, containers, found))
        if not _find_optional(sides, ["~value"] if optional else [], found) and (
                sides[0].values.keys() == sides[1].values.keys()):
            break
    return containers.change(_choose(what, predicate, sides, containers))["~value"]


def choose_at_hand(what: str, condition: Any, one: Any, other: Any) -> Any:
    """Return one of two values, chosen in the program: a selection between scalars."""
    avals = [aval_of(each) if type(each) is Tracer else array_aval(each) for each in (one, other)]
    if _is_same(one, other) or any(aval is None or aval.shape for aval in avals):
        return choose(what, condition, lambda: one, lambda: other)
    joined = joined_aval(*avals)  # type: ignore[arg-type]
    assert joined is not None
    return _select(truth(condition, what), cast_to(one, joined), cast_to(other, joined))


def _choose(what: str, predicate: Any, sides: Sequence[_Side], containers: Containers,
            returned: bool | None = None, before: Mapping[str, Any] | None = None) -> Values:
    """Bind the choice between two traced sides; return the joint values by name.

    Only for the condition `returned` may a side leave the user's variables without values. `before` has the values of
    variables from before the block.
    """
    joined = {name: _join(name, what, sides, pair) for name in sides[0].values
              if (pair := _values_to_join(name, what, sides, containers, returned, before or {})) is not None}
    recipes = [[recipe for each in joined.values() for recipe in each.recipes[number]] for number in (0, 1)]
    programs = [with_outputs(side.traced.program, recipe) for side, recipe in zip(sides, recipes, strict=True)]
    out_tree = tree.structure([0] * len(recipes[0]))
    branches = join_branches(what, [_nothing, _nothing], ["true", "false"], [
        TracedCall(program, side.traced.captured, out_tree) for program, side in zip(programs, sides, strict=True)])
    bound = _bind_choice(predicate, branches.programs, branches.captured)
    outputs = iter(bound)
    results: Values = {}
    for name, (structure, leaves, chosen, _) in joined.items():
        for number in chosen:
            output = mark_shared(next(outputs), [side.shared.get((name, number)) for side in sides])
            leaves[number] = as_chosen(leaves[number], output)
        results[name] = unflatten(structure, leaves)
        stay = {id(leaf.container) for leaf in leaves if type(leaf) is Kept}
        given = containers_in(results[name], stay)
        sources = [each for side in sides for each in side.outer[name] if id(each) not in stay]
        note_choice(given, sources)
        if not sources and not name.startswith(ITEMS):
            for each in given:
                fresh(each)
    note_names(results, [each for each in bound if each is not predicate])
    return results


def _values_to_join(name: str, what: str, sides: Sequence[_Side], containers: Containers, returned: bool | None,
                    before: Mapping[str, Any]) -> tuple[Flat, Flat] | None:
    """Return the values of a name on two sides; None if it has none on either."""
    one, two = (side.values[name] for side in sides)
    objects = [side.kept.get(name) for side in sides]
    if holds_same(*objects):  # the lists from before stay the objects that they are
        one, two = objects
    if one is None and two is None:
        return None
    if one is None or two is None:
        if not is_generated(name) and returned is not (one is None):
            raise refuse(f"`{name}` is set only if {_case(what, one is not None)}, and it is used after. Set it on "
                         "both sides, or before")
        same = next((each for each in objects if each is not None), None)  # with the one list that it may be
        one = two = same if same is not None and _are_from_before(same, before) else one or two
    assert one is not None
    assert two is not None
    if name.startswith(ITEMS) and lengths_differ(one, two):
        raise refuse(f"{containers.shown(name)} is {count_items(one)} if {_case(what, True)}, and "
                     f"{count_items(two)} otherwise. Both sides must leave as many items: choose a value first "
                     "and change the list after the block; or begin with an array of the greatest length, write "
                     "x[n] = v and n += 1 in the place of .append(v), and read x[:n]")
    return one, two


def _are_from_before(flat: Flat, before: Mapping[str, Any]) -> bool:
    """Return whether containers that a value has as objects are no results of blocks in the one that gives it."""
    known = {id(each) for value in (*before.values(), *made_containers()) for each in containers_in(value)}
    return all(id(leaf.container) in known for leaf in flat.leaves if type(leaf) is Kept)


class _Joined(NamedTuple):
    """A value by its leaves: those that are `chosen` are outputs of two programs, which the `recipes` make."""

    structure: TreeDef
    leaves: list[Any]
    chosen: list[int]
    recipes: tuple[list[tuple[int | None, Aval]], list[tuple[int | None, Aval]]]


def _join(name: str, what: str, sides: Sequence[_Side], values: tuple[Flat, Flat]) -> _Joined:
    """Join the values of a name on two sides; raise if their structures or types do not fit together."""
    one, two = values
    avals = [*zip(one.avals, two.avals, strict=False)]
    if one.structure == two.structure:
        avals = [number_types(*each) for each in zip(one.leaves, two.leaves, avals, strict=True)]
    if one.structure != two.structure or any((first is None) != (second is None) for first, second in avals):
        raise refuse(f"{_differing(name, what, str(one), str(two))}. {_way_for(one, two)}")
    joined = _Joined(one.structure, [*one.leaves], [], ([], []))
    lacks = [side.values[name] is None for side in sides]
    for number, (first, second) in enumerate(zip(one.leaves, two.leaves, strict=True)):
        if avals[number][0] is None:
            if not is_equal(first, second):
                raise refuse(f"{_differing(name, what, word_for(first), word_for(second))}. Only arrays and "
                             f"numbers can be chosen by a traced condition{way_for_objects(first, second)}")
        elif not _is_same(first, second) or any(lacks) or (type(first) is Tracer and first.tape.closed):
            aval = joined_aval(*avals[number])  # type: ignore[arg-type]
            if aval is None:
                raise refuse(f"{_differing(name, what, *map(str, avals[number]))}. Both "
                             "sides must give arrays of one shape")
            joined.chosen.append(number)
            for side, flat, recipe, lack in zip(sides, values, joined.recipes, lacks, strict=True):
                recipe.append((None if lack else side.places[id(flat), number], aval))
    return joined


_JUMP = "traced `break`, `continue` or `return` came before"
_JUMPS = (f"a {_JUMP}", f"no {_JUMP}")


def _way_for(one: Flat, two: Flat) -> str:
    """Return what to write in the place of values whose structures differ."""
    if NOTHING in (one.structure, two.structure):
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
    if not then.outputs and not any(map(has_effects, programs)):
        return []
    scalars = all(aval.shape == () for aval in then.out_avals)
    tests = all(aval.dtype == dtypes.bool_ for aval in then.out_avals)
    if then.outputs and scalars and all(not program.equations or (tests and all(
            equation.primitive in _CHEAP for equation in program.equations)) for program in programs):
        sides = [apply_equations(program, captured) for program in programs]
        return [_select(predicate, *pair) for pair in zip(*sides, strict=True)]
    return bind_branches(predicate, programs[::-1], captured)


def _select(predicate: Any, then: Any, other: Any) -> Any:
    """Return one of two scalars, chosen by the predicate."""
    if aval_of(then).dtype == dtypes.bool_:
        if _is_known(other, False):
            return predicate if _is_known(then, True) else and_(predicate, then)
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


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two leaves are one value that Python knows."""
    if one is other:
        return True
    return type(one) is type(other) and type(one) in (*PYTHON_SCALARS, str, bytes) and repr(one) == repr(other)
