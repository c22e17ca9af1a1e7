"""Mathematics on elements: exponentials, trigonometry, rounding, signs, the parts of complex numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import PYTHON_SCALARS
from fxgrad.engine.frontend.operands import (
    apply,
    as_array_operand,
    as_dtype,
    as_integer,
    as_result,
    constant_array,
    new_array,
    operand,
    promote_inexact,
    refuse_complex,
    refuse_out,
)
from fxgrad.engine.frontend.ufuncs import Elementwise, composite_function, unary_function
from fxgrad.engine.ops import exponential, parts, trigonometric
from fxgrad.engine.ops.arithmetic import div, mul, neg_p, stop_gradient
from fxgrad.engine.ops.comparison import and_, eq, lt, ne, not_, or_
from fxgrad.engine.ops.creation import bitcast_convert_type
from fxgrad.engine.ops.integrals import sine_over_x
from fxgrad.engine.ops.parts import complex as complex_
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import UnsupportedError

Function = Callable[..., Any]


def _name_function(name: str, function: Function, doc: str, nin: int = 1) -> Elementwise:
    return Elementwise(function, name, nin, doc, __name__)


# --- exponentials, logarithms, roots ------------------------------------------------------------------------------

exp = _name_function("exp", unary_function(exponential.exp_p), "e to the power of each element.")
exp2 = _name_function("exp2", unary_function(exponential.exp2_p), "2 to the power of each element.")
expm1 = _name_function("expm1", unary_function(exponential.expm1_p), "exp(x) - 1, accurate for small x.")
log = _name_function("log", unary_function(exponential.log_p), "Return the natural logarithm of each element.")
log1p = _name_function("log1p", unary_function(exponential.log1p_p), "log(1 + x), accurate for small x.")


def _log_to_base(base: float) -> Function:
    """Return a logarithm to a base, for complex numbers part by part, since an infinite part times 0 would be NaN."""
    def function(x: Any) -> Any:
        result = exponential.log(x)
        if not dtypes.is_complex(aval_of(x).dtype):
            return div(result, math.log(base))
        return complex_(div(parts.real(result), math.log(base)), div(parts.imag(result), math.log(base)))
    return composite_function(function)


log2 = _name_function("log2", _log_to_base(2), "Return the logarithm to base 2.")
log10 = _name_function("log10", _log_to_base(10), "Return the logarithm to base 10.")
sqrt = _name_function("sqrt", unary_function(exponential.sqrt_p),
                      "Return the non-negative square root of each element.")
cbrt = _name_function("cbrt", unary_function(exponential.cbrt_p, "f"), "Return the real cube root of each element.")


def _square(x: Any) -> Any:
    if type(x) is Tracer and x.variable.aval.dtype.kind != "b":
        return exponential.square(x)
    return apply(exponential.square_p, without_bool(operand(x)))


square = _name_function("square", _square, "Return each element times itself.")
reciprocal = _name_function("reciprocal", composite_function(lambda x: exponential.integer_pow(x, -1)),
                            "1 / x of each element.")


def without_bool(x: Any) -> Any:
    """Return `x` with bools as integers."""
    return as_dtype(x, np.int32) if aval_of(x).dtype == dtypes.bool_ else x


# --- trigonometry -------------------------------------------------------------------------------------------------

sin = _name_function("sin", unary_function(trigonometric.sin_p), "Return the sine of angles in radians.")
cos = _name_function("cos", unary_function(trigonometric.cos_p), "Return the cosine of angles in radians.")
tan = _name_function("tan", unary_function(trigonometric.tan_p), "Return the tangent of angles in radians.")
arcsin = _name_function("arcsin", unary_function(trigonometric.asin_p),
                        "Return the angle, from -pi/2 to pi/2, with this sine.")
arccos = _name_function("arccos", unary_function(trigonometric.acos_p),
                        "Return the angle, from 0 to pi, with this cosine.")
arctan = _name_function("arctan", unary_function(trigonometric.atan_p),
                        "Return the angle, from -pi/2 to pi/2, with this tangent.")
sinh = _name_function("sinh", unary_function(trigonometric.sinh_p), "Return the hyperbolic sine.")
cosh = _name_function("cosh", unary_function(trigonometric.cosh_p), "Return the hyperbolic cosine.")
tanh = _name_function("tanh", unary_function(trigonometric.tanh_p), "Return the hyperbolic tangent.")
arcsinh = _name_function("arcsinh", unary_function(trigonometric.asinh_p), "Return the inverse of the hyperbolic sine.")
arccosh = _name_function("arccosh", unary_function(trigonometric.acosh_p),
                         "Return the inverse of the hyperbolic cosine, not negative.")
arctanh = _name_function("arctanh", unary_function(trigonometric.atanh_p),
                         "Return the inverse of the hyperbolic tangent.")
deg2rad = _name_function("deg2rad", composite_function(lambda x: mul(x, math.pi / 180)),
                         "Return angles in degrees as radians.")
rad2deg = _name_function("rad2deg", composite_function(lambda x: mul(x, 180 / math.pi)),
                         "Return angles in radians as degrees.")


sinc = _name_function("sinc", composite_function(lambda x: sine_over_x(mul(x, math.pi))),
                      "sin(pi x) / (pi x), which is 1 at 0.")

# --- rounding -----------------------------------------------------------------------------------------------------


def _rounding_function(operation: Function) -> Function:
    """Return the rounding function that leaves integers unchanged."""
    def function(x: Any) -> Any:
        x = as_array_operand(x)
        return new_array(x, x) if dtypes.kind_of(aval_of(x).dtype) in "iub" else operation(x)
    return function


floor = _name_function("floor", _rounding_function(parts.floor),
                       "Return the greatest whole number that is not above each element.")
ceil = _name_function("ceil", _rounding_function(parts.ceil),
                      "Return the least whole number that is not below each element.")


def _trunc(x: Any) -> Any:
    return where(lt(x, 0.0), parts.ceil(x), parts.floor(x))


trunc = _name_function("trunc", _rounding_function(_trunc), "Return each element rounded toward zero.")
fix = _name_function("fix", _rounding_function(_trunc), "Return each element rounded toward zero.")


def _rint(x: Any) -> Any:
    x, = promote_inexact(as_array_operand(x))
    return _by_part(parts.round, x)


rint = _name_function("rint", _rint,
                      "Return the nearest whole number of each element, halves to the even one; a float.")


def _by_part(operation: Function, x: Any) -> Any:
    """Return `operation` of a real array, or of both parts of a complex one."""
    if not dtypes.is_complex(aval_of(x).dtype):
        return operation(x)
    return complex_(operation(parts.real(x)), operation(parts.imag(x)))


def round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """Return the nearest number with that many decimals, halves to even; integers are unchanged.

    Raises `UnsupportedError` for integers and negative `decimals`.

    >>> float(round(2.5)), float(round(0.1234, 2))
    (2.0, 0.12)
    """
    refuse_out("round", out)
    a, decimals = as_array_operand(a), as_integer("round", decimals)
    if dtypes.kind_of(aval_of(a).dtype) in "iub":
        if decimals < 0:
            raise UnsupportedError(at_user_line("round: integers with decimals < 0 are not supported. "
                                                "Write round(x.astype('float32'), decimals)"))
        return new_array(a, a)
    if decimals == 0:
        return _by_part(parts.round, a)
    factor = 10.0 ** (decimals if decimals > 0 else -decimals)
    scale, unscale = (mul, div) if decimals > 0 else (div, mul)
    return unscale(_by_part(parts.round, scale(a, factor)), factor)


around = round

# --- signs --------------------------------------------------------------------------------------------------------


def _positive(x: Any) -> Any:
    x = as_array_operand(x)
    return new_array(x, x)


def _absolute(x: Any) -> Any:
    if type(x) is Tracer and x.variable.aval.dtype.kind != "b":
        return parts.abs(x)
    x = operand(x)
    return new_array(as_array_operand(x), x) if dtypes.kind_of(aval_of(x).dtype) in "bu" else apply(parts.abs_p, x)


negative = _name_function("negative", unary_function(neg_p, "iufcbV"), "Return each element with the other sign.")
positive = _name_function("positive", _positive, "Return the array itself.")
absolute = _name_function("absolute", _absolute,
                          "Return the absolute value of each element; the modulus of complex numbers.")
abs = absolute


def _fabs(x: Any) -> Any:
    refuse_complex("fabs", x)
    return parts.abs(x)


fabs = _name_function("fabs", composite_function(_fabs, exact=True),
                      "Return the absolute value of each element as a float.")
sign = _name_function("sign", unary_function(parts.sign_p, "iufcbV"), "-1, 0 or 1; of complex numbers x / |x|.")


def sign_bit(x: Any) -> Any:
    """Return whether the sign bit of real floats is set, that of zeros and NaNs too."""
    if dtypes.bits_of(aval_of(x).dtype) < 8:
        x = convert(x, dtypes.float32)
    integer = np.dtype(f"int{8 * aval_of(x).dtype.itemsize}")
    return lt(bitcast_convert_type(stop_gradient(x), integer), 0)


def _signbit(x: Any) -> Any:
    x = as_array_operand(x)
    refuse_complex("signbit", x)
    if dtypes.kind_of(aval_of(x).dtype) in "iub":
        return lt(x, scalar_like(0, x))
    return sign_bit(x)


signbit = _name_function("signbit", _signbit, "Return whether the sign is negative; that of -0.0 is.")

# --- complex numbers ----------------------------------------------------------------------------------------------


def _real(x: Any) -> Any:
    x = as_array_operand(x)
    return parts.real(x) if dtypes.is_complex(aval_of(x).dtype) else as_result(x)


def _imag(x: Any) -> Any:
    x = as_array_operand(x)
    aval = aval_of(x)
    if dtypes.is_complex(aval.dtype):
        return parts.imag(x)
    return convert(constant_array(aval.shape, 0, aval.dtype), aval.dtype, aval.weak)


def _conj(x: Any) -> Any:
    x = as_array_operand(x)
    return parts.conj(x) if dtypes.is_complex(aval_of(x).dtype) else new_array(x, x)


real = _name_function("real", _real, "Return the real part of each element.")
imag = _name_function("imag", _imag, "Return the imaginary part of each element.")
conjugate = _name_function("conjugate", _conj, "Return each element with the sign of its imaginary part changed.")
conj = conjugate


def angle(z: Any, deg: bool = False) -> Any:
    """Return the angle of complex numbers with the positive real axis, in radians or with `deg` in degrees.

    >>> float(angle(1j, deg=True))
    90.0
    """
    z, = promote_inexact(as_array_operand(z))
    parts_of = (parts.imag(z), parts.real(z)) if dtypes.is_complex(aval_of(z).dtype) else (scalar_like(0, z), z)
    result = trigonometric.atan2(*parts_of)
    return rad2deg(result) if deg else result


# --- kinds of numbers ---------------------------------------------------------------------------------------------


def _everywhere(x: Any, value: bool) -> Any:
    return constant_array(aval_of(x).shape, value, dtypes.bool_)


def _isfinite(x: Any) -> Any:
    x = as_array_operand(x)
    dtype = aval_of(x).dtype
    if not dtypes.is_inexact(dtype):
        return _everywhere(x, True)
    if dtypes.is_complex(dtype):  # part by part: the modulus of finite numbers may overflow
        return and_(parts.is_finite(parts.real(x)), parts.is_finite(parts.imag(x)))
    return parts.is_finite(x)


def _isnan(x: Any) -> Any:
    x = as_array_operand(x)
    return ne(x, x) if dtypes.is_inexact(aval_of(x).dtype) else _everywhere(x, False)


def _isinf(x: Any) -> Any:
    x = as_array_operand(x)
    dtype = aval_of(x).dtype
    if not dtypes.is_inexact(dtype):
        return _everywhere(x, False)
    if dtypes.is_complex(dtype):
        return or_(*(eq(parts.abs(part), math.inf) for part in (parts.real(x), parts.imag(x))))
    return eq(parts.abs(x), math.inf)


def _signed_infinity(infinity: float) -> Function:
    def function(x: Any) -> Any:
        x = as_array_operand(x)
        refuse_complex("isposinf and isneginf", x)
        return eq(x, infinity) if dtypes.is_inexact(aval_of(x).dtype) else _everywhere(x, False)
    return function


isfinite = _name_function("isfinite", _isfinite, "Return whether each element is neither infinite nor a NaN.")
isnan = _name_function("isnan", _isnan, "Return whether each element is a NaN.")
isinf = _name_function("isinf", _isinf, "Return whether each element is infinite.")
isposinf = _name_function("isposinf", _signed_infinity(math.inf), "Return whether each element is plus infinity.")
isneginf = _name_function("isneginf", _signed_infinity(-math.inf), "Return whether each element is minus infinity.")


def _isreal(x: Any) -> Any:
    x = as_array_operand(x)
    return eq(parts.imag(x), 0.0) if dtypes.is_complex(aval_of(x).dtype) else _everywhere(x, True)


isreal = _name_function("isreal", _isreal, "Return whether the imaginary part of each element is zero.")
iscomplex = _name_function("iscomplex", lambda x: not_(_isreal(x)),
                           "Return whether the imaginary part of each element is not zero.")


def nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: float | None = None,
               neginf: float | None = None) -> Any:
    """Return `x` with NaNs replaced by `nan`, and infinities by `posinf` and `neginf` (the largest finite numbers).

    >>> import numpy as np
    >>> nan_to_num(np.array([1.0, np.nan]))
    array([1., 0.])
    """
    x = as_array_operand(x)
    dtype = aval_of(x).dtype
    if not dtypes.is_inexact(dtype):
        return new_array(x, x)
    if dtypes.is_complex(dtype):
        return complex_(*(nan_to_num(part(x), copy, nan, posinf, neginf) for part in (parts.real, parts.imag)))
    limits = ml_dtypes.finfo(dtype)
    # Each is searched in the original, since a replacement may be another of them.
    places = ne(x, x), eq(x, math.inf), eq(x, -math.inf)
    numbers = nan, float(limits.max) if posinf is None else posinf, float(limits.min) if neginf is None else neginf
    for there, number in zip(places, numbers, strict=True):
        x = where(there, number if type(number) in PYTHON_SCALARS else convert(
            as_array_operand(number), dtype, aval_of(x).weak), x)
    return x


acos, acosh, asin, asinh = arccos, arccosh, arcsin, arcsinh
atan, atanh = arctan, arctanh
degrees, radians = rad2deg, deg2rad
