"""How many bytes a program needs at once beside its arguments, if it runs in the order that it is written in."""

from __future__ import annotations

from collections.abc import Callable, Collection

from fxgrad.core.facts import fact
from fxgrad.core.program import Atom, Equation, Program, Var
from fxgrad.core.regions import Region


@fact
def peak_bytes(program: Program) -> int:
    """The most bytes of computed values that are alive at once; arguments are not counted, results are.

    Every value is dropped after its last use; an operation writes over an operand of the same type that is used no
    more, and a loop over what it carries. Compilers fuse operations and reorder them, and mostly need less.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda x: np.sum(np.exp(x) * x))(np.ones(100))
    >>> peak_bytes(program)
    808
    """
    return peak_of(program, lambda var: var.aval.nbytes)


def peak_of(program: Program, bytes_of: Callable[[Var], int], writable: Collection[Var] = ()) -> int:
    """`peak_bytes` where `bytes_of` says how many bytes a value takes, and inputs that are `writable` may be lost."""
    origin = _origins(program)
    last = _last_uses(program, origin)
    held: dict[Var, int] = dict.fromkeys(writable, 0)
    alive = peak = 0
    for number, equation in enumerate(program.equations):
        free = [atom for atom in dict.fromkeys(origin.get(atom, atom) for atom in equation.inputs)
                if isinstance(atom, Var) and atom in held and last[atom] == number]
        for var in equation.outputs:
            if var in origin:
                continue
            over = next((old for old in free if old.aval == var.aval), None)
            if over is not None:
                free.remove(over)
            held[var] = bytes_of(var) if over is None else held[over]
            alive += 0 if over is not None else held[var]
        peak = max(peak, alive + _inside(equation))
        unused = (var for var in equation.outputs if var not in last and var not in origin)
        alive -= sum(held[var] for var in (*free, *unused))
    return peak


def _origins(program: Program) -> dict[Atom, Atom]:
    """What operations that cost nothing make of a value is that value, such as another type of it."""
    origin: dict[Atom, Atom] = {}
    for equation in program.equations:
        if len(equation.inputs) == len(equation.outputs) == 1 and equation.cost == (0, 0):
            origin[equation.outputs[0]] = origin.get(equation.inputs[0], equation.inputs[0])
    return origin


def _inside(equation: Equation) -> int:
    """What the largest of the programs that an operation holds needs beside what comes in and what is carried."""
    return max(map(_of_region, equation.regions), default=0)


def _of_region(region: Region) -> int:
    program = region.program
    carried = [var for var, link in zip(program.inputs, region.inputs, strict=True) if link.how == "carry"]
    if carried:
        return peak_of(program, lambda var: var.aval.nbytes, carried)
    made = {var for var, link in zip(program.outputs, region.outputs, strict=True)  # which are the operation's own
            if link.how in ("same", "piece") and isinstance(var, Var)}
    return max(peak_bytes(program) - sum(var.aval.nbytes for var in made.difference(program.inputs)), 0)


def _last_uses(program: Program, origin: dict[Atom, Atom]) -> dict[Atom, int]:
    """The number of the last equation that uses a value; one beyond all for results."""
    last: dict[Atom, int] = {}
    for number, equation in enumerate(program.equations):
        last.update(dict.fromkeys([origin.get(atom, atom) for atom in equation.inputs], number))
    last.update(dict.fromkeys([origin.get(atom, atom) for atom in program.outputs], len(program.equations)))
    return last
