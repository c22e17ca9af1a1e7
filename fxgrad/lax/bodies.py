"""Tracing the functions that control flow is given, with the errors for those that do not fit together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.arrays import Integer
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Atom, Equation, Program
from fxgrad.engine.core.regions import Region, replace_programs
from fxgrad.engine.core.walk import eval_program
from fxgrad.engine.derivation.derive import derive
from fxgrad.engine.frontend.flat import TracedCall, check_leaf, constant_name, parameter_names, trace_flat
from fxgrad.engine.higher_order.wiring import cast_outputs, cast_to, rewire
from fxgrad.engine.ops.structural import convert_element_type_p
from fxgrad.engine.ops.varying import pvary
from fxgrad.engine.tracing.provenance import is_shown, note_around
from fxgrad.engine.tracing.tape import Tape, aval_of, bind_equation, current
from fxgrad.engine.tracing.trace import inner_mode, takes_literals
from fxgrad.engine.tree import TreeDef
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, DTypeError, ShapeError, TreeError


class FlatTree(NamedTuple):
    """A container of arrays: its leaves, their types, their names, and its structure."""

    leaves: list[Any]
    avals: list[Aval]
    structure: TreeDef
    names: list[str]

    def rebuild(self, leaves: Sequence[Any]) -> Any:
        """Return the container with other leaves."""
        return tree.unflatten(self.structure, leaves)


def flatten_checked(what: str, container: Any, root: str) -> FlatTree:
    """Flatten `container`; raise `ArgumentError` for a leaf that is neither an array nor a number."""
    leaves, structure = tree.flatten(container)
    names = tree.leaf_names(container, root)
    avals = [check_leaf(leaf, what, constant_name(name)) for leaf, name in zip(leaves, names, strict=True)]
    return FlatTree(leaves, avals, structure, names)


def vary_like(flat: FlatTree, aval: Aval) -> FlatTree:
    """Return `flat` with leaves varying over the mesh axes of values of type `aval`."""
    if all(aval.vma <= own.vma for own in flat.avals):
        return flat
    leaves = [pvary(leaf, sorted(aval.vma)) for leaf in flat.leaves]
    return flat._replace(leaves=leaves, avals=[*map(aval_of, leaves)])


def check_function(what: str, function: Any, name: str) -> None:
    """Raise `ArgumentError` unless `function` is callable."""
    if not callable(function):
        raise ArgumentError(at_user_line(
            f"{what}: {name} is a {type(function).__name__}, where a function is needed. "
            f"Pass the function itself: {what}(..., {name}=f), not the value f(x)"))


def trace_body(what: str, function: Callable[..., Any], call: Callable[..., Any], avals: Sequence[Aval],
               names: Sequence[str], arguments: Sequence[TreeDef] = ()) -> TracedCall:
    """Trace `call`, which applies the user's `function` to flat tracers; values are unknown inside.

    `names` are those of the tracers in messages; `arguments` are the structures in which the function gets them, if
    it does.
    """
    traced = trace_flat(call, avals, what, function, mode=inner_mode(takes_literals()), names=lambda: names,
                        tape_class=_BodyTape, parameters=lambda: _parameters(function, arguments))
    note_around(traced.program, current.get())
    return traced


def _parameters(function: Any, arguments: Sequence[TreeDef]) -> list[str]:
    """Return a function's own names for the leaves of its arguments, which have these structures."""
    roots = parameter_names(function, len(arguments))
    return [path if root.isidentifier() else "" for structure, root in zip(arguments, roots, strict=True)
            for path in leaf_paths(structure, root)]


class _BodyTape(Tape):
    owns_inputs = True


def leaf_paths(structure: TreeDef, root: str) -> list[str]:
    """Return the names of the leaves of containers of this structure."""
    return tree.leaf_names(tree.unflatten(structure, range(structure.num_leaves)), root)


def result_paths(structure: TreeDef) -> list[str]:
    """Return the paths of the leaves of a result of this structure, such as `.mean[0]`."""
    return [path.removeprefix("result") for path in leaf_paths(structure, "result")]


def first_difference(one: TreeDef, other: TreeDef, root: str) -> str:
    """Return the first path that only one of two structures has; `root` if there is none."""
    first, second = leaf_paths(one, root), leaf_paths(other, root)
    lacking = [path for path in first if path not in second] or [path for path in second if path not in first]
    return lacking[0] if lacking else root


# --- loops ----------------------------------------------------------------------------------------------------


class LoopBody(NamedTuple):
    """The body of a loop: its program (captured, carry, entries) -> (carry, outputs), and the initial values."""

    program: Program
    captured: list[Any]
    init: list[Any]
    out_tree: TreeDef


def trace_step(what: str, function: Callable[..., Any], init: FlatTree, entries: Sequence[Aval], names: Sequence[str],
               call: Callable[[list[Any], list[Any]], Any], carry_of: Callable[[TreeDef], TreeDef],
               arguments: Sequence[TreeDef]) -> LoopBody:
    """Trace a step until the carry that it returns has the type of the carry that it takes.

    `call` takes lists of tracers for carry and entries. Weak scalars among the initial values, such as 0.0, get the
    type that the step returns. Raises `TreeError`, `ShapeError` or `DTypeError` for a carry of another type.
    """
    avals, count = list(init.avals), len(init.avals)
    program = None
    while True:
        if program is None:
            traced = trace_body(what, function, lambda *tracers: call(list(tracers[:count]), list(tracers[count:])),
                                [*avals, *entries], names, arguments)
            program = traced.program
            returned = carry_of(traced.out_tree)
            if returned != init.structure:
                _refuse_structure(what, function, init.structure, returned)
        results = program.out_avals[:count]
        wanted = [_joined_type(before, after) for before, after in zip(avals, results, strict=True)]
        if wanted == avals:
            break
        program = _of_strong_carry(program, len(traced.captured), avals, wanted)
        avals = wanted
    for before, after, name in zip(avals, results, init.names, strict=True):
        fits = before.dtype == after.dtype or (after.weak and _promote(before, after) == before.dtype)
        if before.shape != after.shape or not fits:
            _refuse_type(what, function, name, before, after)
    program = cast_outputs(program, [*avals, *program.out_avals[count:]])
    begin = [leaf if given == aval else cast_to(leaf, aval)
             for leaf, given, aval in zip(init.leaves, init.avals, avals, strict=True)]
    return LoopBody(program, traced.captured, begin, traced.out_tree)


def _of_strong_carry(program: Program, first: int, carry: Sequence[Aval], wanted: Sequence[Aval]) -> Program | None:
    """Return the program that a step records for a carry of the `wanted` types, given that for a weak `carry`.

    The carry begins with the input at `first`, after those that the step captured. None if the step is to be traced
    again, since it may record other operations.
    """
    if any(one.dtype != other.dtype or one.vma != other.vma for one, other in zip(carry, wanted, strict=True)) or (
            is_shown(current.get())):  # whose variables have the names in the function
        return None
    types = [*program.in_avals[:first], *wanted, *program.in_avals[first + len(carry):]]
    changed = [one != other for one, other in zip(program.in_avals, types, strict=True)]
    return None if _changing(program, changed) is None else _of_types(program, types)


def _changing(program: Program, changed: Sequence[bool]) -> set[Atom] | None:
    """Return the variables whose types may change if the weak inputs marked `changed` become strong.

    None if other operations may be recorded: a weak value changes its dtype, meets another one or is converted, as
    numbers are that give way to arrays, or an inner loop carries it that begins with another number.
    """
    weak: set[Atom] = {var for var, marked in zip(program.inputs, changed, strict=True) if marked}
    for equation in program.equations:
        if weak.isdisjoint(equation.inputs):
            continue
        met = equation.outputs if equation.primitive is convert_element_type_p else ()
        # A condition meets no number: it selects one.
        if not _regions_stay(equation, [atom in weak for atom in equation.inputs]) if equation.regions else len(
                {atom.aval.dtype for atom in (*equation.inputs, *met)} - {dtypes.bool_}) > 1:
            return None
        weak.update(var for var in equation.outputs if var.aval.weak)
    return weak


def _regions_stay(equation: Equation, changed: Sequence[bool]) -> bool:
    """Return whether the programs of an equation record the same operations if the marked operands become strong."""
    linked = {link.place for region in equation.regions for link in region.inputs}
    unlinked = any(marked and place not in linked for place, marked in enumerate(changed))
    if unlinked or equation.primitive.calls_user_code:
        return False
    for region in equation.regions:
        marks = [link.place >= 0 and changed[link.place] for link in region.inputs]
        found = _changing(region.program, marks)
        carried = [index for index, link in enumerate(region.inputs) if link.how == "carry"]
        after = [var for var, link in zip(region.program.outputs, region.outputs, strict=True) if link.how == "carry"]
        if region.role not in _ROLES or found is None or any(
                var in found and not marks[index] for index, var in zip(carried, after, strict=False)):
            return False
    return True


_ROLES = ("inline", "call", "recomputed", "branch", "body", "condition")
"""The roles of programs whose types follow from those of their operands."""


def _of_types(program: Program, types: Sequence[Aval]) -> Program:
    """Return `program` for inputs of other types, which differ in weakness, and so with its inner programs."""
    def step(equation: Equation, values: list[Any]) -> list[Any]:
        if equation.regions and any(
                atom.aval != aval_of(value) for atom, value in zip(equation.inputs, values, strict=True)):
            programs = [_of_operands(region, values) for region in equation.regions]
            equation = equation.replace(equation.inputs, replace_programs(
                equation.params, equation.regions, programs))
        return bind_equation(equation, values)

    return derive(program, ("types", tuple(types)), lambda *values: (
        eval_program(program, [*program.constants, *values], step), None), types).program


def _of_operands(region: Region, operands: Sequence[Any]) -> Program:
    """Return the program of a region for operands of other types, which returns the carry that it takes."""
    program = region.program
    types = [aval if link.place < 0 or aval_of(operands[link.place]).weak else aval.strong()
             for aval, link in zip(program.in_avals, region.inputs, strict=True)]
    if types == program.in_avals:
        return program
    carry = iter([aval for aval, link in zip(types, region.inputs, strict=True) if link.how == "carry"])
    program = _of_types(program, types)
    return cast_outputs(program, [next(carry) if link.how == "carry" else aval
                                  for aval, link in zip(program.out_avals, region.outputs, strict=True)])


def _joined_type(before: Aval, after: Aval) -> Aval:
    """Return the initial type: that of the carry, or if it is weak, the type that the step returns for it."""
    vma = before.vma | after.vma
    if not before.weak or before == after or before.shape != after.shape:
        return before.varying(vma)
    return Aval(before.shape, _promote(before, after), after.weak, vma)


def _promote(one: Aval, other: Aval) -> dtypes.DType:
    if one.dtype == other.dtype:
        return one.dtype
    return dtypes.promote((one.dtype, one.weak), (other.dtype, other.weak))[0]


def _refuse_structure(what: str, function: Any, taken: TreeDef, returned: TreeDef) -> None:
    name = function_name(function)
    raise TreeError(at_user_line(
        f"{what}: {name} takes a carry of one structure and returns one of another. They differ first at "
        f"{first_difference(taken, returned, 'carry')}: it takes {taken} and returns {returned}. "
        "Return the carry in the structure in which it comes"))


def _refuse_type(what: str, function: Any, path: str, before: Aval, after: Aval) -> None:
    name = function_name(function)
    if before.shape != after.shape:
        raise ShapeError(at_user_line(
            f"{what}: {path} comes to {name} as {before} and is returned as {after}; the shape must stay the same. "
            f"Return an array of shape {before.shape}, or begin with one of shape {after.shape}"))
    raise DTypeError(at_user_line(
        f"{what}: {path} comes to {name} as {before} and is returned as {after}; the dtype must stay the same. "
        f"Return it with .astype({before.dtype.name!r}), or begin with an array of {after.dtype.name}"))


# --- branches -------------------------------------------------------------------------------------------------


class JoinedBranches(NamedTuple):
    """Branches as programs of the same inputs (all captured values, operands) and outputs of joint types."""

    programs: tuple[Program, ...]
    captured: list[Any]
    out_tree: TreeDef


def join_branches(what: str, functions: Sequence[Any], names: Sequence[str],
                  branches: Sequence[TracedCall]) -> JoinedBranches:
    """Give every branch the inputs of all, and outputs of joint types; raise if the types do not match."""
    first, *rest = branches
    for function_number, branch in enumerate(rest, 1):
        if branch.out_tree != first.out_tree:
            raise TreeError(at_user_line(
                f"{what}: {names[0]} ({function_name(functions[0])}) and {names[function_number]} "
                f"({function_name(functions[function_number])}) return containers of different structures, which "
                f"differ first at {first_difference(first.out_tree, branch.out_tree, 'output')}: {first.out_tree} "
                f"and {branch.out_tree}. Return the same structure from every branch"))
    wanted = list(first.program.out_avals)
    for number, branch in enumerate(rest, 1):
        wanted = [_branch_type(what, path, names, number, one, other) for path, one, other in zip(
            leaf_paths(first.out_tree, "output"), wanted, branch.program.out_avals, strict=True)]
    captured: list[Any] = []
    places: dict[int, int] = {}
    positions = []
    for branch in branches:
        own = []
        for value in branch.captured:
            place = places.get(id(value)) if not isinstance(value, np.generic | Integer) else None
            if place is None:
                place = len(captured)
                captured.append(value)
                places[id(value)] = place
            own.append(place)
        positions.append(own)
    head = tuple(aval_of(value) for value in captured)
    programs = []
    for branch, own in zip(branches, positions, strict=True):
        operands = branch.program.in_avals[branch.program.captured:]
        wired = rewire(branch.program, (*head, *operands),
                       (*own, *range(len(head), len(head) + len(operands))))
        programs.append(cast_outputs(wired, wanted))
    return JoinedBranches(tuple(programs), captured, first.out_tree)


def _branch_type(what: str, path: str, names: Sequence[str], number: int, one: Aval, other: Aval) -> Aval:
    """Return the joint type of an output: equal types, or a weak one converted to the other."""
    if one.shape != other.shape:
        raise ShapeError(at_user_line(
            f"{what}: {path} is {one} from {names[0]} and {other} from {names[number]}; the shapes must be equal. "
            "Return arrays of the same shape from every branch"))
    if one.dtype == other.dtype:
        return Aval(one.shape, one.dtype, one.weak and other.weak, one.vma | other.vma)
    if one.weak or other.weak:
        return Aval(one.shape, _promote(one, other), one.weak and other.weak, one.vma | other.vma)
    raise DTypeError(at_user_line(
        f"{what}: {path} is {one} from {names[0]} and {other} from {names[number]}; the dtypes must be equal. "
        f"Convert one of them, for example with .astype({one.dtype.name!r})"))
