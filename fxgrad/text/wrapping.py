"""Break long lines of program text where it disturbs least: outside of brackets, at operators and commas."""

from __future__ import annotations

import re

_breaks = re.compile(r'"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`|[(\[]|[)\]]|, | (?=[-+*/@&|^<>=!]+ )')


def wrap_line(text: str, width: int, indent: str, start: int = 0, beyond: bool = False) -> list[str]:
    """Return `text` on lines of at most `width` if possible, further ones indented.

    If every possible break is beyond `width`, the line is broken there only if `beyond` is set.
    """
    lines = []
    while len(text) > width:
        place = _break_place(text, width, max(start, len(indent) + 8), beyond)
        if not place:
            break
        lines.append(text[:place].rstrip())
        text, start = indent + text[place:].lstrip(), 0
    return [*lines, text]


def _break_place(text: str, width: int, start: int, beyond: bool) -> int:
    """Return the position to break at: the least depth of brackets in the later part of the line, as far right as can
    be.
    """
    best, least, depth = 0, 1000, 0
    for match in _breaks.finditer(text):
        word = match[0]
        if word in "([":
            depth += 1
        elif word in ")]":
            depth -= 1
        elif word[0] in '"`' or match.start() < start:
            continue
        elif match.start() + len(word.rstrip()) > width:
            return match.end() if beyond and not best else best
        elif depth <= least or best < width // 2:
            best, least = match.end(), depth
    return best
