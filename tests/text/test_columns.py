"""Programs beside each other: as wide as there is room, and below each other where there is none."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import fxgrad
from fxgrad.errors import ArgumentError
from fxgrad.text import program_text, side_by_side
from fxgrad.text.columns import GAP, NARROWEST

W, X = np.ones(3), np.ones((2, 3))


def loss(w: Any, x: Any) -> Any:
    prediction = np.tanh(x @ w)
    return np.sum(prediction ** 2)


def columns() -> Any:
    return side_by_side(loss, fxgrad.grad(loss))(W, X)


@pytest.mark.parametrize("width", [80, 100, 140, 300])
def test_columns_fill_the_width_and_no_more(width: int) -> None:
    lines = columns().text(width).splitlines()
    assert max(map(len, lines)) <= width
    each = (width - GAP) // 2
    texts = [program_text(program, source=False, width=each) for program in columns().programs]
    assert lines[0].split()[:2] == texts[0].split()[:2]
    for line in texts[0].splitlines():
        if len(line) <= each:
            assert any(shown.startswith(line) for shown in lines), line


def test_the_second_column_is_the_second_program() -> None:
    lines = columns().text(300).splitlines()
    second = program_text(columns().programs[1], source=False, width=(300 - GAP) // 2).splitlines()
    start = lines[0].rindex("program")
    assert [line[start:] for line in lines][:len(second)] == second


def test_narrow_columns_stand_below_each_other() -> None:
    narrow = columns().text(2 * NARROWEST)
    first, second = (program_text(program, source=False, width=2 * NARROWEST) for program in columns().programs)
    assert narrow == f"{first}\n\n{second}"


def test_on_a_terminal() -> None:
    for color in (True, False):
        file = io.StringIO()
        Console(file=file, force_terminal=True, width=100, no_color=not color).print(columns())
        assert ("\x1b[" in file.getvalue()) or not color
        plain = io.StringIO()
        Console(file=plain, width=100).print(columns())
        assert [line.rstrip() for line in plain.getvalue().splitlines()] == columns().text(100).splitlines()


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    file = io.StringIO()
    Console(file=file, force_terminal=True, width=100).print(columns())
    assert "\x1b[3" not in file.getvalue()


def test_the_terminals_width_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    assert str(columns()) == repr(columns()) == columns().text(90)


def test_programs_are_shown_as_they_are() -> None:
    program = fxgrad.make_program(loss)(W, X)
    shown = side_by_side(program, loss, source=True)(W, X)
    assert shown.programs[0] is program
    assert "test_columns.py" in shown.text(200)


def test_keyword_arguments_and_mistakes() -> None:
    assert len(side_by_side(loss)(W, x=X).programs) == 1
    with pytest.raises(ArgumentError) as raised:
        side_by_side()
    assert str(raised.value).split("\n")[0] == (
        "side_by_side takes functions, got none. Write side_by_side(f, grad(f))(x)")
