"""Activation functions and a recurrent cell by their formulas, in NumPy's float64, and slopes by differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import nn

X = np.array([-7.0, -3.5, -2.0, -0.6, -1e-3, 1e-3, 0.4, 1.7, 2.5, 6.5])
ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


FORMULAS: dict[str, Callable[[Any], Any]] = {
    "celu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    "elu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3))),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard_silu": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "leaky_relu": lambda x: np.where(x > 0, x, x / 100),
    "log_sigmoid": lambda x: -np.log1p(np.exp(-x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "selu": lambda x: SCALE * np.where(x > 0, x, ALPHA * (np.exp(x) - 1)),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "soft_sign": lambda x: x / (1 + np.abs(x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "sparse_plus": lambda x: np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4)),
    "sparse_sigmoid": lambda x: np.clip((x + 1) / 2, 0, 1),
    "squareplus": lambda x: (x + np.sqrt(x ** 2 + 4)) / 2,
}


def test_activations_are_their_formulas() -> None:
    differing = []
    for name, formula in FORMULAS.items():
        function = getattr(nn, name)
        slopes = fxgrad.grad(lambda x, function=function: np.sum(function(x)))(X)
        numeric = (formula(X + 1e-5) - formula(X - 1e-5)) / 2e-5
        if not (np.allclose(function(X), formula(X), rtol=1e-12, atol=1e-14)
                and np.allclose(slopes, numeric, rtol=1e-7, atol=1e-8)):
            differing.append((name, function(X), formula(X), slopes, numeric))
    assert differing == []


def test_squareplus_far_from_0() -> None:
    """Below it the sum is a difference, above it a square may overflow."""
    for dtype, x in ((np.float32, [-1e4, -300.0, 3e4]), (np.float16, [-300.0, -100.0, 3e4])):
        exact = np.array(x)
        root = np.hypot(exact, 2.0)
        expected = np.where(exact < 0, 2 / (root - exact), (exact + root) / 2)
        slopes = np.where(exact < 0, 2 / (root * (root - exact)), (1 + exact / root) / 2)
        given = np.array(x, dtype)
        tolerance = 8 * float(np.finfo(dtype).eps)
        for transform in (lambda f: f, fxgrad.jit):
            np.testing.assert_allclose(transform(nn.squareplus)(given), expected, rtol=tolerance)
            found = transform(fxgrad.vmap(fxgrad.grad(nn.squareplus)))(given)
            np.testing.assert_allclose(found, slopes, rtol=tolerance, atol=float(np.finfo(dtype).tiny))


def test_gelu_of_large_numbers_of_half_precision_has_slopes() -> None:
    x = np.array([-6e4, -50.0, -17.0, 0.0, 2.0, 17.0, 50.0, 6e4], np.float16)
    expected = fxgrad.vmap(fxgrad.grad(nn.gelu))(x.astype(float))
    slope = fxgrad.vmap(fxgrad.grad(nn.gelu))
    for found in (slope(x), fxgrad.jit(slope)(x)):
        np.testing.assert_allclose(found, expected, rtol=4e-3, atol=1e-3)
    np.testing.assert_array_equal(nn.gelu(x)[[0, 1, -2, -1]], np.maximum(x, 0)[[0, 1, -2, -1]])


def test_slopes_of_sparse_plus_at_infinities() -> None:
    slope = fxgrad.grad(lambda x: fnp.sum(nn.sparse_plus(x)))
    for function in (slope, fxgrad.jit(slope)):
        np.testing.assert_array_equal(function(np.array([-np.inf, -1.0, 0.0, 1.0, np.inf])), [0.0, 0.0, 0.5, 1.0, 1.0])


def test_squareplus_of_complex_numbers() -> None:
    np.testing.assert_allclose(nn.squareplus(1 + 2j), ((1 + 2j) + np.sqrt((1 + 2j) ** 2 + 4)) / 2, rtol=1e-6)


def test_a_step_of_an_lstm_cell() -> None:
    generator = np.random.default_rng(0)
    x, hidden, cell = generator.normal(size=2), generator.normal(size=3), generator.normal(size=3)
    inputs, states = generator.normal(size=(2, 12)), generator.normal(size=(3, 12))
    first, second = generator.normal(size=12), generator.normal(size=12)
    into, forget, new, out = np.split(x @ inputs + first + hidden @ states + second, 4)
    after = sigmoid(forget) * cell + sigmoid(into) * np.tanh(new)
    found = nn.lstm_cell((hidden, cell), x, inputs, states, first, second)
    np.testing.assert_allclose(found[0], sigmoid(out) * np.tanh(after), rtol=1e-12)
    np.testing.assert_allclose(found[1], after, rtol=1e-12)


def test_gelu_of_negative_numbers_keeps_its_digits() -> None:
    """1 + tanh(u) has none from u = -4 on; the exponent multiplies the rounding of 2u, by up to 90."""
    for dtype, x in ((np.float32, [-6.5, -5.0, -3.5, -1.0]), (np.float64, [-6.5, -5.0, -3.5, -1.0])):
        exact = np.array(x, np.longdouble)
        doubled = 2 * np.sqrt(2 / np.longdouble("3.14159265358979323846")) * (exact + 44715 * exact ** 3 / 10 ** 6)
        slope = 2 * np.sqrt(2 / np.longdouble("3.14159265358979323846")) * (1 + 3 * 44715 * exact ** 2 / 10 ** 6)
        share = 1 / (1 + np.exp(-doubled))
        given = np.array(x, dtype)
        tolerance = 2 * np.abs(doubled).max() * float(np.finfo(dtype).eps)
        for transform in (lambda f: f, fxgrad.jit):
            np.testing.assert_allclose(transform(nn.gelu)(given), exact * share, rtol=tolerance)
            np.testing.assert_allclose(transform(fxgrad.vmap(fxgrad.grad(nn.gelu)))(given),
                                       share * (1 + exact * slope * (1 - share)), rtol=tolerance)


def test_slopes_of_exponential_units_keep_their_digits_far_below_0() -> None:
    """The function is nearly constant there; its slopes of both orders are those of the exponential function."""
    for dtype, x in ((np.float32, [-80.0, -20.0, -5.0, -1e-8]), (np.float64, [-700.0, -40.0, -5.0, -1e-8])):
        exact, given = np.array(x), np.array(x, dtype)
        for function, factor in ((nn.elu, 1.0), (nn.celu, 1.0), (nn.selu, ALPHA * SCALE)):
            slope = fxgrad.grad(function)
            for order in (slope, fxgrad.grad(slope)):
                for found in (fxgrad.vmap(order)(given), fxgrad.jit(fxgrad.vmap(order))(given)):
                    np.testing.assert_allclose(found, factor * np.exp(exact), rtol=4 * float(np.finfo(dtype).eps))
