"""Applying a program: computed where no tape is concerned, recorded where one is, with effects in their order."""

from __future__ import annotations

import numpy as np

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.core.backends import use_executor
from fxgrad.engine.tracing.apply import apply_program
from tests.support.counting import Counting


def test_a_program_that_concerns_no_tape_is_computed_at_once() -> None:
    program = fxgrad.make_program(lambda x: fnp.sin(x) * x)(1.0)
    counting = Counting()

    def f(y):
        with use_executor(counting):
            doubled, = apply_program(program, [2.0])
        return y * doubled

    assert fxgrad.grad(f)(3.0) == np.sin(2.0) * 2.0
    assert counting.asked == ["execute"]


def test_what_depends_on_no_tape_is_computed_as_one_program() -> None:
    weights = np.cos(np.arange(9.0))

    def chain(x, weights=weights):  # the Lagrangian of a hanging chain
        height, slope = fnp.reshape(x, (2, -1))
        length = fnp.sqrt(1.0 + slope ** 2)
        energy = 0.5 * fnp.sum((height * length)[1:] + (height * length)[:-1])
        missing = height[1:] - height[:-1] - 0.5 * (slope[1:] + slope[:-1])
        return energy + 0.7 * (fnp.sum(length[1:] + length[:-1]) - 4.0) + fnp.sum(weights * missing)

    x = 1.0 + 0.1 * np.sin(np.arange(20.0))
    matrix = fxgrad.jacobian(fxgrad.grad(chain), sparse=True)
    np.testing.assert_allclose(matrix(x).toarray(), fxgrad.jit(fxgrad.hessian(chain))(x), atol=1e-14)
    counting = Counting()
    with use_executor(counting):
        matrix(x)
    assert counting.asked == ["execute", "execute"]  # weights and numbers; what depends on x
    hessian, counting = fxgrad.hessian(chain, sparse=True), Counting()
    hessian(x)
    with use_executor(counting):
        hessian(x)
    assert counting.asked == ["execute"]  # it takes the program of the gradient, and records nothing

    def total(weights):  # the same values are traced here
        return fnp.sum(fxgrad.grad(lambda x: chain(x, weights) * fnp.sum(weights * x[:9]))(x) ** 2)

    step = 1e-6 * np.eye(9)[2]
    difference = (total(weights + step) - total(weights - step)) / 2e-6
    np.testing.assert_allclose(fxgrad.grad(total)(weights)[2], difference, rtol=1e-7)


def test_effects_keep_their_place_among_those_that_are_recorded() -> None:
    seen: list[str] = []
    program = fxgrad.make_program(lambda x: (fxgrad.debug.callback(lambda: seen.append("inner")), x * 2.0)[1])(1.0)

    def f(y):
        fxgrad.debug.callback(lambda: seen.append("before"))
        doubled, = apply_program(program, [3.0])
        fxgrad.debug.callback(lambda: seen.append("after"))
        return y * doubled

    assert fxgrad.grad(f)(5.0) == 6.0
    assert seen == ["before", "inner", "after"]


def test_a_rule_that_is_asked_again_may_speak_over_the_axis_around() -> None:
    @fxgrad.custom_jvp
    def shared(x):
        return x * 1.0

    shared.defjvp(lambda primals, tangents: (shared(*primals), fxgrad.lax.psum(tangents[0], "entries")))

    def slope(x, t):
        return fxgrad.jvp(shared, (x,), (t,))[1]

    for _ in range(2):
        slopes = fxgrad.vmap(slope, axis_name="entries")(np.arange(3.0), np.array([1.0, 2.0, 4.0]))
        np.testing.assert_array_equal(slopes, [7.0, 7.0, 7.0])
