"""Norms of the gradients of examples, compiled, beside those of jax's gradients, and one gradient of the batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import fxgrad
from benchmarks import models
from benchmarks.compiled import compiled
from benchmarks.models import FXGRAD, JAX, random
from benchmarks.workload import Bar, Memory, Peer, Peers, Ratio, Workload


def wide_network(lib: Any) -> models.Loss:
    """Three layers 1024 wide with tanh, and the square of what the last returns."""
    def loss(p: Any, x: Any) -> Any:
        for w, b in p:
            x = lib.np.tanh(x @ w + b)
        return lib.np.mean(x ** 2)
    return loss


def wide_arguments(small: bool) -> tuple[Any, ...]:
    """Weights, and 256 examples."""
    batch, width = (3, 8) if small else (256, 1024)
    return [(random(width, width, scale=width ** -0.5), random(width)) for _ in range(3)], random(batch, width, scale=1)


def one_sequence(lib: Any) -> models.Loss:
    """The loss of a transformer by scan, of one sequence."""
    loss = models.transformer(lib)
    return lambda p, x: loss(p, x[None])


def one_image(lib: Any) -> models.Loss:
    """The loss of a convolutional net, of one image."""
    loss = models.convolutional(lib)
    return lambda p, image, label: loss(p, image[None], label[None])


MODELS: dict[str, tuple[Callable[[Any], models.Loss], Callable[[bool], tuple[Any, ...]]]] = {
    "network 1024 wide": (wide_network, wide_arguments),
    "transformer": (one_sequence, functools.partial(models.transformer_arguments, 4)),
    "convolutional net": (one_image, models.convolutional_arguments),
}


def norms_of(name: str, small: bool) -> Peers:
    """The norms of a model's gradients, one for each example of the batch."""
    model, arguments = MODELS[name]
    params, *batch = jax.tree.map(jnp.asarray, arguments(small))
    axes = (None, *[0] * len(batch))

    def by_gradients(params: Any, *batch: Any) -> Any:
        gradients = jax.vmap(jax.grad(model(JAX)), axes)(params, *batch)
        return jnp.sqrt(sum(jnp.sum(leaf ** 2, axis=tuple(range(1, leaf.ndim))) for leaf in jax.tree.leaves(gradients)))

    def of_batch(params: Any, *batch: Any) -> Any:
        return jnp.mean(jax.vmap(model(JAX), axes)(params, *batch))

    return {"fxgrad": compiled(fxgrad.jit(fxgrad.curvature.per_example_norms(model(FXGRAD))), (params, *batch)),
            "jax's vmap(grad)": compiled(jax.jit(by_gradients), (params, *batch)),
            "gradient of the batch": Peer(compiled(jax.jit(jax.grad(of_batch)), (params, *batch)).call, result=None)}


LIMITS: dict[str, tuple[Bar, ...]] = {
    "network 1024 wide": (Ratio("jax's vmap(grad)", 0.2), Memory("jax's vmap(grad)", 0.05)),
    "transformer": (Ratio("jax's vmap(grad)", 0.7), Memory("jax's vmap(grad)", 0.7)),
    "convolutional net": (Ratio("jax's vmap(grad)", 1.05), Memory("jax's vmap(grad)", 1.0)),
}
WORKLOADS = [Workload(f"curvature: norms, {name}", f"Norms of the gradients of examples of a {name}",
                      functools.partial(norms_of, name), LIMITS[name], jitted=True, tolerance=1e-3) for name in MODELS]
