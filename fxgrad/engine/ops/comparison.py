"""Comparisons, logic and bits: eq ne lt le gt ge, the total order, and or xor not, shifts, bit counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.ops.pointwise import binary, comparison, is_same, operation, unary
from fxgrad.engine.ops.structural import broadcast_to
from fxgrad.engine.tracing.tape import aval_of

# --- comparisons as in NumPy: every one with a NaN is False, except `ne` ----------------------------------------

eq_p = comparison("eq", numpy=np.equal, accepts="all", public="equal", commutative=True)
ne_p = comparison("ne", numpy=np.not_equal, accepts="all", public="not_equal", commutative=True)
lt_p = comparison("lt", numpy=np.less, public="less")
le_p = comparison("le", numpy=np.less_equal, public="less_equal")
gt_p = comparison("gt", numpy=np.greater, public="greater")
ge_p = comparison("ge", numpy=np.greater_equal, public="greater_equal")
eq, ne, lt, le, gt, ge = map(operation, (eq_p, ne_p, lt_p, le_p, gt_p, ge_p))

# --- the total order: -NaN < -inf < ... < -0 < 0 < ... < inf < NaN -------------------------------------------


def _rank(x: Any) -> Any:
    """Integers in the total order of the floats `x` (IEEE 754-2008, section 5.10), for other dtypes `x` itself."""
    if dtypes.kind_of(x.dtype) in "biu":
        return x
    integer = np.dtype(f"int{8 * x.dtype.itemsize}")
    bits = np.asarray(x).view(integer)
    return np.where(bits < 0, bits ^ np.iinfo(integer).max, bits)[()]


def _eq_to_numpy(x: Any, y: Any) -> Any:
    return np.equal(_rank(x), _rank(y))


def _lt_to_numpy(x: Any, y: Any) -> Any:
    return np.less(_rank(x), _rank(y))


def _le_to_numpy(x: Any, y: Any) -> Any:
    return np.less_equal(_rank(x), _rank(y))


def _lax_primitive(name: str) -> Callable[..., Any]:
    """Return a function of `lax`, which has these three as primitives only, under public names."""
    return lambda lax, x, y: getattr(lax, name).bind(x, y)


eq_to_p = comparison("eq_to", numpy=_eq_to_numpy, xla=_lax_primitive("eq_to_p"), commutative=True)
le_to_p = comparison("le_to", numpy=_le_to_numpy, xla=_lax_primitive("le_to_p"))
lt_to_p = comparison("lt_to", numpy=_lt_to_numpy, xla=_lax_primitive("lt_to_p"))
eq_to, le_to, lt_to = operation(eq_to_p), operation(le_to_p), operation(lt_to_p)

# --- logic, bit by bit -----------------------------------------------------------------------------------------


def _bit_operation(name: str, kernel: np.ufunc) -> Primitive:
    """Make an operation on two integers or bools, named in NumPy and in `lax` as its kernel."""
    return binary(name, numpy=kernel, accepts="integral", xla=kernel.__name__, tangents=None, public=kernel.__name__,
                  commutative=True)


and_p, or_p = _bit_operation("and", np.bitwise_and), _bit_operation("or", np.bitwise_or)
xor_p = _bit_operation("xor", np.bitwise_xor)
not_p = unary("not", numpy=np.invert, accepts="integral", xla="bitwise_not", tangent=None, public="invert")
and_, or_, xor, not_ = operation(and_p), operation(or_p), operation(xor_p), operation(not_p)


@rewrites.register(not_p)
def _not_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Two negations cancel, and those of equalities become inequalities (an order's would differ for NaNs)."""
    for primitive, negated in ((eq_p, ne_p), (ne_p, eq_p)):
        compared = known.inputs_if(inputs[0], primitive)
        if compared:
            return [operation(negated)(*compared)]
    return known.inputs_if(inputs[0], not_p)


def _register_absorption(primitive: Primitive, neutral: bool) -> None:
    """Enter the algebra of `and` and `or`: x with itself is x, and so is x with the neutral element (of bools)."""
    @rewrites.register(primitive)
    def rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
        for x, y in (inputs, inputs[::-1]):
            neutral_literal = type(y) is Literal and y.dtype.kind == "b" and bool(y.value) == neutral
            if is_same(x, y) or (neutral_literal and aval_of(x).ndim >= aval_of(y).ndim):
                return [x]
        return None


_register_absorption(and_p, True)
_register_absorption(or_p, False)


@rewrites.register(and_p)
def _and_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """A NaN equals nothing: `x != x and x == y` is False everywhere."""
    for one, other in (inputs, inputs[::-1]):
        unequal, equal = known.inputs_if(one, ne_p), known.inputs_if(other, eq_p)
        if unequal and equal and is_same(*unequal) and any(is_same(unequal[0], value) for value in equal):
            shape = and_p.abstract(*map(aval_of, inputs))[0].shape
            return [broadcast_to(Literal(np.False_, Aval((), dtypes.bool_)), shape)]
    return None


# --- shifts: by the number of bits or more, or by a negative number, they leave 0 (or the sign) ---------------


def _unsigned(x: Any) -> Any:
    """Return the bits of integers as unsigned integers."""
    bits = np.asarray(x).view(f"uint{8 * x.dtype.itemsize}")
    return bits & np.uint8((1 << dtypes.bits_of(x.dtype)) - 1) if dtypes.is_below_byte(x.dtype) else bits


def _shift_right_logical_numpy(x: Any, y: Any) -> Any:
    if x.dtype.kind == "u":  # of 8 bits or more, which NumPy shifts so
        return np.right_shift(x, y)
    return np.asarray(np.right_shift(_unsigned(x), _unsigned(y))).view(x.dtype)[()]


def _shift_right_arithmetic_numpy(x: Any, y: Any) -> Any:
    """Shift the sign in, also for unsigned dtypes, whose first bit counts as one."""
    signed = f"int{8 * x.dtype.itemsize}"
    return np.asarray(np.right_shift(np.asarray(x).view(signed), np.asarray(y).view(signed))).view(x.dtype)[()]


shift_left_p = binary("shift_left", numpy=np.left_shift, accepts="integer", tangents=None, public="left_shift")
shift_right_arithmetic_p = binary("shift_right_arithmetic", numpy=_shift_right_arithmetic_numpy, accepts="integer",
                                  tangents=None, public="right_shift")
shift_right_logical_p = binary("shift_right_logical", numpy=_shift_right_logical_numpy, accepts="integer",
                               tangents=None)
shift_left, shift_right_arithmetic, shift_right_logical = map(
    operation, (shift_left_p, shift_right_arithmetic_p, shift_right_logical_p))

# --- counting bits -----------------------------------------------------------------------------------------------


def _population_count_numpy(x: Any) -> Any:
    return np.bitwise_count(_unsigned(x)).astype(x.dtype)


def _clz_numpy(x: Any) -> Any:
    """Spread the highest bit to all lower ones and count the rest."""
    bits = dtypes.bits_of(x.dtype)
    spread, step = _unsigned(x), 1
    while step < bits:
        spread = spread | (spread >> spread.dtype.type(step))
        step *= 2
    return (bits - np.bitwise_count(spread)).astype(x.dtype)


def _counted_by_xla(name: str, of_nothing: Callable[[int], int]) -> Callable[..., Any]:
    """Return the count in bytes that hold integers of fewer bits; `of_nothing(missing)` counts the surplus bits."""
    def rule(lax: Any, x: Any) -> Any:
        if not dtypes.is_below_byte(x.dtype):
            return getattr(lax, name)(x)
        bits = dtypes.bits_of(x.dtype)
        octets = lax.bitwise_and(lax.convert_element_type(x, np.uint8), np.uint8((1 << bits) - 1))
        return lax.convert_element_type(lax.sub(getattr(lax, name)(octets), np.uint8(of_nothing(8 - bits))), x.dtype)
    return rule


population_count_p = unary("population_count", numpy=_population_count_numpy,
                           xla=_counted_by_xla("population_count", lambda missing: 0), accepts="integer", tangent=None,
                           public="bitwise_count")
clz_p = unary("clz", numpy=_clz_numpy, xla=_counted_by_xla("clz", lambda missing: missing), accepts="integer",
              tangent=None)
population_count, clz = operation(population_count_p), operation(clz_p)
