"""The hypergeometric functions hyp1f1 and hyp2f1, and the incomplete beta function, which is one: betainc.

Their derivatives in all parameters are functions of their own (hyp1f1_grad_a hyp1f1_grad_b hyp2f1_grad_a
hyp2f1_grad_c betainc_grad_a betainc_grad_b). XLA computes all for NumPy arrays too, on the CPU. Formulas are those of
the DLMF (dlmf.nist.gov).

Near 0 a series is summed. Where its terms change signs, and near its singularity, it loses digits or does not end; so
from there on the differential equation of the function is followed by Taylor series, which lose few (Pearson, Olver and
Porter, Numerical methods for the computation of the confluent and Gauss hypergeometric functions, 2017, section 4.8).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.ops import xla_kernels
from fxgrad.engine.ops.arithmetic import add, div, mul, neg, sub
from fxgrad.engine.ops.exponential import exp, log, log1p
from fxgrad.engine.ops.gamma import betaln_xla, by_xla, log_beta_density, no_derivative
from fxgrad.engine.ops.pointwise import operation
from fxgrad.engine.ops.special import digamma
from fxgrad.engine.ops.tails import (
    LARGE,
    if_any,
    integrate,
    kernel,
    length_of_tail,
    log_excess,
    log_less_digamma,
    log_scale,
)

special = xla_kernels.special

# --- series ---------------------------------------------------------------------------------------------------------

_MOST_TERMS = np.float32(1e5)
Direction = tuple[Sequence[Any], Sequence[Any]]
"""The rates at which the upper and the lower parameters change."""


def _tiny(lax: Any, x: Any) -> Any:
    return lax.full_like(x, 1e-17 if x.dtype.itemsize == 8 else 1e-9)


def _any(lax: Any, flags: Sequence[Any]) -> Any:
    return lax.reduce_or(functools.reduce(lax.bitwise_or, flags), (*range(flags[0].ndim),))


def _rate_of_product(lax: Any, factors: Sequence[Any], rates: Sequence[Any], constant: Any) -> Any:
    """Return the rate of change of a product with a constant, from those of its factors."""
    return functools.reduce(lax.add, [
        functools.reduce(lax.mul, [rate, *factors[:number], *factors[number + 1:]], constant)
        for number, rate in enumerate(rates)])


def _series(lax: Any, tops: Sequence[Any], bottoms: Sequence[Any], x: Any, along: Direction | None = None,
            *, with_sizes: bool = False) -> list[Any]:
    """Sum the terms t_k of a hypergeometric series (DLMF 16.2.1), and k t_k, the terms of x times its derivative.

    Two more results are the derivatives of both sums `along` a direction of the parameters. The terms have the ratio
    prod(tops + k) / prod(bottoms + k) x / (k + 1), so their derivatives have a recurrence too, which holds where a
    parameter is 0 or a negative integer, as sums of digamma functions do not. Sums that take too many terms are NaN.
    `with_sizes` adds as many results: the sums of the absolute values of the terms.
    """
    zero, one, tiny = lax.full_like(x, 0.0), lax.full_like(x, 1.0), _tiny(lax, x)

    least = _least(lax, *bottoms, one)  # up to where a lower parameter is positive, small terms may grow again

    def unfinished(count: Any, terms: Sequence[Any], moments: Sequence[Any]) -> Any:
        k = lax.convert_element_type(count, x.dtype)
        following, early = lax.add(k, lax.full_like(k, 1.0)), lax.lt(lax.add(least, k), one)
        return [lax.bitwise_or(lax.gt(lax.mul(lax.abs(term), following), lax.mul(lax.abs(moment), tiny)),
                               lax.bitwise_and(early, lax.ne(term, zero)))
                for term, moment in zip(terms, moments, strict=True)]

    def goes_on(state: Any) -> Any:
        count, terms, _, moments, _ = state
        return lax.bitwise_and(lax.lt(count, _MOST_TERMS), _any(lax, unfinished(count, terms, moments)))

    def next_terms(state: Any) -> Any:
        count, terms, sums, moments, sizes = state
        k = lax.mul(one, lax.convert_element_type(count, x.dtype))
        factors = [lax.add(top, k) for top in tops]
        rest = lax.div(x, lax.add(k, one))
        for bottom in bottoms:
            rest = lax.div(rest, lax.add(bottom, k))
        ratio = functools.reduce(lax.mul, factors, rest)
        made = [lax.mul(terms[0], ratio)]
        if along is not None:
            slope = lax.mul(terms[1], ratio)
            slope = lax.add(slope, lax.mul(terms[0], _rate_of_product(lax, factors, along[0], rest)))
            for bottom, rate in zip(bottoms, along[1], strict=True):
                slope = lax.sub(slope, lax.mul(made[0], lax.div(rate, lax.add(bottom, k))))
            made.append(slope)
        k = lax.add(k, one)
        more = [*made, *(lax.mul(term, k) for term in made)]
        return (count + np.float32(1), made, [lax.add(total, term) for total, term in zip(sums, made, strict=True)],
                [lax.add(total, term) for total, term in zip(moments, more[len(made):], strict=True)],
                [lax.add(total, lax.abs(term)) for total, term in zip(sizes, more, strict=False)])

    first = [one] if along is None else [one, zero]
    none = [zero for _ in first]
    count, terms, sums, moments, sizes = lax.while_loop(goes_on, next_terms, (
        np.float32(0), first, first, none, [*first, *none] if with_sizes else []))
    given = functools.reduce(lax.add, (*tops, *bottoms), x)
    unknown = functools.reduce(lax.bitwise_or, unfinished(count, terms, moments), lax.ne(given, given))
    for total, moment in zip(sums, moments, strict=True):  # an infinite moment ends the loop too early
        early = lax.bitwise_and(lax.is_finite(total), lax.bitwise_not(lax.is_finite(moment)))
        unknown = lax.bitwise_or(unknown, early)
    return [lax.select(unknown, lax.full_like(x, math.nan), result) for result in (*sums, *moments, *sizes)]


def _is_polynomial(lax: Any, top: Any, rate: Any) -> Any:
    """Return where a series ends, since an upper parameter is 0 or a negative integer, and stays so."""
    zero = lax.full_like(top, 0.0)
    is_end = lax.bitwise_and(lax.le(top, zero), lax.eq(lax.floor(top), top))
    return lax.bitwise_and(is_end, lax.eq(rate, zero))


def _values_and_slopes(lax: Any, sums: Sequence[Any], x: Any) -> list[Any]:
    """Return the results of `_series` as the function and its derivative in x, then those of its derivative."""
    divisor, count = lax.select(lax.eq(x, lax.full_like(x, 0.0)), lax.full_like(x, 1.0), x), len(sums) // 2
    return [each for total, moment in zip(sums[:count], sums[count:], strict=True)
            for each in (total, lax.div(moment, divisor))]


# --- how many digits are right ----------------------------------------------------------------------------------------
# Beside F and F' stand bounds of their errors, e and e', which go through the same equation, and grow where other
# solutions of it outgrow F. Of several ways the one with the least error is taken.


class _Found(NamedTuple):
    """A function or its derivative along a direction, a bound of its error, and its derivative in x times x."""

    value: Any
    error: Any
    slope: Any


def _rounding(lax: Any, like: Any, size: Any) -> Any:
    return lax.mul(lax.abs(size), lax.full_like(like, float(np.finfo(like.dtype).eps)))


def _aslant(lax: Any, values: Sequence[Any], sizes: Sequence[Any]) -> list[Any]:
    """Return errors of these sizes for pairs of F and F'; not in their direction, or other solutions would not grow."""
    errors = []
    for value, slope, size, steepness in zip(values[::2], values[1::2], sizes[::2], sizes[1::2], strict=True):
        error = _rounding(lax, slope, steepness)
        errors += [_rounding(lax, value, size), lax.select(
            lax.eq(lax.sign(value), lax.sign(slope)), lax.neg(error), error)]
    return errors


def _sum_with_errors(lax: Any, tops: Sequence[Any], bottoms: Sequence[Any], x: Any, along: Direction | None,
                     ) -> list[Any]:
    """Return F, F' and their derivatives along a direction by the series, then the errors of all."""
    sums = _series(lax, tops, bottoms, x, along, with_sizes=True)
    half, bottom, low = len(sums) // 2, bottoms[0], lax.full_like(x, -50.0)
    values = _values_and_slopes(lax, sums[:half], x)
    missed = if_any(lax, lax.lt(bottom, low), lambda: _grows_again(lax, tops, bottom, x), lax.ne(x, x))
    values = [lax.select(missed, lax.full_like(x, math.nan), each) for each in values]
    return [*values, *_aslant(lax, values, _values_and_slopes(lax, sums[half:], x))]


def _grows_again(lax: Any, tops: Sequence[Any], bottom: Any, x: Any) -> Any:
    """Return where terms underflow before the lower parameter has become positive, and could be large after that."""
    one, size = lax.full_like(x, 1.0), lax.abs(x)
    k = lax.max(one, lax.ceil(lax.neg(bottom)))
    of_tops = functools.reduce(lax.add, [lax.sub(lax.lgamma(lax.add(top, k)), lax.lgamma(top)) for top in tops])
    rest = lax.sub(lax.add(lax.lgamma(bottom), lax.mul(k, lax.log(size))), lax.lgamma(lax.add(k, one)))
    smallest = lax.add(of_tops, lax.sub(rest, lax.lgamma(lax.add(bottom, k))))
    power = functools.reduce(lax.add, map(lax.abs, tops))
    growth = lax.neg(lax.mul(lax.add(power, k), lax.log1p(lax.neg(size)))) if len(tops) == 2 else lax.add(
        size, lax.mul(power, lax.log1p(size)))
    kind = np.finfo(x.dtype)
    return functools.reduce(lax.bitwise_and, (
        lax.lt(bottom, lax.full_like(x, 0.0)), lax.lt(smallest, lax.full_like(x, math.log(float(kind.tiny)))),
        lax.gt(lax.add(smallest, growth), lax.full_like(x, math.log(float(kind.eps))))))


def _found(lax: Any, values: Sequence[Any], x: Any) -> _Found:
    """Return the last of the functions in `values`, which are those of `_sum_with_errors`."""
    half = len(values) // 2
    return _Found(values[half - 2], lax.abs(values[-2]), lax.mul(values[half - 1], x))


def _lost(lax: Any, found: _Found, bound: float) -> Any:
    """Return where the error is above a part `bound` of the value, or of what a small change of x makes."""
    scale = lax.add(lax.abs(found.value), lax.abs(found.slope))
    return lax.bitwise_not(lax.le(found.error, _times(lax, scale, bound)))


def _is_poor(lax: Any, found: _Found) -> Any:
    """Return where more than three digits are lost."""
    return _lost(lax, found, 1e3 * float(np.finfo(found.value.dtype).eps))


def _better(lax: Any, first: _Found, *others: _Found) -> _Found:
    """Return the one with the least error at each place."""
    for other in others:
        is_better = lax.bitwise_or(lax.lt(other.error, first.error), lax.bitwise_and(
            lax.ne(first.error, first.error), lax.eq(other.error, other.error)))
        first = _Found(*(lax.select(is_better, *pair) for pair in zip(other, first, strict=True)))
    return first


def _only_right(lax: Any, found: _Found) -> Any:
    """Return the value, and NaN where half of its digits are lost."""
    is_wrong = _lost(lax, found, math.sqrt(float(np.finfo(found.value.dtype).eps)))
    is_wrong = lax.bitwise_and(is_wrong, lax.is_finite(found.value))
    return lax.select(is_wrong, lax.full_like(found.value, math.nan), found.value)


# --- steps ------------------------------------------------------------------------------------------------------------


class _Equation(NamedTuple):
    """A differential equation at a point, scale F'' + linear F' - prod(tops) F = 0.

    Beside it the coefficients change so that the terms u_n of the Taylor series for a step of a `size` have
    (n + 2) (n + 1) scale u_(n+2) = prod(tops + n) size^2 u_n - (n + 1) (n spread + linear) size u_(n+1).
    """

    tops: Sequence[Any]
    scale: Any
    spread: Any
    linear: Any
    in_tops: Sequence[Any] | None
    in_linear: Any
    """The rates of change of `tops` and `linear`, if asked for; the others do not depend on the parameters."""


def _step(lax: Any, equation: _Equation, size: Any, values: Sequence[Any]) -> list[Any]:
    """Return F and F', and their derivatives along a direction if there are rates, further on by a `size`.

    Errors of them, if `values` has these, are solutions of the same equation.
    """
    one, tiny = lax.full_like(size, 1.0), _tiny(lax, size)
    square = lax.mul(size, size)
    exact = 1 if equation.in_tops is None else 2  # errors need not converge

    def goes_on(state: Any) -> Any:
        count, olds, news, _, moments = state
        n = lax.convert_element_type(count + np.float32(1), size.dtype)
        return _any(lax, [lax.gt(lax.mul(lax.max(lax.abs(old), lax.abs(new)), n), lax.mul(lax.abs(moment), tiny))
                          for old, new, moment in [*zip(olds, news, moments, strict=True)][:exact]])

    def next_terms(state: Any) -> Any:
        count, olds, news, sums, moments = state
        n = lax.mul(one, lax.convert_element_type(count, size.dtype))
        after = lax.add(n, one)
        factors, forward = [lax.add(top, n) for top in equation.tops], lax.mul(after, size)
        of_old = functools.reduce(lax.mul, factors, square)
        of_new = lax.mul(lax.add(lax.mul(n, equation.spread), equation.linear), forward)
        made = [lax.sub(lax.mul(of_old, old), lax.mul(of_new, new)) for old, new in zip(olds, news, strict=True)]
        if equation.in_tops is not None:
            in_old = _rate_of_product(lax, factors, equation.in_tops, square)
            in_new = lax.mul(equation.in_linear, forward)
            for at in range(0, len(made), 2):
                made[at + 1] = lax.add(made[at + 1], lax.sub(lax.mul(in_old, olds[at]), lax.mul(in_new, news[at])))
        number = lax.add(after, one)
        divisor = lax.mul(lax.mul(number, after), equation.scale)
        made = [lax.div(each, divisor) for each in made]
        return (count + np.float32(1), news, made,
                [lax.add(total, term) for total, term in zip(sums, made, strict=True)],
                [lax.add(total, lax.mul(term, number)) for total, term in zip(moments, made, strict=True)])

    olds, news = [*values[::2]], [lax.mul(slope, size) for slope in values[1::2]]
    sums = [lax.add(old, new) for old, new in zip(olds, news, strict=True)]
    _, _, _, sums, moments = lax.while_loop(goes_on, next_terms, (np.float32(0), olds, news, sums, news))
    return _values_and_slopes(lax, [*sums, *moments], size)


_MOST_STEPS = 5000
_STEP = 3.0
"""A step over which another solution of the equation changes by a factor of exp(_STEP) loses the digits of that."""


def _follow(lax: Any, equation_at: Callable[[Any], _Equation], length_at: Callable[[Any], Any], sign: Any,
            first: Any, last: Any, values: Sequence[Any], *, with_errors: bool = True) -> list[Any]:
    """Return F and F' where the place has fallen from `first` to `last`; x moves by `sign` as much as the place.

    They are NaN where that takes too many steps. With errors these are in the second half of `values`.
    """
    def add_rounding(before: Sequence[Any], after: Sequence[Any], size: Any) -> list[Any]:
        half, sizes = len(after) // 2, []
        for at in range(0, half, 2):
            least = lax.max(lax.abs(before[at]), lax.abs(lax.mul(before[at + 1], size)))
            sizes += [lax.add(least, lax.abs(after[at])), lax.add(lax.abs(before[at + 1]), lax.abs(after[at + 1]))]
        added = _aslant(lax, after[:half], sizes)
        result = [*after[:half]]
        for at, error in enumerate(after[half:]):
            turned = lax.lt(after[half + at - at % 2], lax.full_like(error, 0.0))
            result.append(lax.add(error, lax.select(turned, lax.neg(added[at]), added[at])))
        return result

    def goes_on(state: Any) -> Any:
        count, here, _ = state
        return lax.bitwise_and(lax.lt(count, np.int32(_MOST_STEPS)), _any(lax, [lax.gt(here, last)]))

    def step(state: Any) -> Any:
        count, here, before = state
        moves = lax.gt(here, last)
        there = lax.select(moves, lax.max(last, lax.sub(here, length_at(here))), here)
        size = lax.mul(sign, lax.sub(there, here))
        after = _step(lax, equation_at(here), size, before)
        after = add_rounding(before, after, size) if with_errors else after
        return count + np.int32(1), there, [lax.select(moves, new, old)
                                            for new, old in zip(after, before, strict=True)]

    _, here, found = lax.while_loop(goes_on, step, (np.int32(0), first, [*values]))
    return [lax.select(lax.gt(here, last), lax.full_like(each, math.nan), each) for each in found]


def _least(lax: Any, *values: Any) -> Any:
    return functools.reduce(lax.min, values)


def _times(lax: Any, value: Any, number: float) -> Any:
    return lax.mul(value, lax.full_like(value, number))


def _at_least_1(lax: Any, *values: Any) -> Any:
    return functools.reduce(lax.max, map(lax.abs, values), lax.full_like(values[0], 1.0))


# --- 1F1 ------------------------------------------------------------------------------------------------------------

_TERMS_FAR = 20


def _far_below(lax: Any, a: Any, b: Any, size: Any, in_a: Any, in_b: Any) -> tuple[_Found, _Found]:
    """Return 1F1(a; b; -size) by its asymptotic series (DLMF 13.7.1), and its derivative along a direction."""
    series = one = lax.full_like(size, 1.0)
    slope = lax.full_like(size, 0.0)
    for k in range(_TERMS_FAR, 0, -1):
        left, right = lax.add(a, lax.full_like(a, k - 1.0)), lax.add(lax.sub(a, b), lax.full_like(a, float(k)))
        factor = lax.mul(left, right)
        rate = lax.add(lax.mul(in_a, right), lax.mul(left, lax.sub(in_a, in_b)))
        divisor = lax.mul(size, lax.full_like(size, float(k)))
        slope = lax.div(lax.add(lax.mul(factor, slope), lax.mul(rate, series)), divisor)
        series = lax.add(one, lax.mul(lax.div(factor, divisor), series))
    less = lax.sub(b, a)
    sign = lax.mul(special("gammasgn")(lax, b), special("gammasgn")(lax, less))
    are_large = lax.gt(lax.min(b, less), lax.full_like(b, LARGE))  # by DLMF 5.11.3, where logarithms would cancel
    more, fewer = lax.lgamma(b), lax.lgamma(less)
    large, rest = lax.select(are_large, b, one), lax.select(are_large, less, one)
    quotient = lax.mul(lax.sub(rest, lax.full_like(rest, 0.5)), lax.log1p(lax.div(lax.sub(large, rest), rest)))
    quotient = lax.add(quotient, lax.sub(log_scale(lax, large), log_scale(lax, rest)))
    power = lax.mul(a, lax.log(lax.div(size, lax.select(are_large, large, one))))
    shift = lax.add(power, lax.select(are_large, a, lax.full_like(a, 0.0)))
    gammas = lax.select(are_large, quotient, lax.sub(more, fewer))
    outside = lax.mul(sign, lax.exp(lax.sub(gammas, shift)))
    rate = lax.sub(lax.mul(in_b, lax.digamma(b)), lax.add(
        lax.mul(lax.sub(in_b, in_a), lax.digamma(less)), lax.mul(in_a, lax.log(size))))
    value = lax.mul(outside, series)
    exponents = lax.select(are_large, lax.abs(quotient), lax.max(lax.abs(more), lax.abs(fewer)))
    exponents = lax.add(lax.add(exponents, lax.abs(shift)), one)

    def found(value: Any) -> _Found:
        return _Found(value, _rounding(lax, value, lax.mul(value, exponents)), lax.mul(a, value))
    return found(value), found(lax.mul(outside, lax.add(slope, lax.mul(series, rate))))


def _below(lax: Any, a: Any, b: Any, size: Any, in_a: Any, in_b: Any, *, with_rates: bool) -> _Found:
    """Return 1F1(a; b; -size), or its derivative along a direction.

    By the series down to -1, and from there by the differential equation (DLMF 13.2.1): the series of either sign loses
    all digits. Far below, by the asymptotic series.
    """
    zero, one = lax.full_like(size, 0.0), lax.full_like(size, 1.0)
    bound = functools.reduce(lax.mul, [lax.add(lax.abs(each), lax.full_like(a, 15.0)) for each in (a, lax.sub(a, b))])
    far = lax.gt(size, lax.add(_times(lax, bound, 0.5), lax.full_like(a, 100.0)))
    start = lax.neg(_least(lax, one, size, lax.div(lax.abs(b), _at_least_1(lax, _times(lax, a, 2.0)))))

    def length_at(x: Any) -> Any:
        bounds = lax.div(x, _at_least_1(lax, b)), lax.sqrt(lax.div(lax.neg(x), _at_least_1(lax, a))), one
        return lax.min(_times(lax, x, -0.5), _times(lax, _least(lax, lax.neg(bounds[0]), *bounds[1:]), _STEP))

    def equation_at(x: Any) -> _Equation:
        return _Equation([a], x, one, lax.sub(b, x), [in_a] if with_rates else None, in_b)

    values = _sum_with_errors(lax, [a], [b], start, ([in_a], [in_b]) if with_rates else None)
    near = _found(lax, _follow(lax, equation_at, length_at, one, start, lax.select(far, zero, lax.neg(size)), values),
                  lax.neg(size))
    beyond = _far_below(lax, a, b, lax.select(far, size, one), in_a, in_b)[int(with_rates)]
    return _Found(*(lax.select(far, *pair) for pair in zip(beyond, near, strict=True)))


def _hyp1f1(lax: Any, a: Any, b: Any, x: Any, rates: tuple[float, float] | None = None) -> Any:
    """Sum the series at positive arguments, and where it is poor, go down from 0 by the differential equation.

    Both at x or, by Kummer's transformation (DLMF 13.2.39), at -x: 1F1(a; b; x) = exp(x) 1F1(b - a; b; -x). Where both
    are poor, as for negative b they may be, the series at negative arguments is summed. With `rates`, those of a and
    b, it is the derivative.
    """
    zero, one = lax.full_like(x, 0.0), lax.full_like(x, 1.0)
    in_a, in_b = (lax.full_like(x, rate) for rate in rates or (0.0, 0.0))
    positive, size = lax.gt(x, zero), lax.abs(x)
    most = lax.full_like(x, 600.0 if x.dtype.itemsize == 8 else 70.0)

    def top_where(itself: Any) -> tuple[Any, Any]:
        return lax.select(itself, a, lax.sub(b, a)), lax.select(itself, in_a, lax.sub(in_b, in_a))

    def turned(found: _Found, is_turned: Any) -> _Found:
        half = lax.exp(lax.select(is_turned, _times(lax, x, 0.5), zero))  # the whole may overflow
        slope = lax.add(lax.select(is_turned, lax.mul(x, found.value), zero), found.slope)
        return _Found(*(lax.mul(lax.mul(each, half), half) for each in (found.value, found.error, slope)))

    def summed(itself: Any, argument: Any, inside: Any) -> _Found:
        top, in_top = top_where(itself)
        inside = lax.bitwise_or(inside, _is_polynomial(lax, top, in_top))
        there = lax.select(inside, argument, zero)
        values = _sum_with_errors(lax, [top], [b], there, None if rates is None else ([in_top], [in_b]))
        found = turned(_found(lax, values, there), lax.bitwise_not(itself))
        return found._replace(error=lax.select(inside, found.error, lax.full_like(x, math.inf)))

    above = summed(positive, size, lax.gt(x, lax.neg(most)))
    is_poor, (top, in_top) = _is_poor(lax, above), top_where(lax.bitwise_not(positive))
    below = _below(lax, top, b, lax.select(is_poor, size, zero), in_top, in_b, with_rates=rates is not None)
    below = turned(below, positive)
    found = _better(lax, above, below._replace(error=lax.select(is_poor, below.error, lax.full_like(x, math.inf))))
    is_poor = _is_poor(lax, found)
    found = if_any(lax, is_poor, lambda: _better(lax, found, summed(
        lax.bitwise_not(positive), lax.neg(size), lax.bitwise_and(is_poor, lax.lt(size, most)))), found)
    result = _only_right(lax, found)
    if rates is not None:
        return result
    # The values of jax where the series says nothing.
    return lax.select(lax.eq(a, zero), one, lax.select(lax.eq(b, zero), lax.full_like(x, math.inf), result))


# --- 2F1 ------------------------------------------------------------------------------------------------------------


def _hyp2f1(lax: Any, a: Any, b: Any, c: Any, x: Any, rates: tuple[Any, Any, Any] | None = None) -> Any:
    """Return 2F1, or with the `rates` of a, b and c its derivative. From 1 on only polynomials are finite."""
    zero, one = lax.full_like(x, 0.0), lax.full_like(x, 1.0)
    rates = None if rates is None else tuple([lax.full_like(x, rate) for rate in rates])
    in_a, in_b, _ = rates or (zero, zero, zero)
    outside = lax.bitwise_not(lax.bitwise_and(lax.lt(x, one), lax.gt(x, lax.full_like(x, -math.inf))))
    # Polynomials are regular at 1, where other solutions of the equation are not, and the only ones that go on there.
    ends = lax.bitwise_or(_is_polynomial(lax, a, in_a), _is_polynomial(lax, b, in_b))
    is_asked, no, yes = lax.bitwise_or(ends, lax.bitwise_not(outside)), lax.ne(one, one), lax.eq(one, one)
    by_first = lax.lt(lax.abs(lax.mul(a, lax.sub(c, b))), lax.abs(lax.mul(b, lax.sub(c, a))))
    turned = lax.lt(x, lax.full_like(x, -0.5))
    found = _transformed(lax, (a, b, c), x, rates, is_asked, lax.bitwise_and(turned, by_first),
                         lax.bitwise_and(turned, lax.bitwise_not(by_first)))

    def others(is_poor: Any) -> list[_Found]:
        """All four, and what the differential equation gives."""
        parts = [lax.concatenate([lax.expand_dims(each, (0,)) for each in four], 0) for four in (
            [a] * 4, [b] * 4, [c] * 4, [x] * 4, [is_poor] * 4, [no, yes, no, yes], [no, no, yes, yes])]
        of_four = None if rates is None else tuple(
            lax.concatenate([lax.expand_dims(each, (0,))] * 4, 0) for each in rates)
        summed = _transformed(lax, parts[:3], parts[3], of_four, *parts[4:])
        return [_Found(*(lax.index_in_dim(each, at, keepdims=False) for each in summed)) for at in range(4)]

    def followed(is_poor: Any) -> _Found:
        there = lax.select(is_poor, x, zero)
        reached = _found(lax, _hyp2f1_below_one(lax, a, b, c, there, rates, with_errors=True), there)
        return reached._replace(error=lax.select(is_poor, reached.error, lax.full_like(x, math.inf)))

    def is_poor(found: _Found) -> Any:
        return lax.bitwise_and(_is_poor(lax, found), lax.bitwise_not(outside))

    first = is_poor(found)
    found = if_any(lax, first, lambda: _better(lax, found, *others(first)), found)
    found = _better(lax, found, followed(is_poor(found)))
    result = lax.select(lax.bitwise_and(outside, lax.bitwise_not(ends)), _from_one_on(lax, a, b, c, x, rates),
                        _only_right(lax, found))
    if rates is not None:
        return result
    return lax.select(lax.bitwise_or(lax.eq(a, zero), lax.eq(b, zero)), one, result)


_NEARLY_1 = 0.9


def _transformed(lax: Any, parameters: Sequence[Any], x: Any, rates: Sequence[Any] | None, is_asked: Any,
                 by_first: Any, by_second: Any) -> _Found:
    """Sum the series of 2F1 at x, or of a transformation of Pfaff's and Euler's (DLMF 15.8.1), where it converges fast.

    Pfaff's are `by_first` and `by_second` parameter, Euler's by both. Elsewhere, and where it is not asked for, the
    error is infinite.
    """
    one, zero = lax.full_like(x, 1.0), lax.full_like(x, 0.0)
    gap, log_gap = lax.sub(one, x), lax.log1p(lax.neg(x))
    is_pfaff, both = lax.ne(by_first, by_second), lax.bitwise_and(by_first, by_second)

    def transformed(first: Any, second: Any, third: Any) -> list[Any]:
        """Return, of parameters or of rates, the upper ones and the exponent of the factor, a power of 1 - x."""
        left, right = lax.sub(third, first), lax.sub(third, second)
        exponent = lax.select(both, lax.sub(left, second), lax.select(
            by_first, lax.neg(first), lax.select(by_second, lax.neg(second), zero)))
        return [lax.select(by_second, left, first), lax.select(by_first, right, second), exponent]

    *tops, exponent = transformed(*parameters)
    *in_tops, in_exponent = transformed(*(rates or [zero] * 3))
    in_lower = zero if rates is None else rates[2]
    argument = lax.select(is_pfaff, lax.div(x, lax.neg(gap)), x)
    ends = functools.reduce(lax.bitwise_or, map(functools.partial(_is_polynomial, lax), tops, in_tops))
    near = lax.bitwise_or(ends, lax.le(lax.abs(argument), lax.full_like(x, _NEARLY_1)))
    near = lax.bitwise_and(near, is_asked)
    there = lax.select(near, argument, zero)
    values = _sum_with_errors(lax, tops, parameters[2:], there, None if rates is None else (in_tops, [in_lower]))
    changes = lax.bitwise_or(by_first, by_second)
    exponent = lax.mul(exponent, lax.select(changes, log_gap, zero))
    if rates is not None:  # of the product
        rate, half = lax.mul(in_exponent, lax.select(changes, log_gap, zero)), len(values) // 2
        for at in range(len(values)):
            if at % half < 2:
                of_factor = lax.mul(rate, values[at])
                values[at + 2] = lax.add(values[at + 2], of_factor if at < half else lax.abs(of_factor))
    found = _found(lax, values, there)
    error = lax.add(found.error, _rounding(lax, x, lax.mul(found.value, exponent)))
    # With w = x / (x - 1), x d/dx is w / (1 - x) d/dw.
    of_factor = lax.div(lax.mul(lax.mul(found.value, transformed(*parameters)[2]), x), gap)
    slope = lax.sub(lax.div(found.slope, lax.select(is_pfaff, gap, one)), lax.select(changes, of_factor, zero))
    root = lax.exp(_times(lax, exponent, 0.5))
    scaled = _Found(*(lax.mul(lax.mul(each, root), root) for each in (found.value, error, slope)))
    return scaled._replace(error=lax.select(near, scaled.error, lax.full_like(x, math.inf)))


def _hyp2f1_below_one(lax: Any, a: Any, b: Any, c: Any, x: Any, rates: tuple[Any, Any, Any] | None,
                      *, with_errors: bool = False) -> list[Any]:
    """Sum the series near 0, and go on from there by the differential equation (DLMF 15.10.1), for finite x < 1.

    Where all terms are positive, near means up to 3/4, and further for large c. Returns F and F', with the `rates` of
    a, b and c their derivatives, then the errors of these if asked for.
    """
    one, below = lax.full_like(x, 1.0), lax.lt(x, lax.full_like(x, 0.0))
    in_a, in_b, in_c = rates or [lax.full_like(x, 0.0)] * 3
    is_positive = lax.gt(_least(lax, a, b, c, x), lax.full_like(x, 0.0))
    near = lax.clamp(lax.full_like(x, 0.75), lax.sub(one, lax.div(lax.full_like(x, 8.0), lax.abs(c))),
                     lax.full_like(x, 0.998))
    growth = lax.mul(_at_least_1(lax, a), _at_least_1(lax, b))  # that of the first terms, times that of c
    closer = lax.div(lax.abs(c), _times(lax, lax.add(growth, lax.abs(c)), 2.0))
    start = lax.min(lax.abs(x), lax.select(is_positive, near, closer))
    start = lax.select(below, lax.neg(start), start)
    along = None if rates is None else ([in_a, in_b], [in_c])
    values = _sum_with_errors(lax, [a, b], [c], start, along) if with_errors else _values_and_slopes(
        lax, _series(lax, [a, b], [c], start, along), start)

    def x_and_gap(place: Any) -> tuple[Any, Any]:  # the place is x below 0, and 1 - x above
        other = lax.sub(one, place)
        return lax.select(below, place, other), lax.select(below, other, place)

    def equation_at(place: Any) -> _Equation:
        x, gap = x_and_gap(place)
        return _Equation([a, b], lax.mul(x, gap), lax.sub(gap, x),
                         lax.sub(c, lax.mul(lax.add(lax.add(a, b), one), x)), [in_a, in_b] if rates else None,
                         lax.sub(in_c, lax.mul(lax.add(in_a, in_b), x)))

    def length_at(place: Any) -> Any:
        x, gap = x_and_gap(place)
        size = lax.abs(x)
        # How the solutions behave at 0, at 1 or infinity, and between.
        power = lax.select(below, _at_least_1(lax, a, b), _at_least_1(lax, lax.sub(lax.sub(c, a), b)))
        waves = lax.sqrt(lax.div(lax.mul(size, gap), _at_least_1(lax, lax.mul(a, b))))
        bounds = lax.div(size, _at_least_1(lax, c)), lax.div(gap, power), waves
        return lax.min(_times(lax, lax.min(size, gap), 0.5), _times(lax, _least(lax, *bounds), _STEP))

    return _follow(lax, equation_at, length_at, lax.select(below, one, lax.neg(one)),
                   lax.select(below, start, lax.sub(one, start)), lax.select(below, x, lax.sub(one, x)), values,
                   with_errors=with_errors)


def _from_one_on(lax: Any, a: Any, b: Any, c: Any, x: Any, rates: tuple[Any, Any, Any] | None) -> Any:
    """Return 2F1 at 1 by Gauss's theorem (DLMF 15.4.20), or its derivative; beyond, where it diverges, infinity.

    Derivatives are NaN there, and so are values where x is no number from 1 on.
    """
    infinity, not_a_number = lax.full_like(x, math.inf), lax.full_like(x, math.nan)
    less_a, less_b, one = lax.sub(c, a), lax.sub(c, b), lax.full_like(x, 1.0)
    less = lax.sub(less_a, b)
    signs = functools.reduce(lax.mul, [special("gammasgn")(lax, each) for each in (c, less, less_a, less_b)])
    gammas = lax.sub(lax.add(lax.lgamma(c), lax.lgamma(less)), lax.add(lax.lgamma(less_a), lax.lgamma(less_b)))
    value = lax.mul(signs, lax.exp(gammas))
    is_finite = lax.bitwise_and(lax.eq(x, one), lax.gt(less, lax.full_like(x, 0.0)))
    if rates is None:
        return lax.select(is_finite, value, lax.select(lax.ge(x, one), infinity, not_a_number))
    in_a, in_b, in_c = rates
    in_gammas = functools.reduce(lax.add, [lax.mul(rate, lax.digamma(each)) for rate, each in (
        (in_c, c), (lax.sub(lax.sub(in_c, in_a), in_b), less), (lax.sub(in_a, in_c), less_a),
        (lax.sub(in_b, in_c), less_b))])
    return lax.select(is_finite, lax.mul(value, in_gammas), not_a_number)


# --- the functions ----------------------------------------------------------------------------------------------------


def _hyp1f1_in_x(t: Any, out: Any, a: Any, b: Any, x: Any) -> Any:
    """DLMF 13.3.15."""
    return mul(t, mul(div(a, b), hyp1f1(add(a, 1.0), add(b, 1.0), x)))


def _hyp2f1_in_x(t: Any, out: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
    """DLMF 15.5.1."""
    return mul(t, mul(div(mul(a, b), c), hyp2f1(add(a, 1.0), add(b, 1.0), add(c, 1.0), x)))


def _hyp1f1_grad_a_in_x(t: Any, out: Any, a: Any, b: Any, x: Any) -> Any:
    """Differentiate 13.3.15 in a."""
    more = add(a, 1.0), add(b, 1.0), x
    return mul(t, div(add(hyp1f1(*more), mul(a, hyp1f1_grad_a(*more))), b))


def _hyp1f1_grad_b_in_x(t: Any, out: Any, a: Any, b: Any, x: Any) -> Any:
    """Differentiate 13.3.15 in b."""
    more = add(a, 1.0), add(b, 1.0), x
    return mul(t, mul(div(a, b), sub(hyp1f1_grad_b(*more), div(hyp1f1(*more), b))))


def _hyp2f1_grad_a_in_x(t: Any, out: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
    """Differentiate 15.5.1 in a."""
    more = add(a, 1.0), add(b, 1.0), add(c, 1.0), x
    return mul(t, mul(div(b, c), add(hyp2f1(*more), mul(a, hyp2f1_grad_a(*more)))))


def _hyp2f1_grad_c_in_x(t: Any, out: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
    """Differentiate 15.5.1 in c."""
    more = add(a, 1.0), add(b, 1.0), add(c, 1.0), x
    return mul(t, mul(div(mul(a, b), c), sub(hyp2f1_grad_c(*more), div(hyp2f1(*more), c))))


def _second(function: str, names: str) -> list[Callable[..., Any]]:
    return [no_derivative(function, name) for name in names]


hyp1f1_p = by_xla("hyp1f1", 3, [
    lambda t, out, a, b, x: mul(t, hyp1f1_grad_a(a, b, x)),
    lambda t, out, a, b, x: mul(t, hyp1f1_grad_b(a, b, x)), _hyp1f1_in_x],
    xla=kernel(_hyp1f1))
hyp1f1_grad_a_p = by_xla(
    "hyp1f1_grad_a", 3, [*_second("the derivative of hyp1f1(a, b, x) in a", "ab"), _hyp1f1_grad_a_in_x],
    xla=kernel(_hyp1f1, rates=(1.0, 0.0)))
hyp1f1_grad_b_p = by_xla(
    "hyp1f1_grad_b", 3, [*_second("the derivative of hyp1f1(a, b, x) in b", "ab"), _hyp1f1_grad_b_in_x],
    xla=kernel(_hyp1f1, rates=(0.0, 1.0)))
hyp2f1_p = by_xla("hyp2f1", 4, [
    lambda t, out, a, b, c, x: mul(t, hyp2f1_grad_a(a, b, c, x)),
    lambda t, out, a, b, c, x: mul(t, hyp2f1_grad_a(b, a, c, x)),
    lambda t, out, a, b, c, x: mul(t, hyp2f1_grad_c(a, b, c, x)), _hyp2f1_in_x],
    xla=kernel(_hyp2f1))
hyp2f1_grad_a_p = by_xla(
    "hyp2f1_grad_a", 4, [*_second("the derivative of hyp2f1(a, b, c, x) in a", "abc"), _hyp2f1_grad_a_in_x],
    xla=kernel(_hyp2f1, rates=(1.0, 0.0, 0.0)))
hyp2f1_grad_c_p = by_xla(
    "hyp2f1_grad_c", 4, [*_second("the derivative of hyp2f1(a, b, c, x) in c", "abc"), _hyp2f1_grad_c_in_x],
    xla=kernel(_hyp2f1, rates=(0.0, 0.0, 1.0)))

# --- the incomplete beta function -------------------------------------------------------------------------------------


def _is_tiny(lax: Any, a: Any, b: Any) -> Any:
    return lax.bitwise_and(lax.lt(b, lax.full_like(b, 0.1)), lax.le(a, lax.full_like(a, LARGE)))


def _by_series(lax: Any, a: Any, b: Any, x: Any, *, rates: tuple[float, float] | None) -> Any:
    """Return x^p (1 - x)^q / (p B(p, q)) F(p + q, 1; p + 1; x) (DLMF 8.17.8), with p = a and q = b; or a derivative.

    Where x > (a + 1) / (a + b + 2) it is 1 less that of 1 - x with p = b and q = a (8.17.4). So terms have one sign.
    With a tiny b, of whose size the result is, it is not, since the difference would have no digit.
    """
    one = lax.full_like(x, 1.0)
    middle = lax.div(lax.add(a, one), lax.add(lax.add(a, b), lax.full_like(x, 2.0)))
    swapped = lax.bitwise_and(lax.gt(x, middle), lax.bitwise_not(_is_tiny(lax, a, b)))
    p, q, y, rest = (lax.select(swapped, *pair) for pair in ((b, a), (a, b), (lax.sub(one, x), x), (
        x, lax.sub(one, x))))
    log_y = lax.select(swapped, lax.log1p(lax.neg(x)), lax.log(x))
    log_rest = lax.select(swapped, lax.log(x), lax.log1p(lax.neg(x)))
    exponent = lax.add(lax.mul(p, log_y), lax.mul(q, log_rest))
    front = lax.exp(lax.sub(exponent, lax.add(lax.log(p), betaln_xla(lax, p, q))))
    zero, half, large = (lax.full_like(x, number) for number in (0.0, 0.5, LARGE))
    is_wide = lax.gt(p, large)
    few, y_of_few = lax.select(is_wide, one, p), lax.select(is_wide, half, y)
    top, bottom = lax.add(few, lax.select(is_wide, one, q)), lax.add(few, one)
    wide = lax.select(is_wide, p, _times(lax, large, 2.0)), lax.select(is_wide, q, one), *(
        lax.select(is_wide, each, half) for each in (y, rest))
    values = if_any(lax, is_wide, lambda: _hyp2f1_by_integral(lax, *wide), (one, zero, zero))
    few_values = _hyp2f1_below_one(lax, top, one, bottom, y_of_few, None)
    value = lax.mul(front, lax.select(is_wide, values[0], few_values[0]))
    if rates is None:
        return lax.select(swapped, lax.sub(one, value), value)
    in_p, in_q = (lax.select(swapped, *pair) for pair in (
        [lax.full_like(x, rate) for rate in order] for order in (rates[::-1], rates)))
    both, inverse = lax.digamma(lax.add(p, q)), lax.div(one, p)
    apart = lax.sub(log_less_digamma(lax, wide[0]), log_less_digamma(lax, lax.add(*wide[:2])))
    apart = lax.select(is_wide, lax.add(lax.log1p(lax.div(q, p)), apart), lax.sub(both, lax.digamma(p)))
    in_front = lax.add(lax.mul(in_p, lax.sub(lax.add(log_y, apart), inverse)),
                       lax.mul(in_q, lax.sub(lax.add(log_rest, both), lax.digamma(q))))
    slope = _hyp2f1_below_one(lax, top, one, bottom, y_of_few, (lax.add(in_p, in_q), zero, in_p))[2]
    slope = lax.select(is_wide, lax.add(lax.mul(in_p, values[1]), lax.mul(in_q, values[2])), slope)
    slope = lax.add(lax.mul(value, in_front), lax.mul(front, slope))
    return lax.select(swapped, lax.neg(slope), slope)


def _hyp2f1_by_integral(lax: Any, p: Any, q: Any, y: Any, rest: Any) -> tuple[Any, Any, Any]:
    """Return F(p + q, 1; p + 1; y) for large p and y = 1 - rest below the mean, and its derivatives in p and q.

    It is p / (1 - y) times the integral of (1 - s)^(p-1) (1 + r s)^(q-1) over s from 0 to 1, with r = y / (1 - y); of
    that only so much counts as is not exp(-45) of the beginning. Series take a number of terms in proportion to p.
    """
    one, ratio = lax.full_like(y, 1.0), lax.div(y, rest)
    less_p, less_q = lax.sub(p, one), lax.sub(q, one)
    fall = lax.sub(less_p, lax.mul(less_q, ratio))
    length = lax.div(lax.add(_times(lax, lax.sqrt(q), 9.5), lax.full_like(y, 45.0)), p)
    length = _least(lax, one, length, lax.div(lax.full_like(y, 45.0), lax.max(fall, one)))
    factor, nothing = lax.div(lax.mul(p, length), rest), lax.full_like(y, 0.0)

    def integral(weigh: Callable[[Any, Any], Any]) -> Any:
        def density(place: Any) -> Any:
            step = lax.mul(length, place)
            down, up = lax.log1p(lax.neg(step)), lax.log1p(lax.mul(ratio, step))
            return lax.mul(lax.exp(lax.add(lax.mul(less_p, down), lax.mul(less_q, up))), weigh(down, up))
        return lax.mul(factor, integrate(lax, density, nothing))

    value = integral(lambda down, up: one)
    return value, lax.add(integral(lambda down, up: down), lax.div(value, p)), integral(lambda down, up: up)


def _by_tail(lax: Any, a: Any, b: Any, x: Any, *, rates: tuple[float, float] | None) -> Any:
    """Integrate the density of the beta distribution over the smaller tail, for large a and b.

    With t - mean = m mean = -k (1 - mean) it is exp(-a phi(m) - b phi(k)) / (t (1 - t)), phi(m) = m - log(1 + m), times
    root(a b / (2 pi (a + b))) and the scales of Stirling's series.
    """
    one, total = lax.full_like(x, 1.0), lax.add(a, b)
    mean, rest = lax.div(a, total), lax.div(b, total)
    distance, other = lax.div(lax.sub(lax.mul(x, b), lax.mul(a, lax.sub(one, x))), total), lax.sub(one, x)
    below = lax.lt(distance, lax.full_like(x, 0.0))
    rate = lax.abs(lax.sub(lax.div(a, x), lax.div(b, other)))
    length = length_of_tail(lax, lax.sqrt(lax.div(lax.mul(mean, rest), total)), rate)
    length = lax.select(below, lax.neg(lax.min(length, x)), lax.min(length, other))

    def density(place: Any) -> Any:
        step = lax.mul(length, place)
        here, t, left = lax.add(distance, step), lax.add(x, step), lax.sub(other, step)
        m, k = lax.div(here, mean), lax.neg(lax.div(here, rest))
        exponent = lax.add(lax.mul(a, log_excess(lax, m)), lax.mul(b, log_excess(lax, k)))
        value = lax.div(lax.exp(lax.neg(exponent)), lax.max(lax.mul(t, left), lax.full_like(x, 1e-30)))
        if rates is None:
            return value
        in_value = [lax.mul(lax.full_like(x, rate), lax.add(lax.log1p(moved), log_less_digamma(lax, parameter)))
                    for rate, moved, parameter in zip(rates, (m, k), (a, b), strict=True)]
        in_total = lax.mul(lax.full_like(x, sum(rates)), log_less_digamma(lax, total))
        return lax.mul(value, lax.sub(lax.add(*in_value), in_total))

    scales = lax.sub(log_scale(lax, total), lax.add(log_scale(lax, a), log_scale(lax, b)))
    factor = lax.sqrt(lax.mul(lax.div(a, lax.full_like(x, 2 * math.pi)), rest))
    tail = lax.mul(lax.mul(integrate(lax, density, x), lax.abs(length)), lax.mul(factor, lax.exp(scales)))
    beyond = lax.neg(tail) if rates is not None else lax.sub(one, tail)
    return lax.select(below, tail, beyond)


def _betainc(lax: Any, a: Any, b: Any, x: Any, rates: tuple[float, float] | None = None) -> Any:
    """Return I_x(a, b), or with rates of a and b the derivative.

    By the tail where both are large, by the series where one is, and else by XLA's continued fraction, or the series
    for derivatives.
    """
    zero, one, half, large = (lax.full_like(x, number) for number in (0.0, 1.0, 0.5, LARGE))
    positive = lax.bitwise_and(lax.gt(a, zero), lax.gt(b, zero))
    inside = functools.reduce(lax.bitwise_and, (positive, lax.gt(x, zero), lax.lt(x, one)))
    if rates is None:
        greater = lax.max(a, b)  # infinite parameters are left to XLA, which has the limits
        are_ours = lax.bitwise_or(lax.gt(greater, large), _is_tiny(lax, a, b))
        inside = lax.bitwise_and(inside, lax.bitwise_and(are_ours, lax.is_finite(greater)))
        rest = lax.betainc(*(lax.select(inside, *pair) for pair in ((one, a), (one, b), (half, x))))
    else:  # no slope at the ends
        is_end = lax.bitwise_and(positive, lax.bitwise_or(lax.eq(x, zero), lax.eq(x, one)))
        rest = lax.select(is_end, zero, lax.full_like(x, math.nan))
    are_large = lax.bitwise_and(inside, lax.bitwise_and(lax.gt(a, large), lax.gt(b, large)))
    is_small, more = lax.bitwise_and(inside, lax.bitwise_not(are_large)), lax.add(large, one)
    small = [lax.select(is_small, *pair) for pair in ((a, one), (b, one), (x, half))]
    wide = [lax.select(are_large, *pair) for pair in ((a, more), (b, more), (x, half))]
    by_series = if_any(lax, is_small, lambda: _by_series(lax, *small, rates=rates), zero)
    by_tail = if_any(lax, are_large, lambda: _by_tail(lax, *wide, rates=rates), zero)
    return lax.select(inside, lax.select(are_large, by_tail, by_series), rest)


def _beta_density(a: Any, b: Any, x: Any) -> Any:
    """x^(a-1) (1-x)^(b-1) / B(a, b) (DLMF 8.17.1)."""
    return exp(log_beta_density(a, b, x))


def _density_in(parameter: Any, logarithm: Any, a: Any, b: Any, x: Any) -> Any:
    """Differentiate the density in the parameter that is the exponent of the number with this logarithm."""
    return mul(_beta_density(a, b, x), sub(add(logarithm, digamma(add(a, b))), digamma(parameter)))


regularized_incomplete_beta_p = by_xla("regularized_incomplete_beta", 3, [
    lambda t, out, a, b, x: mul(t, betainc_grad_a(a, b, x)), lambda t, out, a, b, x: mul(t, betainc_grad_b(a, b, x)),
    lambda t, out, a, b, x: mul(t, _beta_density(a, b, x))], xla=kernel(_betainc))
betainc_grad_a_p = by_xla("betainc_grad_a", 3, [
    *_second("the derivative of betainc(a, b, x) in a", "ab"),
    lambda t, out, a, b, x: mul(t, _density_in(a, log(x), a, b, x))], xla=kernel(_betainc, rates=(1.0, 0.0)))
betainc_grad_b_p = by_xla("betainc_grad_b", 3, [
    *_second("the derivative of betainc(a, b, x) in b", "ab"),
    lambda t, out, a, b, x: mul(t, _density_in(b, log1p(neg(x)), a, b, x))], xla=kernel(_betainc, rates=(0.0, 1.0)))

hyp1f1, hyp1f1_grad_a, hyp1f1_grad_b, hyp2f1, hyp2f1_grad_a, hyp2f1_grad_c = map(operation, (
    hyp1f1_p, hyp1f1_grad_a_p, hyp1f1_grad_b_p, hyp2f1_p, hyp2f1_grad_a_p, hyp2f1_grad_c_p))
betainc, betainc_grad_a, betainc_grad_b = map(operation, (
    regularized_incomplete_beta_p, betainc_grad_a_p, betainc_grad_b_p))
