"""Which inputs of a program that is computed a second time are tied to what it is computed for."""

from __future__ import annotations

from fxgrad.engine.core.facts import fact
from fxgrad.engine.core.program import Atom, Program, Var
from fxgrad.engine.ops.space import transpose_p


@fact
def places_to_tie(program: Program) -> frozenset[int]:
    """The places of the inputs to tie to the last one, so that each operation of any cost depends on that.

    Where an operation depends neither on it nor on one that is tied, that is the smallest of those it depends on.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda w, x, g: np.sin(w.T @ x) * g)(np.ones((3, 4)), np.ones(3), np.ones(4))
    >>> places_to_tie(program)
    frozenset({1})
    """
    *early, last = program.inputs
    origin: dict[Atom, Var] = {var: var for var in early}  # through operations that cost nothing
    late: set[Atom] = {last}
    tied: set[Var] = set()
    for equation in program.equations:
        roots = {origin[atom] for atom in equation.inputs if atom in origin}
        if late.isdisjoint(equation.inputs) and tied.isdisjoint(roots):
            if len(roots) == 1 and (equation.cost == (0, 0) or equation.primitive is transpose_p):
                origin.update(dict.fromkeys(equation.outputs, *roots))
                continue
            if not roots:  # it is made of numbers
                continue
            tied.add(min(roots, key=lambda var: var.aval.nbytes))
        late.update(equation.outputs)
    return frozenset(place for place, var in enumerate(program.inputs) if var in tied)
