"""One function in three vocabularies: as scalars, as arrays, and with functions that have rules of their own.

    python examples/granularity.py

prints the tables of docs/appendix/granularity.md: equations, times, saved values, and differences of gradients.
"""

import numpy as np

import fxgrad
from fxgrad import nn


@fxgrad.custom_vjp
def cross_entropy(logits, labels):
    """The loss as one operation, of which the backward pass keeps one array: the gradient."""
    return cross_entropy_of_parts(logits, labels)


def cross_entropy_of_parts(logits, labels):
    """The same of differentiable parts."""
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    return -np.mean(np.sum(labels * (shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))), axis=-1))


def forward(logits, labels):
    """The loss, and its gradient as the residual."""
    return cross_entropy_of_parts(logits, labels), (nn.softmax(logits) - labels) / len(logits)


cross_entropy.defvjp(forward, lambda gradient, cotangent: (cotangent * gradient, None))


def neuron(x, W, b):
    """One neuron."""
    return np.exp(x @ W + b)


LABELS = np.eye(4)


def network(params, x):
    """One hidden layer, and the loss."""
    hidden = np.tanh(x @ params["W"] + params["b"])
    return cross_entropy(hidden @ params["V"], LABELS)


def attention(queries, keys, values):
    """Scaled dot products, summed up."""
    return np.sum(nn.softmax(queries @ keys.T / np.sqrt(queries.shape[-1])) @ values)


def main():
    """Prints the tables."""
    random = np.random.default_rng(0)
    params = {"W": random.normal(size=(8, 16)), "b": random.normal(size=16), "V": random.normal(size=(16, 4))}
    x = random.normal(size=(4, 8))
    print(fxgrad.compare_granularities(neuron)(np.ones(3), np.ones(3), 0.5))
    print(fxgrad.compare_granularities(network)(params, x))
    print(fxgrad.compare_granularities(attention)(*random.normal(size=(3, 6, 4))))


if __name__ == "__main__":
    main()
