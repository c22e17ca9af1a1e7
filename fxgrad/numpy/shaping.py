"""Changing shapes: reshape, the order and number of axes, broadcasting, flipping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fxgrad.engine.core.sizes import has_symbolic_dim, refuse_undecided
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_integer,
    as_new_shape,
    as_shape,
    axes_of,
    axis_of,
    common_shape,
    shape_of,
)
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.frontend.strict import as_integers
from fxgrad.engine.ops.shaping import rev
from fxgrad.engine.ops.structural import broadcast_to as broadcast
from fxgrad.engine.ops.structural import reshape as reshaped
from fxgrad.engine.ops.structural import transpose as transposed
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, AxisError, ShapeError
from fxgrad.numpy.creation import as_arrays_keeping_dtypes


def shape(a: Any) -> tuple[int, ...]:
    """Return the shape of an array.

    >>> shape([[1, 2, 3]])
    (1, 3)
    """
    return shape_of(as_array_operand(a))


def ndim(a: Any) -> int:
    """Return the number of axes of an array.

    >>> ndim([[1, 2, 3]])
    2
    """
    return len(shape(a))


def size(a: Any, axis: int | Sequence[int] | None = None) -> int:
    """Return the number of elements of an array, or its size along `axis`.

    >>> size([[1, 2, 3]]), size([[1, 2, 3]], 1)
    (3, 3)
    """
    sizes = shape(a)
    return math.prod(sizes[at] for at in axes_of("size", axis, len(sizes)))


def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None, out_sharding: Any = None) -> Any:
    """Return the elements of `a` in an array of another shape; one size may be -1 and is then worked out.

    `order="F"` reads and writes the elements with the first axis changing fastest. Raises `ShapeError` if the numbers
    of elements differ.

    >>> reshape([[1, 2], [3, 4]], -1)
    array([1, 2, 3, 4])
    """
    if out_sharding is not None:
        return place_array("reshape", reshape(a, shape, order, copy=copy), out_sharding)
    del copy  # arrays here are never writable views
    a = as_array_operand(a)
    sizes = _complete_shape(shape_of(a), as_shape(shape))
    if order == "F":
        backward = transposed(a, range(len(shape_of(a)))[::-1])
        return transposed(reshaped(backward, sizes[::-1]), range(len(sizes))[::-1])
    if order not in ("C", "A", "K"):
        raise ArgumentError(at_user_line(f"reshape: order must be 'C' or 'F', got {order!r}"))
    return reshaped(a, sizes)


def _complete_shape(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """Return the new shape with -1 replaced by its size."""
    if new.count(-1) != 1:
        if new.count(-1) > 1:
            raise ShapeError(at_user_line(f"reshape: shape {new} has -1 more than once; only one size can be left out"))
        return new
    known = math.prod(size for size in new if size != -1)
    total = math.prod(old)
    if not known or total % known:
        raise ShapeError(at_user_line(f"reshape: an array of shape {old} has {total} elements, which do not fill shape "
                                      f"{new} for any size in place of -1"))
    return tuple(total // known if size == -1 else size for size in new)


def ravel(a: Any, order: str = "C", *, out_sharding: Any = None) -> Any:
    """Return the elements of `a` in one axis.

    >>> ravel([[1, 2], [3, 4]])
    array([1, 2, 3, 4])
    """
    if out_sharding is not None:
        return place_array("ravel", ravel(a, order), out_sharding)
    return reshape(a, -1 if 0 not in shape(a) else 0, order)


def squeeze(a: Any, axis: int | Sequence[int] | None = None) -> Any:
    """Return `a` without axes of size 1: all of them, or those given. Raises `ShapeError` for other sizes.

    >>> squeeze([[1], [2]]).shape
    (2,)
    """
    a = as_array_operand(a)
    sizes = shape_of(a)
    if axis is None and has_symbolic_dim(*sizes):
        refuse_undecided(f"squeeze: which axes of the shape {sizes} go (write axis=)", *sizes)
    gone = tuple(at for at, extent in enumerate(sizes) if extent == 1) if axis is None \
        else axes_of("squeeze", axis, len(sizes))
    if [at for at in gone if sizes[at] != 1]:
        raise ShapeError(at_user_line(f"squeeze: axis {axis} of an array of shape {sizes}; only axes of size 1 can go"))
    return reshaped(a, tuple(extent for at, extent in enumerate(sizes) if at not in gone))


def expand_dims(a: Any, axis: int | Sequence[int]) -> Any:
    """Return `a` with new axes of size 1 at the places `axis` of the result.

    >>> expand_dims([1, 2], 0).shape
    (1, 2)
    """
    a = as_array_operand(a)
    rank = len(shape_of(a)) + (len(axis) if isinstance(axis, Sequence) else 1)
    new = axes_of("expand_dims", axis, rank)
    old = iter(shape_of(a))
    return reshaped(a, tuple(1 if at in new else next(old) for at in range(rank)))


def _with_least_rank(rank: int, arrays: tuple[Any, ...]) -> Any:
    results = []
    for each in arrays:
        array = as_array_operand(each)
        sizes = shape_of(array)
        if rank == 3 and len(sizes) in (1, 2):  # NumPy's own positions of new axes
            sizes = (1, *sizes, 1) if len(sizes) == 1 else (*sizes, 1)
        results.append(reshaped(array, (1,) * (rank - len(sizes)) + sizes))
    return results[0] if len(results) == 1 else results


def atleast_1d(*arys: Any) -> Any:
    """Return arrays with at least one axis; one array, or a list of several.

    >>> atleast_1d(2.0).shape
    (1,)
    """
    return _with_least_rank(1, arys)


def atleast_2d(*arys: Any) -> Any:
    """Return arrays with at least two axes, new ones in front; one array, or a list of several.

    >>> atleast_2d([1.0, 2.0]).shape
    (1, 2)
    """
    return _with_least_rank(2, arys)


def atleast_3d(*arys: Any) -> Any:
    """Return arrays with at least three axes; one array, or a list of several.

    >>> atleast_3d([1.0, 2.0]).shape
    (1, 2, 1)
    """
    return _with_least_rank(3, arys)


# --- the order of axes --------------------------------------------------------------------------------------------


def transpose(a: Any, axes: Sequence[int] | None = None) -> Any:
    """Return `a` with its axes in the order `axes`, or reversed. Raises `AxisError` unless each is named once.

    >>> transpose([[1, 2, 3]]).shape
    (3, 1)
    """
    a = as_array_operand(a)
    rank = len(shape_of(a))
    if axes is None:
        return transposed(a, range(rank)[::-1])
    order = [axis_of("transpose", axis, rank) for axis in as_integers("transpose", axes)]
    if sorted(order) != [*range(rank)]:
        raise AxisError(at_user_line(f"transpose: axes {tuple(axes)} of an array with {rank} axes; each must be named "
                                     "once"))
    return transposed(a, order)


permute_dims = transpose


def matrix_transpose(x: Any) -> Any:
    """Return `x` with its last two axes exchanged. Raises `ShapeError` if there are fewer.

    >>> matrix_transpose([[1, 2, 3]]).shape
    (3, 1)
    """
    x = as_array_operand(x)
    if len(shape_of(x)) < 2:
        raise ShapeError(at_user_line(f"matrix_transpose: at least two axes are needed, the shape is {shape_of(x)}"))
    return swapaxes(x, -1, -2)


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Return `a` with two axes exchanged.

    >>> swapaxes([[1, 2, 3]], 0, 1).shape
    (3, 1)
    """
    a = as_array_operand(a)
    order = [*range(len(shape_of(a)))]
    first, second = (axis_of("swapaxes", axis, len(order)) for axis in (axis1, axis2))
    order[first], order[second] = order[second], order[first]
    return transposed(a, order)


def moveaxis(a: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    """Return `a` with the axes `source` moved to the places `destination`; the others keep their order.

    >>> import numpy as np
    >>> moveaxis(np.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    a = as_array_operand(a)
    rank = len(shape_of(a))
    lists = [given if isinstance(given, Sequence) else [given] for given in (source, destination)]
    origins, targets = ([axis_of("moveaxis", axis, rank) for axis in axes] for axes in lists)
    if len(origins) != len(targets) or len(set(origins)) != len(origins) or len(set(targets)) != len(targets):
        raise AxisError(at_user_line(f"moveaxis: source {source} and destination {destination}; as many distinct axes "
                                     "in both are needed"))
    order = [axis for axis in range(rank) if axis not in origins]
    for target, origin in sorted(zip(targets, origins, strict=True)):
        order.insert(target, origin)
    return transposed(a, order)


# --- broadcasting -------------------------------------------------------------------------------------------------


def broadcast_to(array: Any, shape: Any, *, out_sharding: Any = None) -> Any:
    """Return `array` repeated along new and size-1 axes to `shape`. Raises `ShapeError` if it does not broadcast.

    >>> broadcast_to(1, (2,))
    array([1, 1])
    """
    if out_sharding is not None:
        return place_array("broadcast_to", broadcast_to(array, shape), out_sharding)
    return broadcast(as_array_operand(array), as_new_shape("broadcast_to", shape))


def broadcast_arrays(*args: Any) -> list[Any]:
    """Return arrays repeated to their common shape.

    >>> [array.shape for array in broadcast_arrays([1, 2], [[1], [2]])]
    [(2, 2), (2, 2)]
    """
    arrays = as_arrays_keeping_dtypes(args)
    common = common_shape("broadcast_arrays", *map(shape_of, arrays))
    return [broadcast(each, common) for each in arrays]


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """Return the shape that arrays of these shapes broadcast to.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    return common_shape("broadcast_shapes", *(as_new_shape("broadcast_shapes", shape) for shape in shapes))


# --- the order of elements ----------------------------------------------------------------------------------------


def flip(m: Any, axis: int | Sequence[int] | None = None) -> Any:
    """Return `m` with its elements in reverse order along `axis` (None: all axes).

    >>> flip([1, 2, 3])
    array([3, 2, 1])
    """
    m = as_array_operand(m)
    return rev(m, axes_of("flip", axis, len(shape_of(m))))


def fliplr(m: Any) -> Any:
    """Return `m` reversed along its second axis.

    >>> fliplr([[1, 2]])
    array([[2, 1]])
    """
    return flip(m, 1)


def flipud(m: Any) -> Any:
    """Return `m` reversed along its first axis.

    >>> flipud([1, 2])
    array([2, 1])
    """
    return flip(m, 0)


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Return `m` turned by 90 degrees `k` times, in the plane from the first to the second of `axes`.

    >>> rot90([[1, 2]])
    array([[2],
           [1]])
    """
    m = as_array_operand(m)
    plane = [axis_of("rot90", axis, len(shape_of(m))) for axis in as_integers("rot90", axes)]
    if len(plane) != 2 or plane[0] == plane[1]:
        raise AxisError(at_user_line(f"rot90: axes {axes}; two that differ are needed"))
    first, second = plane
    turns = as_integer("rot90", k) % 4
    if turns in (0, 2):
        return rev(m, [first, second]) if turns else m
    return swapaxes(flip(m, second), first, second) if turns == 1 else flip(swapaxes(m, first, second), second)
