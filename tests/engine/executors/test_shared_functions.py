"""A compiled function that is called many times becomes one function for XLA, lowered once, and computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp

X = np.linspace(0.1, 1.0, 4, dtype="float32")


def lowered(function: Callable[..., Any], *args: Any) -> tuple[int, int, int]:
    """Functions, calls, and sines in what `function` is lowered to."""
    text = function.lower(*args).as_text()
    return text.count("func.func"), text.count("call @"), text.count("stablehlo.sine")


def nested(jit: Any, sine: Any, depth: int) -> Callable[[Any], Any]:
    function = jit(lambda x: sine(x) * x)
    for _ in range(depth):
        function = jit(lambda x, inner=function: inner(inner(x) * 0.5))
    return function


@pytest.mark.parametrize("depth", [1, 12])
def test_nested_functions_are_lowered_once_each_as_by_jax(depth: int) -> None:
    ours, theirs = nested(fxgrad.jit, np.sin, depth), nested(jax.jit, jnp.sin, depth)
    assert lowered(ours, X) == lowered(theirs, X) == (depth + 1, 2 * depth, 1)


@pytest.mark.slow
def test_tangents_of_nested_functions_are_lowered_once_each_too() -> None:
    def tangent(library: Any, sine: Any) -> Callable[..., Any]:
        function = nested(library.jit, sine, 8)
        return library.jit(lambda x, t: library.jvp(function, (x,), (t,)))

    functions = [lowered(tangent(library, sine), X, X)[0] for library, sine in ((fxgrad, np.sin), (jax, jnp.sin))]
    assert functions == [9, 10]  # jax calls what is called once too
    for got, expected in zip(tangent(fxgrad, np.sin)(X, X), tangent(jax, jnp.sin)(X, X), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.slow
def test_a_linear_function_with_tangents_of_compiled_ones_can_be_transposed() -> None:
    def loop(x: Any) -> Any:
        return fxgrad.scan(lambda carry, entry: (np.sin(carry) * entry, carry * entry), x[0], x)[1]

    x = X.astype(np.float64)
    expected, = fxgrad.vjp(loop, x)[1](np.ones(4))
    for inner in (loop, fxgrad.jit(loop), fxgrad.jit(fxgrad.jit(loop))):
        along = fxgrad.jit(lambda t, inner=inner: fxgrad.jvp(inner, (x,), (t,))[1])
        np.testing.assert_allclose(fxgrad.linear_transpose(along, x)(np.ones(4))[0], expected, rtol=1e-12)
        both = fxgrad.grad(lambda t, x, inner=inner: np.sum(fxgrad.jvp(inner, (x,), (t,))[1]), argnums=(0, 1))
        np.testing.assert_allclose(both(np.ones(4), x)[0], expected, rtol=1e-12)


def test_a_deep_nest_is_walked_once_by_whatever_looks_at_it(monkeypatch) -> None:
    monkeypatch.setattr(fxgrad.config, "check_level", 0)  # checks print all levels of every level
    program = fxgrad.make_program(nested(fxgrad.jit, np.sin, 60))(X)  # to unfold it would take 2 ** 60 steps
    flops = [fxgrad.cost_analysis(fxgrad.make_program(nested(fxgrad.jit, np.sin, depth))(X)).flops for depth in (0, 1)]
    assert fxgrad.cost_analysis(program).flops == 2 ** 60 * flops[0] + (2 ** 60 - 1) * (flops[1] - 2 * flops[0])
    assert len(fxgrad.make_program(fxgrad.vmap(program))(X[:, None] + X).equations) == 1
    equations = len(jax.make_jaxpr(fxgrad.to_jax(program))(X).eqns)  # not in the assertion, which would print them
    assert equations == 3


def test_a_function_called_once_stays_inline() -> None:
    inner = fxgrad.jit(lambda x: np.sin(x) * x)
    assert lowered(fxgrad.jit(lambda x: inner(x) + 1.0), X) == (1, 0, 1)


def test_calls_from_different_functions_and_from_bodies_count() -> None:
    inner = fxgrad.jit(np.sin)
    left, right = fxgrad.jit(lambda x: inner(x) + 1.0), fxgrad.jit(lambda x: inner(x) + 2.0)
    assert lowered(fxgrad.jit(lambda x: left(x) * right(x)), X) == (2, 2, 1)

    def loop(x: Any) -> Any:
        return fxgrad.fori_loop(0, 3, lambda _, c: inner(c), inner(x))
    assert lowered(fxgrad.jit(loop), X)[2] == 1


def test_other_types_are_other_functions() -> None:
    inner = fxgrad.jit(np.sin)
    y = X.astype(np.float64)
    function = fxgrad.jit(lambda x, y: (inner(x), inner(inner(x)), inner(y), inner(inner(y)), inner(x[:2])))
    assert lowered(function, X, y)[2] == 3
    results = function(X, y)
    assert [result.dtype.name for result in results] == ["float32", "float32", "float64", "float64", "float32"]
    for result, expected in zip(results, [np.sin(X), np.sin(np.sin(X)), np.sin(y), np.sin(np.sin(y)), np.sin(X[:2])],
                                strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-6 if result.dtype == np.float32 else 1e-14)


TWICE: dict[str, Callable[[Any], Any]] = {
    "plain": lambda f: lambda x: f(f(x)),
    "gradient": lambda f: fxgrad.grad(lambda x: np.sum(f(f(x)))),
    "second derivative": lambda f: fxgrad.grad(lambda x: np.sum(fxgrad.grad(lambda x: np.sum(f(f(x))))(x) ** 2)),
    "forward": lambda f: lambda x: fxgrad.jvp(lambda x: f(f(x)), (x,), (np.ones_like(x),)),
    "batch": lambda f: fxgrad.vmap(lambda x: f(f(x))),
    "scan": lambda f: lambda x: fxgrad.scan(lambda c, e: (f(c), f(e)), x[0], x),
    "gradient of scan": lambda f: fxgrad.grad(lambda x: fxgrad.scan(lambda c, e: (f(f(c)) * e, None), x[0], x)[0]),
    "cond": lambda f: lambda x: fxgrad.cond(x[0] > 0.5, lambda x: f(x), lambda x: f(f(x)), x),
    "while": lambda f: lambda x: fxgrad.while_loop(lambda c: np.sum(c) < 5.0, lambda c: f(f(c)) + 1.0, x),
    "checkpoint": lambda f: fxgrad.grad(lambda x: np.sum(fxgrad.checkpoint(lambda x: f(f(x)))(x))),
    "a literal": lambda f: lambda x: f(0.5) + f(0.5) + f(x),
    "collective": lambda f: fxgrad.vmap(lambda x: fxgrad.lax.psum(f(f(x)), "i"), axis_name="i"),
    "collective inside": lambda f: fxgrad.vmap(
        lambda x: (g := fxgrad.jit(lambda x: fxgrad.lax.psum(f(x), "i")))(x) + g(x), axis_name="i"),
}
INNER: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x: np.sin(x) * x + 0.25,
    "branches": lambda x: fxgrad.cond(True, np.cos, np.sin, x) + np.where(x > 0.4, x, 2.0 * x),
    "custom rule": lambda x: _ruled(x) * x,
    "loop": lambda x: fxgrad.fori_loop(0, 3, lambda i, c: np.sin(c) + i, x),
}


@fxgrad.custom_jvp
def _ruled(x: Any) -> Any:
    return np.tanh(x)


_ruled.defjvp(lambda primals, tangents: (_ruled(primals[0]), tangents[0] * 3.0 * np.cos(primals[0])))


@pytest.mark.parametrize("inner", [name if name == "arithmetic" else pytest.param(name, marks=pytest.mark.slow)
                                   for name in INNER])
@pytest.mark.parametrize("outer", TWICE)
def test_values_are_those_of_the_function_written_out(outer: str, inner: str) -> None:
    x = X.astype(np.float64)
    shared = fxgrad.jit(TWICE[outer](fxgrad.jit(INNER[inner])))(x)
    plain = fxgrad.jit(TWICE[outer](INNER[inner]))(x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-14), shared, plain)
    jax.tree.map(lambda a, b: a.dtype == b.dtype or pytest.fail("another dtype"), shared, plain)


def test_effects_happen_at_each_call_in_order() -> None:
    seen: list[float] = []

    @fxgrad.jit
    def watched(x: Any) -> Any:
        fxgrad.debug.callback(lambda value: seen.append(float(value)), x, ordered=True)
        return x + 1.0

    function = fxgrad.jit(lambda x: watched(watched(watched(x))))
    for _ in range(2):
        jax.block_until_ready(function(np.float32(1.0)))
        jax.effects_barrier()
    assert seen == [1.0, 2.0, 3.0] * 2
    assert lowered(function, np.float32(1.0))[0] > 1


def test_random_keys_and_donation() -> None:
    draw = fxgrad.jit(lambda key: fxgrad.random.bits(key, (3,)))

    def both(key: Any) -> Any:
        first, second = fxgrad.random.split(key)
        return draw(first), draw(second)
    key = fxgrad.random.key(3)
    for ours, theirs in zip(fxgrad.jit(both)(key), both(key), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    inner = fxgrad.jit(lambda x: x * 2.0)
    donating = fxgrad.jit(lambda x: inner(inner(x)), donate_argnums=0)
    given = jnp.ones(3)
    np.testing.assert_array_equal(donating(given), 4.0 * np.ones(3))
    assert given.is_deleted()


def test_a_rule_that_changed_is_not_taken_from_an_earlier_emission() -> None:
    scale = [2.0]

    @fxgrad.custom_vjp
    def scaled(x: Any) -> Any:
        return x * 1.0

    scaled.defvjp(lambda x: (x, None), lambda _, cotangent: (cotangent * scale[0],))
    inner = fxgrad.jit(lambda x: scaled(x) * 1.0)

    def tangent(x: Any) -> Any:
        return fxgrad.jvp(lambda x: inner(inner(x)), (x,), (fnp.ones_like(x),))[1]
    x = jnp.ones(2)
    for scale[0] in (2.0, 3.0):
        np.testing.assert_allclose(fxgrad.jit(lambda x: tangent(x))(x), scale[0] ** 2 * np.ones(2))
        np.testing.assert_allclose(tangent(x), scale[0] ** 2 * np.ones(2))
