"""Curvature reports against dense Hessians by jax, exact for few parameters and within their errors for more."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import curvature
from fxgrad.errors import ArgumentError, DTypeError

DRAWS = np.random.default_rng(0)
PARAMS = {"b": DRAWS.normal(size=8), "v": DRAWS.normal(size=(8, 2)), "w": DRAWS.normal(size=(3, 8))}
X, LABELS = DRAWS.normal(size=(20, 3)), DRAWS.integers(0, 2, 20)
SIZES = [8, 16, 24]


def model(params: Any, x: Any) -> Any:
    return fnp.tanh(x @ params["w"] + params["b"]) @ params["v"]


def loss(outputs: Any) -> Any:
    return -fnp.mean(fxgrad.nn.log_softmax(outputs)[np.arange(20), LABELS])


@pytest.fixture(scope="module")
def dense() -> tuple[np.ndarray, np.ndarray]:
    """Return the Hessian and the Gauss-Newton matrix, by jax in float64."""
    with jax.enable_x64():
        flat, rebuild = ravel_pytree(jax.tree.map(jnp.asarray, PARAMS))

        def outputs(flat: Any) -> Any:
            own = rebuild(flat)
            return jnp.tanh(X @ own["w"] + own["b"]) @ own["v"]

        def cross_entropy(z: Any) -> Any:
            return -jnp.mean(jax.nn.log_softmax(z)[np.arange(20), LABELS])

        jacobian = jax.jacobian(outputs)(flat).reshape(40, -1)
        middle = jax.hessian(cross_entropy)(outputs(flat)).reshape(40, 40)
        hessian = jax.hessian(lambda flat: cross_entropy(outputs(flat)))(flat)
        return np.asarray(hessian), np.asarray(jacobian.T @ middle @ jacobian)


def blocks(matrix: np.ndarray) -> list[float]:
    return [float(np.sum(part)) for part in np.split(np.diagonal(matrix), np.cumsum(SIZES)[:-1])]


@pytest.mark.slow
def test_exact_for_few_parameters(dense: Any) -> None:
    hessian, gauss_newton = dense
    found = curvature.report(model, loss)(PARAMS, X)
    assert [entry.name for entry in found.parameters] == ["params.b", "params.v", "params.w"]
    assert [entry.size for entry in found.parameters] == SIZES
    for matrix, field in ((hessian, "hessian"), (gauss_newton, "gauss_newton"), (hessian - gauss_newton, "rest")):
        np.testing.assert_allclose([getattr(entry, field).value for entry in found.parameters], blocks(matrix),
                                   rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(getattr(found.total, field).value, np.trace(matrix), rtol=1e-9)
        assert getattr(found.total, field).error == 0.0
    spectrum = np.linalg.eigvalsh(hessian)
    np.testing.assert_allclose(found.largest, spectrum[::-1][:3], rtol=1e-9)
    np.testing.assert_allclose(found.smallest, spectrum[0], rtol=1e-9)


@pytest.mark.slow
def test_samples_are_within_their_errors(dense: Any) -> None:
    hessian, gauss_newton = dense
    found = curvature.report(model, loss, samples=40, eigenvalues=2)(PARAMS, X)
    for matrix, field in ((hessian, "hessian"), (gauss_newton, "gauss_newton"), (hessian - gauss_newton, "rest")):
        for entry, expected in zip((*found.parameters, found.total), (*blocks(matrix), np.trace(matrix)), strict=True):
            trace = getattr(entry, field)
            assert abs(trace.value - expected) <= 3.5 * trace.error + 1e-12
    # The variance of the estimate with signs is twice the squares off the diagonal.
    variance = 2 * (np.sum(hessian ** 2) - np.sum(np.diagonal(hessian) ** 2))
    assert 0.6 < found.total.hessian.error / np.sqrt(variance / 40) < 1.6
    spectrum = np.linalg.eigvalsh(hessian)
    np.testing.assert_allclose(found.largest, spectrum[::-1][:2], rtol=1e-3)
    np.testing.assert_allclose(found.smallest, spectrum[0], rtol=1e-3)
    again = curvature.report(model, loss, samples=40, eigenvalues=2)(PARAMS, X)
    assert again.total == found.total
    other = curvature.report(model, loss, samples=40, eigenvalues=2, seed=1)(PARAMS, X)
    assert other.total.hessian != found.total.hessian


@pytest.mark.slow
def test_objectives_without_a_loss(dense: Any) -> None:
    found = curvature.report(lambda params: loss(model(params, X)))(PARAMS)
    np.testing.assert_allclose(found.total.hessian.value, np.trace(dense[0]), rtol=1e-9)
    assert found.total.gauss_newton is None
    assert found.total.rest is None


@pytest.mark.slow
def test_float32_jax_arrays_and_jitted_models(dense: Any) -> None:
    for convert in (np.float32, jnp.float32):
        found = curvature.report(fxgrad.jit(model), loss)(fxgrad.tree.map(convert, PARAMS), convert(X))
        np.testing.assert_allclose(found.total.hessian.value, np.trace(dense[0]), rtol=1e-4)
        np.testing.assert_allclose(found.largest, np.linalg.eigvalsh(dense[0])[::-1][:3], rtol=1e-4)


def test_a_diagonal_hessian_has_no_error_and_one_entry_will_do() -> None:
    found = curvature.report(lambda w: np.sum(np.arange(200.0) * w ** 2) / 2.0, samples=5)(np.ones(200))
    assert found.total.hessian == (19900.0, 0.0)
    np.testing.assert_allclose(found.largest, [199.0, 198.0, 197.0], rtol=1e-3)
    single = curvature.report(lambda w: w ** 3)(np.float64(2.0))
    assert (single.largest, single.smallest) == ((12.0,), 12.0)


def test_it_prints_as_a_table() -> None:
    x, y = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0.0, 1.0])

    def linear(w: Any, x: Any) -> Any:
        return x @ w

    def square(outputs: Any) -> Any:
        return np.sum((outputs - y) ** 2)

    found = curvature.report(linear, square)(np.ones(2), x)
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in str(found).splitlines() if "│" in line]
    assert lines == [["w", "2", "10", "10", "0"], ["all", "2", "10", "10", "0"]]
    assert "curvature of linear" in str(found)
    assert "largest eigenvalues: 8, 2; smallest: 2" in str(found)
    assert repr(found) == "<curvature of linear: trace 10, largest eigenvalue 8>"
    assert str(curvature.report(model, loss, samples=10)(PARAMS, X)).count("±") == 12


def raised(kind: type[Exception], call: Any) -> str:
    with pytest.raises(kind) as error:
        call()
    return str(error.value).split("\n")[0]


def test_errors() -> None:
    assert raised(ArgumentError, lambda: curvature.report(model, loss, samples=1)) == (
        "report: samples must be at least 2, got 1")
    assert raised(ArgumentError, lambda: curvature.report(model, loss, eigenvalues=0)) == (
        "report: eigenvalues must be at least 1, got 0")
    assert raised(DTypeError, lambda: curvature.report(model, loss)({**PARAMS, "steps": 3}, X)) == (
        "report: params.steps is i64[], where real floating-point arrays are needed")
    assert raised(ArgumentError, lambda: curvature.report(model, loss)({}, X)) == (
        "report: the parameters have no entries, so there is no curvature")
    traced = fxgrad.jit(lambda params: curvature.report(model, loss)(params, X))
    assert raised(ArgumentError, lambda: traced(PARAMS)) == (
        "report takes arrays with values, and got traced ones. Call it outside of jit, vmap and grad")
    assert raised(ArgumentError, lambda: curvature.report(model)(PARAMS, X)).startswith(
        "grad needs a function with a scalar output, and model returned f64[20,2]")
