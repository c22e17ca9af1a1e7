"""Linearization and reverse mode: jvp with the tangents on a selective tape inside the tape of the primals.

Known work lands on the outer tape, tangent work on the inner one, and what the inner one captured are the
residuals. Reverse mode transposes the program of the inner tape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fxgrad.core.avals import Literal
from fxgrad.core.interpreter import Derived, derive
from fxgrad.core.program import Program
from fxgrad.core.simplify import SimplifyingTape, without_dead_code
from fxgrad.core.symbolic import Linear, Zero
from fxgrad.core.tape import trace
from fxgrad.ops.space import instantiate
from fxgrad.transforms.forward import forward, spread
from fxgrad.transforms.transpose import backward


class Split(NamedTuple):
    """The tangent half of a linearization.

    `linear` is a program (residuals, tangents) -> tangents of the outputs that `reached` marks; no tangent
    reaches the others.
    """

    linear: Program
    reached: tuple[bool, ...]


def linearize_in_place(program: Program, primals: Sequence[Any], wrt: Sequence[bool],
               ) -> tuple[list[Any], list[Any], Split]:
    """Outputs, residuals and tangent program, with known work bound in the current context."""
    avals = program.in_avals
    tangent_avals = [aval for aval, marked in zip(avals, wrt, strict=True) if marked]
    outputs: list[Any] = []
    reached: list[bool] = []

    def tangents_only(*tangents: Any) -> list[Any]:
        primals_out, tangents_out = forward(program, primals, spread(avals, wrt, tangents))
        outputs.extend(primals_out)
        reached.extend(type(tangent) is not Zero for tangent in tangents_out)
        return [tangent for tangent in tangents_out if type(tangent) is not Zero]

    linear, residuals = trace(tangents_only, tangent_avals, staging=False, intern=False, literals=True,
                              name="a tangent program", tape_class=SimplifyingTape)
    return outputs, residuals, Split(linear, tuple(reached))


def linearized(program: Program, wrt: tuple[bool, ...], known: int = 0) -> Derived:
    """The program inputs -> (outputs, residuals); `extra` is the `Split` that says what to do with residuals.

    For `known`, here and below, see `derive`.
    """
    def build(*primals: Any) -> tuple[list[Any], Split]:
        outputs, residuals, split = linearize_in_place(program, primals, wrt)
        return [*outputs, *residuals], Split(without_dead_code(split.linear), split.reached)

    return derive(program, ("linearize", wrt), build, program.in_avals, known)


def vjp_program(program: Program, wrt: tuple[bool, ...]) -> Derived:
    """The joint program (inputs, cotangents of all outputs) -> (outputs, cotangents of inputs marked by `wrt`)."""
    count = len(program.inputs)

    def build(*values: Any) -> tuple[list[Any], None]:
        outputs, cotangents = _joint(program, values[:count], values[count:], wrt)
        return [*outputs, *cotangents], None

    cotangent_avals = program.out_avals
    return derive(program, ("vjp", wrt), build, [*program.in_avals, *cotangent_avals])


def grad_program(program: Program, wrt: tuple[bool, ...], with_outputs: bool, known: int = 0) -> Derived:
    """The joint program inputs -> ([outputs,] gradients), with cotangent 1 for output 0 and none for the others."""
    def build(*primals: Any) -> tuple[list[Any], None]:
        one = Literal(1, program.out_avals[0])
        cotangents = [one, *(Zero(aval) for aval in program.out_avals[1:])]
        outputs, gradients = _joint(program, primals, cotangents, wrt)
        return [*(outputs if with_outputs else ()), *gradients], None

    return derive(program, ("grad", wrt, with_outputs), build, program.in_avals, known)


def _joint(program: Program, primals: Sequence[Any], cotangents: Sequence[Any], wrt: tuple[bool, ...],
           ) -> tuple[list[Any], list[Any]]:
    outputs, residuals, split = linearize_in_place(program, primals, wrt)
    reaching = [cotangent for cotangent, reached in zip(cotangents, split.reached, strict=True) if reached]
    return outputs, list(map(instantiate, pull_back(split, residuals, reaching)))


def pull_back(split: Split, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """The cotangents of the inputs linearized in, given those of the reached outputs."""
    linear = split.linear
    tangents = [Linear(aval) for aval in linear.in_avals[linear.captured:]]
    return backward(linear, [*residuals, *tangents], cotangents)[linear.captured:]
