"""An executor that records its calls."""

from __future__ import annotations

from fxgrad.engine.core import backends


class Counting:
    """An executor that counts its calls, and delegates to the registered one."""

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
