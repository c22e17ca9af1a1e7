"""User code that runs while a program is derived, such as custom rules: run again before what it gave is used again.

What is derived from a program is remembered on it; but a rule may read what has changed since. So it is recorded, as
any function is, and the derived program holds while the rule records the same program and closes over equal values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np

from fxgrad.engine.core.arrays import Integer
from fxgrad.engine.core.avals import Literal, is_unchanged
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.sources import deeper, equation_source
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.core.walk import walk
from fxgrad.engine.tracing.tape import aval_of, axes_in_scope, bind, bind_equation, current
from fxgrad.engine.tracing.trace import Beginning, mesh_in_scope
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.errors import LeakedTracerError

batched_axis: ContextVar[str | None] = ContextVar("batched_axis", default=None)
"""The name of the axis that the batching under way gives to what it batches, if it has one."""
spmd_names: ContextVar[tuple[str, ...]] = ContextVar("spmd_names", default=())
"""The mesh axes along which the batching under way cuts the axis that it gives to what it batches."""

Consulted = Callable[..., "tuple[Sequence[Any], Any]"]
"""User code on flat tracers: outputs, each a value, a `Zero` or None, and what else is to be known of them."""


class Consultation:
    """One run of user code: what it recorded, and what it takes to see whether it still records that."""

    __slots__ = ("_axis", "_beginning", "_function", "_in_avals", "_mesh", "_name", "_origin", "_scope", "captured",
                 "extra", "program")

    def __init__(self, function: Consulted, inputs: Sequence[Any], origin: Any, name: str) -> None:
        self._function, self._in_avals = function, [*map(aval_of, inputs)]
        self._origin, self._name = origin, name
        self._scope, self._mesh, self._axis = dict(axes_in_scope()), mesh_in_scope(), batched_axis.get()
        self._beginning = Beginning()
        self.program, self.captured, self.extra = self._record()

    def _record(self) -> tuple[Program, list[Any], Any]:
        # On a tape outside of all others, so that it records the same whatever is under way.
        found: list[Any] = []

        def flat(*tracers: Any) -> list[Any]:
            outputs, extra = self._function(*tracers)
            found[:] = [tuple(output.aval if type(output) is Zero else output is None for output in outputs), extra]
            return [output for output in outputs if output is not None and type(output) is not Zero]

        tokens = current.set(None), batched_axis.set(self._axis), equation_source.set(None)
        try:
            tape = self._beginning.tape(self._in_avals, self._name, self._origin, self._scope, self._mesh)
            program = tape.finish(tape.run(flat))
        finally:
            for variable, token in zip((current, batched_axis, equation_source), tokens, strict=True):
                variable.reset(token)  # type: ignore[attr-defined]
        return program, tape.captured, tuple(found)

    def holds(self) -> bool:
        """Whether the code, run again, records the same."""
        program, captured, extra = self._record()
        return program is self.program and extra == self.extra and all(map(_are_equal, self.captured, captured))

    def outputs(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs on `inputs`, bound in the current context."""
        program = self.program
        given = [Literal(value, var.aval) if isinstance(value, np.generic | Integer) and var.aval.dtype.names is None
                 else value for value, var in zip(self.captured, program.inputs, strict=False)]
        walked = equation_source.get() is not None
        present = iter(walk(program, [*given, *inputs], _bind_at_call if walked else bind_equation))
        return [None if kind is True else next(present) if kind is False else Zero(kind) for kind in self.extra[0]]


def _bind_at_call(equation: Equation, values: Sequence[Any]) -> list[Any]:
    """As `bind_equation`, for the line of the call, which an interpreter is at, and within its scope."""
    with deeper(equation.scope) or nullcontext():
        return bind(equation.primitive, *values, **equation.params)


def _are_equal(value: Any, other: Any) -> bool:
    """Whether two captured values are the same to the bit; tracers are right for one call only."""
    if type(value) is Tracer or type(other) is Tracer or type(value) is not type(other):
        return False
    return value is other or is_unchanged(value, other)


_under_way: ContextVar[list[Consultation] | None] = ContextVar("consultations", default=None)


def consult(function: Consulted, inputs: Sequence[Any], origin: Any, name: str) -> tuple[list[Any], Any]:
    """What the user's `function` gives for `inputs`; `origin` tells functions apart, as for any recording.

    What is derived meanwhile is remembered together with this run.
    """
    try:
        consultation = Consultation(function, inputs, origin, name)
    except LeakedTracerError as error:
        _, _, line = str(error).rpartition("\n  at ")
        raise LeakedTracerError(
            f"{name} uses a traced array of a function that has returned by the time the rule runs. Make that array an "
            f"argument of the function that the rule belongs to\n  at {line}") from None
    consultations = _under_way.get()
    if consultations is not None:
        consultations.append(consultation)
    return consultation.outputs(inputs), consultation.extra[1]


@contextmanager
def consulting() -> Iterator[list[Consultation]]:
    """Collects the runs of user code in this block, also for a block around it."""
    outer, collected = _under_way.get(), []  # type: ignore[var-annotated]
    token = _under_way.set(collected)
    try:
        yield collected
    finally:
        _under_way.reset(token)
        if outer is not None:
            outer.extend(collected)


def still_hold(consultations: Sequence[Consultation]) -> bool:
    """Whether what these gave may be used again; then it counts as consulted now, for the block around."""
    if not all(consultation.holds() for consultation in consultations):
        return False
    outer = _under_way.get()
    if outer is not None:
        outer.extend(consultations)
    return True


def forget(program: Program) -> None:
    """Drops all that was derived from `program`: what was derived from the derived may be older than the user code."""
    program.memo.clear()


def kept_while_it_holds(program: Program, key: tuple[Any, ...], make: Callable[[], Any],
               lasts: Callable[[Any], bool] = lambda made: True) -> Any:
    """What `make` returns, kept on `program`, if it `lasts`, while the user code that it ran records the same."""
    kept = program.memo.get(key)
    if kept is not None:
        made, consulted = kept
        if not consulted or still_hold(consulted):
            return made
        forget(program)
    with consulting() as consulted:
        made = make()
    if lasts(made):
        program.memo[key] = made, consulted
    return made
