"""Operands: conversion of arguments to arrays, promotion to one dtype, normalization of axes."""

from __future__ import annotations

import operator
from array import array as buffer
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import numpy as np

from fxgrad.engine import config, dtypes
from fxgrad.engine.core.arrays import (
    ARRAYS,
    WEAK_CLASSES,
    Integer,
    as_scalar,
    as_strong_scalar,
    freeze_result,
    make_weak,
    wrap_array,
)
from fxgrad.engine.core.avals import PYTHON_SCALARS, Aval, Literal, Shape
from fxgrad.engine.core.primitive import Primitive, infer_types
from fxgrad.engine.core.sizes import SymbolicDim, index_of
from fxgrad.engine.dtypes import DType
from fxgrad.engine.ops.comparison import eq
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.families import broadcast_shapes
from fxgrad.engine.ops.joining import stack
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.structural import convert, full
from fxgrad.engine.tracing.tape import aval_of, bind, innermost_for, integer_error
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, AxisError, DTypeError, FxgradError, ShapeError, UnsupportedError

WEAK_SCALARS = frozenset({int, Integer, float, complex, np.float64, np.complex128})
"""Types of weakly typed numbers: their dtype gives way to that of arrays."""
_ARRAYS = frozenset({Tracer, np.ndarray, Literal, *PYTHON_SCALARS})


def operand(value: Any) -> Any:
    """Return `value` as an object with a type: nested lists become arrays; raise `ArgumentError` for other objects."""
    if type(value) in _ARRAYS or isinstance(value, np.generic | np.ndarray | jax.Array):
        return value
    if isinstance(value, list | tuple):
        return from_nested(value)
    kind: Any
    for kind in (int, float, complex):  # for a derived class, such as a member of an IntEnum
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, memoryview | bytearray | buffer):
        return np.asarray(value)
    if hasattr(value, "__jax_array__"):
        return operand(value.__jax_array__())
    if value is not None and hasattr(value, "__array__"):
        return np.asarray(value)
    aval_of(value)  # raises
    return value


def from_nested(values: Sequence[Any], to_dtype: Callable[[Any], Any] | None = None) -> Any:
    """Return a nested list as an array: NumPy's, unless it holds traced or jax arrays, which are then stacked.

    Python's numbers give way to the arrays and scalars beside them. With `to_dtype`, which makes arrays of one dtype,
    they keep their digits.
    """
    found: dict[Any, Any] = {}
    _collect_types(values, found)
    if to_dtype is not None and (len(found) > 1 or Tracer in found):
        return from_nested([to_dtype(value) for value in values])
    if not any(type(one) is Tracer or isinstance(one, jax.Array) for one in found.values()):
        array = np.asarray(values)
        return array if len(found) < 2 or array.dtype.kind not in "iufcO" else _promote_collected(array, found)
    parts = promote_operands(*(operand(value) for value in values))
    shapes = {aval_of(part).shape for part in parts}
    if len(shapes) > 1:
        raise ShapeError(at_user_line(f"array: a list of arrays of shapes {', '.join(map(str, sorted(shapes)))}; all "
                                      "must be equal"))
    return stack(parts, 0)


def _collect_types(values: Sequence[Any], found: dict[Any, Any]) -> None:
    """Collect one number of each type, and one array or scalar of each dtype, from a nested list."""
    for value in values:
        kind = type(value)
        if kind in PYTHON_SCALARS:
            found[kind] = value
        elif isinstance(value, list | tuple):
            _collect_types(value, found)
        else:
            found[getattr(value, "dtype", kind) if kind is not Tracer else kind] = value


def _promote_collected(array: Any, found: dict[Any, Any]) -> Any:
    """Return NumPy's array of a nested list in the promoted dtype; Python's numbers are weak."""
    kinds = [(aval_of(one).dtype, type(one) in PYTHON_SCALARS) for one in found.values()]
    dtype, _ = dtypes.promote(*kinds)
    result = array.astype(dtype)
    if dtypes.is_integer(dtype) and not np.array_equal(result, array):
        raise OverflowError(at_user_line(f"a list holds a Python integer that is out of bounds for {dtype.name}, the "
                                         "dtype of the arrays beside it; convert those with x.astype(...)"))
    return result


def new_array(result: Any, given: Any) -> Any:
    """Return `result`, copied if it is the NumPy array `given` or a view of it: for functions that make new arrays."""
    if type(result) in ARRAYS and type(given) in ARRAYS and np.may_share_memory(result, given):
        return freeze_result(result.copy())
    return result


def as_result(value: Any) -> Any:
    """Return an operand as a result: a NumPy array as an `Array`, a weak number unchanged."""
    return value if type(value) in WEAK_CLASSES else freeze_result(value, [value])


def as_array_operand(value: Any) -> Any:
    """Return `operand(value)`, with Python numbers as NumPy scalars of their weak type."""
    value = operand(value)
    return weak_scalar(value) if type(value) in PYTHON_SCALARS else value


def operands(*values: Any) -> list[Any]:
    """Return each value as an operand; if all are Python numbers, as NumPy scalars, for double precision."""
    read = [operand(value) for value in values]
    if all(type(value) in PYTHON_SCALARS for value in read):
        return [weak_scalar(value) for value in read]
    return read


def weak_scalar(value: Any) -> Any:
    """Return a Python number as a NumPy scalar that is as weak: float64 and complex128 scalars are."""
    if type(value) is float:
        return np.float64(value)
    if type(value) is complex:
        return np.complex128(value)
    if type(value) is Integer:
        return value
    try:
        number = np.asarray(value, aval_of(value).dtype)[()]
    except OverflowError:
        raise integer_error(value) from None
    return Integer(number) if type(value) is int else number


def is_concrete(value: Any) -> bool:
    """Return whether the numbers of `value` are available at no cost: a NumPy array or a Python number."""
    if type(value) is Tracer:
        value.tape.note_question()
        return False
    return type(value) in PYTHON_SCALARS or isinstance(value, np.ndarray | np.generic)


def require_concrete(x: Any, use: str) -> Any:
    """Return the numbers in `x`; raise `ConcretizationError` if they are unknown."""
    x = operand(x)
    return x.tape.force(x, use) if type(x) is Tracer else np.asarray(x)


# --- dtypes -------------------------------------------------------------------------------------------------------


def cast_operand(value: Any, dtype: DType, weak: bool) -> Any:
    """Return an operand in the common dtype; Python numbers stay unchanged if the result is weak."""
    if type(value) in PYTHON_SCALARS or type(value) in WEAK_SCALARS:
        if not weak:
            return dtype.type(value)
        if dtype in (dtypes.float64, dtypes.complex128):
            return dtype.type(value)
        if dtypes.is_inexact(dtype):
            value = complex(value) if dtypes.is_complex(dtype) else float(value)
        aval = aval_of(value)
        return value if aval.dtype == dtype and aval.weak else convert(np.asarray(value, dtype), dtype, weak=True)
    if aval_of(value).dtype == dtype:
        return value
    return convert(value, dtype, weak)


def common_type(avals: Sequence[Aval]) -> tuple[DType, bool]:
    """Return the dtype and weakness that operands of these types promote to."""
    return dtypes.promote(*((aval.dtype, aval.weak) for aval in avals))


def promote_operands(*values: Any) -> list[Any]:
    """Return the operands in their common dtype."""
    avals = [aval_of(value) for value in values]
    first = avals[0]
    if all(aval.dtype == first.dtype and aval.weak == first.weak for aval in avals):
        return list(values)
    dtype, weak = common_type(avals)
    return [cast_operand(value, dtype, weak) for value in values]


def promote_inexact(*values: Any) -> list[Any]:
    """Return the operands in their common dtype, or the default float dtype if that is an integer or bool."""
    dtype, weak = common_type([aval_of(value) for value in values])
    inexact = dtypes.inexact_dtype(dtype)
    if inexact != dtype:
        dtype, weak = inexact, weak and dtype != dtypes.bool_
    return [cast_operand(value, dtype, weak) for value in values]


def promote_beside(values: Any, *others: Any) -> Any:
    """Return an operand as `promote_inexact` does; integers beside arrays of 64 bits as float64.

    The result has 64 bits, and the default dtype may lack digits of the integers.
    """
    values = as_array_operand(values)
    wide = any(aval.dtype in (dtypes.float64, dtypes.complex128) and not aval.weak
               for aval in map(aval_of, map(as_array_operand, others)))
    if wide and not dtypes.is_inexact(aval_of(values).dtype):
        return as_dtype(values, dtypes.float64)
    return promote_inexact(values)[0]


def as_numpy_scalars(values: Sequence[Any]) -> list[Any]:
    """Return promoted operands with Python numbers as weak scalars, for functions of several operations."""
    return [weak_scalar(value) if type(value) in PYTHON_SCALARS else value for value in values]


def equally_strong(values: Sequence[Any]) -> list[Any]:
    """Return promoted operands that are all weak or all strong, for functions that do not combine them by operations.

    Beside strong arrays, Python's numbers are NumPy scalars, which are weak where they stand alone.
    """
    avals = [aval_of(value) for value in values]
    if all(aval.weak for aval in avals):
        return list(values)
    return [convert(value, aval.dtype) if aval.weak else value for value, aval in zip(values, avals, strict=True)]


def common_operands(*values: Any) -> list[Any]:
    """Return a caller's arrays in one dtype; Python's numbers give way to them, in operators too."""
    read = [*map(operand, values)]
    return [*map(_with_operators, _strong_if_converted(read, promote_operands(*read)))]


def inexact_operands(*values: Any) -> list[Any]:
    """Return a caller's arrays in one inexact dtype; Python's numbers give way to them, in operators too."""
    read = [*map(operand, values)]
    return [*map(_with_operators, _strong_if_converted(read, promote_inexact(*read)))]


def _strong_if_converted(given: Sequence[Any], promoted: Sequence[Any]) -> list[Any]:
    """Return promoted operands with weak scalars for Python's numbers, but strong ones for those of another dtype.

    So traced ones are: a weak integer that is converted to the dtype of a strong array is strong, a weak float64 beside
    a strong one is not. In programs numbers stay literals.
    """
    scalars = as_numpy_scalars(promoted)
    if _WIDE.isdisjoint(map(type, scalars)) or innermost_for(scalars) is not None:
        return scalars
    before = [aval_of(value) for value in given]
    if common_type(before)[1]:
        return scalars
    return [freeze_result(value) if type(value) in _WIDE and aval.dtype != value.dtype else value
            for value, aval in zip(scalars, before, strict=True)]


_WIDE = frozenset({np.float64, np.complex128})


def _with_operators(value: Any) -> Any:
    """Return NumPy's array or scalar as an `Array`, whose operators promote as here; weak numbers stay unchanged."""
    if isinstance(value, np.generic) and type(value) not in WEAK_CLASSES:
        return freeze_result(value)
    return wrap_array(value)


def mask_of(name: str, where: Any) -> Any:
    """Return the argument `where` as an array of bools; raise `DTypeError` for other dtypes."""
    where = as_array_operand(where)
    if (dtype := aval_of(where).dtype) != dtypes.bool_:
        raise DTypeError(at_user_line(f"{name}: where must be an array of bools, and its dtype is {dtype.name}. "
                                      "Write where != 0"))
    return where


def refuse_complex(name: str, *values: Any) -> None:
    """Raise `DTypeError` for operands of a function that is undefined for complex numbers."""
    for value in values:
        if dtypes.is_complex(aval_of(value).dtype):
            raise DTypeError(at_user_line(f"{name}: not defined for complex numbers ({aval_of(value).dtype.name}); use "
                                          "x.real, x.imag or abs(x)"))


def as_dtype(x: Any, dtype: Any) -> Any:
    """Return `x` converted to a dtype from the caller; `x` itself for None."""
    if dtype is None:
        return x
    wanted = dtypes.canonical(dtype)
    if type(x) in PYTHON_SCALARS:
        return as_strong_scalar(np.asarray(x).astype(wanted))
    return convert(x, wanted)


def apply(primitive: Primitive, *values: Any, **params: Any) -> Any:
    """Return the one output of a primitive; computed at once if all operands are plain numbers, under any tape."""
    for value in values:
        if type(value) not in PYTHON_SCALARS and type(value) not in WEAK_SCALARS:
            return bind(primitive, *values, **params)[0]
    with np.errstate(all="ignore"):
        scalars = [weak_scalar(value) if type(value) in PYTHON_SCALARS else value for value in values]
        typed = promote_operands(*scalars)
        numbers = [np.int64(value) if type(value) is Integer else value for value in typed]
        result = as_scalar(primitive.numpy(*numbers, **params)[0])
    is_weak = type(result) is np.int64 and infer_types(primitive, [*map(aval_of, typed)], params)[0].weak
    return make_weak(result) if is_weak else result


def constant_array(shape: Shape, value: Any, dtype: DType) -> Any:
    """Return an array of one repeated number: recorded as such while staging, else a NumPy array."""
    return full(shape, value, dtype) if shape and is_staging() else freeze_result(np.full(shape, value, dtype))


def ones_on_diagonal(shape: tuple[int, int], number: Any, dtype: DType) -> Any:
    """Return a matrix with ones on the diagonal of this `number`, which may be traced, and zeros elsewhere."""
    if is_staging() or type(number) is Tracer:
        row, column = iota(dtypes.int32, shape, 0), iota(dtypes.int32, shape, 1)
        return convert(eq(add(row, number), column), dtype)
    return np.eye(*shape, number).astype(dtype)


def is_staging() -> bool:
    """Return whether operations on constants are recorded too, under `jit` for example."""
    return innermost_for(()) is not None


def default_float_dtype() -> DType:
    """Return the dtype of floats that meet no array."""
    return config.default_float()


# --- shapes and axes ----------------------------------------------------------------------------------------------


def shape_of(value: Any) -> Shape:
    """Return the shape of an operand of any kind."""
    return aval_of(value).shape


def as_shape(shape: Any, what: str = "a shape") -> Shape:
    """Return a caller's shape, an integer or a sequence of integers; raise `ArgumentError` for anything else."""
    several = isinstance(shape, Sequence) if not isinstance(shape, np.ndarray) else shape.ndim > 0
    try:
        return tuple(operator.index(extent) for extent in shape) if several else (operator.index(shape),)
    except FxgradError:
        if not any(type(extent) is SymbolicDim for extent in (shape if several else (shape,))):
            raise  # for a traced size, with its own advice
        return tuple(index_of(extent) for extent in (shape if several else (shape,)))
    except TypeError:
        raise ArgumentError(at_user_line(f"{what} is an integer or a sequence of integers, got {shape!r}")) from None


def as_new_shape(name: str, shape: Any) -> Shape:
    """Return the shape of a new array; raise `ShapeError` for negative sizes."""
    sizes = as_shape(shape)
    if any(size < 0 for size in sizes):
        raise ShapeError(at_user_line(f"{name}: the shape {sizes} has a negative size"))
    return sizes


def as_integer(name: str, number: Any) -> int:
    """Return an integer argument; raise `ArgumentError` for anything else."""
    if type(number) is SymbolicDim:
        return cast(int, number)  # it has the operations of an integer, as far as one can check
    try:
        return operator.index(number)
    except FxgradError:
        raise  # for a traced number, with its own advice
    except TypeError:
        raise ArgumentError(at_user_line(f"{name}: an integer is needed, got {number!r}")) from None


def as_axis_size(name: str, size: Any) -> int:
    """Return the size of an axis; raise `ArgumentError` for a non-integer or negative one."""
    number = as_integer(name, size)
    if number < 0:
        raise ArgumentError(at_user_line(f"{name}: the size must be non-negative, got {number}"))
    return number


def as_axis_number(name: str, axis: Any) -> int:
    """Return an axis argument; raise `ArgumentError` for a non-integer or a bool."""
    if type(axis) is bool:  # bool is a subclass of int in Python, but no axis in NumPy
        raise ArgumentError(at_user_line(f"{name}: axis must be an integer, got {axis!r}"))
    try:
        return operator.index(axis)
    except FxgradError:
        raise
    except TypeError:
        raise ArgumentError(at_user_line(f"{name}: axis must be an integer, got {axis!r}")) from None


def axis_of(name: str, axis: Any, rank: int) -> int:
    """Return `axis` counted from the front; raise `AxisError` if there is no such axis."""
    number = as_axis_number(name, axis)
    if not -rank <= number < rank:
        allowed = f"an axis from {-rank} to {rank - 1} is needed" if rank else "a scalar has no axes"
        raise AxisError(at_user_line(f"{name}: axis {number} of an array with {rank} axes; {allowed}"))
    return number % rank if rank else 0


def axes_of(name: str, axis: Any, rank: int) -> tuple[int, ...]:
    """Return axes given as None (all), one integer or a sequence, counted from the front and sorted."""
    if axis is None:
        return tuple(range(rank))
    if not isinstance(axis, Sequence):
        return (axis_of(name, axis, rank),)
    axes = sorted(axis_of(name, each, rank) for each in axis)
    if len(set(axes)) != len(axes):
        raise AxisError(at_user_line(f"{name}: axis={tuple(axis)!r} names an axis twice; name each once"))
    return tuple(axes)


def common_shape(name: str, *shapes: Shape) -> Shape:
    """Return the shape that the given ones broadcast to; raise `ShapeError` naming them if there is none."""
    try:
        return np.broadcast_shapes(*shapes)
    except FxgradError:  # for a symbolic size
        return broadcast_shapes(name, *shapes)
    except ValueError:
        shown = " and ".join(map(str, shapes))
        raise ShapeError(at_user_line(
            f"{name}: shapes {shown} do not broadcast; counted from the last, sizes must be equal or 1. "
            "Insert an axis with x[:, None] or x.reshape(...), or transpose one of them")) from None


def refuse_out(name: str, out: Any) -> None:
    """Raise `UnsupportedError` if a caller requests the result in an existing array."""
    if out is not None and any(array is not None for array in (out if isinstance(out, tuple) else (out,))):
        raise UnsupportedError(at_user_line(f"{name}: out= is not supported: traced arrays cannot change. "
                                            f"Write result = {name}(...) instead"))


def wide_dtype(x: Any) -> DType | None:
    """Return the dtype in which NumPy sums such elements, int64 or uint64; None if it is their own."""
    kind = dtypes.kind_of(aval_of(operand(x)).dtype)
    return dtypes.int64 if kind in "bi" else dtypes.SUPPORTED["uint64"] if kind == "u" else None
