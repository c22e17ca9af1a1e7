"""The traced blocks around running code: what each of them notes, and the refusal of what it may not do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import CellType
from typing import Any, NamedTuple, Self

from fxgrad.engine.control_flow.structures import replace_items
from fxgrad.engine.frontend.flat import TracedCall
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line, line_at, running_place
from fxgrad.errors import ConcretizationError, ControlFlowError, MutationError

Thunk = Callable[[], Any]
Cells = Mapping[str, CellType]
"""Variables by their names: what functions of converted code share with the one around."""


class Change(NamedTuple):
    """A list or dict that changes, a copy of it from before, and the user's line."""

    container: Any
    before: Any
    line: str

    def undo(self) -> None:
        """Give the container its items from before."""
        replace_items(self.container, self.before)


ChangeLog = dict[int, Change]
"""ChangeLog by the identity of the container."""


def undo(changes: ChangeLog) -> None:
    """Give containers and arrays their items from before, and forget the changes: their copies refer to arrays."""
    while changes:
        changes.popitem()[1].undo()


class Block:
    """A block whose condition is traced: it is traced once, whether it runs or not, and however often."""

    def __init__(self, what: str, *, repeats: bool) -> None:
        self.what, self._place = what, running_place()
        self.parent = block.get()
        self.repeats: bool = repeats or (self.parent is not None and self.parent.repeats)
        self.depth: int = 1 if self.parent is None else self.parent.depth + 1
        self.made: dict[int, Any] = {}
        self.of_turn: dict[int, Any] = {}
        self.alone: dict[int, int] = {}  # how many references there are to arrays that only one name has
        self.changed: ChangeLog = {}
        self.cells: Cells = {}  # the variables of a statement's block
        self.before: Mapping[str, Any] = {}  # their values before it
        self.live: Sequence[str] = ()  # those that the block gives new values
        self.is_side = False  # of a branch between statements, which a check can take the place of
        self.raised: BaseException | None = None  # by a `raise` in it

    def __enter__(self) -> Self:
        self._token = block.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        block.reset(self._token)

    @property
    def line(self) -> str:
        """The user's line, as messages name it."""
        return line_at(self._place)

    @property
    def text(self) -> str:
        """The block as messages name it."""
        return f"the traced `{self.what}` at {self.line}"


block: ContextVar[Block | None] = ContextVar("traced_block", default=None)


def depth() -> int:
    """Return the number of traced blocks around the running code."""
    around = block.get()
    return 0 if around is None else around.depth


class SideRaisesError(Exception):
    """A side of a branch raises `error` whenever it runs; it is `traced` up to there."""

    def __init__(self, error: BaseException, traced: TracedCall) -> None:
        super().__init__()
        self.error, self.traced = error, traced


class _Unset:
    """The value of a variable without one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "no value"


UNSET = _Unset()


def is_unknown(value: Any) -> bool:
    """Return whether a value is traced and has no value that Python could look at."""
    if type(value) is not Tracer or value.tape.concrete_value(value) is not None:
        return False
    if not value.tape.closed:
        value.tape.note_question()
    return True


def refuse(message: str) -> ControlFlowError:
    """Return the error for code that cannot be compiled, with the user's line."""
    return ControlFlowError(at_user_line(message))


def of_items(error: ControlFlowError) -> ControlFlowError:
    """Return an error that ends no loop whose length Python knows, which can run turn by turn."""
    error.is_of_items = True  # type: ignore[attr-defined]
    return error


# --- code inside of `try` ---------------------------------------------------------------------------------------------


_handled: ContextVar[tuple[Thunk, ...]] = ContextVar("handlers_of_try", default=())
_OF_VALUES = (ArithmeticError, AssertionError, IndexError, ValueError, Warning)
"""Exceptions that Python and NumPy raise for some values of numbers; traced code has no values, and raises none."""


@contextmanager
def in_try(handled: Thunk) -> Iterator[None]:
    """Within the block running code stands inside of `try`; `handled` returns the exceptions that are caught."""
    token = _handled.set((*_handled.get(), handled))
    try:
        yield
    finally:
        _handled.reset(token)


refusals = (ControlFlowError, ConcretizationError, MutationError)
"""Exceptions of traced code alone, which no `except` of converted code catches."""


def refuse_in_try(what: str, raised: type[BaseException] | None = None) -> None:
    """Raise if the running code stands in a `try` that catches exceptions of values: a traced condition has none.

    So does a condition for the exception `raised`, if that is caught.
    """
    kinds = _kinds_handled()
    if any(issubclass(kind, each) or issubclass(each, kind) for kind in kinds for each in _OF_VALUES) or (
            raised is not None and issubclass(raised, kinds)):
        raise _in_try(what)


def refuse_caught(what: str, error: Exception) -> None:
    """Raise for an exception of a traced block that a `try` around it would catch, as if the block had to run."""
    if not isinstance(error, refusals) and isinstance(error, _kinds_handled()):
        raise _in_try(what) from error


def is_caught(raised: type[BaseException]) -> bool:
    """Return whether a `try` around the running code catches an exception."""
    kinds = _kinds_handled()
    return bool(kinds) and issubclass(raised, kinds)


def _in_try(what: str) -> ControlFlowError:
    return refuse(f"the condition of this `{what}` is traced and stands inside of `try`: both sides are traced "
                  "once, so no exception can depend on traced values. Move the traced code out of the `try`")


def _kinds_handled() -> tuple[type[BaseException], ...]:
    """Return the exceptions that are caught around the running code."""
    found: list[type[BaseException]] = []
    waiting: list[Any] = []
    for handled in _handled.get():
        try:
            waiting += handled()
        except Exception:  # noqa: BLE001  (Python reads their names only if there is an exception)
            return (BaseException,)
    while waiting:
        each = waiting.pop()
        if isinstance(each, tuple):
            waiting += each
        else:
            found.append(each)
    return (*found,)


# --- turns that Python runs as a guess --------------------------------------------------------------------------------


class ProbeEnds(BaseException):
    """A probed turn of a loop ends: a traced condition decides whether it is the last one."""


_probe: ContextVar[tuple[Sequence[CellType], Block | None]] = ContextVar("probed_turn", default=((), None))


@contextmanager
def probed_turn(flags: Sequence[CellType]) -> Iterator[None]:
    """Within the block Python runs a turn of a loop that these flags end, to see whether they are traced."""
    token = _probe.set((flags, block.get()))
    try:
        yield
    finally:
        _probe.reset(token)


def end_probe(flag: CellType) -> None:
    """Raise `ProbeEnds` if code of a probed turn itself, in no traced block, sets a flag to a traced value."""
    flags, around = _probe.get()
    if around is block.get() and any(flag is each for each in flags):
        raise ProbeEnds


probe_logs: ContextVar[tuple[ChangeLog, ...]] = ContextVar("probe_logs", default=())
"""The changes of turns that are recorded, and undone if the next one turns out to be traced."""
