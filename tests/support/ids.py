"""Names of values in the names of tests, where pytest would number them: of lambdas, containers, arrays, long texts."""

from __future__ import annotations

import linecache
import textwrap
from types import FunctionType
from typing import Any

import numpy as np

LONGEST = 60
"""So many characters of a value are in the name of a test."""


def name_of(value: Any) -> str | None:
    """A name that is the same in every process, or None for what pytest names itself and for what has none."""
    if isinstance(value, str):  # short ones are their own names
        return _shortened(value) if len(value) > LONGEST else None
    if isinstance(value, FunctionType) and value.__name__ != "<lambda>":
        return None
    found = _described(value)
    return None if found is None else _shortened(found)


def _shortened(text: str) -> str:
    return textwrap.shorten(text, LONGEST, placeholder="...") or text[:LONGEST]


def _described(value: Any) -> str | None:
    if isinstance(value, FunctionType):
        return _body(value) if value.__name__ == "<lambda>" else value.__name__
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, np.dtype):
        return str(value.name)
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | range):
        return repr(value)
    if isinstance(value, slice):
        ends = (value.start, value.stop) if value.step is None else (value.start, value.stop, value.step)
        return ":".join("" if end is None else str(end) for end in ends)
    if isinstance(value, np.ndarray | np.generic):
        shape = "" if value.ndim == 0 else str(list(value.shape)).replace(" ", "")
        return f"{value.dtype.name}{shape}" if value.size > 6 else f"{value.dtype.name} {value.tolist()}"
    if isinstance(value, dict):
        entries = [(_described(key), _described(entry)) for key, entry in value.items()]
        return _joined("{", [key and entry and f"{key}: {entry}" for key, entry in entries], "}")
    if isinstance(value, list):
        return _joined("[", [*map(_described, value)], "]")
    if isinstance(value, tuple):
        return _joined("(", [*map(_described, value)], ",)" if len(value) == 1 else ")")
    if type(value).__module__.startswith("fxgrad") and " at 0x" not in (text := str(value)):
        return text
    return None


def _joined(begin: str, parts: list[str | None], end: str) -> str | None:
    named = [part for part in parts if part is not None]
    return f"{begin}{', '.join(named)}{end}" if len(named) == len(parts) else None


def _body(function: FunctionType) -> str | None:
    """The source of a lambda behind its colon."""
    code = function.__code__
    places = [((line, begin), (last, end)) for line, last, begin, end in code.co_positions()
              if line and last and begin is not None and end is not None and begin != end]
    if not places:
        return None
    (first, begin), (last, end) = min(place for place, _ in places), max(place for _, place in places)
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]  # positions count bytes
    lines[0] = lines[0][begin:]
    return " ".join(b" ".join(lines).decode().split()) or None
