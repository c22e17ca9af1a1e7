"""What a condition says of the values that it compares: their intervals where it holds, and where it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import definitions
from fxgrad.engine.ops import comparison, reductions, structural

if TYPE_CHECKING:
    from fxgrad.engine.analyses.intervals import Interval

_TURNED = {comparison.gt_p: comparison.lt_p, comparison.ge_p: comparison.le_p}
_NEGATED = {comparison.lt_p: comparison.ge_p, comparison.le_p: comparison.gt_p, comparison.gt_p: comparison.le_p,
            comparison.ge_p: comparison.lt_p, comparison.eq_p: comparison.ne_p, comparison.ne_p: comparison.eq_p}


def refine(program: Program, condition: Atom, holds: bool, intervals: Mapping[Atom, Interval],
           bounds: Mapping[Atom, Interval]) -> dict[Atom, Interval]:
    """Return narrower intervals of variables of `program`, at elements where `condition` is `holds`.

    `intervals` has those of the variables, and `bounds` those of the variables and literals that conditions compare.
    """
    found: dict[Atom, Interval] = {}
    _visit(definitions(program), condition, holds, intervals, bounds, found)
    return found


def _visit(made: Mapping[Variable, Equation], condition: Atom, holds: bool, intervals: Mapping[Atom, Interval],
           bounds: Mapping[Atom, Interval], found: dict[Atom, Interval]) -> None:
    equation = made.get(condition) if isinstance(condition, Variable) else None
    if equation is None:
        return
    primitive, inputs = equation.primitive, equation.inputs
    whole = reductions.reduce_and_p if holds else reductions.reduce_or_p
    both = comparison.and_p if holds else comparison.or_p
    if primitive is comparison.not_p:
        _visit(made, inputs[0], not holds, intervals, bounds, found)
    elif primitive in (both, whole, structural.convert_element_type_p) and all(
            atom.aval.dtype == dtypes.bool_ for atom in inputs):
        for atom in inputs:
            _visit(made, atom, holds, intervals, bounds, found)
    elif primitive in _NEGATED:
        _compare(primitive, holds, inputs, intervals, bounds, found)


def _compare(primitive: Primitive, holds: bool, inputs: list[Atom], intervals: Mapping[Atom, Interval],
             bounds: Mapping[Atom, Interval], found: dict[Atom, Interval]) -> None:
    """Narrow both operands of a comparison."""
    if any(dtypes.kind_of(atom.aval.dtype) not in "iuf" for atom in inputs):
        return
    relation = primitive if holds else _NEGATED[primitive]
    first, second = inputs
    if relation in _TURNED:
        relation, first, second = _TURNED[relation], second, first
    # A comparison that holds has no NaN, but for an inequality; one that does not may have any.
    is_of_numbers = holds if primitive is not comparison.ne_p else not holds
    for atom, other, is_first in ((first, second, True), (second, first, False)):
        limit = bounds[other]
        if not isinstance(atom, Variable) or (limit.nan and not is_of_numbers):
            continue
        before = found.get(atom, intervals[atom])
        if is_of_numbers:
            before = before.without_nan()
        if relation in (comparison.lt_p, comparison.le_p):
            narrow = _below if is_first else _above
            found[atom] = narrow(before, limit, relation is comparison.lt_p, atom.aval)
        elif relation is comparison.eq_p:
            found[atom] = _above(_below(before, limit, False, atom.aval), limit, False, atom.aval)
        elif limit.low == limit.high == 0:
            found[atom] = before._replace(zero=False)


def _step(strict: bool, aval: Aval) -> float:
    return float(strict) if dtypes.kind_of(aval.dtype) in "iu" else 0.0


def _below(x: Interval, limit: Interval, strict: bool, aval: Aval) -> Interval:
    high = min(x.high, _beyond(limit.high, aval, 1.0) - _step(strict, aval))
    # An interval without a number is one of code that does not run.
    x = x._replace(low=min(x.low, high), high=high)
    return x._replace(zero=x.zero and not (strict and limit.high <= 0))


def _above(x: Interval, limit: Interval, strict: bool, aval: Aval) -> Interval:
    low = max(x.low, _beyond(limit.low, aval, -1.0) + _step(strict, aval))
    x = x._replace(low=low, high=max(x.high, low))
    return x._replace(zero=x.zero and not (strict and limit.low >= 0))


def _beyond(end: float, aval: Aval, sign: float) -> float:
    """Return an end of an interval, moved by the numbers that XLA takes for 0 in a comparison."""
    if dtypes.kind_of(aval.dtype) in "iu":
        return end
    least = float(dtypes.finfo(aval.dtype).tiny)
    return end + sign * least if abs(end) < least else end
