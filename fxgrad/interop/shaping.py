"""jax's operations that make arrays, change their shapes, move their elements, join them and take them apart."""

from __future__ import annotations

from typing import Any

from jax.sharding import AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.ops import joining, shaping, structural
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.parallel.meshes import jax_mesh, mesh_shape
from fxgrad.engine.parallel.shardings import constrain, device_put_p, placement_of
from fxgrad.engine.tracing.tape import bind
from fxgrad.interop.importing import aval_of_jax, import_rule
from fxgrad.interop.matching import integer_params, read_parameters


@import_rule("broadcast_in_dim")
def _broadcast_in_dim(equation: Any, x: Any) -> Any:
    sizes, axes = read_parameters(equation, "shape", "broadcast_dimensions")
    return shaping.broadcast_in_dim(x, integer_params(sizes), integer_params(axes))


@import_rule("reshape")
def _reshape(equation: Any, x: Any) -> Any:
    sizes, order = read_parameters(equation, "new_sizes", "dimensions")
    return structural.reshape(x if order is None else structural.transpose(x, integer_params(order)),
                              integer_params(sizes))


@import_rule("squeeze", "expand_dims")
def _squeeze(equation: Any, x: Any) -> Any:
    read_parameters(equation, "dimensions")
    return structural.reshape(x, aval_of_jax(equation.outvars[0].aval).shape)


@import_rule("transpose")
def _transpose(equation: Any, x: Any) -> Any:
    order, = read_parameters(equation, "permutation")
    return structural.transpose(x, integer_params(order))


@import_rule("rev")
def _rev(equation: Any, x: Any) -> Any:
    axes, = read_parameters(equation, "dimensions")
    return shaping.rev(x, integer_params(axes))


@import_rule("tile")
def _tile(equation: Any, x: Any) -> Any:
    counts, = read_parameters(equation, "reps")
    return shaping.tile(x, integer_params(counts))


@import_rule("pad")
def _pad(equation: Any, x: Any, value: Any) -> Any:
    config, = read_parameters(equation, "padding_config")
    return shaping.pad(x, value, tuple(map(integer_params, config)))  # type: ignore[arg-type]


@import_rule("slice")
def _slice(equation: Any, x: Any) -> Any:
    starts, limits, strides = read_parameters(equation, "start_indices", "limit_indices", "strides")
    return shaping.slice(x, integer_params(starts), integer_params(limits), None if strides is None
                         else integer_params(strides))


@import_rule("concatenate")
def _concatenate(equation: Any, *arrays: Any) -> Any:
    axis, = read_parameters(equation, "dimension")
    return joining.concatenate(arrays, int(axis))


@import_rule("stack")
def _stack(equation: Any, *arrays: Any) -> Any:
    axis, = read_parameters(equation, "axis")
    return joining.stack(arrays, int(axis))


@import_rule("unstack")
def _unstack(equation: Any, x: Any) -> Any:
    axis, = read_parameters(equation, "axis")
    return joining.unstack(x, int(axis))


@import_rule("split")
def _split(equation: Any, x: Any) -> Any:
    sizes, axis = read_parameters(equation, "sizes", "axis")
    return joining.split(x, integer_params(sizes), int(axis))


@import_rule("iota")
def _iota(equation: Any) -> Any:
    dtype, sizes, axis = read_parameters(equation, "dtype", "shape", "dimension")
    return iota(dtypes.canonical(dtype), integer_params(sizes), int(axis))


@import_rule("empty", "empty2")
def _empty(equation: Any) -> Any:
    """Return zeros: programs have no undefined values."""
    read_parameters(equation, "shape", "dtype")
    return structural.zeros(aval_of_jax(equation.outvars[0].aval))


@import_rule("device_put")
def _device_put(equation: Any, *arrays: Any) -> Any:
    """Return the arrays unchanged if no device is named: they stay where they are."""
    devices, sources = read_parameters(equation, "devices", "srcs", ignored=("copy_semantics",))
    if any(at is not None and not isinstance(at, NamedSharding) for at in (*devices, *sources)):
        return NotImplemented
    placed = [[None if at is None else placement_of("device_put", at, array.shape) for at in (to, source)]
              for array, to, source in zip(arrays, devices, sources, strict=True)]
    return [array if to is None else bind(device_put_p, array, **to._asdict(), src=source)[0]
            for array, (to, source) in zip(arrays, placed, strict=True)]


@import_rule("sharding_constraint")
def _sharding_constraint(equation: Any, array: Any) -> Any:
    sharding, layout = read_parameters(equation, "sharding", "layout", ignored=("context_mesh", "unconstrained_dims"))
    if layout is not None or not isinstance(sharding, NamedSharding | SingleDeviceSharding):
        return NotImplemented
    return constrain("with_sharding_constraint", array, sharding, array.shape)


@import_rule("reshard")
def _reshard(equation: Any, array: Any) -> Any:
    """Constrain the sharding along Explicit axes; other axes concern only the type, and the value is unchanged."""
    to, mesh = read_parameters(equation, "dst_sharding", "concrete_mesh")
    kinds = set(to.mesh.axis_types)
    if AxisType.Explicit not in kinds:
        return array
    automatic = jax_mesh(mesh_shape("reshard", to.mesh if mesh is None else mesh))
    open_ = PartitionSpec.UNCONSTRAINED if AxisType.Auto in kinds else None
    entries = [*to.spec, *[None] * (len(array.shape) - len(to.spec))]
    return constrain("reshard", array, NamedSharding(automatic, PartitionSpec(*(
        open_ if entry is None else entry for entry in entries))), array.shape)


@import_rule("platform_index")
def _platform_index(equation: Any) -> Any:
    """Return which of several versions for platforms runs: known if none is for a platform that arrays are on."""
    platforms, = read_parameters(equation, "platforms")
    named = [name for group in platforms if group is not None for name in group]
    if None not in platforms or not set(named).isdisjoint(("cpu", "cuda", "rocm", "gpu", "tpu")):
        return NotImplemented
    return Literal(list(platforms).index(None), Aval((), dtypes.int32))
