"""Guards: re-run user code (e.g. custom rules) to validate a memoized derived program.

Derived programs are memoized on the program they come from. A user's rule is Python, and may read state that has
changed since. So each run of one is recorded, as any function is; a guard is that recording. It is valid while the
rule, run again, records the same program and captures equal values.
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
from fxgrad.engine.core.sources import equation_source, nested_scope
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.core.walk import eval_program
from fxgrad.engine.tracing.tape import aval_of, axes_in_scope, bind, bind_equation, current
from fxgrad.engine.tracing.trace import TraceRoot, mesh_in_scope
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.errors import LeakedTracerError

batched_axis: ContextVar[str | None] = ContextVar("batched_axis", default=None)
"""The name of the axis that the current batching adds, if it has one."""
spmd_names: ContextVar[tuple[str, ...]] = ContextVar("spmd_names", default=())
"""The mesh axes along which the current batching shards the axis that it adds."""
live_lanes: ContextVar[Any] = ContextVar("live_lanes", default=None)
"""The mask of the lanes whose results are used, in the current batching; None if all are."""

UserCode = Callable[..., "tuple[Sequence[Any], Any]"]
"""A function of flat tracers that returns outputs, each a value, a `Zero` or None, and an extra result."""
Evaluate = Callable[[Program, Sequence[Any]], "Sequence[Any] | None"]
"""A function that evaluates a recorded program in another way than equation by equation; None for those it leaves."""


class Guard:
    """One run of user code: its recording, and the context needed to run it again."""

    __slots__ = ("_axis", "_beginning", "_function", "_in_avals", "_mesh", "_name", "_origin", "_scope", "captured",
                 "extra", "program")

    def __init__(self, function: UserCode, inputs: Sequence[Any], origin: Any, name: str) -> None:
        self._function, self._in_avals = function, [*map(aval_of, inputs)]
        self._origin, self._name = origin, name
        self._scope, self._mesh, self._axis = dict(axes_in_scope()), mesh_in_scope(), batched_axis.get()
        self._beginning = TraceRoot()
        self.program, self.captured, self.extra = self._record()

    def _record(self) -> tuple[Program, list[Any], Any]:
        # On a tape outside of all others, so that the recording does not depend on the context.
        found: list[Any] = []

        def flat(*tracers: Any) -> list[Any]:
            outputs, extra = self._function(*tracers)
            found[:] = [tuple(output.aval if type(output) is Zero else output is None for output in outputs), extra]
            return [output for output in outputs if output is not None and type(output) is not Zero]

        context: list[tuple[ContextVar[Any], Any]] = [
            (current, None), (batched_axis, self._axis), (live_lanes, None), (equation_source, None)]
        tokens = [variable.set(value) for variable, value in context]
        try:
            tape = self._beginning.tape(self._in_avals, self._name, self._origin, self._scope, self._mesh)
            program = tape.finish(tape.run(flat))
        finally:
            for (variable, _), token in zip(context, tokens, strict=True):
                variable.reset(token)
        return program, tape.captured, tuple(found)

    def is_valid(self) -> bool:
        """Return whether the code, run again, records the same program and captures equal values."""
        program, captured, extra = self._record()
        return program is self.program and extra == self.extra and all(map(_are_equal, self.captured, captured))

    def outputs(self, inputs: Sequence[Any], evaluate: Evaluate | None = None) -> list[Any]:
        """Return the outputs on `inputs`, bound in the current context; by `evaluate` if it takes the program."""
        program = self.program
        given = [Literal(value, var.aval) if isinstance(value, np.generic | Integer) and var.aval.dtype.names is None
                 else value for value, var in zip(self.captured, program.inputs, strict=False)]
        walked = equation_source.get() is not None
        results = None if evaluate is None else evaluate(program, [*given, *inputs])
        present = iter(eval_program(program, [*given, *inputs], _bind_at_call if walked else bind_equation)
                       if results is None else results)
        return [None if kind is True else next(present) if kind is False else Zero(kind) for kind in self.extra[0]]


def _bind_at_call(equation: Equation, values: Sequence[Any]) -> list[Any]:
    """Bind an equation with the line and the scope of an interpreter's current equation."""
    with nested_scope(equation.scope) or nullcontext():
        return bind(equation.primitive, *values, **equation.params)


def _are_equal(value: Any, other: Any) -> bool:
    """Return whether two captured values are equal bit for bit; a tracer equals none, since it belongs to one call."""
    if type(value) is Tracer or type(other) is Tracer or type(value) is not type(other):
        return False
    return value is other or is_unchanged(value, other)


_collecting: ContextVar[list[Guard] | None] = ContextVar("guards", default=None)
"""The list that collects the guards of user code running now, or None."""


def run_guarded(function: UserCode, inputs: Sequence[Any], origin: Any, name: str, evaluate: Evaluate | None = None,
                ) -> tuple[list[Any], Any]:
    """Run the user's `function` on `inputs` under a new guard; `origin` separates functions, as for any recording."""
    try:
        guard = Guard(function, inputs, origin, name)
    except LeakedTracerError as error:
        _, _, line = str(error).rpartition("\n  at ")
        raise LeakedTracerError(
            f"{name} uses a traced array of a function that has returned by the time the rule runs. Make that array an "
            f"argument of the function that the rule belongs to\n  at {line}") from None
    guards = _collecting.get()
    if guards is not None:
        guards.append(guard)
    return guard.outputs(inputs, evaluate), guard.extra[1]


@contextmanager
def collect_guards() -> Iterator[list[Guard]]:
    """Collect the guards of the user code that runs in this block, also for a block around it."""
    outer, collected = _collecting.get(), []  # type: ignore[var-annotated]
    token = _collecting.set(collected)
    try:
        yield collected
    finally:
        _collecting.reset(token)
        if outer is not None:
            outer.extend(collected)


def all_valid(guards: Sequence[Guard]) -> bool:
    """Return whether all guards are valid; then an enclosing collection depends on them, too."""
    if not guards:
        return True
    if not all(guard.is_valid() for guard in guards):
        return False
    outer = _collecting.get()
    if outer is not None:
        outer.extend(guards)
    return True


def find_valid(program: Program, key: Any) -> Any:
    """Return the value memoized on `program` under `key`; None if there is none.

    If one of its guards is invalid, everything derived from `program` is dropped: a derivation of a derivation may be
    older than the user code, too.
    """
    kept = program.memo.get(key)
    if kept is None:
        return None
    made, guards = kept
    if all_valid(guards):
        return made
    program.memo.clear()
    return None


def keep_guarded(program: Program, key: Any, made: Any, guards: list[Guard]) -> None:
    """Memoize `made` on `program` under `key` while `guards` are valid, and those that the list gains later."""
    program.memo[key] = made, guards


def memoize_guarded(program: Program, key: Any, make: Callable[[list[Guard]], Any],
                    lasts: Callable[[Any], bool] = lambda made: True) -> Any:
    """Memoize `make(guards)` on `program` under `key` if it `lasts`, until user code that it ran traces differently.

    `guards` is the list of the guards collected meanwhile; `make` may pass it to its result, which adds those of user
    code that runs later, when jax traces it.
    """
    made = find_valid(program, key)
    if made is None:
        with collect_guards() as guards:
            made = make(guards)
        if lasts(made):
            keep_guarded(program, key, made, guards)
    return made


def drop_derived(program: Program, first: str) -> None:
    """Drop the programs derived from `program` under keys that begin with `first`."""
    for key in [key for key in program.memo if type(key) is tuple and type(key[0]) is tuple and key[0][:1] == (first,)]:
        del program.memo[key]
