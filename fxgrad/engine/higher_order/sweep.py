"""`bind_sweep`: step forward through a number of states known at run time, then visit them in reverse order.

It is the transpose of a loop. NumPy keeps every state. XLA needs the memory in advance: it keeps a table of a fixed
number of states and recomputes the others from the nearest earlier one. With `s` free slots, binomial(s + r, r) steps
are walked back with every state computed at most r more times (Griewank and Walther, "Algorithm 799: revolve", 2000).
The table's size does not depend on the number of steps.

Looking for the nearest state takes longer than a step of small states. So the table holds the first state of each
segment, and the states within a segment are computed once more, into a buffer, and visited from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.cost import total_cost
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Cost, Primitive, register, registry
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.regions import Links, Region, close_marks, region_roles
from fxgrad.engine.core.sizes import size_hint
from fxgrad.engine.core.symbolic import Linear, Zero
from fxgrad.engine.derivation.derive import Derived, derive
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.executors import xla as xla_executor
from fxgrad.engine.higher_order.call import check_arguments
from fxgrad.engine.higher_order.divergent import make_divergent
from fxgrad.engine.higher_order.groups import (
    Carry,
    Groups,
    StepInputs,
    cotangents_of,
    derive_grouped,
    groups_of,
    join_groups,
    linear_mask,
    nonzero_mask,
    nonzero_tangents,
    select_marked,
    split_by_sizes,
    step_groups,
)
from fxgrad.engine.higher_order.masking import batch_first_if_marked, batched_marks, lane_axes
from fxgrad.engine.higher_order.narrowing import remaining_operands, removable_inputs, remove_inputs
from fxgrad.engine.higher_order.wiring import (
    dual_grouped,
    dual_outputs,
    join_carry_vma,
    needs_tangent_tape,
    nonzero_outputs_of,
)
from fxgrad.engine.ops.arithmetic import div, mul, sub
from fxgrad.engine.ops.arithmetic import max as maximum
from fxgrad.engine.ops.arithmetic import min as minimum
from fxgrad.engine.ops.comparison import and_, eq, ge, gt, lt
from fxgrad.engine.ops.dynamic import dynamic_slice, dynamic_update_slice
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.reductions import reduce_max
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import convert, instantiate_zeros, reduce_sum, reshape, zeros
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.transforms.batch import Batch, Batched, batched_program, put_axis
from fxgrad.engine.transforms.forward import push_forward
from fxgrad.engine.transforms.transpose import backward_pass
from fxgrad.errors import CheckError, DTypeError


def bind_sweep(count: Any, step: Program, step_consts: Sequence[Any], back: Program, back_consts: Sequence[Any],
               state: Sequence[Any], carry: Sequence[Any]) -> list[Any]:
    """Return the carry after `back` visited the `count` states before each `step`, the last one first.

    There is none where `count` is negative. `step` takes (constants, state) to the next state, `back` takes
    (constants, state, carry) to the next carry.
    """
    return bind(sweep_p, count, *step_consts, *back_consts, *state, *carry, step=step, back=back,
                num_step_consts=len(step_consts), num_back_consts=len(back_consts))


class SweepInputs(NamedTuple):
    """The groups of the inputs; `steps` is their number, one value."""

    steps: Sequence[Any]
    step_consts: Sequence[Any]
    back_consts: Sequence[Any]
    state: Sequence[Any]
    carry: Sequence[Any]


class BackInputs(NamedTuple):
    """The groups of the inputs of `back`."""

    consts: Sequence[Any]
    state: Sequence[Any]
    carry: Sequence[Any]


def sweep_groups(step: Program, back: Program, num_step_consts: int, num_back_consts: int) -> Groups[SweepInputs]:
    """Return the groups of the operands of a sweep with these parameters."""
    return groups_of(SweepInputs, 1, num_step_consts, num_back_consts, len(step.outputs), len(back.outputs))


def _back_groups(step: Program, back: Program) -> tuple[Groups[BackInputs], Groups[Carry]]:
    """Return the groups of the inputs and the outputs of `back`."""
    state, carry = len(step.outputs), len(back.outputs)
    return groups_of(BackInputs, len(back.inputs) - state - carry, state, carry), groups_of(Carry, carry)


def _abstract(*avals: Aval, step: Program, back: Program, **counts: int) -> list[Aval]:
    (count,), step_consts, back_consts, state, carry = sweep_groups(step, back, **counts).split(avals)
    if count.shape != () or not dtypes.is_integer(count.dtype):
        raise DTypeError(f"sweep: the number of steps must be an integer scalar, got {count}")
    check_arguments("sweep", step.in_avals, [*step_consts, *state])
    check_arguments("sweep", step.out_avals, state)
    check_arguments("sweep", back.in_avals, [*back_consts, *state, *carry])
    check_arguments("sweep", back.out_avals, carry)
    return join_carry_vma(back.out_avals, carry, count)


def _run_numpy(*values: Any, step: Program, back: Program, **counts: int) -> list[Any]:
    (count,), step_consts, back_consts, state, carry = sweep_groups(step, back, **counts).split(values)
    states: list[Sequence[Any]] = []
    turn = 0
    try:
        for turn in range(int(count)):  # noqa: B007  (errors name it)
            states.append(state)
            if len(states) < count:
                state = numpy_executor.call(step, [*step_consts, *state])
        for turn in reversed(range(len(states))):  # noqa: B007
            carry = numpy_executor.call(back, [*back_consts, *states.pop(), *carry])
    except CheckError as error:
        error.add_context(f"in turn {turn} of {int(count)} of a loop")
        raise
    return [*carry] if count > 0 else [np.copy(value)[()] for value in carry]


# --- with a table of states -------------------------------------------------------------------------------


TABLE_BYTES = 1 << 26
MOST_STATES, FEWEST_STATES = 128, 16
REPETITIONS = 40
SEGMENT_BYTES = 1 << 18
LONGEST_SEGMENT, SHORTEST_SEGMENT = 4096, 16
INDEX = Aval((), dtypes.int32)


def _bytes_of(state: Sequence[Aval]) -> int:
    return max(sum(size_hint(aval.nbytes) for aval in state), 1)


def table_size(state: Sequence[Aval]) -> int:
    """Return the number of states in the table: as many as fit 64 MiB, within bounds."""
    return min(MOST_STATES, max(FEWEST_STATES, TABLE_BYTES // _bytes_of(state)))


def segment_length(state: Sequence[Aval]) -> int:
    """Return the number of steps in a segment: as many as have their states in 256 KiB; 1 if these are few."""
    length = min(LONGEST_SEGMENT, SEGMENT_BYTES // _bytes_of(state))
    return length if length >= SHORTEST_SEGMENT else 1


def steps_within(size: int) -> np.ndarray[Any, Any]:
    """Return a table: `table[s, r]` is the number of steps that `s` slots walk back with `r` repetitions of each."""
    return np.array([[min(math.comb(s + r, s), 2**31 - 1) for r in range(REPETITIONS)] for s in range(size)],
                    np.int32)


def _number(value: int) -> Literal:
    return Literal(value, INDEX)


def _bind_loop(name: str, *values: Any, **params: Any) -> list[Any]:
    """Bind a loop by the name of its primitive: loops are transposed to sweeps, and sweeps consist of loops."""
    return bind(registry[name], *values, **params)


def sweep_as_loops(step: Program, back: Program) -> Derived:
    """Return a program equal to the sweep, made of loops: (count, constants, state, carry) -> carry."""
    size = table_size(step.out_avals)
    ahead, behind = _input_types(step, back)
    visit = _visit(step, back, _advance(step, ahead.consts, size), size)

    def build(count: list[Any], step_consts: list[Any], back_consts: list[Any], state: list[Any], carry: list[Any],
              ) -> list[Any]:
        fixed = [*visit.captured, *step_consts, *back_consts]
        slots = [_store_entry(zeros(slot), value, _number(0))
                 for slot, value in zip(_slot_avals(step.out_avals, size), state, strict=True)]
        last = sub(maximum(*count, _number(0)), _number(1))
        begin = [last, zeros(INDEX), zeros(_positions_aval(size)), *slots, *carry]
        results = _bind_loop("while", *fixed, *begin, condition=_is_not_negative(visit.program, len(fixed)),
                             body=visit.program, num_condition_consts=0, num_body_consts=len(fixed))
        return results[len(results) - len(carry):]

    return derive_grouped(back, ("with table", step), build, count=[INDEX],
                          step_consts=ahead.consts, back_consts=behind.consts, state=step.out_avals,
                          carry=back.out_avals)


def sweep_in_segments(step: Program, back: Program, length: int) -> Derived:
    """Return a program equal to the sweep, which visits `length` steps at a time; types are as in `sweep_as_loops`."""
    ahead, behind = _input_types(step, back)
    segment, visit = _step_segment(step, ahead.consts, length), _visit_segment(step, back, length)
    loops = sweep_as_loops(segment.program, visit.program)

    def build(count: list[Any], step_consts: list[Any], back_consts: list[Any], state: list[Any], carry: list[Any],
              ) -> list[Any]:
        steps = maximum(*count, _number(0))
        segments = div(add(steps, _number(length - 1)), _number(length))
        return apply_equations(loops.program, [
            *loops.captured, segments, *segment.captured, *step_consts, *visit.captured, *step_consts, *back_consts,
            *state, steps, *carry])[1:]

    return derive_grouped(back, ("in segments", step, length), build, count=[INDEX], step_consts=ahead.consts,
                          back_consts=behind.consts, state=step.out_avals, carry=back.out_avals)


def _step_segment(step: Program, const_avals: Sequence[Aval], length: int) -> Derived:
    """Return (constants, state) -> state after `length` steps."""
    def build(consts: list[Any], state: list[Any]) -> list[Any]:
        return _bind_loop("for", _number(length), *consts, *state, program=step, num_consts=len(consts))

    return derive_grouped(step, ("segment", length), build, consts=const_avals, state=step.out_avals)


def _visit_segment(step: Program, back: Program, length: int) -> Derived:
    """Return the visit of the last segment: (constants, first state, steps left, carry) -> the last two, before it."""
    ahead, behind = _input_types(step, back)
    slot_avals = _slot_avals(step.out_avals, length - 1)

    def fill(consts: list[Any], place: list[Any], slots: list[Any], state: list[Any]) -> list[Any]:
        stored = [_store_entry(slot, value, *place) for slot, value in zip(slots, state, strict=True)]
        return [add(*place, _number(1)), *stored, *apply_equations(step, [*consts, *state])]

    def drain(consts: list[Any], slots: list[Any], place: list[Any], carry: list[Any]) -> list[Any]:
        place = [sub(*place, _number(1))]
        state = [_table_entry(slot, *place) for slot in slots]
        return [*place, *apply_equations(back, [*consts, *state, *carry])]

    filling = derive_grouped(step, ("fill", length), fill, consts=ahead.consts, place=[INDEX], slots=slot_avals,
                             state=step.out_avals)
    draining = derive_grouped(back, ("drain", length), drain, consts=behind.consts, slots=slot_avals, place=[INDEX],
                              carry=back.out_avals)

    def build(step_consts: list[Any], back_consts: list[Any], state: list[Any], left: list[Any], carry: list[Any],
              ) -> list[Any]:
        before = mul(div(sub(*left, _number(1)), _number(length)), _number(length))
        taken = sub(*left, before)
        slots = [_store_entry(zeros(slot), value, _number(0)) for slot, value in zip(slot_avals, state, strict=True)]
        fixed = [*filling.captured, *step_consts]
        filled = _bind_loop("for", taken, *fixed, zeros(INDEX), *slots, *state, program=filling.program,
                            num_consts=len(fixed))
        fixed = [*draining.captured, *back_consts, *filled[1:1 + len(slots)]]
        drained = _bind_loop("for", taken, *fixed, taken, *carry, program=draining.program, num_consts=len(fixed))
        return [before, *drained[1:]]

    return derive_grouped(back, ("visit segment", step, length), build, step_consts=ahead.consts,
                          back_consts=behind.consts, state=step.out_avals, left=[INDEX], carry=back.out_avals)


def _input_types(step: Program, back: Program) -> tuple[StepInputs, BackInputs]:
    """Return the types of the inputs of `step` and of `back`, by group."""
    return step_groups(step)[0].split(step.in_avals), _back_groups(step, back)[0].split(back.in_avals)


def _is_not_negative(body: Program, num_consts: int) -> Program:
    def build(*values: Any) -> tuple[list[Any], None]:
        return [ge(values[0], _number(0))], None
    return derive(body, "first is not negative", build, body.in_avals[num_consts:]).program


def _slot_avals(state: Sequence[Aval], size: int) -> list[Aval]:
    """Return the types of the table: `size` slots for each value of the state, and one for discarded states."""
    return [aval.strong().update(shape=(size + 1, *aval.shape)) for aval in state]


def _positions_aval(size: int) -> Aval:
    return Aval((size + 1,), dtypes.int32)


def _advance(step: Program, const_avals: Sequence[Aval], size: int) -> Derived:
    """Return one stretch forward, to the target or to a state to keep, which goes into the next free slot.

    (table of reaches, target, constants, position, top, positions, slots, state) -> the last five.
    """
    def build(fixed: list[Any], consts: list[Any], places: list[Any], slots: list[Any], state: list[Any]) -> list[Any]:
        (reaches, target), (position, top, positions) = fixed, places
        free, distance = sub(_number(size - 1), top), add(sub(target, position), _number(1))
        row = reshape(dynamic_slice(reaches, [free, _number(0)], (1, REPETITIONS)), (REPETITIONS,))
        short = lt(row, distance)
        stretch = reduce_max(where(short, row, _number(1)), (0,))
        beyond = eq(reduce_sum(convert(short, dtypes.int32), (0,)), _number(REPETITIONS))
        stretch = where(beyond, maximum(stretch, div(distance, _number(2))), stretch)
        stretch = minimum(stretch, sub(distance, _number(1)))
        state = _bind_loop("for", stretch, *consts, *state, program=step, num_consts=len(consts))
        position = add(position, stretch)
        keep = and_(lt(position, target), gt(free, _number(0)))
        place = where(keep, add(top, _number(1)), _number(size))  # the last slot is for discarded states
        return [position, where(keep, place, top), _store_entry(positions, position, place),
                *(_store_entry(slot, value, place) for slot, value in zip(slots, state, strict=True)), *state]

    return derive_grouped(
        step, ("advance", len(const_avals), size), build, fixed=[Aval((size, REPETITIONS), dtypes.int32), INDEX],
        consts=const_avals, places=[INDEX, INDEX, _positions_aval(size)], slots=_slot_avals(step.out_avals, size),
        state=step.out_avals)


def _visit(step: Program, back: Program, advance: Derived, size: int) -> Derived:
    """Return a backward step: (constants, target, top, positions, slots, carry) -> the last five, one step earlier."""
    ahead, behind = _input_types(step, back)

    def build(step_consts: list[Any], back_consts: list[Any], places: list[Any], slots: list[Any], carry: list[Any],
              ) -> list[Any]:
        target, top, positions = places
        position = _table_entry(positions, top)
        state = [_table_entry(slot, top) for slot in slots]
        fixed = [*advance.captured, steps_within(size), target, *step_consts]
        going = derive(advance.program, "ahead", lambda goal, now, *_: ([lt(now, goal)], None),
                       [INDEX, *advance.program.out_avals]).program
        _, top, positions, *rest = _bind_loop(
            "while", target, *fixed, position, top, positions, *slots, *state, condition=going, body=advance.program,
            num_condition_consts=1, num_body_consts=len(fixed))
        slots, state = split_by_sizes(rest, (len(slots), len(state)))
        carry = apply_equations(back, [*back_consts, *state, *carry])
        done = convert(eq(_table_entry(positions, top), target), dtypes.int32)
        return [sub(target, _number(1)), sub(top, done), positions, *slots, *carry]

    return derive_grouped(
        back, ("visit", step), build, step_consts=ahead.consts, back_consts=behind.consts,
        places=[INDEX, INDEX, _positions_aval(size)], slots=_slot_avals(step.out_avals, size), carry=back.out_avals)


def _table_entry(table: Any, place: Any) -> Any:
    shape = aval_of(table).shape[1:]
    return reshape(dynamic_slice(table, [place, *[_number(0)] * len(shape)], (1, *shape)), shape)


def _store_entry(table: Any, value: Any, place: Any) -> Any:
    shape = aval_of(value).shape
    return dynamic_update_slice(table, reshape(value, (1, *shape)), [place, *[_number(0)] * len(shape)])


def _loops_and_inputs(values: Sequence[Any], step: Program, back: Program) -> tuple[Program, list[Any]]:
    """Return the program made of loops, and its inputs."""
    derived = sweep_as_loops(step, back)
    count = convert(maximum(values[0], zeros(aval_of(values[0]))), dtypes.int32)
    (program,), inputs = make_divergent(aval_of(count).vma, [derived.program],
                                        [*derived.captured, count, *values[1:]])
    return program, inputs


def _emit(lax: Any, *values: Any, step: Program, back: Program, **counts: int) -> list[Any]:
    length = segment_length(step.out_avals)
    derived = sweep_as_loops(step, back) if length == 1 else sweep_in_segments(step, back, length)
    count = lax.convert_element_type(lax.max(values[0], np.zeros((), values[0].dtype)), np.int32)
    return xla_executor.emit(derived.program, [*derived.captured, count, *values[1:]])


# --- derivatives --------------------------------------------------------------------------------------------


def _jvp(primals: list[Any], tangents: list[Any], *, step: Program, back: Program, **counts: int,
         ) -> tuple[list[Any], list[Any]]:
    if needs_tangent_tape(primals, tangents):
        # The loops of a sweep separate known from linear work.
        program, inputs = _loops_and_inputs(primals, step, back)
        unmoved = len(inputs) - len(primals) + 1
        return push_forward(program, inputs, [*map(Zero, map(aval_of, inputs[:unmoved])), *tangents[1:]])
    takes = sweep_groups(step, back, **counts)
    (count,), step_consts, back_consts, state, carry = takes.split(primals)
    _, step_marks, back_marks, state_marks, carry_marks = takes.split(nonzero_mask(tangents))
    states = close_marks(lambda marks: nonzero_outputs_of(step, (*step_marks, *marks)), state_marks)
    carried = close_marks(lambda marks: nonzero_outputs_of(back, (*back_marks, *states, *marks)), carry_marks)
    if not any(carried):
        return bind_sweep(count, step, step_consts, back, back_consts, state, carry), list(map(Zero, back.out_avals))
    ahead = dual_grouped(step, *step_groups(step), (*step_marks, *states), states)
    behind = dual_grouped(back, *_back_groups(step, back), (*back_marks, *states, *carried), carried)
    moved = takes.split(tangents)
    along = [instantiate_zeros(tangent) for tangent in select_marked([*moved.state, *moved.carry], (*states, *carried))]
    state_along, carry_along = split_by_sizes(along, (sum(states), sum(carried)))
    results = bind_sweep(count, ahead.program, [*ahead.captured, *step_consts, *nonzero_tangents(moved.step_consts)],
                         behind.program, [*behind.captured, *back_consts, *nonzero_tangents(moved.back_consts)],
                         [*state, *state_along], [*carry, *carry_along])
    return dual_outputs(back.out_avals, carried, results)


def _transpose(cotangents: list[Any], inputs: list[Any], *, step: Program, back: Program, **counts: int) -> list[Any]:
    """Transpose: if linear in the carry alone, to a loop forwards; in general, through the loops it consists of."""
    takes = sweep_groups(step, back, **counts)
    *known, carry = takes.split(linear_mask(inputs))
    if any(map(any, known)) or not all(carry):
        program, given = _loops_and_inputs(inputs, step, back)
        found = backward_pass(program, given, cotangents)
        return [None, *found[len(given) - len(inputs) + 1:]]
    (count,), step_consts, back_consts, state, _ = takes.split(inputs)
    body = _joint_step(step, back)
    consts = [*body.captured, *step_consts, *back_consts]
    results = _bind_loop("for", count, *consts, *state, *map(instantiate_zeros, cotangents), program=body.program,
                         num_consts=len(consts))
    return cotangents_of(inputs, join_groups([*known, carry]), results[len(state):])


def _joint_step(step: Program, back: Program) -> Derived:
    """Return (constants, state, cotangents of the carry) -> (next state, cotangents of the carry one visit earlier)."""
    ahead, behind = _input_types(step, back)
    back_takes, _ = _back_groups(step, back)

    def build(step_consts: list[Any], back_consts: list[Any], state: list[Any], arriving: list[Any]) -> list[Any]:
        found = backward_pass(back, [*back_consts, *state, *map(Linear, back.out_avals)], arriving)
        following = apply_equations(step, [*step_consts, *state])
        return [*following, *map(instantiate_zeros, back_takes.split(found).carry)]

    return derive_grouped(back, ("along", step), build, step_consts=ahead.consts,
                          back_consts=behind.consts, state=step.out_avals, arriving=back.out_avals)


# --- batching -----------------------------------------------------------------------------------------------


def _batch(size: int, values: list[Any], axes: list[int | None], *, step: Program, back: Program, **counts: int,
           ) -> tuple[list[Any], list[int | None]]:
    if axes[0] is not None:
        # Each lane has its own number of steps: expand to loops, whose batch rules handle that.
        derived = sweep_as_loops(step, back)
        given = [Batched(value, None) for value in derived.captured]
        given.append(Batched(convert(values[0], dtypes.int32), axes[0]))
        given += [Batched(value, axis) for value, axis in zip(values[1:], axes[1:], strict=True)]
        outputs = Batch(size).run(derived.program, given)
        return [put_axis(output, size, 0) for output in outputs], [0] * len(outputs)
    takes = sweep_groups(step, back, **counts)
    (count,), step_consts, back_consts, state, carry = takes.split(values)
    _, step_const_axes, back_const_axes, state_axes, carry_axes = takes.split(axes)
    states = batched_marks(step, size, step_const_axes, [axis is not None for axis in state_axes])
    state_lanes = lane_axes(states)
    carried = batched_marks(back, size, [*back_const_axes, *state_lanes], [axis is not None for axis in carry_axes])
    carry_lanes = lane_axes(carried)
    ahead = batched_program(step, size, (*step_const_axes, *state_lanes), state_lanes)
    behind = batched_program(back, size, (*back_const_axes, *state_lanes, *carry_lanes), carry_lanes)
    results = bind_sweep(count, ahead.program, [*ahead.captured, *step_consts], behind.program,
                         [*behind.captured, *back_consts], batch_first_if_marked(size, state, state_axes, states),
                         batch_first_if_marked(size, carry, carry_axes, carried))
    return results, list(carry_lanes)


def _cost(*avals: Aval, step: Program, back: Program, **_: int) -> Cost:
    one, other = total_cost(step), total_cost(back)  # of one step: their number is unknown
    return Cost(one.flops + other.flops, one.bytes + other.bytes)


def _regions(operands: Sequence[Any], *, step: Program, back: Program, **counts: int) -> tuple[Region, ...]:
    takes, (_, makes) = sweep_groups(step, back, **counts), _back_groups(step, back)
    return (Region("step", ("step",), step, takes.links(step_consts="same", state="carry"),
                   (Links("inside", 0, len(step.outputs)),), None),
            Region("back", ("back",), back, takes.links(back_consts="same", state="inside", carry="carry"),
                   makes.links(carry="carry"), None))


sweep_p = register(Primitive(name="sweep", abstract=_abstract, numpy=_run_numpy, xla=_emit, jvp=_jvp,
                             transpose=_transpose, batch=_batch, cost=_cost, regions=_regions))
"""(number of steps, constants of the step, constants of the step back, state, carry) -> carry."""
region_roles.enter(("step", "back"), sweep_p)


@rewrites.register(sweep_p)
def _sweep_rewrite(_: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Remove constants that a program does not use or gets twice, and inline numbers into it."""
    step, back = params["step"], params["back"]
    (count,), ahead, behind, state, carry = sweep_groups(**params).split(inputs)
    before, inside = removable_inputs(step, ahead), removable_inputs(back, behind)
    if not before and not inside:
        return None
    return bind_sweep(count, remove_inputs(step, before), remaining_operands(ahead, before),
                      remove_inputs(back, inside),
                      remaining_operands(behind, inside), state, carry)
