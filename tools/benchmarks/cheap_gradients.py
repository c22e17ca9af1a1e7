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

NUMBERS = 3_200_000
"""So many numbers of data there are, whatever the number of parameters: each is used for its share of them."""


def layers(lib: Any) -> Any:
    """A layer of ten inputs and ten outputs for each hundred parameters, all alike."""
    return lambda w, x: lib.mean(lib.tanh(x @ w) ** 2)


def elements(lib: Any) -> Any:
    """A parameter for each column of the data."""
    return lambda w, x: lib.mean(lib.tanh(x * w + 1) ** 2)


def arguments(model: Any, count: int) -> tuple[Any, ...]:
    """So many parameters, and the data."""
    if model is elements:
        return random(count, scale=1), random(NUMBERS // count, count, scale=1)
    return random(count // 100, 10, 10, scale=0.3), random(count // 100, NUMBERS * 10 // count, 10, scale=1)


def with_gradient(model: Any, count: int, jitted: bool, small: bool) -> Peers:
    """The value with its gradient, and the value alone."""
    w, x = arguments(model, 100 if small else count)
    x = x[..., :3, :] if small else x
    if jitted:
        w, x = jnp.asarray(w), jnp.asarray(x)
        ours, theirs = (lambda w: model(np)(w, x)), (lambda w: model(jnp)(w, x))
        return {"fxgrad": compiled(fxgrad.jit(fxgrad.value_and_grad(ours)), (w,)),
                "the value": Peer(compiled(fxgrad.jit(ours), (w,)).call, result=None),
                "jax.jit": compiled(jax.jit(jax.value_and_grad(theirs)), (w,)),
                "jax's value": Peer(compiled(jax.jit(theirs), (w,)).call, result=None)}
    loss = fxgrad.transparent(lambda w: model(np)(w, x))
    both, program = fxgrad.value_and_grad(loss), fxgrad.make_program(loss)(w)
    return {"fxgrad": Peer(lambda: both(w)), "the value": Peer(lambda: jax.block_until_ready(program(w)), result=None)}


WORKLOADS = [
    Workload(f"cheap gradient: {count:,} {model.__name__}{' compiled' if jitted else ''}",
             f"Value and gradient by {count:,} parameters of {model.__name__}",
             functools.partial(with_gradient, model, count, jitted), (Ratio("the value", 4.0),), jitted=jitted)
    for model in (layers, elements) for jitted in (False, True) for count in (100, 1_000, 10_000, 100_000, 1_000_000)]
