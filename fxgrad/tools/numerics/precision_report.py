"""`precision_report`: which line of a program loses the digits."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fxgrad import device_get, dtypes, tree
from fxgrad.errors import UnsupportedError
from fxgrad.extend import (
    Equation,
    Program,
    Source,
    Variable,
    at_user_line,
    drop_devices,
    hide_frames,
    inner_first,
    trace_with_values,
    transformation,
)
from fxgrad.text.short import expression, operation_name
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.text.text_writer import text_scopes
from fxgrad.tools.numerics.records import RecordedOperation, ShadowPair, relative_error
from fxgrad.tools.numerics.shadow import Shadow, run_shadowed

LIMIT = 50_000
ALIKE = 30.0
"""Operations within this factor of the worst impact count as equally costly."""


class OperationDigits(NamedTuple):
    """The digits that an operation of the program loses, over all its runs.

    `impact` is the relative error of the results due to computing this operation, and rounding its operands, in the
    program's precision; the report is sorted by it. `local` is the relative error of its result from the same cause,
    and `unit` that of one rounding. `error` is the relative error of its result, `own` the part from its own rounding,
    and `amplified` the ratio of the error inherited from its operands to their errors. `line` is the user's, `name`
    that of the result, `operation` the expression, and `times` the number of runs.
    """

    line: str
    name: str
    operation: str
    impact: float
    local: float
    unit: float
    error: float
    own: float
    amplified: float
    times: int
    part: str = ""


class PrecisionReport(Report):
    """The result of `precision_report`: rows, the culprit first. It prints as a table, and is a sequence of rows.

    `results` has the relative error of each result by name, `shadow` the dtype of the wider run, and `unfollowed` the
    names of operations that have no wider form; errors restart behind them.
    """

    def __init__(self, title: str, rows: list[OperationDigits], results: dict[str, float], shadow: str,
                 unfollowed: Sequence[str],
                 ) -> None:
        self.title, self.rows, self.results = title, rows, results
        self.shadow, self.unfollowed = shadow, (*unfollowed,)

    @property
    def culprit(self) -> OperationDigits | None:
        """The operation that costs the results most digits; None if nothing was rounded."""
        return self.rows[0] if self.rows and self.rows[0].impact > 0 else None

    @property
    def error(self) -> float:
        """The largest relative error of a result."""
        return max(self.results.values(), default=0.0)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[OperationDigits]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> OperationDigits:
        return self.rows[index]

    def table(self) -> Table:
        """Return the table for rich: the dozen operations with the largest impact."""
        error = "unknown" if self.unfollowed and not self.error else f"{self.error:.1e}"
        made = new_table(f"{self.title}: relative error {error} (against {self.shadow})", {
            "line": "left", "operation": "left", "costs the results": "right", "error": "right", "own": "right",
            "amplified": "right", "times": "right"})
        for row in self.rows[:12]:
            operation = f"{row.name} = {row.operation}" if row.name else row.operation
            add_row(made,
                    [f"{row.line}{', backward' if row.part == 'backward' else ''}", operation, _short_text(row.impact),
                           _short_text(row.error), _short_text(row.own), f"{row.amplified:.3g}" if row.amplified
                     else "",
                           str(row.times)])
        return made

    def content(self) -> Table | Group | str:
        """Return the table, and the operations that were not followed."""
        return Group(self.table(), Text(f"not followed: {', '.join(self.unfollowed)}")) if self.unfollowed else \
            self.table()

    __repr__ = Report.__str__

    def to_json(self) -> str:
        """Return the report as JSON; numbers that are not finite are strings."""
        def plain(value: Any) -> Any:
            return str(value) if isinstance(value, float) and not math.isfinite(value) else value

        return json.dumps({
            "title": self.title, "shadow": self.shadow, "unfollowed": [*self.unfollowed],
            "results": {name: plain(value) for name, value in self.results.items()},
            "rows": [{name: plain(value) for name, value in row._asdict().items()} for row in self.rows]})


def precision_report(fun: Callable[..., Any], *, limit: int = LIMIT) -> Callable[..., PrecisionReport]:
    """Return a function that runs `fun` beside a shadow of higher precision, and reports where digits are lost.

    Programs of float32, float16 and bfloat16 are shadowed in float64, those of float64 in NumPy's longdouble. Branches,
    loops and indices follow `fun`, whose integers, bools and random keys the shadow shares. It runs with NumPy,
    operation by operation, those in loops, branches and calls too; callbacks and debug prints run once. Gradients work
    the same way: `precision_report(grad(f))`. Each operation that runs is kept, `limit` at most.

    Raises `ArgumentError` for arguments that are types without values and for longer runs, and `UnsupportedError` for
    float64 if longdouble is no wider.

    >>> import fxgrad, numpy as np
    >>> def slope(x):
    ...     y = np.float32(3.0) * x
    ...     return (1 - np.cos(y)) / y
    >>> report = fxgrad.debug.precision_report(slope)(np.float32(1e-3))
    >>> report.culprit.operation
    '1.0 - cos(y)'
    """
    @transformation("precision_report", fun)
    @hide_frames
    def reported(*args: Any, **kwargs: Any) -> PrecisionReport:
        program, leaves = trace_with_values("precision_report", fun, args, kwargs)
        given = [np.asarray(value, None if hasattr(value, "dtype") else var.aval.dtype) for var, value in zip(
            program.inputs[len(program.constants):], device_get(leaves), strict=True)]
        flat = drop_devices(program).replace(constants=device_get(program.constants))
        shadow, results = run_shadowed(flat, given, _shadow_dtype(program), limit)
        return _report(program, flat, shadow, results)
    return reported


def _shadow_dtype(program: Program) -> Any:
    """Return the dtype of the shadow; raise `UnsupportedError` if there is none."""
    every = [var.aval for each in inner_first(program) for equation in each.equations for var in equation.outputs]
    real = [aval for aval in (*program.in_avals, *every) if dtypes.is_inexact(aval.dtype)]
    strong = [aval for aval in real if not aval.weak] or real
    if not any(dtypes.real_dtype(aval.dtype) == np.float64 for aval in strong):
        return np.dtype(np.float64)
    if np.finfo(np.longdouble).eps >= np.finfo(np.float64).eps:
        raise UnsupportedError(at_user_line(
            "precision_report: the program is of float64, and longdouble is no wider on this machine. Report on its "
            "float32 form: convert the arguments with x.astype('float32')"))
    return np.dtype(np.longdouble)


def _report(program: Program, flat: Program, shadow: Shadow, results: list[ShadowPair]) -> PrecisionReport:
    scopes = text_scopes(flat)
    owner = {id(equation): each for each in inner_first(flat) for equation in each.equations}
    ran: dict[tuple[int, int], list[RecordedOperation]] = {}
    for entry in shadow.tape:
        if isinstance(entry, RecordedOperation):
            ran.setdefault((id(entry.equation), id(entry.called_by)), []).append(entry)

    def name_of(equation: Equation, var: Variable) -> str:
        scope = scopes.get(id(owner.get(id(equation))))
        return "" if scope is None else scope.names.get(var, "")

    makers = {var: equation for each in inner_first(flat) for equation in each.equations for var in equation.outputs}

    def shown(equation: Equation, depth: int = 0) -> str:
        def operand(var: Variable) -> str:
            name = name_of(equation, var)
            if name or depth > 1 or var not in makers:
                return name or "..."
            inner = shown(makers[var], depth + 1)
            return inner if inner.endswith(")") and inner.partition("(")[0].isidentifier() else f"({inner})"

        return expression(equation, operand)

    rows = [_report_row(entries, name_of, shown) for entries in ran.values()]
    rows.sort(key=lambda row: -row.impact)
    worst = rows[0].impact if rows else 0.0
    if 0 < worst < math.inf:
        # Every rounding before a cancellation costs as much as the cancellation, which is the one to rewrite: of rows
        # that cost about as much as the worst, the one that magnifies most comes first. Whole units are compared: below
        # a hundred, operations round more or less by accident.
        rows.sort(key=lambda row: (row.impact < worst / ALIKE, -max(row.local / row.unit, 100.0)
                                   if row.impact >= worst / ALIKE else 0.0))
    signature = program.signature
    title = "the program" if signature is None else signature.title or signature.name
    names = [f"output {number}" for number in range(len(results))] if signature is None else tree.leaf_names(
        tree.unflatten(signature.out_tree, range(len(results))), "the result")
    errors = {name: relative_error(pair.low, pair.wide) for name, pair in zip(names, results, strict=True)
              if pair.is_real}
    return PrecisionReport(title, rows, errors, "longdouble" if shadow.wide == np.longdouble else shadow.wide.name,
                           [*shadow.unfollowed])


def _report_row(entries: Sequence[RecordedOperation], name_of: Callable[[Equation, Variable], str],
                shown: Callable[[Equation], str]) -> OperationDigits:
    equation, called_by = entries[0].equation, entries[0].called_by
    outer = called_by or equation
    source: Source | None = outer.source or equation.source
    found = [entry.impact() for entry in entries]
    impact = sum(each for each, _ in found)
    local = sum(each * own for each, own in found) / impact if 0 < impact < math.inf else impact
    own, unit = max(entry.own for entry in entries), max(entry.unit for entry in entries)
    if own == 0 and local <= unit:
        impact = 0.0  # it only moves or selects values that others rounded
    return OperationDigits("?" if source is None else source.place, name_of(outer, outer.outputs[0]) if outer.outputs
                           else "",
                           f"{equation.primitive.name} in {operation_name(called_by)}" if called_by
                           else shown(equation),
                           impact, local, unit, max(entry.error for entry in entries), own,
                           max(entry.amplified for entry in entries), len(entries), "" if source is None
                           else source.part or "")


def _short_text(value: float) -> str:
    return "" if value == 0 else f"{value:.1e}"
