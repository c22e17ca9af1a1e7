"""Gradients within a budget of memory: equal to those without, within it, in NumPy and in what XLA allocates."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.rematerialization.plans import plans_for
from fxgrad.engine.units import bytes_text, parse_bytes

RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape) / 8


def mlp(ws: Any, x: Any) -> Any:
    for first, second in ws:
        x = x + fnp.tanh(x @ first) @ second
    return fnp.sum(x * x)


def recurrent(p: Any, xs: Any) -> Any:
    w, h = p

    def step(h: Any, x: Any) -> Any:
        h = fnp.tanh(h @ w + x)
        return h, fnp.sum(h)

    h, sums = fxgrad.scan(step, h, xs)
    return fnp.sum(h) + fnp.sum(sums ** 2)


def backwards(p: Any, xs: Any) -> Any:
    w, h = p

    def step(carry: Any, x: Any) -> Any:
        h, count = carry
        h = fnp.sin(h @ w) + x
        return (h, count + 1), h

    (h, _), ys = fxgrad.lax.scan(step, (h, 0), xs, reverse=True)
    return fnp.sum(h) + fnp.sum(ys ** 3)


def mixture(p: Any, x: Any) -> Any:
    @fxgrad.jit
    def half(w: Any, x: Any) -> Any:
        return fxgrad.nn.softmax(x @ w) * fnp.exp(-x)

    @fxgrad.custom_vjp
    def own(x: Any) -> Any:
        return fnp.sin(x)

    own.defvjp(lambda x: (fnp.sin(x), x), lambda x, g: (g * fnp.cos(x),))
    for w in p["ws"]:
        with fxgrad.named_scope("layer"):
            y = half(w, x)
            x = own(y) + fxgrad.cond(fnp.sum(x) > 0, fnp.sin, fnp.cos, x)
            x, extra = fnp.sort(x, axis=0), fnp.argmax(x)
    return fnp.mean(x) * p["scale"] + extra * 0


def drawn_mlp(depth: int = 6) -> tuple[Any, Any]:
    return [(drawn(16, 64), drawn(64, 16)) for _ in range(depth)], drawn(128, 16)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mlp": (mlp, drawn_mlp()),
    "scan": (recurrent, ((drawn(8, 8), drawn(32, 8)), drawn(60, 32, 8))),
    "scan of a prime number of steps": (recurrent, ((drawn(8, 8), drawn(32, 8)), drawn(53, 8))),
    "scan in reverse, with a counter": (backwards, ((drawn(8, 8), drawn(32, 8)), drawn(36, 32, 8))),
    "calls, rules, branches": (mixture, ({"ws": [drawn(16, 16) for _ in range(3)], "scale": 2.0}, drawn(64, 16))),
}


def plans_of(name: str) -> Any:
    function, args = CASES[name]
    program = fxgrad.make_program(function)(*args)
    return plans_for(program, (True,) * len(program.inputs))


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.slow) for name in CASES])
def test_gradients_within_a_budget_are_equal_to_those_without(name: str) -> None:
    function, args = CASES[name]
    expected = fxgrad.value_and_grad(function, (0, 1))(*args)
    points = fxgrad.budget_curve(function, (0, 1))(*args).points
    assert points[-1].peak < 0.85 * points[0].peak
    budgets = [bytes_text(point.peak, up=True) for point in (points[0], points[len(points) // 2], points[-1])]
    for budget in budgets:
        found = fxgrad.value_and_grad(function, (0, 1), memory_budget=budget)(*args)
        jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=2e-12, atol=2e-15), found, expected)
    compiled = fxgrad.jit(fxgrad.value_and_grad(function, (0, 1), memory_budget=budgets[-1]))(*args)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13), compiled, expected)


def test_short_loops_within_a_budget() -> None:
    for steps in (1, 3, 4, 5):
        args = (drawn(8, 8), drawn(32, 8)), drawn(steps, 32, 8)
        least = fxgrad.budget_curve(recurrent)(*args).points[-1].peak
        found, expected = fxgrad.grad(recurrent, memory_budget=least)(*args), fxgrad.grad(recurrent)(*args)
        jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-12), found, expected)


def test_loops_in_chunks_and_a_rest() -> None:
    args = (drawn(4, 4), drawn(8, 4)), drawn(23, 8, 4)
    points = fxgrad.budget_curve(backwards)(*args).points
    assert points[-1].peak < points[0].peak
    found = fxgrad.grad(backwards, memory_budget=points[-1].peak)(*args)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-12), found,
                 fxgrad.grad(backwards)(*args))


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_errors_of_checks_count_the_turns_through_chunks(reverse: bool) -> None:
    def quotients(p: Any, xs: Any) -> Any:
        w, h = p

        def step(h: Any, x: Any) -> Any:
            h = fnp.sin(h @ w) / x
            return h, h

        h, ys = fxgrad.lax.scan(step, h, xs, reverse=reverse)
        return fnp.sum(h) + fnp.sum(ys ** 3)

    p, xs = (drawn(4, 4), drawn(8, 4)), drawn(23, 8, 4)
    least = fxgrad.budget_curve(quotients)(p, xs).points[-1].peak
    gradient = fxgrad.checked(fxgrad.grad(quotients, memory_budget=least), "div")
    assert "turns=" in str(fxgrad.make_program(gradient)(p, xs))
    for turn in (0, 13, 22):
        bad = xs.copy()
        bad[turn, 0, 0] = 0.0
        for function in (gradient, fxgrad.jit(gradient)):
            with pytest.raises(fxgrad.errors.CheckError, match=f"in turn {turn} of 23 of a scan$") as found:
                function(p, bad)
            assert str(found.value).count("in turn") == 1


@pytest.mark.slow
def test_plans_take_less_memory_for_more_work() -> None:
    points = fxgrad.budget_curve(mlp)(*drawn_mlp(12)).points
    assert [point.peak for point in points] == sorted((point.peak for point in points), reverse=True)
    assert [point.work for point in points] == sorted(point.work for point in points)
    assert points[0].work == points[0].blocks == 0
    assert len(points) > 6
    assert points[-1].peak < 0.25 * points[0].peak
    quarter = next(point for point in points if point.peak < 0.4 * points[0].peak)
    assert quarter.work < 0.2  # of 1/6 for all hidden layers


@pytest.mark.slow
def test_in_numpy_no_more_is_alive_than_the_budget_says() -> None:
    weights, x = drawn_mlp(12)
    x = np.tile(x, (16, 1))
    peaks = {}
    results = sum(each.nbytes for each in jax.tree.leaves(weights))
    for budget in (None, 6_000_000):
        gradient = fxgrad.grad(mlp, memory_budget=budget)
        gradient(weights, x)
        tracemalloc.start()
        gradient(weights, x)
        peaks[budget] = tracemalloc.get_traced_memory()[1] - results
        tracemalloc.stop()
    assert peaks[6_000_000] < 6_500_000 < 0.5 * peaks[None]


def temporary(function: Callable[..., Any], *args: Any) -> int:
    found: int = fxgrad.jit(function).lower(*args).compile().memory_analysis().temp_size_in_bytes
    return found


@pytest.mark.slow
def test_what_is_computed_again_survives_the_compiler() -> None:
    weights, x = drawn_mlp(12)
    x = np.tile(x, (4, 1))
    without = temporary(fxgrad.grad(mlp), weights, x)
    points = fxgrad.budget_curve(mlp)(weights, x).points
    assert temporary(fxgrad.grad(mlp, memory_budget=points[-1].peak), weights, x) < 0.4 * without

    def blocks(ws: Any, x: Any) -> Any:
        block = fxgrad.checkpoint(lambda w, x: x + fnp.tanh(x @ w[0]) @ w[1])
        for w in ws:
            x = block(w, x)
        return fnp.sum(x * x)

    assert temporary(fxgrad.grad(blocks), weights, x) < 0.4 * without


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex128", "float64"])
@pytest.mark.parametrize("shape", [(3, 4), (0, 4), ()])
@pytest.mark.slow
def test_second_computations_of_every_dtype(dtype: str, shape: tuple[int, ...]) -> None:
    x = fnp.asarray(RNG.normal(size=shape), dtype=dtype)
    block = fxgrad.checkpoint(lambda x: fnp.sin(fnp.sin(x)))
    plain = fxgrad.grad(lambda x: fnp.sum(fnp.real(fnp.sin(fnp.sin(fnp.sin(fnp.sin(x)))))))(x)
    again = fxgrad.jit(fxgrad.grad(lambda x: fnp.sum(fnp.real(block(block(x))))))(x)
    assert again.dtype == plain.dtype
    assert again.shape == plain.shape
    np.testing.assert_allclose(np.asarray(again, np.complex128), np.asarray(plain, np.complex128),
                               rtol=0.02 if dtype == "bfloat16" else 1e-6)


@pytest.mark.slow
def test_keys_and_masks_are_computed_again_alike() -> None:
    def dropped(x: Any, key: Any) -> Any:
        return fnp.sin(fnp.where(fxgrad.random.bernoulli(key, 0.5, x.shape), 2 * x, 0.0))

    def loss(block: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, key: fnp.sum(block(block(x, key), fxgrad.random.fold_in(key, 1)))

    x, key = drawn(8, 8), fxgrad.random.key(0)
    expected = fxgrad.grad(loss(dropped))(x, key)
    for found in (fxgrad.jit(fxgrad.grad(loss(fxgrad.checkpoint(dropped))))(x, key),
                  fxgrad.grad(loss(dropped), memory_budget="1 MiB")(x, key)):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.slow
def test_budgets_under_other_transformations() -> None:
    weights, x = drawn_mlp(3)
    budget = fxgrad.budget_curve(mlp, (0, 1))(weights, x).points[-1].peak
    plain, planned = fxgrad.grad(mlp, 1), fxgrad.grad(mlp, 1, memory_budget=budget)
    block = fxgrad.checkpoint(mlp, budget=budget)
    vectors = drawn(2, *x.shape)
    close = {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(fxgrad.vmap(planned, (None, 0))(weights, vectors),
                               fxgrad.vmap(plain, (None, 0))(weights, vectors), **close)
    for function in (planned, fxgrad.grad(block, 1)):
        np.testing.assert_allclose(fxgrad.jvp(lambda x, f=function: f(weights, x), (x,), (vectors[0],))[1],
                                   fxgrad.jvp(lambda x: plain(weights, x), (x,), (vectors[0],))[1], **close)
        twice = fxgrad.grad(lambda x, f=function: fnp.sum(f(weights, x) ** 2))
        np.testing.assert_allclose(twice(x), fxgrad.grad(lambda x: fnp.sum(plain(weights, x) ** 2))(x), **close)
    value, pullback = fxgrad.vjp(mlp, weights, x, memory_budget=budget)
    np.testing.assert_allclose(pullback(1.0)[1], plain(weights, x), **close)
    np.testing.assert_allclose(value, mlp(weights, x), **close)
    found = fxgrad.grad(lambda w, x: (mlp(w, x), {"note": "text", "x": x}), 1, has_aux=True, memory_budget=budget)
    gradient, aux = found(weights, x)
    np.testing.assert_allclose(gradient, plain(weights, x), **close)
    assert aux["note"] == "text"


def test_a_program_within_a_budget_is_printed_and_read_back() -> None:
    program = fxgrad.make_program(fxgrad.checkpoint(mlp, budget="2 MiB"))(*drawn_mlp(1))
    assert "within_budget(mlp)" in str(program)
    assert "budget=2097152" in str(program)
    args = jax.tree.leaves(drawn_mlp(1))
    np.testing.assert_array_equal(fxgrad.parse(str(program))(*args), mlp([args[:2]], args[2]))


def test_the_curve_prints() -> None:
    curve = fxgrad.budget_curve(mlp)(*drawn_mlp(2))
    text = str(curve)
    assert "memory of the gradient of mlp" in text
    assert "100 %" in text
    assert "0.0 %" in text
    bars = [line.count("█") for line in text.splitlines() if " % " in line]
    assert 0 < curve.points[-1].work < 1  # the forward pass is less than all of the gradient
    parts = [point.peak for point in curve.points]
    assert bars == [round(30 * part / parts[0]) for part in parts]


def test_budgets_that_no_plan_is_within() -> None:
    weights, x = drawn_mlp(2)
    curve = fxgrad.budget_curve(mlp, (0, 1))(weights, x).points
    with pytest.raises(fxgrad.errors.ArgumentError) as raised:
        fxgrad.grad(mlp, (0, 1), memory_budget=100)(weights, x)
    least = bytes_text(curve[-1].peak)
    assert str(raised.value).split("\n")[0] == (
        f"mlp cannot be differentiated within 100 B: the least that is found is {least}, of "
        f"{bytes_text(curve[0].peak)} without a budget. Pass at least '{bytes_text(curve[-1].peak, up=True)}', give "
        "the function smaller pieces of its batch, or look at fxgrad.budget_curve(mlp)(...)")
    assert "test_budgets.py" in str(raised.value)


@pytest.mark.parametrize("wrong", ["12 parsecs", "MiB", "-3 MB", -1, True, float("inf"), None, [1]])
def test_budgets_that_are_no_bytes(wrong: Any) -> None:
    with pytest.raises(fxgrad.errors.ArgumentError) as raised:
        parse_bytes("grad: memory_budget", wrong)
    assert str(raised.value).split("\n")[0] == (
        f"grad: memory_budget is {wrong!r}, where a number of bytes is needed, at least 0, or text such as '512 MiB' "
        "or '1.5 GB' (units are B, kB, MB, GB, TB and KiB, MiB, GiB, TiB)")


def test_a_budget_and_a_policy() -> None:
    with pytest.raises(fxgrad.errors.ArgumentError) as raised:
        fxgrad.checkpoint(mlp, policy=fxgrad.checkpoint_policies.dots_saveable, budget="1 GB")
    assert str(raised.value).split("\n")[0] == (
        "checkpoint: policy and budget both select what is saved; pass one of them, such as budget='512 MiB'")


def test_sizes_as_people_write_them() -> None:
    assert [parse_bytes("budget", text) for text in ("12", "12B", "1 kB", "1KB", "1KiB", ".5 MiB", "1e3 MB", 7.9)] == [
        12, 12, 1000, 1000, 1024, 524288, 10**9, 7]
    assert [bytes_text(number) for number in (0, 1, 999, 1024, 123456, 10**12)] == [
        "0 B", "1 B", "999 B", "1 KiB", "121 KiB", "931 GiB"]
    assert parse_bytes("budget", bytes_text(123_457, up=True)) >= 123_457
