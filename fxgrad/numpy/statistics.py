"""Means and variances, weighted and without NaNs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.caches import cached
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_dtype,
    axes_of,
    axis_of,
    mask_of,
    promote_inexact,
    refuse_out,
    shape_of,
)
from fxgrad.engine.higher_order.call import library_function
from fxgrad.engine.ops import exponential, parts
from fxgrad.engine.ops.arithmetic import div, mul, sub
from fxgrad.engine.ops.creation import size_in
from fxgrad.engine.ops.structural import broadcast_to, convert, reduce_sum, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, ShapeError
from fxgrad.numpy import reductions
from fxgrad.numpy.arithmetic import divide, multiply, subtract
from fxgrad.numpy.elementwise import isnan, sqrt
from fxgrad.numpy.logic import greater, logical_and, logical_not
from fxgrad.numpy.logic import where as choose
from fxgrad.numpy.reductions import Axis, kept_shape, sum
from fxgrad.numpy.shaping import transpose


def _widened(a: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the array in the dtype to compute in, and the result's dtype; narrow floats accumulate in float32."""
    a = as_array_operand(a)
    own = aval_of(a).dtype
    inexact = promote_inexact(a)[0] if dtype is None else a
    wanted = aval_of(inexact).dtype if dtype is None else dtypes.canonical(dtype)
    # float32 lacks digits of integers of 32 bits.
    exact = own if dtype is None else wanted
    inner = dtypes.float64 if dtypes.is_integer(exact) and exact.itemsize > 2 else dtypes.inexact_dtype(wanted)
    if inner.itemsize < 4:
        inner = dtypes.float32
    return (inexact if aval_of(inexact).dtype == inner else as_dtype(a, inner)), wanted


def _narrow(x: Any, dtype: Any) -> Any:
    return x if aval_of(x).dtype == dtype else convert(x, dtype)


def _count(number: Any, like: Aval) -> Any:
    """Return a number of elements in their dtype."""
    return size_in(number, like.dtype, like.weak) if has_symbolic_dim(number) else _literal(number, like)


@cached("counts of elements", 1024)
def _literal(number: float, like: Aval) -> Literal:
    return Literal(number, Aval((), like.dtype, like.weak))


@partial(library_function, name="mean")
def _mean(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    shape = shape_of(x)
    result = div(reduce_sum(x, axes), _count(math.prod([shape[axis] for axis in axes]), aval_of(x)))
    return reshape(result, kept_shape(shape, axes)) if keepdims else result


def mean(a: Any, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *,
         where: Any = None) -> Any:
    """Return the mean over `axis` (None: all axes), in `dtype` if given, else a float for integers; NaN of no elements.

    With `keepdims` the axes stay, of size 1; only elements where `where` is true count.

    >>> float(mean([1.0, 2.0, 6.0]))
    3.0
    """
    refuse_out("mean", out)
    if type(a) is Tracer and dtype is None and where is None and a.dtype.kind in "fc" and a.dtype.itemsize > 2:
        return _mean(a, axes_of("mean", axis, len(a.shape)), keepdims)
    x, wanted = _widened(a, dtype)
    axes = axes_of("mean", axis, len(shape_of(x)))
    if where is None:
        return _narrow(_mean(x, axes, keepdims), wanted)
    where = broadcast_to(mask_of("mean", where), shape_of(x))
    total, aval = sum(choose(where, x, 0.0), axes, keepdims=keepdims), aval_of(x)
    # Converted, since a sum over all axes is a NumPy scalar, which gives way to the dtype of the count.
    return _narrow(divide(total, convert(sum(where, axes, keepdims=keepdims), aval.dtype, aval.weak)), wanted)


@partial(library_function, name="var")
def _var(x: Any, axes: tuple[int, ...], correction: float, keepdims: bool) -> Any:
    shape = shape_of(x)
    apart = sub(x, _mean(x, axes, True))
    squares = _squared_modulus(apart)
    count = math.prod(shape[axis] for axis in axes)
    result = div(reduce_sum(squares, axes), _degrees(count, correction, aval_of(squares)))
    return reshape(result, kept_shape(shape, axes)) if keepdims else result


def _degrees(count: Any, correction: float, like: Aval) -> Any:
    """Return the number of elements less the correction; NaN unless it is positive."""
    if not has_symbolic_dim(count):
        left = count - correction
        return float(left) if left > 0 else math.nan
    left = sub(size_in(count, like.dtype, like.weak), _literal(correction, like))
    return choose(greater(left, 0), left, math.nan)


def _squared_modulus(x: Any) -> Any:
    if dtypes.is_complex(aval_of(x).dtype):
        return parts.real(mul(x, parts.conj(x)))
    return exponential.square(x)


def _correction(ddof: float, correction: float | None) -> float:
    name, given = ("ddof", ddof) if correction is None else ("correction", correction)
    if isinstance(given, str | complex | Sequence):
        raise ArgumentError(at_user_line(f"var: {name} must be a real number, got {given!r}"))
    if correction is None:
        return ddof
    if ddof != 0:
        raise ArgumentError(at_user_line(f"var: ddof={ddof!r} and correction={correction!r} are two names for one "
                                         "number; give one of them"))
    return correction


def var(a: Any, axis: Axis = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False, *,
        where: Any = None, mean: Any = None, correction: float | None = None) -> Any:
    """Return the variance over `axis`: the mean squared distance from the mean, over n - `ddof` elements; real.

    `correction` is another name for `ddof`; `mean` is the mean if it is known (with its axes kept); the other arguments
    are those of `mean`. Raises `ArgumentError` if both of the names are given, and `DTypeError` for a real `dtype` of
    complex numbers.

    >>> float(var([1.0, 2.0, 6.0]))
    4.666666666666667
    """
    refuse_out("var", out)
    if dtype is not None and not dtypes.is_complex(dtypes.canonical(dtype)):
        own = aval_of(a := as_array_operand(a)).dtype
        if dtypes.is_complex(own):
            raise DTypeError(at_user_line(
                f"var: complex numbers ({own.name}) cannot be computed with in {dtypes.canonical(dtype).name}. "
                "Leave dtype= out: the variance is real, and .astype converts it"))
    x, wanted = _widened(a, dtype)
    wanted = dtypes.real_dtype(wanted)
    axes = axes_of("var", axis, len(shape_of(x)))
    less = _correction(ddof, correction)
    if where is None and mean is None:
        return _narrow(_var(x, axes, less, keepdims), wanted)
    chosen = broadcast_to(np.bool_(True) if where is None else mask_of("var", where), shape_of(x))
    real = Aval((), dtypes.real_dtype(aval_of(x).dtype), aval_of(x).weak)
    count = convert(sum(chosen, axes, keepdims=True), real.dtype, real.weak)  # as an integer it would cost digits
    x = choose(chosen, x, 0.0)  # before further computation: derivatives of excluded elements may be NaN
    centre = divide(sum(x, axes, keepdims=True), count) if mean is None else mean
    squares = choose(chosen, _squared_modulus(subtract(x, centre)), 0.0)
    left = subtract(count, less)
    result = divide(sum(squares, axes, keepdims=True), choose(left > 0, left, math.nan))
    if not keepdims:
        result = reshape(result, tuple(extent for at, extent in enumerate(shape_of(result)) if at not in axes))
    return _narrow(result, wanted)


def std(a: Any, axis: Axis = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False, *,
        where: Any = None, mean: Any = None, correction: float | None = None) -> Any:
    """Return the standard deviation over `axis`, the square root of the variance; the arguments are those of `var`.

    Its derivative at equal numbers is NaN, as in jax. With `fxgrad.nan_safe` it is 0; or write `sqrt(var(a) + 1e-12)`.

    >>> import fxgrad, numpy as np
    >>> float(std([1.0, 3.0])), fxgrad.grad(fxgrad.nan_safe(std))(np.ones(2))
    (1.0, array([0., 0.]))
    """
    return sqrt(var(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction))


def average(a: Any, axis: Axis = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    """Return the mean over `axis`, weighted; with `returned` also the sum of the weights.

    `weights` has the shape of `a`, or of the axes in `axis`, in their order. Raises `ShapeError` for other shapes.

    >>> float(average([1.0, 2.0], weights=[3.0, 1.0]))
    1.25
    """
    a = as_array_operand(a)
    shape = shape_of(a)
    axes = axes_of("average", axis, len(shape))
    if weights is None:
        result = mean(a, axis, keepdims=keepdims)
        count = math.prod(shape[at] for at in axes)
        if not returned:
            return result
        return result, (broadcast_to(_count(count, aval_of(result)), shape_of(result)) if has_symbolic_dim(count) else
                        np.full(shape_of(result), count, aval_of(result).dtype))
    weights = as_array_operand(weights)
    if shape_of(weights) != shape:
        order = [axis_of("average", at, len(shape)) for at in (axis if isinstance(axis, Sequence) else axes)]
        if axis is None or shape_of(weights) != tuple(shape[at] for at in order):
            raise ShapeError(at_user_line(f"average: weights of shape {shape_of(weights)} for an array of shape "
                                          f"{shape} along axis {axis}; the same shape, or that of the axes, is "
                                          "needed"))
        weights = reshape(transpose(weights, sorted(range(len(order)), key=order.__getitem__)),
                          tuple(extent if at in axes else 1 for at, extent in enumerate(shape)))
    a, weights = promote_inexact(a, weights)
    weights = broadcast_to(weights, shape)
    total = sum(weights, axis, keepdims=keepdims)
    result = divide(sum(multiply(a, weights), axis, keepdims=keepdims), total)
    return (result, total) if returned else result


# --- without NaNs -------------------------------------------------------------------------------------------------


def _ignoring_nans(name: str, function: Callable[..., Any], fill: float) -> Callable[..., Any]:
    def spared(a: Any, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False,
               initial: Any = None, where: Any = None) -> Any:
        a = as_array_operand(a)
        a = choose(isnan(a), fill, a) if dtypes.is_inexact(aval_of(a).dtype) else a
        return function(a, axis, dtype, out, keepdims, initial, where)
    spared.__name__ = spared.__qualname__ = name
    return spared


nansum = _ignoring_nans("nansum", reductions.sum, 0.0)
nansum.__doc__ = """Return the sum like `sum`, with NaNs left out."""
nanprod = _ignoring_nans("nanprod", reductions.prod, 1.0)
nanprod.__doc__ = """Return the product like `prod`, with NaNs left out."""


def _extremum(name: str, function: Callable[..., Any], fill: float) -> Callable[..., Any]:
    def spared(a: Any, axis: Axis = None, out: Any = None, keepdims: bool = False, initial: Any = None,
               where: Any = None) -> Any:
        a = as_array_operand(a)
        if not dtypes.is_inexact(aval_of(a).dtype):
            return function(a, axis, out, keepdims, initial, where)
        result = function(choose(isnan(a), fill, a), axis, out, keepdims, initial, where)
        if initial is not None:
            return result
        return choose(reductions.all(isnan(a), axis, keepdims=keepdims), math.nan, result)
    spared.__name__ = spared.__qualname__ = name
    return spared


nanmax = _extremum("nanmax", reductions.max, -math.inf)
nanmax.__doc__ = """Return the maximum like `max`, with NaNs left out; NaN where there is nothing else."""
nanmin = _extremum("nanmin", reductions.min, math.inf)
nanmin.__doc__ = """Return the minimum like `min`, with NaNs left out; NaN where there is nothing else."""


def _position(name: str, function: Callable[..., Any], fill: float) -> Callable[..., Any]:
    def spared(a: Any, axis: int | None = None, out: Any = None, keepdims: bool | None = None) -> Any:
        a = as_array_operand(a)
        chosen = choose(isnan(a), fill, a) if dtypes.is_inexact(aval_of(a).dtype) else a
        found = function(chosen, axis, out, keepdims)
        return choose(reductions.all(isnan(a), axis, keepdims=bool(keepdims)), np.int32(-1), found)
    spared.__name__ = spared.__qualname__ = name
    return spared


nanargmax = _position("nanargmax", reductions.argmax, -math.inf)
nanargmax.__doc__ = """Return positions like `argmax`, with NaNs left out; -1 where there is nothing else."""
nanargmin = _position("nanargmin", reductions.argmin, math.inf)
nanargmin.__doc__ = """Return positions like `argmin`, with NaNs left out; -1 where there is nothing else."""


def _combine_masks(name: str, there: Any, where: Any) -> Any:
    return there if where is None else logical_and(there, mask_of(name, where))


def nanmean(a: Any, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False,
            where: Any = None) -> Any:
    """Return the mean like `mean`, with NaNs left out.

    >>> float(nanmean([1.0, float("nan"), 3.0]))
    2.0
    """
    a = as_array_operand(a)
    there = logical_not(isnan(a))
    return mean(a, axis, dtype, out, keepdims, where=_combine_masks("nanmean", there, where))


def nanvar(a: Any, axis: Axis = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False,
           where: Any = None, mean: Any = None) -> Any:
    """Return the variance like `var`, with NaNs left out.

    >>> float(nanvar([1.0, float("nan"), 3.0]))
    1.0
    """
    a = as_array_operand(a)
    there = logical_not(isnan(a))
    return var(a, axis, dtype, out, ddof, keepdims, where=_combine_masks("nanvar", there, where), mean=mean)


def nanstd(a: Any, axis: Axis = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False,
           where: Any = None, mean: Any = None) -> Any:
    """Return the standard deviation like `std`, with NaNs left out.

    >>> float(nanstd([1.0, float("nan"), 3.0]))
    1.0
    """
    return sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where, mean))
