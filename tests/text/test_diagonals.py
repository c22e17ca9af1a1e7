"""Diagonals print as `diag` and `diagonal`, and are read back as the two equations that each of them stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad.errors import ProgramSyntaxError
from fxgrad.text import equal, parse, program_text

DTYPES = ("float64", "float32", "float16", "int32", "uint8", "int64", "complex64", "complex128", "bool")


def text_of(function: Any, *args: Any) -> str:
    program = fxgrad.make_program(function)(*args)
    text = program_text(program, source=False)
    assert equal(parse(text), program), text
    return text


def test_diagonals_of_every_dtype() -> None:
    wrong = []
    for dtype in DTYPES:
        for size in (2, 3, 7):
            for shown, function, shape in (("diag(x)", lambda x: np.diag(x), (size,)),
                                           ("diagonal(x)", lambda x: np.diagonal(x), (size, size))):
                text = text_of(function, np.ones(shape, dtype))
                if f"return {shown}\n" not in text + "\n":
                    wrong.append((dtype, size, text))
    assert not wrong, wrong


def test_what_is_no_such_diagonal_prints_as_it_is() -> None:
    others = {"of one element": (lambda x: np.diag(x), np.ones(1)), "above": (lambda x: np.diag(x, 1), np.ones(3)),
              "of a stack": (lambda x: np.diagonal(x, axis1=1, axis2=2), np.ones((2, 3, 3))),
              "wide": (lambda x: np.diagonal(x), np.ones((2, 3))), "every third": (lambda x: x[::3], np.ones(9)),
              "ones between": (lambda x: fxgrad.lax.pad(x, 1.0, ((0, 0, 3),)).reshape(3, 3), np.ones(3)),
              "negative zeros": (lambda x: fxgrad.lax.pad(x, -0.0, ((0, 0, 3),)).reshape(3, 3), np.ones(3)),
              "by another step": (lambda x: x.reshape(9)[::2], np.ones((3, 3)))}
    for name, (function, x) in others.items():
        assert "diag" not in text_of(function, x), name


def test_within_expressions_and_gradients() -> None:
    v = np.array([0.5, 2.0, 3.0])
    assert "sum(diagonal(" in text_of(lambda v: np.trace(np.outer(v, v)), v)
    text = text_of(fxgrad.grad(lambda v: np.sum(np.diag(1 / v) ** 3)), v)
    assert "diag(" in text
    assert "diagonal(" in text
    assert "pad" not in text


def test_what_they_compute() -> None:
    program = parse("program f(v: f64[3], m: f32[2,2]): return diag(v), diagonal(m)")
    v, m = np.array([1.0, 2.0, 3.0]), np.array([[1, 2], [3, 4]], np.float32)
    diag, diagonal = program(v, m)
    np.testing.assert_array_equal(diag, np.diag(v))
    np.testing.assert_array_equal(diagonal, np.diagonal(m))


@pytest.mark.parametrize(("call", "message"), [
    ("diag(m)", "diag takes a vector of at least two elements, got f64[2,3]"),
    ("diagonal(m)", "diagonal takes a square matrix of at least two rows, got f64[2,3]"),
    ("diagonal(x)", "diagonal takes a square matrix of at least two rows, got f64[]"),
    ("diag(x, x)", "diag takes one array and nothing else here"),
    ("diag(m, k=1)", "diag takes one array and nothing else here")])
def test_wrong_calls(call: str, message: str) -> None:
    with pytest.raises(ProgramSyntaxError) as caught:
        parse(f"program f(m: f64[2,3], x: f64): return {call}")
    assert message in str(caught.value)
