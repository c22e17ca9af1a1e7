"""Special functions along axes and of whole numbers: logsumexp, softmax, log_softmax, multigammaln, bernoulli."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.arrays import freeze_result
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    axes_of,
    common_shape,
    inexact_operands,
    refuse_complex,
    shape_of,
)
from fxgrad.engine.frontend.ufuncs import composite_function
from fxgrad.engine.ops.arithmetic import add, div, mul, stop_gradient, sub
from fxgrad.engine.ops.comparison import eq
from fxgrad.engine.ops.exponential import exp, log
from fxgrad.engine.ops.parts import abs as absolute
from fxgrad.engine.ops.parts import is_finite, real, sign
from fxgrad.engine.ops.reductions import reduce_max
from fxgrad.engine.ops.select import where as choose
from fxgrad.engine.ops.special import lgamma
from fxgrad.engine.ops.structural import broadcast_to, convert, expand_axes, reduce_sum, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError
from fxgrad.numpy.reductions import kept_shape
from fxgrad.random.keys import positive_int

Axis = int | Sequence[int] | None


def _shift(x: Any, axes: tuple[int, ...]) -> Any:
    """Return the greatest element (by its real part) along `axes` where it is finite, and else 0; a constant."""
    parts = real(x) if dtypes.is_complex(aval_of(x).dtype) else x
    if not all(shape_of(x)[axis] for axis in axes):
        return None
    most = stop_gradient(reduce_max(parts, axes))
    return convert(choose(is_finite(most), most, 0.0), aval_of(x).dtype, aval_of(x).weak)


def logsumexp(a: Any, axis: Axis = None, b: Any = None, keepdims: bool = False, return_sign: bool = False,
              where: Any = None) -> Any:
    """Return the logarithm of the sum over `axis` (None: all) of b exp(a), computed without overflow.

    Elements where the mask `where` is False are excluded. With `return_sign`: the logarithm of the absolute value of
    the sum and its sign; without, the result is NaN where the sum is negative.

    >>> round(float(logsumexp([1000.0, 1000.0])), 4)
    1000.6931
    """
    values = inexact_operands(a) if b is None else inexact_operands(a, b)
    x, factor = values[0], values[1] if len(values) > 1 else None
    mask = None if where is None else as_array_operand(where)
    shape = common_shape("logsumexp", *(shape_of(each) for each in (x, factor, mask) if each is not None))
    axes = axes_of("logsumexp", axis, len(shape))
    lowest = -math.inf
    if mask is not None:
        x = choose(broadcast_to(mask, shape), x, lowest)  # of the shape of all
    if factor is not None:
        x = choose(broadcast_to(eq(factor, 0.0), shape), lowest, x)
    shift = _shift(x, axes)
    terms = exp(x if shift is None else sub(x, expand_axes(shift, axes, shape)))
    total = reduce_sum(terms if factor is None else mul(terms, factor), axes)
    complex_ = dtypes.is_complex(aval_of(total).dtype)
    size = total if not return_sign else absolute(total)
    result = log(size)
    if shift is not None:
        result = add(result, real(shift) if return_sign and complex_ else shift)
    outputs = [result, sign(total)] if return_sign else [result]
    if keepdims:
        outputs = [reshape(output, kept_shape(shape, axes)) for output in outputs]
    return tuple(outputs) if return_sign else outputs[0]


def _center(name: str, x: Any, axis: Axis) -> tuple[Any, Any, tuple[int, ...]]:
    x, = inexact_operands(x)
    axes = axes_of(name, axis, len(shape_of(x)))
    shift = _shift(x, axes)
    x = x if shift is None else sub(x, expand_axes(shift, axes, shape_of(x)))
    weights = exp(x)
    return x, weights, axes


def softmax(x: Any, /, *, axis: Axis = None) -> Any:
    """Return exp(x) over its sum along `axis` (None: all axes).

    >>> softmax([0.0, 0.0])
    array([0.5, 0.5])
    """
    _, weights, axes = _center("softmax", x, axis)
    return div(weights, expand_axes(reduce_sum(weights, axes), axes, shape_of(weights)))


def log_softmax(x: Any, /, *, axis: Axis = None) -> Any:
    """Return the logarithm of `softmax`, accurate where that is near 0.

    >>> log_softmax([0.0, 1000.0])
    array([-1000.,     0.])
    """
    x, weights, axes = _center("log_softmax", x, axis)
    return sub(x, expand_axes(log(reduce_sum(weights, axes)), axes, shape_of(x)))


def multigammaln(a: Any, d: int) -> Any:
    """Return the logarithm of the multivariate gamma function of dimension `d`, a Python integer.

    >>> round(float(multigammaln(3.0, 2)), 4)
    1.5502
    """
    count = positive_int("multigammaln", "d", d)

    def function(a: Any) -> Any:
        refuse_complex("multigammaln", a)
        total = mul(scalar_ones(a), count * (count - 1) / 4 * math.log(math.pi))
        for number in range(count):
            total = add(total, lgamma(sub(a, number / 2)))
        return total
    return composite_function(function)(a)


def scalar_ones(x: Any) -> Any:
    """Return 1 in the dtype of `x`."""
    return aval_of(x).dtype.type(1)


def bernoulli(n: int) -> Any:
    """Return the Bernoulli numbers B_0 to B_n (with B_1 = -1/2), in the default float dtype.

    Exact fractions by the recurrence of DLMF 24.5.3, rounded. Raises `ArgumentError` for an `n` that is not an integer.

    >>> bernoulli(4)
    array([ 1.        , -0.5       ,  0.16666667,  0.        , -0.03333334],
          dtype=float32)
    """
    last = positive_int("bernoulli", "n", n)
    numbers: list[Fraction] = []
    for index in range(last + 1):
        total = sum((math.comb(index + 1, k) * number for k, number in enumerate(numbers)), Fraction(0))
        numbers.append(Fraction(1) if index == 0 else -total / (index + 1))
    if last > 256:
        raise ArgumentError(at_user_line(f"bernoulli: n={last} is too large; B_n overflows from n = 260 on"))
    with np.errstate(over="ignore"):
        return freeze_result(np.array([float(number) for number in numbers]).astype(dtypes.default_float()))
