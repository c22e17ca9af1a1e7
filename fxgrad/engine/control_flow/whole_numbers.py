"""Python's functions of whole numbers in converted code: `pow` with a modulus, `math.isqrt` and `math.factorial`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad import lax
from fxgrad import numpy as fnp
from fxgrad.engine import dtypes
from fxgrad.engine.api.checking import check_raise
from fxgrad.engine.control_flow.blocks import refuse_in_try
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line


def power(base: Any, exp: Any, mod: Any = None) -> Any:
    """Return `pow(base, exp, mod)`; with a modulus by squaring, and for a known negative power of the inverse."""
    if mod is None or not any(type(each) is Tracer for each in (base, exp, mod)):
        return pow(base, exp, mod)
    if not all(map(_is_whole, (base, exp, mod))):
        raise TypeError("pow() 3rd argument not allowed unless all arguments are integers")
    refuse_in_try("pow")
    _require(mod != 0, ValueError, "pow() 3rd argument cannot be 0")
    _require(abs(mod) <= _LARGEST_FACTOR, OverflowError,
             f"pow(x, n, m) of traced integers has 64 bits: m is at most {_LARGEST_FACTOR}")
    base, exp, mod = map(_as_int, (base, exp, mod))
    base = base % mod
    if type(exp) is not Tracer and exp < 0:
        base, exp = _inverse(base, mod), -exp
    _require(exp >= 0, ValueError, "pow(x, n, m) of a traced n: n is at least 0. Write pow(pow(x, -1, m), -n, m)")

    def step(state: Any) -> Any:
        result, factor, rest = state
        return fnp.where(rest % 2 == 1, result * factor % mod, result), factor * factor % mod, rest // 2
    return lax.while_loop(lambda state: state[2] > 0, step, (_as_int(1 % mod), base, _as_int(exp)))[0]


def _inverse(x: Any, modulus: Any) -> Any:
    """Return the inverse of `x`, a rest by the modulus, with the sign of the modulus as Python's."""
    def step(state: Any) -> Any:
        one, other, of_one, of_other = state
        times = one // other
        return other, one - times * other, of_other, of_one - times * of_other
    begin = [_as_int(each) for each in (x, modulus, 1, 0)]
    divisor, _, found, _ = lax.while_loop(lambda state: state[1] != 0, step, (*begin,))
    _require(abs(divisor) == 1, ValueError, "base is not invertible for the given modulus")
    return found * divisor % modulus


def isqrt(n: Any) -> Any:
    """Return `math.isqrt(n)`."""
    if type(n) is not Tracer or not _is_whole(n):
        return math.isqrt(n)
    refuse_in_try("isqrt")
    _require(fnp.greater_equal(n, 0), ValueError, "isqrt() argument must be nonnegative")
    n = _as_int(n)
    root = _as_int(fnp.sqrt(fnp.maximum(convert(n, dtypes.float64), 1.0)))  # it is 1 off at most
    root = fnp.where(root > n // root, root - 1, root)
    return fnp.where(n < 1, 0, fnp.where(root + 1 <= n // (root + 1), root + 1, root))


def factorial(n: Any) -> Any:
    """Return `math.factorial(n)`, which has 64 bits."""
    if type(n) is not Tracer or not _is_whole(n):
        return math.factorial(n)
    refuse_in_try("factorial")
    _require(fnp.greater_equal(n, 0), ValueError, "factorial() not defined for negative values")
    _require(fnp.less(n, len(_FACTORIALS)), OverflowError,
             f"math.factorial(n) of a traced n has 64 bits: n is at most {len(_FACTORIALS) - 1}")
    return _as_int(fnp.asarray(_FACTORIALS)[n])


def _is_whole(value: Any) -> bool:
    aval = aval_of(value) if type(value) is Tracer else None
    return isinstance(value, int) if aval is None else not aval.shape and dtypes.kind_of(aval.dtype) in "biu"


def _as_int(value: Any) -> Any:
    return convert(value, dtypes.int64, weak=True) if type(value) is Tracer else value


def _require(condition: Any, kind: type[Exception], message: str) -> None:
    """Have the program raise unless a condition holds; at once if Python knows that it does not."""
    if type(condition) is Tracer:
        check_raise(condition, kind, message)
    elif not condition:
        raise kind(at_user_line(message))


_LARGEST_FACTOR = math.isqrt(2**63 - 1)
_FACTORIALS = np.array([math.factorial(n) for n in range(21)])
OF_WHOLE_NUMBERS: dict[Any, Callable[..., Any]] = {pow: power, math.isqrt: isqrt, math.factorial: factorial}
"""What converted code calls in the place of these functions."""
