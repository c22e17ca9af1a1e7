"""jax's products of arrays: dot_general, products with groups of rows, convolution, and the Fourier transform."""

from __future__ import annotations

from typing import Any

import jax

from fxgrad import lax
from fxgrad.engine import dtypes
from fxgrad.engine.ops import products
from fxgrad.engine.ops.fft import fft
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.interop.importing import import_rule
from fxgrad.interop.matching import integer_params, precision_of, read_parameters


def _preferred(dtype: Any, *operands: Any) -> Any:
    """Return the dtype of sums and result; None if it is that of the operands, so that the program omits it."""
    if dtype is None or all(aval_of(operand).dtype == dtype for operand in operands):
        return None
    return dtypes.canonical(dtype)


@import_rule("dot_general")
def _dot_general(equation: Any, x: Any, y: Any) -> Any:
    numbers, precision, dtype = read_parameters(equation, "dimension_numbers", "precision", "preferred_element_type")
    x, y = products.unify_operands(x, y, dtype)
    return lax.dot_general(x, y, numbers, precision_of(precision), _preferred(dtype, x, y))


@import_rule("scaled_dot")
def _scaled_dot(equation: Any, x: Any, y: Any, x_scale: Any, y_scale: Any) -> Any:
    """Import as several operations of ours: a product of operands times their scales."""
    numbers, dtype = read_parameters(equation, "dimension_numbers", "preferred_element_type")
    return lax.scaled_dot(x, y, lhs_scale=x_scale, rhs_scale=y_scale, dimension_numbers=numbers,
                          preferred_element_type=dtype)


@import_rule("ragged_dot_general")
def _ragged_dot_general(equation: Any, x: Any, y: Any, sizes: Any) -> Any:
    """Import as several operations of ours: a product of operands masked for each group."""
    numbers, precision, dtype = read_parameters(equation, "ragged_dot_dimension_numbers", "precision",
                                         "preferred_element_type")
    return lax.ragged_dot_general(x, y, sizes, numbers, precision_of(precision), _preferred(dtype, x, y))


@import_rule("conv_general_dilated")
def _conv(equation: Any, x: Any, kernel: Any) -> Any:
    strides, padding, base, holes, numbers, features, batches, precision, dtype = read_parameters(
        equation, "window_strides", "padding", "lhs_dilation", "rhs_dilation", "dimension_numbers",
        "feature_group_count", "batch_group_count", "precision", "preferred_element_type")
    return lax.conv_general_dilated(x, kernel, integer_params(strides), padding, base, holes, numbers, features,
                                    batches,
                                    precision_of(precision), _preferred(dtype, x, kernel))


@import_rule("fft")
def _fft(equation: Any, x: Any) -> Any:
    kind, lengths = read_parameters(equation, "fft_type", "fft_lengths")
    return fft(x, jax.lax.FftType(kind).name.lower(), integer_params(lengths))
