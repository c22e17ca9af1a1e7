"""The `ndarray` interface of traced arrays: operators, methods and properties, attached to `Tracer`."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend import inplace
from fxgrad.engine.frontend.ufuncs import operator_pair
from fxgrad.engine.frontend.views import VIEWS, note_item_view, note_real_view, note_view
from fxgrad.engine.ops.joining import unstack
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.call_cache import replay_calls
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import DTypeError, ShapeError
from fxgrad.numpy import (
    arithmetic,
    bits,
    creation,
    editing,
    elementwise,
    finding,
    indexing,
    inspection,
    logic,
    ordering,
    products,
    rearranging,
    reductions,
    shaping,
    statistics,
)
from fxgrad.numpy.number_methods import number_methods
from fxgrad.numpy.numpy_semantics import FUNCTIONS, WIDENED
from fxgrad.numpy.updates import Updates

Function = Callable[..., Any]

BINARY: dict[str, Function] = {
    "add": arithmetic.add.function, "sub": arithmetic.subtract.function, "mul": arithmetic.multiply.function,
    "truediv": arithmetic.divide.function, "floordiv": arithmetic.floor_divide.function,
    "mod": arithmetic.remainder.function, "divmod": arithmetic.divmod, "pow": arithmetic.power.function,
    "matmul": products.matmul, "and": logic.bitwise_and.function, "or": logic.bitwise_or.function,
    "xor": logic.bitwise_xor.function, "lshift": logic.left_shift.function, "rshift": logic.right_shift.function,
}
"""Binary operators by name; each has a reflected form too."""

COMPARISONS: dict[str, Function] = {
    "eq": logic.equal.function, "ne": logic.not_equal.function, "lt": logic.less.function,
    "le": logic.less_equal.function, "gt": logic.greater.function, "ge": logic.greater_equal.function,
}

SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
            "matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}
"""Operators that have a form in place."""

UNARY: dict[str, Function] = {
    "neg": elementwise.negative.function, "pos": elementwise.positive.function, "abs": elementwise.absolute.function,
    "invert": logic.invert.function,
}

_METHODS: dict[str, Function] = {
    "all": reductions.all, "any": reductions.any, "argmax": reductions.argmax, "argmin": reductions.argmin,
    "argpartition": FUNCTIONS["argpartition"], "argsort": FUNCTIONS["argsort"], "byteswap": bits.byteswap,
    "choose": editing.choose, "view": bits.view, "astype": creation.astype, "clip": arithmetic.clip,
    "conj": elementwise.conjugate.function, "conjugate": elementwise.conjugate.function,
    "diagonal": rearranging.diagonal, "dot": products.dot,
    "flatten": shaping.ravel, "max": reductions.max, "mean": statistics.mean, "min": reductions.min,
    "nonzero": finding.nonzero, "ptp": reductions.ptp, "ravel": shaping.ravel,
    "repeat": rearranging.repeat, "round": elementwise.round, "searchsorted": ordering.searchsorted,
    "sort": FUNCTIONS["sort"], "squeeze": shaping.squeeze, "std": statistics.std,
    "swapaxes": shaping.swapaxes, "take": rearranging.take, "var": statistics.var,
}


def _compress(self: Any, condition: Any, axis: int | None = None, **options: Any) -> Any:
    """Return the entries along `axis` where a vector `condition` is true."""
    return editing.compress(condition, self, axis, **options)


METHODS: dict[str, Function] = {**_METHODS, "compress": _compress,
                                **{name: WIDENED[name] for name in ("cumprod", "cumsum", "prod", "sum", "trace")}}
"""Methods that are functions of `fxgrad.numpy` with the array as their first argument."""


def _comparison(function: Function) -> Function:
    """Return the operator; comparisons with None and strings are left to Python."""
    def method(self: Any, other: Any) -> Any:
        return NotImplemented if other is None or isinstance(other, str) else function(self, other)
    return method


def _reshape(self: Any, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
    """Return the elements in another shape, given as one tuple or as several integers; one size may be -1."""
    return shaping.reshape(self, shape[0] if len(shape) == 1 else shape, order, copy=copy)


def _transpose(self: Any, *axes: Any) -> Any:
    """Return the array with its axes in the order given as one tuple or as several integers, or reversed."""
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
    return shaping.transpose(self, order)


def _iterate(self: Any) -> Iterator[Any]:
    if not self.shape:
        raise TypeError(at_user_line("iteration over a traced scalar (a 0-d array)"))
    return _rows(self)


def _rows(array: Any) -> Iterator[Any]:
    """Yield the rows; later ones see changes of a NumPy array, so it is frozen until they are exhausted."""
    rows = unstack(array, 0)
    yield from note_view(rows, (array,)) if len(array.shape) > 1 else rows


def _astype(self: Any, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True,
            **options: Any) -> Any:
    """Return the array converted; with `copy=False` a NumPy array of that dtype already is returned itself.

    Raises `DTypeError` for a dtype that NumPy does not convert to by the rule `casting`. The other options of NumPy's
    arrays have no meaning.
    """
    del order, subok
    if casting != "unsafe" and not np.can_cast(self.dtype, dtypes.canonical(dtype), casting):
        raise DTypeError(at_user_line(
            f"astype: {self.dtype.name} does not convert to {dtypes.canonical(dtype).name} by casting={casting!r}. "
            "Leave the option out to convert all the same"))
    result = _converted(self, dtype, **options)
    return result if copy or result.dtype != self.dtype else note_view(result, (self,))


_converted = replay_calls(creation.astype)


def _round(self: Tracer, digits: int | None = None) -> Any:
    """`round(x)` of shape () is a Python int, as of `Array`; of other shapes, and to `digits`, an array."""
    rounded = elementwise.round(self, digits or 0)
    aval = aval_of(self)
    return rounded if digits is not None or aval.shape or aval.dtype.kind == "c" else convert(
        rounded, dtypes.int64, weak=True)


def _contains(self: Any, value: Any) -> bool:
    return builtins.bool(reductions.any(logic.equal.function(self, value)))


def _matrix_transpose(self: Any) -> Any:
    if len(self.shape) < 2:
        raise ShapeError(at_user_line(f"x.mT: at least two axes are needed, the shape is {self.shape}"))
    return shaping.matrix_transpose(self)


def _array_namespace(self: Any, *, api_version: str | None = None) -> ModuleType:
    """Return the module with the functions of the array API standard for this array."""
    del self
    inspection.check_version(api_version)
    return sys.modules["fxgrad.numpy"]


def _to_device(self: Any, device: Any, /, *, stream: Any = None) -> Any:
    """Return the array itself: programs choose their devices, arrays do not."""
    del stream
    inspection.check_device("to_device", device)
    return self


_PROPERTIES: dict[str, Function] = {
    "device": lambda self: inspection.DEVICE,
    "T": replay_calls(shaping.transpose, views=note_view),
    "mT": replay_calls(_matrix_transpose, views=note_view),
    "flat": replay_calls(shaping.ravel, views=note_view),
    "real": lambda self: note_view(elementwise.real.function(self), (self,)),
    "imag": lambda self: note_view(elementwise.imag.function(self), (self,)),
    "at": Updates,
}


def attach_tracer_methods() -> None:
    """Give `Tracer` the operators, methods and properties of arrays."""
    members: dict[str, Any] = {f"__{name}__": function for name, function in UNARY.items()}
    for name, function in BINARY.items():
        members[f"__{name}__"], members[f"__r{name}__"] = operator_pair(name, function)
    members |= {f"__i{name}__": inplace.inplace_operator(symbol, members[f"__{name}__"]) for name,
                symbol in SYMBOLS.items()}
    members |= {f"__{name}__": _comparison(function) for name, function in COMPARISONS.items()}
    members |= {name: property(function) for name, function in _PROPERTIES.items()}
    members |= {name: replay_calls(function, views=note_view if name in VIEWS else None)
                for name, function in METHODS.items()}
    members |= inplace.mutating_methods() | number_methods()
    members |= {
        "__getitem__": replay_calls(indexing.getitem, views=note_item_view), "__iter__": _iterate,
        "__contains__": _contains,
        "__round__": _round,
        "__array_namespace__": _array_namespace, "to_device": _to_device,
        "reshape": replay_calls(_reshape, views=note_view), "transpose": replay_calls(_transpose, views=note_view),
        "block_until_ready": lambda self: self,
        "astype": _astype, "compress": METHODS["compress"],
        **{name: replay_calls(METHODS[name], views=note_real_view) for name in ("conj", "conjugate")},
        "copy": lambda self, order="C": self.__copy__(),
        "sort": inplace.sort_method(members["sort"]),
    }
    for name, member in members.items():
        setattr(Tracer, name, member)
