"""The tables of docs/appendix/memory-model.md: on the terminal, and in their places on the page; and its picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
from pages import DOCS, grid, markdown, put
from rich.table import Table

from xrays.later import LATER
from xrays.measured import Growth, Row
from xrays.programs import HELD_OUT, PROGRAMS
from xrays.unseen import UNSEEN

PAGE = DOCS / "appendix" / "memory-model.md"
COLUMNS = ["program", "equations", "model: temporary + results", "XLA's plan", "ratio", "NumPy: unfused", "traced",
           "ratio of these"]


def cells(row: Row) -> list[str]:
    """A row of the table."""
    def both(pair: tuple[int, int]) -> str:
        return f"{pair[0]:,} + {pair[1]:,}"
    mark = " (held out)" if row.name in HELD_OUT else " (later)" if row.name in LATER else \
        " (unseen)" if row.name in UNSEEN else ""
    ratio = f"{row.ratio:.2f}" if row.is_close else f"**{row.ratio:.2f}**"
    return [row.name + mark, f"{row.equations:,}", both(row.model), both(row.planned), ratio, f"{row.unfused:,}",
            f"{row.traced:,}", f"{row.unfused / row.traced:.2f}"]


def table(rows: Sequence[Row]) -> Table:
    """The table for the terminal."""
    return grid(COLUMNS, [cells(row) for row in rows])


def write(rows: Sequence[Row], times: Mapping[str, tuple[int, float]], grown: Sequence[Growth]) -> None:
    """Writes everything into the page."""
    close = sum(row.is_close for row in rows)
    speeds = "; ".join(f"{title}, {count:,} equations: {ms:.0f} ms" for title, (count, ms) in times.items())

    def share(names: Mapping[str, object]) -> str:
        return f"{sum(row.is_close for row in rows if row.name in names)} of {len(names)}"

    summary = (f"Within 15 % of XLA's plan: {close} of {len(rows)}; {share(PROGRAMS)} that the model was made with, "
               f"{share(HELD_OUT)} held out, {share(LATER)} later, {share(UNSEEN)} unseen "
               f"(jax {jax.__version__}, CPU). Time of a prediction: {speeds}.")
    put(PAGE, "measured", f"{markdown(COLUMNS, [cells(row) for row in rows])}\n\n{summary}")
    heads = ["grows with", "size", "saved", "temporary, model", "temporary, XLA"]
    put(PAGE, "growth", markdown(heads, [
        [each.title, f"{size:,}", f"{saved:,}", f"{model:,}", f"{planned:,}"] for each in grown
        for size, saved, model, planned in zip(each.sizes, each.saved, each.model, each.planned, strict=True)]))
    draw(grown)


def draw(grown: Sequence[Growth]) -> None:
    """The picture of how memory grows."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, each in zip(figure.subplots(1, 2), grown, strict=True):
        for values, label, style in ((each.saved, "saved", "o-"), (each.model, "temporary, model", "s-"),
                                     (each.planned, "temporary, XLA", "x--")):
            axes.plot(each.sizes, [value / 2**20 for value in values], style, label=label)
        axes.set_xlabel(each.title)
        axes.set_ylabel("MiB")
        axes.legend()
    figure.savefig(DOCS / "images" / "memory-growth.png", dpi=110)
