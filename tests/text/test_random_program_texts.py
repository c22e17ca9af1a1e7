"""Random programs: their text and their JSON give them back, and what is read computes the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fxgrad
from fxgrad.engine.core.program import Program, Signature
from fxgrad.errors import FxgradError
from fxgrad.text import parse, program_text
from tests.support.random_texts import programs
from tests.support.show_programs import CLASSES, USER, assert_round_trips


@pytest.mark.slow
@given(programs(), st.integers(20, 200))
def test_text_and_json_give_back_the_program(program: Program, width: int) -> None:
    assert_round_trips(program.check(), width=width)


@pytest.mark.parametrize("style", [pytest.param("compact", marks=pytest.mark.slow), "equations"])
@given(program=programs(), data=st.data())
def test_what_was_cut_or_changed_is_read_or_refused(style: Any, program: Program, data: st.DataObject) -> None:
    """No text raises anything but an error of ours, however it was damaged."""
    text = program_text(program, style=style)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    inserted = data.draw(st.sampled_from(["", "x", "1", ":f32", *"(),={}<[@`*-.:~", "->", '"']))
    problem = ""
    try:
        parse(text[:start] + inserted + text[end:], USER, CLASSES).check()
    except FxgradError as error:
        problem = str(error)
    assert not problem or problem.startswith(("line ", "the program is wrong: "))


@pytest.mark.parametrize("name", ["A·", "²", "x²", "ª", "µ", "℘", "program", "where", "a b", "", "f(x"])
def test_names_of_programs_that_are_no_words_everywhere(name: str) -> None:
    program = fxgrad.make_program(lambda x: fxgrad.nn.relu(x) + 1.0)(1.0)
    for title in ("", name):
        assert_round_trips(program.replace(signature=Signature(name, ("x",), None, None, title)), width=40)
    inner = fxgrad.make_program(fxgrad.named_call(lambda x: x * 2.0, name=name or "f"))(1.0)
    assert_round_trips(inner, width=40)
