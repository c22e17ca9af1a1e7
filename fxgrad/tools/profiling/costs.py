"""`cost_analysis`: flops and bytes of a program by source line, and its time at best on a machine (roofline)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from fxgrad.errors import ArgumentError
from fxgrad.extend import (
    Cost,
    Equation,
    Program,
    at_user_line,
    bytes_text,
    count_text,
    hide_frames,
    time_text,
    trace_program,
    transformation,
)
from fxgrad.extend.analyses import total_cost, total_sent, traffic_of
from fxgrad.extend.sizes import require_numbers
from fxgrad.extend.tracing import static_positions
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.tools.profiling.bars import bar
from fxgrad.tools.profiling.compiler_model import CompilerModel, compiler_model

MOST_ROWS = 20


class LineCost(NamedTuple):
    """The cost of a source line, or of a kind of operation: operations, flops, and bytes moved unfused.

    `sent` is the bytes that one device of a mesh sends to others. `seconds` is the least time on the machine, the
    greater of flops at its peak rate and bytes at its bandwidth; `bound` names the greater one, "compute" or "memory".
    Without a machine they are None and "".
    """

    line: str
    operations: int
    flops: int
    bytes: int
    seconds: float | None = None
    bound: str = ""
    sent: int = 0

    @property
    def intensity(self) -> float:
        """Flops by byte moved."""
        return self.flops / self.bytes if self.bytes else 0.0


class CostReport(Report):
    """The cost of a program; prints as a table, the line with the most flops first.

    `flops` and `bytes` are those of `fxgrad.cost_analysis(program)`: each operation reads its operands and writes its
    results. `fused_bytes` is the bytes moved if operations are fused as XLA fuses them, which is less; the true number
    is between the two, since caches keep part of the results. `lines` has a row for each of the user's lines, or for
    each kind of operation (`by`); a loop's body is counted times its steps. `most` is the number of rows printed.
    """

    def __init__(self, title: str, total: Cost, fused_bytes: int, lines: Sequence[LineCost],
                 machine: tuple[float, float] | None, by: str) -> None:
        self.title, self.total, self.fused_bytes, self.lines, self.machine, self.by = (
            title, total, fused_bytes, tuple(lines), machine, by)
        self.most = MOST_ROWS
        self.flops, self.bytes = total.flops, total.bytes

    @property
    def intensity(self) -> float:
        """Flops by byte moved, unfused."""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def seconds(self) -> float | None:
        """The attainable time by the roofline, with fused bytes; None without a machine."""
        if self.machine is None:
            return None
        return max(self.flops / self.machine[0], self.fused_bytes / self.machine[1])

    @property
    def ridge(self) -> float | None:
        """The flops per byte above which a program is compute-bound on the machine; None without a machine."""
        return None if self.machine is None else self.machine[0] / self.machine[1]

    def table(self) -> Table:
        """Return the table for rich."""
        right: Any = "right"
        timed = self.machine is not None
        columns = {self.by: "left", "operations": right, "flops": right, "bytes": right, "flops/byte": right,
                   **({"sent": right} if self.total.wire else {}),
                   **({"at best": right, "bound by": "left"} if timed else {}), "share": "left"}
        made = new_table(f"cost of {self.title}", columns)
        for row in self.lines[:self.most]:
            self._row(made, row.line, row)
        rest = self.lines[self.most:]
        if rest:
            times = [row.seconds for row in rest if row.seconds is not None]
            self._row(made, f"{len(rest)} more", LineCost(
                "", sum(row.operations for row in rest), sum(row.flops for row in rest),
                sum(row.bytes for row in rest), sum(times) if times else None, sent=sum(row.sent for row in rest)))
        made.add_section()
        whole = LineCost("", sum(row.operations for row in self.lines), self.flops, self.bytes,
                         sent=sum(row.sent for row in self.lines))
        self._row(made, "total, unfused", whole._replace(**self._time(self.flops, self.bytes)))
        self._row(made, "total, fused", LineCost("", 0, self.flops, self.fused_bytes)._replace(
            **self._time(self.flops, self.fused_bytes)))
        if self.total.wire:
            made.caption = "each device sends " + ", ".join(
                f"{size:,} bytes over {axis}" for axis, size in self.total.wire.items())
        return made

    def _row(self, made: Table, name: str, row: LineCost) -> None:
        share = row.flops / self.flops if self.flops else 0.0
        timed = [] if self.machine is None else ["" if row.seconds is None else time_text(row.seconds), row.bound]
        add_row(made, [name, f"{row.operations:,}" if row.operations else "", count_text(row.flops),
                       bytes_text(row.bytes), f"{row.intensity:.2f}",
                       *([bytes_text(row.sent) if row.sent else ""] if self.total.wire else []), *timed,
                       "" if name.startswith("total") else f"{bar(share, 8)} {share:.0%}"])

    def _time(self, flops: int, moved: int) -> dict[str, Any]:
        return _roofline(flops, moved, self.machine)

    def __repr__(self) -> str:
        return f"<cost of {self.title}: {count_text(self.flops)} flops, {bytes_text(self.bytes)} moved unfused>"

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the report as JSON."""
        rows = [{**row._asdict(), "intensity": row.intensity} for row in self.lines]
        lines = [{self.by: row.pop("line"), **row} for row in rows]
        return json.dumps({"title": self.title, "flops": self.flops, "bytes": self.bytes,
                           "fused_bytes": self.fused_bytes, "wire": self.total.wire, "seconds": self.seconds,
                           "ridge": self.ridge, "lines": lines}, indent=indent)


def cost_analysis(fun: Callable[..., Any], *, flops: float | None = None, bandwidth: float | None = None,
         by: str = "line", static_argnums: int | Sequence[int] = ()) -> Any:
    """Return the cost of a program, or a function that reports the cost of `fun` by line at its arguments.

    For a `Program`, the result is the sum over its equations, a `Cost` of flops and bytes, as if nothing were fused;
    `wire` has the bytes sent over mesh axes. For a function, `cost(fun)(*args)` is a `CostReport`, made before `fun`
    runs: flops, bytes and their ratio by the user's lines, loops by their steps, and bytes moved before and after
    fusion. With `flops`, the machine's peak operations per second, and `bandwidth`, its bytes per second, it has a
    roofline (Williams 2009): the least time and whether computing or memory bounds it, by line and in total.

    `by="operation"` has a row for each kind of operation instead of lines.

    Raises `ArgumentError` if one of `flops` and `bandwidth` is given without the other, or is not positive, and for
    another `by`.

    >>> import fxgrad, numpy as np
    >>> fxgrad.cost_analysis(fxgrad.make_program(lambda x: x @ x)(np.ones((10, 10), np.float32)))
    Cost(flops=2000, bytes=1200)
    >>> product = fxgrad.ShapeDtypeStruct((1000, 1000), np.float32)
    >>> found = fxgrad.cost_analysis(lambda a, b: a @ b, flops=1e12, bandwidth=1e11)(product, product)
    >>> found.flops, found.intensity, found.seconds, found.lines[0].bound
    (2000000000, 166.66666666666666, 0.002, 'compute')
    """
    machine = require_machine(flops, bandwidth)
    if isinstance(fun, Program) and machine is None:
        return total_cost(fun)

    @transformation("cost_analysis", fun)
    @hide_frames
    def counted(*args: Any, **kwargs: Any) -> CostReport:
        static = static_positions(static_argnums, len(args))
        program = fun if isinstance(fun, Program) else trace_program("cost_analysis", fun, args, kwargs, static)
        return cost_of_program(require_numbers("cost_analysis", program), machine, by)
    return counted


def require_machine(flops: Any, bandwidth: Any) -> tuple[float, float] | None:
    """Return a machine as its peak flops and bytes a second; None if neither is given."""
    if flops is None and bandwidth is None:
        return None
    for name, value in (("flops", flops), ("bandwidth", bandwidth)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ArgumentError(at_user_line(
                f"cost_analysis: {name} is {value!r}, where a positive number is needed, that of one second; a "
                "roofline needs both. Write cost(f, flops=1e12, bandwidth=1e11)"))
    return float(flops), float(bandwidth)


def _roofline(flops: int, moved: int, machine: tuple[float, float] | None) -> dict[str, Any]:
    if machine is None:
        return {}
    computing, moving = flops / machine[0], moved / machine[1]
    return {"seconds": max(computing, moving), "bound": "compute" if computing >= moving else "memory"}


def cost_of_program(program: Program, machine: tuple[float, float] | None = None, by: str = "line") -> CostReport:
    """Return the report of a program."""
    if by not in _KINDS:
        raise ArgumentError(at_user_line(f"cost_analysis: by={by!r}; it is one of {', '.join(map(repr, _KINDS))}"))
    signature = program.signature
    title = "a program" if signature is None else signature.title or signature.name
    sums: dict[str, list[int]] = {}
    for equation, steps, devices, line in _counted_equations(program, 1, 1):
        found = equation.cost
        row = sums.setdefault(line if by == "line" else str(equation.primitive), [0, 0, 0, 0])
        row[0] += steps * devices
        row[1] += steps * devices * found.flops
        row[2] += steps * devices * found.bytes
        row[3] += steps * total_sent(traffic_of(equation))
    lines = [LineCost(key, count, flops, moved, **_roofline(flops, moved, machine), sent=sent)
             for key, (count, flops, moved, sent) in sums.items()]
    lines.sort(key=lambda row: (-row.flops, -row.bytes))
    return CostReport(title, total_cost(program), fused_bytes(program), lines, machine, by)


_KINDS = ("line", "operation")
"""The kinds of rows."""


def _counted_equations(program: Program, steps: int, devices: int,
                       around: str = "?") -> Iterator[tuple[Equation, int, int, str]]:
    """Yield the equations that count, with how often each of how many devices runs them, and their lines.

    Equations of calls, and of loops with a known number of steps, are counted in place; equations without a line of
    their own, as in functions of the library, count for the line `around`.
    """
    for equation in program.equations:
        line = around if equation.source is None else equation.source.place
        regions = equation.regions
        shared = 1
        if len(regions) == 1 and regions[0].role == "mapped":
            shared = equation.params["mesh"].size(equation.params["axis_names"])
        inside = [(region, region.times) for region in regions]
        known = bool(inside) and all(count is not None for _, count in inside)
        if known and sum(count * shared * total_cost(region.program).flops for region, count in inside
                         if count is not None) == equation.cost.flops:
            for region, count in inside:
                if count:
                    yield from _counted_equations(region.program, steps * count, devices * shared, line)
        else:
            yield equation, steps, devices, line


def fused_bytes(program: Program) -> int:
    """Return the bytes moved by the groups of the compiler model, each value once for a group."""
    model = compiler_model(program)
    return sum(_moved_bytes(model, head) for head in model.order)


def _moved_bytes(model: CompilerModel, head: int) -> int:
    regions = model.regions_of(head)
    if not regions:
        return model.moved(head)
    if regions[0].role == "branch":
        return max(fused_bytes(region.program) for region in regions)
    return sum((1 if region.times is None else region.times) * fused_bytes(region.program) for region in regions)
