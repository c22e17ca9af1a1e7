"""Jacobians multiplied out of small arrays: the same as by passes and as jax's, from programs without passes."""

import functools
import tracemalloc
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
from fxgrad import checkpoint, lax, nn
from fxgrad.engine import executors
from fxgrad.engine.api.factored_jacobians import push_identity
from fxgrad.engine.core.backends import use_executor
from fxgrad.engine.core.walk import eval_program, value_of
from fxgrad.scipy import linalg

random = np.random.default_rng(0)
A, B, C = random.normal(size=(3, 5, 5))
V = random.normal(size=5)
P = random.normal(size=(4, 5, 3))
Q = random.normal(size=(4, 5, 5))
ROWS, PLACES = np.array([0, 2, 2, 4]), np.array([[3, 1], [0, 0], [4, 1]])
ORDER = np.argsort(C, 1)
X, Y = random.normal(size=(2, 5, 5))

OF_ONE = {
    "product": lambda x: A @ x @ B,
    "scaled inside": lambda x: A @ (x * C) @ B / 2.0,
    "layers": lambda x: np.tanh(A @ x @ B) @ C,
    "square": lambda x: x @ x,
    "quadratic": lambda x: x.T @ A @ x,
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True),
    "layer norm": lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True),
    "rectifier": lambda x: nn.relu(x @ A) @ B,
    "flat": lambda x: (x.reshape(-1)[None, :] * V[:, None]).sum(0),
    "flat after": lambda x: (A @ x).reshape(25) * np.arange(25.0),
    "other cuts": lambda x: (x @ B)[:4].reshape(2, 10) @ np.arange(10.0),
    "differences": lambda x: x[1:] @ A - x[:-1],
    "a stencil": lambda x: x[1:-1, 1:-1] ** 2 - x[:-2, 1:-1] - x[2:, 1:-1] - x[1:-1, ::2][:, :3] * x[1:-1, 2:],
    "parts of a product": lambda x: np.tanh((x @ B)[:, :2] * (x @ B)[:, 2:4])[::-1, ::-1] - (x @ B)[:, 3:],
    "zeros around": lambda x: np.pad(x @ A, ((1, 0), (0, 2)))[:5, 1:6] * np.pad(x, 1)[1:-1, 2:],
    "one row": lambda x: x[2][:, None] * x[:, 1] + np.pad(x[:1], ((2, 2), (0, 0))),
    "outer": lambda x: x.sum(0)[:, None] * x.sum(1)[None],
    "sums": lambda x: (x.sum(0)[None] - x.sum(1)[:, None]) * C,
    "sum of all": lambda x: x.sum() * C,
    "batches": lambda x: np.einsum("ij,kjl->kil", x, P),
    "rows by rows": lambda x: np.einsum("ij,ij->i", x, A)[:, None] * B,
    "choice": lambda x: np.where(x > 0, x * x, A @ x),
    "solve": lambda x: np.linalg.solve(A, x) @ B,
    "distances": lambda x: ((x[:, None] - x[None]) ** 2).sum(-1),
    "independent": lambda x: A + 0.0 * np.sum(x),
    "repeated": lambda x: np.transpose(np.broadcast_to(x, (2, 5, 5)), (1, 2, 0)),
    "many terms": lambda x: sum(A @ x @ np.roll(B, k) for k in range(12)),
    "many diagonals": lambda x: sum(np.tanh(x @ np.roll(B, k)) * x for k in range(12)),
    "residual": lambda x: x + np.tanh(x @ B) + np.tanh((x + np.tanh(x @ B)) @ A),
    "quotient": lambda x: V / x,
    "attention": lambda x: nn.softmax((x @ A) @ (x @ B).T) @ (x @ C),
    "kron": lambda x: np.kron(x, A),
    "joined": lambda x: np.concatenate([x @ A, (x * B)[::-1]]),
    "joined unevenly": lambda x: np.concatenate([x[-2:] * x[:2], np.tanh(x), B[:1], (x @ A)[2:3]], 0) @ C,
    "joined beside": lambda x: np.concatenate([np.sin(x), x * B, C], 1)[:, 3:12] ** 2,
    "stacked": lambda x: np.stack([np.sin(x), np.ones((5, 5)), x * B, A @ x], 1).sum(0) @ C,
    "stacked numbers": lambda x: np.stack([x[0, 0] * x[1, 1], 1.0 * x[2, 3], x.sum(), np.float64(2.0)]),
    "stacked twice": lambda x: np.stack([np.stack([x, x * x], -1), np.stack([x.T, x], -1)]).reshape(10, 10).T,
    "split": lambda x: np.multiply(*np.split((x @ A)[:, 1:], 2, 1)),
    "gates": lambda x: np.multiply(*np.split(np.concatenate([x @ A, x * B], 1), 2, 1)),
    "rows apart": lambda x: sum(row * other @ A for row, other in zip(x, x[::-1], strict=True)),
    "rolled": lambda x: np.roll(x, 2, 1) * x - np.roll(x @ A, -1, 0),
    "tiled": lambda x: np.tile(x * B, (2, 3))[1:8, 2:14] ** 2,
    "repeated rows": lambda x: np.repeat(x, 2, 0).T @ np.ones((10, 2)),
    "running sums": lambda x: np.cumsum(x @ A, 1) * np.cumsum(x[::-1], 0),
    "running sums of all": lambda x: np.cumsum(x),
    "rows by index": lambda x: np.tanh(x)[ROWS] * 2.0 @ A,
    "columns by index": lambda x: (x @ B)[:, ROWS] @ A[ROWS] + np.sum((x * B)[:, -PLACES] ** 2),
    "rows by a table": lambda x: (x @ B)[PLACES] * 2.0,
    "places by index": lambda x: (A @ x)[PLACES, PLACES.T[:, :1].T] ** 2,
    "along rows": lambda x: np.take_along_axis(x @ B, ORDER, 1) * x,
    "along columns": lambda x: np.take_along_axis(x @ B, ORDER, 0)[1:],
    "one window": lambda x: lax.dynamic_slice(x @ A, (np.argmax(x[0]), 1), (3, 2)),
    "a window of rows": lambda x: lax.dynamic_slice_in_dim(x @ A, np.argmax(x[0]), 2, 0) * 2.0,
    "a window written": lambda x: lax.dynamic_update_slice(x @ A, (x * x)[1:3, 1:3], (np.argmax(x[0]), 1)),
    "rows written": lambda x: lax.dynamic_update_slice(x @ A, (x * x)[1:3], (np.argmax(x[0]), 0)),
    "bags": lambda x: np.tanh(x[PLACES].sum(1)) @ A,
    "rows set": lambda x: (x @ A).at[np.array([0, 3]), 1:3].set((x * B)[1:3, 1:3]),
    "one column set": lambda x: (x @ A).at[:, 2].set((x * B)[1]),
    "rows added": lambda x: (x @ A).at[ROWS].add((x * B)[:4]) * C,
    "columns added": lambda x: (x @ A).at[:, ROWS].add((x * B)[:, :4]),
    "segments": lambda x: (0.0 * x).at[PLACES[:, :1]].add((x * B)[:3, None] ** 2),
    "dropped": lambda x: (x @ A).at[np.array([7, 2]), :].add((x * B)[:2], mode="drop"),
    "filled": lambda x: (x @ A).at[np.array([7, 2])].get(mode="fill", fill_value=0.0) * C[:2],
    "solve of a vector": lambda x: np.linalg.solve(A, x[0] * x[1]),
    "solves with many matrices": lambda x: np.linalg.solve(Q, np.stack([x, x * B, x @ A, x.T])) @ B,
    "solves with one matrix": lambda x: np.linalg.solve(A, np.stack([x, x * B, x @ A, x.T])),
    "inverse": lambda x: np.linalg.inv(A + x) @ A,
    "solve with both": lambda x: np.linalg.solve(A + x, x @ B),
    "triangular solve": lambda x: linalg.solve_triangular(np.tril(A), x * B, lower=True, trans=1) @ C,
    "two triangular solves": lambda x: linalg.cho_solve(linalg.cho_factor(A @ A.T), x @ C),
    "factors": lambda x: np.linalg.cholesky(C @ C.T + x @ x.T),
    "recurrence": lambda x: lax.scan(lambda c, row: (np.tanh(c * 0.5 + row), c * row), x[0], x)[1],
    "recurrence backward": lambda x: lax.scan(lambda c, row: (np.sin(c) * row, c), x[0], x @ A, reverse=True)[1] @ B,
    "recurrence from zeros": lambda x: lax.scan(lambda c, row: (c * 0.5 + row ** 2, None), 0.0 * C[0], x)[0],
    "two recurrences": lambda x: lax.scan(lambda c, row: ((c[1], c[0] * row), c[1]), (x[0], x[1] * 2.0), x)[1],
    "matrix in steps": lambda x: lax.scan(lambda c, a: (np.tanh(a @ c), c[0] * c[1]), x, Q)[1] @ B,
    "heat": lambda x: lax.fori_loop(0, 4, lambda i, c: c + 0.1 * (np.roll(c, 1, 0) - 2.0 * c + np.roll(c, -1, 0)), x),
    "dense steps": lambda x: lax.scan(lambda c, row: (np.tanh(A @ c + row), c), x[0], x)[1],
    "steps with a constant": lambda x: lax.scan(lambda c, row: (c * x[0] + row, c), x[1], x)[1],
    "one step": lambda x: lax.scan(lambda c, row: (c * row, c), x[1], x[:1])[1],
    "more in each step": lambda x: lax.scan(lambda c, row: (np.roll(c, 1) * row, c), x[1], x)[1],
    "running total": lambda x: lax.scan(lambda c, row: (c + row.sum(), c * row), 0.0, x)[1],
    "loops in loops": lambda x: lax.scan(lambda c, row: (lax.fori_loop(
        0, 2, lambda i, d: np.sin(d) * row, c), c), x[0], x @ B)[1],
    "fixed point": lambda x: lax.fori_loop(0, 4, lambda i, c: c - 0.1 * (c ** 3 - x), x * x),
    "softmax in steps": lambda x: lax.scan(
        lambda c, _: (np.tanh(c) * np.exp(x) / np.exp(x).sum(1, keepdims=True), c), x, None, length=3)[1],
    "constants of inner loops": lambda x: lax.scan(lambda c, row: (lax.fori_loop(
        0, 2, lambda i, d: np.sin(d) * x[1] + row, c), c), x[0], x @ B)[1],
    "running products": lambda x: np.cumprod(x @ A, 0) * x[::-1],
    "running extrema": lambda x: lax.cummax(x * B, 1) @ A - lax.cummin(x, reverse=True),
    "largest of windows": lambda x: lax.reduce_window(x * B, -np.inf, lax.max, (2, 1), (2, 1), "SAME") @ A,
    "least of windows": lambda x: lax.reduce_window(x @ B, np.inf, lax.min, (3, 2), (1, 2), ((2, 1), (0, 1)), (1, 2)),
    "largest of images": lambda x: lax.reduce_window(
        (x[:, :, None] * V[:3]).reshape(1, 5, 5, 3), -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 1, 1), "SAME"),
    "means of windows": lambda x: lax.reduce_window(x * B, 0.0, lax.add, (2, 2), (2, 1), "SAME") / 4.0,
    "sums of windows": lambda x: lax.reduce_window(
        x @ B, 0.0, lax.add, (1, 2), (1, 1), "VALID", None, (1, 3)) * C[:, :2],
    "no windows": lambda x: lax.reduce_window(x @ B, 0.0, lax.add, (1, 1), (1, 1), "VALID"),
    "spectrum": lambda x: np.abs(np.fft.rfft(x @ A, axis=0)) ** 2,
    "spectrum of all": lambda x: np.abs(np.fft.fft2(np.sin(x)) * C),
    "filter": lambda x: np.fft.irfft(np.fft.rfft(x * B, axis=1) * V[:3], n=5, axis=1) @ A,
    "filter of constants": lambda x: np.fft.irfft(np.sum(x) * 1j * B[:3], n=4, axis=0) * x[0],
    "parts": lambda x: np.imag(np.exp(1j * x) @ (A + 1j * B)) * np.real((x + 1j * C) ** 2 @ B),
    "conjugates": lambda x: np.real(np.conj((x @ A) * (1.0 + 2.0j)) * np.exp(1j * x) @ B),
    "pairs": lambda x: np.abs(lax.complex(x @ A, x[:1] * C) ** 2),
    "rounded": lambda x: lax.reduce_precision(x @ A, 11, 52) * x,
    "three diagonals": lambda x: lax.linalg.tridiagonal_solve(
        np.sin(x[0]), 3.0 + np.cos(x[1]), 0.5 * V, (x @ B)) @ A,
    "branch": lambda x: lax.cond(x[0, 0] < 9.0, lambda x, y: (x @ B) * y, lambda x, y: np.sin(y) * A, x, x * C),
    "branches": lambda x: lax.switch(np.argmax(x[0]), [
        lambda y: (y @ A, y[0], A[0]), lambda y: (y.T * C, V * y[1, 1], y[1]), lambda y: (A @ y @ B, y[2] * V, V),
        lambda y: (B, V, y.sum(0)), lambda y: (np.sin(y), y[:, 0], y[4] * y[3])], x * B)[0] @ C,
    "branch of a recurrence": lambda x: lax.cond(x[0, 0] < 9.0, lambda y: lax.scan(
        lambda c, row: (np.sin(c) * row, c), y[0], y)[1], lambda y: y @ A, x * B),
    "branches in steps": lambda x: lax.scan(lambda c, row: (lax.cond(
        row[0] > 0.0, lambda c: c * row + 1.0, lambda c: np.tanh(c - row), c), c), x[0], x @ B)[1],
    "layers kept": lambda x: checkpoint(lambda x: np.tanh(A @ x @ B))(np.sin(x)) @ C,
}
OPEN = {
    "steps": lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, np.tanh(s[1]) * x), (0, x))[1] @ B,
    "Newton": lambda x: lax.while_loop(lambda s: np.sum((s * s - x * x - 1.0) ** 2) > 1e-20,
                                       lambda s: 0.5 * (s + (x * x + 1.0) / s), np.ones_like(x)),
    "two values": lambda x: lax.while_loop(
        lambda s: s[0] < 4, lambda s: (s[0] + 1, s[2] - s[2].mean(), np.sin(s[1]) @ A), (0, x, x * C))[2],
    "no step": lambda x: lax.while_loop(lambda s: s[0] < 0, lambda s: (s[0] + 1, s[1] * x), (0, np.sin(x)))[1],
}
OF_TWO = {
    "branch": lambda x, y: lax.cond(x[0, 0] < 9.0, lambda x, y: (x * B, y[0]), lambda x, y: (y @ A, x[1]), x, y),
    "product": lambda x, y: x @ y,
    "gate": lambda x, y: 1 / (1 + np.exp(-(x @ A + y @ B))) * y + x,
    "one alone": lambda x, y: y @ A,
    "pair": lambda x, y: (x @ A, {"sum": y.sum(0) * x[0]}),
}
SCALARS = {
    "trace": lambda x: np.trace(x.T @ A @ x @ B),
    "squares": lambda x: np.sum((A @ x - B) ** 2),
    "tanh": lambda x: np.sum(np.tanh(A @ x @ B)),
    "logsumexp": lambda x: np.log(np.exp(x).sum()),
    "quotient": lambda x: (x * (A @ x)).sum() / (x * x).sum(),
    "norms": lambda x: np.sum(np.sqrt(((x @ B) ** 2).sum(1))),
}


def in_jax(function):
    """Return a function of NumPy's as one of jax's."""
    names = {**function.__globals__, "np": jnp, "nn": jax.nn, "lax": jax.lax, "linalg": jax.scipy.linalg,
             "checkpoint": jax.checkpoint,
             **{name: jnp.asarray(globals()[name]) for name in ("A", "B", "C", "V", "P", "Q")}}
    return types.FunctionType(function.__code__, names, None, function.__defaults__, function.__closure__)


@functools.cache
def of_jax():
    """Return jax's derivatives of all functions, compiled together."""
    def compute(x, y):
        return ({name: jax.jacfwd(in_jax(f))(x) for name, f in {**OF_ONE, **OPEN}.items()},
                {name: jax.jacfwd(in_jax(f), (0, 1))(x, y) for name, f in OF_TWO.items()},
                {name: jax.hessian(in_jax(f))(x) for name, f in SCALARS.items()})
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, jax.jit(compute)(X, Y))


def assert_equal(found, wanted, tolerance=1e-11):
    found, wanted = jax.tree.leaves(found), jax.tree.leaves(wanted)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("name", OF_ONE)
def test_the_jacobian_is_that_of_passes_and_of_jax(name, mode):
    function = OF_ONE[name]
    found = fxgrad.jacobian(function, mode=mode)(X)
    assert_equal(found, fxgrad.jacobian(function, mode=mode, chunk_size=7)(X))
    assert_equal(found, of_jax()[0][name])


@pytest.mark.parametrize("name", OPEN)
def test_loops_with_an_unknown_number_of_steps(name):
    function = OPEN[name]
    found = fxgrad.jacfwd(function)
    assert_equal(found(X), fxgrad.jacfwd(function, chunk_size=7)(X))
    assert_equal(found(X), of_jax()[0][name])
    assert_equal(fxgrad.jacrev(function)(X), of_jax()[0][name])
    assert_equal(fxgrad.vmap(found)(np.stack([X, Y])), np.stack([found(X), found(Y)]))

    def total(x):
        return np.sum(found(x) ** 2)
    assert_equal(fxgrad.grad(total)(X), fxgrad.grad(lambda x: np.sum(fxgrad.jacfwd(function, chunk_size=7)(x) ** 2))(X))


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("name", OF_TWO)
def test_each_block_of_several_arguments_and_outputs_is(name, mode):
    assert_equal(fxgrad.jacobian(OF_TWO[name], (0, 1), mode=mode)(X, Y), of_jax()[1][name])


@pytest.mark.parametrize("name", SCALARS)
def test_hessians_are(name):
    assert_equal(fxgrad.hessian(SCALARS[name])(X), of_jax()[2][name])


@pytest.mark.parametrize("name", ["trace", "tanh", "norms"])
def test_third_derivatives_batches_and_compiled_ones_agree_with_passes(name):
    function = SCALARS[name]
    third = fxgrad.jacobian(fxgrad.hessian(function))(X)
    by_passes = fxgrad.jacobian(fxgrad.hessian(function, chunk_size=11), chunk_size=11)(X)
    assert_equal(third, by_passes, 1e-10)
    assert_equal(fxgrad.vmap(fxgrad.hessian(function))(np.stack([X, Y])),
                 np.stack([fxgrad.hessian(function, chunk_size=11)(each) for each in (X, Y)]))
    assert_equal(fxgrad.jit(fxgrad.hessian(function))(X), fxgrad.hessian(function, chunk_size=11)(X))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "complex64", "complex128"])
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_dtypes_stay(dtype, mode):
    dtype = fxgrad.dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    whole = dtype.kind == "c"
    a, b, x = ((each + 1j * other if whole else each).astype(dtype) for each, other in ((A, B), (B, C), (X, Y)))

    def function(x):
        return (a @ (x * b) @ b - x.T) * x
    given = {"mode": mode, "holomorphic": whole}
    found = fxgrad.jacobian(function, **given)(x)
    passes = fxgrad.jacobian(function, chunk_size=7, **given)(x)
    assert found.dtype == passes.dtype == dtype
    steps = {"bfloat16": 2e-1, "float16": 3e-2, "complex128": 1e-12}.get(dtype.name, 1e-5)
    wide = np.complex128 if whole else np.float64
    np.testing.assert_allclose(found.astype(wide), passes.astype(wide), rtol=steps, atol=steps)


def test_mixed_dtypes_and_weak_numbers_are_those_of_passes():
    def function(x):
        return (np.astype(x, np.float64) @ A).sum(0) * 2.0
    x = X.astype(np.float32)
    for mode in ("forward", "reverse"):
        found, passes = (fxgrad.jacobian(function, mode=mode, chunk_size=size)(x) for size in (None, 3))
        assert found.dtype == passes.dtype
        assert_equal(found, passes, 1e-6)
    assert fxgrad.make_program(fxgrad.jacobian(lambda x: np.array([2.0, 3.0]) * x))(1.0).out_avals == \
        fxgrad.make_program(fxgrad.jacobian(lambda x: np.array([2.0, 3.0]) * x, chunk_size=1))(1.0).out_avals


def operations(function, *args):
    return [equation.primitive.name for equation in fxgrad.make_program(function)(*args).equations]


def test_no_pass_is_made_where_the_matrix_is_a_product_of_arrays():
    assert operations(fxgrad.jacobian(lambda x: A @ x @ B), X).count("dot_general") == 0
    assert operations(fxgrad.jacobian(lambda x: A @ x), X).count("dot_general") == 0
    assert set(operations(fxgrad.hessian(lambda x: x @ A @ x), V)) == {"transpose", "add"}
    # A product of matrices for each of two terms, of matrices of the size of x.
    found = fxgrad.make_program(fxgrad.hessian(lambda x: np.trace(x.T @ A @ x @ B)))(X)
    assert all(equation.outputs[0].aval.size <= 25 for equation in found.equations
               if equation.primitive.name == "dot_general")


def test_slices_of_a_product_are_slices_of_its_factors():
    found = fxgrad.make_program(fxgrad.jacobian(lambda x: (x @ B)[:, :2] * (x @ C)[:, 3:]))(X)
    assert max(equation.outputs[0].aval.size for equation in found.equations if equation.primitive.name == "mul") <= 50


def test_joined_arrays_keep_their_deltas():
    found = fxgrad.make_program(fxgrad.jacfwd(lambda x: np.stack([np.sin(x), x * B], 1).sum(0) @ C))(X)
    assert all(equation.outputs[0].aval.size <= 50 for equation in found.equations
               if equation.primitive.name == "stack")
    many = fxgrad.make_program(fxgrad.jacfwd(lambda x: np.stack([x[k] * x[k + 1] for k in range(24)])))(np.ones(25))
    assert max(equation.outputs[0].aval.size for equation in many.equations) <= 25 * 25


IMAGES, KERNELS = random.normal(size=(2, 3, 6, 5)), random.normal(size=(4, 3, 3, 2))
CONVOLUTIONS = {
    "plain": ({"window_strides": (1, 1), "padding": "VALID"}, KERNELS),
    "steps": ({"window_strides": (2, 1), "padding": ((1, 2), (0, 1)), "rhs_dilation": (1, 2)}, KERNELS),
    "transposed": ({"window_strides": (1, 1), "padding": ((2, 1), (1, 1)), "lhs_dilation": (2, 3)}, KERNELS),
    "groups": ({"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 3},
               random.normal(size=(6, 1, 3, 3))),
    "points": ({"window_strides": (1, 1), "padding": "VALID"}, random.normal(size=(4, 3, 1, 1))),
    "whole": ({"window_strides": (1, 1), "padding": "VALID"}, random.normal(size=(4, 3, 6, 5))),
}


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_have_the_jacobian_of_passes_in_images_and_kernels(name, mode):
    params, kernels = CONVOLUTIONS[name]

    def function(x, k):
        found = lax.conv_general_dilated(x * 2.0, k, **params)
        return np.tanh(lax.conv_general_dilated(np.tanh(found), found[:1, :, :1, :1] * 0.1, (1, 1), "SAME"))
    for args in ((0,), (0, 1)) if name == "plain" else ((0,), (1,)):
        found, wanted = (fxgrad.jacobian(function, args, mode=mode, chunk_size=size)(IMAGES, kernels)
                         for size in (None, 50))
        assert_equal(found, wanted)


def test_convolutions_of_other_orders_of_axes_have_the_jacobian_of_passes():
    numbers = lax.conv_dimension_numbers((2, 6, 5, 3), (3, 2, 3, 4), ("NHWC", "HWIO", "NCHW"))
    image, kernel = IMAGES.transpose(0, 2, 3, 1), KERNELS.transpose(2, 3, 1, 0)

    def function(x, k):
        return lax.conv_general_dilated(x, k, (1, 2), ((1, 0), (2, 1)), dimension_numbers=numbers)
    assert_equal(fxgrad.jacobian(function, (0, 1))(image, kernel),
                 fxgrad.jacobian(function, (0, 1), chunk_size=30)(image, kernel))
    compiled = fxgrad.jit(fxgrad.jacobian(function, (0, 1)))(image, kernel)
    assert_equal(compiled, fxgrad.jacobian(function, (0, 1), chunk_size=30)(image, kernel))


def test_images_of_a_batch_and_features_of_a_convolution_are_no_columns():
    found = fxgrad.make_program(fxgrad.jacfwd(lambda x: lax.conv_general_dilated(x, KERNELS, (1, 1), "VALID")))(IMAGES)
    images = [equation.inputs[0].aval.size for equation in found.equations
              if equation.primitive.name == "conv_general_dilated"]
    assert images == [30 * 30]  # an image of one pixel for each of 30


def test_checkpoints_recompute_once_for_all_columns():
    def function(x):
        return checkpoint(lambda x: np.tanh(A @ x @ B))(np.sin(x)) @ C
    found = fxgrad.make_program(fxgrad.jacobian(function, mode="reverse"))(X)
    inner = [equation for call in found.equations for program in call.programs for equation in program.equations]
    assert max(equation.outputs[0].aval.size for equation in inner if equation.primitive.name == "tanh") == 25
    assert_equal(fxgrad.jit(fxgrad.jacobian(function, mode="reverse"))(X), of_jax()[0]["layers kept"])
    assert_equal(fxgrad.hessian(lambda x: np.sum(function(x) ** 2))(X),
                 fxgrad.hessian(lambda x: np.sum(function(x) ** 2), chunk_size=6)(X))


def test_solves_and_lookups_leave_columns_and_rows_alone():
    def sizes(name, function):
        program = fxgrad.make_program(fxgrad.jacfwd(function))(X)
        return [equation.outputs[0].aval.size for equation in program.equations if equation.primitive.name == name]
    assert sizes("lu_solve", lambda x: np.linalg.solve(A, x * 2.0) @ B) == [25]
    assert sizes("triangular_solve", lambda x: linalg.solve_triangular(A, x)) == [25]
    assert sizes("gather", lambda x: np.tanh(x)[ROWS] @ B) == [4 * 5]  # rows of the identity
    written = fxgrad.make_program(fxgrad.jacrev(lambda x: np.tanh(x)[ROWS] @ B))(X)
    assert [equation.inputs[2].aval.size for equation in written.equations
            if equation.primitive.name == "scatter_add"] == [4 * 4]  # what adds the identity to rows


def test_loops_carry_small_arrays():
    def carried(function, mode):
        program = fxgrad.make_program(fxgrad.jacobian(function, mode=mode))(X)
        *_, loop = (equation for equation in program.equations if equation.primitive.name in (
            "scan", "for", "sweep"))
        return max(var.aval.size for var in loop.outputs)
    for mode in ("forward", "reverse"):
        assert carried(OF_ONE["recurrence from zeros"], mode) <= 25  # not 125: each column depends on one of x
        assert carried(OF_ONE["heat"], mode) == 25  # a matrix of rows by rows
        assert carried(OF_ONE["fixed point"], mode) == 25
        assert carried(lambda x: lax.scan(lambda c, _: (np.tanh(A @ c), None), x, length=3)[0], mode) == 125
        assert carried(lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, np.tanh(s[1]) * x), (0, x))[1],
                       mode) == 25


def test_branches_and_operations_along_axes_take_small_arrays():
    def largest(name, function, mode):
        program = fxgrad.make_program(fxgrad.jacobian(function, mode=mode))(X)
        return max(var.aval.size for equation in program.equations if equation.primitive.name == name
                   for var in equation.outputs)
    for mode in ("forward", "reverse"):
        assert largest("cond", OF_ONE["branch"], mode) == 125  # products of (x @ B) with x
        assert largest("linear_recurrence", lambda x: np.cumprod(x, 0), mode) == 125
        assert largest("fft", lambda x: np.abs(np.fft.fft(x * B, axis=0)), mode) == 25
    assert largest("reduce_window_sum", OF_ONE["means of windows"], "forward") == 375
    assert largest("select_and_gather_add", OF_ONE["largest of windows"], "forward") == 75
    assert largest("select_and_scatter_add", OF_ONE["largest of windows"], "reverse") == 75


@pytest.mark.slow
def test_branches_whose_number_is_known_at_run_time_alone():
    def function(x, which):
        one, other, known = lax.switch(which, [
            lambda x: (A @ x @ B, np.sort(x[0]), V), lambda x: (np.tanh(x), x[1] * x[2], x.sum(0)),
            lambda x: (x.T * C, V, x[0])], np.sin(x))
        return (one @ C).sum(1), other * known

    def check(found, wanted):
        for which in (-1, 0, 1, 2, 5):
            assert_equal(found(X, which), wanted(X, which))
            assert_equal(fxgrad.jit(found)(X, which), wanted(X, which))
        assert_equal(fxgrad.vmap(found)(np.stack([X, Y, X]), np.array([2, 0, 1]))[0],
                     np.stack([wanted(X, 2)[0], wanted(Y, 0)[0], wanted(X, 1)[0]]))
        assert_equal(fxgrad.grad(lambda x: np.sum(fxgrad.jit(found)(x, 0)[0] ** 2))(X),
                     fxgrad.grad(lambda x: np.sum(wanted(x, 0)[0] ** 2))(X))

    for mode in ("forward", "reverse"):
        check(*(fxgrad.jacobian(function, mode=mode, chunk_size=size) for size in (None, 7)))


def test_steps_of_a_linear_loop_may_compute_known_values():
    def linear(x):
        def step(carry, row):
            moving, count, sums = carry
            return (moving * count + row, count + 1.0, sums + moving[0]), (moving, count, sums * count)
        return lax.scan(step, (x[1], 1.0, 0.0), x)[1]
    program = fxgrad.make_program(linear)(X)
    assert not program.constants
    (moving,), _, (sums,) = push_identity(program, [])
    assert_equal(moving, fxgrad.jacobian(lambda x: linear(x)[0], chunk_size=7)(X))
    assert_equal(sums, fxgrad.jacobian(lambda x: linear(x)[2], chunk_size=7)(X))


def test_loops_under_transformations():
    def function(x):
        return lax.scan(lambda c, row: (np.tanh(c * 0.5 + row), c * row), x[0], x)[1]

    def check(found, wanted):
        assert_equal(fxgrad.jit(found)(X), wanted(X))
        assert_equal(fxgrad.vmap(found)(np.stack([X, Y])), np.stack([wanted(X), wanted(Y)]))
        assert_equal(fxgrad.grad(lambda x: np.sum(found(x) ** 2))(X), fxgrad.grad(lambda x: np.sum(wanted(x) ** 2))(X))
        assert_equal(fxgrad.scan(lambda a, _: (a + 1.0, found(a * X)), 1.0, length=2)[1],
                     np.stack([wanted(X), wanted(2.0 * X)]))
    for mode in ("forward", "reverse"):
        check(fxgrad.jacobian(function, mode=mode), fxgrad.jacobian(function, mode=mode, chunk_size=7))
    assert_equal(fxgrad.hessian(lambda x: np.sum(function(x) ** 2))(X),
                 fxgrad.hessian(lambda x: np.sum(function(x) ** 2), chunk_size=6)(X))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 5e-2), ("complex128", 1e-12)])
def test_loops_keep_dtypes(dtype, tolerance):
    dtype = fxgrad.dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = X.astype(dtype)
    for mode in ("forward", "reverse"):
        found, wanted = (fxgrad.jacobian(lambda x: lax.scan(lambda c, row: (c * row + row, c), x[0], x)[1], mode=mode,
                                         holomorphic=dtype.kind == "c", chunk_size=size)(x) for size in (None, 7))
        assert found.dtype == wanted.dtype == dtype
        np.testing.assert_allclose(found.astype(complex), wanted.astype(complex), rtol=tolerance, atol=tolerance)


def test_columns_by_values_are_those_of_each_example():
    def function(x, places, a):
        return fxgrad.jacobian(lambda x: np.linalg.solve(a, (x @ B)[places]) * x[:2])(x)
    places, matrices = PLACES[:, :2], random.normal(size=(3, 2, 2))
    found = fxgrad.vmap(function, (None, 0, 0))(X, places, matrices)
    assert_equal(found, np.stack([function(X, *each) for each in zip(places, matrices, strict=True)]))
    assert_equal(fxgrad.jit(function)(X, places[0], matrices[0]), function(X, places[0], matrices[0]))
    both = [fxgrad.jacobian(fxgrad.jacobian(lambda a: function(X, places[0], a), chunk_size=size), chunk_size=size)
            for size in (None, 3)]
    assert_equal(*(each(matrices[0]) for each in both), 1e-9)


def test_an_operation_without_a_rule_takes_columns_from_there_on():
    names = operations(fxgrad.jacobian(lambda x: np.sort(A @ x @ B, 0)), X)
    assert names.count("dot_general") == 2  # those of the values


def test_a_result_in_another_order_is_not_copied(monkeypatch):
    monkeypatch.setattr(fxgrad.config, "check_level", 0)  # checks take memory
    a = x = np.ones((40, 40))
    function = fxgrad.jacobian(lambda x: a @ x)
    function(x)
    tracemalloc.start()
    found = function(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.1 * found.nbytes
    found[...] = 0.0
    assert function(x).any()


def test_an_infinite_slope_spoils_its_own_entries_alone():
    found = fxgrad.jacobian(np.sqrt)(np.array([0.0, 4.0]))
    np.testing.assert_array_equal(found, [[np.inf, 0.0], [0.0, 0.25]])


def test_what_a_choice_leaves_out_may_be_infinite():
    def function(x):
        return np.where(x > 0, np.sqrt(x), 0.0)[:, None] * np.ones(3)
    found = fxgrad.jacobian(function)(np.array([0.0, 4.0]))
    np.testing.assert_array_equal(found[0], 0.0)
    np.testing.assert_allclose(found[1], [[0.0, 0.25]] * 3)


def test_divisors_near_the_smallest_number_do_not_overflow():
    tiny = np.array([1e-310, 2e-310])
    found = fxgrad.jacobian(lambda x: (x * np.array([1e-305, 1e-306])) / tiny)(np.ones(2))
    np.testing.assert_allclose(np.diag(found), np.array([1e-305, 1e-306]) / tiny)


def test_sizes_of_zero_and_one():
    assert fxgrad.jacobian(lambda x: x @ np.zeros((3, 0)))(np.ones((2, 3))).shape == (2, 0, 2, 3)
    assert fxgrad.jacobian(lambda x: x[:, None] * np.ones((1, 3)))(np.ones(0)).shape == (0, 3, 0)
    found = fxgrad.jacobian(lambda x: x @ np.array([[2.0, 3.0]]))(np.ones((4, 1)))
    np.testing.assert_array_equal(found, np.einsum("ij,k->ikj", np.eye(4), [2.0, 3.0])[..., None])


def test_loops_branches_and_custom_rules_in_between():
    @fxgrad.custom_vjp
    def double(x):
        return 2.0 * x
    double.defvjp(lambda x: (2.0 * x, None), lambda _, cotangent: (2.0 * cotangent,))

    def function(x):
        def step(carry, row):
            return np.tanh(carry @ A) + row, carry.sum()
        last, sums = fxgrad.lax.scan(step, x[0], x @ B)
        return fxgrad.lax.cond(x[0, 0] > 0, lambda: last * sums, lambda: last @ C)
    assert_equal(fxgrad.jacobian(function)(X), fxgrad.jacobian(function, chunk_size=4)(X))
    assert_equal(fxgrad.jacobian(lambda x: A @ double(x @ B), mode="reverse")(X), 2.0 * of_jax()[0]["product"])


def test_jitted_functions_inside_stay_units_and_are_factored():
    inner = fxgrad.jit(lambda x, y: (A @ x @ B, np.tanh(y) * x.sum(0), C))

    def function(x):
        one, other, constant = inner(x * 2.0, x[0])
        return fxgrad.jit(lambda z: z @ C)(one) + other + constant

    def plain(x):
        return A @ (x * 2.0) @ B @ C + np.tanh(x[0]) * (x * 2.0).sum(0) + C
    for mode in ("forward", "reverse"):
        assert_equal(fxgrad.jacobian(function, mode=mode)(X), fxgrad.jacobian(plain, mode=mode, chunk_size=7)(X))
        assert_equal(fxgrad.jit(fxgrad.jacobian(function, mode=mode))(X), fxgrad.jacobian(plain)(X))
    assert_equal(fxgrad.vmap(fxgrad.jacobian(function))(np.stack([X, Y]))[1], fxgrad.jacobian(plain)(Y))
    found, expected = (fxgrad.hessian(lambda x, each=each: np.sum(each(x) ** 2))(X) for each in (function, plain))
    assert_equal(found, expected, 1e-9)
    found = fxgrad.make_program(fxgrad.jacobian(lambda x: fxgrad.jit(lambda x: A @ x @ B)(x)))(X)
    assert sum(equation.primitive.name == "dot_general" for call in found.equations for program in call.programs
               for equation in program.equations) == 0
    assert fxgrad.jacobian(lambda x: fxgrad.jit(lambda x: x @ np.zeros((5, 0)))(x) @ np.zeros((0, 2)))(X).shape == (
        5, 2, 5, 5)


def test_a_closure_over_an_outer_argument_is_differentiated_too():
    def outer(a):
        return np.sum(fxgrad.jacobian(lambda x: a @ np.sin(x) @ B)(X) ** 2)

    def by_passes(a):
        return np.sum(fxgrad.jacobian(lambda x: a @ np.sin(x) @ B, chunk_size=6)(X) ** 2)
    assert_equal(fxgrad.grad(outer)(A), fxgrad.grad(by_passes)(A), 1e-9)


def test_an_unjitted_matrix_of_derivatives_computes_no_value_that_is_not_returned():
    executed: list[str] = []

    def execute(program, inputs):
        executed.extend(equation.primitive.name for equation in program.equations)
        return eval_program(program, inputs, lambda equation, values: executors.evaluate(
            equation.primitive, values, equation.params), value_of)

    executor = types.SimpleNamespace(evaluate=executors.evaluate, execute=execute, compute=execute)

    def count(function):
        executed.clear()
        with use_executor(executor):
            function(V)
        return executed.count("cos")

    def total(x):
        return np.sum(np.sin(x))
    assert count(fxgrad.hessian(total)) == count(fxgrad.hessian(total, sparse=True)) == 0
    assert count(fxgrad.value_and_jacobian(fxgrad.grad(total))) == 1
