"""Reductions of the rows of an array by the segments that they belong to: the functions of jax.ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import as_array_operand, as_integer, constant_array, require_concrete, shape_of
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.families import KINDS
from fxgrad.engine.ops.indexing import scatter
from fxgrad.engine.ops.joining import stack
from fxgrad.engine.ops.pool import identity_of
from fxgrad.engine.ops.reductions import reduce_max, reduce_min, reduce_prod
from fxgrad.engine.ops.structural import convert, reduce_sum, reshape
from fxgrad.engine.ops.windows import Windows
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from fxgrad.numpy.reductions import max as max_of

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]

_MODES = {"fill_or_drop": "fill", "fill": "fill", "drop": "fill", "clip": "clip",
          "promise_in_bounds": "promise_in_bounds"}
_REDUCTIONS = {"add": reduce_sum, "mul": reduce_prod, "min": reduce_min, "max": reduce_max}


def segment_sum(data: Any, segment_ids: Any, num_segments: int | None = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode: Any = None,
                out_sharding: Any = None) -> Any:
    """Return the sums of the rows of `data` in each segment: result[i] is the sum of data[segment_ids == i].

    `segment_ids` has one integer for each row; those below 0 or from `num_segments` on are dropped, or moved into range
    by the mode `"clip"`. Without `num_segments` there are as many as the ids need, whose values must be known then. The
    caller may promise that ids are sorted or unique. With `bucket_size`, rows are first reduced in buckets of that
    size, which loses fewer digits. Raises `ShapeError`, `DTypeError`, `ArgumentError`.

    >>> segment_sum([1.0, 2.0, 4.0], [0, 2, 0], 3)
    array([5., 0., 2.])
    """
    return _reduce_segments("segment_sum", "add", data, segment_ids, num_segments, indices_are_sorted, unique_indices,
                            bucket_size, mode, out_sharding)


def segment_prod(data: Any, segment_ids: Any, num_segments: int | None = None, indices_are_sorted: bool = False,
                 unique_indices: bool = False, bucket_size: int | None = None, mode: Any = None,
                 out_sharding: Any = None) -> Any:
    """Return the products of the rows of each segment, 1 for none; the arguments are those of `segment_sum`.

    >>> segment_prod([1.0, 2.0, 4.0], [0, 2, 0], 3)
    array([4., 1., 2.])
    """
    return _reduce_segments("segment_prod", "mul", data, segment_ids, num_segments, indices_are_sorted, unique_indices,
                            bucket_size, mode, out_sharding)


def segment_min(data: Any, segment_ids: Any, num_segments: int | None = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode: Any = None,
                out_sharding: Any = None) -> Any:
    """Return the least of the rows of each segment, the greatest number of the dtype (or infinity) for none.

    The arguments are those of `segment_sum`; rows that are equal share the derivative.

    >>> segment_min([1.0, 2.0, 4.0], [0, 2, 0], 3)
    array([ 1., inf,  2.])
    """
    return _reduce_segments("segment_min", "min", data, segment_ids, num_segments, indices_are_sorted, unique_indices,
                            bucket_size, mode, out_sharding)


def segment_max(data: Any, segment_ids: Any, num_segments: int | None = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode: Any = None,
                out_sharding: Any = None) -> Any:
    """Return the greatest of the rows of each segment, the least number of the dtype (or minus infinity) for none.

    The arguments are those of `segment_sum`; rows that are equal share the derivative.

    >>> segment_max([1.0, 2.0, 4.0], [0, 2, 0], 3)
    array([  4., -inf,   2.])
    """
    return _reduce_segments("segment_max", "max", data, segment_ids, num_segments, indices_are_sorted, unique_indices,
                            bucket_size, mode, out_sharding)


def _reduce_segments(name: str, combine: str, data: Any, segment_ids: Any, num_segments: int | None, is_sorted: bool,
                     is_unique: bool, bucket_size: int | None, mode: Any, out_sharding: Any) -> Any:
    if out_sharding is not None:
        raise UnsupportedError(at_user_line(f"{name}: out_sharding= is not supported; leave it out"))
    data, ids = as_array_operand(data), as_array_operand(segment_ids)
    _check(name, combine, data, ids)
    count = _count(name, ids, num_segments)
    rows, *rest = shape_of(data)
    dtype = aval_of(data).dtype
    start = {"add": 0, "mul": 1}.get(combine)
    start = identity_of(combine, dtype) if start is None else dtype.type(start)
    if not count:
        return constant_array((0, *rest), start, dtype)
    promises = ("sorted",) * bool(is_sorted) + ("unique",) * bool(is_unique)
    given = "fill" if mode is None else str(getattr(mode, "name", mode)).lower()
    if given not in _MODES:
        raise ArgumentError(at_user_line(f"{name}: mode={mode!r}; it is one of 'fill' (or 'drop'), 'clip', "
                                         "'promise_in_bounds'"))
    mode = _MODES[given]
    if bucket_size is None:
        windows = Windows(tuple(range(1, 1 + len(rest))), (0,), (0,))
        return scatter(constant_array((count, *rest), start, dtype), reshape(ids, (rows, 1)), data, windows,
                       combine=combine,
                       mode=mode, promises=promises)
    size = as_integer(f"{name}: bucket_size", bucket_size)
    if size < 1:
        raise ArgumentError(at_user_line(f"{name}: bucket_size={size}; a number from 1 on is needed"))
    buckets = -(-rows // size)
    if aval_of(ids).dtype.itemsize < dtypes.int32.itemsize:
        ids = convert(ids, dtypes.int32)
    bucket = reshape(iota(aval_of(ids).dtype, (buckets, size), 0), (buckets * size,))[:rows]
    windows = Windows(tuple(range(1, 1 + len(rest))), (0, 1), (0, 1))
    parts = scatter(constant_array((buckets, count, *rest), start, dtype), stack([bucket, ids], 1), data, windows,
                    combine=combine, mode=mode, promises=promises)
    return convert(_REDUCTIONS[combine](parts, (0,)), dtype)


def _check(name: str, combine: str, data: Any, ids: Any) -> None:
    shape = shape_of(data)
    if not shape or shape_of(ids) != shape[:1]:
        raise ShapeError(at_user_line(f"{name}: segment_ids of shape {shape_of(ids)} for data of shape {shape}; one id "
                                      "is needed for each row, an entry along the first axis"))
    if not KINDS["integer"](aval_of(ids).dtype):
        raise DTypeError(at_user_line(f"{name}: segment_ids are {aval_of(ids).dtype.name}; integers are needed: "
                                      "segment_ids.astype('int32')"))
    kind = "numeric" if combine in ("add", "mul") else "ordered"
    if not KINDS[kind](aval_of(data).dtype):
        raise DTypeError(at_user_line(f"{name}: not defined for {aval_of(data).dtype.name}; it takes {kind} dtypes. "
                                      "Convert first, for example x.astype('float32')"))


def _count(name: str, ids: Any, num_segments: Any) -> int:
    if num_segments is None:
        if not shape_of(ids)[0]:
            return 0
        return int(require_concrete(max_of(ids) if type(ids) is Tracer else np.max(np.asarray(ids)),
                                    f"{name} without num_segments=, of which there are as many as the ids need,")) + 1
    count = as_integer(f"{name}: num_segments", num_segments)
    if count < 0:
        raise ArgumentError(at_user_line(f"{name}: num_segments={count}; a number from 0 on is needed"))
    return count
