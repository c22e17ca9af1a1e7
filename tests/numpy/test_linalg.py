"""Linear algebra against jax.numpy.linalg, NumPy, and differences in float64."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from fxgrad.testing import check_grads
from tests.support.with_numpy import assert_equal, draw, leaves

pytestmark = pytest.mark.slow  # jax, the oracle, compiles in every test; the laws and the examples are quick

A, V, C = draw((3, 4), "float64"), draw((5,), "float64"), draw((3, 4), "complex128")
S, B = draw((4, 4), "float64"), draw((4, 2), "float64")
P = S @ S.T + 2 * np.eye(4)
Z = draw((4, 4), "complex128")
H = Z + Z.conj().T
STACK = draw((2, 3, 3), "float64")
WEIGHTS = draw((6, 6), "float64", seed="weights")

Function = Callable[..., Any]


def weighted(results: Any) -> Any:
    """A real number made of all results, none of which weighs as another."""
    total = 0.0
    for place, result in enumerate(leaves(results)):
        weights = draw(fnp.shape(result), "float64", seed=f"w{place}")
        total = total + (result.real * weights).sum()
        if result.dtype.kind == "c":
            total = total + (result.imag * (1 - weights)).sum()
    return total


# --- values, against jax ----------------------------------------------------------------------------------------

CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "cholesky": ("cholesky", (P,), {}),
    "cholesky upper": ("cholesky", (P,), {"upper": True}),
    "cholesky of a triangle": ("cholesky", (np.tril(P),), {"upper": True, "symmetrize_input": False}),
    "cholesky complex": ("cholesky", (H @ H,), {}),
    "cond": ("cond", (S,), {}),
    "cond 1": ("cond", (S, 1), {}),
    "cond -2": ("cond", (A, -2), {}),
    "cond fro": ("cond", (S, "fro"), {}),
    "cross": ("cross", (draw((2, 3), "float64"), draw((3,), "float64")), {}),
    "det": ("det", (S,), {}),
    **{f"det {n}": ("det", (draw((2, n, n), "float64"),), {}) for n in range(6)},
    "det complex": ("det", (Z,), {}),
    "diagonal": ("diagonal", (STACK,), {"offset": 1}),
    "eig": ("eig", (S,), {}),
    "eigh": ("eigh", (P,), {}),
    "eigh upper": ("eigh", (np.triu(P), "U"), {"symmetrize_input": False}),
    "eigvals": ("eigvals", (STACK,), {}),
    "eigvalsh": ("eigvalsh", (H,), {}),
    "inv": ("inv", (STACK,), {}),
    "inv complex": ("inv", (Z,), {}),
    "lstsq": ("lstsq", (A.T, B), {}),
    "lstsq vector": ("lstsq", (A.T, V[:4]), {}),
    "lstsq wide": ("lstsq", (A, V[:3]), {}),
    "lstsq of rank 1": ("lstsq", (np.outer(V, V[:3]), V), {}),
    "lstsq numpy": ("lstsq", (A.T, B), {"numpy_resid": True}),
    "lstsq cut": ("lstsq", (A.T, B, 0.5), {}),
    "matmul": ("matmul", (A, A.T), {}),
    "matrix_norm": ("matrix_norm", (A,), {"keepdims": True}),
    "matrix_power": ("matrix_power", (S, 5), {}),
    "matrix_power of integers": ("matrix_power", (S.astype(np.int32), 3), {}),
    "matrix_power -3": ("matrix_power", (STACK, -3), {}),
    "matrix_power 0": ("matrix_power", (STACK, 0), {}),
    "matrix_rank": ("matrix_rank", (np.outer(V, V),), {}),
    "matrix_rank stack": ("matrix_rank", (STACK, 0.5), {}),
    "matrix_rank tol": ("matrix_rank", (P,), {"tol": 2.5, "hermitian": True}),
    "matrix_rank vector": ("matrix_rank", (V,), {}),
    "matrix_transpose": ("matrix_transpose", (STACK,), {}),
    **{f"norm {order}": ("norm", (A, order), {}) for order in (1, 2, -2, "nuc", "fro", -np.inf)},
    "norm of planes": ("norm", (STACK, "nuc", (0, 2)), {"keepdims": True}),
    "outer": ("outer", (V, V), {}),
    "pinv": ("pinv", (A,), {}),
    "pinv tall": ("pinv", (draw((2, 4, 3), "complex128"),), {}),
    "pinv of rank 1": ("pinv", (np.outer(V, V),), {}),
    "pinv hermitian": ("pinv", (P,), {"hermitian": True}),
    "pinv rcond": ("pinv", (A,), {"rcond": 0.5}),
    "pinv empty": ("pinv", (np.zeros((0, 3)),), {}),
    "qr": ("qr", (A.T,), {}),
    "qr complete": ("qr", (A.T, "complete"), {}),
    "qr r": ("qr", (A, "r"), {}),
    "slogdet": ("slogdet", (STACK,), {}),
    "slogdet complex": ("slogdet", (Z,), {}),
    "slogdet qr": ("slogdet", (S,), {"method": "qr"}),
    "slogdet singular": ("slogdet", (np.zeros((3, 3)),), {}),
    "slogdet empty": ("slogdet", (np.zeros((0, 0)),), {}),
    "solve": ("solve", (S, B), {}),
    "solve vector": ("solve", (S, V[:4]), {}),
    "solve stack": ("solve", (STACK, draw((3, 2), "float64")), {}),
    "solve broadcast": ("solve", (STACK[:, None], draw((5, 3, 2), "float64")), {}),
    "solve one matrix": ("solve", (S, draw((2, 3, 4, 2), "float64")), {}),
    "solve vectors": ("solve", (STACK, V[:3]), {}),
    "svd": ("svd", (A,), {"full_matrices": False}),
    "svd values": ("svd", (A,), {"compute_uv": False}),
    "svd hermitian": ("svd", (P,), {"hermitian": True}),
    "svd hermitian values": ("svd", (S + S.T,), {"hermitian": True, "compute_uv": False}),
    "svdvals": ("svdvals", (STACK,), {}),
    "tensordot": ("tensordot", (A, A), {"axes": 2}),
    "tensorinv": ("tensorinv", (draw((2, 3, 6), "float64"),), {}),
    "tensorsolve": ("tensorsolve", (draw((2, 3, 6), "float64"), draw((2, 3), "float64")), {}),
    "tensorsolve axes": ("tensorsolve", (draw((2, 6, 3), "float64"), draw((2, 3), "float64")), {"axes": (1,)}),
    "trace": ("trace", (STACK,), {"offset": -1}),
    "vecdot": ("vecdot", (C, C), {}),
    "vector_norm": ("vector_norm", (A,), {"axis": 0, "ord": 3}),
}


def split(args: tuple[Any, ...]) -> tuple[list[int], list[Any]]:
    places = [place for place, arg in enumerate(args) if isinstance(arg, np.ndarray)]
    return places, [args[place] for place in places]


def called(module: Any, case: str) -> Function:
    """The function of the case's arrays."""
    name, args, options = CASES[case]
    places, _ = split(args)

    def call(*arrays: Any) -> list[Any]:
        given = dict(zip(places, arrays, strict=True))
        result = getattr(module.linalg, name)(*(given.get(place, arg) for place, arg in enumerate(args)), **options)
        return leaves(result)
    return call


NARROW = {"d": "f4", "D": "c8"}
ONLY_AT_ONCE = {"lstsq numpy"}
"""What jax does not trace either."""
TOGETHER = 12
"""So many cases are compiled as one program, for the tests of all of them."""


def arrays_of(case: str, narrow: bool = False) -> list[Any]:
    arrays = split(CASES[case][1])[1]
    return [array.astype(NARROW.get(array.dtype.char, array.dtype)) for array in arrays] if narrow else arrays


def among(case: str, cases: Iterable[str]) -> tuple[str, ...]:
    """Those of the cases that are compiled with this one."""
    ordered = sorted(cases)
    begin = ordered.index(case) // TOGETHER * TOGETHER
    return tuple(ordered[begin:begin + TOGETHER])


@cache
def values_of(jit: Function, module: Any, cases: tuple[str, ...]) -> dict[tuple[str, bool], list[Any]]:
    """The results of cases, compiled as one program, in float64 and in float32."""
    keys = [(case, narrow) for case in cases for narrow in (False, True)]
    with jax.enable_x64(module is jnp):
        results = jit(lambda given: [called(module, case)(*arrays) for (case, _), arrays in zip(
            keys, given, strict=True)])([arrays_of(*key) for key in keys])
    return {key: [*map(np.asarray, values)] for key, values in zip(keys, results, strict=True)}


@pytest.mark.parametrize("narrow", [False, True], ids=["float64", "float32"])
@pytest.mark.parametrize("case", CASES)
def test_values(case: str, narrow: bool) -> None:
    """At once, traced, and compiled."""
    arrays, function = arrays_of(case, narrow), called(fnp, case)
    found = [function(*arrays)]
    if case in ONLY_AT_ONCE:
        with jax.enable_x64(True):
            expected = called(jnp, case)(*map(jnp.asarray, arrays))
    else:
        cases = among(case, CASES.keys() - ONLY_AT_ONCE)
        expected = values_of(jax.jit, jnp, cases)[case, narrow]
        found += [fxgrad.make_program(function)(*arrays)(*arrays), values_of(fxgrad.jit, fnp, cases)[case, narrow]]
    tolerance = 2e-4 if narrow else 1e-12
    for results in found:
        for got, wanted in zip(leaves(results), map(np.asarray, expected), strict=True):
            assert np.shape(got) == wanted.shape
            if wanted.dtype.kind in "iu":
                np.testing.assert_array_equal(got, wanted)
                continue
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, tolerance, tolerance)


WITHOUT_GRADIENT = {
    "matrix_rank", "matrix_rank stack", "matrix_rank tol", "matrix_rank vector", "matrix_power of integers",
    "lstsq numpy", "slogdet singular", "slogdet empty", "slogdet qr", "det 0", "pinv empty", "norm of planes",
    "cross", "eig",
    # jax's derivatives of these are others, for reasons of its own; they are compared with differences below
    "cholesky of a triangle", "eigh upper", "lstsq of rank 1", "pinv rcond",
}


def loss_of(case: str, module: Any) -> Function:
    return lambda *given: weighted([part for part in called(module, case)(*given) if part.dtype.kind in "fc"])


WITH_GRADIENT = sorted(CASES.keys() - WITHOUT_GRADIENT)


def gradient_of(library: Any, module: Any, case: str) -> Function:
    gradient: Function = library.grad(loss_of(case, module), argnums=tuple(range(len(arrays_of(case)))))
    return gradient


@cache
def gradients_of(library: Any, module: Any, cases: tuple[str, ...]) -> dict[str, list[Any]]:
    """The gradients of cases, compiled as one program."""
    with jax.enable_x64(module is jnp):
        results = library.jit(lambda given: [gradient_of(library, module, case)(*arrays) for case, arrays in zip(
            cases, given, strict=True)])([*map(arrays_of, cases)])
    return dict(zip(cases, results, strict=True))


@pytest.mark.parametrize("case", WITH_GRADIENT)
def test_gradients(case: str) -> None:
    """Against jax, compiled, and the jvp against the vjp."""
    arrays, cases = arrays_of(case), among(case, WITH_GRADIENT)
    got = gradient_of(fxgrad, fnp, case)(*arrays)
    for mine, theirs, compiled in zip(got, gradients_of(jax, jnp, cases)[case], gradients_of(fxgrad, fnp, cases)[case],
                                      strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-12, 1e-12)
        np.testing.assert_allclose(compiled, mine, 1e-12, 1e-12)
    tangents = [draw(array.shape, array.dtype.name, seed="t") for array in arrays]
    _, moved = fxgrad.jvp(loss_of(case, fnp), tuple(arrays), tuple(tangents))
    pairs = zip(got, tangents, strict=True)
    np.testing.assert_allclose(moved, sum((mine * tangent).sum().real for mine, tangent in pairs), 1e-12, 1e-12)


@pytest.mark.parametrize("case", ["cholesky of a triangle", "eigh upper", "pinv rcond", "slogdet qr", "lstsq cut"])
def test_gradients_by_differences(case: str) -> None:
    check_grads(loss_of(case, fnp), tuple(split(CASES[case][1])[1]), order=2)


SECOND: dict[str, Function] = {
    "cholesky": lambda s: fnp.linalg.cholesky(s @ s.T + np.eye(3)),
    "eigh": lambda s: [*fnp.linalg.eigh(s)],
    "eig": lambda s: [abs(part) for part in fnp.linalg.eig(s + np.diag([0.0, 9.0, 20.0]))],
    "svd": lambda s: [*fnp.linalg.svd(s[:2], full_matrices=False)],
    "qr": lambda s: [*fnp.linalg.qr(s)],
    "qr wide": lambda s: [*fnp.linalg.qr(s[:2])],
    "qr complete": lambda s: [*fnp.linalg.qr(s[:, :2], "complete")],
    "solve": lambda s: fnp.linalg.solve(s, s[0]),
    "inv": lambda s: fnp.linalg.inv(s),
    "slogdet": lambda s: fnp.linalg.slogdet(s).logabsdet,
    "det": lambda s: fnp.linalg.det(s),
    "det 4": lambda s: fnp.linalg.det(fnp.pad(s, (0, 1), constant_values=0.5)),
    "pinv": lambda s: fnp.linalg.pinv(s[:2]),
    "lstsq": lambda s: fnp.linalg.lstsq(s[:, :2], s[:, 2])[0],
    "nuclear norm": lambda s: fnp.linalg.norm(s, "nuc"),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_order(name: str) -> None:
    check_grads(lambda s: weighted(SECOND[name](s)), (draw((3, 3), "float64"),), order=2)


@pytest.mark.parametrize("name", ["solve", "inv", "det", "slogdet", "cholesky", "svdvals", "eigvalsh", "pinv"])
def test_vmap(name: str) -> None:
    function = getattr(fnp.linalg, name)
    stack = draw((5, 3, 3), "float64")
    stack = stack @ stack.swapaxes(1, 2) + np.eye(3)
    if name == "solve":
        right = draw((5, 3), "float64")
        for in_axes, args in ((0, (stack, right)), ((None, 0), (stack[0], right)), ((0, None), (stack, right[0]))):
            axes = in_axes if isinstance(in_axes, tuple) else (0, 0)
            loop = [function(*(arg if axis is None else arg[i] for arg, axis in zip(args, axes, strict=True)))
                    for i in range(5)]
            assert_equal(fxgrad.vmap(function, in_axes)(*args), np.stack(loop))
        return
    loop = [leaves(function(each)) for each in stack]
    for got, expected in zip(leaves(fxgrad.vmap(function)(stack)), zip(*loop, strict=True), strict=True):
        assert_equal(got, np.stack(expected))
    gradients = fxgrad.vmap(fxgrad.grad(lambda each: weighted(function(each))))(stack)
    np.testing.assert_allclose(gradients[2], fxgrad.grad(lambda each: weighted(function(each)))(stack[2]), 1e-12)


# --- the number of decompositions -------------------------------------------------------------------------------


def count(program: fxgrad.Program, name: str) -> int:
    return sum(equation.primitive.name == name for equation in program.equations)


@pytest.mark.parametrize("function", [
    lambda a, b: fnp.linalg.solve(a, b).sum(), lambda a, b: fnp.linalg.slogdet(a).logabsdet * b.sum(),
    lambda a, b: (fnp.linalg.inv(a) @ b).sum()])
def test_derivatives_factor_once(function: Function) -> None:
    for order, transform in enumerate((lambda f: f, lambda f: fxgrad.grad(f, argnums=(0, 1)), fxgrad.hessian)):
        program = fxgrad.make_program(transform(function))(S, B[:, 0])
        assert count(program, "lu") == 1, order
        assert count(program, "stop_gradient") <= 1


# --- equal eigenvalues, equal and zero singular values ----------------------------------------------------------


def test_sums_of_eigenvalues_at_equal_ones() -> None:
    total = fxgrad.grad(lambda a: fnp.linalg.eigh(a).eigenvalues.sum())
    np.testing.assert_allclose(total(np.eye(3)), np.eye(3), atol=1e-15, rtol=1e-12)
    cubes = lambda a: (fnp.linalg.eigh(a).eigenvalues ** 3).sum()
    np.testing.assert_allclose(fxgrad.grad(cubes)(2 * np.eye(3)), 12 * np.eye(3), atol=1e-15, rtol=1e-12)
    with jax.enable_x64(True):
        expected = np.asarray(jax.hessian(lambda a: jnp.trace(a @ a @ a))(np.diag([1.0, 2.0, 4.0])))
    symmetric = lambda a: cubes((a + a.T) / 2)
    got = fxgrad.hessian(symmetric)(np.diag([1.0, 2.0, 4.0]))
    averaged = (expected + expected.swapaxes(2, 3)) / 2
    averaged = (averaged + averaged.swapaxes(0, 1)) / 2
    np.testing.assert_allclose(got, averaged, atol=1e-14, rtol=1e-12)
    assert np.isfinite(fxgrad.hessian(cubes)(np.eye(3))).all()


def test_projectors_at_equal_eigenvalues() -> None:
    """The space of the two greater eigenvalues has a derivative, though they are equal up to rounding."""
    q = np.linalg.qr(S)[0]
    a = q @ np.diag([1.0, 1.0, 3.0, 3.0]) @ q.T

    def entries(a: Any) -> Any:
        vectors = fnp.linalg.eigh(a).eigenvectors[:, 2:]
        return (vectors @ vectors.T * WEIGHTS[:4, :4]).sum()

    step = 1e-5
    change = draw((4, 4), "float64", seed="change")
    difference = (entries(a + step * change) - entries(a - step * change)) / (2 * step)
    gradient = fxgrad.grad(entries)(a)
    np.testing.assert_allclose((gradient * change).sum(), difference, rtol=1e-6)


def test_matrix_functions_at_equal_eigenvalues() -> None:
    """Right where the cotangent does not mix the vectors of one value, and finite everywhere."""
    def trace_of_exponential(a: Any) -> Any:
        w, v = fnp.linalg.eigh(a)
        return fnp.trace((v * fnp.exp(w)) @ v.T)

    np.testing.assert_allclose(fxgrad.grad(trace_of_exponential)(np.eye(3)), np.e * np.eye(3), atol=1e-15, rtol=1e-12)
    assert np.isfinite(fxgrad.hessian(trace_of_exponential)(np.eye(3))).all()


@pytest.mark.parametrize("a", [np.eye(3), np.zeros((2, 3)), np.pad(A, ((0, 2), (0, 2))), np.diag([2.0, 2.0, 0.0])],
                         ids=["identity", "zero", "padded", "diagonal"])
def test_singular_values_at_equal_ones(a: Any) -> None:
    def squares(a: Any) -> Any:
        return (fnp.linalg.svd(a, full_matrices=False).S ** 2).sum()

    np.testing.assert_allclose(fxgrad.grad(squares)(a), 2 * a, atol=1e-15, rtol=1e-12)

    def restored(a: Any) -> Any:
        u, s, vh = fnp.linalg.svd(a, full_matrices=False)
        return fnp.trace((u * s) @ vh)

    assert np.isfinite(fxgrad.grad(restored)(a)).all()
    assert np.isfinite(fxgrad.hessian(restored)(a)).all()


def test_a_matrix_of_low_rank_is_restored() -> None:
    """U diag(s) Vᴴ is the matrix, so its gradient is that of the identity, within the space of that rank."""
    a = np.pad(A[:2, :2], ((0, 1), (0, 1)))

    def restored(a: Any) -> Any:
        u, s, vh = fnp.linalg.svd(a)
        return ((u * s) @ vh * np.pad(WEIGHTS[:2, :2], ((0, 1), (0, 1)))).sum()

    np.testing.assert_allclose(fxgrad.grad(restored)(a)[:2, :2], WEIGHTS[:2, :2], atol=1e-15, rtol=1e-12)


def test_pinv_and_lstsq_at_equal_singular_values() -> None:
    q = np.linalg.qr(S)[0][:, :3]
    check_grads(lambda a: weighted(fnp.linalg.pinv(a)), (q,), order=2)
    check_grads(lambda a: weighted(fnp.linalg.lstsq(a, B)[0]), (q,), order=2)


@pytest.mark.parametrize("rank", range(5))
def test_det_of_singular_matrices(rank: int) -> None:
    """To second order at every rank, against the polynomial that the determinant is."""
    a = S[:, :rank] @ draw((rank, 4), "float64", seed="other")

    def expanded(a: Any) -> Any:
        orders = list(itertools.permutations(range(4)))
        signs = [np.linalg.det(np.eye(4)[list(order)]) for order in orders]
        return np.array(signs) @ jnp.prod(a[np.arange(4), np.array(orders)], axis=1)

    with jax.enable_x64(True):
        gradient, hessian = jax.jit(lambda a: (jax.grad(expanded)(a), jax.hessian(expanded)(a)))(a)
    for apply in (lambda f: f, fxgrad.jit):
        np.testing.assert_allclose(apply(fxgrad.grad(fnp.linalg.det))(a), gradient, 2e-11, 2e-11)
        np.testing.assert_allclose(apply(fxgrad.hessian(fnp.linalg.det))(a), hessian, 2e-12, 2e-12)


# --- complex vectors: derivatives of what does not depend on their phases ---------------------------------------


@pytest.mark.parametrize("name", ["eigh", "svd", "svd full", "eig", "qr complete"])
def test_complex_decompositions(name: str) -> None:
    wide = Z[:3] if name.startswith("svd") else Z[:, :3] if name.startswith("qr") else Z

    def entries(x: Any) -> Any:
        if name == "eigh":
            w, v = fnp.linalg.eigh(x)
            parts = [w, (v[:, :2] * w[:2]) @ v[:, :2].conj().T]
        elif name == "eig":
            w, v = fnp.linalg.eig(x)
            parts = [abs(w), abs(v), v]
        elif name == "qr complete":
            parts = [*fnp.linalg.qr(x, "complete")]
        else:
            u, s, vh = fnp.linalg.svd(x, full_matrices=name == "svd full")
            rest = vh[3:]
            parts = [s, (u[:, :2] * s[:2]) @ vh[:2], rest.conj().T @ rest]
        return weighted(parts)

    change = draw(wide.shape, "complex128", seed="change")
    step = 1e-5
    difference = (entries(wide + step * change) - entries(wide - step * change)) / (2 * step)
    np.testing.assert_allclose(fxgrad.jvp(entries, (wide,), (change,))[1], difference, rtol=2e-7)
    np.testing.assert_allclose((fxgrad.grad(entries)(wide) * change).sum().real, difference, rtol=2e-7)


# --- what numpy.linalg has --------------------------------------------------------------------------------------


def test_names_and_signatures_are_jax_s() -> None:
    assert fnp.linalg.__all__ == sorted(name for name in dir(jnp.linalg) if not name.startswith("_"))
    for name in set(fnp.linalg.__all__) - {"matmul", "tensordot", "matrix_transpose"}:
        mine = inspect.signature(getattr(fnp.linalg, name)).parameters
        theirs = inspect.signature(getattr(jnp.linalg, name)).parameters
        assert [(each.name, each.kind, each.default) for each in mine.values()
                if (name, each.name) != ("vecdot", "keepdims")] == [  # which NumPy's ufunc has
            (each.name, each.kind, each.default) for each in theirs.values()], name
        text = getattr(fnp.linalg, name).__doc__
        assert ">>>" in text, name


def test_numpys_own_functions() -> None:
    def loss(a: Any, b: Any) -> Any:
        x = np.linalg.solve(a, b)
        w, v = np.linalg.eigh(a + a.T)
        s = np.linalg.svd(a, compute_uv=False)
        return np.linalg.slogdet(a)[1] + x.sum() + (w * s).sum() + np.linalg.norm(np.linalg.inv(a)) + abs(v).sum() + \
            np.linalg.det(a) + np.linalg.cond(a) + np.linalg.qr(a)[1][0, 0] + np.linalg.trace(np.linalg.pinv(a))

    check_grads(loss, (S, B), order=1)
    x, _, rank, _ = np.linalg.lstsq(*map(fxgrad.stop_gradient, (A.T, B)), rcond=None)
    assert rank == 3
    np.testing.assert_allclose(x, np.linalg.lstsq(A.T, B, rcond=None)[0], rtol=1e-12)
    assert_equal(fxgrad.vmap(np.linalg.cholesky)(P[None]), np.linalg.cholesky(P)[None])


# --- norms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [None, 1, -1, np.inf, -np.inf, "fro", "nuc", 2, -2])
@pytest.mark.parametrize("x", [A, C, A.astype(np.float32), A.astype(np.int32)], ids=["f64", "c128", "f32", "i32"])
def test_matrix_norms(x: Any, order: Any) -> None:
    expected = np.linalg.norm(x, order)
    assert_equal(fnp.linalg.norm(x, order), expected.astype(np.float32 if x.dtype.itemsize == 4 else np.float64))
    program = fxgrad.make_program(lambda x: np.linalg.norm(x, order, axis=(1, 0)))(A)
    assert_equal(program(A), np.linalg.norm(A, order, axis=(1, 0)))


@pytest.mark.parametrize("order", [None, 0, 1, 2, 3, 0.5, np.inf, -np.inf])
def test_vector_norms(order: Any) -> None:
    assert_equal(fnp.linalg.norm(V, order), np.linalg.norm(V, order))
    assert_equal(fnp.linalg.norm(A, order, axis=1, keepdims=True), np.linalg.norm(A, order, axis=1, keepdims=True))


def test_squares_of_norms_of_half_precision_do_not_overflow() -> None:
    x = np.array([3e3, 4e3], np.float16)
    for transform in (lambda f: f, fxgrad.jit):
        for norm in (fnp.linalg.norm, fnp.linalg.vector_norm):
            found = transform(norm)(x)
            assert found.dtype == np.float16
            np.testing.assert_allclose(float(found), 5e3, rtol=1e-3)
            np.testing.assert_allclose(transform(fxgrad.grad(norm))(x).astype(float), [0.6, 0.8], rtol=2e-3)
        np.testing.assert_allclose(float(transform(fnp.linalg.norm)(fnp.stack([x, x]))), 5e3 * np.sqrt(2), rtol=1e-3)


def test_norms_of_parts() -> None:
    assert_equal(fnp.linalg.multi_dot([A, A.T, A]), A @ A.T @ A)
    assert_equal(fnp.linalg.multi_dot([V[:3], A, A.T, V[:3]]), V[:3] @ A @ A.T @ V[:3])
    assert_equal(fnp.linalg.matrix_norm(A), np.linalg.matrix_norm(A))
    assert_equal(fnp.linalg.vector_norm(A, axis=0, ord=3), np.linalg.vector_norm(A, axis=0, ord=3))
    gradient = fxgrad.grad(lambda x: np.linalg.norm(x))(V)
    np.testing.assert_allclose(gradient, V / np.linalg.norm(V), rtol=1e-12)
    assert_equal(np.asarray(fnp.linalg.det(A[:3, :3].astype(np.float32))), np.linalg.det(A[:3, :3]).astype(np.float32))


# --- messages ---------------------------------------------------------------------------------------------------

UNDER_JIT = " (Under jit the result would be NaN, without an error)"
HALF = np.ones((2, 2), np.float16)
MESSAGES: dict[str, tuple[type[Exception], Function, str]] = {
    "cholesky": (np.linalg.LinAlgError, lambda: fnp.linalg.cholesky(-np.eye(2)),
                 "cholesky: a matrix of shape (2, 2) is not positive definite. Is it symmetric? A small multiple of "
                 "the identity added to it often helps." + UNDER_JIT),
    "solve": (np.linalg.LinAlgError, lambda: fxgrad.grad(lambda a: fnp.linalg.solve(a, V[:2]).sum())(np.ones((2, 2))),
              "solve: a matrix of shape (2, 2) is singular, so the system has no unique solution. Use lstsq, or pinv, "
              "for the least-squares solution." + UNDER_JIT),
    "not square": (ShapeError, lambda: fnp.linalg.inv(A),
                   "inv: matrices of 3 rows and 4 columns (shape (3, 4)); square ones are needed"),
    "a vector": (ShapeError, lambda: fnp.linalg.svd(V),
                 ("svd: an array of shape (5,); a matrix, or a stack of matrices (two axes or more), is needed. Write "
                 "x[:, None] for a column")),
    "float16": (DTypeError, lambda: fnp.linalg.det(HALF),
                ("det: not defined for float16; it takes float32, float64, complex64, complex128. Convert first, for "
                "example x.astype('float32')")),
    "systems": (ShapeError, lambda: fnp.linalg.solve(STACK, np.ones((2, 2))),
                ("solve: a matrix of shape (2, 3, 3) and a right side of shape (2, 2); a vector of 3 elements or "
                "matrices of 3 rows are needed. Vectors in a stack are columns: write b[..., None]")),
    "UPLO": (ArgumentError, lambda: fnp.linalg.eigh(S, "l"), "eigh: UPLO='l'; it is 'L' or 'U'"),
    "qr": (ArgumentError, lambda: fnp.linalg.qr(S, "economic"),
           "qr: mode='economic'; it is one of 'reduced', 'complete', 'r'"),
    "raw": (UnsupportedError, lambda: fnp.linalg.qr(S, "raw"),
            ("qr: mode='raw' is not supported: LAPACK's packed form has no derivatives here. Write "
            "fxgrad.numpy.linalg.qr(a), which gives Q and R")),
    "norm": (ArgumentError, lambda: fnp.linalg.norm(A, "x"),
             "norm: ord='x' of matrices; it is one of 'fro', 'nuc', 1, -1, 2, -2, inf, -inf"),
    "axes": (ArgumentError, lambda: fnp.linalg.norm(A[None], 1),
             "norm: ord=1 along 3 axes; a vector norm has one and a matrix norm two: name them with axis="),
    "multi_dot": (ShapeError, lambda: fnp.linalg.multi_dot([A, A]),
                  ("multi_dot: arrays of shapes (3, 4), (3, 4); matrices that fit each other are needed (the first and "
                  "last may be vectors)")),
    "power": (ArgumentError, lambda: fnp.linalg.matrix_power(S, 0.5),
              "matrix_power: an integer is needed, got 0.5"),
    "lstsq": (ShapeError, lambda: fnp.linalg.lstsq(A, np.ones(4)),
              ("lstsq: a matrix of shape (3, 4) and a right side of shape (4,); a matrix and a vector or matrix of as "
              "many rows are needed")),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name: str) -> None:
    kind, call, text = MESSAGES[name]
    with pytest.raises(kind, match=f"^{re.escape(text)}\n  at test_linalg.py:") as raised:
        call()
    assert raised.type is kind


def test_failures_are_nan_under_jit() -> None:
    assert np.isnan(fxgrad.jit(fnp.linalg.cholesky)(-np.eye(2))).any()
    assert not np.isfinite(fxgrad.jit(fnp.linalg.inv)(np.ones((2, 2)))).all()
    assert np.isnan(fxgrad.jit(fnp.linalg.eigvalsh)(np.full((2, 2), np.nan))).all()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("name", ["eigvalsh", "eigvalsh U", "eigh", "eigh U", "cholesky", "cholesky upper", "svd",
                                  "pinv", "matrix_rank", "matrix_rank rtol"])
def test_numpys_functions_read_the_triangle_that_they_say(name: str, dtype: Any) -> None:
    """Of matrices that are not symmetric: the same un-traced, under every transformation, and to the second order."""
    random = np.random.default_rng(0)
    a = (random.normal(size=(3, 3)) + 4 * np.eye(3)).astype(dtype)
    if dtype == np.complex128:
        a = a + 1j * random.normal(size=(3, 3)) * 0.3
    functions = {
        "eigvalsh": np.linalg.eigvalsh, "eigvalsh U": lambda a: np.linalg.eigvalsh(a, "U"),
        "eigh": lambda a: np.linalg.eigh(a)[0], "eigh U": lambda a: np.linalg.eigh(a, UPLO="U").eigenvalues,
        "cholesky": np.linalg.cholesky, "cholesky upper": lambda a: np.linalg.cholesky(a, upper=True),
        "svd": lambda a: np.linalg.svd(a, compute_uv=False, hermitian=True),
        "pinv": lambda a: np.linalg.pinv(a, hermitian=True),
        "matrix_rank": lambda a: np.linalg.matrix_rank(a, hermitian=True),
        "matrix_rank rtol": lambda a: np.linalg.matrix_rank(a, rtol=0.5)}
    function = functions[name]
    expected = function(a)
    for got in (fxgrad.jvp(function, (a,), (a,))[0], fxgrad.vmap(function)(a[None])[0], fxgrad.jit(function)(a)):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    if dtype == np.float64 and not name.startswith("matrix_rank"):
        fxgrad.testing.check_grads(function, (a,), order=2)


@pytest.mark.parametrize("lower", [True, False])
def test_without_symmetrizing_one_triangle_counts(lower: bool) -> None:
    a = np.random.default_rng(0).normal(size=(3, 3)) + 4 * np.eye(3)
    whole = np.where(np.tri(3, dtype=bool) if lower else np.tri(3, dtype=bool).T, a, a.T)
    for function in (lambda a: fnp.linalg.eigh(a, "L" if lower else "U", symmetrize_input=False).eigenvalues,
                     lambda a: fxgrad.lax.linalg.eigh(a, lower=lower, symmetrize_input=False)[1]):
        np.testing.assert_allclose(function(a), np.linalg.eigvalsh(whole), rtol=1e-13)
        fxgrad.testing.check_grads(function, (a,), order=2)
    np.testing.assert_allclose(fnp.linalg.eigvalsh(a), np.linalg.eigvalsh((a + a.T) / 2), rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_gradients_of_determinants_of_large_and_of_nearly_singular_matrices(dtype: Any) -> None:
    """By one factorization where that has the digits, and else by singular values, alone and compiled."""
    random = np.random.default_rng(0)
    large = (random.normal(size=(200, 200)) / 14).astype(dtype)
    singular = random.normal(size=(5, 4)) @ random.normal(size=(4, 5))
    nearly = (singular + 1e-9 * random.normal(size=(5, 5))).astype(dtype)
    stack = np.stack([nearly, np.eye(5, dtype=dtype), singular.astype(dtype)])

    def minors(a: Any) -> Any:
        wide = np.complex128 if dtype == np.complex128 else np.float64
        signs = (-1.0) ** np.add.outer(np.arange(len(a)), np.arange(len(a)))
        a = a.astype(wide)
        return signs * np.array([[np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(len(a))]
                                 for i in range(len(a))])

    tolerance = 2e-3 if dtype == np.float32 else 1e-9
    gradient = fxgrad.grad(fnp.linalg.det, holomorphic=dtype == np.complex128)
    for derive in (gradient, fxgrad.jit(gradient)):
        exact = np.linalg.det(large.astype(np.complex128)) * np.linalg.inv(large.astype(np.complex128)).T
        assert np.max(np.abs(derive(large) - exact)) <= tolerance * np.max(np.abs(exact))
        for matrix, got in zip(stack, fxgrad.vmap(derive)(stack), strict=True):
            np.testing.assert_allclose(got, minors(matrix), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("exponent", [-0.9, -0.6, -0.4, 0.4, 0.6, 0.9])
def test_eigenvalues_of_very_small_and_very_large_matrices(exponent: float, dtype: Any) -> None:
    """They grow as the matrix does; LAPACK scales such matrices, and some versions do not scale the results back."""
    scale = float(np.finfo(dtype).max) ** exponent
    stack = np.stack([S * scale, S, np.zeros_like(S)]).astype(dtype)
    expected = np.linalg.eigvals(S.astype(dtype))

    def in_order(values: Any) -> Any:
        return sorted(values.astype(complex), key=lambda value: (round(value.real, 3), value.imag))

    for function in (fnp.linalg.eigvals, fxgrad.jit(fnp.linalg.eigvals), lambda a: fnp.linalg.eig(a)[0]):
        values = np.asarray(function(stack))
        for found, factor in zip(values, (scale, 1.0, 0.0), strict=True):
            np.testing.assert_allclose(in_order(found / dtype(factor or 1.0)),
                                       in_order(expected * (factor != 0.0)), rtol=100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("p", [1, -1, "fro", np.inf, -np.inf])
def test_condition_numbers_of_singular_matrices_are_infinite(p: Any) -> None:
    singular, regular = np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([[1.0, 2.0], [3.0, 5.0]])
    broken = np.array([[1.0, np.nan], [0.0, 1.0]])
    for function in (fnp.linalg.cond, fxgrad.jit(fnp.linalg.cond, static_argnums=1),
                     lambda x, p: fxgrad.vmap(lambda a: fnp.linalg.cond(a, p))(x) if x.ndim > 2 else np.inf):
        found = np.asarray(function(np.stack([singular, regular, broken]), p))
        np.testing.assert_allclose(found, [np.inf, np.linalg.cond(regular, p), np.nan], rtol=1e-12)
        assert function(singular, p) == np.inf


def test_condition_numbers_by_singular_values_are_theirs() -> None:
    """As in jax, of a matrix of zeros it is not a number; NumPy's is infinite."""
    for p in (None, 2):
        assert np.isnan(fnp.linalg.cond(np.zeros((2, 2)), p))
        with_nan = np.array([[1.0, np.nan], [0.0, 1.0]])
        found = fxgrad.vmap(lambda a, p=p: np.linalg.cond(a, p))(np.stack([np.zeros((2, 2)), with_nan]))
        np.testing.assert_array_equal(found, [np.inf, np.nan])
        assert fnp.linalg.cond(np.diag([3.0, 2.0]), p) == pytest.approx(1.5)
