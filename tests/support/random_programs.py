"""Random straight-line programs: recipes of smooth operations on matrices, and the functions that they are of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

# Smooth and bounded, so that derivatives of long compositions stay finite and comparable.
UNARY: list[Callable[[Any, Any], Any]] = [
    lambda xp, x: xp.sin(x), lambda xp, x: xp.cos(x), lambda xp, x: xp.tanh(x), lambda xp, x: -x,
    lambda xp, x: xp.exp(-x * x), lambda xp, x: xp.sqrt(x * x + 1.0), lambda xp, x: x * 0.5 + 0.25,
    lambda xp, x: xp.log1p(x * x), lambda xp, x: xp.arctan(x), lambda xp, x: x ** 2 / (1.0 + x ** 2),
    lambda xp, x: xp.transpose(x), lambda xp, x: xp.reshape(xp.ravel(x), x.shape[::-1]),
    lambda xp, x: xp.broadcast_to(xp.mean(x, axis=0), x.shape), lambda xp, x: x - xp.max(x, axis=-1, keepdims=True),
    lambda xp, x: x[::-1], lambda xp, x: xp.concatenate([x[1:], x[:1]], axis=0),
    lambda xp, x: xp.where(x > 0.1, x, 0.5 * x), lambda xp, x: xp.cumsum(x, axis=0) / x.shape[0],
    lambda xp, x: xp.sort(x, axis=-1), lambda xp, x: x / (1.0 + xp.sum(xp.abs(x))),
    lambda xp, x: xp.cumprod(xp.cos(x), axis=-1), lambda xp, x: x * xp.prod(xp.cos(x), axis=0),
    lambda xp, x: x - xp.min(x, axis=0), lambda xp, x: x / xp.sqrt(xp.var(x, axis=-1, keepdims=True) + 1.0),
    lambda xp, x: xp.clip(x, -0.4, 0.6), lambda xp, x: xp.roll(x, 2, axis=-1), lambda xp, x: xp.pad(x, 1)[:-2, 2:] + x,
    lambda xp, x: xp.take_along_axis(x, xp.argmax(x, axis=-1)[:, None], axis=-1) * x,
    lambda xp, x: xp.take_along_axis(x, xp.argsort(x, axis=0), axis=0), lambda xp, x: xp.repeat(x, 2, axis=0)[::2],
]
BINARY: list[Callable[[Any, Any, Any], Any]] = [
    lambda xp, x, y: x + y, lambda xp, x, y: x * y, lambda xp, x, y: x - y, lambda xp, x, y: x / (1.0 + y * y),
    lambda xp, x, y: xp.maximum(x, y), lambda xp, x, y: xp.minimum(x, 0.3 * y), lambda xp, x, y: xp.tanh(x @ y.T) @ y,
    lambda xp, x, y: xp.arctan2(x, 2.0 + y), lambda xp, x, y: xp.where(x > y, x, y * 0.1),
    lambda xp, x, y: xp.einsum("ij,ij->ij", x, y) + x[0, 0],
    lambda xp, x, y: xp.logaddexp(x, y), lambda xp, x, y: xp.hypot(x, y + 0.3),
    lambda xp, x, y: xp.select([x > 0.3, y > 0.3], [x * y, y], x), lambda xp, x, y: (xp.abs(x) + 0.2) ** (0.5 * y),
    lambda xp, x, y: xp.stack([x, y], axis=-1).max(axis=-1), lambda xp, x, y: x * xp.sum(xp.outer(x[0], y[0])),
]


@st.composite
def recipes(draw: st.DrawFn) -> list[tuple[str, int, int, int]]:
    """Return straight-line programs: (kind, operation, operand, operand); operands are numbers of earlier values."""
    steps = []
    for count in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["unary", "binary"]))
        table = UNARY if kind == "unary" else BINARY
        operation = draw(st.integers(0, len(table) - 1))
        steps.append((kind, operation, draw(st.integers(0, count + 1)), draw(st.integers(0, count + 1))))
    return steps


def build(steps: list[tuple[str, int, int, int]], xp: Any) -> Callable[[Any, Any], Any]:
    """Return the function of a recipe; binary operations take equal shapes, transposing where that helps."""
    def function(x: Any, y: Any) -> Any:
        values = [x, y]
        for kind, operation, first, second in steps:
            a, b = values[first], values[second]
            if kind == "unary":
                values.append(UNARY[operation](xp, a))
            else:
                values.append(BINARY[operation](xp, a, b if a.shape == b.shape else xp.transpose(b)))
        return xp.sum(xp.sin(values[-1])) + 0.1 * xp.sum(values[-1])
    return function


shapes = st.sampled_from([(1, 1), (2, 2), (2, 3), (3, 1)])
