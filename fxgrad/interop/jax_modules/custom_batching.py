"""`custom_vmap` and `sequential_vmap` under the names that `jax.custom_batching` has for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.api.custom_batching import custom_vmap
from fxgrad.lax import map as lax_map

__all__ = ["custom_vmap", "sequential_vmap"]


def sequential_vmap(fun: Callable[..., Any]) -> custom_vmap:
    """Return `fun` with batches computed one entry after the other, by `lax.map`.

    >>> import numpy as np, fxgrad
    >>> fxgrad.vmap(fxgrad.custom_batching.sequential_vmap(np.sin))(np.zeros(2))
    array([0., 0.])
    """
    mapped = custom_vmap(fun)

    def rule(_: int, in_batched: list[Any], *args: Any) -> Any:
        leaves, structure = tree.flatten(args)
        flags = tree.leaves(in_batched)
        moving = [leaf for leaf, flag in zip(leaves, flags, strict=True) if flag]

        def one(entries: list[Any]) -> Any:
            remaining = iter(entries)
            return fun(*tree.unflatten(structure, [next(remaining) if flag else leaf
                                                   for leaf, flag in zip(leaves, flags, strict=True)]))
        output = lax_map(one, moving)
        return output, tree.map(lambda _: True, output)
    mapped.def_vmap(rule)
    return mapped

