"""Which inputs of a recomputed program are tied to its cotangent, so that it does not run early."""

from __future__ import annotations

from fxgrad.engine.core.program import Equation, Program, Variable
from fxgrad.engine.core.program_properties import program_property
from fxgrad.engine.core.walk import eval_program
from fxgrad.engine.ops.structural import transpose_p

LATE, NUMBER = "late", "number"
"""Values that depend on the last input or on a tied one, and those that depend on none."""


@program_property
def inputs_to_tie(program: Program) -> frozenset[int]:
    """Return the positions of the inputs to tie to the last one, so that each operation of any cost depends on that.

    Where an operation depends neither on it nor on one that is tied, that is the smallest of those it depends on.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda w, x, g: np.sin(w.T @ x) * g)(np.ones((3, 4)), np.ones(3), np.ones(4))
    >>> inputs_to_tie(program)
    frozenset({1})
    """
    tied: set[Variable] = set()

    def step(equation: Equation, values: list[Variable | str]) -> list[Variable | str]:
        """Give what costs nothing the input that it is made of."""
        count = len(equation.outputs)
        roots = [*dict.fromkeys(value for value in values if isinstance(value, Variable))]
        if LATE not in values and tied.isdisjoint(roots):
            if not roots:
                return [NUMBER] * count
            if len(roots) == 1 and (equation.cost == (0, 0) or equation.primitive is transpose_p):
                return [roots[0]] * count
            tied.add(min(roots, key=lambda var: var.aval.nbytes))
        return [LATE] * count

    eval_program(program, [*program.inputs[:-1], LATE], step, lambda _: NUMBER)
    return frozenset(place for place, var in enumerate(program.inputs) if var in tied)
