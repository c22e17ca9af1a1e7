"""Strong products: strong_mul, strong_div and strong_dot_general, in which 0 times anything is 0.

They replace products in the derivatives of `fxgrad.nan_safe`: a value without influence has the cotangent 0, and 0
times an infinite slope gives 0. For finite factors they equal the ordinary products bit for bit. They are bilinear, and
so are their rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.primitive import ArrayKernel, Primitive, register
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.ops import products
from fxgrad.engine.ops.arithmetic import div, div_p, mul, mul_p, neg
from fxgrad.engine.ops.families import is_linear
from fxgrad.engine.ops.pointwise import binary, operation, sum_of_parts
from fxgrad.engine.ops.structural import unbroadcast
from fxgrad.engine.tracing.tape import aval_of, bind


def is_finite(value: Any) -> bool:
    """Return whether every number is finite, by one pass; overflowing squares are checked again."""
    dtype = getattr(value, "dtype", None)
    if dtype is not None and not dtypes.is_inexact(dtype):
        return True
    if dtype is None or dtype.kind in "fc":
        total = np.vdot(value, value)
        if isfinite(total.real):
            return True
    return bool(np.isfinite(value).all())


# --- of elements ------------------------------------------------------------------------------------------------


def _strong_mul_numpy(x: Any, y: Any) -> Any:
    product = np.multiply(x, y)
    if not is_finite(product):
        product = np.where(np.isnan(product) & (np.equal(x, 0) | np.equal(y, 0)), product.dtype.type(0), product)[()]
    return product


def _strong_div_numpy(x: Any, y: Any) -> Any:
    quotient = np.true_divide(x, y)
    if not is_finite(quotient):
        nothing = np.isnan(quotient) & (np.equal(x, 0) | np.isinf(y))
        quotient = np.where(nothing, quotient.dtype.type(0), quotient)[()]
    return quotient


def _zero_where(lax: Any, nothing: Any, value: Any) -> Any:
    return lax.select(lax.bitwise_and(lax.ne(value, value), nothing), lax.full_like(value, 0), value)


def _strong_mul_xla(lax: Any, x: Any, y: Any) -> Any:
    zero = lax.bitwise_or(lax.eq(x, lax.full_like(x, 0)), lax.eq(y, lax.full_like(y, 0)))
    return _zero_where(lax, zero, lax.mul(x, y))


def _is_infinite(lax: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        return lax.bitwise_or(_is_infinite(lax, lax.real(x)), _is_infinite(lax, lax.imag(x)))
    return lax.eq(lax.abs(x), lax.full_like(x, np.inf))


def _strong_div_xla(lax: Any, x: Any, y: Any) -> Any:
    nothing = lax.bitwise_or(lax.eq(x, lax.full_like(x, 0)), _is_infinite(lax, y))
    return _zero_where(lax, nothing, lax.div(x, y))


def _strong_mul_transpose(cotangents: list[Any], inputs: list[Any]) -> list[Any]:
    x, y = inputs
    if is_linear(x):
        return [unbroadcast(strong_mul(cotangents[0], y), x.aval), None]
    return [None, unbroadcast(strong_mul(x, cotangents[0]), y.aval)]


def _strong_div_transpose(cotangents: list[Any], inputs: list[Any]) -> list[Any]:
    x, y = inputs
    return [unbroadcast(strong_div(cotangents[0], y), x.aval), None]


strong_mul_p = binary(
    "strong_mul", numpy=_strong_mul_numpy, xla=_strong_mul_xla, accepts="inexact",
    transpose=_strong_mul_transpose, commutative=True, exactly_rounded=True, flops=1,
    tangents=[lambda t, out, x, y: strong_mul(t, y), lambda t, out, x, y: strong_mul(x, t)])
strong_mul = operation(strong_mul_p)

strong_div_p = binary(
    "strong_div", numpy=_strong_div_numpy, xla=_strong_div_xla, accepts="inexact",
    transpose=_strong_div_transpose, exactly_rounded=True, flops=1,
    tangents=[lambda t, out, x, y: strong_div(t, y), lambda t, out, x, y: neg(strong_div(strong_mul(t, out), y))])
strong_div = operation(strong_div_p)


def is_plain_factor(value: Any) -> bool:
    """Return whether `value` is a number that is neither 0 nor infinite: its products are ordinary ones."""
    return type(value) is Literal and np.ndim(value.value) == 0 and bool(np.isfinite(value.value)) and \
        bool(value.value != 0)


@rewrites.register(strong_mul_p)
def _strong_mul_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Replace a product with a number that is neither 0 nor infinite by the ordinary product."""
    return [mul(*inputs)] if any(map(is_plain_factor, inputs)) else None


@rewrites.register(strong_div_p)
def _strong_div_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    return [div(*inputs)] if is_plain_factor(inputs[1]) else None


# --- of matrices ------------------------------------------------------------------------------------------------
# A term of the sum is 0 if all its factors on one side are 0: columns of x at rows of zeros of y, and rows of y
# at columns of zeros of x. Masks make such zeros, where one infinite number would make a whole row infinite.


def _masks(x: Any, y: Any, dimension_numbers: products.DotDimensions, all_zero: Any, spread: Any) -> list[Any]:
    """Return where x meets zeros of y alone, and where y meets zeros of x alone, of the shapes of x and y."""
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    found = []
    for one, own, other, theirs in ((x, (*x_contract, *x_batch), y, (*y_contract, *y_batch)),
                                    (y, (*y_contract, *y_batch), x, (*x_contract, *x_batch))):
        left = sorted(theirs)
        zeros = all_zero(other, tuple(axis for axis in range(other.ndim) if axis not in theirs))
        places = [own[theirs.index(axis)] for axis in left]  # in `one`, the remaining axes
        found.append(spread(zeros, places, one.shape))
    return found


def _spread_numpy(zeros: Any, places: Sequence[int], shape: Sequence[int]) -> Any:
    turned = np.transpose(zeros, np.argsort(places))
    return np.broadcast_to(turned.reshape([shape[axis] if axis in places else 1 for axis in range(len(shape))]), shape)


def _strong_dot_numpy(x: Any, y: Any, **params: Any) -> Any:
    product = products.dot_numpy(x, y, **params)
    if is_finite(product):
        return product
    masks = _masks(x, y, params["dimension_numbers"], lambda value, axes: np.all(value == 0, axis=axes), _spread_numpy)
    return products.dot_numpy(*(
        np.where(mask, value.dtype.type(0), value) for mask, value in zip(masks, (x, y), strict=True)), **params)


def _strong_dot_xla(lax: Any, x: Any, y: Any, **params: Any) -> list[Any]:
    """Multiply masked operands; `executors.speculative` runs this only where it matters."""
    def all_zero(value: Any, axes: Sequence[int]) -> Any:
        """Multiply by ones: a reduction costs time even in a loop of zero iterations, where masks mostly are."""
        other = lax.ne(value, lax.full_like(value, 0))
        if not axes:
            return lax.bitwise_not(other)
        ones = lax.full([value.shape[axis] for axis in axes], 1, np.float32)
        numbers = ((tuple(axes), tuple(range(len(axes)))), ((), ()))
        number = lax.dot_general(lax.convert_element_type(other, np.float32), ones, numbers)
        return lax.eq(number, lax.full_like(number, 0))

    def spread(zeros: Any, places: Sequence[int], shape: Sequence[int]) -> Any:
        order = sorted(range(len(places)), key=places.__getitem__)
        return lax.broadcast_in_dim(lax.transpose(zeros, order), shape, sorted(places))

    masks = _masks(x, y, params["dimension_numbers"], all_zero, spread)
    masked = (lax.select(mask, lax.full_like(value, 0), value) for mask, value in zip(masks, (x, y), strict=True))
    product: list[Any] = products.dot_general_p.xla(lax, *masked, **params)
    return product


def is_finite_xla(lax: Any, value: Any) -> Any:
    """Return whether the sum of squares is finite, which is faster than testing each number."""
    if value.dtype.kind == "c":
        return lax.bitwise_and(is_finite_xla(lax, lax.real(value)), is_finite_xla(lax, lax.imag(value)))
    axes = tuple(range(value.ndim))
    wide = np.float32 if value.dtype.itemsize < 4 else value.dtype
    total = lax.dot_general(value, value, ((axes, axes), ((), ())), preferred_element_type=wide)
    return lax.eq(lax.sub(total, total), lax.full_like(total, 0))


def _strong_dot_jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    x, y = primals
    out = bind(strong_dot_general_p, x, y, **params)
    parts = [bind(strong_dot_general_p, *operands, **params)[0] for tangent, operands in
             ((tangents[0], (tangents[0], y)), (tangents[1], (x, tangents[1]))) if type(tangent) is not Zero]
    return out, [sum_of_parts(parts, aval_of(out[0]))]


def _strong_dot_transpose(cotangents: list[Any], inputs: list[Any], *, dimension_numbers: products.DotDimensions,
                          **_: Any) -> list[Any]:
    return products.transpose_contraction(products.Products(strong_dot_general, strong_mul), cotangents, inputs,
                                          dimension_numbers)


def _strong_dot_batch(size: int, values: list[Any], axes: list[int | None], *,
                      dimension_numbers: products.DotDimensions, **params: Any) -> tuple[list[Any], list[int]]:
    numbers, place = products.batched_dimensions(values, axes, dimension_numbers)
    return bind(strong_dot_general_p, *values, dimension_numbers=numbers, **params), [place]


strong_dot_general_p = register(Primitive(
    name="strong_dot_general", abstract=products.dot_general_p.abstract, numpy=ArrayKernel(_strong_dot_numpy),
    xla=_strong_dot_xla, jvp=_strong_dot_jvp, transpose=_strong_dot_transpose, batch=_strong_dot_batch,
    cost=products.dot_general_p.cost))


def strong_dot_general(x: Any, y: Any, dimension_numbers: products.DotDimensions) -> Any:
    """Return `dot_general` with sums of strong products."""
    return bind(strong_dot_general_p, x, y, dimension_numbers=dimension_numbers, precision=None,
                preferred_element_type=None)[0]


strong_form: Analysis[Primitive | None] = Analysis(
    "strong form", "The product that takes the place of an operation in derivatives of `fxgrad.nan_safe`.",
    missing="conservative", default=None)
strong_form.enter(strong_mul_p, mul_p)
strong_form.enter(strong_div_p, div_p)
strong_form.enter(strong_dot_general_p, products.dot_general_p)

ordinary_form: Analysis[Primitive | None] = Analysis(
    "ordinary form", "The product that is equal to a strong one where nothing is infinite.",
    missing="conservative", default=None)
for _ordinary, _strong in strong_form.entered().items():
    assert _strong is not None
    ordinary_form.enter(_ordinary, _strong)


def has_free_axes(params: dict[str, Any], rank: int, place: int) -> bool:
    """Return whether the operand at `place` of a contraction without batch axes has free axes: is a matrix."""
    contracted, batch = params["dimension_numbers"]
    return not batch[0] and rank > len(contracted[place])
