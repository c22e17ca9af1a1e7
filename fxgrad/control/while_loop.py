"""`while`, a loop that runs as long as a condition holds; its derivative counts the steps and is a `for` loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.control.call import check_arguments
from fxgrad.control.lanes import (
    batched_marks,
    but_kept,
    fronted,
    lane_axes,
    refuse_actions,
    where_live,
)
from fxgrad.control.loop import COUNTER, TWICE, for_p, live_step, tangents_of_carry, transpose_steps
from fxgrad.control.wiring import (
    Marks,
    apart,
    are_linear,
    closed_marks,
    dependent,
    dual_grouped,
    moving,
    present,
    primal_step,
    with_outputs,
)
from fxgrad.core.avals import Aval, Literal
from fxgrad.core.effects import silenced
from fxgrad.core.interpreter import bind, derive, evaluate
from fxgrad.core.primitive import Cost, Primitive, register
from fxgrad.core.program import Program
from fxgrad.core.regions import Links, Region
from fxgrad.core.symbolic import Linear, Zero
from fxgrad.core.tape import aval_of
from fxgrad.errors import LinearityError, ProgramError, at_user_line
from fxgrad.executors import numpy as numpy_executor
from fxgrad.executors import xla as xla_executor
from fxgrad.ops.pointwise import add
from fxgrad.ops.reduce import reduce_or
from fxgrad.ops.space import zeros
from fxgrad.transforms.batch import batched_program
from fxgrad.transforms.cost import cost
from fxgrad.transforms.forward import spread


def _while_abstract(*avals: Aval, condition: Program, body: Program, num_condition_consts: int, num_body_consts: int,
                    ) -> list[Aval]:
    first, second = num_condition_consts, num_condition_consts + num_body_consts
    check_arguments("while", condition.in_avals, [*avals[:first], *avals[second:]])
    check_arguments("while", body.in_avals, avals[first:])
    check_arguments("while", body.in_avals[num_body_consts:], body.out_avals)
    if condition.out_avals != [Aval((), dtypes.bool_)]:
        raise ProgramError(f"while: the condition returns {condition.out_avals}, where one bool scalar is needed")
    return body.out_avals


def _while_numpy(*values: Any, condition: Program, body: Program, num_condition_consts: int, num_body_consts: int,
                 ) -> list[Any]:
    first, second = num_condition_consts, num_condition_consts + num_body_consts
    asked, given, carry = values[:first], values[first:second], list(values[second:])
    begun = False
    while numpy_executor.call(condition, [*asked, *carry])[0]:
        carry, begun = numpy_executor.call(body, [*given, *carry]), True
    return carry if begun else [np.copy(value)[()] for value in carry]


def _while_emit(lax: Any, *values: Any, condition: Program, body: Program, num_condition_consts: int,
                num_body_consts: int) -> list[Any]:
    first, second = num_condition_consts, num_condition_consts + num_body_consts
    asked, given = values[:first], values[first:second]
    outputs: list[Any] = lax.while_loop(
        lambda carry: xla_executor.emit(condition, [*asked, *carry])[0],
        lambda carry: xla_executor.emit(body, [*given, *carry]), list(values[second:]))
    return outputs


def bind_while(condition: Program, asked: Sequence[Any], body: Program, given: Sequence[Any], carry: Sequence[Any],
               ) -> list[Any]:
    """Applies `while_p` to lists: constants of the condition and of the body, and the carry."""
    return bind(while_p, *asked, *given, *carry, condition=condition, body=body, num_condition_consts=len(asked),
                num_body_consts=len(given))


def _while_jvp(primals: list[Any], tangents: list[Any], *, condition: Program, body: Program,
               num_condition_consts: int, num_body_consts: int) -> tuple[list[Any], list[Any]]:
    first, second = num_condition_consts, num_condition_consts + num_body_consts
    asked, given, carry = primals[:first], primals[first:second], primals[second:]
    given_tangents = tangents[first:second]
    carry_tangents, carried = tangents_of_carry(body, given_tangents, tangents[second:])
    if not any(carried):
        return bind_while(condition, asked, body, given, carry), list(map(Zero, body.out_avals))
    separate = apart(primals, tangents)
    wrt = (*moving(given_tangents), *carried)
    step = dual_grouped(body, (num_body_consts, len(carry)), wrt, carried, separate)
    fixed, begin = [*step.captured, *given, *present(given_tangents)], [*carry, *present(carry_tangents)]
    if separate:
        primal, captured = primal_step(step, body, wrt)
        count, outputs = _counted(condition, asked, primal, [*captured, *given], carry)
        results = bind(for_p, count, *fixed, *begin, program=silenced(step.program, TWICE), num_consts=len(fixed))
    else:
        results = bind_while(_ignoring(condition, len(asked), tuple(map(aval_of, present(carry_tangents)))), asked,
                             step.program, fixed, begin)
        outputs = results[:len(carry)]
    return outputs, spread(body.out_avals, carried, results[len(carry):])


def _ignoring(condition: Program, num_consts: int, more: tuple[Aval, ...], before: bool = False) -> Program:
    """A condition that takes further carried values, behind its own or before them, and does not look at them."""
    avals = condition.in_avals

    def build(*values: Any) -> tuple[list[Any], None]:
        start = num_consts + (len(more) if before else 0)
        return evaluate(condition, [*values[:num_consts], *values[start:start + len(avals) - num_consts]]), None

    in_avals = [*avals[:num_consts], *more, *avals[num_consts:]] if before else [*avals, *more]
    return derive(condition, ("ignoring", num_consts, more, before), build, in_avals).program


def _counted(condition: Program, asked: Sequence[Any], body: Program, given: Sequence[Any], carry: Sequence[Any],
             ) -> tuple[Any, list[Any]]:
    """The number of steps of a while loop, and its outputs."""
    num_consts = len(given)

    def build(*values: Any) -> tuple[list[Any], None]:
        number, current = values[num_consts], values[num_consts + 1:]
        return [add(number, Literal(1, COUNTER)), *evaluate(body, [*values[:num_consts], *current])], None

    avals = body.in_avals
    counted = derive(body, ("counted", num_consts), build,
                     [*avals[:num_consts], COUNTER, *avals[num_consts:]]).program
    count, *outputs = bind_while(_ignoring(condition, len(asked), (COUNTER,), before=True), asked, counted, given,
                                 [zeros(COUNTER), *carry])
    return count, outputs


def _while_transpose(cotangents: list[Any], inputs: list[Any], *, condition: Program, body: Program,
                     num_condition_consts: int, num_body_consts: int) -> list[Any]:
    """Counts the steps with the known values alone, and goes back as many."""
    first, second = num_condition_consts, num_condition_consts + num_body_consts
    asked, given, carry = inputs[:first], inputs[first:second], inputs[second:]
    const_marks = are_linear(given)
    carried = closed_marks(lambda marks: dependent(body, (*const_marks, *marks)), are_linear(carry))
    if any(are_linear(asked)) or any(dependent(condition, (*[False] * first, *carried))):
        raise LinearityError(at_user_line("cannot transpose a while loop whose condition depends on linear values"))
    # A linear value is used neither by the condition nor by the known part of the body.
    blank = [zeros(value.aval) if type(value) is Linear else value for value in (*given, *carry)]
    known = _with_frozen(body, num_body_consts, carried)
    count, _ = _counted(condition, asked, known, blank[:num_body_consts], blank[num_body_consts:])
    steps = transpose_steps(count, cotangents, inputs[first:], silenced(body, TWICE), num_body_consts)
    return [*[None] * first, *steps]


def _with_frozen(body: Program, num_consts: int, frozen: Marks) -> Program:
    """`body` with the carried values that are marked left as they are."""
    def build(*values: Any) -> tuple[list[Any], None]:
        kept = with_outputs(body, [not marked for marked in frozen])
        results = iter(evaluate(kept, values))
        return [value if marked else next(results)
                for value, marked in zip(values[num_consts:], frozen, strict=True)], None
    return derive(body, ("frozen", num_consts, frozen), build, body.in_avals).program


def _while_batch(size: int, values: list[Any], axes: list[int | None], *, condition: Program, body: Program,
                 num_condition_consts: int, num_body_consts: int) -> tuple[list[Any], list[int | None]]:
    first, second = num_condition_consts, num_condition_consts + num_body_consts
    asked, given, carry = values[:first], values[first:second], values[second:]
    asked_axes, given_axes, carry_axes = axes[:first], axes[first:second], axes[second:]
    carried = batched_marks(body, size, given_axes, [axis is not None for axis in carry_axes])
    out_axes = lane_axes(carried)
    test = batched_program(condition, size, (*asked_axes, *out_axes), (None,))
    if test.extra[0]:
        results = _while_batch_by_lane(size, condition, asked, asked_axes, body, given, given_axes,
                                       fronted(size, carry, carry_axes, [True] * len(carry)))
        return but_kept(body, given, carry, carry_axes, results)
    step = batched_program(body, size, (*given_axes, *out_axes), out_axes)
    outputs = bind_while(test.program, [*test.captured, *asked], step.program, [*step.captured, *given],
                         fronted(size, carry, carry_axes, carried))
    return outputs, list(out_axes)


def _while_batch_by_lane(size: int, condition: Program, asked: Sequence[Any], asked_axes: Sequence[int | None],
                         body: Program, given: Sequence[Any], given_axes: Sequence[int | None], carry: Sequence[Any],
                         ) -> list[Any]:
    """Goes on while any lane does; lanes that have stopped keep their carry."""
    refuse_actions("while_loop", (condition, body))
    lanes = [0] * len(carry)
    test = batched_program(condition, size, (*asked_axes, *lanes), (0,))

    def any_live(*values: Any) -> tuple[list[Any], None]:
        return [reduce_or(test(values)[0], (0,))], None

    def step(*values: Any) -> tuple[list[Any], None]:
        questions, rest = values[:len(asked)], values[len(asked):]
        current = rest[len(given):]
        mask = test([*questions, *current])[0]
        results = live_step(body, size, mask, rest, [*given_axes, *lanes])
        return [where_live(mask, new, old) for new, old in zip(results, current, strict=True)], None

    avals = [*map(aval_of, asked)], [*map(aval_of, given)], [*map(aval_of, carry)]
    key = (size, tuple(asked_axes), tuple(given_axes), condition)
    going = derive(body, ("any lane", *key), any_live, [*avals[0], *avals[2]])
    taken = derive(body, ("lane by lane", *key), step, [*avals[0], *avals[1], *avals[2]])
    return bind_while(going.program, [*going.captured, *asked], taken.program, [*taken.captured, *asked, *given], carry)


def _while_cost(*avals: Aval, condition: Program, body: Program, **_: int) -> Cost:
    test, step = cost(condition), cost(body)  # of one step: how many there will be is not known
    return Cost(test.flops + step.flops, test.bytes + step.bytes)


def _while_regions(operands: Sequence[Any], *, condition: Program, body: Program, num_condition_consts: int,
                   num_body_consts: int) -> tuple[Region, ...]:
    consts, carry = num_condition_consts + num_body_consts, len(body.outputs)
    carried = (Links("carry", consts, carry),)
    return (Region("condition", ("condition",), condition, (Links("same", 0, num_condition_consts), *carried),
                   (Links("inside", 0, len(condition.outputs)),), None),
            Region("body", ("body",), body, (Links("same", num_condition_consts, num_body_consts), *carried),
                   (Links("carry", 0, carry),), None))


while_p = register(Primitive(name="while", abstract=_while_abstract, numpy=_while_numpy, xla=_while_emit,
                             jvp=_while_jvp, transpose=_while_transpose, batch=_while_batch, cost=_while_cost,
                             regions=_while_regions))
"""(constants of the condition, constants of the body, carry) -> carry. Its cost is that of one step."""
