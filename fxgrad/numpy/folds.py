"""Methods of elementwise functions that combine elements: `reduce`, `accumulate`, `reduceat`, and updates by `at`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.flat import TracedCall, trace_flat
from fxgrad.engine.frontend.operands import as_array_operand, as_dtype, axes_of, axis_of, require_concrete, shape_of
from fxgrad.engine.frontend.ufuncs import Elementwise, methods
from fxgrad.engine.higher_order.scan import bind_scan
from fxgrad.engine.ops import cumulative
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to, convert, move_axis, reshape, transpose
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, IndexingError, MutationError, ShapeError, UnsupportedError
from fxgrad.numpy import arithmetic, logic, numbers
from fxgrad.numpy.ordering import cumprod, cumsum
from fxgrad.numpy.reductions import kept_shape, summing_dtype
from fxgrad.numpy.updates import Updates

ASSOCIATIVE: frozenset[Elementwise] = frozenset({
    arithmetic.add, arithmetic.multiply, arithmetic.maximum, arithmetic.minimum, arithmetic.fmax, arithmetic.fmin,
    arithmetic.hypot, arithmetic.logaddexp, arithmetic.logaddexp2, logic.logical_and, logic.logical_or,
    logic.logical_xor, logic.bitwise_and, logic.bitwise_or, logic.bitwise_xor, numbers.gcd, numbers.lcm})
"""Functions that may combine elements in any order; the others combine them from left to right."""

RUNNING: dict[Elementwise, Callable[..., Any]] = {
    arithmetic.maximum: cumulative.cummax, arithmetic.minimum: cumulative.cummin,
    arithmetic.logaddexp: cumulative.cumlogsumexp}
"""Functions whose running results are an operation."""

UPDATES: dict[Elementwise, str] = {
    arithmetic.add: "add", arithmetic.subtract: "subtract", arithmetic.multiply: "multiply",
    arithmetic.divide: "divide", arithmetic.power: "power", arithmetic.maximum: "max", arithmetic.minimum: "min"}
"""Methods of `x.at[index]` that combine by a function."""


def _check_binary(function: Elementwise, method: str) -> None:
    if function.nin != 2:
        raise ArgumentError(at_user_line(f"{function.__name__}.{method}: the function takes {function.nin} "
                                         f"operand{'s' * (function.nin != 1)}, where one of two operands is needed"))


def _results(function: Elementwise, method: str, x: Any) -> Any:
    """Return elements converted to the type of combined ones: integers to floats for divisions, for example."""
    wanted = aval_of(function(slice_in_dim(x, 0, 1, 0), slice_in_dim(x, 0, 1, 0)))
    x = convert(x, wanted.dtype, wanted.weak)
    again = aval_of(function(slice_in_dim(x, 0, 1, 0), slice_in_dim(x, 0, 1, 0)))
    if again.dtype != wanted.dtype:
        raise DTypeError(at_user_line(f"{function.__name__}.{method}: results are {wanted.dtype.name} and their "
                                      f"combinations {again.dtype.name}; one dtype is needed"))
    return x


def _none(function: Elementwise, method: str, x: Any) -> Any:
    """Return one entry, of zeros, of the type of combined elements of `x`, which has no entries."""
    zero = broadcast_to(as_dtype(as_array_operand(0), aval_of(x).dtype), (1, *shape_of(x)[1:]))
    return _results(function, method, zero)


def _fold(function: Elementwise, method: str, x: Any, with_all: bool) -> Any:
    """Combine entries along the first axis from left to right; `with_all` returns the results up to each entry."""
    first, rest = reshape(slice_in_dim(x, 0, 1, 0), shape_of(x)[1:]), slice_in_dim(x, 1, shape_of(x)[0], 0)
    aval = aval_of(first)

    def step(result: Any, entry: Any) -> list[Any]:
        result = function(result, entry)
        return [result, result] if with_all else [result]

    traced: TracedCall = trace_flat(step, [aval, aval], f"{function.__name__}.{method}", function)
    outputs = bind_scan(traced.program, traced.captured, [first], [rest], shape_of(x)[0] - 1)
    return concatenate([reshape(first, (1, *shape_of(first))), outputs[1]], 0) if with_all else outputs[0]


def _halve(function: Elementwise, x: Any) -> Any:
    """Combine entries along the first axis in pairs of neighbours, until one is left."""
    while (count := shape_of(x)[0]) > 1:
        even = count - count % 2
        pairs = function(slice_in_dim(x, 0, even, 0, 2), slice_in_dim(x, 1, even, 0, 2))
        x = concatenate([pairs, slice_in_dim(x, even, count, 0)], 0) if count % 2 else pairs
    return reshape(x, shape_of(x)[1:])


def reduce(function: Elementwise, a: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False,
           initial: Any = None, where: Any = None) -> Any:
    """Combine the elements of `a` along `axis` by a function without a reduction of its own."""
    name = f"{function.__name__}.reduce"
    _check_binary(function, "reduce")
    if where is not None:
        raise UnsupportedError(at_user_line(f"{name}: where= is not supported. Replace the other elements by ones that "
                                            "change nothing: np.where(condition, x, ...)"))
    a = as_dtype(as_array_operand(a), dtype)
    shape = shape_of(a)
    axes = axes_of(name, axis, len(shape))
    if len(axes) > 1 and function not in ASSOCIATIVE:
        raise ArgumentError(at_user_line(f"{name}: axis={axis}; the result of {function.__name__} depends on the order "
                                         "of the elements, so one axis is needed"))
    kept = [at for at in range(len(shape)) if at not in axes]
    rest = tuple(shape[at] for at in kept)
    x = reshape(transpose(a, [*axes, *kept]), (math.prod(shape[at] for at in axes), *rest))
    if initial is not None:
        begin = as_dtype(as_array_operand(initial), aval_of(x).dtype)
        x = concatenate([broadcast_to(begin, (1, *rest)), x], 0)
    if not shape_of(x)[0]:
        identity = getattr(np, function.__name__).identity
        if identity is None:
            raise ShapeError(at_user_line(f"{name}: an array of shape {shape} has no elements along axis {axis}, and "
                                          f"there is no {function.__name__} of none; give initial="))
        x = _none(function, "reduce", x)
        x = broadcast_to(np.asarray(identity).astype(aval_of(x).dtype), shape_of(x))
    else:
        x = _results(function, "reduce", x)
    result = _halve(function, x) if function in ASSOCIATIVE else _fold(function, "reduce", x, with_all=False)
    return reshape(result, kept_shape(shape, axes)) if keepdims else result


def accumulate(function: Elementwise, array: Any, axis: int = 0, dtype: Any = None) -> Any:
    """Return the combinations of the elements up to each one along `axis`."""
    _check_binary(function, "accumulate")
    if function is arithmetic.add or function is arithmetic.multiply:
        return (cumsum if function is arithmetic.add else cumprod)(array, axis, dtype)
    x = as_dtype(as_array_operand(array), dtype)
    at = axis_of(f"{function.__name__}.accumulate", axis, len(shape_of(x)))
    if not shape_of(x)[at]:
        return convert(x, aval_of(_none(function, "accumulate", move_axis(x, at, 0))).dtype, aval_of(x).weak)
    moved = _results(function, "accumulate", move_axis(x, at, 0))
    if function in RUNNING and aval_of(moved).dtype != dtypes.bool_:
        return move_axis(RUNNING[function](moved, 0), 0, at)
    return move_axis(_fold(function, "accumulate", moved, with_all=True), 0, at)


def reduceat(function: Elementwise, array: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Any:
    """Return the combinations of the elements from each index to before the next one, along `axis`.

    An index that is not less than the next one gives its element alone. The indices must be known.
    """
    name = f"{function.__name__}.reduceat"
    _check_binary(function, "reduceat")
    a = as_array_operand(array)
    if dtype is None and function in (arithmetic.add, arithmetic.multiply):
        dtype = summing_dtype(aval_of(a).dtype)
    a = as_dtype(a, dtype) if dtype is not None and dtype != aval_of(a).dtype else a
    at = axis_of(name, axis, len(shape_of(a)))
    known = np.asarray(require_concrete(indices, f"np.{name}, whose indices choose how many elements are combined,"))
    size = shape_of(a)[at]
    known = known if known.size else known.astype(np.int32)  # an empty list holds no floats
    if known.ndim != 1 or known.dtype.kind not in "iu":
        raise IndexingError(at_user_line(f"{name}: indices of type {aval_of(known)}; a vector of integers is needed"))
    if known.size and (known.min() < 0 or known.max() >= size):
        raise IndexingError(at_user_line(f"{name}: indices {known.tolist()} for an axis of size {size}; they lie from "
                                         f"0 to {size - 1}"))
    stops = [*known.tolist()[1:], size][:known.size]
    moved = move_axis(a, at, 0)
    if not known.size:
        return move_axis(slice_in_dim(moved, 0, 0, 0), 0, at)
    parts = [function.reduce(slice_in_dim(moved, start, stop if start < stop else start + 1, 0), axis=0, keepdims=True)
             for start, stop in zip(known.tolist(), stops, strict=True)]
    return move_axis(concatenate(parts, 0), 0, at)


def update_at(function: Elementwise, a: Any, indices: Any, b: Sequence[Any], inplace: bool) -> Any:
    """Return a copy of `a` in which the function is applied to `a[indices]` and `b`, as often as each index comes."""
    name = f"{function.__name__}.at"
    if len(b) != function.nin - 1 or function.nin > 2:
        raise ArgumentError(at_user_line(f"{name}: the function takes {function.nin} operands, and {1 + len(b)} came"))
    if inplace:
        raise MutationError(at_user_line(f"{name} would change its argument in place, which cannot be recorded. Write "
                                         f"x = fnp.{name}(x, ..., inplace=False)"))
    place = Updates(as_array_operand(a))[indices]
    if function.nin == 1:
        return place.apply(function)
    if function not in UPDATES:
        raise UnsupportedError(at_user_line(f"{name} is not supported; {', '.join(each.__name__ for each in UPDATES)} "
                                            "and functions of one operand have it"))
    return getattr(place, UPDATES[function])(*b)


def attach_ufunc_methods() -> None:
    """Give elementwise functions their methods."""
    methods.update({"reduce": reduce, "accumulate": accumulate, "reduceat": reduceat, "at": update_at})
