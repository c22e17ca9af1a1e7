"""Rows of bars."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


def bars(values: Sequence[float], width: int = 60) -> str:
    """A row of bars for values: the most of those that fall together, where there are more than `width`.

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
    """A bar for a share of the whole.

    >>> bar(0.5, 4)
    '██'
    """
    return "█" * round(width * share)
