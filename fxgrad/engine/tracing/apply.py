"""Apply a program to values: record it again if a tape is concerned, else compute it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad.engine.core import backends
from fxgrad.engine.core.program import PRIMAL, Equation, Program
from fxgrad.engine.core.program_properties import has_effects, used_axes
from fxgrad.engine.core.sources import equation_source, in_place
from fxgrad.engine.core.walk import eval_program
from fxgrad.engine.tracing.call_cache import inline_program
from fxgrad.engine.tracing.provenance import note_provenance
from fxgrad.engine.tracing.tape import Tape, bind_equation, current, innermost_for


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
    # Not an `Interpreter`, whose hooks cost as much as recording an operation again.
    if tape is None or tape.origins is None:
        return eval_program(program, [*program.constants, *inputs], bind_equation)

    def step(equation: Equation, values: list[Any]) -> list[Any]:
        outputs = bind_equation(equation, values)
        note_provenance(outputs, PRIMAL, program, equation.outputs)
        return outputs

    note_provenance(inputs, PRIMAL, program, program.inputs[len(program.constants):])
    return eval_program(program, [*program.constants, *inputs], step)


def apply_program(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of `program`: recorded if a tape is concerned, and computed by an executor if not."""
    if current.get() is None or (innermost_for(inputs) is None and not (has_effects(program) or used_axes(program))):
        return backends.executor.execute(program, [*program.constants, *inputs] if program.constants else inputs)
    return apply_equations(program, inputs)
