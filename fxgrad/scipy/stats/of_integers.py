"""Distributions of whole numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine.frontend.operands import inexact_operands
from fxgrad.engine.ops.arithmetic import stop_gradient
from fxgrad.engine.ops.gamma import log_binomial, log_poisson
from fxgrad.scipy.special import entr, gammainc, gammaincc, xlog1py, xlogy
from fxgrad.scipy.stats.distributions import Formula, add_function, discrete
from fxgrad.scipy.stats.of_reals import BETA, GAMMA


def _from_0_to_n(k: Any, n: Any, *_: Any) -> Any:
    return (k >= 0) & (k <= n)


def _bernoulli_tail(above: bool) -> Formula:
    """Return the formula of P(K > k), or else of P(K <= k)."""
    def tail(k: Any, p: Any) -> Any:
        inside = fnp.where(k < 0, float(above), fnp.where(k < 1, p if above else 1.0 - p, float(not above)))
        return fnp.where(~((p >= 0) & (p <= 1)) | fnp.isnan(k), math.nan, inside)
    return tail


bernoulli = discrete(
    "bernoulli", "p", lambda k, p: xlogy(k, p) + xlog1py(1.0 - k, -p), lambda k, p: (k == 0) | (k == 1),
    cdf=_bernoulli_tail(False), sf=_bernoulli_tail(True),
    ppf=lambda q, p: fnp.where(~((q >= 0) & (q <= 1) & (p >= 0) & (p <= 1)), math.nan,
                               fnp.where(q == 0, -fnp.ones_like(q), fnp.where(q > 1.0 - p, 1.0, 0.0))))


_OTHER = {"cdf": "sf", "sf": "cdf", "logcdf": "logsf", "logsf": "logcdf"}


def _ends(name: str) -> tuple[float, float]:
    """Return the value of `cdf`, `sf` or their logarithms below the support, and above it."""
    none, one = (-math.inf, 0.0) if name.startswith("log") else (0.0, 1.0)
    return (none, one) if name.endswith("cdf") else (one, none)


def _binom_tail(name: str) -> Formula:
    """Return the formula of this name: P(K > k) is the beta distribution's P(X <= p) (DLMF 8.17.5)."""
    def tail(k: Any, n: Any, p: Any) -> Any:
        k, known = fnp.floor(k), (p >= 0) & (p <= 1)
        is_low, outside = k < 0, (k < 0) | (k >= n)
        first, second = fnp.where(outside, 1.0, k + 1.0), fnp.where(outside, 1.0, n - k)
        inside = BETA[_OTHER[name]](fnp.where(outside, 0.5, p), first, second)
        return fnp.where(known, fnp.where(outside, fnp.where(is_low, *_ends(name)), inside), math.nan)
    return tail


binom = discrete(
    "binom", "n p", lambda k, n, p: log_binomial(k, n, p, 1.0 - p), _from_0_to_n,
    **{name: _binom_tail(name) for name in _OTHER})


def _betabinom(k: Any, n: Any, a: Any, b: Any) -> Any:
    """Return the quotient of binomial probabilities of one probability, which cancels: the one that loses least."""
    left, total = n - k, n + a + b
    p, q = stop_gradient((k + a) / total), stop_gradient((left + b) / total)
    parts = log_binomial(k, n, p, q) + log_binomial(a, a + b, p, q) - log_binomial(k + a, total, p, q)
    return parts + fnp.log(a / (k + a)) + fnp.log(b / (left + b)) + fnp.log(total / (a + b))


betabinom = discrete("betabinom", "n a b", _betabinom, _from_0_to_n)


def _nbinom_tail(name: str) -> Formula:
    """Return the formula of this name: P(K <= k) is that of n successes in n + k trials, at least."""
    def tail(k: Any, n: Any, p: Any) -> Any:
        is_low, known = k < 0, (p >= 0) & (p <= 1) & (n > 0)
        following = fnp.where(is_low, 1.0, fnp.floor(k) + 1.0)
        inside = BETA[name](p, n, following)
        return fnp.where(known, fnp.where(is_low, _ends(name)[0], inside), math.nan)
    return tail


nbinom = discrete(
    "nbinom", "n p", lambda k, n, p: fnp.log(n / (n + k)) + log_binomial(n, n + k, p, 1.0 - p), lambda k, n, p: k >= 0,
    **{name: _nbinom_tail(name) for name in _OTHER})


def _log_geom_tail(k: Any, p: Any) -> Any:
    """Return log P(K > k): of as many failures."""
    return fnp.where((p >= 0) & (p <= 1), xlog1py(fnp.floor(fnp.maximum(k, 0.0)), -p), math.nan)


geom = discrete(
    "geom", "p", lambda k, p: xlog1py(k - 1.0, -p) + fnp.log(p), lambda k, p: k >= 1, 1.0,
    cdf=lambda k, p: -fnp.expm1(_log_geom_tail(k, p)), logsf=_log_geom_tail)


def _poisson_tail(name: str) -> Formula:
    """Return the formula of this name: P(K > k) is the gamma distribution's P(X <= mu) (DLMF 8.2.4)."""
    def tail(k: Any, mu: Any) -> Any:
        inside = _OF_MEAN[name](fnp.floor(fnp.maximum(k, 0.0)) + 1.0, mu)
        return fnp.where(k < 0, _ends(name)[0], inside)
    return tail


_OF_MEAN: dict[str, Formula] = {"cdf": gammaincc, "sf": gammainc, "logcdf": lambda a, mu: GAMMA["logsf"](mu, a),
            "logsf": lambda a, mu: GAMMA["logcdf"](mu, a)}
poisson = discrete(
    "poisson", "mu", log_poisson, lambda k, mu: (k >= 0) & (k < math.inf) & (fnp.floor(k) == k),
    **{name: _poisson_tail(name) for name in _OTHER})


_TINY, _FEW, _TERMS = 1e-17, 200.0, 400
"""Between which means the entropy of a Poisson distribution is a sum, and over how many numbers from 0 on."""


def _entropy(mu: Any, loc: Any = 0) -> Any:
    """Return the entropy of the Poisson distribution, -sum p log p; for means over 200 by its asymptotic expansion.

    R. J. Evans and J. Boersma, "The entropy of a Poisson distribution" (SIAM Review 30, 1988). It does not depend on
    `loc`, with which it broadcasts; of a negative mean it is NaN. The derivative at 0 is infinite.

    >>> import fxgrad
    >>> round(float(fxgrad.scipy.stats.poisson.entropy(2.0)), 6)
    1.704883
    """
    mu, loc = inexact_operands(mu, loc)
    is_tiny, is_large = mu <= _TINY, mu > _FEW
    # Up to there the sum is mu (1 - log(mu)), to rounding; the products within its derivatives would underflow.
    tiny = fnp.where(is_tiny, mu, 0.0)
    small = fnp.where(is_tiny | is_large, 1.0, mu)
    k = np.arange(_TERMS).astype(mu.dtype)
    log_mass = log_poisson(k, small[..., None])
    summed = -fnp.sum(fnp.exp(log_mass) * log_mass, -1)
    large = fnp.where(is_large, mu, _FEW)
    expanded = 0.5 * fnp.log(2 * math.pi * math.e * large) - (1 / 12 + (1 / 24 + 19 / (360 * large)) / large) / large
    few = fnp.where(is_tiny, tiny + entr(tiny), summed)
    entropy = fnp.where(is_large, expanded, fnp.where(mu < 0, math.nan, few))
    return fnp.broadcast_to(entropy, fnp.broadcast_shapes(fnp.shape(mu), fnp.shape(loc)))


add_function(poisson, "entropy", _entropy)
