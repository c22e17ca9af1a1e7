"""Statistics of order: ranks, and the most frequent value."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import as_array_operand, axis_of, shape_of
from fxgrad.engine.ops.cumulative import cummax, cummin
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, UnsupportedError


class ModeResult(NamedTuple):
    """The most frequent values, and how often they occur."""

    mode: Any
    count: Any


def _refuse_policy(name: str, nan_policy: str) -> None:
    if nan_policy != "propagate":
        raise UnsupportedError(at_user_line(f"{name}: nan_policy={nan_policy!r} is not supported, only 'propagate'; "
                                            "take the NaNs out first"))


def _first_of_runs(ordered: Any) -> Any:
    """For each element of a sorted last axis whether it differs from the one before; NaNs are equal to each other."""
    before, after = ordered[..., :-1], ordered[..., 1:]
    differs = before != after
    if dtypes.is_inexact(ordered.dtype):
        differs = differs & ~(fnp.isnan(before) & fnp.isnan(after))
    return fnp.concatenate([fnp.ones((*shape_of(ordered)[:-1], 1), bool), differs], -1)


def mode(a: Any, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """Return the most frequent value along `axis` (None: of all), the least of several, and its number of occurrences.

    NaNs are equal to each other. Raises `ArgumentError` if there are no elements along the axis.

    >>> import numpy as np
    >>> value, count = mode(np.array([3, 1, 3, 2]))
    >>> int(value), int(count)
    (3, 2)
    """
    _refuse_policy("mode", nan_policy)
    a = as_array_operand(a)
    rank = len(shape_of(a))
    rows = fnp.ravel(a) if axis is None else fnp.moveaxis(a, axis_of("mode", axis, rank), -1)
    size = shape_of(rows)[-1] if shape_of(rows) else 1
    if not size:
        raise ArgumentError(at_user_line(f"mode: an array of shape {shape_of(a)} has no elements along axis {axis}"))
    ordered = fnp.sort(rows, -1)
    places = np.arange(size, dtype=np.int32)
    begin = cummax(fnp.where(_first_of_runs(ordered), places, 0), len(shape_of(ordered)) - 1)
    lengths = places - begin + 1
    values = fnp.take_along_axis(ordered, fnp.argmax(lengths, -1, keepdims=True), -1)
    found = ModeResult(values[..., 0], fnp.max(lengths, -1))
    if not keepdims:
        return found
    shape = (1,) * rank if axis is None else None
    return ModeResult(*(fnp.reshape(each, shape) if shape else fnp.expand_dims(each, axis or 0) for each in found))


_METHODS = ("average", "min", "max", "dense", "ordinal")


def rankdata(a: Any, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Any:
    """Return the ranks of the elements along `axis` (None: of all, flattened), from 1 on, as floats.

    Equal elements get the mean of their ranks (`method="average"`), the least (`"min"`) or greatest (`"max"`) of them,
    or different ones in order of appearance (`"ordinal"`); with `"dense"` the next element gets the next integer. If
    there is a NaN, all ranks of its row are NaN. Raises `ArgumentError` for another method.

    >>> import numpy as np
    >>> rankdata(np.array([30, 10, 20, 20]))
    array([4. , 1. , 2.5, 2.5])
    """
    _refuse_policy("rankdata", nan_policy)
    if method not in _METHODS:
        raise ArgumentError(at_user_line(f"rankdata: method={method!r}; it is one of {', '.join(map(repr, _METHODS))}"))
    a = as_array_operand(a)
    at = None if axis is None else axis_of("rankdata", axis, len(shape_of(a)))
    rows = fnp.ravel(a) if at is None else fnp.moveaxis(a, at, -1)
    float_dtype = dtypes.real_dtype(dtypes.inexact_dtype(rows.dtype))
    ranks = _ranks(rows, method).astype(float_dtype if float_dtype.itemsize > 2 else np.float32)
    if dtypes.is_inexact(rows.dtype):
        ranks = fnp.where(fnp.any(fnp.isnan(rows), -1, keepdims=True), np.nan, ranks)
    return ranks if at is None else fnp.moveaxis(ranks, -1, at)


def _ranks(rows: Any, method: str) -> Any:
    order = fnp.argsort(rows, -1)
    back = fnp.argsort(order, -1)
    if method == "ordinal":
        return back + 1
    first = _first_of_runs(fnp.take_along_axis(rows, order, -1))
    if method == "dense":
        return fnp.take_along_axis(fnp.cumsum(first, -1), back, -1)
    size = shape_of(rows)[-1]
    places = np.arange(size, dtype=np.int32)
    begin = cummax(fnp.where(first, places, 0), len(shape_of(rows)) - 1)
    last = fnp.concatenate([first[..., 1:], fnp.ones((*shape_of(rows)[:-1], min(size, 1)), bool)], -1)
    end = cummin(fnp.where(last, places, size), len(shape_of(rows)) - 1, reverse=True)
    ranks = {"min": begin + 1, "max": end + 1}.get(method)
    if ranks is None:
        ranks = (begin + end + 2) / 2.0
    return fnp.take_along_axis(ranks, back, -1)
