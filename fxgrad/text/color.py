"""Program text in colour: the role of a word decides its style. Any text that `parse` reads is accepted."""

from __future__ import annotations

from collections.abc import Collection
from io import StringIO

from rich.text import Text

from fxgrad.extend import Program, inner_first
from fxgrad.text.consoles import file_console
from fxgrad.text.names import own_names, quoted_name
from fxgrad.text.roles import structure
from fxgrad.text.sources import Sources

STYLES = {
    "keyword": "bold", "title": "bold", "input": "bold cyan", "variable": "bold", "letter": "dim", "type": "green",
    "primitive": "blue", "function": "bold blue", "parameter": "magenta", "literal": "yellow", "comment": "dim",
    "opaque": "red",
}
"""The style of each role, in rich's syntax; change them to change the colours. The user's names are strong, letters
faint.
"""


def highlight(text: str, named: Collection[str] | None = None) -> Text:
    """Return program text as rich text with the styles of `STYLES`; `named` as for `structure`."""
    result = Text(text)
    for word in structure(text, named).words:
        if STYLES.get(word.role):
            result.stylize(STYLES[word.role], word.start, word.end)
    return result


def user_names(program: Program) -> set[str]:
    """Return the names in the text of a program that are not letters."""
    sources = Sources()
    return {quoted_name(name) for inner in inner_first(program) for name in own_names(inner, sources).values()}


def ansi(text: str, named: Collection[str] | None = None) -> str:
    """Return program text with the escape sequences of a terminal; `named` as for `structure`."""
    file = StringIO()
    console = file_console(file, force_terminal=True, color_system="standard", no_color=False, legacy_windows=False)
    console.print(highlight(text, named), soft_wrap=True, end="")
    return file.getvalue()
