"""Which programs are printed and read back outside of tests/text: those that have an operation of a new kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from unittest import mock

from fxgrad.engine.caches import BoundedDict
from fxgrad.engine.core.program import Program, Variable
from fxgrad.text import checking

NEIGHBOURHOODS = checking.text_features
"""The library's own key, of which an operation between others is another one."""


def kinds(program: Program) -> Iterator[int]:
    """The operations of a program, each as a hash of its primitive, the kinds of its parameters, ranks and dtypes.

    Operations that hold programs have any number of operands, which are written alike: which kinds occur is what
    tells one from another, and not at which places. Else nearly every loop were of a kind of its own.
    """
    for inner in checking._programs_within(program, unchecked=True):
        for equation in inner.equations:
            gather = frozenset if equation.programs else tuple
            yield hash((equation.primitive,
                        gather((type(atom) is Variable, atom.aval.dtype.kind) for atom in equation.inputs),
                        gather((output.aval.ndim, output.aval.dtype.kind) for output in equation.outputs),
                        *((name, checking._kind_of_value(value)) for name, value in equation.params.items())))


def read_by_kind() -> AbstractContextManager[object]:
    """In the block, a program is read back where an operation of a new kind is in it.

    What was read is remembered where a test empties the library's caches.
    """
    return mock.patch.multiple(checking, text_features=kinds, _seen=BoundedDict(checking._seen.size))


def read_by_neighbourhood() -> AbstractContextManager[object]:
    """In the block, a program is read back wherever two operations meet that did not before."""
    return mock.patch.object(checking, "text_features", NEIGHBOURHOODS)
