"""Special functions: erf erfc erf_inv lgamma digamma polygamma bessel_i0e bessel_i1e.

NumPy has none of them. The kernels here compute in float64 whatever the dtype, and round at the end: with the functions
of Python's `math` one element at a time, or from convergent and asymptotic series.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.errors import UnsupportedError, at_user_line
from fxgrad.ops.arithmetic import add, div, mul, neg, sub
from fxgrad.ops.choose import where
from fxgrad.ops.comparison import eq
from fxgrad.ops.exponential import exp
from fxgrad.ops.parts import sign
from fxgrad.ops.pointwise import binary, operation, unary

# --- kernels ----------------------------------------------------------------------------------------------------

_erf_each = np.frompyfunc(math.erf, 1, 1)
_erfc_each = np.frompyfunc(math.erfc, 1, 1)


def _lgamma_one(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # at 0, -1, -2, ..., and beyond 1e305
        return math.inf


_lgamma_each = np.frompyfunc(_lgamma_one, 1, 1)


def _double(x: Any) -> Any:
    return np.asarray(x, np.float64)


def _erf_numpy(x: Any) -> Any:
    return np.asarray(_erf_each(_double(x))).astype(x.dtype)


def _erfc_numpy(x: Any) -> Any:
    return np.asarray(_erfc_each(_double(x))).astype(x.dtype)


def _lgamma_numpy(x: Any) -> Any:
    return np.asarray(_lgamma_each(_double(x))).astype(x.dtype)


def _erf_inv_numpy(y: Any) -> Any:
    """Winitzki's closed formula (2008), good to 2e-3, made exact by three steps of Halley's method.

    The steps solve for the complement 1 - |y| in the tails, where erf itself has no digits left.
    """
    size = np.abs(_double(y))
    inner = np.where(size < 1, size, 0.0)
    logarithm = np.log1p(-inner * inner)
    half = 2 / (math.pi * 0.147) + logarithm / 2
    x = np.sqrt(np.sqrt(half * half - logarithm / 0.147) - half)
    for _ in range(3):
        error = np.where(inner < 0.5, _double(_erf_each(x)) - inner, (1 - inner) - _double(_erfc_each(x)))
        step = error * (math.sqrt(math.pi) / 2) * np.exp(x * x)
        x = x - step / (1 + x * step)
    x = np.where(size < 1, x, np.where(size == 1, np.inf, np.nan))
    return np.copysign(x, _double(y)).astype(y.dtype)


_BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510]
"""The Bernoulli numbers of index 2, 4, ..., 16."""


def _digamma_numpy(x: Any) -> Any:
    """The asymptotic series (DLMF 5.11.2) beyond 10; recurrence (5.5.2) up to there; reflection (5.5.4) below 1/2."""
    given = _double(x)
    reflected = given < 0.5
    shifted = np.where(reflected, 1 - given, given)
    result = np.zeros_like(shifted)
    for _ in range(10):
        below = shifted < 10
        result = result - np.where(below, 1 / shifted, 0)
        shifted = shifted + below
    inverse = 1 / (shifted * shifted)
    series = np.zeros_like(shifted)
    for index, number in reversed(list(enumerate(_BERNOULLI, 1))):
        series = (series + number / (2 * index)) * inverse
    result = result + np.log(shifted) - 0.5 / shifted - series
    result = np.where(reflected, result - math.pi / np.tan(math.pi * (given - np.round(given))), result)
    return np.where((given <= 0) & (given == np.floor(given)), np.nan, result).astype(x.dtype)


_FARTHEST = 1000
"""To this far below zero `polygamma` is computed."""


def _zeta(s: Any, q: Any) -> Any:
    """Hurwitz's zeta function, the sum of (q + k)^-s: the first terms, then Euler and Maclaurin (DLMF 25.11.5)."""
    total = np.zeros_like(q)
    q = np.where(q < -_FARTHEST, np.nan, q)
    enough = 10 + s
    while np.any(q < enough):
        total = total + np.where(q < enough, np.power(q, -s), 0)
        q = q + (q < enough)
    total = total + np.power(q, 1 - s) / (s - 1) + 0.5 * np.power(q, -s)
    term = s * np.power(q, -s - 1)
    for index, number in enumerate(_BERNOULLI, 1):
        total = total + term * (number / math.factorial(2 * index))
        term = term * (s + 2 * index - 1) * (s + 2 * index) / (q * q)
    return total


def _polygamma_numpy(order: Any, x: Any) -> Any:
    """(-1)^(n+1) n! zeta(n + 1, x) (DLMF 5.15.1 ff.); a NaN where the order n is no whole number from 0 on."""
    n, at = np.broadcast_arrays(_double(order), _double(x))
    valid = (n >= 0) & (n == np.floor(n))
    s = np.where(valid & (n > 0), n, 1) + 1
    factorial = np.exp(_double(_lgamma_each(s)))
    pole = (at <= 0) & (at == np.floor(at))
    value = np.where(s % 2 == 0, 1, -1) * factorial * _zeta(s, np.where(pole, 1.0, at))
    value = np.where(pole, np.where(s % 2 == 0, np.inf, np.nan), value)
    return np.where(valid, np.where(n == 0, _digamma_numpy(at), value), np.nan).astype(x.dtype)


_ANGLES = np.cos(np.arange(16) * (math.pi / 32))
_WEIGHTS = np.where(np.arange(16) == 0, 1 / 64, 1 / 32)


def _bessel(x: Any, order: int) -> Any:
    """exp(-x) I_n(x) for x >= 0 and n = 0 or 1.

    Up to 30: the trapezoidal rule with 64 points around the circle for I_n(x) = 1/pi times the integral of
    exp(x cos a) cos(n a) over a from 0 to pi (DLMF 10.32.3), folded into a quarter; its error is near I_64(x).
    Beyond: the asymptotic series (DLMF 10.40.1).
    """
    near = np.where(x < 30, x, 0.0)[..., None]
    both = np.exp(-2 * near * _ANGLES)
    terms = np.exp(near * (_ANGLES - 1)) * ((1 + both) if order == 0 else -np.expm1(-2 * near * _ANGLES) * _ANGLES)
    small = terms @ _WEIGHTS + (np.exp(-near[..., 0]) / 32 if order == 0 else 0)  # the last for cos(pi/2) = 0
    far = np.where(x < 30, 30.0, x)
    term = total = np.ones_like(far)
    for k in range(1, 20):
        term = term * ((2 * k - 1) ** 2 - 4 * order * order) / (8 * k * far)
        total = total + term
    return np.where(x < 30, small, np.where(np.isnan(x), x, total / np.sqrt(2 * math.pi * far)))


def _i0e_numpy(x: Any) -> Any:
    return _bessel(np.abs(_double(x)), 0).astype(x.dtype)


def _i1e_numpy(x: Any) -> Any:
    return np.copysign(_bessel(np.abs(_double(x)), 1), _double(x)).astype(x.dtype)


# --- records ----------------------------------------------------------------------------------------------------


def _special(name: str, numpy: Callable[..., Any], tangent: Callable[..., Any]) -> Any:
    return unary(name, numpy=numpy, accepts="floating", tangent=tangent, flops=20)


def _gaussian(x: Any, factor: float) -> Any:
    return mul(exp(neg(mul(x, x))), factor)


erf_p = _special("erf", _erf_numpy, lambda t, out, x: mul(t, _gaussian(x, 2 / math.sqrt(math.pi))))
erfc_p = _special("erfc", _erfc_numpy, lambda t, out, x: mul(t, _gaussian(x, -2 / math.sqrt(math.pi))))
erf_inv_p = _special("erf_inv", _erf_inv_numpy,
                     lambda t, out, x: mul(t, mul(exp(mul(out, out)), math.sqrt(math.pi) / 2)))
lgamma_p = _special("lgamma", _lgamma_numpy, lambda t, out, x: mul(t, digamma(x)))
digamma_p = _special("digamma", _digamma_numpy, lambda t, out, x: mul(t, polygamma(1.0, x)))
erf, erfc, erf_inv, lgamma, digamma = map(operation, (erf_p, erfc_p, erf_inv_p, lgamma_p, digamma_p))


def _no_derivative_in_order(*_: Any) -> Any:
    raise UnsupportedError(at_user_line("polygamma(n, x) has no derivative in its order n, a whole number; "
                                        "pass n as a constant"))


polygamma_p = binary("polygamma", numpy=_polygamma_numpy, accepts="floating", flops=100,
                     tangents=[_no_derivative_in_order, lambda t, out, n, x: mul(t, polygamma(add(n, 1.0), x))])
polygamma = operation(polygamma_p)

bessel_i0e_p = _special("bessel_i0e", _i0e_numpy,
                        lambda t, out, x: mul(t, sub(bessel_i1e(x), mul(sign(x), out))))


def _i1e_tangent(t: Any, out: Any, x: Any) -> Any:
    """i0e(x) - (sign(x) + 1/x) i1e(x), which is 1/2 at 0 (DLMF 10.29.2)."""
    at_zero = eq(x, 0.0)
    inverse = div(1.0, where(at_zero, 1.0, x))
    return mul(t, where(at_zero, 0.5, sub(bessel_i0e(x), mul(out, add(sign(x), inverse)))))


bessel_i1e_p = _special("bessel_i1e", _i1e_numpy, _i1e_tangent)
bessel_i0e, bessel_i1e = operation(bessel_i0e_p), operation(bessel_i1e_p)
