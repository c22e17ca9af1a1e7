"""Convolution: conv_general_dilated, with strides, padding, dilations and groups of features or of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.caches import cached
from fxgrad.engine.core.avals import Aval, Shape
from fxgrad.engine.core.parameter_classes import declare_parameter_class
from fxgrad.engine.core.primitive import ArrayKernel, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.dtypes import DType
from fxgrad.engine.ops.families import check_same_dtype, is_linear
from fxgrad.engine.ops.pointwise import sum_of_parts
from fxgrad.engine.ops.products import precision_name
from fxgrad.engine.ops.shaping import pad_p, rev
from fxgrad.engine.ops.structural import convert, inverse_permutation, is_negative, move_axis, reshape, zeros
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ShapeError

Axes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
NAME = "conv_general_dilated"


class ConvDimensionNumbers(NamedTuple):
    """The roles of the axes of the image, the kernel and the result.

    Each names first the batch and the feature axis (for the kernel: the axis of output features, then that of input
    features), and then the spatial axes, in one order for all three.
    """

    lhs_spec: Axes
    rhs_spec: Axes
    out_spec: Axes


declare_parameter_class(ConvDimensionNumbers)


class Geometry(NamedTuple):
    """The parameters of a convolution that place its windows; `numbers` are `ConvDimensionNumbers`."""

    window_strides: Axes
    padding: Pairs
    lhs_dilation: Axes
    rhs_dilation: Axes
    dimension_numbers: tuple[Axes, Axes, Axes]
    feature_group_count: int
    batch_group_count: int


declare_parameter_class(Geometry)


def geometry_of(params: dict[str, Any]) -> Geometry:
    """Return the geometry among the parameters of an equation."""
    return Geometry(*(params[field] for field in Geometry._fields))


def dilated(size: int, dilation: int) -> int:
    """Return the size of an axis with `dilation - 1` holes between any two elements."""
    if dilation == 1:
        return size
    return (size - 1) * dilation + 1 if size else 0


def window_counts(sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int], padding: Pairs,
                  base_dilation: Sequence[int], window_dilation: Sequence[int]) -> Shape:
    """Return the number of windows along each axis."""
    return tuple(
        max((dilated(size, base) + low + high - dilated(window, holes)) // stride + 1, 0)
        for size, window, stride, (low, high), base, holes
        in zip(sizes, windows, strides, padding, base_dilation, window_dilation, strict=True))


def padding_of_adjoint(sizes: Sequence[int], windows: Sequence[int], counts: Sequence[int], strides: Sequence[int],
                       padding: Pairs, base_dilation: Sequence[int], window_dilation: Sequence[int]) -> Pairs:
    """Return the padding for which windows sliding over cotangents (dilated by `strides`) give the shape `sizes`."""
    result = []
    for size, window, count, stride, (low, _), base, holes in zip(
            sizes, windows, counts, strides, padding, base_dilation, window_dilation, strict=True):
        reach = dilated(window, holes)
        before = reach - low - 1
        result.append((before, dilated(size, base) + reach - 1 - dilated(count, stride) - before))
    return tuple(result)


# --- checks ---------------------------------------------------------------------------------------------------------


def _conv_abstract(lhs: Aval, rhs: Aval, *, precision: Any, preferred_element_type: DType | None,
                   **params: Any) -> list[Aval]:
    return [_conv_aval(lhs, rhs, geometry_of(params), preferred_element_type)]


@cached("types of convolutions", 4096)
def _conv_aval(lhs: Aval, rhs: Aval, geometry: Geometry, preferred_element_type: DType | None) -> Aval:
    check_same_dtype(NAME, lhs, rhs)
    problem = (_form_problem(lhs.shape, rhs.shape, geometry) or _group_problem(lhs.shape, rhs.shape, geometry)
               or _space_problem(lhs.shape, rhs.shape, geometry))
    if problem:
        raise ShapeError(f"{NAME}: an image of shape {lhs.shape} and a kernel of shape {rhs.shape}: {problem}")
    dtype = preferred_element_type or lhs.dtype
    return Aval(_result_shape(lhs.shape, rhs.shape, geometry), dtype,
                lhs.weak and rhs.weak and preferred_element_type is None)


def _form_problem(lhs: Shape, rhs: Shape, geometry: Geometry) -> str:
    """Return the problem with the number of axes and of the entries of parameters, or ""."""
    rank = len(lhs)
    if len(rhs) != rank or rank < 2:
        return (f"they have {rank} and {len(rhs)} axes; equal numbers are needed, one axis for the batch (the output "
                "features of the kernel), one for features, and the spatial ones. Insert axes with x[None]")
    for field, spec in zip(ConvDimensionNumbers._fields, geometry.dimension_numbers, strict=True):
        if sorted(spec) != list(range(rank)):
            return f"{field} is {spec}, which must name each axis from 0 to {rank - 1} once"
    for field in ("window_strides", "padding", "lhs_dilation", "rhs_dilation"):
        entries = getattr(geometry, field)
        if len(entries) != rank - 2:
            return (f"{field} has {len(entries)} entries; one is needed for each of the {rank - 2} spatial axes: "
                    "those that are neither batch nor features")
        if field != "padding" and any(entry < 1 for entry in entries):
            return f"{field} is {entries}, where numbers from 1 on are needed"
    return ""


def _group_problem(lhs: Shape, rhs: Shape, geometry: Geometry) -> str:
    """Return the problem with the features and their groups, or ""."""
    (batch, features), (outputs, inputs) = geometry.dimension_numbers[0][:2], geometry.dimension_numbers[1][:2]
    by_feature, by_batch = geometry.feature_group_count, geometry.batch_group_count
    if by_feature < 1 or by_batch < 1 or by_feature > 1 < by_batch:
        return (f"feature_group_count={by_feature} and batch_group_count={by_batch}; both must be at least 1, and one "
                "of them must be 1")
    if lhs[features] != rhs[inputs] * by_feature:
        groups = f" times feature_group_count={by_feature}" if by_feature > 1 else ""
        return (f"the image has {lhs[features]} features (axis {features}) and the kernel takes {rhs[inputs]} (axis "
                f"{inputs}){groups}, which must be equal. Axes in another order are named with dimension_numbers")
    if rhs[outputs] % by_feature or rhs[outputs] % by_batch:
        return (f"the kernel has {rhs[outputs]} output features (axis {outputs}), which "
                f"{max(by_feature, by_batch)} groups must divide")
    if lhs[batch] % by_batch:
        return f"the batch has size {lhs[batch]} (axis {batch}), which batch_group_count={by_batch} must divide"
    return ""


def _space_problem(lhs: Shape, rhs: Shape, geometry: Geometry) -> str:
    """Return the problem with the spatial sizes, or ""."""
    for place, (axis, window) in enumerate(zip(geometry.dimension_numbers[0][2:], geometry.dimension_numbers[1][2:],
                                               strict=True)):
        if not rhs[window]:
            return f"the kernel has size 0 along spatial axis {place} (axis {window}); at least 1 is needed"
        low, high = geometry.padding[place]
        if is_negative(dilated(lhs[axis], geometry.lhs_dilation[place]) + low + high):
            return (f"padding {(low, high)} removes more than there is along spatial axis {place} (axis {axis} of the "
                    f"image, of size {lhs[axis]})")
    return ""


def _result_shape(lhs: Shape, rhs: Shape, geometry: Geometry) -> Shape:
    lhs_spec, rhs_spec, out_spec = geometry.dimension_numbers
    counts = window_counts([lhs[axis] for axis in lhs_spec[2:]], [rhs[axis] for axis in rhs_spec[2:]],
                           geometry.window_strides, geometry.padding, geometry.lhs_dilation, geometry.rhs_dilation)
    sizes = (lhs[lhs_spec[0]] // geometry.batch_group_count, rhs[rhs_spec[0]], *counts)
    return tuple(sizes[place] for place in inverse_permutation(out_spec))


# --- the NumPy kernel -----------------------------------------------------------------------------------------------

PATCH_LIMIT = 2 ** 25
"""Up to this many elements all patches of the image are stored at once, for one matrix product a group."""


def _conv_numpy(lhs: Any, rhs: Any, *, precision: Any, preferred_element_type: DType | None, **params: Any) -> Any:
    geometry = geometry_of(params)
    result = _conv_aval(Aval(lhs.shape, lhs.dtype), Aval(rhs.shape, rhs.dtype), geometry, preferred_element_type)
    shape, dtype = result.shape, result.dtype
    # As in XLA: products of narrow floats are summed in float32.
    inner = np.dtype(np.float32) if dtype.itemsize < 4 and dtypes.is_floating(dtype) else dtype
    if 0 in shape or not rhs.size:
        return np.zeros(shape, dtype)
    lhs_spec, rhs_spec, out_spec = geometry.dimension_numbers
    image = lhs.astype(inner, copy=False).transpose(lhs_spec)
    kernel = rhs.astype(inner, copy=False).transpose(rhs_spec)
    groups, by_batch = geometry.feature_group_count, geometry.batch_group_count
    if by_batch > 1:  # groups of the batch become groups of features
        groups = by_batch
        image = np.moveaxis(image.reshape(groups, -1, *image.shape[1:]), 0, 1)
        image = image.reshape(image.shape[0], -1, *image.shape[3:])
    if any(low or high for low, high in geometry.padding) or any(holes > 1 for holes in geometry.lhs_dilation):
        config = [(low, high, holes - 1) for (low, high), holes in
                  zip(geometry.padding, geometry.lhs_dilation, strict=True)]
        image = pad_p.numpy(image, inner.type(0), padding_config=((0, 0, 0), (0, 0, 0), *config))[0]
    counts = [shape[axis] for axis in out_spec[2:]]
    product = _slid(image, kernel, counts, geometry.window_strides, geometry.rhs_dilation, groups)
    return product.transpose(inverse_permutation(out_spec)).astype(dtype, copy=False)


def _slid(image: Any, kernel: Any, counts: Sequence[int], strides: Axes, holes: Axes, groups: int) -> Any:
    """Return products of windows of a padded image (batch, features, space) and a kernel (outputs, inputs, space)."""
    batch, (outputs, inputs), window = len(image), kernel.shape[:2], kernel.shape[2:]
    grouped = image.reshape(batch, groups, inputs, *image.shape[2:])
    inner, places = inputs * prod(window), prod(counts)
    if batch * groups * inner * places > PATCH_LIMIT:
        return _slid_by_place(grouped, kernel, counts, strides, holes)
    spans = tuple(map(dilated, window, holes))
    axes = tuple(range(3, grouped.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(grouped, spans, axes) if axes else grouped
    steps = [slice(None, (count - 1) * stride + 1, stride) for count, stride in zip(counts, strides, strict=True)]
    windows = windows[(slice(None),) * 3 + tuple(steps) + tuple(slice(None, None, step) for step in holes)]
    # Patches are columns, so that rows of the image are copied as a whole.
    patches = windows.transpose(0, 1, 2, *range(3 + len(counts), windows.ndim), *axes)
    weights = kernel.reshape(groups, outputs // groups, inner)
    product = np.matmul(weights, patches.reshape(batch, groups, inner, places))
    return product.reshape(batch, outputs, *counts)


def _slid_by_place(grouped: Any, kernel: Any, counts: Sequence[int], strides: Axes, holes: Axes) -> Any:
    """Return the same products, one kernel element after the other: for images with too large patches."""
    batch, groups, inputs = grouped.shape[:3]
    weights = kernel.reshape(groups, -1, *kernel.shape[1:])
    total = np.zeros((batch, groups, weights.shape[1], prod(counts)), grouped.dtype)
    for place in np.ndindex(*kernel.shape[2:]):
        seen = tuple(slice(at * step, at * step + (count - 1) * stride + 1, stride)
                     for at, step, count, stride in zip(place, holes, counts, strides, strict=True))
        moved = grouped[(slice(None),) * 3 + seen].reshape(batch, groups, inputs, -1)
        total += np.matmul(weights[(slice(None),) * 3 + place], moved)
    return total.reshape(batch, kernel.shape[0], *counts)


# --- the record -----------------------------------------------------------------------------------------------------


def _conv_xla(lax: Any, lhs: Any, rhs: Any, *, precision: Any, preferred_element_type: DType | None,
              **params: Any) -> list[Any]:
    geometry = geometry_of(params)
    dtype = preferred_element_type or lhs.dtype
    shape = _result_shape(lhs.shape, rhs.shape, geometry)
    if 0 in shape or 0 in rhs.shape:
        return [lax.full(shape, 0, dtype)]
    numbers = lax.ConvDimensionNumbers(*geometry.dimension_numbers)
    return [lax.conv_general_dilated(
        lhs, rhs, **{**geometry._asdict(), "dimension_numbers": numbers}, precision=precision,
        preferred_element_type=dtype)]


def _conv_jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    lhs, rhs = primals
    out = bind(conv_general_dilated_p, lhs, rhs, **params)
    parts = [bind(conv_general_dilated_p, *operands, **params)[0] for tangent, operands in
             ((tangents[0], (tangents[0], rhs)), (tangents[1], (lhs, tangents[1]))) if type(tangent) is not Zero]
    return out, [sum_of_parts(parts, aval_of(out[0]))]


def _merge_axis(x: Any, at: int, axis: int, groups: int) -> Any:
    """Merge the axis `at` into the axis `axis` (counted without it), within each of its `groups`."""
    size = aval_of(x).shape[at]
    moved = move_axis(x, at, axis)
    shape = aval_of(moved).shape
    extent = shape[axis + 1]
    if groups > 1:
        apart = reshape(moved, (*shape[:axis + 1], groups, extent // groups, *shape[axis + 2:]))
        moved = move_axis(apart, axis, axis + 1)
    return reshape(moved, (*shape[:axis], size * extent, *shape[axis + 2:]))


def _split_axis(x: Any, axis: int, groups: int, size: int) -> Any:
    """Undo `_merge_axis`: split an axis of this size out of `axis`, and put it in front of that."""
    shape = aval_of(x).shape
    extent = shape[axis] // size
    apart = reshape(x, (*shape[:axis], groups, size, extent // groups, *shape[axis + 1:]))
    return reshape(move_axis(apart, axis + 1, axis), (*shape[:axis], size, extent, *shape[axis + 1:]))


def _cotangent_of_image(cotangent: Any, image: Aval, kernel: Any, geometry: Geometry, precision: Any) -> Any:
    """Slide the kernel, reversed and with features exchanged, over the cotangent, with the strides as dilation."""
    lhs_spec, rhs_spec, out_spec = geometry.dimension_numbers
    window = aval_of(kernel).shape
    groups = max(geometry.feature_group_count, geometry.batch_group_count)
    turned = rev(kernel, rhs_spec[2:])
    if groups > 1:  # the groups move from the output features of the kernel to its input features
        turned = _merge_axis(_split_axis(turned, rhs_spec[0], 1, groups), rhs_spec[0], rhs_spec[1], 1)
    padding = padding_of_adjoint(
        [image.shape[axis] for axis in lhs_spec[2:]], [window[axis] for axis in rhs_spec[2:]],
        [aval_of(cotangent).shape[axis] for axis in out_spec[2:]], geometry.window_strides, geometry.padding,
        geometry.lhs_dilation, geometry.rhs_dilation)
    result = convolve(cotangent, turned, Geometry(
        geometry.lhs_dilation, padding, geometry.window_strides, geometry.rhs_dilation,
        (out_spec, (rhs_spec[1], rhs_spec[0], *rhs_spec[2:]), lhs_spec), groups, 1), precision)
    if geometry.batch_group_count > 1:
        result = _merge_axis(_split_axis(result, lhs_spec[1], 1, groups), lhs_spec[1], lhs_spec[0], 1)
    return result


def _cotangent_of_kernel(cotangent: Any, image: Any, kernel: Aval, geometry: Geometry, precision: Any) -> Any:
    """Slide the cotangent over the image as a kernel, with batch and features exchanged, strides and dilations."""
    lhs_spec, rhs_spec, out_spec = geometry.dimension_numbers
    padding = []
    for place, (low, _) in enumerate(geometry.padding):
        count = aval_of(cotangent).shape[out_spec[2 + place]]
        needed = (dilated(count, geometry.window_strides[place]) - 1
                  + dilated(kernel.shape[rhs_spec[2 + place]], geometry.rhs_dilation[place]))
        given = dilated(aval_of(image).shape[lhs_spec[2 + place]], geometry.lhs_dilation[place])
        padding.append((low, needed - given - low))
    return convolve(image, cotangent, Geometry(
        geometry.rhs_dilation, tuple(padding), geometry.lhs_dilation, geometry.window_strides,
        ((lhs_spec[1], lhs_spec[0], *lhs_spec[2:]), (out_spec[1], out_spec[0], *out_spec[2:]),
         (rhs_spec[1], rhs_spec[0], *rhs_spec[2:])),
        geometry.batch_group_count, geometry.feature_group_count), precision)


def _conv_transpose(cotangents: list[Any], inputs: list[Any], *, precision: Any, preferred_element_type: DType | None,
                    **params: Any) -> list[Any]:
    geometry = geometry_of(params)
    lhs, rhs = inputs
    linear = (lhs if is_linear(lhs) else rhs).aval
    known = aval_of(rhs if is_linear(lhs) else lhs)
    cotangent = convert(cotangents[0], linear.dtype)
    if not (aval_of(cotangent).size and known.size and linear.size):
        result = zeros(linear)
    elif is_linear(lhs):
        result = _cotangent_of_image(cotangent, linear, rhs, geometry, precision)
    else:
        result = _cotangent_of_kernel(cotangent, lhs, linear, geometry, precision)
    return [result, None] if is_linear(lhs) else [None, result]


def _conv_batch(size: int, values: list[Any], axes: list[int | None], **params: Any) -> tuple[list[Any], list[int]]:
    """Merge the batch into the batch axis or the output features; if both operands have one, it forms groups."""
    if not size:  # an axis of no elements cannot be split again
        avals = [aval_of(value) for value in values]
        entries = [aval.without_axis(at) for aval, at in zip(avals, axes, strict=True)]
        out, = _conv_abstract(*entries, **params)
        return [zeros(out.update(shape=(0, *out.shape)))], [0]
    geometry = geometry_of(params)
    lhs_spec, rhs_spec, out_spec = geometry.dimension_numbers
    (lhs, rhs), (at, rhs_at) = values, axes
    by_feature, by_batch = geometry.feature_group_count, geometry.batch_group_count
    if rhs_at is None:
        assert at is not None
        lhs, target, groups = _merge_axis(lhs, at, lhs_spec[0], by_batch), out_spec[0], 1
    elif at is None:
        groups = max(by_feature, by_batch)
        rhs, target = _merge_axis(rhs, rhs_at, rhs_spec[0], groups), out_spec[1]
    else:
        lhs = _merge_axis(lhs, at, lhs_spec[0 if by_batch > 1 else 1], 1)
        rhs, target, groups = _merge_axis(rhs, rhs_at, rhs_spec[0], 1), out_spec[1], 1
        params["batch_group_count" if by_batch > 1 else "feature_group_count"] *= size
    return [_split_axis(bind(conv_general_dilated_p, lhs, rhs, **params)[0], target, groups, size)], [target]


def _conv_cost(lhs: Aval, rhs: Aval, **params: Any) -> Cost:
    outputs = _conv_abstract(lhs, rhs, **params)
    kept = rhs.shape[params["dimension_numbers"][1][0]]
    return Cost(2 * outputs[0].size * (rhs.size // kept if kept else 0), total_bytes([lhs, rhs], outputs))


conv_general_dilated_p = register(Primitive(
    name="conv_general_dilated", abstract=_conv_abstract, numpy=ArrayKernel(_conv_numpy), xla=_conv_xla,
    jvp=_conv_jvp, transpose=_conv_transpose, batch=_conv_batch, cost=_conv_cost))


def convolve(lhs: Any, rhs: Any, geometry: Geometry, precision: Any = None,
             preferred_element_type: DType | None = None) -> Any:
    """Return the sums of products of the windows of an image `lhs` with the kernel `rhs`, which is not reversed.

    `precision` is one of `lax.Precision`, ours or jax's, its name, a pair of them, or None.
    """
    return bind(conv_general_dilated_p, lhs, rhs, **geometry._asdict(), precision=precision_name(precision, ()),
                preferred_element_type=preferred_element_type)[0]
