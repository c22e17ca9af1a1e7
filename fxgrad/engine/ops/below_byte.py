"""Dtypes that NumPy cannot compute with, and XLA hardly: integers of less than 8 bits, and powers of 2 alone.

Both executors compute such integers in 8 bits, and powers of 2, which have neither 0 nor a sign, in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.caches import cached
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive, Rule, library
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.program_properties import program_property
from fxgrad.engine.dtypes import DType
from fxgrad.engine.ops import comparison, cumulative, indexing, pool, products, reductions, topk
from fxgrad.engine.ops.arithmetic import mulhi_p
from fxgrad.engine.ops.convolution import conv_general_dilated_p
from fxgrad.engine.ops.creation import bitcast_convert_type_p
from fxgrad.engine.ops.ordering import sort_p
from fxgrad.engine.ops.parts import nextafter_p
from fxgrad.engine.ops.pointwise import acts_on_each
from fxgrad.engine.ops.structural import convert_element_type_p, reduce_sum_p

_SCALES = dtypes.SUPPORTED["float8_e8m0fnu"]
WIDER = {dtypes.SUPPORTED[name]: np.dtype(np.uint8 if name[0] == "u" else np.int8)
         for name in dtypes.NARROW_INTEGERS} | {_SCALES: np.dtype(np.float32)}
"""The dtypes of this kind, each with the dtype of its computations."""
SCALARS = frozenset(dtype.type for dtype in WIDER)



def _usually(primitive: Primitive) -> str:
    if acts_on_each.of(primitive):
        return "wrapped"
    bound = primitive.regions is not None or primitive.effectful or primitive.calls_user_code or primitive.collective
    return "itself" if bound or primitive not in library else "moved"


in_bytes: Analysis[str] = Analysis(
    "computed in bytes", "How a result in 8 bits becomes one of a dtype of fewer bits.",
    missing="derive", derive=_usually)
"""The conversion of results back to fewer bits.

"wrapped" keeps the lowest bits; "clipped" takes the nearest number, so that the extremum of nothing stays that. "moved"
operations only move elements, in 8 bits under XLA alone, some versions of which crash otherwise; all others compute on
the dtype "itself".
"""
in_bytes.enter(
    "wrapped", reduce_sum_p, reductions.reduce_prod_p, reductions.reduce_and_p, reductions.reduce_or_p,
    reductions.reduce_xor_p, reductions.argmax_p, reductions.argmin_p,
    cumulative.cumsum_p, cumulative.cumprod_p, cumulative.cummax_p, cumulative.cummin_p, sort_p, topk.top_k_p,
    products.dot_general_p, conv_general_dilated_p, pool.reduce_window_sum_p, indexing.scatter_add_p,
    indexing.scatter_sub_p, indexing.scatter_mul_p, indexing.scatter_min_p, indexing.scatter_max_p)
in_bytes.enter(
    "clipped", reductions.reduce_max_p, reductions.reduce_min_p, pool.reduce_window_max_p, pool.reduce_window_min_p)
in_bytes.enter(
    "itself", convert_element_type_p, comparison.shift_right_logical_p, comparison.population_count_p, comparison.clz_p,
    mulhi_p, nextafter_p, bitcast_convert_type_p)  # these read the bits themselves


def _wider(primitive: Primitive, rule: Rule, convert: Callable[[Any, DType], Any], clip: Callable[..., Any]) -> Rule:
    """Return `rule` of `primitive` on operands in 8 bits, with its results in their own dtypes."""
    wraps = in_bytes.of(primitive) == "wrapped"

    def narrowed(output: Any, dtype: DType) -> Any:
        if dtypes.is_below_byte(dtype) and not wraps:
            limits = dtypes.iinfo(dtype)
            output = clip(output, int(limits.min), int(limits.max))
        return convert(output, dtype)

    def wider(*values: Any, **params: Any) -> list[Any]:
        avals = [Aval(np.shape(value), value.dtype) for value in values]
        wide = [convert(value, WIDER.get(value.dtype, value.dtype)) for value in values]
        given = {name: WIDER.get(value, value) if isinstance(value, np.dtype) else value
                 for name, value in params.items()}
        return [narrowed(output, aval.dtype)
                for output, aval in zip(rule(*wide, **given), primitive.abstract(*avals, **params), strict=True)]

    return wider


@cached("kernels for dtypes below a byte", 4096)
def kernel_in_bytes(primitive: Primitive) -> Rule:
    """Return the NumPy rule of `primitive` for operands of which some have such a dtype."""
    if in_bytes.of(primitive) in ("moved", "itself"):
        return primitive.numpy
    return _wider(primitive, primitive.numpy, lambda x, dtype: x.astype(dtype, copy=False), np.clip)


def lowering_for(primitive: Primitive, values: Sequence[Any]) -> Rule:
    """Return the XLA rule of `primitive` for jax `values`: XLA supports few such dtypes, and not always correctly."""
    for value in values:
        if value.dtype in WIDER:
            break
    else:
        return primitive.xla
    how = in_bytes.of(primitive)
    if how == "itself" or (how == "moved" and {value.dtype for value in values} & WIDER.keys() == {_SCALES}):
        return primitive.xla

    def rule(lax: Any, *values: Any, **params: Any) -> Any:
        def clip(x: Any, least: int, greatest: int) -> Any:
            return lax.clamp(x.dtype.type(least), x, x.dtype.type(greatest))
        return _wider(primitive, functools.partial(primitive.xla, lax), lax.convert_element_type, clip)(
            *values, **params)
    return rule


@program_property
def has_below_byte(program: Program) -> bool:
    """Return whether values of such a dtype are in `program`, subprograms excluded."""
    outputs = [var for equation in program.equations for var in equation.outputs]
    return any(var.aval.dtype.kind == "V" and var.aval.dtype in WIDER for var in (*program.inputs, *outputs))


def kernel_for(equation: Equation) -> Rule:
    """Return the NumPy rule of an equation, for operands of its dtypes."""
    below = any(atom.aval.dtype in WIDER for atom in (*equation.inputs, *equation.outputs))
    return kernel_in_bytes(equation.primitive) if below else equation.primitive.numpy
