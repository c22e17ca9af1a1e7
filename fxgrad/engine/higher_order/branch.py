"""`cond`: one of several programs, chosen by an index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.cost import total_cost
from fxgrad.engine.analyses.fusing import ALIAS, CHEAP, EXPENSIVE, VIEW, fusion_kind
from fxgrad.engine.core.avals import INVARIANT, PYTHON_SCALARS, Aval, Literal
from fxgrad.engine.core.primitive import Cost, Primitive, register
from fxgrad.engine.core.program import Program, Variable
from fxgrad.engine.core.regions import Region, region_roles, whole_region
from fxgrad.engine.derivation.derive import Derived, derive
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.executors import xla as xla_executor
from fxgrad.engine.higher_order.call import check_arguments
from fxgrad.engine.higher_order.divergent import make_divergent
from fxgrad.engine.higher_order.groups import (
    cotangents_of,
    join_groups,
    linear_mask,
    nonzero_mask,
    nonzero_tangents,
    select_unmarked,
    split_by_sizes,
)
from fxgrad.engine.higher_order.masking import (
    batch_by_flag,
    expand_mask,
    fill_dead_lanes,
    masking_dead_lanes,
    may_raise,
    passthrough_inputs,
    raising_where_live,
    refuse_effects,
)
from fxgrad.engine.higher_order.narrowing import remaining_operands, remove_inputs, used_input_places
from fxgrad.engine.higher_order.partition import partition
from fxgrad.engine.higher_order.saving import keep_by_cost
from fxgrad.engine.higher_order.wiring import dual_outputs, dual_program, needs_tangent_tape, rewire
from fxgrad.engine.ops.comparison import eq, not_
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.reductions import reduce_or
from fxgrad.engine.ops.select import clamp, select_n
from fxgrad.engine.ops.structural import instantiate_zeros, zeros
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.transforms.batch import batched_program
from fxgrad.engine.transforms.forward import fill_zeros
from fxgrad.engine.transforms.linearize import linearize_program
from fxgrad.engine.transforms.transpose import transpose_program
from fxgrad.errors import DTypeError, ProgramError

Branches = tuple[Program, ...]


def _abstract(index: Aval, *avals: Aval, branches: Branches) -> list[Aval]:
    if index.shape != () or not (index.dtype == dtypes.int32 or (index.dtype == dtypes.bool_ and len(branches) == 2)):
        raise DTypeError("cond: the index of the branch must be an int32 scalar, or a bool to choose between two, got "
                         f"{index}")
    first, *rest = branches
    check_arguments("cond", first.in_avals, avals)
    for branch in rest:
        check_arguments("cond", branch.in_avals, avals)
        if [(aval.shape, aval.dtype) for aval in branch.out_avals] != [
                (aval.shape, aval.dtype) for aval in first.out_avals]:
            raise ProgramError(f"cond: the branches return {first.out_avals} and {branch.out_avals}, where equal types "
                               "are needed")
    return [aval.varying(index.vma) for aval in _out_avals(branches)]


def _out_avals(branches: Branches) -> list[Aval]:
    """Return the types of the outputs, joined over all branches."""
    return [Aval(outputs[0].shape, outputs[0].dtype, all(aval.weak for aval in outputs),
                 INVARIANT.union(*(aval.vma for aval in outputs)))
            for outputs in zip(*(branch.out_avals for branch in branches), strict=True)]


def _run_numpy(index: Any, *values: Any, branches: Branches) -> list[Any]:
    outputs = numpy_executor.call(branches[min(max(int(index), 0), len(branches) - 1)], values)
    return numpy_executor.copy_borrowed(outputs, range(len(outputs)), values)


SHORT = 64
"""So many flops may a branch take that is computed whether it is chosen or not.

A conditional of XLA's on a CPU costs as much; it is a function of its own for the compiler, and ends fused loops.
"""


def _emit(lax: Any, index: Any, *values: Any, branches: Branches) -> list[Any]:
    together, last = _out_avals(branches), len(branches) - 1
    if type(index) in PYTHON_SCALARS:  # a literal
        index = np.asarray(index, dtypes.bool_ if type(index) is bool else dtypes.int32)
    is_bool = index.dtype == dtypes.bool_
    if all(map(_is_short, branches)):
        which = index if is_bool else (
            lax.gt(index, np.int32(0)) if last == 1 else lax.clamp(np.int32(0), index, np.int32(last)))
        results = [xla_executor.emit(branch, values) for branch in branches]
        return [lax.select_n(which, *cases) for cases in zip(*results, strict=True)]

    def body(branch: Program) -> Any:
        return lambda *operands: [*map(xla_executor.as_varying, xla_executor.emit(branch, operands), together)]
    outputs: list[Any] = (lax.cond(index, *map(body, branches[::-1]), *values) if is_bool else
                          lax.switch(index, [*map(body, branches)], *values))
    return outputs


def _is_short(program: Program) -> bool:
    """Return whether a program is a few operations on scalars, without effects."""
    variables = [*program.outputs, *(out for equation in program.equations for out in equation.outputs)]
    return all(each.aval.shape == () and not each.aval.vma for each in variables) and all(
        fusion_kind(equation) in (CHEAP, EXPENSIVE, ALIAS, VIEW) for equation in program.equations
    ) and total_cost(program).flops <= SHORT


def bind_cond(index: Any, parts: Sequence[Derived], operands: Sequence[Any]) -> list[Any]:
    """Apply `cond_p` to branches with captured values of their own, which become inputs of all."""
    captured = join_groups(part.captured for part in parts)
    places = split_by_sizes(range(len(captured)), [len(part.captured) for part in parts])
    branches = []
    for part, own in zip(parts, places, strict=True):
        avals = (*map(aval_of, captured), *part.program.in_avals[len(own):])
        branches.append(rewire(part.program, avals, (*own, *range(len(captured), len(avals)))))
    return bind_branches(index, branches, [*captured, *operands])


def bind_branches(index: Any, branches: Sequence[Program], operands: Sequence[Any]) -> list[Any]:
    """Apply `cond_p` to branches of the same inputs."""
    programs, given = make_divergent(aval_of(index).vma, branches, operands)
    return bind(cond_p, index, *given, branches=programs)


def _jvp(primals: list[Any], tangents: list[Any], *, branches: Branches) -> tuple[list[Any], list[Any]]:
    index, *operands = primals
    wrt = nonzero_mask(tangents[1:])
    if needs_tangent_tape(primals, tangents):
        return _split_jvp(index, operands, tangents[1:], branches)
    reached = tuple(any(marks) for marks in zip(*(dual_program(branch, wrt).extra for branch in branches), strict=True))
    parts = [dual_program(branch, wrt, reached) for branch in branches]
    results = bind_cond(index, parts, [*operands, *nonzero_tangents(tangents[1:])])
    return dual_outputs(branches[0].out_avals, reached, results)


def _split_jvp(index: Any, operands: list[Any], tangents: list[Any], branches: Branches,
               ) -> tuple[list[Any], list[Any]]:
    """Bind known work in one `cond`, tangent work in another, and saved values in slots that the branches share."""
    wrt, count = nonzero_mask(tangents), len(branches[0].outputs)
    linear = [linearize_program(branch, wrt) for branch in branches]
    reached = tuple(any(marks) for marks in zip(*(part.extra.nonzero_outputs for part in linear), strict=True))
    parts = [partition(part.program, count, part.extra, (True,) * len(part.program.inputs), keep_by_cost, reached)
             for part in linear]
    most: Counter[Aval] = Counter()  # the fewest slots, by type, that hold the saved values of any branch
    for part in parts:
        most |= Counter(var.aval.strong() for var in part.saved)
    slots = list(most.elements())
    places = [_places(slots, part.saved) for part in parts]
    known = [Derived(_fill_slots(part.forward, count, slots, place), one.captured, None)
             for part, place, one in zip(parts, places, linear, strict=True)]
    results = bind_cond(index, known, operands)
    outputs, saved = results[:count], results[count:]
    if not any(reached):
        return outputs, fill_zeros(branches[0].out_avals, reached, [])
    rest = (*map(aval_of, operands), *slots, *(aval_of(tangent) for tangent in nonzero_tangents(tangents)))
    halves = []
    for part, place, one in zip(parts, places, linear, strict=True):
        avals = (*map(aval_of, one.captured), *rest)
        inputs, at_slots, at_tangents = split_by_sizes(
            range(len(avals)), (len(one.captured) + len(operands), len(slots), sum(wrt)))
        positions = (*inputs, *(at_slots[slot] for slot in place), *at_tangents)
        halves.append(Derived(rewire(part.tangent, avals, positions), one.captured, None))
    out_tangents = bind_cond(index, halves, [*operands, *saved, *nonzero_tangents(tangents)])
    return outputs, fill_zeros(branches[0].out_avals, reached, out_tangents)


def _places(slots: Sequence[Aval], saved: Sequence[Variable]) -> tuple[int, ...]:
    """Return the slot of each saved value."""
    remaining = list(enumerate(slots))
    places = []
    for var in saved:
        entry = next(entry for entry in remaining if entry[1] == var.aval.strong())
        remaining.remove(entry)
        places.append(entry[0])
    return tuple(places)


def _fill_slots(program: Program, count: int, slots: Sequence[Aval], places: tuple[int, ...]) -> Program:
    """Return `program` with its saved values in their slots, and zeros in the slots of other branches."""
    def build(*values: Any) -> tuple[list[Any], None]:
        results = apply_equations(program, values)
        filled = dict(zip(places, results[count:], strict=True))
        return [*results[:count], *(filled[slot] if slot in filled else zeros(aval)
                                    for slot, aval in enumerate(slots))], None
    return derive(program, ("slots", tuple(slots), places), build, program.in_avals).program


def _transpose(cotangents: list[Any], inputs: list[Any], *, branches: Branches) -> list[Any]:
    index, *operands = inputs
    linear = linear_mask(operands)
    parts = [transpose_program(branch, linear) for branch in branches]
    found = bind_cond(index, parts, [*select_unmarked(operands, linear), *map(instantiate_zeros, cotangents)])
    return [None, *cotangents_of(operands, linear, found)]


def _batch(size: int, values: list[Any], axes: list[int | None], *, branches: Branches,
           ) -> tuple[list[Any], list[int | None]]:
    index, *operands = values
    if axes[0] is not None:
        flagged = batch_by_flag(cond_p, size, values, axes, branches=branches)
        return flagged or _batch_by_selecting(size, index, operands, axes[1:], branches)
    in_axes = tuple(axes[1:])
    open_axes = (None,) * len(branches[0].outputs)
    batched = [any(marks) for marks in zip(
        *(batched_program(branch, size, in_axes, open_axes).extra for branch in branches), strict=True)]
    out_axes = tuple(0 if marked else None for marked in batched)
    parts = [batched_program(branch, size, in_axes, out_axes) for branch in branches]
    return bind_cond(index, parts, operands), list(out_axes)


def _batch_by_selecting(size: int, index: Any, operands: list[Any], axes: Sequence[int | None], branches: Branches,
                        ) -> tuple[list[Any], list[int | None]]:
    """Run every branch for all lanes and select each lane's result; values passed through stay unbatched."""
    refuse_effects("cond", branches)
    if aval_of(index).dtype == dtypes.bool_:
        which, masks = index, [not_(index), index]
    else:
        which = clamp(scalar_like(0, index), index, scalar_like(len(branches) - 1, index))
        masks = [eq(which, scalar_like(number, index)) for number in range(len(branches))]
    results = []
    for mask, branch in zip(masks, branches, strict=True):
        given, in_axes = fill_dead_lanes(mask, size, operands, axes)
        # Programs inside may be loops, which run only if a lane needs them, or raise errors.
        in_whole = any(region.role != "inline" or may_raise(region.program)
                       for equation in branch.equations for region in equation.regions)
        program = branch
        if size and may_raise(branch) and not in_whole:
            program = raising_where_live(branch)
            given, in_axes = [reduce_or(mask, (0,)), *given], [None, *in_axes]
        with masking_dead_lanes(mask, program):
            derived = batched_program(program, size, tuple(in_axes))
        results.append(_run_if_any(mask, derived, given) if size and in_whole else
                       apply_equations(derived.program, [*derived.captured, *given]))
    passed = passthrough_inputs(branches, axes)
    outputs = [select_n(expand_mask(which, len(aval_of(cases[0]).shape)), *cases) if place is None else operands[place]
               for place, cases in zip(passed, zip(*results, strict=True), strict=True)]
    return outputs, [0 if place is None else None for place in passed]


def _run_if_any(mask: Any, derived: Derived, given: Sequence[Any]) -> list[Any]:
    """Return the outputs if any lane of `mask` is live, and zeros otherwise."""
    program = derived.program

    def nothing(*_: Any) -> tuple[list[Any], None]:
        return [zeros(aval) for aval in program.out_avals], None

    skip = derive(program, "zeros", nothing, program.in_avals).program
    return bind(cond_p, reduce_or(mask, (0,)), *derived.captured, *given, branches=(skip, program))


def _cost(index: Aval, *avals: Aval, branches: Branches) -> Cost:
    costs = [total_cost(branch) for branch in branches]
    return Cost(max(one.flops for one in costs), max(one.bytes for one in costs))


def _regions(operands: Sequence[Any], *, branches: Branches) -> tuple[Region, ...]:
    return tuple([whole_region("branch", branch, ("branches", number), 1, None) for number,
                  branch in enumerate(branches)])


cond_p = register(Primitive(name="cond", abstract=_abstract, numpy=_run_numpy, xla=_emit, jvp=_jvp,
                            transpose=_transpose, batch=_batch, cost=_cost, regions=_regions))
"""One of several programs, by an int32 index, of which one out of range selects the nearest; or of two by a bool."""
region_roles.enter(("branch",), cond_p)


@rewrites.register(cond_p)
def _cond_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Remove operands that no branch uses, and inline numbers into the branches."""
    index, *operands = inputs
    branches = params["branches"]
    used = frozenset().union(*map(used_input_places, branches))
    constants = tuple((place, operand if place in used else None) for place, operand in enumerate(operands)
                      if place not in used or (type(operand) is Literal and all(
                          branch.inputs[place].aval == operand.aval for branch in branches)))
    if not constants:
        return None
    return bind(cond_p, index, *remaining_operands(operands, constants), branches=tuple(remove_inputs(branch, constants)
                                                                                        for branch in branches))
