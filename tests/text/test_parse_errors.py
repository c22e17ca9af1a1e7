"""What malformed text is told, word for word: line, column, what was found, what was expected."""

from __future__ import annotations

import numpy as np
import pytest

from fxgrad.errors import ArgumentError, ProgramError, ProgramSyntaxError
from fxgrad.text import parse, program_text
from tests.support.show_programs import CLASSES, USER, with_constant


def message(text: str, error: type[Exception] = ProgramSyntaxError) -> str:
    with pytest.raises(error) as caught:
        parse(text, USER, CLASSES)
    return str(caught.value)


# The text of a program, in which ... is replaced, and the first line of the message.
BODY = "program f(x: f32[3]) {\n  ...\n}"

CASES = [
    ("", "", "line 1, column 1: expected 'program' at the beginning of a program, found the end of the text"),
    ("porgram f(x: f32[3]) {", "",
     "line 1, column 1: expected 'program' at the beginning of a program, found 'porgram'"),
    ("program f[x]", "", "line 1, column 10: expected '(' before the inputs of the program, found '['"),
    ("program f(x) {", "", "line 1, column 12: expected ':' and a type after 'x', found ')'"),
    ("program f(x: float32) {", "", "line 1, column 14: expected a type such as f32[3,4], found 'float32'"),
    ("program f(x: f33[2]) {", "",
     ("line 1, column 14: there is no dtype 'f33'; there are bool, u8, u16, u32, u64, i8, i16, i32, i64, bf16, "
      "f16, f32, f64, c64, c128, f8_e3m4, f8_e4m3, f8_e4m3b11fnuz, f8_e4m3fn, f8_e4m3fnuz, f8_e5m2, f8_e5m2fnuz, "
      "f8_e8m0fnu, f4_e2m1fn, int2, int4, uint2, uint4")),
    ("program f(x: f32[2,,3]) {", "",
     "line 1, column 14: expected a type such as f32[3,4], with sizes between commas, found 'f32[2,,3]'"),
    ("program f(x: f32[] y: f32[]) {", "", "line 1, column 20: expected ',' or ')' after an input, found 'y'"),
    ("program f(2: f32[]) {", "", "line 1, column 11: expected the name of an input, found '2'"),
    ("program f(nan: f32[]) {", "", "line 1, column 11: expected the name of an input, found 'nan'"),
    ("program f(x: f32[], x: f32[]) { return }", "", "line 1, column 21: the name 'x' is bound already"),
    ("program f(x: f32[])\nreturn x", "", "line 2, column 1: expected '{' before the equations, found 'return'"),
    ("program f(x: f32[]) { return x } and", "",
     "line 1, column 34: expected 'where' or the end of the text after a program, found 'and'"),
    (BODY, "y: f32[3] = sin(x)", "line 3, column 1: expected an equation (name: type = ...) or 'return', found '}'"),
    (BODY, "y = sin(x) return y", "line 2, column 5: expected ':' and a type after 'y', found '='"),
    (BODY, "y: f32[3] sin(x)", "line 2, column 13: expected '=' after the results of an equation, found 'sin'"),
    (BODY, "y: f32[3], 3 = sin(x)", "line 2, column 14: expected the name of a result, found '3'"),
    (BODY, "y: f32[3] = (x)", "line 2, column 15: expected the name of an operation, found '('"),
    (BODY, "y: f32[3] = sin x", "line 3, column 1: expected '(' after the name of an operation, found '}'"),
    (BODY, "y: f32[3] = sin(x", "line 3, column 1: expected ',' or ')' after an argument, found '}'"),
    (BODY, "y: f32[3] = sin(x=)", "line 2, column 21: expected the value of a parameter, found ')'"),
    (BODY, "y: f32[3] = sin(axis=1, x)",
     "line 2, column 27: expected a parameter (name=value): operands stand before parameters, found 'x'"),
    (BODY, "y: f32[3] = sin(x, a=1, a=2)", "line 2, column 27: the parameter 'a' is given twice"),
    (BODY, "y: f32[3] = sin(x, ])",
     "line 2, column 22: expected an operand, a parameter (name=value) or ')', found ']'"),
    (BODY, "y: f32[3] = sni(x) return y",
     ("line 2, column 15: there is no operation and no definition of the name 'sni' (did you mean 'sin'?); "
      "operations of your own are passed as parse(text, primitives=[...])")),
    (BODY, "y: f32[3] = sin(z) return y", "line 2, column 19: no input and no equation above has bound the name 'z'"),
    (BODY, "y: f32[3] = sin(x) return total",
     "line 2, column 29: no input and no equation above has bound the name 'total'"),
    (BODY, "total: f32[3] = sin(x) return totla",
     "line 2, column 33: no input and no equation above has bound the name 'totla' (did you mean 'total'?)"),
    (BODY, "x: f32[3] = sin(x) return x", "line 2, column 3: the name 'x' is bound already"),
    (BODY, "y: f32[3] = mul(x, 2.5:i32) return y", "line 2, column 22: 2.5 is not a number of dtype int32"),
    (BODY, "y: f32[3] = mul(x, 300:u8) return y", "line 2, column 22: 300 is out of the range of uint8"),
    (BODY, "y: f32[3] = mul(x, 1e39:f32) return y", "line 2, column 22: 1e+39 is out of the range of float32"),
    (BODY, "y: f32[3] = mul(x, True:f32) return y", "line 2, column 22: True is not a number of dtype float32"),
    (BODY, "y: f32[3] = mul(x, 2:float) return y",
     "line 2, column 24: expected a dtype such as f32 after a number and ':', found 'float'"),
    (BODY, "y: f32[3] = mul(x, nan(0x1):f32) return y",
     "line 2, column 22: 0x1 are not the bits of a NaN of dtype float32"),
    (BODY, "y: f32[3] = mul(x, nan(1)) return y",
     "line 2, column 26: expected the bits of a NaN, such as 0x7fc00001, found '1'"),
    (BODY, "y: f32[3] = mul(x, complex(1, True)) return y", "line 2, column 33: expected a real number"),
    (BODY, "y: f32[3] = keep(x, a=<rule>) return y",
     ("line 2, column 25: <rule> stands for a Python object, which text does not hold: reading a program never "
      "makes objects other than numbers, names and containers of them")),
    (BODY, "y: f32[3] = keep(x, a=float32) return y",
     "line 2, column 25: 'float32' is neither a dtype nor a program defined under 'where'"),
    (BODY, "y: f32[3] = keep(x, a=(1, 2]) return y",
     "line 2, column 30: expected ',' or ')' after an item, found ']'"),
    (BODY, "y: f32[3] = keep(x, a=Number(axes=1)) return y",
     ("line 2, column 25: there is no class 'Number' for parameters (did you mean 'Numbers'?); named tuples and "
      "enumerations of your own are passed as parse(text, classes=[...])")),
    (BODY, "y: f32[3] = keep(x, a=Numbers(axis=1)) return y",
     "line 2, column 25: the fields of Numbers are Numbers(axes=..., size=...)"),
    (BODY, "y: f32[3] = keep(x, a=Mode.NONE) return y", "line 2, column 25: Mode has no member 'NONE'"),
    (BODY, 'y: f32[3] = keep(x, a="\\x") return y',
     'line 2, column 25: "\\x" is not a string: escapes are those of JSON'),
    (BODY, "y: f32[3] = keep(x, a=$) return y", "line 2, column 25: '$' has no meaning here"),
    (BODY, "captured c: f32[2] = ... return c",
     ("line 2, column 24: the elements of this array were left out when the program was printed; print it with "
      "program_text(program, constants=True) to read it back")),
    (BODY, "captured c: f32[2] = [1.0] return c",
     "line 2, column 24: the elements make an array of shape (1,), where the type is f32[2]"),
    (BODY, "captured c: f32[0] = [1.0] return c",
     "line 2, column 24: the elements make an array of shape (1,), where the type is f32[0]"),
    (BODY, "captured c: f32[2,2] = [[1.0, 2.0], [3.0]] return c",
     "line 2, column 26: the rows are not of equal lengths"),
    (BODY, "captured c: i32[1] = [1.5] return c", "line 2, column 24: 1.5 is not a number of dtype int32"),
    (BODY, "captured c: i32[1] = @C return c",
     "line 2, column 24: the array @C is not defined: where @C = [...] is needed"),
    (BODY, "captured c: i32[] = 1 captured d: i32[] return c",
     ("line 2, column 34: the captured value 'd' has no constant, and others have one; either all have or none "
      "has")),
    (BODY, "y: f32[3] = checkpoint block(x) return y",
     "line 2, column 15: the program 'block' is not defined: where block = program ... is needed"),
    (BODY + " where sin = 3", "return x",
     "line 3, column 15: expected 'program' at the beginning of a program, found '3'"),
    (BODY + " where = 3", "return x",
     "line 3, column 9: expected the name of a program or of an array (@name) after 'where', found '='"),
    (BODY + " where f = program (a: f32[3]) { b: f32[3] = f(a) return b }", "y: f32[3] = f(x) return y",
     "line 3, column 47: the program 'f' refers to itself"),
    (BODY + " where f = program () { return } where f = program () { return }", "return x",
     "line 3, column 41: 'f' is defined twice"),
    (BODY + " where f = program (a: f32[3]) { return a }", "y: f32[3] = f(x, axis=1) return y",
     "line 2, column 15: a call of the program 'f' has one parameter at most, name=\"...\""),
    (BODY, f"y: f32[3] = keep(x, a={'(' * 100}1{')' * 100}) return y",
     "line 2, column 86: brackets are nested more than 60 deep"),
]


@pytest.mark.parametrize(("text", "inside", "expected"), CASES)
def test_messages(text: str, inside: str, expected: str) -> None:
    assert message(text.replace("...", inside, 1) if inside else text).splitlines()[0] == expected


def test_what_is_no_text() -> None:
    for given, name in ((b"program", "bytes"), (None, "NoneType"), (parse("program f() { return }"), "Program")):
        with pytest.raises(ArgumentError) as caught:
            parse(given)  # type: ignore[arg-type]
        assert str(caught.value).split("\n")[0] == (
            f"parse takes the text of a program, got a {name}. Write parse(str(program)); load reads files of save")


def test_the_line_is_shown_with_a_mark() -> None:
    assert message("program f(x: f32[3]) {\n    y: f32[3] = sin(x =)\n    return y\n}") == """\
line 2, column 24: expected the value of a parameter, found ')'
      y: f32[3] = sin(x =)
                         ^"""


def test_of_a_long_line_the_part_around_the_place_is_shown() -> None:
    shown = message("program f(" + ", ".join(f"x{i}: f32[]" for i in range(100)) + ") { return y }").splitlines()
    assert shown[0].startswith("line 1, column 1210: no input and no equation above has bound the name 'y'")
    assert all(len(line) <= 102 for line in shown[1:])
    assert shown[1][shown[2].index("^")] == "y"


RULES = [
    ("y: f32[4] = sin(x)\n  return y",
     "line 2, column 15: sin gives f32[3] here, and the text says f32[4]"),
    ("y: f32[3], z: f32[3] = sin(x)\n  return y",
     "line 2, column 26: sin gives f32[3] here, and the text says f32[3], f32[3]"),
    ("() = sin(x)\n  return x",
     "line 2, column 8: sin gives f32[3] here, and the text says nothing"),
]


@pytest.mark.parametrize(("inside", "expected"), RULES)
def test_types_that_are_wrong(inside: str, expected: str) -> None:
    assert message(BODY.replace("...", inside), ProgramError).splitlines()[0] == expected


@pytest.mark.parametrize("inside", [
    "y: f32[3] = reduce_sum(x, axes=5) return y", "y: f32[3] = reduce_sum(x, axes=(None,)) return y",
    "y: f32[3] = sin() return y", "y: f32[3] = reduce_sum(x) return y",
    'y: f32[3] = convert_element_type(x, new_dtype="f32") return y',
    "y: f32[3] = named_call(x) return y", "y: f32[3] = named_call(x, program=3, name=4) return y",
])
def test_parameters_that_an_operation_does_not_take(inside: str) -> None:
    assert message(BODY.replace("...", inside), ProgramError).startswith("line 2, column 15: ")


def test_a_wrong_program_inside_another_is_found() -> None:
    text = """program (a: f32[3]) {
  b: f32[3] = f(a)
  return b
}
where f = program (a: f32[3]) {
  b: f32[4] = sin(a)
  return b
}"""
    assert message(text, ProgramError).startswith("line 6, column 15: sin gives f32[3] here")


def test_elided_constants() -> None:
    program = with_constant(np.arange(5000) ** 2)
    for style, column in (("compact", 27), ("equations", 27)):
        assert message(program_text(program, style=style)).startswith(
            f"line 2, column {column}: the elements of this array were left out")
        assert parse(program_text(program, style=style, constants=True)).constants[0][-1] == 4999 ** 2
