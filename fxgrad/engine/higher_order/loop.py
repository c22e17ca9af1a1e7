"""`for`, a loop with a number of steps that is known when it runs.

Reverse mode needs no bound on the number of steps: the tangent of a loop is a `for` loop over known and linear values
at once, and its transpose is a `bind_sweep` (see `higher_order.sweep`), which starts again from the first values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.cost import total_cost
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Cost, Primitive, register
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.regions import Region, close_marks, dependent_outputs, region_roles
from fxgrad.engine.core.symbolic import Linear, Zero
from fxgrad.engine.derivation.derive import Derived
from fxgrad.engine.derivation.effects import without_effects
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.derivation.simplify import partial_use
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.executors import xla as xla_executor
from fxgrad.engine.higher_order.call import check_arguments
from fxgrad.engine.higher_order.divergent import make_divergent
from fxgrad.engine.higher_order.groups import (
    Groups,
    Marks,
    cotangents_of,
    derive_grouped,
    groups_of,
    linear_mask,
    nonzero_mask,
    nonzero_tangents,
    select_marked,
    select_unmarked,
    step_groups,
    with_markers,
    with_zeros,
)
from fxgrad.engine.higher_order.masking import (
    batch_by_flag,
    batch_first_if_marked,
    batched_marks,
    fill_dead_lanes,
    keep_unchanged_carries,
    lane_axes,
    masking_dead_lanes,
    refuse_effects,
    select_live,
)
from fxgrad.engine.higher_order.narrowing import (
    keep_wanted_outputs,
    remaining_operands,
    removable_inputs,
    remove_inputs,
    wanted_outputs,
    with_fewer_outputs,
)
from fxgrad.engine.higher_order.sweep import bind_sweep
from fxgrad.engine.higher_order.wiring import (
    add_tangents,
    dual_grouped,
    dual_outputs,
    join_carry_vma,
    needs_tangent_tape,
    nonzero_outputs_of,
    primal_step,
    select_outputs,
)
from fxgrad.engine.ops.comparison import lt
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.reductions import reduce_max
from fxgrad.engine.ops.structural import instantiate_zeros, zeros
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.transforms.batch import Batch, Batched, batched_program, put_axis
from fxgrad.engine.transforms.forward import fill_zeros
from fxgrad.engine.transforms.transpose import backward_pass
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import CheckError, DTypeError, LinearityError

COUNTER = Aval((), dtypes.int32)
TWICE = "the derivative of a loop, whose backward pass goes through the steps again,"


def tangents_of_carry(program: Program, consts: Sequence[Any], carry: Sequence[Any],
                       ) -> tuple[list[Any], Marks]:
    """Return tangents of the carry, zeros for those that become nonzero at a later step, and a mask of nonzero ones."""
    const_marks = nonzero_mask(consts)
    carried = close_marks(lambda marks: nonzero_outputs_of(program, (*const_marks, *marks)), nonzero_mask(carry))
    filled = [instantiate_zeros(tangent) if marked else tangent for tangent, marked in zip(carry, carried, strict=True)]
    return filled, carried


class ForInputs(NamedTuple):
    """The groups of the inputs; `steps` is their number, one value."""

    steps: Sequence[Any]
    consts: Sequence[Any]
    carry: Sequence[Any]


def _for_groups(program: Program, num_consts: int) -> Groups[ForInputs]:
    return groups_of(ForInputs, 1, num_consts, len(program.outputs))


def _for_abstract(count: Aval, *avals: Aval, program: Program, num_consts: int) -> list[Aval]:
    if count.shape != () or not dtypes.is_integer(count.dtype):
        raise DTypeError(f"for: the number of steps must be an integer scalar, got {count}")
    check_arguments("for", program.in_avals, avals)
    check_arguments("for", program.in_avals[num_consts:], program.out_avals)
    return join_carry_vma(program.out_avals, avals[num_consts:], count)


def bind_for(count: Any, program: Program, consts: Sequence[Any], carry: Sequence[Any]) -> list[Any]:
    """Apply `for_p` to lists of constants and carried values."""
    (program,), operands = make_divergent(aval_of(count).vma, [program], [*consts, *carry])
    return bind(for_p, count, *operands, program=program, num_consts=len(consts))


def _for_numpy(*values: Any, program: Program, num_consts: int) -> list[Any]:
    (count,), consts, carry = _for_groups(program, num_consts).split(values)
    for turn in range(int(count)):
        try:
            carry = numpy_executor.call(program, [*consts, *carry])
        except CheckError as error:
            error.add_context(f"in turn {turn} of {int(count)} of a for loop")
            raise
    # Without a step the carry is the input itself, which must not be aliased.
    return [*carry] if count > 0 else [np.copy(value)[()] for value in carry]


def _for_emit(lax: Any, *values: Any, program: Program, num_consts: int) -> list[Any]:
    (count,), consts, carry = _for_groups(program, num_consts).split(values)
    outputs: list[Any] = lax.fori_loop(
        np.zeros((), count.dtype), count, lambda _, carry: xla_executor.emit(program, [*consts, *carry]), [*carry])
    return outputs


def _for_jvp(primals: list[Any], tangents: list[Any], *, program: Program, num_consts: int,
             ) -> tuple[list[Any], list[Any]]:
    (count,), consts, carry = _for_groups(program, num_consts).split(primals)
    _, const_tangents, carry_tangents = _for_groups(program, num_consts).split(tangents)
    carry_tangents, carried = tangents_of_carry(program, const_tangents, carry_tangents)
    separate = needs_tangent_tape(primals, tangents)
    wrt = (*nonzero_mask(const_tangents), *carried)
    step = dual_grouped(program, *step_groups(program), wrt, carried, separate)
    fixed = [*step.captured, *consts, *nonzero_tangents(const_tangents)]
    begin = [*carry, *nonzero_tangents(carry_tangents)]
    outputs: list[Any] = []
    moved: list[Any] = [*map(Zero, program.out_avals)]
    if any(carried):
        both = without_effects(step.program, TWICE) if separate else step.program
        outputs, moved = dual_outputs(program.out_avals, carried, bind_for(count, both, fixed, begin))
    if separate or not any(carried):
        primal, captured = primal_step(step, program, wrt)
        outputs = bind_for(count, primal, [*captured, *consts], carry)
    return outputs, moved


def _for_transpose(cotangents: list[Any], inputs: list[Any], *, program: Program, num_consts: int) -> list[Any]:
    (count,), consts, carry = _for_groups(program, num_consts).split(inputs)
    if type(count) is Linear:
        raise LinearityError(at_user_line("cannot transpose a loop in its number of steps"))
    return [None, *transpose_steps(count, cotangents, consts, carry, program)]


def transpose_steps(count: Any, cotangents: Sequence[Any], consts: Sequence[Any], carry: Sequence[Any],
                    program: Program) -> list[Any]:
    """Return the cotangents of the linear constants and carries of a loop of `count` steps; None for the others."""
    const_marks = linear_mask(consts)
    carried = close_marks(lambda marks: dependent_outputs(program, (*const_marks, *marks)), linear_mask(carry))
    known_consts, state = select_unmarked(consts, const_marks), select_unmarked(carry, carried)
    step, back = _sweep_steps(program, const_marks, carried)
    sums = [zeros(value.aval.strong()) for value in select_marked(consts, const_marks)]
    arriving = [instantiate_zeros(cotangent) for cotangent in select_marked(cotangents, carried)]
    fixed = [*back.captured, *known_consts]
    if state:
        found = bind_sweep(count, step, known_consts, back.program, fixed, state, [*sums, *arriving])
    else:
        found = bind_for(count, back.program, fixed, [*sums, *arriving])
    return cotangents_of([*consts, *carry], (*const_marks, *carried), found)


def _sweep_steps(program: Program, const_marks: Marks, carried: Marks) -> tuple[Program, Derived]:
    """Return the step of the known carry, and the backward step.

    (known constants, state) -> state, and (known constants, state, sums for linear constants, cotangents) -> (sums,
    cotangents).
    """
    avals, linear = program.in_avals, (*const_marks, *carried)
    takes, _ = step_groups(program)
    known, moved = select_unmarked(avals, linear), takes.each(select_marked, avals, linear)
    kept = select_outputs(program, [not marked for marked in carried])

    def forwards(known: list[Any]) -> list[Any]:
        return apply_equations(kept, with_zeros(avals, linear, known))

    def backwards(known: list[Any], sums: list[Any], arriving: list[Any]) -> list[Any]:
        cotangents = fill_zeros(program.out_avals, carried, arriving)
        found = takes.each(select_marked, backward_pass(program, with_markers(avals, linear, known), cotangents),
                           linear)
        return [*add_tangents(sums, found.consts), *map(instantiate_zeros, found.carry)]

    key = (len(const_marks), const_marks, carried)
    step = derive_grouped(program, ("known step", *key), forwards, known=known).program
    back = derive_grouped(program, ("step back", *key), backwards, known=known,
                          sums=[aval.strong() for aval in moved.consts], arriving=moved.carry)
    return step, back


def _for_batch(size: int, values: list[Any], axes: list[int | None], *, program: Program, num_consts: int,
               ) -> tuple[list[Any], list[int | None]]:
    (count,), consts, carry = _for_groups(program, num_consts).split(values)
    (count_axis,), const_axes, carry_axes = _for_groups(program, num_consts).split(axes)
    if count_axis is not None:
        flagged = batch_by_flag(for_p, size, values, axes, program=program, num_consts=num_consts)
        return flagged or _for_batch_of_counts(size, count, consts, carry, const_axes, carry_axes, program)
    carried = batched_marks(program, size, const_axes, [axis is not None for axis in carry_axes])
    out_axes = lane_axes(carried)
    derived = batched_program(program, size, (*const_axes, *out_axes), out_axes)
    begin = batch_first_if_marked(size, carry, carry_axes, carried)
    return bind_for(count, derived.program, [*derived.captured, *consts], begin), list(out_axes)


def _for_batch_of_counts(size: int, count: Any, consts: Sequence[Any], carry: Sequence[Any],
                         const_axes: Sequence[int | None], carry_axes: Sequence[int | None], program: Program,
                         ) -> tuple[list[Any], list[int | None]]:
    """Run the steps of the longest lane; a lane that has completed its own keeps its carry."""
    refuse_effects("fori_loop", (program,))
    count_aval = aval_of(count)
    counter = count_aval.strong().update(shape=())

    def build(counts: list[Any], given: list[Any], numbers: list[Any], current: list[Any]) -> list[Any]:
        number, = numbers
        mask = lt(number, *counts)
        results = step_live_lanes(program, size, mask, [*given, *current], [*const_axes, *[0] * len(current)])
        return [add(number, Literal(1, counter)),
                *(select_live(mask, new, old) for new, old in zip(results, current, strict=True))]

    begin = batch_first_if_marked(size, carry, carry_axes, [True] * len(carry))
    derived = derive_grouped(program, ("counted batch", size, tuple(const_axes), counter), build, counts=[count_aval],
                             given=[*map(aval_of, consts)], numbers=[counter], current=[*map(aval_of, begin)])
    longest = reduce_max(count, (0,)) if size else zeros(counter)
    _, *results = bind_for(longest, derived.program, [*derived.captured, count, *consts], [zeros(counter), *begin])
    return keep_unchanged_carries(program, consts, carry, carry_axes, results)


def step_live_lanes(program: Program, size: int, mask: Any, values: Sequence[Any],
                    axes: Sequence[int | None]) -> list[Any]:
    """Run one step of all lanes; masked lanes use the values of a live one."""
    given, in_axes = fill_dead_lanes(mask, size, values, axes)
    with masking_dead_lanes(mask, program):
        outputs = Batch(size).run(program, [Batched(value, axis) for value, axis in zip(given, in_axes, strict=True)])
    return [put_axis(output, size, 0) for output in outputs]


def _for_cost(count: Aval, *avals: Aval, program: Program, num_consts: int) -> Cost:
    return total_cost(program)  # of one step: their number is unknown


def _for_regions(operands: Sequence[Any], *, program: Program, num_consts: int) -> tuple[Region, ...]:
    steps = operands[0].value if operands and isinstance(operands[0], Literal) else None
    _, makes = step_groups(program)
    return (Region("body", ("program",), program, _for_groups(program, num_consts).links(consts="same", carry="carry"),
                   makes.links(carry="carry"), None if steps is None else max(int(steps), 0)),)


for_p = register(Primitive(name="for", abstract=_for_abstract, numpy=_for_numpy, xla=_for_emit, jvp=_for_jvp,
                           transpose=_for_transpose, batch=_for_batch, cost=_for_cost, regions=_for_regions))
"""(number of steps, constants, carry) -> carry. A number below 0 stands for no step. Its cost is that of one step."""
region_roles.enter(("body",), for_p)


@rewrites.register(for_p)
def _for_rewrite(_: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Remove constants that the body does not use or gets twice, and inline numbers into it."""
    program = params["program"]
    (count,), consts, carry = _for_groups(program, params["num_consts"]).split(inputs)
    fixed = removable_inputs(program, consts)
    return bind_for(count, remove_inputs(program, fixed), remaining_operands(consts, fixed), carry) if fixed else None


@partial_use.register(for_p)
def _for_in_part(equation: Equation, used: Sequence[bool]) -> Equation:
    program, num_consts = equation.params["program"], equation.params["num_consts"]
    wanted = wanted_outputs(program, used, num_consts, len(used))
    count, consts, carry = _for_groups(program, num_consts).split(equation.inputs)
    return with_fewer_outputs(equation, wanted, [*count, *consts, *select_marked(carry, wanted)], {
        **equation.params, "program": keep_wanted_outputs(program, wanted, num_consts, len(used))})
