"""Special functions: erf erfc erf_inv ndtri lgamma digamma polygamma bessel_i0e bessel_i1e xlogy xlog1py entr.

NumPy has none of them. The kernels here compute in float64 whatever the dtype, and round at the end: by functions of
Python's `math` one element at a time, or by convergent and asymptotic series.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine.caches import cached
from fxgrad.engine.ops import xla_kernels
from fxgrad.engine.ops.arithmetic import add, div, mul, neg, sub
from fxgrad.engine.ops.comparison import and_, eq, gt, lt
from fxgrad.engine.ops.exponential import exp, log, log1p, sqrt
from fxgrad.engine.ops.families import by_float32
from fxgrad.engine.ops.parts import abs as absolute
from fxgrad.engine.ops.parts import sign
from fxgrad.engine.ops.pointwise import binary, operation, unary
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.tails import if_any, kernel
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import UnsupportedError

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


def _polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    """Evaluate by Horner's rule, the highest power first, in the dtype of `x`."""
    total = np.full_like(x, coefficients[0])
    if type(total) is not np.ndarray:
        for coefficient in coefficients[1:]:
            total = total * x + x.dtype.type(coefficient)
        return total
    for coefficient in _as_arrays(coefficients[1:], x.dtype):
        np.multiply(total, x, total)
        np.add(total, coefficient, total)
    return total


@cached("coefficients as arrays", 64)
def _as_arrays(coefficients: tuple[float, ...], dtype: Any) -> list[Any]:
    """Return coefficients as arrays of shape (), which NumPy adds to others faster than scalars."""
    return [np.array(coefficient, dtype) for coefficient in coefficients]


_SINGLE_CENTER = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
                  -0.00417768164, 0.246640727, 1.50140941)
_SINGLE_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
                0.00943887047, 1.00167406, 2.83297682)


def erf_inv_single(y: Any) -> Any:
    """For float32: M. Giles, "Approximating the erfinv function" (2012), which XLA computes too."""
    w = -np.log1p(-y * y)
    near = w < 5
    if type(y) is np.ndarray and y.shape:  # the second polynomial is for few elements, if any
        factor = _polynomial(_SINGLE_CENTER, w - np.float32(2.5))
        if near.all():
            return factor * y
        far = np.logical_not(near)
        factor[far] = _polynomial(_SINGLE_TAIL, np.sqrt(w[far]) - np.float32(3))
        return np.where(np.abs(y) == 1, y * np.float32(np.inf), factor * y)
    shifted = np.where(near, w - np.float32(2.5), np.sqrt(np.where(near, np.float32(5), w)) - np.float32(3))
    factor = np.where(near, _polynomial(_SINGLE_CENTER, shifted), _polynomial(_SINGLE_TAIL, shifted))
    return np.where(np.abs(y) == 1, y * np.float32(np.inf), factor * y)


_CENTER = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0))
_TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258,
     3.64784832476320460504, 5.76949722146069140550, 4.63033784615654529590, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940, 2.05319162663775882187, 1.0))
_END = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580, 5.46378491116411436990, 6.65790464350110377720),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0))


def quantile(half: Any, tail: Any) -> Any:
    """Return the quantile of the normal distribution at half + 1/2, where `tail` is the probability beyond, up to 1/2.

    M. Wichura, "The percentage points of the normal distribution" (1988), algorithm AS 241.
    """
    def quotient(pair: tuple[tuple[float, ...], tuple[float, ...]], x: Any) -> Any:
        return _polynomial(pair[0], x) / _polynomial(pair[1], x)

    center = half * quotient(_CENTER, 0.180625 - half * half)
    depth = np.sqrt(-np.log(np.where(tail > 0, tail, 0.25)))
    far = np.where(depth <= 5, quotient(_TAIL, depth - 1.6), quotient(_END, depth - 5))
    far = np.where(tail == 0, np.inf, far)
    return np.where(tail >= 0, np.where(np.abs(half) <= 0.425, center, np.copysign(far, half)), np.nan)


def _erf_inv_numpy(y: Any) -> Any:
    """Compute in double precision the quantile at (1 + y) / 2, over the root of 2."""
    array = np.asarray(y)
    if array.dtype == np.float64:
        return (quantile(array / 2, (1 - np.abs(array)) / 2) / math.sqrt(2))[()]
    return erf_inv_single(array.astype(np.float32, copy=False)).astype(array.dtype, copy=False)


def _ndtri_numpy(p: Any) -> Any:
    given = _double(p)
    return quantile(given - 0.5, np.minimum(given, 1 - given)).astype(p.dtype)


BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510]
"""The Bernoulli numbers of index 2, 4, ..., 16."""


def digamma_double(given: Any) -> Any:
    """In float64: the asymptotic series (DLMF 5.11.2) beyond 10, recurrence (5.5.2) up to there, reflection (5.5.4)."""
    reflected = given < 0.5
    shifted = np.where(reflected, 1 - given, given)
    result = np.zeros_like(shifted)
    for _ in range(10):
        below = shifted < 10
        result = result - np.where(below, 1 / shifted, 0)
        shifted = shifted + below
    inverse = 1 / (shifted * shifted)
    series = np.zeros_like(shifted)
    for index, number in reversed(list(enumerate(BERNOULLI, 1))):
        series = (series + number / (2 * index)) * inverse
    result = result + np.log(shifted) - 0.5 / shifted - series
    result = np.where(reflected, result - math.pi / np.tan(math.pi * (given - np.round(given))), result)
    return np.where((given <= 0) & (given == np.floor(given)), np.nan, result)


def _digamma_numpy(x: Any) -> Any:
    return digamma_double(_double(x)).astype(x.dtype)


_FARTHEST = 1000
"""The largest distance below zero at which `polygamma` is computed."""


def _zeta(s: Any, q: Any) -> Any:
    """Return Hurwitz's zeta function, the sum of (q + k)^-s: the first terms, then Euler-Maclaurin (DLMF 25.11.5).

    For large s the sum ends at the first term that changes nothing.
    """
    total = np.zeros_like(q)
    q = np.where(q < -_FARTHEST, np.nan, q)
    goes_on = q < 10 + s
    short = np.zeros_like(goes_on)
    while np.any(goes_on):
        term = np.power(q, -s)
        total = total + np.where(goes_on, term, 0)
        short |= goes_on & ~(np.abs(term) > 1e-18 * np.abs(total))
        q = q + goes_on
        goes_on = (q < 10 + s) & ~short
    q = np.where(short, np.inf, q)  # no terms left to add
    s = np.where(short, 2.0, s)
    total = total + np.power(q, 1 - s) / (s - 1) + 0.5 * np.power(q, -s)
    term = s * np.power(q, -s - 1)
    for index, number in enumerate(BERNOULLI, 1):
        total = total + term * (number / math.factorial(2 * index))
        term = term * (s + 2 * index - 1) * (s + 2 * index) / (q * q)
    return total


def _polygamma_numpy(order: Any, x: Any) -> Any:
    """(-1)^(n+1) n! zeta(n + 1, x) (DLMF 5.15.1 ff.); a NaN unless the order n is a non-negative integer."""
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


def bessel(x: Any, order: int) -> Any:
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
    return bessel(np.abs(_double(x)), 0).astype(x.dtype)


def _i1e_numpy(x: Any) -> Any:
    return np.copysign(bessel(np.abs(_double(x)), 1), _double(x)).astype(x.dtype)


# --- records ----------------------------------------------------------------------------------------------------


def _special(name: str, numpy: Callable[..., Any], tangent: Callable[..., Any]) -> Any:
    return unary(name, numpy=numpy, xla=by_float32(name), accepts="floating", tangent=tangent, flops=20)


_AT_2 = [1 - np.euler_gamma, *((-1) ** k * float(_zeta(np.float64(k), np.float64(2))) / k for k in range(2, 28))]
"""The coefficients of lgamma(2 + d) from that of d on (DLMF 5.7.3): of its powers, (-1)^k (zeta(k) - 1) / k."""


def lgamma_near_2(lax: Any, apart: Any) -> Any:
    """Return lgamma(2 + apart), for XLA, with the digits of numbers near 0; apart is at most 1/2 in size."""
    total, digits = lax.full_like(apart, 0.0), float(np.finfo(apart.dtype).eps) / 8
    for coefficient in reversed([each for k, each in enumerate(_AT_2) if abs(each) * 0.5 ** k > digits]):
        total = lax.mul(apart, lax.add(total, lax.full_like(apart, coefficient)))
    return total


def _lgamma_xla(lax: Any, x: Any) -> Any:
    """Call XLA's, and from 1/2 to 5/2, where it loses the digits of numbers near 0, sum the series at 2."""
    half, one, two = (lax.full_like(x, number) for number in (0.5, 1.0, 2.0))
    near = lax.bitwise_and(lax.ge(x, half), lax.le(x, lax.full_like(x, 2.5)))
    is_low = lax.lt(x, lax.full_like(x, 1.5))
    apart = lax.sub(lax.select(near, x, two), lax.select(is_low, one, two))
    apart = lax.select(near, apart, lax.full_like(x, 0.0))
    total = lgamma_near_2(lax, apart)
    series = lax.select(is_low, lax.sub(total, lax.log1p(apart)), total)
    return lax.select(near, series, lax.lgamma(lax.select(near, one, x)))


def _gaussian(x: Any, factor: float) -> Any:
    return mul(exp(neg(mul(x, x))), factor)


erf_p = _special("erf", _erf_numpy, lambda t, out, x: mul(t, _gaussian(x, 2 / math.sqrt(math.pi))))
erfc_p = _special("erfc", _erfc_numpy, lambda t, out, x: mul(t, _gaussian(x, -2 / math.sqrt(math.pi))))
erf_inv_p = _special("erf_inv", _erf_inv_numpy,
                     lambda t, out, x: mul(t, mul(exp(mul(out, out)), math.sqrt(math.pi) / 2)))
lgamma_p = unary("lgamma", numpy=_lgamma_numpy, xla=kernel(_lgamma_xla), accepts="floating", flops=20,
                 tangent=lambda t, out, x: mul(t, digamma(x)))
digamma_p = _special("digamma", _digamma_numpy, lambda t, out, x: mul(t, polygamma(1.0, x)))
erf, erfc, erf_inv, lgamma, digamma = map(operation, (erf_p, erfc_p, erf_inv_p, lgamma_p, digamma_p))


ndtri_p = unary("ndtri", numpy=_ndtri_numpy, accepts="floating", flops=20, xla=xla_kernels.special("ndtri"),
                tangent=lambda t, out, p: mul(t, mul(exp(div(mul(out, out), 2.0)), math.sqrt(2 * math.pi))))
ndtri = operation(ndtri_p)


def _no_derivative_in_order(*_: Any) -> Any:
    raise UnsupportedError(at_user_line("polygamma(n, x) has no derivative in its order n, a whole number; "
                                        "pass n as a constant"))


def _polygamma_xla(lax: Any, order: Any, x: Any) -> Any:
    """Call XLA's, below 0 at x + k > 0, with the terms of its series before: XLA's series begins at x in any case."""
    zero, one = lax.full_like(x, 0.0), lax.full_like(x, 1.0)
    is_low = lax.bitwise_and(lax.lt(x, zero), lax.gt(order, zero))
    usual = lax.polygamma(order, lax.select(is_low, one, x))

    def shift() -> Any:
        power = lax.add(order, one)
        start = lax.select(lax.bitwise_and(is_low, lax.ge(x, lax.full_like(x, -float(_FARTHEST)))), x, one)

        def add_term(state: Any) -> Any:
            at, total = state
            below = lax.lt(at, one)
            term = lax.select(below, lax.pow(at, lax.neg(power)), zero)
            return lax.select(below, lax.add(at, one), at), lax.add(total, term)

        at, total = lax.while_loop(lambda state: lax.reduce_or(lax.lt(state[0], one), (*range(x.ndim),)), add_term,
                                   (start, zero))
        odd = lax.ne(lax.rem(order, lax.full_like(x, 2.0)), zero)
        terms = lax.mul(lax.exp(lax.lgamma(power)), lax.select(odd, total, lax.neg(total)))
        pole = lax.select(odd, lax.full_like(x, math.inf), lax.full_like(x, math.nan))
        value = lax.select(lax.eq(x, lax.floor(x)), pole, lax.add(lax.polygamma(order, at), terms))
        return lax.select(lax.eq(start, x), value, lax.full_like(x, math.nan))

    return lax.select(is_low, if_any(lax, is_low, shift, zero), usual)


polygamma_p = binary("polygamma", numpy=_polygamma_numpy, xla=kernel(_polygamma_xla), accepts="floating", flops=100,
                     tangents=[_no_derivative_in_order, lambda t, out, n, x: mul(t, polygamma(add(n, 1.0), x))])
polygamma = operation(polygamma_p)

def in_powers(x: Any, coefficients: Sequence[float]) -> Any:
    """Return a polynomial, given its coefficients, that of order 0 first."""
    total = mul(x, coefficients[-1])
    for coefficient in coefficients[-2:0:-1]:
        total = mul(x, add(total, coefficient))
    return add(total, coefficients[0])


def _coefficients_of_bessel(order: int) -> list[float]:
    """Return those of the asymptotic series of exp(-x) I_n(x) root(2 pi x) in 1/x (DLMF 10.40.1)."""
    terms = [1.0]
    for k in range(1, 20):
        terms.append(terms[-1] * ((2 * k - 1) ** 2 - 4 * order * order) / (8 * k))
    return terms


_DIFFERENCE = [one - other for one, other in zip(*map(_coefficients_of_bessel, (0, 1)), strict=True)]


def _difference_or(near: Any, factor: Any, x: Any) -> Any:
    """Return `near`, and `factor` times i0e(x) - |i1e(x)| for large x, where both are nearly equal.

    That is computed term by term of their asymptotic series.
    """
    size, (bound, count) = absolute(x), (30.0, 20) if aval_of(x).dtype.itemsize == 8 else (20.0, 9)
    far = gt(size, bound)
    large = where(far, size, bound)
    series = div(in_powers(div(1.0, large), _DIFFERENCE[:count]), sqrt(mul(large, 2 * math.pi)))
    return where(far, mul(factor, series), near)


bessel_i0e_p = _special("bessel_i0e", _i0e_numpy, lambda t, out, x: mul(
    t, _difference_or(sub(bessel_i1e(x), mul(sign(x), out)), neg(sign(x)), x)))


_I1_OVER_X = [0.5 ** (2 * k + 1) / (math.factorial(k) * math.factorial(k + 1)) for k in range(12)]


def _i1e_tangent(t: Any, out: Any, x: Any) -> Any:
    """i0e(x) - |i1e(x)| - i1e(x) / x (DLMF 10.29.2), with the last term by its series near 0 (DLMF 10.25.2).

    Quotients by a small x lose the digits of higher derivatives, and one by 0 has none.
    """
    near = lt(absolute(x), 1.0)
    ratio = where(near, mul(in_powers(mul(x, x), _I1_OVER_X), exp(neg(absolute(x)))),
                  div(out, where(near, 1.0, x)))
    return mul(t, sub(_difference_or(sub(bessel_i0e(x), mul(out, sign(x))), 1.0, x), ratio))


bessel_i1e_p = _special("bessel_i1e", _i1e_numpy, _i1e_tangent)
bessel_i0e, bessel_i1e = operation(bessel_i0e_p), operation(bessel_i1e_p)

# --- products with logarithms -----------------------------------------------------------------------------------


def _product_with_log(name: str, logarithm: str, tangents: list[Callable[..., Any]]) -> Any:
    """Return the record of x times a logarithm of y, which is 0 where x is 0, whatever number y is."""
    kernel = getattr(np, logarithm)

    def numpy(x: Any, y: Any) -> Any:
        product = np.multiply(x, kernel(y))
        return np.where(np.equal(x, 0) & np.equal(y, y), np.zeros_like(product), product)[()]

    def xla(lax: Any, x: Any, y: Any) -> Any:
        zero = lax.full_like(x, 0)
        absent = lax.bitwise_and(lax.eq(x, zero), lax.eq(y, y))
        return lax.select(absent, zero, lax.mul(x, getattr(lax, logarithm)(y)))

    return binary(name, numpy=numpy, xla=xla, accepts="inexact", flops=3, tangents=tangents)


def _quotient(x: Any, y: Any) -> Any:
    """Return x / y, and 0 where both are 0: there the product is 0 for every y. The slope in x is 1 / y elsewhere."""
    return div(x, where(and_(eq(x, 0.0), eq(y, 0.0)), math.inf, y))


xlogy_p = _product_with_log("xlogy", "log", [lambda t, out, x, y: mul(t, log(y)),
                                             lambda t, out, x, y: mul(t, _quotient(x, y))])
xlog1py_p = _product_with_log("xlog1py", "log1p", [lambda t, out, x, y: mul(t, log1p(y)),
                                                   lambda t, out, x, y: mul(t, _quotient(x, add(y, 1.0)))])
xlogy, xlog1py = operation(xlogy_p), operation(xlog1py_p)


def _entr_numpy(x: Any) -> Any:
    return np.where(x > 0, -x * np.log(np.where(x > 0, x, np.ones_like(x))),
                    np.where(x == 0, np.zeros_like(x), np.where(x < 0, x.dtype.type(-np.inf), x)))[()]


def _entr_xla(lax: Any, x: Any) -> Any:
    zero = lax.full_like(x, 0)
    product = lax.select(lax.eq(x, zero), zero, lax.neg(lax.mul(x, lax.log(x))))
    return lax.select(lax.lt(x, zero), lax.full_like(x, -math.inf), product)


entr_p = unary("entr", numpy=_entr_numpy, xla=_entr_xla, accepts="floating", flops=3,
               tangent=lambda t, out, x: mul(t, where(lt(x, 0.0), 0.0, neg(add(log(x), 1.0)))))
entr = operation(entr_p)
