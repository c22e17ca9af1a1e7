"""The normal distribution and those derived from it: normal truncated_normal lognormal maxwell rayleigh wald."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.api.custom_calls import is_traced
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.operands import as_new_shape, is_concrete
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.higher_order.call import library_function
from fxgrad.engine.higher_order.custom import bind_straight_through
from fxgrad.engine.ops.arithmetic import add, div, mul, neg, stop_gradient, sub
from fxgrad.engine.ops.arithmetic import max as maximum
from fxgrad.engine.ops.arithmetic import min as minimum
from fxgrad.engine.ops.comparison import gt, le, lt, or_
from fxgrad.engine.ops.exponential import exp, log, sqrt, square
from fxgrad.engine.ops.integrals import erfcx
from fxgrad.engine.ops.parts import abs as absolute
from fxgrad.engine.ops.parts import complex as complex_
from fxgrad.engine.ops.parts import nextafter
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.special import erf, erf_inv
from fxgrad.engine.ops.structural import convert, reduce_sum, zeros
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import DTypeError
from fxgrad.random.keys import (
    as_parameter,
    chosen_dtype,
    drawn_shape,
    float_dtype,
    one_key,
    spread_parameter,
    subkeys,
)
from fxgrad.random.uniform import between_bounds, sign_draws, unit_draws

_ROOT = math.sqrt(2)


@library_function
def normal_draws(key: Any, shape: Shape, dtype: DType) -> Any:
    """Return normal numbers of a typed key: the quantiles of uniform ones."""
    below_one = np.nextafter(np.array(-1, dtype), np.array(0, dtype), dtype=dtype)[()]
    uniform = between_bounds(key, shape, dtype, below_one, dtype.type(1))
    return mul(dtype.type(_ROOT), erf_inv(uniform))


normal_draws.__name__ = "normal"


def normal(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return normal numbers of mean 0 and variance 1, of a floating or complex dtype.

    The parts of complex ones have variance 1/2 each. Raises `ArgumentError` for an invalid key, `DTypeError` for
    other dtypes.

    >>> import fxgrad
    >>> fxgrad.random.normal(fxgrad.random.key(0), (2,))
    array([1.6226422, 2.0252647], dtype=float32)
    """
    if out_sharding is not None:
        return place_array("normal", normal(key, shape, dtype), out_sharding)
    key, shape = one_key("normal", key), as_new_shape("normal", shape)
    chosen = chosen_dtype("normal", dtype, dtypes.default_float())
    if dtypes.is_floating(chosen):
        return normal_draws(key, shape, chosen)
    if not dtypes.is_complex(chosen):
        raise DTypeError(at_user_line(f"normal: dtype={chosen.name}, where a floating or complex dtype is needed, such "
                                      "as 'float32'"))
    real, imag = (normal_draws(part, shape, dtypes.real_dtype(chosen)) for part in subkeys(key))
    return div(complex_(real, imag), chosen.type(_ROOT))


def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None,
                     *, out_sharding: Any = None) -> Any:
    """Return normal numbers between `lower` and `upper` (both excluded), of their shape or of `shape`.

    Bounds may lie far from 0, and one of them may be infinite. Beyond 3 the numbers are those of the tail, where jax's
    have few digits or none.

    >>> import fxgrad
    >>> bool(-1.0 < fxgrad.random.truncated_normal(fxgrad.random.key(0), -1.0, 1.0) < 1.0)
    True
    """
    if out_sharding is not None:
        return place_array("truncated_normal", truncated_normal(key, lower, upper, shape, dtype), out_sharding)
    key, dtype = one_key("truncated_normal", key), float_dtype("truncated_normal", dtype)
    shape = drawn_shape("truncated_normal", shape, lower, upper)
    lower, upper = as_parameter(lower, dtype), as_parameter(upper, dtype)
    in_tail = or_(gt(lower, _TAIL), lt(upper, -_TAIL))
    if is_concrete(in_tail) and not np.any(in_tail):
        out = _central_draws(key, shape, dtype, lower, upper)
    else:
        out = where(in_tail, _tail_draws(key, shape, dtype, where(in_tail, lower, _TAIL), where(in_tail, upper, 4.0)),
                    _central_draws(key, shape, dtype, where(in_tail, -1.0, lower), where(in_tail, 1.0, upper)))
    least = nextafter(stop_gradient(lower), dtype.type(math.inf))
    greatest = nextafter(stop_gradient(upper), dtype.type(-math.inf))
    return minimum(maximum(out, least), greatest)


_TAIL = 3.0
"""From this bound on, erf has lost too many digits to draw from."""


def _central_draws(key: Any, shape: Shape, dtype: DType, lower: Any, upper: Any) -> Any:
    root = dtype.type(_ROOT)
    return mul(root, erf_inv(between_bounds(key, shape, dtype, erf(div(lower, root)), erf(div(upper, root)))))


def _tail_draws(key: Any, shape: Shape, dtype: DType, lower: Any, upper: Any) -> Any:
    """Return quantiles of the normal distribution between bounds that are both above 0 or both below, by Newton's rule.

    With e(x) = exp(x² / 2) times the probability beyond x, log(e(x)) - x² / 2 loses no digits where that probability
    is too small for the dtype. The first guess ignores that e changes.
    """
    def scaled_tail(x: Any) -> Any:
        return erfcx(div(x, _ROOT))

    def half_difference(x: Any) -> Any:
        return div(mul(sub(x, near), add(x, near)), 2.0)

    right = gt(lower, 0.0)
    near, far = where(right, lower, neg(upper)), where(right, upper, neg(lower))
    at_near = scaled_tail(near)
    beyond = mul(div(scaled_tail(far), at_near), exp(neg(half_difference(far))))
    part = mul(unit_draws(key, shape, dtype), sub(1.0, beyond))
    part = maximum(where(right, sub(1.0, part), add(beyond, part)), float(dtypes.finfo(dtype).eps) / 2)
    x = sqrt(sub(square(near), mul(log(part), 2.0)))
    for _ in range(3):
        here = scaled_tail(x)
        excess = sub(sub(log(div(here, at_near)), half_difference(x)), log(part))
        x = add(x, mul(mul(excess, here), math.sqrt(math.pi / 2)))
    return where(right, x, neg(x))


def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return numbers whose logarithms are normal, of mean 0 and standard deviation `sigma`.

    >>> import fxgrad
    >>> float(fxgrad.random.lognormal(fxgrad.random.key(0), 0.0))
    1.0
    """
    if out_sharding is not None:
        return place_array("lognormal", lognormal(key, sigma, shape, dtype), out_sharding)
    key, dtype = one_key("lognormal", key), float_dtype("lognormal", dtype)
    shape = drawn_shape("lognormal", shape, sigma)
    return exp(mul(normal_draws(key, shape, dtype), as_parameter(sigma, dtype)))


def maxwell(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return the lengths of vectors of three normal numbers: the Maxwell distribution.

    >>> import fxgrad
    >>> fxgrad.random.maxwell(fxgrad.random.key(0), (2, 3)).shape
    (2, 3)
    """
    if out_sharding is not None:
        return place_array("maxwell", maxwell(key, shape, dtype), out_sharding)
    key, dtype = one_key("maxwell", key), float_dtype("maxwell", dtype)
    return _lengths(key, as_new_shape("maxwell", shape), dtype)


def _lengths(key: Any, shape: Shape, dtype: DType) -> Any:
    return sqrt(reduce_sum(square(normal_draws(key, (*shape, 3), dtype)), (len(shape),)))


def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Return numbers of the Maxwell distribution with either sign, times `scale`, plus `loc`.

    For each element of `shape` (without one, of the parameters) there are as many draws as the parameters have
    elements.

    >>> import fxgrad
    >>> fxgrad.random.double_sided_maxwell(fxgrad.random.key(0), 0.0, 1.0, (2,)).shape
    (2,)
    """
    key, dtype = one_key("double_sided_maxwell", key), float_dtype("double_sided_maxwell", dtype)
    own = drawn_shape("double_sided_maxwell", None, loc, scale)
    shape = (*(as_new_shape("double_sided_maxwell", shape) or own), *own)
    lengths_key, signs_key = subkeys(key)
    signed = mul(sign_draws(signs_key, shape, dtype), _lengths(lengths_key, shape, dtype))
    return add(mul(signed, as_parameter(scale, dtype)), as_parameter(loc, dtype))


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return the lengths of vectors of two normal numbers of standard deviation `scale`: the Rayleigh distribution.

    >>> import fxgrad
    >>> bool(fxgrad.random.rayleigh(fxgrad.random.key(0), 2.0) > 0)
    True
    """
    if out_sharding is not None:
        return place_array("rayleigh", rayleigh(key, scale, shape, dtype), out_sharding)
    key, dtype = one_key("rayleigh", key), float_dtype("rayleigh", dtype)
    shape = drawn_shape("rayleigh", shape, scale)
    drawn = maximum(unit_draws(key, shape, dtype), float(dtypes.finfo(dtype).eps) / 2)  # 0 would give an infinity
    return mul(spread_parameter(scale, shape, dtype), sqrt(mul(log(drawn), -2.0)))


def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return numbers of the Wald (inverse Gaussian) distribution of mean `mean` and scale 1.

    Derivatives in `mean`, up to the second, are those of draws at a fixed quantile, whose means are those of the
    distribution; jax's, with the noise fixed, are not.

    Source: J. Michael, W. Schucany, R. Haas, "Generating random variates using transformations with multiple roots"
    (1976).

    >>> import fxgrad
    >>> bool(fxgrad.random.wald(fxgrad.random.key(0), 2.0) > 0)
    True
    """
    if out_sharding is not None:
        return place_array("wald", wald(key, mean, shape, dtype), out_sharding)
    key, dtype = one_key("wald", key), float_dtype("wald", dtype)
    shape = drawn_shape("wald", shape, mean)
    normal_key, uniform_key = subkeys(key)
    mean = spread_parameter(mean, shape, dtype)
    y = square(normal_draws(normal_key, shape, dtype))
    choice = unit_draws(uniform_key, shape, dtype)
    # The roots are mean / f and mean · f: as a difference the lesser one would lose its digits, and its sign.
    # `factor` is f, divided by means above 1, whose squares would overflow.
    least, inverse = minimum(mean, 1.0), div(1.0, maximum(mean, 1.0))
    half = div(mul(least, y), 2.0)
    factor = add(add(half, inverse), mul(sqrt(half), sqrt(add(half, mul(inverse, 2.0)))))
    drawn = where(le(choice, div(factor, add(factor, inverse))), div(least, factor), mul(mean, div(factor, inverse)))
    if not is_traced((mean,)):
        return drawn
    # The chance of either root depends on the mean: the derivative is that at a fixed quantile. By the trapezoidal
    # rule, whose second derivative is exact, since the draw in the slope has the first one.
    wide = dtypes.float32 if dtype.itemsize < 4 else dtype  # of the slope, which overflows float16
    value, mean = convert(stop_gradient(drawn), wide), convert(mean, wide)
    step = bind_straight_through(zeros(aval_of(mean)), mean)
    first = _wald_slope(value, stop_gradient(mean))
    once = bind_straight_through(value, mul(first, step))
    return bind_straight_through(stop_gradient(drawn), mul(div(add(first, _wald_slope(once, mean)), 2.0), step))


def _wald_slope(draw: Any, mean: Any) -> Any:
    """Return the derivative in the mean at a fixed quantile: that of the distribution function over the density."""
    tiny = float(dtypes.finfo(aval_of(mean).dtype).eps) ** 2
    is_tiny = lt(absolute(mean), tiny)  # then the draw is the mean but for one in root of the mean
    draw, mean = where(is_tiny, tiny, draw), where(is_tiny, tiny, mean)
    ratio, root = div(draw, mean), sqrt(draw)
    scaled = erfcx(div(add(ratio, 1.0), mul(root, _ROOT)))
    return mul(mul(ratio, div(ratio, root)), mul(scaled, math.sqrt(2 * math.pi)))
