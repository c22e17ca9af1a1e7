"""`scan`: a program applied to each entry of its inputs in turn, with values carried from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.control.call import check_arguments
from fxgrad.control.lanes import fronted, lane_axes
from fxgrad.control.partition import Partition, keep_by_cost, partition
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
    reached_by,
    remembered,
    used,
    with_outputs,
)
from fxgrad.core import consultation
from fxgrad.core.avals import Aval
from fxgrad.core.facts import is_effectful
from fxgrad.core.interpreter import Derived, bind, derive, evaluate, holds_tracers
from fxgrad.core.primitive import Cost, Primitive, register
from fxgrad.core.program import Program, Var
from fxgrad.core.regions import Links, Region
from fxgrad.core.symbolic import Linear, Zero
from fxgrad.executors import numpy as numpy_executor
from fxgrad.executors import xla as xla_executor
from fxgrad.ops.space import instantiate, move_axis, zeros
from fxgrad.transforms.batch import batched_program
from fxgrad.transforms.cost import cost
from fxgrad.transforms.forward import spread
from fxgrad.transforms.linearize import linearized
from fxgrad.transforms.transpose import backward


class Loop(NamedTuple):
    """The parameters of a scan: how often, in which order, and which inputs are constants and carry."""

    length: int
    reverse: bool
    unroll: int
    num_consts: int
    num_carry: int

    def parts(self, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """`values` (or marks) of all inputs as those of the constants, the carry and the scanned inputs."""
        middle = self.num_consts + self.num_carry
        return list(values[:self.num_consts]), list(values[self.num_consts:middle]), list(values[middle:])

    def resized(self, consts: int, carry: int) -> dict[str, Any]:
        """As parameters, for other numbers of constants and carried values."""
        return {**self._asdict(), "num_consts": consts, "num_carry": carry}


def _abstract(*avals: Aval, program: Program, **loop: Any) -> list[Aval]:
    settings = Loop(**loop)
    consts, carry, xs = settings.parts(avals)
    check_arguments("scan", program.in_avals, [*consts, *carry, *(_entry(aval) for aval in xs)])
    check_arguments("scan", program.in_avals[settings.num_consts:][:settings.num_carry],
                    program.out_avals[:settings.num_carry])
    return [*program.out_avals[:settings.num_carry],
            *(_stacked(aval, settings.length) for aval in program.out_avals[settings.num_carry:])]


def _entry(aval: Aval) -> Aval:
    return aval.update(shape=aval.shape[1:])


def _stacked(aval: Aval, length: int) -> Aval:
    return Aval((length, *aval.shape), aval.dtype)


def _run_numpy(*values: Any, program: Program, **loop: Any) -> list[Any]:
    settings = Loop(**loop)
    consts, carry, xs = settings.parts(values)
    count = settings.num_carry
    stacks = [np.empty((settings.length, *aval.shape), aval.dtype) for aval in program.out_avals[count:]]
    steps = range(settings.length)
    for step in reversed(steps) if settings.reverse else steps:
        outputs = numpy_executor.call(program, [*consts, *carry, *(x[step] for x in xs)])
        carry = outputs[:count]
        for stack, output in zip(stacks, outputs[count:], strict=True):
            stack[step] = output
    # Without a step the carry is the input itself, which nobody may be handed.
    return [*(carry if settings.length else map(np.copy, carry)), *stacks]


def _emit(lax: Any, *values: Any, program: Program, **loop: Any) -> list[Any]:
    settings = Loop(**loop)
    consts, carry, xs = settings.parts(values)
    count = settings.num_carry

    def step(current: Any, entries: Any) -> Any:
        outputs = xla_executor.emit(program, [*consts, *current, *entries])
        return outputs[:count], outputs[count:]

    final, stacks = lax.scan(step, carry, xs, settings.length, reverse=settings.reverse, unroll=settings.unroll)
    return [*final, *stacks]


# --- forward mode -----------------------------------------------------------------------------------------


def _reached_carry(program: Program, settings: Loop, wrt: Marks) -> Marks:
    """Which carried values have a tangent at some step, given which inputs have one."""
    consts, carry, xs = settings.parts(wrt)
    return closed_marks(lambda marks: reached_by(program, (*consts, *marks, *xs))[:settings.num_carry], carry)


def _jvp(primals: list[Any], tangents: list[Any], *, program: Program, **loop: Any) -> tuple[list[Any], list[Any]]:
    settings = Loop(**loop)
    carried = _reached_carry(program, settings, moving(tangents))
    moved = _with_tangents(settings, tangents, carried)
    if apart(primals, tangents):
        return _split_jvp(primals, moved, program, settings)
    consts, carry, xs = settings.parts(moving(moved))
    wrt = (*consts, *carry, *xs)
    wanted = (*carried, *reached_by(program, wrt)[settings.num_carry:])
    derived = dual_grouped(program, (len(consts), len(carry), len(xs)), wrt, wanted)
    order = _output_order(settings.num_carry, len(program.outputs), sum(carried), sum(wanted))
    fixed, begin, entries = ([*given, *present(along)] for given, along in
                             zip(settings.parts(primals), settings.parts(moved), strict=True))
    fixed = [*derived.captured, *fixed]
    results = bind(scan_p, *fixed, *begin, *entries, program=_reordered_outputs(derived.program, order),
                   **settings.resized(len(fixed), len(begin)))
    restored: list[Any] = [None] * len(order)
    for position, result in zip(order, results, strict=True):
        restored[position] = result
    count = len(program.outputs)
    return restored[:count], _spread_outputs(program, settings, wanted, restored[count:])


def _with_tangents(settings: Loop, tangents: Sequence[Any], carried: Marks) -> list[Any]:
    """`tangents` with zeros for carried values that get a tangent at a later step."""
    consts, carry, xs = settings.parts(tangents)
    return [*consts, *(instantiate(tangent) if marked else tangent
                       for tangent, marked in zip(carry, carried, strict=True)), *xs]


def _spread_outputs(program: Program, settings: Loop, wanted: Sequence[bool], given: Sequence[Any]) -> list[Any]:
    count = settings.num_carry
    avals = [*program.out_avals[:count], *(_stacked(aval, settings.length) for aval in program.out_avals[count:])]
    return spread(avals, wanted, given)


def _output_order(carry: int, outputs: int, carry_tangents: int, tangents: int) -> list[int]:
    """(outputs, tangents) as (carry, tangents of the carry, stacked outputs, their tangents)."""
    return [*range(carry), *range(outputs, outputs + carry_tangents), *range(carry, outputs),
            *range(outputs + carry_tangents, outputs + tangents)]


def _reordered_outputs(program: Program, order: Sequence[int]) -> Program:
    return remembered(program, ("output order", tuple(order)), lambda: Program(
        program.inputs, program.equations, [program.outputs[index] for index in order], program.captured))


# --- linearization: a scan of known work that stacks what the tangent scan needs -----------------------------


class _Halves(NamedTuple):
    """The two bodies of a linearized scan, and what stands between them.

    `hoisted` computes what does not change from step to step: further constants of both bodies.
    """

    captured: list[Any]
    hoisted: Program
    parts: Partition
    wanted: Marks


def _split_jvp(primals: list[Any], tangents: list[Any], program: Program, settings: Loop,
               ) -> tuple[list[Any], list[Any]]:
    halves = _halves(program, moving(tangents), settings)
    consts, carry, xs = settings.parts(primals)
    fixed = [*halves.captured, *consts]
    fixed += evaluate(halves.hoisted, fixed)
    count = settings.num_carry
    results = bind(scan_p, *fixed, *carry, *xs, program=halves.parts.forward, **settings.resized(len(fixed), count))
    outputs, stacks = results[:len(program.outputs)], results[len(program.outputs):]
    if not any(halves.wanted):
        return outputs, _spread_outputs(program, settings, halves.wanted, [])
    consts_tangents, carry_tangents, xs_tangents = map(present, settings.parts(tangents))
    # The tangent half takes (constants, entries, stacks, tangents); unused ones are left out.
    body, known = halves.parts.tangent, [*fixed, *xs, *stacks]
    needed = used(body)[:len(known)]
    constants = chosen(fixed, needed[:len(fixed)])
    entries = chosen(known[len(fixed):], needed[len(fixed):])
    order = [index for index in range(len(fixed)) if needed[index]]
    scanned = [index for index in range(len(fixed), len(known)) if needed[index]]
    first = len(known) + len(consts_tangents)
    second = first + len(carry_tangents)
    arranged = _selected_inputs(body, (*order, *range(len(known), first), *range(first, second), *scanned,
                                       *range(second, len(body.inputs))))
    out_tangents = bind(scan_p, *constants, *consts_tangents, *carry_tangents, *entries, *xs_tangents,
                        program=arranged, **settings.resized(len(constants) + len(consts_tangents),
                                                             len(carry_tangents)))
    return outputs, _spread_outputs(program, settings, halves.wanted, out_tangents)


def _selected_inputs(program: Program, order: tuple[int, ...]) -> Program:
    """`program` taking some of its inputs, in another order; it does not use the others."""
    return remembered(program, ("selected inputs", order), lambda: Program(
        [program.inputs[index] for index in order], program.equations, program.outputs))


def _halves(program: Program, wrt: Marks, settings: Loop) -> _Halves:
    _, carry, xs = settings.parts(wrt)

    def make() -> _Halves:
        derived = linearized(program, wrt)
        reached = derived.extra.reached
        wanted = (*carry, *reached[settings.num_carry:])
        own = len(derived.captured) + settings.num_consts
        hoisted, rest = _hoist(derived.program, own)
        fixed = own + len(hoisted.outputs)
        free = (*[True] * fixed, *[False] * settings.num_carry, *[True] * len(xs))
        parts = partition(rest, len(program.outputs), derived.extra, free, keep_by_cost, wanted)
        return _Halves(derived.captured, hoisted, parts, wanted)

    key = ("scan halves", wrt, settings.num_consts, settings.num_carry)
    halves: _Halves = consultation.remembered(program, key, make, lambda halves: not holds_tracers(halves.captured))
    return halves


def _hoist(program: Program, count: int) -> tuple[Program, Program]:
    """Splits off what depends on the first `count` inputs only: (constants) -> values, and the rest given those too."""
    fixed = set(program.inputs[:count])
    outside, inside = [], []
    for equation in program.equations:
        inputs = [atom for atom in equation.inputs if type(atom) is Var]
        if fixed.issuperset(inputs) and inputs and not is_effectful(equation.primitive, equation.params):
            outside.append(equation)
            fixed.update(equation.outputs)
        else:
            inside.append(equation)
    needed = {atom for equation in inside for atom in equation.inputs} | set(program.outputs)
    passed = [var for equation in outside for var in equation.outputs if var in needed]
    first = Program(program.inputs[:count], outside, passed)
    return first, Program([*program.inputs[:count], *passed, *program.inputs[count:]], inside, program.outputs)


# --- transposition ------------------------------------------------------------------------------------------


def _transpose(cotangents: list[Any], inputs: list[Any], *, program: Program, **loop: Any) -> list[Any]:
    settings = Loop(**loop)
    linear = are_linear(inputs)
    consts, _, xs = settings.parts(linear)
    carried = closed_marks(lambda marks: dependent(program, (*consts, *marks, *xs))[:settings.num_carry],
                           settings.parts(linear)[1])
    # A carried value may begin as a known one and meet linear ones later: it is linear then, and begins as a constant.
    given_consts, given_carry, given_xs = settings.parts(inputs)
    stacks = _known_carry(program, settings, carried, given_consts, given_carry, given_xs)
    known_consts, known_xs = others(given_consts, consts), [*stacks, *others(given_xs, xs)]
    count = settings.num_carry
    ct_carry = [instantiate(cotangent) for cotangent in chosen(cotangents[:count], carried)]
    ct_stacks = cotangents[count:]
    body = _transposed_body(program, settings, (*consts, *carried, *xs), moving(ct_stacks))
    sums = [zeros(aval.strong()) for aval in chosen(program.in_avals[:settings.num_consts], consts)]
    results = bind(scan_p, *body.captured, *known_consts, *sums, *ct_carry, *known_xs, *present(ct_stacks),
                   program=body.program, length=settings.length, reverse=not settings.reverse, unroll=settings.unroll,
                   num_consts=len(body.captured) + len(known_consts), num_carry=len(sums) + len(ct_carry))
    remaining = iter(results)
    found: list[Any] = [next(remaining) if marked else None for marked in consts]
    for value, marked in zip(given_carry, carried, strict=True):
        cotangent = next(remaining) if marked else None
        found.append(cotangent if type(value) is Linear else None)
    return found + [next(remaining) if marked else None for marked in xs]


def _known_carry(program: Program, settings: Loop, carried: Marks, consts: Sequence[Any], carry: Sequence[Any],
                 xs: Sequence[Any]) -> list[Any]:
    """The carried values that are not linear, at every step: a scan of the known part alone."""
    keep = [not marked for marked in carried]
    if not any(keep):
        return []
    count = settings.num_carry
    known = with_outputs(program, [*keep, *[False] * (len(program.outputs) - count)])
    linear = (*are_linear(consts), *carried, *are_linear(xs))
    first = settings.num_consts

    def build(*values: Any) -> tuple[list[Any], None]:
        given = iter(values)
        inputs = [Linear(aval) if marked else next(given)
                  for aval, marked in zip(program.in_avals, linear, strict=True)]
        current = others(inputs[first:first + count], carried)
        # A linear input is used by nothing here.
        filled = [zeros(aval) if type(value) is Linear else value
                  for aval, value in zip(program.in_avals, inputs, strict=True)]
        return [*evaluate(known, filled), *current], None

    body = derive(known, ("known carry", linear, first, count), build, others(program.in_avals, linear)).program
    given_consts, given_carry, given_xs = others(consts, are_linear(consts)), chosen(carry, keep), \
        others(xs, are_linear(xs))
    results = bind(scan_p, *given_consts, *given_carry, *given_xs, program=body,
                   **settings.resized(len(given_consts), len(given_carry)))
    return results[len(given_carry):]


def _transposed_body(program: Program, settings: Loop, linear: Marks, arriving: Marks) -> Derived:
    """One step backwards.

    (known constants; sums for linear constants, cotangents of the carry; known carry, known entries, cotangents of
    those stacked outputs that `arriving` marks) -> (sums, cotangents of the carry; cotangents of linear entries).
    """
    avals = program.in_avals
    consts, carry, xs = settings.parts(linear)
    const_avals, carry_avals, x_avals = settings.parts(avals)
    out_avals = program.out_avals[settings.num_carry:]
    sizes = [*map(len, (others(const_avals, consts), chosen(const_avals, consts), chosen(carry_avals, carry),
                        others(carry_avals, carry), others(x_avals, xs)))]
    in_avals = [*others(const_avals, consts), *(aval.strong() for aval in chosen(const_avals, consts)),
                *chosen(carry_avals, carry), *others(carry_avals, carry), *others(x_avals, xs),
                *chosen(out_avals, arriving)]

    def build(*values: Any) -> tuple[list[Any], None]:
        given = iter(values)
        known_consts, sums, ct_carry, known_carry, known_xs = (
            [next(given) for _ in range(size)] for size in sizes)
        known = iter([*known_consts, *known_carry, *known_xs])
        inputs = [Linear(aval) if marked else next(known) for aval, marked in zip(avals, linear, strict=True)]
        cotangents_in = iter(ct_carry)
        cotangents = [next(cotangents_in) if marked else Zero(aval)
                      for aval, marked in zip(program.out_avals, carry, strict=False)]
        cotangents += spread(out_avals, arriving, list(given))
        found_consts, found_carry, found_xs = settings.parts(backward(program, inputs, cotangents))
        return [*added(sums, chosen(found_consts, consts)), *map(instantiate, chosen(found_carry, carry)),
                *map(instantiate, chosen(found_xs, xs))], None

    key = ("transposed step", linear, arriving, settings.num_consts, settings.num_carry)
    return derive(program, key, build, in_avals)


# --- batching -------------------------------------------------------------------------------------------------


def _batch(size: int, values: list[Any], axes: list[int | None], *, program: Program, **loop: Any,
           ) -> tuple[list[Any], list[int | None]]:
    settings = Loop(**loop)
    count = settings.num_carry
    consts, carry, xs = settings.parts(values)
    const_axes, carry_axes, x_axes = settings.parts(axes)
    # Entries of a scanned input have the batch axis first, so the input has it second.
    xs = [x if axis is None else move_axis(x, axis, 1) for x, axis in zip(xs, x_axes, strict=True)]

    def in_axes(marks: Marks) -> tuple[int | None, ...]:
        return (*const_axes, *lane_axes(marks), *(None if axis is None else 0 for axis in x_axes))

    open_axes = (None,) * len(program.outputs)
    carried = closed_marks(lambda marks: batched_program(program, size, in_axes(marks), open_axes).extra[:count],
                           [axis is not None for axis in carry_axes])
    stacked = batched_program(program, size, in_axes(carried), open_axes).extra[count:]
    out_axes = lane_axes((*carried, *stacked))
    derived = batched_program(program, size, in_axes(carried), out_axes)
    carry = fronted(size, carry, carry_axes, carried)
    results = bind(scan_p, *derived.captured, *consts, *carry, *xs, program=derived.program,
                   **settings.resized(len(derived.captured) + len(consts), count))
    return results, [*out_axes[:count], *(None if axis is None else 1 for axis in out_axes[count:])]


def _cost(*avals: Aval, program: Program, length: int, **_: Any) -> Cost:
    one = cost(program)
    return Cost(length * one.flops, length * one.bytes)


def _regions(operands: Sequence[Any], *, program: Program, **loop: Any) -> tuple[Region, ...]:
    settings = Loop(**loop)
    consts, carry = settings.num_consts, settings.num_carry
    taken = consts + carry
    inputs = (Links("same", 0, consts), Links("carry", consts, carry),
              Links("entry", taken, len(program.inputs) - taken))
    outputs = (Links("carry", 0, carry), Links("entry", carry, len(program.outputs) - carry))
    return (Region("body", ("program",), program, inputs, outputs, settings.length, settings.reverse),)


scan_p = register(Primitive(name="scan", abstract=_abstract, numpy=_run_numpy, xla=_emit, jvp=_jvp,
                            transpose=_transpose, batch=_batch, cost=_cost, regions=_regions))
"""(constants, carry, stacked inputs) -> (carry, stacked outputs), one step for each entry."""


def scan(program: Program, consts: Sequence[Any], carry: Sequence[Any], xs: Sequence[Any], length: int,
         reverse: bool = False, unroll: int = 1) -> list[Any]:
    """Applies `scan_p` to lists of constants, carried values and stacked inputs."""
    return bind(scan_p, *consts, *carry, *xs, program=program, length=length, reverse=reverse, unroll=unroll,
                num_consts=len(consts), num_carry=len(carry))
