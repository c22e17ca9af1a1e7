"""Collectives over the entries of a mapped axis: sums, extrema, positions.

Each has the parameters `axis_name` and `axis_size`. Batching over the axis of that name computes it; batching over any
other treats it as an operation on the other axes. Executors can compute it only for an axis of size 1, which needs no
communication. Where jax maps an axis of that name, XLA uses jax's own collective. All but `axis_index` also take tuples
of names and sizes: several axes as one, of which the first changes slowest. Over one axis, all but that and `ppermute`
take `axis_index_groups` as well. Collectives that move values between entries are in `gathers.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.sparsity_moves import in_place, sparsity_rules
from fxgrad.engine.analyses.traffic import collective_kinds
from fxgrad.engine.analyses.variation import Communication, communications
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, Cost, Primitive, Rule, register, total_bytes
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.executors.xla import jax_axis_size
from fxgrad.engine.ops.arithmetic import div, mul
from fxgrad.engine.ops.comparison import eq
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.families import check_kind, linear_unary
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.reductions import reduce_max, reduce_min
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import convert, reduce_sum, zeros
from fxgrad.engine.parallel.index_groups import Groups, Meeting, group_size, meet_in_groups
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.transforms.batch import batched_axis
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, UnsupportedError

Names = str | tuple[str, ...]
Sizes = int | tuple[int, ...]


# --- the axes of a collective -----------------------------------------------------------------------------------


def axis_names_of(axis_name: Names) -> tuple[str, ...]:
    """Return the axis names that the parameter `axis_name` denotes."""
    return axis_name if isinstance(axis_name, tuple) else (axis_name,)


def axis_params(names: Sequence[str], sizes: Sequence[int]) -> dict[str, Any]:
    """Return the parameters of a collective over these axes."""
    if len(names) == 1:
        return {"axis_name": names[0], "axis_size": sizes[0]}
    return {"axis_name": tuple(names), "axis_size": tuple(sizes)}


def groups_param(groups: Groups) -> dict[str, Any]:
    """Return the parameter of collectives among the entries of each of `groups`; none if all entries communicate."""
    return {"axis_index_groups": groups} if groups else {}


def _sizes_of(axis_size: Sizes) -> tuple[int, ...]:
    return axis_size if isinstance(axis_size, tuple) else (axis_size,)


def num_entries(axis_size: Sizes, groups: Groups = ()) -> int:
    """Return the number of entries that communicate, with `groups` of equal size those of one group."""
    if groups:
        return len(groups[0])
    return math.prod(axis_size) if isinstance(axis_size, tuple) else axis_size


def _check_axes(name: str, axis_name: Names, axis_size: Sizes, several: bool = False, groups: Groups = (),
                alike: bool = False) -> int:
    """Raise `ArgumentError` for invalid axes and groups; return the number of entries that communicate.

    If groups need not be `alike` in size, this is the number of all entries. An entry counts itself.
    """
    names, sizes = axis_names_of(axis_name), _sizes_of(axis_size)
    are_tuples = isinstance(axis_name, tuple)
    if are_tuples is not isinstance(axis_size, tuple) or (are_tuples and not (several and len(names) > 1)) or (
            len(names) != len(sizes)) or not all(isinstance(each, str) for each in names) or (
            len(set(names)) != len(names)) or not all(
            has_symbolic_dim(size) or (type(size) is int and size >= 0) for size in sizes):
        raise ArgumentError(f"{name}: axis_name={axis_name!r} and axis_size={axis_size!r}, where a string and a "
                            "non-negative int are needed" + several * ", or tuples of two or more of them")
    if not groups:
        return num_entries(axis_size)
    if are_tuples:
        raise UnsupportedError(f"{name}: axis_index_groups over the axes {axis_name}; over one axis alone there are "
                               "groups. Map over one axis of all the entries instead")
    return group_size(name, groups, sizes[0], alike=alike) or sizes[0]


def _single_entry_rule(name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule of executors: there is no other entry to communicate with."""
    def rule(*values: Any, axis_name: Names, axis_size: Sizes, axis_index_groups: Groups = (),
             **params: Any) -> Any:
        if num_entries(axis_size) != 1:
            shown = ", ".join(map(repr, axis_names_of(axis_name)))
            size = axis_size if isinstance(axis_size, int) else " x ".join(map(str, axis_size))
            raise UnsupportedError(at_user_line(
                f"{name} over the axis {shown} of size {size} was to be computed outside of the map over that axis. "
                f"Call it inside a function under fxgrad.vmap(..., axis_name={axis_names_of(axis_name)[-1]!r}), or "
                "fxgrad.shard_map over a mesh that has it"))
        return compute(*values, **params)
    return rule


def _xla_rule(name: str, speak: Callable[..., Any], alone: Callable[..., Any]) -> Callable[..., Any]:
    """Return the `xla` rule: `speak(lax, *values, names, **params)` is jax's, `alone(lax, *values, **params)` none."""
    def rule(lax: Any, *values: Any, axis_name: Names, axis_size: Sizes, **params: Any) -> Any:
        bound = [(each, size) for each, size in zip(axis_names_of(axis_name), _sizes_of(axis_size), strict=True)
                 if size != 1 or jax_axis_size(each) is not None]
        if bound and all(jax_axis_size(each) is not None for each, _ in bound):
            names = tuple(each for each, _ in bound)
            return speak(lax, *values, names if len(names) > 1 else names[0], **params)
        return _single_entry_rule(name, lambda *values, **rest: alone(lax, *values, **rest))(
            *values, axis_name=axis_name, axis_size=axis_size, **params)
    return rule


def _batch(primitive: Callable[[], Primitive], meet: Meeting, meet_some: Meeting | None = None) -> Rule:
    """Return the batch rule: `meet` for the collective's own axis; for others the collective itself with one more axis.

    If the collective has several axes, the batched one is computed first, and the rest after it, unless
    `meet_some(size, value, its batch axis, index, names and sizes, **params)` does both; `index` is the position of the
    batched axis.
    """
    def batch(size: int, values: list[Any], axes: list[int | None], *, axis_name: Names, axis_size: Sizes,
              axis_index_groups: Groups = (), **params: Any) -> tuple[list[Any], list[int | None]]:
        value, axis, names, sizes = values[0], axes[0], axis_names_of(axis_name), _sizes_of(axis_size)
        if batched_axis.get() in names:
            index = names.index(batched_axis.get())
            if axis_index_groups:
                results = meet_in_groups(meet, size, value, axis, axis_index_groups, _shift_positions(0, params))
                return [results[0]], [results[1]]
            if len(names) > 1 and meet_some is not None:
                result, place = meet_some(size, value, axis, index, names, sizes, **params)
                return [result], [place]
            result, place = meet(size, value, axis, **params)
            if len(names) > 1:
                result = bind(primitive(), result, **axis_params_without(index, names, sizes), **params)[0]
            return [result], [place]
        assert axis is not None
        over = {"axis_name": axis_name, "axis_size": axis_size, **groups_param(axis_index_groups)}
        return bind(primitive(), value, **over, **_shift_positions(axis, params)), [axis]
    return batch


def axis_params_without(index: int, names: tuple[str, ...], sizes: tuple[int, ...]) -> dict[str, Any]:
    """Return the parameters of a collective over all these axes but one."""
    return axis_params((*names[:index], *names[index + 1:]), (*sizes[:index], *sizes[index + 1:]))


def _shift_positions(axis: int, params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of an operation on arrays with one more axis, at `axis`."""
    return {key: value + (axis <= value) if key in _POSITIONS else value for key, value in params.items()}


_POSITIONS = ("axis", "split_axis", "concat_axis")


EQUAL = Communication("equal", "axes")


def linear_collective(name: str, *, shape: Callable[..., Sequence[int]], transpose: Callable[..., Any], meet: Meeting,
                       speak: Callable[..., Any], accepts: str = "any", alone: Callable[..., Any] | None = None,
                       several: bool = False, alike: bool = True, meet_some: Meeting | None = None) -> Primitive:
    """Make the primitive of a linear collective; `shape(aval, count, **params)` checks and gives its output's shape.

    `speak(lax, x, names, **params)` is jax's. `alone(zeros_like, x, **params)` computes it on an axis of size 1: `x`
    itself by default. It may reduce over `several` axes, and in groups, which must be `alike` in size or not.
    """
    def abstract(aval: Aval, *, axis_name: Names, axis_size: Sizes, axis_index_groups: Groups = (),
                 **params: Any) -> list[Aval]:
        count = _check_axes(name, axis_name, axis_size, several, axis_index_groups, alike)
        check_kind(name, accepts, aval)
        return [aval.update(shape=tuple(shape(aval, count, **params)))]

    def numpy(x: Any, **params: Any) -> Any:
        return x if alone is None else alone(np.zeros_like, x, **params)

    def xla(lax: Any, x: Any, **params: Any) -> Any:
        return x if alone is None else alone(lambda x: lax.full_like(x, 0), x, **params)

    primitive = linear_unary(
        name, abstract=abstract, numpy=_single_entry_rule(name, numpy), xla=_xla_rule(name, speak, xla),
        transpose=transpose,
        batch=_batch(lambda: primitive, meet, meet_some), collective=True)
    return primitive


# --- sums -------------------------------------------------------------------------------------------------------


def sum_batch(size: int, value: Any, axis: int | None) -> tuple[Any, None]:
    """Return the sum over a batch, without the batch axis."""
    return (mul(value, scalar_like(size, value)) if axis is None else reduce_sum(value, (axis,))), None


psum_p = linear_collective("psum", accepts="numeric", shape=lambda aval, count: aval.shape, meet=sum_batch,
                           several=True,
                            alike=False, speak=lambda lax, x, names, **groups: lax.psum(x, names, **groups),
                            transpose=lambda cotangent, aval, **over: psum(cotangent, **over))
"""The sum over all entries, returned to each of them. It is its own transpose: a cotangent came from every entry."""

communications.enter(EQUAL, psum_p)
collective_kinds.enter("all-reduce", psum_p)
sparsity_rules.enter(in_place, psum_p)  # of other entries the same elements: all entries push the same unit vectors


def psum(x: Any, axis_name: Names, axis_size: Sizes, axis_index_groups: Groups = ()) -> Any:
    """Return the sum of `x` over the entries of a mapped axis, or of several; or over those of the same group."""
    return bind(psum_p, x, axis_name=axis_name, axis_size=axis_size, **groups_param(axis_index_groups))[0]


# --- extrema ----------------------------------------------------------------------------------------------------


def _extremum_collective(name: str, reduce: Callable[..., Any]) -> Primitive:
    """Make an extremum collective; a tangent is the mean over the entries that attain it, as for `reduce_max`."""
    def abstract(aval: Aval, *, axis_name: Names, axis_size: Sizes, axis_index_groups: Groups = (),
                 ) -> list[Aval]:
        _check_axes(name, axis_name, axis_size, several=True, groups=axis_index_groups)
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

    primitive = register(Primitive(
        name=name, abstract=abstract, numpy=_single_entry_rule(name, lambda x: [x]), jvp=jvp,
        xla=_xla_rule(name, lambda lax, x, names, **groups: [getattr(lax, name)(x, names, **groups)],
                       lambda lax, x: [x]),
        transpose=NOT_LINEAR, batch=_batch(lambda: primitive, meet),
        cost=lambda aval, **over: Cost(aval.size, total_bytes([aval], [aval])), collective=True))
    return primitive


pmax_p = _extremum_collective("pmax", reduce_max)
pmin_p = _extremum_collective("pmin", reduce_min)
communications.enter(EQUAL, pmax_p, pmin_p)
collective_kinds.enter("all-reduce", pmax_p, pmin_p)


# --- positions --------------------------------------------------------------------------------------------------


def _index_abstract(*, axis_name: str, axis_size: int) -> list[Aval]:
    _check_axes("axis_index", axis_name, axis_size)
    return [Aval((), dtypes.int32)]


def _index_batch(size: int, values: list[Any], axes: list[int | None], **over: Any) -> tuple[list[Any], list[int]]:
    return [iota(dtypes.int32, (size,))], [0]


axis_index_p = register(Primitive(
    name="axis_index", abstract=_index_abstract, numpy=_single_entry_rule("axis_index", lambda: [np.int32(0)]),
    xla=_xla_rule("axis_index", lambda lax, name: [lax.axis_index(name)], lambda lax: [lax.full((), 0, np.int32)]),
    jvp=NO_TANGENT,
    transpose=NOT_LINEAR, batch=_index_batch, cost=lambda **over: Cost(0, 4), collective=True))
"""The position of each entry along the mapped axis."""
communications.enter(Communication("different", "nobody"), axis_index_p)
collective_kinds.enter("nothing", axis_index_p)
