"""Reductions: reduce_prod, reduce_max, reduce_min, attains, reduce_and, reduce_or, reduce_xor, argmax, argmin.

`reduce_sum` is in `structural`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, ArrayKernel, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.sizes import surely_less
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.dtypes import DType
from fxgrad.engine.ops.arithmetic import complex_extremum, div, mul
from fxgrad.engine.ops.cumulative import cumprod, shift_along
from fxgrad.engine.ops.families import check_axes, check_kind, check_same_dtype, reduced_shape, reduction
from fxgrad.engine.ops.joining import align_batch_axes
from fxgrad.engine.ops.snippets import Snippet, snippets, ufunc_snippet
from fxgrad.engine.ops.structural import (
    convert,
    has_trivial_axes,
    inverse_permutation,
    reduce_sum,
    reshape,
    transpose,
)
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import DTypeError, ShapeError

COVERED_BY = {
    "reduce": "the reductions by name: one over a user's own binary function holds a program, which an operation of "
              "first order does not",
}
"""jax's primitives of this family without a counterpart in fxgrad, and their replacements."""

# --- products ---------------------------------------------------------------------------------------------------


def _products_of_others(x: Any, axes: tuple[int, ...]) -> Any:
    """Return for each element the product of all others reduced with it: those before times those behind."""
    shape = aval_of(x).shape
    if len(axes) == 1:
        axis, flat = axes[0], x
        order: tuple[int, ...] = tuple(range(len(shape)))
    else:
        kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
        order, axis = (*kept, *axes), len(kept)
        flat = reshape(transpose(x, order), (*(shape[at] for at in kept), math.prod(shape[at] for at in axes)))
    before = cumprod(shift_along(flat, 1.0, axis, reverse=False), axis)
    behind = cumprod(shift_along(flat, 1.0, axis, reverse=True), axis, reverse=True)
    product = reshape(mul(before, behind), tuple(shape[at] for at in order))
    return transpose(product, inverse_permutation(order))


def _prod_jvp(primals: list[Any], tangents: list[Any], *, axes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    x, out = primals[0], reduce_prod(primals[0], axes)
    count = math.prod(aval_of(x).shape[axis] for axis in axes)
    if surely_less(count, 2):
        return [out], [reduce_sum(tangents[0], axes) if count else Zero(aval_of(out))]
    return [out], [reduce_sum(mul(tangents[0], _products_of_others(x, axes)), axes)]


reduce_prod_p = reduction(
    "reduce_prod", accepts="numeric", public="prod", jvp=_prod_jvp,
    numpy=lambda x, axes: np.multiply.reduce(x, axis=axes, dtype=x.dtype))


def reduce_prod(x: Any, axes: Sequence[int]) -> Any:
    """Return the product over `axes` (non-negative), in the dtype of `x`; derivatives are correct at zeros too."""
    return bind(reduce_prod_p, x, axes=tuple(sorted(axes)))[0] if axes else x


# --- extrema ----------------------------------------------------------------------------------------------------


def _extremum(ufunc: np.ufunc, least: bool) -> Callable[..., Any]:
    """Return the kernel; over no elements the result is the greatest or least number of the dtype, or an infinity."""
    def of_nothing(dtype: DType) -> Any:
        if dtype.kind == "b":
            return np.bool_(least)
        if dtypes.is_integer(dtype):
            return dtypes.iinfo(dtype).max if least else dtypes.iinfo(dtype).min
        return dtype.type(math.inf if least else -math.inf)

    def kernel(x: Any, axes: tuple[int, ...]) -> Any:
        if x.size:
            return ufunc.reduce(x, axis=axes)
        return np.full(reduced_shape(Aval(x.shape, x.dtype), axes), of_nothing(x.dtype), x.dtype)
    return kernel


def _extremum_jvp(primitive: Primitive, primals: list[Any], tangents: list[Any], *,
                  axes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    """Average the tangents of the elements that are the extremum, as in jax."""
    x, out = primals[0], bind(primitive, *primals, axes=axes)[0]
    aval = aval_of(x)
    if not aval.size:
        return [out], [Zero(aval_of(out))]
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(aval.shape))
    attained, = bind(attains_p, x, reshape(out, kept), greatest=primitive is reduce_max_p)
    chosen = convert(attained, aval.dtype)
    tangent = reduce_sum(mul(tangents[0], chosen), axes)
    return [out], [div(tangent, reduce_sum(chosen, axes))]


def _extremum_xla(lax: Any, name: str, x: Any, axes: tuple[int, ...]) -> Any:
    if x.dtype.kind != "c" or not x.size:
        return getattr(lax, f"reduce_{name}")(x, axes=axes)
    bound = math.inf if name == "min" else -math.inf
    return lax.reduce(x, x.dtype.type(complex(bound, bound)), lambda x, y: complex_extremum(lax, name, x, y), axes)


reduce_max_p = reduction(
    "reduce_max", accepts="any", public="max", numpy=_extremum(np.maximum, least=False),
    xla=lambda lax, x, *, axes: _extremum_xla(lax, "max", x, axes),
    jvp=lambda *args, **params: _extremum_jvp(reduce_max_p, *args, **params))
reduce_min_p = reduction(
    "reduce_min", accepts="any", public="min", numpy=_extremum(np.minimum, least=True),
    xla=lambda lax, x, *, axes: _extremum_xla(lax, "min", x, axes),
    jvp=lambda *args, **params: _extremum_jvp(reduce_min_p, *args, **params))


def reduce_max(x: Any, axes: Sequence[int]) -> Any:
    """Return the greatest element over `axes`, a NaN if there is one; ties share the tangent equally."""
    return bind(reduce_max_p, x, axes=tuple(sorted(axes)))[0] if axes else x


def reduce_min(x: Any, axes: Sequence[int]) -> Any:
    """Return the least element over `axes`, a NaN if there is one; ties share the tangent equally."""
    return bind(reduce_min_p, x, axes=tuple(sorted(axes)))[0] if axes else x


# --- elements that are the extremum -----------------------------------------------------------------------------


def _attains_abstract(x: Aval, out: Aval, *, greatest: bool) -> list[Aval]:
    check_same_dtype("attains", x, out)
    if x.ndim != out.ndim or any(extent not in (1, whole) for extent, whole in zip(out.shape, x.shape, strict=True)):
        raise ShapeError(f"attains: extrema of shape {out.shape} of an array of shape {x.shape}; "
                         "size 1 along the reduced axes and the array's sizes along the others are needed")
    return [Aval(x.shape, dtypes.bool_)]


def _attains_batch(size: int, values: list[Any], axes: list[int | None], *, greatest: bool,
                   ) -> tuple[list[Any], list[int]]:
    alike, at = align_batch_axes(size, values, axes)
    return bind(attains_p, *alike, greatest=greatest), [at]


def _attains_xla(lax: Any, x: Any, out: Any, *, greatest: bool) -> Any:
    """Compare with the extrema; where no element equals that of its row, compare with those of x as a branch gets it.

    XLA may compute x a second time for the comparison, with a product and a sum rounded as one, as it did not for the
    extrema. The operands of a branch are stored, so that all that it computes of x starts from the same numbers.
    """
    def compared(x: Any, out: Any) -> Any:
        return lax.eq(x, lax.broadcast_in_dim(out, x.shape, range(x.ndim)))

    found = compared(x, out)
    axes = tuple(axis for axis, extent in enumerate(x.shape) if out.shape[axis] != extent)
    if not axes or not x.size or not dtypes.is_inexact(x.dtype):
        return found
    complete = lax.reduce_and(lax.reduce_or(found, axes), range(x.ndim - len(axes)))

    def compared_again(x: Any, found: Any) -> Any:
        return compared(x, lax.reshape(_extremum_xla(lax, "max" if greatest else "min", x, axes), out.shape))

    return lax.cond(complete, lambda x, found: found, compared_again, x, found)


attains_p = register(Primitive(
    name="attains", abstract=_attains_abstract, numpy=ArrayKernel(lambda x, out, *, greatest: x == out),
    xla=lambda lax, x, out, *, greatest: [_attains_xla(lax, x, out, greatest=greatest)],
    jvp=NO_TANGENT, transpose=NOT_LINEAR, batch=_attains_batch,
    cost=lambda x, out, **params: Cost(x.size, total_bytes([x, out], _attains_abstract(x, out, **params)))))
"""Whether each element is the extremum of its row; `out` has the extrema, with size 1 along the reduced axes."""


@snippets.register(attains_p)
def _attains_snippet(avals: Sequence[Aval], params: dict[str, Any]) -> Snippet:
    return ufunc_snippet(np.equal, avals)


# --- logic ------------------------------------------------------------------------------------------------------


def _bitwise(name: str, ufunc: np.ufunc, public: str) -> Primitive:
    return reduction(name, accepts="integral", public=public, jvp=NO_TANGENT,
                     numpy=lambda x, axes: ufunc.reduce(x, axis=axes, dtype=x.dtype))


reduce_and_p = _bitwise("reduce_and", np.bitwise_and, "all")
reduce_or_p = _bitwise("reduce_or", np.bitwise_or, "any")
reduce_xor_p = _bitwise("reduce_xor", np.bitwise_xor, "bitwise_xor.reduce")


def reduce_and(x: Any, axes: Sequence[int]) -> Any:
    """Return bitwise "and" over `axes`; for bools: whether all are True."""
    return bind(reduce_and_p, x, axes=tuple(sorted(axes)))[0] if axes else x


def reduce_or(x: Any, axes: Sequence[int]) -> Any:
    """Return bitwise "or" over `axes`; for bools: whether any is True."""
    return bind(reduce_or_p, x, axes=tuple(sorted(axes)))[0] if axes else x


def reduce_xor(x: Any, axes: Sequence[int]) -> Any:
    """Return bitwise "exclusive or" over `axes`; for bools: whether an odd number is True."""
    return bind(reduce_xor_p, x, axes=tuple(sorted(axes)))[0] if axes else x


def _register_trivial_axes(primitive: Primitive) -> None:
    """Enter the algebra: over axes of size 1, such a reduction only changes the shape."""
    @rewrites.register(primitive, when=has_trivial_axes)
    def rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
        aval, axes = aval_of(inputs[0]), params["axes"]
        return [reshape(inputs[0], reduced_shape(aval, axes))] if has_trivial_axes([aval], params) else None


for _primitive in (reduce_prod_p, reduce_max_p, reduce_min_p, reduce_and_p, reduce_or_p, reduce_xor_p):
    _register_trivial_axes(_primitive)

# --- positions --------------------------------------------------------------------------------------------------


def _position(name: str, numpy: Callable[..., Any]) -> Primitive:
    """Return the record of the position of an extremum: the first one, or the first NaN if there is any."""
    def abstract(x: Aval, *, axis: int, index_dtype: DType) -> list[Aval]:
        check_kind(name, "ordered", x)
        check_axes(name, x, (axis,))
        if not dtypes.is_integer(index_dtype):
            raise DTypeError(f"{name}: index_dtype must be an integer dtype, got {index_dtype.name}; "
                             "write for example int32")
        if not x.shape[axis]:
            raise ShapeError(f"{name}: axis {axis} of an array of shape {x.shape} has no elements to choose from; "
                             "at least one is needed")
        return [Aval(reduced_shape(x, (axis,)), index_dtype)]

    def kernel(x: Any, *, axis: int, index_dtype: DType) -> Any:
        if x.dtype.kind == "c":
            raise TypeError("the abstract rule says why")
        return numpy(x, axis=axis).astype(index_dtype)

    def batch(size: int, values: list[Any], axes: list[int], *, axis: int,
              index_dtype: DType) -> tuple[list[Any], list[int]]:
        at = axes[0]
        moved = axis + (axis >= at)
        return bind(primitive, values[0], axis=moved, index_dtype=index_dtype), [at - (moved < at)]

    primitive = register(Primitive(
        name=name, abstract=abstract, numpy=ArrayKernel(kernel), jvp=NO_TANGENT, transpose=NOT_LINEAR, batch=batch,
        xla=lambda lax, x, *, axis, index_dtype: [getattr(lax, name)(x, axis, index_dtype)],
        cost=lambda x, **params: Cost(x.size, total_bytes([x], abstract(x, **params)))))
    return primitive


argmax_p = _position("argmax", np.argmax)
argmin_p = _position("argmin", np.argmin)


def argmax(x: Any, axis: int, index_dtype: DType = dtypes.int32) -> Any:
    """Return the position of the greatest element along `axis` (the first one, or the first NaN)."""
    return bind(argmax_p, x, axis=axis, index_dtype=index_dtype)[0]


def argmin(x: Any, axis: int, index_dtype: DType = dtypes.int32) -> Any:
    """Return the position of the least element along `axis` (the first one, or the first NaN)."""
    return bind(argmin_p, x, axis=axis, index_dtype=index_dtype)[0]
