"""Derived programs: recorded once for a program and a key, and memoized on it under guards."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fxgrad.engine import config
from fxgrad.engine.core.avals import Aval, Literal, without_literals
from fxgrad.engine.core.primitive import Primitive, library
from fxgrad.engine.core.program import Program, require_program
from fxgrad.engine.core.sources import without_scope, without_source
from fxgrad.engine.derivation.guards import (
    Guard,
    all_valid,
    batched_axis,
    collect_guards,
    find_valid,
    keep_guarded,
    live_lanes,
    spmd_names,
)
from fxgrad.engine.derivation.simplify import remove_dead_code
from fxgrad.engine.derivation.simplifying import SimplifyingTape
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.provenance import is_shown
from fxgrad.engine.tracing.tape import current, read_atom
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.tracing.tracer import Tracer

Builder = Callable[..., "tuple[Sequence[Any], Any]"]
"""A function of tracers; returns the outputs of the derived program, and an extra result for its caller."""


def holds_tracers(captured: Sequence[Any]) -> bool:
    """Return whether a captured value is a tracer, and so valid for one call only."""
    return any(type(value) is Tracer for value in captured)


def rule_inputs(primitive: Primitive, values: list[Any]) -> list[Any]:
    """Return `values` for a rule of `primitive`: rules written by users get numbers instead of literals."""
    return values if Literal not in map(type, values) or primitive in library else without_literals(values)


class Derived(NamedTuple):
    """A program derived from another one, its captured values, its builder's extra result, and its guards."""

    program: Program
    captured: list[Any]
    extra: Any
    guards: Sequence[Guard] = ()

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the program in the current context."""
        return apply_program(self.program, [*self.captured, *inputs] if self.captured else inputs)

    @property
    def captures_tracers(self) -> bool:
        """Whether it captured a tracer, and so is right for this call only."""
        return holds_tracers(self.captured)

    @property
    def is_valid(self) -> bool:
        """Return whether user code that ran for it, such as custom rules, still records the same program."""
        return all_valid(self.guards)


class gc_paused:  # noqa: N801  (used as `with gc_paused():`)
    """Pause the cyclic garbage collector: objects made in this block survive, and scanning them doubles the time."""

    __slots__ = ("_enabled",)

    def __enter__(self) -> None:
        self._enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            gc.enable()


def derive(program: Program, key: Any, build: Builder, in_avals: Sequence[Aval] | Callable[[], Sequence[Aval]],
           computed: int = 0) -> Derived:
    """Return the program that `build` records when called with tracers of `in_avals`, or of what that returns.

    It is simplified. The first tracers are the inputs of `program`. If the outputs of its first `computed` equations
    have been computed, they are further inputs, and those equations do not run again.

    It is memoized on `program` under `key`, unless user code called by `build` captured a tracer, or `build` the mask
    of live lanes: then the result is valid for this call only. User code guards it (`engine/derivation/guards.py`).
    """
    # Provenance is noted in displayed programs only.
    masked = live_lanes.get() is not None
    key = (key, computed, batched_axis.get(), spmd_names.get(), masked, is_shown(current.get()))
    try:
        derived: Derived | None = find_valid(program, key)
    except AttributeError:
        require_program("derive", program)
        raise
    if derived is None:  # not by `memoize_guarded`: programs may nest deeply, and it would take two frames more
        extra: list[Any] = []
        prefix = program.equations[:computed]
        avals = in_avals() if callable(in_avals) else in_avals
        known_avals = [var.aval for equation in prefix for var in equation.outputs]

        def record(*tracers: Any) -> Sequence[Any]:
            # The outputs of `prefix` are known to the tape.
            environment = dict(zip(program.inputs, tracers, strict=False))
            tape, remaining = current.get(), iter(tracers[len(avals):])
            assert isinstance(tape, SimplifyingTape)
            for equation in prefix:
                results = [next(remaining) for _ in equation.outputs]
                inputs = [read_atom(environment, atom) for atom in equation.inputs]
                tape.seed(equation.primitive, inputs, equation.params, results)
                environment.update(zip(equation.outputs, results, strict=True))
            outputs, more = build(*tracers[:len(avals)])
            extra.append(more)
            return outputs

        # A program derived from one without lines, such as the library's, serves several lines as well.
        has_lines = any(equation.source is not None for equation in program.equations)
        placed = without_scope() if has_lines else without_source()
        with gc_paused(), placed, collect_guards() as guards:
            recorded, captured = trace_at(record, [*avals, *known_avals], mode=WITH_LITERALS,
                                          name="a derived program", tape_class=SimplifyingTape)
            derived = Derived(remove_dead_code(recorded), captured, extra[0], guards)
        if config.check_level:
            derived.program.check()
        if not (derived.captures_tracers or (masked and captured)):
            keep_guarded(program, key, derived, guards)
    return derived
