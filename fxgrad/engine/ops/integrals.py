"""Functions defined by integrals: exponential, sine and Fresnel integrals, Dawson's, Owen's T, Spence's function.

The kernels are those of jax.scipy.special, and our own for E_n; for NumPy arrays too, on the CPU. Derivatives are
closed forms of the DLMF (dlmf.nist.gov), whose sections are named.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.engine.ops import xla_kernels
from fxgrad.engine.ops.arithmetic import add, div, mul, neg, sub
from fxgrad.engine.ops.comparison import gt, lt
from fxgrad.engine.ops.exponential import exp, log, square
from fxgrad.engine.ops.gamma import by_xla, no_derivative
from fxgrad.engine.ops.parts import abs, floor
from fxgrad.engine.ops.pointwise import operation
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.special import erf, in_powers
from fxgrad.engine.ops.tails import kernel
from fxgrad.engine.ops.trigonometric import cos, sin
from fxgrad.engine.tracing.tape import aval_of

special = xla_kernels.special

# --- the normal distribution --------------------------------------------------------------------------------------

_TO_DENSITY = 2 / math.sqrt(math.pi)


def _erfcx_xla(lax: Any, x: Any) -> Any:
    """Call jax's, or for large x the asymptotic series (DLMF 7.12.1): jax's is 0 before it switches to its own."""
    far = lax.gt(x, lax.full_like(x, 25.0 if x.dtype.itemsize == 8 else 8.0))
    safe = lax.select(far, x, lax.full_like(x, 1.0))
    term = lax.div(lax.full_like(x, 0.5), lax.mul(safe, safe))
    series = lax.full_like(x, 1.0)
    for factor in range(13, 0, -2):
        series = lax.sub(lax.full_like(x, 1.0), lax.mul(lax.mul(term, lax.full_like(x, float(factor))), series))
    asymptotic = lax.div(lax.mul(series, lax.full_like(x, 1 / math.sqrt(math.pi))), safe)
    return lax.select(far, asymptotic, special("erfcx")(lax, lax.select(far, lax.full_like(x, 1.0), x)))


def _beyond(x: Any, single: float, double: float) -> tuple[Any, Any]:
    """Return whether x is greater than a bound, by its precision, and x there, the bound elsewhere."""
    bound = double if aval_of(x).dtype.itemsize == 8 else single
    far = gt(x, bound)
    return far, where(far, x, bound)


def _erfcx_tangent(t: Any, out: Any, x: Any) -> Any:
    """2 x erfcx(x) - 2/root(pi); for large x, where that has lost its digits, by a continued fraction (DLMF 7.9.1).

    erfcx(x) = 1/root(pi) / (x + r) with r = (1/2) / (x + 1 / (x + (3/2) / (x + ...))), so the slope is -2 r erfcx(x).
    """
    far, safe = _beyond(x, 3.0, 6.0)
    below = safe
    for half in range(14 if aval_of(x).dtype.itemsize == 8 else 10, 0, -1):
        rest = div(0.5 * half, below)
        below = add(safe, rest)
    return mul(t, where(far, mul(mul(out, -2.0), rest), sub(mul(mul(x, 2.0), out), _TO_DENSITY)))


_DAWSON = [-math.prod(range(1, 2 * k, 2)) / 2 ** k for k in range(1, 13)]


def _dawsn_tangent(t: Any, out: Any, x: Any) -> Any:
    """1 - 2 x dawsn(x); for large x, where that has lost its digits, by the asymptotic series (DLMF 7.12.1)."""
    far, safe = _beyond(abs(x), 5.0, 10.0)
    powers = div(1.0, square(safe))
    return mul(t, where(far, mul(powers, in_powers(powers, _DAWSON)), sub(1.0, mul(mul(x, 2.0), out))))


erfcx_p = by_xla("erfcx", 1, [_erfcx_tangent], xla=_erfcx_xla)
dawsn_p = by_xla("dawsn", 1, [_dawsn_tangent], xla=special("dawsn"))


def _owens_t_xla(lax: Any, h: Any, a: Any) -> Any:
    """Call jax's, and for h = 0, where a h may be no number, take the angle of a (Owen 1956)."""
    zero = lax.full_like(h, 0.0)
    angle = lax.mul(lax.atan(a), lax.full_like(a, 0.5 / math.pi))
    return lax.select(lax.eq(h, zero), angle, special("owens_t")(lax, h, a))


def _owens_t_in_h(t: Any, out: Any, h: Any, a: Any) -> Any:
    """-exp(-h^2/2) erf(a h / root 2) / root(8 pi)."""
    density = mul(exp(div(neg(square(h)), 2.0)), -1 / math.sqrt(8 * math.pi))
    return mul(t, mul(density, erf(mul(mul(a, h), math.sqrt(0.5)))))


def _owens_t_in_a(t: Any, out: Any, h: Any, a: Any) -> Any:
    """exp(-h^2 (1 + a^2) / 2) / (2 pi (1 + a^2)): the integrand that defines the function."""
    grown = add(square(a), 1.0)
    return mul(t, div(exp(mul(mul(square(h), grown), -0.5)), mul(grown, 2 * math.pi)))


owens_t_p = by_xla("owens_t", 2, [_owens_t_in_h, _owens_t_in_a], xla=kernel(_owens_t_xla))
wofz_p = by_xla("wofz", 1, [lambda t, out, z: mul(t, add(mul(mul(z, -2.0), out), 1j * _TO_DENSITY))],
                xla=special("wofz"), accepts="complex")
erfcx, dawsn, owens_t, wofz = map(operation, (erfcx_p, dawsn_p, owens_t_p, wofz_p))

# --- exponential, sine and Fresnel integrals (DLMF 6.2, 7.2, 8.19) ----------------------------------------------


def _expn_tangent(t: Any, out: Any, n: Any, x: Any) -> Any:
    """-E(n - 1, x): by recurrence (8.19.12) where that order is negative, for which newer versions of jax give NaN."""
    order = floor(n)  # as of the value
    positive = gt(order, 0.0)
    known = expn(where(positive, sub(order, 1.0), 0.0), x)
    recurrent = div(add(exp(neg(x)), mul(sub(1.0, order), out)), x)
    return neg(mul(t, where(positive, known, recurrent)))


_MANY = 5000.0
"""From this order on E_n is computed by a series in 1 / n."""
_TERMS_UP_TO_1, _STEPS_FROM_1 = 21, 100
"""So many give all digits of float64 at 1."""


def _expn_series(lax: Any, n: Any, x: Any) -> Any:
    """Sum the series of E_n (DLMF 8.19.8), for 0 < x <= 1 and n >= 1.

    The term with x^(n-1), whose divisor would be 0, has a logarithm instead.
    """
    one, last = lax.full_like(x, 1.0), lax.sub(n, lax.full_like(n, 1.0))
    logarithmic = lax.sub(lax.digamma(n), lax.log(x))

    def add_term(m: Any, state: Any) -> Any:
        power, total = state
        number = lax.mul(one, lax.convert_element_type(m, x.dtype))
        distance = lax.sub(last, number)
        is_last = lax.eq(distance, lax.full_like(x, 0.0))
        factor = lax.select(is_last, logarithmic, lax.div(one, lax.select(is_last, one, distance)))
        following = lax.div(lax.mul(power, lax.neg(x)), lax.add(number, one))
        return following, lax.add(total, lax.mul(power, factor))

    return lax.fori_loop(0, _TERMS_UP_TO_1, add_term, (one, lax.full_like(x, 0.0)))[1]


def _expn_fraction(lax: Any, n: Any, x: Any) -> Any:
    """Return E_n for x >= 1 and n >= 1 by its continued fraction (DLMF 8.19.17), every second step, from the end."""
    start, one = lax.add(x, n), lax.full_like(x, 1.0)

    def step(done: Any, below: Any) -> Any:
        i = lax.mul(one, lax.convert_element_type(_STEPS_FROM_1 - done, x.dtype))
        top = lax.mul(i, lax.add(lax.sub(n, one), i))
        return lax.div(top, lax.sub(lax.add(start, lax.add(i, i)), below))

    return lax.div(lax.exp(lax.neg(x)), lax.sub(start, lax.fori_loop(0, _STEPS_FROM_1, step, lax.full_like(x, 0.0))))


def _expn_xla(lax: Any, n: Any, x: Any) -> Any:
    """Take the series up to 1, above the continued fraction, for large orders the terms of DLMF 8.20.2 to 8.20.5.

    Each is given its own arguments alone: jax's loops do not end for small x among other elements.
    """
    n = lax.convert_element_type(lax.convert_element_type(lax.min(n, lax.full_like(n, 1e9)), np.int32), x.dtype)
    zero, one = lax.full_like(x, 0.0), lax.full_like(x, 1.0)
    many, near = lax.ge(n, lax.full_like(n, _MANY)), lax.le(x, one)
    order = lax.select(lax.bitwise_or(many, lax.lt(n, one)), one, n)
    small = lax.select(lax.bitwise_and(near, lax.gt(x, zero)), x, one)
    few = lax.select(near, _expn_series(lax, order, small), _expn_fraction(lax, order, lax.select(near, one, x)))
    order = lax.select(many, n, lax.full_like(n, _MANY))
    ratio, total = lax.div(x, order), lax.add(x, order)
    each = lax.div(lax.div(order, total), total)  # powers of order / (x + order)^2
    series = one
    for first, second in ((-8.0, 6.0), (-2.0, 0.0), (0.0, 0.0)):  # 1 - 8 r + 6 r^2, 1 - 2 r, 1: the last term first
        squared = lax.mul(lax.full_like(x, second), ratio)
        factor = lax.add(one, lax.mul(ratio, lax.add(lax.full_like(x, first), squared)))
        series = factor if series is one else lax.add(factor, lax.mul(each, series))
    series = lax.add(one, lax.mul(each, series))
    result = lax.select(many, lax.div(lax.mul(lax.exp(lax.neg(x)), series), total), few)
    result = lax.select(lax.eq(n, zero), lax.div(lax.exp(lax.neg(x)), x), result)
    at_zero = lax.select(lax.gt(n, one), lax.div(one, lax.sub(n, one)), lax.full_like(x, math.inf))
    result = lax.select(lax.eq(x, zero), at_zero, result)
    result = lax.select(lax.eq(x, lax.full_like(x, math.inf)), zero, result)
    is_defined = lax.bitwise_and(lax.ge(x, zero), lax.ge(n, zero))
    return lax.select(is_defined, result, lax.full_like(x, math.nan))


def _exp1_xla(lax: Any, x: Any) -> Any:
    return _expn_xla(lax, lax.full_like(x, 1.0), x)


def _expi_xla(lax: Any, x: Any) -> Any:
    """Call jax's for positive x; below it is -exp1(-x), and jax's loops do not end (see `_expn_xla`)."""
    zero, infinity = lax.full_like(x, 0.0), lax.full_like(x, math.inf)
    is_usual = lax.bitwise_and(lax.gt(x, zero), lax.lt(x, infinity))
    above = special("expi")(lax, lax.select(is_usual, x, lax.full_like(x, 1.0)))
    above = lax.select(is_usual, above, lax.select(lax.eq(x, zero), lax.neg(infinity), x))
    return lax.select(lax.lt(x, zero), lax.neg(_exp1_xla(lax, lax.abs(x))), above)


exp1_p = by_xla("exp1", 1, [lambda t, out, x: neg(mul(t, div(exp(neg(x)), x)))], xla=kernel(_exp1_xla))
expi_p = by_xla("expi", 1, [lambda t, out, x: mul(t, div(exp(x), x))], xla=kernel(_expi_xla))
expn_p = by_xla("expn", 2, [no_derivative("expn(n, x)", "n"), _expn_tangent],
                xla=kernel(_expn_xla))


_SINE_OVER_X = [(-1) ** k / math.factorial(2 * k + 1) for k in range(11)]


def sine_over_x(x: Any) -> Any:
    """Return sin(x) / x, by its series near 0, so that derivatives up to the 20th are right there too."""
    near = lt(abs(x), 1.0)
    away = where(near, 1.0, x)
    return where(near, in_powers(square(where(near, x, 0.0)), _SINE_OVER_X), div(sin(away), away))


sine_integral_p = by_xla("sine_integral", 1, [lambda t, out, x: mul(t, sine_over_x(x))],
                         xla=lambda lax, x: special("sici")(lax, x)[0])
cosine_integral_p = by_xla("cosine_integral", 1, [lambda t, out, x: mul(t, div(cos(x), x))],
                           xla=lambda lax, x: special("sici")(lax, x)[1])
fresnel_sine_p = by_xla("fresnel_sine", 1, [lambda t, out, x: mul(t, sin(mul(square(x), math.pi / 2)))],
                        xla=lambda lax, x: special("fresnel")(lax, x)[0])
fresnel_cosine_p = by_xla("fresnel_cosine", 1, [lambda t, out, x: mul(t, cos(mul(square(x), math.pi / 2)))],
                          xla=lambda lax, x: special("fresnel")(lax, x)[1])
exp1, expi, expn, sine_integral, cosine_integral, fresnel_sine, fresnel_cosine = map(operation, (
    exp1_p, expi_p, expn_p, sine_integral_p, cosine_integral_p, fresnel_sine_p, fresnel_cosine_p))


def _spence_tangent(t: Any, out: Any, x: Any) -> Any:
    """log(x) / (1 - x) (DLMF 25.12.2), and near 1 its series in 1 - x, so that higher derivatives have their digits."""
    apart = sub(1.0, x)
    near = lt(abs(apart), 0.15)
    series = in_powers(where(near, apart, 0.0), [-1 / (k + 1) for k in range(24)])
    return mul(t, where(near, series, div(log(where(near, 1.0, x)), where(near, 1.0, apart))))


spence_p = by_xla("spence", 1, [_spence_tangent], xla=special("spence"))
spence = operation(spence_p)
