"""The tables of docs/appendix/gpus.md: the same programs on the processor and on the GPU, memory, precision, meshes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from benchmarks.measure import measure
from benchmarks.workload import Peer
from budgeted.measured import HEADER, compiled_rows, within_bar
from budgeted.models import models
from parallels.measured import difference, laid_out
from parallels.patterns import PATTERNS

import fxgrad
from gpus.programs import PRECISIONS, STORED, in_precision, loss_of, matrices
from tests.support.shipped import SHIPPED
from tests.support.targets import distance


class Table(NamedTuple):
    """A table of the page; `missed` are the rows that are not as promised."""

    head: tuple[str, ...]
    rows: list[list[str]]
    missed: list[str]


def equality() -> Table:
    """Every program of the suite, jitted, beside NumPy's results, with products in full precision and in XLA's own."""
    rows, missed = [], []
    for name, (function, args, tolerance) in SHIPPED.items():
        expected = function(*args)
        jitted = fxgrad.jit(function)
        off = {}
        for precision in ("highest", "default"):
            with jax.default_matmul_precision(precision):
                off[precision] = distance(jitted(*args), expected)
        if off["highest"] > tolerance:
            missed.append(name)
        rows.append([name, f"{tolerance:.0e}", *(f"{each:.0e}" for each in off.values())])
    return Table(("program", "tolerance", "differs", "differs, products at XLA's default"), rows, missed)


def budgets(rounds: int, blocks: int = 24) -> Table:
    """Gradients of a transformer and of an MLP within budgets: at most 40 % of the memory for 1.25 times the time."""
    rows, missed = [], []
    for name, model in models(blocks).items():
        found = compiled_rows(model, rounds)
        rows += [[name, *row.cells] for row in found]
        if not within_bar(found):
            missed.append(name)
    return Table(("model", *HEADER), rows, missed)


def offload(rounds: int, blocks: int = 24) -> Table:
    """Residuals of each block in the host's memory: what the device needs at its peak, by XLA's own account.

    Missed unless the device needs less than with all residuals on it, and gradients are equal to rounding.
    """
    rows, missed = [], []
    for name, model in models(blocks).items():
        args = jax.device_put((model.parameters, model.data))
        gradients = {how: fxgrad.jit(fxgrad.grad(loss_of(model, around))).lower(*args).compile()
                     for how, around in STORED.items()}
        expected = gradients["all on the device"](*args)
        times = _times(gradients, args, rounds)
        memory = {how: each.memory_analysis() for how, each in gradients.items()}
        base = memory["all on the device"].temp_size_in_bytes
        for how, found in memory.items():
            error = difference(gradients[how](*args), expected)
            rows.append([name, how, f"{found.temp_size_in_bytes / 1e6:.1f} MB",
                         f"{found.host_temp_size_in_bytes / 1e6:.1f} MB",
                         f"{times[how] / times['all on the device']:.2f}", f"{error:.0e}"])
            if error > 1e-4 or (how == "offloaded" and found.temp_size_in_bytes >= base):
                missed.append(f"{name}, {how}")
    return Table(("model", "residuals", "device memory", "host memory", "time", "gradients differ"), rows, missed)


def precision(rounds: int, blocks: int = 24, size: int = 4096) -> Table:
    """Value and gradient with products in float32, bfloat16 and float16, and one large product in each dtype."""
    rows, missed = [], []
    for name, model in models(blocks).items():
        args = jax.device_put((model.parameters, model.data))
        steps = {each: fxgrad.jit(in_precision(model, each)).lower(*args).compile() for each in PRECISIONS}
        expected, times = steps["float32"](*args), _times(steps, args, rounds)
        for each, step in steps.items():
            error = difference(step(*args), expected)
            rows.append([name, each, f"{times[each] / times['float32']:.2f}",
                         f"{step.memory_analysis().temp_size_in_bytes / 1e6:.1f} MB", f"{error:.0e}"])
            if error > 0.1:
                missed.append(f"{name}, {each}")
    a, b = matrices(size)
    for each in PRECISIONS:
        operands = jax.device_put((jax.numpy.asarray(a, each), jax.numpy.asarray(b, each)))
        product = {"A @ B": fxgrad.jit(np.matmul).lower(*operands).compile()}
        seconds = _times(product, operands, rounds)["A @ B"] * 1e-6
        rows.append([f"A @ B, n = {size}", each, f"{2 * size**3 / seconds / 1e12:.3g} Tflop/s",
                     f"{product['A @ B'].memory_analysis().temp_size_in_bytes / 1e6:.1f} MB", "-"])
    return Table(("model", "products in", "time, by that in float32", "memory", "differs"), rows, missed)


def shardings(rounds: int) -> Table:
    """The patterns of examples/parallel on as many devices as their meshes have, or on meshes of one device."""
    rows, missed = [], []
    for name, pattern in PATTERNS.items():
        axes = pattern.ours.AXES if jax.device_count() >= 8 else dict.fromkeys(pattern.ours.AXES, 1)
        mesh, arrays, laid = laid_out(pattern, axes)
        expected = fxgrad.value_and_grad(pattern.ours.loss)(*arrays)
        with jax.enable_x64(True):
            steps = {"fxgrad": fxgrad.jit(pattern.step(mesh)).lower(*laid).compile(),
                     "jax": jax.jit(pattern.jax_step(mesh)).lower(*laid).compile()}
            times = _times(steps, laid, rounds)
            differs = difference(steps["fxgrad"](*laid), expected)
        if differs > 1e-9:
            missed.append(name)
        rows.append([name, str(mesh.size), f"{differs:.0e}", f"{times['fxgrad'] / times['jax']:.2f}"])
    return Table(("pattern", "devices", "differs from NumPy", "time, by jax's"), rows, missed)


def devices() -> Table:
    """What nodes of a graph say of the device that holds their values."""
    x = jax.device_put(np.ones((2, 3), np.float32), jax.devices()[0])
    drawn = fxgrad.graph(lambda x: np.tanh(x) * 2.0)(x)
    said = sorted({node.device for node in drawn.nodes if node.device})
    expected = jax.devices()[0].platform
    return Table(("device", "nodes say"), [[str(jax.devices()[0]), ", ".join(said)]],
                 [] if any(expected in each for each in said) else ["nodes"])


def _times(functions: dict[str, Any], args: Sequence[Any], rounds: int) -> dict[str, float]:
    """Median microseconds of compiled functions that take turns."""
    return {name: found.median for name, found in measure({
        name: Peer(lambda each=each: jax.block_until_ready(each(*args)), None)
        for name, each in functions.items()}, rounds).items()}
