"""Cache keys: numbers are distinguished by type and bits, other objects by identity, or as jax compares them.

`==` cannot compare cache keys: `1 == 1.0 == True`, `0.0 == -0.0`, `nan != nan`, and classes override `__eq__`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from fxgrad.engine.core.primitive import Primitive, library
from fxgrad.engine.tree import TreeDef

# Equal values of one of these types are indistinguishable; bound methods compare their objects by identity.
_BY_EQUALITY = frozenset({int, bool, str, bytes, type(None), type(Ellipsis), type, FunctionType, BuiltinFunctionType,
                          MethodType})


class StructuralKey:
    """Base class of objects that compare by their parts, each of which is a cache key."""

    __slots__ = ()


class IdentityKey(StructuralKey):
    """A key equal only to keys of the same object; it keeps the object alive, so that its id is not reused."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is IdentityKey and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def cache_key(value: Any) -> Any:
    """Return a key equal only to the keys of values indistinguishable from `value`.

    >>> one = cache_key(1)
    >>> one == cache_key(1), one == cache_key(True), cache_key(0.0) == cache_key(-0.0)
    (True, False, False)
    >>> cache_key((1,)) == cache_key((1.0,)), cache_key([]) == cache_key([])
    (False, False)
    >>> nan = float("nan")
    >>> cache_key(nan) == cache_key(nan), cache_key(nan) == cache_key(-nan)
    (True, False)
    """
    kind = type(value)
    if kind in _BY_EQUALITY:
        return kind, value
    if kind is float or kind is complex:
        return kind, repr(value) if value == value else np.asarray(value).tobytes()  # noqa: PLR0124  (NaNs have signs)
    if kind is tuple:
        return kind, *map(cache_key, value)
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    if kind is slice:
        return kind, cache_key(value.start), cache_key(value.stop), cache_key(value.step)
    if isinstance(value, np.dtype | StructuralKey):
        return kind, value
    return IdentityKey(value)


def comparison_key(value: Any) -> Hashable:
    """Return a key for an object that jax compares by `==`: its type and itself, or its identity if it has no hash.

    Numbers are told apart by their bits, and tuples entry by entry, as by `cache_key`.

    >>> comparison_key((1, 0.0)) == comparison_key((True, 0.0)), comparison_key(0.0) == comparison_key(-0.0)
    (False, False)
    >>> comparison_key(frozenset({2})) == comparison_key(frozenset({2})), comparison_key([]) == comparison_key([])
    (True, False)
    """
    kind = type(value)
    if kind is tuple:
        return kind, *map(comparison_key, value)
    if kind is float or kind is complex or isinstance(value, np.generic):
        key: Hashable = cache_key(value)
        return key
    try:
        hash(value)
    except TypeError:
        return IdentityKey(value)
    return kind, value


def tree_key(structure: TreeDef) -> tuple[Hashable, ...]:
    """Return a key of containers: jax's equality takes `{1: x}` for `{True: x}`, and so all metadata of containers.

    >>> import jax
    >>> one, other = (jax.tree_util.tree_structure({key: 2.0}) for key in (1, True))
    >>> one == other, tree_key(one) == tree_key(other)
    (True, False)
    """
    return structure, *_metadata_keys(structure)


def _metadata_keys(structure: TreeDef) -> Iterator[Hashable]:
    """Yield the keys of the metadata of each container: keys of dicts, and what a class flattens to beside leaves."""
    node = structure.node_data()
    if node is not None and node[1] is not None:
        yield comparison_key(tuple(node[1]) if node[0] is dict else node[1])
    for child in structure.children():
        yield from _metadata_keys(child)


def param_key(primitive: Primitive, params: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the parameters of an operation as part of a key.

    Parameters of the library's own primitives have one form each, and stay unchanged; users' become cache keys.
    """
    return params.items() if primitive in library else [(name, cache_key(value)) for name, value in params.items()]
