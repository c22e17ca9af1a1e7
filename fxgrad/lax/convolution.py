"""The convolutions of `jax.lax`: conv_general_dilated, its variants, and the shapes of their results."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Shape
from fxgrad.engine.frontend.operands import as_array_operand, as_integer, shape_of
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.frontend.strict import as_dtype_or_none, as_integers
from fxgrad.engine.ops.convolution import ConvDimensionNumbers, Geometry, convolve, dilated, window_counts
from fxgrad.engine.ops.pool import window_pads
from fxgrad.engine.ops.products import dot_general
from fxgrad.engine.ops.shaping import rev
from fxgrad.engine.ops.structural import inverse_permutation, transpose
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError

__all__ = [
    "ConvDimensionNumbers", "ConvGeneralDilatedDimensionNumbers", "conv", "conv_dimension_numbers",
    "conv_general_dilated", "conv_general_dilated_local", "conv_general_dilated_patches", "conv_general_permutations",
    "conv_general_shape_tuple", "conv_shape_tuple", "conv_transpose", "conv_transpose_shape_tuple",
    "conv_with_general_padding", "padtype_to_pads",
]

Padding = str | Sequence[tuple[int, int]]
ConvGeneralDilatedDimensionNumbers = None | ConvDimensionNumbers | tuple[str, str, str]
"""The forms of `dimension_numbers`: None (batch, features, space), numbers, or a string for each array."""


def conv_general_dilated(lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Padding,
                         lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
                         dimension_numbers: Any = None, feature_group_count: int = 1, batch_group_count: int = 1,
                         precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None) -> Any:
    """Return the sums of products of windows of an image `lhs` with a kernel `rhs`, for each pair of features.

    Both have one dtype, and one batch axis (of the kernel: output features), one feature axis and any number of spatial
    axes, in this order or as given by `dimension_numbers`: `("NHWC", "HWIO", "NHWC")` for example. The entries of the
    other arguments belong to the spatial axes in the order of the kernel's. `padding` is `"SAME"`, `"SAME_LOWER"`,
    `"VALID"` or pairs (low, high), which may be negative; a dilation d puts d - 1 holes between elements. With groups,
    each group of features (or of the batch) has its own part of the kernel. Sums accumulate in, and are returned as,
    `preferred_element_type`. Raises `ShapeError` and `DTypeError`; `precision` is XLA's.

    >>> import numpy as np
    >>> image, kernel = np.arange(5.0).reshape(1, 1, 5), np.array([[[1.0, 0.0, -1.0]]])
    >>> conv_general_dilated(image, kernel, (1,), "VALID")
    array([[[-2., -2., -2.]]])
    """
    if out_sharding is not None:
        return place_array("conv_general_dilated", conv_general_dilated(
            lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count,
            batch_group_count, precision, preferred_element_type), out_sharding)
    lhs, rhs = as_array_operand(lhs), as_array_operand(rhs)
    numbers = conv_dimension_numbers(shape_of(lhs), shape_of(rhs), dimension_numbers)
    ones = (1,) * (len(shape_of(lhs)) - 2)
    base = ones if lhs_dilation is None else as_integers("conv_general_dilated", lhs_dilation)
    holes = ones if rhs_dilation is None else as_integers("conv_general_dilated", rhs_dilation)
    strides = as_integers("conv_general_dilated", window_strides)
    if isinstance(padding, str) and any(entry != 1 for entry in base):
        raise ArgumentError(at_user_line(f"conv_general_dilated: padding {padding!r} of an image with lhs_dilation "
                                         f"{base}; give pairs of numbers, or call conv_transpose"))
    pads = _pads(padding, numbers, shape_of(lhs), shape_of(rhs), strides, holes)
    preferred = as_dtype_or_none(preferred_element_type)
    return convolve(lhs, rhs, Geometry(strides, pads, base, holes, (*numbers,),
                                       as_integer("conv_general_dilated", feature_group_count),
                                       as_integer("conv_general_dilated", batch_group_count)),
                    precision, preferred)


def _pads(padding: Padding, numbers: ConvDimensionNumbers, lhs: Shape, rhs: Shape, strides: Sequence[int],
          holes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    if not isinstance(padding, str):
        try:
            return tuple((operator.index(low), operator.index(high)) for low, high in padding)
        except (TypeError, ValueError):
            raise ArgumentError(at_user_line(f"conv_general_dilated: padding {padding!r}; a string or a pair (low, "
                                             "high) for each spatial axis is needed")) from None
    sizes, window = [lhs[axis] for axis in numbers.lhs_spec[2:]], [rhs[axis] for axis in numbers.rhs_spec[2:]]
    if not len(sizes) == len(strides) == len(holes):
        return ((0, 0),) * len(sizes)  # invalid strides or dilations, which the convolution reports
    return window_pads(sizes, list(map(dilated, window, holes)), strides, padding)


def conv(lhs: Any, rhs: Any, window_strides: Sequence[int], padding: str, precision: Any = None,
         preferred_element_type: Any = None) -> Any:
    """Return `conv_general_dilated` with strides and a padding by name, the axes being batch, features, space.

    >>> import numpy as np
    >>> conv(np.ones((1, 1, 4)), np.ones((2, 1, 3)), (1,), "SAME")[0]
    array([[2., 3., 3., 2.],
           [2., 3., 3., 2.]])
    """
    return conv_general_dilated(lhs, rhs, window_strides, padding, precision=precision,
                                preferred_element_type=preferred_element_type)


def conv_with_general_padding(lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Padding,
                              lhs_dilation: Sequence[int] | None, rhs_dilation: Sequence[int] | None,
                              precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return `conv_general_dilated` without groups, the axes being batch, features, space.

    >>> import numpy as np
    >>> conv_with_general_padding(np.ones((1, 1, 3)), np.ones((1, 1, 2)), (1,), [(1, 0)], None, (2,))
    array([[[1., 2.]]])
    """
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision=precision,
                                preferred_element_type=preferred_element_type)


_CHANNELS_LAST = {rank: ("N" + space + "C", space + "IO", "N" + space + "C")
                  for rank, space in ((2, ""), (3, "H"), (4, "HW"), (5, "HWD"))}


def conv_transpose(lhs: Any, rhs: Any, strides: Sequence[int], padding: Padding,
                   rhs_dilation: Sequence[int] | None = None, dimension_numbers: Any = None,
                   transpose_kernel: bool = False, precision: Any = None, preferred_element_type: Any = None,
                   use_consistent_padding: bool = False) -> Any:
    """Return a convolution that enlarges an image by `strides`: its elements are first dilated by holes.

    By default features come last (`("NHWC", "HWIO", "NHWC")`). A padding given by name is that of the convolution whose
    shapes this one reverses, and so are pairs with `use_consistent_padding`; otherwise pairs are applied directly. With
    `transpose_kernel` the result is the transpose of that convolution in its image. Raises `ShapeError` and
    `DTypeError` as `conv_general_dilated` does.

    >>> import numpy as np
    >>> conv_transpose(np.ones((1, 2, 1)), np.arange(1.0, 4.0).reshape(3, 1, 1), (2,), "VALID")[0, :, 0]
    array([3., 2., 4., 2., 1.])
    """
    lhs, rhs, strides = as_array_operand(lhs), as_array_operand(rhs), as_integers("conv_transpose", strides)
    rank = len(shape_of(lhs))
    if dimension_numbers is None:
        if rank not in _CHANNELS_LAST:
            raise ArgumentError(at_user_line(f"conv_transpose: dimension_numbers are needed for an image of shape "
                                             f"{shape_of(lhs)}; there are defaults for 0 to 3 spatial axes"))
        dimension_numbers = _CHANNELS_LAST[rank]
    numbers = conv_dimension_numbers(shape_of(lhs), shape_of(rhs), dimension_numbers)
    holes = (1,) * (rank - 2) if rhs_dilation is None else tuple(rhs_dilation)
    window = [shape_of(rhs)[axis] for axis in numbers.rhs_spec[2:]]
    if use_consistent_padding or padding in ("SAME", "VALID"):
        given = [padding] * len(strides) if isinstance(padding, str) else list(padding)
        padding = [_transposed_pads(dilated(size, hole), stride, pair)
                   for size, hole, stride, pair in zip(window, holes, strides, given, strict=True)]
    if transpose_kernel:
        order = list(range(rank))
        outputs, inputs = numbers.rhs_spec[:2]
        order[outputs], order[inputs] = inputs, outputs
        rhs = transpose(rev(rhs, numbers.rhs_spec[2:]), order)
    return conv_general_dilated(lhs, rhs, (1,) * (rank - 2), padding, strides, holes, numbers, precision=precision,
                                preferred_element_type=preferred_element_type)


def _transposed_pads(span: int, stride: int, padding: Any) -> tuple[int, int]:
    """Return the padding along one axis, for windows that span `span` elements of the larger image."""
    if padding == "SAME":
        total = span + stride - 2
        low = span - 1 if stride > span - 1 else -(-total // 2)
        return low, total - low
    if padding == "VALID":
        return span - 1, stride - 1 + max(span - stride, 0)
    if isinstance(padding, str):
        raise ArgumentError(at_user_line(f"conv_transpose: padding {padding!r}; 'SAME', 'VALID' or pairs are needed"))
    low, high = padding
    return span - low - 1, span - high - 1


# --- patches --------------------------------------------------------------------------------------------------------


def conv_general_dilated_patches(lhs: Any, filter_shape: Sequence[int], window_strides: Sequence[int],
                                 padding: Padding, lhs_dilation: Sequence[int] | None = None,
                                 rhs_dilation: Sequence[int] | None = None, dimension_numbers: Any = None,
                                 precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the windows of an image, each along the feature axis: all positions of the first feature come first.

    The arguments are those of `conv_general_dilated`; `filter_shape` is the shape of the windows.

    >>> import numpy as np
    >>> conv_general_dilated_patches(np.arange(4.0).reshape(1, 1, 4), (2,), (1,), "VALID")
    array([[[0., 1., 2.],
            [1., 2., 3.]]])
    """
    lhs = as_array_operand(lhs)
    shape, window = shape_of(lhs), as_integers("conv_general_dilated_patches", filter_shape)
    numbers = conv_dimension_numbers(shape, (1, 1, *window), dimension_numbers)
    features, places = shape[numbers.lhs_spec[1]], prod(window)
    # One kernel for each place, which is 1 there.
    each = np.eye(places, dtype=aval_of(lhs).dtype).reshape(places, 1, *window)
    kernel = np.tile(each, (features, *(1,) * (len(window) + 1))).transpose(inverse_permutation(numbers.rhs_spec))
    return conv_general_dilated(lhs, kernel, window_strides, padding, lhs_dilation, rhs_dilation, numbers,
                                feature_group_count=features, precision=precision,
                                preferred_element_type=preferred_element_type)


def conv_general_dilated_local(lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Padding,
                               filter_shape: Sequence[int], lhs_dilation: Sequence[int] | None = None,
                               rhs_dilation: Sequence[int] | None = None, dimension_numbers: Any = None,
                               precision: Any = None) -> Any:
    """Return a convolution like `conv_general_dilated`, with a separate kernel for each position of the result.

    The feature axis of `rhs` is as long as a patch of `conv_general_dilated_patches`, and its spatial axes are those
    of the result.

    >>> import numpy as np
    >>> kernel = np.array([[[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]]])
    >>> conv_general_dilated_local(np.ones((1, 1, 4)), kernel, (1,), "VALID", (2,))
    array([[[1., 2., 4.]]])
    """
    lhs, rhs = as_array_operand(lhs), as_array_operand(rhs)
    filter_shape = as_integers("conv_general_dilated_local", filter_shape)
    numbers = conv_dimension_numbers(shape_of(lhs), (1, 1, *filter_shape), dimension_numbers)
    patches = conv_general_dilated_patches(lhs, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation,
                                           numbers, precision)
    (_, rhs_spec, out_spec), space = numbers, sorted(range(len(filter_shape)), key=numbers.out_spec[2:].__getitem__)
    batch = tuple(out_spec[2 + place] for place in space), tuple(rhs_spec[2 + place] for place in space)
    product = dot_general(patches, rhs, (((out_spec[1],), (rhs_spec[1],)), batch), precision)
    # The product has the places first, then the batch, then the features.
    rank = len(shape_of(product))
    order = {out_spec[0]: rank - 2, out_spec[1]: rank - 1}
    places = iter(range(rank - 2))
    return transpose(product, [order[axis] if axis in order else next(places) for axis in range(rank)])


# --- numbers and shapes ---------------------------------------------------------------------------------------------


def conv_dimension_numbers(lhs_shape: Sequence[int], rhs_shape: Sequence[int],
                           dimension_numbers: Any) -> ConvDimensionNumbers:
    """Return `dimension_numbers` in any of its forms as numbers; raise `ShapeError` and `ArgumentError`.

    >>> conv_dimension_numbers((1, 8, 3), (5, 3, 2), ("NHC", "HIO", "NHC"))
    ConvDimensionNumbers(lhs_spec=(0, 2, 1), rhs_spec=(2, 1, 0), out_spec=(0, 2, 1))
    """
    lhs_shape, rhs_shape = (as_integers("conv_dimension_numbers", each) for each in (lhs_shape, rhs_shape))
    if hasattr(dimension_numbers, "lhs_spec"):
        return ConvDimensionNumbers(*(tuple(spec) for spec in dimension_numbers))
    rank = len(lhs_shape)
    if rank != len(rhs_shape):
        raise ShapeError(at_user_line(f"a convolution of an image of shape {tuple(lhs_shape)} with a kernel of shape "
                                      f"{tuple(rhs_shape)}; they must have equally many axes. Insert one with x[None]"))
    if dimension_numbers is None:
        return ConvDimensionNumbers(*(tuple(range(rank)),) * 3)
    if any(isinstance(entry, str) and len(entry) != rank for entry in dimension_numbers):
        raise ArgumentError(at_user_line(f"dimension_numbers {tuple(dimension_numbers)} for arrays with {rank} axes; "
                                         "one letter is needed for each axis"))
    return ConvDimensionNumbers(*conv_general_permutations(dimension_numbers))


def conv_general_permutations(dimension_numbers: Any) -> tuple[tuple[int, ...], ...]:
    """Return the positions of batch, features and spatial axes of the three arrays, read from three strings.

    >>> conv_general_permutations(("NHWC", "HWIO", "NCHW"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 1, 2, 3))
    """
    entries = tuple(dimension_numbers)
    if len(entries) != 3 or not all(isinstance(entry, str) for entry in entries):
        raise ArgumentError(at_user_line(f"dimension_numbers {entries!r}; three strings are needed, for example "
                                         "('NHWC', 'HWIO', 'NHWC')"))
    for entry, (first, second) in zip(entries, (("N", "C"), ("O", "I"), ("N", "C")), strict=True):
        if len(set(entry)) != len(entry) or first not in entry or second not in entry:
            raise ArgumentError(at_user_line(f"dimension_numbers: {entry!r} in {entries} must have {first!r}, "
                                             f"{second!r} and one other letter for each spatial axis, each once"))
    space = [letter for letter in entries[1] if letter not in "OI"]
    if any(set(entry) - set("NC") != set(space) for entry in (entries[0], entries[2])):
        raise ArgumentError(at_user_line(f"dimension_numbers {entries}: the spatial axes must have the same letters in "
                                         "all three"))
    return tuple(tuple(entry.index(letter) for letter in (*pair, *space))
                 for entry, pair in zip(entries, ("NC", "OI", "NC"), strict=True))


def padtype_to_pads(in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int],
                    padding: Any) -> list[tuple[int, int]]:
    """Return the pairs (low, high) of a padding given by name: `"VALID"`, `"SAME"` or `"SAME_LOWER"`.

    >>> padtype_to_pads((5, 4), (3, 2), (1, 2), "SAME")
    [(1, 1), (0, 0)]
    """
    sizes, window, strides = (as_integers("padtype_to_pads", each) for each in (in_shape, window_shape, window_strides))
    return list(window_pads(sizes, window, strides, getattr(padding, "name", padding)))


def conv_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int], strides: Sequence[int], pads: Any,
                     batch_group_count: int = 1) -> Shape:
    """Return the shape of a convolution of arrays whose axes are batch, features, space.

    >>> conv_shape_tuple((2, 3, 8), (4, 3, 3), (2,), "VALID")
    (2, 4, 3)
    """
    lhs, rhs, strides = (as_integers("conv_shape_tuple", each) for each in (lhs_shape, rhs_shape, strides))
    ones = (1,) * len(strides)
    pairs = window_pads(lhs[2:], rhs[2:], strides, pads)
    counts = window_counts(lhs[2:], rhs[2:], strides, pairs, ones, ones)
    return (lhs[0] // as_integer("conv_shape_tuple", batch_group_count), rhs[0], *counts)


def conv_general_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int], window_strides: Sequence[int],
                             padding: Any, dimension_numbers: Any) -> Shape:
    """Return the shape of a convolution with these dimension numbers.

    >>> conv_general_shape_tuple((2, 8, 3), (3, 3, 4), (2,), "VALID", ("NHC", "HIO", "NHC"))
    (2, 3, 4)
    """
    return _arrange_shape(conv_shape_tuple, lhs_shape, rhs_shape, window_strides, padding, dimension_numbers)


def conv_transpose_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int], window_strides: Sequence[int],
                               padding: Any, dimension_numbers: Any) -> Shape:
    """Return the shape of a `conv_transpose` with these dimension numbers.

    >>> conv_transpose_shape_tuple((2, 3, 3), (3, 3, 4), (2,), "VALID", ("NHC", "HIO", "NHC"))
    (2, 7, 4)
    """
    def shape(lhs: Sequence[int], rhs: Sequence[int], strides: Sequence[int], pads: Any) -> Shape:
        pairs = [_transposed_pads(size, stride, pads) for size, stride in zip(rhs[2:], strides, strict=True)] \
            if isinstance(pads, str) else pads
        ones = (1,) * len(strides)
        return (lhs[0], rhs[0], *window_counts(lhs[2:], rhs[2:], ones, tuple(pairs), strides, ones))

    return _arrange_shape(shape, lhs_shape, rhs_shape, window_strides, padding, dimension_numbers)


def _arrange_shape(shape: Any, lhs: Sequence[int], rhs: Sequence[int], strides: Sequence[int], padding: Any,
                   dimension_numbers: Any) -> Shape:
    """Return `shape` of arrays in another order of axes, brought into the order of the result."""
    lhs, rhs, strides = (as_integers("the shape of a convolution", each) for each in (lhs, rhs, strides))
    lhs_spec, rhs_spec, out_spec = conv_general_permutations(dimension_numbers)
    sizes = shape([lhs[axis] for axis in lhs_spec], [rhs[axis] for axis in rhs_spec], strides, padding)
    return tuple(sizes[place] for place in inverse_permutation(out_spec))
