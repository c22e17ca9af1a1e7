"""Polynomials as vectors of coefficients, that of the highest power first."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_dtype,
    as_integer,
    as_numpy_scalars,
    common_shape,
    equally_strong,
    operands,
    promote_inexact,
    promote_operands,
    require_concrete,
    shape_of,
)
from fxgrad.engine.ops.joining import concatenate, stack, unstack
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.shaping import pad, slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to, convert, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy import linalg
from fxgrad.numpy.arithmetic import add, divide, multiply, subtract
from fxgrad.numpy.calculus import convolve
from fxgrad.numpy.creation import full, zeros
from fxgrad.numpy.elementwise import negative, sqrt, square
from fxgrad.numpy.finding import nonzero
from fxgrad.numpy.logic import equal, less, where
from fxgrad.numpy.ordering import argsort, cumprod
from fxgrad.numpy.products import matmul
from fxgrad.numpy.rearranging import roll, take
from fxgrad.numpy.reductions import sum
from fxgrad.numpy.shaping import atleast_1d, matrix_transpose


def _coefficients(name: str, *values: Any) -> list[Any]:
    """Return vectors of coefficients in one dtype; a number is a polynomial of degree 0."""
    arrays = [atleast_1d(each) for each in equally_strong(as_numpy_scalars(promote_operands(*operands(*values))))]
    for array in arrays:
        if len(shape_of(array)) != 1:
            raise ShapeError(at_user_line(f"{name}: coefficients are a vector, the shape is {shape_of(array)}"))
    return arrays


def _grown(p: Any, size: int) -> Any:
    """Return the polynomial with zeros for higher powers, with `size` coefficients."""
    return pad(p, aval_of(p).dtype.type(0), [(size - shape_of(p)[0], 0, 0)])


def polyval(p: Any, x: Any, *, unroll: int | None = 16) -> Any:
    """Return the value of a polynomial at each of `x`, by Horner's rule; later axes of coefficients broadcast.

    >>> polyval([1.0, 0.0, 2.0], [2.0, 3.0])
    array([ 6., 11.])
    """
    if unroll is not None:
        as_integer("polyval", unroll)  # checked, though there is no loop to unroll
    p, x = as_numpy_scalars(promote_operands(*operands(p, x)))
    if not shape_of(p):
        raise ShapeError(at_user_line("polyval: coefficients are a vector, a number came; write [p]"))
    shape = common_shape("polyval", shape_of(x), shape_of(p)[1:])
    result = broadcast_to(scalar_like(0, p), shape)
    for coefficient in unstack(p, 0):
        result = add(multiply(result, x), coefficient)
    return result


def polyadd(a1: Any, a2: Any) -> Any:
    """Return the sum of two polynomials.

    >>> polyadd([1, 2], [1, 0, 0])
    array([1, 1, 2])
    """
    first, second = _coefficients("polyadd", a1, a2)
    size = max(shape_of(first)[0], shape_of(second)[0])
    return add(_grown(first, size), _grown(second, size))


def polysub(a1: Any, a2: Any) -> Any:
    """Return the difference of two polynomials.

    >>> polysub([1, 2], [1, 0, 0])
    array([-1,  1,  2])
    """
    first, second = _coefficients("polysub", a1, a2)
    size = max(shape_of(first)[0], shape_of(second)[0])
    return subtract(_grown(first, size), _grown(second, size))


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Any:
    """Return the product of two polynomials, in floats; with `trim_leading_zeros`, without those of the operands.

    >>> polymul([1.0, 1.0], [1.0, -1.0])
    array([ 1.,  0., -1.])
    """
    first, second = promote_inexact(*_coefficients("polymul", a1, a2))
    if trim_leading_zeros:
        first, second = _trim(first), _trim(second)
    if not shape_of(first)[0] or not shape_of(second)[0]:
        first, second = (each if shape_of(each)[0] else zeros(1, aval_of(each).dtype) for each in (first, second))
    return convolve(first, second, precision="highest")


def _trim(p: Any) -> Any:
    """Return the polynomial without leading zeros, whose values must be known; at least one coefficient is kept."""
    known = require_concrete(p, "trim_leading_zeros=True, whose result has a size that depends on the values,")
    places = np.flatnonzero(known)
    size = known.shape[0]
    return slice_in_dim(p, min(int(places[0]) if places.size else size - 1, max(size - 1, 0)), size, 0)


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Any, Any]:
    """Return quotient and remainder of two polynomials, by long division; the remainder keeps its leading zeros.

    With `trim_leading_zeros`, without them. Raises `ShapeError` if `v` has no coefficients.

    >>> quotient, rest = polydiv([1.0, 0.0, -1.0], [1.0, 1.0])
    >>> quotient, rest
    (array([ 1., -1.]), array([0., 0., 0.]))
    """
    u, v = promote_inexact(*_coefficients("polydiv", u, v))
    count, size = shape_of(u)[0], shape_of(v)[0]
    if not size:
        raise ShapeError(at_user_line("polydiv: the divisor has no coefficients"))
    steps = count - size + 1
    if steps < 1:
        return zeros(1, aval_of(u).dtype), u
    lead = reshape(slice_in_dim(v, 0, 1, 0), ())
    quotient: list[Any] = []
    for step in range(steps):
        factor = divide(slice_in_dim(u, step, step + 1, 0), lead)
        quotient.append(factor)
        u = subtract(u, pad(multiply(factor, v), aval_of(u).dtype.type(0), [(step, count - size - step, 0)]))
    return concatenate(quotient, 0), (_trim(u) if trim_leading_zeros else u)


def polyder(p: Any, m: int = 1) -> Any:
    """Return the coefficients of the `m`-th derivative.

    >>> polyder([1.0, 2.0, 3.0])
    array([2., 2.])
    """
    p, = promote_inexact(*_coefficients("polyder", p))
    order = _order("polyder", m)
    size = shape_of(p)[0]
    if not order:
        return p
    powers = np.arange(size - 1, -1, -1)
    factors = np.array([math.perm(int(power), order) for power in powers if power >= order], aval_of(p).dtype)
    return multiply(slice_in_dim(p, 0, max(size - order, 0), 0), convert(factors, aval_of(p).dtype, aval_of(p).weak))


def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """Return the coefficients of the `m`-th antiderivative, with the constants `k` (one for each integration, or 0).

    >>> polyint([2.0, 2.0])
    array([1., 2., 0.])
    """
    order = _order("polyint", m)
    p, *constants = promote_inexact(*_coefficients("polyint", p, *([] if k is None else [k])))
    if not constants:
        whole = pad(p, scalar_like(0, p), [(0, order, 0)])
    else:
        given = shape_of(constants[0])[0]
        if given not in (1, order):
            raise ShapeError(at_user_line(
                f"polyint: {given} constants for {order} integrations; one for each is needed"))
        whole = concatenate([p, full(order, constants[0]) if given == 1 else constants[0]], 0)
    size = shape_of(p)[0] + order
    dtype = aval_of(p).dtype
    # The power of each coefficient before, and how often it is integrated: constants join one after the other.
    starts = [*range(size - order - 1, -1, -1), *[0] * order]
    times = [order] * (size - order) + [order - 1 - place for place in range(order)]
    divisors = np.array([math.perm(start + count, count) for start, count in zip(starts, times, strict=True)], dtype)
    return divide(whole, convert(divisors, dtype, aval_of(p).weak))


def _order(name: str, m: Any) -> int:
    order = as_integer(name, m)
    if order < 0:
        raise ArgumentError(at_user_line(f"{name}: m={order}; a number from 0 on is needed"))
    return order


# --- roots --------------------------------------------------------------------------------------------------------


def poly(seq_of_zeros: Any) -> Any:
    """Return the polynomial with given roots and leading coefficient 1, or that of the eigenvalues of a matrix.

    Without roots it is the number 1, as in NumPy; a number is one root. Raises `ShapeError` for other arrays.

    >>> poly([1.0, 2.0])
    array([ 1., -3.,  2.])
    """
    roots_of, = promote_inexact(as_array_operand(seq_of_zeros))
    shape = shape_of(roots_of)
    if len(shape) == 2 and shape[0] == shape[1]:
        roots_of = linalg.eigvals(roots_of)
    elif not shape:
        roots_of = reshape(roots_of, (1,))
    elif len(shape) != 1:
        raise ShapeError(at_user_line(f"poly: a vector of roots or a square matrix is needed, the shape is {shape}"))
    result = broadcast_to(scalar_like(1, roots_of), (1,))
    if not shape_of(roots_of)[0]:
        return reshape(result, ())
    for root in unstack(roots_of, 0):
        longer = pad(result, scalar_like(0, result), [(0, 1, 0)])
        result = subtract(longer, pad(multiply(result, root), scalar_like(0, result), [(1, 0, 0)]))
    return result


def roots(p: Any, *, strip_zeros: bool = True) -> Any:
    """Return the roots of a polynomial, complex: the eigenvalues of its companion matrix.

    Zeros at either end change the number of roots, so the values must be known; with `strip_zeros=False` they need not
    be: then there are as many roots as the polynomial has powers, the last of them NaN, one for each leading zero.

    >>> [round(float(root), 4) for root in sorted(roots([1.0, -3.0, 2.0]).real)]
    [1.0, 2.0]
    """
    p, = promote_inexact(*_coefficients("roots", p))
    trailing = 0
    if strip_zeros:
        known = require_concrete(p,
                                 "np.roots, whose result has a size that depends on the values (or strip_zeros=False),")
        places = nonzero(known)[0]
        first, last = (int(places[0]), int(places[-1])) if places.size else (0, -1)
        trailing = known.shape[0] - 1 - last if places.size else 0
        p = slice_in_dim(p, first, last + 1, 0)
    size = shape_of(p)[0]
    dtype, weak = dtypes.complex_dtype(aval_of(p).dtype), aval_of(p).weak
    none = convert(zeros(trailing, dtype), dtype, weak)
    if size < 2:
        return none
    leading: Any = 0
    if not strip_zeros:
        leading = sum(cumprod(equal(p, 0)), dtype=np.int32)
        p = roll(where(equal(leading, size), scalar_like(1, p), p), negative(leading))
    lead, rest = slice_in_dim(p, 0, 1, 0), slice_in_dim(p, 1, size, 0)
    first_row = reshape(divide(multiply(rest, -1), lead), (1, size - 1))
    below = convert(np.eye(size - 2, size - 1, dtype=aval_of(p).dtype), aval_of(p).dtype, weak)
    found = linalg.eigvals(concatenate([first_row, below], 0) if size > 2 else first_row)
    found = convert(found, dtype, weak)
    if not strip_zeros:  # a leading zero has become a root of 0, exactly
        found = take(found, argsort(equal(found, 0)))
        none = scalar_like(complex(math.nan, math.nan), found)
        found = where(less(np.arange(size - 1), subtract(size - 1, leading)), found, none)
    return concatenate([found, none], 0) if trailing else found


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Return the matrix whose columns are powers of a vector, the highest first (the lowest, with `increasing`).

    >>> vander([1, 2, 3], 3)
    array([[1, 1, 1],
           [4, 2, 1],
           [9, 3, 1]])
    """
    x = as_array_operand(x)
    if len(shape_of(x)) != 1:
        raise ShapeError(at_user_line(f"vander: a vector is needed, the shape is {shape_of(x)}"))
    count = shape_of(x)[0] if N is None else as_integer("vander", N)
    if count < 0:
        raise ArgumentError(at_user_line(f"vander: N={count}; a number from 0 on is needed"))
    x = as_dtype(x, np.int32) if aval_of(x).dtype == dtypes.bool_ else x
    columns = [broadcast_to(scalar_like(1, x), shape_of(x))]
    while len(columns) < count:
        columns.append(multiply(columns[-1], x))
    if not count:
        return zeros((shape_of(x)[0], 0), aval_of(x).dtype)
    return stack(columns if increasing else columns[::-1], 1)


def polyfit(x: Any, y: Any, deg: int, rcond: float | None = None, full: bool = False, w: Any = None,
            cov: bool | str = False) -> Any:
    """Return the polynomial of degree `deg` with the least sum of squared distances from the points (`x`, `y`).

    `w` are weights of the distances; each column of a matrix `y` is fitted separately. With `full` the result is `(p,
    residuals, rank, singular values, rcond)`, with `cov` it is p and its covariance (`"unscaled"`: as if the weights
    were exact). Raises `ShapeError` for other shapes, `ArgumentError` for a negative degree.

    >>> [round(float(coefficient), 4) for coefficient in polyfit([0.0, 1.0, 2.0], [1.0, 3.0, 5.0], 1)]
    [2.0, 1.0]
    """
    x, y = as_numpy_scalars(promote_inexact(*operands(x, y)))
    size = _order("polyfit", deg) + 1
    count = shape_of(x)[0] if len(shape_of(x)) == 1 else -1
    if count < 1 or len(shape_of(y)) not in (1, 2) or shape_of(y)[0] != count:
        raise ShapeError(at_user_line(f"polyfit: x of shape {shape_of(x)} and y of shape {shape_of(y)}; a vector with "
                                      "elements, and a row or an element for each of them, are needed"))
    rcond = count * float(dtypes.finfo(aval_of(x).dtype).eps) if rcond is None else rcond
    left, right = vander(x, size), y
    if w is not None:
        w, = promote_inexact(as_array_operand(w))
        if shape_of(w) != (count,):
            raise ShapeError(at_user_line(f"polyfit: weights of shape {shape_of(w)} for {count} points"))
        left = multiply(left, reshape(w, (count, 1)))
        right = multiply(y, reshape(w, (count, *(1,) * (len(shape_of(y)) - 1))))
    scale = sqrt(sum(square(left), 0))
    scale = where(equal(scale, 0), 1, scale)
    solution, residuals, rank, singular = linalg.lstsq(divide(left, scale), right, rcond)
    solution = divide(solution, reshape(scale, (size, *(1,) * (len(shape_of(y)) - 1))))
    if full:
        return solution, residuals, rank, singular, rcond
    if not cov:
        return solution
    base = linalg.inv(matmul(matrix_transpose(left), left))
    if cov != "unscaled":
        if count <= size:
            raise ArgumentError(at_user_line(f"polyfit: the covariance needs more than {size} points, got {count}"))
        base_scale = divide(residuals, count - size)
        if len(shape_of(y)) == 2:
            return solution, multiply(reshape(base, (size, size, 1)), base_scale)
        return solution, multiply(base, base_scale)
    return solution, base

