"""`within_budget`: a call whose derivative keeps and recomputes values so that its memory stays within a budget."""

from __future__ import annotations

from typing import Any

from fxgrad.engine.core.program import Equation, Program, Variable
from fxgrad.engine.core.program_properties import memoize
from fxgrad.engine.core.sources import in_place
from fxgrad.engine.higher_order.call import call_primitive, emit_inline, run_with_numpy
from fxgrad.engine.higher_order.groups import Marks, nonzero_mask
from fxgrad.engine.higher_order.wiring import needs_tangent_tape
from fxgrad.engine.rematerialization.plans import Planned, plans_for
from fxgrad.engine.transforms.forward import push_forward
from fxgrad.engine.units import bytes_text
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError


def _jvp(primals: list[Any], tangents: list[Any], *, program: Program, name: str, budget: int,
         ) -> tuple[list[Any], list[Any]]:
    if needs_tangent_tape(primals, tangents):
        program = plan_within(program, nonzero_mask(tangents), name, budget).program
    with in_place():
        return push_forward(program, primals, tangents)


within_budget_p = call_primitive("within_budget", _jvp, run_with_numpy, emit_inline)
"""A call whose derivative stays within a budget of bytes."""


def plan_within(program: Program, wrt: Marks, name: str, budget: int) -> Planned:
    """Return the plan with the least work within `budget` bytes; raise `ArgumentError` if there is none."""
    found = plans_for(program, wrt)
    chosen = found.within(budget)
    if chosen.peak > budget:
        raise ArgumentError(at_user_line(
            f"{name} cannot be differentiated within {bytes_text(budget)}: the least that is found is "
            f"{bytes_text(chosen.peak)}, of {bytes_text(found.at(0).peak)} without a budget. Pass at least "
            f"'{bytes_text(chosen.peak, up=True)}', give the function smaller pieces of its batch, or look at "
            f"fxgrad.budget_curve({name})(...)"))
    return chosen


def call_within(program: Program, name: str, budget: int) -> Program:
    """Return the program that makes one call of `program` within `budget`."""
    def make() -> Program:
        outputs = [*map(Variable, program.out_avals)]
        equation = Equation(within_budget_p, [*program.inputs], {"program": program, "name": name, "budget": budget},
                            outputs)
        return Program(program.inputs, [equation], outputs, program.captured)

    return memoize(program, ("call within", name, budget), make)
