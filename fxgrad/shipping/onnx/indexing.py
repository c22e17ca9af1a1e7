"""Indexing by arrays: gather and scatter, by places in the flat array."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import primitives
from fxgrad.extend.parameters import Windows, default_fill
from fxgrad.shipping.onnx.emission import Emission
from fxgrad.shipping.onnx.graph import INT64, OnnxGraph, OnnxValue, has_nans
from fxgrad.shipping.onnx.moves import index_as_int64, is_narrow, strided_sum
from fxgrad.shipping.onnx.reductions import emit_reduce
from fxgrad.shipping.onnx.rules import Rule, RuleOperation, onnx_rules, register_onnx_rule

Values = list[OnnxValue]


class FlatAddresses(NamedTuple):
    """Positions of elements in the flat array, and whether their windows are in range (None: all are)."""

    places: OnnxValue
    within: OnnxValue | None


def flat_addresses(graph: OnnxGraph, indices: OnnxValue, shape: tuple[int, ...], indices_shape: tuple[int, ...],
                   windows: Windows,
                   sizes: tuple[int, ...], mode: str) -> FlatAddresses:
    """Return the flat places of the elements of a gathered result, or of the updates of a scatter."""
    result = windows.result_shape(sizes, indices_shape[:-1])
    rank = len(result)
    batch = tuple(axis for axis in range(rank) if axis not in windows.offset_dims)
    steps = [math.prod(shape[axis + 1:]) for axis in range(len(shape))]
    # The known terms of flat positions: of an element in its window, and of batching axes.
    terms = [(sizes[axis], steps[axis], place)
             for axis, place in zip(windows.window_axes(len(sizes)), windows.offset_dims, strict=True)]
    terms += [(indices_shape[place], steps[axis], batch[place]) for axis, place in zip(
        windows.operand_batching_dims, windows.start_indices_batching_dims, strict=True)]
    total = strided_sum(graph, terms, rank)
    starts = index_as_int64(graph, indices)
    axes = windows.start_index_map
    if not axes:
        return FlatAddresses(graph.expand(total, result), None)
    if mode == "checked" and indices.dtype.kind != "u":
        starts = _from_the_front(graph, starts, graph.sizes([shape[axis] for axis in axes]))
    most = graph.sizes([shape[axis] - sizes[axis] for axis in axes])
    held = graph.operation("Min", graph.operation("Max", starts, graph.number(0, INT64)), most)
    factors = graph.sizes([steps[axis] for axis in axes])
    first = emit_reduce(graph, "ReduceSum", graph.operation("Mul", held, factors), (len(indices_shape) - 1,))
    spread = [1] * rank
    for axis, size in zip(batch, indices_shape[:-1], strict=True):
        spread[axis] = size
    total = graph.operation("Add", graph.reshape(first, spread), total)
    within = None
    if mode in ("checked", "fill"):
        same = graph.cast(graph.operation("Equal", held, starts), np.dtype(np.int32))
        every = graph.cast(emit_reduce(graph, "ReduceMin", same, (len(indices_shape) - 1,)), np.dtype(bool))
        within = graph.reshape(every, spread)
    return FlatAddresses(graph.expand(total, result), within)


def _from_the_front(graph: OnnxGraph, starts: OnnxValue, extents: OnnxValue) -> OnnxValue:
    """Return indices with those counted from the end turned into indices from the front."""
    below = graph.operation("Less", starts, graph.number(0, INT64))
    return graph.where(below, graph.operation("Add", starts, extents), starts)


@register_onnx_rule("gather")
def _gather(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, (x, indices), params = emission.graph, values, operation.params
    shape, indices_shape = operation.shapes
    windows = Windows(*(params[field] for field in Windows._fields))
    sizes, mode = params["slice_sizes"], params["mode"]
    fill = params["fill_value"]
    number = default_fill(x.dtype) if fill is None else fill
    if 0 in operation.shapes[0]:
        return [graph.filled(number, x.dtype, operation.shape)]
    plain = _as_take(graph, x, indices, windows, operation)
    if plain is not None:
        return [plain]
    places, within = flat_addresses(graph, indices, shape, indices_shape, windows, sizes, mode)
    found = graph.operation("Gather", graph.reshape(x, [-1]), places, axis=0)
    return [found if within is None else graph.where(graph.operation("Not", within), graph.number(number, x.dtype),
                                                     found)]


def _as_take(graph: OnnxGraph, x: OnnxValue, indices: OnnxValue, windows: Windows,
             operation: RuleOperation) -> OnnxValue | None:
    """Gather whole rows along one axis by ONNX's node for it; return None for other gathers."""
    shape, indices_shape = operation.shapes
    sizes, mode = operation.params["slice_sizes"], operation.params["mode"]
    if len(windows.start_index_map) != 1 or windows.operand_batching_dims:
        return None
    axis, = windows.start_index_map
    batch = len(indices_shape) - 1
    wanted = tuple(at if at < axis else at + batch for at in range(len(shape) - 1))
    if windows.collapsed_slice_dims != (axis,) or windows.offset_dims != wanted or sizes != (
            *shape[:axis], 1, *shape[axis + 1:]):
        return None
    starts = graph.reshape(index_as_int64(graph, indices), indices_shape[:-1])
    if mode == "checked" and indices.dtype.kind != "u":
        starts = _from_the_front(graph, starts, graph.number_of(shape[axis]))
    held = graph.operation("Min", graph.operation("Max", starts, graph.number(0, INT64)),
                           graph.number_of(shape[axis] - 1))
    found = graph.operation("Gather", x, held, axis=axis)
    if mode not in ("checked", "fill"):
        return found
    within = graph.reshape(graph.operation("Equal", held, starts), [1] * axis + list(indices_shape[:-1]) + [1] * (
        len(shape) - 1 - axis))
    fill = operation.params["fill_value"]
    return graph.where(graph.operation("Not", within),
                       graph.number(default_fill(x.dtype) if fill is None else fill, x.dtype), found)


def _scatter(reduction: str, negated: bool = False) -> Rule:
    return lambda emission, operation, values: _scattered(emission, operation, values, reduction, negated)


for _name, _reduction in {"scatter": "none", "scatter_add": "add", "scatter_mul": "mul", "scatter_min": "min",
                          "scatter_max": "max"}.items():
    onnx_rules.enter(_scatter(_reduction), primitives[_name])
onnx_rules.enter(_scatter("add", negated=True), primitives["scatter_sub"])


def _scattered(emission: Emission, operation: RuleOperation, values: Values, reduction: str, negated: bool) -> Values:
    """Scatter updates; those out of range go to an extra element after the flat array, which is cut off again."""
    graph, (x, indices, updates), params = emission.graph, values, operation.params
    shape, indices_shape, updates_shape = operation.shapes
    windows = Windows(params["update_window_dims"], params["inserted_window_dims"],
                      params["scatter_dims_to_operand_dims"], params["operand_batching_dims"],
                      params["scatter_indices_batching_dims"])
    if 0 in updates_shape or 0 in shape:
        return [x]
    dtype, size, combines = x.dtype, operation.avals[0].size, reduction != "none"
    wide = dtypes.float32 if is_narrow(dtype) and combines else np.dtype(
        np.int32) if combines and dtype.kind == "b" else dtype
    sizes = windows.slice_sizes(len(shape), updates_shape)
    places, within = flat_addresses(graph, indices, shape, indices_shape, windows, sizes, params["mode"])
    flat = graph.reshape(graph.cast(x, wide), [-1])
    news = graph.cast(updates, wide)
    if negated:
        news = graph.operation("Sub", graph.number(0, wide), news)
    if within is not None:
        places = graph.where(within, places, graph.number_of(size))
        flat = graph.concatenate([flat, graph.constant(np.zeros(1, wide))], 0)
    places, news = graph.reshape(places, [-1]), graph.reshape(news, [-1])
    made = graph.operation("ScatterElements", flat, places, news, axis=0, reduction=reduction)
    if reduction in ("min", "max") and has_nans(wide):  # a NaN wins, unlike in runtimes
        nans = [graph.cast(graph.isnan(each), np.dtype(np.int32)) for each in (flat, news)]
        any_nan = graph.operation("ScatterElements", nans[0], places, nans[1], axis=0, reduction="max")
        made = graph.where(graph.cast(any_nan, np.dtype(bool)), graph.number(np.nan, wide), made)
    if within is not None:
        made = graph.slice(made, [0], [size], [0])
    return [graph.cast(graph.reshape(made, shape), dtype)]
