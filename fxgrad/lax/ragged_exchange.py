"""Exchange of slices of different sizes between the entries of a mapped axis, built from other collectives."""

from __future__ import annotations

from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.frontend.strict import require_array
from fxgrad.engine.ops.structural import convert, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import DTypeError, ShapeError
from fxgrad.lax.collectives import all_gather, all_to_all, axis_size
from fxgrad.lax.named_axes import AxisName
from fxgrad.numpy.creation import arange
from fxgrad.numpy.logic import logical_and, where
from fxgrad.numpy.rearranging import take
from fxgrad.numpy.reductions import max as greatest

_PLACES = ("input_offsets", "send_sizes", "output_offsets", "recv_sizes")


def ragged_all_to_all(operand: Any, output: Any, input_offsets: Any, send_sizes: Any, output_offsets: Any,
                      recv_sizes: Any, *, axis_name: AxisName, axis_index_groups: Any = None) -> Any:
    """Return `output` of each entry of a mapped axis, with slices of the operands of all entries written into it.

    `operand` is of shape (N, ...), `output` of shape (M, ...). The four arrays of integers are of shape (K,), where K
    is a multiple of the size n of the axis: slice i of K, which is `operand[input_offsets[i]:][:send_sizes[i]]`, goes
    to the entry at i // (K // n), where it is written at `output_offsets[i]`. `recv_sizes` are the sizes of the
    received slices, `all_to_all(send_sizes, axis_name, 0, 0, tiled=True)`. If slices overwrite each other, one of them
    stays. It is an `all_gather` of the operands, from which each entry takes its slices, so that derivatives are right
    even if slices of the operand overlap.

    Raises `ShapeError` and `DTypeError` for other shapes and dtypes, and as `all_to_all` does.

    >>> import numpy as np, fxgrad
    >>> def mapped(operand, starts, sizes, places, arriving):
    ...     return ragged_all_to_all(operand, np.zeros(4), starts, sizes, places, arriving, axis_name="i")
    >>> sizes = np.array([[1, 2], [1, 1]])
    >>> fxgrad.vmap(mapped, axis_name="i")(np.array([[1.0, 2.0, 2.0], [3.0, 4.0, 0.0]]), np.array([[0, 1], [0, 1]]),
    ...                                    sizes, np.array([[0, 0], [1, 2]]), sizes.T)
    array([[1., 3., 0., 0.],
           [2., 2., 4., 0.]])
    """
    operand, output, *places = [require_array("ragged_all_to_all", value) for value in (
        operand, output, input_offsets, send_sizes, output_offsets, recv_sizes)]
    count = axis_size(axis_name) if axis_index_groups is None else len(axis_index_groups[0])
    _check(aval_of(operand), aval_of(output), [*map(aval_of, places)], count)
    starts, _, written, sizes = (convert(place, dtypes.int32) for place in places)

    def exchanged(numbers: Any) -> Any:
        return all_to_all(numbers, axis_name, 0, 0, axis_index_groups=axis_index_groups, tiled=True)

    (rows, *rest), (slots, *_) = aval_of(operand).shape, aval_of(output).shape
    slices = aval_of(starts).shape[0]
    if not rows or not slices:
        return output
    entries = all_gather(operand, axis_name, axis_index_groups=axis_index_groups, tiled=True)
    position = arange(slots) - exchanged(written)[:, None]  # in each slice that arrives
    is_there = logical_and(position >= 0, position < sizes[:, None])
    sender = arange(slices) // (slices // count)
    row = (sender * rows + exchanged(starts))[:, None] + position
    source = greatest(where(is_there, row, -1), axis=0)
    arrived = reshape(source >= 0, (slots, *[1] * len(rest)))
    return where(arrived, take(entries, source, axis=0, mode="clip"), output)


def _check(operand: Aval, output: Aval, places: list[Aval], count: int) -> None:
    if not operand.ndim or operand.shape[1:] != output.shape[1:] or operand.ndim != output.ndim:
        raise ShapeError(at_user_line(
            f"ragged_all_to_all: an operand of shape {operand.shape} and an output of shape {output.shape}, where "
            "arrays are needed that differ in the size of their first axis alone"))
    if operand.dtype != output.dtype:
        raise DTypeError(at_user_line(
            f"ragged_all_to_all: an operand of {operand.dtype.name} and an output of {output.dtype.name}; convert one "
            "with x.astype(...)"))
    for name, place in zip(_PLACES, places, strict=True):
        if not dtypes.is_integer(place.dtype):
            raise DTypeError(at_user_line(f"ragged_all_to_all: {name} is of {place.dtype.name}, where integers are "
                                          "needed"))
        if place.ndim != 1 or place.shape != places[0].shape or place.shape[0] % max(count, 1):
            raise ShapeError(at_user_line(
                f"ragged_all_to_all: {name} is of shape {place.shape}, where one axis is needed, as long as that of "
                f"input_offsets, {places[0].shape}, and a multiple of {count}, the entries that speak with each other"))
