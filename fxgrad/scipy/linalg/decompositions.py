"""Decompositions of matrices with the names of scipy.linalg."""
# ruff: noqa: A002, ARG001  (signatures are jax's, with arguments that mean nothing here)

from __future__ import annotations

from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import inexact_operands, shape_of
from fxgrad.engine.ops import eigen, factorizations, reduced_forms
from fxgrad.engine.ops.comparison import eq
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.families import check_same_dtype
from fxgrad.engine.ops.matrices import (
    adjoint,
    as_row,
    columns,
    conj_if_complex,
    eye,
    hermitian,
    matmul,
    rows,
    tril,
    triu,
)
from fxgrad.engine.ops.matrix_functions import nearest_unitary
from fxgrad.engine.ops.pointwise import add, scalar_like
from fxgrad.engine.ops.shaping import pad
from fxgrad.engine.ops.structural import broadcast_to, convert, reshape
from fxgrad.engine.ops.triangular import triangular_solve
from fxgrad.engine.tracing.provenance import note_results
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError
from fxgrad.numpy.linalg.operands import matrices, symmetrize
from fxgrad.numpy.rearranging import diag

__all__ = ["cholesky", "eigh", "eigh_tridiagonal", "hessenberg", "lu", "polar", "qr", "qr_multiply", "rsf2csf", "schur",
           "svd"]


def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Return the upper triangular U with `U.T.conj() @ U = a`, or with `lower` the L with `L @ L.T.conj() = a`.

    Only that triangle of `a` is read. Raises `numpy.linalg.LinAlgError` for a matrix that is not positive definite;
    under `jit` the result is then NaN.

    >>> cholesky([[4.0, 2.0], [2.0, 2.0]])
    array([[2., 1.],
           [0., 1.]])
    """
    a, = matrices("cholesky", a, square=True)
    factor = factorizations.cholesky(a if lower else adjoint(a))
    return factor if lower else adjoint(factor)


def lu(a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, ...]:
    """Return P, L and U with `P @ L @ U = a`, or with `permute_l`, `P @ L` and U.

    P is a permutation, L unit lower and U upper triangular.

    >>> lu([[1.0, 2.0], [2.0, 2.0]])[2]
    array([[2., 2.],
           [0., 1.]])
    """
    a, = matrices("lu", a)
    factors, _, order = factorizations.lu(a)
    height, width = shape_of(a)[-2:]
    size = min(height, width)
    low = tril(columns(factors, 0, size), -1)
    low = add(low, broadcast_to(eye(height, size, aval_of(a).dtype), shape_of(low)))
    high = rows(triu(factors), 0, size)
    square = (*shape_of(order), height)
    here = eq(broadcast_to(as_row(order), square), iota(dtypes.int32, square, len(square) - 2))
    permutation = convert(here, aval_of(a).dtype)
    if permute_l:
        return matmul(permutation, low), high
    return convert(permutation, dtypes.real_dtype(aval_of(a).dtype)), low, high


def qr(a: Any, overwrite_a: bool = False, lwork: Any = None, mode: str = "full", pivoting: bool = False,
       check_finite: bool = True) -> tuple[Any, ...]:
    """Return (Q, R), with `pivoting` (Q, R, order).

    Q has orthonormal columns, R is upper triangular and Q R is `a`, or `a[:, order]`.

    `mode` is "full" (a square Q), "economic", or "r": then there is no Q.

    >>> abs(qr([[3.0], [4.0]], mode="r")[0]).round(6)
    array([[5.],
           [0.]])
    """
    if mode not in ("full", "r", "economic"):
        raise ArgumentError(at_user_line(f"qr: mode={mode!r}; it is one of 'full', 'economic', 'r'"))
    a, = matrices("qr", a)
    found = factorizations.qr(a, full_matrices=mode != "economic", pivoting=pivoting)
    if mode == "r":
        note_results(found, lambda: (None, "[0]", "[1]"))
    return tuple(found[mode == "r":])


def qr_multiply(a: Any, c: Any, mode: str = "right", pivoting: bool = False, conjugate: bool = False,
                overwrite_a: bool = False, overwrite_c: bool = False) -> tuple[Any, ...]:
    """Return `c @ Q`, or `Q @ c` for `mode="left"`, with R (and the order of columns) of the economic `qr` of `a`.

    With `conjugate`, that of Q conjugated. `c` may be a vector. Raises `ShapeError` if its size does not fit.

    >>> abs(qr_multiply([[3.0], [4.0]], [[3.0, 4.0]])[0]).round(6)
    array([[5.]])
    """
    if mode not in ("left", "right"):
        raise ArgumentError(at_user_line(f"qr_multiply: mode={mode!r}; it is 'left' or 'right'"))
    a, c = inexact_operands(a, c)
    is_vector = len(shape_of(c)) == 1
    if is_vector:
        c = reshape(c, (*shape_of(c), 1) if mode == "left" else (1, *shape_of(c)))
    q, *rest = factorizations.qr(matrices("qr_multiply", a)[0], full_matrices=False, pivoting=pivoting)
    q = conj_if_complex(q) if conjugate else q
    if mode == "left" and shape_of(c)[-2] == shape_of(q)[-2] != shape_of(q)[-1]:
        c = rows(c, 0, shape_of(q)[-1])
    left, right = (q, c) if mode == "left" else (c, q)
    if shape_of(left)[-1] != shape_of(right)[-2]:
        raise ShapeError(at_user_line(f"qr_multiply: c of shape {shape_of(c)} with Q of shape {shape_of(q)} on its "
                                      f"{'left' if mode == 'left' else 'right'}; the sizes next to each other differ"))
    product = matmul(left, right)
    return (reshape(product, (max(shape_of(product)),)) if is_vector else product), *rest


# --- eigenvalues ------------------------------------------------------------------------------------------------------


def eigh(a: Any, b: Any = None, lower: bool = True, eigvals_only: bool = False, overwrite_a: bool = False,
         overwrite_b: bool = False, turbo: bool = True, eigvals: None = None, type: int = 1,
         check_finite: bool = True, *, subset_by_index: tuple[int, int] | None = None) -> Any:
    """Return ascending eigenvalues, and eigenvectors as columns, of Hermitian matrices; see `fxgrad.numpy.linalg.eigh`.

    With `b`, positive definite, they are those of `a @ v = w * b @ v` (only `type` 1). `lower` selects the triangles
    that are read, `subset_by_index=(first, last)` some of the values and vectors: all are computed.

    >>> eigh([[2.0, 0.0], [0.0, 1.0]], eigvals_only=True)
    array([1., 2.])
    """
    if type != 1 or eigvals is not None:
        raise UnsupportedError(at_user_line("eigh: only type=1 and eigvals=None are supported: compute all and slice"))
    a, = matrices("eigh", a, square=True)
    if b is None:
        vectors, values = eigen.eigh(symmetrize(a), lower)
        note_results((vectors, values), lambda: (None, "") if eigvals_only else ("[1]", "[0]"))
    else:
        a, b = matrices("eigh", a, b, square=True)
        factor = factorizations.cholesky(b if lower else adjoint(b))
        half = triangular_solve(factor, hermitian(a, lower), left_side=True, lower=True)
        inner = triangular_solve(factor, half, lower=True, transpose_a=True, conjugate_a=True)
        vectors, values = eigen.eigh(symmetrize(inner))
        note_results((vectors, values), lambda: (None, "" if eigvals_only else "[0]"))
        vectors = triangular_solve(factor, vectors, left_side=True, lower=True, transpose_a=True, conjugate_a=True)
    if subset_by_index is not None:
        first, last = subset_by_index
        values, vectors = values[..., first:last + 1], vectors[..., first:last + 1]
    return values if eigvals_only else (values, vectors)


def eigh_tridiagonal(d: Any, e: Any, *, eigvals_only: bool = False, select: str = "a", select_range: Any = None,
                     tol: float | None = None, key: Any = None) -> Any:
    """Return ascending eigenvalues (and vectors) of the symmetric matrix with the diagonal `d` and `e` beside it.

    `select="i"` with `select_range=(first, last)` selects some of them. They are computed as those of a full matrix.

    >>> eigh_tridiagonal([2.0, 1.0], [0.0], eigvals_only=True)
    array([1., 2.])
    """
    if select not in ("a", "i"):
        raise UnsupportedError(at_user_line(f"eigh_tridiagonal: select={select!r} is not supported; it is 'a' or 'i'"))
    d, e = inexact_operands(d, e)
    check_same_dtype("eigh_tridiagonal", aval_of(d), aval_of(e))
    if len(shape_of(d)) != 1 or shape_of(e) != (shape_of(d)[0] - 1,):
        raise ShapeError(at_user_line(f"eigh_tridiagonal: diagonals of shapes {shape_of(d)} and {shape_of(e)}; vectors "
                                      "are needed, the second one shorter by 1"))
    full = add(add(diag(d), diag(e, 1)), diag(conj_if_complex(e), -1))
    vectors, values = eigen.eigh(symmetrize(full))
    if select == "a":
        note_results((vectors, values), lambda: (None, "") if eigvals_only else ("[1]", "[0]"))
    else:
        first, last = select_range
        values, vectors = values[first:last + 1], vectors[:, first:last + 1]
    return values if eigvals_only else (values, vectors)


def schur(a: Any, output: str = "real") -> tuple[Any, Any]:
    """Return T and Z with `Z @ T @ Z.T.conj() = a`, where Z is unitary and T upper triangular.

    For `output="real"` and real matrices T may have blocks of 2 rows on its diagonal, one for each pair of complex
    eigenvalues. There are no derivatives.

    >>> schur([[1.0, 2.0], [0.0, 3.0]])[0]
    array([[1., 2.],
           [0., 3.]])
    """
    if output not in ("real", "complex"):
        raise ArgumentError(at_user_line(f"schur: output={output!r}; it is 'real' or 'complex'"))
    a, = matrices("schur", a, square=True)
    if output == "complex":
        a = convert(a, dtypes.complex_dtype(aval_of(a).dtype))
    form, basis = reduced_forms.schur(a)
    return form, basis


def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple[Any, Any]:
    """Return the complex Schur form of a real one: T becomes triangular.

    >>> bool(abs(rsf2csf([[0.0, 1.0], [-1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])[0][1, 0]) < 1e-12)
    True
    """
    form, basis = (convert(each, dtypes.complex_dtype(aval_of(each).dtype))
                   for each in matrices("rsf2csf", T, Z, square=True))
    triangular, turn = reduced_forms.schur(form)
    return triangular, matmul(basis, turn)


def hessenberg(a: Any, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Return H, zero below the diagonal next to the main one, with `Q @ H @ Q.T.conj() = a`; with `calc_q`, H and Q.

    There are no derivatives.

    >>> hessenberg([[1.0, 2.0], [3.0, 4.0]])
    array([[1., 2.],
           [3., 4.]])
    """
    a, = matrices("hessenberg", a, square=True)
    packed, scales = reduced_forms.hessenberg(a)
    form = triu(packed, -1)
    if not calc_q:
        return form
    size = shape_of(a)[-1]
    if size < 2:
        return form, broadcast_to(eye(size, size, aval_of(a).dtype), shape_of(a))
    corner = factorizations.householder_product(columns(rows(packed, 1, size), 0, size - 1), scales)
    config = [(0, 0, 0)] * (len(shape_of(a)) - 2) + [(1, 0, 0)] * 2
    first = pad(broadcast_to(eye(1, 1, aval_of(a).dtype), (*shape_of(a)[:-2], 1, 1)), scalar_like(0, a),
                [*config[:-2], (0, size - 1, 0), (0, size - 1, 0)])
    return form, add(pad(corner, scalar_like(0, a), config), first)


# --- singular values --------------------------------------------------------------------------------------------------


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, overwrite_a: bool = False,
        check_finite: bool = True, lapack_driver: str = "gesdd") -> Any:
    """Return U, the descending singular values s and Vh with `(U * s) @ Vh = a`, or s; see `fxgrad.numpy.linalg.svd`.

    >>> svd([[0.0, 2.0], [1.0, 0.0]], compute_uv=False)
    array([2., 1.])
    """
    a, = matrices("svd", a)
    found = eigen.svd(a, full_matrices, compute_uv)
    return tuple(found) if compute_uv else found[0]


def polar(a: Any, side: str = "right", *, method: str = "qdwh", eps: float | None = None,
          max_iterations: int | None = None) -> tuple[Any, Any]:
    """Return U and P with `U @ P = a` (or `P @ U = a` for `side="left"`).

    U has orthonormal columns or rows, P is Hermitian without negative eigenvalues. They are computed by singular
    values, whatever `method` is ("qdwh" or "svd"). Derivatives are right at equal singular values too. Raises
    `ShapeError` for matrices that are wide (right) or tall (left).

    >>> polar([[0.0, 2.0], [3.0, 0.0]])[0]
    array([[0., 1.],
           [1., 0.]])
    """
    if side not in ("left", "right") or method not in ("qdwh", "svd"):
        raise ArgumentError(at_user_line(f"polar: side={side!r} and method={method!r}; they are 'left' or 'right', and "
                                         "'qdwh' or 'svd'"))
    a, = matrices("polar", a)
    if side == "left":
        unitary = adjoint(nearest_unitary(adjoint(a)))
        return unitary, symmetrize(matmul(a, adjoint(unitary)))
    unitary = nearest_unitary(a)
    return unitary, symmetrize(matmul(adjoint(unitary), a))
