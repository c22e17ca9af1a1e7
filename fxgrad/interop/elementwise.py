"""jax's operations of each element: arithmetic, comparison, bits, mathematics, choice, and changes of dtype."""

from __future__ import annotations

import math
import operator
from typing import Any

from fxgrad import lax
from fxgrad.engine import dtypes
from fxgrad.engine.core.primitive import registry
from fxgrad.engine.ops.arithmetic import div, mul, sub
from fxgrad.engine.ops.creation import bitcast_convert_type, copy_p
from fxgrad.engine.ops.exponential import integer_pow_p, log, pow_p, square
from fxgrad.engine.ops.parts import reduce_precision_p, round_p
from fxgrad.engine.ops.pointwise import add, add_p, scalar_like
from fxgrad.engine.ops.select import select_n
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import UnsupportedError
from fxgrad.interop.importing import import_rule
from fxgrad.interop.matching import read_parameters, register_same

# Operations that both have under one name and with the same meaning.
for _name in (
    # one operand; `accuracy`, which some have, is None or the equation stays jax's
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i0e", "bessel_i1e", "cbrt", "ceil", "clz", "cos",
    "cosh", "digamma", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "imag", "is_finite", "lgamma", "log",
    "log1p", "logistic", "neg", "not", "population_count", "real", "rsqrt", "sign", "sin", "sinh", "sqrt", "square",
    "stop_gradient", "tan", "tanh",
    # two
    "and", "atan2", "complex", "div", "eq", "eq_to", "ge", "gt", "igamma", "igamma_grad_a", "igammac", "le", "le_to",
    "lt", "lt_to", "max", "min", "mulhi", "ne", "nextafter", "or", "polygamma", "random_gamma_grad", "rem",
    "shift_left", "shift_right_arithmetic", "shift_right_logical", "sub", "xor", "zeta",
    # three and more
    "clamp", "regularized_incomplete_beta",
):
    register_same(registry[_name])
register_same(add_p, "add", "add_any")
register_same(copy_p, "copy", "copy_p")
register_same(registry["optimization_barrier"])


@import_rule("select_n")
def _select_n(equation: Any, which: Any, *cases: Any) -> Any:
    read_parameters(equation)
    if dtypes.is_integer(aval_of(which).dtype):  # ours are int32 always
        which = convert(which, dtypes.int32)
    return select_n(which, *cases)


@import_rule("mul")
def _mul(equation: Any, x: Any, y: Any) -> Any:
    wanted, = read_parameters(equation, "out_dtype")
    if wanted is not None:
        wanted = dtypes.canonical(wanted)
        x, y = convert(x, wanted), convert(y, wanted)
    return mul(x, y)


@import_rule("pow")
def _pow(equation: Any, x: Any, y: Any) -> Any:
    read_parameters(equation)
    aval = aval_of(x)
    if dtypes.is_integer(aval_of(y).dtype):  # ours takes a power of the dtype of the base
        y = convert(y, aval.dtype, aval.weak)
    return bind(pow_p, x, y)


@import_rule("integer_pow")
def _integer_pow(equation: Any, x: Any) -> list[Any]:
    power, = read_parameters(equation, "y")
    return bind(integer_pow_p, x, exponent=operator.index(power))


@import_rule("round")
def _round(equation: Any, x: Any) -> list[Any]:
    method, = read_parameters(equation, "rounding_method")
    return bind(round_p, x, to_even=method.name == "TO_NEAREST_EVEN")


@import_rule("reduce_precision")
def _reduce_precision(equation: Any, x: Any) -> list[Any]:
    exponent, mantissa = read_parameters(equation, "exponent_bits", "mantissa_bits")
    return bind(reduce_precision_p, x, exponent_bits=int(exponent), mantissa_bits=int(mantissa))


@import_rule("conj")
def _conj(equation: Any, x: Any) -> Any:
    read_parameters(equation, ignored=("input_dtype",))  # it is the dtype of x
    return lax.conj(x)


@import_rule("convert_element_type")
def _convert(equation: Any, x: Any) -> Any:
    dtype, weak = read_parameters(equation, "new_dtype", "weak_type")
    return convert(x, _dtype(dtype), bool(weak))


@import_rule("bitcast_convert_type")
def _bitcast(equation: Any, x: Any) -> Any:
    dtype, = read_parameters(equation, "new_dtype")
    return bitcast_convert_type(x, _dtype(dtype))


def _dtype(dtype: Any) -> Any:
    found = dtypes.from_jax(dtype)
    if found is None or found.name not in dtypes.SUPPORTED:
        raise UnsupportedError(f"fxgrad has no dtype {dtype}")
    return found


# --- several of ours for one of jax's -----------------------------------------------------------------------------


@import_rule("log2")
def _log2(equation: Any, x: Any) -> Any:
    """Return log(x) / log(2), since there is no primitive for it."""
    read_parameters(equation)
    return div(log(x), scalar_like(math.log(2), x))


@import_rule("one_minus_square")
def _one_minus_square(equation: Any, x: Any) -> Any:
    """Return 1 - x^2, as (1 - x) (1 + x), which loses no digits near 1; complex numbers by the definition."""
    read_parameters(equation)
    one = scalar_like(1, x)
    if dtypes.is_complex(aval_of(x).dtype):
        return sub(one, square(x))
    return mul(sub(one, x), add(one, x))


@import_rule("polynomial")
def _polynomial(equation: Any, x: Any, *coefficients: Any) -> Any:
    """Evaluate by Horner's rule, like jax's primitive; the constant coefficient comes first."""
    read_parameters(equation, ignored=("unroll",))
    result = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        result = add(mul(result, x), coefficient)
    shape = equation.outvars[0].aval.shape
    return result if aval_of(result).shape == shape else lax.broadcast_in_dim(result, shape, range(len(shape)))
