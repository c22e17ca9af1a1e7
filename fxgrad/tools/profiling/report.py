"""Objects of the memory report: live values at the peak, timeline, residuals; tables, bars, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from fxgrad.errors import UnsupportedError
from fxgrad.extend import Aval, at_user_line, bytes_text
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.tools.profiling.bars import bar, bars

MOST_ROWS = 12
"""Most live or saved values that are shown; the others are one row."""


def _found_state(report: Any, found: str, finder: str) -> dict[str, Any]:
    """Return the state of a report for pickles and copies: with what its finder finds, which holds programs."""
    getattr(report, found)
    return {name: value for name, value in report.__dict__.items() if name != finder}


class Holder(NamedTuple):
    """A value in memory at the peak: its name, type and bytes, the line that computes it, and its role.

    `role` is "argument", "constant", "result", "saved" (kept for the backward pass), "temporary", or "work space" of an
    operation, such as the body of a loop.
    """

    name: str
    aval: Aval | None
    nbytes: int
    line: str
    role: str


class Point(NamedTuple):
    """A moment of a run: the operation that runs, its line, its part ("forward", "backward" or ""), and live bytes.

    `nbytes` is the bytes of all live computed values and of the work space of the operation; arguments and constants,
    which live throughout, are not counted.
    """

    number: int
    operation: str
    line: str
    part: str
    nbytes: int


class Peak:
    """The moment with the most live bytes: `point`, and `nbytes` with arguments and constants."""

    def __init__(self, point: Point, nbytes: int, holders: Callable[[], tuple[Holder, ...]]) -> None:
        self.point, self.nbytes, self._find = point, nbytes, holders

    @cached_property
    def holders(self) -> tuple[Holder, ...]:
        """Who holds memory then, arguments and constants included, the largest first."""
        return self._find()  # which looks for names in the user's files

    def __getstate__(self) -> dict[str, Any]:
        return _found_state(self, "holders", "_find")

    def __repr__(self) -> str:
        return f"<peak of {bytes_text(self.nbytes)} at {self.point.operation} {self.point.line}>"


class Saved(NamedTuple):
    """A value of the forward pass that the backward pass needs: `made_at` and `used_by` are operations with lines."""

    name: str
    aval: Aval
    nbytes: int
    made_at: str
    used_by: tuple[str, ...]
    is_argument: bool


class View:
    """Memory in one way of running a program: "unfused", operation by operation, or "fused", by the model of XLA.

    `peak.nbytes` counts arguments, constants and computed values. `temporary` is the most live bytes beside arguments,
    constants and results; `total` is the sum of that and the results. `timeline` has a point for each step, in
    execution order; `parts` has the highest point of each part.
    """

    def __init__(self, way: str, peak: Peak, temporary: int, results: int, timeline: Callable[[], tuple[Point, ...]],
                 ) -> None:
        self.way, self.peak, self.temporary, self.results, self._find = way, peak, temporary, results, timeline

    @cached_property
    def timeline(self) -> tuple[Point, ...]:
        """The live bytes at each step."""
        return self._find()  # found on demand, since a long program has many points

    def __getstate__(self) -> dict[str, Any]:
        return _found_state(self, "timeline", "_find")

    @property
    def total(self) -> int:
        """Bytes of temporaries and results: the memory of a call beside its arguments."""
        return self.temporary + self.results

    @property
    def holders(self) -> tuple[Holder, ...]:
        """Who holds memory at the peak, the largest first."""
        return self.peak.holders

    def __repr__(self) -> str:
        return (f"<{self.way} memory: peak {bytes_text(self.peak.nbytes)}, temporary {bytes_text(self.temporary)}, "
                f"results {bytes_text(self.results)}>")

    @cached_property
    def parts(self) -> dict[str, Point]:
        """The highest point of each part, such as "forward" and "backward"."""
        found: dict[str, Point] = {}
        for point in self.timeline:
            if point.part not in found or found[point.part].nbytes < point.nbytes:
                found[point.part] = point
        return found


class Memory(Report):
    """The memory of a program before it runs: prints as a table.

    `unfused` and `fused` are the two ways to run it; `peak`, `temporary`, `timeline` and `holders` are those of
    `unfused`. `arguments` and `constants` are bytes that are there throughout.
    """

    def __init__(self, title: str, arguments: int, constants: int, unfused: View, fused: View,
                 saved: Callable[[], Sequence[Saved]]) -> None:
        self.title, self.arguments, self.constants = title, arguments, constants
        self.unfused, self.fused, self._find_saved = unfused, fused, saved

    @cached_property
    def saved(self) -> tuple[Saved, ...]:
        """The values of the forward pass that the backward pass needs, the largest first."""
        return tuple(self._find_saved())  # found on demand, since a function is differentiated for it

    def __getstate__(self) -> dict[str, Any]:
        return _found_state(self, "saved", "_find_saved")

    @property
    def peak(self) -> Peak:
        """The moment with the most live bytes, unfused."""
        return self.unfused.peak

    @property
    def temporary(self) -> int:
        """The most live bytes beside arguments, constants and results, unfused."""
        return self.unfused.temporary

    @property
    def timeline(self) -> tuple[Point, ...]:
        """The live bytes at each step, unfused."""
        return self.unfused.timeline

    @property
    def holders(self) -> tuple[Holder, ...]:
        """Who holds memory at the peak, unfused."""
        return self.unfused.holders

    @property
    def saved_bytes(self) -> int:
        """The bytes of the residuals, without arguments, which are live anyway."""
        return sum(each.nbytes for each in self.saved if not each.is_argument)

    def bars(self, width: int = 60) -> str:
        """Return the live bytes of computed values over the steps, unfused, as a row of bars."""
        return bars([point.nbytes for point in self.timeline], width)

    # --- as text ------------------------------------------------------------------------------------------

    def table(self) -> Table:
        """Return the tables for rich, one below the other."""
        made = Table.grid(padding=(0, 0))
        made.add_column()
        made.add_row(self._totals())
        made.add_row("[dim]live bytes, step by step, unfused and fused[/dim]" if self.timeline else "")
        for view in (self.unfused, self.fused):
            made.add_row(bars([point.nbytes for point in view.timeline]))
        shown = [(view, view.holders) for view in (self.unfused, self.fused)]
        for view, holders in shown:
            if holders:
                made.add_row(_holders_table(view))
        if self.saved:
            made.add_row(self._saved_table())
        return made

    def _totals(self) -> Table:
        right: Any = "right"
        made = new_table(f"memory of {self.title}", {"": "left", "unfused": right, "fused": right})
        add_row(made, ["arguments", *[bytes_text(self.arguments)] * 2])
        if self.constants:
            add_row(made, ["constants", *[bytes_text(self.constants)] * 2])
        views = (self.unfused, self.fused)
        add_row(made, ["results", *(bytes_text(view.results) for view in views)])
        add_row(made, ["temporary", *(bytes_text(view.temporary) for view in views)])
        if self.saved:
            add_row(made, ["saved for the backward pass", bytes_text(self.saved_bytes), ""])
        for part in dict.fromkeys([*self.unfused.parts, *self.fused.parts]):
            if part:
                points = [view.parts.get(part) for view in views]
                add_row(made, [f"most alive in the {part} pass",
                               *("" if point is None else bytes_text(point.nbytes) for point in points)])
        add_row(made, ["peak, arguments included", *(bytes_text(view.peak.nbytes) for view in views)], style="bold")
        add_row(made, ["at", *(f"{view.peak.point.operation} {view.peak.point.line}" for view in views)])
        return made

    def _saved_table(self) -> Table:
        made = new_table("saved for the backward pass", {"value": "left", "bytes": "right", "made by": "left",
                                                         "needed by": "left"})
        for each in self.saved[:MOST_ROWS]:
            more = f" and {len(each.used_by) - 2} more" if len(each.used_by) > 2 else ""
            add_row(made, [f"{each.name}: {each.aval}" if each.name else str(each.aval), bytes_text(each.nbytes),
                           each.made_at, ", ".join(each.used_by[:2]) + more])
        rest = self.saved[MOST_ROWS:]
        if rest:
            add_row(made, [f"{len(rest)} more", bytes_text(sum(each.nbytes for each in rest)), "", ""])
        return made

    def __repr__(self) -> str:
        return (f"<memory of {self.title}: peak {bytes_text(self.peak.nbytes)} unfused, "
                f"{bytes_text(self.fused.peak.nbytes)} fused>")

    # --- for programs -------------------------------------------------------------------------------------

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the report as JSON: bytes are numbers, types their text."""
        def plain(value: Any) -> Any:
            if isinstance(value, Aval):
                return str(value)
            if isinstance(value, View | Peak):
                return {name: plain(getattr(value, name)) for name in _IN_JSON[type(value)]}
            if hasattr(value, "_asdict"):
                return {name: plain(each) for name, each in value._asdict().items()}
            return [plain(each) for each in value] if isinstance(value, tuple) else value
        return json.dumps({"title": self.title, "arguments": self.arguments, "constants": self.constants,
                           "unfused": plain(self.unfused), "fused": plain(self.fused),
                           "saved": plain(self.saved)}, indent=indent)

    def draw(self, path: str | Path) -> Path:
        """Write a picture of the live bytes over the steps, in the format of the suffix: .png, .svg, .pdf.

        Needs matplotlib; raises `UnsupportedError` if it is not installed.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise UnsupportedError(at_user_line(
                "memory.draw needs matplotlib, which is not installed. Write pip install matplotlib, or print the "
                "object, which shows the same as bars")) from None
        figure = Figure(figsize=(9, 6), layout="constrained")
        for axes, view in zip(figure.subplots(2, 1), (self.unfused, self.fused), strict=True):
            _plot(axes, view)
        figure.suptitle(f"memory of {self.title}")
        figure.savefig(path)
        return Path(path)


_IN_JSON: dict[type, tuple[str, ...]] = {
    View: ("peak", "temporary", "results", "total", "timeline"), Peak: ("point", "nbytes", "holders")}


def _holders_table(view: View) -> Table:
    point = view.peak.point
    part = f", {point.part} pass" if point.part else ""
    made = new_table(f"held at the peak, {view.way}: {point.operation} {point.line}{part}",
                     {"value": "left", "bytes": "right", "share": "left", "made at": "left", "role": "left"})
    whole = view.peak.nbytes or 1
    for each in view.holders[:MOST_ROWS]:
        name = each.name if each.aval is None else f"{each.name}: {each.aval}"
        share = each.nbytes / whole
        add_row(made, [name, bytes_text(each.nbytes), f"{bar(share)} {share:.0%}", each.line, each.role])
    rest = view.holders[MOST_ROWS:]
    if rest:
        size = sum(each.nbytes for each in rest)
        add_row(made, [f"{len(rest)} more", bytes_text(size), f"{bar(size / whole)} {size / whole:.0%}", "", ""])
    return made


def _plot(axes: Any, view: View) -> None:
    sizes = [point.nbytes / 2**20 for point in view.timeline] or [0.0]
    axes.step(range(len(sizes)), sizes, where="mid")
    axes.fill_between(range(len(sizes)), sizes, step="mid", alpha=0.2)
    back = next((number for number, point in enumerate(view.timeline) if point.part == "backward"), None)
    if back is not None:
        axes.axvspan(back - 0.5, len(sizes) - 0.5, color="tab:orange", alpha=0.1, label="backward")
        axes.legend(loc="upper left")
    point = view.peak.point
    if view.timeline:
        axes.annotate(f"{bytes_text(point.nbytes)}\n{point.operation} {point.line}", (point.number, max(sizes)),
                      ha="center", va="top", fontsize=8)
    axes.set_ylabel("MiB alive")
    axes.set_xlabel(f"steps, {view.way}")
