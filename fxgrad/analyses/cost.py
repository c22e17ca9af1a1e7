"""Counting: the floating-point operations and bytes of a program, from its types alone."""

from __future__ import annotations

from fxgrad.core.facts import fact
from fxgrad.core.primitive import Cost
from fxgrad.core.program import Program


@fact
def cost(program: Program) -> Cost:
    """The sum of the costs of all equations, as if nothing were fused.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda x: x @ x)(np.ones((10, 10), np.float32))
    >>> cost(program)
    Cost(flops=2000, bytes=1200)
    """
    parts = [equation.cost for equation in program.equations]
    return Cost(sum(part.flops for part in parts), sum(part.bytes for part in parts))
