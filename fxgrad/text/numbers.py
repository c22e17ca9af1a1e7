"""Numbers as read, and arrays of them: exact, or an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import DType
from fxgrad.text.values import bits_dtype, literal_kind


class NanBits:
    """A NaN given by its bits."""

    __slots__ = ("bits",)

    def __init__(self, bits: int) -> None:
        self.bits = bits


Real = int | float | NanBits
Number = Real | tuple[float | NanBits, float | NanBits]
"""A number in a text: a bool, an integer, a floating number, or the two parts of a complex number."""


class WrongNumberError(ValueError):
    """A number that the dtype cannot represent; the reader adds the place."""


def convert_values(values: Sequence[Number], dtype: DType) -> np.ndarray[Any, Any]:
    """Return `values` as an array of one axis; raise `WrongNumberError` for a number that the dtype lacks."""
    kind = literal_kind(dtype)
    if kind == "c":
        result = np.empty(len(values), dtype)
        parts = [value if isinstance(value, tuple) else (value, 0.0) for value in values]
        real = dtypes.real_dtype(dtype)
        result.real = convert_values([part[0] for part in parts], real)
        result.imag = convert_values([part[1] for part in parts], real)
        return result
    for value in values:
        if isinstance(value, tuple) or isinstance(value, bool) != (kind == "b") or \
                (kind == "i" and not isinstance(value, int)):
            raise WrongNumberError(f"{_value_text(value)} is not a number of dtype {dtype.name}")
    return _convert_floats(values, dtype) if kind == "f" else _convert_integers(values, dtype)


def _convert_integers(values: Sequence[Any], dtype: DType) -> np.ndarray[Any, Any]:
    if dtypes.kind_of(dtype) in "iu":
        limits = dtypes.iinfo(dtype)
        for value in values:
            if not limits.min <= value <= limits.max:
                raise WrongNumberError(f"{value} is out of the range of {dtype.name}")
    return np.array(values, dtype)


def _convert_floats(values: Sequence[Any], dtype: DType) -> np.ndarray[Any, Any]:
    try:
        wide = np.array([0.0 if isinstance(value, NanBits) else value for value in values], dtypes.float64)
    except OverflowError:
        raise WrongNumberError(f"a number is out of the range of {dtype.name}") from None
    with np.errstate(all="ignore"):
        result = wide.astype(dtype)
        beyond = ~np.isfinite(result.astype(dtypes.float64)) | (np.abs(wide) >= 2 * float(dtypes.finfo(dtype).max))
    lost = np.flatnonzero(beyond & np.isfinite(wide))
    if len(lost):
        raise WrongNumberError(f"{_value_text(values[lost[0]])} is out of the range of {dtype.name}")
    for index, value in enumerate(values):
        if isinstance(value, NanBits):
            result[index] = _nan(value.bits, dtype)
    return result


def _nan(bits: int, dtype: DType) -> Any:
    unsigned = bits_dtype(dtype)
    if bits <= np.iinfo(unsigned).max:
        value = np.array([bits], unsigned).view(dtype)[0]
        with np.errstate(invalid="ignore"):  # a signalling NaN is reported as invalid
            if np.isnan(value):
                return value
    raise WrongNumberError(f"0x{bits:x} are not the bits of a NaN of dtype {dtype.name}")


def _value_text(value: Any) -> str:
    if isinstance(value, NanBits):
        return f"nan(0x{value.bits:x})"
    return f"complex({', '.join(map(_value_text, value))})" if isinstance(value, tuple) else repr(value)
