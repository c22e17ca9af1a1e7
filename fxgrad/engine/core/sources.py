"""User lines of recorded operations: found on the stack, or carried over while a program is walked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from fxgrad.engine import user_lines
from fxgrad.engine.core.program import Equation, Source, join_scopes

equation_source: ContextVar[Source | None] = ContextVar("equation_source", default=None)
"""The source of an interpreter's current equation, so that new equations keep the user's lines."""


scope_around: ContextVar[str] = ContextVar("scope_around", default="")
"""The scope of the operation that the next walked program replaces."""


NOWHERE = Source((lambda: None).__code__, 0)
"""The source for equations that have none, since their program serves several lines."""


def user_source() -> Source | None:
    """Return the running line of the user, if there is one."""
    frame = user_lines.user_frame()
    # As `Source(...)`, which takes twice as long, and is called for every operation that is new.
    return None if frame is None else tuple.__new__(Source, (frame.f_code, frame.f_lasti, *_REST_OF_SOURCE))


_REST_OF_SOURCE = Source((lambda: None).__code__, 0)[2:]


def with_callers(source: Source | None) -> Source | None:
    """Return the running line of the user with the calls around it, up to the first frame that is no user code.

    Converted functions are called by code of the library, which is passed through.
    """
    if source is None:
        return None
    callers = []
    frame = user_lines.user_frame()
    while frame is not None and (frame := frame.f_back) is not None:
        if user_lines.is_user_file(frame.f_code.co_filename):
            callers.append((frame.f_code, frame.f_lasti))
        elif not frame.f_code.co_filename.startswith(_CONVERTED_CALLS):
            break
    return source._replace(callers=tuple(callers))


_CONVERTED_CALLS = os.path.join(user_lines.PACKAGE, "engine", "control_flow", "")


def current_source() -> Source | None:
    """Return the source of the next recorded equation: the one set by `sources`, or the user's line."""
    source = equation_source.get() or user_source()
    return None if source is NOWHERE else source


def rerecord_source(equation: Equation) -> Source:
    """Return the source for recording `equation` again; if it has none, one derived from the current line."""
    source, around = equation.source, scope_around.get()
    if source is None:
        source = current_source()
        return NOWHERE if source is None else source.derived()
    return source.inside(around) if around else source


@contextmanager
def without_source() -> Iterator[None]:
    """Record without a source within the block, unless an equation sets one."""
    with _use_source(NOWHERE):
        yield


class in_place:  # noqa: N801  (used as `with in_place():`)
    """Within the block the walked program replaces the current equation of an interpreter.

    Its equations are in the scope of that equation, and in `name` within it.
    """

    __slots__ = ("_scope", "_token")

    def __init__(self, name: str = "") -> None:
        source = equation_source.get()
        self._scope = name if source is None else join_scopes(source.scope, name)

    def __enter__(self) -> None:
        self._token = scope_around.set(self._scope)

    def __exit__(self, *_: object) -> None:
        scope_around.reset(self._token)


@contextmanager
def without_scope() -> Iterator[None]:
    """Start scopes anew within the block, for programs that are inserted into others."""
    source = equation_source.get()
    token = equation_source.set(source._replace(scope="") if source is not None and source.scope else source)
    around = scope_around.set("")
    try:
        yield
    finally:
        scope_around.reset(around)
        equation_source.reset(token)


@contextmanager
def _use_source(source: Source) -> Iterator[None]:
    token = equation_source.set(source)
    try:
        yield
    finally:
        equation_source.reset(token)


def nested_scope(name: str) -> AbstractContextManager[None] | None:
    """Return a block that nests equations recorded for an interpreter's current equation in the scope `name`.

    Returns None if there is no name, or no interpreter is running: then user code is being recorded.
    """
    source = equation_source.get()
    if not name or source is None or source is NOWHERE:
        return None
    return _use_source(source._replace(scope=join_scopes(source.scope, name)))


class at_source:  # noqa: N801  (used as `with sources() as at: at(equation)`)
    """While a program is walked, `at(equation)` makes that equation the source of the next recorded ones.

    `part` is "forward" or "backward", or "" to keep that of the equation; the default is the part of the enclosing
    block. If there is none either, the source is carried over unchanged, as if the user's line had recorded the
    equation: for programs that are not displayed.
    """

    __slots__ = ("_around", "_outer", "_part")

    def __init__(self, part: str | None = None) -> None:
        self._part = part

    def __enter__(self) -> Callable[[Equation], None]:
        outer = self._outer = equation_source.get()
        around = self._around = scope_around.get()
        if around:
            scope_around.set("")  # nested walks are in the scope of an equation of this program
            outer = outer if outer is None or outer is NOWHERE else outer._replace(scope=around)
        part = self._part or (None if outer is None else outer.part) or self._part

        def at(equation: Equation) -> None:
            source = equation.source
            if around and source is not None:
                source = source.inside(around)
            if source is not None and (part is not None or source.origins):  # the origins are of its own outputs
                source = source.derived(part)
            if source is not None and source.results:  # so are the results
                source = source._replace(results=())
            equation_source.set(source or outer)
        return at

    def __exit__(self, *_: object) -> None:
        equation_source.set(self._outer)
        if self._around:
            scope_around.set(self._around)
