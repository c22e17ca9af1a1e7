"""Where arrays lie in the work space of a function: those that are alive at different times share their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

ALIGNED = 16


class LiveArray(NamedTuple):
    """An array: its bytes, and the first and the last statement that speaks of it."""

    size: int
    first: int
    last: int


def offsets(arrays: Mapping[str, LiveArray]) -> tuple[dict[str, int], int]:
    """The offset of each array, and the bytes of all: the largest first, each at the lowest place that is free.

    >>> offsets({"a": LiveArray(32, 0, 1), "b": LiveArray(16, 1, 3), "c": LiveArray(32, 2, 3)})
    ({'a': 0, 'c': 0, 'b': 32}, 48)
    """
    placed: dict[str, int] = {}
    total = 0
    for name, array in sorted(arrays.items(), key=lambda item: -item[1].size):
        taken = sorted((placed[other], placed[other] + _round_up(arrays[other].size)) for other in placed
                       if arrays[other].first <= array.last and array.first <= arrays[other].last)
        place = _lowest(taken, _round_up(array.size))
        placed[name] = place
        total = max(total, place + _round_up(array.size))
    return placed, total


def _round_up(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _lowest(taken: Sequence[tuple[int, int]], size: int) -> int:
    place = 0
    for begin, end in taken:
        if place + size <= begin:
            break
        place = max(place, end)
    return place
