"""`for`, a loop whose number of steps is known when it runs.

Reverse mode needs no bound on the number of steps: the tangent of a loop is a `for` loop over known and linear values
at once, and its transpose is a `sweep` (see `control.sweep`), which starts again from the first values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.control.call import check_arguments
from fxgrad.control.lanes import (
    batched_marks,
    but_kept,
    from_live_lanes,
    fronted,
    lane_axes,
    refuse_actions,
    where_live,
)
from fxgrad.control.sweep import sweep
from fxgrad.control.wiring import (
    Marks,
    added,
    apart,
    are_linear,
    chosen,
    closed_marks,
    dependent,
    dual_grouped,
    moving,
    others,
    present,
    primal_step,
    reached_by,
    with_outputs,
)
from fxgrad.core.avals import Aval, Literal
from fxgrad.core.effects import silenced
from fxgrad.core.interpreter import Derived, bind, derive, evaluate
from fxgrad.core.primitive import Cost, Primitive, register
from fxgrad.core.program import Program
from fxgrad.core.regions import Links, Region
from fxgrad.core.symbolic import Linear, Zero
from fxgrad.core.tape import aval_of
from fxgrad.errors import DTypeError, LinearityError, at_user_line
from fxgrad.executors import numpy as numpy_executor
from fxgrad.executors import xla as xla_executor
from fxgrad.ops.comparison import lt
from fxgrad.ops.pointwise import add
from fxgrad.ops.reduce import reduce_max
from fxgrad.ops.space import instantiate, zeros
from fxgrad.transforms.batch import Batch, Batched, batched_program, put_axis
from fxgrad.transforms.cost import cost
from fxgrad.transforms.forward import spread
from fxgrad.transforms.transpose import backward

COUNTER = Aval((), dtypes.int32)
TWICE = "the derivative of a loop, whose backward pass goes through the steps again,"


def tangents_of_carry(program: Program, consts: Sequence[Any], carry: Sequence[Any],
                       ) -> tuple[list[Any], Marks]:
    """Tangents of the carry, with zeros for values that get one at a later step; and which have one."""
    const_marks = moving(consts)
    carried = closed_marks(lambda marks: reached_by(program, (*const_marks, *marks)), moving(carry))
    filled = [instantiate(tangent) if marked else tangent for tangent, marked in zip(carry, carried, strict=True)]
    return filled, carried


def _for_abstract(count: Aval, *avals: Aval, program: Program, num_consts: int) -> list[Aval]:
    if count.shape != () or not dtypes.is_integer(count.dtype):
        raise DTypeError(f"for: the number of steps must be an integer scalar, got {count}")
    check_arguments("for", program.in_avals, avals)
    check_arguments("for", program.in_avals[num_consts:], program.out_avals)
    return program.out_avals


def _for_numpy(count: Any, *values: Any, program: Program, num_consts: int) -> list[Any]:
    consts, carry = values[:num_consts], list(values[num_consts:])
    for _ in range(int(count)):
        carry = numpy_executor.call(program, [*consts, *carry])
    # Without a step the carry is the input itself, which nobody may be handed.
    return carry if count > 0 else [np.copy(value)[()] for value in carry]


def _for_emit(lax: Any, count: Any, *values: Any, program: Program, num_consts: int) -> list[Any]:
    consts = values[:num_consts]
    outputs: list[Any] = lax.fori_loop(
        np.zeros((), count.dtype), count, lambda _, carry: xla_executor.emit(program, [*consts, *carry]),
        list(values[num_consts:]))
    return outputs


def _for_jvp(primals: list[Any], tangents: list[Any], *, program: Program, num_consts: int,
             ) -> tuple[list[Any], list[Any]]:
    count, consts, carry = primals[0], primals[1:1 + num_consts], primals[1 + num_consts:]
    const_tangents = tangents[1:1 + num_consts]
    carry_tangents, carried = tangents_of_carry(program, const_tangents, tangents[1 + num_consts:])
    separate = apart(primals, tangents)
    wrt = (*moving(const_tangents), *carried)
    step = dual_grouped(program, (num_consts, len(carry)), wrt, carried, separate)
    fixed = [*step.captured, *consts, *present(const_tangents)]
    program_of_step = silenced(step.program, TWICE) if separate else step.program
    results = bind(for_p, count, *fixed, *carry, *present(carry_tangents), program=program_of_step,
                   num_consts=len(fixed)) if any(carried) else []
    if not any(carried) or separate:
        primal, captured = primal_step(step, program, wrt)
        outputs = bind(for_p, count, *captured, *consts, *carry, program=primal, num_consts=len(captured) + num_consts)
    else:
        outputs = results[:len(carry)]
    return outputs, spread(program.out_avals, carried, results[len(carry):])


def _for_transpose(cotangents: list[Any], inputs: list[Any], *, program: Program, num_consts: int) -> list[Any]:
    count, *values = inputs
    if type(count) is Linear:
        raise LinearityError(at_user_line("cannot transpose a loop in its number of steps"))
    return [None, *transpose_steps(count, cotangents, values, program, num_consts)]


def transpose_steps(count: Any, cotangents: Sequence[Any], values: Sequence[Any], program: Program, num_consts: int,
                    ) -> list[Any]:
    """The cotangents of the linear ones among `values` (constants, carry) of a loop of `count` steps."""
    const_marks = are_linear(values[:num_consts])
    consts, carry = list(values[:num_consts]), list(values[num_consts:])
    carried = closed_marks(lambda marks: dependent(program, (*const_marks, *marks)), are_linear(carry))
    state = others(carry, carried)
    known = with_outputs(program, [not marked for marked in carried])
    step, back = _steps_for_sweep(program, known, num_consts, const_marks, carried)
    known_consts = others(consts, const_marks)
    sums = [zeros(value.aval.strong()) for value in chosen(consts, const_marks)]
    arriving = [instantiate(cotangent) for cotangent in chosen(cotangents, carried)]
    fixed = [*back.captured, *known_consts]
    if state:
        results = sweep(count, step, known_consts, back.program, fixed, state, [*sums, *arriving])
    else:
        results = bind(for_p, count, *fixed, *sums, *arriving, program=back.program, num_consts=len(fixed))
    remaining = iter(results)
    found: list[Any] = [next(remaining) if marked else None for marked in const_marks]
    for value, marked in zip(carry, carried, strict=True):
        cotangent = next(remaining) if marked else None
        found.append(cotangent if type(value) is Linear else None)
    return found


def _steps_for_sweep(program: Program, known: Program, num_consts: int, const_marks: Marks, carried: Marks,
                     ) -> tuple[Program, Derived]:
    """The step of the known carry, and the step back.

    (known constants, state) -> state, and (known constants, state, sums for linear constants, cotangents) -> (sums,
    cotangents).
    """
    avals = program.in_avals
    linear = (*const_marks, *carried)
    const_avals, carry_avals = avals[:num_consts], avals[num_consts:]

    def forwards(*values: Any) -> tuple[list[Any], None]:
        given = iter(values)
        # A linear input is used by nothing here.
        return evaluate(known, [zeros(aval) if marked else next(given)
                                for aval, marked in zip(avals, linear, strict=True)]), None

    def backwards(*values: Any) -> tuple[list[Any], None]:
        given = iter(values)
        inputs = [Linear(aval) if marked else next(given) for aval, marked in zip(avals, linear, strict=True)]
        sums = [next(given) for _ in range(sum(const_marks))]
        arriving = iter(list(given))
        cotangents = [next(arriving) if marked else Zero(aval)
                      for aval, marked in zip(program.out_avals, carried, strict=True)]
        found = backward(program, inputs, cotangents)
        leaving = map(instantiate, chosen(found[num_consts:], carried))
        return [*added(sums, chosen(found[:num_consts], const_marks)), *leaving], None

    key = (num_consts, const_marks, carried)
    step = derive(program, ("known step", *key), forwards, others(avals, linear)).program
    back = derive(program, ("step back", *key), backwards, [
        *others(avals, linear), *(aval.strong() for aval in chosen(const_avals, const_marks)),
        *chosen(carry_avals, carried)])
    return step, back


def _for_batch(size: int, values: list[Any], axes: list[int | None], *, program: Program, num_consts: int,
               ) -> tuple[list[Any], list[int | None]]:
    count, consts, carry = values[0], values[1:1 + num_consts], values[1 + num_consts:]
    const_axes, carry_axes = axes[1:1 + num_consts], axes[1 + num_consts:]
    if axes[0] is not None:
        return _for_batch_of_counts(size, count, consts, carry, const_axes, carry_axes, program)
    carried = batched_marks(program, size, const_axes, [axis is not None for axis in carry_axes])
    out_axes = lane_axes(carried)
    derived = batched_program(program, size, (*const_axes, *out_axes), out_axes)
    fixed = [*derived.captured, *consts]
    begin = fronted(size, carry, carry_axes, carried)
    return bind(for_p, count, *fixed, *begin, program=derived.program, num_consts=len(fixed)), list(out_axes)


def _for_batch_of_counts(size: int, count: Any, consts: Sequence[Any], carry: Sequence[Any],
                         const_axes: Sequence[int | None], carry_axes: Sequence[int | None], program: Program,
                         ) -> tuple[list[Any], list[int | None]]:
    """As many steps as the longest lane takes; a lane that has taken its own keeps its carry."""
    refuse_actions("fori_loop", (program,))
    count_aval = aval_of(count)
    counter = Aval((), count_aval.dtype)
    everywhere = [True] * len(carry)

    def build(counts: Any, *rest: Any) -> tuple[list[Any], None]:
        given, number, current = rest[:len(consts)], rest[len(consts)], rest[len(consts) + 1:]
        mask = lt(number, counts)
        results = live_step(program, size, mask, [*given, *current], [*const_axes, *[0] * len(current)])
        return [add(number, Literal(1, counter)),
                *(where_live(mask, new, old) for new, old in zip(results, current, strict=True))], None

    begin = fronted(size, carry, carry_axes, everywhere)
    derived = derive(program, ("counted batch", size, tuple(const_axes), counter),
                     build, [count_aval, *map(aval_of, consts), counter, *map(aval_of, begin)])
    fixed = [*derived.captured, count, *consts]
    longest = reduce_max(count, (0,)) if size else zeros(counter)
    results = bind(for_p, longest, *fixed, zeros(counter), *begin, program=derived.program, num_consts=len(fixed))
    return but_kept(program, consts, carry, carry_axes, results[1:])


def live_step(program: Program, size: int, mask: Any, values: Sequence[Any], axes: Sequence[int | None]) -> list[Any]:
    """One step of all lanes; those that `mask` does not mark take it with the values of a live one."""
    given, in_axes = from_live_lanes(mask, size, values, axes)
    outputs = Batch(size).run(program, [Batched(value, axis) for value, axis in zip(given, in_axes, strict=True)])
    return [put_axis(output, size, 0) for output in outputs]


def _for_cost(count: Aval, *avals: Aval, program: Program, num_consts: int) -> Cost:
    return cost(program)  # of one step: how many there will be is not known


def _for_regions(operands: Sequence[Any], *, program: Program, num_consts: int) -> tuple[Region, ...]:
    steps = operands[0].value if operands and isinstance(operands[0], Literal) else None
    carry = len(program.outputs)
    return (Region("body", ("program",), program,
                   (Links("same", 1, num_consts), Links("carry", 1 + num_consts, carry)),
                   (Links("carry", 0, carry),), None if steps is None else max(int(steps), 0)),)


for_p = register(Primitive(name="for", abstract=_for_abstract, numpy=_for_numpy, xla=_for_emit, jvp=_for_jvp,
                           transpose=_for_transpose, batch=_for_batch, cost=_for_cost, regions=_for_regions))
"""(number of steps, constants, carry) -> carry. Its cost is that of one step."""
