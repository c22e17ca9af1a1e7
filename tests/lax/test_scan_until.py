"""`scan` with `until`, which takes no step once a condition holds, against the loop written in Python."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax
from fxgrad.errors import DTypeError, ShapeError
from fxgrad.testing import check_grads

LENGTHS = (0, 1, 5, 12, 101, 120)
LIMITS = (0.0, 1.6, 1e9)
"""Before the first step, in between, never."""


def step(carry: Any, x: Any) -> Any:
    return carry * x + 1, carry


def ours(xs: Any, limit: Any, reverse: bool = False) -> Any:
    return lax.scan(step, 1.0, xs, reverse=reverse, until=lambda carry: carry > limit)


def by_hand(xs: np.ndarray, limit: float, reverse: bool = False) -> tuple[Any, np.ndarray, int]:
    carry, ys, count = xs.dtype.type(1), np.zeros_like(xs), 0
    for place in range(len(xs))[::-1] if reverse else range(len(xs)):
        if carry > limit:
            break
        carry, ys[place] = step(carry, xs[place])
        count += 1
    return carry, ys, count


def assert_same(found: Any, expected: Any, tolerance: float = 0.0) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_it_is_the_loop_written_in_python(length: int, reverse: bool, dtype: str) -> None:
    xs = np.linspace(0.1, 0.9, length, dtype=dtype)
    jitted = fxgrad.jit(ours, static_argnums=2)
    for limit in LIMITS:
        found = ours(xs, limit, reverse)
        assert_same(found, by_hand(xs, limit, reverse))
        assert (found[0].dtype, found[1].dtype, found[2].dtype) == (dtype, dtype, "int32")
        assert_same(jitted(xs, np.asarray(limit, dtype), reverse), found, 1e-6 if dtype == "float32" else 1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [5, 12, 19])
def test_derivatives_are_those_of_the_steps_taken(length: int, reverse: bool) -> None:
    xs = np.linspace(0.1, 0.9, length)
    for limit in LIMITS:
        def loss(xs: Any, limit: float = limit) -> Any:
            carry, ys, _ = ours(xs, limit, reverse)
            return carry ** 2 + fnp.sum(fnp.sin(ys))
        check_grads(loss, (xs,), order=2)
        check_grads(fxgrad.jit(loss), (xs,), order=1)


@pytest.mark.slow
def test_every_entry_of_a_batch_stops_by_itself() -> None:
    xs, limits = np.linspace(0.1, 0.9, 19), np.array([0.0, 1.3, 1.6, 1e9])
    expected = [by_hand(xs, limit) for limit in limits]
    assert len({each[2] for each in expected}) == 4
    batched = fxgrad.vmap(ours, (None, 0))
    for function in (batched, fxgrad.jit(batched)):
        assert_same(function(xs, limits), map(np.stack, zip(*expected, strict=True)), 1e-14)

    def loss(xs: Any, limit: Any) -> Any:
        return fnp.sum(ours(xs, limit)[1])
    slopes = fxgrad.vmap(fxgrad.grad(loss), (None, 0))(xs, limits)
    np.testing.assert_allclose(slopes, [fxgrad.grad(loss)(xs, limit) for limit in limits], rtol=1e-14)


def test_steps_that_are_not_taken_reach_no_result_and_no_derivative() -> None:
    def roots(start: Any) -> Any:
        def halve(carry: Any, _: Any) -> Any:
            return {"x": carry["x"] - 1.0, "turns": carry["turns"] + 1}, fnp.sqrt(carry["x"])
        carry, ys, count = lax.scan(halve, {"x": start, "turns": 0}, length=9, until=lambda carry: carry["x"] <= 0.5)
        assert ys.shape == (9,)
        return fnp.sum(ys), (carry["turns"], count)
    (value, (turns, count)), slope = fxgrad.value_and_grad(roots, has_aux=True)(3.7)
    taken = np.array([3.7, 2.7, 1.7, 0.7])
    assert (int(turns), int(count)) == (4, 4)
    np.testing.assert_allclose([value, slope], [np.sqrt(taken).sum(), (0.5 / np.sqrt(taken)).sum()], rtol=1e-12)
    slopes = fxgrad.jit(fxgrad.vmap(fxgrad.grad(lambda start: roots(start)[0])))(np.array([3.7, 0.7, 0.2]))
    np.testing.assert_allclose(slopes, [slope, 0.5 / np.sqrt(0.7), 0.0], rtol=1e-12)


def test_what_is_left_out_is_not_computed() -> None:
    met = []

    def noted(carry: Any, _: Any) -> Any:
        fxgrad.debug.callback(lambda value: met.append(float(value)), carry)
        return carry + 1, None
    lax.scan(noted, 0.0, length=100, until=lambda carry: carry >= 3)
    assert met == [0.0, 1.0, 2.0]


def test_a_condition_that_is_no_bool_is_refused() -> None:
    def go(until: Any) -> Any:
        return lax.scan(step, 1.0, np.ones(3), until=until)

    def number(carry: Any) -> Any:
        return carry - 1.0

    def many(carry: Any) -> Any:
        return fnp.stack([carry, carry]) > 0
    with pytest.raises(DTypeError, match=re.escape(
            "scan: number must return a bool, got f64[]. Compare it, for example with != 0\n  at test_scan_until")):
        go(number)
    with pytest.raises(ShapeError, match=re.escape(
            "scan: many must return one bool, got bool[2]. Reduce it, for example with fnp.all or fnp.any\n  at ")):
        go(many)
    with pytest.raises(fxgrad.errors.ArgumentError, match=re.escape(
            "scan: until is a bool, where a function is needed. Pass the function itself: scan(..., until=f), not the "
            "value f(x)\n  at test_scan_until.py:")):
        go(True)
