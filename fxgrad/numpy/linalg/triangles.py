"""NumPy's functions that differ from jax's: those of Hermitian matrices look at one triangle, not the mean of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.engine.frontend.operands import as_array_operand
from fxgrad.engine.ops.matrices import adjoint
from fxgrad.numpy.linalg.decompositions import EighResult
from fxgrad.numpy.linalg.decompositions import cholesky as cholesky_
from fxgrad.numpy.linalg.decompositions import eigh as eigh_
from fxgrad.numpy.linalg.decompositions import eigvalsh as eigvalsh_
from fxgrad.numpy.linalg.decompositions import svd as svd_
from fxgrad.numpy.linalg.norms import cond as cond_
from fxgrad.numpy.linalg.norms import infinite_unless_nan
from fxgrad.numpy.linalg.norms import matrix_rank as matrix_rank_
from fxgrad.numpy.linalg.operands import from_triangle, matrices
from fxgrad.numpy.linalg.solving import pinv as pinv_


def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """Compute `np.linalg.cholesky`, which reads the same triangle as its result has."""
    a, = matrices("cholesky", a, square=True)
    return cholesky_(adjoint(a) if upper else a, upper=upper, symmetrize_input=False)


def eigh(a: Any, UPLO: str = "L") -> EighResult:
    """`np.linalg.eigh`."""
    return eigh_(a, UPLO.upper() if isinstance(UPLO, str) else UPLO, symmetrize_input=False)


def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """`np.linalg.eigvalsh`."""
    return eigvalsh_(a, UPLO.upper() if isinstance(UPLO, str) else UPLO, symmetrize_input=False)


def _lower(name: str, a: Any, hermitian: bool) -> Any:
    """Return the matrices as NumPy reads them: from their lower triangles if `hermitian`."""
    return from_triangle(matrices(name, a, square=True)[0], lower=True) if hermitian else a


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """`np.linalg.svd`."""
    return svd_(_lower("svd", a, hermitian), full_matrices, compute_uv, hermitian)


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """`np.linalg.pinv`."""
    return pinv_(_lower("pinv", a, hermitian), rcond if rtol is None else rtol, hermitian)


def cond(x: Any, p: Any = None) -> Any:
    """Compute `np.linalg.cond`, which is infinite for matrices of zeros."""
    return infinite_unless_nan(cond_(x, p), as_array_operand(x))


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """Compute `np.linalg.matrix_rank`: `tol` bounds singular values absolutely, `rtol` relative to the largest."""
    a = _lower("matrix_rank", A, hermitian)
    if rtol is not None:
        tol = svd_(a, compute_uv=False, hermitian=hermitian).max(-1) * rtol
    return matrix_rank_(a, tol=tol, hermitian=hermitian)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cholesky": cholesky, "cond": cond, "eigh": eigh, "eigvalsh": eigvalsh, "matrix_rank": matrix_rank, "pinv": pinv,
    "svd": svd}
"""By the names in `numpy.linalg`."""
