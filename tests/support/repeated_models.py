"""Functions of repeated blocks, for any namespace of NumPy's names: layers, steps in time, steps of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Model(NamedTuple):
    """A function of `(namespace, *args)` that returns a number, and `arguments(depth)`."""

    function: Callable[..., Any]
    arguments: Callable[[int], tuple[Any, ...]]


def _random(*shape: int, seed: int = 0) -> Any:
    return (np.random.default_rng((*shape, seed)).normal(size=shape) / max(shape[-2:-1] or (1,)) ** 0.5).astype("f")


def _layer(seed: int, width: int) -> dict[str, Any]:
    return {"gain": 1 + 0.1 * _random(width, seed=seed), "into": _random(width, 2 * width, seed=seed),
            "out": _random(2 * width, width, seed=seed)}


def layers(depth: int, width: int = 8) -> list[dict[str, Any]]:
    """Parameters of residual layers, one dictionary each."""
    return [_layer(seed, width) for seed in range(depth)]


def stacked(each: list[dict[str, Any]]) -> dict[str, Any]:
    """The same parameters, each stacked along a first axis."""
    return {name: np.stack([one[name] for one in each]) for name in each[0]}


def _normalised(xp: Any, x: Any) -> Any:
    centred = x - xp.mean(x, -1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, -1, keepdims=True) + 1e-5)


def _residual(xp: Any, x: Any, layer: Any) -> Any:
    return x + xp.tanh((_normalised(xp, x) * layer["gain"]) @ layer["into"]) @ layer["out"]


def residual_mlp(xp: Any, each: Any, x: Any) -> Any:
    """Residual layers with their parameters in separate arrays."""
    for layer in each:
        x = _residual(xp, x, layer)
    return xp.sum(x * x)


def stacked_mlp(xp: Any, stack: Any, x: Any) -> Any:
    """Residual layers with stacked parameters."""
    for index in range(stack["gain"].shape[0]):
        x = _residual(xp, x, {name: array[index] for name, array in stack.items()})
    return xp.sum(x * x)


def _attention_layer(seed: int, width: int) -> dict[str, Any]:
    return {**_layer(seed, width), "mix": _random(width, 3 * width, seed=seed),
            "back": _random(width, width, seed=seed)}


def transformer(xp: Any, each: Any, x: Any) -> Any:
    """Blocks of attention with two heads and of a residual layer."""
    heads = 2
    for layer in each:
        length, width = x.shape
        q, k, v = xp.split(_normalised(xp, x) @ layer["mix"], 3, axis=-1)
        q, k, v = (xp.transpose(xp.reshape(part, (length, heads, -1)), (1, 0, 2)) for part in (q, k, v))
        scores = q @ xp.transpose(k, (0, 2, 1)) / (width / heads) ** 0.5
        weights = xp.exp(scores - xp.max(scores, -1, keepdims=True))
        seen = (weights / xp.sum(weights, -1, keepdims=True)) @ v
        x = _residual(xp, x + xp.reshape(xp.transpose(seen, (1, 0, 2)), (length, width)) @ layer["back"], layer)
    return xp.sum(x * x)


def recurrent(xp: Any, params: Any, xs: Any) -> Any:
    """A recurrent network over the entries of `xs`."""
    state = xp.zeros((xs.shape[1], params["of_state"].shape[0]), "float32")
    for step in range(xs.shape[0]):
        state = xp.tanh(xs[step] @ params["of_input"] + state @ params["of_state"] + params["bias"])
    return xp.sum(state * state)


def _oscillator(xp: Any, stiffness: Any, y: Any) -> Any:
    return xp.sin(y) * stiffness - y


def runge_kutta(depth: int) -> Callable[..., Any]:
    """Steps of the classical Runge-Kutta method."""
    def solve(xp: Any, stiffness: Any, y: Any) -> Any:
        step = 0.05
        for _ in range(depth):
            first = _oscillator(xp, stiffness, y)
            second = _oscillator(xp, stiffness, y + step / 2 * first)
            third = _oscillator(xp, stiffness, y + step / 2 * second)
            fourth = _oscillator(xp, stiffness, y + step * third)
            y = y + step / 6 * (first + 2 * second + 2 * third + fourth)
        return xp.sum(y * y)
    return solve


def adam(depth: int) -> Callable[..., Any]:
    """Steps of Adam on a least-squares problem, with the gradient written out; numbers differ by step."""
    def train(xp: Any, w: Any, inputs: Any, targets: Any) -> Any:
        mean, square = xp.zeros_like(w), xp.zeros_like(w)
        for step in range(1, depth + 1):
            slope = inputs.T @ (inputs @ w - targets) / len(targets)
            mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope * slope
            w = w - 0.05 * (mean / (1 - 0.9 ** step)) / (xp.sqrt(square / (1 - 0.99 ** step) + 1e-8) + 1e-4)
        return xp.sum((inputs @ w - targets) ** 2)
    return train


def models(depth: int) -> dict[str, Model]:
    """The models by name; those of a fixed number of steps have this depth."""
    return {
        "residual MLP": Model(residual_mlp, lambda depth: (layers(depth), _random(4, 8))),
        "stacked MLP": Model(stacked_mlp, lambda depth: (stacked(layers(depth)), _random(4, 8))),
        "transformer": Model(transformer, lambda depth: (
            [_attention_layer(seed, 8) for seed in range(depth)], _random(6, 8))),
        "RNN": Model(recurrent, lambda depth: (
            {"of_input": _random(3, 5), "of_state": _random(5, 5), "bias": _random(5)}, _random(depth, 2, 3))),
        "ODE": Model(runge_kutta(depth), lambda depth: (np.float32(2.0), _random(4))),
        "Adam": Model(adam(depth), lambda depth: (_random(3), _random(6, 3), _random(6))),
    }
