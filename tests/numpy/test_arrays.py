"""Arrays in which a function is neither differentiated nor mapped: they take traced indices, updates and products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import grad, jvp, value_and_grad, vmap
from fxgrad.core.arrays import Array

X, PLACES, W = np.arange(3.0), np.array([2, 0]), np.array([0.5, 1.5, 2.5])


def test_traced_indices_of_unmapped_arrays() -> None:
    for _ in range(3):
        np.testing.assert_array_equal(vmap(lambda x, i: x[i], (None, 0))(X, PLACES), X[PLACES])
        table = np.outer(X, X)
        np.testing.assert_array_equal(vmap(lambda x, i: x[i, 1:], (None, 0))(table, PLACES), table[PLACES, 1:])
        np.testing.assert_array_equal(vmap(lambda d, i: d["x"][i], (None, 0))({"x": X}, PLACES), X[PLACES])


def test_traced_indices_of_arrays_that_are_constants_of_a_derivative() -> None:
    for _ in range(3):
        gradient = grad(lambda w, x: np.sum(w * x[np.floor(w).astype(int)]))(W, X)
        np.testing.assert_array_equal(gradient, X[[0, 1, 2]])
        _, tangent = jvp(lambda w: vmap(lambda x, i: x[i] * w[0], (None, 0))(X, PLACES), (W,), (np.ones(3),))
        np.testing.assert_array_equal(tangent, X[PLACES])


def test_updates_and_products() -> None:
    for _ in range(3):
        np.testing.assert_array_equal(grad(lambda w, x: np.sum(w * x.at[0].set(5.0)))(W, X), [5.0, 1.0, 2.0])
        np.testing.assert_array_equal(grad(lambda w, x: np.sum(x.at[1].add(w[0])))(W, X), [1.0, 0.0, 0.0])
        np.testing.assert_array_equal(grad(lambda w, x: x.dot(w))(W, X), X)
        np.testing.assert_array_equal(grad(lambda w, *, x: x.dot(w))(W, x=X), X)
    np.testing.assert_array_equal(X, np.arange(3.0))


def test_arrays_made_here_take_traced_places() -> None:
    xs = fnp.arange(5.0)
    for _ in range(2):
        assert float(fxgrad.lax.fori_loop(0, 5, lambda i, total: total + xs[i], 0.0)) == 10.0
        assert float(fxgrad.jit(lambda i: xs[i] * 2)(3)) == 6.0
        assert float(fxgrad.jit(lambda i: fnp.asarray(X)[i])(1)) == 1.0
    np.testing.assert_array_equal(vmap(lambda i: xs.at[i].set(9.0)[i])(PLACES), [9.0, 9.0])
    draws = fxgrad.random.normal(fxgrad.random.key(0), (3,))
    np.testing.assert_array_equal(fxgrad.jit(lambda i: draws[i])(PLACES), np.asarray(draws)[PLACES])


@pytest.mark.parametrize("made", [fnp.zeros(3), fnp.array([1.0, 2.0]), fnp.eye(2), fnp.linspace(0.0, 1.0, 3),
                                  fxgrad.random.uniform(fxgrad.random.key(1), (2,))], ids=lambda made: str(made.shape))
def test_like_in_like_out(made: Any) -> None:
    assert isinstance(made, Array)
    for result in (made + 1, made[1:], fnp.sin(made), np.sin(made), grad(lambda x: fnp.sum(x * x))(made),
                   vmap(lambda x: x * 2)(made), fxgrad.jit(lambda x: x * 2)(made.astype("float64"))):
        assert type(result) is Array
    for result in (grad(lambda x: np.sum(x * x))(np.ones(2)), fxgrad.jit(lambda x: x * 2)(np.ones(2))):
        assert type(result) is np.ndarray
    assert fnp.roll(made, made.shape[0], axis=0) is not made
    assert not np.shares_memory(fnp.roll(made, made.shape[0], axis=0), made)
    before = made.copy()
    made.at[0].set(7.0)
    np.testing.assert_array_equal(made, before)


def test_they_are_numpys_arrays_otherwise() -> None:
    """A copy may be written to, NumPy and SciPy take them, and nothing of them comes back."""
    def f(w: Any, x: Any) -> Any:
        assert isinstance(x, np.ndarray)
        assert x.block_until_ready() is x
        assert len(x.devices()) == 1
        assert repr(x) == repr(X)
        scaled = x.copy()
        scaled[1] = 7.0
        scaled += 1.0
        return np.sum(w * scaled) + float(np.linalg.norm(x)), {"x": x, "again": [scaled]}

    for _ in range(3):
        (_, aux), gradient = value_and_grad(f, has_aux=True)(W, X)
        np.testing.assert_array_equal(gradient, [1.0, 8.0, 3.0])
        assert type(aux["x"]) is type(aux["again"][0]) is type(gradient) is np.ndarray
    np.testing.assert_array_equal(X, np.arange(3.0))


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "complex64"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_every_operator_gives_what_it_gives_with_plain_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    given = np.ones(shape, dtype)
    w = np.full(shape, 0.5, np.float32)
    functions = [lambda w, x: w + x, lambda w, x: x - w, lambda w, x: x * w, lambda w, x: w / (x + 1)]
    for f in functions + [lambda w, x: x @ w.T] * bool(shape):
        plain = vmap(lambda w, f=f: f(w, given))(w[None])
        handed = vmap(f, (0, None))(w[None], given)
        assert plain.dtype == handed.dtype
        np.testing.assert_array_equal(plain, handed)


def test_a_function_may_return_what_it_was_given() -> None:
    """Results own their memory."""
    for _ in range(3):
        result = vmap(lambda w, x: (w, x), (0, None), (0, None))(W, X)[1]
        assert type(result) is np.ndarray
        assert not np.shares_memory(result, X)


def test_captured_again_they_are_the_same_input() -> None:
    program = fxgrad.make_program(grad(lambda w, x: np.sum(w * x + x * w)))(W, X)
    assert len(program.inputs) == 2
    with_captured = fxgrad.make_program(lambda w: grad(lambda w, x: np.sum(w * x + x * w))(w, X))(W)
    assert with_captured.captured == 1
