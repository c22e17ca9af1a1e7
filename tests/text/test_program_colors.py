"""Colours: which word gets which, and when there are none."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import fxgrad
from fxgrad.text import equal, parse, print_program, program_text, render
from fxgrad.text.color import STYLES, highlight
from fxgrad.text.roles import VARIABLES, structure

TEXT = """\
program loss(params.w: f32[3], `argument 0`: f32[]) {
  captured c: f32[3] = [1.0, 2.0, 3.0]
  h: f32[3] = mul(params.w, 2.0:f32)  # model.py:12
  total: f32[] = squares(h)
  a: f32[] = checkpoint squares(h, name="block")
  return total, c, a
}

where squares = program (h: f32[3]) {
  b: f32[] = reduce_sum(h, axes=(0,))
  return b
}"""


def styles(word: str, text: str = TEXT) -> list[str]:
    """The styles of all occurrences of a word."""
    rich = highlight(text)
    result = []
    for match in re.finditer(rf"(?<![\w.`]){re.escape(word)}(?![\w])", text):
        found = [str(span.style) for span in rich.spans if span.start <= match.start() and match.end() <= span.end]
        result.append(found[0] if found else "")
    return result


@pytest.mark.parametrize(("word", "roles"), [
    ("loss", ["title"]),
    ("params.w", ["input", "input"]),
    ("`argument 0`", ["input"]),
    ("c", ["input", "input"]),
    ("f32[3]", ["type"] * 4),
    ("f32", ["type"] * 9),
    ("2.0", ["literal", "literal"]),
    ("mul", ["primitive"]),
    ("total", ["variable", "variable"]),
    ("squares", ["function"] * 3),
    ("checkpoint", ["primitive"]),
    ("name", ["parameter"]),
    ('"block"', ["literal"]),
    ("h", ["letter", "letter", "letter", "input", "input"]),  # nothing in the text says that it is a name
    ("return", ["keyword", "keyword"]),
    ("program", ["keyword", "keyword"]),
    ("# model.py:12", ["comment"]),
    ("axes", ["parameter"]),
])
def test_roles(word: str, roles: list[str]) -> None:
    assert styles(word) == [STYLES[role] for role in roles]


COMPACT = """\
program grad(loss, [w])(w, x: f32[3], `argument 0`: f32):  # model.py
  captured scale: f32[3] = [1.0, 2.0, 3.0]
  last: f32, b: f32[3] = scan(carry(c=x[0], total=0.0), over(v=w.T), consts(scale),  # 12
      reverse=True):
    grown = tanh(c * v + squares(scale))
    return grown, total, grown.reshape((1,), axis=0)
  a: f32 = cond(i32(last > 0), x=last):
    0: return sin(x)
    1(captured(y=b)):
      h = y * 2.0:f32
      return h[1, :2]
  return a + b[1:], x

where squares(x: f32[3]) -> f32[3]:
  return x ** 2"""


@pytest.mark.parametrize(("word", "roles"), [
    ("grad", ["title"]), ("w", ["title", "input", "input"]), ("`argument 0`", ["input"]),
    ("x", ["input", "input", "letter", "letter", "input", "input", "input"]),
    ("scale", ["input", "input", "input"]), ("last", ["variable"] * 3), ("b", ["letter", "letter", "letter"]),
    ("c", ["letter", "letter"]), ("total", ["variable", "variable"]), ("grown", ["variable"] * 3),
    ("scan", ["primitive"]), ("carry", ["keyword"]), ("reverse", ["parameter"]), ("axis", ["parameter"]),
    ("squares", ["function", "function"]), ("tanh", ["primitive"]),
    ("# 12", ["comment"]), ("where", ["keyword"]), ("i32", ["primitive"]), ("return", ["keyword"] * 5),
    ("h", ["letter", "letter"]),
])
def test_roles_of_the_compact_style(word: str, roles: list[str]) -> None:
    assert styles(word, COMPACT) == [STYLES[role] for role in roles]


def test_variables_of_the_compact_style_belong_to_their_programs() -> None:
    """The program of a name is the innermost one that has bound it."""
    found = [(COMPACT[word.start:word.end], word.scope, word.binds) for word in structure(COMPACT).words
             if word.role in VARIABLES and COMPACT[word.start:word.end] in ("x", "c", "y", "scale", "h")]
    assert found == [
        ("x", 1, True), ("scale", 1, True), ("c", 2, True), ("x", 1, False), ("scale", 1, False), ("c", 2, False),
        ("scale", 1, False), ("x", 3, True), ("x", 3, False), ("y", 5, True), ("h", 5, True), ("y", 5, False),
        ("h", 5, False), ("x", 1, False), ("x", 6, True), ("x", 6, False)]


def test_what_folds() -> None:
    """From the end of a head's line to the end of the last line of the program."""
    lines = [(COMPACT[begin:].lstrip("\n").split("\n")[0].strip(), COMPACT[:end].rpartition("\n")[2].strip())
             for begin, end in structure(COMPACT).folds]
    assert lines == [
        ("grown = tanh(c * v + squares(scale))", "return grown, total, grown.reshape((1,), axis=0)"),
        ("0: return sin(x)", "return h[1, :2]"), ("h = y * 2.0:f32", "return h[1, :2]"),
        ("return x ** 2", "return x ** 2")]
    assert [TEXT[begin:end].strip() for begin, end in structure(TEXT).folds] == [
        "b: f32[] = reduce_sum(h, axes=(0,))\n  return b"]


def test_names_of_users_are_strong_however_short() -> None:
    def square(x):
        h = x * 2.0
        return h * h

    text = render(fxgrad.make_program(square)(1.0), color=True, source=False, style="equations")
    found = {text.plain[span.start:span.end]: str(span.style) for span in text.spans}
    assert (found["h"], found["a"]) == (STYLES["variable"], STYLES["letter"])


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_colours_change_no_character() -> None:
    program = parse(TEXT)
    assert highlight(TEXT).plain == TEXT
    colored = program_text(program, color=True)
    assert colored != plain(colored) == program_text(program)


def output(program: Any, terminal: bool, **options: Any) -> str:
    file = io.StringIO()
    if terminal:
        Console(file=file, force_terminal=True, width=300).print(program)
    else:
        print_program(program, file=file, **options)
    return file.getvalue()


def test_printing() -> None:
    program = parse(TEXT)
    assert output(program, terminal=False) == str(program) + "\n"
    assert "\x1b[" in output(program, terminal=False, color=True)
    assert output(program, terminal=False, color=False, source=False) == str(program) + "\n"
    assert "\x1b[" in output(program, terminal=True)


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    program = parse(TEXT)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not render(program).spans
    assert render(program, color=True).spans
    assert output(program, terminal=True) == str(program) + "\n"
    monkeypatch.delenv("NO_COLOR")
    assert render(program).spans
    assert not render(program, color=False).spans


@pytest.mark.parametrize("text", [
    "", "}", "program", "where", "captured", "x: f32[", "$ $ program f(x", "program f(x):\n", "program f(x):\n = :",
    "program f(x: f32):\n  a = b(:\n c", "where f", "program f(x):\n    : :\n  =\n:"])
def test_any_text_can_be_coloured(text: str) -> None:
    assert highlight(text).plain == text


SHORT = """\
program grad(loss)(params.w, x: f32[3]):  # model.py
  captured scale: f32 = 2.0
  h: f32[3] = tanh(params.w * x)  # 12
  a = h * scale
  state: f32[3], ys: f32[2,3] = scan(carry(state=a), captured(x), length=2):
    b: f32[3] = where(state > 0.5, state, x)
    return b, b
  return sum(state, axis=0), squares(ys)

where squares(h: f32[2,3]) -> f32[2,3]:
  return h ** 2"""


@pytest.mark.parametrize(("word", "roles"), [
    ("program", ["keyword"]), ("where", ["primitive", "keyword"]), ("loss", ["title"]), ("grad", ["title"]),
    ("params.w", ["input", "input"]), ("x", ["input"] * 4), ("scale", ["input", "input"]), ("f32[3]", ["type"] * 4),
    ("h", ["letter", "letter", "input", "input"]), ("a", ["letter", "letter"]), ("tanh", ["primitive"]),
    ("scan", ["primitive"]), ("carry", ["keyword"]), ("length", ["parameter"]), ("axis", ["parameter"]),
    ("squares", ["function", "function"]), ("2.0", ["literal"]), ("# model.py", ["comment"]), ("b", ["letter"] * 3),
])
def test_roles_in_compact_text(word: str, roles: list[str]) -> None:
    found = styles(word, SHORT)
    assert found == [STYLES[role] if role else "" for role in roles]


def test_compact_colours_change_no_character() -> None:
    assert highlight(SHORT).plain == SHORT
    assert parse(SHORT).signature is not None


def network(weights: Any, inputs: Any) -> Any:
    hidden_values = np.tanh(inputs @ weights["first_layer"] + weights["first_bias"])
    return hidden_values @ weights["second_layer"] + weights["second_bias"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_the_terminal_with_their_comments(width: int) -> None:
    weights = {"first_layer": np.ones((3, 4)), "first_bias": np.ones(4), "second_layer": np.ones((4, 2)),
               "second_bias": np.ones(2)}
    program = fxgrad.make_program(network)(weights, np.ones(3))
    file = io.StringIO()
    Console(file=file, force_terminal=True, width=width, no_color=True).print(program)
    shown = plain(file.getvalue())
    assert max(map(len, shown.splitlines())) <= width
    line = network.__code__.co_firstlineno + 1
    assert re.search(rf"# {line}$", shown, re.MULTILINE)
    assert equal(parse(shown), program)  # no word was broken
