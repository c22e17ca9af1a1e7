"""NumPy's own functions on traced arrays: `np.sin(x)` and `np.sum(x)` are handed on to the functions here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.core.replay import remembered
from fxgrad.core.tracer import Tracer
from fxgrad.errors import UnsupportedError, at_user_line
from fxgrad.numpy.elementwise import Elementwise
from fxgrad.numpy.ordering import cumprod, cumsum

Function = Callable[..., Any]

_ufuncs: dict[Any, Function] = {}
_plain: dict[Any, Function] = {}
"""What a ufunc called without options is, by the ufunc."""
_functions: dict[Any, Function] = {}
_ACCUMULATED = {np.add: cumsum, np.multiply: cumprod}
_IGNORED = frozenset({"subok", "casting", "device", "like"})
"""Options of NumPy's functions that mean nothing for traced arrays."""
_IN_PLACE = {"copyto", "put", "put_along_axis", "fill_diagonal", "place", "putmask"}
"""Functions of NumPy that change an argument; those of the same names here return a copy."""


def _array_ufunc(_: Tracer, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """`np.sin(x)` and all other ufuncs, and their methods."""
    if method == "__call__" and not options:
        plain = _plain.get(ufunc)
        if plain is not None:
            return plain(*inputs)
    function = _ufuncs.get(ufunc)
    if function is None:
        raise _unsupported(ufunc.__name__, method)
    if method == "__call__":
        return function(*inputs, **options)
    if method == "at":
        raise UnsupportedError(at_user_line(f"np.{ufunc.__name__}.at changes its first argument, and traced arrays "
                                            "cannot change. Write x = x.at[index].add(values), or set, multiply, ..."))
    if method == "accumulate" and ufunc in _ACCUMULATED:
        options.setdefault("axis", 0)
        return _ACCUMULATED[ufunc](*inputs, **options)
    if method not in ("reduce", "outer") or not isinstance(function, Elementwise):
        raise _unsupported(ufunc.__name__, method)
    if options.get("where") is True:
        del options["where"]
    return getattr(function, method)(*inputs, **options)


def _array_function(_: Tracer, function: Any, __: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """`np.sum(x)` and all other functions that NumPy dispatches."""
    own = _functions.get(function)
    if own is None:
        raise _unsupported(_name_of(function))
    if options:
        options = {key: value for key, value in options.items() if key not in _IGNORED}
    return own(*args, **options)


def _name_of(function: Any) -> str:
    module = getattr(function, "__module__", "numpy").removeprefix("numpy").removeprefix(".")
    return f"{module}.{function.__name__}" if module else str(function.__name__)


def _unsupported(name: str, method: str = "__call__") -> UnsupportedError:
    called = f"np.{name}" if method == "__call__" else f"np.{name}.{method}"
    if name in _IN_PLACE:
        return UnsupportedError(at_user_line(f"{called} changes its first argument, and traced arrays cannot change. "
                                             "Write x = x.at[index].set(values)"))
    supported = {_name_of(function) for function in (*_functions, *_ufuncs)}
    near = difflib.get_close_matches(name, supported, 3, 0.5)
    hint = f". The nearest that is: {', '.join(f'np.{each}' for each in near)}" if near else \
        "; fxgrad.numpy lists what is"
    return UnsupportedError(at_user_line(f"{called} is not supported for traced arrays{hint}"))


# --- the tables ---------------------------------------------------------------------------------------------------


def install(functions: dict[str, Function], np_module: str = "") -> None:
    """Enters `functions` under the NumPy functions of the same names, and attaches the protocol to `Tracer`."""
    module = getattr(np, np_module) if np_module else np
    for name, function in functions.items():
        theirs = getattr(module, name, None)
        if isinstance(theirs, np.ufunc):
            _ufuncs[theirs], _plain[theirs] = function, getattr(function, "function", function)
        elif callable(theirs) and not isinstance(theirs, type) and function is not theirs and name not in _IN_PLACE:
            _functions[theirs] = remembered(function)
    Tracer.__array_ufunc__, Tracer.__array_function__ = _array_ufunc, _array_function  # type: ignore[attr-defined]
