"""The margin of the compact style: the line of the user's code that each line of a program comes from."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from fxgrad.core.program import Equation, Program, Source
from fxgrad.show.sources import Sources

COMMENT_COLUMN = 64
"""Comments stand below each other where the lines before them are no longer than this."""
_CELL = re.compile(r"<ipython-input-(\d+)-\w+>")


class Line(NamedTuple):
    """A line of a file; two equations of one line may stand in one expression."""

    filename: str
    number: int


class Margin:
    """What stands at the ends of the lines of one text; the file that most lines are of stands in the head alone."""

    def __init__(self, program: Program, sources: Sources) -> None:
        self._sources = sources
        self._lines: dict[tuple[int, int], Line] = {}
        self._cells: dict[str, str] = {}
        lines = (self.line(equation) for each in programs_of(program) for equation in each.equations)
        count = Counter(line.filename for line in lines if line is not None)
        self.file = count.most_common(1)[0][0] if count else ""

    def line(self, equation: Equation) -> Line | None:
        """The user's line that recorded an equation."""
        source: Source | None = equation.source
        if source is None:
            return None
        key = id(source.code), source.instruction
        known = self._lines.get(key)
        if known is None:
            number = self._sources.span(source)[0] or source.code.co_firstlineno
            known = self._lines[key] = Line(source.filename, number)
        return known

    @property
    def head(self) -> str:
        """The comment of the program's head: the file."""
        return self._shown_file(self.file)

    def comment(self, line: Line | None) -> str:
        """The comment of a line of text."""
        if line is None:
            return "?"
        return str(line.number) if line.filename == self.file else f"{self._shown_file(line.filename)}:{line.number}"

    def _shown_file(self, filename: str) -> str:
        known = self._cells.get(filename)
        if known is None:
            known = self._cells[filename] = shown_file(filename)
        return known


def shown_file(filename: str) -> str:
    """The name of a file without its folder; `In[2]` for a cell of a notebook."""
    cell = _CELL.fullmatch(filename)
    if cell is not None:
        return f"In[{cell[1]}]"
    return "".join(char if char.isprintable() else "?" for char in os.path.basename(filename))


def programs_of(program: Program) -> Iterator[Program]:
    """A program and all that it holds, each once."""
    found = {id(program)}
    pending = [program]
    for each in pending:
        yield each
        for equation in each.equations:
            if equation.primitive.regions is not None:
                for inner in equation.programs:
                    if id(inner) not in found:
                        found.add(id(inner))
                        pending.append(inner)
