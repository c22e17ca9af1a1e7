"""The caches of the library that outlive a call: one function empties them all (docs/caches.md lists every one)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_clear: list[Callable[[], None]] = []


def emptied_by(clear: Callable[[], None]) -> None:
    """Has `clear_caches` call `clear`."""
    _clear.append(clear)


def cached(size: int) -> Callable[[_Function], _Function]:
    """As `functools.lru_cache(size)`, for functions whose equal arguments are the same; emptied with the others."""
    def decorate(function: _Function) -> _Function:
        cache: Any = functools.lru_cache(size)(function)
        emptied_by(cache.cache_clear)
        return cache  # type: ignore[no-any-return]
    return decorate


class Table:
    """Values by key, `size` of them at most; then it is emptied. Keys that hold what users gave are `told`."""

    __slots__ = ("_entries", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: dict[Any, Any] = {}
        emptied_by(self._entries.clear)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value entered under `key`."""
        return self._entries.get(key, default)

    def add(self, key: Any, value: Any) -> Any:
        """Enters a value, and returns it."""
        if len(self._entries) >= self._size:
            self._entries.clear()
        self._entries[key] = value
        return value

    def __len__(self) -> int:
        return len(self._entries)


def clear_caches() -> None:
    """Forgets every recorded prefix, and all that was found out about programs and operations.

    Programs that are referred to elsewhere stay as they are, with what was derived from them.

    >>> import fxgrad
    >>> fxgrad.clear_caches()
    """
    for clear in _clear:
        clear()
