"""How many bytes a program needs at once beside its arguments, if it runs in the order that it is written in."""

from __future__ import annotations

from collections.abc import Callable

from fxgrad.core.facts import fact
from fxgrad.core.program import Atom, Equation, Program, Var


@fact
def peak_bytes(program: Program) -> int:
    """The most bytes of computed values that are alive at once; arguments are not counted, results are.

    Every value is dropped after its last use, and an operation writes over an operand of the same type that is used no
    more. Compilers fuse operations and reorder them, and mostly need less.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda x: np.sum(np.exp(x) * x))(np.ones(100))
    >>> peak_bytes(program)
    808
    """
    return peak_of(program, lambda var: var.aval.nbytes)


def peak_of(program: Program, bytes_of: Callable[[Var], int]) -> int:
    """`peak_bytes` where `bytes_of` says how many bytes a value of the program itself takes."""
    last = _last_uses(program)
    arguments = {*program.inputs}
    alive = peak = 0
    for number, equation in enumerate(program.equations):
        dying = {atom for atom in equation.inputs
                 if isinstance(atom, Var) and atom not in arguments and last[atom] == number}
        free = list(dying)
        for var in equation.outputs:
            over = next((old for old in free if old.aval == var.aval), None)
            if over is not None:
                free.remove(over)
                alive -= bytes_of(over)
            alive += bytes_of(var)
        peak = max(peak, alive + _inside(equation))
        alive -= sum(map(bytes_of, free))
        alive -= sum(bytes_of(var) for var in equation.outputs if var not in last)
    return peak


def _inside(equation: Equation) -> int:
    """What the largest of the programs that an operation holds needs beside what comes in."""
    return max((peak_bytes(region.program) for region in equation.regions), default=0)


def _last_uses(program: Program) -> dict[Atom, int]:
    """The number of the last equation that uses a value; one beyond all for results."""
    last: dict[Atom, int] = {}
    for number, equation in enumerate(program.equations):
        last.update(dict.fromkeys(equation.inputs, number))
    last.update(dict.fromkeys(program.outputs, len(program.equations)))
    return last
