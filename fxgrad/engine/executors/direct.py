"""Values and gradients of long programs, equation by equation: no gradient program is made, and no code of it.

To make a gradient program and code for it takes as long as many runs. A program of thousands of operations, such as a
Python loop leaves, may be run a few times only, or be another one at every call. What reverse mode does for each of its
operations is known (`engine/transforms/joint.py`) and has code of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.arrays import OWN, made, returned
from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.facts import Slot, has_effects
from fxgrad.engine.core.primitive import NO_TANGENT
from fxgrad.engine.core.program import Equation, Program, Var
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.derive import nothing_collected
from fxgrad.engine.derivation.simplify import live_equations, simplify, without_repetition
from fxgrad.engine.derivation.simplifying import Template
from fxgrad.engine.executors.numpy import as_arrays, giving_way, own, runner_of
from fxgrad.engine.executors.straightline import concrete
from fxgrad.engine.ops.below_byte import has_below_byte
from fxgrad.engine.transforms.joint import Rules, rules_of

LONG = 1000
"""Equations from which on a program is run directly at first."""
LONGEST = 20_000
"""Equations from which on it always is."""
_TIMES = 3
_TIMES_RUN: Slot[int] = Slot("times run directly")
_SIMPLE: Slot[Program] = Slot("simple")

Run = Callable[..., Sequence[Any]]


def gradients(program: Program, wrt: Sequence[bool], inputs: Sequence[Any], computed: int = 0,
              ) -> tuple[list[Any], list[Any]] | None:
    """The outputs of `program`, and the gradients of the first one in the inputs that `wrt` marks.

    None if this is not the way: the program is short, was run directly before, or has operations of which not all is
    known. The first `computed` equations have been computed; which happens again.
    """
    chosen = _to_run(program, computed)
    if chosen is None:
        return None
    given = _plain(inputs)
    with nothing_collected(), np.errstate(all="ignore"):
        found = _forward(chosen, wrt, given)
        if found is None:
            return None
        outputs, active, steps = found
        slopes = _gradients(chosen, wrt, active, _taken(steps), [1.0, *[None] * (len(outputs) - 1)])
    results = own([*outputs, *slopes], range(len(outputs) + len(slopes)), given)
    outputs = giving_way(program, results[:len(outputs)])
    if not _holds_arrays(inputs):
        return outputs, results[len(outputs):]
    return as_arrays(program, outputs), [*map(made, results[len(outputs):])]


def passage(program: Program, wrt: Sequence[bool], inputs: Sequence[Any], computed: int = 0) -> Passage | None:
    """The way through `program` and back, for cotangents that are not known yet; None as for `gradients`."""
    chosen = _to_run(program, computed)
    if chosen is None:
        return None
    given = [np.array(value) if type(value) is np.ndarray else value for value in _plain(inputs)]
    with nothing_collected(), np.errstate(all="ignore"):
        found = _forward(chosen, wrt, given)
    return None if found is None else Passage(
        chosen, wrt, [*map(made, given)] if _holds_arrays(inputs) else given, *found)


def _plain(inputs: Sequence[Any]) -> list[Any]:
    """The values that kernels compute with."""
    return [returned(concrete(value)) for value in inputs]


def _holds_arrays(values: Sequence[Any]) -> bool:
    """Whether an `Array` is among them, so that results are such."""
    return any(type(value) in OWN for value in values)


class Passage:
    """A program that was run, with what it takes to go back as often as one likes.

    `inputs` are copies, since they may be residuals, and so are `outputs`: nothing that others may change is kept.
    """

    __slots__ = ("_active", "_program", "_steps", "_wrt", "inputs", "outputs")

    def __init__(self, program: Program, wrt: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Any],
                 active: set[Any], steps: list[_Step]) -> None:
        self._program, self._wrt, self.inputs, self._active, self._steps = program, wrt, inputs, active, steps
        outputs = giving_way(program, [np.array(value)[()] for value in outputs])
        self.outputs = as_arrays(program, outputs) if _holds_arrays(inputs) else outputs

    @property
    def length(self) -> int:
        """How many operations there are to go back through."""
        return len(self._steps)

    def back(self, cotangents: Sequence[Any]) -> list[Any]:
        """The gradients of the outputs, weighted by `cotangents` (None for zero), in the inputs marked."""
        given = [None if value is None else returned(concrete(value)) for value in cotangents]
        with nothing_collected(), np.errstate(all="ignore"):
            found = _gradients(self._program, self._wrt, self._active, reversed(self._steps), given)
        slopes = own(found, range(len(found)), [*given, *self.inputs])
        return [*map(made, slopes)] if _holds_arrays([*self.inputs, *cotangents]) else slopes


def _to_run(program: Program, computed: int) -> Program | None:
    """The program to be run for `program`; None if it is short, was run directly before, or has effects."""
    if len(program.equations) < LONG or has_effects(program) or has_below_byte(program):
        return None
    if len(program.equations) < LONGEST:
        times = _TIMES_RUN.put(program, (_TIMES_RUN.of(program) or 0) + 1)
        if times > _TIMES:
            return None
        # As for a gradient program, so that sums are the same to the bit.
        simple = _SIMPLE.of(program)
        with nothing_collected():
            program = _SIMPLE.put(program, simple or (without_repetition(program) if computed else simplify(program)))
    return program


_Step = tuple[list[Var], Rules, Sequence[Any], list[Any]]
"""The outputs of an equation, what is known of it, its residuals, and the operands that cotangents go to."""


def _forward(program: Program, wrt: Sequence[bool], inputs: Sequence[Any],
             ) -> tuple[list[Any], set[Any], list[_Step]] | None:
    """The outputs, what depends on the marked inputs, and what is to be done on the way back."""
    values: dict[Any, Any] = dict(zip(program.inputs, inputs, strict=True))
    active: set[Any] = {var for var, marked in zip(program.inputs, wrt, strict=True) if marked}
    steps: list[_Step] = []
    for equation in live_equations(program):
        operands, variables = equation.inputs, equation.outputs
        if active.isdisjoint(operands) or equation.primitive.jvp is NO_TANGENT:
            outputs: Sequence[Any] = _computed(equation, values)
        else:
            given = {atom: atom for atom in operands if type(atom) is Var}
            marks = [*map(active.__contains__, given)]
            rules = rules_of(equation, given, marks)  # type: ignore[arg-type]
            if rules is None:
                return None
            outputs = _code(rules.forward)(*[values[var] for var in given])
            active.update(variables if False not in rules.reached else
                          [var for var, reached in zip(variables, rules.reached, strict=True) if reached])
            leading = given if False not in marks else [var for var in given if var in active]
            steps.append((variables, rules, outputs[len(variables):], [*leading]))
        if len(variables) == 1:
            values[variables[0]] = outputs[0]
        else:
            values.update(zip(variables, outputs))  # noqa: B905  (residuals may follow)
    outputs = [atom.value if type(atom) is Literal else values[atom] for atom in program.outputs]
    return outputs, active, steps


def _taken(steps: list[_Step]) -> Iterator[_Step]:
    """The steps from the last to the first; each is gone when the next is asked for, with its residuals."""
    while steps:
        yield steps.pop()


def _gradients(program: Program, wrt: Sequence[bool], active: set[Any], steps: Iterator[_Step],
               cotangents: Sequence[Any]) -> list[Any]:
    sums: dict[Any, Any] = {}
    for atom, cotangent in zip(program.outputs, cotangents, strict=True):
        if cotangent is not None and atom in active:
            typed, before = np.asarray(cotangent, atom.aval.dtype)[()], sums.get(atom)
            sums[atom] = typed if before is None else before + typed
    for step in steps:
        _back(sums, *step)
    return [sums[var] if var in sums else np.zeros(var.aval.shape, var.aval.dtype)[()]
            for var, marked in zip(program.inputs, wrt, strict=True) if marked]


def _computed(equation: Equation, values: dict[Any, Any]) -> Sequence[Any]:
    operands = [atom.value if type(atom) is Literal else values[atom] for atom in equation.inputs]
    outputs: Sequence[Any] = equation.primitive.numpy(*operands, **equation.params)
    return outputs


def _back(sums: dict[Any, Any], variables: list[Var], rules: Rules, residuals: Sequence[Any], leading: list[Any],
          ) -> None:
    """Adds the cotangents of the operands of an equation to `sums`, given those of its outputs there."""
    if len(variables) == 1:
        cotangent = sums.pop(variables[0], None)
        if cotangent is None:
            return
        arriving, template, zeros = [cotangent], *rules.way_back([variables[0]])
    else:
        cotangents = [sums.pop(var, None) for var in variables]
        if all(cotangent is None for cotangent in cotangents):
            return
        reaching = [(var, cotangent) for var, cotangent, reached in zip(
            variables, cotangents, rules.reached, strict=True) if reached]
        template, zeros = rules.way_back([Zero(var.aval) if value is None else var for var, value in reaching])
        arriving = [value for _, value in reaching if value is not None]
    results = iter(_code(template)(*residuals, *arriving))
    for var, zero in zip(leading, zeros, strict=True):
        if zero is None:
            cotangent, before = next(results), sums.get(var)
            sums[var] = cotangent if before is None else before + cotangent


def _code(template: Template) -> Run:
    """The code of a template; it takes the operands."""
    run: Run | None = template.code
    if run is None:
        inner = runner_of(template.program)
        captured = [concrete(value) for value in template.captured]
        run = template.code = (lambda *operands: inner(*captured, *operands)) if captured else inner
    return run
