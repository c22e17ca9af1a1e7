"""jax's decompositions of matrices and the systems that they solve."""

from __future__ import annotations

from typing import Any

from fxgrad import lax
from fxgrad.engine.core.primitive import registry
from fxgrad.engine.ops import eigen, factorizations, triangular
from fxgrad.interop.importing import import_rule
from fxgrad.interop.matching import read_parameters, register_same

for _name in ("cholesky", "lu", "hessenberg"):
    register_same(registry[_name])


@import_rule("lu_pivots_to_permutation")
def _lu_pivots_to_permutation(equation: Any, pivots: Any) -> Any:
    size, = read_parameters(equation, "permutation_size")
    return factorizations.lu_pivots_to_permutation(pivots, int(size))


@import_rule("qr")
def _qr(equation: Any, x: Any) -> Any:
    pivoting, whole = read_parameters(equation, "pivoting", "full_matrices")
    return factorizations.qr(x, whole, pivoting)


@import_rule("householder_product")
def _householder_product(equation: Any, reflectors: Any, factors: Any) -> Any:
    """Import as several operations of ours: a product of matrices, and a triangular system."""
    read_parameters(equation)
    return lax.linalg.householder_product(reflectors, factors)


@import_rule("ormqr")
def _ormqr(equation: Any, reflectors: Any, factors: Any, x: Any) -> Any:
    """Import as several operations of ours, as above."""
    left, transpose = read_parameters(equation, "left", "transpose")
    return lax.linalg.ormqr(reflectors, factors, x, left=left, transpose=transpose)


@import_rule("cholesky_update")
def _cholesky_update(equation: Any, factor: Any, vector: Any) -> Any:
    """Import as several operations of ours: the QR decomposition of the factor with one more row, signs fixed."""
    read_parameters(equation)
    return lax.linalg.cholesky_update(factor, vector)


@import_rule("symmetric_product")
def _symmetric_product(equation: Any, a: Any, c: Any) -> Any:
    """Import as several operations of ours: alpha a aᵀ + beta c."""
    alpha, beta = read_parameters(equation, "alpha", "beta")
    return lax.linalg.symmetric_product(a, c, alpha=alpha, beta=beta)


@import_rule("svd")
def _svd(equation: Any, x: Any) -> Any:
    whole, vectors = read_parameters(equation, "full_matrices", "compute_uv")
    found = eigen.svd(x, whole, vectors)
    return [found[1], found[0], found[2]] if vectors else found  # jax has the values first


@import_rule("eigh")
def _eigh(equation: Any, x: Any) -> Any:
    lower, = read_parameters(equation, "lower", ignored=("sort_eigenvalues",))  # ours are sorted always
    return eigen.eigh(x, lower)


@import_rule("eig")
def _eig(equation: Any, x: Any) -> Any:
    left, right = read_parameters(equation, "compute_left_eigenvectors", "compute_right_eigenvectors",
                           ignored=("enable_eigvec_derivs",))  # ours have derivatives always
    return eigen.eig(x, left, right)


@import_rule("schur")
def _schur(equation: Any, x: Any) -> Any:
    vectors, is_sorted = read_parameters(equation, "compute_schur_vectors", "sort_eig_vals")
    if is_sorted:
        return NotImplemented
    return lax.linalg.schur(x, compute_schur_vectors=vectors)


@import_rule("tridiagonal")
def _tridiagonal(equation: Any, x: Any) -> Any:
    lower, = read_parameters(equation, "lower")
    return lax.linalg.tridiagonal(x, lower=lower)


@import_rule("triangular_solve")
def _triangular_solve(equation: Any, a: Any, b: Any) -> Any:
    left_side, lower, transpose, conjugate, unit = read_parameters(
        equation, "left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    return triangular.triangular_solve(a, b, left_side=left_side, lower=lower, transpose_a=transpose,
                                       conjugate_a=conjugate, unit_diagonal=unit)


@import_rule("tridiagonal_solve")
def _tridiagonal_solve(equation: Any, low: Any, middle: Any, high: Any, b: Any) -> Any:
    perturb, = read_parameters(equation, "perturb_singular")
    if perturb:
        return NotImplemented
    return triangular.tridiagonal_solve(low, middle, high, b)
