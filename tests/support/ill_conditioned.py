"""Programs in which one planted, marked line loses the digits; the lines around it are harmless."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fxgrad
import fxgrad.numpy as fnp

RNG = np.random.default_rng(0)


class Case(NamedTuple):
    """A program, its arguments, and the planted line."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    line: int


CASES: list[Case] = []


def case(*arguments: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a program under the first line of its docstring."""
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        lines, first = inspect.getsourcelines(function)
        planted, = (number for number, line in enumerate(lines) if "# planted" in line)
        CASES.append(Case((function.__doc__ or "").rstrip("."), function, arguments, first + planted))
        return function
    return enter


def f32(*values: float) -> Any:
    return np.array(values, np.float32)


X = np.linspace(0.2, 1.2, 8, dtype=np.float32)


def warm(x: Any) -> Any:
    """Something harmless, with a cancellation that is of no consequence."""
    near = np.sin(x) - np.sin(x * np.float32(1.0001))
    return np.tanh(x * 2 + 1) * 3 + near * np.float32(1e-3)


def cool(x: Any) -> Any:
    """Something harmless that passes errors on."""
    return np.sqrt(x * x + 1) + np.sum(np.exp(-np.abs(x))) / 7


@case(X)
def cancellation(x: Any) -> Any:
    """difference of nearly equal numbers."""
    a = warm(x)
    b = a * np.float32(1.00001)
    scaled = a - b  # planted
    return cool(warm(x)) + scaled * 1e5


@case(X + 100)
def variance(x: Any) -> Any:
    """variance as E[x^2] - E[x]^2."""
    y = np.tanh(x / 300) + 50
    mean = np.mean(y)
    square = np.mean(y * y)
    spread = square - mean ** 2  # planted
    return y.sum() * 1e-3 + np.sqrt(np.abs(spread)) * 10


@case(f32(2000.0), f32(0.3))
def quadratic(b: Any, c: Any) -> Any:
    """smaller root of a quadratic."""
    p = np.exp(c) * b
    root = np.sqrt(p * p - 4 * c)
    small = (-p + root) / 2  # planted
    return cool(small * 1e4) + warm(c)


@case(X * np.float32(1e-3))
def one_minus_cosine(x: Any) -> Any:
    """1 - cos(x) for small x."""
    y = np.sin(x) * 2
    part = (1 - np.cos(y)) / (y * y)  # planted
    return np.mean(cool(part)) + warm(x)


@case(X * np.float32(1e-5))
def log_of_one_plus(x: Any) -> Any:
    """log(1 + x) for small x."""
    y = np.tanh(x) * 3
    logarithm = np.log(1 + y)  # planted
    return cool(logarithm * 1e4) * warm(x)


@case(f32(-9.0))
def alternating_series(x: Any) -> Any:
    """exp of a negative number by its series."""
    term, total = fnp.ones_like(x), fnp.ones_like(x)
    for n in range(1, 40):
        term = term * x / n
        total = total + term  # planted
    return np.log(np.abs(total)) + np.sum(warm(x)) * 1e-3


@case(X * np.float32(0.01) + 1)
def polynomial_near_a_root(x: Any) -> Any:
    """(x - 1)^5 multiplied out."""
    y = np.sin(x - 1) + 1
    value = y**5 - 5 * y**4 + 10 * y**3 - 10 * y**2 + 5 * y - 1  # planted
    return value * 1e6 + cool(x)


HILBERT = (1 / (np.arange(5)[:, None] + np.arange(5) + 1)).astype("f")


@case(HILBERT, np.ones(5, "f"))
def solving_near_singularity(a: Any, b: Any) -> Any:
    """solve with a Hilbert matrix."""
    shifted = a * np.float32(1.1)
    right = np.tanh(b) + 1
    solution = np.linalg.solve(shifted, right)  # planted
    return np.sum(cool(solution / 1000)) + np.sum(warm(b))


@case(HILBERT)
def inverting_near_singularity(a: Any) -> Any:
    """inverse of a Hilbert matrix."""
    scaled = np.sqrt(a) ** 2
    inverse = np.linalg.inv(scaled)  # planted
    return np.mean(inverse @ np.tanh(a)) + np.sum(warm(a[0]))


@case(RNG.uniform(1, 2, 1000).astype("f"))
def difference_of_large_sums(x: Any) -> Any:
    """difference of two large sums."""
    y = np.exp(np.sin(x))
    first, second = np.sum(y), np.sum(y * np.float32(1.000001))
    change = second - first  # planted
    return change * 100 + np.mean(warm(x))


@case(np.full(1500, 0.02, np.float16))
def sum_in_half_precision(x: Any) -> Any:
    """sum of many small numbers in float16."""
    y = x * np.float16(1.5)

    def add(total: Any, each: Any) -> Any:
        return total + each, None  # planted

    total, _ = fxgrad.lax.scan(add, np.float16(0), y)
    return total * 2 + np.max(y)


@case(f32(3e6, 5e6))
def difference_of_roots(x: Any) -> Any:
    """sqrt(x + 1) - sqrt(x) for large x."""
    y = x * np.float32(1.25)
    step = np.sqrt(y + 1) - np.sqrt(y)  # planted
    return cool(step * 1000) + warm(x / np.float32(1e6))


@case(X * np.float32(1e-5))
def exponential_minus_one(x: Any) -> Any:
    """exp(x) - 1 for small x."""
    y = np.sin(x) * 2
    growth = (np.exp(y) - 1) / y  # planted
    return np.sum(growth) + cool(x)


@case(f32(0.0, 30.0, 55.0))
def logarithm_of_a_share(x: Any) -> Any:
    """log of one minus a share that is nearly one."""
    y = x * np.float32(0.25)
    share = 1 / (1 + np.exp(-y))
    loss = -np.log(1 - share)  # planted
    return loss * np.tanh(y + 1) + cool(x) * np.float32(0.01)


@case(f32(3e20, 4e20))
def norm_that_overflows(x: Any) -> Any:
    """norm of large numbers."""
    y = x * np.float32(0.5)
    size = np.sqrt(np.sum(y * y))  # planted
    return y / size + np.tanh(x * np.float32(1e-20))


@case(f32(3e-24, 4e-24))
def norm_that_underflows(x: Any) -> Any:
    """norm of small numbers."""
    y = x * np.float32(0.5)
    size = np.sqrt(np.sum(y * y))  # planted
    return size * np.float32(1e24) + np.tanh(x * np.float32(1e24))


@case(X)
def sine_of_a_large_number(x: Any) -> Any:
    """sine of a large number."""
    phase = np.tanh(x) * np.float32(1e6)
    wave = np.sin(phase)  # planted
    return cool(wave) + warm(x)


@case(f32(1.0))
def unstable_recurrence(x: Any) -> Any:
    """recurrence with a growing solution, in a loop."""
    start = np.sqrt(x)

    def step(pair: Any, _: Any) -> Any:
        before, now = pair
        after = now * np.float32(13 / 3) - before * np.float32(4 / 3)  # planted
        return (now, after), after

    _, values = fxgrad.lax.scan(step, (start, start / 3), None, 15)
    return np.sum(warm(values)) * 1e-3 + values[-1]


@case(np.linspace(1, 1.5, 6, dtype="f"), X[:6])
def vandermonde(x: Any, y: Any) -> Any:
    """coefficients of a polynomial through near points."""
    powers = fnp.vander(x * np.float32(1.1))
    coefficients = np.linalg.solve(powers, np.tanh(y) + 1)  # planted
    return np.sum(np.abs(coefficients)) + np.mean(warm(x))


@case(f32(1.0, 0.0), f32(0.9999, 1e-4))
def angle_by_arccosine(u: Any, v: Any) -> Any:
    """small angle by arccos of a product."""
    cosine = np.dot(u, v) / np.sqrt(np.dot(v, v))
    angle = np.arccos(cosine)  # planted
    return angle * np.float32(100.0) + np.sum(warm(u))


@case(f32(0.3), f32(1e-4))
def difference_quotient(x: Any, h: Any) -> Any:
    """derivative by a difference."""
    width = h * np.float32(1.7)
    slope = (np.exp(np.sin(x + width)) - np.exp(np.sin(x))) / width  # planted
    return cool(slope) + warm(x)


@case(f32(0.1), f32(1000.0))
def branch_in_a_loop(x: Any, scale: Any) -> Any:
    """cancellation in a branch in a loop."""
    def far(y: Any) -> Any:
        big = y + scale
        return (big - scale) * np.float32(1.5)  # planted

    def body(_: Any, y: Any) -> Any:
        return fxgrad.lax.cond(y[0] > 0, far, lambda y: y * 2, np.sin(y))

    return fxgrad.lax.fori_loop(0, 3, body, x) + np.tanh(warm(x)) * 1e-2


@case(f32(5e-4, 3e-4, 4e-4))
def area_by_heron(sides: Any) -> Any:
    """area of a thin triangle by Heron's formula."""
    a, b = sides[0], sides[1]
    c = (a + b) * np.float32(0.99999)
    half = (a + b + c) / 2
    area = np.sqrt(half * (half - a) * (half - b) * (half - c))  # planted
    return area * np.float32(1e8) + np.mean(warm(sides))
