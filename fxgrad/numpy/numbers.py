"""Numbers taken apart: common divisors, mantissas and exponents, whole and fractional parts, packed bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.caches import cached
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_numpy_scalars,
    axis_of,
    common_shape,
    is_concrete,
    operands,
    promote_inexact,
    promote_operands,
    refuse_complex,
    refuse_out,
    shape_of,
)
from fxgrad.engine.frontend.ufuncs import Elementwise
from fxgrad.engine.higher_order.while_loop import bind_while
from fxgrad.engine.ops import comparison, exponential, parts
from fxgrad.engine.ops.arithmetic import div, mul, rem, sub
from fxgrad.engine.ops.creation import bitcast_convert_type
from fxgrad.engine.ops.pointwise import add, scalar_like
from fxgrad.engine.ops.reductions import reduce_or
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.shaping import pad, slice_in_dim
from fxgrad.engine.ops.special import bessel_i0e
from fxgrad.engine.ops.structural import broadcast_to, convert, reshape
from fxgrad.engine.tracing.provenance import note_results
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError
from fxgrad.numpy.arithmetic import multiply, subtract
from fxgrad.numpy.elementwise import trunc
from fxgrad.numpy.reductions import sum
from fxgrad.numpy.shaping import moveaxis, ravel

_FORMATS: dict[str, tuple[str, int, int]] = {"float16": ("int16", 10, 15), "bfloat16": ("int16", 7, 127),
                                             "float32": ("int32", 23, 127), "float64": ("int64", 52, 1023)}
"""The format of a float: the integer dtype of its width, the mantissa's bits, the exponent's bias."""


def _name_function(name: str, function: Any, doc: str, nin: int) -> Elementwise:
    return Elementwise(function, name, nin, doc, __name__)


# --- common divisors ----------------------------------------------------------------------------------------------


def _integers(name: str, x1: Any, x2: Any) -> list[Any]:
    values = as_numpy_scalars(promote_operands(*operands(x1, x2)))
    dtype = aval_of(values[0]).dtype
    if dtypes.kind_of(dtype) not in "iu":
        raise DTypeError(at_user_line(f"{name}: integers are needed, got {dtype.name}; convert with x.astype(int)"))
    return values


@cached("greatest common divisors", 256)
def _euclid(aval: Aval) -> tuple[Program, Program]:
    """Return the condition and the body of Euclid's algorithm (Elements VII.2), for all elements at once."""
    def goes_on(_: Any, y: Any) -> list[Any]:
        return [reduce_or(comparison.ne(y, scalar_like(0, y)), range(aval.ndim))]

    def step(x: Any, y: Any) -> list[Any]:
        done = comparison.eq(y, scalar_like(0, y))
        return [where(done, x, y), where(done, y, rem(x, where(done, scalar_like(1, y), y)))]

    programs = [trace_at(function, [aval, aval], mode=WITH_LITERALS, name="gcd")[0]
                for function in (goes_on, step)]
    return programs[0], programs[1]


def _in_bytes(x: Any) -> Any:
    """Return NumPy's integers; those of fewer than 8 bits as 8 bits, since NumPy does not compute with them."""
    return x.astype(np.int8) if dtypes.is_below_byte(aval_of(x).dtype) else x


def _as_weak(result: Any, x: Any, y: Any) -> Any:
    """Return NumPy's result in the dtype of the operands, and as weak."""
    return convert(result, aval_of(x).dtype, aval_of(x).weak and aval_of(y).weak)


def _gcd(x1: Any, x2: Any) -> Any:
    x, y = _integers("gcd", x1, x2)
    if is_concrete(x) and is_concrete(y):
        return _as_weak(np.gcd(_in_bytes(x), _in_bytes(y)), x, y)
    if dtypes.kind_of(aval_of(x).dtype) == "i":
        x, y = parts.abs(x), parts.abs(y)
    shape = common_shape("gcd", shape_of(x), shape_of(y))
    x, y = (broadcast_to(value, shape) for value in (x, y))
    aval = Aval(shape, aval_of(x).dtype)
    goes_on, step = _euclid(aval)
    weak = aval_of(x).weak and aval_of(y).weak
    result = bind_while(goes_on, [], step, [], [_strong(x), _strong(y)])[0]
    # The absolute value of the least integer is negative itself.
    result = parts.abs(result) if dtypes.kind_of(aval.dtype) == "i" else result
    return convert(result, aval.dtype, weak=True) if weak else result


def _strong(x: Any) -> Any:
    return convert(x, aval_of(x).dtype) if aval_of(x).weak else x


def _lcm(x1: Any, x2: Any) -> Any:
    x, y = _integers("lcm", x1, x2)
    if is_concrete(x) and is_concrete(y):
        return _as_weak(np.lcm(_in_bytes(x), _in_bytes(y)), x, y)
    if dtypes.kind_of(aval_of(x).dtype) == "i":
        x, y = parts.abs(x), parts.abs(y)
    divisor = _gcd(x, y)
    none = comparison.eq(divisor, scalar_like(0, divisor))
    return mul(x, div(y, where(none, scalar_like(1, divisor), divisor)))


gcd = _name_function("gcd", _gcd, "Return the greatest integer that divides both operands; gcd(0, 0) is 0.", 2)
lcm = _name_function("lcm", _lcm, "Return the least integer that both operands divide; 0 if one of them is 0.", 2)

# --- parts of floats ----------------------------------------------------------------------------------------------


def _floats(name: str, x: Any) -> Any:
    x, = as_numpy_scalars(promote_inexact(*operands(x)))
    refuse_complex(name, x)
    return x


def _wide_floats(name: str, x: Any) -> Any:
    """Return a float operand whose format is known here; raise `DTypeError` for other dtypes."""
    x = _floats(name, x)
    if (dtype := aval_of(x).dtype).name not in _FORMATS:
        raise DTypeError(at_user_line(f"{name}: not defined for {dtype.name}; convert first, for example "
                                      "x.astype('float32')"))
    return x


def _bits(x: Any) -> tuple[Any, Any, str, int, int]:
    """Return the integer that stores a float, its biased exponent, and the format."""
    integer, mantissa, bias = _FORMATS[aval_of(x).dtype.name]
    bits = bitcast_convert_type(x, np.dtype(integer))
    width = 8 * np.dtype(integer).itemsize - 1 - mantissa
    shifted = comparison.shift_right_arithmetic(bits, scalar_like(mantissa, bits))
    return bits, comparison.and_(shifted, scalar_like((1 << width) - 1, bits)), integer, mantissa, bias


def frexp(x: Any, /) -> tuple[Any, Any]:
    """Return `(m, e)` with x = m 2^e and 1/2 <= |m| < 1; 0, infinities and NaNs are their own m, e is int32.

    >>> mantissa, exponent = frexp(3.0)
    >>> float(mantissa), int(exponent)
    (0.75, 2)
    """
    x = _wide_floats("frexp", x)
    mantissa = _FORMATS[aval_of(x).dtype.name][1]
    # Subnormal numbers are made normal first.
    limit = float(dtypes.finfo(aval_of(x).dtype).smallest_normal)
    small = comparison.lt(parts.abs(x), limit)
    scaled = where(small, mul(x, 2.0 ** (mantissa + 1)), x)
    _, biased, _, _, bias = _bits(scaled)
    plain = comparison.or_(comparison.eq(x, 0.0), comparison.not_(parts.is_finite(x)))
    exponent = sub(convert(biased, dtypes.int32), np.int32(bias - 1))
    exponent = where(plain, np.int32(0), exponent)
    # A product with a power of two, so that derivatives are those of x at fixed exponents.
    result = _scale_by_power(scaled, sub(scalar_like(0, exponent), exponent))
    result = where(plain, x, convert(result, aval_of(x).dtype, aval_of(x).weak))
    shift = where(small, np.int32(mantissa + 1), np.int32(0))
    return result, where(plain, np.int32(0), sub(exponent, shift))


def _scale_by_power(x: Any, exponent: Any) -> Any:
    """Return x 2^exponent in four steps, none of which over- or underflows prematurely."""
    dtype = aval_of(x).dtype
    bias = _FORMATS[dtype.name][2]
    reach = scalar_like(bias - 1, exponent)
    low = scalar_like(1 - bias, exponent)
    for _ in range(4):
        step = where(comparison.gt(exponent, reach), reach, where(comparison.lt(exponent, low), low, exponent))
        # 2 to the power `step`, within the range of normal numbers, exactly: from its bits.
        integer, mantissa, bias = _FORMATS[dtype.name]
        biased = convert(add(step, scalar_like(bias, step)), np.dtype(integer))
        x = mul(x, bitcast_convert_type(comparison.shift_left(biased, scalar_like(mantissa, biased)), dtype))
        exponent = sub(exponent, step)
    return x


def _ldexp(x1: Any, x2: Any) -> Any:
    exponent = as_array_operand(x2)
    if dtypes.kind_of(aval_of(exponent).dtype) not in "iub":
        raise DTypeError(at_user_line(f"ldexp: exponents must be integers, got {aval_of(exponent).dtype.name}"))
    x = _floats("ldexp", x1)
    dtype = aval_of(x).dtype
    wide = x if dtype.itemsize > 1 else convert(x, dtypes.float32)
    return convert(_scale_by_power(wide, convert(exponent, dtypes.int32)), dtype, aval_of(x).weak)


ldexp = _name_function("ldexp", _ldexp, "Return the first operand times 2 to the power of the second, an integer.", 2)


def modf(x: Any, /, out: Any = None) -> tuple[Any, Any]:
    """Return the fractional part of each element and its integer part, both with its sign; 0 for infinities.

    >>> fraction, whole = modf(-2.5)
    >>> float(fraction), float(whole)
    (-0.5, -2.0)
    """
    refuse_out("modf", out)
    x = _floats("modf", x)
    whole = trunc(x)
    infinite = comparison.eq(parts.abs(x), math.inf)
    zero = mul(parts.sign(x), where(comparison.ne(x, x), x, scalar_like(0.0, x)))
    fraction = where(infinite, zero, subtract(x, whole))
    note_results((fraction,), lambda: ("[0]",))
    note_results((whole,), lambda: ("[1]",))
    return fraction, whole


def _spacing(x: Any) -> Any:
    """Made of bits, since XLA takes differences and comparisons of subnormal numbers for those of 0."""
    x = _wide_floats("spacing", x)
    bits, biased, integer, mantissa, _ = _bits(x)
    zero, one, shift = (scalar_like(number, bits) for number in (0, 1, mantissa))
    exponent, place = sub(biased, shift), sub(biased, one)
    normal = comparison.shift_left(exponent, shift)
    tiny = comparison.shift_left(one, where(comparison.lt(place, zero), zero, place))
    gap = where(comparison.gt(exponent, zero), normal, tiny)
    least = scalar_like(np.iinfo(integer).min, bits)  # the sign bit alone, that of -0.0, whose gap is positive
    sign = where(comparison.eq(bits, least), zero, comparison.and_(bits, least))
    gap = bitcast_convert_type(comparison.or_(gap, sign), aval_of(x).dtype)
    return where(parts.is_finite(x), convert(gap, aval_of(x).dtype, aval_of(x).weak), math.nan)


spacing = _name_function("spacing", _spacing,
                         "Return the distance to the next float away from zero, with the sign of the element.", 1)
i0 = _name_function("i0", lambda x: mul(exponential.exp(parts.abs(_floats("i0", x))), bessel_i0e(_floats("i0", x))),
                    "Return the modified Bessel function of the first kind and order 0.", 1)

# --- packed bits --------------------------------------------------------------------------------------------------


def _check_order(name: str, bitorder: str) -> None:
    if bitorder not in ("big", "little"):
        raise ArgumentError(at_user_line(f"{name}: bitorder must be 'big' or 'little', got {bitorder!r}"))


def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Any:
    """Return each eight elements along `axis` (None: flattened) as the bits of one uint8; zeros fill the last one.

    The first element is the highest bit, with `bitorder="little"` the lowest. Raises `DTypeError` for floats.

    >>> packbits([1, 0, 1])
    array([160], dtype=uint8)
    """
    a = as_array_operand(a)
    _check_order("packbits", bitorder)
    if dtypes.kind_of(aval_of(a).dtype) not in "iub":
        raise DTypeError(at_user_line(f"packbits: integers or bools are needed, got {aval_of(a).dtype.name}"))
    a = ravel(a) if axis is None else a
    at = axis_of("packbits", 0 if axis is None else axis, len(shape_of(a)))
    a = moveaxis(convert(convert(a, dtypes.bool_), np.dtype(np.uint8)), at, -1)
    *rest, extent = shape_of(a)
    full = -(-extent // 8)
    a = pad(a, np.uint8(0), [(0, 0, 0)] * len(rest) + [(0, full * 8 - extent, 0)])
    powers = np.array([1 << place for place in range(8)], np.uint8)
    packed = sum(multiply(reshape(a, (*rest, full, 8)), powers[::-1] if bitorder == "big" else powers), -1,
                 dtype=np.uint8)
    return moveaxis(packed, -1, at)


def unpackbits(a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    """Return the bits of uint8 along `axis` (None: of the flattened array) as elements 0 and 1, of type uint8.

    `count` is the number of bits to keep (if negative: to drop); missing ones are zeros. The highest bit comes first,
    with `bitorder="little"` the lowest. Raises `DTypeError` for other dtypes.

    >>> unpackbits(np.array([5], np.uint8))
    array([0, 0, 0, 0, 0, 1, 0, 1], dtype=uint8)
    """
    a = as_array_operand(a)
    _check_order("unpackbits", bitorder)
    if aval_of(a).dtype != np.uint8:
        raise DTypeError(at_user_line(f"unpackbits: uint8 is needed, got {aval_of(a).dtype.name}; convert with "
                                      "x.astype('uint8')"))
    a = ravel(a) if axis is None else a
    at = axis_of("unpackbits", 0 if axis is None else axis, len(shape_of(a)))
    a = moveaxis(a, at, -1)
    *rest, extent = shape_of(a)
    places = np.arange(8, dtype=np.uint8)
    wide = broadcast_to(reshape(a, (*rest, extent, 1)), (*rest, extent, 8))
    shifted = comparison.shift_right_logical(wide, np.ascontiguousarray(
        places[::-1] if bitorder == "big" else places))
    bits = reshape(comparison.and_(shifted, scalar_like(1, shifted)), (*rest, extent * 8))
    if count is not None:
        wanted = count if count >= 0 else max(extent * 8 + count, 0)
        bits = slice_in_dim(bits, 0, min(wanted, extent * 8), len(rest))
        bits = pad(bits, np.uint8(0), [(0, 0, 0)] * len(rest) + [(0, max(wanted - extent * 8, 0), 0)])
    return moveaxis(bits, -1, at)

