"""The elementwise functions of `jax.lax` of one array: signs, rounding, bits, mathematics."""
# ruff: noqa: A001  (the names are jax's)

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.core.parameter_classes import declare_parameter_class
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.frontend.operands import as_integer
from fxgrad.engine.frontend.strict import apply_elementwise, document_function, refuse_options, require_array
from fxgrad.engine.ops import arithmetic, comparison, exponential, parts, trigonometric
from fxgrad.engine.ops.parts import reduce_precision_p, round_p
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of

__all__ = [
    "RoundingMethod", "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "cbrt", "ceil",
    "clz", "conj", "cos", "cosh", "exp", "exp2", "expm1", "floor", "imag", "integer_pow", "is_finite", "log",
    "log1p", "logistic", "neg", "population_count", "real", "reciprocal", "reduce_precision", "round", "rsqrt",
    "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
]

Function = Callable[..., Any]


def _unary(name: str, primitive: Primitive, doc: str) -> Function:
    def function(x: Any) -> Any:
        return apply_elementwise(name, primitive, x)
    return document_function(function, name, doc, "The dtype must be one that has such a function.")


def _with_accuracy(name: str, primitive: Primitive, doc: str) -> Function:
    """Return the function of one operand that has an argument `accuracy` in jax."""
    def function(x: Any, *, accuracy: Any = None) -> Any:
        refuse_options(name, accuracy=accuracy)
        return apply_elementwise(name, primitive, x)
    return document_function(function, name, doc, "Takes floats and complex numbers; `accuracy` must be None.")


# --- one operand --------------------------------------------------------------------------------------------------

abs = _unary("abs", parts.abs_p, """Return the absolute value.
>>> float(abs(-2.0))
2.0""")
ceil = _unary("ceil", parts.ceil_p, """Return the least whole number that is not below.
>>> float(ceil(1.2))
2.0""")
floor = _unary("floor", parts.floor_p, """Return the greatest whole number that is not above.
>>> float(floor(1.8))
1.0""")
neg = _unary("neg", arithmetic.neg_p, """Return the negative.
>>> float(neg(2.0))
-2.0""")
sign = _unary("sign", parts.sign_p, """-1, 0 or 1; of complex numbers x / |x|.
>>> float(sign(-2.0))
-1.0""")
square = _unary("square", exponential.square_p, """Return the square.
>>> float(square(3.0))
9.0""")
is_finite = _unary("is_finite", parts.is_finite_p, """Return whether a float is neither infinite nor a NaN.
>>> bool(is_finite(2.0))
True""")
real = _unary("real", parts.real_p, """Return the real part of complex numbers.
>>> float(real(1 + 2j))
1.0""")
imag = _unary("imag", parts.imag_p, """Return the imaginary part of complex numbers.
>>> float(imag(1 + 2j))
2.0""")
bitwise_not = _unary("bitwise_not", comparison.not_p, """Return all bits inverted; for bools the negation.
>>> int(bitwise_not(5))
-6""")
population_count = _unary("population_count", comparison.population_count_p, """Return how many bits are 1.
>>> int(population_count(7))
3""")
clz = _unary("clz", comparison.clz_p, """Return how many bits before the first 1 are 0.
>>> int(clz(1))
63""")
acos = _unary("acos", trigonometric.acos_p, """Return the angle from 0 to pi with this cosine.
>>> float(acos(1.0))
0.0""")
asin = _unary("asin", trigonometric.asin_p, """Return the angle from -pi/2 to pi/2 with this sine.
>>> float(asin(0.0))
0.0""")
atan = _unary("atan", trigonometric.atan_p, """Return the angle from -pi/2 to pi/2 with this tangent.
>>> float(atan(0.0))
0.0""")
acosh = _unary("acosh", trigonometric.acosh_p, """Return the inverse of the hyperbolic cosine.
>>> float(acosh(1.0))
0.0""")
asinh = _unary("asinh", trigonometric.asinh_p, """Return the inverse of the hyperbolic sine.
>>> float(asinh(0.0))
0.0""")
atanh = _unary("atanh", trigonometric.atanh_p, """Return the inverse of the hyperbolic tangent.
>>> float(atanh(0.0))
0.0""")
cosh = _unary("cosh", trigonometric.cosh_p, """Return the hyperbolic cosine.
>>> float(cosh(0.0))
1.0""")
sinh = _unary("sinh", trigonometric.sinh_p, """Return the hyperbolic sine.
>>> float(sinh(0.0))
0.0""")

cbrt = _with_accuracy("cbrt", exponential.cbrt_p, """Return the real cube root.
>>> f"{float(cbrt(8.0)):.6f}"
'2.000000'""")
cos = _with_accuracy("cos", trigonometric.cos_p, """Return the cosine.
>>> float(cos(0.0))
1.0""")
exp = _with_accuracy("exp", exponential.exp_p, """e to the power x.
>>> float(exp(0.0))
1.0""")
exp2 = _with_accuracy("exp2", exponential.exp2_p, """2 to the power x.
>>> float(exp2(3.0))
8.0""")
expm1 = _with_accuracy("expm1", exponential.expm1_p, """exp(x) - 1, accurate near 0.
>>> float(expm1(0.0))
0.0""")
log = _with_accuracy("log", exponential.log_p, """Return the natural logarithm.
>>> float(log(1.0))
0.0""")
log1p = _with_accuracy("log1p", exponential.log1p_p, """log(1 + x), accurate near 0.
>>> float(log1p(0.0))
0.0""")
logistic = _with_accuracy("logistic", exponential.logistic_p, """1 / (1 + exp(-x)).
>>> float(logistic(0.0))
0.5""")
rsqrt = _with_accuracy("rsqrt", exponential.rsqrt_p, """One over the square root.
>>> float(rsqrt(4.0))
0.5""")
sin = _with_accuracy("sin", trigonometric.sin_p, """Return the sine.
>>> float(sin(0.0))
0.0""")
sqrt = _with_accuracy("sqrt", exponential.sqrt_p, """Return the square root.
>>> float(sqrt(4.0))
2.0""")
tan = _with_accuracy("tan", trigonometric.tan_p, """Return the tangent.
>>> float(tan(0.0))
0.0""")
tanh = _with_accuracy("tanh", trigonometric.tanh_p, """Return the hyperbolic tangent.
>>> float(tanh(0.0))
0.0""")


class RoundingMethod(enum.IntEnum):
    """How `round` rounds halves: away from zero, or to the even neighbour.

    >>> RoundingMethod.TO_NEAREST_EVEN.value
    1
    """

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


declare_parameter_class(RoundingMethod)


def round(x: Any, rounding_method: Any = RoundingMethod.AWAY_FROM_ZERO) -> Any:
    """Return the nearest whole number of floats; halves go away from zero, or to the even one. Raises `DTypeError`.

    >>> float(round(2.5)), float(round(2.5, RoundingMethod.TO_NEAREST_EVEN))
    (3.0, 2.0)
    """
    return apply_elementwise("round", round_p, x, to_even=rounding_method.name == "TO_NEAREST_EVEN")


def conj(x: Any) -> Any:
    """Return the complex conjugate; floats become complex. Raises `DTypeError` for others.

    >>> bool(conj(1 + 2j) == 1 - 2j)
    True
    """
    x = require_array("conj", x)
    aval = aval_of(x)
    if aval.dtype in (dtypes.float32, dtypes.float64):
        x = convert(x, dtypes.complex_dtype(aval.dtype), aval.weak)
    return apply_elementwise("conj", parts.conj_p, x)


def integer_pow(x: Any, y: int) -> Any:
    """Return `x` to a static whole power, negative ones for inexact dtypes only. Raises `DTypeError`.

    >>> float(integer_pow(2.0, -1))
    0.5
    """
    return apply_elementwise("integer_pow", exponential.integer_pow_p, x, exponent=as_integer("integer_pow", y))


def reciprocal(x: Any) -> Any:
    """Return 1 / x of floats and complex numbers. Raises `DTypeError` for others.

    >>> float(reciprocal(4.0))
    0.25
    """
    return integer_pow(x, -1)


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Return floats rounded to a format of so many bits, in their own dtype. Raises `DTypeError`, `ArgumentError`.

    >>> float(reduce_precision(1.3, 5, 2))
    1.25
    """
    exponent, mantissa = as_integer("reduce_precision", exponent_bits), as_integer("reduce_precision", mantissa_bits)
    return apply_elementwise("reduce_precision", reduce_precision_p, operand, exponent_bits=exponent,
                             mantissa_bits=mantissa)


