"""The peers that may be absent: HIPS autograd and PyTorch, imported when first asked for, or None."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@functools.cache
def torch() -> Any:
    """PyTorch on one thread, or None."""
    try:
        module = importlib.import_module("torch")
    except ImportError:
        return None
    module.set_num_threads(1)
    return module


@functools.cache
def autograd() -> Any:
    """HIPS autograd, or None."""
    try:
        importlib.import_module("autograd.numpy")
        return importlib.import_module("autograd")
    except ImportError:
        return None


def jax_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with jax arrays in place of NumPy's; Python numbers stay."""
    arrays: tuple[Any, ...] = jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, args)
    return arrays


def torch_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments as tensors, of which the first have gradients."""
    def tensor(leaf: Any) -> Any:
        return torch().from_numpy(np.array(leaf)) if isinstance(leaf, np.ndarray) else torch().tensor(leaf)

    tensors = jax.tree.map(tensor, args)
    for leaf in jax.tree.leaves(tensors[0]):
        leaf.requires_grad_()
    result: tuple[Any, ...] = tensors
    return result


def versions() -> dict[str, str]:
    """The versions of all that takes part, by name of the distribution."""
    metadata = importlib.import_module("importlib.metadata")
    found = {}
    for name in ("fxgrad", "numpy", "scipy", "jax", "jaxlib", "autograd", "torch"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
