"""`explain_retraces` names why functions are traced and compiled again: planted causes, counts, milliseconds,
tables.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest
from support.retraced import CASES, X, total

import fxgrad
from fxgrad.engine.tracing import observers
from fxgrad.engine.tracing.tape import Tape, on_new_program
from fxgrad.extend.tracing import is_jitted_frame
from fxgrad.tools.retracing import RetraceReport
from fxgrad.tools.retracing.causes import RetraceCause
from fxgrad.tools.retracing.report import FunctionReport

QUICK = ("size of an axis", "static value", "jit at every call", "branch under grad", "order of keywords")


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
                                  for name in CASES])
def test_planted_causes_are_named(name: str, fresh_tables: Any) -> None:
    case = CASES[name]
    with fxgrad.explain_retraces() as report:
        case.run()
    again = [cause for cause in report.causes if cause.kind != "first call"]
    if case.kind is None:
        assert not again
        return
    assert again, str(report)
    assert again[-1].kind == case.kind
    assert case.what in again[-1].what
    assert again[-1].advice
    assert again[-1].line.startswith("retraced.py:")
    assert len({cause.kind for cause in again}) == 1


def test_counts_and_milliseconds() -> None:
    step = fxgrad.explain_retraces(fxgrad.jit(total))
    for size in (32, 32, 48, 32):
        assert step(np.ones(size)) == size
    report = step.report
    (found,) = report.functions
    assert (report.calls, found.name, found.how, found.traces, found.programs, found.compiles) == (
        4, "total", "jit", 2, 2, 2)
    assert found.trace > 0
    assert found.lower > 0
    assert found.compile > 0
    assert report.run > 0
    assert report.wall >= found.trace + found.lower + found.compile
    assert [cause.compiled for cause in report.causes] == [True, True]
    assert all(cause.milliseconds > 0 for cause in report.causes)
    data = json.loads(report.to_json())
    assert data["functions"][0]["causes"][1]["what"] == "x.shape[0]: 32 -> 48"
    assert "32 -> 48" in str(step)
    assert repr(report) == "<2 traces, 2 new, 2 compiled>"
    assert str(report).lstrip().startswith("4 calls, 2 traces, 2 new, 2 compiled; ")
    once = fxgrad.explain_retraces(fxgrad.jit(np.sin))
    once(1.0)
    assert str(once.report).lstrip().startswith("1 call, 1 trace, 1 new, 1 compiled; ")


def stops(x: Any) -> Any:
    return float(x) * 2.0


def branches(x: Any) -> Any:
    return x if x > 0 else -x


def test_where_tracing_was_stopped() -> None:
    with fxgrad.explain_retraces() as report:
        for function in (fxgrad.jit(branches), fxgrad.vmap(branches), fxgrad.grad(stops)):
            with pytest.raises(TypeError):
                function(np.ones(3) if "vmap" in repr(function.transformed) else 1.0)
    first, second = report.stops
    assert first.line == f"test_causes.py:{branches.__code__.co_firstlineno + 1} (in branches)"
    assert first.message.startswith("bool() needs the value of a traced array (bool[]) in branches")
    assert "fxgrad.lax.cond" in first.message
    assert second.line == f"test_causes.py:{stops.__code__.co_firstlineno + 1} (in stops)"
    assert "Leave out float()" in second.message
    assert "where tracing was stopped" in str(report)


def test_arguments_that_are_not_differentiated_are_named() -> None:
    slope = fxgrad.explain_retraces(fxgrad.grad(total))
    slope(X, 2.0)
    slope(X, np.ones((5, 1), "float32"))
    assert [cause.what for cause in slope.report.causes] == ["first call", "y: a Python number (float64) -> f32[5,1]"]


def test_nothing_is_watched_outside_of_the_block() -> None:
    before = Tape.run
    with fxgrad.explain_retraces(), fxgrad.explain_retraces():
        assert Tape.run is not before
    assert Tape.run is before
    assert not observers.observers
    assert not on_new_program


def test_blocks_in_blocks_see_the_same() -> None:
    with fxgrad.explain_retraces() as outer, fxgrad.explain_retraces() as inner:
        fxgrad.jit(total)(X)
    assert (outer.traces, outer.compiles) == (inner.traces, inner.compiles) == (1, 1)


def test_the_frame_of_a_jitted_call_is_found() -> None:
    """The way from a compilation to the arguments of the call: names of variables in `jit`."""
    frames = []

    def look(x: np.ndarray) -> np.ndarray:
        frame = sys._getframe()
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        return x

    fxgrad.jit(look)(X)
    found, = filter(is_jitted_frame, frames)
    assert {"args", "kwargs", "state"} <= {*found.f_locals}


def test_explain_of_no_function() -> None:
    with pytest.raises(fxgrad.errors.ArgumentError, match=r"explain_retraces takes a function, got a float64\. Write "):
        fxgrad.explain_retraces(np.float64(1.0))


def test_an_empty_report_prints() -> None:
    assert "0 traces" in str(RetraceReport([], [], 0, 0.0))


def test_what_is_left_of_the_time_ran() -> None:
    functions = [FunctionReport("f", "jit", 1, 1, 1, 2.0, 3.0, 4.0, ()),
                 FunctionReport("g", "jit", 1, 1, 1, 0.5, 0.0, 0.0, ())]
    assert RetraceReport(functions, [], 2, 20.0).run == 20.0 - 9.5
    assert RetraceReport(functions, [], 2, 1.0).run == 0.0


def test_each_argument_has_a_row_of_its_own() -> None:
    causes = tuple(RetraceCause("shape", name, f"{name} has another shape", "pad it", "model.py:3") for name in "xyx")
    text = str(RetraceReport([FunctionReport("f", "jit", 3, 3, 3, 0.0, 0.0, 0.0, causes)], [], 3, 1.0))
    assert [text.count(f"{name} has another shape") for name in "xy"] == [1, 1]
