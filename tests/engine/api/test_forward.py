"""`jvp`, `linearize`, Jacobians, Hessians, `hvp`: against closed forms and jax."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
from fxgrad import grad, hessian, hvp, jacfwd, jacobian, jacrev, jvp, linearize, value_and_jacobian
from fxgrad.engine.tracing.tape import Tape


def test_jvp_containers_and_options() -> None:
    output, tangent = jvp(lambda p: p["a"] * p["b"], ({"a": 2.0, "b": np.ones(2)},),
                          ({"a": 1.0, "b": np.array([0.0, 1.0])},))
    np.testing.assert_array_equal(output, [2.0, 2.0])
    np.testing.assert_array_equal(tangent, [1.0, 3.0])
    output, tangent, aux = jvp(lambda x, n: (x * n, "words"), (2.0, 3), (1.0,), has_aux=True, argnums=0)
    assert (output, tangent, aux) == (6.0, 3.0, "words")


def test_integer_primals_and_outputs() -> None:
    float0 = np.zeros((), fxgrad.dtypes.float0)
    output, tangent = jvp(lambda n, x: (n * 2, x * n), (3, 2.0), (float0, 1.0))
    assert output == (6, 6.0)
    assert tangent[0].dtype == fxgrad.dtypes.float0
    assert tangent[1] == 3.0


def test_linearize() -> None:
    x = np.array([1.0, 2.0])
    calls = []

    def f(x):
        calls.append(1)
        return np.sin(x) * x

    output, linear = linearize(f, x)
    np.testing.assert_allclose(output, np.sin(x) * x, rtol=1e-12)
    for tangent in (np.ones(2), np.array([1.0, -1.0])):
        np.testing.assert_allclose(linear(tangent), (np.sin(x) + x * np.cos(x)) * tangent, rtol=1e-12)
    assert calls == [1]
    names = [equation.primitive.name for equation in linear.program.equations]
    assert "sin" not in names
    assert "cos" not in names


@pytest.mark.parametrize("transformation", [jacfwd, jacrev, jacobian])
@pytest.mark.parametrize("chunk_size", [None, *[pytest.param(size, marks=pytest.mark.slow) for size in (1, 2)]])
def test_jacobian_blocks_equal_jax(transformation, chunk_size) -> None:
    def f(xp):
        def inner(p, s):
            return {"m": xp.outer(p["x"], p["y"]) * s, "v": xp.sin(p["x"])}
        return inner

    p, s = {"x": np.array([0.1, 0.2]), "y": np.array([0.3, 0.4, 0.5])}, np.float64(2.0)
    actual = transformation(f(np), argnums=(0, 1), chunk_size=chunk_size)(p, s)
    with jax.enable_x64(True):
        expected = jax.jit(jax.jacobian(f(jnp), argnums=(0, 1)))(jax.tree.map(jnp.asarray, p), jnp.asarray(s))
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-15, rtol=1e-12), actual, expected)


def test_jacobian_with_value_and_aux() -> None:
    value, matrix = value_and_jacobian(lambda x: x * x)(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(value, [1.0, 4.0])
    np.testing.assert_array_equal(matrix, [[2.0, 0.0], [0.0, 4.0]])
    matrix, aux = jacfwd(lambda x: (x * x, (x, "words")), has_aux=True)(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(aux[0], [1.0, 2.0])
    assert aux[1] == "words"
    (value, aux), matrix = value_and_jacobian(lambda x: (x, 1), has_aux=True)(3.0)
    assert (value, aux, matrix) == (3.0, 1, 1.0)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)])
def test_jacobian_shapes(shape: tuple[int, ...]) -> None:
    x = np.ones(shape)
    for transformation in (jacfwd, jacrev):
        assert transformation(lambda x: np.stack([x, x]))(x).shape == (2, *shape, *shape)
    assert hessian(lambda x: np.sum(x ** 3))(x).shape == shape + shape


def test_holomorphic_jacobian() -> None:
    z = np.array([1.0 + 2.0j, 0.5j])
    np.testing.assert_allclose(jacfwd(lambda z: z ** 2, holomorphic=True)(z), np.diag(2 * z), rtol=1e-12)
    np.testing.assert_allclose(jacrev(lambda z: z ** 2, holomorphic=True)(z), np.diag(2 * z), rtol=1e-12)


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


@pytest.mark.slow
def test_hessian_of_rosenbrock() -> None:
    x = np.linspace(-1.0, 1.0, 10)
    with jax.enable_x64(True):
        expected = jax.jit(jax.hessian(lambda x: jnp.sum(
            100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)))(jnp.asarray(x))
    expected = np.asarray(expected)
    for _ in range(3):  # the interpreter, then generated code
        np.testing.assert_allclose(hessian(rosenbrock)(x), expected, rtol=1e-12)
    np.testing.assert_allclose(fxgrad.jit(hessian(rosenbrock))(x), expected, rtol=1e-12)
    vector = np.arange(10.0)
    np.testing.assert_allclose(hvp(rosenbrock, (x,), (vector,)), expected @ vector, rtol=1e-12)


def test_hessian_of_containers() -> None:
    result = hessian(lambda p: p["a"] ** 2 * p["b"])({"a": 2.0, "b": 3.0})
    assert result["a"]["a"] == 6.0
    assert result["a"]["b"] == result["b"]["a"] == 4.0
    assert result["b"]["b"] == 0.0


def test_hessians_record_a_function_once(monkeypatch: pytest.MonkeyPatch) -> None:
    finished: list[Any] = []
    finish = Tape.finish
    monkeypatch.setattr(Tape, "finish", lambda tape, outputs: (finished.append(tape), finish(tape, outputs))[1])

    def by_value(x: Any, scale: Any = 1.0) -> Any:
        while np.sum(x * x) < 4.0:
            x = 2.0 * x
        return {"cubes": scale * x ** 3, "sum": np.sum(x) ** 2}

    second = hessian(by_value)
    for x, factor in ((np.array([0.5, 0.5]), 4.0), (np.array([3.0, 4.0]), 1.0)):
        for _ in range(2):
            second(x, scale=3.0)
        finished.clear()
        found = second(x, scale=3.0)
        assert len(finished) == 1
        cubes = np.zeros((2, 2, 2))
        cubes[[0, 1], [0, 1], [0, 1]] = 18.0 * factor ** 3 * x
        np.testing.assert_allclose(found["cubes"], cubes)
        np.testing.assert_allclose(found["sum"], np.full((2, 2), 2.0 * factor ** 2))


def test_hvp_returns_auxiliary_output() -> None:
    x, vector = np.array([1.0, 2.0]), np.array([1.0, 0.0])
    product, aux = hvp(lambda x: (np.sum(x ** 3), {"twice": 2 * x, "text": "kept"}), (x,), (vector,), has_aux=True)
    np.testing.assert_array_equal(product, [6.0, 0.0])
    np.testing.assert_array_equal(aux["twice"], [2.0, 4.0])
    assert aux["text"] == "kept"


def test_hvp_of_some_arguments() -> None:
    assert hvp(lambda x, y: x ** 2 * y ** 2, (2.0, 3.0), (1.0,), argnums=1) == 8.0


# The first three of these have about the equations of one program of the function itself an order.
def count_nested(transform, function, order: int) -> tuple[int, float]:
    for _ in range(order):
        function = transform(function)
    return len(fxgrad.make_program(function)(1.0).equations), float(function(0.7))


def forward_derivative(function):
    return lambda x: jvp(function, (x,), (1.0,))[1]


THREE_OPERATIONS = [
    lambda x: np.sin(x) * x * np.exp(x),
    lambda x: np.exp(np.sin(x)) * x,
    lambda x: np.sin(np.exp(x)) * x,
]


@pytest.mark.parametrize("function", THREE_OPERATIONS)
def test_nested_forward_derivatives_stay_small(function) -> None:
    counts = [count_nested(forward_derivative, function, order)[0] for order in (2, 4, 6, 8)]
    assert all(count <= limit for count, limit in zip(counts, (25, 55, 95, 150), strict=True)), counts


def test_nested_gradients_stay_small() -> None:
    counts = [count_nested(grad, THREE_OPERATIONS[0], order)[0] for order in (2, 4, 6)]
    assert all(count <= limit for count, limit in zip(counts, (30, 80, 200), strict=True)), counts


@pytest.mark.parametrize("order", [1, 2, 4, 6, 8])
def test_nested_derivatives_of_a_product_are_right(order: int) -> None:
    """d^n/dx^n of x e^x is (x + n) e^x."""
    with fxgrad.default_dtype("float64"):
        forward = count_nested(forward_derivative, lambda x: x * np.exp(x), order)[1]
        assert forward == pytest.approx((0.7 + order) * np.exp(0.7), rel=1e-12)
        if order <= 6:
            reverse = count_nested(grad, lambda x: x * np.exp(x), order)[1]
            assert reverse == pytest.approx(forward, rel=1e-12)


@pytest.mark.parametrize("ones", [np.ones_like, lambda x: np.ones(3)])
def test_nested_derivatives_in_the_direction_of_ones_stay_small(ones) -> None:
    def h(x):
        return np.sin(x) * np.exp(x)

    counts, x = [], np.array([0.5, 1.0, -2.0])
    for order in range(1, 7):
        def h(x, g=h):
            return fxgrad.jvp(g, (x,), (ones(x),))[1]
        counts.append(len(fxgrad.make_program(h)(x).equations))
        # the n-th derivative is 2 ** (n / 2) sin(x + n pi / 4) exp(x)
        expected = 2 ** (order / 2) * np.sin(x + order * np.pi / 4) * np.exp(x)
        for _ in range(3):
            np.testing.assert_allclose(h(x), expected, rtol=1e-12)
    assert all(after - before <= 4 for before, after in itertools.pairwise(counts)), counts


def test_directions_of_ones_are_as_any_other() -> None:
    def f(x):
        return np.cumsum(x * x) @ np.ones((3, 2)), np.sort(x), x[1:], x.reshape(3, 1)

    x = np.array([0.5, 1.0, -2.0])
    for tangent in (np.ones(3), np.full(3, 1.5), np.array([1.0, 1.0, 2.0]), np.ones(3)):
        _, got = fxgrad.jvp(f, (x,), (tangent,))
        _, linear = fxgrad.linearize(f, x)
        for left, right in zip(got, linear(tangent), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-12)
            assert left.shape == right.shape


@pytest.mark.parametrize("transform", [fxgrad.jacrev, fxgrad.jacfwd, fxgrad.jacobian])
def test_jacobians_in_arguments_that_outputs_do_not_depend_on(transform: Callable[..., Any]) -> None:
    x, y = np.array([0.5, 1.0, 2.0]), np.array([3.0, 4.0])
    for function in (lambda x, y: 2 * x, lambda x, y: [2 * x, np.sum(x)], lambda x, y: [2 * x, np.ones(4)]):
        found = transform(function, (0, 1))(x, y)
        for in_x, in_y in [found] if type(found) is tuple else found:
            assert not in_y.any()
            assert in_y.shape == (*in_x.shape[:-1], 2)
            assert in_x.dtype == in_y.dtype == np.float64
