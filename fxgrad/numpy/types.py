"""Types: limits of dtypes, promotion, kinds of dtypes and of values, and the class of arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import ml_dtypes
import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.operands import as_array_operand, operand
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, FxgradError

iinfo = ml_dtypes.iinfo

_KINDS = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
          "complex floating": "c", "numeric": "iufc"}
_WEAK = (int, float, complex)


def finfo(dtype: Any, /) -> Any:
    """Return the limits of a floating dtype (an array's, or a complex one's parts): `eps`, `max`, `tiny`, ...

    >>> float(finfo("float32").eps)
    1.1920928955078125e-07
    """
    own = dtypes.real_dtype(_dtype(dtype))
    if not dtypes.is_floating(own):
        raise DTypeError(at_user_line(f"finfo: {own.name} is no floating dtype; iinfo is for integers"))
    return ml_dtypes.finfo(own)


def _dtype(value: Any) -> DType:
    """Return the dtype of a dtype, a name of one, or an array."""
    if isinstance(value, np.dtype | type | str):
        return dtypes.canonical(value)
    return aval_of(as_array_operand(value)).dtype


def result_type(*args: Any) -> DType:
    """Return the dtype that arrays, numbers and dtypes promote to; Python numbers are weak.

    >>> result_type(np.float16(1), 2.0)
    dtype('float16')
    """
    if not args:
        raise ArgumentError(at_user_line("result_type: at least one array or dtype is needed"))
    pairs = []
    for value in args:
        if isinstance(value, np.dtype | type | str):  # that of float64 equals `float`, and is not weak
            pairs.append((dtypes.canonical(value), isinstance(value, type) and value in _WEAK))
        else:
            aval = aval_of(operand(value))
            pairs.append((aval.dtype, aval.weak))
    return dtypes.promote(*pairs)[0]


def promote_types(a: Any, b: Any) -> DType:
    """Return the dtype that two dtypes promote to; Python's `int`, `float`, `complex` are weak.

    >>> promote_types("int32", "float16")
    dtype('float16')
    """
    return result_type(*(each if isinstance(each, type) else np.dtype(each) for each in (a, b)))


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Return whether a dtype is another, or of a kind such as `inexact`; bfloat16 is a float, as in jax.

    >>> issubdtype("bfloat16", np.floating), issubdtype("int32", np.inexact)
    (True, False)
    """
    return bool(jax.dtypes.issubdtype(arg1, arg2))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether a dtype is another one, or of a kind.

    Kinds are `"bool"`, `"signed integer"`, `"unsigned integer"`, `"integral"`, `"real floating"`, `"complex floating"`,
    `"numeric"`, or one of several. Raises `ArgumentError` for other names.

    >>> isdtype("float32", ("integral", "real floating"))
    True
    """
    own = np.dtype(dtype)
    for each in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(each, str) and each in _KINDS:
            if dtypes.kind_of(own) in _KINDS[each]:
                return True
            continue
        try:
            other = np.dtype(each)
        except TypeError:
            raise ArgumentError(at_user_line(f"isdtype: kind must be a dtype or one of {', '.join(map(repr, _KINDS))}, "
                                             f"got {each!r}")) from None
        if own == other:
            return True
    return False


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Return whether NumPy converts one dtype to another under a rule (`"safe"`: no value changes).

    >>> can_cast("int32", "float64"), can_cast("float64", "float32")
    (True, False)
    """
    return np.can_cast(_dtype(from_), _dtype(to), casting)  # type: ignore[arg-type]


def iscomplexobj(x: Any) -> bool:
    """Return whether the dtype of an array is complex; `x` may also be a dtype itself, such as `fnp.float32`.

    >>> iscomplexobj([1j]), iscomplexobj(1.0), iscomplexobj(np.complex64)
    (True, False, True)
    """
    return dtypes.is_complex(_dtype(x))


def isrealobj(x: Any) -> bool:
    """Return whether the dtype of an array is not complex.

    >>> isrealobj([1.0])
    True
    """
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """Return whether something is a number: Python's, NumPy's, or an array or traced array without axes.

    >>> isscalar(1.0), isscalar([1.0])
    (True, False)
    """
    if isinstance(element, list | tuple | str):
        return isinstance(element, str)
    try:
        return aval_of(element).shape == ()
    except (FxgradError, TypeError):
        return bool(np.isscalar(element))


def iterable(y: Any) -> bool:
    """Return whether a value can be iterated over: not arrays without axes.

    >>> iterable([1]), iterable(1)
    (True, False)
    """
    if isinstance(y, Tracer | np.ndarray | jax.Array):
        return bool(y.ndim)
    return isinstance(y, Iterable)


class _ArrayMeta(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tracer | np.ndarray | jax.Array)


class ndarray(metaclass=_ArrayMeta):  # noqa: N801  (NumPy's name)
    """The class of all arrays: NumPy's, jax's and traced ones are instances. It makes none itself.

    >>> isinstance(np.ones(2), ndarray)
    True
    """

    def __new__(cls, *_: Any, **__: Any) -> ndarray:  # noqa: PYI034
        raise ArgumentError(at_user_line("ndarray: arrays are made with array, zeros, full, ..."))
