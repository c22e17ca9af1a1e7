"""Interpolation: the piecewise linear function through given points."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine.frontend.operands import (
    as_numpy_scalars,
    operands,
    promote_beside,
    promote_inexact,
    refuse_complex,
    shape_of,
)
from fxgrad.engine.ops import ordering as sorting
from fxgrad.engine.ops.joining import concatenate, unstack
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy.arithmetic import add, clip, divide, multiply, remainder, subtract
from fxgrad.numpy.elementwise import absolute
from fxgrad.numpy.logic import equal, less, where
from fxgrad.numpy.ordering import searchsorted
from fxgrad.numpy.positions import take_along_one


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Return the piecewise linear function through the points (`xp`, `fp`), `xp` increasing, at `x`.

    Outside of the points it is constant, or `left` and `right`, each a number or `"extrapolate"` for the line through
    the outermost two points. With `period` the function is periodic, and `xp` need not increase. `fp` may be complex.
    Raises `ShapeError` unless `xp` and `fp` are vectors of one size.

    >>> float(interp(1.5, [1.0, 2.0], [10.0, 20.0]))
    15.0
    """
    x, xp, fp = operands(x, xp, fp)
    refuse_complex("interp", x, xp)
    fp, = as_numpy_scalars([promote_beside(fp, x, xp)])
    x, xp = as_numpy_scalars(promote_inexact(x, xp))
    if len(shape_of(xp)) != 1 or shape_of(xp) != shape_of(fp) or not shape_of(xp)[0]:
        raise ShapeError(at_user_line(f"interp: xp and fp of shapes {shape_of(xp)} and {shape_of(fp)}; vectors of one "
                                      "size are needed"))
    for side in (left, right):
        if isinstance(side, str) and side != "extrapolate":
            raise ArgumentError(at_user_line(f"interp: left and right are a number or 'extrapolate', got {side!r}"))
    if period is not None:
        x, xp, fp = _repeat_period(x, xp, fp, period)
    above = clip(searchsorted(xp, x, "right"), 1, max(shape_of(xp)[0] - 1, 1))
    x_low, f_low = (take_along_one(values, subtract(above, 1), 0, "clip") for values in (xp, fp))
    x_high, f_high = (take_along_one(values, above, 0, "clip") for values in (xp, fp))
    gap = subtract(x_high, x_low)
    flat = equal(gap, 0.0)
    part = divide(subtract(x, x_low), where(flat, 1.0, gap))
    result = where(flat, f_low, add(f_low, multiply(part, subtract(f_high, f_low))))
    if period is not None:
        return result
    ends = np.array([0, shape_of(xp)[0] - 1], np.int32)
    (x_first, x_last), (first, last) = (unstack(take_along_one(values, ends, 0, "clip"), 0) for values in (xp, fp))
    if left is None or not isinstance(left, str):
        result = where(less(x, x_first), first if left is None else left, result)
    if right is None or not isinstance(right, str):
        result = where(less(x_last, x), last if right is None else right, result)
    return result


def _repeat_period(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    """Return all positions in one period, in order, with a point of the neighbouring periods on each side."""
    if shape_of(period):
        raise ShapeError(at_user_line(f"interp: period must be a number, its shape is {shape_of(period)}"))
    period = absolute(period)
    x, xp = as_numpy_scalars([remainder(each, period) for each in (x, xp)])
    xp, fp = sorting.sort([xp, fp], 0)
    count = shape_of(xp)[0]
    (x_first, f_first), (x_last, f_last) = (
        [slice_in_dim(values, place, place + 1, 0) for values in (xp, fp)] for place in (0, count - 1))
    return (x, concatenate([subtract(x_last, period), xp, add(x_first, period)], 0),
            concatenate([f_last, fp, f_first], 0))
