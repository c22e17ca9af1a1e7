"""Fixtures of the tests of the frontend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fxgrad.engine.frontend import value_calls


@pytest.fixture
def fresh_calls() -> Iterator[None]:
    """Begins and ends a test without recorded calls."""
    for table in (value_calls._calls, value_calls._counts):
        table.clear()
    yield
    for table in (value_calls._calls, value_calls._counts):
        table.clear()
