"""Linearization and reverse mode: jvp with the tangents on a selective tape inside the tape of the primals.

Known work is recorded on the outer tape, tangent work on the inner one, and the captured values of the inner one are
the residuals. Reverse mode transposes the program of the inner tape.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from fxgrad.engine.core.primitive import MissingRule
from fxgrad.engine.core.program import Equation, Program, require_program
from fxgrad.engine.core.regions import dependent_within
from fxgrad.engine.core.symbolic import Linear, Zero
from fxgrad.engine.derivation.derive import Derived, derive
from fxgrad.engine.derivation.simplify import remove_dead_code
from fxgrad.engine.derivation.simplifying import SimplifyingTape
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.trace import TANGENTS, trace_at
from fxgrad.engine.transforms.forward import fill_zeros, has_tangent, push_forward
from fxgrad.engine.transforms.transpose import backward_pass, transpose_program
from fxgrad.errors import LinearityError


class Linearized(NamedTuple):
    """The linear half of a linearized program; the other half computes the outputs and the residuals.

    `linear` is a program (residuals, tangents) -> tangents of the outputs that `nonzero_outputs` marks; those of the
    others are zero. The residuals of `sin(x) * y` in `x` are `cos(x)` and `y`:

    >>> import numpy as np, fxgrad
    >>> program = fxgrad.make_program(lambda x, y: np.sin(x) * y)(1.0, 2.0)
    >>> known, _, half, _ = linearize_program(program, (True, False))
    >>> [equation.primitive.name for equation in known.equations], len(known.outputs)
    (['sin', 'cos', 'mul'], 3)
    >>> [equation.primitive.name for equation in half.linear.equations], half.linear.captured, half.nonzero_outputs
    (['mul', 'mul'], 2, (True,))
    """

    linear: Program
    nonzero_outputs: tuple[bool, ...]


def linearize_in_place(program: Program, primals: Sequence[Any], wrt: Sequence[bool],
               ) -> tuple[list[Any], list[Any], Linearized]:
    """Return outputs, residuals and the linear half; work without tangents is bound in the current context."""
    avals = program.in_avals
    tangent_avals = [aval for aval, marked in zip(avals, wrt, strict=True) if marked]
    outputs: list[Any] = []
    nonzero: list[bool] = []

    def tangents_only(*tangents: Any) -> list[Any]:
        primals_out, tangents_out = push_forward(program, primals, fill_zeros(avals, wrt, tangents))
        outputs.extend(primals_out)
        nonzero.extend(type(tangent) is not Zero for tangent in tangents_out)
        return [tangent for tangent in tangents_out if type(tangent) is not Zero]

    linear, residuals = trace_at(tangents_only, tangent_avals, mode=TANGENTS,
                                 name="a tangent program", tape_class=SimplifyingTape)
    return outputs, residuals, Linearized(linear, tuple(nonzero))


def linearize_program(program: Program, wrt: tuple[bool, ...], computed: int = 0) -> Derived:
    """Return the program inputs -> (outputs, residuals); `extra` is the `Linearized` that takes the residuals.

    For `computed`, here and below, see `derive`.
    """
    require_program("linearize_program", program)

    def build(*primals: Any) -> tuple[list[Any], Linearized]:
        outputs, residuals, half = linearize_in_place(program, primals, wrt)
        return [*outputs, *residuals], half._replace(linear=remove_dead_code(half.linear))

    return derive(program, ("linearize", wrt), build, program.in_avals, computed)


def pull_back(half: Linearized, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Return the cotangents of the inputs linearized in, given those of `nonzero_outputs`; None or `Zero` is zero."""
    linear = half.linear
    tangents = [Linear(aval) for aval in linear.in_avals[linear.captured:]]
    return backward_pass(linear, [*residuals, *tangents], cotangents)[linear.captured:]


def transpose_linear(program: Program, linear: tuple[bool, ...]) -> Derived:
    """Return what `transpose_program` does, also where one equation makes known and linear values.

    That of a loop or a call with both, such as the one that `jvp` of it records, cannot be transposed. A linear program
    is its own derivative, at zero, and linearizing it separates the known values, the residuals. Raises
    `LinearityError` if one of these depends on a linear input, or if the program is not linear otherwise.
    """
    try:
        return transpose_program(program, linear)
    except LinearityError:
        separated = _separate_linear(program, linear)
        if separated is None:
            raise
        return transpose_program(separated, linear)


def _separate_linear(program: Program, linear: tuple[bool, ...]) -> Program | None:
    """Return a program that is equal if `program` is linear, made of known and linear equations; None if it is not."""
    nonlinear: list[Equation] = []

    def visit(equation: Equation) -> None:
        if isinstance(equation.primitive.transpose, MissingRule) or not all(
                has_tangent(var.aval) for var in equation.outputs):
            nonlinear.append(equation)  # such as rounding, whose derivative is zero

    dependent_within(program, linear, visit)
    if nonlinear:
        return None
    known, count = linearize_program(program, linear), len(program.outputs)
    half: Linearized = known.extra
    moving = dependent_within(known.program, [*[False] * len(known.captured), *linear])
    marks = [atom in moving for atom in known.program.outputs[count:]]
    marks += [False] * (len(half.linear.inputs) - len(marks))
    if known.captured or not dependent_within(half.linear, marks).isdisjoint(half.linear.outputs):
        return None

    def build(*values: Any) -> tuple[list[Any], None]:
        at_zero = [instantiate_zeros(Zero(aval)) if marked else value
                   for value, aval, marked in zip(values, program.in_avals, linear, strict=True)]
        residuals = known(at_zero)[count:]
        tangents = apply_equations(half.linear, [*residuals, *itertools.compress(values, linear)])
        return [*map(instantiate_zeros, fill_zeros(program.out_avals, half.nonzero_outputs, tangents))], None

    derived = derive(program, ("separated", linear), build, program.in_avals)
    return None if derived.captured else derived.program
