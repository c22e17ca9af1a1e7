"""Functions of fxgrad's called in traces of jax's own, without `to_jax`: their derivatives are fxgrad's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp


@fxgrad.custom_jvp
def forward_rule(x: Any) -> Any:
    return fnp.sin(x)


forward_rule.defjvp(lambda primals, tangents: (forward_rule(*primals), 100.0 * primals[0] * tangents[0]))


@fxgrad.custom_vjp
def backward_rule(x: Any) -> Any:
    return fnp.sin(x)


backward_rule.defvjp(lambda x: (fnp.sin(x), x), lambda x, cotangent: (100.0 * x * cotangent,))


def by_steps(function: Callable[[Any], Any], x: Any) -> Any:
    return fxgrad.lax.scan(lambda carry, _: (function(carry) * x, None), x, None, length=3)[0]


def root(x: Any) -> Any:
    return fxgrad.lax.custom_root(lambda y: y * y - x, x, lambda f, y: fxgrad.lax.fori_loop(
        0, 20, lambda _, y: 0.5 * (y + x / y), y), lambda g, y: y / g(1.0))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "custom_jvp": forward_rule,
    "custom_vjp": backward_rule,
    "stop_gradient": lambda x: fxgrad.stop_gradient(x) * x,
    "stop_gradient of a container": lambda x: fxgrad.stop_gradient({"a": [x, 2.0]})["a"][0] * x,
    "straight_through": fxgrad.straight_through(fnp.round),
    "relu at 0": lambda x: fxgrad.nn.relu(x - x) * x,
    "abs at 0": lambda x: fnp.abs(x - 0.7) + x,
    "a tie of maximum": lambda x: fnp.maximum(x, 1.0 * x) * fnp.max(fnp.stack([x, x, 0.1])),
    "clip at a bound": lambda x: fnp.clip(x, 0.7, 2.0),
    "logsumexp of infinities": lambda x: fxgrad.scipy.special.logsumexp(fnp.stack([x, -np.inf])) * x,
    "custom_root": root,
    "jit": fxgrad.jit(forward_rule),
    "jit of stop_gradient": fxgrad.jit(lambda x: fxgrad.stop_gradient(x) * x),
    "jit with a static argument": lambda x: fxgrad.jit(lambda x, n: forward_rule(x) * n, static_argnums=1)(x, 3),
    "jit within jit": fxgrad.jit(lambda x: fxgrad.jit(backward_rule)(x) * x),
    "scan": lambda x: by_steps(forward_rule, x),
    "cond": lambda x: fxgrad.cond(x > 0.0, forward_rule, fnp.cos, x),
    "checkpoint": fxgrad.checkpoint(lambda x: backward_rule(x) * x),
    "vmap": lambda x: fnp.sum(fxgrad.vmap(lambda y: forward_rule(y * x))(fnp.ones(3))),
    "grad": lambda x: fxgrad.grad(lambda y: forward_rule(y) * y)(x),
    "jvp": lambda x: fxgrad.jvp(forward_rule, (x,), (x * 1.0,))[1],
    "beside jax's operations": lambda x: jnp.sin(forward_rule(jnp.cos(x))) * x,
    "without any rule": lambda x: fnp.sin(x) * x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_in_jax_are_fxgrads(name: str) -> None:
    function = FUNCTIONS[name]
    x, outside = jnp.float32(0.7), np.float32(0.7)
    if name == "beside jax's operations":
        slope = 70.0 * float(jnp.cos(x)) / 0.7 * -float(jnp.sin(x)) * float(jnp.cos(jnp.sin(jnp.cos(x)))) * 0.7 + float(
            jnp.sin(jnp.sin(jnp.cos(x))))
    else:
        slope = float(fxgrad.grad(function)(outside))  # NumPy computes it: nothing is compiled
    assert float(jax.grad(function)(x)) == pytest.approx(slope, rel=1e-5)
    assert float(jax.jit(jax.grad(function))(x)) == pytest.approx(slope, rel=1e-5)
    assert float(jax.jit(jax.vmap(jax.grad(function)))(x[None])[0]) == pytest.approx(slope, rel=1e-5)
    if name not in ("custom_vjp", "jit within jit", "checkpoint"):
        assert float(jax.jvp(function, (x,), (jnp.float32(1.0),))[1]) == pytest.approx(slope, rel=1e-5)
    if name != "beside jax's operations":
        assert float(jax.jit(jax.grad(jax.grad(function)))(x)) == pytest.approx(
            float(fxgrad.grad(fxgrad.grad(function))(outside)), rel=1e-5, abs=1e-6)


def test_values_and_types_in_jax_are_those_outside() -> None:
    x = jnp.float32(0.7)
    inside = jax.jit(lambda x: [(function(x), jax.vjp(function, x)[0]) for function in FUNCTIONS.values()])(x)
    for function, both in zip(FUNCTIONS.values(), inside, strict=True):
        outside = function(x)
        for found in both:
            assert found.dtype == outside.dtype
            np.testing.assert_allclose(found, outside, rtol=1e-6)
        assert jax.eval_shape(function, x).weak_type == getattr(outside, "weak_type", False)


def test_a_compiled_function_that_ran_before_keeps_its_rule_in_jax() -> None:
    function = fxgrad.jit(lambda x: forward_rule(x))
    x = jnp.float32(0.7)
    for _ in range(3):
        function(x)
    assert float(jax.grad(function)(x)) == pytest.approx(70.0)
    assert float(jax.jit(jax.grad(lambda x: function(x) + function(x)))(x)) == pytest.approx(140.0)
    assert float(function(x)) == pytest.approx(np.sin(0.7))


def test_arrays_containers_and_other_dtypes() -> None:
    tree = {"a": jnp.arange(3.0), "b": (jnp.float16(2.0), jnp.arange(2))}

    def function(tree: Any) -> Any:
        return fnp.sum(backward_rule(tree["a"])) + fnp.float32(fxgrad.stop_gradient(tree["b"][0])) * tree["a"][1]

    found, expected = (grad(function, allow_int=True)(tree) for grad in (jax.grad, fxgrad.grad))
    for one, other in zip(jax.tree.leaves(found)[:2], jax.tree.leaves(expected)[:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    with jax.enable_x64(True):
        wide = jax.grad(backward_rule)(jnp.float64(0.7))
        assert wide.dtype == np.float64
        assert float(wide) == pytest.approx(70.0, rel=1e-14)
    assert complex(jax.jvp(forward_rule, (jnp.complex64(1j),), (jnp.complex64(1.0),))[1]) == pytest.approx(100j)
