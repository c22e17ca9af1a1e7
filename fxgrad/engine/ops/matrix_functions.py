"""Functions of square matrices: the exponential and its derivative, the square root, and Sylvester's equation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import NOT_LINEAR, ArrayKernel, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.ops.arithmetic import mul, neg, stop_gradient, sub
from fxgrad.engine.ops.eigen import svd_p
from fxgrad.engine.ops.factorizations import lu
from fxgrad.engine.ops.families import check_same_dtype
from fxgrad.engine.ops.joining import all_weak, concatenate
from fxgrad.engine.ops.matrices import (
    adjoint,
    check_matrices,
    columns,
    complex_of,
    each_matrix,
    matmul,
    rows,
    shape_of,
    stack_rule,
    transpose_matrices,
)
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.structural import convert, instantiate_zeros, zeros
from fxgrad.engine.ops.triangular import lu_solve, lu_solve_p
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ShapeError

# --- the exponential --------------------------------------------------------------------------------------------------

# A quotient of polynomials of the matrix divided by a power of 2, squared again: N. J. Higham, "The scaling and
# squaring method for the matrix exponential revisited", SIAM Journal on Matrix Analysis and Applications 26, 2005.
_COEFFICIENTS = {
    7: (17297280., 8648640., 1995840., 277200., 25200., 1512., 56., 1.),
    13: (64764752532480000., 32382376266240000., 7771770303897600., 1187353796428800., 129060195264000.,
         10559470521600., 670442572800., 33522128640., 1323241920., 40840800., 960960., 16380., 182., 1.),
}
_BOUNDS = {7: 3.925724783138660, 13: 5.371920351148152}
"""The degrees of the polynomials, and the norm up to which each is exact to rounding: for float32 and for float64."""

Pair = tuple[Any, Any]
"""A matrix and its tangent along a direction, or None without one."""


def _degree(dtype: Any) -> int:
    return 7 if np.finfo(dtype).eps > 1e-10 else 13


class _Pairs:
    """Arithmetic on pairs; `matmul` and `solve` are those of NumPy or XLA."""

    def __init__(self, matmul: Callable[..., Any], solve: Callable[..., Any]) -> None:
        self.matmul, self._solve = matmul, solve

    def product(self, x: Pair, y: Pair) -> Pair:
        value = self.matmul(x[0], y[0])
        return value, None if x[1] is None else self.matmul(x[1], y[0]) + self.matmul(x[0], y[1])

    def combined(self, weights: Any, terms: Any) -> Pair:
        """Return the sum of the terms times the weights."""
        value, tangent = (None if terms[-1][place] is None else
                          sum(weight * term[place] for weight, term in zip(weights, terms, strict=True))
                          for place in (0, 1))
        return value, tangent

    def quotient(self, low: Pair, high: Pair) -> Pair:
        """Return low^-1 high."""
        value = self._solve(low[0], high[0])
        return value, None if low[1] is None else self._solve(low[0], high[1] - self.matmul(low[1], value))

    def exponential(self, a: Pair, identity: Any) -> Pair:
        """Return the exponential of a matrix of small norm."""
        weights = _COEFFICIENTS[_degree(a[0].dtype)]
        powers: list[Pair] = [(identity, None if a[1] is None else 0 * a[1])]
        square = self.product(a, a)
        for _ in range(3):
            powers.append(self.product(powers[-1], square) if len(powers) > 1 else square)
        even, odd = (self._polynomial(weights[start::2], powers) for start in (0, 1))
        odd = self.product(a, odd)
        return self.quotient(self.combined((1, -1), (even, odd)), self.combined((1, 1), (even, odd)))

    def _polynomial(self, weights: Any, powers: list[Pair]) -> Pair:
        low = self.combined(weights[:4], powers)
        if len(weights) == 4:
            return low
        return self.combined((1, 1), (low, self.product(powers[3], self.combined(weights[4:], powers[1:]))))


def _expm_numpy(max_squarings: int, a: Any, direction: Any = None) -> Any:
    if not a.size:
        return np.zeros(a.shape, a.dtype)
    pairs = _Pairs(np.matmul, np.linalg.solve)
    norm = np.abs(a).sum(-2).max(-1)
    needed = np.maximum(np.ceil(np.log2(np.maximum(norm, 1e-30) / _BOUNDS[_degree(a.dtype)])), 0)
    steps = np.where(needed <= max_squarings, needed, 0)[..., None, None]
    scale = (0.5 ** steps).astype(norm.dtype)
    ok = (needed <= max_squarings)[..., None, None]
    scaled = np.where(ok, a * scale, 0), None if direction is None else direction * scale
    x = pairs.exponential(scaled, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape))
    for step in range(int(steps.max())):
        squared = pairs.product(x, x)
        x = tuple(None if new is None else np.where(step < steps, new, old)  # type: ignore[assignment]
                  for new, old in zip(squared, x, strict=True))
    return np.where(ok, x[0] if direction is None else x[1], np.nan).astype(a.dtype, copy=False)


def _expm_xla(lax: Any, max_squarings: int, a: Any, direction: Any = None) -> list[Any]:
    if not a.size:
        return [a]
    pairs = _Pairs(lambda x, y: _product_xla(lax, x, y), lambda x, y: _solve_xla(lax, x, y))
    norm = abs(a).sum(-2).max(-1)
    needed = lax.max(lax.ceil(lax.log(norm / _BOUNDS[_degree(a.dtype)]) / float(np.log(2))), lax.full_like(norm, 0))
    ok = (needed <= max_squarings)[..., None, None]
    steps = lax.select(ok[..., 0, 0], needed, lax.full_like(needed, 0)).astype(np.int32)[..., None, None]
    scale = lax.exp(steps.astype(norm.dtype) * -float(np.log(2)))
    scaled = a * scale, None if direction is None else direction * scale
    x = pairs.exponential(scaled, lax.full_like(a, 0) + np.eye(a.shape[-1], dtype=a.dtype))

    def squared(step: Any, x: Pair) -> Pair:
        new = pairs.product(x, x)
        done = lax.broadcast_in_dim(step < steps, a.shape, tuple(range(a.ndim)))
        return tuple(None if each is None else lax.select(done, each, old)  # type: ignore[return-value]
                     for each, old in zip(new, x, strict=True))

    x = lax.fori_loop(0, steps.max(), squared, x)
    return [lax.select(lax.broadcast_in_dim(ok, a.shape, tuple(range(a.ndim))), x[0] if direction is None else x[1],
                       lax.full_like(a, np.nan))]


def _product_xla(lax: Any, x: Any, y: Any) -> Any:
    batch = tuple(range(x.ndim - 2))
    return lax.dot_general(x, y, (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch)), precision="highest")


def _solve_xla(lax: Any, a: Any, b: Any) -> Any:
    factors, _, permutation = lax.linalg.lu(a)
    return lu_solve_p.xla(lax, a, factors, permutation, b, transpose_a=False)[0]


def _expm_abstract(a: Aval, *, max_squarings: int) -> list[Aval]:
    check_matrices("expm", a, square=True)
    return [a]


def _expm_jvp(primals: list[Any], tangents: list[Any], *, max_squarings: int) -> tuple[list[Any], list[Any]]:
    return [expm(primals[0], max_squarings)], [expm_frechet(primals[0], tangents[0], max_squarings)]


expm_p = register(Primitive(
    name="expm", abstract=_expm_abstract,
    numpy=ArrayKernel(lambda a, *, max_squarings: _expm_numpy(max_squarings, a)),
    xla=lambda lax, a, *, max_squarings: _expm_xla(lax, max_squarings, a),
    jvp=_expm_jvp, transpose=NOT_LINEAR, batch=stack_rule(lambda: expm_p),
    cost=lambda a, **params: Cost(20 * a.size * a.shape[-1], 2 * a.nbytes)))


def expm(a: Any, max_squarings: int = 16) -> Any:
    """Return the exponentials of square matrices; NaN if more than `max_squarings` squarings would be needed."""
    return bind(expm_p, a, max_squarings=max_squarings)[0]


def _frechet_abstract(a: Aval, direction: Aval, *, max_squarings: int) -> list[Aval]:
    check_matrices("expm_frechet", a, direction, square=True)
    check_same_dtype("expm_frechet", a, direction)
    if a.shape != direction.shape:
        raise ShapeError(f"expm_frechet: matrices of shape {a.shape} and directions of shape {direction.shape}; equal "
                         "shapes are needed")
    return [Aval(a.shape, a.dtype, all_weak((a, direction)))]


def _frechet_jvp(primals: list[Any], tangents: list[Any], *, max_squarings: int) -> tuple[list[Any], list[Any]]:
    """The derivative is the upper right corner of the exponential of [[A, E], [0, A]]; so is its tangent."""
    a, direction = primals
    out = expm_frechet(a, direction, max_squarings)
    if type(tangents[0]) is Zero:
        return [out], [expm_frechet(a, tangents[1], max_squarings)]
    size = shape_of(a)[-1]
    whole = _in_blocks(a, direction)
    moved = expm_frechet(whole, _in_blocks(tangents[0], instantiate_zeros(tangents[1])), max_squarings)
    return [out], [columns(rows(moved, 0, size), size, 2 * size)]


def _in_blocks(middle: Any, corner: Any) -> Any:
    last = len(shape_of(middle)) - 1
    upper = concatenate([middle, corner], last)
    return concatenate([upper, concatenate([zeros(aval_of(middle)), middle], last)], last - 1)


expm_frechet_p = register(Primitive(
    name="expm_frechet", abstract=_frechet_abstract,
    numpy=ArrayKernel(lambda a, direction, *, max_squarings: _expm_numpy(max_squarings, a, direction)),
    xla=lambda lax, a, direction, *, max_squarings: _expm_xla(lax, max_squarings, a, direction), jvp=_frechet_jvp,
    transpose=lambda cotangents, inputs, **params: [
        None, bind(expm_frechet_p, transpose_matrices(inputs[0]), cotangents[0], **params)[0]],
    batch=stack_rule(lambda: expm_frechet_p),
    cost=lambda a, direction, **params: Cost(60 * a.size * a.shape[-1], 3 * a.nbytes)))


def expm_frechet(a: Any, direction: Any, max_squarings: int = 16) -> Any:
    """Return the derivatives of the exponentials of `a` along `direction`."""
    return bind(expm_frechet_p, a, direction, max_squarings=max_squarings)[0]


# --- Sylvester's equation ---------------------------------------------------------------------------------------------


def _sylvester_abstract(a: Aval, b: Aval, c: Aval) -> list[Aval]:
    check_matrices("solve_sylvester", a, b, square=True)
    check_matrices("solve_sylvester", c)
    check_same_dtype("solve_sylvester", a, b, c)
    if not a.shape[:-2] == b.shape[:-2] == c.shape[:-2] or c.shape[-2:] != (a.shape[-1], b.shape[-1]):
        raise ShapeError(f"solve_sylvester: matrices of shapes {a.shape}, {b.shape} and {c.shape}; the last one needs "
                         f"{a.shape[-1]} rows and {b.shape[-1]} columns, and all the same axes in front")
    return [Aval(c.shape, c.dtype, all_weak((a, b, c)))]


def _sylvester_numpy(a: Any, b: Any, c: Any) -> Any:
    from scipy.linalg import solve_sylvester

    def kernel(a: Any, b: Any, c: Any) -> list[Any]:
        return [solve_sylvester(a, b, c).astype(c.dtype, copy=False) if c.size else c]

    return each_matrix(kernel, a.shape[:-2], [c], a, b, c)[0]


def _sylvester_xla(lax: Any, a: Any, b: Any, c: Any) -> list[Any]:
    """With a = Q T Qᴴ, b = Z R Zᴴ and x = Q y Zᴴ, the columns of y come one after the other from triangular systems."""
    if not c.size:
        return [c]
    wide = np.result_type(c.dtype, np.complex64)
    (t, q), (r, z) = (lax.linalg.schur(each.astype(wide)) for each in (a, b))
    right = _product_xla(lax, _product_xla(lax, lax.conj(q.mT), c.astype(wide)), z)
    identity = np.eye(a.shape[-1], dtype=wide)

    def step(place: Any, y: Any) -> Any:
        column = r[..., place][..., None]
        rest = right[..., place][..., None] - _product_xla(lax, y, column)
        diagonal = lax.dynamic_index_in_dim(column, place, column.ndim - 2)
        solved = lax.linalg.triangular_solve(t + diagonal * identity, rest, left_side=True)
        return y.at[..., place].set(solved[..., 0])

    y = lax.fori_loop(0, b.shape[-1], step, lax.full_like(right, 0))
    x = _product_xla(lax, _product_xla(lax, q, y), lax.conj(z.mT))
    return [x if c.dtype.kind == "c" else x.real]


def _sylvester_jvp(primals: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
    (a, b, c), (da, db, dc) = primals, tangents
    x = sylvester(a, b, c)
    right = None if type(dc) is Zero else dc
    for product in ([] if type(da) is Zero else [matmul(da, x)]) + ([] if type(db) is Zero else [matmul(x, db)]):
        right = neg(product) if right is None else sub(right, product)
    return [x], [Zero(aval_of(x)) if right is None else sylvester(a, b, right)]


sylvester_p = register(Primitive(
    name="solve_sylvester", abstract=_sylvester_abstract, numpy=ArrayKernel(_sylvester_numpy), xla=_sylvester_xla,
    jvp=_sylvester_jvp, batch=stack_rule(lambda: sylvester_p),
    transpose=lambda cotangents,
    inputs: [None, None, sylvester(transpose_matrices(inputs[0]), transpose_matrices(inputs[1]), cotangents[0])],
    cost=lambda a, b, c: Cost(25 * (a.size * a.shape[-1] + b.size * b.shape[-1]), total_bytes([a, b, c], [c]))))


def sylvester(a: Any, b: Any, c: Any) -> Any:
    """Return x with a x + x b = c."""
    return bind(sylvester_p, a, b, c)[0]


# --- the square root --------------------------------------------------------------------------------------------------


def _sqrtm_abstract(a: Aval) -> list[Aval]:
    check_matrices("sqrtm", a, square=True)
    return [complex_of(a, a.shape)]


def _sqrtm_numpy(a: Any) -> Any:
    from scipy.linalg import sqrtm

    output = _sqrtm_abstract(Aval(a.shape, a.dtype))[0]
    if not a.size:
        return np.zeros(a.shape, output.dtype)
    return each_matrix(lambda each: [sqrtm(each).astype(output.dtype)], a.shape[:-2], [output], a)[0]


def _sqrtm_xla(lax: Any, a: Any) -> list[Any]:
    """Compute the root of the triangular T in a = Q T Qᴴ by columns: with R the columns before, (R + r_jj) r_j = t_j.

    Å. Björck and S. Hammarling, "A Schur method for the square root of a matrix", 1983.
    """
    wide = np.result_type(a.dtype, np.complex64)
    if not a.size:
        return [a.astype(wide)]
    t, q = lax.linalg.schur(a.astype(wide))
    size = a.shape[-1]
    places = lax.broadcasted_iota(np.int32, (size,), 0)
    identity = np.eye(size, dtype=wide)

    def step(place: Any, root: Any) -> Any:
        column = t[..., place]
        corner = lax.sqrt(lax.dynamic_index_in_dim(column, place, column.ndim - 1))
        before, here = (places < place).astype(wide), (places == place).astype(wide)
        added = before * corner + (1 - before)
        solved = lax.linalg.triangular_solve(root + added[..., None] * identity, (column * before)[..., None],
                                             left_side=True)[..., 0]
        return root.at[..., place].set(solved * before + here * corner)

    root = lax.fori_loop(0, size, step, lax.full_like(t, 0))
    return [_product_xla(lax, _product_xla(lax, q, root), lax.conj(q.mT))]


def _sqrtm_jvp(primals: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
    """X X = A, so X dX + dX X = dA."""
    root = sqrtm(primals[0])
    return [root], [sylvester(root, root, convert(tangents[0], aval_of(root).dtype))]


sqrtm_p = register(Primitive(
    name="sqrtm", abstract=_sqrtm_abstract, numpy=ArrayKernel(_sqrtm_numpy), xla=_sqrtm_xla, jvp=_sqrtm_jvp,
    transpose=NOT_LINEAR, batch=stack_rule(lambda: sqrtm_p),
    cost=lambda a: Cost(28 * a.size * a.shape[-1], 3 * a.nbytes)))


def sqrtm(a: Any) -> Any:
    """Return the principal square roots of square matrices; complex."""
    return bind(sqrtm_p, a)[0]


# --- the nearest unitary matrix ---------------------------------------------------------------------------------------


def _unitary_abstract(a: Aval) -> list[Aval]:
    check_matrices("polar", a)
    if a.shape[-2] < a.shape[-1]:
        raise ShapeError(f"polar: matrices of shape {a.shape}; at least as many rows as columns are needed here")
    return [a]


def _unitary_numpy(a: Any) -> Any:
    u, _, vh = svd_p.numpy(a, full_matrices=False, compute_uv=True)
    return u @ vh


def _unitary_xla(lax: Any, a: Any) -> list[Any]:
    u, _, vh = lax.linalg.svd(a, full_matrices=False)
    return [_product_xla(lax, u, vh)]


def _unitary_jvp(primals: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
    """A = U P, so with W = Uᴴ dU, which is skew: W P + P W = Uᴴ dA - dAᴴ U; and dU = dA P^-1 out of the span of U."""
    a, change = primals[0], tangents[0]
    unitary = nearest_unitary(a)
    mixed = matmul(adjoint(unitary), a)
    positive = mul(add(mixed, adjoint(mixed)), 0.5)
    inner = matmul(adjoint(unitary), change)
    moved = matmul(unitary, sylvester(positive, positive, sub(inner, adjoint(inner))))
    if shape_of(a)[-2] > shape_of(a)[-1]:
        factors, _, permutation = lu(stop_gradient(positive))
        outside = sub(change, matmul(unitary, inner))
        moved = add(moved, transpose_matrices(lu_solve(positive, factors, permutation, transpose_matrices(outside),
                                                       transpose_a=True)))
    return [unitary], [moved]


nearest_unitary_p = register(Primitive(
    name="nearest_unitary", abstract=_unitary_abstract, numpy=ArrayKernel(_unitary_numpy), xla=_unitary_xla,
    jvp=_unitary_jvp, transpose=NOT_LINEAR, batch=stack_rule(lambda: nearest_unitary_p),
    cost=lambda a: Cost(14 * a.size * a.shape[-1], 2 * a.nbytes)))


def nearest_unitary(a: Any) -> Any:
    """Return U with orthonormal columns in a = U P, where P is Hermitian and has no negative eigenvalues."""
    return bind(nearest_unitary_p, a)[0]
