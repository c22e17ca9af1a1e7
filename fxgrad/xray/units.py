"""Numbers as people read them: bytes, counts and times in the unit that suits them, and rows of bars."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_COUNTS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
BARS = "▁▂▃▄▅▆▇█"


def bytes_text(size: float) -> str:
    """Bytes in binary units.

    >>> bytes_text(1536), bytes_text(12), bytes_text(0)
    ('1.50 KiB', '12 B', '0 B')
    """
    for unit, name in _BYTES:
        if abs(size) >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{round(size)} B"


def count_text(number: float) -> str:
    """A count in decimal units.

    >>> count_text(2_500_000), count_text(12)
    ('2.50 M', '12')
    """
    for unit, name in _COUNTS:
        if abs(number) >= unit:
            return f"{number / unit:.2f} {name}"
    return f"{number:.3g}"


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
