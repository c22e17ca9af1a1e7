"""The number of random cases that a test draws, by the tier that runs."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(count: int) -> Any:
    """Decorate a test of random cases: it draws `count` of them in the slow tier, and its share in the quick one.

    The profile that `conftest.py` loads is the number of draws of a test that would draw 100.
    """
    return settings(max_examples=count * settings.default.max_examples // 100)
