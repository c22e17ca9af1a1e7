"""`shard_map`: a program that every device of a mesh runs on its own pieces of the operands.

Inside, types contain the mesh axes along which a value may vary (`fxgrad/engine/ops/varying.py`), so that all rules are
those of the body's program, and the specs relate pieces and whole arrays. With NumPy it runs without devices: as the
body batched over one mesh axis after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from fxgrad.engine.analyses.cost import total_cost
from fxgrad.engine.analyses.sparsity_moves import sparsity_rules
from fxgrad.engine.analyses.sparsity_values import Value, Walk
from fxgrad.engine.analyses.traffic import collective_kinds
from fxgrad.engine.analyses.variation import Communication, communications
from fxgrad.engine.core.avals import INVARIANT, Aval, Literal
from fxgrad.engine.core.primitive import Cost, Primitive, register
from fxgrad.engine.core.program import Equation, Program, require_program
from fxgrad.engine.core.program_properties import collective_axes, memoize
from fxgrad.engine.core.regions import Links, Region, region_roles, replace_programs
from fxgrad.engine.derivation.derive import derive
from fxgrad.engine.derivation.guards import batched_axis, spmd_names
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.derivation.simplify import partial_use, simplify
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.executors import xla as xla_executor
from fxgrad.engine.higher_order.call import check_arguments, named_call_p
from fxgrad.engine.higher_order.checks import device_axes, gather_checks, gather_rules
from fxgrad.engine.higher_order.divergent import make_varying
from fxgrad.engine.higher_order.groups import (
    Marks,
    cotangents_of,
    linear_mask,
    nonzero_mask,
    nonzero_tangents,
    select_marked,
    select_unmarked,
)
from fxgrad.engine.higher_order.narrowing import (
    remaining_operands,
    remove_inputs,
    used_input_places,
    with_fewer_outputs,
)
from fxgrad.engine.higher_order.partition import partition
from fxgrad.engine.higher_order.saving import keep_by_cost
from fxgrad.engine.higher_order.wiring import (
    cast_outputs,
    dual_outputs,
    dual_program,
    needs_tangent_tape,
    select_outputs,
)
from fxgrad.engine.ops.comparison import and_
from fxgrad.engine.ops.reductions import reduce_and
from fxgrad.engine.ops.structural import reshape
from fxgrad.engine.ops.varying import psum_invariant_p, pvary, pvary_p, take_equal, take_equal_p
from fxgrad.engine.parallel.layouts import Layout, replicated_spec, whole_array_program
from fxgrad.engine.parallel.meshes import Spec, check_cut_of_map, map_over_mesh, spec_axes
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.transforms.batch import batched_program, batching_over
from fxgrad.engine.transforms.forward import fill_zeros
from fxgrad.engine.transforms.linearize import linearize_program
from fxgrad.engine.transforms.transpose import transpose_program
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError

collective_kinds.enter("all-reduce", psum_invariant_p)
collective_kinds.enter("nothing", pvary_p, take_equal_p)
communications.enter(Communication("equal", "axes"), psum_invariant_p)
communications.enter(Communication("operand", "nobody"), pvary_p)
communications.enter(Communication("equal", "nobody"), take_equal_p)


def _layout(params: dict[str, Any]) -> Layout:
    return Layout(**{name: params[name] for name in Layout._fields})


def bind_shard_map(program: Program, captured: Sequence[Any], inputs: Sequence[Any], layout: Layout) -> list[Any]:
    """Apply `shard_map_p`; every device has the `captured` values as a whole, for which there are no specs yet."""
    specs = (*(replicated_spec(aval_of(value)) for value in captured), *layout.in_specs)
    return bind(shard_map_p, *captured, *inputs, program=program, **layout._replace(in_specs=specs)._asdict())


def _abstract(*avals: Aval, program: Program, **params: Any) -> list[Aval]:
    layout = _layout(params)
    for aval, spec in zip(avals, layout.in_specs, strict=True):
        if aval.ndim != len(spec) or any(extent % max(layout.mesh.size(names), 1)
                                         for extent, names in zip(aval.shape, spec, strict=True)):
            raise ShapeError(f"shard_map: an operand of type {aval} is to be cut by the spec {spec} on the mesh "
                             f"{layout.mesh}, and does not fit it: a tuple of names for each axis is needed, whose "
                             "sizes divide that of the axis")
    pieces = [layout.piece(aval, spec) for aval, spec in zip(avals, layout.in_specs, strict=True)]
    check_arguments("shard_map", program.in_avals, pieces)
    return [layout.whole(aval, spec) for aval, spec in zip(program.out_avals, layout.out_specs, strict=True)]


# --- executors --------------------------------------------------------------------------------------------------


def _run_numpy(*values: Any, program: Program, **params: Any) -> list[Any]:
    layout = _layout(params)
    derived = whole_array_program(program, layout)
    token = device_axes.set((*device_axes.get(), *layout.axis_names))
    try:
        return numpy_executor.call(derived.program, [*derived.captured, *values])
    finally:
        device_axes.reset(token)


def _emit(lax: Any, *values: Any, program: Program, **params: Any) -> list[Any]:
    layout = _layout(params)

    def body(*pieces: Any) -> tuple[Any, ...]:
        return tuple(xla_executor.emit(program, pieces))

    return [*map_over_mesh(body, layout.mesh, layout.in_specs, layout.out_specs, layout.axis_names)(*values)]


# --- derivatives ------------------------------------------------------------------------------------------------


def _jvp(primals: list[Any], tangents: list[Any], *, program: Program, **params: Any) -> tuple[list[Any], list[Any]]:
    layout, wrt = _layout(params), nonzero_mask(tangents)
    if needs_tangent_tape(primals, tangents):
        return _split_jvp(primals, tangents, wrt, program, layout)
    with layout.entered():
        both = dual_program(program, wrt)
    results = bind_shard_map(both.program, both.captured, [*primals, *nonzero_tangents(tangents)], layout._replace(
        in_specs=(*layout.in_specs, *select_marked(layout.in_specs, wrt)),
        out_specs=(*layout.out_specs, *select_marked(layout.out_specs, both.extra))))
    avals = [*map(aval_of, results[:len(program.outputs)])]
    return dual_outputs(avals, both.extra, results)


def _split_jvp(primals: list[Any], tangents: list[Any], wrt: Marks, program: Program, layout: Layout,
               ) -> tuple[list[Any], list[Any]]:
    """Bind known work in one, tangent work in another, and saved values between them, each device's own part."""
    count = len(program.outputs)
    with layout.entered():
        known = linearize_program(program, wrt)
        reached = known.extra.nonzero_outputs
        parts = partition(known.program, count, known.extra, (True,) * len(known.program.inputs), keep_by_cost, reached)
        saved = [var.aval for var in parts.saved]
        forward = _stack_saved(parts.forward, count, layout)
        tangent = _unstack_saved(parts.tangent, saved, len(known.program.inputs), layout)
    stacks = tuple(_stacked_spec(aval, layout) for aval in saved)
    results = bind_shard_map(forward, known.captured, primals, layout._replace(out_specs=(*layout.out_specs, *stacks)))
    outputs = results[:count]
    moved: list[Any] = []
    if any(reached):
        inputs = [*primals, *results[count:], *nonzero_tangents(tangents)]
        moved = bind_shard_map(tangent, known.captured, inputs, layout._replace(
            in_specs=(*layout.in_specs, *stacks, *select_marked(layout.in_specs, wrt)),
            out_specs=tuple(select_marked(layout.out_specs, reached))))
    return outputs, fill_zeros([*map(aval_of, outputs)], reached, moved)


def _stacked_spec(aval: Aval, layout: Layout) -> Spec:
    """Return the spec of a saved value: one more axis for the devices along which it may vary."""
    names = _varying_axes(aval, layout)
    return ((names, *replicated_spec(aval)) if names else replicated_spec(aval))


def _varying_axes(aval: Aval, layout: Layout) -> tuple[str, ...]:
    return tuple(name for name in layout.axis_names if name in aval.vma)


def _stack_saved(program: Program, count: int, layout: Layout) -> Program:
    """Return `program` with one more axis in the varying outputs after the first `count`."""
    def build(*values: Any) -> tuple[list[Any], None]:
        outputs = apply_equations(program, values)
        return [*outputs[:count], *(
            reshape(value, (1, *aval.shape)) if _varying_axes(aval, layout) else value
            for value, aval in zip(outputs[count:], program.out_avals[count:], strict=True))], None
    return derive(program, ("saved on devices", count, layout.axis_names), build, program.in_avals).program


def _unstack_saved(program: Program, saved: Sequence[Aval], first: int, layout: Layout) -> Program:
    """Return `program` with one more axis in the varying ones of the inputs `saved`, from place `first` on."""
    def build(*values: Any) -> tuple[list[Any], None]:
        given = [reshape(value, aval.shape) if _varying_axes(aval, layout) else value
                 for value, aval in zip(values[first:first + len(saved)], saved, strict=True)]
        return apply_equations(program, [*values[:first], *given, *values[first + len(saved):]]), None

    avals = [aval.update(shape=(1, *aval.shape)) if _varying_axes(aval, layout) else aval for aval in saved]
    in_avals = program.in_avals
    return derive(program, ("saved by devices", first, layout.axis_names, *saved), build,
                  [*in_avals[:first], *avals, *in_avals[first + len(saved):]]).program


def _transpose(cotangents: list[Any], inputs: list[Any], *, program: Program, **params: Any) -> list[Any]:
    layout, linear, arriving = _layout(params), linear_mask(inputs), nonzero_mask(cotangents)
    out_specs = select_marked(layout.out_specs, arriving)
    with layout.entered():
        asked = select_outputs(program, arriving)
        asked = cast_outputs(asked, [aval.varying(spec_axes(spec))  # as cotangents, which are sharded so, are
                                     for aval, spec in zip(asked.out_avals, out_specs, strict=True)])
        back = transpose_program(asked, linear)
    found = bind_shard_map(back.program, back.captured,
                           [*select_unmarked(inputs, linear), *nonzero_tangents(cotangents)],
                           layout._replace(in_specs=(*select_unmarked(layout.in_specs, linear), *out_specs),
                                           out_specs=tuple(select_marked(layout.in_specs, linear))))
    return cotangents_of(inputs, linear, found)


# --- batches, cost, and removal of unused operands -------------------------------------------------------------------


def _batch(size: int, values: list[Any], axes: list[int | None], *, program: Program, **params: Any,
           ) -> tuple[list[Any], list[int | None]]:
    """Batch: the new axis is whole on every device, or sharded along the map's mesh axes (`spmd_axis_name`)."""
    layout = _layout(params)
    cut = tuple(name for name in spmd_names.get() if name in layout.axis_names)
    if cut:
        _check_cut(layout, cut, size, program)
    with layout.entered(), batching_over(batched_axis.get()):
        derived = batched_program(program, size // layout.mesh.size(cut), tuple(axes), (None,) * len(program.outputs))
        batched, out_axes = derived.program, [0 if each else None for each in derived.extra]
        if cut:
            batched = _batch_on_devices(batched, cut, (*[None] * len(derived.captured), *axes), out_axes)
    results = bind_shard_map(batched, derived.captured, values, layout._replace(
        in_specs=tuple(_insert_axis(spec, axis, cut) for spec, axis in zip(layout.in_specs, axes, strict=True)),
        out_specs=tuple(_insert_axis(spec, axis, cut) for spec, axis in zip(layout.out_specs, out_axes, strict=True))))
    return results, out_axes


def _check_cut(layout: Layout, cut: tuple[str, ...], size: int, program: Program) -> None:
    spoken = _communicated_axes(program)
    used = spoken.union(*(spec_axes(spec) for spec in (*layout.in_specs, *layout.out_specs)))
    twice = [name for name in cut if name in used]
    if twice:
        raise ArgumentError(at_user_line(
            f"vmap: spmd_axis_name has {', '.join(map(repr, twice))}, which a shard_map inside shards or reduces "
            "over already. Name mesh axes that it does not use"))
    if batched_axis.get() in spoken:
        raise UnsupportedError(at_user_line(
            f"vmap: spmd_axis_name={' and '.join(map(repr, cut))}, and a shard_map inside has a collective over the "
            f"mapped axis {batched_axis.get()!r}, of which each device has some entries. Leave out one of the two"))
    check_cut_of_map(size, layout.mesh, cut)


def _communicated_axes(program: Program) -> frozenset[str]:
    """Return the axes over which a program communicates, beyond stating what varies."""
    return INVARIANT.union(*(collective_axes(equation.primitive, equation.params) if not equation.regions else
                             INVARIANT.union(*map(_communicated_axes, equation.programs))
                             for equation in program.equations if equation.primitive not in (pvary_p, take_equal_p)))


def _batch_on_devices(program: Program, names: tuple[str, ...], in_axes: Sequence[int | None],
                      out_axes: Sequence[int | None]) -> Program:
    """Return `program` batched on devices, each of which along `names` has some of the entries."""
    inner = make_varying(program, names)

    def build(*values: Any) -> tuple[list[Any], None]:
        outputs = apply_equations(inner, [pvary(value, names) for value in values])
        return [output if axis is not None else take_equal(output, names)
                for output, axis in zip(outputs, out_axes, strict=True)], None

    avals = [aval if axis is None else aval.varying(names)
             for aval, axis in zip(program.in_avals, in_axes, strict=True)]
    return derive(program, ("cut along", names, *in_axes, *out_axes), build, avals).program


def _insert_axis(spec: Spec, axis: int | None, cut: tuple[str, ...]) -> Spec:
    return spec if axis is None else (*spec[:axis], cut, *spec[axis:])


def _cost(*avals: Aval, program: Program, **params: Any) -> Cost:
    """Return the cost of all devices together."""
    one, count = total_cost(program), math.prod(_layout(params).axes.values())
    return Cost(count * one.flops, count * one.bytes)


def _regions(operands: Sequence[Any], *, program: Program, **params: Any) -> tuple[Region, ...]:
    return (Region("mapped", ("program",), program, (Links("piece", 0, len(program.inputs)),),
                   (Links("piece", 0, len(program.outputs)),), 1),)


shard_map_p: Primitive = register(Primitive(
    name="shard_map", abstract=_abstract, numpy=_run_numpy, xla=_emit, jvp=_jvp, transpose=_transpose, batch=_batch,
    cost=_cost, sets_vma=True, regions=_regions))
"""A program that the devices of a mesh run, each on its pieces of the operands."""
region_roles.enter(("mapped",), shard_map_p)


@gather_rules.register(shard_map_p)
def _gather_checks(inputs: list[Any], params: dict[str, Any], is_final: bool, before: Any) -> list[Any]:
    """Return one flag for all devices, each of which returns its own as an array of one element."""
    layout, program = _layout(params), params["program"]
    spec = (layout.axis_names,)

    def build(*values: Any) -> tuple[list[Any], None]:
        *outputs, flag = apply_equations(gather_checks(program, is_final), values)
        return [*outputs, layout.brought_to(reshape(flag, (1,)), spec)], None
    with layout.entered():
        made = derive(program, ("flags of devices", layout.axis_names, is_final), build, program.in_avals).program
    *outputs, flags = bind_shard_map(made, [], inputs, layout._replace(out_specs=(*layout.out_specs, spec)))
    held = reduce_and(flags, (0,))
    return [*outputs, held if before is None else and_(before, held)]


@rewrites.register(shard_map_p)
def _rewrite(_: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Remove operands that the program does not use, and inline numbers into it."""
    program, layout = params["program"], _layout(params)
    used = used_input_places(program)
    instead = tuple((place, operand if place in used else None) for place, operand in enumerate(inputs)
                    if place not in used or (type(operand) is Literal and operand.aval == program.inputs[place].aval))
    if not instead:
        return None
    with layout.entered():
        fewer = simplify(remove_inputs(program, instead))
    return bind_shard_map(fewer, [], remaining_operands(inputs, instead),
                          layout._replace(in_specs=tuple(remaining_operands([*layout.in_specs], instead))))


@sparsity_rules.register(shard_map_p)
def _sparsity(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """Look at the computation of all devices on whole arrays."""
    derived = whole_array_program(equation.params["program"], _layout(equation.params))
    captured = [each if isinstance(each, np.ndarray) else None for each in derived.captured]
    return walk.run(derived.program, [*captured, *values])


@partial_use.register(shard_map_p)
def _in_part(equation: Equation, used: Sequence[bool]) -> Equation:
    params = equation.params
    changed: dict[str, Any] = {**params, "program": select_outputs(params["program"], used),
                               "out_specs": tuple(select_marked(params["out_specs"], used))}
    return with_fewer_outputs(equation, used, equation.inputs, changed)


def region_scope(equation: Equation) -> AbstractContextManager[None]:
    """Return a block in which programs of an equation are derived: they may reduce over axes that it introduces."""
    return _layout(equation.params).entered() if equation.primitive is shard_map_p else nullcontext()


def drop_devices(program: Program) -> Program:
    """Return an equal program with each `shard_map` replaced by a call of its computation on whole arrays."""
    require_program("drop_devices", program)

    def make() -> Program:
        equations = [equation if equation.primitive.regions is None else _as_call(equation)
                     for equation in program.equations]
        are_same = all(one is other for one, other in zip(equations, program.equations, strict=True))
        return program if are_same else program.replace(equations=equations)

    return memoize(program, "without devices", make)


def _as_call(equation: Equation) -> Equation:
    params: dict[str, Any] = equation.params
    if equation.primitive is shard_map_p:
        derived = whole_array_program(params["program"], _layout(params))
        if derived.captured:  # nested programs have no place for arrays
            return equation
        whole = drop_devices(derived.program)
        return Equation(named_call_p, equation.inputs, {"program": whole, "name": "shard_map"}, equation.outputs,
                        equation.source)
    programs = [*map(drop_devices, equation.programs)]
    if all(one is other for one, other in zip(programs, equation.programs, strict=True)):
        return equation
    return equation.replace(equation.inputs, replace_programs(params, equation.regions, programs))
