"""Custom rules under transformations: batch rules with derivatives, symbolic zeros, arguments as in jax."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.custom_batching
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import checkpoint, errors, from_jax, grad, hessian, jit, jvp, linearize, value_and_grad, vmap

X, Y = np.array([0.3, 1.0, 2.0]), np.array([1.5, 0.5, -2.0])


def product(x: Any, y: Any) -> Any:
    return fnp.sin(x) * y + 0.25 * x * x


def ten_products(x: Any, y: Any) -> Any:
    return 10 * product(x, y)


def with_batch_rule(name: str) -> Callable[..., Any]:
    """`product`, whose batch rule computes `ten_products`, so that one sees which of them a derivative is of."""
    function = fxgrad.custom_batching.custom_vmap(product)
    function.def_vmap(lambda size, batched, x, y: (ten_products(x, y), batched[0] or batched[1]))
    return {"plain": lambda: function, "in jit": lambda: jit(function), "in checkpoint": lambda: checkpoint(function),
            "called": lambda: lambda x, y: function(y=y, x=x)}[name]()


MAPPED: dict[str, Callable[[Any], Any]] = {
    "value": lambda f: vmap(f)(X, Y),
    "jvp": lambda f: vmap(lambda x, y: jvp(f, (x, y), (y, x)))(X, Y),
    "jvp in one": lambda f: vmap(lambda x, y: jvp(lambda x: f(x, y), (x,), (1.0,)))(X, Y),
    "batched tangents alone": lambda f: vmap(lambda t: jvp(f, (0.5, 2.0), (t, 1.0)))(X),
    "batched primals alone": lambda f: vmap(lambda x: jvp(f, (x, 2.0), (0.5, 1.0)))(X),
    "jvp of vmap": lambda f: jvp(vmap(f), (X, Y), (Y, X)),
    "jvp of jvp": lambda f: vmap(lambda x, y: jvp(lambda x: jvp(lambda x: f(x, y), (x,), (y,))[1], (x,), (x,)))(X, Y),
    "linearize": lambda f: vmap(lambda x, y: linearize(f, x, y)[1](y, x))(X, Y),
    "grad": lambda f: vmap(grad(f, argnums=(0, 1)))(X, Y),
    "value and grad": lambda f: vmap(value_and_grad(f))(X, Y),
    "grad with one mapped": lambda f: vmap(grad(f, argnums=(0, 1)), (0, None))(X, 2.0),
    "grad of vmap": lambda f: grad(lambda x, y: fnp.sum(fnp.cos(vmap(f)(x, y))), argnums=(0, 1))(X, Y),
    "hessian": lambda f: vmap(hessian(f, argnums=(0, 1)))(X, Y),
    "grad of grad": lambda f: vmap(grad(grad(f)))(X, Y),
    "vmap of vmap": lambda f: vmap(vmap(grad(f), (0, None)), (None, 0))(X, Y),
    "jit": lambda f: jit(vmap(grad(f, argnums=(0, 1))))(X, Y),
}


def assert_equal(ours: Any, expected: Any, tolerance: float = 1e-12) -> None:
    theirs, structure = jax.tree.flatten(expected)
    given, mine = jax.tree.flatten(ours)
    assert mine == structure
    for one, other in zip(given, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["plain", "in jit", "in checkpoint", "called"])
def test_all_batches_of_derivatives_are_derivatives_of_the_batch_rule(how: str) -> None:
    function = with_batch_rule(how)
    for case in MAPPED.values():
        assert_equal(case(function), case(ten_products), 1e-6 if how == "in jit" else 1e-12)
    assert_equal(grad(function)(0.5, 2.0), grad(product)(0.5, 2.0))  # nothing is mapped


def test_batches_of_derivatives_are_derivatives_of_the_batch_rule() -> None:
    function = with_batch_rule("plain")
    for name in ("jvp", "batched tangents alone", "grad", "grad with one mapped"):
        assert_equal(MAPPED[name](function), MAPPED[name](ten_products))


def test_batches_of_derivatives_lie_in_front() -> None:
    function = with_batch_rule("plain")
    xs, ys = np.linspace(0.0, 1.0, 6).reshape(3, 2), np.linspace(1.0, 2.0, 6).reshape(3, 2)
    for case in (lambda f: vmap(lambda x, y: jvp(f, (x, y), (y, x)))(xs, ys),
                 lambda f: vmap(grad(lambda x, y: fnp.sum(f(x, y) * x), argnums=(0, 1)))(xs, ys)):
        assert_equal(case(function), case(ten_products))


def test_jvp_of_custom_vmap_as_jax() -> None:
    def of(m: Any, sin: Any) -> Any:
        function = m.custom_batching.custom_vmap(sin)
        function.def_vmap(lambda size, batched, x: (10 * sin(x), batched[0]))
        x = np.array([0.3, 1.0, 2.0], np.float32)
        return [m.vmap(lambda x: m.jvp(function, (x,), (x,)))(x), m.jvp(m.vmap(function), (x,), (x,))]
    assert_equal(of(fxgrad, fnp.sin), of(jax, jnp.sin), 1e-6)


def test_batch_rules_of_derivatives_refuse_captured_batches() -> None:
    function = fxgrad.custom_batching.custom_vmap(lambda x: x * 2.0)
    function.def_vmap(lambda size, batched, x: (x * 2.0, batched[0]))

    def closing(z: Any) -> Any:
        inner = fxgrad.custom_batching.custom_vmap(lambda x: x * z)
        inner.def_vmap(lambda size, batched, x: (x, batched[0]))
        return grad(inner)(1.0)
    assert_equal(vmap(lambda x: grad(function)(x) * x)(X), 2 * X)
    with pytest.raises(errors.ArgumentError, match="closes over a mapped array, which its rule does not receive"):
        vmap(closing)(X)


def test_rules_with_symbolic_zeros_get_them_under_every_transformation() -> None:
    def seen_by(m: Any, ones: Any, zero: type) -> list[Any]:
        seen: list[Any] = []

        @m.custom_vjp
        def f(x: Any, y: Any) -> Any:
            return x * y, x + y

        def forward(x: Any, y: Any) -> Any:
            seen.append((x.perturbed, y.perturbed))
            return f(x.value, y.value), (x.value, y.value)

        def backward(kept: Any, g: Any) -> Any:
            seen.append([isinstance(one, zero) for one in g])
            return kept[1] * g[0], kept[0] * g[0]
        f.defvjp(forward, backward, symbolic_zeros=True)

        def loss(x: Any, y: Any) -> Any:
            return f(x, y)[0].sum()
        m.grad(loss)(ones[0], ones[0])
        m.vmap(m.grad(loss))(ones, ones)
        m.grad(lambda x, y: m.vmap(loss)(x, y).sum())(ones, ones)
        m.grad(lambda x, y: m.vmap(loss, (0, None))(x, y).sum(), argnums=(0, 1))(ones, ones[0])
        m.vmap(m.vmap(m.grad(loss)))(ones[None], ones[None])
        return seen
    ours = seen_by(fxgrad, fnp.ones(3), fxgrad.custom_derivatives.SymbolicZero)
    assert ours == seen_by(jax, jnp.ones(3), jax.custom_derivatives.SymbolicZero)
    assert [False, True] in ours


COTANGENTS: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    # the argument, the function, and the cotangent that the rule returns
    "None beside": ((3.0, None), lambda p: p[0], lambda g: (g, None)),
    "None within": ((None, (3.0, None)), lambda p: p[1][0], lambda g: (None, (g, None))),
    "None in a dict": ({"a": 3.0, "b": None}, lambda p: p["a"], lambda g: {"a": g, "b": None}),
    "None for a leaf": ((3.0, 4.0), lambda p: p[0], lambda g: (g, None)),
    "None for a branch": ({"a": 3.0, "b": (1.0, [2.0])}, lambda p: p["a"], lambda g: {"a": g, "b": None}),
    "None for all": ({"a": 3.0}, lambda p: p["a"], lambda g: None),
    "None for an empty branch": ((3.0, ()), lambda p: p[0], lambda g: (g, None)),
}


def test_backward_passes_may_return_none_as_in_jax() -> None:
    def cotangents(m: Any) -> list[Any]:
        found = []
        for argument, function, cotangent in COTANGENTS.values():
            ruled = m.custom_vjp(function)
            ruled.defvjp(lambda p, function=function: (function(p), None),
                         lambda kept, g, cotangent=cotangent: (cotangent(g),))
            found += [m.grad(ruled)(argument), m.jit(m.grad(ruled))(argument)]
        return found
    assert_equal(cotangents(fxgrad), cotangents(jax))
    ruled = fxgrad.custom_vjp(lambda p: p[0])
    ruled.defvjp(lambda p: (p[0], None), lambda kept, g: ((g, g, None),))
    with pytest.raises(errors.TreeError) as caught:
        grad(ruled)((1.0, 2.0))
    assert str(caught.value).startswith(
        "the backward pass of function must return a cotangent like the argument (PyTreeDef((*, *))), and it returned "
        "PyTreeDef((*, *, *))")
    ruled.defvjp(lambda p: (p[0], None), lambda kept, g: (g,))  # one array for a container of two
    with pytest.raises(errors.TreeError):
        grad(ruled)((1.0, 2.0))


def test_functions_with_bound_keywords_may_have_rules() -> None:
    def results(m: Any) -> list[Any]:
        def f(x: Any, c: Any) -> Any:
            return x * c
        forward = m.custom_jvp(partial(f, c=0.5))
        forward.defjvp(lambda primals, tangents: (forward(*primals), 7 * tangents[0]))
        parts = m.custom_jvp(partial(f, c=0.5))
        parts.defjvps(lambda tangent, output, x: 8 * tangent)
        reverse = m.custom_vjp(partial(f, c=0.5))
        reverse.defvjp(lambda x: (reverse(x), None), lambda kept, g: (9 * g,))
        return [each for g in (forward, parts, reverse) for each in (
            g(2.0), m.grad(g)(2.0), m.jit(g)(2.0), m.vmap(m.grad(g))(np.ones(2, np.float32)))]
    assert_equal(results(fxgrad), results(jax))
    bound = fxgrad.custom_jvp(partial(lambda x, c: x * c, c=0.5))
    bound.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    with pytest.raises(errors.ArgumentError) as caught:
        bound(1.0, c=2.0)
    assert str(caught.value).startswith(
        "partial has a custom rule and was called with keyword-only arguments (c), which rules cannot receive. Pass "
        "them by position")


def test_arguments_by_name_after_one_that_is_left_out() -> None:
    def results(m: Any) -> list[Any]:
        def f(x: Any, axis: Any = None, scale: Any = 2.0, power: Any = 3) -> Any:
            return x ** power * scale if axis is None else x

        forward, reverse = m.custom_jvp(f, nondiff_argnums=(1, 3)), m.custom_vjp(f, nondiff_argnums=(1, 3))
        batched = m.custom_batching.custom_vmap(lambda x, y=2.0, z=5.0: x * y * z)
        batched.def_vmap(lambda size, mapped, x, y, z: (x - y - z, True))
        forward.defjvp(lambda axis, power, primals, tangents: (forward(primals[0], axis, primals[1], power),
                                                               power * tangents[0] + 5 * primals[1]))
        reverse.defvjp(lambda x, axis, scale, power: (f(x, axis, scale, power), scale),
                       lambda axis, power, scale, ct: (power * ct * scale, ct))
        return [each for g in (forward, reverse) for each in (
            g(2.0, power=2), m.grad(partial(g, power=4))(2.0), m.grad(partial(g, scale=3.0))(2.0))] + [
            m.vmap(lambda x: batched(x, z=1.0))(np.ones(2, np.float32))]
    assert_equal(results(fxgrad), results(jax))


@pytest.mark.slow
def test_second_derivatives_of_a_number_by_rules_for_reverse_mode() -> None:
    """`jax.grad(jax.grad(newton_sqrt))` of jax's page on custom derivatives, and a rule that is not linear."""
    def results(m: Any, lib: Any) -> list[Any]:
        @partial(m.custom_vjp, nondiff_argnums=(0,))
        def fixed_point(f: Any, a: Any, guess: Any) -> Any:
            return m.lax.while_loop(lambda pair: lib.abs(pair[0] - pair[1]) > 1e-6,
                                    lambda pair: (pair[1], f(a, pair[1])), (guess, f(a, guess)))[1]

        def backward(f: Any, kept: Any, ct: Any) -> Any:
            a, found = kept
            solved = fixed_point(partial(iteration, f), (a, found, ct), ct)
            return m.vjp(lambda a: f(a, found), a)[1](solved)[0], lib.zeros_like(found)

        def iteration(f: Any, packed: Any, u: Any) -> Any:
            a, found, ct = packed
            return ct + m.vjp(lambda x: f(a, x), found)[1](u)[0]

        def forward(f: Any, a: Any, guess: Any) -> Any:
            found = fixed_point(f, a, guess)
            return found, (a, found)
        fixed_point.defvjp(forward, backward)

        def root(a: Any) -> Any:
            return fixed_point(lambda a, x: 0.5 * (x + a / x), a, a)

        clipped = m.custom_vjp(lambda x: x ** 3)
        clipped.defvjp(lambda x: (x ** 3, x), lambda x, ct: (lib.clip(3 * x ** 2 * ct, -5.0, 5.0),))
        return [transform(m.grad(m.grad(f)))(2.0) for transform in (m.jit, lambda f: f) for f in (root, clipped)] + [
            m.grad(m.grad(m.grad(root)))(2.0), m.jit(m.grad(m.grad(lambda x: clipped(lib.sin(x)))))(0.3)]
    with jax.enable_x64(True):
        expected = results(jax, jnp)
    assert_equal(results(fxgrad, fnp), expected)


def test_custom_vmap_takes_keywords_as_in_jax() -> None:
    def results(m: Any) -> list[Any]:
        @m.custom_batching.custom_vmap
        def f(x: Any, y: Any = 2.0) -> Any:
            return x * y
        f.def_vmap(lambda size, batched, x, y: (x * y * 10, batched[0] or batched[1]))
        x = np.arange(3, dtype=np.float32)
        return [f(2.0, y=3.0), m.vmap(lambda x: f(x, y=x))(x), m.vmap(f)(x), m.vmap(lambda x: f(y=x, x=3.0))(x)]
    assert_equal(results(fxgrad), results(jax))


def test_methods_that_define_rules_reach_the_function_inside() -> None:
    def results(m: Any, sin: Any) -> list[Any]:
        @m.custom_jvp
        @m.custom_batching.custom_vmap
        def f(x: Any) -> Any:
            return sin(x)
        f.defjvp(lambda primals, tangents: (f(*primals), 3 * tangents[0]))
        f.def_vmap(lambda size, batched, x: (sin(x) + 100, batched[0]))

        @m.custom_batching.custom_vmap
        @m.custom_vjp
        def g(x: Any) -> Any:
            return sin(x)
        g.defvjp(lambda x: (sin(x), x), lambda x, cotangent: (cotangent * x * 5,))
        x = np.arange(3, dtype=np.float32)
        return [m.vmap(f)(x), m.grad(f)(1.0), m.jvp(m.vmap(f), (x,), (x,)), m.jit(g.fun)(1.0), m.grad(g.fun)(1.0)]
    assert_equal(results(fxgrad, fnp.sin), results(jax, jnp.sin), 1e-6)
    with pytest.raises(AttributeError, match="'custom_jvp' object has no attribute 'def_vmap'"):
        fxgrad.custom_jvp(np.sin).def_vmap  # noqa: B018


def test_zeros_of_primals() -> None:
    zeros = fxgrad.custom_derivatives.zero_from_primal
    given = {"x": np.ones((2, 3), np.float32), "n": np.arange(3), "a": (1.0, True)}
    for ours, theirs in zip(jax.tree.leaves(zeros(given)),
                            jax.tree.leaves(jax.custom_derivatives.zero_from_primal(given)), strict=True):
        assert (ours.shape, ours.dtype == jax.dtypes.float0) == (theirs.shape, theirs.dtype == jax.dtypes.float0)
    np.testing.assert_array_equal(zeros(given)["x"], np.zeros((2, 3)))
    symbolic = zeros(given, symbolic_zeros=True)
    assert symbolic["x"].shape == (2, 3)
    assert type(symbolic["a"][0]) is fxgrad.custom_derivatives.SymbolicZero
    with pytest.raises(errors.ArgumentError, match="zero_from_primal"):
        zeros("text")


def test_imported_rules_that_close_over_traced_arrays_say_what_to_write() -> None:
    def scaled(kind: str) -> Callable[..., Any]:
        def function(x: Any, a: Any) -> Any:
            def inner(y: Any) -> Any:
                return y * a
            if kind == "vjp":
                reverse = jax.custom_vjp(inner)
                reverse.defvjp(lambda y: (inner(y), y), lambda kept, g: (g * a * 2,))
                return reverse(x)
            forward = jax.custom_jvp(inner)
            forward.defjvp(lambda primals, tangents: (inner(*primals), tangents[0] * a * 2))
            return forward(x)
        return function
    for kind in ("vjp", "jvp"):
        function = scaled(kind)
        assert float(from_jax(function)(2.0, 3.0)) == 6.0
        for call in (grad(from_jax(function)), jit(grad(from_jax(function)))):
            with pytest.raises(errors.UnsupportedError) as caught:
                call(2.0, 3.0)
            message = str(caught.value)
            assert message.startswith("a rule of inner, an imported function of jax's, uses a traced array that is no "
                                      "argument of inner, and what was traced has returned by the time the rule runs. ")
            assert "from_jax(lambda x: f(x, a))(x) in the place of from_jax(f)(x, a)" in message
        assert float(grad(from_jax(lambda x, function=function: function(x, 3.0)))(2.0)) == 6.0


def test_values_that_a_rule_asks_for_are_refused_in_the_name_of_the_function() -> None:
    @fxgrad.custom_jvp
    def ruled(x: Any) -> Any:
        return x * 1.0

    @ruled.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return primals[0], tangents[0] if primals[0] > 0 else -tangents[0]

    for derivative in (grad(ruled), jit(grad(ruled))):
        with pytest.raises(errors.ConcretizationError) as caught:
            derivative(1.0)
        assert str(caught.value).startswith(
            "bool() needs the value of a traced array (bool[]) in the jvp rule of ruled, which is traced without "
            "values. It depends on: input 1. Write fxgrad.numpy.where(condition, a, b) to choose between values, ")


def _inner_functions(module: Any, xp: Any) -> dict[str, Callable[..., Any]]:
    lax = module.lax
    return {
        "jit": module.jit(lambda x: xp.sin(x) * x), "checkpoint": module.checkpoint(lambda x: xp.sin(x) * x),
        "scan": lambda x: lax.scan(lambda c, _: (xp.sin(c) * c, c * 2), x, None, length=3)[0],
        "cond": lambda x: lax.cond(x[0] > 0, xp.sin, lambda z: z * 2, x),
        "while": lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, xp.sin(c[1]) * c[1]), (0, x))[1]}


@pytest.mark.parametrize("inner", ["jit", "scan", "checkpoint", "cond", "while"])
@pytest.mark.slow
def test_rules_that_push_forward_through_calls_and_loops(inner: str) -> None:
    """One equation makes the output and its tangent; the output had belonged to the tape of the tangents."""
    x = np.array([0.3, -0.4, 0.8])

    def results(module: Any, xp: Any) -> list[Any]:
        function = _inner_functions(module, xp)[inner]
        ruled = module.custom_jvp(function)

        @ruled.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            output, tangent = module.jvp(function, primals, tangents)
            return output * 1, tangent * 2 * output

        total = lambda x: xp.sum(ruled(x) ** 2)
        batched = lambda x: xp.sum(module.vmap(ruled)(xp.stack([x, x * 2])) ** 2)
        wrapped = [module.jacfwd(ruled), lambda x: module.linearize(ruled, x)[1](x)]
        if inner not in ("while", "cond"):  # jax has no gradient of the one, and none of batches of the other
            wrapped += [module.grad(total), module.jit(module.grad(batched)), module.hessian(total)]
        return [np.asarray(each(x)) for each in wrapped]

    with jax.enable_x64(True):
        expected = results(jax, jnp)
    for found, wanted in zip(results(fxgrad, fnp), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_outputs_of_rules_do_not_depend_on_tangents() -> None:
    def summed(x: Any, t: Any) -> Any:
        return np.sin(x) + t, t * 2

    for body in (summed, fxgrad.jit(summed)):
        ruled = fxgrad.custom_jvp(lambda x: np.sin(x))
        ruled.defjvp(lambda primals, tangents, body=body: body(primals[0], tangents[0]))
        with pytest.raises(errors.ArgumentError, match=(
                r"^the jvp rule of function returned an output that depends on the tangents\. Return the output of the "
                r"function, and a tangent\n")):
            fxgrad.grad(ruled)(0.3)


def test_gradients_by_pullbacks_with_positions() -> None:
    """The pullback of `sort` has integers among its residuals, which had been taken for values of the closure."""
    @fxgrad.custom_gradient
    def ruled(x: Any) -> Any:
        output, pullback = fxgrad.vjp(lambda x: np.sort(x) * np.cumsum(x), x)
        return output, lambda cotangent: 2.0 * pullback(cotangent)[0]

    x = np.array([0.4, 0.3])
    for derived in (fxgrad.grad(lambda x: np.sum(ruled(x))), fxgrad.jit(fxgrad.grad(lambda x: np.sum(ruled(x))))):
        np.testing.assert_allclose(derived(x), [2.8, 1.6])


def test_forward_mode_through_backward_passes_with_calls() -> None:
    """One equation makes a residual and a cotangent; forward mode transposes the backward pass."""
    ruled = fxgrad.custom_vjp(lambda x: fnp.sin(x) * x)

    @jit
    def parts(x: Any, cotangent: Any) -> Any:
        return fnp.cos(x), cotangent * 2

    def backward(x: Any, cotangent: Any) -> Any:
        first, second = parts(x, cotangent)
        return (first * second,)

    ruled.defvjp(lambda x: (fnp.sin(x) * x, x), backward)
    np.testing.assert_allclose(fxgrad.jacfwd(ruled)(X), np.diag(2 * np.cos(X)))
    np.testing.assert_allclose(fxgrad.laplacian(lambda x: fnp.sum(ruled(x)))(X), -2 * np.sum(np.sin(X)))
