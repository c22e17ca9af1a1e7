"""The total cost of a program: floating-point operations, bytes moved and bytes sent, from its types alone."""

from __future__ import annotations

from fxgrad.engine.analyses.traffic import by_axis, traffic
from fxgrad.engine.core.primitive import Cost
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.program_properties import program_property


@program_property
def total_cost(program: Program) -> Cost:
    """Return the sum of the costs of all equations, unfused; `wire` has the bytes sent over mesh axes.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda x: x @ x)(np.ones((10, 10), np.float32))
    >>> total_cost(program)
    Cost(flops=2000, bytes=1200)
    """
    parts = [equation.cost for equation in program.equations]
    found = Cost(sum(part.flops for part in parts), sum(part.bytes for part in parts))
    wire = by_axis(traffic(program))
    return found.with_wire(wire) if wire else found
