"""Arithmetic: neg, sub, mul, div, rem, max, min, mulhi, stop_gradient (`add` is in `pointwise`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval, FoldedConstant, Literal
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.sources import equation_source
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, is_literal, rewrites
from fxgrad.engine.ops.comparison import eq, gt, lt
from fxgrad.engine.ops.families import is_linear
from fxgrad.engine.ops.pointwise import add, add_p, align, binary, is_same, operation, scalar_like, unary
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.snippets import Snippet, snippets, ufunc_snippet
from fxgrad.engine.ops.structural import unbroadcast
from fxgrad.engine.tracing.tape import aval_of

COVERED_BY = {"add_any": "add: sums of cotangents are sums like any other"}
"""jax's primitives of this family without a counterpart in fxgrad, and their replacements."""

# --- exact algebra ------------------------------------------------------------------------------------------


def mixes_parts(value: Any) -> bool:
    """Return whether products and quotients of `value` mix two parts, with their own infinities and zero signs."""
    return aval_of(value).dtype.kind == "c"


def fold_constants(primitive: Primitive, inputs: list[Any]) -> list[Any] | None:
    """Return the result as a literal if every input is one, for operations that NumPy and XLA round alike.

    Products and quotients of complex numbers are excluded.
    """
    if any(type(value) is not Literal for value in inputs):
        return None
    if (primitive in (mul_p, div_p) and mixes_parts(inputs[0])) or dtypes.is_below_byte(inputs[0].dtype):
        return None
    aval = primitive.abstract(*(literal.aval for literal in inputs))[0]
    with np.errstate(all="ignore"):
        result = Literal(primitive.numpy(*(literal.value for literal in inputs))[0], aval)
    result.made_of = FoldedConstant(primitive.name, tuple(inputs), equation_source.get())
    return [result]


def keeps_type(value: Any, other: Any) -> bool:
    """Return whether an elementwise operation of the two has the type of `value`."""
    aval, also = aval_of(value), aval_of(other)
    return len(aval.shape) >= len(also.shape) and also.size == 1 and (not aval.weak or also.weak)


# --- linear: neg, sub, mul, div -----------------------------------------------------------------------------

neg_p = unary("neg", numpy=np.negative, accepts="numeric", tangent=lambda t, out, x: neg(t), public="negative",
              transpose=lambda cotangents, inputs: [neg(cotangents[0])])
neg = operation(neg_p)


@rewrites.register(neg_p, makers=(neg_p,))
def _neg_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    return fold_constants(neg_p, inputs) or known.inputs_if(inputs[0], neg_p)


def _sub_transpose(cotangents: list[Any], inputs: list[Any]) -> list[Any]:
    x, y = inputs
    return [unbroadcast(cotangents[0], x.aval) if is_linear(x) else None,
            neg(unbroadcast(cotangents[0], y.aval)) if is_linear(y) else None]


sub_p = binary("sub", numpy=np.subtract, public="subtract", transpose=_sub_transpose, exactly_rounded=True,
               tangents=[lambda t, out, x, y: t, lambda t, out, x, y: neg(t)])
sub = operation(sub_p)


@rewrites.register(sub_p, makers=(neg_p,))
def _sub_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """x - 0 is x, and x - (-y) is x + y, exactly."""
    x, y = inputs
    if is_literal(y, 0) and keeps_type(x, y):
        return [x]
    negated = known.inputs_if(y, neg_p)
    return fold_constants(sub_p, inputs) or ([add(x, negated[0])] if negated else None)


@rewrites.register(add_p, makers=(neg_p,))
def _add_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """x + (-y) is x - y, exactly; x + 0 is not x where x is -0."""
    x, y = inputs
    right, left = known.inputs_if(y, neg_p), known.inputs_if(x, neg_p)
    if right:
        return [sub(x, right[0])]
    if left:
        return [sub(y, left[0])]
    return fold_constants(add_p, inputs)


def _mul_transpose(cotangents: list[Any], inputs: list[Any]) -> list[Any]:
    x, y = inputs
    if is_linear(x):
        return [unbroadcast(mul(cotangents[0], y), x.aval), None]
    return [None, unbroadcast(mul(x, cotangents[0]), y.aval)]


mul_p = binary("mul", numpy=np.multiply, public="multiply", transpose=_mul_transpose, commutative=True,
               exactly_rounded=True, tangents=[lambda t, out, x, y: mul(t, y), lambda t, out, x, y: mul(x, t)])
mul = operation(mul_p)


@rewrites.register(mul_p, makers=(neg_p,))
def _mul_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Remove factors 1 and -1, and move signs outward, so that products which differ only in sign are shared.

    For complex numbers only pairs of signs are removed: `(inf+1j) * 1.0` is `inf+nanj`, and the parts are differences
    and sums, where a moved sign changes that of a zero.
    """
    x, y = inputs
    if mixes_parts(x):
        first, second = known.inputs_if(x, neg_p), known.inputs_if(y, neg_p)
        return [mul(first[0], second[0])] if first and second else None
    if type(x) is Literal or type(y) is Literal:
        for factor, literal in ((x, y), (y, x)):
            if is_literal(literal, 1) and keeps_type(factor, literal):
                return [factor]
            if is_literal(literal, -1) and keeps_type(factor, literal):
                return [neg(factor)]
        return fold_constants(mul_p, inputs)
    first, second = known.inputs_if(x, neg_p), known.inputs_if(y, neg_p)
    if first and second:
        return [mul(first[0], second[0])]
    if first or second:
        return [neg(mul(first[0] if first else x, second[0] if second else y))]
    return None


def _div_transpose(cotangents: list[Any], inputs: list[Any]) -> list[Any]:
    x, y = inputs
    return [unbroadcast(div(cotangents[0], y), x.aval), None]


def _whole_numpy(x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient toward zero and remainder of integers; for a division by 0 XLA's: all bits set, and x."""
    zero = np.equal(y, 0)
    divisor = np.where(zero, np.ones_like(y), y)
    remainder = np.where(zero, x, np.fmod(x, divisor))
    quotient = np.floor_divide(np.subtract(x, np.fmod(x, divisor)), divisor)
    return np.where(zero, np.invert(np.zeros_like(y)), quotient), remainder


def _div_numpy(x: Any, y: Any) -> Any:
    return _whole_numpy(x, y)[0] if x.dtype.kind in "iu" else np.true_divide(x, y)


# The tangent of a quotient q = x/y is one division, (dx - q dy) / y: so those of higher orders share theirs.
div_p = binary("div", numpy=_div_numpy, public="divide", transpose=_div_transpose, exactly_rounded=True,
               together=lambda given, out, x, y: div(sub(given[0], mul(out, given[1])), y),
               tangents=[lambda t, out, x, y: div(t, y), lambda t, out, x, y: neg(div(mul(t, out), y))])
div = operation(div_p)


@snippets.register(div_p)
def _div_snippet(avals: Sequence[Aval], _: dict[str, Any]) -> Snippet | None:
    return None if dtypes.is_integer(avals[0].dtype) else ufunc_snippet(np.true_divide, avals)


@rewrites.register(div_p, makers=(neg_p,))
def _div_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """x / 1 is x, and signs move outward as in products, but for integers: -x may equal x, wrap, or be divided by 0."""
    x, y = inputs
    if mixes_parts(x):
        return None
    if is_literal(y, 1) and keeps_type(x, y):
        return [x]
    if dtypes.is_integer(aval_of(x).dtype):
        return fold_constants(div_p, inputs)
    above, below = known.inputs_if(x, neg_p), known.inputs_if(y, neg_p)
    if above and below:
        return [div(above[0], below[0])]
    if above and type(y) is not Literal:
        return [neg(div(above[0], y))]
    if below and type(x) is not Literal:
        return [neg(div(x, below[0]))]
    return fold_constants(div_p, inputs)


# --- remainders -----------------------------------------------------------------------------------------------

# A constant to every derivative: `NO_TANGENT` would have that effect, but means that the operation has no derivative.
# A linear operand gets no cotangent either, so that batches of branches can be transposed: dead lanes repeat a live one
# behind it.
stop_gradient_p = unary("stop_gradient", numpy=lambda x: x, xla=lambda lax, x: x, accepts="all", flops=0,
                        tangent=lambda t, out, x: Zero(aval_of(x)),
                        transpose=lambda cotangents, inputs: [Zero(inputs[0].aval)])
stop_gradient = operation(stop_gradient_p)

# A value under a name, by which policies of checkpoints identify it.
name_p = unary("name", numpy=lambda x, name: x, xla=lambda lax, x, name: x, accepts="any", flops=0,
               tangent=lambda t, out, x, name: t, parameters=frozenset({"name"}))


@rewrites.register(stop_gradient_p)
def _stop_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    return [inputs[0]] if known.inputs_if(inputs[0], stop_gradient_p) else None


def _rem_numpy(x: Any, y: Any) -> Any:
    return _whole_numpy(x, y)[1] if x.dtype.kind in "iu" else np.fmod(x, y)


def _rem_divisor_tangent(t: Any, out: Any, x: Any, y: Any) -> Any:
    """Minus the quotient toward zero, which is constant between jumps."""
    return mul(t, stop_gradient(div(sub(out, x), y)))


rem_p = binary("rem", numpy=_rem_numpy, accepts="real", public="fmod",
               tangents=[lambda t, out, x, y: t, _rem_divisor_tangent])
rem = operation(rem_p)


def _nonzero_xla(lax: Any, y: Any) -> Any:
    return lax.select(lax.eq(y, lax.full_like(y, 0)), lax.full_like(y, 1), y)


# An operation of its own, not a choice: programs then tell the library's guard from one that a user wrote.
nonzero_divisor_p = unary("nonzero_divisor", numpy=lambda y: np.add(y, np.equal(y, 0)), xla=_nonzero_xla,
                          accepts="integer", tangent=None)
nonzero_divisor = operation(nonzero_divisor_p)
"""Integer divisors, with 1 for 0: divided by 1 there is no remainder, and NumPy's quotient 0 is put in afterwards."""


@rewrites.register(nonzero_divisor_p, makers=(nonzero_divisor_p,))
def _nonzero_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    y = inputs[0]
    return [y] if known.inputs_if(y, nonzero_divisor_p) or (type(y) is Literal and y.value != 0) else None


# --- extrema ----------------------------------------------------------------------------------------------------


def extremum_share(x: Any, out: Any, y: Any, is_chosen: Callable[[Any, Any], Any]) -> Any:
    """Return the share of the tangent of x in the extremum `out` of x and y: 1, 0, or 1/2 at a tie.

    Real operands are compared with each other: XLA may compute them again beside a stored `out`, rounded differently,
    so that neither equals it.
    """
    if dtypes.is_complex(aval_of(x).dtype):
        return where(eq(x, out), where(eq(y, out), 0.5, scalar_like(1.0, x)), 0.0)
    return where(eq(x, y), 0.5, where(is_chosen(x, y), scalar_like(1.0, x), 0.0))


def complex_extremum(lax: Any, name: str, x: Any, y: Any) -> Any:
    """Return the greater or lesser number as NumPy does, the first NaN if there is one; XLA orders others."""
    extremum = getattr(lax, name)(x, y)
    for operand in (y, x):
        extremum = lax.select(lax.ne(operand, operand), operand, extremum)
    return extremum


def _extremum_xla(lax: Any, name: str, *operands: Any) -> Any:
    if operands[0].dtype.kind == "c":
        return complex_extremum(lax, name, *align(lax, *operands))
    return getattr(lax, name)(*operands)


def _extremum_tangents(is_chosen: Callable[[Any, Any], Any]) -> list[Callable[..., Any]]:
    return [lambda t, out, x, y: mul(t, extremum_share(x, out, y, is_chosen)),
            lambda t, out, x, y: mul(t, extremum_share(y, out, x, is_chosen))]


max_p = binary("max", numpy=np.maximum, accepts="any", public="maximum", tangents=_extremum_tangents(gt),
               xla=lambda lax, x, y: _extremum_xla(lax, "max", x, y), broadcasts=True)
min_p = binary("min", numpy=np.minimum, accepts="any", public="minimum", tangents=_extremum_tangents(lt),
               xla=lambda lax, x, y: _extremum_xla(lax, "min", x, y), broadcasts=True)
max, min = operation(max_p), operation(min_p)


@rewrites.register(max_p, min_p)
def _extremum_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    return [inputs[0]] if is_same(*inputs) else None


# --- the high half of a product ---------------------------------------------------------------------------------


def mulhi_wide(x: Any, y: Any) -> Any:
    """Return the upper 64 bits of products of unsigned 64-bit integers, from products of their halves."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x_low, x_high, y_low, y_high = x & low, x >> half, y & low, y >> half
    across, also = x_high * y_low, x_low * y_high
    carry = (((x_low * y_low) >> half) + (across & low) + (also & low)) >> half
    return x_high * y_high + (across >> half) + (also >> half) + carry


def _mulhi_numpy(x: Any, y: Any) -> Any:
    bits, kind = dtypes.bits_of(x.dtype), dtypes.kind_of(x.dtype)
    if bits < 64:
        wide = np.dtype(f"{kind}8")
        return ((x.astype(wide) * y.astype(wide)) >> wide.type(bits)).astype(x.dtype)
    unsigned = mulhi_wide(np.asarray(x).view(np.uint64), np.asarray(y).view(np.uint64))
    if kind == "u":
        return unsigned
    high = np.asarray(unsigned).view(np.int64)  # each negative factor was read as itself plus 2**64
    return high - np.where(x < 0, y, 0) - np.where(y < 0, x, 0)


def _mulhi_xla(lax: Any, x: Any, y: Any) -> Any:
    if not dtypes.is_below_byte(x.dtype):
        return lax.mulhi(x, y)
    bits, wide = dtypes.bits_of(x.dtype), np.dtype(np.int16)
    product = lax.mul(lax.convert_element_type(x, wide), lax.convert_element_type(y, wide))
    return lax.convert_element_type(lax.shift_right_arithmetic(product, lax.full_like(product, bits)), x.dtype)


mulhi_p = binary("mulhi", numpy=_mulhi_numpy, xla=_mulhi_xla, accepts="integer", tangents=None)
mulhi = operation(mulhi_p)
