"""One step of training a small transformer: gradients, clipping, Adam; beside jax with Flax and Optax, and PyTorch."""

from __future__ import annotations

import functools
import importlib
from dataclasses import replace
from typing import Any

import jax
import numpy as np

import fxgrad
from benchmarks.compiled import compiled
from benchmarks.libraries import torch
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


def of_torch(params: Any, images: Any, labels: Any) -> Peer:
    """The same step by PyTorch, as its tutorials write it; every call begins with the given weights."""
    pytorch, functional = torch(), importlib.import_module("torch.nn.functional")
    layers, width = len(params) - 2, params["rows"]["kernel"].shape[1]

    class Block(pytorch.nn.Module):  # type: ignore[misc, name-defined]  # imported when asked for
        """One layer."""

        def __init__(self) -> None:
            super().__init__()
            linear = functools.partial(pytorch.nn.Linear, bias=False)
            self.norm1, self.norm2 = (pytorch.nn.LayerNorm(width, bias=False) for _ in range(2))
            self.qkv, self.out = linear(width, 3 * width), linear(width, width)
            self.up, self.down = linear(width, 4 * width), linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            y = self.qkv(self.norm1(x)).unflatten(-1, (HEADS, 3, -1)).permute(3, 0, 2, 1, 4)
            y = functional.scaled_dot_product_attention(*y).transpose(1, 2).flatten(-2)
            x = x + self.out(y)
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(pytorch.nn.Module):  # type: ignore[misc, name-defined]
        """The same transformer."""

        def __init__(self) -> None:
            super().__init__()
            self.rows, self.head = (pytorch.nn.Linear(*sizes, bias=False) for sizes in ((8, width), (width, CLASSES)))
            self.layers = pytorch.nn.Sequential(*(Block() for _ in range(layers)))

        def forward(self, images: Any) -> Any:
            return self.head(self.layers(self.rows(images)).mean(1))

    def step() -> Any:
        optimiser.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        pytorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        return loss

    model, images, labels = Model(), *(pytorch.tensor(np.array(array)) for array in (images, labels))
    labels = labels.long()
    given = {name: pytorch.tensor(np.array(weight).T) for name, weight in _torch_names(params).items()}
    optimiser = pytorch.optim.Adam(model.parameters(), lr=1e-3)

    def begin() -> None:
        model.load_state_dict(given)
        for state in optimiser.state.values():
            for moment in state.values():
                moment.zero_()

    def result(loss: Any) -> Any:
        trained = {name: weight.detach().numpy().T for name, weight in model.named_parameters()}
        return jax.tree.unflatten(jax.tree.structure(params), [
            trained[name] for name in _torch_names(params)]), loss.detach().numpy()
    return Peer(step, result=result, prepare=begin)


def _torch_names(params: Any) -> dict[str, Any]:
    """The weights by their names in PyTorch's module, in the order of the leaves of `params`."""
    named = {}
    for (name, *parts), weight in ((tuple(key.key for key in path), leaf)
                                   for path, leaf in jax.tree.flatten_with_path(params)[0]):
        place = ("layers", name.removeprefix("layer"), parts[0]) if name.startswith("layer") else (name,)
        named[".".join((*place, "weight"))] = weight
    return named


def a_step(small: bool) -> Peers:
    """The step of all three, from equal weights."""
    width, layers, batch = (8, 1, 4) if small else (WIDTH, LAYERS, 128)
    params, images, labels = jax.tree.map(jax.numpy.asarray, (
        initial(width, layers), random(batch, 8, 8, scale=1), np.arange(batch, dtype=np.int32) % CLASSES))

    def peer(step: Any, state: Any) -> Peer:
        # The states are containers of each library's own.
        return replace(compiled(step, (params, state, images, labels)), result=lambda out: (out[0], out[2]))
    ours = optim.adam(1e-3)
    peers = {"fxgrad": peer(fxgrad.jit(of_fxgrad(ours)), ours.init(params))}
    if torch():
        peers["PyTorch"] = of_torch(params, images, labels)
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
