"""Un-jitted programs of operations that do not wait for each other, on two threads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad
from benchmarks.workload import Peer, Peers, Ratio, Workload

KERNELS: dict[str, Callable[[Any], Any]] = {
    "factorisations": np.linalg.cholesky, "products": lambda a: a @ a, "eigenvalues": lambda a: np.linalg.eigh(a)[0]}


def on_two_threads(name: str, small: bool) -> Peers:
    """Eight times the same operation, as dataflow and in the order of the program."""
    size = 6 if small else 800
    matrices = [m @ m.T + size * np.eye(size) for m in np.random.default_rng(0).normal(size=(8, size, size))]

    def values() -> Any:
        return fxgrad.vjp(lambda *given: [KERNELS[name](matrix) for matrix in given], *matrices)[0]

    def as_dataflow() -> Any:
        with fxgrad.dataflow(threads=2):
            return values()
    return {"fxgrad": Peer(as_dataflow), "one thread": Peer(values)}


WORKLOADS = [Workload(f"dataflow: {name}", f"Eight {name} of 800 x 800, on two threads",
                      functools.partial(on_two_threads, name), (Ratio("one thread", limit),))
             for name, limit in (("factorisations", 0.65), ("products", 0.6), ("eigenvalues", 0.65))]
