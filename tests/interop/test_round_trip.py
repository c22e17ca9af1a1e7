"""Random functions of jax, from jax to fxgrad and back: values and second derivatives agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from jax import lax

import fxgrad
from tests.support.random_programs import build, recipes
from tests.support.tiers import examples

# What jax's own functions are made of beyond elementwise operations: jaxprs inside of jaxprs, custom rules, indices.
# Square matrices come in and go out, and derivatives stay bounded.


@jax.custom_jvp
def leaky(x: Any) -> Any:
    return jnp.where(x > 0, x, 0.1 * x)


@leaky.defjvp
def leaky_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return leaky(x), jnp.where(x > 0, 1.0, 0.1) * t


@jax.custom_vjp
def halved(x: Any) -> Any:
    return jnp.sin(x)


halved.defvjp(lambda x: (jnp.sin(x), x), lambda x, cotangent: (0.5 * jnp.cos(x) * cotangent,))

STRUCTURED: list[Callable[[Any, Any], Any]] = [
    lambda x, y: lax.scan(lambda c, row: (jnp.tanh(c + row), c * row), y[0], x)[1],
    lambda x, y: lax.scan(lambda c, row: (0.5 * c + row, c), y[0], x, reverse=True)[1],
    lambda x, y: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + 0.1 * i * y, x),
    lambda x, y: lax.cond(x[0, 0] > 0, lambda a, b: jnp.sin(a) * b, lambda a, b: a - 0.5 * b, x, y),
    lambda x, y: lax.switch(jnp.clip(jnp.int32(3 * x[0, 0]), 0, 2), [jnp.sin, jnp.tanh, lambda a: a * a], y),
    lambda x, y: leaky(x) + y,
    lambda x, y: jax.nn.relu(x) - jax.nn.softmax(y),
    lambda x, y: jax.checkpoint(lambda a: jnp.sin(jnp.cos(a)) * y)(x),
    lambda x, y: jax.jit(lambda a, b: jnp.tanh(a @ b) + jnp.exp(-a * a) * b - jnp.log1p(b * b))(x, y),
    lambda x, y: jax.vmap(lambda row: jnp.outer(row, row) @ row)(x) * y,
    lambda x, y: jax.grad(lambda a: jnp.sum(jnp.sin(a) * y))(x),
    lambda x, y: x.at[0].add(y[1]).at[:, 1].multiply(0.5),
    lambda x, y: x[jnp.array([1, 0])] + y[:, jnp.array([-1, 0])],
    lambda x, y: jnp.linalg.solve(x @ x.T + 2.0 * jnp.eye(2), y),
    lambda x, y: jnp.take_along_axis(x, jnp.argsort(y, axis=0), axis=0),
    lambda x, y: jnp.real(jnp.fft.ifft(jnp.fft.fft(x) * jnp.fft.fft(y))) * 0.3,
    lambda x, y: lax.associative_scan(lambda a, b: a * b, jnp.tanh(x)) + y,
    lambda x, y: jnp.where(lax.stop_gradient(x) > y, x, y * x),
    lambda x, y: lax.custom_linear_solve(lambda v: v + 0.1 * (y @ v), x, lambda _, b: jnp.linalg.solve(
        jnp.eye(2) + 0.1 * y, b), symmetric=False, transpose_solve=lambda _, b: jnp.linalg.solve(
        (jnp.eye(2) + 0.1 * y).T, b)),
    lambda x, y: halved(x) * y,
]


@st.composite
def structured(draw: st.DrawFn) -> tuple[Any, list[tuple[int, int, int]]]:
    """A straight-line recipe, and structured operations after it on what was there before."""
    steps = draw(recipes())
    more = [(draw(st.integers(0, len(STRUCTURED) - 1)), draw(st.integers(0, 2 + count)),
             draw(st.integers(0, 2 + count))) for count in range(draw(st.integers(1, 3)))]
    return steps, more


def function_of(recipe: tuple[Any, list[tuple[int, int, int]]]) -> Callable[[Any, Any], Any]:
    """The function of jax's of a recipe: two matrices to a number."""
    steps, more = recipe

    def function(x: Any, y: Any) -> Any:
        values = [x, y, 0.3 * build(steps, jnp)(x, y) * jnp.cos(x)]
        for operation, first, second in more:
            values.append(STRUCTURED[operation](values[first], values[second]))
        return jnp.sum(jnp.sin(values[-1])) + 0.1 * jnp.sum(values[-1] * values[2])
    return function


def assert_close(actual: Any, expected: Any, what: str) -> None:
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=1e-12, atol=1e-14, err_msg=what)


@pytest.mark.slow
@examples(20)
@given(structured(), st.integers(0, 1000))
def test_values_and_second_derivatives_of_random_functions(recipe: Any, seed: int) -> None:
    x, y, v = np.random.default_rng(seed).uniform(-1.0, 1.0, (3, 2, 2))
    function = function_of(recipe)
    imported = fxgrad.from_jax(function)
    value, second = along(fxgrad, imported)(x, y, v)
    assert_close(imported(x, y), value, "the value alone")
    of_jax = along(jax, function)
    with jax.enable_x64(True):
        try:
            expected, back = jax.block_until_ready(jax.jit(lambda *args: (of_jax(*args), along(
                jax, fxgrad.to_jax(imported))(*args)))(x, y, v))
        except jax.errors.JaxRuntimeError:
            # XLA cannot run some Fourier transforms of transposed arrays (fft_thunk.cc): there is nothing to compare.
            with pytest.raises(jax.errors.JaxRuntimeError, match="fft_thunk"):
                jax.block_until_ready(jax.jit(of_jax)(x, y, v))
            reject()
        if np.isnan(expected[1]).any():
            # Compiled, jax's slope of a maximum is 0 / 0 where XLA computes the elements a second time, and rounds
            # otherwise: then none is equal to the greatest. One by one its operations are right.
            expected = of_jax(x, y, v)
    assert_close(value, expected[0], "the value")
    assert_close(second, expected[1], "the second derivative")
    assert_close(back[0], expected[0], "the value, back in jax")
    assert_close(back[1], expected[1], "the second derivative, back in jax")


def along(library: Any, function: Any) -> Any:
    """The value, and the Hessian in `x` times `v`: by reverse mode twice, since a vjp rule has no forward mode."""
    def product(x: Any, y: Any, v: Any) -> Any:
        def slope(a: Any) -> Any:
            value, gradient = library.value_and_grad(function)(a, y)
            return (gradient * v).sum(), value

        second, value = library.grad(slope, has_aux=True)(x)
        return value, second
    return product
