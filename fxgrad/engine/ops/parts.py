"""Parts of numbers: sign, abs, rounding, neighbours, precision, and the parts of complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.ops.arithmetic import div, mul, neg, neg_p
from fxgrad.engine.ops.comparison import eq
from fxgrad.engine.ops.families import is_linear, linear_unary
from fxgrad.engine.ops.pointwise import binary, operation, scalar_like, unary
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import convert, unbroadcast
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.errors import ArgumentError, DTypeError

# --- sign and modulus -----------------------------------------------------------------------------------------


def _sign_tangent(t: Any, out: Any, x: Any) -> Any:
    """Zero for real x; for complex x the part of t across the direction of x, over |x|; zero at 0."""
    if not dtypes.is_complex(aval_of(x).dtype):
        return Zero(aval_of(x))
    across, size = imag(mul(conj(out), t)), abs(x)
    turning = div(across, where(eq(size, 0.0), 1.0, size))
    return mul(mul(out, scalar_like(1j, x)), convert(turning, aval_of(x).dtype))


sign_p = unary("sign", numpy=np.sign, accepts="numeric", tangent=_sign_tangent)
sign = operation(sign_p)


def _abs_tangent(t: Any, out: Any, x: Any) -> Any:
    """sign(x) t, and for complex x the part of t along x, Re(conj(x/|x|) t); zero at 0."""
    return real(mul(conj(sign(x)), t)) if dtypes.is_complex(aval_of(x).dtype) else mul(t, sign(x))


def _abs_xla(lax: Any, x: Any) -> Any:
    return x if dtypes.kind_of(x.dtype) == "u" else lax.abs(x)


abs_p = unary("abs", numpy=np.abs, xla=_abs_xla, accepts="numeric", tangent=_abs_tangent, result=dtypes.real_dtype)
abs = operation(abs_p)


@rewrites.register(abs_p)
def _abs_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """|-x| is |x|, except for unsigned integers, whose -x is another number; and |x| has no sign to lose."""
    negated = known.inputs_if(inputs[0], neg_p) if dtypes.kind_of(aval_of(inputs[0]).dtype) != "u" else None
    return [abs(negated[0])] if negated else [inputs[0]] if known.inputs_if(inputs[0], abs_p) else None


# --- rounding: piecewise constant, so without tangents ----------------------------------------------------------

floor_p = unary("floor", numpy=np.floor, accepts="floating", tangent=None)
ceil_p = unary("ceil", numpy=np.ceil, accepts="floating", tangent=None)
floor, ceil = operation(floor_p), operation(ceil_p)


def _round_numpy(x: Any, *, to_even: bool) -> Any:
    if to_even:
        return np.rint(x)
    # Adding 1/2 first would round 0.49999997 up, and the difference from the whole part is exact.
    whole = np.trunc(x)
    return whole + np.copysign(np.greater_equal(np.abs(x - whole), x.dtype.type(0.5)).astype(x.dtype), x)


def _round_xla(lax: Any, x: Any, *, to_even: bool) -> Any:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN if to_even else lax.RoundingMethod.AWAY_FROM_ZERO)


round_p = unary("round", numpy=_round_numpy, xla=_round_xla, accepts="floating", tangent=None,
                parameters=frozenset({"to_even"}))


def round(x: Any, to_even: bool = True) -> Any:
    """Return the nearest whole number; halves round to even, or away from zero."""
    return operation(round_p)(x, to_even=to_even)


def trunc(x: Any) -> Any:
    """Round toward zero."""
    return mul(sign(x), floor(abs(x)))


def _register_idempotent(primitive: Primitive) -> None:
    """Enter the algebra: rounding a rounded value changes nothing."""
    @rewrites.register(primitive)
    def rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
        return [inputs[0]] if any(known.inputs_if(inputs[0], made) for made in (floor_p, ceil_p, round_p)) else None


for _primitive in (floor_p, ceil_p, round_p):
    _register_idempotent(_primitive)

is_finite_p = unary("is_finite", numpy=np.isfinite, accepts="floating", tangent=None,
                    result=lambda dtype: dtypes.bool_, public="isfinite")
is_finite = operation(is_finite_p)

def _nextafter_xla(lax: Any, x: Any, y: Any) -> Any:
    """Step along the bits of powers of 2 alone, which have no sign: the next number is one more."""
    if x.dtype != dtypes.SUPPORTED["float8_e8m0fnu"]:
        return lax.nextafter(x, y)
    bits, other = (lax.bitcast_convert_type(each, np.uint8) for each in (x, y))
    one = np.uint8(1)
    moved = lax.select(lax.lt(bits, other), bits + one, lax.select(lax.gt(bits, other), bits - one, bits))
    return lax.bitcast_convert_type(lax.select(lax.gt(lax.max(bits, other), np.uint8(254)), lax.full_like(
        bits, 255), moved), x.dtype)  # 255 is NaN


# For rounding analysis it equals its first operand.
nextafter_p = binary("nextafter", numpy=np.nextafter, accepts="floating", xla=_nextafter_xla,
                     tangents=[lambda t, out, x, y: t, None])
nextafter = operation(nextafter_p)

# --- reduced precision ------------------------------------------------------------------------------------------

MANTISSA = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}


def _reduce_precision_abstract(x: Aval, *, exponent_bits: int, mantissa_bits: int) -> list[Aval]:
    if not dtypes.is_floating(x.dtype):
        raise DTypeError(f"reduce_precision: not defined for {x.dtype.name}; it takes floating dtypes. "
                         "Convert first, for example x.astype('float32')")
    if exponent_bits < 1 or mantissa_bits < 0:
        raise ArgumentError(f"reduce_precision: at least 1 exponent bit and 0 mantissa bits are needed, got "
                            f"{exponent_bits} and {mantissa_bits}")
    return [x]


def rounded_bits(bits: Any, mantissa: int, exponent_bits: int, mantissa_bits: int) -> Any:
    """Round a bit pattern to even, then make numbers out of the exponent's range infinite or zero."""
    width = 8 * bits.dtype.itemsize
    unsigned = bits.dtype.type
    dropped = mantissa - mantissa_bits
    if dropped > 0:
        last_kept = (bits >> unsigned(dropped)) & unsigned(1)
        bits = (bits + unsigned((1 << (dropped - 1)) - 1) + last_kept) & ~unsigned((1 << dropped) - 1)
    if exponent_bits < width - 1 - mantissa:
        bias = (1 << (width - 2 - mantissa)) - 1
        largest, smallest = bias + (1 << (exponent_bits - 1)) - 1, bias + 2 - (1 << (exponent_bits - 1))
        sign_bit = bits & unsigned(1 << (width - 1))
        exponent = (bits >> unsigned(mantissa)) & unsigned((1 << (width - 1 - mantissa)) - 1)
        infinite = unsigned(((1 << (width - 1 - mantissa)) - 1) << mantissa)
        bits = np.where(exponent > unsigned(largest), sign_bit | infinite, bits)
        bits = np.where(exponent < unsigned(smallest), sign_bit, bits)
    return bits


def _reduce_precision_numpy(x: Any, *, exponent_bits: int, mantissa_bits: int) -> Any:
    if x.dtype.itemsize == 1:
        wide = _reduce_precision_numpy(x.astype(np.float32), exponent_bits=exponent_bits, mantissa_bits=mantissa_bits)
        return wide.astype(x.dtype)
    bits = rounded_bits(np.asarray(x).view(f"uint{8 * x.dtype.itemsize}"), MANTISSA[x.dtype.name], exponent_bits,
                        mantissa_bits)
    return np.where(np.isnan(x), x, np.asarray(bits).view(x.dtype))[()]


# Linear to the transformations, as in jax: tangents are rounded as their primals are.
reduce_precision_p = linear_unary(
    "reduce_precision", abstract=_reduce_precision_abstract, numpy=_reduce_precision_numpy, flops=1,
    xla=lambda lax, x, *, exponent_bits, mantissa_bits: lax.reduce_precision(x, exponent_bits, mantissa_bits),
    transpose=lambda cotangent, aval, **params: operation(reduce_precision_p)(cotangent, **params),
    batch=lambda size, values, axes, **params: ([operation(reduce_precision_p)(values[0], **params)], axes))


def reduce_precision(x: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Return `x` rounded to a format of so many bits, in its own dtype."""
    return operation(reduce_precision_p)(x, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits)


# --- complex parts ------------------------------------------------------------------------------------------------

real_p = unary("real", numpy=np.real, accepts="complex", result=dtypes.real_dtype, flops=0,
               tangent=lambda t, out, x: real(t),
               transpose=lambda cotangents, inputs: [complex(cotangents[0], scalar_like(0, cotangents[0]))])
imag_p = unary("imag", numpy=np.imag, accepts="complex", result=dtypes.real_dtype, flops=0,
               tangent=lambda t, out, x: imag(t),
               transpose=lambda cotangents, inputs: [complex(scalar_like(0, cotangents[0]), neg(cotangents[0]))])
conj_p = unary("conj", numpy=np.conj, accepts="complex", tangent=lambda t, out, x: conj(t), public="conjugate",
               transpose=lambda cotangents, inputs: [conj(cotangents[0])])
real, imag, conj = operation(real_p), operation(imag_p), operation(conj_p)


def _check_pair(x: Aval, y: Aval) -> None:
    if x.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"complex: not defined for parts of {x.dtype.name}; it takes float32 and float64. "
                         "Convert first, for example x.astype('float32')")


def _complex_numpy(x: Any, y: Any) -> Any:
    out = np.empty(np.broadcast_shapes(x.shape, y.shape), np.complex64 if x.dtype.itemsize == 4 else np.complex128)
    out.real, out.imag = x, y
    return out


def _complex_transpose(cotangents: list[Any], inputs: list[Any]) -> list[Any]:
    x, y = inputs
    return [unbroadcast(real(cotangents[0]), x.aval) if is_linear(x) else None,
            neg(unbroadcast(imag(cotangents[0]), y.aval)) if is_linear(y) else None]


complex_p = binary("complex", numpy=_complex_numpy, accepts="floating", result=dtypes.complex_dtype, check=_check_pair,
                   transpose=_complex_transpose, flops=0,
                   tangents=[lambda t, out, x, y: complex(t, scalar_like(0, t)),
                             lambda t, out, x, y: complex(scalar_like(0, t), t)])
complex = operation(complex_p)


@rewrites.register(real_p)
def _real_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    made, mirrored = known.inputs_if(inputs[0], complex_p), known.inputs_if(inputs[0], conj_p)
    if made and aval_of(made[0]).shape == aval_of(inputs[0]).shape and keeps_weakness(made[0], inputs[0]):
        return [made[0]]
    return [real(mirrored[0])] if mirrored else None


@rewrites.register(imag_p)
def _imag_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    made, mirrored = known.inputs_if(inputs[0], complex_p), known.inputs_if(inputs[0], conj_p)
    if made and aval_of(made[1]).shape == aval_of(inputs[0]).shape and keeps_weakness(made[1], inputs[0]):
        return [made[1]]
    return [neg(imag(mirrored[0]))] if mirrored else None


def keeps_weakness(value: Any, other: Any) -> bool:
    """Return whether both are weak, or both are not."""
    return aval_of(value).weak == aval_of(other).weak


@rewrites.register(conj_p)
def _conj_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    return known.inputs_if(inputs[0], conj_p)
