"""Integer indices: checked if they are known, and converted for `gather` and `scatter`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.sizes import has_symbolic_dim, surely_less
from fxgrad.engine.frontend.operands import as_array_operand, is_concrete, shape_of
from fxgrad.engine.ops.indexing import gather
from fxgrad.engine.ops.structural import convert, reshape
from fxgrad.engine.ops.windows import Windows
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, IndexingError
from fxgrad.numpy.arithmetic import add, remainder
from fxgrad.numpy.logic import less, where


def check_in_range(name: str, indices: Any, extent: int, axis: int) -> Any:
    """Return known integers counted from the front; raise `IndexingError` if one is out of range."""
    indices = np.asarray(indices)
    if not indices.size:
        return indices
    if dtypes.kind_of(indices.dtype) not in "iu":
        raise DTypeError(at_user_line(f"{name}: indices are integers, got {indices.dtype.name}; convert with "
                                      ".astype(int)"))
    low, high = indices.min(), indices.max()
    if has_symbolic_dim(extent):  # the program looks at them when it runs
        for index in (int(low), int(high)):
            _refuse_certain(name, index, extent, axis)
        return indices
    if low < -extent or high >= extent:
        allowed = f"in range are {-extent} to {extent - 1}" if extent else "the axis has no elements"
        raise IndexingError(at_user_line(
            f"{name}: index {high if high >= extent else low} is out of range for axis {axis} of size {extent}; "
            f"{allowed}"))
    return np.where(indices < 0, indices + extent, indices) if low < 0 else indices


def place_in(name: str, index: Any, extent: Any, axis: int) -> Any:
    """Return a known integer counted from the front; with symbolic sizes it may be found out of range in the call."""
    if not has_symbolic_dim(extent, index):
        return int(check_in_range(name, index, extent, axis))
    _refuse_certain(name, index, extent, axis)
    return index + extent if surely_less(index, 0) else index


def _refuse_certain(name: str, index: Any, extent: Any, axis: int) -> None:
    if surely_less(extent - 1, index) or surely_less(index, -extent):
        raise IndexingError(at_user_line(
            f"{name}: index {index} is out of range for axis {axis} of size {extent} at every size"))


def gather_indices(name: str, indices: Any, extent: int, axis: int, mode: str | None) -> tuple[Any, str]:
    """Return integers as `gather` takes them, and its mode for them.

    Known ones are checked here: out of range is an error, negative ones count from the end. Traced ones are checked at
    run time. Raises `DTypeError` for indices that are not integers.
    """
    indices = as_array_operand(indices)
    dtype = aval_of(indices).dtype
    if dtypes.kind_of(dtype) not in "iu":
        if 0 in shape_of(indices) and is_concrete(indices):
            return np.zeros(shape_of(indices), np.int32), "promise_in_bounds"  # an empty list has a float dtype
        raise DTypeError(at_user_line(f"{name}: indices must be integers, got {dtype.name}; convert with "
                                      "indices.astype(int)"))
    if mode == "promise_in_bounds" or (mode == "clip" and name != "take"):
        return _from_the_front(indices, extent), mode
    if mode == "clip":
        return indices, mode  # NumPy's `take` then has no negative ones: they are clipped too
    if mode == "wrap":
        return remainder(_roomy(indices, extent), max(extent, 1)), "promise_in_bounds"
    if mode in ("fill", "drop"):
        return _from_the_front(indices, extent), "fill"
    if mode not in (None, "raise"):
        raise ArgumentError(at_user_line(f"{name}: mode must be 'raise', 'clip', 'wrap', 'fill' or "
                                         f"'promise_in_bounds', got {mode!r}"))
    if is_concrete(indices):
        known = check_in_range(name, indices, extent, axis)
        if has_symbolic_dim(extent) and known.size and (known.min() < 0 or not surely_less(int(known.max()), extent)):
            return known, "checked"
        return known, "promise_in_bounds"
    return indices, "checked"


def without_negatives(name: str, index: Any, mode: str | None) -> Any:
    """Return an index whose negative integers do not count from the end: they are out of range, as `mode` handles it.

    Raises `IndexingError` for a known one if there is no mode.
    """
    if isinstance(index, tuple):
        return tuple(without_negatives(name, entry, mode) for entry in index)
    if mode in ("wrap", "promise_in_bounds") or index is None or isinstance(index, slice | type(...)):
        return index
    indices = as_array_operand(index)
    if dtypes.kind_of(aval_of(indices).dtype) != "i":
        return index
    if mode in (None, "raise") and is_concrete(indices):
        if np.min(indices, initial=0) < 0:
            raise IndexingError(at_user_line(
                f"{name}: index {np.min(indices)} is out of range: with wrap_negative_indices=False none counts from "
                "the end. Choose another mode than 'raise' for such indices"))
        return index
    out_of_range = 0 if mode == "clip" else np.iinfo(np.int32).max
    return where(less(indices, 0), out_of_range, _roomy(indices, out_of_range))


def _from_the_front(indices: Any, extent: int) -> Any:
    """Return integers with negative ones, which count from the end, converted to count from the front."""
    dtype = aval_of(indices).dtype
    if dtypes.kind_of(dtype) == "u":
        return indices
    indices = _roomy(indices, extent)
    return where(less(indices, 0), add(indices, extent), indices)


def _roomy(indices: Any, extent: int) -> Any:
    """Return integers in a dtype that has the number `extent` too."""
    if not has_symbolic_dim(extent) and extent <= np.iinfo(aval_of(indices).dtype).max:
        return indices
    return convert(indices, np.dtype(np.int32 if not has_symbolic_dim(extent) and extent <= np.iinfo(np.int32).max
                                     else np.int64))


def take_along_one(a: Any, indices: Any, axis: int, mode: str, fill_value: Any = None,
                   promises: Sequence[str] = ()) -> Any:
    """Return the elements of `a` at `indices` along `axis`, which the axes of `indices` replace."""
    sizes, places = shape_of(a), shape_of(indices)
    kept = (*range(axis), *range(axis + len(places), len(places) + len(sizes) - 1))
    window = tuple(1 if at == axis else extent for at, extent in enumerate(sizes))
    return gather(a, reshape(indices, (*places, 1)), Windows(kept, (axis,), (axis,)), window, mode, fill_value,
                  promises)
