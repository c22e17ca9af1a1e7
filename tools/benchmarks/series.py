"""Derivatives of high order along a direction, compiled, beside jax's jet and the function alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.jet import jet

import fxgrad
from benchmarks.compiled import compiled
from benchmarks.models import random
from benchmarks.workload import Peer, Peers, Ratio, Workload


def network(lib: Any, x: Any) -> Any:
    """Three layers 256 wide."""
    for w in WEIGHTS:
        x = lib.tanh(x @ w)
    return x


WEIGHTS = random(3, 256, 256, scale=1 / 16)
MANY, ROWS = np.linspace(0.1, 1.5, 100_000, dtype="float32"), random(64, 256, scale=1)
FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "sin": (lambda lib, x: lib.sin(x), MANY), "tanh": (lambda lib, x: lib.tanh(x), MANY),
    "exp cos": (lambda lib, x: lib.exp(x) * lib.cos(x), MANY), "quotient": (lambda lib, x: 1 / (1 + x * x), MANY),
    "MLP": (network, ROWS),
}


def along_ones(name: str, order: int, small: bool) -> Peers:
    """All derivatives up to the order along a direction of ones."""
    function, x = FUNCTIONS[name]
    x = jnp.asarray(x[:4] if small else x)
    direction = jnp.ones_like(x)
    ours, theirs = functools.partial(function, np), functools.partial(function, jnp)

    def by_jet(x: Any) -> Any:
        value, series = jet(theirs, (x,), ([direction] + [jnp.zeros_like(x)] * (order - 1),))
        return (value, *series)
    return {"fxgrad": compiled(fxgrad.jit(lambda x: fxgrad.derivatives(ours, order)(x, direction=direction)), (x,)),
            "jax's jet": compiled(jax.jit(by_jet), (x,)),
            "the function": Peer(compiled(jax.jit(theirs), (x,)).call, result=None)}


WORKLOADS = [Workload(f"series: {name}, order {order}", f"Derivatives of {name} up to order {order}",
                      functools.partial(along_ones, name, order), (Ratio("jax's jet", 1.0),), jitted=True)
             for order in (4, 10) for name in FUNCTIONS]
