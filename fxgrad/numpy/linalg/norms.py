"""Norms of vectors and matrices, and numbers derived from them: condition numbers, ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import as_array_operand, axes_of, axis_of, promote_inexact, shape_of
from fxgrad.engine.ops import exponential, parts
from fxgrad.engine.ops.arithmetic import mul
from fxgrad.engine.ops.matrices import check_matrices
from fxgrad.engine.ops.structural import convert, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy.arithmetic import divide, power
from fxgrad.numpy.creation import eye, widen_half
from fxgrad.numpy.elementwise import absolute, isnan, sqrt
from fxgrad.numpy.linalg.decompositions import eigvalsh, svdvals
from fxgrad.numpy.linalg.solving import inv, slogdet
from fxgrad.numpy.logic import equal, greater, logical_and, logical_not, not_equal, where
from fxgrad.numpy.reductions import any, count_nonzero, kept_shape, max, min, sum
from fxgrad.numpy.shaping import moveaxis


def norm(x: Any, ord: Any = None, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """Return the norm of vectors (one axis) or matrices (two), by default the root of the sum of squares; real.

    Without `axis`: of the whole array, which must be a vector or a matrix if `ord` is given. `ord` is that of
    `vector_norm` and `matrix_norm`. Raises `ArgumentError` for other numbers of axes.

    The derivative of the root at 0 is NaN, as in jax. With `fxgrad.nan_safe` it is 0, the least of the subgradients.

    >>> import fxgrad, numpy as np
    >>> float(norm([3.0, 4.0])), fxgrad.grad(fxgrad.nan_safe(norm))(np.zeros(2))
    (5.0, array([0., 0.]))
    """
    x, = promote_inexact(as_array_operand(x))
    axes = axes_of("norm", axis, len(shape_of(x)))
    if axis is not None and not axes:
        raise ArgumentError(at_user_line("norm: axis=() names no axis; a vector norm has one and a matrix norm two"))
    if ord is None:
        return _keep_axes(_euclidean(x, axes), x, axes, keepdims)
    if len(axes) == 1:
        return vector_norm(x, axis=axes[0], keepdims=keepdims, ord=ord)
    if len(axes) != 2:
        raise ArgumentError(at_user_line(f"norm: ord={ord!r} along {len(axes)} axes; a vector norm has one and a "
                                         "matrix norm two: name them with axis="))
    given = axes if axis is None or not isinstance(axis, Sequence) else tuple(
        axis_of("norm", each, len(shape_of(x))) for each in axis)
    return _keep_axes(_matrix(x, ord, given[0], given[1]), x, axes, keepdims)


def _keep_axes(result: Any, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    return reshape(result, kept_shape(shape_of(x), axes)) if keepdims else result


def _euclidean(x: Any, axes: tuple[int, ...]) -> Any:
    """Return the root of the sum of squares; those of half precision, whose greatest is 65504, in float32."""
    if dtypes.is_complex(aval_of(x).dtype):
        return sqrt(sum(parts.real(mul(x, parts.conj(x))), axes))
    wide = widen_half(x)
    result = sqrt(sum(exponential.square(wide), axes))
    return result if wide is x else convert(result, aval_of(x).dtype)


def vector_norm(x: Any, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False,
                ord: float = 2) -> Any:
    """Return the norm of order `ord` over `axis`: a number, plus or minus infinity, or 0 (the number of nonzeros).

    >>> float(vector_norm([3.0, -4.0], ord=1))
    7.0
    """
    x, = promote_inexact(as_array_operand(x))
    axes = axes_of("vector_norm", axis, len(shape_of(x)))
    if not isinstance(ord, int | float | np.number) or isinstance(ord, np.complexfloating):
        raise ArgumentError(at_user_line(f"norm: ord={ord!r} is no order of a vector norm; give a real number"))
    if ord == 2:
        result = _euclidean(x, axes)
    elif ord == 0:
        result = convert(count_nonzero(x, axes), dtypes.real_dtype(aval_of(x).dtype))
    elif ord == math.inf:
        result = _greatest(absolute(x), axes)
    elif ord == -math.inf:
        result = min(absolute(x), axes)
    elif ord == 1:
        result = sum(absolute(x), axes)
    else:
        result = power(sum(power(absolute(x), float(ord)), axes), 1 / ord)
    return _keep_axes(result, x, axes, keepdims)


def _matrix(x: Any, ord: Any, rows: int, columns: int) -> Any:
    if not isinstance(ord, str | int | float | np.number):
        raise ArgumentError(at_user_line(f"norm: ord={ord!r} of matrices; it is one of 'fro', 'nuc', 1, -1, 2, -2, "
                                         "inf, -inf"))
    if ord in ("fro", "f"):
        return _euclidean(x, (rows, columns))
    if ord in ("nuc", 2, -2):
        values = svdvals(moveaxis(x, (rows, columns), (-2, -1)))
        if ord == "nuc" or not shape_of(values)[-1]:
            return sum(values, -1) if ord != -2 else _least(values, -1, ord)
        return values[..., 0 if ord == 2 else -1]
    if ord not in (1, -1, math.inf, -math.inf):
        raise ArgumentError(at_user_line(f"norm: ord={ord!r} of matrices; it is one of 'fro', 'nuc', 1, -1, 2, -2, "
                                         "inf, -inf"))
    summed, other = (rows, columns) if ord in (1, -1) else (columns, rows)
    totals = sum(absolute(x), summed)
    left = other - (other > summed)
    return _greatest(totals, left) if ord > 0 else _least(totals, left, ord)


def _greatest(x: Any, axes: Any) -> Any:
    """Return the largest of non-negative numbers, 0 if there are none."""
    return max(x, axes, initial=None if all(shape_of(x)) else 0)


def _least(x: Any, axis: int, ord: Any) -> Any:
    """Return the smallest of numbers; there must be at least one."""
    if not shape_of(x)[axis]:
        raise ShapeError(at_user_line(f"norm: ord={ord!r} is the least of several numbers, of which an empty array has "
                                      "none; ord=2, 1 and inf, the greatest, are 0 there"))
    return min(x, axis)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Return the norm of matrices (the last two axes).

    `ord` is `"fro"` (the root of the sum of squares), `"nuc"` (the sum of singular values), 2 or -2 (the largest or
    smallest of them), 1 or -1 (the largest or smallest sum of a column), inf or -inf (of a row).

    >>> float(matrix_norm([[3.0, 4.0]]))
    5.0
    """
    return norm(x, ord, (-2, -1), keepdims)


def cond(x: Any, p: Any = None) -> Any:
    """Return the condition number of matrices in the norm `p` (that of `matrix_norm`); infinite for singular ones.

    By default it is the ratio of the singular values.

    Raises `ShapeError` for empty matrices, and for those that are not square if `p` is not None, 2 or -2.

    >>> float(cond([[2.0, 0.0], [0.0, 0.5]]))
    4.0
    """
    x, = promote_inexact(as_array_operand(x))
    shape = shape_of(x)
    check_matrices("cond", aval_of(x), square=p not in (None, 2, -2))
    if 0 in shape[-2:]:
        raise ShapeError(at_user_line(f"cond: matrices of shape {shape} have no condition number; they are empty"))
    if p in (None, 2, -2):
        values = svdvals(x)
        first, last = values[..., 0], values[..., -1]
        result = divide(last, first) if p == -2 else divide(first, last)
    else:
        result = mul(norm(x, p, (-2, -1)), norm(_inverse(x), p, (-2, -1)))
    return result if p is None or p == 2 else infinite_unless_nan(result, x)


def infinite_unless_nan(number: Any, x: Any) -> Any:
    """Return condition numbers with infinity in place of NaN, unless the matrices have a NaN."""
    return where(logical_and(isnan(number), logical_not(any(isnan(x), (-2, -1)))), math.inf, number)


def _inverse(x: Any) -> Any:
    """Return the inverse, NaN where there is none; the NumPy kernel of `inv` raises for the whole stack."""
    is_singular = equal(slogdet(x).sign, 0)[..., None, None]
    return where(is_singular, math.nan, inv(where(is_singular, eye(shape_of(x)[-1], dtype=aval_of(x).dtype), x)))


def matrix_rank(M: Any, rtol: Any = None, *, hermitian: bool = False, tol: Any = None) -> Any:
    """Return the number of singular values greater than a bound.

    The bound is `rtol`, or max(rows, columns) eps, times the largest singular value. For a vector, return whether it
    has a nonzero element.

    The bound is absolute, as in jax, in spite of its name; `tol` is another name for it. With `hermitian`,
    eigenvalues are counted.

    >>> int(matrix_rank([[1.0, 2.0], [2.0, 4.0]]))
    1
    """
    if tol is not None and rtol is not None:
        raise ArgumentError(at_user_line("matrix_rank: both rtol and tol; give one of them"))
    M, = promote_inexact(as_array_operand(M))
    shape = shape_of(M)
    if len(shape) < 2:
        return convert(any(not_equal(M, 0)), dtypes.int32)
    values = absolute(eigvalsh(M)) if hermitian else svdvals(M)
    bound = rtol if rtol is not None else tol
    if not shape_of(values)[-1]:
        return count_nonzero(values, -1)
    if bound is None:
        largest = shape[-2] if shape[-2] > shape[-1] else shape[-1]
        bound = mul(max(values, -1), largest * float(dtypes.finfo(aval_of(values).dtype).eps))
    bound = as_array_operand(bound)
    return count_nonzero(greater(values, reshape(bound, (*shape_of(bound), 1))), -1)
