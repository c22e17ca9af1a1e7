"""The functions of jax.image: resize and scale_and_translate, as products with matrices of weights."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes
from fxgrad.engine.core.parameter_classes import declare_parameter_class
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_numpy_scalars,
    as_shape,
    axis_of,
    is_concrete,
    promote_inexact,
    shape_of,
)
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]


class ResizeMethod(enum.Enum):
    """The interpolation of a resized image's pixels: members and values are jax's.

    >>> ResizeMethod.from_string("bilinear")
    <ResizeMethod.LINEAR: 1>
    """

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """Return the method of a name, such as `"linear"` or `"bicubic"`; raise `ArgumentError` if there is none."""
        if s not in _NAMES:
            raise ArgumentError(at_user_line(f"resize: method {s!r}; it is one of {', '.join(map(repr, _NAMES))}"))
        return _NAMES[s]


declare_parameter_class(ResizeMethod)

_NAMES = {
    "nearest": ResizeMethod.NEAREST, "linear": ResizeMethod.LINEAR, "bilinear": ResizeMethod.LINEAR,
    "trilinear": ResizeMethod.LINEAR, "triangle": ResizeMethod.LINEAR, "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5, "cubic": ResizeMethod.CUBIC, "bicubic": ResizeMethod.CUBIC,
    "tricubic": ResizeMethod.CUBIC, "cubic-pytorch": ResizeMethod.CUBIC_PYTORCH,
    "bicubic-pytorch": ResizeMethod.CUBIC_PYTORCH, "area": ResizeMethod.AREA,
}


def resize(image: Any, shape: Sequence[int], method: str | ResizeMethod, antialias: bool = True,
           precision: Any = "highest") -> Any:
    """Return `image` in another shape: each axis of a different size is resampled as a whole.

    `method` is a `ResizeMethod` or the name of one. With `antialias`, an axis that becomes shorter is smoothed
    accordingly. Integers become floats, except for `"nearest"`. Raises `ShapeError` for another number of axes, and
    `ArgumentError` for an unknown method.

    >>> resize([0.0, 1.0, 2.0, 3.0], (2,), "linear")
    array([0.71428571, 2.28571429])
    """
    image, shape = as_array_operand(image), as_shape(shape)
    method = _method(method)
    _check_rank("resize", image, shape)
    axes = [axis for axis, (old, new) in enumerate(zip(shape_of(image), shape, strict=True)) if old != new]
    if method is ResizeMethod.NEAREST:
        for axis in axes:
            old, new = shape_of(image)[axis], shape[axis]
            centres = (np.arange(new, dtype=np.float32) + np.float32(0.5)) * np.float32(old) / np.float32(new)
            image = fnp.take(image, np.floor(centres).astype(np.int32), axis=axis)
        return image
    scale = [shape[axis] / shape_of(image)[axis] if shape[axis] else 1.0 for axis in axes]
    return _resample(image, shape, axes, scale, [0.0] * len(axes), method, antialias, precision)


def scale_and_translate(image: Any, shape: Sequence[int], spatial_dims: Sequence[int], scale: Any, translation: Any,
                        method: str | ResizeMethod, antialias: bool = True, precision: Any = "highest") -> Any:
    """Return `image` on a canvas of another shape, after x -> x * scale + translation along `spatial_dims`.

    Pixels are squares of size 1, the first from 0 to 1; pixels whose centre maps to the outside of the image are 0.
    `scale` and `translation` have one number for each axis, and derivatives. The other arguments are those of `resize`;
    the method `"nearest"` is not possible here. Raises `ShapeError` and `ArgumentError`.

    >>> scale_and_translate([1.0, 2.0, 3.0], (4,), (0,), [1.0], [1.0], "linear")
    array([0., 1., 2., 3.])
    """
    image, shape = as_array_operand(image), as_shape(shape)
    method = _method(method)
    if method is ResizeMethod.NEAREST:
        raise ArgumentError(at_user_line("scale_and_translate: the method 'nearest' is not possible here; take "
                                         "'linear' or call resize"))
    _check_rank("scale_and_translate", image, shape)
    axes = [axis_of("scale_and_translate", axis, len(shape)) for axis in spatial_dims]
    moves = [as_array_operand(each) for each in (scale, translation)]
    for name, each in zip(("scale", "translation"), moves, strict=True):
        if shape_of(each) != (len(axes),):
            raise ShapeError(at_user_line(f"scale_and_translate: {name} of shape {shape_of(each)}; one number is "
                                          f"needed for each of the {len(axes)} axes in spatial_dims"))
    scales, translations = ([each[place] for place in range(len(axes))] for each in moves)
    return _resample(image, shape, axes, scales, translations, method, antialias, precision)


def _method(method: str | ResizeMethod) -> ResizeMethod:
    if isinstance(method, str):
        return ResizeMethod.from_string(method)
    return ResizeMethod[getattr(method, "name", "LINEAR")]


def _check_rank(name: str, image: Any, shape: Sequence[int]) -> None:
    if len(shape) != len(shape_of(image)):
        raise ShapeError(at_user_line(f"{name}: a new shape {shape} for an image of shape {shape_of(image)}; one size "
                                      "is needed for each axis"))


def _resample(image: Any, shape: Sequence[int], axes: Sequence[int], scales: Sequence[Any],
              translations: Sequence[Any], method: ResizeMethod, antialias: bool, precision: Any) -> Any:
    image, = as_numpy_scalars(promote_inexact(image))
    dtype = aval_of(image).dtype
    inner = dtypes.float64 if dtypes.real_dtype(dtype) == dtypes.float64 else dtypes.float32
    if method is ResizeMethod.CUBIC_PYTORCH and antialias:
        method = ResizeMethod.CUBIC
    rank = len(shape)
    operands: list[Any] = [image, list(range(rank))]
    result = list(range(rank))
    for place, axis in enumerate(axes):
        library = np if is_concrete(scales[place]) and is_concrete(translations[place]) else fnp
        scale, translation = (library.asarray(each, dtype=inner) for each in (scales[place], translations[place]))
        weights = _weights(library, shape_of(image)[axis], shape[axis], scale, translation, method, antialias)
        result[axis] = rank + place
        operands += [convert(weights, dtype), [axis, rank + place]]
    precision = precision if precision is None or isinstance(precision, str) else precision.name.lower()
    return fnp.einsum(*operands, result, precision=precision) if axes else image


# --- weights --------------------------------------------------------------------------------------------------------


def _weights(library: Any, size: int, new_size: int, scale: Any, translation: Any, method: ResizeMethod,
             antialias: bool) -> Any:
    """Return the weight of each old pixel (rows) in each new one (columns).

    `library` is NumPy if scale and translation are numbers, so that programs hold one array instead of the computation.
    """
    dtype = scale.dtype
    inverse = 1.0 / scale
    width = library.maximum(inverse, 1.0) if antialias else 1.0
    numbers = np.arange(new_size, dtype=dtype)
    centres = (numbers + dtype.type(0.5)) * inverse - translation * inverse - 0.5
    # Pytorch repeats the pixels at the edges, as far as the kernel reaches.
    around = 2 if method is ResizeMethod.CUBIC_PYTORCH else 0
    positions = np.arange(-around, size + around).astype(dtype)
    if method is ResizeMethod.AREA:
        begin, old = numbers * inverse - translation * inverse, positions[:, None]
        weights = library.maximum(0.0, library.minimum(begin + inverse, old + 1.0) - library.maximum(begin, old))
    else:
        weights = _KERNELS[method](library, library.absolute(centres - positions[:, None]) / width)
    if around:
        repeated = np.clip(positions, 0, size - 1) == np.arange(size, dtype=dtype)[:, None]
        weights = library.matmul(repeated.astype(dtype), weights)
    total = library.sum(weights, axis=0, keepdims=True)
    is_enough = library.absolute(total) > 1000.0 * float(np.finfo(np.float32).eps)
    weights = library.where(is_enough, weights / library.where(total != 0, total, 1.0), 0.0)
    if around:
        return weights
    inside = library.logical_and(centres >= -0.5, centres <= size - 0.5)
    return library.where(inside, weights, 0.0)


def _triangle(library: Any, x: Any) -> Any:
    return library.maximum(0.0, 1.0 - x)


def _cubic(sharpness: float) -> Callable[[Any, Any], Any]:
    """Return the cubic convolution kernel of Keys (1981) with slope `sharpness` at 1."""
    def kernel(library: Any, x: Any) -> Any:
        a = sharpness
        inner = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
        outer = ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
        return library.where(x >= 2.0, 0.0, library.where(x >= 1.0, outer, inner))
    return kernel


def _lanczos(radius: float) -> Callable[[Any, Any], Any]:
    """Return sinc(x) sinc(x / radius) up to the radius; Duchon, "Lanczos filtering in one and two dimensions", 1979."""
    def kernel(library: Any, x: Any) -> Any:
        product = radius * library.sin(math.pi * x) * library.sin(math.pi * x / radius)
        is_near = x <= 1e-3
        value = library.where(is_near, 1.0, product / library.where(is_near, 1.0, math.pi ** 2 * x * x))
        return library.where(x > radius, 0.0, value)
    return kernel


_KERNELS = {
    ResizeMethod.LINEAR: _triangle, ResizeMethod.LANCZOS3: _lanczos(3.0), ResizeMethod.LANCZOS5: _lanczos(5.0),
    ResizeMethod.CUBIC: _cubic(-0.5), ResizeMethod.CUBIC_PYTORCH: _cubic(-0.75),
}
