"""The user's lines that recorded operations come from: found on the stack, or handed on while a program is walked."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from fxgrad import errors
from fxgrad.core.program import Equation, Source

equation_source: ContextVar[Source | None] = ContextVar("equation_source", default=None)
"""The source of the equation that an interpreter is at, so that what it records keeps the user's lines."""


def user_source() -> Source | None:
    """The user's line that is running, if there is one."""
    frame = errors.user_frame()
    return None if frame is None else Source(frame.f_code, frame.f_lasti)


class sources:  # noqa: N801  (used as `with sources() as at: at(equation)`)
    """While a program is walked: `at(equation)` gives what is recorded next the source of that equation."""

    __slots__ = ("_outer",)

    def __enter__(self) -> Callable[[Equation], None]:
        outer = self._outer = equation_source.get()

        def at(equation: Equation) -> None:
            equation_source.set(equation.source or outer)
        return at

    def __exit__(self, *_: object) -> None:
        equation_source.set(self._outer)
