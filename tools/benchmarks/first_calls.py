"""The first call of the gradient of a new program, with the tables of programs empty; and that of a second process."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
from benchmarks import models
from benchmarks.libraries import autograd, jax_arguments
from benchmarks.problems import PROBLEMS, chain
from benchmarks.workload import Absolute, Peer, Peers, Ratio, Workload, forget_programs, nothing

OPERATIONS = 1000


def first_call(name: str, small: bool) -> Peers:
    """The first call of the gradient of a function that is made anew for each call, in all libraries."""
    problem = PROBLEMS[name] if name else chain(10 if small else OPERATIONS)
    args = problem.given("float32", small)
    of_jax = jax_arguments(args)
    peers = {"fxgrad": Peer(lambda: fxgrad.grad(problem.loss(np))(*args), prepare=forget_programs)}
    if autograd():
        grad, namespace = autograd().grad, autograd().numpy
        peers["autograd"] = Peer(lambda: grad(problem.loss(namespace))(*args), prepare=nothing)
    peers["jax"] = Peer(lambda: jax.grad(problem.loss(jnp))(*of_jax), prepare=nothing)
    peers["jax.jit"] = Peer(lambda: jax.jit(jax.grad(problem.loss(jnp)))(*of_jax), prepare=nothing)
    return peers


def steps_loss(xp: Any, count: int) -> Callable[[Any], Any]:
    """A Python loop of so many steps of three operations."""
    def loss(w: Any) -> Any:
        x = np.full(8, 0.1)
        for _ in range(count):
            x = xp.tanh(x * w + 0.01)
        return xp.sum(x)
    return loss


def long_loop(count: int, small: bool) -> Peers:
    """The first call of the gradient of a long Python loop, in float64."""
    count, w = (10 if small else count), np.full(8, 0.5)
    peers = {"fxgrad": Peer(lambda: fxgrad.grad(steps_loss(np, count))(w), prepare=forget_programs)}
    if autograd():
        grad, namespace = autograd().grad, autograd().numpy
        peers["autograd"] = Peer(lambda: grad(steps_loss(namespace, count))(w), prepare=nothing)
    return peers


def blocks_loss(count: int) -> Callable[..., Any]:
    """The mean square of what a Python loop over transformer blocks returns."""
    def loss(p: Any, x: Any) -> Any:
        for place in range(count):
            x = models.transformer_layer(models.FXGRAD, x, {name: weight[place] for name, weight in p.items()})
        return np.mean(x ** 2)
    return loss


def gradient_of_blocks(count: int) -> None:
    """What a process computes: one gradient of transformer blocks, jitted."""
    gradient = fxgrad.jit(fxgrad.grad(blocks_loss(count)))
    jax.block_until_ready(gradient(*models.transformer_arguments(count, count < 24)))


def processes(small: bool) -> Peers:
    """Whole processes, with what they import: one whose executable is on disk, and one that finds an empty folder."""
    script = f"from benchmarks.first_calls import gradient_of_blocks; gradient_of_blocks({2 if small else 24})"
    root = Path(__file__).resolve().parents[2]
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

    # All modules have bytecode, as those of installed libraries have, whatever the settings of this process are.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run(path: str) -> None:
        subprocess.run([sys.executable, "-c", script], check=True, env={
            **environment, "FXGRAD_EXECUTABLE_STORE": path, "FXGRAD_CHECK": "0",
            "PYTHONPYCACHEPREFIX": os.path.join(folder, "bytecode"),
            "PYTHONPATH": os.pathsep.join([str(root), str(root / "tools")])})

    def with_store() -> None:
        run(os.path.join(folder, "store"))

    def without() -> None:
        with tempfile.TemporaryDirectory() as empty:
            run(empty)
    with_store()
    return {"fxgrad": Peer(with_store, result=None, prepare=nothing),
            "the first process": Peer(without, result=None, prepare=nothing)}


def of_problem(name: str) -> Workload:
    """The workload of the first call of one of the problems."""
    return Workload(f"first call: {name}", f"First call of the gradient of {PROBLEMS[name].title}, float32",
                    functools.partial(first_call, name), (Absolute(10_000.0),))


WORKLOADS = [
    *(of_problem(name) for name in ("scalar", "logistic regression", "Rosenbrock", "MLP", "RNN")),
    Workload(f"first call: {OPERATIONS} operations",
             f"First call of the gradient of {OPERATIONS} operations on ten numbers, float32",
             functools.partial(first_call, ""), (Absolute(25_000.0),)),
    Workload("first call: 1,000 steps", "First call of the gradient of a Python loop of 1,000 steps",
             functools.partial(long_loop, 1_000), (Ratio("autograd", 2.0),)),
    Workload("first call: 50,000 steps", "Every call of the gradient of a Python loop of 50,000 steps",
             functools.partial(long_loop, 50_000), (Ratio("autograd", 1.0),)),
    Workload("first call: second process",
             "A process that finds the executable of the gradient of 24 transformer blocks on disk",
             processes, (Ratio("the first process", 0.5),)),
]
