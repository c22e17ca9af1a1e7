"""Reductions: sums, products, extrema, means and variances, tests of all elements, positions of extrema."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_dtype,
    axes_of,
    axis_of,
    mask_of,
    new_array,
    operand,
    refuse_out,
    shape_of,
)
from fxgrad.engine.frontend.ufuncs import as_bool
from fxgrad.engine.frontend.ufuncs import reductions as reductions_by
from fxgrad.engine.ops import reductions
from fxgrad.engine.ops.structural import convert, reduce_sum, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy.arithmetic import add, maximum, minimum, multiply, subtract
from fxgrad.numpy.logic import logical_and, logical_or
from fxgrad.numpy.logic import where as choose
from fxgrad.numpy.python_numbers import are_python_numbers, array_of_numbers

Axis = int | tuple[int, ...] | None


def kept_shape(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """Return `shape` with size 1 along `axes`."""
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))


def summing_dtype(dtype: DType) -> DType:
    """Return the dtype of a sum of such elements: integers narrower than 32 bits are widened."""
    if dtype.kind == "b":
        return dtypes.int32
    if dtypes.kind_of(dtype) in "iu" and dtype.itemsize < 4:
        return np.dtype(f"{dtypes.kind_of(dtype)}4")
    return dtype


def _accumulate(operation: Callable[..., Any], a: Any, axis: Axis, dtype: Any, keepdims: bool) -> Any:
    """Return a sum or product in the wanted dtype; narrow floats accumulate in float32."""
    a = operand(a)
    aval = aval_of(a)
    axes = axes_of(operation.__name__.removeprefix("reduce_"), axis, aval.ndim)
    wanted = summing_dtype(aval.dtype) if dtype is None else dtypes.canonical(dtype)
    inner = dtypes.float32 if wanted.itemsize < 4 and dtypes.is_floating(wanted) else wanted
    if aval.dtype != inner:
        a = as_dtype(a, inner)
    result = operation(a, axes) if axes else new_array(as_array_operand(a), a)
    if keepdims:
        result = reshape(result, kept_shape(aval.shape, axes))
    return convert(result, wanted) if inner != wanted else result


def sum(a: Any, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None,
        where: Any = None, promote_integers: bool = True) -> Any:
    """Return the sum over `axis` (None: all axes; a tuple: several); small integers become 32 bits wide.

    The result is in `dtype` if given. With `keepdims` the axes stay, of size 1; `initial` is added; only elements where
    `where` is true count. Raises `AxisError` for axes that `a` does not have.

    >>> sum([[1.0, 2.0], [3.0, 4.0]], axis=0)
    array([4., 6.])
    """
    if type(a) is Tracer and axis is None and dtype is None and not keepdims and initial is None and where is None \
            and out is None:
        aval = a.variable.aval
        if aval.dtype.kind in "fc" and aval.dtype.itemsize > 2:
            return reduce_sum(a, range(len(aval.shape)))
    refuse_out("sum", out)
    if where is not None:
        a = choose(mask_of("sum", where), a, _like(a, 0))
    if not promote_integers and dtype is None and dtypes.kind_of(aval_of(operand(a)).dtype) in "iu":
        dtype = aval_of(operand(a)).dtype
    result = _accumulate(reduce_sum, a, axis, dtype, keepdims)
    return result if initial is None else add(result, _first("sum", initial, result))


def prod(a: Any, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None,
         where: Any = None, promote_integers: bool = True) -> Any:
    """Return the product over `axis`; the arguments are those of `sum`.

    >>> float(prod([2.0, 3.0]))
    6.0
    """
    refuse_out("prod", out)
    if where is not None:
        a = choose(mask_of("prod", where), a, _like(a, 1))
    if not promote_integers and dtype is None and dtypes.kind_of(aval_of(operand(a)).dtype) in "iu":
        dtype = aval_of(operand(a)).dtype
    result = _accumulate(reductions.reduce_prod, a, axis, dtype, keepdims)
    return result if initial is None else multiply(result, _first("prod", initial, result))


def _first(name: str, initial: Any, like: Any) -> Any:
    """Return the initial value of a reduction, in the dtype of the elements that it is combined with."""
    if are_python_numbers(initial) and not isinstance(initial, list | tuple):
        return array_of_numbers(np.asarray(initial), aval_of(like).dtype)[()]
    initial = operand(initial)
    if shape_of(initial):
        raise ShapeError(at_user_line(f"{name}: initial must be a number, and has the shape {shape_of(initial)}. "
                                      "Combine an array with the result instead"))
    return as_dtype(initial, aval_of(like).dtype)


def _like(a: Any, value: int) -> Any:
    return np.asarray(value).astype(aval_of(operand(a)).dtype)


# --- extrema ------------------------------------------------------------------------------------------------------


def _extremum(name: str, operation: Callable[..., Any], pair: Any, a: Any, axis: Axis, keepdims: bool, initial: Any,
              where: Any) -> Any:
    a = as_array_operand(a)
    shape = shape_of(a)
    axes = axes_of(name, axis, len(shape))
    if initial is not None:
        if dtypes.is_integer(aval_of(a).dtype) and type(initial) is float and math.isinf(initial):
            limits = dtypes.iinfo(aval_of(a).dtype)  # the infinity of integers
            initial = int(limits.max if initial > 0 else limits.min)
        initial = _first(name, initial, a)
    if where is not None:
        if initial is None:
            raise ArgumentError(at_user_line(f"{name}: where= needs initial=, the result where no element counts"))
        a = choose(mask_of(name, where), a, initial)
        shape = shape_of(a)
    if initial is None and 0 in [shape[at] for at in axes]:
        raise ShapeError(at_user_line(f"{name}: an array of shape {shape} has no elements along axis {axis}, and "
                                      f"there is no {name} of none; give initial="))
    result = operation(a, axes) if axes else new_array(a, a)
    if keepdims:
        result = reshape(result, kept_shape(shape, axes))
    return result if initial is None else pair(result, initial)


def max(a: Any, axis: Axis = None, out: Any = None, keepdims: bool = False, initial: Any = None,
        where: Any = None) -> Any:
    """Return the greatest element over `axis`, NaN if there is a NaN; ties share the derivative equally.

    `keepdims` as in `sum`; `initial` is a lower bound of the result, and required with `where`. Raises `ShapeError` for
    no elements.

    >>> max([[1.0, 5.0], [3.0, 4.0]], axis=1)
    array([5., 4.])
    """
    refuse_out("max", out)
    return _extremum("max", reductions.reduce_max, maximum, a, axis, keepdims, initial, where)


def min(a: Any, axis: Axis = None, out: Any = None, keepdims: bool = False, initial: Any = None,
        where: Any = None) -> Any:
    """Return the least element over `axis`; the arguments are those of `max`.

    >>> float(min([1.0, 5.0]))
    1.0
    """
    refuse_out("min", out)
    return _extremum("min", reductions.reduce_min, minimum, a, axis, keepdims, initial, where)


amax, amin = max, min


def ptp(a: Any, axis: Axis = None, out: Any = None, keepdims: bool = False) -> Any:
    """Return the greatest element minus the least over `axis`.

    >>> float(ptp([1.0, 5.0, 2.0]))
    4.0
    """
    refuse_out("ptp", out)
    greatest = _extremum("ptp", reductions.reduce_max, maximum, a, axis, keepdims, None, None)
    return subtract(greatest, _extremum("ptp", reductions.reduce_min, minimum, a, axis, keepdims, None, None))


def _position(name: str, operation: Callable[..., Any], a: Any, axis: int | None, keepdims: bool | None) -> Any:
    a = as_array_operand(a)
    shape = shape_of(a)
    if axis is None:
        at, flat = 0, reshape(a, (math.prod(shape),))
    else:
        at, flat = axis_of(name, axis, len(shape)), a
    if not shape_of(flat)[at]:
        raise ShapeError(at_user_line(f"{name}: an array of shape {shape} has no elements to choose from"))
    result = operation(flat, at)
    return reshape(result, kept_shape(shape, tuple(range(len(shape))) if axis is None else (at,))) if keepdims \
        else result


def argmax(a: Any, axis: int | None = None, out: Any = None, keepdims: bool | None = None) -> Any:
    """Return the position (int32) of the greatest element along `axis` (None: flattened): the first one, or a NaN.

    >>> int(argmax([1.0, 5.0, 2.0]))
    1
    """
    refuse_out("argmax", out)
    return _position("argmax", reductions.argmax, a, axis, keepdims)


def argmin(a: Any, axis: int | None = None, out: Any = None, keepdims: bool | None = None) -> Any:
    """Return the position of the least element along `axis`, like `argmax`.

    >>> int(argmin([1.0, 5.0, 0.5]))
    2
    """
    refuse_out("argmin", out)
    return _position("argmin", reductions.argmin, a, axis, keepdims)


# --- tests --------------------------------------------------------------------------------------------------------


def _test(name: str, operation: Callable[..., Any], a: Any, axis: Axis, keepdims: bool, where: Any,
          neutral: bool) -> Any:
    a = as_bool(as_array_operand(a))
    if where is not None:
        a = choose(mask_of(name, where), a, np.bool_(neutral))
    shape = shape_of(a)
    axes = axes_of(name, axis, len(shape))
    result = operation(a, axes) if axes else new_array(a, a)
    return reshape(result, kept_shape(shape, axes)) if keepdims else result


def all(a: Any, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = None) -> Any:
    """Return whether all elements over `axis` are true (not zero).

    >>> bool(all([True, False]))
    False
    """
    refuse_out("all", out)
    return _test("all", reductions.reduce_and, a, axis, keepdims, where, True)


def any(a: Any, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = None) -> Any:
    """Return whether any element over `axis` is true (not zero).

    >>> bool(any([True, False]))
    True
    """
    refuse_out("any", out)
    return _test("any", reductions.reduce_or, a, axis, keepdims, where, False)


def count_nonzero(a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Return the number of nonzero elements over `axis`.

    >>> int(count_nonzero([0.0, 2.0, 3.0]))
    2
    """
    nonzero = as_bool(as_array_operand(a))
    return sum(nonzero, axes_of("count_nonzero", axis, len(shape_of(nonzero))), keepdims=keepdims)


def _reduce_as(reduction: Callable[..., Any]) -> Callable[..., Any]:
    """Return `max` or `min` with the option `dtype` of `reduce`, in which elements are compared."""
    def reduce(a: Any, *, dtype: Any = None, **options: Any) -> Any:
        return reduction(as_dtype(as_array_operand(a), dtype), **options)
    return reduce


def _reduce_from(reduction: Callable[..., Any], combine: Callable[..., Any]) -> Callable[..., Any]:
    """Return `all` or `any` with the option `initial` of `reduce`, which is combined with the result."""
    def reduce(a: Any, *, dtype: Any = None, initial: Any = None, **options: Any) -> Any:
        if dtype is not None and np.dtype(dtype) != np.bool_:
            raise ArgumentError(at_user_line(
                f"{combine.__name__}.reduce: dtype is {np.dtype(dtype)}; results are bools"))
        result = reduction(a, **options)
        return result if initial is None else combine(result, initial)
    return reduce


reductions_by.update({add: sum, multiply: prod, maximum: _reduce_as(max), minimum: _reduce_as(min),
                      logical_and: _reduce_from(all, logical_and), logical_or: _reduce_from(any, logical_or)})
