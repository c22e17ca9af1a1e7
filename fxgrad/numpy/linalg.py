"""The part of `numpy.linalg` that needs no decomposition: norms, products, transposes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fxgrad import dtypes
from fxgrad.core.tape import aval_of
from fxgrad.errors import ArgumentError, UnsupportedError, at_user_line
from fxgrad.numpy.arithmetic import power
from fxgrad.numpy.mathematics import absolute, sqrt
from fxgrad.numpy.operands import as_array, axes_of, axis_of, promoted_inexact, shape_of
from fxgrad.numpy.products import cross, matmul, outer, tensordot, vecdot
from fxgrad.numpy.rearranging import diagonal, trace
from fxgrad.numpy.reductions import count_nonzero, kept_shape, max, min, sum
from fxgrad.numpy.shaping import matrix_transpose
from fxgrad.ops import exponential, parts
from fxgrad.ops.arithmetic import mul
from fxgrad.ops.space import convert, reshape

__all__ = ["cross", "diagonal", "matmul", "matrix_norm", "matrix_transpose", "multi_dot", "norm", "outer", "tensordot",
           "trace", "vecdot", "vector_norm"]


def norm(x: Any, ord: Any = None, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """The norm of vectors (one axis) or matrices (two), by default the root of the sum of squares; real.

    Without `axis`: of the whole array, which must be a vector or a matrix if `ord` is given. `ord` is that of
    `vector_norm` and `matrix_norm`. Raises `ArgumentError` for other numbers of axes.

    >>> float(norm([3.0, 4.0]))
    5.0
    """
    x, = promoted_inexact(as_array(x))
    axes = axes_of("norm", axis, len(shape_of(x)))
    if ord is None:
        return _kept(_euclidean(x, axes), x, axes, keepdims)
    if len(axes) == 1:
        return vector_norm(x, axis=axes[0], keepdims=keepdims, ord=ord)
    if len(axes) != 2:
        raise ArgumentError(at_user_line(f"norm: ord={ord!r} along {len(axes)} axes; a vector norm has one and a "
                                         "matrix norm two: name them with axis="))
    given = axes if axis is None or not isinstance(axis, Sequence) else tuple(
        axis_of("norm", each, len(shape_of(x))) for each in axis)
    return _kept(_matrix(x, ord, given[0], given[1]), x, axes, keepdims)


def _kept(result: Any, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    return reshape(result, kept_shape(shape_of(x), axes)) if keepdims else result


def _euclidean(x: Any, axes: tuple[int, ...]) -> Any:
    squares = parts.real(mul(x, parts.conj(x))) if dtypes.is_complex(aval_of(x).dtype) else exponential.square(x)
    return sqrt(sum(squares, axes))


def vector_norm(x: Any, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False,
                ord: float = 2) -> Any:
    """The norm of order `ord` over `axis`: a number, plus or minus infinity, or 0 (how many elements are not zero).

    >>> float(vector_norm([3.0, -4.0], ord=1))
    7.0
    """
    x, = promoted_inexact(as_array(x))
    axes = axes_of("vector_norm", axis, len(shape_of(x)))
    if isinstance(ord, str):
        raise ArgumentError(at_user_line(f"norm: ord={ord!r} is no order of a vector norm; give a number"))
    if ord == 2:
        result = _euclidean(x, axes)
    elif ord == 0:
        result = convert(count_nonzero(x, axes), dtypes.real_dtype(aval_of(x).dtype))
    elif ord == math.inf:
        result = max(absolute(x), axes)
    elif ord == -math.inf:
        result = min(absolute(x), axes)
    elif ord == 1:
        result = sum(absolute(x), axes)
    else:
        result = power(sum(power(absolute(x), float(ord)), axes), 1 / ord)
    return _kept(result, x, axes, keepdims)


def _matrix(x: Any, ord: Any, rows: int, columns: int) -> Any:
    if ord == "fro":
        return _euclidean(x, (rows, columns))
    if ord not in (1, -1, math.inf, -math.inf):
        raise UnsupportedError(at_user_line(f"norm: ord={ord!r} of matrices is not supported; there are 'fro', 1, -1, "
                                            "inf, -inf"))
    summed, other = (rows, columns) if ord in (1, -1) else (columns, rows)
    totals = sum(absolute(x), summed)
    return (max if ord > 0 else min)(totals, other - (other > summed))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The norm of matrices (the last two axes): `"fro"`, or 1, -1, inf, -inf (sums of columns or rows).

    >>> float(matrix_norm([[3.0, 4.0]]))
    5.0
    """
    return norm(x, ord, (-2, -1), keepdims)


def multi_dot(arrays: Sequence[Any]) -> Any:
    """The product of several matrices, from left to right.

    >>> multi_dot([[[1.0, 2.0]], [[3.0], [4.0]], [[2.0]]])
    array([[22.]])
    """
    first, *rest = arrays
    for each in rest:
        first = matmul(first, each)
    return first
