"""Statistics of samples against jax and SciPy: densities of points, ranks, modes, the entropy of counts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.stats
import numpy as np
import pytest
import scipy.stats

import fxgrad
from fxgrad import errors
from fxgrad.scipy import stats
from fxgrad.testing import check_grads

RANDOM = np.random.default_rng(0)
POINTS, PLACES, WEIGHTS = RANDOM.normal(size=(2, 8)), RANDOM.normal(size=(2, 5)), RANDOM.uniform(0.5, 2.0, 8)

DENSITIES: dict[str, Callable[[Any], Any]] = {
    "pdf": lambda module: module.gaussian_kde(POINTS).pdf(PLACES),
    "logpdf": lambda module: module.gaussian_kde(POINTS, "silverman").logpdf(PLACES),
    "weights": lambda module: module.gaussian_kde(POINTS, 0.7, WEIGHTS)(PLACES),
    "function": lambda module: module.gaussian_kde(POINTS, lambda density: density.neff ** -0.3).evaluate(PLACES[:, 0]),
    "gaussian": lambda module: module.gaussian_kde(POINTS).integrate_gaussian(np.array([0.3, 0.4]), np.eye(2) * 0.5),
    "box": lambda module: module.gaussian_kde(POINTS[0]).integrate_box_1d(-0.3, 0.8),
    "product": lambda module: module.gaussian_kde(POINTS).integrate_kde(
        module.gaussian_kde(PLACES, weights=WEIGHTS[:5]))}


@pytest.mark.parametrize("name", DENSITIES)
def test_densities_as_scipy(name: str) -> None:
    expected = DENSITIES[name](scipy.stats)
    np.testing.assert_allclose(DENSITIES[name](stats), expected, rtol=1e-12)
    np.testing.assert_allclose(fxgrad.jit(lambda: DENSITIES[name](stats))(), expected, rtol=1e-12)


@pytest.mark.slow
def test_transformations_of_densities() -> None:
    def total(points: Any, places: Any, weights: Any) -> Any:
        return np.sum(stats.gaussian_kde(points, weights=weights).logpdf(places))

    def theirs(points: Any, places: Any, weights: Any) -> Any:
        return jnp.sum(jax.scipy.stats.gaussian_kde(points, weights=weights).logpdf(places))

    given = POINTS, PLACES, WEIGHTS
    with jax.enable_x64(True):
        expected = jax.jit(jax.grad(theirs, (0, 1, 2)))(*given)
    for ours, wanted in zip(fxgrad.grad(total, (0, 1, 2))(*given), expected, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=5e-11, atol=5e-14)
    check_grads(total, given, order=2)
    density = fxgrad.jit(stats.gaussian_kde)(POINTS)  # a container of arrays
    np.testing.assert_allclose(density.pdf(PLACES), DENSITIES["pdf"](scipy.stats), rtol=1e-12)
    many = fxgrad.vmap(lambda points: stats.gaussian_kde(points).pdf(PLACES))(np.stack([POINTS, 2 * POINTS]))
    np.testing.assert_allclose(many[1], scipy.stats.gaussian_kde(2 * POINTS)(PLACES), rtol=1e-12)
    assert stats.gaussian_kde(POINTS.astype(np.float32)).pdf(PLACES.astype(np.float32)).dtype == np.float32


def test_draws_from_densities_are_those_of_jax() -> None:
    points = POINTS.astype(np.float32)
    ours = stats.gaussian_kde(points).resample(fxgrad.random.key(3), (4,))
    theirs = jax.scipy.stats.gaussian_kde(points).resample(jax.random.key(3), (4,))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


INTEGERS = RANDOM.integers(0, 4, (4, 5)).astype(np.int32)
FLOATS = INTEGERS.astype(np.float32)
WITH_NANS = np.where(RANDOM.uniform(size=(4, 5)) < 0.25, np.float32(np.nan), FLOATS)


@pytest.mark.slow
def test_ranks_and_modes_as_jax() -> None:
    functions: list[Callable[[Any, Any], Any]] = []
    for axis in (0, 1, None):
        functions += [
            lambda module, x, axis=axis: module.mode(x, axis),
            lambda module, x, axis=axis: module.mode(x, axis, keepdims=True),
            *(lambda module, x, axis=axis, method=method: module.rankdata(x, method, axis=axis) for method in (
                "average", "min", "max", "dense", "ordinal"))]
    arrays = [INTEGERS, FLOATS, WITH_NANS]
    expected = jax.jit(lambda arrays: [[f(jax.scipy.stats, x) for f in functions] for x in arrays])(arrays)
    compiled = fxgrad.jit(lambda arrays: [[f(stats, x) for f in functions] for x in arrays])(arrays)
    for x, wanted, also in zip(arrays, expected, compiled, strict=True):
        mapped = fxgrad.vmap(lambda x: [function(stats, x) for function in functions])(np.stack([x, x[::-1]]))
        for found in ([f(stats, x) for f in functions], also, jax.tree.map(lambda leaf: leaf[0], mapped)):
            for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
                assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
                np.testing.assert_array_equal(ours, theirs)


def test_ranks_of_wide_floats_are_wide() -> None:
    np.testing.assert_array_equal(stats.rankdata(FLOATS.astype(np.float64)), scipy.stats.rankdata(FLOATS))
    assert stats.rankdata(FLOATS.astype(np.float64)).dtype == np.float64
    assert stats.rankdata(np.zeros(0)).shape == (0,)


def test_entropy_of_poisson() -> None:
    """Against sums over all numbers, also across the place where the expansion begins."""
    mu = np.array([0.0, 0.01, 0.5, 2.0, 9.0, 30.0, 120.0, 199.9, 200.1, 1e3, 1e6])
    entropy = stats.poisson.entropy
    for function in (entropy, fxgrad.jit(entropy), lambda mu: fxgrad.vmap(entropy)(mu)):
        np.testing.assert_allclose(function(mu)[:6], scipy.stats.poisson.entropy(mu[:6]), rtol=1e-12, atol=1e-15)
    exact = [-np.sum(np.exp(terms) * terms) for terms in (
        scipy.stats.poisson.logpmf(np.arange(max(0, int(each) - 3000), int(each) + 3000), each) for each in mu[1:-1])]
    np.testing.assert_allclose(entropy(mu[1:-1]), exact, rtol=3e-10)
    np.testing.assert_allclose(entropy(mu.astype(np.float32)), entropy(mu), rtol=2e-5, atol=1e-6)
    assert entropy(np.float32(2.0)).dtype == np.float32
    assert np.isnan(entropy(-1.0))
    assert np.isnan(entropy(math.nan))
    slope = fxgrad.grad(lambda mu: np.sum(entropy(mu)))
    tiny = np.array([0.0, 1e-300, 1e-30, 1e-17, 2e-17, 1e-8])
    for function in (slope, fxgrad.jit(slope)):
        np.testing.assert_allclose(function(tiny)[1:], -np.log(tiny[1:]) + tiny[1:] * np.log(2.0), rtol=1e-14)
        assert function(tiny)[0] == np.inf
        np.testing.assert_allclose(function(tiny[2:].astype(np.float32)), -np.log(tiny[2:]), rtol=3e-6)  # of a sum
    assert entropy(mu, np.zeros((2, 1))).shape == (2, 11)
    check_grads(entropy, (np.array([0.5, 2.0, 30.0, 250.0]),), order=2)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: stats.gaussian_kde(np.ones(1)), errors.ShapeError,
     "gaussian_kde: a dataset of shape (1,); (points,) or (dimensions, points) of at least two points is needed"),
    (lambda: stats.gaussian_kde(POINTS * 1j), errors.DTypeError,
     "gaussian_kde: a density of complex numbers is not supported; stack their parts"),
    (lambda: stats.gaussian_kde(POINTS, weights=np.ones(3)), errors.ShapeError,
     "gaussian_kde: weights of shape (3,) for 8 points; one for each is needed"),
    (lambda: stats.gaussian_kde(POINTS, "wide"), errors.ArgumentError,
     "gaussian_kde: bw_method='wide'; it is 'scott', 'silverman', a number or a function"),
    (lambda: stats.gaussian_kde(POINTS)(np.ones((3, 2))), errors.ShapeError,
     "gaussian_kde: points of shape (3, 2) in 2 dimensions; (2, places) is needed"),
    (lambda: stats.gaussian_kde(POINTS).integrate_box_1d(0, 1), errors.ShapeError,
     "gaussian_kde.integrate_box_1d: the density has 2 dimensions"),
    (lambda: stats.gaussian_kde(POINTS).set_bandwidth("scott"), errors.UnsupportedError,
     "gaussian_kde.set_bandwidth is not supported: densities do not change. Make another one with bw_method='scott'"),
    (lambda: stats.gaussian_kde(POINTS).integrate_box(0, 1), errors.UnsupportedError,
     "gaussian_kde.integrate_box is not supported; draw points with resample, or use integrate_box_1d"),
    (lambda: stats.mode(np.ones((0, 2))), errors.ArgumentError,
     "mode: an array of shape (0, 2) has no elements along axis 0"),
    (lambda: stats.rankdata(POINTS, "first"), errors.ArgumentError,
     "rankdata: method='first'; it is one of 'average', 'min', 'max', 'dense', 'ordinal'"),
    (lambda: stats.rankdata(POINTS, nan_policy="omit"), errors.UnsupportedError,
     "rankdata: nan_policy='omit' is not supported, only 'propagate'; take the NaNs out first")])
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}\n"):
        call()
