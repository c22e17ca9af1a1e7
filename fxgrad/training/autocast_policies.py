"""Policies for `fxgrad.autocast`: which half precision, and which operations compute in it.

>>> import fxgrad
>>> fxgrad.autocast_policies.bfloat16.half
('conv_general_dilated', 'dot_general', 'strong_dot_general')
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.table import Table

from fxgrad import dtypes
from fxgrad.errors import ArgumentError
from fxgrad.extend import DType, Equation, Primitive, at_user_line, primitives
from fxgrad.text.short import operation_name
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.training.autocast.classes import Kind, kinds

__all__ = ["AutocastPolicy", "bfloat16", "float16"]

Named = str | Primitive | Callable[..., Any]
KINDS: tuple[Kind, ...] = ("half", "full", "follow")
SOLVERS: dict[str, Kind] = {"implicit": "full"}
"""Blocks of the library that search a solution, which they would not find in half precision."""


@dataclass(frozen=True)
class AutocastPolicy(Report):
    """Which operations `autocast` computes in `dtype`; `with_` returns a changed copy.

    `changes` are primitives whose kind differs from the library's, `blocks` the kinds of whole blocks by name. It
    prints as a table of all primitives.
    """

    dtype: DType
    changes: tuple[tuple[Primitive, Kind], ...] = ()
    blocks: tuple[tuple[str, Kind], ...] = ()

    def kind(self, operation: Named) -> Kind:
        """Return the precision of an operation: "half", "full", "follow" (its operands) or "as_is".

        >>> import fxgrad
        >>> policy = fxgrad.autocast_policies.bfloat16
        >>> policy.kind("dot_general"), policy.kind("exp"), policy.kind("add")
        ('half', 'full', 'follow')
        """
        primitive = _primitive(operation)
        if primitive is None:
            raise ArgumentError(at_user_line(
                f"autocast policy: {_name_of(operation)} is no primitive of fxgrad; blocks are in policy.blocks"))
        return dict(self.changes).get(primitive, kinds.of(primitive))

    def with_(self, *, half: Iterable[Named] = (), full: Iterable[Named] = (), follow: Iterable[Named] = (),
              dtype: Any = None) -> AutocastPolicy:
        """Return the policy with other kinds for some operations: primitives, their names, functions, names of blocks.

        A block is named by `fxgrad.named_scope`, `fxgrad.named_call` or a function of the library such as
        `fxgrad.nn.softmax`; everything computed in it is then of that kind. Names of blocks begin with "@".

        >>> import fxgrad
        >>> policy = fxgrad.autocast_policies.bfloat16.with_(half=["reduce_sum"], full=["@head", fxgrad.nn.gelu])
        >>> policy.kind("reduce_sum"), policy.blocks
        ('half', (('gelu', 'full'), ('head', 'full')))
        """
        changes, blocks = dict(self.changes), dict(self.blocks)
        for kind, operations in zip(KINDS, (half, full, follow), strict=True):
            if isinstance(operations, str):
                raise ArgumentError(at_user_line(
                    f"autocast policy: {kind}={operations!r} is one name, where several are needed: "
                    f"{kind}=[{operations!r}]"))
            for operation in operations:
                primitive = _primitive(operation)
                if primitive is not None:
                    changes[primitive] = kind
                else:
                    blocks[_check_block(operation)] = kind
        return replace(self, dtype=self.dtype if dtype is None else half_dtype(dtype), changes=tuple(sorted(
            changes.items(), key=lambda entry: entry[0].name)), blocks=tuple(sorted(blocks.items())))

    def block_kind(self, equation: Equation) -> Kind | None:
        """Return the kind of the innermost block that an equation is in, or is, if the policy has one for it."""
        blocks = {**SOLVERS, **dict(self.blocks)}
        name = operation_name(equation)
        for block in (name, *reversed(equation.scope.split("/"))):
            if block in blocks:
                return blocks[block]
        return None

    @property
    def half(self) -> tuple[str, ...]:
        """The names of the primitives that compute in half precision."""
        return self._operations_of("half")

    @property
    def full(self) -> tuple[str, ...]:
        """The names of the primitives that compute in full precision."""
        return self._operations_of("full")

    @property
    def follow(self) -> tuple[str, ...]:
        """The names of the primitives that compute in the precision of their operands."""
        return self._operations_of("follow")

    def _operations_of(self, kind: Kind) -> tuple[str, ...]:
        users = {primitive.name: primitive for primitive, _ in self.changes}
        every = {**primitives, **users}
        return tuple(sorted(name for name, primitive in every.items()
                            if primitive.regions is None and self.kind(primitive) == kind))

    def table(self) -> Table:
        """Return the table for rich."""
        made = new_table(f"autocast to {self.dtype.name}", {"kind": "left", "operations": "left"})
        for kind, names in (*((kind, self._operations_of(kind)) for kind in KINDS), *(
                (f"{kind}, in blocks", [block for block, own in self.blocks if own == kind]) for kind in KINDS)):
            if names:
                add_row(made, [kind, ", ".join(names)])
        return made

    def __repr__(self) -> str:
        parts = [f"{primitive.name}: {kind}" for primitive, kind in self.changes]
        parts += [f"@{block}: {kind}" for block, kind in self.blocks]
        return f"<autocast to {self.dtype.name}{', ' if parts else ''}{', '.join(parts)}>"


def half_dtype(dtype: Any) -> DType:
    """Return `dtype` as a dtype of half precision; raise `ArgumentError` for others."""
    found = dtypes.canonical(dtype)
    if not dtypes.is_floating(found) or found.itemsize > 2:
        raise ArgumentError(at_user_line(
            f"autocast: {np.dtype(found).name} is no half precision. Take fxgrad.dtypes.bfloat16 or "
            "np.float16"))
    return found


def _primitive(operation: Named) -> Primitive | None:
    if isinstance(operation, Primitive):
        return operation
    name = operation if isinstance(operation, str) else _name_of(operation)
    return primitives.get(name)


def _name_of(operation: Any) -> str:
    return operation if isinstance(operation, str) else str(getattr(operation, "__name__", operation))


def _check_block(operation: Named) -> str:
    """Return the name of a block; raise `ArgumentError` for a string that is neither a primitive nor marked as one."""
    name = _name_of(operation)
    if not isinstance(operation, str):
        return name
    if name.startswith("@") and len(name) > 1:
        return name[1:]
    near = ", ".join(difflib.get_close_matches(name, primitives, 3))
    raise ArgumentError(at_user_line(
        f"autocast policy: there is no primitive {name!r}. " + (f"Did you mean {near}? " if near else "") +
        f"A block is written {'@' + name!r}"))


bfloat16 = AutocastPolicy(dtypes.canonical(dtypes.bfloat16))
"""Products and convolutions in bfloat16, which has the range of float32 and 8 bits of precision."""
float16 = AutocastPolicy(dtypes.canonical(np.float16))
"""Products and convolutions in float16, which has 11 bits, and a range from 6e-8 to 65504: scale the loss."""
