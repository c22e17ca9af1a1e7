"""`Analysis`: a table with one fact about every primitive, kept outside of the primitive's record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from weakref import WeakSet

from fxgrad.engine.core.primitive import MissingRule, Primitive, library
from fxgrad.engine.user_lines import is_user_file

Fact = TypeVar("Fact")
Missing = Literal["raise", "derive", "conservative"]
State = Literal["entered", "derived", "default", "refused", "missing"]

_NOT_GIVEN: Any = object()
_all: WeakSet[Analysis[Any]] = WeakSet()


class Place(NamedTuple):
    """A file and a line."""

    file: str
    line: int


class Known(NamedTuple):
    """The entry of a table for one primitive: the fact, its state, and the place in the code.

    | `state` | the fact |
    |---|---|
    | `entered` | was entered for this primitive |
    | `derived` | follows from the record, by the table's `derive` |
    | `default` | is the table's `default`, which is safe for any operation |
    | `refused` | is a named absence (`fxgrad.TODO` makes one), which has the reason, entered or not |
    | `missing` | is None: the table needs an entry, and there is none |

    `place` is that of the entry, or of the table if there is no entry.
    """

    state: State
    fact: Any
    place: Place


class Analysis(Generic[Fact]):
    """A fact about every primitive, returned by `of`; most facts are entered beside the records.

    `description` states the fact in one sentence. `missing` selects the result of `of` for a primitive, of the library
    or of a user, without an entry:

    - `"raise"`: raise `TypeError`, so every primitive of the library has an entry.
    - `"derive"`: return `derive(primitive)`, which follows from the record.
    - `"conservative"`: return `default`, which is safe for any operation.

    A named absence (`MissingRule`) as a fact means that a primitive has none, with the reason.

    Raises `TypeError` unless exactly the needed one of `derive` and `default` is given, and for an empty description.

    >>> from fxgrad.extend import primitives
    >>> keeps_sign = Analysis("keeps_sign", "Whether the result has the sign of the operand.",
    ...                       missing="conservative", default=False)
    >>> keeps_sign.enter(True, primitives.sinh, primitives.tanh)
    >>> keeps_sign.of(primitives.tanh), keeps_sign.of(primitives.cosh)
    (True, False)
    >>> keeps_sign.known(primitives.tanh).state, keeps_sign.known(primitives.cosh).state
    ('entered', 'default')
    """

    __slots__ = ("__weakref__", "_default", "_derive", "_entries", "_places", "description", "missing", "name", "place")

    def __init__(self, name: str, description: str, *, missing: Missing, default: Fact = _NOT_GIVEN,
                 derive: Callable[[Primitive], Fact] | None = None) -> None:
        if (default is not _NOT_GIVEN, derive is not None) != (missing == "conservative", missing == "derive"):
            raise TypeError(f"the analysis {name} has missing={missing!r}; default= is needed with "
                            "'conservative' alone, and derive= with 'derive' alone")
        if not description:
            raise TypeError(f"the analysis {name} needs a description: one sentence that says what the fact is")
        self.name, self.description, self.missing = name, description, missing
        self._default, self._derive = default, derive
        self._entries: dict[Primitive, Fact] = {}
        self._places: dict[Primitive, Place] = {}
        self.place = _place()
        _all.add(self)

    def enter(self, fact: Fact, *primitives: Primitive) -> None:
        """Enter `fact` for each of `primitives`; raise `ValueError` if one has an entry already."""
        for primitive in primitives:
            if primitive in self._entries:
                raise ValueError(f"the analysis {self.name} has an entry for {primitive} already")
            self._put(fact, primitive)

    def _put(self, fact: Fact, primitive: Primitive) -> None:
        self._entries[primitive] = fact
        self._places[primitive] = _place()

    def register(self, *primitives: Primitive) -> Callable[[Fact], Fact]:
        """Return a decorator that calls `enter`, for facts that are functions."""
        def decorate(fact: Fact) -> Fact:
            self.enter(fact, *primitives)
            return fact
        return decorate

    def of(self, primitive: Primitive) -> Fact:
        """Return the fact about `primitive`; raise `TypeError` if the table needs an entry and has none."""
        entry: Fact = self._entries.get(primitive, _NOT_GIVEN)
        if entry is not _NOT_GIVEN:
            return entry
        if self._derive is not None:
            return self._derive(primitive)
        if self._default is _NOT_GIVEN:
            raise TypeError(f"nothing is known of the primitive {primitive} for the analysis {self.name}, which needs "
                            f"an entry for each. Enter one beside the record: {self.name}.enter(fact, {primitive}_p)")
        return self._default

    def known(self, primitive: Primitive) -> Known:
        """Return the entry for `primitive`: the fact, its state and its place; unlike `of` it never raises."""
        place = self._places.get(primitive, self.place)
        if primitive not in self._entries and self.missing == "raise":
            return Known("missing", None, place)
        fact = self.of(primitive)
        if isinstance(fact, MissingRule):
            return Known("refused", fact, place)
        if primitive in self._entries:
            return Known("entered", fact, place)
        return Known("derived" if self.missing == "derive" else "default", fact, place)

    def entered(self) -> dict[Primitive, Fact]:
        """Return the facts that were entered, by primitive."""
        return dict(self._entries)

    def __repr__(self) -> str:
        return f"Analysis({self.name!r}, missing={self.missing!r}, {len(self._entries)} entries)"


Item = TypeVar("Item")


class Collection(Analysis[Sequence[Item]]):
    """An `Analysis` that collects several facts for one primitive, in the order of addition.

    >>> from fxgrad.extend import primitives
    >>> zeros = Collection[float]("zeros", "Operands at which the result is 0.")
    >>> for zero in 0.0, 3.14:
    ...     zeros.add(zero, primitives.sin)
    >>> zeros.of(primitives.sin), zeros.of(primitives.exp)
    ((0.0, 3.14), ())
    """

    __slots__ = ()

    def __init__(self, name: str, description: str) -> None:
        super().__init__(name, description, missing="conservative", default=())

    def add(self, item: Item, *primitives: Primitive) -> None:
        """Append `item` to the facts of each of `primitives`."""
        for primitive in primitives:
            self._put((*self.of(primitive), item), primitive)


def _place() -> Place:
    """Return the place of the running statement of a library module, or else of the user's call."""
    frame = sys._getframe(2)
    while frame.f_back is not None and not (
            is_user_file(frame.f_code.co_filename) or frame.f_code.co_name == "<module>"):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)


def facts_of_users() -> list[tuple[str, Primitive, Any]]:
    """Return what users' code entered of the library's primitives: names of analyses, primitives and facts."""
    return [(analysis.name, primitive, fact) for analysis in all_analyses() if not is_user_file(analysis.place.file)
            for primitive, fact in analysis.entered().items()
            if primitive in library and is_user_file(analysis.known(primitive).place.file)]


def all_analyses() -> list[Analysis[Any]]:
    """Return all existing analyses, those of users too, by name."""
    return sorted(_all, key=lambda analysis: analysis.name)
