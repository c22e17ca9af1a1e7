"""The pseudo-inverse of matrices, by singular values."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import NOT_LINEAR, ArrayKernel, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.ops.arithmetic import mul, neg, sub
from fxgrad.engine.ops.comparison import eq, gt, ne
from fxgrad.engine.ops.eigen import svd, svd_p
from fxgrad.engine.ops.matrices import (
    adjoint,
    as_column,
    as_row,
    cast_real_like,
    check_matrices,
    matmul,
    real_of,
    safe_reciprocal,
    shape_of,
    stack_rule,
)
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to, reshape
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import DTypeError, ShapeError


def _abstract(a: Aval, rtol: Aval, *, truncates: bool) -> list[Aval]:
    check_matrices("pinv", a)
    if rtol.dtype != real_of(a, ()).dtype:
        raise DTypeError(f"pinv: rtol of dtype {rtol.dtype.name} for matrices of dtype {a.dtype.name}; "
                         f"{real_of(a, ()).dtype.name} is needed")
    if rtol.shape != a.shape[:-2]:
        raise ShapeError(f"pinv: rtol of shape {rtol.shape} for matrices of shape {a.shape}; {a.shape[:-2]} is needed")
    return [a.update(shape=(*a.shape[:-2], a.shape[-1], a.shape[-2]))]


def _numpy(a: Any, rtol: Any, *, truncates: bool) -> Any:
    if not a.size:
        return np.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    u, s, vh = svd_p.numpy(a, full_matrices=False, compute_uv=True)
    large = s > np.asarray(rtol)[..., None] * s[..., :1]
    inverse = np.where(large, 1 / np.where(large, s, 1), 0)
    return np.swapaxes(vh, -2, -1).conj() * inverse[..., None, :] @ np.swapaxes(u, -2, -1).conj()


def _xla(lax: Any, a: Any, rtol: Any, *, truncates: bool) -> list[Any]:
    u, s, vh = lax.linalg.svd(a, full_matrices=False)
    large = s > rtol[..., None] * s[..., :1]
    inverse = lax.select(large, 1 / s, lax.full_like(s, 0)).astype(a.dtype)
    last, batch = a.ndim - 1, tuple(range(a.ndim - 2))
    product = lax.dot_general(u * inverse[..., None, :], vh, (((last,), (last - 1,)), (batch, batch)),
                              precision="highest")
    return [lax.conj(product.mT) if a.dtype.kind == "c" else product.mT]


def _jvp(primals: list[Any], tangents: list[Any], *, truncates: bool) -> tuple[list[Any], list[Any]]:
    """dP = -P dA P + P Pᴴ dAᴴ (1 - A P) + (1 - P A) dAᴴ Pᴴ P, at matrices around which the rank does not change.

    G. H. Golub and V. Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems whose
    variables separate", SIAM Journal on Numerical Analysis 10, 1973. There is no division by differences of singular
    values, so it holds where some are equal.
    """
    a, change = primals[0], tangents[0]
    inverse = bind(pinv_p, *primals, truncates=truncates)[0]
    if type(change) is Zero:
        return [inverse], [Zero(aval_of(inverse))]
    turned = adjoint(change)
    height, width = shape_of(a)[-2:]
    if height >= width:  # the order of the products that has the smaller results
        right = matmul(matmul(inverse, adjoint(inverse)), turned)
        left = matmul(matmul(turned, adjoint(inverse)), inverse)
        moved = neg(matmul(matmul(inverse, change), inverse))
        right = sub(right, matmul(matmul(right, a), inverse))
        left = sub(left, matmul(matmul(inverse, a), left))
    else:
        right = matmul(inverse, matmul(adjoint(inverse), turned))
        left = matmul(turned, matmul(adjoint(inverse), inverse))
        moved = neg(matmul(inverse, matmul(change, inverse)))
        right = sub(right, matmul(right, matmul(a, inverse)))
        left = sub(left, matmul(inverse, matmul(a, left)))
    moved = add(moved, add(right, left))
    return [inverse], [add(moved, _mixing(a, primals[1], change)) if truncates else moved]


def _mixing(a: Any, rtol: Any, change: Any) -> Any:
    """Return the terms that formula lacks if singular values that are not zero count as zero.

    With M = Uᴴ dA V, a vector of a kept value r and one of a dropped value q rotate into each other, which gives V N Uᴴ
    with N_ij = q (r M_ij + q conj(M_ji)) / (r² (r² - q²)) for such pairs, and 0 for others.
    """
    u, s, vh = svd(a, full_matrices=False)
    inner = matmul(adjoint(u), matmul(change, adjoint(vh)))
    size = shape_of(s)[-1]
    if not size:
        return matmul(adjoint(vh), adjoint(u))
    first = slice_in_dim(s, 0, 1, len(shape_of(s)) - 1)
    counts = gt(s, mul(reshape(rtol, (*shape_of(rtol), 1)), first))
    shape = shape_of(inner)
    row, column = (broadcast_to(as_form(s), shape) for as_form in (as_row, as_column))
    large, small = where(gt(row, column), row, column), where(gt(row, column), column, row)
    is_pair = ne(broadcast_to(as_row(counts), shape), broadcast_to(as_column(counts), shape))
    factor = safe_reciprocal(mul(mul(large, large), sub(mul(large, large), mul(small, small))), eq(is_pair, False))
    weights = [cast_real_like(mul(mul(small, each), factor), inner) for each in (large, small)]
    mixed = add(mul(weights[0], inner), mul(weights[1], adjoint(inner)))
    return matmul(adjoint(vh), matmul(mixed, adjoint(u)))


pinv_p = register(Primitive(
    name="pinv", abstract=_abstract, numpy=ArrayKernel(_numpy), xla=_xla, jvp=_jvp, transpose=NOT_LINEAR,
    batch=stack_rule(lambda: pinv_p),
    cost=lambda a, rtol, **params: Cost(14 * a.size * min(a.shape[-2:]), total_bytes([a, rtol], [a]))))


def pinv(a: Any, rtol: Any, truncates: bool = True) -> Any:
    """Return the pseudo-inverses; singular values up to `rtol` times the largest one count as zero.

    Unless it `truncates`, all of these are rounded zeros, which makes derivatives cheaper.
    """
    return bind(pinv_p, a, rtol, truncates=truncates)[0]
