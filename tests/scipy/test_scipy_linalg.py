"""Linear algebra with SciPy's names, and jax.lax.linalg's, against jax, SciPy and differences in float64."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import pytest
import scipy.linalg

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError
from fxgrad.lax import linalg as flax
from fxgrad.scipy import linalg as fsl
from fxgrad.testing import check_grads
from tests.support.with_numpy import assert_equal, draw, leaves

pytestmark = pytest.mark.slow  # jax, the oracle, compiles in every test; the laws and the examples are quick

S, B, V = draw((4, 4), "float64"), draw((4, 2), "float64"), draw((4,), "float64")
Z = draw((4, 4), "complex128")
P = S @ S.T + np.eye(4)
STACK = draw((2, 3, 3), "float64")
UPPER = np.triu(S) + 3 * np.eye(4)
Function = Callable[..., Any]

CASES: dict[str, tuple[Function, tuple[Any, ...]]] = {
    **{f"solve_triangular {trans} {lower} {unit}": (
        lambda m, a, b, options=(trans, lower, unit): m.solve_triangular(a, b, *options), (UPPER, B))
       for trans, lower, unit in ((0, False, False), (1, True, False), ("C", False, True), ("N", True, True))},
    "solve_triangular vector": (lambda m, a, b: m.solve_triangular(a, b), (UPPER, V)),
    "solve_triangular complex": (lambda m, a, b: m.solve_triangular(a, b, trans=2), (Z + 3 * np.eye(4), B + 1j)),
    "cholesky": (lambda m, a: m.cholesky((a + a.T) / 2, lower=True), (P,)),
    "cholesky upper": (lambda m, a: m.cholesky((a + a.T) / 2), (P,)),
    "cho_solve": (lambda m, a, b: m.cho_solve(m.cho_factor((a + a.T) / 2), b), (P, B)),
    "cho_solve lower": (lambda m, a, b: m.cho_solve(m.cho_factor((a + a.T) / 2, lower=True), b), (P, V)),
    "solve": (lambda m, a, b: m.solve(a, b), (S, B)),
    "solve pos": (lambda m, a, b: m.solve(a @ a.T + 2 * np.eye(4), b, assume_a="pos"), (S, B)),
    **{f"lu_solve {trans}": (lambda m, a, b, trans=trans: m.lu_solve(m.lu_factor(a), b, trans), (Z, B + 0j))
       for trans in (0, 1, 2)},
    "lu": (lambda m, a: m.lu(a)[1:], (S,)),
    "lu permuted": (lambda m, a: m.lu(a, permute_l=True), (S[:, :3],)),
    "det": (lambda m, a: m.det(a), (S,)),
    "inv": (lambda m, a: m.inv(a), (S,)),
    "qr": (lambda m, a: m.qr(a), (S,)),
    "qr economic": (lambda m, a: m.qr(a, mode="economic"), (S[:, :2],)),
    "qr r": (lambda m, a: m.qr(a, mode="r"), (S[:, :2],)),
    "qr pivoting": (lambda m, a: m.qr(a, mode="economic", pivoting=True)[:2], (S[:, :3],)),
    "qr_multiply": (lambda m, a, c: m.qr_multiply(a, c), (S[:, :2], B.T)),
    "qr_multiply left": (lambda m, a, c: m.qr_multiply(a, c, mode="left", conjugate=True), (S, V)),
    "svd": (lambda m, a: m.svd(a, full_matrices=False), (S[:3],)),
    "svd values": (lambda m, a: m.svd(a, compute_uv=False), (S,)),
    "eigh": (lambda m, a: m.eigh(a), (P,)),
    "expm": (lambda m, a: m.expm(a), (S,)),
    "expm large": (lambda m, a: m.expm(3 * a), (STACK,)),
    "expm complex": (lambda m, a: m.expm(a), (Z,)),
    "expm_frechet": (lambda m, a, e: m.expm_frechet(a, e), (S, P)),
    "polar": (lambda m, a: m.polar(a), (S,)),
    "polar tall": (lambda m, a: m.polar(a), (S[:, :3],)),
    "polar left": (lambda m, a: m.polar(a, side="left"), (S[:3],)),
    "toeplitz": (lambda m, c, r: m.toeplitz(c, r), (V, B[:, 0])),
    "block_diag": (lambda m, a, b: m.block_diag(a, b, V), (S, B)),
    "companion": (lambda m, a: m.companion(a), (V,)),
    "hankel": (lambda m, c, r: m.hankel(c, r), (V, V[:3])),
    "circulant": (lambda m, c: m.circulant(c), (STACK,)),
    "fiedler": (lambda m, a: m.fiedler(a), (V,)),
    "leslie": (lambda m, f, s: m.leslie(f, s), (V, V[1:])),
    **{f"fiedler_companion {n}": (lambda m, a: m.fiedler_companion(a), (draw((n,), "float64"),)) for n in range(2, 9)},
    **{f"convolution_matrix {mode} {n}": (lambda m, a, mode=mode, n=n: m.convolution_matrix(a, n, mode), (V,))
       for mode in ("full", "same", "valid") for n in (2, 4, 7)},
}
WITHOUT_GRADIENT = {"polar", "polar tall", "polar left", "qr_multiply", "qr_multiply left"}  # jax has none


def weighted(results: Any) -> Any:
    return sum((result.real * draw(fnp.shape(result), "float64", seed=f"w{place}")).sum()
               for place, result in enumerate(leaves(results)))


@pytest.mark.parametrize("case", CASES)
def test_values(case: str) -> None:
    function, args = CASES[case]
    with jax.enable_x64(True):
        expected = jax.jit(lambda *args: leaves(function(jax.scipy.linalg, *args)))(*args)  # one program to compile
    for results in (function(fsl, *args), fxgrad.jit(lambda *args: leaves(function(fsl, *args)))(*args)):
        for got, wanted in zip(leaves(results), expected, strict=True):
            assert_equal(got, np.asarray(wanted), case)


@pytest.mark.parametrize("case", sorted(CASES.keys() - WITHOUT_GRADIENT))
def test_gradients(case: str) -> None:
    function, args = CASES[case]
    numbers = tuple(range(len(args)))
    got = fxgrad.grad(lambda *args: weighted(function(fsl, *args)), argnums=numbers)(*args)
    with jax.enable_x64(True):
        theirs = lambda *args: weighted(function(jax.scipy.linalg, *args))
        expected = jax.jit(jax.grad(theirs, argnums=numbers))(*args)  # one program to compile
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-12, 1e-12)


@pytest.mark.parametrize("function", [
    lambda a: fsl.expm(a), lambda a: fsl.sqrtm(a @ a.T + np.eye(3)), lambda a: fsl.expm_frechet(a, a @ a)[1],
    lambda a: fsl.cho_solve(fsl.cho_factor(a @ a.T + np.eye(3)), a), lambda a: fsl.lu(a)[1:],
    lambda a: fsl.solve_sylvester(a, a @ a, a), lambda a: fsl.polar(a), lambda a: fsl.eigh(a, a @ a.T + np.eye(3))[0],
    lambda a: fsl.polar(a[:, :2]), lambda a: fsl.polar(a[:2], side="left"), lambda a: fsl.qr_multiply(a[:, :2], a),
    lambda a: fsl.cholesky(a @ a.T + np.eye(3)) + fsl.cholesky(a + 9 * np.eye(3)),
], ids=["expm", "sqrtm", "frechet", "cho_solve", "lu", "sylvester", "polar", "eigh", "tall", "left", "qr", "triangle"])
def test_second_order(function: Function) -> None:
    check_grads(lambda a: weighted(function(a)), (STACK[0] + np.diag([1.0, 2.0, 3.0]),), order=2)


def test_without_counterpart_in_jax_s_derivatives() -> None:
    """sqrtm and polar at equal eigenvalues and singular values."""
    change = draw((3, 3), "float64", seed="change")
    np.testing.assert_allclose(fxgrad.jvp(fsl.sqrtm, (4 * np.eye(3),), (change,))[1], change / 4, atol=1e-15,
                               rtol=1e-12)
    skew = (change - change.T) / 2
    np.testing.assert_allclose(fxgrad.jvp(lambda a: fsl.polar(a)[0], (np.eye(3),), (change,))[1], skew, atol=1e-15,
                               rtol=1e-12)
    np.testing.assert_allclose(fsl.sqrtm(Z) @ fsl.sqrtm(Z), Z, atol=1e-15, rtol=1e-12)
    np.testing.assert_allclose(fxgrad.jit(fsl.sqrtm)(Z), scipy.linalg.sqrtm(Z), atol=1e-15, rtol=1e-12)
    assert_equal(fsl.sqrtm(P), scipy.linalg.sqrtm(P).astype(complex))
    assert_equal(fsl.solve_sylvester(S, STACK[0], S[:, :3]), scipy.linalg.solve_sylvester(S, STACK[0], S[:, :3]))


def test_decompositions_restore_the_matrix() -> None:
    p, low, high = fsl.lu(STACK)
    np.testing.assert_allclose(p @ low @ high, STACK, atol=1e-15, rtol=1e-12)
    for transform in (lambda f: f, fxgrad.jit):
        def apply(function: Function, transform: Function = transform) -> Function:
            return lambda *args: [np.asarray(part) for part in transform(function)(*args)]

        form, basis = apply(fsl.schur)(S)
        np.testing.assert_allclose(basis @ form @ basis.T, S, atol=1e-15, rtol=2e-11)
        form, basis = apply(fsl.rsf2csf)(form, basis)
        np.testing.assert_allclose(basis @ form @ basis.conj().T, S, atol=1e-15, rtol=2e-11)
        assert abs(np.tril(form, -1)).max() < 1e-12
        form, basis = apply(lambda a: fsl.hessenberg(a, calc_q=True))(Z)
        np.testing.assert_allclose(basis @ form @ basis.conj().T, Z, atol=1e-15, rtol=1e-12)
        values, vectors = apply(lambda d, e: fsl.eigh_tridiagonal(d, e))(V, V[1:])
        full = np.diag(V) + np.diag(V[1:], 1) + np.diag(V[1:], -1)
        np.testing.assert_allclose(full @ vectors, vectors * values, atol=1e-15, rtol=1e-12)
        values, vectors = apply(lambda a, b: fsl.eigh(a, b))(S + S.T, P)
        np.testing.assert_allclose((S + S.T) @ vectors, P @ vectors * values, atol=1e-15, rtol=1e-12)
    assert_equal(fsl.eigh_tridiagonal(V, V[1:], eigvals_only=True, select="i", select_range=(1, 2)),
                 scipy.linalg.eigvalsh_tridiagonal(V, V[1:], select="i", select_range=(1, 2)))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_matrices_of_a_size(n: int) -> None:
    for name, options in (("hilbert", {}), ("invhilbert", {}), ("hadamard", {}), ("helmert", {}), ("dft", {}),
                          ("helmert", {"full": True}), ("dft", {"scale": "n"}), ("dft", {"scale": "sqrtn"}),
                          *((name, {"kind": kind}) for name in ("pascal", "invpascal")
                            for kind in (None, "symmetric", "lower", "upper"))):
        expected = np.asarray(getattr(jax.scipy.linalg, name)(n, **options))
        if name == "hadamard":  # whose default dtype is Python's int
            expected = expected.astype(np.int64)
        assert_equal(getattr(fsl, name)(n, **options), expected, name)
        assert_equal(fxgrad.jit(lambda x, name=name, options=options: getattr(fsl, name)(n, **options))(1.0), expected)
    assert fsl.block_diag().shape == (1, 0)
    assert_equal(fsl.toeplitz(Z[0]), scipy.linalg.toeplitz(Z[0]))
    assert_equal(fsl.hankel(V), scipy.linalg.hankel(V))


def test_expm_gives_up() -> None:
    large = np.stack([100 * S, S])
    for apply in (lambda f: f, fxgrad.jit):
        result = apply(lambda a: fsl.expm(a, max_squarings=3))(large)
        assert np.isnan(result[0]).all()
        np.testing.assert_allclose(result[1], scipy.linalg.expm(S), 2e-12)


# --- jax.lax.linalg ---------------------------------------------------------------------------------------------

PACKED = draw((4, 3), "float64")
TAUS = 2 / (1 + (np.tril(PACKED, -1) ** 2).sum(0))
LAX: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "cholesky": (lambda m, a: m.cholesky(a), (P,)),
    "cholesky_update": (lambda m, r, w: m.cholesky_update(r, w), (UPPER, V)),
    "eig": (lambda m, a: m.eig(a, enable_eigvec_derivs=True), (S,)),
    "eigh": (lambda m, a: m.eigh(a), (P,)),
    "lu": (lambda m, a: m.lu(a), (S,)),
    "qr": (lambda m, a: m.qr(a, full_matrices=False), (S[:, :3],)),
    "svd": (lambda m, a: m.svd(a, full_matrices=False), (S,)),
    "householder_product": (lambda m, a, t: m.householder_product(a, t), (PACKED, TAUS)),
    "householder_product stack": (lambda m, a, t: m.householder_product(a, t), (
        draw((2, 4, 3), "complex128"), draw((2, 2), "complex128"))),
    **{f"ormqr {left} {transpose}": (
        lambda m, a, t, c, left=left, transpose=transpose: m.ormqr(a, t, c, left=left, transpose=transpose),
        (PACKED, TAUS, B if left else B.T)) for left in (True, False) for transpose in (True, False)},
    "triangular_solve": (lambda m, a, b: m.triangular_solve(a, b, lower=True), (UPPER.T, B.T)),
    "triangular_solve vector": (lambda m, a, b: m.triangular_solve(a, b, left_side=True), (UPPER, V)),
    "tridiagonal_solve": (lambda m, low, d, high, b: m.tridiagonal_solve(low, d, high, b), (
        V, 5 + V, V[::-1].copy(), B)),
    "schur": (lambda m, a: m.schur(a), (S,)),
    "hessenberg": (lambda m, a: m.hessenberg(a), (S,)),
    "tridiagonal": (lambda m, a: m.tridiagonal(a), (P,)),
}


@pytest.mark.parametrize("case", LAX)
def test_lax(case: str) -> None:
    function, args = LAX[case]
    with jax.enable_x64(True):
        expected = leaves(function(jax.lax.linalg, *map(jnp.asarray, args)))
    for got, wanted in zip(leaves(function(flax, *args)), expected, strict=True):
        assert_equal(got, np.asarray(wanted), case)
    if case in ("schur", "hessenberg", "tridiagonal"):
        with pytest.raises(UnsupportedError, match="this rule is absent"):
            fxgrad.grad(lambda a: weighted(function(flax, a)))(*args)
        return
    check_grads(lambda *args: weighted([part for part in leaves(function(flax, *args)) if part.dtype.kind in "fc"]),
                args, order=2)


@pytest.mark.parametrize("assumed", ["gen", "sym", "her", "pos", "upper triangular", "lower triangular", None])
def test_solve_reads_what_scipy_reads(assumed: str | None) -> None:
    """Of symmetric and triangular matrices one triangle; the gradient is that in its elements."""
    a = S + np.diag([9.0, 8.0, 7.0, 6.0])
    for lower, transposed in itertools.product((False, True), repeat=2):
        options: dict[str, Any] = {"lower": lower, "assume_a": assumed, "transposed": transposed}

        def solved(a: Any, options: dict[str, Any] = options) -> Any:
            return fsl.solve(a, B, **options)

        whole = {"gen": a, None: a, "upper triangular": np.triu(a), "lower triangular": np.tril(a)}.get(
            assumed, np.tril(a) + np.tril(a, -1).T if lower else np.triu(a) + np.triu(a, 1).T)
        np.testing.assert_allclose(solved(a), np.linalg.solve(whole.T if transposed else whole, B), rtol=1e-10)
        if not transposed:
            np.testing.assert_allclose(fxgrad.jit(solved)(a), scipy.linalg.solve(a, B, **options), rtol=1e-10)
        check_grads(lambda a, solved=solved: np.sum(np.cos(solved(a))), (a,), order=1)
    b = Z @ Z.conj().T + 4 * np.eye(4)
    np.testing.assert_allclose(fsl.solve(np.tril(b), B, lower=True, assume_a="her"), np.linalg.solve(b, B), rtol=1e-10)
    symmetric = Z + Z.T
    np.testing.assert_allclose(fsl.solve(np.triu(symmetric), B, assume_a="sym", transposed=True),
                               np.linalg.solve(symmetric, B), rtol=1e-10)


def test_some_eigenvalues() -> None:
    values, vectors = fxgrad.jit(lambda a: fsl.eigh(a, subset_by_index=(1, 2)))(P)
    np.testing.assert_allclose(values, scipy.linalg.eigh(P, subset_by_index=(1, 2))[0], rtol=1e-10)
    np.testing.assert_allclose(P @ vectors, vectors * values, atol=1e-10)
    np.testing.assert_array_equal(fsl.eigh(P, eigvals_only=True, subset_by_index=(0, 0)), fsl.eigh(P)[0][:1])


def test_symmetric_product() -> None:
    c = S + S.T
    result = flax.symmetric_product(B, c, alpha=2.0, beta=0.5, symmetrize_output=True)
    np.testing.assert_allclose(result, 2 * B @ B.T + 0.5 * c, atol=1e-15, rtol=1e-12)


# --- names and messages -----------------------------------------------------------------------------------------

MISSING = {"funm"}  # what it computes has no derivative in jax, and its loops over pairs of elements are long


@pytest.mark.parametrize(("mine", "theirs", "missing"), [
    (fsl, jax.scipy.linalg, MISSING), (flax, jax.lax.linalg, {"qdwh"})], ids=["scipy", "lax"])
def test_names_and_signatures_are_jax_s(mine: Any, theirs: Any, missing: set[str]) -> None:
    names = {name for name in dir(theirs) if inspect.isfunction(getattr(theirs, name)) or
             (callable(getattr(theirs, name)) and not inspect.isclass(getattr(theirs, name))) if name[0] != "_"}
    names -= {name for name in names if name.endswith("_p")}
    assert set(mine.__all__) == names - missing
    for name in mine.__all__:
        ours, others = (inspect.signature(getattr(module, name)).parameters for module in (mine, theirs))
        more = [each for each in ours.values() if each.name not in others]  # SciPy's, by keyword
        assert all(each.kind is each.KEYWORD_ONLY and each.default is not each.empty for each in more), name
        assert [(each.name, each.kind, each.default) for each in ours.values() if each not in more] == \
            [(each.name, each.kind, each.default) for each in others.values()], name
        assert ">>>" in getattr(mine, name).__doc__, name


MESSAGES: dict[str, tuple[type[Exception], Function, str]] = {
    "trans": (ArgumentError, lambda: fsl.solve_triangular(S, B, trans="H"),
              "solve_triangular: trans='H'; it is one of 0, 1, 2, 'N', 'T', 'C'"),
    "rows": (ShapeError, lambda: fsl.cho_solve((S, True), np.ones(3)),
             ("cho_solve: a matrix of shape (4, 4) and a right side of shape (3,); a vector of 4 elements or matrices "
              "of 4 rows are needed")),
    "vector": (ShapeError, lambda: fsl.solve_sylvester(V, np.stack([S, S]), S),
               ("solve_sylvester: an array of shape (4,); a matrix, or a stack of matrices (two axes or more), is "
                "needed. Write x[:, None] for a column")),
    "assume": (ArgumentError, lambda: fsl.solve(S, B, assume_a="diag"),
               ("solve: assume_a='diag'; it is one of 'gen', 'sym', 'her', 'pos', 'upper triangular', 'lower "
                "triangular'")),
    "mode": (ArgumentError, lambda: fsl.qr(S, mode="reduced"),
             "qr: mode='reduced'; it is one of 'full', 'economic', 'r'"),
    "type": (UnsupportedError, lambda: fsl.eigh(S, S, type=2),
             "eigh: only type=1 and eigvals=None are supported: compute all and slice"),
    "polar": (ArgumentError, lambda: fsl.polar(S, method="newton"),
              "polar: side='right' and method='newton'; they are 'left' or 'right', and 'qdwh' or 'svd'"),
    "hadamard": (ArgumentError, lambda: fsl.hadamard(3), "hadamard: n=3; a power of 2 is needed"),
    "leslie": (ShapeError, lambda: fsl.leslie(V, V),
               "leslie: arrays of shapes (4,) and (4,); the second must be shorter by 1"),
    "subset": (UnsupportedError, lambda: flax.eigh(S, subset_by_index=(0, 1)),
               "eigh: subset_by_index=(0, 1) is not supported; compute all and slice"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name: str) -> None:
    kind, call, text = MESSAGES[name]
    with pytest.raises(kind, match=f"^{re.escape(text)}\n  at test_scipy_linalg.py:"):
        call()
