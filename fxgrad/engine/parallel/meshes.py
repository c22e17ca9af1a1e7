"""Meshes and partition specs in programs: plain names and sizes, converted from jax's objects and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec

from fxgrad.engine.caches import cached
from fxgrad.engine.core.parameter_classes import declare_parameter_class
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError

Spec = tuple[tuple[str, ...], ...]
"""For each axis of an array the mesh axes that shard it, the first of them into the largest pieces."""


class MeshShape(NamedTuple):
    """A mesh in a program: the names and sizes of its axes, and the ids of its devices, row by row.

    `devices` has ranges of ids and single ones ("0-7", "0,2,4-7"); it is None for a mesh without devices
    (`jax.sharding.AbstractMesh`), on which programs run with NumPy. `platform` is that of the devices ("cpu", "gpu",
    "tpu"). Whether axes are of jax's type Auto or Explicit does not affect results, and is not stored.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    devices: str | None = None
    platform: str | None = None

    def size(self, names: Sequence[str]) -> int:
        """Return the number of entries along the axes `names` together."""
        return math.prod(self.sizes[self.names.index(name)] for name in names)

    def __str__(self) -> str:
        return " x ".join(f"{name}: {size}" for name, size in zip(self.names, self.sizes, strict=True))


declare_parameter_class(MeshShape)


def mesh_shape(what: str, mesh: Any) -> MeshShape:
    """Return jax's `Mesh` or `AbstractMesh`, or a `MeshShape`, as such; raise `ArgumentError` for anything else.

    >>> mesh_shape("f", AbstractMesh((4, 2), ("data", "model")))
    MeshShape(names=('data', 'model'), sizes=(4, 2), devices=None, platform=None)
    """
    if isinstance(mesh, MeshShape):
        return mesh
    if isinstance(mesh, Mesh):
        devices = [*mesh.devices.flat]
        runs: list[list[int]] = []  # of consecutive ids, written as "0-3,8"
        for each in [device.id for device in devices]:
            if runs and each == runs[-1][-1] + 1:
                runs[-1].append(each)
            else:
                runs.append([each])
        ids = ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
        return MeshShape(tuple(mesh.axis_names), tuple(map(int, mesh.devices.shape)), ids,
                         devices[0].platform if devices else None)
    if isinstance(mesh, AbstractMesh):
        return MeshShape(tuple(mesh.axis_names), tuple(map(int, mesh.axis_sizes)))
    raise ArgumentError(at_user_line(
        f"{what}: mesh is a {type(mesh).__name__} ({mesh!r}), where a mesh of devices is needed, such as "
        "fxgrad.make_mesh((8,), ('data',)), or jax.sharding.AbstractMesh((8,), ('data',)) to run with NumPy"))


def jax_mesh(shape: MeshShape) -> Any:
    """Return jax's mesh for `shape`, with axes of the type Auto.

    Raises `ArgumentError` if this process lacks the devices.
    """
    if shape.devices is None:
        return AbstractMesh(shape.sizes, shape.names, axis_types=(AxisType.Auto,) * len(shape.names))
    return _mesh_of_devices(shape)


@cached("meshes of jax", 256)
def _mesh_of_devices(shape: MeshShape) -> Any:
    assert shape.devices is not None
    known = {device.id: device for device in jax.devices(shape.platform)}
    ids: list[int] = []
    for part in shape.devices.split(",") if shape.devices else []:
        first, _, last = part.partition("-")
        ids += range(int(first), int(last or first) + 1)
    missing = [device for device in ids if device not in known]
    if missing:
        raise ArgumentError(at_user_line(
            f"a program for the mesh {shape} needs the {shape.platform} devices {', '.join(map(str, missing))}, and "
            f"there are {len(known)} here. Run it with as many devices as it was traced for (jax.config.update("
            "'jax_num_cpu_devices', n) gives n of the CPU), or with NumPy's arrays, which need none"))
    devices = np.array([known[device] for device in ids], dtype=object).reshape(shape.sizes)
    return Mesh(devices, shape.names, axis_types=(AxisType.Auto,) * len(shape.names))


def spec_of(partition: Any, rank: int) -> Spec:
    """Return the mesh axes in a `PartitionSpec` for each of `rank` axes; axes that it leaves out have none.

    >>> spec_of(PartitionSpec("x", None, ("y", "z")), 4)
    (('x',), (), ('y', 'z'), ())
    """
    entries = [*map(entry_axes, partition)]
    return (*entries, *((),) * (rank - len(entries)))


def entry_axes(entry: Any) -> tuple[str, ...]:
    """Return the axis names in one entry of a `PartitionSpec`."""
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def is_partial(partition: Any) -> bool:
    """Return whether a `PartitionSpec` has pending sums over mesh axes, or its derivatives have."""
    return bool(getattr(partition, "unreduced", None) or getattr(partition, "reduced", None))


def refuse_partial(what: str, partition: Any, name: str) -> None:
    """Raise `UnsupportedError` for a `PartitionSpec` with pending sums."""
    if is_partial(partition):
        raise UnsupportedError(at_user_line(
            f"{what}: {partition!r} says that {name} is not summed over a mesh axis yet, which programs of fxgrad do "
            "not track; device_put of arrays that are not traced takes it. Sum inside shard_map, with fxgrad.lax.psum"))


def partition_of(spec: Sequence[tuple[str, ...] | None]) -> Any:
    """Return the `PartitionSpec` of `spec`; None stands for an axis that is left to XLA.

    >>> partition_of((("x",), (), ("y", "z"))) == PartitionSpec("x", None, ("y", "z"))
    True
    """
    return PartitionSpec(*(PartitionSpec.UNCONSTRAINED if names is None else None if not names else
                           names[0] if len(names) == 1 else names for names in spec))


def spec_axes(spec: Spec) -> tuple[str, ...]:
    """Return all mesh axes in a spec, in order."""
    return tuple(name for names in spec for name in names)


def check_cut_of_map(size: int, mesh: MeshShape, names: Sequence[str]) -> None:
    """Raise `ShapeError` unless the mapped axis of a `vmap` can be sharded along its `spmd_axis_name`."""
    count = mesh.size(names)
    if size % count:
        raise ShapeError(at_user_line(
            f"vmap: the mapped axis of size {size} is to be cut along the mesh axis {' and '.join(map(repr, names))} "
            f"(spmd_axis_name) into {count} equal pieces, and {size} is not divisible by {count}. Pad it"))


def map_over_mesh(function: Callable[..., tuple[Any, ...]], shape: MeshShape, in_specs: Sequence[Spec],
                  out_specs: Sequence[Spec], axis_names: Sequence[str]) -> Callable[..., tuple[Any, ...]]:
    """Return jax's `shard_map` of a function of jax's arrays; varying axes are tracked here and not checked again.

    A mesh without devices gets those of the mesh set by `jax.set_mesh`, if it has the same axes, and otherwise those
    that the arguments of the compiled program lie on.
    """
    def mapped(*values: Any) -> tuple[Any, ...]:
        context = jax.sharding.get_abstract_mesh()
        inside = any(kind is AxisType.Manual for kind in context.axis_types)  # inside another one, which has the mesh
        known = (tuple(context.axis_names), tuple(context.axis_sizes)) == (shape.names, shape.sizes)
        around = inside or (shape.devices is None and known)
        call = jax.shard_map(function, mesh=None if around else jax_mesh(shape),
                             in_specs=tuple(map(partition_of, in_specs)), out_specs=tuple(map(partition_of, out_specs)),
                             axis_names=frozenset(axis_names), check_vma=False)
        if around or context.empty or shape.devices is None:
            return call(*values)
        with jax.sharding.use_abstract_mesh(jax_mesh(shape).abstract_mesh):  # its axes are of the type Auto
            return call(*values)
    return mapped
