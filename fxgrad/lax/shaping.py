"""The functions of `jax.lax` that change shapes and move elements: broadcast, reshape, transpose, slice, pad, join."""
# ruff: noqa: A001  (the names are jax's)

from __future__ import annotations

import builtins
from collections.abc import Sequence
from math import prod
from typing import Any

from fxgrad.engine.core.avals import Shape
from fxgrad.engine.frontend.operands import as_axis_number, as_integer, shape_of
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.frontend.strict import as_integers, check_operands, require_array, strict_axis_of, unify_dtypes
from fxgrad.engine.frontend.strict import as_sizes as sizes_given
from fxgrad.engine.ops import joining, shaping, structural
from fxgrad.engine.ops.families import broadcast_shapes as _broadcast_shapes
from fxgrad.engine.ops.shaping import slice as slice_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, IndexingError, ShapeError

__all__ = ["broadcast", "broadcast_in_dim", "broadcast_like", "broadcast_shapes", "broadcast_to_rank", "collapse",
           "concatenate", "expand_dims", "index_in_dim", "pad", "reshape", "rev", "slice", "slice_in_dim", "split",
           "squeeze", "stack", "tile", "transpose", "unstack"]

# --- broadcasts ---------------------------------------------------------------------------------------------------


def broadcast(operand: Any, sizes: Sequence[int], *, out_sharding: Any = None) -> Any:
    """Return the array repeated along new axes of these sizes, in front of its own.

    >>> import numpy as np
    >>> broadcast(np.ones(3), (2,)).shape
    (2, 3)
    """
    if out_sharding is not None:
        return place_array("broadcast", broadcast(operand, sizes), out_sharding)
    operand = require_array("broadcast", operand)
    return structural.broadcast_to(operand, (*sizes_given("broadcast", sizes), *shape_of(operand)))


def broadcast_in_dim(operand: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int], *,
                     out_sharding: Any = None) -> Any:
    """Return the array repeated to `shape`; its axes become the axes `broadcast_dimensions`, in order.

    Raises `ShapeError` if a size is neither 1 nor that of its new axis.

    >>> import numpy as np
    >>> broadcast_in_dim(np.arange(2), (2, 3), (0,))
    array([[0, 0, 0],
           [1, 1, 1]])
    """
    if out_sharding is not None:
        return place_array("broadcast_in_dim", broadcast_in_dim(operand, shape, broadcast_dimensions), out_sharding)
    wanted = sizes_given("broadcast_in_dim", shape)
    return _in_dim(require_array("broadcast_in_dim", operand), wanted,
                   as_integers("broadcast_in_dim", broadcast_dimensions))


_in_dim = shaping.broadcast_in_dim


def broadcast_like(arr: Any, like_arr: Any) -> Any:
    """Return `arr` with axes put in front and repeated to the shape of `like_arr`. Raises `ShapeError`.

    >>> import numpy as np
    >>> broadcast_like(np.ones(3), np.ones((2, 3))).shape
    (2, 3)
    """
    return structural.broadcast_to(require_array("broadcast_like", arr),
                                   shape_of(require_array("broadcast_like", like_arr)))


def broadcast_shapes(*shapes: Sequence[int]) -> Shape:
    """Return the shape that arrays of these shapes broadcast to, counted from the last axis. Raises `ShapeError`.

    >>> broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    read = [sizes_given("broadcast_shapes", shape) for shape in shapes]
    return _broadcast_shapes("broadcast_shapes", *read) if read else ()


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """Return the array with axes of size 1 in front up to `rank` axes; one with more axes is unchanged.

    >>> import numpy as np
    >>> broadcast_to_rank(np.ones(3), 2).shape
    (1, 3)
    """
    x = require_array("broadcast_to_rank", x)
    return structural.reshape(x, (1,) * (as_integer("broadcast_to_rank", rank) - len(shape_of(x))) + shape_of(x))


# --- layout -------------------------------------------------------------------------------------------------------


def reshape(operand: Any, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None, *,
            out_sharding: Any = None) -> Any:
    """Return the elements in row-major order in another shape; `dimensions` is another order of axes to read them in.

    Raises `ShapeError` if the number of elements differs (no size may be -1).

    >>> import numpy as np
    >>> reshape(np.arange(4), (2, 2), (0,))
    array([[0, 1],
           [2, 3]])
    """
    if out_sharding is not None:
        return place_array("reshape", reshape(operand, new_sizes, dimensions), out_sharding)
    operand = require_array("reshape", operand)
    operand = operand if dimensions is None else structural.transpose(operand, as_integers("reshape", dimensions))
    return structural.reshape(operand, as_integers("reshape", new_sizes))


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Any:
    """Return the axes from `start_dimension` up to `stop_dimension` (None: the end) joined. Raises `ShapeError`.

    >>> import numpy as np
    >>> collapse(np.ones((2, 3, 4)), 0, 2).shape
    (6, 4)
    """
    operand = require_array("collapse", operand)
    sizes = shape_of(operand)
    begin, end, _ = builtins.slice(*(end if end is None else as_axis_number("collapse", end)
                                    for end in (start_dimension, stop_dimension))).indices(len(sizes))
    if begin >= end:
        raise ShapeError(at_user_line(f"collapse: axes from {start_dimension} to {stop_dimension} of an array of shape "
                                      f"{sizes}; at least one axis is needed"))
    return structural.reshape(operand, (*sizes[:begin], prod(sizes[begin:end]), *sizes[end:]))


def squeeze(array: Any, dimensions: Sequence[int]) -> Any:
    """Return the array without these axes, which have size 1. Raises `ShapeError`.

    >>> import numpy as np
    >>> squeeze(np.ones((1, 3)), (0,)).shape
    (3,)
    """
    array = require_array("squeeze", array)
    sizes, dimensions = shape_of(array), as_integers("squeeze", dimensions)
    gone = {strict_axis_of("squeeze", axis, len(sizes)) for axis in dimensions}
    if len(gone) != len(dimensions):
        raise ShapeError(at_user_line(f"squeeze: dimensions={tuple(dimensions)} names an axis twice; name each once"))
    if any(sizes[axis] != 1 for axis in gone):
        raise ShapeError(at_user_line(f"squeeze: axes {tuple(dimensions)} of an array of shape {sizes}; each must have "
                                      "size 1"))
    return structural.reshape(array, tuple(size for axis, size in enumerate(sizes) if axis not in gone))


def expand_dims(array: Any, dimensions: Sequence[int]) -> Any:
    """Return the array with new axes of size 1 at these places of the result. Raises `ShapeError`.

    >>> import numpy as np
    >>> expand_dims(np.ones(3), (0, 2)).shape
    (1, 3, 1)
    """
    array = require_array("expand_dims", array)
    dimensions = as_integers("expand_dims", dimensions)
    rank = len(shape_of(array)) + len(dimensions)
    new = {strict_axis_of("expand_dims", axis, rank) for axis in dimensions}
    if len(new) != len(dimensions):
        raise ShapeError(at_user_line(f"expand_dims: dimensions {tuple(dimensions)} name an axis twice; name each "
                                      "once"))
    old = iter(shape_of(array))
    return structural.reshape(array, tuple(1 if axis in new else next(old) for axis in range(rank)))


def transpose(operand: Any, permutation: Sequence[int]) -> Any:
    """Return the array with its axes in the order `permutation`. Raises `ShapeError` if that is not a permutation.

    >>> import numpy as np
    >>> transpose(np.ones((2, 3)), (1, 0)).shape
    (3, 2)
    """
    operand, order = require_array("transpose", operand), as_integers("transpose", permutation)
    if len(order) != len(shape_of(operand)):
        raise ShapeError(at_user_line(f"transpose: permutation {order} for an array of shape {shape_of(operand)}; name "
                                      "each axis once"))
    return structural.transpose(operand, order)


def rev(operand: Any, dimensions: Sequence[int]) -> Any:
    """Return the array with the order of its elements reversed along these axes. Raises `ShapeError`.

    >>> import numpy as np
    >>> rev(np.arange(3), (0,))
    array([2, 1, 0])
    """
    operand, axes = require_array("rev", operand), as_integers("rev", dimensions)
    check_operands(shaping.rev_p, operand, dimensions=axes)
    return shaping.rev(operand, axes)


def tile(operand: Any, reps: Sequence[int]) -> Any:
    """Return the array as a whole repeated `reps[i]` times along axis i. Raises `ShapeError`.

    >>> import numpy as np
    >>> tile(np.arange(2), (2,))
    array([0, 1, 0, 1])
    """
    operand, counts = require_array("tile", operand), as_integers("tile", reps)
    check_operands(shaping.tile_p, operand, reps=counts)
    return shaping.tile(operand, counts)


def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Any:
    """Return the array with a scalar before, after and between its elements: (low, high, interior) for each axis.

    Negative numbers cut off instead. Raises `ShapeError`, `DTypeError`.

    >>> import numpy as np
    >>> pad(np.array([1.0, 2.0]), 0.0, [(1, 0, 1)])
    array([0., 1., 0., 2.])
    """
    operand, padding_value = unify_dtypes("pad", operand, padding_value)
    config: Any = tuple(as_integers("pad", entries) for entries in padding_config)
    check_operands(shaping.pad_p, operand, padding_value, padding_config=config)
    return shaping.pad(operand, padding_value, config)


# --- parts --------------------------------------------------------------------------------------------------------


def slice(operand: Any, start_indices: Sequence[int], limit_indices: Sequence[int],
          strides: Sequence[int] | None = None) -> Any:
    """Return the elements from the starts up to the limits, every `strides`-th, along each axis; all in range.

    Raises `ShapeError`.

    >>> import numpy as np
    >>> slice(np.arange(6), (1,), (6,), (2,))
    array([1, 3, 5])
    """
    operand = require_array("slice", operand)
    starts, limits = as_integers("slice", start_indices), as_integers("slice", limit_indices)
    steps = (1,) * len(starts) if strides is None else as_integers("slice", strides)
    check_operands(shaping.slice_p, operand, start_indices=starts, limit_indices=limits, strides=steps)
    return slice_of(operand, starts, limits, steps)


def slice_in_dim(operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1,
                 axis: int = 0) -> Any:
    """Return a slice along one axis; indices may count from the end, and None is the end. Raises `ShapeError`.

    >>> import numpy as np
    >>> slice_in_dim(np.arange(5), 1, -1)
    array([1, 2, 3])
    """
    operand = require_array("slice_in_dim", operand)
    sizes = shape_of(operand)
    axis = strict_axis_of("slice_in_dim", axis, len(sizes))
    size = sizes[axis]
    begin = 0 if start_index is None else as_integer("slice_in_dim", start_index)
    end = size if limit_index is None else as_integer("slice_in_dim", limit_index)
    starts, limits, strides = [0] * len(sizes), list(sizes), [1] * len(sizes)
    starts[axis], limits[axis], strides[axis] = begin + size * (begin < 0), end + size * (end < 0), stride
    return slice(operand, starts, limits, strides)


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    """Return the elements at one index along an axis, kept with size 1 unless `keepdims` is false.

    Raises `IndexingError` if the index is out of range.

    >>> import numpy as np
    >>> index_in_dim(np.array([1.0, 2.0]), -1)
    array([2.])
    """
    operand, index = require_array("index_in_dim", operand), as_integer("index_in_dim", index)
    sizes = shape_of(operand)
    axis = strict_axis_of("index_in_dim", axis, len(sizes))
    if not -sizes[axis] <= index < sizes[axis]:
        raise IndexingError(at_user_line(f"index_in_dim: index {index} along an axis of size {sizes[axis]} of an array "
                                         f"of shape {sizes}; one from {-sizes[axis]} to {sizes[axis] - 1} is needed"))
    at = index % sizes[axis]
    part = shaping.slice_in_dim(operand, at, at + 1, axis)
    return part if keepdims else structural.reshape(part, sizes[:axis] + sizes[axis + 1:])


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Any]:
    """Return consecutive pieces of these sizes along an axis, which they fill. Raises `ShapeError`.

    >>> import numpy as np
    >>> split(np.arange(3), (1, 2))
    [array([0]), array([1, 2])]
    """
    operand = require_array("split", operand)
    lengths, axis = as_integers("split", sizes), strict_axis_of("split", axis, len(shape_of(operand)))
    check_operands(joining.split_p, operand, sizes=lengths, axis=axis)
    return joining.split(operand, lengths, axis)


def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """Return the slices along an axis, without it. Raises `ShapeError`.

    >>> import numpy as np
    >>> [part.shape for part in unstack(np.ones((2, 3)), 1)]
    [(2,), (2,), (2,)]
    """
    x = require_array("unstack", x)
    return tuple(joining.unstack(x, strict_axis_of("unstack", axis, len(shape_of(x)))))


# --- joins --------------------------------------------------------------------------------------------------------


def concatenate(operands: Sequence[Any], dimension: int) -> Any:
    """Return arrays of one dtype joined along an existing axis. Raises `ShapeError`, `DTypeError`.

    >>> import numpy as np
    >>> concatenate([np.zeros(1), np.ones(2)], 0)
    array([0., 1., 1.])
    """
    read, dimension = _several("concatenate", operands), as_integer("concatenate", dimension)
    check_operands(joining.concatenate_p, *read, dimension=dimension)
    return joining.concatenate(read, dimension)


def stack(operands: Sequence[Any], axis: int = 0) -> Any:
    """Return arrays of one shape and dtype joined along a new axis. Raises `ShapeError`, `DTypeError`.

    >>> import numpy as np
    >>> stack([np.zeros(2), np.ones(2)], 1)
    array([[0., 1.],
           [0., 1.]])
    """
    read = _several("stack", operands)
    rank = len(shape_of(read[0]))
    return joining.stack(read, strict_axis_of("stack", axis, rank, rank + 1))


def _several(name: str, operands: Sequence[Any]) -> list[Any]:
    """Return the operands of a join."""
    if hasattr(operands, "shape") and shape_of(operands):
        return joining.unstack(operands, 0)
    if not operands:
        raise ArgumentError(at_user_line(f"{name}: no arrays; at least one is needed"))
    return unify_dtypes(name, *operands)
