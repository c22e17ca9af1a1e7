"""Programs beside each other: on a terminal in columns as wide as it allows, in a notebook too."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from rich.text import Text

from fxgrad.errors import ArgumentError
from fxgrad.extend import Program, at_user_line, trace_program
from fxgrad.text.color import highlight, user_names
from fxgrad.text.html import body_html, page
from fxgrad.text.text_writer import program_text

GAP = 3
NARROWEST = 36
"""Narrower columns are placed below each other."""


def side_by_side(*functions: Callable[..., Any] | Program, **options: Any) -> Callable[..., Columns]:
    """Return a function that traces all `functions` with its arguments, and shows their programs side by side.

    `options` are those of `program_text`; `source` is False unless given. Programs among the functions are shown
    unchanged. The result prints in columns, as wide as the terminal allows, in colour with `rich.print`, and as HTML in
    notebooks; `text(width)` is the text.

    >>> import numpy as np, fxgrad
    >>> def area(side):
    ...     return side * side
    >>> print(side_by_side(area, fxgrad.grad(area))(2.0).text(width=88))
    program area(side: f64*) -> f64*:   program grad(area)(side: f64*):
      return side * side                  d_side: f64* = 2.0 * side
                                          return d_side

    Raises `ArgumentError` without functions.
    """
    if not functions:
        raise ArgumentError(at_user_line("side_by_side takes functions, got none. Write side_by_side(f, grad(f))(x)"))

    def shown(*args: Any, **kwargs: Any) -> Columns:
        return Columns([
            function if isinstance(function, Program) else trace_program("side_by_side", function, args, kwargs)
            for function in functions], options)
    return shown


class Columns:
    """Programs that print beside each other."""

    def __init__(self, programs: Sequence[Program], options: dict[str, Any]) -> None:
        self.programs = [*programs]
        self._options = {"source": False, **options}

    def text(self, width: int) -> str:
        """Return the programs in columns that fill `width` characters, or below each other if these were too narrow."""
        return "\n".join(str(line).rstrip() for line in self._lines(width))

    def _lines(self, width: int) -> Iterator[Text]:
        count = len(self.programs)
        each = (width - GAP * (count - 1)) // count
        if each < NARROWEST:
            for number, program in enumerate(self.programs):
                yield from [Text()] * bool(number)
                yield from self._column(program, width)
            return
        columns = [self._column(program, each) for program in self.programs]
        wide = max(0, *(len(line) for column in columns for line in column)) if columns else 0
        for row in zip_longest(*columns, fillvalue=Text()):
            line = Text()
            for number, cell in enumerate(row):
                line.append(" " * ((wide + GAP) * number - len(line)))
                line.append_text(cell)
            yield line

    def _column(self, program: Program, width: int) -> list[Text]:
        text = program_text(program, **{"width": width, **self._options})
        broken = "\n".join(part for line in text.splitlines() for part in _break_line(line, width))
        return [*highlight(broken, user_names(program)).split("\n", allow_blank=True)]

    def __str__(self) -> str:
        return self.text(shutil.get_terminal_size((160, 24)).columns)

    __repr__ = __str__

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        for line in self._lines(options.max_width):
            yield Text(line.plain) if os.environ.get("NO_COLOR") else line

    def _repr_html_(self) -> str:
        columns = "".join(f"<div>{body_html(program, **self._options)}</div>" for program in self.programs)
        return page(f'<div class="fx-columns">{columns}</div>')


def _break_line(line: str, width: int) -> list[str]:
    """Break a line of program text that has no comma to break at."""
    if len(line) <= width:
        return [line]
    indent = line[:len(line) - len(line.lstrip())]
    return textwrap.wrap(line, width, subsequent_indent=f"{indent}    ", drop_whitespace=True) or [line]
