"""Allocate arrays in the work space of a function: arrays that are not live at once share memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ALIGNED = 16


class LiveArray(NamedTuple):
    """An array: its bytes, and the first and the last statement that uses it."""

    size: int
    first: int
    last: int


def offsets(arrays: Mapping[str, LiveArray]) -> tuple[dict[str, int], int]:
    """Return the offset of each array, and the total bytes: largest first, each at the lowest free offset.

    >>> offsets({"a": LiveArray(32, 0, 1), "b": LiveArray(16, 1, 3), "c": LiveArray(32, 2, 3)})
    ({'a': 0, 'c': 0, 'b': 32}, 48)
    """
    placed: dict[str, int] = {}
    total = 0
    for name, array in sorted(arrays.items(), key=lambda item: -item[1].size):
        taken = sorted((placed[other], placed[other] + _round_up(arrays[other].size)) for other in placed
                       if arrays[other].first <= array.last and array.first <= arrays[other].last)
        size, place = _round_up(array.size), 0
        for begin, end in taken:
            if place + size <= begin:
                break
            place = max(place, end)
        placed[name] = place
        total = max(total, place + _round_up(array.size))
    return placed, total


def _round_up(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
