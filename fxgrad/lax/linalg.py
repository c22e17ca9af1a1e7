"""The functions of jax.lax.linalg: decompositions without promotion of their operands."""
# ruff: noqa: ARG001  (signatures are jax's, with arguments that choose between kernels)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.engine.frontend.operands import as_array_operand, as_integer, refuse_complex, shape_of
from fxgrad.engine.frontend.strict import unify_dtypes
from fxgrad.engine.ops import eigen, factorizations, matrices, reduced_forms, triangular
from fxgrad.engine.ops.arithmetic import mul
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import UnsupportedError
from fxgrad.numpy.linalg.operands import check_matrix_operands, from_triangle, symmetrize

__all__ = ["cholesky", "cholesky_update", "eig", "eigh", "hessenberg", "householder_product", "lu",
           "lu_pivots_to_permutation", "ormqr", "qr", "schur", "svd", "symmetric_product", "triangular_solve",
           "tridiagonal", "tridiagonal_solve"]


def _check_subset(name: str, subset: tuple[int, int] | None, size: int) -> None:
    if subset not in (None, (0, size)):
        raise UnsupportedError(at_user_line(f"{name}: subset_by_index={subset!r} is not supported; compute all and "
                                            "slice"))


def _hermitian(name: str, x: Any, symmetrize_input: bool, lower: bool = True) -> Any:
    """Return the means of the matrices and their adjoints, or the Hermitian matrices of one triangle."""
    matrices.check_matrices(name, aval_of(x), square=True)
    return symmetrize(x) if symmetrize_input else from_triangle(x, lower)


def _matrix(name: str, x: Any) -> Any:
    """Return an operand as matrices; raise `ShapeError` and `DTypeError` for others, which NumPy might accept."""
    x = as_array_operand(x)
    check_matrix_operands(name, x)
    return x


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Any:
    """Return the lower triangular L with `L @ L.T.conj() = x`, for positive definite matrices.

    Unless `symmetrize_input`, only the lower triangle is read. Raises `numpy.linalg.LinAlgError` for other matrices;
    under `jit` the result is then NaN.

    >>> import numpy as np
    >>> cholesky(np.diag([4.0, 9.0]))
    array([[2., 0.],
           [0., 3.]])
    """
    x = as_array_operand(x)
    return factorizations.cholesky(_hermitian("cholesky", x, True) if symmetrize_input else x)


def cholesky_update(r_matrix: Any, w_vector: Any) -> Any:
    """Return the upper triangular S with `S.T @ S = R.T @ R + outer(w, w)`, for an upper triangular R.

    >>> import numpy as np
    >>> cholesky_update(np.array([[3.0]]), np.array([4.0])).round(12)
    array([[5.]])
    """
    r, w = unify_dtypes("cholesky_update", r_matrix, w_vector)
    check_matrix_operands("cholesky_update", r)
    refuse_complex("cholesky_update", r)
    return factorizations.cholesky_update(r, w)


def eig(x: Any, *, compute_left_eigenvectors: bool = True, compute_right_eigenvectors: bool = True,
        enable_eigvec_derivs: bool = False, implementation: Any = None, use_magma: bool | None = None) -> list[Any]:
    """Return [eigenvalues, left vectors, right vectors] of square matrices, vectors if requested; all complex.

    Vectors are columns of length 1, their largest element real; they always have derivatives, which are right if the
    eigenvalues are distinct.

    >>> import numpy as np
    >>> eig(np.diag([1.0, 2.0]))[0]
    array([1.+0.j, 2.+0.j])
    """
    return eigen.eig(as_array_operand(x), compute_left_eigenvectors, compute_right_eigenvectors)


def eigh(x: Any, *, lower: bool = True, symmetrize_input: bool = True, sort_eigenvalues: bool = True,
         subset_by_index: tuple[int, int] | None = None, implementation: Any = None) -> tuple[Any, Any]:
    """Return eigenvectors (columns) and ascending eigenvalues of Hermitian matrices; see `fxgrad.numpy.linalg.eigh`.

    >>> import numpy as np
    >>> eigh(np.diag([2.0, 1.0]))[1]
    array([1., 2.])
    """
    x = as_array_operand(x)
    _check_subset("eigh", subset_by_index, shape_of(x)[-1])
    return eigen.eigh(_hermitian("eigh", x, symmetrize_input, lower), lower)


def hessenberg(a: Any) -> tuple[Any, Any]:
    """Return H (zero below its first subdiagonal) with the reflectors that give it stored below, and their factors.

    >>> import numpy as np
    >>> hessenberg(np.array([[1.0, 2.0], [3.0, 4.0]]))[0]
    array([[1., 2.],
           [3., 4.]])
    """
    packed, scales = reduced_forms.hessenberg(as_array_operand(a))
    return packed, scales


def householder_product(a: Any, taus: Any) -> Any:
    """Return the first columns of the product of the reflectors 1 - taus[i] v vᴴ.

    v is below the diagonal in column i.

    >>> import numpy as np
    >>> householder_product(np.array([[0.0], [1.0]]), np.array([1.0]))
    array([[ 0.],
           [-1.]])
    """
    return factorizations.householder_product(*unify_dtypes("householder_product", a, taus))


def lu(x: Any) -> tuple[Any, Any, Any]:
    """Return L (below the diagonal, without its ones) and U in one, the exchanges of rows, and the order they lead to.

    >>> import numpy as np
    >>> lu(np.array([[1.0, 2.0], [2.0, 2.0]]))[2]
    array([1, 0], dtype=int32)
    """
    factors, pivots, permutation = factorizations.lu(_matrix("lu", x))
    return factors, pivots, permutation


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Any:
    """Return the order of rows after exchanging row i with row `pivots[i]`, one after the other.

    >>> import numpy as np
    >>> lu_pivots_to_permutation(np.array([1, 1], np.int32), 3)
    array([1, 0, 2], dtype=int32)
    """
    return factorizations.lu_pivots_to_permutation(
        as_array_operand(pivots), as_integer("lu_pivots_to_permutation", permutation_size))


def ormqr(a: Any, taus: Any, c: Any, *, left: bool = True, transpose: bool = False) -> Any:
    """Return `Q @ c`, or `c @ Q` unless `left`; Q is the product of the reflectors in `a` (`householder_product`).

    With `transpose`, that of the conjugate transpose of Q.

    >>> import numpy as np
    >>> ormqr(np.array([[0.0], [1.0]]), np.array([1.0]), np.eye(2))
    array([[ 0., -1.],
           [-1.,  0.]])
    """
    a, taus, c = unify_dtypes("ormqr", a, taus, c)
    return factorizations.ormqr(a, taus, c, left, transpose)


def qr(x: Any, *, pivoting: bool = False, full_matrices: bool = True,
       use_magma: bool | None = None) -> tuple[Any, ...]:
    """Return Q with orthonormal columns and the upper triangular R, and with `pivoting` the order of columns.

    `Q @ R` is `x`, or `x[:, order]`.

    >>> import numpy as np
    >>> abs(qr(np.array([[3.0], [4.0]]), full_matrices=False)[1]).round(6)
    array([[5.]])
    """
    return tuple(factorizations.qr(_matrix("qr", x), full_matrices, pivoting))


def schur(x: Any, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False,
          select_callable: Callable[..., Any] | None = None) -> tuple[Any, ...]:
    """Return the triangular T and, on request, the unitary Q with `Q @ T @ Q.T.conj() = x`; without derivatives.

    >>> import numpy as np
    >>> schur(np.array([[1.0, 2.0], [0.0, 3.0]]))[0]
    array([[1., 2.],
           [0., 3.]])
    """
    if sort_eig_vals or select_callable is not None:
        raise UnsupportedError(at_user_line("schur: sorted eigenvalues are not supported (nor are they in jax)"))
    return tuple(reduced_forms.schur(_matrix("schur", x), compute_schur_vectors))


def svd(x: Any, *, full_matrices: bool = True, compute_uv: bool = True,
        subset_by_index: tuple[int, int] | None = None, algorithm: Any = None) -> Any:
    """Return U, the descending singular values s and Vh with `(U * s) @ Vh = x`, or s; see `fxgrad.numpy.linalg.svd`.

    >>> import numpy as np
    >>> svd(np.diag([1.0, 2.0]), compute_uv=False)
    array([2., 1.])
    """
    x = _matrix("svd", x)
    _check_subset("svd", subset_by_index, min(shape_of(x)[-2:]))
    found = eigen.svd(x, full_matrices, compute_uv)
    return tuple(found) if compute_uv else found[0]


def symmetric_product(a_matrix: Any, c_matrix: Any, *, alpha: float = 1.0, beta: float = 0.0,
                      symmetrize_output: bool = False) -> Any:
    """Return `alpha * a @ a.T + beta * c`; symmetric if `c` is, so `symmetrize_output` has no effect.

    >>> import numpy as np
    >>> symmetric_product(np.array([[1.0, 2.0]]), np.zeros((1, 1)))
    array([[5.]])
    """
    a, c = unify_dtypes("symmetric_product", a_matrix, c_matrix)
    matrices.check_matrices("symmetric_product", aval_of(a), aval_of(c))
    product = mul(alpha, matrices.matmul(a, matrices.transpose_matrices(a)))
    result = add(product, mul(beta, c))
    if not symmetrize_output:
        return result
    return matrices.lower_or_upper(result, matrices.transpose_matrices(result))


def triangular_solve(a: Any, b: Any, *, left_side: bool = False, lower: bool = False, transpose_a: bool = False,
                     conjugate_a: bool = False, unit_diagonal: bool = False) -> Any:
    """Return the x with `op(a) @ x = b`, or `x @ op(a) = b` unless `left_side`; the other triangle is not read.

    `op` transposes or conjugates. With `unit_diagonal` the diagonal of `a` counts as ones. `b` may have one axis less
    than `a`: then it holds vectors.

    >>> import numpy as np
    >>> triangular_solve(np.diag([2.0, 4.0]), np.array([[2.0], [4.0]]), left_side=True)
    array([[1.],
           [1.]])
    """
    a, b = unify_dtypes("triangular_solve", a, b)
    check_matrix_operands("triangular_solve", a, square=True)
    is_vector = len(shape_of(b)) == len(shape_of(a)) - 1
    if is_vector:
        b = matrices.as_column(b) if left_side else matrices.as_row(b)
    x = triangular.triangular_solve(a, b, left_side=left_side, lower=lower, transpose_a=transpose_a,
                                    conjugate_a=conjugate_a, unit_diagonal=unit_diagonal)
    return (x[..., 0] if left_side else x[..., 0, :]) if is_vector else x


def tridiagonal(a: Any, *, lower: bool = True) -> tuple[Any, Any, Any, Any]:
    """Return the reflectors that make a Hermitian matrix tridiagonal, both its diagonals, and their factors.

    >>> import numpy as np
    >>> tridiagonal(np.array([[1.0, 2.0], [2.0, 3.0]]))[1]
    array([1., 3.])
    """
    packed, middle, beside, scales = reduced_forms.tridiagonal(as_array_operand(a), lower)
    return packed, middle, beside, scales


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Any:
    """Return the x with `A @ x = b` for the A with the diagonals `dl`, `d` and `du`, all of one size.

    The first element of `dl` and the last of `du` do not count. Raises `numpy.linalg.LinAlgError` for a singular A;
    under `jit` the result is then not finite.

    >>> import numpy as np
    >>> tridiagonal_solve(np.zeros(2), np.array([2.0, 4.0]), np.zeros(2), np.array([[2.0], [4.0]]))
    array([[1.],
           [1.]])
    """
    if perturb_singular:
        raise UnsupportedError(at_user_line("tridiagonal_solve: perturb_singular=True is not supported"))
    return triangular.tridiagonal_solve(*unify_dtypes("tridiagonal_solve", dl, d, du, b))
