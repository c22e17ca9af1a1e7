"""Random programs: the NumPy executor both ways, the XLA executor, the parsed-back text and jax itself must agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import fxgrad
from fxgrad.executors import numpy as numpy_executor
from tests.comparison.checks import ABLE
from tests.tiers import examples

# Smooth and bounded, so that derivatives of long compositions stay finite and comparable.
UNARY: list[Callable[[Any, Any], Any]] = [
    lambda xp, x: xp.sin(x), lambda xp, x: xp.cos(x), lambda xp, x: xp.tanh(x), lambda xp, x: -x,
    lambda xp, x: xp.exp(-x * x), lambda xp, x: xp.sqrt(x * x + 1.0), lambda xp, x: x * 0.5 + 0.25,
    lambda xp, x: xp.log1p(x * x), lambda xp, x: xp.arctan(x), lambda xp, x: x ** 2 / (1.0 + x ** 2),
    lambda xp, x: xp.transpose(x), lambda xp, x: xp.reshape(xp.ravel(x), x.shape[::-1]),
    lambda xp, x: xp.broadcast_to(xp.mean(x, axis=0), x.shape), lambda xp, x: x - xp.max(x, axis=-1, keepdims=True),
    lambda xp, x: x[::-1], lambda xp, x: xp.concatenate([x[1:], x[:1]], axis=0),
    lambda xp, x: xp.where(x > 0.1, x, 0.5 * x), lambda xp, x: xp.cumsum(x, axis=0) / x.shape[0],
    lambda xp, x: xp.sort(x, axis=-1), lambda xp, x: x / (1.0 + xp.sum(xp.abs(x))),
]
BINARY: list[Callable[[Any, Any, Any], Any]] = [
    lambda xp, x, y: x + y, lambda xp, x, y: x * y, lambda xp, x, y: x - y, lambda xp, x, y: x / (1.0 + y * y),
    lambda xp, x, y: xp.maximum(x, y), lambda xp, x, y: xp.minimum(x, 0.3 * y), lambda xp, x, y: xp.tanh(x @ y.T) @ y,
    lambda xp, x, y: xp.arctan2(x, 2.0 + y), lambda xp, x, y: xp.where(x > y, x, y * 0.1),
    lambda xp, x, y: xp.einsum("ij,ij->ij", x, y) + x[0, 0],
]


@st.composite
def recipes(draw: st.DrawFn) -> list[tuple[str, int, int, int]]:
    """Straight-line programs: (kind, operation, operand, operand); operands are numbers of earlier values."""
    steps = []
    for count in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["unary", "binary"]))
        table = UNARY if kind == "unary" else BINARY
        operation = draw(st.integers(0, len(table) - 1))
        steps.append((kind, operation, draw(st.integers(0, count + 1)), draw(st.integers(0, count + 1))))
    return steps


def build(steps: list[tuple[str, int, int, int]], xp: Any) -> Callable[[Any, Any], Any]:
    """The function of a recipe; binary operations take operands of equal shapes, transposing where that helps."""
    def function(x: Any, y: Any) -> Any:
        values = [x, y]
        for kind, operation, first, second in steps:
            a, b = values[first], values[second]
            if kind == "unary":
                values.append(UNARY[operation](xp, a))
            else:
                values.append(BINARY[operation](xp, a, b if a.shape == b.shape else xp.transpose(b)))
        return xp.sum(xp.sin(values[-1])) + 0.1 * xp.sum(values[-1])
    return function


shapes = st.sampled_from([(1, 1), (2, 2), (2, 3), (3, 1)])


@examples(60)
@given(recipes(), shapes, st.integers(0, 1000))
def test_all_ways_agree(steps: list[tuple[str, int, int, int]], shape: tuple[int, int], seed: int) -> None:
    x, y = np.random.default_rng(seed).uniform(-1.0, 1.0, (2, *shape))
    function = build(steps, np)
    gradient = fxgrad.value_and_grad(function, argnums=(0, 1))
    first = gradient(x, y)
    with jax.enable_x64(True):
        # XLA's older emitters compute a maximum anew where jax looks for it, and round otherwise: it is not found.
        oracle = jax.jit(jax.value_and_grad(build(steps, jnp), argnums=(0, 1)), compiler_options=ABLE)
        expected = oracle(jnp.asarray(x), jnp.asarray(y))
    program = fxgrad.make_program(gradient)(x, y)
    again = fxgrad.parse(str(program))
    flat = [x, y]
    interpreted = numpy_executor.interpret(program, [*program.constants, *flat])
    generated = numpy_executor.runner_of(program)(*program.constants, *flat)
    compiled = fxgrad.jit(gradient)(x, y)
    for a, b in zip(interpreted, generated, strict=True):
        np.testing.assert_array_equal(a, b)  # to the bit
    assert fxgrad.show.equal(program, again)
    outcomes = {"first": first, "second": gradient(x, y), "xla": compiled,
                "parsed": again(x, y)}
    for name, outcome in outcomes.items():
        for actual, wanted in zip(jax.tree.leaves(outcome), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-8, atol=1e-10, err_msg=name)


@examples(25)
@given(recipes(), shapes, st.integers(0, 1000))
def test_second_derivatives_and_batches(steps: list[tuple[str, int, int, int]], shape: tuple[int, int],
                                        seed: int) -> None:
    x, y, v = np.random.default_rng(seed).uniform(-1.0, 1.0, (3, *shape))
    function = build(steps, np)
    product = fxgrad.hvp(function, (x, y), (v,))
    reverse = fxgrad.grad(lambda x: np.sum(fxgrad.grad(function)(x, y) * v))(x)
    np.testing.assert_allclose(product, reverse, rtol=1e-7, atol=1e-9)
    with jax.enable_x64(True):
        theirs = build(steps, jnp)
        expected = jax.jit(lambda x, y, v: jax.jvp(lambda x: jax.grad(theirs)(x, y), (x,), (v,))[1],
                           compiler_options=ABLE)(x, y, v)
    np.testing.assert_allclose(product, expected, rtol=1e-7, atol=1e-9)
    stacked = fxgrad.vmap(fxgrad.grad(function), in_axes=(0, None))(np.stack([x, v]), y)
    np.testing.assert_allclose(stacked[1], fxgrad.grad(function)(v, y), rtol=1e-10, atol=1e-12)
