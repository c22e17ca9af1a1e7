"""Calls of library functions on what is traced, data and known, and the code of the values that they capture."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from fxgrad.engine.core.arrays import ARRAYS, Array
from fxgrad.engine.frontend import protocol
from fxgrad.engine.frontend.ufuncs import Elementwise
from fxgrad.engine.tracing.tape import Tape
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.transparency.plan import Plan
from fxgrad.engine.transparency.values import (
    Data,
    Fresh,
    Function,
    Item,
    Known,
    Refusal,
    Traced,
    data_in,
    guarded,
    python_value,
)

IMMUTABLE = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), slice, np.dtype, type, np.generic)
"""Classes of values that nothing changes."""
_STRONG = (np.dtype(np.float64), np.dtype(np.complex128))
"""The dtypes of which a strong number is an `Array`, since NumPy's scalar is weak."""
_EFFECTS = ("fxgrad.debug", "fxgrad.engine.api", "fxgrad.config", "fxgrad.testing", "fxgrad.tools", "fxgrad.text",
            "fxgrad.shipping", "fxgrad.interop", "fxgrad.training", "fxgrad.engine.config", "fxgrad.engine.caches")
"""Modules whose functions have effects, take functions, or give something else than arrays."""


class Recorder:
    """The calls of library functions in one interpretation, on a tape that is current."""

    def __init__(self, tape: Tape, plan: Plan) -> None:
        self._tape, self._plan = tape, plan
        self.captures: list[str | None] = []
        """The code of each value that the tape captured, in order."""

    def call(self, function: Callable[..., Any], items: Sequence[Item], node: ast.AST,
             options: dict[str, Item] | None = None) -> Item:
        """Return the result of a library function on values some of which are traced, and note what it captured."""
        options = options or {}
        before = len(self._tape.captured)
        result = guarded(node, function, *(python_value(item, node) for item in items),
                         **{name: python_value(item, node) for name, item in options.items()})
        data = [*data_in([*items, *options.values()])]
        self._note_captured(before, data, node)
        for item in data:
            self._require_captured(item, node)
        self._plan.guard_classes(data)
        return self._wrap(result, data, node)

    def compute(self, function: Callable[..., Any], code: str, args: Sequence[Item], options: dict[str, Item],
                node: ast.AST) -> Item:
        """Return the result of a library function on data and known values: computed at each call, or once."""
        result = guarded(node, function, *(python_value(item, node) for item in args),
                         **{name: python_value(item, node) for name, item in options.items()})
        data = [*data_in([*args, *options.values()])]
        if not data:
            return self._wrap(result, data, node)
        if not isinstance(result, np.ndarray | np.generic | float):
            raise self._plan.needs_contents(
                data, "a library function returns something else than an array of data", node)
        if isinstance(result, np.ndarray):  # its elements are given to the library later
            self._plan.guard_classes(data)
        codes = [self.code_of(item, node) for item in args]
        codes += [f"{name}={self.code_of(item, node)}" for name, item in options.items()]
        return self._plan.compute(f"{code}({', '.join(codes)})", result)

    def rows(self, item: Traced, node: ast.AST) -> Iterator[Item]:
        """Yield the rows of a traced array."""
        before = len(self._tape.captured)
        rows = guarded(node, list, item.value)
        self._note_captured(before, [], node)
        yield from map(Traced, rows)

    def code_of(self, item: Item, node: ast.AST) -> str:
        """Return the code of a known value or of data, or of a container of them."""
        if isinstance(item, Data):
            return item.code
        if isinstance(item, Known):
            value = item.value
            return repr(value) if type(value) in (int, str, bool, type(None)) else self._plan.constant(value)
        if isinstance(item, Function) and item.receiver is None:
            return item.code
        if isinstance(item, Fresh) and isinstance(item.value, list | tuple):
            inner = ", ".join(self.code_of(each, node) for each in item.value)
            return f"[{inner}]" if isinstance(item.value, list) else f"({inner}{',' * bool(inner)})"
        raise Refusal("an object or a container is handed on", node)

    # --- what a call captured ----------------------------------------------------------------------------

    def _require_captured(self, item: Data, node: ast.AST) -> None:
        """Guard the value of a number that was looked at, and not captured; raise `Refusal` for an array."""
        if isinstance(item.value, np.ndarray):
            if not any(value is item.value for _, value in self._tape.identified()):
                raise self._plan.needs_contents([item], "the library looks at the values of an array", node)
        elif not any(code is not None and code.endswith(f"({item.code})") for code in self.captures):
            try:
                self._plan.guard_value(item)
            except Refusal as refusal:
                refusal.syntax = node
                raise

    def _note_captured(self, before: int, data: Sequence[Data], node: ast.AST) -> None:
        """Find the code of each value captured since there were `before`; raise `Refusal` in doubt."""
        captured = self._tape.captured
        known = {id(kept): value for kept, value in self._tape.identified()}
        for place in range(before, len(captured)):
            value = captured[place]
            original = known.get(id(value), value)
            code = next((item.code for item in data if item.value is original), None)
            if code is not None:
                if isinstance(value, np.ndarray) and type(original) is Array and type(value) is not Array:
                    code = f"{code}.view(ndarray)"
            elif isinstance(value, np.generic | float | complex | int):
                code = self._scalar_code(value, data, node)
            elif type(value) in ARRAYS and not value.shape and value.dtype in _STRONG:
                code = self._scalar_code(value[()], data, node)
                code = None if code is None else f"as_strong_scalar({code}).view({type(value).__name__})"
            elif data:
                raise self._plan.needs_contents(
                    data, "the library computes something from data before it records it", node)
            self.captures.append(self._plan.constant(value) if code is None else code)

    def _scalar_code(self, value: Any, data: Sequence[Data], node: ast.AST) -> str | None:
        """Return the code of a captured number; None if it follows from what is known."""
        codes = []
        for item in data:
            if isinstance(item.value, np.ndarray):
                continue
            try:
                with np.errstate(all="ignore"):
                    converted = type(value)(item.value)
            except (TypeError, ValueError, OverflowError):
                continue
            if np.asarray(converted).tobytes() == np.asarray(value).tobytes():
                codes.append(f"{self._plan.constant(type(value))}({item.code})")
        if len({*codes}) > 1:
            raise self._plan.needs_contents(
                data, "two numbers are equal, and it is open which of them is used", node)
        return codes[0] if codes else None

    def _wrap(self, result: Any, data: Sequence[Data], node: ast.AST) -> Item:
        """Return the item of a library function's result, that was computed from these data."""
        if isinstance(result, Tracer):
            return Traced(result)
        if type(result) in (list, tuple):
            return Fresh(type(result)([self._wrap(each, data, node) for each in result]))
        if type(result) is dict:
            return Fresh({key: self._wrap(each, data, node) for key, each in result.items()})
        if isinstance(result, tuple):  # a named one, of which only the items are interpreted
            return Fresh(tuple([self._wrap(each, data, node) for each in result]))
        if not data and isinstance(result, (*IMMUTABLE, np.ndarray)):
            return as_known(result)
        raise self._plan.needs_contents(data, "a library function returns what is not traced", node)


def as_known(value: Any) -> Known:
    """Return a value that follows from what is known; nobody writes to it from now on."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value.flags.writeable = False
    return Known(value)


def call_method(name: str, receiver: Any, *args: Any, **options: Any) -> Any:
    """Return the result of a method of an array."""
    return getattr(receiver, name)(*args, **options)


def call_update(name: str, place: tuple[Any, Any], *args: Any, **options: Any) -> Any:
    """Return the result of an update of an array at an index: `x.at[index].set(value)`."""
    array, index = place
    return getattr(array.at[index], name)(*args, **options)


def is_library(function: FunctionType) -> bool:
    """Return whether a function is NumPy's, jax's or fxgrad's, and not the user's."""
    module = function.__module__ or ""
    return module == "fxgrad" or module.startswith(("fxgrad.", "numpy.", "jax.")) or module == "numpy"


def is_of_numbers(value: Any) -> bool:
    """Return whether a function is one of `math`, which computes with numbers alone."""
    return isinstance(value, BuiltinFunctionType) and value.__module__ == "math"


def is_recorded(value: Any) -> bool:
    """Return whether a function is one of arrays that the library records, without effects."""
    if isinstance(value, functools.partial):
        return value.func in (call_method, call_update)
    try:
        if protocol.is_recorded(value):
            return True
    except TypeError:
        return False
    module = getattr(value, "__module__", None) or ""
    if not module.startswith("fxgrad.") or module.startswith(_EFFECTS):
        return False
    # The operations of a user's function, made into a ufunc, depend on more than its arguments.
    return isinstance(value, FunctionType | BuiltinFunctionType) or (isinstance(value, Elementwise) and not value.users)
