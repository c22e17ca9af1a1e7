"""The contraction `dot_general`: matrix products of every kind, with batch axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.caches import cached
from fxgrad.engine.core.avals import Aval, Shape
from fxgrad.engine.core.primitive import ArrayKernel, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.dtypes import DType
from fxgrad.engine.ops.arithmetic import mul
from fxgrad.engine.ops.conversion import converted, converted_by_xla
from fxgrad.engine.ops.families import check_same_dtype, is_linear, rank_of
from fxgrad.engine.ops.pointwise import sum_of_parts
from fxgrad.engine.ops.snippets import Snippet, snippets
from fxgrad.engine.ops.structural import convert, inverse_permutation, transpose, transpose_p
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError

Axes = tuple[int, ...]
DotDimensions = tuple[tuple[Axes, Axes], tuple[Axes, Axes]]
"""((contracted axes of x, of y), (batch axes of x, of y)), as in `lax.dot_general`."""


def _free(rank: int, contracting: Axes, batch: Axes) -> Axes:
    return tuple(axis for axis in range(rank) if axis not in contracting and axis not in batch)


def _dot_abstract(x: Aval, y: Aval, *, dimension_numbers: DotDimensions, precision: str | None,
                  preferred_element_type: DType | None) -> list[Aval]:
    check_same_dtype("dot_general", x, y)
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    for aval, axes in ((x, (*x_contract, *x_batch)), (y, (*y_contract, *y_batch))):
        if len(set(axes)) != len(axes) or any(not 0 <= axis < aval.ndim for axis in axes):
            raise ShapeError(f"dot_general: contracted and batch axes {axes} of an array of shape {aval.shape}; they "
                             f"must be distinct and from 0 to {aval.ndim - 1}")
    for what, x_axes, y_axes in (("contracted", x_contract, y_contract), ("batch", x_batch, y_batch)):
        x_sizes, y_sizes = [x.shape[axis] for axis in x_axes], [y.shape[axis] for axis in y_axes]
        if x_sizes != y_sizes:
            raise ShapeError(f"dot_general: shapes {x.shape} and {y.shape}: {what} axes {x_axes} and {y_axes} have "
                             f"sizes {tuple(x_sizes)} and {tuple(y_sizes)}, which must be equal")
    shape = (*(x.shape[axis] for axis in x_batch), *(x.shape[axis] for axis in _free(x.ndim, x_contract, x_batch)),
             *(y.shape[axis] for axis in _free(y.ndim, y_contract, y_batch)))
    dtype = preferred_element_type or x.dtype
    return [Aval(shape, dtype, x.weak and y.weak and preferred_element_type is None)]


# --- the NumPy kernel ---------------------------------------------------------------------------------------------

Product = Callable[[Any, Any], Any]


def dot_numpy(x: Any, y: Any, *, dimension_numbers: DotDimensions, precision: str | None,
              preferred_element_type: DType | None) -> Any:
    """Return the sums of products, by NumPy."""
    dtype = x.dtype
    if preferred_element_type is not None and preferred_element_type != dtype:
        dtype = preferred_element_type
        whole = dtypes.is_floating(x.dtype) and dtypes.is_integer(dtype)  # XLA converts the sums to integers
        x, y = (each.astype(np.float32 if whole else dtype) for each in (x, y))
    first, product = _stored(x), _product(x.shape, y.shape, dimension_numbers)
    x, y = first, first if y is x else _stored(y)  # NumPy multiplies a matrix by its own transpose in another way
    if dtype.kind in "iu" and x.dtype.kind == "f":
        return converted(product(x, y), dtype)
    if dtype.itemsize < 4 and dtypes.is_floating(dtype):
        # As in XLA: products of narrow floats are summed in float32.
        return product(x.astype(np.float32), y.astype(np.float32)).astype(dtype)
    return product(x, y)


@cached("products", 4096)
def _product(x_shape: Shape, y_shape: Shape, dimension_numbers: DotDimensions) -> Product:
    """Return the function that contracts arrays of these shapes: one product of vectors, matrices or stacks of them."""
    (x_contract, y_contract), (x_batch, _) = dimension_numbers
    ranks = len(x_shape), len(y_shape)
    if not x_batch and len(x_contract) == 1 and ranks[0] in (1, 2) and ranks[1] in (1, 2):
        turned = x_contract[0] != ranks[0] - 1, y_contract[0] != 0
        return _MATRIX_PRODUCTS[turned]
    if not x_batch and not x_contract:
        return lambda x, y: np.multiply.outer(x, y)
    return _general_product(x_shape, y_shape, dimension_numbers)


_MATRIX_PRODUCTS: dict[tuple[bool, bool], Product] = {
    (False, False): lambda x, y: x.dot(y),
    (True, False): lambda x, y: x.T.dot(y),
    (False, True): lambda x, y: x.dot(y.T),
    (True, True): lambda x, y: x.T.dot(y.T),
}


def _general_product(x_shape: Shape, y_shape: Shape, dimension_numbers: DotDimensions) -> Product:
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    x_free, y_free = _free(len(x_shape), x_contract, x_batch), _free(len(y_shape), y_contract, y_batch)
    # The order of the contracted axes is free: take one that needs no copy of x, or else of y.
    by_x = sorted(range(len(x_contract)), key=x_contract.__getitem__)
    x_contract, y_contract = tuple(x_contract[i] for i in by_x), tuple(y_contract[i] for i in by_x)
    x_order, y_order = (*x_batch, *x_free, *x_contract), (*y_batch, *y_contract, *y_free)
    batch = tuple(x_shape[axis] for axis in x_batch)
    x_kept, y_kept = tuple(x_shape[axis] for axis in x_free), tuple(y_shape[axis] for axis in y_free)
    inner = prod(x_shape[axis] for axis in x_contract)
    x_matrix, y_matrix = (*batch, prod(x_kept), inner), (*batch, inner, prod(y_kept))
    out_shape = (*batch, *x_kept, *y_kept)

    def product(x: Any, y: Any) -> Any:
        left, right = x.transpose(x_order).reshape(x_matrix), y.transpose(y_order).reshape(y_matrix)
        return np.matmul(left, right).reshape(out_shape)

    return product


def _stored(x: Any) -> Any:
    """Return an array that stores all elements: BLAS takes no repeated ones, and NumPy sums them in another order."""
    return np.ascontiguousarray(x) if 0 in x.strides else x


# --- the record ---------------------------------------------------------------------------------------------------


def _dot_xla(lax: Any, x: Any, y: Any, *, dimension_numbers: DotDimensions, precision: str | None,
             preferred_element_type: DType | None) -> list[Any]:
    dtype = x.dtype
    whole = preferred_element_type is not None and dtypes.is_integer(preferred_element_type)
    if dtypes.bits_of(dtype) < 8 or (dtype.itemsize == 1 and whole and dtypes.is_floating(dtype)):
        # XLA cannot sum them in other dtypes, or rounds these before converting to integers.
        x, y = (lax.convert_element_type(each, np.float32) for each in (x, y))
        product = lax.dot_general(x, y, dimension_numbers, precision=precision, preferred_element_type=np.float32)
        return [converted_by_xla(lax, product, preferred_element_type or dtype)]
    return [lax.dot_general(x, y, dimension_numbers, precision=precision,
                            preferred_element_type=preferred_element_type or x.dtype)]


def _dot_jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    x, y = primals
    out = bind(dot_general_p, x, y, **params)
    parts = [bind(dot_general_p, *operands, **params)[0] for tangent, operands in
             ((tangents[0], (tangents[0], y)), (tangents[1], (x, tangents[1]))) if type(tangent) is not Zero]
    return out, [sum_of_parts(parts, aval_of(out[0]))]


class Products(NamedTuple):
    """The contraction, and the elementwise product that transposes it."""

    dot: Callable[..., Any]
    mul: Callable[..., Any]


def _cotangent_of_first(cotangent: Any, aval: Aval, y: Any, x_axes: tuple[Axes, Axes], y_axes: tuple[Axes, Axes],
                        x_is_left: bool, by: Products) -> Any:
    """Return the cotangent of the operand of type `aval`, with contracted and batch axes `x_axes`; the other is `y`."""
    (x_contract, x_batch), (y_contract, y_batch) = x_axes, y_axes
    x_free, y_free = _free(aval.ndim, x_contract, x_batch), _free(rank_of(y), y_contract, y_batch)
    if not rank_of(cotangent):
        return transpose(by.mul(y, cotangent), inverse_permutation(_pair_axes(x_contract, y_contract)))
    batch = tuple(range(len(x_batch)))
    first = len(batch) + (len(x_free) if x_is_left else 0)
    ct_axes = tuple(range(first, first + len(y_free)))
    by_y = _pair_axes(x_contract, y_contract)
    # Either order of the operands gives the product; one of them often gives it with its axes in place.
    swapped = [*x_batch, *by_y, *x_free]
    if swapped == sorted(swapped):
        return by.dot(y, cotangent, ((y_free, ct_axes), (y_batch, batch)))
    result = by.dot(cotangent, y, ((ct_axes, y_free), (batch, y_batch)))
    return transpose(result, inverse_permutation([*x_batch, *x_free, *by_y]))


def _pair_axes(x_contract: Axes, y_contract: Axes) -> list[int]:
    """Return the contracted axes of x in the order of those of y."""
    return [x_contract[i] for i in sorted(range(len(y_contract)), key=y_contract.__getitem__)]


def transpose_contraction(by: Products, cotangents: list[Any], inputs: list[Any], dimension_numbers: DotDimensions,
                          ) -> list[Any]:
    """Apply the transpose rule of a contraction."""
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    x_axes, y_axes = (x_contract, x_batch), (y_contract, y_batch)
    x, y = inputs
    aval = (x if is_linear(x) else y).aval
    cotangent = cotangents[0]
    if aval.dtype.itemsize > 1:
        cotangent = convert(cotangent, aval.dtype)
    elif aval_of(cotangent).dtype != aval.dtype:  # it would lose digits: the other operand is widened, as in jax
        x, y = (value if is_linear(value) else convert(value, aval_of(cotangent).dtype) for value in inputs)
    if is_linear(x):
        return [convert(_cotangent_of_first(cotangent, aval, y, x_axes, y_axes, True, by), aval.dtype), None]
    return [None, convert(_cotangent_of_first(cotangent, aval, x, y_axes, x_axes, False, by), aval.dtype)]


def unify_operands(x: Any, y: Any, preferred_element_type: DType | None) -> tuple[Any, Any]:
    """Return operands for sums in a given dtype: 8-bit floats beside others take the others' dtype, losslessly."""
    pair = aval_of(x).dtype, aval_of(y).dtype
    if preferred_element_type is None or pair[0] == pair[1] or not all(map(dtypes.is_floating, pair)) or not any(
            dtype.itemsize == 1 for dtype in pair):
        return x, y
    wide = max(dtypes.float32, *pair, key=lambda dtype: dtype.itemsize)
    return convert(x, wide), convert(y, wide)


def _dot_transpose(cotangents: list[Any], inputs: list[Any], *, dimension_numbers: DotDimensions,
                   precision: str | None, preferred_element_type: DType | None) -> list[Any]:
    return transpose_contraction(Products(dot_general, mul), cotangents, inputs, dimension_numbers)


def batched_dimensions(values: Sequence[Any], axes: Sequence[int | None], dimension_numbers: DotDimensions,
                       ) -> tuple[DotDimensions, int]:
    """Return the dimension numbers of a contraction of batched operands, and the batch axis of the result."""
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    (x_contract, x_batch), (y_contract, y_batch) = (
        (contract, batch) if at is None else (_shift_axes(contract, at), _shift_axes(batch, at))
        for contract, batch, at in ((x_contract, x_batch, axes[0]), (y_contract, y_batch, axes[1])))
    at, y_at = axes
    if at is not None and y_at is not None:
        x_batch, y_batch = (at, *x_batch), (y_at, *y_batch)
        place = 0
    elif at is not None:
        place = len(x_batch) + _free(rank_of(values[0]), x_contract, x_batch).index(at)
    else:
        x_free = _free(rank_of(values[0]), x_contract, x_batch)
        place = len(x_batch) + len(x_free) + _free(rank_of(values[1]), y_contract, y_batch).index(y_at or 0)
    return ((x_contract, y_contract), (x_batch, y_batch)), place


def _dot_batch(size: int, values: list[Any], axes: list[int | None], *, dimension_numbers: DotDimensions,
               **params: Any) -> tuple[list[Any], list[int]]:
    numbers, place = batched_dimensions(values, axes, dimension_numbers)
    return bind(dot_general_p, *values, dimension_numbers=numbers, **params), [place]


def _shift_axes(axes: Axes, at: int) -> Axes:
    return tuple(axis + (axis >= at) for axis in axes)


def _dot_cost(x: Aval, y: Aval, **params: Any) -> Cost:
    outputs = _dot_abstract(x, y, **params)
    inner = prod(x.shape[axis] for axis in params["dimension_numbers"][0][0])
    return Cost(2 * outputs[0].size * inner, total_bytes([x, y], outputs))


dot_general_p = register(Primitive(
    name="dot_general", abstract=_dot_abstract, numpy=ArrayKernel(dot_numpy), xla=_dot_xla, jvp=_dot_jvp,
    transpose=_dot_transpose, batch=_dot_batch, cost=_dot_cost))


@snippets.register(dot_general_p)
def _dot_snippet(avals: Sequence[Aval], params: dict[str, Any]) -> Snippet | None:
    """Return the expression of a product of vectors and matrices of wide dtypes, from `_MATRIX_PRODUCTS`."""
    x, y = avals
    (x_contract, y_contract), (x_batch, _) = params["dimension_numbers"]
    preferred = params["preferred_element_type"]
    if x_batch or len(x_contract) != 1 or not {x.ndim, y.ndim} <= {1, 2} or x.dtype.kind not in "fc" or \
            x.dtype.itemsize < 4 or (preferred is not None and preferred != x.dtype):
        return None
    left, right = "{0}.T" * (x_contract[0] != x.ndim - 1) or "{0}", "{1}.T" * (y_contract[0] != 0) or "{1}"
    return Snippet(f"{left}.dot({right}{{out}})", row_major=True, takes_stored=True)


PRECISIONS = {"default": 0, "high": 1, "highest": 2, "fastest": 0, "bfloat16": 0, "bfloat16_3x": 1, "tensorfloat32": 1,
              "float32": 2}
"""The values of `lax.Precision` by name: its own names, and further ones that jax gives them."""
ALGORITHMS = (
    "ANY_F8_ANY_F8_F32", "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY", "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
    "F16_F16_F16", "F16_F16_F32", "BF16_BF16_BF16", "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6",
    "BF16_BF16_F32_X9", "TF32_TF32_F32", "TF32_TF32_F32_X3", "F32_F32_F32", "F64_F64_F64")
"""The names of `lax.DotAlgorithmPreset`, but for the default."""


def precision_name(precision: Any, algorithms: Sequence[str] = ALGORITHMS) -> Any:
    """Return a precision, or a pair of them, by name: one of `PRECISIONS` or of `algorithms`.

    `lax.Precision` and `lax.DotAlgorithmPreset` may be ours or jax's. Raises `ArgumentError` for anything else.
    """
    if precision is None:
        return None
    if isinstance(precision, tuple | list) and not hasattr(precision, "_fields"):
        return tuple(precision_name(each, algorithms) for each in precision)
    name = precision if isinstance(precision, str) else getattr(precision, "name", None)
    if name in algorithms:
        return name
    if isinstance(name, str) and name.lower() in PRECISIONS:
        return name.lower()
    either = "a Precision or a DotAlgorithmPreset" if algorithms else "a Precision"
    raise ArgumentError(at_user_line(
        f"precision={precision!r}: {either} is needed, such as fxgrad.lax.Precision.HIGHEST, or a name of theirs: "
        f"{', '.join((*PRECISIONS, *algorithms))}"))


def dot_general(x: Any, y: Any, dimension_numbers: Any, precision: str | None = None,
                preferred_element_type: DType | None = None) -> Any:
    """Return the sum of products of `x` and `y` over contracted axes, for each index along batch axes.

    `dimension_numbers` is `((contracted axes of x, of y), (batch axes of x, of y))`. The result has the batch axes,
    then the other axes of `x`, then those of `y`. Sums are made in, and returned as, `preferred_element_type`.
    """
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    numbers = (tuple(x_contract), tuple(y_contract)), (tuple(x_batch), tuple(y_batch))
    if preferred_element_type is not None or precision is not None:
        precision, preferred_element_type = _with_effect(aval_of(x), aval_of(y), precision, preferred_element_type)
    return bind(dot_general_p, x, y, dimension_numbers=numbers, precision=precision,
                preferred_element_type=preferred_element_type)[0]


def _with_effect(x: Aval, y: Aval, precision: Any, preferred: DType | None) -> tuple[Any, DType | None]:
    """Return the options without ineffective ones: the product's own dtype, a precision for integers."""
    names = precision_name(precision)
    listed = names if isinstance(names, tuple) else (names,)
    if not dtypes.is_inexact(x.dtype) and all(name in ("default", "high", "highest") for name in listed):
        names = None
    return names, None if preferred == x.dtype and not (x.weak and y.weak) else preferred


@rewrites.register(dot_general_p, makers=(transpose_p,))
def _dot_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Contract transposed operands along other axes instead."""
    def transposition(value: Any) -> tuple[Any, Axes] | None:
        source = known.inputs_if(value, transpose_p)
        return (source[0], known.params_of(value)["permutation"]) if source else None
    found = untransposed(inputs, params["dimension_numbers"], transposition)
    return found and bind(dot_general_p, *found[0], **{**params, "dimension_numbers": found[1]})


def untransposed(operands: Sequence[Any], dimension_numbers: DotDimensions,
                 transposition: Callable[[Any], tuple[Any, Axes] | None]) -> tuple[list[Any], DotDimensions] | None:
    """Return operands and dimension numbers of an equal product, with operands as they were before a transposition.

    `transposition` returns what was transposed to an operand, and the permutation. An operand stays if its free axes or
    its sums would come in another order; None if all stay.
    """
    contracts, batches = map(list, dimension_numbers)
    sources: dict[int, Any] = {}
    for place, value in enumerate(operands):
        found = transposition(value)
        if found:
            source, order = found
            free = [order[axis] for axis in _free(len(order), contracts[place], batches[place])]
            summed = [order[axis] for axis in sorted(contracts[place])]
            if free == sorted(free) and summed == sorted(summed):
                sources[place] = source
                contracts[place] = tuple(order[axis] for axis in contracts[place])
                batches[place] = tuple(order[axis] for axis in batches[place])
    if not sources:
        return None
    return ([sources.get(place, value) for place, value in enumerate(operands)],
            ((contracts[0], contracts[1]), (batches[0], batches[1])))
