"""The figures as tables, on the terminal and in Markdown, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.workload import OURS, Verdict, Workload


@dataclass(frozen=True)
class Outcome:
    """What was found of one workload: times by peer (see `Figures`), temporary memory by peer, or why it failed.

    `device` is where jax ran.
    """

    workload: Workload
    times: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    failure: str = ""
    device: str = ""

    @property
    def medians(self) -> dict[str, float]:
        """Median microseconds by peer."""
        return {peer: figures["median"] for peer, figures in self.times.items()}

    @property
    def verdicts(self) -> list[Verdict]:
        """How its bars were met; those that speak of an absent peer are left out."""
        if self.failure:
            return []
        found = (bar.judge(self.medians, self.memory) for bar in self.workload.bars)
        return [verdict for verdict in found if verdict is not None]

    def as_json(self) -> dict[str, Any]:
        """All of it in plain values."""
        return {"name": self.workload.name, "title": self.workload.title, "device": self.device,
                "microseconds": dict(self.times), "temporary_bytes": dict(self.memory),
                "failure": self.failure,
                "bars": [{**verdict._asdict(), "met": verdict.met} for verdict in self.verdicts]}


def duration(microseconds: float) -> str:
    """A time in the unit that suits it."""
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= 0.9995 * size:
            return f"{digits(microseconds / size)} {unit}"
    return f"{digits(microseconds)} µs"


def digits(number: float) -> str:
    """Three digits of a number, without an exponent."""
    return f"{number:#.3g}".rstrip(".") if 1e-4 < number < 999.5 else f"{number:,.0f}"


class Grid(NamedTuple):
    """A table as text; all columns but the first `left` are figures."""

    title: str
    header: list[str]
    rows: list[list[str]]
    left: int = 1

    def rich(self) -> Table:
        """For the terminal; verdicts get their colour."""
        table = Table(title=self.title)
        for number, column in enumerate(self.header):
            table.add_column(column, justify="left" if number < self.left else "right")
        colours = {"met": "green", "missed": "bold red"}
        for row in self.rows:
            table.add_row(*(Text(cell, style=colours.get(cell, "")) for cell in row))
        return table

    def markdown(self) -> str:
        """For a page."""
        rule = ["---" if number < self.left else "---:" for number in range(len(self.header))]
        lines = [f"| {' | '.join(cells)} |" for cells in (self.header, rule, *self.rows)]
        return "\n".join([f"**{self.title[0].upper()}{self.title[1:]}**", "", *lines, ""])


def grids(outcomes: Sequence[Outcome]) -> list[Grid]:
    """The times group by group, the memory, and the bars."""
    measured = [outcome for outcome in outcomes if not outcome.failure]
    groups = dict.fromkeys(outcome.workload.group for outcome in measured)
    found = [times(group, [outcome for outcome in measured if outcome.workload.group == group]) for group in groups]
    with_memory = [outcome for outcome in measured if outcome.memory]
    return [*found, *([memory(with_memory)] if with_memory else []), bars(measured)]


def times(group: str, outcomes: Sequence[Outcome]) -> Grid:
    """One row for each workload, one column for each peer: its time, and that of fxgrad as a multiple of it."""
    peers = list(dict.fromkeys(peer for outcome in outcomes for peer in outcome.times))
    rows = [[outcome.workload.name.split(": ", 1)[1],
             *(beside_ours(duration(outcome.medians[peer]), peer, outcome.medians[OURS] / outcome.medians[peer])
               if peer in outcome.times else "" for peer in peers)] for outcome in outcomes]
    return Grid(f"{group}: median time (and fxgrad's as a multiple of it)", ["workload", *peers], rows)


def memory(outcomes: Sequence[Outcome]) -> Grid:
    """Temporary memory of compiled functions."""
    peers = list(dict.fromkeys(peer for outcome in outcomes for peer in outcome.memory))
    rows = [[outcome.workload.name,
             *(beside_ours(f"{outcome.memory[peer]:,}", peer, outcome.memory[OURS] / max(outcome.memory[peer], 1))
               if peer in outcome.memory else "" for peer in peers)] for outcome in outcomes]
    return Grid("temporary bytes of compiled functions (and fxgrad's as a multiple)", ["workload", *peers], rows)


def beside_ours(text: str, peer: str, ratio: float) -> str:
    """A cell: the figure of a peer, and behind it fxgrad's as a multiple of it."""
    return text if peer == OURS else f"{text} ({digits(ratio)})"


def bars(outcomes: Sequence[Outcome]) -> Grid:
    """One row for each bar: the figure, the bar, and in words whether it is met."""
    verdicts = [(outcome.workload.name, verdict) for outcome in outcomes for verdict in outcome.verdicts]
    missed = sum(not verdict.met for _, verdict in verdicts)
    rows = [[name, verdict.what, "met" if verdict.met else "missed", f"{digits(verdict.figure)} {verdict.unit}",
             f"{digits(verdict.limit)} {verdict.unit}"] for name, verdict in verdicts]
    return Grid(f"bars: {len(verdicts) - missed} met, {missed} missed",
                ["workload", "fxgrad against", "verdict", "figure", "at most"], rows, left=3)


def line(outcome: Outcome) -> str:
    """The figures of one workload, as they are printed while others are still measured."""
    if outcome.failure:
        return f"failed {outcome.workload.name}: {outcome.failure}"
    figures = [f"{peer} {duration(median)}" for peer, median in outcome.medians.items()]
    judged = [f"{verdict.what} {digits(verdict.figure)} {verdict.unit}, {'met' if verdict.met else 'missed'}"
              for verdict in outcome.verdicts]
    return "; ".join([f"{outcome.workload.name}: {', '.join(figures)}", *judged])


def show(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Prints all tables, and what failed."""
    for grid in grids(outcomes):
        console.print(grid.rich())
    for outcome in outcomes:
        if outcome.failure:
            console.print(f"[bold red]failed[/] {outcome.workload.name}: {outcome.failure}", highlight=False)


def markdown(outcomes: Sequence[Outcome]) -> str:
    """All tables for a page."""
    return "\n".join(grid.markdown() for grid in grids(outcomes))
