"""What two programs do differently: nothing where nothing is, and an edit at its own place alone."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from hypothesis import given
from rich.console import Console

import fxgrad
from fxgrad.text import parse
from tests.support.random_programs import build, recipes
from tests.support.tiers import examples

X, W = np.ones(3), np.ones((3, 4))


def base(x: Any, w: Any) -> Any:
    hidden = np.tanh(x @ w)

    def step(carry: Any, value: Any) -> Any:
        grown = np.sin(carry * value)
        return grown, grown * 2.0

    last, seen = fxgrad.lax.scan(step, 1.0, hidden)
    return np.sum(seen) + last


def marked(first: Any, second: Any, *args: Any) -> list[str]:
    """The marked lines of the difference between the programs of two functions."""
    args = args or (X, W)
    one, other = (fxgrad.make_program(function)(*args) for function in (first, second))
    difference = one.diff(other)
    lines = [line for line in str(difference).splitlines() if line[0] in "+-"]
    assert len(lines) == len(difference)
    return [" ".join(line.split()) for line in lines]


def test_equal_programs_have_no_difference() -> None:
    def renamed(a: Any, b: Any) -> Any:
        return base(a, b)

    program = fxgrad.make_program(base)(X, W)
    for other in (program, fxgrad.make_program(renamed)(X, W), parse(str(program))):
        difference = program.diff(other)
        assert not difference
        assert (len(difference), str(difference), difference.lines) == (0, "", [])


def test_an_operation_that_changed() -> None:
    def changed(x: Any, w: Any) -> Any:
        hidden = np.sin(x @ w)

        def step(carry: Any, value: Any) -> Any:
            grown = np.sin(carry * value)
            return grown, grown * 2.0

        last, seen = fxgrad.lax.scan(step, 1.0, hidden)
        return np.sum(seen) + last

    assert marked(base, changed) == ["- hidden: f64[4] = tanh(a)", "+ hidden: f64[4] = sin(a)"]


def test_unrelated_edits_before_and_between() -> None:
    """What is added before is an addition, though all numbers of equations and many letters are others."""
    def changed(x: Any, w: Any) -> Any:
        size = np.sum(np.exp(w)) * 3.0
        hidden = np.tanh(x @ w)

        def step(carry: Any, value: Any) -> Any:
            grown = np.sin(carry * value)
            return grown, grown * 2.0

        last, seen = fxgrad.lax.scan(step, 1.0, hidden)
        return np.sum(seen) + last, size

    assert marked(base, changed) == [
        "+ a: f64[3,4] = exp(w)", "+ b: f64[] = reduce_sum(a, axes=(0, 1))", "+ size: f64[] = mul(b, 3.0)",
        "- return d", "+ return f, size"]
    assert [("+" if line[0] == "-" else "-") + line[1:] for line in marked(changed, base)][:3] == [
        "+ a: f64[3,4] = exp(w)", "+ b: f64[] = reduce_sum(a, axes=(0, 1))", "+ size: f64[] = mul(b, 3.0)"]


def test_programs_that_operations_hold() -> None:
    def changed(x: Any, w: Any) -> Any:
        hidden = np.tanh(x @ w)

        def step(carry: Any, value: Any) -> Any:
            grown = np.cos(carry * value)
            return grown, grown * 2.0

        last, seen = fxgrad.lax.scan(step, 1.0, hidden)
        return np.sum(seen) + last

    assert [line.split("(")[0] for line in marked(base, changed)] == ["- grown: f64[] = sin", "+ grown: f64[] = cos"]
    text = str(fxgrad.make_program(base)(X, W).diff(fxgrad.make_program(changed)(X, W)))
    assert "= scan(" in text  # whose body it is


def test_lines_stand_as_deep_as_their_programs_are_held() -> None:
    def rows(rule: Any) -> Any:
        def inner(carry: Any, value: Any) -> Any:
            grown = rule(carry * value)
            return grown, grown
        return lambda x: fxgrad.lax.scan(lambda carry, _: fxgrad.lax.scan(inner, carry, x), 1.0, x)

    one, other = (fxgrad.make_program(rows(rule))(np.ones(3)) for rule in (np.sin, np.cos))
    lines = [line for line in one.diff(other).lines if line.kind != "same"]
    assert [(line.text.split("(")[0], line.depth) for line in lines] == [
        ("grown: f64[] = sin", 2), ("grown: f64[] = cos", 2)]


def test_parameters_numbers_types_and_constants() -> None:
    assert marked(lambda x: np.sum(x, axis=0), lambda x: np.sum(x, axis=1), np.ones((2, 2))) == [
        "- a: f64[2] = reduce_sum(x, axes=(0,))", "+ a: f64[2] = reduce_sum(x, axes=(1,))"]
    assert marked(lambda x: x * 2.0, lambda x: x * 3.0, 1.0) == [
        "- a: f64*[] = mul(x, 2.0)", "+ a: f64*[] = mul(x, 3.0)"]
    one, other = (fxgrad.make_program(lambda x: x * 2.0)(np.ones(3, dtype)) for dtype in ("f4", "f8"))
    assert [line.text for line in one.diff(other).lines if line.kind != "same"][:2] == ["x: f32[3]", "x: f64[3]"]
    scales = [np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0])]
    one, other = (fxgrad.make_program(lambda x, scale=scale: x * np.array(scale))(X) for scale in scales)
    assert [line.text for line in one.diff(other).lines if line.kind != "same"] == [
        "captured a: f64[3] = [1.0, 2.0, 3.0]", "captured a: f64[3] = [1.0, 2.0, 4.0]"]
    large = [np.arange(100.0), np.arange(100.0) + 1]
    one, other = (fxgrad.make_program(lambda x, scale=scale: x * np.array(scale))(1.0) for scale in large)
    texts = [line.text for line in one.diff(other).lines if line.kind != "same"]
    assert len({*texts}) == len(texts) == 2
    assert all("<100 elements, " in text for text in texts)


def test_inputs_with_other_names() -> None:
    assert marked(lambda x, y: np.sin(x) * y, lambda x, z: np.cos(x) * z, 1.0, 2.0) == [
        "- y: f64*[]", "+ z: f64*[]", "- a: f64*[] = sin(x)", "+ a: f64*[] = cos(x)"]


@examples(5)
@given(recipes())
def test_random_programs(steps: Any) -> None:
    """A program and itself with an operation at the end differ in that, and no two that differ have no difference."""
    function = build(steps, np)
    x = np.linspace(-1.0, 1.0, 9).reshape(3, 3)
    one = fxgrad.make_program(function)(x, x + 1.0)
    longer = fxgrad.make_program(lambda x, y: np.arctan(function(x, y)))(x, x + 1.0)
    assert not one.diff(fxgrad.make_program(function)(x, x + 1.0))
    lines = [line for line in one.diff(longer).lines if line.kind != "same" and not line.text.startswith("return")]
    assert [(line.kind, " = atan(" in line.text) for line in lines] == [("added", True)]


def test_colours() -> None:
    difference = fxgrad.make_program(np.sin)(1.0).diff(fxgrad.make_program(np.cos)(1.0))
    file = io.StringIO()
    Console(file=file, force_terminal=True, color_system="standard").print(difference)
    assert "\x1b[31m- a: f64*[] = sin(x)" in file.getvalue().replace("argument 0", "x").replace("`x`", "x")
    assert repr(difference) == str(difference)


def test_long_programs() -> None:
    """Where one operation becomes another, it is one line of 800, and 400 follow that depend on it."""
    def long(x: Any, at: int) -> Any:
        for index in range(400):
            x = (np.cos(x) if index == at else np.sin(x)) * 2.0
        return x

    one, other = (fxgrad.make_program(lambda x, at=at: long(x, at))(1.0) for at in (-1, 200))
    assert len(one.diff(other)) == 2
