"""Layers as functions of arrays and weights: dropout, normalisations, recurrent cells; each one line of a program."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import random
from fxgrad.engine.dtypes import default_float, is_floating
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_integer,
    axes_of,
    axis_of,
    common_shape,
    inexact_operands,
    refuse_complex,
    shape_of,
)
from fxgrad.engine.higher_order.call import library_function_of_arrays
from fxgrad.engine.ops.exponential import rsqrt
from fxgrad.engine.ops.structural import reshape
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.nn.activations import sigmoid
from fxgrad.numpy.alike import zeros_like
from fxgrad.numpy.arithmetic import add, divide, multiply, subtract
from fxgrad.numpy.creation import astype, widen_half
from fxgrad.numpy.elementwise import square, tanh
from fxgrad.numpy.joining import split
from fxgrad.numpy.logic import less_equal, where
from fxgrad.numpy.products import matmul
from fxgrad.numpy.statistics import mean as mean_of
from fxgrad.random.keys import one_key

__all__ = ["batch_norm", "dropout", "group_norm", "gru_cell", "layer_norm", "lstm_cell", "rms_norm"]

Axis = int | tuple[int, ...]


def given_arrays(**arrays: Any) -> tuple[list[Any], tuple[str, ...]]:
    """Return the arrays that are not None, and their names."""
    there = {name: array for name, array in arrays.items() if array is not None}
    return [as_array_operand(array) for array in there.values()], tuple(there)


# --- dropout --------------------------------------------------------------------------------------------------------


@hide_frames
def dropout(x: Any, rate: Any, key: Any = None) -> Any:
    """Return `x` with each element set to 0 with probability `rate`, and the others divided by 1 - rate.

    Without a key the result is `x`, for use after training. The mask is a function of the key and the shape of `x`, so
    it is the same for the value and all derivatives, and when `checkpoint`, a memory budget or a loop recomputes it.
    Under `vmap` entries have separate masks if they have separate keys. The dtype is that of `x`, a float.

    The rate may be traced, as under `jit` or `vmap`; its derivative is that of the factor 1 / (1 - rate).

    Srivastava et al., "Dropout" (2014). Raises `ArgumentError` for a rate that is not a number from 0 to 1, and for an
    invalid key.

    >>> import numpy as np, fxgrad
    >>> key = fxgrad.random.key(0)
    >>> dropout(np.ones(6), 0.5, key)
    array([0., 0., 2., 2., 0., 2.])
    >>> fxgrad.grad(lambda x: np.sum(dropout(x, 0.5, key)))(np.ones(6))
    array([0., 0., 2., 2., 0., 2.])
    """
    if hasattr(rate, "dtype") and is_floating(rate.dtype) and not shape_of(rate) and type(rate) is not Tracer:
        rate = float(rate)
    is_traced = type(rate) is Tracer and is_floating(aval_of(rate).dtype) and not shape_of(rate)
    if not is_traced and not (isinstance(rate, int | float | np.integer) and 0 <= rate <= 1):
        raise ArgumentError(at_user_line(f"dropout: rate is {rate!r}, where a number from 0 to 1 is needed"))
    x = inexact_operands(x)[0]
    if key is None:
        return x
    key = one_key("dropout", key, "key", "fxgrad.vmap(fxgrad.nn.dropout, (0, None, 0))(x, rate, keys)")
    if is_traced:
        return _dropout_at(x, key, rate)
    if rate == 0:
        return x
    return zeros_like(x) if rate == 1 else _dropout(x, key, rate=float(rate))


@functools.partial(library_function_of_arrays, name="dropout")
def _dropout(x: Any, key: Any, *, rate: float) -> Any:
    return where(random.bernoulli(key, 1.0 - rate, shape_of(x)), divide(x, 1.0 - rate), 0)


@functools.partial(library_function_of_arrays, name="dropout")
def _dropout_at(x: Any, key: Any, rate: Any) -> Any:
    """Return `_dropout` at a traced rate: the same mask, and no division by 0 for a rate of 1."""
    kept = subtract(1.0, rate)
    mask = random.bernoulli(key, astype(kept, default_float()), shape_of(x))
    return where(mask, divide(x, astype(where(less_equal(kept, 0), 1.0, kept), aval_of(x).dtype)), 0)


# --- normalisations -------------------------------------------------------------------------------------------------


@hide_frames
def layer_norm(x: Any, scale: Any = None, bias: Any = None, *, axis: Axis = -1, epsilon: float = 1e-5) -> Any:
    """Return (x - mean) / sqrt(variance + epsilon) · scale + bias, with mean and variance over `axis`.

    `scale` and `bias` broadcast to `x`, and may be left out. Half precision is computed in float32; the dtype of the
    result is that of `x`. Raises `ShapeError` for a scale or bias that does not broadcast to `x`, `DTypeError` for
    complex numbers. Ba, Kiros and Hinton, "Layer normalization" (2016).

    >>> layer_norm([1.0, 3.0], [2.0, 2.0], epsilon=0.0)
    array([-2.,  2.])
    """
    x = _real_operand("layer_norm", x)
    _refuse_sizes("layer_norm", scale, shape_of(x))
    weights, given = given_arrays(scale=scale, bias=bias)
    _check_broadcast("layer_norm", x, **dict(zip(given, weights, strict=True)))
    return _layer_norm(x, *weights, axes=axes_of("layer_norm", axis, len(shape_of(x))), epsilon=epsilon, given=given)


@functools.partial(library_function_of_arrays, name="layer_norm")
def _layer_norm(x: Any, *weights: Any, axes: tuple[int, ...], epsilon: float, given: tuple[str, ...]) -> Any:
    return _scale_and_shift(_normal(widen_half(x), axes, epsilon), x, weights, given)


@hide_frames
def rms_norm(x: Any, scale: Any = None, *, axis: Axis = -1, epsilon: float = 1e-6) -> Any:
    """Return x / sqrt(mean(x²) + epsilon) · scale, with the mean over `axis`: no mean is subtracted.

    Otherwise like `layer_norm`. Zhang and Sennrich, "Root mean square layer normalization" (2019).

    >>> rms_norm([3.0, -3.0], epsilon=0.0)
    array([ 1., -1.])
    """
    x = _real_operand("rms_norm", x)
    _refuse_sizes("rms_norm", scale, shape_of(x))
    weights, given = given_arrays(scale=scale)
    _check_broadcast("rms_norm", x, **dict(zip(given, weights, strict=True)))
    return _rms_norm(x, *weights, axes=axes_of("rms_norm", axis, len(shape_of(x))), epsilon=epsilon, given=given)


@functools.partial(library_function_of_arrays, name="rms_norm")
def _rms_norm(x: Any, *weights: Any, axes: tuple[int, ...], epsilon: float, given: tuple[str, ...]) -> Any:
    wide = widen_half(x)
    size = rsqrt(add(mean_of(square(wide), axes, keepdims=True), epsilon))
    return _scale_and_shift(multiply(wide, size), x, weights, given)


@hide_frames
def group_norm(x: Any, groups: int, scale: Any = None, bias: Any = None, *, axis: int = -1,
               epsilon: float = 1e-5) -> Any:
    """Normalize like `layer_norm`, over each entry of the first axis and each of `groups` of channels.

    `x` has the shape (batch, ..., channels), or its channels at another `axis` but the first; `scale` and `bias` have
    the shape (channels,). One group normalizes over all channels; as many groups as channels are instance
    normalisation. Raises `ShapeError` unless the channels divide into the groups, `ArgumentError` for groups that are
    no integer, `DTypeError` for complex numbers. Wu and He, "Group normalization" (2018).

    >>> group_norm([[1.0, 3.0, 10.0, 30.0]], 2, epsilon=0.0)
    array([[-1.,  1., -1.,  1.]])
    """
    x = _real_operand("group_norm", x)
    shape, groups = shape_of(x), as_integer("group_norm", groups)
    place = axis_of("group_norm", axis, len(shape))
    if place == 0 or groups < 1 or shape[place] % groups:
        raise ShapeError(at_user_line(
            f"group_norm: {groups} groups of axis {place} of an array of shape {shape}; an axis of channels behind the "
            "first, whose size is a multiple of the groups, is needed"))
    weights, given = given_arrays(scale=scale, bias=bias)
    _check_channels("group_norm", shape[place], **dict(zip(given, weights, strict=True)))
    return _group_norm(x, *weights, groups=groups, place=place, epsilon=epsilon, given=given)


@functools.partial(library_function_of_arrays, name="group_norm")
def _group_norm(x: Any, *weights: Any, groups: int, place: int, epsilon: float, given: tuple[str, ...]) -> Any:
    shape = shape_of(x)
    parted = reshape(widen_half(x), (*shape[:place], groups, shape[place] // groups, *shape[place + 1:]))
    axes = tuple(axis for axis in range(1, len(shape) + 1) if axis != place)
    normal = reshape(_normal(parted, axes, epsilon), shape)
    return _scale_and_shift(normal, x, [broadcast_channels(weight, place, len(shape)) for weight in weights], given)


@hide_frames
def batch_norm(x: Any, scale: Any = None, bias: Any = None, *, mean: Any = None, variance: Any = None, axis: int = -1,
               epsilon: float = 1e-5) -> tuple[Any, Any, Any]:
    """Normalize like `layer_norm`, each channel over all other axes: return (result, mean, variance).

    The channels are at `axis`; `scale`, `bias` and both statistics have the shape (channels,). With `mean` and
    `variance`, as averaged in training, those are used and returned. Raises `ArgumentError` for one of them without the
    other, `DTypeError` for complex numbers. Ioffe and Szegedy, "Batch normalization" (2015).

    >>> result, mean, variance = batch_norm([[1.0], [3.0]], epsilon=0.0)
    >>> result.tolist(), mean.tolist(), variance.tolist()
    ([[-1.0], [1.0]], [2.0], [1.0])
    """
    x = _real_operand("batch_norm", x)
    place = axis_of("batch_norm", axis, len(shape_of(x)))
    if (mean is None) != (variance is None):
        raise ArgumentError(at_user_line("batch_norm: mean= and variance= are given together, or neither is"))
    if mean is None:
        mean, variance = _statistics(x, place=place)
    else:
        mean, variance = as_array_operand(mean), as_array_operand(variance)
    weights, given = given_arrays(scale=scale, bias=bias)
    _check_channels("batch_norm", shape_of(x)[place], mean=mean, variance=variance,
                    **dict(zip(given, weights, strict=True)))
    result = _batch_norm(x, mean, variance, *weights, place=place, epsilon=epsilon, given=given)
    return result, mean, variance


@functools.partial(library_function_of_arrays, name="statistics")
def _statistics(x: Any, *, place: int) -> tuple[Any, Any]:
    wide = widen_half(x)
    axes = tuple(axis for axis in range(len(shape_of(x))) if axis != place)
    mean = mean_of(wide, axes, keepdims=True)
    variance = mean_of(square(subtract(wide, mean)), axes)
    return reshape(mean, shape_of(variance)), variance


@functools.partial(library_function_of_arrays, name="batch_norm")
def _batch_norm(x: Any, mean: Any, variance: Any, *weights: Any, place: int, epsilon: float,
                given: tuple[str, ...]) -> Any:
    mean, variance, *beside = [broadcast_channels(each, place, len(shape_of(x))) for each in (mean, variance, *weights)]
    normal = multiply(subtract(widen_half(x), mean), rsqrt(add(variance, epsilon)))
    return _scale_and_shift(normal, x, beside, given)


def _real_operand(what: str, x: Any) -> Any:
    """Return the array to normalize, as floats: the mean of the squares of complex numbers is no variance."""
    x = inexact_operands(x)[0]
    refuse_complex(what, x)
    return x


def _refuse_sizes(what: str, scale: Any, shape: Any) -> None:
    """Raise `ArgumentError` for sizes of the last axes in the place of the scale, by which PyTorch names the axes."""
    sizes = (scale,) if type(scale) is int else scale
    if isinstance(sizes, tuple | list) and all(type(size) is int for size in sizes) and sizes and (
            tuple(sizes) == tuple(shape[-len(sizes):])):
        axes = -1 if len(sizes) == 1 else tuple(range(-len(sizes), 0))
        raise ArgumentError(at_user_line(
            f"{what}: scale is {scale!r}, the shape of the last axes of x, which is PyTorch's normalized_shape. Write "
            f"axis={axes}, and give scales as floats"))


def _check_broadcast(what: str, x: Any, **arrays: Any) -> None:
    shape = shape_of(x)
    for name, array in arrays.items():
        if common_shape(what, shape, shape_of(array)) != shape:
            raise ShapeError(at_user_line(f"{what}: {name} has the shape {shape_of(array)}, which does not broadcast "
                                          f"to that of x, {shape}"))


def _check_channels(what: str, channels: int, **arrays: Any) -> None:
    for name, array in arrays.items():
        if shape_of(array) != (channels,):
            raise ShapeError(at_user_line(
                f"{what}: {name} has the shape {shape_of(array)}, where ({channels},), one number for each channel, is "
                "needed"))


def _normal(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    apart = subtract(x, mean_of(x, axes, keepdims=True))
    return multiply(apart, rsqrt(add(mean_of(square(apart), axes, keepdims=True), epsilon)))


def broadcast_channels(weight: Any, place: int, ndim: int) -> Any:
    """Return a vector of channels with `ndim` axes, to broadcast with the array."""
    weight = as_array_operand(weight)
    return reshape(weight, tuple(shape_of(weight)[0] if axis == place else 1 for axis in range(ndim)))


def _scale_and_shift(normal: Any, x: Any, weights: Sequence[Any], given: tuple[str, ...]) -> Any:
    """Apply the scale and the bias, as far as given; in the dtype of `x`."""
    for name, weight in zip(given, weights, strict=True):
        normal = multiply(normal, weight) if name == "scale" else add(normal, weight)
    return astype(normal, aval_of(x).dtype) if aval_of(normal).dtype != aval_of(x).dtype else normal


# --- recurrent cells ------------------------------------------------------------------------------------------------


@hide_frames
def gru_cell(state: Any, x: Any, input_weights: Any, state_weights: Any, input_bias: Any = None,
             state_bias: Any = None) -> Any:
    """Return the next state of a gated recurrent unit, shape (..., size), from its state and an input (..., inputs).

    With r, z, n the thirds of columns of `x @ input_weights + input_bias`, shape (inputs, 3 size), and r', z', n' those
    of `state @ state_weights + state_bias`, shape (size, 3 size): r = σ(r + r'), z = σ(z + z'), n = tanh(n + r · n'),
    and the result is (1 - z) · n + z · state, as in PyTorch, whose weights are transposed. Raises `ShapeError` for
    weights and biases of other shapes. Cho et al. (2014).

    >>> import numpy as np
    >>> gru_cell(np.ones(2), np.ones(3), np.zeros((3, 6)), np.zeros((2, 6)))
    array([0.5, 0.5])
    """
    arrays = _cell("gru_cell", 3, [state], x, input_weights, state_weights, input_bias, state_bias)
    return _gru_cell(*arrays)


@functools.partial(library_function_of_arrays, name="gru_cell")
def _gru_cell(state: Any, x: Any, input_weights: Any, state_weights: Any, input_bias: Any, state_bias: Any) -> Any:
    reset, update, new = split(add(matmul(x, input_weights), input_bias), 3, axis=-1)
    reset_too, update_too, new_too = split(add(matmul(state, state_weights), state_bias), 3, axis=-1)
    kept = sigmoid(add(update, update_too))
    candidate = tanh(add(new, multiply(sigmoid(add(reset, reset_too)), new_too)))
    return add(candidate, multiply(kept, subtract(state, candidate)))


@hide_frames
def lstm_cell(state: tuple[Any, Any], x: Any, input_weights: Any, state_weights: Any, input_bias: Any = None,
              state_bias: Any = None) -> tuple[Any, Any]:
    """Return the next state (h, c) of a long short-term memory, both of shape (..., size), for an input (..., inputs).

    With i, f, g, o the quarters of columns of `x @ input_weights + input_bias + h @ state_weights + state_bias`, shapes
    (inputs, 4 size) and (size, 4 size): c = σ(f) · c + σ(i) · tanh(g), h = σ(o) · tanh(c), as in PyTorch, whose weights
    are transposed. Raises `ShapeError` for weights and biases of other shapes. Hochreiter and Schmidhuber (1997).

    >>> import numpy as np
    >>> h, c = lstm_cell((np.zeros(2), np.ones(2)), np.ones(3), np.zeros((3, 8)), np.zeros((2, 8)))
    >>> c
    array([0.5, 0.5])
    """
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise ArgumentError(at_user_line(f"lstm_cell: the state is a {type(state).__name__}, where a pair (h, c) is "
                                         "needed"))
    arrays = _cell("lstm_cell", 4, list(state), x, input_weights, state_weights, input_bias, state_bias)
    hidden, cell = _lstm_cell(*arrays)
    return hidden, cell


@functools.partial(library_function_of_arrays, name="lstm_cell")
def _lstm_cell(hidden: Any, cell: Any, x: Any, input_weights: Any, state_weights: Any, input_bias: Any,
                  state_bias: Any) -> tuple[Any, Any]:
    gates = add(add(matmul(x, input_weights), input_bias), add(matmul(hidden, state_weights), state_bias))
    into, forget, new, out = split(gates, 4, axis=-1)
    cell = add(multiply(sigmoid(forget), cell), multiply(sigmoid(into), tanh(new)))
    return multiply(sigmoid(out), tanh(cell)), cell


def _cell(what: str, gates: int, state: list[Any], x: Any, input_weights: Any, state_weights: Any, input_bias: Any,
          state_bias: Any) -> list[Any]:
    """Return the arrays that a cell computes with, their shapes checked; zeros for a missing bias."""
    arrays = list(inexact_operands(*state, x, input_weights, state_weights))
    for name, array in (("state", arrays[0]), ("input", arrays[-3])):
        if not shape_of(array):
            raise ShapeError(at_user_line(f"{what}: the {name} is a number, where an array of them is needed, shape "
                                          "(..., size)"))
    inputs, size = shape_of(arrays[-3])[-1], shape_of(arrays[0])[-1]
    for name, weights, rows in (("input_weights", arrays[-2], inputs), ("state_weights", arrays[-1], size)):
        if shape_of(weights) != (rows, gates * size):
            raise ShapeError(at_user_line(
                f"{what}: {name} has the shape {shape_of(weights)}, where ({rows}, {gates} * {size}) is needed for an "
                f"input of {inputs} and a state of {size} numbers"))
    for name, bias in (("input_bias", input_bias), ("state_bias", state_bias)):
        if bias is not None and shape_of(as_array_operand(bias)) != (gates * size,):
            raise ShapeError(at_user_line(
                f"{what}: {name} has the shape {shape_of(as_array_operand(bias))}, where ({gates} * {size},) is needed "
                f"for a state of {size} numbers"))
    zeros = zeros_like(arrays[-1][0]) if input_bias is None or state_bias is None else None
    return [*arrays, *(zeros if bias is None else bias for bias in (input_bias, state_bias))]
