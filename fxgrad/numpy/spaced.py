"""Numbers spaced evenly, or by equal factors: linspace, logspace, geomspace."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.arrays import WeakArray, freeze_result
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.sizes import has_symbolic_dim, max_size
from fxgrad.engine.frontend.operands import (
    as_dtype,
    as_integer,
    axis_of,
    common_shape,
    common_type,
    constant_array,
    is_concrete,
    promote_inexact,
    shape_of,
)
from fxgrad.engine.frontend.strict import as_dtype_or_none
from fxgrad.engine.ops.arithmetic import mul, sub
from fxgrad.engine.ops.parts import floor
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.structural import broadcast_to, convert, move_axis, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError
from fxgrad.numpy.arithmetic import divide, multiply, power
from fxgrad.numpy.creation import as_common_arrays, asarray
from fxgrad.numpy.inspection import check_device
from fxgrad.numpy.python_numbers import array_of_traced_numbers
from fxgrad.numpy.sizes import fractions_of


def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
             axis: int = 0, *, device: Any = None) -> Any:
    """Return `num` numbers evenly spaced from `start` to `stop`, which is the last one unless `endpoint` is False.

    The bounds may be arrays, which broadcast; the numbers run along a new `axis`. With `retstep` also the distance.

    >>> linspace(0.0, 1.0, 3)
    array([0. , 0.5, 1. ], dtype=float32)
    """
    check_device("linspace", device)
    num = as_integer("linspace", num)
    if num < 0:
        raise ArgumentError(at_user_line(f"linspace: num must not be negative, got {num}"))
    given = (start, stop)
    start, stop = _bounds(dtype, start, stop)
    gaps = num - 1 if endpoint else num
    low, high = (broadcast_to(bound, common_shape("linspace", shape_of(start), shape_of(stop)))
                 for bound in (start, stop))
    inner = aval_of(low).dtype
    wanted = inner if dtype is None else dtypes.canonical(dtype)
    rank = len(shape_of(low))
    if _are_known(num, axis, *given) and abs(given[1] - given[0]) < math.inf:
        with np.errstate(all="ignore"):
            numbers = freeze_result(np.linspace(*given, num, endpoint).astype(inner))
    else:
        fractions = np.arange(num) / max(gaps, 1) if not has_symbolic_dim(num) else fractions_of(num, max_size(gaps, 1))
        part = reshape(convert(fractions, inner), (num,) + (1,) * rank)
        numbers = add(mul(low, sub(1.0, part)), mul(high, part))
    if dtypes.is_integer(wanted):
        numbers = floor(numbers)
    weak = dtype is None and _are_weak(low, high)
    result = array_of_traced_numbers(move_axis(convert(numbers, wanted, weak), 0, axis_of("linspace", axis, rank + 1)))
    if not retstep:
        return result
    return result, mul(sub(high, low), 1 / gaps) if gaps > 0 else constant_array(shape_of(low), math.nan, inner)


def _bounds(dtype: Any, *bounds: Any) -> list[Any]:
    """Return the bounds as inexact arrays of one dtype, with all digits that the result may show."""
    wanted = as_dtype_or_none(dtype)
    if wanted is None:
        return promote_inexact(*as_common_arrays(bounds))
    inner = dtypes.float64 if dtypes.kind_of(wanted) in "biu" else wanted
    if any(isinstance(bound, complex) for bound in bounds):
        inner = dtypes.complex_dtype(inner)
    arrays = [asarray(bound) if hasattr(bound, "dtype") else asarray(bound, inner) for bound in bounds]
    common = common_type([aval_of(array) for array in arrays] + (
        [] if dtypes.kind_of(wanted) in "biu" else [Aval((), wanted)]))[0]
    return [as_dtype(array, dtypes.inexact_dtype(common)) for array in arrays]


def _are_weak(*bounds: Any) -> bool:
    """Return whether numbers between bounds are weak: if these are, traced or with axes. Others keep their digits."""
    return all(aval_of(bound).weak for bound in bounds) and any(
        not is_concrete(bound) or type(bound) is WeakArray for bound in bounds)


def _are_known(num: Any, axis: Any, *bounds: Any) -> bool:
    """Return whether the bounds are Python's real numbers, for which NumPy computes in float64, to be rounded once."""
    return type(num) is int and num >= 0 and type(axis) is int and axis in (0, -1) and all(
        type(bound) in (int, float) for bound in bounds)


def _rounded(function: Any, args: tuple[Any, ...], inner: Any, dtype: Any) -> Any:
    with np.errstate(all="ignore"):
        return as_dtype(asarray(function(*args).astype(inner)), dtype)


def logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None,
             axis: int = 0) -> Any:
    """Return powers of `base` whose exponents are evenly spaced from `start` to `stop`.

    >>> logspace(0.0, 2.0, 3)
    array([  1.,  10., 100.], dtype=float32)
    """
    numbers = (start, stop, base)
    start, stop, base = _bounds(dtype, *numbers)
    aval = aval_of(start)
    if _are_known(num, axis, *numbers):
        return _rounded(np.logspace, (*numbers[:2], num, endpoint, numbers[2]), aval.dtype, dtype)
    exponents = linspace(start, stop, num, endpoint, dtype=aval.dtype, axis=axis)
    return array_of_traced_numbers(as_dtype(power(base, convert(exponents, aval.dtype, _are_weak(start, stop))), dtype))


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    """Return numbers from `start` to `stop`, both positive, each the same multiple of the one before it.

    >>> geomspace(1.0, 4.0, 3)
    array([1., 2., 4.], dtype=float32)
    """
    numbers = (start, stop)
    start, stop = _bounds(dtype, start, stop)
    if _are_known(num, axis, *numbers) and numbers[0] * numbers[1] > 0:  # the ratio may be too large for the dtype
        return _rounded(np.geomspace, (*numbers, num, endpoint), aval_of(start).dtype, dtype)
    ratio = divide(stop, start)
    shape = shape_of(ratio)
    aval = aval_of(start)
    exponents = linspace(0.0, broadcast_to(1.0, shape) if shape else 1.0, num, endpoint, dtype=aval.dtype, axis=axis)
    exponents = convert(exponents, aval.dtype, _are_weak(start, stop))
    if shape:  # the new axis is somewhere among those of the bounds
        place = axis_of("geomspace", axis, len(shape) + 1)
        start, ratio = (reshape(broadcast_to(each, shape), (*shape[:place], 1, *shape[place:]))
                        for each in (start, ratio))
    return array_of_traced_numbers(as_dtype(multiply(start, power(ratio, exponents)), dtype))
