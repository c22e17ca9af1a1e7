"""Emission in the user's lines: XLA and its profilers attribute an operation to the line that recorded it.

jax finds the place of an operation on the stack, skipping its own frames and ours. So each rule is called by a small
function whose code object has the file, the line and the name of the user's function: jax finds that frame. Errors of a
rule pass the same frame, and so name the line too.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType, TracebackType
from typing import Any

from jax import lax

from fxgrad.engine import user_lines
from fxgrad.engine.caches import cached
from fxgrad.engine.core.program import Source

Caller = Callable[..., "list[Any]"]
"""Calls a rule: (rule, values, parameters) -> its outputs."""
_Position = tuple[int | None, int | None, int | None, int | None]


def _template(emitted_rule: Any, values: Any, params: Any) -> Any:
    return emitted_rule(lax, *values, **params)


_MARK = "emitted_rule"
_UNITS = len(_template.__code__.co_code) // 2


_is_excluded = False


def _exclude_own_frames() -> None:
    """Make jax skip the frames of this package when it searches the user's line."""
    global _is_excluded
    if not _is_excluded:
        from jax.extend import source_info_util  # imported at the first emission: it brings Pallas along

        source_info_util.register_exclusion(user_lines.PACKAGE)
        _is_excluded = True


class Lines:
    """The callers for the user's lines, made once for each; they live as long as one emission."""

    __slots__ = ("_callers", "_positions")

    def __init__(self) -> None:
        _exclude_own_frames()
        # Keyed by the identity of the code, since a code object recomputes its hash each time; sources keep it alive.
        self._callers: dict[tuple[int, int], tuple[Caller, CodeType]] = {}
        self._positions: dict[int, list[_Position]] = {}

    def caller(self, source: Source) -> Caller:
        """Return a function that calls a rule as if from the user's line."""
        code, instruction = source[:2]
        key = id(code), instruction
        found = self._callers.get(key)
        if found is None:
            positions = self._positions.get(id(code))
            if positions is None:
                positions = self._positions[id(code)] = [*code.co_positions()]
            place = positions[instruction // 2] if instruction // 2 < len(positions) else (None,) * 4
            first, last, start, end = place
            line = first or code.co_firstlineno
            made = _template.__code__.replace(
                co_filename=code.co_filename, co_name=code.co_name, co_qualname=code.co_qualname, co_firstlineno=line,
                co_linetable=_location_table((last or line) - line, start, end))
            found = self._callers[key] = FunctionType(made, _GLOBALS), code
        return found[0]


_GLOBALS: dict[str, Any] = {"lax": lax}


@cached("location tables", 1024)
def _location_table(lines: int, start: int | None, end: int | None) -> bytes:
    """Return the location table of the template: all of it spans `lines` more after the first, in these columns."""
    table = bytearray()
    for begin in range(0, _UNITS, 8):
        table.append(0x80 | 14 << 3 | min(8, _UNITS - begin) - 1)  # the long form, for so many units
        for number in (0, max(lines, 0), 0 if start is None else start + 1, 0 if end is None else end + 1):
            table += _varint(number)  # the first is signed; zero is zero either way
    return bytes(table)


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x3F:
        digits.append(0x40 | number & 0x3F)
        number >>= 6
    digits.append(number)
    return bytes(digits)


def operation_place(traceback: TracebackType | None) -> str:
    """Return the user's line of the innermost operation that an error passed, "model.py:3 (in loss)"; "" if none."""
    place = ""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_varnames[:1] == (_MARK,) and code is not _template.__code__:
            place = f"{user_lines.file_name(code.co_filename)}:{code.co_firstlineno} (in {code.co_name})"
        traceback = traceback.tb_next
    return place
