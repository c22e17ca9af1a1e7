"""Distributions against SciPy's: densities, moments of draws and their derivatives, divergences; and as containers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

import fxgrad
from fxgrad import distributions as d
from fxgrad.errors import ArgumentError
from fxgrad.training.stochastic import score_function

KEY = fxgrad.random.key(5)
COUNT = 40_000

# Ours, and SciPy's of the same parameters.
REAL: dict[str, tuple[Any, Any]] = {
    "normal": (d.Normal(0.5, 1.3), scipy.stats.norm),
    "lognormal": (d.LogNormal(0.2, 0.4), lambda m, s: scipy.stats.lognorm(s, 0, np.exp(m))),
    "uniform": (d.Uniform(-0.5, 1.5), lambda a, b: scipy.stats.uniform(a, b - a)),
    "exponential": (d.Exponential(0.7), lambda s: scipy.stats.expon(0, s)),
    "laplace": (d.Laplace(0.4, 0.8), scipy.stats.laplace),
    "logistic": (d.Logistic(0.4, 0.5), scipy.stats.logistic),
    "gumbel": (d.Gumbel(0.4, 0.5), scipy.stats.gumbel_r),
    "t": (d.StudentT(12.0, 0.4, 0.9), scipy.stats.t),
    "gamma": (d.Gamma(2.5, 1.4), lambda a, r: scipy.stats.gamma(a, 0, 1 / r)),
    "beta": (d.Beta(2.5, 1.4), scipy.stats.beta),
}
POINTS = np.array([-0.7, 0.1, 0.4, 0.9, 2.3])
ALPHA = np.array([0.8, 2.0, 3.1])
COVARIANCE = np.array([[2.0, 0.6], [0.6, 1.0]])
PAIRS: list[tuple[Any, Any]] = [
    (d.Normal(0.5, 1.3), d.Normal(-0.2, 0.9)), (d.LogNormal(0.2, 0.4), d.LogNormal(0.0, 0.6)),
    (d.Exponential(0.7), d.Exponential(1.2)), (d.Gamma(2.5, 1.4), d.Gamma(1.7, 0.8)),
    (d.Beta(2.5, 1.4), d.Beta(1.2, 2.0)), (d.Dirichlet(ALPHA), d.Dirichlet(ALPHA[::-1])),
    (d.MultivariateNormal(np.array([0.5, -1.0]), COVARIANCE), d.MultivariateNormal(np.zeros(2), np.eye(2))),
    (d.Bernoulli(0.3), d.Bernoulli(0.6)), (d.Categorical(ALPHA), d.Categorical(np.zeros(3))),
    (d.Poisson(2.0), d.Poisson(3.5)),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_row_m12_densities_and_draws_are_scipys_and_so_are_their_derivatives(name: str) -> None:
    ours, theirs = REAL[name]
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(ours.logpdf(POINTS), theirs(*ours).logpdf(POINTS), rtol=1e-12, atol=1e-15)
    draws = ours.sample(KEY, (COUNT,))
    assert scipy.stats.kstest(np.asarray(draws), theirs(*ours).cdf).pvalue > 1e-3

    def square(parameters: Any) -> Any:
        frozen = theirs(*parameters)
        return frozen.var() + frozen.mean() ** 2

    found = fxgrad.grad(lambda p: np.mean(p.sample(KEY, (COUNT,)) ** 2))(ours)
    for place, slope in enumerate(found):
        step = 1e-5 * (np.arange(len(ours)) == place)
        exact = (square(np.asarray(ours) + step) - square(np.asarray(ours) - step)) / 2e-5
        assert slope == pytest.approx(exact, abs=0.05 * (1 + abs(exact)))


@pytest.mark.slow
def test_vectors_and_discrete_ones() -> None:
    shares, plane = d.Dirichlet(ALPHA), d.MultivariateNormal(np.array([0.5, -1.0]), COVARIANCE)
    np.testing.assert_allclose(shares.logpdf(ALPHA / ALPHA.sum()), scipy.stats.dirichlet(ALPHA).logpdf(
        ALPHA / ALPHA.sum()), rtol=1e-12)
    np.testing.assert_allclose(np.mean(shares.sample(KEY, (COUNT,)), 0), ALPHA / ALPHA.sum(), atol=0.01)
    np.testing.assert_allclose(plane.logpdf(POINTS[:2]), scipy.stats.multivariate_normal(*plane).logpdf(POINTS[:2]),
                               rtol=1e-12)
    draws = np.asarray(plane.sample(KEY, (COUNT,)))
    np.testing.assert_allclose(np.cov(draws.T), COVARIANCE, atol=0.05)
    np.testing.assert_allclose(draws.mean(0), plane.mean, atol=0.03)
    numbers = np.arange(3)
    np.testing.assert_allclose(d.Poisson(2.5).logpmf(numbers), scipy.stats.poisson(2.5).logpmf(numbers), rtol=1e-12)
    np.testing.assert_allclose(d.Bernoulli(0.3).logpmf(np.array([True, False])), np.log([0.3, 0.7]), rtol=1e-12)
    chances = np.exp(ALPHA) / np.exp(ALPHA).sum()
    np.testing.assert_allclose(d.Categorical(ALPHA).logpmf(numbers), np.log(chances), rtol=1e-12)
    for way in (lambda f: f, fxgrad.jit):
        outside = way(lambda k: d.Categorical(ALPHA).logpmf(k))(np.array([-1, 3, 0], np.int8))
        np.testing.assert_allclose(outside, [-np.inf, -np.inf, np.log(chances[0])], rtol=1e-12)
    counts = np.bincount(np.asarray(d.Categorical(ALPHA).sample(KEY, (COUNT,))), minlength=3) / COUNT
    np.testing.assert_allclose(counts, chances, atol=0.01)
    assert np.mean(d.Poisson(2.5).sample(KEY, (COUNT,))) == pytest.approx(2.5, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "q"), PAIRS, ids=[type(p).__name__ for p, _ in PAIRS])
def test_divergences_are_means_over_draws(p: Any, q: Any) -> None:
    draws = p.sample(KEY, (COUNT,))
    log = "logpmf" if hasattr(p, "logpmf") else "logpdf"

    def gaps(q: Any) -> Any:
        if type(p) is d.MultivariateNormal:
            return fxgrad.vmap(lambda x: p.logpdf(x) - q.logpdf(x))(draws)
        return getattr(p, log)(draws) - getattr(q, log)(draws)

    error = float(np.std(gaps(q))) / np.sqrt(COUNT)
    assert float(d.kl(p, q)) == pytest.approx(float(np.mean(gaps(q))), abs=float(5 * error))
    assert float(d.kl(p, p)) == pytest.approx(0.0, abs=1e-12)
    slopes = fxgrad.grad(lambda q: d.kl(p, q))(p)  # least where both are the same
    for slope in fxgrad.tree.leaves(slopes):
        np.testing.assert_allclose(slope, 0.0, atol=1e-14, rtol=1e-12)


def test_divergences_of_close_distributions_have_digits() -> None:
    """They are of the size of the squared difference, and functions of the parameters are not."""
    step = np.float32(1e-3)
    one, other = np.float32(0.5), np.float32(0.5) + step
    ratio = float(other) / float(one)
    cases = [(d.Exponential(one), d.Exponential(other), 1 / ratio - 1 + np.log(ratio)),
             (d.Normal(one, one), d.Normal(one, other), (1 / ratio ** 2 - 1) / 2 + np.log(ratio)),
             (d.Poisson(one), d.Poisson(other), 0.5 * (ratio - 1 - np.log(ratio))),
             (d.Gamma(one, one), d.Gamma(one, other), 0.5 * (ratio - 1 - np.log(ratio))),
             (d.Bernoulli(one), d.Bernoulli(other), -0.5 * np.log(ratio) - 0.5 * np.log(2 - ratio))]
    for p, q, expected in cases:
        for found in (d.kl(p, q), fxgrad.jit(d.kl)(p, q)):
            assert float(found) == pytest.approx(expected, rel=1e-5)


def test_a_class_without_probability_does_not_count_in_a_divergence() -> None:
    some = d.Categorical(np.array([0.0, -np.inf, 0.0]))
    assert float(d.kl(some, d.Categorical(np.zeros(3)))) == pytest.approx(np.log(1.5), rel=1e-14)
    assert float(d.kl(some, some)) == 0


def test_shapes_dtypes_and_containers() -> None:
    many = d.Normal(np.zeros(3), np.float64(2.0))
    assert many.sample(KEY, (4, 2)).shape == (4, 2, 3)
    assert many.logpdf(np.zeros((5, 3))).shape == (5, 3)
    assert d.Gamma(np.ones(3, np.float32)).sample(KEY).dtype == np.float32
    assert d.Dirichlet(np.array([1, 2])).sample(KEY, (3,)).dtype == d.Beta(1, 2).sample(KEY).dtype == np.float64
    assert d.Categorical(np.zeros((4, 3))).sample(KEY, (2,)).shape == (2, 4)
    assert d.Categorical(np.zeros((4, 3))).logpmf(np.zeros((2, 4), int)).shape == (2, 4)
    slope = fxgrad.grad(lambda p: p.logpdf(1.0))(d.Normal(0.0, 1.0))
    assert (type(slope), float(slope.loc), float(slope.scale)) == (d.Normal, 1.0, 0.0)


@pytest.mark.slow
def test_a_nan_stays_a_nan_and_nothing_lies_outside() -> None:
    found = d.LogNormal(0.2, 0.4).logpdf(np.array([np.nan, -1.0, 0.0, 1.0]))
    np.testing.assert_array_equal(found[:3], [np.nan, -np.inf, -np.inf])
    np.testing.assert_allclose(found[3], scipy.stats.lognorm(0.4, 0, np.exp(0.2)).logpdf(1.0))


def test_score_functions_of_discrete_draws() -> None:
    def estimate(p: Any) -> Any:  # E[k²] = rate + rate²
        draws = fxgrad.stop_gradient(p.sample(KEY, (COUNT,)))
        return np.mean(score_function(draws ** 2, p.logpmf(draws), "leave-one-out"))
    assert fxgrad.grad(estimate)(d.Poisson(1.5)).rate == pytest.approx(1 + 2 * 1.5, abs=0.15)


def test_no_closed_form() -> None:
    with pytest.raises(ArgumentError) as caught:
        d.kl(d.Normal(), d.Laplace())
    assert str(caught.value).split("\n")[0] == (
        "kl: of a Normal and a Laplace there is no closed form here; take the mean of p.logpdf(x) - q.logpdf(x) over "
        "draws x = p.sample(key, shape)")
