"""`Interpreter`: run a program with another meaning for its equations; the walk through it is given.

Every transformation gives the equations of a program another meaning. `Interpreter` is the walk with one hook. Running
an interpreter while a tape is current records a new program, so transformations compose.
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
    """Evaluate a program by `step`; equations that `step` records get the source of the equation at hand."""
    with at_source("") as at:
        def placed(equation: Equation, values: list[Any]) -> Sequence[Any]:
            at(equation)
            return step(equation, values)

        return eval_program(program, inputs, placed, literal)


class Interpreter:
    """A meaning for programs: override `equation`, and `literal` if scalars need wrapping.

    The values may be of any kind: arrays, pairs, intervals, counts.

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
        """Walk `program` once; `inputs` belong to `program.inputs`, without those that `constants` fill.

        Returns the values of `program.outputs`. Raises `ValueError` if the number of inputs is wrong.
        """
        given = [*(self.constant(value) for value in program.constants), *inputs]
        if len(given) != len(program.inputs):
            raise ValueError(f"the program takes {len(program.inputs) - len(program.constants)} inputs, "
                             f"got {len(inputs)}")
        return interpret(program, given, self.equation, self.literal)

    def equation(self, equation: Equation, inputs: list[Any]) -> Sequence[Any]:
        """Return the values of `equation.outputs`, given those of its inputs."""
        raise NotImplementedError(f"{type(self).__name__} must define equation(self, equation, inputs)")

    def literal(self, literal: Literal) -> Any:
        """Return the value of a scalar literal of the program; the literal itself unless overridden."""
        return literal

    def constant(self, array: Any) -> Any:
        """Return the value of an array constant of a closed program; the array itself unless overridden."""
        return array
