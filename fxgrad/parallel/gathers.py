"""Collectives that gather, scatter and exchange pieces of arrays along axes that are there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fxgrad.analyses.traffic import speaks
from fxgrad.analyses.variation import exchanges
from fxgrad.core.avals import Aval
from fxgrad.core.primitive import Primitive
from fxgrad.errors import ShapeError
from fxgrad.ops.families import check_axes
from fxgrad.ops.space import move_axis, reshape
from fxgrad.parallel.collective import EQUAL, linear, summed, without
from fxgrad.tracing.tape import aval_of, bind
from fxgrad.transforms.batch import Batched, put_axis


def _merged(value: Any, axis: int) -> Any:
    """`value` with the axes `axis` and the next one as one."""
    shape = aval_of(value).shape
    return reshape(value, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2:]))


def _split(value: Any, axis: int, count: int) -> Any:
    """`value` with `axis` cut into `count` pieces, counted along a new axis before it."""
    shape = aval_of(value).shape
    piece = shape[axis] // count if count else 0
    return reshape(value, (*shape[:axis], count, piece, *shape[axis + 1:]))


def _resized(shape: Sequence[int], axis: int, size: int) -> list[int]:
    return [size if at == axis else extent for at, extent in enumerate(shape)]


def _piece(name: str, aval: Aval, axis: int, axis_size: int) -> int:
    extent = aval.shape[axis]
    if (extent % axis_size if axis_size else extent) != 0:
        raise ShapeError(f"{name}: axis {axis} of an array of shape {aval.shape} is to be cut into {axis_size} equal "
                         f"pieces, one for each entry of the mapped axis, and {extent} is not divisible by "
                         f"{axis_size}. Pad the axis")
    return extent // axis_size if axis_size else 0


def _gathered_shape(aval: Aval, count: int, *, axis: int) -> Sequence[int]:
    check_axes("all_gather", aval, (axis,))
    return _resized(aval.shape, axis, aval.shape[axis] * count)


def _gather(size: int, value: Any, at: int | None, *, axis: int) -> tuple[Any, None]:
    return _merged(put_axis(Batched(value, at), size, axis), axis), None


def _gather_some(size: int, value: Any, at: int | None, index: int, names: tuple[str, ...], sizes: tuple[int, ...], *,
                 axis: int) -> tuple[Any, None]:
    """The entries at hand wait along an axis of their own for the others, and then come between them."""
    rows = put_axis(Batched(value, at), size, axis)
    others = bind(all_gather_p, rows, **without(index, names, sizes), axis=axis + 1)[0]
    in_order = move_axis(_split(others, axis + 1, math.prod(sizes[:index])), axis, axis + 1)
    return _merged(_merged(in_order, axis), axis), None


def _scattered_shape(aval: Aval, count: int, *, axis: int) -> Sequence[int]:
    check_axes("psum_scatter", aval, (axis,))
    return _resized(aval.shape, axis, _piece("psum_scatter", aval, axis, count))


def _scatter(size: int, value: Any, at: int | None, *, axis: int) -> tuple[Any, int]:
    return _split(summed(size, value, at)[0], axis, size), axis


def _scatter_some(size: int, value: Any, at: int | None, index: int, names: tuple[str, ...], sizes: tuple[int, ...], *,
                  axis: int) -> tuple[Any, int]:
    """The pieces for the entries at hand are set apart, and of the rest each of the others gets its own."""
    total = _split(summed(size, value, at)[0], axis, math.prod(sizes[:index]))
    by_entry = _merged(move_axis(_split(total, axis + 1, size), axis + 1, axis), axis + 1)
    return bind(psum_scatter_p, by_entry, **without(index, names, sizes), axis=axis + 1)[0], axis


all_gather_p = linear("all_gather", shape=_gathered_shape, meet=_gather, meet_some=_gather_some, several=True,
                       speak=lambda lax, x, names, *, axis, **groups: lax.all_gather(x, names, axis=axis, tiled=True,
                                                                              **groups),
                       transpose=lambda cotangent, aval, **params: bind(psum_scatter_p, cotangent, **params)[0])
"""What all entries have, one after the other along `axis`."""
exchanges.enter(EQUAL, all_gather_p)
speaks.enter("all-gather", all_gather_p)
psum_scatter_p: Primitive = linear(
    "psum_scatter", accepts="numeric", shape=_scattered_shape, meet=_scatter, meet_some=_scatter_some, several=True,
    speak=lambda lax, x, names, *, axis, **groups: lax.psum_scatter(x, names, scatter_dimension=axis, tiled=True,
                                                                    **groups),
    transpose=lambda cotangent, aval, **params: bind(all_gather_p, cotangent, **params)[0])
"""The sum over all entries, of which each gets its piece along `axis`."""
speaks.enter("reduce-scatter", psum_scatter_p)


def _exchanged_shape(aval: Aval, count: int, *, split_axis: int, concat_axis: int) -> Sequence[int]:
    check_axes("all_to_all", aval, (split_axis,))
    check_axes("all_to_all", aval, (concat_axis,))
    shape = _resized(aval.shape, split_axis, _piece("all_to_all", aval, split_axis, count))
    return _resized(shape, concat_axis, shape[concat_axis] * count)


def _exchange(size: int, value: Any, axis: int | None, *, split_axis: int, concat_axis: int) -> tuple[Any, int]:
    rows = put_axis(Batched(value, axis), size, 0)
    by_target = move_axis(_split(rows, split_axis + 1, size), split_axis + 1, 0)  # target, source, other axes
    return _merged(move_axis(by_target, 1, concat_axis + 1), concat_axis + 1), 0


def _exchange_back(cotangent: Any, aval: Aval, *, split_axis: int, concat_axis: int, **over: Any) -> Any:
    return bind(all_to_all_p, cotangent, **over, split_axis=concat_axis, concat_axis=split_axis)[0]


all_to_all_p = linear("all_to_all", shape=_exchanged_shape, meet=_exchange, transpose=_exchange_back,
                       speak=lambda lax, x, name, *, split_axis, concat_axis, **groups: lax.all_to_all(
                           x, name, split_axis, concat_axis, tiled=True, **groups))
"""Each entry cuts `split_axis` into pieces, one for each, and joins those that it gets along `concat_axis`."""
speaks.enter("all-to-all", all_to_all_p)
