"""Distributions of vectors, and the standard error of a mean."""

from __future__ import annotations

import math
from typing import Any

from fxgrad import numpy as fnp
from fxgrad.engine.frontend.operands import axes_of, inexact_operands
from fxgrad.engine.ops.gamma import deviance, log_poisson, stirling_error
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.scipy.linalg import solve_triangular
from fxgrad.scipy.special import gammaln, xlogy
from fxgrad.scipy.stats.distributions import Distribution

LOG_2PI = math.log(2 * math.pi)


def _dirichlet(x: Any, alpha: Any) -> Any:
    """Return the logarithm of the density at points on the simplex, given along the first axis of `x`.

    `x` has as many entries there as `alpha`, or one less: the last is then 1 minus their sum.
    """
    x, alpha = inexact_operands(x, alpha)
    count, given = aval_of(alpha).shape, aval_of(x).shape
    if len(count) != 1 or not given or given[0] not in (count[0], count[0] - 1):
        raise ShapeError(at_user_line(
            f"dirichlet: x of shape {given} for alpha of shape {count}; alpha must be a vector, and the first axis of "
            "x as long, or shorter by one"))
    if given[0] == count[0] - 1:
        x = fnp.concatenate([x, 1.0 - fnp.sum(x, axis=0, keepdims=True)])
    density = log_dirichlet(x, fnp.reshape(alpha, (*count, *(1,) * (len(given) - 1))), 0)
    total = fnp.sum(x, axis=0)
    on_simplex = fnp.all(x > 0, axis=0) & (fnp.abs(total - 1.0) < 1e-6)
    return fnp.where(on_simplex | fnp.isnan(total), density, -math.inf)


def log_dirichlet(x: Any, alpha: Any, axis: int) -> Any:
    """Return the logarithm of the Dirichlet density along an axis, as a multinomial probability of real counts."""
    whole = fnp.sum(alpha, axis=axis, keepdims=True)
    at_zero = x <= 0
    share, mean = fnp.where(at_zero, 1.0, x), fnp.where(at_zero, alpha, whole * x)
    parts = 0.5 * (fnp.log(alpha) - LOG_2PI) - deviance(alpha, mean) - stirling_error(alpha) - fnp.log(share)
    at_end = xlogy(alpha - 1.0, fnp.where(at_zero, x, 1.0)) + alpha * fnp.log(whole) - gammaln(alpha)
    total = stirling_error(whole) - 0.5 * (fnp.log(whole) - LOG_2PI)
    excess = fnp.squeeze(total, axis) + fnp.squeeze(whole, axis) * (fnp.sum(x, axis=axis) - 1.0)
    return fnp.sum(fnp.where(at_zero, at_end, parts), axis=axis) + excess


def _multinomial(x: Any, n: Any, p: Any) -> Any:
    """Return the log-probability of the counts `x`, along the last axis, in `n` draws with probabilities `p`."""
    x, n, p = inexact_operands(x, n, p)
    # A number of Poisson counts, given their sum; p may add up to 1 but for rounding.
    each = log_poisson(x, fnp.expand_dims(n, -1) * p)
    mass = fnp.sum(each, axis=-1) - log_poisson(n, n) + n * (fnp.sum(p, axis=-1) - 1.0)
    total = fnp.sum(x, axis=-1)
    possible = fnp.equal(total, n) & fnp.all(x >= 0, axis=-1)
    return fnp.where(possible | fnp.isnan(total), mass, -math.inf)


def _multivariate_normal(x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool | None = None) -> Any:
    """Return the logarithm of the density at `x`; the last axis of `x` and `mean` is that of the vector.

    `mean` is zero where it is None. `cov` is a matrix, or a number or a vector, the variance of each part. Raises
    `ShapeError` for a `cov` of another shape, `ArgumentError` where singular matrices shall be allowed.
    """
    if allow_singular:
        raise ArgumentError(at_user_line(
            "multivariate_normal: allow_singular=True is not supported; leave it out, and add a small multiple of the "
            "identity to cov"))
    x, cov = inexact_operands(x, cov)
    if mean is None:
        mean = fnp.zeros(aval_of(x).shape[-1:], aval_of(x).dtype)
    x, mean, cov = inexact_operands(x, mean, cov)
    mean_shape, cov_shape = aval_of(mean).shape, aval_of(cov).shape
    if not mean_shape:
        return -0.5 * fnp.square(x - mean) / cov - 0.5 * (LOG_2PI + fnp.log(cov))
    size = mean_shape[-1]
    if cov_shape in ((), (size,)):
        residual = x - mean
        if not cov_shape:
            return -0.5 * fnp.sum(fnp.square(residual), axis=-1) / cov - 0.5 * size * (LOG_2PI + fnp.log(cov))
        return -0.5 * fnp.sum(fnp.square(residual) / cov, axis=-1) - 0.5 * size * LOG_2PI - 0.5 * fnp.sum(fnp.log(cov))
    if len(cov_shape) < 2 or cov_shape[-2:] != (size, size):
        raise ShapeError(at_user_line(
            f"multivariate_normal: cov of shape {cov_shape} for a mean of shape {mean_shape}; a number, "
            f"({size},) or ({size}, {size}) is needed"))
    factor = fnp.linalg.cholesky(cov)
    residual = x - mean
    rank = len(aval_of(residual).shape) - 1
    if rank and len(cov_shape) == 2:
        flat = fnp.reshape(residual, (-1, size))
        white = fnp.reshape(fnp.transpose(solve_triangular(factor, fnp.transpose(flat), lower=True)),
                            aval_of(residual).shape)
    else:
        white = solve_triangular(fnp.broadcast_to(factor, (*aval_of(residual).shape[:-1], size, size)),
                                 residual[..., None], lower=True)[..., 0]
    half_log = fnp.sum(fnp.log(fnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
    return -0.5 * fnp.sum(fnp.square(white), axis=-1) - 0.5 * size * LOG_2PI - half_log


dirichlet = Distribution("dirichlet", {
    "logpdf": _dirichlet, "pdf": lambda x, alpha: fnp.exp(_dirichlet(x, alpha))})
multinomial = Distribution("multinomial", {
    "logpmf": _multinomial, "pmf": lambda x, n, p: fnp.exp(_multinomial(x, n, p))})
multivariate_normal = Distribution("multivariate_normal", {
    "logpdf": _multivariate_normal,
    "pdf": lambda x, mean=None, cov=1.0, allow_singular=None: fnp.exp(
        _multivariate_normal(x, mean, cov, allow_singular))})


def sem(a: Any, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False) -> Any:
    """Return the standard error of the mean of `a` along `axis` (None: of all elements).

    `nan_policy` is "propagate", or "omit" to leave NaNs out. Raises `ShapeError` for another one.

    >>> import numpy as np
    >>> float(sem(np.array([1.0, 3.0])))
    1.0
    """
    a, = inexact_operands(a)
    if nan_policy == "omit":
        count = fnp.sum(~fnp.isnan(a), axis=axis, keepdims=keepdims)
        return fnp.nanstd(a, axis=axis, ddof=ddof, keepdims=keepdims) / fnp.sqrt(count.astype(aval_of(a).dtype))
    if nan_policy != "propagate":
        raise ShapeError(at_user_line(f"sem: nan_policy={nan_policy!r}; it must be 'propagate' or 'omit'"))
    shape = aval_of(a).shape
    count = math.prod(shape[each] for each in axes_of("sem", axis, len(shape)))
    return fnp.std(a, axis=axis, ddof=ddof, keepdims=keepdims) / math.sqrt(count)
