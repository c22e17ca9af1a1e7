"""Norms of gradients of examples, and Gauss-Newton products, compiled, beside what one writes with jax."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import fxgrad
from benchmarks import models
from benchmarks.compiled import both, compiled
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


def recurrence(lib: Any) -> models.Loss:
    """The loss of a tanh RNN, of one sequence."""
    loss = models.rnn(lib)
    return lambda p, xs: loss(p, xs[:, None])


def recurrent_arguments(small: bool) -> tuple[Any, ...]:
    """Weights, and 16 sequences of 64 entries of 128 features."""
    batch, steps, width = (2, 3, 4) if small else (16, 64, 128)
    weights = {"w": random(width, width), "u": random(width, width), "b": random(width)}
    return weights, random(batch, steps, width, scale=1)


MODELS: dict[str, tuple[Callable[[Any], models.Loss], Callable[[bool], tuple[Any, ...]]]] = {
    "network 1024 wide": (wide_network, wide_arguments),
    "transformer": (one_sequence, functools.partial(models.transformer_arguments, 4)),
    "convolutional net": (one_image, models.convolutional_arguments),
    "recurrent network": (recurrence, recurrent_arguments),
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
    "recurrent network": (Ratio("jax's vmap(grad)", 0.9), Memory("jax's vmap(grad)", 0.7)),
}


def product(small: bool) -> Peers:
    """The Gauss-Newton product of a network with a cross entropy, beside jax's jvp, hvp and vjp in a row."""
    (*hidden, (last, bias)), x = jax.tree.map(jnp.asarray, wide_arguments(small))
    params = [*hidden, (last[:, :10], bias[:10])]
    vector = jax.tree.map(jnp.cos, params)
    labels = jnp.eye(last[:, :10].shape[1])[jnp.arange(len(x)) % last[:, :10].shape[1]]

    def logits(lib: Any, params: Any, x: Any) -> Any:
        for w, b in params[:-1]:
            x = lib.np.tanh(x @ w + b)
        return x @ params[-1][0] + params[-1][1]

    def ours(params: Any, vector: Any, x: Any) -> Any:
        return fxgrad.curvature.gauss_newton_product(
            lambda params: logits(FXGRAD, params, x), lambda z: models.cross_entropy(FXGRAD, z, labels), (params,),
            (vector,))

    def theirs(params: Any, vector: Any, x: Any) -> Any:
        outputs, moved = jax.jvp(lambda params: logits(JAX, params, x), (params,), (vector,))
        _, curved = jax.jvp(jax.grad(lambda z: models.cross_entropy(JAX, z, labels)), (outputs,), (moved,))
        return jax.vjp(lambda params: logits(JAX, params, x), params)[1](curved)[0]

    return both(ours, theirs, (params, vector, x), small)


WORKLOADS = [Workload(f"curvature: norms, {name}", f"Norms of the gradients of examples of a {name}",
                      functools.partial(norms_of, name), LIMITS[name], jitted=True, tolerance=1e-3) for name in MODELS]
WORKLOADS.append(Workload("curvature: Gauss-Newton product", "The Gauss-Newton product of a network 1024 wide", product,
                          (Ratio("jax.jit", 1.05), Memory("jax.jit", 1.0)), jitted=True, tolerance=1e-3))
