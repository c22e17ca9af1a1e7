"""The user's lines that recorded operations come from: found on the stack, or handed on while a program is walked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fxgrad import errors
from fxgrad.core.program import Equation, Source

equation_source: ContextVar[Source | None] = ContextVar("equation_source", default=None)
"""The source of the equation that an interpreter is at, so that what it records keeps the user's lines."""


NOWHERE = Source((lambda: None).__code__, 0)
"""Handed on where equations are to have no source, since their program serves more than one line."""


def user_source() -> Source | None:
    """The user's line that is running, if there is one."""
    frame = errors.user_frame()
    return None if frame is None else Source(frame.f_code, frame.f_lasti)


def current_source() -> Source | None:
    """The source of what is recorded now: that which is handed on, or the user's line."""
    source = equation_source.get() or user_source()
    return None if source is NOWHERE else source


def source_again(equation: Equation) -> Source:
    """The source for recording `equation` another time; if it has none, what is made here is of the line here."""
    source = equation.source or current_source()
    return NOWHERE if source is None else source if source is equation.source else source.derived()


@contextmanager
def without_source() -> Iterator[None]:
    """What is recorded in this block has no source, unless it is handed on by equations."""
    token = equation_source.set(NOWHERE)
    try:
        yield
    finally:
        equation_source.reset(token)


class sources:  # noqa: N801  (used as `with sources() as at: at(equation)`)
    """While a program is walked: `at(equation)` gives what is recorded next the place of that equation.

    `part` is what is made, "forward" or "backward", or "" for what that equation is of; by default what is made around.
    If that is nothing either, the source is handed on as it is, as if the user's line had recorded what is made: for
    programs that nobody reads.
    """

    __slots__ = ("_outer", "_part")

    def __init__(self, part: str | None = None) -> None:
        self._part = part

    def __enter__(self) -> Callable[[Equation], None]:
        outer = self._outer = equation_source.get()
        part = self._part or (None if outer is None else outer.part) or self._part

        def at(equation: Equation) -> None:
            source = equation.source
            equation_source.set(source or outer if part is None or source is None else source.derived(part))
        return at

    def __exit__(self, *_: object) -> None:
        equation_source.set(self._outer)
