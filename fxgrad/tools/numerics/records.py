"""The tape of a run beside a shadow: pairs of values, and each operation with its effect on the digits."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import dtypes, vjp
from fxgrad.errors import FxgradError
from fxgrad.extend import DType, Equation, bind

NEGLIGIBLE = 1e-3
"""Elements smaller than this fraction of the largest count as that large in relative errors."""


class ShadowPair:
    """A computed value, its shadow, and the sensitivity of the results to it, once known."""

    __slots__ = ("low", "slope", "wide")

    def __init__(self, low: Any, wide: Any) -> None:
        self.low, self.wide = low, wide
        self.slope: Any = None

    @property
    def is_real(self) -> bool:
        """Whether the value has a shadow of its own; integers, bools and keys share theirs."""
        return dtypes.is_inexact(np.asarray(self.low).dtype)

    def rounded(self) -> Any:
        """Return the shadow in the program's precision."""
        with np.errstate(all="ignore"):
            return self.wide.astype(self.low.dtype) if self.is_real else self.low

    def add_slope(self, slope: Any, instead: float = 0.0) -> None:
        """Add the slope that one user of the value contributes; `instead` where it is not finite."""
        slope = np.where(np.isfinite(slope), slope, instead)
        self.slope = slope if self.slope is None else self.slope + slope


class RecordedOperation:
    """One operation that ran: its operands and results, and its effect on the digits."""

    __slots__ = ("_params", "amplified", "called_by", "deltas", "equation", "error", "inputs", "outputs", "own", "unit")

    def __init__(self, equation: Equation, called_by: Equation | None, params: dict[str, Any], inputs: list[ShadowPair],
                 outputs: list[ShadowPair], nearby: Sequence[list[Any]], at_low: list[Any]) -> None:
        self.equation, self.called_by, self._params = equation, called_by, params
        self.inputs, self.outputs = inputs, outputs
        real = [place for place, output in enumerate(outputs) if output.is_real]
        self.deltas = {place: _operation_error([made[place] for made in nearby], outputs[place].wide, inputs)
                       for place in real}
        self.error = max(relative_error(outputs[place].low, outputs[place].wide) for place in real)
        self.own = max(relative_error(outputs[place].low, at_low[place]) for place in real)
        incoming = max((relative_error(pair.low, pair.wide) for pair in inputs if pair.is_real), default=0.0)
        propagated = max(relative_error(at_low[place], outputs[place].wide) for place in real)
        self.unit = max(float(dtypes.finfo(outputs[place].low.dtype).eps) for place in real)
        self.amplified = propagated / incoming if 0 < incoming < np.inf else 0.0

    def impact(self) -> tuple[float, float]:
        """Return the error due to the program's precision: relative to the results, and to the operation's own result.

        The second is weighed by the first, element by element.
        """
        total = local = 0.0
        for place, delta in self.deltas.items():
            slope, wide = self.outputs[place].slope, as_float64(self.outputs[place].wide)
            if slope is None:
                continue
            is_lost = ~np.isfinite(delta)
            if np.any(is_lost & (slope != 0)):
                return float("inf"), float("inf")
            with np.errstate(all="ignore"):
                parts = np.abs(slope) * np.where(is_lost, 0, delta).astype(np.float64)
                own = np.minimum(np.where(delta == 0, 0, delta / np.abs(wide)), 1e30).astype(np.float64)
            # Roundings of elements are independent: their squares are added.
            size = float(np.sqrt(np.sum(parts**2)))
            total += size
            weights = parts / (np.sum(parts) or 1.0)
            local += size * float(np.sum(weights * np.where(np.isfinite(own), own, 0)))
        return total, local / total if total else 0.0

    def back(self, instead: float) -> None:
        """Give the operands their slopes; those that are not finite are `instead`."""
        real = [place for place, output in enumerate(self.outputs) if output.is_real]
        moving = [place for place, pair in enumerate(self.inputs) if pair.is_real]
        slopes = [self.outputs[place].slope for place in real]
        if not moving or all(slope is None or not np.any(slope) for slope in slopes):
            return
        fixed = [as_float64(pair.wide) for pair in self.inputs]
        primitive, params = self.equation.primitive, self._params

        def again(*values: Any) -> list[Any]:
            given = [*fixed]
            for place, value in zip(moving, values, strict=True):
                given[place] = value
            outputs = bind(primitive, *given, **params)
            return [outputs[place] for place in real]

        try:
            outputs, pullback = vjp(again, *(fixed[place] for place in moving))
            found = pullback([np.zeros_like(output) if slope is None else _with_shape_of(slope, output)
                              for slope, output in zip(slopes, outputs, strict=True)])
        except FxgradError:  # without a derivative its operands get no slope
            return
        for place, slope in zip(moving, found, strict=True):
            self.inputs[place].add_slope(slope, instead)


class LoopEntry:
    """An entry that a loop sliced off an operand."""

    def __init__(self, whole: ShadowPair, step: int, entry: ShadowPair) -> None:
        self.whole, self.step, self.entry = whole, step, entry

    def back(self, _: float) -> None:
        """Give the operand the slope of its entry."""
        if self.entry.slope is not None:
            slope = np.zeros(np.shape(self.whole.wide), self.entry.slope.dtype)
            slope[self.step] = self.entry.slope
            self.whole.add_slope(slope)


class StackedEntries:
    """The entries that the steps of a loop returned, as one result."""

    def __init__(self, entries: list[ShadowPair], whole: ShadowPair) -> None:
        self.entries, self.whole = entries, whole

    def back(self, _: float) -> None:
        """Give the entries the slope of the result."""
        if self.whole.slope is not None:
            for entry, slope in zip(self.entries, self.whole.slope, strict=True):
                entry.add_slope(slope)


def relative_error(low: Any, wide: Any) -> float:
    """Return the largest error of an element, relative to it, or to a thousandth of the largest element."""
    if not np.size(wide):
        return 0.0
    with np.errstate(all="ignore"):
        low = np.asarray(low).astype(np.asarray(wide).dtype)
        size = np.abs(wide)
        largest = np.max(np.where(np.isfinite(size), size, 0))
        error = np.abs(low - wide) / np.maximum(size, NEGLIGIBLE * largest)
        alike = (low == wide) | (np.isnan(low) & np.isnan(wide))
        return float(np.max(np.where(alike, 0, np.where(np.isnan(error), np.inf, error))))


def _operation_error(nearby: Sequence[Any], exact: Any, inputs: Sequence[ShadowPair]) -> Any:
    """Return the error of an operation on operands rounded to the program's precision; not finite if it loses all.

    If an operand is lost already, the operation is not to blame.
    """
    with np.errstate(all="ignore"):
        delta = np.asarray(functools.reduce(np.maximum, [np.abs(near - exact) for near in nearby]))
    if all(np.all(np.isfinite(pair.wide)) and np.all(np.isfinite(pair.rounded()))
           for pair in inputs if pair.is_real):
        return delta
    return np.where(np.isfinite(delta), delta, 0)


def _with_shape_of(slope: Any, output: Any) -> Any:
    dtype = np.asarray(output).dtype
    return np.asarray(slope if dtypes.is_complex(dtype) else np.real(slope)).astype(dtype)


def at_most_float64(dtype: DType) -> Any:
    """Return the dtype, or the nearest one that programs have."""
    return np.dtype({"f": np.float64, "c": np.complex128}.get(dtype.kind, dtype)) if dtype.itemsize > 8 else dtype


def as_float64(value: Any) -> Any:
    """Return the array in a dtype that programs have."""
    array = np.asarray(value)
    return array.astype(at_most_float64(array.dtype)) if array.dtype.kind in "fc" else array
