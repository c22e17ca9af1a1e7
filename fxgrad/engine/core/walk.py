"""The walk through a program: each equation in turn, with the values of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.program import Atom, Equation, Program

Step = Callable[[Equation, list[Any]], Sequence[Any]]
"""(equation, values of its inputs) -> values of its outputs."""


def walk(program: Program, inputs: Sequence[Any], step: Step, literal: Callable[[Literal], Any] | None = None,
         equations: Sequence[Equation] | None = None) -> list[Any]:
    """The values of the outputs of `program`, where `step` gives those of each equation's.

    `inputs` are the values of all its inputs, captured ones first. `literal` gives the value of a literal, by default
    itself. `equations` are those that are walked, if not all. The values are whatever `step` makes them.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> program = fxgrad.make_program(lambda x, y: fnp.sin(x) * y)(1.0, 2.0)
    >>> walk(program, ["x", "y"], lambda equation, values: [f"{equation.primitive}({', '.join(values)})"])
    ['mul(sin(x), y)']
    """
    environment: dict[Atom, Any] = dict(zip(program.inputs, inputs, strict=True))
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


def value_of(literal: Literal) -> Any:
    """The number itself, for walks that compute."""
    return literal.value
