"""The findings of `lint`: one for each line and fault, printed as a table or written as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Group
from rich.table import Table

from fxgrad.extend import Source
from fxgrad.text.tables import Report, add_row, new_table

KINDS = ("overflow", "cancellation", "derivative", "keys", "repeats", "edges")
"""Kinds of findings: lost numbers; digits that cancel; derivatives that are zero, infinite or NaN; random keys used
twice; blocks that a Python loop repeats; and, reported on request only, failures at the edges of the range of
floating-point numbers.
"""


class Finding(NamedTuple):
    """A finding: the `line`, the fault, what to write instead, and which of `KINDS` it is."""

    line: str
    fault: str
    write: str
    kind: str
    number: int = 0
    """The line number, which orders findings."""


def finding(source: Source | None, fault: str, write: str, kind: str) -> Finding:
    """Return a finding at a place in the user's code."""
    return Finding("?" if source is None else source.place, fault, write, kind, 0 if source is None else source.line)


class Findings(Report):
    """The findings of `lint`, in the order of lines; false if there are none. It prints as a table."""

    def __init__(self, title: str, findings: Sequence[Finding]) -> None:
        self.title = title
        self.findings = sorted(dict.fromkeys(findings), key=lambda found: (found.number, KINDS.index(found.kind)))

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def table(self) -> Table:
        """Return the table for rich."""
        made = new_table(self.title, dict.fromkeys(("line", "kind", "what goes wrong", "write"), "left"))
        for found in self.findings:
            add_row(made, [found.line, found.kind, found.fault, found.write])
        return made

    def to_json(self) -> str:
        """Return the findings as a list of objects with `line`, `kind`, `fault` and `write`."""
        return json.dumps([{"line": found.line, "kind": found.kind, "fault": found.fault, "write": found.write}
                           for found in self.findings], indent=2)

    def content(self) -> Table | Group | str:
        """Return the table, or that nothing was found."""
        return self.table() if self.findings else f"{self.title}: nothing was found"

    __repr__ = Report.__str__
