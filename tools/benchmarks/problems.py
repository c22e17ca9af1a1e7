"""The functions that are differentiated, written once for every namespace, each with its gradient written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

Loss = Callable[..., Any]


@dataclass(frozen=True)
class Problem:
    """A scalar function of its first argument: `loss(namespace)` makes it, `by_hand` is its gradient in NumPy.

    `arguments(small)` gives arguments in float64, or Python numbers.
    """

    title: str
    loss: Callable[[Any], Loss]
    arguments: Callable[[bool], tuple[Any, ...]]
    by_hand: Loss

    def given(self, dtype: str, small: bool) -> tuple[Any, ...]:
        """The arguments with their arrays in `dtype`."""
        cast = lambda leaf: leaf.astype(dtype) if isinstance(leaf, np.ndarray) else leaf  # noqa: E731
        arguments: tuple[Any, ...] = jax.tree.map(cast, self.arguments(small))
        return arguments


def normal(*shape: int, scale: float = 1.0) -> np.ndarray[Any, Any]:
    """Random numbers in float64, the same in every run."""
    return np.random.default_rng(sum(shape)).normal(size=shape) * scale


# --- a scalar ---------------------------------------------------------------------------------------------


def scalar_loss(xp: Any) -> Loss:
    """sin(x) x exp(x)."""
    return lambda x: xp.sin(x) * x * xp.exp(x)


def scalar_by_hand(x: float) -> float:
    """Its derivative, with `math`, which is what one writes for a single number."""
    s, c = math.sin(x), math.cos(x)
    return math.exp(x) * (s + x * (s + c))


# --- an oscillator ----------------------------------------------------------------------------------------


def oscillator_loss(_: Any) -> Loss:
    """The square of the place of a damped oscillator after 40 steps of Euler's method, by stiffness and damping."""
    def loss(coefficients: Any) -> Any:
        k, c = coefficients
        x, v = 1.0, 0.0
        for _ in range(40):
            a = -k * x - c * v
            v = v + 0.01 * a
            x = x + 0.01 * v
        return x * x
    return loss


def oscillator_by_hand(coefficients: Any) -> Any:
    """Its gradient, in NumPy's scalars, which is what fxgrad returns."""
    return oscillator_on([*map(np.float64, coefficients)])


def oscillator_on(coefficients: Any) -> tuple[Any, Any]:
    """The gradient, on scalars of any kind."""
    k, c = coefficients
    x, v = 1.0, 0.0
    states = []
    for _ in range(40):
        states.append((x, v))
        a = -k * x - c * v
        v = v + 0.01 * a
        x = x + 0.01 * v
    d_x, d_v, d_k, d_c = 2.0 * x, 0.0, 0.0, 0.0
    for x, v in reversed(states):
        d_v = d_v + 0.01 * d_x
        d_a = 0.01 * d_v
        d_k = d_k - x * d_a
        d_c = d_c - v * d_a
        d_x = d_x - k * d_a
        d_v = d_v - c * d_a
    return d_k, d_c


# --- logistic regression ----------------------------------------------------------------------------------


def logistic_loss(xp: Any) -> Loss:
    """The mean logistic loss of a linear model, labels -1 and 1."""
    return lambda w, X, y: xp.mean(xp.log(1.0 + xp.exp(-y * (X @ w))))


def logistic_by_hand(w: Any, X: Any, y: Any) -> Any:
    """Its gradient."""
    weights = y / (1.0 + np.exp(y * (X @ w)))
    return (weights @ X) / -len(y)


def logistic_arguments(small: bool) -> tuple[Any, ...]:
    """100 examples of 20 features."""
    examples, features = (5, 3) if small else (100, 20)
    X = normal(examples, features)
    return normal(features, scale=0.1), X, np.sign(X[:, 0] + normal(examples))


# --- Rosenbrock -------------------------------------------------------------------------------------------


def rosenbrock_loss(xp: Any) -> Loss:
    """The function of that name."""
    return lambda x: xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def rosenbrock_by_hand(x: Any) -> Any:
    """Its gradient."""
    head = x[:-1]
    difference = 200.0 * (x[1:] - head * head)
    gradient = np.empty_like(x)
    gradient[:-1] = -2.0 * difference * head - 2.0 * (1.0 - head)
    gradient[-1] = 0.0
    gradient[1:] += difference
    return gradient


# --- a network --------------------------------------------------------------------------------------------


def network_loss(xp: Any) -> Loss:
    """The mean squared error of a network with one hidden layer."""
    def loss(p: Any, x: Any, y: Any) -> Any:
        hidden = xp.tanh(x @ p["w1"] + p["b1"])
        return xp.mean((hidden @ p["w2"] + p["b2"] - y) ** 2)
    return loss


def network_by_hand(p: Any, x: Any, y: Any) -> Any:
    """Its gradient."""
    hidden = np.tanh(x @ p["w1"] + p["b1"])
    error = (2.0 / y.size) * (hidden @ p["w2"] + p["b2"] - y)
    slope = (error @ p["w2"].T) * (1.0 - hidden * hidden)
    return {"b1": slope.sum(0), "b2": error.sum(0), "w1": x.T @ slope, "w2": hidden.T @ error}


def network_arguments(small: bool) -> tuple[Any, ...]:
    """32 examples of 64 features, 64 hidden units, one output."""
    examples, width = (4, 3) if small else (32, 64)
    parameters = {"w1": normal(width, width, scale=0.1), "b1": normal(width, scale=0.1),
                  "w2": normal(width, 1, scale=0.1), "b2": normal(1, scale=0.1)}
    return parameters, normal(examples, width), normal(examples, 1)


# --- a recurrent network as a Python loop -----------------------------------------------------------------


def recurrent_loss(xp: Any) -> Loss:
    """The mean square of the last state of a tanh RNN; the steps are a Python loop."""
    def loss(p: Any, xs: Any, h: Any) -> Any:
        for x in xs:
            h = xp.tanh(x @ p["w"] + h @ p["u"] + p["b"])
        return xp.mean(h ** 2)
    return loss


def recurrent_by_hand(p: Any, xs: Any, h: Any) -> Any:
    """Its gradient."""
    w, u, b = p["w"], p["u"], p["b"]
    states = [h]
    for x in xs:
        h = np.tanh(x @ w + h @ u + b)
        states.append(h)
    cotangent = (2.0 / h.size) * h
    by_w, by_u, by_b = np.zeros_like(w), np.zeros_like(u), np.zeros_like(b)
    for step in range(len(xs) - 1, -1, -1):
        h = states[step + 1]
        slope = cotangent * (1.0 - h * h)
        by_w += xs[step].T @ slope
        by_u += states[step].T @ slope
        by_b += slope.sum(0)
        cotangent = slope @ u.T
    return {"b": by_b, "u": by_u, "w": by_w}


def recurrent_arguments(small: bool) -> tuple[Any, ...]:
    """50 steps, 8 sequences of 8 features, 16 units."""
    steps, sequences, features, units = (3, 2, 2, 3) if small else (50, 8, 8, 16)
    parameters = {"w": normal(features, units, scale=0.3), "u": normal(units, units, scale=0.3),
                  "b": normal(units, scale=0.1)}
    # A list, for that is what a Python loop runs over, in every library.
    return parameters, list(normal(steps, sequences, features)), np.zeros((sequences, units))


# --- a loop that the data ends ----------------------------------------------------------------------------


def growing_loss(xp: Any) -> Loss:
    """Steps of a growing vector until its square is 100, which depends on the data."""
    def loss(x: Any) -> Any:
        while xp.sum(x * x) < 100.0:
            x = 1.1 * x + 0.1 * xp.sin(x)
        return xp.sum(x)
    return loss


def growing_by_hand(x: Any) -> Any:
    """Its gradient."""
    states = []
    while np.sum(x * x) < 100.0:
        states.append(x)
        x = 1.1 * x + 0.1 * np.sin(x)
    cotangent = np.ones_like(x)
    for state in reversed(states):
        cotangent = cotangent * (1.1 + 0.1 * np.cos(state))
    return cotangent


# --- small formulas, and elements of arrays ---------------------------------------------------------------


def bell_loss(xp: Any) -> Loss:
    """The sum of exp(-x^2 / 2) tanh(x)."""
    return lambda x: xp.sum(xp.exp(-x ** 2 / 2.0) * xp.tanh(x))


def bell_by_hand(x: Any) -> Any:
    """Its gradient."""
    e, t = np.exp(x * x / -2.0), np.tanh(x)
    return e * (1.0 - t * t) - x * e * t


def ridge_loss(xp: Any) -> Loss:
    """Squared errors of a linear model, with a penalty."""
    return lambda w, A, b: xp.sum((A @ w - b) ** 2) + 0.1 * xp.sum(w ** 2)


def ridge_by_hand(w: Any, A: Any, b: Any) -> Any:
    """Its gradient."""
    return 2.0 * ((A @ w - b) @ A) + 0.2 * w


def softmax_loss(xp: Any) -> Loss:
    """The mean cross-entropy of a softmax layer, written out."""
    def loss(w: Any, X: Any, onehot: Any) -> Any:
        z = X @ w
        return xp.mean(xp.log(xp.sum(xp.exp(z), 1)) - xp.sum(z * onehot, 1))
    return loss


def softmax_by_hand(w: Any, X: Any, onehot: Any) -> Any:
    """Its gradient."""
    p = np.exp(X @ w)
    p /= p.sum(1, keepdims=True)
    p -= onehot
    p /= len(X)
    return X.T @ p


def elements_loss(_: Any) -> Loss:
    """The oscillator, with its coefficients in an array."""
    def loss(k: Any) -> Any:
        x, v = 1.0, 0.0
        for _ in range(40):
            a = -k[0] * x - k[1] * v
            v = v + 0.01 * a
            x = x + 0.01 * v
        return x * x
    return loss


def elements_by_hand(k: Any) -> Any:
    """Its gradient, on Python's floats."""
    return np.array(oscillator_on([*k.tolist()]))


def neighbours_loss(_: Any) -> Loss:
    """Rosenbrock's function as a sum over pairs of neighbours in a Python loop."""
    return lambda x: sum(100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1.0 - x[i]) ** 2 for i in range(len(x) - 1))


def neighbours_by_hand(x: Any) -> Any:
    """Its gradient, on Python's floats."""
    values = x.tolist()
    gradient = [0.0] * len(values)
    for i in range(len(values) - 1):
        difference = 200.0 * (values[i + 1] - values[i] * values[i])
        gradient[i] += -2.0 * difference * values[i] - 2.0 * (1.0 - values[i])
        gradient[i + 1] += difference
    return np.array(gradient)


# --- a long program ---------------------------------------------------------------------------------------


def chain_loss(xp: Any, operations: int) -> Loss:
    """A function of so many operations (and one more): rounds of five, one of them with a number."""
    def loss(x: Any) -> Any:
        for _ in range(operations // 5):
            x = x + xp.sin(x) * 0.01 * xp.tanh(x)
        return xp.sum(x)
    return loss


def chain_by_hand(x: Any, operations: int) -> Any:
    """Its gradient."""
    states = []
    for _ in range(operations // 5):
        states.append(x)
        x = x + np.sin(x) * 0.01 * np.tanh(x)
    cotangent = np.ones_like(x)
    for state in reversed(states):
        t = np.tanh(state)
        cotangent = cotangent * (1.0 + 0.01 * (np.cos(state) * t + np.sin(state) * (1.0 - t * t)))
    return cotangent


PROBLEMS = {
    "scalar": Problem("sin(x) * x * exp(x) at a Python float", scalar_loss, lambda small: (0.5,),
                      scalar_by_hand),
    "oscillator": Problem("a damped oscillator in its two coefficients, 40 steps of Python numbers in a loop; by hand "
                          "with NumPy's scalars", oscillator_loss, lambda small: ((2.0, 0.3),), oscillator_by_hand),
    "logistic regression": Problem("logistic regression, 100 examples of 20 features", logistic_loss,
                                   logistic_arguments, logistic_by_hand),
    "Rosenbrock": Problem("Rosenbrock's function, n = 100", rosenbrock_loss,
                          lambda small: (np.linspace(-1.0, 1.0, 5 if small else 100),), rosenbrock_by_hand),
    "MLP": Problem("a network 64-64-1 on 32 examples", network_loss, network_arguments, network_by_hand),
    "RNN": Problem("a tanh RNN of 50 steps in a Python loop, 8 sequences, 16 units", recurrent_loss,
                   recurrent_arguments, recurrent_by_hand),
    "bell": Problem("a formula of six numbers", bell_loss, lambda small: (normal(6),), bell_by_hand),
    "ridge": Problem("ridge regression, 80 examples of 12 features", ridge_loss,
                     lambda small: (normal(12), normal(80, 12), normal(80)), ridge_by_hand),
    "softmax": Problem("the cross-entropy of a softmax layer, 48 examples of 20 features, 7 classes", softmax_loss,
                       lambda small: (normal(20, 7, scale=0.1), normal(48, 20),
                                      np.eye(7)[np.arange(48) % 7]), softmax_by_hand),
    "elements": Problem("the oscillator over two elements of an array; by hand with Python's floats", elements_loss,
                        lambda small: (np.array([2.0, 0.3]),), elements_by_hand),
    "neighbours": Problem("Rosenbrock's function of ten elements as a Python sum; by hand with Python's floats",
                          neighbours_loss, lambda small: (normal(10),), neighbours_by_hand),
    "while": Problem("a Python `while` that the data ends after about 25 steps, 20 numbers", growing_loss,
                     lambda small: (np.linspace(0.1, 0.5, 3 if small else 20),), growing_by_hand),
}
"""The problems by name."""


def chain(operations: int) -> Problem:
    """A program of so many operations on ten numbers."""
    return Problem(f"{operations} operations on ten numbers", lambda xp: chain_loss(xp, operations),
                   lambda small: (np.linspace(0.1, 1.0, 10),),
                   lambda x: chain_by_hand(x, operations))
