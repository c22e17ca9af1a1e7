"""`budget_curve`: how much memory a gradient needs, and the work of needing less."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rich.table import Table

from fxgrad.engine import tree
from fxgrad.engine.api.arguments import Argnums, leaf_avals, select, transformation
from fxgrad.engine.api.reverse import trace_differentiated
from fxgrad.engine.core.program import Program
from fxgrad.engine.frontend.calling import trace_program
from fxgrad.engine.rematerialization.plans import plans_for
from fxgrad.engine.transforms.forward import has_tangent
from fxgrad.engine.units import bytes_text
from fxgrad.engine.user_lines import function_name
from fxgrad.text.tables import Shown, add_row, new_table


class BudgetPoint(NamedTuple):
    """One plan: `peak` in bytes beside arguments, results and their cotangents, and the share of work it repeats.

    `work` is estimated: a byte read or written counts as 16 floating-point operations, and the backward pass as twice
    the forward pass. `blocks` is how many parts of the program are recomputed.
    """

    peak: int
    work: float
    blocks: int


class Curve(Shown):
    """The plans for a gradient, each with less memory and more work than the one before; prints as a table."""

    def __init__(self, title: str, points: list[BudgetPoint]) -> None:
        self.title, self.points = title, points

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[BudgetPoint]:
        return iter(self.points)

    def table(self) -> Table:
        """Return the table for rich."""
        made = new_table(self.title, {"memory_budget": "right", "of all": "right", "more work": "right",
                                      "blocks": "right", "": "left"})
        most = max(point.peak for point in self.points)
        for point in self.points:
            part = point.peak / max(most, 1)
            add_row(made, [bytes_text(point.peak, up=True), f"{100 * part:.0f} %", f"{100 * point.work:.1f} %",
                           str(point.blocks), "█" * round(30 * part)])
        return made

    __repr__ = Shown.__str__


def budget_curve(fun: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Curve]:
    """Return the function that finds the memory that the gradient of `fun` can take, without computing it.

    It takes the arguments of `fun`, arrays or `ShapeDtypeStruct`s; those that `argnums` says are differentiated in, as
    by `grad`. Each point is a plan that `grad(fun, argnums, memory_budget=...)` and `checkpoint(fun, budget=...)`
    choose from; the first keeps everything. Given arrays, it is the budgets of `grad` for these arguments; given types,
    what follows from the other arguments alone is planned as well, though `grad` computes it once where NumPy does.

    Raises `ArgumentError` if `argnums` does not fit, and as tracing does.

    >>> import fxgrad, numpy as np
    >>> def deep(w, x):
    ...     for _ in range(8):
    ...         x = np.tanh(x @ w)
    ...     return np.sum(x)
    >>> curve = fxgrad.budget_curve(deep)(np.ones((64, 64)), np.ones((256, 64)))
    >>> curve.points[0].work, curve.points[-1].peak < 0.5 * curve.points[0].peak
    (0.0, True)
    """
    @transformation("budget_curve", fun)
    def curve(*args: Any, **kwargs: Any) -> Curve:
        program, wrt = _differentiated(fun, argnums, args, kwargs)
        plans = plans_for(program, wrt)
        points: list[BudgetPoint] = []
        for number in range(len(plans)):
            plan = plans.at(number)
            if not points or plan.peak < points[-1].peak:
                points.append(BudgetPoint(plan.peak, plan.work, plan.blocks))
        return Curve(f"memory of the gradient of {function_name(fun)}", points)
    return curve


def _differentiated(fun: Callable[..., Any], argnums: Argnums, args: tuple[Any, ...], kwargs: dict[str, Any],
                    ) -> tuple[Program, tuple[bool, ...]]:
    """Return the program that `grad` differentiates within a budget, and a mask of the inputs it is taken in."""
    selected = select("budget_curve", fun, argnums, args)
    if not any(isinstance(leaf, tree.ShapeDtypeStruct) for leaf in tree.leaves((args, kwargs))):
        avals = leaf_avals("budget_curve", selected)
        traced, _ = trace_differentiated("budget_curve", fun, False, args, kwargs, selected, avals, whole=True)
        return traced.program, traced.wrt([has_tangent(aval) for aval in avals])
    program = trace_program("budget_curve", fun, args, kwargs)
    inside = [tree.map(lambda _, chosen=position in selected.positions: chosen, arg)
              for position, arg in enumerate(args)]
    marks = [*[False] * program.captured, *tree.leaves(inside)]
    marks += [False] * (len(program.inputs) - len(marks))  # keyword arguments
    return program, tuple(marked and has_tangent(aval) for marked, aval in zip(marks, program.in_avals, strict=True))
