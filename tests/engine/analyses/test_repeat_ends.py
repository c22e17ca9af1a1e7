"""Partial copies at the ends of loops are taken along: nobody uses what they compute in addition."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from support.repeated_models import models

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.frontend.calling import trace_call
from fxgrad.engine.higher_order.rolling import merge_equal_numbers, roll_where_it_pays

X = np.linspace(0.25, 1.0, 4)


def rolled(function: Any, *args: Any) -> tuple[Any, list[Any], list[Any]]:
    """The program that `jit` compiles, and its results beside those of the program that was traced."""
    traced, _, _ = trace_call("test", function, args, {})
    values = [*traced.captured, *fxgrad.tree_util.tree_leaves(args)]
    merged, captured = merge_equal_numbers(traced.program, traced.captured)
    program = roll_where_it_pays(merged).check()
    found = numpy_executor.call(program, [*captured, *values[len(traced.captured):]])
    return program, found, numpy_executor.call(traced.program, values)


def lengths(program: Any) -> list[int]:
    return [equation.params["length"] for equation in program.equations if str(equation.primitive) == "scan"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expected"), [
    ("stacked MLP", [24, 24]), ("ODE", [24, 24]), ("Adam", [24, 24]), ("RNN", [24, 24])])
def test_loops_of_gradients_take_the_first_and_the_last_copy_along(name: str, expected: list[int]) -> None:
    model = models(24)[name]
    gradient = fxgrad.value_and_grad(functools.partial(model.function, fnp))
    program, found, wanted = rolled(gradient, *model.arguments(24))
    assert lengths(program) == expected
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.abs(other).max())


def test_what_is_computed_in_addition_may_be_anything() -> None:
    """The slope that the first step lacks is infinite there, and nothing comes of it."""
    def function(w: Any, x: Any) -> Any:
        for index in range(24):
            root = fnp.sqrt(x)
            x = 1.0 + root * w[index] + 0.25 * fnp.tanh(root * w[index]) + 0.125 * fnp.exp(-root) * w[index]
        return fnp.sum(x)

    w, x = np.ones((24, 4)), np.array([0.0, 0.5, 1.0, 2.0])
    with np.errstate(all="ignore"):
        program, found, wanted = rolled(fxgrad.value_and_grad(function), w, x)
    assert lengths(program) == [24, 23]  # the first step back begins with ones
    assert np.isinf(fxgrad.grad(function, argnums=1)(w, x)[0])
    assert not any(np.isnan(each).any() for each in wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_copy_on_whose_result_the_others_depend_otherwise_stays_outside() -> None:
    def function(x: Any, w: Any) -> Any:
        x = fnp.tanh(x * w)
        factors = [fnp.sin(x) * (index + 1.0) for index in range(6)]
        for factor in factors:
            x = fnp.tanh(x * factor)
        return x

    program = fxgrad.make_program(fxgrad.roll(function, by="scan"))(X, X)
    assert lengths(program) == [6, 6]  # the factors, and the steps after the first
    np.testing.assert_allclose(fxgrad.roll(function, by="scan")(X, X), function(X, X), rtol=1e-12)


def test_values_between_the_copies_are_computed_after_the_loop() -> None:
    """The first copy's result is read by the user too, before the loop begins."""
    def function(x: Any, w: Any) -> Any:
        kept = []
        for index in range(40):
            x = fnp.tanh(x @ w[index]) + fnp.sin(x)
            if index in (0, 39):
                kept.append(fnp.exp(x) * 2.0)
        return fnp.sum(x), kept

    gradient = fxgrad.grad(lambda x, w: function(x, w)[0] + fnp.sum(function(x, w)[1][0]), argnums=1)
    w = np.random.default_rng(0).normal(size=(40, 4, 4)) / 2
    for each in (function, gradient):
        program, found, wanted = rolled(each, X, w)
        assert lengths(program)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_programs_with_effects_keep_their_order() -> None:
    def function(x: Any, w: Any) -> Any:
        for index in range(24):
            x = fnp.tanh(x @ w[index]) + fnp.sin(x)
        fxgrad.debug.print("{}", fnp.sum(x), ordered=True)
        return fnp.sum(x)

    w = np.random.default_rng(0).normal(size=(24, 4, 4)) / 2
    program, found, wanted = rolled(fxgrad.grad(function, argnums=1), X, w)
    assert lengths(program) == [23, 22]
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-9, atol=1e-12)


def equations_of(program: Any, kind: str) -> list[Any]:
    return [equation for equation in program.equations if str(equation.primitive) == kind]


def test_sums_of_gradients_begin_with_a_zero_that_changes_nothing() -> None:
    """Even the sign of a zero stays: -0 is added to the first term."""
    def function(w: Any, xs: Any) -> Any:
        state = xs[0] * 2.0
        for index in range(24):
            state = fnp.tanh(xs[index] * w + state * w) + fnp.sin(state * w + 1.0) * 0.5 - fnp.cos(state * w) * 0.25
        return fnp.sum(state * state)

    gradient = fxgrad.grad(function)
    for w in (np.full(3, -0.5), np.zeros(3), np.array([-0.0, 0.0, 1.0])):
        program, found, wanted = rolled(gradient, w, np.zeros((24, 3)))
        assert lengths(program) == [24, 24]
        np.testing.assert_array_equal(found[0], wanted[0])
        np.testing.assert_array_equal(np.signbit(found[0]), np.signbit(wanted[0]))


def test_a_first_copy_two_of_whose_values_are_one_stays_outside() -> None:
    def function(w: Any, xs: Any) -> Any:
        state = xs[0]  # so that two products of the first step are equal
        for index in range(24):
            state = fnp.tanh(xs[index] * w + state * w) + fnp.sin(state * w + 1.0) * 0.5 - fnp.cos(state * w) * 0.25
        return fnp.sum(state)

    program, found, wanted = rolled(fxgrad.grad(function), np.full(3, -0.5), np.linspace(0.0, 1.0, 72).reshape(24, 3))
    assert lengths(program) == [22, 22]
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)


def moment_steps(x: Any, a: Any) -> Any:
    """A carried value from which something is subtracted at each step: its first cotangent is a negative."""
    mean = fnp.zeros_like(x)
    for index in range(24):
        slope = fnp.sin(x * a) * x
        mean = 0.9 * mean - slope * 0.1
        x = x - mean / (2.0 + fnp.cos(x)) * (index + 1.0)
    return fnp.sum(x * x)


def test_a_first_step_whose_signs_moved_is_taken_along() -> None:
    program, found, wanted = rolled(fxgrad.grad(moment_steps, argnums=(0, 1)), X, 2 * X)
    assert lengths(program) == [24, 24]
    assert not equations_of(program, "neg")
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "complex128", "bfloat16"])
def test_first_steps_of_other_dtypes(dtype: str) -> None:
    def function(x: Any, w: Any) -> Any:
        for index in range(24):
            x = x * w[index] + fnp.exp(x * w[index] * 0.125) * w[index]
            x = x / (2.0 + x * x) + fnp.sin(x) * w[index] - fnp.cos(x)
        return fnp.sum(fnp.real(x * x))

    kind = fnp.bfloat16 if dtype == "bfloat16" else dtype
    x, w = np.asarray(X).astype(kind), np.ones((24, 4)).astype(kind)
    program, found, wanted = rolled(fxgrad.grad(function, argnums=(0, 1)), x, w)
    assert lengths(program) == [24, 24]
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype == np.dtype(kind)
        np.testing.assert_array_equal(one, other)


def test_first_values_that_others_read_stay_outside() -> None:
    """The negative of the first step is a result too: nothing replaces its equation."""
    def function(x: Any, a: Any) -> Any:
        cotangent = x
        total = -(0.9 * x)
        kept = total
        for _ in range(24):
            cotangent = fnp.sin(cotangent) * a
            total = 0.9 * (total - cotangent * a)
        return total, kept

    _, found, wanted = rolled(function, X, 2 * X)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_result_of_the_last_copy_alone_is_computed_after_the_loop() -> None:
    def function(x: Any, w: Any) -> Any:
        for index in range(24):
            x = fnp.tanh(x @ w[index])
        return fnp.sum(x * x)

    w = np.random.default_rng(0).normal(size=(24, 4, 4)) / 2
    program, found, wanted = rolled(fxgrad.value_and_grad(function, argnums=(0, 1)), X, w)
    forward = equations_of(program, "scan")[0]
    # The last state; and by step the derivative of tanh, and the state before.
    assert [var.aval.shape for var in forward.outputs] == [(4,), (24, 4), (24, 4)]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


@pytest.mark.slow
def test_blocks_compute_cheap_residuals_again() -> None:
    """1 - tanh(x)**2 is not stored beside tanh(x), in loops and by calls."""
    def layer(x: Any, into: Any, out: Any) -> Any:
        hidden = fnp.tanh(x @ into)
        return x + hidden @ out

    def stacked(x: Any, into: Any, out: Any) -> Any:
        for index in range(12):
            x = layer(x, into[index], out[index])
        return fnp.sum(x * x)

    def apart(x: Any, *arrays: Any) -> Any:
        for into, out in zip(arrays[::2], arrays[1::2], strict=True):
            x = layer(x, into, out)
        return fnp.sum(x * x)

    rng = np.random.default_rng(0)
    into, out = rng.normal(size=(12, 4, 8)) / 4, rng.normal(size=(12, 8, 4)) / 4
    x = np.ones((3, 4))
    program, found, wanted = rolled(fxgrad.grad(stacked, argnums=(1, 2)), x, into, out)
    stacks = [var.aval.shape for var in equations_of(program, "scan")[0].outputs if var.aval.shape[0] == 12]
    assert sorted(stacks) == [(12, 3, 4), (12, 3, 8)]  # the states, and hidden
    pairs = [array for pair in zip(into, out, strict=True) for array in pair]
    called, found_apart, wanted_apart = rolled(
        fxgrad.grad(apart, argnums=tuple(range(25))), x, *pairs)
    first = equations_of(called, "jit_call")[0]
    assert sorted(var.aval.shape for var in first.outputs) == [(3, 4), (3, 8)]
    for one, other in zip([*found, *found_apart], [*wanted, *wanted_apart], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)
