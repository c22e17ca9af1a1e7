"""Distributions against jax.scipy.stats: values and dtypes, derivatives, batches, compiled code."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.stats
import mpmath
import numpy as np
import pytest
import scipy.stats

import fxgrad
from fxgrad import errors
from fxgrad.scipy import stats
from tests.support.distributions import FUNCTIONS, SCIPYS, SHAPES, WITHOUT_DERIVATIVE, pair, parameters, points

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_values_as_scipy(name: str, function: str) -> None:
    ours, theirs = getattr(getattr(stats, name), function), getattr(getattr(scipy.stats, name), function)
    given = parameters(name, function)
    for dtype, tolerance in ((np.float32, 3e-5), (np.float64, 1e-12)):
        x = points(name, function).astype(dtype)
        values = [dtype(value) for value in given]
        found = ours(x, *values)
        assert np.asarray(found).dtype == dtype
        if (name, function) == ("wrapcauchy", "pdf") or (name, function) == ("wrapcauchy", "logpdf"):
            x, found = x[x >= 0], found[x >= 0]  # SciPy wraps those outside around
        with np.errstate(all="ignore"):
            expected = theirs(x, *values)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(fxgrad.vmap(ours, (0, *[None] * len(values)))(x, *values), found)


def _log_beta(a: Any, b: Any) -> Any:
    return mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(a + b)


def _log_of_power(k: Any, p: Any) -> Any:
    return k * mpmath.log(p) if k else mpmath.mpf(0)


def _log_choices(n: Any, k: Any) -> Any:
    return -mpmath.log(n + 1) - _log_beta(n - k + 1, k + 1)


def _log_gamma_density(x: Any, a: Any) -> Any:
    return (a - 1) * mpmath.log(x) - x - mpmath.loggamma(a)


EXACT: dict[str, tuple[str, Any, list[tuple[float, ...]]]] = {
    "gamma": ("logpdf", _log_gamma_density, [
        (1e6, 1e6), (1.01e6, 1e6), (1e4, 1e4), (1e-6, 1e4), (3.0, 2.5), (0.3, 0.1), (50.0, 1.0)]),
    "chi2": ("logpdf", lambda x, df: _log_gamma_density(x / 2, df / 2) - mpmath.log(2), [(10100.0, 1e4), (0.1, 30.0)]),
    "beta": ("logpdf", lambda x, a, b: (a - 1) * mpmath.log(x) + (b - 1) * mpmath.log1p(-x) - _log_beta(a, b), [
        (0.5, 1e5, 1e5), (0.501, 1e5, 1e5), (0.999, 1e5, 50.0), (0.001, 3.0, 1e3), (0.25, 2.5, 0.5), (0.5, 1e3, 1e3)]),
    "t": ("logpdf", lambda x, df: mpmath.loggamma((df + 1) / 2) - mpmath.loggamma(df / 2) - mpmath.log(
        mpmath.pi * df) / 2 - (df + 1) / 2 * mpmath.log1p(x * x / df), [
        (0.0, 1e7), (1.0, 1e7), (5.0, 1e5), (0.1, 1e3), (2.0, 0.1), (3.0, 3.0)]),
    "gennorm": ("logpdf", lambda x, beta: mpmath.log(beta / 2) - mpmath.loggamma(1 / beta) - abs(x) ** beta, [
        (0.5, 1e5), (0.5, 2.0)]),
    "vonmises": ("logpdf", lambda x, kappa: kappa * mpmath.cos(x) - mpmath.log(2 * mpmath.pi) - mpmath.log(
        mpmath.besseli(0, kappa)), [(1e-3, 1e6), (0.01, 1e4), (0.2, 100.0), (1.0, 2.0)]),
    "wrapcauchy": ("logpdf", lambda x, c: mpmath.log(1 - c * c) - mpmath.log(2 * mpmath.pi) - mpmath.log(
        1 + c * c - 2 * c * mpmath.cos(x)), [(1e-4, 0.9999), (0.01, 0.99), (1.0, 0.5)]),
    "cauchy": ("logpdf", lambda x: -mpmath.log1p(x * x) - mpmath.log(mpmath.pi), [(1e25,), (-3.0,), (1e-3,)]),
    "poisson": ("logpmf", lambda k, mu: _log_of_power(k, mu) - mu - mpmath.loggamma(k + 1), [
        (1e6, 1e6), (1e4, 1e-3), (0.0, 30.0), (1000.0, 1010.0), (1.0, 0.5), (3.0, 1e4)]),
    "binom": ("logpmf", lambda k, n, p: _log_choices(n, k) + _log_of_power(k, p) + _log_of_power(n - k, 1 - p), [
        (500.0, 1e6, 1e-3), (5000.0, 1e4, 0.5), (0.0, 1e6, 1e-6), (10.0, 10.0, 0.9), (1.0, 5.0, 0.1)]),
    "nbinom": ("logpmf", lambda k, n, p: mpmath.loggamma(k + n) - mpmath.loggamma(k + 1) - mpmath.loggamma(
        n) + n * mpmath.log(p) + _log_of_power(k, 1 - p), [(5e4, 10.0, 1e-3), (0.0, 1e5, 0.9), (500.0, 1e5, 0.9)]),
    "betabinom": ("logpmf", lambda k, n, a, b: _log_choices(n, k) + _log_beta(k + a, n - k + b) - _log_beta(a, b), [
        (5.0, 1e5, 1.0, 1e3), (500.0, 1e3, 1e4, 1e4), (0.0, 1e5, 0.1, 0.5), (5.0, 5.0, 2.0, 3.0)])}


@pytest.mark.parametrize("name", EXACT)
def test_densities_of_large_parameters_have_all_digits(name: str) -> None:
    function, exact, cases = EXACT[name]
    ours = getattr(getattr(stats, name), function)
    for dtype in (np.float32, np.float64):
        points = np.array(cases, dtype).T
        with mpmath.workdps(40):
            expected = [exact(*map(mpmath.mpf, map(float, point))) for point in points.T]
        for found in (ours(*points), fxgrad.jit(ours)(*points)):
            assert found.dtype == dtype
            errors_of = [abs(float(mpmath.mpf(float(one)) - other)) / (1 + abs(float(other)))
                         for one, other in zip(np.asarray(found), expected, strict=True)]
            assert max(errors_of) < 20 * np.finfo(dtype).eps, errors_of


@pytest.mark.parametrize("name", ["gamma", "beta", "poisson", "vonmises", "t"])
def test_slopes_of_densities_in_large_parameters(name: str) -> None:
    """They are small differences of large functions of the parameters."""
    function, exact, _ = EXACT[name]
    point = {"gamma": (1e6, 1e6), "beta": (0.5, 1e5, 1e5), "poisson": (1e6, 1.001e6), "vonmises": (0.0, 1e6),
             "t": (0.1, 1e5)}[name]
    with mpmath.workdps(60):
        expected = float(mpmath.diff(lambda value: exact(mpmath.mpf(point[0]), value, *point[2:]), point[1]))
    slope = fxgrad.grad(getattr(getattr(stats, name), function), 1)
    for dtype in (np.float32, np.float64):
        for found in (slope(*map(dtype, point)), fxgrad.jit(slope)(*map(dtype, point))):
            np.testing.assert_allclose(found, expected, rtol=2e-3 if dtype is np.float32 else 1e-6)


def test_densities_of_shares_and_counts_of_large_parameters_have_all_digits() -> None:
    x, alpha = np.array([0.25, 0.5, 0.25]), np.array([2.5e5, 5e5, 2.5e5])
    counts = np.array([2.5e5, 5e5, 0.0, 2.5e5])
    with mpmath.workdps(40):
        shares = mpmath.loggamma(sum(alpha)) + sum((a - 1) * mpmath.log(each) - mpmath.loggamma(a)
                                                   for each, a in zip(x, map(mpmath.mpf, alpha), strict=True))
        ways = mpmath.loggamma(sum(counts) + 1) + sum(
            k * mpmath.log(p) - mpmath.loggamma(k + 1) for k, p in zip(alpha, map(mpmath.mpf, x), strict=True))
    for dtype in (np.float32, np.float64):
        for transform in (lambda f: f, fxgrad.jit):
            np.testing.assert_allclose(transform(stats.dirichlet.logpdf)(x.astype(dtype), alpha.astype(dtype)),
                                       float(shares), rtol=20 * np.finfo(dtype).eps)
            share = np.array([0.25, 0.5, 0.0, 0.25], dtype)
            np.testing.assert_allclose(
                transform(stats.multinomial.logpmf)(counts.astype(dtype), dtype(1e6), share),
                float(ways), rtol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quantiles_near_the_upper_end(dtype: Any) -> None:
    eps = float(np.finfo(dtype).eps)
    q = np.array([1.0, 1 - eps, 1 - 8 * eps, 0.8, 0.5, 0.1, eps, 0.0], dtype)
    for transform in (lambda f: f, fxgrad.jit):
        np.testing.assert_allclose(transform(stats.cauchy.ppf)(q), scipy.stats.cauchy.isf(1 - q.astype(float)),
                                   rtol=10 * eps, atol=eps)
        assert float(transform(stats.cauchy.isf)(dtype(1))) == -np.inf


def test_truncated_normal_numbers_of_narrow_intervals() -> None:
    for low, high in ((-1e-3, 1e-3), (3.0, 3.001), (-0.5, 30.0)):
        x = np.array([low, high, (low + high) / 2], np.float32)
        expected = scipy.stats.truncnorm.logpdf(x[2].astype(float), *x[:2].astype(float))
        for transform in (lambda f: f, fxgrad.jit):
            found = transform(stats.truncnorm.logpdf)(x[2], x[0], x[1])
            np.testing.assert_allclose(found, expected, atol=1e-3 if low == 3.0 else 1e-6)


def test_logarithms_of_probabilities_near_1() -> None:
    np.testing.assert_allclose(stats.expon.logcdf(np.float32(40.0)), -np.exp(-40.0), rtol=1e-6)


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_values(name: str, function: str) -> None:
    ours, theirs = pair(name, function)
    given = parameters(name, function)
    for dtype, tolerance in ((np.float32, 3e-5), (np.float64, 1e-12)):
        x = points(name, function).astype(dtype)
        values = [dtype(value) for value in given]
        with jax.enable_x64(dtype is np.float64):
            expected = np.asarray(jax.jit(theirs)(x, *values))
        if name == "betabinom":  # which jax computes from values of betaln that have lost digits
            expected = getattr(scipy.stats.betabinom, function)(x, *values).astype(dtype)
        mapped = fxgrad.vmap(ours, (0, *[None] * len(values)))
        for found in (ours(x, *values), mapped(x, *values)):
            assert np.asarray(found).dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "function"), [each for each in FUNCTIONS if each[1] in (
    "logpdf", "logpmf", "logcdf", "logsf", "cdf", "ppf") and each not in WITHOUT_DERIVATIVE])
def test_derivatives(name: str, function: str) -> None:
    ours, _ = pair(name, function)
    x, given = points(name, function), parameters(name, function)
    if not hasattr(getattr(stats, name), "pmf"):
        x = x + 0.01  # not at the ends of a support
        near = [ours(x + by, *given) for by in (-0.01, 0.0, 0.01)]
    else:
        near = [ours(x, *given)]
    x = x[np.all(np.isfinite(near), axis=0)]
    given = [np.float64(value) + 0.0 for value in given]
    which = [position for position in range(len(given) + 1)
             if not (function == "cdf" and name in ("gamma", "chi2", "gennorm", "poisson") and position)
             and not (position in (0, len(given)) and hasattr(getattr(stats, name), "pmf"))
             and not (name in ("binom", "betabinom", "nbinom") and position == 1)]
    if function in ("logcdf", "logsf") and name in ("gamma", "chi2"):
        which = [0]
    found = fxgrad.grad(lambda *args: np.sum(ours(*args)), which)(x, *map(np.asarray, given))
    step = 1e-6
    for position, slope in zip(which, found, strict=True):
        arguments = [x, *given]

        def moved(by: float, position: int = position, arguments: list[Any] = arguments) -> Any:
            return np.sum(ours(*(each + by if at == position else each for at, each in enumerate(arguments))))
        np.testing.assert_allclose(np.sum(slope), (moved(step) - moved(-step)) / (2 * step), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_compiled(name: str, function: str) -> None:
    ours, _ = pair(name, function)
    x, given = points(name, function), parameters(name, function)
    np.testing.assert_allclose(fxgrad.jit(ours)(x, *given), ours(x, *given), rtol=1e-12, atol=1e-13)


def test_vectors() -> None:
    x, alpha = np.array([[0.2, 0.1], [0.3, 0.4], [0.5, 0.5]]), np.array([1.5, 2.0, 3.0])
    mean, factor = np.array([0.1, -0.2, 0.3]), np.array([[1.0, 0.0, 0.0], [0.4, 1.2, 0.0], [0.1, -0.3, 0.9]])
    counts, p = np.array([[1, 2, 3], [2, 2, 2], [9, 0, 0]]), np.array([0.2, 0.3, 0.5])
    rows = np.arange(6.0).reshape(2, 3) / 5
    cases: list[tuple[str, str, tuple[Any, ...]]] = [
        ("dirichlet", "logpdf", (x, alpha)), ("dirichlet", "pdf", (x[:2], alpha)),
        ("dirichlet", "logpdf", (x[:, 0], alpha)),
        ("multinomial", "logpmf", (counts[0], np.int64(6), p)), ("multinomial", "pmf", (counts[2], np.int64(6), p)),
        ("multivariate_normal", "logpdf", (rows, mean, factor @ factor.T)),
        ("multivariate_normal", "pdf", (rows[0], mean, factor @ factor.T)),
        ("multivariate_normal", "logpdf", (rows, mean, np.float64(2.0))),
        ("multivariate_normal", "logpdf", (rows, np.float64(0.3), np.float64(2.0))),
        ("multivariate_normal", "logpdf", (rows, mean, np.stack([factor @ factor.T, np.eye(3)])))]
    for name, function, given in cases:
        ours, theirs = pair(name, function)
        with jax.enable_x64(True):
            expected = theirs(*given)
            slope = jax.grad(lambda *args, f=theirs: jnp.sum(jnp.where(jnp.isfinite(f(*args)), f(*args), 0.0)),
                             len(given) - 1)(*given)
        np.testing.assert_allclose(ours(*given), expected, rtol=1e-12, err_msg=f"{name}.{function}")
        np.testing.assert_allclose(fxgrad.jit(ours)(*given), expected, rtol=1e-12)
        found = fxgrad.grad(lambda *args, f=ours: np.sum(np.where(np.isfinite(f(*args)), f(*args), 0.0)),
                            len(given) - 1)(*given)
        if name == "multivariate_normal" and np.ndim(slope) >= 2:
            slope, found = slope + np.swapaxes(slope, -1, -2), found + np.swapaxes(found, -1, -2)
        np.testing.assert_allclose(found, slope, rtol=2e-12, atol=1e-15)
    with pytest.raises(errors.ShapeError, match="dirichlet: x of shape"):
        stats.dirichlet.logpdf(np.ones(5), alpha)
    with pytest.raises(errors.ShapeError, match="multivariate_normal: cov of shape"):
        stats.multivariate_normal.logpdf(rows, mean, np.eye(2))


def test_variances_and_defaults_of_vectors_as_scipy() -> None:
    rows, mean, variances = np.arange(6.0).reshape(2, 3) / 5, np.array([0.1, -0.2, 0.3]), np.array([0.5, 1.5, 0.1])
    for given in ((), (mean,), (mean, variances), (None, variances), (mean, 0.5), (None, np.diag(variances))):
        theirs = scipy.stats.multivariate_normal(np.zeros(3) if not given or given[0] is None else mean, *given[1:])
        for name in ("logpdf", "pdf"):
            np.testing.assert_allclose(getattr(stats.multivariate_normal, name)(rows, *given),
                                       getattr(theirs, name)(rows), rtol=1e-12)
    assert float(stats.multivariate_normal.logpdf(0.5)) == pytest.approx(scipy.stats.norm.logpdf(0.5), rel=1e-12)
    slope = fxgrad.grad(lambda v: np.sum(stats.multivariate_normal.logpdf(rows, mean, v)))(variances)
    np.testing.assert_allclose(slope, np.diagonal(fxgrad.grad(
        lambda m: np.sum(stats.multivariate_normal.logpdf(rows, mean, m)))(np.diag(variances))), rtol=1e-12)
    assert stats.multivariate_normal.logpdf(np.float32([0.1, 0.2])).dtype == np.float32
    with pytest.raises(errors.ArgumentError, match=r"^multivariate_normal: allow_singular=True is not supported; leave "
                                                   r"it out, and add a small multiple of the identity to cov"):
        stats.multivariate_normal.pdf(rows, mean, np.zeros((3, 3)), allow_singular=True)


def test_functions_that_a_distribution_lacks() -> None:
    with pytest.raises(AttributeError, match=r"^fxgrad\.scipy\.stats\.t has no cdf; it has logpdf, pdf\n  at "):
        _ = stats.t.cdf
    with pytest.raises(AttributeError, match=r"has no rvs; it has .*\. Draw samples with a key: fxgrad\.random\.beta\("
                                             r"fxgrad\.random\.key\(0\), \.\.\.\)"):
        _ = stats.beta.rvs
    with pytest.raises(AttributeError, match=r"has no rvs; it has .*\. fxgrad\.random draws samples with a key"):
        _ = stats.nbinom.rvs


def test_vectors_as_scipy() -> None:
    counts, p = np.array([[1, 2, 3], [2, 2, 2], [9, 0, 0]]), np.array([0.2, 0.3, 0.5])
    np.testing.assert_allclose(stats.multinomial.logpmf(counts, 6, p), scipy.stats.multinomial.logpmf(counts, 6, p),
                               rtol=1e-12)
    rows, mean, cov = np.arange(6.0).reshape(2, 3), np.arange(3.0), np.eye(3) + 0.3
    np.testing.assert_allclose(stats.multivariate_normal.logpdf(rows, mean, cov),
                               scipy.stats.multivariate_normal.logpdf(rows, mean, cov), rtol=1e-12)
    x, alpha = np.array([[0.2, 0.1], [0.3, 0.4], [0.5, 0.5]]), np.array([1.5, 2.0, 3.0])
    for given in (x, x[:2], x[:, 0], x[:2, 1]):  # the last is what is missing to 1
        np.testing.assert_allclose(stats.dirichlet.logpdf(given, alpha), scipy.stats.dirichlet.logpdf(given, alpha),
                                   rtol=1e-12)


def test_standard_error() -> None:
    a = np.array([[1.0, 2.0, 4.0], [0.5, np.nan, 1.0]])
    with jax.enable_x64(True):
        for options in ({}, {"axis": 1}, {"axis": None, "ddof": 0}, {"axis": 1, "keepdims": True},
                        {"nan_policy": "omit", "axis": 1}):
            np.testing.assert_allclose(stats.sem(a, **options), jax.scipy.stats.sem(a, **options), rtol=1e-12)
    np.testing.assert_allclose(fxgrad.grad(stats.sem)(np.array([1.0, 3.0])), [-0.5, 0.5], rtol=1e-12)
    with pytest.raises(errors.AxisError, match=r"^sem: axis 0 of an array with 0 axes; a scalar has no axes"):
        stats.sem(1.0)


def test_arguments_by_name_and_number() -> None:
    density = np.exp(-0.125) / (2.0 * np.sqrt(2 * np.pi))
    assert float(stats.norm.logpdf(1.0, scale=2.0)) == pytest.approx(np.log(density))
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        stats.gamma.pdf(1.0)
    assert repr(stats.uniform) == "<distribution uniform: logpdf, pdf, cdf, logcdf, sf, logsf, ppf, isf>"
    assert stats.norm.cdf(np.float32(0.0)).dtype == np.float32
    assert stats.norm.pdf(np.arange(3, dtype=np.int32), np.float32(0), np.float32(1)).dtype == np.float32
    assert stats.truncnorm.logsf(30.0, 20.0, 40.0) == pytest.approx(-250.4041, abs=1e-3)


def test_outside_of_the_support_no_derivative_is_nan() -> None:
    for name in ("gamma", "beta", "expon", "pareto", "truncnorm", "uniform", "wrapcauchy"):
        function = getattr(stats, name).pdf
        slope = fxgrad.grad(lambda x, f=function, s=SHAPES[name]: np.sum(f(x, *s)))(np.array([-3.0, 8.0, -0.5]))
        assert np.isfinite(slope).all(), name


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_a_nan_stays_a_nan(name: str, function: str) -> None:
    found = getattr(getattr(stats, name), function)(np.array([np.nan, 0.5]), *parameters(name, function))
    np.testing.assert_array_equal(np.isnan(found), [True, False])


@pytest.mark.parametrize("function", ["cdf", "ppf"])
def test_a_probability_that_is_a_nan_makes_a_nan(function: str) -> None:
    ours = getattr(stats.bernoulli, function)
    assert np.isnan(ours(np.array([0.0, 0.25, 1.0]), math.nan)).all()
    assert np.isnan(ours(np.array([-1.0, 2.0]), math.nan)).all()


@pytest.mark.parametrize(("name", "function"), SCIPYS)
def test_functions_that_jax_lacks(name: str, function: str) -> None:
    """Values in both dtypes are SciPy's, derivatives differences, and NaNs NaN."""
    ours, theirs = getattr(getattr(stats, name), function), getattr(getattr(scipy.stats, name), function)
    given, x = parameters(name, function), points(name, function)
    for dtype, tolerance in ((np.float32, 3e-5), (np.float64, 1e-12)):
        values = [each.astype(dtype) for each in (x, *map(np.asarray, given))]
        expected = theirs(*values)
        for found in (ours(*values), fxgrad.jit(ours)(*values)):
            assert found.dtype == dtype
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    if hasattr(getattr(stats, name), "pmf"):
        place, step = len(SHAPES[name]), 1e-6  # the probability, or mean, for which the points are numbers
        around = [theirs(x, *given[:place - 1], given[place - 1] + side, *given[place:]) for side in (-step, step)]
        slopes = fxgrad.vmap(fxgrad.grad(ours, argnums=place), (0, *[None] * len(given)))(x, *given)
    else:
        step = 1e-6
        x = x[abs(x - 0.1) > 1e-3]  # where uniform and laplace have a kink
        around = [theirs(x + side, *given) for side in (-step, step)]
        slopes = fxgrad.vmap(fxgrad.grad(ours), (0, *[None] * len(given)))(x, *given)
    with np.errstate(invalid="ignore"):
        differences = (around[1] - around[0]) / (2 * step)
    finite = np.isfinite(differences)
    np.testing.assert_allclose(slopes[finite], differences[finite], rtol=1e-6, atol=1e-8)
    assert np.isnan(ours(np.nan, *given))


def test_far_probabilities_of_counts_keep_their_digits() -> None:
    """By SciPy's, which sums by the incomplete functions too, and the exact ones of few trials."""
    for p in (1e-20, 1e-3, 0.5):
        np.testing.assert_allclose(stats.binom.sf(0.0, 3.0, p), -np.expm1(3 * np.log1p(-p)), rtol=1e-13)
        np.testing.assert_allclose(stats.binom.logcdf(0.0, 3.0, p), 3 * np.log1p(-p), rtol=1e-13)
        np.testing.assert_allclose(stats.geom.cdf(2.0, p), -np.expm1(2 * np.log1p(-p)), rtol=1e-13)
    np.testing.assert_allclose(stats.geom.logsf(1e4, 0.5), 1e4 * np.log(0.5), rtol=1e-13)
    np.testing.assert_allclose(stats.poisson.sf(30.0, 0.1), scipy.stats.poisson.sf(30.0, 0.1), rtol=1e-12)
    np.testing.assert_allclose(stats.nbinom.sf(80.0, 3.0, 0.9), scipy.stats.nbinom.sf(80.0, 3.0, 0.9), rtol=1e-12)
    np.testing.assert_allclose(stats.expon.isf(1e-300), -np.log(1e-300), rtol=1e-13)
    for name in ("binom", "nbinom", "geom", "bernoulli"):
        for function in ("cdf", "sf"):
            assert np.isnan(getattr(getattr(stats, name), function)(1.0, *SHAPES[name][:-1], 1.5))


def test_a_nan_in_a_vector_stays_a_nan() -> None:
    x = np.array([[np.nan, 0.5], [0.5, 0.5]])
    np.testing.assert_array_equal(np.isnan(stats.dirichlet.logpdf(x.T, np.array([1.0, 2.0]))), [True, False])
    np.testing.assert_array_equal(np.isnan(stats.multinomial.logpmf(2 * x, 2, np.array([0.5, 0.5]))), [True, False])


@pytest.mark.parametrize(("name", "shapes", "end"), [
    ("gamma", (0.3,), math.inf), ("chi2", (0.6,), math.inf), ("beta", (0.3, 0.4), 1.0)])
def test_probabilities_outside_of_the_support(name: str, shapes: tuple[float, ...], end: float) -> None:
    x = np.array([-1e300, -3.0, -0.1, *([1.1, 4.0, 1e300] if end == 1.0 else [])])
    for function in ("cdf", "sf", "logcdf", "logsf"):
        ours = getattr(getattr(stats, name), function)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(ours(x, *shapes), getattr(getattr(scipy.stats, name), function)(x, *shapes))
        assert np.isnan(ours(x, *shapes[:-1], math.nan)).all()
    both = getattr(stats, name)
    for ours in (lambda x: both.cdf(x, *shapes), lambda x: both.sf(x, *shapes)):
        np.testing.assert_array_equal(fxgrad.vmap(fxgrad.grad(ours))(x), 0.0)
        np.testing.assert_array_equal(fxgrad.jvp(ours, (x,), (np.ones_like(x),))[1], 0.0)


@pytest.mark.parametrize(("name", "shapes"), [("laplace", ()), ("gennorm", (1.0,)), ("gennorm", (2.0,)),
                                              ("gennorm", (0.7,))])
def test_the_slope_of_a_probability_is_the_density(name: str, shapes: tuple[float, ...]) -> None:
    distribution = getattr(stats, name)
    x = np.array([0.0, -0.0, 1e-300, -1e-300, 1e-17, -1e-12, 1e-5, -1e-3, 0.2, -3.0])
    slope = fxgrad.vmap(fxgrad.grad(lambda x: distribution.cdf(x, *shapes)))(x)
    np.testing.assert_allclose(slope, distribution.pdf(x, *shapes), rtol=1e-9)
    np.testing.assert_allclose(distribution.cdf(x, *shapes), getattr(scipy.stats, name).cdf(x, *shapes), rtol=1e-14)


@pytest.mark.parametrize("name", ["gumbel_r", "gumbel_l", "cauchy", "logistic", "norm"])
def test_quantiles_at_the_ends_are_infinite_and_so_are_their_slopes(name: str) -> None:
    ppf = getattr(stats, name).ppf
    slope = fxgrad.grad(lambda q: np.sum(ppf(q)))
    for transform in (lambda f: f, fxgrad.jit):
        np.testing.assert_array_equal(transform(ppf)(np.array([0.0, 1.0, -0.1])), [-np.inf, np.inf, np.nan])
        np.testing.assert_array_equal(transform(slope)(np.array([0.0, 1.0])), np.inf)


def test_a_nan_among_the_parameters_is_one_of_the_result() -> None:
    for logarithm in (stats.binom.logpmf(1.0, np.nan, 0.5), stats.betabinom.logpmf(1.0, np.nan, 2.0, 3.0),
                      stats.truncnorm.logpdf(1.0, np.nan, 2.0), stats.truncnorm.logpdf(1.0, 0.0, np.nan)):
        assert np.isnan(logarithm)


def test_small_probabilities() -> None:
    x = np.array([-700.0, -40.0, -1.0, 0.0, 1.0, 40.0])
    np.testing.assert_allclose(stats.laplace.logcdf(x), scipy.stats.laplace.logcdf(x), rtol=1e-13)
    np.testing.assert_allclose(stats.logistic.logcdf(x), scipy.stats.logistic.logcdf(x), rtol=1e-13)
    np.testing.assert_allclose(stats.logistic.logsf(-x), scipy.stats.logistic.logsf(-x), rtol=1e-13)
    assert stats.laplace.logcdf(-1e5) == pytest.approx(-1e5 - math.log(2))
    assert stats.gennorm.logcdf(-40.0, 1.0) == pytest.approx(-40 - math.log(2))
    q = np.array([0.0, 1e-300, 1e-20, 1e-5, 0.3])
    np.testing.assert_allclose(stats.cauchy.ppf(q), scipy.stats.cauchy.ppf(q), rtol=1e-13)
    np.testing.assert_allclose(stats.cauchy.isf(q), scipy.stats.cauchy.isf(q), rtol=1e-13)
    np.testing.assert_array_equal(stats.truncnorm.cdf(np.array([-1e300, -math.inf]), -math.inf, 1.0), 0.0)
    np.testing.assert_array_equal(stats.truncnorm.logsf(np.array([1e300, math.inf]), 3.0, math.inf), -math.inf)


def _exact_logarithm(name: str, function: str, z: Any, *shapes: Any) -> Any:
    """Return logcdf or logsf by mpmath, from the smaller of both probabilities."""
    if name in ("gamma", "chi2"):
        half = mpmath.mpf(1 if name == "gamma" else 0.5)
        lower, upper = (mpmath.gammainc(half * shapes[0], *ends, regularized=True) for ends in (
            (0, half * z), (half * z, mpmath.inf)))
    elif name == "beta":
        lower = mpmath.betainc(*shapes, 0, z, regularized=True)
        upper = mpmath.betainc(shapes[1], shapes[0], 0, 1 - z, regularized=True)
    elif name == "gennorm":
        tail = mpmath.gammainc(1 / shapes[0], abs(z) ** shapes[0], mpmath.inf, regularized=True) / 2
        lower, upper = (tail, 1 - tail) if z < 0 else (1 - tail, tail)
    elif name == "pareto":
        upper = z ** -shapes[0]
        lower = 1 - upper
    elif name == "cauchy":
        lower, upper = mpmath.atan2(1, -z) / mpmath.pi, mpmath.atan2(1, z) / mpmath.pi
    elif name in ("gumbel_r", "gumbel_l"):
        tail = mpmath.exp(z if name == "gumbel_l" else -z)
        lower, upper = (mpmath.exp(-tail), -mpmath.expm1(-tail))[::1 if name == "gumbel_r" else -1]
    else:
        ends = [mpmath.erf(each / mpmath.sqrt(2)) for each in (shapes[0], z, shapes[1])]
        lower, upper = ((ends[at + 1] - ends[at]) / (ends[2] - ends[0]) for at in (0, 1))
    if function == "logsf":
        lower, upper = upper, lower
    return mpmath.log(lower) if lower < 0.5 else mpmath.log1p(-upper)


@pytest.mark.parametrize(("name", "shapes", "points"), [
    ("gamma", (2.5,), (1e-30, 0.1, 5.0, 40.0, 1e4)), ("gamma", (1e-3,), (0.3, 0.9, 5.0, 80.0, 800.0)),
    ("gamma", (1e4,), (1e3, 8e3, 9.9e3, 1.3e4, 3e4)), ("chi2", (3.0,), (1e-30, 2.0, 90.0, 1e4)),
    ("beta", (0.01, 0.02), (1e-30, 1e-10, 1e-5, 0.1, 0.5)), ("beta", (1e3, 2e3), (1e-3, 0.2, 0.3, 0.4, 0.9)),
    ("gennorm", (2.0,), (-40.0, -3.0, 2.0, 6.0)), ("pareto", (3.0,), (1.5, 1e4, 1e10)),
    ("cauchy", (), (-1e10, -3.0, 1e4, 1e10)), ("gumbel_r", (), (-5.0, -1.0, 2.0, 700.0, 1e4)),
    ("gumbel_l", (), (5.0, 1.0, -2.0, -700.0, -1e4)), ("truncnorm", (-1e-3, 1e-3), (-9.98e-4, 0.0, 5e-4)),
    ("truncnorm", (3.0, 4.0), (3.001, 3.5, 3.999)), ("truncnorm", (-1.0, 30.0), (-0.999999, 4.0, 12.0))])
def test_logarithms_of_far_and_near_probabilities(name: str, shapes: tuple[float, ...],
                                                  points: tuple[float, ...]) -> None:
    narrow, wide = ((np.array(points, dtype), *map(dtype, shapes)) for dtype in (np.float32, np.float64))
    found_by = [function(narrow, wide) for function in _logarithms(name)]
    for function in found_by[0]:
        # Exponents of densities may be thousands.
        for number, (x, *given), tolerance in ((0, narrow, 2e-4), (1, wide, 1e-11)):
            with mpmath.workdps(100):
                wanted = [float(_exact_logarithm(name, function, *(mpmath.mpf(float(each)) for each in (z, *given))))
                          for z in x]
            for found in found_by:
                assert found[function][number].dtype == x.dtype
                np.testing.assert_allclose(found[function][number], wanted, rtol=tolerance,
                                           atol=2 * float(np.finfo(x.dtype).tiny), err_msg=function)
        slopes = [_slope(name, function, z, list(wide[1:])) for z in wide[0]]
        for found in found_by:
            np.testing.assert_allclose(found[function][2], slopes, rtol=1e-8, err_msg=function)


@functools.cache
def _logarithms(name: str) -> list[Callable[..., Any]]:
    """Return a function of points and shapes in both float dtypes, plain, and jitted for all points of equal number.

    It returns the values in float32 and in float64, and the slopes in float64, of each logarithm of a probability.
    """
    def logarithms(narrow: Any, wide: Any) -> dict[str, list[Any]]:
        by_points = (0, *[None] * (len(wide) - 1))
        return {function: [ours(*narrow), ours(*wide), fxgrad.vmap(fxgrad.grad(ours), by_points)(*wide)]
                for function in ("logcdf", "logsf") if function in getattr(stats, name).functions
                for ours in [getattr(getattr(stats, name), function)]}

    return [logarithms, fxgrad.jit(logarithms)]


def _slope(name: str, function: str, z: Any, given: list[Any]) -> float:
    with mpmath.workdps(100):
        exact = [mpmath.mpf(float(each)) for each in (z, *given)]
        by = abs(exact[0]) * mpmath.mpf(10) ** -30 + (0 if exact[0] else mpmath.mpf(10) ** -30)
        above, below = (_exact_logarithm(name, function, exact[0] + side, *exact[1:]) for side in (by, -by))
        return float((above - below) / (2 * by))


def test_logarithms_of_probabilities_outside_of_the_support_have_no_slope() -> None:
    for name, shapes, x in (("pareto", (3.0,), 0.5), ("gamma", (2.0,), 0.0), ("beta", (2.0, 3.0), 0.0)):
        logcdf = getattr(stats, name).logcdf
        assert float(logcdf(x, *shapes)) == -math.inf
        assert float(fxgrad.grad(logcdf)(x, *shapes)) == 0.0
    curvature = fxgrad.grad(fxgrad.grad(lambda x: stats.truncnorm.logsf(x, 8.0, math.inf)))(20.0)
    np.testing.assert_allclose(curvature, -0.997536738421, rtol=1e-10)


@pytest.mark.parametrize(("name", "function"), [each for each in FUNCTIONS if each[1] in ("ppf", "isf")])
def test_no_point_has_a_probability_over_1_or_below_0(name: str, function: str) -> None:
    found = getattr(getattr(stats, name), function)(np.array([-0.1, 1.1, 0.5]), *parameters(name, function))
    np.testing.assert_array_equal(np.isnan(found), [True, True, False])


def test_negative_counts_are_impossible() -> None:
    counts, p = np.array([[3, 5], [-1, 9], [-2, 10]]), np.array([0.1, 0.9])
    np.testing.assert_allclose(stats.multinomial.pmf(counts, 8, p), scipy.stats.multinomial.pmf(counts, 8, p))


def test_all_counts_are_below_infinity() -> None:
    for name in ("cdf", "sf"):
        assert getattr(stats.nbinom, name)(np.inf, 5, 0.4) == getattr(scipy.stats.nbinom, name)(np.inf, 5, 0.4)


@pytest.mark.slow
def test_distributions_of_whole_numbers_with_tiny_probabilities() -> None:
    """1 - p has lost the digits of a small p, and all of a p below the dtype's eps: `binom.cdf` was 1 there."""
    points = [(2.0, 1e17, 3e-17), (0.0, 362758.0, 3.49e-10), (2.0, 217249677.0, 3.6e-8), (300.0, 1e12, 4e-10),
              (52.0, 9523745.0, 1.25e-5), (3.0, 4e15, 5e-15), (7.0, 1e9, 5e-8)]
    k, n, p = map(np.array, zip(*points, strict=True))
    with mpmath.workdps(50):
        tails = [1 - mpmath.betainc(k + 1, n - k, 0, p, regularized=True) for k, n, p in points]
        wanted, logs = ([*map(float, values)] for values in (tails, map(mpmath.log, tails)))
        slopes = [float(-mpmath.mpf(p) ** k * (1 - mpmath.mpf(p)) ** (mpmath.mpf(n) - k - 1)
                        / mpmath.beta(k + 1, mpmath.mpf(n) - k)) for k, n, p in points]
    np.testing.assert_allclose(stats.binom.cdf(k, n, p), wanted, rtol=2e-12)
    np.testing.assert_allclose(stats.binom.logcdf(k, n, p), logs, rtol=2e-12)
    np.testing.assert_allclose(fxgrad.grad(lambda p: np.sum(stats.binom.cdf(k, n, p)))(p), slopes, rtol=1e-6)
    np.testing.assert_allclose(stats.binom.cdf(np.float32(2.0), np.float32(1e9), np.float32(3e-9)),
                               0.42319008, rtol=1e-5)
    np.testing.assert_allclose(stats.nbinom.sf(1e12, 3.0, 1e-11), (1 + 10 + 50) * np.exp(-10.0), rtol=1e-10)
    np.testing.assert_allclose(stats.beta.sf(5e-12, 3.0, 1e12), (1 + 5 + 12.5) * np.exp(-5.0), rtol=1e-10)


@pytest.mark.slow
def test_logarithms_of_discrete_tails_do_not_underflow() -> None:
    """They were -inf, with derivatives 0, where the probability underflows, and 0 where it rounds to 1."""
    found = [stats.poisson.logsf(888.0, 1.5), stats.poisson.logcdf(20.0, 2000.0),
             stats.binom.logsf(353.0, 3318.0, 2.5e-4), stats.binom.logcdf(3000.0, 8000.0, 0.9999),
             stats.nbinom.logsf(13310.0, 39.0, 0.99), stats.nbinom.logcdf(5.0, 2000.0, 0.1),
             stats.geom.logcdf(9.0, 0.99)]
    with mpmath.workdps(60):
        def log_beta(a: float, b: float, x: Any) -> Any:
            return mpmath.log(mpmath.betainc(a, b, 0, x, regularized=True))

        wanted = [*map(float, (
            mpmath.log(mpmath.gammainc(889, 0, 1.5, regularized=True)),
            mpmath.log(mpmath.gammainc(21, 2000, regularized=True)), log_beta(354, 3318 - 353, mpmath.mpf(2.5e-4)),
            log_beta(5000, 3001, 1 - mpmath.mpf(0.9999)), log_beta(13311, 39, 1 - mpmath.mpf(0.99)),
            log_beta(2000, 6, mpmath.mpf(0.1)), mpmath.log1p(-(1 - mpmath.mpf(0.99)) ** 9)))]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    slope = fxgrad.grad(stats.poisson.logsf, argnums=1)(888.0, 1.5)
    np.testing.assert_allclose(slope, 889 / 1.5 - 1 + 1 / 890, rtol=1e-6)


def test_densities_at_minus_zero_are_those_at_zero_and_masses_at_infinity_none() -> None:
    for density, shapes in ((stats.gamma.logpdf, (3.5,)), (stats.beta.logpdf, (3.5, 4.0)), (stats.chi2.logpdf, (6.0,))):
        assert density(-0.0, *shapes) == density(0.0, *shapes) == -math.inf
    assert stats.poisson.logpmf(math.inf, 2.0) == -math.inf
