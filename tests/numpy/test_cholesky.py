"""Derivatives of Cholesky factors of large matrices, taken by blocks, against identities that they satisfy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.analyses.cost import total_cost
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.ops.factorizations import cholesky


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    random = np.random.default_rng(seed)
    x = random.normal(size=shape)
    return (x + 1j * random.normal(size=shape) if dtype.startswith("complex") else x).astype(dtype)


def definite(shape: tuple[int, ...], dtype: str) -> Any:
    x = drawn(shape, dtype, 0)
    return x @ adjoint(x) / shape[-1] + np.eye(shape[-1], dtype=dtype)


def whole(x: Any) -> Any:
    """The Hermitian matrix of which `x` has the lower triangle."""
    low = np.tril(x, -1)
    return low + adjoint(low) + np.real(x) * np.eye(x.shape[-1])


# 127 rows stay whole; 128 are four equal blocks, 130 and 145 are not.
CASES = [((127, 127), "float64"), ((128, 128), "float64"), ((130, 130), "complex128"), ((2, 145, 145), "float64"),
         pytest.param((130, 130), "float32", marks=pytest.mark.slow)]


@pytest.mark.parametrize(("shape", "dtype"), CASES)
def test_tangents_and_cotangents(shape: tuple[int, ...], dtype: str) -> None:
    a, moved, weights = definite(shape, dtype), drawn(shape, dtype, 1), drawn(shape, dtype, 2)
    tolerance = 1e-4 if dtype == "float32" else 1e-12
    factor, tangent = fxgrad.jvp(cholesky, (a,), (moved,))
    assert tangent.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(np.triu(tangent, 1), 0)
    np.testing.assert_allclose(tangent @ adjoint(factor) + factor @ adjoint(tangent), whole(moved), atol=tolerance)
    _, pull = fxgrad.vjp(cholesky, a)
    cotangent, = pull(weights)
    assert np.sum(weights * tangent).real == pytest.approx(np.sum(cotangent * moved).real, rel=tolerance)
    if shape == (130, 130):  # of each kind one is compiled
        got, = fxgrad.jit(lambda *args: fxgrad.vjp(cholesky, args[0])[1](args[1]))(a, weights)
        np.testing.assert_allclose(got, cotangent, atol=tolerance)


def test_only_the_lower_triangle_counts() -> None:
    a = definite((128, 128), "float64")
    for upper in (False, True):
        nan = np.where(np.tri(128, k=-1, dtype=bool) if upper else ~np.tri(128, dtype=bool), np.nan, a)
        gradient = fxgrad.grad(lambda a, upper=upper: np.sum(np.linalg.cholesky(a, upper=upper) ** 3))
        np.testing.assert_array_equal(gradient(nan), gradient(a))
        assert not np.any(np.tril(gradient(a).T if not upper else gradient(a), -1))


def test_second_derivatives() -> None:
    """The logarithm of a determinant has the gradient A^-1, whose derivative in the direction V is -A^-1 V A^-1."""
    a, v = definite((130, 130), "float64"), whole(drawn((130, 130), "float64", 3))

    def log_determinant(a: Any) -> Any:
        return 2.0 * np.sum(np.log(np.diagonal(fnp.linalg.cholesky(a))))
    inverse = np.linalg.inv(a)
    gradient, second = fxgrad.jvp(fxgrad.grad(log_determinant), (a,), (v,))
    np.testing.assert_allclose(gradient, inverse, atol=1e-15, rtol=5e-11)
    np.testing.assert_allclose(second, -inverse @ v @ inverse, atol=5e-14, rtol=5e-11)


def test_batches_are_those_of_each_matrix() -> None:
    stack = definite((3, 128, 128), "float64")
    gradient = fxgrad.grad(lambda a: np.sum(np.linalg.cholesky(a) ** 3))
    np.testing.assert_allclose(fxgrad.vmap(gradient)(stack), [gradient(a) for a in stack], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("size", [128, 256, 512])
def test_a_gradient_takes_about_four_times_the_work(size: int) -> None:
    aval = Aval((size, size), np.dtype("float64"))
    given = fxgrad.ShapeDtypeStruct(aval.shape, aval.dtype)
    primal = fxgrad.make_program(np.linalg.cholesky)(given)
    gradient = fxgrad.make_program(fxgrad.grad(lambda a: np.sum(np.linalg.cholesky(a))))(given)
    elementwise = 20 * size ** 2
    assert total_cost(gradient).flops <= 3.95 * total_cost(primal).flops + elementwise
