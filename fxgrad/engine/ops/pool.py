"""Sliding windows over arrays: their sums and extrema, and the selection of elements for the derivatives of these."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.caches import cached
from fxgrad.engine.core.avals import Aval, Literal, Shape
from fxgrad.engine.core.parameter_classes import declare_parameter_class
from fxgrad.engine.core.primitive import NOT_LINEAR, ArrayKernel, Cost, Primitive, Rule, register, total_bytes
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.dtypes import DType
from fxgrad.engine.ops.convolution import dilated, padding_of_adjoint, window_counts
from fxgrad.engine.ops.families import check_kind, check_same_dtype, linear_unary
from fxgrad.engine.ops.joining import align_batch_axes
from fxgrad.engine.ops.shaping import pad, pad_p
from fxgrad.engine.ops.structural import is_negative, zeros
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ArgumentError, ShapeError

COVERED_BY = {
    "reduce_window": "slices folded by calls of the user's function (fxgrad.lax.reduce_window), or the windows by name",
    "select_and_scatter": "select_and_scatter_add: jax makes no other choice either",
}
"""jax's primitives of this family without a counterpart in fxgrad, and their replacements."""

Axes = tuple[int, ...]


class Sliding(NamedTuple):
    """The windows: one entry for each axis. Dilations are counted as in `lax.reduce_window`: 1 is none."""

    window_dimensions: Axes
    window_strides: Axes
    padding: tuple[tuple[int, int], ...]
    base_dilation: Axes
    window_dilation: Axes

    def result_shape(self, shape: Shape) -> Shape:
        """Return the number of windows along each axis of an array of this shape."""
        return window_counts(shape, *self)

    def with_axis(self, at: int) -> Sliding:
        """Return windows for arrays with one more axis, along which every window is one element wide."""
        new = (1, 1, (0, 0), 1, 1)
        return Sliding(*((*entries[:at], one, *entries[at:])
                         for entries, one in zip(self, new, strict=True)))  # type: ignore[arg-type]


declare_parameter_class(Sliding)


@cached("sliding windows", 4096)
def check_sliding(name: str, x: Aval, windows: Sliding) -> None:
    """Raise `ShapeError` unless there are windows of an array of this type."""
    for field, entries in windows._asdict().items():
        if len(entries) != x.ndim:
            raise ShapeError(f"{name}: {field} {entries} for an array of shape {x.shape}; one entry is needed for each "
                             f"of the {x.ndim} axes")
        if field != "padding" and any(is_negative(entry - 1) for entry in entries):
            raise ShapeError(f"{name}: {field} {entries}; numbers from 1 on are needed")
    for axis, (low, high) in enumerate(windows.padding):
        if is_negative(dilated(x.shape[axis], windows.base_dilation[axis]) + low + high):
            raise ShapeError(f"{name}: padding {(low, high)} removes more than there is along axis {axis} of an array "
                             f"of shape {x.shape}")


def identity_of(name: str, dtype: DType) -> Any:
    """Return the identity of a sum (`"sum"`), maximum or minimum of numbers of this dtype."""
    if name == "sum":
        return dtype.type(0)
    greatest = name == "min"
    if dtype.kind == "b":
        return np.bool_(greatest)
    if dtypes.is_integer(dtype):
        limits = dtypes.iinfo(dtype)
        return dtype.type(limits.max if greatest else limits.min)
    return dtype.type(math.inf if greatest else -math.inf)


# --- the NumPy kernels ----------------------------------------------------------------------------------------------


def _filled(x: Any, fill: Any, windows: Sliding) -> Any:
    """Return `x` with its padding and its holes."""
    config = tuple((low, high, holes - 1) for (low, high), holes in
                   zip(windows.padding, windows.base_dilation, strict=True))
    return pad_p.numpy(x, fill, padding_config=config)[0] if any(map(any, config)) else x


def _places(windows: Sliding, counts: Shape, axis: int) -> list[tuple[Any, ...]]:
    """Return, for each element of a window along `axis`, the slices that take this element of every window."""
    stride, holes = windows.window_strides[axis], windows.window_dilation[axis]
    whole = (slice(None),) * axis
    return [(*whole, slice(at * holes, at * holes + (counts[axis] - 1) * stride + 1, stride))
            for at in range(windows.window_dimensions[axis])]


def elements_of_windows(shape: Shape, windows: Sliding) -> list[Any]:
    """Return, for each place in a window, its element's index in the flat array, by window; -1 is padding."""
    counts = windows.result_shape(shape)
    if 0 in counts:
        return []
    parts = [_filled(np.arange(math.prod(shape)).reshape(shape), np.int64(-1), windows)]
    for axis in range(len(shape)):
        parts = [part[place] for part in parts for place in _places(windows, counts, axis)]
    return parts


def _window_kernel(name: str, combine: np.ufunc) -> Callable[..., Any]:
    """Return a kernel that reduces one axis after the other, by as many passes as the window has elements along it."""
    def kernel(x: Any, **params: Any) -> Any:
        windows = Sliding(**params)
        check_sliding(f"reduce_window_{name}", Aval(x.shape, x.dtype), windows)
        counts = windows.result_shape(x.shape)
        if 0 in counts:
            return np.zeros(counts, x.dtype)
        # As in XLA: narrow floats are summed in float32.
        is_narrow = name == "sum" and x.dtype.itemsize < 4 and dtypes.is_floating(x.dtype)
        result = _filled(x.astype(np.float32) if is_narrow else x, identity_of(name, x.dtype), windows)
        for axis in range(x.ndim):
            first, *others = _places(windows, counts, axis)
            reduced = result[first]
            for place in others:
                reduced = combine(reduced, result[place])
            result = reduced
        return result.astype(x.dtype, copy=False)
    return kernel


def _positions(operand: Any, windows: Sliding, greatest: bool) -> Any:
    """Return, for each window, the index of its (first) extremum in the flat array; -1 is in the padding."""
    counts = windows.result_shape(operand.shape)
    keys = _filled(operand, identity_of("max" if greatest else "min", operand.dtype), windows)
    found = _filled(np.arange(operand.size).reshape(operand.shape), np.int64(-1), windows)
    for axis in reversed(range(operand.ndim)):  # the last axis first, so that ties go to the first in row-major order
        first, *others = _places(windows, counts, axis)
        key, place = keys[first], found[first]
        for other in others:
            stays = key >= keys[other] if greatest else key <= keys[other]
            key, place = np.where(stays, key, keys[other]), np.where(stays, place, found[other])
        keys, found = key, place
    return found


def _gather_numpy(tangents: Any, operand: Any, *, greatest: bool, **params: Any) -> Any:
    windows = Sliding(**params)
    result, = _gather_abstract(Aval(tangents.shape, tangents.dtype), Aval(operand.shape, operand.dtype),
                               greatest=greatest, **params)
    if 0 in result.shape or not operand.size:
        return np.zeros(result.shape, tangents.dtype)
    found = _positions(operand, windows, greatest)
    return np.where(found >= 0, tangents.reshape(-1)[found], tangents.dtype.type(0))


def _scatter_numpy(source: Any, operand: Any, *, greatest: bool, **params: Any) -> Any:
    windows = Sliding(**params)
    _scatter_abstract(Aval(source.shape, source.dtype), Aval(operand.shape, operand.dtype), greatest=greatest, **params)
    if 0 in source.shape or not operand.size:
        return np.zeros(operand.shape, source.dtype)
    found = _positions(operand, windows, greatest).reshape(-1)
    kept = found >= 0
    sums = np.bincount(found[kept], source.reshape(-1)[kept].astype(np.float64), operand.size)
    return sums.reshape(operand.shape).astype(source.dtype)


# --- reductions -----------------------------------------------------------------------------------------------------


def _window_abstract(name: str, accepts: str) -> Rule:
    def abstract(x: Aval, **params: Any) -> list[Aval]:
        windows = Sliding(**params)
        check_kind(name, accepts, x)
        check_sliding(name, x, windows)
        return [x.update(shape=windows.result_shape(x.shape))]
    return abstract


def _window_xla(name: str, function: str) -> Callable[..., Any]:
    def xla(lax: Any, x: Any, **params: Any) -> Any:
        shape = Sliding(**params).result_shape(x.shape)
        init = identity_of(name, np.dtype(x.dtype))
        if 0 in shape or 0 in x.shape:
            return lax.full(shape, init, x.dtype)
        return lax.reduce_window(x, init, getattr(lax, function), **params)
    return xla


def _window_batch(primitive: Callable[[], Primitive]) -> Rule:
    def batch(size: int, values: list[Any], axes: list[int | None], **params: Any) -> tuple[list[Any], list[int]]:
        alike, at = align_batch_axes(size, values, axes)
        fields = {field: params.pop(field) for field in Sliding._fields}
        return bind(primitive(), *alike, **Sliding(**fields).with_axis(at)._asdict(), **params), [at]
    return batch


def _sum_transpose(cotangent: Any, aval: Aval, **params: Any) -> Any:
    """Sum for each element the cotangents of the windows that contain it: windows again, over cotangents."""
    windows = Sliding(**params)
    counts = aval_of(cotangent).shape
    if 0 in counts or not aval.size:
        return zeros(aval)
    around = padding_of_adjoint(aval.shape, windows.window_dimensions, counts, *windows[1:])
    config = [(low, high, stride - 1) for (low, high), stride in zip(around, windows.window_strides, strict=True)]
    spread = pad(cotangent, Literal(0, Aval((), aval.dtype)), config)
    return window_sum(spread, Sliding(windows.window_dimensions, windows.base_dilation, ((0, 0),) * aval.ndim,
                                      (1,) * aval.ndim, windows.window_dilation))


reduce_window_sum_p = linear_unary(
    "reduce_window_sum", abstract=_window_abstract("reduce_window_sum", "numeric"), flops=1,
    numpy=_window_kernel("sum", np.add), xla=_window_xla("sum", "add"), transpose=_sum_transpose,
    batch=_window_batch(lambda: reduce_window_sum_p))


def _extremum(name: str, combine: np.ufunc) -> Primitive:
    """Return the record of the greatest or least element of each window."""
    shown, greatest = f"reduce_window_{name}", name == "max"
    abstract = _window_abstract(shown, "ordered")

    def jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
        return (bind(primitive, *primals, **params),
                bind(select_and_gather_add_p, tangents[0], primals[0], greatest=greatest, **params))

    def cost(x: Aval, **params: Any) -> Cost:
        outputs = abstract(x, **params)
        return Cost(outputs[0].size * math.prod(Sliding(**params).window_dimensions), total_bytes([x], outputs))

    xla = _window_xla(name, name)
    primitive = register(Primitive(
        name=shown, abstract=abstract, numpy=ArrayKernel(_window_kernel(name, combine)),
        xla=lambda lax, x, **params: [xla(lax, x, **params)], jvp=jvp, transpose=NOT_LINEAR,
        batch=_window_batch(lambda: primitive), cost=cost))
    return primitive


reduce_window_max_p = _extremum("max", np.maximum)
reduce_window_min_p = _extremum("min", np.minimum)


def window_sum(x: Any, windows: Sliding) -> Any:
    """Return the sum of each window."""
    return bind(reduce_window_sum_p, x, **windows._asdict())[0]


def window_max(x: Any, windows: Sliding) -> Any:
    """Return the greatest element of each window; among equal ones the first has the derivative."""
    return bind(reduce_window_max_p, x, **windows._asdict())[0]


def window_min(x: Any, windows: Sliding) -> Any:
    """Return the least element of each window; among equal ones the first has the derivative."""
    return bind(reduce_window_min_p, x, **windows._asdict())[0]


# --- selection of an element of each window --------------------------------------------------------------------------


def _check_chosen(name: str, values: Aval, operand: Aval, windows: Sliding, expected: Shape) -> None:
    check_kind(name, "floating", operand)
    check_same_dtype(name, values, operand)
    check_sliding(name, operand, windows)
    if values.shape != expected:
        raise ShapeError(f"{name}: values of shape {values.shape} for an array of shape {operand.shape}; the shape "
                         f"{expected} is needed")


def _gather_abstract(tangents: Aval, operand: Aval, *, greatest: bool, **params: Any) -> list[Aval]:
    windows = Sliding(**params)
    _check_chosen("select_and_gather_add", tangents, operand, windows, operand.shape)
    return [tangents.update(shape=windows.result_shape(operand.shape))]


def _gather_xla(lax: Any, tangents: Any, operand: Any, *, greatest: bool, **params: Any) -> list[Any]:
    """Compare elements of windows one after the other, axis by axis: XLA fuses this into one loop."""
    windows = Sliding(**params)
    counts = windows.result_shape(operand.shape)
    if 0 in counts or 0 in operand.shape:
        return [lax.full(counts, 0, tangents.dtype)]
    return [_select_by_keys(lax, operand, tangents, 0, windows, greatest)]


def _select_by_keys(lax: Any, keys: Any, values: Any, fill: Any, windows: Sliding, greatest: bool) -> Any:
    """Select as `_positions`, from any values; `fill` is in the padding."""
    config = [(low, high, holes - 1) for (low, high), holes in
              zip(windows.padding, windows.base_dilation, strict=True)]
    counts = windows.result_shape(keys.shape)
    worst = identity_of("max" if greatest else "min", np.dtype(keys.dtype))
    keys = lax.pad(keys, lax.full((), worst, keys.dtype), config)
    values = lax.pad(values, lax.full((), fill, values.dtype), config)
    for axis in reversed(range(keys.ndim)):
        first, *others = _places(windows, counts, axis)
        key, value = keys[first], values[first]
        for other in others:
            stays = (lax.ge if greatest else lax.le)(key, keys[other])
            key, value = lax.select(stays, key, keys[other]), lax.select(stays, value, values[other])
        keys, values = key, value
    return values


def _scatter_abstract(source: Aval, operand: Aval, *, greatest: bool, **params: Any) -> list[Aval]:
    windows = Sliding(**params)
    # Check the array first, since the shape of the values follows from it.
    check_sliding("select_and_scatter_add", operand, windows)
    _check_chosen("select_and_scatter_add", source, operand, windows, windows.result_shape(operand.shape))
    return [source.update(shape=operand.shape)]


def _scatter_xla(lax: Any, source: Any, operand: Any, *, greatest: bool, **params: Any) -> list[Any]:
    windows = Sliding(**params)
    shape = operand.shape
    if 0 in source.shape or 0 in shape:
        return [lax.full(shape, 0, source.dtype)]
    is_plain = all(holes == 1 for holes in (*windows.base_dilation, *windows.window_dilation))
    if is_plain and operand.ndim and all(low >= 0 and high >= 0 for low, high in windows.padding):
        return [lax.select_and_scatter_add_p.bind(
            source, operand, select_prim=lax.ge_p if greatest else lax.le_p,
            window_dimensions=windows.window_dimensions, window_strides=windows.window_strides,
            padding=windows.padding)]
    # XLA has no such operation for dilated windows, jax none for negative padding: the selected positions are
    # addressed, and those in the padding lie beyond the end.
    numbers = lax.reshape(lax.iota(np.int32, operand.size), shape)
    found = _select_by_keys(lax, operand, numbers, operand.size, windows, greatest)
    flat = lax.full((operand.size,), 0, source.dtype)
    return [lax.reshape(flat.at[found.reshape(-1)].add(source.reshape(-1), mode="drop"), shape)]


def _choosing_primitive(name: str, abstract: Rule, numpy: Callable[..., Any], xla: Rule,
                        adjoint: Callable[[], Primitive],
                        ) -> Primitive:
    """Return the record of an operation that is linear in its first array, as selected by the second."""
    def jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
        out = bind(primitive, *primals, **params)
        if type(tangents[0]) is Zero:
            return out, [Zero(aval_of(out[0]))]
        return out, bind(primitive, tangents[0], primals[1], **params)

    def cost(values: Aval, operand: Aval, **params: Any) -> Cost:
        outputs = abstract(values, operand, **params)
        windows = Sliding(**{field: params[field] for field in Sliding._fields})
        count = min(values.size, outputs[0].size)
        return Cost(count * math.prod(windows.window_dimensions), total_bytes([values, operand], outputs))

    primitive = register(Primitive(
        name=name, abstract=abstract, numpy=ArrayKernel(numpy), xla=xla, jvp=jvp,
        transpose=lambda cotangents, inputs, **params: [bind(adjoint(), cotangents[0], inputs[1], **params)[0], None],
        batch=_window_batch(lambda: primitive), cost=cost))
    return primitive


select_and_gather_add_p = _choosing_primitive("select_and_gather_add", _gather_abstract, _gather_numpy, _gather_xla,
                                              lambda: select_and_scatter_add_p)
select_and_scatter_add_p = _choosing_primitive("select_and_scatter_add", _scatter_abstract, _scatter_numpy,
                                               _scatter_xla,
                                               lambda: select_and_gather_add_p)


def window_pads(shape: Sequence[int], window: Sequence[int], strides: Sequence[int],
                padding: str | Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the padding of each axis: pairs unchanged, `"VALID"` none, `"SAME"` enough for one window a stride.

    `window` are the sizes of windows with their dilations. `"SAME_LOWER"` differs from `"SAME"` in the side of an odd
    one.
    """
    if not isinstance(padding, str):
        return tuple((int(low), int(high)) for low, high in padding)
    kind = padding.upper()
    if kind == "VALID":
        return ((0, 0),) * len(shape)
    if kind not in ("SAME", "SAME_LOWER"):
        raise ArgumentError(f"padding {padding!r}; it is 'VALID', 'SAME', 'SAME_LOWER', or a pair (low, high) for each "
                            "axis")
    pairs = []
    for size, span, stride in zip(shape, window, strides, strict=True):
        total = max((-(-size // stride) - 1) * stride + span - size, 0)
        half = total // 2
        pairs.append((half, total - half) if kind == "SAME" else (total - half, half))
    return tuple(pairs)
