"""Trigonometric and hyperbolic functions and their inverses, and atan2."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.ops.arithmetic import add, div, mul, neg, sub
from fxgrad.engine.ops.comparison import eq
from fxgrad.engine.ops.exponential import rsqrt
from fxgrad.engine.ops.families import by_float32
from fxgrad.engine.ops.pointwise import align, binary, operation, unary
from fxgrad.engine.ops.select import where
from fxgrad.engine.tracing.tape import aval_of

# --- circular ---------------------------------------------------------------------------------------------------

sin_p = unary("sin", numpy=np.sin, tangent=lambda t, out, x: mul(t, cos(x)))
cos_p = unary("cos", numpy=np.cos, tangent=lambda t, out, x: mul(t, neg(sin(x))))
tan_p = unary("tan", numpy=np.tan, tangent=lambda t, out, x: mul(t, add(mul(out, out), 1.0)))
sin, cos, tan = operation(sin_p), operation(cos_p), operation(tan_p)

# The derivatives of asin and acos are infinite at 1 and -1.
asin_p = unary("asin", numpy=np.arcsin, xla=by_float32("asin"), public="arcsin",
               tangent=lambda t, out, x: mul(t, rsqrt(sub(1.0, mul(x, x)))))
acos_p = unary("acos", numpy=np.arccos, xla=by_float32("acos"), public="arccos",
               tangent=lambda t, out, x: neg(mul(t, rsqrt(sub(1.0, mul(x, x))))))
atan_p = unary("atan", numpy=np.arctan, public="arctan", tangent=lambda t, out, x: div(t, add(mul(x, x), 1.0)))
asin, acos, atan = operation(asin_p), operation(acos_p), operation(atan_p)


def _norm(y: Any, x: Any) -> Any:
    return add(mul(x, x), mul(y, y))


# Neither part is defined at the origin: both are NaN there.
atan2_p = binary("atan2", numpy=np.arctan2, accepts="floating", public="arctan2",
                 together=lambda given, out, y, x: div(sub(mul(given[0], x), mul(given[1], y)), _norm(y, x)),
                 tangents=[lambda t, out, y, x: div(mul(t, x), _norm(y, x)),
                           lambda t, out, y, x: neg(div(mul(t, y), _norm(y, x)))])
atan2 = operation(atan2_p)

# --- lengths ----------------------------------------------------------------------------------------------------


def _hypot_xla(lax: Any, x: Any, y: Any) -> Any:
    """Scale by the greater one, so that squares do not overflow; an infinite leg has priority over a NaN."""
    x, y = lax.abs(x), lax.abs(y)
    large, small = lax.max(x, y), lax.min(x, y)
    infinity, one = lax.full_like(x, math.inf), lax.full_like(x, 1)
    unscaled = lax.bitwise_or(lax.eq(large, lax.full_like(x, 0)), lax.eq(large, infinity))
    ratio = lax.div(small, lax.select(unscaled, one, large))
    length = lax.mul(large, lax.sqrt(lax.add(lax.mul(ratio, ratio), one)))
    return lax.select(lax.bitwise_or(lax.eq(x, infinity), lax.eq(y, infinity)), infinity, length)


def _share_of_leg(t: Any, out: Any, leg: Any) -> Any:
    """Return the part of a tangent along the hypotenuse; 0 at the origin, which has no direction, in every order."""
    origin = eq(out, 0.0)
    return mul(t, div(where(origin, 0.0, leg), where(origin, 1.0, out)))


hypot_p = binary("hypot", numpy=np.hypot, xla=by_float32(lambda lax, x, y: _hypot_xla(lax, *align(lax, x, y))),
                 accepts="floating", flops=8, tangents=[lambda t, out, x, y: _share_of_leg(t, out, x),
                                    lambda t, out, x, y: _share_of_leg(t, out, y)])
hypot = operation(hypot_p)

# --- hyperbolic -------------------------------------------------------------------------------------------------

sinh_p = unary("sinh", numpy=np.sinh, tangent=lambda t, out, x: mul(t, cosh(x)))
cosh_p = unary("cosh", numpy=np.cosh, tangent=lambda t, out, x: mul(t, sinh(x)))
tanh_p = unary("tanh", numpy=np.tanh, tangent=lambda t, out, x: mul(t, sub(1.0, mul(out, out))))
sinh, cosh, tanh = operation(sinh_p), operation(cosh_p), operation(tanh_p)


def _acosh_tangent(t: Any, out: Any, x: Any) -> Any:
    """1/sqrt(x^2 - 1), factored: that keeps digits near 1, and for complex x the two roots keep to the branch cut."""
    below, above = sub(x, 1.0), add(x, 1.0)
    if dtypes.is_complex(aval_of(x).dtype):
        return mul(t, mul(rsqrt(below), rsqrt(above)))
    return mul(t, rsqrt(mul(below, above)))


asinh_p = unary("asinh", numpy=np.arcsinh, public="arcsinh",
                tangent=lambda t, out, x: mul(t, rsqrt(add(mul(x, x), 1.0))))
acosh_p = unary("acosh", numpy=np.arccosh, public="arccosh", tangent=_acosh_tangent)
atanh_p = unary("atanh", numpy=np.arctanh, public="arctanh", tangent=lambda t, out, x: div(t, sub(1.0, mul(x, x))))
asinh, acosh, atanh = operation(asinh_p), operation(acosh_p), operation(atanh_p)
