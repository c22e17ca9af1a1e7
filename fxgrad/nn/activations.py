"""The activation functions of `jax.nn`: programs show each as one line if its parameters are numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import PYTHON_SCALARS
from fxgrad.engine.frontend.operands import (
    apply,
    as_array_operand,
    as_numpy_scalars,
    axis_of,
    promote_inexact,
    shape_of,
)
from fxgrad.engine.higher_order.call import library_function
from fxgrad.engine.ops.exponential import integer_pow, logistic_p
from fxgrad.engine.ops.special import erfc_p
from fxgrad.engine.pytorch_names import add_pytorch_hint
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ShapeError
from fxgrad.numpy.arithmetic import add, clip, divide, hypot, logaddexp, maximum, minimum, multiply, subtract
from fxgrad.numpy.elementwise import absolute, exp, expm1, log, log1p, negative, sqrt, square
from fxgrad.numpy.elementwise import tanh as hyperbolic_tangent
from fxgrad.numpy.joining import split
from fxgrad.numpy.logic import greater, greater_equal, less, less_equal, logical_or, where

__all__ = ["celu", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "identity",
           "leaky_relu", "log1mexp", "log_sigmoid", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_sign",
           "softplus", "sparse_plus", "sparse_sigmoid", "squareplus", "swish", "tanh"]

Function = TypeVar("Function", bound=Callable[..., Any])


def show_function(function: Function) -> Function:
    """Show `function` as one line of a program if all its parameters are Python values."""
    line = library_function(function)

    @functools.wraps(function)
    def wrapper(x: Any, *args: Any, **options: Any) -> Any:
        x = as_array_operand(x)
        try:
            if all(type(value) in PYTHON_SCALARS for value in (*args, *options.values())):
                return line(x, *args, **options)
            return function(x, *args, **options)
        except TypeError as error:
            raise add_pytorch_hint(error)  # noqa: B904  (the error itself)
    return cast(Function, wrapper)


# --- piecewise linear -----------------------------------------------------------------------------------------------


@show_function
def relu(x: Any) -> Any:
    """Return the greater of `x` and 0, in the dtype of `x`; the derivative at 0 is 0.

    The derivative at the kink follows Bertoin et al., "Numerical influence of ReLU'(0) on backpropagation" (2021).

    >>> relu([-1.0, 0.0, 2.0])
    array([0., 0., 2.])
    """
    return where(less_equal(x, 0), 0, x)


@show_function
def relu6(x: Any) -> Any:
    """Return `x` held between 0 and 6, as a float; the derivative at both bounds is 0.

    >>> relu6([-1.0, 2.0, 8.0])
    array([0., 2., 6.])
    """
    return where(less_equal(x, 0), 0.0, where(greater_equal(x, 6), 6.0, x))


@show_function
def leaky_relu(x: Any, negative_slope: Any = 1e-2) -> Any:
    """Return `x` where it is not negative, and `negative_slope` (a number or an array) times `x` elsewhere.

    >>> leaky_relu([-1.0, 2.0], 0.5)
    array([-0.5,  2. ])
    """
    return where(greater_equal(x, 0), x, multiply(negative_slope, x))


@show_function
def hard_tanh(x: Any) -> Any:
    """Return `x` held between -1 and 1, in the dtype of `x`; the derivative at both bounds is 1.

    >>> hard_tanh([-2.0, 0.5, 2.0])
    array([-1. ,  0.5,  1. ])
    """
    bounded = x if dtypes.kind_of(aval_of(x).dtype) in "bu" else where(less(x, -1), -1, x)
    return where(greater(x, 1), 1, bounded)


@show_function
def hard_sigmoid(x: Any) -> Any:
    """Return the straight line from 0 at -3 to 1 at 3, and 0 and 1 beyond: relu6(x + 3) / 6.

    >>> hard_sigmoid([-4.0, 0.0, 4.0])
    array([0. , 0.5, 1. ])
    """
    return divide(relu6(add(x, 3.0)), 6.0)


@show_function
def hard_silu(x: Any) -> Any:
    """Return `x` times its `hard_sigmoid`.

    >>> hard_silu([-4.0, 3.0])
    array([-0.,  3.])
    """
    return multiply(x, hard_sigmoid(x))


hard_swish = hard_silu


@show_function
def sparse_sigmoid(x: Any) -> Any:
    """Return the straight line from 0 at -1 to 1 at 1, and 0 and 1 beyond: the derivative of `sparse_plus`.

    Martins and Astudillo, "From softmax to sparsemax" (2016), for two classes.

    >>> sparse_sigmoid([-2.0, 0.0, 2.0])
    array([0. , 0.5, 1. ])
    """
    return multiply(0.5, clip(add(x, 1.0), 0.0, 2.0))


# --- smooth ---------------------------------------------------------------------------------------------------------


@show_function
def identity(x: Any) -> Any:
    """Return `x` itself, as an array.

    >>> identity([1.0, 2.0])
    array([1., 2.])
    """
    return x


@show_function
def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent of `x`; integers become floats.

    >>> float(tanh(0.0))
    0.0
    """
    return hyperbolic_tangent(x)


@show_function
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)), between 0 and 1, without overflow.

    >>> sigmoid([-1000.0, 0.0, 1000.0])
    array([0. , 0.5, 1. ])
    """
    return apply(logistic_p, *promote_inexact(x))


@show_function
def silu(x: Any) -> Any:
    """Return `x` times its `sigmoid`; also known as swish.

    Hendrycks and Gimpel, "Gaussian error linear units" (2016).

    >>> silu([0.0, 1000.0])
    array([   0., 1000.])
    """
    return multiply(x, sigmoid(x))


swish = silu


@show_function
def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)), without overflow.

    >>> softplus([0.0, 1000.0])
    array([6.93147181e-01, 1.00000000e+03])
    """
    return logaddexp(x, 0.0)


@show_function
def log_sigmoid(x: Any) -> Any:
    """Return the logarithm of `sigmoid(x)`, also where that is 0 in floating point.

    >>> log_sigmoid([-1000.0, 1000.0])
    array([-1000.,    -0.])
    """
    return negative(softplus(negative(x)))


@show_function
def soft_sign(x: Any) -> Any:
    """Return x / (|x| + 1).

    >>> soft_sign([-1.0, 3.0])
    array([-0.5 ,  0.75])
    """
    return divide(x, add(absolute(x), 1))


@show_function
def mish(x: Any) -> Any:
    """Return `x` times tanh(softplus(x)).

    Misra, "Mish: a self regularized non-monotonic activation function" (2019).

    >>> mish([0.0, 1000.0])
    array([   0., 1000.])
    """
    return multiply(x, hyperbolic_tangent(softplus(x)))


@show_function
def elu(x: Any, alpha: Any = 1.0) -> Any:
    """Return `x` where it is positive, and `alpha` (a number or an array) times exp(x) - 1 elsewhere.

    Clevert et al., "Fast and accurate deep network learning by exponential linear units" (2015).

    >>> elu([-1000.0, 2.0], 0.5)
    array([-0.5,  2. ])
    """
    is_positive = greater(x, 0)
    return where(is_positive, x, multiply(alpha, expm1(where(is_positive, 0.0, x))))


@show_function
def celu(x: Any, alpha: Any = 1.0) -> Any:
    """Return `x` where it is positive, and `alpha` (a number or an array) times exp(x / alpha) - 1 elsewhere.

    Barron, "Continuously differentiable exponential linear units" (2017).

    >>> celu([-1000.0, 2.0], 0.5)
    array([-0.5,  2. ])
    """
    return add(maximum(x, 0.0), multiply(alpha, expm1(divide(minimum(x, 0.0), alpha))))


@show_function
def selu(x: Any) -> Any:
    """Return `elu` with the scale and the alpha that keep the mean 0 and the variance 1 from layer to layer.

    Klambauer et al., "Self-normalizing neural networks" (2017), is the source of the two numbers.

    >>> selu([-1000.0, 1.0])
    array([-1.75809934,  1.05070099])
    """
    return multiply(1.0507009873554804934193349852946, elu(x, 1.6732632423543772848170429916717))


@show_function
def gelu(x: Any, approximate: bool = True) -> Any:
    """Return `x` times the probability that a normal variable is less than `x`, or an approximation of it by tanh.

    Hendrycks and Gimpel, "Gaussian error linear units" (2016), section 2.

    >>> gelu([0.0, 1.0], approximate=False)
    array([0.        , 0.84134475])
    """
    x, = as_numpy_scalars(promote_inexact(x))
    if not approximate:
        return multiply(multiply(0.5, x), apply(erfc_p, multiply(negative(x), math.sqrt(0.5))))
    # The cube of 41 overflows in float16, where tanh is 1 from 4 on.
    bounded = clip(x, -16.0, 16.0) if aval_of(x).dtype == np.float16 else x
    # (1 + tanh(u)) / 2 = sigmoid(2u), which keeps its digits where tanh is nearly -1.
    return multiply(x, sigmoid(multiply(math.sqrt(8 / math.pi), add(
        bounded, multiply(0.044715, integer_pow(bounded, 3))))))


@show_function
def squareplus(x: Any, b: Any = 4) -> Any:
    """Return (x + sqrt(x² + b)) / 2, with a number or an array `b`.

    Barron, "Squareplus: a softplus-like algebraic rectifier" (2021).

    >>> squareplus([0.0, 1.5])
    array([1., 2.])
    """
    x, = as_numpy_scalars(promote_inexact(x))
    if dtypes.is_complex(aval_of(x).dtype):
        return divide(add(x, sqrt(add(square(x), b))), 2)
    # The root of b, if it is known: x² may overflow.
    root = hypot(x, b ** 0.5) if type(b) in (int, float) and b >= 0 else sqrt(add(square(x), b))
    # Below 0 the sum is a difference, which loses its digits.
    below = less(x, 0)
    return where(below, divide(divide(b, 2), where(below, subtract(root, x), 1.0)), divide(add(root, x), 2))


@show_function
def sparse_plus(x: Any) -> Any:
    """Return 0 up to -1, (x + 1)² / 4 up to 1, and `x` beyond.

    >>> sparse_plus([-2.0, 0.0, 2.0])
    array([0.  , 0.25, 2.  ])
    """
    is_left, is_right = less_equal(x, -1.0), greater_equal(x, 1.0)
    # The square of an infinity, which is not chosen, has no slope.
    between = where(logical_or(is_left, is_right), 0.0, x)
    return where(is_left, 0.0, where(is_right, x, divide(square(add(between, 1.0)), 4)))


@show_function
def log1mexp(x: Any) -> Any:
    """Return log(1 - exp(-x)) of a positive `x`, without loss of digits near 0 and far from it.

    Mächler, "Accurately computing log(1 - exp(-|a|))" (2012).

    >>> log1mexp([1e-20, 1.0])
    array([-46.05170186,  -0.45867515])
    """
    x, = as_numpy_scalars(promote_inexact(x))
    is_near = less(x, math.log(2.0))
    # Each branch gets operands in its domain, so that no infinity enters the derivative of the other.
    near, far = where(is_near, x, 1.0), where(is_near, 1.0, x)
    return where(is_near, log(negative(expm1(negative(near)))), log1p(negative(exp(negative(far)))))


@hide_frames
def glu(x: Any, axis: int = -1) -> Any:
    """Return the first half of `x` along `axis` times the `sigmoid` of the second half.

    Dauphin et al., "Language modeling with gated convolutional networks" (2016). Raises `AxisError`, and `ShapeError`
    if the size of the axis is odd.

    >>> glu([3.0, 0.0])
    array([1.5])
    """
    x = as_array_operand(x)
    shape = shape_of(x)
    place = axis_of("glu", axis, len(shape))
    if shape[place] % 2:
        raise ShapeError(at_user_line(f"glu: axis {place} of an array of shape {shape} has an odd size; it is split "
                                      "into two halves"))
    return _glu(x, place)


def _gate(x: Any, axis: int) -> Any:
    first, second = split(x, 2, axis)
    return multiply(first, sigmoid(second))


_glu = library_function(_gate, "glu")
