"""The functions of `jax.lax` along axes: reductions, running results, positions of extrema, sorting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.frontend.operands import as_axis_number, as_integer, shape_of
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.frontend.strict import (
    as_integers,
    check_operands,
    document_function,
    require_array,
    strict_axis_of,
    unify_dtypes,
)
from fxgrad.engine.ops import cumulative, structural
from fxgrad.engine.ops import ordering as sort_room
from fxgrad.engine.ops import reductions as reduce_room
from fxgrad.engine.ops.arithmetic import max as maximum
from fxgrad.engine.ops.arithmetic import max_p, min_p, mul, mul_p
from fxgrad.engine.ops.arithmetic import min as minimum
from fxgrad.engine.ops.comparison import and_, and_p, or_, or_p, xor, xor_p
from fxgrad.engine.ops.families import check_axes
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.pointwise import add, add_p
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to, reshape, transpose
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.lax.combinations import apply_to_elements, combining_program, only_primitive

__all__ = ["argmax", "argmin", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "reduce", "reduce_and",
           "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "reduce_xor", "sort", "sort_key_val"]

Function = Callable[..., Any]


# --- reductions ---------------------------------------------------------------------------------------------------


def _reduction(primitive: Primitive, operation: Function, doc: str) -> Function:
    def function(operand: Any, axes: Sequence[int]) -> Any:
        return _reduce(primitive, operation, operand, axes)
    return document_function(function, primitive.name, doc, "The dtype stays; axes count from the front.")


def _reduce(primitive: Primitive, operation: Function, operand: Any, axes: Sequence[int]) -> Any:
    operand, axes = require_array(primitive.name, operand), as_integers(primitive.name, axes)
    check_operands(primitive, operand, axes=axes)
    return operation(operand, axes)


reduce_prod = _reduction(reduce_room.reduce_prod_p, reduce_room.reduce_prod,
                        """Return the product over axes.
>>> import numpy as np
>>> float(reduce_prod(np.array([2.0, 3.0]), (0,)))
6.0""")
reduce_max = _reduction(reduce_room.reduce_max_p, reduce_room.reduce_max,
                        """Return the greatest element over axes, or a NaN.
>>> import numpy as np
>>> float(reduce_max(np.array([2.0, 3.0]), (0,)))
3.0""")
reduce_min = _reduction(reduce_room.reduce_min_p, reduce_room.reduce_min,
                        """Return the least element over axes, or a NaN.
>>> import numpy as np
>>> float(reduce_min(np.array([2.0, 3.0]), (0,)))
2.0""")
reduce_and = _reduction(reduce_room.reduce_and_p, reduce_room.reduce_and,
                        """Return bits that are 1 in all; of bools: whether all hold.
>>> import numpy as np
>>> bool(reduce_and(np.array([True, False]), (0,)))
False""")
reduce_or = _reduction(reduce_room.reduce_or_p, reduce_room.reduce_or,
                        """Return bits that are 1 in any; of bools: whether any holds.
>>> import numpy as np
>>> bool(reduce_or(np.array([True, False]), (0,)))
True""")
reduce_xor = _reduction(reduce_room.reduce_xor_p, reduce_room.reduce_xor,
                        """Return bits that are 1 in an odd number of elements.
>>> import numpy as np
>>> int(reduce_xor(np.array([6, 3]), (0,)))
5""")


def reduce_sum(operand: Any, axes: Sequence[int], *, out_sharding: Any = None) -> Any:
    """Return the sum over axes, in the operand's dtype; axes count from the front. Raises `ShapeError`, `DTypeError`.

    >>> import numpy as np
    >>> float(reduce_sum(np.array([2.0, 3.0]), (0,)))
    5.0
    """
    if out_sharding is not None:
        return place_array("reduce_sum", reduce_sum(operand, axes), out_sharding)
    return _reduce(structural.reduce_sum_p, structural.reduce_sum, operand, axes)


_reductions: Analysis[tuple[Callable[..., Any], Callable[..., Any]] | None] = Analysis(
    "reductions", "The reduction that combines elements by an operation, and the function of two values.",
    missing="conservative", default=None)
_reductions.enter((structural.reduce_sum, add), add_p)
_reductions.enter((reduce_room.reduce_prod, mul), mul_p)
_reductions.enter((reduce_room.reduce_max, maximum), max_p)
_reductions.enter((reduce_room.reduce_min, minimum), min_p)
_reductions.enter((reduce_room.reduce_and, and_), and_p)
_reductions.enter((reduce_room.reduce_or, or_), or_p)
_reductions.enter((reduce_room.reduce_xor, xor), xor_p)


def reduce(operands: Any, init_values: Any, computation: Callable[[Any, Any], Any], dimensions: Sequence[int],
           out_sharding: Any = None) -> Any:
    """Combine the elements along `dimensions` with the initial value by a function of two scalars.

    The function, which must be associative, may also combine two trees of scalars, like those that `operands` and
    `init_values` are of. Sums, products, extrema and bitwise functions are recognised; others take log2(n) steps.
    Raises `ShapeError`, `DTypeError`, `ArgumentError`.

    >>> import numpy as np
    >>> float(reduce(np.array([1.0, 5.0, 3.0]), 0.0, np.maximum, (0,)))
    5.0
    """
    if out_sharding is not None:
        return place_array("reduce", reduce(operands, init_values, computation, dimensions), out_sharding)
    leaves, structure = tree.flatten(operands)
    init_structure: Any
    inits, init_structure = tree.flatten(init_values)
    if structure != init_structure or not leaves:
        raise ArgumentError(at_user_line(f"reduce: operands {structure} and init_values {init_structure}; trees of "
                                         "equal structure with at least one leaf are needed"))
    pairs = [unify_dtypes("reduce", leaf, init) for leaf, init in zip(leaves, inits, strict=True)]
    arrays, starts = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    shape, axes = shape_of(arrays[0]), as_integers("reduce", dimensions)
    if any(shape_of(array) != shape for array in arrays) or any(shape_of(start) for start in starts):
        raise ShapeError(at_user_line(f"reduce: operands of shapes {', '.join(str(shape_of(x)) for x in arrays)} and "
                                      f"initial values of shapes {', '.join(str(shape_of(x)) for x in starts)}; "
                                      "operands of one shape and scalars are needed"))
    check_axes("reduce", aval_of(arrays[0]), axes)
    program, captured = combining_program("reduce", computation, list(map(aval_of, arrays)), structure)
    kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    spread = [broadcast_to(start, kept) for start in starts]
    if not prod(shape):
        return tree.unflatten(structure, spread)
    primitive = only_primitive(program)
    known = None if primitive is None else _reductions.of(primitive)
    if known is not None:
        reduction, combined = known
        return tree.unflatten(structure, [combined(starts[0], reduction(arrays[0], axes))])
    halved = _reduce_by_halves(program, captured, arrays, axes, kept)
    return tree.unflatten(structure, apply_to_elements(program, captured, [*spread, *halved]))


def _reduce_by_halves(program: Any, captured: Sequence[Any], arrays: Sequence[Any], axes: Shape,
                      kept: Shape) -> list[Any]:
    """Combine all elements along the axes: pairs of neighbours, until one is left, in order."""
    shape = shape_of(arrays[0])
    order = [*axes, *(axis for axis in range(len(shape)) if axis not in axes)]
    count = prod(shape[axis] for axis in axes)
    lists = [reshape(transpose(array, order), (count, *kept)) for array in arrays]
    while count > 1:
        pairs = count // 2
        # Neighbours are combined, so that the function need not be commutative.
        even, odd = ([slice_in_dim(x, begin, 2 * pairs, 0, 2) for x in lists] for begin in (0, 1))
        rest = [slice_in_dim(x, 2 * pairs, count, 0) for x in lists]
        lists = apply_to_elements(program, captured, [*even, *odd])
        if count % 2:
            lists = [concatenate([x, last], 0) for x, last in zip(lists, rest, strict=True)]
        count = pairs + count % 2
    return [reshape(x, kept) for x in lists]


# --- positions ----------------------------------------------------------------------------------------------------


def _position(primitive: Primitive, operation: Function, operand: Any, axis: int, index_dtype: Any) -> Any:
    operand, axis = require_array(primitive.name, operand), as_axis_number(primitive.name, axis)
    dtype = dtypes.canonical(index_dtype)
    check_operands(primitive, operand, axis=axis, index_dtype=dtype)
    return operation(operand, axis, dtype)


def argmax(operand: Any, axis: int, index_dtype: Any) -> Any:
    """Return the index of the greatest element along an axis, or of the first NaN.

    Raises `ShapeError`, `DTypeError`.

    >>> import numpy as np
    >>> int(argmax(np.array([1.0, 3.0, 2.0]), 0, "int32"))
    1
    """
    return _position(reduce_room.argmax_p, reduce_room.argmax, operand, axis, index_dtype)


def argmin(operand: Any, axis: int, index_dtype: Any) -> Any:
    """Return the index of the least element along an axis, or of the first NaN.

    Raises `ShapeError`, `DTypeError`.

    >>> import numpy as np
    >>> int(argmin(np.array([1.0, 3.0, 2.0]), 0, "int32"))
    0
    """
    return _position(reduce_room.argmin_p, reduce_room.argmin, operand, axis, index_dtype)


# --- running results ----------------------------------------------------------------------------------------------


def _running(primitive: Primitive, operation: Function, doc: str) -> Function:
    def function(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
        operand, axis = require_array(primitive.name, operand), as_axis_number(primitive.name, axis)
        check_operands(primitive, operand, axis=axis, reverse=bool(reverse))
        return operation(operand, axis, bool(reverse))
    return document_function(function, primitive.name, doc,
                             "of all elements up to each one along an axis; with `reverse` from it on.")


cumsum = _running(cumulative.cumsum_p, cumulative.cumsum, """Return the sum
>>> import numpy as np
>>> cumsum(np.array([1.0, 2.0]))
array([1., 3.])""")
cumprod = _running(cumulative.cumprod_p, cumulative.cumprod, """Return the product
>>> import numpy as np
>>> cumprod(np.array([2.0, 3.0]))
array([2., 6.])""")
cummax = _running(cumulative.cummax_p, cumulative.cummax, """Return the greatest
>>> import numpy as np
>>> cummax(np.array([2.0, 1.0]))
array([2., 2.])""")
cummin = _running(cumulative.cummin_p, cumulative.cummin, """Return the least
>>> import numpy as np
>>> cummin(np.array([2.0, 3.0]))
array([2., 2.])""")
cumlogsumexp = _running(cumulative.cumlogsumexp_p, cumulative.cumlogsumexp, """Return the log of the sum of exponentials
>>> import numpy as np
>>> cumlogsumexp(np.zeros(2)).round(4)
array([0.    , 0.6931])""")

# --- sorting ------------------------------------------------------------------------------------------------------


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:  # noqa: ARG001
    """Return the array sorted along an axis, NaNs last; or a sequence of arrays in the order that sorts the first ones.

    The first `num_keys` arrays are the keys. Equal elements keep their order whether or not `is_stable`. Raises
    `ShapeError`, `ArgumentError`.

    >>> import numpy as np
    >>> sort(np.array([3.0, 1.0, 2.0]))
    array([1., 2., 3.])
    """
    several = isinstance(operand, list | tuple)
    arrays = [require_array("sort", each) for each in (operand if several else [operand])]
    if not arrays:
        raise ArgumentError(at_user_line("sort: no arrays; at least one is needed"))
    dimension = strict_axis_of("sort", dimension, len(shape_of(arrays[0])))
    num_keys = as_integer("sort", num_keys)
    check_operands(sort_room.sort_p, *arrays, dimension=dimension, num_keys=num_keys)
    results = sort_room.sort(arrays, dimension, num_keys)
    return tuple(results) if several else results[0]


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> tuple[Any, Any]:
    """Return `keys` sorted along an axis, and `values` in the same order; the shapes are equal. Raises `ShapeError`.

    >>> import numpy as np
    >>> sort_key_val(np.array([2.0, 1.0]), np.array([10, 20]))
    (array([1., 2.]), array([20, 10]))
    """
    first, second = sort((keys, values), dimension, is_stable)
    return first, second
