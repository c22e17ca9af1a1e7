"""Optimal control of a partial differential equation with 100,020 unknowns: Newton's method on a sparse KKT matrix.

Run it with `python examples/pde_control.py`. A rod is heated by a source u(t, x) so that its temperature y follows
`target`: the sum of (y - target)^2 / 2 + COST u^2 / 2 is minimal under y_t = DIFFUSION y_xx - y^3 + u, with y = 0
at the beginning and at both ends (Tröltzsch, Optimal Control of Partial Differential Equations, 2010). Temperature,
source and multiplier of each point are unknowns of one Lagrangian. Its gradient is the residual of Newton's method and
its sparse Hessian the matrix, which SciPy factorizes.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.sparse.linalg import splu

import fxgrad
import fxgrad.numpy as fnp

COST = 1e-3
DIFFUSION = 0.02
DURATION = 4.0


class Step(NamedTuple):
    """One step of Newton's method: the norm of the residual before it, and seconds for the matrix and for the solve."""

    residual: float
    matrix: float
    solve: float


def target(times: int, points: int) -> Any:
    """The temperature that is wanted at each time and point: a warm spot that moves back and forth."""
    t = np.arange(1, times + 1)[:, None] / times
    x = np.arange(1, points + 1)[None, :] / (points + 1)
    return np.exp(-80.0 * (x - 0.5 - 0.3 * np.sin(2.0 * np.pi * t)) ** 2)


def balance(y: Any, u: Any) -> Any:
    """What is missing of the equation at each time and point: implicit Euler steps, differences of three points."""
    times, points = y.shape
    before, around = fnp.pad(y, ((1, 0), (0, 0)))[:-1], fnp.pad(y, ((0, 0), (1, 1)))
    flow = (around[:, :-2] - 2.0 * y + around[:, 2:]) * (DIFFUSION * (points + 1) ** 2)
    return (y - before) * (times / DURATION) - flow + y ** 3 - u


def lagrangian(unknowns: Any, wanted: Any) -> Any:
    """The objective plus the balance at each point times its multiplier; `unknowns` has all of a point together."""
    y, u, multipliers = fnp.moveaxis(fnp.reshape(unknowns, (*wanted.shape, 3)), 2, 0)
    return np.sum(0.5 * (y - wanted) ** 2 + 0.5 * COST * u ** 2 + multipliers * balance(y, u))


def solve(times: int, points: int, tolerance: float = 1e-9, most: int = 20) -> tuple[Any, list[Step]]:
    """The unknowns, an array of shape (times, points, 3), at which the gradient is 0, and the steps to them."""
    wanted = target(times, points)
    gradient, matrix = fxgrad.grad(lagrangian), fxgrad.hessian(lagrangian, sparse=True)
    unknowns, steps = np.zeros(3 * wanted.size), []
    while len(steps) < most:
        residual = gradient(unknowns, wanted)
        if np.abs(residual).max() < tolerance:
            break
        begun = perf_counter()
        hessian = matrix(unknowns, wanted)
        made = perf_counter()
        factors = splu(hessian.tocsc(), permc_spec="NATURAL", diag_pivot_thresh=0.01, options={"SymmetricMode": True})
        unknowns = unknowns - factors.solve(residual)
        steps.append(Step(float(np.abs(residual).max()), made - begun, perf_counter() - made))
    return unknowns.reshape(times, points, 3), steps


def main(times: int = 1667, points: int = 20) -> None:
    """Shows the steps, and how near the temperature comes."""
    found, steps = solve(times, points)
    table = Table("residual", "seconds for the matrix", "for the solve", title=f"{found.size:,} unknowns")
    for step in steps:
        table.add_row(f"{step.residual:.1e}", f"{step.matrix:.2f}", f"{step.solve:.2f}")
    console = Console()
    console.print(table)
    console.print(f"mean distance from the target {np.abs(found[..., 0] - target(times, points)).mean():.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
