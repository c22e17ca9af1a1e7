"""The tables of docs/appendix/parallel-patterns.md: on the terminal, and in their places on the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pages import grid, markdown
from rich.table import Table

from fxgrad.engine.units import time_text
from parallels.measured import Row
from parallels.simulated import Case

PAGE = Path(__file__).resolve().parents[2] / "docs" / "appendix" / "parallel-patterns.md"
SHORT = {"all-reduce": "reduce", "all-gather": "gather", "reduce-scatter": "scatter", "all-to-all": "exchange",
         "collective-permute": "permute"}
MEASURED = ["pattern", "differs", "collectives, jax's", "bytes sent, jax's", "parameters a device", "temporary, jax's",
            "time", "trace and lower"]
SIMULATED = ["pattern", "devices", "work", "on the wire", "time", "bubble", "memory a device", "what takes longest"]


def is_worse(row: Row) -> bool:
    """Whether there are more collectives, more bytes on the wire or more temporary memory than jax's."""
    ours, theirs = row.operations
    return ours.total() > theirs.total() or row.sent[0] > row.sent[1] or row.temporary[0] > row.temporary[1]


def cells(row: Row) -> list[str]:
    """A row of what was measured."""
    return [row.name, f"{row.differs:.0e}", against(shown(row.operations[0]), shown(row.operations[1])),
            against(f"{row.sent[0]:,}", f"{row.sent[1]:,}"), f"1/{round(1 / row.state)}",
            f"{row.temporary[0]:,}, {row.temporary[1]:,} ({row.temporary[0] / row.temporary[1]:.2f})",
            f"{row.time[0] / row.time[1]:.2f}", f"{row.lowering[0] / row.lowering[1]:.2f}"]


def against(ours: str, theirs: str) -> str:
    """Ours, and jax's where it is another."""
    return f"{ours}, the same" if ours == theirs else f"{ours}, {theirs}"


def shown(found: Counter[str]) -> str:
    """How many collectives there are of each kind."""
    return " + ".join(f"{found[kind]} {short}" for kind, short in SHORT.items() if found[kind]) or "none"


def case_cells(case: Case) -> list[str]:
    """A row of the simulation."""
    found = case.found
    mesh = " x ".join(map(str, case.mesh.values()))
    longest = max(found.exchanges, key=lambda each: each.seconds)
    is_work = found.compute > longest.seconds
    return [case.name, f"{case.devices:,}" + (f" ({mesh})" if len(case.mesh) > 1 else ""), time_text(found.compute),
            time_text(found.communication), f"{time_text(found.overlapped)} to {time_text(found.time)}",
            f"{case.bubble:.0%}" if case.bubble else "-", gigabytes(found.memory),
            "work" if is_work else f"{longest.transfer.kind} over {longest.transfer.axis}, {longest.link} nodes"]


def gigabytes(count: int) -> str:
    """Bytes in the unit that suits them."""
    return f"{count / 1e9:,.3g} GB" if count < 1e12 else f"{count / 1e12:,.3g} TB"


def measured_table(rows: Sequence[Row]) -> Table:
    """What was measured, for the terminal."""
    return grid(MEASURED, [*map(cells, rows)])


def measurement(rows: Sequence[Row]) -> str:
    """What was measured, for the page."""
    return markdown(MEASURED, [*map(cells, rows)])


def simulation_table(cases: Sequence[Case]) -> Table:
    """The simulation, for the terminal."""
    return grid(SIMULATED, [*map(case_cells, cases)])


def simulation(cases: Sequence[Case]) -> str:
    """The simulation, for the page."""
    return markdown(SIMULATED, [*map(case_cells, cases)])
