"""Named scopes of the user's code: the tapes under way enter and leave them."""

from __future__ import annotations

from collections.abc import Sequence

from fxgrad.engine.core.program import join_scopes
from fxgrad.engine.tracing import interning
from fxgrad.engine.tracing.tape import Tape, current

Entered = list[tuple[Tape, str]]
"""The tapes that have entered a scope, each with the one that it was in before."""


def enter(name: str) -> Entered:
    """From here on, what the tapes under way record is in the scope `name`, within the scopes that they are in.

    A tape knows those that were entered since it began: its program has the same scopes wherever it is called.
    """
    entered: Entered = []
    tape = current.get()
    while tape is not None:
        entered.append((tape, tape.named_scope))
        _go_on(tape, join_scopes(tape.named_scope, name))
        tape = tape.parent
    return entered


def leave(entered: Sequence[tuple[Tape, str]]) -> None:
    """Back to where `enter` was called."""
    for tape, before in entered:
        _go_on(tape, before)


def _go_on(tape: Tape, scope: str) -> None:
    tape.named_scope = scope
    if tape.interned:  # what was recorded in other scopes is no equation of this one
        tape.node = interning.in_scope(tape.node, scope)
