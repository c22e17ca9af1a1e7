"""Kinds of operations by how a compiler treats them: which are fused with others, and which stand alone."""

from __future__ import annotations

from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.program import Equation
from fxgrad.engine.ops import (
    arithmetic,
    barrier,
    comparison,
    convolution,
    creation,
    dynamic,
    exponential,
    indexing,
    joining,
    parts,
    pointwise,
    products,
    reductions,
    select,
    shaping,
    structural,
    trigonometric,
    varying,
)

CHEAP, EXPENSIVE, ALIAS, VIEW, MOVE, REDUCE, UPDATE, DOT, CONVOLUTION, EXCHANGE, BARRIER, KERNEL, LOOP = (
    "cheap", "expensive", "alias", "view", "move", "reduce", "update", "dot", "convolution", "exchange", "barrier",
    "kernel", "loop")
"""Kinds of steps.

`CHEAP` and `EXPENSIVE` act on each element, and differ in whether a compiler recomputes them to save a store; `ALIAS`
is the operand in a new shape, `VIEW` a part or another order of it, or its elements repeated, which NumPy does not
copy; `MOVE` copies elements; `REDUCE` reduces; `UPDATE` writes a part of its first operand; `DOT` is a product,
`CONVOLUTION` a convolution, `EXCHANGE` a collective of devices; `BARRIER` passes its operands through; `KERNEL` is any
other, `LOOP` holds programs.
"""

moves: Analysis[str] = Analysis(
    "moves", "The kind, for a compiler, of an operation that does not act on each element.",
    missing="conservative", default=KERNEL)
moves.enter(ALIAS, structural.reshape_p, arithmetic.stop_gradient_p, arithmetic.name_p, varying.pvary_p,
            varying.take_equal_p)
moves.enter(VIEW, structural.broadcast_to_p, structural.transpose_p, shaping.broadcast_in_dim_p, shaping.rev_p,
            shaping.slice_p, joining.split_p, joining.unstack_p, parts.real_p, parts.imag_p)
moves.enter(CHEAP, structural.convert_element_type_p, select.select_n_p)
moves.enter(MOVE, shaping.pad_p, shaping.tile_p, joining.concatenate_p, joining.stack_p, dynamic.dynamic_slice_p,
            indexing.gather_p, creation.iota_p)
moves.enter(REDUCE, structural.reduce_sum_p, reductions.reduce_prod_p, reductions.reduce_max_p, reductions.reduce_min_p,
            reductions.reduce_and_p, reductions.reduce_or_p, reductions.reduce_xor_p)
moves.enter(UPDATE, dynamic.dynamic_update_slice_p, indexing.scatter_p, indexing.scatter_add_p)
moves.enter(DOT, products.dot_general_p)
moves.enter(CONVOLUTION, convolution.conv_general_dilated_p)
moves.enter(BARRIER, barrier.optimization_barrier_p)

cheap: Analysis[bool] = Analysis(
    "cheap to compute again", "Whether a compiler recomputes an operation on each element wherever it is needed.",
    missing="conservative", default=False)
cheap.enter(True, arithmetic.nonzero_divisor_p, pointwise.add_p, arithmetic.sub_p, arithmetic.mul_p, arithmetic.neg_p,
            arithmetic.max_p,
            arithmetic.min_p, comparison.eq_p, comparison.ne_p, comparison.lt_p, comparison.le_p, comparison.gt_p,
            comparison.ge_p, comparison.and_p, comparison.or_p, comparison.xor_p, comparison.not_p,
            trigonometric.sin_p, trigonometric.cos_p, exponential.square_p, exponential.integer_pow_p, select.clamp_p,
            parts.sign_p, parts.abs_p, parts.floor_p, parts.ceil_p, parts.round_p, parts.is_finite_p, parts.conj_p,
            parts.complex_p)

offloaded: Analysis[bool] = Analysis(
    "offloaded", "Whether the library that computes reductions computes an operation on each element with them.",
    missing="conservative", default=False)
offloaded.enter(True, pointwise.add_p, arithmetic.sub_p, arithmetic.mul_p, arithmetic.div_p, arithmetic.neg_p,
                arithmetic.max_p, arithmetic.min_p, exponential.square_p, exponential.integer_pow_p,
                exponential.pow_p, exponential.exp_p, exponential.expm1_p, exponential.log_p, exponential.log1p_p,
                exponential.sqrt_p, exponential.rsqrt_p, exponential.cbrt_p, trigonometric.sin_p, trigonometric.cos_p,
                trigonometric.tanh_p, parts.abs_p, parts.sign_p, parts.floor_p, parts.ceil_p, parts.round_p,
                structural.convert_element_type_p)


def fusion_kind(equation: Equation) -> str:
    """Return the kind of an equation."""
    primitive = equation.primitive
    if primitive.regions is not None:
        return LOOP
    kind = moves.of(primitive)
    if kind != KERNEL or not pointwise.acts_on_each.of(primitive):
        return EXCHANGE if kind == KERNEL and primitive.collective else kind
    if primitive is arithmetic.div_p:  # the product with the inverse, where that is known or is made of fewer elements
        divisor = equation.inputs[1]
        is_less = isinstance(divisor, Literal) or divisor.aval.size < equation.outputs[0].aval.size
        return CHEAP if is_less else EXPENSIVE
    return CHEAP if cheap.of(primitive) else EXPENSIVE
