"""The compact style, word for word: what programs look like, and what is read of each notation."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.higher_order.call import library_function
from fxgrad.text import equal, parse, program_text
from fxgrad.text.notations import call_names, form_of, meaning
from tests.support.show_programs import SCALAR, VECTOR, equations_text, keep_p, one_equation, user_primitive

F = np.float32
MATRIX = np.ones((2, 3), F)
ROW = np.ones(3, F)


def text(function: Any, *args: Any, **options: Any) -> str:
    """The compact text of a function, which gives back its program."""
    program = fxgrad.make_program(function)(*args)
    assert equal(parse(program_text(program, constants=True)), program)
    return program_text(program, **{"source": False, **options})


def returned(function: Any, *args: Any) -> str:
    """The expression that the text returns."""
    return text(function, *args).splitlines()[-1].removeprefix("  return ")


@pytest.mark.parametrize(("function", "args", "expected"), [
    (lambda x: -(x + 1.0) * (x - 2.0 / x), (ROW,), "-(x + 1.0) * (x - 2.0 / x)"),
    (lambda x: (x - (x - x)) - x, (ROW,), "x - (x - x) - x"),
    (lambda x: -x ** 2 + (-x) ** 3, (ROW,), "-x ** 2 + (-x) ** 3"),
    (lambda x: x * -2.0, (ROW,), "x * -2.0"),
    (lambda x: (x > 0.5) & ~(x == 1.0) | (x <= 0.0), (ROW,), "(x > 0.5) & ~(x == 1.0) | (x <= 0.0)"),
    (lambda x: x ** x, (ROW,), "x ** x"),
    (lambda n: (n << 2) + (n ^ 1) >> 3, (np.int32(4),), "(n << 2) + (n ^ 1) >> 3"),
    (lambda x: x @ x.T, (MATRIX,), "x @ (x.T)"),
    (lambda x, y: (x @ y) @ x, (MATRIX, np.ones((3, 2), F)), "x @ y @ x"),
    (lambda x: fnp.sum(x, axis=0) + fnp.max(x, axis=(0, 1)) + fnp.prod(x), (MATRIX,),
     "sum(x, axis=0) + max(x) + prod(x)"),
    (lambda x: fnp.maximum(x, 0.0), (ROW,), "maximum(x, 0.0)"),
    (lambda x: fnp.where(x > 0, x, 1.0), (ROW,), "where(x > 0.0, x, 1.0)"),
    (lambda x: x[1:] * x[:-1] + x[::2], (ROW,), "x[1:] * x[:-1] + x[::2]"),
    (lambda x: x[:, None, 1:], (MATRIX,), "x[:, None, 1:]"),
    (lambda x: x[0, 2] + x[-1, 1:], (MATRIX,), "x[0, -1] + x[1, 1:]"),
    (lambda x: x.reshape(3, 2).T, (MATRIX,), "reshape(x, (3, 2)).T"),
    (lambda x, i: x[i] + x[:, i[0]][:, None], (np.ones((3, 3), F), np.array([2, 0, 1])), "x[i] + x[:, i[0]][:, None]"),
    (lambda x: x.astype(np.int32) + 1, (ROW,), "i32(x) + 1"),
    (lambda x: fnp.einsum("ij,ik->jk", x, x), (MATRIX,), "x.T @ x"),
    (lambda x: fnp.einsum("ijk,ijl->ikl", x, x), (np.ones((2, 3, 4), F),), 'einsum("ijk,ijl->ikl", x, x)'),
    (lambda x: fnp.concatenate([x, x]), (ROW,), "concatenate(x, x)"),
    (lambda x: fnp.cumsum(x) + fnp.sort(x), (ROW,), "cumsum(x, axis=0) + sort(x)"),
])
def test_expressions(function: Any, args: Any, expected: str) -> None:
    assert returned(function, *args) == expected


def model(weights: Any, bias: Any, x: Any) -> Any:
    logits = np.tanh(x @ weights + bias)
    error = logits - 0.5
    return np.sum(error * error)


def test_a_function_and_its_gradient() -> None:
    args = np.ones((3, 2), F), np.ones(2, F), np.ones((5, 3), F)
    first = inspect.getsourcelines(model)[1]
    assert text(model, *args, source=True) == f"""\
program model(weights: f32[3,2], bias: f32[2], x: f32[5,3]) -> f32:  # test_compact_text.py
  logits: f32[5,2] = tanh(x @ weights + bias)  # {first + 1}
  error: f32[5,2] = logits - 0.5               # {first + 2}
  return sum(error * error)                    # {first + 3}"""
    gradient = text(fxgrad.grad(model, argnums=(0, 1)), *args)
    assert "  d_bias: f32[2] = sum(" in gradient
    assert gradient.endswith("return d_weights, d_bias")


def test_the_file_of_other_lines_stands_beside_them() -> None:
    code = compile("def outside(x):\n    return x * 3.0\n", "<ipython-input-2-abcdef>", "exec")
    namespace: dict[str, Any] = {}
    exec(code, namespace)

    def function(x: Any) -> Any:
        y = np.sin(x) + x
        return namespace["outside"](y)

    first = inspect.getsourcelines(function)[1]
    assert text(function, ROW, source=True) == f"""\
program function(x: f32[3]) -> f32[3]:  # test_compact_text.py
  y: f32[3] = sin(x) + x                # {first + 1}
  return y * 3.0                        # In[2]:2"""


def test_loops_and_branches() -> None:
    def function(x: Any, start: Any) -> Any:
        def step(state: Any, entry: Any) -> Any:
            new = state * entry + start
            return new, new

        final, seen = fxgrad.lax.scan(step, start, x)
        chosen = fxgrad.lax.cond(final > 1.0, lambda value: value * 2.0, lambda value: value + start, final)
        return fxgrad.lax.while_loop(lambda value: value < 9.0, lambda value: value * value, chosen), seen

    assert text(function, ROW, F(2.0)) == """\
program function(x: f32[3], start: f32):
  final: f32, seen: f32[3] = scan(carry(state=start), over(entry=x), captured(start)):
    new: f32 = state * entry + start
    return new, new
  chosen: f32 = cond(final > 1.0, start, value=final):
    False: return value + start
    True: return value * 2.0
  a: f32 = while(carry(value=chosen)):
    condition: return value < 9.0
    body: return value * value
  return a, seen"""


def test_a_library_function_is_defined_once() -> None:
    @library_function
    def squares(x: Any) -> Any:
        return x * x

    assert text(lambda x: squares(squares(x)) + 1.0, ROW) == """\
program function(x: f32[3]) -> f32[3]:
  return squares(squares(x)) + 1.0

where squares(x: f32[3]) -> f32[3]:
  return x * x"""


def test_letters_are_kept_for_what_is_used_twice_or_out_of_order() -> None:
    def function(x: Any) -> Any:
        first, second = np.sin(x), np.cos(x)
        return second - first, np.exp(x) * np.exp(-x)

    assert text(function, ROW) == """\
program function(x: f32[3]) -> f32[3], f32[3]:
  first: f32[3] = sin(x)
  second: f32[3] = cos(x)
  return second - first, exp(x) * exp(-x)"""

    def repeated(x: Any) -> Any:
        return np.sin(x) * np.sin(x)

    assert text(repeated, ROW) == """\
program repeated(x: f32[3]) -> f32[3]:
  a = sin(x)
  return a * a"""

    def swapped(x: Any) -> Any:
        return -np.subtract(*[np.sin(x), np.cos(x)][::-1])

    assert text(swapped, ROW) == """\
program swapped(x: f32[3]) -> f32[3]:
  a = sin(x)
  return -(cos(x) - a)"""


def test_names_that_would_be_read_otherwise_stand_between_parentheses() -> None:
    read = parse("program f(x: f32[3], `x.T`: f32[2,2], f32: f32[3]): return (x)[0], x.T, (f32)[1:], x.T.T")
    again = program_text(read)
    assert equal(parse(again), read)
    assert "(x)[0], x.T, (f32)[1:], (x.T).T" in again or "(x)[0], x.T, (f32)[1:], x.T.T" in again


@pytest.mark.parametrize(("beside", "number", "expected"), [
    ("f32[3]", "2.0", "f32[]"), ("f32[3]", "2", "f32[]"), ("f64[3]", "2.0", "f64*[]"), ("f64[3]", "2", "f64[]"),
    ("f64[3]", "0.5:f64", "f64[]"), ("f64*[]", "2.0", "f64*[]"), ("f32*[]", "2.0", "f32*[]"), ("i32[]", "2", "i32[]"),
    ("i64[]", "2", "i64*[]"), ("i64[]", "2:i64", "i64[]"), ("bf16[2]", "0.5", "bf16[]"), ("c64[]", "2.0", "c64[]"),
])
def test_a_number_has_the_type_of_what_stands_beside_it(beside: str, number: str, expected: str) -> None:
    program = parse(f"program f(x: {beside}): return x * {number}")
    assert repr(program.equations[0].inputs[1].aval) == expected
    shown = {"f32[3]": "2.0"}.get(beside, number)
    assert program_text(program).endswith(f"return x * {shown}")


@pytest.mark.parametrize(("written", "equations"), [
    ("return x.T @ y", "a: f32[3,4] = dot_general(x, y, dimension_numbers=(((0,), (0,)), ((), ())))"),
    ("return (x.T) @ y", "a: f32[3,2] = transpose(x, permutation=(1, 0))"),
    ("return x @w", "a: f32[2] = dot_general(x, w, dimension_numbers=(((1,), (0,)), ((), ())))"),
    ("return x[1]", "a: f32[1,3] = slice(x, start_indices=(1, 0), limit_indices=(2, 3), strides=(1, 1))"),
    ("return x[-1:, None]", "a: f32[1,3] = slice(x, start_indices=(1, 0), limit_indices=(2, 3), strides=(1, 1))"),
    ("return x.T[2]", "a: f32[3,2] = transpose(x, permutation=(1, 0))"),
    ("return -w ** 2", "a: f32[3] = integer_pow(w, exponent=2)"),
    ("return -2.0 * w", "a: f32[3] = mul(-2.0:f32, w)"),
    ("return full(f32[2,2], 0)", "a: f32[2,2] = broadcast_to(0.0:f32, shape=(2, 2))"),
    ("return sum(x, axis=(0, 1))", "a: f32[] = reduce_sum(x, axes=(0, 1))"),
    ("return f64(w)", "a: f64[3] = convert_element_type(w, dtype=f64, weak=False)"),
    ('return "sin"(w)', "a: f32[3] = sin(w)"),
    ("return split(w, (1, 2))", "a: f32[1], b: f32[2] = split(w, sizes=(1, 2), axis=0)"),
    ("return where(w > 0, w, 0)", "a: bool[3] = gt(w, 0.0:f32)"),
])
def test_what_is_read(written: str, equations: str) -> None:
    head = "program f(x: f32[2,3], y: f32[2,4], w: f32[3]): "
    if written.startswith("return split"):
        written = written.replace("return", "a, b: f32 =").replace("b: f32", "b") + " return a"
    assert equations in equations_text(parse(head + written))


def test_operations_along_another_axis_than_the_first_say_which() -> None:
    shown = text(lambda x: [2.0 * part for part in fxgrad.lax.split(x, (1, 2), axis=1)], MATRIX)
    assert "a: f32[2,1], b: f32[2,2] = split(x, (1, 2), axis=1)\n" in shown
    shown = text(lambda x: [2.0 * part for part in fxgrad.lax.split(x, (1, 1))], MATRIX)
    assert "a, b: f32[1,3] = split(x, (1, 1))\n" in shown


@pytest.mark.parametrize("index", ["::2", "1::3", "2::4"])
def test_ranges_of_an_axis_whose_size_has_a_name(index: str) -> None:
    numbers = np.arange(11.0)
    begin, end, step = (int(part) if part else None for part in index.split(":"))
    read = parse(f"program f(x: f64[n+4]): return x[{index}]")
    for size in (5, 8, 11):
        np.testing.assert_array_equal(read(numbers[:size]), numbers[:size][begin:end:step])


def test_every_word_of_the_table_is_taken() -> None:
    """No definition under `where` can be called as an operation or a notation is."""
    assert {"sum", "where", "f32", "sin", "full"} <= call_names()

    @library_function
    def where(x: Any) -> Any:
        return -x

    assert "return where_1(x)" in text(where, ROW)


def test_operations_of_users_that_are_called_as_notations_are() -> None:
    own = user_primitive("sum", lambda *avals, **params: list(avals))
    program = one_equation(own, VECTOR)
    assert 'return "sum"(a)' in program_text(program)
    assert equal(parse(program_text(program), [own]), program)


@pytest.mark.parametrize("value", [True, 0, 0.0, -0.0, np.float32(1), None, (1, (2.0,)), [np.int64(3)], "a"])
def test_parameters_are_read_back_by_type(value: Any) -> None:
    program = one_equation(keep_p, SCALAR, value=value)
    assert equal(parse(program_text(program), [keep_p]), program)


def test_a_form_that_is_read_otherwise_is_not_taken() -> None:
    """`sum(x)` of all axes, and what differs from it by a type alone."""
    add_up = fxgrad.make_program(lambda x: fnp.sum(x))(ROW).equations[0]
    avals = [atom.aval for atom in add_up.inputs]
    form, _ = form_of(add_up.primitive, avals, {"axes": (0,)})
    assert (form.kind, form.name, form.params) == ("call", "sum", ())
    other, _ = form_of(add_up.primitive, avals, {"axes": (np.int64(0),)})
    assert other != form
    read = meaning(form, avals, {})
    assert read is not None
    assert read.params == {"axes": (0,)}


def test_forms_are_found_once_for_each_kind_of_equation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What printing costs beside the text itself grows with the kinds of equations, and not with their number."""
    calls = []

    def counted(*args: Any) -> Any:
        calls.append(args)
        return form_of(*args)

    monkeypatch.setattr("fxgrad.text.compact_writer.form_of", counted)

    def chain(x: Any, count: int) -> Any:
        for _ in range(count):
            x = np.sin(x) * 2.0 + x
        return x

    programs = [fxgrad.make_program(lambda x, count=count: chain(x, count))(ROW) for count in (10, 400)]
    calls.clear()  # of reading texts back, where that is checked
    numbers = []
    for program in programs:
        program_text(program)
        numbers.append(len(calls))
        calls.clear()
    assert numbers[0] == numbers[1] > 0




def test_a_library_function_is_named_where_its_operations_stand() -> None:
    def function(x: Any) -> Any:
        length = fnp.linalg.norm(x)
        return np.sin(length)

    first = inspect.getsourcelines(function)[1]
    assert text(function, ROW, source=True) == f"""\
program function(x: f32[3]) -> f32:   # test_compact_text.py
  length: f32 = sqrt(sum(square(x)))  # {first + 1} norm
  return sin(length)                  # {first + 2}"""


def test_a_program_that_is_shared_stands_under_where_alone() -> None:
    loop = ("while({}, condition=test, body=program (a: f32[]) {{ b: f32[] = mul(a, {}:f32) return b }}, "
            "num_condition_consts=0, num_body_consts=0)")
    program = parse(f"program f(x: f32[]) {{ y: f32[] = {loop.format('x', 2.0)} z: f32[] = {loop.format('y', 3.0)} "
                    "return z } where test = program (a: f32[]) { b: bool[] = lt(a, 9.0:f32) return b }")
    shown = program_text(program)
    assert equal(parse(shown), program)
    assert shown == """\
program f(x: f32):
  y: f32 = while(carry(a=x)):
    condition: test
    body:
      b: f32 = a * 2.0
      return b
  z: f32 = while(carry(a=y)):
    condition: test
    body:
      b: f32 = a * 3.0
      return b
  return z

where test(a: f32):
  b: bool = a < 9.0
  return b"""


def test_a_range_of_everything_is_not_lost() -> None:
    program = parse("program f(x: f32[3]): return x[:][None], x[:][:, None] + x[0:3:1][None]")
    assert [equation.primitive.name for equation in program.equations] == ["slice", "reshape"] * 3 + ["add"]
    assert equal(parse(program_text(program)), program)
    assert program_text(program).endswith("return x[:][None], x[:][:, None] + x[:][None]")


def test_a_number_that_stands_for_operations_says_where_it_comes_from() -> None:
    def loss(w: Any, x: Any, y: Any) -> Any:
        error = x @ w - y
        return fnp.mean(error * error)

    args = np.ones(3), np.ones((100, 3)), np.ones(100)
    shown = text(fxgrad.grad(loss), *args, source=True)
    assert f"# {inspect.getsourcelines(loss)[1] + 2}; 0.02 = (1/100)+(1/100) of mean\n" in shown
    squares = text(fxgrad.grad(lambda w: 0.5 * np.sum(w ** 2) / 100), args[0], source=True)
    assert "; 0.005 = 0.5*(1/100)" in squares
    plain = program_text(fxgrad.make_program(lambda w: w * 0.01)(args[0]))
    assert "=" not in plain.partition("return")[2]


def test_numbers_are_equal_however_they_were_computed() -> None:
    program = fxgrad.make_program(fxgrad.grad(lambda w: fnp.mean(w * 3.0)))(np.ones(4))
    again = pickle.loads(pickle.dumps(program))
    assert equal(again, program)
    assert program_text(again) == program_text(program)
    assert "; 0.75 = (1/4)*3 of mean\n" in program_text(program)
    assert equal(parse(program_text(program)), program)
