"""Models written with `scan` and `while_loop`, for fxgrad and for jax alike: what `tools/bench` measures of loops."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
import fxgrad.numpy as fnp

FXGRAD = SimpleNamespace(np=fnp, lax=fxgrad.lax)
JAX = SimpleNamespace(np=jnp, lax=jax.lax)
Loss = Callable[..., Any]


def normal(*shape: int, scale: float = 0.1) -> np.ndarray[Any, Any]:
    """Random numbers in float32, the same in every run."""
    return (np.random.default_rng(sum(shape)).normal(size=shape) * scale).astype(np.float32)


def sigmoid(lib: Any, x: Any) -> Any:
    """The logistic function, as people write it."""
    return 1.0 / (1.0 + lib.np.exp(-x))


def lstm(lib: Any) -> Loss:
    """An LSTM with 64 units on 32 sequences of 1000 entries."""
    def loss(p: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            h, c = carry
            i, f, g, o = lib.np.split(x @ p["w"] + h @ p["u"] + p["b"], 4, axis=1)
            c = sigmoid(lib, f) * c + sigmoid(lib, i) * lib.np.tanh(g)
            h = sigmoid(lib, o) * lib.np.tanh(c)
            return (h, c), h
        zeros = lib.np.zeros((32, 64), "float32")
        return lib.np.mean(lib.lax.scan(step, (zeros, zeros), xs)[1] ** 2)
    return loss


def rnn(lib: Any) -> Loss:
    """A tanh RNN with 64 units on 32 sequences of 1000 entries."""
    def loss(p: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = lib.np.tanh(x @ p["w"] + h @ p["u"] + p["b"])
            return h, h
        return lib.np.mean(lib.lax.scan(step, lib.np.zeros((32, 64), "float32"), xs)[1] ** 2)
    return loss


def runge_kutta(lib: Any) -> Loss:
    """500 steps of Runge and Kutta's method through a field that is a network 16-64-64-16, for 32 points."""
    def loss(p: Any, y: Any) -> Any:
        def field(y: Any) -> Any:
            return lib.np.tanh(lib.np.tanh(y @ p["a"] + p["b"]) @ p["c"] + p["d"]) @ p["e"]

        def step(y: Any, _: Any) -> Any:
            h = 0.01
            k1 = field(y)
            k2 = field(y + h / 2 * k1)
            k3 = field(y + h / 2 * k2)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + field(y + h * k3)), None
        return lib.np.mean(lib.lax.scan(step, y, None, length=500)[0] ** 2)
    return loss


def normalised(lib: Any, x: Any, gain: Any, bias: Any) -> Any:
    """Layer normalisation, as people write it."""
    mean = lib.np.mean(x, axis=-1, keepdims=True)
    variance = lib.np.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / lib.np.sqrt(variance + 1e-5) * gain + bias


def transformer(lib: Any) -> Loss:
    """12 layers of a transformer (width 128, 4 heads) by scan over their weights, 8 sequences of 64 tokens."""
    batch, tokens, width, heads = 8, 64, 128, 4

    def loss(p: Any, x: Any) -> Any:
        mask = lib.np.tril(lib.np.ones((tokens, tokens), bool))

        def layer(x: Any, p: Any) -> Any:
            y = normalised(lib, x, p["g1"], p["b1"])
            q, k, v = (lib.np.reshape(y @ p[name], (batch, tokens, heads, width // heads)).transpose(0, 2, 1, 3)
                       for name in "qkv")
            scores = lib.np.where(mask, q @ k.transpose(0, 1, 3, 2) / 32 ** 0.5, -1e9)
            weights = lib.np.exp(scores - lib.np.max(scores, axis=-1, keepdims=True))
            mixed = weights / lib.np.sum(weights, axis=-1, keepdims=True) @ v
            x = x + lib.np.reshape(mixed.transpose(0, 2, 1, 3), (batch, tokens, width)) @ p["o"]
            hidden = normalised(lib, x, p["g2"], p["b2"]) @ p["w1"] + p["c1"]
            gelu = 0.5 * hidden * (1.0 + lib.np.tanh(0.7978846 * (hidden + 0.044715 * hidden ** 3)))
            return x + gelu @ p["w2"] + p["c2"], None
        return lib.np.mean(lib.lax.scan(layer, x, p)[0] ** 2)
    return loss


def transformer_weights() -> dict[str, Any]:
    """The weights of all layers, stacked."""
    layers, width = 12, 128
    square = {name: normal(layers, width, width) for name in "qkvo"}
    return {**square, "g1": 1 + normal(layers, width), "b1": normal(layers, width), "g2": 1 + normal(layers, width),
            "b2": normal(layers, width), "w1": normal(layers, width, 4 * width), "c1": normal(layers, 4 * width),
            "w2": normal(layers, 4 * width, width), "c2": normal(layers, width)}


MODELS: dict[str, tuple[Callable[[Any], Loss], Callable[[], tuple[Any, ...]]]] = {
    "scan: LSTM": (lstm, lambda: ({"w": normal(64, 256), "u": normal(64, 256), "b": normal(256)},
                                  normal(1000, 32, 64, scale=1))),
    "scan: tanh RNN": (rnn, lambda: ({"w": normal(64, 64), "u": normal(64, 64), "b": normal(64)},
                                     normal(1000, 32, 64, scale=1))),
    "scan: Runge-Kutta": (runge_kutta, lambda: ({"a": normal(16, 64), "b": normal(64), "c": normal(64, 64),
                                                 "d": normal(64), "e": normal(64, 16)}, normal(32, 16, scale=1))),
    "scan: transformer": (transformer, lambda: (transformer_weights(), normal(8, 64, 128, scale=1))),
}


def compiled_gradients(name: str) -> dict[str, Any]:
    """The compiled gradients of a model, by library, and their arguments under "args"."""
    make, arguments = MODELS[name]
    args = jax.tree.map(jnp.asarray, arguments())
    return {"fxgrad": fxgrad.jit(fxgrad.value_and_grad(make(FXGRAD))).lower(*args).compile(),
            "jax.jit": jax.jit(jax.value_and_grad(make(JAX))).lower(*args).compile(), "args": args}


def many_steps(x: Any, steps: Any) -> Any:
    """A loop whose number of steps is not known beforehand, which jax cannot differentiate in reverse."""
    return fnp.sum(fxgrad.lax.while_loop(
        lambda s: s[0] < steps, lambda s: (s[0] + 1, fnp.sin(s[1]) + 0.1 * s[1]), (0, x))[1])
