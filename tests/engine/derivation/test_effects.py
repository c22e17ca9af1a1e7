"""Programs of which a part runs for its values alone: everything but the effects stays, in order."""

from __future__ import annotations

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.derivation.effects import without_effects, without_forced_effects
from fxgrad.engine.derivation.simplify import simplify


def noisy(x):
    a = fnp.sin(x)
    fxgrad.debug.callback(lambda value: None, a)
    b = fnp.cos(a)
    c = fnp.tanh(b)
    fxgrad.debug.callback(lambda value: None, c)
    return fnp.exp(c) * b


def names(program):
    return [equation.primitive.name for equation in program.equations]


def test_only_effects_are_left_out() -> None:
    program = fxgrad.make_program(noisy)(0.5)
    silent = without_effects(program, "a test")
    assert names(program) == ["sin", "debug_callback", "cos", "tanh", "debug_callback", "exp", "mul"]
    assert names(silent) == ["sin", "cos", "tanh", "exp", "mul"]
    assert silent(0.5) == program(0.5)


def test_effects_of_a_loop_are_left_out_of_its_body() -> None:
    program = fxgrad.make_program(lambda x: fxgrad.lax.fori_loop(0, 3, lambda _, x: noisy(x), x))(0.5)
    body, = [inner for equation in without_effects(program, "a test").equations for inner in equation.programs]
    assert [name for name in names(body) if name != "add"] == ["sin", "cos", "tanh", "exp", "mul"]


def test_what_forcing_has_done_is_not_done_again() -> None:
    program = fxgrad.make_program(noisy)(0.5)
    rest, done = without_forced_effects(program, 3)
    assert (names(rest), done) == (["sin", "cos", "tanh", "debug_callback", "exp", "mul"], 2)


def test_equations_keep_their_lines_where_operands_change() -> None:
    program = fxgrad.make_program(lambda x: fnp.sin(fnp.add(x, 0.0) * 1.0) + fnp.cos(x))(0.5)
    simple = simplify(program)
    assert len(simple.equations) < len(program.equations)
    before = {equation.outputs[0]: equation.source for equation in program.equations}
    for equation in simple.equations:
        assert before[equation.outputs[0]] is equation.source is not None
