"""Products of matrices and convolutions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import primitives
from fxgrad.extend.parameters import Geometry, dilated, geometry_of
from fxgrad.shipping.onnx import library
from fxgrad.shipping.onnx.elementwise import convert_to
from fxgrad.shipping.onnx.emission import Emission
from fxgrad.shipping.onnx.graph import OnnxGraph, OnnxValue
from fxgrad.shipping.onnx.moves import is_narrow, pad_value, strided_sum
from fxgrad.shipping.onnx.reductions import emit_reduce
from fxgrad.shipping.onnx.rules import RuleOperation, register_onnx_rule

Values = list[OnnxValue]
INT32 = np.dtype(np.int32)


def accumulation_dtype(dtype: Any) -> Any:
    """Return the dtype that products accumulate in: float32 for halves, int32 for bools and small integers."""
    if is_narrow(dtype):
        return dtypes.float32
    return INT32 if dtype.kind == "b" or (dtypes.is_integer(dtype) and dtype.itemsize < 4) else dtype


@register_onnx_rule("dot_general", "strong_dot_general")
def _dot_general(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, out = emission.graph, operation.outputs[0]
    if any(0 in shape for shape in operation.shapes):
        return [graph.filled(0, out.dtype, out.shape)]
    given = [convert_to(graph, value, out.dtype) for value in values]
    if operation.primitive is primitives.strong_dot_general:
        given = mask_strong_zeros(graph, given, operation)
    wide = accumulation_dtype(out.dtype)
    given = [graph.cast(value, wide) for value in given]
    return [convert_to(graph, emit_contraction(graph, given[0], given[1], operation), out.dtype)]


def emit_contraction(graph: OnnxGraph, x: OnnxValue, y: OnnxValue, operation: RuleOperation) -> OnnxValue:
    """Emit the sums of products as a product of stacks of matrices."""
    (x_contract, y_contract), (x_batch, y_batch) = operation.params["dimension_numbers"]
    x_shape, y_shape = operation.shapes
    x_free = [axis for axis in range(len(x_shape)) if axis not in x_contract and axis not in x_batch]
    y_free = [axis for axis in range(len(y_shape)) if axis not in y_contract and axis not in y_batch]
    if len(x_contract) == 1 and {len(x_shape), len(y_shape)} <= {1, 2} and 1 in (len(x_shape), len(y_shape)):
        # Instead of transposing the matrix for a vector, the vector goes on its other side. (onnxruntime 1.32 fuses the
        # transpose with the product, and then gets a different result.)
        vector_first = (len(x_shape) == 1 and y_contract[0] == 0) or (len(y_shape) == 1 and x_contract[0] == 0)
        vector, matrix = (x, y) if len(x_shape) == 1 else (y, x)
        return graph.operation("MatMul", vector, matrix) if vector_first else graph.operation("MatMul", matrix, vector)
    x = graph.transpose(x, (*x_batch, *x_free, *x_contract))
    y = graph.transpose(y, (*y_batch, *y_contract, *y_free))
    batch = [x_shape[axis] for axis in x_batch]
    inner = math.prod(x_shape[axis] for axis in x_contract)
    rows, columns = [x_shape[axis] for axis in x_free], [y_shape[axis] for axis in y_free]
    if not x_contract:  # an outer product
        left = graph.reshape(x, (*batch, *rows, *[1] * len(columns)))
        right = graph.reshape(y, (*batch, *[1] * len(rows), *columns))
        return graph.operation("Mul", left, right)
    matrices = len(y_free) <= 1 if not batch else len(x_free) == len(y_free) == 1
    if len(x_contract) == 1 and matrices:
        return graph.operation("MatMul", x, y)
    left = graph.reshape(x, (*batch, math.prod(rows), inner))
    right = graph.reshape(y, (*batch, inner, math.prod(columns)))
    return graph.reshape(graph.operation("MatMul", left, right), operation.shape)


def mask_strong_zeros(graph: OnnxGraph, values: Values, operation: RuleOperation) -> Values:
    """Return operands with infinities removed that a strong zero of the other operand cancels."""
    contracted_axes, batch_axes = operation.params["dimension_numbers"]
    masks = []
    for place in (0, 1):
        other = 1 - place
        zeros = graph.operation("Equal", values[other], library.zero_like(graph, values[other]))
        mine, theirs = contracted_axes[place], contracted_axes[other]
        shape = operation.shapes[other]
        free = tuple(axis for axis in range(len(shape)) if axis not in theirs and axis not in batch_axes[other])
        every = emit_reduce(graph, "ReduceMin", zeros, free)
        left = [axis for axis in range(len(shape)) if axis not in free]
        wanted = {theirs[number]: axis for number, axis in enumerate(mine)} | {
            batch_axes[other][number]: axis for number, axis in enumerate(batch_axes[place])}
        order = sorted(range(len(left)), key=lambda at: wanted[left[at]])
        every = graph.transpose(every, order)
        sizes = [1] * len(operation.shapes[place])
        for axis in wanted.values():
            sizes[axis] = operation.shapes[place][axis]
        masks.append(graph.reshape(every, sizes))
    return [graph.where(mask, library.zero_like(graph, value), value) for mask,
            value in zip(masks, values, strict=True)]


# --- convolutions ---------------------------------------------------------------------------------------------------


@register_onnx_rule("conv_general_dilated")
def _convolution(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, out = emission.graph, operation.outputs[0]
    if any(0 in shape for shape in operation.shapes):
        return [graph.filled(0, out.dtype, out.shape)]
    geometry = geometry_of(operation.params)
    wide = accumulation_dtype(out.dtype)
    image, kernel = (graph.cast(convert_to(graph, value, out.dtype), wide) for value in values)
    lhs_spec, rhs_spec, out_spec = geometry.dimension_numbers
    shape = tuple(operation.shapes[0][axis] for axis in lhs_spec)
    window = tuple(operation.shapes[1][axis] for axis in rhs_spec)
    image, shape = _groups_to_features(graph, graph.transpose(image, lhs_spec), shape, geometry.batch_group_count)
    kernel = graph.transpose(kernel, rhs_spec)
    groups = max(geometry.feature_group_count, geometry.batch_group_count)
    counts = tuple(out.shape[axis] for axis in out_spec)[2:]
    plain = max(geometry.lhs_dilation, default=1) == 1 and all(low >= 0 <= high for low, high in geometry.padding)
    within = wide == dtypes.float32 and shape[2:] and plain
    if not within:
        image, shape = _dilate_and_pad(graph, image, shape, geometry)
    if wide == dtypes.float32 and shape[2:]:
        pads = [edge for edges in zip(*geometry.padding, strict=True) for edge in edges] if within else [0] * (
            2 * len(counts))
        made = graph.operation("Conv", image, kernel, strides=list(geometry.window_strides), pads=pads,
                               dilations=list(geometry.rhs_dilation), group=groups, kernel_shape=list(window[2:]))
    else:
        made = _emit_matrix_product(graph, image, kernel, shape, window, counts, groups, geometry)
    places = [out_spec.index(axis) for axis in range(len(out_spec))]
    return [convert_to(graph, graph.transpose(made, places), out.dtype)]


def _groups_to_features(graph: OnnxGraph, image: OnnxValue, shape: tuple[int, ...],
                        count: int) -> tuple[OnnxValue, tuple[int, ...]]:
    """Return groups of the batch as groups of features."""
    if count == 1:
        return image, shape
    batch, features, *spatial = shape
    parts = graph.reshape(image, (count, batch // count, features, *spatial))
    turned = graph.transpose(parts, (1, 0, *range(2, len(shape) + 1)))
    result = (batch // count, count * features, *spatial)
    return graph.reshape(turned, result), result


def _dilate_and_pad(graph: OnnxGraph, image: OnnxValue, shape: tuple[int, ...],
                    geometry: Geometry) -> tuple[OnnxValue, tuple[int, ...]]:
    """Return the image dilated and padded."""
    config = ((0, 0, 0), (0, 0, 0), *((low, high, holes - 1) for (low, high), holes in zip(
        geometry.padding, geometry.lhs_dilation, strict=True)))
    if not any(map(any, config)):
        return image, shape
    image = pad_value(graph, image, graph.number(0, image.dtype), shape, config)
    return image, (*shape[:2], *(dilated(size, holes) + low + high for size, (low, high), holes in zip(
        shape[2:], geometry.padding, geometry.lhs_dilation, strict=True)))


def windows(graph: OnnxGraph, value: OnnxValue, axes: range, window: tuple[int, ...], counts: tuple[int, ...],
            strides: tuple[int, ...], holes: tuple[int, ...]) -> OnnxValue:
    """Return the elements of windows: each axis becomes two, one over windows and one within a window."""
    for axis, size, count, stride, step in reversed([*zip(axes, window, counts, strides, holes, strict=True)]):
        places = strided_sum(graph, [(count, stride, 0), (size, step, 1)], 2)
        value = graph.operation("Gather", value, places, axis=axis)
    return value


def _emit_matrix_product(graph: OnnxGraph, image: OnnxValue, kernel: OnnxValue, shape: tuple[int, ...],
                         window: tuple[int, ...],
                         counts: tuple[int, ...], groups: int, geometry: Geometry) -> OnnxValue:
    """Return the convolution as a product of matrices, for dtypes without another one in runtimes."""
    rank, (batch, features), (outs, ins, *sizes) = len(counts), shape[:2], window
    patches = windows(graph, image, range(2, 2 + rank), window[2:], counts, geometry.window_strides,
                      geometry.rhs_dilation)
    patches = graph.reshape(patches, (batch, groups, features // groups, *(
        size for pair in zip(counts, sizes, strict=True) for size in pair)))
    order = (1, 0, *range(3, 3 + 2 * rank, 2), 2, *range(4, 4 + 2 * rank, 2))
    rows = graph.reshape(graph.transpose(patches, order), (groups, batch * math.prod(counts), ins * math.prod(sizes)))
    columns = graph.transpose(graph.reshape(kernel, (groups, outs // groups, ins * math.prod(sizes))), (0, 2, 1))
    made = graph.reshape(graph.operation("MatMul", rows, columns), (groups, batch, math.prod(counts), outs // groups))
    return graph.reshape(graph.transpose(made, (1, 0, 3, 2)), (batch, outs, *counts))


