"""What is worth keeping at what price: minimum cuts between bytes kept and work done again.

Choosing what is kept by a minimum cut is the idea of the partitioner of PyTorch's functorch (2022); here what is
computed again has a price as well, and bytes are worth more from level to level, so that the cuts form a curve. For
one exchange rate the cut is exact (it is the closure problem of Picard, "Maximal closure of a graph", 1976).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.core.program import Program, Var
from fxgrad.engine.higher_order.partition import MinimumCut
from fxgrad.engine.rematerialization.needs import Need

LEVELS = 16


class Level(NamedTuple):
    """What is kept of the values that equations make, and which equations are computed again.

    `kept` has variables, and for what an equation makes for the backward pass alone its number.
    """

    kept: frozenset[Any]
    again: frozenset[int]


def levels(program: Program, found: Sequence[Need]) -> list[Level]:
    """Levels from nothing computed again to nothing kept that can be computed from the inputs."""
    made = {var: number for number, equation in enumerate(program.equations) for var in equation.outputs}
    needed = _needed(found, made)
    made_again = [need.work for need in found if need.work]
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


def _needed(found: Sequence[Need], made: dict[Var, int]) -> dict[Any, int]:
    """What the backward pass needs and is not there anyhow, with its bytes."""
    needed: dict[Any, int] = {var: var.aval.nbytes for need in found for var in need.values if var in made}
    for number, need in enumerate(found):
        if need.own:
            needed[number] = need.own
    return needed


def _level(program: Program, found: Sequence[Need], made: dict[Var, int], needed: dict[Any, int], rate: float,
           ) -> Level:
    """The cut at which a byte kept is worth `rate` operations."""
    if not rate:
        return Level(frozenset(needed), frozenset())
    cut = MinimumCut()
    for number, (equation, need) in enumerate(zip(program.equations, found, strict=True)):
        inputs = [atom for atom in equation.inputs if atom in made]
        price = None if need.work is None else need.work + 1
        values = [*equation.outputs, *([number] if need.own else [])]
        bytes_of = [*(var.aval.nbytes for var in equation.outputs), *([need.own] if need.own else [])]
        cut.add(values, [rate * (each + 1) for each in bytes_of], inputs, price)
    kept, again = cut.solve([*needed])
    numbers = {value if isinstance(value, int) else made[value] for value in again}
    return Level(frozenset(kept), frozenset(numbers))
