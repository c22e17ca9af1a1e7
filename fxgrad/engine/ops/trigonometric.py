"""Trigonometric and hyperbolic functions and their inverses, and atan2."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.ops.arithmetic import add, div, mul, neg, sub
from fxgrad.engine.ops.comparison import eq
from fxgrad.engine.ops.cpu_kernels import cos_xla, odd_function, sin_xla, tan_xla
from fxgrad.engine.ops.exponential import rsqrt
from fxgrad.engine.ops.families import by_float32
from fxgrad.engine.ops.pointwise import align, binary, operation, unary
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.tails import kernel
from fxgrad.engine.tracing.tape import aval_of

# --- circular ---------------------------------------------------------------------------------------------------

sin_p = unary("sin", numpy=np.sin, xla=sin_xla, tangent=lambda t, out, x: mul(t, cos(x)))
cos_p = unary("cos", numpy=np.cos, xla=cos_xla, tangent=lambda t, out, x: mul(t, neg(sin(x))))
tan_p = unary("tan", numpy=np.tan, xla=tan_xla, tangent=lambda t, out, x: mul(t, add(mul(out, out), 1.0)))
sin, cos, tan = operation(sin_p), operation(cos_p), operation(tan_p)

# XLA's own inverse functions call the C library number by number on CPUs, 10 to 40 times as long as these take.

_ATAN = ((-0.00179355876, 0.010914325, -0.0311773245, 0.0579570723, -0.0840342003, 0.109521755, -0.142642397,
          0.199985481, -0.333332991),)
"""(atan(t) / t - 1) / t² as a polynomial in t², up to t = 1, with a relative error of 3e-9 of atan (least squares,
reweighted)."""
_WIDE_ATAN = ((-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
               -1.228866684490136173410e2, -6.485021904942025371773e1),
              (1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
               4.853903996359136964868e2, 1.945506571482613964425e2))
"""The same in float64 as a quotient, up to t = 0.66 (S. Moshier, Cephes, atan.c)."""
_ASIN = ((0.0375164961, 0.0144385736, 0.0318077265, 0.0445169542, 0.0750050419, 0.1666666),)
"""(asin(s) / s - 1) / s² up to s = 1/2, with a relative error of 3e-10 of asin."""
_WIDE_ASIN = ((3.47933107596021167570e-5, 7.91534994289814532176e-4, -4.00555345006794114027e-2,
               2.01212532134862925881e-1, -3.25565818622400915405e-1, 1.66666666666666657415e-1),
              (7.70381505559019352791e-2, -6.88283971605453293030e-1, 2.02094576023350569471, -2.40339491173441421878,
               1.0))
"""The same in float64 (Sun Microsystems, fdlibm, e_asin.c)."""
_PI_REST = 1.2246467991473532e-16
"""What the nearest float64 is less than pi."""


def _rest_of_pi(lax: Any, share: float, x: Any) -> Any:
    """Return pi times `share`, a power of 2, less x; the constant has the digits of two numbers."""
    first = x.dtype.type(share * math.pi)
    rest = x.dtype.type(share * math.pi - float(first) + share * _PI_REST)
    return lax.add(lax.sub(lax.full_like(x, first), x), lax.full_like(x, rest))


def _atan_of_ratio(lax: Any, t: Any) -> Any:
    """Return atan(t) of t from 0 to 1."""
    if t.dtype != np.float64:
        return odd_function(lax, t, *_ATAN)
    one = lax.full_like(t, 1.0)
    far = lax.gt(t, lax.full_like(t, 0.66))
    turned = lax.div(lax.sub(one, t), lax.add(one, t))
    angle = odd_function(lax, lax.select(far, turned, t), *_WIDE_ATAN)
    return lax.select(far, _rest_of_pi(lax, 0.25, angle), angle)


def _is_negative(lax: Any, x: Any) -> Any:
    """Return whether the sign of x is that of -0.0."""
    bits = lax.bitcast_convert_type(x, np.dtype(f"int{8 * x.dtype.itemsize}"))
    return lax.lt(bits, lax.full_like(bits, 0))


def _with_sign_of(lax: Any, size: Any, x: Any) -> Any:
    return lax.select(_is_negative(lax, x), lax.neg(size), size)


def _atan_xla(lax: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        return lax.atan(x)
    size, one = lax.abs(x), lax.full_like(x, 1.0)
    far = lax.gt(size, one)
    angle = _atan_of_ratio(lax, lax.select(far, lax.div(one, size), size))
    return _with_sign_of(lax, lax.select(far, _rest_of_pi(lax, 0.5, angle), angle), x)


def _asin_of_half(lax: Any, x: Any) -> tuple[Any, Any]:
    """Return whether |x| > 1/2, and asin of x; there asin of sqrt((1 - |x|) / 2), half of the angle from |x| to 1."""
    half, size = lax.full_like(x, 0.5), lax.abs(x)
    far = lax.gt(size, half)
    rest = lax.sqrt(lax.mul(half, lax.sub(lax.full_like(x, 1.0), size)))
    return far, odd_function(lax, lax.select(far, rest, x), *(_WIDE_ASIN if x.dtype == np.float64 else _ASIN))


def _asin_xla(lax: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        return lax.asin(x)
    far, angle = _asin_of_half(lax, x)
    return lax.select(far, _with_sign_of(lax, _rest_of_pi(lax, 0.5, lax.add(angle, angle)), x), angle)


def _acos_xla(lax: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        return lax.acos(x)
    far, angle = _asin_of_half(lax, x)
    twice = lax.add(angle, angle)
    beyond = lax.select(_is_negative(lax, x), _rest_of_pi(lax, 1.0, twice), twice)
    return lax.select(far, beyond, _rest_of_pi(lax, 0.5, angle))


# The derivatives of asin and acos are infinite at 1 and -1.
asin_p = unary("asin", numpy=np.arcsin, xla=kernel(_asin_xla), public="arcsin",
               tangent=lambda t, out, x: mul(t, rsqrt(sub(1.0, mul(x, x)))))
acos_p = unary("acos", numpy=np.arccos, xla=kernel(_acos_xla), public="arccos",
               tangent=lambda t, out, x: neg(mul(t, rsqrt(sub(1.0, mul(x, x))))))
atan_p = unary("atan", numpy=np.arctan, xla=kernel(_atan_xla), public="arctan",
               tangent=lambda t, out, x: div(t, add(mul(x, x), 1.0)))
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


def _atan2_xla(lax: Any, y: Any, x: Any) -> Any:
    """Return the angle from the smaller leg over the greater one, which may both be 0 or infinite."""
    across, along = lax.abs(y), lax.abs(x)
    large, small = lax.max(across, along), lax.min(across, along)
    ratio = lax.select(lax.eq(large, small), lax.full_like(x, 1.0), lax.div(small, large))
    angle = _atan_of_ratio(lax, lax.select(lax.eq(large, lax.full_like(x, 0.0)), large, ratio))
    angle = lax.select(lax.gt(across, along), _rest_of_pi(lax, 0.5, angle), angle)
    angle = lax.select(_is_negative(lax, x), _rest_of_pi(lax, 1.0, angle), angle)
    return _with_sign_of(lax, angle, y)


# Neither part is defined at the origin: both are NaN there.
atan2_p = binary("atan2", numpy=np.arctan2, xla=kernel(_atan2_xla), accepts="floating", public="arctan2",
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
