"""`Interpreter`: what an equation means, with the walk through the program given.

Every transformation gives the equations of a program another meaning. `Interpreter` is that walk with one hook;
running an interpreter while a tape is current records a new program, so transformations compose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.sources import at_source
from fxgrad.engine.core.walk import Step, eval_program


def interpret(program: Program, inputs: Sequence[Any], step: Step,
              literal: Callable[[Literal], Any] | None = None) -> list[Any]:
    """As `eval_program`, where what `step` records has the place of the equation that it is for."""
    with at_source("") as at:
        def placed(equation: Equation, values: list[Any]) -> Sequence[Any]:
            at(equation)
            return step(equation, values)

        return eval_program(program, inputs, placed, literal)


class Interpreter:
    """A meaning for programs: override `equation`, and `literal` where scalars need wrapping.

    The values that flow are whatever the interpreter makes them: arrays, pairs, intervals, counts.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> class Count(Interpreter):
    ...     def __init__(self):
    ...         self.counts = {}
    ...     def equation(self, equation, inputs):
    ...         name = equation.primitive.name
    ...         self.counts[name] = self.counts.get(name, 0) + 1
    ...         return [None] * len(equation.outputs)
    >>> count = Count()
    >>> program = fxgrad.make_program(lambda x: fnp.sin(x) * fnp.sin(x + x))(1.0)
    >>> _ = count.run(program, [None])
    >>> count.counts
    {'sin': 2, 'add': 1, 'mul': 1}
    """

    def run(self, program: Program, inputs: Sequence[Any]) -> list[Any]:
        """Walks `program` once; `inputs` belong to `program.inputs`, without those that `constants` fill.

        Returns the values of `program.outputs`. Raises `ValueError` if the number of inputs is wrong.
        """
        given = [*(self.constant(value) for value in program.constants), *inputs]
        if len(given) != len(program.inputs):
            raise ValueError(f"the program takes {len(program.inputs) - len(program.constants)} inputs, "
                             f"got {len(inputs)}")
        return interpret(program, given, self.equation, self.literal)

    def equation(self, equation: Equation, inputs: list[Any]) -> Sequence[Any]:
        """The values of `equation.outputs`, given those of its inputs."""
        raise NotImplementedError(f"{type(self).__name__} must define equation(self, equation, inputs)")

    def literal(self, literal: Literal) -> Any:
        """The value of a scalar that stands in the program; the literal itself unless overridden."""
        return literal

    def constant(self, array: Any) -> Any:
        """The value of an array that a closed program carries; the array itself unless overridden."""
        return array
