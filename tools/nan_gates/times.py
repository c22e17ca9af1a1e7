"""The time of gradients of models with `fxgrad.nan_safe` and without, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import fxgrad
import fxgrad.numpy as fnp

TIME_HEAD = ("gradient of", "un-jitted", "with `safe`", "ratio", "jitted", "with `safe`", "ratio")
Model = tuple[Callable[[Any], Any], Any]
_random = np.random.default_rng(0)


def _normal(*shape: int) -> Any:
    return _random.normal(size=shape)


def network(batch: int, inputs: int, width: int) -> Model:
    """Two hidden layers, and the cross-entropy of a softmax."""
    params = {"W1": _normal(inputs, width) / 8, "b1": np.zeros(width), "W2": _normal(width, width) / 8,
              "b2": np.zeros(width), "W3": _normal(width, 10) / 8}
    x, labels = _normal(batch, inputs), np.eye(10)[_random.integers(0, 10, batch)]

    def loss(params: Any) -> Any:
        hidden = np.tanh(x @ params["W1"] + params["b1"])
        hidden = np.tanh(hidden @ params["W2"] + params["b2"])
        return -np.mean(np.sum(fxgrad.nn.log_softmax(hidden @ params["W3"]) * labels, axis=1))
    return loss, params


def transformer(batch: int, length: int, width: int, heads: int = 4) -> Model:
    """A block of a transformer: attention with a causal mask, layer norms, and two dense layers."""
    params = {name: _normal(width, width) / width ** 0.5 for name in "qkvo"}
    params |= {"up": _normal(width, 4 * width) / width ** 0.5, "down": _normal(4 * width, width) / width ** 0.5}
    x, mask = _normal(batch, length, width), np.tril(np.ones((length, length), bool))

    def norm(x: Any) -> Any:
        return (x - fnp.mean(x, -1, keepdims=True)) / fnp.sqrt(fnp.var(x, -1, keepdims=True) + 1e-5)

    def loss(params: Any) -> Any:
        y = norm(x)
        q, k, v = [(y @ params[name]).reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)
                   for name in "qkv"]
        scores = q @ k.transpose(0, 1, 3, 2) / (width // heads) ** 0.5
        mixed = fxgrad.nn.softmax(fnp.where(mask, scores, -1e30), -1) @ v
        y = x + mixed.transpose(0, 2, 1, 3).reshape(batch, length, width) @ params["o"]
        return fnp.mean((y + fxgrad.nn.gelu(norm(y) @ params["up"]) @ params["down"]) ** 2)
    return loss, params


def cross_entropy(batch: int, classes: int) -> Model:
    """Of softmax over many classes, in the logits."""
    labels = _random.integers(0, classes, batch)
    return lambda logits: -fnp.mean(fxgrad.nn.log_softmax(logits)[np.arange(batch), labels]), _normal(batch, classes)


def recurrent(steps: int, batch: int, width: int) -> Model:
    """A recurrent network, by `scan`."""
    params = {"W": _normal(width, width) / width ** 0.5, "U": _normal(width, width) / width ** 0.5}
    inputs = _normal(steps, batch, width)

    def loss(params: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            return fnp.tanh(state @ params["W"] + x @ params["U"]), None
        return fnp.mean(fxgrad.lax.scan(step, np.zeros((batch, width)), inputs)[0] ** 2)
    return loss, params


MODELS: dict[str, Callable[[], Model]] = {
    "MLP, 128 x 256, two layers of 256": lambda: network(128, 256, 256),
    "transformer block, 4 x 128 x 128": lambda: transformer(4, 128, 128),
    "softmax cross-entropy, 128 x 1000": lambda: cross_entropy(128, 1000),
    "recurrent network by scan, 50 steps of 64 x 128": lambda: recurrent(50, 64, 128),
    "small MLP, 32 x 64, two layers of 64": lambda: network(32, 64, 64),
    "small transformer block, 1 x 32 x 64": lambda: transformer(1, 32, 64),
}


def time_rows(count: int) -> list[list[str]]:
    """The table: medians of `count` calls in turn, and of the ratios of neighbours."""
    rows = []
    for name, make in MODELS.items():
        function, params = make()
        plain, safe = fxgrad.grad(function), fxgrad.grad(fxgrad.nan_safe(function))
        row = [name]
        for pair in ((plain, safe), (fxgrad.jit(plain), fxgrad.jit(safe))):
            before, after, ratio = _medians(pair, params, count)
            row += [_shown(before), _shown(after), f"{ratio:.2f}"]
        rows.append(row)
    return rows


def slowest(rows: Sequence[Sequence[str]]) -> float:
    """The largest ratio."""
    return max(float(row[place]) for row in rows for place in (3, 6))


def _medians(pair: Sequence[Callable[[Any], Any]], params: Any, count: int) -> tuple[float, float, float]:
    times: list[list[float]] = [[], []]
    for number in range(count + 5):
        for place in ((0, 1), (1, 0))[number % 2]:
            start = time.perf_counter()
            jax.block_until_ready(pair[place](params))
            if number >= 5:
                times[place].append(time.perf_counter() - start)
    before, after = np.array(times)
    return float(np.median(before)), float(np.median(after)), float(np.median(after) / np.median(before))


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds > 1e-3 else f"{seconds * 1e6:.3g} µs"
