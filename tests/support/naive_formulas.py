"""Naive formulas, each with its rule and its domain, and their values to many digits.

A formula is written once, over a namespace: of NumPy, of jax, or of mpmath, which computes the naive formula itself
with enough digits that none that counts is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mpmath
import numpy as np

Exact = Any


class Formula(NamedTuple):
    """A naive formula: `function(names, *arguments)`, its rule, and the interval of each argument.

    That of a `vector` is of one array and works along its last axis; its elements are normal numbers times up to the
    bound, beside `offset`. `zeros` are arguments at which the result is 0 although they are not: near them no digit is
    right.
    Derivatives count in units of the last place of no less than `least`.
    """

    name: str
    rule: str
    function: Callable[..., Any]
    ranges: tuple[tuple[float, float], ...] = ((-np.inf, np.inf),)
    vector: bool = False
    zeros: tuple[float, ...] = ()
    slope: bool = True
    least: float = 0.0
    offset: float = 0.0


def _all(size: float) -> tuple[tuple[float, float], ...]:
    return ((-size, size),)


POSITIVE = ((0.0, np.inf),)
HUGE = np.inf
FORMULAS = [
    Formula("log(sum(exp(x)))", "log-sum-exp", lambda xp, x: xp.log(xp.sum(xp.exp(x), axis=-1)), _all(1e4), True),
    Formula("log(mean(exp(x)))", "log-sum-exp", lambda xp, x: xp.log(xp.mean(xp.exp(x), axis=-1)), _all(1e4), True),
    Formula("log(sum(x**2 * exp(x)))", "weighted log-sum-exp",
            lambda xp, x: xp.log(xp.sum(x * x * xp.exp(x), axis=-1)), _all(1e4), True),
    Formula("exp(x) / sum(exp(x))", "softmax",
            lambda xp, x: xp.exp(x) / xp.sum(xp.exp(x), axis=-1, keepdims=True), _all(1e4), True, least=1.0),
    Formula("exp(x) / sum(exp(x)), by multiplication", "softmax",
            lambda xp, x: xp.exp(x) * (1 / xp.sum(xp.exp(x), axis=-1, keepdims=True)), _all(1e4), True, least=1.0),
    Formula("log(exp(x) / sum(exp(x)))", "log-softmax",
            lambda xp, x: xp.log(xp.exp(x) / xp.sum(xp.exp(x), axis=-1, keepdims=True)), _all(1e4), True, least=1.0),
    Formula("log((exp(x) / sum(exp(x)))[0])", "log-softmax",
            lambda xp, x: xp.log((xp.exp(x) / xp.sum(xp.exp(x), axis=-1, keepdims=True))[..., 0]), _all(1e4), True,
            least=1.0),
    Formula("log(cumsum(exp(x)))", "cumulative log-sum-exp", lambda xp, x: xp.log(xp.cumsum(xp.exp(x), axis=-1)),
            _all(1e4), True),
    Formula("log(1 + exp(x))", "softplus", lambda xp, x: xp.log(1 + xp.exp(x))),
    Formula("log(exp(-x) + 1)", "softplus", lambda xp, x: xp.log(xp.exp(-x) + 1)),
    Formula("log1p(exp(x))", "softplus, half written", lambda xp, x: xp.log1p(xp.exp(x))),
    Formula("log(exp(x) + exp(y))", "log-add-exp", lambda xp, x, y: xp.log(xp.exp(x) + xp.exp(y)),
            ((1.0, 1e30), (1.0, 1e30))),
    Formula("log(2 + exp(x))", "log-add-exp", lambda xp, x: xp.log(2 + xp.exp(x))),
    Formula("1 / (1 + exp(-x))", "sigmoid", lambda xp, x: 1 / (1 + xp.exp(-x))),
    Formula("exp(x) / (1 + exp(x))", "sigmoid", lambda xp, x: xp.exp(x) / (1 + xp.exp(x))),
    Formula("exp(x) / (exp(x) + exp(y))", "sigmoid", lambda xp, x, y: xp.exp(x) / (xp.exp(x) + xp.exp(y)),
            ((-1e4, 1e4), (-1e4, 1e4))),
    Formula("exp(-x) / (1 + exp(-x))**2", "sigmoid", lambda xp, x: xp.exp(-x) / (1 + xp.exp(-x)) ** 2),
    Formula("log(1 / (1 + exp(-x)))", "log-sigmoid", lambda xp, x: xp.log(1 / (1 + xp.exp(-x)))),
    Formula("log(1 - 1 / (1 + exp(-x)))", "log-sigmoid", lambda xp, x: xp.log(1 - 1 / (1 + xp.exp(-x)))),
    Formula("1 - 1 / (1 + exp(-x))", "1 - sigmoid", lambda xp, x: 1 - 1 / (1 + xp.exp(-x))),
    Formula("log(1 - exp(x))", "log1mexp", lambda xp, x: xp.log(1 - xp.exp(x)), ((-HUGE, -0.0),)),
    Formula("log(1 - exp(-x))", "log1mexp", lambda xp, x: xp.log(1 - xp.exp(-x)), POSITIVE),
    Formula("log1p(-exp(x))", "log1mexp", lambda xp, x: xp.log1p(-xp.exp(x)), ((-HUGE, -0.0),)),
    Formula("log(exp(x) - 1)", "log of expm1", lambda xp, x: xp.log(xp.exp(x) - 1), POSITIVE, zeros=(np.log(2.0),)),
    Formula("exp(x) - 1", "expm1", lambda xp, x: xp.exp(x) - 1),
    Formula("1 - exp(-x)", "expm1", lambda xp, x: 1 - xp.exp(-x)),
    Formula("-1 + exp(x)", "expm1", lambda xp, x: -1 + xp.exp(x)),
    Formula("exp(x) + (-1)", "expm1", lambda xp, x: xp.exp(x) + (-1)),
    Formula("exp(x) - exp(y)", "difference of exponentials", lambda xp, x, y: xp.exp(x) - xp.exp(y),
            ((-700.0, 80.0), (-700.0, 80.0))),
    Formula("(exp(x) - exp(-x)) / 2", "sinh", lambda xp, x: (xp.exp(x) - xp.exp(-x)) / 2),
    Formula("(exp(x) + exp(-x)) / 2", "cosh", lambda xp, x: (xp.exp(x) + xp.exp(-x)) / 2),
    Formula("exp(x) - exp(-x)", "twice sinh", lambda xp, x: xp.exp(x) - xp.exp(-x)),
    Formula("(exp(x) - exp(-x)) / (exp(x) + exp(-x))", "tanh",
            lambda xp, x: (xp.exp(x) - xp.exp(-x)) / (xp.exp(x) + xp.exp(-x))),
    Formula("(exp(2 * x) - 1) / (exp(2 * x) + 1)", "tanh", lambda xp, x: (xp.exp(2 * x) - 1) / (xp.exp(2 * x) + 1),
            _all(1e30)),
    Formula("sinh(x) / cosh(x)", "sinh over cosh", lambda xp, x: xp.sinh(x) / xp.cosh(x)),
    Formula("1 - tanh(x)", "1 - tanh", lambda xp, x: 1 - xp.tanh(x), _all(1e30)),
    Formula("1 - tanh(x)**2", "1 - tanh squared", lambda xp, x: 1 - xp.tanh(x) ** 2, _all(1e30)),
    Formula("log(cosh(x))", "log-cosh", lambda xp, x: xp.log(xp.cosh(x))),
    Formula("cosh(x) - 1", "cosh - 1", lambda xp, x: xp.cosh(x) - 1),
    Formula("1 - cos(x)", "1 - cos", lambda xp, x: 1 - xp.cos(x), _all(30.0)),
    Formula("(1 - cos(x)) / x**2", "1 - cos", lambda xp, x: (1 - xp.cos(x)) / x ** 2, ((1e-15, 3.0),), slope=False),
    Formula("log(1 + x)", "log1p", lambda xp, x: xp.log(1 + x), ((-1.0, HUGE),)),
    Formula("log(1 - x)", "log1p", lambda xp, x: xp.log(1 - x), ((-HUGE, 1.0),)),
    Formula("log(x + 1) - log(x)", "difference of logarithms", lambda xp, x: xp.log(x + 1) - xp.log(x), POSITIVE),
    Formula("log(p / (1 - p))", "logit", lambda xp, p: xp.log(p / (1 - p)), ((0.0, 1.0),), zeros=()),
    Formula("p * log(p)", "entropy", lambda xp, p: p * xp.log(p), ((0.0, 1e30),), zeros=(1.0,), slope=False),
    Formula("log((1 + x) / (1 - x)) / 2", "inverse hyperbolic tangent", lambda xp, x: xp.log((1 + x) / (1 - x)) / 2,
            _all(1.0)),
    Formula("log(x + sqrt(x**2 + 1))", "inverse hyperbolic sine", lambda xp, x: xp.log(x + xp.sqrt(x ** 2 + 1))),
    Formula("log(x + sqrt(x**2 - 1))", "inverse hyperbolic cosine", lambda xp, x: xp.log(x + xp.sqrt(x ** 2 - 1)),
            ((1.0, HUGE),)),
    Formula("log(exp(x) * exp(y))", "log of exp", lambda xp, x, y: xp.log(xp.exp(x) * xp.exp(y)),
            ((1.0, 1e30), (1.0, 1e30))),
    Formula("log(x**8)", "log of a power", lambda xp, x: xp.log(x ** 8)),
    Formula("log(x**y)", "log of a power", lambda xp, x, y: xp.log(x ** y), ((1e-30, 1e30), (-1e3, 1e3))),
    Formula("log(prod(x))", "log of a product", lambda xp, x: xp.log(xp.prod(xp.abs(x), axis=-1)), _all(1e30), True,
            slope=False),
    Formula("sqrt(x**2)", "absolute value", lambda xp, x: xp.sqrt(x ** 2)),
    Formula("sqrt(x**2 + y**2)", "hypot", lambda xp, x, y: xp.sqrt(x ** 2 + y ** 2), ((-HUGE, HUGE), (-HUGE, HUGE))),
    Formula("sqrt(x**2 - 1)", "leg", lambda xp, x: xp.sqrt(x ** 2 - 1), ((1.0, HUGE),)),
    Formula("sqrt(1 - x**2)", "leg", lambda xp, x: xp.sqrt(1 - x ** 2), _all(1.0)),
    Formula("sqrt(sum(x**2))", "norm", lambda xp, x: xp.sqrt(xp.sum(x ** 2, axis=-1)), _all(1e37), True),
    Formula("sqrt(x + 1) - sqrt(x)", "difference of roots", lambda xp, x: xp.sqrt(x + 1) - xp.sqrt(x), POSITIVE),
    Formula("sqrt(1 + x) - 1", "difference of roots", lambda xp, x: xp.sqrt(1 + x) - 1, ((-1.0, HUGE),)),
    Formula("x**2 - y**2", "difference of squares", lambda xp, x, y: x ** 2 - y ** 2, ((-1e15, 1e15), (-1e15, 1e15))),
    Formula("1 - x**2", "difference of squares", lambda xp, x: 1 - x ** 2, _all(1e15)),
    Formula("1 / x - 1 / (x + 1)", "difference of inverses", lambda xp, x: 1 / x - 1 / (x + 1), ((1e-30, 1e30),)),
    Formula("mean(x**2) - mean(x)**2", "variance",
            lambda xp, x: xp.mean(x ** 2, axis=-1) - xp.mean(x, axis=-1) ** 2, ((0.0, 1.0),), True, offset=1e4),
    Formula("1 - erf(x)", "erfc", lambda xp, x: 1 - xp.erf(x), ((-1e4, 1e4),)),
    Formula("log(erfc(x))", "log of erfc", lambda xp, x: xp.log(xp.erfc(x)), ((-1e4, 1e4),)),
    Formula("log((1 + erf(x)) / 2)", "log of erfc", lambda xp, x: xp.log((1 + xp.erf(x)) / 2), ((-1e4, 1e4),)),
    Formula("log(gamma(x))", "log of gamma", lambda xp, x: xp.log(xp.gamma(x)), ((3.0, 1e30),), slope=False),
]


# --- exact values ---------------------------------------------------------------------------------------------------


def _each(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return np.frompyfunc(function, 1, 1)


def _sum(x: Any, axis: int = -1, keepdims: bool = False) -> Any:
    return np.sum(x, axis=axis, keepdims=keepdims)


class Exactly:
    """The functions that formulas use, on mpmath's numbers and object arrays of them."""

    exp, log, sqrt, cos, tanh, sinh, cosh = map(_each, (
        mpmath.exp, mpmath.log, mpmath.sqrt, mpmath.cos, mpmath.tanh, mpmath.sinh, mpmath.cosh))
    erf, erfc, gamma = map(_each, (mpmath.erf, mpmath.erfc, mpmath.gamma))
    abs, log1p = _each(abs), _each(lambda x: mpmath.log(1 + x))
    sum, cumsum, prod, mean = staticmethod(_sum), np.cumsum, np.prod, np.mean


class Names:
    """The functions that formulas use, of two modules."""

    def __init__(self, *modules: Any) -> None:
        self._modules = modules

    def __getattr__(self, name: str) -> Any:
        return next(getattr(module, name) for module in self._modules if hasattr(module, name))


def exactly(formula: Formula, arguments: Sequence[Any], digits: int) -> Any:
    """Return the value at floats, computed with so many digits; None where there is none."""
    with mpmath.workdps(digits):
        try:
            return formula.function(Exactly, *(np.frompyfunc(_to_exact, 1, 1)(each) for each in arguments))
        except (ValueError, ZeroDivisionError, OverflowError):
            return None


def _to_exact(x: Any) -> Any:
    return x if isinstance(x, mpmath.mpf) else mpmath.mpf(float(x))


def settled(compute: Callable[[int], Any]) -> Any:
    """Return the result of a computation once more digits do not change its float64; else None."""
    before = compute(60)
    for digits in (240, 960, 2000):
        after = compute(digits)
        if before is not None and after is not None and _agree(before, after, _least(digits)):
            return after
        before = after
    return None


def _agree(before: Any, after: Any, least: Any) -> bool:
    pairs = [*zip(np.ravel(before), np.ravel(after), strict=True)]
    return all(isinstance(each, mpmath.mpf) and mpmath.isfinite(each) for pair in pairs for each in pair) and all(
        (other and abs(one - other) <= mpmath.mpf(10) ** -25 * abs(other)) or max(abs(one), abs(other)) < least
        for one, other in pairs)


def value_at(formula: Formula, arguments: Sequence[Any]) -> Any:
    """Return the exact value."""
    return settled(lambda digits: exactly(formula, arguments, digits))


def slope_at(formula: Formula, arguments: Sequence[Any]) -> Any:
    """Return the exact derivative of the `weighted` value in the first argument."""
    def compute(digits: int) -> Any:
        def total(given: Any) -> Any:
            found = exactly(formula, [given, *arguments[1:]], digits)
            return None if found is None else weighted(found)
        return quotients(total, arguments[0], digits, _slope)
    return settled(compute)


def quotients(total: Callable[[Any], Any], given: Any, digits: int, quotient: Callable[..., Any]) -> Any:
    """Return a difference quotient of `total` in a number, or in each element of a vector; None where there is none.

    `quotient(function, x, step)` is that in one number.
    """
    step = mpmath.mpf(10) ** -(min(digits, 240) // 3)
    with mpmath.workdps(digits):
        first = np.frompyfunc(_to_exact, 1, 1)(given)
        if not np.shape(first):
            return quotient(total, first, step)
        slopes = [quotient(lambda x, place=place: total(_put(first, place, x)), first[place], step)
                  for place in range(len(first))]
        return None if any(each is None for each in slopes) else np.array(slopes, object)


def weighted(value: Any) -> Any:
    """Return the sum of the elements along the last axis with different weights; a number is unchanged."""
    return value if not np.ndim(value) else sum(value[..., place] * (place + 1) for place in range(value.shape[-1]))


def _put(array: Any, place: int, value: Any) -> Any:
    result = array.copy()
    result[place] = value
    return result


def _slope(function: Callable[[Any], Any], x: Any, step: Any) -> Any:
    apart = abs(x) * step if x else step
    high, low = function(x + apart), function(x - apart)
    return None if high is None or low is None else (high - low) / (2 * apart)


# --- points ---------------------------------------------------------------------------------------------------------


def points(formula: Formula, dtype: Any, count: int, seed: int = 0) -> list[list[Any]]:
    """Arguments from the whole exponent range of a dtype, as far as the formula is defined; 6 elements to a vector."""
    random, info = np.random.default_rng(seed), np.finfo(dtype)
    if formula.vector:
        bound = min(formula.ranges[0][1], float(info.max) / 100)
        sizes = bound ** random.uniform(0.0 if bound > 1 else 1.0, 1.0, count)
        return [[np.asarray(formula.offset + random.normal(size=6) * size * random.uniform(0.2, 1.0), dtype)]
                for size in sizes]
    columns = [_numbers(random, info, low, high, count) for low, high in formula.ranges]
    if len(columns) == 2:  # a third of the pairs close together
        close = random.uniform(size=count) < 0.3
        low, high = formula.ranges[1]
        nearby = np.clip(columns[0] * (1 + random.normal(size=count) * 1e-3), low, high)
        columns[1] = np.where(close, nearby, columns[1])
    rows = np.asarray(columns).T.astype(dtype)
    return [[*row] for row in rows if np.all(np.isfinite(row)) and not any(
        abs(float(row[0]) - zero) < 0.1 * abs(zero) for zero in formula.zeros)]


def _numbers(random: Any, info: Any, low: float, high: float, count: int) -> Any:
    low, high = max(low, -float(info.max)), min(high, float(info.max))
    exponents = random.uniform(info.minexp, info.maxexp, count)
    wide = np.ldexp(random.choice([-1.0, 1.0], count), np.floor(exponents).astype(int)) * (1 + exponents % 1)
    near = random.uniform(max(low, -800.0), min(high, 800.0), count)
    small = near * 10.0 ** random.uniform(-8, 0, count)
    mixed = np.where(random.uniform(size=count) < 0.4, wide, np.where(random.uniform(size=count) < 0.5, near, small))
    return np.where((mixed > low) & (mixed < high), mixed, np.clip(near, low + 1e-3 * (low == 1.0), high))


def ulps(found: Any, exact: Any, dtype: Any, together: bool = False, least: float = 0.0) -> float:
    """Return the largest distance in units of the last place of the exact value; infinite where there is no number.

    `together` measures all elements by the last place of the largest one.
    """
    worst = 0.0
    largest = max(least, *(abs(each) for each in np.ravel(exact)))
    info = np.finfo(dtype)
    for one, other in zip(np.ravel(found), np.ravel(exact), strict=True):
        value = float(one)
        if abs(other) > mpmath.mpf(float(info.max)):
            worst = max(worst, 0.0 if abs(value) >= float(info.max) else np.inf)
            continue
        if not np.isfinite(value):
            return np.inf
        measured = np.asarray(float(largest if together else abs(other)), dtype)
        unit = max(float(np.spacing(measured)), float(info.smallest_subnormal))
        worst = max(worst, float(abs(mpmath.mpf(value) - other) / mpmath.mpf(unit)))
    return worst


def _least(digits: int) -> Any:
    """Return the magnitude that counts as 0 at so many digits: below any float, if they would have shown it."""
    return mpmath.mpf(10) ** -360 if digits > 900 else mpmath.mpf(0)


def near_zero(formula: Formula, arguments: Sequence[Any], exact: Any) -> bool:
    """Return whether a logarithm of a sum is near 0 by cancellation, so that no form can compute its last digits."""
    return formula.vector and not np.ndim(exact) and "log(" in formula.name and abs(exact) < 0.1 * max(
        abs(float(each)) for each in arguments[0])


def columns(formula: Formula, rows: list[list[Any]], dtype: Any) -> list[Any]:
    """Return the points as arguments of one call for all."""
    if formula.vector:
        return [np.stack([row[0] for row in rows])]
    return [np.array(column, dtype) for column in zip(*rows, strict=True)]
