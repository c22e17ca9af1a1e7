"""Parsing and formatting of bytes, counts and times."""

from __future__ import annotations

import math
import re
from numbers import Real
from typing import Any

from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError

_PREFIXES = ["", "K", "M", "G", "T", "P"]
_UNITS = {"B": 1, **{f"{prefix}iB": 1024 ** power for power, prefix in enumerate(_PREFIXES) if power},
          **{f"{prefix}B": 1000 ** power for power, prefix in enumerate(_PREFIXES) if power}, "kB": 1000}


def parse_bytes(what: str, value: Any) -> int:
    """Return a budget as a number of bytes: a number, or text such as "512 MiB" or "1.5 GB".

    Raises `ArgumentError`, naming `what`, for anything else and for a negative or infinite number.

    >>> parse_bytes("memory_budget", "1.5 KiB"), parse_bytes("memory_budget", 1e6)
    (1536, 1000000)
    """
    found: float | None = None
    if isinstance(value, str):
        matched = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*", value)
        if matched and (matched[2] or "B") in _UNITS:
            found = float(matched[1]) * _UNITS[matched[2] or "B"]
    elif isinstance(value, Real) and not isinstance(value, bool):
        found = float(value)
    if found is None or not 0 <= found < math.inf:
        raise ArgumentError(at_user_line(
            f"{what} is {value!r}, where a number of bytes is needed, at least 0, or text such as '512 MiB' or "
            "'1.5 GB' (units are B, kB, MB, GB, TB and KiB, MiB, GiB, TiB)"))
    return int(found)


def bytes_text(number: float, up: bool = False) -> str:
    """Return a number of bytes in three digits, rounded up on demand.

    >>> bytes_text(1536), bytes_text(52_400_000), bytes_text(52_400_000, up=True)
    ('1.5 KiB', '50 MiB', '50 MiB')
    """
    power = min(int(math.log(number, 1024)), len(_PREFIXES) - 1) if number >= 1 else 0
    return f"{_three_digits(number / 1024 ** power, up)} {_PREFIXES[power]}{'iB' if power else 'B'}"


def count_text(number: float) -> str:
    """Return a count in three digits.

    >>> count_text(2_500_000), count_text(12)
    ('2.5 M', '12')
    """
    power = min(int(math.log(number, 1000)), len(_PREFIXES) - 1) if number >= 1 else 0
    return f"{_three_digits(number / 1000 ** power)} {['', 'k', *_PREFIXES[2:]][power]}".rstrip()


def time_text(seconds: float) -> str:
    """Return a time in three digits.

    >>> time_text(0.0021), time_text(3.0), time_text(0.0)
    ('2.1 ms', '3 s', '0 s')
    """
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns" if seconds else "0 s"


def _three_digits(number: float, up: bool = False) -> str:
    digits = max(0, 2 - int(math.log10(number))) if number >= 1 else 0
    return f"{math.ceil(number * 10 ** digits) / 10 ** digits if up else round(number, digits):g}"
