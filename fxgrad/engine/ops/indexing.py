"""Indexing by arrays of integers: gather, and scatter with its combinations add, sub, mul, min, max.

`windows` contains the NumPy kernels, and the meaning of the dimension numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval, Shape
from fxgrad.engine.core.primitive import NOT_LINEAR, ArrayKernel, Cost, Primitive, Rule, register, total_bytes
from fxgrad.engine.core.sizes import surely_less
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.ops.arithmetic import div, mul, neg
from fxgrad.engine.ops.comparison import and_, eq, ne
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.families import check_kind, check_same_dtype, is_linear
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.reductions import reduce_prod
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import broadcast_to, convert, full, instantiate_zeros, move_axis, reshape, zeros
from fxgrad.engine.ops.windows import (
    Axes,
    Windows,
    check_mode,
    check_windows,
    default_fill,
    gather_numpy,
    scatter_numpy,
)
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ShapeError

# --- parameters ---------------------------------------------------------------------------------------------------


def gather_windows(params: dict[str, Any]) -> Windows:
    """Return the windows of a gather with these parameters."""
    return Windows(*(params[field] for field in Windows._fields))


def scatter_windows(params: dict[str, Any]) -> Windows:
    """Return the windows of a scatter with these parameters."""
    return Windows(params["update_window_dims"], params["inserted_window_dims"],
                   params["scatter_dims_to_operand_dims"], params["operand_batching_dims"],
                   params["scatter_indices_batching_dims"])


def as_scatter(windows: Windows, mode: str, promises: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of a scatter to these windows."""
    return {"update_window_dims": windows.offset_dims, "inserted_window_dims": windows.collapsed_slice_dims,
            "scatter_dims_to_operand_dims": windows.start_index_map,
            "operand_batching_dims": windows.operand_batching_dims,
            "scatter_indices_batching_dims": windows.start_indices_batching_dims,
            "mode": mode, "promises": tuple(promises)}


def _behind_new_axis(axes: Axes) -> Axes:
    """Shift axes for a new first axis."""
    return tuple(axis + 1 for axis in axes)


def _batch_windows(windows: Windows, operand: bool, indices: bool) -> Windows:
    """Return the windows with a batch axis in front of the operand, the indices or both; the result has it in front."""
    offset, collapsed, start, batching, index_batching = windows
    if operand and indices:
        return Windows(_behind_new_axis(offset), _behind_new_axis(collapsed), _behind_new_axis(start),
                       (0, *_behind_new_axis(batching)), (0, *_behind_new_axis(index_batching)))
    if operand:
        return Windows((0, *_behind_new_axis(offset)), _behind_new_axis(collapsed), _behind_new_axis(start),
                       _behind_new_axis(batching), index_batching)
    return Windows(_behind_new_axis(offset), collapsed, start, batching, _behind_new_axis(index_batching))


def _lax_mode(lax: Any, mode: str) -> Any:
    modes = lax.GatherScatterMode
    return {"clip": modes.CLIP, "promise_in_bounds": modes.PROMISE_IN_BOUNDS}.get(mode, modes.FILL_OR_DROP)


def _lax_indices(lax: Any, x: Any, indices: Any, windows: Windows, mode: str) -> Any:
    """Return the indices, with those that count from the end converted to count from the front."""
    if mode != "checked" or indices.dtype.kind == "u" or not windows.start_index_map:
        return indices
    extents = [x.shape[axis] for axis in windows.start_index_map]
    dtype = indices.dtype
    if not all(isinstance(extent, int) for extent in extents):  # of an export, where jax has symbolic ones
        indices = lax.convert_element_type(indices, np.dtype(np.int32) if dtype.itemsize < 4 else dtype)
        return _from_front(lax, indices, lax.concatenate(
            [lax.full((1,), extent, indices.dtype) for extent in extents], 0))
    sizes = np.array(extents)
    if sizes.max() > np.iinfo(dtype).max:
        dtype = np.dtype(np.int32 if sizes.max() <= np.iinfo(np.int32).max else np.int64)
        indices = lax.convert_element_type(indices, dtype)
    return _from_front(lax, indices, sizes.astype(dtype))


def _from_front(lax: Any, indices: Any, sizes: Any) -> Any:
    sizes = lax.broadcast_in_dim(sizes, indices.shape, (indices.ndim - 1,))
    return lax.select(lax.lt(indices, lax.full_like(indices, 0)), lax.add(indices, sizes), indices)


# --- gather -------------------------------------------------------------------------------------------------------


def _gather_abstract(x: Aval, indices: Aval, *, slice_sizes: Shape, mode: str, fill_value: Any,
                     promises: tuple[str, ...], **dimensions: Axes) -> list[Aval]:
    windows = gather_windows(dimensions)
    check_mode("gather", mode, promises)
    check_windows("gather", x, indices, windows, slice_sizes)
    return [x.update(shape=windows.result_shape(slice_sizes, indices.shape[:-1]))]


def _gather_xla(lax: Any, x: Any, indices: Any, *, slice_sizes: Shape, mode: str, fill_value: Any,
                promises: tuple[str, ...], **dimensions: Axes) -> list[Any]:
    windows = gather_windows(dimensions)
    shape = windows.result_shape(slice_sizes, indices.shape[:-1])
    if 0 in shape:  # XLA rejects windows larger than an axis of size 0, though there are none of them
        return [lax.full(shape, 0, x.dtype)]
    numbers = lax.GatherDimensionNumbers(
        windows.offset_dims, windows.collapsed_slice_dims, windows.start_index_map, windows.operand_batching_dims,
        windows.start_indices_batching_dims)
    fill = default_fill(np.dtype(x.dtype)) if fill_value is None else fill_value
    return [lax.gather(x, _lax_indices(lax, x, indices, windows, mode), numbers, slice_sizes,
                       unique_indices="unique" in promises, indices_are_sorted="sorted" in promises,
                       mode=_lax_mode(lax, mode), fill_value=fill)]


def _gather_jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    out = bind(gather_p, *primals, **params)
    if type(tangents[0]) is Zero:
        return out, [Zero(aval_of(out[0]))]
    return out, bind(gather_p, tangents[0], primals[1], **{**params, "fill_value": 0})


def _gather_transpose(cotangents: list[Any], inputs: list[Any], *, slice_sizes: Shape, mode: str, fill_value: Any,
                      promises: tuple[str, ...], **dimensions: Axes) -> list[Any]:
    x, indices = inputs
    params = as_scatter(gather_windows(dimensions), mode, promises)
    return [bind(scatter_add_p, zeros(x.aval), indices, cotangents[0], **params)[0], None]


def _gather_batch(size: int, values: list[Any], axes: list[int | None], *, slice_sizes: Shape,
                  **params: Any) -> tuple[list[Any], list[int]]:
    (x, indices), (at, indices_at) = values, axes
    windows = _batch_windows(gather_windows(params), at is not None, indices_at is not None)
    sizes = slice_sizes
    if at is not None:
        x = move_axis(x, at, 0)
        sizes = (1 if indices_at is not None else size, *slice_sizes)
    if indices_at is not None:
        indices = move_axis(indices, indices_at, 0)
    return bind(gather_p, x, indices, **{**params, **windows._asdict(), "slice_sizes": sizes}), [0]


def _gather_cost(*avals: Aval, **params: Any) -> Cost:
    out, = _gather_abstract(*avals, **params)
    return Cost(0, 2 * out.nbytes + avals[1].nbytes)


gather_p = register(Primitive(
    name="gather", abstract=_gather_abstract, numpy=ArrayKernel(gather_numpy), xla=_gather_xla, jvp=_gather_jvp,
    transpose=_gather_transpose, batch=_gather_batch, cost=_gather_cost))


def gather(x: Any, indices: Any, windows: Windows, slice_sizes: Sequence[int], mode: str = "checked",
           fill_value: Any = None, promises: Sequence[str] = ()) -> Any:
    """Return windows of `x` of `slice_sizes` that start at `indices`; see `Windows` and, for `mode`, `MODES`.

    `fill_value` (a Python number) replaces elements out of range under the mode `fill`; by default NaN, the least or
    largest integer, True. `promises` contains `"sorted"`, `"unique"` if the caller knows this of the indices.
    """
    if isinstance(fill_value, float | np.floating) and fill_value == 0 and np.signbit(fill_value):
        # -0.0 as a parameter would equal 0.0, the parameter of another program.
        return neg(gather(neg(x), indices, windows, slice_sizes, mode, 0.0, promises))
    return bind(gather_p, x, indices, **windows._asdict(), slice_sizes=tuple(slice_sizes), mode=mode,
                fill_value=fill_value, promises=tuple(promises))[0]


def take_along(x: Any, indices: Any, axis: int, mode: str = "checked", promises: Sequence[str] = (),
               fill_value: Any = None) -> Any:
    """`x[..., indices[..., j, ...], ...]` along `axis`; the other axes of the two have equal sizes."""
    rank = aval_of(x).ndim
    others = tuple(other for other in range(rank) if other != axis)
    windows = Windows((), (axis,), (axis,), others, others)
    column = reshape(indices, (*aval_of(indices).shape, 1))
    return gather(x, column, windows, (1,) * rank, mode, fill_value, promises)


# --- scatter ------------------------------------------------------------------------------------------------------


def _scatter_abstract(name: str, accepts: str) -> Rule:
    def abstract(x: Aval, indices: Aval, updates: Aval, *, mode: str, promises: tuple[str, ...],
                 **dimensions: Axes) -> list[Aval]:
        check_mode(name, mode, promises)
        check_kind(name, accepts, x)
        check_same_dtype(name, x, updates)
        windows = scatter_windows(dimensions)
        expected = len(windows.offset_dims) + indices.ndim - 1
        if updates.ndim != expected or len(windows.offset_dims) != len(windows.window_axes(x.ndim)):
            raise ShapeError(f"{name}: updates of shape {updates.shape}; {expected} axes are needed, of which "
                             f"{len(windows.window_axes(x.ndim))} are window axes")
        sizes = windows.slice_sizes(x.ndim, updates.shape)
        check_windows(name, x, indices, windows, sizes)
        if windows.result_shape(sizes, indices.shape[:-1]) != updates.shape:
            raise ShapeError(f"{name}: updates of shape {updates.shape} for indices of shape {indices.shape}; "
                             f"{windows.result_shape(sizes, indices.shape[:-1])} is needed")
        return [Aval(x.shape, x.dtype, x.weak and updates.weak)]
    return abstract


def _scatter_cost(x: Aval, indices: Aval, updates: Aval, **_: Any) -> Cost:
    return Cost(updates.size, total_bytes([x, indices, updates], [x]))


def _scatter(name: str, combine: np.ufunc | None, accepts: str, jvp: Rule, transpose: Rule) -> Primitive:
    """Return the record of a scatter that combines old and new elements by `combine`, or replaces them."""
    def kernel(x: Any, indices: Any, updates: Any, *, mode: str, promises: tuple[str, ...], **params: Any) -> Any:
        if accepts == "numeric" and x.dtype.kind == "b":
            raise TypeError("the abstract rule says why")
        return scatter_numpy(combine, x, indices, updates, scatter_windows(params), mode, promises)

    def xla(lax: Any, x: Any, indices: Any, updates: Any, *, mode: str, promises: tuple[str, ...],
            **params: Any) -> list[Any]:
        if 0 in updates.shape:
            return [x]
        windows = scatter_windows(params)
        numbers = lax.ScatterDimensionNumbers(
            windows.offset_dims, windows.collapsed_slice_dims, windows.start_index_map,
            windows.operand_batching_dims, windows.start_indices_batching_dims)
        return [getattr(lax, name)(
            x, _lax_indices(lax, x, indices, windows, mode), updates, numbers, mode=_lax_mode(lax, mode),
            unique_indices="unique" in promises, indices_are_sorted="sorted" in promises)]

    def batch(size: int, values: list[Any], axes: list[int | None], **params: Any) -> tuple[list[Any], list[int]]:
        moved = [value if at is None else move_axis(value, at, 0) for value, at in zip(values, axes, strict=True)]
        for place in (0, 2):
            if axes[place] is None:
                moved[place] = broadcast_to(moved[place], (size, *aval_of(moved[place]).shape))
        windows = _batch_windows(scatter_windows(params), True, axes[1] is not None)
        return bind(primitive, *moved, **as_scatter(windows, params["mode"], params["promises"])), [0]

    primitive = register(Primitive(
        name=name, abstract=_scatter_abstract(name, accepts), numpy=ArrayKernel(kernel), xla=xla,
        jvp=jvp, transpose=transpose, batch=batch, cost=_scatter_cost))
    return primitive


def _take_at_updates(array: Any, indices: Any, updates: Aval, params: dict[str, Any]) -> Any:
    """Return the elements of `array` at the targets of the updates; 0 for updates without a target."""
    windows = scatter_windows(params)
    return gather(array, indices, windows, windows.slice_sizes(aval_of(array).ndim, updates.shape), params["mode"], 0,
                  params["promises"])


def _is_distinct(indices: Any, params: dict[str, Any]) -> bool:
    """Return whether no element of the operand is addressed twice."""
    batching = params["scatter_indices_batching_dims"]
    shape = aval_of(indices).shape[:-1]
    return "unique" in params["promises"] or all(
        surely_less(extent, 2) for axis, extent in enumerate(shape) if axis not in batching)


def _linear_jvp(primitive: Callable[[], Primitive]) -> Rule:
    """Return the jvp rule of a combination that is linear in operand and updates together."""
    def jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
        out = bind(primitive(), *primals, **params)
        if type(tangents[2]) is Zero:
            return out, [tangents[0]]
        return out, bind(primitive(), instantiate_zeros(tangents[0]), primals[1], instantiate_zeros(tangents[2]),
                         **params)
    return jvp


def _linear_transpose(sign: Callable[[Any], Any]) -> Rule:
    def transpose(cotangents: list[Any], inputs: list[Any], **params: Any) -> list[Any]:
        x, indices, updates = inputs
        return [cotangents[0] if is_linear(x) else None, None,
                sign(_take_at_updates(cotangents[0], indices, updates.aval, params)) if is_linear(updates) else None]
    return transpose


scatter_add_p = _scatter("scatter_add", np.add, "numeric", _linear_jvp(lambda: scatter_add_p),
                         _linear_transpose(lambda part: part))
scatter_sub_p = _scatter("scatter_sub", np.subtract, "numeric", _linear_jvp(lambda: scatter_sub_p),
                         _linear_transpose(neg))


def _winners(x: Aval, indices: Any, updates: Aval, params: dict[str, Any]) -> tuple[Any, Any]:
    """Return where the operand keeps its element, and which updates remain (are not overwritten by others)."""
    numbers = reshape(add(iota(dtypes.int32, (updates.size,)), 1), updates.shape)
    written = bind(scatter_p, full(x.shape, 0, dtypes.int32), indices, numbers, **params)[0]
    return eq(written, 0), eq(numbers, _take_at_updates(written, indices, updates, params))


def _scatter_jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    x, indices, updates = primals
    out = bind(scatter_p, *primals, **params)
    old, new = instantiate_zeros(tangents[0]), instantiate_zeros(tangents[2])
    if _is_distinct(indices, params):
        return out, bind(scatter_p, old, indices, new, **params)
    # It is undefined which of several updates of one element remains: determine it, and add their tangents alone.
    kept, stays = _winners(aval_of(x), indices, aval_of(updates), params)
    return out, bind(scatter_add_p, where(kept, old, 0), indices, where(stays, new, 0), **params)


def _scatter_transpose(cotangents: list[Any], inputs: list[Any], **params: Any) -> list[Any]:
    x, indices, updates = inputs
    cotangent = cotangents[0]
    x_aval, updates_aval = (value.aval if is_linear(value) else aval_of(value) for value in (x, updates))
    if _is_distinct(indices, params):
        return [bind(scatter_p, cotangent, indices, zeros(updates_aval), **params)[0] if is_linear(x) else None, None,
                _take_at_updates(cotangent, indices, updates_aval, params) if is_linear(updates) else None]
    kept, stays = _winners(x_aval, indices, updates_aval, params)
    return [where(kept, cotangent, 0) if is_linear(x) else None, None,
            where(stays, _take_at_updates(cotangent, indices, updates_aval, params), 0) if is_linear(updates) else None]


scatter_p = _scatter("scatter", None, "all", _scatter_jvp, _scatter_transpose)


def _scatter_mul_jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    x, indices, updates = primals
    out = bind(scatter_mul_p, *primals, **params)
    parts = []
    if type(tangents[0]) is not Zero:
        parts.append(bind(scatter_mul_p, tangents[0], indices, updates, **params)[0])
    if type(tangents[2]) is not Zero:
        rest = _take_at_updates(x, indices, aval_of(updates), params)
        if not _is_distinct(indices, params):
            rest = mul(rest, _products_of_others(x, indices, updates, params))
        parts.append(bind(scatter_add_p, zeros(aval_of(x).strong()), indices, mul(rest, tangents[2]), **params)[0])
    return out, [add(*parts) if len(parts) == 2 else parts[0] if parts else Zero(aval_of(out[0]))]


def _products_of_others(x: Any, indices: Any, updates: Any, params: dict[str, Any]) -> Any:
    """Return for each update the product of all others of the same element, by comparing all pairs."""
    aval, count = aval_of(updates), aval_of(updates).size
    # Counted from 1, since dropped updates read 0: so they match each other and no element.
    places = reshape(add(iota(dtypes.int32, (aval_of(x).size,)), 1), aval_of(x).shape)
    targets = reshape(_take_at_updates(places, indices, aval, params), (count,))
    numbers = iota(dtypes.int32, (count,))
    same = and_(eq(reshape(targets, (count, 1)), targets), ne(reshape(numbers, (count, 1)), numbers))
    return reshape(reduce_prod(where(same, reshape(updates, (1, count)), 1), (1,)), aval.shape)


def _scatter_mul_transpose(cotangents: list[Any], inputs: list[Any], **params: Any) -> list[Any]:
    return [bind(scatter_mul_p, cotangents[0], inputs[1], inputs[2], **params)[0], None, None]


scatter_mul_p = _scatter("scatter_mul", np.multiply, "numeric", _scatter_mul_jvp, _scatter_mul_transpose)


def _extremal(name: str, combine: np.ufunc) -> Primitive:
    def jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
        """Return the tangent of the chosen element; among equal ones, the mean of theirs."""
        x, indices, updates = primals
        aval = aval_of(updates)
        out, = bind(primitive, *primals, **params)
        own = convert(eq(x, out), aval.dtype)
        theirs = convert(eq(updates, _take_at_updates(out, indices, aval, params)), aval.dtype)
        count = bind(scatter_add_p, own, indices, theirs, **params)[0]
        old = mul(instantiate_zeros(tangents[0]), own)
        new = mul(instantiate_zeros(tangents[2]), theirs)
        return [out], [div(bind(scatter_add_p, old, indices, new, **params)[0], count)]

    primitive = _scatter(name, combine, "ordered", jvp, NOT_LINEAR)
    return primitive


scatter_min_p = _extremal("scatter_min", np.minimum)
scatter_max_p = _extremal("scatter_max", np.maximum)


def scatter(x: Any, indices: Any, updates: Any, windows: Windows, *, combine: str = "set", mode: str = "checked",
            promises: Sequence[str] = ()) -> Any:
    """Return `x` with `updates` put into, or combined with, the windows that start at `indices`.

    `combine` is one of `"set"`, `"add"`, `"sub"`, `"mul"`, `"min"`, `"max"`; the other arguments are those of `gather`.
    """
    return bind(_COMBINATIONS[combine], x, indices, updates, **as_scatter(windows, mode, promises))[0]


_COMBINATIONS = {"set": scatter_p, "add": scatter_add_p, "sub": scatter_sub_p, "mul": scatter_mul_p,
                 "min": scatter_min_p, "max": scatter_max_p}
