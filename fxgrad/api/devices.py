"""Where arrays lie: jax's devices, to which arrays are moved and from which they come back."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from fxgrad import tree
from fxgrad.core.avals import keys_to_jax, to_numpy
from fxgrad.executors.xla import x64
from fxgrad.tracing.tracer import Tracer


def devices(backend: str | None = None) -> list[Any]:
    """jax's devices: those of the default backend, or of the one named.

    >>> import fxgrad
    >>> len(fxgrad.devices("cpu")) > 0
    True
    """
    return jax.devices(backend)


def local_devices(process_index: int | None = None, backend: str | None = None) -> list[Any]:
    """The devices of this process.

    >>> import fxgrad
    >>> len(fxgrad.local_devices(backend="cpu")) > 0
    True
    """
    found: list[Any] = jax.local_devices(process_index, backend)
    return found


def device_count(backend: str | None = None) -> int:
    """How many devices there are.

    >>> import fxgrad
    >>> fxgrad.device_count() == len(fxgrad.devices())
    True
    """
    return jax.device_count(backend)


def local_device_count(backend: str | None = None) -> int:
    """How many devices this process has.

    >>> import fxgrad
    >>> fxgrad.local_device_count() == len(fxgrad.local_devices())
    True
    """
    return jax.local_device_count(backend)


def default_backend() -> str:
    """The platform that programs run on: "cpu", "gpu" or "tpu".

    >>> import fxgrad
    >>> fxgrad.default_backend() == fxgrad.devices()[0].platform
    True
    """
    return jax.default_backend()


def device_put(x: Any, device: Any = None) -> Any:
    """The arrays in the container `x` as jax's on `device` (a device or a sharding of jax's), of the same dtype.

    Traced arrays stay as they are: programs say where they run.

    >>> import numpy as np, fxgrad
    >>> fxgrad.device_put(np.arange(3.0)).dtype
    dtype('float64')
    """
    with x64():
        return tree.map(lambda leaf: leaf if type(leaf) is Tracer else jax.device_put(keys_to_jax(leaf), device), x)


def device_get(x: Any) -> Any:
    """The arrays in the container `x` as NumPy's.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> fxgrad.device_get(fxgrad.jit(lambda x: x + 1.0)(fnp.zeros(2)))
    array([1., 1.], dtype=float32)
    """
    return tree.map(lambda leaf: to_numpy(leaf) if isinstance(leaf, jax.Array) else (
        leaf if type(leaf) is Tracer else np.asarray(leaf)), x)


def block_until_ready(x: Any) -> Any:
    """`x` itself, once all arrays in it are computed.

    >>> import numpy as np, fxgrad
    >>> fxgrad.block_until_ready((np.ones(2), 3.0))
    (array([1., 1.]), 3.0)
    """
    for leaf in tree.leaves(x):
        if isinstance(leaf, jax.Array):
            leaf.block_until_ready()
    return x
