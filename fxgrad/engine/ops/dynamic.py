"""Windows at computed places: dynamic_slice and dynamic_update_slice, which move them into range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Aval, Literal, Shape
from fxgrad.engine.core.primitive import ArrayKernel, Cost, Primitive, register
from fxgrad.engine.core.sizes import surely_less
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.ops.families import check_kind, check_same_dtype, is_linear
from fxgrad.engine.ops.indexing import gather, scatter
from fxgrad.engine.ops.joining import stack
from fxgrad.engine.ops.shaping import slice
from fxgrad.engine.ops.structural import broadcast_to, full, instantiate_zeros, move_axis, zeros
from fxgrad.engine.ops.windows import Windows
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ShapeError


def _check_starts(name: str, x: Aval, starts: Sequence[Aval], sizes: Shape) -> None:
    """Raise unless there is an integer scalar for each axis and the window fits into the array."""
    check_kind(f"{name} (start indices)", "integer", *starts)
    if starts:
        check_same_dtype(f"{name} (start indices)", *starts)
    if len(starts) != x.ndim or any(start.shape for start in starts):
        raise ShapeError(f"{name}: start indices of shapes {[start.shape for start in starts]} for an array of shape "
                         f"{x.shape}; one scalar is needed for each axis")
    if len(sizes) != x.ndim or any(
            surely_less(size, 0) or surely_less(extent, size)
            for size, extent in zip(sizes, x.shape, strict=True)):
        raise ShapeError(f"{name}: a window of shape {sizes} in an array of shape {x.shape}; it must not be larger")


def _window(shape: Shape, starts: Sequence[Any], sizes: Shape) -> tuple[Any, ...]:
    """Return the index of a window, moved into range."""
    begins = [min(max(int(start), 0), extent - size) for start, extent, size in zip(starts, shape, sizes, strict=True)]
    return tuple([np.s_[begin:begin + size] for begin, size in zip(begins, sizes, strict=True)])


def _xla_starts(starts: Sequence[Any]) -> list[Any]:
    """Return starts with known ones moved to 0 from below: jax refuses negative numbers that it need not wrap."""
    return [type(start)(max(start, 0)) if isinstance(start, (int, np.integer)) else start for start in starts]


# --- dynamic_slice ------------------------------------------------------------------------------------------------


def _slice_abstract(x: Aval, *starts: Aval, slice_sizes: Shape) -> list[Aval]:
    _check_starts("dynamic_slice", x, starts, slice_sizes)
    return [x.update(shape=slice_sizes)]


def _slice_jvp(primals: list[Any], tangents: list[Any], *, slice_sizes: Shape) -> tuple[list[Any], list[Any]]:
    out = bind(dynamic_slice_p, *primals, slice_sizes=slice_sizes)
    if type(tangents[0]) is Zero:
        return out, [Zero(aval_of(out[0]))]
    return out, bind(dynamic_slice_p, tangents[0], *primals[1:], slice_sizes=slice_sizes)


def _slice_transpose(cotangents: list[Any], inputs: list[Any], *, slice_sizes: Shape) -> list[Any]:
    x, *starts = inputs
    return [dynamic_update_slice(zeros(x.aval), cotangents[0], starts), *[None] * len(starts)]


def _columns(size: int, starts: Sequence[Any], axes: Sequence[int | None]) -> Any:
    """Return batched and unbatched scalars as the columns of an array with one row for each example."""
    return stack([broadcast_to(start, (size,)) if axis is None else start
                  for start, axis in zip(starts, axes, strict=True)], 1)


def _windows(rank: int, batched: bool) -> Windows:
    """Return windows that keep all `rank` axes; with `batched` each example has an operand of its own."""
    offset = tuple(range(1, rank + 1))
    return Windows(offset, (), offset, (0,), (0,)) if batched else Windows(offset, (), tuple(range(rank)))


def _slice_batch(size: int, values: list[Any], axes: list[int | None], *,
                 slice_sizes: Shape) -> tuple[list[Any], list[int]]:
    (x, *starts), (at, *start_axes) = values, axes
    if any(axis is not None for axis in start_axes):
        indices = _columns(size, starts, start_axes)
        x, sizes = (x, slice_sizes) if at is None else (move_axis(x, at, 0), (1, *slice_sizes))
        return [gather(x, indices, _windows(len(starts), at is not None), sizes, "clip")], [0]
    assert at is not None
    zero = Literal(0, Aval((), aval_of(starts[0]).dtype if starts else np.dtype(np.int32)))
    sizes = (*slice_sizes[:at], size, *slice_sizes[at:])
    return [dynamic_slice(x, [*starts[:at], zero, *starts[at:]], sizes)], [at]


def _slice_cost(x: Aval, *starts: Aval, slice_sizes: Shape) -> Cost:
    return Cost(0, 2 * x.update(shape=slice_sizes).nbytes)


dynamic_slice_p = register(Primitive(
    name="dynamic_slice", abstract=_slice_abstract,
    numpy=ArrayKernel(lambda x, *starts, slice_sizes: x[_window(x.shape, starts, slice_sizes)]),
    xla=lambda lax, x, *starts, slice_sizes: [
        lax.dynamic_slice(x, _xla_starts(starts), slice_sizes, allow_negative_indices=False) if starts else x],
    jvp=_slice_jvp, transpose=_slice_transpose, batch=_slice_batch, cost=_slice_cost))


def dynamic_slice(x: Any, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> Any:
    """Return the window of `x` of static sizes that starts at integer scalars of one dtype, moved into range."""
    return bind(dynamic_slice_p, x, *start_indices, slice_sizes=tuple(slice_sizes))[0]


@rewrites.register(dynamic_slice_p)
def _slice_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Replace a window as large as the array by the array, and one at literal places by a slice."""
    x, *starts = inputs
    shape, sizes = aval_of(x).shape, params["slice_sizes"]
    if shape == sizes:
        return [x]
    if any(type(start) is not Literal for start in starts):
        return None
    begins = [index.start for index in _window(shape, [start.value for start in starts], sizes)]
    return [slice(x, begins, [begin + size for begin, size in zip(begins, sizes, strict=True)])]


# --- dynamic_update_slice -----------------------------------------------------------------------------------------


def _update_abstract(x: Aval, update: Aval, *starts: Aval) -> list[Aval]:
    check_same_dtype("dynamic_update_slice", x, update)
    _check_starts("dynamic_update_slice", x, starts, update.shape)
    return [Aval(x.shape, x.dtype, x.weak and update.weak)]


def _update_numpy(x: Any, update: Any, *starts: Any) -> Any:
    out = np.array(x)
    out[_window(x.shape, starts, update.shape)] = update
    return out


def _update_jvp(primals: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
    out = bind(dynamic_update_slice_p, *primals)
    old, new = instantiate_zeros(tangents[0]), instantiate_zeros(tangents[1])
    return out, bind(dynamic_update_slice_p, old, new, *primals[2:])


def _update_transpose(cotangents: list[Any], inputs: list[Any]) -> list[Any]:
    x, update, *starts = inputs
    shape = update.aval.shape if is_linear(update) else aval_of(update).shape
    cotangent = cotangents[0]
    old = dynamic_update_slice(cotangent, full(shape, 0, aval_of(cotangent).dtype), starts) if is_linear(x) else None
    new = dynamic_slice(cotangent, starts, shape) if is_linear(update) else None
    return [old, new, *[None] * len(starts)]


def _update_batch(size: int, values: list[Any], axes: list[int | None]) -> tuple[list[Any], list[int]]:
    x, update, *starts = values
    x, update = (broadcast_to(value, (size, *aval_of(value).shape)) if at is None else move_axis(value, at, 0)
                 for value, at in ((x, axes[0]), (update, axes[1])))
    if any(axis is not None for axis in axes[2:]):
        indices = _columns(size, starts, axes[2:])
        return [scatter(x, indices, update, _windows(len(starts), True), mode="clip", promises=("unique",))], [0]
    zero = Literal(0, Aval((), aval_of(starts[0]).dtype if starts else np.dtype(np.int32)))
    return [dynamic_update_slice(x, update, [zero, *starts])], [0]


def _update_cost(x: Aval, update: Aval, *starts: Aval) -> Cost:
    return Cost(0, 2 * x.nbytes + update.nbytes)


dynamic_update_slice_p = register(Primitive(
    name="dynamic_update_slice", abstract=_update_abstract, numpy=ArrayKernel(_update_numpy),
    xla=lambda lax, x, update, *starts: [
        lax.dynamic_update_slice(x, update, _xla_starts(starts), allow_negative_indices=False) if starts else update],
    jvp=_update_jvp, transpose=_update_transpose, batch=_update_batch, cost=_update_cost))


def dynamic_update_slice(x: Any, update: Any, start_indices: Sequence[Any]) -> Any:
    """Return `x` with `update` in the window that starts at integer scalars of one dtype, moved into range."""
    return bind(dynamic_update_slice_p, x, update, *start_indices)[0]


@rewrites.register(dynamic_update_slice_p)
def _update_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Replace the array by an update of its size."""
    x, update = inputs[:2]
    whole = aval_of(x).shape == aval_of(update).shape
    return [update] if whole and (aval_of(x).weak or not aval_of(update).weak) else None
