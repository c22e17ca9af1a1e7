"""Programs in blocks of `checkpoint`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from fxgrad.engine.core.cache_keys import param_key
from fxgrad.engine.core.program import Atom, Equation, Program, Source, Variable
from fxgrad.engine.core.walk import eval_program
from fxgrad.engine.higher_order.checkpoint import checkpoint_p
from fxgrad.engine.higher_order.saving import Policy
from fxgrad.engine.ops.arithmetic import name_p

KEPT = "kept"
"""The name of values that a block keeps."""

Known = dict[Any, Program]
"""Programs of blocks by content and source lines: equal blocks share one program, derived once."""


def checkpoint_blocks(program: Program, blocks: Sequence[tuple[int, int]], kept: Collection[Any],
                      known: Known) -> Program:
    """Put equations `first` to `beyond` of each block into one checkpoint, which saves the values `kept`.

    Programs of blocks are taken from `known`, or entered there.
    """
    if not blocks:
        return program
    used_later: dict[Atom, int] = {}  # the number of the last equation that uses a value; one beyond all for results
    for number, equation in enumerate(program.equations):
        used_later.update(dict.fromkeys(equation.inputs, number))
    used_later.update(dict.fromkeys(program.outputs, len(program.equations)))
    equations: list[Equation] = []
    done = 0
    for first, beyond in blocks:
        equations += program.equations[done:first]
        part = program.equations[first:beyond]
        outputs = [var for equation in part for var in equation.outputs if used_later.get(var, -1) >= beyond]
        equations.append(_checkpoint_equation(part, outputs, kept, known))
        done = beyond
    return program.replace(equations=[*equations, *program.equations[done:]])


def _checkpoint_equation(part: Sequence[Equation], outputs: list[Variable], kept: Collection[Any],
                         known: Known) -> Equation:
    """Return a checkpoint of equations that returns `outputs`; its program has variables of its own."""
    made = {var for equation in part for var in equation.outputs}
    inputs = [*dict.fromkeys(atom for equation in part for atom in equation.inputs
                             if type(atom) is Variable and atom not in made)]
    key = _block_key(part, inputs, outputs, kept)
    program = known.get(key)
    if program is None:
        program = known[key] = _block_program(part, inputs, outputs, kept)
    return Equation(checkpoint_p, [*inputs], {"program": program, "name": "block",
                                              "policy": Policy("these names", (KEPT,))}, outputs, part[0].source)


def _block_key(part: Sequence[Equation], inputs: Sequence[Variable], outputs: Sequence[Variable],
               kept: Collection[Any]) -> Any:
    """Return a key that is equal for blocks that compute the same at the same lines of the user's code."""
    number: dict[Atom, int] = {var: place for place, var in enumerate(inputs)}
    steps = []
    for equation in part:
        for var in equation.outputs:
            number[var] = len(number)
        line = None if equation.source is None else equation.source._replace(origins=(), results=())
        steps.append((equation.primitive, *param_key(equation.primitive, equation.params), line,
                      *(number.get(atom, atom) for atom in equation.inputs),
                      *((var.aval, var in kept) for var in equation.outputs)))
    return (*(var.aval for var in inputs), *steps, *(number[var] for var in outputs))


def _block_program(part: Sequence[Equation], inputs: Sequence[Variable], outputs: Sequence[Variable],
                   kept: Collection[Any],
                   ) -> Program:
    """Return the program of a block, with variables of its own; the values `kept` are named."""
    own_inputs = [Variable(var.aval) for var in inputs]
    equations: list[Equation] = []

    def copy(equation: Equation, operands: list[Atom]) -> list[Variable]:
        results = [Variable(var.aval) for var in equation.outputs]
        equations.append(Equation(equation.primitive, operands, equation.params, results, equation.source))
        return [name(result, equation.source) if var in kept else result
                for var, result in zip(equation.outputs, results, strict=True)]

    def name(var: Variable, source: Source | None) -> Variable:
        named = Variable(var.aval)
        equations.append(Equation(name_p, [var], {"name": KEPT}, [named], source))
        return named

    own_outputs = eval_program(Program(inputs, part, outputs), own_inputs, copy)
    return Program(own_inputs, equations, own_outputs)
