"""Rows of docs/appendix/coverage.md that hold of the library as a whole, each as the row says it."""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, nn
from fxgrad.testing import check_grads

RANDOM = np.random.default_rng(7)
X = RANDOM.uniform(0.5, 2.0, size=(4, 3))


# --- vocabulary ---------------------------------------------------------------------------------------------------


NAMED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "matmul": (fnp.matmul, (X, X.T), np.einsum("ij,kj->ik", X, X)),
    "add": (fnp.add, (X, X), 2 * X),
    "conv2d": (functools.partial(nn.conv2d, padding="VALID"), (X.reshape(1, 4, 3, 1), np.ones((2, 2, 1, 1))),
               (X[:-1, :-1] + X[1:, :-1] + X[:-1, 1:] + X[1:, 1:]).reshape(1, 3, 2, 1)),
    "softmax": (nn.softmax, (X,), np.exp(X) / np.exp(X).sum(axis=-1, keepdims=True)),
    "layer_norm": (nn.layer_norm, (X,), (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5)),
    "relu": (nn.relu, (X - 1.0,), np.where(X > 1.0, X - 1.0, 0.0))}


@pytest.mark.parametrize("name", NAMED)
def test_row_g23_each_is_a_function_with_a_closed_form_and_one_line_of_a_program(name: str) -> None:
    function, arguments, expected = NAMED[name]
    np.testing.assert_allclose(function(*arguments), expected, rtol=1e-12)
    text = str(fxgrad.make_program(lambda *args: function(*args))(*arguments))
    sign = {"matmul": "@", "add": "+"}.get(name, f"{name}(")
    assert [line for line in text.splitlines() if "return" in line and sign in line], text


# --- primitives ---------------------------------------------------------------------------------------------------


ELEMENTARY: dict[str, Callable[..., Any]] = {
    "+": lambda x: x + 2.0 * x, "-": lambda x: 1.0 - x, "*": lambda x: x * x * 3.0, "/": lambda x: 1.0 / x + x / 2.0,
    "x**3": lambda x: x ** 3, "x**2.5": lambda x: x ** 2.5, "2**x": lambda x: 2.0 ** x, "exp": np.exp, "log": np.log,
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh}


@pytest.mark.parametrize("name", ELEMENTARY)
def test_rows_p1_and_p2_under_every_transformation(name: str) -> None:
    function = ELEMENTARY[name]
    check_grads(function, (X,), order=3)
    slope, curvature = fxgrad.grad(function), fxgrad.grad(fxgrad.grad(function))
    for derivative in slope, curvature:
        apart = np.array([derivative(x) for x in X.ravel()]).reshape(X.shape)
        together = fxgrad.vmap(fxgrad.vmap(derivative))(X)
        np.testing.assert_allclose(together, apart, rtol=1e-13)
        np.testing.assert_allclose(fxgrad.jit(fxgrad.vmap(fxgrad.vmap(derivative)))(X), apart, rtol=1e-12)
    tangent = np.ones_like(X)
    np.testing.assert_allclose(fxgrad.jvp(function, (X,), (tangent,))[1],
                               fxgrad.vmap(fxgrad.vmap(slope))(X), rtol=1e-13)


def test_row_p1_powers_at_their_edges_are_jaxs() -> None:
    for exponent in 0, 1, 2, 3, -1:
        for x in 0.0, -2.0, 3.0:
            if (x, exponent) == (0.0, -1):
                continue
            power = lambda x, n=exponent: x ** n
            assert float(power(x)) == x ** exponent
            with jax.enable_x64(True):
                expected = float(jax.grad(power)(x)), float(jax.grad(jax.grad(power))(x))
            found = float(fxgrad.grad(power)(x)), float(fxgrad.grad(fxgrad.grad(power))(x))
            np.testing.assert_allclose(found, expected, rtol=1e-14, err_msg=f"{x} ** {exponent}")


def test_row_p4_products_transposes_inverses() -> None:
    a = RANDOM.normal(size=(2, 3, 3)) + 3.0 * np.eye(3)
    a_complex = a + 1j * RANDOM.normal(size=(2, 3, 3))
    for matrices in a, a_complex:
        check_grads(lambda m: np.linalg.inv(m) @ np.swapaxes(m, -1, -2), (matrices,), order=2)
    # By d(A⁻¹) = -A⁻¹ dA A⁻¹, Giles 2008, section 2.2.3.
    direction = RANDOM.normal(size=(2, 3, 3))
    inverse = np.linalg.inv(a)
    np.testing.assert_allclose(fxgrad.jvp(np.linalg.inv, (a,), (direction,))[1], -inverse @ direction @ inverse,
                               rtol=1e-10)


def test_row_p6_reading_and_adding_are_each_others_transposes() -> None:
    x = RANDOM.normal(size=(5, 4))
    places: list[Any] = [2, slice(None, None, -1), slice(4, 0, -2), (slice(None), -1), np.array([0, 3, 3, -1]),
                         (np.array([[0], [2]]), np.array([1, 1])), (Ellipsis, None, 1), x > 0.0]
    for place in places:
        cotangent = RANDOM.normal(size=x[place].shape)
        expected = np.zeros_like(x)
        np.add.at(expected, place, cotangent)
        pulled = fxgrad.vjp(lambda x, place=place: x[place], x)[1](cotangent)[0]
        np.testing.assert_array_equal(pulled, expected)
        added = fxgrad.vjp(lambda y, place=place: fnp.zeros_like(x).at[place].add(y), cotangent)[1](x)[0]
        np.testing.assert_array_equal(added, x[place])
    check_grads(lambda a, b: np.concatenate([a, b[::-1]], axis=1), (x, x), order=2)


# --- differentiation ----------------------------------------------------------------------------------------------


def test_row_a6_the_mode_follows_the_shape() -> None:
    weights = RANDOM.normal(size=(40, 2))

    def passes(function: Callable[..., Any], x: Any) -> set[int]:
        """Sizes of the first axes of all arrays in the program of the Jacobian."""
        program = fxgrad.make_program(fxgrad.jacobian(function))(x)
        return {out.aval.shape[0] for equation in program.equations for out in equation.outputs if out.aval.shape}
    tall, wide = lambda x: np.tanh(weights @ x), lambda x: np.tanh(x @ weights)
    assert 40 in passes(tall, np.ones(2))
    for function, x in (tall, np.ones(2)), (wide, np.ones(40)):
        one_way, other_way = (fxgrad.cost_analysis(mode(function))(x).flops for mode in (fxgrad.jacfwd, fxgrad.jacrev))
        assert fxgrad.cost_analysis(fxgrad.jacobian(function))(x).flops == min(one_way, other_way)
        np.testing.assert_allclose(fxgrad.jacobian(function)(x), fxgrad.jacrev(function)(x), rtol=1e-13)


def test_row_a7_what_is_not_asked_for_costs_nothing() -> None:
    def loss(w: Any, x: Any) -> Any:
        return np.sum(np.tanh(x @ w) ** 2)
    w, x = RANDOM.normal(size=(30, 20)), RANDOM.normal(size=(50, 30))
    alone, both = (fxgrad.make_program(fxgrad.grad(loss, argnums))(w, x) for argnums in (0, (0, 1)))
    products = [sum(equation.primitive.name == "dot_general" for equation in fxgrad.inline(program).equations)
                for program in (alone, both)]
    assert products == [2, 3]


def test_row_a10_no_derivative_crosses_stop_gradient() -> None:
    def loss(online: Any, target: Any, x: Any) -> Any:
        aim = fxgrad.stop_gradient(np.tanh(x @ target))
        return np.mean((np.tanh(x @ online) - aim) ** 2)
    online, target, x = RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(5, 3))
    held = np.tanh(x @ target)
    for transformed in fxgrad.grad(loss, (0, 1)), fxgrad.jit(fxgrad.grad(loss, (0, 1))):
        first, second = transformed(online, target, x)
        assert not np.asarray(second).any()
        expected = fxgrad.grad(lambda online: np.mean((np.tanh(x @ online) - held) ** 2))(online)
        np.testing.assert_allclose(first, expected, rtol=1e-12)
    # Structurally: the gradient in the target alone computes nothing.
    assert not fxgrad.make_program(fxgrad.grad(loss, 1))(online, target, x).equations[1:]
    # At second order and for a batch: x * sg(x) has slope sg(x), and no curvature.
    product = lambda x: x * fxgrad.stop_gradient(x)
    np.testing.assert_array_equal(fxgrad.vmap(fxgrad.grad(product))(X[0]), X[0])
    np.testing.assert_array_equal(fxgrad.vmap(fxgrad.grad(fxgrad.grad(product)))(X[0]), 0.0)


def test_row_a11_a_pullback_is_used_again_and_what_it_keeps_is_freed_with_it() -> None:
    x = np.ones(200_000)
    result, pullback = fxgrad.vjp(lambda x: np.sum(np.sin(x) * np.exp(x)), x)
    slopes = [pullback(np.float64(scale))[0] for scale in (1.0, 2.0, 1.0)]
    np.testing.assert_array_equal(slopes[0], slopes[2])
    np.testing.assert_allclose(slopes[1], 2.0 * np.asarray(slopes[0]), rtol=1e-15)
    del result, slopes, pullback
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        _, pullback = fxgrad.vjp(lambda x: np.sum(np.sin(x) * np.exp(x)), x)
        kept = tracemalloc.get_traced_memory()[0] - before
        reference = weakref.ref(pullback)
        del pullback, _
        gc.collect()
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert reference() is None
    assert kept >= x.nbytes
    assert left < x.nbytes / 10


def test_row_a14_a_rollout_of_a_pendulum_by_scan() -> None:
    def energy_after(start: Any, length: Any, steps: int, body: Callable[..., Any]) -> Any:
        state, _ = fxgrad.scan(lambda state, _: (body(state, length), None), start, None, length=steps)
        return 0.5 * (length * state[1]) ** 2 - 9.81 * length * np.cos(state[0])

    def step(state: Any, length: Any) -> Any:
        angle, speed = state
        speed = speed - 0.01 * 9.81 / length * np.sin(angle)
        return angle + 0.01 * speed, speed
    start = np.float64(0.7), np.float64(0.1)
    for steps in 50, 400:
        plain, again = (functools.partial(energy_after, steps=steps, body=body) for body in
                        (step, fxgrad.checkpoint(step)))
        check_grads(plain, (start, 1.3), order=1, modes=("rev",))
        first, second = (np.array(jax.tree.leaves(fxgrad.grad(each, (0, 1))(start, 1.3))) for each in (plain, again))
        np.testing.assert_allclose(first, second, rtol=1e-12)
        saved = [sum(each.nbytes for each in fxgrad.saved_residuals(f, start, np.float64(1.3))) for f in (plain, again)]
        assert saved[1] < saved[0]


# --- static and dynamic -------------------------------------------------------------------------------------------


def test_row_c2_pythons_control_flow_on_values() -> None:
    def newton(a: Any) -> Any:
        x = a
        while abs(x * x - a) > 1e-12:
            x = 0.5 * (x + a / x)
        return x if x > 1.0 else -x
    for a, sign in (2.0, 1.0), (0.25, -1.0):
        np.testing.assert_allclose(fxgrad.grad(newton)(a), sign * 0.5 / math.sqrt(a), rtol=1e-9)
    with pytest.raises(fxgrad.errors.ConcretizationError, match=r"at test_coverage\.py:\d+ \(in newton\)"):
        fxgrad.jit(newton)(2.0)


def test_row_c3_control_flow_in_programs() -> None:
    x = np.linspace(0.1, 1.0, 5)
    forms: dict[str, Callable[..., Any]] = {
        "cond": lambda x: fxgrad.cond(x > 0.5, lambda x: x * x, np.sin, x),
        "switch": lambda x: fxgrad.switch((x * 2.9).astype(int), [np.sin, np.cos, np.tanh], x),
        "fori_loop": lambda x: fxgrad.fori_loop(0, 4, lambda i, y: y * x + i, x),
        "while_loop": lambda x: fxgrad.while_loop(lambda y: y < 2.0, lambda y: y * 1.7 + x, x),
        "scan": lambda x: fxgrad.scan(lambda c, a: (c * a, c), x, np.array([1.0, 2.0, 3.0]))[1].sum(),
        "map": lambda x: lax.map(lambda a: np.sin(a * x), np.array([1.0, 2.0])).sum()}
    for name, form in forms.items():
        slopes = np.array([fxgrad.grad(form)(each) for each in x])
        differences = np.array([(form(each + 1e-6) - form(each - 1e-6)) / 2e-6 for each in x], float)
        np.testing.assert_allclose(slopes, differences, rtol=1e-6, err_msg=name)
        for batched in fxgrad.vmap(fxgrad.grad(form)), fxgrad.jit(fxgrad.vmap(fxgrad.grad(form))):
            np.testing.assert_allclose(batched(x), slopes, rtol=1e-12, err_msg=name)


def test_row_c9_jit_has_static_arguments_donation_a_cache_and_stages() -> None:
    traces = []

    def power(x: Any, n: int) -> Any:
        traces.append(n)
        return x ** n
    jitted = fxgrad.jit(power, static_argnums=1)
    x = np.arange(3.0)
    for _ in range(3):
        np.testing.assert_array_equal(jitted(x, 2), x ** 2)
    jitted(x, 3)
    assert traces == [2, 3]
    compiled = fxgrad.jit(lambda x: x * 2.0).lower(fxgrad.ShapeDtypeStruct((3,), np.float64)).compile()
    np.testing.assert_array_equal(compiled(x), 2.0 * x)
    given = jax.device_put(np.ones(1000, np.float32))
    fxgrad.jit(lambda x: x + 1.0, donate_argnums=0)(given)
    assert given.is_deleted()


def test_row_c14_what_stopped_a_whole_program_is_said_by_line() -> None:
    def clipped(x: Any) -> Any:
        if x > 1.0:
            return 1.0
        return x * x
    with pytest.raises(fxgrad.errors.ConcretizationError) as caught:
        fxgrad.jit(clipped)(0.5)
    line = clipped.__code__.co_firstlineno + 1
    assert f"test_coverage.py:{line} (in clipped)" in str(caught.value)
    assert "fxgrad.lax.cond" in str(caught.value)
    assert fxgrad.grad(clipped)(0.5) == 1.0


@dataclasses.dataclass
class Dense:
    """A layer as a dataclass: its arrays are its leaves."""

    w: Any
    b: Any

    def __call__(self, x: Any) -> Any:
        return np.tanh(x @ self.w + self.b)


fxgrad.tree_util.register_dataclass(Dense, ["w", "b"], [])


def test_row_c22_one_network_in_three_styles() -> None:
    w = [RANDOM.normal(size=(3, 4)), RANDOM.normal(size=(4, 2))]
    b = [np.zeros(4), np.full(2, 0.1)]
    x = RANDOM.normal(size=(5, 3))

    def of_dictionaries(params: Any) -> Any:
        hidden = x
        for layer in params:
            hidden = np.tanh(hidden @ layer["w"] + layer["b"])
        return np.sum(hidden ** 2)

    def of_modules(layers: Any) -> Any:
        hidden = x
        for layer in layers:
            hidden = layer(hidden)
        return np.sum(hidden ** 2)

    def transformed(make: Callable[[Any], Any]) -> Callable[..., Any]:
        """`apply(params, x)` of a function that asks for its parameters by number, as stateless transforms do."""
        return lambda params: np.sum(make(iter(params)) ** 2)

    def stateless(parameters: Any) -> Any:
        hidden = x
        for w, b in parameters:
            hidden = np.tanh(hidden @ w + b)
        return hidden
    dictionaries = fxgrad.grad(of_dictionaries)([{"w": w, "b": b} for w, b in zip(w, b, strict=True)])
    modules = fxgrad.grad(of_modules)([*map(Dense, w, b)])
    pairs = fxgrad.grad(transformed(stateless))([*zip(w, b, strict=True)])
    assert isinstance(modules[0], Dense)
    for one, two, three in zip(dictionaries, modules, pairs, strict=True):
        np.testing.assert_array_equal(one["w"], two.w)
        np.testing.assert_array_equal(two.b, three[1])
    with jax.enable_x64(True):
        tanh = jax.numpy.tanh
        expected = jax.grad(lambda w, b: (tanh(tanh(x @ w[0] + b[0]) @ w[1] + b[1]) ** 2).sum())(w, b)
    np.testing.assert_allclose(modules[0].w, expected[0], rtol=1e-12)


# --- text ---------------------------------------------------------------------------------------------------------


def test_row_v1_programs_are_printed_with_types_lines_and_names_and_read_back() -> None:
    def loss(weights: Any, images: Any) -> Any:
        hidden = np.tanh(images @ weights)
        return np.mean(hidden ** 2)
    for function in loss, fxgrad.grad(loss), fxgrad.vmap(loss, in_axes=(None, 0)):
        images = RANDOM.normal(size=(2, 5, 3)) if function is not loss else RANDOM.normal(size=(5, 3))
        program = fxgrad.make_program(function)(RANDOM.normal(size=(3, 2)), images)
        text = str(program)
        assert "weights: f64[3,2]" in text
        assert "hidden" in text
        assert "test_coverage.py" in text
        assert fxgrad.text.equal(fxgrad.parse(text), program)
        assert str(fxgrad.make_program(function)(RANDOM.normal(size=(3, 2)), images)) == text
