"""The memo of derived programs: what was made of a program once is not made again."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fxgrad.engine import config
from fxgrad.engine.core.avals import Aval, Literal, plain
from fxgrad.engine.core.primitive import Primitive, library
from fxgrad.engine.core.program import Equation, Program, Var
from fxgrad.engine.core.sources import without_scope, without_source
from fxgrad.engine.derivation.consultation import Consultation, batched_axis, consulting, forget, spmd_names, still_hold
from fxgrad.engine.derivation.simplify import without_dead_code
from fxgrad.engine.derivation.simplifying import SimplifyingTape
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.provenance import is_shown
from fxgrad.engine.tracing.tape import current, read
from fxgrad.engine.tracing.trace import WRITTEN, trace
from fxgrad.engine.tracing.tracer import Tracer

Builder = Callable[..., "tuple[Sequence[Any], Any]"]
"""Called with tracers; returns the outputs of the derived program and whatever else is to be known of it."""


def holds_tracers(captured: Sequence[Any]) -> bool:
    """Whether there is a tracer among captured values, which are then right for one call only."""
    return any(type(value) is Tracer for value in captured)


def rule_inputs(primitive: Primitive, values: list[Any]) -> list[Any]:
    """`values` for a rule of `primitive`: rules that users wrote get numbers in the place of literals."""
    return values if Literal not in map(type, values) or primitive in library else plain(values)


class Derived(NamedTuple):
    """A program made from another one: itself, what it captured, what else its builder said, and the code it ran."""

    program: Program
    captured: list[Any]
    extra: Any
    consulted: Sequence[Consultation] = ()

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Runs the program in the current context."""
        return apply_program(self.program, [*self.captured, *inputs] if self.captured else inputs)

    @property
    def holds_once(self) -> bool:
        """Whether it captured a tracer, and so is right for this call only."""
        return holds_tracers(self.captured)

    @property
    def holds(self) -> bool:
        """Whether user code that was run for it, such as custom rules, still records the same."""
        return still_hold(self.consulted)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Python's cyclic collector stands still: what is made here stays, and looking through it takes as long again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def derive(program: Program, key: Any, build: Builder, in_avals: Sequence[Aval], computed: int = 0) -> Derived:
    """The program that `build` records when called with tracers of `in_avals`, simplified.

    The first of them are the inputs of `program`. If the outputs of its first `computed` equations have been computed,
    they are further inputs, and those equations do not run again.

    Remembered on `program` under `key`, unless user code called by `build` captured a tracer: then the
    result holds for this call only. User code that was consulted is run again, and must record the same.
    """
    # Only in programs that are shown is noted what variables are.
    key = (key, computed, batched_axis.get(), spmd_names.get(), is_shown(current.get()))
    derived: Derived | None = program.memo.get(key)
    if derived is not None and derived.consulted and not derived.holds:
        forget(program)
        derived = None
    if derived is None:
        extra: list[Any] = []
        prefix = program.equations[:computed]
        known_avals = [var.aval for equation in prefix for var in equation.outputs]

        def record(*tracers: Any) -> Sequence[Any]:
            _seed(prefix, dict(zip(program.inputs, tracers, strict=False)), tracers[len(in_avals):])
            outputs, more = build(*tracers[:len(in_avals)])
            extra.append(more)
            return outputs

        # What is derived of a program without lines, such as the library's, serves more than one line as well.
        has_lines = any(equation.source is not None for equation in program.equations)
        placed = without_scope() if has_lines else without_source()
        with nothing_collected(), placed, consulting() as consulted:
            recorded, captured = trace(record, [*in_avals, *known_avals], mode=WRITTEN,
                                       name="a derived program", tape_class=SimplifyingTape)
            derived = Derived(without_dead_code(recorded), captured, extra[0], consulted)
        if config.check_level:
            derived.program.check()
        if not derived.holds_once:
            program.memo[key] = derived
    return derived


def _seed(equations: Sequence[Equation], environment: dict[Var, Any], values: Sequence[Any]) -> None:
    """Tells the current tape the outputs of `equations`, which are all of `values` in order."""
    tape, remaining = current.get(), iter(values)
    assert isinstance(tape, SimplifyingTape)
    for equation in equations:
        outputs = [next(remaining) for _ in equation.outputs]
        inputs = [read(environment, atom) for atom in equation.inputs]
        tape.seed(equation.primitive, inputs, equation.params, outputs)
        environment.update(zip(equation.outputs, outputs, strict=True))
