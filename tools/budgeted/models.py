"""The models that budgets are measured on: 24 blocks, one after the other, of a transformer and of an MLP.

Each is written once, for fxgrad's NumPy and for jax's.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

BLOCKS = 24
WIDTH, HEADS, LENGTH, BATCH = 128, 4, 128, 4
ROWS = 2048


class Model(NamedTuple):
    """`loss(module, around)` is the loss for a module of array functions, each block wrapped by `around`."""

    loss: Callable[..., Callable[[Any, Any], Any]]
    parameters: Any
    data: Any


def _normalized(np_: ModuleType, x: Any) -> Any:
    centred = x - np_.mean(x, -1, keepdims=True)
    return centred / np_.sqrt(np_.mean(centred * centred, -1, keepdims=True) + np.float32(1e-5))


def _gelu(np_: ModuleType, x: Any) -> Any:
    return x * np.float32(0.5) * (1 + np_.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x)))


def _softmax(np_: ModuleType, x: Any) -> Any:
    unscaled = np_.exp(x - np_.max(x, -1, keepdims=True))
    return unscaled / np_.sum(unscaled, -1, keepdims=True)


def transformer(np_: ModuleType, around: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Attention and an MLP, each behind a norm and around a skip."""
    def block(p: Any, x: Any) -> Any:
        hidden = _normalized(np_, x) * p["scale"]
        query, key, value = (np_.swapaxes(np_.reshape(hidden @ p[name], (BATCH, LENGTH, HEADS, WIDTH // HEADS)), 1, 2)
                             for name in ("query", "key", "value"))
        weights = _softmax(np_, query @ np_.swapaxes(key, 2, 3) / np.float32(np.sqrt(WIDTH // HEADS)))
        x = x + np_.reshape(np_.swapaxes(weights @ value, 1, 2), (BATCH, LENGTH, WIDTH)) @ p["out"]
        return x + _gelu(np_, _normalized(np_, x) * p["scale 2"] @ p["up"]) @ p["down"]

    return _loss(np_, around(block))


def mlp(np_: ModuleType, around: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """A hidden layer four times as wide, around a skip."""
    return _loss(np_, around(lambda p, x: x + np_.tanh(x @ p["up"]) @ p["down"]))


def _loss(np_: ModuleType, block: Any) -> Callable[[Any, Any], Any]:
    def loss(parameters: Any, x: Any) -> Any:
        for p in parameters:
            x = block(p, x)
        return np_.mean(x * x)
    return loss


def models(blocks: int = BLOCKS) -> dict[str, Model]:
    """Both models with arrays of float32, drawn once."""
    draws = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return (draws.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)

    def attention() -> dict[str, Any]:
        ones = np.ones(WIDTH, np.float32)
        square = {name: drawn(WIDTH, WIDTH) for name in ("query", "key", "value", "out")}
        return {"scale": ones, "scale 2": ones, **square, "up": drawn(WIDTH, 4 * WIDTH),
                "down": drawn(4 * WIDTH, WIDTH)}

    return {
        "transformer": Model(transformer, [attention() for _ in range(blocks)],
                             draws.normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32)),
        "mlp": Model(mlp, [{"up": drawn(256, 1024), "down": drawn(1024, 256)} for _ in range(blocks)],
                     draws.normal(size=(ROWS, 256)).astype(np.float32))}
