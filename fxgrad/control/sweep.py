"""`sweep`: goes forward through a number of states known at run time, then back, visiting them in reverse order.

It is what the transpose of a loop does. NumPy keeps every state. XLA, where memory has to be known beforehand, keeps a
table of a fixed number of them and computes the others again from the nearest one before: with `s` free places,
binomial(s + r, r) steps are walked back with every state computed at most r more times (Griewank and Walther,
"Algorithm 799: revolve", 2000). The table's size does not depend on the number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.control.call import check_arguments
from fxgrad.control.lanes import batched_marks, fronted, lane_axes
from fxgrad.control.wiring import (
    apart,
    are_linear,
    closed_marks,
    dual_grouped,
    moving,
    present,
    reached_by,
)
from fxgrad.core.avals import Aval, Literal
from fxgrad.core.interpreter import Derived, bind, derive, evaluate
from fxgrad.core.primitive import Cost, Primitive, register, registry
from fxgrad.core.program import Program
from fxgrad.core.regions import Links, Region
from fxgrad.core.symbolic import Linear, Zero
from fxgrad.core.tape import aval_of
from fxgrad.errors import DTypeError
from fxgrad.executors import numpy as numpy_executor
from fxgrad.executors import xla as xla_executor
from fxgrad.ops.arithmetic import div, sub
from fxgrad.ops.arithmetic import max as maximum
from fxgrad.ops.arithmetic import min as minimum
from fxgrad.ops.choose import where
from fxgrad.ops.comparison import and_, eq, ge, gt, lt
from fxgrad.ops.dynamic import dynamic_slice, dynamic_update_slice
from fxgrad.ops.pointwise import add
from fxgrad.ops.reduce import reduce_max
from fxgrad.ops.space import convert, instantiate, reduce_sum, reshape, zeros
from fxgrad.transforms.batch import Batch, Batched, batched_program, put_axis
from fxgrad.transforms.cost import cost
from fxgrad.transforms.forward import forward, spread
from fxgrad.transforms.transpose import backward


def sweep(count: Any, step: Program, step_consts: Sequence[Any], back: Program, back_consts: Sequence[Any],
          state: Sequence[Any], carry: Sequence[Any]) -> list[Any]:
    """The carry after `back` has visited the `count` states before each `step`, the last one first.

    `step` takes (constants, state) to the next state, `back` takes (constants, state, carry) to the next carry.
    """
    return bind(sweep_p, count, *step_consts, *back_consts, *state, *carry, step=step, back=back,
                num_step_consts=len(step_consts), num_back_consts=len(back_consts))


class _Parts:
    """The inputs of a sweep, or marks of them, by kind."""

    def __init__(self, values: Sequence[Any], step: Program, num_step_consts: int, num_back_consts: int) -> None:
        sizes = (1, num_step_consts, num_back_consts, len(step.outputs))
        parts, start = [], 0
        for size in sizes:
            parts.append(list(values[start:start + size]))
            start += size
        (self.count,), self.step_consts, self.back_consts, self.state = parts
        self.carry = list(values[start:])


def _abstract(*avals: Aval, step: Program, back: Program, num_step_consts: int, num_back_consts: int) -> list[Aval]:
    parts = _Parts(avals, step, num_step_consts, num_back_consts)
    if parts.count.shape != () or not dtypes.is_integer(parts.count.dtype):
        raise DTypeError(f"sweep: the number of steps must be an integer scalar, got {parts.count}")
    check_arguments("sweep", step.in_avals, [*parts.step_consts, *parts.state])
    check_arguments("sweep", step.out_avals, parts.state)
    check_arguments("sweep", back.in_avals, [*parts.back_consts, *parts.state, *parts.carry])
    check_arguments("sweep", back.out_avals, parts.carry)
    return back.out_avals


def _run_numpy(*values: Any, step: Program, back: Program, num_step_consts: int, num_back_consts: int) -> list[Any]:
    parts = _Parts(values, step, num_step_consts, num_back_consts)
    states, carry = [], parts.carry
    state = parts.state
    for _ in range(int(parts.count)):
        states.append(state)
        if len(states) < parts.count:
            state = numpy_executor.call(step, [*parts.step_consts, *state])
    begun = bool(states)
    while states:
        carry = numpy_executor.call(back, [*parts.back_consts, *states.pop(), *carry])
    return carry if begun else [np.copy(value)[()] for value in carry]


# --- with a table of states -------------------------------------------------------------------------------


TABLE_BYTES = 1 << 26
MOST_STATES, FEWEST_STATES = 128, 16
REPETITIONS = 40
INDEX = Aval((), dtypes.int32)


def table_size(state: Sequence[Aval]) -> int:
    """How many states the table holds: as many as fit 64 MiB, within bounds."""
    size = sum(aval.nbytes for aval in state)
    return min(MOST_STATES, max(FEWEST_STATES, TABLE_BYTES // max(size, 1)))


def reach(size: int) -> np.ndarray[Any, Any]:
    """`reach(size)[s, r]`: how many steps `s` free places walk back with at most `r` repetitions of each."""
    return np.array([[min(math.comb(s + r, s), 2**31 - 1) for r in range(REPETITIONS)] for s in range(size)],
                    np.int32)


def _number(value: int) -> Literal:
    return Literal(value, INDEX)


def _loop(name: str, *values: Any, **params: Any) -> list[Any]:
    """A loop by the name of its primitive: loops are transposed to sweeps, and sweeps are made of loops."""
    return bind(registry[name], *values, **params)


def with_table(step: Program, back: Program, num_step_consts: int, num_back_consts: int) -> Derived:
    """A program equal to the sweep, made of loops: (count, constants, state, carry) -> carry."""
    state_avals, carry_avals = step.out_avals, back.out_avals
    size = table_size(state_avals)
    advance = _advance(step, num_step_consts, size)
    visit = _visit(step, back, num_step_consts, num_back_consts, advance, size)
    count_avals = [INDEX, *step.in_avals[:num_step_consts], *back.in_avals[:num_back_consts], *state_avals,
                   *carry_avals]

    def build(*values: Any) -> tuple[list[Any], None]:
        parts = _Parts(values, step, num_step_consts, num_back_consts)
        fixed = [*visit.captured, *parts.step_consts, *parts.back_consts]
        slots = [_stored(zeros(Aval((size + 1, *aval.shape), aval.dtype)), value, _number(0))
                 for aval, value in zip(state_avals, parts.state, strict=True)]
        begin = [sub(parts.count, _number(1)), zeros(INDEX), zeros(Aval((size + 1,), dtypes.int32)), *slots,
                 *parts.carry]
        results = _loop("while", *fixed, *begin, condition=_not_negative(visit.program, len(fixed)),
                        body=visit.program, num_condition_consts=0, num_body_consts=len(fixed))
        return results[3 + len(state_avals):], None

    return derive(back, ("with table", step, num_step_consts, num_back_consts), build, count_avals)


def _not_negative(body: Program, num_consts: int) -> Program:
    def build(*values: Any) -> tuple[list[Any], None]:
        return [ge(values[0], _number(0))], None
    return derive(body, "first is not negative", build, body.in_avals[num_consts:]).program


def _advance(step: Program, num_consts: int, size: int) -> Derived:
    """One stretch forward, to the target or to a state worth keeping, which goes into the next free place.

    (table of reaches, target, constants, position, top, positions, slots, state) -> the last five.
    """
    state_avals = step.out_avals

    def build(*values: Any) -> tuple[list[Any], None]:
        given = iter(values)
        reaches, target = next(given), next(given)
        consts = [next(given) for _ in range(num_consts)]
        position, top, positions = next(given), next(given), next(given)
        slots = [next(given) for _ in state_avals]
        state = list(given)
        free, distance = sub(_number(size - 1), top), add(sub(target, position), _number(1))
        row = reshape(dynamic_slice(reaches, [free, _number(0)], (1, REPETITIONS)), (REPETITIONS,))
        short = lt(row, distance)
        stretch = reduce_max(where(short, row, _number(1)), (0,))
        beyond = eq(reduce_sum(convert(short, dtypes.int32), (0,)), _number(REPETITIONS))
        stretch = where(beyond, maximum(stretch, div(distance, _number(2))), stretch)
        stretch = minimum(stretch, sub(distance, _number(1)))
        state = _loop("for", stretch, *consts, *state, program=step, num_consts=num_consts)
        position = add(position, stretch)
        keep = and_(lt(position, target), gt(free, _number(0)))
        place = where(keep, add(top, _number(1)), _number(size))  # the last place is for what is not kept
        return [position, where(keep, place, top),
                _stored(positions, position, place),
                *(_stored(slot, value, place) for slot, value in zip(slots, state, strict=True)), *state], None

    return derive(step, ("advance", num_consts, size), build, [
        Aval((size, REPETITIONS), dtypes.int32), INDEX, *step.in_avals[:num_consts], INDEX, INDEX,
        Aval((size + 1,), dtypes.int32), *_slot_avals(state_avals, size), *state_avals])


def _slot_avals(state: Sequence[Aval], size: int) -> list[Aval]:
    return [Aval((size + 1, *aval.shape), aval.dtype) for aval in state]


def _visit(step: Program, back: Program, num_step_consts: int, num_back_consts: int, advance: Derived, size: int,
           ) -> Derived:
    """One step back: (constants, target, top, positions, slots, carry) -> the last five for the step before."""
    state_avals = step.out_avals

    def build(*values: Any) -> tuple[list[Any], None]:
        given = iter(values)
        step_consts = [next(given) for _ in range(num_step_consts)]
        back_consts = [next(given) for _ in range(num_back_consts)]
        target, top, positions = next(given), next(given), next(given)
        slots = [next(given) for _ in state_avals]
        position = _entry(positions, top)
        state = [_entry(slot, top) for slot in slots]
        fixed = [*advance.captured, reach(size), target, *step_consts]
        ahead = derive(advance.program, "ahead", lambda goal, now, *_: ([lt(now, goal)], None),
                       [INDEX, *advance.program.out_avals]).program
        results = _loop("while", target, *fixed, position, top, positions, *slots, *state, condition=ahead,
                        body=advance.program, num_condition_consts=1, num_body_consts=len(fixed))
        _, top, positions, *rest = results
        slots, state = rest[:len(slots)], rest[len(slots):]
        carry = evaluate(back, [*back_consts, *state, *given])
        done = convert(eq(_entry(positions, top), target), dtypes.int32)
        return [sub(target, _number(1)), sub(top, done), positions, *slots, *carry], None

    return derive(back, ("visit", step, num_step_consts, num_back_consts), build, [
        *step.in_avals[:num_step_consts], *back.in_avals[:num_back_consts], INDEX, INDEX,
        Aval((size + 1,), dtypes.int32), *_slot_avals(state_avals, size), *back.out_avals])


def _entry(table: Any, place: Any) -> Any:
    shape = aval_of(table).shape[1:]
    return reshape(dynamic_slice(table, [place, *[_number(0)] * len(shape)], (1, *shape)), shape)


def _stored(table: Any, value: Any, place: Any) -> Any:
    shape = aval_of(value).shape
    return dynamic_update_slice(table, reshape(value, (1, *shape)), [place, *[_number(0)] * len(shape)])


def _by_table(values: Sequence[Any], step: Program, back: Program, num_step_consts: int, num_back_consts: int,
              ) -> tuple[Program, list[Any]]:
    """The program made of loops, and its inputs."""
    derived = with_table(step, back, num_step_consts, num_back_consts)
    return derived.program, [*derived.captured, convert(values[0], dtypes.int32), *values[1:]]


def _emit(lax: Any, *values: Any, step: Program, back: Program, num_step_consts: int, num_back_consts: int,
          ) -> list[Any]:
    derived = with_table(step, back, num_step_consts, num_back_consts)
    count = lax.convert_element_type(values[0], np.int32)
    return xla_executor.emit(derived.program, [*derived.captured, count, *values[1:]])


# --- derivatives --------------------------------------------------------------------------------------------


def _jvp(primals: list[Any], tangents: list[Any], *, step: Program, back: Program, num_step_consts: int,
         num_back_consts: int) -> tuple[list[Any], list[Any]]:
    if apart(primals, tangents):
        # Known and linear work are told apart in the loops that a sweep is made of.
        program, inputs = _by_table(primals, step, back, num_step_consts, num_back_consts)
        unmoved = len(inputs) - len(primals) + 1
        return forward(program, inputs, [*map(Zero, map(aval_of, inputs[:unmoved])), *tangents[1:]])
    given = _Parts(primals, step, num_step_consts, num_back_consts)
    moved = _Parts(tangents, step, num_step_consts, num_back_consts)
    states = closed_marks(lambda marks: reached_by(step, (*moving(moved.step_consts), *marks)), moving(moved.state))
    carried = closed_marks(
        lambda marks: reached_by(back, (*moving(moved.back_consts), *states, *marks)), moving(moved.carry))
    if not any(carried):
        return sweep(given.count, step, given.step_consts, back, given.back_consts, given.state, given.carry), \
            list(map(Zero, back.out_avals))
    ahead = dual_grouped(step, (num_step_consts, len(given.state)), (*moving(moved.step_consts), *states), states)
    behind = dual_grouped(back, (num_back_consts, len(given.state), len(given.carry)),
                          (*moving(moved.back_consts), *states, *carried), carried)
    state_tangents = [instantiate(one) for one, marked in zip(moved.state, states, strict=True) if marked]
    carry_tangents = [instantiate(one) for one, marked in zip(moved.carry, carried, strict=True) if marked]
    results = sweep(given.count, ahead.program, [*ahead.captured, *given.step_consts, *present(moved.step_consts)],
                    behind.program, [*behind.captured, *given.back_consts, *present(moved.back_consts)],
                    [*given.state, *state_tangents], [*given.carry, *carry_tangents])
    count = len(given.carry)
    return results[:count], spread(back.out_avals, carried, results[count:])


def _transpose(cotangents: list[Any], inputs: list[Any], *, step: Program, back: Program, num_step_consts: int,
               num_back_consts: int) -> list[Any]:
    """Linear in the carry alone, it is a loop forwards; in general, that of the loops it is made of."""
    linear = _Parts(are_linear(inputs), step, num_step_consts, num_back_consts)
    if any((linear.count, *linear.step_consts, *linear.back_consts, *linear.state)) or not all(linear.carry):
        program, given = _by_table(inputs, step, back, num_step_consts, num_back_consts)
        found = backward(program, given, cotangents)
        return [None, *found[len(given) - len(inputs) + 1:]]
    given_parts = _Parts(inputs, step, num_step_consts, num_back_consts)
    body = _along(step, back, num_step_consts, num_back_consts)
    consts = [*body.captured, *given_parts.step_consts, *given_parts.back_consts]
    results = _loop("for", given_parts.count, *consts, *given_parts.state, *map(instantiate, cotangents),
                    program=body.program, num_consts=len(consts))
    return [*[None] * (len(inputs) - len(cotangents)), *results[len(given_parts.state):]]


def _along(step: Program, back: Program, num_step_consts: int, num_back_consts: int) -> Derived:
    """(constants, state, cotangents of the carry) -> (next state, cotangents of the carry one visit earlier)."""
    state_avals = step.out_avals

    def build(*values: Any) -> tuple[list[Any], None]:
        given = iter(values)
        step_consts = [next(given) for _ in range(num_step_consts)]
        back_consts = [next(given) for _ in range(num_back_consts)]
        state = [next(given) for _ in state_avals]
        found = backward(back, [*back_consts, *state, *map(Linear, back.out_avals)], list(given))
        following = evaluate(step, [*step_consts, *state])
        return [*following, *map(instantiate, found[num_back_consts + len(state):])], None

    return derive(back, ("along", step, num_step_consts), build, [
        *step.in_avals[:num_step_consts], *back.in_avals[:num_back_consts], *state_avals, *back.out_avals])


# --- batching -----------------------------------------------------------------------------------------------


def _batch(size: int, values: list[Any], axes: list[int | None], *, step: Program, back: Program,
           num_step_consts: int, num_back_consts: int) -> tuple[list[Any], list[int | None]]:
    if axes[0] is not None:
        # Each lane has its own number of steps: that is written with loops once, in theirs.
        derived = with_table(step, back, num_step_consts, num_back_consts)
        given = [Batched(value, None) for value in derived.captured]
        given.append(Batched(convert(values[0], dtypes.int32), axes[0]))
        given += [Batched(value, axis) for value, axis in zip(values[1:], axes[1:], strict=True)]
        outputs = Batch(size).run(derived.program, given)
        return [put_axis(output, size, 0) for output in outputs], [0] * len(outputs)
    given_parts, where_parts = (_Parts(each, step, num_step_consts, num_back_consts) for each in (values, axes))
    states = batched_marks(step, size, where_parts.step_consts, [axis is not None for axis in where_parts.state])
    state_axes = lane_axes(states)
    carried = batched_marks(back, size, [*where_parts.back_consts, *state_axes],
                       [axis is not None for axis in where_parts.carry])
    ahead = batched_program(step, size, (*where_parts.step_consts, *state_axes), state_axes)
    out_axes = lane_axes(carried)
    behind = batched_program(back, size, (*where_parts.back_consts, *state_axes, *out_axes), out_axes)
    results = sweep(given_parts.count, ahead.program, [*ahead.captured, *given_parts.step_consts],
                    behind.program, [*behind.captured, *given_parts.back_consts],
                    fronted(size, given_parts.state, where_parts.state, states),
                    fronted(size, given_parts.carry, where_parts.carry, carried))
    return results, list(out_axes)


def _cost(*avals: Aval, step: Program, back: Program, **_: int) -> Cost:
    one, other = cost(step), cost(back)  # of one step: how many there will be is not known
    return Cost(one.flops + other.flops, one.bytes + other.bytes)


def _regions(operands: Sequence[Any], *, step: Program, back: Program, num_step_consts: int, num_back_consts: int,
             ) -> tuple[Region, ...]:
    state, carry = len(step.outputs), len(back.outputs)
    first = 1 + num_step_consts + num_back_consts
    inside = Links("inside", 0, state)
    takes = Links("same", 1 + num_step_consts, num_back_consts), inside, Links("carry", first + state, carry)
    return (Region("step", ("step",), step, (Links("same", 1, num_step_consts), Links("carry", first, state)),
                   (inside,), None),
            Region("back", ("back",), back, takes, (Links("carry", 0, carry),), None))


sweep_p = register(Primitive(name="sweep", abstract=_abstract, numpy=_run_numpy, xla=_emit, jvp=_jvp,
                             transpose=_transpose, batch=_batch, cost=_cost, regions=_regions))
"""(number of steps, constants of the step, constants of the step back, state, carry) -> carry."""
