"""Incomplete gamma functions, beta and zeta functions: igamma igammac igamma_grad_a random_gamma_grad betaln zeta.

The kernels are XLA's, for NumPy arrays too, on the CPU. Formulas are those of the DLMF (dlmf.nist.gov).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops import xla_kernels
from fxgrad.engine.ops.arithmetic import add, div, mul, neg, sub
from fxgrad.engine.ops.comparison import eq, lt
from fxgrad.engine.ops.cumulative import cumprod, cumsum
from fxgrad.engine.ops.exponential import exp, log, pow
from fxgrad.engine.ops.families import lax_function
from fxgrad.engine.ops.pointwise import align, elementwise, operation
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.special import digamma, lgamma
from fxgrad.engine.ops.structural import reduce_sum, reshape
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


def betaln_xla(lax: Any, a: Any, b: Any) -> Any:
    """Use jax's series where a difference of logarithms would be one of large numbers, losing all digits."""
    zero, one, infinity = lax.full_like(a, 0), lax.full_like(a, 1), lax.full_like(a, math.inf)
    positive = lax.bitwise_and(lax.gt(a, zero), lax.gt(b, zero))
    large = lax.full_like(a, 1e3 if a.dtype.itemsize == 8 else 8.0)  # from here on the series is exact to rounding
    far = lax.bitwise_and(lax.gt(lax.max(a, b), large), lax.gt(lax.add(a, b), large))
    series = xla_kernels.special("betaln")(lax, lax.select(far, a, one), lax.select(far, b, one))
    near = lax.sub(lax.add(lax.lgamma(a), lax.lgamma(b)), lax.lgamma(lax.add(a, b)))
    endless = lax.bitwise_and(positive, lax.eq(lax.max(a, b), infinity))
    return lax.select(endless, lax.neg(infinity), lax.select(far, series, near))


def _betaln_tangent(t: Any, a: Any, b: Any) -> Any:
    return mul(t, sub(digamma(a), digamma(add(a, b))))


betaln_p = by_xla("betaln", 2, [lambda t, out, a, b: _betaln_tangent(t, a, b),
                                lambda t, out, a, b: _betaln_tangent(t, b, a)],
                  xla=lambda lax, a, b: betaln_xla(lax, *align(lax, a, b)))
betaln = operation(betaln_p)


def times_or_zero(x: Any, y: Any) -> Any:
    """Return x y, and 0 where x is 0, also for an infinite y."""
    zero = eq(x, 0.0)
    return where(zero, 0.0, mul(x, where(zero, 1.0, y)))


def _density(a: Any, x: Any) -> Any:
    """Return the gamma density, x^(a-1) e^-x / Gamma(a): the derivative of igamma in x (DLMF 8.8.13)."""
    return exp(sub(sub(times_or_zero(sub(a, 1.0), log(x)), x), lgamma(a)))


LARGE = 100.0
"""From this on the incomplete functions are integrals of the density over the smaller of both tails."""
_NODES = np.polynomial.legendre.leggauss(48)


def integrate(lax: Any, function: Callable[[Any], Any], like: Any) -> Any:
    """Return the integral of a function from 0 to 1 by Gauss's rule, in the type of an array."""
    places, weights = (np.asarray(values, like.dtype) for values in _NODES)
    one = lax.full_like(like, 1.0)

    def add_node(index: Any, total: Any) -> Any:
        place, weight = (lax.mul(one, lax.dynamic_index_in_dim(values / 2, index, keepdims=False))
                         for values in (places + 1, weights))
        return lax.add(total, lax.mul(weight, function(place)))

    return lax.fori_loop(0, len(places), add_node, lax.full_like(like, 0.0))


def if_any(lax: Any, chosen: Any, compute: Callable[[], Any], otherwise: Any) -> Any:
    """Return `compute()` if an element is chosen, which takes its time, and else values of the same types."""
    return lax.cond(lax.reduce_or(chosen, (*range(chosen.ndim),)), compute, lambda: otherwise)


def log_scale(lax: Any, a: Any) -> Any:
    """Return the logarithm of gamma(a) / (root(2 pi / a) (a / e)^a) for large a (DLMF 5.11.3)."""
    inverse = lax.div(lax.full_like(a, 1.0), a)
    square = lax.mul(inverse, inverse)
    return lax.mul(inverse, lax.sub(lax.full_like(a, 1 / 12), lax.mul(square, lax.full_like(a, 1 / 360))))


def log_less_digamma(lax: Any, a: Any) -> Any:
    """Return log(a) - digamma(a) for large a (DLMF 5.11.2)."""
    inverse = lax.div(lax.full_like(a, 1.0), a)
    square = lax.mul(inverse, inverse)
    series = lax.sub(lax.full_like(a, 1 / 12), lax.mul(square, lax.full_like(a, 1 / 120)))
    return lax.mul(inverse, lax.add(lax.full_like(a, 0.5), lax.mul(inverse, series)))


def length_of_tail(lax: Any, deviation: Any, rate: Any) -> Any:
    """Return how far to integrate a density that decays at this rate where the tail begins."""
    long, steep = lax.mul(deviation, lax.full_like(rate, 13.0)), lax.div(rate, lax.full_like(rate, 45.0))
    return lax.div(long, lax.add(lax.full_like(rate, 1.0), lax.mul(long, steep)))


def _tail(lax: Any, a: Any, x: Any, *, in_a: bool) -> tuple[Any, Any]:
    """Return two factors of P(a, x) where x < a, else of Q(a, x), or of its derivative in a, for large a.

    The second one is the density times x / a: exp(-a phi) / (root(2 pi a) s), with phi = m - log(1 + m), m = x / a - 1
    and s as in `log_scale`. The first one is the integral over so much of the tail as counts. XLA's series end early
    there, and its factor x^a e^-x loses digits, all of float32 at 10^7.
    """
    inverse = lax.div(lax.full_like(a, 1.0), a)
    below, distance = lax.lt(x, a), lax.sub(x, a)
    length = length_of_tail(lax, lax.sqrt(a), lax.div(lax.abs(distance), x))
    length = lax.select(below, lax.neg(lax.min(length, x)), length)
    first = lax.min(log_excess(lax, lax.mul(distance, inverse)), lax.full_like(x, 1e30))

    def density(place: Any) -> Any:
        step = lax.mul(length, place)
        m, ratio = (lax.mul(lax.add(start, step), inverse) for start in (distance, x))
        value = lax.exp(lax.mul(a, lax.sub(first, log_excess(lax, m))))
        value = lax.div(value, lax.max(ratio, lax.full_like(ratio, 1e-30)))
        return lax.mul(value, lax.add(lax.log1p(m), log_less_digamma(lax, a))) if in_a else value

    root = lax.mul(lax.full_like(a, 0.5), lax.log(lax.mul(a, lax.full_like(a, 2 * math.pi))))
    exponent = lax.neg(lax.add(lax.add(lax.mul(a, first), root), log_scale(lax, a)))
    return lax.mul(integrate(lax, density, x), lax.abs(length)), lax.exp(exponent)


def log_excess(lax: Any, m: Any) -> Any:
    """Return m - log(1 + m), near 0 by the series of atanh: r m - 2 (r^3 / 3 + r^5 / 5 + ...) with r = m / (2 + m)."""
    near = lax.lt(lax.abs(m), lax.full_like(m, 0.3))
    small = lax.select(near, m, lax.full_like(m, 0.0))
    ratio = lax.div(small, lax.add(small, lax.full_like(m, 2.0)))
    square, series = lax.mul(ratio, ratio), lax.full_like(m, 0.0)
    for odd in range(17, 1, -2):
        series = lax.mul(square, lax.add(lax.full_like(m, 1 / odd), series))
    series = lax.mul(ratio, lax.sub(small, lax.mul(lax.full_like(m, 2.0), series)))
    return lax.select(near, series, lax.sub(m, lax.log1p(m)))


def _incomplete(name: str) -> Callable[..., Any]:
    """Return the rule for XLA of a function of this family: for moderate a that of XLA."""
    def rule(lax: Any, a: Any, x: Any) -> Any:
        dtype = x.dtype
        if dtype.itemsize < 4:
            a, x = (lax.convert_element_type(each, np.float32) for each in (a, x))
        zero, one, infinity = lax.full_like(x, 0.0), lax.full_like(x, 1.0), lax.full_like(x, math.inf)
        large = lax.bitwise_and(lax.bitwise_and(lax.gt(a, lax.full_like(a, LARGE)), lax.lt(a, infinity)),
                                lax.bitwise_and(lax.gt(x, zero), lax.lt(x, infinity)))
        moderate = getattr(lax, name)(*(lax.select(large, one, each) for each in (a, x)))
        wide, there = (lax.select(large, each, lax.full_like(x, 2 * LARGE)) for each in (a, x))
        in_a, below = name in ("igamma_grad_a", "random_gamma_grad"), lax.lt(there, wide)
        tail, density = if_any(lax, large, lambda: _tail(lax, wide, there, in_a=in_a), (zero, zero))
        if in_a:
            tail = lax.select(below, tail, lax.neg(tail))
            tail = lax.mul(tail, density) if name == "igamma_grad_a" else lax.neg(lax.mul(tail, lax.div(there, wide)))
        else:
            is_asked, tail = below if name == "igamma" else lax.bitwise_not(below), lax.mul(tail, density)
            tail = lax.select(is_asked, tail, lax.sub(one, tail))
        result = lax.select(large, tail, moderate)
        if not in_a:  # a distribution without an upper end
            endless = lax.bitwise_and(lax.eq(a, infinity), lax.bitwise_and(lax.ge(x, zero), lax.lt(x, infinity)))
            result = lax.select(endless, zero if name == "igamma" else one, result)
        return lax.convert_element_type(result, dtype)
    return lambda lax, a, x: rule(lax, *align(lax, a, x))


igamma_p = by_xla("igamma", 2, [lambda t, out, a, x: mul(t, igamma_grad_a(a, x)),
                                 lambda t, out, a, x: mul(t, _density(a, x))], xla=_incomplete("igamma"))
igammac_p = by_xla("igammac", 2, [lambda t, out, a, x: neg(mul(t, igamma_grad_a(a, x))),
                                   lambda t, out, a, x: neg(mul(t, _density(a, x)))], xla=_incomplete("igammac"))


def _slope_in_x(t: Any, out: Any, a: Any, x: Any) -> Any:
    """Return the derivative of the density in a."""
    return mul(t, mul(_density(a, x), sub(log(x), digamma(a))))


igamma_grad_a_p = by_xla("igamma_grad_a", 2, [no_derivative("the derivative of igamma(a, x) in a", "a"), _slope_in_x],
                         xla=_incomplete("igamma_grad_a"))


def _gamma_grad_in_x(t: Any, out: Any, a: Any, x: Any) -> Any:
    """Differentiate -igamma_grad_a(a, x) / density(a, x), by the quotient rule."""
    slope = sub(div(sub(a, 1.0), x), 1.0)
    return neg(mul(t, add(sub(log(x), digamma(a)), mul(out, slope))))


random_gamma_grad_p = by_xla(
    "random_gamma_grad", 2, [no_derivative("the derivative of draws of a gamma distribution", "a"), _gamma_grad_in_x],
    xla=_incomplete("random_gamma_grad"))

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
