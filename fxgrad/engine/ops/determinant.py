"""Determinants: their values, their signs and logarithms, and the cofactors that are their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import NOT_LINEAR, ArrayKernel, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.ops.arithmetic import mul, neg
from fxgrad.engine.ops.cumulative import cumprod, shift_along
from fxgrad.engine.ops.eigen import svd
from fxgrad.engine.ops.families import check_same_dtype
from fxgrad.engine.ops.matrices import (
    adjoint,
    as_column,
    as_row,
    cast_real_like,
    check_matrices,
    diagonal,
    has_complex_dtype,
    lapack,
    lower_or_upper,
    matmul,
    on_diagonal,
    real_of,
    shape_of,
    stack_rule,
    transpose_matrices,
    triu,
)
from fxgrad.engine.ops.parts import complex, imag, real
from fxgrad.engine.ops.pointwise import add, scalar_like
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import broadcast_to, full, reduce_sum, reshape
from fxgrad.engine.ops.triangular import check_permutation, lu_solve, lu_solve_p
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ShapeError

# --- determinants -------------------------------------------------------------------------------------------------


def _det_abstract(a: Aval) -> list[Aval]:
    check_matrices("det", a, square=True)
    return [a.update(shape=a.shape[:-2])]


def _det_xla(lax: Any, a: Any) -> list[Any]:
    factors, pivots, _ = lax.linalg.lu(a)
    return [_product_xla(lax, factors) * _parity_xla(lax, pivots, a.dtype)]


def _product_xla(lax: Any, factors: Any) -> Any:
    return lax.reduce(_diagonal_xla(lax, factors, 1), np.ones((), factors.dtype), lax.mul, (factors.ndim - 2,))


def _diagonal_xla(lax: Any, x: Any, other: float) -> Any:
    """Return the diagonals of square matrices, as sums of rows that hold `other` elsewhere: 1, for products of rows."""
    shape = x.shape[-2:]
    here = lax.broadcasted_iota(np.int32, shape, 0) == lax.broadcasted_iota(np.int32, shape, 1)
    here = lax.broadcast_in_dim(here, x.shape, (x.ndim - 2, x.ndim - 1))
    kept = lax.select(here, x, lax.full_like(x, other))
    return lax.reduce(kept, np.ones((), x.dtype), lax.mul, (x.ndim - 1,))


def _parity_xla(lax: Any, pivots: Any, dtype: Any) -> Any:
    exchanged = pivots != lax.broadcasted_iota(pivots.dtype, pivots.shape, pivots.ndim - 1)
    count = lax.reduce(exchanged.astype(np.int32), np.int32(0), lax.add, (pivots.ndim - 1,))
    return (1 - 2 * (count % 2)).astype(dtype)


def _det_jvp(primals: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
    axes = [len(shape_of(primals[0])) - 2, len(shape_of(primals[0])) - 1]
    return bind(det_p, *primals), [reduce_sum(mul(cofactor(primals[0]), tangents[0]), axes)]


det_p = register(Primitive(
    name="det", abstract=_det_abstract, numpy=ArrayKernel(lambda a: np.linalg.det(a)), xla=_det_xla, jvp=_det_jvp,
    transpose=NOT_LINEAR, batch=stack_rule(lambda: det_p),
    cost=lambda a: Cost(2 * a.size * a.shape[-1] // 3, a.nbytes)))


def det(a: Any) -> Any:
    """Return the determinants of square matrices, with derivatives at singular ones too."""
    return bind(det_p, a)[0]


# --- cofactors ----------------------------------------------------------------------------------------------------

# With a = U diag(s) Vᴴ the cofactors are det(U Vᴴ) conj(U diag(p) Vᴴ), where p_i is the product of all s but s_i:
# a formula without division, so it holds for singular matrices, and so does its derivative.


def _cofactor_abstract(a: Aval) -> list[Aval]:
    check_matrices("cofactor", a, square=True)
    return [a]


def _cofactor_numpy(a: Any) -> Any:
    if not a.size:
        return a.copy()
    with np.errstate(all="ignore"):
        inverse, value = _inverse_and_determinant(a) if a.ndim == 2 else _inverses_and_determinants(a)
        condition = np.abs(a).sum(-2).max(-1) * np.abs(inverse).sum(-2).max(-1)
    if not (condition < _trusted(a.dtype, a.shape[-1])).all():  # also if it is a NaN
        u, s, vh = np.linalg.svd(a)
        values = np.linalg.det(u) * np.linalg.det(vh)
        # For each singular value the product of all others.
        ones = np.ones((*s.shape[:-1], 1), s.dtype)
        before = np.cumprod(np.concatenate([ones, s[..., :-1]], -1), -1)
        behind = np.cumprod(np.concatenate([ones, s[..., :0:-1]], -1), -1)[..., ::-1]
        products = before * behind
        return (values[..., None, None] * ((u * products[..., None, :]) @ vh).conj()).astype(a.dtype, copy=False)
    return value[..., None, None] * np.swapaxes(inverse, -2, -1)


def _inverse_and_determinant(a: Any) -> tuple[Any, Any]:
    """Return both by one factorization; for a singular matrix the inverse is not finite."""
    factor, invert = lapack(a.dtype, "getrf", "getri")
    factors, pivots, singular = factor(a)
    if singular:
        return np.full_like(a, np.inf), a.dtype.type(0)
    exchanges = np.count_nonzero(pivots != np.arange(len(a)))
    return invert(factors, pivots)[0], a.dtype.type(np.diagonal(factors).prod() * (-1) ** exchanges)


def _inverses_and_determinants(a: Any) -> tuple[Any, Any]:
    try:
        return np.linalg.inv(a), np.linalg.det(a)
    except np.linalg.LinAlgError:  # one of them is singular
        return np.full_like(a, np.inf), np.zeros(a.shape[:-2], a.dtype)


def _trusted(dtype: Any, size: int) -> Any:
    """Return the condition number (by column sums) up to which the inverse gives the cofactors, at a tenth of the time.

    Errors are smaller than this number times the precision, by about the root of `size`.
    """
    return size / np.finfo(dtype).eps ** (0.25 if np.finfo(dtype).bits == 64 else 0.4)


def _cofactor_xla(lax: Any, a: Any) -> list[Any]:
    if not a.size:
        return [a]
    factors, pivots, permutation = lax.linalg.lu(a)
    identity = lax.full_like(a, 0) + np.eye(a.shape[-1], dtype=a.dtype)
    inverse = lu_solve_p.xla(lax, a, factors, permutation, identity, transpose_a=True)[0]

    def norm(x: Any) -> Any:
        sums = lax.reduce(lax.abs(x), np.zeros((), a.real.dtype), lax.add, (a.ndim - 2,))
        return lax.reduce_max(sums, (a.ndim - 2,))

    trusted = norm(a) * norm(inverse) < _trusted(a.dtype, a.shape[-1])
    is_trusted = lax.reduce(trusted, np.True_, lax.bitwise_and, (*range(a.ndim - 2),))
    value = _product_xla(lax, factors) * _parity_xla(lax, pivots, a.dtype)
    return [lax.cond(is_trusted, lambda: value[..., None, None] * inverse, lambda: _from_singular_values_xla(lax, a))]


def _from_singular_values_xla(lax: Any, a: Any) -> Any:
    u, s, vh = lax.linalg.svd(a)
    axis = s.ndim - 1
    ones = lax.full((*s.shape[:-1], 1), 1, s.dtype)
    before = lax.cumprod(lax.concatenate([ones, s[..., :-1]], axis), axis)
    behind = lax.cumprod(lax.concatenate([s[..., 1:], ones], axis), axis, reverse=True)
    scaled = u * (before * behind)[..., None, :].astype(a.dtype)
    batch = tuple(range(a.ndim - 2))
    product = lax.dot_general(scaled, vh, (((a.ndim - 1,), (a.ndim - 2,)), (batch, batch)), precision="highest")
    value = _det_xla(lax, u)[0] * _det_xla(lax, vh)[0]
    return value[..., None, None] * (lax.conj(product) if a.dtype.kind == "c" else product)


def _cofactor_jvp(primals: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
    """With M = Uᴴ dA V and p_ij the product of all s but s_i and s_j, the tangents of the adjugate of diag(s) are
    sum_k p_ik M_kk on the diagonal and -p_ij M_ij elsewhere.
    """
    a = primals[0]
    u, s, vh = svd(a)
    inner = matmul(adjoint(u), matmul(tangents[0], adjoint(vh)))
    pairs = cast_real_like(_pair_products(s), inner)
    spread = matmul(pairs, as_column(diagonal(inner)))
    adjugate = where(on_diagonal(inner), broadcast_to(spread, shape_of(inner)), neg(mul(pairs, inner)))
    moved = matmul(matmul(adjoint(vh), adjugate), adjoint(u))  # of the adjugate, up to det(U Vᴴ)
    value = reshape(mul(det(u), det(vh)), (*shape_of(a)[:-2], 1, 1))
    return [cofactor(a)], [mul(value, transpose_matrices(moved))]


def _pair_products(s: Any) -> Any:
    """Return in row i and column j the product of all numbers but those at i and j; 0 on the diagonal."""
    shape = *shape_of(s), shape_of(s)[-1]
    last = len(shape) - 1
    above = triu(broadcast_to(as_row(s), shape), 1)
    ones = lower_or_upper(full(shape, 1, aval_of(s).dtype), above)
    between = shift_along(cumprod(ones, last), 1.0, last, False)
    before = shift_along(cumprod(s, last - 1), 1.0, last - 1, False)
    behind = shift_along(cumprod(s, last - 1, reverse=True), 1.0, last - 1, True)
    products = triu(mul(mul(as_column(before), between), as_row(behind)), 1)
    return add(products, transpose_matrices(products))


cofactor_p = register(Primitive(
    name="cofactor", abstract=_cofactor_abstract, numpy=ArrayKernel(_cofactor_numpy), xla=_cofactor_xla,
    jvp=_cofactor_jvp, transpose=NOT_LINEAR, batch=stack_rule(lambda: cofactor_p),
    # Nearly singular matrices take ten times as much.
    cost=lambda a: Cost(8 * a.size * a.shape[-1] // 3, 2 * a.nbytes)))


def cofactor(a: Any) -> Any:
    """Return the derivatives of the determinants with respect to each element: signed minors."""
    return bind(cofactor_p, a)[0]


# --- signs and logarithms -----------------------------------------------------------------------------------------

# As in `lu_solve`, derivatives are taken in `a`; the factors are those of `a`, and have no derivatives of their own.


def _slogdet_abstract(a: Aval, factors: Aval, pivots: Aval, permutation: Aval) -> list[Aval]:
    check_matrices("slogdet", a, factors, square=True)
    check_same_dtype("slogdet", a, factors)
    check_permutation("slogdet", pivots)
    check_permutation("slogdet", permutation)
    if factors.shape != a.shape or not pivots.shape == permutation.shape == a.shape[:-1]:
        raise ShapeError(f"slogdet: factors of shape {factors.shape}, pivots of shape {pivots.shape} and permutations "
                         f"of shape {permutation.shape} for matrices of shape {a.shape}; {a.shape} and twice "
                         f"{a.shape[:-1]} are needed")
    return [a.update(shape=a.shape[:-2]), real_of(a, a.shape[:-2])]


def _slogdet_numpy(a: Any, factors: Any, pivots: Any, permutation: Any) -> list[Any]:
    diagonal = np.diagonal(factors, axis1=-2, axis2=-1)
    exchanges = (pivots != np.arange(pivots.shape[-1])).sum(-1)
    magnitude = np.abs(diagonal)
    signs = np.where(magnitude == 0, 0, diagonal / np.where(magnitude == 0, 1, magnitude))
    sign = signs.prod(-1, dtype=a.dtype) * (1 - 2 * (exchanges % 2)).astype(magnitude.dtype)
    return [sign.astype(a.dtype, copy=False), np.log(magnitude).sum(-1)]


def _slogdet_xla(lax: Any, a: Any, factors: Any, pivots: Any, permutation: Any) -> list[Any]:
    middle = _diagonal_xla(lax, factors, 1)
    magnitude = lax.abs(middle)
    axis = (middle.ndim - 1,)
    sign = lax.reduce(lax.sign(middle), np.ones((), a.dtype), lax.mul, axis) * _parity_xla(lax, pivots, a.dtype)
    return [sign, lax.reduce(lax.log(magnitude), np.zeros((), magnitude.dtype), lax.add, axis)]


def _slogdet_jvp(primals: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
    """d log(det a) = trace(a^-1 da): its real part moves the logarithm, and the imaginary part turns the sign."""
    a, factors, _, permutation = primals
    sign, logarithm = bind(slogdet_p, *primals)
    if type(tangents[0]) is Zero:
        return [sign, logarithm], [Zero(aval_of(sign)), Zero(aval_of(logarithm))]
    middle = diagonal(lu_solve(a, factors, permutation, tangents[0]))
    change = reduce_sum(middle, (len(shape_of(middle)) - 1,))
    if not has_complex_dtype(a):
        return [sign, logarithm], [Zero(aval_of(sign)), change]
    turning = complex(scalar_like(0, logarithm), imag(change))
    return [sign, logarithm], [mul(sign, turning), real(change)]


slogdet_p = register(Primitive(
    name="slogdet", abstract=_slogdet_abstract, numpy=_slogdet_numpy, xla=_slogdet_xla, jvp=_slogdet_jvp,
    transpose=NOT_LINEAR, batch=stack_rule(lambda: slogdet_p),
    cost=lambda a, *rest: Cost(3 * a.shape[-1], total_bytes([a, *rest], []))))


def slogdet(a: Any, factors: Any, pivots: Any, permutation: Any) -> tuple[Any, Any]:
    """Return the sign (or direction) of the determinants and the logarithms of their magnitudes, given `lu` of `a`."""
    sign, logarithm = bind(slogdet_p, a, factors, pivots, permutation)
    return sign, logarithm
