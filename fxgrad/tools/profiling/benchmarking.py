"""`benchmark`: a function un-jitted, as generated NumPy code and compiled, and from which call on compiling pays."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from fxgrad import clear_caches, jit, make_program, tree
from fxgrad.errors import FxgradError
from fxgrad.extend import Transformation, require_function, time_text, title_of
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.tools.profiling.timing import Figures, Timed, in_turns
from fxgrad.tools.retracing.watching import explain_retraces

UNJITTED, GENERATED, COMPILED = "un-jitted", "generated", "compiled"


class BenchmarkWay(NamedTuple):
    """One way of running a function: milliseconds of the `first` call, and the `figures` of later ones.

    `first` includes tracing and compilation; `parts` has the milliseconds of each, such as trace, lower and compile.
    `difference` is the largest difference from the un-jitted results, relative to their largest entry; `agrees` is
    whether that is within the tolerance. `why_not` gives the reason if a way is unavailable; the rest is then None.
    """

    name: str
    first: float | None = None
    figures: Figures | None = None
    parts: Mapping[str, float] = {}
    difference: float | None = None
    agrees: bool | None = None
    why_not: str = ""


class Benchmark(Report):
    """The `ways` of running a function, by name, and `break_even`, the number of calls after which compiling pays.

    `break_even` counts the first call; None if a compiled call takes as long as an un-jitted one, or longer.
    """

    def __init__(self, title: str, ways: Mapping[str, BenchmarkWay], break_even: int | None) -> None:
        self.title, self.ways, self.break_even = title, dict(ways), break_even

    @property
    def agrees(self) -> bool:
        """Whether all available ways give equal results, within the tolerance."""
        return all(way.agrees is not False for way in self.ways.values())

    @property
    def advice(self) -> str:
        """The recommendation, in words."""
        compiled = self.ways[COMPILED]
        if compiled.figures is None:
            return "not compiled, since it could not be traced without values"
        if self.break_even is None:
            return "compiling does not pay: a compiled call takes no less time"
        if self.break_even == 1:
            return "compiling pays from the first call on"
        return f"compiling pays from call {self.break_even:,} on"

    def table(self) -> Table:
        """Return the table for rich."""
        right: Any = "right"
        made = new_table(f"benchmark of {self.title}", {
            "": "left", "first call": right, "later calls": right, "quartiles": right, "result": "left"})
        for way in self.ways.values():
            if way.figures is None or way.first is None:
                add_row(made, [way.name, "", "", "", way.why_not])
                continue
            result = "" if way.difference is None else (
                "equal" if not way.difference else f"{'equal to' if way.agrees else 'DIFFERS by'} {way.difference:.0e}")
            parts = ", ".join(f"{name} {time_text(milliseconds / 1e3)}" for name, milliseconds in way.parts.items())
            add_row(made, [way.name, time_text(way.first / 1e3) + (f"\n{parts}" if parts else ""),
                           time_text(way.figures.median / 1e6),
                           f"{time_text(way.figures.lower / 1e6)} to {time_text(way.figures.upper / 1e6)}", result])
        made.caption = self.advice
        return made

    def __repr__(self) -> str:
        medians = ", ".join(f"{way.name} {time_text(way.figures.median / 1e6)}"
                            for way in self.ways.values() if way.figures)
        return f"<benchmark of {self.title}: {medians}; {self.advice}>"

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the benchmark as JSON: `first` and `parts` in milliseconds, `figures` in microseconds."""
        ways = {name: {**way._asdict(), "figures": None if way.figures is None else vars(way.figures)}
                for name, way in self.ways.items()}
        return json.dumps({"title": self.title, "break_even": self.break_even, "agrees": self.agrees, "ways": ways},
                          indent=indent)


def benchmark(fun: Callable[..., Any], *, seconds: float = 0.5, rounds: int = 15, tolerance: float | None = None,
              static_argnums: int | Sequence[int] | None = None, static_argnames: str | Sequence[str] | None = None,
              ) -> Callable[..., Benchmark]:
    """Return a function that times `fun` on its arguments: un-jitted, as generated NumPy code, and compiled.

    `fun` may be a derivative, a batch, or jitted, and is run without and with `jit`. Caches are cleared, so that first
    calls are first calls. Later calls alternate in `rounds`, each way for about `seconds` in all; medians and quartiles
    are given. A call ends when its results are ready, since jax computes asynchronously. Results are compared with the
    un-jitted ones, to `tolerance` of their largest entry (by default 1e-4 of float32, 1e-9 of float64). "generated"
    calls the program without running the Python code; it is unavailable if Python needs concrete values.
    `static_argnums` and `static_argnames` are those of `jit`.

    Raises `ArgumentError` if `fun` is not a function, and whatever the un-jitted call raises.

    >>> import numpy as np, fxgrad
    >>> found = fxgrad.benchmark(lambda x: np.sum(np.sin(x) * x), seconds=0.01, rounds=3)(np.ones(1000))
    >>> list(found.ways), found.agrees
    (['un-jitted', 'generated', 'compiled'], True)
    """
    require_function("benchmark", fun)
    made = getattr(fun, "transformed", None)
    is_jitted = type(made) is Transformation and made.what == "jit"
    plain = made.function if is_jitted and made is not None else fun

    def measure(*args: Any, **kwargs: Any) -> Benchmark:
        clear_caches()
        if is_jitted:
            fun.clear_cache()  # type: ignore[attr-defined]
        firsts = {UNJITTED: _call_first(UNJITTED, lambda: plain(*args, **kwargs))}
        try:
            firsts[GENERATED] = _first_generated_call(plain, args, kwargs)
        except (FxgradError, TypeError, ValueError) as error:
            firsts[GENERATED] = _FirstCall(BenchmarkWay(GENERATED, why_not=_error_text(error)))
        try:
            compiled = fun if is_jitted else jit(plain, static_argnums=static_argnums, static_argnames=static_argnames)
            with explain_retraces() as report:
                first = _call_first(COMPILED, lambda: compiled(*args, **kwargs))
            parts = {name: sum(getattr(each, name) for each in report.functions)
                     for name in ("trace", "lower", "compile")}
            firsts[COMPILED] = first._replace(way=first.way._replace(parts=parts))
        except (FxgradError, TypeError, ValueError) as error:
            firsts[COMPILED] = _FirstCall(BenchmarkWay(COMPILED, why_not=_error_text(error)))
        return Benchmark(title_of(plain), *_measure(firsts, seconds, rounds, tolerance))
    return measure


class _FirstCall(NamedTuple):
    """A way after its first call: the call to repeat, and its result."""

    way: BenchmarkWay
    call: Callable[[], Any] | None = None
    result: Any = None


def _call_first(name: str, run: Callable[[], Any]) -> _FirstCall:
    def call() -> Any:
        return jax.block_until_ready(run())

    begin = time.perf_counter()
    result = call()
    return _FirstCall(BenchmarkWay(name, first=(time.perf_counter() - begin) * 1e3), call, result)


def _first_generated_call(fun: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> _FirstCall:
    begin = time.perf_counter()
    program = make_program(fun)(*args, **kwargs)
    traced = (time.perf_counter() - begin) * 1e3
    first = _call_first(GENERATED, lambda: program(*args, **kwargs))
    begin = time.perf_counter()
    assert first.call is not None
    first.call()  # which generates the code
    took = (time.perf_counter() - begin) * 1e3
    assert first.way.first is not None
    parts = {"trace": traced, "generate": took}
    return first._replace(way=first.way._replace(first=traced + first.way.first + took, parts=parts))


def _measure(firsts: Mapping[str, _FirstCall], seconds: float, rounds: int, tolerance: float | None,
             ) -> tuple[dict[str, BenchmarkWay], int | None]:
    """Return the ways with their figures and comparisons, and the break-even call."""
    timed = {name: Timed(first.call) for name, first in firsts.items() if first.call is not None}
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("rounds", total=rounds)
        found = in_turns(timed, rounds, sample_seconds=min(0.01, seconds / rounds), seconds=seconds, fewest=3,
                         after_round=lambda: progress.advance(task))
    expected = firsts[UNJITTED].result
    ways = {}
    for name, first in firsts.items():
        way = first.way
        if first.call is not None:
            way = way._replace(figures=found[name])
            if name != UNJITTED:
                difference, agrees = _compare(expected, first.result, tolerance)
                way = way._replace(difference=difference, agrees=agrees)
        ways[name] = way
    return ways, break_even(ways[UNJITTED], ways[COMPILED])


def break_even(unjitted: BenchmarkWay, compiled: BenchmarkWay) -> int | None:
    """Return the number of calls after which compiling takes less time in all, first calls included; None if never."""
    if None in (unjitted.first, compiled.first) or unjitted.figures is None or compiled.figures is None:
        return None
    assert unjitted.first is not None
    assert compiled.first is not None
    gain = unjitted.figures.median - compiled.figures.median
    behind = (compiled.first - unjitted.first) * 1e3
    if behind <= 0:
        return 1 if gain >= 0 else None
    return None if gain <= 0 else 2 + math.floor(behind / gain)


def _compare(expected: Any, found: Any, tolerance: float | None) -> tuple[float, bool]:
    """Return the largest difference relative to the largest entry, and whether it is within the tolerance."""
    ours, theirs = tree.leaves(expected), tree.leaves(found)
    if len(ours) != len(theirs):
        return math.inf, False
    worst, agrees = 0.0, True
    for one, other in zip(map(np.asarray, ours), map(np.asarray, theirs), strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return math.inf, False
        if one.dtype.kind in "fc" and one.size:
            allowed = tolerance if tolerance is not None else 1e-4 if one.dtype.itemsize < _DOUBLE else 1e-9
            finite = np.isfinite(one)
            difference = float(np.max(np.abs(one - other), where=finite, initial=0.0))
            scale = float(np.max(np.abs(one), where=finite, initial=0.0)) or 1.0
            worst = max(worst, difference / scale)
            same = np.array_equal(one[~finite], other[~finite], equal_nan=True)
            agrees = agrees and same and difference <= allowed * scale
        elif one.dtype.names is None and not np.array_equal(one, other):
            return math.inf, False
    return worst, agrees


_DOUBLE = 8


def _error_text(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(". Write")[0]
