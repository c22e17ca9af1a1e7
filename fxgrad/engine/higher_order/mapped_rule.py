"""The primitive behind `custom_vmap`: functions with a user-defined batch rule.

Derivatives of such a function have a batch rule too, the derivative of the function's batch rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fxgrad.engine.analyses.cost import total_cost
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Cost, Primitive, register
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.regions import Region, region_roles, whole_region
from fxgrad.engine.higher_order.call import check_arguments, emit_inline, run_with_numpy
from fxgrad.engine.higher_order.groups import (
    Marks,
    cotangents_of,
    linear_mask,
    merge_marked,
    nonzero_mask,
    nonzero_tangents,
    select_marked,
    select_unmarked,
)
from fxgrad.engine.higher_order.wiring import dual_outputs, dual_program, needs_tangent_tape, select_outputs
from fxgrad.engine.ops.structural import move_axis
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.transforms.batch import Batched, masking_lanes, put_axis
from fxgrad.engine.transforms.forward import has_tangent
from fxgrad.engine.transforms.transpose import transpose_program
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError


class BatchRule(Protocol):
    """The batch rule of a `custom_vmap` equation."""

    name: str

    def batch(self, size: int, values: Sequence[Any], batched: Sequence[bool]) -> tuple[list[Any], list[bool]]:
        """Return outputs for values with batch axes, if any, in front; and a mask of the outputs that have one."""
        ...


def _abstract(*avals: Aval, program: Program, rule: BatchRule) -> list[Aval]:
    check_arguments(rule.name, program.in_avals, avals)
    return program.out_avals


def _batch(size: int, values: list[Any], axes: list[int | None], *, program: Program, rule: BatchRule,
           ) -> tuple[list[Any], list[int | None]]:
    in_front = [value if axis is None else move_axis(value, axis, 0) for value, axis in zip(values, axes, strict=True)]
    with masking_lanes(None):  # the rule is user code, whose batches have other axes
        outputs, batched = rule.batch(size, in_front, [axis is not None for axis in axes])
    return outputs, [0 if each else None for each in batched]


def _jvp(primals: list[Any], tangents: list[Any], *, program: Program, rule: BatchRule) -> tuple[list[Any], list[Any]]:
    """Bind one equation for outputs and tangents, or two if a separate tape records the tangents."""
    wrt, wanted = nonzero_mask(tangents), tuple(map(has_tangent, program.out_avals))
    separate = needs_tangent_tape(primals, tangents)
    both = dual_program(program, wrt, wanted, separate)
    known = bind(custom_vmap_p, *primals, program=program, rule=rule) if separate else []
    dual = _DualRule(rule, wrt, wanted, len(both.captured), separate)
    body = select_outputs(both.program, [False] * len(wanted) + [True] * sum(wanted)) if separate else both.program
    results = bind(custom_vmap_p, *both.captured, *primals, *nonzero_tangents(tangents), program=body, rule=dual)
    return dual_outputs(program.out_avals, wanted, [*known, *results])


def _transpose(cotangents: list[Any], inputs: list[Any], *, program: Program, rule: BatchRule) -> list[Any]:
    linear, reached = linear_mask(inputs), nonzero_mask(cotangents)
    back = transpose_program(select_outputs(program, reached), linear)
    found = bind(custom_vmap_p, *back.captured, *select_unmarked(inputs, linear), *nonzero_tangents(cotangents),
                 program=back.program, rule=_TransposedRule(rule, linear, reached, program, len(back.captured)))
    return cotangents_of(inputs, linear, found)


class _DerivedRule:
    """The batch rule of a derivative: `rule` is recorded as a program, which is then differentiated."""

    def __init__(self, rule: BatchRule, captured: int) -> None:
        self._rule, self.name, self._captured = rule, rule.name, captured

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def _own(self, values: Sequence[Any], batched: Sequence[bool]) -> tuple[Sequence[Any], Sequence[bool]]:
        """Remove the values that rules inside of the function captured."""
        if any(batched[:self._captured]):
            raise ArgumentError(at_user_line(
                f"custom_vmap: a custom rule within {self.name} closes over a mapped array, which the batch rule "
                "does not receive. Make it an argument"))
        return values[self._captured:], batched[self._captured:]

    def _record_rule(self, size: int, avals: Sequence[Aval], batched: Sequence[bool]) -> tuple[Program, list[Any]]:
        """Return the rule as a program of batches, with batches as outputs; and its captured values."""
        def batches(*values: Any) -> list[Any]:
            outputs, marks = self._rule.batch(size, values, batched)
            return [put_axis(Batched(output, 0 if mark else None), size, 0)
                    for output, mark in zip(outputs, marks, strict=True)]
        return trace_at(batches, avals, mode=WITH_LITERALS)


class _DualRule(_DerivedRule):
    """The rule of (primals, tangents in `wrt`) -> (outputs, tangents in `wanted`), or of the latter alone."""

    def __init__(self, rule: BatchRule, wrt: Marks, wanted: Marks, captured: int, separate: bool) -> None:
        super().__init__(rule, captured)
        self._wrt, self._wanted, self._separate = wrt, wanted, separate

    def batch(self, size: int, values: Sequence[Any], batched: Sequence[bool]) -> tuple[list[Any], list[bool]]:
        """Batch: a primal and its tangent are batched if either is."""
        values, batched = self._own(values, batched)
        wrt, count = self._wrt, len(self._wrt)
        behind = iter(zip(values[count:], batched[count:], strict=True))
        primals, tangents, marks = [], [], []
        for value, mark, moves in zip(values[:count], batched[:count], wrt, strict=True):
            tangent, along = next(behind) if moves else (None, False)
            either = mark or along
            primals.append(_batch_in_front(value, mark, either, size))
            marks.append(either)
            if moves:
                tangents.append(_batch_in_front(tangent, along, either, size))
        program, captured = self._record_rule(size, [*map(aval_of, primals)], marks)
        dual = dual_program(program, (False,) * len(captured) + wrt, self._wanted, self._separate)
        results = dual([*captured, *primals, *tangents])
        outputs = results[len(self._wanted):] if self._separate else results
        return outputs, [True] * len(outputs)


class _TransposedRule(_DerivedRule):
    """The rule of (other inputs, cotangents that `reached` marks) -> cotangents of the inputs that `linear` marks."""

    def __init__(self, rule: BatchRule, linear: Marks, reached: Marks, program: Program, captured: int) -> None:
        super().__init__(rule, captured)
        self._linear, self._reached, self._in_avals = linear, reached, program.in_avals

    def batch(self, size: int, values: Sequence[Any], batched: Sequence[bool]) -> tuple[list[Any], list[bool]]:
        """Batch: all linear values are batched."""
        values, batched = self._own(values, batched)
        linear, count = self._linear, len(self._linear) - sum(self._linear)
        marks = merge_marked(linear, [True] * sum(linear), batched[:count])
        avals = merge_marked(linear, [aval.update(shape=(size, *aval.shape))
                                      for aval in select_marked(self._in_avals, linear)], map(aval_of, values[:count]))
        program, captured = self._record_rule(size, avals, marks)
        arriving = [_batch_in_front(value, mark, True, size)
                    for value, mark in zip(values[count:], batched[count:], strict=True)]
        back = transpose_program(select_outputs(program, self._reached), (*[False] * len(captured), *linear))
        return back([*captured, *values[:count], *arriving]), [True] * sum(linear)


def _batch_in_front(value: Any, is_batch: bool, wanted: bool, size: int) -> Any:
    """Return `value` repeated along a leading batch axis if it should be a batch and is none."""
    return put_axis(Batched(value, 0 if is_batch else None), size, 0) if wanted else value


def _cost(*avals: Aval, program: Program, rule: BatchRule) -> Cost:
    return total_cost(program)


def _regions(operands: Sequence[Any], *, program: Program, rule: BatchRule) -> tuple[Region, ...]:
    return (whole_region("call", program),)


custom_vmap_p = register(Primitive(
    name="custom_vmap", abstract=_abstract, numpy=run_with_numpy, xla=emit_inline, jvp=_jvp, transpose=_transpose,
    batch=_batch, cost=_cost, regions=_regions))
region_roles.enter(("call",), custom_vmap_p)
