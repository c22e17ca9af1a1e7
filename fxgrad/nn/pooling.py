"""Layers that look at pieces of an array: pooling over windows of space, channels last, and rows of a table."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_axis_size,
    as_integer,
    constant_array,
    inexact_operands,
    is_concrete,
    refuse_complex,
    shape_of,
)
from fxgrad.engine.higher_order.call import library_function_of_arrays
from fxgrad.engine.ops.arithmetic import stop_gradient
from fxgrad.engine.ops.convolution import dilated
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.pool import Sliding, check_sliding, window_max, window_pads, window_sum
from fxgrad.engine.ops.structural import reshape
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from fxgrad.nn.convolution import Numbers, Padding, spatial_numbers, spatial_padding
from fxgrad.numpy.arithmetic import add, divide, floor_divide, minimum, multiply, subtract
from fxgrad.numpy.creation import astype, widen_half
from fxgrad.numpy.logic import equal, less, where
from fxgrad.numpy.positions import without_negatives
from fxgrad.numpy.rearranging import take
from fxgrad.numpy.reductions import sum as sum_of

__all__ = ["adaptive_avg_pool", "avg_pool", "embedding", "max_pool"]

Window = Sequence[int]


# --- pooling --------------------------------------------------------------------------------------------------------


@hide_frames
def max_pool(x: Any, window: Window, *, strides: Numbers | None = None, padding: Padding = "VALID",
             dilation: Numbers = 1) -> Any:
    """Return the greatest element of each window, for each channel: `x` has the shape (..., space, channels).

    `window` has one size for each axis of space, as (2, 2) for images. `strides` are by default the sizes of the
    window, as in PyTorch but not in Flax, where they are 1; they and `dilation` are one number for all axes or one for
    each. `padding` is `"SAME"`, `"VALID"`, a number, or one number or pair (before, after) for each axis; padded
    elements do not count. Along each axis there are (size + padding - reach) // stride + 1 windows. Of equal elements
    the first has the derivative. The result has the dtype of `x`.

    Raises `ShapeError` for fewer axes than the window needs and a window that is too large, `ArgumentError` for invalid
    settings and a padding that contains a whole window, `DTypeError` for complex numbers.

    >>> import numpy as np
    >>> max_pool(np.arange(16.0).reshape(1, 4, 4, 1), (2, 2))[0, :, :, 0]
    array([[ 5.,  7.],
           [13., 15.]])
    """
    x = as_array_operand(x)
    refuse_complex("max_pool", x)
    return _max_pool(x, windows=_windows("max_pool", x, window, strides, padding, dilation))


@functools.partial(library_function_of_arrays, name="max_pool")
def _max_pool(x: Any, *, windows: Sliding) -> Any:
    return window_max(x, windows)


@hide_frames
def avg_pool(x: Any, window: Window, *, strides: Numbers | None = None, padding: Padding = "VALID",
             dilation: Numbers = 1, count_include_pad: bool = True) -> Any:
    """Return the mean of each window, for each channel; the arguments are those of `max_pool`.

    With `count_include_pad` the sum is divided by the size of the window, so that padded elements count as zeros, as in
    PyTorch and Flax; without it by the number of actual elements. Integers become floats; half precision is computed in
    float32. Raises as `max_pool` does, except for complex numbers.

    >>> import numpy as np
    >>> avg_pool(np.arange(4.0).reshape(1, 4, 1), (2,))[0, :, 0]
    array([0.5, 2.5])
    >>> avg_pool(np.ones((1, 4, 1)), (3,), strides=1, padding="SAME", count_include_pad=False)[0, :, 0]
    array([1., 1., 1., 1.])
    """
    x = inexact_operands(x)[0]
    return _avg_pool(x, windows=_windows("avg_pool", x, window, strides, padding, dilation),
                     padded=bool(count_include_pad))


@functools.partial(library_function_of_arrays, name="avg_pool")
def _avg_pool(x: Any, *, windows: Sliding, padded: bool) -> Any:
    wide = widen_half(x)
    total = window_sum(wide, windows)
    if padded:
        count: Any = int(np.prod(windows.window_dimensions))
    else:
        spans = windows.window_dimensions
        space = tuple(size if span > 1 else 1 for size, span in zip(shape_of(x), spans, strict=True))
        # The windows of an array that has size 1 along the axes on which all windows have that size.
        fields = [list(field) for field in windows]
        for axis, span in enumerate(windows.window_dimensions):
            if span == 1:
                for field, one in zip(fields, (1, 1, (0, 0), 1, 1), strict=True):
                    field[axis] = one
        count = window_sum(constant_array(space, 1, aval_of(wide).dtype), Sliding(*map(tuple, fields)))  # type: ignore[arg-type]
    return _as(divide(total, count), x)


def _windows(name: str, x: Any, window: Any, strides: Any, padding: Any, dilation: Any) -> Sliding:
    shape = shape_of(x)
    sizes = _space(name, "window", window, shape)
    rank = len(sizes)
    steps = sizes if strides is None else spatial_numbers(name, "strides", strides, rank)
    holes = spatial_numbers(name, "dilation", dilation, rank)
    space, spans = shape[-1 - rank:-1], tuple(map(dilated, sizes, holes))
    pads = window_pads(space, spans, steps, spatial_padding(name, padding, rank))
    for (low, high), span in zip(pads, spans, strict=True):
        if not (0 <= low < span and 0 <= high < span):
            raise ArgumentError(at_user_line(f"{name}: padding {(low, high)} of windows that reach over {span}; "
                                             "numbers from 0 to below that are needed"))
    before, one = (1,) * (len(shape) - rank - 1), (1,)
    windows = Sliding((*before, *sizes, *one), (*before, *steps, *one),
                      (*((0, 0) for _ in before), *pads, (0, 0)), (1,) * len(shape), (*before, *holes, *one))
    check_sliding(name, aval_of(x), windows)
    counts = windows.result_shape(shape)[-1 - rank:-1]
    if any(not has_symbolic_dim(count) and count == 0 and size for count, size in zip(counts, space, strict=True)):
        raise ShapeError(at_user_line(f"{name}: a window that reaches over {spans} does not fit in an array of shape "
                                      f"{shape}, whose last axis has the channels"))
    return windows


def _space(name: str, setting: str, sizes: Any, shape: Shape) -> tuple[int, ...]:
    if not isinstance(sizes, tuple | list) or not sizes:
        raise ArgumentError(at_user_line(f"{name}: {setting} is {sizes!r}, where a tuple of sizes, one for each axis "
                                         "of space, is needed, such as (2, 2) for images"))
    numbers = spatial_numbers(name, setting, sizes, len(sizes))
    if len(shape) < len(numbers) + 1:
        raise ShapeError(at_user_line(f"{name}: {setting} {numbers} for an array of shape {shape}; {len(numbers)} "
                                      "axes of space and one of channels are needed at its end"))
    return numbers


@hide_frames
def adaptive_avg_pool(x: Any, size: Window) -> Any:
    """Return the means of `size` parts of each axis of space, for each channel: (..., space, channels).

    If an axis of n elements becomes m, part i reaches from i n // m to the ceiling of (i + 1) n / m, as in PyTorch:
    parts overlap if n is not a multiple of m. A size of 1 along each axis is the mean over all of it. Integers become
    floats; half precision is computed in float32. Raises `ShapeError` for fewer axes than `size` needs and for axes
    without elements, `ArgumentError` for a size that is not a tuple of positive integers.

    >>> import numpy as np
    >>> adaptive_avg_pool(np.arange(5.0).reshape(1, 5, 1), (2,))[0, :, 0]
    array([1., 3.])
    """
    x = inexact_operands(x)[0]
    shape = shape_of(x)
    sizes = _space("adaptive_avg_pool", "size", size, shape)
    if 0 in (space := shape[-1 - len(sizes):-1]):
        raise ShapeError(at_user_line(f"adaptive_avg_pool: an array of shape {shape} has no elements along an axis of "
                                      f"space, and there is no mean of none; sizes from 1 on are needed, got {space}"))
    return _adaptive_avg_pool(x, sizes=sizes)


@functools.partial(library_function_of_arrays, name="adaptive_avg_pool")
def _adaptive_avg_pool(x: Any, *, sizes: tuple[int, ...]) -> Any:
    result = widen_half(x)
    for axis, parts in enumerate(sizes, len(shape_of(x)) - 1 - len(sizes)):
        result = _split_windows(result, axis, parts)
    return _as(result, x)


def _split_windows(x: Any, axis: int, parts: int) -> Any:
    shape = shape_of(x)
    before, size, after = shape[:axis], as_axis_size("adaptive_avg_pool", shape[axis]), shape[axis + 1:]
    if size % parts == 0:
        return divide(sum_of(reshape(x, (*before, parts, size // parts, *after)), axis + 1), size // parts)
    longest = max(-(-(part + 1) * size // parts) - part * size // parts for part in range(parts))
    integers = dtypes.int32 if (parts + 1) * size <= np.iinfo(np.int32).max else dtypes.int64
    part, at, ones = iota(integers, (parts, 1), 0), iota(integers, (1, longest), 1), (1,) * len(after)
    starts = floor_divide(multiply(part, size), parts)
    ends = floor_divide(add(multiply(part, size), size + parts - 1), parts)
    places = add(starts, at)  # those of each part, and of the shorter ones some that do not count
    inside = reshape(less(places, ends), (parts, longest, *ones))
    totals = sum_of(where(inside, take(x, minimum(places, size - 1), axis, mode="clip"), 0), axis + 1)
    return divide(totals, reshape(subtract(ends, starts), (parts, *ones)))


def _as(result: Any, x: Any) -> Any:
    dtype = aval_of(x).dtype
    return astype(result, dtype) if aval_of(result).dtype != dtype else result


# --- embedding ------------------------------------------------------------------------------------------------------


@hide_frames
def embedding(table: Any, indices: Any, *, padding_idx: int | None = None) -> Any:
    """Return the rows of `table`, shape (rows, ...), at `indices`, integers of any shape: (shape of the indices, ...).

    The row `padding_idx` gets no gradient, as in PyTorch. Raises `IndexingError` for an index that is out of range,
    negative ones included; in compiled code it gives NaN instead (the least integer, for integers). Raises `DTypeError`
    for indices that are not integers, `ShapeError` for a table without rows.

    >>> import numpy as np, fxgrad
    >>> table = np.array([[0.0, 1.0], [2.0, 3.0]])
    >>> embedding(table, [1, 1, 0])
    array([[2., 3.],
           [2., 3.],
           [0., 1.]])
    >>> fxgrad.grad(lambda table: np.sum(embedding(table, [1, 1, 0], padding_idx=0)))(table)
    array([[0., 0.],
           [2., 2.]])
    """
    table, indices = as_array_operand(table), as_array_operand(indices)
    shape, dtype = shape_of(table), aval_of(indices).dtype
    if not shape:
        raise ShapeError(at_user_line("embedding: the table is a number, where an array of rows is needed"))
    if dtypes.kind_of(dtype) not in "iu":
        raise DTypeError(at_user_line(f"embedding: indices must be integers, got {dtype.name}; convert with "
                                      "indices.astype(int)"))
    # of symbolic size: found out of range at run time
    rows = np.inf if has_symbolic_dim(shape[0]) else shape[0]
    if padding_idx is not None and not 0 <= as_integer("embedding", padding_idx) < rows:
        raise IndexingError(at_user_line(f"embedding: padding_idx is {padding_idx}, where a row from 0 to "
                                         f"{shape[0] - 1} is needed"))
    if is_concrete(indices) and np.size(indices):
        least, most = np.min(indices), np.max(indices)
        if least < 0 or most >= rows:
            raise IndexingError(at_user_line(f"embedding: index {least if least < 0 else most} is no row of a table of "
                                             f"shape {shape}; numbers from 0 to {shape[0] - 1} are needed"))
    return _embedding(table, indices, padding_idx=padding_idx)


@functools.partial(library_function_of_arrays, name="embedding")
def _embedding(table: Any, indices: Any, *, padding_idx: int | None) -> Any:
    taken = take(table, without_negatives("embedding", indices, "fill"), 0, mode="fill")
    if padding_idx is None:
        return taken
    is_padding = reshape(equal(indices, padding_idx), (*shape_of(indices), *(1,) * (len(shape_of(table)) - 1)))
    return where(is_padding, stop_gradient(taken), taken)
