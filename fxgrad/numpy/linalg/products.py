"""Products of matrices and vectors as `numpy.linalg` has them: they act on the last axes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from fxgrad.engine.frontend.operands import as_array_operand, axis_of, shape_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy import products, rearranging
from fxgrad.numpy.einsum import einsum


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Return the cross products of vectors along `axis`, orthogonal to both.

    Raises `ShapeError` unless they have 3 elements.

    >>> cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0])
    array([0., 0., 1.])
    """
    x1, x2 = as_array_operand(x1), as_array_operand(x2)
    sizes = [shape_of(x)[axis_of("cross", axis, len(shape_of(x)))] for x in (x1, x2)]
    if sizes != [3, 3]:
        raise ShapeError(at_user_line(f"cross: vectors of {sizes[0]} and {sizes[1]} elements; 3 are needed"))
    return products.cross(x1, x2, axis=axis)


def outer(x1: Any, x2: Any, /) -> Any:
    """Return the products of every element of a vector with every one of another.

    Raises `ShapeError` for other arrays.

    >>> outer([1.0, 2.0], [3.0, 4.0])
    array([[3., 4.],
           [6., 8.]])
    """
    x1, x2 = as_array_operand(x1), as_array_operand(x2)
    if len(shape_of(x1)) != 1 or len(shape_of(x2)) != 1:
        raise ShapeError(at_user_line(f"outer: arrays of shapes {shape_of(x1)} and {shape_of(x2)}; vectors are needed. "
                                      "fxgrad.numpy.outer flattens"))
    return products.outer(x1, x2)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Return the diagonals of the matrices in the last two axes, or others parallel to them.

    >>> diagonal([[1, 2], [3, 4]])
    array([1, 4])
    """
    return rearranging.diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Return the sums of the diagonals of the matrices in the last two axes.

    >>> int(trace([[1, 2], [3, 4]]))
    5
    """
    return rearranging.trace(x, offset, -2, -1, dtype)


def multi_dot(arrays: Sequence[Any], *, precision: Any = None) -> Any:
    """Return the product of several matrices, in the order of least work; the first and last may be vectors.

    Raises `ArgumentError` for fewer than two arrays, and `ShapeError` if their shapes do not match.

    >>> multi_dot([[[1.0, 2.0]], [[3.0], [4.0]], [[2.0]]])
    array([[22.]])
    """
    read = [as_array_operand(each) for each in arrays]
    if len(read) < 2:
        raise ArgumentError(at_user_line(f"multi_dot: {len(read)} arrays; at least two are needed"))
    shapes = [shape_of(each) for each in read]
    fit = all(len(shape) == 2 for shape in shapes[1:-1]) and {len(shapes[0]), len(shapes[-1])} <= {1, 2}
    if not fit or any(left[-1] != right[0] for left, right in pairwise(shapes)):
        raise ShapeError(at_user_line(f"multi_dot: arrays of shapes {', '.join(map(str, shapes))}; matrices that fit "
                                      "each other are needed (the first and last may be vectors)"))
    if len(read) == 2:
        return products.matmul(read[0], read[1], precision=precision)
    axes = [[place, place + 1] for place in range(len(read))]
    axes[0], axes[-1] = axes[0][-len(shapes[0]):], axes[-1][:len(shapes[-1])]
    operands = [part for pair in zip(read, axes, strict=True) for part in pair]
    kept = [0][:len(shapes[0]) - 1] + [len(read)][:len(shapes[-1]) - 1]
    return einsum(*operands, kept, optimize="auto", precision=precision)
