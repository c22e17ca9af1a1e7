"""Iterative solvers against exact solutions and against jax's own iterations, under all transformations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.scipy.sparse.linalg
import numpy as np
import pytest

import fxgrad
from fxgrad import errors
from fxgrad.scipy.sparse import linalg

RANDOM = np.random.default_rng(0)
SIZE = 6
ANY, B = RANDOM.normal(size=(SIZE, SIZE)) + SIZE * np.eye(SIZE), RANDOM.normal(size=SIZE)
POSITIVE, SKEW = ANY @ ANY.T + SIZE * np.eye(SIZE), 0.2 * (ANY - ANY.T)
NAMES = ("cg", "bicgstab", "gmres")


def matrix(name: str) -> Any:
    return POSITIVE if name == "cg" else ANY


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_solutions(name: str) -> None:
    solve = getattr(linalg, name)
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-6), (np.complex128, 1e-12)):
        a, b = matrix(name).astype(dtype), B.astype(dtype)
        if dtype == np.complex128:
            a, b = a + 1j * SKEW, b * (1 + 2j)
        for function in (solve, fxgrad.jit(lambda a, b, **options: solve(a, b, **options)[0])):
            found = function(a, b, tol=tolerance)
            found = found[0] if type(found) is tuple else found
            assert found.dtype == dtype
            np.testing.assert_allclose(found, np.linalg.solve(a, b), atol=20 * tolerance)
    np.testing.assert_array_equal(solve(ANY, np.zeros(SIZE))[0], np.zeros(SIZE))
    np.testing.assert_array_equal(solve(ANY, B, rtol=1e-3)[0], solve(ANY, B, tol=1e-3)[0])


@pytest.mark.parametrize("name", NAMES)
def test_unfinished_iterations_are_those_of_jax(name: str) -> None:
    options: dict[str, Any] = {"maxiter": 2, "x0": B[::-1].copy(), **({"restart": 2} if name == "gmres" else {})}
    with jax.enable_x64(True):
        expected = getattr(jax.scipy.sparse.linalg, name)(matrix(name), B, M=np.diag(1 / np.diag(ANY)), **options)[0]
    found = getattr(linalg, name)(matrix(name), B, M=np.diag(1 / np.diag(ANY)), **options)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.max(np.abs(matrix(name) @ found - B)) > 1e-6  # it has not come to its end


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_derivatives_and_batches(name: str) -> None:
    solve = getattr(linalg, name)

    def ours(a: Any, b: Any) -> Any:
        return solve(lambda x: a @ x, b, tol=1e-13)[0]

    a = matrix(name)
    slopes = fxgrad.grad(lambda a, b: np.sum(ours(a, b) ** 3), (0, 1))(a, B)
    expected = fxgrad.grad(lambda a, b: np.sum(np.linalg.solve(a, b) ** 3), (0, 1))(a, B)
    for one, other in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(fxgrad.hessian(lambda b: np.sum(ours(a, b) ** 3))(B),
                               fxgrad.hessian(lambda b: np.sum(np.linalg.solve(a, b) ** 3))(B), rtol=5e-12, atol=1e-15)
    np.testing.assert_allclose(fxgrad.vmap(ours, (None, 0))(a, np.stack([B, 100 * B])),
                               np.linalg.solve(a, np.stack([B, 100 * B]).T).T, rtol=1e-12)
    np.testing.assert_allclose(fxgrad.vmap(ours, (0, None))(np.stack([a, 2 * a]), B)[1], np.linalg.solve(2 * a, B),
                               rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_containers(name: str) -> None:
    def scaled(t: Any) -> Any:
        return {"a": 2 * t["a"], "c": 3 * t["c"]}

    ones = {"a": np.ones(2), "c": np.ones((1, 2))}
    found, info = getattr(linalg, name)(scaled, ones, x0=ones, M=lambda t: {"a": t["a"] / 2, "c": t["c"] / 3})
    assert info is None
    np.testing.assert_allclose(found["a"], [0.5, 0.5], rtol=1e-12)
    np.testing.assert_allclose(found["c"], [[1 / 3, 1 / 3]], rtol=1e-12)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: linalg.cg(np.ones((3, 2)), np.ones(3)), errors.ShapeError,
     "cg: A has the shape (3, 2), and b 3 elements; a matrix of shape (3, 3) or a function is needed"),
    (lambda: linalg.bicgstab(lambda x: x[:2], np.ones(3)), errors.ShapeError,
     "bicgstab: A(b) has the shapes [(2,)], and b [(3,)]; a container of the same shapes is needed"),
    (lambda: linalg.gmres(np.eye(3), np.ones(3), x0=np.ones(2)), errors.ShapeError,
     "gmres: x0 has the shapes [(2,)], and b [(3,)]; a container of the same shapes is needed"),
    (lambda: linalg.gmres(np.eye(3), np.ones(3), solve_method="fast"), errors.ArgumentError,
     "gmres: solve_method='fast'; it is 'batched' or 'incremental'"),
    (lambda: linalg.cg(np.eye(3), []), errors.ArgumentError, "cg: b is a container without arrays")])
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}\n"):
        call()


@pytest.mark.parametrize("solver", ["gmres", "bicgstab"])
@pytest.mark.slow
def test_products_with_hessians_of_jitted_functions(solver: str) -> None:
    """The operator was refused: one equation makes the gradient and its tangent."""
    matrix, x = np.array([[3.0, 0.2], [0.1, 2.0]]), np.array([0.3, -0.4])
    energy = fxgrad.jit(lambda x: np.sum((matrix @ x + 0.1 * np.sin(x)) * x))

    def step(x: Any) -> Any:
        gradient = fxgrad.grad(energy)
        return getattr(linalg, solver)(lambda t: fxgrad.jvp(gradient, (x,), (t,))[1], gradient(x), tol=1e-12)[0]

    exact = lambda x: np.linalg.solve(fxgrad.hessian(energy)(x), fxgrad.grad(energy)(x))
    for wrapped in (lambda f: f, fxgrad.jacrev):
        np.testing.assert_allclose(wrapped(step)(x), wrapped(exact)(x), rtol=1e-8, atol=1e-10)
