"""From the syntax tree of a loop, a branch or a solver, with operands by role and programs, to its equation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxgrad.extend import Atom, Aval, Primitive, Program, Variable, primitives
from fxgrad.text.blocks import NAMES, Block, LabelledProgram, OperandsByRole, block_inputs, blocks
from fxgrad.text.expressions import Body, InputSyntax, StatementSyntax
from fxgrad.text.expressions import RoleSyntax as RolesSyntax
from fxgrad.text.parsing import WRONG_PARAMS
from fxgrad.text.syntax import Use

if TYPE_CHECKING:
    from fxgrad.text.compact_parser import Maker

Inputs = OperandsByRole[tuple[InputSyntax, Aval]]
"""The inputs of programs by role, with their types."""


def parse_block(maker: Maker, syntax: StatementSyntax) -> tuple[Primitive, list[Atom], dict[str, Any], int]:
    """Return the operation, its operands, its parameters, and its place in the text."""
    call: Any = syntax.expression
    primitive = NAMES[call.name]
    lead: list[Atom] = []
    shared: OperandsByRole[Atom] = OperandsByRole()
    inputs: Inputs = OperandsByRole()
    for number, argument in enumerate(call.arguments):
        if isinstance(argument, RolesSyntax):
            _add_operands(maker, argument.role, argument.inputs, shared, inputs)
        elif isinstance(argument, InputSyntax):
            _add_operands(maker, "", [argument], shared, inputs)
        elif number and primitive is primitives.cond and isinstance(argument, Use):
            _add_operands(maker, "", [InputSyntax(argument.name, None, argument, argument.at)], shared, inputs)
        else:
            lead.append(maker.plain(argument))
    parts = []
    for part in syntax.parts:
        own: OperandsByRole[Atom] = OperandsByRole()
        own_inputs: Inputs = OperandsByRole()
        for roles in part.roles:
            _add_operands(maker, roles.role, roles.inputs, own, own_inputs)
        given = block_inputs(primitive, part.label, own_inputs, inputs)
        captured = len(own.get("captured")) + len(shared.get("captured"))
        parts.append(LabelledProgram(part.label, _build_program(maker, part.body, given, captured), own))
    rebuild = blocks.of(primitive)
    assert rebuild is not None
    try:
        atoms, params = rebuild(Block(lead, shared, parts, maker.builder.params(call.params)), lambda atom: atom.aval)
    except WRONG_PARAMS as error:
        maker.fail(call.at, f"{call.name}: {error}")
    return primitive, atoms, params, call.at


def _add_operands(maker: Maker, role: str, given: Sequence[InputSyntax], operands: OperandsByRole[Atom],
                  inputs: Inputs) -> None:
    """Add the operands of a role, and the inputs that they are."""
    for each in given:
        if role == "given":
            if each.aval is None:
                maker.fail(each.at, f"given({each.name}) needs a type, as no operand has it: "
                                    f"given({each.name}: f32[3])")
            inputs.add(role, (each, each.aval))
            continue
        atom = maker.plain(each.operand)
        aval = atom.aval
        if role == "over":
            if not aval.shape:
                maker.fail(each.at, f"over({each.name}=...) needs an array with an axis to go along, got {aval}")
            aval = aval.without_axis(0)
        operands.add(role, atom)
        inputs.add(role, (each, each.aval or aval))


def _build_program(maker: Maker, body: Body | Use | None, given: Sequence[tuple[InputSyntax, Aval]],
                   captured: int) -> Program | None:
    if body is None:
        return None
    if isinstance(body, Use):
        return maker.builder.defined(body)
    inside = maker.inside()
    variables = [inside.bind(each.name, Variable(aval), each.at) for each, aval in given]
    outputs = inside.run(body)
    program = Program(variables, inside.equations, outputs, captured)
    inside.note(program)
    return program
