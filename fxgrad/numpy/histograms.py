"""Counting: how many elements fall into each bin, or are each whole number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_integer,
    as_numpy_scalars,
    constant_array,
    is_concrete,
    operands,
    promote_inexact,
    refuse_complex,
    require_concrete,
    shape_of,
)
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.ops.indexing import scatter
from fxgrad.engine.ops.joining import stack, unstack
from fxgrad.engine.ops.shaping import rev, slice_in_dim
from fxgrad.engine.ops.structural import convert, reshape
from fxgrad.engine.ops.windows import Windows
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, ShapeError
from fxgrad.numpy.arithmetic import add, divide, maximum, multiply, subtract
from fxgrad.numpy.logic import equal, greater_equal, where
from fxgrad.numpy.ordering import diff, searchsorted
from fxgrad.numpy.python_numbers import are_python_numbers
from fxgrad.numpy.reductions import max, min, sum
from fxgrad.numpy.shaping import atleast_2d, transpose
from fxgrad.numpy.spaced import linspace


def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None,
             out_sharding: Any = None) -> Any:
    """Return how often each integer from 0 on occurs in a vector (int32), or the sum of its `weights`; bools count.

    Without `length` there are as many counts as needed, at least `minlength`, and the values must be known. With it
    integers from `length` on are dropped. Negative ones count as 0. Raises `DTypeError` unless they are integers.

    >>> bincount([1, 1, 3])
    array([0, 2, 0, 1], dtype=int32)
    """
    if out_sharding is not None:
        return place_array("bincount", bincount(x, weights, minlength, length=length), out_sharding)
    x = as_array_operand(x)
    if len(shape_of(x)) != 1:
        raise ShapeError(at_user_line(f"bincount: a vector is needed, the shape is {shape_of(x)}"))
    if not shape_of(x)[0] and is_concrete(x):
        x = np.asarray(x).astype(np.int32)
    if dtypes.kind_of(aval_of(x).dtype) not in "iub":
        raise DTypeError(at_user_line(f"bincount: integers are needed, got {aval_of(x).dtype.name}; convert with "
                                      "x.astype(int)"))
    minlength = as_integer("bincount", minlength)
    weights = constant_array(shape_of(x), 1, dtypes.int32) if weights is None else as_array_operand(weights)
    if shape_of(weights) != shape_of(x):
        raise ShapeError(at_user_line(f"bincount: weights of shape {shape_of(weights)} for a vector of shape "
                                      f"{shape_of(x)}; equal shapes are needed"))
    if aval_of(weights).dtype == dtypes.bool_:
        weights = convert(weights, dtypes.int32)
    if length is None:
        known = require_concrete(x,
                                 "np.bincount, whose result has a size that depends on the values (or give length=),")
        count = int(known.max()) + 1 if known.size else 0
        length = count if count > minlength else minlength
    return _add_weights(maximum(convert(x, dtypes.int32), 0), weights, as_integer("bincount", length))


def _add_weights(places: Any, weights: Any, length: int) -> Any:
    """Return the sums of weights by position; positions beyond are dropped."""
    start = constant_array((length,), 0, aval_of(weights).dtype)
    count = shape_of(places)[0]
    if not length or not count:
        return start
    return scatter(start, reshape(places, (count, 1)), weights, Windows((), (0,), (0,)), combine="add", mode="fill")


def digitize(x: Any, bins: Any, right: bool = False, *, method: str | None = None) -> Any:
    """Return the number (int32) of each element's bin; `bins` are the edges, increasing or decreasing.

    0 is below the first edge. An edge belongs to the bin that it begins, or with `right` to the one that it ends.
    `method` is that of `searchsorted`.

    >>> digitize([0.5, 1.0, 7.0], [1.0, 2.0])
    array([0, 1, 2], dtype=int32)
    """
    x, bins = operands(x, bins)
    if len(shape_of(bins)) != 1:
        raise ShapeError(at_user_line(f"digitize: bins must be a vector, its shape is {shape_of(bins)}"))
    count = shape_of(bins)[0]
    if not count:
        return constant_array(shape_of(x), 0, dtypes.int32)
    side = "left" if right else "right"
    how = method or "scan"
    first, last = (reshape(slice_in_dim(bins, place, place + 1, 0), ()) for place in (0, count - 1))
    increasing = greater_equal(last, first)
    upward = searchsorted(bins, x, side, method=how)
    if is_concrete(increasing) and increasing:
        return upward
    return where(increasing, upward, subtract(np.int32(count), searchsorted(rev(bins, (0,)), x, side, method=how)))


# --- histograms ---------------------------------------------------------------------------------------------------


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """Return the edges of that many bins of equal width from the least element to the greatest, or over `range`.

    Edges given as an array are returned unchanged. Raises `ArgumentError` for names of rules, and for known edges that
    do not increase.

    >>> histogram_bin_edges([0.0, 1.0, 4.0], bins=2)
    array([0., 2., 4.])
    """
    del weights  # only rules by name would look at them
    a, = as_numpy_scalars(promote_inexact(*operands(a)))
    refuse_complex("histogram", a)
    if isinstance(bins, str):
        raise ArgumentError(at_user_line(f"histogram: bins={bins!r}; a number of bins, or their edges, is needed"))
    if isinstance(bins, Sequence) or bool(shape_of(bins)):
        bins = as_array_operand(bins)
        if is_concrete(bins) and not np.all(np.diff(np.asarray(bins)) >= 0):
            raise ArgumentError(at_user_line(f"histogram: bins must increase, got {np.asarray(bins).tolist()}"))
        return promote_inexact(a, bins)[1] if aval_of(a).weak else convert(bins, aval_of(a).dtype)
    count = as_integer("histogram", bins)
    if count < 1:
        raise ArgumentError(at_user_line(f"histogram: bins={count}; a number from 1 on is needed"))
    dtype = aval_of(a).dtype
    if range is not None:
        if are_python_numbers(range) and range[0] != range[1]:
            return convert(linspace(range[0], range[1], count + 1, dtype=dtype), dtype, aval_of(a).weak)  # rounded once
        low, high = (convert(as_array_operand(bound), dtype) for bound in range)
    elif 0 in shape_of(a):
        low, high = dtype.type(0), dtype.type(1)
    else:
        low, high = min(a), max(a)
    flat = equal(low, high)
    low, high = where(flat, subtract(low, 0.5), low), where(flat, add(high, 0.5), high)
    return convert(linspace(low, high, count + 1, dtype=dtype), dtype, aval_of(a).weak)


def histogram(a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None) -> Any:
    """Return how many elements are in each bin, and the edges of the bins; the counts are floats, as in jax.

    `bins` and `range` as in `histogram_bin_edges`; each bin holds its lower edge, the last one its upper edge too. With
    `weights` elements count by their weights; with `density` the sum over all bins, times their widths, is 1.

    >>> counts, edges = histogram([0.0, 1.0, 1.0, 4.0], bins=2)
    >>> counts
    array([3., 1.])
    """
    a, = as_numpy_scalars(promote_inexact(*operands(a)))
    edges = histogram_bin_edges(a, bins, range, weights)
    weights = constant_array(shape_of(a), 1, aval_of(a).dtype) if weights is None else as_array_operand(weights)
    if shape_of(weights) != shape_of(a):
        raise ShapeError(at_user_line(f"histogram: weights of shape {shape_of(weights)} for an array of shape "
                                      f"{shape_of(a)}; equal shapes are needed"))
    size = math.prod(shape_of(a))
    counts = _add_weights(_bins(edges, reshape(a, (size,))), reshape(weights, (size,)), shape_of(edges)[0])
    counts = slice_in_dim(counts, 1, shape_of(edges)[0], 0)
    return (divide(divide(counts, diff(edges)), sum(counts)) if density else counts), edges


def _bins(edges: Any, x: Any) -> Any:
    """Return the number of each element's bin, counted from 1; 0 is below all, too large numbers above all."""
    count = shape_of(edges)[0]
    last = slice_in_dim(edges, count - 1, count, 0)
    return where(equal(x, last), np.int32(count - 1), searchsorted(edges, x, "right"))


def histogramdd(sample: Any, bins: Any = 10, range: Any = None, weights: Any = None,
                density: bool | None = None) -> tuple[Any, list[Any]]:
    """Return how many points, the rows of `sample`, are in each box of a grid, and the edges along each axis.

    A list instead of an array holds the coordinates: `[x, y]` is two vectors, as in NumPy.

    `bins` and `range` as in `histogram`, or one for each column; the counts are int32, of the dtype of `weights`, or
    with `density` floats whose sum, times the sizes of the boxes, is 1. Raises `ShapeError` unless
    `sample` is a matrix.

    >>> counts, edges = histogramdd([[0.0, 1.0, 1.0], [0.0, 1.0, 0.9]], bins=2)
    >>> counts
    array([[1, 0],
           [0, 2]], dtype=int32)
    """
    sample = transpose(atleast_2d(sample)) if isinstance(sample, list | tuple) else as_array_operand(sample)
    if len(shape_of(sample)) != 2:
        raise ShapeError(at_user_line(f"histogramdd: a matrix of points is needed, the shape is {shape_of(sample)}"))
    rows, width = shape_of(sample)
    columns = unstack(as_numpy_scalars(promote_inexact(sample))[0], 1)
    each = list(bins) if isinstance(bins, Sequence) else [bins] * width
    ranges = [None] * width if range is None else list(range)
    if len(each) != width or len(ranges) != width:
        raise ShapeError(at_user_line(f"histogramdd: {len(each)} bins and {len(ranges)} ranges for points of {width} "
                                      "coordinates; one for all, or one for each, is needed"))
    edges = [histogram_bin_edges(column, number, extent) for column, number, extent in
             zip(columns, each, ranges, strict=True)]
    counts = [shape_of(part)[0] + 1 for part in edges]
    place: Any = constant_array((rows,), 0, dtypes.int32)
    for column, part, count in zip(columns, edges, counts, strict=True):
        place = add(multiply(place, count), _bins(part, column))
    weights = constant_array((rows,), 1, dtypes.int32) if weights is None else as_array_operand(weights)
    result: Any = reshape(_add_weights(place, weights, math.prod(counts)), tuple(counts))
    for axis, count in enumerate(counts):
        result = slice_in_dim(result, 1, count - 1, axis)
    if density:
        result = as_numpy_scalars(promote_inexact(result, *edges))[0]  # two counts would make the default dtype
        result = divide(result, sum(result))
        for axis, part in enumerate(edges):
            result = divide(result, reshape(diff(part), (shape_of(part)[0] - 1, *(1,) * (width - axis - 1))))
    return result, edges


def histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, weights: Any = None,
                density: bool | None = None) -> tuple[Any, Any, Any]:
    """Return how many points with coordinates `x` and `y` are in each box of a grid, and the edges along both axes.

    `bins` is a number or edges for both axes, or a pair of them; everything else is as in `histogramdd`.

    >>> histogram2d([0.0, 1.0, 1.0], [0.0, 1.0, 0.9], bins=2)[0]
    array([[1, 0],
           [0, 2]], dtype=int32)
    """
    x, y = as_numpy_scalars(promote_inexact(*operands(x, y)))
    if len(shape_of(x)) != 1 or shape_of(x) != shape_of(y):
        raise ShapeError(at_user_line(f"histogram2d: arrays of shapes {shape_of(x)} and {shape_of(y)}; vectors of one "
                                      "size are needed"))
    if type(bins) is Tracer or not isinstance(bins, Sequence) or len(bins) != 2:
        bins = [bins, bins]
    counts, edges = histogramdd(stack([x, y], 1), bins, range, weights, density)
    return counts, edges[0], edges[1]
