"""Special functions of whole orders by recurrence: Bessel functions of the first kind, spherical harmonics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import as_array_operand, promote_inexact, refuse_complex
from fxgrad.engine.ops.arithmetic import div, mul, neg, sub
from fxgrad.engine.ops.comparison import gt, le, lt
from fxgrad.engine.ops.cumulative import cumprod
from fxgrad.engine.ops.exponential import exp, sqrt
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.parts import abs as absolute
from fxgrad.engine.ops.parts import complex as complex_of
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.shaping import rev, slice_in_dim
from fxgrad.engine.ops.special import lgamma
from fxgrad.engine.ops.structural import broadcast_to, convert, reduce_sum, zeros
from fxgrad.engine.ops.trigonometric import cos, sin
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, UnsupportedError
from fxgrad.lax.loops import scan
from fxgrad.random.keys import positive_int


def bessel_jn(z: Any, *, v: int, n_iter: int = 50) -> Any:
    """Return J_0(z), ..., J_v(z), the Bessel functions of the first kind, stacked along a new first axis.

    `z` is real, of any shape. The ratios of neighbours are computed by recurrence downwards from the order `n_iter`,
    which must be greater than `v` and, for full accuracy, well above abs(z); 1 = J_0 + 2 J_2 + 2 J_4 + ... gives the
    scale (Abramowitz and Stegun, 9.1.27 and 9.1.46). Raises `ArgumentError` for invalid orders, `DTypeError` for
    complex `z`.

    >>> bessel_jn(1.0, v=1).round(4)
    array([0.7652, 0.4401])
    """
    if isinstance(v, bool) or not isinstance(v, int | np.integer) or not 0 <= v < n_iter:
        raise ArgumentError(at_user_line(
            f"bessel_jn: v={v!r} and n_iter={n_iter!r}; an integer v from 0 to n_iter - 1 is needed"))
    refuse_complex("bessel_jn", as_array_operand(z))
    x, = promote_inexact(z)
    aval = aval_of(x).strong()
    x = convert(x, aval.dtype)

    def down(above: Any, order: Any) -> tuple[Any, Any]:
        ratio = div(x, sub(mul(2.0, order), mul(x, above)))  # J_k / J_(k-1)
        return ratio, ratio

    orders = np.arange(n_iter, 0, -1).astype(aval.dtype)
    ratios = rev(scan(down, zeros(aval), orders)[1], (0,))
    relative = cumprod(ratios, 0)
    even = slice_in_dim(relative, 1, n_iter, 0, 2)
    first = div(1.0, add(1.0, mul(2.0, reduce_sum(even, (0,)))))
    one = broadcast_to(np.ones((), aval.dtype), (1, *aval.shape))
    return mul(concatenate([one, slice_in_dim(relative, 0, int(v), 0)], 0), first)


def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, diff_n: None = None, n_max: int | None = None) -> Any:
    """Return the spherical harmonics Y_n^m(theta, phi), orthonormal on the sphere, with the phase (-1)^m.

    `n` >= 0 and `m` are integers, `theta` (from 0 to pi) is the angle from the pole, `phi` that around it; all are
    broadcast. The result is 0 where abs(`m`) > `n`. `n_max` is the maximal degree, and is needed if `n` is traced;
    larger degrees are clipped to it. The result is complex. It is computed by recurrence in the degree (W. Press et
    al., "Numerical Recipes", 6.7).
    Raises `ArgumentError` without `n_max` if `n` has no value, `DTypeError` for degrees that are not integers,
    `UnsupportedError` for `diff_n`, which jax does not have either.

    >>> print(sph_harm_y(1, 0, 0.5, 0.3).real.round(4))
    0.4288
    """
    if diff_n is not None:
        raise UnsupportedError(at_user_line("sph_harm_y: diff_n is not supported; take derivatives with fxgrad.grad"))
    degree, order = as_array_operand(n), as_array_operand(m)
    for each, name in ((degree, "n"), (order, "m")):
        if not dtypes.is_integer(aval_of(each).dtype):
            raise DTypeError(at_user_line(f"sph_harm_y: {name} must be integers, got {aval_of(each)}"))
    if n_max is None:
        if isinstance(degree, Tracer):
            raise ArgumentError(at_user_line("sph_harm_y: n is traced, so its greatest value is not known. Pass n_max"))
        n_max = int(np.max(np.asarray(degree), initial=0))
    polar, around = promote_inexact(theta, phi)
    dtype = aval_of(polar).dtype
    polar, around = convert(polar, dtype), convert(around, dtype)
    last = np.array(positive_int("sph_harm_y", "n_max", n_max), dtype)
    degree, order = convert(degree, dtype), convert(order, dtype)
    degree, size = where(gt(degree, last), last, degree), absolute(order)
    shape = np.broadcast_shapes(*(aval_of(each).shape for each in (degree, size, polar, around)))
    degree, size, order, polar, around = (broadcast_to(each, shape) for each in (degree, size, order, polar, around))
    legendre = where(gt(size, degree), 0.0, _legendre(degree, size, polar, n_max, dtype))
    turned = mul(size, around)
    # Y_n^-m is the conjugate of Y_n^m, times (-1)^m.
    negative = lt(order, 0.0)
    sign = where(negative, _parity(size), 1.0)
    return complex_of(mul(sign, mul(legendre, cos(turned))),
                      mul(where(negative, neg(sign), sign), mul(legendre, sin(turned))))


def _parity(size: Any) -> Any:
    """Return (-1) to the power of whole numbers."""
    return cos(mul(size, math.pi))


def _legendre(degree: Any, order: Any, polar: Any, n_max: int, dtype: Any) -> Any:
    """Return the normalised associated Legendre functions, by recurrence up from degree = order."""
    logarithm = sub(lgamma(add(order, 0.5)), lgamma(add(order, 1.0)))
    scale = sqrt(mul(add(mul(2.0, order), 1.0), exp(sub(logarithm, 0.5 * math.log(math.pi)))))
    sine = sin(polar)
    power = _whole_power(where(lt(sine, 0.0), neg(sine), sine), order, n_max, dtype)  # the root of 1 - cos^2
    start = mul(mul(_parity(order), div(scale, math.sqrt(4 * math.pi))), power)
    x, squared = cos(polar), mul(order, order)

    def up(carry: tuple[Any, Any], level: Any) -> tuple[tuple[Any, Any], None]:
        below, current = carry
        above = gt(level, order)
        down = sub(level, 1.0)
        # Below the order nothing happens, and no root of a negative number may be taken.
        span = where(above, sub(mul(level, level), squared), 1.0)
        rise = sqrt(div(sub(mul(4.0, mul(level, level)), 1.0), span))
        inner = where(above, sub(mul(down, down), squared), 0.0)
        fall = sqrt(div(where(gt(inner, 0.0), inner, 1.0), absolute(sub(mul(4.0, mul(down, down)), 1.0))))
        fall = where(gt(inner, 0.0), fall, 0.0)
        following = mul(rise, sub(mul(x, current), mul(fall, below)))
        moves = where(le(level, degree), above, False)
        return (where(moves, current, below), where(moves, following, current)), None

    levels = np.arange(1, n_max + 1).astype(dtype)
    return scan(up, (zeros(aval_of(start).strong()), start), levels)[0][1]


def _whole_power(x: Any, power: Any, most: int, dtype: Any) -> Any:
    """Return `x` to whole powers up to `most`, by multiplication, so that derivatives exist at 0."""
    one = broadcast_to(np.ones((), dtype), aval_of(x).shape)
    return scan(lambda product, level: (where(le(level, power), mul(product, x), product), None), one,
                np.arange(1, most + 1).astype(dtype))[0]
