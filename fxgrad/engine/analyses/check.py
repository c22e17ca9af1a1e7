"""The verifier of programs: every variable is bound before use, and every type is the abstract rule's."""

from __future__ import annotations

from typing import Any

from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.primitive import library, output_types
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import ProgramAttribute
from fxgrad.errors import FxgradError, ProgramError

_CHECKED: ProgramAttribute[bool] = ProgramAttribute("is checked")


def check_program(program: Program) -> None:
    """Raise `ProgramError` unless `program` and the programs nested in it obey the rules of the IR.

    Inputs are distinct; each equation's inputs are bound by an input or an earlier equation; its outputs are new
    and have the types that the primitive's abstract rule gives; the program's outputs are bound; constants, if any,
    are as many as captured inputs and of their types.
    """
    bound: set[Variable] = set()
    for var in program.inputs:
        if var in bound:
            raise ProgramError(f"an input ({var.aval}) appears twice among the inputs of the program")
        bound.add(var)
    if not 0 <= program.captured <= len(program.inputs) or len(program.constants) not in (0, program.captured):
        raise ProgramError(f"the program has {len(program.inputs)} inputs, of which {program.captured} are captured, "
                           f"and {len(program.constants)} constants; as many constants as captured inputs are needed")
    for index, equation in enumerate(program.equations):
        _check_equation(program, index, equation, bound)
    for number, atom in enumerate(program.outputs):
        if not _is_bound(atom, bound):
            raise ProgramError(f"output {number} ({atom.aval}) is bound by no input and no equation\n{program}")


def _is_bound(atom: Atom, bound: set[Variable]) -> bool:
    return type(atom) is Literal or atom in bound


def _check_equation(program: Program, index: int, equation: Equation, bound: set[Variable]) -> None:
    for number, atom in enumerate(equation.inputs):
        if not _is_bound(atom, bound):
            raise _program_error(program, index, f"input {number} ({atom.aval}) is used before it is bound")
    for name, value in equation.params.items():
        if name != "fill_value" and _holds_float(value) and equation.primitive in library:
            raise _program_error(program, index,
                                 f"its parameter {name}={value!r} holds a float, where whole ones are needed")
        if equation.primitive.regions is None and _holds_program(value):
            raise _program_error(program, index, f"its parameter {name} holds a program, which nothing that walks into "
                                 "programs would find. Give the primitive regions=function(operands, **params)")
    for inner in equation.programs:
        if not _CHECKED.of(inner):
            check_program(inner)
            _CHECKED.put(inner, True)
    try:
        expected = output_types(equation.primitive, [atom.aval for atom in equation.inputs], equation.params)
    except (FxgradError, TypeError) as error:
        raise _program_error(program, index, f"its abstract rule refuses the inputs: {error}") from error
    actual = [var.aval for var in equation.outputs]
    if actual != expected:
        raise _program_error(program, index, f"its outputs are {actual}, where its abstract rule gives {expected}")
    for var in equation.outputs:
        if var in bound:
            raise _program_error(program, index, f"its output ({var.aval}) is bound already")
        bound.add(var)


def _holds_program(value: Any) -> bool:
    return isinstance(value, Program) or (isinstance(value, tuple | list) and any(map(_holds_program, value)))


def _holds_float(value: object) -> bool:
    """Return whether a parameter is a float, or a tuple that holds one: only fill values are."""
    return isinstance(value, float) or (isinstance(value, tuple) and any(map(_holds_float, value)))


def _program_error(program: Program, index: int, problem: str) -> ProgramError:
    equation = program.equations[index]
    lines = [f"equation {index} of the program ({equation.primitive}) is wrong: {problem}"]
    first = max(0, index - 2)
    for number, neighbour in enumerate(program.equations[first:index + 3], first):
        lines.append(f"  {'->' if number == index else '  '} {number}: {neighbour!r}")
    if equation.source is not None:
        lines.append(f"  at {equation.source.place} (in {equation.source.code.co_name})")
    return ProgramError("\n".join(lines))
