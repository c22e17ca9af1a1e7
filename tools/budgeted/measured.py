"""What gradients take within budgets: time, what XLA allocates, and what NumPy does."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.measure import measure
from benchmarks.workload import Peer

import fxgrad
import fxgrad.numpy as fnp
from budgeted.models import Model

PARTS = (0.6, 0.4, 0.3, 0.2)
"""Budgets, as parts of what a gradient takes without one."""


class Row(NamedTuple):
    """One gradient: its bytes and time, as parts of those of the same library without a budget or checkpoints.

    `budget` is in bytes, 0 for none; `work` what the plan says that it adds.
    """

    name: str
    budget: int
    memory: int
    memory_part: float
    time_part: float
    work: float

    @property
    def cells(self) -> list[str]:
        """The row as texts, under `HEADER`."""
        return [self.name, f"{self.memory / 1e6:.1f} MB", f"{self.memory_part:.0%}", f"{self.time_part:.2f}",
                f"+{self.work:.0%}" if self.budget else "-"]


HEADER = ["gradient", "memory", "of that without", "time", "work planned"]


def within_bar(rows: Sequence[Row]) -> bool:
    """Whether some budget takes at most 40 % of the memory for at most 1.25 times the time."""
    return any(row.budget and row.memory_part <= 0.4 and row.time_part <= 1.25 for row in rows)


def compiled_rows(model: Model, rounds: int) -> list[Row]:
    """By XLA, in turns: without, within budgets, and with `checkpoint` around each block, ours and jax's."""
    args = model.parameters, model.data
    ours = model.loss(fnp, lambda block: block)
    gradients: dict[str, tuple[int, float, Any]] = {
        "fxgrad": (0, 0.0, fxgrad.jit(fxgrad.grad(ours))),
        "jax": (0, 0.0, jax.jit(jax.grad(model.loss(jnp, lambda block: block))))}
    for budget, work in budgets(ours, args):
        gradients[f"memory_budget {budget / 2**20:.3g} MiB"] = (
            budget, work, fxgrad.jit(fxgrad.grad(ours, memory_budget=budget)))
    gradients["fxgrad.checkpoint of each block"] = 0, 0.0, fxgrad.jit(fxgrad.grad(model.loss(fnp, fxgrad.checkpoint)))
    gradients["jax.checkpoint of each block"] = 0, 0.0, jax.jit(jax.grad(model.loss(jnp, jax.checkpoint)))
    compiled = {name: function.lower(*args).compile() for name, (_, _, function) in gradients.items()}
    figures = measure({name: Peer(lambda each=each: jax.block_until_ready(each(*args)), None)
                       for name, each in compiled.items()}, rounds)
    rows = []
    for name, (budget, work, _) in gradients.items():
        base = "jax" if name.startswith("jax") else "fxgrad"
        memory = {key: compiled[key].memory_analysis().temp_size_in_bytes for key in (name, base)}
        rows.append(Row(name, budget, memory[name], memory[name] / memory[base],
                        figures[name].median / figures[base].median, work))
    return rows


def numpy_rows(model: Model, rounds: int) -> list[Row]:
    """By NumPy, with the peak of `tracemalloc`, in which the gradients themselves are."""
    args = model.parameters, model.data
    ours = model.loss(fnp, lambda block: block)
    gradients = {"fxgrad": (0, 0.0, fxgrad.grad(ours))}
    for budget, work in budgets(ours, args):
        gradients[f"memory_budget {budget / 2**20:.3g} MiB"] = budget, work, fxgrad.grad(ours, memory_budget=budget)
    peaks = {name: _peak(function, args) for name, (_, _, function) in gradients.items()}
    times: dict[str, list[float]] = {name: [] for name in gradients}
    for _ in range(rounds):
        for name, (_, _, function) in gradients.items():
            start = time.perf_counter()
            function(*args)
            times[name].append(time.perf_counter() - start)
    return [Row(name, budget, peaks[name], peaks[name] / peaks["fxgrad"],
                float(np.median(times[name]) / np.median(times["fxgrad"])), work)
            for name, (budget, work, _) in gradients.items()]


def lever_rows(model: Model) -> list[tuple[str, int, float, int, float, float]]:
    """For each lever: peak bytes and seconds of NumPy, temporary bytes and seconds of XLA, the gradient's error."""
    args = model.parameters, model.data
    ours = model.loss(fnp, lambda block: block)
    points = fxgrad.budget_curve(ours)(*args).points
    budget = min(points, key=lambda point: abs(point.peak - 0.3 * points[0].peak)).peak
    policies = fxgrad.checkpoint_policies
    stored = {f"keep {name}": fxgrad.grad(model.loss(fnp, lambda block, policy=policy: fxgrad.checkpoint(
        block, policy=policy))) for name, policy in (("in bfloat16", policies.store_as("bfloat16")), (
            "in int8", policies.store_as("int8")), ("elsewhere", policies.offload()))}
    gradients = {"none": fxgrad.grad(ours), f"memory_budget {budget / 2**20:.3g} MiB": fxgrad.grad(
        ours, memory_budget=budget), **stored}
    expected = jax.tree.leaves(gradients["none"](*args))
    rows = []
    for name, gradient in gradients.items():
        found = jax.tree.leaves(gradient(*args))
        error = max(float(np.max(np.abs(one - other)) / np.max(np.abs(other)))
                    for one, other in zip(found, expected, strict=True))
        compiled = fxgrad.jit(gradient).lower(*args).compile()
        rows.append((name, _peak(gradient, args), _seconds(lambda each=gradient: each(*args)),
                     compiled.memory_analysis().temp_size_in_bytes,
                     _seconds(lambda each=compiled: jax.block_until_ready(each(*args))), error))
    return rows


def _seconds(call: Callable[[], Any], calls: int = 7) -> float:
    """The median of a few calls."""
    found = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return float(np.median(found))


def budgets(loss: Callable[..., Any], args: Sequence[Any]) -> list[tuple[int, float]]:
    """The plans whose memory comes nearest to `PARTS` of that without a budget, with their work."""
    points = fxgrad.budget_curve(loss)(*args).points
    found = {min(points, key=lambda point, part=part: abs(point.peak - part * points[0].peak)) for part in PARTS}
    return [(point.peak, point.work) for point in sorted([*found, points[-1]], reverse=True)]


def _peak(gradient: Callable[..., Any], args: Sequence[Any]) -> int:
    gradient(*args)
    tracemalloc.start()
    gradient(*args)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
