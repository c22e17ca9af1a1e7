"""Collectives that move arrays or pieces of them between entries: gathers, scatters, exchanges, permutations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine.analyses.index_sets import Dependence
from fxgrad.engine.analyses.sparsity_moves import in_place, sparsity_rules
from fxgrad.engine.analyses.sparsity_values import Value, Walk
from fxgrad.engine.analyses.traffic import collective_kinds
from fxgrad.engine.analyses.variation import Communication, communications
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Equation
from fxgrad.engine.ops.arithmetic import mul
from fxgrad.engine.ops.dynamic import dynamic_slice
from fxgrad.engine.ops.families import check_axes
from fxgrad.engine.ops.pointwise import add, scalar_like
from fxgrad.engine.ops.structural import move_axis, reshape
from fxgrad.engine.parallel.collective import (
    EQUAL,
    axis_index_p,
    axis_names_of,
    axis_params_without,
    linear_collective,
    num_entries,
    sum_batch,
)
from fxgrad.engine.parallel.index_groups import take_sources
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.transforms.batch import Batched, put_axis
from fxgrad.errors import ArgumentError, ShapeError


def _merge_axes(value: Any, axis: int) -> Any:
    """Return `value` with the axis `axis` and the next one merged."""
    shape = aval_of(value).shape
    return reshape(value, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2:]))


def _split_axis(value: Any, axis: int, count: int) -> Any:
    """Return `value` with `axis` split into `count` pieces, along a new axis before it."""
    shape = aval_of(value).shape
    piece = shape[axis] // count if count else 0
    return reshape(value, (*shape[:axis], count, piece, *shape[axis + 1:]))


def _with_size(shape: Sequence[int], axis: int, size: int) -> list[int]:
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
    return _with_size(aval.shape, axis, aval.shape[axis] * count)


def _gather(size: int, value: Any, at: int | None, *, axis: int) -> tuple[Any, None]:
    return _merge_axes(put_axis(Batched(value, at), size, axis), axis), None


def _gather_some(size: int, value: Any, at: int | None, index: int, names: tuple[str, ...], sizes: tuple[int, ...], *,
                 axis: int) -> tuple[Any, None]:
    """Keep the local entries along an axis of their own until the others arrive, and then interleave them."""
    rows = put_axis(Batched(value, at), size, axis)
    others = bind(all_gather_p, rows, **axis_params_without(index, names, sizes), axis=axis + 1)[0]
    in_order = move_axis(_split_axis(others, axis + 1, math.prod(sizes[:index])), axis, axis + 1)
    return _merge_axes(_merge_axes(in_order, axis), axis), None


def _scattered_shape(aval: Aval, count: int, *, axis: int) -> Sequence[int]:
    check_axes("psum_scatter", aval, (axis,))
    return _with_size(aval.shape, axis, _piece("psum_scatter", aval, axis, count))


def _scatter(size: int, value: Any, at: int | None, *, axis: int) -> tuple[Any, int]:
    return _split_axis(sum_batch(size, value, at)[0], axis, size), axis


def _scatter_some(size: int, value: Any, at: int | None, index: int, names: tuple[str, ...], sizes: tuple[int, ...], *,
                  axis: int) -> tuple[Any, int]:
    """Set the pieces for the local entries apart, and scatter the rest among the others."""
    total = _split_axis(sum_batch(size, value, at)[0], axis, math.prod(sizes[:index]))
    by_entry = _merge_axes(move_axis(_split_axis(total, axis + 1, size), axis + 1, axis), axis + 1)
    return bind(psum_scatter_p, by_entry, **axis_params_without(index, names, sizes), axis=axis + 1)[0], axis


all_gather_p = linear_collective("all_gather", shape=_gathered_shape, meet=_gather, meet_some=_gather_some,
                                 several=True,
                                 speak=lambda lax, x, names, *, axis,
                                 **groups: lax.all_gather(x, names, axis=axis, tiled=True,
                                                                             **groups),
                                 transpose=lambda cotangent, aval,
                                 **params: bind(psum_scatter_p, cotangent, **params)[0])
"""The arrays of all entries, concatenated along `axis`."""
communications.enter(EQUAL, all_gather_p)
collective_kinds.enter("all-gather", all_gather_p)
psum_scatter_p: Primitive = linear_collective(
    "psum_scatter", accepts="numeric", shape=_scattered_shape, meet=_scatter, meet_some=_scatter_some, several=True,
    speak=lambda lax, x, names, *, axis, **groups: lax.psum_scatter(x, names, scatter_dimension=axis, tiled=True,
                                                                    **groups),
    transpose=lambda cotangent, aval, **params: bind(all_gather_p, cotangent, **params)[0])
"""The sum over all entries, scattered: each gets its piece along `axis`."""
collective_kinds.enter("reduce-scatter", psum_scatter_p)


def _exchanged_shape(aval: Aval, count: int, *, split_axis: int, concat_axis: int) -> Sequence[int]:
    check_axes("all_to_all", aval, (split_axis,))
    check_axes("all_to_all", aval, (concat_axis,))
    shape = _with_size(aval.shape, split_axis, _piece("all_to_all", aval, split_axis, count))
    return _with_size(shape, concat_axis, shape[concat_axis] * count)


def _exchange(size: int, value: Any, axis: int | None, *, split_axis: int, concat_axis: int) -> tuple[Any, int]:
    rows = put_axis(Batched(value, axis), size, 0)
    by_target = move_axis(_split_axis(rows, split_axis + 1, size), split_axis + 1, 0)  # target, source, other axes
    return _merge_axes(move_axis(by_target, 1, concat_axis + 1), concat_axis + 1), 0


def _exchange_some(size: int, value: Any, axis: int | None, index: int, names: tuple[str, ...], sizes: tuple[int, ...],
                   *, split_axis: int, concat_axis: int) -> tuple[Any, int]:
    """Send pieces to the local entries; those of others follow, while the sources wait along an axis of their own."""
    before = math.prod(sizes[:index])
    rows = put_axis(Batched(value, axis), size, 0)
    pieces = _split_axis(_split_axis(rows, split_axis + 1, before), split_axis + 2, size)  # before, local, after
    by_target = _merge_axes(move_axis(pieces, split_axis + 2, 0), split_axis + 2)  # target, source, axes of an entry
    waiting = move_axis(by_target, 1, concat_axis + 1)
    others = bind(all_to_all_p, waiting, **axis_params_without(index, names, sizes), concat_axis=concat_axis + 2,
                  split_axis=split_axis + 1 + (split_axis >= concat_axis))[0]
    in_order = move_axis(_split_axis(others, concat_axis + 2, before), concat_axis + 1, concat_axis + 2)
    return _merge_axes(_merge_axes(in_order, concat_axis + 1), concat_axis + 1), 0


def _exchange_back(cotangent: Any, aval: Aval, *, split_axis: int, concat_axis: int, **over: Any) -> Any:
    return bind(all_to_all_p, cotangent, **over, split_axis=concat_axis, concat_axis=split_axis)[0]


all_to_all_p = linear_collective("all_to_all", shape=_exchanged_shape, meet=_exchange, meet_some=_exchange_some,
                                 transpose=_exchange_back, several=True,
                                 speak=lambda lax, x, names, *, split_axis, concat_axis, **groups: lax.all_to_all(
                                     x, names, split_axis, concat_axis, tiled=True, **groups))
"""Each entry cuts `split_axis` into pieces, one for each entry, and joins those received along `concat_axis`."""
collective_kinds.enter("all-to-all", all_to_all_p)


def _repeated(found: Dependence, axis: int, count: int) -> Dependence:
    """Return the dependence of `count` copies of an array along an axis."""
    shape = (*found.shape[:axis], count, *found.shape[axis:])
    apart = found.reshaped((*found.shape[:axis], 1, *found.shape[axis:])).broadcast(shape)
    return apart.reshaped((*found.shape[:axis], count * found.shape[axis], *found.shape[axis + 1:]))


def _any_piece(found: Dependence, axis: int, count: int) -> Dependence:
    """Return the dependence of one of `count` pieces along an axis; which one is not known."""
    piece = found.shape[axis] // count if count else 0
    return found.reshaped((*found.shape[:axis], count, piece, *found.shape[axis + 1:])).merged((axis,))


@sparsity_rules.register(all_gather_p, psum_scatter_p, all_to_all_p)
def _sparsity(_: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """Pieces of other entries depend on elements with the same indices: all entries push the same unit vectors."""
    found, params = values[0], equation.params
    before, after = equation.inputs[0].aval.shape, equation.outputs[0].aval.shape
    split = params.get("split_axis", params.get("axis")) if equation.primitive is not all_gather_p else None
    concat = params.get("concat_axis", params.get("axis")) if equation.primitive is not psum_scatter_p else None
    count = num_entries(params["axis_size"], params.get("axis_index_groups", ()))
    if 0 in before or 0 in after:
        return [Dependence(after, found.width, [])]
    if split is not None:
        found = _any_piece(found, split, count)
    return [found if concat is None else _repeated(found, concat, count)]


# --- permutations -----------------------------------------------------------------------------------------------

Pairs = tuple[tuple[int, int], ...]


def _permuted_shape(aval: Aval, axis_size: int, *, perm: Pairs) -> Sequence[int]:
    sources, targets = [source for source, _ in perm], [target for _, target in perm]
    for side in (sources, targets):
        if len(set(side)) != len(side) or any(not 0 <= entry < axis_size for entry in side):
            raise ArgumentError(f"ppermute: perm={perm} over an axis of size {axis_size}; pairs (source, target) are "
                                f"needed, each entry from 0 to {axis_size - 1} at most once as a source and at most "
                                "once as a target")
    return aval.shape


def _permute(size: int, value: Any, axis: int | None, *, perm: Pairs) -> tuple[Any, int]:
    source = {target: source for source, target in perm}
    return take_sources(put_axis(Batched(value, axis), size, 0), [source.get(target) for target in range(size)]), 0


def _permute_some(size: int, value: Any, axis: int | None, index: int, names: tuple[str, ...], sizes: tuple[int, ...],
                  *, perm: Pairs) -> tuple[Any, int]:
    """Gather all entries; each then takes its own from the permuted ones."""
    before, after, over = math.prod(sizes[:index]), math.prod(sizes[index + 1:]), axis_params_without(index, names,
                                                                                                      sizes)
    rows = put_axis(Batched(value, axis), size, 0)
    shape = aval_of(rows).shape[1:]
    others = bind(all_gather_p, reshape(rows, (1, size, *shape)), **over, axis=0)[0]
    in_order = move_axis(reshape(others, (before, after, size, *shape)), 2, 1)
    moved, _ = _permute(math.prod(sizes), reshape(in_order, (math.prod(sizes), *shape)), 0, perm=perm)
    apart = reshape(move_axis(reshape(moved, (before, size, after, *shape)), 1, 2), (before * after, size, *shape))
    own: Any = 0
    for name, count in zip(axis_names_of(over["axis_name"]), (*sizes[:index], *sizes[index + 1:]), strict=True):
        position = bind(axis_index_p, axis_name=name, axis_size=count)[0]
        own = add(mul(own, count), position) if type(own) is not int else position
    starts = [own, *[scalar_like(0, own)] * (1 + len(shape))]
    return reshape(dynamic_slice(apart, starts, (1, size, *shape)), (size, *shape)), 0


def _permute_alone(zeros_like: Callable[..., Any], x: Any, *, perm: Pairs) -> Any:
    return x if perm else zeros_like(x)


def _permute_back(cotangent: Any, aval: Aval, *, perm: Pairs, **over: Any) -> Any:
    back = tuple((target, source) for source, target in perm)
    return bind(ppermute_p, cotangent, **over, perm=back)[0]


ppermute_p = linear_collective("ppermute", shape=_permuted_shape, meet=_permute, meet_some=_permute_some, several=True,
                               transpose=_permute_back, alone=_permute_alone,
                               speak=lambda lax, x, names, *, perm: lax.ppermute(x, names, perm))
"""Each entry receives the array of the entry that `perm` pairs it with, or zeros."""
communications.enter(Communication("different", "mesh"), ppermute_p)
collective_kinds.enter("permute", ppermute_p)


@sparsity_rules.register(ppermute_p)
def _permuted_sparsity(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """Each element depends on the element in its place, of another entry; on none, if nobody sends."""
    if not equation.params["perm"]:
        return [Dependence(equation.outputs[0].aval.shape, walk.width, [])]
    return in_place(walk, equation, values)
