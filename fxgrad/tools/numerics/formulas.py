"""Stable formulas that replace naive ones, accurate over the whole range together with their derivatives.

Each branch of a choice gets operands in its domain, so that no infinity enters the derivative of the other branch. Of
several ways to write a function, the one whose derivative loses no digits is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fxgrad import numpy as fnp
from fxgrad.extend import library_function, operation, primitives
from fxgrad.numpy.reductions import kept_shape

erf, erfc, erfcx, hypot, lgamma, stop_gradient, xlogy = map(operation, (
    primitives.erf, primitives.erfc, primitives.erfcx, primitives.hypot, primitives.lgamma, primitives.stop_gradient,
    primitives.xlogy))

LOG_2 = math.log(2.0)


def _split_below(x: Any, bound: float) -> tuple[Any, Any, Any]:
    """Return whether `x` is below `bound`, and `x` for each branch, clipped to `bound` where the other is taken."""
    below = fnp.less(x, bound)
    return below, fnp.where(below, x, bound), fnp.where(below, bound, x)


def _without_sign(x: Any) -> tuple[Any, Any]:
    """Return whether `x` is above 0, and -|x|, whose derivative at 0 is 1."""
    above = fnp.greater(x, 0.0)
    return above, fnp.where(above, -x, x)


# --- exponentials ---------------------------------------------------------------------------------------------------


@library_function
def expm1(x: Any) -> Any:
    """Return exp(x) - 1; below -1 as a difference, since the derivative of expm1 loses digits there."""
    below, low, high = _split_below(x, -1.0)
    return fnp.where(below, fnp.exp(low) - 1.0, fnp.expm1(high))


@library_function
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)), by the exponential that is at most 1."""
    above, argument = _without_sign(x)
    power = fnp.exp(argument)
    return fnp.where(above, 1.0, power) / (1.0 + power)


@library_function
def softplus(x: Any) -> Any:
    """Return log(1 + exp(x))."""
    above, argument = _without_sign(x)
    return fnp.where(above, x, 0.0) + fnp.log1p(fnp.exp(argument))


@library_function
def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent; far from 0 by the exponential, whose derivative does not cancel."""
    above, argument = _without_sign(x)
    far, low, _ = _split_below(argument, -1.0)
    power = fnp.exp(2.0 * low)
    size = 1.0 - 2.0 * power / (1.0 + power)
    return fnp.where(far, fnp.where(above, size, -size), fnp.tanh(fnp.where(far, 0.0, x)))


@library_function
def sech_squared(x: Any) -> Any:
    """Return 1 - tanh(x)**2."""
    _, argument = _without_sign(x)
    far, low, _ = _split_below(argument, -0.5)
    power, near = fnp.exp(2.0 * low), fnp.tanh(fnp.where(far, 0.0, x))
    return fnp.where(far, 4.0 * power / (1.0 + power) / (1.0 + power), 1.0 - near * near)


@library_function
def log_one_minus_exp(x: Any) -> Any:
    """Return log(1 - exp(x)) of a negative `x`."""
    below, low, high = _split_below(x, -LOG_2)
    return fnp.where(below, fnp.log1p(-fnp.exp(low)), fnp.log(-fnp.expm1(high)))


@library_function
def arcsinh(x: Any) -> Any:
    """Return the inverse of sinh, whose derivative does not square a large number."""
    above, argument = _without_sign(x)
    carrier = fnp.log(0.5 * fnp.hypot(argument, 1.0) - 0.5 * argument)
    slope = fnp.where(fnp.isfinite(carrier), carrier - stop_gradient(carrier), 0.0)
    return stop_gradient(fnp.arcsinh(x)) + fnp.where(above, slope, -slope)


@library_function
def arccosh(x: Any) -> Any:
    """Return the inverse of cosh, whose derivative does not square a large number."""
    carrier = fnp.log(0.5 * x + 0.5 * (fnp.sqrt(x - 1.0) * fnp.sqrt(x + 1.0)))
    return stop_gradient(fnp.arccosh(x)) + fnp.where(fnp.isfinite(carrier), carrier - stop_gradient(carrier), 0.0)


@library_function
def arctanh(x: Any) -> Any:
    """Return the inverse of tanh, whose derivative does not cancel near 1 and -1."""
    carrier = 0.5 * (fnp.log1p(x) - fnp.log1p(-x))
    return stop_gradient(fnp.arctanh(x)) + fnp.where(fnp.isfinite(carrier), carrier - stop_gradient(carrier), 0.0)


@library_function
def log_expm1(x: Any) -> Any:
    """Return log(exp(x) - 1) of a positive `x`."""
    below, low, high = _split_below(x, LOG_2)
    return fnp.where(below, fnp.log(fnp.expm1(low)), high + fnp.log1p(-fnp.exp(-high)))


@library_function
def log_cosh(x: Any) -> Any:
    """Return log(cosh(x)): quadratic near 0, linear far from it."""
    _, argument = _without_sign(x)
    far, low, _ = _split_below(argument, -1.0)
    half = fnp.sinh(0.5 * fnp.where(far, 0.0, x))
    return fnp.where(far, fnp.log1p(fnp.exp(2.0 * low)) - low - LOG_2, fnp.log1p(2.0 * half * half))


@library_function
def half_versine(x: Any) -> Any:
    """Return 1 - cos(x), by the sine of the half; its slope is sin(x), which the least numbers have too."""
    half = fnp.sin(0.5 * x)
    return _with_slope_of(2.0 * half * half, -fnp.cos(x))


@library_function
def coshm1(x: Any) -> Any:
    """Return cosh(x) - 1, by the hyperbolic sine of the half."""
    half = fnp.sinh(0.5 * x)
    return 2.0 * half * half


def one_or_nan(values: Sequence[Any]) -> Any:
    """Return the result of exponentials that cancel: 1, and NaN with its slopes where a value is NaN."""
    result: Any = 1.0
    for x in values:
        result = result * fnp.exp(fnp.where(fnp.isnan(x), x, 0.0))
    return result


def exp_of_difference(x: Any, y: Any) -> Any:
    """Return exp(x - y), corrected for the rounding of the difference, which matters for large operands."""
    apart = x - y
    added = apart - x
    lost = stop_gradient((x - (apart - added)) - (y + added))
    power = fnp.exp(apart)
    regular = fnp.logical_and(fnp.isfinite(lost), fnp.isfinite(power))  # an infinite power has lost no digits
    return power + fnp.where(regular, power, 0.0) * fnp.where(regular, lost, 0.0)


def share_of_two(x: Any, y: Any) -> Any:
    """Return exp(x) / (exp(x) + exp(y))."""
    above = fnp.greater(x, y)
    power = exp_of_difference(fnp.where(above, y, x), fnp.where(above, x, y))
    return fnp.where(above, 1.0, power) / (1.0 + power)


def difference_of_exps(x: Any, y: Any) -> Any:
    """Return exp(x) - exp(y): the larger exponential times a relative difference."""
    above = fnp.greater(x, y)
    large, small = fnp.where(above, x, y), fnp.where(above, y, x)
    same = fnp.equal(x, y)
    size = fnp.exp(large) * -expm1(fnp.where(same, -1.0, small - large))
    first, second = fnp.exp(x), fnp.exp(y)
    size = fnp.where(same, first - second, fnp.where(above, size, -size))
    finite = fnp.isfinite(first + second)
    slopes = [fnp.where(finite, power - stop_gradient(power), 0.0) for power in (first, second)]
    return fnp.where(finite, stop_gradient(size) + (slopes[0] - slopes[1]), size)


def peak_of(x: Any, axes: Sequence[int]) -> Any:
    """Return the maximum over `axes`, as a shift that does not change results; 0 where it is infinite or NaN."""
    peak = stop_gradient(fnp.max(x, axis=tuple(axes), initial=-math.inf))
    return fnp.where(fnp.isfinite(peak), peak, 0.0)


def keep_axes(value: Any, x: Any, axes: Sequence[int]) -> Any:
    """Return the reduction over `axes` of `x`, with these as axes of size 1."""
    return fnp.reshape(value, kept_shape(fnp.shape(x), tuple(axes)))


def softmax(x: Any, axes: Sequence[int]) -> Any:
    """Return exp(x) / sum(exp(x)), accurate in the last place of small shares too."""
    powers = exp_of_difference(x, keep_axes(peak_of(x, axes), x, axes))
    return powers / fnp.sum(powers, axis=tuple(axes), keepdims=True)


def log_softmax(x: Any, axes: Sequence[int]) -> Any:
    """Return log(softmax(x)); the largest share is computed from the sum of the others, which may be tiny."""
    peak = keep_axes(peak_of(x, axes), x, axes)
    return (x - peak) - keep_axes(_log_of_rest(x, peak, axes), x, axes)


def log_sum_exp(x: Any, axes: Sequence[int], weights: Any = None, less: float = 0.0) -> Any:
    """Return log(sum(exp(x))), or log(sum(weights * exp(x))); `less` is taken off."""
    if weights is None:
        peak = peak_of(x, axes)
        rest = _log_of_rest(x, keep_axes(peak, x, axes), axes)
        return peak + (rest - less if less else rest)
    largest = math.floor(math.log(float(fnp.finfo(x.dtype).max)))  # of whole numbers whose exponential is finite
    peak = peak_of(x + fnp.minimum(fnp.log(fnp.abs(stop_gradient(weights))), 0.5 * largest), axes)
    around = keep_axes(peak, x, axes)
    most = around + largest
    unseen = fnp.logical_and(fnp.logical_and(fnp.equal(weights, 0.0), fnp.isfinite(x)), fnp.greater(x, most))
    powers = exp_of_difference(fnp.where(unseen, stop_gradient(most), x), around)
    return peak + fnp.log(fnp.sum(weights * powers, axis=tuple(axes)))


def _log_of_rest(x: Any, peak: Any, axes: Sequence[int]) -> Any:
    """Return log(sum(exp(x - peak))) as log1p of the sum without one largest term, which is exp(0)."""
    axes = tuple(axes)
    powers, largest = exp_of_difference(x, peak), fnp.equal(x, peak)
    others = fnp.sum(fnp.astype(largest, powers.dtype), axis=axes) - 1.0
    return fnp.log1p(fnp.sum(fnp.where(largest, powers - 1.0, powers), axis=axes) + others)


def log_add_exp(x: Any, y: Any) -> Any:
    """Return log(exp(x) + exp(y))."""
    above = fnp.greater(x, y)
    large, small = fnp.where(above, x, y), fnp.where(above, y, x)
    same = fnp.equal(x, y)  # equal infinities have no difference
    power = exp_of_difference(fnp.where(same, 0.0, small), fnp.where(same, 0.0, large))
    return fnp.where(same, 0.5 * x + 0.5 * y + LOG_2, large + fnp.log1p(power))


def log_near_one(rest: Any, total: Any) -> Any:
    """Return log(total), where `total` is 1 + `rest` as the user added it; by log1p if `rest` is small.

    Far from 0, `rest` may have been rounded where `total` was not: 1 - p + guard for p near 1.
    """
    near = fnp.less(fnp.abs(rest), 0.25)
    return fnp.where(near, fnp.log1p(fnp.where(near, rest, 0.0)), fnp.log(fnp.where(near, 1.0, total)))


# --- logarithms -----------------------------------------------------------------------------------------------------


def or_stable(naive: Any, stable: Any) -> Any:
    """Return `naive` where it is finite, with the derivative of `stable`, and `stable` elsewhere."""
    return stable + stop_gradient(fnp.where(fnp.isfinite(naive), naive - stable, 0.0))


@library_function
def logit(p: Any) -> Any:
    """Return log(p / (1 - p)); around one half by how far it is from there."""
    near = fnp.logical_and(fnp.greater(p, 0.25), fnp.less(p, 0.75))
    middle, outer = fnp.where(near, p, 0.5), fnp.where(near, 0.25, p)
    return fnp.where(near, fnp.log1p((middle - (1.0 - middle)) / (1.0 - middle)), fnp.log(outer) - fnp.log1p(-outer))


def log_of_power(x: Any, exponent: int) -> Any:
    """Return log(x**exponent) of a whole exponent."""
    return exponent * fnp.log(fnp.abs(x) if exponent % 2 == 0 else x)


def log_of_product(x: Any, axes: Sequence[int], naive: Any) -> Any:
    """Return log(prod(x)); the sum of logarithms where the product overflows or underflows."""
    axes = tuple(axes)
    sign = stop_gradient(fnp.prod(fnp.sign(x), axis=axes))
    return _normal_or(naive, fnp.sum(fnp.log(fnp.abs(x)), axis=axes) + fnp.log(sign))


def log_of_determinant(a: Any, naive: Any) -> Any:
    """Return log(det(a)); the logarithm of the magnitude where the determinant overflows or underflows."""
    sign, size = fnp.linalg.slogdet(a)
    return _normal_or(naive, size + fnp.log(stop_gradient(sign)))


def _normal_or(value: Any, stable: Any) -> Any:
    """Return log(value) where that is a normal number, with the derivative of `stable`, and `stable` elsewhere."""
    least = fnp.finfo(value.dtype).tiny
    normal = fnp.logical_and(fnp.greater(fnp.abs(value), least), fnp.isfinite(value))
    naive = fnp.log(stop_gradient(fnp.where(normal, value, 1.0)))
    return stable + fnp.where(normal, stop_gradient(naive - stable), 0.0)


def log_of_next(x: Any, step: Any) -> Any:
    """Return log(x + step) - log(x) for x far from 0; literally where x is smaller than the step."""
    far = fnp.greater(fnp.abs(x), fnp.abs(step))
    distant, close = fnp.where(far, x, 2.0 * step), fnp.where(far, step, x)
    near = fnp.log(fnp.where(far, 1.0, close + step)) - fnp.log(fnp.where(far, 1.0, close))
    return fnp.where(fnp.logical_and(far, fnp.less(x, 0.0)), math.nan,
                     fnp.where(far, fnp.log1p(step / distant), near))


@library_function
def log_erfc(x: Any) -> Any:
    """Return log(erfc(x)); above one half by erfcx, with its exponential factored out."""
    below, low, high = _split_below(x, 0.5)
    return fnp.where(below, fnp.log1p(-erf(low)), fnp.log(erfcx(high)) - high * high)


@library_function
def log_half_erfc(x: Any) -> Any:
    """Return log(erfc(x) / 2)."""
    below, low, high = _split_below(x, 0.0)
    return fnp.where(below, fnp.log1p(-0.5 * erfc(-low)), fnp.log(0.5 * erfcx(high)) - high * high)


# --- roots and squares ----------------------------------------------------------------------------------------------


def _with_slope_of(value: Any, carrier: Any) -> Any:
    """Return `value`, with the derivatives of `carrier`, which is finite."""
    return stop_gradient(value) + (carrier - stop_gradient(carrier))


def _square_of_slope(x: Any) -> Any:
    """Return 0, with the derivatives of x**2, which need no square of a large number."""
    x = fnp.where(fnp.isfinite(x), x, 0.0)
    scale = stop_gradient(fnp.maximum(fnp.abs(x), 1.0))
    part = x / scale * x
    return scale * (part - stop_gradient(part))


def difference_of_squares(x: Any, y: Any) -> Any:
    """Return x**2 - y**2; its derivatives are those of the squares, in which nothing cancels."""
    return stop_gradient((x - y) * (x + y)) + (_square_of_slope(x) - _square_of_slope(y))


def root_of_difference(x: Any, y: Any) -> Any:
    """Return sqrt(x**2 - y**2)."""
    low, high = fnp.abs(x) - fnp.abs(y), fnp.abs(x) + fnp.abs(y)
    root = fnp.sqrt(low) * fnp.sqrt(high)
    regular = fnp.logical_and(fnp.isfinite(root), fnp.greater(root, 0.0))
    scale = stop_gradient(fnp.where(regular, fnp.maximum(fnp.abs(x), fnp.abs(y)), 1.0))
    first, second = fnp.where(regular, x, 1.0) / scale, fnp.where(regular, y, 0.0) / scale
    inside = first * first - second * second
    share = stop_gradient(fnp.where(regular, low / scale * (high / scale), 1.0))
    slope = fnp.sqrt(1.0 + (inside - stop_gradient(inside)) / share)
    return fnp.where(regular, stop_gradient(root) * slope, root)


def difference_of_roots(x: Any, y: Any, apart: Any) -> Any:
    """Return sqrt(x) - sqrt(y); `apart` is x - y."""
    total = fnp.sqrt(x) + fnp.sqrt(y)
    regular = fnp.logical_and(fnp.isfinite(total), fnp.greater(total, 0.0))
    safe = fnp.where(regular, total, 1.0)
    infinite = fnp.logical_and(fnp.isfinite(apart), fnp.equal(total, math.inf))
    naive = fnp.where(infinite, 0.0, fnp.sqrt(fnp.where(regular, 1.0, x)) - fnp.sqrt(fnp.where(regular, 1.0, y)))
    return fnp.where(regular, apart / safe, naive)


def norm(x: Any, axes: Sequence[int]) -> Any:
    """Return sqrt(sum(x**2)); elements are scaled by a power of two if a square would overflow or underflow."""
    axes = tuple(axes)
    range_of_exponents = int(fnp.finfo(x.dtype).maxexp)
    peak = stop_gradient(fnp.max(fnp.abs(x), axis=axes, initial=0.0))
    large = fnp.greater(peak, 2.0 ** round(0.4 * range_of_exponents))
    small = fnp.logical_and(fnp.less(peak, 2.0 ** -round(0.4 * range_of_exponents)), fnp.greater(peak, 0.0))
    down, up = 2.0 ** -round(0.62 * range_of_exponents), 2.0 ** round(0.72 * range_of_exponents)
    scaled = x * keep_axes(fnp.where(large, down, fnp.where(small, up, 1.0)), x, axes).astype(x.dtype)
    total = fnp.sum(scaled * scaled, axis=axes)
    none = fnp.equal(total, 0.0)
    root = fnp.where(none, 0.0, fnp.sqrt(fnp.where(none, 1.0, total)))
    return root * fnp.where(large, 1.0 / down, fnp.where(small, 1.0 / up, 1.0)).astype(x.dtype)


def variance(x: Any, axes: Sequence[int]) -> Any:
    """Return mean(x**2) - mean(x)**2, by the distances from the mean."""
    apart = x - fnp.mean(x, axis=tuple(axes), keepdims=True)
    lost = fnp.mean(apart, axis=tuple(axes))  # the rounding error of the mean
    return fnp.mean(apart * apart, axis=tuple(axes)) - lost * lost


def difference_of_inverses(x: Any, y: Any, apart: Any) -> Any:
    """Return 1 / x - 1 / y; `apart` is y - x."""
    return apart / x / y


def log_of_real_power(x: Any, y: Any) -> Any:
    """Return log(x**y): y log(x), except for negative `x`, where a whole `y` may make the power positive."""
    negative = fnp.less(x, 0.0)
    of_negative = fnp.log(fnp.where(negative, x, 1.0) ** y)
    return fnp.where(negative, of_negative, xlogy(y, fnp.where(negative, 1.0, x)))
