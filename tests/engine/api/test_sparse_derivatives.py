"""Sparse Jacobians and Hessians: sparse problems against jax's dense derivatives, colors, forms, modes and errors."""

from __future__ import annotations

import gc
import pickle
import re
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse as jax_sparse
from scipy import optimize, sparse

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.api import sparse_derivatives
from fxgrad.engine.api.sparse_derivatives import SparsePlan, _Kept
from fxgrad.errors import ArgumentError, DTypeError, UnsupportedError

N = 12
EDGES = np.array([[i, (3 * i + 1) % N] for i in range(N)])
BAND = np.triu(np.tril(np.random.default_rng(0).normal(size=(N, N)), 1), -1)


def laplacian(u: Any) -> Any:
    """The negative Laplacian of a field with zeros around it."""
    inner = 4.0 * u
    inner = inner.at[1:, :].add(-u[:-1, :]).at[:-1, :].add(-u[1:, :])
    return inner.at[:, 1:].add(-u[:, :-1]).at[:, :-1].add(-u[:, 1:])


def brusselator(np_: Any, z: Any) -> Any:
    u, v = z[:N // 2], z[N // 2:]
    reaction = 1.0 + u * u * v - 4.0 * u
    return np_.concatenate([reaction + np_.roll(u, 1) - 2.0 * u + np_.roll(u, -1),
                            3.0 * u - u * u * v + np_.roll(v, 1) - 2.0 * v + np_.roll(v, -1)])


def collocation(np_: Any, z: Any) -> Any:
    state, control = z[:N // 2], z[N // 2:]
    slope = np_.sin(state) + control
    return state[1:] - state[:-1] - 0.05 * (slope[1:] + slope[:-1])


def segments(xp: Any, x: Any) -> Any:
    return (xp.zeros(4).at[np.arange(N) % 4].add(x * x) if xp is jnp else fnp.zeros(4).at[np.arange(N) % 4].add(x * x))


def recurrence(xp: Any, x: Any) -> Any:
    scan = jax.lax.scan if xp is jnp else fxgrad.lax.scan
    return scan(lambda carry, each: (carry * 0.5 + each, xp.sin(each) * 2.0), x[0], x)[1]


def heat(xp: Any, x: Any) -> Any:
    loop = jax.lax.fori_loop if xp is jnp else fxgrad.lax.fori_loop
    return loop(0, 2, lambda _, u: u + 0.1 * (xp.roll(u, 1) - 2.0 * u + xp.roll(u, -1)) * u, x)


FIELDS: dict[str, Callable[[Any, Any], Any]] = {
    "tridiagonal": lambda xp, x: x[1:-1] ** 2 + xp.sin(x[:-2]) * x[2:],
    "brusselator": brusselator,
    "burgers": lambda xp, x: -x * (xp.roll(x, -1) - xp.roll(x, 1)) + 0.1 * (
        xp.roll(x, -1) - 2.0 * x + xp.roll(x, 1)),
    "collocation": collocation,
    "springs": lambda xp, x: xp.sin(x[EDGES[:, 0]] - x[EDGES[:, 1]]),
    "banded": lambda xp, x: BAND @ xp.tanh(x),
    "arrowhead": lambda xp, x: xp.concatenate([xp.sum(x * x)[None], x[1:] * x[0]]),
    "bratu": lambda xp, x: (laplacian_of(xp, x) + xp.exp(x)).reshape(-1),
    "segments": segments,
    "scan": recurrence,
    "heat in a loop": heat,
    "blocks": lambda xp, x: xp.tanh(x.reshape(4, 3) @ np.arange(9.0).reshape(3, 3)).reshape(-1),
    "softmax of rows": lambda xp, x: (xp.exp(x.reshape(4, 3)) / xp.sum(
        xp.exp(x.reshape(4, 3)), axis=1, keepdims=True)).reshape(-1),
    "sorted": lambda xp, x: xp.sort(x.reshape(3, 4), axis=1).reshape(-1),
    "interpolation": lambda xp, x: xp.interp(np.linspace(0.1, 0.9, 5), np.linspace(0.0, 1.0, N), x),
    "wave": lambda xp, x: xp.concatenate([x[6:], xp.roll(x[:6], 1) - 2.0 * x[:6] + xp.roll(x[:6], -1) - x[:6] ** 3]),
    "pendulums": lambda xp, x: xp.concatenate([x[6:], -xp.sin(x[:6]) + 0.1 * (xp.roll(x[:6], 1) - x[:6])]),
    "allen cahn": lambda xp, x: 0.01 * laplacian_of(xp, x) + x - x ** 3,
    "network": lambda xp, x: xp.zeros(N).at[EDGES[:, 1]].add(xp.tanh(x[EDGES[:, 0]])),
    "triangular": lambda xp, x: xp.triu(x.reshape(3, 4)[:, :3]) @ x[:3],
    "relu": lambda xp, x: xp.maximum(x[1:] - x[:-1], 0.0),
    "spectrum": lambda xp, x: xp.abs(xp.fft.rfft(x)) ** 2,
    "masked": lambda xp, x: x * (np.arange(N) % 3 == 0) + 0.0 * xp.sum(x),
}


def laplacian_of(xp: Any, x: Any) -> Any:
    return laplacian(x.reshape(3, 4) if xp is jnp else fnp.asarray(x.reshape(3, 4))).reshape(-1)


ENERGIES: dict[str, Callable[[Any, Any], Any]] = {
    "pentadiagonal": lambda xp, x: xp.sum((x[2:] - 2.0 * x[1:-1] + x[:-2]) ** 4),
    "rosenbrock": lambda xp, x: xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2),
    "arrowhead": lambda xp, x: x[0] * xp.sum(x[1:] ** 2) + xp.sum(xp.sin(x)),
    "membrane": lambda xp, x: xp.sum(xp.sqrt(1.0 + (x.reshape(3, 4)[1:, 1:] - x.reshape(3, 4)[:-1, :-1]) ** 2)),
    "separable": lambda xp, x: xp.sum(xp.log(1.0 + x * x)),
    "springs": lambda xp, x: xp.sum((x[EDGES[:, 0]] - x[EDGES[:, 1]]) ** 4),
    "groups": lambda xp, x: xp.sum(xp.prod(x.reshape(4, 3), axis=1)),
    "linear": lambda xp, x: xp.sum(BAND @ x),
    "lagrangian": lambda xp, x: xp.sum(np.arange(5.0) * collocation(xp, x)) + xp.sum(x[N // 2:] ** 2),
    "logistic": lambda xp, x: xp.sum(xp.log1p(xp.exp(-(BAND @ x)))) + xp.sum(x * x),
    "chain": lambda xp, x: xp.sum((x[:-1] * x[1:] - 1.0) ** 2) + x[0] ** 4,
}


@pytest.fixture(autouse=True)
def _float64() -> Any:
    with jax.enable_x64(True):
        yield


X = np.random.default_rng(1).uniform(0.2, 1.0, N)


def some_slow(names: Iterable[str], *quick: str) -> list[Any]:
    """`names`, of which the quick tier takes `quick`: each of them compiles two functions."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in quick)) for name in names]


@pytest.mark.parametrize("name", some_slow(FIELDS, "segments", "scan"))
def test_sparse_jacobians_equal_dense_ones_of_jax(name: str) -> None:
    field = FIELDS[name]
    expected = np.asarray(jax.jit(jax.jacobian(lambda x: field(jnp, x)))(jnp.asarray(X)))
    found = fxgrad.jacobian(lambda x: field(fnp, x), sparse=True)(X)
    assert isinstance(found, sparse.csr_array)
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-13)
    assert set(zip(*np.nonzero(expected), strict=True)) <= set(zip(*found.nonzero(), strict=True)) | set(
        zip(*[each.tolist() for each in found.tocoo().coords], strict=True))
    compiled = fxgrad.jit(fxgrad.jacobian(lambda x: field(fnp, x), sparse=True))(jnp.asarray(X))
    assert isinstance(compiled, jax_sparse.BCOO)
    np.testing.assert_allclose(compiled.todense(), expected, atol=1e-13)


@pytest.mark.parametrize("name", some_slow(ENERGIES, "separable"))
def test_sparse_hessians_equal_dense_ones_of_jax(name: str) -> None:
    energy = ENERGIES[name]
    expected = np.asarray(jax.jit(jax.hessian(lambda x: energy(jnp, x)))(jnp.asarray(X)))
    found = fxgrad.hessian(lambda x: energy(fnp, x), sparse=True)(X)
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-11)
    compiled = fxgrad.jit(fxgrad.hessian(lambda x: energy(fnp, x), sparse=True))(jnp.asarray(X))
    np.testing.assert_allclose(compiled.todense(), expected, atol=1e-11)
    value, matrix = fxgrad.value_and_hessian(lambda x: energy(fnp, x), sparse=True)(X)
    np.testing.assert_allclose(value, energy(np, X))
    np.testing.assert_allclose(matrix.toarray(), expected, atol=1e-11)


@pytest.mark.parametrize(("name", "entries"), [
    ("tridiagonal", 3 * (N - 2)), ("collocation", 4 * (N // 2 - 1)), ("springs", 2 * N), ("banded", 3 * N - 2),
    ("bratu", 12 + 2 * 17), ("segments", N), ("scan", N), ("blocks", 32), ("masked", 4), ("sorted", 48),
    ("interpolation", 10)])
def test_patterns_have_exactly_the_entries_of_the_structure(name: str, entries: int) -> None:
    assert fxgrad.sparsity(lambda x: FIELDS[name](fnp, x))(X).jacobian.nnz == entries


KERNEL = np.zeros((1, 1, 3, 3))
KERNEL[0, 0, 1] = 1.0


def convolved(x: Any) -> Any:
    return fxgrad.lax.conv_general_dilated(x.reshape(1, 1, 3, 4), KERNEL, (1, 1), "SAME").reshape(-1)


@pytest.mark.parametrize(("function", "entries"), [
    (convolved, 3 * 10), (lambda x: 2.0 * x + fxgrad.stop_gradient(np.roll(x, 1)) * x, N),
    (lambda x: 2.0 * x + np.zeros(N) * np.roll(x, 1), N),
    (lambda x: fnp.linalg.solve(np.eye(3) + np.ones((4, 3, 3)), x.reshape(4, 3, 1)).reshape(-1), 36),
    (lambda x: fxgrad.scipy.linalg.solve_triangular(np.tril(np.ones((N, N))), x, lower=True), N * (N + 1) // 2),
    (lambda x: fxgrad.scipy.special.gammainc(x, 2.0), N), (lambda x: fnp.fft.fft(x).real, N * N),
    (lambda x: fxgrad.scipy.sparse.linalg.cg(lambda v: 2.0 * v, x)[0], N),
    (lambda x: fxgrad.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, np.sin(c[1]) * x), (0, x))[1], N),
    (lambda x: fxgrad.lax.fori_loop(0, 10 ** 6, lambda _, c: np.sin(c) * x, x), N),
    (lambda x: fxgrad.vmap(lambda v: fxgrad.lax.while_loop(lambda v: v < 3.0, lambda v: v * 2.0, v))(x), N),
    (lambda x: fxgrad.lax.scan(lambda c, each: (c, each * c), x[0], np.tile(x, 4000))[1][:N], 2 * N - 1),
], ids=["zeros of a kernel", "stop_gradient", "products with 0", "batched solve", "triangular solve", "gammainc", "fft",
        "matrix-free solve", "while", "long loop", "loops in a batch", "long scan"])
def test_patterns_are_exact_where_others_are_not(function: Any, entries: int) -> None:
    assert fxgrad.sparsity(function)(X).jacobian.nnz == entries


def passes(pattern: Any, mode: str = "auto") -> tuple[int, int]:
    found = pattern.compression(mode)
    return found.columns.number, found.rows.number


@pytest.mark.parametrize("size", [2_000, 10_000])
def test_tridiagonal_jacobians_take_3_passes_and_pentadiagonal_hessians_5(size: int) -> None:
    x = np.ones(size)
    assert passes(fxgrad.sparsity(lambda x: FIELDS["tridiagonal"](np, x))(x).jacobian) == (3, 0)
    assert passes(fxgrad.sparsity(lambda x: ENERGIES["pentadiagonal"](np, x))(x).hessian, "symmetric") == (5, 0)


def test_arrowheads_take_few_passes() -> None:
    x = np.ones(50)
    assert passes(fxgrad.sparsity(lambda x: FIELDS["arrowhead"](np, x))(x).jacobian) == (2, 1)
    assert passes(fxgrad.sparsity(lambda x: ENERGIES["arrowhead"](np, x))(x).hessian, "symmetric") == (2, 0)
    x = np.ones(20_000)  # the hub stands last
    assert passes(fxgrad.sparsity(lambda x: FIELDS["arrowhead"](np, x))(x).jacobian) == (2, 1)
    assert passes(fxgrad.sparsity(lambda x: np.sum((x[:-1] ** 2 + x[-1] ** 2) ** 2))(x).hessian, "symmetric") == (2, 0)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_either_mode_gives_the_same_matrix(mode: Any) -> None:
    for name in ("tridiagonal", "arrowhead", "collocation"):
        found = fxgrad.jacobian(lambda x, name=name: FIELDS[name](np, x), sparse=True, mode=mode, chunk_size=2)(X)
        np.testing.assert_allclose(found.toarray(), fxgrad.jacobian(lambda x, name=name: FIELDS[name](np, x))(X),
                                   atol=1e-13)


def test_custom_vjp_functions_take_reverse_passes() -> None:
    @fxgrad.custom_vjp
    def doubled_sine(x: Any) -> Any:
        return 2.0 * np.sin(x)

    doubled_sine.defvjp(lambda x: (2.0 * np.sin(x), x), lambda x, cotangent: (2.0 * np.cos(x) * cotangent,))
    found = fxgrad.jacobian(lambda x: doubled_sine(x)[1:] * x[:-1], sparse=True)(X)
    assert found.nnz == 2 * (N - 1)
    expected = np.zeros((N - 1, N))
    expected[np.arange(N - 1), np.arange(1, N)] = 2.0 * np.cos(X[1:]) * X[:-1]
    expected[np.arange(N - 1), np.arange(N - 1)] = 2.0 * np.sin(X[1:])
    np.testing.assert_allclose(found.toarray(), expected)


def test_containers_nest_as_in_dense_jacobians() -> None:
    def model(p: Any, scale: Any) -> Any:
        return {"u": p["a"] * scale, "v": p["b"][1:] * p["a"][:2]}, np.sum(p["a"])

    args = {"a": np.arange(3.0), "b": np.ones((3,))}, 2.0
    dense = fxgrad.jacobian(model, argnums=(0, 1))(*args)
    found = fxgrad.jacobian(model, argnums=(0, 1), sparse=True)(*args)
    shapes = jax.tree.map(lambda each: each.shape, found, is_leaf=sparse.issparse)
    assert shapes == ({"u": ({"a": (3, 3), "b": (3, 3)}, (3, 1)), "v": ({"a": (2, 3), "b": (2, 3)}, (2, 1))},
                      ({"a": (1, 3), "b": (1, 3)}, (1, 1)))
    for one, other in zip(jax.tree.leaves(dense), jax.tree.leaves(found, is_leaf=sparse.issparse), strict=True):
        np.testing.assert_allclose(other.toarray(), np.reshape(one, other.shape))


def test_values_and_auxiliary_results_come_along() -> None:
    (value, aux), matrix = fxgrad.value_and_jacobian(lambda x: (x * x, {"n": 3}), has_aux=True, sparse=True)(X)
    np.testing.assert_allclose(value, X * X)
    assert aux == {"n": 3}
    np.testing.assert_allclose(matrix.diagonal(), 2.0 * X)


@pytest.mark.slow
def test_entries_are_differentiated_again() -> None:
    def energy(x: Any) -> Any:
        return fnp.sum(fxgrad.jacobian(lambda x: FIELDS["tridiagonal"](fnp, x), sparse=True)(x).data ** 2)

    def dense_energy(x: Any) -> Any:
        return jnp.sum(jax.jacobian(lambda x: FIELDS["tridiagonal"](jnp, x))(x) ** 2)
    np.testing.assert_allclose(fxgrad.grad(energy)(X), jax.jit(jax.grad(dense_energy))(jnp.asarray(X)), rtol=1e-12)


def test_entries_of_a_batch_are_stacked() -> None:
    batch = np.stack([X, 2.0 * X])
    data = fxgrad.vmap(lambda x: fxgrad.jacobian(lambda x: x[1:] * x[:-1], sparse=True)(x).data)(batch)
    one = fxgrad.jit(fxgrad.jacobian(lambda x: x[1:] * x[:-1], sparse=True))(jnp.asarray(X))
    np.testing.assert_allclose(data, np.stack([one.data, 2.0 * one.data]))


@pytest.mark.slow
def test_matrices_of_a_batch_are_one_bcoo() -> None:
    def field(x: Any) -> Any:
        return x[1:] * x[:-1]
    batch = np.stack([X, 2.0 * X, 3.0 * X])
    for found in (fxgrad.vmap(fxgrad.jacobian(field, sparse=True))(jnp.asarray(batch)),
                  fxgrad.jit(fxgrad.vmap(fxgrad.jacobian(field, sparse=True)))(jnp.asarray(batch))):
        assert isinstance(found, jax_sparse.BCOO)
        assert (found.shape, found.n_batch) == ((3, N - 1, N), 1)
        np.testing.assert_allclose(found.todense(), fxgrad.vmap(fxgrad.jacobian(field))(batch))
    one = fxgrad.jacobian(field, sparse=True)(jnp.asarray(X))
    np.testing.assert_allclose(one @ jnp.ones(N), fxgrad.jacobian(field)(X) @ np.ones(N))
    np.testing.assert_allclose(jax.jit(lambda matrix: matrix.T @ jnp.ones(N - 1))(one),
                               fxgrad.jacobian(field)(X).T @ np.ones(N - 1))


@pytest.mark.slow
def test_arguments_may_lie_on_several_devices() -> None:
    mesh = jax.make_mesh((4,), ("i",))
    x = jax.device_put(jnp.asarray(X), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i")))
    for name in ("tridiagonal", "burgers", "banded"):
        found = fxgrad.jit(fxgrad.jacobian(lambda x, name=name: FIELDS[name](fnp, x), sparse=True))(x)
        np.testing.assert_allclose(found.todense(), fxgrad.jacobian(lambda x, name=name: FIELDS[name](fnp, x))(X),
                                   atol=1e-13)


COLLECTIVES = {
    "psum": (lambda x: fxgrad.lax.psum(x ** 2, "i") * x, 6),
    "pmean": (lambda x: fxgrad.lax.pmean(x ** 2, "i")[1:] * x[:-1], 10),
    "pmax": (lambda x: fxgrad.lax.pmax(x ** 2, "i"), 6),
    "groups": (lambda x: x * fxgrad.lax.psum(x ** 2, "i", axis_index_groups=[[0, 2], [1]]), 6),
    "all_gather": (lambda x: fxgrad.lax.all_gather(x ** 2, "i", tiled=True), 18),
    "psum_scatter": (lambda x: fxgrad.lax.psum_scatter(x ** 2, "i", tiled=True), 6),
    "all_to_all": (lambda x: fxgrad.lax.all_to_all(x ** 2, "i", 0, 0, tiled=True), 18),
    "arrow": (lambda x: (x * fxgrad.lax.psum(x ** 2, "i")[0]).at[0].add(fnp.sum(x ** 2)), 16),
    "ppermute": (lambda x: x * fxgrad.lax.ppermute(x ** 2, "i", [(0, 1), (1, 2)]), 6),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_connect_elements_in_the_same_places(name: str) -> None:
    function, entries = COLLECTIVES[name]
    batch = X[:6] + np.arange(3.0)[:, None]
    for mode in ("auto", "forward", "reverse"):
        found = fxgrad.vmap(fxgrad.jacobian(function, sparse=True, mode=mode), axis_name="i")(batch)
        dense = fxgrad.vmap(fxgrad.jacobian(function, mode=mode), axis_name="i")(batch)
        assert found.nse == entries
        np.testing.assert_allclose(found.todense(), dense, rtol=1e-12)


def test_hessians_with_collectives_are_not_taken_to_be_symmetric() -> None:
    def function(x: Any) -> Any:
        return fnp.sum(fxgrad.lax.psum(x ** 2, "i")[0] * x[1:] ** 2)

    batch = X + np.arange(3.0)[:, None]
    found = fxgrad.vmap(fxgrad.hessian(function, sparse=True), axis_name="i")(batch).todense()
    dense = fxgrad.vmap(fxgrad.hessian(function), axis_name="i")(batch)
    np.testing.assert_allclose(found, dense, rtol=1e-12)
    assert not np.allclose(dense, np.swapaxes(dense, 1, 2))


def test_patterns_of_sharded_functions_are_those_of_whole_arrays() -> None:
    spec = jax.sharding.PartitionSpec("i")
    function = fxgrad.shard_map(lambda x: x * fxgrad.lax.psum(x, "i"), mesh=jax.make_mesh((2,), ("i",)),
                                in_specs=spec, out_specs=spec)
    x = X[:6]
    eye = np.eye(3)
    expected = np.tile(eye, (2, 2)) * x[:, None] + np.diag(np.tile(x[:3] + x[3:], 2))
    found = fxgrad.jacobian(function, sparse=True)(x)
    assert found.nnz == 12
    np.testing.assert_allclose(found.todense(), expected, rtol=1e-14)


def test_patterns_follow_the_values_that_a_function_captures() -> None:
    def pick(places: Any) -> Any:
        return fxgrad.jacobian(lambda x: x[places] * 2.0, sparse=True)(X).nonzero()[1].tolist()
    assert [pick(np.array([0, 1])), pick(np.array([5, 3])), pick(np.array([0, 1]))] == [[0, 1], [5, 3], [0, 1]]


@pytest.mark.slow
def test_a_program_keeps_few_patterns() -> None:
    def pick(x: Any) -> Any:
        return x[places] * 2.0

    for first in range(30):
        places = np.array([first % N, (first + first // N + 1) % N])
        found = fxgrad.jacobian(pick, sparse=True)(X)
        assert found.nonzero()[1].tolist() == places.tolist()
        fxgrad.jacobian(pick, sparse=np.eye(2, N)[:, np.argsort(np.r_[places, np.setdiff1d(range(N), places)])])(X)
    gc.collect()
    plans = [each for each in gc.get_objects() if isinstance(each, SparsePlan) and each.pattern.shape == (2, N)]
    assert 0 < len(plans) <= 8


@pytest.mark.slow
def test_a_program_forgets_captured_values_of_long_ago() -> None:
    gc.collect()
    before = {id(each) for each in gc.get_objects() if isinstance(each, _Kept)}
    for number in range(20):
        weight = 1.5 + number
        found = fxgrad.hessian(lambda x, weight=weight: np.sum(weight * x ** 3), sparse=True)(X)
        np.testing.assert_allclose(found.diagonal(), 6.0 * weight * X)
    kept = [each for each in gc.get_objects() if isinstance(each, _Kept) and id(each) not in before]
    assert max(len(each.found) for each in kept) == 8


def test_patterns_follow_custom_rules_that_change() -> None:
    shift = 1

    @fxgrad.custom_jvp
    def moved(x: Any) -> Any:
        return np.roll(x, shift)

    moved.defjvp(lambda primals, tangents: (np.roll(primals[0], shift), np.roll(tangents[0], shift)))
    for shift in (1, 2, 1):
        found = fxgrad.jacobian(moved, sparse=True)(X)
        np.testing.assert_allclose(found.toarray(), np.roll(np.eye(N), shift, axis=0))


def test_patterns_of_callers_are_checked_and_missing_entries_named() -> None:
    def field(x: Any) -> Any:
        return x[1:] * x[:-1]
    whole = fxgrad.sparsity(field)(X).jacobian
    for given in (whole, whole.to_scipy(), whole.to_scipy().toarray(), np.ones((N - 1, N))):
        np.testing.assert_allclose(fxgrad.jacobian(field, sparse=given)(X).toarray(), fxgrad.jacobian(field)(X))
    small = whole.to_scipy().toarray()
    small[2, 3] = False
    message = (f"jacobian: the pattern given as sparse= lacks 1 entry: the first is (2, 3), which is {X[2]:.6g}. "
               "Pass sparse=True to find the pattern")
    with pytest.raises(ArgumentError, match=re.escape(message)):
        fxgrad.jacobian(field, sparse=small)(X)
    with pytest.raises(ArgumentError, match=re.escape(
            "jacobian: sparse='yes'; it must be True, False, a Pattern, or a matrix whose places are the pattern")):
        fxgrad.jacobian(field, sparse="yes")(X)
    with pytest.raises(ArgumentError, match=re.escape(
            "or a matrix whose places are the pattern. Write sparse=fxgrad.sparsity(f)(x).jacobian")):
        fxgrad.jacobian(field, sparse=fxgrad.sparsity(field)(X))(X)
    with pytest.raises(ArgumentError, match=re.escape(
            "jacobian: sparse= is a pattern of shape (2, 2), and the matrix has one row for each of 11 elements of the "
            "output and one column for each of 12 of the input")):
        fxgrad.jacobian(field, sparse=np.eye(2))(X)


def test_scipy_arrays_have_no_half_precision() -> None:
    with pytest.raises(DTypeError, match=re.escape(
            "jacobian returns SciPy arrays, which have no float16. Compute in float32, or pass arrays of jax, for a "
            "BCOO")):
        fxgrad.jacobian(lambda x: x * x, sparse=True)(np.ones(3, np.float16))


def test_operations_of_traced_matrices_are_those_of_jax() -> None:
    field = fxgrad.jacobian(lambda x: fnp.sin(x) * x, sparse=True)
    x = np.ones(3, np.float32)
    for operation, text in (
            (lambda m, _: m.T, "lambda m: m.T)(m)"),
            (lambda m, _: m.sum(), "lambda m: m.sum())(m)"), (lambda m, x: m @ x, "lambda m, x: m @ x)(m, x)"),
            (lambda m, x: x @ m, "lambda m, x: x @ m)(m, x)")):
        with pytest.raises(UnsupportedError) as raised:
            fxgrad.jit(lambda x, operation=operation: operation(field(x), x))(x)
        assert str(raised.value).split("\n")[0] == (
            "the operations of a sparse matrix are jax's, which cannot trace values that fxgrad traces. Wrap the "
            f"function that calls them: fxgrad.from_jax({text}")
    product = fxgrad.jit(lambda x: fxgrad.from_jax(lambda m, x: m @ x)(field(x), x))(x)
    np.testing.assert_allclose(product, field(x) @ x, rtol=1e-6)


def test_traced_matrices_are_made_dense() -> None:
    """By the names of SciPy and of jax, in the dtype of the entries, in batches too."""
    def field(x: Any) -> Any:
        return x[1:] * x[:-1] + x[0]
    sparse, dense = fxgrad.jacobian(field, sparse=True), fxgrad.jacobian(field)
    x = np.arange(4.0)
    xs, matrix = np.stack([x, 2.0 * x, x - 1.0]), fxgrad.jit(sparse)(x)
    for found in (fxgrad.jit(lambda x: sparse(x).toarray())(x), fxgrad.jit(lambda x: sparse(x).todense())(x),
                  matrix.toarray(), fxgrad.jit(lambda m: m.toarray())(matrix)):
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, dense(x))
    batch = fxgrad.vmap(dense)(xs)
    for function in (fxgrad.vmap(lambda x: sparse(x).toarray()), lambda xs: fxgrad.vmap(sparse)(xs).toarray()):
        np.testing.assert_array_equal(function(xs), batch)
        np.testing.assert_array_equal(fxgrad.jit(function)(xs), batch)
    single = sparse(jnp.asarray(x, np.float32)).toarray()
    assert isinstance(single, jax.Array)
    assert single.dtype == np.float32
    np.testing.assert_allclose(fxgrad.grad(lambda x: np.sum(sparse(x).toarray() ** 3))(x),
                               fxgrad.grad(lambda x: np.sum(dense(x) ** 3))(x), rtol=1e-15)
    assert fxgrad.jit(lambda x: fxgrad.jacobian(lambda x: 0.0 * x, sparse=True)(x).toarray())(x).shape == (4, 4)


@pytest.mark.parametrize("sparse", [False, True])
def test_errors_of_values_and_hessians_name_the_function(sparse: bool) -> None:
    def doubled(x: Any) -> Any:
        return 2.0 * x

    calls = {"value_and_hessian": lambda: fxgrad.value_and_hessian(doubled, sparse=sparse)(X),
             "hvp": lambda: fxgrad.hvp(doubled, (X,), (X,)), "sparsity": lambda: fxgrad.sparsity(doubled)(X).hessian,
             **({"hessian": lambda: fxgrad.hessian(doubled, sparse=True)(X)} if sparse else {})}
    for name, call in calls.items():
        with pytest.raises(ArgumentError) as caught:
            call()
        assert str(caught.value).split("\n")[0] == (
            f"{name} needs a function with a scalar output, and doubled returned f64[12]. Sum or average it, "
            f"{name}(lambda x: np.sum(doubled(x)))")
    for name in ("hessian", "value_and_hessian"):
        with pytest.raises(DTypeError) as refused:
            getattr(fxgrad, name)(doubled, sparse=sparse)(3)
        assert str(refused.value).split("\n")[0] == (
            f"{name} needs floating-point arguments, and x is i64*[]. Convert it, float(x) or x.astype('float32'), or "
            "leave it out of argnums")


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)])
def test_inputs_of_any_shape(shape: tuple[int, ...]) -> None:
    x = np.ones(shape)
    found = fxgrad.jacobian(lambda x: x * 2.0, sparse=True)(x)
    np.testing.assert_allclose(found.toarray(), 2.0 * np.eye(x.size))


def test_lines_that_make_rows_dense_are_named() -> None:
    def field(x: Any) -> Any:
        total = np.sum(x)
        return x * total

    assert [line.split(" at ")[0] for line in fxgrad.sparsity(field)(X).jacobian.dense_lines] == ["reduce_sum"]
    assert "test_sparse_derivatives.py" in fxgrad.sparsity(field)(X).jacobian.dense_lines[0]


def test_patterns_are_drawn_and_converted() -> None:
    pattern = fxgrad.sparsity(lambda x: x[1:] * x[:-1])(X).jacobian
    assert pattern.to_svg().startswith("<svg")
    assert pattern.to_svg() == pattern._repr_svg_()
    assert (pattern.to_scipy().toarray() == np.asarray(pattern.to_bcoo().todense())).all()
    assert repr(fxgrad.sparsity(lambda x: x * x)(np.ones(100)).jacobian) == (
        "Pattern(100 x 100, 100 entries, 1.00 %)")


@pytest.mark.slow
def test_a_million_variables_with_ten_million_entries_take_seconds() -> None:
    found = fxgrad.sparsity(lambda x: sum(np.roll(x, shift) for shift in range(-5, 5)) ** 2)(np.ones(10 ** 6))
    assert found.jacobian.nnz == 10 ** 7


def test_minimize_takes_sparse_hessians() -> None:
    energy = ENERGIES["rosenbrock"]
    found = optimize.minimize(fxgrad.value_and_grad(lambda x: energy(np, x)), X, jac=True, method="trust-constr",
                              hess=fxgrad.hessian(lambda x: energy(np, x), sparse=True), options={"gtol": 1e-9})
    np.testing.assert_allclose(found.x, 1.0, atol=1e-5)


@pytest.mark.slow
def test_the_jacobian_of_a_product_is_its_matrix() -> None:
    matrix, rows = np.random.default_rng(2).normal(size=(20, 20)), np.random.default_rng(3).normal(size=(5, 20))
    program = fxgrad.make_program(lambda x: fxgrad.jacobian(lambda x: matrix @ x, sparse=True)(x).data)(np.ones(20))
    assert [equation.primitive.name for equation in program.equations] == ["reshape"]
    for function in (lambda x: matrix @ x, lambda x: x @ matrix, lambda x: -(rows @ np.tanh(matrix @ (2.0 * x))) * 3.0,
                     lambda x: matrix @ (-x), lambda x: matrix @ np.sin(x).reshape(20), lambda x: matrix @ x + x):
        x = np.linspace(0.1, 1.0, 20)
        np.testing.assert_allclose(fxgrad.jacobian(function, sparse=True)(x).toarray(), fxgrad.jacobian(function)(x),
                                   atol=1e-14)
        np.testing.assert_allclose(fxgrad.jit(fxgrad.jacobian(function, sparse=True))(jnp.asarray(x)).todense(),
                                   fxgrad.jacobian(function)(x), atol=1e-14)
    found = fxgrad.hessian(lambda x: x @ matrix @ x + np.sum(x), sparse=True)(np.ones(20))
    np.testing.assert_allclose(found.toarray(), matrix + matrix.T)


def test_patterns_pickle_and_serve_another_process() -> None:
    def field(x: Any) -> Any:
        return fnp.concatenate([fnp.fft.fft(x).real[:2], x[1:] * x[:-1]])

    found = fxgrad.sparsity(lambda x: fnp.sum(field(x) ** 2))(X)
    again = pickle.loads(pickle.dumps(found))
    assert again.jacobian.equals(found.jacobian)
    with pytest.raises(ArgumentError, match=r"sparsity.hessian: the pattern was not asked for before these were "
                                            r"pickled\. Ask for it, then pickle"):
        _ = again.hessian
    assert found.hessian.dense_lines
    again = pickle.loads(pickle.dumps(found))
    assert again.hessian.equals(found.hessian)
    assert again.hessian.dense_lines == found.hessian.dense_lines
    assert again.hessian.is_symmetric
    pattern = pickle.loads(pickle.dumps(fxgrad.sparsity(field)(X).jacobian))
    np.testing.assert_array_equal(fxgrad.jacobian(field, sparse=pattern)(X).toarray(),
                                  fxgrad.jacobian(field, sparse=True)(X).toarray())


@pytest.mark.slow
@pytest.mark.parametrize("order", ["together", "in turn", "loop"])
@pytest.mark.parametrize("mode", ["forward", "reverse", "auto"])
def test_compiled_passes_are_the_same_in_any_order(order: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []

    def chosen(*_: object) -> str:
        used.append(order)
        return order

    monkeypatch.setattr("fxgrad.engine.api.sparse_derivatives._order_of", chosen)
    x = {"a": jnp.linspace(0.1, 1.0, 7, dtype="float32"), "b": jnp.linspace(-1.0, 1.0, 8, dtype="float32")}

    def field(x):
        a, b = x["a"], x["b"]
        total = fnp.sum(b) * a[:1] if mode == "auto" else b[:1]  # a dense row
        return fnp.concatenate([fnp.sin(a[1:]) * a[:-1] * b[2:], total]), fnp.exp(b) * b[::-1]

    matrices = fxgrad.jit(fxgrad.jacobian(field, sparse=True, mode=mode))(x)
    expected = jax.jit(jax.jacobian(field_of_jax(mode)))(x)
    for row, dense in zip(matrices, expected, strict=True):
        for name in x:
            assert row[name].data.dtype == np.float32
            assert np.allclose(row[name].todense(), dense[name], atol=1e-6)
    assert used

    def total(x, f):
        return sum(jnp.sum(leaf ** 3) for leaf in jax.tree.leaves(f(x)))

    def ours(x):
        return sum(fnp.sum(block.data ** 3) for row in fxgrad.jacobian(field, sparse=True, mode=mode)(x)
                   for block in row.values())

    slopes = jax.jit(jax.grad(lambda x: total(x, jax.jacobian(field_of_jax(mode)))))(x)
    found = fxgrad.jit(fxgrad.grad(ours))(x)
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), x)
    batches = fxgrad.jit(fxgrad.vmap(fxgrad.grad(ours)))(stacked)
    for name, slope in slopes.items():
        assert np.allclose(found[name], slope, rtol=2e-5, atol=1e-5)
        assert np.allclose(batches[name][0], slope, rtol=2e-5, atol=1e-5)


def field_of_jax(mode: str):
    def field(x):
        a, b = x["a"], x["b"]
        total = jnp.sum(b) * a[:1] if mode == "auto" else b[:1]
        return jnp.concatenate([jnp.sin(a[1:]) * a[:-1] * b[2:], total]), jnp.exp(b) * b[::-1]
    return field


def test_passes_are_ordered_by_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    original, found = sparse_derivatives._order_of, []
    monkeypatch.setattr(sparse_derivatives, "_order_of", lambda *args: found.append(original(*args)) or found[-1])

    def order(function: Callable[[Any], Any], size: int) -> str:
        fxgrad.make_program(fxgrad.jacobian(function, sparse=True))(jnp.ones(size))
        return found.pop()

    def wide(x):
        return sum(fnp.sin(x[k:k - 30]) * x[k + 1:k - 29] for k in range(12))

    matrix = np.eye(40) + np.eye(40, k=1)
    assert order(lambda x: fnp.sin(x[1:]) * x[:-1], 500) == "in turn"
    assert order(wide, 500) == "together"
    assert order(wide, 50_000) == "loop"
    assert order(lambda x: fnp.tanh(matrix @ x) * x, 40) == "together"


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_holomorphic_functions_have_sparse_jacobians_and_hessians(dtype: str) -> None:
    x = (np.arange(1.0, 6.0) + 1j * np.array([0.5, -1.0, 2.0, 0.0, 1.0])).astype(dtype)

    def function(x: Any) -> Any:
        return x[1:] ** 2 * x[:-1]
    found = fxgrad.jacobian(function, sparse=True, holomorphic=True)(x)
    assert (found.dtype, found.nnz) == (np.dtype(dtype), 8)
    np.testing.assert_allclose(found.toarray(), jax.jit(jax.jacfwd(function, holomorphic=True))(x), rtol=1e-5)
    second, aux = fxgrad.hessian(lambda x: (fnp.sum(function(x)), x[0]), has_aux=True, sparse=True, holomorphic=True)(x)
    assert (second.dtype, second.nnz, aux) == (np.dtype(dtype), 12, x[0])
    np.testing.assert_allclose(second.toarray(), fxgrad.hessian(lambda x: fnp.sum(function(x)), holomorphic=True)(x))


def test_sparse_hessians_run_a_function_once_for_each_call() -> None:
    calls: list[str] = []
    scale = np.array([1.0, 2.0, 3.0])

    def energy(x: Any, y: Any = 1.0) -> Any:
        calls.append("plain")
        return fnp.sum((scale * x[1:] - x[:-1] ** 2) ** 2) * y

    def by_value(x: Any) -> Any:
        calls.append("by value")
        return fnp.sum(x[1:] * x[:-1] ** 2) if fnp.sum(x) > 0.0 else fnp.sum(x ** 3)

    def of_container(given: Any) -> Any:
        calls.append("of a container")
        return fnp.sum(given["a"] ** 2 * given["b"][0][:3])
    x = np.arange(1.0, 5.0)
    found = fxgrad.hessian(energy, sparse=True)(x, y=2.0)
    np.testing.assert_allclose(found.toarray(), fxgrad.hessian(energy)(x, y=2.0))
    for each in (x, -x):
        second = fxgrad.hessian(by_value, sparse=True)(each)
        np.testing.assert_allclose(second.toarray(), fxgrad.hessian(by_value)(each))
    given = {"a": x[:3], "b": (x, None)}
    blocks, dense = fxgrad.hessian(of_container, sparse=True)(given), fxgrad.hessian(of_container)(given)
    np.testing.assert_allclose(blocks["a"]["b"][0].toarray(), dense["a"]["b"][0])
    np.testing.assert_allclose(blocks["b"][0]["b"][0].toarray(), dense["b"][0]["b"][0])
    assert calls == ["plain"] * 2 + ["by value"] * 4 + ["of a container"] * 2


def test_sparse_hessians_differentiate_what_chose_a_path() -> None:
    def scaled(x: Any) -> Any:
        while fnp.sum(x * x) < 4.0:
            x = 1.5 * x + 0.1
        return energy(x)

    def energy(x: Any) -> Any:
        return (x[1:] * x[:-1] ** 2).sum()
    for x, steps in ((np.array([0.1, 0.2, 0.3]), 3), (np.array([3.0, 2.0, 1.0]), 0)):
        start = x
        for _ in range(steps):
            start = 1.5 * start + 0.1
        with jax.enable_x64(True):
            expected = jax.jit(jax.hessian(energy))(jnp.asarray(start)) * 1.5 ** (2 * steps)
        np.testing.assert_allclose(fxgrad.hessian(scaled, sparse=True)(x).toarray(), expected)
        (value, twice), matrix = fxgrad.value_and_hessian(
            lambda x: (scaled(x), 2.0 * scaled(x)), has_aux=True, sparse=True)(x)
        assert float(twice) == 2.0 * float(value) == 2.0 * float(scaled(x))
        np.testing.assert_allclose(matrix.toarray(), expected)


def test_one_element_of_a_reversed_array() -> None:
    def greatest(x: Any) -> Any:
        return fnp.sin((x[::-1] * x)[fnp.argmax(x)])
    found = fxgrad.hessian(greatest, sparse=True)(np.arange(3.0))
    np.testing.assert_allclose(found.toarray(), [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])


def test_a_pattern_asked_for_is_that_of_the_matrix() -> None:
    def energy(x: Any) -> Any:
        return fnp.sum((x[1:] - x[:-1] ** 2) ** 2)
    x = np.arange(5.0)
    pattern = fxgrad.sparsity(energy)(x).hessian
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_derivatives, "_of_function", None)  # which is not called again
        assert fxgrad.hessian(energy, sparse=True)(x).nnz == pattern.nnz


@pytest.mark.slow
def test_hessians_of_functions_that_take_a_gradient_of_a_while_loop() -> None:
    """Their loops carry tables of states within tables of states, of which each input reaches a few elements."""
    def inner(y: Any) -> Any:
        return fnp.sum(fxgrad.lax.while_loop(lambda c: c[1] < 4, lambda c: (fnp.sin(c[0]) * y + c[0], c[1] + 1),
                                             (y, 0))[0])

    def loss(x: Any) -> Any:
        return fnp.sum(fxgrad.grad(inner)(x) ** 2)

    x = np.linspace(0.1, 1.0, 16)
    found = fxgrad.hessian(loss, sparse=True)(x)
    assert found.nnz == x.size
    np.testing.assert_allclose(found.toarray(), fxgrad.hessian(loss)(x), 1e-12, 1e-12)
