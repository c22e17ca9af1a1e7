"""The gamma distribution and those derived from it: gamma beta dirichlet chisquare t f generalized_normal ball."""

from __future__ import annotations

from typing import Any

from fxgrad.engine.core.avals import Shape
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.operands import as_array_operand, as_new_shape, shape_of
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.ops.arithmetic import add, div, mul, sub
from fxgrad.engine.ops.arithmetic import max as maximum
from fxgrad.engine.ops.comparison import gt
from fxgrad.engine.ops.exponential import exp, sqrt
from fxgrad.engine.ops.exponential import pow as power
from fxgrad.engine.ops.parts import abs as absolute
from fxgrad.engine.ops.reductions import reduce_max
from fxgrad.engine.ops.samplers import random_gamma
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import expand_axes, reduce_sum, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ShapeError
from fxgrad.random.continuous import exponential_draws
from fxgrad.random.keys import (
    as_parameter,
    drawn_shape,
    float_dtype,
    fold_in,
    one_key,
    positive_int,
    spread_parameter,
    subkeys,
)
from fxgrad.random.normal import normal_draws
from fxgrad.random.uniform import sign_draws, unit_draws


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return numbers of the gamma distribution of shape parameter `a` and scale 1.

    The result has the shape of `a`, or `shape`, to which it broadcasts. Derivatives in `a` are those of draws at a
    fixed quantile. Raises `ArgumentError` for an invalid key, `DTypeError` for a dtype that is not floating.

    >>> import fxgrad
    >>> bool(fxgrad.random.gamma(fxgrad.random.key(0), 2.0) > 0)
    True
    """
    if out_sharding is not None:
        return place_array("gamma", gamma(key, a, shape, dtype), out_sharding)
    key, dtype = one_key("gamma", key), float_dtype("gamma", dtype)
    return random_gamma(key, spread_parameter(a, drawn_shape("gamma", shape, a), dtype))


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return the logarithms of numbers of the gamma distribution, exact even if those underflow.

    The numbers differ from those that `gamma` draws from the same key.

    >>> import fxgrad
    >>> fxgrad.random.loggamma(fxgrad.random.key(0), 1e-5).shape
    ()
    """
    if out_sharding is not None:
        return place_array("loggamma", loggamma(key, a, shape, dtype), out_sharding)
    key, dtype = one_key("loggamma", key), float_dtype("loggamma", dtype)
    return random_gamma(key, spread_parameter(a, drawn_shape("loggamma", shape, a), dtype), log_space=True)


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return numbers in [0, 1] of the beta distribution of parameters `a` and `b`: one gamma number over two.

    >>> import fxgrad
    >>> bool(0 <= fxgrad.random.beta(fxgrad.random.key(0), 2.0, 3.0) <= 1)
    True
    """
    if out_sharding is not None:
        return place_array("beta", beta(key, a, b, shape, dtype), out_sharding)
    key, dtype = one_key("beta", key), float_dtype("beta", dtype)
    shape = drawn_shape("beta", shape, a, b)
    first, second = (random_gamma(part, spread_parameter(each, shape, dtype), log_space=True)
                     for part, each in zip(subkeys(key), (a, b), strict=True))
    most = maximum(first, second)
    first, second = exp(sub(first, most)), exp(sub(second, most))
    return div(first, add(first, second))


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return vectors (the last axis) of numbers that add up to 1, of the Dirichlet distribution of parameters `alpha`.

    `shape` is that of the draws without the last axis. Raises `ShapeError` for an `alpha` that is not a vector.

    >>> import fxgrad, numpy as np
    >>> shares = fxgrad.random.dirichlet(fxgrad.random.key(0), np.ones(3), (2,))
    >>> shares.shape, np.allclose(shares.sum(-1), 1)
    ((2, 3), True)
    """
    if out_sharding is not None:
        return place_array("dirichlet", dirichlet(key, alpha, shape, dtype), out_sharding)
    key, dtype = one_key("dirichlet", key), float_dtype("dirichlet", dtype)
    own = shape_of(as_array_operand(alpha))
    if not own:
        raise ShapeError(at_user_line("dirichlet: alpha is a scalar, where a vector is needed: its last axis are the "
                                      "parameters of one draw"))
    rows = as_new_shape("dirichlet", own[:-1] if shape is None else shape)
    shape = drawn_shape("dirichlet", (*rows, own[-1]), alpha)
    logs = random_gamma(key, spread_parameter(alpha, shape, dtype), log_space=True)
    shape, last = shape_of(logs), (len(shape_of(logs)) - 1,)
    weights = exp(sub(logs, expand_axes(reduce_max(logs, last), last, shape)))
    return div(weights, expand_axes(reduce_sum(weights, last), last, shape))


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return numbers of the chi-square distribution with `df` degrees of freedom: sums of `df` squared normal ones.

    >>> import fxgrad
    >>> bool(fxgrad.random.chisquare(fxgrad.random.key(0), 3.0) > 0)
    True
    """
    if out_sharding is not None:
        return place_array("chisquare", chisquare(key, df, shape, dtype), out_sharding)
    key, dtype = one_key("chisquare", key), float_dtype("chisquare", dtype)
    return mul(exp(_log_chisquare(key, as_parameter(df, dtype), drawn_shape("chisquare", shape, df))), 2.0)


def _log_chisquare(key: Any, df: Any, shape: Shape) -> Any:
    """Return logarithms of halves of chi-square numbers."""
    return random_gamma(key, spread_parameter(div(df, 2.0), shape, aval_of(df).dtype), log_space=True)


def t(key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return numbers of Student's t distribution with `df` degrees of freedom.

    >>> import fxgrad
    >>> fxgrad.random.t(fxgrad.random.key(0), 3.0, (2, 3)).shape
    (2, 3)
    """
    if out_sharding is not None:
        return place_array("t", t(key, df, shape, dtype), out_sharding)
    key, dtype = one_key("t", key), float_dtype("t", dtype)
    shape = drawn_shape("t", shape, df)
    half = div(as_parameter(df, dtype), 2.0)
    normal_key, gamma_key = subkeys(key)
    draws = random_gamma(gamma_key, spread_parameter(half, shape, dtype))
    return mul(normal_draws(normal_key, shape, dtype), sqrt(div(half, draws)))


def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return numbers of the F distribution: quotients of two chi-square numbers, each over its degrees of freedom.

    >>> import fxgrad
    >>> bool(fxgrad.random.f(fxgrad.random.key(0), 3.0, 4.0) > 0)
    True
    """
    if out_sharding is not None:
        return place_array("f", f(key, dfnum, dfden, shape, dtype), out_sharding)
    key, dtype = one_key("f", key), float_dtype("f", dtype)
    shape = drawn_shape("f", shape, dfnum, dfden)
    above, below = as_parameter(dfnum, dtype), as_parameter(dfden, dtype)
    below_key, above_key = subkeys(key)
    # The quotient of two draws, which may both be too small for their dtype.
    return mul(exp(sub(_log_chisquare(above_key, above, shape), _log_chisquare(below_key, below, shape))),
               div(below, above))


def generalized_normal(key: Any, p: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return numbers of density proportional to exp(-|x|^p): the Laplace (p = 1) or a normal distribution (p = 2).

    >>> import fxgrad
    >>> fxgrad.random.generalized_normal(fxgrad.random.key(0), 2.0, (2, 3)).shape
    (2, 3)
    """
    if out_sharding is not None:
        return place_array("generalized_normal", generalized_normal(key, p, shape, dtype), out_sharding)
    key, dtype = one_key("generalized_normal", key), float_dtype("generalized_normal", dtype)
    return _draw_generalized(key, as_parameter(p, dtype), as_new_shape("generalized_normal", shape), dtype)


def _draw_generalized(key: Any, p: Any, shape: Shape, dtype: DType) -> Any:
    gamma_key, signs_key = subkeys(key)
    inverse = div(1.0, p)
    # For high orders, whose gamma numbers would be 0, those of a parameter more by 1 times u^p, u uniform.
    high = gt(p, 8.0)
    draws = random_gamma(gamma_key, spread_parameter(where(high, add(inverse, 1.0), inverse), shape, dtype))
    share = where(high, unit_draws(fold_in(key, 2), shape, dtype), 1.0)
    return mul(mul(sign_draws(signs_key, shape, dtype), share), power(draws, inverse))


def ball(key: Any, d: int, p: Any = 2, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return points (the last axis, of size `d`) of the unit ball of the norm of order `p`, all equally likely.

    Source: F. Barthe, O. Guedon, S. Mendelson, A. Naor, "A probabilistic approach to the geometry of the l_p^n-ball"
    (2005).

    >>> import fxgrad, numpy as np
    >>> point = fxgrad.random.ball(fxgrad.random.key(0), 3)
    >>> bool(np.sum(point ** 2) <= 1)
    True
    """
    if out_sharding is not None:
        return place_array("ball", ball(key, d, p, shape, dtype), out_sharding)
    key, dtype, shape = one_key("ball", key), float_dtype("ball", dtype), as_new_shape("ball", shape)
    d, order = positive_int("ball", "d", d), as_parameter(p, dtype)
    direction_key, radius_key = subkeys(key)
    points = _draw_generalized(direction_key, order, (*shape, d), dtype)
    radius = add(reduce_sum(power(absolute(points), order), (len(shape),)), exponential_draws(radius_key, shape, dtype))
    return div(points, reshape(power(radius, div(1.0, order)), (*shape, 1)))
