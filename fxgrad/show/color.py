"""Program text in colour: what a word is decides its style. It works on any text that `parse` would read."""

from __future__ import annotations

import re
from io import StringIO

from rich.console import Console
from rich.text import Text

from fxgrad.show.compact_color import roles
from fxgrad.show.compact_reader import is_compact
from fxgrad.show.tokens import KINDS
from fxgrad.show.tokens import Text as Tokens

STYLES = {
    "keyword": "bold", "title": "bold", "input": "cyan", "variable": "", "type": "green", "primitive": "blue",
    "letter": "dim", "function": "bold blue", "parameter": "magenta", "literal": "yellow", "comment": "dim",
    "opaque": "red",
}
"""The style of each role, in the words of rich; change them to change the colours."""

_words = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in KINDS.items()))
_ROLES = {"comment": "comment", "type": "type", "number": "literal", "string": "literal", "ellipsis": "literal",
          "opaque": "opaque", "data": "literal"}
_KEYWORDS = ("program", "captured", "return", "where")
_CONSTANTS = ("True", "False", "None", "nan", "inf", "complex", "full")
_defined = re.compile(r"^where ([^\W\d]\w*)", re.MULTILINE)


def highlight(text: str) -> Text:
    """Program text as rich text with the styles of `STYLES`."""
    result = Text(text)
    functions = {*_defined.findall(text)}
    if is_compact(Tokens(text)):
        for start, end, role in roles(text, functions):
            if STYLES[role]:
                result.stylize(STYLES[role], start, end)
        return result
    words = [match for match in _words.finditer(text) if match.lastgroup != "space"]
    scopes: list[set[str]] = [set()]
    in_head = False
    for index, match in enumerate(words):
        following = words[index + 1][0] if index + 1 < len(words) else ""
        role = _ROLES.get(match.lastgroup or "", "")
        if match.lastgroup in ("name", "quoted"):
            role = _role(match[0], following, words[index - 1][0] if index else "", functions)
            if role == "keyword" and match[0] == "program":
                scopes.append(set())
                in_head = True
            elif role == "binding":
                # A captured value is an input too.
                if in_head or words[index - 1][0] == "captured":
                    scopes[-1].add(match[0])
                role = "variable"
            if role == "variable" and match[0] in scopes[-1]:
                role = "input"
        elif match[0] == "{":
            in_head = False
        elif match[0] == "}" and len(scopes) > 1:
            scopes.pop()
        if STYLES.get(role):
            result.stylize(STYLES[role], match.start(), match.end())
    return result


def _role(word: str, following: str, preceding: str, functions: set[str]) -> str:
    """What a name is, told by its neighbours."""
    if preceding == "program" and following == "(":
        return "title"
    if word in _KEYWORDS:
        return "keyword"
    if word in _CONSTANTS:
        return "literal"
    if preceding == ":":
        return "type"  # of a literal
    if following == "(" or preceding == "where":
        return "function" if word in functions else "primitive"
    if following == "=":
        return "parameter"
    if following == ":":
        return "binding"
    return "primitive" if following in functions and preceding == "=" else "variable"


def ansi(text: str) -> str:
    """Program text with the escape sequences of a terminal."""
    file = StringIO()
    console = Console(file=file, force_terminal=True, color_system="standard", no_color=False, legacy_windows=False)
    console.print(highlight(text), soft_wrap=True, end="")
    return file.getvalue()
