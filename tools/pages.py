"""Tables of what tools measured: on the terminal, and in their places on pages of the documentation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

DOCS = Path(__file__).resolve().parents[1] / "docs"


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table for the terminal."""
    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    return table


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for the page."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def put(page: Path, name: str, text: str) -> None:
    """Writes a table between `<!-- name: what it is -->` and `<!-- end -->` on the page."""
    found = page.read_text(encoding="utf-8")
    page.write_text(_place(name).sub(lambda match: f"{match[1]}\n{text}\n{match[3]}", found), encoding="utf-8")


def has(page: Path, name: str, text: str) -> bool:
    """Whether this is the table on the page."""
    match = _place(name).search(page.read_text(encoding="utf-8"))
    return match is not None and match[2].strip() == text


def _place(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name}: [^\n]*-->)(.*?)(<!-- end -->)", re.DOTALL)
