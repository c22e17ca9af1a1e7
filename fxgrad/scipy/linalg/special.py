"""Matrices of a special make, from a few numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.arrays import freeze_result
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_integer,
    common_operands,
    common_shape,
    constant_array,
    default_float_dtype,
    promote_inexact,
    promote_operands,
    shape_of,
)
from fxgrad.engine.ops.arithmetic import neg
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.matrices import as_column, as_row, conj_if_complex
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.shaping import pad, slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy.arithmetic import divide, subtract
from fxgrad.numpy.creation import array
from fxgrad.numpy.elementwise import absolute
from fxgrad.numpy.rearranging import take
from fxgrad.numpy.shaping import atleast_1d, atleast_2d, flip

__all__ = ["block_diag", "circulant", "companion", "convolution_matrix", "dft", "fiedler", "fiedler_companion",
           "hadamard", "hankel", "helmert", "hilbert", "invhilbert", "invpascal", "leslie", "pascal", "toeplitz"]


def _vector(name: str, x: Any, least: int = 0) -> Any:
    """Return `x` with at least one axis, and at least `least` elements along the last one."""
    x = atleast_1d(as_array_operand(x))
    if shape_of(x)[-1] < least:
        raise ShapeError(at_user_line(f"{name}: an array of shape {shape_of(x)}; at least {least} elements are needed "
                                      "along the last axis"))
    return x


def _gather_places(x: Any, places: Any) -> Any:
    """Return the elements of vectors at an array of indices, as matrices."""
    return take(x, np.asarray(places), axis=len(shape_of(x)) - 1, mode="clip")


def _joined(*parts: Any) -> Any:
    """Return vectors one behind another, their axes in front broadcast."""
    read = promote_operands(*parts)
    stack = common_shape("vectors", *(shape_of(each)[:-1] for each in read))
    return concatenate([broadcast_to(each, (*stack, shape_of(each)[-1])) for each in read], len(stack))


def _size(name: str, n: Any, least: int = 1) -> int:
    count = as_integer(name, n)
    if count < least:
        raise ArgumentError(at_user_line(f"{name}: n={count}; at least {least} is needed"))
    return count


# --- of vectors -------------------------------------------------------------------------------------------------------


def toeplitz(c: Any, r: Any = None) -> Any:
    """Return the Toeplitz matrices with first column `c` and first row `r` (without its first element).

    Without `r` the row is `c` conjugated. Axes in front broadcast.

    >>> toeplitz([1.0, 2.0], [0.0, 3.0])
    array([[1., 3.],
           [2., 1.]])
    """
    c, r = common_operands(c, conj_if_complex(as_array_operand(c)) if r is None else r)
    c, r = _vector("toeplitz", c), _vector("toeplitz", r)
    height, width = shape_of(c)[-1], shape_of(r)[-1]
    if not height or not width:
        stack = common_shape("toeplitz", shape_of(c)[:-1], shape_of(r)[:-1])
        return constant_array((*stack, height, width), 0, aval_of(promote_operands(c, r)[0]).dtype)
    whole = _joined(flip(c, -1), slice_in_dim(r, 1, width, len(shape_of(r)) - 1))
    return _gather_places(whole, height - 1 - np.arange(height)[:, None] + np.arange(width))


def hankel(c: Any, r: Any = None) -> Any:
    """Return the Hankel matrices with first column `c` and last row `r` (zeros by default; without its first element).

    >>> hankel([1.0, 2.0], [0.0, 3.0])
    array([[1., 2.],
           [2., 3.]])
    """
    if r is not None:
        c, r = common_operands(c, r)
    c = _vector("hankel", c)
    r = broadcast_to(scalar_like(0, c), shape_of(c)) if r is None else _vector("hankel", r)
    height, width = shape_of(c)[-1], shape_of(r)[-1]
    if not height or not width:
        return toeplitz(c, r)
    whole = _joined(c, slice_in_dim(r, 1, width, len(shape_of(r)) - 1))
    return _gather_places(whole, np.arange(height)[:, None] + np.arange(width))


def circulant(c: Any) -> Any:
    """Return the circulant matrices with first column `c`; each column is the one before rotated down by one.

    >>> circulant([1, 2])
    array([[1, 2],
           [2, 1]])
    """
    c = _vector("circulant", c)
    places = np.arange(shape_of(c)[-1])
    return _gather_places(c, (places[:, None] - places) % max(len(places), 1))


def convolution_matrix(a: Any, n: int, mode: str = "full") -> Any:
    """Return the matrix whose product with a vector of `n` elements is `convolve(a, vector, mode)`.

    >>> convolution_matrix([1, 2], 2)
    array([[1, 0],
           [2, 1],
           [0, 2]])
    """
    count, a = _size("convolution_matrix", n), _vector("convolution_matrix", a, 1)
    if mode not in ("full", "same", "valid"):
        raise ArgumentError(at_user_line(f"convolution_matrix: mode={mode!r}; it is 'full', 'same' or 'valid'"))
    size = shape_of(a)[-1]
    less = min(count, size) - 1
    before = 0 if mode == "full" else less // 2 if mode == "same" else less
    after = 0 if mode == "full" else less - less // 2 if mode == "same" else less
    config = [(0, 0, 0)] * (len(shape_of(a)) - 1) + [(count - 1, count - 1, 0)]
    padded = pad(a, scalar_like(0, a), config)
    rows = np.arange(before, size + count - 1 - after)
    return _gather_places(padded, rows[:, None] - np.arange(count) + count - 1)


def companion(a: Any) -> Any:
    """Return the matrices whose characteristic polynomial has the coefficients `a` (highest first) over the first.

    >>> companion([1.0, -3.0, 2.0])
    array([[ 3., -2.],
           [ 1.,  0.]])
    """
    a, = promote_inexact(_vector("companion", a, 2))
    size, last = shape_of(a)[-1] - 1, len(shape_of(a)) - 1
    first = divide(neg(slice_in_dim(a, 1, size + 1, last)), slice_in_dim(a, 0, 1, last))
    below = array(np.eye(size - 1, size), dtype=aval_of(a).dtype)
    below = broadcast_to(below, (*shape_of(a)[:-1], size - 1, size))
    return concatenate([as_row(first), below], last)


def fiedler(a: Any) -> Any:
    """Return the distances of every element of `a` from every other.

    >>> fiedler([1.0, 4.0])
    array([[0., 3.],
           [3., 0.]])
    """
    a = _vector("fiedler", a)
    return absolute(subtract(as_column(a), as_row(a)))


def fiedler_companion(a: Any) -> Any:
    """Return matrices of five diagonals whose characteristic polynomial has the coefficients `a`, divided by the first.

    >>> fiedler_companion([1.0, -3.0, 2.0])
    array([[ 3., -2.],
           [ 1.,  0.]])
    """
    a, = promote_inexact(_vector("fiedler_companion", a, 1))
    size, last = shape_of(a)[-1] - 1, len(shape_of(a)) - 1
    if size < 1:
        return constant_array((*shape_of(a)[:-1], 0, 0), 0, aval_of(a).dtype)
    # Each element is 0, 1 or one of the coefficients: they are addressed in one vector.
    ones = constant_array((*shape_of(a)[:-1], 1), 1, aval_of(a).dtype)
    monic = divide(neg(a), slice_in_dim(a, 0, 1, last))
    whole = concatenate([constant_array((*shape_of(a)[:-1], 1), 0, aval_of(a).dtype), ones, monic], last)
    places = np.zeros((size, size), int)
    places[0, 0] = 3
    for row in range(1, size, 2):  # a[2], a[4], ... are above the diagonal of rows 0, 2, ...
        places[row - 1, row] = row + 3
        if row + 1 < size:
            places[row + 1, row] = row + 4
    for row in range(2, size, 2):
        places[row - 2, row] = 1
    for row in range(1, size, 2):
        places[row, row - 1] = 1 if row == 1 else 0
    for row in range(3, size, 2):
        places[row, row - 2] = 1
    return _gather_places(whole, places)


def leslie(f: Any, s: Any) -> Any:
    """Return the matrices of an age-structured population: births `f` in the first row, survival `s` below.

    >>> leslie([1.0, 2.0], [0.5])
    array([[1. , 2. ],
           [0.5, 0. ]])
    """
    f, s = promote_operands(_vector("leslie", f, 2), _vector("leslie", s))
    size = shape_of(f)[-1]
    if shape_of(s)[-1] != size - 1:
        raise ShapeError(at_user_line(f"leslie: arrays of shapes {shape_of(f)} and {shape_of(s)}; the second must be "
                                      "shorter by 1"))
    whole = _joined(f, s, constant_array((1,), 0, aval_of(f).dtype))
    places = np.full((size, size), 2 * size - 1)
    places[0] = np.arange(size)
    places[np.arange(1, size), np.arange(size - 1)] = size + np.arange(size - 1)
    return _gather_places(whole, places)


def block_diag(*arrs: Any) -> Any:
    """Return the matrices `arrs` along the diagonal of one, zeros elsewhere. Vectors count as rows.

    >>> block_diag([[1]], [[2, 3]])
    array([[1, 0, 0],
           [0, 2, 3]])
    """
    blocks = [atleast_2d(each) for each in common_operands(*arrs or [constant_array((1, 0), 0, default_float_dtype())])]
    if any(len(shape_of(block)) > 2 for block in blocks):
        shown = ", ".join(str(shape_of(block)) for block in blocks)
        raise ShapeError(at_user_line(f"block_diag: arrays of shapes {shown}; matrices are needed"))
    width, before, padded = sum(shape_of(block)[1] for block in blocks), 0, []
    for block in blocks:
        own = shape_of(block)[1]
        padded.append(pad(block, scalar_like(0, block), [(0, 0, 0), (before, width - own - before, 0)]))
        before += own
    return concatenate(padded, 0)


# --- of a size --------------------------------------------------------------------------------------------------------


def _constant(values: Any, dtype: Any = None) -> Any:
    """Return numbers computed with NumPy, in the default dtype; a constant of the program that is traced."""
    return freeze_result(np.asarray(values).astype(default_float_dtype() if dtype is None else dtype))


def hilbert(n: int) -> Any:
    """Return 1 / (i + j + 1), for i and j from 0 to n - 1.

    >>> hilbert(2)
    array([[1.        , 0.5       ],
           [0.5       , 0.33333334]], dtype=float32)
    """
    places = np.arange(_size("hilbert", n, 0))
    return _constant(1 / (places[:, None] + places + 1.0))


def invhilbert(n: int) -> Any:
    """Return the inverse of `hilbert(n)`, whose elements are whole numbers.

    >>> invhilbert(2)
    array([[ 4., -6.],
           [-6., 12.]], dtype=float32)
    """
    size = _size("invhilbert", n, 0)
    values = [[(-1) ** (i + j) * (i + j + 1) * math.comb(size + i, size - j - 1) * math.comb(size + j, size - i - 1)
               * math.comb(i + j, i) ** 2 for j in range(size)] for i in range(size)]
    return _constant(np.array(values, float).reshape(size, size))


def _pascal(name: str, n: int, kind: str | None, sign: int) -> Any:
    if kind not in (None, "symmetric", "lower", "upper"):
        raise ArgumentError(at_user_line(f"{name}: kind={kind!r}; it is one of 'symmetric', 'lower', 'upper'"))
    size = _size(name, n, 0)
    lower = np.array([[sign ** (i + j) * math.comb(i, j) for j in range(size)] for i in range(size)], object)
    lower = lower.reshape(size, size)
    if kind == "lower":
        return _constant(lower)
    if kind == "upper":
        return _constant(lower.T)
    return _constant(lower @ lower.T if sign == 1 else lower.T @ lower)


def pascal(n: int, kind: str | None = None) -> Any:
    """Return Pascal's triangle as a "lower" or "upper" triangular matrix, or the "symmetric" product of the two.

    >>> pascal(3)
    array([[1., 1., 1.],
           [1., 2., 3.],
           [1., 3., 6.]], dtype=float32)
    """
    return _pascal("pascal", n, kind, 1)


def invpascal(n: int, kind: str | None = None) -> Any:
    """Return the inverse of `pascal(n, kind)`, whose elements are whole numbers.

    >>> invpascal(2)
    array([[ 2., -1.],
           [-1.,  1.]], dtype=float32)
    """
    return _pascal("invpascal", n, kind, -1)


def hadamard(n: int, dtype: Any = int) -> Any:
    """Return the Hadamard matrix by Sylvester's doubling: 1 and -1, with orthogonal rows; `n` is a power of 2.

    >>> hadamard(2)
    array([[ 1,  1],
           [ 1, -1]])
    """
    size = _size("hadamard", n)
    if size & (size - 1):
        raise ArgumentError(at_user_line(f"hadamard: n={size}; a power of 2 is needed"))
    ones = [[1 - 2 * ((i & j).bit_count() % 2) for j in range(size)] for i in range(size)]
    return _constant(ones, dtypes.canonical(dtype))


def helmert(n: int, full: bool = False) -> Any:
    """Return n - 1 orthonormal rows that are orthogonal to a row of equal numbers, which comes first if `full`.

    >>> helmert(2, full=True)
    array([[ 0.70710677,  0.70710677],
           [ 0.70710677, -0.70710677]], dtype=float32)
    """
    size = _size("helmert", n)
    matrix = np.tril(np.ones((size, size)), -1) - np.diag(np.arange(size))
    matrix[0] = 1
    matrix /= np.sqrt((matrix ** 2).sum(1, keepdims=True))
    return _constant(matrix if full else matrix[1:])


def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Any:
    """Return the matrix of `fft` of `n` points, exp(-2πi jk/n), divided by n (`scale="n"`) or its root ("sqrtn").

    >>> dft(2).real
    array([[ 1.,  1.],
           [ 1., -1.]], dtype=float32)
    """
    if scale not in (None, "n", "sqrtn"):
        raise ArgumentError(at_user_line(f"dft: scale={scale!r}; it is None, 'n' or 'sqrtn'"))
    kind = dtypes.complex_dtype(default_float_dtype()) if dtype is None else dtypes.canonical(dtype)
    if not dtypes.is_complex(kind):
        raise ArgumentError(at_user_line(f"dft: dtype={kind.name}; a complex dtype is needed"))
    size = _size("dft", n, 0)
    places = np.arange(size)
    matrix = np.exp(-2j * np.pi * (places[:, None] * places % max(size, 1)) / max(size, 1))
    return _constant(matrix / {None: 1, "n": size, "sqrtn": math.sqrt(size)}[scale], kind)
