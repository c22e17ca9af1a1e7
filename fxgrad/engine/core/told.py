"""Values as parts of the keys of caches: numbers are told apart by type and bits, other objects by identity.

Python takes 1, 1.0 and True for equal, 0.0 and -0.0 too, a NaN for unequal to itself, and objects for what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from fxgrad.engine.core.primitive import Primitive, library

# Equal values of one of these types are the same for whoever gets them; bound methods compare what they are bound to
# by identity.
_BY_EQUALITY = frozenset({int, bool, str, bytes, type(None), type(Ellipsis), type, FunctionType, BuiltinFunctionType,
                          MethodType})


class Told:
    """Anything that compares by what it is made of, each part of which is told apart: a base class."""

    __slots__ = ()


class Itself(Told):
    """An object that is equal to itself alone; it is kept alive, so that nothing else gets its id."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Itself and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def told(value: Any) -> Any:
    """Something that is equal only to what is `told` of values that nobody can tell from `value`.

    >>> told(1) == told(1), told(1) == told(True), told(0.0) == told(-0.0), told((1,)) == told((1.0,))
    (True, False, False, False)
    >>> told([]) == told([])
    False
    """
    kind = type(value)
    if kind in _BY_EQUALITY:
        return kind, value
    if kind is float or kind is complex:
        return kind, repr(value)
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    if kind is tuple:
        return kind, *map(told, value)
    if kind is slice:
        return kind, told(value.start), told(value.stop), told(value.step)
    if isinstance(value, np.dtype | Told):
        return kind, value
    return Itself(value)


def param_key(primitive: Primitive, params: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """The parameters of an operation as a part of a key: what users give to primitives of their own is told apart."""
    return params.items() if primitive in library else [(name, told(value)) for name, value in params.items()]
