"""Floating-point operations by line of the user's code, loops by their trips: an interpreter of ten lines.

Run it with `python examples/flops_by_line.py`. docs/appendix/interpreters.md explains it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad
from fxgrad import Equation, Interpreter, Program


class FlopsByLine(Interpreter):
    """Counts what each line does; of branches all, of loops with an unknown number of steps one step."""

    def __init__(self) -> None:
        self.flops: Counter[int] = Counter()
        self.times = 1

    def equation(self, equation: Equation, inputs: list[Any]) -> list[None]:
        """The flops of one operation, or of the programs that it holds, as often as they run."""
        del inputs
        for region in equation.regions:
            outside, self.times = self.times, self.times * (1 if region.times is None else region.times)
            self.run(region.program, [None] * (len(region.program.inputs) - len(region.program.constants)))
            self.times = outside
        if not equation.regions and equation.source is not None:
            count = equation.primitive.cost(*(atom.aval for atom in equation.inputs), **equation.params).flops
            self.flops[equation.source.line] += self.times * count
        return [None] * len(equation.outputs)


def flops_by_line(program: Program) -> dict[int, int]:
    """Flops by line number."""
    counter = FlopsByLine()
    counter.run(program, [None] * (len(program.inputs) - len(program.constants)))
    return dict(sorted(counter.flops.items()))


def iterated(matrix: Any, x: Any) -> Any:
    """Ten steps of a power iteration."""
    def step(x: Any, _: Any) -> Any:
        y = matrix @ x
        return y / np.sqrt(np.sum(y * y)), None

    x, _ = fxgrad.lax.scan(step, x, None, length=10)
    return np.sum(x * (matrix @ x))


def main(size: int = 100) -> None:
    """Prints the table for a function and for its gradient."""
    first: Callable[..., Any] = iterated
    with open(__file__, encoding="utf-8") as file:
        lines = file.readlines()
    for title, function in (("iterated", first), ("grad(iterated)", fxgrad.grad(first))):
        print(title)
        for line, flops in flops_by_line(fxgrad.make_program(function)(np.eye(size), np.ones(size))).items():
            print(f"{flops:>12,}  {lines[line - 1].strip()}")


if __name__ == "__main__":
    main()
