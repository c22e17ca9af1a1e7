"""Eigenvalues and singular values: eigh, eig, svd.

Derivatives are those of perturbation theory (M. Giles, "An extended collection of matrix derivative results for forward
and reverse mode algorithmic differentiation", 2008), with divisions by differences of eigenvalues. If two of them
coincide up to rounding, their vectors may be rotated into each other, and have no derivative: the quotient is then set
to 0. Derivatives of quantities that do not depend on the choice of vectors between equal values (the values themselves,
a projector onto all vectors of one value) are correct and finite. Those of a matrix function V f(w) Vᴴ lack the part
that mixes vectors of one value, f'(w) times the perturbation, since neither of the two results contains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import NOT_LINEAR, Cost, Primitive, register, total_bytes
from fxgrad.engine.ops.arithmetic import div, mul, neg, stop_gradient, sub
from fxgrad.engine.ops.comparison import eq
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.factorizations import lu
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.matrices import (
    adjoint,
    as_column,
    as_row,
    cast_real_like,
    check_matrices,
    coincide,
    columns,
    complex_of,
    diagonal,
    each_matrix,
    has_complex_dtype,
    hermitian,
    lapack,
    matmul,
    on_diagonal,
    or_unknown,
    real_of,
    rows,
    safe_reciprocal,
    shape_of,
    stack_rule,
    unknown,
)
from fxgrad.engine.ops.parts import abs, complex, conj, imag, real
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.reductions import argmax
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import broadcast_to, convert, reduce_sum
from fxgrad.engine.ops.triangular import lu_solve
from fxgrad.engine.tracing.tape import aval_of, bind

# --- Hermitian matrices -------------------------------------------------------------------------------------------


def _eigh_abstract(a: Aval, *, lower: bool) -> list[Aval]:
    check_matrices("eigh", a, square=True)
    return [a, real_of(a, a.shape[:-1])]


def _eigh_numpy(a: Any, *, lower: bool) -> list[Any]:
    return or_unknown(lambda a: np.linalg.eigh(a, "L" if lower else "U")[::-1],
                      lambda a: _eigh_abstract(a, lower=lower), a)


def _eigh_xla(lax: Any, a: Any, *, lower: bool) -> list[Any]:
    vectors, values = lax.linalg.eigh(a, lower=lower, symmetrize_input=False)
    return [vectors, values.astype(a.real.dtype)]


def _eigh_jvp(primals: list[Any], tangents: list[Any], *, lower: bool) -> tuple[list[Any], list[Any]]:
    """With M = Vᴴ dA V: dw = diag(M) and dV = V (M / (w_j - w_i))."""
    vectors, values = bind(eigh_p, *primals, lower=lower)
    inner = matmul(adjoint(vectors), matmul(hermitian(tangents[0], lower), vectors))
    gaps = sub(as_row(values), as_column(values))
    quotients = mul(inner, cast_real_like(safe_reciprocal(gaps, coincide(values, gaps)), inner))
    moved = diagonal(inner)
    return [vectors, values], [matmul(vectors, quotients), real(moved) if has_complex_dtype(moved) else moved]


eigh_p = register(Primitive(
    name="eigh", abstract=_eigh_abstract, numpy=_eigh_numpy, xla=_eigh_xla, jvp=_eigh_jvp, transpose=NOT_LINEAR,
    batch=stack_rule(lambda: eigh_p),
    cost=lambda a, **params: Cost(9 * a.size * a.shape[-1], total_bytes([a], _eigh_abstract(a, **params)))))


def eigh(a: Any, lower: bool = True) -> tuple[Any, Any]:
    """Return vectors (as columns) and ascending values with a V = V diag(w); only one triangle of `a` is read."""
    vectors, values = bind(eigh_p, a, lower=lower)
    return vectors, values


# --- other square matrices ----------------------------------------------------------------------------------------


def _eig_abstract(a: Aval, *, left: bool, right: bool) -> list[Aval]:
    check_matrices("eig", a, square=True)
    return [complex_of(a, a.shape[:-1]), *[complex_of(a, a.shape)] * (left + right)]


def _eig_numpy(a: Any, *, left: bool, right: bool) -> list[Any]:
    outputs = _eig_abstract(Aval(a.shape, a.dtype), left=left, right=right)
    if not a.size:
        return [np.zeros(output.shape, output.dtype) for output in outputs]
    # NumPy has no left vectors, and its LAPACK may differ from XLA's, with other signs.
    single = _eig_abstract(Aval(a.shape[-2:], a.dtype), left=left, right=right)
    return each_matrix(lambda each: _one_eig(each, left, right, single), a.shape[:-2], outputs, a)


def _one_eig(a: Any, left: bool, right: bool, outputs: Sequence[Aval]) -> list[Any]:
    if not np.isfinite(a).all():  # LAPACK may not terminate for these
        return [*map(unknown, outputs)]
    size = np.abs(a).max()
    limit = _furthest(a.dtype)
    if not 1 / limit < size < limit and size:
        values, *vectors = _one_eig(a / size, left, right, outputs)
        return [values * size, *vectors]
    *values, left_vectors, right_vectors, info = lapack(a.dtype, "geev")[0](a, compute_vl=left, compute_vr=right)
    if info:
        return [*map(unknown, outputs)]
    dtype = outputs[0].dtype
    vectors = [left_vectors] * left + [right_vectors] * right
    if len(values) == 1:
        return [values[0], *vectors]
    w = np.empty(values[0].shape, dtype)
    w.real, w.imag = values
    return [w, *(_unpacked(each.astype(dtype), values[1]) for each in vectors)]


def _furthest(dtype: Any) -> float:
    """Return the size of elements from which on, and below its inverse, matrices are scaled.

    LAPACK scales them too, but the versions that XLA and SciPy call may not scale their eigenvalues back.
    """
    return float(np.finfo(dtype).eps) ** -1.5


def _unpacked(vectors: Any, imaginary: Any) -> Any:
    """Combine real and imaginary parts: LAPACK stores one vector of a conjugate pair in two columns."""
    first = np.flatnonzero(imaginary > 0)
    parts = vectors[:, first].real, vectors[:, first + 1].real
    vectors[:, first], vectors[:, first + 1] = parts[0] + 1j * parts[1], parts[0] - 1j * parts[1]
    return vectors


def _eig_xla(lax: Any, a: Any, *, left: bool, right: bool) -> list[Any]:
    sizes, limit = lax.abs(a), _furthest(a.dtype)
    size = lax.reduce(sizes, sizes.dtype.type(0), lax.max, (a.ndim - 2, a.ndim - 1))
    one = lax.full_like(size, 1.0)
    extreme = lax.bitwise_or(lax.lt(size, lax.full_like(size, 1 / limit)), lax.gt(size, lax.full_like(size, limit)))
    usual = lax.bitwise_or(lax.bitwise_not(extreme), lax.eq(size, lax.full_like(size, 0.0)))
    scale = lax.convert_element_type(lax.select(usual, one, size), a.dtype)
    scaled = lax.div(a, lax.broadcast_in_dim(scale, a.shape, tuple(range(a.ndim - 2))))
    values, *vectors = lax.linalg.eig(scaled, compute_left_eigenvectors=left, compute_right_eigenvectors=right)
    scale = lax.convert_element_type(scale, values.dtype)
    return [lax.mul(values, lax.broadcast_in_dim(scale, values.shape, tuple(range(a.ndim - 2)))), *vectors]


def _eig_jvp(primals: list[Any], tangents: list[Any], *, left: bool, right: bool) -> tuple[list[Any], list[Any]]:
    values, *vectors = bind(eig_p, *primals, left=left, right=True)
    change = convert(tangents[0], aval_of(values).dtype)
    moved, right_moved = _eigen_tangents(values, vectors[-1], change, right)
    outputs, out_tangents = [values], [moved]
    if left:
        outputs.append(vectors[0])
        out_tangents.append(_eigen_tangents(conj(values), vectors[0], adjoint(change), True)[1])
    if right:
        outputs.append(vectors[-1])
        out_tangents.append(right_moved)
    return outputs, out_tangents


def _eigen_tangents(values: Any, vectors: Any, change: Any, wanted: bool) -> tuple[Any, Any]:
    """Return the tangents of eigenvalues and, if `wanted`, of their vectors: with M = V^-1 dA V, dw = diag(M), and
    dV = V (M / (w_j - w_i) + diag(c)).

    c keeps vectors normalised as LAPACK does: of length 1, their largest element real.
    """
    product = matmul(change, vectors)
    factors, _, order = lu(stop_gradient(vectors))
    inner = lu_solve(vectors, factors, order, product)
    if not wanted:
        return diagonal(inner), None
    gaps = sub(as_row(values), as_column(values))
    turned = matmul(vectors, mul(inner, safe_reciprocal(gaps, coincide(values, gaps))))
    axis = len(shape_of(vectors)) - 2
    if not shape_of(vectors)[-1]:
        return diagonal(inner), turned
    largest = as_row(argmax(abs(vectors), axis))
    there = eq(iota(dtypes.int32, shape_of(vectors), axis), broadcast_to(largest, shape_of(vectors)))
    at_largest = [reduce_sum(where(there, each, 0.0), (axis,)) for each in (turned, vectors)]
    growth = reduce_sum(real(mul(conj(vectors), turned)), (axis,))
    turning = div(imag(at_largest[0]), real(at_largest[1]))
    scale = as_row(complex(growth, turning))
    return diagonal(inner), sub(turned, mul(vectors, scale))


eig_p = register(Primitive(
    name="eig", abstract=_eig_abstract, numpy=_eig_numpy, xla=_eig_xla, jvp=_eig_jvp, transpose=NOT_LINEAR,
    batch=stack_rule(lambda: eig_p),
    cost=lambda a, **params: Cost(25 * a.size * a.shape[-1], total_bytes([a], _eig_abstract(a, **params)))))


def eig(a: Any, left: bool = False, right: bool = True) -> list[Any]:
    """Return the requested of [values, left vectors, right vectors]; all complex, vectors as columns of length 1."""
    return bind(eig_p, a, left=left, right=right)


# --- singular values ----------------------------------------------------------------------------------------------


def _svd_abstract(a: Aval, *, full_matrices: bool, compute_uv: bool) -> list[Aval]:
    check_matrices("svd", a)
    *stack, height, width = a.shape
    size = min(height, width)
    values = real_of(a, (*stack, size))
    if not compute_uv:
        return [values]
    left, right = (height, width) if full_matrices else (size, size)
    return [a.update(shape=(*stack, height, left)), values, a.update(shape=(*stack, right, width))]


def _svd_numpy(a: Any, *, full_matrices: bool, compute_uv: bool) -> list[Any]:
    decompose: Any = np.linalg.svd  # typed for literal options only
    return or_unknown(lambda a: decompose(a, full_matrices) if compute_uv else [decompose(a, compute_uv=False)],
                      lambda a: _svd_abstract(a, full_matrices=full_matrices, compute_uv=compute_uv), a)


def _svd_xla(lax: Any, a: Any, *, full_matrices: bool, compute_uv: bool) -> list[Any]:
    found = lax.linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)
    return list(found) if compute_uv else [found]


def _svd_jvp(primals: list[Any], tangents: list[Any], *, full_matrices: bool,
             compute_uv: bool) -> tuple[list[Any], list[Any]]:
    """With M = Uᴴ dA V: ds = diag(M), and M gives the rotation of U and V within the spaces that they span.

    Their rotation out of these is in dA V and dAᴴ U. Columns that complete them to square matrices rotate the other
    way.
    """
    outputs = bind(svd_p, *primals, full_matrices=full_matrices, compute_uv=True)
    u, s, vh = outputs
    size, change = shape_of(s)[-1], tangents[0]
    left, right = columns(u, 0, size), adjoint(rows(vh, 0, size))
    inner = matmul(adjoint(left), matmul(change, right))
    moved = diagonal(inner)
    ds = real(moved) if has_complex_dtype(moved) else moved
    if not compute_uv:
        return [s], [ds]
    row, column = as_row(s), as_column(s)
    gaps = sub(row, column)
    quotient = cast_real_like(safe_reciprocal(mul(add(row, column), gaps), coincide(s, gaps)), inner)
    inverse = safe_reciprocal(s, coincide(s, s))
    scaled, scaled_other = (mul(inner, cast_real_like(each, inner)) for each in (row, column))
    turn_left = mul(quotient, add(scaled, adjoint(scaled)))
    turn_right = mul(quotient, add(scaled_other, adjoint(scaled_other)))
    if has_complex_dtype(inner):  # the phases of a pair of vectors turn together; all is assigned to the left one
        phase = mul(mul(sub(inner, adjoint(inner)), 0.5), cast_real_like(as_row(inverse), inner))
        turn_left = add(turn_left, where(on_diagonal(phase), phase, 0.0))
    inverse = cast_real_like(as_row(inverse), inner)
    du = _rotation_tangent(u, left, turn_left, mul(matmul(change, right), inverse), full_matrices)
    dv = _rotation_tangent(adjoint(vh), right, turn_right, mul(matmul(adjoint(change), left), inverse), full_matrices)
    return outputs, [du, ds, adjoint(dv)]


def _rotation_tangent(whole: Any, first: Any, within: Any, outward: Any, full_matrices: bool) -> Any:
    """Return the tangent of vectors that rotate `within` the span of `first`, and `outward` from it."""
    moved = matmul(first, within)
    size, count, height = shape_of(first)[-1], shape_of(whole)[-1], shape_of(whole)[-2]
    if height == size:
        return moved
    if not full_matrices:
        return add(moved, sub(outward, matmul(first, matmul(adjoint(first), outward))))
    others = columns(whole, size, count)
    angle = matmul(adjoint(others), outward)
    return concatenate([add(moved, matmul(others, angle)), neg(matmul(first, adjoint(angle)))],
                       len(shape_of(whole)) - 1)


svd_p = register(Primitive(
    name="svd", abstract=_svd_abstract, numpy=_svd_numpy, xla=_svd_xla, jvp=_svd_jvp, transpose=NOT_LINEAR,
    batch=stack_rule(lambda: svd_p),
    cost=lambda a, **params: Cost(12 * a.size * min(a.shape[-2:]), total_bytes([a], _svd_abstract(a, **params)))))


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> list[Any]:
    """Return [U, s, Vᴴ] with U diag(s) Vᴴ = a and descending s, or [s] alone."""
    return bind(svd_p, a, full_matrices=full_matrices and compute_uv, compute_uv=compute_uv)
