"""Captured arrays that are written as patterns: which are, and that each bit comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fxgrad.errors import ProgramSyntaxError
from fxgrad.text import equal, parse, program_text
from fxgrad.text.patterns import pattern_text
from tests.support.show_programs import with_constant


@pytest.mark.parametrize(("array", "expected"), [
    (np.arange(100), "arange()"), (np.arange(6, dtype=np.float32), "arange()"), (np.arange(2, 50, 3), "arange(2, 3)"),
    (np.arange(8) * 0.5 - 1.0, "arange(-1.0, 0.5)"), (np.arange(5, 0, -1, np.int8), "arange(5, -1)"),
    (np.eye(3), "eye()"), (np.eye(4, 2, dtype=bool), "eye()"), (np.tri(5, dtype=bool), "tril(True)"),
    (np.triu(np.full((3, 3), -np.inf, np.float32), 1), "triu(-inf, 1)"),
    (np.tril(np.ones((4, 6)), -2), "tril(1.0, -2)"),
    (np.triu(np.ones((4, 3)), -1), "triu(1.0, -1)"), (np.tril(np.full((3, 5), 7), 2), "tril(7, 2)"),
    (np.array([0.0, 1.0, 2.0, 3.0, 5.0]), None), (np.arange(4), None), (np.array([0, 1, 2, 3, np.nan]), None),
    (np.tri(3) - np.eye(3) * 0.5, None), (np.array([-0.0, 1.0, 2.0, 3.0, 4.0]), None),
    (-np.eye(3) * 0.0 + np.eye(3), "eye()"), (np.where(np.eye(3) == 1, 1.0, -0.0), None),
])
def test_patterns(array: Any, expected: str | None) -> None:
    assert pattern_text(array) == expected
    program = with_constant(array)
    text = program_text(program, constants=True)
    assert equal(parse(text), program)
    assert expected is None or f"captured a: {text.split('captured a: ')[1].split(' =')[0]} = {expected}" in text
    assert "(" not in program_text(program, style="equations", constants=True).split(" = ", 1)[1].split("return")[0]


@given(st.integers(1, 6), st.integers(1, 6), st.integers(-7, 7), st.sampled_from(["tril", "triu"]),
       st.sampled_from([2.0, -np.inf, 0.1, 1]), st.sampled_from(["float32", "float64", "int32", "bool", "bfloat16"]))
def test_triangles_come_back(rows: int, columns: int, diagonal: int, name: str, value: float, dtype: str) -> None:
    if dtype == "int32":
        value = 3
    array = getattr(np, name)(np.full((rows, columns), value), diagonal)
    array = array.astype(np.dtype(dtype) if dtype != "bfloat16" else np.float16)
    assert equal(parse(program_text(with_constant(array), constants=True)), with_constant(array))


@given(st.floats(allow_nan=False, width=32), st.floats(allow_nan=False, width=32), st.integers(5, 20),
       st.sampled_from(["float32", "float64", "float16"]))
def test_ranges_come_back(start: float, step: float, size: int, dtype: str) -> None:
    with np.errstate(all="ignore"):
        array = (start + np.arange(size) * step).astype(dtype)
    assert equal(parse(program_text(with_constant(array), constants=True)), with_constant(array))


def test_long_patterns_are_not_elided() -> None:
    assert "= tril(True)" in program_text(with_constant(np.tri(500, dtype=bool)))


@pytest.mark.parametrize(("constant", "message"), [
    ("f32[2,2] = arange()", "line 1, column 37: arange has no type f32[2,2]"),
    ("c64[2,2] = eye()", "line 1, column 37: eye has no type c64[2,2]"),
    ("f32[2,2] = tril()", "line 1, column 37: tril takes 1 to 2 numbers"),
    ("i8[5] = arange(300)", "line 1, column 34: 300 is out of the range of int8"),
    ("f32[2,2] = eye(x)", "line 1, column 41: expected a number or ')' of eye(...), found 'x'"),
])
def test_errors(constant: str, message: str) -> None:
    with pytest.raises(ProgramSyntaxError) as raised:
        parse(f"program f(): captured c: {constant} return c")
    assert str(raised.value).split("\n")[0] == message
