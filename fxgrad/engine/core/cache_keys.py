"""Cache keys: numbers are distinguished by type and bits, other objects by identity.

`==` cannot compare cache keys: `1 == 1.0 == True`, `0.0 == -0.0`, `nan != nan`, and classes override `__eq__`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from fxgrad.engine.core.primitive import Primitive, library

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


def param_key(primitive: Primitive, params: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the parameters of an operation as part of a key.

    Parameters of the library's own primitives have one form each, and stay unchanged; users' become cache keys.
    """
    return params.items() if primitive in library else [(name, cache_key(value)) for name, value in params.items()]
