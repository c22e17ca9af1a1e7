"""One step of training a small transformer: gradients, clipping, Adam; beside jax with Flax and Optax."""

from __future__ import annotations

import functools
import importlib
from dataclasses import replace
from typing import Any

import jax
import numpy as np

import fxgrad
from benchmarks.compiled import compiled
from benchmarks.models import random
from benchmarks.workload import Memory, Peer, Peers, Ratio, Workload
from fxgrad import nn, optim

WIDTH, HEADS, LAYERS, CLASSES = 64, 4, 4, 10


def initial(width: int, layers: int) -> Any:
    """Weights, in the containers that Flax has for them."""
    kernel = lambda *shape: {"kernel": random(*shape, scale=shape[0] ** -0.5)}  # noqa: E731
    norm = lambda: {"scale": np.ones(width, np.float32)}  # noqa: E731
    return {"rows": kernel(8, width), "head": kernel(width, CLASSES), **{f"layer{number}": {
        "norm1": norm(), "qkv": kernel(width, 3 * width), "out": kernel(width, width),
        "norm2": norm(), "up": kernel(width, 4 * width), "down": kernel(4 * width, width)} for number in range(layers)}}


def logits(params: Any, images: Any) -> Any:
    """Scores of the classes for images of shape (batch, 8, 8), by fxgrad."""
    x = images @ params["rows"]["kernel"]
    for number in range(len(params) - 2):
        p = params[f"layer{number}"]
        y = nn.layer_norm(x, p["norm1"]["scale"]) @ p["qkv"]["kernel"]
        q, k, v = np.split(np.reshape(y, (*x.shape[:2], HEADS, -1)), 3, axis=-1)
        x = x + np.reshape(nn.dot_product_attention(q, k, v), x.shape) @ p["out"]["kernel"]
        x = x + nn.gelu(nn.layer_norm(x, p["norm2"]["scale"]) @ p["up"]["kernel"]) @ p["down"]["kernel"]
    return np.mean(x, axis=1) @ params["head"]["kernel"]


def of_fxgrad(optimiser: Any) -> Any:
    """The step."""
    def loss(params: Any, images: Any, labels: Any) -> Any:
        return nn.cross_entropy(logits(params, images), labels)

    def step(params: Any, state: Any, images: Any, labels: Any) -> Any:
        value, gradients = fxgrad.value_and_grad(loss)(params, images, labels)
        gradients = optim.clip_by_global_norm(gradients, 1.0)
        return *optimiser.update(gradients, state, params), value
    return step


def of_flax(optimiser: Any, layers: int) -> Any:
    """The same step by jax, Flax and Optax."""
    linen, optax = importlib.import_module("flax.linen"), importlib.import_module("optax")

    class Model(linen.Module):
        """The same transformer."""

        width: int

        @linen.compact
        def __call__(self, images: Any) -> Any:
            x = linen.Dense(self.width, use_bias=False, name="rows")(images)
            for number in range(layers):
                x = Block(self.width, name=f"layer{number}")(x)
            return linen.Dense(CLASSES, use_bias=False, name="head")(jax.numpy.mean(x, axis=1))

    class Block(linen.Module):
        """One layer."""

        width: int

        @linen.compact
        def __call__(self, x: Any) -> Any:
            dense = functools.partial(linen.Dense, use_bias=False)
            norm = functools.partial(linen.LayerNorm, use_bias=False, epsilon=1e-5)
            y = dense(3 * self.width, name="qkv")(norm(name="norm1")(x))
            q, k, v = jax.numpy.split(y.reshape(*x.shape[:2], HEADS, -1), 3, axis=-1)
            x = x + dense(self.width, name="out")(jax.nn.dot_product_attention(q, k, v).reshape(x.shape))
            y = jax.nn.gelu(dense(4 * self.width, name="up")(norm(name="norm2")(x)))
            return x + dense(self.width, name="down")(y)

    def step(params: Any, state: Any, images: Any, labels: Any) -> Any:
        def loss(params: Any) -> Any:
            scores = Model(params["head"]["kernel"].shape[0]).apply({"params": params}, images)
            return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()
        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = optimiser.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value
    return step


def a_step(small: bool) -> Peers:
    """The step of both, from equal weights."""
    width, layers, batch = (8, 1, 4) if small else (WIDTH, LAYERS, 128)
    params, images, labels = jax.tree.map(jax.numpy.asarray, (
        initial(width, layers), random(batch, 8, 8, scale=1), np.arange(batch, dtype=np.int32) % CLASSES))

    def peer(step: Any, state: Any) -> Peer:
        # The states are containers of each library's own.
        return replace(compiled(step, (params, state, images, labels)), result=lambda out: (out[0], out[2]))
    ours = optim.adam(1e-3)
    peers = {"fxgrad": peer(fxgrad.jit(of_fxgrad(ours)), ours.init(params))}
    try:
        optax = importlib.import_module("optax")
        importlib.import_module("flax.linen")
    except ImportError:
        return peers
    theirs = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    peers["jax, Flax, Optax"] = peer(jax.jit(of_flax(theirs, layers)), theirs.init(params))
    return peers


WORKLOADS = [Workload("training: transformer", "A training step of a transformer of 4 layers, width 64, 128 images",
                      a_step, (Ratio("jax, Flax, Optax", 1.05), Memory("jax, Flax, Optax", 1.05)), jitted=True)]
