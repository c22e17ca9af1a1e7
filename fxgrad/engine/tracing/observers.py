"""Trace observers; by default none is registered, and traces have no overhead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from fxgrad.engine.core.program import Program
from fxgrad.engine.tracing.tape import Tape, on_new_program

Run = Callable[[], Any]


class TraceObserver(Protocol):
    """The protocol of trace observers."""

    def on_run(self, tape: Tape, run: Run) -> Any:
        """Call `run`, which calls a user's function on `tape`, and return its result."""

    def on_program(self, tape: Tape, program: Program) -> None:
        """Handle a recording that yielded a new program."""

    def on_trace(self, state: Any, call: Any, run: Run) -> Any:
        """Call `run`, which traces a call of a jitted function, and return its result."""


observers: list[TraceObserver] = []
"""All registered observers, in all threads."""


def run_observed(state: Any, call: Any, run: Run) -> Any:
    """Call `run`, which traces a call of a jitted function, through the observers."""
    for observer in [*observers]:
        run = _defer(observer.on_trace, state, call, run)
    return run()


def _defer(told: Callable[..., Any], *args: Any) -> Run:
    return lambda: told(*args)


_run = Tape.run


def _observed_run(self: Tape, function: Callable[..., Any], flatten: Callable[[Any], Any] | None = None) -> Any:
    run: Run = _defer(_run, self, function, flatten)
    for observer in [*observers]:
        run = _defer(observer.on_run, self, run)
    return run()


def _report_program(tape: Tape, program: Program) -> None:
    for observer in [*observers]:
        observer.on_program(tape, program)


@contextmanager
def observe_traces(observer: TraceObserver) -> Iterator[None]:
    """Within the block call `observer` for all traces; calls are slower only within such blocks."""
    observers.append(observer)
    if len(observers) == 1:
        Tape.run = _observed_run  # type: ignore[method-assign]
        on_new_program.append(_report_program)
    try:
        yield
    finally:
        observers.remove(observer)
        if not observers:
            Tape.run = _run  # type: ignore[method-assign]
            on_new_program.remove(_report_program)
