"""`laplacian`, `hessian_diag` and `divergence`: traces of dense Hessians and Jacobians, for functions of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import divergence, hessian_diag, laplacian, lax, nn
from fxgrad.errors import ArgumentError, DTypeError, TreeError
from fxgrad.scipy import linalg as matrices
from fxgrad.scipy import special

X = np.array([1.0, 2.0, -0.5])
W = np.array([[0.3, -0.2, 0.5, 0.1], [0.4, 0.6, -0.1, 0.2], [-0.3, 0.2, 0.1, 0.7]])
M = np.random.default_rng(5).normal(size=(4, 6))


@fxgrad.custom_jvp
def by_tangents(x):
    return fnp.sum(x ** 3)


by_tangents.defjvp(lambda primals, tangents: (by_tangents(*primals), fnp.sum(3 * primals[0] ** 2 * tangents[0])))

def scaled_tangents(inner):
    """Return the sum of the sines of `inner(x)`, with a rule that divides tangents by their largest entry, if not 0."""
    @fxgrad.custom_jvp
    def sines(x):
        return fnp.sum(fnp.sin(x))

    @sines.defjvp
    def rule(primals, tangents):
        size = fnp.max(fnp.abs(tangents[0]))
        size = fnp.where(size == 0.0, 1.0, size)
        return sines(*primals), fnp.sum(fnp.cos(primals[0]) * (tangents[0] / size)) * size
    return lambda x: sines(inner(x))


FUNCTIONS = {
    "powers": lambda x: np.sum(x ** 3), "network": lambda x: fnp.sum(fnp.tanh(fnp.tanh(x @ W) @ W.T)),
    "quotient": lambda x: x[0] / (1 + fnp.sum(x ** 2)), "product": lambda x: fnp.exp(x[0] * x[1]) * fnp.sin(x[2]),
    "norm": lambda x: fnp.sqrt(fnp.sum(x * x)), "logsumexp": lambda x: special.logsumexp(x * x),
    "attention": lambda x: fnp.sum(nn.softmax(fnp.outer(x, x * x)) @ fnp.sin(x)),
    "layer_norm": lambda x: nn.layer_norm(x)[0], "maximum": lambda x: fnp.max(x * x),
    "linear": lambda x: fnp.sum(W.T @ x), "modulus": lambda x: fnp.sum(fnp.abs(x + 1j * x * x + 0.1)),
    "conjugate": lambda x: fnp.sum(fnp.imag(fnp.conj(fnp.exp(1j * x)) * x) + fnp.angle(x + 1j)),
    "spectrum": lambda x: fnp.sum(fnp.abs(fnp.fft.fft(fnp.sin(x))) ** 2),
    "constant": lambda x: 1.0, "power": lambda x: fnp.sum(fnp.abs(x) ** 2.5),
    "erf": lambda x: fnp.sum(special.erf(x) * x),
    "scan": lambda x: lax.scan(lambda c, v: (fnp.sin(c) * v + c, c), 0.3, x)[0],
    "fori": lambda x: lax.fori_loop(0, 3, lambda i, y: fnp.sin(y) * x, x).sum(),
    "while": lambda x: lax.while_loop(lambda y: y[0] < 5, lambda y: y * y + x, fnp.abs(x)).sum(),
    "cond": lambda x: lax.cond(x[0] > 0, lambda x: (x ** 2).sum() ** 2, lambda x: x.sum(), x),
    "until": lambda x: lax.scan(lambda c, v: (c * v + fnp.sin(v), None), x[1], x, until=lambda c: c > 3.0)[0],
    "det": lambda x: fnp.linalg.det(np.eye(3) + fnp.outer(x, x * x)),
    "solve": lambda x: fnp.linalg.solve(np.eye(3) * 2 + fnp.outer(x, x), x)[0], "custom_jvp": by_tangents,
    "cholesky": lambda x: fnp.linalg.cholesky(np.eye(3) * 9 + fnp.outer(x, x))[2, 1],
    "expm": lambda x: fnp.sum(matrices.expm(fnp.outer(x, x * 0.2))),
    "conv": lambda x: fnp.sum(fnp.convolve(x, x * x) ** 2), "jit": fxgrad.jit(lambda x: fnp.sum(fnp.sin(x) * x)),
    "checkpoint": fxgrad.checkpoint(lambda x: fnp.prod(fnp.sin(x))), "nan_safe": fxgrad.nan_safe(
        lambda x: fnp.sum(fnp.sqrt(fnp.abs(x)) * x)),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("until", "product", "while")))
                                  for name in FUNCTIONS])
def test_they_are_the_trace_and_the_diagonal_of_the_hessian(name):
    function = FUNCTIONS[name]
    hessian = fxgrad.hessian(function)(X)
    value, found = laplacian(function, with_value=True)(X)
    assert type(found) is np.float64
    np.testing.assert_allclose(found, np.trace(hessian), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(value, function(X), rtol=1e-14)
    np.testing.assert_allclose(hessian_diag(function)(X), np.diag(hessian), rtol=1e-11, atol=1e-12)


def test_rules_that_divide_tangents_by_their_size():
    found = scaled_tangents(lambda x: x * x * x[0])
    hessian = fxgrad.jacfwd(fxgrad.jacfwd(found))(X)
    expected = np.diag(fxgrad.hessian(lambda x: fnp.sum(fnp.sin(x * x * x[0])))(X))
    np.testing.assert_allclose(np.diag(hessian), expected, rtol=1e-12)
    np.testing.assert_allclose(laplacian(found)(X), expected.sum(), rtol=1e-12)
    np.testing.assert_allclose(hessian_diag(found)(X), expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_and_batched_ones_are_the_same(name):
    function, batch = FUNCTIONS[name], np.stack([X, X + 0.1])
    expected = [laplacian(function)(x) for x in batch]
    np.testing.assert_allclose(fxgrad.jit(laplacian(function))(X), expected[0], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.vmap(laplacian(function)))(batch), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (place % 4 > 0))
                                  for place, name in enumerate(FUNCTIONS)])
def test_shared_directions_give_the_same(name):
    np.testing.assert_allclose(laplacian(FUNCTIONS[name], sparse=True)(X), laplacian(FUNCTIONS[name])(X), rtol=1e-11,
                               atol=1e-12)


def test_particles_that_do_not_meet_share_directions():
    def energy(x):
        return fnp.sum(fnp.tanh(fnp.tanh(x @ W) @ W.T) ** 2)
    x = np.random.default_rng(0).normal(size=(20, 3))
    found = laplacian(energy, sparse=True)
    np.testing.assert_allclose(found(x), laplacian(energy)(x), rtol=1e-13)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.vmap(found))(np.stack([x, 2 * x])), [found(x), found(2 * x)],
                               rtol=1e-12)
    shapes = {var.aval.shape for equation in fxgrad.make_program(found)(x).equations for var in equation.outputs}
    assert (3, 20, 4) in shapes
    assert (60, 20, 4) not in shapes
    chain = lambda p: fnp.sum(p["x"][1:] * p["x"][:-1] ** 2) * p["t"]
    point = {"x": np.arange(6.0), "t": 0.5}
    np.testing.assert_allclose(laplacian(chain, sparse=True)(point), laplacian(chain)(point), rtol=1e-13)


def attention(x):
    h = fnp.tanh(x @ W)
    weights = nn.softmax((h @ W.T) @ (h @ W[:, ::-1].T).T)
    return fnp.sum(fnp.tanh(h + weights @ (h @ W.T @ W)))


def of_two(p):
    h, t = fnp.tanh(p["x"] @ W), fnp.sin(p["t"])
    return fnp.sum(fnp.exp(0.1 * (h @ h.T) * t[:5, None] * t[:5])) * fnp.sum(t)


def heads(x):
    """Attention of two heads, twice in a row, with the positions of the particles as values in the second."""
    h = fnp.tanh(x @ W)
    q, k, v = (fnp.einsum("td,dhe->the", h, scale * M.reshape(4, 2, 3)) for scale in (1.0, -0.5, 2.0))
    weights = nn.softmax(fnp.einsum("the,she->hts", q, k))
    h = fnp.tanh(fnp.einsum("hts,she->the", weights, v))
    again = nn.softmax(fnp.einsum("the,she->ts", h, h))
    return fnp.sum(fnp.tanh(again @ x)) + fnp.sum(x.T @ again)


def with_fixed_weights(p):
    """Sums with constant weights, by values that half of the inputs do not move, and by each input's own index."""
    values = fnp.sin(p["x"]) @ W
    mixed = fnp.cos(np.arange(15.0).reshape(3, 5)) @ values
    return fnp.sum(fnp.tanh(mixed)) * fnp.sum(fnp.exp(0.1 * p["y"])) + fnp.sum(fnp.tanh(values.T @ fnp.outer(
        p["y"][:5], p["y"]) / fnp.sum(p["y"])))


MEETING = {
    "heads": (heads, np.random.default_rng(2).normal(size=(6, 3))),
    "fixed weights": (with_fixed_weights, {"x": np.random.default_rng(3).normal(size=(5, 3)),
                                           "y": np.linspace(0.5, 1.5, 9)}),
    "attention": (attention, np.random.default_rng(0).normal(size=(7, 3))),
    "two arguments, colors without a period": (of_two, {"t": np.linspace(0.1, 1.0, 8), "x": np.random.default_rng(
        1).normal(size=(5, 3))}),
    "pairs": (lambda x: fnp.sum(fnp.exp(-fnp.sin(x)[:, None] * fnp.cos(x))) * fnp.sum(fnp.sin(x)), np.arange(6.0)),
    "neighbors": (lambda x: fnp.prod(fnp.sin(x[1:] * x[:-1])) * fnp.sum(x), np.linspace(0.3, 2.0, 12)),
    "read again": (lambda x: fnp.sum(fnp.sin(x) @ x * x ** 2 + x), np.linspace(0.3, 2.0, 12)),
    "mixed at once": (lambda x: fnp.sin(fnp.sum(x * x)), np.linspace(0.3, 2.0, 12)),
    "branches": (lambda x: fnp.sum(fnp.outer(fnp.where(x > 1, x ** 2, fnp.floor(x) * x), fnp.sin(x))) ** 2,
                 np.linspace(0.3, 2.0, 12)),
    "a loop behind": (lambda x: lax.fori_loop(0, 2, lambda i, y: fnp.sin(y) * fnp.sum(y), x ** 2).sum(),
                      np.linspace(0.3, 2.0, 12)),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "a loop behind"))
                                  for name in MEETING])
def test_particles_share_directions_until_they_meet(name):
    function, point = MEETING[name]
    value, found = laplacian(function, with_value=True, sparse=True)(point)
    np.testing.assert_allclose(found, laplacian(function)(point), rtol=1e-11)
    np.testing.assert_allclose(value, function(point), rtol=1e-14)


def test_products_of_two_particles_are_computed_in_shared_directions():
    function, x = MEETING["attention"]
    found = laplacian(function, sparse=True)
    products = [equation for equation in fxgrad.make_program(found)(x).equations
                if equation.primitive.name == "dot_general"]
    shapes = [var.aval.shape for equation in products for var in equation.outputs]
    # Of 21 directions: tanh(x @ W) @ W.T and the scores in 3 of them; of the mean by weights, only what weights move.
    assert (3, 7, 7) in shapes
    assert not {(21, 7, 7), (7, 21, 7)} & {*shapes}
    means = [tuple(atom.aval.shape for atom in equation.inputs) for equation, shape in zip(
        products, shapes, strict=True) if shape == (21, 7, 4)]
    assert sorted(means) == [((21, 7, 1), (21, 1, 4)), ((21, 7, 1), (21, 1, 4)), ((21, 7, 7), (7, 4))]
    np.testing.assert_allclose(fxgrad.jit(fxgrad.vmap(found))(np.stack([x, 2 * x])), [found(x), found(2 * x)],
                               rtol=1e-11)
    # The derivative of the Laplacian along a line, by differences.
    ends = [found(x + step) for step in (1e-5, -1e-5)]
    np.testing.assert_allclose(fxgrad.jvp(found, (x,), (np.ones_like(x),))[1], (ends[0] - ends[1]) / 2e-5, rtol=1e-6)


@pytest.mark.slow
def test_shared_directions_nest() -> None:
    function, x = MEETING["attention"]
    twice = laplacian(laplacian(function, sparse=True), sparse=True)(x)
    np.testing.assert_allclose(twice, laplacian(laplacian(function))(x), rtol=1e-9)
    looped = lax.scan(lambda total, scale: (total + laplacian(function, sparse=True)(scale * x), None), 0.0,
                      np.array([1.0, 2.0]))[0]
    np.testing.assert_allclose(looped, sum(laplacian(function)(scale * x) for scale in (1.0, 2.0)), rtol=1e-11)
    by_jax = fxgrad.to_jax(laplacian(function, sparse=True))
    np.testing.assert_allclose(jax.jit(by_jax)(jnp.asarray(x, "float32")), laplacian(function)(x), rtol=1e-4)
    single = laplacian(function, sparse=True)(jnp.asarray(x, "float32"))
    assert isinstance(single, jax.Array)


def test_the_first_matrix_is_the_jacobian_of_its_product():
    def network(x, w=W):
        return fnp.sum(fnp.tanh(fnp.tanh((-x + 1.0) * 2.0 @ w) @ w.T))
    program = fxgrad.make_program(laplacian(network))(X)
    products = [[atom.aval.shape for atom in equation.inputs] for equation in program.equations
                if equation.primitive.name == "dot_general"]
    assert [(3, 3), (3, 4)] not in products
    expected = np.trace(fxgrad.hessian(network)(X))
    np.testing.assert_allclose(laplacian(network)(X), expected, rtol=1e-13)
    np.testing.assert_allclose(laplacian(network, argnums=(0, 1))(X, W), expected + np.trace(
        fxgrad.hessian(lambda w: network(X, w.reshape(3, 4)))(W.ravel())), rtol=1e-13)
    of_weights = fxgrad.grad(lambda w: laplacian(lambda x: network(x, w))(X))(W)
    above, below = (laplacian(lambda x, w=w: network(x, w))(X) for w in (W + 1e-5, W - 1e-5))
    np.testing.assert_allclose(np.sum(of_weights), (above - below) / 2e-5, rtol=1e-6)
    by_each = fxgrad.vmap(lambda w: laplacian(lambda x: network(x, w))(X))(np.stack([W, 2 * W]))
    np.testing.assert_allclose(by_each, [laplacian(lambda x, w=w: network(x, w))(X) for w in (W, 2 * W)], rtol=1e-13)


@pytest.mark.slow
def test_jaxs_hessian_has_the_same_trace():
    def network(lib):
        return lambda x: lib.sum(lib.tanh(lib.tanh(x @ W) @ W.T) ** 2)
    with jax.enable_x64(True):
        expected = jnp.trace(jax.hessian(network(jnp))(X))
    np.testing.assert_allclose(laplacian(network(np))(X), expected, rtol=1e-13)


def test_containers_further_arguments_and_outputs_of_any_shape():
    point = {"x": X, "t": 0.3}

    def function(scale, p, power=2):
        return {"a": scale * p["t"] ** 3 * fnp.sum(p["x"] ** power), "b": fnp.outer(p["x"], p["x"]) * p["t"]}
    found = laplacian(function, argnums=1)(2.0, point, power=3)
    np.testing.assert_allclose(found["a"], 2 * (6 * 0.3 * np.sum(X ** 3) + 0.3 ** 3 * 6 * np.sum(X)), rtol=1e-14)
    np.testing.assert_allclose(found["b"], 2 * 0.3 * np.eye(3), rtol=1e-14)
    diagonal = hessian_diag(lambda p: p["t"] ** 3 * fnp.sum(p["x"] ** 2))(point)
    np.testing.assert_allclose(diagonal["x"], np.full(3, 2 * 0.3 ** 3), rtol=1e-14)
    np.testing.assert_allclose(diagonal["t"], 6 * 0.3 * np.sum(X ** 2), rtol=1e-14)


def test_they_nest():
    function = FUNCTIONS["product"]
    biharmonic = laplacian(laplacian(function))(X)
    rates = X[0] ** 2 + X[1] ** 2
    a, b, _ = X
    # Of exp(a b) sin(c): the Laplacian is (a^2 + b^2 - 1) times it; that again by hand.
    expected = ((rates - 1) ** 2 + 4 + 8 * a * b) * function(X)
    np.testing.assert_allclose(biharmonic, expected, rtol=1e-13)
    gradient = fxgrad.grad(laplacian(FUNCTIONS["powers"]))(X)
    np.testing.assert_allclose(gradient, np.full(3, 6.0), rtol=1e-14)
    assert fxgrad.jit(fxgrad.grad(lambda a: laplacian(lambda x: fnp.sum(a * x ** 2))(X)))(2.0) == 6.0
    np.testing.assert_allclose(divergence(fxgrad.grad(function))(X), laplacian(function)(X), rtol=1e-14)


@pytest.mark.parametrize("chunk_size", [None, 1, 2, 5])
def test_divergence_is_the_trace_of_the_jacobian(chunk_size):
    def field(x):
        return fnp.sin(x) * fnp.sum(x ** 2)
    found = divergence(field, chunk_size=chunk_size)(X)
    np.testing.assert_allclose(found, np.trace(fxgrad.jacobian(field)(X)), rtol=1e-14)
    np.testing.assert_allclose(hessian_diag(FUNCTIONS["network"], chunk_size=chunk_size)(X),
                               np.diag(fxgrad.hessian(FUNCTIONS["network"])(X)), rtol=1e-12)
    of_containers = divergence(lambda t, p: {"x": p["x"] ** 2 * p["t"], "t": p["t"] ** 3}, argnums=1)(
        1.0, {"x": X, "t": 0.5})
    np.testing.assert_allclose(of_containers, np.sum(X) + 0.75, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_dtypes_scalars_and_empty_arrays(dtype):
    x = fnp.asarray(X).astype(dtype)
    found = laplacian(lambda x: fnp.sum(0.1 * x ** 3))(x)
    assert found.dtype == dtype
    np.testing.assert_allclose(float(found), 1.5, rtol={"float64": 1e-14, "float32": 1e-6}.get(dtype, 2e-2))
    assert laplacian(lambda x: x ** 3)(2.0) == hessian_diag(lambda x: x ** 3)(2.0) == 12.0
    empty = np.zeros((0, 2), dtype if dtype != "bfloat16" else "float32")
    assert laplacian(fnp.sum)(empty) == 0
    assert hessian_diag(fnp.sum)(empty).shape == (0, 2)
    assert divergence(fnp.sin)(empty) == 0


def of_x(x):
    return x


def test_values_without_elements_share_no_directions():
    def attention(x, part):
        rows = np.tanh(x.reshape(-1, 3))
        inner = nn.softmax(rows @ rows.T, -1) @ rows
        return np.sum(inner ** 2) * (1.0 + np.sum(np.sin(x[part])) ** 2) + np.prod(np.sum(np.sin(x[part]) ** 2) + rows)
    for function, size in ((lambda x: np.sum((x[1:] * x[:-1]) ** 2), 1), (lambda x: x[1:], 1), (lambda x: x[1:], 24),
                           (lambda x: attention(x, slice(0, 0)), 24), (lambda x: attention(x, slice(0, 3)), 24)):
        x = np.linspace(0.1, 1.0, size)
        np.testing.assert_allclose(laplacian(function, sparse=True)(x), laplacian(function)(x), rtol=1e-12)
    assert float(laplacian(lambda x: np.sum(x[1:] ** 2), sparse=True)(np.ones(1))) == 0.0
    running = laplacian(lambda x: np.sum(fxgrad.lax.scan(lambda c, each: (c + each, c * each), 0.0, x)[1]), sparse=True)
    assert float(running(np.zeros(0))) == 0.0
    np.testing.assert_allclose(running(np.ones(3)), 0.0, atol=1e-14)


@pytest.mark.parametrize("sparse", [False, True])
def test_one_of_several_arguments_may_be_empty(sparse):
    found = laplacian(lambda x, y: np.sum(x ** 3) + np.sum(y ** 2), argnums=(0, 1), sparse=sparse)
    assert float(found(np.array([1.0, 2.0]), np.zeros((0, 3)))) == 18.0
    assert laplacian(lambda x: [], sparse=sparse)(np.ones(2)) == []


@pytest.mark.parametrize(("kind", "text", "call"), [
    (DTypeError, ("laplacian needs floating-point arguments, and x is i64[2]. Convert it, float(x) or "
     "x.astype('float32'), or leave it out of argnums"), lambda: laplacian(of_x)(np.array([1, 2]))),
    (DTypeError, ("laplacian takes real arguments, and x of of_x is c128[2]. Pass its real and imaginary parts as two "
     "arguments"), lambda: laplacian(of_x)(np.array([1j, 2]))),
    (DTypeError, ("laplacian needs floating-point outputs, and of_int returned i32[2], which has no derivative. Return "
     "floating-point arrays alone"), lambda: laplacian(of_int)(np.ones(2))),
    (ArgumentError, ("hessian_diag needs a function with a scalar output, and of_x returned f64[2]. Take "
     "fxgrad.hessian, or the sum"), lambda: hessian_diag(of_x)(np.ones(2))),
    (TreeError, ("divergence needs a function whose output is like its argument: of_pair takes PyTreeDef((*,)) and "
     "returned PyTreeDef(((*, *),))"), lambda: divergence(of_pair)(np.ones(2))),
    (ArgumentError, ("divergence needs a function whose output is like its argument: of_sum takes arrays of the "
     "shapes [(2,)] and returned [()]"), lambda: divergence(of_sum)(np.ones(2))),
])
def test_what_has_none_is_refused(kind, text, call):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).split("\n")[0] == text


def of_int(x):
    return fnp.int32(x)


def of_pair(x):
    return x, x


def of_sum(x):
    return fnp.sum(x)


@pytest.mark.parametrize("transformed", [lambda f: f, fxgrad.jit], ids=["un-jitted", "jitted"])
@pytest.mark.parametrize("sparse", [False, True])
def test_auxiliary_output_comes_along(transformed, sparse):
    def potential(x):
        return fnp.sum(x ** 3), {"square": x ** 2}

    found, aux = transformed(laplacian(potential, has_aux=True, sparse=sparse))(X)
    assert found == 6 * X.sum()
    np.testing.assert_array_equal(aux["square"], X ** 2)
    (value, aux), found = transformed(laplacian(potential, has_aux=True, with_value=True, sparse=sparse))(X)
    assert (float(value), float(found)) == ((X ** 3).sum(), 6 * X.sum())
    np.testing.assert_array_equal(aux["square"], X ** 2)


@pytest.mark.parametrize("transformed", [lambda f: f, fxgrad.jit], ids=["un-jitted", "jitted"])
def test_auxiliary_output_of_diagonals_and_divergences(transformed):
    diagonal, aux = transformed(hessian_diag(lambda x: (fnp.sum(x ** 3), x[0] * x[1]), has_aux=True, chunk_size=2))(X)
    np.testing.assert_array_equal(diagonal, 6 * X)
    assert aux == X[0] * X[1]
    total, aux = transformed(divergence(lambda x: (x ** 2, {"sum": fnp.sum(x)}), has_aux=True))(X)
    assert (float(total), float(aux["sum"])) == (2 * X.sum(), X.sum())


def test_auxiliary_output_need_not_be_arrays_and_is_kept_where_there_are_no_entries():
    assert laplacian(lambda x: (fnp.sum(x ** 2), "text"), has_aux=True)(X) == (6.0, "text")
    found, aux = laplacian(lambda x: (fnp.sum(x ** 2), fnp.sum(x) + 1.0), has_aux=True)(np.zeros(0))
    assert (found, aux) == (0.0, 1.0)
    with pytest.raises(ArgumentError, match="divergence with has_aux=True needs function to return a pair"):
        divergence(lambda x: x, has_aux=True)(X)


def test_several_arguments_are_one_argument():
    def product(x, y):
        return fnp.sum(x ** 2 * y ** 3)

    x, y = X, X + 1.0
    assert laplacian(product, (0, 1))(x, y) == np.sum(2 * y ** 3 + 6 * x ** 2 * y)
    first, second = hessian_diag(product, (1, 0))(x, y)
    np.testing.assert_allclose(first, 6 * x ** 2 * y)
    np.testing.assert_allclose(second, 2 * y ** 3)
    assert divergence(lambda x, y: (x * y, x * y ** 2), (0, 1))(x, y) == np.sum(y + 2 * x * y)
    with pytest.raises(TreeError, match="divergence needs a function whose output is like its argument"):
        divergence(lambda x, y: x * y, (0, 1))(x, y)


KINDS: dict[str, Callable[[Any], Any]] = {
    "laplacian": laplacian(FUNCTIONS["powers"]), "sparse laplacian": laplacian(FUNCTIONS["powers"], sparse=True),
    "hessian_diag": hessian_diag(FUNCTIONS["powers"]), "divergence": divergence(np.sin),
    "jet": lambda x: fxgrad.jet(np.sin, (x,), ([x, x],)),
    "taylor": lambda x: fxgrad.taylor(np.sin, 2)(x, direction=x)}


@pytest.mark.parametrize("name", KINDS)
def test_results_are_of_the_kind_of_the_arguments(name: str) -> None:
    x = np.array([0.3, 0.7], np.float32)
    for given, kinds in ((x, {np.ndarray, np.float32}), (fnp.asarray(x), {fxgrad.Array}),
                         (jnp.asarray(x), {type(jnp.asarray(x))})):
        leaves = fxgrad.tree.leaves(KINDS[name](given))
        assert {*map(type, leaves)} <= kinds
        assert all(leaf.dtype == np.float32 for leaf in leaves)


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "fft2"])
def test_transforms_of_batches_of_batches_compile(name, axis):
    def function(x):
        wave = fnp.sin(x.reshape(2, 3)) * (1 if name == "rfft" else 1 + 0.5j)
        transform = getattr(fnp.fft, name)
        return fnp.sum(fnp.abs(transform(wave) if name == "fft2" else transform(wave, axis=axis)) ** 4)
    batch = np.random.default_rng(8).normal(size=(2, 3, 6))
    hessians = fxgrad.vmap(fxgrad.vmap(fxgrad.hessian(function)))
    wanted = np.trace(hessians(batch), axis1=2, axis2=3)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.vmap(fxgrad.vmap(laplacian(function))))(batch), wanted, rtol=1e-9)
    np.testing.assert_allclose(np.trace(fxgrad.jit(hessians)(batch), axis1=2, axis2=3), wanted, rtol=1e-9)
    tangents = fxgrad.jit(lambda x: fxgrad.jvp(fxgrad.vmap(laplacian(function)), (x,), (np.ones_like(x),))[1])(batch[0])
    step = 1e-5 * np.ones_like(batch[0])
    differences = [fxgrad.vmap(laplacian(function))(batch[0] + sign * step) for sign in (1, -1)]
    np.testing.assert_allclose(tangents, (differences[0] - differences[1]) / 2e-5, rtol=1e-6,
                               atol=1e-6 * np.abs(tangents).max())
