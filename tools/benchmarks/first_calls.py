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


def gradient_of_blocks(count: int) -> Callable[[], Any]:
    """Return the call of what a process computes: one gradient of transformer blocks, jitted."""
    gradient, args = fxgrad.jit(fxgrad.grad(blocks_loss(count))), models.transformer_arguments(count, count < 24)
    return lambda: jax.block_until_ready(gradient(*args))


@functools.cache
def folder() -> str:
    """Return a folder that is there until this process ends."""
    path = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


class Process:
    """A process that imports all, and makes its first call, of that gradient, when it is told to.

    The executable is in the folder `store`, or goes there.
    """

    def __init__(self, count: int, store: str) -> None:
        script = (f"from benchmarks.first_calls import gradient_of_blocks; call = gradient_of_blocks({count}); "
                  "print(flush=True); input(); call(); print(flush=True)")
        root = Path(__file__).resolve().parents[2]
        # All modules have bytecode, as those of installed libraries have, whatever the settings of this process are.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={
                **environment, "FXGRAD_EXECUTABLE_STORE": store, "FXGRAD_CHECK": "0",
                "PYTHONPYCACHEPREFIX": os.path.join(folder(), "bytecode"),
                "PYTHONPATH": os.pathsep.join([str(root), str(root / "tools")])})

    def wait(self) -> None:
        """Wait for the next line of the process: it is ready, or has its result."""
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise SystemExit("a process of the benchmark failed; its message stands above")

    def call(self) -> None:
        """Have the process call, and wait for the result."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.wait()

    def end(self) -> None:
        """Wait for the end of the process."""
        self._process.communicate()


def processes(whole: bool, small: bool) -> Peers:
    """A process that finds the executable of one before it on disk, and one that finds an empty folder.

    Timed until the first result: as a `whole` with what they import, or from the call on.
    """
    store = tempfile.mkdtemp(dir=folder())
    running: list[Process] = []

    def begin(path: str) -> None:
        running.append(Process(2 if small else 24, path))
        running[-1].wait()

    def end() -> None:
        while running:
            running.pop().end()
    atexit.register(end)

    def peer(path: Callable[[], str]) -> Peer:
        if whole:
            return Peer(lambda: (begin(path()), running[-1].call()), result=None, prepare=end)
        return Peer(lambda: running[-1].call(), result=None, prepare=lambda: (end(), begin(path())))

    begin(store)
    running[-1].call()
    return {"fxgrad": peer(lambda: store), "the first process": peer(lambda: tempfile.mkdtemp(dir=folder()))}


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
             functools.partial(processes, True), (Ratio("the first process", 0.5),)),
    Workload("first call: second process, the call", "The first call of such a process, which has imported all",
             functools.partial(processes, False), (Ratio("the first process", 0.2),)),
]
