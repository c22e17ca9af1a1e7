"""Functions for tests of pictures: the examples of textbooks, a loop, a branch, and a network of layers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import fxgrad


def product(x, y, w):
    z = (x + y) * w
    return z


def wave(x, y):
    return (x + y) * np.sin(x)


def branching(a, b):
    e = (a + b) * (b + 1)
    return e


def neuron(x, W, b):
    return np.exp(x @ W + b)


def perceptron(x, y, W1, b1, W2, b2):
    h = np.maximum(x @ W1 + b1, 0.0)
    y_hat = h @ W2 + b2
    L = np.mean((y - y_hat) ** 2)
    return L


def cross_entropy(logits, label):
    shifted = logits - np.max(logits)
    e = np.exp(shifted)
    total = np.sum(e)
    log_p = shifted - np.log(total)
    loss = -log_p[label]
    return loss


def attention(q, k, v, W, target):
    scores = q @ k.T / np.sqrt(8.0)
    m = np.max(scores, axis=-1, keepdims=True)
    e = np.exp(scores - m)
    p = e / np.sum(e, axis=-1, keepdims=True)
    out = p @ v
    y = out @ W
    centered = y - np.mean(y, axis=-1, keepdims=True)
    variance = np.mean(centered ** 2, axis=-1, keepdims=True)
    normed = centered / np.sqrt(variance + 1e-5)
    loss = np.mean((normed - target) ** 2)
    return loss


def recurrent(W, h0, xs):
    def step(h, x):
        h = np.tanh(h @ W + x)
        return h, np.sum(h)

    last, sums = fxgrad.lax.scan(step, h0, xs)
    return np.sum(last) + np.sum(sums)


def choice(x, slope):
    total = np.sum(x)
    y = fxgrad.lax.cond(total > 0.0, lambda s, x: s * x, lambda _, x: np.sin(x), slope, x)
    return np.sum(y ** 2)


def dense(x, W, b):
    return np.tanh(x @ W + b)


def network(params, x, y):
    h = x
    for number, layer in enumerate(params):
        with fxgrad.named_scope(f"layer{number}"):
            h = dense(h, layer["W"], layer["b"])
    return np.mean((h - y) ** 2)


LAID_OUT_BY = "0.3.1"
"""The version of graphlay that placed the boxes of the golden pictures."""


class Example(NamedTuple):
    """A function with arguments."""

    function: Any
    args: tuple[Any, ...]

    def graph(self) -> fxgrad.tools.graphs.Graph:
        return fxgrad.graph(self.function)(*self.args)

    def draw(self, **options: Any) -> Any:
        return fxgrad.draw(self.function, **options)(*self.args)


ones = np.ones
LAYERS = [{"W": ones((3, 4)), "b": ones(4)}, {"W": ones((4, 4)), "b": ones(4)}, {"W": ones((4, 2)), "b": ones(2)}]
EXAMPLES = {
    "product": Example(product, (2.0, 3.0, 4.0)),
    "wave": Example(wave, (1.0, 2.0)),
    "branching": Example(branching, (2.0, 3.0)),
    "neuron": Example(neuron, (ones((5, 3)), ones((3, 2)), ones(2))),
    "perceptron": Example(perceptron, (ones((5, 3)), ones((5, 1)), ones((3, 4)), ones(4), ones((4, 1)), ones(1))),
    "cross_entropy": Example(cross_entropy, (ones(10), 3)),
    "attention": Example(attention, (ones((4, 8)), ones((4, 8)), ones((4, 8)), ones((8, 8)), ones((4, 8)))),
    "recurrent": Example(recurrent, (ones((3, 3)), ones(3), ones((6, 3)))),
    "choice": Example(choice, (ones(5), 2.0)),
    "network": Example(network, (LAYERS, ones((5, 3)), ones((5, 2)))),
}
