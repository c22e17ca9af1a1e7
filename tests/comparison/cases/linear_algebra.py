"""Cases of linear algebra: of `numpy.linalg`, `lax.linalg` and `scipy.linalg`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.comparison.arguments import A, Case

INEXACT = ("float32", "float64", "complex64")
REAL = ("float32", "float64")
ONE = ("float32",)


def positive(x: Any) -> Any:
    """A positive definite matrix."""
    return x @ np.conj(np.swapaxes(x, -1, -2)) + 2 * np.eye(x.shape[-1])


def hermitian(x: Any) -> Any:
    """A Hermitian matrix."""
    return x + np.conj(np.swapaxes(x, -1, -2)) + np.diag(np.arange(x.shape[-1]) * 3.0)


def regular(x: Any) -> Any:
    """A matrix that is far from singular."""
    return x + 4 * np.eye(x.shape[-1])


def symmetric(a: Any) -> Any:
    """Functions that look at one triangle only have derivatives of two conventions, which agree after this."""
    return (a + a.conj().T) / 2


def lower(x: Any) -> Any:
    """A regular lower triangular matrix."""
    return np.tril(x) + 4 * np.eye(x.shape[-1])


def upper(x: Any) -> Any:
    """A regular upper triangular matrix."""
    return np.triu(x) + 4 * np.eye(x.shape[-1])


POSITIVE = A(3, 3, make=positive)
HERMITIAN = A(3, 3, make=hermitian)
REGULAR = A(3, 3, make=regular)
WITHOUT_SIGNS = "vectors are told up to a factor of size 1: what is compared is their absolute value"


def size_of_all(results: Any) -> Any:
    """The absolute values of all arrays."""
    return [abs(x) for x in (results if isinstance(results, tuple | list) else [results])]


def matrix(*args: Any, **options: Any) -> Case:
    """A case in inexact dtypes, whose algorithms round differently."""
    return Case(*args, **{"dtypes": INEXACT, "tolerance": 20, **options})


NUMPY: dict[str, list[Case]] = {
    "cholesky": [matrix(POSITIVE), matrix(POSITIVE, upper=True)],
    "cond": [matrix(REGULAR, dtypes=REAL), matrix(REGULAR, 1)],
    "cross": [Case(A(2, 3), A(2, 3))], "det": [matrix(REGULAR), matrix(A(2, 2, 2, make=regular))],
    "diagonal": [Case(A(3, 4))], "trace": [Case(A(3, 4))], "outer": [Case(A(2), A(3))],
    "eig": [matrix(REGULAR, seen=lambda r: abs(r[0]).sum())],
    "eigh": [matrix(HERMITIAN, seen=size_of_all)], "eigvalsh": [matrix(HERMITIAN)],
    "eigvals": [matrix(REGULAR, seen=lambda r: r.sum())],
    "inv": [matrix(REGULAR)], "lstsq": [matrix(A(4, 3), A(4, 2), dtypes=REAL)],
    "matmul": [Case(A(2, 3), A(3, 2))], "matrix_norm": [matrix(A(2, 3)), matrix(A(2, 3), ord=1)],
    "matrix_power": [Case(A(3, 3), 3), matrix(REGULAR, -2)],
    "matrix_rank": [matrix(A(3, 4))], "matrix_transpose": [Case(A(2, 3, 4))],
    "multi_dot": [matrix([A(2, 3), A(3, 4), A(4, 2)])],
    "norm": [matrix(A(2, 3)), matrix(A(2, 3), axis=1), matrix(A(3), ord=3), matrix(A(2, 3), ord="nuc")],
    "pinv": [matrix(A(4, 3))], "qr": [matrix(A(4, 3), seen=size_of_all), matrix(A(3, 3), mode="r", seen=size_of_all)],
    "slogdet": [matrix(REGULAR)], "solve": [matrix(REGULAR, A(3, 2)), matrix(REGULAR, A(3))],
    "svd": [matrix(A(4, 3), full_matrices=False, seen=size_of_all), matrix(A(4, 3), compute_uv=False)],
    "svdvals": [matrix(A(3, 4))], "tensordot": [Case(A(2, 3, 4), A(3, 4, 2))],
    "tensorinv": [matrix(A(4, 4, make=regular), call=lambda m, a: m.tensorinv(a.reshape(2, 2, 4)), dtypes=REAL)],
    "tensorsolve": [matrix(A(4, 4, make=regular), A(4), dtypes=REAL,
                           call=lambda m, a, b: m.tensorsolve(a.reshape(2, 2, 4), b.reshape(2, 2)))],
    "vecdot": [Case(A(2, 3), A(2, 3))], "vector_norm": [matrix(A(2, 3), axis=1), matrix(A(2, 3), ord=3)],
}

LAX: dict[str, list[Case]] = {
    "cholesky": [matrix(POSITIVE)],
    "cholesky_update": [matrix(A(3, 3, make=upper), A(3), dtypes=REAL)],
    "eig": [matrix(REGULAR, seen=lambda r: abs(r[0]).sum())],
    "eigh": [matrix(HERMITIAN, seen=size_of_all)],
    "hessenberg": [matrix(A(3, 3), seen=size_of_all)],
    "householder_product": [matrix(A(4, 2), A(2))],
    "lu": [matrix(REGULAR)], "lu_pivots_to_permutation": [Case(np.array([1, 1, 2], np.int32), 3, dtypes=ONE)],
    "ormqr": [matrix(A(3, 2), A(2), A(3, 4))],
    "qr": [matrix(A(4, 3), full_matrices=False, seen=size_of_all)],
    "schur": [matrix(HERMITIAN, seen=lambda r: abs(r[0].diagonal()).sum())],
    "svd": [matrix(A(4, 3), full_matrices=False, seen=size_of_all)],
    "symmetric_product": [matrix(A(3, 2), A(3, 3, make=hermitian), alpha=2.0, beta=0.5, symmetrize_output=True,
                                 dtypes=REAL)],
    "triangular_solve": [matrix(A(3, 3, make=lower), A(3, 2), left_side=True, lower=True),
                         matrix(A(3, 3, make=upper), A(2, 3), transpose_a=True, conjugate_a=True)],
    "tridiagonal": [matrix(HERMITIAN, seen=size_of_all)],
    "tridiagonal_solve": [matrix(A(4), A(4, low=5, high=6), A(4), A(4, 2), dtypes=REAL)],
}

SCIPY: dict[str, list[Case]] = {
    "block_diag": [Case(A(2, 2), A(1, 3))], "circulant": [Case(A(3))], "companion": [matrix(A(3, low=1))],
    "convolution_matrix": [Case(A(3), 4)], "fiedler": [Case(A(3))], "fiedler_companion": [matrix(A(4, low=1))],
    "hankel": [Case(A(3)), Case(A(3), A(4))], "leslie": [Case(A(3), A(2))],
    "toeplitz": [Case(A(3)), Case(A(3), A(4))],
    "dft": [Case(3, dtypes=ONE)], "hadamard": [Case(4, dtypes=ONE)], "helmert": [Case(3, dtypes=ONE)],
    "hilbert": [Case(3, dtypes=ONE)], "invhilbert": [Case(3, dtypes=ONE)], "invpascal": [Case(3, dtypes=ONE)],
    "pascal": [Case(3, dtypes=ONE)],
    "cho_factor": [matrix(POSITIVE, call=lambda m, a: m.cho_factor(symmetric(a))[0])],
    "cho_solve": [matrix(A(3, 3, make=lower), A(3, 2), call=lambda m, c, b: m.cho_solve((c, True), b))],
    "cholesky": [matrix(POSITIVE, call=lambda m, a, lower=lower: m.cholesky(symmetric(a), lower=lower))
                 for lower in (True, False)],
    "det": [matrix(REGULAR)],
    "eigh": [matrix(HERMITIAN, seen=size_of_all)],
    "eigh_tridiagonal": [matrix(A(4), A(3), eigvals_only=True, dtypes=REAL,
                                without={
                                    "derivatives": "jax's are not those that central differences of its own values "
                                                   "give; ours are"})],
    "expm": [matrix(A(3, 3))], "expm_frechet": [matrix(A(3, 3), A(3, 3))],
    "hessenberg": [matrix(A(3, 3), seen=size_of_all)],
    "inv": [matrix(REGULAR)], "lu": [matrix(REGULAR)], "lu_factor": [matrix(REGULAR)],
    "lu_solve": [matrix(REGULAR, A(3), call=lambda m, a, b: m.lu_solve(m.lu_factor(a), b))],
    "polar": [matrix(REGULAR, method="svd", dtypes=REAL)], "qr": [matrix(A(4, 3), mode="economic", seen=size_of_all)],
    "qr_multiply": [matrix(A(4, 3), A(2, 4), seen=size_of_all, dtypes=REAL)],
    "rsf2csf": [matrix(A(3, 3, make=np.triu), A(3, 3, make=regular), seen=size_of_all, dtypes=REAL,
                       without={"derivatives": "that of the Schur form is not written"})],
    "schur": [matrix(HERMITIAN, seen=lambda r: abs(r[0].diagonal()).sum())],
    "solve": [matrix(REGULAR, A(3, 2)), matrix(
        POSITIVE, A(3), call=lambda m, a, b: m.solve(symmetric(a), b, assume_a="pos"))],
    "solve_sylvester": [matrix(A(3, 3, make=regular), A(2, 2, make=regular), A(3, 2), dtypes=REAL)],
    "solve_triangular": [matrix(A(3, 3, make=lower), A(3, 2), lower=True), matrix(A(3, 3, make=upper), A(3), trans=1)],
    "sqrtm": [matrix(POSITIVE)],
    "svd": [matrix(A(4, 3), full_matrices=False, seen=size_of_all)],
}
