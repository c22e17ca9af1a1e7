"""What is known of a Python value in the interpretation of a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


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


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A tracer: it depends on the arguments that are differentiated or mapped."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """An immutable value that is the same in every call, by the guards."""

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


Item = Traced | Known | Data | Fresh | Path | Function | Partial | Closure | Lazy
