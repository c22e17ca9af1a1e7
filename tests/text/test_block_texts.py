"""Operations that hold programs in the compact style: each has its operands by role, and is read back as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.core.program import Program
from fxgrad.engine.higher_order.call import library_function
from fxgrad.engine.rooms import registry
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.trace import UNSHARED, trace_at
from fxgrad.text import equal, parse, program_text
from fxgrad.text.blocks import NAMES, block_of
from fxgrad.text.definitions import is_call, is_plain_call
from tests.samples import all_samples


def sample_programs() -> list[Program]:
    """Every sample of an operation that holds programs, in a program of its own."""
    programs = []
    for primitive, samples in all_samples().items():
        for sample in samples if primitive.regions is not None else ():
            avals = [fxgrad.make_program(lambda value: value)(arg).in_avals[0] for arg in sample.args()]
            programs.append(trace_at(lambda *given, sample=sample, primitive=primitive: bind(
                primitive, *given, **sample.params), avals, mode=UNSHARED)[0])
    return programs


def test_every_operation_that_holds_programs_has_its_operands_by_role() -> None:
    seen = set()
    for program in sample_programs():
        equation = program.equations[-1]
        name = equation.primitive.name
        shown = program_text(program, source=False)
        if is_call(equation) or is_plain_call(equation):  # a function and its arguments
            assert "(x, y)" in shown or "(a, b" in shown, shown
        else:
            assert block_of(equation) is not None, name
            assert "num_" not in shown, shown
            assert "counts" not in shown, shown
            assert "where" not in shown.replace("where(", "") or name.startswith("custom"), shown
            assert equal(parse(shown), program), shown
        seen.add(name)
    assert seen == {name for name, primitive in registry.items() if primitive.regions is not None}
    assert {*NAMES} <= seen


def newton(x: Any) -> Any:
    def far(state: Any) -> Any:
        guess, count = state
        return (abs(guess * guess - x) > 1e-4) & (count < 50)

    def step(state: Any) -> Any:
        guess, count = state
        return 0.5 * (guess + x / guess), count + 1

    return fxgrad.lax.while_loop(far, step, (x, 0))[0]


def test_the_backward_pass_of_a_while_loop() -> None:
    program = fxgrad.make_program(fxgrad.grad(newton))(2.0)
    shown = program_text(program, source=False)
    assert equal(parse(shown), program)
    assert shown[shown.index("  d: f64, e"):] == """\
  d: f64, e: f64* = sweep(a, state(guess=x, count=0), carry(f=0.0:f64, g=1.0)):
    step(consts(x)): return 0.5 * (guess + x / guess), count + 1
    back(consts(x)):
      h = x / guess
      i = 0.5 * g
      j = i / guess
      d_guess: f64* = i - h * j
      return f + j, d_guess
  d_x: f64 = d + e
  return d_x"""


def solved(a: Any, b: Any) -> Any:
    def by_elimination(_: Any, right: Any) -> Any:
        return fnp.linalg.solve(a, right)

    return fxgrad.lax.custom_linear_solve(lambda v: a @ v, b, by_elimination)


def test_a_solver_has_its_programs_by_what_they_are_for() -> None:
    program = fxgrad.make_program(solved)(np.eye(2), np.ones(2))
    shown = program_text(program, source=False)
    assert equal(parse(shown), program)
    assert shown == """\
program solved(a: f64[2,2], b: f64[2]):
  c: f64[2] = custom_linear_solve(rhs(b)):
    matvec(captured(a), given(d: f64[2])): return a @ d
    solve(captured(a)):
      d: f64[2,2], e, f: i32[2] = lu(stop_gradient(a))
      return reshape(lu_solve(a, d, f, b[:, None]), (2,))
    transposed_matvec: None
    transposed_solve: None
  return c"""


def root(a: Any) -> Any:
    return fxgrad.lax.custom_root(lambda x: x * x - a, 1.0, lambda f, x: x - f(x) / (2 * x), lambda g, y: y / g(1.0))


@pytest.mark.slow
@pytest.mark.parametrize(("function", "args"), [
    (fxgrad.grad(fxgrad.grad(newton)), (2.0,)), (fxgrad.vmap(fxgrad.grad(newton)), (np.ones(3),)),
    (fxgrad.jacfwd(fxgrad.grad(newton)), (2.0,)), (fxgrad.jacfwd(solved), (np.eye(2), np.ones(2))),
    (fxgrad.grad(root), (2.0,)), (fxgrad.vmap(root), (np.ones(3),))])
def test_derivatives_and_batches_of_them_are_read_back(function: Any, args: Any) -> None:
    program = fxgrad.make_program(function)(*args)
    shown = program_text(program, constants=True)
    assert equal(parse(shown), program)
    assert "num_" not in shown
    assert "counts" not in shown


def test_functions_that_are_called_as_roles_are_calls() -> None:
    @library_function
    def over(x: Any) -> Any:
        return x > 0.0

    program = fxgrad.make_program(
        lambda x: fxgrad.lax.cond(over(x), lambda each: each * 2.0, lambda each: each, x))(1.0)
    shown = program_text(program, source=False)
    assert equal(parse(shown), program)
    assert "cond(over_1(x), each=x)" in shown


def test_a_function_with_a_rule_is_called_by_its_name() -> None:
    @fxgrad.custom_jvp
    def gain(x: Any, y: Any) -> Any:
        return np.sin(x) * y

    gain.defjvp(lambda primals, tangents: (gain(*primals), tangents[0]))
    shown = program_text(fxgrad.make_program(lambda x: gain(x, 2.0))(1.0), source=False)
    assert "custom_jvp(gain)(x, 2.0, rule=<gain>)" in shown
    assert "where gain(x, y: f64*)" in shown


@pytest.mark.slow
def test_lines_that_begin_with_many_names_are_broken_behind_them() -> None:
    program = fxgrad.make_program(fxgrad.vmap(fxgrad.grad(newton)))(np.ones(3))
    assert max(map(len, program_text(program, source=False).splitlines())) < 125


def doubled(x: Any) -> Any:
    chosen = x * 2.0
    return chosen


def negated(x: Any) -> Any:
    chosen = -x
    return chosen


def branching(x: Any, flag: Any) -> Any:
    def step(state: Any, entry: Any) -> Any:
        new = fnp.tanh(state * entry)
        return new, new

    first = fnp.sum(fxgrad.lax.cond(flag, doubled, negated, x) * x)
    return first + fnp.sum(fxgrad.lax.scan(step, x, fnp.ones((2, 3)))[0])


def test_branches_are_false_and_true_wherever_the_truth_value_was_made() -> None:
    """Also where it serves two operations, as in a gradient; switches have numbers."""
    for function in (branching, fxgrad.grad(branching), fxgrad.grad(lambda x, flag: fnp.sum(
            fxgrad.grad(branching)(x, flag) ** 2))):
        for flag in (True, np.bool_(False)):
            program = fxgrad.make_program(function)(np.ones(3), flag)
            text = program_text(program, source=False)
            assert "    False" in text
            assert "    True" in text
            assert "    0:" not in text
            assert equal(parse(text), program), text
            assert program_text(parse(text), source=False) == text
    chosen = fxgrad.make_program(lambda x, n: fxgrad.lax.switch(n, [fnp.sin, fnp.cos], x))(1.0, 1)
    assert "    0: return sin(x)" in program_text(chosen, source=False)
    assert equal(parse(str(chosen)), chosen)


def test_what_loops_and_branches_give_is_called_as_what_they_return() -> None:
    text = program_text(fxgrad.make_program(branching)(np.ones(3), True), source=False)
    assert "chosen: f64[3] = cond(flag, x):" in text
    assert "new: f64[3] = scan(carry(state=x)" in text
    other = fxgrad.make_program(lambda x: fxgrad.lax.cond(x > 0, doubled, fnp.sin, x) * 2.0)(1.0)
    assert "chosen: " not in program_text(other, source=False).split("cond")[0]  # one branch calls it otherwise


def test_letters_within_mean_nothing_else_outside_and_carries_are_called_as_what_they_become() -> None:
    def hoisted(xs: Any, a: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            return c + np.exp(a) * x, None

        return fxgrad.lax.scan(step, 0.0, xs)[0]

    shown = program_text(fxgrad.make_program(fxgrad.grad(hoisted, argnums=1))(np.ones(4), 0.5), source=False)
    assert shown == """program grad(hoisted, a)(xs: f64[4], a: f64*):
  b = exp(a)
  d_a, c: f64 = scan(carry(d_a=0.0:f64, d_c=1.0:f64), over(x=xs), consts(b), reverse=True):
    d = d_c * x * b
    return d_a + d, d_c
  return d_a"""


def test_no_remark_stands_in_the_middle_of_a_call() -> None:
    def walk(first: Any, second: Any, third: Any, weights_of_the_step: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            left, middle, right = state
            return (middle, right, left + weights_of_the_step * x), left * right
        return fxgrad.lax.scan(step, (first, second, third), np.ones((5, 4)))

    text = program_text(fxgrad.make_program(walk)(*np.ones((4, 4))))
    statements = text.splitlines()
    place = next(number for number, line in enumerate(statements) if "= scan(" in line)
    assert "#" not in statements[place]
    assert statements[place + 1].endswith(f"# {walk.__code__.co_firstlineno + 4} step")
