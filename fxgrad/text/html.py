"""Programs as HTML for notebooks: names have hover text, a click follows a value, and programs collapse.

It is built from the text and the roles of its words, like the colours of terminals. Each output carries its style and
its script, a click handler, so that nothing is loaded or installed.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Sequence
from html import escape
from typing import Any

from fxgrad.errors import FxgradError
from fxgrad.extend import Program, inner_first, source_line
from fxgrad.text.color import user_names
from fxgrad.text.names import NAMES, quoted_name
from fxgrad.text.roles import VARIABLES, Word, structure
from fxgrad.text.scope import type_text
from fxgrad.text.sources import Sources
from fxgrad.text.text_parser import parse
from fxgrad.text.text_writer import program_text

LIGHT = {"text": "#1f2328", "keyword": "#1f2328", "title": "#1f2328", "input": "#0b6b8a", "variable": "#1f2328",
         "letter": "#8a929b", "type": "#1a7f37", "primitive": "#0550ae", "function": "#0550ae", "parameter": "#8250df",
         "literal": "#9a6700", "comment": "#8a929b", "opaque": "#cf222e", "on": "#fff3b8", "added": "#dafbe1",
         "removed": "#ffebe9"}
DARK = {"text": "#e6edf3", "keyword": "#e6edf3", "title": "#e6edf3", "input": "#56c8e8", "variable": "#e6edf3",
        "letter": "#7d8590", "type": "#56d364", "primitive": "#79c0ff", "function": "#79c0ff", "parameter": "#d2a8ff",
        "literal": "#e3b341", "comment": "#7d8590", "opaque": "#ff7b72", "on": "#5a4a00", "added": "#12361f",
        "removed": "#4a1a1c"}
"""Colours by role, and of marked words."""
MAX_COLORED_CHARACTERS = 20_000
"""Characters of a text that is read to infer types."""
MONOSPACED = ("margin: 0; padding: 0; font-family: ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; "
              "line-height: 1.3; white-space: pre; overflow-x: auto; text-align: left; background: none; "
              "color: inherit")
"""The style of text in columns, set on the element since viewers of notebooks drop or override style sheets."""
BOLD = ("keyword", "title", "input", "variable", "function")

CLICK = """\
var t = event.target.closest('[data-v]'), all = Array.from(this.querySelectorAll('[data-v]'));
all.forEach(function (e) { e.classList.remove('fx-on'); });
if (!t) return;
var same = all.filter(function (e) { return e.dataset.v === t.dataset.v; }), goal = same[0];
same.forEach(function (e) { e.classList.add('fx-on'); });
if (t === same[0] && same.length > 1) {
  var next = (+t.dataset.n || 0) % (same.length - 1) + 1;
  t.dataset.n = next;
  goal = same[next];
}
for (var up = goal; up && up !== this; up = up.parentElement) if (up.tagName === 'DETAILS') up.open = true;
goal.scrollIntoView({block: 'nearest', inline: 'nearest'});"""
"""From a use to the definition, and from the definition to one use after the other."""
HOVER = """\
var t = event.target.closest('[data-v]');
if (t && !t.title) t.title = Array.from(this.querySelectorAll('[data-v]')).find(
  function (e) { return e.dataset.v === t.dataset.v; }).title;"""
"""A use copies the hover text of the definition before it."""


LIGHT_PAGES = 'body[data-jp-theme-light="true"], body.vscode-light, html[theme="light"]'
DARK_PAGES = 'body[data-jp-theme-light="false"], body.vscode-dark, html[theme="dark"]'
"""Selectors of what notebooks mark as light and as dark: those of Jupyter, Visual Studio Code and Colab."""


def _rule(selector: str, colors: dict[str, str]) -> str:
    return f"{selector} {{{' '.join(f'--fx-{role}: {color};' for role, color in colors.items())}}}"


STYLE = "\n".join([
    _rule(".fxgrad", LIGHT),
    f"@media (prefers-color-scheme: dark) {{ {_rule('.fxgrad', DARK)} }}",
    # The notebook's own theme takes precedence over the system's.
    _rule(f":is({LIGHT_PAGES}) .fxgrad", LIGHT),
    _rule(f":is({DARK_PAGES}) .fxgrad", DARK),
    ".fxgrad { color: var(--fx-text); font-size: 0.9em; }",
    *(f".fxgrad .fx-{role} {{ color: var(--fx-{role});{' font-weight: 600;' if role in BOLD else ''} }}"
      for role in LIGHT if role not in ("text", "on", "added", "removed")),
    ".fxgrad [data-v] { cursor: pointer; }",
    ".fxgrad .fx-on { background: var(--fx-on); border-radius: 2px; }",
    ".fxgrad .fx-added { background: var(--fx-added); } .fxgrad .fx-removed { background: var(--fx-removed); }",
    ".fxgrad details, .fxgrad summary { display: inline; } .fxgrad summary { cursor: pointer; list-style: none; }",
    ".fxgrad summary::-webkit-details-marker { display: none; }",
    ".fxgrad summary::after { content: ' \\25be'; color: var(--fx-comment); }",
    ".fxgrad details:not([open]) > summary::after { content: ' \\25b8 \\2026 '; }",
    ".fxgrad .fx-columns { display: flex; gap: 3em; align-items: flex-start; }",
])


def program_html(program: Program, **options: Any) -> str:
    """Return `program` as HTML; `options` are those of `program_text`.

    >>> import fxgrad
    >>> html = program_html(fxgrad.make_program(lambda x: x + 1.0)(2.0))
    >>> html.count("<details"), "prefers-color-scheme: dark" in html
    (0, True)
    """
    return page(body_html(program, **options))


def page(body: str) -> str:
    """Return the output of a notebook for a body: with the style, and the click handler."""
    handlers = f'onclick="{escape(CLICK)}" onmouseover="{escape(HOVER)}"'
    return f'<div class="fxgrad" {handlers}><style>\n{STYLE}\n</style>{monospaced(body)}</div>'


def monospaced(body: str) -> str:
    """Return an element that preserves the lines and columns of a body."""
    return f'<pre style="{MONOSPACED}">{body}</pre>'


def body_html(program: Program, **options: Any) -> str:
    """Return the text of a program with an element for each word that has a role, and for each collapsible program."""
    text = program_text(program, **options)
    found = structure(text, user_names(program))
    titles = _titles(text, found.words, _comment_texts(program, text))
    # At the end of a line first some end that fold, and then one begins.
    marks = sorted([(end, 0, "</div></details>") for _, end in found.folds]
                   + [(begin, 1, "<details open><summary></summary><div>") for begin, _ in found.folds])
    pieces: list[str] = []
    end = 0
    for word in [*found.words, Word(len(text), len(text), "")]:
        while marks and marks[0][0] <= word.start:
            place, _, mark = marks.pop(0)
            pieces += [escape(text[end:place]), mark]
            end = max(end, place + (text[place:place + 1] == "\n"))
        pieces += [escape(text[end:word.start]), _element(text, word, titles)]
        end = word.end
    return "".join(pieces)


def _element(text: str, word: Word, titles: dict[tuple[int, str], str]) -> str:
    name = text[word.start:word.end]
    shown = escape(name)
    if not word.role:
        return shown
    if word.role not in VARIABLES or (word.scope, name) not in titles:
        return f'<span class="fx-{word.role}">{shown}</span>'
    told = f' title="{escape(titles[word.scope, name])}"' if word.binds else ""
    return f'<span class="fx-{word.role}" data-v="{word.scope} {shown}"{told}>{shown}</span>'


def _titles(text: str, found: Sequence[Word], lines: dict[str, str]) -> dict[tuple[int, str], str]:
    """Return hover texts of variables, by scope and name: name, type, line, and the line's text."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    comments = _comments(text, found, starts, lines)
    inferred = _inferred_types(text)
    titles: dict[tuple[int, str], str] = {}
    for index, word in enumerate(found):
        if word.binds:
            name = text[word.start:word.end]
            kind = _type(text, found[index + 1:index + 200]) or (inferred.get(name, "") if word.scope == 1 else "")
            comment = comments[bisect(starts, word.start) - 1]
            titles[word.scope, name] = "\n".join(filter(None, [f"{name}: {kind}" if kind else name, comment]))
    return titles


def _type(text: str, following: Sequence[Word]) -> str:
    """Return the type written after a binding, or after later bindings of the same type."""
    for word in following:
        if word.role == "type":
            return text[word.start:word.end]
        if not word.binds and text[word.start:word.end] not in (",", ":"):
            break
    return ""


def _inferred_types(text: str) -> dict[str, str]:
    """Return the types, by name, of the main program's variables that the text leaves out, by parsing it."""
    if len(text) > MAX_COLORED_CHARACTERS:
        return {}
    try:
        program = parse(text)
    except FxgradError:  # text with opaque objects cannot be parsed
        return {}
    names = NAMES.of(program) or {}
    return {quoted_name(name): type_text(var.aval) for var, name in names.items()}


def _comments(text: str, found: Sequence[Word], starts: Sequence[int], lines: dict[str, str]) -> list[str]:
    """Return the text behind each comment; in the compact style a line without one continues the line before."""
    by_line = {}
    for word in found:
        comment = text[word.start:word.end].strip("# ") if word.role == "comment" else ""
        if comment in lines:
            by_line[bisect(starts, word.start) - 1] = lines[comment]
    goes_on = "{" not in text.split("\n", 1)[0]
    comments: list[str] = []
    for number, line in enumerate(text.split("\n")):
        before = comments[-1] if goes_on and number > 1 and line else ""
        comments.append(by_line.get(number, before))
    return comments


def _comment_texts(program: Program, text: str) -> dict[str, str]:
    """Map the comments of a text to the file with the line, and its text."""
    sources = Sources()
    main_file = text.split("\n", 1)[0].rpartition("# ")[2]
    lines: dict[str, str] = {}
    for inner in inner_first(program):
        for equation in inner.equations:
            if equation.source is not None:
                comment = sources.comment(equation.source)
                if comment not in lines:
                    number = sources.span(equation.source)[0]
                    lines[comment] = f"{comment}\n{_line(equation.source.filename, number)}"
                    if comment == f"{main_file}:{number}":
                        lines[str(number)] = lines[comment]
    return lines


def _line(filename: str, number: int | None) -> str:
    try:
        return "" if number is None else source_line(filename, number).strip()
    except Exception:  # noqa: BLE001  (others put functions of their own in its place)
        return ""
