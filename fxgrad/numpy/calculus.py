"""Differences, sums under curves and sliding products: gradient, trapezoid, convolve, correlate, unwrap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_numpy_scalars,
    axes_of,
    axis_of,
    operands,
    promote_beside,
    promote_inexact,
    promote_operands,
    refuse_complex,
    shape_of,
)
from fxgrad.engine.frontend.strict import as_dtype_or_none
from fxgrad.engine.ops.convolution import ConvDimensionNumbers, Geometry
from fxgrad.engine.ops.convolution import convolve as windowed
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.shaping import rev, slice_in_dim
from fxgrad.engine.ops.structural import convert, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError
from fxgrad.numpy.arithmetic import add, divide, multiply, remainder, subtract
from fxgrad.numpy.elementwise import absolute, conjugate
from fxgrad.numpy.logic import equal, greater, less, logical_and, where
from fxgrad.numpy.ordering import cumsum, diff
from fxgrad.numpy.reductions import sum


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Return differences of neighbours in the flattened array, between `to_begin` and `to_end`.

    >>> ediff1d([1, 4, 9], to_end=0)
    array([3, 5, 0])
    """
    ary = as_array_operand(ary)
    flat = reshape(ary, (math.prod(shape_of(ary)),))
    begin, end = (None if end is None else _end(flat, end) for end in (to_begin, to_end))
    parts = promote_operands(*(part for part in (begin, diff(flat), end) if part is not None))
    return parts[0] if len(parts) == 1 else concatenate(parts, 0)


def _end(flat: Any, values: Any) -> Any:
    """Return a caller's values as a vector, in the dtype of `flat` unless that is weak."""
    values = as_array_operand(values)
    values = reshape(values, (math.prod(shape_of(values)),))
    aval = aval_of(flat)
    return values if aval.weak else convert(values, aval.dtype)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """Return the area under the lines through the elements of `y` along `axis`, at positions `x` or `dx` apart.

    `x` has the shape of `y`, or is a vector along `axis`.

    >>> float(trapezoid([1.0, 2.0, 3.0], dx=0.5))
    2.0
    """
    y = promote_beside(y, dx if x is None else x)
    at = axis_of("trapezoid", axis, len(shape_of(y)))
    extent = shape_of(y)[at]
    steps = dx
    if x is not None:
        x = _positions(x)
        if len(shape_of(x)) == 1:
            steps = reshape(diff(x), (max(shape_of(x)[0] - 1, 0), *(1,) * (len(shape_of(y)) - at - 1)))
        else:
            steps = diff(x, axis=axis)
    later, earlier = slice_in_dim(y, min(1, extent), extent, at), slice_in_dim(y, 0, max(extent - 1, 0), at)
    return sum(multiply(multiply(steps, add(later, earlier)), 0.5), at)


def _positions(x: Any) -> Any:
    """Return positions of which there will be differences: those of narrow and of unsigned integers would wrap."""
    x = as_array_operand(x)
    return x if dtypes.is_inexact(aval_of(x).dtype) else convert(x, dtypes.int64)


def gradient(f: Any, *varargs: Any, axis: int | Sequence[int] | None = None, edge_order: int | None = None) -> Any:
    """Return slopes along each axis (or those given) from the neighbours on both sides, at the ends from one side.

    There it is the slope to the neighbour, or for an `edge_order` of 2 that of the parabola through three elements.

    Elements are 1 apart, or as given: a number for all axes, or for each axis a number or the positions of the
    elements. The result is one array, or a list of one for each axis. (Numerical differences: `fxgrad.grad` is exact.)
    Raises `ShapeError` for axes of fewer than 2 elements, or 3 for an `edge_order` of 2, `UnsupportedError` for others.

    >>> gradient([1.0, 2.0, 4.0])
    array([1. , 1.5, 2. ])
    """
    if edge_order not in (None, 1, 2):
        raise UnsupportedError(at_user_line(f"gradient: edge_order={edge_order} is not supported; 1 and 2 are"))
    f = promote_beside(f, *varargs)
    shape = shape_of(f)
    axes = axes_of("gradient", axis, len(shape)) if not isinstance(axis, Sequence) else \
        tuple(axis_of("gradient", each, len(shape)) for each in axis)
    if len(varargs) not in (0, 1, len(axes)):
        raise ArgumentError(at_user_line(f"gradient: {len(varargs)} distances for {len(axes)} axes; none, one for all, "
                                         "or one for each is needed"))
    if len(varargs) == 1 and len(axes) > 1 and shape_of(as_array_operand(varargs[0])):
        raise ArgumentError(at_user_line("gradient: positions for one axis only; one array for each axis is needed"))
    distances = list(varargs) * (len(axes) if len(varargs) == 1 else 1) or [1.0] * len(axes)
    slopes = [_slopes(f, at, distance, edge_order or 1) for at, distance in zip(axes, distances, strict=True)]
    return slopes[0] if len(slopes) == 1 else slopes


def _slopes(f: Any, at: int, distance: Any, edge_order: int) -> Any:
    shape = shape_of(f)
    extent = shape[at]
    if extent < edge_order + 1:
        raise ShapeError(at_user_line(
            f"gradient: axis {at} of size {extent}; at least {edge_order + 1} elements are needed"))

    def part(start: int, stop: int) -> Any:
        return slice_in_dim(f, start, stop, at)

    if not shape_of(as_array_operand(distance)):
        def step(place: int) -> Any:
            return divide(subtract(part(place + 1, place + 2), part(place, place + 1)), distance)

        inner = divide(subtract(part(2, extent), part(0, extent - 2)), multiply(2.0, distance))
        shares: list[Any] = [0.5, 0.5]
    else:
        positions = _positions(distance)
        if shape_of(positions) != (extent,):
            raise ShapeError(at_user_line(f"gradient: positions of shape {shape_of(positions)} for axis {at} of size "
                                          f"{extent}; a position for each element is needed"))
        gaps = reshape(diff(positions), (extent - 1, *(1,) * (len(shape) - at - 1)))
        steps = divide(subtract(part(1, extent), part(0, extent - 1)), gaps)

        def step(place: int) -> Any:
            return slice_in_dim(steps, place, place + 1, at)

        # The slope of the parabola through three points: that of each side, weighted by the gap on the other side.
        before, behind = slice_in_dim(gaps, 0, extent - 2, 0), slice_in_dim(gaps, 1, extent - 1, 0)
        inner = divide(add(multiply(slice_in_dim(steps, 0, extent - 2, at), behind),
                           multiply(slice_in_dim(steps, 1, extent - 1, at), before)), add(before, behind))
        shares = [slice_in_dim(divide(near, add(before, behind)), place, place + 1, 0) for near, place in (
            (before, 0), (behind, extent - 3))] if edge_order == 2 else []
    ends = [step(0), step(extent - 2)]
    if edge_order == 2:
        beside = [step(1), step(extent - 3)]
        ends = [add(near, multiply(subtract(near, far), share))
                for near, far, share in zip(ends, beside, shares, strict=True)]
    return concatenate(promote_operands(ends[0], inner, ends[1]), at)


# --- sliding products ---------------------------------------------------------------------------------------------


def convolve(a: Any, v: Any, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the sums of products of a vector with another, reversed one that slides along it.

    `mode` selects the positions: `"full"` all where they overlap, `"same"` as many as the longer one has elements,
    `"valid"` those where the shorter one lies within the longer. Integers become floats. Raises `ShapeError` unless
    both are vectors with elements.

    >>> convolve([1.0, 2.0, 3.0], [1.0, 10.0])
    array([ 1., 12., 23., 30.])
    """
    return _slide("convolve", a, v, mode, precision, preferred_element_type, turned=True)


def correlate(a: Any, v: Any, mode: str = "valid", *, precision: Any = None,
              preferred_element_type: Any = None) -> Any:
    """Return the sums of products of a vector with another (conjugated) that slides along it: not reversed.

    >>> correlate([1.0, 2.0, 3.0], [1.0, 10.0])
    array([21., 32.])
    """
    return _slide("correlate", a, v, mode, precision, preferred_element_type, turned=False)


def _slide(name: str, a: Any, v: Any, mode: str, precision: Any, preferred: Any, turned: bool) -> Any:
    wanted = as_dtype_or_none(preferred)
    a, v = as_numpy_scalars(promote_operands(*operands(a, v)) if wanted is not None and dtypes.kind_of(wanted) in "iu"
                            else
                            promote_inexact(*operands(a, v)))
    if len(shape_of(a)) != 1 or len(shape_of(v)) != 1 or not shape_of(a)[0] or not shape_of(v)[0]:
        raise ShapeError(at_user_line(f"{name}: arrays of shapes {shape_of(a)} and {shape_of(v)}; vectors with "
                                      "elements are needed"))
    if mode not in ("full", "same", "valid"):
        raise ArgumentError(at_user_line(f"{name}: mode must be 'full', 'same' or 'valid', got {mode!r}"))
    v = rev(v, (0,)) if turned else conjugate(v)
    # The shorter slides along the longer; which one moved is undone by turning the result round.
    swapped = shape_of(a)[0] < shape_of(v)[0]
    longer, shorter = (v, a) if swapped else (a, v)
    size = shape_of(shorter)[0]
    widths = {"full": (size - 1, size - 1), "same": (size // 2, size - size // 2 - 1), "valid": (0, 0)}[mode]
    if swapped and turned:  # NumPy reverses the whole of such a correlation, and so its shorter operand too
        widths = widths[::-1]
    numbers = ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2))
    geometry = Geometry((1,), (widths,), (1,), (1,), (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec), 1, 1)
    result = windowed(reshape(longer, (1, 1, shape_of(longer)[0])), reshape(shorter, (1, 1, size)), geometry, precision,
                      wanted)
    flat = reshape(result, (shape_of(result)[2],))
    return rev(flat, (0,)) if swapped else flat


def unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = 2 * math.pi) -> Any:
    """Return `p` with whole periods added along `axis`, so that neighbours differ by half a period at most.

    Only jumps greater than `discont` (by default half a period) are corrected.

    >>> [round(float(angle), 4) for angle in unwrap([0.0, 3.0, -3.0])]
    [0.0, 3.0, 3.2832]
    """
    p = as_array_operand(p)
    refuse_complex("unwrap", p)
    at = axis_of("unwrap", axis, len(shape_of(p)))
    if not dtypes.is_inexact(aval_of(p).dtype) and not isinstance(period, int):
        p, = promote_inexact(p)
    extent = shape_of(p)[at]
    if extent < 2:
        return p
    whole = isinstance(period, int) and not dtypes.is_inexact(aval_of(p).dtype)
    half = period // 2 if whole else divide(period, 2)
    steps = diff(p, axis=at)
    folded = subtract(remainder(add(steps, half), period), half)
    if not whole or period % 2 == 0:
        # A jump of just half a period upward stays upward.
        edge = multiply(half, -1)
        folded = where(logical_and(equal(folded, edge), greater(steps, 0)), half, folded)
    added = subtract(folded, steps)
    limit = half if discont is None else discont
    added = where(less(absolute(steps), limit), 0, added)
    added = convert(added, aval_of(p).dtype, aval_of(p).weak)
    first, rest = slice_in_dim(p, 0, 1, at), slice_in_dim(p, 1, extent, at)
    return concatenate(promote_operands(first, add(rest, cumsum(added, at))), at)
