"""The words of program text, and errors that show their position."""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from fxgrad.errors import FxgradError, ProgramSyntaxError
from fxgrad.text.names import PATH, STRING, TYPE

NUMBER = r"[-+]?(?:0x[0-9a-fA-F]+|(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+|(?<=[-+])inf\b)"
KINDS = {
    "space": r"\s+", "comment": r"#[^\n]*", "type": TYPE, "ellipsis": r"\.\.\.", "number": NUMBER, "name": PATH,
    "quoted": r"`(?:[^`\\\n]|\\.)*`", "string": STRING, "size": r"'[^'\\\n]*'",
    "opaque": r"<[^<>\n]*>", "data": r"@[^\W\d]\w*",
    "mark": r"[()\[\]{}:=,*]", "wrong": r".",
}

COMPACT_KINDS = {
    **KINDS, "number": r"0x[0-9a-fA-F]+|(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+",
    "opaque": r"<[^\W\d][\w .]*>", "mark": r"\*\*|<<|>>|<=|>=|==|!=|->|[()\[\]{}:=,*+/@<>&|^~.-]",
}
"""The kinds of the compact style: a sign is a separate word, and there are operators."""


def _pattern(kinds: dict[str, str]) -> re.Pattern[str]:
    words = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in kinds.items() if kind not in ("space", "comment"))
    return re.compile(rf"(?:{KINDS['space']}|{KINDS['comment']})*+(?:{words}|\Z)")


_tokens, _compact_tokens = _pattern(KINDS), _pattern(COMPACT_KINDS)


MOST_CHARACTERS = 20_000
"""Most characters of a name or a type that is read; a suffix such as `.T` is part of the word."""


class Token(NamedTuple):
    """One word: its kind (a key of `KINDS`, or `end`), its text, and where it begins."""

    kind: str
    text: str
    at: int


class Text:
    """A text being read, which gives lines and columns for messages."""

    def __init__(self, text: str) -> None:
        self.text = text

    def tokens(self) -> list[Token]:
        """Return the words without spaces and comments, and an `end`."""
        return self._find_tokens(_tokens)

    def compact_tokens(self) -> list[Token]:
        """Return the words of the compact style and three `end`s, for readers that look ahead."""
        tokens = self._find_tokens(_compact_tokens)
        return [*tokens, tokens[-1], tokens[-1]]

    def any_tokens(self) -> list[Token]:
        """Return the words of the compact style, meaningless ones too."""
        return self._find_tokens(_compact_tokens, strict=False)

    def _find_tokens(self, pattern: re.Pattern[str], strict: bool = True) -> list[Token]:
        tokens: list[Token] = []
        for match in pattern.finditer(self.text):
            kind = match.lastgroup
            if kind is None:
                break
            if kind == "wrong" and strict:
                self.fail(match.start(kind), f"{match[kind]!r} has no meaning here")
            if kind in ("name", "type") and match.end(kind) - match.start(kind) > MOST_CHARACTERS:
                self.fail(match.start(kind), f"a word of {match.end(kind) - match.start(kind)} characters; names and "
                                             f"types have at most {MOST_CHARACTERS}")
            tokens.append(Token(kind, match[kind], match.start(kind)))
        return [*tokens, Token("end", "", len(self.text.rstrip()))]

    def place(self, at: int) -> tuple[int, int]:
        """Return line and column, counted from 1, of a position in the text."""
        return self.text.count("\n", 0, at) + 1, at - (self.text.rfind("\n", 0, at) + 1) + 1

    def described(self, at: int, problem: str) -> str:
        """Return a message with line and column, the line itself, and a mark below the position."""
        line, column = self.place(at)
        shown = self.text.splitlines()[line - 1] if self.text.strip() else ""
        start = max(0, min(column - 60, len(shown) - 100))  # of a long line the part around the position
        return (f"line {line}, column {column}: {problem}\n"
                f"  {shown[start:start + 100]}\n  {' ' * (column - 1 - start)}^")

    def fail(self, at: int, problem: str, error: type[FxgradError] = ProgramSyntaxError) -> NoReturn:
        """Raise `ProgramSyntaxError`, or another error of ours, that shows the place."""
        raise error(self.described(at, problem))
