"""Writing a program in blocks of `checkpoint`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from fxgrad.engine.core.program import Atom, Equation, Program, Source, Var
from fxgrad.engine.core.told import param_key
from fxgrad.engine.higher_order.checkpoint import Policy, checkpoint_p
from fxgrad.engine.ops.arithmetic import name_p

KEPT = "kept"
"""The name of values that a block keeps."""

Known = dict[Any, Program]
"""The programs of blocks, by what they do and where that stands: equal blocks hold one program, derived once."""


def in_blocks(program: Program, blocks: Sequence[tuple[int, int]], kept: Collection[Any], known: Known) -> Program:
    """The program with equations `first` to `beyond` of each block in one checkpoint, which keeps the values `kept`.

    Programs of blocks that are `known` are taken from there, others entered.
    """
    if not blocks:
        return program
    used_later = _used_later(program)
    equations: list[Equation] = []
    done = 0
    for first, beyond in blocks:
        equations += program.equations[done:first]
        part = program.equations[first:beyond]
        outputs = [var for equation in part for var in equation.outputs if used_later.get(var, -1) >= beyond]
        equations.append(_block(part, outputs, kept, known))
        done = beyond
    return program.replace(equations=[*equations, *program.equations[done:]])


def _used_later(program: Program) -> dict[Atom, int]:
    """The number of the last equation that uses a value; one beyond all for results."""
    last: dict[Atom, int] = {}
    for number, equation in enumerate(program.equations):
        last.update(dict.fromkeys(equation.inputs, number))
    last.update(dict.fromkeys(program.outputs, len(program.equations)))
    return last


def _block(part: Sequence[Equation], outputs: list[Var], kept: Collection[Any], known: Known) -> Equation:
    """One checkpoint of equations, which makes `outputs`; its program has variables of its own."""
    made = {var for equation in part for var in equation.outputs}
    inputs = [*dict.fromkeys(atom for equation in part for atom in equation.inputs
                             if type(atom) is Var and atom not in made)]
    key = _key(part, inputs, outputs, kept)
    program = known.get(key)
    if program is None:
        program = known[key] = _program(part, inputs, outputs, kept)
    return Equation(checkpoint_p, [*inputs], {"program": program, "name": "block",
                                              "policy": Policy("these names", (KEPT,))}, outputs, part[0].source)


def _key(part: Sequence[Equation], inputs: Sequence[Var], outputs: Sequence[Var], kept: Collection[Any]) -> Any:
    """What is equal for blocks that do the same at the same places of the user's code."""
    number: dict[Atom, int] = {var: place for place, var in enumerate(inputs)}
    steps = []
    for equation in part:
        for var in equation.outputs:
            number[var] = len(number)
        steps.append((equation.primitive, *param_key(equation.primitive, equation.params), _place(equation.source),
                      *(number.get(atom, atom) for atom in equation.inputs),
                      *((var.aval, var in kept) for var in equation.outputs)))
    return (*(var.aval for var in inputs), *steps, *(number[var] for var in outputs))


def _place(source: Source | None) -> Source | None:
    """The place without what is known of the single values."""
    return None if source is None else source._replace(origins=(), results=())


def _program(part: Sequence[Equation], inputs: Sequence[Var], outputs: Sequence[Var], kept: Collection[Any],
             ) -> Program:
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
    return Program([own[var] for var in inputs], equations, [own[var] for var in outputs])
