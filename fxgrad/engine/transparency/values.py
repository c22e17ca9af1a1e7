"""What is known of a Python value in the interpretation of a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from fxgrad.engine.core.arrays import Array


class Refusal(Exception):  # noqa: N818  (the interpretation ends, and the call runs as usual)
    """A function is not shown to be transparent: `reason`, at `syntax` in its tree."""

    def __init__(self, reason: str, syntax: ast.AST | None = None) -> None:
        super().__init__(reason)
        self.reason, self.syntax = reason, syntax
        self.filename = ""

    @property
    def line(self) -> int | None:
        """The number of the line; None where the reason has no place."""
        return getattr(self.syntax, "lineno", None)


class LooksAtContents(Refusal):
    """A refusal that ends if the contents of the data at these paths, by their codes, are guarded."""

    def __init__(self, reason: str, syntax: ast.AST | None, codes: frozenset[str]) -> None:
        super().__init__(reason, syntax)
        self.codes = codes


class TracedAround(Refusal):
    """A refusal of one call, which reads an array that a function around traces: other calls may be replayed."""


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A tracer: it depends on the arguments that are differentiated or mapped."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A value that is the same in every call, by the guards: immutable, or an array that nobody writes to."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """An array or a number whose type is guarded and whose content is an input: `code` gives it again.

    `code` is a name of the generated function; `is_path` tells whether it was read, and not computed.
    """

    value: Any
    code: str
    is_path: bool


@dataclass(frozen=True, slots=True, eq=False)
class Fresh:
    """A list, tuple or dict of items that was made in this call; `value` has the items."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """A container or an object that outlives the call, read by `code`; `wraps` its arrays as arguments are."""

    value: Any
    code: str
    wraps: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function that is known: the user's if `closure` is set, else of a library."""

    value: Any
    receiver: Item | None = None
    code: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """A `functools.partial`: a function with some of its arguments."""

    function: Item
    args: list[Item]
    options: dict[str, Item]


@dataclass(slots=True, eq=False)
class Closure:
    """A function that was defined in this call."""

    tree: ast.FunctionDef | ast.Lambda
    frame: Any
    defaults: list[Item]
    keyword_defaults: dict[str, Item]


@dataclass(slots=True, eq=False)
class Lazy:
    """A generator expression: its items are computed when they are consumed."""

    items: Iterator[Item]


@dataclass(frozen=True, slots=True, eq=False)
class At:
    """`x.at` of an array; `x.at[index]` with an index."""

    array: Item
    index: Item | None = None


Item = Traced | Known | Data | Fresh | Path | Function | Partial | Closure | Lazy | At


def holds_traced(item: Item) -> bool:
    """Return whether a value is traced, or a container made in this call that holds a traced one."""
    if isinstance(item, Fresh):
        return any(map(holds_traced, item.value.values() if isinstance(item.value, dict) else item.value))
    return isinstance(item, Traced)


def data_in(items: Sequence[Item]) -> Iterator[Data]:
    """Yield the data among values, and in containers made in this call."""
    for item in items:
        if isinstance(item, Data):
            yield item
        elif isinstance(item, Fresh):
            yield from data_in([*item.value.values()] if isinstance(item.value, dict) else [*item.value])


def is_immutable(item: Data | Known) -> bool:
    """Return whether `+=` makes a new value: of numbers, and of what the library has computed."""
    value = item.value
    return not isinstance(value, np.ndarray) or (
        not (isinstance(item, Data) and item.is_path) and type(value) is Array and not value.flags.writeable)


def holds_array(item: Item) -> TypeGuard[Data | Known]:
    """Return whether a value is an array of data, or a known one."""
    return isinstance(item, Data | Known) and isinstance(item.value, np.ndarray)


def python_value(item: Item, syntax: ast.AST) -> Any:
    """Return the Python value of an item, for a call of a library; containers that outlive the call are unfolded."""
    if isinstance(item, Traced | Known | Data):
        return item.value
    if isinstance(item, Fresh):
        value = item.value
        return {key: python_value(each, syntax) for key, each in value.items()} if isinstance(
            value, dict) else type(value)([python_value(each, syntax) for each in value])
    raise Refusal("an object or a function is handed to the library", syntax)


def guarded(syntax: ast.AST, function: Any, *args: Any, **options: Any) -> Any:
    """Return the result of a call; its errors are refusals."""
    try:
        return function(*args, **options)
    except Exception as error:
        raise Refusal(f"{type(error).__name__}: {error}", syntax) from error
