"""Texts are the subject here: they are read back wherever two operations meet that did not before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kinds import read_by_neighbourhood


@pytest.fixture(autouse=True)
def _texts_read_by_neighbourhood() -> Iterator[None]:
    with read_by_neighbourhood():
        yield
