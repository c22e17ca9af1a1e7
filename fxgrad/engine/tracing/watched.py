"""Who wants to know what is traced: nobody, most of the time, and then nothing is asked on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from fxgrad.engine.core.program import Program
from fxgrad.engine.tracing.tape import Tape, made_programs

Run = Callable[[], Any]


class Watcher(Protocol):
    """What is told of traces."""

    def ran(self, tape: Tape, run: Run) -> Any:
        """Calls `run`, which calls a user's function on `tape`, and returns what that gives."""

    def made(self, tape: Tape, program: Program) -> None:
        """A recording ended with a program that there was not before."""

    def traced(self, state: Any, call: Any, run: Run) -> Any:
        """Calls `run`, which traces a call of a jitted function; returns what that gives."""


watchers: list[Watcher] = []
"""All that watch, in all threads."""


def traced(state: Any, call: Any, run: Run) -> Any:
    """`run()`, the trace of a call of a jitted function, of which the watchers are told."""
    for watcher in [*watchers]:
        run = _around(watcher.traced, state, call, run)
    return run()


def _around(told: Callable[..., Any], *args: Any) -> Run:
    return lambda: told(*args)


_run = Tape.run


def _watched_run(self: Tape, function: Callable[..., Any], flatten: Callable[[Any], Any] | None = None) -> Any:
    run: Run = _around(_run, self, function, flatten)
    for watcher in [*watchers]:
        run = _around(watcher.ran, self, run)
    return run()


def _made(tape: Tape, program: Program) -> None:
    for watcher in [*watchers]:
        watcher.made(tape, program)


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Within the block `watcher` is told of all traces; calls are slower by that then, and not otherwise."""
    watchers.append(watcher)
    if len(watchers) == 1:
        Tape.run = _watched_run  # type: ignore[method-assign]
        made_programs.append(_made)
    try:
        yield
    finally:
        watchers.remove(watcher)
        if not watchers:
            Tape.run = _run  # type: ignore[method-assign]
            made_programs.remove(_made)
