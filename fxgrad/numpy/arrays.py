"""Differences between `Array` and NumPy's array, attached here: operators, items, updates, products."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core import backends
from fxgrad.engine.core.arrays import ARRAYS, Array, WeakArray, as_strong_scalar, freeze_result, make_weak
from fxgrad.engine.executors.silence import silence_warnings
from fxgrad.engine.frontend.inplace import allowed_references, cast_result
from fxgrad.engine.frontend.operands import operand
from fxgrad.engine.frontend.protocol import function_of
from fxgrad.engine.frontend.ufuncs import has_reflected
from fxgrad.engine.frontend.value_calls import replay_on_values
from fxgrad.engine.ops.conversion import converted
from fxgrad.engine.tracing.tracer import Tracer, aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.engine.user_source import item_assignment, running_code
from fxgrad.errors import DTypeError, MutationError, UnsupportedError
from fxgrad.numpy import indexing
from fxgrad.numpy.inspection import DEVICE
from fxgrad.numpy.methods import BINARY, COMPARISONS, METHODS, SYMBOLS, UNARY
from fxgrad.numpy.updates import Updates

Function = Callable[..., Any]

_own_item = np.ndarray.__getitem__
_own_setitem = np.ndarray.__setitem__


# --- operators ----------------------------------------------------------------------------------------------------

_ALIKE = {"add": "iufc", "sub": "iufc", "mul": "iufc", "truediv": "fc", "matmul": "fc",
          **dict.fromkeys(COMPARISONS, "iuf"), **dict.fromkeys(("and", "or", "xor"), "iub")}
"""Kinds of equal dtypes for which NumPy's operator gives the same result, and is faster."""

_OPERANDS = (np.generic, np.ndarray, jax.Array, list, tuple, bool, int, float, complex)
_DTYPES = frozenset(dtypes.SUPPORTED.values())
_OURS = ARRAYS | {WeakArray}
_PLAIN_NUMBERS = frozenset({int, float})
_PRODUCTS = np.ndarray.__mul__, np.ndarray.__rmul__
_SEQUENCES = (list, tuple, str, bytes)


def _operator(name: str, function: Function) -> Function:
    """Return the operator on NumPy arrays; its result is writable if an array among its operands is."""
    own, kinds = getattr(np.ndarray, f"__{name}__"), _ALIKE.get(name, "")
    numbers = "" if name == "matmul" else kinds
    quick = silence_warnings(own)

    def method(self: Any, other: Any) -> Any:
        kind = type(other)
        if kind is Tracer:
            return function(self, other)
        if not backends.is_replaced() and (
                (other.dtype == self.dtype and self.dtype.kind in kinds and self.dtype.num < dtypes.FIRST_ADDED) if (
                    kind in ARRAYS) else _fits(self, other, kind, numbers)):
            try:
                return _numpy_operator(quick, self, other, kind)
            except ValueError:  # shapes that do not broadcast; our own error has the user's line
                return function(self, other)
        if isinstance(other, np.ndarray) and kind not in _OURS:
            return NotImplemented  # a masked array's own rules apply; else this comes back reflected
        return _promote_operands(function, own, self, other, name)
    return method


def _reflected_operator(name: str, function: Function) -> Function:
    own = getattr(np.ndarray, f"__r{name}__")
    numbers = "" if name == "matmul" else _ALIKE.get(name, "")
    quick = silence_warnings(own)

    def method(self: Any, other: Any) -> Any:
        if not backends.is_replaced() and _fits(self, other, type(other), numbers):
            return _numpy_operator(quick, self, other, type(other))
        return _promote_operands(lambda self, other: function(other, self), own, self, other, "")
    return method


def _fits(self: Any, number: Any, kind: Any, kinds: str) -> bool:
    """Return whether NumPy's operator with a number gives our result: it fits, and takes the array's dtype."""
    own = self.dtype.kind if self.dtype.num < dtypes.FIRST_ADDED else "V"
    if kind is float or kind is np.float64:
        return own in kinds and own in "fc"
    return kind is int and own in kinds and own != "b" and (0 if own == "u" else -128) <= number <= 127


def _numpy_operator(own: Function, self: Any, other: Any, kind: Any) -> Any:
    """Apply NumPy's operator to plain arrays, which is faster than to a subclass."""
    plain = other.view(np.ndarray) if kind in ARRAYS else float(other) if kind is np.float64 else other
    result = np.asarray(own(self.view(np.ndarray), plain)).view(Array)
    if not (self.flags.writeable or (kind in ARRAYS and other.flags.writeable)):
        result.setflags(write=False)
    return result


def _promote_operands(function: Function, own: Function, self: Any, other: Any, name: str) -> Any:
    """Promote the operands as in jax and apply the operator; the result is writable if one of them is.

    If the other operand is no array and its class has the reflected operator of this name, that one is called.
    """
    if own in _PRODUCTS and isinstance(other, _SEQUENCES) and self.dtype.kind in "iu" and not self.shape and (
            _is_result(self)):
        return NotImplemented  # Python repeats it, as it does for NumPy's integers
    if type(other) not in _PLAIN_NUMBERS and not isinstance(other, np.ndarray) and type(other) is not Tracer and \
            hasattr(other, "__jax_array__") and not isinstance(other, jax.Array):
        other = operand(other)
    kind = type(other)
    # As in jax; other operands (objects, dates, masked arrays) are left to NumPy.
    if not (self.dtype in _DTYPES and (kind in _PLAIN_NUMBERS or (
            (kind in _OURS or not isinstance(other, np.ndarray)) and isinstance(other, _OPERANDS)
            and (not isinstance(other, np.generic | np.ndarray) or other.dtype in _DTYPES)))):
        if not hasattr(other, "__array__") and has_reflected(name, other):
            return NotImplemented
        result = own(self, other)
        makes_objects = self.dtype in _DTYPES and not isinstance(other, np.ndarray) and \
            isinstance(result, np.ndarray) and result.dtype == object
        return NotImplemented if makes_objects else result
    if not (self.flags.writeable or (isinstance(other, np.ndarray) and other.flags.writeable)):
        return function(self, other)
    return _writable(function(self, other))


def _array_wrap(self: Array, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    """Return the result of a NumPy ufunc; recomputed by our function where a NumPy scalar makes another type.

    NumPy's scalars on the left dispatch to nothing, so that this is the first place that sees the operation.
    """
    if context is not None and (array.dtype != self.dtype or type(self) is WeakArray):
        ufunc, operands, place = context
        function = function_of(ufunc)
        if function is not None and len(operands) == ufunc.nin and any(
                isinstance(operand, np.generic) and operand.dtype in _DTYPES for operand in operands):
            try:
                result = function(*operands)
            except DTypeError as error:  # a TypeError, for which NumPy would call this again without the context
                raise UnsupportedError(str(error)) from error
            return result[place] if type(result) is tuple else result
    return _own_wrap(self, array, context, return_scalar)


_own_wrap = np.ndarray.__array_wrap__


def _operator_in_place(name: str, operator: Function) -> Function:
    own = getattr(np.ndarray, f"__i{name}__")

    def method(self: Any, other: Any) -> Any:
        if not self.flags.writeable or is_number(self):  # NumPy's scalars never change: the name is rebound
            return operator(self, other)
        if not self.shape:
            return own(self, other)
        # NumPy's array cannot hold traced values; a new one is equivalent if nobody else would see the change.
        count = sys.getrefcount(self)
        if type(other) is Tracer and count <= allowed_references(self) and (self.base is None or _is_result(self)):
            return cast_result(SYMBOLS[name], aval_of(self), operator(self, other))
        return own(self, other)
    return method


def is_number(array: Array) -> bool:
    """Return whether an array stands for a NumPy scalar, which never changes: operators such as `+=` make another."""
    return not array.shape and (not array.flags.writeable or _is_result(array))


def _is_result(array: Array) -> bool:
    """Return whether an array is a result of an operation, and no view, copy or array of the caller's.

    Nobody else holds the memory of a result, which is that of a plain array; a copy has memory of its own. NumPy has a
    scalar in the place of a result of shape ().
    """
    return type(array.base) is np.ndarray and sys.getrefcount(array.base) == _HELD_ONCE[1]


# --- items --------------------------------------------------------------------------------------------------------


def _getitem(self: Array, index: Any) -> Any:
    """Return `x[index]`: an element or a part of the array; a traced value at traced indices."""
    if type(index) is Tracer or (type(index) is tuple and any(type(entry) is Tracer for entry in index)):
        return indexing.getitem(self, index)
    part = _own_item(self, index)
    if type(part) is Array:
        if not self.shape and _is_result(self):
            return _own_item(np.array(self).view(Array), index)
        if type(index) is not slice and part.flags.writeable and not self.flags.writeable:  # a copy of some elements
            part.setflags(write=False)
        return part
    if type(part) is np.void:
        return part
    part = np.asarray(part)
    part.setflags(write=False)
    return part.view(Array)


def _setitem(self: Array, index: Any, value: Any) -> None:
    """Set `x[index] = value`, if the array is a caller's or a copy; raise `MutationError` if it is a result."""
    if not self.flags.writeable:
        is_part = isinstance(self.base, np.ndarray) and self.base.size != self.size
        done, instead = item_assignment(running_code().statement, view=is_part) or (
            "x[...] = value", "x = x.at[...].set(value)")
        array = instead.split(" = ")[0]
        raise MutationError(at_user_line(
            f"{done}: {array}, an array of shape {self.shape} and dtype {self.dtype.name}, cannot be written to: a "
            f"function of fxgrad made it, or it is a read-only array of NumPy's. Write {instead}, or before it "
            f"{array} = {array}.copy(), which can be written to"))
    _own_setitem(self, index, value)


def _view_of_number(name: str) -> Function:
    """Return a method that views an array in another shape: of a number, as of NumPy's scalars, a copy."""
    own = getattr(np.ndarray, name)

    @functools.wraps(own)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        if not self.shape and _is_result(self):
            self = np.array(self).view(Array)
        return own(self, *args, **options)
    return method


# --- methods ------------------------------------------------------------------------------------------------------

_COMPUTED = ("all", "any", "argmax", "argmin", "argpartition", "argsort", "choose", "clip", "compress", "cumprod",
             "cumsum", "dot", "max", "mean", "min", "nonzero", "prod", "ptp", "round", "searchsorted", "std", "sum",
             "trace", "var")
"""Methods that traced arrays have too and that return no view: they are those, so that types and digits agree."""

_OUT_PLACES = {"clip": 2, "compress": 2}
"""Positions of `out` in NumPy's methods, where the signature of the function does not have it there."""

_OPTIONS_OF_JAX: dict[str, dict[str, Any]] = {
    "astype": {"device": None},
    "repeat": {"total_repeat_length": None},
    "take": {"unique_indices": False, "indices_are_sorted": False, "fill_value": None},
}
"""Options that jax's arrays and traced ones take, and NumPy's methods do not, with their defaults."""


def _computed(name: str) -> Function:
    """Return the method that traced arrays have; NumPy's for calls with `out`, and for dtypes that are not ours.

    Its results can be written to: NumPy's own functions, as `np.nanmean`, do so.
    """
    own, function = getattr(np.ndarray, name, None), METHODS[name]
    parameters = [*inspect.signature(function).parameters]
    out = _OUT_PLACES.get(name, parameters.index("out") - 1 if "out" in parameters else len(parameters))
    run = replay_on_values(function)

    def method(self: Array, *args: Any, **options: Any) -> Any:
        if own is not None and (self.dtype not in _DTYPES or options.get("out") is not None or (
                len(args) > out and args[out] is not None)):
            return own(self, *args, **options)
        return _writable(run(self, *args, **options))
    method.__name__, method.__doc__ = name, function.__doc__
    return method


def _writable(result: Any) -> Any:
    """Return arrays that can be written to: a result that nobody else holds, or a copy; other results unchanged."""
    if type(result) is tuple:
        return tuple([_writable(each) for each in result])
    if type(result) is not Array:
        return result
    if result.nbytes >= _LARGE and (sys.getrefcount(result), sys.getrefcount(result.base)) == _HELD_ONCE and (
            type(result.base) is np.ndarray and result.base.base is None and result.base.nbytes == result.nbytes):
        result.base.setflags(write=True)
        result.setflags(write=True)
        return result
    return result.copy() if result.shape else np.array(result).view(Array)


_LARGE = 1 << 14
"""Bytes from which on a copy takes longer than the test whether it is needed."""


def _references(result: Any) -> tuple[int, int]:
    return sys.getrefcount(result), sys.getrefcount(result.base)


_HELD_ONCE = _references(freeze_result(np.ones(1)))
"""The references to a result, and to the array of NumPy's that owns its memory, which nobody else has."""


def _with_strong_result(name: str) -> Function:
    """Return NumPy's method; a number that it returns is an `Array`, since NumPy's scalars of 64 bits are weak."""
    own = getattr(np.ndarray, name)

    @functools.wraps(own)
    def method(self: Array, *args: Any, **options: Any) -> Any:
        return as_strong_scalar(own(self, *args, **options))
    return method


def _with_options_of_jax(name: str, own: Function, defaults: dict[str, Any]) -> Function:
    """Return NumPy's method; with an option that only jax's arrays have, the one that traced arrays have."""
    function = METHODS[name]

    def method(self: Array, *args: Any, **options: Any) -> Any:
        for option in options.keys() & defaults.keys():
            if options[option] is defaults[option]:
                del options[option]
        return own(self, *args, **options) if defaults.keys().isdisjoint(options) else function(self, *args, **options)
    method.__name__, method.__doc__ = name, own.__doc__
    return method


def _astype(self: Array, dtype: Any, *args: Any, **options: Any) -> Any:
    """Return the converted array: NumPy's method; for one-byte dtypes that NumPy lacks `fxgrad.numpy.astype`.

    NumPy wraps floats beyond the range of integers, or leaves them to the processor; here they are the nearest integer,
    and NaN is 0, as for traced arrays.
    """
    after = np.dtype(dtype)
    if after.num >= dtypes.FIRST_ADDED or self.dtype.num >= dtypes.FIRST_ADDED:
        return METHODS["astype"](self, dtype, *args, **options)
    if after.kind in "iu" and self.dtype.kind in "fc":
        with np.errstate(invalid="ignore"):
            result = np.ndarray.astype(self, dtype, *args, **options)
        result[...] = converted(np.asarray(self), after)
        return result
    result = np.ndarray.astype(self, dtype, *args, **options)
    if not self.shape and _is_result(self):
        return np.array(result).view(Array)
    return result.view(Array) if type(result) is WeakArray else result  # the array itself, by `copy=False`


def _block_until_ready(self: Array) -> Array:
    """Return the array itself, which is computed already."""
    return self


def _devices(self: Array) -> set[Any]:
    """Return the devices of the array."""
    del self
    return {DEVICE}


def _at(self: Array) -> Updates:
    """Return updated copies: `x.at[index].set(value)` and its relatives."""
    return Updates(np.asarray(self))


def _format(self: Array, specification: str) -> str:
    """Format an array of shape () as a number."""
    return format(self.item() if not self.shape else np.asarray(self), specification)


def _round(self: Array, digits: int | None = None) -> Any:
    """`round(x)` of shape () is an int, as with Python's numbers; of other shapes, and to `digits`, an array."""
    return round(self.item()) if digits is None and not self.shape else self.round(digits or 0)


def _hash(self: Array) -> int:
    """Return the hash of the number, for results of shape (), which are dict keys like NumPy's scalars."""
    if self.shape or (self.flags.writeable and not _is_result(self)):
        raise TypeError(f"unhashable type: an array of shape {self.shape}")
    return hash(self.item())


def attach_array_methods() -> None:
    """Give `Array` its methods."""
    for name, member in {"__getitem__": _getitem, "__setitem__": _setitem, "astype": _astype,
                         "devices": _devices, "block_until_ready": _block_until_ready,
                         "at": property(_at),
                         "__format__": _format, "__round__": _round, "__hash__": _hash,
                         "__array_wrap__": _array_wrap}.items():
        setattr(Array, name, member)
    Array.take = _with_strong_result("take")  # type: ignore[method-assign]
    Array.__pos__ = UNARY["pos"]  # type: ignore[method-assign]
    for name in ("ravel", "reshape"):
        setattr(Array, name, _view_of_number(name))
    for name in _COMPUTED:
        setattr(Array, name, _computed(name))
    for name, defaults in _OPTIONS_OF_JAX.items():
        setattr(Array, name, _with_options_of_jax(name, getattr(Array, name), defaults))
    for name, function in (BINARY | COMPARISONS).items():
        operator = _operator(name, function)
        setattr(Array, f"__{name}__", operator)
        if name in BINARY:
            setattr(Array, f"__r{name}__", _reflected_operator(name, function))
        if name in SYMBOLS:
            setattr(Array, f"__i{name}__", _operator_in_place(name, operator))
    _attach_to_weak()


def _attach_to_weak() -> None:
    """Attach operators to `WeakArray` that respect weak types, and its views, which are weak too."""
    for name, function in (BINARY | COMPARISONS).items():
        setattr(WeakArray, f"__{name}__", _weak_operator(f"__{name}__", function, name))
        if name in BINARY:
            setattr(WeakArray, f"__r{name}__", _weak_operator(f"__r{name}__", lambda x, y, of=function: of(y, x), ""))
        if name in SYMBOLS:
            setattr(WeakArray, f"__i{name}__", getattr(WeakArray, f"__{name}__"))
    for name, unary in UNARY.items():
        setattr(WeakArray, f"__{name}__", lambda self, of=unary: of(self))
    for name in ("__copy__", "__deepcopy__", "__getitem__", "conj", "conjugate", "copy", "diagonal", "flatten", "ravel",
                 "repeat", "reshape", "squeeze", "swapaxes", "take", "transpose"):
        setattr(WeakArray, name, _weak_view(getattr(Array, name)))
    WeakArray.at = property(Updates)  # type: ignore[attr-defined]
    WeakArray.imag = property(_weak_view(np.ndarray.imag.__get__))  # type: ignore[assignment]
    WeakArray.mT = property(_weak_view(np.ndarray.mT.__get__))  # type: ignore[assignment]
    WeakArray.T = property(_weak_view(np.ndarray.transpose))  # type: ignore[assignment]


def _weak_operator(method: str, function: Function, name: str) -> Function:
    own = getattr(np.ndarray, method)
    return lambda self, other: _promote_operands(function, own, self, other, name)


def _weak_view(method: Function) -> Function:
    def view(self: WeakArray, *args: Any, **options: Any) -> Any:
        part = method(self, *args, **options)
        return part if type(part) is Tracer else make_weak(part)
    return view
