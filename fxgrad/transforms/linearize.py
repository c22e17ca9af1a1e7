"""Linearization and reverse mode: jvp with the tangents on a selective tape inside the tape of the primals.

Known work lands on the outer tape, tangent work on the inner one, and what the inner one captured are the
residuals. Reverse mode transposes the program of the inner tape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fxgrad.core.program import Program
from fxgrad.core.recording import TANGENTS, trace
from fxgrad.core.symbolic import Linear, Zero
from fxgrad.derivation.derive import Derived, derive
from fxgrad.derivation.simplify import without_dead_code
from fxgrad.derivation.simplifying import SimplifyingTape
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

    linear, residuals = trace(tangents_only, tangent_avals, mode=TANGENTS,
                              name="a tangent program", tape_class=SimplifyingTape)
    return outputs, residuals, Split(linear, tuple(reached))


def linearized(program: Program, wrt: tuple[bool, ...], computed: int = 0) -> Derived:
    """The program inputs -> (outputs, residuals); `extra` is the `Split` that says what to do with residuals.

    For `computed`, here and below, see `derive`.
    """
    def build(*primals: Any) -> tuple[list[Any], Split]:
        outputs, residuals, split = linearize_in_place(program, primals, wrt)
        return [*outputs, *residuals], Split(without_dead_code(split.linear), split.reached)

    return derive(program, ("linearize", wrt), build, program.in_avals, computed)


def pull_back(split: Split, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """The cotangents of the inputs linearized in, given those of the reached outputs."""
    linear = split.linear
    tangents = [Linear(aval) for aval in linear.in_avals[linear.captured:]]
    return backward(linear, [*residuals, *tangents], cotangents)[linear.captured:]
