"""Models written once for fxgrad and jax: loops by `scan` and `while_loop`, attention, and convolutions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
import fxgrad.numpy as fnp
from benchmarks.problems import normal

FXGRAD = SimpleNamespace(np=fnp, lax=fxgrad.lax)
JAX = SimpleNamespace(np=jnp, lax=jax.lax)
Loss = Callable[..., Any]


@dataclass(frozen=True)
class Model:
    """A scalar function of its first argument: `loss(library)` makes it, `arguments(small)` its float32 arguments."""

    title: str
    loss: Callable[[Any], Loss]
    arguments: Callable[[bool], tuple[Any, ...]]


def random(*shape: int, scale: float = 0.1) -> np.ndarray[Any, Any]:
    """Random numbers in float32, the same in every run."""
    return normal(*shape, scale=scale).astype(np.float32)


def sigmoid(lib: Any, x: Any) -> Any:
    """The logistic function, as people write it."""
    return 1.0 / (1.0 + lib.np.exp(-x))


# --- loops ------------------------------------------------------------------------------------------------


def lstm(lib: Any) -> Loss:
    """The mean square of all states of an LSTM."""
    def loss(p: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            h, c = carry
            i, f, g, o = lib.np.split(x @ p["w"] + h @ p["u"] + p["b"], 4, axis=1)
            c = sigmoid(lib, f) * c + sigmoid(lib, i) * lib.np.tanh(g)
            h = sigmoid(lib, o) * lib.np.tanh(c)
            return (h, c), h
        zeros = lib.np.zeros((xs.shape[1], p["u"].shape[0]), "float32")
        return lib.np.mean(lib.lax.scan(step, (zeros, zeros), xs)[1] ** 2)
    return loss


def rnn(lib: Any) -> Loss:
    """The mean square of all states of a tanh RNN."""
    def loss(p: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = lib.np.tanh(x @ p["w"] + h @ p["u"] + p["b"])
            return h, h
        zeros = lib.np.zeros((xs.shape[1], p["u"].shape[0]), "float32")
        return lib.np.mean(lib.lax.scan(step, zeros, xs)[1] ** 2)
    return loss


def recurrent_arguments(gates: int, small: bool) -> tuple[Any, ...]:
    """32 sequences of 1000 entries of 64 features, 64 units."""
    steps, sequences, units = (3, 2, 4) if small else (1000, 32, 64)
    weights = {"w": random(units, gates * units), "u": random(units, gates * units), "b": random(gates * units)}
    return weights, random(steps, sequences, units, scale=1)


def runge_kutta(lib: Any) -> Loss:
    """The mean square of where the steps of Runge and Kutta's method lead, through a field that is a network."""
    def loss(p: Any, y: Any, sizes: Any) -> Any:
        def field(y: Any) -> Any:
            return lib.np.tanh(lib.np.tanh(y @ p["a"] + p["b"]) @ p["c"] + p["d"]) @ p["e"]

        def step(y: Any, h: Any) -> Any:
            k1 = field(y)
            k2 = field(y + h / 2 * k1)
            k3 = field(y + h / 2 * k2)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + field(y + h * k3)), None
        return lib.np.mean(lib.lax.scan(step, y, sizes)[0] ** 2)
    return loss


def runge_kutta_arguments(small: bool) -> tuple[Any, ...]:
    """32 points of 16 numbers, a network 16-64-64-16, 500 steps."""
    points, numbers, units, steps = (2, 3, 4, 3) if small else (32, 16, 64, 500)
    weights = {"a": random(numbers, units), "b": random(units), "c": random(units, units), "d": random(units),
               "e": random(units, numbers)}
    return weights, random(points, numbers, scale=1), np.full(steps, 0.01, np.float32)


def growth(lib: Any) -> Loss:
    """A `while_loop` whose number of steps is not known when it is compiled."""
    return lambda x, steps: lib.np.sum(lib.lax.while_loop(
        lambda s: s[0] < steps, lambda s: (s[0] + 1, lib.np.sin(s[1]) + 0.1 * s[1]), (0, x))[1])


def growth_by_scan(steps: int) -> Loss:
    """The same in jax, by a scan of a known number of steps, since jax has no reverse mode of `while_loop`."""
    return lambda x: jnp.sum(jax.lax.scan(lambda x, _: (jnp.sin(x) + 0.1 * x, None), x, length=steps)[0])


# --- attention --------------------------------------------------------------------------------------------


def normalised(lib: Any, x: Any, gain: Any, bias: Any) -> Any:
    """Layer normalisation, as people write it."""
    mean = lib.np.mean(x, axis=-1, keepdims=True)
    variance = lib.np.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / lib.np.sqrt(variance + 1e-5) * gain + bias


def transformer_layer(lib: Any, x: Any, p: Any) -> Any:
    """Causal attention with 4 heads and a network behind it."""
    batch, tokens, width = x.shape
    heads = 4
    mask = lib.np.tril(lib.np.ones((tokens, tokens), bool))
    y = normalised(lib, x, p["g1"], p["b1"])
    q, k, v = (lib.np.reshape(y @ p[name], (batch, tokens, heads, width // heads)).transpose(0, 2, 1, 3)
               for name in "qkv")
    scores = lib.np.where(mask, q @ k.transpose(0, 1, 3, 2) / (width // heads) ** 0.5, -1e9)
    weights = lib.np.exp(scores - lib.np.max(scores, axis=-1, keepdims=True))
    mixed = weights / lib.np.sum(weights, axis=-1, keepdims=True) @ v
    x = x + lib.np.reshape(mixed.transpose(0, 2, 1, 3), (batch, tokens, width)) @ p["o"]
    hidden = normalised(lib, x, p["g2"], p["b2"]) @ p["w1"] + p["c1"]
    gelu = 0.5 * hidden * (1.0 + lib.np.tanh(0.7978846 * (hidden + 0.044715 * hidden ** 3)))
    return x + gelu @ p["w2"] + p["c2"]


def transformer_block(lib: Any) -> Loss:
    """The mean square of what one layer returns."""
    return lambda p, x: lib.np.mean(transformer_layer(lib, x, p) ** 2)


def transformer(lib: Any) -> Loss:
    """Layers by scan over their stacked weights."""
    return lambda p, x: lib.np.mean(
        lib.lax.scan(lambda x, p: (transformer_layer(lib, x, p), None), x, p)[0] ** 2)


def transformer_arguments(count: int, small: bool) -> tuple[Any, ...]:
    """Weights of width 128, stacked for so many layers, or those of one layer if 0; and 8 sequences of 64 tokens."""
    batch, tokens, width = (2, 3, 8) if small else (8, 64, 128)
    layers = () if count == 0 else (2,) if small else (count,)
    weights = {name: random(*layers, width, width) for name in "qkvo"}
    weights |= {"g1": 1 + random(*layers, width), "b1": random(*layers, width), "g2": 1 + random(*layers, width),
                "b2": random(*layers, width), "w1": random(*layers, width, 4 * width),
                "c1": random(*layers, 4 * width), "w2": random(*layers, 4 * width, width),
                "c2": random(*layers, width)}
    return weights, random(batch, tokens, width, scale=1)


# --- convolutions and plain networks ----------------------------------------------------------------------


def cross_entropy(lib: Any, logits: Any, labels: Any) -> Any:
    """The mean cross entropy of rows of logits, with one-hot labels."""
    shifted = logits - lib.np.max(logits, axis=-1, keepdims=True)
    return lib.np.mean(lib.np.log(lib.np.sum(lib.np.exp(shifted), axis=-1)) - lib.np.sum(shifted * labels, axis=-1))


def convolutional(lib: Any) -> Loss:
    """Two convolutions with rectifiers and max-pooling, and a linear layer."""
    def stage(x: Any, kernel: Any, bias: Any) -> Any:
        x = lib.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = lib.np.maximum(x + bias, 0.0)
        return lib.lax.reduce_window(x, -np.inf, lib.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def loss(p: Any, images: Any, labels: Any) -> Any:
        x = stage(stage(images, p["k1"], p["b1"]), p["k2"], p["b2"])
        return cross_entropy(lib, lib.np.reshape(x, (x.shape[0], -1)) @ p["w"] + p["c"], labels)
    return loss


def convolutional_arguments(small: bool) -> tuple[Any, ...]:
    """32 images 28x28, 16 and 32 channels, 10 classes."""
    images, side, first, second = (2, 8, 2, 3) if small else (32, 28, 16, 32)
    weights = {"k1": random(3, 3, 1, first), "b1": random(first), "k2": random(3, 3, first, second),
               "b2": random(second), "w": random((side // 4) ** 2 * second, 10), "c": random(10)}
    return weights, random(images, side, side, 1, scale=1), labels_of(images)


def labels_of(count: int) -> np.ndarray[Any, Any]:
    """One-hot labels of 10 classes."""
    return np.eye(10, dtype=np.float32)[np.arange(count) % 10]


def classifier(lib: Any) -> Loss:
    """The cross entropy of a network with one hidden layer."""
    return lambda p, x, labels: cross_entropy(lib, lib.np.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"], labels)


def classifier_arguments(small: bool) -> tuple[Any, ...]:
    """64 images of 784 numbers, 256 units, 10 classes."""
    images, numbers, units = (3, 5, 4) if small else (64, 784, 256)
    weights = {"w1": random(numbers, units), "b1": random(units), "w2": random(units, 10), "b2": random(10)}
    return weights, random(images, numbers, scale=1), labels_of(images)
