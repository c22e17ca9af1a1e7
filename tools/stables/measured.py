"""Errors of naive formulas and of stable ones: by NumPy, by XLA, and of jax, against exact values."""

from __future__ import annotations

import time
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np

import fxgrad
from tests.support.naive_formulas import (
    FORMULAS,
    Formula,
    Names,
    columns,
    near_zero,
    points,
    slope_at,
    ulps,
    value_at,
    weighted,
)

__all__ = ["FORMULAS", "Row", "measured", "tracing_times"]
OURS, JAX = Names(np, fxgrad.scipy.special), Names(jnp, jax.scipy.special)


class Row(NamedTuple):
    """A formula and its largest errors by dtype: of "jax", "naive", "stable", "compiled", "slope" and "jax slope"."""

    formula: Formula
    errors: dict[Any, dict[str, float]]


def measured(formula: Formula, count: int) -> Row:
    """The largest errors at so many arguments."""
    return Row(formula, {dtype: _errors(formula, dtype, count) for dtype in (np.float32, np.float64)})


def _errors(formula: Formula, dtype: Any, count: int) -> dict[str, float]:
    rows = points(formula, dtype, count)
    given = columns(formula, rows, dtype)
    naive = lambda *arguments: formula.function(OURS, *arguments)  # noqa: E731
    of_jax = lambda *arguments: formula.function(JAX, *arguments)  # noqa: E731
    stable = fxgrad.stabilize(naive)
    with np.errstate(all="ignore"), jax.enable_x64(dtype is np.float64):
        values = {"naive": fxgrad.make_program(naive)(*given)(*given), "stable": stable(*given),
                  "compiled": fxgrad.jit(stable)(*given), "jax": of_jax(*map(jnp.asarray, given))}
        is_many = formula.vector and np.ndim(values["stable"]) == 2
        slopes = {} if not formula.slope else {
            "slope": fxgrad.grad(lambda *arguments: np.sum(_total(stable(*arguments), is_many)))(*given),
            "jax slope": jax.grad(lambda *arguments: jnp.sum(_total(of_jax(*arguments), is_many)))(
                *map(jnp.asarray, given))}
        values, slopes = ({key: np.asarray(value) for key, value in found.items()} for found in (values, slopes))
    worst = dict.fromkeys([*values, *slopes], 0.0)
    for place, row in enumerate(rows):
        exact = value_at(formula, row)
        if exact is None or near_zero(formula, row, exact):
            continue
        for key, found in values.items():
            worst[key] = max(worst[key], ulps(found[place], exact, dtype))
        slope = slope_at(formula, row) if slopes else None
        for key, found in slopes.items() if slope is not None else ():
            worst[key] = max(worst[key], ulps(found[place], slope, dtype, formula.vector, formula.least))
    return worst


def _total(value: Any, is_many: bool) -> Any:
    return weighted(value) if is_many else value


def tracing_times() -> str:
    """What rewriting costs: the first time, and for calls after it."""
    def layers(x: Any) -> Any:
        for _ in range(100):
            x = np.log(1 + np.exp(x * 0.5)) - np.tanh(x)
        return np.sum(x)

    x, stable = np.ones(8), fxgrad.stabilize(layers)
    first, again, plain = [], [], []
    for _ in range(5):
        fxgrad.clear_caches()
        first.append(_seconds(lambda: stable(x)))
        stable(x)
        again.append(min(_seconds(lambda: stable(x)) for _ in range(5)))
        fxgrad.vmap(layers)(x[None])
        plain.append(min(_seconds(lambda: fxgrad.vmap(layers)(x[None])) for _ in range(5)))
    return (f"A program of 600 operations with 100 naive forms takes {1e3 * median(first):.0f} ms the first time, to "
            f"be traced, searched, rewritten and run, and {1e3 * median(again):.1f} ms after that (`vmap` of it "
            f"{1e3 * median(plain):.1f} ms).")


def _seconds(function: Any) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin
