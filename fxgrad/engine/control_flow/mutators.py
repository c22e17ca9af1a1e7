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

ARRAY_METHODS = {"sort": True, "fill": True, "partition": False, "put": True, "itemset": False, "resize": False,
                 "setfield": False, "setflags": False}
"""Methods that change an array of NumPy's, and whether they are followed."""


def _copied(array: Any, source: Any, *, where: Any = True) -> Any:
    return source if where is True else fnp.where(where, source, array)


def _put(array: Any, places: Any, values: Any, mode: str = "raise") -> Any:
    return fnp.put(array, places, values, mode, inplace=False)


def _put_along_axis(array: Any, places: Any, values: Any, axis: int | None = -1) -> Any:
    return fnp.put_along_axis(array, places, values, axis, inplace=False)


def _masked(array: Any, mask: Any, values: Any) -> Any:
    """Return what `np.putmask` makes of an array: an element at a place gets the value at it, repeated as needed."""
    size = np.size(array)
    values = fnp.ravel(values)[np.arange(size) % np.size(values)]
    return fnp.where(mask, fnp.reshape(values, np.shape(array)), array)


_FIRST_ARGUMENT: dict[Any, Callable[..., Any] | None] = {
    np.copyto: _copied, np.put: _put, np.putmask: _masked, np.put_along_axis: _put_along_axis,
    np.place: lambda array, mask, values: fnp.place(array, mask, values, inplace=False),
    np.fill_diagonal: lambda array, value: fnp.fill_diagonal(array, value, inplace=False),
    **dict.fromkeys((heapq.heappush, heapq.heappop, heapq.heapify,
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
LIST_METHODS = {"append", "extend", "insert", "pop", "remove", "clear", "reverse"}
"""Methods that change a list, which may be one that a traced index selects."""
STORING_METHODS = {"append", "extend", "insert", "setdefault", "update"}
"""Methods of lists and dicts that store arguments, or the items of these."""


def changes_container(owner: Any, name: str) -> bool:
    """Return whether a method of Python's or of its libraries changes the container that it belongs to."""
    return any(isinstance(owner, kind) and (name in names or name in _ITEM_METHODS)
               for kind, names in _CONTAINER_METHODS.items())


def changes_first(function: Any) -> bool:
    """Return whether a function of Python's or NumPy's changes its first argument."""
    return _is_function(function) and (function in _FIRST_ARGUMENT or is_ufunc_at(function))


def new_elements(function: Any) -> Callable[..., Any] | None:
    """Return what the elements of an array become by a function that is followed; None for another function."""
    return _FIRST_ARGUMENT.get(function) if _is_function(function) else None


def is_ufunc_at(function: Any) -> bool:
    """Return whether a function is the method `at` of a ufunc."""
    return type(getattr(function, "__self__", None)) is np.ufunc and function.__name__ == "at"


def _is_function(function: Any) -> bool:
    """Return whether a value is a function of Python's in C, or one of NumPy's that calls those of other arrays."""
    return isinstance(function, BuiltinFunctionType | type(np.concatenate))
