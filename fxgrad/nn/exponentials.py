"""The functions of `jax.nn` of sums of exponentials, and of means and variances: softmax and others, standardize."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_axis_size,
    axes_of,
    axis_of,
    common_shape,
    inexact_operands,
    operand,
    shape_of,
)
from fxgrad.engine.higher_order.call import library_function
from fxgrad.engine.ops.arithmetic import stop_gradient
from fxgrad.engine.ops.comparison import eq
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.exponential import rsqrt
from fxgrad.engine.ops.reductions import reduce_max
from fxgrad.engine.ops.structural import broadcast_to, convert, reshape
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError
from fxgrad.numpy.arithmetic import add, divide, maximum, multiply, subtract
from fxgrad.numpy.creation import astype, widen_half
from fxgrad.numpy.elementwise import absolute, exp, log, real, sign, square
from fxgrad.numpy.logic import isfinite, less, not_equal
from fxgrad.numpy.logic import where as choose
from fxgrad.numpy.reductions import any as any_of
from fxgrad.numpy.reductions import kept_shape
from fxgrad.numpy.reductions import sum as sum_of
from fxgrad.numpy.statistics import mean as mean_of
from fxgrad.numpy.types import result_type

__all__ = ["log_softmax", "logmeanexp", "logsumexp", "one_hot", "softmax", "standardize"]

Axis = int | Sequence[int] | None


def _inexact(x: Any) -> Any:
    return inexact_operands(x)[0]


# --- softmax --------------------------------------------------------------------------------------------------------


@hide_frames
def softmax(x: Any, axis: Axis = -1, where: Any = None) -> Any:
    """Return exp(x) divided by its sum over `axis` (an int, several, or None for all): positive, and 1 in sum.

    Only elements where `where` is true count; the others become 0. Integers become floats. Nothing overflows; an
    infinity, and a whole row of minus infinities, give NaN, as inf / inf does.

    >>> softmax([0.0, 0.0, -1000.0])
    array([0.5, 0.5, 0. ])
    """
    x = _inexact(x)
    axes = axes_of("softmax", axis, len(shape_of(x)))
    return _softmax(x, axes) if where is None else _softmax_where(x, axes, as_array_operand(where))


@functools.partial(library_function, name="softmax")
def _softmax(x: Any, axes: tuple[int, ...]) -> Any:
    exponentials = exp(subtract(x, _peak(x, axes)))
    return divide(exponentials, sum_of(exponentials, axes, keepdims=True))


def _peak(x: Any, axes: tuple[int, ...], where: Any = None) -> Any:
    """Return the maximum with its axes kept, minus infinity of nothing; results do not depend on it: no derivative."""
    inside = x if where is None else choose(where, x, -math.inf)
    return reshape(stop_gradient(reduce_max(inside, axes)), kept_shape(shape_of(x), axes))


def _softmax_where(x: Any, axes: tuple[int, ...], where: Any) -> Any:
    inside = choose(where, x, -math.inf)
    # Rows without counted elements are 0, and so are their derivatives: no 0 / 0 is computed on the way.
    counts = any_of(_over(where, x), axes, keepdims=True)
    peak = choose(counts, _peak(x, axes, where), 0.0)
    exponentials = exp(subtract(inside, peak))
    total = choose(counts, sum_of(exponentials, axes, keepdims=True), 1.0)
    return choose(where, divide(exponentials, total), 0.0)


def _over(where: Any, x: Any) -> Any:
    """Return `where` broadcast to the shape of `x`."""
    return broadcast_to(where, common_shape("where", shape_of(where), shape_of(x)))


@hide_frames
def log_softmax(x: Any, axis: Axis = -1, where: Any = None) -> Any:
    """Return the logarithm of `softmax`, exact also where that underflows to 0; minus infinity where nothing counts.

    The arguments are those of `softmax`.

    >>> log_softmax([0.0, -1000.0])
    array([    0., -1000.])
    """
    x = _inexact(x)
    axes = axes_of("log_softmax", axis, len(shape_of(x)))
    if where is None:
        return _log_softmax(x, axes)
    where = as_array_operand(where)
    counts = any_of(_over(where, x), axes, keepdims=True)
    shifted = subtract(choose(where, x, -math.inf), choose(counts, _peak(x, axes, where), 0.0))
    total = choose(counts, sum_of(exp(shifted), axes, keepdims=True), 1.0)
    return choose(where, subtract(shifted, log(total)), -math.inf)


@functools.partial(library_function, name="log_softmax")
def _log_softmax(x: Any, axes: tuple[int, ...]) -> Any:
    shifted = subtract(x, _peak(x, axes))
    return subtract(shifted, log(sum_of(exp(shifted), axes, keepdims=True)))


# --- logsumexp ------------------------------------------------------------------------------------------------------


@hide_frames
def logsumexp(a: Any, axis: Axis = None, b: Any = None, keepdims: bool = False, return_sign: bool = False,
              where: Any = None) -> Any:
    """Return the logarithm of the sum of exp(a), each times `b` if given, over `axis` (None: all), without overflow.

    With `return_sign` a pair: the logarithm of the magnitude of the sum, and its sign; without it, a negative sum has
    the logarithm NaN. Only elements where `where` is true count. Complex numbers are accepted.

    >>> float(logsumexp([1000.0, 1000.0]))
    1000.6931471805599
    """
    if where is not None:
        where = as_array_operand(where)
        a = choose(where, a, False)  # dtypes are unchanged, bool too
    if b is None:
        a = _inexact(a)
        axes = axes_of("logsumexp", axis, len(shape_of(a)))
        if where is None and not return_sign:
            return _logsumexp(a, axes, keepdims)
        result, signs = _log_of_sum(a, axes, keepdims, None, where, return_sign)
        return (result, signs) if return_sign else result
    a, b = inexact_operands(a, b)
    a = choose(not_equal(b, 0), a, -math.inf)
    axes = axes_of("logsumexp", axis, len(shape_of(a)))
    result, signs = _log_of_sum(a, axes, keepdims, b, where, return_sign)
    if return_sign:
        return result, signs
    return result if dtypes.is_complex(aval_of(result).dtype) else choose(less(signs, 0), math.nan, result)


@functools.partial(library_function, name="logsumexp")
def _logsumexp(a: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    return _log_of_sum(a, axes, keepdims, None, None, False)[0]


def _log_of_sum(a: Any, axes: tuple[int, ...], keepdims: bool, b: Any, where: Any, of_magnitude: bool) -> Any:
    """Return the logarithm of the sum, or of its magnitude, and the sign of the sum."""
    peak = _peak(real(a), axes, where)
    peak = choose(isfinite(peak), peak, 0.0)
    exponentials = exp(subtract(a, peak))
    if b is not None:
        exponentials = multiply(exponentials, b)
    total = sum_of(exponentials, axes, keepdims=keepdims, where=where)
    is_complex = dtypes.is_complex(aval_of(total).dtype)
    magnitude = absolute(total) if (is_complex and of_magnitude) or (not is_complex and b is not None) else total
    if not keepdims:
        peak = reshape(peak, shape_of(total))
    return add(log(magnitude), peak), sign(total)


@hide_frames
def logmeanexp(x: Any, axis: Axis = None, where: Any = None, keepdims: bool = False) -> Any:
    """Return the logarithm of the mean of exp(x) over `axis` (None: all axes), without overflow.

    >>> float(logmeanexp([1000.0, 1000.0]))
    1000.0
    """
    x = _inexact(x)
    shape, axes = shape_of(x), axes_of("logmeanexp", axis, len(shape_of(x)))
    total = logsumexp(x, axes, where=where, keepdims=keepdims)
    if where is None:
        count = math.prod(shape[place] for place in axes)
        if has_symbolic_dim(count):
            return subtract(total, log(operand(count)))
        return subtract(total, math.log(count) if count else -math.inf)
    count = sum_of(_over(as_array_operand(where), x), axes, keepdims=keepdims)
    return subtract(total, log(convert(count, dtypes.real_dtype(aval_of(total).dtype))))


# --- standardize ----------------------------------------------------------------------------------------------------


@hide_frames
def standardize(x: Any, axis: Axis = -1, mean: Any = None, variance: Any = None, epsilon: Any = 1e-5,
                where: Any = None, *, algorithm: str = "fast") -> Any:
    """Return (x - mean) / sqrt(variance + epsilon), with the mean and the variance over `axis` unless they are given.

    Only elements where `where` is true count for them. The algorithm `"fast"` computes the variance as the mean of the
    squares less the square of the mean, which loses digits where the mean is large; `"stable"` does not. Half
    precision is computed in float32. Raises `ArgumentError` for another algorithm.

    >>> standardize([1.0, 3.0], epsilon=0.0)
    array([-1.,  1.])
    """
    if algorithm not in ("fast", "stable"):
        raise ArgumentError(at_user_line(f"standardize: algorithm={algorithm!r}; it is 'fast' or 'stable'"))
    x = _inexact(x)
    axes = axes_of("standardize", axis, len(shape_of(x)))
    if mean is None and variance is None and where is None and type(epsilon) in (int, float):
        return _standardize(x, axes, epsilon, algorithm)
    return _normalize(x, axes, mean, variance, epsilon, where, algorithm)


@functools.partial(library_function, name="standardize")
def _standardize(x: Any, axes: tuple[int, ...], epsilon: float, algorithm: str) -> Any:
    return _normalize(x, axes, None, None, epsilon, None, algorithm)


def _normalize(x: Any, axes: tuple[int, ...], mean: Any, variance: Any, epsilon: Any, where: Any,
               algorithm: str) -> Any:
    dtype = result_type(x, *(each for each in (mean, variance, epsilon) if each is not None))
    x = widen_half(x)
    centre = mean_of(x, axes, keepdims=True, where=where) if mean is None else as_array_operand(mean)
    apart = subtract(x, centre)
    if variance is None and algorithm == "stable":
        variance = mean_of(square(apart), axes, keepdims=True, where=where)
    elif variance is None:
        variance = subtract(mean_of(square(x), axes, keepdims=True, where=where), square(centre))
        variance = maximum(variance, 0.0)  # rounding may bring it below 0
    result = multiply(apart, rsqrt(_inexact(add(variance, epsilon))))
    return result if aval_of(result).dtype == dtype else convert(result, dtype)


# --- one_hot --------------------------------------------------------------------------------------------------------


@hide_frames
def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: int = -1) -> Any:
    """Return for each class number in `x` a vector along the new `axis`: 1 at that position, 0 elsewhere.

    Numbers that are no class, negative ones too, give zeros. The result has `dtype`, by default the default float.

    >>> one_hot([0, 2, 3], 3)
    array([[1., 0., 0.],
           [0., 0., 1.],
           [0., 0., 0.]], dtype=float32)
    """
    x = as_array_operand(x)
    wanted = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    return _one_hot(x, as_axis_size("one_hot", num_classes), wanted, axis_of("one_hot", axis, len(shape_of(x)) + 1))


@functools.partial(library_function, name="one_hot")
def _one_hot(x: Any, num_classes: int, dtype: Any, axis: int) -> Any:
    shape, classes = shape_of(x), [1] * (len(shape_of(x)) + 1)
    classes[axis] = num_classes
    kind = aval_of(x).dtype
    if kind == dtypes.bool_:
        x, kind = astype(x, dtypes.int32), dtypes.int32
    expanded = reshape(x, (*shape[:axis], 1, *shape[axis:]))
    return convert(eq(expanded, iota(kind, classes, axis)), dtype)
