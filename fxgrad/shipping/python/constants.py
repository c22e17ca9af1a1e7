"""Numbers, arrays, dtypes and containers as Python expressions that give back the same bits."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.extend import DType, Integer
from fxgrad.text.values import bits_dtype, float_text, is_uniform, literal_kind

WRITTEN_OUT = 1000
"""Elements up to which an array is written as numbers; longer ones are written as their bytes."""
Root = Callable[[str], str]
"""Gives the name of a package, and notes that it is needed."""


def value_text(value: Any, inner: Callable[[Any], str], root: Root) -> str | None:
    """Return an expression for a value; None if it has none. `inner` returns those of contained values."""
    kind = type(value)
    if value is None or value is Ellipsis or kind in (bool, int, str, bytes):
        return repr(value)
    if kind in (float, complex):
        return exact_number_text(np.asarray(value)[()], root)
    if isinstance(value, np.dtype):
        return dtype_expression(value, root)
    if isinstance(value, np.generic | Integer):
        return scalar_text(np.asarray(value)[()], root)
    if isinstance(value, np.ndarray):
        return array_text(value, root)
    if isinstance(value, enum.Enum):
        return f"{inner(kind)}.{value.name}"
    if kind is slice:
        return f"slice({inner(value.start)}, {inner(value.stop)}, {inner(value.step)})"
    if kind is dict:
        return "{" + ", ".join(f"{inner(key)}: {inner(item)}" for key, item in value.items()) + "}"
    if kind is tuple:
        return f"({', '.join(map(inner, value))}{',' * (len(value) == 1)})"
    if kind is list:
        return f"[{', '.join(map(inner, value))}]"
    if kind in (set, frozenset):
        return f"{kind.__name__}([{', '.join(map(inner, value))}])"
    return None


def exact_number_text(value: Any, root: Root) -> str:
    """Return a floating or complex number, exactly, as a Python number."""
    if value.dtype.kind == "c":
        return f"complex({exact_number_text(value.real, root)}, {exact_number_text(value.imag, root)})"
    number = float(value)
    if math.isfinite(number):
        return float_text(value)
    return f"{root('numpy')}.nan" if math.isnan(number) else f"{'-' * (number < 0)}{root('numpy')}.inf"


def is_restored_by_python(value: Any) -> bool:
    """Return whether Python's number of the same value restores a number to the bit."""
    kind = literal_kind(value.dtype)
    if kind == "c":
        return is_restored_by_python(value.real) and is_restored_by_python(value.imag)
    if kind != "f" or not np.isnan(value):
        return True
    bits = bits_dtype(value.dtype)
    return bool(np.asarray(value).view(bits) == np.asarray(np.nan).astype(value.dtype).view(bits))


def plain_text(value: Any, root: Root) -> str | None:
    """Return a NumPy scalar as a Python number, which takes the dtype of its neighbours; None if that loses bits."""
    dtype = value.dtype
    if literal_kind(dtype) == "i":
        return repr(int(value))
    if dtype.kind in "fc" and is_restored_by_python(value):
        return exact_number_text(value, root)
    return None


def scalar_text(value: Any, root: Root) -> str:
    """Return a scalar of NumPy's: `np.float32(0.1)`."""
    dtype = value.dtype
    if dtype.kind == "b":
        return f"{root('numpy')}.bool({bool(value)})"
    if literal_kind(dtype) == "i":
        return f"{scalar_class_text(dtype, root)}({int(value)})"
    if dtype.names is None and is_restored_by_python(value):
        number = exact_number_text(np.float64(value) if dtype.kind == "V" or dtype.itemsize == 2 else value, root)
        return f"{scalar_class_text(dtype, root)}({number})"
    return f"{root('numpy')}.frombuffer({value.tobytes()!r}, {dtype_expression(dtype, root)})[0]"


def scalar_class_text(dtype: DType, root: Root) -> str:
    """Return the class of scalars of a dtype: `np.float32`."""
    package = dtype.type.__module__.split(".")[0]
    return f"{root(package)}.{dtype.type.__name__}"


def dtype_expression(dtype: DType, root: Root) -> str:
    """Return a dtype: `np.dtype(np.float32)`."""
    if dtype.names is not None or dtype.type is np.void:
        return f"{root('numpy')}.dtype({dtype.descr!r})"
    return f"{root('numpy')}.dtype({scalar_class_text(dtype, root)})"


def array_text(array: np.ndarray[Any, Any], root: Root) -> str:
    """Return an array: its numbers, one number if all are equal, or its bytes if there are many."""
    if array.flags.f_contiguous and not array.flags.c_contiguous:  # sums depend on the order in memory
        return f"{root('numpy')}.asfortranarray({array_text(np.ascontiguousarray(array), root)})"
    numpy, dtype = root("numpy"), array.dtype
    kind = "V" if dtype.names is not None else literal_kind(dtype)
    if kind != "V" and array.size > 1 and is_uniform(array):
        return f"{numpy}.full({array.shape}, {scalar_text(array.reshape(-1)[0], root)})"
    if kind != "V" and array.size <= WRITTEN_OUT and all(map(is_restored_by_python, array.reshape(-1))):
        return f"{numpy}.array({_nested_text(array, root)}, {scalar_class_text(dtype, root)}).reshape({array.shape})" \
            if 0 in array.shape else f"{numpy}.array({_nested_text(array, root)}, {scalar_class_text(dtype, root)})"
    data = np.ascontiguousarray(array).tobytes().hex()
    return (f"{numpy}.frombuffer(bytes.fromhex({data!r}), {dtype_expression(dtype, root)})"
            f".reshape({array.shape}).copy()")


def _nested_text(array: Any, root: Root) -> str:
    if array.shape:
        return f"[{', '.join(_nested_text(row, root) for row in array)}]"
    value = array[()]
    if value.dtype.kind == "b":
        return str(bool(value))
    return plain_text(value if value.dtype.kind in "iufc" else np.float64(value), root) or exact_number_text(value,
                                                                                                             root)
