"""Laplacians, compiled, beside jax's ways and those of folx."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
from benchmarks.compiled import compiled
from benchmarks.models import random
from benchmarks.workload import Peers, Ratio, Workload


def network(lib: Any, weights: Any, x: Any) -> Any:
    """64 inputs, three layers 256 wide, one output."""
    for w in weights[:-1]:
        x = lib.tanh(x @ w)
    return (x @ weights[-1])[0]


def particles(lib: Any, weights: Any, x: Any) -> Any:
    """The sum over 20 particles in three dimensions of a network on each."""
    for w in weights[:-1]:
        x = lib.tanh(x @ w)
    return lib.sum(x @ weights[-1])


def attention(lib: Any, weights: Any, x: Any) -> Any:
    """The same with a layer of attention between the particles."""
    embed, query, key, value, read = weights
    h = lib.tanh(x @ embed)
    scores = (h @ query) @ (h @ key).T / 4.0
    scores = lib.exp(scores - lib.max(scores, axis=-1, keepdims=True))
    scores = scores / lib.sum(scores, axis=-1, keepdims=True)
    return lib.sum(lib.tanh(h + scores @ (h @ value)) @ read)


def weights_of(*sizes: tuple[int, int]) -> list[Any]:
    """Weights that keep the size of values."""
    return [random(*size, scale=size[0] ** -0.5) for size in sizes]


MODELS: dict[str, tuple[Callable[..., Any], list[Any], tuple[int, ...]]] = {
    "network": (network, weights_of((64, 256), (256, 256), (256, 256), (256, 1)), (64,)),
    "particles": (particles, weights_of((3, 32), (32, 32), (32, 1)), (20, 3)),
    "attention": (attention, weights_of((3, 16), (16, 16), (16, 16), (16, 16), (16, 1)), (20, 3)),
}


def of_model(name: str, batch: int, small: bool) -> Peers:
    """The Laplacian of one model, for one point or a batch."""
    model, weights, shape = MODELS[name]
    weights = [*map(jnp.asarray, weights)]
    points = jnp.asarray(random(2 if small and batch > 1 else batch, *shape, scale=1))
    ours, theirs = (functools.partial(model, lib, weights) for lib in (np, jnp))

    def by_hessian(x: Any) -> Any:
        return jnp.trace(jax.hessian(lambda flat: theirs(flat.reshape(shape)))(x.ravel()))

    def by_products(x: Any) -> Any:
        _, push = jax.linearize(jax.grad(lambda flat: theirs(flat.reshape(shape))), x.ravel())
        return jnp.sum(jax.vmap(lambda row: jnp.vdot(push(row), row))(jnp.eye(x.size, dtype=x.dtype)))

    given = (points,) if batch > 1 else (points[0],)
    mapped = (fxgrad.vmap, jax.vmap) if batch > 1 else (lambda function: function,) * 2
    laplacian = fxgrad.laplacian(ours, sparse=name != "network")  # there all entries meet in the first layer
    peers = {"fxgrad": compiled(fxgrad.jit(mapped[0](laplacian)), given),
             "jax's Hessian": compiled(jax.jit(mapped[1](by_hessian)), given),
             "jax's products": compiled(jax.jit(mapped[1](by_products)), given)}
    try:
        forward = importlib.import_module("folx").forward_laplacian
    except ImportError:
        return peers
    for way, threshold in (("folx", 0), ("folx, sparse", 6)):
        peers[way] = compiled(jax.jit(mapped[1](
            lambda x, threshold=threshold: forward(theirs, sparsity_threshold=threshold)(x).laplacian)), given)
    return peers


LIMITS = {"network": 0.5, "particles": 1 / 12, "attention": 1 / 1.6}
WORKLOADS = [Workload(f"laplacian: {name}, {batch}", f"The Laplacian of {name} at {batch} points",
                      functools.partial(of_model, name, batch),
                      (Ratio("jax's Hessian", LIMITS[name]), Ratio("jax's products", LIMITS[name]), Ratio("folx", 1.0),
                       Ratio("folx, sparse", 1.0)), jitted=True, tolerance=1e-3)
             for name in MODELS for batch in (1, 64)]
