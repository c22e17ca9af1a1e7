"""Nested programs without operands that they do not use, that are numbers, or that they get twice."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from fxgrad.engine.caches import BoundedDict
from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.program import Atom, Equation, Program
from fxgrad.engine.core.program_properties import ProgramAttribute, program_property
from fxgrad.engine.core.regions import close_marks
from fxgrad.engine.derivation.simplify import live_equations
from fxgrad.engine.higher_order.groups import Marks, select_marked
from fxgrad.engine.higher_order.wiring import select_outputs
from fxgrad.engine.tracing.tracer import Tracer

InputValues = tuple[tuple[int, Any], ...]
"""Indices of removed inputs, each with its replacement: a number, the index of an equal input, or None."""

_NARROWED: ProgramAttribute[BoundedDict] = ProgramAttribute("narrowed")
_MOST_NARROWED = 64
"""The bound of variants of one program with numbers in place of operands."""


@program_property
def used_input_places(program: Program) -> frozenset[int]:
    """Return the indices of the inputs that the program uses."""
    atoms = {*program.outputs, *(atom for equation in live_equations(program) for atom in equation.inputs)}
    return frozenset(place for place, var in enumerate(program.inputs) if var in atoms)


def removable_inputs(program: Program, operands: Sequence[Any], first: int = 0) -> InputValues:
    """Return the removable inputs of `program` from `first` on, if `operands` are loop-invariant."""
    used = used_input_places(program)
    instead: list[tuple[int, Any]] = []
    kept: dict[Any, int] = {}
    for place, operand in enumerate(operands, first):
        aval = program.inputs[place].aval
        if place not in used:
            instead.append((place, None))
        elif type(operand) is Literal:
            if aval == operand.aval:
                instead.append((place, operand))
        elif type(operand) is Tracer:
            before = kept.setdefault((operand.variable, aval), place)
            if before != place:
                instead.append((place, before))
    return tuple(instead)


def remove_inputs(program: Program, instead: InputValues) -> Program:
    """Return the program without the inputs at the indices in `instead`."""
    if not instead:
        return program
    known = _NARROWED.of(program)
    if known is None:
        known = _NARROWED.put(program, BoundedDict(_MOST_NARROWED))
    result: Program | None = known.get(instead)
    if result is None:
        places = dict(instead)
        atoms: dict[Any, Any] = {program.inputs[place]: program.inputs[given] if type(given) is int else given
                                 for place, given in instead}
        equations = [equation if atoms.keys().isdisjoint(equation.inputs) else
                     equation.replace([atoms.get(atom, atom) for atom in equation.inputs])
                     for equation in live_equations(program)]
        result = known.add(instead, program.replace(
            inputs=[var for place, var in enumerate(program.inputs) if place not in places], equations=equations,
            outputs=[atoms.get(atom, atom) for atom in program.outputs],
            captured=sum(place not in places for place in range(program.captured))))
    return result


def remaining_operands(operands: Sequence[Any], instead: InputValues, first: int = 0) -> list[Any]:
    """Return the operands, which begin at the index `first`, that are not removed."""
    places = {place for place, _ in instead}
    return [operand for place, operand in enumerate(operands, first) if place not in places]


def duplicate_outputs(program: Program, first: int) -> list[int]:
    """Return for each output from `first` on the index of the first equal output, counted among them."""
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(atom, len(numbers)) for atom in program.outputs[first:]]


def wanted_outputs(body: Program, used: Sequence[bool], first: int, carried: int, also: Container[int] = ()) -> Marks:
    """Return a mask of a loop body's outputs that are needed if those that `used` marks are used after the loop.

    The first `carried` outputs are the next values of the inputs from `first` on; those in `also` are needed elsewhere.
    A carry needed only to compute itself is not wanted.
    """
    def closer(marks: Marks) -> Marks:
        places = used_input_places(select_outputs(body, marks))
        return (*(first + number in places for number in range(carried)), *marks[carried:])

    asked = tuple(flag or (number < carried and number in also) for number, flag in enumerate(used))
    return close_marks(closer, asked)


def keep_wanted_outputs(body: Program, marks: Marks, first: int, carried: int) -> Program:
    """Return a loop's body with the wanted outputs alone, and without carries that are then unused."""
    dropped = tuple((first + number, None) for number in range(carried) if not marks[number])
    return remove_inputs(select_outputs(body, marks), dropped)


def with_fewer_outputs(equation: Equation, marks: Sequence[bool], inputs: list[Atom], params: dict[str, Any],
                       ) -> Equation:
    """Return the equation with `inputs` and `params`, and only those of its outputs that are marked."""
    source = equation.source
    if source is not None and source.results:
        source = source._replace(results=tuple(select_marked(source.results, marks)))
    if source is not None and source.origins:
        source = source._replace(origins=tuple(select_marked(source.origins, marks)))
    return Equation(equation.primitive, inputs, params, select_marked(equation.outputs, marks), source)
