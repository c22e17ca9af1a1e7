"""Arrays read between their elements, under the names of jax.scipy.ndimage."""
# ruff: noqa: A002  (the names of arguments are jax's)

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from fxgrad import numpy as fnp
from fxgrad.engine.frontend.operands import as_array_operand, inexact_operands, shape_of
from fxgrad.engine.frontend.value_calls import replay_public as _replay
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError
from fxgrad.numpy.indexing import getitem

__all__ = ["map_coordinates"]

_MODES = ("constant", "nearest", "wrap", "mirror", "reflect")


def map_coordinates(input: Any, coordinates: Sequence[Any], order: int, mode: str = "constant", cval: Any = 0.0) -> Any:
    """Return the values of `input` at `coordinates`, one array for each axis, interpolated between elements.

    `order` is 0 (the nearest element) or 1 (linear). Values outside are, by `mode`, `cval`, the `"nearest"` element, or
    those of the array repeated: `"wrap"`, `"mirror"` or `"reflect"`, reflected about the last element or about its
    edge.

    >>> import numpy as np
    >>> map_coordinates(np.array([0.0, 10.0, 20.0]), [np.array([0.5, 1.0])], order=1)
    array([ 5., 10.])
    """
    array = as_array_operand(input)
    shape = shape_of(array)
    if len(coordinates) != len(shape):
        raise ShapeError(at_user_line(f"map_coordinates: {len(coordinates)} coordinates for an array with {len(shape)} "
                                      "axes; one for each is needed"))
    if order not in (0, 1):
        raise UnsupportedError(at_user_line(f"map_coordinates: order={order} is not supported; 0 and 1 are"))
    if mode not in _MODES:
        raise ArgumentError(at_user_line(f"map_coordinates: mode={mode!r}; it must be one of {', '.join(_MODES)}"))
    given = [inexact_operands(coordinate)[0] for coordinate in coordinates]
    corners = [_corners(coordinate, order) for coordinate in given]
    total: Any = 0.0
    for choice in itertools.product(*corners):
        places, inside = [], True
        for (place, _), size in zip(choice, shape, strict=True):
            within = (place >= 0) & (place < size)
            inside = within & inside if mode == "constant" else True
            places.append(fnp.clip(_wrap_place(place, size, mode), 0, size - 1).astype("int32"))
        value = getitem(array, tuple(places))
        if mode == "constant":
            value = fnp.where(inside, value, fnp.asarray(cval, aval_of(array).dtype))
        total = total + math.prod((weight for _, weight in choice), start=1.0) * value
    dtype = aval_of(array).dtype
    return _round_half_away(total).astype(dtype) if dtype.kind in "iu" else fnp.asarray(total).astype(dtype)


def _round_half_away(x: Any) -> Any:
    return fnp.sign(x) * fnp.floor(fnp.abs(x) + 0.5)


def _corners(coordinate: Any, order: int) -> list[tuple[Any, Any]]:
    """Return the elements around a coordinate along one axis, with their weights."""
    if order == 0:
        away = _round_half_away(coordinate)
        return [(away, 1.0)]
    below = fnp.floor(coordinate)
    part = coordinate - below
    return [(below, 1.0 - part), (below + 1.0, part)]


def _wrap_place(place: Any, size: int, mode: str) -> Any:
    """Return the inside index of an element outside."""
    if mode == "wrap":
        return fnp.remainder(place, size)
    if mode == "mirror":
        if size == 1:
            return place * 0.0
        turn = 2 * (size - 1)
        folded = fnp.remainder(fnp.abs(place), turn)
        return fnp.where(folded < size, folded, turn - folded)
    if mode == "reflect":
        folded = fnp.remainder(place, 2 * size)
        return fnp.where(folded < size, folded, 2 * size - 1 - folded)
    return place


_replay(globals(), "fxgrad.scipy", ("ndimage",))
