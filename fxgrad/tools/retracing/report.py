"""The report of traces and compilations, as objects: counts, milliseconds, causes; tables and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.table import Table

from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.tools.retracing.causes import FIRST, RetraceCause


class FunctionReport(NamedTuple):
    """The traces of one function: `how` it was called ("jit" or "un-jitted"), counts, milliseconds, causes.

    `traces` is the number of times that Python ran it to record it. `programs` is the number of recordings that were
    new: un-jitted code is recorded on every call, which takes microseconds if the recording is known. `compiles` is the
    number of times that XLA compiled it. `trace`, `lower` and `compile` are milliseconds.
    """

    name: str
    how: str
    traces: int
    programs: int
    compiles: int
    trace: float
    lower: float
    compile: float
    causes: tuple[RetraceCause, ...]


class Stop(NamedTuple):
    """A trace that stopped because a value was needed: the user's line, and the message, which tells what to write."""

    line: str
    message: str


class RetraceReport(Report):
    """Traces and compilations with their causes, by function (`functions`); where tracing was stopped (`stops`).

    `calls` counts those of an explained function, and `wall` is the milliseconds of all that was watched.
    """

    def __init__(self, functions: Sequence[FunctionReport], stops: Sequence[Stop], calls: int, wall: float) -> None:
        self.functions, self.stops, self.calls, self.wall = tuple(functions), tuple(stops), calls, wall

    def fill(self, other: RetraceReport) -> None:
        """Take over the contents of another report."""
        self.functions, self.stops, self.calls, self.wall = other.functions, other.stops, other.calls, other.wall

    @property
    def causes(self) -> tuple[RetraceCause, ...]:
        """The causes of all functions, each in the order of the calls."""
        return tuple(cause for each in self.functions for cause in each.causes)

    @property
    def traces(self) -> int:
        """The number of times that Python ran functions to record them."""
        return sum(each.traces for each in self.functions)

    @property
    def programs(self) -> int:
        """The number of recordings that were new."""
        return sum(each.programs for each in self.functions)

    @property
    def compiles(self) -> int:
        """The number of compilations by XLA."""
        return sum(each.compiles for each in self.functions)

    @property
    def run(self) -> float:
        """The milliseconds outside traces and compilations: running, and dispatch."""
        return max(0.0, self.wall - sum(each.trace + each.lower + each.compile for each in self.functions))

    def table(self) -> Table:
        """Return the tables for rich, one below the other."""
        made = Table.grid(padding=(0, 0))
        made.add_column()
        made.add_row(self._totals())
        again = [(each, cause) for each in self.functions for cause in each.causes if cause.kind != FIRST]
        if again:
            made.add_row(_causes(again))
        if self.stops:
            stops = new_table("where tracing was stopped", {"line": "left", "why, and what to write": "left"})
            for stop in self.stops:
                add_row(stops, [stop.line, stop.message])
            made.add_row(stops)
        return made

    def _totals(self) -> Table:
        calls = f"{self.calls} call{'s' * (self.calls != 1)}, " if self.calls else ""
        made = new_table(
            f"{calls}{self._counts()}; {self.wall:.1f} ms, of which {self.run:.1f} ms ran",
            {"function": "left", "how": "left", "traces": "right", "new": "right", "compiled": "right",
             "trace ms": "right", "lower ms": "right", "compile ms": "right"})
        for each in self.functions:
            add_row(made, [each.name, each.how, str(each.traces), str(each.programs), str(each.compiles),
                           f"{each.trace:.2f}", f"{each.lower:.1f}", f"{each.compile:.1f}"])
        return made

    def __repr__(self) -> str:
        return f"<{self._counts()}>"

    def _counts(self) -> str:
        return f"{self.traces} trace{'s' * (self.traces != 1)}, {self.programs} new, {self.compiles} compiled"

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the report as JSON."""
        functions: list[dict[str, Any]] = [
            {**each._asdict(), "causes": [cause._asdict() for cause in each.causes]} for each in self.functions]
        return json.dumps({"calls": self.calls, "wall": self.wall, "run": self.run, "functions": functions,
                           "stops": [stop._asdict() for stop in self.stops]}, indent=indent)


def _causes(again: Sequence[tuple[FunctionReport, RetraceCause]]) -> Table:
    """Return a table with one row for each kind and argument, with the last of its causes."""
    made = new_table("why again", {"function, and where it was called": "left", "what was new": "left",
                                   "times": "right", "ms": "right", "what to write": "left"})
    rows: dict[tuple[str, ...], list[RetraceCause]] = {}
    for each, cause in again:
        rows.setdefault((each.name, each.how, cause.kind, cause.name, cause.line), []).append(cause)
    for (name, *_), causes in sorted(rows.items(), key=lambda row: -sum(each.milliseconds for each in row[1])):
        last = causes[-1]
        add_row(made, [f"{name}\n{last.line}", f"{last.kind}\n{last.what}", str(len(causes)),
                       f"{sum(each.milliseconds for each in causes):.1f}", last.advice])
    return made
