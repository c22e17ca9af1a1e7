"""The functions of `jax.lax` of each element: arithmetic, comparison, bits, and mathematics."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import Any

from fxgrad import dtypes
from fxgrad.core.primitive import Primitive
from fxgrad.core.tape import aval_of
from fxgrad.errors import DTypeError, ShapeError, at_user_line
from fxgrad.lax.operands import applied, array_of, of_one_dtype, refuse, wanted_dtype
from fxgrad.numpy.operands import shape_of
from fxgrad.ops import arithmetic, comparison, exponential, parts, trigonometric
from fxgrad.ops.choose import clamp_p
from fxgrad.ops.choose import select_n as _select_n
from fxgrad.ops.families import check_kind
from fxgrad.ops.parts import complex_p, nextafter_p, reduce_precision_p, round_p
from fxgrad.ops.pointwise import add_p
from fxgrad.ops.space import convert

__all__ = [
    "RoundingMethod", "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_not", "bitwise_or", "bitwise_xor", "cbrt", "ceil", "clamp", "clz", "complex", "conj", "cos", "cosh",
    "div", "eq", "exp", "exp2", "expm1", "floor", "ge", "gt", "imag", "integer_pow", "is_finite", "le", "log", "log1p",
    "logistic", "lt", "max", "min", "mul", "mulhi", "ne", "neg", "nextafter", "population_count", "pow", "real",
    "reciprocal", "reduce_precision", "rem", "round", "rsqrt", "select", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh",
]

Function = Callable[..., Any]


def _unary(name: str, primitive: Primitive, doc: str, example: str, result: str) -> Function:
    def function(x: Any) -> Any:
        return applied(name, primitive, x)
    return _documented(function, name, f"{doc} The dtype stays, and must be one that has such a function.", example,
                       result)


def _approximated(name: str, primitive: Primitive, doc: str, example: str, result: str) -> Function:
    """The function of one operand that has an argument `accuracy` in jax."""
    def function(x: Any, *, accuracy: Any = None) -> Any:
        refuse(name, accuracy=accuracy)
        return applied(name, primitive, x)
    return _documented(function, name, f"{doc} Takes floats and complex numbers; `accuracy` must be None.", example,
                       result)


def _binary(name: str, primitive: Primitive, doc: str, example: str, result: str) -> Function:
    def function(x: Any, y: Any) -> Any:
        return applied(name, primitive, x, y)
    return _documented(function, name, f"{doc} Dtypes and shapes must be equal, or one operand a number or a scalar.",
                       example, result)


def _documented(function: Function, name: str, doc: str, example: str, result: str) -> Function:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc} Raises `DTypeError`, `ShapeError`.\n\n>>> {example}\n{result}\n"
    return function


# --- one operand --------------------------------------------------------------------------------------------------

abs = _unary("abs", parts.abs_p, "The absolute value.", "float(abs(-2.0))", "2.0")
ceil = _unary("ceil", parts.ceil_p, "The least whole number that is not below.", "float(ceil(1.2))", "2.0")
floor = _unary("floor", parts.floor_p, "The greatest whole number that is not above.", "float(floor(1.8))", "1.0")
neg = _unary("neg", arithmetic.neg_p, "The negative.", "float(neg(2.0))", "-2.0")
sign = _unary("sign", parts.sign_p, "-1, 0 or 1; of complex numbers x / |x|.", "float(sign(-2.0))", "-1.0")
square = _unary("square", exponential.square_p, "The square.", "float(square(3.0))", "9.0")
is_finite = _unary("is_finite", parts.is_finite_p, "Whether a float is neither infinite nor a NaN.",
                   "bool(is_finite(2.0))", "True")
real = _unary("real", parts.real_p, "The real part of complex numbers.", "float(real(1 + 2j))", "1.0")
imag = _unary("imag", parts.imag_p, "The imaginary part of complex numbers.", "float(imag(1 + 2j))", "2.0")
bitwise_not = _unary("bitwise_not", comparison.not_p, "All bits inverted; of bools the negation.",
                     "int(bitwise_not(5))", "-6")
population_count = _unary("population_count", comparison.population_count_p, "How many bits are 1.",
                          "int(population_count(7))", "3")
clz = _unary("clz", comparison.clz_p, "How many bits before the first 1 are 0.", "int(clz(1))", "31")
acos = _unary("acos", trigonometric.acos_p, "The angle from 0 to pi with this cosine.", "float(acos(1.0))", "0.0")
asin = _unary("asin", trigonometric.asin_p, "The angle from -pi/2 to pi/2 with this sine.", "float(asin(0.0))", "0.0")
atan = _unary("atan", trigonometric.atan_p, "The angle from -pi/2 to pi/2 with this tangent.", "float(atan(0.0))",
              "0.0")
acosh = _unary("acosh", trigonometric.acosh_p, "The inverse of the hyperbolic cosine.", "float(acosh(1.0))", "0.0")
asinh = _unary("asinh", trigonometric.asinh_p, "The inverse of the hyperbolic sine.", "float(asinh(0.0))", "0.0")
atanh = _unary("atanh", trigonometric.atanh_p, "The inverse of the hyperbolic tangent.", "float(atanh(0.0))", "0.0")
cosh = _unary("cosh", trigonometric.cosh_p, "The hyperbolic cosine.", "float(cosh(0.0))", "1.0")
sinh = _unary("sinh", trigonometric.sinh_p, "The hyperbolic sine.", "float(sinh(0.0))", "0.0")

cbrt = _approximated("cbrt", exponential.cbrt_p, "The real cube root.", "round(float(cbrt(8.0)), 9)", "2.0")
cos = _approximated("cos", trigonometric.cos_p, "The cosine.", "float(cos(0.0))", "1.0")
exp = _approximated("exp", exponential.exp_p, "e to the power x.", "float(exp(0.0))", "1.0")
exp2 = _approximated("exp2", exponential.exp2_p, "2 to the power x.", "float(exp2(3.0))", "8.0")
expm1 = _approximated("expm1", exponential.expm1_p, "exp(x) - 1, accurate near 0.", "float(expm1(0.0))", "0.0")
log = _approximated("log", exponential.log_p, "The natural logarithm.", "float(log(1.0))", "0.0")
log1p = _approximated("log1p", exponential.log1p_p, "log(1 + x), accurate near 0.", "float(log1p(0.0))", "0.0")
logistic = _approximated("logistic", exponential.logistic_p, "1 / (1 + exp(-x)).", "float(logistic(0.0))", "0.5")
rsqrt = _approximated("rsqrt", exponential.rsqrt_p, "One over the square root.", "float(rsqrt(4.0))", "0.5")
sin = _approximated("sin", trigonometric.sin_p, "The sine.", "float(sin(0.0))", "0.0")
sqrt = _approximated("sqrt", exponential.sqrt_p, "The square root.", "float(sqrt(4.0))", "2.0")
tan = _approximated("tan", trigonometric.tan_p, "The tangent.", "float(tan(0.0))", "0.0")
tanh = _approximated("tanh", trigonometric.tanh_p, "The hyperbolic tangent.", "float(tanh(0.0))", "0.0")


class RoundingMethod(enum.IntEnum):
    """Where `round` takes halves: away from zero, or to the even neighbour.

    >>> RoundingMethod.TO_NEAREST_EVEN.value
    1
    """

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x: Any, rounding_method: Any = RoundingMethod.AWAY_FROM_ZERO) -> Any:
    """The nearest whole number of floats; halves go away from zero, or to the even one. Raises `DTypeError`.

    >>> float(round(2.5)), float(round(2.5, RoundingMethod.TO_NEAREST_EVEN))
    (3.0, 2.0)
    """
    return applied("round", round_p, x, to_even=rounding_method.name == "TO_NEAREST_EVEN")


def conj(x: Any) -> Any:
    """The complex conjugate; floats become complex. Raises `DTypeError` for others.

    >>> complex(1.0, 2.0) == conj(complex(1.0, -2.0))
    np.True_
    """
    x = array_of("conj", x)
    aval = aval_of(x)
    if aval.dtype in (dtypes.float32, dtypes.float64):
        x = convert(x, dtypes.complex_dtype(aval.dtype), aval.weak)
    return applied("conj", parts.conj_p, x)


def integer_pow(x: Any, y: int) -> Any:
    """`x` to a static whole power, negative ones for inexact dtypes only. Raises `DTypeError`.

    >>> float(integer_pow(2.0, -1))
    0.5
    """
    return applied("integer_pow", exponential.integer_pow_p, x, exponent=operator.index(y))


def reciprocal(x: Any) -> Any:
    """1 / x of floats and complex numbers. Raises `DTypeError` for others.

    >>> float(reciprocal(4.0))
    0.25
    """
    return integer_pow(x, -1)


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Floats rounded to a format of so many bits, in their own dtype. Raises `DTypeError`, `ArgumentError`.

    >>> float(reduce_precision(1.3, 5, 2))
    1.25
    """
    return applied("reduce_precision", reduce_precision_p, operand, exponent_bits=operator.index(exponent_bits),
                   mantissa_bits=operator.index(mantissa_bits))


# --- two operands -------------------------------------------------------------------------------------------------

add = _binary("add", add_p, "The sum.", "float(add(1.0, 2.0))", "3.0")
sub = _binary("sub", arithmetic.sub_p, "The difference.", "float(sub(1.0, 2.0))", "-1.0")
div = _binary("div", arithmetic.div_p, "The quotient, of integers toward zero.", "int(div(-7, 2))", "-3")
rem = _binary("rem", arithmetic.rem_p, "The remainder of that division; its sign is that of x.", "int(rem(-7, 2))",
              "-1")
max = _binary("max", arithmetic.max_p, "The greater one.", "float(max(1.0, 2.0))", "2.0")
min = _binary("min", arithmetic.min_p, "The lesser one.", "float(min(1.0, 2.0))", "1.0")
atan2 = _binary("atan2", trigonometric.atan2_p, "The angle of the point with abscissa y and ordinate x.",
                "float(atan2(0.0, 1.0))", "0.0")
mulhi = _binary("mulhi", arithmetic.mulhi_p, "The upper half of the bits of the product of integers.",
                "int(mulhi(2**30, 8))", "2")
eq = _binary("eq", comparison.eq_p, "Whether x equals y.", "bool(eq(1.0, 2.0))", "False")
ne = _binary("ne", comparison.ne_p, "Whether x differs from y.", "bool(ne(1.0, 2.0))", "True")
lt = _binary("lt", comparison.lt_p, "Whether x is less than y.", "bool(lt(1.0, 2.0))", "True")
le = _binary("le", comparison.le_p, "Whether x is not greater than y.", "bool(le(1.0, 2.0))", "True")
gt = _binary("gt", comparison.gt_p, "Whether x is greater than y.", "bool(gt(1.0, 2.0))", "False")
ge = _binary("ge", comparison.ge_p, "Whether x is not less than y.", "bool(ge(1.0, 2.0))", "False")
bitwise_and = _binary("bitwise_and", comparison.and_p, "Bits that are 1 in both.", "int(bitwise_and(6, 3))", "2")
bitwise_or = _binary("bitwise_or", comparison.or_p, "Bits that are 1 in either.", "int(bitwise_or(6, 3))", "7")
bitwise_xor = _binary("bitwise_xor", comparison.xor_p, "Bits that are 1 in one only.", "int(bitwise_xor(6, 3))", "5")
shift_left = _binary("shift_left", comparison.shift_left_p, "The bits of x moved up by y.", "int(shift_left(3, 2))",
                     "12")
shift_right_arithmetic = _binary("shift_right_arithmetic", comparison.shift_right_arithmetic_p,
                                 "The bits of x moved down by y, the sign coming in.",
                                 "int(shift_right_arithmetic(-8, 1))", "-4")
shift_right_logical = _binary("shift_right_logical", comparison.shift_right_logical_p,
                              "The bits of x moved down by y, zeros coming in.", "int(shift_right_logical(8, 1))", "4")


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    """The product; dtypes and shapes must be equal, or one a number or a scalar. Raises `DTypeError`, `ShapeError`.

    With `out_dtype` the operands are converted to it first.

    >>> float(mul(2.0, 3.0))
    6.0
    """
    wanted = wanted_dtype(out_dtype)
    if wanted is not None:
        x, y = (convert(array_of("mul", value), wanted) for value in (x, y))
    return applied("mul", arithmetic.mul_p, x, y)


def pow(x: Any, y: Any) -> Any:
    """`x` to the power `y`: x is inexact, and y of the same dtype or an integer. Raises `DTypeError`, `ShapeError`.

    >>> float(pow(2.0, 3.0)), float(pow(2.0, 3))
    (8.0, 8.0)
    """
    x, y = array_of("pow", x), array_of("pow", y)
    if dtypes.is_integer(aval_of(y).dtype):
        check_kind("pow", "inexact", aval_of(x))
        y = convert(y, aval_of(x).dtype, aval_of(x).weak)
    return applied("pow", exponential.pow_p, x, y)


def complex(x: Any, y: Any) -> Any:
    """The complex number x + i y, of float32 or float64. Raises `DTypeError`, `ShapeError`.

    >>> bool(eq(real(complex(1.0, 2.0)), 1.0))
    True
    """
    return applied("complex", complex_p, x, y)


def nextafter(x1: Any, x2: Any) -> Any:
    """The float next to `x1` in the direction of `x2`. Raises `DTypeError`, `ShapeError`.

    >>> import numpy as np
    >>> bool(nextafter(np.float32(1.0), np.float32(2.0)) > 1)
    True
    """
    return applied("nextafter", nextafter_p, x1, x2)


# --- choosing -----------------------------------------------------------------------------------------------------


def clamp(min: Any, x: Any, max: Any) -> Any:  # noqa: A002  (jax's names)
    """`x` held between bounds, each of which is a scalar or of the shape of x. Raises `DTypeError`, `ShapeError`.

    >>> import numpy as np
    >>> clamp(0.0, np.array([-1.0, 0.5, 2.0]), 1.0)
    array([0. , 0.5, 1. ])
    """
    low, value, high = of_one_dtype("clamp", min, x, max)
    for bound in (low, high):
        if shape_of(bound) not in ((), shape_of(value)):
            raise ShapeError(at_user_line(f"clamp: a bound of shape {shape_of(bound)} for an array of shape "
                                          f"{shape_of(value)}; a scalar or an equal shape is needed"))
    return applied("clamp", clamp_p, low, value, high)


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """`on_true` where `pred` holds, else `on_false`: of one shape and dtype, which pred has too or is a scalar.

    Raises `DTypeError`, `ShapeError`.

    >>> import numpy as np
    >>> select(np.array([True, False]), np.ones(2), np.zeros(2))
    array([1., 0.])
    """
    return _selected("select", pred, on_false, on_true)


def select_n(which: Any, *cases: Any) -> Any:
    """Elements of `cases[which]`: cases have one shape and dtype; `which`, bool or integer, that shape or none.

    Raises `DTypeError`, `ShapeError`, `ArgumentError`.

    >>> import numpy as np
    >>> select_n(np.array([1, 0]), np.zeros(2), np.ones(2))
    array([1., 0.])
    """
    return _selected("select_n", which, *cases)


def _selected(name: str, which: Any, *cases: Any) -> Any:
    which, read = array_of(name, which), of_one_dtype(name, *cases) if cases else []
    shapes = [shape_of(case) for case in read]
    if any(shape != shapes[0] for shape in shapes) or (shapes and shape_of(which) not in ((), shapes[0])):
        raise ShapeError(at_user_line(
            f"{name}: {shape_of(which)} to choose by and cases of shapes {', '.join(map(str, shapes))}; cases of one "
            "shape are needed, and a scalar or an array of that shape to choose by. fxgrad.numpy.where broadcasts"))
    if dtypes.is_integer(aval_of(which).dtype):
        which = convert(which, dtypes.int32)
    elif aval_of(which).dtype != dtypes.bool_:
        raise DTypeError(at_user_line(f"{name}: bools or integers choose, got {aval_of(which).dtype.name}; compare "
                                      "first, for example which > 0"))
    return _select_n(which, *read)
