"""The intervals of operands whose result lies in an interval: how far conditions reach back.

`sum(x * x) < 4` bounds each element of `x`. The ends are widened by more than kernels may err. A compiler may join a
product with the sum that takes it, and factors with each other, and so skip an overflow between them: what is said of a
product holds after it is rounded once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.interval_rules import exact_result
from fxgrad.engine.analyses.interval_values import (
    INFINITE,
    UNITS,
    Interval,
    fits,
    meet,
    multiply_exactly,
    negate,
)
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Atom, Equation, Variable
from fxgrad.engine.ops import arithmetic, exponential, parts, pointwise, reductions, structural, trigonometric

_MOST_FOLLOWED = 32
"""How many operations are followed back from a condition, at most."""
_JOINED = frozenset({arithmetic.mul_p, arithmetic.div_p, exponential.square_p, exponential.integer_pow_p})
"""Operations that a compiler joins with others, so that their results need not be rounded in between."""


def narrow_operands(atom: Atom, made: Mapping[Variable, Equation], known: Mapping[Any, Interval],
                    found: dict[Any, Interval]) -> None:
    """Enter into `found` the intervals of the variables that `atom` is made of, whose interval is in `found`."""
    todo = [(atom, found[atom])] if atom in found else []
    for _ in range(_MOST_FOLLOWED):
        if not todo:
            return
        result_atom, result = todo.pop()
        equation = made.get(result_atom) if isinstance(result_atom, Variable) else None
        if equation is None or equation.primitive not in _RULES or equation.outputs[0] is not result_atom:
            continue
        given = [found.get(each, known[each]) for each in equation.inputs]
        for place, interval in _RULES[equation.primitive](equation, result, given):
            operand = equation.inputs[place]
            if not isinstance(operand, Variable):
                continue
            before = given[place]
            narrower = meet(before, interval)
            if narrower is None or narrower == before:  # None is for code that does not run
                continue
            source = made.get(operand)
            if source is not None and source.primitive in _JOINED and dtypes.is_floating(operand.aval.dtype):
                safe = meet(before, _widened(interval, operand.aval))
                if safe is not None and safe != before:
                    found[operand] = safe
            else:
                found[operand] = narrower
            todo.append((operand, narrower))


def _widened(interval: Interval, aval: Aval) -> Interval:
    """Return the exact numbers that are rounded into an interval, by any kernel."""
    info = dtypes.finfo(aval.dtype)
    relative, least, most = float(info.eps) * UNITS, 2 * float(info.tiny), float(info.max)
    low = interval.low - abs(interval.low) * relative - least if math.isfinite(interval.low) else interval.low
    high = interval.high + abs(interval.high) * relative + least if math.isfinite(interval.high) else interval.high
    return Interval(-INFINITE if low < -most else low, INFINITE if high > most else high, interval.nan)


def _finite(aval: Aval) -> Interval:
    most = float(dtypes.finfo(aval.dtype).max)
    return Interval(-most, most, False)


Operands = Iterator[tuple[int, Interval]]
"""Places of operands, with their intervals."""
Rule = Callable[[Equation, Interval, Sequence[Interval]], Operands]
"""(equation, interval of its result, intervals of its operands) -> nearer intervals of operands."""
_RULES: dict[Primitive, Rule] = {}


def _rule(*primitives: Primitive) -> Callable[[Rule], Rule]:
    def enter(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(primitives, rule))
        return rule
    return enter


def _is_real(equation: Equation) -> bool:
    return all(dtypes.is_floating(each.aval.dtype) for each in (*equation.inputs, *equation.outputs))


@_rule(arithmetic.neg_p)
def _of_negation(equation: Equation, result: Interval, _: Sequence[Interval]) -> Operands:
    if _is_real(equation):
        yield 0, negate(result)


def _of_magnitude(x: Interval, low: float, high: float, result: Interval) -> Interval:
    """Return the interval of numbers whose magnitude lies in [low, high]."""
    return Interval(low if x.low >= 0 else -high, -low if x.high <= 0 else high, result.nan, 0 in result)


@_rule(parts.abs_p)
def _of_absolute(equation: Equation, result: Interval, given: Sequence[Interval]) -> Operands:
    if _is_real(equation):
        yield 0, _of_magnitude(given[0], max(result.low, 0.0), max(result.high, 0.0), result)


def _of_even_power(equation: Equation, exponent: int, result: Interval, given: Sequence[Interval]) -> Operands:
    aval = equation.inputs[0].aval
    exact = _widened(result, aval)
    ends = Interval(max(exact.low, 0.0) ** (1 / exponent), max(exact.high, 0.0) ** (1 / exponent), False)
    low, high, _, _ = _widened(ends, aval)
    if result.is_finite and not result.nan:
        high = min(high, float(dtypes.finfo(aval.dtype).max))
    yield 0, _of_magnitude(given[0], max(low, 0.0), high, result)


@_rule(exponential.square_p)
def _of_square(equation: Equation, result: Interval, given: Sequence[Interval]) -> Operands:
    if _is_real(equation):
        yield from _of_even_power(equation, 2, result, given)


@_rule(exponential.integer_pow_p)
def _of_power(equation: Equation, result: Interval, given: Sequence[Interval]) -> Operands:
    exponent = equation.params["exponent"]
    if not _is_real(equation) or exponent < 1:
        return
    if exponent % 2 == 0:
        yield from _of_even_power(equation, exponent, result, given)
    elif result.is_finite and not result.nan:
        yield 0, _finite(equation.inputs[0].aval)


@_rule(pointwise.add_p, arithmetic.sub_p)
def _of_sum(equation: Equation, result: Interval, given: Sequence[Interval]) -> Operands:
    (x, y), aval, adds = given, equation.outputs[0].aval, equation.primitive is pointwise.add_p
    if equation.inputs[0] is equation.inputs[1]:
        return
    if dtypes.kind_of(aval.dtype) in "iu":
        total = exact_result(equation, given)
        if total is not None and fits(total, aval):  # and does not wrap
            yield from _terms(result, x, y, adds)
        return
    if result.nan or not _is_real(equation):
        return
    if result.is_finite:
        yield from ((place, _finite(aval)) for place in (0, 1))
    for place, interval in _terms(_widened(result, aval), x, y, adds):
        yield place, _widened(interval, aval)


def _terms(total: Interval, x: Interval, y: Interval, adds: bool) -> Operands:
    """Return the intervals of terms of a sum, or of a difference, in `total`."""
    yield 0, _difference(total, y if adds else negate(y))
    second = _difference(total, x)
    yield 1, second if adds else negate(second)


def _difference(total: Interval, term: Interval) -> Interval:
    """Return the interval of what adds up to `total` with `term`; an end that is infinite bounds nothing."""
    return Interval(total.low - term.high if math.isfinite(total.low) and math.isfinite(term.high) else -INFINITE,
                    total.high - term.low if math.isfinite(total.high) and math.isfinite(term.low) else INFINITE, False)


@_rule(arithmetic.mul_p)
def _of_product(equation: Equation, result: Interval, given: Sequence[Interval]) -> Operands:
    aval = equation.outputs[0].aval
    if not _is_real(equation) or result.nan:
        return
    if equation.inputs[0] is equation.inputs[1]:
        yield from _of_even_power(equation, 2, result, given)
        return
    exact = _widened(result, aval)
    for place, other in ((0, given[1]), (1, given[0])):
        if result.is_finite:  # the product of an infinity is one, or a NaN
            yield place, _finite(aval)._replace(zero=0 in result)
        if other.is_finite and min(abs(other.low), abs(other.high)) >= 1e-30 and not other.spans_zero:
            ends = [end / number for end in exact[:2] for number in other[:2]]
            yield place, _widened(Interval(min(ends), max(ends), False), aval)


@_rule(arithmetic.div_p)
def _of_quotient(equation: Equation, result: Interval, given: Sequence[Interval]) -> Operands:
    aval, y = equation.outputs[0].aval, given[1]
    if not _is_real(equation) or result.nan:
        return
    if result.is_finite:
        yield 0, _finite(aval)._replace(zero=0 in result)
    exact = _widened(result, aval)
    if y.is_finite and (exact.is_finite or (min(abs(y.low), abs(y.high)) >= 1e-30 and not y.spans_zero)):
        yield 0, _widened(multiply_exactly(exact, y), aval)


@_rule(exponential.sqrt_p)
def _of_root(equation: Equation, result: Interval, _: Sequence[Interval]) -> Operands:
    aval = equation.inputs[0].aval
    if not _is_real(equation) or result.nan:
        return
    low, high = max(result.low, 0.0), max(result.high, 0.0)
    squares = _widened(Interval(low * low, high * high, False), aval)
    info = dtypes.finfo(aval.dtype)
    yield 0, squares._replace(low=max(squares.low, -float(info.tiny)), high=min(
        squares.high, float(info.max)) if result.is_finite else squares.high)


@_rule(exponential.exp_p)
def _of_exponential(equation: Equation, result: Interval, _: Sequence[Interval]) -> Operands:
    if not _is_real(equation) or result.nan:
        return
    most, least = float(dtypes.finfo(equation.inputs[0].aval.dtype).max), 1e-30
    high = INFINITE if result.high > most else math.log(max(result.high, least)) + 0.1
    yield 0, Interval(math.log(min(result.low, most)) - 0.1 if result.low > least else -INFINITE, high, False)


@_rule(exponential.log_p)
def _of_logarithm(equation: Equation, result: Interval, _: Sequence[Interval]) -> Operands:
    aval = equation.inputs[0].aval
    if not _is_real(equation) or result.nan:
        return
    tiny, most = float(dtypes.finfo(aval.dtype).tiny), float(dtypes.finfo(aval.dtype).max)
    low = 0.9 * math.exp(min(result.low, math.log(most))) if result.low > math.log(tiny) else -tiny
    high = 1.1 * math.exp(result.high) + tiny if result.high < math.log(most) - 1 else (
        INFINITE if result.high == INFINITE else most)
    yield 0, Interval(low, high, False)


@_rule(trigonometric.sin_p, trigonometric.cos_p)
def _of_wave(equation: Equation, result: Interval, _: Sequence[Interval]) -> Operands:
    if _is_real(equation) and not result.nan:
        yield 0, _finite(equation.inputs[0].aval)


@_rule(structural.reduce_sum_p)
def _of_reduced_sum(equation: Equation, result: Interval, given: Sequence[Interval]) -> Operands:
    aval = equation.inputs[0].aval
    if not _is_whole(equation) or not _is_real(equation) or result.nan or not result.is_finite:
        return
    yield 0, _finite(aval)
    if given[0].low >= 0:  # no term is greater than the sum
        relative = float(dtypes.finfo(aval.dtype).eps) * aval.size
        if relative < 0.1:
            yield 0, _widened(Interval(0.0, max(result.high, 0.0) * (1 + 2 * relative), False), aval)


def _is_whole(equation: Equation) -> bool:
    """Return whether an operation reduces over all axes, so that what holds of the result holds of each element."""
    return not equation.outputs[0].aval.shape


@_rule(reductions.reduce_max_p, reductions.reduce_min_p)
def _of_extreme(equation: Equation, result: Interval, _: Sequence[Interval]) -> Operands:
    if _is_whole(equation):
        is_most = equation.primitive is reductions.reduce_max_p
        yield 0, Interval(-INFINITE if is_most else result.low, result.high if is_most else INFINITE, result.nan)


@_rule(arithmetic.max_p, arithmetic.min_p)
def _of_greater(equation: Equation, result: Interval, _: Sequence[Interval]) -> Operands:
    if result.nan:
        return
    is_most = equation.primitive is arithmetic.max_p
    for place in (0, 1):
        yield place, Interval(-INFINITE if is_most else result.low, result.high if is_most else INFINITE, False)


@_rule(structural.convert_element_type_p)
def _of_conversion(equation: Equation, result: Interval, _: Sequence[Interval]) -> Operands:
    before, after = equation.inputs[0].aval.dtype, equation.outputs[0].aval.dtype
    if dtypes.kind_of(before) not in "iu" or not dtypes.is_floating(after):
        return
    exact = 1 / float(dtypes.finfo(after).eps)  # below it every integer is a number of the type
    info = dtypes.iinfo(before)
    yield 0, Interval(math.ceil(result.low) if -exact < result.low < exact else int(info.min),
                      math.floor(result.high) if -exact < result.high < exact else int(info.max), False)


@_rule(structural.reshape_p, structural.broadcast_to_p)
def _of_scalar(equation: Equation, result: Interval, _: Sequence[Interval]) -> Operands:
    if equation.inputs[0].aval.size == equation.outputs[0].aval.size == 1:
        yield 0, result
