"""Errors of compact texts: what is wrong, and where."""

from __future__ import annotations

import pytest

from fxgrad.errors import FxgradError, ProgramError, ProgramSyntaxError
from fxgrad.text import parse

TEXTS = [
    ("program f(x: f32[3]): return y",
     ProgramSyntaxError, "line 1, column 30: no input and no equation above has bound the name 'y'"),
    ("program f(x: f32[3]): return sine(x)",
     ProgramSyntaxError, ("line 1, column 30: there is no operation and no definition of the name "
                         "'sine' (did you mean 'sin'?); operations of your own are passed as "
                         "parse(text, primitives=[...])")),
    ("program f(x): return x",
     ProgramSyntaxError, "line 1, column 11: the input 'x' has no type; write x: f32[3]"),
    ("program f(x: f32[3]) -> f32: return x",
     ProgramError, "line 1, column 1: the program returns f32[3], and its head says f32[]"),
    ("program f(x: f32[3]): y: f32[4] = x + x return y",
     ProgramError, "line 1, column 23: y is f32[3] here, and the text says f32[4]"),
    ("program f(x: f32[3]): y = x return y",
     ProgramSyntaxError, ("line 1, column 23: what no operation makes gets no second name; write the "
                         "first where it is used")),
    ("program f(x: f32[3]): y, z = x + x return y",
     ProgramSyntaxError, "line 1, column 23: the number of results is 1, and that of the names before '=' is 2"),
    ("program f(x: f32[3]): x = x + x return x",
     ProgramSyntaxError, "line 1, column 23: the name 'x' is bound already"),
    ("program f(x: f32[3]): return x < x < x",
     ProgramSyntaxError, "line 1, column 36: expected one comparison at a time: write (a < b) & (b < c), found '<'"),
    ("program f(x: f32[3]): return -2.0 ** x",
     ProgramSyntaxError, "line 1, column 30: write (-x) ** y or -(x ** y) of a negative number"),
    ("program f(x: f32[3]): return (x, x)",
     ProgramSyntaxError, "line 1, column 31: only numbers, types and tuples of them stand in a tuple"),
    ("program f(x: f32[3]): return x[5]",
     ProgramSyntaxError, "line 1, column 30: the index 5 is out of range for an axis of size 3"),
    ("program f(x: f32[3]): return x[0, 0]",
     ProgramSyntaxError, "line 1, column 31: an index with 2 items of an array with 1 axis"),
    ("program f(x: f32[3]): return x[x]",
     ProgramError, ("line 1, column 31: gather refuses its inputs: gather (indices): not defined for "
                   "float32; it takes integer dtypes. Convert first, for example x.astype('int32')")),
    ("program f(x: f32[3], i: i32[2]): return x[i, None]",
     ProgramSyntaxError, ("line 1, column 42: arrays stand in an index beside full ranges alone: "
                         "x[i], x[:, i, j]; for others write gather(x, indices)")),
    ("program f(x: f32[3], i: i32[2]): return take(x, i, axis=1)",
     ProgramSyntaxError, ("line 1, column 41: take takes an array, indices and an axis of the array: "
                         "take(x, i, axis=0)")),
    *[(f"program f(x: f32[3], i: i32[2]): return take(x, i{axis})",
       ProgramSyntaxError, ("line 1, column 41: take takes an array, indices and an axis of the array: "
                           "take(x, i, axis=0)")) for axis in ("", ", axis=None", ", axis=False", ", axis=-1")],
    ("program f(x: f32[3]): return x[0:i]",
     ProgramSyntaxError, "line 1, column 34: expected a whole number, ':', ',' or ']', found 'i'"),
    ("program f(x: f32[3]): return x @ x.T",
     ProgramSyntaxError, "line 1, column 32: @ has no meaning here, with operands f32[3], f32[3]"),
    ("program f(x: f32[3]): return sum(x, axis=3)",
     ProgramError, ("line 1, column 30: reduce_sum refuses its inputs: sum: axes (3,) of an array of "
                   "shape (3,); distinct axes from 0 to 0 are needed")),
    ("program f(x: f32[3]): return sum(x, axes=0)",
     ProgramSyntaxError, "line 1, column 30: sum has no meaning here, with operands f32[3]"),
    ("program f(x: f32[3]): return x + 2:f64",
     ProgramError, ("line 1, column 32: add refuses its inputs: add: dtypes float32 and float64 "
                   "differ, where equal ones are needed; convert one with x.astype(...), or call the function of "
                   "fxgrad.numpy, which promotes")),
    ("program f(x: f32[3]): return x.y",
     ProgramSyntaxError, "line 1, column 30: no input and no equation above has bound the name 'x.y'"),
    ("program f(x: f32[3]): return (x + x).S",
     ProgramSyntaxError, "line 1, column 37: expected 'where' or the end of the text after a program, found '.'"),
    ("program f(x: f32[3]): return f(x)",
     ProgramSyntaxError, ("line 1, column 30: there is no operation and no definition of the name "
                         "'f'; operations of your own are passed as "
                         "parse(text, primitives=[...])")),
    ("program f(x: f32[3]): return checkpoint(g)(x)",
     ProgramSyntaxError, "line 1, column 30: the program 'g' is not defined: where g(inputs): ... is needed"),
    ("program f(x: f32[3]): y = g(x, 1) return y where g(x: f32[3]): return x",
     ProgramError, ("line 1, column 27: named_call refuses its inputs: g: the program called takes "
                   "[f32[3]], got [f32[3], f32[]]")),
    ("program f(x: f32[3]): return scan(carry(x))",
     ProgramSyntaxError, "line 1, column 35: scan with operands by role or name needs ':' and its programs"),
    ("program f(x: f32[3]): y = scan(carry(a=x), over(b=2.0)): return a return y",
     ProgramSyntaxError, "line 1, column 49: over(b=...) needs an array with an axis to go along, got f64*[]"),
    ("program f(x: f32[3]): y = cond(0, x): 0: return x 2: return x return y",
     ProgramSyntaxError, "line 1, column 27: cond: the branches have the labels 2, 0"),
    ("program f(x: f32[3]): y = while(carry(x)): condition: return x return y",
     ProgramSyntaxError, "line 1, column 71: expected ':' after the label of a program, found 'y'"),
    ("program f(x: f32[3]): sin(x) return x",
     ProgramSyntaxError, "line 1, column 23: the number of results is 1, and that of the names before '=' is 0"),
    ("program f(x: f32[3]): y = sin(x)",
     ProgramSyntaxError, ("line 1, column 33: expected a statement (name = ...) or 'return', found "
                         "the end of the text")),
    ("program f(x: f32[3]): return sin(x",
     ProgramSyntaxError, ("line 1, column 35: expected an operator, ',' or ')' after an argument, "
                         "found the end of the text")),
    ("program f(x: f32[3]): return x +",
     ProgramSyntaxError, "line 1, column 33: expected an operand, found the end of the text"),
    ("program f(x: f32): y = while(carry(x)): step: return x back: return x return y",
     ProgramSyntaxError, ("line 1, column 24: while: the programs have the labels step, back; condition, body are "
                         "needed")),
    (("program f(x: f32): y = custom_root(guess(x)): solve: return x function(given(x)): return x "
      "tangent_solve: None cotangent_solve: None return y"),
     ProgramSyntaxError, "line 1, column 78: given(x) needs a type, as no operand has it: given(x: f32[3])"),
    ("program f(x: f32): y = while(carry(x)): condition: far body: return x return y",
     ProgramSyntaxError, "line 1, column 52: the program 'far' is not defined: where far(inputs): ... is needed"),
    ("program f(x: f32[3]): return sin(axis=0, x)",
     ProgramSyntaxError, ("line 1, column 42: expected a parameter (name=value): operands stand "
                         "before parameters, found 'x'")),
    ("program f(x: f32[3]): return x ? x",
     ProgramSyntaxError, "line 1, column 32: '?' has no meaning here"),
    ("program f(x: f32[3]): return reshape(x, (3, y))",
     ProgramSyntaxError, "line 1, column 45: only numbers, types and tuples of them stand in a tuple"),
    ("program f(x: f32[3]): return <rule>(x)",
     ProgramSyntaxError, ("line 1, column 30: expected 'where' or the end of the text after a "
                         "program, found '<rule>'")),
    ("program f(x: f32[3]): return keep(x, rule=<rule>)",
     ProgramSyntaxError, ("line 1, column 43: <rule> stands for a Python object, which text does not "
                         "hold: reading a program never makes objects other than numbers, names and containers "
                         "of them")),
]


@pytest.mark.parametrize(("text", "error", "message"), TEXTS)
def test_messages(text: str, error: type[FxgradError], message: str) -> None:
    with pytest.raises(FxgradError) as raised:
        parse(text)
    first, line, mark = str(raised.value).split("\n")
    assert (type(raised.value), first) == (error, message)
    column = int(message.split("column ")[1].partition(":")[0])
    start = max(0, min(column - 60, len(text) - 100))
    assert line == f"  {text[start:start + 100]}"
    assert mark.index("^") == column + 1 - start


def test_the_place_of_an_error_in_a_block() -> None:
    with pytest.raises(ProgramSyntaxError) as raised:
        parse("program f(x: f32[3]):\n  y = scan(carry(a=x), length=2):\n    return b\n  return y")
    assert str(raised.value) == (
        "line 3, column 12: no input and no equation above has bound the name 'b'\n"
        "      return b\n             ^")
