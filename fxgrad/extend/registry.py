"""`primitives`: the record of every operation, by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fxgrad.engine.core.primitive import Primitive, library
from fxgrad.engine.rooms import registry


class Primitives(Mapping[str, Primitive]):
    """The primitives of the library by name, as attributes and as a mapping.

    Raises `AttributeError`, or `KeyError`, for a name that no primitive has.

    >>> primitives.sin, primitives["while"], "sinh" in primitives
    (sin, while, True)
    """

    def has(self, primitive: Primitive) -> bool:
        """Return whether `primitive` is one of the library, rather than a user's."""
        return primitive in library

    def __getattr__(self, name: str) -> Primitive:
        try:
            return registry[name]
        except KeyError:
            raise AttributeError(f"fxgrad has no primitive {name!r}") from None

    def __getitem__(self, name: str) -> Primitive:
        return registry[name]

    def __iter__(self) -> Iterator[str]:
        return iter(registry)

    def __len__(self) -> int:
        return len(registry)


primitives = Primitives()
"""All primitives, including those imported from jax."""
