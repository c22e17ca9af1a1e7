"""Arrays of Python's numbers: which values consist of them alone, their width, and which fit an integer dtype."""

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
    """Return whether a caller's value consists of Python's numbers alone, in lists and ranges or not."""
    if isinstance(values, list | tuple):
        return all(map(are_python_numbers, values))
    return type(values) in PYTHON_SCALARS or type(values) is range


def array_of_numbers(array: Any, dtype: DType | None) -> Any:
    """Return NumPy's array of Python's numbers, in `dtype` or else in the default width."""
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
    refuse_imaginary(array.dtype, dtype)
    return array.astype(dtype)


def refuse_imaginary(given: DType, dtype: DType) -> None:
    """Raise `DTypeError` for Python's complex numbers in a real dtype."""
    if dtypes.is_complex(given) and not dtypes.is_complex(dtype):
        raise DTypeError(at_user_line(f"complex numbers of Python's are none of {dtype.name}; take the real parts, or "
                                      "give a complex dtype"))


def _fits(floats: Any, dtype: DType) -> Any:
    """Return which floats are in the range of an integer dtype, whose limits float64 does not all represent."""
    limits = dtypes.iinfo(dtype)
    return (floats > float(limits.min) - 1) & (floats < float(limits.max) + 1) | (floats == float(limits.min))


def _beyond(numbers: Any, least: int, greatest: int) -> str:
    integers = (each for each in numbers.flat if isinstance(each, int | np.integer))
    return f"the integer {next(each for each in integers if not least <= each <= greatest)}"


def default_width(array: Any) -> Any:
    """Return numbers in the default width of arrays of them."""
    kind = array.dtype.kind
    if kind == "f":
        return array.astype(default_float_dtype())
    if kind == "c":
        return array.astype(dtypes.complex_dtype(default_float_dtype()))
    narrow = array.astype(np.int32) if kind in "iu" else array
    return narrow if kind not in "iu" or np.array_equal(narrow, array) else array


def array_of_traced_numbers(array: Any) -> Any:
    """Return an array of traced Python numbers, no longer weak, in the default width."""
    aval = aval_of(array)
    return convert(array, default_width(np.empty(0, aval.dtype)).dtype) if aval.weak else array
