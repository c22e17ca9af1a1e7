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
