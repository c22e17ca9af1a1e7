"""The residuals of each operation of a program, and the work of recomputing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fxgrad.engine.analyses.fusing import ALIAS, VIEW, fusion_kind
from fxgrad.engine.core.primitive import NO_TANGENT
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import is_effectful
from fxgrad.engine.core.walk import eval_program
from fxgrad.engine.higher_order.groups import Marks
from fxgrad.engine.higher_order.saving import kept_always
from fxgrad.engine.transforms.joint import vjp_rule_of
from fxgrad.engine.transforms.linearize import linearize_program

OPERATIONS_PER_BYTE = 16
"""The number of floating-point operations that reading or writing a byte counts as.

It lies between the ratio of vectorised CPU kernels (about 8) and that of accelerators (above 100 for products).
"""


class ResidualCost(NamedTuple):
    """The residuals of one operation, and the cost of recomputing it.

    `values` are the operands and results that the backward pass needs; for a view, its base. `own` are the bytes that
    it needs beside them. `work` is the cost of recomputing the operation, in floating-point operations; None if that is
    not allowed.
    """

    values: tuple[Variable, ...]
    own: int
    work: float | None


def residual_costs(program: Program, wrt: Marks) -> list[ResidualCost]:
    """Return the residual costs of the equations of `program`, differentiated in the inputs that `wrt` marks.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda x: np.sin(x) * 2.0)(np.ones(3))
    >>> [(len(cost.values), cost.own) for cost in residual_costs(program, (True,))]  # cos(x) is kept in the place of x
    [(0, 24), (0, 0)]
    """
    origin = view_origins(program)
    found: list[ResidualCost] = []

    def step(equation: Equation, active: list[bool]) -> Sequence[bool]:
        """Return which results have tangents, given which operands do."""
        values: tuple[Variable, ...] = ()
        own = 0
        reached: Sequence[bool] = (False,) * len(equation.outputs)
        if any(active) and equation.primitive.jvp is not NO_TANGENT:
            marked = {atom: mark for atom, mark in zip(equation.inputs, active, strict=True) if type(atom) is Variable}
            forward, reached = _forward_program(equation, {var: var for var in marked}, (*marked.values(),))
            values, own = _residuals(equation, [*marked], forward)
            values = tuple(dict.fromkeys(origin.get(var, var) for var in values))  # type: ignore[misc]
        found.append(ResidualCost(values, own, recompute_work(equation)))
        return reached

    eval_program(program, wrt, step, lambda _: False)
    return found


def view_origins(program: Program) -> dict[Atom, Atom]:
    """Map each view, which takes no memory, to its base."""
    origin: dict[Atom, Atom] = {}

    def step(equation: Equation, inputs: list[Atom]) -> Sequence[Atom]:
        if not is_view(equation):
            return equation.outputs
        origin.update(dict.fromkeys(equation.outputs, inputs[0]))
        return [inputs[0]] * len(equation.outputs)

    eval_program(program, program.inputs, step)
    return origin


def is_view(equation: Equation) -> bool:
    """Return whether an operation reshapes, reorders or slices its operand without a copy."""
    return fusion_kind(equation) in (ALIAS, VIEW) and bool(equation.inputs)


def recompute_work(equation: Equation) -> float | None:
    """Return the work of recomputing an equation; None if that is not allowed."""
    if is_effectful(equation.primitive, equation.params) or kept_always.of(equation.primitive):
        return None
    if is_view(equation):
        return 0.0
    cost = equation.cost
    return float(cost.flops + OPERATIONS_PER_BYTE * cost.bytes)


def _forward_program(equation: Equation, given: dict[Variable, Variable], marks: Marks) -> tuple[Program,
                                                                                                 Sequence[bool]]:
    """Return the program from captured values and operands to outputs and residuals; which outputs have tangents."""
    rules = vjp_rule_of(equation, [*given], [value.aval for value in given.values()], marks)
    if rules is not None:
        return rules.forward.program, rules.nonzero_outputs
    derived = linearize_program(Program([*given], [equation], equation.outputs), marks)
    return derived.program, derived.extra.nonzero_outputs


def _residuals(equation: Equation, given: list[Variable], forward: Program) -> tuple[tuple[Variable, ...], int]:
    count = len(equation.outputs)
    known: dict[Atom, Variable] = dict(zip(forward.inputs[-len(given):], given, strict=True))
    known |= dict(zip(forward.outputs[:count], equation.outputs, strict=True))
    residuals = [*dict.fromkeys(atom for atom in forward.outputs[count:] if type(atom) is Variable)]
    values = tuple(known[atom] for atom in residuals if atom in known)
    return values, sum(atom.aval.nbytes for atom in residuals if atom not in known)
