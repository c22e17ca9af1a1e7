"""Sparsity of linear programs: which elements of the inputs each element of an output depends on, a superset always.

Derivatives of any function are linear programs (`engine/transforms/linearize.py`), so that the rules are those of the
linear operations, and of operations that hold programs. Of most functions the same rules say, without a derivative,
what that depends on.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxgrad.engine import dtypes
from fxgrad.engine.analyses import sparsity_products as sparsity_products  # noqa: PLC0414  (it enters its rules)
from fxgrad.engine.analyses.index_sets import Dependence
from fxgrad.engine.analyses.sparsity_moves import sparsity_rules
from fxgrad.engine.analyses.sparsity_values import Value, Walk
from fxgrad.engine.analyses.sparsity_zeros import has_known_zeros
from fxgrad.engine.core.primitive import NO_TANGENT
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.derivation.simplify import with_outputs
from fxgrad.engine.ops import (
    arithmetic,
    creation,
    exponential,
    indexing,
    joining,
    parts,
    pointwise,
    products,
    select,
    shaping,
    special,
    structural,
    trigonometric,
)
from fxgrad.engine.ops.strong import strong_div_p, strong_dot_general_p, strong_mul_p


def dependences(program: Program, inputs: Sequence[Value], width: int) -> tuple[list[Value], Walk]:
    """Return the values of the outputs of a linear program, given those of its inputs, and the walk that found them.

    Inputs and outputs are `Dependence`s on `width` elements, known NumPy arrays, or None: any number that does not
    depend on them.
    """
    walk = Walk(width, sparsity_rules.of)
    return walk.run(program, inputs), walk


def known_values(program: Program, inputs: Sequence[Value], first: int) -> list[Value]:
    """Return what is known of the outputs of a program from `first` on: values that follow from known inputs alone,
    zeros, or None.
    """
    return Walk(0, sparsity_rules.of).run(with_outputs(program, program.outputs[first:]), inputs)


class _NeedsDerivative(Exception):  # noqa: N818  (no error: the derivative is looked at instead)
    """A function has an operation whose derivative may depend on less than the operation itself."""


_LINEAR = frozenset({
    creation.copy_p, arithmetic.name_p, arithmetic.neg_p, structural.reshape_p, structural.transpose_p,
    structural.broadcast_to_p, structural.reduce_sum_p, structural.convert_element_type_p, shaping.slice_p,
    shaping.rev_p, shaping.pad_p, shaping.tile_p, shaping.broadcast_in_dim_p, joining.concatenate_p, joining.stack_p,
    joining.split_p, joining.unstack_p, indexing.gather_p, indexing.scatter_add_p, select.select_n_p, parts.abs_p,
    arithmetic.max_p, arithmetic.min_p})
"""Operations that are linear in pieces: a factor of their derivative is 1 or 0, and not known."""
_SUMS = frozenset({pointwise.add_p, arithmetic.sub_p})
_PRODUCTS = frozenset({arithmetic.mul_p, strong_mul_p, products.dot_general_p, strong_dot_general_p})
_CURVED = frozenset({
    arithmetic.mul_p, arithmetic.div_p, strong_mul_p, strong_div_p, exponential.exp_p, exponential.exp2_p,
    exponential.expm1_p, exponential.log_p, exponential.log1p_p, exponential.logistic_p, exponential.sqrt_p,
    exponential.rsqrt_p, exponential.cbrt_p, exponential.square_p, exponential.integer_pow_p, exponential.pow_p,
    exponential.logaddexp_p, special.erf_p, special.erfc_p, special.lgamma_p, trigonometric.sin_p, trigonometric.cos_p,
    trigonometric.tan_p, trigonometric.asin_p, trigonometric.acos_p, trigonometric.atan_p, trigonometric.atan2_p,
    trigonometric.hypot_p, trigonometric.sinh_p, trigonometric.cosh_p, trigonometric.tanh_p, trigonometric.asinh_p,
    trigonometric.acosh_p, trigonometric.atanh_p})
"""Operations on each element whose derivative has factors that are known to be 0 only where an operand is."""


class _FunctionRules:
    """The rules of operations of a function; they raise where the derivative of one may depend on less."""

    def __init__(self) -> None:
        self._has_zeros = False  # whether elements of operands so far are known to be 0, as of what is padded

    def apply(self, walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
        """Return the values of the results; raise `_NeedsDerivative` where those of the derivative may be fewer."""
        moving = sum(type(value) is Dependence for value in values)
        if moving:
            if equation.primitive.jvp is NO_TANGENT:
                return [None] * len(equation.outputs)
            if not self._is_same(equation, moving, any(map(has_known_zeros, values))):
                raise _NeedsDerivative
            if not any(dtypes.is_inexact(var.aval.dtype) for var in equation.outputs):
                return [None] * len(equation.outputs)
        return sparsity_rules.of(equation.primitive)(walk, equation, values)

    def _is_same(self, equation: Equation, moving: int, has_zeros: bool) -> bool:
        """Return whether the derivative of an operation surely depends on what the operation depends on."""
        primitive = equation.primitive
        self._has_zeros = self._has_zeros or has_zeros
        if primitive in _SUMS:
            return equation.inputs[0] is not equation.inputs[1]  # x - x is 0
        if primitive in _CURVED and not has_zeros and not (moving > 1 and self._has_zeros):
            return equation.params.get("exponent") != 0
        return primitive in _LINEAR or (moving == 1 and primitive in _PRODUCTS) or [
            region.role for region in equation.regions] == ["inline"]


def function_dependences(program: Program, inputs: Sequence[Value], width: int) -> tuple[list[Value], Walk] | None:
    """Return what `dependences` does, of the derivative of a program in its inputs that are `Dependence`s.

    Other inputs are known or None. The result is None if the derivative itself has to be looked at.
    """
    rules = _FunctionRules()
    walk = Walk(width, lambda _: rules.apply)
    try:
        return walk.run(program, inputs), walk
    except _NeedsDerivative:
        return None
