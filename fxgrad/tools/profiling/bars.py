"""Rows of bars, for tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


def bars(values: Sequence[float], width: int = 60) -> str:
    """Return a row of bars for values; with more than `width` values each bar is the maximum of several.

    >>> bars([0, 1, 2, 4])
    '▁▃▅█'
    """
    if not values:
        return ""
    count = min(width, len(values))
    edges = [number * len(values) // count for number in range(count + 1)]
    shown = [max(values[first:last]) for first, last in itertools.pairwise(edges)]
    most = max(shown) or 1
    return "".join(BARS[round((len(BARS) - 1) * value / most)] for value in shown)


def bar(share: float, width: int = 12) -> str:
    """Return a bar for a share of the whole.

    >>> bar(0.5, 4)
    '██'
    """
    return "█" * round(width * share)
