"""Jaxprs inside of jaxprs: calls, loops, branches, custom rules, checkpoints and solvers become fxgrad's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import fxgrad
from fxgrad.interop.nested import SMALL, equation_count
from tests.support.oracle import EVERYTHING, assert_close, check, draw, primitives

X = draw(3)
MATRIX = draw(3, 3) + 4 * np.eye(3)
FORWARD = ("value", "jvp", "vmap")


@jax.custom_jvp
def wrong_slope(x: Any, y: Any) -> Any:
    return jnp.sin(x) * y


@wrong_slope.defjvp
def _wrong_slope_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    return wrong_slope(x, y), 3 * dx * y * x + dy * jnp.cos(x)


@jax.custom_vjp
def wrong_pull(x: Any, y: Any) -> Any:
    return jnp.sin(x) * y


wrong_pull.defvjp(lambda x, y: (wrong_pull(x, y), (x, y)), lambda saved, c: (3 * c * saved[0], c * jnp.cos(saved[1])))


@jax.custom_vjp
def with_count(x: Any, n: Any) -> Any:
    return x * n


with_count.defvjp(lambda x, n: (x * n, n), lambda n, c: (2 * c * n, None))


def many(x: Any) -> Any:
    for _ in range(SMALL):
        x = jnp.sin(x) * x
    return x


def bisected(x: Any) -> Any:
    return lax.custom_root(lambda y: y * y - x, x, lambda f, y: jnp.sqrt(x), lambda g, y: y / g(1.0))


def solved(matrix: Any, b: Any) -> Any:
    return lax.custom_linear_solve(lambda v: matrix @ v, b, lambda _, b: jnp.linalg.solve(matrix, b),
                                   lambda _, b: jnp.linalg.solve(matrix.T, b))


def deep(x: Any) -> Any:
    """A loop in a branch in a checkpoint in a jitted function, with a rule at the bottom."""
    def step(carry: Any, y: Any) -> Any:
        return lax.cond(y > 0, lambda c: wrong_slope(c, y), lambda c: c * c * y, carry), jnp.cos(carry)

    inner = jax.checkpoint(lambda x: lax.scan(step, x[0], x))
    return jax.jit(lambda x: many(jnp.sum(inner(x)[1]) * x))(x)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[str]]] = {
    "jit": (jax.jit(many), (X,), ["jit_call"]),
    "small jit": (jax.jit(lambda x: jnp.sin(x) * x), (X,), ["sin", "mul"]),
    "inlined jit": (jax.jit(many, inline=True), (X,), ["sin", "mul"] * SMALL),
    "jit of jax's": (lambda x: jnp.where(x > 0, x, 0.0), (X,), ["gt", "broadcast_to", "select_n"]),
    "scan": (lambda x: lax.scan(lambda c, y: (c * jnp.sin(y) + x[1], c * c), 1.0, x), (X,), ["scan"]),
    "scan reversed": (lambda x: lax.scan(lambda c, y: (c * y, c), x[0], x, reverse=True, unroll=2), (X,), ["scan"]),
    "fori_loop": (lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * x, x), (X,), ["scan"]),
    "cond": (lambda x: lax.cond(x[0] > 0, lambda x: x * x, lambda x: jnp.sin(x), x), (X,), ["cond"]),
    "switch": (lambda i, x: lax.switch(i, [lambda x: x * x, jnp.sin, lambda x: x * 3], x), (np.int32(1), X), ["cond"]),
    "custom_jvp": (wrong_slope, (X, X * 2), ["custom_jvp"]),
    "relu": (jax.nn.relu, (X,), ["custom_jvp"]),
    "checkpoint": (jax.checkpoint(lambda x: jnp.sin(jnp.sin(x) * x)), (X,), ["checkpoint"]),
    "custom_linear_solve": (solved, (MATRIX, X), ["custom_linear_solve"]),
    "custom_root": (bisected, (np.float64(2.0),), []),
    "stop_gradient": (lambda x: lax.stop_gradient(x) * x, (X,), ["stop_gradient", "mul"]),
    "name": (lambda x: checkpoint_name(x, "kept") * x, (X,), ["name", "mul"]),
    "mapped axis": (jax.vmap(lambda x: x * lax.psum(x * x, "i"), axis_name="i"), (X,), ["mul", "reduce_sum", "mul"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_equal_to_jax(name: str) -> None:
    function, args, expected = CASES[name]
    check(function, *args)
    assert [found for found in primitives(function, *args) if found in expected] == expected


@pytest.mark.slow
def test_nested_three_deep() -> None:
    check(deep, X, wanted=[name for name in EVERYTHING if name != "second"])
    assert primitives(deep, X) == ["jit_call"]


def test_custom_vjp() -> None:
    check(wrong_pull, X, X * 2, wanted=[name for name in EVERYTHING if name != "jvp"])
    check(with_count, X, np.int32(3), wanted=[name for name in EVERYTHING if name != "jvp"])
    assert primitives(wrong_pull, X, X) == ["custom_vjp"]


def test_forward_mode_of_custom_vjp() -> None:
    """jax has none; it is derived from the backward pass."""
    _, tangent = fxgrad.jvp(fxgrad.from_jax(wrong_pull), (X, X), (np.ones(3), np.zeros(3)))
    assert_close(tangent, 3 * X, "jvp")


def test_while() -> None:
    def steps(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (0, x))[1]

    def unrolled(x: Any) -> Any:
        return jnp.sin(jnp.sin(jnp.sin(x) * x) * x) * x

    check(steps, X, wanted=FORWARD)
    with jax.enable_x64(True):
        wanted = jax.grad(lambda x: unrolled(x).sum())(X)
    gradient = fxgrad.grad(lambda x: fxgrad.from_jax(steps)(x).sum())  # jax has no reverse mode here
    assert_close(gradient(X), wanted, "grad")
    assert "while" in primitives(steps, X)


def test_loops_of_vectors_that_jax_batched_end_one_by_one() -> None:
    def grown(x: Any) -> Any:
        return jax.lax.while_loop(lambda carry: carry.sum() < 10.0, lambda carry: 2.0 * carry + 1.0, x)
    x = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], np.float32)
    batched = fxgrad.from_jax(jax.vmap(grown))
    np.testing.assert_array_equal(batched(x), [[3.0, 7.0, 11.0], [3.0, 4.0, 5.0]])


@pytest.mark.slow
def test_rules_in_loops_are_those_of_the_steps() -> None:
    """The second derivative through a loop is that of its steps written out, rules that are no derivatives included."""
    def looped(x: Any) -> Any:
        return lax.scan(lambda c, y: (wrong_slope(c, y), None), x[0], x)[0]

    def unrolled(x: Any) -> Any:
        return wrong_slope(wrong_slope(wrong_slope(x[0], x[0]), x[1]), x[2])

    with jax.enable_x64(True):
        wanted = jax.grad(lambda x: (jax.grad(unrolled)(x) ** 2).sum())(X)
    slope = fxgrad.grad(fxgrad.from_jax(looped))
    assert_close(fxgrad.grad(lambda x: (slope(x) ** 2).sum())(X), wanted, "second")


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "kept"), [
    (None, 1), (jax.checkpoint_policies.nothing_saveable, 1), (jax.checkpoint_policies.dots_saveable, 2),
    (jax.checkpoint_policies.dots_with_no_batch_dims_saveable, 2),
    (jax.checkpoint_policies.save_only_these_names("a"), 2), (jax.checkpoint_policies.save_only_these_names("b"), 1)])
def test_policies(policy: Any, kept: int) -> None:
    def body(x: Any) -> Any:
        return jnp.sin(checkpoint_name(jnp.exp(jnp.sin(x @ jnp.ones((3, 3), x.dtype))), "a")) * x

    function = jax.checkpoint(body, policy=policy)
    residuals = fxgrad.saved_residuals(fxgrad.from_jax(function), X)
    assert len(residuals) - len(fxgrad.saved_residuals(fxgrad.from_jax(jax.checkpoint(body)), X)) == kept - 1
    check(function, X, wanted=("grad", "value"))


def test_derivatives_that_jax_took() -> None:
    """A gradient that jax computes, with what it computes a second time, is imported like any other function."""
    function = jax.grad(lambda x: jnp.sum(jax.checkpoint(many)(x) * wrong_slope(x, x)))
    check(function, X, wanted=("value", "grad", "vmap"))
    assert "recompute" in primitives(function, X)


@pytest.mark.parametrize("transformed", [
    jax.grad, jax.vmap, lambda f: lambda x: jax.jvp(f, (x,), (x,)), lambda f: lambda x: jax.linearize(f, x)[1](x),
    lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (x,)), lambda f: jax.vmap(jax.grad(f)), jax.hessian,
], ids=["grad", "vmap", "jvp", "linearize", "jvp of grad", "vmap of grad", "hessian"])
@pytest.mark.slow
def test_loops_that_jax_transformed(transformed: Any) -> None:
    def looped(x: Any) -> Any:
        return lax.scan(lambda c, y: (c * jnp.sin(y) * x.sum(), c * y), x.sum(), jnp.stack([x, x, x]).sum(-1))[1].sum()

    function = transformed(looped)
    x = np.stack([X, X * 2]) if transformed is jax.vmap or "vmap" in transformed.__code__.co_names else X
    check(function, x, wanted=("value", "grad"))
    assert not [name for name in primitives(function, x) if name.startswith("jax_")]


@pytest.mark.slow
def test_collectives() -> None:
    def entry(x: Any) -> Any:
        gathered = lax.all_gather(x, "i") + lax.all_gather(x[None], "i", tiled=True)
        swapped = lax.all_to_all(gathered * x, "i", 0, 0)
        parts = lax.psum_scatter(gathered, "i") + lax.psum_scatter(gathered, "i", tiled=True)[0]
        moved = lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)])
        return swapped.sum() + parts + moved * lax.pmean(x, "i") + lax.pmax(lax.stop_gradient(x), "i") - lax.pmin(
            lax.stop_gradient(x), "i") + lax.axis_index("i") * x

    rows = draw(3, 3)
    with jax.enable_x64(True):
        wanted = jax.vmap(entry, axis_name="i")(rows)
        gradient = jax.grad(lambda rows: jnp.sum(jax.vmap(entry, axis_name="i")(rows) ** 2))(rows)
    ours = fxgrad.vmap(fxgrad.from_jax(entry), axis_name="i")
    assert_close(ours(rows), wanted, "value")
    assert_close(fxgrad.grad(lambda rows: (ours(rows) ** 2).sum())(rows), gradient, "grad")
    program = fxgrad.make_program(ours)(rows)
    assert not [equation for equation in program.equations if equation.primitive.name.startswith("jax_")]


def test_groups_of_a_mapped_axis() -> None:
    """Of a function that jax could not batch itself."""
    def entry(x: Any) -> Any:
        groups = [[0, 2], [3, 1]]
        both = lax.all_gather(lax.psum(x, "i", axis_index_groups=groups), "i", axis_index_groups=groups)
        return lax.psum_scatter(both, "i", axis_index_groups=groups) + lax.all_to_all(
            both, "i", 0, 0, axis_index_groups=groups) + lax.pmax(x, "i", axis_index_groups=groups)

    got = fxgrad.vmap(fxgrad.from_jax(entry), axis_name="i")(np.array([1.0, 10.0, 2.0, 20.0]))
    np.testing.assert_array_equal(got, [[2 * 3 + 3 + 2] * 2, [2 * 30 + 30 + 20] * 2] * 2)


def test_callbacks(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []

    def double(x: Any) -> Any:
        return np.asarray(x) * 2

    def looking(x: Any) -> Any:
        jax.debug.print("x is {} {word}", x, word="here")
        jax.debug.callback(lambda y, word: seen.append((np.array(y), word)), x, "there")
        return jax.pure_callback(double, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential") + x

    ours = fxgrad.from_jax(looking)
    assert_close(ours(X), 3 * X, "value")
    assert capsys.readouterr().out == f"x is {X} here\n"
    assert [(array.tolist(), word) for array, word in seen] == [(X.tolist(), "there")]
    assert_close(fxgrad.jit(ours)(X), 3 * X, "jit")
    assert_close(fxgrad.vmap(ours)(np.stack([X, X])), np.stack([3 * X, 3 * X]), "vmap")
    jax.effects_barrier()
    assert len(seen) == 4
    assert primitives(looking, X) == ["debug_callback", "debug_callback", "pure_callback", "add"]


def test_io_callback_runs_as_often_as_written() -> None:
    from jax.experimental import io_callback

    calls: list[int] = []

    def count(x: Any) -> Any:
        calls.append(1)
        return np.float64(len(calls))

    ours = fxgrad.from_jax(lambda x: x * io_callback(count, jax.ShapeDtypeStruct((), np.float64), x, ordered=True))
    assert (float(ours(np.float64(5.0))), float(ours(np.float64(5.0)))) == (5.0, 10.0)
    assert float(fxgrad.jit(ours)(np.float64(5.0))) == 15.0


def test_equations_are_counted_with_those_inside() -> None:
    table = jnp.arange(3.0)
    jaxpr = jax.make_jaxpr(lambda x: lax.cond(x[0] > 0, jax.jit(lambda x: x * table), jnp.sin, x))(X.astype("f"))
    assert equation_count(jaxpr) == equation_count(jaxpr.jaxpr) == 8
