"""Creation and retyping of arrays: iota, size, copy, bitcast_convert_type (convert_element_type is in `structural`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval, Shape
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, ArrayKernel, Cost, Primitive, register, total_bytes
from fxgrad.engine.dtypes import DType
from fxgrad.engine.ops.families import check_axes, linear_unary
from fxgrad.engine.ops.structural import broadcast_to, convert, move_axis
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import DTypeError, ShapeError

copy_p = linear_unary(
    "copy", abstract=lambda x: [x], numpy=lambda x: np.array(x), xla=lambda lax, x: lax.copy_p.bind(x),
    transpose=lambda cotangent, aval: cotangent,
    batch=lambda size, values, axes: (bind(copy_p, *values), axes))


def copy(x: Any) -> Any:
    """Return `x` in memory of its own."""
    return bind(copy_p, x)[0]


def _bitcast_abstract(x: Aval, *, new_dtype: DType) -> list[Aval]:
    if x.dtype != new_dtype and (x.dtype.kind in "bc" or new_dtype.kind in "bc"):
        raise DTypeError(f"bitcast_convert_type: {x.dtype.name} to {new_dtype.name}; bool and complex dtypes have no "
                         "bits in common with others. Use x.astype(...) to convert values")
    old, new = dtypes.bits_of(x.dtype), dtypes.bits_of(new_dtype)
    if old >= new:
        return [Aval(x.shape if old == new else (*x.shape, old // new), new_dtype)]
    if not x.shape or x.shape[-1] != new // old:
        raise ShapeError(f"bitcast_convert_type: {x.dtype.name} to {new_dtype.name} joins {new // old} elements along "
                         f"the last axis into one, so that axis must have this size; the shape is {x.shape}")
    return [Aval(x.shape[:-1], new_dtype)]


def _bitcast_numpy(x: Any, *, new_dtype: DType) -> Any:
    old, new = dtypes.bits_of(x.dtype), dtypes.bits_of(new_dtype)
    if old == new and old >= 8:
        return x.view(new_dtype)
    if old < 8 or new < 8:
        # Elements of less than 8 bits are the lowest ones of a byte; the first of several is the lowest.
        octets = np.ascontiguousarray(x.reshape(*x.shape, 1)).view(np.uint8)
        bits = np.unpackbits(octets, axis=-1, bitorder="little")[..., :old]
        shape = x.shape[:-1] if old < new else (*x.shape, old // new) if old > new else x.shape
        return np.packbits(bits.reshape(*shape, new), axis=-1, bitorder="little").view(new_dtype)[..., 0]
    if old > new:
        return np.ascontiguousarray(x.reshape(*x.shape, 1)).view(new_dtype)
    return np.ascontiguousarray(x).view(new_dtype).reshape(x.shape[:-1])


def _bitcast_batch(size: int, values: list[Any], axes: list[int], *, new_dtype: DType) -> tuple[list[Any], list[int]]:
    return bind(bitcast_convert_type_p, move_axis(values[0], axes[0], 0), new_dtype=new_dtype), [0]


bitcast_convert_type_p = register(Primitive(
    name="bitcast_convert_type", abstract=_bitcast_abstract, numpy=ArrayKernel(_bitcast_numpy),
    xla=lambda lax, x, *, new_dtype: [lax.bitcast_convert_type(x, new_dtype)],
    jvp=NO_TANGENT, transpose=NOT_LINEAR, batch=_bitcast_batch,
    cost=lambda x, *, new_dtype: Cost(0, 2 * x.nbytes)))


def bitcast_convert_type(x: Any, new_dtype: DType) -> Any:
    """Return the bits of `x` read as another dtype; a narrower one adds a last axis, a wider one consumes the last."""
    return x if aval_of(x).dtype == new_dtype else bind(bitcast_convert_type_p, x, new_dtype=new_dtype)[0]


def _iota_abstract(*, dtype: DType, shape: Shape, dimension: int) -> list[Aval]:
    if dtype.kind == "b" or dtype.name not in dtypes.SUPPORTED:
        raise DTypeError(f"iota: not defined for {dtype.name}; it takes numeric dtypes")
    result = Aval(shape, dtype)
    check_axes("iota", result, (dimension,))
    return [result]


def _iota_numpy(*, dtype: DType, shape: Shape, dimension: int) -> Any:
    counted = np.arange(shape[dimension]).astype(dtype)
    return np.broadcast_to(counted.reshape(-1, *(1,) * (len(shape) - dimension - 1)), shape)


iota_p = register(Primitive(
    name="iota", abstract=_iota_abstract, numpy=ArrayKernel(_iota_numpy),
    xla=lambda lax, *, dtype, shape, dimension: [lax.broadcasted_iota(dtype, shape, dimension)],
    jvp=NO_TANGENT, transpose=NOT_LINEAR,
    batch=lambda size, values, axes, *, dtype, shape, dimension: (
        [broadcast_to(iota(dtype, shape, dimension), (size, *shape))], [0]),
    cost=lambda **params: Cost(0, total_bytes([], _iota_abstract(**params)))))


def iota(dtype: DType, shape: Sequence[int], dimension: int = 0) -> Any:
    """Return an array of `shape` that counts 0, 1, 2, ... along `dimension`."""
    return bind(iota_p, dtype=dtype, shape=tuple(shape), dimension=dimension)[0]


size_p = register(Primitive(
    name="size", abstract=lambda *, size: [_SIZE], numpy=ArrayKernel(lambda *, size: np.int64(size)),
    xla=lambda lax, *, size: [lax.convert_element_type(size, dtypes.int64)],
    jvp=NO_TANGENT, transpose=NOT_LINEAR,
    batch=lambda count, values, axes, *, size: (bind(size_p, size=size), [None]),
    cost=lambda *, size: Cost(0, 0)))
"""The size of an axis, a symbolic dimension, as a value."""

_SIZE = Aval((), dtypes.int64, weak=True)


def size_in(size: Any, dtype: DType, weak: bool = False) -> Any:
    """Return a symbolic size as a value of this dtype."""
    return convert(bind(size_p, size=size)[0], dtype, weak)
