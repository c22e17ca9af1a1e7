"""Joining arrays and taking them apart: concatenate, stack, split and their relatives."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import axis_of, new_array, refuse_out, require_concrete, shape_of
from fxgrad.engine.ops import joining
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy.creation import as_common_arrays, asarray, rows_of
from fxgrad.numpy.shaping import atleast_1d, atleast_2d, atleast_3d, ravel


def _arrays(name: str, arrays: Any, dtype: Any) -> list[Any]:
    """Return the arrays of a caller's sequence, or the rows of one array, in one dtype."""
    if isinstance(arrays, Iterable):
        parts = rows_of(arrays)
    else:
        raise ArgumentError(at_user_line(f"{name}: a sequence of arrays is needed, got {type(arrays).__name__}"))
    if not parts:
        raise ShapeError(at_user_line(f"{name}: at least one array is needed"))
    return as_common_arrays(parts) if dtype is None else [asarray(part, dtype) for part in parts]


def concatenate(arrays: Any, axis: int | None = 0, out: Any = None, dtype: Any = None) -> Any:
    """Return arrays joined along an existing axis (None: flattened first); dtypes promote.

    Raises `ShapeError` if their other sizes differ, or for scalars.

    >>> concatenate([[1, 2], [3]])
    array([1, 2, 3], dtype=int32)
    """
    refuse_out("concatenate", out)
    parts = _arrays("concatenate", arrays, dtype)
    if axis is None:
        parts, axis = [ravel(part) for part in parts], 0
    if [part for part in parts if not shape_of(part)]:
        raise ShapeError(at_user_line("concatenate: scalars cannot be joined; use stack, or x.reshape(1)"))
    return new_array(joining.concatenate(parts, axis_of("concatenate", axis, len(shape_of(parts[0])))), parts[0])


def concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    """Join arrays like `concatenate`, with the signature of the array API standard.

    >>> concat([[1, 2], [3]])
    array([1, 2, 3], dtype=int32)
    """
    return concatenate(arrays, axis)


def stack(arrays: Any, axis: int = 0, out: Any = None, dtype: Any = None) -> Any:
    """Return arrays of one shape joined along a new axis; dtypes promote. Raises `ShapeError` if their shapes differ.

    >>> stack([1.0, 2.0])
    array([1., 2.], dtype=float32)
    """
    refuse_out("stack", out)
    parts = _arrays("stack", arrays, dtype)
    return joining.stack(parts, axis_of("stack", axis, len(shape_of(parts[0])) + 1))


def hstack(tup: Any, dtype: Any = None) -> Any:
    """Return arrays joined along the second axis, vectors along their only one.

    >>> hstack([[1, 2], [3]])
    array([1, 2, 3], dtype=int32)
    """
    parts = [atleast_1d(part) for part in _arrays("hstack", tup, dtype)]
    return concatenate(parts, 0 if len(shape_of(parts[0])) == 1 else 1)


def vstack(tup: Any, dtype: Any = None) -> Any:
    """Return arrays joined along the first axis, vectors as rows.

    >>> vstack([[1, 2], [3, 4]])
    array([[1, 2],
           [3, 4]], dtype=int32)
    """
    return concatenate([atleast_2d(part) for part in _arrays("vstack", tup, dtype)], 0)


def dstack(tup: Any, dtype: Any = None) -> Any:
    """Return arrays joined along the third axis.

    >>> dstack([[1, 2], [3, 4]]).shape
    (1, 2, 2)
    """
    return concatenate([atleast_3d(part) for part in _arrays("dstack", tup, dtype)], 2)


def column_stack(tup: Any) -> Any:
    """Return vectors as the columns of a matrix; matrices are joined along their second axis.

    >>> column_stack([[1, 2], [3, 4]])
    array([[1, 3],
           [2, 4]], dtype=int32)
    """
    parts = _arrays("column_stack", tup, None)
    return concatenate([reshape(part, (*shape_of(part), 1) if shape_of(part) else (1, 1))
                        if len(shape_of(part)) < 2 else part for part in parts], 1)


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """Return `values` joined to the end of `arr` along `axis` (None: both flattened).

    >>> append([1, 2], 3)
    array([1, 2, 3], dtype=int32)
    """
    return concatenate([ravel(each) for each in as_common_arrays([arr, values])] if axis is None else [arr, values],
                       0 if axis is None else axis)


# --- taking apart -------------------------------------------------------------------------------------------------


def unstack(x: Any, *, axis: int = 0) -> tuple[Any, ...]:
    """Return the slices of `x` along `axis`, without that axis.

    >>> [int(part) for part in unstack([1, 2])]
    [1, 2]
    """
    x = asarray(x)
    return tuple(joining.unstack(x, axis_of("unstack", axis, len(shape_of(x)))))


def _pieces(name: str, ary: Any, indices_or_sections: Any, axis: int, even: bool) -> list[Any]:
    ary = asarray(ary)
    at = axis_of(name, axis, len(shape_of(ary)))
    extent = shape_of(ary)[at]
    given = require_concrete(indices_or_sections, f"{name}, whose sections decide shapes,")
    if given.size and dtypes.kind_of(given.dtype) not in "iu":
        raise ArgumentError(at_user_line(f"{name}: a number of parts or the places to cut at are integers, got "
                                         f"{indices_or_sections!r}"))
    if given.ndim:
        stops = [*given.tolist(), extent]
        bounds = [slice(begin, stop).indices(extent)[:2] for begin, stop in zip([0, *stops[:-1]], stops, strict=True)]
        return [slice_in_dim(ary, begin, max(begin, stop), at) for begin, stop in bounds]
    count = operator.index(given.item())
    if count < 1 or (even and extent % count):
        raise ShapeError(at_user_line(f"{name}: axis {at} of size {extent} does not split into {count} equal parts; "
                                      "array_split allows parts that differ by one"))
    sizes = [extent // count + (place < extent % count) for place in range(count)]
    return joining.split(ary, sizes, at)


def split(ary: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Any]:
    """Return `ary` split along `axis` into that many equal parts, or at the given positions.

    Raises `ShapeError` if equal parts are not possible.

    >>> split([1, 2, 3, 4], 2)
    [array([1, 2], dtype=int32), array([3, 4], dtype=int32)]
    """
    return _pieces("split", ary, indices_or_sections, axis, True)


def array_split(ary: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Any]:
    """Split like `split`, but make the first parts larger by one if equal ones are not possible.

    >>> [len(part) for part in array_split([1, 2, 3], 2)]
    [2, 1]
    """
    return _pieces("array_split", ary, indices_or_sections, axis, False)


def hsplit(ary: Any, indices_or_sections: int | Sequence[int]) -> list[Any]:
    """Return `split` along the second axis, of a vector along its only one.

    >>> len(hsplit([[1, 2], [3, 4]], 2))
    2
    """
    return split(ary, indices_or_sections, 1 if len(aval_of(asarray(ary)).shape) > 1 else 0)


def vsplit(ary: Any, indices_or_sections: int | Sequence[int]) -> list[Any]:
    """Return `split` along the first axis.

    >>> len(vsplit([[1, 2], [3, 4]], 2))
    2
    """
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: int | Sequence[int]) -> list[Any]:
    """Return `split` along the third axis.

    >>> len(dsplit([[[1, 2], [3, 4]]], 2))
    2
    """
    return split(ary, indices_or_sections, 2)
