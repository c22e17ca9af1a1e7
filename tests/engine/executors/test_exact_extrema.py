"""Which comparisons with extrema compiled code makes once, and which again where an element is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax
from fxgrad.engine.executors.exact_extrema import with_plain_comparisons

X, B, M = np.arange(12, dtype=np.float32).reshape(3, 4) / 10, np.arange(4, dtype=np.float32), np.eye(4, dtype="f") + 1


def comparisons(fun: Any, x: Any = X) -> set[str]:
    """The comparisons of the gradient's program, in nested programs too."""
    program = with_plain_comparisons(fxgrad.make_program(fxgrad.grad(lambda x: fnp.sum(fun(x))))(x))
    return {name for name in names(program) if name in ("eq", "attains")}


def names(program: fxgrad.Program) -> Iterator[str]:
    for equation in program.equations:
        yield equation.primitive.name
        for region in equation.regions:
            yield from names(region.program)


@pytest.mark.parametrize("fun", [
    lambda x: fnp.max(x, axis=0), lambda x: fnp.min(x), lambda x: fnp.max(x @ M + B, axis=1),
    lambda x: fnp.max(fnp.abs((x + B) * 3.0)), lambda x: fnp.max((x[:, None] + x[None]) - B, axis=(0, 1)),
    lambda x: fnp.max(fnp.concatenate([x, -x]).T, axis=1), lambda x: fnp.max(fnp.where(x > 0.5, x - 1.0, x)),
    lambda x: lax.scan(lambda c, row: (fnp.max(c + row), None), 0.1 * fnp.sum(x[0]), x)[0]])
def test_values_with_one_rounding_are_compared_once(fun: Any) -> None:
    assert comparisons(fun) == {"eq"}


@pytest.mark.parametrize("fun", [
    lambda x: fnp.max(x * 3.0 + B), lambda x: fnp.max(x / 3.0), lambda x: fnp.max(fnp.tanh(x)),
    lambda x: fnp.max(fnp.sum(x, axis=0)), lambda x: fnp.max(x.astype("float16"), axis=0),
    lambda x: fnp.max(x @ B + 0.1), lambda x: fnp.max(x[:, :1] @ M[:1] + B), lambda x: fnp.max(fnp.cumsum(x, 0)),
    lambda x: fnp.max(lax.dot(x.astype("bfloat16"), M.astype("bfloat16"))).astype("float32"),
    lambda x: fxgrad.jit(lambda y: fnp.max(y))(x * 3.0 + B),
    lambda x: lax.scan(lambda c, row: (fnp.max(c * row + 0.1), None), 0.1 * fnp.sum(x[0]), x)[0],
    lambda x: lax.scan(lambda c, row: (fnp.max(c + row), None), 0.1 * fnp.sum(x[0]), x[:1])[0]])
def test_others_look_again(fun: Any) -> None:
    assert comparisons(fun) == {"attains"}


def test_complex_extrema_look_again() -> None:
    def loss(z: Any) -> Any:
        return fnp.real(fnp.max(z * (0.1 + 1j) + 1j))

    z = X * (1 + 2j)
    assert comparisons(loss, z) == {"attains"}
    np.testing.assert_array_equal(fxgrad.jit(fxgrad.grad(loss))(z), fxgrad.grad(loss)(z))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_gradients_at_ties_and_infinities(dtype: str) -> None:
    x = np.array([[1.0, 1.0, 0.5], [np.inf, np.inf, 0.0], [-np.inf] * 3])
    for fun in (lambda x: fnp.max(x, axis=1), lambda x: fnp.max(x * 1.0 + 0.0, axis=1)):
        gradient = fxgrad.vjp(fun, fnp.asarray(x, dtype))[1](fnp.ones(3, dtype))[0]
        compiled = fxgrad.jit(lambda x: fxgrad.vjp(fun, x)[1](fnp.ones(3, dtype))[0])(fnp.asarray(x, dtype))  # noqa: B023
        want = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [1 / 3] * 3])
        for found in (gradient, compiled):
            np.testing.assert_allclose(np.asarray(found).astype("float64"), want, rtol=2e-3)
