"""Jacobians of linear programs as products of small arrays: the identity is pushed through, and multiplied out last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad.engine.api.factored_rules import RULES
from fxgrad.engine.api.factored_values import CALLS, Push
from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.program_properties import used_axes
from fxgrad.engine.ops import arithmetic, products, structural
from fxgrad.engine.ops.strong import strong_dot_general_p


def find_products(linear: Program) -> bool:
    """Return whether the input of a linear program goes into products with matrices, and nowhere else."""
    diagonal = {linear.inputs[-1]}
    for equation in linear.equations:
        through = [atom in diagonal for atom in equation.inputs if type(atom) is not Literal]
        if not any(through):
            continue
        if equation.primitive in (arithmetic.mul_p, arithmetic.neg_p, structural.reshape_p):
            if sum(through) != 1 or equation.outputs[0].aval.size != linear.inputs[-1].aval.size:
                return False
            diagonal.update(equation.outputs)
        elif not is_product(equation, [atom in diagonal for atom in equation.inputs]):
            return False
    return diagonal.isdisjoint(linear.outputs)


def is_product(equation: Equation, through: Sequence[bool]) -> bool:
    """Return whether the equation contracts all axes of the operand in `through` with those of a matrix."""
    if equation.primitive not in (products.dot_general_p, strong_dot_general_p) or sum(through) != 1:
        return False
    contracted, batch = equation.params["dimension_numbers"]
    side = [*through].index(True)
    return not batch[0] and len(contracted[side]) == equation.inputs[side].aval.ndim == 1


def can_factor(linear: Program) -> bool:
    """Return whether `push_identity` takes a linear program: its sizes are known, positive, and on no mapped axis."""
    atoms = [*linear.inputs, *(out for equation in linear.equations for out in equation.outputs)]
    return not used_axes(linear) and not any(atom.aval.vma for atom in atoms) and all(
        type(size) is int and size > 0 for atom in atoms for size in atom.aval.shape) and all(
        can_factor(program) for equation in linear.equations if equation.primitive in (*CALLS, *RULES)
        for program in equation.programs)


def push_identity(linear: Program, residuals: Sequence[Any], is_first: bool = False) -> list[list[Any]]:
    """Return the derivative of each output of a linear program in each of its inputs after the residuals.

    Blocks have the axes of the output and then those of the input; with `is_first` those of the input come first.
    `can_factor` must hold.
    """
    return Push(linear.in_avals[len(residuals):], RULES).blocks(linear, residuals, is_first)
