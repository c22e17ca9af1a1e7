"""Reinterpret the bits of arrays: `view` and `byteswap`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import as_array_operand, shape_of
from fxgrad.engine.ops.creation import bitcast_convert_type
from fxgrad.engine.ops.joining import stack
from fxgrad.engine.ops.parts import complex as complex_
from fxgrad.engine.ops.parts import imag, real
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import convert, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, ShapeError
from fxgrad.numpy.shaping import flip


def view(x: Any, dtype: Any = None) -> Any:
    """Return the bytes of the last axis read as another dtype, like `ndarray.view`; None leaves the array unchanged.

    Raises `ShapeError` if the bytes of the last axis are no whole number of elements, `DTypeError` for bool.

    >>> view(np.array([1.0, 2.0], np.float32), "int32")
    array([1065353216, 1073741824], dtype=int32)
    """
    x = as_array_operand(x)
    if dtype is None:
        return x
    if isinstance(dtype, int | tuple):
        raise ArgumentError(at_user_line(f"view: {dtype!r} is no dtype; views of other shapes, which PyTorch calls so, "
                                         f"are x.reshape({dtype!r})"))
    given, wanted = aval_of(x).dtype, dtypes.canonical(dtype)
    if given == wanted:
        return x
    if dtypes.bool_ in (given, wanted):
        if given == dtypes.bool_ and wanted.itemsize == 1:
            return convert(x, wanted)
        raise DTypeError(at_user_line(f"view: an array of {given.name} cannot be read as {wanted.name}. Write "
                                      "x.astype(...) to convert the values"))
    if dtypes.bits_of(given) < 8 or dtypes.bits_of(wanted) < 8:
        raise DTypeError(at_user_line(f"view: {given.name} as {wanted.name}: elements of less than 8 bits lie "
                                      "otherwise in NumPy's arrays than in XLA's. Write "
                                      "fxgrad.lax.bitcast_convert_type(x, dtype)"))
    if dtypes.is_complex(given):
        return view(_last_joined(stack([real(x), imag(x)], len(shape_of(x)))), wanted)
    if dtypes.is_complex(wanted):
        part = np.dtype(f"f{wanted.itemsize // 2}")
        pairs = _last_split("view", view(x, part), 2)
        return complex_(*(reshape(slice_in_dim(pairs, at, at + 1, len(shape_of(pairs)) - 1), shape_of(pairs)[:-1])
                          for at in (0, 1)))
    if wanted.itemsize < given.itemsize:
        return _last_joined(bitcast_convert_type(x, wanted))
    if wanted.itemsize > given.itemsize:
        x = _last_split("view", x, wanted.itemsize // given.itemsize)
    return bitcast_convert_type(x, wanted)


def byteswap(x: Any, inplace: bool = False) -> Any:
    """Return the array with the bytes of each element reversed.

    >>> byteswap(np.array([1], np.int16))
    array([256], dtype=int16)
    """
    if inplace:
        raise DTypeError(at_user_line("byteswap: arrays here are not changed; write x = x.byteswap()"))
    x = as_array_operand(x)
    dtype, shape = aval_of(x).dtype, shape_of(x)
    if dtype.itemsize == 1:
        return x
    parts = 2 if dtypes.is_complex(dtype) else 1
    octets = reshape(view(reshape(x, (*shape, 1)), np.uint8), (*shape, parts, dtype.itemsize // parts))
    return reshape(view(reshape(flip(octets, -1), (*shape, dtype.itemsize)), dtype), shape)


def _last_joined(x: Any) -> Any:
    shape = shape_of(x)
    if len(shape) < 2:
        raise ShapeError(at_user_line("view: an array of shape () has no last axis for elements of another size; write "
                                      "x.reshape(1).view(...)"))
    return reshape(x, (*shape[:-2], shape[-2] * shape[-1]))


def _last_split(name: str, x: Any, count: int) -> Any:
    shape = shape_of(x)
    if not shape or shape[-1] % count:
        raise ShapeError(at_user_line(f"{name}: a last axis of size {shape[-1] if shape else 1} holds no whole number "
                                      f"of elements {count} times as wide"))
    return reshape(x, (*shape[:-1], shape[-1] // count, count))
