"""Trigonometric and hyperbolic functions and their inverses, and atan2."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.core.tape import aval_of
from fxgrad.ops.arithmetic import add, div, mul, neg, sub
from fxgrad.ops.exponential import rsqrt
from fxgrad.ops.pointwise import binary, operation, unary

# --- circular ---------------------------------------------------------------------------------------------------

sin_p = unary("sin", numpy=np.sin, tangent=lambda t, out, x: mul(t, cos(x)))
cos_p = unary("cos", numpy=np.cos, tangent=lambda t, out, x: mul(t, neg(sin(x))))
tan_p = unary("tan", numpy=np.tan, tangent=lambda t, out, x: mul(t, add(mul(out, out), 1.0)))
sin, cos, tan = operation(sin_p), operation(cos_p), operation(tan_p)

# The derivatives of asin and acos are infinite at 1 and -1.
asin_p = unary("asin", numpy=np.arcsin, public="arcsin",
               tangent=lambda t, out, x: mul(t, rsqrt(sub(1.0, mul(x, x)))))
acos_p = unary("acos", numpy=np.arccos, public="arccos",
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

# --- hyperbolic -------------------------------------------------------------------------------------------------

sinh_p = unary("sinh", numpy=np.sinh, tangent=lambda t, out, x: mul(t, cosh(x)))
cosh_p = unary("cosh", numpy=np.cosh, tangent=lambda t, out, x: mul(t, sinh(x)))
tanh_p = unary("tanh", numpy=np.tanh, tangent=lambda t, out, x: mul(t, sub(1.0, mul(out, out))))
sinh, cosh, tanh = operation(sinh_p), operation(cosh_p), operation(tanh_p)


def _acosh_tangent(t: Any, out: Any, x: Any) -> Any:
    """1/sqrt(x^2 - 1), factored: that keeps digits near 1, and of complex x the two roots keep to the branch cut."""
    below, above = sub(x, 1.0), add(x, 1.0)
    if dtypes.is_complex(aval_of(x).dtype):
        return mul(t, mul(rsqrt(below), rsqrt(above)))
    return mul(t, rsqrt(mul(below, above)))


asinh_p = unary("asinh", numpy=np.arcsinh, public="arcsinh",
                tangent=lambda t, out, x: mul(t, rsqrt(add(mul(x, x), 1.0))))
acosh_p = unary("acosh", numpy=np.arccosh, public="arccosh", tangent=_acosh_tangent)
atanh_p = unary("atanh", numpy=np.arctanh, public="arctanh", tangent=lambda t, out, x: div(t, sub(1.0, mul(x, x))))
asinh, acosh, atanh = operation(asinh_p), operation(acosh_p), operation(atanh_p)
