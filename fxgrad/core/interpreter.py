"""Walking programs: the one loop, the public `Interpreter`, and the memo of derived programs.

Every transformation gives the equations of a program another meaning. `Interpreter` is that walk with one hook;
running an interpreter while a tape is current records a new program, so transformations compose.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fxgrad import config
from fxgrad.core import installed
from fxgrad.core.avals import Aval, Literal, plain
from fxgrad.core.consultation import Consultation, batched_axis, consulting, forget, still_hold
from fxgrad.core.facts import axes_used, has_effects
from fxgrad.core.primitive import Primitive, library
from fxgrad.core.program import Equation, Program, Var
from fxgrad.core.recording import WRITTEN, trace
from fxgrad.core.replay import inlined
from fxgrad.core.simplify import SimplifyingTape, without_dead_code
from fxgrad.core.sources import sources
from fxgrad.core.tape import Tape, bind, bind_equation, current, innermost_for, read
from fxgrad.core.tracer import Tracer
from fxgrad.core.walk import walk

__all__ = ["Derived", "Interpreter", "batched_axis", "bind", "derive", "evaluate", "run"]


class Interpreter:
    """A meaning for programs: override `equation`, and `literal` where scalars need wrapping.

    The values that flow are whatever the interpreter makes them: arrays, pairs, intervals, counts.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> class Count(Interpreter):
    ...     def __init__(self):
    ...         self.counts = {}
    ...     def equation(self, equation, inputs):
    ...         name = equation.primitive.name
    ...         self.counts[name] = self.counts.get(name, 0) + 1
    ...         return [None] * len(equation.outputs)
    >>> count = Count()
    >>> program = fxgrad.make_program(lambda x: fnp.sin(x) * fnp.sin(x + x))(1.0)
    >>> _ = count.run(program, [None])
    >>> count.counts
    {'sin': 2, 'add': 1, 'mul': 1}
    """

    def run(self, program: Program, inputs: Sequence[Any]) -> list[Any]:
        """Walks `program` once; `inputs` belong to `program.inputs`, without those that `constants` fill.

        Returns the values of `program.outputs`. Raises `ValueError` if the number of inputs is wrong.
        """
        given = [*(self.constant(value) for value in program.constants), *inputs]
        if len(given) != len(program.inputs):
            raise ValueError(f"the program takes {len(program.inputs) - len(program.constants)} inputs, "
                             f"got {len(inputs)}")
        with sources() as at:
            def step(equation: Equation, values: list[Any]) -> Sequence[Any]:
                at(equation)
                return self.equation(equation, values)

            return walk(program, given, step, self.literal)

    def equation(self, equation: Equation, inputs: list[Any]) -> Sequence[Any]:
        """The values of `equation.outputs`, given those of its inputs."""
        raise NotImplementedError(f"{type(self).__name__} must define equation(self, equation, inputs)")

    def literal(self, literal: Literal) -> Any:
        """The value of a scalar that stands in the program; the literal itself unless overridden."""
        return literal

    def constant(self, array: Any) -> Any:
        """The value of an array that a closed program carries; the array itself unless overridden."""
        return array


def evaluate(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Binds every equation in turn: computes them, or records them on the tapes concerned."""
    tape = current.get()
    if tape is not None and type(tape) is Tape:
        recorded = inlined(tape, program, [*program.constants, *inputs])
        if recorded is not None:
            return recorded
    # Not an `Interpreter`, whose hooks cost as much as recording an operation again does.
    return walk(program, [*program.constants, *inputs], bind_equation)


def run(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of `program`: recorded if a tape is concerned, and computed by an executor if not."""
    if current.get() is None or (innermost_for(inputs) is None and not (has_effects(program) or axes_used(program))):
        return installed.executor.execute(program, [*program.constants, *inputs] if program.constants else inputs)
    return evaluate(program, inputs)


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
        return run(self.program, [*self.captured, *inputs] if self.captured else inputs)

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


def derive(program: Program, key: Any, build: Builder, in_avals: Sequence[Aval], known: int = 0) -> Derived:
    """The program that `build` records when called with tracers of `in_avals`, simplified.

    The first of them are the inputs of `program`. If the outputs of its first `known` equations have been computed,
    they are further inputs, and those equations do not run again.

    Remembered on `program` under `key`, unless user code called by `build` captured a tracer: then the
    result holds for this call only. User code that was consulted is run again, and must record the same.
    """
    key = (key, known, batched_axis.get())
    derived: Derived | None = program.memo.get(key)
    if derived is not None and derived.consulted and not derived.holds:
        forget(program)
        derived = None
    if derived is None:
        extra: list[Any] = []
        prefix = program.equations[:known]
        known_avals = [var.aval for equation in prefix for var in equation.outputs]

        def record(*tracers: Any) -> Sequence[Any]:
            _seed(prefix, dict(zip(program.inputs, tracers, strict=False)), tracers[len(in_avals):])
            outputs, more = build(*tracers[:len(in_avals)])
            extra.append(more)
            return outputs

        with nothing_collected(), consulting() as consulted:
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
