"""Tables that print: as text, in colour with rich, and as HTML in notebooks."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fxgrad.text.consoles import file_console
from fxgrad.text.html import monospaced

WIDTH = 110
"""The width of tables as text, fixed so that it does not depend on the terminal."""


class Report:
    """Base class of results shown as a table; subclasses define `table()`."""

    def table(self) -> Table:
        """Return the table for rich."""
        raise NotImplementedError

    def content(self) -> Table | Group | str:
        """Return the table, with a note below it, or a sentence instead of it."""
        return self.table()

    def __rich__(self) -> Table | Group | Text:
        content = self.content()
        return Text(content) if isinstance(content, str) else content

    def __str__(self) -> str:
        content = self.content()
        if isinstance(content, str):
            return content
        console = file_console(io.StringIO(), width=WIDTH, color_system=None)
        with console.capture() as captured:
            console.print(content)
        return captured.get()

    def _repr_html_(self) -> str:
        console = file_console(io.StringIO(), record=True, width=WIDTH)
        console.print(self)
        return monospaced(console.export_html(inline_styles=True, code_format="{code}"))


def new_table(title: str, columns: dict[str, Any]) -> Table:
    """Return a table of columns, each "left" or "right"; brackets in the title are not markup."""
    made = Table(title=title.replace("[", "\\["), show_edge=True)
    for head, side in columns.items():
        made.add_column(head, justify=side)
    return made


def add_row(table: Table, cells: list[str], **options: Any) -> None:
    """Add a row of plain text: types such as f64[3] are not markup."""
    table.add_row(*(cell.replace("[", "\\[") for cell in cells), **options)
