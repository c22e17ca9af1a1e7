"""Layout: broadcast_in_dim, rev, slice, pad, tile (broadcast_to, reshape and transpose are in `structural`)."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.caches import cached
from fxgrad.engine.core.avals import Aval, Literal, Shape
from fxgrad.engine.core.primitive import ArrayKernel, Cost, Primitive, Rule, register, total_bytes
from fxgrad.engine.core.sizes import has_symbolic_dim, max_size, surely_less
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.ops.arithmetic import sub
from fxgrad.engine.ops.families import check_axes, check_same_dtype, is_linear, linear_unary
from fxgrad.engine.ops.select import select_n
from fxgrad.engine.ops.snippets import Snippet, snippets
from fxgrad.engine.ops.structural import broadcast_to, instantiate_zeros, move_axis, reduce_sum, reshape
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ShapeError

COVERED_BY = {
    "squeeze": "reshape: removing axes of size 1 moves no element",
    "expand_dims": "reshape: adding axes of size 1 moves no element",
    "empty": "broadcast_to of a literal 0: a value that is not defined has no place in a program",
    "empty2": "broadcast_to of a literal 0: a value that is not defined has no place in a program",
    "zeros_like": "broadcast_to of a literal 0",
    "stage": "nothing: it marks values for jax's own tracers, of which fxgrad has one kind only",
}
"""jax's primitives of this family without a counterpart in fxgrad, and their replacements."""

# --- operations linear in all their inputs together -----------------------------------------------------------


def linear_many(name: str, *, abstract: Rule, numpy: Callable[..., Any], xla: Callable[..., Any], transpose: Rule,
                batch: Rule) -> Primitive:
    """Return the record of an operation, linear in all inputs together, with one output that only moves elements."""
    def jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
        out = bind(primitive, *primals, **params)
        if all(type(tangent) is Zero for tangent in tangents):
            return out, [Zero(aval_of(out[0]))]
        return out, bind(primitive, *map(instantiate_zeros, tangents), **params)

    def cost(*avals: Aval, **params: Any) -> Cost:
        return Cost(0, total_bytes(avals, abstract(*avals, **params)))

    primitive = register(Primitive(
        name=name, abstract=abstract, numpy=ArrayKernel(numpy),
        xla=lambda lax, *values, **params: [xla(lax, *values, **params)],
        jvp=jvp, transpose=transpose, batch=batch, cost=cost))
    return primitive


# --- broadcast_in_dim -------------------------------------------------------------------------------------------


def _in_dim_abstract(x: Aval, *, shape: Shape, broadcast_dimensions: tuple[int, ...]) -> list[Aval]:
    dims = broadcast_dimensions
    if len(dims) != x.ndim or list(dims) != sorted(set(dims)) or any(not 0 <= dim < len(shape) for dim in dims):
        raise ShapeError(f"broadcast_in_dim: broadcast_dimensions {dims} for an array of shape {x.shape} and a result "
                         f"of shape {shape}; one axis of the result is needed for each axis of the array, in order")
    if any(extent not in (1, shape[dim]) for extent, dim in zip(x.shape, dims, strict=True)):
        raise ShapeError(f"broadcast_in_dim: an array of shape {x.shape} does not fit axes {dims} of shape {shape}; "
                         "each size must be equal or 1")
    return [x.update(shape=shape)]


def _in_dim_numpy(x: Any, *, shape: Shape, broadcast_dimensions: tuple[int, ...]) -> Any:
    placed = [1] * len(shape)
    for dim, extent in zip(broadcast_dimensions, x.shape, strict=True):
        placed[dim] = extent
    return np.broadcast_to(x.reshape(placed), shape)


def _in_dim_transpose(cotangent: Any, aval: Aval, *, shape: Shape, broadcast_dimensions: tuple[int, ...]) -> Any:
    kept = {dim for dim, extent in zip(broadcast_dimensions, aval.shape, strict=True) if extent == shape[dim]}
    return reshape(reduce_sum(cotangent, [dim for dim in range(len(shape)) if dim not in kept]), aval.shape)


def _in_dim_batch(size: int, values: list[Any], axes: list[int], *, shape: Shape,
                  broadcast_dimensions: tuple[int, ...]) -> tuple[list[Any], list[int]]:
    moved = move_axis(values[0], axes[0], 0)
    return [broadcast_in_dim(moved, (size, *shape), (0, *(dim + 1 for dim in broadcast_dimensions)))], [0]


broadcast_in_dim_p = linear_unary(
    "broadcast_in_dim", abstract=_in_dim_abstract, numpy=_in_dim_numpy,
    xla=lambda lax, x, *, shape, broadcast_dimensions: lax.broadcast_in_dim(x, shape, broadcast_dimensions),
    transpose=_in_dim_transpose, batch=_in_dim_batch)


def broadcast_in_dim(x: Any, shape: Shape, broadcast_dimensions: Sequence[int]) -> Any:
    """Return `x` repeated to `shape`; its axes become the axes `broadcast_dimensions` of the result."""
    return bind(broadcast_in_dim_p, x, shape=tuple(shape), broadcast_dimensions=tuple(broadcast_dimensions))[0]


@rewrites.register(broadcast_in_dim_p)
def _in_dim_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    shape, dims = params["shape"], params["broadcast_dimensions"]
    return [broadcast_to(inputs[0], shape)] if dims == tuple(range(len(shape) - len(dims), len(shape))) else None


# --- rev ----------------------------------------------------------------------------------------------------------


def _rev_abstract(x: Aval, *, dimensions: tuple[int, ...]) -> list[Aval]:
    check_axes("rev", x, dimensions)
    return [x]


def _rev_numpy(x: Any, *, dimensions: tuple[int, ...]) -> Any:
    backward = builtins.slice(None, None, -1)
    return x[tuple(backward if axis in dimensions else builtins.slice(None) for axis in range(x.ndim))]


rev_p = linear_unary(
    "rev", abstract=_rev_abstract, numpy=_rev_numpy, xla=lambda lax, x, *, dimensions: lax.rev(x, dimensions),
    transpose=lambda cotangent, aval, *, dimensions: rev(cotangent, dimensions),
    batch=lambda size, values, axes, *, dimensions: (
        [rev(values[0], [dim + (dim >= axes[0]) for dim in dimensions])], axes))


def rev(x: Any, dimensions: Sequence[int]) -> Any:
    """Return `x` with the order of its elements reversed along `dimensions`."""
    return bind(rev_p, x, dimensions=tuple(sorted(dimensions)))[0] if dimensions else x


@rewrites.register(rev_p)
def _rev_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Remove reversals of axes of size 0 and 1, and two reversals of an axis."""
    aval = aval_of(inputs[0])
    needed = {dim for dim in params["dimensions"] if not surely_less(aval.shape[dim], 2)}
    inner = known.inputs_if(inputs[0], rev_p)
    if inner:
        return [rev(inner[0], list(needed ^ set(known.params_of(inputs[0])["dimensions"])))]
    return None if len(needed) == len(params["dimensions"]) else [rev(inputs[0], list(needed))]


# --- slice --------------------------------------------------------------------------------------------------------


def _slice_abstract(x: Aval, *, start_indices: tuple[int, ...], limit_indices: tuple[int, ...],
                    strides: tuple[int, ...]) -> list[Aval]:
    if not len(start_indices) == len(limit_indices) == len(strides) == x.ndim:
        raise ShapeError(f"slice: {len(start_indices)} starts, {len(limit_indices)} limits and {len(strides)} strides "
                         f"for an array of shape {x.shape}; one of each is needed for each axis")
    shape = []
    for begin, end, stride, extent in zip(start_indices, limit_indices, strides, x.shape, strict=True):
        if surely_less(begin, 0) or surely_less(end, begin) or surely_less(extent, end) or stride < 1:
            raise ShapeError(f"slice: {begin}:{end}:{stride} of an axis of size {extent} in shape {x.shape}; "
                             "0 <= start <= limit <= size and a positive stride are needed")
        shape.append(-(-(end - begin) // stride))
    return [x.update(shape=tuple(shape))]


def _slice_numpy(x: Any, *, start_indices: tuple[int, ...], limit_indices: tuple[int, ...],
                 strides: tuple[int, ...]) -> Any:
    return x[tuple(map(builtins.slice, start_indices, limit_indices, strides))]


def _slice_snippet(_: Sequence[Aval], params: dict[str, Any]) -> Snippet:
    parts = zip(params["start_indices"], params["limit_indices"], params["strides"], strict=True)
    index = ", ".join(f"{start}:{limit}" + f":{stride}" * (stride != 1) for start, limit, stride in parts)
    return Snippet(f"{{0}}[{index or ()}]", owned=False)


def _slice_transpose(cotangent: Any, aval: Aval, *, start_indices: tuple[int, ...], limit_indices: tuple[int, ...],
                     strides: tuple[int, ...]) -> Any:
    config = []
    for begin, stride, kept, extent in zip(start_indices, strides, aval_of(cotangent).shape, aval.shape, strict=True):
        covered = max_size((kept - 1) * stride + 1,
                           0) if has_symbolic_dim(kept) else (kept - 1) * stride + 1 if kept else 0
        config.append((begin, extent - begin - covered, stride - 1))
    return pad(cotangent, Literal(0, Aval((), aval.dtype)), config)


def _slice_batch(size: int, values: list[Any], axes: list[int], *, start_indices: tuple[int, ...],
                 limit_indices: tuple[int, ...], strides: tuple[int, ...]) -> tuple[list[Any], list[int]]:
    at = axes[0]
    starts, limits, steps = list(start_indices), list(limit_indices), list(strides)
    starts.insert(at, 0)
    limits.insert(at, size)
    steps.insert(at, 1)
    return [slice(values[0], starts, limits, steps)], axes


slice_p = linear_unary(
    "slice", abstract=_slice_abstract, numpy=_slice_numpy, transpose=_slice_transpose, batch=_slice_batch,
    xla=lambda lax, x, *, start_indices, limit_indices, strides: lax.slice(x, start_indices, limit_indices, strides))
snippets.register(slice_p)(_slice_snippet)


def slice(x: Any, start_indices: Sequence[int], limit_indices: Sequence[int],
          strides: Sequence[int] | None = None) -> Any:
    """Return the elements of `x` from `start_indices` up to `limit_indices`, every `strides`-th; all non-negative."""
    steps = (1,) * len(start_indices) if strides is None else tuple(strides)
    return bind(slice_p, x, start_indices=tuple(start_indices), limit_indices=tuple(limit_indices), strides=steps)[0]


def slice_in_dim(x: Any, start: int, limit: int, axis: int, stride: int = 1) -> Any:
    """Slice along one axis."""
    shape = aval_of(x).shape
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], limits[axis], strides[axis] = start, limit, stride
    return slice(x, starts, limits, strides)


def _is_whole(avals: Sequence[Aval], params: dict[str, Any]) -> bool:
    return all(-(-(limit - start) // stride) == extent for start, limit, stride, extent in zip(
        params["start_indices"], params["limit_indices"], params["strides"], avals[0].shape, strict=True))


@rewrites.register(slice_p, makers=(slice_p,), when=_is_whole)
def _slice_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Replace a slice of everything by its input, and a slice of a slice by one slice."""
    x, starts, strides = inputs[0], params["start_indices"], params["strides"]
    if _is_whole([aval_of(x)], params):
        return [x]
    inner = known.inputs_if(x, slice_p)
    kept = _slice_abstract(aval_of(x), **params)[0].shape if inner else ()
    if not inner or 0 in kept:
        return None
    first = known.params_of(x)
    begins, limits, steps = [], [], []
    for axis, size in enumerate(kept):
        begins.append(first["start_indices"][axis] + starts[axis] * first["strides"][axis])
        steps.append(first["strides"][axis] * strides[axis])
        limits.append(begins[-1] + (size - 1) * steps[-1] + 1)
    return [slice(inner[0], begins, limits, steps)]


# --- pad ----------------------------------------------------------------------------------------------------------

Index = tuple[builtins.slice, ...]
PaddingConfig = tuple[tuple[int, int, int], ...]
"""For each axis the number of elements before, behind, and between any two; the first two may be negative."""


def _pad_abstract(x: Aval, value: Aval, *, padding_config: PaddingConfig) -> list[Aval]:
    check_same_dtype("pad", x, value)
    if value.shape:
        raise ShapeError(f"pad: the padding value must be a scalar, got shape {value.shape}")
    if len(padding_config) != x.ndim or any(interior < 0 for _, _, interior in padding_config):
        raise ShapeError(f"pad: padding_config {padding_config} of an array of shape {x.shape}; one triple (low, high, "
                         "interior) with interior >= 0 is needed for each axis")
    shape = tuple(low + high + extent + (max_size(extent - 1, 0) * interior if interior else 0)
                  for extent, (low, high, interior) in zip(x.shape, padding_config, strict=True))
    if any(surely_less(extent, 0) for extent in shape):
        raise ShapeError(f"pad: padding_config {padding_config} removes more than there is in shape {x.shape}")
    return [Aval(shape, x.dtype, x.weak and value.weak)]


@cached("regions of pads", 4096)
def _pad_regions(extents: Shape, padding_config: PaddingConfig) -> tuple[Shape, Index, Index]:
    """Return the padded shape, the elements that stay, and their destination."""
    shape, sources, targets = [], [], []
    for extent, (low, high, interior) in zip(extents, padding_config, strict=True):
        step = interior + 1
        size = low + high + extent + max(extent - 1, 0) * interior
        first = max(0, -(low // step))  # the first element that is not cut off; the ceiling of -low / step
        end = max(first, min(extent, (size - 1 - low) // step + 1))
        begin = low + first * step
        shape.append(size)
        sources.append(builtins.slice(first, end))
        targets.append(builtins.slice(begin, max(begin + (end - first - 1) * step + 1, begin), step)
                       if end > first else builtins.slice(0, 0))
    return tuple(shape), tuple(sources), tuple(targets)


def _pad_numpy(x: Any, value: Any, *, padding_config: PaddingConfig) -> Any:
    shape, sources, targets = _pad_regions(x.shape, padding_config)
    out = np.empty(shape, x.dtype)
    out[...] = value
    out[targets] = x[sources]
    return out


def _pad_snippet(avals: Sequence[Aval], params: dict[str, Any]) -> Snippet | None:
    """Return a function with the regions precomputed; if nothing is cut off, it takes all of `x`."""
    aval, config = avals[0], params["padding_config"]
    if aval.dtype.names is not None or any(low < 0 or high < 0 for low, high, _ in config):
        return None
    shape, _, targets = _pad_regions(aval.shape, config)
    dtype = aval.dtype

    def padded(x: Any, value: Any) -> Any:
        out = np.empty(shape, dtype)
        out.fill(value)
        out[targets] = x
        return out

    name = "_".join(map(str, ("pad", dtype.name, *aval.shape, "by", *(part for parts in config for part in parts))))
    return Snippet(f"{name}({{0}}, {{1}})", {name: padded}, row_major=True)


def _pad_xla(lax: Any, x: Any, value: Any, *, padding_config: PaddingConfig) -> Any:
    """Emit a selection where n elements get n between two of them: rows of n, with the elements on the diagonal.

    XLA computes it without divisions if such rows are wanted next, as for diagonals of Jacobians.
    """
    axes = [axis for axis, (size, config) in enumerate(zip(x.shape, padding_config, strict=True))
            if type(size) is int and size > 1 and config == (0, 0, size)]
    if not axes:
        return lax.pad(x, value, padding_config)
    others = [(0, 0, 0) if axis in axes else config for axis, config in enumerate(padding_config)]
    if any(map(any, others)):
        x = lax.pad(x, value, others)
    shape: list[int] = []
    rows = []
    for axis, size in enumerate(x.shape):
        rows.append(len(shape))
        shape += [size] * (2 if axis in axes else 1)
    diagonals = [lax.eq(*(lax.broadcasted_iota(np.int32, shape, rows[axis] + side) for side in (0, 1)))
                 for axis in axes]
    found = lax.select(functools.reduce(lax.bitwise_and, diagonals), lax.broadcast_in_dim(x, shape, rows),
                       lax.broadcast(value, shape))
    return lax.reshape(found, [size * size if axis in axes else size for axis, size in enumerate(x.shape)])


def _pad_transpose(cotangents: list[Any], inputs: list[Any], *, padding_config: PaddingConfig) -> list[Any]:
    x, value = inputs
    zero = Literal(0, Aval((), aval_of(cotangents[0]).dtype))
    undone = pad(cotangents[0], zero, [(-low, -high, 0) for low, high, _ in padding_config])
    inner = slice(undone, (0,) * x.aval.ndim if is_linear(x) else (0,) * aval_of(x).ndim, aval_of(undone).shape,
                  [interior + 1 for _, _, interior in padding_config])
    rest = None
    if is_linear(value):
        axes = range(aval_of(cotangents[0]).ndim)
        rest = sub(reduce_sum(cotangents[0], axes), reduce_sum(inner, axes))
    return [inner if is_linear(x) else None, rest]


def _pad_batch(size: int, values: list[Any], axes: list[int | None], *,
               padding_config: PaddingConfig) -> tuple[list[Any], list[int]]:
    (x, value), (at, value_at) = values, axes
    if at is None:
        x, at = broadcast_to(x, (size, *aval_of(x).shape)), 0
    config = list(padding_config)
    config.insert(at, (0, 0, 0))
    if value_at is None:
        return [pad(x, value, config)], [at]
    aval = aval_of(x)
    padded = pad(x, Literal(0, Aval((), aval.dtype)), config)
    is_inside = pad(broadcast_to(Literal(True, Aval((), dtypes.bool_)), aval.shape),
                    Literal(False, Aval((), dtypes.bool_)), config)
    shape = aval_of(padded).shape
    outside = broadcast_in_dim(value, shape, (at,))
    return [select_n(is_inside, outside, padded)], [at]


pad_p = linear_many(
    "pad", abstract=_pad_abstract, numpy=_pad_numpy, transpose=_pad_transpose, batch=_pad_batch,
    xla=_pad_xla)
snippets.register(pad_p)(_pad_snippet)


def pad(x: Any, value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Any:
    """Return `x` with a scalar `value` put around and between its elements; negative numbers cut off instead."""
    return bind(pad_p, x, value, padding_config=tuple(map(tuple, padding_config)))[0]


@rewrites.register(pad_p)
def _pad_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Remove padding by nothing."""
    extents = aval_of(inputs[0]).shape
    trivial = all(low == high == 0 and (interior == 0 or surely_less(extent, 2))
                  for extent, (low, high, interior) in zip(extents, params["padding_config"], strict=True))
    unchanged = trivial and (not aval_of(inputs[0]).weak or aval_of(inputs[1]).weak)
    return [inputs[0]] if unchanged else None


# --- tile ---------------------------------------------------------------------------------------------------------


def _tile_abstract(x: Aval, *, reps: tuple[int, ...]) -> list[Aval]:
    if len(reps) != x.ndim or any(count < 0 for count in reps):
        raise ShapeError(f"tile: reps {reps} for an array of shape {x.shape}; a non-negative number is needed for each "
                         "axis")
    return [x.update(shape=tuple(extent * count for extent, count in zip(x.shape, reps, strict=True)))]


def _tile_transpose(cotangent: Any, aval: Aval, *, reps: tuple[int, ...]) -> Any:
    apart = [size for pair in zip(reps, aval.shape, strict=True) for size in pair]
    return reduce_sum(reshape(cotangent, tuple(apart)), range(0, 2 * len(reps), 2))


tile_p = linear_unary(
    "tile", abstract=_tile_abstract, numpy=lambda x, *, reps: np.tile(x, reps),
    xla=lambda lax, x, *, reps: lax.tile(x, reps), transpose=_tile_transpose,
    batch=lambda size, values, axes, *, reps: ([tile(values[0], (*reps[:axes[0]], 1, *reps[axes[0]:]))], axes))


def tile(x: Any, reps: Sequence[int]) -> Any:
    """Return `x` repeated as a whole, `reps[i]` times along axis `i`."""
    return bind(tile_p, x, reps=tuple(reps))[0]


@rewrites.register(tile_p)
def _tile_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    return inputs if all(count == 1 for count in params["reps"]) else None
