"""Windows slid over arrays: their sums and extrema, and the choice of elements that derives these."""

from __future__ import annotations

import math

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import primitives
from fxgrad.extend.parameters import Sliding, identity_of
from fxgrad.shipping.onnx.emission import Emission
from fxgrad.shipping.onnx.graph import INT64, OnnxGraph, OnnxValue
from fxgrad.shipping.onnx.moves import is_narrow, pad_value
from fxgrad.shipping.onnx.products import windows
from fxgrad.shipping.onnx.reductions import emit_extremum, sum_axes
from fxgrad.shipping.onnx.rules import Rule, RuleOperation, onnx_rules, register_onnx_rule

Values = list[OnnxValue]


def _sliding(operation: RuleOperation) -> Sliding:
    return Sliding(*(operation.params[field] for field in Sliding._fields))


def _elements(graph: OnnxGraph, value: OnnxValue, shape: tuple[int, ...], sliding: Sliding,
              fill: OnnxValue) -> tuple[OnnxValue, tuple]:
    """Return the elements of each window, on new axes after each axis that has windows, and these axes."""
    config = tuple((low, high, holes - 1) for (low, high), holes in zip(
        sliding.padding, sliding.base_dilation, strict=True))
    counts = sliding.result_shape(shape)
    if any(map(any, config)):
        value = pad_value(graph, value, fill, shape, config)
    value = windows(graph, value, range(len(shape)), sliding.window_dimensions, counts, sliding.window_strides,
                    sliding.window_dilation)
    return value, tuple(range(1, 2 * len(shape), 2))


def _reduction(name: str) -> Rule:
    return lambda emission, operation, values: _emit_reduction(emission, operation, values, name)


for _name in ("sum", "max", "min"):
    onnx_rules.enter(_reduction(_name), primitives[f"reduce_window_{_name}"])


def _emit_reduction(emission: Emission, operation: RuleOperation, values: Values, name: str) -> Values:
    graph, (x,) = emission.graph, values
    dtype = x.dtype
    wide = dtypes.float32 if is_narrow(dtype) else dtype
    given = graph.cast(x, wide)
    fill = graph.number(identity_of(name, dtype), wide)
    if 0 in operation.shapes[0]:
        return [graph.expand(graph.cast(fill, dtype), operation.shape)]
    pooled = _emit_pooling(graph, name, given, operation.shapes[0], _sliding(operation), operation.shape)
    if pooled is not None:
        return [graph.cast(pooled, dtype)]
    parts, axes = _elements(graph, given, operation.shapes[0], _sliding(operation), fill)
    if name == "sum":
        spread = [size for pair in zip(operation.shape, operation.params["window_dimensions"], strict=True)
                  for size in pair]
        return [graph.cast(sum_axes(graph, parts, axes, tuple(spread)), dtype)]
    return [graph.cast(emit_extremum(graph, "ReduceMax" if name == "max" else "ReduceMin", parts, axes), dtype)]


def _emit_pooling(graph: OnnxGraph, name: str, x: OnnxValue, shape: tuple[int, ...], sliding: Sliding,
                  result: tuple[int, ...]) -> OnnxValue | None:
    """Pool by the operators for images, with one feature; return None if these lack a kernel or such windows."""
    places = [axis for axis, (window, stride, (low, high), _, _) in enumerate(zip(*sliding, strict=True))
              if (window, stride, low, high) != (1, 1, 0, 0)]
    if x.dtype not in ((dtypes.float32,) if name == "sum" else (dtypes.float32, dtypes.float64)) or not all(
            hole == 1 and min(edges) >= 0 and max(edges) < window for window, _, edges, hole, _ in zip(
                *sliding, strict=True)) or len(places) not in (1, 2, 3):
        return None
    others = [axis for axis in range(len(shape)) if axis not in places]
    order = [*others, *places]
    image = graph.reshape(graph.transpose(x, order), (
        math.prod(shape[axis] for axis in others), 1, *(shape[axis] for axis in places)))
    pads = [edge for edges in zip(*(sliding.padding[axis] for axis in places), strict=True) for edge in edges]
    window = [sliding.window_dimensions[axis] for axis in places]
    options = {"kernel_shape": window, "pads": pads, "strides": [sliding.window_strides[axis] for axis in places],
               "dilations": [sliding.window_dilation[axis] for axis in places]}
    if name == "sum":
        made = graph.operation("Conv", image, graph.constant(np.ones((1, 1, *window), x.dtype)), **options)
    else:
        operand = image if name == "max" else graph.operation("Neg", image)
        found = graph.operation("MaxPool", operand, **options)
        nans = graph.operation("MaxPool", graph.cast(graph.isnan(operand), dtypes.float32), **options)
        # A NaN wins, unlike in runtimes.
        made = graph.where(graph.operation("Greater", nans, graph.number(0, dtypes.float32)),
                           graph.number(np.nan, operand.dtype), found)
        made = made if name == "max" else graph.operation("Neg", made)
    turned = graph.reshape(made, [result[axis] for axis in order])
    return graph.transpose(turned, [order.index(axis) for axis in range(len(order))])


def _places(graph: OnnxGraph, operand: OnnxValue, operation: RuleOperation, shape: tuple[int, ...]) -> OnnxValue:
    """Return for each window the position of its extremum in the flat array: the first one; -1 in the padding."""
    sliding, greatest = _sliding(operation), operation.params["greatest"]
    wide = dtypes.float32 if is_narrow(operand.dtype) else operand.dtype
    bound = graph.number(-np.inf if greatest else np.inf, wide)
    keys, axes = _elements(graph, graph.cast(operand, wide), shape, sliding, bound)
    numbers = graph.reshape(graph.counting(math.prod(shape)), shape)
    found, _ = _elements(graph, numbers, shape, sliding, graph.number(-1, INT64))
    counts = sliding.result_shape(shape)
    order = (*range(0, 2 * len(shape), 2), *axes)
    flat = [graph.reshape(graph.transpose(each, order), (*counts, -1)) for each in (keys, found)]
    at = graph.operation("ArgMax" if greatest else "ArgMin", flat[0], axis=len(shape), keepdims=1)
    return graph.operation("Squeeze", graph.operation("GatherElements", flat[1], at, axis=len(shape)),
                           graph.sizes([len(shape)]))


@register_onnx_rule("select_and_gather_add")
def _emit_gather(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, (tangents, operand) = emission.graph, values
    if 0 in operation.shapes[1]:
        return [graph.filled(0, tangents.dtype, operation.shape)]
    places = _places(graph, operand, operation, operation.shapes[1])
    outside = graph.operation("Less", places, graph.number(0, INT64))
    taken = graph.operation("Gather", graph.reshape(tangents, [-1]),
                            graph.where(outside, graph.number(0, INT64), places), axis=0)
    return [graph.where(outside, graph.number(0, tangents.dtype), taken)]


@register_onnx_rule("select_and_scatter_add")
def _emit_scatter(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, (source, operand) = emission.graph, values
    size = operation.avals[1].size
    wide = dtypes.float32 if is_narrow(source.dtype) else source.dtype
    if 0 in operation.shapes[0]:
        return [graph.filled(0, source.dtype, operation.shape)]
    places = _places(graph, operand, operation, operation.shapes[1])
    outside = graph.operation("Less", places, graph.number(0, INT64))
    flat = graph.reshape(graph.where(outside, graph.number_of(size), places), [-1])
    total = graph.operation("ScatterElements", graph.filled(0, wide, [size + 1]), flat,
                            graph.reshape(graph.cast(source, wide), [-1]), axis=0, reduction="add")
    kept = graph.slice(total, [0], [size], [0])
    return [graph.cast(graph.reshape(kept, operation.shape), source.dtype)]
