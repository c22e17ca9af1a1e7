"""What a program is to its user: text, colour, a function, JSON."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from fxgrad.engine.core.program import Program
from fxgrad.engine.frontend.calling import call_program, refuse_path
from fxgrad.shipping.c.writer import c_text
from fxgrad.shipping.python.writer import python_text
from fxgrad.text.checking import checked
from fxgrad.text.difference import Difference, difference
from fxgrad.text.display import fitting, render
from fxgrad.text.html import program_html
from fxgrad.text.pickled import reduced
from fxgrad.text.text_writer import program_text
from fxgrad.tools.editing.editor import Editor


class Presenter:
    """`print` shows text, `rich.print` the same in colour; `pickle` keeps what both need."""

    def text(self, program: Program) -> str:
        return program_text(program)

    def rich(self, program: Program, width: int) -> Text:
        return render(program, **fitting(program, width))

    def call(self, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call_program(program, args, kwargs)

    def check(self, program: Program) -> None:
        checked(program)

    def html(self, program: Program) -> str:
        return program_html(program)

    def difference(self, program: Program, other: Program) -> Difference:
        return difference(program, other)

    def python(self, program: Program, source: bool) -> str:
        return python_text(refuse_path("to_python", program), source=source)

    def c(self, program: Program, source: bool) -> str:
        return c_text(refuse_path("to_c", program), source=source)

    def edit(self, program: Program) -> Editor:
        return Editor(program)

    def reduce(self, program: Program) -> Any:
        return reduced(program)

