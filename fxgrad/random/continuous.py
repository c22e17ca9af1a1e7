"""Distributions drawn by a formula of uniform numbers: exponential, gumbel, laplace and others."""

from __future__ import annotations

import math
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.operands import as_new_shape
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.ops.arithmetic import add, div, mul, neg, sub
from fxgrad.engine.ops.arithmetic import max as maximum
from fxgrad.engine.ops.comparison import ge, lt
from fxgrad.engine.ops.exponential import exp, log, log1p, sqrt
from fxgrad.engine.ops.exponential import pow as power
from fxgrad.engine.ops.joining import unstack
from fxgrad.engine.ops.parts import abs as absolute
from fxgrad.engine.ops.parts import sign
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.trigonometric import tan
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, UnsupportedError
from fxgrad.random.keys import as_parameter, drawn_shape, float_dtype, one_key, spread_parameter
from fxgrad.random.uniform import between_bounds, unit_draws


def _open(key: Any, shape: Shape, dtype: DType, low: Any) -> Any:
    """Return numbers from `low`, a number just above 0 or -1, up to 1."""
    return between_bounds(key, shape, dtype, dtype.type(low), dtype.type(1))


def exponential_draws(key: Any, shape: Shape, dtype: DType) -> Any:
    """Return exponential numbers of a typed key."""
    return neg(log1p(neg(unit_draws(key, shape, dtype))))


def exponential(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return exponential numbers of mean 1.

    Raises `ArgumentError` for an invalid key, `DTypeError` for a dtype that is not floating.

    >>> import fxgrad
    >>> bool(fxgrad.random.exponential(fxgrad.random.key(0)) >= 0)
    True
    """
    if out_sharding is not None:
        return place_array("exponential", exponential(key, shape, dtype), out_sharding)
    key, dtype = one_key("exponential", key), float_dtype("exponential", dtype)
    return exponential_draws(key, as_new_shape("exponential", shape), dtype)


def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None, *, out_sharding: Any = None) -> Any:
    """Return numbers of the standard Gumbel distribution: minus the logarithm of exponential ones.

    `mode="high"` draws twice as many bits, which makes large numbers finer; the default is `"low"`. Raises
    `ArgumentError` for an invalid key, `DTypeError` for a dtype that is not floating.

    >>> import fxgrad
    >>> fxgrad.random.gumbel(fxgrad.random.key(0), (2, 3)).shape
    (2, 3)
    """
    if out_sharding is not None:
        return place_array("gumbel", gumbel(key, shape, dtype, mode), out_sharding)
    key, dtype = one_key("gumbel", key), float_dtype("gumbel", dtype)
    return gumbel_draws(key, as_new_shape("gumbel", shape), dtype, mode)


def gumbel_draws(key: Any, shape: Shape, dtype: DType, mode: str | None) -> Any:
    """Gumbel numbers of a typed key."""
    if mode not in (None, "low", "high", "highest"):
        raise ArgumentError(at_user_line(f"gumbel: mode must be 'low', 'high' or 'highest', got {mode!r}"))
    limits = dtypes.finfo(dtype)
    if mode in (None, "low"):
        return neg(log(neg(log(_open(key, shape, dtype, limits.tiny)))))
    if mode == "highest" and dtype == dtypes.float32:
        raise UnsupportedError(at_user_line("gumbel: mode='highest' is not supported for float32; use mode='high'"))
    high, low = unstack(unit_draws(key, (2, *shape), dtype), 0)
    fine = add(add(high, mul(low, 2.0 ** -limits.nmant)), float(limits.tiny))
    return neg(log(neg(log1p(neg(where(ge(high, 0.5), high, fine))))))


def laplace(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return numbers of the standard Laplace distribution: exponential ones with either sign.

    >>> import fxgrad
    >>> fxgrad.random.laplace(fxgrad.random.key(0), (2, 3)).shape
    (2, 3)
    """
    if out_sharding is not None:
        return place_array("laplace", laplace(key, shape, dtype), out_sharding)
    key, dtype = one_key("laplace", key), float_dtype("laplace", dtype)
    u = _open(key, as_new_shape("laplace", shape), dtype, -1.0 + float(dtypes.finfo(dtype).epsneg))
    return mul(sign(u), log1p(neg(absolute(u))))


def logistic(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return numbers of the standard logistic distribution: the log-odds of uniform ones.

    >>> import fxgrad
    >>> fxgrad.random.logistic(fxgrad.random.key(0), (2, 3)).shape
    (2, 3)
    """
    if out_sharding is not None:
        return place_array("logistic", logistic(key, shape, dtype), out_sharding)
    key, dtype = one_key("logistic", key), float_dtype("logistic", dtype)
    limits = dtypes.finfo(dtype)
    # The least number stands for all below the next one, of which few are as small.
    u = maximum(_open(key, as_new_shape("logistic", shape), dtype, limits.tiny), float(limits.eps) / 2)
    return sub(log(u), log1p(neg(u)))


def cauchy(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return numbers of the standard Cauchy distribution: the tangents of uniform angles.

    >>> import fxgrad
    >>> fxgrad.random.cauchy(fxgrad.random.key(0), (2, 3)).shape
    (2, 3)
    """
    if out_sharding is not None:
        return place_array("cauchy", cauchy(key, shape, dtype), out_sharding)
    key, dtype = one_key("cauchy", key), float_dtype("cauchy", dtype)
    u = _open(key, as_new_shape("cauchy", shape), dtype, dtypes.finfo(dtype).eps)
    return tan(mul(dtype.type(math.pi), sub(u, 0.5)))


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return numbers from 1 on of the Pareto distribution of shape parameter `b`.

    >>> import fxgrad
    >>> bool(fxgrad.random.pareto(fxgrad.random.key(0), 3.0) >= 1)
    True
    """
    if out_sharding is not None:
        return place_array("pareto", pareto(key, b, shape, dtype), out_sharding)
    key, dtype = one_key("pareto", key), float_dtype("pareto", dtype)
    shape = drawn_shape("pareto", shape, b)
    return exp(div(exponential_draws(key, shape, dtype), as_parameter(b, dtype)))


def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Return numbers of the Weibull distribution: `scale` times exponential ones to the power 1 / `concentration`.

    The parameters broadcast with `shape`.

    >>> import fxgrad
    >>> bool(fxgrad.random.weibull_min(fxgrad.random.key(0), 2.0, 1.5) >= 0)
    True
    """
    key, dtype = one_key("weibull_min", key), float_dtype("weibull_min", dtype)
    draws = exponential_draws(key, as_new_shape("weibull_min", shape), dtype)
    return mul(power(draws, div(1.0, as_parameter(concentration, dtype))), as_parameter(scale, dtype))


def triangular(key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None,
               *, out_sharding: Any = None) -> Any:
    """Return numbers from `left` to `right` of the triangular distribution with its peak at `mode`.

    >>> import fxgrad
    >>> bool(0.0 <= fxgrad.random.triangular(fxgrad.random.key(0), 0.0, 1.0, 2.0) <= 2.0)
    True
    """
    if out_sharding is not None:
        return place_array("triangular", triangular(key, left, mode, right, shape, dtype), out_sharding)
    key, dtype = one_key("triangular", key), float_dtype("triangular", dtype)
    shape = drawn_shape("triangular", shape, left, mode, right)
    left, mode, right = (spread_parameter(each, shape, dtype) for each in (left, mode, right))
    width, before, behind = sub(right, left), sub(mode, left), sub(right, mode)
    u = unit_draws(key, shape, dtype)
    rises = lt(u, div(before, width))
    # One root: that of the side not taken may be the root of 0, which has no derivative.
    distance = sqrt(mul(mul(where(rises, u, sub(1.0, u)), width), where(rises, before, behind)))
    return where(rises, add(left, distance), sub(right, distance))
