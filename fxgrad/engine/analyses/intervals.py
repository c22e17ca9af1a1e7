"""Intervals of the values of a program, sound to rounding: one for each array, from those of the inputs.

Operations without a rule, and those whose programs it cannot follow, may make anything: (-inf, inf), and NaN.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.interval_rules import interval_rules
from fxgrad.engine.analyses.interval_values import Interval, add_exactly, any_value, fits, negate, of_constant
from fxgrad.engine.analyses.refinements import refine
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import definitions, memoize
from fxgrad.engine.core.regions import Region
from fxgrad.engine.ops import arithmetic, exponential, pointwise, reductions, select, structural
from fxgrad.engine.ops.pointwise import acts_on_each

_MOST_TURNS = 2 ** 56
"""Turns that no loop takes: two years, at a nanosecond each."""
_TURNS = 4
"""Turns of a loop after which a bound that still moves is given up."""


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
