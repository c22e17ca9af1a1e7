"""Programs on a terminal: rich text in colour, and printing it."""

from __future__ import annotations

import os
from typing import Any

from rich.text import Text

from fxgrad.extend import Program, require_program
from fxgrad.text.color import highlight, user_names
from fxgrad.text.consoles import file_console
from fxgrad.text.text_writer import WIDTH, program_text

NARROWEST = 40
"""Characters that programs take, however narrow a terminal is."""


def render(program: Program, *, color: bool | None = None, **options: Any) -> Text:
    """Return `program` as rich text, with a style for each role of a word; `options` are those of `program_text`.

    Without `color`, styles are used unless the environment variable NO_COLOR is set.

    >>> import fxgrad
    >>> program = fxgrad.make_program(lambda x: x + 1.0)(2.0)
    >>> render(program, source=False).plain.splitlines()[0]
    'program function(x: f64*) -> f64*:'
    """
    text = program_text(require_program("render", program), **options)
    styled = not os.environ.get("NO_COLOR") if color is None else color
    return highlight(text, user_names(program)) if styled else Text(text)


def fit_options(program: Program, width: int, **options: Any) -> dict[str, Any]:
    """Return `options` with a `width` at which no line exceeds `width`, comments included, if possible."""
    if "width" in options:
        return options
    tried = min(WIDTH, width)
    for _ in range(4):  # line breaks and the column of comments depend on each other
        excess = max(map(len, program_text(program, width=tried, **options).split("\n"))) - width
        if excess <= 0 or tried == NARROWEST:
            break
        tried = max(NARROWEST, tried - max(excess, 4))
    return {**options, "width": tried}


def render_fitted(program: Program, width: int) -> Text:
    """Return the program in colour, in lines of at most `width` characters where possible."""
    return render(program, **fit_options(program, width))


def print_program(program: Program, *, color: bool | None = None, file: Any = None, **options: Any) -> None:
    """Print `program`, in colour if the output is a terminal and NO_COLOR is not set, or as `color` requires.

    `options` are those of `program_text`; lines are broken where possible to fit the terminal.

    >>> import fxgrad
    >>> print_program(fxgrad.make_program(lambda x: x + 1.0)(2.0), source=False)
    program function(x: f64*) -> f64*:
      return x + 1.0
    """
    require_program("print_program", program)
    console = file_console(file, force_terminal=True if color else None,
                           no_color=None if color is None else not color, highlight=False)
    if console.is_terminal:
        options = fit_options(program, console.width, **options)
    console.print(render(program, color=color, **options), soft_wrap=True)

