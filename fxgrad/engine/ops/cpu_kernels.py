"""Elementwise functions that XLA's CPU backend computes for many numbers at once, in place of its own.

For sin, cos and tan, and for log and log1p in float64, XLA calls the C library number by number, which takes 4 to 10
times as long as these. They have no branches, and are fused with what is around them. Few numbers stay with XLA's
own, which compile faster by 10 to 40 ms, and so do all numbers on other platforms.

The errors, in units of the last place: sin and cos at most 1.6, tan 2.6, log 0.9, log1p 0.9. Subnormal numbers count
as 0, as in XLA's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine.ops.tails import kernel
from fxgrad.engine.ops.xla_kernels import in_64_bits, jitted_rule

_FEW = 10_000
"""Fewer numbers than these stay with the C library."""


def on_cpus(native: str, many: Callable[..., Any], dtype: Any, few: int = _FEW) -> Callable[..., Any]:
    """Return the rule for XLA of a function: `many` on CPUs for a dtype from `few` numbers on, else `native`."""
    def by_platform(lax: Any, x: Any) -> Any:
        return lax.platform_dependent(x, cpu=lambda x: many(lax, x), default=getattr(lax, native))

    by_platform.__name__ = native
    traced_once = jitted_rule(by_platform)

    def rule(lax: Any, x: Any) -> Any:
        is_few = isinstance(x.size, int) and x.size < few
        return getattr(lax, native)(x) if is_few or x.dtype != dtype else traced_once(x)
    return kernel(rule) if dtype == np.float32 else rule


def _polynomial(lax: Any, z: Any, coefficients: tuple[float, ...]) -> Any:
    """Return the value of a polynomial; its coefficients begin with that of the highest power."""
    result = lax.full_like(z, coefficients[0])
    for coefficient in coefficients[1:]:
        result = lax.add(lax.mul(result, z), lax.full_like(z, coefficient))
    return result


def odd_function(lax: Any, x: Any, above: tuple[float, ...], below: tuple[float, ...] = ()) -> Any:
    """Return x (1 + x² q(x²)), where q is a polynomial, or a quotient of two."""
    z = lax.mul(x, x)
    quotient = _polynomial(lax, z, above)
    if below:
        quotient = lax.div(quotient, _polynomial(lax, z, below))
    return lax.add(lax.mul(x, lax.mul(z, quotient)), x)


# --- sin, cos and tan of float32 ----------------------------------------------------------------------------------

_TURNS = (0.15915494272485375, 3.6704158115630214e-10, 5.690025167992954e-19, 1.4703036846932608e-27,
          2.5867171752090537e-36, 9.458140970740169e-46)
"""1 / (2 pi), of which all but the last have 29 bits, so that their products with numbers of 24 bits are exact.

The last has the bits from 2^-148 on, of which the product with the greatest float32 is below 2^-20.
"""
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
"""(sin(r) / r - 1) / r² up to pi / 4 (S. Moshier, Cephes, sinf.c), as the next two."""
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
"""(cos(r) - 1 + r² / 2) / r⁴."""
_TAN = (9.38540185543e-3, 3.11992232697e-3, 2.44301354525e-2, 5.34112807005e-2, 1.33387994085e-1, 3.33331568548e-1)
"""(tan(r) / r - 1) / r² (tanf.c)."""
_TINY = 2.0 ** -12
"""Below this sin and tan are their argument, with its sign if it is 0."""


def _quarters(lax: Any, x: Any) -> tuple[Any, Any]:
    """Return how many quarter turns x is nearest to, up to a multiple of 4, and what is left, up to pi / 4.

    From each exact product with a part of 1 / (2 pi) whole turns are taken away, so that large numbers keep the digits
    that matter (M. Payne and R. Hanek, "Radian reduction for trigonometric functions", 1983, with products of floats).
    """
    def nearest(value: Any) -> Any:
        return lax.round(value, lax.RoundingMethod.TO_NEAREST_EVEN)

    with in_64_bits():
        wide = lax.convert_element_type(x, np.float64)
        *parts, rest = (lax.mul(wide, lax.full_like(wide, part)) for part in _TURNS)
        parts = [lax.sub(part, nearest(part)) for part in parts]
        total = parts[0]
        for part in parts[1:]:
            total = lax.add(total, part)
        quarters = nearest(lax.mul(total, lax.full_like(total, 4.0)))
        left = lax.sub(parts[0], lax.mul(quarters, lax.full_like(quarters, 0.25)))
        for part in (*parts[1:], rest):
            left = lax.add(left, part)
        angle = lax.mul(left, lax.full_like(left, 2 * math.pi))
        return lax.convert_element_type(quarters, np.int32), lax.convert_element_type(angle, np.float32)


def _sine_of_quarters(lax: Any, quarters: Any, r: Any) -> Any:
    """Return the sine of so many quarter turns and an angle up to pi / 4."""
    z, one = lax.mul(r, r), lax.full_like(r, 1.0)
    sine = odd_function(lax, r, _SIN)
    cosine = lax.add(lax.mul(lax.mul(_polynomial(lax, z, _COS), z), z),
                     lax.sub(one, lax.mul(z, lax.full_like(z, 0.5))))
    size = lax.select(_has_bit(lax, quarters, 1), cosine, sine)
    return lax.select(_has_bit(lax, quarters, 2), lax.neg(size), size)


def _has_bit(lax: Any, number: Any, bit: int) -> Any:
    return lax.ne(lax.bitwise_and(number, lax.full_like(number, bit)), lax.full_like(number, 0))


def _itself_if_tiny(lax: Any, x: Any, value: Any) -> Any:
    return lax.select(lax.lt(lax.abs(x), lax.full_like(x, _TINY)), x, value)


def _sin(lax: Any, x: Any) -> Any:
    return _itself_if_tiny(lax, x, _sine_of_quarters(lax, *_quarters(lax, x)))


def _cos(lax: Any, x: Any) -> Any:
    quarters, r = _quarters(lax, x)
    return _sine_of_quarters(lax, lax.add(quarters, lax.full_like(quarters, 1)), r)


def _tan(lax: Any, x: Any) -> Any:
    quarters, r = _quarters(lax, x)
    tangent = odd_function(lax, r, _TAN)
    turned = lax.div(lax.full_like(r, -1.0), tangent)
    return _itself_if_tiny(lax, x, lax.select(_has_bit(lax, quarters, 1), turned, tangent))


sin_xla, cos_xla, tan_xla = (on_cpus(name, many, np.float32)
                             for name, many in (("sin", _sin), ("cos", _cos), ("tan", _tan)))

# --- log and log1p of float64 -------------------------------------------------------------------------------------

_LOG = (1.479819860510658591e-1, 1.531383769920937332e-1, 1.818357216161805012e-1, 2.222219843214978396e-1,
        2.857142874366239149e-1, 3.999999999940941908e-1, 6.666666666666735130e-1)
"""(2 atanh(s) / s - 2) / s² for s up to 0.1716 (Sun Microsystems, fdlibm, e_log.c)."""
_LN2 = 6.93147180369123816490e-1, 1.90821492927058770002e-10
"""log(2) in two parts, the first with 33 bits, so that its products with exponents are exact."""
_ROOT_OF_HALF = 0x3FE6A09E667F3BCD
"""The bits of sqrt(1/2)."""
_WHOLE = 0x4338000000000000
"""The bits of 1.5 * 2^52: those of a small integer added to them are the bits of the sum as a float."""


def _log_from(lax: Any, exponent: Any, f: Any, more: Any) -> Any:
    """Return exponent log(2) + log(1 + f) + `more`, for f from sqrt(1/2) - 1 to sqrt(2) - 1 and a small number."""
    s = lax.div(f, lax.add(lax.full_like(f, 2.0), f))
    z = lax.mul(s, s)
    half = lax.mul(lax.full_like(f, 0.5), lax.mul(f, f))
    high, low = (lax.mul(exponent, lax.full_like(f, part)) for part in _LN2)
    series = lax.mul(s, lax.add(half, lax.mul(z, _polynomial(lax, z, _LOG))))
    return lax.sub(high, lax.sub(lax.sub(half, lax.add(series, lax.add(low, more))), f))


def _split(lax: Any, x: Any) -> tuple[Any, Any, Any]:
    """Return k, as a float, 2^k, and share, where x = 2^k share, with a share from sqrt(1/2) to sqrt(2)."""
    bits = lax.bitcast_convert_type(x, np.int64)
    k = lax.shift_right_arithmetic(lax.sub(bits, lax.full_like(bits, _ROOT_OF_HALF)), lax.full_like(bits, 52))
    share = lax.bitcast_convert_type(lax.sub(bits, lax.shift_left(k, lax.full_like(k, 52))), np.float64)
    # A conversion of int64 is not computed for many numbers at once.
    shifted = lax.bitcast_convert_type(lax.add(k, lax.full_like(k, _WHOLE)), np.float64)
    power = lax.shift_left(lax.add(k, lax.full_like(k, 1023)), lax.full_like(k, 52))
    return lax.sub(shifted, lax.full_like(x, 1.5 * 2.0 ** 52)), lax.bitcast_convert_type(power, np.float64), share


def _with_ends(lax: Any, x: Any, value: Any) -> Any:
    """Return the logarithm of x from where it is not finite: of 0, of negative numbers, of infinity and NaN."""
    zero, infinity = lax.full_like(x, 0.0), lax.full_like(x, math.inf)
    value = lax.select(lax.lt(x, infinity), value, x)
    value = lax.select(lax.eq(x, zero), lax.neg(infinity), value)
    return lax.select(lax.lt(x, zero), lax.full_like(x, math.nan), value)


def _log(lax: Any, x: Any) -> Any:
    exponent, _, share = _split(lax, x)
    return _with_ends(lax, x, _log_from(lax, exponent, lax.sub(share, lax.full_like(x, 1.0)), lax.full_like(x, 0.0)))


def _log1p(lax: Any, x: Any) -> Any:
    """Add what the rounding of 1 + x lost, of which XLA must not see the whole: it would take (1 + x) - 1 for x."""
    zero, one = lax.full_like(x, 0.0), lax.full_like(x, 1.0)
    sum_ = lax.add(one, x)
    exponent, power, share = _split(lax, sum_)
    lost = lax.sub(x, lax.sub(lax.mul(power, share), one))
    is_far = lax.gt(x, lax.full_like(x, 2.0 ** 54))  # 2^k may be infinite
    value = _log_from(lax, exponent, lax.sub(share, one), lax.select(is_far, zero, lax.div(lost, sum_)))
    return lax.select(lax.eq(x, zero), x, _with_ends(lax, sum_, value))


log_xla = on_cpus("log", _log, np.float64)
log1p_xla = on_cpus("log1p", _log1p, np.float64, few=0)  # XLA's own is up to 128 units of the last place off
