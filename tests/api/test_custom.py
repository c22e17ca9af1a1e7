"""`custom_jvp`, `custom_vjp`, `checkpoint`, `stop_gradient`."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import fxgrad
from fxgrad import checkpoint, custom_jvp, custom_vjp, grad, hessian, jit, jvp, stop_gradient, vmap

X = np.array([0.5, 1.5])


@custom_jvp
def cubed(x):
    return x ** 3


@cubed.defjvp
def cubed_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return cubed(x), 10.0 * x ** 2 * t  # ten instead of three, to be seen


def test_custom_jvp_everywhere() -> None:
    assert cubed(2.0) == 8.0
    assert grad(cubed)(2.0) == 40.0
    assert jvp(cubed, (2.0,), (1.0,)) == (8.0, 40.0)
    assert grad(grad(cubed))(2.0) == 40.0
    np.testing.assert_allclose(vmap(grad(cubed))(X), 10 * X ** 2)
    np.testing.assert_allclose(grad(lambda x: np.sum(vmap(cubed)(x)))(X), 10 * X ** 2)
    np.testing.assert_allclose(jit(vmap(grad(cubed)))(X), 10 * X ** 2)
    np.testing.assert_allclose(grad(jit(lambda x: np.sum(cubed(x))))(X), 10 * X ** 2)
    np.testing.assert_allclose(hessian(lambda x: np.sum(cubed(x)))(X), np.diag(20 * X))


def test_custom_jvp_static_arguments_and_defaults() -> None:
    @functools.partial(custom_jvp, nondiff_argnums=(0,), nondiff_argnames=("power",))
    def apply(f, x, power=2):
        return f(x) ** power

    @apply.defjvp
    def rule(f, power, primals, tangents):
        (x,), (t,) = primals, tangents
        return apply(f, x, power), t * power * 100.0

    assert apply(np.sin, 0.0) == 0.0
    assert grad(lambda x: apply(np.sin, x))(1.0) == 200.0
    assert grad(lambda x: apply(np.sin, x, power=3))(1.0) == 300.0


def test_defjvps() -> None:
    @custom_jvp
    def product(x, y):
        return x * y

    product.defjvps(lambda t, out, x, y: 2.0 * t * y, None)
    assert grad(product, argnums=(0, 1))(3.0, 5.0) == (10.0, 0.0)


def test_custom_jvp_containers_and_closures() -> None:
    def make(scale):
        @custom_jvp
        def f(p):
            return {"out": p["x"] * scale}

        f.defjvp(lambda primals, tangents: (f(*primals), {"out": tangents[0]["x"] * scale * 7.0}))
        return f

    assert grad(lambda x: make(2.0)({"x": x})["out"])(1.0) == 14.0
    # the rule closes over a tracer of the outer derivative
    assert grad(lambda s: grad(lambda x: make(s)({"x": x})["out"])(1.0))(3.0) == 7.0


@custom_vjp
def clipped(x, limit):
    return np.clip(x, -limit, limit)


clipped.defvjp(lambda x, limit: (np.clip(x, -limit, limit), (np.abs(x) < limit * 2.0, x)),
               lambda residuals, cotangent: (np.where(residuals[0], cotangent * 3.0, 0.0), None))


def test_custom_vjp_everywhere() -> None:
    x = np.array([0.5, 1.5, 5.0])
    np.testing.assert_array_equal(clipped(x, 1.0), [0.5, 1.0, 1.0])
    expected = [3.0, 3.0, 0.0]
    np.testing.assert_array_equal(grad(lambda x: np.sum(clipped(x, 1.0)))(x), expected)
    np.testing.assert_array_equal(vmap(grad(clipped), in_axes=(0, None))(x, 1.0), expected)
    np.testing.assert_array_equal(grad(lambda x: np.sum(vmap(clipped, in_axes=(0, None))(x, 1.0)))(x), expected)
    np.testing.assert_array_equal(jit(grad(lambda x: np.sum(clipped(x, 1.0))))(x), expected)
    np.testing.assert_array_equal(grad(jit(lambda x: np.sum(clipped(x, 1.0))))(x), expected)
    assert grad(clipped, argnums=1)(0.5, 1.0) == 0.0


def test_custom_vjp_under_forward_mode() -> None:
    @custom_vjp
    def f(x):
        return x ** 3

    f.defvjp(lambda x: (x ** 3, x), lambda x, cotangent: (5.0 * x ** 2 * cotangent,))
    assert jvp(f, (2.0,), (1.0,)) == (8.0, 20.0)
    np.testing.assert_allclose(hessian(lambda x: np.sum(f(x)))(X), np.diag(10 * X))
    np.testing.assert_allclose(fxgrad.jacfwd(f)(X), np.diag(5 * X ** 2))
    np.testing.assert_allclose(jit(lambda x: jvp(f, (x,), (x,))[1])(X), 5 * X ** 3)
    np.testing.assert_allclose(vmap(lambda x: jvp(f, (x,), (1.0,))[1])(X), 5 * X ** 2)
    assert grad(lambda x: jvp(f, (x,), (1.0,))[1])(2.0) == 20.0


def test_custom_vjp_static_arguments_and_unused_output() -> None:
    @functools.partial(custom_vjp, nondiff_argnums=(1,))
    def f(x, mode):
        return (x * 2.0, x * 3.0) if mode == "pair" else (x, x)

    f.defvjp(lambda x, mode: (f(x, mode), ()), lambda mode, residuals, cotangents: (cotangents[0] * 100.0,))
    assert grad(lambda x: f(x, "pair")[0])(1.0) == 100.0
    assert grad(lambda x: f(x, "pair")[1])(1.0) == 0.0


def test_control_flow_in_custom_functions() -> None:
    @custom_jvp
    def f(x):
        return x * 2.0 if x > 0 else -x

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 9.0))
    assert grad(f)(-1.0) == 9.0


def test_checkpoint_equals_the_function() -> None:
    def f(x):
        return np.sum(np.sin(np.exp(x)) * x)

    g = checkpoint(f)
    np.testing.assert_allclose(grad(g)(X), grad(f)(X))
    np.testing.assert_allclose(jit(grad(g))(X), grad(f)(X))
    np.testing.assert_allclose(hessian(g)(X), hessian(f)(X))
    np.testing.assert_allclose(vmap(grad(checkpoint(lambda x: np.sin(x) * x)))(X), np.sin(X) + X * np.cos(X))


def test_checkpoint_keeps_inputs_only() -> None:
    def f(x):
        for _ in range(5):
            x = np.sin(x) * np.exp(x)
        return x

    plain = fxgrad.vjp(f, X)[1]
    saving = fxgrad.vjp(checkpoint(f), X)[1]
    assert repr(saving) == "<pullback of f, 1 residuals>"
    assert int(repr(plain).split(",")[1].split()[0]) > 5
    np.testing.assert_allclose(saving(np.ones(2))[0], plain(np.ones(2))[0])


def test_checkpoint_recomputes_behind_a_barrier_under_xla() -> None:
    text = jit(grad(lambda x: np.sum(checkpoint(lambda x: np.sin(np.sin(x)))(x)))).lower(X).as_text()
    assert "optimization_barrier" in text


def test_checkpoint_with_control_flow_and_containers() -> None:
    block = checkpoint(lambda p, x, n: {"y": p["w"] * x if x > 0 else x}, static_argnums=2)
    assert grad(lambda p: block(p, 2.0, 3)["y"])({"w": 5.0})["w"] == 2.0


def test_stop_gradient() -> None:
    assert grad(lambda x: x * stop_gradient(x))(3.0) == 3.0
    assert grad(grad(lambda x: x ** 2 * stop_gradient(x)))(3.0) == 6.0
    np.testing.assert_array_equal(vmap(grad(lambda x: x * stop_gradient(x)))(X), X)
    assert jit(grad(lambda x: stop_gradient(x)))(3.0) == 0.0
    assert stop_gradient(2.0) == 2.0
    tree = grad(lambda p: p["a"] * stop_gradient(p)["b"])({"a": 2.0, "b": 3.0})
    assert tree["a"] == 3.0
    assert tree["b"] == 0.0
    program = fxgrad.make_program(grad(lambda x: np.sin(stop_gradient(x)) * x))(1.0)
    assert "cos" not in [equation.primitive.name for equation in program.equations]


def test_rules_must_be_given() -> None:
    with pytest.raises(fxgrad.errors.ArgumentError, match="has no rule"):
        custom_jvp(lambda x: x)(1.0)
