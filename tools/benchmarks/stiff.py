"""Stiff equations, solved compiled and un-jitted with sparse systems, beside SciPy's BDF with the pattern."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import fxgrad
from benchmarks.workload import Peer, Peers, Ratio, Workload

TIMES = np.array([0.0, 1.0, 10.0])
TOLERANCE = 1e-6


def diffuse(lib: Any, w: Any, end: float) -> Any:
    """Second differences along each axis, of a field with the value `end` around it, divided by the spacing."""
    wide = lib.pad(w, 1, constant_values=end)
    inner = (slice(1, -1),) * w.ndim
    total = -2.0 * w.ndim * w
    for axis in range(w.ndim):
        for part in (slice(2, None), slice(None, -2)):
            total = total + wide[(*inner[:axis], part, *inner[axis + 1:])]
    return (w.shape[0] + 1) ** 2 * total


def brusselator(lib: Any, shape: tuple[int, ...], y: Any, _: Any) -> Any:
    """Two species on a grid, one after the other in `y` (Hairer and Wanner, IV.1)."""
    u, v = (half.reshape(shape) for half in (y[:y.shape[0] // 2], y[y.shape[0] // 2:]))
    reaction = u * u * v
    return lib.concatenate([(1.0 + reaction - 4.0 * u + 0.02 * diffuse(lib, u, 1.0)).ravel(),
                            (3.0 * u - reaction + 0.02 * diffuse(lib, v, 3.0)).ravel()])


def start_of(shape: tuple[int, ...]) -> Any:
    """A wave of the first species along the first axis, and an even second one."""
    places = np.arange(1, shape[0] + 1) / (shape[0] + 1)
    wave = np.broadcast_to((1.0 + np.sin(2 * np.pi * places)).reshape(-1, *[1] * (len(shape) - 1)), shape)
    return np.concatenate([wave.ravel(), np.full(wave.size, 3.0)])


def solutions(shape: tuple[int, ...], jitted: bool, small: bool) -> Peers:
    """The state at three times, of a Brusselator on a grid of this shape."""
    shape = tuple(min(extent, 5) for extent in shape) if small else shape
    start = start_of(shape)
    field = functools.partial(brusselator, np, shape)
    solve: Callable[[Any], Any] = functools.partial(_solve, field)
    pattern = fxgrad.sparsity(field)(start, 0.0).jacobian.to_scipy()

    def by_scipy() -> Any:
        found = solve_ivp(lambda t, y: field(y, t), (TIMES[0], TIMES[-1]), start, method="BDF", rtol=TOLERANCE,
                          atol=TOLERANCE, t_eval=TIMES, jac_sparsity=pattern)
        return found.y.T

    if not jitted:
        return {"fxgrad": Peer(lambda: solve(start)), "SciPy's BDF": Peer(by_scipy)}
    compiled = fxgrad.jit(solve)
    on_device = jnp.asarray(start)
    return {"fxgrad": Peer(lambda: jax.block_until_ready(compiled(on_device))), "SciPy's BDF": Peer(by_scipy)}


def _solve(field: Callable[..., Any], y: Any) -> Any:
    return fxgrad.odeint(field, y, TIMES, rtol=TOLERANCE, atol=TOLERANCE, method="rosenbrock", sparse=True)


def workload(name: str, title: str, shape: tuple[int, ...], jitted: bool) -> Workload:
    """One grid, compiled or not. Solutions differ by what both methods' tolerances allow."""
    return Workload(f"stiff: {name}", title, functools.partial(solutions, shape, jitted),
                    (Ratio("SciPy's BDF", 1.0),), wide=True, tolerance=1e-4)


WORKLOADS = [
    workload("a line, compiled", "The Brusselator with 1,000 unknowns on a line, compiled", (500,), True),
    workload("a line, un-jitted", "The Brusselator with 1,000 unknowns on a line, un-jitted", (500,), False),
    workload("a square, un-jitted", "The Brusselator with 968 unknowns on a square, un-jitted", (22, 22), False),
]
