"""Methods of Python's numbers on traced scalars: `is_integer`, `bit_length` and `bit_count`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.ops.comparison import clz
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.numpy import elementwise, logic

_WIDTH = 64


def _is_integer(x: Any) -> Any:
    """Return whether a number is whole; infinities and NaNs are not."""
    if dtypes.kind_of(aval_of(x).dtype) in "iu":
        return logic.equal.function(x, x)
    return logic.logical_and.function(elementwise.isfinite(x), logic.equal.function(elementwise.trunc(x), x))


def _bit_length(x: Any) -> Any:
    """Return the number of bits of the absolute value."""
    return _as_int(_WIDTH - clz(_magnitude(x)))


def _bit_count(x: Any) -> Any:
    """Return the number of ones among them."""
    return _as_int(logic.bitwise_count.function(_magnitude(x)))


def _magnitude(x: Any) -> Any:
    return convert(elementwise.absolute.function(x), dtypes.canonical("uint64"))


def _as_int(x: Any) -> Any:
    return convert(x, dtypes.int64, weak=True)


_METHODS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "is_integer": (_is_integer, "iuf"), "bit_length": (_bit_length, "iu"), "bit_count": (_bit_count, "iu")}
"""Methods, with the kinds of the dtypes that have them."""
NUMBER_METHODS = frozenset(_METHODS)


def number_methods() -> dict[str, property]:
    """Return the methods by name, each as a property that arrays and numbers of other kinds do not have."""
    def method(name: str, function: Callable[[Any], Any], kinds: str) -> property:
        def get(self: Any) -> Callable[[], Any]:
            aval = aval_of(self)
            if aval.shape or dtypes.kind_of(aval.dtype) not in kinds:
                raise AttributeError(f"{aval} has no attribute {name!r}", name=name, obj=self)
            return lambda: function(self)
        return property(get, doc=function.__doc__)
    return {name: method(name, *each) for name, each in _METHODS.items()}
