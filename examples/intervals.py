"""A transformation of one's own in 30 lines: bounds of a function's results, from bounds of its arguments.

Run it with `python examples/intervals.py`. docs/appendix/interpreters.md explains it.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

import fxgrad
from fxgrad.errors import UnsupportedError
from fxgrad.extend import Interpreter


class Interval(NamedTuple):
    """All numbers from `low` to `high`, element by element."""

    low: Any
    high: Any


def product(x: Interval, y: Interval) -> Interval:
    """The extreme products are among those of the ends."""
    ends = [a * b for a in x for b in y]
    return Interval(reduce(np.minimum, ends), reduce(np.maximum, ends))


def wave(function: Any, crest: float, x: Interval) -> Interval:
    """`function`, a sine that is 1 at `crest`: the ends decide, unless a crest or a trough lies between them."""
    def between(point: float) -> Any:
        return np.floor((x.high - point) / (2 * np.pi)) > np.floor((x.low - point) / (2 * np.pi))

    ends = [function(x.low), function(x.high)]
    return Interval(np.where(between(crest + np.pi), -1.0, np.minimum(*ends)),
                    np.where(between(crest), 1.0, np.maximum(*ends)))


RULES = {
    "add": lambda x, y: Interval(x.low + y.low, x.high + y.high),
    "sub": lambda x, y: Interval(x.low - y.high, x.high - y.low),
    "neg": lambda x: Interval(-x.high, -x.low),
    "mul": product,
    "exp": lambda x, **options: Interval(np.exp(x.low), np.exp(x.high)),
    "sin": lambda x, **options: wave(np.sin, np.pi / 2, x),
    "cos": lambda x, **options: wave(np.cos, 0.0, x),
}


class Intervals(Interpreter):
    """Runs a program on intervals."""

    def literal(self, literal: Any) -> Interval:
        """A number of the program itself is known exactly."""
        return Interval(literal.value, literal.value)

    def constant(self, array: Any) -> Interval:
        """So is an array that the function closed over."""
        return Interval(array, array)

    def equation(self, equation: Any, inputs: list[Any]) -> list[Any]:
        """One operation, or a library function, which is a program itself."""
        name = equation.primitive.name
        if name == "named_call":
            return self.run(equation.params["program"], inputs)
        if name not in RULES:
            known = ", ".join(sorted(RULES))
            raise UnsupportedError(f"interval bounds: there is no rule for {name}, only for {known}")
        return [RULES[name](*inputs, **equation.params)]


def bounds(program: fxgrad.Program, *intervals: Interval) -> list[Interval]:
    """Bounds of the results of `program` when each argument lies in its interval."""
    return Intervals().run(program, intervals)


def main() -> None:
    """Bounds of a function and of its derivative, with sampled values for comparison."""
    def swing(x: Any) -> Any:
        decay = np.exp(-x)
        return decay * np.sin(3.0 * x)

    interval = Interval(0.2, 0.4)
    samples = np.linspace(*interval, 1001)
    for name, function in [("swing", swing), ("its derivative", fxgrad.grad(swing))]:
        program = fxgrad.make_program(function)(interval.low)
        result = bounds(program, interval)[0]
        values = fxgrad.vmap(function)(samples)
        print(f"{name}: between {result.low:.3f} and {result.high:.3f}; "
              f"{len(samples)} samples between {values.min():.3f} and {values.max():.3f}")


if __name__ == "__main__":
    main()
