"""Sparse Jacobians and Hessians, and finding their patterns, beside dense matrices and asdex where it is installed."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
from benchmarks.workload import Peer, Peers, Ratio, Workload, forget_programs


def tridiagonal(lib: Any, x: Any) -> Any:
    """Each result depends on three neighbours."""
    return x[1:-1] ** 2 + lib.sin(x[:-2]) * x[2:]


def pentadiagonal(lib: Any, x: Any) -> Any:
    """Each second derivative is of elements at most two apart."""
    return lib.sum((x[2:] - 2.0 * x[1:-1] + x[:-2]) ** 4)


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {"jacobian": tridiagonal, "hessian": pentadiagonal}
asdex: Any = importlib.import_module("asdex") if find_spec("asdex") else None


def matrices(kind: str, size: int, small: bool) -> Peers:
    """The matrix, compiled; dense ones up to 2,000 variables."""
    x = jnp.linspace(0.1, 1.5, 30 if small else size, dtype="float64")
    ours, theirs = functools.partial(FUNCTIONS[kind], np), functools.partial(FUNCTIONS[kind], jnp)

    def dense(matrix: Any) -> Any:
        return matrix.todense()

    def peer(function: Any, result: Any) -> Peer:
        function(x)
        return Peer(lambda: jax.block_until_ready(function(x)), result=result)

    peers = {"fxgrad": peer(fxgrad.jit(getattr(fxgrad, kind)(ours, sparse=True)), dense)}
    if asdex is not None:
        peers["asdex"] = peer(jax.jit(getattr(asdex, kind)(theirs, x)), dense)
    if size <= 2_000:
        peers["dense"] = peer(jax.jit(getattr(jax, kind)(theirs)), lambda matrix: matrix)
    return peers


def patterns(kind: str, size: int, small: bool) -> Peers:
    """The pattern and its coloring, of a function that is new to the library."""
    x = np.linspace(0.1, 1.5, 30 if small else size)

    def find() -> Any:
        pattern = getattr(fxgrad.sparsity(functools.partial(FUNCTIONS[kind], np))(x), kind)
        return pattern.compression("symmetric" if kind == "hessian" else "auto").columns.number

    peers = {"fxgrad": Peer(find, prepare=forget_programs)}
    if asdex is not None:
        peers["asdex"] = Peer(lambda: getattr(asdex, f"{kind}_coloring_from_sparsity")(
            getattr(asdex, f"{kind}_sparsity")(functools.partial(FUNCTIONS[kind], jnp), jnp.asarray(x))).num_colors)
    return peers


WORKLOADS = [
    *(Workload(f"sparse: {kind}, n = {size:,}", f"The sparse {kind} of a band, n = {size:,}",
               functools.partial(matrices, kind, size),
               (Ratio("asdex", 1.0), *([Ratio("dense", limit)] if size <= 2_000 else [])), wide=True)
      for size in (2_000, 10_000) for kind, limit in (("jacobian", 0.01), ("hessian", 0.005))),
    *(Workload(f"sparse: pattern of the {kind}, n = {size:,}", f"Pattern and colors of the {kind}, n = {size:,}",
               functools.partial(patterns, kind, size), (Ratio("asdex", 0.1),), wide=True)
      for size in (2_000, 10_000) for kind in FUNCTIONS),
]
