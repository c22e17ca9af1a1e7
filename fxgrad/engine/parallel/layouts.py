"""The layout of a program on a mesh: the pieces of its devices; and its computation on whole arrays."""

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
    """The layout of a program on a mesh: the parameters of `shard_map_p` beside the program.

    The devices are mapped over the axes `axis_names` of the mesh; others are left to the compiler. A spec for each
    input and output gives the mesh axes that shard each array axis. With `check_vma` it is tracked which values are
    equal on all devices; otherwise all may differ.
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
        """The axes for tracing, with those that an enclosing `shard_map` is mapped over."""
        own, around = frozenset(self.axis_names), mesh_in_scope()
        checked, unchecked = (own, INVARIANT) if self.check_vma else (INVARIANT, own)
        if around is not None:
            checked, unchecked = checked | (around.checked - own), unchecked | (around.unchecked - own)
        return MeshAxes(checked, unchecked, self.mesh)

    def piece(self, aval: Aval, spec: Spec) -> Aval:
        """Return the type of one device's piece of an array."""
        sizes = [extent // self.mesh.size(names) for extent, names in zip(aval.shape, spec, strict=True)]
        return aval.update(shape=tuple(sizes)).varying(spec_axes(spec))

    def whole(self, aval: Aval, spec: Spec) -> Aval:
        """Return the type of the whole array of pieces."""
        sizes = [extent * self.mesh.size(names) for extent, names in zip(aval.shape, spec, strict=True)]
        return aval.update(shape=tuple(sizes)).invariant(self.axis_names)

    def brought_to(self, value: Any, spec: Spec) -> Any:
        """Return each device's value as an output of `spec`: assumed equal along the axes that this does not name."""
        named = spec_axes(spec)
        return pvary(take_equal(value, [name for name in self.axis_names if name not in named]), named)

    def check(self, program: Program, captured: Sequence[Any]) -> None:
        """Raise `UnsupportedError` for a collective of `program` in which some devices would wait forever."""
        whole = [INVARIANT] * len(captured)
        check_collectives(program, [*whole, *(frozenset(spec_axes(spec)) for spec in self.in_specs)], self.axis_names)

    def entered(self) -> AbstractContextManager[None]:
        """Return a block in which programs derived of the program may reduce over the axes of the mesh."""
        return bind_axes(self.axes, self.mesh_axes)


def replicated_spec(aval: Aval) -> Spec:
    """Return the spec of an array that is whole on every device."""
    return ((),) * aval.ndim


# --- without devices --------------------------------------------------------------------------------------------


def whole_array_program(program: Program, layout: Layout) -> Derived:
    """Return the computation of all devices as operations on whole arrays: each mesh axis becomes a batch axis.

    Raises `AssertionError` if an output varies over an axis that its type excludes.
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
    """Return the mesh axes of a spec in the order of the array's leading axes: the last batched one comes first."""
    return [name for name in layout.axis_names[::-1] if name in spec_axes(spec)]


def _split_pieces(array: Any, spec: Spec, layout: Layout) -> Any:
    """Return an array as its pieces: mesh axes in front."""
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
    """Return the array assembled from pieces, with mesh axes in front."""
    front = _axis_order(spec, layout)
    order: list[int] = []
    for axis, names in enumerate(spec):
        order += [*(front.index(name) for name in names), len(front) + axis]
    piece = aval_of(array).shape[len(front):]
    return reshape(transpose(array, order), tuple(extent * layout.mesh.size(names)
                                                  for extent, names in zip(piece, spec, strict=True)))
