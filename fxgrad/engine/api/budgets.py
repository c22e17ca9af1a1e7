"""The rematerialization plans of a gradient that a memory budget chooses from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fxgrad.engine import tree
from fxgrad.engine.api.arguments import Argnums, leaf_avals, select_arguments
from fxgrad.engine.api.reverse import trace_differentiated
from fxgrad.engine.core.program import Program
from fxgrad.engine.frontend.calling import trace_program
from fxgrad.engine.rematerialization.plans import plans_for
from fxgrad.engine.transforms.forward import has_tangent


class BudgetPoint(NamedTuple):
    """One plan: its `peak` in bytes beside arguments, results and their cotangents, and the share of work recomputed.

    `work` is estimated: a byte read or written counts as 16 floating-point operations, and the backward pass as twice
    the forward pass. `blocks` is how many parts of the program are recomputed.
    """

    peak: int
    work: float
    blocks: int


def budget_points(what: str, fun: Callable[..., Any], argnums: Argnums, args: tuple[Any, ...], kwargs: dict[str, Any],
                  ) -> list[BudgetPoint]:
    """Return the rematerialization plans for the gradient of a call; the first recomputes nothing.

    `what` is the function named in messages.
    """
    program, wrt = _program_and_mask(what, fun, argnums, args, kwargs)
    plans = plans_for(program, wrt)
    points: list[BudgetPoint] = []
    for number in range(len(plans)):
        plan = plans.at(number)
        if not points or plan.peak < points[-1].peak:
            points.append(BudgetPoint(plan.peak, plan.work, plan.blocks))
    return points


def _program_and_mask(what: str, fun: Callable[..., Any], argnums: Argnums, args: tuple[Any, ...],
                      kwargs: dict[str, Any]) -> tuple[Program, tuple[bool, ...]]:
    """Return the program that `grad` differentiates within a budget, and a mask of its differentiated inputs."""
    selected = select_arguments(what, fun, argnums, args)
    if not any(isinstance(leaf, tree.ShapeDtypeStruct) for leaf in tree.leaves((args, kwargs))):
        avals = leaf_avals(what, selected)
        traced, _ = trace_differentiated(what, fun, False, args, kwargs, selected, avals, whole=True)
        return traced.program, traced.wrt([has_tangent(aval) for aval in avals])
    program = trace_program(what, fun, args, kwargs)
    inside = [tree.map(lambda _, chosen=position in selected.positions: chosen, arg)
              for position, arg in enumerate(args)]
    marks = [*[False] * program.captured, *tree.leaves(inside)]
    marks += [False] * (len(program.inputs) - len(marks))  # keyword arguments
    return program, tuple(marked and has_tangent(aval) for marked, aval in zip(marks, program.in_avals, strict=True))
