"""What the backward pass needs of each operation of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fxgrad.engine.analyses.fusing import ALIAS, VIEW, kind_of
from fxgrad.engine.core.facts import is_effectful
from fxgrad.engine.core.primitive import NO_TANGENT
from fxgrad.engine.core.program import Atom, Equation, Program, Var
from fxgrad.engine.higher_order.groups import Marks
from fxgrad.engine.higher_order.partition import kept_always
from fxgrad.engine.transforms.joint import rules_of
from fxgrad.engine.transforms.linearize import linearized

OPERATIONS_PER_BYTE = 16
"""As how many floating-point operations the reading or writing of a byte counts.

Between what vectorised kernels of a processor reach (about 8) and what accelerators do (above 100 for products).
"""


class Need(NamedTuple):
    """Of one operation: which of its operands and results the backward pass needs, and how many bytes beside them.

    Of views the values that they are views of are meant.

    `work` is what it takes to compute it again, in floating-point operations; None if that must not be.
    """

    values: tuple[Var, ...]
    own: int
    work: float | None


def needs(program: Program, wrt: Marks) -> list[Need]:
    """The needs of the equations of `program`, differentiated in the inputs that `wrt` marks.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda x: np.sin(x) * 2.0)(np.ones(3))
    >>> [(len(need.values), need.own) for need in needs(program, (True,))]  # cos(x) is kept in the place of x
    [(0, 24), (0, 0)]
    """
    origin = origins(program)
    active: set[Atom] = {var for var, marked in zip(program.inputs, wrt, strict=True) if marked}
    found = []
    for equation in program.equations:
        values: tuple[Var, ...] = ()
        own = 0
        if not active.isdisjoint(equation.inputs) and equation.primitive.jvp is not NO_TANGENT:
            given = {atom: atom for atom in equation.inputs if type(atom) is Var}
            marks = tuple(atom in active for atom in given)
            forward, reached = _forward(equation, given, marks)
            values, own = _residuals(equation, [*given], forward)
            values = tuple(dict.fromkeys(origin.get(var, var) for var in values))  # type: ignore[misc]
            active.update(var for var, each in zip(equation.outputs, reached, strict=True) if each)
        found.append(Need(values, own, work(equation)))
    return found


def origins(program: Program) -> dict[Atom, Atom]:
    """What is a view of another value, which takes no memory, and that value."""
    origin: dict[Atom, Atom] = {}
    for equation in program.equations:
        if is_view(equation):
            origin.update(dict.fromkeys(equation.outputs, origin.get(equation.inputs[0], equation.inputs[0])))
    return origin


def is_view(equation: Equation) -> bool:
    """Whether an operation makes another shape, another order or a part of its operand, without a copy."""
    return kind_of(equation) in (ALIAS, VIEW) and bool(equation.inputs)


def work(equation: Equation) -> float | None:
    """What it takes to compute an equation again; None if that must not be."""
    if is_effectful(equation.primitive, equation.params) or kept_always.of(equation.primitive):
        return None
    if is_view(equation):
        return 0.0
    cost = equation.cost
    return float(cost.flops + OPERATIONS_PER_BYTE * cost.bytes)


def _forward(equation: Equation, given: dict[Var, Var], marks: Marks) -> tuple[Program, Sequence[bool]]:
    """The program from operands, after what it captures, to outputs and residuals; which outputs have tangents."""
    rules = rules_of(equation, given, marks)  # type: ignore[arg-type]
    if rules is not None:
        return rules.forward.program, rules.reached
    derived = linearized(Program([*given], [equation], equation.outputs), marks)
    return derived.program, derived.extra.reached


def _residuals(equation: Equation, given: list[Var], forward: Program) -> tuple[tuple[Var, ...], int]:
    count = len(equation.outputs)
    known: dict[Atom, Var] = dict(zip(forward.inputs[-len(given):], given, strict=True))
    known |= dict(zip(forward.outputs[:count], equation.outputs, strict=True))
    residuals = [*dict.fromkeys(atom for atom in forward.outputs[count:] if type(atom) is Var)]
    values = tuple(known[atom] for atom in residuals if atom in known)
    return values, sum(atom.aval.nbytes for atom in residuals if atom not in known)
