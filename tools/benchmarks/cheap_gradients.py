"""The gradient beside the value, from a hundred parameters to a million."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

import fxgrad
from benchmarks.compiled import compiled
from benchmarks.models import FXGRAD, JAX, random
from benchmarks.workload import Peer, Peers, Ratio, Workload

PRODUCTS = {10: 320_000, 7: 1_000_000}
"""So many products of a row of data with a matrix there are, by its size, whatever the number of parameters."""


def layers(lib: Any) -> Any:
    """A layer of ten inputs and ten outputs for each hundred parameters, side by side."""
    return lambda w, x: lib.np.mean(lib.np.tanh(x @ w) ** 2)


def depth(lib: Any) -> Any:
    """A layer of seven inputs and seven outputs for each 49 parameters, one after the other."""
    return lambda w, x: lib.np.mean(lib.lax.scan(lambda h, w: (lib.np.tanh(h @ w), None), x, w)[0] ** 2)


def arguments(model: Any, count: int) -> tuple[Any, ...]:
    """So many parameters, and the data."""
    size = 7 if model is depth else 10
    number = count // size ** 2
    rows = PRODUCTS[size] // number
    x = random(rows, size, scale=1) if model is depth else random(number, rows, size, scale=1)
    return random(number, size, size, scale=1 / 3), x


def with_gradient(model: Any, count: int, jitted: bool, small: bool) -> Peers:
    """The value with its gradient, and the value alone."""
    w, x = arguments(model, 100 if small else count)
    x = x[..., :3, :] if small else x
    if jitted:
        w, x = jnp.asarray(w), jnp.asarray(x)
        ours, theirs = (lambda w: model(FXGRAD)(w, x)), (lambda w: model(JAX)(w, x))
        return {"fxgrad": compiled(fxgrad.jit(fxgrad.value_and_grad(ours)), (w,)),
                "the value": Peer(compiled(fxgrad.jit(ours), (w,)).call, result=None),
                "jax.jit": compiled(jax.jit(jax.value_and_grad(theirs)), (w,)),
                "jax's value": Peer(compiled(jax.jit(theirs), (w,)).call, result=None)}
    def loss(w: Any) -> Any:
        return model(FXGRAD)(w, x)

    both, program = fxgrad.value_and_grad(loss), fxgrad.make_program(loss)(w)
    return {"fxgrad": Peer(lambda: both(w)), "the value": Peer(lambda: jax.block_until_ready(program(w)), result=None)}


WORKLOADS = [
    Workload(f"cheap gradient: {count:,} {model.__name__}{' compiled' if jitted else ''}",
             f"Value and gradient by {count:,} parameters of {model.__name__}",
             functools.partial(with_gradient, model, count, jitted), (Ratio("the value", 4.0),), jitted=jitted)
    for model in (layers, depth) for jitted in (False, True) for count in (100, 1_000, 10_000, 100_000, 1_000_000)]
