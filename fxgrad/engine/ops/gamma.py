"""Incomplete gamma functions, beta and zeta functions: igamma igammac igamma_grad_a random_gamma_grad betaln zeta.

Also the logarithms of densities that these are integrals and sums of.

The kernels are XLA's, and our own for large parameters; for NumPy arrays too, on the CPU. Formulas are those of the
DLMF (dlmf.nist.gov).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops import tails, xla_kernels
from fxgrad.engine.ops.arithmetic import add, div, mul, neg, stop_gradient, sub
from fxgrad.engine.ops.comparison import and_, eq, ge, gt, le, lt, or_
from fxgrad.engine.ops.cumulative import cumprod, cumsum
from fxgrad.engine.ops.exponential import exp, log, log1p, pow
from fxgrad.engine.ops.families import lax_function
from fxgrad.engine.ops.parts import abs, floor
from fxgrad.engine.ops.pointwise import align, elementwise, operation, scalar_like
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.special import BERNOULLI, digamma, in_powers, lgamma, lgamma_near_2, xlog1py, xlogy
from fxgrad.engine.ops.structural import reduce_sum, reshape
from fxgrad.engine.ops.trigonometric import sin
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import UnsupportedError


def by_xla(name: str, arity: int, tangents: Sequence[Callable[..., Any]], *, xla: Callable[..., Any] | None = None,
           accepts: str = "floating") -> Primitive:
    """Return the record of an elementwise function with XLA's kernel `xla(lax, *values)`, by default `lax`'s."""
    rule = xla or lax_function(name)
    return elementwise(name, arity, accepts=accepts, tangents=tangents, flops=500, xla=rule,
                       numpy=xla_kernels.elementwise_on_cpu(rule))


def no_derivative(function: str, parameter: str) -> Callable[..., Any]:
    """Return a tangent rule that raises: the derivative of `function` in `parameter` has no closed form."""
    def refuse(*_: Any) -> Any:
        raise UnsupportedError(at_user_line(
            f"{function} has no derivative in {parameter}: no closed form is known. Pass {parameter} as a constant "
            f"(fxgrad.stop_gradient({parameter})), or differentiate with respect to the other arguments only"))
    return refuse


_FROM_HERE_ON = 8.0
"""From this on Stirling's series is exact to rounding."""
_OF_STIRLING = [number / (2 * k * (2 * k - 1)) for k, number in enumerate(BERNOULLI, 1)]


def _stirling_xla(lax: Any, x: Any) -> Any:
    """Return `stirling_error` of large numbers, for XLA."""
    inverse, total = lax.div(lax.full_like(x, 1.0), x), lax.full_like(x, 0.0)
    square = lax.mul(inverse, inverse)
    for coefficient in reversed(_OF_STIRLING):
        total = lax.add(lax.mul(total, square), lax.full_like(x, coefficient))
    return lax.mul(total, inverse)


def betaln_xla(lax: Any, a: Any, b: Any) -> Any:
    """Use Stirling's series (DLMF 5.11.1) where a difference of logarithms would be one of large numbers.

    With n the smaller, m the larger parameter, all terms have one sign if both are large; else gamma(n) is left apart.
    """
    zero, infinity = lax.full_like(a, 0), lax.full_like(a, math.inf)
    positive = lax.bitwise_and(lax.gt(a, zero), lax.gt(b, zero))
    one, half, large = (lax.full_like(a, number) for number in (1.0, 0.5, _FROM_HERE_ON))
    most, sum_ = lax.max(a, b), lax.add(a, b)
    far = lax.bitwise_and(lax.gt(most, large), lax.gt(sum_, large))
    m, n, total = (lax.select(far, *pair) for pair in (
        (most, large), (lax.min(a, b), large), (sum_, lax.add(large, large))))
    both = lax.gt(n, large)
    share, errors = lax.log1p(lax.div(n, m)), lax.sub(_stirling_xla(lax, m), _stirling_xla(lax, total))
    upper = lax.select(both, n, large)
    logs = lax.sub(lax.mul(lax.sub(upper, half), lax.log(lax.div(upper, total))), lax.mul(m, share))
    scale = lax.mul(half, lax.log(lax.div(lax.full_like(a, 2 * math.pi), m)))
    wide = lax.add(lax.add(logs, scale), lax.add(errors, _stirling_xla(lax, upper)))
    rest = lax.sub(lax.mul(n, lax.sub(one, lax.log(m))), lax.mul(lax.sub(total, half), share))
    series = lax.select(both, wide, lax.add(lax.lgamma(n), lax.add(rest, errors)))
    near = lax.sub(lax.add(lax.lgamma(a), lax.lgamma(b)), lax.lgamma(sum_))
    endless = lax.bitwise_and(positive, lax.eq(lax.max(a, b), infinity))
    return lax.select(endless, lax.neg(infinity), lax.select(far, series, near))


_OF_DIGAMMA = [number / (2 * k) for k, number in enumerate(BERNOULLI, 1)]


def _digamma_difference(x: Any, step: Any) -> Any:
    """Return digamma(x) - digamma(x + step) where both are positive, with the digits of small steps.

    By recurrence (DLMF 5.5.2) to large x, and there term by term of the asymptotic series (5.11.2): the difference of
    two values of its polynomial, at 1 / x^2 and 1 / (x + step)^2, is that of these arguments times a quotient.
    """
    near = or_(le(x, 8.0), le(add(x, step), 8.0))
    total, moved = mul(x, 0.0), x
    for _ in range(8):
        total = sub(total, where(near, div(div(step, moved), add(moved, step)), 0.0))
        moved = add(moved, where(near, scalar_like(1.0, x), 0.0))
    above = add(moved, step)
    one, other = (div(1.0, mul(each, each)) for each in (moved, above))
    value = quotient = mul(one, 0.0)
    for coefficient in (*reversed(_OF_DIGAMMA), 0.0):
        quotient = add(mul(quotient, one), value)
        value = add(mul(value, other), coefficient)
    ratio = div(step, moved)
    apart = mul(mul(mul(ratio, add(moved, above)), div(other, moved)), quotient)
    return sub(total, add(add(log1p(ratio), div(ratio, mul(above, 2.0))), apart))


def _sin_pi(x: Any) -> Any:
    """Return sin(pi x), with the digits of x near an integer."""
    whole = floor(add(x, 0.5))
    odd = gt(sub(mul(whole, 0.5), floor(mul(whole, 0.5))), 0.0)
    return mul(sin(mul(sub(x, whole), math.pi)), where(odd, scalar_like(-1.0, x), 1.0))


def _betaln_tangent(t: Any, a: Any, b: Any) -> Any:
    """digamma(a) - digamma(a + b), of two negative numbers by reflection (DLMF 5.5.4)."""
    total = add(a, b)
    high, low = and_(gt(a, 0.0), gt(total, 0.0)), and_(lt(a, 0.0), lt(total, 0.0))
    start = where(high, a, where(low, sub(1.0, total), 1.0))
    apart = _digamma_difference(start, where(or_(high, low), b, 1.0))
    first, second, between = (_sin_pi(where(low, each, 0.25)) for each in (a, total, b))
    cotangents = div(div(mul(between, math.pi), first), second)  # pi cot(pi a) - pi cot(pi (a + b))
    usual = sub(digamma(where(or_(high, low), 1.0, a)), digamma(where(or_(high, low), 2.0, total)))
    return mul(t, where(high, apart, where(low, neg(add(apart, cotangents)), usual)))


betaln_p = by_xla("betaln", 2, [lambda t, out, a, b: _betaln_tangent(t, a, b),
                                lambda t, out, a, b: _betaln_tangent(t, b, a)],
                  xla=lambda lax, a, b: betaln_xla(lax, *align(lax, a, b)))
betaln = operation(betaln_p)


# --- densities, without differences of large numbers ----------------------------------------------------------------
# C. Loader, "Fast and accurate computation of binomial probabilities" (2000).

_NEAR = 0.3
_OF_ATANH = [1 / odd for odd in range(3, 25, 2)]


def log_excess(m: Any) -> Any:
    """Return m - log(1 + m), near 0 by a series: r m - 2 (r^3 / 3 + r^5 / 5 + ...) with r = m / (2 + m)."""
    near = lt(abs(m), _NEAR)
    small, large = where(near, m, 0.0), where(near, 1.0, m)
    ratio = div(small, add(small, 2.0))
    square = mul(ratio, ratio)
    series = mul(ratio, sub(small, mul(mul(square, in_powers(square, _OF_ATANH)), 2.0)))
    return where(near, series, sub(large, log1p(large)))


def deviance(k: Any, mean: Any, tiny: bool = False) -> Any:
    """Return k log(k / mean) - k + mean for k >= 0, with all digits where k is near the mean.

    With `tiny`, slopes are right where the product of both underflows, by which XLA divides in those of k / mean.
    """
    none = le(k, 0.0)
    count = where(none, 1.0, k)
    apart = sub(mean, count)
    near = lt(abs(apart), mul(count, _NEAR))
    close = mul(count, log_excess(div(where(near, apart, 0.0), count)))
    above, below = where(near, 1.0, count), where(near, 1.0, mean)
    quotient = neg(log(div(below, above)))  # also of a mean of -0.0
    if tiny:  # this value, and the slopes of a difference
        difference = sub(log(above), log(below))
        quotient = add(stop_gradient(sub(quotient, difference)), difference)
    return where(none, mean, where(near, close, add(mul(count, quotient), apart)))


def stirling_error(x: Any) -> Any:
    """Return log(gamma(x)) - ((x - 1/2) log(x) - x + log(2 pi) / 2) for x > 0, for large x by DLMF 5.11.1."""
    bound = 8.0 if aval_of(x).dtype.itemsize == 8 else 3.0
    far = gt(x, bound)
    large, small = where(far, x, bound), where(far, 1.0, x)
    inverse = div(1.0, large)
    rest = sub(mul(sub(small, 0.5), log(small)), sub(small, 0.5 * math.log(2 * math.pi)))
    return where(far, mul(inverse, in_powers(mul(inverse, inverse), _OF_STIRLING)), sub(lgamma(small), rest))


def log_poisson(k: Any, mean: Any) -> Any:
    """Return k log(mean) - mean - log(gamma(k + 1)) for real k >= 0."""
    none = le(k, 0.0)
    count = where(none, 1.0, k)
    scale = add(stirling_error(count), mul(log(mul(count, 2 * math.pi)), 0.5))
    return neg(add(deviance(k, mean), where(none, 0.0, scale)))


def log_binomial(k: Any, n: Any, p: Any, q: Any) -> Any:
    """Return the logarithm of p^k q^(n-k) gamma(n+1) / (gamma(k+1) gamma(n-k+1)), for 0 <= k <= n and q = 1 - p."""
    is_low, is_high = le(k, 0.0), ge(k, n)
    at_end = or_(is_low, is_high)
    count, total = where(at_end, 1.0, k), where(at_end, 2.0, n)
    rest = sub(total, count)
    errors = sub(stirling_error(total), add(stirling_error(count), stirling_error(rest)))
    distance = add(deviance(count, mul(total, p)), deviance(rest, mul(total, q)))
    scale = sub(log(div(total, count)), log(mul(rest, 2 * math.pi)))
    at_zero = where(lt(p, 0.5), xlog1py(n, neg(p)), xlogy(n, q))
    inner = add(sub(errors, distance), mul(scale, 0.5))
    return where(is_low, at_zero, where(is_high, xlogy(n, p), inner))


def log_gamma_density(a: Any, x: Any) -> Any:
    """Return the logarithm of the gamma density, x^(a-1) e^-x / gamma(a), for x >= 0."""
    large = gt(a, 2.0)
    few, here = where(large, 1.0, a), where(large, 1.0, x)
    usual = sub(sub(xlogy(sub(few, 1.0), here), here), lgamma(few))
    return where(large, log_poisson(where(large, sub(a, 1.0), 1.0), where(large, x, 1.0)), usual)


def log_beta_density(a: Any, b: Any, x: Any) -> Any:
    """Return the logarithm of the beta density, x^(a-1) (1-x)^(b-1) / B(a, b), for x from 0 to 1."""
    large = and_(gt(a, 2.0), gt(b, 2.0))
    one, other, here = where(large, 1.0, a), where(large, 1.0, b), where(large, 0.5, x)
    usual = sub(add(xlogy(sub(one, 1.0), here), xlog1py(sub(other, 1.0), neg(here))), betaln(one, other))
    first, second, there = where(large, a, 3.0), where(large, b, 3.0), where(large, x, 0.5)
    total = add(sub(first, 1.0), sub(second, 1.0))
    inner = log_binomial(sub(first, 1.0), total, there, sub(1.0, there))
    return where(large, add(inner, log(add(total, 1.0))), usual)


def _density(a: Any, x: Any) -> Any:
    """Return the gamma density: the derivative of igamma in x (DLMF 8.8.13)."""
    return exp(log_gamma_density(a, x))


def _tail(lax: Any, a: Any, x: Any, *, in_a: bool) -> tuple[Any, Any]:
    """Return two factors of P(a, x) where x < a, else of Q(a, x), or of its derivative in a, for large a.

    The second one is the density times x / a: exp(-a phi) / (root(2 pi a) s), with phi = m - log(1 + m), m = x / a - 1
    and s as in `log_scale`. The first one is the integral over so much of the tail as counts. XLA's series end early
    there, and its factor x^a e^-x loses digits, all of float32 at 10^7.
    """
    inverse = lax.div(lax.full_like(a, 1.0), a)
    below, distance = lax.lt(x, a), lax.sub(x, a)
    length = tails.length_of_tail(lax, lax.sqrt(a), lax.div(lax.abs(distance), x))
    length = lax.select(below, lax.neg(lax.min(length, x)), length)
    first = lax.min(tails.log_excess(lax, lax.mul(distance, inverse)), lax.full_like(x, 1e30))

    def density(place: Any) -> Any:
        step = lax.mul(length, place)
        m, ratio = (lax.mul(lax.add(start, step), inverse) for start in (distance, x))
        value = lax.exp(lax.mul(a, lax.sub(first, tails.log_excess(lax, m))))
        value = lax.div(value, lax.max(ratio, lax.full_like(ratio, 1e-30)))
        return lax.mul(value, lax.add(lax.log1p(m), tails.log_less_digamma(lax, a))) if in_a else value

    root = lax.mul(lax.full_like(a, 0.5), lax.log(lax.mul(a, lax.full_like(a, 2 * math.pi))))
    exponent = lax.neg(lax.add(lax.add(lax.mul(a, first), root), tails.log_scale(lax, a)))
    return lax.mul(tails.integrate(lax, density, x), lax.abs(length)), lax.exp(exponent)


_OF_UPPER = [(-1) ** n / math.factorial(n) for n in range(19)]


def _upper_by_series(lax: Any, a: Any, x: Any) -> Any:
    """Return Q(a, x) for a < 1/2 and x <= 1, where 1 - P(a, x) cancels (DLMF 8.7.3)."""
    exponent = lax.sub(lax.mul(a, lax.log(x)), lax.sub(lgamma_near_2(lax, a), lax.log1p(a)))
    rest = lax.full_like(x, 0.0)
    for n, number in reversed([*enumerate(_OF_UPPER)][1:]):
        rest = lax.mul(x, lax.add(rest, lax.div(lax.full_like(x, number), lax.add(a, lax.full_like(a, n)))))
    return lax.neg(lax.add(lax.expm1(exponent), lax.mul(lax.mul(a, lax.exp(exponent)), rest)))


def _incomplete(lax: Any, a: Any, x: Any, name: str) -> Any:
    """Compute a function of this family: for moderate a by XLA's kernel of that name."""
    zero, one, infinity = lax.full_like(x, 0.0), lax.full_like(x, 1.0), lax.full_like(x, math.inf)
    large = lax.bitwise_and(lax.bitwise_and(lax.gt(a, lax.full_like(a, tails.LARGE)), lax.lt(a, infinity)),
                            lax.bitwise_and(lax.gt(x, zero), lax.lt(x, infinity)))
    moderate = getattr(lax, name)(*(lax.select(large, one, each) for each in (a, x)))
    wide, there = (lax.select(large, each, lax.full_like(x, 2 * tails.LARGE)) for each in (a, x))
    in_a, below = name in ("igamma_grad_a", "random_gamma_grad"), lax.lt(there, wide)
    tail, density = tails.if_any(lax, large, lambda: _tail(lax, wide, there, in_a=in_a), (zero, zero))
    if in_a:
        tail = lax.select(below, tail, lax.neg(tail))
        tail = lax.mul(tail, density) if name == "igamma_grad_a" else lax.neg(lax.mul(tail, lax.div(there, wide)))
        return lax.select(large, tail, moderate)
    if name == "igammac":
        few = functools.reduce(lax.bitwise_and, (lax.gt(a, zero), lax.lt(a, lax.full_like(a, 0.5)), lax.gt(x, zero),
                                                 lax.le(x, one)))
        small, here = (lax.select(few, each, lax.full_like(x, 0.25)) for each in (a, x))
        moderate = lax.select(few, tails.if_any(lax, few, lambda: _upper_by_series(lax, small, here), zero), moderate)
    is_asked, tail = below if name == "igamma" else lax.bitwise_not(below), lax.mul(tail, density)
    tail = lax.select(is_asked, tail, lax.sub(one, tail))
    # A distribution without an upper end.
    endless = lax.bitwise_and(lax.eq(a, infinity), lax.bitwise_and(lax.ge(x, zero), lax.lt(x, infinity)))
    return lax.select(endless, zero if name == "igamma" else one, lax.select(large, tail, moderate))


igamma_p = by_xla("igamma", 2, [
    lambda t, out, a, x: mul(t, igamma_grad_a(a, x)), lambda t, out, a, x: mul(t, _density(a, x))],
    xla=tails.kernel(_incomplete, name="igamma"))
igammac_p = by_xla("igammac", 2, [
    lambda t, out, a, x: neg(mul(t, igamma_grad_a(a, x))), lambda t, out, a, x: neg(mul(t, _density(a, x)))],
    xla=tails.kernel(_incomplete, name="igammac"))


def _slope_in_x(t: Any, out: Any, a: Any, x: Any) -> Any:
    """Return the derivative of the density in a."""
    return mul(t, mul(_density(a, x), sub(log(x), digamma(a))))


igamma_grad_a_p = by_xla("igamma_grad_a", 2, [no_derivative("the derivative of igamma(a, x) in a", "a"), _slope_in_x],
                         xla=tails.kernel(_incomplete, name="igamma_grad_a"))


def _gamma_grad_in_x(t: Any, out: Any, a: Any, x: Any) -> Any:
    """Differentiate -igamma_grad_a(a, x) / density(a, x), by the quotient rule."""
    slope = sub(div(sub(a, 1.0), x), 1.0)
    return neg(mul(t, add(sub(log(x), digamma(a)), mul(out, slope))))


random_gamma_grad_p = by_xla(
    "random_gamma_grad", 2, [no_derivative("the derivative of draws of a gamma distribution", "a"), _gamma_grad_in_x],
    xla=tails.kernel(_incomplete, name="random_gamma_grad"))

_BEFORE = 10
"""The number of terms of the series of `zeta` that are summed; the rest is an integral with corrections."""
_CORRECTIONS = np.zeros(19)
_CORRECTIONS[::2] = [number / math.factorial(2 * at) for at, number in enumerate((
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330), 1)]
"""B(2j) / (2j)! at 2j - 2, with Bernoulli's numbers, and zeros between."""


def _zeta_slope(x: Any, q: Any) -> Any:
    """Return the derivative of zeta in x: of each term, of the integral and of the Euler-Maclaurin corrections.

    They are those of DLMF 25.11.5, of x (x+1) ... (x+2j-2) a^(1-x-2j) with a = q + 10.
    """
    dtype = aval_of(x).dtype
    x, q = (reshape(each, (*aval_of(each).shape, 1)) for each in (x, q))
    terms = add(q, np.arange(_BEFORE).astype(dtype))
    logarithms = mul(log(terms), pow(terms, neg(x)))
    first = reduce_sum(logarithms, (len(aval_of(logarithms).shape) - 1,))
    a = add(q, float(_BEFORE))
    size, growth = pow(a, neg(x)), log(a)
    less = sub(x, 1.0)
    integral = mul(mul(size, a), div(add(growth, div(1.0, less)), less))
    there = where(eq(size, 0.0), 1.0, x)  # products of large x overflow where their factor has vanished
    factors = add(there, np.arange(len(_CORRECTIONS)).astype(dtype))
    last = len(aval_of(factors).shape) - 1
    slopes = sub(cumsum(div(1.0, factors), last), growth)
    products = mul(cumprod(div(factors, a), len(aval_of(add(factors, a)).shape) - 1), slopes)
    corrections = reduce_sum(mul(products, _CORRECTIONS.astype(dtype)), (len(aval_of(products).shape) - 1,))
    size, rest = (reshape(each, aval_of(each).shape[:-1]) for each in (
        size, add(integral, mul(mul(size, growth), 0.5))))
    slope = sub(mul(size, corrections), add(first, rest))
    return where(lt(reshape(x, aval_of(x).shape[:-1]), 1.0), math.nan, slope)


zeta_p = by_xla("zeta", 2, [lambda t, out, x, q: mul(t, _zeta_slope(x, q)),
                             lambda t, out, x, q: neg(mul(t, mul(x, zeta(add(x, 1.0), q))))])


igamma, igammac, igamma_grad_a, random_gamma_grad, zeta = map(operation, (
    igamma_p, igammac_p, igamma_grad_a_p, random_gamma_grad_p, zeta_p))
