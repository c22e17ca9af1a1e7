"""What programs look like with one operation a line, word for word."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from fxgrad.engine.api.programs import make_program
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Equation, Program, Signature, Variable
from fxgrad.engine.higher_order.call import library_function
from fxgrad.engine.higher_order.checkpoint import checkpoint_p
from fxgrad.engine.ops.arithmetic import add, mul, neg
from fxgrad.engine.ops.products import dot_general
from fxgrad.engine.ops.reductions import reduce_sum
from fxgrad.engine.ops.trigonometric import sin, tanh
from fxgrad.engine.tracing.tape import bind
from fxgrad.text import inline, parse
from tests.support.show_programs import (
    SCALAR,
    VECTOR,
    choose_p,
    effect_p,
    equations_text,
    keep_p,
    one_equation,
    repeat_p,
    with_constant,
    with_literal,
)

F = np.dtype("float32")
D = np.dtype("float64")
OFFSET = np.array([0.5, -1.0, 2.0], np.float32)


@library_function
def squares(x: Any) -> Any:
    y = mul(x, x)
    return add(y, 1.0)


def loss(params: Any, x: Any) -> Any:
    h = tanh(mul(x, params["w"]))
    total = squares(add(h, params["b"][0]))
    return reduce_sum(mul(total, OFFSET), (0,))


def traced() -> Program:
    vector = np.ones(3, np.float32)
    return make_program(loss)({"w": vector, "b": [vector]}, vector)


def test_a_traced_function() -> None:
    first = inspect.getsourcelines(loss)[1]
    inner = inspect.getsourcelines(squares)[1]
    assert equations_text(traced()) == f"""\
program loss(params.b[0]: f32[3], params.w: f32[3], x: f32[3]) {{
  captured OFFSET: f32[3] = [0.5, -1.0, 2.0]
  a: f32[3] = mul(x, params.w)         # test_program_text.py:{first + 1}
  h: f32[3] = tanh(a)                  # test_program_text.py:{first + 1}
  b: f32[3] = add(h, params.b[0])      # test_program_text.py:{first + 2}
  total: f32[3] = squares(b)           # test_program_text.py:{first + 2}
  c: f32[3] = mul(total, OFFSET)       # test_program_text.py:{first + 3}
  d: f32[] = reduce_sum(c, axes=(0,))  # test_program_text.py:{first + 3}
  return d
}}

where squares = program (x: f32[3]) {{
  y: f32[3] = mul(x, x)        # test_program_text.py:{inner + 2}
  a: f32[3] = add(y, 1.0:f32)  # test_program_text.py:{inner + 3}
  return a
}}"""


def test_unfolded_without_source_lines() -> None:
    expected = """\
program loss(params.b[0]: f32[3], params.w: f32[3], x: f32[3]) {
  captured OFFSET: f32[3] = [0.5, -1.0, 2.0]
  a: f32[3] = mul(x, params.w)
  h: f32[3] = tanh(a)
  b: f32[3] = add(h, params.b[0])
  y: f32[3] = mul(b, b)
  total: f32[3] = add(y, 1.0:f32)
  c: f32[3] = mul(total, OFFSET)
  d: f32[] = reduce_sum(c, axes=(0,))
  return d
}"""
    assert equations_text(traced(), source=False, unfold=True) == expected
    assert equations_text(inline(traced()).check(), source=False) == expected


def test_unfolding_changes_no_value() -> None:
    x = np.array([0.1, 0.2, 0.3], np.float32)
    program = traced()
    assert program({"w": x, "b": [x]}, x) == inline(program)({"w": x, "b": [x]}, x)


def test_a_program_without_calls_unfolds_to_itself() -> None:
    program = make_program(sin)(1.0)
    assert inline(program) is program


def test_long_lines_are_broken_between_arguments() -> None:
    expected = """\
program loss(
  params.b[0]: f32[3],
  params.w: f32[3],
  x: f32[3],
) {
  captured OFFSET: f32[3] = [0.5, -1.0, 2.0]
  a: f32[3] = mul(x, params.w)
  h: f32[3] = tanh(a)
  b: f32[3] = add(h, params.b[0])
  total: f32[3] = squares(b)
  c: f32[3] = mul(total, OFFSET)
  d: f32[] = reduce_sum(
    c,
    axes=(0,),
  )
  return d
}

where squares = program (x: f32[3]) {
  y: f32[3] = mul(x, x)
  a: f32[3] = add(y, 1.0:f32)
  return a
}"""
    assert equations_text(traced(), source=False, width=32) == expected


def test_one_definition_for_each_program_called() -> None:
    @library_function
    def twice(x: Any) -> Any:
        return add(x, x)

    def function(x: Any, y: Any) -> Any:
        return twice(twice(x)), twice(y)

    assert equations_text(make_program(function)(OFFSET, 1.0), source=False) == """\
program function(x: f32[3], y: f64*[]) {
  a: f32[3] = twice(x)
  b: f32[3] = twice(a)
  c: f64*[] = twice_1(y)
  return b, c
}

where twice = program (x: f32[3]) {
  a: f32[3] = add(x, x)
  return a
}

where twice_1 "twice" = program (x: f64*[]) {
  a: f64*[] = add(x, x)
  return a
}"""


def test_calls_of_other_kinds_and_other_names() -> None:
    inner = one_equation(keep_p, SCALAR)

    def function(x: Any) -> Any:
        y = bind(checkpoint_p, x, program=inner, name="block")[0]
        return bind(checkpoint_p, y, program=inner, name="a block")[0]

    assert equations_text(make_program(function)(np.float32(1)), source=False) == """\
program function(x: f32[]) {
  a: f32[] = checkpoint block(x)
  b: f32[] = checkpoint block(a, name="a block")
  return b
}

where block = program (a: f32[]) {
  b: f32[] = keep(a)
  return b
}"""


def test_a_function_named_as_an_operation_is_told_apart() -> None:
    @library_function
    def mul(x: Any) -> Any:
        return neg(x)

    assert equations_text(make_program(lambda x: add(mul(x), x))(OFFSET), source=False) == """\
program function(x: f32[3]) {
  a: f32[3] = mul_1(x)
  b: f32[3] = add(a, x)
  return b
}

where mul_1 "mul" = program (x: f32[3]) {
  a: f32[3] = neg(x)
  return a
}"""


def test_nested_programs_are_indented() -> None:
    inner = one_equation(keep_p, VECTOR, axes=(0,))
    other = one_equation(keep_p, VECTOR)
    a, b, c = Variable(VECTOR), Variable(VECTOR), Variable(VECTOR)
    program = Program([a], [Equation(choose_p, [a], {"branches": (inner, other)}, [b]),
                            Equation(repeat_p, [b], {"length": 3, "body": one_equation(keep_p, VECTOR)}, [c]),
                            Equation(effect_p, [c], {}, [])], [c])
    assert equations_text(program) == """\
program (a: f32[3]) {
  b: f32[3] = choose(a, branches=(
    program (a: f32[3]) {
      b: f32[3] = keep(a, axes=(0,))
      return b
    },
    program (a: f32[3]) {
      b: f32[3] = keep(a)
      return b
    },
  ))
  c: f32[3] = repeat(b, length=3, body=program (a: f32[3]) {
    b: f32[3] = keep(a)
    return b
  })
  () = effect(c)
  return c
}"""


def test_a_nested_program_that_occurs_twice_is_printed_once() -> None:
    inner = one_equation(keep_p, VECTOR)
    assert equations_text(one_equation(choose_p, VECTOR, branches=(inner, inner))) == """\
program (a: f32[3]) {
  b: f32[3] = choose(a, branches=(body, body))
  return b
}

where body = program (a: f32[3]) {
  b: f32[3] = keep(a)
  return b
}"""


def test_names_that_are_no_paths_are_quoted() -> None:
    names = ("x.y[0]['a b']", "argument 0", "return", "inf", "a`b", "f32[3]", "")
    inputs = [Variable(SCALAR) for _ in names]
    program = Program(inputs, [], [], signature=Signature("my loss", names, None, None))
    assert equations_text(program, width=200) == (
        'program "my loss"(x.y[0][\'a b\']: f32[], `argument 0`: f32[], `return`: f32[], `inf`: f32[], '
        "`a\\`b`: f32[], `f32[3]`: f32[], ``: f32[]) {\n  return\n}")


def test_parameters_that_may_be_none_are_left_out() -> None:
    x = np.ones((2, 2))
    program = make_program(lambda x: dot_general(x, x, (((1,), (0,)), ((), ()))))(x)
    assert "a: f64[2,2] = dot_general(x, x, dimension_numbers=(((1,), (0,)), ((), ())))" in equations_text(program)
    assert parse(equations_text(program)).equations[0].params == program.equations[0].params
    precise = parse(equations_text(program).replace(", dimension", ', precision="highest", dimension'))
    assert 'precision="highest"' in equations_text(precise)
    assert "value=None" in equations_text(one_equation(keep_p, SCALAR, value=None))


@pytest.mark.parametrize(("value", "expected"), [
    (np.float64(2.0), "2.0"),
    (np.arange(6, dtype=np.int32).reshape(2, 3), "[[0, 1, 2], [3, 4, 5]]"),
    (np.zeros((1000, 1000)), "full(0.0)"),
    (np.array([0.0, -0.0]), "[0.0, -0.0]"),
    (np.ones((0, 3), np.float32), "[]"),
    (np.array([True, False]), "[True, False]"),
    (np.arange(1001), "..."),
])
def test_constants(value: Any, expected: str) -> None:
    assert equations_text(with_constant(value)).splitlines()[1].partition(" = ")[2] == expected


def test_constants_on_request() -> None:
    program = with_constant(np.arange(4))
    assert "= ...\n" in equations_text(program, constants=False)
    assert "= ...\n" in equations_text(program, constants=3)
    assert "= [0, 1, 2, 3]\n" in equations_text(program, constants=4)


def test_rows_of_large_constants_stay_together() -> None:
    assert equations_text(with_constant(np.arange(8.0).reshape(4, 2)), width=30) == """\
program f() {
  captured a: f64[4,2] = @a
  return a
}

where @a = [[0.0, 1.0], [2.0, 3.0],
  [4.0, 5.0], [6.0, 7.0]]"""


@pytest.mark.parametrize(("value", "aval", "expected"), [
    (2.0, Aval((), D, weak=True), "2.0"),
    (2.0, Aval((), F, weak=True), "2.0:f32*"),
    (2.0, Aval((), F), "2.0:f32"),
    (2, Aval((), np.dtype("int32"), weak=True), "2:i32*"),
    (2, Aval((), np.dtype("int64"), weak=True), "2"),
    (True, Aval((), np.dtype("bool")), "True"),
    (-0.0, Aval((), F, weak=True), "-0.0:f32*"),
    (np.nan, Aval((), D, weak=True), "nan"),
    (-np.inf, Aval((), F), "-inf:f32"),
    (complex(-0.0, 1), Aval((), np.dtype("complex128"), weak=True), "complex(-0.0, 1.0)"),
    (0.1, Aval((), D, weak=True), "0.1"),
    (1e20, Aval((), D, weak=True), "1e+20"),
])
def test_literals(value: Any, aval: Aval, expected: str) -> None:
    assert equations_text(with_literal(value, aval)).splitlines()[1] == f"  return {expected}"


def test_an_unbound_variable_prints() -> None:
    program = Program([], [Equation(neg_p(), [Variable(SCALAR)], {}, [Variable(SCALAR)])], [])
    assert "neg(<unbound f32[]>)" in equations_text(program)
    assert "-<unbound f32[]>" in str(program)


def neg_p() -> Any:
    return make_program(neg)(1.0).equations[0].primitive
