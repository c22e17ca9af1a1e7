"""Linear systems, inverses, determinants and least squares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from fxgrad.engine import dtypes
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_integer,
    as_result,
    common_shape,
    inexact_operands,
    new_array,
    require_concrete,
    shape_of,
)
from fxgrad.engine.ops import determinant
from fxgrad.engine.ops.arithmetic import mul, stop_gradient, sub
from fxgrad.engine.ops.exponential import square
from fxgrad.engine.ops.factorizations import lu
from fxgrad.engine.ops.matrices import diagonal
from fxgrad.engine.ops.parts import abs, sign
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.pseudoinverse import pinv as pseudo_inverse
from fxgrad.engine.ops.structural import broadcast_to, convert, reshape
from fxgrad.engine.ops.triangular import lu_solve
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy.creation import eye, zeros
from fxgrad.numpy.elementwise import log
from fxgrad.numpy.linalg.decompositions import qr, svdvals
from fxgrad.numpy.linalg.operands import check_matrix_operands, matrices, symmetrize
from fxgrad.numpy.logic import greater, greater_equal, less, logical_and, where
from fxgrad.numpy.products import matmul
from fxgrad.numpy.reductions import count_nonzero, prod, sum
from fxgrad.numpy.shaping import moveaxis


class SlogdetResult(NamedTuple):
    """The result of `slogdet`."""

    sign: Any
    logabsdet: Any


def solve(a: Any, b: Any) -> Any:
    """Return the x with `a @ x = b`, for square matrices `a`.

    `b` is a vector, or (a stack of) matrices; the axes in front of both broadcast. The matrices are factored once, for
    all derivatives too. Raises `ShapeError` if the shapes do not fit, and `numpy.linalg.LinAlgError` for a singular
    matrix (under `jit` the result is then not finite).

    >>> solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 8.0])
    array([1., 2.])
    """
    a, b = inexact_operands(a, b)
    check_matrix_operands("solve", a, square=True)
    a_shape, b_shape = shape_of(a), shape_of(b)
    is_vector = len(b_shape) == 1
    if not b_shape or b_shape[0 if is_vector else -2] != a_shape[-1]:
        raise ShapeError(at_user_line(
            f"solve: a matrix of shape {a_shape} and a right side of shape {b_shape}; a vector of {a_shape[-1]} "
            f"elements or matrices of {a_shape[-1]} rows are needed. Vectors in a stack are columns: write b[..., None]"
            ))
    b = reshape(b, (*b_shape, 1)) if is_vector else b
    x = _solved(a, b)
    return reshape(x, shape_of(x)[:-1]) if is_vector else x


def _solved(a: Any, b: Any) -> Any:
    """Solve like `solve`, for matrices."""
    a_shape, b_shape = shape_of(a), shape_of(b)
    if len(a_shape) == 2 and len(b_shape) > 2:  # one matrix for all: put the columns side by side
        columns = moveaxis(b, -2, 0)
        x = _solved(a, reshape(columns, (b_shape[-2], math.prod(b_shape[:-2]) * b_shape[-1])))
        return moveaxis(reshape(x, shape_of(columns)), 0, -2)
    factors, _, permutation = lu(stop_gradient(a))
    stack = common_shape("solve", a_shape[:-2], b_shape[:-2])
    if stack != a_shape[:-2]:
        a, factors = (broadcast_to(each, (*stack, *a_shape[-2:])) for each in (a, factors))
        permutation = broadcast_to(permutation, (*stack, a_shape[-1]))
    return lu_solve(a, factors, permutation, broadcast_to(b, (*stack, *b_shape[-2:])))


def inv(a: Any) -> Any:
    """Return the inverses of square matrices. Raises `numpy.linalg.LinAlgError` for singular ones, as `solve` does.

    >>> inv([[2.0, 0.0], [0.0, 4.0]])
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    a, = matrices("inv", a, square=True)
    one = eye(shape_of(a)[-1], dtype=aval_of(a).dtype)
    return _solved(a, convert(one, aval_of(a).dtype, aval_of(a).weak))


# --- determinants -----------------------------------------------------------------------------------------------------


def det(a: Any) -> Any:
    """Return the determinants of square matrices.

    First and second derivatives are right for singular matrices too; those of matrices up to 3 by 3 of all orders.

    >>> float(det([[1.0, 2.0], [3.0, 4.0]]))
    -2.0
    """
    a, = matrices("det", a, square=True)
    size = shape_of(a)[-1]
    if has_symbolic_dim(size) or not 0 < size < 4:
        return determinant.det(a)
    if size == 1:
        return a[..., 0, 0]
    if size == 2:
        return sub(mul(a[..., 0, 0], a[..., 1, 1]), mul(a[..., 0, 1], a[..., 1, 0]))
    terms = [mul(a[..., 0, i], mul(a[..., 1, j], a[..., 2, k]))
             for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2), (2, 1, 0))]
    return sub(add(add(terms[0], terms[1]), terms[2]), add(add(terms[3], terms[4]), terms[5]))


def slogdet(a: Any, *, method: str | None = None) -> SlogdetResult:
    """Return the signs of the determinants and the logarithms of their magnitudes, -inf for singular matrices.

    For complex matrices, the sign is the number of magnitude 1 in the direction of the determinant. `method` is "lu"
    (the default) or "qr", for real matrices.

    >>> slogdet([[0.0, 1.0], [1.0, 0.0]])
    SlogdetResult(sign=array(-1.), logabsdet=array(0.))
    """
    a, = matrices("slogdet", a, square=True)
    if method == "qr":
        if dtypes.is_complex(aval_of(a).dtype):
            raise ArgumentError(at_user_line(
                "slogdet: method='qr' is for real matrices; leave it out for complex ones"))
        q, r = qr(a)
        middle = diagonal(r)
        turn = sign(determinant.det(stop_gradient(q)))  # 1 or -1, so constant
        return SlogdetResult(mul(turn, prod(sign(middle), -1)), sum(log(abs(middle)), -1))
    if method not in (None, "lu"):
        raise ArgumentError(at_user_line(f"slogdet: method={method!r}; it is 'lu' (or None) or 'qr'"))
    return SlogdetResult(*determinant.slogdet(a, *lu(stop_gradient(a))))


# --- pseudo-inverses, least squares ---------------------------------------------------------------------------------


def pinv(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Any:
    """Return the pseudo-inverses of matrices (stacks too, of any height and width).

    Singular values up to `rtol` times the largest one count as zero: by default 10 max(rows, columns) eps; `rcond` is
    another name for it. With `hermitian` the matrices are made Hermitian first. Derivatives are right if the rank does
    not change.

    >>> pinv([[2.0], [0.0]])
    array([[0.5, 0. ]])
    """
    if rtol is not None and rcond is not None:
        raise ArgumentError(at_user_line("pinv: both rtol and rcond; give one of them"))
    a, = matrices("pinv", a, square=hermitian)
    bound, truncates = rtol if rtol is not None else rcond, rtol is not None or rcond is not None
    if bound is None:
        bound = 10 * max(shape_of(a)[-2:]) * _eps(a)
    return _pinv(symmetrize(a) if hermitian else a, bound, truncates)


def _eps(a: Any) -> float:
    return float(dtypes.finfo(aval_of(a).dtype).eps)


def _pinv(a: Any, rtol: Any, truncates: bool) -> Any:
    bound = stop_gradient(convert(as_array_operand(rtol), dtypes.real_dtype(aval_of(a).dtype), aval_of(a).weak))
    return pseudo_inverse(a, broadcast_to(bound, shape_of(a)[:-2]), truncates)


def lstsq(a: Any, b: Any, rcond: Any = None, *, numpy_resid: bool = False) -> tuple[Any, Any, Any, Any]:
    """Return the x that minimizes the sum of squares of `b - a @ x`, the shortest one if there are several.

    Returns x, those sums, the rank of `a` and its singular values; singular values below `rcond` times the largest one
    count as zero (by default max(rows, columns) eps). With `numpy_resid`, which `jit` cannot have, the sums are an
    empty array where NumPy's are: unless `a` has more rows than columns and full rank. Derivatives of x are right if
    the rank does not change. Raises `ShapeError` unless `a` is a matrix and `b` a vector or matrix with the same number
    of rows.

    >>> lstsq([[1.0], [1.0]], [1.0, 3.0])[0]
    array([2.])
    """
    a, b = inexact_operands(a, b)
    a_shape, b_shape = shape_of(a), shape_of(b)
    if len(a_shape) != 2 or len(b_shape) not in (1, 2) or a_shape[0] != b_shape[0]:
        raise ShapeError(at_user_line(f"lstsq: a matrix of shape {a_shape} and a right side of shape {b_shape}; a "
                                      "matrix and a vector or matrix of as many rows are needed"))
    check_matrix_operands("lstsq", a)
    height, width = a_shape
    real_type = dtypes.real_dtype(aval_of(a).dtype)
    bound = convert(as_array_operand(max(height, width) * _eps(a) if rcond is None else rcond), real_type,
                    aval_of(a).weak)
    if rcond is not None:
        bound = where(less(bound, 0.0), _eps(a), bound)
    values = svdvals(a)
    large = logical_and(greater(values, 0.0), greater_equal(values, mul(bound, values[:1])))
    rank = count_nonzero(large)
    x = matmul(_pinv(a, bound, rcond is not None), b, precision="highest")
    rest = sub(b, matmul(a, x, precision="highest"))
    squares = square(abs(rest)) if dtypes.is_complex(aval_of(rest).dtype) else square(rest)
    residuals = reshape(sum(squares, 0), b_shape[1:] or (1,))
    if numpy_resid and (height <= width or require_concrete(rank, "lstsq(numpy_resid=True)") < width):
        residuals = zeros((0,), real_type)
    return x, residuals, rank, values


# --- tensors as matrices ----------------------------------------------------------------------------------------------


def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Any:
    """Return the x with `tensordot(a, x, x.ndim) = b`; `axes` of `a` are moved to its end first.

    >>> tensorsolve([[[2.0, 0.0]], [[0.0, 4.0]]], [[2.0], [8.0]])
    array([1., 2.])
    """
    a, b = as_array_operand(a), as_array_operand(b)
    if axes is not None:
        a = moveaxis(a, tuple(axes), tuple(range(-len(axes), 0)))
    shape, size = shape_of(a)[len(shape_of(b)):], math.prod(shape_of(b))
    if size != math.prod(shape) or shape_of(a)[:len(shape_of(b))] != shape_of(b):
        raise ShapeError(at_user_line(f"tensorsolve: arrays of shapes {shape_of(a)} and {shape_of(b)}; the first must "
                                      "have the axes of the second, and then axes of as many elements"))
    return reshape(solve(reshape(a, (size, size)), reshape(b, (size,))), shape)


def tensorinv(a: Any, ind: int = 2) -> Any:
    """Return the array whose `tensordot` with `a` over `ind` axes is an identity.

    >>> shape_of(tensorinv(eye(6).reshape(2, 3, 6)))
    (6, 2, 3)
    """
    a, count = as_array_operand(a), as_integer("tensorinv", ind)
    shape = shape_of(a)
    size = math.prod(shape[:count])
    if count < 1 or size != math.prod(shape[count:]):
        raise ShapeError(at_user_line(f"tensorinv: an array of shape {shape} with ind={count}; the first ind axes (at "
                                      "least one) must have as many elements as the others"))
    return reshape(inv(reshape(a, (size, size))), (*shape[count:], *shape[:count]))


def matrix_power(a: Any, n: int) -> Any:
    """Return the product of `n` square matrices `a`; of inverses if `n` is negative.

    Raises `ArgumentError` unless `n` is an integer. Of a matrix of integers, powers from 0 on are integers.

    >>> matrix_power([[1.0, 1.0], [0.0, 1.0]], 3)
    array([[1., 3.],
           [0., 1.]])
    """
    count = as_integer("matrix_power", n)
    a = as_array_operand(a)
    shape = shape_of(a)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(at_user_line(f"matrix_power: an array of shape {shape}; square matrices are needed"))
    if not count:
        return as_result(broadcast_to(eye(shape[-1], dtype=aval_of(a).dtype), shape))
    if count < 0:
        a, count = inv(a), -count
    result = None
    while count:
        if count & 1:
            result = a if result is None else matmul(result, a, precision="highest")
        count >>= 1
        a = matmul(a, a, precision="highest") if count else a
    return new_array(result, a)
