"""Operations in which the entries of a mapped axis speak with each other: sums, extrema, permutations, gathers.

Each has the parameters `axis_name` and `axis_size`. Batching over the axis of that name gives it its meaning; batching
over any other treats it as an operation on the other axes. An axis of size 1 needs no partner: there, and only there,
the executors can compute it too. `all_gather`, `psum_scatter` and `all_to_all` work in place along existing axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.core.avals import Aval
from fxgrad.core.primitive import NO_TANGENT, NOT_LINEAR, Cost, Primitive, Rule, register, total_bytes
from fxgrad.core.symbolic import Zero
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError, at_user_line
from fxgrad.ops.arithmetic import div, mul
from fxgrad.ops.choose import where
from fxgrad.ops.comparison import eq
from fxgrad.ops.creation import iota
from fxgrad.ops.families import check_axes, check_kind, linear_unary
from fxgrad.ops.joining import concatenate
from fxgrad.ops.pointwise import scalar_like
from fxgrad.ops.reductions import reduce_max, reduce_min
from fxgrad.ops.shaping import slice_in_dim
from fxgrad.ops.space import convert, move_axis, reduce_sum, reshape, zeros
from fxgrad.tracing.tape import aval_of, bind
from fxgrad.transforms.batch import Batched, batched_axis, put_axis

Pairs = tuple[tuple[int, int], ...]
Meeting = Callable[..., "tuple[Any, int | None]"]
"""(size, value, its batch axis or None, parameters) -> the result where all entries are at hand, and its batch axis."""


def _check_size(name: str, axis_name: str, axis_size: int) -> None:
    if not isinstance(axis_name, str) or type(axis_size) is not int or axis_size < 0:
        raise ArgumentError(f"{name}: axis_name={axis_name!r} and axis_size={axis_size!r}, where a string and an int "
                            "that is not negative are needed")


def _alone(name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    """What an executor computes: there is no other entry to speak with."""
    def rule(*values: Any, axis_name: str, axis_size: int, **params: Any) -> Any:
        if axis_size != 1:
            raise UnsupportedError(at_user_line(
                f"{name} over the axis {axis_name!r} of size {axis_size} was to be computed outside of the map over "
                f"that axis. Call it inside a function under fxgrad.vmap(..., axis_name={axis_name!r})"))
        return compute(*values, **params)
    return rule


def _batch(primitive: Callable[[], Primitive], meet: Meeting) -> Rule:
    """The batch rule: `meet` for the axis of the collective, and for others itself beside one more axis."""
    def batch(size: int, values: list[Any], axes: list[int | None], *, axis_name: str, axis_size: int, **params: Any,
              ) -> tuple[list[Any], list[int | None]]:
        value, axis = values[0], axes[0]
        if axis_name == batched_axis.get():
            result, place = meet(size, value, axis, **params)
            return [result], [place]
        assert axis is not None
        shifted = {key: value + (axis <= value) if key in _POSITIONS else value for key, value in params.items()}
        return bind(primitive(), value, axis_name=axis_name, axis_size=axis_size, **shifted), [axis]
    return batch


_POSITIONS = ("axis", "split_axis", "concat_axis")


def _linear(name: str, *, shape: Callable[..., Sequence[int]], transpose: Callable[..., Any], meet: Meeting,
            accepts: str = "any", alone: Callable[..., Any] | None = None) -> Primitive:
    """The record of a collective that is linear: `shape(aval, axis_size, **params)` checks and gives its output's.

    `alone(zeros_like, x, **params)` computes it on an axis of size 1: `x` itself unless given.
    """
    def abstract(aval: Aval, *, axis_name: str, axis_size: int, **params: Any) -> list[Aval]:
        _check_size(name, axis_name, axis_size)
        check_kind(name, accepts, aval)
        return [aval.update(shape=tuple(shape(aval, axis_size, **params)))]

    def numpy(x: Any, **params: Any) -> Any:
        return x if alone is None else alone(np.zeros_like, x, **params)

    def xla(lax: Any, x: Any, **params: Any) -> Any:
        return x if alone is None else alone(lambda x: lax.full_like(x, 0), x, **params)

    primitive = linear_unary(
        name, abstract=abstract, numpy=_alone(name, numpy),
        xla=lambda lax, x, **params: _alone(name, lambda x, **rest: xla(lax, x, **rest))(x, **params),
        transpose=transpose, batch=_batch(lambda: primitive, meet), collective=True)
    return primitive


# --- sums -------------------------------------------------------------------------------------------------------


def _sum(size: int, value: Any, axis: int | None) -> tuple[Any, None]:
    return (mul(value, scalar_like(size, value)) if axis is None else reduce_sum(value, (axis,))), None


psum_p = _linear("psum", accepts="numeric", shape=lambda aval, axis_size: aval.shape, meet=_sum,
                 transpose=lambda cotangent, aval, **over: psum(cotangent, **over))
"""The sum over all entries, which each of them gets. Its transpose is itself: a cotangent came from every entry."""


def psum(x: Any, axis_name: str, axis_size: int) -> Any:
    """The sum of `x` over the entries of a mapped axis."""
    return bind(psum_p, x, axis_name=axis_name, axis_size=axis_size)[0]


# --- extrema ----------------------------------------------------------------------------------------------------


def _extremum(name: str, reduce: Callable[..., Any]) -> Primitive:
    """A tangent is the mean of those of the entries that attain the extremum, as for `reduce_max`."""
    def abstract(aval: Aval, *, axis_name: str, axis_size: int) -> list[Aval]:
        _check_size(name, axis_name, axis_size)
        check_kind(name, "ordered", aval)
        return [aval]

    def jvp(primals: list[Any], tangents: list[Any], **over: Any) -> tuple[list[Any], list[Any]]:
        x, tangent = primals[0], tangents[0]
        out = bind(primitive, x, **over)[0]
        if type(tangent) is Zero:
            return [out], [Zero(aval_of(out))]
        attained = eq(x, out)
        count = psum(convert(attained, aval_of(x).dtype), **over)
        share = where(attained, tangent, zeros(aval_of(x)))
        return [out], [div(psum(share, **over), count)]

    def meet(size: int, value: Any, axis: int | None) -> tuple[Any, None]:
        return (value if axis is None else reduce(value, (axis,))), None

    alone = _alone(name, lambda x: [x])
    primitive = register(Primitive(
        name=name, abstract=abstract, numpy=alone, xla=lambda lax, x, **over: alone(x, **over), jvp=jvp,
        transpose=NOT_LINEAR, batch=_batch(lambda: primitive, meet),
        cost=lambda aval, **over: Cost(aval.size, total_bytes([aval], [aval])), collective=True))
    return primitive


pmax_p = _extremum("pmax", reduce_max)
pmin_p = _extremum("pmin", reduce_min)


# --- permutations -----------------------------------------------------------------------------------------------


def _permuted_shape(aval: Aval, axis_size: int, *, perm: Pairs) -> Sequence[int]:
    sources, targets = [source for source, _ in perm], [target for _, target in perm]
    for side in (sources, targets):
        if len(set(side)) != len(side) or any(not 0 <= entry < axis_size for entry in side):
            raise ArgumentError(f"ppermute: perm={perm} over an axis of size {axis_size}; pairs (source, target) are "
                                f"needed, each entry from 0 to {axis_size - 1} at most once as a source and at most "
                                "once as a target")
    return aval.shape


def _permute(size: int, value: Any, axis: int | None, *, perm: Pairs) -> tuple[Any, int]:
    """Neighbours that stay neighbours move as one piece; zeros where nothing arrives."""
    rows = put_axis(Batched(value, axis), size, 0)
    source = {target: source for source, target in perm}
    pieces, start = [], 0
    while start < size:
        first, stop = source.get(start), start + 1
        while stop < size and source.get(stop) == (None if first is None else first + stop - start):
            stop += 1
        pieces.append(zeros(aval_of(rows).update(shape=(stop - start, *aval_of(rows).shape[1:]))) if first is None else
                      slice_in_dim(rows, first, first + stop - start, 0))
        start = stop
    return (concatenate(pieces, 0) if pieces else rows), 0


def _permute_alone(zeros_like: Callable[..., Any], x: Any, *, perm: Pairs) -> Any:
    return x if perm else zeros_like(x)


def _permute_back(cotangent: Any, aval: Aval, *, perm: Pairs, **over: Any) -> Any:
    back = tuple((target, source) for source, target in perm)
    return bind(ppermute_p, cotangent, **over, perm=back)[0]


ppermute_p = _linear("ppermute", shape=_permuted_shape, meet=_permute, transpose=_permute_back, alone=_permute_alone)
"""Each entry gets what the entry that `perm` pairs it with has, or zeros."""


# --- gathers and scatters along an axis of the array ---------------------------------------------------------------


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


def _gathered_shape(aval: Aval, axis_size: int, *, axis: int) -> Sequence[int]:
    check_axes("all_gather", aval, (axis,))
    return _resized(aval.shape, axis, aval.shape[axis] * axis_size)


def _gather(size: int, value: Any, at: int | None, *, axis: int) -> tuple[Any, None]:
    return _merged(put_axis(Batched(value, at), size, axis), axis), None


def _scattered_shape(aval: Aval, axis_size: int, *, axis: int) -> Sequence[int]:
    check_axes("psum_scatter", aval, (axis,))
    return _resized(aval.shape, axis, _piece("psum_scatter", aval, axis, axis_size))


def _scatter(size: int, value: Any, at: int | None, *, axis: int) -> tuple[Any, int]:
    return _split(_sum(size, value, at)[0], axis, size), axis


all_gather_p = _linear("all_gather", shape=_gathered_shape, meet=_gather,
                       transpose=lambda cotangent, aval, **params: bind(psum_scatter_p, cotangent, **params)[0])
"""What all entries have, one after the other along `axis`."""
psum_scatter_p: Primitive = _linear("psum_scatter", accepts="numeric", shape=_scattered_shape, meet=_scatter,
                         transpose=lambda cotangent, aval, **params: bind(all_gather_p, cotangent, **params)[0])
"""The sum over all entries, of which each gets its piece along `axis`."""


def _exchanged_shape(aval: Aval, axis_size: int, *, split_axis: int, concat_axis: int) -> Sequence[int]:
    check_axes("all_to_all", aval, (split_axis,))
    check_axes("all_to_all", aval, (concat_axis,))
    shape = _resized(aval.shape, split_axis, _piece("all_to_all", aval, split_axis, axis_size))
    return _resized(shape, concat_axis, shape[concat_axis] * axis_size)


def _exchange(size: int, value: Any, axis: int | None, *, split_axis: int, concat_axis: int) -> tuple[Any, int]:
    rows = put_axis(Batched(value, axis), size, 0)
    by_target = move_axis(_split(rows, split_axis + 1, size), split_axis + 1, 0)  # target, source, other axes
    return _merged(move_axis(by_target, 1, concat_axis + 1), concat_axis + 1), 0


def _exchange_back(cotangent: Any, aval: Aval, *, split_axis: int, concat_axis: int, **over: Any) -> Any:
    return bind(all_to_all_p, cotangent, **over, split_axis=concat_axis, concat_axis=split_axis)[0]


all_to_all_p = _linear("all_to_all", shape=_exchanged_shape, meet=_exchange, transpose=_exchange_back)
"""Each entry cuts `split_axis` into pieces, one for each, and joins those that it gets along `concat_axis`."""


# --- positions --------------------------------------------------------------------------------------------------


def _index_abstract(*, axis_name: str, axis_size: int) -> list[Aval]:
    _check_size("axis_index", axis_name, axis_size)
    return [Aval((), dtypes.int32)]


def _index_batch(size: int, values: list[Any], axes: list[int | None], **over: Any) -> tuple[list[Any], list[int]]:
    return [iota(dtypes.int32, (size,))], [0]


axis_index_p = register(Primitive(
    name="axis_index", abstract=_index_abstract, numpy=_alone("axis_index", lambda: [np.int32(0)]),
    xla=lambda lax, **over: _alone("axis_index", lambda: [lax.full((), 0, np.int32)])(**over), jvp=NO_TANGENT,
    transpose=NOT_LINEAR, batch=_index_batch, cost=lambda **over: Cost(0, 4), collective=True))
"""The position of each entry along the mapped axis."""
