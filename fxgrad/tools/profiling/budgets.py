"""`budget_curve`: how much memory a gradient needs, and the work of needing less."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.table import Table

from fxgrad.extend import bytes_text, function_name, hide_frames, transformation
from fxgrad.extend.analyses import BudgetPoint, budget_points
from fxgrad.text.tables import Report, add_row, new_table


class BudgetCurve(Report):
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

    __repr__ = Report.__str__


def budget_curve(fun: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., BudgetCurve]:
    """Return the function that finds the memory that the gradient of `fun` can take, without computing it.

    It takes the arguments of `fun`, arrays or `ShapeDtypeStruct`s, and differentiates in those at `argnums`, as `grad`
    does. Each point is a plan that `grad(fun, argnums, memory_budget=...)` and `checkpoint(fun, budget=...)` choose
    from; the first saves everything. For arrays, the budgets are those of `grad` for these arguments. For types, values
    that depend on the other arguments alone are planned as well, though `grad` computes them once if NumPy does.

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
    @hide_frames
    def curve(*args: Any, **kwargs: Any) -> BudgetCurve:
        points = budget_points("budget_curve", fun, argnums, args, kwargs)
        return BudgetCurve(f"memory of the gradient of {function_name(fun)}", points)
    return curve
