"""Tables that outlive a call: each has a bound, and `clear_caches` empties them all (docs/appendix/caches.md)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

_Function = TypeVar("_Function", bound=Callable[..., Any])
_caches: WeakValueDictionary[int, Cache] = WeakValueDictionary()
_functions: list[tuple[str, Any]] = []
_others: list[Callable[[], None]] = []


class BoundedDict(dict[Any, Any]):
    """A dictionary of at most `size` values, cleared when it is full. Its owner is an object, which it dies with.

    Lookup is the dictionary's own method, and as fast. Values are entered by `add` or by assignment.
    """

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __setitem__(self, key: Any, value: Any) -> None:
        if len(self) >= self.size and key not in self:
            self.clear()
        super().__setitem__(key, value)

    def __reduce__(self) -> Any:
        return type(self), (self.size,)  # entries stay in this process

    def add(self, key: Any, value: Any) -> Any:
        """Enter a value, unless another thread was faster; return the one that is there now."""
        if len(self) >= self.size:
            self.clear()
        return self.setdefault(key, value)


class Cache(BoundedDict):
    """A table that lives as long as the library, registered by `name`. Keys that hold users' values use `cache_key`.

    >>> squares = Cache("squares", 2)
    >>> squares.add(3, 9), squares.get(3), squares.get(4)
    (9, 9, None)
    """

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str, size: int) -> None:
        super().__init__(size)
        self.name = name
        _caches[id(self)] = self

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.size)


def cached(name: str, size: int) -> Callable[[_Function], _Function]:
    """Decorate as `functools.lru_cache(size)`, and register the cache; equal arguments must be indistinguishable."""
    def decorate(function: _Function) -> _Function:
        cache: Any = functools.lru_cache(size)(function)
        _functions.append((name, cache))
        return cache
    return decorate


def on_clear(clear: Callable[[], None]) -> None:
    """Have `clear_caches` call `clear`, which empties a table that has a bound of its own."""
    _others.append(clear)


class CacheInfo(NamedTuple):
    """The number of entries in a cache, and its bound."""

    name: str
    entries: int
    size: int


def cache_info() -> list[CacheInfo]:
    """Return the name, the number of entries and the bound of every `Cache` and `cached` function."""
    infos = [(name, function.cache_info()) for name, function in _functions]
    return sorted([*(CacheInfo(cache.name, len(cache), cache.size) for cache in [*_caches.values()]),
                   *(CacheInfo(name, info.currsize, info.maxsize) for name, info in infos)])


def clear_caches() -> None:
    """Empty all tables: recorded prefixes, rules of operations, and all other cached results.

    Programs referenced elsewhere stay unchanged, with their derivations.

    >>> import fxgrad
    >>> fxgrad.clear_caches()
    """
    for cache in [*_caches.values()]:
        cache.clear()
    for _, function in _functions:
        function.cache_clear()
    for clear in _others:
        clear()
