"""Loss scaling: gradients that float16 loses come back, steps that overflow are left out, under `jit` and in loops."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import loss_scaling
from fxgrad.errors import ArgumentError, TreeError
from tests.support.worked import example

F32 = np.dtype(np.float32)
SLOPES = np.geomspace(1e-11, 2.9e-8, 40).astype("f")  # float16 rounds each of them to 0


def half_loss(w: Any) -> Any:
    """A sum whose slopes go through float16 on their way back."""
    passed = w.astype(np.float16) * np.float16(1.0)
    return np.sum(passed.astype(np.float32) * SLOPES)


def test_gradients_that_vanish_in_float16_come_back() -> None:
    w = np.ones(40, np.float32)
    assert not fxgrad.grad(half_loss)(w).any()
    for scale in (loss_scaling.Static(2.0**30), loss_scaling.Dynamic(2.0**30)):
        value, gradients, finite, _ = loss_scaling.value_and_grad(half_loss)(scale, w)
        assert finite
        assert value == half_loss(w)
        np.testing.assert_allclose(gradients, SLOPES, rtol=1e-3)  # float16 has 11 bits


def test_autocast_to_float16_needs_it() -> None:
    x = np.eye(3, dtype=np.float32)

    def loss(w: Any) -> Any:
        return np.sum((x @ w) * np.float32(1e-9))

    w = np.ones((3, 2), np.float32)
    cast = fxgrad.autocast(loss, fxgrad.autocast_policies.float16)
    # The product is followed by its factor of 1e-9, which is 0 in float16: that part is kept out of half precision.
    careful = fxgrad.autocast(loss, fxgrad.autocast_policies.float16.with_(full=["mul"]))
    assert not fxgrad.grad(cast)(w).any()
    assert not fxgrad.grad(careful)(w).any()
    gradients = loss_scaling.value_and_grad(careful)(loss_scaling.Static(2.0**24), w).gradients
    np.testing.assert_allclose(gradients, np.full((3, 2), 1e-9), rtol=1e-3)


def test_gradients_of_half_precision_are_unscaled_in_float32() -> None:
    state = loss_scaling.Static(2.0**20)
    half = np.array([2.0**-6], np.float16)
    unscaled = state.unscale({"w": half, "count": np.array(3)})
    assert unscaled["w"].dtype == F32
    assert unscaled["w"] == 2.0**-26  # less than float16 has
    assert unscaled["count"] == 3
    assert state.scale(np.float16(3.0)) == 3 * 2.0**20  # more than float16 has


def test_a_step_with_an_infinity_is_left_out_and_the_scale_halved() -> None:
    def loss(w: Any) -> Any:
        return np.sum((w.astype(np.float16) * np.float16(100.0)).astype(np.float32))

    @fxgrad.jit
    def step(w: Any, scale: Any) -> Any:
        result = loss_scaling.value_and_grad(loss)(scale, w)
        return loss_scaling.select(result.finite, w - result.gradients, w), result.loss_scale, result.finite

    w, scale = np.zeros(2, np.float32), loss_scaling.Dynamic(2.0**12, growth_interval=2)
    seen = []
    for _ in range(6):
        w, scale, finite = step(w, scale)
        seen.append((bool(finite), float(scale.value), int(scale.good_steps), float(w[0])))
    # 100 times 2^10 is more than float16 has
    assert seen == [(False, 2.0**11, 0, 0.0), (False, 2.0**10, 0, 0.0), (False, 2.0**9, 0, 0.0),
                    (True, 2.0**9, 1, -100.0), (True, 2.0**10, 0, -200.0), (False, 2.0**9, 0, -200.0)]


def test_states_go_through_loops() -> None:
    def step(scale: Any, finite: Any) -> Any:
        return scale.adjust(finite), scale.value

    start = loss_scaling.Dynamic(8.0, growth_interval=2, smallest=2.0)
    end, values = fxgrad.lax.scan(step, start, np.array([True, True, False, False, False, False]))
    assert values.tolist() == [8.0, 8.0, 16.0, 8.0, 4.0, 2.0]
    assert (end.value, end.value.dtype, end.good_steps.dtype, end.growth_interval) == (2.0, F32, np.int32, 2)
    largest = loss_scaling.Dynamic(2.0**127, growth_interval=1).adjust(True)
    assert (largest.value, largest.good_steps) == (2.0**127, 0)  # there is no number twice as large


def test_several_arguments_and_further_results() -> None:
    def loss(a: Any, b: Any) -> Any:
        return np.sum(a["x"] * b), {"seen": a["x"] + 1}

    a, b = {"x": np.ones(2, np.float32)}, np.full(2, 3, np.float32)
    result = loss_scaling.value_and_grad(loss, argnums=(0, 1), has_aux=True)(loss_scaling.Static(4.0), a, b)
    value, aux = result.value
    assert (value, aux["seen"].tolist()) == (6.0, [2.0, 2.0])
    assert result.gradients[0]["x"].tolist() == [3.0, 3.0]
    assert result.gradients[1].tolist() == [1.0, 1.0]


def test_what_is_no_scale_is_refused() -> None:
    for call, message in (
            (lambda: loss_scaling.Static(0.0), ("loss_scaling.Static: the number is 0.0, where one above 0 is needed, "
             "such as 2.0**15")),
            (lambda: loss_scaling.Dynamic(growth_interval=0), ("loss_scaling.Dynamic: growth_interval is 0, "
             "where an integer of at least 1 is needed")),
            (lambda: loss_scaling.Dynamic(growth_interval=2.5), ("loss_scaling.Dynamic: growth_interval is 2.5, where "
             "an integer of at least 1 is needed")),
            (lambda: loss_scaling.Dynamic(backoff_factor="half"), ("loss_scaling.Dynamic: backoff_factor is 'half', "
             "where a number up to 1 is needed")),
            (lambda: loss_scaling.Dynamic(np.ones(2)), ("loss_scaling.Dynamic: the number has the shape (2,), where "
             "one number is needed, such as 2.0**15")),
            (lambda: loss_scaling.Dynamic().adjust(np.isfinite(SLOPES)), ("loss_scaling.Dynamic.adjust: finite has the "
             "shape (40,), where one bool is needed: fxgrad.loss_scaling.all_finite(gradients)")),
            (lambda: loss_scaling.value_and_grad(vector)(loss_scaling.Static(), SLOPES), ("value_and_grad needs a "
             "function with a scalar output, and vector returned f32[40]. Sum or average it, value_and_grad(lambda x: "
             "np.sum(vector(x))), or use jacrev for all derivatives")),
            (lambda: loss_scaling.value_and_grad(half_loss)(SLOPES), ("loss_scaling.value_and_grad: the first argument "
             "is a ndarray, where a loss scale is needed, such as fxgrad.loss_scaling.Dynamic()"))):
        with pytest.raises(ArgumentError) as raised:
            call()
        text, place = str(raised.value).split("\n")
        assert text == message
        assert re.fullmatch(r"  at test_loss_scaling\.py:\d+ \(in .*\)", place)  # not in the method of a dataclass


def vector(w: Any) -> Any:
    return w * 2


def test_containers_that_differ_are_refused() -> None:
    with pytest.raises(TreeError) as raised:
        loss_scaling.select(True, {"a": SLOPES}, {"b": SLOPES})
    assert str(raised.value).split("\n")[0] == (
        "loss_scaling.select: new is PyTreeDef({'a': *}), and old is PyTreeDef({'b': *}), where equal containers are "
        "needed. Write select(finite, (params_after, state_after), (params, state))")


@pytest.mark.slow
def test_row_m8_the_curve_of_bfloat16_is_that_of_float32() -> None:
    module = example("mixed_precision")
    full, _ = module.train(120)
    half, _ = module.train(120, fxgrad.autocast_policies.bfloat16)
    full, half = np.array(full), np.array(half)
    assert full[-20:].mean() < 0.6 * full[0]
    assert np.abs(half / full - 1).max() < 0.01
    assert np.abs(half / full - 1).max() > 1e-5  # it is not the same computation


@pytest.mark.slow
def test_row_m9_float16_trains_with_a_scale_that_comes_down() -> None:
    module = example("mixed_precision")
    losses, scale = module.train(60, fxgrad.autocast_policies.float16, loss_scaling.Dynamic(2.0**24))
    assert np.mean(losses[-10:]) < 0.6 * losses[0]
    assert 2.0**10 < scale < 2.0**24
