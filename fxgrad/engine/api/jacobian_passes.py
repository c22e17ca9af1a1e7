"""The two passes that make Jacobians: batches of tangents pushed forward, and of cotangents pulled back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad.engine.api.factored_jacobians import can_factor, push_identity
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.ops.structural import instantiate_zeros, zeros
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.transforms.batch import Batch, Batched, put_axis
from fxgrad.engine.transforms.forward import fill_zeros
from fxgrad.engine.transforms.linearize import Linearized, pull_back


class Passes:
    """The derivative of the first `main` outputs of a program, at its `residuals`."""

    def __init__(self, program: Program, half: Linearized, residuals: Sequence[Any], main: int) -> None:
        self._program, self._half, self._residuals, self._main = program, half, residuals, main

    def push(self, tangents: Sequence[Any], size: int | None) -> list[Any]:
        """Return the tangents of the outputs: with None of one row of tangents, else of `size` of them, stacked."""
        half, program = self._half, self._program
        if size is None:
            found = apply_equations(half.linear, [*self._residuals, *tangents])
            return [*map(instantiate_zeros,
                         fill_zeros(program.out_avals, half.nonzero_outputs, found)[:self._main])]
        results = Batch(size).run(half.linear, [*(Batched(value, None) for value in self._residuals),
                                                *(Batched(tangent, 0) for tangent in tangents)])
        found = fill_zeros(program.out_avals, half.nonzero_outputs, [put_axis(result, size, 0) for result in results])
        return [zeros(Aval((size, *value.aval.shape), value.aval.dtype)) if type(value) is Zero else value
                for value in found[:self._main]]

    def push_identity(self) -> list[list[Any]] | None:
        """Return the derivative of each output in each input, of shape output + input; None if it takes passes."""
        half, program = self._half, self._program
        if not can_factor(half.linear):
            return None
        sources = half.linear.in_avals[half.linear.captured:]
        rows = iter(push_identity(half.linear, self._residuals))
        return [next(rows) if reached else [zeros(Aval((*aval.shape, *source.shape), aval.dtype)) for source in sources]
                for aval, reached in zip(program.out_avals, half.nonzero_outputs, strict=True)][:self._main]

    def pull_identity(self) -> list[list[Any]] | None:
        """Return what `push_identity` does, by the transpose of the derivative."""
        half, outputs = self._half, self._program.out_avals[:self._main]
        marks = half.nonzero_outputs[:self._main]
        sources = half.linear.in_avals[half.linear.captured:]
        columns = None
        if any(marks):
            pulled, captured = pullback_program(self._program, half, self._main)
            if not can_factor(pulled):
                return None
            columns = zip(*push_identity(pulled, [*captured, *self._residuals], is_first=True), strict=True)
        return [[*next(columns)] if columns is not None and reached else [
            zeros(Aval((*aval.shape, *source.shape), source.dtype)) for source in sources]
            for aval, reached in zip(outputs, marks, strict=True)]

    def pull(self, cotangents: Sequence[Any], size: int | None) -> list[Any]:
        """Return the cotangents of the inputs, as `push` does for tangents."""
        if size is None:
            half = self._half
            arriving = [*cotangents, *map(Zero, self._program.out_avals[self._main:])]
            reaching = [value for value, reached in zip(arriving, half.nonzero_outputs, strict=True) if reached]
            return [instantiate_zeros(value) for value in pull_back(half, self._residuals, reaching)]
        return self._pull_rows(cotangents, size)

    def _pull_rows(self, cotangents: Sequence[Any], size: int) -> list[Any]:
        half, count = self._half, len(self._residuals)
        reached = [cotangent for cotangent, marked in zip(
            cotangents, half.nonzero_outputs[:self._main], strict=True) if marked]
        if not reached:
            return [zeros(Aval((size, *aval.shape), aval.dtype)) for aval in half.linear.in_avals[count:]]
        pulled, captured = pullback_program(self._program, half, self._main)
        results = Batch(size).run(pulled, [*(Batched(value, None) for value in (*captured, *self._residuals)),
                                           *(Batched(value, 0) for value in reached)])
        return [put_axis(result, size, 0) for result in results]


def pullback_program(program: Program, half: Linearized, main: int) -> tuple[Program, list[Any]]:
    """Return the program (captured, residuals, cotangents of the main outputs that are not zero) -> cotangents."""
    count = half.linear.captured
    one = [aval.strong() for aval, marked in zip(program.out_avals[:main], half.nonzero_outputs[:main], strict=True)
           if marked]
    extra = [aval for aval, marked in zip(program.out_avals[main:], half.nonzero_outputs[main:], strict=True) if marked]

    def backward_pass(*values: Any) -> list[Any]:
        arriving = [*values[count:], *map(Zero, extra)]
        return [instantiate_zeros(result) for result in pull_back(half, values[:count], arriving)]

    return trace_at(backward_pass, [*half.linear.in_avals[:count], *one], mode=WITH_LITERALS)

