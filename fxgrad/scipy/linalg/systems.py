"""Linear systems, and the factors that they are solved with."""
# ruff: noqa: ARG001  (signatures are jax's, with arguments that mean nothing here)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.engine.frontend.operands import as_array_operand, common_shape, inexact_operands, shape_of
from fxgrad.engine.ops import factorizations
from fxgrad.engine.ops.matrices import (
    adjoint,
    conj_if_complex,
    hermitian,
    lower_or_upper,
    permute_rows,
    transpose_matrices,
)
from fxgrad.engine.ops.ordering import argsort
from fxgrad.engine.ops.structural import broadcast_to, reshape
from fxgrad.engine.ops.triangular import triangular_solve
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy import linalg
from fxgrad.numpy.linalg.operands import check_matrix_operands, matrices


def _with_columns(name: str, a: Any, b: Any, solver: Callable[..., Any], *others: Any) -> Any:
    """Apply `solver` to matrices with equal leading axes, where `b` may be a vector and leading axes broadcast.

    `others` are vectors that belong to the matrices.
    """
    a, b = inexact_operands(a, b)
    check_matrix_operands(name, a, square=True)
    a_shape, b_shape = shape_of(a), shape_of(b)
    is_vector = len(b_shape) == 1
    if not b_shape or b_shape[0 if is_vector else -2] != a_shape[-1]:
        raise ShapeError(at_user_line(
            f"{name}: a matrix of shape {a_shape} and a right side of shape {b_shape}; a vector of {a_shape[-1]} "
            f"elements or matrices of {a_shape[-1]} rows are needed"))
    b = reshape(b, (*b_shape, 1)) if is_vector else b
    stack = common_shape(name, a_shape[:-2], shape_of(b)[:-2])
    a, b = (broadcast_to(each, (*stack, *shape_of(each)[-2:])) for each in (a, b))
    x = solver(a, b, *(broadcast_to(each, (*stack, shape_of(each)[-1])) for each in others))
    return reshape(x, shape_of(x)[:-1]) if is_vector else x


def solve_triangular(a: Any, b: Any, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False,
                     overwrite_b: bool = False, debug: Any = None, check_finite: bool = True) -> Any:
    """Return the x with `op(a) @ x = b` for triangular `a`, whose other triangle is not read.

    `trans` is 0 or "N", 1 or "T" (the transpose), 2 or "C" (the conjugate transpose). A zero on the diagonal gives
    infinities. Raises `ShapeError` if the shapes do not fit.

    >>> solve_triangular([[2.0, 1.0], [0.0, 4.0]], [4.0, 8.0])
    array([1., 2.])
    """
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ArgumentError(at_user_line(f"solve_triangular: trans={trans!r}; it is one of 0, 1, 2, 'N', 'T', 'C'"))
    return _with_columns("solve_triangular", a, b, lambda a, b: triangular_solve(
        a, b, left_side=True, lower=lower, transpose_a=trans not in (0, "N"), conjugate_a=trans in (2, "C"),
        unit_diagonal=unit_diagonal))


def solve(a: Any, b: Any, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False,
          debug: bool = False, check_finite: bool = True, assume_a: str | None = "gen", *,
          transposed: bool = False) -> Any:
    """Return the x with `a @ x = b`, or with `transposed`, `a.T @ x = b`.

    `assume_a` says that `a` is symmetric ("sym"), Hermitian ("her") or positive definite ("pos"): then one triangle is
    read, by default the upper one. It may also be "upper triangular" or "lower triangular", and "gen" or None for any
    matrix. Raises `numpy.linalg.LinAlgError` for matrices that are singular or not positive definite (under `jit` the
    result is then not finite), and `ArgumentError` for others of these words.

    >>> solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 8.0], assume_a="pos")
    array([1., 2.])
    >>> solve([[2.0, 2.0], [0.0, 4.0]], [6.0, 10.0], assume_a="sym")
    array([1., 2.])
    """
    if assume_a not in _ASSUMED:
        raise ArgumentError(at_user_line(
            f"solve: assume_a={assume_a!r}; it is one of {', '.join(repr(each) for each in _ASSUMED if each)}"))
    a, b = inexact_operands(a, b)
    check_matrix_operands("solve", a, square=True)
    if assume_a in ("upper triangular", "lower triangular"):
        return solve_triangular(a, b, trans=int(transposed), lower=assume_a == "lower triangular")
    if transposed:
        a, lower = transpose_matrices(a), not lower
    if assume_a == "pos":
        return cho_solve(cho_factor(a, lower), b)
    if assume_a == "her":
        a = hermitian(a, lower)
    elif assume_a == "sym":
        other = transpose_matrices(a)
        a = lower_or_upper(a, other) if lower else lower_or_upper(other, a, -1)
    return linalg.solve(a, b)


_ASSUMED = "gen", "sym", "her", "pos", "upper triangular", "lower triangular", None


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False,
               check_finite: bool = True) -> tuple[Any, bool]:
    """Return the Cholesky factor of positive definite matrices, for `cho_solve`, and `lower`.

    Raises `numpy.linalg.LinAlgError` for other matrices; under `jit` the factor is then NaN.

    >>> cho_factor([[4.0, 0.0], [0.0, 9.0]])
    (array([[2., 0.],
           [0., 3.]]), False)
    """
    a, = matrices("cho_factor", a, square=True)
    factor = factorizations.cholesky(a if lower else adjoint(a))
    return (factor if lower else adjoint(factor)), lower


def cho_solve(c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """Return the x with `a @ x = b`, given `cho_factor(a)`.

    >>> cho_solve(cho_factor([[4.0, 0.0], [0.0, 8.0]]), [4.0, 16.0]).round(12)
    array([1., 2.])
    """
    factor, lower = c_and_lower

    def solver(c: Any, b: Any) -> Any:
        first = triangular_solve(c, b, left_side=True, lower=lower, transpose_a=not lower, conjugate_a=not lower)
        return triangular_solve(c, first, left_side=True, lower=lower, transpose_a=lower, conjugate_a=lower)

    return _with_columns("cho_solve", factor, b, solver)


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, Any]:
    """Return the factors L (below the diagonal, without its ones) and U of matrices in one, and the row exchanges.

    >>> lu_factor([[1.0, 2.0], [2.0, 2.0]])
    (array([[2. , 2. ],
           [0.5, 1. ]]), array([1, 1], dtype=int32))
    """
    a, = matrices("lu_factor", a)
    factors, pivots, _ = factorizations.lu(a)
    return factors, pivots


def lu_solve(lu_and_piv: tuple[Any, Any], b: Any, trans: int = 0, overwrite_b: bool = False,
             check_finite: bool = True) -> Any:
    """Return the x with `op(a) @ x = b`, given `lu_factor(a)`; `trans` is 0, 1 (transpose) or 2 (conjugate transpose).

    >>> lu_solve(lu_factor([[1.0, 2.0], [2.0, 2.0]]), [3.0, 4.0])
    array([1., 1.])
    """
    if trans not in (0, 1, 2):
        raise ArgumentError(at_user_line(f"lu_solve: trans={trans!r}; it is 0, 1 or 2"))
    factors, pivots = lu_and_piv
    order = factorizations.lu_pivots_to_permutation(as_array_operand(pivots), shape_of(as_array_operand(factors))[-1])

    def solver(factors: Any, b: Any, order: Any) -> Any:
        if not trans:
            y = triangular_solve(factors, permute_rows(b, order), left_side=True, lower=True, unit_diagonal=True)
            return triangular_solve(factors, y, left_side=True)
        factors = conj_if_complex(factors) if trans == 2 else factors
        y = triangular_solve(factors, b, left_side=True, transpose_a=True)
        x = triangular_solve(factors, y, left_side=True, lower=True, transpose_a=True, unit_diagonal=True)
        return permute_rows(x, argsort(order, len(shape_of(order)) - 1))

    return _with_columns("lu_solve", factors, b, solver, order)


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Return the inverses of square matrices; see `fxgrad.numpy.linalg.inv`.

    >>> inv([[2.0, 0.0], [0.0, 4.0]])
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    return linalg.inv(a)


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Return the determinants of square matrices; see `fxgrad.numpy.linalg.det`.

    >>> float(det([[1.0, 2.0], [3.0, 4.0]]))
    -2.0
    """
    return linalg.det(a)
