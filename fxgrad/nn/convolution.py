"""Layers that slide over space, channels last: convolutions, and the parsing of window settings."""

from __future__ import annotations

import functools
from typing import Any

from fxgrad.engine.frontend.operands import as_integer, inexact_operands, shape_of
from fxgrad.engine.higher_order.call import library_function_of_arrays
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, FxgradError, ShapeError
from fxgrad.lax import convolution
from fxgrad.lax.convolution import conv_general_dilated
from fxgrad.nn.layers import given_arrays
from fxgrad.numpy.arithmetic import add

__all__ = ["conv2d", "conv_transpose"]

Numbers = int | tuple[int, ...]
Padding = str | int | tuple[int | tuple[int, int], ...]


# --- windows --------------------------------------------------------------------------------------------------------


def spatial_numbers(name: str, setting: str, value: Any, rank: int) -> tuple[int, ...]:
    """Return one number from 1 on for each spatial axis; raise `ArgumentError` for other settings."""
    entries = _entries(name, value, rank)
    if entries is None or any(not isinstance(entry, int) or entry < 1 for entry in entries):
        raise ArgumentError(at_user_line(f"{name}: {setting} is {value!r}; a number from 1 on, or {rank} of them, one "
                                         "for each axis of space, are needed"))
    return entries


def spatial_padding(name: str, padding: Any, rank: int) -> str | tuple[tuple[int, int], ...]:
    """Return `"SAME"`, `"VALID"` or a pair (before, after) for each axis of space, from numbers or pairs.

    Raises `ArgumentError` for anything else.
    """
    if isinstance(padding, str) and padding.upper() in ("SAME", "VALID"):
        return padding.upper()
    entries = None if isinstance(padding, str) else _entries(name, padding, rank)
    pairs = entries and [_entries(name, entry, 2) for entry in entries]
    if pairs is None or any(pair is None or not all(isinstance(each, int) for each in pair) for pair in pairs):
        raise ArgumentError(at_user_line(f"{name}: padding is {padding!r}; 'SAME', 'VALID', a number, or {rank} "
                                         "numbers or pairs (before, after), one for each axis of space, are needed"))
    return tuple((low, high) for low, high in pairs)  # type: ignore[misc]


def _entries(name: str, value: Any, count: int) -> tuple[Any, ...] | None:
    """Return `count` entries: one number repeated, or that many numbers and pairs; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, tuple | list):
        return tuple(each if isinstance(each, tuple | list | bool) else _integer(name, each) for each in value) \
            if len(value) == count else None
    number = _integer(name, value)
    return None if number is None else (number,) * count


def _integer(name: str, value: Any) -> int | None:
    try:
        return as_integer(name, value)
    except FxgradError:
        return None


# --- convolution ----------------------------------------------------------------------------------------------------


@hide_frames
def conv2d(x: Any, kernel: Any, bias: Any = None, *, strides: Numbers = 1, padding: Padding = "SAME",
           dilation: Numbers = 1, groups: int = 1) -> Any:
    """Return the correlation of images with a kernel, plus `bias`: (batch, height, width, new channels).

    `x` has the shape (batch, height, width, channels), `kernel` (height, width, channels / groups, new channels),
    `bias` (new channels,). `strides` and `dilation` are one number or a pair, `padding` is `"SAME"`, `"VALID"`, a
    number, or two numbers or pairs (before, after); `ArgumentError` is raised for others.
    `ShapeError` is raised for shapes that do not match. `fxgrad.lax.conv_general_dilated` has further options.

    >>> import numpy as np
    >>> image = np.arange(9.0).reshape(1, 3, 3, 1)
    >>> conv2d(image, np.ones((3, 3, 1, 1)), padding="VALID").tolist()
    [[[[36.0]]]]
    """
    x, kernel = inexact_operands(x, kernel)
    groups = as_integer("conv2d", groups)
    _check_images(shape_of(x), shape_of(kernel), groups)
    weights, given = given_arrays(bias=bias)
    return _conv2d(x, kernel, *weights, strides=spatial_numbers("conv2d", "strides", strides, 2),
                   padding=spatial_padding("conv2d", padding, 2),
                   dilation=spatial_numbers("conv2d", "dilation", dilation, 2),
                   groups=groups, given=given)


def _check_images(shape: Any, sizes: Any, groups: int) -> None:
    """Raise `ShapeError` unless images of this shape fit a kernel of these sizes."""
    are_images = len(shape) == len(sizes) == 4
    if are_images and groups > 0 and shape[3] == sizes[2] * groups and not sizes[3] % groups:
        return
    if are_images and groups > 0 and shape[1] == sizes[1] * groups:
        advice = ". Write x.transpose(0, 2, 3, 1) and kernel.transpose(2, 3, 1, 0) for those of PyTorch"
    else:
        advice = ". Write x[None] for one image" if len(shape) == 3 and len(sizes) == 4 else ""
    raise ShapeError(at_user_line(
        f"conv2d: x has the shape {shape} and kernel {sizes}, with groups={groups}; (batch, height, width, channels) "
        f"and (height, width, channels / groups, new channels), a multiple of the groups, are needed{advice}"))


@functools.partial(library_function_of_arrays, name="conv2d")
def _conv2d(x: Any, kernel: Any, *bias: Any, strides: Any, padding: Any, dilation: Any, groups: int,
            given: tuple[str, ...]) -> Any:
    result = conv_general_dilated(x, kernel, strides, padding, rhs_dilation=dilation, feature_group_count=groups,
                                  dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return add(result, bias[0]) if given else result


@hide_frames
def conv_transpose(x: Any, kernel: Any, bias: Any = None, *, strides: Numbers = 1, padding: Padding = "SAME",
                   dilation: Numbers = 1, transpose_kernel: bool = False) -> Any:
    """Return the reverse of a convolution, which enlarges images by `strides`, plus `bias`.

    `x` has the shape (batch, ..., channels) with one to three axes of space, `kernel` (..., channels, new channels),
    `bias` (new channels,). With `transpose_kernel` the kernel has the shape (..., new channels, channels) and the
    result is the transpose, as a linear map, of the convolution with that kernel, as in PyTorch; without it the
    elements of `x` are dilated by holes and correlated with the kernel, as in Flax. `padding`, in the forms of
    `conv2d`, is that of the reversed convolution; PyTorch's `output_padding` reduces its second part.

    Dumoulin and Visin, "A guide to convolution arithmetic for deep learning" (2016). Raises `ShapeError` for shapes
    that do not match, `ArgumentError` for invalid settings.

    >>> import numpy as np
    >>> conv_transpose(np.ones((1, 2, 1)), np.arange(1.0, 4.0).reshape(3, 1, 1), strides=2, padding="VALID")[0, :, 0]
    array([3., 2., 4., 2., 1.])
    """
    x, kernel = inexact_operands(x, kernel)
    shape, sizes = shape_of(x), shape_of(kernel)
    rank = len(sizes) - 2
    if not 1 <= rank <= 3 or len(shape) != len(sizes) or shape[-1] != sizes[-1 if transpose_kernel else -2]:
        order = "new channels, channels" if transpose_kernel else "channels, new channels"
        raise ShapeError(at_user_line(
            f"conv_transpose: x has the shape {shape} and kernel {sizes}; (batch, ..., channels) and (..., {order}) "
            "with one to three axes of space are needed"))
    weights, given = given_arrays(bias=bias)
    return _conv_transpose(x, kernel, *weights, strides=spatial_numbers("conv_transpose", "strides", strides, rank),
                           padding=spatial_padding("conv_transpose", padding, rank),
                           dilation=spatial_numbers("conv_transpose", "dilation", dilation, rank),
                           transpose_kernel=bool(transpose_kernel), given=given)


@functools.partial(library_function_of_arrays, name="conv_transpose")
def _conv_transpose(x: Any, kernel: Any, *bias: Any, strides: Any, padding: Any, dilation: Any, transpose_kernel: bool,
                    given: tuple[str, ...]) -> Any:
    result = convolution.conv_transpose(x, kernel, strides, padding, dilation, transpose_kernel=transpose_kernel,
                                        use_consistent_padding=True)
    return add(result, bias[0]) if given else result
