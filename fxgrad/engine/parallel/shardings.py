"""Shardings in programs, converted from jax's, and the operations that place a value.

`sharding_constraint` constrains its value to a sharding, and so a cotangent; `device_put` moves it. NumPy's arrays have
no placement, and pass through.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding, get_abstract_mesh

from fxgrad.engine import tree
from fxgrad.engine.analyses.sparsity_moves import in_place, sparsity_rules
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.parameter_classes import declare_parameter_class
from fxgrad.engine.core.primitive import Cost, Primitive
from fxgrad.engine.derivation.guards import spmd_names
from fxgrad.engine.ops.families import linear_unary
from fxgrad.engine.ops.snippets import Snippet, snippets
from fxgrad.engine.parallel.meshes import (
    MeshShape,
    check_cut_of_map,
    entry_axes,
    jax_mesh,
    mesh_shape,
    partition_of,
    refuse_partial,
)
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.trace import mesh_in_scope
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError

Partition = tuple[tuple[str, ...] | None, ...]
"""For each axis of an array the mesh axes that shard it; None if that is left to XLA."""


class Placement(NamedTuple):
    """The placement of an array: its sharding, its mesh (None: the one that is set), and its kind of memory.

    A single device is a mesh of no axes; without a `spec` only the kind of memory is given.
    """

    spec: Partition | None
    mesh: MeshShape | None = None
    memory_kind: str | None = None


declare_parameter_class(Placement)

# --- from jax's shardings, and back --------------------------------------------------------------------------------


def placement_of(what: str, sharding: Any, shape: Sequence[int] | None = None, name: str = "the array", *,
                 even: bool = True) -> Placement:
    """Return the placement of an array of `shape` under a jax sharding; messages name `name` and the call `what`.

    Raises `ArgumentError` for anything but a sharding, for axes that the mesh does not have and for one named twice,
    and `ShapeError` if it does not fit `shape`: too many axes, or, if pieces must be `even`, sizes that do not divide.
    Without a `shape` these checks are skipped.
    """
    if isinstance(sharding, NamedSharding):
        mesh, partition = mesh_shape(what, sharding.mesh), sharding.spec
        found = Placement(_check_partition(what, partition, shape, name), mesh, _memory_kind(sharding))
    elif isinstance(sharding, PartitionSpec):
        mesh = _current_mesh(what, sharding)
        found, partition = Placement(_check_partition(what, sharding, shape, name)), sharding
    elif isinstance(sharding, SingleDeviceSharding | jax.Device):
        device, = sharding.device_set if isinstance(sharding, SingleDeviceSharding) else (sharding,)
        return Placement((), MeshShape((), (), str(device.id), device.platform), _memory_kind(sharding))
    else:
        raise ArgumentError(at_user_line(
            f"{what}: the sharding of {name} is a {type(sharding).__name__} ({sharding!r}), where a NamedSharding is "
            "needed, or a PartitionSpec within jax.set_mesh(mesh): NamedSharding(mesh, PartitionSpec('x', None))"))
    _check_mesh_axes(what, partition, mesh)
    if even and shape is not None and found.spec is not None:
        _check_sizes(what, partition, found.spec, mesh, shape, name)
    return found


def _memory_kind(sharding: Any) -> str | None:
    """Return the kind of memory; None for the device's own, the default."""
    kind = getattr(sharding, "memory_kind", None)
    return None if kind == "device" else kind


def _check_partition(what: str, partition: Any, shape: Sequence[int] | None, name: str) -> Partition:
    refuse_partial(what, partition, name)
    entries = [None if entry is PartitionSpec.UNCONSTRAINED else entry_axes(entry) for entry in partition]
    if shape is None:
        return tuple(entries)
    if len(entries) > len(shape):
        raise ShapeError(at_user_line(
            f"{what}: {shardings_text(partition)} says how {len(entries)} axes lie, and {name} has {len(shape)}, its "
            f"shape is {tuple(shape)}. One entry for each axis is needed; those left out at the end are not cut"))
    return (*entries, *((),) * (len(shape) - len(entries)))


def _current_mesh(what: str, partition: Any) -> MeshShape:
    around, mesh = mesh_in_scope(), get_abstract_mesh()
    if around is not None:
        found: MeshShape = around.shape
        return found
    if mesh.empty:
        raise ArgumentError(at_user_line(
            f"{what}: {shardings_text(partition)} names axes of a mesh, and none is set. Write NamedSharding(mesh, "
            f"{shardings_text(partition)}), or call within jax.set_mesh(mesh)"))
    return mesh_shape(what, mesh)


def _check_mesh_axes(what: str, partition: Any, mesh: MeshShape) -> None:
    seen: set[str] = set()
    for entry in partition:
        for axis in () if entry is PartitionSpec.UNCONSTRAINED else entry_axes(entry):
            if axis not in mesh.names:
                raise ArgumentError(at_user_line(
                    f"{what}: {shardings_text(partition)} names the mesh axis {axis!r}, and those of the mesh are "
                    f"{', '.join(map(repr, mesh.names))}"))
            if axis in seen:
                raise ArgumentError(at_user_line(
                    f"{what}: {shardings_text(partition)} names the mesh axis {axis!r} twice; it cuts one axis of an "
                    "array"))
            seen.add(axis)


def _check_sizes(what: str, partition: Any, spec: Partition, mesh: MeshShape, shape: Sequence[int], name: str) -> None:
    for axis, (names, size) in enumerate(zip(spec, shape, strict=True)):
        pieces = mesh.size(names or ())
        if size % pieces:
            along = " and ".join(f"{each!r} ({mesh.size((each,))})" for each in names or ())
            raise ShapeError(at_user_line(
                f"{what}: {shardings_text(partition)} cuts axis {axis} of {name}, whose shape is {tuple(shape)}, along "
                f"the mesh axes {along} into {pieces} pieces, and {size} is not divisible by {pieces}. Pad the axis to "
                f"{math.ceil(size / pieces) * pieces}, or leave it whole with None in its place"))


class _Text(str):
    """A text in place of an object whose container is displayed."""

    __slots__ = ()
    __repr__ = str.__str__


def shardings_text(shardings: Any) -> str:
    """Return the text of a container of shardings as users write it.

    >>> shardings_text(({"w": PartitionSpec("x", ("y", "z"))}, None))
    "({'w': P('x', ('y', 'z'))}, None)"
    """
    def text(sharding: Any) -> Any:
        if isinstance(sharding, PartitionSpec):
            return _Text(f"P({', '.join(map(repr, getattr(sharding, 'partitions', sharding)))})")
        if isinstance(sharding, NamedSharding):
            return _Text(f"NamedSharding(mesh, {text(sharding.spec)})")
        return sharding
    return repr(tree.map(text, shardings))


def jax_sharding(placement: Placement) -> Any:
    """Return jax's sharding: a `PartitionSpec` if the mesh is the one that is set, None if nothing is specified."""
    if placement.spec is None:
        return None
    partition = partition_of(placement.spec)
    if placement.mesh is None or AxisType.Manual in get_abstract_mesh().axis_types:  # shard_map has set one
        return partition
    mesh = jax_mesh(placement.mesh)
    if not placement.mesh.names:
        return SingleDeviceSharding(mesh.devices.item(), memory_kind=placement.memory_kind)
    return NamedSharding(mesh, partition, memory_kind=placement.memory_kind)


# --- the operations -------------------------------------------------------------------------------------------------


def _abstract(x: Aval, *, spec: Partition | None, mesh: MeshShape | None, memory_kind: str | None) -> list[Aval]:
    if spec and len(spec) != x.ndim:
        raise ShapeError(f"a sharding says how {len(spec)} axes lie, and an array of shape {x.shape} has {x.ndim}")
    if mesh is not None and spec is not None:
        partition = partition_of(spec)
        _check_mesh_axes("a sharding", partition, mesh)
    return [x]


def _insert_placement_axis(placement: Placement, axis: int, size: int) -> Placement:
    """Add an axis: unspecified, or sharded along the map's mesh axes."""
    if placement.spec is None or (placement.mesh is not None and not placement.mesh.names):
        return placement
    names = spmd_names.get()
    for name in names:
        if any(name in taken for taken in placement.spec if taken is not None):
            raise ArgumentError(at_user_line(
                f"vmap: spmd_axis_name has {name!r}, along which {shardings_text(partition_of(placement.spec))} inside "
                "cuts the value already. Name a mesh axis that it does not use"))
        if placement.mesh is not None and name not in placement.mesh.names:
            raise ArgumentError(at_user_line(
                f"vmap: spmd_axis_name has {name!r}, and the mesh of a sharding inside has the axes "
                f"{', '.join(map(repr, placement.mesh.names))}"))
    if names and placement.mesh is not None:
        check_cut_of_map(size, placement.mesh, names)
    return placement._replace(spec=(*placement.spec[:axis], names or None, *placement.spec[axis:]))


def _constraint_xla(lax: Any, x: Any, **params: Any) -> Any:
    placement, mesh = Placement(**params), jax.typeof(x).sharding.mesh
    if AxisType.Explicit in mesh.axis_types and None not in (placement.spec or ()):  # in a trace of jax's own, by types
        return jax.sharding.reshard(x, NamedSharding(mesh, partition_of(placement.spec or ())))
    return lax.with_sharding_constraint(x, jax_sharding(placement))


sharding_constraint_p: Primitive = linear_unary(
    "sharding_constraint", abstract=_abstract, numpy=lambda x, **_: x, xla=_constraint_xla,
    transpose=lambda cotangent, aval, **params: bind(sharding_constraint_p, cotangent, **params)[0],
    batch=lambda size, values, axes, **params: (bind(
        sharding_constraint_p, *values, **_insert_placement_axis(Placement(**params), axes[0], size)._asdict()), axes),
    cost=lambda aval, **_: Cost(0, 0))
"""The value itself, with a constraint on its placement and on that of its cotangent."""


def constrain(what: str, x: Any, sharding: Any, shape: Sequence[int], name: str = "the array") -> Any:
    """Return `x` under a sharding constraint of jax; raise as `placement_of` does.

    Raises as `placement_of`, and `ArgumentError` for axes of a `shard_map`.

    Within a program XLA pads pieces of other sizes, or leaves the axis whole; a concrete array cannot be placed so.
    """
    mesh = mesh_in_scope()
    mapped = [] if mesh is None else [axis for axis in _sharding_axes(sharding) if axis in mesh.names]
    if mapped:
        raise ArgumentError(at_user_line(
            f"{what}: {shardings_text(sharding)} names {mapped[0]!r}, and the function runs on each of the devices "
            "along that "
            "axis, with its piece of the arrays (shard_map). Leave the name out here, or leave the axis out of "
            "axis_names there"))
    is_traced = isinstance(x, Tracer | jax.core.Tracer)
    placement = placement_of(what, sharding, shape, name, even=not is_traced)
    return bind(sharding_constraint_p, x, **placement._asdict())[0]


def _sharding_axes(sharding: Any) -> list[str]:
    partition = getattr(sharding, "spec", sharding)
    return [axis for names in _check_partition("", partition, None, "") for axis in names or ()] if isinstance(
        partition, PartitionSpec) else []


def _put_on_devices(x: Any, placement: Placement) -> Any:
    if placement.spec is None and placement.memory_kind is not None:
        return jax.device_put(x, jax.memory.Space[placement.memory_kind])
    if placement.spec is not None and None in placement.spec:  # jax supports that in constraints alone
        if placement.memory_kind is None:
            return jax.lax.with_sharding_constraint(x, jax_sharding(placement))
        placement = placement._replace(spec=tuple(names or () for names in placement.spec))
    return jax.device_put(x, jax_sharding(placement))


def _put_abstract(x: Aval, *, spec: Partition | None, mesh: MeshShape | None, memory_kind: str | None,
                  src: Placement | None) -> list[Aval]:
    if mesh is not None and mesh.names and spec is not None and len(spec) == x.ndim:
        _check_sizes("a sharding", partition_of(spec), spec, mesh, x.shape, "an array")
    return _abstract(x, spec=spec, mesh=mesh, memory_kind=memory_kind)


def _put_back(cotangent: Any, aval: Aval, *, src: Placement | None, **to: Any) -> Any:
    if src is None:
        return cotangent
    return bind(device_put_p, cotangent, **src._asdict(), src=Placement(**to))[0]


device_put_p: Primitive = linear_unary(
    "device_put", abstract=_put_abstract, numpy=lambda x, **_: x, transpose=_put_back,
    xla=lambda lax, x, *, src, **params: _put_on_devices(x, Placement(**params)),
    batch=lambda size, values, axes, *, src, **params: (bind(
        device_put_p, *values, **_insert_placement_axis(Placement(**params), axes[0], size)._asdict(),
        src=None if src is None else _insert_placement_axis(src, axes[0], size)), axes))
"""The value itself, moved to its placement; a cotangent moves to the value's source, if that is given."""


@snippets.register(sharding_constraint_p, device_put_p)
def _identity_snippet(avals: Sequence[Aval], params: dict[str, Any]) -> Snippet:
    """NumPy code has nothing to do."""
    return Snippet("{0}", owned=False)


sparsity_rules.enter(in_place, sharding_constraint_p, device_put_p)
