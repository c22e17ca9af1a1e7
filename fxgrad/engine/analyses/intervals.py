"""Intervals of the values of a program, sound to rounding: one for each array, from those of the inputs.

A rule maps the intervals of operands to those of results. It rounds outward, by more than its kernels may err. An
operation without a rule may make anything: (-inf, inf), and NaN.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.refinements import refine
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import definitions, memoize
from fxgrad.engine.core.regions import Region
from fxgrad.engine.ops import (
    arithmetic,
    comparison,
    creation,
    dynamic,
    exponential,
    indexing,
    joining,
    ordering,
    parts,
    pointwise,
    products,
    reductions,
    select,
    shaping,
    structural,
    trigonometric,
)
from fxgrad.engine.ops.pointwise import acts_on_each

INFINITE = math.inf
_MOST_TURNS = 2 ** 56
"""Turns that no loop takes: two years, at a nanosecond each."""
_UNITS = 16
"""Units in the last place by which a result is widened: more than kernels of either executor err."""
_TURNS = 4
"""Turns of a loop after which a bound that still moves is given up."""


class Interval(NamedTuple):
    """All elements of an array lie in [low, high], but for NaNs, which `nan` allows, and 0, unless `zero` allows it.

    The ends for integers are Python's, which are exact.
    """

    low: float
    high: float
    nan: bool
    zero: bool = True

    def join(self, other: Interval) -> Interval:
        """Return the least interval that contains both."""
        return Interval(min(self.low, other.low), max(self.high, other.high), self.nan or other.nan,
                        0 in self or 0 in other)

    def __contains__(self, number: object) -> bool:
        assert isinstance(number, int | float)
        return self.low <= number <= self.high and (self.zero or number != 0)

    @property
    def spans_zero(self) -> bool:
        """Whether 0 lies between the ends, though it may be no element itself."""
        return self.low <= 0 <= self.high

    @property
    def is_finite(self) -> bool:
        """Whether no element is infinite."""
        return self.low > -INFINITE and self.high < INFINITE

    def without_nan(self) -> Interval:
        """Return the interval of elements that are no NaN."""
        return self._replace(nan=False)


def any_value(aval: Aval) -> Interval:
    """Return the interval of all values of a type."""
    kind = dtypes.kind_of(aval.dtype)
    if kind == "b":
        return Interval(0.0, 1.0, False)
    if kind in "iu":
        info = dtypes.iinfo(aval.dtype)
        return Interval(int(info.min), int(info.max), False)
    return Interval(-INFINITE, INFINITE, dtypes.is_inexact(aval.dtype))


def fits(interval: Interval, aval: Aval) -> bool:
    """Return whether an integer dtype holds every number of an interval."""
    info = dtypes.iinfo(aval.dtype)
    return interval.low >= info.min and interval.high <= info.max


def _rounded(interval: Interval, aval: Aval, terms: int = 1) -> Interval:
    """Return the interval of results of type `aval`, of `terms` rounded steps whose exact values lie in `interval`."""
    low, high, nan, zero = interval
    if math.isnan(low) or math.isnan(high):
        return any_value(aval)
    if dtypes.kind_of(aval.dtype) in "iu":
        found = Interval(low, high, False, zero)
        return found if fits(found, aval) else any_value(aval)
    if not dtypes.is_floating(aval.dtype):
        return any_value(aval)
    info = dtypes.finfo(aval.dtype)
    relative, least, most = float(info.eps) * _UNITS * terms, float(info.tiny) * terms, float(info.max)
    # Rounding never changes the sign.
    low = low if math.isinf(low) else max(low - abs(low) * relative - least, 0.0 if low >= 0 else -INFINITE)
    high = high if math.isinf(high) else min(high + abs(high) * relative + least, 0.0 if high <= 0 else INFINITE)
    # What is above all finite numbers may be rounded to an infinity, or to the greatest of them.
    return Interval(-INFINITE if low < -most else min(low, most), INFINITE if high > most else max(high, -most), nan)


def of_constant(value: object, aval: Aval) -> Interval:
    """Return the interval of a known value."""
    if dtypes.kind_of(aval.dtype) not in "biuf":
        return any_value(aval)
    array = np.asarray(value)
    if not array.size:
        return Interval(0.0, 0.0, False)
    if dtypes.kind_of(aval.dtype) in "biu":
        return Interval(int(array.min()), int(array.max()), False)
    numbers = array.astype(np.float64)
    nans = np.isnan(numbers)
    numbers = numbers[~nans]
    return Interval(float(numbers.min()), float(numbers.max()), bool(nans.any())) if numbers.size else Interval(
        0.0, 0.0, True)


# --- programs -------------------------------------------------------------------------------------------------------

Intervals = Mapping[Atom, Interval]


def intervals_of(program: Program, inputs: Sequence[Interval]) -> dict[Atom, Interval]:
    """Return the interval of each variable of `program`, given those of its inputs."""
    found: dict[Atom, Interval] = dict(zip(program.inputs, inputs, strict=True))
    for equation in program.equations:
        found.update(zip(equation.outputs, outputs_of(equation, operands_of(equation.inputs, found), program, found),
                         strict=True))
    return found


def operands_of(atoms: Sequence[Atom], known: Intervals) -> list[Interval]:
    """Return the intervals of variables and literals."""
    return [of_constant(atom.value, atom.aval) if isinstance(atom, Literal) else known[atom] for atom in atoms]


def outputs_of(equation: Equation, inputs: Sequence[Interval], program: Program | None = None,
               known: Intervals | None = None) -> list[Interval]:
    """Return the intervals of the results of an operation.

    With its `program` and the intervals that are `known` there, those of branches and choices are narrowed by their
    conditions.
    """
    if equation.primitive is select.select_n_p and program is not None and known is not None:
        inputs = [inputs[0], *(_where(program, equation.inputs[0], number, case, known)
                               for number, case in enumerate(equation.inputs[1:]))]
    rule = interval_rules.of(equation.primitive)
    if rule is not None and all(dtypes.kind_of(atom.aval.dtype) in "biuf"
                                for atom in (*equation.inputs, *equation.outputs)):
        found = rule(equation, inputs)
        if program is not None and equation.primitive is structural.reduce_sum_p and _is_above_one(equation, program):
            return [each._replace(low=max(each.low, 0.9), high=max(each.high, 0.9)) for each in found]
        return found
    if equation.regions:
        return _through_regions(equation, inputs, program, known)
    return [any_value(var.aval) for var in equation.outputs]


def _is_above_one(equation: Equation, program: Program) -> bool:
    """Return whether an operation sums exp(x - max(x)), of which the greatest is 1, or a NaN."""
    made, axes = definitions(program), equation.params["axes"]

    def definition(atom: Atom, primitive: Primitive) -> Equation | None:
        found = made.get(atom) if isinstance(atom, Variable) else None
        return found if found is not None and found.primitive is primitive else None
    power = definition(equation.inputs[0], exponential.exp_p)
    difference = definition(power.inputs[0], arithmetic.sub_p) if power is not None else None
    if difference is None or not axes:
        return False
    x, most = difference.inputs
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.aval.shape))
    if most.aval.shape != kept and (most.aval.shape or len(axes) != len(kept)):
        return False
    while isinstance(most, Variable) and (moved := made.get(most)) is not None and moved.primitive in (
            structural.reshape_p, structural.broadcast_to_p, arithmetic.stop_gradient_p):
        most = moved.inputs[0]
    extreme = definition(most, reductions.reduce_max_p)
    return extreme is not None and extreme.inputs[0] is x and tuple(extreme.params["axes"]) == tuple(axes)


def _where(program: Program, condition: Atom, number: int, atom: Atom, known: Intervals) -> Interval:
    """Return the interval of an operand at elements where a condition has chosen the case `number`, 0 or 1."""
    interval, = operands_of([atom], known)
    if not isinstance(atom, Variable) or condition.aval.dtype != dtypes.bool_:
        return interval
    narrower = refined(program, condition, number == 1, known)
    return _computed_again(program, atom, narrower, known, {}) if narrower else interval


_MOST_AGAIN = 32
"""How many operations are computed again for a choice, at most."""


def _computed_again(program: Program, atom: Atom, narrower: Intervals, known: Intervals, done: dict[Atom, Interval],
                    ) -> Interval:
    """Return the interval of an atom at elements where some variables have `narrower` intervals.

    Operations on each element are computed again: elements of their results are made of those at the same place.
    """
    interval, = operands_of([atom], known)
    if atom in narrower:
        return _common(interval, narrower[atom])
    equation = definitions(program).get(atom) if isinstance(atom, Variable) else None
    if not isinstance(atom, Variable) or equation is None or atom in done or len(done) >= _MOST_AGAIN or (
            not acts_on_each.of(equation.primitive)):
        return done.get(atom, interval)
    done[atom] = interval
    before = operands_of(equation.inputs, known)
    given = [_computed_again(program, each, narrower, known, done) for each in equation.inputs]
    if given != before:
        done[atom] = _common(interval, outputs_of(equation, given)[equation.outputs.index(atom)])
    return done[atom]


def _common(one: Interval, other: Interval) -> Interval:
    """Return the interval of what lies in both; `other` of code that does not run."""
    low, high = max(one.low, other.low), min(one.high, other.high)
    return Interval(low, high, one.nan and other.nan, one.zero and other.zero) if low <= high else other


def refined(program: Program, condition: Atom, holds: bool, known: Intervals) -> dict[Atom, Interval]:
    """Return narrower intervals of variables of `program`, at elements where a condition `holds`, or does not."""
    every = _WithLiterals(known)

    def inside(equation: Equation, region: Region) -> _WithLiterals:
        given = [every[atom] for atom in equation.inputs]
        return _WithLiterals(intervals_of(region.program, region_inputs(equation, region, given)))
    return refine(program, condition, holds, every, inside)


class _WithLiterals(dict[Atom, Interval]):
    """The intervals of variables, and of any literal."""

    def __missing__(self, atom: Atom) -> Interval:
        assert isinstance(atom, Literal)
        return of_constant(atom.value, atom.aval)


def _branch_operands(equation: Equation, region: Region, inputs: Sequence[Interval], program: Program,
                     known: Intervals) -> Sequence[Interval]:
    """Return the intervals of the operands of a branch where it is taken."""
    number, condition = region.at[1], equation.inputs[0]
    made = definitions(program).get(condition) if isinstance(condition, Variable) else None
    if made is not None and made.primitive is structural.convert_element_type_p:
        condition = made.inputs[0]
    if condition.aval.dtype != dtypes.bool_ or len(equation.regions) != 2:
        return inputs
    found = refined(program, condition, number == 1, known)
    return [found.get(atom, interval) for atom, interval in zip(equation.inputs, inputs, strict=True)]


def region_inputs(equation: Equation, region: Region, inputs: Sequence[Interval], program: Program | None = None,
                  known: Intervals | None = None) -> list[Interval]:
    """Return the intervals of the inputs of a region, at any turn; see `outputs_of`."""
    if region.role == "branch" and program is not None and known is not None:
        inputs = _branch_operands(equation, region, inputs, program, known)
    if _counts_turns(equation, region):  # in a turn there is one, at least
        inputs = [each._replace(low=max(each.low, 1), high=max(each.high, 1)) if atom is equation.inputs[0] else each
                  for atom, each in zip(equation.inputs, inputs, strict=True)]
    found = _first_inputs(region, inputs)
    places = [place for place, link in enumerate(region.inputs) if link.how == "carry"]
    if not places:
        return found
    condition = next((each for each in equation.regions if each.role == "condition"), None)
    body = next((each for each in equation.regions if each.role == "body"), None) if condition is not None else region
    if body is None or len([link for link in body.outputs if link.how == "carry"]) != len(places):
        for place in places:
            found[place] = any_value(region.program.inputs[place].aval)
        return found
    asked = None if condition is None else (condition.program, condition.takes)
    # Loops in loops are analysed again and again, mostly from the same intervals.
    carried, running = memoize(body.program, ("carries", body.takes, body.makes, body.times, asked, tuple(inputs)),
                               lambda: _Loop(equation, body, condition, inputs).carries())
    for place, interval in zip(places, carried if region is condition or region.role == "condition" else running,
                               strict=True):
        found[place] = interval
    return found


def _counts_turns(equation: Equation, region: Region) -> bool:
    """Return whether the first operand of a loop, which no turn takes, is the number of turns."""
    return region.role == "body" and region.times is None and bool(equation.inputs) and (
        equation.inputs[0].aval.shape == () and dtypes.kind_of(equation.inputs[0].aval.dtype) in "iu"
        and all(each.role != "condition" for each in equation.regions)
        and all(link.place != 0 for link in region.inputs))


def _first_inputs(region: Region, inputs: Sequence[Interval]) -> list[Interval]:
    """Return the intervals of the inputs of a region in its first turn."""
    return [inputs[link.place] if link.how in ("same", "entry", "carry", "piece") and link.place >= 0
            else any_value(var.aval) for link, var in zip(region.inputs, region.program.inputs, strict=True)]


class _Loop:
    """The carries of a loop: their intervals at every turn, by abstract execution until they are stable."""

    def __init__(self, equation: Equation, body: Region, condition: Region | None, inputs: Sequence[Interval]) -> None:
        self._body, self._condition = body, condition
        self._inside = _first_inputs(body, inputs)
        self._asked = [] if condition is None else _first_inputs(condition, inputs)
        self._places = [place for place, link in enumerate(body.inputs) if link.how == "carry"]
        self._made = [place for place, link in enumerate(body.outputs) if link.how == "carry"]
        self._starts = [self._inside[place] for place in self._places]
        self._ends = {float(end) for interval in self._starts for end in interval[:2] if math.isfinite(end)}
        self._times: int | None = body.times
        if _counts_turns(equation, body):
            self._times = max(int(inputs[0].high), 0)

    def carries(self) -> tuple[list[Interval], list[Interval]]:
        """Return the intervals of the carries between turns, and those in a turn, where the condition held."""
        state = [*self._starts]
        for turn in range(_TURNS + 2 + (2 + len(self._ends)) * len(state)):
            joined = [one.join(two) for one, two in zip(state, self._next(state), strict=True)]
            if all(map(_contains, state, joined)):
                break
            state = joined if turn < _TURNS else [*map(self._widened, state, joined, self._places)]
        else:
            state = [any_value(self._body.program.inputs[place].aval) for place in self._places]
        for _ in range(2):  # from bounds that hold to nearer ones
            nearer = [one.join(two) for one, two in zip(self._starts, self._next(state), strict=True)]
            if not all(map(_contains, state, nearer)):
                break
            state = nearer
        return state, self._running(state)

    def _running(self, state: Sequence[Interval]) -> list[Interval]:
        """Return the intervals of the carries in a turn: those of `state` where the condition holds."""
        if self._condition is None:
            return [*state]
        program, asked = self._condition.program, [*self._asked]
        places = [place for place, link in enumerate(self._condition.inputs) if link.how == "carry"]
        for place, interval in zip(places, state, strict=True):
            asked[place] = interval
        found = refined(program, program.outputs[0], True, intervals_of(program, asked))
        return [found.get(program.inputs[place], interval) for place, interval in zip(places, state, strict=True)]

    def _next(self, state: Sequence[Interval]) -> list[Interval]:
        """Return the intervals of the carries after a turn from `state`.

        Those of counters, which grow by little in each turn, are those after any number of turns.
        """
        inside = [*self._inside]
        for place, interval in zip(self._places, self._running(state), strict=True):
            inside[place] = interval
        program = self._body.program
        known = intervals_of(program, inside)
        outputs = operands_of(program.outputs, known)
        result = []
        for place, output, start in zip(self._places, self._made, self._starts, strict=True):
            var = program.inputs[place]
            growth = _growth(program, program.outputs[output], var, known) if dtypes.kind_of(
                var.aval.dtype) in "iu" else None
            result.append(outputs[output] if growth is None else self._after_turns(start, growth, var.aval) or
                          outputs[output])
        return result

    def _after_turns(self, start: Interval, growth: Interval, aval: Aval) -> Interval | None:
        """Return the interval of a counter in every turn, which grows by `growth` in each; None if it may wrap."""
        times = _MOST_TURNS if self._times is None else self._times
        reached = Interval(start.low + min(0, growth.low * times), start.high + max(0, growth.high * times), False)
        if not fits(reached, aval):
            return None
        times = max(times - 1, 0)
        return Interval(start.low + min(0, growth.low * times), start.high + max(0, growth.high * times), False)

    def _widened(self, before: Interval, after: Interval, place: int) -> Interval:
        """Return an interval whose bounds that still move are the next values that some carry begins with, or none.

        A mean of two carries, as in bisection, stays between these.
        """
        aval = self._body.program.inputs[place].aval
        every, ends = any_value(aval), self._ends if dtypes.is_floating(aval.dtype) else ()
        low, high = before.low, before.high
        if after.low < low:
            low = max((end for end in ends if end <= after.low), default=every.low)
        if after.high > high:
            high = min((end for end in ends if end >= after.high), default=every.high)
        return Interval(low, high, after.nan, after.zero)


def _growth(program: Program, atom: Atom, var: Variable, known: Intervals) -> Interval | None:
    """Return the interval of `atom - var` for integers, where `atom` is `var` with sums of bounded terms; or None."""
    if atom is var:
        return Interval(0, 0, False)
    if not isinstance(atom, Variable) or (equation := definitions(program).get(atom)) is None:
        return None
    primitive, inputs = equation.primitive, equation.inputs
    if primitive is pointwise.add_p or primitive is arithmetic.sub_p:
        for first, second in ((0, 1), (1, 0)) if primitive is pointwise.add_p else ((0, 1),):
            grown = _growth(program, inputs[first], var, known)
            if grown is not None:
                term, = operands_of([inputs[second]], known)
                return add_exactly(grown, term if primitive is pointwise.add_p else negate(term))
        return None
    if primitive is select.select_n_p:
        return _joint([_growth(program, case, var, known) for case in inputs[1:]])
    if equation.regions and all(region.role == "branch" for region in equation.regions):
        output = equation.outputs.index(atom)
        return _joint([_growth_in_branch(equation, region, output, program, var, known)
                       for region in equation.regions])
    return None


def _growth_in_branch(equation: Equation, region: Region, output: int, program: Program, var: Variable,
                      known: Intervals) -> Interval | None:
    """Return the growth of a result of a branch over `var`, which must be an operand."""
    inner = region.program
    given = region_inputs(equation, region, operands_of(equation.inputs, known), program, known)
    inside = intervals_of(inner, given)
    made, = [atom for atom, link in zip(inner.outputs, region.outputs, strict=True) if link.place == output]
    for link, entering in zip(region.inputs, inner.inputs, strict=True):
        if link.how == "same" and equation.inputs[link.place] is var:
            grown = _growth(inner, made, entering, inside)
            if grown is not None:
                return grown
    return None


def _joint(parts: Sequence[Interval | None]) -> Interval | None:
    known = [part for part in parts if part is not None]
    return functools.reduce(Interval.join, known) if known and len(known) == len(parts) else None


def _contains(one: Interval, other: Interval) -> bool:
    return one.low <= other.low and other.high <= one.high and one.nan >= other.nan and (0 in one) >= (0 in other)


def _through_regions(equation: Equation, inputs: Sequence[Interval], program: Program | None,
                     known: Intervals | None) -> list[Interval]:
    """Return the intervals of the results of an operation that holds programs; any value where no region makes one."""
    found: list[Interval | None] = [None] * len(equation.outputs)
    for region in equation.regions:
        given = region_inputs(equation, region, inputs, program, known)
        outputs = operands_of(region.program.outputs, intervals_of(region.program, given))
        for link, interval in zip(region.outputs, outputs, strict=True):
            if link.place >= 0 and link.how in ("same", "entry", "carry"):
                before = found[link.place]
                found[link.place] = interval if before is None else before.join(interval)
        for link in region.outputs:
            if link.how == "carry" and link.place >= 0:  # and with no turn at all the carry is the input
                starts = [inputs[each.place] for each in region.inputs if each.how == "carry"]
                ends = [each.place for each in region.outputs if each.how == "carry"]
                if len(starts) != len(ends):
                    found[link.place] = None
                else:
                    start, before = starts[ends.index(link.place)], found[link.place]
                    found[link.place] = start if before is None else before.join(start)
    return [any_value(var.aval) if interval is None else interval
            for var, interval in zip(equation.outputs, found, strict=True)]


# --- rules ------------------------------------------------------------------------------------------------------------

IntervalRule = Callable[[Equation, Sequence[Interval]], "list[Interval]"]

interval_rules: Analysis[IntervalRule | None] = Analysis(
    "interval rules", "How the intervals of real operands bound the results.", missing="conservative", default=None)


def _product(x: float, y: float) -> float:
    return 0.0 if x == 0 or y == 0 else x * y


def add_exactly(x: Interval, y: Interval) -> Interval:
    """Return the interval of exact sums."""
    nan = x.nan or y.nan or (x.high == INFINITE and y.low == -INFINITE) or (
        x.low == -INFINITE and y.high == INFINITE)
    low = -INFINITE if -INFINITE in (x.low, y.low) else x.low + y.low
    high = INFINITE if INFINITE in (x.high, y.high) else x.high + y.high
    return Interval(low, high, nan)


def negate(x: Interval) -> Interval:
    """Return the interval of the negated numbers."""
    return Interval(-x.high, -x.low, x.nan, x.zero)


def multiply_exactly(x: Interval, y: Interval, least: float = 0.0) -> Interval:
    """Return the interval of exact products; numbers below `least` may be taken for 0."""
    ends = [_product(a, b) for a in x[:2] for b in y[:2]]
    nan = x.nan or y.nan or (_may_be_zero(x, least) and not y.is_finite) or (
        _may_be_zero(y, least) and not x.is_finite)
    return Interval(min(ends), max(ends), nan)


def _may_be_zero(x: Interval, least: float) -> bool:
    return x.zero and (x.spans_zero or min(abs(x.low), abs(x.high)) < least)


def exact_result(equation: Equation, inputs: Sequence[Interval]) -> Interval | None:
    """Return the interval of the result before it is rounded or wrapped; None for other operations."""
    primitive = equation.primitive
    if primitive is pointwise.add_p:
        return add_exactly(*inputs)
    if primitive is arithmetic.sub_p:
        return add_exactly(inputs[0], negate(inputs[1]))
    if primitive is arithmetic.mul_p:
        return _square(inputs[0]) if equation.inputs[0] is equation.inputs[1] else multiply_exactly(
            inputs[0], inputs[1], _least(equation.outputs[0].aval))
    if primitive is arithmetic.neg_p:
        return negate(inputs[0])
    if primitive is structural.reduce_sum_p:
        return _times(inputs[0], _count(equation))
    return None


def _square(x: Interval) -> Interval:
    ends = x.low * x.low, x.high * x.high
    return Interval(0.0 if x.spans_zero else min(ends), max(ends), x.nan)


def _times(x: Interval, count: int) -> Interval:
    """Return the interval of sums of `count` numbers, in any order."""
    nan = x.nan or (x.low == -INFINITE and x.high == INFINITE and count > 1)
    return Interval(_product(x.low, count), _product(x.high, count), nan)


def _count(equation: Equation) -> int:
    inputs, outputs = equation.inputs[0].aval.size, equation.outputs[0].aval.size
    return inputs // outputs if outputs else 0


@interval_rules.register(pointwise.add_p, arithmetic.sub_p, arithmetic.mul_p, arithmetic.neg_p)
def _arithmetic(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    exact = exact_result(equation, inputs)
    assert exact is not None
    aval = equation.outputs[0].aval
    found = _rounded(exact, aval)
    if not dtypes.is_floating(aval.dtype) or found == exact or not all(each.is_finite for each in (found, *inputs)):
        return [found]
    # Rounding keeps the order of numbers, so an end that is a number of the type is passed by no rounded one.
    low, high = _exact_ends(equation, inputs)
    return [found._replace(low=float(low) if _is_number(low, aval) else found.low,
                           high=float(high) if _is_number(high, aval) else found.high)]


def _exact_ends(equation: Equation, inputs: Sequence[Interval]) -> tuple[Fraction, Fraction]:
    """Return the exact ends of sums, differences, products and negations of numbers in finite intervals."""
    x, y = ([Fraction(end) for end in each[:2]] for each in (inputs[0], inputs[-1]))
    if equation.primitive is pointwise.add_p:
        return x[0] + y[0], x[1] + y[1]
    if equation.primitive is arithmetic.sub_p:
        return x[0] - y[1], x[1] - y[0]
    if equation.primitive is arithmetic.neg_p:
        return -x[1], -x[0]
    products = [one * other for one in x for other in y]
    if equation.inputs[0] is equation.inputs[1]:  # a square
        products = [x[0] * x[0], x[1] * x[1], *[Fraction(0)] * inputs[0].spans_zero]
    return min(products), max(products)


def _is_number(end: Fraction, aval: Aval) -> bool:
    """Return whether a number is one of a type, and none that XLA takes for 0."""
    number = float(end)
    return number == end and (not number or abs(number) >= float(dtypes.finfo(aval.dtype).tiny)) and float(
        np.asarray(number).astype(aval.dtype)) == number


def _sum_of(exact: Interval, aval: Aval, count: int) -> Interval:
    """Return the interval of a sum of `count` terms, whose partial sums are rounded and may overflow."""
    if dtypes.kind_of(aval.dtype) in "iu":
        return _rounded(exact, aval)
    terms, most = max(count, 1), max(abs(exact.low), abs(exact.high))
    partial = _rounded(Interval(min(0.0, exact.low), max(0.0, exact.high), exact.nan), aval, terms)
    nan = exact.nan or (partial.low == -INFINITE and partial.high == INFINITE)
    largest = _rounded(Interval(-most, most, nan), aval, terms).high
    error = largest - most if largest < INFINITE else INFINITE
    # A sum of numbers of one sign has that sign.
    low = 0.0 if exact.low >= 0 and error == INFINITE else exact.low - error
    high = 0.0 if exact.high <= 0 and error == INFINITE else exact.high + error
    low, high = max(low, 0.0) if exact.low >= 0 else low, min(high, 0.0) if exact.high <= 0 else high
    return _rounded(Interval(low, high, nan), aval)


@interval_rules.register(structural.reduce_sum_p)
def _sum(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    count = _count(equation)
    exact = _times(inputs[0], count)
    return [_sum_of(exact, equation.outputs[0].aval, count)]


@interval_rules.register(products.dot_general_p)
def _dot(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    (contracted, _), _ = equation.params["dimension_numbers"]
    shape = equation.inputs[0].aval.shape
    count = math.prod(shape[axis] for axis in contracted)
    exact = _times(_square(inputs[0]) if _is_square_sum(equation) else multiply_exactly(
        inputs[0], inputs[1], _least(equation.outputs[0].aval)), count)
    return [_sum_of(exact, equation.outputs[0].aval, count)]


def _is_square_sum(equation: Equation) -> bool:
    """Return whether a product sums the squares of one array: each element meets itself."""
    (of_first, of_second), (batch, of_batch) = equation.params["dimension_numbers"]
    return equation.inputs[0] is equation.inputs[1] and tuple(of_first) == tuple(of_second) and (
        tuple(batch) == tuple(of_batch)) and len(of_first) + len(batch) == len(equation.inputs[0].aval.shape)


@interval_rules.register(arithmetic.div_p)
def _quotient(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, y = inputs
    aval = equation.outputs[0].aval
    if dtypes.kind_of(aval.dtype) in "iu":
        return [_whole_quotient(x, y, aval)]
    nan = x.nan or y.nan or not (x.is_finite or y.is_finite)
    if y.spans_zero or min(abs(y.low), abs(y.high)) < _least(aval):  # XLA takes what is less for 0
        if y.zero:
            return [any_value(aval)]
        signs = {(number > 0) == (divisor > 0) for number in x[:2] for divisor in y[:2] if number and divisor}
        return [Interval(0.0 if False not in signs else -INFINITE, 0.0 if True not in signs else INFINITE, nan)]
    ends = [0.0] * (not y.is_finite)
    ends += [_divided(a, b) for a in x[:2] for b in y[:2] if not math.isinf(b)]
    return [_rounded(Interval(min(ends), max(ends), nan), aval)]


def _whole_quotient(x: Interval, y: Interval, aval: Aval) -> Interval:
    """Return the interval of quotients toward zero."""
    if y.low <= 0:
        return any_value(aval)
    ends = [(abs(int(a)) // int(b)) * (1 if a > 0 else -1) for a in x[:2] for b in y[:2]]
    return Interval(min(ends), max(ends), False)


def _divided(x: float, y: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float64(x) / np.float64(y))


def _rising(function: Callable[[float], float], low: float = -INFINITE, high: float = INFINITE,
            start: float = -INFINITE) -> IntervalRule:
    """Return the rule of a rising function with values in [low, high], which has a NaN below `start`."""
    def at(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return INFINITE
        except ValueError:
            return -INFINITE

    def rule(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
        x = inputs[0]
        aval = equation.outputs[0].aval
        if x.high < start:
            return [any_value(aval)]
        least = _least(aval)  # XLA takes what is less for 0
        low_end = x.low if abs(x.low) >= least else min(x.low, 0.0)
        high_end = x.high if abs(x.high) >= least else max(x.high, 0.0)
        found = _rounded(Interval(at(max(low_end, start)), at(high_end), x.nan or x.low < start), aval)
        return [Interval(max(found.low, low), min(found.high, high), found.nan)]
    return rule


def _log(x: float) -> float:
    return -INFINITE if x <= 0 else math.log(x)


def _log_rule(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]
    found, = _rising(_log, start=0.0)(equation, inputs)
    if x.low == 0 and not x.zero:  # the logarithm of the least number above 0
        least = float(dtypes.finfo(equation.inputs[0].aval.dtype).smallest_subnormal)
        found = found._replace(low=max(found.low, 1.01 * math.log(least)))
    return [found]


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


interval_rules.enter(_rising(math.exp, 0.0), exponential.exp_p)
interval_rules.enter(_rising(math.expm1, -1.0), exponential.expm1_p)
interval_rules.enter(_log_rule, exponential.log_p)
interval_rules.enter(_rising(lambda x: -INFINITE if x <= -1 else math.log1p(x), start=-1.0), exponential.log1p_p)
interval_rules.enter(_rising(math.sqrt, 0.0, start=0.0), exponential.sqrt_p)
interval_rules.enter(_rising(math.tanh, -1.0, 1.0), trigonometric.tanh_p)
interval_rules.enter(_rising(math.atan, -1.6, 1.6), trigonometric.atan_p)
interval_rules.enter(_rising(_logistic, 0.0, 1.0), exponential.logistic_p)


@interval_rules.register(exponential.cbrt_p)
def _cubic_root(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]  # XLA's root of large numbers is off by more than the bounds allow
    return [Interval(-INFINITE if x.low < 0 else 0.0, INFINITE if x.high > 0 else 0.0, x.nan)]


@interval_rules.register(trigonometric.atan2_p)
def _angle(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [Interval(-3.2, 3.2, inputs[0].nan or inputs[1].nan)]


@interval_rules.register(trigonometric.asin_p, trigonometric.acos_p)
def _arc(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]
    return [Interval(-1.6, 3.2, x.nan or x.low < -1 or x.high > 1)]


@interval_rules.register(trigonometric.sin_p, trigonometric.cos_p)
def _wave(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [Interval(-1.0, 1.0, inputs[0].nan or not inputs[0].is_finite)]


@interval_rules.register(exponential.square_p)
def _square_rule(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    found = _rounded(_square(inputs[0]), equation.outputs[0].aval)
    return [found._replace(low=max(found.low, 0.0)) if dtypes.is_floating(equation.outputs[0].aval.dtype) else found]


def _raised(x: float, exponent: int) -> float:
    try:
        return x ** exponent
    except OverflowError:
        return -INFINITE if x < 0 and exponent % 2 else INFINITE


_LARGEST_POWER = 64
"""Powers above it are not computed."""


@interval_rules.register(exponential.integer_pow_p)
def _power(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, aval, exponent = inputs[0], equation.outputs[0].aval, equation.params["exponent"]
    if exponent < 1 or exponent > _LARGEST_POWER:
        return [any_value(aval)]
    ends = _raised(x.low, exponent), _raised(x.high, exponent)
    if exponent % 2 == 0:
        ends = 0.0 if x.spans_zero else min(ends), max(ends)
    return [_rounded(Interval(min(ends), max(ends), x.nan), aval, exponent)]


@interval_rules.register(exponential.pow_p)
def _real_power(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, y = inputs
    aval = equation.outputs[0].aval
    if not dtypes.is_floating(aval.dtype) or x.low < 0 or (0 in x and y.low < 0):  # -0.0 to the power -1 is -inf
        return [any_value(aval)]
    return [Interval(0.0, INFINITE, x.nan or y.nan)]


@interval_rules.register(arithmetic.rem_p)
def _remainder(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, y = inputs
    whole = dtypes.kind_of(equation.outputs[0].aval.dtype) in "iu"
    most = max(abs(y.low), abs(y.high)) - whole
    if 0 in y and whole:
        most = max(abs(x.low), abs(x.high), most)
    nan = not whole and (x.nan or y.nan or 0 in y or not x.is_finite)
    return [Interval(max(min(x.low, 0), -most), min(max(x.high, 0), most), nan)]


@interval_rules.register(comparison.and_p)
def _bits(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    if dtypes.kind_of(equation.outputs[0].aval.dtype) == "b":
        return [Interval(min(each.low for each in inputs), min(each.high for each in inputs), False)]
    positive = [each.high for each in inputs if each.low >= 0]
    if not positive:
        return [any_value(equation.outputs[0].aval)]
    return [Interval(0.0, min(positive), False)]


@interval_rules.register(select.clamp_p)
def _clamped(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    low, x, high = inputs
    return [Interval(min(max(low.low, x.low), high.low), min(max(low.high, x.high), high.high),
                     low.nan or x.nan or high.nan)]


@interval_rules.register(indexing.gather_p)
def _gathered(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, indices = inputs
    params, shape = equation.params, equation.inputs[0].aval.shape
    axes = params["start_index_map"]
    rooms = [shape[axis] - params["slice_sizes"][axis] for axis in axes]
    wraps = params["mode"] == "checked" and dtypes.kind_of(equation.inputs[1].aval.dtype) == "i"
    least = [-shape[axis] if wraps else 0 for axis in axes]
    inside = not axes or (indices.low >= max(least) and indices.high <= min(rooms))
    return [x if inside or (params["mode"] == "clip" and min(rooms) >= 0) else any_value(equation.outputs[0].aval)]


@interval_rules.register(indexing.scatter_p)
def _scattered(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [inputs[0].join(inputs[2])]


@interval_rules.register(ordering.sort_p)
def _sorted(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [*inputs]


@interval_rules.register(parts.abs_p)
def _magnitude(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, aval = inputs[0], equation.outputs[0].aval
    if dtypes.kind_of(aval.dtype) == "i" and x.low <= dtypes.iinfo(aval.dtype).min:
        return [any_value(aval)]  # the least integer has no magnitude
    ends = abs(x.low), abs(x.high)
    return [Interval(0.0 if x.spans_zero else min(ends), max(ends), x.nan, x.zero)]


@interval_rules.register(parts.sign_p)
def _sign(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, least = inputs[0], _least(equation.inputs[0].aval)
    return [Interval(-1 if x.low < 0 else 1 if x.low > least else 0, 1 if x.high > 0 else -1 if x.high < -least else 0,
                     x.nan)]


@interval_rules.register(parts.floor_p, parts.ceil_p)
def _whole(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]
    return [Interval(x.low if math.isinf(x.low) else math.floor(x.low),
                     x.high if math.isinf(x.high) else math.ceil(x.high), x.nan)]


@interval_rules.register(arithmetic.nonzero_divisor_p)
def _nonzero(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]
    return [Interval(x.low or 1.0, max(x.high, 1.0) if 0 in x else x.high, False, zero=False)]


@interval_rules.register(arithmetic.max_p)
def _maximum(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, y = inputs
    return [Interval(max(x.low, y.low), max(x.high, y.high), x.nan or y.nan)]


@interval_rules.register(arithmetic.min_p)
def _minimum(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, y = inputs
    return [Interval(min(x.low, y.low), min(x.high, y.high), x.nan or y.nan)]


@interval_rules.register(structural.reshape_p, structural.transpose_p, structural.broadcast_to_p, shaping.slice_p,
                         shaping.rev_p, arithmetic.stop_gradient_p, dynamic.dynamic_slice_p, arithmetic.name_p,
                         joining.split_p, joining.unstack_p)
def _moved(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [inputs[0]] * len(equation.outputs)


@interval_rules.register(reductions.reduce_max_p, reductions.reduce_min_p)
def _extreme(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [inputs[0] if _count(equation) else any_value(equation.outputs[0].aval)]


@interval_rules.register(joining.concatenate_p, joining.stack_p)
def _joined(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [functools.reduce(Interval.join, inputs)]


@interval_rules.register(select.select_n_p)
def _chosen(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    which, *cases = inputs
    if which.low == which.high and 0 <= which.low < len(cases):
        return [cases[int(which.low)]]
    return [functools.reduce(Interval.join, inputs[1:])]


@interval_rules.register(dynamic.dynamic_update_slice_p)
def _updated(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [inputs[0].join(inputs[1])]


FALSE, TRUE = Interval(0, 0, False), Interval(1, 1, False)
"""The intervals of conditions that are known."""


def _least(aval: Aval) -> float:
    """Return the least number that XLA does not take for 0."""
    return float(dtypes.finfo(aval.dtype).tiny) if dtypes.is_floating(aval.dtype) else 0


def _is_less(x: Interval, y: Interval, aval: Aval) -> bool:
    """Return whether all numbers of `x` are less than those of `y`, for XLA too, which takes tiny ones for 0."""
    if x.nan or y.nan or x.high >= y.low:
        return False
    return x.high <= -_least(aval) or y.low >= _least(aval)


def _comparison(equation: Equation, x: Interval, y: Interval) -> bool | None:
    """Return the result of a comparison if the intervals decide it."""
    primitive, aval = equation.primitive, equation.inputs[0].aval
    if primitive in (comparison.gt_p, comparison.ge_p):
        x, y = y, x
    below, above = _is_less(x, y, aval), _is_less(y, x, aval)
    if primitive in (comparison.eq_p, comparison.ne_p):
        is_same = dtypes.kind_of(aval.dtype) in "biu" and x.low == x.high == y.low == y.high
        differ = below or above or (y[:2] == (0, 0) and not x.zero and not x.nan)
        return (primitive is comparison.eq_p) if is_same else (primitive is comparison.ne_p) if differ else None
    touches = dtypes.kind_of(aval.dtype) in "biu"
    if primitive in (comparison.lt_p, comparison.gt_p):
        return True if below else False if above or (touches and x.low >= y.high) else None
    return True if below or (touches and x.high <= y.low) else False if above else None


@interval_rules.register(comparison.eq_p, comparison.ne_p, comparison.lt_p, comparison.le_p, comparison.gt_p,
                         comparison.ge_p)
def _compared(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    found = _comparison(equation, *inputs)
    return [Interval(0, 1, False) if found is None else TRUE if found else FALSE]


@interval_rules.register(comparison.not_p)
def _negated(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]
    if dtypes.kind_of(equation.outputs[0].aval.dtype) == "b":
        return [Interval(1 - x.high, 1 - x.low, False)]
    return [any_value(equation.outputs[0].aval)]


@interval_rules.register(comparison.or_p)
def _either(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, y = inputs
    if dtypes.kind_of(equation.outputs[0].aval.dtype) == "b":
        return [Interval(max(x.low, y.low), max(x.high, y.high), False)]
    return [any_value(equation.outputs[0].aval)]


@interval_rules.register(reductions.argmax_p, reductions.argmin_p)
def _place(equation: Equation, _: Sequence[Interval]) -> list[Interval]:
    return [_rounded(Interval(0, max(_count(equation) - 1, 0), False), equation.outputs[0].aval)]


@interval_rules.register(creation.iota_p)
def _numbers(equation: Equation, _: Sequence[Interval]) -> list[Interval]:
    last = max(equation.params["shape"][equation.params["dimension"]] - 1, 0)
    return [_rounded(Interval(0, last, False), equation.outputs[0].aval)]


@interval_rules.register(structural.convert_element_type_p)
def _converted(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, before, after = inputs[0], equation.inputs[0].aval, equation.outputs[0].aval
    if dtypes.kind_of(after.dtype) == "b":
        return [any_value(after)]
    if dtypes.kind_of(after.dtype) in "iu":
        if dtypes.is_floating(before.dtype):
            if x.nan or not x.is_finite:
                return [any_value(after)]
            x = Interval(math.floor(x.low), math.ceil(x.high), False)
        return [x if fits(x, after) else any_value(after)]
    return [_rounded(x, after)]
