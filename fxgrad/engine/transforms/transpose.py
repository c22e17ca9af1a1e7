"""Transposition: the backward walk through the linear equations of a program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.core.primitive import MissingRule
from fxgrad.engine.core.program import PRIMAL, TRANSPOSED, Equation, Program, Variable
from fxgrad.engine.core.sources import at_source
from fxgrad.engine.core.symbolic import Linear, Zero
from fxgrad.engine.core.walk import pull_back_steps
from fxgrad.engine.derivation.derive import Derived, derive, rule_inputs
from fxgrad.engine.derivation.simplify import live_equations
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.provenance import note_provenance
from fxgrad.engine.tracing.tape import bind_equation, read_atom
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import LinearityError


def backward_pass(program: Program, inputs: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Return the cotangents of the linear inputs (marked `Linear`) of `program`; None for the other inputs.

    `cotangents` belong to the outputs; None or `Zero` is zero. Values that do not depend on a linear input are computed
    first. A zero result is a `Zero`. Raises `LinearityError` at an equation that is not linear.
    """
    note_provenance(inputs, PRIMAL, program, program.inputs)
    equations, environment = _known_part(program, inputs)
    sums: dict[Variable, Any] = {}
    with at_source("backward") as at:
        def pull_back(equation: Equation, *out_cotangents: Any) -> list[Any]:
            note_provenance(out_cotangents, TRANSPOSED, program, equation.outputs)
            at(equation)
            operands = [read_atom(environment, atom) for atom in equation.inputs]
            return _select_linear(operands, _apply(equation, [
                Zero(var.aval) if cotangent is None else cotangent
                for var, cotangent in zip(equation.outputs, out_cotangents, strict=True)], operands))

        pull_back_steps(
            sums, program.outputs,
            _select_linear([read_atom(environment, atom) for atom in program.outputs], cotangents),
            ((equation.outputs, equation.inputs, partial(pull_back, equation)) for equation in reversed(equations)),
            add)
    note_provenance([*map(sums.get, program.inputs)], TRANSPOSED, program, program.inputs)
    return [sums.get(var, Zero(var.aval)) if type(value) is Linear else None
            for var, value in zip(program.inputs, inputs, strict=True)]


def _select_linear(values: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Return the cotangents of the linear ones of `values`; None for the others, and for a symbolic zero."""
    return [cotangent if type(value) is Linear and type(cotangent) is not Zero else None
            for value, cotangent in zip(values, cotangents, strict=True)]


def _known_part(program: Program, inputs: Sequence[Any]) -> tuple[list[Equation], dict[Variable, Any]]:
    """Return the equations that depend on linear inputs, and the values of all variables that do not."""
    environment: dict[Variable, Any] = dict(zip(program.inputs, inputs, strict=True))
    linear: list[Equation] = []
    for equation in live_equations(program):
        values = [read_atom(environment, atom) for atom in equation.inputs]
        if any(type(value) is Linear for value in values):
            linear.append(equation)
            outputs: Sequence[Any] = [Linear(var.aval) for var in equation.outputs]
        else:
            outputs = bind_equation(equation, values)
        environment.update(zip(equation.outputs, outputs, strict=True))
    return linear, environment


def _apply(equation: Equation, cotangents: list[Any], inputs: list[Any]) -> Sequence[Any]:
    primitive = equation.primitive
    refused = str(primitive.transpose) if isinstance(primitive.transpose, MissingRule) else _rounds(equation, inputs)
    if refused:
        where = "" if equation.source is None else f" at line {equation.source.line}"
        raise LinearityError(at_user_line(
            f"cannot transpose {primitive}{where} ({refused}): the function is not linear in the inputs "
            "it is transposed in. Use vjp, which linearizes first, or pass the other values by closure"))
    result: Sequence[Any] = primitive.transpose(
        rule_inputs(primitive, cotangents), rule_inputs(primitive, inputs), **equation.params)
    return result


def _rounds(equation: Equation, inputs: Sequence[Any]) -> str:
    """Return what rounds numbers, if an equation makes integers or bools of linear floating-point values; else ""."""
    floats = any(type(value) is Linear and dtypes.is_inexact(value.aval.dtype) for value in inputs)
    made = equation.outputs[0].aval.dtype
    return f"its result is {made.name}" if floats and len(equation.outputs) == 1 and made.kind in "iub" else ""


def transpose_program(program: Program, linear: tuple[bool, ...]) -> Derived:
    """Return the program (nonlinear inputs, cotangents of all outputs) -> cotangents of the linear inputs."""
    others = [aval for aval, marked in zip(program.in_avals, linear, strict=True) if not marked]

    def build(*values: Any) -> tuple[list[Any], None]:
        given = iter(values[:len(others)])
        inputs = [Linear(aval) if marked else next(given)
                  for aval, marked in zip(program.in_avals, linear, strict=True)]
        cotangents = backward_pass(program, inputs, values[len(others):])
        return [instantiate_zeros(cotangent) for cotangent in cotangents if cotangent is not None], None

    return derive(program, ("transpose", linear), build, [*others, *program.out_avals])
