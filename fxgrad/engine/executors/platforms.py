"""The platform on which the next computation will run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax


def platform_of(values: Iterable[Any], compiled: bool) -> str:
    """Return the platform of a computation with `values`: "cpu", "tpu", "cuda", "rocm".

    It is that of a `jax.Array`, if there is one; that of jax's default device if the computation will be `compiled`;
    otherwise the CPU, on which NumPy computes.
    """
    placed = [value for value in values if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)]
    if placed:
        device = min(placed[0].devices(), key=lambda each: each.id)
    elif compiled:
        device = jax.devices()[0]
    else:
        return "cpu"
    if device.platform == "gpu":
        return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"
    return str(device.platform)
