"""`while`, a loop that runs as long as a condition holds; its derivative counts the steps and is a `for` loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.cost import total_cost
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Cost, Primitive, register
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.regions import Links, Region, close_marks, dependent_outputs, region_roles
from fxgrad.engine.core.symbolic import Linear, Zero
from fxgrad.engine.derivation.derive import derive
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
    derive_grouped,
    groups_of,
    linear_mask,
    merge_marked,
    nonzero_mask,
    nonzero_tangents,
    select_marked,
    step_groups,
)
from fxgrad.engine.higher_order.loop import (
    COUNTER,
    TWICE,
    bind_for,
    step_live_lanes,
    tangents_of_carry,
    transpose_steps,
)
from fxgrad.engine.higher_order.masking import (
    batch_by_flag,
    batch_first_if_marked,
    batched_marks,
    keep_unchanged_carries,
    lane_axes,
    refuse_effects,
    select_live,
)
from fxgrad.engine.higher_order.narrowing import (
    keep_wanted_outputs,
    remaining_operands,
    removable_inputs,
    remove_inputs,
    used_input_places,
    wanted_outputs,
    with_fewer_outputs,
)
from fxgrad.engine.higher_order.wiring import (
    dual_grouped,
    dual_outputs,
    join_carry_vma,
    needs_tangent_tape,
    primal_step,
    select_outputs,
)
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.reductions import reduce_or
from fxgrad.engine.ops.structural import zeros
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.transforms.batch import batched_program
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import CheckError, LinearityError, ProgramError


class WhileInputs(NamedTuple):
    """The groups of the inputs."""

    condition_consts: Sequence[Any]
    body_consts: Sequence[Any]
    carry: Sequence[Any]


def _while_groups(body: Program, num_condition_consts: int, num_body_consts: int) -> Groups[WhileInputs]:
    return groups_of(WhileInputs, num_condition_consts, num_body_consts, len(body.outputs))


def _while_abstract(*avals: Aval, condition: Program, body: Program, **counts: int) -> list[Aval]:
    asked, given, carry = _while_groups(body, **counts).split(avals)
    check_arguments("while", condition.in_avals, [*asked, *carry])
    check_arguments("while", body.in_avals, [*given, *carry])
    check_arguments("while", body.in_avals[len(given):], body.out_avals)
    if [aval.invariant() for aval in condition.out_avals] != [Aval((), dtypes.bool_)]:
        raise ProgramError(f"while: the condition returns {condition.out_avals}, where one bool scalar is needed")
    return join_carry_vma(body.out_avals, carry, condition.out_avals[0])


def _while_numpy(*values: Any, condition: Program, body: Program, **counts: int) -> list[Any]:
    asked, given, carry = _while_groups(body, **counts).split(values)
    turn = 0
    try:
        while numpy_executor.call(condition, [*asked, *carry])[0]:
            carry, turn = numpy_executor.call(body, [*given, *carry]), turn + 1
    except CheckError as error:
        error.add_context(f"in turn {turn} of a while loop")
        raise
    return [*carry] if turn else [np.copy(value)[()] for value in carry]


def _while_emit(lax: Any, *values: Any, condition: Program, body: Program, **counts: int) -> list[Any]:
    asked, given, carry = _while_groups(body, **counts).split(values)
    outputs: list[Any] = lax.while_loop(
        lambda carry: xla_executor.emit(condition, [*asked, *carry])[0],
        lambda carry: xla_executor.emit(body, [*given, *carry]), [*carry])
    return outputs


def bind_while(condition: Program, asked: Sequence[Any], body: Program, given: Sequence[Any], carry: Sequence[Any],
               ) -> list[Any]:
    """Apply `while_p` to lists: constants of the condition and of the body, and the carry."""
    (body,), operands = make_divergent(condition.out_avals[0].vma, [body], [*given, *carry])
    return bind(while_p, *asked, *operands, condition=condition, body=body, num_condition_consts=len(asked),
                num_body_consts=len(given))


def _while_jvp(primals: list[Any], tangents: list[Any], *, condition: Program, body: Program, **counts: int,
               ) -> tuple[list[Any], list[Any]]:
    asked, given, carry = _while_groups(body, **counts).split(primals)
    _, given_tangents, carry_tangents = _while_groups(body, **counts).split(tangents)
    carry_tangents, carried = tangents_of_carry(body, given_tangents, carry_tangents)
    if not any(carried):
        return bind_while(condition, asked, body, given, carry), list(map(Zero, body.out_avals))
    separate = needs_tangent_tape(primals, tangents)
    wrt = (*nonzero_mask(given_tangents), *carried)
    step = dual_grouped(body, *step_groups(body), wrt, carried, separate)
    along = nonzero_tangents(carry_tangents)
    fixed, begin = [*step.captured, *given, *nonzero_tangents(given_tangents)], [*carry, *along]
    if separate:
        primal, captured = primal_step(step, body, wrt)
        count, outputs = _count_steps(condition, asked, primal, [*captured, *given], carry)
        results = bind_for(count, without_effects(step.program, TWICE), fixed, begin)
        _, moved = dual_outputs(body.out_avals, carried, results)
        return outputs, moved
    going = ignore_carries(condition, len(asked), behind=tuple(map(aval_of, along)))
    return dual_outputs(body.out_avals, carried, bind_while(going, asked, step.program, fixed, begin))


def ignore_carries(condition: Program, num_consts: int, before: tuple[Aval, ...] = (), behind: tuple[Aval, ...] = (),
                    ) -> Program:
    """Return a condition that takes and ignores further carried values, before or behind its own."""
    def build(consts: list[Any], before: list[Any], carry: list[Any], behind: list[Any]) -> list[Any]:
        return apply_equations(condition, [*consts, *carry])

    avals = condition.in_avals
    return derive_grouped(condition, ("ignoring", num_consts, before, behind), build, consts=avals[:num_consts],
                          before=before, carry=avals[num_consts:], behind=behind).program


def _count_steps(condition: Program, asked: Sequence[Any], body: Program, given: Sequence[Any], carry: Sequence[Any],
                 ) -> tuple[Any, list[Any]]:
    """Return the number of steps of a while loop, and its outputs."""
    def build(consts: list[Any], numbers: list[Any], carry: list[Any]) -> list[Any]:
        return [add(*numbers, Literal(1, COUNTER)), *apply_equations(body, [*consts, *carry])]

    avals = body.in_avals
    counted = derive_grouped(body, ("counted", len(given)), build, consts=avals[:len(given)], numbers=[COUNTER],
                             carry=avals[len(given):]).program
    count, *outputs = bind_while(ignore_carries(condition, len(asked), before=(COUNTER,)), asked, counted, given,
                                 [zeros(COUNTER), *carry])
    return count, outputs


def _while_transpose(cotangents: list[Any], inputs: list[Any], *, condition: Program, body: Program, **counts: int,
                     ) -> list[Any]:
    """Count the steps with the known values alone, and go back as many."""
    asked, given, carry = _while_groups(body, **counts).split(inputs)
    const_marks = linear_mask(given)
    carried = close_marks(lambda marks: dependent_outputs(body, (*const_marks, *marks)), linear_mask(carry))
    if any(linear_mask(asked)) or any(dependent_outputs(condition, (*[False] * len(asked), *carried))):
        raise LinearityError(at_user_line("cannot transpose a while loop whose condition depends on linear values"))
    # Neither the condition nor the known part of the body uses a linear value.
    known_given, known_carry = ([zeros(value.aval) if type(value) is Linear else value for value in values]
                                for values in (given, carry))
    count, _ = _count_steps(condition, asked, _freeze_carries(body, carried), known_given, known_carry)
    return [*[None] * len(asked), *transpose_steps(count, cotangents, given, carry, without_effects(body, TWICE))]


def _freeze_carries(body: Program, frozen: Marks) -> Program:
    """Return `body` with the marked carries unchanged."""
    takes, _ = step_groups(body)

    def build(*values: Any) -> tuple[list[Any], None]:
        outputs = apply_equations(select_outputs(body, [not marked for marked in frozen]), values)
        return merge_marked(frozen, select_marked(takes.split(values).carry, frozen), outputs), None
    return derive(body, ("frozen", frozen), build, body.in_avals).program


def _while_batch(size: int, values: list[Any], axes: list[int | None], *, condition: Program, body: Program,
                 **counts: int) -> tuple[list[Any], list[int | None]]:
    asked, given, carry = _while_groups(body, **counts).split(values)
    asked_axes, given_axes, carry_axes = _while_groups(body, **counts).split(axes)
    carried = batched_marks(body, size, given_axes, [axis is not None for axis in carry_axes])
    out_axes = lane_axes(carried)
    test = batched_program(condition, size, (*asked_axes, *out_axes), (None,))
    if test.extra[0]:
        flagged = batch_by_flag(while_p, size, values, axes, condition=condition, body=body, **counts)
        if flagged is not None:
            return flagged
        results = _while_batch_by_lane(size, condition, asked, asked_axes, body, given, given_axes,
                                       batch_first_if_marked(size, carry, carry_axes, [True] * len(carry)))
        return keep_unchanged_carries(body, given, carry, carry_axes, results)
    step = batched_program(body, size, (*given_axes, *out_axes), out_axes)
    outputs = bind_while(test.program, [*test.captured, *asked], step.program, [*step.captured, *given],
                         batch_first_if_marked(size, carry, carry_axes, carried))
    return outputs, list(out_axes)


def _while_batch_by_lane(size: int, condition: Program, asked: Sequence[Any], asked_axes: Sequence[int | None],
                         body: Program, given: Sequence[Any], given_axes: Sequence[int | None], carry: Sequence[Any],
                         ) -> list[Any]:
    """Run while any lane does; lanes that have stopped keep their carry."""
    refuse_effects("while_loop", (condition, body))
    lanes = [0] * len(carry)
    test = batched_program(condition, size, (*asked_axes, *lanes), (0,))

    def any_live(asked: list[Any], carry: list[Any]) -> list[Any]:
        return [reduce_or(test([*asked, *carry])[0], (0,))]

    def step(asked: list[Any], given: list[Any], carry: list[Any]) -> list[Any]:
        mask = test([*asked, *carry])[0]
        results = step_live_lanes(body, size, mask, [*given, *carry], [*given_axes, *lanes])
        return [select_live(mask, new, old) for new, old in zip(results, carry, strict=True)]

    avals = {"asked": [*map(aval_of, asked)], "carry": [*map(aval_of, carry)]}
    key = (size, tuple(asked_axes), tuple(given_axes), condition)
    going = derive_grouped(body, ("any lane", *key), any_live, **avals)
    taken = derive_grouped(body, ("lane by lane", *key), step, asked=avals["asked"], given=[*map(aval_of, given)],
                           carry=avals["carry"])
    return bind_while(going.program, [*going.captured, *asked], taken.program, [*taken.captured, *asked, *given], carry)


def _while_cost(*avals: Aval, condition: Program, body: Program, **_: int) -> Cost:
    test, step = total_cost(condition), total_cost(body)  # of one step: their number is unknown
    return Cost(test.flops + step.flops, test.bytes + step.bytes)


def _while_regions(operands: Sequence[Any], *, condition: Program, body: Program, **counts: int) -> tuple[Region, ...]:
    takes, (_, makes) = _while_groups(body, **counts), step_groups(body)
    return (Region("condition", ("condition",), condition, takes.links(condition_consts="same", carry="carry"),
                   (Links("inside", 0, len(condition.outputs)),), None),
            Region("body", ("body",), body, takes.links(body_consts="same", carry="carry"), makes.links(carry="carry"),
                   None))


while_p = register(Primitive(name="while", abstract=_while_abstract, numpy=_while_numpy, xla=_while_emit,
                             jvp=_while_jvp, transpose=_while_transpose, batch=_while_batch, cost=_while_cost,
                             regions=_while_regions))
"""(constants of the condition, constants of the body, carry) -> carry. Its cost is that of one step."""
region_roles.enter(("condition", "body"), while_p)


@rewrites.register(while_p)
def _while_rewrite(_: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Remove constants that a program does not use or gets twice, and inline numbers into it."""
    condition, body = params["condition"], params["body"]
    asked, given, carry = _while_groups(body, params["num_condition_consts"], params["num_body_consts"]).split(inputs)
    before, inside = removable_inputs(condition, asked), removable_inputs(body, given)
    if not before and not inside:
        return None
    return bind_while(remove_inputs(condition, before), remaining_operands(asked, before), remove_inputs(body, inside),
                      remaining_operands(given, inside), carry)


@partial_use.register(while_p)
def _while_in_part(equation: Equation, used: Sequence[bool]) -> Equation:
    condition, body = equation.params["condition"], equation.params["body"]
    before, inside = equation.params["num_condition_consts"], equation.params["num_body_consts"]
    asked = {place - before for place in used_input_places(condition)}
    wanted = wanted_outputs(body, used, inside, len(used), asked)
    fixed, given, carry = _while_groups(body, before, inside).split(equation.inputs)
    dropped = tuple((before + number, None) for number, mark in enumerate(wanted) if not mark)
    return with_fewer_outputs(equation, wanted, [*fixed, *given, *select_marked(carry, wanted)], {
        **equation.params, "condition": remove_inputs(condition, dropped),
        "body": keep_wanted_outputs(body, wanted, inside, len(used))})
