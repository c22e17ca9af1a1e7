"""`bind_scan`: apply a program to each entry of its inputs in turn, carrying values from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.analyses.cost import total_cost
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Cost, Primitive, register
from fxgrad.engine.core.program import Equation, Program, Variable
from fxgrad.engine.core.program_properties import is_effectful
from fxgrad.engine.core.regions import Region, close_marks, dependent_outputs, region_roles
from fxgrad.engine.derivation.derive import Derived, holds_tracers
from fxgrad.engine.derivation.guards import memoize_guarded
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.derivation.simplify import partial_use
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.executors import xla as xla_executor
from fxgrad.engine.higher_order.call import check_arguments
from fxgrad.engine.higher_order.groups import (
    Groups,
    Marks,
    cotangents_of,
    derive_grouped,
    groups_of,
    join_groups,
    linear_mask,
    nonzero_mask,
    nonzero_tangents,
    select_marked,
    select_unmarked,
    with_markers,
    with_zeros,
)
from fxgrad.engine.higher_order.masking import batch_first_if_marked, lane_axes
from fxgrad.engine.higher_order.narrowing import (
    duplicate_outputs,
    keep_wanted_outputs,
    remaining_operands,
    removable_inputs,
    remove_inputs,
    wanted_outputs,
    with_fewer_outputs,
)
from fxgrad.engine.higher_order.partition import Partition, partition
from fxgrad.engine.higher_order.saving import keep_by_cost
from fxgrad.engine.higher_order.wiring import (
    add_tangents,
    dual_grouped,
    join_carry_vma,
    needs_tangent_tape,
    nonzero_outputs_of,
    select_inputs,
    select_outputs,
    used_inputs,
)
from fxgrad.engine.ops.structural import instantiate_zeros, move_axis, zeros
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.transforms.batch import batched_program
from fxgrad.engine.transforms.forward import fill_zeros
from fxgrad.engine.transforms.linearize import linearize_program
from fxgrad.engine.transforms.transpose import backward_pass
from fxgrad.errors import CheckError


class ScanInputs(NamedTuple):
    """The groups of the inputs; the program takes single entries of `xs`."""

    consts: Sequence[Any]
    carry: Sequence[Any]
    xs: Sequence[Any]


class ScanOutputs(NamedTuple):
    """The groups of the outputs; the program returns single entries of `ys`."""

    carry: Sequence[Any]
    ys: Sequence[Any]


class Turns(NamedTuple):
    """Which turns of a longer loop, the user's, the steps of a scan are: step i begins with turn first + i * size.

    `total` is the number of turns of that loop. In a block of turns, which an outer scan counts, it is 0.
    """

    first: int
    size: int
    total: int


class Loop(NamedTuple):
    """The parameters of a scan except its program: length, order, and which inputs are constants and carry."""

    length: int
    reverse: bool
    unroll: int
    num_consts: int
    num_carry: int
    turns: tuple[int, int, int] | None = None

    def takes(self, program: Program) -> Groups[ScanInputs]:
        """Return the groups of the inputs of a scan of `program`, and of the program."""
        xs = len(program.inputs) - self.num_consts - self.num_carry
        return groups_of(ScanInputs, self.num_consts, self.num_carry, xs)

    def makes(self, program: Program) -> Groups[ScanOutputs]:
        """Return the groups of the outputs of a scan of `program`, and of the program."""
        return groups_of(ScanOutputs, self.num_carry, len(program.outputs) - self.num_carry)

    def again(self, program: Program, consts: Sequence[Any], carry: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        """Bind a scan of as many steps, in the same order."""
        return bind_scan(program, consts, carry, xs, self.length, self.reverse, self.unroll, self.turns)

    def split_turns(self, first: int, size: int = 1) -> tuple[Turns, Turns]:
        """Return the turns of a scan over blocks of `size` steps from step `first` on, and those of one block."""
        start, each, total = self.turns or Turns(0, 1, self.length)
        return Turns(start + first * each, size * each, total), Turns(0, each, 0)

    def locate(self, error: CheckError, step: int) -> None:
        """Add the turn to the error of a check that failed in this step."""
        if self.turns is None:
            turn, total = step, self.length
        else:
            first, size, total = self.turns
            turn = first + step * size + error.turn_of_block
        error.turn_of_block = 0 if total else turn
        if total:
            error.add_context(f"in turn {turn} of {total} of a scan")


def bind_scan(program: Program, consts: Sequence[Any], carry: Sequence[Any], xs: Sequence[Any], length: int,
              reverse: bool = False, unroll: int = 1, turns: tuple[int, int, int] | None = None) -> list[Any]:
    """Apply `scan_p` to lists of constants, carried values and stacked inputs."""
    named = {} if turns is None else {"turns": tuple(turns)}
    return bind(scan_p, *consts, *carry, *xs, program=program, length=length, reverse=reverse, unroll=unroll,
                num_consts=len(consts), num_carry=len(carry), **named)


def _abstract(*avals: Aval, program: Program, **params: Any) -> list[Aval]:
    loop = Loop(**params)
    takes, makes = loop.takes(program), loop.makes(program)
    consts, carry, xs = takes.split(avals)
    check_arguments("scan", program.in_avals, [*consts, *carry, *(aval.without_axis(0) for aval in xs)])
    check_arguments("scan", takes.split(program.in_avals).carry, makes.split(program.out_avals).carry)
    outputs = _out_avals(program, loop)
    return [*join_carry_vma(outputs[:loop.num_carry], carry), *outputs[loop.num_carry:]]


def _out_avals(program: Program, loop: Loop) -> list[Aval]:
    carry, ys = loop.makes(program).split(program.out_avals)
    return [*carry, *(aval.update(shape=(loop.length, *aval.shape)) for aval in ys)]


def _run_numpy(*values: Any, program: Program, **params: Any) -> list[Any]:
    loop = Loop(**params)
    consts, carry, xs = loop.takes(program).split(values)
    count = loop.num_carry
    stacks = [np.empty((loop.length, *aval.shape), aval.dtype) for aval in program.out_avals[count:]]
    steps = range(loop.length)
    for step in reversed(steps) if loop.reverse else steps:
        try:
            outputs = numpy_executor.call(program, [*consts, *carry, *(x[step] for x in xs)])
        except CheckError as error:
            loop.locate(error, step)
            raise
        carry = outputs[:count]
        for stack, output in zip(stacks, outputs[count:], strict=True):
            stack[step] = output
    # Without a step the carry is the input itself, which must not be aliased.
    return [*(carry if loop.length else map(np.copy, carry)), *stacks]


def _emit(lax: Any, *values: Any, program: Program, **params: Any) -> list[Any]:
    loop = Loop(**params)
    consts, carry, xs = loop.takes(program).split(values)
    makes = loop.makes(program)

    def step(current: Any, entries: Any) -> Any:
        return (*makes.split(xla_executor.emit(program, [*consts, *current, *entries])),)

    length = loop.length if isinstance(loop.length, int) or not xs else None  # jax takes no symbolic size for it
    final, stacks = lax.scan(step, [*carry], xs, length, reverse=loop.reverse, unroll=loop.unroll)
    return [*final, *stacks]


# --- forward mode -----------------------------------------------------------------------------------------


def _nonzero_carry(program: Program, loop: Loop, wrt: Marks) -> Marks:
    """Return a mask of carried values that have a tangent at some step."""
    consts, carry, xs = loop.takes(program).split(wrt)
    makes = loop.makes(program)
    return close_marks(lambda marks: makes.split(nonzero_outputs_of(program, (*consts, *marks, *xs))).carry, carry)


def _jvp(primals: list[Any], tangents: list[Any], *, program: Program, **params: Any) -> tuple[list[Any], list[Any]]:
    loop = Loop(**params)
    takes, makes = loop.takes(program), loop.makes(program)
    carried = _nonzero_carry(program, loop, nonzero_mask(tangents))
    # A carried value that gets a tangent at a later step has a zero until then.
    consts, carry, xs = takes.split(tangents)
    tangents = [*consts, *(instantiate_zeros(tangent) if marked else tangent
                           for tangent, marked in zip(carry, carried, strict=True)), *xs]
    if needs_tangent_tape(primals, tangents):
        return _split_jvp(primals, tangents, program, loop)
    wrt = nonzero_mask(tangents)
    wanted = (*carried, *makes.split(nonzero_outputs_of(program, wrt)).ys)
    both = dual_grouped(program, takes, makes, wrt, wanted)
    consts, carry, xs = takes.with_tangents(primals, tangents)
    outputs, found = makes.without_tangents(loop.again(both.program, [*both.captured, *consts], carry, xs), wanted)
    return outputs, fill_zeros(_out_avals(program, loop), wanted, found)


# --- linearization: a scan of known work stacks residuals for the tangent scan -----------------------------


class _Halves(NamedTuple):
    """The two bodies of a linearized scan, and the residuals between them.

    `hoisted` computes loop-invariant values: further constants of both bodies.
    """

    captured: Sequence[Any]
    hoisted: Program
    parts: Partition
    wanted: Marks


class _Half(NamedTuple):
    """The inputs of the tangent half: known constants, known entries and stacks, and the tangents of each group."""

    fixed: Sequence[Any]
    entries: Sequence[Any]
    consts: Sequence[Any]
    carry: Sequence[Any]
    xs: Sequence[Any]


def _split_jvp(primals: list[Any], tangents: list[Any], program: Program, loop: Loop) -> tuple[list[Any], list[Any]]:
    halves = _linearized_halves(program, nonzero_mask(tangents), loop)
    consts, carry, xs = loop.takes(program).split(primals)
    fixed = [*halves.captured, *consts]
    fixed += apply_equations(halves.hoisted, fixed)
    results = loop.again(halves.parts.forward, fixed, carry, xs)
    outputs, stacks = results[:len(program.outputs)], results[len(program.outputs):]
    if not any(halves.wanted):
        return outputs, fill_zeros(_out_avals(program, loop), halves.wanted, [])
    moved = loop.takes(program).each(nonzero_tangents, tangents)
    body, given = halves.parts.tangent, _Half(fixed, [*xs, *stacks], *moved)
    takes = groups_of(_Half, *map(len, given))
    at, needed = takes.split(range(len(body.inputs))), takes.split(used_inputs(body))
    # Known and unused inputs are removed.
    places = ScanInputs([*select_marked(at.fixed, needed.fixed), *at.consts], at.carry,
                        [*select_marked(at.entries, needed.entries), *at.xs])
    values = join_groups(given)
    found = loop.again(select_inputs(body, tuple(join_groups(places))), *([values[place] for place in group]
                                                                          for group in places))
    return outputs, fill_zeros(_out_avals(program, loop), halves.wanted, found)


def _linearized_halves(program: Program, wrt: Marks, loop: Loop) -> _Halves:
    takes, makes = loop.takes(program), loop.makes(program)

    def make(_: Any) -> _Halves:
        derived = linearize_program(program, wrt)
        reached = derived.extra.nonzero_outputs
        wanted = (*takes.split(wrt).carry, *makes.split(reached).ys)
        own = len(derived.captured) + loop.num_consts
        hoisted, rest = _hoist_constant_part(derived.program, own)
        _, carry, xs = takes.split(program.inputs)
        free = (*[True] * (own + len(hoisted.outputs)), *[False] * len(carry), *[True] * len(xs))
        parts = partition(rest, len(program.outputs), derived.extra, free, keep_by_cost, wanted)
        return _Halves(derived.captured, hoisted, parts, wanted)

    key = ("scan halves", wrt, loop.num_consts, loop.num_carry)
    halves: _Halves = memoize_guarded(program, key, make, lambda halves: not holds_tracers(halves.captured))
    return halves


def _hoist_constant_part(program: Program, count: int) -> tuple[Program, Program]:
    """Split off the computations of the first `count` inputs alone: (constants) -> values, and the rest given those."""
    fixed = set(program.inputs[:count])
    outside, inside = [], []
    for equation in program.equations:
        inputs = [atom for atom in equation.inputs if type(atom) is Variable]
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


def _transpose(cotangents: list[Any], inputs: list[Any], *, program: Program, **params: Any) -> list[Any]:
    loop = Loop(**params)
    takes, makes = loop.takes(program), loop.makes(program)
    consts, carry, xs = takes.split(linear_mask(inputs))
    # A carry may start as known and meet linear values later: then it is linear, and starts as a constant.
    carried = close_marks(lambda marks: makes.split(dependent_outputs(program, (*consts, *marks, *xs))).carry, carry)
    linear = (*consts, *carried, *xs)
    states = _known_carry(program, loop, linear, inputs)
    known, moved = takes.each(select_unmarked, inputs, linear), takes.each(select_marked, program.in_avals, linear)
    ct_carry, ct_ys = makes.split(cotangents)
    arriving = [instantiate_zeros(cotangent) for cotangent in select_marked(ct_carry, carried)]
    body = _backward_body(program, loop, linear, nonzero_mask(ct_ys))
    sums = [zeros(aval.strong()) for aval in moved.consts]
    found = bind_scan(body.program, [*body.captured, *known.consts], [*sums, *arriving],
                      [*states, *known.xs, *nonzero_tangents(ct_ys)], loop.length, not loop.reverse, loop.unroll,
                      loop.turns)
    return cotangents_of(inputs, linear, found)


def _known_carry(program: Program, loop: Loop, linear: Marks, inputs: Sequence[Any]) -> list[Any]:
    """Return the nonlinear carried values at every step, by a scan of the known part alone."""
    takes, makes = loop.takes(program), loop.makes(program)
    known, avals = takes.each(select_unmarked, inputs, linear), takes.each(select_unmarked, program.in_avals, linear)
    if not known.carry:
        return []
    _, ys = makes.split(program.outputs)
    kept = select_outputs(program, [*(not marked for marked in takes.split(linear).carry), *[False] * len(ys)])

    def build(consts: list[Any], carry: list[Any], xs: list[Any]) -> list[Any]:
        return [*apply_equations(kept, with_zeros(program.in_avals, linear, [*consts, *carry, *xs])), *carry]

    key = ("known carry", linear, loop.num_consts, loop.num_carry)
    body = derive_grouped(kept, key, build, **avals._asdict()).program
    return loop.again(body, *known)[len(known.carry):]


def _backward_body(program: Program, loop: Loop, linear: Marks, arriving: Marks) -> Derived:
    """Return the backward step.

    (known constants; sums for linear constants, cotangents of the carry; known carry, known entries, cotangents of
    those stacked outputs that `arriving` marks) -> (sums, cotangents of the carry; cotangents of linear entries).
    """
    takes, makes = loop.takes(program), loop.makes(program)
    avals, marks = program.in_avals, takes.split(linear)
    known, moved = takes.each(select_unmarked, avals, linear), takes.each(select_marked, avals, linear)

    def build(consts: list[Any], sums: list[Any], ct_carry: list[Any], carry: list[Any], xs: list[Any],
              ct_ys: list[Any]) -> list[Any]:
        inputs = with_markers(avals, linear, [*consts, *carry, *xs])
        cotangents = fill_zeros(program.out_avals, (*marks.carry, *arriving), [*ct_carry, *ct_ys])
        found = takes.each(select_marked, backward_pass(program, inputs, cotangents), linear)
        return [*add_tangents(sums, found.consts), *map(instantiate_zeros, found.carry),
                *map(instantiate_zeros, found.xs)]

    key = ("transposed step", linear, arriving, loop.num_consts, loop.num_carry)
    return derive_grouped(
        program, key, build, consts=known.consts, sums=[aval.strong() for aval in moved.consts], ct_carry=moved.carry,
        carry=known.carry, xs=known.xs, ct_ys=select_marked(makes.split(program.out_avals).ys, arriving))


# --- batching -------------------------------------------------------------------------------------------------


def _batch(size: int, values: list[Any], axes: list[int | None], *, program: Program, **params: Any,
           ) -> tuple[list[Any], list[int | None]]:
    loop = Loop(**params)
    takes, makes = loop.takes(program), loop.makes(program)
    consts, carry, xs = takes.split(values)
    const_axes, carry_axes, x_axes = takes.split(axes)
    # Entries of a scanned input have the batch axis first, so the input has it second.
    xs = [x if axis is None else move_axis(x, axis, 1) for x, axis in zip(xs, x_axes, strict=True)]

    def in_axes(marks: Marks) -> tuple[int | None, ...]:
        return (*const_axes, *lane_axes(marks), *(None if axis is None else 0 for axis in x_axes))

    open_axes = (None,) * len(program.outputs)
    carried = close_marks(
        lambda marks: makes.split(batched_program(program, size, in_axes(marks), open_axes).extra).carry,
        [axis is not None for axis in carry_axes])
    _, stacked = makes.split(batched_program(program, size, in_axes(carried), open_axes).extra)
    carried_axes, stacked_axes = lane_axes(carried), lane_axes(stacked)
    derived = batched_program(program, size, in_axes(carried), (*carried_axes, *stacked_axes))
    results = loop.again(derived.program, [*derived.captured, *consts],
                         batch_first_if_marked(size, carry, carry_axes, carried), xs)
    return results, [*carried_axes, *(None if axis is None else 1 for axis in stacked_axes)]


def _cost(*avals: Aval, program: Program, length: int, **_: Any) -> Cost:
    one = total_cost(program)
    return Cost(length * one.flops, length * one.bytes)


def _regions(operands: Sequence[Any], *, program: Program, **params: Any) -> tuple[Region, ...]:
    loop = Loop(**params)
    return (Region("body", ("program",), program, loop.takes(program).links(consts="same", carry="carry", xs="entry"),
                   loop.makes(program).links(carry="carry", ys="entry"), loop.length, loop.reverse),)


scan_p = register(Primitive(name="scan", abstract=_abstract, numpy=_run_numpy, xla=_emit, jvp=_jvp,
                            transpose=_transpose, batch=_batch, cost=_cost, regions=_regions))
"""(constants, carry, stacked inputs) -> (carry, stacked outputs), one step for each entry."""
region_roles.enter(("body",), scan_p)


@rewrites.register(scan_p)
def _scan_rewrite(_: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Remove what the body does not use, gets twice or returns twice; inline numbers among its constants."""
    program = params["program"]
    loop = Loop(**{name: value for name, value in params.items() if name != "program"})
    consts, carry, xs = loop.takes(program).split(inputs)
    behind = loop.num_consts + loop.num_carry
    fixed, entries = removable_inputs(program, consts), removable_inputs(program, xs, behind)
    stacks = duplicate_outputs(program, loop.num_carry)
    firsts = [place == stacks.index(number) for place, number in enumerate(stacks)]
    if not (fixed or entries) and all(firsts):
        return None
    body = select_outputs(remove_inputs(program, fixed + entries), [*[True] * loop.num_carry, *firsts])
    results = loop.again(body, remaining_operands(consts, fixed), carry, remaining_operands(xs, entries, behind))
    return [*results[:loop.num_carry], *(results[loop.num_carry + number] for number in stacks)]


@partial_use.register(scan_p)
def _scan_in_part(equation: Equation, used: Sequence[bool]) -> Equation:
    program = equation.params["program"]
    loop = Loop(**{name: value for name, value in equation.params.items() if name != "program"})
    wanted = wanted_outputs(program, used, loop.num_consts, loop.num_carry)
    consts, carry, xs = loop.takes(program).split(equation.inputs)
    kept_carry = select_marked(carry, wanted[:loop.num_carry])
    body = keep_wanted_outputs(program, wanted, loop.num_consts, loop.num_carry)
    return with_fewer_outputs(equation, wanted, [*consts, *kept_carry, *xs],
                              {**equation.params, "program": body, "num_carry": len(kept_carry)})
