"""`custom_jvp`, `custom_vjp`, `checkpoint`, `stop_gradient`."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
from fxgrad import checkpoint, custom_jvp, custom_vjp, grad, hessian, jit, jvp, stop_gradient, to_jax, vmap

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
    np.testing.assert_allclose(vmap(grad(cubed))(X), 10 * X ** 2, rtol=1e-12)
    np.testing.assert_allclose(grad(lambda x: np.sum(vmap(cubed)(x)))(X), 10 * X ** 2, rtol=1e-12)
    np.testing.assert_allclose(jit(vmap(grad(cubed)))(X), 10 * X ** 2, rtol=1e-12)
    np.testing.assert_allclose(grad(jit(lambda x: np.sum(cubed(x))))(X), 10 * X ** 2, rtol=1e-12)
    np.testing.assert_allclose(hessian(lambda x: np.sum(cubed(x)))(X), np.diag(20 * X), rtol=1e-12)


def test_row_p9_derivatives_of_ones_own_under_every_transformation() -> None:
    """Three ways to say that the slope of x³ is 10 x², of which the derivatives are 20 x and 20."""
    by_vjp = custom_vjp(lambda x: x ** 3)
    by_vjp.defvjp(lambda x: (x ** 3, x), lambda x, g: (10.0 * x ** 2 * g,))
    by_gradient = fxgrad.custom_gradient(lambda x: (x ** 3, lambda g: 10.0 * x ** 2 * g))
    for function in (cubed, by_vjp, by_gradient):
        np.testing.assert_array_equal(vmap(function)(X), X ** 3)
        for slope in (grad(function), fxgrad.jacrev(function), grad(checkpoint(function))):
            np.testing.assert_allclose(vmap(slope)(X), 10.0 * X ** 2, rtol=1e-12)
            np.testing.assert_allclose(vmap(grad(slope))(X), 20.0 * X, rtol=1e-12)
            np.testing.assert_allclose(vmap(lambda x, slope=slope: jvp(slope, (x,), (1.0,))[1])(X), 20.0 * X,
                                       rtol=1e-12)
        assert grad(grad(grad(function)))(1.5) == pytest.approx(20.0)
        np.testing.assert_allclose(jit(vmap(grad(function)))(X), 10.0 * X ** 2, rtol=1e-12)


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


@pytest.mark.parametrize("dtype", [bool, np.int8, np.float32])
@pytest.mark.parametrize("in_axes", [(0, None), (0, 0), (None, 0)], ids=str)
def test_custom_vjp_of_masks_in_batches(dtype, in_axes) -> None:
    """One mask for the whole batch has no cotangent that would be summed over it."""
    @custom_vjp
    def kept(x, mask):
        return np.sum(np.where(mask > 0, x, 0.0) ** 2)

    kept.defvjp(lambda x, mask: (kept(x, mask), (x, mask)),
                lambda residuals, cotangent: (cotangent * 2.0 * np.where(residuals[1] > 0, residuals[0], 0.0), None))
    x, masks = np.arange(1.0, 7.0).reshape(2, 3), np.array([[1, 0, 1], [0, 0, 1]]).astype(dtype)
    x, mask = (values if axis == 0 else values[0] for values, axis in zip((x, masks), in_axes, strict=True))
    rows = 2.0 * np.where(mask > 0, x, 0.0)
    slope = grad(lambda x, mask: np.sum(vmap(kept, in_axes)(x, mask)))
    for function in (slope, jit(slope)):
        np.testing.assert_array_equal(function(x, mask), rows if in_axes[0] == 0 else rows.sum(axis=0))


def test_custom_vjp_under_forward_mode() -> None:
    @custom_vjp
    def f(x):
        return x ** 3

    f.defvjp(lambda x: (x ** 3, x), lambda x, cotangent: (5.0 * x ** 2 * cotangent,))
    assert jvp(f, (2.0,), (1.0,)) == (8.0, 20.0)
    np.testing.assert_allclose(hessian(lambda x: np.sum(f(x)))(X), np.diag(10 * X), rtol=1e-12)
    np.testing.assert_allclose(fxgrad.jacfwd(f)(X), np.diag(5 * X ** 2), rtol=1e-12)
    np.testing.assert_allclose(jit(lambda x: jvp(f, (x,), (x,))[1])(X), 5 * X ** 3, rtol=1e-12)
    np.testing.assert_allclose(vmap(lambda x: jvp(f, (x,), (1.0,))[1])(X), 5 * X ** 2, rtol=1e-12)
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


@pytest.mark.parametrize("symbolic_zeros", [False, True])
def test_a_forward_pass_that_calls_its_function_follows_the_path_of_the_call(symbolic_zeros: bool) -> None:
    """Python knows the values in the function's body, and the rule has none."""
    @functools.partial(custom_vjp, nondiff_argnums=(1,))
    def f(p, power):
        return p["x"] ** power if p["x"] > 0 else -p["x"] * p["y"]

    def forward(p, power):
        p = {name: value.value for name, value in p.items()} if symbolic_zeros else p
        return f(p, power), p

    f.defvjp(forward, lambda power, p, cotangent: ({"x": cotangent * p["y"] * power, "y": None},),
             symbolic_zeros=symbolic_zeros)
    for x in (2.0, -2.0, 3.0):
        value, found = fxgrad.value_and_grad(f)({"x": x, "y": 5.0}, 3)
        assert value == (x ** 3 if x > 0 else -5 * x)
        assert found == {"x": 15.0, "y": 0.0}
        assert grad(lambda x: grad(lambda y: f({"x": x * y, "y": y}, 3))(x) ** 2)(x) == 36 * x ** 3


def test_checkpoint_equals_the_function() -> None:
    def f(x):
        return np.sum(np.sin(np.exp(x)) * x)

    g = checkpoint(f)
    np.testing.assert_allclose(grad(g)(X), grad(f)(X), rtol=1e-12)
    np.testing.assert_allclose(jit(grad(g))(X), grad(f)(X), rtol=1e-12)
    np.testing.assert_allclose(hessian(g)(X), hessian(f)(X), rtol=1e-12)
    np.testing.assert_allclose(vmap(grad(checkpoint(lambda x: np.sin(x) * x)))(X), np.sin(X) + X * np.cos(X),
                               rtol=1e-12)


def test_checkpoint_keeps_inputs_only() -> None:
    def f(x):
        for _ in range(5):
            x = np.sin(x) * np.exp(x)
        return x

    plain = fxgrad.vjp(f, X)[1]
    saving = fxgrad.vjp(checkpoint(f), X)[1]
    assert repr(saving) == "<pullback of f, 1 residuals>"
    assert int(repr(plain).split(",")[1].split()[0]) > 5
    np.testing.assert_allclose(saving(np.ones(2))[0], plain(np.ones(2))[0], rtol=1e-12)


def test_checkpoint_recomputes_behind_a_barrier_under_xla() -> None:
    block = checkpoint(lambda x: np.sin(np.sin(x)))
    gradient = to_jax(grad(lambda x: np.sum(block(x) ** 2)))
    for platform, barrier in (("cuda", True), ("tpu", True), ("cpu", False)):
        text = jax.export.export(jax.jit(gradient), platforms=[platform])(X).mlir_module()
        assert ("optimization_barrier" in text, "stablehlo.select" in text) == (barrier, not barrier)


def test_checkpoint_with_control_flow_and_containers() -> None:
    block = checkpoint(lambda p, x, n: {"y": p["w"] * x if x > 0 else x}, static_argnums=2)
    assert grad(lambda p: block(p, 2.0, 3)["y"])({"w": 5.0})["w"] == 2.0


def test_stop_gradient_returns_what_is_not_traced() -> None:
    """Also words, functions and Python's numbers, compiled too."""
    def function(x):
        number, word, array, own = fxgrad.stop_gradient((2.0, "word", np.ones(2), np.sin))
        assert (number, word, own) == (2.0, "word", np.sin)
        return x * number * array
    for call in (function, fxgrad.jit(function), fxgrad.vmap(function)):
        np.testing.assert_array_equal(call(np.array([1.0, 3.0])).ravel()[-1], 6.0)


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


# --- rules that read what changes between calls -----------------------------------------------------------------------

CALLS = 4
"""Calls of one derivative: the first is interpreted, the second generates code, later ones run it."""


def scaled_by(read):
    """A function of which each kind of rule multiplies by what `read` gives."""
    @custom_jvp
    def forward(x):
        return x * 1.0

    forward.defjvp(lambda primals, tangents: (forward(*primals), tangents[0] * read()))

    @custom_vjp
    def reverse(x):
        return x * 1.0

    reverse.defvjp(lambda x: (reverse(x), None), lambda residuals, cotangent: (cotangent * read(),))

    @custom_vjp
    def kept(x):
        return x * 1.0

    kept.defvjp(lambda x: (x * 1.0, (x, read())), lambda saved, cotangent: (cotangent * saved[1],))

    @custom_jvp
    def parts(x):
        return x * 1.0

    parts.defjvps(lambda tangent, output, x: tangent * read())
    return {"jvp": forward, "vjp": reverse, "residual": kept, "parts": parts}


USES = {
    "grad": lambda f: lambda x: grad(lambda x: np.sum(f(x)))(x),
    "value_and_grad": lambda f: lambda x: fxgrad.value_and_grad(lambda x: np.sum(f(x)))(x)[1],
    "one function": lambda f: grad(lambda x: np.sum(f(x))),
    "vjp": lambda f: lambda x: fxgrad.vjp(f, x)[1](np.ones_like(x))[0],
    "jvp": lambda f: lambda x: jvp(f, (x,), (np.ones_like(x),))[1],
    "linearize": lambda f: lambda x: fxgrad.linearize(f, x)[1](np.ones_like(x)),
    "jacrev": lambda f: lambda x: np.diag(fxgrad.jacrev(f)(x)),
    "jacfwd": lambda f: lambda x: np.diag(fxgrad.jacfwd(f)(x)),
    "vmap of grad": lambda f: lambda x: vmap(grad(f))(x),
    "grad of vmap": lambda f: lambda x: grad(lambda x: np.sum(vmap(f)(x)))(x),
    "second order": lambda f: lambda x: grad(lambda x: np.sum(grad(lambda x: np.sum(f(x) ** 2))(x)))(x) / 2.0,
    "checkpoint": lambda f: lambda x: grad(lambda x: np.sum(checkpoint(f)(x)))(x),
    "cond": lambda f: lambda x: grad(lambda x: np.sum(fxgrad.lax.cond(x[0] > 0.0, f, np.sin, x)))(x),
    "scan": lambda f: lambda x: grad(lambda x: np.sum(fxgrad.lax.scan(lambda c, e: (c, f(e)), 0.0, x)[1]))(x),
    "fori_loop": lambda f: lambda x: grad(lambda x: np.sum(fxgrad.lax.fori_loop(0, 1, lambda i, c: f(c), x)))(x),
    "while_loop": lambda f: lambda x: jvp(lambda x: fxgrad.lax.while_loop(
        lambda c: c[0] < 1, lambda c: (c[0] + 1, f(c[1])), (0, x))[1], (x,), (np.ones_like(x),))[1],
    "while_loop back": lambda f: lambda x: grad(lambda x: np.sum(fxgrad.lax.while_loop(
        lambda c: c[0] < 1, lambda c: (c[0] + 1, f(c[1])), (0, x))[1]))(x),
    "jax arrays": lambda f: lambda x: grad(lambda x: np.sum(f(x)))(fxgrad.numpy.asarray(x)),
    "jit of a new function": lambda f: lambda x: jit(lambda x: grad(lambda x: np.sum(f(x)))(x))(x),
}


@pytest.mark.parametrize("kind", ["jvp", "vjp", "residual", "parts"])
@pytest.mark.parametrize("use", USES)
def test_rules_read_what_is_there_at_each_call(use: str, kind: str) -> None:
    setting = {"k": 2.0}
    derivative = USES[use](scaled_by(lambda: setting["k"])[kind])
    for k in (2.0, 2.0, 2.0, 5.0, 5.0, 2.0, np.array([3.0, 4.0])[0], 2.0):
        setting["k"] = k
        # Of the second derivative one factor is the rule's, and one that of what its forward part returned.
        expected = k * k if use == "second order" and kind != "residual" else k
        np.testing.assert_allclose(derivative(X), np.full(2, expected), err_msg=f"{use}, {kind}, {k}", rtol=1e-12)


def test_rules_can_be_set_again() -> None:
    f = custom_vjp(lambda x: x * 1.0)
    g = custom_jvp(lambda x: x * 1.0)
    slopes = grad(f), grad(g), vmap(grad(f)), vmap(grad(g))
    for k in (2.0, 2.0, 5.0, 7.0):
        f.defvjp(lambda x: (x, None), lambda residuals, cotangent, k=k: (cotangent * k,))
        g.defjvp(lambda primals, tangents, k=k: (primals[0], tangents[0] * k))
        for slope in slopes[:2]:
            assert slope(1.0) == k
        for slope in slopes[2:]:
            np.testing.assert_array_equal(slope(X), [k, k])
    f.defvjp(lambda x: (x, x), lambda x, cotangent: (cotangent * np.sin(x),))  # other operations, and residuals
    np.testing.assert_allclose(slopes[0](X[0]), np.sin(X[0]), rtol=1e-12)


def weighted(kinds):
    """Functions of (c, x) whose rules, one of each kind, multiply by what `kinds` makes of c."""
    f = functools.partial(custom_vjp, nondiff_argnums=(0,))(lambda c, x: x * 1.0)
    f.defvjp(lambda c, x: (x * 1.0, None), lambda c, residuals, cotangent: (cotangent * kinds(c),))
    g = functools.partial(custom_jvp, nondiff_argnums=(0,))(lambda c, x: x * 1.0)
    g.defjvp(lambda c, primals, tangents: (primals[0] * 1.0, tangents[0] * kinds(c)))
    return f, g


class Weight:
    """An object that may change, equal to all others."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Weight)

    def __hash__(self) -> int:
        return 1


CHANGES = {
    "list": ([1.0], lambda c, k: c.__setitem__(0, k), lambda c: c[0]),
    "array": (np.array([1.0]), lambda c, k: c.__setitem__(0, k), lambda c: c[0]),
    "dictionary": ({"k": 1.0}, lambda c, k: c.update(k=k), lambda c: c["k"]),
    "object": (Weight(1.0), lambda c, k: setattr(c, "value", k), lambda c: c.value),
}


@pytest.mark.parametrize("name", CHANGES)
def test_static_arguments_that_change(name: str) -> None:
    c, change, read = CHANGES[name]
    for f in weighted(read):
        slope = grad(lambda x, f=f: f(c, x))
        for k in (2.0, 2.0, 2.0, 5.0, 3.0, 3.0):
            change(c, k)
            assert slope(1.0) == k
            assert jvp(lambda x, f=f: f(c, x), (1.0,), (1.0,))[1] == k


def test_static_arguments_that_are_equal_and_not_the_same() -> None:
    values = [1, True, 1.0, np.float64(1), np.int64(1), 0.0, -0.0, (1,), (True,), (1.0,), "1", None, Weight(1.0),
              Weight(2.0), np.float32(1), 1 + 0j, float("nan")]
    numbers = {id(value): float(place) for place, value in enumerate(values)}
    for f in weighted(lambda c: numbers[id(c)]):
        for _ in range(2):
            for value in values:
                assert grad(lambda x, f=f, value=value: f(value, x))(1.0) == numbers[id(value)]


def test_static_arguments_that_differ_at_every_call_cost_the_same(fresh_tables: None) -> None:
    compared = 0

    class Counted(float):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return float(self) == other

        __hash__ = float.__hash__

    for f in weighted(lambda c: float(c)):
        for k in range(100):
            assert grad(lambda x, f=f, k=k: f(Counted(k), x))(1.0) == k
            assert grad(lambda x, f=f, k=k: f(float(k), x))(1.0) == k
    assert compared < 400


def test_rules_are_derived_once_while_they_stay_as_they_are() -> None:
    from fxgrad.engine.derivation import derive

    made = []
    original = derive.remove_dead_code
    for function in scaled_by(lambda: 3.0).values():
        slope = grad(lambda x, f=function: np.sum(f(x)))
        slope(X)
        try:
            derive.remove_dead_code = lambda program: made.append(program) or original(program)
            for _ in range(3):
                slope(X)
        finally:
            derive.remove_dead_code = original
    assert not made


def test_what_a_function_closes_over_is_differentiated_as_the_function_is() -> None:
    def f(x):
        g = functools.partial(custom_jvp, nondiff_argnums=(0,))(lambda h, y: h(y))
        g.defjvp(lambda h, primals, tangents: (g(h, primals[0]), 1.0 * tangents[0]))
        return g(lambda y: 5.0 * x + y, x)

    def h(x):
        g = custom_vjp(lambda y: x * x * y)
        g.defvjp(lambda y: (y * 4.0, None), lambda residuals, cotangent: (cotangent * 100.0,))
        return g(x)

    for x in (np.float64(2.0), 3.0):
        assert jvp(f, (x,), (1.0,))[1] == grad(f)(x) == 6.0
        assert grad(h)(x) == 2.0 * x * x + 100.0
        np.testing.assert_array_equal(vmap(grad(f))(X), [6.0, 6.0])
        np.testing.assert_allclose(vmap(grad(h))(X), 2.0 * X * X + 100.0, rtol=1e-12)


@pytest.mark.slow
def test_second_derivatives_inside_loops_are_those_of_the_rule() -> None:
    @custom_jvp
    def f(x):
        return np.sin(x)

    f.defjvp(lambda primals, tangents: (np.sin(primals[0]), tangents[0] * np.cos(primals[0]) * 1.5))
    loops = [lambda x: fxgrad.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, f(c[1])), (0, x))[1] ** 2,
             lambda x: fxgrad.lax.fori_loop(0, (x > -5.0).astype(int), lambda i, c: f(c), x) ** 2,
             lambda x: fxgrad.lax.fori_loop(0, 1, lambda i, c: f(c), x) ** 2,
             lambda x: fxgrad.lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0] ** 2,
             lambda x: fxgrad.lax.cond(x > 0.0, f, np.cos, x) ** 2]
    plain = grad(grad(lambda x: f(x) ** 2))(0.7)
    for loop in loops:
        assert grad(grad(loop))(0.7) == pytest.approx(plain)
        assert jvp(grad(loop), (0.7,), (1.0,))[1] == pytest.approx(plain)
        assert grad(lambda x, loop=loop: jvp(loop, (x,), (1.0,))[1])(0.7) == pytest.approx(plain)


def test_a_jvp_rule_whose_tangent_takes_values_and_tangents_of_one_loop() -> None:
    """Its output is computed apart from the loop, and so takes no part in separating the two."""
    def power(base: Any, count: Any) -> Any:
        return fxgrad.lax.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, s[1] * base), (0, 1.0))[1]

    @custom_jvp
    def scaled(base: Any, count: Any) -> Any:
        return base * base ** count

    @scaled.defjvp
    def scaled_jvp(primals: Any, tangents: Any) -> Any:
        value, tangent = jvp(lambda base: power(base, primals[1]), primals[:1], tangents[:1])
        return scaled(*primals), value * tangents[0] + primals[0] * tangent

    for function in (grad(scaled), jit(grad(scaled))):
        assert function(1.3, 3) == pytest.approx(4.0 * 1.3 ** 3, rel=1e-14)
    np.testing.assert_allclose(vmap(grad(scaled), (0, None))(X, 3), 4.0 * X ** 3, rtol=1e-13)
    assert grad(grad(scaled))(1.3, 3) == pytest.approx(12.0 * 1.3 ** 2, rel=1e-14)


def test_a_jvp_rule_that_calls_jvp_of_a_function_with_a_batch_rule() -> None:
    @fxgrad.custom_batching.custom_vmap
    def square(x: Any) -> Any:
        return x * x

    square.def_vmap(lambda size, batched, x: (x * x, True))
    scaled = custom_jvp(lambda x: square(x))
    scaled.defjvp(lambda primals, tangents: jvp(square, primals, tangents))
    for slope in (grad(scaled), jit(grad(scaled))):
        assert slope(1.5) == 3.0
        np.testing.assert_array_equal(vmap(slope)(X), 2.0 * X)


def test_functions_that_return_other_containers_of_the_same_values_have_other_rules() -> None:
    form: list[Any] = [lambda y: y]

    @fxgrad.custom_jvp
    def f(x: Any) -> Any:
        return form[0](x * 2.0)

    f.defjvp(lambda primals, tangents: (f(*primals), form[0](tangents[0] * 3.0)))
    for form[0], back in ((lambda y: y, lambda out: out), (lambda y: (y,), lambda out: out[0]),
                          (lambda y: {"y": y}, lambda out: out["y"]), (lambda y: y, lambda out: out)):
        for _ in range(3):
            assert fxgrad.grad(lambda x, back=back: back(f(x)))(1.5) == 3.0


def test_what_a_rule_calls_its_function_with_counts() -> None:
    """Called on the very arguments, the function has the derivative of the rule; on others, and swapped, as well."""
    @fxgrad.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * x * y

    calls: list[Any] = [lambda x, y: f(x, y)]
    f.defjvp(lambda primals, tangents: (calls[0](*primals), tangents[0] * 10.0 + tangents[1]))
    for calls[0], value in ((lambda x, y: f(x, y), 12.0), (lambda x, y: f(y, x), 18.0), (lambda x, y: f(x, x), 8.0),
                            (lambda x, y: f(y=y, x=x), 12.0), (lambda x, y: f(x, y + 0.0), 12.0)):
        for _ in range(3):
            got, slopes = fxgrad.value_and_grad(lambda x, y: f(x, y) * 1.0, argnums=(0, 1))(2.0, 3.0)
            assert (got, *slopes) == (value, 10.0, 1.0)


def test_rules_get_zeros_for_arguments_that_stand_still() -> None:
    given: list[Any] = []

    @fxgrad.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * y

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        given[:] = tangents
        return f(*primals), tangents[0] * primals[1] + tangents[1] * primals[0]

    assert fxgrad.grad(f)(2.0, 3.0) == 3.0
    assert [tangent.shape for tangent in given] == [(), ()]
    assert fxgrad.jvp(f, (2.0, 3.0), (1.0, 0.0))[1] == 3.0


@pytest.mark.parametrize("make", [fxgrad.custom_jvp, fxgrad.custom_vjp])
def test_arguments_that_the_function_has_not_are_refused(make: Any) -> None:
    def named(x: Any) -> Any:
        return x

    function = make(named)
    if make is fxgrad.custom_jvp:
        function.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    else:
        function.defvjp(lambda x: (x, None), lambda _, g: (g,))
    assert fxgrad.grad(function)(1.0) == 1.0
    for arguments, said in (({"y": 2.0}, "got an unexpected keyword argument 'y'"),
                            ({"x": 2.0}, "multiple values for argument 'x'")):
        with pytest.raises(fxgrad.errors.ArgumentError) as raised:
            function(1.0, **arguments)
        assert str(raised.value).split("\n")[0] == f"named: {said}"


def test_integers_of_a_rule_are_compared_when_it_is_asked_again() -> None:
    """The number that a jitted function captures is an `Integer`, which has no bytes of its own."""
    @fxgrad.custom_vjp
    def scaled(x: Any, n: Any) -> Any:
        return np.sin(x) * n, n + 1
    scaled.defvjp(lambda x, n: (scaled(x, n), (x, n)), lambda saved, cotangents: (11.0 * cotangents[0], None))
    function = fxgrad.jit(lambda x: scaled(x, 3)[0])
    x = np.array([0.1, 0.2])
    np.testing.assert_allclose(fxgrad.grad(lambda x: np.sum(np.sin(function(x))))(x), 11.0 * np.cos(3.0 * np.sin(x)),
                               rtol=1e-14)
    np.testing.assert_allclose(fxgrad.jacrev(function)(x), 11.0 * np.eye(2), rtol=1e-15)
