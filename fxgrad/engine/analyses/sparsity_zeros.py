"""Zeros of values that are not known: products with masks, padding, triangular factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.program import Equation
from fxgrad.engine.ops import (
    arithmetic,
    creation,
    factorizations,
    joining,
    pointwise,
    products,
    select,
    shaping,
    structural,
)
from fxgrad.engine.ops.strong import strong_dot_general_p, strong_mul_p


class Masked(NamedTuple):
    """A value that is not known, but for the elements that `mask` marks False, which are 0."""

    mask: Any


Mask = Any
"""A NumPy array of bools: where a value may be other than zero."""


def mask_of(value: Any, shape: Sequence[int] = ()) -> Mask:
    """Return where a value may be other than zero: everywhere in an array of `shape`, if nothing is known of it."""
    if type(value) is Masked:
        return value.mask
    return np.ones(tuple(shape), bool) if value is None else np.asarray(value) != 0


def has_known_zeros(value: Any) -> bool:
    """Return whether some elements of a value are known to be 0."""
    return type(value) is Masked or (isinstance(value, np.ndarray) and not value.all())


ZeroRule = Callable[[Equation, "list[Mask]"], Mask]

zero_rules: Analysis[ZeroRule | None] = Analysis(
    "zeros", "Where the result may be other than zero, given where the operands may be.", missing="conservative",
    default=None)


def masked_outputs(equation: Equation, values: Sequence[Any]) -> list[Any]:
    """Return what is known of the zeros of the results of an operation on values that are not all known."""
    rule = zero_rules.of(equation.primitive)
    outputs = equation.outputs
    if (rule is None or not any(map(has_known_zeros, values)) or len(outputs) != 1
            or not dtypes.is_inexact(outputs[0].aval.dtype)):
        return [None] * len(outputs)
    if equation.primitive is select.select_n_p and not isinstance(values[0], np.ndarray):
        return [None]
    masks = [mask_of(value, atom.aval.shape) for value, atom in zip(values, equation.inputs, strict=True)]
    if equation.primitive is select.select_n_p:
        masks[0] = np.asarray(values[0])
    mask = np.broadcast_to(rule(equation, masks), outputs[0].aval.shape)
    return [None if mask.all() else Masked(mask)]


def _all(_: Equation, masks: list[Mask]) -> Mask:
    """A product is zero where a factor is."""
    return masks[0] & masks[1]


def _any(_: Equation, masks: list[Mask]) -> Mask:
    """A sum is zero where all terms are."""
    return masks[0] | masks[1]


def _first(_: Equation, masks: list[Mask]) -> Mask:
    return masks[0]


def _moved(equation: Equation, masks: list[Mask]) -> Mask:
    """A move of elements moves their zeros."""
    return equation.primitive.numpy(*masks, **equation.params)[0]


def _counted(equation: Equation, masks: list[Mask]) -> Mask:
    """A sum of products has as many terms as the same sum of ones."""
    params = {**equation.params, "preferred_element_type": None} if len(masks) == 2 else equation.params
    return equation.primitive.numpy(*(mask.astype(np.float64) for mask in masks), **params)[0] != 0


zero_rules.enter(_all, arithmetic.mul_p, strong_mul_p)
zero_rules.enter(_any, pointwise.add_p, arithmetic.sub_p)
zero_rules.enter(_first, arithmetic.neg_p, arithmetic.div_p, creation.copy_p, structural.convert_element_type_p)
zero_rules.enter(_moved, structural.reshape_p, structural.transpose_p, structural.broadcast_to_p, shaping.slice_p,
                 shaping.rev_p, shaping.pad_p, shaping.tile_p, shaping.broadcast_in_dim_p, joining.concatenate_p,
                 joining.stack_p, select.select_n_p)
zero_rules.enter(_counted, structural.reduce_sum_p, products.dot_general_p, strong_dot_general_p)


def factor_outputs(equation: Equation) -> list[Any] | None:
    """Return what is known of the zeros of triangular factors; None for other operations."""
    if equation.primitive not in (factorizations.cholesky_p, factorizations.qr_p):
        return None
    shapes = [var.aval.shape for var in equation.outputs]
    if equation.primitive is factorizations.cholesky_p:
        return [Masked(np.broadcast_to(np.tri(shapes[0][-1], dtype=bool), shapes[0]))]
    upper = Masked(np.broadcast_to(~np.tri(shapes[1][-2], shapes[1][-1], -1, dtype=bool), shapes[1]))
    return [None, upper, *[None] * (len(shapes) - 2)]
