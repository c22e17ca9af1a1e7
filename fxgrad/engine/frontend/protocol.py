"""NumPy's own functions on traced arrays: `np.sin(x)` and `np.sum(x)` dispatch to the functions here.

So do the ufuncs of `scipy.special`, to those of `fxgrad.scipy.special`.
"""

from __future__ import annotations

import difflib
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.arrays import Array
from fxgrad.engine.core.avals import PYTHON_SCALARS
from fxgrad.engine.frontend.inplace import (
    CHANGING_FUNCTIONS,
    can_store,
    function_error,
    is_out_new,
    option_error,
    out_error,
    ufunc_at_error,
)
from fxgrad.engine.frontend.operands import wide_dtype
from fxgrad.engine.frontend.ufuncs import Elementwise, loop_operands, refuse_where
from fxgrad.engine.frontend.views import VIEWS, note_view
from fxgrad.engine.hints import NOTHING_INSTEAD, conversion_hint
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.call_cache import replay_calls
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, UnsupportedError

Function = Callable[..., Any]

_ufuncs: dict[Any, Function] = {}
_plain: dict[Any, Function] = {}
"""The function for a ufunc called without options, by the ufunc."""
_functions: dict[Any, Function] = {}
_SUMMING = frozenset({np.add, np.multiply})
"""Ufuncs that combine bools and narrow integers in 64 bits."""
_IGNORED = frozenset({"subok", "casting", "device", "like"})
"""Options of NumPy's functions without meaning for traced arrays."""
_OF_MEMORY = frozenset({np.zeros_like, np.ones_like, np.empty_like, np.full_like, np.einsum})
"""Functions whose `order` is that of memory alone."""
_CASTING = {np.concatenate: "same_kind", np.stack: "same_kind", np.hstack: "same_kind", np.vstack: "same_kind",
            np.einsum: "safe"}
"""The rule of conversions to the option `dtype`, by function."""


def _array_ufunc(_: Tracer, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """Dispatch `np.sin(x)` and all other ufuncs, and their methods."""
    if method == "__call__" and not options:
        plain = _plain.get(ufunc)
        if plain is not None:
            return plain(*inputs)
    function = _ufuncs.get(ufunc) or _special_function(ufunc)
    if function is None:
        raise _unsupported(_ufunc_text(ufunc), method)
    out = options.pop("out", None)
    if out is not None and any(array is not None for array in out):
        if method == "__call__" and len(out) == 1 and is_out_new():
            return written(ufunc, out[0], *inputs, **options)
        raise out_error(ufunc.__name__, out[0])
    if method == "__call__":
        if options:
            inputs, options = _typed_call(ufunc, inputs, **options)
        return function(*inputs, **options)
    if method == "at":
        raise ufunc_at_error(ufunc.__name__, inputs[0])
    if method in ("reduce", "accumulate", "reduceat") and ufunc in _SUMMING and options.get("dtype") is None:
        options["dtype"] = wide_dtype(inputs[0])
    if not isinstance(function, Elementwise):
        raise _unsupported(_ufunc_text(ufunc), method)
    if options.get("where") is True:
        del options["where"]
    return getattr(function, method)(*inputs, **options)


def _typed_call(ufunc: Any, inputs: Sequence[Any], dtype: Any = None, casting: str = "same_kind", order: Any = None,
                subok: bool = True, where: Any = True, **options: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the operands in the dtypes of the ufunc's loop, and the options that remain."""
    del order, subok
    refuse_where(ufunc.__name__, where)
    unknown = options.keys() - (_OF_VECTORS if ufunc.signature else set())
    if unknown:
        hint = "; move the axes by np.moveaxis" if "axes" in unknown else "; it has dtype="
        raise ArgumentError(at_user_line(f"{_ufunc_text(ufunc)} has no option {', '.join(sorted(unknown))}{hint}"))
    return (*loop_operands(ufunc, inputs, dtype, casting),), options


_OF_VECTORS = {"axis", "keepdims"}
"""Options of ufuncs that act on vectors, not elements."""


def written(ufunc: Any, out: Any, *inputs: Any, where: Any = True, **options: Any) -> Any:
    """Return what an array holds after a ufunc has written its results to it, where a mask is true.

    Other elements are computed at an inner point of all domains and not used, so that derivatives there are 0.
    """
    function, choose = _ufuncs.get(ufunc) or _special_function(ufunc), _functions[np.where]
    if function is None:
        raise _unsupported(_ufunc_text(ufunc))
    if options:
        inputs, options = _typed_call(ufunc, inputs, **options)
    inner = 2.0 if ufunc is np.arccosh else 0.5
    if where is not True:
        inputs = tuple(each if type(each) in PYTHON_SCALARS else choose(
            where, each, inner if dtypes.is_inexact(aval_of(each).dtype) else 1) for each in inputs)
    result, own = function(*inputs, **options), aval_of(out)
    if not can_store(own.dtype, aval_of(result).dtype):
        raise DTypeError(at_user_line(
            f"{_ufunc_text(ufunc)}: the result is of dtype {aval_of(result).dtype.name}, and out of dtype "
            f"{own.dtype.name}, which cannot hold it. Make out of dtype {aval_of(result).dtype.name}"))
    result = convert(_functions[np.broadcast_to](result, own.shape), own.dtype)
    return result if where is True else choose(where, result, out)


def _special_function(ufunc: Any) -> Function | None:
    """Return the function for a ufunc of scipy.special, and enter it in the tables; None if there is none."""
    theirs = sys.modules.get("scipy.special")
    if theirs is not None:
        ours = sys.modules["fxgrad"].scipy.special
        for name in ours.__all__:
            if getattr(theirs, name, None) is ufunc:
                _enter_ufunc(ufunc, getattr(ours, name))
    return _ufuncs.get(ufunc)


def _enter_ufunc(ufunc: Any, function: Function) -> None:
    _ufuncs[ufunc], _plain[ufunc] = function, getattr(function, "function", function)


def function_of(ufunc: Any) -> Function | None:
    """Return the function for a ufunc called without options; None if there is none."""
    return _plain.get(ufunc)


_CONSTRUCTORS: frozenset[Any] = frozenset(
    [np.zeros, np.ones, np.full, np.arange, np.linspace, np.eye, np.identity, np.array, np.asarray])
"""Functions of NumPy's that make arrays, and are no part of the protocol, or only for some arguments."""


def is_recorded(function: Any) -> bool:
    """Return whether a function of NumPy's is recorded on traced arrays, or makes arrays of what it is given."""
    return function in _ufuncs or function in _functions or function in _CONSTRUCTORS or (
        isinstance(function, np.ufunc) and _special_function(function) is not None)


def _array_function(_: Tracer, function: Any, __: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """Dispatch `np.sum(x)` and all other functions that NumPy dispatches."""
    own = _functions.get(function)
    if own is None:
        if function.__name__ in CHANGING_FUNCTIONS and function.__module__ == "numpy":
            raise function_error(function.__name__, args, options)
        raise _unsupported(f"np.{_function_text(function)}")
    if options:
        if options.get("out") is not None:
            raise option_error(_function_text(function), options["out"], "out")
        if options.get("dtype") is not None and function in _CASTING:
            _check_casting(function, args, options["dtype"], options.get("casting", _CASTING[function]))
        options = {key: value for key, value in options.items()
                   if key not in _IGNORED and not (key == "order" and function in _OF_MEMORY)
                   and not (key == "out" and value is None)}
    if function is np.nan_to_num and not (args[1] if len(args) > 1 else options.get("copy", True)):
        raise option_error("nan_to_num", args[0], "copy")
    result = own(*args, **options)
    return result.copy() if type(result) is Array and result.shape else result  # np.zeros_like(x) can be written to


def _check_casting(function: Any, args: Sequence[Any], dtype: Any, casting: str) -> None:
    """Raise `DTypeError` unless `casting` allows the conversion of all arrays of a call to a dtype."""
    wanted = np.dtype(dtype)
    for each in args if function is np.einsum else args[0]:
        given = each.dtype if isinstance(each, Tracer | np.ndarray) else wanted
        if "V" not in (given.kind, wanted.kind) and not np.can_cast(given, wanted, casting):  # type: ignore[arg-type]
            raise DTypeError(at_user_line(
                f"np.{function.__name__}: casting={casting!r} allows no conversion of {given.name} to "
                f"dtype={wanted.name}. Write x.astype({wanted.name!r}) for it, or casting='unsafe'"))


def _function_text(function: Any) -> str:
    module = getattr(function, "__module__", "numpy").removeprefix("numpy").removeprefix(".")
    return f"{module}.{function.__name__}" if module else str(function.__name__)


def _ufunc_text(ufunc: Any) -> str:
    special = getattr(sys.modules.get("scipy.special"), ufunc.__name__, None) is ufunc
    return f"{'scipy.special' if special else 'np'}.{ufunc.__name__}"


def _unsupported(called: str, method: str = "__call__") -> UnsupportedError:
    found = conversion_hint()
    if found is not None and found.instead != NOTHING_INSTEAD:
        return UnsupportedError(at_user_line(f"{found.done} is not supported for traced arrays. {found.instead}"))
    own, prefix, supported = "numpy", "np.", {_function_text(function) for function in (*_functions, *_ufuncs)}
    if called.startswith("scipy.special."):
        own, prefix = "scipy.special", "scipy.special."
        supported = {*sys.modules["fxgrad"].scipy.special.__all__}
    if method != "__call__":
        called += f".{method}"
    near = difflib.get_close_matches(called.removeprefix(prefix), supported, 3, 0.5)
    hint = f". The nearest that is: {', '.join(prefix + each for each in near)}" if near else (
        f"; fxgrad.{own} lists what is")
    return UnsupportedError(at_user_line(f"{called} is not supported for traced arrays{hint}"))


# --- the tables ---------------------------------------------------------------------------------------------------


def install(functions: dict[str, Function], np_module: str = "") -> None:
    """Enter `functions` under the NumPy functions of the same names, and attach the protocol to `Tracer`."""
    module = operator.attrgetter(np_module)(np) if np_module else np
    for name, function in functions.items():
        theirs = getattr(module, name, None)
        if isinstance(theirs, np.ufunc):
            _enter_ufunc(theirs, function)
        elif callable(theirs) and not isinstance(theirs, type) and function is not theirs and (
                name not in CHANGING_FUNCTIONS):
            _functions[theirs] = replay_calls(function, views=note_view if name in VIEWS else None)
    Tracer.__array_ufunc__, Tracer.__array_function__ = _array_ufunc, _array_function  # type: ignore[attr-defined]
