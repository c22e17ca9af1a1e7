"""Forward mode: every value becomes a pair of primal and tangent."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.interpreter import Interpreter
from fxgrad.engine.core.primitive import NO_TANGENT
from fxgrad.engine.core.program import PRIMAL, TANGENT, Equation, Program, Variable
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.derive import Derived, derive, rule_inputs
from fxgrad.engine.ops.structural import full, instantiate_zeros
from fxgrad.engine.tracing.provenance import is_shown, note_provenance
from fxgrad.engine.tracing.tape import aval_of, bind, current


class Dual(NamedTuple):
    """A primal and its tangent, which may be a symbolic `Zero`."""

    primal: Any
    tangent: Any


class Forward(Interpreter):
    """Applies the jvp rule of every equation that has a nonzero tangent."""

    def run(self, program: Program, inputs: Sequence[Dual]) -> list[Dual]:
        """Walk `program`; if it is shown, note which variables are primals and which tangents."""
        self._program, self._notes = program, is_shown(current.get())
        if self._notes:
            self._note(inputs, program.inputs)
        return super().run(program, inputs)

    def _note(self, duals: Sequence[Dual], variables: Sequence[Variable]) -> None:
        note_provenance([dual.primal for dual in duals], PRIMAL, self._program, variables)
        note_provenance([dual.tangent for dual in duals], TANGENT, self._program, variables)

    def equation(self, equation: Equation, inputs: list[Dual]) -> list[Dual]:
        primals, tangents = [dual.primal for dual in inputs], [dual.tangent for dual in inputs]
        primitive, params = equation.primitive, equation.params
        if primitive.jvp is NO_TANGENT or all(type(tangent) is Zero for tangent in tangents):
            outputs = bind(primitive, *primals, **params)
            duals = [Dual(output, Zero(var.aval)) for output, var in zip(outputs, equation.outputs, strict=True)]
        else:
            outputs, out_tangents = primitive.jvp(rule_inputs(primitive, primals), rule_inputs(primitive, tangents),
                                                  **params)
            duals = [Dual(output, tangent) for output, tangent in zip(outputs, out_tangents, strict=True)]
        if self._notes:
            self._note(duals, equation.outputs)
        return duals

    def literal(self, literal: Literal) -> Dual:
        return Dual(literal, Zero(literal.aval))

    def constant(self, array: Any) -> Dual:
        return Dual(array, Zero(aval_of(array)))


def push_forward(program: Program, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the outputs of `program` and their tangents, recorded or computed in the current context.

    `tangents` belong to all inputs, captured ones included, and may be `Zero`.
    """
    duals = Forward().run(program, [*itertools.starmap(Dual, zip(primals, tangents, strict=True))])
    return [dual.primal for dual in duals], [dual.tangent for dual in duals]


def has_tangent(aval: Aval) -> bool:
    """Return whether values of this type have derivatives."""
    return dtypes.is_inexact(aval.dtype)


def fill_zeros(avals: Sequence[Aval], wrt: Sequence[bool], given: Sequence[Any]) -> list[Any]:
    """Return an entry for each of `avals`: the next of `given` where `wrt` marks it, a `Zero` elsewhere."""
    remaining = iter(given)
    return [next(remaining) if chosen else Zero(aval) for aval, chosen in zip(avals, wrt, strict=True)]


ONE = "one"
"""A mark in `wrt` in place of True: the tangent is the constant 1, and no input."""


def instantiate_one(aval: Aval) -> Any:
    """Return a tangent that is 1 everywhere, in a form that simplification recognizes."""
    return full(aval.shape, 1, aval.dtype) if aval.shape else Literal(1, aval)


def is_one(tangent: Any) -> bool:
    """Return whether a given tangent, a number or an array of NumPy's or ours, is 1 everywhere."""
    if isinstance(tangent, np.ndarray | np.floating):
        return tangent.dtype.kind == "f" and tangent.size > 0 and bool((np.asarray(tangent) == 1).all())
    return type(tangent) in (int, float) and bool(tangent == 1)


def slope_program(program: Program, wrt: tuple[bool, ...], with_outputs: bool) -> Derived:
    """Return the program inputs -> ([output,] slope) of a scalar function of the one scalar that `wrt` marks."""
    def build(*primals: Any) -> tuple[list[Any], None]:
        tangents = [instantiate_one(aval) if mark else Zero(aval)
                    for aval, mark in zip(program.in_avals, wrt, strict=True)]
        outputs, slopes = push_forward(program, primals, tangents)
        return [*(outputs if with_outputs else ()), *map(instantiate_zeros, slopes)], None

    return derive(program, ("slope", wrt, with_outputs), build, program.in_avals)


def jvp_program(program: Program, wrt: tuple[bool | str, ...], computed: int = 0) -> Derived:
    """Return the program (inputs, tangents of those that `wrt` marks) -> (outputs, all their tangents).

    The tangent of an input marked `ONE` is the constant 1, which keeps nested derivatives small.
    """
    avals = program.in_avals
    given = [aval for aval, mark in zip(avals, wrt, strict=True) if mark is True]

    def build(*values: Any) -> tuple[list[Any], None]:
        tangents = fill_zeros(avals, [mark is True for mark in wrt], values[len(avals):])
        tangents = [instantiate_one(aval) if mark == ONE else tangent
                    for tangent, aval, mark in zip(tangents, avals, wrt, strict=True)]
        outputs, out_tangents = push_forward(program, values[:len(avals)], tangents)
        return [*outputs, *map(instantiate_zeros, out_tangents)], None

    return derive(program, ("jvp", wrt), build, [*avals, *given], computed)
