"""Simplification: what it removes, and what it must leave because NaN, infinity, -0 or rounding would change."""

from __future__ import annotations

import numpy as np
import pytest

import fxgrad
from fxgrad import make_program, simplify


def names(function, *args) -> list[str]:
    return [equation.primitive.name for equation in simplify(make_program(function)(*args)).equations]


X = np.array([1.5, -2.0, 0.0, np.inf, np.nan, -0.0])


@pytest.mark.parametrize(("function", "expected"), [
    (lambda x: (x + x) * (x + x), ["add", "mul"]),
    (lambda x: x * 1.0, []),
    (lambda x: x / 1.0, []),
    (lambda x: x - 0.0, []),
    (lambda x: np.negative(-x), []),
    (lambda x: (-x) * (-x), ["mul"]),
    (lambda x: x + (-x), ["sub"]),
    (lambda x: x.reshape(2, 3).reshape(6), []),
    (lambda x: np.transpose(np.transpose(x.reshape(2, 3))).reshape(6), []),
    (lambda x: np.broadcast_to(2.0, (6,)) * x, ["mul"]),
    (lambda x: (np.sin(x), x)[1], []),
    (lambda x: x.astype(np.float64), []),
    (lambda x: np.conj(x), []),
])
def test_removed(function, expected) -> None:
    assert names(function, X) == expected
    with np.errstate(all="ignore"):
        expected_values = function(X)
    np.testing.assert_array_equal(simplify(make_program(function)(X))(X), expected_values)


@pytest.mark.parametrize("function", [
    lambda x: x * 0.0, lambda x: x + 0.0, lambda x: 0.0 - x, lambda x: x - x, lambda x: x / x, lambda x: 0.0 / x,
    lambda x: (x + 1.0) - 1.0, lambda x: (x * 3.0) * (1.0 / 3.0), lambda x: np.exp(np.log(x)),
])
def test_left_alone(function) -> None:
    program = make_program(function)(X)
    assert len(simplify(program).equations) == len(program.equations)
    with np.errstate(all="ignore"):
        expected = function(X)
    actual = simplify(program)(X)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))


def test_calls_with_different_parameters_are_kept_apart() -> None:
    assert names(lambda x: np.sum(x, axis=0) + np.sum(x, axis=0), np.ones((2, 2))) == ["reduce_sum", "add"]
    both = names(lambda x: np.sum(x, axis=0) + np.sum(x, axis=1), np.ones((2, 2)))
    assert both == ["reduce_sum", "reduce_sum", "add"]


def test_signature_and_constants_stay() -> None:
    data = np.arange(3.0)
    program = make_program(lambda x: {"y": x * data})(np.ones(3))
    result = simplify(program)(np.ones(3))
    np.testing.assert_array_equal(result["y"], data)


def test_gradients_are_unchanged_by_simplification() -> None:
    program = make_program(fxgrad.grad(fxgrad.grad(lambda x: np.sin(x) * x * np.exp(x))))(1.0)
    assert simplify(program)(0.7) == program(0.7)
