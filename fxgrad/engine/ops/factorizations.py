"""Matrix decompositions: Cholesky, LU and QR.

Formulas of the derivatives: M. Giles, "An extended collection of matrix derivative results for forward and reverse
mode algorithmic differentiation", 2008; F. R. de Hoog, R. S. Anderssen and M. A. Lukas, "Differentiation of matrix
functionals using triangular factorization", 2011; I. Murray, "Differentiation of the Cholesky decomposition", 2016.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, ArrayKernel, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.ops.arithmetic import mul, sub
from fxgrad.engine.ops.comparison import lt
from fxgrad.engine.ops.families import check_kind
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.matrices import (
    adjoint,
    check_matrices,
    columns,
    conj_if_complex,
    diagonal,
    each_matrix,
    eye,
    failure,
    hermitian,
    lapack,
    matmul,
    on_diagonal,
    permute_rows,
    rows,
    shape_of,
    stack_rule,
    transpose_matrices,
    tril,
    triu,
)
from fxgrad.engine.ops.ordering import argsort
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import broadcast_to, full, reshape
from fxgrad.engine.ops.triangular import triangular_solve
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ArgumentError, ShapeError

COVERED_BY = {
    "geqrf": "qr, and householder_product for the reflectors",
    "geqp3": "qr with pivoting",
    "householder_product": "a function of triangular_solve and dot_general, with all their derivatives",
    "ormqr": "a function of triangular_solve and dot_general, with all their derivatives",
    "symmetric_product": "dot_general",
    "cholesky_update": "qr of the matrix with one more row",
}

# --- Cholesky -----------------------------------------------------------------------------------------------------


def _cholesky_abstract(a: Aval) -> list[Aval]:
    check_matrices("cholesky", a, square=True)
    return [a]


def _cholesky_numpy(a: Any) -> Any:
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        raise failure("cholesky", f"a matrix of shape {a.shape} is not positive definite. Is it symmetric? A small "
                                  "multiple of the identity added to it often helps.") from None


def _cholesky_jvp(primals: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
    """Only the lower triangle of A is read, so only that of dA counts."""
    factor = cholesky(primals[0])
    return [factor], [_factor_tangent(factor, tangents[0])]


_UNDIVIDED = 128
"""Matrices of fewer rows are not divided into blocks, which would not pay."""


def _factor_tangent(factor: Any, moved: Any) -> Any:
    """Return the tangent of L for that of A, by four columns of blocks (Murray, 2016), from left to right.

    A11 = L11 L11^H and A21 = L21 L11^H give the tangents of one column; A22 - L21 L21^H has the factor L22, and its
    tangent is the rest of dA. All but the blocks on the diagonal take a quarter of the work of one system with L.
    """
    size, axis = shape_of(factor)[-1], len(shape_of(factor)) - 1
    if has_symbolic_dim(size) or size < _UNDIVIDED:
        return _undivided_tangent(factor, moved)
    block, found = -(-size // 4), []
    for start in range(0, size, block):
        stop = min(start + block, size)
        on, below = (rows(columns(factor, start, stop), *limits) for limits in ((start, stop), (stop, size)))
        column = [_undivided_tangent(on, rows(columns(moved, 0, stop - start), 0, stop - start))]
        if stop < size:
            given, moved = columns(moved, 0, block), columns(moved, block, size - start)
            known = sub(rows(given, block, size - start), matmul(below, adjoint(column[0])))
            column.append(triangular_solve(on, known, lower=True, transpose_a=True, conjugate_a=True))
            taken = matmul(column[1], adjoint(below))
            moved = sub(rows(moved, block, size - start), add(taken, adjoint(taken)))
        found.append(_with_zero_rows(start, concatenate(column, axis - 1)))
    return concatenate(found, axis)


def _with_zero_rows(count: int, x: Any) -> Any:
    """Prepend rows of zeros to the matrices."""
    shape = shape_of(x)
    return x if not count else concatenate(
        [full((*shape[:-2], count, shape[-1]), 0, aval_of(x).dtype), x], len(shape) - 2)


def _undivided_tangent(factor: Any, moved: Any) -> Any:
    """dL = L halved(L^-1 dA L^-H): Giles, 3.1."""
    half = triangular_solve(factor, hermitian(moved), left_side=True, lower=True)
    whole = triangular_solve(factor, half, lower=True, transpose_a=True, conjugate_a=True)
    halves = where(on_diagonal(whole), 0.5, full(shape_of(whole), 1, aval_of(whole).dtype))
    return matmul(factor, mul(tril(whole), halves))


cholesky_p = register(Primitive(
    name="cholesky", abstract=_cholesky_abstract, numpy=ArrayKernel(_cholesky_numpy),
    xla=lambda lax, a: [lax.linalg.cholesky(a, symmetrize_input=False)],
    jvp=_cholesky_jvp, transpose=NOT_LINEAR, batch=stack_rule(lambda: cholesky_p),
    cost=lambda a: Cost(a.size * a.shape[-1] // 3, total_bytes([a], [a]))))


def cholesky(a: Any) -> Any:
    """Return the lower triangular L with L Lᴴ = a and a positive diagonal; only the lower triangle of `a` is read.

    If there is none, NumPy raises `numpy.linalg.LinAlgError`; under XLA the result is then NaN.
    """
    return bind(cholesky_p, a)[0]


# --- LU -----------------------------------------------------------------------------------------------------------


def _lu_abstract(a: Aval) -> list[Aval]:
    check_matrices("lu", a)
    *stack, height, width = a.shape
    return [a, Aval((*stack, min(height, width)), dtypes.int32), Aval((*stack, height), dtypes.int32)]


def _lu_numpy(a: Any) -> list[Any]:
    if a.ndim == 2 and a.size:
        return _one_lu(a)
    outputs = _lu_abstract(Aval(a.shape, a.dtype))
    if not a.size:
        return [a.copy(), np.zeros(outputs[1].shape, np.int32),
                np.broadcast_to(np.arange(a.shape[-2], dtype=np.int32), outputs[2].shape)]
    return each_matrix(_one_lu, a.shape[:-2], outputs, a)


def _one_lu(a: Any) -> list[Any]:
    factors, pivots, _ = lapack(a.dtype, "getrf")[0](a)
    return [factors, pivots.astype(np.int32), _permutation(pivots, len(a))]


def _permutation(pivots: Any, size: int) -> Any:
    """Return the order of rows after the exchanges `pivots`."""
    order = [*range(size)]
    for row, other in enumerate(pivots.tolist()):
        order[row], order[other] = order[other], order[row]
    return np.array(order, np.int32)


def _lu_jvp(primals: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
    """With H = L^-1 P dA and X = H U^-1, of the leading squares: dL = L tril(X, -1) and dU = H - tril(X, -1) U.

    Then the rest of both. dU is triu(X) U too, which does not show that its entries depend on few columns of A.
    """
    factors, pivots, permutation = bind(lu_p, primals[0])
    height, width = shape_of(factors)[-2:]
    size = min(height, width)
    moved = permute_rows(tangents[0], permutation)
    square = rows(columns(factors, 0, size), 0, size)
    half = triangular_solve(square, rows(moved, 0, size), left_side=True, lower=True, unit_diagonal=True)
    whole = triangular_solve(square, columns(half, 0, size))
    low = tril(whole, -1)
    upper = triu(sub(columns(half, 0, size), matmul(low, triu(square))))
    result = add(add(matmul(tril(square, -1), low), low), upper)
    if width > size:
        right = sub(columns(half, size, width), matmul(low, columns(factors, size, width)))
        result = concatenate([result, right], len(shape_of(factors)) - 1)
    if height > size:
        below = triangular_solve(square, rows(moved, size, height))
        below = sub(below, matmul(rows(factors, size, height), triu(whole)))
        result = concatenate([result, below], len(shape_of(factors)) - 2)
    return [factors, pivots, permutation], [result, Zero(aval_of(pivots)), Zero(aval_of(permutation))]


lu_p = register(Primitive(
    name="lu", abstract=_lu_abstract, numpy=_lu_numpy, xla=lambda lax, a: list(lax.linalg.lu(a)),
    jvp=_lu_jvp, transpose=NOT_LINEAR, batch=stack_rule(lambda: lu_p),
    cost=lambda a: Cost(2 * a.size * min(a.shape[-2:]) // 3, total_bytes([a], _lu_abstract(a)))))


def lu(a: Any) -> list[Any]:
    """Return the LU decomposition with row exchanges: [L below the diagonal and U above, exchanges, order of rows]."""
    return bind(lu_p, a)


def _pivots_abstract(pivots: Aval, *, permutation_size: int) -> list[Aval]:
    check_kind("lu_pivots_to_permutation", "integer", pivots)
    if not pivots.shape or pivots.shape[-1] > permutation_size:
        raise ShapeError(f"lu_pivots_to_permutation: pivots of shape {pivots.shape} for permutations of "
                         f"{permutation_size} elements; at least one axis and at most so many pivots are needed")
    return [Aval((*pivots.shape[:-1], permutation_size), dtypes.int32)]


def _pivots_numpy(pivots: Any, *, permutation_size: int) -> Any:
    outputs = _pivots_abstract(Aval(pivots.shape, pivots.dtype), permutation_size=permutation_size)
    return each_matrix(lambda each: [_permutation(each, permutation_size)], pivots.shape[:-1], outputs, pivots)[0]


lu_pivots_to_permutation_p = register(Primitive(
    name="lu_pivots_to_permutation", abstract=_pivots_abstract, numpy=ArrayKernel(_pivots_numpy),
    xla=lambda lax, pivots, *, permutation_size: [
        lax.linalg.lu_pivots_to_permutation(pivots.astype(np.int32), permutation_size)],
    jvp=NO_TANGENT, transpose=NOT_LINEAR, batch=stack_rule(lambda: lu_pivots_to_permutation_p),
    cost=lambda pivots, **params: Cost(0, total_bytes([pivots], _pivots_abstract(pivots, **params)))))


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Any:
    """Return the order of `permutation_size` rows after exchanging row i with row `pivots[i]`, one by one."""
    return bind(lu_pivots_to_permutation_p, pivots, permutation_size=permutation_size)[0]


# --- QR -----------------------------------------------------------------------------------------------------------


def _qr_abstract(a: Aval, *, full_matrices: bool, pivoting: bool) -> list[Aval]:
    check_matrices("qr", a)
    *stack, height, width = a.shape
    size = height if full_matrices else min(height, width)
    outputs = [a.update(shape=(*stack, height, size)), a.update(shape=(*stack, size, width))]
    return [*outputs, Aval((*stack, width), dtypes.int32)] if pivoting else outputs


def _qr_numpy(a: Any, *, full_matrices: bool, pivoting: bool) -> list[Any]:
    if not pivoting:
        return list(np.linalg.qr(a, "complete" if full_matrices else "reduced"))
    outputs = _qr_abstract(Aval(a.shape, a.dtype), full_matrices=full_matrices, pivoting=True)
    height, width = a.shape[-2:]

    def kernel(a: Any) -> list[Any]:
        if not a.size:
            return [np.eye(height, outputs[0].shape[-1], dtype=a.dtype), np.zeros(outputs[1].shape[-2:], a.dtype),
                    np.arange(width, dtype=np.int32)]
        geqp3, orgqr = lapack(a.dtype, "geqp3", "ungqr" if a.dtype.kind == "c" else "orgqr")
        packed, order, scales, *_ = geqp3(a)
        reflectors = np.zeros(outputs[0].shape[-2:], a.dtype)
        reflectors[:, :len(scales)] = packed[:, :len(scales)]
        q = orgqr(reflectors, scales)[0]
        return [q, np.triu(packed[:q.shape[1]]), (order - 1).astype(np.int32)]

    return each_matrix(kernel, a.shape[:-2], outputs, a)


def _qr_jvp(primals: list[Any], tangents: list[Any], *, full_matrices: bool,
            pivoting: bool) -> tuple[list[Any], list[Any]]:
    outputs = bind(qr_p, *primals, full_matrices=full_matrices, pivoting=pivoting)
    q, r, *order = outputs
    x, dx = primals[0], tangents[0]
    height, width = shape_of(x)[-2:]
    if order:
        x, dx = (transpose_matrices(permute_rows(transpose_matrices(each), order[0])) for each in (x, dx))
    size = min(height, width)
    first = columns(q, 0, size)
    dq, dr = _square_qr(first, rows(columns(r, 0, size), 0, size), columns(dx, 0, size))
    last = len(shape_of(x)) - 1
    if width > height:
        right = add(matmul(adjoint(dq), columns(x, size, width)), matmul(adjoint(q), columns(dx, size, width)))
        dr = concatenate([dr, right], last)
    if full_matrices and height > width:
        dq = concatenate([dq, _rest_of_q(first, dq)], last)
        dr = concatenate([dr, mul(rows(r, width, height), 0.0)], last - 1)
    return outputs, [dq, dr, *(Zero(aval_of(each)) for each in order)]


def _square_qr(q: Any, r: Any, dx: Any) -> tuple[Any, Any]:
    """With Y = dX R^-1 and W = Qᴴ Y: dR = Qᴴ dX - O R and dQ = Y - Q (W - O), O the skew part of Qᴴ dQ.

    dQ is Q O for a square Q. dR is (W - O) R too, which does not show that its entries depend on few columns of X.
    """
    scaled = triangular_solve(r, dx)
    inner = matmul(adjoint(q), scaled)
    low = tril(inner, -1)
    skew = sub(low, adjoint(low))
    if is_complex := dtypes.is_complex(aval_of(q).dtype):  # the diagonal of R stays real
        skew = add(skew, _imaginary_diagonal(inner))
    changed = triu(sub(matmul(adjoint(q), dx), matmul(skew, r)))
    if is_complex:
        changed = sub(changed, _imaginary_diagonal(changed))
    height, width = shape_of(q)[-2:]
    return matmul(q, skew) if height == width else sub(scaled, matmul(q, sub(inner, skew))), changed


def _imaginary_diagonal(x: Any) -> Any:
    return where(on_diagonal(x), mul(sub(x, conj_if_complex(x)), 0.5), 0.0)


def _rest_of_q(first: Any, moved: Any) -> Any:
    """Return the tangent of the columns that complete Q.

    Q is a product of reflectors, so Q - I = V T Vᴴ, where V is lower triangular in its first rows: the first columns
    determine the others. With B the first columns of Q - I, D its leading square, C the rows below, and Z = C D^-1, the
    other columns of Q - I are B Zᴴ.
    """
    height, width = shape_of(first)[-2:]
    less = sub(first, broadcast_to(eye(height, width, aval_of(first).dtype), shape_of(first)))
    square = rows(less, 0, width)
    factors, _, permutation = lu(square)

    def divided(x: Any) -> Any:  # x square^-1
        y = triangular_solve(factors, x)
        y = triangular_solve(factors, y, lower=True, unit_diagonal=True)
        return transpose_matrices(permute_rows(transpose_matrices(y),
                                               argsort(permutation, len(shape_of(permutation)) - 1)))

    below = divided(rows(less, width, height))
    change = divided(sub(rows(moved, width, height), matmul(below, rows(moved, 0, width))))
    return add(matmul(moved, adjoint(below)), matmul(less, adjoint(change)))


qr_p = register(Primitive(
    name="qr", abstract=_qr_abstract, numpy=_qr_numpy,
    xla=lambda lax, a, *, full_matrices, pivoting: list(
        lax.linalg.qr(a, full_matrices=full_matrices, pivoting=pivoting)),
    jvp=_qr_jvp, transpose=NOT_LINEAR, batch=stack_rule(lambda: qr_p),
    cost=lambda a, **params: Cost(4 * a.size * min(a.shape[-2:]), total_bytes([a], _qr_abstract(a, **params)))))


def qr(a: Any, full_matrices: bool = True, pivoting: bool = False) -> list[Any]:
    """Return [Q, R] with Q R = a, Qᴴ Q = 1 and R upper triangular; with `pivoting` Q R = a[:, order], and order."""
    return bind(qr_p, a, full_matrices=full_matrices, pivoting=pivoting)


# --- products of reflectors ---------------------------------------------------------------------------------------


def _reflectors(name: str, a: Any, taus: Any) -> tuple[Any, Any]:
    """Return V, and T Vᴴ, with H1 ... Hk = 1 - V T Vᴴ, where Hi = 1 - taus[i] v v^H and column i of `a` holds v."""
    height, width = shape_of(a)[-2:]
    count = shape_of(taus)[-1]
    if count > width or width > height or shape_of(taus)[:-1] != shape_of(a)[:-2]:
        raise ShapeError(f"{name}: reflectors in matrices of shape {shape_of(a)} and factors of shape "
                         f"{shape_of(taus)}; at most as many factors as columns, no more columns than rows and equal "
                         "axes in front are needed")
    below = tril(columns(a, 0, count), -1)
    vectors = add(below, broadcast_to(eye(height, count, aval_of(a).dtype), shape_of(below)))
    scale = reshape(taus, (*shape_of(taus), 1))
    # T = (1 + D S)^-1 D with D = diag(taus) and S the part of Vᴴ V above its diagonal.
    mixed = mul(scale, triu(matmul(adjoint(vectors), vectors), 1))
    right = mul(scale, adjoint(vectors))
    return vectors, triangular_solve(mixed, right, left_side=True, unit_diagonal=True)


def householder_product(a: Any, taus: Any) -> Any:
    """Return the first columns of H1 H2 ... Hk, where Hi = 1 - taus[i] v vᴴ and v is below the diagonal in column i."""
    check_matrices("householder_product", aval_of(a))
    vectors, rest = _reflectors("householder_product", a, taus)
    width = shape_of(a)[-1]
    return sub(broadcast_to(eye(shape_of(a)[-2], width, aval_of(a).dtype), shape_of(a)),
               matmul(vectors, columns(rest, 0, width)))


def ormqr(a: Any, taus: Any, c: Any, left: bool = True, transpose: bool = False) -> Any:
    """Return Q c, or c Q, or the same with Qᴴ if `transpose`, where Q = H1 ... Hk is that of `householder_product`."""
    check_matrices("ormqr", aval_of(a), aval_of(c))
    vectors, rest = _reflectors("ormqr", a, taus)
    if shape_of(c)[-2 if left else -1] != shape_of(a)[-2]:
        raise ArgumentError(f"ormqr: reflectors of {shape_of(a)[-2]} elements do not fit a matrix of shape "
                            f"{shape_of(c)}")
    before, behind = (adjoint(rest), adjoint(vectors)) if transpose else (vectors, rest)
    return sub(c, matmul(before, matmul(behind, c)) if left else matmul(matmul(c, before), behind))


def cholesky_update(r: Any, w: Any) -> Any:
    """Return the upper triangular S with Sᵀ S = rᵀ r + w wᵀ and a positive diagonal, for an upper triangular `r`."""
    row = reshape(w, (*shape_of(w)[:-1], 1, shape_of(w)[-1]))
    factor = qr(concatenate([triu(r), row], len(shape_of(r)) - 2), full_matrices=False)[1]
    middle = diagonal(factor)
    signs = where(lt(middle, 0.0), full(shape_of(middle), -1, aval_of(r).dtype), 1.0)
    return mul(factor, reshape(signs, (*shape_of(factor)[:-1], 1)))
