"""jax's devices: list them, move arrays to them and back, and assemble arrays from the pieces of devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from fxgrad.engine import tree
from fxgrad.engine.core.avals import keys_to_jax, to_numpy
from fxgrad.engine.executors.xla import x64
from fxgrad.engine.frontend.placing import shardings_of_leaves
from fxgrad.engine.parallel.meshes import is_partial
from fxgrad.engine.parallel.shardings import Placement, device_put_p, placement_of
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError


def devices(backend: str | None = None) -> list[Any]:
    """Return jax's devices: those of the default backend, or of the one named.

    >>> import fxgrad
    >>> len(fxgrad.devices("cpu")) > 0
    True
    """
    return jax.devices(backend)


def local_devices(process_index: int | None = None, backend: str | None = None) -> list[Any]:
    """Return the devices of this process.

    >>> import fxgrad
    >>> len(fxgrad.local_devices(backend="cpu")) > 0
    True
    """
    found: list[Any] = jax.local_devices(process_index, backend)
    return found


def device_count(backend: str | None = None) -> int:
    """Return the number of devices.

    >>> import fxgrad
    >>> fxgrad.device_count() == len(fxgrad.devices())
    True
    """
    return jax.device_count(backend)


def local_device_count(backend: str | None = None) -> int:
    """Return the number of devices of this process.

    >>> import fxgrad
    >>> fxgrad.local_device_count() == len(fxgrad.local_devices())
    True
    """
    return jax.local_device_count(backend)


def default_backend() -> str:
    """Return the platform that programs run on: "cpu", "gpu" or "tpu".

    >>> import fxgrad
    >>> fxgrad.default_backend() == fxgrad.devices()[0].platform
    True
    """
    return jax.default_backend()


def process_count(backend: str | None = None) -> int:
    """Return the number of processes; `jax.distributed.initialize` connects them.

    >>> import fxgrad
    >>> fxgrad.process_count()
    1
    """
    return int(jax.process_count(backend))


def process_index(backend: str | None = None) -> int:
    """Return the number of this process, from 0.

    >>> import fxgrad
    >>> fxgrad.process_index()
    0
    """
    return int(jax.process_index(backend))


def make_array_from_callback(shape: Sequence[int], sharding: Any, data_callback: Callable[[Any], Any],
                             dtype: Any = None) -> Any:
    """Return a `jax.Array` assembled from `data_callback(index)` for the piece of each device of this process.

    >>> import numpy as np, fxgrad
    >>> rows = fxgrad.NamedSharding(fxgrad.make_mesh((1,), ("data",)), fxgrad.P("data"))
    >>> fxgrad.make_array_from_callback((3,), rows, lambda index: np.arange(3.0)[index]).dtype
    dtype('float64')
    """
    with x64():
        return jax.make_array_from_callback(tuple(shape), sharding, data_callback, dtype=dtype)


def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Any = None) -> Any:
    """Return `jax.Array`s, in the container `local_data`, assembled from the part that each process passes.

    Without a `global_shape`, the parts of all processes are concatenated along the axes that are sharded over
    processes.

    >>> import numpy as np, fxgrad
    >>> rows = fxgrad.NamedSharding(fxgrad.make_mesh((1,), ("data",)), fxgrad.P("data"))
    >>> fxgrad.make_array_from_process_local_data(rows, np.arange(3.0)).shape
    (3,)
    """
    made: Any = jax.make_array_from_process_local_data
    with x64():
        return made(sharding, local_data, global_shape)


def make_array_from_single_device_arrays(shape: Sequence[int], sharding: Any, arrays: Sequence[Any],
                                         *, dtype: Any = None) -> Any:
    """Return the `jax.Array` whose pieces are `arrays`, one for each device of this process.

    `dtype` is needed where this process has no piece.

    >>> import fxgrad
    >>> rows = fxgrad.NamedSharding(fxgrad.make_mesh((1,), ("data",)), fxgrad.P("data"))
    >>> piece = fxgrad.device_put(1.5, fxgrad.devices()[0]).reshape(1)
    >>> fxgrad.make_array_from_single_device_arrays((1,), rows, [piece]).shape
    (1,)
    """
    with x64():
        return jax.make_array_from_single_device_arrays(tuple(shape), sharding, arrays, dtype=dtype)


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: bool = False,
               may_alias: bool | None = None) -> Any:
    """Return the arrays in the container `x` as `jax.Array`s on `device` (a jax device or sharding), of the same dtype.

    `device` may be a container of them that is a prefix of `x`. For a sharding on a mesh or another kind of memory, the
    program moves a traced array. For a single device it does not, since programs run where their arguments lie. The
    cotangent goes to `src`, if that is given. `donate` and `may_alias` are jax's, for concrete arrays.

    Raises `ArgumentError` and `ShapeError` for shardings that do not fit.

    >>> import numpy as np, fxgrad
    >>> fxgrad.device_put(np.arange(3.0)).dtype
    dtype('float64')
    """
    leaves, structure = tree.flatten(x)
    devices, sources = (shardings_of_leaves("device_put", x, each, "one device or sharding") for each in (device, src))
    results = []
    with x64():
        for leaf, to, at in zip(leaves, devices, sources, strict=True):
            value = keys_to_jax(leaf)
            if type(leaf) is not Tracer and is_partial(getattr(to, "spec", to)):
                value = jax.numpy.asarray(value)  # jax cuts nothing else so
            elif isinstance(to, NamedSharding | PartitionSpec):
                placement_of("device_put", to, np.shape(leaf))
            results.append(_put_by_program(leaf, to, at) if type(leaf) is Tracer else jax.device_put(
                value, to, src=at, donate=donate, may_alias=may_alias))
    return tree.unflatten(structure, results)


def _put_by_program(x: Tracer, device: Any, src: Any) -> Any:
    to = _placement(device, x.shape)
    if to is None or (to.mesh is not None and not to.mesh.names and to.memory_kind is None):
        return x
    return bind(device_put_p, x, **to._asdict(), src=_placement(src, x.shape))[0]


def _placement(device: Any, shape: tuple[int, ...]) -> Placement | None:
    if device is None:
        return None
    if isinstance(device, jax.memory.Space):
        return Placement(None, None, device.name)
    return placement_of("device_put", device, shape)


def make_mesh(axis_shapes: Sequence[int], axis_names: Sequence[str], axis_types: Any = None, *,
              devices: Sequence[Any] | None = None) -> Any:
    """Return jax's mesh of devices: `axis_shapes` are the sizes of its axes, and `axis_names` their names.

    The devices are those of the default backend, unless `devices` are given, in an order that suits the network between
    them. `axis_types` are `fxgrad.sharding.AxisType`s, by default jax's default.

    Raises `ArgumentError` if sizes and names differ in number, a name repeats, or there are too few devices.

    >>> import fxgrad
    >>> mesh = fxgrad.make_mesh((1, 1), ("data", "model"))
    >>> mesh.shape["data"], mesh.axis_names
    (1, ('data', 'model'))
    """
    sizes, names = (axis_shapes,) if isinstance(axis_shapes, int) else tuple(axis_shapes), axis_names
    names = (names,) if isinstance(names, str) else tuple(names)
    call = f"make_mesh({sizes}, {names})"
    if len(sizes) != len(names):
        raise ArgumentError(at_user_line(
            f"{call}: there are {len(sizes)} sizes and {len(names)} names; each axis has one of both"))
    if len(set(names)) < len(names):
        raise ArgumentError(at_user_line(f"{call}: an axis name is repeated; the names must be distinct"))
    if not all(isinstance(size, int | np.integer) and size > 0 for size in sizes):
        raise ArgumentError(at_user_line(f"{call}: sizes are whole numbers, at least 1"))
    available, wanted = jax.device_count() if devices is None else len(devices), math.prod(sizes)
    if wanted > available:
        raise ArgumentError(at_user_line(
            f"{call}: the mesh has {wanted} devices, and there {'is' if available == 1 else 'are'} {available}. Take a "
            "smaller one; for tests, jax.config.update('jax_num_cpu_devices', "
            f"{wanted}) before the first use makes as many of the CPU; jax.sharding.AbstractMesh({sizes}, {names}) "
            "needs none, and runs with NumPy"))
    return jax.make_mesh(sizes, names, axis_types, devices=devices)


def device_get(x: Any) -> Any:
    """Return the arrays in the container `x` as NumPy arrays.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> fxgrad.device_get(fxgrad.jit(lambda x: x + 1.0)(fnp.zeros(2)))
    array([1., 1.], dtype=float32)
    """
    return tree.map(lambda leaf: to_numpy(leaf) if isinstance(leaf, jax.Array) else (
        leaf if type(leaf) is Tracer else np.asarray(leaf)), x)


def block_until_ready(x: Any) -> Any:
    """Return `x` itself, once all arrays in it are computed.

    >>> import numpy as np, fxgrad
    >>> fxgrad.block_until_ready((np.ones(2), 3.0))
    (array([1., 1.]), 3.0)
    """
    for leaf in tree.leaves(x):
        if isinstance(leaf, jax.Array):
            leaf.block_until_ready()
    return x
