"""The initializers of `jax.nn.initializers`: functions that return functions of a key, a shape and a dtype.

The numbers are those of jax, to rounding, for the same key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from fxgrad import random
from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.operands import as_new_shape, axis_of
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.ops.shaping import pad
from fxgrad.engine.ops.structural import move_axis, reshape
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy.arithmetic import divide, multiply, subtract
from fxgrad.numpy.creation import astype, full
from fxgrad.numpy.creation import zeros as zeros_of
from fxgrad.numpy.elementwise import exp, log, negative, sqrt

__all__ = ["Initializer", "constant", "delta_orthogonal", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform",
           "kaiming_normal", "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal", "ones", "orthogonal",
           "truncated_normal", "uniform", "variance_scaling", "xavier_normal", "xavier_uniform", "zeros"]

Axes = int | Sequence[int]


class Initializer(Protocol):
    """The type of initializers: a function of a key, a shape and a dtype (None: the default float).

    >>> Initializer.__name__
    'Initializer'
    """

    def __call__(self, key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Any:
        """Return the weights."""


def _initializer(make: Callable[[Any, Shape, DType], Any], default: Any) -> Initializer:
    """Return `make(key, shape, dtype)` as an initializer with a dtype of its own."""
    def init(key: Any, shape: Any, dtype: Any = default, out_sharding: Any = None) -> Any:
        if out_sharding is not None:
            return place_array("initializers", init(key, shape, dtype), out_sharding)
        wanted = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
        return make(key, as_new_shape("initializer", shape), wanted)
    return init


# --- constants ------------------------------------------------------------------------------------------------------


def zeros(key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Any:
    """Return zeros, whatever the key; this function is an initializer itself.

    >>> zeros(None, (2,))
    array([0., 0.], dtype=float32)
    """
    return constant(0)(key, shape, dtype, out_sharding)


def ones(key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Any:
    """Return ones, whatever the key; this function is an initializer itself.

    >>> ones(None, (2,))
    array([1., 1.], dtype=float32)
    """
    return constant(1)(key, shape, dtype, out_sharding)


def constant(value: Any, dtype: Any = None) -> Initializer:
    """Return an initializer of one repeated `value` (or one that broadcasts to the shape), for every key.

    >>> constant(0.5)(None, (2,))
    array([0.5, 0.5], dtype=float32)
    """
    return _initializer(lambda key, shape, dtype: full(shape, value, dtype=dtype), dtype)


# --- distributions --------------------------------------------------------------------------------------------------


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Return an initializer of numbers evenly distributed from 0 to `scale`.

    >>> import fxgrad
    >>> float(uniform(1.0)(fxgrad.random.key(0), ())) < 1
    True
    """
    return _initializer(lambda key, shape, dtype: multiply(random.uniform(key, shape, dtype), _number(scale, dtype)),
                        dtype)


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Return an initializer of normally distributed numbers of mean 0 and standard deviation `stddev`.

    >>> import fxgrad
    >>> normal()(fxgrad.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return _initializer(lambda key, shape, dtype: multiply(random.normal(key, shape, dtype), _number(stddev, dtype)),
                        dtype)


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0) -> Initializer:
    """Return an initializer of normal numbers between `lower` and `upper`, which are then multiplied by `stddev`.

    >>> import fxgrad
    >>> abs(float(truncated_normal(1.0)(fxgrad.random.key(0), ()))) < 2
    True
    """
    return _initializer(lambda key, shape, dtype: multiply(
        random.truncated_normal(key, lower, upper, shape, dtype), _number(stddev, dtype)), dtype)


def _number(value: Any, dtype: DType) -> Any:
    return dtype.type(value) if isinstance(value, int | float | complex) else astype(value, dtype)


# --- variance scaling -----------------------------------------------------------------------------------------------


def variance_scaling(scale: Any, mode: str, distribution: str, in_axis: Axes = -2, out_axis: Axes = -1,
                     batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Return an initializer of numbers of mean 0 and variance `scale` / n, where n is the number of inputs or outputs.

    The `mode` is `"fan_in"` (inputs), `"fan_out"` (outputs), `"fan_avg"` or `"fan_geo_avg"` (their arithmetic or
    geometric mean); both count the elements along axes that are neither `in_axis`, `out_axis` nor `batch_axis`. The
    `distribution` is `"normal"`, `"truncated_normal"` (at two standard deviations) or `"uniform"`; complex numbers are
    distributed so in the plane (truncated ones have 1.9 percent more variance, as in jax). Raises `ArgumentError`, and
    `ShapeError` for shapes without these axes.

    >>> import fxgrad
    >>> weights = variance_scaling(1.0, "fan_in", "uniform")(fxgrad.random.key(0), (300, 2))
    >>> bool(abs(weights).max() <= 0.1)
    True
    """
    if mode not in _FANS:
        raise ArgumentError(at_user_line(f"variance_scaling: mode={mode!r}; it is one of "
                                         f"{', '.join(map(repr, _FANS))}"))
    if distribution not in _DISTRIBUTIONS:
        raise ArgumentError(at_user_line(f"variance_scaling: distribution={distribution!r}; it is one of "
                                         f"{', '.join(map(repr, _DISTRIBUTIONS))}"))

    def make(key: Any, shape: Shape, dtype: DType) -> Any:
        if 0 in shape:
            return zeros_of(shape, dtype)
        fan = _FANS[mode](*_fans(shape, in_axis, out_axis, batch_axis))
        variance = _number(float(scale) / fan, dtype)
        return _DISTRIBUTIONS[distribution](key, shape, dtype, variance)

    return _initializer(make, dtype)


_FANS: dict[str, Callable[[float, float], float]] = {
    "fan_in": lambda inputs, outputs: inputs, "fan_out": lambda inputs, outputs: outputs,
    "fan_avg": lambda inputs, outputs: (inputs + outputs) / 2,
    "fan_geo_avg": lambda inputs, outputs: (inputs * outputs) ** 0.5,
}


def _fans(shape: Shape, in_axis: Axes, out_axis: Axes, batch_axis: Axes) -> tuple[float, float]:
    """Return the numbers of inputs and outputs."""
    if len(shape) < 2 and in_axis == -2:
        raise ShapeError(at_user_line(f"initializers: weights of shape {shape} have no axis of inputs (in_axis=-2); "
                                      "two axes are needed, or in_axis="))

    def size(axes: Axes) -> int:
        return math.prod(shape[axis_of("initializers", axis, len(shape))]
                         for axis in ([axes] if isinstance(axes, int) else axes))

    inputs, outputs = size(in_axis), size(out_axis)
    field = math.prod(shape) / inputs / outputs / size(batch_axis)
    return inputs * field, outputs * field


def _from_normal(key: Any, shape: Shape, dtype: DType, variance: Any) -> Any:
    return multiply(random.normal(key, shape, dtype), sqrt(variance))


def _from_uniform(key: Any, shape: Shape, dtype: DType, variance: Any) -> Any:
    if not dtypes.is_complex(dtype):
        return multiply(random.uniform(key, shape, dtype, -1), sqrt(multiply(dtype.type(3), variance)))
    first, second = random.split(key)
    radius = sqrt(multiply(random.uniform(first, shape, dtypes.real_dtype(dtype)), 2))
    return multiply(_turned(radius, second, shape, dtype), sqrt(variance))


def _from_truncated(key: Any, shape: Shape, dtype: DType, variance: Any) -> Any:
    # The divisor is the standard deviation that truncation at 2 leaves of 1.
    if not dtypes.is_complex(dtype):
        deviation = divide(sqrt(variance), dtype.type(0.87962566103423978))
        return multiply(random.truncated_normal(key, -2, 2, shape, dtype), deviation)
    deviation = divide(sqrt(variance), dtype.type(0.95311164380491208))
    first, second = random.split(key)
    inside = multiply(subtract(1, exp(dtype.type(-4))), astype(
        random.uniform(first, shape, dtypes.real_dtype(dtype)), dtype))
    radius = sqrt(negative(log(subtract(1, inside))))
    return multiply(_turned(radius, second, shape, dtype), deviation)


def _turned(radius: Any, key: Any, shape: Shape, dtype: DType) -> Any:
    """Return points of the plane at this radius, in random directions."""
    angle = multiply(astype(random.uniform(key, shape, dtypes.real_dtype(dtype)), dtype), 2 * math.pi)
    return multiply(astype(radius, dtype), exp(multiply(angle, dtype.type(1j))))


_DISTRIBUTIONS: dict[str, Callable[..., Any]] = {
    "truncated_normal": _from_truncated, "normal": _from_normal, "uniform": _from_uniform,
}


def glorot_uniform(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Return a uniform initializer of variance 1 / the mean of the numbers of inputs and outputs (xavier_uniform).

    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks" (2010).

    >>> import fxgrad
    >>> glorot_uniform()(fxgrad.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, batch_axis, dtype)


def glorot_normal(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Return a truncated normal initializer, of the variance of `glorot_uniform` (xavier_normal).

    >>> import fxgrad
    >>> glorot_normal()(fxgrad.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def lecun_uniform(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Return a uniform initializer, of variance 1 / the number of inputs.

    LeCun et al., "Efficient backprop" (1998), section 4.6.

    >>> import fxgrad
    >>> lecun_uniform()(fxgrad.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def lecun_normal(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Return a truncated normal initializer, of variance 1 / the number of inputs.

    >>> import fxgrad
    >>> lecun_normal()(fxgrad.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def he_uniform(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Return a uniform initializer of variance 2 / the number of inputs, for layers before a relu (kaiming_uniform).

    He et al., "Delving deep into rectifiers" (2015), section 2.2.

    >>> import fxgrad
    >>> he_uniform()(fxgrad.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def he_normal(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Return a truncated normal initializer, of the variance of `he_uniform` (kaiming_normal).

    >>> import fxgrad
    >>> he_normal()(fxgrad.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal

# --- orthogonal matrices --------------------------------------------------------------------------------------------


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Return an initializer of matrices with orthogonal columns (rows, if there are fewer) of length `scale`.

    The matrices have their columns along `column_axis`, and all other axes together are the rows. Those in half
    precision are computed in float32. Raises `ShapeError` for shapes with fewer than two axes.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> columns = orthogonal()(fxgrad.random.key(0), (3, 2))
    >>> bool(fnp.allclose(columns.T @ columns, fnp.eye(2), atol=1e-6))
    True
    """
    def make(key: Any, shape: Shape, dtype: DType) -> Any:
        if len(shape) < 2:
            raise ShapeError(at_user_line(f"orthogonal: weights of shape {shape}; at least two axes are needed"))
        if 0 in shape:
            return zeros_of(shape, dtype)
        axis = axis_of("orthogonal", column_axis, len(shape))
        columns = shape[axis]
        computed = dtypes.float32 if dtype.itemsize < 4 and dtypes.is_floating(dtype) else dtype
        matrix = random.orthogonal(key, math.prod(shape) // columns, (), computed, columns)
        apart = reshape(astype(matrix, dtype), (*shape[:axis], *shape[axis + 1:], columns))
        return multiply(_number(scale, dtype), move_axis(apart, len(shape) - 1, axis))

    return _initializer(make, dtype)


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Return an initializer of convolution kernels (space, inputs, outputs): `orthogonal` at the centre, 0 elsewhere.

    Xiao et al., "Dynamical isometry and a mean field theory of CNNs" (2018). Raises `ShapeError` unless there are
    one to three spatial axes, and at least as many outputs as inputs.

    >>> import fxgrad
    >>> kernel = delta_orthogonal()(fxgrad.random.key(0), (3, 2, 2))
    >>> bool((kernel[[0, 2]] == 0).all()), bool((kernel[1] != 0).any())
    (True, True)
    """
    def make(key: Any, shape: Shape, dtype: DType) -> Any:
        if not 3 <= len(shape) <= 5 or shape[-1] < shape[-2]:
            raise ShapeError(at_user_line(f"delta_orthogonal: weights of shape {shape}; (space, inputs, outputs) are "
                                          "needed, with 1 to 3 spatial axes and no more inputs than outputs"))
        matrix = orthogonal(scale, column_axis)(key, shape[-2:], dtype)
        space = shape[:-2]
        centred = reshape(matrix, (1,) * len(space) + shape[-2:])
        around = [((size - 1) // 2, size // 2, 0) for size in space]
        return pad(centred, np.zeros((), dtype)[()], [*around, (0, 0, 0), (0, 0, 0)])

    return _initializer(make, dtype)
