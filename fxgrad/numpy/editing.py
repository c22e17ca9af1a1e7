"""Copies with some elements changed, put in or left out: insert, delete, put, place, fill_diagonal, resize, block."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_axis_number,
    axes_of,
    axis_of,
    common_shape,
    constant_array,
    is_concrete,
    new_array,
    refuse_out,
    require_concrete,
    shape_of,
)
from fxgrad.engine.frontend.strict import as_integers
from fxgrad.engine.ops.arithmetic import rem, sub
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to, convert, move_axis, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, IndexingError, ShapeError, UnsupportedError
from fxgrad.numpy.arithmetic import add, subtract
from fxgrad.numpy.creation import array, as_common_arrays, asarray, rows_of
from fxgrad.numpy.finding import size_of, true_places
from fxgrad.numpy.indexing import getitem
from fxgrad.numpy.joining import concatenate
from fxgrad.numpy.logic import greater_equal, less, where
from fxgrad.numpy.ordering import argsort, cumsum, sort
from fxgrad.numpy.positions import check_in_range, take_along_one
from fxgrad.numpy.rearranging import tile
from fxgrad.numpy.reductions import count_nonzero
from fxgrad.numpy.shaping import ravel
from fxgrad.numpy.updates import apply_update

_MODES = {None: "clip", "drop": "drop", "clip": "clip", "wrap": "wrap", "raise": "raise",
          "promise_in_bounds": "promise_in_bounds"}


def _refuse_inplace(name: str, inplace: bool) -> None:
    if inplace:
        raise UnsupportedError(at_user_line(f"{name}: arrays here are not changed; write "
                                            f"result = {name}(..., inplace=False)"))


# --- choosing -----------------------------------------------------------------------------------------------------


def compress(condition: Any, a: Any, axis: int | None = None, *, size: int | None = None, fill_value: Any = 0,
             out: Any = None) -> Any:
    """Return the entries of `a` along `axis` (None: of the flattened array) where a vector `condition` is true.

    The condition must be known unless `size` is given; the result is then cut or filled with `fill_value` to that size.

    >>> compress([True, False, True], [1, 2, 3])
    array([1, 3])
    """
    refuse_out("compress", out)
    condition = as_array_operand(condition)
    if is_concrete(condition):
        condition = np.asarray(condition) != 0  # remains known where operations are recorded
    if len(shape_of(condition)) != 1:
        raise ShapeError(at_user_line(f"compress: condition must be a vector, its shape is {shape_of(condition)}"))
    a = ravel(a) if axis is None else as_array_operand(a)
    at = axis_of("compress", 0 if axis is None else axis, len(shape_of(a)))
    count, extent = shape_of(condition)[0], shape_of(a)[at]
    if count > extent:
        if require_concrete(condition, "compress with a condition longer than the axis")[extent:].any():
            raise IndexingError(at_user_line(f"compress: condition of size {count} is true behind the end of axis {at} "
                                             f"of size {extent}"))
        condition = condition[:extent] if is_concrete(condition) else slice_in_dim(condition, 0, extent, 0)
    mask = condition if aval_of(condition).dtype == dtypes.bool_ else convert(condition, dtypes.bool_)
    places = true_places(mask, size_of("compress", size), extent,
                         "np.compress, whose result has a size that depends on the values")
    if size is None:
        return take_along_one(a, places, at, "promise_in_bounds", promises=("sorted", "unique"))
    return take_along_one(a, places, at, "fill", np.asarray(fill_value).astype(aval_of(a).dtype).item())


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """Return the elements of `arr`, flattened, where `condition` is true; `size` and `fill_value` as in `compress`.

    >>> extract([[True, False], [False, True]], [[1, 2], [3, 4]])
    array([1, 4])
    """
    condition = as_array_operand(condition)
    flat = np.ravel(np.asarray(condition)) if is_concrete(condition) else ravel(condition)
    return compress(flat, arr, size=size, fill_value=fill_value)


def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """Return for each position its element of choice number `a`; shapes broadcast, dtypes promote.

    Indices out of range are an error, which needs known values; by `mode` they are moved into range: `"clip"`,
    `"wrap"`.

    >>> choose([0, 1], [[1, 2], [30, 40]])
    array([ 1, 40], dtype=int32)
    """
    refuse_out("choose", out)
    a = as_array_operand(a)
    given = rows_of(choices)
    if not given:
        raise ArgumentError(at_user_line("choose: no choices. Give at least one, choose(a, [x, y])"))
    options = as_common_arrays(given)
    count = len(options)
    if dtypes.kind_of(aval_of(a).dtype) not in "iub":
        raise ArgumentError(at_user_line(f"choose: numbers of choices must be integers, got {aval_of(a).dtype.name}"))
    if mode not in ("raise", "clip", "wrap"):
        raise ArgumentError(at_user_line(f"choose: mode must be 'raise', 'clip' or 'wrap', got {mode!r}"))
    if mode == "raise":
        known = require_concrete(a, "choose with mode='raise', for which you can write 'clip' or 'wrap',")
        if known.size and (known.min() < 0 or known.max() >= count):
            raise IndexingError(at_user_line(f"choose: numbers from {known.min()} to {known.max()} of {count} choices; "
                                             f"in range are 0 to {count - 1}"))
    number = convert(a, dtypes.int32)
    if mode == "wrap":
        number = rem(sub(rem(number, scalar_like(count, number)), scalar_like(-count, number)),
                     scalar_like(count, number))
    result = options[0]
    for place, option in enumerate(options[1:], 1):
        result = where(number >= place, option, result)
    return new_array(broadcast_to(result, common_shape("choose", shape_of(a), *map(shape_of, options))), options[0])


# --- putting in and leaving out -----------------------------------------------------------------------------------


def delete(arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False) -> Any:
    """Return `arr` without the entries along `axis` (None: flattened) that a slice, integers or bools name.

    `obj` must be known, unless it is one integer, or those that `assume_unique_indices` promises to be distinct. Raises
    `IndexingError` for integers out of range.

    >>> delete([10, 20, 30, 40], [0, -1])
    array([20, 30])
    """
    arr = ravel(arr) if axis is None else as_array_operand(arr)
    at = axis_of("delete", 0 if axis is None else axis, len(shape_of(arr)))
    extent = operator.index(shape_of(arr)[at])
    keep = np.ones(extent, bool)
    if isinstance(obj, slice):
        keep[obj] = False
    else:
        is_unique = type(obj) is Tracer and dtypes.kind_of(obj.dtype) in "iu" and (
            assume_unique_indices or not obj.shape)
        if is_unique and obj.tape.values is None:
            places: Any = sort(ravel(where(less(obj, 0), add(obj, extent), obj)))
            kept = np.arange(extent - shape_of(places)[0])
            behind = greater_equal(kept[:, None], subtract(places, np.arange(shape_of(places)[0])))
            return take_along_one(arr, add(kept, count_nonzero(behind, axis=1)), at, "clip")
        known = require_concrete(obj, "delete, whose result has a size that depends on what is left out,")
        if known.dtype == np.bool_ and known.shape != (extent,):
            raise ShapeError(at_user_line(f"delete: bools of shape {known.shape} for axis {at} of size {extent}"))
        if known.size:
            keep[known if known.dtype == np.bool_ else check_in_range("delete", known, extent, at)] = False
    return take_along_one(arr, np.flatnonzero(keep).astype(np.int32), at, "promise_in_bounds",
                          promises=("sorted", "unique"))


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """Return `arr` with `values` inserted before the entries along `axis` (None: flattened) that `obj` names.

    `obj` is an integer, several, a slice or bools, and must be known; `values` broadcast and take the dtype of `arr`.
    Raises `IndexingError` for integers out of range.

    >>> insert([10, 20, 30], 1, 15)
    array([10, 15, 20, 30])
    """
    arr = ravel(arr) if axis is None else as_array_operand(arr)
    at = axis_of("insert", 0 if axis is None else axis, len(shape_of(arr)))
    shape = shape_of(arr)
    extent = shape[at]
    if isinstance(obj, slice):
        places = np.arange(*obj.indices(extent))
    else:
        if type(obj) is Tracer and obj.tape.values is None and obj.dtype != np.bool_:
            return _insert_traced(arr, obj, values, at)
        places = require_concrete(obj, "insert, whose result depends on the places")
        places = np.flatnonzero(places) if places.dtype == np.bool_ else places
    single = places.ndim == 0
    places = np.atleast_1d(places)
    if places.size:
        check_in_range("insert", np.where(places == extent, 0, places), extent or 1, at)
    places = np.where(places < 0, places + extent, places).astype(np.intp)
    given = _with_rank(values, len(shape))
    if single:
        given = move_axis(given, 0, at)
    if places.size == 1:  # NumPy's rule for one place: the values are those of consecutive entries
        places = np.repeat(places, shape_of(given)[at])
    wanted = (*shape[:at], places.size, *shape[at + 1:])
    try:
        given = broadcast_to(convert(given, aval_of(arr).dtype, aval_of(arr).weak), wanted)
    except ShapeError:
        raise ShapeError(at_user_line(f"insert: values of shape {shape_of(given)} do not broadcast to {wanted}"
                                      )) from None
    order = np.argsort(np.concatenate([np.arange(extent) + 0.5, places]), kind="stable").astype(np.int32)
    return take_along_one(concatenate([arr, given], at), order, at, "promise_in_bounds", promises=("unique",))


def _with_rank(values: Any, least: int) -> Any:
    """Return a caller's array with axes of size 1 in front, up to at least `least` axes."""
    values = as_array_operand(values)
    shape = shape_of(values)
    return reshape(values, (1,) * max(0, least - len(shape)) + shape)


def _insert_traced(arr: Any, places: Any, values: Any, axis: int) -> Any:
    """Insert at traced positions: their number is known, and so is the shape."""
    shape = shape_of(arr)
    if not dtypes.is_integer(places.dtype):
        raise DTypeError(at_user_line(f"insert: indices are integers, got {places.dtype.name}; convert with "
                                      ".astype(int)"))
    given, single = _with_rank(values, len(shape)), not places.shape
    if single:
        given = move_axis(given, 0, axis)
    count = shape_of(given)[axis] if places.size == 1 else places.size
    wanted = (*shape[:axis], count, *shape[axis + 1:])
    given = broadcast_to(convert(given, aval_of(arr).dtype, aval_of(arr).weak), wanted)
    places = broadcast_to(ravel(where(places < 0, places + shape[axis], places)), (count,))
    order = argsort(concatenate([np.arange(shape[axis]) + np.float32(0.5), places]), stable=True)
    return take_along_one(concatenate([arr, given], axis), order, axis, "promise_in_bounds", promises=("unique",))


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = True) -> Any:
    """Return a copy of `a` with values at positions in the flattened array; `v` repeats as often as needed.

    `inplace=False` must be given, since arrays here are immutable. Positions out of range are moved to the nearest end,
    or by `mode` dropped (`"drop"`), wrapped around (`"wrap"`), or an error (`"raise"`).

    >>> put([1, 2, 3, 4], [0, 2], [10, 30], inplace=False)
    array([10,  2, 30,  4])
    """
    _refuse_inplace("put", inplace)
    a, places, values = as_array_operand(a), ravel(asarray(ind)), ravel(v)
    if mode not in _MODES:
        raise ArgumentError(at_user_line(f"put: mode must be None, 'raise', 'clip', 'wrap', got {mode!r}"))
    count = shape_of(places)[0]
    if not count:
        return new_array(a, a)
    if not shape_of(values)[0]:
        raise ShapeError(at_user_line("put: no values to put"))
    values = resize(values, (count,))
    result = apply_update(ravel(a), places, "set", values, mode=_MODES[mode])
    return reshape(result, shape_of(a))


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Any:
    """Return a copy of `arr` with the elements where `mask` is true taken from `vals` in order, repeated as needed.

    `inplace=False` must be given, since arrays here are immutable. Raises `ShapeError` unless the numbers of elements
    of `arr` and `mask` are equal.

    >>> place([1, 2, 3, 4], [False, True, True, True], [7, 8], inplace=False)
    array([1, 7, 8, 7])
    """
    _refuse_inplace("place", inplace)
    arr, mask, values = as_array_operand(arr), ravel(asarray(mask)), ravel(vals)
    size, count = math.prod(shape_of(arr)), shape_of(values)[0]
    if shape_of(mask)[0] != size:
        raise ShapeError(at_user_line(f"place: a mask of {shape_of(mask)[0]} elements for an array of {size}; equal "
                                      "numbers are needed"))
    if not size:
        return arr
    if not count:
        raise ShapeError(at_user_line("place: no values to place"))
    mask = convert(mask, dtypes.bool_)
    number = cumsum(mask, 0, np.int32)
    number = sub(number, scalar_like(1, number))
    number = where(number < 0, 0, rem(number, scalar_like(count, number)))
    chosen = take_along_one(convert(values, aval_of(arr).dtype), number, 0, "promise_in_bounds")
    return reshape(where(mask, chosen, ravel(arr)), shape_of(arr))


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None, inplace: bool = True, *,
                   mode: str | None = None) -> Any:
    """Return a copy of `arr` with values along `axis` at indices that differ for each position on the other axes.

    The counterpart of `take_along_axis`. `inplace=False` must be given, since arrays here are immutable.

    >>> put_along_axis([[1, 2], [3, 4]], [[1], [0]], 9, axis=1, inplace=False)
    array([[1, 9],
           [9, 4]])
    """
    _refuse_inplace("put_along_axis", inplace)
    arr, places = as_array_operand(arr), asarray(indices)
    if axis is None:
        return reshape(apply_update(ravel(arr), ravel(places), "set", values, mode=mode), shape_of(arr))
    sizes = shape_of(arr)
    if len(shape_of(places)) != len(sizes):
        raise ShapeError(at_user_line(f"put_along_axis: an array of shape {sizes} and indices of shape "
                                      f"{shape_of(places)}; equally many axes are needed"))
    at = axis_of("put_along_axis", axis, len(sizes))
    grid = [places if each == at else np.arange(size).reshape([-1 if each == other else 1 for other in
                                                               range(len(sizes))]) for each, size in enumerate(sizes)]
    return apply_update(arr, tuple(grid), "set", values, mode=mode)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Any:
    """Return a copy of `a` with `val` (a number, or values repeated as needed) on its main diagonal.

    `inplace=False` must be given, since arrays here are immutable. With `wrap` the diagonal of a tall matrix starts
    again below. Raises `ShapeError` for vectors, and for more than two axes unless they have one size.

    >>> fill_diagonal([[1, 2], [3, 4]], 9, inplace=False)
    array([[9, 2],
           [3, 9]])
    """
    _refuse_inplace("fill_diagonal", inplace)
    a = as_array_operand(a)
    shape = shape_of(a)
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) != 1):
        raise ShapeError(at_user_line(f"fill_diagonal: an array of shape {shape}; a matrix, or more axes of one size, "
                                      "is needed"))
    step = shape[1] + 1 if len(shape) == 2 else sum(math.prod(shape[at + 1:]) for at in range(len(shape)))
    end = math.prod(shape) if wrap or len(shape) > 2 else min(shape[0], shape[1]) * shape[1]
    places = np.arange(0, end, step)
    values = ravel(val)
    return reshape(apply_update(ravel(a), places, "set", resize(values, places.shape)), shape)


# --- sizes --------------------------------------------------------------------------------------------------------


def resize(a: Any, new_shape: Any) -> Any:
    """Return the elements of `a`, repeated or cut off, in an array of another shape.

    >>> resize([1, 2, 3], (2, 2))
    array([[1, 2],
           [3, 1]])
    """
    flat = ravel(a)
    shape = as_integers("resize", new_shape if isinstance(new_shape, Sequence) else (new_shape,))
    if any(size < 0 for size in shape):
        raise ShapeError(at_user_line(f"resize: shape {shape} has a negative size"))
    size, count = math.prod(shape), shape_of(flat)[0]
    if not size or not count:
        return constant_array(shape, 0, aval_of(flat).dtype)
    return reshape(slice_in_dim(tile(flat, -(-size // count)), 0, size, 0), shape)


def trim_zeros(filt: Any, trim: str = "fb", axis: int | Sequence[int] | None = None) -> Any:
    """Return an array without zeros at its front (`"f"` in `trim`) and back (`"b"`) along each axis (or those given).

    Its values must be known.

    >>> trim_zeros([0, 1, 0, 2, 0])
    array([1, 0, 2])
    """
    filt = as_array_operand(filt)
    if not isinstance(trim, str) or set(trim.lower()) - {"f", "b"}:
        raise ArgumentError(at_user_line(f"trim_zeros: trim is made of 'f' and 'b', got {trim!r}"))
    known = require_concrete(filt, "np.trim_zeros, whose result has a size that depends on the values")
    rank = known.ndim
    places = np.nonzero(known) if rank else ()
    axes = axes_of("trim_zeros", axis, rank)
    index = [slice(None)] * rank
    for at in axes:
        first, last = (int(places[at].min()), int(places[at].max()) + 1) if places[at].size else (0, 0)
        index[at] = slice(first if "f" in trim.lower() or not last else 0,
                          last if "b" in trim.lower() or not last else known.shape[at])
    return getitem(filt, tuple(index))


def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """Return `a` with one axis moved before the axis at `start`.

    >>> rollaxis(np.zeros((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    a = as_array_operand(a)
    rank = len(shape_of(a))
    at = axis_of("rollaxis", axis, rank)
    begin = as_axis_number("rollaxis", start)
    begin = rank if begin == rank else axis_of("rollaxis", begin, rank)
    return move_axis(a, at, begin - (at < begin))


def block(arrays: Any) -> Any:
    """Return an array from nested lists of blocks: the innermost are joined along the last axis, and so on outwards.

    Raises `ArgumentError` unless all are nested equally deep.

    >>> block([[np.eye(2), np.zeros((2, 1))], [np.ones((1, 3))]])
    array([[1., 0., 0.],
           [0., 1., 0.],
           [1., 1., 1.]])
    """
    depth = _depth(arrays)
    leaves = as_common_arrays(_leaves(arrays))
    rank = max([depth, *(len(shape_of(leaf)) for leaf in leaves)])
    return _joined(arrays, depth, rank, iter(leaves))


def _leaves(arrays: Any) -> list[Any]:
    return [leaf for part in arrays for leaf in _leaves(part)] if isinstance(arrays, list) else [arrays]


def _depth(arrays: Any) -> int:
    if isinstance(arrays, tuple):
        raise ArgumentError(at_user_line("block: blocks are nested in lists, a tuple came"))
    if not isinstance(arrays, list):
        return 0
    depths = {_depth(part) for part in arrays}
    if len(depths) != 1:
        raise ArgumentError(at_user_line("block: lists that are empty, or not nested equally deep" if depths else
                                         "block: an empty list"))
    return depths.pop() + 1


def _joined(arrays: Any, depth: int, rank: int, leaves: Iterator[Any]) -> Any:
    """`leaves` are the innermost blocks of all, in order and of one dtype."""
    if not isinstance(arrays, list):
        return array(next(leaves), ndmin=rank)
    return concatenate([_joined(part, depth - 1, rank, leaves) for part in arrays], -depth)
