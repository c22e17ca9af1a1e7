"""Residuals: the values of a program that reverse mode saves for its backward pass."""

from __future__ import annotations

from typing import NamedTuple

from fxgrad.engine.core.program import Equation, Program, Variable
from fxgrad.engine.transforms.forward import has_tangent
from fxgrad.engine.transforms.linearize import Linearized, linearize_program


class KeptVariable(NamedTuple):
    """A saved variable of the forward program, and the equations of the tangent program that read it."""

    var: Variable
    users: list[Equation]


class Residuals(NamedTuple):
    """The `forward` program (captured values, inputs) -> (outputs, residuals), and the values that it saves.

    Its first `captured` inputs are values that the derivative closes over; the inputs of the program follow.
    """

    forward: Program
    captured: int
    kept: list[KeptVariable]


def residuals(program: Program, wrt: tuple[bool, ...] | None = None) -> Residuals | None:
    """Return the values that reverse mode saves of `program`, differentiated in the inputs that `wrt` marks.

    By default these are all arguments that have tangents. Returns None if nothing has a derivative; raises as
    derivatives do.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda x: np.sin(x) * 2.0)(np.ones(3))
    >>> [(str(each.var.aval), [str(user.primitive) for user in each.users]) for each in residuals(program).kept]
    [('f64[3]', ['mul'])]
    """
    if wrt is None:
        wrt = tuple(number >= program.captured and has_tangent(aval) for number, aval in enumerate(program.in_avals))
    if not any(wrt) or not any(map(has_tangent, program.out_avals)):
        return None
    derived = linearize_program(program.replace(constants=()) if program.constants else program, wrt)
    half: Linearized = derived.extra
    kept = [KeptVariable(atom, [equation for equation in half.linear.equations if inside in equation.inputs])
            for atom, inside in zip(derived.program.outputs[len(program.outputs):], half.linear.inputs, strict=False)
            if type(atom) is Variable]
    return Residuals(derived.program, len(derived.captured), kept)
