"""Named scopes of the user's code: open tapes enter and leave them."""

from __future__ import annotations

from collections.abc import Sequence

from fxgrad.engine.core.program import join_scopes
from fxgrad.engine.tracing import interning
from fxgrad.engine.tracing.tape import Tape, current

Entered = list[tuple[Tape, str]]
"""The tapes that have entered a scope, each with its previous scope."""


def enter_scope(name: str) -> Entered:
    """Record in the scope `name`, within the current scopes, on all open tapes.

    A tape has only the scopes entered since it began: its program has the same scopes wherever it is called.
    """
    entered: Entered = []
    tape = current.get()
    while tape is not None:
        entered.append((tape, tape.named_scope))
        _switch_scope(tape, join_scopes(tape.named_scope, name))
        tape = tape.parent
    return entered


def leave_scope(entered: Sequence[tuple[Tape, str]]) -> None:
    """Restore the scopes that were current when `enter_scope` was called."""
    for tape, before in entered:
        _switch_scope(tape, before)


def _switch_scope(tape: Tape, scope: str) -> None:
    tape.named_scope = scope
    if tape.interned:  # equations of another scope differ from those of this one
        tape.node = interning.node_in_scope(tape.node, scope)
