"""Arithmetic of two operands: sums, products, quotients, remainders, powers, extrema."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import PYTHON_SCALARS
from fxgrad.engine.frontend.operands import (
    apply,
    as_array_operand,
    as_numpy_scalars,
    equally_strong,
    new_array,
    operand,
    operands,
    promote_inexact,
    promote_operands,
    refuse_complex,
    refuse_out,
)
from fxgrad.engine.frontend.ufuncs import (
    Elementwise,
    binary_function,
    composite_function,
    dispatch_bools,
    inexact_function,
)
from fxgrad.engine.ops import arithmetic, exponential, parts, trigonometric
from fxgrad.engine.ops.arithmetic import div, mul, rem, stop_gradient, sub
from fxgrad.engine.ops.comparison import and_, and_p, eq, gt, lt, ne, or_, or_p
from fxgrad.engine.ops.pointwise import add as add_
from fxgrad.engine.ops.pointwise import add_p, scalar_like
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.numpy.elementwise import isnan, sign_bit, without_bool


def _name_function(name: str, function: Any, doc: str) -> Elementwise:
    return Elementwise(function, name, 2, doc, __name__)


# --- sums, products, quotients ------------------------------------------------------------------------------------

add = _name_function("add", binary_function(add_p, dispatch_bools(lambda x, y: apply(add_p, x, y), lambda x,
                                                                  y: apply(or_p, x, y))),
                     "Return the sum of two operands; for bools, whether either is True.")
subtract = _name_function("subtract", binary_function(arithmetic.sub_p), "Return the difference of two operands.")
multiply = _name_function(
    "multiply", binary_function(arithmetic.mul_p, dispatch_bools(lambda x, y: apply(arithmetic.mul_p, x, y),
                                                                 lambda x, y: apply(and_p, x, y))),
    "Return the product of two operands; for bools, whether both are True.")
divide = _name_function("divide", inexact_function(arithmetic.div_p),
                        "Return the quotient of two operands, a float also for integers.")
true_divide = divide


def _numbers(x: Any, y: Any) -> list[Any]:
    """Return the operands in their common dtype, bools as integers."""
    return [without_bool(value) for value in as_numpy_scalars(promote_operands(*operands(x, y)))]


def _sign_if_known(y: Any) -> int:
    """Return 1 or -1 if `y` is a known number above or below 0, and 0 in all other cases."""
    if not (type(y) in PYTHON_SCALARS or isinstance(y, np.generic)) or dtypes.is_complex(aval_of(y).dtype):
        return 0
    number = float(y)  # comparisons of NaN in bfloat16 warn
    return int(number > 0) - int(number < 0)


def _nonzero(y: Any) -> Any:
    """Return integer divisors with 1 for 0, by which there is no remainder."""
    return y if _sign_if_known(y) or not dtypes.is_integer(aval_of(y).dtype) else arithmetic.nonzero_divisor(y)


def _is_turned(left: Any, y: Any) -> Any:
    """Return whether a remainder with the sign of the dividend is not 0, and has another sign than the divisor."""
    zero, sign = scalar_like(0, left), _sign_if_known(y)
    if sign:
        return lt(left, zero) if sign > 0 else gt(left, zero)
    return and_(ne(left, zero), ne(lt(left, zero), lt(y, scalar_like(0, y))))


def _remainder(x: Any, y: Any) -> Any:
    """Return the remainder with the sign of the divisor; 0 for integers divided by 0."""
    x, y = _numbers(x, y)
    y = _nonzero(y)
    result, kind = rem(x, y), dtypes.kind_of(aval_of(x).dtype)
    if kind == "u":
        return result
    turned = _is_turned(result, y)
    if kind == "i" and not _sign_if_known(y):  # a sum that is made only where signs differ does not overflow
        return add_(result, where(turned, y, scalar_like(0, y)))
    return where(turned, add_(result, y), result)


def _floor_divide(x: Any, y: Any) -> Any:
    """Return NumPy's floor division; 0 for integers divided by 0."""
    x, y = _numbers(x, y)
    dtype = aval_of(x).dtype
    refuse_complex("floor_divide", x)
    if dtypes.is_integer(dtype):
        divisor, zero = _nonzero(y), scalar_like(0, x)
        quotient = div(x, divisor)
        if dtypes.kind_of(dtype) == "i":
            below = _is_turned(rem(x, divisor), divisor)
            quotient = where(below, sub(quotient, scalar_like(1, x)), quotient)
        return quotient if _sign_if_known(y) else where(eq(y, zero), zero, quotient)
    x, y = stop_gradient(x), y if _sign_if_known(y) else stop_gradient(y)  # constant between jumps
    left = rem(x, y)
    quotient, exact = div(sub(x, left), y), div(x, y)
    whole = parts.round(where(_is_turned(left, y), sub(quotient, 1.0), quotient))
    # A zero has the sign of the quotient; a quotient that is infinite or a NaN stays.
    quotient = where(eq(whole, 0.0), mul(exact, 0.0), whole)
    return quotient if _sign_if_known(y) else where(eq(y, 0.0), exact, quotient)


remainder = _name_function("remainder", _remainder, "Return the remainder of a division, with the sign of the divisor.")
mod = remainder
def _fmod(x: Any, y: Any) -> Any:
    x, y = _numbers(x, y)
    return rem(x, _nonzero(y))


fmod = _name_function("fmod", _fmod, "Return the remainder of a division, with the sign of the dividend.")
floor_divide = _name_function("floor_divide", _floor_divide,
                              "Return the greatest whole number that is not above the quotient.")


def divmod(x1: Any, x2: Any, /) -> tuple[Any, Any]:
    """Return `(floor_divide(x1, x2), remainder(x1, x2))`; shapes broadcast.

    >>> [int(value) for value in divmod(-7, 2)]
    [-4, 1]
    """
    return _floor_divide(x1, x2), _remainder(x1, x2)


# --- powers -------------------------------------------------------------------------------------------------------


def _power(x: Any, y: Any) -> Any:
    if isinstance(y, int | np.integer) and type(y) is not bool:
        base = operand(x)
        if type(base) in PYTHON_SCALARS and type(base) is not bool:
            base = as_array_operand(base)
        elif aval_of(base).dtype == dtypes.bool_:
            base = without_bool(as_numpy_scalars(promote_operands(base, operand(y)))[0])
        return new_array(exponential.integer_pow(base, int(y)), base)
    x, y = promote_operands(*operands(x, y))
    dtype = aval_of(x).dtype
    if dtypes.is_inexact(dtype):
        return apply(exponential.pow_p, x, y)
    return exponential.whole_pow(*(without_bool(value) for value in as_numpy_scalars([x, y])))


power = _name_function("power", _power,
                       "Return the first operand to the power of the second; a Python int there is static.")
pow = power
float_power = _name_function("float_power", composite_function(lambda x, y: exponential.pow(x, y)),
                             "Return the first operand to the power of the second, a float also for integers.")

# --- extrema ------------------------------------------------------------------------------------------------------

maximum = _name_function("maximum", binary_function(arithmetic.max_p, kinds="biufcV"),
                         "Return the greater of two elements, or a NaN.")
minimum = _name_function("minimum", binary_function(arithmetic.min_p, kinds="biufcV"),
                         "Return the less of two elements, or a NaN.")


def _but_nans(choose: Any) -> Any:
    def function(x: Any, y: Any) -> Any:
        x, y = as_numpy_scalars(promote_operands(*operands(x, y)))
        if not dtypes.is_inexact(aval_of(x).dtype):
            return choose(x, y)
        return where(isnan(x), y, where(isnan(y), x, choose(x, y)))
    return function


fmax = _name_function("fmax", _but_nans(arithmetic.max),
                      "Return the greater of two elements, of which NaNs are left out.")
fmin = _name_function("fmin", _but_nans(arithmetic.min), "Return the less of two elements, of which NaNs are left out.")


def clip(arr: Any, /, min: Any = None, max: Any = None, *, out: Any = None, a_min: Any = None,
         a_max: Any = None) -> Any:
    """Return `arr` held between `min` and `max` (None: no bound); the shapes broadcast, the dtypes promote.

    `a_min` and `a_max` are NumPy's older names for the bounds.

    >>> clip([-1.0, 0.5, 7.0], 0.0, 1.0)
    array([0. , 0.5, 1. ])
    """
    refuse_out("clip", out)
    low, high = a_min if min is None else min, a_max if max is None else max
    result = operand(arr)
    refuse_complex("clip", result)
    low, high = _bound(low, result, above=False), _bound(high, result, above=True)
    if low is not None:
        result = maximum(low, result)
    return new_array(as_array_operand(result), arr) if high is None else minimum(high, result)


def _bound(bound: Any, like: Any, above: bool) -> Any:
    """Return a bound for integers; one that their dtype cannot hold becomes None, or the dtype's own limit."""
    aval = aval_of(like)
    if type(bound) is not int or not dtypes.is_integer(aval.dtype) or aval.weak:
        return bound
    limits = dtypes.iinfo(aval.dtype)
    if limits.min <= bound <= limits.max:
        return bound
    return None if (bound > 0) == above else int(limits.min if above else limits.max)


# --- functions of two -----------------------------------------------------------------------------------------------

arctan2 = _name_function("arctan2", inexact_function(trigonometric.atan2_p),
                         "Return the angle of the point (second, first operand).")
atan2 = arctan2


def _hypot(x: Any, y: Any) -> Any:
    refuse_complex("hypot", x, y)
    return apply(trigonometric.hypot_p, *promote_inexact(x, y))


hypot = _name_function("hypot", binary_function(trigonometric.hypot_p, _hypot, kinds="f"),
                       "Return the length of the hypotenuse, sqrt(x^2 + y^2), without overflow.")


def _logaddexp(x: Any, y: Any) -> Any:
    if not dtypes.is_complex(aval_of(x).dtype):
        return exponential.logaddexp(x, y)
    first = or_(lt(parts.real(x), parts.real(y)), isnan(y))
    greater, less = where(first, y, x), where(first, x, y)
    apart = where(eq(parts.real(greater), -math.inf), less, sub(less, greater))  # of two zeros the sum is zero
    total = add_(greater, exponential.log1p(exponential.exp(apart)))
    angle = parts.imag(total)
    turn = scalar_like(2 * math.pi, angle)
    return bind(parts.complex_p, parts.real(total), sub(angle, mul(turn, parts.round(div(angle, turn)))))[0]


def _logaddexp2(x: Any, y: Any) -> Any:
    two = math.log(2)
    return div(_logaddexp(mul(x, two), mul(y, two)), two)


logaddexp = _name_function("logaddexp", composite_function(_logaddexp), "log(exp(x) + exp(y)), without overflow.")
logaddexp2 = _name_function("logaddexp2", composite_function(_logaddexp2), "log2(2**x + 2**y), without overflow.")


def _copysign(x: Any, y: Any) -> Any:
    refuse_complex("copysign", x)
    x, y = equally_strong([x, y])
    size = parts.abs(x)
    return where(sign_bit(y), arithmetic.neg(size), size)


def _heaviside(x: Any, y: Any) -> Any:
    refuse_complex("heaviside", x)
    step = convert(gt(x, 0.0), aval_of(x).dtype, aval_of(x).weak)
    return where(eq(x, 0.0), y, where(ne(x, x), x, step))


copysign = _name_function("copysign", composite_function(_copysign, exact=True),
                          "Return the size of the first operand with the sign of the second.")
heaviside = _name_function("heaviside", composite_function(_heaviside, exact=True),
                           "0 below zero, 1 above it, and the second operand at zero.")
nextafter = _name_function("nextafter", composite_function(lambda x, y: parts.nextafter(x, y), exact=True),
                           "Return the next float of the first operand toward the second.")
