"""Loops and branches in the compact style: operands by role, and the equation of such a block."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from fxgrad.extend import Analysis, Aval, Equation, Link, Primitive, Program, Region, primitives, region_roles
from fxgrad.text.equality import same_parameters
from fxgrad.text.parameters import order_parameters

Value = TypeVar("Value")

ROLES = {"carry": "carry", "entry": "over", "same": "consts", "piece": "pieces", "inside": "given"}
"""The role of operands by the way they enter the program; `captured` are captured operands."""
ROLE_NAMES = ("captured", "consts", "given", "state", "carry", "over", "pieces", "rhs", "guess")
INPUTS = (*ROLE_NAMES[:3], "", *ROLE_NAMES[3:])
"""The roles in the order of the inputs of a program."""
OWN = ROLE_NAMES[:3]
"""The roles of operands of one program alone; those `given` are made by the operation, and are no operands."""
CONSTS = ("captured", "consts")


class OperandsByRole(Generic[Value]):
    """Operands by role: "captured", "consts", "carry", "over" and others, and "" for those of branches."""

    def __init__(self) -> None:
        self.of: dict[str, list[Value]] = {}

    def add(self, role: str, value: Value) -> None:
        """Add an operand of a role."""
        self.of.setdefault(role, []).append(value)

    def get(self, *roles: str) -> list[Value]:
        """Return the operands of these roles, one role after the other."""
        return [value for role in roles for value in self.of.get(role, ())]


class LabelledProgram(NamedTuple):
    """One program of an operation: its label, and the operands that it alone takes.

    `inputs` are the operands that the inputs of the program are, in order.
    """

    label: str
    program: Program | None
    own: OperandsByRole[Any]
    inputs: Sequence[Any] = ()


class Block(NamedTuple):
    """The written form of an operation that holds programs: first operands, operands by role, programs, parameters."""

    lead: list[Any]
    shared: OperandsByRole[Any]
    parts: list[LabelledProgram]
    params: dict[str, Any]


Rebuild = Callable[[Block, Callable[[Any], Aval]], "tuple[list[Any], dict[str, Any]]"]
"""From a block, and the types of its values, the inputs of the equation in order, and its parameters."""

blocks: Analysis[Rebuild | None] = Analysis(
    "blocks", "How an equation is made of the text of a block; others are calls, with their programs under `where`.",
    missing="conservative", default=None)
NAMES = {primitive.name: primitive
         for primitive in (primitives.scan, primitives["while"], primitives["for"], primitives.cond, primitives.sweep,
                           primitives.shard_map, primitives.custom_linear_solve, primitives.custom_root)}
"""The names that blocks begin with."""


def labels_of(primitive: Primitive) -> tuple[str, ...]:
    """Return the labels of the programs of an operation that holds several of fixed roles; branches have numbers.

    >>> labels_of(primitives["while"]), labels_of(primitives.scan)
    (('condition', 'body'), ())
    """
    roles = region_roles.of(primitive)
    return tuple(role.replace(" ", "_") for role in roles) if len(roles) > 1 else ()


takes: Analysis[Mapping[str, tuple[str, ...]]] = Analysis(
    "shared roles", "By label, the roles that a program of a block takes beside its own, where these are not all.",
    missing="conservative", default={})
takes.enter({"step": ("state",)}, primitives.sweep)
for _solver_p in (primitives.custom_linear_solve, primitives.custom_root):
    takes.enter({_label: ("rhs", "guess") if _label == "solve" else () for _label in labels_of(_solver_p)}, _solver_p)
TRUTH = ("False", "True")
"""The labels of the two branches of a bool predicate."""


def block_inputs(primitive: Primitive, label: str, own: OperandsByRole[Value],
                 shared: OperandsByRole[Value]) -> list[Value]:
    """Return the inputs of a program, in order, of an operation of this name."""
    taken = takes.of(primitive).get(label, INPUTS)
    return [value for role in INPUTS for value in (*own.get(role), *(shared.get(role) if role in taken else ()))]


@blocks.register(primitives.scan)
def _scan(block: Block, aval: Callable[[Any], Aval]) -> tuple[list[Any], dict[str, Any]]:
    part, = block.parts
    consts, carry, over = (block.shared.get(*roles) for roles in (CONSTS, ("carry",), ("over",)))
    implied = {"length": aval(over[0]).shape[0]} if over and aval(over[0]).shape else {}
    return [*consts, *carry, *over], {
        "program": part.program, **implied, "reverse": False, "unroll": 1, **block.params,
        "num_consts": len(consts), "num_carry": len(carry)}


@blocks.register(primitives.shard_map)
def _shard_map(block: Block, _: Callable[[Any], Aval]) -> tuple[list[Any], dict[str, Any]]:
    part, = block.parts
    implied = {"axis_names": block.params["mesh"].names} if "mesh" in block.params else {}
    return [*block.shared.get("captured", "pieces")], {
        "program": part.program, **implied, "check_vma": True, **block.params}


@blocks.register(primitives["for"])
def _for(block: Block, _: Callable[[Any], Aval]) -> tuple[list[Any], dict[str, Any]]:
    part, = block.parts
    consts, carry = block.shared.get(*CONSTS), block.shared.get("carry")
    return [*block.lead, *consts, *carry], {"program": part.program, **block.params, "num_consts": len(consts)}


@blocks.register(primitives["while"])
def _while(block: Block, _: Callable[[Any], Aval]) -> tuple[list[Any], dict[str, Any]]:
    (condition, body), (before, inside) = _programs_by_label(block, primitives["while"])
    return [*before, *inside, *block.shared.get("carry")], {
        "condition": condition, "body": body, **block.params,
        "num_condition_consts": len(before), "num_body_consts": len(inside)}


@blocks.register(primitives.sweep)
def _sweep(block: Block, _: Callable[[Any], Aval]) -> tuple[list[Any], dict[str, Any]]:
    (step, back), (ahead, behind) = _programs_by_label(block, primitives.sweep)
    return [*block.lead, *ahead, *behind, *block.shared.get("state", "carry")], {
        "step": step, "back": back, **block.params, "num_step_consts": len(ahead), "num_back_consts": len(behind)}


@blocks.register(primitives.custom_linear_solve)
def _linear_solve(block: Block, _: Callable[[Any], Aval]) -> tuple[list[Any], dict[str, Any]]:
    return _solver(block, primitives.custom_linear_solve, "rhs")


@blocks.register(primitives.custom_root)
def _root(block: Block, _: Callable[[Any], Aval]) -> tuple[list[Any], dict[str, Any]]:
    return _solver(block, primitives.custom_root, "guess")


def _solver(block: Block, primitive: Primitive, last: str) -> tuple[list[Any], dict[str, Any]]:
    programs, consts = _programs_by_label(block, primitive)
    return [*itertools.chain(*consts), *block.shared.get(last)], {
        "programs": programs, **block.params, "counts": tuple(map(len, consts))}


def _programs_by_label(block: Block, primitive: Primitive) -> tuple[tuple[Program | None, ...], list[list[Any]]]:
    """Return the programs in the order of their labels, and the constants of each one alone."""
    parts, needed = {part.label: part for part in block.parts}, labels_of(primitive)
    if parts.keys() != {*needed}:
        raise ValueError(f"the programs have the labels {', '.join(parts)}; {', '.join(needed)} are needed")
    ordered = [parts[label] for label in needed]
    return tuple(part.program for part in ordered), [part.own.get(*CONSTS) for part in ordered]


@blocks.register(primitives.cond)
def _cond(block: Block, _: Callable[[Any], Aval]) -> tuple[list[Any], dict[str, Any]]:
    numbers = {str(number): number for number in range(len(block.parts))} | {"False": 0, "True": 1}
    branches = sorted(block.parts, key=lambda part: numbers.get(part.label, -1))
    if [numbers.get(part.label) for part in branches] != [*range(len(branches))]:
        raise ValueError(f"the branches have the labels {', '.join(part.label for part in branches)}")
    return [*block.lead, *block.shared.get("captured", "")], {
        "branches": tuple(part.program for part in branches), **block.params}


# --- from equations -----------------------------------------------------------------------------------------------


def block_of(equation: Equation) -> Block | None:
    """Return an equation as a block, with the positions of its inputs as values; None if it is written as a call.

    Inputs that the operation itself makes have negative numbers.
    """
    rebuild = blocks.of(equation.primitive)
    if rebuild is None:
        return None
    regions: Sequence[Region] = equation.regions
    if any(region.program.constants for region in regions):
        return None
    shared: OperandsByRole[int] = OperandsByRole()
    parts = _block_programs(equation, regions, shared)
    types: dict[int, Aval] = {}  # each operand has one type in all the programs that take it
    if not all(types.setdefault(place, var.aval) == var.aval for part in parts if part.program is not None
               for place, var in zip(part.inputs, part.program.inputs, strict=True)):
        return None
    linked = {link.place for region in regions for link in region.inputs}
    lead = [place for place in range(len(equation.inputs)) if place not in linked]
    holding = {region.at[0] for region in regions}
    block = Block(lead, shared, parts, {name: value for name, value in order_parameters(
        equation.primitive, equation.params).items() if name not in holding})
    for name in [*block.params]:  # those that follow from the others are left out
        fewer = block._replace(params={key: value for key, value in block.params.items() if key != name})
        if restores_equation(equation, fewer, rebuild):
            block = fewer
    return block if restores_equation(equation, block, rebuild) else None


def part_labels(equation: Equation) -> list[str]:
    """Return the labels of the programs of an equation: by role, or by the index of a branch."""
    regions: Sequence[Region] = equation.regions
    roles = [region.role for region in regions]
    if is_chosen_by_truth(equation):
        return [*TRUTH]
    return [f"{role} {number}" if roles.count(role) > 1 else role for number, role in enumerate(roles)]


def is_chosen_by_truth(equation: Equation) -> bool:
    """Return whether an equation has two branches selected by a bool."""
    return [region.role for region in equation.regions] == ["branch"] * len(TRUTH) and (
        equation.inputs[0].aval.dtype.kind == "b")


def _block_programs(equation: Equation, regions: Sequence[Region],
                    shared: OperandsByRole[int]) -> list[LabelledProgram]:
    """Return the programs with the operands of each; shared operands are added to `shared`."""
    several = len(regions) > 1
    made = itertools.count(-1, -1)
    parts = []
    for number, region in enumerate(regions):
        own: OperandsByRole[int] = OperandsByRole()
        places: list[int] = []
        states = iter(shared.get("state"))
        branches = region.role == "branch"
        for input_place, link in enumerate(region.inputs):
            role = "captured" if input_place < region.program.captured else "" if branches else \
                _input_role(equation, region, link)
            place = link.place if link.how != "inside" else next(states) if role == "state" else next(made)
            places.append(place)
            if several and not branches and role in OWN:
                own.add(role, place)
            elif place not in shared.get(role):
                shared.add(role, place)
        label = str(number) if branches else region.role.replace(" ", "_") if several else ""
        parts.append(LabelledProgram(label, region.program, own, places))
    there = {part.label for part in parts}
    return parts + [LabelledProgram(label, None, OperandsByRole()) for label in labels_of(equation.primitive)
                    if label not in there]


def _input_role(equation: Equation, region: Region, link: Link) -> str:
    """Return the role under which the text writes an input of a program."""
    if region.role == "step" or (region.role == "back" and link.how == "inside"):
        return "state" if link.how != "same" else "consts"
    if link.how == "same" and equation.primitive in (primitives.custom_linear_solve, primitives.custom_root) and \
            link.place >= sum(equation.params["counts"]):
        return "rhs" if equation.primitive is primitives.custom_linear_solve else "guess"
    return ROLES[link.how]


def restores_equation(equation: Equation, block: Block, rebuild: Rebuild) -> bool:
    """Return whether a block gives back the equation."""
    inputs, params = rebuild(block, lambda place: equation.inputs[place].aval)
    return inputs == [*range(len(equation.inputs))] and same_parameters(params, equation.params) and \
        all([*part.inputs] == block_inputs(equation.primitive, part.label, part.own, block.shared)
            for part in block.parts
            if part.program is not None) and \
        len({part.program.captured for part in block.parts if part.program is not None and not part.own.of}) <= 1
