"""Create arrays: from lists, of constants, counting, and patterns such as the identity."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.arrays import ARRAYS, Integer, WeakArray, make_weak
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_axis_size,
    as_dtype,
    as_integer,
    as_new_shape,
    cast_operand,
    constant_array,
    default_float_dtype,
    from_nested,
    is_concrete,
    is_staging,
    new_array,
    ones_on_diagonal,
    operand,
    promote_operands,
    shape_of,
)
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.frontend.strict import as_dtype_or_none
from fxgrad.engine.ops.arithmetic import mul
from fxgrad.engine.ops.comparison import ge
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.structural import broadcast_to, convert, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError
from fxgrad.numpy.inspection import check_device
from fxgrad.numpy.python_numbers import are_python_numbers, array_of_numbers, default_width, refuse_imaginary
from fxgrad.numpy.sizes import numbers_between

# --- from given values --------------------------------------------------------------------------------------------


def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: bool | None = None, device: Any = None,
            out_sharding: Any = None) -> Any:
    """Return `a` as an array: nested lists (of numbers and arrays, traced ones too), numbers, arrays of any kind.

    Python numbers become the default float dtype, int32, or bool; arrays keep their dtype unless `dtype` is given.
    Raises `ShapeError` for ragged lists of arrays, `ArgumentError` for other objects, and `OverflowError` for a Python
    integer that `dtype`, or any integer dtype, cannot hold.

    >>> asarray([1.0, 2.0])
    array([1., 2.], dtype=float32)
    """
    if out_sharding is not None:
        return place_array("asarray", asarray(a, dtype, order, copy=copy, device=device), out_sharding)
    check_device("asarray", device)
    del order  # executors choose the memory layout
    if are_python_numbers(a):
        numbers, wanted = np.asarray(a), as_dtype_or_none(dtype)
        if wanted == np.uint64 and numbers.dtype.kind == "f":  # NumPy rounds integers from 2^63 on beside smaller ones
            exact = np.asarray(a, object)
            numbers = exact if all(isinstance(number, int) for number in exact.flat) else numbers
        return array_of_numbers(numbers, wanted)
    is_cast = dtype is not None and isinstance(a, list | tuple)
    array = from_nested(a, functools.partial(asarray, dtype=dtype)) if is_cast else operand(a)
    aval = aval_of(array)  # raises for strings and objects
    if dtype is not None and type(array) is Tracer and aval.weak:
        refuse_imaginary(aval.dtype, dtypes.canonical(dtype))
    if copy and type(array) in ARRAYS:
        array = array.copy()
    return as_dtype(array, dtype)


def array(object: Any, dtype: Any = None, copy: bool = True, order: Any = "K", ndmin: int = 0, *, device: Any = None,
          out_sharding: Any = None) -> Any:
    """Return an array like `asarray`, but copy NumPy arrays, and put axes of size 1 in front up to `ndmin` axes.

    >>> array([1, 2], ndmin=2).shape
    (1, 2)
    """
    if out_sharding is not None:
        return place_array("array", array(object, dtype, copy, order, ndmin, device=device), out_sharding)
    result = asarray(object, dtype, order, copy=copy, device=device)
    shape, least = shape_of(result), as_integer("array", ndmin)
    return reshape(result, (1,) * (least - len(shape)) + shape) if len(shape) < least else result


def as_common_arrays(values: Sequence[Any]) -> list[Any]:
    """Return each value as `asarray` does, in one dtype, to which Python numbers give way.

    >>> import numpy as np
    >>> as_common_arrays([np.ones(1), 0.1, [2]])[1:]
    [array(0.1), array([2.])]
    """
    numbers = [type(value) is not Integer and are_python_numbers(value) for value in values]
    if all(numbers):
        return promote_operands(*map(asarray, values))
    if not any(numbers):
        return promote_operands(*map(operand, values))
    read = [np.asarray(value) if number else operand(value) for value, number in zip(values, numbers, strict=True)]
    avals = [aval_of(each) for each in read]
    dtype, weak = dtypes.promote(*((aval.dtype, aval.weak or (number and aval.dtype != dtypes.bool_))
                                   for aval, number in zip(avals, numbers, strict=True)))
    if weak and not any(aval.weak for aval in avals):
        return promote_operands(*map(asarray, values))  # bools and Python's numbers
    return [(convert(array_of_numbers(each, dtype), dtype, weak) if weak else array_of_numbers(each, dtype)) if number
            else cast_operand(each, dtype, weak) for each, number in zip(read, numbers, strict=True)]


def rows_of(arrays: Any) -> list[Any]:
    """Return the entries of a caller's sequence of arrays, or the rows of one array, as weak as it is.

    Numbers out of NumPy's vectors become arrays of shape (), since NumPy's scalars of float64 are weak.

    >>> import numpy as np
    >>> rows_of(np.ones(2)), rows_of([2, 3])
    ([array(1.), array(1.)], [2, 3])
    """
    if isinstance(arrays, np.ndarray) and arrays.ndim:
        if type(arrays) is WeakArray:
            return [make_weak(row) for row in np.asarray(arrays)]
        return [arrays[place, ...] for place in range(len(arrays))]
    return list(arrays)


def as_arrays_keeping_dtypes(values: Sequence[Any]) -> list[Any]:
    """Return each value as `asarray` does, in its own dtype; Python numbers give way, bools do not.

    >>> import numpy as np
    >>> [each.dtype.name for each in as_arrays_keeping_dtypes([np.ones(1), np.ones(1, np.int8), 0.1, True])]
    ['float64', 'int8', 'float64', 'bool']
    """
    return [operand(value) if not are_python_numbers(value) else
            asarray(value) if np.asarray(value).dtype == dtypes.bool_ else common
            for value, common in zip(values, as_common_arrays(values), strict=True)] if values else []


def copy(a: Any, order: Any = None) -> Any:
    """Return a copy of an array; a traced one is immutable, and its own copy.

    >>> copy([1.0])
    array([1.], dtype=float32)
    """
    return array(a, order=order)


def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Any:
    """Return `x` converted to `dtype` (None: float64, as in NumPy); complex to real drops the imaginary part.

    >>> astype([1.5], int)
    array([1])
    """
    check_device("astype", device)
    return array(as_dtype(as_array_operand(x), dtypes.canonical(dtype)), copy=copy)


def widen_half(x: Any) -> Any:
    """Return half precision numbers in float32."""
    return astype(x, dtypes.float32) if dtypes.is_floating(aval_of(x).dtype) and aval_of(x).dtype.itemsize < 4 else x


# --- constants ----------------------------------------------------------------------------------------------------


def _dtype_or_default(dtype: Any) -> DType:
    return default_float_dtype() if dtype is None else dtypes.canonical(dtype)


def zeros(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Return an array of zeros; `dtype` is by default the default float dtype.

    >>> zeros(2)
    array([0., 0.], dtype=float32)
    """
    if out_sharding is not None:
        return place_array("zeros", zeros(shape, dtype, device=device), out_sharding)
    check_device("zeros", device)
    return constant_array(as_new_shape("zeros", shape), 0, _dtype_or_default(dtype))


def ones(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Return an array of ones; `dtype` is by default the default float dtype.

    >>> ones(2, dtype=int)
    array([1, 1])
    """
    if out_sharding is not None:
        return place_array("ones", ones(shape, dtype, device=device), out_sharding)
    check_device("ones", device)
    return constant_array(as_new_shape("ones", shape), 1, _dtype_or_default(dtype))


def empty(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Return zeros, like `zeros`: programs have no undefined values.

    >>> empty((0, 2)).shape
    (0, 2)
    """
    if out_sharding is not None:
        return place_array("empty", empty(shape, dtype, device=device), out_sharding)
    check_device("empty", device)
    return zeros(as_new_shape("empty", shape), dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Return an array of one repeated value, of its dtype unless `dtype` is given; `fill_value` broadcasts to `shape`.

    >>> full(2, 7.0)
    array([7., 7.], dtype=float32)
    """
    if out_sharding is not None:
        return place_array("full", full(shape, fill_value, dtype, device=device), out_sharding)
    check_device("full", device)
    sizes = as_new_shape("full", shape)
    value = asarray(fill_value, dtype)
    if is_concrete(value) and not shape_of(value):
        return constant_array(sizes, value, aval_of(value).dtype)
    return broadcast_to(value, sizes)


# --- counting -----------------------------------------------------------------------------------------------------


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None,
           out_sharding: Any = None) -> Any:
    """Return numbers from `start` (0 if only one bound is given) to below `stop`, `step` apart; all static.

    The dtype is int32 for integers and the default float dtype otherwise, unless given.

    >>> arange(3), arange(1.0, 2.0, 0.5)
    (array([0, 1, 2], dtype=int32), array([1. , 1.5], dtype=float32))
    """
    if out_sharding is not None:
        return place_array("arange", arange(start, stop, step, dtype, device=device), out_sharding)
    check_device("arange", device)
    if stop is None:
        start, stop = 0, start
    if has_symbolic_dim(start, stop, step):
        return numbers_between(start, stop, 1 if step is None else step, dtype)
    bounds = [_static(bound) for bound in (start, stop, 1 if step is None else step)]
    if bounds[2] == 0 or not all(map(math.isfinite, bounds)):
        first, last, apart = bounds
        raise ArgumentError(at_user_line(f"arange: it counts from {first} to {last} in steps of {apart}; finite "
                                         "numbers and a step that is not 0 are needed"))
    counted = np.arange(*bounds)
    wanted = aval_of(default_width(counted)).dtype if dtype is None else dtypes.canonical(dtype)
    if is_staging() and counted.size > 16 and dtypes.is_integer(wanted):
        begin, _, stride = bounds
        result = iota(wanted, counted.shape)
        result = result if stride == 1 else mul(result, stride)
        return result if begin == 0 else add(result, begin)
    return counted.astype(wanted)


def _static(bound: Any) -> Any:
    if type(bound) is Tracer:
        return operator.index(bound)
    number = bound.item() if getattr(bound, "shape", None) == () else bound
    if not isinstance(number, bool | int | float):
        raise ArgumentError(at_user_line(f"arange: start, stop and step are real numbers, got {bound!r}"))
    return number


# --- patterns -----------------------------------------------------------------------------------------------------


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """Return a matrix with ones on the `k`-th diagonal.

    >>> eye(2)
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    check_device("eye", device)
    shape = as_axis_size("eye", N), as_axis_size("eye", N if M is None else M)
    return ones_on_diagonal(shape, diagonal_number("eye", k), _dtype_or_default(dtype))


def identity(n: int, dtype: Any = None) -> Any:
    """Return the identity matrix of size `n`.

    >>> identity(1)
    array([[1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


def diagonal_number(name: str, k: Any) -> Any:
    """Return the number of a diagonal that a caller gave, which may be traced."""
    if isinstance(k, Tracer) and not k.shape and dtypes.kind_of(k.dtype) in "iu":
        return convert(k, dtypes.int32)
    return as_integer(name, k)


def lower_triangle(rows: int, columns: int, k: Any) -> Any:
    """Return a matrix of bools: True on and below the `k`-th diagonal."""
    shape = rows, columns
    if is_staging() or type(k) is Tracer:
        return ge(add(iota(dtypes.int32, shape, 0), k), iota(dtypes.int32, shape, 1))
    return np.tri(rows, columns, k, dtype=bool)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """Return a matrix with ones on and below the `k`-th diagonal.

    >>> tri(2)
    array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    rows, columns = as_axis_size("tri", N), as_axis_size("tri", N if M is None else M)
    return convert(lower_triangle(rows, columns, diagonal_number("tri", k)), _dtype_or_default(dtype))


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Any]:
    """Return coordinates of a grid: each vector repeated along the axes of the others (`sparse`: of size 1 there).

    Arrays of other shapes are flattened, as in NumPy. Raises `ArgumentError` if `indexing` is neither `"xy"` nor
    `"ij"`.

    >>> [grid.shape for grid in meshgrid([1.0, 2.0], [3.0, 4.0, 5.0])]
    [(3, 2), (3, 2)]
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(at_user_line(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}"))
    vectors = [reshape(array, (aval_of(array).size,)) for array in as_arrays_keeping_dtypes(xi)]
    order: Sequence[int] = [1, 0, *range(2, len(vectors))] if indexing == "xy" and len(vectors) > 1 \
        else range(len(vectors))
    sizes = [shape_of(vectors[place])[0] for place in order]
    placed = [reshape(vector, tuple(shape_of(vector)[0] if order[axis] == place else 1 for axis in range(len(sizes))))
              for place, vector in enumerate(vectors)]
    grids = placed if sparse else [broadcast_to(vector, tuple(sizes)) for vector in placed]
    return [new_array(grid, vector) for grid, vector in zip(grids, vectors, strict=True)] if copy else grids
