"""Exponentials, logarithms and powers: exp exp2 expm1 log log1p logaddexp logistic sqrt rsqrt cbrt square, powers.

Rules reuse the output where they can: the derivative of exp is exp itself, that of sqrt is 1/2 over it. In this and
other modules, rules that square the output or the input multiply it by itself: the derivatives of that are products
which occur again at the next order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.ops.arithmetic import add, div, mul, neg_p, sub
from fxgrad.engine.ops.comparison import and_, eq, ne
from fxgrad.engine.ops.cpu_kernels import log1p_xla, log_xla
from fxgrad.engine.ops.families import by_float32
from fxgrad.engine.ops.pointwise import align, binary, operation, unary
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.snippets import Snippet, snippets, ufunc_snippet
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.errors import DTypeError

# --- exponentials and logarithms ----------------------------------------------------------------------------

exp_p = unary("exp", numpy=np.exp, tangent=lambda t, out, x: mul(t, out))
log_p = unary("log", numpy=np.log, xla=log_xla, tangent=lambda t, out, x: div(t, x))


def _expm1_numpy(x: Any) -> Any:
    """Compute complex numbers by parts: no digits are lost near 0, infinite results of real numbers stay real."""
    if x.dtype.kind != "c":
        return np.expm1(x)
    a, b = np.real(x), np.imag(x)
    out = np.empty(np.shape(x), x.dtype)
    out.real = np.expm1(a) * np.cos(b) - 2 * np.sin(b / 2) ** 2
    out.imag = np.where(b == 0, b, np.exp(a) * np.sin(b))
    return out[()]


def _log1p_numpy(x: Any) -> Any:
    """Compute complex numbers by parts near 0, where the sum 1 + x rounds digits away."""
    if x.dtype.kind != "c":
        return np.log1p(x)
    wide = x.astype(np.complex128)
    a, b = np.real(wide), np.imag(wide)
    out = np.array(np.log1p(wide))
    near = np.maximum(np.abs(a), np.abs(b)) < 0.5
    out.real = np.where(near, 0.5 * np.log1p(np.where(near, a * (2 + a) + b * b, 0)), out.real)
    return out.astype(x.dtype)[()]


# The derivative is not out + 1, which has no digits far below 0.
expm1_p = unary("expm1", numpy=_expm1_numpy, tangent=lambda t, out, x: mul(t, exp(x)))
log1p_p = unary("log1p", numpy=_log1p_numpy, xla=log1p_xla, tangent=lambda t, out, x: div(t, add(x, 1.0)))
exp, log, expm1, log1p = operation(exp_p), operation(log_p), operation(expm1_p), operation(log1p_p)


def _exp2_numpy(x: Any) -> Any:
    return np.exp(x * x.dtype.type(math.log(2))) if x.dtype.kind == "c" else np.exp2(x)


def _exp2_xla(lax: Any, x: Any) -> Any:
    """Take a power of 2: XLA's exp2 rounds ln 2, and a product with it, to the dtype."""
    return lax.exp2(x) if x.dtype.kind == "c" else lax.pow(lax.full_like(x, 2.0), x)


exp2_p = unary("exp2", numpy=_exp2_numpy, xla=by_float32(_exp2_xla),
               tangent=lambda t, out, x: mul(t, mul(out, math.log(2))))
exp2 = operation(exp2_p)


def _logistic_numpy(x: Any) -> Any:
    """1 / (1 + exp(-x)): if the exponential overflows, the result is 0, as it should be."""
    out = np.negative(x)
    if not out.shape:
        return np.reciprocal(np.add(np.exp(out), 1))
    np.exp(out, out)
    np.add(out, np.array(1, out.dtype), out)  # a number in the place of the array takes longer
    return np.reciprocal(out, out)


logistic_p = unary("logistic", numpy=_logistic_numpy, flops=4,
                   tangent=lambda t, out, x: mul(t, mul(out, sub(1.0, out))))
logistic = operation(logistic_p)

# --- roots ----------------------------------------------------------------------------------------------------


def _rsqrt_numpy(x: Any) -> Any:
    if x.dtype.itemsize == 1:
        return _rsqrt_numpy(x.astype(np.float32)).astype(x.dtype)
    return np.reciprocal(np.sqrt(x))


# At 0 the derivatives are infinite, and a NaN if the tangent is zero: so for sqrt, rsqrt and cbrt.
sqrt_p = unary("sqrt", numpy=np.sqrt, tangent=lambda t, out, x: div(mul(t, 0.5), out))
rsqrt_p = unary("rsqrt", numpy=_rsqrt_numpy, tangent=lambda t, out, x: mul(t, mul(div(out, x), -0.5)))
cbrt_p = unary("cbrt", numpy=np.cbrt, accepts="floating",
               tangent=lambda t, out, x: mul(t, div(1 / 3, mul(out, out))))
sqrt, rsqrt, cbrt = operation(sqrt_p), operation(rsqrt_p), operation(cbrt_p)

# --- powers ---------------------------------------------------------------------------------------------------

square_p = unary("square", numpy=np.square, accepts="numeric", tangent=lambda t, out, x: mul(t, mul(x, 2.0)))
square = operation(square_p)


@rewrites.register(square_p, makers=(neg_p,))
def _square_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    negated = known.inputs_if(inputs[0], neg_p)
    return [square(negated[0])] if negated else None


def _check_exponent(x: Aval | np.ndarray, *, exponent: int) -> None:
    if exponent < 0 and x.dtype.kind in "iu":
        raise DTypeError(f"power: integers ({x.dtype.name}) to the negative power {exponent} are not integers; "
                         "convert first, for example x.astype('float32')")


def _integer_pow_numpy(x: Any, *, exponent: int) -> Any:
    """Multiply repeated squares in XLA's order, so that both executors round alike."""
    if exponent == 2:
        return np.multiply(x, x)
    if exponent < 0:
        _check_exponent(x, exponent=exponent)
        return np.reciprocal(_integer_pow_numpy(x, exponent=-exponent))
    result = None
    while exponent:
        if exponent & 1:
            result = x if result is None else np.multiply(result, x)
        exponent >>= 1
        if exponent:
            x = np.multiply(x, x)
    return np.ones_like(x) if result is None else result


def _integer_pow_tangent(t: Any, out: Any, x: Any, *, exponent: int) -> Any:
    return Zero(aval_of(out)) if exponent == 0 else mul(t, mul(integer_pow(x, exponent - 1), float(exponent)))


integer_pow_p = unary("integer_pow", numpy=_integer_pow_numpy, accepts="numeric", tangent=_integer_pow_tangent,
                      xla=lambda lax, x, *, exponent: lax.integer_pow(x, exponent), public="power",
                      check=_check_exponent, parameters=frozenset({"exponent"}))


@snippets.register(integer_pow_p)
def _integer_pow_snippet(avals: Sequence[Aval], params: dict[str, Any]) -> Snippet | None:
    return ufunc_snippet(np.multiply, [avals[0], avals[0]]).of(0, 0) if params["exponent"] == 2 else None


def integer_pow(x: Any, exponent: int) -> Any:
    """Return `x` to a static integer power; negative powers are for inexact dtypes only."""
    return x if exponent == 1 else operation(integer_pow_p)(x, exponent=int(exponent))


@rewrites.register(integer_pow_p, when=lambda _, params: params["exponent"] == 1)
def _integer_pow_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    return [inputs[0]] if params["exponent"] == 1 else None


def _pow_base_tangent(t: Any, out: Any, x: Any, y: Any) -> Any:
    """y x^(y-1), where 0^(0-1) counts as 1, so that x^0 has the derivative 0 at 0."""
    below = sub(y, 1.0)
    if type(y) is not Literal:
        below = where(and_(eq(x, 0.0), eq(y, 0.0)), 0.0, below)
    elif y.value == 0:
        return Zero(aval_of(out))
    return mul(t, mul(y, pow(x, below)))


def _pow_exponent_tangent(t: Any, out: Any, x: Any, y: Any) -> Any:
    """log(x) x^y, with 0^y treated as constant: correct for y > 0; at y = 0 there is no derivative."""
    return mul(t, mul(log(where(eq(x, 0.0), 1.0, x)), out))


pow_p = binary("pow", numpy=np.power, accepts="inexact", tangents=[_pow_base_tangent, _pow_exponent_tangent],
               public="power", flops=10)
pow = operation(pow_p)

# --- powers of integers -----------------------------------------------------------------------------------------


def _whole_pow_numpy(x: Any, y: Any) -> Any:
    if y.dtype.kind == "u":
        return np.power(x, y)
    negative = np.less(y, 0)
    power = np.power(x, np.where(negative, 2 + (y & 1), y).astype(y.dtype))  # for 0, 1 and -1 only the parity counts
    small = np.logical_and(np.greater_equal(x, -1), np.less_equal(x, 1))
    return np.where(np.logical_and(negative, ~small), 0, power).astype(x.dtype)


def _whole_pow_xla(lax: Any, x: Any, y: Any) -> Any:
    """Square repeatedly, as many times as the greatest exponent has bits."""
    one, zero = lax.full_like(x, 1), lax.full_like(y, 0)
    left, negative = y, None
    if y.dtype.kind == "i":
        negative = lax.lt(y, zero)
        left = lax.select(negative, lax.add(lax.bitwise_and(y, lax.full_like(y, 1)), lax.full_like(y, 2)), y)

    def step(state: Any) -> Any:
        result, square, left = state
        odd = lax.ne(lax.bitwise_and(left, lax.full_like(y, 1)), zero)
        return (lax.select(odd, lax.mul(result, square), result), lax.mul(square, square),
                lax.shift_right_logical(left, lax.full_like(y, 1)))

    power = lax.while_loop(lambda state: lax.reduce_max(state[2], tuple(range(y.ndim))) > 0, step, (one, x, left))[0]
    if negative is None:
        return power
    small = lax.bitwise_and(lax.ge(x, lax.full_like(x, -1)), lax.le(x, one))
    return lax.select(lax.bitwise_and(negative, lax.bitwise_not(small)), lax.full_like(x, 0), power)


# Modulo 2 to the number of bits; negative exponents give 0 where |x| > 1, and 0 to a negative power is 0.
whole_pow_p = binary("whole_pow", numpy=_whole_pow_numpy, accepts="integer", tangents=None, public="power", flops=10,
                     xla=lambda lax, x, y: _whole_pow_xla(lax, *align(lax, x, y)))
whole_pow = operation(whole_pow_p)

# --- logarithms of sums -----------------------------------------------------------------------------------------


def _logaddexp_xla(lax: Any, x: Any, y: Any) -> Any:
    """Return the greater one plus the contribution of the other; equal infinities have no difference."""
    apart = lax.sub(x, y)
    total = lax.add(lax.max(x, y), lax.log1p(lax.exp(lax.neg(lax.abs(apart)))))
    return lax.select(lax.ne(apart, apart), lax.add(x, y), total)


def _share(t: Any, x: Any, y: Any) -> Any:
    """Return the tangent of x times the share of exp(x) in exp(x) + exp(y); one half at equal infinities."""
    apart = sub(x, y)
    return mul(t, logistic(where(and_(ne(apart, apart), eq(x, y)), 0.0, apart)))


logaddexp_p = binary("logaddexp", numpy=np.logaddexp, xla=_logaddexp_xla, accepts="floating", flops=20,
                     tangents=[lambda t, out, x, y: _share(t, x, y), lambda t, out, x, y: _share(t, y, x)])
logaddexp = operation(logaddexp_p)
