"""Linear systems with factored matrices: triangular ones, those of an LU decomposition, tridiagonal ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import ArrayKernel, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.ops.arithmetic import mul, neg, sub
from fxgrad.engine.ops.families import check_same_dtype
from fxgrad.engine.ops.joining import all_weak
from fxgrad.engine.ops.matrices import (
    batch_first,
    blas,
    check_matrices,
    conj_if_complex,
    each_matrix,
    failure,
    lapack,
    matmul,
    shape_of,
    stack_rule,
    transpose_matrices,
    tril,
    triu,
)
from fxgrad.engine.ops.pointwise import add, scalar_like
from fxgrad.engine.ops.shaping import pad
from fxgrad.engine.ops.structural import instantiate_zeros, move_axis, reshape
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import DTypeError, ShapeError

# --- one triangular matrix ----------------------------------------------------------------------------------------


def _check_system(name: str, a: Aval, b: Aval, left_side: bool = True) -> None:
    check_matrices(name, a, square=True)
    check_matrices(name, b)
    check_same_dtype(name, a, b)
    if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2 if left_side else -1]:
        where = "rows" if left_side else "columns"
        raise ShapeError(f"{name}: a matrix of shape {a.shape} and a right side of shape {b.shape}; the right side "
                         f"needs {a.shape[-1]} {where}, and both the same axes in front")


def _triangular_abstract(a: Aval, b: Aval, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool,
                         unit_diagonal: bool) -> list[Aval]:
    _check_system("triangular_solve", a, b, left_side)
    return [Aval(b.shape, b.dtype, all_weak((a, b)))]


def solved(a: Any, b: Any, *, left_side: bool = True, lower: bool, transpose_a: bool = False,
           conjugate_a: bool = False, unit_diagonal: bool = False) -> Any:
    """Solve one triangular system, by BLAS; zeros on the diagonal give infinities and NaNs, as under XLA."""
    if not b.size:
        return np.zeros(b.shape, b.dtype)
    if conjugate_a and a.dtype.kind == "c" and not transpose_a:
        a, conjugate_a = a.conj(), False
    operation = (2 if conjugate_a else 1) if transpose_a else 0
    if operation < 2 and a.flags.c_contiguous:
        a, lower, operation = a.T, not lower, 1 - operation  # BLAS needs column-major order: saves a copy
    return blas(b.dtype, "trsm")(1.0, a, b, 0 if left_side else 1, lower, operation, unit_diagonal)


def _triangular_numpy(a: Any, b: Any, **params: Any) -> Any:
    return each_matrix(lambda x, y: [solved(x, y, **params)], a.shape[:-2], [b], a, b)[0]


def _triangular_xla(lax: Any, a: Any, b: Any, **params: Any) -> list[Any]:
    return [lax.linalg.triangular_solve(a, b, **params)]


def _triangular_jvp(primals: list[Any], tangents: list[Any], *, left_side: bool, lower: bool, transpose_a: bool,
                    conjugate_a: bool, unit_diagonal: bool) -> tuple[list[Any], list[Any]]:
    """op(a) x = b, so op(a) dx = db - op(da) x, where da is zero outside of the triangle."""
    (a, b), (da, db) = primals, tangents
    params = {"left_side": left_side, "lower": lower, "transpose_a": transpose_a, "conjugate_a": conjugate_a,
              "unit_diagonal": unit_diagonal}
    x, = bind(triangular_solve_p, a, b, **params)
    right = db
    if type(da) is not Zero:
        moved = (tril if lower else triu)(da, (-1 if lower else 1) if unit_diagonal else 0)
        moved = conj_if_complex(moved) if conjugate_a else moved
        moved = transpose_matrices(moved) if transpose_a else moved
        through_a = matmul(moved, x) if left_side else matmul(x, moved)
        right = neg(through_a) if type(db) is Zero else sub(db, through_a)
    return [x], [Zero(aval_of(x))] if type(right) is Zero else bind(triangular_solve_p, a, right, **params)


def _triangular_transpose(cotangents: list[Any], inputs: list[Any], *, transpose_a: bool, **params: Any) -> list[Any]:
    return [None, bind(triangular_solve_p, _require_known(inputs[0]), cotangents[0],
                       transpose_a=not transpose_a, **params)[0]]


def _require_known(matrix: Any) -> Any:
    """Return `matrix` itself; raise `LinearityError` if it is a linear input."""
    aval_of(matrix)
    return matrix


def _triangular_batch(size: int, values: list[Any], axes: list[int | None], *, left_side: bool,
                      **params: Any) -> tuple[list[Any], list[int]]:
    """Put right sides for one and the same matrix side by side."""
    (a, b), (a_at, b_at) = values, axes
    if a_at is not None or b_at is None:
        return bind(triangular_solve_p, *batch_first(size, values, axes), left_side=left_side, **params), [0]
    merged, place = _side_by_side(b, b_at, left_side)
    x, = bind(triangular_solve_p, a, merged, left_side=left_side, **params)
    return [reshape(x, shape_of(move_axis(b, b_at, place)))], [place]


def _side_by_side(b: Any, at: int, left_side: bool) -> tuple[Any, int]:
    """Return the right sides along the batch axis `at` as columns (or rows) of one, and the place of that axis."""
    place = len(shape_of(b)) - (2 if left_side else 3)
    shape = shape_of(move_axis(b, at, place))
    merged = (*shape[:-2], shape[-2] * shape[-1]) if left_side else (*shape[:-3], shape[-3] * shape[-2], shape[-1])
    return reshape(move_axis(b, at, place), merged), place


def _system_cost(a: Aval, *rest: Aval, **_: Any) -> Cost:
    b = rest[-1]
    return Cost(b.size * a.shape[-1], total_bytes([a, *rest], [b]))


triangular_solve_p = register(Primitive(
    name="triangular_solve", abstract=_triangular_abstract, numpy=ArrayKernel(_triangular_numpy),
    xla=_triangular_xla, jvp=_triangular_jvp, transpose=_triangular_transpose, batch=_triangular_batch,
    cost=_system_cost))


def triangular_solve(a: Any, b: Any, *, left_side: bool = False, lower: bool = False, transpose_a: bool = False,
                     conjugate_a: bool = False, unit_diagonal: bool = False) -> Any:
    """Return x with op(a) x = b, or x op(a) = b unless `left_side`; only one triangle of `a` is read.

    `op` transposes and conjugates; with `unit_diagonal` the diagonal counts as ones.
    """
    return bind(triangular_solve_p, a, b, left_side=left_side, lower=lower, transpose_a=transpose_a,
                conjugate_a=conjugate_a and aval_of(a).dtype.kind == "c", unit_diagonal=unit_diagonal)[0]


# --- an LU decomposition ------------------------------------------------------------------------------------------

# `a` is an operand for the derivatives: x = a^-1 b depends on the factors only through it, and dx = a^-1 (db - da x)
# needs no derivative of the factors. They must be those of `a`, without derivatives: `lu(stop_gradient(a))`.


def _lu_abstract(a: Aval, factors: Aval, permutation: Aval, b: Aval, *, transpose_a: bool) -> list[Aval]:
    _check_system("lu_solve", a, b)
    check_same_dtype("lu_solve", a, factors)
    check_permutation("lu_solve", permutation)
    if factors.shape != a.shape or permutation.shape != a.shape[:-1]:
        raise ShapeError(f"lu_solve: factors of shape {factors.shape} and permutations of shape {permutation.shape} "
                         f"for matrices of shape {a.shape}; {a.shape} and {a.shape[:-1]} are needed")
    return [Aval(b.shape, b.dtype, all_weak((a, factors, b)))]


def check_permutation(name: str, permutation: Aval) -> None:
    """Raise `DTypeError` unless positions are given as int32."""
    if permutation.dtype != np.int32:
        raise DTypeError(f"{name}: positions of dtype {permutation.dtype.name}; int32 is needed. "
                         "Convert first: x.astype('int32')")


def _lu_numpy(a: Any, factors: Any, permutation: Any, b: Any, *, transpose_a: bool) -> Any:
    if b.size and not factors.diagonal(0, -2, -1).all():
        raise failure("solve", f"a matrix of shape {a.shape} is singular, so the system has no unique solution. Use "
                               "lstsq, or pinv, for the least-squares solution.")

    def kernel(factors: Any, permutation: Any, b: Any) -> list[Any]:
        if not transpose_a:
            y = solved(factors, b.take(permutation, 0), lower=True, unit_diagonal=True)
            return [solved(factors, y, lower=False)]
        y = solved(factors, b, lower=False, transpose_a=True)
        x = solved(factors, y, lower=True, unit_diagonal=True, transpose_a=True)
        return [x[np.argsort(permutation, kind="stable")]]

    return each_matrix(kernel, a.shape[:-2], [b], factors, permutation, b)[0]


def _lu_xla(lax: Any, a: Any, factors: Any, permutation: Any, b: Any, *, transpose_a: bool) -> list[Any]:
    solve = lax.linalg.triangular_solve
    if not transpose_a:
        y = solve(factors, _rows_xla(lax, b, permutation), left_side=True, lower=True, unit_diagonal=True)
        return [solve(factors, y, left_side=True)]
    y = solve(factors, b, left_side=True, transpose_a=True)
    x = solve(factors, y, left_side=True, lower=True, unit_diagonal=True, transpose_a=True)
    places = lax.broadcasted_iota(permutation.dtype, permutation.shape, permutation.ndim - 1)
    return [_rows_xla(lax, x, lax.sort_key_val(permutation, places)[1])]


def _rows_xla(lax: Any, x: Any, permutation: Any) -> Any:
    rank = x.ndim - 2
    batch = tuple(range(rank))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(rank + 1,), collapsed_slice_dims=(rank,), start_index_map=(rank,), operand_batching_dims=batch,
        start_indices_batching_dims=batch)
    return lax.gather(x, permutation[..., None], numbers, (*(1,) * (rank + 1), x.shape[-1]),
                      mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS, unique_indices=True)


def _lu_jvp(primals: list[Any], tangents: list[Any], *, transpose_a: bool) -> tuple[list[Any], list[Any]]:
    (a, factors, permutation, b), (da, _, _, db) = primals, tangents
    x = lu_solve(a, factors, permutation, b, transpose_a)
    right = db
    if type(da) is not Zero:
        through_a = matmul(transpose_matrices(da) if transpose_a else da, x)
        right = neg(through_a) if type(db) is Zero else sub(db, through_a)
    moved = Zero(aval_of(x)) if type(right) is Zero else lu_solve(a, factors, permutation, right, transpose_a)
    return [x], [moved]


def _lu_transpose(cotangents: list[Any], inputs: list[Any], *, transpose_a: bool) -> list[Any]:
    a, factors, permutation, _ = inputs
    _require_known(factors)
    return [None, None, None, lu_solve(_require_known(a), factors, permutation, cotangents[0], not transpose_a)]


def _lu_batch(size: int, values: list[Any], axes: list[int | None], *,
              transpose_a: bool) -> tuple[list[Any], list[int]]:
    *matrix, b = values
    *matrix_axes, at = axes
    if at is None or any(axis is not None for axis in matrix_axes):
        return bind(lu_solve_p, *batch_first(size, values, axes), transpose_a=transpose_a), [0]
    merged, place = _side_by_side(b, at, True)
    x, = bind(lu_solve_p, *matrix, merged, transpose_a=transpose_a)
    return [reshape(x, shape_of(move_axis(b, at, place)))], [place]


def _lu_cost(a: Aval, factors: Aval, permutation: Aval, b: Aval, **_: Any) -> Cost:
    return Cost(2 * b.size * a.shape[-1], total_bytes([factors, permutation, b], [b]))


lu_solve_p = register(Primitive(
    name="lu_solve", abstract=_lu_abstract, numpy=ArrayKernel(_lu_numpy), xla=_lu_xla, jvp=_lu_jvp,
    transpose=_lu_transpose, batch=_lu_batch, cost=_lu_cost))


def lu_solve(a: Any, factors: Any, permutation: Any, b: Any, transpose_a: bool = False) -> Any:
    """Return x with a x = b, or aᵀ x = b, given the LU decomposition of `a` (without a derivative of its own).

    Raises `numpy.linalg.LinAlgError` for a singular matrix on NumPy; under XLA the result is then not finite.
    """
    return bind(lu_solve_p, a, factors, permutation, b, transpose_a=transpose_a)[0]


# --- a tridiagonal matrix -----------------------------------------------------------------------------------------


def _tridiagonal_abstract(low: Aval, middle: Aval, high: Aval, b: Aval) -> list[Aval]:
    check_matrices("tridiagonal_solve", b)
    check_same_dtype("tridiagonal_solve", low, middle, high, b)
    if any(aval.shape != b.shape[:-1] for aval in (low, middle, high)):
        shown = ", ".join(str(aval.shape) for aval in (low, middle, high))
        raise ShapeError(f"tridiagonal_solve: diagonals of shapes {shown} and a right side of shape {b.shape}; each "
                         f"diagonal must have the shape {b.shape[:-1]}")
    return [Aval(b.shape, b.dtype, all_weak((low, middle, high, b)))]


def _tridiagonal_numpy(low: Any, middle: Any, high: Any, b: Any) -> Any:
    def kernel(low: Any, middle: Any, high: Any, b: Any) -> list[Any]:
        if not b.size:
            return [b.copy()]
        if len(middle) == 1:  # LAPACK's interface refuses it
            low, middle, high, b = (np.concatenate([x, np.ones_like(x)]) for x in (low, middle, high, b))
            low[1] = high[0] = 0
            return [kernel(low, middle, high, b)[0][:1]]
        *_, x, singular = lapack(b.dtype, "gtsv")[0](low[1:], middle, high[:-1], b)
        if singular > 0:
            raise failure("tridiagonal_solve", "a matrix is singular, so the system has no unique solution.")
        return [x]

    return each_matrix(kernel, b.shape[:-2], [b], low, middle, high, b)[0]


def _tridiagonal_jvp(primals: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
    low, middle, high, b = primals
    *moved, db = tangents
    x = tridiagonal_solve(low, middle, high, b)
    right = db
    if any(type(tangent) is not Zero for tangent in moved):
        through = _product(list(map(instantiate_zeros, moved)), x)
        right = neg(through) if type(db) is Zero else sub(db, through)
    return [x], [tridiagonal_solve(low, middle, high, right)]


def _shift_place(x: Any, axis: int, back: bool) -> Any:
    """Return `x` moved by one place along `axis`, away from its beginning (or toward it), with a zero in the gap."""
    config = [(0, 0, 0)] * len(shape_of(x))
    config[axis] = (-1, 1, 0) if back else (1, -1, 0)
    return pad(x, scalar_like(0, x), config)


def _product(diagonals: list[Any], x: Any) -> Any:
    axis = len(shape_of(x)) - 2
    low, middle, high = (reshape(each, (*shape_of(each), 1)) for each in diagonals)
    terms = mul(low, _shift_place(x, axis, False)), mul(middle, x), mul(high, _shift_place(x, axis, True))
    return add(add(terms[0], terms[1]), terms[2])


def _tridiagonal_transpose(cotangents: list[Any], inputs: list[Any]) -> list[Any]:
    low, middle, high = (_require_known(each) for each in inputs[:3])
    axis = len(shape_of(middle)) - 1
    return [None, None, None,
            tridiagonal_solve(_shift_place(high, axis, False), middle, _shift_place(low, axis, True), cotangents[0])]


def _tridiagonal_xla(lax: Any, low: Any, middle: Any, high: Any, b: Any) -> list[Any]:
    if 0 in b.shape:  # of which jax's lowerings for GPUs and TPUs index the first row
        return [b]
    return [lax.linalg.tridiagonal_solve(low, middle, high, b)]


tridiagonal_solve_p = register(Primitive(
    name="tridiagonal_solve", abstract=_tridiagonal_abstract, numpy=ArrayKernel(_tridiagonal_numpy),
    xla=_tridiagonal_xla,
    jvp=_tridiagonal_jvp, transpose=_tridiagonal_transpose, batch=stack_rule(lambda: tridiagonal_solve_p),
    cost=lambda low, middle, high, b: Cost(8 * b.size, total_bytes([low, middle, high, b], [b]))))


def tridiagonal_solve(low: Any, middle: Any, high: Any, b: Any) -> Any:
    """Return x with A x = b, where A has these diagonals; the first of `low` and the last of `high` are ignored."""
    return bind(tridiagonal_solve_p, low, middle, high, b)[0]
