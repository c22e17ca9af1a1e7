"""Apply a program to values: record it again if a tape is concerned, else compute it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad.engine.core import backends
from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.program import PRIMAL, Equation, Program, require_program
from fxgrad.engine.core.program_properties import has_effects, memoize, used_axes
from fxgrad.engine.core.regions import dependent_variables
from fxgrad.engine.core.sources import equation_source, in_place
from fxgrad.engine.core.walk import eval_program
from fxgrad.engine.tracing.call_cache import inline_program
from fxgrad.engine.tracing.provenance import note_provenance
from fxgrad.engine.tracing.tape import Tape, bind_equation, current, innermost_for
from fxgrad.engine.tracing.tracer import Tracer


def apply_equations(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Bind every equation in turn: compute it, or record it on the tape concerned."""
    source = equation_source.get()
    if source is None or not source.scope:
        return _apply(program, inputs)
    with in_place():
        return _apply(program, inputs)


def _apply(program: Program, inputs: Sequence[Any]) -> list[Any]:
    tape = current.get()
    if tape is not None and type(tape) is Tape:
        recorded = inline_program(tape, program, [*program.constants, *inputs])
        if recorded is not None:
            return recorded
        if not tape.staging and tape.origins is None and len(program.equations) >= _MANY:
            recorded = _apply_in_parts(tape, program, [*program.constants, *inputs])
            if recorded is not None:
                return recorded
    # Not an `Interpreter`, whose hooks cost as much as recording an operation again.
    if tape is None or tape.origins is None:
        return eval_program(program, [*program.constants, *inputs], bind_equation)

    def step(equation: Equation, values: list[Any]) -> list[Any]:
        outputs = bind_equation(equation, values)
        note_provenance(outputs, PRIMAL, program, equation.outputs)
        return outputs

    note_provenance(inputs, PRIMAL, program, program.inputs[len(program.constants):])
    return eval_program(program, [*program.constants, *inputs], step)


_MANY = 8
"""Equations from which on those that concern no tape are computed together, by the executor."""


def _apply_in_parts(tape: Tape, program: Program, inputs: Sequence[Any]) -> list[Any] | None:
    """Compute what does not depend on the tape as one program, and record the rest; None if that is impossible."""
    given = tuple([type(value) is Tracer and value.tape is tape for value in inputs])
    parts = memoize(program, ("parts", given), lambda: _parts(program, given))
    if parts is None:
        return None
    known, rest, places = parts
    outside = [value for value, marked in zip(inputs, given, strict=True) if not marked]
    if innermost_for(outside) is not None:
        return None
    results = apply_program(known, outside)
    return inline_program(tape, rest, [*(inputs[place] for place in places), *results])


def _parts(program: Program, given: Sequence[bool]) -> tuple[Program, Program, list[int]] | None:
    """Return the equations that depend on no input marked in `given`, the others, and the inputs of those.

    None if fewer than `_MANY` depend on none, or an operation among them has an effect or a collective.
    """
    reached = dependent_variables(program, given)
    known: list[Equation] = []
    rest: list[Equation] = []
    for equation in program.equations:
        (known if reached.isdisjoint(equation.inputs) else rest).append(equation)
    if len(known) < _MANY:
        return None
    made = {var for equation in known for var in equation.outputs}
    read: list[Any] = [*(atom for equation in rest for atom in equation.inputs), *program.outputs]
    needed = [*dict.fromkeys(atom for atom in read if type(atom) is not Literal and atom in made)]
    used = {*read}
    places = [place for place, var in enumerate(program.inputs) if var in used]
    first = Program([var for var, marked in zip(program.inputs, given, strict=True) if not marked], known, needed)
    if has_effects(first) or used_axes(first):
        return None
    return first, Program([*(program.inputs[place] for place in places), *needed], rest, program.outputs), places


def apply_program(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of `program`: recorded if a tape is concerned, and computed by an executor if not."""
    require_program("apply", program)
    if current.get() is None or (innermost_for(inputs) is None and not (has_effects(program) or used_axes(program))):
        return backends.executor.execute(program, [*program.constants, *inputs] if program.constants else inputs)
    return apply_equations(program, inputs)
