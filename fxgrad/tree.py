"""Containers of arrays (pytrees): `jax.tree_util`'s, so that every class registered with jax works here.

`import fxgrad; fxgrad.tree.map(...)` has the functions of `jax.tree`; this file adds key-path names for
messages and prefix broadcasting with errors that name the path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.tree import (  # noqa: F401  (re-exported: the functions of jax.tree under fxgrad.tree)
    all,  # noqa: A004
    flatten_with_path,
    leaves,
    leaves_with_path,
    map,  # noqa: A004
    map_with_path,
    reduce,
    structure,
    transpose,
)
from jax.tree_util import (  # noqa: F401  (the same functions as jax.tree's, one Python call less on every use)
    tree_flatten as flatten,
)
from jax.tree_util import (  # noqa: F401
    tree_unflatten as unflatten,
)

TreeDef = jax.tree_util.PyTreeDef
ShapeDtypeStruct = jax.ShapeDtypeStruct
is_none: Callable[[Any], bool] = lambda x: x is None  # noqa: E731


def path_name(path: Sequence[Any], root: str = "") -> str:
    """A key path as one writes it in Python with attributes for string keys: `params.W[0]`."""
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
    """The names of the leaves of `tree`, each as Python would reach it from `root`."""
    return [path_name(path, root) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
