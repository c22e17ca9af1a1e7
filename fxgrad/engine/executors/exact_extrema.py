"""Comparisons with extrema that compiled code need not repeat: XLA makes both sides of the same numbers.

Where XLA fuses a value into several loops, it computes it in each. A product and a sum may be rounded as one there if
both are in the loop, and functions and sums of many may be computed by other code; then the value beside a comparison
is not the one whose extremum was stored. Sums of two stored values, products of such sums, and all that only moves or
compares have one result, however they are fused. The gradient of an extremum of such values compiles in half the time
of one that looks again (`attains` in `ops.reductions`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fxgrad.engine.analyses.fusing import ALIAS, CONVOLUTION, DOT, MOVE, VIEW, fusion_kind
from fxgrad.engine.core.program import Atom, Equation, Program
from fxgrad.engine.core.program_properties import memoize
from fxgrad.engine.core.regions import rewrite_programs
from fxgrad.engine.core.sizes import surely_less
from fxgrad.engine.ops import arithmetic, comparison, parts, pointwise, reductions, select

_MOVES = frozenset((ALIAS, VIEW, MOVE))
_EXACT = frozenset((
    arithmetic.max_p, arithmetic.min_p, arithmetic.neg_p, parts.abs_p, parts.sign_p, parts.floor_p, parts.ceil_p,
    select.select_n_p, select.clamp_p, reductions.reduce_max_p, reductions.reduce_min_p, comparison.eq_p,
    comparison.ne_p, comparison.lt_p, comparison.le_p, comparison.gt_p, comparison.ge_p, comparison.and_p,
    comparison.or_p, comparison.not_p))
_DTYPES = frozenset(map(np.dtype, (np.float32, np.float64, np.int32, np.int64, np.bool_)))
"""Dtypes in which XLA computes as they are; narrower floats it may leave in float32 within a loop."""


def with_plain_comparisons(program: Program, inputs_stored: bool = True) -> Program:
    """Return an equal program that compares such values by `eq`, in nested programs too; itself if it has none."""
    return memoize(program, ("plain comparisons", inputs_stored), lambda: _rewritten(program, inputs_stored))


def _rewritten(program: Program, inputs_stored: bool) -> Program:
    products: dict[Atom, bool | None] = dict.fromkeys(program.inputs, False if inputs_stored else None)
    equations: list[Equation] = []
    for equation in program.equations:
        found = _has_product(equation, products)
        products.update(dict.fromkeys(equation.outputs, found))
        if equation.primitive is reductions.attains_p and products.get(equation.inputs[0], False) is not None:
            equations.append(Equation(comparison.eq_p, equation.inputs, {}, equation.outputs, equation.source))
        else:
            equations.append(rewrite_programs(equation, lambda region: with_plain_comparisons(
                region.program, region.role == "body" and region.times != 1)))
    return program if equations == program.equations else program.replace(equations=equations)


def _has_product(equation: Equation, products: Mapping[Atom, bool | None]) -> bool | None:
    """Return whether a product is fused into a result that has one value however it is fused; None of others."""
    primitive, kind = equation.primitive, fusion_kind(equation)
    if not {atom.aval.dtype for atom in (*equation.inputs, *equation.outputs)} <= _DTYPES:
        return None
    if kind in (DOT, CONVOLUTION):
        return False if _is_stored(equation) else None
    found = [products.get(atom, False) for atom in equation.inputs]
    if None in found:
        return None
    if kind in _MOVES or primitive in _EXACT:
        return any(found)
    if primitive in (pointwise.add_p, arithmetic.sub_p):
        return None if any(found) else False
    return True if primitive is arithmetic.mul_p else None


def _is_stored(equation: Equation) -> bool:
    """Return whether XLA leaves a product of arrays to a library: not those of vectors or of one factor each."""
    x, y = (atom.aval for atom in equation.inputs)
    flops = equation.primitive.cost(x, y, **equation.params).flops
    return min(x.ndim, y.ndim) > 1 and surely_less(2 * equation.outputs[0].aval.size, flops)
