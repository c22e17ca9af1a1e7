"""Intervals: numbers of an array between two ends, NaN, zero; their exact arithmetic, and rounding outward."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval

INFINITE = math.inf
UNITS = 16
"""Units in the last place by which a result is widened: more than kernels of either executor err."""


class Interval(NamedTuple):
    """All elements of an array lie in [low, high], but for NaNs, which `nan` allows, and 0, unless `zero` allows it.

    The ends for integers are Python's, which are exact.
    """

    low: float
    high: float
    nan: bool
    zero: bool = True

    def join(self, other: Interval) -> Interval:
        """Return the least interval that contains both."""
        return Interval(min(self.low, other.low), max(self.high, other.high), self.nan or other.nan,
                        0 in self or 0 in other)

    def __contains__(self, number: object) -> bool:
        assert isinstance(number, int | float)
        return self.low <= number <= self.high and (self.zero or number != 0)

    @property
    def spans_zero(self) -> bool:
        """Whether 0 lies between the ends, though it may be no element itself."""
        return self.low <= 0 <= self.high

    @property
    def is_finite(self) -> bool:
        """Whether no element is infinite."""
        return self.low > -INFINITE and self.high < INFINITE

    def without_nan(self) -> Interval:
        """Return the interval of elements that are no NaN."""
        return self._replace(nan=False)


def meet(one: Interval, other: Interval) -> Interval | None:
    """Return the interval of what lies in both; None if nothing does."""
    low, high = max(one.low, other.low), min(one.high, other.high)
    return Interval(low, high, one.nan and other.nan, one.zero and other.zero) if low <= high else None


def any_value(aval: Aval) -> Interval:
    """Return the interval of all values of a type."""
    kind = dtypes.kind_of(aval.dtype)
    if kind == "b":
        return Interval(0, 1, False)
    if kind in "iu":
        info = dtypes.iinfo(aval.dtype)
        return Interval(int(info.min), int(info.max), False)
    return Interval(-INFINITE, INFINITE, dtypes.is_inexact(aval.dtype))


def fits(interval: Interval, aval: Aval) -> bool:
    """Return whether an integer dtype holds every number of an interval."""
    info = dtypes.iinfo(aval.dtype)
    return interval.low >= info.min and interval.high <= info.max


def rounded(interval: Interval, aval: Aval, terms: int = 1) -> Interval:
    """Return the interval of results of type `aval`, of `terms` rounded steps whose exact values lie in `interval`."""
    low, high, nan, zero = interval
    if math.isnan(low) or math.isnan(high):
        return any_value(aval)
    if dtypes.kind_of(aval.dtype) in "iu":
        found = Interval(low, high, False, zero)
        return found if fits(found, aval) else any_value(aval)
    if not dtypes.is_floating(aval.dtype):
        return any_value(aval)
    info = dtypes.finfo(aval.dtype)
    relative, least, most = float(info.eps) * UNITS * terms, float(info.tiny) * terms, float(info.max)
    # Rounding never changes the sign.
    low = low if math.isinf(low) else max(low - abs(low) * relative - least, 0.0 if low >= 0 else -INFINITE)
    high = high if math.isinf(high) else min(high + abs(high) * relative + least, 0.0 if high <= 0 else INFINITE)
    # What is above all finite numbers may be rounded to an infinity, or to the greatest of them.
    return Interval(-INFINITE if low < -most else min(low, most), INFINITE if high > most else max(high, -most), nan)


def of_constant(value: object, aval: Aval) -> Interval:
    """Return the interval of a known value."""
    kind = dtypes.kind_of(aval.dtype)
    if kind not in "biuf":
        return any_value(aval)
    if isinstance(value, float | int) and (kind != "f" or value == value):  # noqa: PLR0124  (of literals)
        number = float(value) if kind == "f" else int(value)
        return Interval(number, number, False)
    array = np.asarray(value)
    if not array.size:
        return Interval(0, 0, False)
    if kind in "biu":
        return Interval(int(array.min()), int(array.max()), False)
    numbers = array.astype(np.float64)
    nans = np.isnan(numbers)
    numbers = numbers[~nans]
    return Interval(float(numbers.min()), float(numbers.max()), bool(nans.any())) if numbers.size else Interval(
        0.0, 0.0, True)


def with_flushed(x: Interval, aval: Aval) -> Interval:
    """Return the interval of numbers that XLA computes with: it takes tiny ones for 0."""
    least = least_normal(aval)
    if not 0 < x.low < least and not -least < x.high < 0:
        return x
    return x._replace(low=min(x.low, 0.0), high=max(x.high, 0.0))


def product_of_ends(x: float, y: float) -> float:
    """Return a product in which 0 times an infinity is 0: that of ends, which elements only come near to."""
    return 0 if x == 0 or y == 0 else x * y


def add_exactly(x: Interval, y: Interval) -> Interval:
    """Return the interval of exact sums."""
    nan = x.nan or y.nan or (x.high == INFINITE and y.low == -INFINITE) or (
        x.low == -INFINITE and y.high == INFINITE)
    for infinity, is_other in ((INFINITE, -INFINITE in (x.high, y.high)), (-INFINITE, INFINITE in (x.low, y.low))):
        if not is_other and (x.low == x.high == infinity or y.low == y.high == infinity):
            return Interval(infinity, infinity, nan)  # whatever is added to it, but for a NaN
    low = -INFINITE if -INFINITE in (x.low, y.low) else x.low + y.low
    high = INFINITE if INFINITE in (x.high, y.high) else x.high + y.high
    return Interval(low, high, nan)


def negate(x: Interval) -> Interval:
    """Return the interval of the negated numbers."""
    return Interval(-x.high, -x.low, x.nan, x.zero)


def multiply_exactly(x: Interval, y: Interval, least: float = 0.0) -> Interval:
    """Return the interval of exact products; numbers below `least` may be taken for 0."""
    ends = [product_of_ends(a, b) for a in x[:2] for b in y[:2]]
    nan = x.nan or y.nan or (may_be_zero(x, least) and not y.is_finite) or (
        may_be_zero(y, least) and not x.is_finite)
    return Interval(min(ends), max(ends), nan)


def may_be_zero(x: Interval, least: float) -> bool:
    """Return whether an element is 0, or one of the numbers below `least` that XLA takes for 0."""
    return x.zero and (x.spans_zero or min(abs(x.low), abs(x.high)) < least)


def square_exactly(x: Interval) -> Interval:
    """Return the interval of exact squares."""
    ends = x.low * x.low, x.high * x.high
    return Interval(0 if x.spans_zero else min(ends), max(ends), x.nan)


def least_normal(aval: Aval) -> float:
    """Return the least number that XLA does not take for 0."""
    return float(dtypes.finfo(aval.dtype).tiny) if dtypes.is_floating(aval.dtype) else 0
