"""The gradient beside the value, from a hundred parameters to a million."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
from benchmarks.compiled import compiled
from benchmarks.models import random
from benchmarks.workload import Peer, Peers, Ratio, Workload

ROWS = 32
"""Every parameter is used for so many rows of data, whatever their number."""


def loss_of(x: Any) -> Any:
    """A layer of ten inputs and ten outputs for each hundred parameters, all alike."""
    def loss(w: Any) -> Any:
        return np.mean(np.tanh(x @ w) ** 2)
    return fxgrad.transparent(loss)


def with_gradient(count: int, jitted: bool, small: bool) -> Peers:
    """The value with its gradient, and the value alone."""
    blocks = 1 if small else count // 100
    x, w = random(blocks, ROWS, 10, scale=1), random(blocks, 10, 10, scale=0.3)
    loss = loss_of(x)
    if jitted:
        w = jnp.asarray(w)
        alone = compiled(fxgrad.jit(loss), (w,)).call
        return {"fxgrad": compiled(fxgrad.jit(fxgrad.value_and_grad(loss)), (w,)),
                "the value": Peer(alone, result=None)}
    both = fxgrad.value_and_grad(loss)
    program = fxgrad.make_program(loss)(w)
    return {"fxgrad": Peer(lambda: both(w)), "the value": Peer(lambda: jax.block_until_ready(program(w)), result=None)}


WORKLOADS = [
    Workload(f"cheap gradient: {count:,}{' compiled' if jitted else ''}",
             f"Value and gradient by {count:,} parameters", functools.partial(with_gradient, count, jitted),
             (Ratio("the value", 4.0),), jitted=jitted)
    for jitted in (False, True) for count in (100, 1_000, 10_000, 100_000, 1_000_000)]
