"""Estimates of traces: exact where they are, unbiased elsewhere, with errors of the size that theory gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import stochastic
from fxgrad.errors import ArgumentError, DTypeError, TreeError

KEY = fxgrad.random.key(7)
X = np.array([-1.6, -0.2, 0.3, 2.7])
A = np.random.default_rng(0).normal(size=(4, 4))
SYMMETRIC = A + A.T


def quadratic(x: Any) -> Any:
    return 0.5 * x @ (SYMMETRIC @ x)


def test_diagonal_matrices_are_exact() -> None:
    for transformed in (lambda f: f, fxgrad.jit):
        value, error = transformed(stochastic.laplacian(lambda x: fnp.sum(x ** 3), 2))(KEY, X)
        np.testing.assert_allclose([value, error], [6 * X.sum(), 0.0], atol=1e-14)
        value, error = transformed(stochastic.hessian_diag(lambda x: fnp.sum(x ** 3), 2))(KEY, X)
        np.testing.assert_allclose([value, error], [6 * X, 0 * X], atol=1e-14)
        value, error = transformed(stochastic.divergence(lambda x: x ** 3, 2))(KEY, X)
        np.testing.assert_allclose([value, error], [3 * (X ** 2).sum(), 0.0], atol=1e-14)


def test_errors_are_those_of_the_theory() -> None:
    off = SYMMETRIC - np.diag(np.diag(SYMMETRIC))
    samples = 20_000
    value, error = stochastic.laplacian(quadratic, samples)(KEY, X)
    assert error == pytest.approx(np.sqrt(2.0 * (off ** 2).sum() / samples), rel=0.05)
    assert abs(value - np.trace(SYMMETRIC)) < 4.0 * error
    value, error = stochastic.hessian_diag(quadratic, samples, chunk_size=5_000)(KEY, X)
    np.testing.assert_allclose(error, np.sqrt((off ** 2).sum(1) / samples), rtol=0.05)
    assert np.all(np.abs(value - np.diag(SYMMETRIC)) < 4.0 * error)
    value, error = stochastic.divergence(lambda x: A @ x, samples)(KEY, X)  # v A v is v (A + A') v / 2
    assert error == pytest.approx(np.sqrt(0.5 * (off ** 2).sum() / samples), rel=0.05)
    assert abs(value - np.trace(A)) < 4.0 * error


def test_they_are_unbiased() -> None:
    keys = fxgrad.random.split(KEY, 400)
    for estimator, function, truth in ((stochastic.laplacian, quadratic, np.trace(SYMMETRIC)),
                                       (stochastic.divergence, lambda x: A @ x, np.trace(A))):
        found = fxgrad.vmap(lambda key, one=estimator, two=function: one(two, 8)(key, X).value)(keys)
        assert abs(np.mean(found) - truth) < 4.0 * np.std(found) / np.sqrt(len(found))


def test_containers_dtypes_and_several_arguments() -> None:
    x = {"a": np.ones(2, np.float32), "b": np.float32(2.0)}
    value, error = stochastic.hessian_diag(lambda x: fnp.sum(x["a"] ** 3) + x["b"] ** 2, 3)(KEY, x)
    assert value["a"].tolist() == [6.0, 6.0]
    assert (float(value["b"]), value["a"].dtype, error["a"].dtype) == (2.0, np.float32, np.float32)
    value, _ = stochastic.laplacian(lambda x: {"o": x["a"] ** 3 + x["b"] ** 2}, 2)(KEY, x)
    assert value["o"].tolist() == [8.0, 8.0]
    assert stochastic.laplacian(lambda t, x: t * x ** 3, 2, 1)(KEY, 2.0, 3.0).value == 36.0
    value, error = stochastic.laplacian(lambda t, x: t * x ** 3, 2_000, (0, 1))(KEY, 2.0, 3.0)
    assert error > 0.0
    assert abs(value - 36.0) < 4.0 * error
    assert stochastic.laplacian(lambda x: fnp.sum(x), 2)(KEY, np.zeros(0)) == (0.0, 0.0)
    assert stochastic.laplacian(lambda x, power: fnp.sum(x ** power), 2)(KEY, X, power=2).value == 8.0


@pytest.mark.parametrize("transformed", [lambda f: f, fxgrad.jit], ids=["un-jitted", "jitted"])
def test_arguments_are_chosen_by_name(transformed: Any) -> None:
    def function(scale: Any, x: Any, *, t: Any = 1.0) -> Any:
        return scale * fnp.sum(x ** 3) * t ** 2

    found = transformed(stochastic.laplacian(function, 8, argnames="x"))(KEY, 2.0, x=X, t=3.0)
    assert found.value == pytest.approx(18.0 * 6 * X.sum())
    of_both = transformed(stochastic.hessian_diag(function, 8, argnames=("x", "t")))(KEY, 2.0, X, t=3.0).value
    expected = stochastic.hessian_diag(lambda x, t: function(2.0, x, t=t), 8, (0, 1))(KEY, X, 3.0).value
    for one, other in zip(of_both, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)
    field = stochastic.divergence(lambda scale, x: scale * x ** 2, 8, argnames="x")
    assert transformed(field)(KEY, 2.0, X).value == pytest.approx(4.0 * X.sum())


def test_they_are_differentiated() -> None:
    def loss(scale: Any) -> Any:
        return stochastic.laplacian(lambda x: fnp.sum(scale * x ** 3), 4)(KEY, X).value

    np.testing.assert_allclose(fxgrad.grad(loss)(2.0), 6.0 * X.sum(), atol=1e-13)


@pytest.mark.parametrize(("error", "text", "call"), [
    (ArgumentError, ("stochastic.laplacian takes the number of random directions as an integer of at least 2, got 1. "
     "Write fxgrad.stochastic.laplacian(f, 16)(key, x)"), lambda: stochastic.laplacian(np.sum, 1)),
    (ArgumentError, "stochastic.divergence: chunk_size=0; it must be an int, at least 1, or None",
     lambda: stochastic.divergence(np.sin, 4, chunk_size=0)),
    (DTypeError, ("stochastic.laplacian takes real arguments, and x of function is c128[2]. Pass its real and "
     "imaginary parts as two arguments"), lambda: stochastic.laplacian(lambda x: x.sum(), 2)(KEY, np.ones(2, complex))),
    (TreeError, ("stochastic.divergence needs a function whose output is like its argument: function takes "
     "PyTreeDef((*,)) and returned PyTreeDef(((*, *),))"), lambda: stochastic.divergence(lambda x: (x, x), 2)(KEY, X)),
    (ArgumentError, ("stochastic.hessian_diag needs a function with a scalar output, and function returned f64[4]. Sum "
     "or average it, stochastic.hessian_diag(lambda x: np.sum(function(x)))"),
     lambda: stochastic.hessian_diag(lambda x: x, 2)(KEY, X)),
    (ArgumentError, 'stochastic.divergence: argnames=\'y\', and function has no parameter y; it has x',
     lambda: stochastic.divergence(lambda x: fnp.sin(x), 2, argnames="y")),
    (ArgumentError, "stochastic.laplacian takes argnums or argnames, and got argnums=1 and argnames='x'. Leave one out",
     lambda: stochastic.laplacian(lambda x: x, 2, 1, argnames="x")),
])
def test_bad_input_is_named(error: type[Exception], text: str, call: Any) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).split("\n")[0] == text
