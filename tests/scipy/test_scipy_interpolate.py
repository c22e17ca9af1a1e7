"""Interpolation on grids against SciPy and jax."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.interpolate
import numpy as np
import pytest
import scipy.interpolate

import fxgrad
from fxgrad import errors
from fxgrad.scipy.interpolate import RegularGridInterpolator
from fxgrad.testing import check_grads

pytestmark = pytest.mark.slow

RANDOM = np.random.default_rng(0)
GRID = np.array([0.0, 1.0, 2.5, 4.0]), np.array([-1.0, 0.0, 3.0])
VALUES, PLACES = RANDOM.normal(size=(4, 3)), RANDOM.uniform([0.1, -0.9], [3.9, 2.9], (7, 2))
OUTSIDE = np.concatenate([PLACES, [[-1.0, 0.0], [5.0, 1.0], [2.0, 4.0], [0.0, -1.0], [4.0, 3.0], [1.0, 0.0]]])


@pytest.mark.parametrize("fill_value", [np.nan, 7.0, None])
@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_values_as_scipy(method: str, fill_value: Any) -> None:
    values = [VALUES, RANDOM.normal(size=(4, 3, 2)), VALUES + 1j * VALUES[::-1]]
    for given in values:
        ours = RegularGridInterpolator(GRID, given, method, fill_value=fill_value)
        theirs = scipy.interpolate.RegularGridInterpolator(GRID, given, method, False, fill_value)
        for function in (ours, fxgrad.jit(ours), fxgrad.vmap(ours)):
            np.testing.assert_allclose(function(OUTSIDE), theirs(OUTSIDE), rtol=1e-12, atol=1e-15)
        pair = OUTSIDE[:, :1], OUTSIDE[:3, 1]
        np.testing.assert_allclose(ours(pair), theirs(pair), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(ours(OUTSIDE, "nearest"), theirs(OUTSIDE, "nearest"), rtol=1e-12)
    line = RegularGridInterpolator(GRID[:1], VALUES[:, 0], method, fill_value=fill_value)
    expected = scipy.interpolate.RegularGridInterpolator(GRID[:1], VALUES[:, 0], method, False, fill_value)
    np.testing.assert_allclose(line(OUTSIDE[:, 0]), expected(OUTSIDE[:, 0]), rtol=1e-12)


def test_points_with_a_nan() -> None:
    places = np.array([[np.nan, 0.5], [1.0, np.nan], [1.0, 0.5]])
    for method in ("linear", "nearest"):
        for fill_value in (None, 7.0):
            interpolate = RegularGridInterpolator(GRID, VALUES, method, fill_value=fill_value)
            expected = scipy.interpolate.RegularGridInterpolator(GRID, VALUES, method, False, fill_value)(places)
            np.testing.assert_allclose(interpolate(places), expected)
            np.testing.assert_allclose(fxgrad.jit(interpolate)(places), expected)


def test_derivatives_as_jax() -> None:
    def total(module: Any, library: Any) -> Any:
        return lambda places, values, points: library.sum(
            module.RegularGridInterpolator((points, GRID[1]), values)(places) ** 2)

    given = PLACES, VALUES, GRID[0]
    ours = total(fxgrad.scipy.interpolate, np)
    with jax.enable_x64(True):
        expected = jax.jit(jax.grad(total(jax.scipy.interpolate, jnp), (0, 1, 2)))(*given)
    for one, other in zip(fxgrad.grad(ours, (0, 1, 2))(*given), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)
    check_grads(ours, given, order=2)
    narrow = RegularGridInterpolator([each.astype(np.float32) for each in GRID], VALUES.astype(np.float32))
    assert narrow(PLACES.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: RegularGridInterpolator(GRID, VALUES, "cubic"), errors.ArgumentError,
     "RegularGridInterpolator: method='cubic'; it is 'linear' or 'nearest'"),
    (lambda: RegularGridInterpolator(GRID, VALUES, bounds_error=True), errors.UnsupportedError,
     "RegularGridInterpolator: bounds_error=True is not supported; outside of the grid the value is fill_value"),
    (lambda: RegularGridInterpolator(GRID, VALUES.T), errors.ShapeError,
     ("RegularGridInterpolator: points of shapes [(4,), (3,)] for values of shape (3, 4); a vector for each of the "
      "first axes is needed")),
    (lambda: RegularGridInterpolator((GRID[0][::-1], GRID[1]), VALUES), errors.ArgumentError,
     "RegularGridInterpolator: points[0] is not in increasing order"),
    (lambda: RegularGridInterpolator(GRID, VALUES)(np.ones((4, 3))), errors.ShapeError,
     ("RegularGridInterpolator: points in 3 dimensions on a grid of 2; arrays of shape (..., 2) are needed"))])
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}\n"):
        call()
