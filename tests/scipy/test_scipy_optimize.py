"""Minima against closed forms, SciPy's and jax's, and their derivatives against differences."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.optimize
import numpy as np
import pytest
import scipy.optimize

import fxgrad
from fxgrad import errors
from fxgrad.scipy.optimize import minimize

START = np.array([-1.2, 1.0, 0.5])


def rosenbrock(x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def quartic(x: Any, a: Any) -> Any:
    return np.sum((x - a) ** 4) + np.sum(x ** 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_minima(dtype: Any) -> None:
    start = START.astype(dtype)
    for function in (minimize, fxgrad.jit(minimize, static_argnums=0, static_argnames="method")):
        found = function(rosenbrock, start, method="BFGS")
        np.testing.assert_allclose(found.x, np.ones(3), atol=2e-5, rtol=2e-8)
        assert found.x.dtype == found.fun.dtype == found.jac.dtype == found.hess_inv.dtype == dtype
        assert bool(found.success)
        assert int(found.status) == 0
        assert np.max(np.abs(found.jac)) <= 1e-5
        assert int(found.nit) < int(found.nfev) == int(found.njev)
    exact = np.linalg.inv(fxgrad.hessian(rosenbrock)(np.ones(3)))
    np.testing.assert_allclose(found.hess_inv, exact, rtol=0.2)


@pytest.mark.slow
def test_the_same_minimum_as_jax_and_scipy() -> None:
    a = np.array([1.0, 2.0, -0.3])
    with jax.enable_x64(True):
        theirs = jax.scipy.optimize.minimize(lambda x, a: jnp.sum((x - a) ** 4) + jnp.sum(x ** 2), jnp.zeros(3),
                                             (jnp.asarray(a),), method="BFGS", tol=1e-9)
    found = minimize(quartic, np.zeros(3), (a,), method="bfgs", tol=1e-9)
    np.testing.assert_allclose(4 * (found.x - a) ** 3 + 2 * found.x, 0, atol=1e-10, rtol=1e-8)
    np.testing.assert_allclose(found.x, theirs.x, rtol=1e-4)  # which ends earlier
    np.testing.assert_allclose(found.x, scipy.optimize.minimize(quartic, np.zeros(3), (a,), tol=1e-9).x, rtol=1e-5)


@pytest.mark.slow
def test_derivatives_are_those_of_the_minimum() -> None:
    def at(a: Any) -> Any:
        return minimize(quartic, np.zeros(2), (a,), method="BFGS", tol=1e-12).x

    a, step = np.array([1.0, 2.0]), 1e-5
    expected = np.stack([(at(a + step * e) - at(a - step * e)) / (2 * step) for e in np.eye(2)], 1)
    for jacobian in (fxgrad.jacrev, fxgrad.jacfwd, lambda f: fxgrad.jit(fxgrad.jacrev(f))):
        np.testing.assert_allclose(jacobian(at)(a), expected, rtol=5e-8, atol=5e-10)
    slope = fxgrad.grad(lambda a: np.sum(at(a)))
    second = np.stack([(slope(a + step * e) - slope(a - step * e)) / (2 * step) for e in np.eye(2)], 1)
    np.testing.assert_allclose(fxgrad.hessian(lambda a: np.sum(at(a)))(a), second, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(fxgrad.vmap(at)(np.stack([a, 3 * a])), np.stack([at(a), at(3 * a)]), rtol=1e-12)


def test_where_it_does_not_come_to_an_end() -> None:
    stopped = minimize(rosenbrock, START, method="BFGS", options={"maxiter": 2})
    assert (int(stopped.status), int(stopped.nit), bool(stopped.success)) == (1, 2, False)
    endless = minimize(lambda x: np.sum(x), START, method="BFGS", options={"line_search_maxiter": 5})
    assert (int(endless.status), bool(endless.success)) == (2, False)
    np.testing.assert_array_equal(endless.x, START)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: minimize(rosenbrock, START, method="Newton"), errors.ArgumentError,
     "minimize: method='Newton'; it is 'BFGS'"),
    (lambda: minimize(rosenbrock, START, method="BFGS", options={"disp": True}), errors.ArgumentError,
     "minimize: there is no option disp; there are maxiter, gtol, norm, line_search_maxiter"),
    (lambda: minimize(rosenbrock, np.ones((2, 2)), method="BFGS"), errors.ShapeError,
     "minimize: x0 is f64[2,2]; a vector of real numbers is needed"),
    (lambda: minimize(lambda x: x, START, method="BFGS"), errors.ShapeError,
     "minimize: the function returns f64[3]; a real number is needed")])
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}\n"):
        call()
