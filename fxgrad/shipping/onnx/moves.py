"""Operations that move elements: broadcasts, reshapes, slices, padding, joining, windows at traced places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import DType
from fxgrad.extend.sizes import has_symbolic_dim, surely_less
from fxgrad.shipping.onnx.emission import Emission, dtype_of
from fxgrad.shipping.onnx.graph import INT64, OnnxGraph, OnnxValue
from fxgrad.shipping.onnx.rules import RuleOperation, register_onnx_rule

Values = list[OnnxValue]
FIRST = -2**63
"""The end of a reversed slice that includes the first element."""


@register_onnx_rule("broadcast_to")
def _broadcast_to(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    if operation.shapes[0] == operation.shape:
        return values
    return [emission.graph.expand(values[0], operation.shape)]


@register_onnx_rule("broadcast_in_dim")
def _broadcast_in_dim(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, shape = emission.graph, operation.shape
    places = operation.params["broadcast_dimensions"]
    sizes = [1] * len(shape)
    for place, size in zip(places, operation.shapes[0], strict=True):
        sizes[place] = size
    value = values[0] if tuple(sizes) == operation.shapes[0] else graph.reshape(values[0], sizes)
    return [value if tuple(sizes) == shape else graph.expand(value, shape)]


@register_onnx_rule("reshape")
def _reshape(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return [emission.graph.reshape(values[0], operation.shape)]


@register_onnx_rule("transpose")
def _transpose(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return [emission.graph.transpose(values[0], operation.params["permutation"])]


@register_onnx_rule("rev")
def _rev(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return [reverse(emission.graph, values[0], operation.params["dimensions"])]


def reverse(graph: OnnxGraph, value: OnnxValue, axes: tuple[int, ...]) -> OnnxValue:
    """Return the value reversed along `axes`."""
    return graph.slice(value, [-1] * len(axes), [FIRST] * len(axes), axes, [-1] * len(axes)) if axes else value


@register_onnx_rule("slice")
def _slice(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    params, (shape,) = operation.params, operation.shapes
    steps = params["strides"] or (1,) * len(shape)
    starts, ends = params["start_indices"], params["limit_indices"]
    axes = [axis for axis, size in enumerate(shape) if (starts[axis], ends[axis], steps[axis]) != (0, size, 1)]
    if not axes:
        return values
    taken = ([numbers[axis] for axis in axes] for numbers in (starts, ends, steps))
    return [emission.graph.slice(values[0], next(taken), next(taken), axes, next(taken))]


@register_onnx_rule("pad")
def _pad(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    x, fill = values
    return [pad_value(emission.graph, x, fill, operation.shapes[0], operation.params["padding_config"])]


def pad_value(graph: OnnxGraph, x: OnnxValue, fill: OnnxValue, shape: tuple[int, ...],
              config: tuple[tuple[int, int, int], ...]) -> OnnxValue:
    """Return `x` with `fill` before, behind and between its elements; a negative number removes elements."""
    if 0 in shape:
        sizes = [low + high if size == 0 else size + (size - 1) * hole + low + high
                 for size, (low, high, hole) in zip(shape, config, strict=True)]
        return graph.expand(fill, sizes)
    for axis, (_, _, holes) in enumerate(config):
        if holes and shape[axis] != 1:
            size = shape[axis]
            wide = graph.unsqueeze(x, [axis + 1])
            pads = [0] * (2 * (len(shape) + 1))
            pads[len(shape) + 1 + axis + 1] = holes
            filled = graph.operation("Pad", wide, graph.sizes(pads), fill)
            shape = (*shape[:axis], size * (holes + 1), *shape[axis + 1:])
            x = graph.slice(graph.reshape(filled, shape), [0], [shape[axis] - holes], [axis])
            shape = (*shape[:axis], shape[axis] - holes, *shape[axis + 1:])
    lows, highs = ([0 if surely_less(edge, 0) else edge for edge in edges]
                   for edges in zip(*((low, high) for low, high, _ in config), strict=True)) if config else ([], [])
    if any(edge != 0 for edge in (*lows, *highs)):
        x = graph.operation("Pad", x, graph.sizes([*lows, *highs]), fill)
    fewer = [(axis, lows[axis] - low, size + lows[axis] + high) for axis, (size, (low, high, _)) in enumerate(
        zip(shape, config, strict=True)) if (low, high) != (lows[axis], highs[axis])]
    if fewer:
        axes, starts, ends = zip(*fewer, strict=True)
        x = graph.slice(x, starts, ends, axes)
    return x


@register_onnx_rule("tile")
def _tile(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return [emission.graph.operation("Tile", *values, emission.graph.sizes(operation.params["reps"]))]


# --- joining and splitting ------------------------------------------------------------------------------------------


@register_onnx_rule("concatenate")
def _concatenate(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    parts = [value for value, shape in zip(values, operation.shapes, strict=True) if 0 not in shape]
    return [emission.graph.concatenate(parts, operation.params["dimension"])]


@register_onnx_rule("stack")
def _stack(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, axis = emission.graph, operation.params["axis"]
    return [graph.concatenate([graph.unsqueeze(value, [axis]) for value in values], axis)]


@register_onnx_rule("split")
def _split(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, sizes, axis = emission.graph, operation.params["sizes"], operation.params["axis"]
    present = [size for size in sizes if size != 0]
    found = iter(graph.operations("Split", len(present), *values, graph.sizes(present), axis=axis))
    return [graph.filled(0, dtype_of(aval), aval.shape) if size == 0 else next(found)
            for size, aval in zip(sizes, operation.outputs, strict=True)]


@register_onnx_rule("unstack")
def _unstack(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, axis = emission.graph, operation.params["axis"]
    return [graph.operation("Gather", *values, graph.number(place, INT64), axis=axis)
            for place in range(len(operation.outputs))]


# --- counting -------------------------------------------------------------------------------------------------------


@register_onnx_rule("iota")
def _iota(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, shape, axis = emission.graph, operation.shape, operation.params["dimension"]
    sizes = (shape[axis], *(1,) * (len(shape) - axis - 1))
    if has_symbolic_dim(shape[axis]):
        line = graph.reshape(graph.cast(graph.counting(shape[axis]), operation.params["dtype"]), sizes)
    else:
        line = graph.constant(np.arange(shape[axis]).astype(operation.params["dtype"]).reshape(sizes))
    return [line if sizes == shape else graph.expand(line, shape)]


@register_onnx_rule("size")
def _size(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return [emission.graph.number_of(operation.params["size"])]


# --- windows at traced places ---------------------------------------------------------------------------------------


def _clamp_starts(graph: OnnxGraph, starts: Values, shape: tuple[int, ...], sizes: tuple[int, ...]) -> OnnxValue:
    """Return the starts of a window, clamped so that it lies within the array."""
    parts = [graph.unsqueeze(index_as_int64(graph, start), [0]) for start in starts]
    most = graph.sizes([extent - size for extent, size in zip(shape, sizes, strict=True)])
    return graph.operation("Min", graph.operation("Max", graph.concatenate(parts, 0), graph.number(0, INT64)), most)


def index_as_int64(graph: OnnxGraph, start: OnnxValue) -> OnnxValue:
    """Return an index as int64; unsigned ones beyond its range become the largest."""
    if start.dtype == np.uint64:
        start = graph.operation("Min", start, graph.number(2**62, start.dtype))
    return graph.cast(start, INT64)


@register_onnx_rule("dynamic_slice")
def _dynamic_slice(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, (x, *starts) = emission.graph, values
    sizes = operation.params["slice_sizes"]
    if not starts:
        return [x]
    begin = _clamp_starts(graph, starts, operation.shapes[0], sizes)
    end = graph.operation("Add", begin, graph.sizes(sizes))
    return [graph.operation("Slice", x, begin, end, graph.sizes(range(len(sizes))))]


@register_onnx_rule("dynamic_update_slice")
def _dynamic_update_slice(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    """Write the elements of the update into the flat array at the window."""
    graph, (x, update, *starts) = emission.graph, values
    shape, sizes = operation.shapes[:2]
    if not starts or sizes == shape:
        return [update]
    if 0 in sizes:
        return [x]
    steps = [math.prod(shape[axis + 1:]) for axis in range(len(shape))]
    offsets = strided_sum(graph,
                          [(size, step, axis) for axis, (size, step) in enumerate(zip(sizes, steps, strict=True))],
                          len(sizes))
    begin = graph.operation("ReduceSum", graph.operation("Mul", _clamp_starts(graph, starts, shape, sizes),
                                                         graph.sizes(steps)), graph.sizes([0]), keepdims=1)
    places = graph.operation("Add", graph.reshape(offsets, [-1]), begin)
    flat = graph.operation("ScatterElements", graph.reshape(x, [-1]), places, graph.reshape(update, [-1]), axis=0)
    return [graph.reshape(flat, shape)]


def strided_sum(graph: OnnxGraph, lines: Sequence[tuple[Any, Any, int]], rank: int) -> OnnxValue:
    """Return the sum of 0, step, 2 step, ... along each axis, for lines given as (size, step, axis)."""
    def spread(size: Any, axis: int) -> list[Any]:
        return [size if at == axis else 1 for at in range(rank)]

    known = np.zeros([1] * rank, np.int64)
    total: OnnxValue | None = None
    for size, step, axis in lines:
        if not has_symbolic_dim(size, step):
            known = known + (np.arange(size) * step).reshape(spread(size, axis))
            continue
        line = graph.operation("Mul", graph.counting(size), graph.size(step))
        line = graph.reshape(line, spread(size, axis))
        total = line if total is None else graph.operation("Add", total, line)
    fixed = graph.constant(known)
    return fixed if total is None else graph.operation("Add", total, fixed)


def is_narrow(dtype: DType) -> bool:
    """Return whether sums of floats of this dtype are computed in float32."""
    return dtype.itemsize == 2 and dtypes.is_floating(dtype)
