"""Editing equations one by one: what comes of it, what is refused and in which words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import errors, lax
from fxgrad.engine.core.program import Program
from fxgrad.engine.rooms import registry

X = np.array([0.5, -1.0, 2.0])


def model(x: Any, w: Any) -> Any:
    h = np.sin(x * w)
    y = np.exp(h) + 1.0
    return y * h


LINE = model.__code__.co_firstlineno
MODEL = fxgrad.make_program(model)(X, 2.0)


def text(program: Program) -> str:
    return fxgrad.text.program_text(program, source=False)


def run_as_file(program: Program, name: str) -> Callable[..., Any]:
    space: dict[str, Any] = {"__name__": "edited"}
    exec(program.to_python(), space)
    return space[name]  # type: ignore[no-any-return]


def test_finding() -> None:
    editor = MODEL.edit()
    assert [*editor.names] == ["x", "w", "h", "y"]
    assert editor.maker("h") is editor.find("sin")[0] is editor.find(registry["sin"])[0]
    assert [equation.primitive.name for equation in editor.find(line=LINE + 2)] == ["exp", "add"]
    assert [equation.primitive.name for equation in editor.users("h")] == ["exp", "mul"]
    assert editor.find("cosh") == []
    assert len(editor.equations) == 5
    assert repr(editor) == "<editor of model: 5 equations>"
    softmax = fxgrad.make_program(fxgrad.named_scope("head")(fxgrad.nn.softmax))(X).edit()
    assert softmax.find("softmax") == softmax.find("named_call") == softmax.find(scope="head")


def test_letters_are_those_that_the_program_prints_now() -> None:
    def unnamed(x: Any) -> Any:
        return np.tanh(np.sin(x) * 2.0) + np.cos(x) * np.tanh(np.sin(x) * 2.0)

    editor = fxgrad.make_program(unnamed)(X).edit()
    assert text(editor.program()) == """\
program unnamed(x: f64[3]) -> f64[3]:
  a = tanh(sin(x) * 2.0)
  return a + cos(x) * a"""
    assert editor.maker("a").primitive.name == "tanh"
    editor.insert(lambda x: x - 1.0, "x", name="shifted")
    editor.substitute("x", "shifted", only=editor.find("cos"))
    editor.replace(editor.find("tanh")[0], lambda s: s * 0.5 + np.sin(s) * np.sin(s))
    printed = text(editor.program())
    assert "b = " in printed
    for name in ("a", "b"):
        line = next(line for line in printed.splitlines() if line.strip().startswith(f"{name} = "))
        assert {"a": "mul", "b": "sin"}[name] == editor.maker(name).primitive.name, line
    loop = fxgrad.make_program(lambda x: lax.fori_loop(0, 3, lambda i, y: (y + 1.0) * (y + 1.0), x))(1.0)
    outer = loop.edit()
    body = outer.inside(outer.find("scan")[0])
    letter = re.search(r"(\w+) = y \+ 1.0", text(loop))
    assert letter is not None
    assert body.maker(letter[1]).primitive.name == "add"


def test_replacing() -> None:
    editor = MODEL.edit()
    editor.replace(editor.maker("h"), lambda angle: np.cos(angle) * 0.5)
    edited = editor.program()
    assert text(edited) == """\
program model(x: f64[3], w: f64*) -> f64[3]:
  h: f64[3] = cos(x * w) * 0.5
  y: f64[3] = exp(h) + 1.0
  return y * h"""
    h = np.cos(X * 2.0) * 0.5
    np.testing.assert_array_equal(edited(X, 2.0), (np.exp(h) + 1.0) * h)
    np.testing.assert_array_equal(run_as_file(edited, "model")(X, 2.0), edited(X, 2.0))
    np.testing.assert_array_equal(MODEL(X, 2.0), model(X, 2.0))  # which is what it was


def test_inserting_and_substituting() -> None:
    editor = MODEL.edit()
    clipped = editor.insert(lambda h: np.minimum(h, 0.5), "h", name="clipped")
    editor.substitute("h", clipped, only=[editor.find("exp")[0]])
    assert "y: f64[3] = exp(clipped) + 1.0\n  return y * h" in text(editor.program())
    editor.substitute("h", clipped)
    edited = editor.program()
    assert "y: f64[3] = exp(clipped) + 1.0\n  return y * clipped" in text(edited)
    h = np.minimum(np.sin(X * 2.0), 0.5)
    np.testing.assert_array_equal(edited(X, 2.0), (np.exp(h) + 1.0) * h)
    editor.substitute("w", 3.0)
    h = np.minimum(np.sin(X * 3.0), 0.5)
    np.testing.assert_array_equal(editor.program()(X, 2.0), (np.exp(h) + 1.0) * h)


def test_arrays_and_numbers_as_operands() -> None:
    editor = MODEL.edit()
    shifted = editor.insert(lambda x, table, k: x + table * k, "x", np.arange(3.0), 2.0)
    editor.substitute("x", shifted)
    table = np.ones(3)
    editor.replace(editor.find("exp")[0], lambda h: h * table)
    edited = editor.program()
    table[:] = 7.0  # a constant is a copy
    h = np.sin((X + np.arange(3.0) * 2.0) * 2.0)
    np.testing.assert_array_equal(edited(X, 2.0), (h + 1.0) * h)
    assert edited.captured == len(edited.constants) == 2
    assert fxgrad.text.equal(fxgrad.parse(str(edited)), edited)


def test_erasing() -> None:
    editor = MODEL.edit()
    editor.substitute("y", "h")
    editor.erase(editor.maker("y"))
    editor.erase(editor.find("exp")[0])
    assert text(editor.program()) == """\
program model(x: f64[3], w: f64*) -> f64[3]:
  h: f64[3] = sin(x * w)
  return h * h"""


def test_returning_other_values() -> None:
    editor = MODEL.edit()
    editor.returns({"value": editor.outputs[0], "hidden": ["h", editor.value("y")]})
    found = editor.program()(X, 2.0)
    np.testing.assert_array_equal(found["value"], MODEL(X, 2.0))
    np.testing.assert_array_equal(found["hidden"][0], np.sin(X * 2.0))
    editor.returns("h")
    assert [equation.primitive.name for equation in editor.program().equations] == ["mul", "sin"]  # no dead code


def test_equations_that_are_needed_earlier_move_there() -> None:
    editor = MODEL.edit()
    late = editor.insert(lambda w: w + 1.0, "w", after="y")
    editor.substitute("w", late, only=[editor.find("mul")[0]])
    h = np.sin(X * 3.0)
    np.testing.assert_array_equal(editor.program()(X, 2.0), (np.exp(h) + 1.0) * h)


def test_derived_programs() -> None:
    gradient = fxgrad.make_program(fxgrad.grad(lambda x, w: np.sum(model(x, w))))(X, 2.0)
    editor = gradient.edit()
    editor.replace(editor.maker("d_x"), lambda *operands: operands[0] * 0.0)
    assert not np.any(editor.program()(X, 2.0))
    assert np.any(gradient(X, 2.0))
    edited = MODEL.edit()
    edited.replace(edited.maker("h"), np.cos)
    np.testing.assert_allclose(
        fxgrad.grad(lambda x: np.sum(edited.program()(x, 2.0)))(X),
        fxgrad.grad(lambda x: np.sum((np.exp(np.cos(x * 2.0)) + 1.0) * np.cos(x * 2.0)))(X), rtol=1e-12)
    np.testing.assert_allclose(fxgrad.jit(edited.program())(X, 2.0), edited.program()(X, 2.0), rtol=1e-14)


def test_inside_loops_and_branches() -> None:
    def loop(x: Any) -> Any:
        y, _ = lax.scan(lambda c, _: (np.sin(c), None), x, None, 3)
        return lax.cond(y[0] > 0.0, lambda: y * 2.0, lambda: y * 3.0)

    editor = fxgrad.make_program(loop)(X).edit()
    body = editor.inside(editor.find("scan")[0])
    body.replace(body.find("sin")[0], lambda c: c * 0.5)
    assert editor.inside(editor.find("scan")[0]) is body
    branch = editor.inside(editor.find("cond")[0], "branch")
    branch.replace(branch.find("mul")[0], lambda y, k: y - k)
    edited = editor.program()
    for x in (X, -X):
        y = x / 8.0
        np.testing.assert_array_equal(edited(x), y * 2.0 if y[0] > 0.0 else y - 3.0)
    with pytest.raises(errors.ArgumentError, match=r"^edit: an array \(f64\[3\]\) cannot be added to a program that an "
                                                   r"operation holds\. Compute it of numbers and of values there"):
        body.insert(lambda c: c + X, "c")
    with pytest.raises(errors.ArgumentError, match=r"^edit: what an operation holds returns what the "
                                                   r"operation needs\."):
        body.returns("c")


def test_effects_stay() -> None:
    seen: list[float] = []
    editor = MODEL.edit()
    editor.insert(lambda h: fxgrad.debug.callback(lambda value: seen.append(float(value[0])), h), "h")
    editor.program()(X, 2.0)
    assert seen == [float(np.sin(1.0))]


# --- bad input ------------------------------------------------------------------------------------------------------

FILE = "test_editor.py"


@pytest.mark.parametrize(("change", "message"), [
    (lambda editor: editor.value("hh"), "edit: the program has no value 'hh'. Did you mean h?"),
    (lambda editor: editor.value("zzz"), "edit: the program has no value 'zzz'. It has x, w, h, y"),
    (lambda editor: editor.maker("x"), "edit: x is an argument, which no equation makes"),
    (lambda editor: editor.erase(editor.maker("h")),
     (f"edit: sin at {FILE}:{LINE + 1} makes h, which is used by exp at {FILE}:{LINE + 2} and used by mul at "
     f"{FILE}:{LINE + 3}. Let another value be used first: editor.substitute(value, other)")),
    (lambda editor: editor.erase(editor.find("mul")[-1]),
     (f"edit: mul at {FILE}:{LINE + 3} makes a value of type f64[3], which is output 0 of the program. Let another "
      "value be used first: editor.substitute(value, other)")),
    (lambda editor: editor.replace(editor.maker("h"), lambda a: a[:2]),
     (f"edit: the function returns f64[2] in the place of sin at {FILE}:{LINE + 1}, where f64[3] is needed. Give it "
      "results of the same shape and dtype")),
    (lambda editor: editor.replace(editor.maker("h"), lambda a: None),
     (f"edit: the function returns nothing in the place of sin at {FILE}:{LINE + 1}, where f64[3] is needed. Give it "
      "results of the same shape and dtype")),
    (lambda editor: editor.substitute("h", np.float32(1.0)),
     ("edit: h is f64[3], and what is f32[] cannot stand in its place. Make a value of its shape and dtype first: "
      "editor.insert(function, ...)")),
    (lambda editor: editor.erase(fxgrad.parse("program (x: f64[]) { y: f64[] = cosh(x) return y }").equations[0]),
     "edit: cosh is not an equation of this program, or not any more. Find it again: editor.find(...)"),
    (lambda editor: editor.inside(editor.maker("h")), f"edit: sin at {FILE}:{LINE + 1} holds no program"),
    (lambda editor: editor.insert(np.sin, "h", name="y"), "edit: the program has a value 'y' already"),
    (lambda editor: editor.insert(lambda h: (h, h * 2.0), "h", name="two"),
     "edit: name='two' is for one computed result; the function has 2 results"),
    (lambda editor: editor.insert(np.sin, fxgrad.make_program(np.cosh)(1.0).inputs[0]),
     "edit: that variable is not of this program")])
def test_what_is_refused(change: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        change(MODEL.edit())
    assert str(caught.value).splitlines()[0] == message


def test_which_program_is_meant() -> None:
    program = fxgrad.make_program(lambda x: lax.while_loop(lambda y: y < 3.0, lambda y: y + 1.0, x))(0.0)
    editor = program.edit()
    line = program.equations[0].source.line  # type: ignore[union-attr]
    for role, message in ((None, "Say which: editor.inside(equation, 'condition')"),
                          ("back", "and not 'back'. Say which: editor.inside(equation, 'condition')")):
        with pytest.raises(errors.ArgumentError) as caught:
            editor.inside(editor.find("while")[0], role)
        first = str(caught.value).splitlines()[0]
        assert first.startswith(f"edit: while at {FILE}:{line} holds condition, body")
        assert first.endswith(message)
    assert editor.inside(editor.find("while")[0], "body").find("add")


def test_a_value_that_needs_itself() -> None:
    editor = MODEL.edit()
    editor.substitute("x", "h", only=[editor.find("mul")[0]])
    with pytest.raises(errors.ArgumentError, match="needs a value that is computed from its own result"):
        editor.program()
