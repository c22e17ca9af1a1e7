"""Where the names of variables come from: signatures, assignments, and letters."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad.numpy
from fxgrad.engine.api.programs import make_program
from fxgrad.engine.api.reverse import grad
from fxgrad.engine.core.program import Program, Signature, Variable
from fxgrad.engine.higher_order.call import library_function
from fxgrad.engine.ops.arithmetic import add, mul, neg
from fxgrad.engine.ops.trigonometric import sin, tanh
from fxgrad.engine.tracing.tape import bind
from fxgrad.text import parse, program_text
from fxgrad.text.names import own_names
from fxgrad.text.sources import Sources
from tests.support.show_programs import SCALAR, equations_text, keep_p, user_primitive

LEVEL = np.array([1.0, 2.0], np.float32)
OTHER = np.array([3.0, 4.0], np.float32)
split_p = user_primitive("halves", lambda x: [x, x])


def names(function: Callable[..., Any], *args: Any) -> list[str]:
    """The names of the results of all equations, in order."""
    text = equations_text(make_program(function, as_recorded=True)(*(args or (1.0, 2.0))), source=False)
    return [line.split(":")[0].strip() if line.count(":") == 1 or " = " in line else line
            for line in text.split("\n}")[0].splitlines()[1:] if " = " in line and not line.startswith("  captured ")]


def test_assignments() -> None:
    def function(x: Any, y: Any) -> Any:
        total = add(x, y)
        product: Any = mul(total, y)
        both = again = sin(product)
        if (walrus := neg(both)) is not None:
            pass
        chosen = tanh(walrus) if again is not None else None
        u, v = neg(chosen), (sin(x))
        return add(u, v)

    assert names(function) == ["total", "product", "both", "walrus", "chosen", "u", "v", "a"]


def test_a_name_used_again_is_counted() -> None:
    def function(x: Any, y: Any) -> Any:
        h_1 = sin(y)
        h = sin(x)
        h = neg(h)
        x = tanh(h)
        return add(x, h_1)

    assert names(function) == ["h_1", "h", "h_2", "x_1", "a"]


def test_the_rounds_of_a_loop() -> None:
    def function(x: Any, y: Any) -> Any:
        for _ in range(2):
            x = mul(x, y)
        for _ in range(2):
            x = mul(x, y)
            y = neg(x)
        return x

    assert names(function) == ["x_1", "x_2", "x_3", "y_1", "x_4", "y_2"]


class Operand:
    """Something with operators, as arrays have them."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __iadd__(self, other: Operand) -> Operand:  # noqa: PYI034  (arrays are values)
        return Operand(add(self.value, other.value))

    def __mul__(self, other: Operand) -> Operand:
        return Operand(mul(self.value, other.value))

    def negative(self) -> Operand:
        return Operand(neg(self.value))


def as_library(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as if it were written inside the package, so that its caller's line counts."""
    code = function.__code__.replace(co_filename="<fxgrad>")
    return types.FunctionType(code, function.__globals__, function.__name__, closure=function.__closure__)


for _name in ("__iadd__", "__mul__", "negative"):
    setattr(Operand, _name, as_library(getattr(Operand, _name)))


def test_operators_and_methods() -> None:
    def function(x: Any, y: Any) -> Any:
        first, second = Operand(x), Operand(y)
        first += second
        product = first * second
        chain = (product
                 .negative()
                 .negative())
        chain += (first * second)
        return chain.value

    assert names(function) == ["first", "product", "a", "chain", "b", "chain_1"]


def test_several_results() -> None:
    def function(x: Any, y: Any) -> Any:
        low, high = halves(x)
        pair = halves(y)
        return low, high, pair

    text = equations_text(make_program(function)(1.0, 2.0), source=False)
    assert "low: f64*[], high: f64*[] = halves(x)" in text
    assert "pair[0]: f64*[], pair[1]: f64*[] = halves(y)" in text


@as_library
def halves(x: Any) -> Any:
    return bind(split_p, x)


@as_library
def library(x: Any) -> Any:
    """A library function of several equations, recorded at one line of the user's."""
    return add(mul(sin(x), x), x)


def test_a_library_function_of_several_equations() -> None:
    def function(x: Any, y: Any) -> Any:
        result = library(x)
        return neg(result)

    assert names(function) == ["a", "b", "result", "c"]


def test_the_parts_of_a_sequence() -> None:
    """Where different operations make them, which is which is not known."""
    def function(x: Any, y: Any) -> Any:
        first, second = pieces(x)
        third, fourth = both(y)
        return add(add(first, second), add(third, fourth))

    assert names(function)[:4] == ["first", "a", "second", "b"]


@as_library
def pieces(x: Any) -> Any:
    return neg(x), neg(mul(x, x))


@as_library
def both(x: Any) -> Any:
    later = neg(x)
    return sin(x), later


def test_a_derivative_keeps_the_names_of_its_function() -> None:
    def function(x: Any) -> Any:
        h = tanh(x)
        y = mul(h, x)
        return sin(y)

    assert [name for name in names(grad(function), 1.0) if name in ("h", "y", "h_1", "y_1")] == ["h", "y"]


def test_equal_values_have_one_name() -> None:
    """The square that the derivative of `tanh` needs is the one that the function computes."""
    def function(x: Any) -> Any:
        h = tanh(x)
        y = mul(h, h)
        return sin(y)

    assert [name for name in names(grad(function), 1.0) if name in ("h", "y", "h_1", "y_1")] == ["h", "y"]


def test_a_derivative_takes_no_name_of_a_value_that_is_not_computed() -> None:
    def function(x: Any) -> Any:
        inner = mul(x, 3.0)
        outer = mul(inner, 2.0)
        last = neg(outer)
        return last

    assert not {"inner", "outer", "last"} & {*names(grad(function), 1.0)}


def test_the_variable_that_a_program_is_assigned_to_is_none_of_it() -> None:
    program = make_program(grad(lambda x: sin(x)))(1.0)
    assert "program:" not in equations_text(program)


def test_words_of_the_text_form_are_no_names() -> None:
    def function(x: Any, inf: Any) -> Any:
        captured = add(x, inf)
        nan = sin(captured)
        return nan

    program = make_program(function)(1.0, 2.0)
    assert names(function) == ["captured_1", "nan_1"]
    assert "`inf`: f64*[]" in equations_text(program)
    assert equations_text(parse(equations_text(program))) == equations_text(program, source=False)


def test_letters_skip_what_is_taken_and_keywords() -> None:
    variables = [Variable(SCALAR) for _ in range(800)]
    text = equations_text(Program(variables, [], []))
    found = [line.split(":")[0] for line in text.replace(",", "\n").split("(")[1].split(")")[0].split()]
    found = [name for name in found if name and "[" not in name]
    assert found[:3] == ["a", "b", "c"]
    assert found[25:28] == ["z", "aa", "ab"]
    assert not {"as", "if", "in", "is", "or"} & {*found}
    assert len({*found}) == 800


def test_captured_values_are_called_as_in_the_code() -> None:
    inner = OTHER

    def function(x: Any) -> Any:
        return add(mul(x, LEVEL), inner)

    lines = equations_text(make_program(function)(np.float32(1.0))).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:3]] == [
        "captured LEVEL", "captured inner"]


def test_a_captured_value_does_not_get_the_name_of_another() -> None:
    """In the last line one of the two is a local variable, and the name that is free there is the other's."""
    def function(x: Any) -> Any:
        y = mul(x, LEVEL)
        local = OTHER
        return fxgrad.numpy.where(y > 0, LEVEL, local)

    text = equations_text(make_program(function)(np.float32(1.0)))
    assert "captured LEVEL: " in text
    assert "LEVEL_1" not in text


def test_captured_values_in_doubt_get_letters() -> None:
    assert "captured a: f32[2]" in equations_text(make_program(lambda x: bind(keep_p, x, LEVEL, OTHER)[0])(1.0))


def test_a_signature_that_repeats_a_name() -> None:
    inputs = [Variable(SCALAR), Variable(SCALAR)]
    program = Program(inputs, [], inputs, signature=Signature("f", ("x", "x"), None, None))
    assert equations_text(program).splitlines()[0] == "program f(x: f32[], x_1: f32[]) {"


def test_code_without_a_file() -> None:
    namespace: dict[str, Any] = {"sin": sin}
    exec(compile("def function(x):\n    y = sin(x)\n    return y\n", "<nowhere>", "exec"), namespace)
    assert equations_text(make_program(namespace["function"])(1.0)) == """\
program function(x: f64*[]) {
  a: f64*[] = sin(x)  # <nowhere>:2
  return a
}"""


def test_a_file_that_cannot_be_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def getlines(filename: str, module_globals: Any = None) -> list[str]:
        raise IndexError(filename)

    program = make_program(lambda x: sin(x))(1.0)
    monkeypatch.setattr("linecache.getlines", getlines)
    assert "a: f64*[] = sin(x)  # test_variable_names.py:" in equations_text(program)


@pytest.mark.parametrize("content", ["def (", "x = 1\n", "\0"])
def test_a_file_that_changed_or_does_not_parse(content: str, tmp_path: Any) -> None:
    path = tmp_path / "model\n.py"
    path.write_text(content)
    namespace: dict[str, Any] = {"sin": sin}
    exec(compile("def function(x):\n    y = sin(x)\n    return y\n", str(path), "exec"), namespace)
    assert "a: f64*[] = sin(x)  # model?.py:2" in equations_text(make_program(namespace["function"])(1.0))


def test_names_inside_library_calls_are_those_of_the_library() -> None:
    @library_function
    def inside(x: Any) -> Any:
        middle = sin(x)
        return neg(middle)

    text = equations_text(make_program(lambda x: inside(x))(1.0), source=False)
    assert "  middle: f64*[] = sin(x)" in text


def test_cotangents_are_counted_as_what_they_are_of() -> None:
    def function(x: Any) -> Any:
        h = sin(x)
        h = tanh(mul(h, h))
        h = sin(mul(h, x))
        return mul(h, h)

    program = make_program(grad(function))(1.0)
    found = own_names(program, Sources())
    made = {name: number for number, name in enumerate(found.values())}
    assert {"h", "h_1", "d_h", "d_h_1"} <= made.keys()
    assert made["d_h"] > made["d_h_1"]  # backwards


def test_modules_are_no_names_of_arrays() -> None:
    library = fxgrad.numpy
    level = np.array([1.0, 2.0])
    program = make_program(lambda x: library.add(x, level))(np.ones(2))
    assert "level" in own_names(program, Sources()).values()
    assert "library" not in own_names(program, Sources()).values()


def test_the_derivative_of_a_call_is_named() -> None:
    for function, made in ((fxgrad.nn.softplus, "logistic(z)"), (fxgrad.nn.sigmoid, "s * (1 - s)")):
        def loss(v: Any, function: Any = function) -> Any:
            z = v * 2.0
            s = function(z)
            return np.sum(s)

        shown = program_text(fxgrad.make_program(fxgrad.grad(loss))(np.ones(3)), source=False)
        assert f"  d_z: f64[3] = {made}\n" in shown


def test_provenance_is_that_of_the_outputs_of_its_own_equation() -> None:
    """Not of equations that are derived of it: the derivative of a stack has several outputs, where that has one."""
    def field(x: Any) -> Any:
        return fxgrad.numpy.stack([x[0] * x[1], fxgrad.numpy.sin(x[2]) * x[0], x[1] ** 2])
    program = make_program(fxgrad.divergence(field))(np.array([0.3, -0.7, 1.1]))
    slope = grad(lambda x: program(x))(np.array([0.3, -0.7, 1.1]))  # checking prints the program of the gradient
    np.testing.assert_allclose(slope, [0.0, 1.0, 0.0], atol=1e-15)
