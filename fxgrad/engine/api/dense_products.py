"""Jacobians of linear programs whose matrices stand in them: the Jacobian of `A @ x` is `A`, not a product with ones.

The identity is pushed through a linear program as its diagonal, as long as operations act on each element alone. The
first product with a matrix scales the columns of that matrix; from there on the columns are a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.walk import eval_program
from fxgrad.engine.ops import arithmetic, products, structural
from fxgrad.engine.ops.strong import strong_dot_general_p
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.transforms.batch import Batch, Batched, put_axis


class Diagonal(NamedTuple):
    """A value that is the input of a linear program, of `shape`, times `scale` element by element (None: 1)."""

    shape: tuple[int, ...]
    scale: Any


def find_products(linear: Program) -> bool:
    """Return whether the input of a linear program goes into products with matrices, and nowhere else."""
    diagonal = {linear.inputs[-1]}
    for equation in linear.equations:
        through = [atom in diagonal for atom in equation.inputs if type(atom) is not Literal]
        if not any(through):
            continue
        if _keeps_diagonal(equation):
            if sum(through) != 1 or equation.outputs[0].aval.size != linear.inputs[-1].aval.size:
                return False
            diagonal.update(equation.outputs)
        elif not is_product(equation, [atom in diagonal for atom in equation.inputs]):
            return False
    return diagonal.isdisjoint(linear.outputs)


def _keeps_diagonal(equation: Equation) -> bool:
    return equation.primitive in (arithmetic.mul_p, arithmetic.neg_p, structural.reshape_p)


def is_product(equation: Equation, through: Sequence[bool]) -> bool:
    """Return whether the equation contracts all axes of the operand in `through` with those of a matrix."""
    if equation.primitive not in (products.dot_general_p, strong_dot_general_p) or sum(through) != 1:
        return False
    contracted, batch = equation.params["dimension_numbers"]
    side = [*through].index(True)
    return not batch[0] and len(contracted[side]) == equation.inputs[side].aval.ndim == 1


def push_identity(linear: Program, residuals: Sequence[Any]) -> list[Any]:
    """Return the Jacobian of each output, its columns along a last axis, if `find_products` holds."""
    aval = linear.in_avals[-1]
    batch = Batch(aval.size)

    def step(equation: Equation, values: list[Any]) -> list[Any]:
        places = [place for place, value in enumerate(values) if type(value) is Diagonal]
        if not places:
            return batch.equation(equation, values)
        place, = places
        found: Diagonal = values[place]
        others = [value.value for value in values if type(value) is not Diagonal]
        if equation.primitive is arithmetic.mul_p:
            return [Diagonal(equation.outputs[0].aval.shape, _product(found.scale, others[0]))]
        if equation.primitive is arithmetic.neg_p:
            minus = Literal(-1.0, Aval((), aval.dtype))
            return [Diagonal(found.shape, minus if found.scale is None else bind(arithmetic.neg_p, found.scale)[0])]
        if equation.primitive is structural.reshape_p:
            shape = equation.params["shape"]
            return [Diagonal(shape, None if found.scale is None else _reshaped(found, shape))]
        contracted, _ = equation.params["dimension_numbers"]
        matrix = put_axis(Batched(others[0], contracted[1 - place][0]), aval.size, aval_of(others[0]).ndim - 1)
        return [Batched(matrix if found.scale is None else _product(matrix, found.scale), aval_of(matrix).ndim - 1)]

    results = eval_program(linear, [*(Batched(value, None) for value in residuals), Diagonal(aval.shape, None)], step,
                           lambda literal: Batched(literal, None))
    return [put_axis(result, aval.size, atom.aval.ndim) for result, atom in zip(results, linear.outputs, strict=True)]


def _product(one: Any, other: Any) -> Any:
    return other if one is None else bind(arithmetic.mul_p, one, other)[0]


def _reshaped(found: Diagonal, shape: tuple[int, ...]) -> Any:
    """Return the scale of a diagonal in another shape."""
    if not aval_of(found.scale).shape:
        return found.scale
    return structural.reshape(structural.broadcast_to(found.scale, found.shape), shape)
