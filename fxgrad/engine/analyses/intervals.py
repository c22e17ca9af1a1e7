"""Intervals of the values of a program, sound to rounding: one for each array, from those of the inputs.

Operations without a rule, and those whose programs it cannot follow, may make anything: (-inf, inf), and NaN.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.interval_cases import in_cases
from fxgrad.engine.analyses.interval_rules import TRUE, interval_rules
from fxgrad.engine.analyses.interval_values import Interval, add_exactly, any_value, fits, meet, negate, of_constant
from fxgrad.engine.analyses.refinements import Fact, Less, refine
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import definitions, memoize
from fxgrad.engine.core.regions import Region
from fxgrad.engine.ops import arithmetic, comparison, exponential, pointwise, reductions, select, structural
from fxgrad.engine.ops.pointwise import acts_on_each

_MOST_TURNS = 2 ** 56
"""Turns that no loop takes: two years, at a nanosecond each."""
_TURNS = 4
"""Turns of a loop after which a bound that still moves is given up."""
_FOLLOWED_TURNS, _FOLLOWED_EQUATIONS = 64, 1024
"""How many turns of a loop are followed one by one, and how many operations in all of them, at most."""


Intervals = Mapping[Fact, Interval]
Pairs = frozenset[tuple[int, int]]
"""Places of inputs of a program, the first of which is less than the second."""


def at_the_start(program: Program, inputs: Sequence[Interval], less: Pairs = frozenset()) -> dict[Fact, Interval]:
    """Return what is known of the inputs of a program: their intervals, and which are `less` than others."""
    found: dict[Fact, Interval] = dict(zip(program.inputs, inputs, strict=True))
    found.update((Less(program.inputs[one], program.inputs[other]), TRUE) for one, other in less)
    return found


def intervals_of(program: Program, inputs: Sequence[Interval], less: Pairs = frozenset(), in_parts: bool = True,
                 ) -> Intervals:
    """Return the interval of each variable of `program`, given those of its inputs, and which are less.

    Unless `in_parts`, no range is split into parts, which takes several times as long.
    """
    # Branches and bodies are analysed again and again, mostly from the same intervals.
    return memoize(program, ("intervals", tuple(inputs), less, in_parts),
                   lambda: _intervals_of(program, inputs, less, in_parts))


def _intervals_of(program: Program, inputs: Sequence[Interval], less: Pairs, in_parts: bool) -> Intervals:
    found = at_the_start(program, inputs, less)
    for equation in program.equations:
        found.update(zip(equation.outputs, outputs_of(
            equation, operands_of(equation.inputs, found), program, found, in_parts), strict=True))
    return found


def operands_of(atoms: Sequence[Atom], known: Intervals) -> list[Interval]:
    """Return the intervals of variables and literals."""
    return [of_constant(atom.value, atom.aval) if isinstance(atom, Literal) else known[atom] for atom in atoms]


def outputs_of(equation: Equation, inputs: Sequence[Interval], program: Program | None = None,
               known: Intervals | None = None, in_parts: bool = True) -> list[Interval]:
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
        if program is None or known is None or len(found) != 1:
            return found
        divisor = floored_divisor(equation, program)
        if divisor is not None and 0 not in (limit := operands_of([divisor], known)[0]):
            # The result is nearer to 0, and has the sign of the divisor; by 0 it is the dividend.
            return [_common(found[0], Interval(min(limit.low + 1, 0), max(limit.high - 1, 0), False))]
        found = _ordered(equation, found, program, known)
        return [in_cases(program, equation, inputs, found[0], known)] if in_parts else found
    if equation.regions:
        return _through_regions(equation, inputs, program, known, in_parts)
    return [any_value(var.aval) for var in equation.outputs]


def _ordered(equation: Equation, found: list[Interval], program: Program, known: Intervals) -> list[Interval]:
    """Narrow the difference of numbers of which one is not greater; if it is less, they are not the same infinity."""
    if equation.primitive is not arithmetic.sub_p or not dtypes.is_floating(equation.outputs[0].aval.dtype):
        return found  # integers may wrap
    sign, (difference,) = _sign_of_difference(equation, program, known), found
    if not sign:
        return found
    is_less = any(Less(*pair) in known for pair in (equation.inputs, equation.inputs[::-1]))
    low, high, nan, _ = difference
    return [Interval(max(low, 0.0), max(high, 0.0), nan and not is_less) if sign > 0 else
            Interval(min(low, 0.0), min(high, 0.0), nan and not is_less)]


def _is_above_one(equation: Equation, program: Program) -> bool:
    """Return whether an operation sums exp(x - max(x)), of which the greatest is 1, or a NaN."""
    made = definitions(program)
    power = _definition(equation.inputs[0], made, exponential.exp_p)
    difference = _definition(power.inputs[0], made, arithmetic.sub_p) if power is not None else None
    if difference is None or not equation.params["axes"]:
        return False
    x, extreme = difference.inputs
    return _extreme_of(x, extreme, made) == (reductions.reduce_max_p, tuple(equation.params["axes"]))


def floored_divisor(equation: Equation, program: Program) -> Atom | None:
    """Return y where an operation makes the remainder of the sign of y, r + where((r != 0) & (r < 0 != y < 0), y, 0).

    None if it does not. The sum does not overflow.
    """
    if equation.primitive is not pointwise.add_p or dtypes.kind_of(equation.outputs[0].aval.dtype) != "i":
        return None
    left, added = equation.inputs
    made = definitions(program)
    remainder, choice = _definition(left, made, arithmetic.rem_p), _definition(added, made, select.select_n_p)
    if remainder is None or choice is None or len(choice.inputs) != 3 or not _is_zero(choice.inputs[1]):
        return None
    divisor = choice.inputs[2]
    both = _definition(choice.inputs[0], made, comparison.and_p)
    signs = _definition(both.inputs[1], made, comparison.ne_p) if both is not None else None
    if both is None or signs is None or remainder.inputs[1] is not divisor:
        return None
    questions = ((both.inputs[0], comparison.ne_p, left), (signs.inputs[0], comparison.lt_p, left),
                 (signs.inputs[1], comparison.lt_p, divisor))
    asked = [_definition(atom, made, primitive) for atom, primitive, _ in questions]
    return divisor if all(each is not None and each.inputs[0] is value and _is_zero(each.inputs[1])
                          for each, (*_, value) in zip(asked, questions, strict=True)) else None


def _is_zero(atom: Atom) -> bool:
    return isinstance(atom, Literal) and atom.value == 0


def _definition(atom: Atom, made: Mapping[Variable, Equation], primitive: Primitive) -> Equation | None:
    found = made.get(atom) if isinstance(atom, Variable) else None
    return found if found is not None and found.primitive is primitive else None


def _extreme_of(x: Atom, extreme: Atom, made: Mapping[Variable, Equation],
                ) -> tuple[Primitive, tuple[int, ...]] | None:
    """Return the reduction and its axes if `extreme` has the greatest or least elements of `x`, at their places."""
    spread = _definition(extreme, made, structural.broadcast_to_p)
    if spread is not None:
        extreme = spread.inputs[0]
    shape = extreme.aval.shape
    if shape:  # axes are added in front
        shape = (*[1] * (len(x.aval.shape) - len(shape)), *shape)
    while isinstance(extreme, Variable) and (moved := made.get(extreme)) is not None and moved.primitive in (
            structural.reshape_p, structural.broadcast_to_p, arithmetic.stop_gradient_p):
        extreme = moved.inputs[0]
    reduction = made.get(extreme) if isinstance(extreme, Variable) else None
    if reduction is None or reduction.primitive not in (reductions.reduce_max_p, reductions.reduce_min_p) or (
            reduction.inputs[0] is not x):
        return None
    axes = tuple(reduction.params["axes"])
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.aval.shape))
    return (reduction.primitive, axes) if shape == kept or (not shape and len(axes) == len(kept)) else None


def _sign_of_difference(equation: Equation, program: Program, known: Intervals) -> int:
    """Return the sign of a difference, or 0: of a number and one that is less, or of an array and its extreme."""
    x, y = equation.inputs
    if not isinstance(x, Variable) or not isinstance(y, Variable):
        return 0
    if Less(y, x) in known or Less(x, y) in known:
        return 1 if Less(y, x) in known else -1
    made = definitions(program)
    for one, extreme, sign in ((x, y, -1), (y, x, 1)):
        found = _extreme_of(one, extreme, made)
        if found is not None:
            return sign if found[0] is reductions.reduce_max_p else -sign
    return 0


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
    if given != before or equation.primitive is arithmetic.sub_p:
        both = cast(Intervals, ChainMap(cast(Any, narrower), cast(Any, known)))
        again, = _ordered(equation, outputs_of(equation, given), program, both)
        done[atom] = _common(interval, in_cases(program, equation, given, again, both))
    return done[atom]


def _common(one: Interval, other: Interval) -> Interval:
    """Return the interval of what lies in both; `other` of code that does not run."""
    return meet(one, other) or other


def refined(program: Program, condition: Atom, holds: bool, known: Intervals) -> dict[Fact, Interval]:
    """Return narrower intervals of variables of `program`, at elements where a condition `holds`, or does not."""
    def inside(equation: Equation, region: Region, around: Mapping[Fact, Interval]) -> _WithLiterals:
        given = [around[atom] for atom in equation.inputs]
        return _WithLiterals(intervals_of(region.program, region_inputs(equation, region, given)))
    return refine(program, condition, holds, _WithLiterals(known), inside)


class _WithLiterals(dict[Fact, Interval]):
    """The intervals of variables, and of any literal."""

    def __missing__(self, atom: Fact) -> Interval:
        assert isinstance(atom, Literal)
        return of_constant(atom.value, atom.aval)


def _where_taken(equation: Equation, region: Region, program: Program, known: Intervals) -> dict[Fact, Interval]:
    """Return what is narrower where a branch is taken."""
    number, condition = region.at[1], equation.inputs[0]
    if condition.aval.dtype != dtypes.bool_ or len(equation.regions) != 2:
        return {}
    return refined(program, condition, number == 1, known)


def region_inputs(equation: Equation, region: Region, inputs: Sequence[Interval], program: Program | None = None,
                  known: Intervals | None = None) -> list[Interval]:
    """Return the intervals of the inputs of a region, at any turn; see `outputs_of`."""
    if region.role == "branch" and program is not None and known is not None:
        narrower = _where_taken(equation, region, program, known)
        done: dict[Atom, Interval] = {}
        if narrower:
            inputs = [_computed_again(program, atom, narrower, known, done) for atom in equation.inputs]
    if _counts_turns(equation, region):  # in a turn there is one, at least
        inputs = [each._replace(low=max(each.low, 1), high=max(each.high, 1)) if atom is equation.inputs[0] else each
                  for atom, each in zip(equation.inputs, inputs, strict=True)]
    found = _first_inputs(region, inputs)
    places = [place for place, link in enumerate(region.inputs) if link.how == "carry"]
    if not places:
        return found
    carries = _loop_carries(equation, region, inputs)
    if carries is None:
        for place in places:
            found[place] = any_value(region.program.inputs[place].aval)
        return found
    for place, interval in zip(places, carries.between if region.role == "condition" else carries.inside, strict=True):
        found[place] = interval
    return found


def _loop_carries(equation: Equation, region: Region, inputs: Sequence[Interval],
                  ) -> _Carries | None:
    """Return the intervals of the carries of a loop; None if they are not paired."""
    condition, body = _loop_regions(equation, region)
    if body is None or len([link for link in body.outputs if link.how == "carry"]) != len(
            [link for link in body.inputs if link.how == "carry"]):
        return None
    asked = None if condition is None else (condition.program, condition.takes)
    return memoize(body.program, ("carries", body.takes, body.makes, body.times, asked, tuple(inputs)),
                   lambda: _Loop(equation, body, condition, inputs).carries())


def _loop_regions(equation: Equation, region: Region) -> tuple[Region | None, Region | None]:
    """Return the condition and the body of a loop, of which `region` is one."""
    condition = next((each for each in equation.regions if each.role == "condition"), None)
    if condition is None:
        return None, region
    return condition, next((each for each in equation.regions if each.role == "body"), None)


def region_pairs(equation: Equation, region: Region, program: Program | None = None,
                 known: Intervals | None = None) -> Pairs:
    """Return which inputs of a region are less than others, at any turn: by what is known, and by its condition."""
    if len(region.inputs) < 2:
        return frozenset()
    less: list[tuple[object, object]] = []
    if program is not None and known is not None:
        facts = [*known] if region.role != "branch" else [*known, *_where_taken(equation, region, program, known)]
        less += [(fact.one, fact.other) for fact in facts if isinstance(fact, Less)]
    condition = _loop_regions(equation, region)[0] if region.role == "body" else None
    if condition is not None:
        inside = condition.program
        asked: dict[Atom, object] = dict(zip(inside.inputs, _origins(equation, condition), strict=True))
        held = refined(inside, inside.outputs[0], True, intervals_of(inside, [*map(any_value, inside.in_avals)]))
        less += [(asked[fact.one], asked[fact.other]) for fact in held
                 if isinstance(fact, Less) and fact.one in asked and fact.other in asked]
    if not less:
        return frozenset()
    places: dict[object, list[int]] = {}
    for place, origin in enumerate(_origins(equation, region)):
        places.setdefault(origin, []).append(place)
    return frozenset((one, other) for first, second in less
                     for one in places.get(first, ()) for other in places.get(second, ()))


def _origins(equation: Equation, region: Region) -> list[object]:
    """Return what each input of a region is at any turn: a variable around it, or the number of a carry."""
    carries = itertools.count()
    return [equation.inputs[link.place] if link.how == "same" and link.place >= 0
            else next(carries) if link.how == "carry" else None for link in region.inputs]


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


class _Carries(NamedTuple):
    """The intervals of the carries of a loop: between its turns, in a turn, and at any time if its turns were followed.

    Those between turns need not contain what the last turn makes of a counter.
    """

    between: list[Interval]
    inside: list[Interval]
    every: list[Interval] | None = None


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
        self._less = region_pairs(equation, body)
        self._times: int | None = body.times
        if _counts_turns(equation, body):
            self._times = max(int(inputs[0].high), 0)

    def carries(self) -> _Carries:
        """Return the intervals of the carries."""
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
        if all(_is_bounded(interval, self._body.program.inputs[place].aval)
               for place, interval in zip(self._places, state, strict=True)):
            return _Carries(state, self._running(state))
        turns = self._most_turns(state)
        if turns > _FOLLOWED_TURNS or turns * _size(self._body.program) > _FOLLOWED_EQUATIONS:
            return _Carries(state, self._running(state))
        return self._followed(turns, state)

    def _most_turns(self, state: Sequence[Interval]) -> int:
        """Return how many turns the loop takes at most: the steps of a counter within its bounds."""
        program, running = self._body.program, self._running(state)
        turns = _MOST_TURNS if self._times is None else self._times
        known = self._known(running)
        for place, output, interval in zip(self._places, self._made, running, strict=True):
            var = program.inputs[place]
            if dtypes.kind_of(var.aval.dtype) not in "iu" or interval.high - interval.low > _MOST_TURNS:
                continue
            growth = _growth(program, program.outputs[output], var, known)
            if growth is not None and (growth.low > 0 or growth.high < 0) and fits(
                    add_exactly(interval, growth), var.aval):
                step = min(abs(growth.low), abs(growth.high))
                turns = min(turns, int((interval.high - interval.low) // step) + 1)
        return turns

    def _followed(self, turns: int, bounds: Sequence[Interval]) -> _Carries:
        """Return the intervals of the carries from those of each turn; those between turns lie in `bounds`."""
        program = self._body.program
        state = every = [*self._starts]
        inside: list[Interval] | None = None
        for _ in range(turns):
            running = self._running(state)
            inside = running if inside is None else [*map(Interval.join, inside, running)]
            known = self._known(running)
            outputs = operands_of(program.outputs, known)
            state = [outputs[output] for output in self._made]
            every = [*map(Interval.join, every, state)]
            state = [*map(_common, bounds, state)]
        return _Carries(every, self._running(every) if inside is None else inside, every)

    def _known(self, carries: Sequence[Interval]) -> Intervals:
        """Return the intervals of the variables of the body in a turn from these carries."""
        return intervals_of(self._body.program, self._with_carries(self._inside, self._places, carries), self._less,
                            in_parts=False)

    @staticmethod
    def _with_carries(given: Sequence[Interval], places: Sequence[int], carries: Sequence[Interval]) -> list[Interval]:
        """Return the intervals of the inputs of a program with those of its carries."""
        result = [*given]
        for place, interval in zip(places, carries, strict=True):
            result[place] = interval
        return result

    def _running(self, state: Sequence[Interval]) -> list[Interval]:
        """Return the intervals of the carries in a turn: those of `state` where the condition holds."""
        if self._condition is None:
            return [*state]
        program = self._condition.program
        places = [place for place, link in enumerate(self._condition.inputs) if link.how == "carry"]
        asked = self._with_carries(self._asked, places, state)
        found = refined(program, program.outputs[0], True, intervals_of(program, asked))
        return [found.get(program.inputs[place], interval) for place, interval in zip(places, state, strict=True)]

    def _next(self, state: Sequence[Interval]) -> list[Interval]:
        """Return the intervals of the carries after a turn from `state`.

        Those of counters, which grow by little in each turn, are those after any number of turns.
        """
        program = self._body.program
        known = self._known(self._running(state))
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


def _is_bounded(interval: Interval, aval: Aval) -> bool:
    return interval.is_finite and not interval.nan and (
        interval[:2] != any_value(aval)[:2] or aval.dtype == dtypes.bool_)


def _size(program: Program) -> int:
    """Return the number of operations of a program, and of those inside."""
    return len(program.equations) + sum(_size(inner) for equation in program.equations for inner in equation.programs)


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


def _at_the_end(equation: Equation, inputs: Sequence[Interval], found: list[Interval | None]) -> None:
    """Narrow the carries that a loop returns, for which its condition is false."""
    condition = next((each for each in equation.regions if each.role == "condition"), None)
    if condition is None:
        return
    body = next(each for each in equation.regions if each.role == "body")
    program = condition.program
    given = region_inputs(equation, condition, inputs)
    last = refined(program, program.outputs[0], False, intervals_of(program, given))
    carries = [var for link, var in zip(condition.inputs, program.inputs, strict=True) if link.how == "carry"]
    outputs = [link.place for link in body.outputs if link.how == "carry"]
    for var, place in zip(carries, outputs, strict=False):
        before = found[place] if place >= 0 else None
        if var in last and before is not None:
            found[place] = _common(before, last[var])


def _through_regions(equation: Equation, inputs: Sequence[Interval], program: Program | None,
                     known: Intervals | None, in_parts: bool) -> list[Interval]:
    """Return the intervals of the results of an operation that holds programs; any value where no region makes one."""
    found: list[Interval | None] = [None] * len(equation.outputs)
    for region in equation.regions:
        given = region_inputs(equation, region, inputs, program, known)
        less = region_pairs(equation, region, program, known)
        outputs = operands_of(region.program.outputs, intervals_of(region.program, given, less, in_parts))
        for link, interval in zip(region.outputs, outputs, strict=True):
            if link.place >= 0 and link.how in ("same", "entry"):
                before = found[link.place]
                found[link.place] = interval if before is None else before.join(interval)
        results = [(link.place, interval) for link, interval in zip(region.outputs, outputs, strict=True)
                   if link.how == "carry"]
        carries = _loop_carries(equation, region, inputs) if results else None
        starts = [inputs[link.place] for link in region.inputs if link.how == "carry"]
        for number, (place, interval) in enumerate(results):
            if place >= 0 and carries is not None:  # with no turn at all the carry is the input
                found[place] = carries.every[number] if carries.every is not None else interval.join(starts[number])
    _at_the_end(equation, inputs, found)
    return [any_value(var.aval) if interval is None else interval
            for var, interval in zip(equation.outputs, found, strict=True)]
