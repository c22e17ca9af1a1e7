"""Values between the points of a grid, under the name of jax.scipy.interpolate."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine.core.arrays import wrap_array
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_numpy_scalars,
    inexact_operands,
    is_concrete,
    operand,
    promote_inexact,
    shape_of,
)
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError

__all__ = ["RegularGridInterpolator"]

_METHODS = ("linear", "nearest")


def _check_method(method: Any) -> None:
    if method not in _METHODS:
        raise ArgumentError(at_user_line(f"RegularGridInterpolator: method={method!r}; it is 'linear' or 'nearest'"))


class RegularGridInterpolator:
    """A function of points in n dimensions that has `values` at a grid, and is interpolated between them.

    `points` are the grid coordinates along each axis, each a vector in increasing order; `values` has as many elements
    along its first axes, and any further axes. `method` is `"linear"` (products of straight lines) or `"nearest"` (the
    lower one of two that are equally near). Outside of the grid the value is `fill_value`; with None the outermost
    lines are continued. It has derivatives in the evaluation points, in `values` and in `points`. Raises `ShapeError`
    and `ArgumentError`.

    >>> import numpy as np
    >>> interpolate = RegularGridInterpolator((np.array([0.0, 1.0]), np.array([0.0, 10.0])), np.array([[0.0, 1.0],
    ...                                                                                            [2.0, 3.0]]))
    >>> interpolate(np.array([[0.5, 5.0], [1.0, 10.0], [2.0, 0.0]]))
    array([1.5, 3. , nan])
    """

    def __init__(self, points: Sequence[Any], values: Any, method: str = "linear", bounds_error: bool = False,
                 fill_value: Any = np.nan) -> None:
        _check_method(method)
        if bounds_error:
            raise UnsupportedError(at_user_line("RegularGridInterpolator: bounds_error=True is not supported; outside "
                                                "of the grid the value is fill_value"))
        self.method, self.fill_value = method, fill_value
        self.values = wrap_array(inexact_operands(values)[0])
        self.grid = tuple(as_array_operand(each) for each in points)
        sizes = tuple(shape_of(each) for each in self.grid)
        if len(sizes) > len(shape_of(self.values)) or sizes != tuple(
                (size,) for size in shape_of(self.values)[:len(sizes)]) or (0,) in sizes:
            raise ShapeError(at_user_line(f"RegularGridInterpolator: points of shapes {list(sizes)} for values of "
                                          f"shape {shape_of(self.values)}; a vector for each of the first axes is "
                                          "needed"))
        for axis, places in enumerate(self.grid):
            if is_concrete(places) and not np.all(np.diff(places) > 0):
                raise ArgumentError(at_user_line(f"RegularGridInterpolator: points[{axis}] is not in increasing order"))

    def __call__(self, xi: Any, method: str | None = None) -> Any:
        """Return the values at `xi`, of shape (..., n), or n arrays that broadcast."""
        method = self.method if method is None else method
        _check_method(method)
        count = len(self.grid)
        if isinstance(xi, tuple):
            parts = fnp.broadcast_arrays(*map(operand, xi))
        else:
            xi = fnp.asarray(xi)
            if count == 1 and (len(shape_of(xi)) < 2 or shape_of(xi)[-1] != 1):
                xi = xi[..., None]
            parts = [xi[..., axis] for axis in range(shape_of(xi)[-1])] if shape_of(xi) else []
        if len(parts) != count:
            raise ShapeError(at_user_line(f"RegularGridInterpolator: points in {len(parts)} dimensions on a grid of "
                                          f"{count}; arrays of shape (..., {count}) are needed"))
        shape = shape_of(parts[0])
        behind = len(shape_of(self.values)) - count
        places, shares, outside = [], [], False
        for part, along in zip(parts, self.grid, strict=True):
            x, points = as_numpy_scalars(promote_inexact(fnp.ravel(part), along))
            last = shape_of(points)[0] - 1
            below = fnp.clip(fnp.searchsorted(points, x) - 1, 0, max(last - 1, 0))
            above = fnp.minimum(below + 1, last)
            low, high = (fnp.take(points, place, mode="clip") for place in (below, above))
            share = (x - low) / fnp.where(high == low, 1.0, high - low)
            places.append((below, above))
            shares.append(fnp.reshape(share, (-1, *[1] * behind)))
            outside = outside | (x < points[0]) | (x > points[-1])
        result = self._sum_over_corners(places, shares) if method == "linear" else self._nearest(places, shares)
        if self.fill_value is not None:
            result = fnp.where(fnp.reshape(outside, (-1, *[1] * behind)), self.fill_value, result)
        return fnp.reshape(result, (*shape, *shape_of(self.values)[count:]))

    def _sum_over_corners(self, places: Sequence[tuple[Any, Any]], shares: Sequence[Any]) -> Any:
        """Return the weighted sum over the corners of the cell."""
        total: Any = 0.0
        for corner in itertools.product((0, 1), repeat=len(places)):
            term = self.values[tuple(pair[side] for pair, side in zip(places, corner, strict=True))]
            for side, share in zip(corner, shares, strict=True):
                term = term * (share if side else 1.0 - share)
            total = total + term
        return total

    def _nearest(self, places: Sequence[tuple[Any, Any]], shares: Sequence[Any]) -> Any:
        chosen = [fnp.where(fnp.ravel(share) <= 0.5, below, above)
                  for (below, above), share in zip(places, shares, strict=True)]
        unknown = functools.reduce(operator.or_, map(fnp.isnan, shares))
        return fnp.where(unknown, np.nan, self.values[tuple(chosen)])
