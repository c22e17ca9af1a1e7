"""`explain_retraces`: observers of the calls of a function, or of a block, and the events of a report.

Calls that hit every cache cost nothing. The observed events are rare: a function is traced, a new program is recorded,
jax compiles (its public events give the duration), a tracer needs a concrete value.
"""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, overload

import jax.monitoring
from rich.table import Table

from fxgrad import errors
from fxgrad.extend import Program, file_name, parameter_names, require_function, title_of
from fxgrad.extend.tracing import Run, Tape, is_jitted_frame, observe_traces, user_line
from fxgrad.text.tables import Report
from fxgrad.tools.retracing.causes import ADVICE, FIRST, RetraceCause, differences, first_difference, nearest_call
from fxgrad.tools.retracing.report import FunctionReport, RetraceReport, Stop
from fxgrad.tools.retracing.signatures import (
    CLOSURE,
    Entries,
    argument_entries,
    call_entries,
    function_identity,
    own_entries,
    settings,
    sharding_entries,
    static_entries,
)

_LOWER, _COMPILE = "/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration"


class _Event:
    """One trace of an observed function."""

    def __init__(self, entries: Entries, owner: Any, line: str) -> None:
        self.entries, self.line = entries, line
        self.owner = weakref.ref(owner) if owner is not None else None
        self.program: Program | None = None
        self.forced = 0
        self.x64 = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]  # it may be ours, in 64-bit calls
        self.cause = RetraceCause(FIRST, "", FIRST, "", line)

    def is_of(self, owner: Any) -> bool:
        """Return whether it is a trace of the same jitted function."""
        return owner is None or (self.owner is not None and self.owner() is owner)


class _ObservedFunction:
    """The traces of one function; `jitted` tells whether it was called through `jit`."""

    def __init__(self, name: str, *, jitted: bool) -> None:
        self.name, self.jitted = name, jitted
        self.traces = self.compiles = 0
        self.trace = self.lower = self.compile = 0.0
        self.events: list[_Event] = []
        self.shardings: dict[int, list[tuple[Entries, Entries]]] = {}
        self.causes: list[RetraceCause] = []

    def enter(self, event: _Event, owner: Any) -> None:
        """Enter a trace, and find its cause."""
        if self.events:
            index, found = nearest_call([each.entries for each in self.events], self._entries_compared(event, owner))
            old = self.events[index]
            if old.is_of(owner):
                found = [each for each in found if each[0] != "closure"]
            kind, name, what, advice = self._cause(old, event, owner, found)
            event.cause = RetraceCause(kind, name, what, advice, event.line)
        self.events.append(event)
        self.causes.append(event.cause)

    def _entries_compared(self, event: _Event, owner: Any) -> Entries:
        return event.entries if not any(each.is_of(owner) for each in self.events) or not self.jitted else {
            key: value for key, value in event.entries.items() if key[0] != CLOSURE} | {
                key: value for key, value in self.events[-1].entries.items() if key[0] == CLOSURE}

    def _cause(self, old: _Event, event: _Event, owner: Any, found: list[Any]) -> tuple[str, str, str, str]:
        if found:
            found.sort(key=lambda each: each[0] == "closure")
            (kind, name, _, advice), whats = found[0], [each[2] for each in found]
            return kind, name, "; ".join(whats), advice
        if self.jitted and not old.is_of(owner):
            kind = "new partial" if any(key[0] == "partial" for key in event.entries) else "new function"
            return kind, self.name, f"jit of {self.name} was made anew, with the same code", ADVICE[kind]
        if self.jitted and old.x64 != event.x64:
            name = "jax_enable_x64"
            return "setting", name, f"{name}: {old.x64} -> {event.x64}", ADVICE["setting"].format(name=name)
        if self.jitted:
            return "forgotten", self.name, "what was known of it had been forgotten", ADVICE["forgotten"]
        what, place = first_difference(old.program, event.program) if old.program and event.program else ("", "")
        at = f" at {place}" if place else ""
        if event.forced or old.forced:
            return "control flow", self.name, f"Python took another branch on a value{at}: {what}", (
                ADVICE["control flow"])
        return "python", self.name, f"the function recorded something else{at}: {what or 'other constants'}", (
            ADVICE["python"])


class _Recorder:
    """The observer of one block."""

    def __init__(self) -> None:
        self.functions: dict[Any, _ObservedFunction] = {}
        self.stops: dict[str, Stop] = {}
        self.calls, self.wall = 0, 0.0
        self.around: Entries = {}  # the arguments of the call that is explained
        self._jitting: list[_ObservedFunction] = []
        self._events: dict[int, tuple[_Event, _ObservedFunction, Tape, float]] = {}
        self._last: tuple[_ObservedFunction, _Event] | None = None

    def of(self, function: Any, *, jitted: bool) -> _ObservedFunction:
        """Return the record of a function."""
        identity = function_identity(function)
        if (jitted, identity) not in self.functions:
            name = identity.name
            if name == "<lambda>":
                name = f"lambda at {file_name(identity.code.co_filename)}:{identity.code.co_firstlineno}"
            self.functions[jitted, identity] = _ObservedFunction(name, jitted=jitted)
        return self.functions[jitted, identity]

    # --- traces ---------------------------------------------------------------------------------------------

    def on_trace(self, state: Any, call: Any, run: Run) -> Any:
        """Record that a jitted function is traced for a call."""
        watched = self.of(state.function, jitted=True)
        count = len(call.args)
        names = parameter_names(state.function, count)
        entries = {**argument_entries(call.leaf_names(), call.avals),
                   **static_entries(lambda place: names[place] if isinstance(place, int) else place, call.static),
                   **own_entries(state.function), **settings()}
        event = _Event(entries, state, user_line())
        self._jitting.append(watched)
        begin, inside = time.perf_counter(), watched.lower + watched.compile
        try:
            traced = run()
        finally:
            self._jitting.pop()
            seconds = time.perf_counter() - begin - (watched.lower + watched.compile - inside)
            watched.trace += seconds
            watched.traces += 1
        event.program = traced.program
        watched.enter(event, state)
        self._last = watched, event
        _charge(watched, event, seconds)
        return traced

    def on_run(self, tape: Tape, run: Run) -> Any:
        """Record that a function is traced; `traced` does so for jitted functions."""
        watched = None
        if tape.parent is None and not self._jitting and not isinstance(tape.function, str):  # which are no user's
            watched = self.of(tape.function, jitted=False)
            watched.traces += 1
            names = [*tape.input_names()] if tape.input_names else parameter_names(
                tape.function, len(tape.root.outputs))
            entries = {**self.around, **argument_entries(names, [var.aval for var in tape.root.outputs]), **settings()}
            event = _Event(entries, None, user_line())
        begin = time.perf_counter()
        try:
            return run()
        except errors.FxgradError as error:
            if isinstance(error, errors.ConcretizationError | errors.ArrayConversionError):
                text, _, line = str(error).partition("\n  at ")
                self.stops.setdefault(f"{line}{text}", Stop(line, text))
            raise
        finally:
            if watched is not None:
                seconds = time.perf_counter() - begin
                watched.trace += seconds
                event.forced = tape.num_concretizations
                self._events = {id(tape): (event, watched, tape, seconds)}

    def on_program(self, tape: Tape, program: Program) -> None:
        """Record that un-jitted code recorded a new program."""
        found = self._events.pop(id(tape), None)
        if found is not None:
            event, watched, _, seconds = found
            event.program = program
            watched.enter(event, None)
            _charge(watched, event, seconds)

    # --- compilations -----------------------------------------------------------------------------------------

    def record_duration(self, event: str, duration_secs: float, **words: str | int) -> None:
        """Record that jax lowered or compiled a program."""
        if event not in (_LOWER, _COMPILE):
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not is_jitted_frame(frame):
            frame = frame.f_back
        state = None if frame is None else frame.f_locals["state"]
        watched = self.of(state.function, jitted=True) if state is not None else (
            self._last[0] if self._last else self.functions.setdefault(
                None, _ObservedFunction("un-jitted operations on jax's arrays", jitted=True)))
        compiled_name = str(words.get("fun_name", "")).removeprefix("jit(").removesuffix(")")
        if event == _LOWER:
            watched.lower += duration_secs
        else:
            watched.compile += duration_secs
        own = self._last is not None and self._last[0] is watched
        if own and self._last is not None:
            _charge(watched, self._last[1], duration_secs)
        if event == _COMPILE and compiled_name not in _HELPERS:
            watched.compiles += 1
            if own and self._last is not None:
                _replace(watched, self._last[1], self._last[1].cause._replace(compiled=True))
            if frame is not None:
                self._compare_shardings(watched, state, frame)
            self._last = None

    def _compare_shardings(self, watched: _ObservedFunction, state: Any, frame: FrameType) -> None:
        """Find the cause if jax compiled without a trace: other shardings, or other settings of jax."""
        args, kwargs = frame.f_locals["args"], frame.f_locals["kwargs"]
        call = state.call_of(args, kwargs)
        names = call.leaf_names()
        lie = {**sharding_entries(names, call.leaves), **settings()}
        types: Entries = {**call_entries(state.function, args, kwargs)}
        before = watched.shardings.setdefault(id(state), [])
        same = [each for types_before, each in before if not differences(types_before, types)]
        before.append((types, lie))
        if same and self._last is None:
            found = nearest_call(same, lie)[1]
            if found:
                kind, name, what, advice = found[0]
                watched.causes.append(RetraceCause(kind, name, what, advice, user_line(), True))

    def report(self) -> RetraceReport:
        """Return the records so far."""
        return RetraceReport([FunctionReport(
            each.name, "jit" if each.jitted else "un-jitted", each.traces, len(each.events), each.compiles,
            each.trace * 1e3, each.lower * 1e3, each.compile * 1e3, tuple(each.causes))
            for each in self.functions.values()], [*self.stops.values()], self.calls, self.wall * 1e3)


_HELPERS = frozenset({"convert_element_type", "broadcast_in_dim", "_identity_fn", "<unnamed function>"})
"""Functions that jax compiles to put values on a device."""


def _charge(watched: _ObservedFunction, event: _Event, seconds: float) -> None:
    old = event.cause
    _replace(watched, event, old._replace(milliseconds=old.milliseconds + seconds * 1e3))


def _replace(watched: _ObservedFunction, event: _Event, cause: RetraceCause) -> None:
    for index in range(len(watched.causes) - 1, -1, -1):
        if watched.causes[index] is event.cause:
            watched.causes[index] = cause
            break
    event.cause = cause


@contextmanager
def _observe(recorder: _Recorder) -> Iterator[None]:
    listener = recorder.record_duration
    jax.monitoring.register_event_duration_secs_listener(listener)
    begin = time.perf_counter()
    try:
        with observe_traces(recorder):
            yield
    finally:
        recorder.wall += time.perf_counter() - begin
        jax.monitoring.unregister_event_duration_listener(listener)


class Explained(Report):
    """A function whose calls are observed: `report` has its traces and compilations, and `print` shows it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._recorder = function, _Recorder()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recorder = self._recorder
        recorder.calls += 1
        recorder.around = call_entries(self._function, args, kwargs)
        with _observe(recorder):
            return jax.block_until_ready(self._function(*args, **kwargs))

    @property
    def report(self) -> RetraceReport:
        """The traces and compilations of all calls so far, with their causes."""
        return self._recorder.report()

    def table(self) -> Table:
        """Return the table of the report."""
        return self.report.table()

    def __repr__(self) -> str:
        return f"<explained {title_of(self._function)}: {self.report!r}>"


@overload
def explain_retraces() -> AbstractContextManager[RetraceReport]: ...
@overload
def explain_retraces(fun: Callable[..., Any]) -> Explained: ...
def explain_retraces(fun: Callable[..., Any] | None = None) -> Any:
    """Return `fun` with its calls observed; print it to see what was traced and compiled, and why.

    Call it as you call `fun`, a few times with what your own loop passes; it returns what `fun` returns, once that is
    computed. `report` has the counts, the milliseconds and the causes: for each trace or compilation what was new
    against the nearest call before (`x.shape[0]: 32 -> 48`), the line of the call, and what to write. `fun` may be
    jitted, a derivative, a batch, any nesting of these, or a function that calls such.

    Without `fun` it is a context manager that observes everything traced and compiled in the block, in all threads, and
    yields a report, filled at the end. Raises `ArgumentError` for what is no function.

    >>> import numpy as np, fxgrad
    >>> step = fxgrad.explain_retraces(fxgrad.jit(lambda x: np.sum(x * x)))
    >>> for size in (32, 32, 48):
    ...     _ = step(np.ones(size))
    >>> [cause.what for cause in step.report.causes]
    ['first call', 'x.shape[0]: 32 -> 48']
    >>> with fxgrad.explain_retraces() as report:
    ...     for scale in (2.0, 3.0):
    ...         _ = fxgrad.jit(lambda x: x * scale)(np.ones(3))
    >>> [(cause.kind, cause.compiled) for cause in report.causes]
    [('first call', True), ('new function', True)]
    """
    if fun is None:
        return _report_of_block()
    require_function("explain_retraces", fun)
    return Explained(fun)


@contextmanager
def _report_of_block() -> Iterator[RetraceReport]:
    recorder, report = _Recorder(), RetraceReport([], [], 0, 0.0)
    try:
        with _observe(recorder):
            yield report
    finally:
        report.fill(recorder.report())
