"""Distributions on the real line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine.ops import gamma as densities
from fxgrad.engine.ops.arithmetic import stop_gradient
from fxgrad.nn.activations import log1mexp
from fxgrad.scipy.special import betainc, erf, expit, gammainc, gammaincc, gammaln, i0e, log_ndtr, logit, ndtr, ndtri
from fxgrad.scipy.stats.distributions import Formula, continuous, log_probability

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


def _infinite_at_ends(formula: Formula) -> Formula:
    """Return a quantile of all numbers: its values and slopes at 0 and 1 are infinite, those of the logit."""
    def quantile(q: Any) -> Any:
        is_end = (q == 0) | (q == 1)
        return fnp.where(is_end, logit(fnp.where(is_end, q, 0.5)), formula(fnp.where(is_end, 0.5, q)))
    return quantile


@_infinite_at_ends
def _cauchy_ppf(q: Any) -> Any:
    """Compute by the distance from the nearer end: q - 1/2 loses the digits of a small q, and of a small 1 - q."""
    def beyond(tail: Any) -> Any:
        return 1.0 / fnp.tan(math.pi * tail)

    upper = fnp.where(q > 0.75, beyond(1.0 - q), fnp.tan(math.pi * (q - 0.5)))
    return fnp.where(q < 0.25, -beyond(q), upper)


cauchy = continuous(
    "cauchy", "", lambda z: -2.0 * fnp.log(fnp.hypot(z, 1.0)) - math.log(math.pi),
    cdf=lambda z: fnp.arctan2(1.0, -z) / math.pi, sf=lambda z: fnp.arctan2(1.0, z) / math.pi,
    ppf=_cauchy_ppf, isf=lambda q: -_cauchy_ppf(q))


_LEVELS = 8
"""The depth of the continued fractions of far tails, which is exact to rounding there."""


def _log_tail(both: Any, far: Any, *safe: float, high: float = math.inf) -> Any:
    """Return the logarithm of the first of the probabilities `both(z, *shapes)`, whose sum is 1.

    Where it underflows, or nearly so, for z between 0 and `high`, it is `far(z, *shapes)`, which gets the arguments
    `safe` elsewhere.
    """
    def logarithm(z: Any, *shapes: Any) -> Any:
        probability, rest = both(z, *shapes)
        is_far = (probability < max(float(fnp.finfo(z.dtype).tiny), 1e-30)) & (z > 0) & (z < high)
        for shape in shapes:
            is_far = is_far & (shape < math.inf)
        usual = log_probability(fnp.where(is_far, 1.0, probability), fnp.where(is_far, 0.0, rest))
        given = [fnp.where(is_far, value, point) for value, point in zip((z, *shapes), safe, strict=True)]
        return fnp.where(is_far, far(*given), usual)
    return logarithm


def _gamma(z: Any, a: Any) -> Any:
    return densities.log_gamma_density(a, z)


def _log_lower_gamma(z: Any, a: Any) -> Any:
    """Return log P(a, z) far below a, by the continued fraction of W. B. Jones and W. J. Thron (1985).

    "On the computation of incomplete gamma functions in the complex domain", J. Comput. Appl. Math. 12-13.
    """
    fraction = a - z + _LEVELS
    for level in range(_LEVELS, 0, -1):
        fraction = a - z + (level - 1) + level * z / fraction
    return _gamma(z, a) + fnp.log(z) - fnp.log(fraction)


def _log_upper_gamma(z: Any, a: Any) -> Any:
    """Return log Q(a, z) far above a, by the continued fraction of DLMF 8.9.2."""
    fraction = z - a + (2 * _LEVELS + 1)
    for level in range(_LEVELS, 0, -1):
        fraction = z - a + (2 * level - 1) - level * (level - a) / fraction
    return _gamma(z, a) + fnp.log(z) - fnp.log(fraction)


expon = continuous(
    "expon", "", fnp.negative, _positive, cdf=lambda z: -fnp.expm1(-fnp.maximum(z, 0.0)),
    logcdf=lambda z: fnp.where(z <= 0, -math.inf, log1mexp(fnp.where(z <= 0, 1.0, z))),
    sf=lambda z: fnp.exp(-fnp.maximum(z, 0.0)), logsf=lambda z: -fnp.maximum(z, 0.0), ppf=lambda q: -fnp.log1p(-q),
    isf=lambda q: -fnp.log(q))
_LOWER = _probability(lambda z, a: gammainc(a, z), 1.0)
_UPPER = _probability(lambda z, a: gammaincc(a, z), 1.0, falling=True)
GAMMA: dict[str, Formula] = {"cdf": _LOWER, "sf": _UPPER,
          "logcdf": _log_tail(lambda z, a: (_LOWER(z, a), _UPPER(z, a)), _log_lower_gamma, 1.0, 20.0),
          "logsf": _log_tail(lambda z, a: (_UPPER(z, a), _LOWER(z, a)), _log_upper_gamma, 100.0, 20.0)}
gamma = continuous("gamma", "a", _gamma, _positive, 1.0, **GAMMA)
chi2 = continuous(
    "chi2", "df", lambda z, df: _gamma(0.5 * z, 0.5 * df) - math.log(2.0), _positive, 1.0,
    **{name: lambda z, df, formula=formula: formula(0.5 * z, 0.5 * df) for name, formula in GAMMA.items()})


def _beta_both(z: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Return I(a, b) at z and its complement, by the tail on the side of z: 1 - z loses the digits of a small z.

    The upper tail is corrected for what 1 - z has lost, in its logarithm, which is nearly linear. That of the smallest
    z is the first term of Wise's expansion, Q(a, -(b + (a-1)/2) log(1 - z)), of relative error near z^2 max(1, b z):
    M. E. Wise, "The incomplete beta function as a contour integral and a quickly converging series for its inverse"
    (1950).
    """
    below, outside = z < a / (a + b), ((z < 0) | (z > 1)) & fnp.equal(a + b, a + b)
    rate = -(b + 0.5 * (a - 1.0)) * fnp.log1p(-fnp.where(outside | (z == 1), 0.5, z))
    tiny = ~below & ~outside & (4.0 * z * z * fnp.maximum(rate, 1.0) < fnp.finfo(z.dtype).eps) & (rate < math.inf)
    other = 1.0 - z
    point = fnp.where(outside | tiny, 0.5, fnp.where(below, z, other))
    first, second = (fnp.where(tiny, 1.0, fnp.where(below, *pair)) for pair in ((a, b), (b, a)))
    tail = betainc(first, second, point)
    usual = ~below & ~outside & ~tiny & (z < 0.5) & (tail > 0)
    missing, safe = stop_gradient((1.0 - other) - z), fnp.where(usual, stop_gradient(tail), 1.0)
    slope = fnp.exp(densities.log_beta_density(first, second, point)) / safe
    tail = fnp.where(usual, tail * stop_gradient(fnp.exp(fnp.where(usual, slope * missing, 0.0))), tail)
    by_gamma = gammaincc(fnp.where(tiny, a, 1.0), fnp.where(tiny, rate, 1.0))
    tail = fnp.where(outside, 0.0, fnp.where(tiny, by_gamma, tail))
    return fnp.where(below, tail, 1.0 - tail), fnp.where(below, 1.0 - tail, tail)


def _log_beta_tail(below: bool) -> Any:
    """Return a formula of log I(a, b) at z far below the mean, or of its complement far above it.

    By the continued fraction of A. R. DiDonato and A. H. Morris, "Significant digit computation of the incomplete beta
    function ratios" (ACM TOMS 18, 1992).
    """
    def logarithm(z: Any, a: Any, b: Any) -> Any:
        p, q, x, y = (a, b, z, 1.0 - z) if below else (b, a, 1.0 - z, z)

        def denominator(level: int) -> Any:
            rest = (p + level) * (p * y - q * x + 1.0 + level * (1.0 + y)) / (p + (2 * level + 1))
            return rest + level + level * (q - level) * x / (p + (2 * level - 1)) if level else rest

        fraction = denominator(_LEVELS)
        for level in range(_LEVELS, 0, -1):
            over = (p + (level - 1)) / (p + (2 * level - 1)) * (p + q + (level - 1)) / (p + (2 * level - 1))
            fraction = denominator(level - 1) + over * level * (q - level) * fnp.square(x) / fraction
        return densities.log_beta_density(a, b, z) + fnp.log(z) + fnp.log1p(-z) - fnp.log(fraction)
    return logarithm


BETA: dict[str, Formula] = {
    "cdf": _probability(lambda z, a, b: betainc(a, b, z), 0.5, 1.0), "sf": lambda z, a, b: _beta_both(z, a, b)[1],
    "logcdf": _log_tail(_beta_both, _log_beta_tail(True), 0.01, 20.0, 20.0, high=1.0),
    "logsf": _log_tail(lambda z, a, b: _beta_both(z, a, b)[::-1], _log_beta_tail(False), 0.99, 20.0, 20.0, high=1.0)}
beta = continuous(
    "beta", "a b", lambda z, a, b: densities.log_beta_density(a, b, z), lambda z, a, b: (z >= 0) & (z <= 1), 0.5,
    **BETA)


def _gennorm(z: Any, beta: Any) -> Any:
    return -gammaln(1.0 + 1.0 / beta) - math.log(2.0) - fnp.power(fnp.abs(z), beta)


def _gennorm_size(z: Any, beta: Any) -> tuple[Any, Any]:
    """Return whether |z|^beta is so small that the slope of `gammainc` may be infinite, and |z|^beta elsewhere."""
    near = fnp.power(fnp.abs(z), beta) < fnp.finfo(z.dtype).eps
    return near, fnp.power(fnp.abs(fnp.where(near, 1.0, z)), beta)


def _gennorm_cdf(z: Any, beta: Any) -> Any:
    near, size = _gennorm_size(z, beta)
    far = fnp.where(z < 0, gammaincc(1.0 / beta, size), 1.0 + gammainc(1.0 / beta, size))
    return fnp.where(near, 0.5 + z * fnp.exp(_gennorm(0.0, beta)), 0.5 * far)


def _gennorm_logcdf(z: Any, beta: Any) -> Any:
    near, size = _gennorm_size(z, beta)
    left = GAMMA["logsf"](size, 1.0 / beta) - math.log(2.0)
    far = fnp.where(z < 0, left, fnp.log1p(-0.5 * gammaincc(1.0 / beta, size)))
    return fnp.where(near, fnp.log(0.5 + fnp.where(near, z, 0.0) * fnp.exp(_gennorm(0.0, beta))), far)


gennorm = continuous("gennorm", "beta", _gennorm, cdf=_gennorm_cdf, logcdf=_gennorm_logcdf)


def _gumbel_tail(z: Any) -> Any:
    """Return log(1 - exp(-exp(-z))), which is -z for large z, and 0 from where exp(-z) is large."""
    rate = fnp.exp(-fnp.maximum(z, -10.0))
    far = rate < fnp.finfo(z.dtype).eps
    return fnp.where(far, -z, log1mexp(fnp.where(far, 1.0, rate)))


@_infinite_at_ends
def _gumbel_r_ppf(q: Any) -> Any:
    return -fnp.log(-fnp.log(q))


@_infinite_at_ends
def _gumbel_l_ppf(q: Any) -> Any:
    return fnp.log(-fnp.log1p(-q))


gumbel_r = continuous(
    "gumbel_r", "", lambda z: -z - fnp.exp(-z), logcdf=lambda z: -fnp.exp(-z),
    sf=lambda z: -fnp.expm1(-fnp.exp(-z)), logsf=_gumbel_tail, ppf=_gumbel_r_ppf, isf=lambda q: -_gumbel_l_ppf(q))
gumbel_l = continuous(
    "gumbel_l", "", lambda z: z - fnp.exp(z), logsf=lambda z: -fnp.exp(z), cdf=lambda z: -fnp.expm1(-fnp.exp(z)),
    logcdf=lambda z: _gumbel_tail(-z), ppf=_gumbel_l_ppf, isf=lambda q: -_gumbel_r_ppf(q))


def _laplace_cdf(z: Any) -> Any:
    return fnp.where(z < 0, 0.5 * fnp.exp(_left(z)), 1.0 - 0.5 * fnp.exp(-_right(z)))


def _laplace_logcdf(z: Any) -> Any:
    return fnp.where(z < 0, _left(z) - math.log(2.0), fnp.log1p(-0.5 * fnp.exp(-_right(z))))


@_infinite_at_ends
def _laplace_ppf(q: Any) -> Any:
    return fnp.where(q < 0.5, fnp.log(2.0 * q), -fnp.log(2.0 * (1.0 - q)))


laplace = continuous(
    "laplace", "", lambda z: -fnp.abs(z) - math.log(2.0), cdf=_laplace_cdf, logcdf=_laplace_logcdf,
    sf=lambda z: _laplace_cdf(-z), logsf=lambda z: _laplace_logcdf(-z), ppf=_laplace_ppf,
    isf=lambda q: -_laplace_ppf(q))
logistic = continuous(
    "logistic", "", lambda z: -fnp.abs(z) - 2.0 * fnp.log1p(fnp.exp(-fnp.abs(z))), cdf=expit, sf=lambda z: expit(-z),
    logcdf=lambda z: -fnp.logaddexp(0.0, -z), logsf=lambda z: -fnp.logaddexp(0.0, z), ppf=logit,
    isf=lambda q: -logit(q))
pareto = continuous(
    "pareto", "b", lambda z, b: fnp.log(b) - (b + 1.0) * fnp.log(z), lambda z, b: z >= 1, 1.0,
    cdf=lambda z, b: -fnp.expm1(-b * fnp.log(fnp.maximum(z, 1.0))),
    sf=lambda z, b: fnp.power(fnp.maximum(z, 1.0), -b), logsf=lambda z, b: -b * fnp.log(fnp.maximum(z, 1.0)),
    ppf=lambda q, b: fnp.exp(-fnp.log1p(-q) / b), isf=lambda q, b: fnp.exp(-fnp.log(q) / b))


def _t(z: Any, df: Any) -> Any:
    half = 0.5 * df
    # log(gamma(half + 1/2) / gamma(half)) - log(df / 2) / 2, which a difference of gammaln would lose.
    ratio = (densities.stirling_error(half + 0.5) - densities.stirling_error(half)
             - half * densities.log_excess(1.0 / df))
    return ratio - 0.5 * LOG_2PI - (half + 0.5) * fnp.log1p(fnp.square(z) / df)


t = continuous("t", "df", _t)
uniform = continuous(
    "uniform", "", fnp.zeros_like, lambda z: (z >= 0) & (z <= 1), cdf=lambda z: fnp.clip(z, 0.0, 1.0),
    sf=lambda z: fnp.clip(1.0 - z, 0.0, 1.0), ppf=lambda q: q, isf=lambda q: 1.0 - q)
vonmises = continuous(
    "vonmises", "kappa", lambda z, kappa: -2.0 * kappa * fnp.square(fnp.sin(0.5 * z)) - LOG_2PI - fnp.log(i0e(kappa)))


def _wrapcauchy(z: Any, c: Any) -> Any:
    denominator = fnp.square(1.0 - c) + 4.0 * c * fnp.square(fnp.sin(0.5 * z))  # 1 + c² - 2 c cos(z)
    return fnp.log1p(-c) + fnp.log1p(c) - LOG_2PI - fnp.log(denominator)


wrapcauchy = continuous(
    "wrapcauchy", "c", _wrapcauchy,
    lambda z, c: (z >= 0) & (z <= 2 * math.pi), 1.0)


_NODES, _WEIGHTS = (values[4:] for values in np.polynomial.legendre.leggauss(8))
"""The positive half of Gauss's rule, for even functions; exact to rounding over narrow intervals."""


def _log_narrow_mass(a: Any, b: Any) -> Any:
    """Return the log-probability of a standard normal number between a and b, near each other, by Gauss's rule."""
    middle, half = 0.5 * (a + b), 0.5 * (b - a)
    mean = sum(float(weight) * fnp.cosh(middle * half * float(node)) * fnp.exp(-0.5 * fnp.square(half * float(node)))
               for node, weight in zip(_NODES, _WEIGHTS, strict=True))
    return _normal(middle) + fnp.log(2.0 * half) + fnp.log(mean)


def _log_mass(a: Any, b: Any) -> Any:
    """Return the log-probability of a standard normal number between a and b, by the tail that loses least digits."""
    narrow = ((b - a) * fnp.maximum(1.0, fnp.abs(a + b)) < 0.5) & (a < b)
    close = _log_narrow_mass(fnp.where(narrow, a, 0.0), fnp.where(narrow, b, 0.5))
    a, b = fnp.where(narrow, -1.0, a), fnp.where(narrow, 1.0, b)
    right = a > 0
    low, high = fnp.where(right, -b, a), fnp.where(right, -a, b)
    endless = low == -math.inf
    upper, lower = log_ndtr(high), fnp.where(endless, -math.inf, log_ndtr(fnp.where(endless, -1.0, low)))
    straddling = (a <= 0) & (b >= 0)
    first, last = fnp.where(straddling, a, -1.0), fnp.where(straddling, b, 1.0)
    mass = 0.5 * (erf(last * math.sqrt(0.5)) - erf(first * math.sqrt(0.5)))
    most = mass > 0.5
    across = fnp.where(most, fnp.log1p(-ndtr(first) - ndtr(-last)), fnp.log(fnp.where(most | (mass == 0), 1.0, mass)))
    across = fnp.where(mass == 0, -math.inf, across)
    apart = fnp.where(straddling | (upper == -math.inf), 1.0, upper - lower)
    wide = fnp.where(straddling, across, fnp.where(straddling, 0.0, upper) + log1mexp(apart))
    return fnp.where(narrow, close, wide)


def _share(low: Any, high: Any, a: Any, b: Any) -> Any:
    """Return the logarithm of the fraction of the mass between a and b that lies between low and high."""
    empty = low >= high
    high = fnp.where(empty, b, high)
    return fnp.where(empty, -math.inf, _log_mass(fnp.where(empty, a, low), high) - _log_mass(a, b))


def _truncated(below: bool) -> Any:
    """Return the formula of `logcdf` or `logsf`: near 0 by the other one, which has the digits there."""
    def logarithm(z: Any, a: Any, b: Any) -> Any:
        z = fnp.clip(z, a, b)
        own, other = _share(a, z, a, b), _share(z, b, a, b)
        if not below:
            own, other = other, own
        near = own > -math.log(2.0)
        return fnp.where(near, fnp.log1p(-fnp.exp(fnp.where(near, other, -math.inf))), own)
    return logarithm


truncnorm = continuous(
    "truncnorm", "a b", lambda z, a, b: _normal(z) - _log_mass(a, b), lambda z, a, b: (z >= a) & (z <= b),
    lambda a, b: a, logcdf=_truncated(True), logsf=_truncated(False))
