"""Loops and branches in the compact style: operands by their roles, and how an equation is made of them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from fxgrad.control.branch import cond_p
from fxgrad.control.loop import for_p
from fxgrad.control.scan import scan_p
from fxgrad.control.while_loop import while_p
from fxgrad.core.analysis import Analysis
from fxgrad.core.avals import Aval
from fxgrad.core.program import Equation, Program
from fxgrad.core.regions import Region
from fxgrad.show.equality import same_parameters
from fxgrad.show.forms import Form

Value = TypeVar("Value")

ROLES = {"carry": "carry", "entry": "over", "same": "consts"}
"""What operands are called by how they come to the program; `captured` are those that it captured."""


class Roles(Generic[Value]):
    """Operands by role: "captured", "consts", "carry", "over", and "" for those of branches."""

    def __init__(self) -> None:
        self.of: dict[str, list[Value]] = {}

    def add(self, role: str, value: Value) -> None:
        """One more operand of a role."""
        self.of.setdefault(role, []).append(value)

    def get(self, *roles: str) -> list[Value]:
        """The operands of these roles, one role after the other."""
        return [value for role in roles for value in self.of.get(role, ())]


class Part(NamedTuple):
    """One program of an operation: its label, and operands that it alone takes."""

    label: str
    program: Program
    own: Roles[Any]


class Block(NamedTuple):
    """An operation that holds programs, as it is written: operands before the roles, by role, programs, parameters."""

    lead: list[Any]
    shared: Roles[Any]
    parts: list[Part]
    params: dict[str, Any]


Rebuild = Callable[[Block, Callable[[Any], Aval]], "tuple[list[Any], dict[str, Any]]"]
"""From a block, and the types of its values, the inputs of the equation in order, and its parameters."""

blocks: Analysis[Rebuild | None] = Analysis("blocks", missing="conservative", default=None)
"""How equations are made of blocks; operations without an entry are written as calls, their programs under `where`."""
NAMES = {"scan": scan_p, "while": while_p, "for": for_p, "cond": cond_p}
"""What blocks begin with."""
LABELS = {"while": ("condition", "body")}
"""The labels of programs where there are several of fixed roles; branches have numbers."""
TRUTH = ("False", "True")
"""The labels of two branches that a truth value chooses between."""
CHOICE = Form("call", "i32", 1)
"""What makes the number of a branch of a truth value; it is not written there."""
INPUTS = ("captured", "consts", "", "carry", "over")
"""The roles in the order of the inputs of a program."""


@blocks.register(scan_p)
def _scan(block: Block, aval: Callable[[Any], Aval]) -> tuple[list[Any], dict[str, Any]]:
    part, = block.parts
    consts, carry, over = (block.shared.get(*roles) for roles in (("captured", "consts"), ("carry",), ("over",)))
    implied = {"length": aval(over[0]).shape[0]} if over and aval(over[0]).shape else {}
    return [*consts, *carry, *over], {
        "program": part.program, **implied, "reverse": False, "unroll": 1, **block.params,
        "num_consts": len(consts), "num_carry": len(carry)}


@blocks.register(for_p)
def _for(block: Block, _: Callable[[Any], Aval]) -> tuple[list[Any], dict[str, Any]]:
    part, = block.parts
    consts, carry = block.shared.get("captured", "consts"), block.shared.get("carry")
    return [*block.lead, *consts, *carry], {"program": part.program, **block.params, "num_consts": len(consts)}


@blocks.register(while_p)
def _while(block: Block, _: Callable[[Any], Aval]) -> tuple[list[Any], dict[str, Any]]:
    parts = {part.label: part for part in block.parts}
    condition, body = parts["condition"], parts["body"]
    before, inside = (part.own.get("captured", "consts") for part in (condition, body))
    return [*before, *inside, *block.shared.get("carry")], {
        "condition": condition.program, "body": body.program, **block.params,
        "num_condition_consts": len(before), "num_body_consts": len(inside)}


@blocks.register(cond_p)
def _cond(block: Block, _: Callable[[Any], Aval]) -> tuple[list[Any], dict[str, Any]]:
    numbers = {str(number): number for number in range(len(block.parts))} | {"False": 0, "True": 1}
    branches = sorted(block.parts, key=lambda part: numbers.get(part.label, -1))
    if [numbers.get(part.label) for part in branches] != [*range(len(branches))]:
        raise ValueError(f"the branches have the labels {', '.join(part.label for part in branches)}")
    return [*block.lead, *block.shared.get("captured", "")], {
        "branches": tuple(part.program for part in branches), **block.params}


# --- from equations -----------------------------------------------------------------------------------------------


def block_of(equation: Equation) -> Block | None:
    """An equation as a block, with the numbers of its inputs as values; None if it is to be written as a call."""
    rebuild = blocks.of(equation.primitive)
    if rebuild is None:
        return None
    regions: Sequence[Region] = equation.regions
    if any(region.program.constants for region in regions) or not _alike(regions):
        return None
    shared: Roles[int] = Roles()
    parts = [_part(number, region, regions, Roles() if number else shared) for number, region in enumerate(regions)]
    linked = {link.place for region in regions for link in region.inputs}
    lead = [place for place in range(len(equation.inputs)) if place not in linked]
    programs = [value for value in equation.params.values() if isinstance(value, Program | tuple)]
    block = Block(lead, shared, parts, {name: value for name, value in equation.params.items()
                                        if not any(value is program for program in programs)})
    for name in [*block.params]:  # those that follow from the others are left out
        fewer = block._replace(params={key: value for key, value in block.params.items() if key != name})
        if same_block(equation, fewer, rebuild):
            block = fewer
    return block if same_block(equation, block, rebuild) else None


def _alike(regions: Sequence[Region]) -> bool:
    """Whether each operand has one type for all the programs that take it."""
    types: dict[int, Aval] = {}
    return all(types.setdefault(link.place, var.aval) == var.aval for region in regions
               for link, var in zip(region.inputs, region.program.inputs, strict=True))


def _part(number: int, region: Region, regions: Sequence[Region], shared: Roles[int]) -> Part:
    own: Roles[int] = Roles()
    program = region.program
    branches = region.role == "branch"
    for place, link in enumerate(region.inputs):
        role = "captured" if place < program.captured else "" if branches else ROLES[link.how]
        alone = link.how == "same" and len(regions) > 1 and not branches
        (own if alone else shared).add(role, link.place)
    return Part(str(number) if branches else region.role if len(regions) > 1 else "", program, own)


def same_block(equation: Equation, block: Block, rebuild: Rebuild) -> bool:
    """Whether a block gives back the equation."""
    inputs, params = rebuild(block, lambda place: equation.inputs[place].aval)
    return inputs == [*range(len(equation.inputs))] and same_parameters(params, equation.params) and \
        len({part.program.captured for part in block.parts if not part.own.of}) <= 1
