"""Control flow under every transformation, against jax in forward mode with x64 as an independent oracle."""

from __future__ import annotations

import functools
import logging
import math
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import checkpoint, grad, hvp, jacfwd, jacrev, jit, lax, linearize, vjp, vmap
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.extend import aval_of
from fxgrad.lax import bodies
from fxgrad.numpy import at
from tests.support.bases import BASES, FXGRAD, JAX

X = np.array([1.2, -0.4, 0.7])
BATCH = np.stack([X, -X, 0.5 * X + 0.1])


@functools.cache
def expected(name: str, second: bool) -> dict[str, Any]:
    """Value and gradient, also for a batch, from jax's forward mode; or the Hessian."""
    base = functools.partial(BASES[name], JAX)
    first = jax.jacfwd(base)

    def firsts(x: Any, batch: Any) -> dict[str, Any]:
        return {"value": base(x), "first": first(x), "values": jax.vmap(base)(batch), "firsts": jax.vmap(first)(batch)}

    with jax.enable_x64(True):
        results = jax.jit(jax.jacfwd(first))(X) if second else jax.jit(firsts)(X, BATCH)
        return jax.tree.map(np.asarray, {"second": results} if second else results)


WAYS: dict[str, tuple[str, Callable[[Callable[[Any], Any]], Any]]] = {
    "un-jitted": ("value", lambda f: f(X)),
    "jit": ("value", lambda f: jit(f)(X)),
    "jax array": ("value", lambda f: f(jax.device_put(X))),
    "vmap": ("values", lambda f: vmap(f)(BATCH)),
    "jit of vmap": ("values", lambda f: jit(vmap(f))(BATCH)),
    "jacfwd": ("first", lambda f: jacfwd(f)(X)),
    "grad": ("first", lambda f: grad(f)(X)),
    "jit of grad": ("first", lambda f: jit(grad(f))(X)),
    "grad of jit": ("first", lambda f: grad(jit(f))(X)),
    "grad of checkpoint": ("first", lambda f: grad(checkpoint(f))(X)),
    "vjp": ("first", lambda f: vjp(f, X)[1](np.float64(1.0))[0]),
    "linearize": ("first", lambda f: np.array([linearize(f, X)[1](row) for row in np.eye(3)])),
    "vmap of grad": ("firsts", lambda f: vmap(grad(f))(BATCH)),
    "grad of vmap": ("firsts", lambda f: grad(lambda rows: vmap(f)(rows).sum())(BATCH)),
    "forward over reverse": ("second", lambda f: jacfwd(grad(f))(X)),
    "reverse over reverse": ("second", lambda f: jacrev(grad(f))(X)),
    "forward over forward": ("second", lambda f: jacfwd(jacfwd(f))(X)),
    "reverse over forward": ("second", lambda f: jacrev(jacfwd(f))(X)),
    "hvp": ("second", lambda f: np.array([hvp(f, (X,), (row,)) for row in np.eye(3)])),
    "jit of reverse over reverse": ("second", lambda f: jit(jacrev(grad(f)))(X)),
}
QUICK = {"un-jitted", "vmap", "grad"}


@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.slow] * (way not in QUICK)) for way in WAYS])
@pytest.mark.parametrize("name", BASES)
def test_equal_to_jax(name: str, way: str) -> None:
    what, apply = WAYS[way]
    with jax.enable_x64(True):
        result = apply(functools.partial(BASES[name], FXGRAD))
    np.testing.assert_allclose(result, expected(name, what == "second")[what], rtol=2e-12, atol=2e-12)


# --- reverse mode without a bound on the steps ----------------------------------------------------------------


def newton(a: Any) -> Any:
    return lax.while_loop(lambda x: abs(x * x - a) > 1e-12 * a, lambda x: 0.5 * (x + a / x), a)


def test_gradient_through_newton() -> None:
    for transform in (grad, lambda f: jit(grad(f))):
        np.testing.assert_allclose(transform(newton)(np.float64(2.0)), 0.5 / np.sqrt(2.0), rtol=1e-12)


@pytest.mark.slow
def test_gradient_through_newton_for_each_entry() -> None:
    a = np.array([1e-3, 2.0, 1e6])
    np.testing.assert_allclose(vmap(grad(newton))(a), 0.5 / np.sqrt(a), rtol=1e-10)
    np.testing.assert_allclose(jit(vmap(grad(newton)))(a), 0.5 / np.sqrt(a), rtol=1e-10)


def sinkhorn(cost: Any, loop: Callable[..., Any]) -> Any:
    kernel = fnp.exp(-cost)
    u, v = loop(lambda uv: (0.25 / (kernel @ uv[1]), 0.25 / (kernel.T @ (0.25 / (kernel @ uv[1])))),
                (fnp.ones(4, "float64"), fnp.ones(4, "float64")))
    return fnp.sum(u[:, None] * kernel * v * cost)


@pytest.mark.slow
def test_gradient_through_sinkhorn_equals_that_of_the_unrolled_one() -> None:
    cost = np.random.default_rng(0).random((4, 4))
    taken = []

    def until_settled(step: Any, start: Any) -> Any:
        def going(state: Any) -> Any:
            (_, v), (_, before), _ = state
            return fnp.max(fnp.abs(v - before)) > 1e-9
        first = step(start)
        final, _, count = lax.while_loop(going, lambda s: (step(s[0]), s[0], s[2] + 1), (first, start, 1))
        taken.append(count)
        return final

    def unrolled(step: Any, start: Any) -> Any:
        for _ in range(count):
            start = step(start)
        return start

    value = sinkhorn(cost, until_settled)
    count = int(taken[0])
    assert count > 5
    np.testing.assert_allclose(value, sinkhorn(cost, unrolled), rtol=1e-12)
    reference = grad(lambda c: sinkhorn(c, unrolled))(cost)
    np.testing.assert_allclose(grad(lambda c: sinkhorn(c, until_settled))(cost), reference, rtol=1e-12)
    np.testing.assert_allclose(jit(grad(lambda c: sinkhorn(c, until_settled)))(cost), reference, rtol=1e-12)


def adaptive(rate: Any, loop: Callable[..., Any]) -> Any:
    """Heun's method with a step size that follows its error estimate, for y' = -rate * y**2 from 0 to 1."""
    def going(state: Any) -> Any:
        return state[0] < 1.0

    def step(state: Any) -> Any:
        t, y, h = state
        h = fnp.minimum(h, 1.0 - t + 1e-12)
        k1 = -rate * y * y
        k2 = -rate * (y + h * k1) ** 2
        error = fnp.abs(0.5 * h * (k2 - k1)) + 1e-15
        accept = error < 1e-5
        following = h * fnp.clip(0.9 * fnp.sqrt(1e-5 / error), 0.2, 2.0)
        return fnp.where(accept, t + h, t), fnp.where(accept, y + 0.5 * h * (k1 + k2), y), following
    return loop(going, step, (fnp.zeros((), "float64"), fnp.ones((), "float64"), fnp.full((), 0.1, "float64")))[1]


def python_while(going: Any, step: Any, state: Any) -> Any:
    while going(state):
        state = step(state)
    return state


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_solvers_call_linear_functions_with_numbers(dtype: Any) -> None:
    def cube_root(a: Any) -> Any:
        return lax.custom_root(lambda x: x ** 3 - a, a, lambda f, x: lax.fori_loop(
            0, 40, lambda _, x: x - f(x) / (3 * x * x), x), lambda g, y: y / g(1.0))

    def divide(a: Any) -> Any:
        return lax.custom_linear_solve(lambda x: a * x, a * a, lambda g, b: b / g(1), symmetric=True)

    a = dtype(0.7)
    for transformed in (cube_root, grad(cube_root), grad(grad(cube_root)), divide, grad(divide)):
        assert transformed(a).dtype == dtype
        assert jit(transformed)(a).dtype == dtype
    np.testing.assert_allclose(grad(cube_root)(a), a ** (-2 / 3) / 3, rtol=8 * np.finfo(dtype).eps)
    np.testing.assert_allclose(grad(divide)(a), 1.0, rtol=8 * np.finfo(dtype).eps)


@pytest.mark.slow
def test_gradient_through_an_adaptive_solver_equals_that_of_the_unrolled_one() -> None:
    rate = np.float64(3.0)
    reference = grad(lambda r: adaptive(r, python_while))(rate)
    for transform in (grad, lambda f: jit(grad(f))):
        np.testing.assert_allclose(transform(lambda r: adaptive(r, lax.while_loop))(rate), reference, rtol=1e-12)
    np.testing.assert_allclose(reference, -1 / 16, rtol=0.002)  # y(1) = 1 / (1 + rate)


def many_steps(x: Any, steps: Any) -> Any:
    return fnp.sum(lax.while_loop(lambda s: s[0] < steps, lambda s: (s[0] + 1, fnp.sin(s[1]) + 0.1 * s[1]), (0, x))[1])


def test_memory_under_jit_does_not_depend_on_the_number_of_steps() -> None:
    x = np.linspace(0.1, 2.0, 1000)
    compiled = jit(grad(many_steps)).lower(x, np.int32(1)).compile()
    state = x.nbytes
    assert compiled.memory_analysis().temp_size_in_bytes < 200 * state  # 128 states, whatever the number of steps is


@pytest.mark.parametrize("steps", [1, 2, 3, 127, 128, 129, 1000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_gradient_under_jit_with_a_table_of_states(steps: int) -> None:
    x = np.array([0.3, 1.1])
    reference = np.ones(2)
    value = x
    for _ in range(steps):
        reference, value = reference * (np.cos(value) + 0.1), np.sin(value) + 0.1 * value
    np.testing.assert_allclose(jit(grad(many_steps))(x, np.int32(steps)), reference, rtol=5e-12, atol=5e-305)


@pytest.mark.slow
def test_small_tables_of_states_recompute() -> None:
    """More steps than any table walks back in one repetition, with a state so large that the table is small."""
    x = np.full(1 << 19, 0.3)
    result = jit(grad(many_steps))(x, np.int32(200))
    reference, value = 1.0, 0.3
    for _ in range(200):
        reference, value = reference * (np.cos(value) + 0.1), np.sin(value) + 0.1 * value
    np.testing.assert_allclose(result, np.full_like(x, reference), rtol=1e-12, atol=1e-305)


# --- lanes that do not take part --------------------------------------------------------------------------------


def test_no_nan_from_the_branch_not_taken() -> None:
    def safe(x: Any) -> Any:
        return lax.cond(x > 0, lambda x: fnp.sqrt(x), lambda x: 0.0 * x, x)
    x = np.array([4.0, 0.0, -1.0])
    for f in (vmap(grad(safe)), jit(vmap(grad(safe))), grad(lambda x: fnp.sum(vmap(safe)(x)))):
        np.testing.assert_array_equal(f(x), [0.25, 0.0, 0.0])


def test_no_nan_reaches_what_all_lanes_share() -> None:
    def f(w: Any, x: Any) -> Any:
        return lax.cond(x > 0, lambda: fnp.log(w * x), lambda: x * 0.0)
    x = np.array([-1.0, 0.0])
    shared = grad(lambda w: fnp.sum(vmap(lambda one: f(w, one))(x)))(np.float64(2.0))
    np.testing.assert_array_equal(shared, 0.0)


def test_a_lane_that_has_stopped_computes_no_nan() -> None:
    def f(x: Any) -> Any:  # 1 / (x - 3) is infinite where a lane ends
        return lax.while_loop(lambda s: s < 3.0, lambda s: s + 1.0 + 0.0 / (s - 3.0), x)
    x = np.array([0.0, 1.0, 2.0])
    np.testing.assert_allclose(grad(lambda x: fnp.sum(vmap(f)(x)))(x), [1.0, 1.0, 1.0], rtol=1e-12)


def test_a_dead_lane_does_not_keep_a_loop_running() -> None:
    def f(x: Any) -> Any:  # would never end for negative x
        return lax.cond(x > 0, lambda x: lax.while_loop(lambda s: s < 10.0, lambda s: s * 2.0, x), lambda x: x, x)
    np.testing.assert_array_equal(vmap(f)(np.array([3.0, -1.0])), [12.0, -1.0])
    np.testing.assert_array_equal(vmap(f)(np.array([-3.0, -1.0])), [-3.0, -1.0])


TABLE = np.array([2.0, 3.0, 5.0])
DIAGONALS = np.array([0.0, 1.0, 1.0]), np.zeros(3)
RAISING: dict[str, Callable[[Any, Any], Any]] = {
    "gather": lambda k, table: at(table)[k].get(),
    "a later index": lambda k, table: fnp.sin(at(table)[k - 1 + 1].get()),
    "take": lambda k, table: fnp.take(table, fnp.atleast_1d(k)).sum(),
    "scatter": lambda k, table: at(table)[k].set(7.0).sum(),
    "scatter_add": lambda k, table: at(table)[k].add(7.0).prod(),
    "scatter_mul": lambda k, table: at(table)[k].multiply(7.0).sum(),
    "scatter_min": lambda k, table: at(table)[k].min(1.0).sum(),
    "solve": lambda k, table: fnp.linalg.solve(fnp.diag(3.0 - k * fnp.ones(3)), table).sum(),
    "cholesky": lambda k, table: fnp.linalg.cholesky(fnp.diag(3.0 * table - k * table)).sum(),
    "tridiagonal_solve": lambda k, table: lax.linalg.tridiagonal_solve(
        DIAGONALS[0], 3.0 - k * np.ones(3), DIAGONALS[1], table[:, None]).sum(),
    "a call": lambda k, table: jit(lambda k: at(table)[k].get())(k),
    "a branch": lambda k, table: lax.cond(
        k > 0, lambda k: at(table)[k].get(), lambda k: at(table)[k + 1].get(), k),
    "a loop": lambda k, table: lax.fori_loop(0, 2, lambda i, total: total + at(table)[k].get(), 0.0),
}


@pytest.mark.parametrize("name", RAISING)
def test_a_branch_that_no_lane_takes_raises_no_error(name: str) -> None:
    """The condition is the user's guard: without a lane that it lets in, no lane has operands that the branch takes."""
    def guarded(k: Any, table: Any) -> Any:
        return lax.cond(k < 3, lambda k: RAISING[name](k, table), lambda _: 0.5 * table[0], k)

    def slope(k: Any) -> Any:
        return grad(guarded, argnums=1)(k, TABLE)
    for lanes in (np.array([3, 3]), np.array([1, 3]), np.array([0, 2])):
        values = [guarded(k, TABLE) for k in lanes]
        np.testing.assert_allclose(vmap(lambda k: guarded(k, TABLE))(lanes), values, rtol=1e-14)
        slopes = [slope(k) for k in lanes]
        np.testing.assert_allclose(vmap(slope)(lanes), slopes, rtol=1e-13)
        of_all = grad(lambda table, lanes=lanes: vmap(guarded, (0, None))(lanes, table).sum())(TABLE)
        np.testing.assert_allclose(of_all, np.sum(slopes, 0), rtol=1e-13)
    pairs = np.array([[3, 3], [3, 1]])
    found = vmap(vmap(lambda k: guarded(k, TABLE)))(pairs)
    np.testing.assert_allclose(found, [[guarded(k, TABLE) for k in row] for row in pairs], rtol=1e-14)


def test_an_error_of_a_live_lane_is_raised() -> None:
    def f(k: Any) -> Any:
        return lax.cond(k < 9, lambda k: at(TABLE)[k].get(), lambda _: 0.0, k)
    assert vmap(f)(np.array([9, 1])).tolist() == [0.0, 3.0]
    with pytest.raises(IndexError, match=r"index 4 is out of range for axis 0 of size 3; in range are -3 to 2"):
        vmap(f)(np.array([9, 4]))


def test_an_index_that_all_lanes_share_is_guarded_too() -> None:
    def f(k: Any, on: Any) -> Any:
        return lax.cond(on & (k < 3), lambda k: at(TABLE)[k].get(), lambda _: 0.0, k)
    np.testing.assert_array_equal(vmap(f, (None, 0))(5, np.array([True, False])), [0.0, 0.0])


def test_a_dtype_and_weakness_stay_where_no_lane_is_live() -> None:
    def f(k: Any, table: Any) -> Any:
        return lax.cond(k < 3, lambda k: at(table)[k].get(), lambda _: table[0], k)
    for table in (np.arange(3, dtype=np.float32), np.arange(3, dtype=np.int8), fnp.arange(3) * (1 + 2j)):
        for indices in (np.array([3, 3], np.uint8), np.array([3, 3], np.int16)):
            assert vmap(lambda k, table=table: f(k, table))(indices).dtype == table.dtype


@pytest.mark.parametrize("kind", [np.asarray, jax.device_put])
def test_numbers_that_the_function_not_taken_cannot_have_are_no_error_where_the_predicate_is_known(kind: Any) -> None:
    x = kind(X.astype(np.float32))

    def entry(k: int, x: Any) -> Any:
        return lax.cond(k < 3, lambda: x[k], lambda: 0.0)

    for k, value in ((1, X[1]), (4, 0.0)):
        for found in (entry(k, x), jit(entry, static_argnums=0)(k, x)):
            np.testing.assert_array_equal(found, np.float32(value))
        np.testing.assert_array_equal(grad(entry, argnums=1)(k, x), (np.arange(3) == k).astype(np.float32))
    for on in (0, 0.0, np.float32(0), np.array(False), jnp.array(False), jnp.int32(0)):
        np.testing.assert_array_equal(lax.cond(on, lambda: X[7], lambda: X[1]), X[1])
    for place in (np.int8(1), np.uint64(5), jnp.int32(1)):
        np.testing.assert_array_equal(lax.switch(place, [lambda: X[7], lambda: X[1]]), X[1])
    assert lax.switch(2, [lambda: math.sqrt(-1), lambda: X[3], lambda: 1.0 / 4]) == 0.25
    with pytest.raises(KeyError):  # that of a name is none of numbers
        lax.switch(1, [lambda: {}["a"], lambda: 1.0])
    with pytest.raises(ZeroDivisionError):
        lax.switch(5, [lambda: 1.0, lambda: 1.0 / 0])
    with pytest.raises(IndexError, match="0 is out of range"):
        jit(lambda n, x: lax.cond(n > 0, lambda: x[0], lambda: 0.0))(0, kind(np.zeros(0, np.float32)))
    with pytest.raises(ShapeError, match="the shapes must be equal"):
        lax.cond(True, lambda: 0.0, lambda: x)


# --- inputs of every kind -----------------------------------------------------------------------------------


def test_empty_and_scalar_carries() -> None:
    assert lax.scan(lambda c, x: (c, x * 2), None, np.zeros((0, 3)))[1].shape == (0, 3)
    assert lax.scan(lambda c, _: (c + 1, None), 0, length=4)[0] == 4
    assert lax.fori_loop(3, 1, lambda i, c: c * 2, 5.0) == 5.0
    assert lax.while_loop(lambda c: c["n"] < 3, lambda c: {"n": c["n"] + 1}, {"n": 0}) == {"n": 3}


@pytest.mark.parametrize(("lower", "upper", "steps"), [(-100, 100, 200), (5, 3, 0), (100, 127, 27)])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32"])
def test_traced_bounds_of_every_integer_dtype(lower: int, upper: int, steps: int, dtype: str) -> None:
    if lower < 0 and dtype.startswith("u"):
        lower, steps = 0, upper
    bounds = np.array(lower, dtype), np.array(upper, dtype)
    assert jit(lambda a, b: lax.fori_loop(a, b, lambda i, c: c + 1, 0))(*bounds) == steps


def test_a_result_is_no_input_even_without_a_step() -> None:
    x = np.ones(3)
    for result in (lax.fori_loop(0, 0, lambda i, c: c, x), lax.while_loop(lambda c: False, lambda c: c, x),
                   lax.scan(lambda c, _: (c, None), x, length=0)[0], lax.cond(True, lambda c: c, lambda c: c, x)):
        assert not np.shares_memory(result, x)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "bfloat16", "float16", "float64", "complex64"])
def test_carries_keep_their_dtype(dtype: str) -> None:
    x = fnp.ones(3, dtype)
    for result in (lax.fori_loop(0, 2, lambda i, c: c, x), lax.scan(lambda c, y: (c, y), x, x[:, None])[1],
                   lax.cond(x[0] == x[1], lambda c: c, lambda c: c * c, x), jit(lambda x: lax.map(lambda y: y, x))(x)):
        assert result.dtype.name == dtype


def test_weak_scalars_become_what_the_step_makes_of_them() -> None:
    total, _ = lax.scan(lambda c, x: (c + x, None), 0.0, np.arange(3.0))
    assert total.dtype == np.float64
    assert lax.cond(True, lambda: 1.0, lambda: fnp.zeros((), 'bfloat16')).dtype.name == 'bfloat16'
    assert lax.cond(True, lambda: 1, lambda: np.zeros((), "int8")).dtype == np.int8


XS, NARROW = np.arange(3.0), np.arange(3, dtype=np.float32)
# Loops that begin with a number, whose steps call `note`, and how often these are traced.
NUMBERS: dict[str, tuple[Callable[[Any, Callable[[], None]], Any], int]] = {
    "scan": (lambda start, note: lax.scan(
        lambda c, x: (note(), ((c[0] * 2.0 + x, c[1] + 1), c))[1], (start, 1), XS), 1),
    "fori_loop": (lambda start, note: lax.fori_loop(0, 3, lambda i, c: (note(), c * XS[1] + fnp.sum(XS))[1], start), 1),
    "while_loop": (lambda start, note: lax.while_loop(
        lambda c: c[0] < 9.0, lambda c: (note(), (c[0] + fnp.sum(XS), c[1] * 0.5))[1], (start, start)), 1),
    "stays weak": (lambda start, note: lax.fori_loop(0, 3, lambda i, c: (note(), c * 0.5)[1], start), 1),
    "one after the other": (lambda start, note: lax.scan(lambda c, x: (note(), (
        (lax.fori_loop(0, 3, lambda i, s: s * x, c[0]), (c[1][0] + c[0], c[1][1] + 1)), c))[1],
        (start, (start, 1)), XS), 1),
    "selected": (lambda start, note: lax.scan(lambda c, x: (note(), (
        (fnp.where(x > 1.0, c[0], x), fnp.where(c[0] > 0.0, c[1], c[0])), c))[1], (start, start), XS), 1),
    "times a condition": (lambda start, note: lax.scan(
        lambda c, x: (note(), (fnp.where(x > 1.0, c, 1.0) * (x > 0.0) + x, c))[1], start, XS), 1),
    "narrow": (lambda start, note: lax.scan(lambda c, x: (note(), (c + x, c))[1], start, NARROW), 2),
    "narrow and wide": (lambda start, note: lax.scan(
        lambda c, x: (note(), (x + fnp.sum(c * NARROW), c))[1], start, XS), 2),
    "integer": (lambda start, note: lax.scan(
        lambda c, x: (note(), ((x - c[1], c[1] + XS.astype(np.int64)[1]), c))[1], (start, 0), XS), 2),
    "branch": (lambda start, note: lax.scan(
        lambda c, x: (note(), (lax.cond(x > 1, lambda: c * x, lambda: c * 1.0), c))[1], start, XS), 1),
    "branches of numbers": (lambda start, note: lax.scan(lambda c, x: (note(), (
        (x * c[0], lax.cond(x > 1, lambda a: a * 2.0, lambda a: 0.5, c[0])), c))[1], (start, start), XS), 1),
    "constant of a loop": (lambda start, note: lax.scan(lambda c, x: (note(), (
        lax.scan(lambda d, y: (d * y + c, d - c), x, XS)[0], c))[1], start, XS), 1),
    "begins a loop of numbers": (lambda start, note: lax.scan(lambda c, x: (note(), (
        (x * c[0], lax.fori_loop(0, 3, lambda i, d: d * c[1] + 1.0, c[0])), c))[1], (start, start), XS), 1),
    "ends a loop of numbers": (lambda start, note: lax.scan(lambda c, x: (note(), (
        (x * c[0], lax.while_loop(lambda d: d < c[0], lambda d: d + 1.0, 0.0)), c))[1], (start, start), XS), 1),
    "forgotten by a loop": (lambda start, note: lax.scan(lambda c, x: (note(), (
        (x * c[0], lax.fori_loop(0, 3, lambda i, d: 0.5, c[0])), c))[1], (start, start), XS), 1),
    "makes a loop of numbers one of arrays": (lambda start, note: lax.scan(lambda c, x: (note(), (
        (x * c[0], lax.fori_loop(0, 3, lambda i, d: d * c[0], 1.0)), c))[1], (start, start), XS), 2),
    "jitted": (lambda start, note: lax.scan(lambda c, x: (note(), (
        (fxgrad.jit(lambda a: (a * x, a * 2.0))(c[0]), c)))[1], (start, start), XS), 1),
    "kept": (lambda start, note: lax.scan(lambda c, x: (note(), (
        fxgrad.checkpoint(lambda a: fnp.sin(a) * x + c)(c), c))[1], start, XS), 1),
    "narrow in a branch": (lambda start, note: lax.scan(lambda c, x: (note(), (
        lax.cond(x > 1, lambda: fnp.sum(c * NARROW) + x, lambda: c), c))[1], start, XS), 2),
}


@pytest.mark.parametrize("start", [0.1, np.float64(0.1)], ids=["float", "float64"])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_step_that_begins_with_numbers_is_traced_again_only_for_other_operations(
        name: str, start: float, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, times = NUMBERS[name]
    calls: list[None] = []

    def leaves(start: Any) -> list[Any]:
        return fxgrad.tree.leaves(loop(start, lambda: calls.append(None)))

    def derivative(start: Any) -> Any:
        return fxgrad.jvp(leaves, (start,), (1.0,))
    found = leaves(start)
    assert len(calls) == times
    tangents = derivative(start)
    monkeypatch.setattr(bodies, "_of_strong_carry", lambda *_: None)  # then steps are traced until the types stay
    for one, other in zip(found, leaves(start), strict=True):
        assert aval_of(one) == aval_of(other)
        np.testing.assert_array_equal(one, other)
    np.testing.assert_equal(tangents, derivative(start))


def test_closed_over_floats_are_inputs_of_the_program() -> None:
    def f(x: Any, scale: float) -> Any:
        return fnp.sum(lax.scan(lambda c, y: (c * scale + y, None), x[0], x)[0])
    x = np.arange(3.0)
    for scale in (0.5, 2.0):
        np.testing.assert_allclose(grad(f)(x, scale), [scale ** 3 + scale ** 2, scale, 1.0], rtol=1e-12)


def test_a_loop_on_jax_arrays_is_compiled_once() -> None:
    def loop(x: Any) -> Any:
        return lax.while_loop(lambda c: c < 5.0, lambda c: c * 2.0, x)
    with jax.log_compiles(True), warnings.catch_warnings():
        first = compilations(lambda: loop(jnp.float32(1.0)))
        assert compilations(lambda: loop(jnp.float32(3.0))) == 0 < first


def compilations(call: Callable[[], Any]) -> int:
    """How often XLA compiled during a call."""
    count = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger("jax"), "handlers", [])
        handler = logging.Handler()
        handler.emit = lambda record: count.append(1) if "Compiling" in record.getMessage() else None  # type: ignore[method-assign]
        logging.getLogger("jax").addHandler(handler)
        call()
    return len(count)


# --- what a scan keeps ------------------------------------------------------------------------------------------


def stacked_bytes(f: Callable[..., Any], *args: Any) -> int:
    """The bytes that the forward scan of the gradient program stacks for the backward one."""
    program = fxgrad.make_program(grad(f))(*args)
    forward = next(equation for equation in program.equations if equation.primitive.name == "scan")
    return sum(var.aval.nbytes for var in forward.outputs[forward.params["num_carry"]:])


def test_nothing_cheap_or_constant_is_stacked() -> None:
    x, w = np.linspace(0.0, 1.0, 10), np.eye(10)

    def f(x: Any, w: Any) -> Any:
        def step(h: Any, _: Any) -> Any:
            weights = fnp.exp(w) / fnp.sum(fnp.exp(w))
            return fnp.tanh(fnp.sin(fnp.cos(weights @ h))), None
        return fnp.sum(lax.scan(step, x, None, length=7)[0])
    assert stacked_bytes(f, x, w) == 7 * x.nbytes  # the carry alone


def test_large_products_are_kept() -> None:
    x = np.full((200, 200), 0.01)

    def f(xw: Any) -> Any:
        return fnp.sum(lax.scan(lambda h, _: (fnp.tanh(fnp.sin(h @ xw[1])), None), xw[0], None, length=3)[0])
    assert stacked_bytes(f, (x, x)) == 3 * 2 * x.nbytes  # the carry, and the product


@pytest.mark.parametrize("function", [
    lambda x, y: lax.cond(x < 2, lambda x, y: (2 * x, y), lambda x, y: (3 * x, y), x, y),
    lambda x, y: lax.switch(fnp.astype(x, int), [lambda x, y: (2 * x, y), lambda x, y: (x + y, y)], x, y),
    lambda x, y: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + c[1], c[1]), (x, y)),
    lambda x, y: lax.fori_loop(0, fnp.astype(x, int), lambda i, c: (c[0] + c[1], c[1]), (x, y)),
    lambda x, y: lax.scan(lambda c, _: ((c[0] + c[1], c[1]), None), (x, y), None, length=3)[0]],
    ids=["cond", "switch", "while_loop", "fori_loop", "scan"])
def test_what_is_passed_on_is_the_same_for_all_lanes(function: Any) -> None:
    x, y = np.arange(4.0), np.array(3.0)
    mapped = vmap(function, (0, None), (0, None))
    first, second = mapped(x, y)
    np.testing.assert_array_equal(first, [function(each, y)[0] for each in x])
    np.testing.assert_array_equal(second, y)
    gradient = grad(lambda y: fnp.sum(mapped(x, y)[0]) + 5.0 * mapped(x, y)[1])(y)
    np.testing.assert_allclose(gradient, grad(lambda y: sum(function(each, y)[0] for each in x) + 5.0 * y)(y),
                               rtol=1e-12)
    np.testing.assert_allclose(fxgrad.jit(mapped)(x, y)[0], first, rtol=1e-12)


def test_zeros_are_not_propagated_through_counters() -> None:
    tangent = fxgrad.make_program(lambda x: fxgrad.jvp(lambda x: lax.fori_loop(0, 3, lambda i, c: c * 2.0, x),
                                                       (x,), (x,)), as_recorded=True)(1.0)
    scan = next(equation for equation in tangent.equations if equation.primitive.name == "scan")
    assert len(scan.outputs) == 3  # the counter, the value, the value's tangent
    assert jnp.ndim(tangent(1.0)[0]) == 0


@pytest.mark.parametrize("count", [np.int64(-5), np.int32(-2**31), np.int64(-2**40), np.int8(-128), np.int32(0),
                                   np.uint8(200), np.int16(3)])
def test_loops_of_a_traced_length_below_zero_take_no_turn(count: Any) -> None:
    def looped(x: Any, n: Any) -> Any:
        return lax.fori_loop(0, n, lambda i, y: np.sin(y) * x + i, x)

    def unrolled(x: Any) -> Any:
        y = x
        for turn in range(int(count)):
            y = np.sin(y) * x + turn
        return y

    for run in (fxgrad.jit, fxgrad.vmap):
        given = (np.asarray(0.7), count) if run is fxgrad.jit else (np.full(2, 0.7), np.stack([count, 0 * count]))
        values, slopes = (np.ravel(run(of)(*given))[0] for of in (looped, fxgrad.grad(looped)))
        np.testing.assert_allclose(values, unrolled(0.7), rtol=1e-12)
        np.testing.assert_allclose(slopes, fxgrad.grad(unrolled)(0.7), rtol=1e-12)
    assert "for(i64(n)," in str(fxgrad.make_program(looped)(0.7, 3))


def test_each_function_of_a_condition_may_have_its_own_operand() -> None:
    def chosen(base: Any, x: Any) -> Any:
        return base.lax.cond(x[0] > 0, {"x": x}, lambda d: d["x"] * d["x"], 3.0 * x, lambda y: y)
    for x in (X, -X):
        slope = jax.jacrev(functools.partial(chosen, jax))(x)
        for transform in (jacrev, jacfwd, lambda f: jit(jacrev(f))):
            np.testing.assert_allclose(transform(functools.partial(chosen, fxgrad))(x), slope, rtol=1e-6)
        np.testing.assert_allclose(chosen(fxgrad, x), chosen(jax, x), rtol=1e-6)
    np.testing.assert_array_equal(vmap(functools.partial(chosen, fxgrad))(BATCH), [chosen(fxgrad, x) for x in BATCH])
    with pytest.raises(ArgumentError, match="cond: true_fun is a tuple, where a function is needed"):
        lax.cond(True, (1.0,), lambda x: x, lambda x: x)
