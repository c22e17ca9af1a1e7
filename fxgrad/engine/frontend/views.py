"""Views: results that NumPy would return as views record their base, so that in-place changes are refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.tracing.tracer import Tracer

VIEWS = frozenset([
    "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_to", "diag",
    "diagonal", "dsplit", "expand_dims", "flip", "fliplr", "flipud", "hsplit", "imag", "matrix_transpose",
    "moveaxis", "permute_dims", "ravel", "real", "reshape", "rollaxis", "rot90", "split", "squeeze",
    "swapaxes", "transpose", "trim_zeros", "unstack", "view", "vsplit",
])
"""Functions and methods whose results may be views of an argument."""


def note_view(result: Any, args: tuple[Any, ...]) -> Any:
    """Return the result of one of `VIEWS`, recording the array that it is a view of."""
    array = args[0] if args else None
    if type(result) is Tracer and type(array) is Tracer and result is not array:
        result.viewed = array
        return result
    if type(result) is Tracer:
        return _note_base(result, array)
    if isinstance(result, list | tuple):
        owners = [arg if type(arg) is Tracer else array for arg in (*args, *[array] * len(result))]
        return type(result)([_note_base(part, owner) for part, owner in zip(result, owners, strict=False)])
    return result


def note_real_view(result: Any, args: tuple[Any, ...]) -> Any:
    """Return the result of the method `conj`, which in NumPy is the array itself if that is real."""
    return note_view(result, args) if result.dtype.kind != "c" else result


def note_item_view(result: Any, args: tuple[Any, ...]) -> Any:
    """Return `x[index]`, recording the base if NumPy's result is a view."""
    index = args[1]
    kind = type(index)
    if kind is int or kind is slice:  # by far the most frequent cases
        if result.variable.aval.shape:
            array = args[0]
            if result is array:
                return _note_base(result, array)
            result.viewed = array
    elif is_view(index, result):
        return _note_base(result, args[0])
    return result


def _note_base(result: Any, array: Any) -> Any:
    if type(result) is not Tracer or type(array) is not Tracer:
        return result
    if result is array:
        result = result.__copy__()
    result.viewed = array
    return result


def is_view(index: Any, result: Any) -> bool:
    """Return whether NumPy's result of `x[index]` is a view of `x`."""
    entries = index if isinstance(index, tuple) else (index,)
    if not all(map(_is_basic, entries)):
        return False
    return bool(result.variable.aval.shape) or any(entry is Ellipsis for entry in entries)


def _is_basic(entry: Any) -> bool:
    if type(entry) is Tracer:
        return not entry.variable.aval.shape and dtypes.kind_of(entry.variable.aval.dtype) in "iu"
    return entry is None or entry is Ellipsis or isinstance(entry, slice | np.integer) or (
        isinstance(entry, int) and not isinstance(entry, bool))
