"""The order of equations in programs that are read: that of the lines they come from, to the same results."""

from __future__ import annotations

from typing import Any

import numpy as np

import fxgrad
from fxgrad.engine.core.program import Program
from fxgrad.engine.derivation.ordering import as_needed, line_by_line
from fxgrad.text import program_text


def wave(w: Any, x: Any) -> Any:
    h = np.tanh(x @ w)
    s = np.sin(h * 2.0) * np.exp(-h)
    return np.sum(s * s)


ARGS = np.arange(3.0), np.arange(6.0).reshape(2, 3)


def tangents(w: Any, x: Any) -> Any:
    return fxgrad.jvp(wave, (w, x), (np.cos(w), np.cos(x)))


def test_values_and_tangents_are_told_apart() -> None:
    shown = program_text(fxgrad.make_program(tangents)(*ARGS), source=False)
    assert "  h: f64[2] = tanh(x @ w)\n" in shown
    assert "  t_s: f64[2] = t_h * 2.0 * cos(c) * e - d * (t_h * e)\n" in shown
    recorded = fxgrad.make_program(tangents, as_recorded=True)(*ARGS)
    assert len(shown.splitlines()) < len(program_text(recorded, source=False).splitlines()) - 5


def test_it_is_the_same_program_in_another_order() -> None:
    for function in (tangents, fxgrad.grad(wave), fxgrad.hessian(wave), fxgrad.vmap(fxgrad.grad(wave), (None, 0))):
        program = fxgrad.make_program(function, as_recorded=True)(*ARGS)
        ordered = line_by_line(program.equations, program.outputs)
        assert {*map(id, ordered)} == {*map(id, program.equations)}
        again = Program(program.inputs, ordered, program.outputs, program.captured, program.constants,
                        program.signature)
        again.check()
        assert line_by_line(ordered, program.outputs) == ordered
        for one, other in zip(*(fxgrad.tree.leaves(each(*ARGS)) for each in (program, again)), strict=True):
            np.testing.assert_array_equal(one, other)


def test_effects_keep_their_order() -> None:
    def loud(x: Any) -> Any:
        return fxgrad.pure_callback(np.sin, x, x), [fxgrad.debug.print("{}", y) for y in (x * 2.0, x * 3.0)]

    program = fxgrad.make_program(loud, as_recorded=True)(1.0)
    names = [equation.primitive.name for equation in program.equations if not equation.outputs]
    ordered = line_by_line(program.equations, program.outputs)
    assert [equation for equation in ordered if not equation.outputs] == [
        equation for equation in program.equations if not equation.outputs]
    assert len(names) == 2


def test_what_late_inputs_do_not_touch_comes_right_before_its_use() -> None:
    program = fxgrad.make_program(lambda a, b, c, y: (np.sin(a) * y, np.cos(b), np.tanh(c), y * 2.0))(
        1.0, 2.0, 3.0, 4.0)
    names = {late: [str(equation.primitive) for equation in as_needed(program, late).equations] for late in (0, 1, 3)}
    assert names == {0: ["sin", "mul", "cos", "tanh", "mul"], 1: ["sin", "mul", "mul", "cos", "tanh"],
                     3: ["sin", "mul", "cos", "tanh", "mul"]}
