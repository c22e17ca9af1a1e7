"""Distributions on the real line."""

from __future__ import annotations

import math
from typing import Any

from fxgrad import numpy as fnp
from fxgrad.engine.ops import gamma as densities
from fxgrad.nn.activations import log1mexp
from fxgrad.scipy.special import betainc, erf, expit, gammainc, gammaincc, gammaln, i0e, log_ndtr, logit, ndtr, ndtri
from fxgrad.scipy.stats.distributions import continuous

LOG_2PI = math.log(2 * math.pi)


def _positive(z: Any, *_: Any) -> Any:
    return z >= 0


def _probability(formula: Any, anchor: float, high: float = math.inf, *, falling: bool = False) -> Any:
    """Return `formula`, a probability that rises or falls from z = 0 to `high`, with 0 and 1 outside.

    Points outside have no derivative: the formula gets `anchor` there, since its slope may be infinite at the ends. A
    NaN among the parameters remains.
    """
    def probability(z: Any, *shapes: Any) -> Any:
        known = fnp.equal(sum(shapes), sum(shapes))
        below, above = (z < 0) & known, (z > high) & known
        inner = formula(fnp.where(below | above, anchor, z), *shapes)
        return fnp.where(below, float(falling), fnp.where(above, float(not falling), inner))
    return probability


def _left(z: Any) -> Any:
    """Return z where it is negative, else 0; with `_right`, which has the derivative 1 at 0."""
    return fnp.where(z < 0, z, 0.0)


def _right(z: Any) -> Any:
    return fnp.where(z < 0, 0.0, z)


def _normal(z: Any) -> Any:
    return -0.5 * (fnp.square(z) + LOG_2PI)


norm = continuous("norm", "", _normal, cdf=ndtr, sf=lambda z: ndtr(-z), logcdf=log_ndtr, logsf=lambda z: log_ndtr(-z),
                  ppf=ndtri, isf=lambda q: -ndtri(q))


def _cauchy_ppf(q: Any) -> Any:
    """Compute by the distance from the nearer end: q - 1/2 loses the digits of a small q, and of a small 1 - q."""
    def beyond(tail: Any) -> Any:
        return fnp.where(tail == 0, math.inf, 1.0 / fnp.tan(math.pi * fnp.where(tail == 0, 0.25, tail)))

    upper = fnp.where(q > 0.75, beyond(1.0 - q), fnp.tan(math.pi * (q - 0.5)))
    return fnp.where(q < 0.25, -beyond(q), upper)


cauchy = continuous(
    "cauchy", "", lambda z: -2.0 * fnp.log(fnp.hypot(z, 1.0)) - math.log(math.pi),
    cdf=lambda z: fnp.arctan2(1.0, -z) / math.pi, sf=lambda z: fnp.arctan2(1.0, z) / math.pi,
    ppf=_cauchy_ppf, isf=lambda q: -_cauchy_ppf(q))


def _gamma(z: Any, a: Any) -> Any:
    return densities.log_gamma_density(a, z)


expon = continuous(
    "expon", "", fnp.negative, _positive, cdf=lambda z: -fnp.expm1(-fnp.maximum(z, 0.0)),
    logcdf=lambda z: fnp.where(z <= 0, -math.inf, log1mexp(fnp.where(z <= 0, 1.0, z))),
    sf=lambda z: fnp.exp(-fnp.maximum(z, 0.0)), logsf=lambda z: -fnp.maximum(z, 0.0), ppf=lambda q: -fnp.log1p(-q))
gamma = continuous(
    "gamma", "a", _gamma, _positive, 1.0,
    cdf=_probability(lambda z, a: gammainc(a, z), 1.0),
    sf=_probability(lambda z, a: gammaincc(a, z), 1.0, falling=True))
chi2 = continuous(
    "chi2", "df", lambda z, df: _gamma(0.5 * z, 0.5 * df) - math.log(2.0), _positive, 1.0,
    cdf=_probability(lambda z, df: gammainc(0.5 * df, 0.5 * z), 1.0),
    sf=_probability(lambda z, df: gammaincc(0.5 * df, 0.5 * z), 1.0, falling=True))
beta = continuous(
    "beta", "a b", lambda z, a, b: densities.log_beta_density(a, b, z),
    lambda z, a, b: (z >= 0) & (z <= 1), 0.5, cdf=_probability(lambda z, a, b: betainc(a, b, z), 0.5, 1.0),
    sf=_probability(lambda z, a, b: betainc(b, a, 1.0 - z), 0.5, 1.0, falling=True))


def _gennorm(z: Any, beta: Any) -> Any:
    return -gammaln(1.0 + 1.0 / beta) - math.log(2.0) - fnp.power(fnp.abs(z), beta)


def _gennorm_cdf(z: Any, beta: Any) -> Any:
    near = fnp.power(fnp.abs(z), beta) < fnp.finfo(z.dtype).eps  # where the slope of `gammainc` may be infinite
    size = fnp.power(fnp.abs(fnp.where(near, 1.0, z)), beta)
    far = fnp.where(z < 0, gammaincc(1.0 / beta, size), 1.0 + gammainc(1.0 / beta, size))
    return fnp.where(near, 0.5 + z * fnp.exp(_gennorm(0.0, beta)), 0.5 * far)


gennorm = continuous("gennorm", "beta", _gennorm, cdf=_gennorm_cdf)
gumbel_r = continuous(
    "gumbel_r", "", lambda z: -z - fnp.exp(-z), logcdf=lambda z: -fnp.exp(-z),
    sf=lambda z: -fnp.expm1(-fnp.exp(-z)), ppf=lambda q: -fnp.log(-fnp.log(q)))
gumbel_l = continuous(
    "gumbel_l", "", lambda z: z - fnp.exp(z), logsf=lambda z: -fnp.exp(z), cdf=lambda z: -fnp.expm1(-fnp.exp(z)),
    ppf=lambda q: fnp.log(-fnp.log1p(-q)))
laplace = continuous(
    "laplace", "", lambda z: -fnp.abs(z) - math.log(2.0),
    cdf=lambda z: fnp.where(z < 0, 0.5 * fnp.exp(_left(z)), 1.0 - 0.5 * fnp.exp(-_right(z))),
    logcdf=lambda z: fnp.where(z < 0, _left(z) - math.log(2.0), fnp.log1p(-0.5 * fnp.exp(-_right(z)))))
logistic = continuous(
    "logistic", "", lambda z: -fnp.abs(z) - 2.0 * fnp.log1p(fnp.exp(-fnp.abs(z))), cdf=expit, sf=lambda z: expit(-z),
    logcdf=lambda z: -fnp.logaddexp(0.0, -z), logsf=lambda z: -fnp.logaddexp(0.0, z), ppf=logit,
    isf=lambda q: -logit(q))
pareto = continuous(
    "pareto", "b", lambda z, b: fnp.log(b) - (b + 1.0) * fnp.log(z), lambda z, b: z >= 1, 1.0,
    cdf=lambda z, b: -fnp.expm1(-b * fnp.log(fnp.maximum(z, 1.0))),
    sf=lambda z, b: fnp.power(fnp.maximum(z, 1.0), -b), logsf=lambda z, b: -b * fnp.log(fnp.maximum(z, 1.0)),
    ppf=lambda q, b: fnp.power(1.0 - q, -1.0 / b))


def _t(z: Any, df: Any) -> Any:
    half = 0.5 * df
    # log(gamma(half + 1/2) / gamma(half)) - log(df / 2) / 2, which a difference of gammaln would lose.
    ratio = (densities.stirling_error(half + 0.5) - densities.stirling_error(half)
             - half * densities.log_excess(1.0 / df))
    return ratio - 0.5 * LOG_2PI - (half + 0.5) * fnp.log1p(fnp.square(z) / df)


t = continuous("t", "df", _t)
uniform = continuous(
    "uniform", "", fnp.zeros_like, lambda z: (z >= 0) & (z <= 1), cdf=lambda z: fnp.clip(z, 0.0, 1.0),
    ppf=lambda q: q)
vonmises = continuous(
    "vonmises", "kappa", lambda z, kappa: -2.0 * kappa * fnp.square(fnp.sin(0.5 * z)) - LOG_2PI - fnp.log(i0e(kappa)))


def _wrapcauchy(z: Any, c: Any) -> Any:
    denominator = fnp.square(1.0 - c) + 4.0 * c * fnp.square(fnp.sin(0.5 * z))  # 1 + c² - 2 c cos(z)
    return fnp.log1p(-c) + fnp.log1p(c) - LOG_2PI - fnp.log(denominator)


wrapcauchy = continuous(
    "wrapcauchy", "c", _wrapcauchy,
    lambda z, c: (z >= 0) & (z <= 2 * math.pi), 1.0)


def _log_mass(a: Any, b: Any) -> Any:
    """Return the log-probability of a standard normal number between a and b, by the tail that loses least digits."""
    right = a > 0
    low, high = fnp.where(right, -b, a), fnp.where(right, -a, b)
    upper, lower = log_ndtr(high), log_ndtr(low)
    straddling = (a <= 0) & (b >= 0)
    first, last = fnp.where(straddling, a, -1.0), fnp.where(straddling, b, 1.0)
    mass = 0.5 * (erf(last * math.sqrt(0.5)) - erf(first * math.sqrt(0.5)))
    most = mass > 0.5
    across = fnp.where(most, fnp.log1p(-ndtr(first) - ndtr(-last)), fnp.log(fnp.where(most | (mass == 0), 1.0, mass)))
    across = fnp.where(mass == 0, -math.inf, across)
    apart = fnp.where(straddling | (upper == -math.inf), 1.0, upper - lower)
    return fnp.where(straddling, across, fnp.where(straddling, 0.0, upper) + log1mexp(apart))


def _share(low: Any, high: Any, a: Any, b: Any) -> Any:
    """Return the logarithm of the fraction of the mass between a and b that lies between low and high."""
    empty = low >= high
    high = fnp.where(empty, b, high)
    return fnp.where(empty, -math.inf, _log_mass(fnp.where(empty, a, low), high) - _log_mass(a, b))


truncnorm = continuous(
    "truncnorm", "a b", lambda z, a, b: _normal(z) - _log_mass(a, b), lambda z, a, b: (z >= a) & (z <= b),
    lambda a, b: a, logcdf=lambda z, a, b: _share(a, fnp.clip(z, a, b), a, b),
    logsf=lambda z, a, b: _share(fnp.clip(z, a, b), b, a, b))
