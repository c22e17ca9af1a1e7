"""How many random cases a test draws, by the tier that runs."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(count: int) -> Any:
    """For a test of random cases that draws `count` of them in the slow tier, and its share of these in the quick one.

    The profile that `conftest.py` loads says how many a test draws that would draw 100.
    """
    return settings(max_examples=count * settings.default.max_examples // 100)
