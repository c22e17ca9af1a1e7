"""Comparisons with jax look at numbers: that texts read back is for tests/text, and for one test here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fxgrad
from tests.support.kinds import read_by_neighbourhood


@pytest.fixture(scope="module", autouse=True)
def _frames_unread(frames_unread: None) -> None:
    """Here thousands of errors are raised."""


@pytest.fixture(autouse=True)
def _texts_unread(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Thousands of programs are recorded here; writing and reading each takes a quarter of the time and more.

    `test_compiled` keeps the check: it has every function's text once. With FXGRAD_CHECK=4 all are read.
    """
    if fxgrad.config.check_level == 3 and request.function.__name__ != "test_compiled":
        monkeypatch.setattr(fxgrad.config, "check_level", 2)
    with read_by_neighbourhood():
        yield
