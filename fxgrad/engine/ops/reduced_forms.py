"""Unitary reductions to Schur, Hessenberg and tridiagonal form; without derivatives, as in jax."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import NOT_LINEAR, TODO, Cost, Primitive, register, total_bytes
from fxgrad.engine.ops.matrices import check_matrices, each_matrix, lapack, real_of, stack_rule, unknown
from fxgrad.engine.tracing.tape import bind

# --- Schur ------------------------------------------------------------------------------------------------------------


def _schur_abstract(a: Aval, *, vectors: bool) -> list[Aval]:
    check_matrices("schur", a, square=True)
    return [a] * (1 + vectors)


def _schur_numpy(a: Any, *, vectors: bool) -> list[Any]:
    outputs = [a] * (1 + vectors)

    def kernel(a: Any) -> list[Any]:
        if not a.size:
            return [a.copy() for _ in outputs]
        form, *_, basis, _, info = lapack(a.dtype, "gees")[0](lambda *_: False, a, compute_v=vectors)
        if info:
            return [unknown(Aval(a.shape, a.dtype)) for _ in outputs]
        return [form, basis][:1 + vectors]

    return each_matrix(kernel, a.shape[:-2], outputs, a)


schur_p = register(Primitive(
    name="schur", abstract=_schur_abstract, numpy=_schur_numpy,
    xla=lambda lax, a, *, vectors: list(lax.linalg.schur(a, compute_schur_vectors=vectors))[:1 + vectors],
    jvp=TODO("the derivative of the Schur form is not written, and jax has none; sqrtm, expm and solve_sylvester, "
             "which are made of it, have theirs"),
    transpose=NOT_LINEAR, batch=stack_rule(lambda: schur_p),
    cost=lambda a, **params: Cost(25 * a.size * a.shape[-1], 3 * a.nbytes)))


def schur(a: Any, vectors: bool = True) -> list[Any]:
    """Return [T, Q] with Q T Qᴴ = a, or [T]: T is upper triangular; for real `a`, complex pairs are 2x2 blocks."""
    return bind(schur_p, a, vectors=vectors)


# --- Hessenberg -------------------------------------------------------------------------------------------------------


def _hessenberg_abstract(a: Aval) -> list[Aval]:
    check_matrices("hessenberg", a, square=True)
    return [a, a.update(shape=(*a.shape[:-2], max(a.shape[-1] - 1, 0)))]


def _hessenberg_numpy(a: Any) -> list[Any]:
    def kernel(a: Any) -> list[Any]:
        if len(a) < 2:
            return [a.copy(), np.zeros(0, a.dtype)]
        return list(lapack(a.dtype, "gehrd")[0](a))[:2]

    return each_matrix(kernel, a.shape[:-2], _hessenberg_abstract(Aval(a.shape, a.dtype)), a)


hessenberg_p = register(Primitive(
    name="hessenberg", abstract=_hessenberg_abstract, numpy=_hessenberg_numpy,
    xla=lambda lax, a: list(lax.linalg.hessenberg(a)) if a.shape[-1] > 1 else [
        a, lax.full((*a.shape[:-2], 0), 0, a.dtype)],
    jvp=TODO("the derivative of the Hessenberg form is not written, and jax has none"), transpose=NOT_LINEAR,
    batch=stack_rule(lambda: hessenberg_p), cost=lambda a: Cost(10 * a.size * a.shape[-1] // 3, 2 * a.nbytes)))


def hessenberg(a: Any) -> list[Any]:
    """Return [packed, taus]: H with Q H Qᴴ = a, and below it the reflectors of Q, with their factors."""
    return bind(hessenberg_p, a)


# --- tridiagonal ------------------------------------------------------------------------------------------------------


def _tridiagonal_abstract(a: Aval, *, lower: bool) -> list[Aval]:
    check_matrices("tridiagonal", a, square=True)
    *stack, size = a.shape[:-1]
    below = max(size - 1, 0)
    return [a, real_of(a, (*stack, size)), real_of(a, (*stack, below)), a.update(shape=(*stack, below))]


def _tridiagonal_numpy(a: Any, *, lower: bool) -> list[Any]:
    outputs = _tridiagonal_abstract(Aval(a.shape, a.dtype), lower=lower)

    def kernel(a: Any) -> list[Any]:
        if len(a) < 2:
            middle = np.diagonal(a).real.copy()
            return [a.real.astype(a.dtype), middle, np.zeros(0, outputs[2].dtype), np.zeros(0, a.dtype)]
        return list(lapack(a.dtype, "hetrd" if a.dtype.kind == "c" else "sytrd")[0](a, lower=lower))[:4]

    return each_matrix(kernel, a.shape[:-2], outputs, a)


def _tridiagonal_xla(lax: Any, a: Any, *, lower: bool) -> list[Any]:
    if a.shape[-1] > 1:
        return list(lax.linalg.tridiagonal(a, lower=lower))
    stack = a.shape[:-2]
    empty = lax.full((*stack, max(a.shape[-1] - 1, 0)), 0, a.dtype)
    if not a.shape[-1]:
        return [a, empty.real, empty.real, empty]
    return [lax.convert_element_type(a.real, a.dtype), a.real[..., 0], empty.real, empty]


tridiagonal_p = register(Primitive(
    name="tridiagonal", abstract=_tridiagonal_abstract, numpy=_tridiagonal_numpy, xla=_tridiagonal_xla,
    jvp=TODO("the derivative of the tridiagonal form is not written, and jax has none; eigh has its own"),
    transpose=NOT_LINEAR, batch=stack_rule(lambda: tridiagonal_p),
    cost=lambda a, **params: Cost(4 * a.size * a.shape[-1] // 3,
                                  total_bytes([a], _tridiagonal_abstract(a, **params)))))


def tridiagonal(a: Any, lower: bool = True) -> list[Any]:
    """Return [packed, d, e, taus]: a tridiagonal T with Q T Qᴴ = a, Hermitian, and the reflectors of Q."""
    return bind(tridiagonal_p, a, lower=lower)
