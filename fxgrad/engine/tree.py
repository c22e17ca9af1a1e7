"""Containers of arrays (pytrees): `jax.tree_util`'s, so that every class registered with jax works here.

`import fxgrad; fxgrad.tree.map(...)` has the functions of `jax.tree`, and `register_*` for classes of your own; this
file adds key-path names for messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.tree import (
    all,  # noqa: A004
    broadcast,
    flatten_with_path,
    leaves,
    leaves_with_path,
    map,  # noqa: A004
    map_with_path,
    reduce,
    reduce_associative,
    static,
    structure,
    transpose,
)
from jax.tree_util import (
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
    register_pytree_with_keys,
    register_pytree_with_keys_class,
    register_static,
)
from jax.tree_util import (  # the functions of jax.tree, one Python call less on every use
    tree_flatten as flatten,
)
from jax.tree_util import (
    tree_unflatten as unflatten,
)

TreeDef = jax.tree_util.PyTreeDef
ShapeDtypeStruct = jax.ShapeDtypeStruct
is_none: Callable[[Any], bool] = lambda x: x is None  # noqa: E731


def path_name(path: Sequence[Any], root: str = "") -> str:
    """Return a key path as Python code, with attributes for string keys: `params.W[0]`."""
    text = root
    for key in path:
        if isinstance(key, jax.tree_util.GetAttrKey):
            text += f".{key.name}"
        elif isinstance(key, jax.tree_util.DictKey) and isinstance(key.key, str) and key.key.isidentifier():
            text += f".{key.key}"
        elif isinstance(key, jax.tree_util.SequenceKey):
            text += f"[{key.idx}]"
        elif isinstance(key, jax.tree_util.DictKey):
            text += f"[{key.key!r}]"
        else:
            text += str(key)
    return text.lstrip(".")


def leaf_names(tree: Any, root: str) -> list[str]:
    """Return the names of the leaves of `tree`, each as Python would reach it from `root`."""
    return [path_name(path, root) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]


__all__ = [
    "ShapeDtypeStruct", "TreeDef", "all", "broadcast", "flatten", "flatten_with_path", "is_none", "leaf_names",
    "leaves", "leaves_with_path", "map", "map_with_path", "path_name", "reduce", "reduce_associative",
    "register_dataclass", "register_pytree_node", "register_pytree_node_class", "register_pytree_with_keys",
    "register_pytree_with_keys_class", "register_static", "static", "structure", "transpose", "unflatten",
]
