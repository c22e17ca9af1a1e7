"""Conversion of arrays between dtypes: NumPy's kernel and XLA's, which round and saturate alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.dtypes import DType


def converted(x: Any, dtype: DType) -> Any:
    """Return NumPy's array or scalar as `dtype`, rounded once; complex to real drops the imaginary part.

    Floats beyond the range of integers become the nearest integer.
    """
    before, after = dtypes.kind_of(x.dtype), dtypes.kind_of(dtype)
    if before == "c" and after != "c":
        x = x.real if after != "b" else x != 0
        before = "f" if after != "b" else "b"
    if after in "iu" and before == "f":
        return _to_whole(x, dtype)
    if x.dtype.itemsize == 1 or dtype.itemsize == 1:
        return _narrowed(x, dtype)
    return x.astype(dtype, copy=False)


def _to_whole(x: Any, dtype: DType) -> Any:
    """Convert floats to integers, toward zero; out of range to the nearest one and NaNs to 0, as XLA does."""
    limits = dtypes.iinfo(dtype)
    least, greatest = int(limits.min), int(limits.max)
    wide = x if x.dtype.kind == "f" and x.dtype.itemsize > 2 else x.astype(np.float32)
    if not x.size:
        return x.astype(dtype)
    low, high = wide.dtype.type(least - 1.0), wide.dtype.type(greatest + 1.0)
    if np.min(wide) > low and np.max(wide) < high:  # false if there is a NaN
        return wide.astype(dtype)
    above, below = wide >= high, wide < wide.dtype.type(least)
    whole = np.where(above | below | np.isnan(wide), 0, wide).astype(dtype)
    return np.where(above, dtype.type(greatest), np.where(below, dtype.type(least), whole))[()]


def _narrowed(x: Any, dtype: DType) -> Any:
    """Convert to or from dtypes of a byte; NumPy's own conversions between them round twice, or are missing.

    float64 goes through float32, rounded to odd: the last bit records that something was cut off.
    """
    if x.dtype == dtype:
        return x
    if dtypes.kind_of(dtype) == "f":
        if x.dtype.kind == "f" and x.dtype.itemsize == 8:
            # Round to odd: rounding that again gives the result of rounding once.
            near = np.asarray(x.astype(np.float32))
            exact = (near == x) | ~np.isfinite(near)
            bits = near.view(np.int32)  # in signs and magnitudes, one less is nearer to 0
            bits = bits - (np.abs(near.astype(np.float64)) > np.abs(x))
            x = np.where(exact, near, (bits | 1).view(np.float32))
        elif x.dtype.itemsize == 1 and dtypes.is_floating(x.dtype):
            x = x.astype(np.float32)
        if dtypes.bits_of(dtype) == 4:  # no NaN: XLA makes it -0
            x = np.where(np.isnan(x), np.float32(-0.0), x) if dtypes.is_floating(x.dtype) else x.astype(np.float32)
        elif x.dtype.kind == "V":
            x = x.astype(np.float32)
    elif dtypes.is_below_byte(dtype) and dtypes.is_below_byte(x.dtype):
        x = x.astype(np.int8)
    return x.astype(dtype, copy=False)[()]


def converted_by_xla(lax: Any, x: Any, dtype: DType) -> Any:
    """Convert jax values likewise; XLA's conversions of narrow floats to integers are correct through float32."""
    before, after = dtypes.kind_of(x.dtype), dtypes.kind_of(dtype)
    if before == "c" and after != "c":
        x = lax.real(x) if after != "b" else lax.ne(x, lax.full_like(x, 0))
    if x.dtype.itemsize == 1 and before == "f" and after in "iu":
        x = lax.convert_element_type(x, np.float32)
    return lax.convert_element_type(x, dtype)
