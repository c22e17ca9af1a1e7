"""What is measured: XLA's plan of memory, NumPy's traced peak, and how long a prediction takes."""

from __future__ import annotations

import gc
import time
import tracemalloc
from typing import Any, NamedTuple

import numpy as np

import fxgrad
import fxgrad.numpy as fnp
from xrays.later import LATER
from xrays.programs import HELD_OUT, PROGRAMS, Case, f32, layers, mlp_loss
from xrays.unseen import UNSEEN

ALL: dict[str, Case] = {**PROGRAMS, **HELD_OUT, **LATER, **UNSEEN}
CLOSE = 0.15


class Row(NamedTuple):
    """A program: bytes that the model says and that XLA plans, temporaries and results; bytes for NumPy."""

    name: str
    equations: int
    model: tuple[int, int]
    planned: tuple[int, int]
    unfused: int
    traced: int

    @property
    def ratio(self) -> float:
        """The model's sum of temporaries and results by XLA's."""
        return sum(self.model) / sum(self.planned)

    @property
    def is_close(self) -> bool:
        """Whether the two differ by at most 15 %."""
        return abs(self.ratio - 1) <= CLOSE


def measured(name: str) -> Row:
    """Compiles a program and runs it with NumPy, and predicts both."""
    case = ALL[name]
    program = fxgrad.make_program(case.function)(*case.args)
    found = fxgrad.memory_analysis(case.function)(*case.args)
    return Row(name, len(program.equations), (found.fused.temporary, found.fused.results), planned(case),
               found.peak.point.nbytes, _traced(program, case.args))


def planned(case: Case) -> tuple[int, int]:
    """The bytes of temporaries and results that XLA plans."""
    plan = fxgrad.jit(case.function).lower(*case.args).compile().memory_analysis()
    return plan.temp_size_in_bytes, plan.output_size_in_bytes


def _traced(program: Any, args: Any) -> int:
    """The most bytes that NumPy has beside the arguments while a program runs, once its code is generated."""
    generator = np.random.default_rng(0)

    def array(struct: Any) -> Any:
        if np.dtype(struct.dtype).kind == "i":
            return generator.integers(0, 10, struct.shape).astype(struct.dtype)
        drawn = np.abs(generator.normal(size=struct.shape)).astype(struct.dtype)  # so that the second branch is taken
        square = len(struct.shape) == 2 and struct.shape[0] == struct.shape[1]
        return drawn + 30 * np.eye(struct.shape[0], dtype=struct.dtype) if square else drawn
    given = fxgrad.tree.map(array, args)
    with np.errstate(all="ignore"):
        for _ in range(3):
            program(*given)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            kept = program(*given)
            return tracemalloc.get_traced_memory()[1] - before
        finally:
            kept = None  # noqa: F841  (the result is alive at the peak)
            tracemalloc.stop()


def chain(length: int) -> Any:
    """The program of a chain of elementwise operations."""
    def function(x: Any) -> Any:
        for _ in range(length // 3):
            x = fnp.sin(x) * 2.0 + 1.0
        return x
    return fxgrad.make_program(function)(f32(16, 32))


def deep(length: int) -> Any:
    """The gradient program of a deep residual network."""
    def loss(weights: Any, x: Any) -> Any:
        for number in range(length // 14):
            x = fnp.tanh(x @ weights[number % 5] + x) * 0.5 + x
        return fnp.sum(x ** 2)
    return fxgrad.make_program(fxgrad.grad(loss))([f32(32, 32)] * 5, f32(16, 32))


def speed(repeats: int = 9) -> dict[str, tuple[int, float]]:
    """Equations, and the least milliseconds of some that `memory` takes of a program that was not looked at before."""
    found = {}
    for title, program in (("a chain of elementwise operations", chain(10_000)),
                           ("the gradient of a deep network", deep(10_000))):
        times = []
        for _ in range(repeats):
            fresh = program.replace()
            gc.collect()
            begin = time.perf_counter()
            fxgrad.memory_analysis(fresh)()
            times.append(1e3 * (time.perf_counter() - begin))
        found[title] = len(program.equations), min(times)
    return found


class Growth(NamedTuple):
    """How memory grows: the sizes, bytes that the backward pass is saved, temporaries by the model and XLA's."""

    title: str
    sizes: tuple[int, ...]
    saved: tuple[int, ...]
    model: tuple[int, ...]
    planned: tuple[int, ...]


def growth() -> list[Growth]:
    """By depth, and by batch, of the gradient of an MLP."""
    sizes = (2, 4, 8, 16, 24)
    by_depth = [(layers(*[128] * depth, 10), f32(256, 128), f32(256, 10)) for depth in sizes]
    batches = (64, 128, 256, 512, 1024)
    by_batch = [(layers(*[128] * 8, 10), f32(batch, 128), f32(batch, 10)) for batch in batches]
    return [_grown("layers", sizes, by_depth), _grown("rows of a batch", batches, by_batch)]


def _grown(title: str, sizes: tuple[int, ...], cases: list[Any]) -> Growth:
    gradient = fxgrad.grad(mlp_loss)
    found = [fxgrad.memory_analysis(gradient)(*args) for args in cases]
    plans = [fxgrad.jit(gradient).lower(*args).compile().memory_analysis() for args in cases]
    return Growth(title, sizes, tuple([each.saved_bytes for each in found]),
                  tuple([each.fused.temporary for each in found]),
                  tuple([plan.temp_size_in_bytes for plan in plans]))
