"""Intervals of operations whose operands are made of one value: computed for parts of its range, and put together.

`x * log(x)` is a product of numbers of any sign, but its factors have the same sign for each `x` above 1. Parts in
which an operand is a NaN for certain say nothing of the results that are made of numbers: where `inf / inf` would have
come before, a value is finite.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.interval_rules import interval_rules
from fxgrad.engine.analyses.interval_values import INFINITE, Interval, meet, of_constant, with_flushed
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import definitions, memoize
from fxgrad.engine.ops import arithmetic, exponential, parts, pointwise, trigonometric

_FOLLOWED = frozenset({
    pointwise.add_p, arithmetic.sub_p, arithmetic.mul_p, arithmetic.div_p, arithmetic.neg_p, parts.abs_p,
    exponential.exp_p, exponential.expm1_p, exponential.log_p, exponential.log1p_p, exponential.sqrt_p,
    exponential.square_p, exponential.integer_pow_p, exponential.logistic_p, trigonometric.sin_p, trigonometric.cos_p,
    trigonometric.tanh_p, trigonometric.atan_p})
"""Operations on each element that make a NaN of a NaN: if their result is a number, so are their operands."""
_SPLIT = frozenset({pointwise.add_p, arithmetic.sub_p, arithmetic.mul_p, arithmetic.div_p})
_MOST_OPERATIONS, _MOST_VALUES = 12, 2
"""How many operations are followed back from an operand, and how many values are split, at most."""


def in_cases(program: Program, equation: Equation, given: Sequence[Interval], found: Interval,
             known: Mapping[Any, Interval]) -> Interval:
    """Return the interval of the result of a sum, product or quotient, at most `found`, that of operands in `given`.

    `known` has the intervals of the variables of `program`.
    """
    is_unbounded = found.low == -INFINITE and found.high == INFINITE
    makes_nan = found.nan and not any(each.nan for each in given)
    if equation.primitive not in _SPLIT or not (is_unbounded or makes_nan) or (
            not dtypes.is_floating(equation.outputs[0].aval.dtype)):
        return found
    one, other = equation.inputs
    if not isinstance(one, Variable) or not isinstance(other, Variable) or one is other:
        return found
    made = definitions(program)
    if made.get(one) is None and made.get(other) is None:
        return found
    # An operation is analysed several times, mostly from the same intervals.
    earlier: list[tuple[dict[Atom, Interval], Interval]] = memoize(
        program, ("cases", equation.outputs[0], tuple(given), found), list)
    for read, result in earlier:
        if all(known.get(atom) == interval for atom, interval in read.items()):
            return result
    reading = _Reading(known)
    earlier.append((reading, _in_parts(equation, one, other, given, found, made, reading)))
    reading.forget()
    return earlier[-1][1]


class _Reading(dict[Atom, Interval]):
    """The intervals that were read, of those that are known."""

    def __init__(self, known: Mapping[Any, Interval]) -> None:
        super().__init__()
        self._known = known

    def __missing__(self, atom: Atom) -> Interval:
        self[atom] = found = self._known[atom]
        return found

    def forget(self) -> None:
        """Drop what was not read."""
        self._known = {}


def _in_parts(equation: Equation, one: Variable, other: Variable, given: Sequence[Interval], found: Interval,
              made: Mapping[Variable, Equation], known: Mapping[Atom, Interval]) -> Interval:
    """Return the interval of the result by the parts of the values that both operands are made of."""
    first, second = _sources(one, made), _sources(other, made)
    for value in [each for each in first if each in second][:_MOST_VALUES]:
        results = []
        for part in _parts(known[value], value.aval):
            operands = [_within(atom, {value: part}, made, known) for atom in (one, other)]
            operands = [each and meet(each, with_flushed(before.without_nan(), value.aval))
                        for each, before in zip(operands, given, strict=True)]
            numbers = [each for each in operands if each is not None]
            if len(numbers) == len(operands):
                result, = _rule_of(equation, numbers)
                results.append(result)
        if results:
            joined = functools.reduce(Interval.join, results)
            found = meet(found, joined._replace(nan=joined.nan or any(each.nan for each in given))) or found
    return found


def _sources(atom: Variable, made: Mapping[Variable, Equation]) -> list[Variable]:
    """Return the variables that an atom is made of, element by element, and itself."""
    found, todo, steps = dict.fromkeys([atom]), [atom], 0
    while todo and steps < _MOST_OPERATIONS:
        equation = made.get(todo.pop(0))
        if equation is None or equation.primitive not in _FOLLOWED:
            continue
        steps += 1
        for each in equation.inputs:
            if isinstance(each, Variable) and each not in found and dtypes.is_floating(each.aval.dtype):
                found[each] = None
                todo.append(each)
    return [*found]


def _parts(interval: Interval, aval: Aval) -> list[Interval]:
    """Return the parts of an interval: below -1, to 0, 0, to 1, above 1, and the infinities."""
    most, interval = float(dtypes.finfo(aval.dtype).max), with_flushed(interval, aval)
    every = [Interval(-INFINITE, -INFINITE, False), Interval(-most, -1.0, False),
             Interval(-1.0, 0.0, False, zero=False), Interval(0.0, 0.0, False), Interval(0.0, 1.0, False, zero=False),
             Interval(1.0, most, False), Interval(INFINITE, INFINITE, False)]
    return [part for each in every if (part := meet(interval, each)) is not None and (
        part.zero or part.low != 0 or part.high != 0)]


def _within(atom: Atom, memo: dict[Atom, Interval | None], made: Mapping[Variable, Equation],
            known: Mapping[Any, Interval]) -> Interval | None:
    """Return the interval of an atom where some are as in `memo`; None if it is no number there."""
    if isinstance(atom, Literal):
        return of_constant(atom.value, atom.aval)
    if atom in memo:
        return memo[atom]
    equation, before = made.get(atom), known[atom].without_nan()
    if equation is None or equation.primitive not in _FOLLOWED or len(memo) > _MOST_OPERATIONS or (
            not dtypes.is_floating(equation.inputs[0].aval.dtype)):
        return before
    memo[atom] = before
    operands = [_within(each, memo, made, known) for each in equation.inputs]
    numbers = [each for each in operands if each is not None]
    if len(numbers) < len(operands) or _is_never_a_number(equation, numbers):
        memo[atom] = None
    else:
        result, = _rule_of(equation, numbers)
        memo[atom] = meet(result.without_nan(), with_flushed(before, atom.aval))
    return memo[atom]


def _rule_of(equation: Equation, given: Sequence[Interval]) -> list[Interval]:
    rule = interval_rules.of(equation.primitive)
    assert rule is not None
    result, = rule(equation, given)
    infinity = _infinity(equation, given)
    return [result if infinity is None else Interval(infinity, infinity, result.nan)]


def _infinity(equation: Equation, given: Sequence[Interval]) -> float | None:
    """Return the infinity that the result is for certain, unless it is a NaN.

    The rules let an infinity that is made of finite numbers be rounded to the greatest one.
    """
    primitive, x, y = equation.primitive, given[0], given[-1]
    of_x, of_y = (each.low if each.low == each.high and math.isinf(each.low) else None for each in (x, y))
    if primitive in (pointwise.add_p, arithmetic.sub_p):
        return of_x if of_x is not None or of_y is None else of_y if primitive is pointwise.add_p else -of_y
    if primitive in (arithmetic.mul_p, arithmetic.div_p):
        if of_x is None and of_y is not None and primitive is arithmetic.mul_p:
            x, y, of_x = y, x, of_y
        if of_x is None or (y.spans_zero and (primitive is arithmetic.div_p or (y.low < 0 < y.high))):
            return None
        return of_x if y.high > 0 else -of_x
    if of_x is None or primitive not in _UNBOUNDED or equation.params.get("exponent", 1) < 1:
        return None
    if primitive is arithmetic.neg_p:
        return -of_x
    is_odd = primitive is exponential.integer_pow_p and equation.params["exponent"] % 2
    return of_x if of_x > 0 or is_odd else INFINITE if primitive in _EVEN else None


_EVEN = frozenset({parts.abs_p, exponential.square_p, exponential.integer_pow_p})
_UNBOUNDED = _EVEN | {arithmetic.neg_p, exponential.exp_p, exponential.expm1_p, exponential.log_p, exponential.log1p_p,
                      exponential.sqrt_p}
"""Operations of one operand with an infinite result for an infinite one."""


def _is_never_a_number(equation: Equation, given: Sequence[Interval]) -> bool:
    """Return whether the result is a NaN whatever the operands are."""
    primitive, x, y = equation.primitive, given[0], given[-1]
    of_x, of_y = (each.low if each.low == each.high and (math.isinf(each.low) or each.low == 0) else None
                  for each in (x, y))
    if primitive in (trigonometric.sin_p, trigonometric.cos_p):
        return of_x is not None and math.isinf(of_x)
    if primitive in (exponential.sqrt_p, exponential.log_p):
        return x.high < -float(dtypes.finfo(equation.inputs[0].aval.dtype).tiny)
    if of_x is None or of_y is None or primitive not in _SPLIT:
        return False
    if primitive is arithmetic.div_p:
        return math.isinf(of_x) == math.isinf(of_y)
    if primitive is arithmetic.mul_p:
        return math.isinf(of_x) != math.isinf(of_y)
    return math.isinf(of_x) and of_x == (of_y if primitive is arithmetic.sub_p else -of_y)
