"""Tools of comparisons in tests: tolerances by dtype, random directions, central differences, messages with numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes

TOLERANCES: dict[str, float] = {
    "float64": 1e-11, "complex128": 1e-11, "float32": 2e-5, "complex64": 5e-5, "float16": 1e-2, "bfloat16": 6e-2,
}
"""By dtype, how far two ways of computing one thing may differ, relatively, and absolutely for numbers below 1.

All other dtypes must agree exactly.
"""

DIFFERENCES: dict[str, tuple[float, float]] = {
    "float64": (1e-4, 2e-7), "complex128": (1e-4, 2e-7), "float32": (3e-2, 3e-3), "complex64": (3e-2, 3e-3),
}
"""By dtype of the output, the step of a central difference and the tolerance of comparisons with it.

Narrower dtypes leave no digits in a difference.
"""


class LawError(AssertionError):
    """A rule that breaks a law; the message names the law, the operation, the arguments and the numbers."""


def describe_arguments(values: Sequence[Any], params: dict[str, Any] | None = None) -> str:
    """Return the text of arguments for messages: types, and parameters by name."""
    shown = [f"{dtypes.short_name(value.dtype)}{list(value.shape)}".replace(" ", "") for value in values]
    shown += [f"{key}={value!r}" for key, value in (params or {}).items()]
    return ", ".join(shown)


def mismatch(got: Any, expected: Any, rtol: float, atol: float | None = None) -> str | None:
    """Return where two arrays differ most, or None if they agree: `got 1.0 where 2.0 is expected at [0, 1]`.

    They agree to `rtol`, relatively, or to `atol` (by default `rtol` too). Equal infinities agree, and so do NaNs.
    """
    atol = rtol if atol is None else atol
    got, expected = np.asarray(got), np.asarray(expected)
    if dtypes.is_key(got.dtype) and dtypes.is_key(expected.dtype):
        got, expected = got["threefry2x32"], expected["threefry2x32"]
    if got.shape != expected.shape:
        return f"got shape {got.shape} where {expected.shape} is expected"
    wide = np.complex128 if "c" in (got.dtype.kind, expected.dtype.kind) else None
    if got.dtype.kind not in "biu" or expected.dtype.kind not in "biu":
        got, expected = (value.astype(wide or np.float64) for value in (got, expected))
    with np.errstate(all="ignore"):
        same = (got == expected) | ((got != got) & (expected != expected))  # noqa: PLR0124  (true of NaNs alone)
        if rtol or atol:
            close = np.abs(got - expected) <= np.maximum(atol, rtol * np.abs(expected))
            same |= close & np.isfinite(got) & np.isfinite(expected)
        if np.all(same):
            return None
        distance = np.where(same, -1.0, np.nan_to_num(np.abs(np.subtract(got, expected, dtype=wide or np.float64)),
                                                      nan=np.inf))
    place = np.unravel_index(int(np.argmax(distance)), distance.shape)
    at = f" at {[int(index) for index in place]}" if place else ""
    return f"got {got[place]} where {expected[place]} is expected{at} (tolerance {max(rtol, atol):g})"


def widen(value: Any) -> Any:
    """Return `value` in float64 or complex128 if it is inexact."""
    if dtypes.is_inexact(value.dtype):
        return np.asarray(value).astype(np.complex128 if dtypes.is_complex(value.dtype) else np.float64)[()]
    return value


def direction(random: np.random.Generator, value: Any) -> Any:
    """Return a random tangent of the shape and dtype of `value`."""
    drawn: Any = random.standard_normal(np.shape(value))
    if dtypes.is_complex(value.dtype):
        drawn = drawn + 1j * random.standard_normal(np.shape(value))
    return np.asarray(drawn).astype(value.dtype)[()]


def step_for(values: Sequence[Any]) -> tuple[float, float] | None:
    """Return the step and tolerance of differences of these outputs, by the narrowest dtype; None if too narrow."""
    entries = [DIFFERENCES.get(value.dtype.name) for value in values if dtypes.is_inexact(value.dtype)]
    if None in entries:
        return None
    return max((entry for entry in entries if entry is not None), default=DIFFERENCES["float64"])


def central_difference(function: Callable[..., Sequence[Any]], args: Sequence[Any], tangents: Sequence[Any],
                       step: float) -> list[Any]:
    """Return the derivative of `function` at `args` along `tangents` by a central difference.

    It is of fourth order: its error is about step^4, and the rounding error over step. Outputs that are not inexact
    give zeros.
    """
    def at(distance: float) -> list[Any]:
        moved = [arg if tangent is None else np.asarray(arg + distance * tangent).astype(arg.dtype)[()]
                 for arg, tangent in zip(args, tangents, strict=True)]
        return [widen(output) for output in function(*moved)]

    with np.errstate(all="ignore"):
        weighted = zip(at(step), at(-step), at(2 * step), at(-2 * step), strict=True)
        return [(8 * (near - behind) - (far - opposite)) / (12 * step) if dtypes.is_inexact(near.dtype)
                else np.zeros(np.shape(near)) for near, behind, far, opposite in weighted]


def inner(left: Sequence[Any], right: Sequence[Any]) -> float:
    """Return the real part of the sum of products: the pairing in which transposes are adjoints."""
    return float(sum(np.sum(widen(np.asarray(x)) * widen(np.asarray(y))).real
                     for x, y in zip(left, right, strict=True)))
