"""Dataflow: an executor whose operations run when their operands are ready, in any order, on several threads.

Each kernel computes the same bits wherever and whenever it runs, so results are those of the order of the program.
Operations with effects, and those that run users' code, keep their order, and run on the thread of the call. Small
operations run on the thread that made them ready: to wake another one takes longer than they do.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from fxgrad.engine import executors
from fxgrad.engine.core.arrays import OWN, as_numpy
from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.program_properties import calls_user_code, is_effectful, program_property
from fxgrad.engine.core.walk import value_of
from fxgrad.engine.derivation.simplify import live_equations
from fxgrad.engine.executors.numpy import as_arrays, copy_borrowed, step_of, weaken_outputs
from fxgrad.engine.executors.straightline import as_kernel_operand
from fxgrad.engine.executors.xla import is_jax

_LARGE = 100_000
"""The number of elements among operands and results from which another thread is woken for an operation."""
_LARGE_MATRIX = 160
"""The size of a square matrix from which a factorisation or a product of it takes as long."""
Order = Callable[[Sequence[int]], int]
"""The choice among the operations that are ready: it is given their numbers in the program, and returns a place."""


class _Plan:
    """What is known of the operations of a program: what each waits for, and what waits for it."""

    def __init__(self, program: Program) -> None:
        self.equations: Sequence[Equation] = live_equations(program)
        makers = {output: place for place, equation in enumerate(self.equations) for output in equation.outputs}
        self.followers: list[list[int]] = [[] for _ in self.equations]
        self.waits_for = [0] * len(self.equations)
        self.is_large = [*map(_is_large, self.equations)]
        self.of_caller = [*map(_is_of_caller, self.equations)]
        self.uses: dict[Any, int] = {}
        last = None
        for place, equation in enumerate(self.equations):
            operands = {atom for atom in equation.inputs if not isinstance(atom, Literal)}
            before = {makers[atom] for atom in operands & makers.keys()}
            if self.of_caller[place]:
                before |= set() if last is None else {last}
                last = place
            for maker in before:
                self.followers[maker].append(place)
            self.waits_for[place] = len(before)
            for atom in operands:
                self.uses[atom] = self.uses.get(atom, 0) + 1
        for output in {atom for atom in program.outputs if not isinstance(atom, Literal)}:
            self.uses[output] = self.uses.get(output, 0) + 1  # which never ends


_plan_of = program_property(_Plan)


def _is_large(equation: Equation) -> bool:
    avals = [atom.aval for atom in (*equation.inputs, *equation.outputs)]
    return bool(equation.regions) or sum(aval.size for aval in avals) >= _LARGE or any(
        min(aval.shape[-2:]) >= _LARGE_MATRIX for aval in avals if len(aval.shape) >= 2)


def _is_of_caller(equation: Equation) -> bool:
    return (equation.primitive.calls_user_code or is_effectful(equation.primitive, equation.params)
            or any(map(calls_user_code, equation.programs)))


class _Run:
    """One run of a program: the values so far, the operations that are ready, and the first error."""

    def __init__(self, program: Program, inputs: Sequence[Any], order: Order | None) -> None:
        self.plan = _plan_of(program)
        self.step = step_of(program)
        self.values: dict[Any, Any] = dict(zip(program.inputs, inputs, strict=True))
        self.order = order
        self.changed = threading.Condition()
        self.waits_for, self.uses = [*self.plan.waits_for], dict(self.plan.uses)
        self.ready = [place for place, count in enumerate(self.waits_for) if count == 0]
        self.remaining, self.running = len(self.plan.equations), 0
        self.error: tuple[int, BaseException] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether no operation runs, and none will; read it with the lock held."""
        return self.running == 0 and (self.remaining == 0 or not self._runnable(True))

    def _runnable(self, is_caller: bool) -> list[int]:
        """Return what is ready: after an error only what comes before it, whose error would be the first."""
        limit = len(self.waits_for) if self.error is None else self.error[0]
        return [place for place in self.ready if place < limit and (is_caller or not self.plan.of_caller[place])]

    def work(self, is_caller: bool) -> None:
        """Run operations until none is left; other threads than the caller's begin with a large one."""
        continues = is_caller
        while True:
            with self.changed:
                while True:
                    if self.has_ended:
                        self.changed.notify_all()
                        return
                    runnable = self._runnable(is_caller)
                    if runnable and (continues or any(self.plan.is_large[place] for place in runnable)):
                        break
                    continues = is_caller
                    self.changed.wait()
                place = min(runnable) if self.order is None else runnable[self.order(runnable)]
                self.ready.remove(place)
                self.running += 1
                equation = self.plan.equations[place]
                operands = [value_of(atom) if type(atom) is Literal else self.values[atom] for atom in equation.inputs]
            try:
                outputs = self.step(equation, operands)
            except BaseException as error:  # noqa: BLE001  (raised again on the thread of the call)
                self._fail(place, error)
            else:
                del operands
                self._finish(place, equation, outputs)
            continues = True

    def _fail(self, place: int, error: BaseException) -> None:
        with self.changed:
            self.running -= 1
            if self.error is None or place < self.error[0]:
                self.error = place, error
            self.changed.notify_all()

    def _finish(self, place: int, equation: Equation, outputs: Sequence[Any]) -> None:
        with self.changed:
            self.running -= 1
            self.remaining -= 1
            self.values.update((output, value) for output, value in zip(equation.outputs, outputs, strict=True)
                               if output in self.uses)
            for atom in {atom for atom in equation.inputs if type(atom) is not Literal}:
                self.uses[atom] -= 1
                if self.uses[atom] == 0:
                    del self.values[atom]  # its last use
            wakes = self.remaining == 0
            for follower in self.plan.followers[place]:
                self.waits_for[follower] -= 1
                if self.waits_for[follower] == 0:
                    self.ready.append(follower)
                    wakes = wakes or self.plan.is_large[follower] or self.plan.of_caller[follower]
            if wakes or self.running == 0:
                self.changed.notify_all()


class DataflowExecutor:
    """An executor for a block: NumPy's programs run as dataflow on so many threads; those on jax's arrays by XLA.

    `order` chooses among the operations that are ready; by default the first of the program.
    """

    def __init__(self, threads: int, order: Order | None = None) -> None:
        self._order, self._count = order, threads
        self._pool = ThreadPoolExecutor(threads - 1, "dataflow") if threads > 1 else None

    def evaluate(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        """Return the outputs of one operation."""
        return executors.evaluate(primitive, args, params)

    def compute(self, program: Program, inputs: Sequence[Any]) -> list[Any]:
        """Return all values of a part of a program, in its order."""
        return executors.compute(program, inputs)

    def execute(self, program: Program, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of a program."""
        if any(map(is_jax, inputs)):
            return executors.execute(program, inputs)
        if any(type(value) in OWN for value in inputs):
            return as_arrays(program, self.execute(program, [*map(as_numpy, inputs)]))
        values = [*map(as_kernel_operand, inputs)]
        outputs = self._run(program, values)
        return weaken_outputs(program, copy_borrowed(outputs, range(len(outputs)), values))

    def _run(self, program: Program, inputs: Sequence[Any]) -> list[Any]:
        run = _Run(program, inputs, self._order)
        helpers = []
        if self._pool is not None and sum(run.plan.is_large) > 1:
            helpers = [self._pool.submit(contextvars.copy_context().run, _quietly, run) for _ in range(self._count - 1)]
        with np.errstate(all="ignore"):
            run.work(True)
        for helper in helpers:
            helper.cancel()  # those that have not begun; the others end by themselves
        if run.error is not None:
            raise run.error[1]
        return [value_of(atom) if type(atom) is Literal else run.values[atom] for atom in program.outputs]

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def _quietly(run: _Run) -> None:
    with np.errstate(all="ignore"):
        run.work(False)
