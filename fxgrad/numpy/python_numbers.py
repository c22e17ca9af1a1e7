"""Python's numbers as arrays: what consists of them alone, how wide they are, and which an integer dtype holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.operands import PYTHON_SCALARS, default_float_dtype
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import DTypeError


def are_python_numbers(values: Any) -> bool:
    """Whether what a caller gave consists of Python's numbers alone, in lists or not."""
    if isinstance(values, list | tuple):
        return all(map(are_python_numbers, values))
    return type(values) in PYTHON_SCALARS


def array_of_numbers(array: Any, dtype: DType | None) -> Any:
    """NumPy's array of Python's numbers, of `dtype` or else as wide as they are here."""
    if dtype is None:
        if array.dtype.kind == "O":
            number = _beyond(array, np.iinfo(np.int64).min, np.iinfo(np.uint64).max)
            raise OverflowError(at_user_line(f"{number} has more than 64 bits. Write it as a float, for example "
                                             "2.0**70, or give dtype='float64'"))
        return default_width(array)
    if array.dtype.kind in "iuO" and dtypes.is_integer(dtype) and array.size:
        limits = dtypes.iinfo(dtype)
        if array.min() < limits.min or array.max() > limits.max:
            number = _beyond(array, limits.min, limits.max)
            raise OverflowError(at_user_line(f"{number} is out of bounds for {dtype.name}, which holds {limits.min} to "
                                             f"{limits.max}. Give a wider dtype"))
    if array.dtype.kind == "f" and dtypes.is_integer(dtype) and not np.all(fits := _fits(array, dtype)):
        raise OverflowError(at_user_line(f"the float {array[~fits].flat[0]} is no number of {dtype.name}; give "
                                         "a dtype that holds it"))
    if array.dtype.kind == "c" and not dtypes.is_complex(dtype):
        raise DTypeError(at_user_line(f"complex numbers of Python's are none of {dtype.name}; take the real parts, or "
                                      "give a complex dtype"))
    return array.astype(dtype)


def _fits(floats: Any, dtype: DType) -> Any:
    """Which floats are in the range of an integer dtype, whose ends float64 does not all have."""
    limits = dtypes.iinfo(dtype)
    return (floats > float(limits.min) - 1) & (floats < float(limits.max) + 1) | (floats == float(limits.min))


def _beyond(numbers: Any, least: int, greatest: int) -> str:
    integers = (each for each in numbers.flat if isinstance(each, int | np.integer))
    return f"the integer {next(each for each in integers if not least <= each <= greatest)}"


def default_width(array: Any) -> Any:
    """Numbers as wide as arrays of them are by default."""
    kind = array.dtype.kind
    if kind == "f":
        return array.astype(default_float_dtype())
    if kind == "c":
        return array.astype(dtypes.complex_dtype(default_float_dtype()))
    narrow = array.astype(np.int32) if kind in "iu" else array
    return narrow if kind not in "iu" or np.array_equal(narrow, array) else array


def array_of_traced_numbers(array: Any) -> Any:
    """An array made of traced numbers of Python's, no longer weak and as wide as an array of them is by default."""
    aval = aval_of(array)
    return convert(array, default_width(np.empty(0, aval.dtype)).dtype) if aval.weak else array
