"""Coordinates: grids of indices, positions of triangles and diagonals, flat positions and back, and `r_` and `c_`."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_dtype,
    as_integer,
    as_new_shape,
    as_result,
    as_shape,
    require_concrete,
    shape_of,
)
from fxgrad.engine.ops.structural import convert, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, ShapeError
from fxgrad.numpy.arithmetic import add, clip, floor_divide, maximum, multiply, remainder, subtract
from fxgrad.numpy.creation import arange, as_common_arrays, asarray, meshgrid, ones, zeros
from fxgrad.numpy.finding import nonzero, split_places
from fxgrad.numpy.indexing import getitem
from fxgrad.numpy.joining import concatenate, stack
from fxgrad.numpy.logic import less, where
from fxgrad.numpy.positions import check_in_range
from fxgrad.numpy.python_numbers import are_python_numbers, array_of_traced_numbers
from fxgrad.numpy.shaping import atleast_1d, moveaxis
from fxgrad.numpy.spaced import linspace


def ix_(*args: Any) -> tuple[Any, ...]:
    """Return vectors of positions (or bools) shaped so that together they index a grid: `x[ix_([0, 2], [1])]`.

    >>> [places.shape for places in ix_([0, 2], [1])]
    [(2, 1), (1, 1)]
    """
    result = []
    for at, each in enumerate(args):
        array = asarray(each)
        if len(shape_of(array)) != 1:
            raise ShapeError(at_user_line(f"ix_: vectors are needed, the shape is {shape_of(array)}"))
        if not shape_of(array)[0]:
            array = as_dtype(array, np.int32)
        if aval_of(array).dtype == dtypes.bool_:
            array, = nonzero(array)
        result.append(reshape(array, (*(1,) * at, shape_of(array)[0], *(1,) * (len(args) - at - 1))))
    return tuple(result)


def indices(dimensions: Sequence[int], dtype: Any = None, sparse: bool = False) -> Any:
    """Return the positions of all elements of an array along each axis: stacked, or with `sparse` to broadcast.

    >>> indices((2, 3)).shape
    (2, 2, 3)
    """
    sizes = as_new_shape("indices", dimensions)
    wanted = dtypes.int32 if dtype is None else dtypes.canonical(dtype)
    parts = [np.arange(size).astype(wanted).reshape([-1 if at == place else 1 for place in range(len(sizes))])
             for at, size in enumerate(sizes)]
    if sparse:
        return tuple(parts)
    return np.stack([np.broadcast_to(part, sizes) for part in parts]) if parts else np.zeros(0, wanted)


# --- diagonals and triangles --------------------------------------------------------------------------------------


def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    """Return the positions of the main diagonal of an array with `ndim` axes of size `n`.

    >>> diag_indices(2)
    (array([0, 1], dtype=int32), array([0, 1], dtype=int32))
    """
    size, rank = as_integer("diag_indices", n), as_integer("diag_indices", ndim)
    if size < 0 or rank < 0:
        raise ArgumentError(at_user_line(f"diag_indices: n={size} and ndim={rank}; numbers from 0 on are needed"))
    return (np.arange(size, dtype=np.int32),) * rank


def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """Return the positions of the main diagonal of an array, whose axes have one size. Raises `ShapeError` for others.

    >>> diag_indices_from([[1, 2], [3, 4]])
    (array([0, 1], dtype=int32), array([0, 1], dtype=int32))
    """
    shape = shape_of(as_array_operand(arr))
    if len(shape) < 2 or len(set(shape)) != 1:
        raise ShapeError(at_user_line(f"diag_indices_from: an array of shape {shape}; at least 2 axes, all of one "
                                      "size, are needed"))
    return diag_indices(shape[0], len(shape))


def mask_indices(n: int, mask_func: Callable[..., Any], k: Any = 0, *, size: int | None = None) -> tuple[Any, Any]:
    """Return the positions of the elements of an n by n matrix that `mask_func(matrix, k)` leaves nonzero.

    `size` as in `nonzero`.

    >>> mask_indices(2, np.triu)
    (array([0, 0, 1], dtype=int32), array([0, 1, 1], dtype=int32))
    """
    rows, columns = nonzero(mask_func(ones((n, n), np.int32), k), size=size)
    return rows, columns


def _triangle(name: str, n: int, m: int | None, k: int, lower: bool) -> tuple[Any, Any]:
    height, width, diagonal = (as_integer(name, number) for number in (n, n if m is None else m, k))
    below = np.tri(height, width, diagonal - (not lower), bool)
    rows, columns = np.nonzero(below if lower else ~below)
    return rows.astype(np.int32), columns.astype(np.int32)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Return the positions on and below the `k`-th diagonal of an n by m matrix (n by n).

    >>> tril_indices(2)
    (array([0, 1, 1], dtype=int32), array([0, 0, 1], dtype=int32))
    """
    return _triangle("tril_indices", n, m, k, lower=True)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Return the positions on and above the `k`-th diagonal of an n by m matrix (n by n).

    >>> triu_indices(2)
    (array([0, 0, 1], dtype=int32), array([0, 1, 1], dtype=int32))
    """
    return _triangle("triu_indices", n, m, k, lower=False)


def _matrix_shape(name: str, arr: Any) -> tuple[int, ...]:
    shape = shape_of(as_array_operand(arr))
    if len(shape) != 2:
        raise ShapeError(at_user_line(f"{name}: a matrix is needed, the shape is {shape}"))
    return shape


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """Return the positions on and below the `k`-th diagonal of a matrix.

    >>> tril_indices_from([[1, 2], [3, 4]])
    (array([0, 1, 1], dtype=int32), array([0, 0, 1], dtype=int32))
    """
    rows, columns = _matrix_shape("tril_indices_from", arr)
    return tril_indices(rows, k, columns)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """Return the positions on and above the `k`-th diagonal of a matrix.

    >>> triu_indices_from([[1, 2], [3, 4]])
    (array([0, 0, 1], dtype=int32), array([0, 1, 1], dtype=int32))
    """
    rows, columns = _matrix_shape("triu_indices_from", arr)
    return triu_indices(rows, k, columns)


# --- flat positions -----------------------------------------------------------------------------------------------


def ravel_multi_index(multi_index: Sequence[Any], dims: Sequence[int], mode: str = "raise", order: str = "C",
                      *, dtype: Any = None) -> Any:
    """Return positions along each axis as positions in the flattened array (with `order="F"`, flattened columns first).

    Positions out of range are an error, which needs known values; by `mode` they are moved into range: `"clip"`,
    `"wrap"`. `dtype` is the integer dtype of the result.

    >>> int(ravel_multi_index((1, 2), (2, 3)))
    5
    """
    sizes = as_shape(dims)
    if len(multi_index) != len(sizes):
        raise ShapeError(at_user_line(f"ravel_multi_index: {len(multi_index)} arrays for {len(sizes)} axes"))
    if mode not in ("raise", "clip", "wrap"):
        raise ArgumentError(at_user_line(f"ravel_multi_index: mode must be 'raise', 'clip' or 'wrap', got {mode!r}"))
    flat: Any = _wide_enough("ravel_multi_index", np.int32(0), sizes)
    places = range(len(sizes))[::-1] if _is_columns_first("ravel_multi_index", order) else range(len(sizes))
    for at in places:
        held = _hold_in_range("ravel_multi_index", multi_index[at], sizes[at], at, mode)
        # Beside signed integers those of uint64 would become floats.
        held = convert(held, dtypes.int64) if aval_of(held).dtype == np.uint64 else held
        flat = add(multiply(flat, sizes[at]), held)
    return flat if dtype is None else as_dtype(flat, dtype)


def _wide_enough(name: str, places: Any, sizes: Sequence[int]) -> Any:
    """Return flat positions in a dtype that holds those of all elements of an array with axes of these sizes."""
    least, dtype = math.prod(sizes) - 1, aval_of(places).dtype
    if not isinstance(least, int):
        return places
    if least > np.iinfo(np.int64).max:
        raise ShapeError(at_user_line(f"{name}: an array of shape {tuple(sizes)} has more elements than int64 counts"))
    wide = next(each for each in (dtype, dtypes.int32, dtypes.int64) if least <= np.iinfo(each).max)
    return places if wide == dtype else convert(places, wide)


def _is_columns_first(name: str, order: str) -> bool:
    if order not in ("C", "F"):
        raise ArgumentError(at_user_line(f"{name}: order must be 'C' or 'F', got {order!r}"))
    return order == "F"


def _hold_in_range(name: str, positions: Any, extent: int, axis: int, mode: str) -> Any:
    positions = asarray(positions)
    if dtypes.kind_of(aval_of(positions).dtype) not in "iu":
        raise DTypeError(at_user_line(f"{name}: positions must be integers, got {aval_of(positions).dtype.name}"))
    if mode == "clip":
        return clip(positions, 0, extent - 1)
    if mode == "wrap":
        return remainder(positions, extent)
    known = require_concrete(positions, f"{name} with mode='raise', for which you can write 'clip' or 'wrap',")
    check_in_range(name, known, extent, axis)
    if known.size and known.min() < 0:
        check_in_range(name, known + 2 * extent, extent, axis)
    return positions


def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """Return positions in the flattened array as positions along each axis, clipped to the array.

    Negative positions count from the end. The sizes in `shape` may be traced. With `order="F"` the array is flattened
    columns first.

    >>> [int(place) for place in unravel_index(5, (2, 3))]
    [1, 2]
    """
    places = array_of_traced_numbers(asarray(indices))
    if dtypes.kind_of(aval_of(places).dtype) not in "iu":
        raise DTypeError(at_user_line(f"unravel_index: positions must be integers, got {aval_of(places).dtype.name}"))
    entries = shape
    if type(shape) is Tracer and shape.ndim == 1:
        entries = [getitem(shape, at) for at in range(shape.shape[0])]
    is_traced = isinstance(entries, list | tuple) and any(type(entry) is Tracer for entry in entries)
    sizes = tuple(convert(entry, aval_of(places).dtype) for entry in entries) if is_traced else as_shape(shape)
    if _is_columns_first("unravel_index", order):
        return unravel_index(places, sizes[::-1])[::-1]
    total = functools.reduce(operator.mul, sizes, 1)
    if not is_traced:
        places = _wide_enough("unravel_index", places, sizes)
    if dtypes.kind_of(aval_of(places).dtype) == "i":
        places = where(less(places, 0), add(places, total), places)
    if not isinstance(total, int):
        places = clip(places, 0, maximum(subtract(total, 1), 0))
        found = []
        for size in reversed(sizes):
            found.append(remainder(places, size))
            places = floor_divide(places, size)
        return tuple(found[::-1])
    return tuple(split_places(clip(places, 0, max(total - 1, 0)), sizes))


# --- written as an index ------------------------------------------------------------------------------------------


class _Grid:
    """Coordinates of a grid, written as slices: `start:stop:step`, or `start:stop:5j` for 5 points with both ends.

    >>> mgrid[0:2, 0:3].shape
    (2, 2, 3)
    """

    def __init__(self, name: str, sparse: bool) -> None:
        self._name, self._sparse = name, sparse

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return as_result(_axis_of_grid(key))
        axes = as_common_arrays([*map(_numbers_of, key)]) if key else []
        grids = meshgrid(*axes, indexing="ij", sparse=self._sparse)
        return grids if self._sparse else as_result(stack(grids) if grids else zeros(0, np.int32))

    def __repr__(self) -> str:
        return f"<fxgrad {self._name}>"


def _axis_of_grid(key: slice) -> Any:
    start, stop, step = key.start or 0, key.stop, 1 if key.step is None else key.step
    if isinstance(step, complex):
        return linspace(start, stop, int(abs(step)))
    return arange(start, stop, step)


def _numbers_of(key: slice) -> Any:
    """Return the numbers of a slice; Python floats in a list, whose dtype gives way to the arrays it is joined with."""
    if are_python_numbers([bound for bound in (key.start, key.stop, key.step) if bound is not None]):
        numbers = np.mgrid[key]
        if numbers.dtype.kind == "f":
            return numbers.tolist()
    return _axis_of_grid(key)


mgrid, ogrid = _Grid("mgrid", sparse=False), _Grid("ogrid", sparse=True)


class _Joined:
    """Arrays, numbers and slices (as in `mgrid`) joined along an axis, written as an index.

    A string in front holds up to three numbers: the axis, the least number of axes, and the position of the axes of an
    array with fewer.

    >>> r_[1:3, 5]
    array([1, 2, 5], dtype=int32)
    >>> c_[[1, 2], [3, 4]]
    array([[1, 3],
           [2, 4]], dtype=int32)
    """

    def __init__(self, name: str, axis: int, rank: int, place: int) -> None:
        self._name, self._form = name, (axis, rank, place)

    def __getitem__(self, key: Any) -> Any:
        entries = list(key) if isinstance(key, tuple) else [key]
        axis, rank, place = self._form
        if entries and isinstance(entries[0], str):
            text = entries.pop(0)
            if text in ("r", "c"):
                joined = concatenate(self._parts(entries, rank, place), axis)
                if len(shape_of(joined)) > 1:
                    return joined
                return reshape(joined, (1, shape_of(joined)[0]) if text == "r" else (shape_of(joined)[0], 1))
            given = [int(number) for number in text.split(",") if number.strip().lstrip("-").isdigit()]
            if not given or len(given) > 3:
                raise ArgumentError(at_user_line(f"{self._name}: {text!r}; up to three numbers are needed"))
            axis, rank, place = (*given, *(axis, rank, place)[len(given):])
        return concatenate(self._parts(entries, rank, place), axis)

    @classmethod
    def _parts(cls, entries: Sequence[Any], rank: int, place: int) -> list[Any]:
        values = [_numbers_of(entry) if isinstance(entry, slice) else entry for entry in entries]
        return [cls._part(value, rank, place) for value in as_common_arrays(values)]

    @staticmethod
    def _part(part: Any, rank: int, place: int) -> Any:
        own = len(shape_of(part))
        part = atleast_1d(part)
        missing = rank - len(shape_of(part))
        if missing <= 0:
            return part
        part = reshape(part, (*(1,) * missing, *shape_of(part)))
        if own == 0:
            return part
        begin = place if place >= 0 else rank + place - own + 1
        return moveaxis(part, tuple(range(missing, rank)), tuple(range(begin, begin + own)))

    def __repr__(self) -> str:
        return f"<fxgrad {self._name}>"


r_, c_ = _Joined("r_", 0, 1, -1), _Joined("c_", -1, 2, 0)
