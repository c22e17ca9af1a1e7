"""The margin of the compact style: for each line of a program the line of the user's code that recorded it."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from fxgrad.extend import Equation, Program, Source, file_name, source_line
from fxgrad.text.sources import Sources, Span

COMMENT_COLUMN = 64
"""Comments are aligned if the lines before them are no longer than this."""
_CALL = re.compile(r"(?:[^\W\d]\w*\.)*([^\W\d]\w*)\(")
_CELL = re.compile(r"<ipython-input-(\d+)-\w+>")


class UserLine(NamedTuple):
    """A line of a file; equations of one line may share an expression."""

    filename: str
    number: int


class Margin:
    """The comments of one text; the file that most lines come from is named in the head only."""

    def __init__(self, program: Program, sources: Sources) -> None:
        self._sources = sources
        self._lines: dict[tuple[int, int], UserLine] = {}
        self._cells: dict[str, str] = {}
        self._called: dict[tuple[int, int], str] = {}
        count: Counter[str] = Counter()
        self._recorded: Counter[tuple[int, int]] = Counter()
        for each in programs_within(program):
            sources_of = [equation.source for equation in each.equations if equation.source is not None]
            count.update([source.filename for source in sources_of])
            self._recorded.update([(id(source.code), source.instruction) for source in sources_of])
        self.file = count.most_common(1)[0][0] if count else ""

    def line(self, equation: Equation) -> UserLine | None:
        """Return the user's line that recorded an equation."""
        source: Source | None = equation.source
        if source is None:
            return None
        key = id(source.code), source.instruction
        known = self._lines.get(key)
        if known is None:
            number = self._sources.span(source)[0] or source.code.co_firstlineno
            known = self._lines[key] = UserLine(source.filename, number)
        return known

    def called(self, equation: Equation) -> str:
        """Return the function that the user called there, if the text has its operations, not its name; else ""."""
        source: Source | None = equation.source
        if source is None:
            return ""
        key = id(source.code), source.instruction
        if self._recorded[key] < 2:
            return ""
        known = self._called.get(key)
        if known is None:
            known = self._called[key] = _call_label(source.filename, self._sources.span(source))
        return known

    def function_called_at(self, source: Source | str | None) -> str:
        """Return the function that the user called at a source; a text is its own name."""
        if source is None or isinstance(source, str):
            return source or ""
        return _call_label(source.filename, self._sources.span(source))

    @property
    def head(self) -> str:
        """Return the comment of the program's head: the file."""
        return self._shown_file(self.file)

    def comment(self, line: UserLine | None, called: str = "") -> str:
        """Return the comment of a line of text."""
        if line is None:
            return "?"
        number = str(line.number)
        shown = number if line.filename == self.file else f"{self._shown_file(line.filename)}:{number}"
        return f"{shown} {called}".rstrip()

    def _shown_file(self, filename: str) -> str:
        known = self._cells.get(filename)
        if known is None:
            known = self._cells[filename] = file_label(filename)
        return known


def file_label(filename: str) -> str:
    """Return the name of a file without its folder; `In[2]` for a cell of a notebook."""
    cell = _CELL.fullmatch(filename)
    if cell is not None:
        return f"In[{cell[1]}]"
    return "".join(char if char.isprintable() else "?" for char in file_name(filename))


def _call_label(filename: str, span: Span) -> str:
    """Return the function called in a line: `log_softmax` of `nn.log_softmax(x)`; "" if it is no call."""
    first, last, start, end = span
    if first is None or first != last:
        return ""
    try:
        text = source_line(filename, first).encode()[start:end].decode()
    except Exception:  # noqa: BLE001  (doctest, notebooks and debuggers put functions of their own in its place)
        return ""
    call = _CALL.match(text)
    if call is None:
        return ""
    depths = itertools.accumulate((char in "([{") - (char in ")]}") for char in text[call.end() - 1:])
    closed = next((place for place, depth in enumerate(depths) if not depth), -1)
    return call[1] if call.end() + closed == len(text) else ""


def programs_within(program: Program) -> Iterator[Program]:
    """Return a program and all programs that it holds, each once."""
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
