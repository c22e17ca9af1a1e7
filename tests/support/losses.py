"""Losses and formulas of machine learning and statistics, guarded and unguarded, and inputs of the whole range.

A loss is written once, over a namespace: of NumPy, or of mpmath, as the naive formulas are (naive_formulas.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import mpmath
import numpy as np

from tests.support.naive_formulas import Exactly, quotients, settled

EPS = 1e-8


class Loss(NamedTuple):
    """A loss `function(names, *arguments)`, elementwise or along the last axis, and the kind of each argument."""

    name: str
    function: Callable[..., Any]
    kinds: str
    """One letter for each argument: "r" real, "p" a probability, "+" not negative, "l" a label 0 or 1, "c" -1 to 1."""
    vector: bool = False
    least: float = 0.0
    """Errors count in units of the last place of no less than this: the share of a class is rounded near 1."""


class ExactNames(Exactly):
    """The functions of losses, on mpmath's numbers."""

    maximum = np.frompyfunc(max, 2, 1)
    minimum = np.frompyfunc(min, 2, 1)
    expm1 = np.frompyfunc(lambda x: mpmath.exp(x) - 1, 1, 1)
    arccos = np.frompyfunc(mpmath.acos, 1, 1)
    sin = np.frompyfunc(mpmath.sin, 1, 1)

    @staticmethod
    def clip(x: Any, low: float, high: float) -> Any:
        return np.frompyfunc(lambda each: min(max(each, mpmath.mpf(low)), mpmath.mpf(high)), 1, 1)(x)

    @staticmethod
    def max(x: Any, axis: int = -1, keepdims: bool = False) -> Any:
        return np.max(x, axis=axis, keepdims=keepdims)


def _sigmoid(xp: Any, x: Any) -> Any:
    return 1 / (1 + xp.exp(-x))


def _shares(xp: Any, x: Any) -> Any:
    return xp.exp(x) / xp.sum(xp.exp(x), axis=-1, keepdims=True)


LOSSES = [
    Loss("binary cross-entropy", lambda xp, p, y: -(y * xp.log(p) + (1 - y) * xp.log(1 - p)), "pl"),
    Loss("binary cross-entropy, guarded",
         lambda xp, p, y: -(y * xp.log(p + EPS) + (1 - y) * xp.log(1 - p + EPS)), "pl"),
    Loss("binary cross-entropy, guarded in front",
         lambda xp, p, y: -(y * xp.log(EPS + p) + (1 - y) * xp.log(EPS + (1 - p))), "pl"),
    Loss("binary cross-entropy, guarded within", lambda xp, p: -xp.log(1 - (p - EPS)), "p"),
    Loss("binary cross-entropy, clipped",
         lambda xp, p, y: -(y * xp.log(xp.clip(p, 1e-7, 1 - 1e-7)) + (1 - y) * xp.log(1 - xp.clip(p, 1e-7, 1 - 1e-7))),
         "pl"),
    Loss("binary cross-entropy of logits",
         lambda xp, x, y: -(y * xp.log(_sigmoid(xp, x)) + (1 - y) * xp.log(1 - _sigmoid(xp, x))), "rl"),
    Loss("binary cross-entropy of logits, guarded",
         lambda xp, x, y: -(y * xp.log(_sigmoid(xp, x) + EPS) + (1 - y) * xp.log(1 - _sigmoid(xp, x) + EPS)), "rl"),
    Loss("binary cross-entropy, larger than the guard", lambda xp, p: -xp.log(xp.maximum(1 - p, EPS)), "p"),
    Loss("focal", lambda xp, p: -((1 - p) ** 2) * xp.log(p + EPS), "p"),
    Loss("focal of the other class", lambda xp, p: -(p ** 2) * xp.log(1 - p + EPS), "p"),
    Loss("focal of logits", lambda xp, x: -((1 - _sigmoid(xp, x)) ** 2) * xp.log(_sigmoid(xp, x)), "r"),
    Loss("discriminator", lambda xp, x, y: -(xp.log(_sigmoid(xp, x)) + xp.log(1 - _sigmoid(xp, y))), "rr"),
    Loss("discriminator, guarded", lambda xp, p, q: -xp.log(p + EPS) - xp.log(1 - q + EPS), "pp", least=1.0),
    Loss("generator", lambda xp, x: xp.log(1 - _sigmoid(xp, x)), "r"),
    Loss("generator, guarded", lambda xp, x: xp.log(1 - _sigmoid(xp, x) + 1e-6), "r"),
    Loss("least squares of a share", lambda xp, x, y: (_sigmoid(xp, x) - y) ** 2, "rl"),
    Loss("entropy", lambda xp, p: -p * xp.log(p), "p"),
    Loss("entropy, guarded", lambda xp, p: -p * xp.log(p + EPS), "p"),
    Loss("entropy of two classes", lambda xp, p: -(p * xp.log(p) + (1 - p) * xp.log(1 - p)), "p"),
    Loss("entropy of two classes, guarded",
         lambda xp, p: -(p * xp.log(p + EPS) + (1 - p) * xp.log(1 - p + EPS)), "p"),
    Loss("log of the slope of tanh", lambda xp, u: xp.log(1 - xp.tanh(u) ** 2), "r"),
    Loss("log of the slope of tanh, guarded", lambda xp, u: xp.log(1 - xp.tanh(u) ** 2 + 1e-6), "r"),
    Loss("log of the slope of tanh, of the action", lambda xp, a: xp.log(1 - a ** 2 + 1e-6), "c"),
    Loss("log of the slope of tanh, held", lambda xp, u: xp.log(xp.maximum(1 - xp.tanh(u) ** 2, 1e-6)), "r"),
    Loss("concrete logits", lambda xp, u: xp.log(u) - xp.log(1 - u), "p"),
    Loss("concrete logits, guarded", lambda xp, u: xp.log(u + EPS) - xp.log(1 - u + EPS), "p"),
    Loss("concrete logits as a quotient", lambda xp, u: xp.log(u / (1 - u)), "p"),
    Loss("concrete logits as a quotient, guarded", lambda xp, u: xp.log((u + EPS) / (1 - u + EPS)), "p"),
    Loss("Gumbel noise", lambda xp, u: -xp.log(-xp.log(u)), "p"),
    Loss("Gumbel noise, guarded", lambda xp, u: -xp.log(-xp.log(u + EPS) + EPS), "p"),
    Loss("1 - cos", lambda xp, a: 1 - xp.cos(a), "r"),
    Loss("1 - cos, guarded", lambda xp, a: 1 - xp.cos(a) + EPS, "r"),
    Loss("root of 1 - cos, guarded", lambda xp, a: xp.sqrt(1 - xp.cos(a) + EPS), "r"),
    Loss("1 over 1 - cos, guarded", lambda xp, a: 1 / (1 - xp.cos(a) + EPS), "r"),
    Loss("divergence", lambda xp, p, q: p * xp.log(p / q), "pp"),
    Loss("divergence, guarded", lambda xp, p, q: p * xp.log((p + EPS) / (q + EPS)), "pp"),
    Loss("divergence of normals", lambda xp, m, s: -0.5 * (1 + s - m ** 2 - xp.exp(s)), "rr"),
    Loss("divergence of Bernoullis",
         lambda xp, p, q: p * xp.log(p / q) + (1 - p) * xp.log((1 - p) / (1 - q)), "pp"),
    Loss("softplus", lambda xp, x: xp.log(1 + xp.exp(x)), "r"),
    Loss("softplus, guarded", lambda xp, x: xp.log(1 + xp.exp(x) + EPS), "r"),
    Loss("softplus, held", lambda xp, x: xp.log(1 + xp.exp(xp.minimum(x, 20.0))), "r"),
    Loss("inverse of softplus", lambda xp, y: xp.log(xp.exp(y) - 1), "+"),
    Loss("inverse of softplus, guarded", lambda xp, y: xp.log(xp.exp(y) - 1 + EPS), "+"),
    Loss("hinge", lambda xp, x, y: xp.maximum(0.0, 1 - (2 * y - 1) * x), "rl"),
    Loss("squared hinge", lambda xp, x, y: xp.maximum(0.0, 1 - (2 * y - 1) * x) ** 2, "rl"),
    Loss("logistic", lambda xp, x, y: xp.log(1 + xp.exp(-(2 * y - 1) * x)), "rl"),
    Loss("Student's t", lambda xp, x: 2.0 * xp.log(1 + x ** 2 / 3), "r"),
    Loss("Cauchy", lambda xp, x, s: xp.log(1 + (x / s) ** 2), "r+"),
    Loss("Charbonnier", lambda xp, x: xp.sqrt(x ** 2 + 1e-6) - 1e-3, "r"),
    Loss("pseudo-Huber", lambda xp, x: xp.sqrt(1 + x ** 2) - 1, "r"),
    Loss("log-cosh", lambda xp, x, y: xp.log(xp.cosh(x - y)), "rr"),
    Loss("Poisson", lambda xp, x, k: xp.exp(x) - k * x, "r+"),
    Loss("Poisson of a rate, guarded", lambda xp, rate, k: rate - k * xp.log(rate + EPS), "++"),
    Loss("normal", lambda xp, x, s: 0.5 * xp.log(s ** 2) + 0.5 * (x / s) ** 2, "r+"),
    Loss("normal, guarded", lambda xp, x, s: 0.5 * xp.log(s ** 2 + EPS) + 0.5 * x ** 2 / (s ** 2 + EPS), "r+"),
    Loss("log-normal", lambda xp, x: xp.log(x + 1) - xp.log(x), "+"),
    Loss("relative difference of logarithms", lambda xp, x, y: (xp.log(1 + x) - xp.log(1 + y)) ** 2, "++"),
    Loss("Weibull", lambda xp, x: 1 - xp.exp(-(x ** 1.5)), "+"),
    Loss("geometric", lambda xp, p, k: k * xp.log(1 - p) + xp.log(p), "p+"),
    Loss("beta", lambda xp, p: xp.log(p ** 0.5) + xp.log((1 - p) ** 1.5), "p"),
    Loss("Box-Cox", lambda xp, x: (xp.exp(0.01 * xp.log(x)) - 1) / 0.01, "+"),
    Loss("mish", lambda xp, x: x * xp.tanh(xp.log(1 + xp.exp(x))), "r"),
    Loss("swish", lambda xp, x: x / (1 + xp.exp(-x)), "r"),
    Loss("elu", lambda xp, x: xp.maximum(x, 0.0) + xp.minimum(xp.exp(xp.minimum(x, 0.0)) - 1, 0.0), "r"),
    Loss("quotient of exponentials", lambda xp, x: xp.exp(x) * 3.0 / xp.exp(x), "r"),
    Loss("Dice, guarded", lambda xp, p, y: 1 - (2 * p * y + EPS) / (p + y + EPS), "pl"),
    Loss("length, guarded", lambda xp, x, y: xp.sqrt(x ** 2 + y ** 2 + EPS), "rr"),
    Loss("length of a difference", lambda xp, x, y: xp.sqrt((x - y) ** 2), "rr"),
    Loss("log-sum-exp", lambda xp, x: xp.log(xp.sum(xp.exp(x), axis=-1)), "r", True),
    Loss("log-sum-exp, guarded", lambda xp, x: xp.log(xp.sum(xp.exp(x), axis=-1) + EPS), "r", True),
    Loss("log-mean-exp", lambda xp, x: xp.log(xp.mean(xp.exp(x), axis=-1)), "r", True),
    Loss("log-sum of weighted exponentials", lambda xp, x, w: xp.log(xp.sum(w * xp.exp(x), axis=-1)), "r+", True),
    Loss("cross-entropy", lambda xp, x: -xp.log(_shares(xp, x))[..., 0], "r", True, 1.0),
    Loss("cross-entropy, guarded", lambda xp, x: -xp.log(_shares(xp, x) + EPS)[..., 0], "r", True, 1.0),
    Loss("cross-entropy of shares", lambda xp, p, q: -xp.sum(q * xp.log(p + EPS), axis=-1), "pp", True),
    Loss("softmax, shifted", lambda xp, x: xp.exp(x - xp.max(x, axis=-1, keepdims=True))[..., 0] / xp.sum(
        xp.exp(x - xp.max(x, axis=-1, keepdims=True)), axis=-1), "r", True),
    Loss("norm", lambda xp, x: xp.sqrt(xp.sum(x ** 2, axis=-1)), "r", True),
    Loss("norm, guarded", lambda xp, x: xp.sqrt(xp.sum(x ** 2, axis=-1) + EPS), "r", True),
    Loss("cosine, guarded", lambda xp, x, y: 1 - xp.sum(x * y, axis=-1) / (
        xp.sqrt(xp.sum(x * x, axis=-1)) * xp.sqrt(xp.sum(y * y, axis=-1)) + EPS), "rr", True, 1.0),
    Loss("variance", lambda xp, x: xp.mean(x ** 2, axis=-1) - xp.mean(x, axis=-1) ** 2, "r", True),
    Loss("deviation, guarded",
         lambda xp, x: xp.sqrt(xp.mean(x ** 2, axis=-1) - xp.mean(x, axis=-1) ** 2 + 1e-5), "r", True),
    Loss("log of a product of shares", lambda xp, p: xp.log(xp.prod(p, axis=-1)), "p", True),
    Loss("log of a product of shares, guarded", lambda xp, p: xp.log(xp.prod(p, axis=-1) + EPS), "p", True),
    Loss("noisy or", lambda xp, p: xp.log(1 - xp.prod(1 - p, axis=-1)), "p", True),
]


def _reals(dtype: Any) -> list[float]:
    info = ml_dtypes.finfo(dtype)
    large, least, last = float(info.max), float(info.tiny), float(info.eps)
    sizes = [0.0, float(info.smallest_subnormal), least, least ** 0.5, last ** 2, last, last ** 0.5, 1e-3, 0.1, 0.3,
             0.5, 0.7, 1.0 - last, 1.0, 1.0 + last, 1.5, 2.0, 3.14159, 5.0, 8.7, 9.1, 17.0, 20.0, 40.0, 60.0, 88.0,
             89.5, 110.0, 300.0, 709.0, 710.5, 1e4, large ** 0.5 / 3, large ** 0.5 * 3, large / 4, large, np.inf]
    return [size * sign for size in sizes for sign in (1.0, -1.0)]


def _probabilities(dtype: Any) -> list[float]:
    info = ml_dtypes.finfo(dtype)
    least, last = float(info.tiny), float(info.eps)
    return [0.0, float(info.smallest_subnormal), least, 1e-30, 1e-12, EPS, last / 2, last, 3 * last, 1e-5, 1e-3, 0.01,
            0.1, 0.2, 0.25, 0.3, 0.4, 0.5 - last, 0.5, 0.5 + last, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.99, 0.999,
            1 - 1e-5, 1 - 3 * last, 1 - last, 1 - last / 2, 1.0]


INPUTS: dict[str, Callable[[Any], list[float]]] = {
    "r": _reals,
    "p": _probabilities,
    "+": lambda dtype: [x for x in _reals(dtype) if not np.signbit(x)],
    "l": lambda dtype: [0.0, 1.0],
    "c": lambda dtype: [sign * p for p in _probabilities(dtype) for sign in (1.0, -1.0)],
}
VECTOR = 4


def inputs(loss: Loss, dtype: Any, count: int = 70, seed: int = 0) -> list[Any]:
    """Arguments of one call for all points: each value of a kind at least once, beside values drawn of the others."""
    random = np.random.default_rng(seed)
    tables = [INPUTS[kind](dtype) for kind in loss.kinds]
    count = max(count, *map(len, tables))
    columns = []
    for table in tables:
        drawn = [*random.permutation(table), *random.choice(table, max(0, count - len(table)))]
        columns.append(np.asarray(drawn[:count]).astype(dtype))
    if loss.vector:  # one value in a vector of moderate ones, or of drawn values
        for place, (kind, column) in enumerate(zip(loss.kinds, columns, strict=True)):
            rest = random.uniform(0.05, 0.95, (count, VECTOR - 1)) * (1.0 if kind == "p" else 4.0)
            drawn = random.choice(INPUTS[kind](dtype), (count, VECTOR - 1))
            rows = np.where(random.uniform(size=(count, 1)) < 0.7, rest, drawn).astype(dtype)
            columns[place] = np.concatenate([column[:, None], rows], axis=1)
    return columns


def neighbours(arguments: Sequence[Any], distance: int) -> list[Any]:
    """Return arguments moved by some units in the last place, within 0 and 1 if they lie there; labels stay."""
    moved = []
    for each in arguments:
        with np.errstate(all="ignore"):
            shifted = each
            for _ in range(abs(distance)):
                shifted = np.nextafter(shifted, np.asarray(np.inf if distance > 0 else -np.inf, each.dtype))
        moved.append(np.where(np.isfinite(each) & (each != 0) & (each != 1), shifted, each))
    return moved


# --- exact values ---------------------------------------------------------------------------------------------------


def _exact(x: Any) -> Any:
    return x if isinstance(x, mpmath.mpf) else mpmath.mpf(float(x))


def _exactly(loss: Loss, row: Sequence[Any], digits: int) -> Any:
    with mpmath.workdps(digits):
        given = [np.frompyfunc(_exact, 1, 1)(each) for each in row]
    return _computed(loss, tuple(tuple(each) if np.ndim(each) else each for each in given), digits)


@functools.lru_cache(maxsize=20_000)
def _computed(loss: Loss, row: Sequence[Any], digits: int) -> Any:
    """Return the value with so many digits, once for a point that slopes, neighbours and other dtypes need again."""
    with mpmath.workdps(digits):
        try:
            return loss.function(ExactNames, *(np.array(each, object) if isinstance(each, tuple) else each
                                               for each in row))
        except (ValueError, ZeroDivisionError, OverflowError, TypeError):
            return None


def exact_value(loss: Loss, row: Sequence[Any]) -> Any:
    """Return the value with as many digits as needed, at infinities its limit; None where there is no number."""
    if all(np.isfinite(np.asarray(each, float)).all() for each in row):
        return settled(lambda digits: _exactly(loss, row, digits))
    found = _exactly(loss, row, 60)
    return found if isinstance(found, mpmath.mpf) and not mpmath.isnan(found) else None


def exact_slope(loss: Loss, row: Sequence[Any]) -> Any:
    """Return the derivative in the first argument; None where there is none, as at a kink."""
    if not all(np.isfinite(np.asarray(each, float)).all() for each in row):
        return None

    return settled(lambda digits: quotients(lambda x: _exactly(loss, [x, *row[1:]], digits), row[0], digits, _slope))


def _slope(function: Callable[[Any], Any], x: Any, step: Any) -> Any:
    """Return the difference quotient, if it is the same to the left and to the right."""
    apart = abs(x) * step if x else step
    low, middle, high = function(x - apart), function(x), function(x + apart)
    if not all(isinstance(each, mpmath.mpf) and mpmath.isfinite(each) for each in (low, middle, high)):
        return None
    left, right = (middle - low) / apart, (high - middle) / apart
    return (high - low) / (2 * apart) if abs(left - right) <= mpmath.mpf(10) ** -12 * (abs(left) + abs(right)) else None


COMPILED_ZERO = 1024
"""XLA flushes subnormal numbers to 0, so up to this many times the least normal number may be missing."""


def error(found: Any, exact: Any, dtype: Any, least: float = 0.0, is_compiled: bool = False) -> float:
    """The largest distance in units of the last place of the largest exact one; infinite where there is no number."""
    info = ml_dtypes.finfo(dtype)
    exacts = np.ravel(exact)
    size = max(mpmath.mpf(least), *map(abs, exacts))
    unit = max(float(np.spacing(np.asarray(min(float(size), float(info.max) / 4), dtype))),
               COMPILED_ZERO * float(info.tiny) if is_compiled else float(info.smallest_subnormal))
    worst = 0.0
    for value, other in zip(np.ravel(found).astype(float), exacts, strict=True):
        if abs(other) > float(info.max):
            worst = max(worst, 0.0 if abs(value) >= float(info.max) and (value > 0) == (other > 0) else np.inf)
        else:
            worst = max(worst, float(abs(mpmath.mpf(value) - other) / unit) if np.isfinite(value) else np.inf)
    return worst
