"""Covariances and correlations of several variables."""

from __future__ import annotations

from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.core.sizes import has_symbolic_dim, refuse_undecided
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_dtype,
    as_numpy_scalars,
    operands,
    promote_inexact,
    shape_of,
)
from fxgrad.engine.ops.creation import size_in
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.parts import complex as complex_
from fxgrad.engine.ops.structural import convert, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import DTypeError, ShapeError
from fxgrad.numpy.arithmetic import clip, divide, maximum, multiply, subtract
from fxgrad.numpy.elementwise import conjugate, imag, real, sqrt
from fxgrad.numpy.products import matmul, outer
from fxgrad.numpy.rearranging import diagonal
from fxgrad.numpy.reductions import sum
from fxgrad.numpy.shaping import transpose
from fxgrad.numpy.statistics import mean


def _variables(name: str, m: Any, y: Any, rowvar: bool, dtype: Any) -> Any:
    """Return the variables as rows of one matrix."""
    given = [as_dtype(each, dtype) for each in operands(*([m] if y is None else [m, y]))]
    arrays = as_numpy_scalars(promote_inexact(*given))
    rows = []
    for array in arrays:
        shape = shape_of(array)
        if len(shape) > 2:
            raise ShapeError(at_user_line(f"{name}: a vector or a matrix is needed, the shape is {shape}"))
        if len(shape) < 2:
            rows.append(reshape(array, (1, *(shape or (1,)))))
        else:
            rows.append(array if rowvar else transpose(array))
    if len(rows) == 2 and shape_of(rows[0])[1] != shape_of(rows[1])[1]:
        raise ShapeError(at_user_line(f"{name}: {shape_of(rows[0])[1]} and {shape_of(rows[1])[1]} observations; equal "
                                      "numbers are needed"))
    return concatenate(rows, 0) if len(rows) == 2 else rows[0]


def _weights(name: str, given: Any, count: int, dtype: Any) -> Any:
    weights = as_array_operand(given)
    if shape_of(weights) != (count,):
        raise ShapeError(at_user_line(f"cov: {name} of shape {shape_of(weights)} for {count} observations; one for "
                                      "each is needed"))
    return as_dtype(weights, dtype)


def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights: Any = None,
        aweights: Any = None, *, dtype: Any = None) -> Any:
    """Return the covariance matrix of variables in the rows of `m` and `y` (in their columns unless `rowvar`).

    Divided by n - `ddof`, which is 1, or 0 with `bias`. `fweights` are the numbers of repetitions of each observation,
    `aweights` its weight. Raises `ShapeError` for other shapes, `DTypeError` for a `dtype` of integers or bools.

    >>> float(cov([1.0, 3.0]))
    2.0
    """
    return _covariance("cov", m, y, rowvar, bias, ddof, fweights, aweights, dtype)


def _covariance(name: str, m: Any, y: Any, rowvar: bool, bias: bool, ddof: int | None, fweights: Any, aweights: Any,
                dtype: Any) -> Any:
    if dtype is not None and not dtypes.is_inexact(dtypes.canonical(dtype)):
        raise DTypeError(at_user_line(f"{name}: dtype must be a float or complex dtype, got "
                                      f"{dtypes.canonical(dtype).name}. Convert the result with .astype"))
    x = _variables(name, m, y, rowvar, dtype)
    wanted, weak = aval_of(x).dtype, aval_of(x).weak
    if wanted.itemsize < 4:
        x = as_dtype(x, dtypes.float32)
    own = dtypes.real_dtype(aval_of(x).dtype)
    count = shape_of(x)[1]
    less = (0 if bias else 1) if ddof is None else ddof
    weights = None
    for which, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None:
            each = _weights(which, given, count, own)
            weights = each if weights is None else multiply(weights, each)
    if weights is None:
        apart, weighted = subtract(x, mean(x, 1, keepdims=True)), None
        divisor = maximum(subtract(size_in(count, own), less), 0.0) if has_symbolic_dim(count) else max(
            float(count - less), 0.0)
    else:
        total = sum(weights)
        centre = divide(sum(multiply(x, weights), 1, keepdims=True), total)
        apart = subtract(x, centre)
        weighted = multiply(apart, weights)
        correction: Any = less
        if aweights is not None and less:
            squares = multiply(weights, _weights("aweights", aweights, count, own))
            correction = divide(multiply(less, sum(squares)), total)
        divisor = maximum(subtract(total, correction), 0.0)
    product = divide(matmul(apart if weighted is None else weighted, conjugate(transpose(apart))), divisor)
    if has_symbolic_dim(*shape_of(product)):
        refuse_undecided(f"{name}: whether there is one variable, whose covariance is a scalar", *shape_of(product))
    return convert(reshape(product, ()) if shape_of(product) == (1, 1) else product, wanted, weak)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """Return the correlations of variables in the rows of `x` and `y` (in their columns unless `rowvar`), from -1 to 1.

    >>> corrcoef([[1.0, 2.0, 4.0], [2.0, 4.0, 8.0]])
    array([[1., 1.],
           [1., 1.]])
    """
    covariance = _covariance("corrcoef", x, y, rowvar, False, None, None, None, dtype)
    if not shape_of(covariance):
        return divide(covariance, covariance)
    deviations = sqrt(real(diagonal(covariance)))
    result = divide(covariance, outer(deviations, deviations))
    if not dtypes.is_complex(aval_of(result).dtype):
        return clip(result, -1.0, 1.0)
    return complex_(clip(real(result), -1.0, 1.0), clip(imag(result), -1.0, 1.0))
