"""Finding elements: the positions of those that are not zero, and the elements there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_integer,
    constant_array,
    is_concrete,
    require_concrete,
    shape_of,
)
from fxgrad.engine.frontend.ufuncs import as_bool
from fxgrad.engine.ops import comparison, cumulative
from fxgrad.engine.ops.arithmetic import div, rem, sub
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.indexing import scatter
from fxgrad.engine.ops.joining import stack
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import convert, reduce_sum, reshape
from fxgrad.engine.ops.windows import Windows
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError


def true_places(mask: Any, size: int | None, fill: Any, use: str) -> Any:
    """Return the positions (int32) of the true elements of a vector, cut or filled to `size` if that is given."""
    if size is None or is_concrete(mask):
        places = np.flatnonzero(require_concrete(mask, use)).astype(np.int32)
        if size is None:
            return places
        if is_concrete(fill):
            missing = max(size - places.size, 0)
            return np.concatenate([places[:size], np.full(missing, np.asarray(fill).astype(np.int32))])
    count = shape_of(mask)[0]
    if not size:
        return constant_array((0,), 0, dtypes.int32)
    rank = cumulative.cumsum(convert(mask, dtypes.int32), 0) if count else constant_array((0,), 0, dtypes.int32)
    target = where(mask, sub(rank, scalar_like(1, rank)), size)
    start = constant_array((size,), 0, dtypes.int32)
    found = scatter(start, reshape(target, (count, 1)), iota(dtypes.int32, (count,)), Windows((), (0,), (0,)),
                    mode="fill", promises=())
    missing = comparison.ge(iota(dtypes.int32, (size,)), reduce_sum(convert(mask, dtypes.int32), (0,)))
    return where(missing, convert(as_array_operand(fill), dtypes.int32), found)


def size_of(name: str, size: Any) -> int | None:
    """Return the caller's `size=`; raise `ArgumentError` if it is negative."""
    if size is None:
        return None
    number = as_integer(name, size)
    if number < 0:
        raise ArgumentError(at_user_line(f"{name}: size={number}; a number from 0 on is needed"))
    return number


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> tuple[Any, ...]:
    """Return the positions (int32) of nonzero elements, one array per axis; their values must be known.

    With `size` there are that many positions, and values need not be known: missing positions are `fill_value` (a
    number, or one per axis; 0). Raises `ShapeError` for scalars.

    >>> nonzero([0.0, 3.0, 0.0, 5.0])
    (array([1, 3], dtype=int32),)
    >>> nonzero([0.0, 3.0, 0.0, 5.0], size=3, fill_value=4)
    (array([1, 3, 4], dtype=int32),)
    """
    a = as_array_operand(a)
    shape = shape_of(a)
    if not shape:
        raise ShapeError(at_user_line("nonzero: a scalar has no positions; use x.reshape(1)"))
    if size is None:
        known = require_concrete(a, "np.nonzero, whose result has a size that depends on the values unless size= gives "
                                 "it,")
        return tuple(places.astype(np.int32) for places in np.nonzero(known))
    wanted = size_of("nonzero", size)
    fills = fill_value if isinstance(fill_value, tuple) else (0 if fill_value is None else fill_value,) * len(shape)
    if len(fills) != len(shape):
        raise ShapeError(at_user_line(f"nonzero: fill_value={fill_value!r} for an array with {len(shape)} axes; a "
                                      "number, or one for each axis, is needed"))
    mask = reshape(as_bool(a), (math.prod(shape),))
    flat = true_places(mask, wanted, -1, "np.nonzero")
    missing = comparison.lt(flat, scalar_like(0, flat))
    return tuple(where(missing, convert(as_array_operand(fill), dtypes.int32), part)
                 for fill, part in zip(fills, split_places(flat, shape), strict=True))


def split_places(flat: Any, shape: Shape) -> list[Any]:
    """Return positions in the flattened array as positions along each axis."""
    parts = []
    for extent in reversed(shape):
        by = scalar_like(max(extent, 1), flat)
        parts.append(rem(flat, by))
        flat = div(flat, by)
    return parts[::-1]


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the positions (int32) of nonzero elements in the flattened array; their values must be known.

    `size` and `fill_value` as in `nonzero`.

    >>> flatnonzero([[0, 1], [2, 0]])
    array([1, 2], dtype=int32)
    """
    a = as_bool(as_array_operand(a))
    return true_places(reshape(a, (math.prod(shape_of(a)),)), size_of("flatnonzero", size),
                       0 if fill_value is None else fill_value,
                       "np.flatnonzero, whose result has a size that depends on the values unless size= gives it,")


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the positions (int32) of nonzero elements, one row each; their values must be known.

    `size` and `fill_value` as in `nonzero`.

    >>> argwhere([[0, 1], [2, 0]])
    array([[0, 1],
           [1, 0]], dtype=int32)
    """
    a = as_array_operand(a)
    if size is None:
        known = require_concrete(a, "np.argwhere, whose result has a size that depends on the values unless size= "
                                 "gives it,")
        return np.argwhere(known).astype(np.int32)
    if not shape_of(a):
        return constant_array((size, 0), 0, dtypes.int32)
    places = nonzero(a, size=size, fill_value=fill_value)
    return stack(places, 1)
