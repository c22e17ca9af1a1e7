"""Random programs: the NumPy executor both ways, the XLA executor, the parsed-back text and jax itself must agree."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import fxgrad
from fxgrad.engine.executors import numpy as numpy_executor
from tests.comparison.checks import ABLE
from tests.support.random_programs import build, recipes, shapes
from tests.support.tiers import examples


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
    interpreted = numpy_executor.run_reference(program, [*program.constants, *flat])
    generated = numpy_executor.runner_of(program)(*program.constants, *flat)
    compiled = fxgrad.jit(gradient)(x, y)
    recorded = fxgrad.make_program(gradient, as_recorded=True)(x, y)
    plain = numpy_executor.run_reference(recorded, [*recorded.constants, *flat])
    for a, b, c in zip(interpreted, generated, plain, strict=True):
        np.testing.assert_array_equal(a, b)  # to the bit
        np.testing.assert_array_equal(np.signbit(a), np.signbit(c))
        np.testing.assert_array_equal(a, c)
    assert program.out_avals == recorded.out_avals
    assert fxgrad.text.equal(program, again)
    outcomes = {"first": first, "second": gradient(x, y), "xla": compiled,
                "parsed": again(x, y)}
    for name, outcome in outcomes.items():
        for actual, wanted in zip(jax.tree.leaves(outcome), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-10, atol=1e-12, err_msg=name)


@examples(25)
@given(recipes(), shapes, st.integers(0, 1000))
def test_second_derivatives_and_batches(steps: list[tuple[str, int, int, int]], shape: tuple[int, int],
                                        seed: int) -> None:
    x, y, v = np.random.default_rng(seed).uniform(-1.0, 1.0, (3, *shape))
    function = build(steps, np)
    product = fxgrad.hvp(function, (x, y), (v,))
    reverse = fxgrad.grad(lambda x: np.sum(fxgrad.grad(function)(x, y) * v))(x)
    np.testing.assert_allclose(product, reverse, rtol=1e-12, atol=1e-14)
    with jax.enable_x64(True):
        theirs = build(steps, jnp)
        expected = jax.jit(lambda x, y, v: jax.jvp(lambda x: jax.grad(theirs)(x, y), (x,), (v,))[1],
                           compiler_options=ABLE)(x, y, v)
    np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-14)
    stacked = fxgrad.vmap(fxgrad.grad(function), in_axes=(0, None))(np.stack([x, v]), y)
    np.testing.assert_allclose(stacked[1], fxgrad.grad(function)(v, y), rtol=1e-12, atol=1e-14)
