"""Borders of the blocks of a program, chosen so that few bytes cross them and few are live within a block."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.core.program import Program, Variable
from fxgrad.engine.rematerialization.levels import Level
from fxgrad.engine.rematerialization.residual_costs import ResidualCost, view_origins

BORDERS = 96
"""How many candidates for borders are considered."""
BOUNDS = 16
"""How many bounds for the bytes within a block are tried."""


class BlockPlan(NamedTuple):
    """Blocks as (first, beyond the last) numbers of equations, in order, the values kept in them, and their cost.

    `bytes` estimates the bytes live when the backward pass begins, `work` the recomputed work.
    """

    blocks: tuple[tuple[int, int], ...]
    kept: frozenset[Any]
    bytes: int
    work: float


class Segments:
    """The candidates for borders in one program, and the bytes that cross them and lie between them."""

    def __init__(self, program: Program, found: Sequence[ResidualCost]) -> None:
        self._program, self._found = program, found
        origin = view_origins(program)
        self._made = {var: number for number, equation in enumerate(program.equations) for var in equation.outputs
                      if var not in origin}
        self._last = {origin.get(atom, atom): number for number, equation in enumerate(program.equations)
                      for atom in equation.inputs}
        self.borders = self._borders()
        self._vars = [*self._made]
        made = np.array([*self._made.values()], int)
        last = np.array([self._last.get(var, number) for var, number in self._made.items()], int)
        self._sizes = np.array([var.aval.nbytes for var in self._vars], float)
        self._made_in, self._last_in = (np.searchsorted(self.borders, each, side="right") - 1 for each in (made, last))
        self._is_used = last > made
        values = {value for cost in found for value in cost.values}
        self._needed = [(var, number + 1) for number, equation in enumerate(program.equations)
                        for var in equation.outputs if var in values]
        self._own = [(number, cost.own) for number, cost in enumerate(found) if cost.own]

    def _borders(self) -> list[int]:
        """Return the numbers of equations before which a block may begin, from 0 to one beyond all."""
        count = len(self._program.equations)
        change = np.zeros(count + 2, np.int64)
        for var, number in self._made.items():
            last = self._last.get(var, number)
            change[number + 1] += var.aval.nbytes
            change[last + 1] -= var.aval.nbytes
        crossing = np.cumsum(change)  # before each equation
        places = np.arange(1, count)
        parts = np.array_split(places, min(BORDERS, len(places))) if len(places) else []
        return [0, *(int(part[np.argmin(crossing[part])]) for part in parts), count]

    def plan(self, level: Level) -> BlockPlan:
        """Return the blocks for a level, for the bound on the bytes within a block that needs the least memory."""
        crossing, inside, kept = self._crossing_bytes(level), self._inside(level), self._kept_bytes(level)
        largest = max(inside[-1], 1)
        bounds = np.geomspace(max(largest / 2**12, 1), largest, BOUNDS)
        sizes = []
        for cost, chosen in _choose_borders(crossing, inside, bounds):
            most = max((inside[after] - inside[before] for before, after in itertools.pairwise(chosen)), default=0)
            sizes.append((cost + most, chosen))
        size, chosen = min(sizes, key=lambda each: each[0])
        *blocks, last = itertools.pairwise([self.borders[place] for place in chosen])
        again = sorted(level.again)
        computed = [block for block in blocks if any(block[0] <= number < block[1] for number in again)]
        # Values that the last block would recompute are live at once anyway, so they are saved.
        work = sum(self._found[number].work or 0.0 for number in again if number < last[0])
        return BlockPlan(tuple(computed), level.kept, int(size + kept), work)

    def _kept_bytes(self, level: Level) -> int:
        return sum(self._found[value].own if isinstance(value, int) else value.aval.nbytes for value in level.kept)

    def _crossing_bytes(self, level: Level) -> Any:
        """Return for each two borders the bytes computed before them, not kept, and last used between them."""
        count = len(self.borders)
        table = np.zeros((count, count + 1))
        chosen = self._is_used & np.array([var not in level.kept for var in self._vars], bool)
        np.add.at(table, (self._made_in[chosen], self._last_in[chosen]), self._sizes[chosen])
        sums = np.zeros((count + 1, count + 2))  # over what is made in earlier parts, and used in earlier parts
        sums[1:, 1:] = table.cumsum(0).cumsum(1)
        places = np.arange(count)
        crossing: Any = sums[places, :][:, places] - sums[places, places][:, None]
        return crossing

    def _inside(self, level: Level) -> Any:
        """Return at each border the bytes computed before it for the backward pass that are not kept."""
        sizes = np.zeros(len(self._program.equations) + 1)
        for number, own in self._own:
            if number not in level.kept:
                sizes[number + 1] += own
        for var, place in self._needed:
            if var not in level.kept:
                sizes[place] += var.aval.nbytes
        return sizes.cumsum()[self.borders]


def _choose_borders(crossing: Any, inside: Any, bounds: Any) -> list[tuple[float, list[int]]]:
    """Return for each bound the borders with the fewest crossing bytes, with so many bytes in a block if possible."""
    count = len(inside)
    costs, before = np.zeros((len(bounds), count)), np.zeros((len(bounds), count), int)
    for place in range(1, count):
        fits = inside[place] - inside[:place] <= bounds[:, None]
        fits[:, -1] = True
        through = np.where(fits, costs[:, :place] + crossing[:place, place], np.inf)
        before[:, place] = through.argmin(1)
        costs[:, place] = through.min(1)
    result = []
    for cost, way in zip(costs[:, -1].tolist(), before.tolist(), strict=True):
        chosen = [count - 1]
        while chosen[-1]:
            chosen.append(way[chosen[-1]])
        result.append((cost, chosen[::-1]))
    return result


def join_levels(early: Level, late: Level, border: int, made: dict[Variable, int]) -> Level:
    """Return the level that is `early` for the equations before `border`, and `late` for those from there on."""
    def of(value: Any) -> int:
        return value if isinstance(value, int) else made[value]

    kept = frozenset(value for value in early.kept if of(value) < border) | frozenset(
        value for value in late.kept if of(value) >= border)
    again = frozenset(number for number in early.again if number < border) | frozenset(
        number for number in late.again if number >= border)
    return Level(kept, again)
