"""Products of vectors and matrices: dot, matmul, inner, outer, tensordot and their relatives."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_numpy_scalars,
    axis_of,
    common_operands,
    operands,
    promote_operands,
    refuse_out,
    shape_of,
)
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.frontend.strict import as_dtype_or_none
from fxgrad.engine.frontend.value_calls import replay_on_values
from fxgrad.engine.ops.parts import conj
from fxgrad.engine.ops.products import dot_general, dot_general_p
from fxgrad.engine.ops.structural import reshape, transpose
from fxgrad.engine.tracing.call_cache import replay_calls
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy.arithmetic import multiply, subtract
from fxgrad.numpy.joining import stack
from fxgrad.numpy.shaping import expand_dims, moveaxis, ravel

_PLAIN = {(2, 2): (((1,), (0,)), ((), ())), (2, 1): (((1,), (0,)), ((), ())), (1, 2): (((0,), (0,)), ((), ())),
          (1, 1): (((0,), (0,)), ((), ()))}
"""The dimension numbers of `a @ b` by the ranks of the two."""


def _operands(a: Any, b: Any) -> tuple[Any, Any]:
    a, b = as_numpy_scalars(promote_operands(*operands(a, b)))
    return a, b


def _mismatch(name: str, a: Shape, b: Shape, a_axis: int, b_axis: int) -> ShapeError:
    hint = ". Transpose one of them, for example " + (f"{name}(a, b.T)" if a[a_axis] == b[-1] else f"{name}(a.T, b)") \
        if (len(b) > 1 and a[a_axis] == b[-1]) or (len(a) > 1 and a[-2] == b[b_axis]) else ""
    return ShapeError(at_user_line(
        f"{name}: shapes {a} and {b} do not match: axis {a_axis % len(a)} of the first has size {a[a_axis]} and axis "
        f"{b_axis % len(b)} of the second has size {b[b_axis]}, which must be equal{hint}"))


@partial(replay_calls, captures=True)
@replay_on_values
def matmul(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None,
           out_sharding: Any = None) -> Any:
    """Return the matrix product of the last two axes; the others broadcast, and vectors count as a row and a column.

    Raises `ShapeError` for scalars, and if the sizes that are summed over differ. Sums accumulate in
    `preferred_element_type`.

    >>> matmul([[1.0, 2.0]], [[3.0], [4.0]])
    array([[11.]])
    """
    if out_sharding is not None:
        return place_array("matmul", matmul(a, b, precision=precision, preferred_element_type=preferred_element_type),
                                            out_sharding)
    if type(a) is Tracer and type(b) is Tracer:  # the path of `x @ W`: one look-up and one test
        left, right = a.variable.aval, b.variable.aval
        numbers = _PLAIN.get((len(left.shape), len(right.shape)))
        if numbers is not None and left.dtype is right.dtype and left.shape[-1] == right.shape[0] \
                and preferred_element_type is None and precision is None:
            return bind(dot_general_p, a, b, dimension_numbers=numbers, precision=None,
                        preferred_element_type=None)[0]
    a, b = _operands(a, b)
    left_shape, right_shape = shape_of(a), shape_of(b)
    if not left_shape or not right_shape:
        raise ShapeError(at_user_line(f"matmul: shapes {left_shape} and {right_shape}; scalars have no matrix product, "
                                      "write a * b"))
    b_axis = -2 if len(right_shape) > 1 else -1
    if left_shape[-1] != right_shape[b_axis]:
        raise _mismatch("matmul", left_shape, right_shape, -1, b_axis)
    numbers = _PLAIN.get((len(left_shape), len(right_shape)))
    if numbers is None:
        return _stack_product(a, b, precision, preferred_element_type)
    return dot_general(a, b, numbers, precision, as_dtype_or_none(preferred_element_type))


def _stack_product(a: Any, b: Any, precision: Any, preferred: Any) -> Any:
    """Return the product of stacks of matrices: shared leading axes are batch axes, others free ones."""
    a_rank, b_rank = len(shape_of(a)), len(shape_of(b))
    rank = max(a_rank, b_rank, 2) - 2  # of the stacks
    a_row, b_column = a_rank > 1, b_rank > 1
    a_stack, b_stack = ((1,) * (rank - max(r - 2, 0)) + shape_of(x)[:max(r - 2, 0)]
                        for x, r in ((a, a_rank), (b, b_rank)))
    clash = [at for at in range(rank) if a_stack[at] != b_stack[at] and 1 not in (a_stack[at], b_stack[at])]
    if clash:
        raise ShapeError(at_user_line(f"matmul: shapes {shape_of(a)} and {shape_of(b)} do not match: without their "
                                      "last two axes they do not broadcast"))
    both = [at for at in range(rank) if a_stack[at] == b_stack[at]]
    a_only = [at for at in range(rank) if at not in both and a_stack[at] != 1]
    b_only = [at for at in range(rank) if at not in both and b_stack[at] != 1]
    a_flat = reshape(a, (*(a_stack[at] for at in sorted([*both, *a_only])), *shape_of(a)[-2 if a_row else -1:]))
    b_flat = reshape(b, (*(b_stack[at] for at in sorted([*both, *b_only])), *shape_of(b)[-2 if b_column else -1:]))
    a_place, b_place = ({at: place for place, at in enumerate(sorted([*both, *only]))} for only in (a_only, b_only))
    contract = (len(shape_of(a_flat)) - 1,), (len(shape_of(b_flat)) - (2 if b_column else 1),)
    batch = tuple(a_place[at] for at in both), tuple(b_place[at] for at in both)
    result = dot_general(a_flat, b_flat, (contract, batch), precision, as_dtype_or_none(preferred))
    made: list[Any] = [*both, *a_only, *(["row"] if a_row else []), *b_only, *(["column"] if b_column else [])]
    wanted = [*range(rank), *(["row"] if a_row else []), *(["column"] if b_column else [])]
    return transpose(result, [made.index(each) for each in wanted])


@partial(replay_calls, captures=True)
@replay_on_values
def dot(a: Any, b: Any, out: Any = None, *, precision: Any = None, preferred_element_type: Any = None,
        out_sharding: Any = None) -> Any:
    """Return the product of two arrays, summed over the last axis of `a` and the second-to-last (or only) one of `b`.

    With a scalar it is `a * b`. Raises `ShapeError` if the sizes that are summed over differ.

    >>> float(dot([1.0, 2.0], [3.0, 4.0]))
    11.0
    """
    if out_sharding is not None:
        return place_array("dot", dot(a, b, out, precision=precision, preferred_element_type=preferred_element_type),
                                      out_sharding)
    refuse_out("dot", out)
    a, b = _operands(a, b)
    left, right = shape_of(a), shape_of(b)
    if not left or not right:
        return multiply(a, b)
    b_axis = max(len(right) - 2, 0)
    if left[-1] != right[b_axis]:
        raise _mismatch("dot", left, right, -1, b_axis)
    return dot_general(a, b, (((len(left) - 1,), (b_axis,)), ((), ())), precision,
                       as_dtype_or_none(preferred_element_type))


@partial(replay_calls, captures=True)
@replay_on_values
def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the product of two arrays, summed over the last axis of both.

    >>> float(inner([1.0, 2.0], [3.0, 4.0]))
    11.0
    """
    a, b = _operands(a, b)
    left, right = shape_of(a), shape_of(b)
    if not left or not right:
        return multiply(a, b)
    if left[-1] != right[-1]:
        raise _mismatch("inner", left, right, -1, -1)
    return dot_general(a, b, (((len(left) - 1,), (len(right) - 1,)), ((), ())), precision,
                       as_dtype_or_none(preferred_element_type))


@partial(replay_calls, captures=True)
@replay_on_values
def outer(a: Any, b: Any, out: Any = None) -> Any:
    """Return the products of every element of `a` with every one of `b`, as a matrix; both are flattened.

    >>> outer([1.0, 2.0], [3.0, 4.0])
    array([[3., 4.],
           [6., 8.]])
    """
    refuse_out("outer", out)
    a, b = map(ravel, common_operands(a, b))
    return multiply(reshape(a, (*shape_of(a), 1)), b)


@partial(replay_calls, captures=True)
@replay_on_values
def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the product of two flattened arrays, the first one conjugated. Raises `ShapeError` if their sizes differ.

    >>> complex(vdot([1j], [1j]))
    (1+0j)
    """
    a = ravel(a)
    if dtypes.is_complex(aval_of(a).dtype):
        a = conj(a)
    return dot(a, ravel(b), precision=precision, preferred_element_type=preferred_element_type)


@partial(replay_calls, captures=True)
@replay_on_values
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, keepdims: bool = False, precision: Any = None,
           preferred_element_type: Any = None) -> Any:
    """Return the product of vectors along `axis`, the first ones conjugated; the other axes broadcast.

    With `keepdims` the result has an axis of size 1 there.

    >>> vecdot([[1.0, 2.0]], [3.0, 4.0])
    array([11.])
    """
    x1, x2 = (moveaxis(as_array_operand(x), axis, -1) for x in (x1, x2))
    if dtypes.is_complex(aval_of(x1).dtype):
        x1 = conj(x1)
    if shape_of(x1)[-1] != shape_of(x2)[-1]:
        raise _mismatch("vecdot", shape_of(x1), shape_of(x2), -1, -1)
    rows, columns = reshape(x1, (*shape_of(x1)[:-1], 1, shape_of(x1)[-1])), reshape(x2, (*shape_of(x2), 1))
    product = matmul(rows, columns, precision=precision, preferred_element_type=preferred_element_type)
    product = reshape(product, shape_of(product)[:-2])
    return expand_dims(product, axis) if keepdims else product


def _check_axes(name: str, *operands: tuple[str, Any, int]) -> None:
    """Raise `ShapeError` unless each operand has as many axes as its kind needs."""
    for kind, operand, least in operands:
        if len(shape_of(operand)) < least:
            raise ShapeError(at_user_line(
                f"{name}: {kind} have at least {least} {'axis' if least == 1 else 'axes'}, got an array of shape "
                f"{shape_of(operand)}. Write {'x[None]' if least == 1 else 'x[None, :] or x[:, None]'}"))


def matvec(x1: Any, x2: Any, /) -> Any:
    """Return the products of matrices (the last two axes) and vectors (the last axis); the other axes broadcast.

    Raises `ShapeError` for operands without these axes.

    >>> matvec([[1.0, 2.0]], [3.0, 4.0])
    array([11.])
    """
    x1, x2 = as_array_operand(x1), as_array_operand(x2)
    _check_axes("matvec", ("matrices", x1, 2), ("vectors", x2, 1))
    product = matmul(x1, reshape(x2, (*shape_of(x2), 1)))
    return reshape(product, shape_of(product)[:-1])


def vecmat(x1: Any, x2: Any, /) -> Any:
    """Return the products of vectors (the last axis, conjugated) and matrices (the last two); the other axes broadcast.

    Raises `ShapeError` for operands without these axes.

    >>> vecmat([1.0, 2.0], [[3.0], [4.0]])
    array([11.])
    """
    x1, x2 = as_array_operand(x1), as_array_operand(x2)
    _check_axes("vecmat", ("vectors", x1, 1), ("matrices", x2, 2))
    if dtypes.is_complex(aval_of(x1).dtype):
        x1 = conj(x1)
    product = matmul(reshape(x1, (*shape_of(x1)[:-1], 1, shape_of(x1)[-1])), x2)
    return reshape(product, (*shape_of(product)[:-2], shape_of(product)[-1]))


@partial(replay_calls, captures=True)
@replay_on_values
def tensordot(a: Any, b: Any, axes: Any = 2, *, precision: Any = None, preferred_element_type: Any = None,
              out_sharding: Any = None) -> Any:
    """Return the product of two arrays, summed over pairs of axes.

    `axes` is a number n (the last n of `a` with the first n of `b`), or the axes of each in a pair of sequences.
    Raises `ShapeError` if the sizes of a pair differ.

    >>> float(tensordot([[1.0, 2.0]], [[3.0, 4.0]]))
    11.0
    """
    if out_sharding is not None:
        return place_array("tensordot", tensordot(a, b, axes, precision=precision,
                                                  preferred_element_type=preferred_element_type), out_sharding)
    a, b = _operands(a, b)
    left, right = shape_of(a), shape_of(b)
    if isinstance(axes, Sequence | np.ndarray):
        if len(axes) != 2 or isinstance(axes, str):
            raise ArgumentError(at_user_line("tensordot: axes must be a number of axes or a pair of sequences of "
                                             f"axes, got {axes!r}"))
        first, second = (each if isinstance(each, Sequence | np.ndarray) else (each,) for each in axes)
        a_axes = tuple(axis_of("tensordot", axis, len(left)) for axis in first)
        b_axes = tuple(axis_of("tensordot", axis, len(right)) for axis in second)
    else:
        try:
            count = operator.index(axes)
        except TypeError:
            raise ArgumentError(at_user_line("tensordot: axes must be a number of axes or a pair of sequences of "
                                             f"axes, got {axes!r}")) from None
        if count > min(len(left), len(right)):
            raise ShapeError(at_user_line(f"tensordot: axes={count}, shapes {left} and {right}; one of them "
                                          "has fewer axes"))
        a_axes, b_axes = tuple(range(len(left) - count, len(left))), tuple(range(count))
    if [left[axis] for axis in a_axes] != [right[axis] for axis in b_axes]:
        raise ShapeError(at_user_line(
            f"tensordot: shapes {left} and {right} with axes {a_axes} and {b_axes}: the sizes "
            f"{tuple(left[axis] for axis in a_axes)} and {tuple(right[axis] for axis in b_axes)} must be equal"))
    return dot_general(a, b, ((a_axes, b_axes), ((), ())), precision, as_dtype_or_none(preferred_element_type))


def kron(a: Any, b: Any) -> Any:
    """Return the Kronecker product: blocks of `b`, each times an element of `a`.

    >>> kron([1, 2], [1, 10])
    array([ 1, 10,  2, 20])
    """
    a, b = common_operands(a, b)
    rank = max(len(shape_of(a)), len(shape_of(b)))
    left, right = ((1,) * (rank - len(shape_of(x))) + shape_of(x) for x in (a, b))
    wide = [size for extent in left for size in (extent, 1)]
    narrow = [size for extent in right for size in (1, extent)]
    product = multiply(reshape(a, tuple(wide)), reshape(b, tuple(narrow)))
    return reshape(product, tuple(x * y for x, y in zip(left, right, strict=True)))


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """Return the cross product of vectors of 3 (or 2) components along an axis; the other axes broadcast.

    Raises `ShapeError` for other numbers of components.

    >>> cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0])
    array([0., 0., 1.])
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = common_operands(a, b)
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    counts = shape_of(a)[-1], shape_of(b)[-1]
    if not {*counts} <= {2, 3}:
        raise ShapeError(at_user_line(f"cross: vectors of {counts[0]} and {counts[1]} components; 2 or 3 are needed"))
    x, y = ([vector[..., place] for place in range(count)] for vector, count in zip((a, b), counts, strict=True))
    last = subtract(multiply(x[0], y[1]), multiply(x[1], y[0]))
    if counts == (2, 2):
        return last
    x, y = ([*each, multiply(each[0], 0)] if len(each) == 2 else each for each in (x, y))
    parts = [subtract(multiply(x[1], y[2]), multiply(x[2], y[1])),
             subtract(multiply(x[2], y[0]), multiply(x[0], y[2])), last]
    return moveaxis(stack(parts, -1), -1, axisc)
