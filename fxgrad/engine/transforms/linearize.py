"""Linearization and reverse mode: jvp with the tangents on a selective tape inside the tape of the primals.

Known work is recorded on the outer tape, tangent work on the inner one, and the captured values of the inner one are
the residuals. Reverse mode transposes the program of the inner tape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fxgrad.engine.core.program import Program
from fxgrad.engine.core.symbolic import Linear, Zero
from fxgrad.engine.derivation.derive import Derived, derive
from fxgrad.engine.derivation.simplify import remove_dead_code
from fxgrad.engine.derivation.simplifying import SimplifyingTape
from fxgrad.engine.tracing.trace import TANGENTS, trace_at
from fxgrad.engine.transforms.forward import fill_zeros, push_forward
from fxgrad.engine.transforms.transpose import backward_pass


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
    def build(*primals: Any) -> tuple[list[Any], Linearized]:
        outputs, residuals, half = linearize_in_place(program, primals, wrt)
        return [*outputs, *residuals], half._replace(linear=remove_dead_code(half.linear))

    return derive(program, ("linearize", wrt), build, program.in_avals, computed)


def pull_back(half: Linearized, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Return the cotangents of the inputs linearized in, given those of `nonzero_outputs`; None or `Zero` is zero."""
    linear = half.linear
    tangents = [Linear(aval) for aval in linear.in_avals[linear.captured:]]
    return backward_pass(linear, [*residuals, *tangents], cotangents)[linear.captured:]
