"""The platform on which the next computation will run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax


def default_device() -> Any:
    """Return the device of compiled code whose arguments are on none: that of `jax.default_device`, or the first."""
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    return jax.local_devices(backend=device)[0] if device is None or isinstance(device, str) else device


def platform_of(values: Iterable[Any], compiled: bool) -> str:
    """Return the platform of a computation with `values`: "cpu", "tpu", "cuda", "rocm".

    It is that of a `jax.Array`, if there is one; that of jax's default device if the computation will be `compiled`;
    otherwise the CPU, on which NumPy computes.
    """
    placed = [value for value in values if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)]
    if placed:
        device = min(placed[0].devices(), key=lambda each: each.id)
    elif compiled:
        device = default_device()
    else:
        return "cpu"
    if device.platform == "gpu":
        return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"
    return str(device.platform)
