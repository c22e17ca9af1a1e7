"""Values inside functions captured, differentiated and watched, beside the same written out by hand."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
from benchmarks.compiled import both
from benchmarks.models import FXGRAD, JAX, random
from benchmarks.workload import Peer, Peers, Ratio, Workload

COUNT = 4


def network(lib: Any, weights: Any, x: Any) -> Any:
    """Return the mean square of layers with tanh, and what each of them computes."""
    hidden = []
    for w in weights:
        h = lib.np.tanh(x @ w)
        x = x + h
        hidden.append(h)
    return lib.np.mean(x ** 2), hidden


def loss(weights: Any, x: Any) -> Any:
    """The mean square alone."""
    return network(FXGRAD, weights, x)[0]


def arguments(small: bool) -> tuple[Any, ...]:
    """Weights, and rows."""
    rows, width = (3, 8) if small else (64, 256)
    return [*jnp.asarray(random(COUNT, width, width, scale=width ** -0.5))], jnp.asarray(random(rows, width, scale=1))


def captured(small: bool) -> Peers:
    """The result with the values of all layers."""
    found = fxgrad.capture(loss, "h#*")

    def ours(weights: Any, x: Any) -> Any:
        result, values = found(weights, x)
        return result, [*values.values()]
    return both(ours, functools.partial(network, JAX), arguments(small), small)


def gradient(small: bool) -> Peers:
    """The gradient at the second layer."""
    def theirs(weights: Any, x: Any) -> Any:
        h = jnp.tanh(x @ weights[0])
        x = x + h

        def tail(h: Any) -> Any:
            y = x + h
            for w in weights[2:]:
                y = y + jnp.tanh(y @ w)
            return jnp.mean(y ** 2)
        return jax.grad(tail)(jnp.tanh(x @ weights[1]))
    return both(fxgrad.grad(loss, wrt="h#1"), theirs, arguments(small), small)


def watched(small: bool) -> Peers:
    """Ten steps of gradient descent, of which the first is watched."""
    weights, x = arguments(small)

    def train(weights: Any, x: Any) -> Any:
        value, grads = fxgrad.value_and_grad(loss)(weights, x)  # noqa: RUF059  (watched)
        return fxgrad.tree.map(lambda w, g: w - 0.1 * g, weights, grads)

    step = fxgrad.jit(train)
    seen: list[Any] = []

    def steps(step: Any) -> Any:
        result = weights
        for _ in range(10):
            result = step(result, x)
        return jax.block_until_ready(result)
    looking = fxgrad.watch(step, "value", "grads.norm", every=10, to=lambda step, values: seen.append(values))
    return {"fxgrad": Peer(functools.partial(steps, looking)), "not watched": Peer(functools.partial(steps, step))}


def unjitted(small: bool) -> Peers:
    """The result with the values of all layers by NumPy: the function is traced at each call."""
    weights, x = jax.tree.map(np.asarray, arguments(small))
    found = fxgrad.capture(loss, "h#*")
    return {"fxgrad": Peer(lambda: [*found(weights, x)[1].values()]),
            "by hand": Peer(lambda: network(FXGRAD, weights, x)[1])}


WORKLOADS = [
    Workload("inside: capture", "Four layers 256 wide, with the values of all", captured, (Ratio("jax.jit", 1.1),),
             jitted=True, tolerance=1e-4),
    Workload("inside: gradient at a layer", "The gradient at the second of four layers", gradient,
             (Ratio("jax.jit", 1.1),), jitted=True, tolerance=1e-4),
    Workload("inside: watch", "Ten steps of training, one of them watched", watched, (Ratio("not watched", 1.2),),
             jitted=True, tolerance=1e-4),
    Workload("inside: capture, un-jitted", "Four layers by NumPy, with the values of all", unjitted, tolerance=1e-4),
]
