"""Writing a program in blocks of `checkpoint`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from fxgrad.control.checkpoint import Policy, checkpoint_p
from fxgrad.core.program import Atom, Equation, Program, Var
from fxgrad.ops.arithmetic import name_p

KEPT = "kept"
"""The name of values that a block keeps."""


def in_blocks(program: Program, blocks: Sequence[tuple[int, int]], kept: Collection[Any]) -> Program:
    """The program with equations `first` to `beyond` of each block in one checkpoint, which keeps the values `kept`."""
    if not blocks:
        return program
    used_later = _used_later(program)
    equations: list[Equation] = []
    done = 0
    for first, beyond in blocks:
        equations += program.equations[done:first]
        part = program.equations[first:beyond]
        outputs = [var for equation in part for var in equation.outputs if used_later.get(var, -1) >= beyond]
        equations.append(_block(part, outputs, kept))
        done = beyond
    return program.replace(equations=[*equations, *program.equations[done:]])


def _used_later(program: Program) -> dict[Atom, int]:
    """The number of the last equation that uses a value; one beyond all for results."""
    last: dict[Atom, int] = {}
    for number, equation in enumerate(program.equations):
        last.update(dict.fromkeys(equation.inputs, number))
    last.update(dict.fromkeys(program.outputs, len(program.equations)))
    return last


def _block(part: Sequence[Equation], outputs: list[Var], kept: Collection[Any]) -> Equation:
    """One checkpoint of equations, which makes `outputs`; its program has variables of its own."""
    made = {var for equation in part for var in equation.outputs}
    inputs = [*dict.fromkeys(atom for equation in part for atom in equation.inputs
                             if type(atom) is Var and atom not in made)]
    own: dict[Atom, Var] = {var: Var(var.aval) for var in inputs}
    equations: list[Equation] = []
    for equation in part:
        results = [Var(var.aval) for var in equation.outputs]
        equations.append(Equation(equation.primitive, [own.get(atom, atom) for atom in equation.inputs],
                                  equation.params, results, equation.source))
        own.update(zip(equation.outputs, results, strict=True))
        for var in equation.outputs:
            if var in kept:
                named = Var(var.aval)
                equations.append(Equation(name_p, [own[var]], {"name": KEPT}, [named], equation.source))
                own[var] = named
    program = Program([own[var] for var in inputs], equations, [own[var] for var in outputs])
    return Equation(checkpoint_p, [*inputs], {"program": program, "name": "block",
                                              "policy": Policy("these names", (KEPT,))}, outputs, part[0].source)
