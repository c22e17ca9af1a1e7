"""What there is to read of twenty-four functions, beside jax's text of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import fxgrad
import fxgrad.numpy
from fxgrad.text import equal, parse, program_text

TOOLS = str(Path(__file__).parents[2] / "tools")


@pytest.mark.slow
def test_programs_take_fewer_words_than_jaxs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TOOLS)
    from readings.texts import mean_ratio, readings, tokens

    found = readings()
    assert len(found) == len({each.name for each in found}) == 24
    assert mean_ratio(found, tokens) <= 0.45
    long = {each.name: tokens(each.ours) / tokens(each.theirs) for each in found
            if tokens(each.ours) > 0.8 * tokens(each.theirs)}
    assert not long


@pytest.mark.slow
def test_the_texts_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TOOLS)
    from readings.functions import functions

    for each in functions(fxgrad.numpy, fxgrad):
        program = fxgrad.make_program(each.function)(*each.arguments)
        for style in ("compact", "equations"):
            assert equal(parse(program_text(program, style=style, constants=True)), program), each.name
    assert "readings.functions" in sys.modules
