"""What the examples share: eight devices on any machine, meshes of them, arrays of given types, and their layout."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import fxgrad

if "JAX_NUM_CPU_DEVICES" not in os.environ and "device_count" not in os.environ.get("XLA_FLAGS", ""):
    with contextlib.suppress(RuntimeError):  # jax has begun already
        jax.config.update("jax_num_cpu_devices", 8)


def make_mesh(**sizes: int) -> Mesh:
    """The devices as a grid with these axes: `make_mesh(data=2, model=4)`."""
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), (AxisType.Auto,) * len(sizes),
                         devices=jax.devices()[:math.prod(sizes.values())])


def floats(*shape: int) -> jax.ShapeDtypeStruct:
    """The type of an array of float64."""
    return jax.ShapeDtypeStruct(shape, np.float64)


def tokens(*shape: int) -> jax.ShapeDtypeStruct:
    """The type of an array of tokens."""
    return jax.ShapeDtypeStruct(shape, np.int32)


def draw(types: Any, seed: int = 0, dtype: Any = np.float64) -> Any:
    """NumPy arrays of these types: small normal numbers of `dtype`, and tokens below 8."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda each: rng.integers(0, 8, each.shape).astype(each.dtype) if each.dtype.kind == "i" else
                        (0.4 * rng.normal(size=each.shape)).astype(dtype), types)


def lay_out(arrays: Any, mesh: Mesh, specs: Any) -> Any:
    """The arrays on the devices of a mesh; each spec says how all that is in its place in `arrays` is split."""
    with jax.enable_x64(True):  # without which jax makes float32 of float64
        return jax.tree.map(lambda spec, part: jax.device_put(part, NamedSharding(mesh, spec)), specs, arrays,
                            is_leaf=lambda each: isinstance(each, PartitionSpec))


def bytes_on_each(arrays: Any) -> list[int]:
    """How many bytes of the arrays lie on each device."""
    found: dict[Any, int] = {}
    for array in jax.tree.leaves(arrays):
        for shard in array.addressable_shards:
            found[shard.device] = found.get(shard.device, 0) + shard.data.nbytes
    return [*found.values()]


def show(loss: Callable[..., Any], parallel: Callable[[Mesh], Any], types: Any, axes: dict[str, int],
         specs: Any) -> Any:
    """Prints how far loss and gradients on a mesh are from those on one device, and what goes over the wire.

    Returns the arrays, of these types, as they lie on the mesh.
    """
    arrays, mesh = draw(types), make_mesh(**axes)
    laid_out, step = lay_out(arrays, mesh, specs), parallel(mesh)
    found = jax.tree.leaves(fxgrad.jit(step)(*laid_out))
    expected = jax.tree.leaves(fxgrad.value_and_grad(loss)(*arrays))
    apart = max(np.max(np.abs(np.asarray(here) - there)) for here, there in zip(found, expected, strict=True))
    print(f"loss {float(found[0]):.6f}; it and its gradients differ from those of one device by {apart:.0e} at most")
    for each in fxgrad.traffic(fxgrad.make_program(step)(*laid_out)):
        print(f"  {each.times:3} x {each.kind} over {each.axis}: each of {each.size} devices sends {each.sent:,} bytes")
    return laid_out
