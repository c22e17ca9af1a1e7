"""The tables of docs/appendix/stable-formulas.md: formulas and rules with their largest errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxgrad.tools.numerics import RULES
from stables.measured import Row

FORMULA_HEAD = ["formula", "jax, f32", "jax, f64", "naive, f64", "stable, f32", "stable, f64", "compiled, f64",
                "derivative by jax, f64", "derivative, f32", "derivative, f64"]
RULE_HEAD = ["rule", "naive", "what goes wrong", "what to write", "for", "value, f32, f64", "derivative, f32, f64"]
LIMIT, OF_PRIMITIVES = 8.0, ("erfc", "log of erfc", "cumulative log-sum-exp")
LEAST_OF_JAX = 20


def number(error: float | None) -> str:
    """An error as the tables have it."""
    if error is None:
        return "-"
    return "inf" if not np.isfinite(error) else f"{error:.1f}" if error < 100 else f"{error:.0e}"


def formula_row(row: Row) -> list[str]:
    """A row of the table of formulas."""
    single, double = row.errors[np.float32], row.errors[np.float64]
    errors = [single["jax"], double["jax"], double["naive"], single["stable"], double["stable"], double["compiled"],
              double.get("jax slope"), single.get("slope"), double.get("slope")]
    return [f"`{row.formula.name}`", *map(number, errors)]


def rule_rows(rows: Sequence[Row]) -> list[list[str]]:
    """The table of rules, with the largest errors of the formulas of each."""
    made = []
    for rule in RULES:
        own = [row for row in rows if row.formula.rule == rule.name]
        value, slope = ([max((row.errors[dtype][key] for row in own if key in row.errors[dtype]), default=None)
                         for dtype in (np.float32, np.float64)] for key in ("stable", "slope"))
        made.append([rule.name, f"`{rule.naive}`", rule.fault, f"`{rule.write}`", rule.domain,
                     *(", ".join(map(number, errors)) for errors in (value, slope))])
    return made


def failing(rows: Sequence[Row]) -> int:
    """On how many formulas jax gives an infinity or a NaN where there is a number."""
    return sum(any(not np.isfinite(errors["jax"]) for errors in row.errors.values()) for row in rows)


def summary(rows: Sequence[Row]) -> str:
    """What the table of formulas comes to."""
    worst = max(max(errors["stable"] for errors in row.errors.values()) for row in rows)
    return (f"Of {len(rows)} formulas jax gives an infinity or a NaN on {failing(rows)}; stabilized, the largest error "
            f"of a value is {worst:.1f} units.")


def faults(rows: Sequence[Row], whole: bool) -> list[str]:
    """What does not hold: formulas that are off by more than they may be, and too few on which jax fails."""
    wrong = [f"{row.formula.name}: {key} off by {number(error)} in {np.dtype(dtype).name}"
             for row in rows for dtype, errors in row.errors.items() for key, error in errors.items()
             if (key == "stable" or (key == "slope" and row.formula.rule not in OF_PRIMITIVES)) and not error <= LIMIT]
    if whole and (len(rows) < 50 or failing(rows) < LEAST_OF_JAX):
        wrong.append(f"{len(rows)} formulas, on {failing(rows)} of which jax gives an infinity or a NaN")
    return wrong
