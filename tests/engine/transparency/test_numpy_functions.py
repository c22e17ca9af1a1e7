"""Losses as public NumPy code has them: which of them need not run again, and that none of these is stale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad.engine import config
from fxgrad.engine.transparency import replays
from tests.support import numpy_functions as functions

PAGE = Path(__file__).parents[3] / "docs" / "design" / "0042-transparent-functions.md"
REFUSED = {"annealed", "dropout", "early_end"}
DATA = ["X", "Y", "ONE_HOT", "LABELS", "SERIES", "NOISY", "PAIRS"]
each = pytest.mark.parametrize(("function", "argument"), functions.FUNCTIONS, ids=lambda value: getattr(
    value, "__name__", ""))


def row_of(function: Callable[[Any], Any], argument: Any) -> str:
    """The row of the page: how many arrays and numbers are read and compared, or why the function runs every time."""
    found = fxgrad.explain_transparency(function)(argument)
    if not found.transparent:
        return f"| `{function.__name__}` | {found.reason} | |"
    read, compared = (sum(what in tested for _, tested in found.reads) for what in ("is read", "is compared"))
    return f"| `{function.__name__}` | {read} | {compared} |"


def test_the_page_has_every_function() -> None:
    rows = [row_of(function, argument) for function, argument in functions.FUNCTIONS]
    assert "\n".join(rows) in PAGE.read_text(), f"write these rows into {PAGE.name}:\n" + "\n".join(rows)
    assert sum(row.endswith("| |") for row in rows) == len(REFUSED)
    assert len(rows) == 20 + len(REFUSED)


@each
def test_replays_follow_the_data(function: Callable[[Any], Any], argument: Any, monkeypatch) -> None:
    if function.__name__ in REFUSED:
        return
    monkeypatch.setattr(config, "check_level", 0)
    fxgrad.transparent(function)
    slope, expected = fxgrad.value_and_grad(function), fxgrad.value_and_grad(lambda *args: function(*args))

    def compare() -> None:
        leaves = fxgrad.tree.leaves(slope(argument)), fxgrad.tree.leaves(expected(argument))
        for got, wanted in zip(*leaves, strict=True):
            assert type(got) is type(wanted)
            np.testing.assert_array_equal(got, wanted)
    compare()
    before = replays.counts.replayed
    compare()
    assert replays.counts.replayed == before + 1
    for name in DATA:
        kept = getattr(functions, name)
        changed = np.roll(kept, 1, axis=0) if kept.dtype.kind == "i" else 1.25 * kept + 0.125
        monkeypatch.setattr(functions, name, changed)
        compare()
        changed[0] = changed[-1]
        compare()
        monkeypatch.setattr(functions, name, kept)
        compare()
    for name in ("PENALTY", "DELTA", "NOISE"):
        monkeypatch.setattr(functions, name, 2.0 * getattr(functions, name))
        compare()
