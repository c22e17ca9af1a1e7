"""Bounded caches that outlive a call, and the function that clears them (docs/appendix/caches.md)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

_Function = TypeVar("_Function", bound=Callable[..., Any])
_caches: WeakValueDictionary[int, Cache] = WeakValueDictionary()
_functions: list[tuple[str, Any]] = []
_others: list[Callable[[], None]] = []


class Bounded(dict[Any, Any]):
    """Values by key, `size` of them at most; then it is emptied. It ends with the object that has it.

    It is a dictionary, so that looking something up takes no longer than that.
    """

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def add(self, key: Any, value: Any) -> Any:
        """Enters a value, unless another thread was faster; returns that which is there now."""
        if len(self) >= self.size:
            self.clear()
        return self.setdefault(key, value)


class Cache(Bounded):
    """What lives as long as the library, registered here. Keys that hold what users gave are `told`.

    `name` says what is in it.

    >>> squares = Cache("squares", 2)
    >>> squares.add(3, 9), squares.get(3), squares.get(4)
    (9, 9, None)
    """

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str, size: int) -> None:
        super().__init__(size)
        self.name = name
        _caches[id(self)] = self


def cached(name: str, size: int) -> Callable[[_Function], _Function]:
    """As `functools.lru_cache(size)`, for functions whose equal arguments are the same; emptied with the others."""
    def decorate(function: _Function) -> _Function:
        cache: Any = functools.lru_cache(size)(function)
        _functions.append((name, cache))
        return cache
    return decorate


def emptied_by(clear: Callable[[], None]) -> None:
    """Has `clear_caches` call `clear`, for what has a bound and a way to be emptied of its own."""
    _others.append(clear)


class Filling(NamedTuple):
    """How full a cache is."""

    name: str
    entries: int
    size: int


def fillings() -> list[Filling]:
    """Every cache there is, with its bound and how many entries it has now."""
    infos = [(name, function.cache_info()) for name, function in _functions]
    return sorted([*(Filling(cache.name, len(cache), cache.size) for cache in [*_caches.values()]),
                   *(Filling(name, info.currsize, info.maxsize) for name, info in infos)])


def clear_caches() -> None:
    """Forgets every recorded prefix, and all that was found out about programs and operations.

    Programs that are referred to elsewhere stay as they are, with what was derived from them.

    >>> import fxgrad
    >>> fxgrad.clear_caches()
    """
    for cache in [*_caches.values()]:
        cache.clear()
    for _, function in _functions:
        function.cache_clear()
    for clear in _others:
        clear()
