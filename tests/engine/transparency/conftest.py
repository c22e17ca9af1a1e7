"""Declarations of functions that tests share end with the test that made them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fxgrad.engine.transparency import replays


@pytest.fixture(autouse=True)
def _forget_declarations() -> Iterator[None]:
    before = {*replays._declared}
    yield
    for function in {*replays._declared} - before:
        replays._declared.discard(function)
        function.__dict__.pop("_fxgrad_replays", None)
