"""How a program stands on a mesh: which pieces its devices have; and what it computes, as one of whole arrays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from fxgrad.engine.analyses.variation import check_collectives
from fxgrad.engine.core.avals import INVARIANT, Aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.derivation.derive import Derived, derive
from fxgrad.engine.ops.structural import reshape, transpose
from fxgrad.engine.ops.varying import pvary, take_equal
from fxgrad.engine.parallel.meshes import MeshShape, Spec, spec_axes
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.trace import bind_axes, mesh_in_scope
from fxgrad.engine.tracing.varying import MeshAxes
from fxgrad.engine.transforms.batch import batched_program, batching_over


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
        """The same as what is traced is told of it, with the axes that a `shard_map` around is mapped over."""
        own, around = frozenset(self.axis_names), mesh_in_scope()
        checked, unchecked = (own, INVARIANT) if self.check_vma else (INVARIANT, own)
        if around is not None:
            checked, unchecked = checked | (around.checked - own), unchecked | (around.unchecked - own)
        return MeshAxes(checked, unchecked, self.mesh)

    def piece(self, aval: Aval, spec: Spec) -> Aval:
        """The type that one device has of an array."""
        sizes = [extent // self.mesh.size(names) for extent, names in zip(aval.shape, spec, strict=True)]
        return aval.update(shape=tuple(sizes)).varying(spec_axes(spec))

    def whole(self, aval: Aval, spec: Spec) -> Aval:
        """The type of the array that pieces make up."""
        sizes = [extent * self.mesh.size(names) for extent, names in zip(aval.shape, spec, strict=True)]
        return aval.update(shape=tuple(sizes)).invariant(self.axis_names)

    def brought_to(self, value: Any, spec: Spec) -> Any:
        """What each device has as an output of `spec`: taken for equal along the axes that this does not name."""
        named = spec_axes(spec)
        return pvary(take_equal(value, [name for name in self.axis_names if name not in named]), named)

    def check(self, program: Program, captured: Sequence[Any]) -> None:
        """Raises `UnsupportedError` for a collective of `program` that some devices would wait in forever."""
        whole = [INVARIANT] * len(captured)
        check_collectives(program, [*whole, *(frozenset(spec_axes(spec)) for spec in self.in_specs)], self.axis_names)

    def entered(self) -> AbstractContextManager[None]:
        """What is derived of the program in this block may speak over the axes of the mesh."""
        return bind_axes(self.axes, self.mesh_axes)


def replicated_spec(aval: Aval) -> Spec:
    """That of an array which every device has as a whole."""
    return ((),) * aval.ndim


# --- without devices --------------------------------------------------------------------------------------------


def whole_array_program(program: Program, layout: Layout) -> Derived:
    """Return the computation of all devices as operations on whole arrays: each mesh axis becomes a batch axis.

    Raises `AssertionError` where an output varies over an axis that by its type it does not.
    """
    def build(*values: Any) -> tuple[list[Any], None]:
        inputs = [_split_pieces(value, spec, layout) for value, spec in zip(values, layout.in_specs, strict=True)]
        batched = program
        for name, size in layout.axes.items():
            in_axes = (*[None] * (len(inputs) - len(layout.in_specs)),
                       *(0 if name in spec_axes(spec) else None for spec in layout.in_specs))
            out_axes = tuple(0 if name in spec_axes(spec) else None for spec in layout.out_specs)
            with batching_over(name):
                derived = batched_program(batched, size, in_axes, out_axes)
            for axis, varies in zip(out_axes, derived.extra, strict=True):
                if axis is None and varies:
                    raise AssertionError(f"an output that is the same along the mesh axis {name!r} by its type varies "
                                         "over it; this is a bug in fxgrad")
            batched, inputs = derived.program, [*derived.captured, *inputs]
        outputs = apply_equations(batched, inputs)
        return [_join_pieces(output, spec, layout) for output,
                spec in zip(outputs, layout.out_specs, strict=True)], None

    avals = [layout.whole(aval, spec) for aval, spec in zip(program.in_avals, layout.in_specs, strict=True)]
    return derive(program, ("at once", layout), build, avals)


def _axis_order(spec: Spec, layout: Layout) -> list[str]:
    """The mesh axes of a spec as they stand in front of an array: the one that is batched last comes first."""
    return [name for name in layout.axis_names[::-1] if name in spec_axes(spec)]


def _split_pieces(array: Any, spec: Spec, layout: Layout) -> Any:
    """An array as its pieces: mesh axes in front."""
    shape: list[int] = []
    place: dict[str, int] = {}
    for extent, names in zip(aval_of(array).shape, spec, strict=True):
        for name in names:
            place[name] = len(shape)
            shape.append(layout.axes[name])
        shape.append(extent // layout.mesh.size(names))
    front = [place[name] for name in _axis_order(spec, layout)]
    return transpose(reshape(array, tuple(shape)), [*front, *(axis for axis in range(len(shape)) if axis not in front)])


def _join_pieces(array: Any, spec: Spec, layout: Layout) -> Any:
    """The array that pieces, with mesh axes in front, make up."""
    front = _axis_order(spec, layout)
    order: list[int] = []
    for axis, names in enumerate(spec):
        order += [*(front.index(name) for name in names), len(front) + axis]
    piece = aval_of(array).shape[len(front):]
    return reshape(transpose(array, order), tuple(extent * layout.mesh.size(names)
                                                  for extent, names in zip(piece, spec, strict=True)))
