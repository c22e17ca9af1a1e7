"""What a condition says of the values that it compares: their intervals where it holds, and where it does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.interval_operands import narrow_operands
from fxgrad.engine.analyses.interval_rules import TRUE
from fxgrad.engine.analyses.interval_values import Interval
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import definitions
from fxgrad.engine.core.regions import Region
from fxgrad.engine.ops import comparison, parts, reductions, structural

_TURNED = {comparison.gt_p: comparison.lt_p, comparison.ge_p: comparison.le_p}
_NEGATED = {comparison.lt_p: comparison.ge_p, comparison.le_p: comparison.gt_p, comparison.gt_p: comparison.le_p,
            comparison.ge_p: comparison.lt_p, comparison.eq_p: comparison.ne_p, comparison.ne_p: comparison.eq_p}


class Less(NamedTuple):
    """The fact that `one` is a number less than `other`; it stands among intervals, with that of what is true."""

    one: Atom
    other: Atom


Fact = Atom | Less
"""What stands among intervals."""
Inside = Callable[[Equation, Region, Mapping[Fact, Interval]], Mapping[Fact, Interval]]
"""(equation, one of its regions, intervals around) -> those of the variables and literals in the region's program."""


def refine(program: Program, condition: Atom, holds: bool, known: Mapping[Fact, Interval], inside: Inside,
           ) -> dict[Fact, Interval]:
    """Return narrower intervals of variables of `program`, at elements where `condition` is `holds`.

    `known` has the intervals of its variables and literals.
    """
    made, found = definitions(program), dict[Fact, Interval]()
    todo = [(condition, holds)]
    while todo:
        atom, expected = todo.pop()
        if not isinstance(atom, Variable) or (equation := made.get(atom)) is None:
            continue
        primitive, inputs = equation.primitive, equation.inputs
        if primitive in _NEGATED:
            _compare(primitive, expected, inputs, known, found)
            for operand in inputs:
                narrow_operands(operand, made, known, found)
        elif primitive is parts.is_finite_p and expected and isinstance(operand := inputs[0], Variable):
            most = float(dtypes.finfo(operand.aval.dtype).max)
            before = found.get(operand, known[operand])
            low = min(max(before.low, -most), most)
            found[operand] = before._replace(low=low, high=max(min(before.high, most), low), nan=False)
            narrow_operands(operand, made, known, found)
        elif equation.regions:
            todo += _in_regions(equation, equation.outputs.index(atom), expected, known, inside, found)
        elif inputs[0].aval.dtype == dtypes.bool_:
            if primitive is comparison.not_p:
                todo.append((inputs[0], not expected))
            elif primitive in (_ALL if expected else _SOME) and (inputs[0].aval.shape == atom.aval.shape or not
                                                                 atom.aval.shape or primitive in _EACH):
                todo += [(each, expected) for each in inputs]  # of rows, elements that are not reduced lie elsewhere
    return found


_EACH = frozenset({comparison.and_p, comparison.or_p})
_ALL = frozenset({comparison.and_p, reductions.reduce_and_p, structural.convert_element_type_p})
_SOME = frozenset({comparison.or_p, reductions.reduce_or_p, structural.convert_element_type_p})


def _in_regions(equation: Equation, place: int, expected: bool, known: Mapping[Fact, Interval], inside: Inside,
                found: dict[Fact, Interval]) -> list[tuple[Atom, bool]]:
    """Narrow the operands of a call, or of the only branch that can return `expected`; return what holds besides."""
    if equation.regions[0].role not in ("branch", "inline", "call"):
        return []
    possible = [(number, region) for number, region in enumerate(equation.regions)
                if not isinstance(output := region.program.outputs[place], Literal) or bool(output.value) == expected]
    if len(possible) != 1:
        return []
    (number, region), = possible
    program = region.program
    narrower = refine(program, program.outputs[place], expected, inside(equation, region, known), inside)
    for link, var in zip(region.inputs, program.inputs, strict=True):
        if var in narrower and link.how == "same" and isinstance(equation.inputs[link.place], Variable):
            found.setdefault(equation.inputs[link.place], narrower[var])
    return [(equation.inputs[0], number == 1)] if region.role == "branch" and len(equation.regions) == 2 else []


def _compare(primitive: Primitive, holds: bool, inputs: list[Atom], known: Mapping[Fact, Interval],
             found: dict[Fact, Interval]) -> None:
    """Narrow both operands of a comparison."""
    if any(dtypes.kind_of(atom.aval.dtype) not in "iuf" for atom in inputs):
        return
    relation = primitive if holds else _NEGATED[primitive]
    first, second = inputs
    if relation in _TURNED:
        relation, first, second = _TURNED[relation], second, first
    # A comparison that holds has no NaN, but for an inequality; one that does not may have any.
    is_of_numbers = holds if primitive is not comparison.ne_p else not holds
    if relation is comparison.lt_p and is_of_numbers and isinstance(first, Variable) and isinstance(second, Variable):
        found[Less(first, second)] = TRUE
    for atom, other, is_first in ((first, second, True), (second, first, False)):
        limit = known[other]
        if not isinstance(atom, Variable) or (limit.nan and not is_of_numbers):
            continue
        before = found.get(atom, known[atom])
        if is_of_numbers:
            before = before.without_nan()
        if relation in (comparison.lt_p, comparison.le_p):
            narrow = _below if is_first else _above
            found[atom] = narrow(before, limit, relation is comparison.lt_p, atom.aval)
        elif relation is comparison.eq_p:
            found[atom] = _above(_below(before, limit, False, atom.aval), limit, False, atom.aval)
        elif limit.low == limit.high == 0:
            found[atom] = before._replace(zero=False)


def _below(x: Interval, limit: Interval, strict: bool, aval: Aval) -> Interval:
    high = min(x.high, _end(limit.high, strict, aval, 1))
    # An interval without a number is one of code that does not run.
    x = x._replace(low=min(x.low, high), high=high)
    return x._replace(zero=x.zero and not (strict and limit.high <= 0))


def _above(x: Interval, limit: Interval, strict: bool, aval: Aval) -> Interval:
    low = max(x.low, _end(limit.low, strict, aval, -1))
    x = x._replace(low=low, high=max(x.high, low))
    return x._replace(zero=x.zero and not (strict and limit.low >= 0))


def _end(limit: float, strict: bool, aval: Aval, sign: int) -> float:
    """Return the greatest number (`sign` 1) that is less than `limit`, or equal to it unless `strict`; or the least.

    XLA takes the least numbers for 0, so that they equal it, but are neither less nor greater.
    """
    if dtypes.kind_of(aval.dtype) in "iu":
        return limit - sign * strict
    if strict and limit == sign * math.inf:
        return sign * float(dtypes.finfo(aval.dtype).max)
    least = float(dtypes.finfo(aval.dtype).tiny)
    if abs(limit) < least:
        return limit if strict else limit + sign * least
    if strict and aval.dtype in (np.float32, np.float64) and math.isfinite(limit):
        nearest = aval.dtype.type(limit)  # a limit between two numbers of the type is left
        with np.errstate(over="ignore"):  # after the greatest number comes infinity
            return float(np.nextafter(nearest, aval.dtype.type(-sign * math.inf))) if float(nearest) == limit else limit
    return limit
