"""`shard_map`: a program that every device of a mesh runs on its own pieces of the operands.

Inside, types say along which mesh axes a value may differ (`fxgrad/ops/varying.py`), so that all rules are those of
the body's program, and the specs tell how pieces and whole arrays belong together. With NumPy it runs without devices:
as the body batched over one mesh axis after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from fxgrad.analyses.cost import cost
from fxgrad.analyses.traffic import speaks
from fxgrad.analyses.variation import Exchange, check_collectives, exchanges
from fxgrad.control.call import check_arguments
from fxgrad.control.groups import Marks, are_linear, are_moving, chosen, cotangents_of, others, present
from fxgrad.control.narrowing import kept, narrowed, used_places, with_fewer_outputs
from fxgrad.control.partition import keep_by_cost, partition
from fxgrad.control.unequal import varying
from fxgrad.control.wiring import apart, dual_outputs, dual_program, with_output_types, with_outputs
from fxgrad.core.avals import INVARIANT, Aval, Literal
from fxgrad.core.facts import axes_of
from fxgrad.core.primitive import Cost, Primitive, register
from fxgrad.core.program import Equation, Program
from fxgrad.core.regions import Links, Region
from fxgrad.derivation.consultation import batched_axis, spmd_names
from fxgrad.derivation.derive import derive
from fxgrad.derivation.rewrites import Definitions, rewrites
from fxgrad.derivation.simplify import partial_use, simplify
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError, at_user_line
from fxgrad.executors import numpy as numpy_executor
from fxgrad.executors import xla as xla_executor
from fxgrad.ops.space import reshape
from fxgrad.ops.varying import psum_invariant_p, pvary, pvary_p, take_equal, take_equal_p
from fxgrad.parallel.meshes import MeshShape, Spec, names_in, over_mesh
from fxgrad.tracing import interning
from fxgrad.tracing.apply import apply_equations
from fxgrad.tracing.tape import Tape, aval_of, bind, current
from fxgrad.tracing.varying import MeshAxes
from fxgrad.transforms.batch import batched_program, batching_over
from fxgrad.transforms.forward import spread
from fxgrad.transforms.linearize import linearized
from fxgrad.transforms.transpose import transposed

speaks.enter("all-reduce", psum_invariant_p)
speaks.enter("nothing", pvary_p, take_equal_p)
exchanges.enter(Exchange("equal", "axes"), psum_invariant_p)
exchanges.enter(Exchange("operand", "nobody"), pvary_p)
exchanges.enter(Exchange("equal", "nobody"), take_equal_p)


class Layout(NamedTuple):
    """How a program stands on a mesh: the parameters of `shard_map_p` beside the program.

    The devices are mapped over the axes `axis_names` of the mesh; others are left to the compiler. A spec for each
    input and output says which of these axes cut which axis of the array. With `check_vma` it is known which values are
    the same on all devices; otherwise all may differ.
    """

    mesh: MeshShape
    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]
    axis_names: tuple[str, ...]
    check_vma: bool = True

    @property
    def axes(self) -> dict[str, int]:
        """The sizes by name of the axes that devices are mapped over."""
        return {name: self.mesh.size((name,)) for name in self.axis_names}

    @property
    def mesh_axes(self) -> MeshAxes:
        """The same as what is traced is told of it."""
        names = frozenset(self.axis_names)
        return MeshAxes(names if self.check_vma else frozenset(), frozenset() if self.check_vma else names, self.mesh)

    def piece(self, aval: Aval, spec: Spec) -> Aval:
        """The type that one device has of an array."""
        sizes = [extent // self.mesh.size(names) for extent, names in zip(aval.shape, spec, strict=True)]
        return aval.update(shape=tuple(sizes)).varying(names_in(spec))

    def whole(self, aval: Aval, spec: Spec) -> Aval:
        """The type of the array that pieces make up."""
        sizes = [extent * self.mesh.size(names) for extent, names in zip(aval.shape, spec, strict=True)]
        return aval.update(shape=tuple(sizes)).invariant(self.axis_names)

    def check(self, program: Program, captured: Sequence[Any]) -> None:
        """Raises `UnsupportedError` for a collective of `program` that some devices would wait in forever."""
        whole = [INVARIANT] * len(captured)
        check_collectives(program, [*whole, *(frozenset(names_in(spec)) for spec in self.in_specs)], self.axis_names)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """What is derived of the program in this block may speak over the axes of the mesh."""
        tape = Tape(interning.fresh_root(()), staging=False, interned=False, axes=self.axes, mesh=self.mesh_axes)
        token = current.set(tape)
        try:
            yield
        finally:
            current.reset(token)
            tape.closed = True


def whole_spec(aval: Aval) -> Spec:
    """That of an array which every device has as a whole."""
    return ((),) * aval.ndim


def _layout(params: dict[str, Any]) -> Layout:
    return Layout(**{name: params[name] for name in Layout._fields})


def bind_shard_map(program: Program, captured: Sequence[Any], inputs: Sequence[Any], layout: Layout) -> list[Any]:
    """Applies `shard_map_p`; every device has the `captured` values as a whole, for which there are no specs yet."""
    specs = (*(whole_spec(aval_of(value)) for value in captured), *layout.in_specs)
    return bind(shard_map_p, *captured, *inputs, program=program, **layout._replace(in_specs=specs)._asdict())


def _abstract(*avals: Aval, program: Program, **params: Any) -> list[Aval]:
    layout = _layout(params)
    pieces = [layout.piece(aval, spec) for aval, spec in zip(avals, layout.in_specs, strict=True)]
    check_arguments("shard_map", program.in_avals, pieces)
    return [layout.whole(aval, spec) for aval, spec in zip(program.out_avals, layout.out_specs, strict=True)]


# --- executors --------------------------------------------------------------------------------------------------


def _run_numpy(*values: Any, program: Program, **params: Any) -> list[Any]:
    """All devices at once: each mesh axis in turn is a batch axis, in front, of what is cut along it."""
    layout = _layout(params)
    inputs: list[Any] = [_apart(np.asarray(value), spec, layout)
                         for value, spec in zip(values, layout.in_specs, strict=True)]
    marks = [[names_in(spec) for spec in specs] for specs in (layout.in_specs, layout.out_specs)]
    for name, size in layout.axes.items():
        in_axes = (*[None] * (len(program.inputs) - len(marks[0])), *(0 if name in names else None
                                                                     for names in marks[0]))
        out_axes = tuple(0 if name in names else None for names in marks[1])
        with batching_over(name):
            derived = batched_program(program, size, in_axes, out_axes)
        for axis, varies in zip(out_axes, derived.extra, strict=True):
            if axis is None and varies:
                raise AssertionError(f"an output that is the same along the mesh axis {name!r} by its type varies over "
                                     "it; this is a bug in fxgrad")
        program, inputs = derived.program, [*derived.captured, *inputs]
    outputs = numpy_executor.call(program, inputs)
    whole: list[Any] = [_together(np.asarray(output), spec, layout)
                        for output, spec in zip(outputs, layout.out_specs, strict=True)]
    return numpy_executor.own(whole, range(len(whole)), values)


def _order(spec: Spec, layout: Layout) -> list[str]:
    """The mesh axes of a spec as they stand in front of an array: the one that is batched last comes first."""
    return [name for name in layout.axis_names[::-1] if name in names_in(spec)]


def _apart(array: np.ndarray[Any, Any], spec: Spec, layout: Layout) -> np.ndarray[Any, Any]:
    """An array as its pieces: mesh axes in front."""
    shape: list[int] = []
    place: dict[str, int] = {}
    for extent, names in zip(array.shape, spec, strict=True):
        for name in names:
            place[name] = len(shape)
            shape.append(layout.axes[name])
        shape.append(extent // layout.mesh.size(names))
    front = [place[name] for name in _order(spec, layout)]
    return array.reshape(shape).transpose([*front, *(axis for axis in range(len(shape)) if axis not in front)])


def _together(array: np.ndarray[Any, Any], spec: Spec, layout: Layout) -> np.ndarray[Any, Any]:
    """The array that pieces, with mesh axes in front, make up."""
    front = _order(spec, layout)
    order: list[int] = []
    for axis, names in enumerate(spec):
        order += [*(front.index(name) for name in names), len(front) + axis]
    shape = [extent * layout.mesh.size(names) for extent, names in zip(array.shape[len(front):], spec, strict=True)]
    return array.transpose(order).reshape(shape)


def _emit(lax: Any, *values: Any, program: Program, **params: Any) -> list[Any]:
    layout = _layout(params)

    def body(*pieces: Any) -> tuple[Any, ...]:
        return tuple(xla_executor.emit(program, pieces))

    return [*over_mesh(body, layout.mesh, layout.in_specs, layout.out_specs, layout.axis_names)(*values)]


# --- derivatives ------------------------------------------------------------------------------------------------


def _jvp(primals: list[Any], tangents: list[Any], *, program: Program, **params: Any) -> tuple[list[Any], list[Any]]:
    layout, wrt = _layout(params), are_moving(tangents)
    if apart(primals, tangents):
        return _split_jvp(primals, tangents, wrt, program, layout)
    with layout.entered():
        both = dual_program(program, wrt)
    results = bind_shard_map(both.program, both.captured, [*primals, *present(tangents)], layout._replace(
        in_specs=(*layout.in_specs, *chosen(layout.in_specs, wrt)),
        out_specs=(*layout.out_specs, *chosen(layout.out_specs, both.extra))))
    avals = [*map(aval_of, results[:len(program.outputs)])]
    return dual_outputs(avals, both.extra, results)


def _split_jvp(primals: list[Any], tangents: list[Any], wrt: Marks, program: Program, layout: Layout,
               ) -> tuple[list[Any], list[Any]]:
    """Known work in one, tangent work in another, and between them what is saved, each device's own part of it."""
    count = len(program.outputs)
    with layout.entered():
        known = linearized(program, wrt)
        reached = known.extra.reached
        parts = partition(known.program, count, known.extra, (True,) * len(known.program.inputs), keep_by_cost, reached)
        saved = [var.aval for var in parts.saved]
        forward = _stacking(parts.forward, count, layout)
        tangent = _unstacking(parts.tangent, saved, len(known.program.inputs), layout)
    stacks = tuple(_stacked_spec(aval, layout) for aval in saved)
    results = bind_shard_map(forward, known.captured, primals, layout._replace(out_specs=(*layout.out_specs, *stacks)))
    outputs = results[:count]
    moved: list[Any] = []
    if any(reached):
        inputs = [*primals, *results[count:], *present(tangents)]
        moved = bind_shard_map(tangent, known.captured, inputs, layout._replace(
            in_specs=(*layout.in_specs, *stacks, *chosen(layout.in_specs, wrt)),
            out_specs=tuple(chosen(layout.out_specs, reached))))
    return outputs, spread([*map(aval_of, outputs)], reached, moved)


def _stacked_spec(aval: Aval, layout: Layout) -> Spec:
    """That of a saved value: one more axis, along which stand those of the devices that may differ."""
    names = _varying(aval, layout)
    return ((names, *whole_spec(aval)) if names else whole_spec(aval))


def _varying(aval: Aval, layout: Layout) -> tuple[str, ...]:
    return tuple(name for name in layout.axis_names if name in aval.vma)


def _stacking(program: Program, count: int, layout: Layout) -> Program:
    """`program` with one more axis of the outputs behind the first `count` that vary."""
    def build(*values: Any) -> tuple[list[Any], None]:
        outputs = apply_equations(program, values)
        return [*outputs[:count], *(
            reshape(value, (1, *aval.shape)) if _varying(aval, layout) else value
            for value, aval in zip(outputs[count:], program.out_avals[count:], strict=True))], None
    return derive(program, ("saved on devices", count, layout.axis_names), build, program.in_avals).program


def _unstacking(program: Program, saved: Sequence[Aval], first: int, layout: Layout) -> Program:
    """`program` with one more axis of those of the inputs `saved`, from place `first` on, that vary."""
    def build(*values: Any) -> tuple[list[Any], None]:
        given = [reshape(value, aval.shape) if _varying(aval, layout) else value
                 for value, aval in zip(values[first:first + len(saved)], saved, strict=True)]
        return apply_equations(program, [*values[:first], *given, *values[first + len(saved):]]), None

    avals = [aval.update(shape=(1, *aval.shape)) if _varying(aval, layout) else aval for aval in saved]
    in_avals = program.in_avals
    return derive(program, ("saved by devices", first, layout.axis_names, *saved), build,
                  [*in_avals[:first], *avals, *in_avals[first + len(saved):]]).program


def _transpose(cotangents: list[Any], inputs: list[Any], *, program: Program, **params: Any) -> list[Any]:
    layout, linear, arriving = _layout(params), are_linear(inputs), are_moving(cotangents)
    out_specs = chosen(layout.out_specs, arriving)
    with layout.entered():
        asked = with_outputs(program, arriving)
        asked = with_output_types(asked, [aval.varying(names_in(spec))  # as cotangents, which are cut so, do
                                          for aval, spec in zip(asked.out_avals, out_specs, strict=True)])
        back = transposed(asked, linear)
    found = bind_shard_map(back.program, back.captured, [*others(inputs, linear), *present(cotangents)],
                           layout._replace(in_specs=(*others(layout.in_specs, linear), *out_specs),
                                           out_specs=tuple(chosen(layout.in_specs, linear))))
    return cotangents_of(inputs, linear, found)


# --- batches, cost, and what is left out -------------------------------------------------------------------------


def _batch(size: int, values: list[Any], axes: list[int | None], *, program: Program, **params: Any,
           ) -> tuple[list[Any], list[int | None]]:
    """The new axis is whole on every device, or cut along the mesh axes that the map has for it (`spmd_axis_name`)."""
    layout = _layout(params)
    cut = tuple(name for name in spmd_names.get() if name in layout.axis_names)
    if cut:
        _check_cut(layout, cut, size, program)
    with layout.entered(), batching_over(batched_axis.get()):
        derived = batched_program(program, size // layout.mesh.size(cut), tuple(axes), (None,) * len(program.outputs))
        batched, out_axes = derived.program, [0 if each else None for each in derived.extra]
        if cut:
            batched = _cut_along(batched, cut, (*[None] * len(derived.captured), *axes), out_axes)
    results = bind_shard_map(batched, derived.captured, values, layout._replace(
        in_specs=tuple(_with_axis(spec, axis, cut) for spec, axis in zip(layout.in_specs, axes, strict=True)),
        out_specs=tuple(_with_axis(spec, axis, cut) for spec, axis in zip(layout.out_specs, out_axes, strict=True))))
    return results, out_axes


def _check_cut(layout: Layout, cut: tuple[str, ...], size: int, program: Program) -> None:
    shown, count = " and ".join(map(repr, cut)), layout.mesh.size(cut)
    spoken = _spoken_over(program)
    used = spoken.union(*(names_in(spec) for spec in (*layout.in_specs, *layout.out_specs)))
    twice = [name for name in cut if name in used]
    if twice:
        raise ArgumentError(at_user_line(
            f"vmap: spmd_axis_name has {', '.join(map(repr, twice))}, along which a shard_map inside cuts or speaks "
            "already. Name mesh axes that it does not use"))
    if batched_axis.get() in spoken:
        raise UnsupportedError(at_user_line(
            f"vmap: spmd_axis_name={shown}, and a shard_map inside speaks over the mapped axis {batched_axis.get()!r}, "
            "of which each device has some entries. Leave out one of the two"))
    if size % count:
        raise ShapeError(at_user_line(
            f"vmap: the mapped axis of size {size} is to be cut along the mesh axis {shown} (spmd_axis_name) into "
            f"{count} equal pieces, and {size} is not divisible by {count}. Pad it"))


def _spoken_over(program: Program) -> frozenset[str]:
    """The axes over which a program speaks, and not only says what varies."""
    return INVARIANT.union(*(axes_of(equation.primitive, equation.params) if not equation.regions else
                             INVARIANT.union(*map(_spoken_over, equation.programs))
                             for equation in program.equations if equation.primitive not in (pvary_p, take_equal_p)))


def _cut_along(program: Program, names: tuple[str, ...], in_axes: Sequence[int | None],
               out_axes: Sequence[int | None]) -> Program:
    """`program`, batched, on devices of which each along `names` has some of the entries."""
    inner = varying(program, names)

    def build(*values: Any) -> tuple[list[Any], None]:
        outputs = apply_equations(inner, [pvary(value, names) for value in values])
        return [output if axis is not None else take_equal(output, names)
                for output, axis in zip(outputs, out_axes, strict=True)], None

    avals = [aval if axis is None else aval.varying(names)
             for aval, axis in zip(program.in_avals, in_axes, strict=True)]
    return derive(program, ("cut along", names, *in_axes, *out_axes), build, avals).program


def _with_axis(spec: Spec, axis: int | None, cut: tuple[str, ...]) -> Spec:
    return spec if axis is None else (*spec[:axis], cut, *spec[axis:])


def _cost(*avals: Aval, program: Program, **params: Any) -> Cost:
    """That of all devices together."""
    one, count = cost(program), math.prod(_layout(params).axes.values())
    return Cost(count * one.flops, count * one.bytes)


def _regions(operands: Sequence[Any], *, program: Program, **params: Any) -> tuple[Region, ...]:
    return (Region("mapped", ("program",), program, (Links("piece", 0, len(program.inputs)),),
                   (Links("piece", 0, len(program.outputs)),), 1),)


shard_map_p: Primitive = register(Primitive(
    name="shard_map", abstract=_abstract, numpy=_run_numpy, xla=_emit, jvp=_jvp, transpose=_transpose, batch=_batch,
    cost=_cost, says_what_varies=True, regions=_regions))
"""A program that the devices of a mesh run, each on its pieces of the operands."""


@rewrites.register(shard_map_p)
def _rewrite(_: Definitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Operands that the program does not use are left out, and numbers stand in it."""
    program, layout = params["program"], _layout(params)
    used = used_places(program)
    instead = tuple((place, operand if place in used else None) for place, operand in enumerate(inputs)
                    if place not in used or (type(operand) is Literal and operand.aval == program.inputs[place].aval))
    if not instead:
        return None
    with layout.entered():
        fewer = simplify(narrowed(program, instead))
    return bind_shard_map(fewer, [], kept(inputs, instead),
                          layout._replace(in_specs=tuple(kept([*layout.in_specs], instead))))


@partial_use.register(shard_map_p)
def _in_part(equation: Equation, used: Sequence[bool]) -> Equation:
    params = equation.params
    changed: dict[str, Any] = {**params, "program": with_outputs(params["program"], used),
                               "out_specs": tuple(chosen(params["out_specs"], used))}
    return with_fewer_outputs(equation, used, equation.inputs, changed)
