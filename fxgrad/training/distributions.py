"""Distributions as containers of their parameters, with differentiable draws and densities."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from fxgrad import numpy as fnp
from fxgrad import random
from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import as_array_operand, as_new_shape, inexact_operands
from fxgrad.engine.ops.gamma import log_excess
from fxgrad.engine.pytorch_names import add_hint_attributes
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError
from fxgrad.nn.exponentials import log_softmax
from fxgrad.scipy import special, stats
from fxgrad.scipy.stats.of_vectors import log_dirichlet

__all__ = ["Bernoulli", "Beta", "Categorical", "Dirichlet", "Exponential", "Gamma", "Gumbel", "Laplace", "LogNormal",
           "Logistic", "MultivariateNormal", "Normal", "Poisson", "StudentT", "Uniform", "kl"]


def _scale_draws(draw: Callable[..., Any], key: Any, shape: Any, loc: Any, scale: Any, *parameters: Any) -> Any:
    """Return loc + scale · a standard draw, one for each element of the parameters, `shape` times."""
    return loc + scale * _standard_draws(draw, key, shape, (loc, scale), *parameters)


def _standard_draws(draw: Callable[..., Any], key: Any, shape: Any, others: tuple[Any, ...], *parameters: Any) -> Any:
    every = [as_array_operand(each) for each in (*others, *parameters)]
    places = fnp.broadcast_shapes(*(fnp.shape(each) for each in every))
    dtype = fnp.result_type(*every)
    return draw(key, *parameters, shape=(*as_new_shape("sample", shape), *places),
                dtype=dtype if dtypes.is_floating(dtype) else dtypes.float64)


def _log_density(of: Any, x: Any, *parameters: Any) -> Any:
    """Return the log-density of a distribution of `scipy.stats`."""
    return (of.logpmf if hasattr(of, "logpmf") else of.logpdf)(x, *parameters)


# --- continuous -----------------------------------------------------------------------------------------------------


class Normal(NamedTuple):
    """The normal distribution of mean `loc` and standard deviation `scale`.

    >>> round(float(Normal(1.0, 2.0).logpdf(1.0)), 4)
    -1.6121
    """

    loc: Any = 0.0
    scale: Any = 1.0

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Draw of shape `shape` and the parameters', with derivatives in them."""
        return _scale_draws(random.normal, key, shape, *self)

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at `x`."""
        return _log_density(stats.norm, x, *self)


class LogNormal(NamedTuple):
    """The distribution of exp(x) for x of a normal distribution of mean `loc` and standard deviation `scale`.

    >>> round(float(LogNormal(0.0, 1.0).logpdf(1.0)), 4)
    -0.9189
    """

    loc: Any = 0.0
    scale: Any = 1.0

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Draw of shape `shape` and the parameters', with derivatives in them."""
        return fnp.exp(Normal(*self).sample(key, shape))

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at `x`; minus infinity at 0 and below."""
        outside = fnp.less_equal(x, 0)
        log = fnp.log(fnp.where(outside, 1.0, x))
        return fnp.where(outside, -math.inf, Normal(*self).logpdf(log) - log)


class Uniform(NamedTuple):
    """The uniform distribution from `low` to `high`.

    >>> round(float(Uniform(0.0, 0.5).logpdf(0.2)), 4)
    0.6931
    """

    low: Any = 0.0
    high: Any = 1.0

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Draw of shape `shape` and the parameters', with derivatives in them."""
        return _scale_draws(random.uniform, key, shape, self.low, fnp.subtract(self.high, self.low))

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at `x`."""
        return _log_density(stats.uniform, x, self.low, fnp.subtract(self.high, self.low))


class Exponential(NamedTuple):
    """The exponential distribution of mean `scale`.

    >>> round(float(Exponential(2.0).logpdf(0.0)), 4)
    -0.6931
    """

    scale: Any = 1.0

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Draw of shape `shape` and the parameter's, with derivatives in it."""
        return self.scale * _standard_draws(random.exponential, key, shape, (self.scale,))

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at `x`."""
        return _log_density(stats.expon, x, 0, self.scale)


class Laplace(NamedTuple):
    """The Laplace distribution of mean `loc`: exponential on both sides, of mean `scale`.

    >>> float(Laplace(0.0, 0.5).logpdf(0.0))
    0.0
    """

    loc: Any = 0.0
    scale: Any = 1.0

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Draw of shape `shape` and the parameters', with derivatives in them."""
        return _scale_draws(random.laplace, key, shape, *self)

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at `x`."""
        return _log_density(stats.laplace, x, *self)


class Logistic(NamedTuple):
    """The logistic distribution of mean `loc`, whose distribution function is the sigmoid of (x - loc) / scale.

    >>> float(Logistic(0.0, 0.25).logpdf(0.0))
    0.0
    """

    loc: Any = 0.0
    scale: Any = 1.0

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Draw of shape `shape` and the parameters', with derivatives in them."""
        return _scale_draws(random.logistic, key, shape, *self)

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at `x`."""
        return _log_density(stats.logistic, x, *self)


class Gumbel(NamedTuple):
    """The Gumbel distribution of maxima, of mode `loc`.

    >>> float(Gumbel(0.0, 1.0).logpdf(0.0))
    -1.0
    """

    loc: Any = 0.0
    scale: Any = 1.0

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Draw of shape `shape` and the parameters', with derivatives in them."""
        return _scale_draws(random.gumbel, key, shape, *self)

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at `x`."""
        return _log_density(stats.gumbel_r, x, *self)


class StudentT(NamedTuple):
    """Student's distribution of `df` degrees of freedom, moved by `loc` and scaled by `scale`.

    >>> round(float(StudentT(1.0).logpdf(0.0)), 4)  # -log(pi)
    -1.1447
    """

    df: Any
    loc: Any = 0.0
    scale: Any = 1.0

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Draw of shape `shape` and the parameters', with derivatives in them."""
        return _scale_draws(random.t, key, shape, self.loc, self.scale, self.df)

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at `x`."""
        return _log_density(stats.t, x, *self)


class Gamma(NamedTuple):
    """The gamma distribution of shape `a` and mean a / rate.

    >>> float(Gamma(1.0, 1.0).logpdf(2.0))
    -2.0
    """

    a: Any
    rate: Any = 1.0

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Draw of shape `shape` and the parameters', with derivatives in them: in `a` at a fixed quantile."""
        return _standard_draws(random.gamma, key, shape, (self.rate,), self.a) / self.rate

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at `x`."""
        return _log_density(stats.gamma, x, self.a, 0, 1.0 / as_array_operand(self.rate))


class Beta(NamedTuple):
    """The beta distribution of numbers from 0 to 1, of mean a / (a + b).

    >>> round(float(Beta(2.0, 1.0).logpdf(0.5)), 4) == 0.0  # the density is 2 x
    True
    """

    a: Any
    b: Any

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Draw of shape `shape` and the parameters', with derivatives in them at a fixed quantile of their parts."""
        return _standard_draws(random.beta, key, shape, (), *self)

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at `x`."""
        return _log_density(stats.beta, x, *self)


class Dirichlet(NamedTuple):
    """The Dirichlet distribution of shares with sum 1 along the last axis, of means in proportion to `alpha`.

    >>> import numpy as np
    >>> round(float(Dirichlet(np.ones(3)).logpdf(np.array([0.2, 0.3, 0.5]))), 4)  # log 2, everywhere
    0.6931
    """

    alpha: Any

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Draw of shape `shape` and that of `alpha`, with derivatives in it."""
        alpha, = inexact_operands(self.alpha)
        return random.dirichlet(key, alpha, (*as_new_shape("sample", shape), *fnp.shape(alpha)[:-1]),
                                fnp.result_type(alpha))

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at `x`, whose last axis is that of the shares."""
        x, alpha = inexact_operands(x, self.alpha)
        return log_dirichlet(x, alpha, -1)


class MultivariateNormal(NamedTuple):
    """The normal distribution of vectors, of mean `mean` and covariance `cov`, shape (size, size).

    >>> import numpy as np
    >>> round(float(MultivariateNormal(np.zeros(2), np.eye(2)).logpdf(np.zeros(2))), 4)  # -log(2 pi)
    -1.8379
    """

    mean: Any
    cov: Any

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Draw of shape (*shape, size), with derivatives in both parameters."""
        mean, factor = as_array_operand(self.mean), fnp.linalg.cholesky(self.cov)
        noise = random.normal(key, (*as_new_shape("sample", shape), *fnp.shape(mean)), fnp.result_type(mean, factor))
        return mean + noise @ factor.T

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at `x`."""
        return _log_density(stats.multivariate_normal, x, *self)


# --- discrete -------------------------------------------------------------------------------------------------------


class Bernoulli(NamedTuple):
    """True with the probability `p`. Draws have no derivative; `stochastic.score_function` takes `logpmf`.

    >>> round(float(Bernoulli(0.25).logpmf(1)), 4)
    -1.3863
    """

    p: Any = 0.5

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Return bools of shape `shape` and that of `p`."""
        return random.bernoulli(key, self.p, (*as_new_shape("sample", shape), *fnp.shape(self.p)))

    def logpmf(self, k: Any) -> Any:
        """Return the logarithm of the probability of `k`."""
        return _log_density(stats.bernoulli, fnp.asarray(k) * 1, self.p)


class Categorical(NamedTuple):
    """A class with the probabilities softmax(logits), along the last axis. Draws have no derivative.

    >>> import numpy as np
    >>> round(float(Categorical(np.zeros(4)).logpmf(2)), 4)
    -1.3863
    """

    logits: Any

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Return numbers of classes, of shape `shape` and that of the logits but for the last axis."""
        logits = as_array_operand(self.logits)
        return random.categorical(key, logits, -1, (*as_new_shape("sample", shape), *fnp.shape(logits)[:-1]))

    def logpmf(self, k: Any) -> Any:
        """Return the logarithm of the probability of the classes `k`: minus infinity for numbers of no class."""
        k, chances = fnp.asarray(k), log_softmax(self.logits)
        places = fnp.broadcast_shapes(fnp.shape(k), fnp.shape(chances)[:-1])
        wide = fnp.broadcast_to(chances, (*places, fnp.shape(chances)[-1]))
        is_class = fnp.logical_and(fnp.greater_equal(k, 0), fnp.less(k, fnp.shape(chances)[-1]))
        at = fnp.broadcast_to(fnp.where(is_class, k, 0), places)
        return fnp.where(is_class, fnp.take_along_axis(wide, at[..., None], axis=-1)[..., 0], -math.inf)


class Poisson(NamedTuple):
    """The Poisson distribution of mean `rate`. Draws have no derivative.

    >>> float(Poisson(2.0).logpmf(0))
    -2.0
    """

    rate: Any = 1.0

    def sample(self, key: Any, shape: Any = ()) -> Any:
        """Return integers of shape `shape` and that of the rate."""
        return random.poisson(key, self.rate, (*as_new_shape("sample", shape), *fnp.shape(self.rate)))

    def logpmf(self, k: Any) -> Any:
        """Return the logarithm of the probability of `k`."""
        return _log_density(stats.poisson, k, self.rate)


# --- divergences ----------------------------------------------------------------------------------------------------


def kl(p: Any, q: Any) -> Any:
    """Return the Kullback-Leibler divergence E_p[log p - log q] of two distributions of one class, in closed form.

    It is known for Normal, LogNormal, Exponential, Gamma, Beta, Dirichlet, MultivariateNormal, Bernoulli, Categorical
    and Poisson. Raises `ArgumentError` for others, and for two classes.

    >>> float(kl(Normal(0.0, 1.0), Normal(1.0, 1.0)))
    0.5
    """
    form = _DIVERGENCES.get(type(p))
    if form is None or type(p) is not type(q):
        raise ArgumentError(at_user_line(
            f"kl: of a {type(p).__name__} and a {type(q).__name__} there is no closed form here; take the mean of "
            "p.logpdf(x) - q.logpdf(x) over draws x = p.sample(key, shape)"))
    return form(type(p)(*map(as_array_operand, p)), type(q)(*map(as_array_operand, q)))


def _kl_of_normals(p: Any, q: Any) -> Any:
    apart = (p.scale - q.scale) * (p.scale + q.scale) / q.scale ** 2
    return 0.5 * (log_excess(apart) + ((p.loc - q.loc) / q.scale) ** 2)


def _kl_of_gammas(p: Any, q: Any) -> Any:
    apart = (q.rate - p.rate) / p.rate
    return ((p.a - q.a) * (special.digamma(p.a) + fnp.log1p(apart)) - special.gammaln(p.a) + special.gammaln(q.a)
            + p.a * log_excess(apart))


def _kl_of_dirichlets(p: Any, q: Any) -> Any:
    total = fnp.sum(p.alpha, axis=-1)
    apart = (p.alpha - q.alpha) * (special.digamma(p.alpha) - special.digamma(total)[..., None])
    return (special.gammaln(total) - special.gammaln(fnp.sum(q.alpha, axis=-1))
            + fnp.sum(apart - special.gammaln(p.alpha) + special.gammaln(q.alpha), axis=-1))


def _kl_of_vectors(p: Any, q: Any) -> Any:
    size, apart = fnp.shape(p.mean)[-1], q.mean - p.mean
    solved = fnp.linalg.solve(q.cov, p.cov)
    return 0.5 * (fnp.trace(solved) - size + apart @ fnp.linalg.solve(q.cov, apart)
                  - fnp.linalg.slogdet(p.cov)[1] + fnp.linalg.slogdet(q.cov)[1])


def _kl_of_categories(p: Any, q: Any) -> Any:
    chances, others = log_softmax(p.logits), log_softmax(q.logits)
    share = fnp.exp(chances)
    apart = fnp.where(share == 0, 0.0, chances - fnp.where(share == 0, chances, others))
    return fnp.sum(share * apart + (fnp.exp(others) - share), axis=-1)  # the last terms add up to 0 but for rounding


_DIVERGENCES: dict[type, Callable[[Any, Any], Any]] = {
    Normal: _kl_of_normals,
    LogNormal: _kl_of_normals,
    Exponential: lambda p, q: log_excess((p.scale - q.scale) / q.scale),
    Gamma: _kl_of_gammas,
    Beta: lambda p, q: _kl_of_dirichlets(Dirichlet(fnp.stack([p.a, p.b], -1)), Dirichlet(fnp.stack([q.a, q.b], -1))),
    Dirichlet: _kl_of_dirichlets,
    MultivariateNormal: _kl_of_vectors,
    Bernoulli: lambda p, q: special.kl_div(p.p, q.p) + special.kl_div(1.0 - p.p, 1.0 - q.p),
    Categorical: _kl_of_categories,
    Poisson: lambda p, q: special.kl_div(p.rate, q.rate),
}

for _class in (Bernoulli, Beta, Categorical, Dirichlet, Exponential, Gamma, Gumbel, Laplace, LogNormal, Logistic,
               MultivariateNormal, Normal, Poisson, StudentT, Uniform):
    _density = "logpmf" if hasattr(_class, "logpmf") else "logpdf"
    add_hint_attributes(_class, {
        "log_prob": f"Write .{_density}(x)", "rsample": "Write .sample(key, shape), which has derivatives",
        **dict.fromkeys(("mean", "variance", "stddev", "entropy"),
                        "Distributions have draws and densities: average over x = .sample(key, shape)")})
