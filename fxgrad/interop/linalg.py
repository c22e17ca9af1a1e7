"""jax's decompositions of matrices and the systems that they solve."""

from __future__ import annotations

from typing import Any

from fxgrad import lax
from fxgrad.engine.core.primitive import registry
from fxgrad.engine.ops import eigen, factorizations, triangular
from fxgrad.interop.importing import imports
from fxgrad.interop.matching import parameters, same

for _name in ("cholesky", "lu", "hessenberg"):
    same(registry[_name])


@imports("lu_pivots_to_permutation")
def _lu_pivots_to_permutation(equation: Any, pivots: Any) -> Any:
    size, = parameters(equation, "permutation_size")
    return factorizations.lu_pivots_to_permutation(pivots, int(size))


@imports("qr")
def _qr(equation: Any, x: Any) -> Any:
    pivoting, whole = parameters(equation, "pivoting", "full_matrices")
    return factorizations.qr(x, whole, pivoting)


@imports("householder_product")
def _householder_product(equation: Any, reflectors: Any, factors: Any) -> Any:
    """Several of ours for one: a product of matrices, and a triangular system."""
    parameters(equation)
    return lax.linalg.householder_product(reflectors, factors)


@imports("ormqr")
def _ormqr(equation: Any, reflectors: Any, factors: Any, x: Any) -> Any:
    """Several of ours for one, as above."""
    left, transpose = parameters(equation, "left", "transpose")
    return lax.linalg.ormqr(reflectors, factors, x, left=left, transpose=transpose)


@imports("cholesky_update")
def _cholesky_update(equation: Any, factor: Any, vector: Any) -> Any:
    """Several of ours for one: the QR decomposition of the factor with one more row, its signs put right."""
    parameters(equation)
    return lax.linalg.cholesky_update(factor, vector)


@imports("symmetric_product")
def _symmetric_product(equation: Any, a: Any, c: Any) -> Any:
    """Several of ours for one: alpha a aᵀ + beta c."""
    alpha, beta = parameters(equation, "alpha", "beta")
    return lax.linalg.symmetric_product(a, c, alpha=alpha, beta=beta)


@imports("svd")
def _svd(equation: Any, x: Any) -> Any:
    whole, vectors = parameters(equation, "full_matrices", "compute_uv")
    found = eigen.svd(x, whole, vectors)
    return [found[1], found[0], found[2]] if vectors else found  # jax has the values first


@imports("eigh")
def _eigh(equation: Any, x: Any) -> Any:
    lower, = parameters(equation, "lower", ignored=("sort_eigenvalues",))  # ours are sorted always
    return eigen.eigh(x, lower)


@imports("eig")
def _eig(equation: Any, x: Any) -> Any:
    left, right = parameters(equation, "compute_left_eigenvectors", "compute_right_eigenvectors",
                           ignored=("enable_eigvec_derivs",))  # ours have derivatives always
    return eigen.eig(x, left, right)


@imports("schur")
def _schur(equation: Any, x: Any) -> Any:
    vectors, is_sorted = parameters(equation, "compute_schur_vectors", "sort_eig_vals")
    if is_sorted:
        return NotImplemented
    return lax.linalg.schur(x, compute_schur_vectors=vectors)


@imports("tridiagonal")
def _tridiagonal(equation: Any, x: Any) -> Any:
    lower, = parameters(equation, "lower")
    return lax.linalg.tridiagonal(x, lower=lower)


@imports("triangular_solve")
def _triangular_solve(equation: Any, a: Any, b: Any) -> Any:
    left_side, lower, transpose, conjugate, unit = parameters(
        equation, "left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    return triangular.triangular_solve(a, b, left_side=left_side, lower=lower, transpose_a=transpose,
                                       conjugate_a=conjugate, unit_diagonal=unit)


@imports("tridiagonal_solve")
def _tridiagonal_solve(equation: Any, low: Any, middle: Any, high: Any, b: Any) -> Any:
    perturb, = parameters(equation, "perturb_singular")
    if perturb:
        return NotImplemented
    return triangular.tridiagonal_solve(low, middle, high, b)
