"""jax's operations that make arrays, change their shapes, move their elements, join them and take them apart."""

from __future__ import annotations

from typing import Any

from jax.sharding import AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.ops import joining, shaping, structural
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.parallel.meshes import jax_mesh, mesh_shape
from fxgrad.engine.parallel.shardings import constrained, device_put_p, placement_of
from fxgrad.engine.tracing.tape import bind
from fxgrad.interop.importing import aval_of_jax, imports
from fxgrad.interop.matching import integers, parameters


@imports("broadcast_in_dim")
def _broadcast_in_dim(equation: Any, x: Any) -> Any:
    sizes, axes = parameters(equation, "shape", "broadcast_dimensions")
    return shaping.broadcast_in_dim(x, integers(sizes), integers(axes))


@imports("reshape")
def _reshape(equation: Any, x: Any) -> Any:
    sizes, order = parameters(equation, "new_sizes", "dimensions")
    return structural.reshape(x if order is None else structural.transpose(x, integers(order)), integers(sizes))


@imports("squeeze", "expand_dims")
def _squeeze(equation: Any, x: Any) -> Any:
    parameters(equation, "dimensions")
    return structural.reshape(x, aval_of_jax(equation.outvars[0].aval).shape)


@imports("transpose")
def _transpose(equation: Any, x: Any) -> Any:
    order, = parameters(equation, "permutation")
    return structural.transpose(x, integers(order))


@imports("rev")
def _rev(equation: Any, x: Any) -> Any:
    axes, = parameters(equation, "dimensions")
    return shaping.rev(x, integers(axes))


@imports("tile")
def _tile(equation: Any, x: Any) -> Any:
    counts, = parameters(equation, "reps")
    return shaping.tile(x, integers(counts))


@imports("pad")
def _pad(equation: Any, x: Any, value: Any) -> Any:
    config, = parameters(equation, "padding_config")
    return shaping.pad(x, value, tuple(map(integers, config)))  # type: ignore[arg-type]


@imports("slice")
def _slice(equation: Any, x: Any) -> Any:
    starts, limits, strides = parameters(equation, "start_indices", "limit_indices", "strides")
    return shaping.slice(x, integers(starts), integers(limits), None if strides is None else integers(strides))


@imports("concatenate")
def _concatenate(equation: Any, *arrays: Any) -> Any:
    axis, = parameters(equation, "dimension")
    return joining.concatenate(arrays, int(axis))


@imports("stack")
def _stack(equation: Any, *arrays: Any) -> Any:
    axis, = parameters(equation, "axis")
    return joining.stack(arrays, int(axis))


@imports("unstack")
def _unstack(equation: Any, x: Any) -> Any:
    axis, = parameters(equation, "axis")
    return joining.unstack(x, int(axis))


@imports("split")
def _split(equation: Any, x: Any) -> Any:
    sizes, axis = parameters(equation, "sizes", "axis")
    return joining.split(x, integers(sizes), int(axis))


@imports("iota")
def _iota(equation: Any) -> Any:
    dtype, sizes, axis = parameters(equation, "dtype", "shape", "dimension")
    return iota(dtypes.canonical(dtype), integers(sizes), int(axis))


@imports("empty", "empty2")
def _empty(equation: Any) -> Any:
    """Zeros: a value that is not defined has no place in a program."""
    parameters(equation, "shape", "dtype")
    return structural.zeros(aval_of_jax(equation.outvars[0].aval))


@imports("device_put")
def _device_put(equation: Any, *arrays: Any) -> Any:
    """Nothing, where no device is named: then arrays are where they are."""
    devices, sources = parameters(equation, "devices", "srcs", ignored=("copy_semantics",))
    if any(at is not None and not isinstance(at, NamedSharding) for at in (*devices, *sources)):
        return NotImplemented
    placed = [[None if at is None else placement_of("device_put", at, array.shape) for at in (to, source)]
              for array, to, source in zip(arrays, devices, sources, strict=True)]
    return [array if to is None else bind(device_put_p, array, **to._asdict(), src=source)[0]
            for array, (to, source) in zip(arrays, placed, strict=True)]


@imports("sharding_constraint")
def _sharding_constraint(equation: Any, array: Any) -> Any:
    sharding, layout = parameters(equation, "sharding", "layout", ignored=("context_mesh", "unconstrained_dims"))
    if layout is not None or not isinstance(sharding, NamedSharding | SingleDeviceSharding):
        return NotImplemented
    return constrained("with_sharding_constraint", array, sharding, array.shape)


@imports("reshard")
def _reshard(equation: Any, array: Any) -> Any:
    """A constraint along the axes that are Explicit; of others the type speaks, and the value is what it was."""
    to, mesh = parameters(equation, "dst_sharding", "concrete_mesh")
    kinds = set(to.mesh.axis_types)
    if AxisType.Explicit not in kinds:
        return array
    automatic = jax_mesh(mesh_shape("reshard", to.mesh if mesh is None else mesh))
    open_ = PartitionSpec.UNCONSTRAINED if AxisType.Auto in kinds else None
    entries = [*to.spec, *[None] * (len(array.shape) - len(to.spec))]
    return constrained("reshard", array, NamedSharding(automatic, PartitionSpec(*(
        open_ if entry is None else entry for entry in entries))), array.shape)


@imports("platform_index")
def _platform_index(equation: Any) -> Any:
    """Which of several versions for platforms runs: known if none of them is for a platform that arrays are on."""
    platforms, = parameters(equation, "platforms")
    named = [name for group in platforms if group is not None for name in group]
    if None not in platforms or not set(named).isdisjoint(("cpu", "cuda", "rocm", "gpu", "tpu")):
        return NotImplemented
    return Literal(list(platforms).index(None), Aval((), dtypes.int32))
