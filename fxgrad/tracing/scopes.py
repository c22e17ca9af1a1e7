"""Named scopes of the user's code: the tapes under way enter and leave them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fxgrad.core.program import join_scopes
from fxgrad.tracing import interning
from fxgrad.tracing.tape import Tape, current


@contextmanager
def in_named_scope(name: str) -> Iterator[None]:
    """In this block, what the tapes under way record is in the scope `name`, within the scopes that they are in.

    A tape knows those that were entered since it began: its program has the same scopes wherever it is called.
    """
    entered: list[tuple[Tape, str]] = []
    tape = current.get()
    while tape is not None:
        entered.append((tape, tape.named_scope))
        _enter(tape, join_scopes(tape.named_scope, name))
        tape = tape.parent
    try:
        yield
    finally:
        for tape, before in entered:
            _enter(tape, before)


def _enter(tape: Tape, scope: str) -> None:
    tape.named_scope = scope
    if tape.interned:  # what was recorded in other scopes is no equation of this one
        tape.node = interning.in_scope(tape.node, scope)
