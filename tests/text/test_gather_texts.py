"""Gathers in the compact style: written as NumPy's indices wherever they are such, and read back as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.text import equal, parse, program_text
from tests.support.show_programs import VECTOR, equations_text, one_equation, user_primitive

ROWS = np.ones((5, 3))
CUBE = np.ones((4, 5, 3))
FIRST, SECOND = np.array([2, 0]), np.array([1, 2])
EACH = np.array([[0, 1], [1, 2]])


def text(function: Any, *args: Any) -> str:
    """The compact text of a function, which gives back its program."""
    program = fxgrad.make_program(function)(*args)
    shown = program_text(program, constants=True, source=False)
    again = parse(shown)
    assert equal(again, program), shown
    assert program_text(again, constants=True) == shown
    return shown


@pytest.mark.parametrize(("function", "args", "expected"), [
    (lambda x, i: x[i], (ROWS, FIRST), "x[i]"),
    (lambda x, i: x[i, :], (ROWS, FIRST), "x[i]"),
    (lambda x, i: x[:, i], (ROWS, SECOND), "x[:, i]"),
    (lambda x, i: x[..., i], (CUBE, SECOND), "x[:, :, i]"),
    (lambda x, i, j: x[i, j], (ROWS, FIRST, SECOND), "x[i, j]"),
    (lambda x, i, j: x[:, i, j], (CUBE, FIRST, SECOND), "x[:, i, j]"),
    (lambda x, i, j: x[i, :, j], (CUBE, FIRST, SECOND), "x[i, :, j]"),
    (lambda x, i, j: x[i, j], (ROWS, np.int64(1), np.int64(2)), "x[i, j]"),
    (lambda x, i, j: x[-i, j + 1] * 2.0, (ROWS, FIRST, FIRST), "x[-i, j + 1:i64] * 2.0"),
    (lambda x, i: fnp.take(x, i, axis=1), (ROWS, SECOND), "x[:, i]"),
    (lambda x, i: fnp.take(x, i, axis=1, mode="clip"), (ROWS, SECOND), 'take(x, i, axis=1, mode="clip")'),
    (lambda x, i: fnp.take_along_axis(x, i, axis=1), (ROWS, EACH.repeat(3, 0)[:5]), "take_along_axis(x, i, axis=1)"),
    (lambda x, i: fnp.take_along_axis(x, i, axis=0), (ROWS, EACH[:, [0, 1, 1]]), "take_along_axis(x, i, axis=0)"),
    (fxgrad.vmap(lambda x, i: x[i], in_axes=(None, 0)), (ROWS, EACH), "x[i]"),
    (fxgrad.vmap(lambda x, i: x[i]), (CUBE, np.zeros((4, 2), int)),
     "gather(x, i[:, :, None], operand_batching_dims=(0,))"),
    (fxgrad.vmap(lambda x, i: x[i]), (ROWS, np.zeros(5, int)), "gather(x, i[:, None], operand_batching_dims=(0,))"),
    (lambda x, i: fnp.take_along_axis(x, i[:, None] + 1, axis=1) * 2.0, (ROWS, np.zeros(5, int)),
     "take_along_axis(x, i[:, None] + 1:i64, axis=1) * 2.0"),
])
def test_a_gather_is_an_index(function: Any, args: Any, expected: str) -> None:
    assert text(function, *args).endswith(f"  return {expected}")


def model(table: Any, weights: Any, tokens: Any) -> Any:
    vectors = table[tokens]
    hidden = np.tanh(vectors @ weights)
    return np.sum(hidden * vectors)


MODEL = (ROWS, np.eye(3), FIRST)


def test_what_is_used_again_is_indexed_by_its_name() -> None:
    gradient = text(fxgrad.grad(model), *MODEL)
    assert "  a: i64[2,1] = tokens[:, None]\n  vectors: f64[2,3] = table[tokens]\n" in gradient
    assert "scatter_add(full(f64[5,3], 0), a, d_vectors)" in gradient
    tangents = text(lambda table, weights, tokens: fxgrad.jvp(
        lambda *moving: model(*moving, tokens), (table, weights), (table, weights)), *MODEL)
    assert "  vectors: f64[2,3] = table[tokens]\n" in tangents
    assert "  t_vectors: f64[2,3] = take(table, tokens, axis=0, fill_value=0)\n" in tangents
    assert "None" not in tangents
    picked = text(fxgrad.grad(lambda x, i, j: np.sum(x[i, j] ** 2)), ROWS, FIRST, SECOND)
    assert "  a: i64[2,2] = stack(i, j, axis=1)\n  b: f64[2] = x[i, j] * 2\n" in picked


def test_equal_arrays_of_indices_that_are_made_twice_stay_two() -> None:
    program = fxgrad.make_program(lambda x, y, i: x[i] + y[i], as_recorded=True)(ROWS, ROWS, FIRST)
    assert [equation.primitive.name for equation in program.equations] == ["reshape", "gather"] * 2 + ["add"]
    shown = program_text(program, source=False)
    assert shown.endswith("return x[i] + gather(y, i[:, None])")
    assert equal(parse(shown), program)
    once = parse("program f(x: f32[3], y: f32[3], i: i32[2]): return x[i] + y[i]")
    assert equations_text(once).count("reshape") == 1
    assert program_text(once, source=False).endswith("return x[i] + y[i]")


def test_indices_that_are_made_earlier() -> None:
    program = parse("program f(x: f32[3], i: i32[2]): a = i[:, None] y = sin(x) b = y * y "
                    "return gather(b, a), gather(y, a)")
    shown = program_text(program)
    assert equal(parse(shown), program)
    assert "a: i32[2,1] = i[:, None]\n" in shown
    assert shown.endswith("return gather(b, a), gather(y, a)")  # the text that was read gives it a name
    traced = program_text(fxgrad.make_program(lambda x, i: program(x, i))(np.ones(3, np.float32), FIRST.astype("i4")))
    assert "a: i32[2,1] = i[:, None]" in traced
    assert " indices\n" in traced
    assert "  return (b * b)[i], b[i] " in traced


def test_names_of_users_for_indices_are_kept() -> None:
    def function(x: Any, i: Any) -> Any:
        places = i[:, None]
        return fxgrad.lax.gather(x, places, fxgrad.lax.GatherDimensionNumbers((), (0,), (0,)), (1,))

    assert "gather(x, places" in text(function, np.ones(3), FIRST)


def test_an_operation_of_users_that_is_called_take() -> None:
    own = user_primitive("take", lambda *avals, **params: list(avals))
    program = one_equation(own, VECTOR)
    assert 'return "take"(a)' in program_text(program)
    assert equal(parse(program_text(program), [own]), program)
