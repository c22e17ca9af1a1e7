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
from fxgrad.engine.ops.tails import kernel
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

# --- the angle of a point ---------------------------------------------------------------------------------------


def _over_norm(value: Any, y: Any, x: Any) -> Any:
    """Return value / (x² + y²), by the length, whose square may overflow or vanish; XLA makes one of two quotients."""
    inverse = div(1.0, hypot(y, x))
    return mul(mul(value, inverse), inverse)


# Neither part is defined at the origin: both are NaN there.
atan2_p = binary("atan2", numpy=np.arctan2, accepts="floating", public="arctan2",
                 together=lambda given, out, y, x: _over_norm(sub(mul(given[0], x), mul(given[1], y)), y, x),
                 tangents=[lambda t, out, y, x: mul(t, _over_norm(x, y, x)),
                           lambda t, out, y, x: neg(mul(t, _over_norm(y, y, x)))])
atan2 = operation(atan2_p)

# --- hyperbolic -------------------------------------------------------------------------------------------------



def _halves(lax: Any, x: Any) -> tuple[Any, Any]:
    """Return e^x / 2 and e^-x / 2 of numbers x >= 0: XLA's exp(x - log(2)) has the rounding of a difference."""
    half, root = lax.full_like(x, 0.5), lax.exp(lax.mul(x, lax.full_like(x, 0.5)))
    return lax.mul(lax.mul(half, root), root), lax.div(lax.div(half, root), root)


def _cosh_xla(lax: Any, x: Any) -> Any:
    return lax.cosh(x) if x.dtype.kind == "c" else lax.add(*_halves(lax, lax.abs(x)))


def _sinh_xla(lax: Any, x: Any) -> Any:
    """Compute near 0 by expm1; there XLA's complex one is a difference of exponentials."""
    if x.dtype.kind == "c":
        real, imag = lax.real(x), lax.imag(x)
        near = lax.lt(lax.abs(real), lax.full_like(real, 1.0))
        small = lax.select(near, real, lax.full_like(real, 0.0))
        product = lax.complex(lax.mul(_sinh_xla(lax, small), lax.cos(imag)),
                              lax.mul(_cosh_xla(lax, small), lax.sin(imag)))
        return lax.select(near, product, lax.sinh(x))
    size, one = lax.abs(x), lax.full_like(x, 1.0)
    above = lax.expm1(lax.min(size, one))
    small = lax.mul(lax.full_like(x, 0.5), lax.add(above, lax.div(above, lax.add(above, one))))
    large = lax.select(lax.gt(size, one), lax.sub(*_halves(lax, size)), small)
    return lax.select(lax.lt(x, lax.full_like(x, 0.0)), lax.neg(large), lax.select(lax.eq(x, lax.neg(x)), x, large))


sinh_p = unary("sinh", numpy=np.sinh, xla=kernel(_sinh_xla), tangent=lambda t, out, x: mul(t, cosh(x)))
cosh_p = unary("cosh", numpy=np.cosh, xla=kernel(_cosh_xla), tangent=lambda t, out, x: mul(t, sinh(x)))
tanh_p = unary("tanh", numpy=np.tanh, tangent=lambda t, out, x: mul(t, sub(1.0, mul(out, out))))
sinh, cosh, tanh = operation(sinh_p), operation(cosh_p), operation(tanh_p)


def _acosh_tangent(t: Any, out: Any, x: Any) -> Any:
    """1/sqrt(x^2 - 1), factored: that keeps digits near 1 and far out, and for complex x to the branch cut."""
    return mul(t, mul(rsqrt(sub(x, 1.0)), rsqrt(add(x, 1.0))))


def _asinh_tangent(t: Any, out: Any, x: Any) -> Any:
    """1/sqrt(x^2 + 1), for real x by `hypot`, since the square may overflow."""
    if dtypes.is_complex(aval_of(x).dtype):
        return mul(t, rsqrt(add(mul(x, x), 1.0)))
    return div(t, hypot(x, 1.0))


asinh_p = unary("asinh", numpy=np.arcsinh, public="arcsinh", tangent=_asinh_tangent)
acosh_p = unary("acosh", numpy=np.arccosh, public="arccosh", tangent=_acosh_tangent)
atanh_p = unary("atanh", numpy=np.arctanh, public="arctanh", tangent=lambda t, out, x: div(t, sub(1.0, mul(x, x))))
asinh, acosh, atanh = operation(asinh_p), operation(acosh_p), operation(atanh_p)
