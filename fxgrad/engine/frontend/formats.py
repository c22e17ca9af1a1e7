"""Format strings of `debug.print` and `check`, checked while a function is traced, before there are values."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError


def check_format(what: str, fmt: Any, args: tuple[Any, ...], kwargs: dict[str, Any], first: str = "") -> None:
    """Raise `ArgumentError` unless `fmt` is a format string with a field for each argument, and no others.

    `first` are the arguments of the public function `what` in front of the format string, as messages write them.
    """
    if not isinstance(fmt, str):
        place = "second" if first else "first"
        raise ArgumentError(at_user_line(
            f"{what}: the {place} argument is a {type(fmt).__name__}, where a format string is needed. Write "
            f"{what}({first}'{{}}', x)"))
    _Fields(what).vformat(fmt, args, kwargs)


class _Fields(string.Formatter):
    """Checks the fields of a format string against the arguments, whose values need not be known."""

    def __init__(self, what: str) -> None:
        self._what = what

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        first = re.split(r"[.\[]", field_name)[0]
        key: int | str = int(first) if first.isdigit() else first
        if (key not in kwargs) if isinstance(key, str) else (key >= len(args)):
            raise ArgumentError(at_user_line(
                f"{self._what}: the format string has the field {{{field_name}}}, and there is no such argument; "
                f"given are {self._given(args, kwargs)}"))
        return "", key

    def format_field(self, value: Any, format_spec: str) -> str:  # noqa: ARG002
        return ""

    def convert_field(self, value: Any, conversion: Any) -> Any:  # noqa: ARG002
        return value

    def check_unused_args(self, used_args: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        unused = [name for name in (*range(len(args)), *kwargs) if name not in used_args]
        if unused:
            raise ArgumentError(at_user_line(
                f"{self._what}: the format string has no field for {', '.join(f'{{{name}}}' for name in unused)}, "
                "which would not be printed; write such a field, or leave the argument out"))

    @staticmethod
    def _given(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        return ", ".join(f"{{{name}}}" for name in (*range(len(args)), *kwargs)) or "none"
