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
