"""Padding: every mode reads elements of the array in some order, as runs of slices, reversals and repetitions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_dtype,
    as_integer,
    axis_of,
    is_concrete,
    operand,
    shape_of,
)
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.shaping import pad as padded
from fxgrad.engine.ops.shaping import rev, slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError
from fxgrad.numpy import reductions
from fxgrad.numpy.applying import apply_along_axis
from fxgrad.numpy.elementwise import rint
from fxgrad.numpy.products import tensordot
from fxgrad.numpy.quantiles import median
from fxgrad.numpy.shaping import flip, moveaxis, squeeze
from fxgrad.numpy.spaced import linspace
from fxgrad.numpy.statistics import mean

_READING = ("edge", "reflect", "symmetric", "wrap")
_STATISTICS: dict[str, Callable[..., Any]] = {"maximum": reductions.max, "minimum": reductions.min, "mean": mean,
                                               "median": median}
_OPTIONS = {"constant": {"constant_values"}, "reflect": {"reflect_type"}, "symmetric": {"reflect_type"},
            "linear_ramp": {"end_values"}, **{name: {"stat_length"} for name in _STATISTICS}}


def pad(array: Any, pad_width: Any, mode: str | Callable[..., Any] = "constant", **options: Any) -> Any:
    """Return `array` with elements added before and after along its axes.

    `pad_width` is n, (before, after), or such a pair for each axis; or a dictionary of n or (before, after) by axis.

    `mode` selects the elements: `"constant"` (`constant_values`, by default 0, in the same forms), `"edge"`,
    `"reflect"`, `"symmetric"` (`reflect_type`), `"wrap"`, `"linear_ramp"` (`end_values`), `"maximum"`, `"mean"`,
    `"median"`, `"minimum"` (`stat_length`), `"empty"` (zeros), as in NumPy; or a function of (vector padded with zeros,
    widths, axis, options) that returns the vector. Raises `ShapeError` for widths that do not fit, `UnsupportedError`
    for other modes.

    >>> pad([1, 2, 3], (2, 0), "reflect")
    array([3, 2, 1, 2, 3])
    """
    array = as_array_operand(array)
    rank = len(shape_of(array))
    if isinstance(pad_width, dict):
        by_axis: list[Any] = [(0, 0)] * rank
        for axis, width in pad_width.items():
            by_axis[axis_of("pad", axis, rank)] = _pairs("pad_width", width, 1)[0]
        pad_width = by_axis
    widths = [(as_integer("pad", low), as_integer("pad", high)) for low, high in _pairs("pad_width", pad_width, rank)]
    if any(width < 0 for pair in widths for width in pair):
        raise ShapeError(at_user_line(f"pad: pad_width {pad_width!r} has negative entries; cut off with a slice"))
    if callable(mode):
        result = _constant(array, widths, 0)
        for axis, width in enumerate(widths):
            result = apply_along_axis(mode, axis, result, width, axis, options)
        return result
    unknown = sorted(set(options) - _OPTIONS.get(mode, set()))
    if unknown:
        raise ArgumentError(at_user_line(f"pad: mode {mode!r} has no option {', '.join(unknown)}"))
    if mode == "constant":
        return _constant(array, widths, options.get("constant_values", 0))
    if mode == "empty":
        return _constant(array, widths, 0)
    if mode not in (*_READING, *_OPTIONS) or options.get("reflect_type", "even") not in ("even", "odd"):
        given = "".join(f", {key}={value!r}" for key, value in options.items())
        raise UnsupportedError(at_user_line(f"pad: mode={mode!r}{given} is not supported; there are 'empty', "
                                            f"{', '.join(map(repr, dict.fromkeys((*_OPTIONS, *_READING))))}, and "
                                            "functions"))
    ends = _pairs("end_values", options.get("end_values", 0), rank)
    lengths = _pairs("stat_length", options.get("stat_length"), rank)
    if mode in _STATISTICS and any(length is not None and length < (mode in ("maximum", "minimum"))
                                   for pair in lengths for length in pair):
        raise ArgumentError(at_user_line(f"pad: stat_length={options['stat_length']!r}; numbers from 1 on are needed"))
    for axis, width in enumerate(widths):
        if width == (0, 0):
            continue
        if shape_of(array)[axis] == 0:
            raise ShapeError(at_user_line(
                f"pad: mode {mode!r} along axis {axis} of size 0, which has no elements to read"))
        if mode == "linear_ramp":
            array = _ramp(array, axis, width, ends[axis])
        elif mode in _STATISTICS:
            array = _statistic(array, axis, width, _STATISTICS[mode], lengths[axis])
        elif options.get("reflect_type") == "odd":
            array = _mirror(array, axis, width, mode)
        else:
            array = _read(array, axis, width, mode)
    return array


def _ramp(array: Any, axis: int, width: tuple[int, int], ends: tuple[Any, Any]) -> Any:
    """Evenly from the end values to the elements at the edges."""
    extent, dtype = shape_of(array)[axis], aval_of(array).dtype
    first, last = slice_in_dim(array, 0, 1, axis), slice_in_dim(array, extent - 1, extent, axis)
    before = linspace(ends[0], first, int(width[0]), endpoint=False, dtype=dtype)
    behind = linspace(ends[1], last, int(width[1]), endpoint=False, dtype=dtype)
    parts = [squeeze(moveaxis(part, 0, axis), axis + 1) for part in (before, flip(behind, 0))]
    return concatenate([parts[0], array, parts[1]], axis)


def _statistic(array: Any, axis: int, width: tuple[int, int], function: Callable[..., Any],
               lengths: tuple[Any, Any]) -> Any:
    """Return the function's values at the elements of each side, all of them or the number in `lengths`."""
    shape, dtype = shape_of(array), aval_of(array).dtype
    extent = shape[axis]
    parts = []
    for length, count, first in ((lengths[0], width[0], True), (lengths[1], width[1], False)):
        size = extent if length is None else min(int(length), extent)
        chosen = slice_in_dim(array, 0 if first else extent - size, size if first else extent, axis)
        value = function(chosen, axis=axis, keepdims=True)
        value = as_dtype(rint(value) if dtypes.kind_of(dtype) in "iu" else value, dtype)
        parts.append(broadcast_to(value, (*shape[:axis], int(count), *shape[axis + 1:])))
    return concatenate([parts[0], array, parts[1]], axis)


def _mirror(array: Any, axis: int, width: tuple[int, int], mode: str) -> Any:
    """Reflection through the point at the edge: each new element is a sum of old ones, by weights that NumPy gives."""
    extent, dtype = shape_of(array)[axis], aval_of(array).dtype
    weights = np.pad(np.eye(extent), ((int(width[0]), int(width[1])), (0, 0)), mode,  # type: ignore[call-overload]
                     reflect_type="odd").astype(dtype)
    return moveaxis(tensordot(weights, array, ([1], [axis])), 0, axis)


def _pairs(name: str, given: Any, rank: int) -> list[tuple[Any, Any]]:
    """Return (before, behind) for each axis."""
    if isinstance(given, np.ndarray) and not given.ndim:
        given = given[()]
    if isinstance(given, Sequence | np.ndarray) and [each for each in given if isinstance(each, Sequence | np.ndarray)]:
        pairs = [tuple(each) for each in given]
    else:
        pairs = [tuple(given) if isinstance(given, Sequence | np.ndarray) else (given,)]
    pairs = [pair * 2 if len(pair) == 1 else pair for pair in pairs]
    pairs = pairs * rank if len(pairs) == 1 else pairs
    if len(pairs) != rank or any(len(pair) != 2 for pair in pairs):
        raise ShapeError(at_user_line(f"pad: {name} {given!r} for an array with {rank} axes; a number, a pair, or a "
                                      "pair for each axis is needed"))
    return [(pair[0], pair[1]) for pair in pairs]


def _constant(array: Any, widths: list[tuple[int, int]], values: Any) -> Any:
    dtype = aval_of(array).dtype
    rank = len(widths)
    if not isinstance(values, Sequence | np.ndarray) or not np.ndim(values):
        return padded(array, _scalar(values, dtype), [(low, high, 0) for low, high in widths])
    for axis, (pair, ends) in enumerate(zip(widths, _pairs("constant_values", values, rank), strict=True)):
        for low, high, value in ((int(pair[0]), 0, ends[0]), (0, int(pair[1]), ends[1])):
            config = [(low, high, 0) if at == axis else (0, 0, 0) for at in range(rank)]
            array = padded(array, _scalar(value, dtype), config)
    return array


def _scalar(value: Any, dtype: Any) -> Any:
    value = operand(value)
    return np.asarray(value).astype(dtype)[()] if is_concrete(value) else as_dtype(value, dtype)


def _read(array: Any, axis: int, width: tuple[int, int], mode: str) -> Any:
    extent = operator.index(shape_of(array)[axis])
    order = np.pad(np.arange(extent), (int(width[0]), int(width[1])), mode)  # type: ignore[call-overload]
    return concatenate([_run(array, axis, run) for run in _runs(order.tolist())], axis)


def _runs(order: list[int]) -> list[list[int]]:
    """Split the order where the step between elements changes: into runs of steps 1, -1 and 0."""
    runs = [[order[0]]]
    for value in order[1:]:
        last = runs[-1]
        step = value - last[-1]
        if abs(step) <= 1 and (len(last) == 1 or step == last[-1] - last[-2]):
            last.append(value)
        else:
            runs.append([value])
    return runs


def _run(array: Any, axis: int, run: list[int]) -> Any:
    first, last = run[0], run[-1]
    part = slice_in_dim(array, min(first, last), max(first, last) + 1, axis)
    if first == last and len(run) > 1:
        shape = shape_of(array)
        return broadcast_to(part, (*shape[:axis], len(run), *shape[axis + 1:]))
    return rev(part, [axis]) if last < first else part
