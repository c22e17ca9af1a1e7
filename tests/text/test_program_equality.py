"""When programs are equal, and each way in which they are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fxgrad.engine.api.programs import make_program
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.ops.trigonometric import sin
from fxgrad.text import equal, parse
from tests.support.show_programs import (
    SCALAR,
    USER,
    VECTOR,
    choose_p,
    keep_p,
    one_equation,
    with_constant,
    with_literal,
    with_value,
)

BASE = "program f(x: f32[3], y: f32[3]) { a: f32[3] = add(x, y) b: f32[3] = sin(a) return b, x }"

DIFFERENT = [
    "program f(x: f32[3], y: f32[3]) { a: f32[3] = add(y, x) b: f32[3] = sin(a) return b, x }",
    "program f(x: f32[3], y: f32[3]) { a: f32[3] = sub(x, y) b: f32[3] = sin(a) return b, x }",
    "program f(x: f32[3], y: f32[3]) { a: f32[3] = add(x, y) b: f32[3] = sin(a) return b, y }",
    "program f(x: f32[3], y: f32[3]) { a: f32[3] = add(x, y) b: f32[3] = sin(a) return b }",
    "program f(x: f32[3], y: f32[3]) { a: f32[3] = add(x, y) return a, x }",
    "program f(x: f32[3], y: f32[3]) { a: f32[3] = add(x, y) b: f32[3] = sin(y) return b, x }",
    "program f(x: f32[4], y: f32[4]) { a: f32[4] = add(x, y) b: f32[4] = sin(a) return b, x }",
    "program f(x: f32[3]) { captured y: f32[3] a: f32[3] = add(x, y) b: f32[3] = sin(a) return b, x }",
    "program f(x: f32[3], y: f32[3], z: f32[]) { a: f32[3] = add(x, y) b: f32[3] = sin(a) return b, x }",
]


def test_names_do_not_matter() -> None:
    other = "program (u: f32[3], v: f32[3]) { w: f32[3] = add(u, v) x: f32[3] = sin(w) return x, u }"
    assert equal(parse(BASE), parse(other))
    assert equal(parse(BASE), parse(BASE))


@pytest.mark.parametrize("text", DIFFERENT)
def test_programs_that_differ(text: str) -> None:
    assert not equal(parse(BASE), parse(text))
    assert not equal(parse(text), parse(BASE))


@pytest.mark.parametrize(("first", "second"), [
    (1, 2), (1, 1.0), (1, True), (0.0, -0.0), (None, 0), ("a", "b"), ((1,), (1, 2)), ((1,), [1]), (1.0, 1 + 0j),
    (np.float32(1), np.float64(1)), (VECTOR, SCALAR), ((0.0,), (-0.0,)), (sin, make_program),
    (one_equation(keep_p, SCALAR), one_equation(keep_p, VECTOR)),
])
def test_parameters_that_differ(first: Any, second: Any) -> None:
    assert equal(with_value(first), with_value(first))
    assert not equal(with_value(first), with_value(second))


def test_names_of_parameters_matter() -> None:
    assert not equal(one_equation(keep_p, SCALAR, a=1), one_equation(keep_p, SCALAR, b=1))


def test_order_of_parameters_does_not_matter() -> None:
    assert equal(one_equation(keep_p, SCALAR, a=1, b=2), one_equation(keep_p, SCALAR, b=2, a=1))


def test_numbers_are_compared_bit_by_bit() -> None:
    assert equal(with_value(float("nan")), with_value(float("nan")))
    assert equal(with_constant(np.array([np.nan, 1.0])), with_constant(np.array([np.nan, 1.0])))
    assert not equal(with_constant(np.array([0.0])), with_constant(np.array([-0.0])))
    assert not equal(with_constant(np.array([1.0])), with_constant(np.array([2.0])))
    double = np.dtype("float64")
    assert equal(with_literal(np.nan, Aval((), double)), with_literal(np.nan, Aval((), double)))
    assert not equal(with_literal(0.0, Aval((), double)), with_literal(-0.0, Aval((), double)))
    assert not equal(with_literal(0.0, Aval((), double)), with_literal(0.0, Aval((), double, True)))


def test_whether_a_program_is_closed_matters() -> None:
    assert not equal(parse("program () { captured c: f32[] = 1.0 return c }"),
                     parse("program () { captured c: f32[] return c }"))


def test_nested_programs_are_compared() -> None:
    text = "program (x: f32[3]) {{ y: f32[3] = choose(x, branches=(program (a: f32[3]) {{ {} }},)) return y }}"
    one, two, three = (parse(text.format(inner), USER) for inner in (
        "return a", "return a", "b: f32[3] = sin(a) return b"))
    assert equal(one, two)
    assert not equal(one, three)


def test_shared_programs_are_compared_once() -> None:
    def nested() -> Any:
        program = one_equation(keep_p, VECTOR)
        for _ in range(60):
            program = one_equation(choose_p, VECTOR, branches=(program, program))
        return program

    assert equal(nested(), nested())


def test_a_program_that_is_held_twice_is_compared_with_each() -> None:
    kept, moved = one_equation(keep_p, VECTOR), parse("program (x: f32[3]) { y: f32[3] = sin(x) return y }")
    again = one_equation(keep_p, VECTOR)
    shared = one_equation(choose_p, VECTOR, branches=(again, again))
    assert equal(one_equation(choose_p, VECTOR, branches=(kept, kept)), shared)
    for branches in ((kept, moved), (moved, kept)):
        other = one_equation(choose_p, VECTOR, branches=branches)
        assert not equal(other, shared)
        assert not equal(shared, other)
