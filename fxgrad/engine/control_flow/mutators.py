"""The methods and functions of Python's and NumPy's that change an object in place: the one table of them.

Some that change an array are *followed*: the variable, item or attribute that has the array gets another one. The
others run as they are, on objects that a traced block made, and are refused there for objects from outside.
"""

from __future__ import annotations

import bisect
import heapq
import operator
from collections.abc import Callable, MutableMapping, MutableSequence, MutableSet
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from fxgrad import numpy as fnp

ARRAY_METHODS = {"sort": True, "fill": True, "partition": False, "put": False, "itemset": False, "resize": False,
                 "setfield": False, "setflags": False}
"""Methods that change an array of NumPy's, and whether they are followed."""
_FIRST_ARGUMENT: dict[Any, Callable[[Any, Any], Any] | None] = {
    np.copyto: lambda _, source: source,
    np.fill_diagonal: lambda array, value: fnp.fill_diagonal(array, value, inplace=False),
    **dict.fromkeys((np.put, np.place, np.putmask, np.put_along_axis, heapq.heappush, heapq.heappop, heapq.heapify,
                     heapq.heapreplace, heapq.heappushpop, bisect.insort_left, bisect.insort_right, operator.setitem,
                     operator.delitem, setattr, delattr))}
"""Functions that change their first argument; of those that are followed, what its elements become by the second.

The method `at` of each ufunc is one more, and followed.
"""
FOLLOWED_METHODS = {name for name, is_followed in ARRAY_METHODS.items() if is_followed}
FOLLOWED_FUNCTIONS = {"at", *(function.__name__ for function, new in _FIRST_ARGUMENT.items() if new is not None)}
"""What is followed, as code names it."""

_CONTAINER_METHODS: dict[type, set[str]] = {
    MutableSequence: {"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "appendleft",
                      "extendleft", "popleft", "rotate", "fromlist", "frombytes", "byteswap"},
    MutableMapping: {"update", "setdefault", "pop", "popitem", "clear", "move_to_end", "subtract"},
    MutableSet: {"add", "update", "discard", "remove", "pop", "clear", "difference_update", "intersection_update",
                 "symmetric_difference_update"}}
"""Methods that change containers of Python and of its libraries, such as a `deque` or a `Counter`."""
_ITEM_METHODS = {"__setitem__", "__delitem__", "__iadd__", "__ior__", "__iand__", "__isub__", "__ixor__", "__imul__"}
STORING_METHODS = {"append", "extend", "insert", "setdefault", "update"}
"""Methods of lists and dicts that store arguments, or the items of these."""


def changes_container(owner: Any, name: str) -> bool:
    """Return whether a method of Python's or of its libraries changes the container that it belongs to."""
    return any(isinstance(owner, kind) and (name in names or name in _ITEM_METHODS)
               for kind, names in _CONTAINER_METHODS.items())


def changes_first(function: Any) -> bool:
    """Return whether a function of Python's or NumPy's changes its first argument."""
    return _is_function(function) and (function in _FIRST_ARGUMENT or is_ufunc_at(function))


def new_elements(function: Any) -> Callable[[Any, Any], Any] | None:
    """Return what the elements of an array become by a function that is followed; None for another function."""
    return _FIRST_ARGUMENT.get(function) if _is_function(function) else None


def is_ufunc_at(function: Any) -> bool:
    """Return whether a function is the method `at` of a ufunc."""
    return type(getattr(function, "__self__", None)) is np.ufunc and function.__name__ == "at"


def _is_function(function: Any) -> bool:
    """Return whether a value is a function of Python's in C, or one of NumPy's that calls those of other arrays."""
    return isinstance(function, BuiltinFunctionType | type(np.concatenate))
