"""Losses as public NumPy code has them, each with its arguments: what of such code is transparent.

A file of its own, since a function is shown to be transparent by its source, and pytest rewrites that of tests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad.numpy as fnp
from fxgrad.scipy import special

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(8, 3)), rng.normal(size=8)
LABELS = np.arange(8) % 3
ONE_HOT = np.eye(3)[LABELS]
SIZES = (3, 4, 3)
PENALTY, DELTA, NOISE = 0.1, 1.0, 0.05
SERIES = np.sin(np.arange(7.0))
PAIRS = np.array([(i, j) for i in range(4) for j in range(i)])


def logistic_regression(w: Any) -> Any:
    """With an L2 penalty, labels -1 and 1."""
    margins = np.sign(Y) * (X @ w)
    return np.mean(np.log1p(np.exp(-margins))) + 0.5 * PENALTY * np.sum(w ** 2)


def huber_regression(w: Any) -> Any:
    residuals = np.abs(X @ w - Y)
    return np.sum(np.where(residuals < DELTA, 0.5 * residuals ** 2, DELTA * (residuals - 0.5 * DELTA)))


def support_vectors(w: Any) -> Any:
    hinges = np.maximum(0.0, 1.0 - np.sign(Y) * (X @ w))
    return 0.5 * np.dot(w, w) + 10.0 * hinges.sum()


def softmax_regression(w: Any) -> Any:
    logits = X @ w.reshape(3, 3)
    logits = logits - logits.max(axis=1, keepdims=True)
    return -np.mean(np.sum(ONE_HOT * (logits - np.log(np.sum(np.exp(logits), axis=1, keepdims=True))), axis=1))


def labels_by_index(w: Any) -> Any:
    """The probabilities of the labels are picked by two arrays of indices."""
    logits = X @ w.reshape(3, 3)
    logits = logits - special.logsumexp(logits, axis=1, keepdims=True)
    return -np.mean(logits[np.arange(len(LABELS)), LABELS])


def layers_of_a_list(params: Any) -> Any:
    """A network whose parameters are a list of pairs."""
    x = X
    for w, b in params[:-1]:
        x = np.tanh(x @ w + b)
    w, b = params[-1]
    return np.mean((x @ w + b - ONE_HOT) ** 2)


def layers_of_a_dict(params: Any) -> Any:
    """A network whose parameters have names with numbers in them."""
    x = X
    for i in range(len(SIZES) - 1):
        x = x @ params[f"w{i}"] + params[f"b{i}"]
        if i < len(SIZES) - 2:
            x = np.maximum(x, 0.0)
    return np.mean((x - ONE_HOT) ** 2) + PENALTY * sum(np.sum(p ** 2) for name, p in params.items() if name[0] == "w")


class Dense:
    """A layer that is called."""

    def __init__(self, activation: Callable[[Any], Any]) -> None:
        self.activation = activation

    def __call__(self, params: Any, x: Any) -> Any:
        return self.activation(x @ params["w"] + params["b"])


LAYERS = [Dense(np.tanh), Dense(lambda x: x)]


def layers_that_are_called(params: Any) -> Any:
    x = X
    for layer, own in zip(LAYERS, params, strict=True):
        x = layer(own, x)
    return np.mean((x - ONE_HOT) ** 2)


def recurrent_network(params: Any) -> Any:
    hidden, total = np.zeros(4), 0.0
    for x, target in zip(SERIES, SERIES[1:], strict=False):  # noqa: RUF007  (as people write it)
        hidden = np.tanh(params["a"] @ hidden + params["b"] * x)
        total = total + (np.dot(params["c"], hidden) - target) ** 2
    return total / len(SERIES)


def gaussian_process(theta: Any) -> Any:
    """The negative log marginal likelihood."""
    length, scale = np.exp(theta[0]), np.exp(theta[1])
    squares = np.sum((X[:, None] - X[None]) ** 2, axis=-1)
    covariance = scale * np.exp(-0.5 * squares / length ** 2) + NOISE * np.eye(len(X))
    factor = np.linalg.cholesky(covariance)
    solved = np.linalg.solve(covariance, Y)
    return 0.5 * Y @ solved + np.sum(np.log(np.diag(factor))) + 0.5 * len(X) * math.log(2.0 * math.pi)


def mixture_of_gaussians(params: Any) -> Any:
    weights, means, widths = params
    weights = weights - special.logsumexp(weights)
    z = (X[:, 0, None] - means) / np.exp(widths)
    return -np.sum(special.logsumexp(weights - 0.5 * z ** 2 - widths - 0.5 * math.log(2.0 * math.pi), axis=1))


def lennard_jones(positions: Any) -> Any:
    """The energy of pairs, one after the other."""
    positions, energy = positions.reshape(4, 3), 0.0
    for i in range(len(positions)):
        for j in range(i):
            r2 = np.sum((positions[i] - positions[j]) ** 2)
            energy = energy + 4.0 * (r2 ** -6 - r2 ** -3)
    return energy


def springs(positions: Any) -> Any:
    """The energy of pairs, by arrays of indices."""
    positions = positions.reshape(4, 3)
    lengths = np.sqrt(np.sum((positions[PAIRS[:, 0]] - positions[PAIRS[:, 1]]) ** 2, axis=1) + 1e-9)
    return 0.5 * np.sum((lengths - 1.0) ** 2)


def rosenbrock(x: Any) -> Any:
    return sum(100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1.0 - x[i]) ** 2 for i in range(len(x) - 1))


def oscillator(start: Any) -> Any:
    """Steps of Runge and Kutta."""
    def field(state: Any) -> Any:
        q, p = state
        return fnp.array([p, -q - 0.1 * p ** 3])
    h = 0.1
    for _ in range(5):
        k1 = field(start)
        k2 = field(start + 0.5 * h * k1)
        k3 = field(start + 0.5 * h * k2)
        k4 = field(start + h * k3)
        start = start + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    return np.sum(start ** 2)


def total_variation(image: Any) -> Any:
    image = image.reshape(4, 4)
    across, down = np.diff(image, axis=1), np.diff(image, axis=0)
    return np.sum((image - NOISY) ** 2) + 0.1 * np.sum(np.sqrt(across[:-1] ** 2 + down[:, :-1] ** 2 + 1e-6))


NOISY = rng.normal(size=(4, 4))


def kalman_filter(theta: Any) -> Any:
    """The negative log likelihood of a random walk that is observed with noise."""
    step, noise = np.exp(theta[0]), np.exp(theta[1])
    mean, variance, total = 0.0, 1.0, 0.0
    for y in SERIES:
        variance = variance + step
        s = variance + noise
        total = total + 0.5 * (np.log(2.0 * np.pi * s) + (y - mean) ** 2 / s)
        gain = variance / s
        mean, variance = mean + gain * (y - mean), (1.0 - gain) * variance
    return total


def black_scholes(x: Any) -> Any:
    """The price of a call option, given the logarithms of spot and volatility."""
    spot, sigma = np.exp(x[0]), np.exp(x[1])
    strike, rate, years = 100.0, 0.02, 1.5
    d1 = (np.log(spot / strike) + (rate + 0.5 * sigma ** 2) * years) / (sigma * math.sqrt(years))
    d2 = d1 - sigma * math.sqrt(years)
    return spot * special.ndtr(d1) - strike * math.exp(-rate * years) * special.ndtr(d2)


def matrix_factorization(params: Any) -> Any:
    left, right = params
    return np.sum(((left @ right.T - NOISY) * (NOISY > -1.0)) ** 2) + PENALTY * (
        np.linalg.norm(left) ** 2 + np.linalg.norm(right) ** 2)


def forward_algorithm(scores: Any) -> Any:
    """The log partition function of a chain, less the score of the labels."""
    moves = scores["moves"]
    alpha, score = scores["emit"][0], scores["emit"][0, LABELS[0]]
    for t in range(1, 5):
        alpha = special.logsumexp(alpha[:, None] + moves, axis=0) + scores["emit"][t]
        score = score + moves[int(LABELS[t - 1]), int(LABELS[t])] + scores["emit"][t, int(LABELS[t])]
    return special.logsumexp(alpha) - score


def annealed(w: Any) -> Any:
    """With a penalty that sinks from call to call."""
    global STEP
    STEP += 1
    return np.sum((X @ w - Y) ** 2) + np.sum(w ** 2) / STEP


STEP = 0


def dropout(w: Any) -> Any:
    """With masks drawn by NumPy."""
    mask = np.random.rand(8, 3) < 0.5  # noqa: NPY002  (what the function draws from)
    return np.mean(((X * mask) @ w - Y) ** 2)


def early_end(w: Any) -> Any:
    """Newton's steps until they are small."""
    x = w[0]
    for _ in range(20):
        step = (x ** 3 - w[1]) / (3.0 * x ** 2)
        x = x - step
        if np.abs(step) < 1e-6:
            break
    return x


W, P = rng.normal(size=3) * 0.3, rng.normal(size=12)
LIST = [(rng.normal(size=(m, n)) * 0.3, np.zeros(n)) for m, n in itertools.pairwise(SIZES)]
DICT = {f"{kind}{i}": pair[kind == "b"] for i, pair in enumerate(LIST) for kind in "wb"}
FUNCTIONS: list[tuple[Callable[[Any], Any], Any]] = [
    (logistic_regression, W), (huber_regression, W), (support_vectors, W), (softmax_regression, P[:9]),
    (labels_by_index, P[:9]), (layers_of_a_list, LIST), (layers_of_a_dict, DICT),
    (layers_that_are_called, [{"w": w, "b": b} for w, b in LIST]),
    (recurrent_network, {"a": 0.3 * np.eye(4), "b": P[:4], "c": P[4:8]}), (gaussian_process, W[:2]),
    (mixture_of_gaussians, (P[:2], P[2:4], 0.1 * P[4:6])), (lennard_jones, P), (springs, P), (rosenbrock, W),
    (oscillator, W[:2]), (total_variation, NOISY.ravel() * 0.5), (kalman_filter, W[:2]),
    (black_scholes, np.array([4.6, -1.5])), (matrix_factorization, (NOISY[:, :2], NOISY[:, 2:])),
    (forward_algorithm, {"moves": NOISY[:3, :3], "emit": P.reshape(4, 3)[[0, 1, 2, 3, 0]]}),
    (annealed, W), (dropout, W), (early_end, np.array([1.0, 2.0]))]
"""The functions, and an argument for each."""
