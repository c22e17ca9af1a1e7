"""Arrays in place of a hundred numbers: `arange(0.0, 0.5)`, `eye()`, `tril(True)`; exact to the bit, or not taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import Aval
from fxgrad.text.values import literal_kind, number_text

Array = np.ndarray[Any, Any]
LEAST = 5
"""Shorter arrays are written out."""
ARGUMENTS = {"arange": (0, 2), "eye": (0, 0), "tril": (1, 2), "triu": (1, 2)}
"""The least and largest number of arguments of each pattern; the second of `tril` and `triu` is the diagonal."""


class Pattern(NamedTuple):
    """A pattern as read: numbers of the dtype of the array, and for triangles the diagonal."""

    name: str
    numbers: tuple[Any, ...]


def pattern_array(name: str, numbers: Sequence[Any], aval: Aval) -> Array:
    """Return the array of a pattern; raise `ValueError` if the pattern has no array of the type.

    >>> pattern_array("tril", [np.float32(2), 0], Aval((2, 2), np.dtype("float32")))
    array([[2., 0.],
           [2., 2.]], dtype=float32)
    """
    if len(aval.shape) != (1 if name == "arange" else 2) or literal_kind(aval.dtype) not in "bif":
        raise ValueError(f"{name} has no type {aval}")
    if name == "arange":
        start, step = [*numbers, *np.arange(2, dtype=aval.dtype)[len(numbers):]]
        with np.errstate(all="ignore"):
            result: Array = start + np.arange(aval.shape[0]).astype(aval.dtype) * step
    elif name == "eye":
        result = np.eye(aval.shape[0], aval.shape[1]).astype(aval.dtype)
    else:
        cut = np.tril if name == "tril" else np.triu
        result = cut(np.full(aval.shape, numbers[0], aval.dtype), int(numbers[1]) if len(numbers) > 1 else 0)
    return result.astype(aval.dtype)


def pattern_text(array: Array) -> str | None:
    """Return the pattern that equals an array; None if there is none."""
    if array.size < LEAST or array.ndim not in (1, 2):
        return None
    if dtypes.is_key(array.dtype) or literal_kind(array.dtype) not in "bif":
        return None
    aval = Aval(array.shape, array.dtype)
    for name, numbers, shown in _proposed_patterns(array):
        if pattern_array(name, numbers, aval).tobytes() == array.tobytes():
            return f"{name}({', '.join(shown)})"
    return None


def _proposed_patterns(array: Array) -> list[tuple[str, list[Any], list[str]]]:
    if array.ndim == 1:
        if array.dtype.kind == "b":
            return []
        with np.errstate(all="ignore"):
            start, step = array[0], (array[1:2] - array[:1])[0]
        shown = [number_text(start), number_text(step)]
        plain = float(start) == 0 and float(step) == 1
        return [("arange", [], []), ("arange", [start, step], shown)] if plain else [("arange", [start, step], shown)]
    zero = np.zeros((), array.dtype)
    found: list[tuple[str, list[Any], list[str]]] = [("eye", [], [])]
    for name, corner in (("tril", array[-1, 0]), ("triu", array[0, -1])):
        if corner == zero:
            continue
        row = np.flatnonzero(array[0] if name == "tril" else array[-1])
        column = np.flatnonzero(array[:, 0])
        if name == "tril":
            diagonal = int(row[-1]) if len(row) else -int(column[0])
        else:
            filled = np.flatnonzero(array[0])
            diagonal = int(filled[0]) if filled[0] else -int(column[-1])
        found.append((name, [corner, diagonal], [number_text(corner), *([str(diagonal)] if diagonal else [])]))
    return found
