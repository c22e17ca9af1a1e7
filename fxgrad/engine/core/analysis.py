"""`Analysis`: one fact about every primitive that does not belong to its record, in a table of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar
from weakref import WeakSet

from fxgrad.engine.core.primitive import Primitive

Fact = TypeVar("Fact")
Missing = Literal["raise", "derive", "conservative"]

_NOT_GIVEN: Any = object()
_all: WeakSet[Analysis[Any]] = WeakSet()


class Analysis(Generic[Fact]):
    """A fact about every primitive, asked for by `of`; those of most primitives are entered beside their records.

    `missing` says what is taken of a primitive, of ours or of a user's, for which nothing was entered:

    - `"raise"`: nothing can be said; `of` raises `TypeError`, so every primitive of the library has an entry.
    - `"derive"`: `derive(primitive)`, which follows from the record.
    - `"conservative"`: `default`, which is safe for any operation whatever.

    Raises `TypeError` unless `derive` or `default` is given just where it is needed.

    >>> from fxgrad.extend import primitives
    >>> keeps_sign = Analysis("keeps_sign", missing="conservative", default=False)
    >>> keeps_sign.enter(True, primitives.sinh, primitives.tanh)
    >>> keeps_sign.of(primitives.tanh), keeps_sign.of(primitives.cosh)
    (True, False)
    """

    __slots__ = ("__weakref__", "_default", "_derive", "_entries", "missing", "name")

    def __init__(self, name: str, *, missing: Missing, default: Fact = _NOT_GIVEN,
                 derive: Callable[[Primitive], Fact] | None = None) -> None:
        if (default is not _NOT_GIVEN, derive is not None) != (missing == "conservative", missing == "derive"):
            raise TypeError(f"the analysis {name} is told missing={missing!r}; default= is needed with "
                            "'conservative' alone, and derive= with 'derive' alone")
        self.name, self.missing, self._default, self._derive = name, missing, default, derive
        self._entries: dict[Primitive, Fact] = {}
        _all.add(self)

    def enter(self, fact: Fact, *primitives: Primitive) -> None:
        """Says `fact` of each of `primitives`; raises `ValueError` where one has an entry already."""
        for primitive in primitives:
            if primitive in self._entries:
                raise ValueError(f"the analysis {self.name} has an entry for {primitive} already")
            self._entries[primitive] = fact

    def register(self, *primitives: Primitive) -> Callable[[Fact], Fact]:
        """`enter` as a decorator, for facts that are functions."""
        def decorate(fact: Fact) -> Fact:
            self.enter(fact, *primitives)
            return fact
        return decorate

    def of(self, primitive: Primitive) -> Fact:
        """The fact about `primitive`."""
        entry: Fact = self._entries.get(primitive, _NOT_GIVEN)
        if entry is not _NOT_GIVEN:
            return entry
        if self._derive is not None:
            return self._derive(primitive)
        if self._default is _NOT_GIVEN:
            raise TypeError(f"nothing is known of the primitive {primitive} for the analysis {self.name}, which needs "
                            f"an entry for each. Enter one beside the record: {self.name}.enter(fact, {primitive}_p)")
        return self._default

    def entered(self) -> dict[Primitive, Fact]:
        """The facts that were entered, by primitive."""
        return dict(self._entries)

    def __repr__(self) -> str:
        return f"Analysis({self.name!r}, missing={self.missing!r}, {len(self._entries)} entries)"


def analyses() -> list[Analysis[Any]]:
    """All analyses there are, a user's too, by name."""
    return sorted(_all, key=lambda analysis: analysis.name)
