"""The two walks through a program: forward with values, and backward with cotangents, which are summed at fan-outs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.program import Atom, Equation, Program, require_program

Step = Callable[[Equation, list[Any]], Sequence[Any]]
"""(equation, values of its inputs) -> values of its outputs."""


def eval_program(program: Program, inputs: Sequence[Any], step: Step, literal: Callable[[Literal], Any] | None = None,
         equations: Sequence[Equation] | None = None) -> list[Any]:
    """Return the values of the outputs of `program`, where `step` computes those of each equation.

    `inputs` are the values of all its inputs, captured ones first. `literal` maps a literal to its value, by default
    itself. `equations`, if given, are the ones to evaluate. Values are of whatever kind `step` returns.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> program = fxgrad.make_program(lambda x, y: fnp.sin(x) * y)(1.0, 2.0)
    >>> eval_program(program, ["x", "y"], lambda equation, values: [f"{equation.primitive}({', '.join(values)})"])
    ['mul(sin(x), y)']
    """
    try:
        environment: dict[Atom, Any] = dict(zip(program.inputs, inputs, strict=True))
    except AttributeError:
        require_program("eval_program", program)
        raise
    for equation in program.equations if equations is None else equations:
        values = [environment[atom] if type(atom) is not Literal else atom if literal is None else literal(atom)
                  for atom in equation.inputs]
        outputs = step(equation, values)
        if len(outputs) == 1:
            environment[equation.outputs[0]] = outputs[0]
        else:
            environment.update(zip(equation.outputs, outputs, strict=True))
    return [environment[atom] if type(atom) is not Literal else atom if literal is None else literal(atom)
            for atom in program.outputs]


Pullback = Callable[..., "Sequence[Any]"]
"""(cotangent of each output of an operation) -> cotangent of each operand; None stands for zero on both sides."""
BackwardStep = tuple[Sequence[Any], Sequence[Any], Pullback]
"""The outputs and the operands of an operation, which may be anything hashable, and its pullback."""


def pull_back_steps(sums: dict[Any, Any], outputs: Sequence[Any], cotangents: Sequence[Any],
                    steps: Iterable[BackwardStep], add: Callable[[Any, Any], Any]) -> None:
    """Carry the `cotangents` of `outputs` back through `steps`, the last operation first.

    `sums`, empty at first, accumulates cotangents by variable. The cotangents of an operation's outputs are removed and
    passed to its pullback, unless all are zero; those of variables that no operation computes remain at the end. `add`
    sums two cotangents. Cotangents are of whatever kind the pullbacks return.

    >>> steps = [(["c"], ["a", "b"], lambda c: [f"{c}*b", f"{c}*a"]), (["b"], ["a"], lambda b: [f"{b}*cos(a)"])]
    >>> sums = {}
    >>> pull_back_steps(sums, ["c"], ["1"], steps, lambda one, other: f"{one} + {other}")
    >>> sums
    {'a': '1*b + 1*a*cos(a)'}
    """
    remaining = iter(steps)
    operands = outputs
    while True:
        for operand, cotangent in zip(operands, cotangents, strict=True):
            if cotangent is not None:
                before = sums.get(operand)
                sums[operand] = cotangent if before is None else add(before, cotangent)
        for made, operands, pullback in remaining:  # noqa: B007  (the loop above has them)
            if len(made) == 1:
                cotangent = sums.pop(made[0], None)
                if cotangent is not None:
                    cotangents = pullback(cotangent)
                    break
            else:
                arriving = [sums.pop(output, None) for output in made]
                if any(cotangent is not None for cotangent in arriving):
                    cotangents = pullback(*arriving)
                    break
        else:
            return


def value_of(literal: Literal) -> Any:
    """Return the number itself, for walks that compute."""
    return literal.value
