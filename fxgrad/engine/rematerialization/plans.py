"""The search for the least work within a budget."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from fxgrad.engine.analyses.liveness import peak_beside_results
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.program_properties import memoize
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.derive import derive
from fxgrad.engine.derivation.simplify import simplify, simplify_for_display
from fxgrad.engine.derivation.sizes import require_numbers
from fxgrad.engine.dtypes import is_inexact
from fxgrad.engine.higher_order.call import inline_calls, jit_call_p, named_call_p
from fxgrad.engine.higher_order.groups import Marks
from fxgrad.engine.rematerialization.blocks import Known, checkpoint_blocks
from fxgrad.engine.rematerialization.levels import levels
from fxgrad.engine.rematerialization.loops import chunk_scans
from fxgrad.engine.rematerialization.residual_costs import ResidualCost, residual_costs
from fxgrad.engine.rematerialization.segments import BlockPlan, Segments, join_levels
from fxgrad.engine.transforms.joint import record_joint

PARTS = 6
"""The number of places in the program where one level may follow another."""
WORTH = 0.98
"""A plan with more work than another is kept if it takes less than this share of its memory."""


class Planned(NamedTuple):
    """A program in blocks, with the peak of its joint program in bytes, and the share of all work that is repeated."""

    program: Program
    peak: int
    blocks: int
    work: float


class BlockPlans:
    """All plans for one program, differentiated in marked inputs, from the most memory to the least."""

    def __init__(self, program: Program, wrt: Marks) -> None:
        self._wrt = wrt
        as_used = inline_calls(simplify_for_display(program), (named_call_p, jit_call_p))
        found = residual_costs(as_used, wrt)
        forward = sum(cost.work or 0.0 for cost in found)
        self._whole = 3.0 * forward  # the backward pass takes about twice the work of the forward pass
        every = [(plan, as_used) for plan in _plans(as_used, found)]
        chunked, again = chunk_scans(as_used, found, wrt)
        if chunked is not as_used:
            every += [(plan._replace(work=plan.work + again), chunked)
                      for plan in _plans(chunked, residual_costs(chunked, wrt))]
        self._plans: list[tuple[BlockPlan, Program]] = []
        for each in sorted(every, key=lambda each: (each[0].work, each[0].bytes)):
            if not self._plans or each[0].bytes < WORTH * self._plans[-1][0].bytes:
                self._plans.append(each)
        self._planned: dict[int, Planned] = {}
        self._blocks: Known = {}

    def __len__(self) -> int:
        return len(self._plans)

    def at(self, number: int) -> Planned:
        """Return the program of plan `number`, with the peak of its joint program."""
        if number not in self._planned:
            plan, program = self._plans[number]
            written = checkpoint_blocks(program, plan.blocks, plan.kept, self._blocks)
            work = plan.work / self._whole if plan.work else 0.0
            self._planned[number] = Planned(written, peak(written, self._wrt), len(plan.blocks), work)
        return self._planned[number]

    def within(self, budget: int) -> Planned:
        """Return the plan with the least work whose peak is within `budget`, or with the least peak if none is.

        Peaks fall from plan to plan nearly always, so this bisects.
        """
        first, last = 0, len(self._plans) - 1
        while first < last:
            middle = (first + last) // 2
            if self.at(middle).peak <= budget:
                last = middle
            else:
                first = middle + 1
        if self.at(first).peak <= budget:
            return self.at(first)
        return min((self.at(number) for number in range(len(self._plans))), key=lambda planned: planned.peak)


def _plans(program: Program, found: list[ResidualCost]) -> list[BlockPlan]:
    """Return plans for each level, and for two neighbouring levels, one before and one after a place of the program."""
    made = {var: number for number, equation in enumerate(program.equations) for var in equation.outputs}
    segments, cuts = Segments(program, found), levels(program, found)
    places = [segments.borders[len(segments.borders) * part // PARTS] for part in range(1, PARTS)]
    mixed = [join_levels(less, more, border, made) for more, less in itertools.pairwise(cuts) for border in places]
    return [*map(segments.plan, dict.fromkeys([*cuts, *mixed]))]


def plans_for(program: Program, wrt: Marks) -> BlockPlans:
    """Return the plans for a program, memoized."""
    return memoize(program, ("plans", wrt), lambda: BlockPlans(require_numbers("a memory budget", program), wrt))


def peak(program: Program, wrt: Marks) -> int:
    """Return the peak bytes of forward and backward pass, beside arguments, cotangents and results."""
    return peak_beside_results(_joint_program(program, wrt))


def _joint_program(program: Program, wrt: Marks) -> Program:
    """Return the joint program (inputs, cotangents of inexact outputs) -> (outputs, cotangents of inputs)."""
    avals = program.in_avals
    arriving: list[Aval] = [aval for aval in program.out_avals if is_inexact(aval.dtype)]

    def build(*values: Any) -> tuple[list[Any], None]:
        given = iter(values[len(avals):])
        cotangents = [next(given) if is_inexact(aval.dtype) else Zero(aval) for aval in program.out_avals]
        outputs, found = record_joint(simplify(program), values[:len(avals)], cotangents, wrt)
        return [*outputs, *found], None

    return derive(program, ("both ways", wrt), build, [*avals, *arriving]).program
