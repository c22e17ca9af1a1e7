"""Levels: which values to save at what price, by minimum cuts between bytes saved and work repeated.

Choosing the saved values by a minimum cut is the idea of the partitioner of PyTorch's functorch (2022); here
recomputation has a price as well, and bytes cost more from level to level, so that the cuts form a curve. For one
exchange rate the cut is exact (it is the closure problem of Picard, "Maximal closure of a graph", 1976).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.core.program import Program, Variable
from fxgrad.engine.higher_order.saving import MinimumCut
from fxgrad.engine.rematerialization.residual_costs import ResidualCost

LEVELS = 16


class Level(NamedTuple):
    """The values to keep, and the equations to recompute.

    `kept` has variables, and the numbers of equations whose own residuals are kept.
    """

    kept: frozenset[Any]
    again: frozenset[int]


def levels(program: Program, found: Sequence[ResidualCost]) -> list[Level]:
    """Return levels, from recomputing nothing to keeping nothing that follows from the inputs."""
    made = {var: number for number, equation in enumerate(program.equations) for var in equation.outputs}
    # What the backward pass needs beside the inputs.
    needed: dict[Any, int] = {var: var.aval.nbytes for cost in found for var in cost.values if var in made}
    for number, cost in enumerate(found):
        if cost.own:
            needed[number] = cost.own
    made_again = [cost.work for cost in found if cost.work]
    if not made_again or not needed:
        return [Level(frozenset(needed), frozenset())]
    sizes = [size for size in needed.values() if size]
    lowest, highest = min(made_again) / max(sizes, default=1), sum(made_again) / max(min(sizes, default=1), 1)
    rates = [0.0, *np.geomspace(max(lowest, 1e-3), max(highest, lowest, 1e-3) * 2, LEVELS)]
    result: list[Level] = []
    for rate in rates:
        level = _level(program, found, made, needed, rate)
        if level not in result:
            result.append(level)
    return result


def _level(program: Program, found: Sequence[ResidualCost], made: dict[Variable, int], needed: dict[Any, int],
           rate: float,
           ) -> Level:
    """Return the cut at which a byte kept is worth `rate` operations."""
    if not rate:
        return Level(frozenset(needed), frozenset())
    cut = MinimumCut()
    for number, (equation, cost) in enumerate(zip(program.equations, found, strict=True)):
        inputs = [atom for atom in equation.inputs if atom in made]
        price = None if cost.work is None else cost.work + 1
        values = [*equation.outputs, *([number] if cost.own else [])]
        bytes_of = [*(var.aval.nbytes for var in equation.outputs), *([cost.own] if cost.own else [])]
        cut.add(values, [rate * (each + 1) for each in bytes_of], inputs, price)
    kept, again = cut.solve([*needed])
    numbers = {value if isinstance(value, int) else made[value] for value in again}
    return Level(frozenset(kept), frozenset(numbers))
