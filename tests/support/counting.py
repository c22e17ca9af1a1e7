"""An executor that tells what it was asked for."""

from __future__ import annotations

from fxgrad.engine.core import backends


class Counting:
    """An executor that counts what it is asked for, and asks the one that is backends."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.under = backends.executor

    def evaluate(self, primitive, args, params):
        self.asked.append(f"evaluate {primitive}")
        return self.under.evaluate(primitive, args, params)

    def execute(self, program, inputs):
        self.asked.append("execute")
        return self.under.execute(program, inputs)

    def compute(self, program, inputs):
        self.asked.append("compute")
        return self.under.compute(program, inputs)
