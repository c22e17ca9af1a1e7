"""Comparisons, logic and bits, and choices between arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.sizes import refuse_undecided, surely_less
from fxgrad.engine.frontend.operands import (
    apply,
    as_array_operand,
    as_dtype,
    as_numpy_scalars,
    cast_operand,
    operand,
    operands,
    promote_operands,
    shape_of,
)
from fxgrad.engine.frontend.ufuncs import Elementwise, as_bool, binary_function, unary_function
from fxgrad.engine.ops import comparison
from fxgrad.engine.ops.comparison import and_, eq, or_, shift_right_arithmetic_p, shift_right_logical_p
from fxgrad.engine.ops.families import check_kind
from fxgrad.engine.ops.parts import imag, real
from fxgrad.engine.ops.random import equal_keys
from fxgrad.engine.ops.reductions import reduce_and
from fxgrad.engine.ops.select import select_n
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError
from fxgrad.numpy.arithmetic import add, multiply, subtract
from fxgrad.numpy.elementwise import absolute, isfinite, isnan, without_bool
from fxgrad.numpy.finding import nonzero

Function = Callable[..., Any]


def _name_function(name: str, function: Function, doc: str, nin: int = 2) -> Elementwise:
    return Elementwise(function, name, nin, doc, __name__)


# --- comparisons --------------------------------------------------------------------------------------------------


def _comparable(x: Any, y: Any) -> list[Any]:
    """Return the operands in one dtype; a Python integer that the other's dtype cannot hold exceeds all its values."""
    for number, other in ((x, y), (y, x)):
        aval = aval_of(other)
        if type(number) is int and dtypes.is_integer(aval.dtype) and not aval.weak:
            limits = dtypes.iinfo(aval.dtype)
            if not limits.min <= number <= limits.max:
                beyond, within = np.int8(1 if number > 0 else -1), np.zeros(aval.shape, np.int8)
                return [beyond, within] if number is x else [within, beyond]
    return promote_operands(x, y)


def _are_of_both_signs(x: Any, y: Any) -> bool:
    """Return whether no integer dtype holds both: unsigned 64-bit integers, and signed ones."""
    kinds = {(aval.dtype.kind, aval.dtype.itemsize == 8) for aval in map(aval_of, (x, y)) if not aval.weak}
    return ("u", True) in kinds and bool(kinds & {("i", True), ("i", False)})


def _of_both_signs(operation: Function, x: Any, y: Any) -> Any:
    """Return the comparison of signed and unsigned 64-bit integers, exact unlike one in float64."""
    unsigned = dtypes.SUPPORTED["uint64"]
    signed, negative = (x, (-1, 0)) if dtypes.kind_of(aval_of(x).dtype) == "i" else (y, (0, -1))
    same = operation(convert(x, unsigned), convert(y, unsigned))
    return select_n(less(signed, 0), same, operation(*map(np.int8, negative)))


def _equality(primitive: Any, operation: Function) -> Function:
    def general(x: Any, y: Any) -> Any:
        if _are_of_both_signs(x, y):
            return _of_both_signs(operation, x, y)
        if _are_keys(x, y):
            return equal_keys(x, y) if primitive is comparison.eq_p else comparison.not_(equal_keys(x, y))
        return apply(primitive, *_comparable(x, y))
    return binary_function(primitive, general, kinds="biufc")


def _ordering_function(primitive: Any, of_parts: Function) -> Function:
    """Return the comparison; complex numbers by their real parts first, then by their imaginary parts."""
    def general(x: Any, y: Any) -> Any:
        if _are_of_both_signs(x, y):
            return _of_both_signs(of_parts, x, y)
        x, y = as_numpy_scalars(_comparable(x, y))
        if not dtypes.is_complex(aval_of(x).dtype):
            return apply(primitive, x, y)
        return select_n(eq(real(x), real(y)), of_parts(real(x), real(y)), of_parts(imag(x), imag(y)))
    return binary_function(primitive, general, kinds="biufV")


equal = _name_function("equal", _equality(comparison.eq_p, comparison.eq), "Return whether two elements are equal.")
not_equal = _name_function("not_equal", _equality(comparison.ne_p, comparison.ne),
                           "Return whether two elements differ.")
less = _name_function("less", _ordering_function(comparison.lt_p, comparison.lt),
                      "Return whether the first element is less.")
less_equal = _name_function("less_equal", _ordering_function(comparison.le_p, comparison.le),
                            "Return whether the first is less or equal.")
greater = _name_function("greater", _ordering_function(comparison.gt_p, comparison.gt),
                         "Return whether the first element is greater.")
greater_equal = _name_function("greater_equal", _ordering_function(comparison.ge_p, comparison.ge),
                               "Return whether the first element is greater or equal.")

# --- logic and bits -----------------------------------------------------------------------------------------------


def _logical(operation: Function) -> Function:
    return lambda *values: operation(*(as_bool(as_array_operand(value)) for value in values))


logical_and = _name_function("logical_and", _logical(comparison.and_),
                             "Return whether both elements are true (not zero).")
logical_or = _name_function("logical_or", _logical(comparison.or_), "Return whether either element is true (not zero).")
logical_xor = _name_function("logical_xor", _logical(comparison.xor),
                             "Return whether just one element is true (not zero).")
logical_not = _name_function("logical_not", _logical(comparison.not_),
                             "Return whether each element is false (zero).", 1)

bitwise_and = _name_function("bitwise_and", binary_function(comparison.and_p, kinds="biu"),
                             "Return the bits that both integers have.")
bitwise_or = _name_function("bitwise_or", binary_function(comparison.or_p, kinds="biu"),
                            "Return the bits that either integer has.")
bitwise_xor = _name_function("bitwise_xor", binary_function(comparison.xor_p, kinds="biu"),
                             "Return the bits that just one integer has.")
bitwise_not = _name_function("bitwise_not", unary_function(comparison.not_p, "biufcV"),
                             "Return all bits of each integer inverted.", 1)
invert = bitwise_invert = bitwise_not


def _left_shift(x: Any, y: Any) -> Any:
    x, y = (without_bool(value) for value in promote_operands(*operands(x, y)))
    return apply(comparison.shift_left_p, x, y)


left_shift = _name_function("left_shift", _left_shift, "Return the bits moved to the left.")


def _right_shift(x: Any, y: Any) -> Any:
    x, y = (without_bool(value) for value in promote_operands(*operands(x, y)))
    check_kind("right_shift", "integer", aval_of(x))
    return apply(shift_right_logical_p if dtypes.kind_of(aval_of(x).dtype) == "u" else shift_right_arithmetic_p, x, y)


right_shift = _name_function("right_shift", _right_shift, "Return the bits moved to the right; the sign stays.")
bitwise_left_shift, bitwise_right_shift = left_shift, right_shift


def _bitwise_count(x: Any) -> Any:
    x = without_bool(as_array_operand(x))
    check_kind("bitwise_count", "integer", aval_of(x))
    return as_dtype(comparison.population_count(absolute(x)), np.uint8)


bitwise_count = _name_function("bitwise_count", _bitwise_count,
                               "Return how many bits of the absolute value are set.", 1)

# --- choices ------------------------------------------------------------------------------------------------------


def where(condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return elements of `x` where `condition` is true, and of `y` elsewhere; shapes broadcast, dtypes promote.

    With `condition` alone: `nonzero(condition)`, which `size` and `fill_value` are for. Derivatives flow to the chosen
    elements only.

    >>> where([True, False], 1.0, [5.0, 6.0])
    array([1., 6.])
    """
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ArgumentError(at_user_line("where: both x and y, or neither, must be given"))
    if type(x) is Tracer and type(y) is Tracer and type(condition) is Tracer:
        types = x.aval, y.aval
        if types[0].dtype is types[1].dtype and types[0].weak is types[1].weak and condition.dtype.kind == "b":
            return select_n(condition, y, x)
    x, y = promote_operands(operand(x), operand(y))
    chosen = as_bool(as_array_operand(condition))
    if type(x) is float and type(y) is float and type(chosen) is Tracer:
        # A choice of plain numbers, which may yet meet an array of doubles: keep their digits, and give way to any.
        x, y = np.float64(x), np.float64(y)
    return select_n(chosen, y, x)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """Return for each position the element of the first choice whose condition is true there, or `default`.

    Raises `ArgumentError` unless there are equally many conditions and choices, at least one.

    >>> select([[True, False], [True, True]], [[1.0, 2.0], [3.0, 4.0]])
    array([1., 4.])
    """
    if len(condlist) != len(choicelist) or not condlist:
        raise ArgumentError(at_user_line(f"select: {len(condlist)} conditions and {len(choicelist)} choices; equal "
                                         "numbers, at least one, are needed"))
    *choices, result = promote_operands(*map(operand, choicelist), operand(default))
    for condition, choice in zip(reversed(condlist), reversed(choices), strict=True):
        result = where(condition, choice, result)
    return result


# --- comparisons of arrays ----------------------------------------------------------------------------------------


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Return whether |a - b| <= atol + rtol |b|, element by element; shapes broadcast.

    >>> isclose([1.0, 2.0], [1.0, 2.1])
    array([ True, False])
    """
    a, b = operands(a, b)
    if _are_keys(a, b):
        return equal(a, b)
    a, b = as_numpy_scalars(promote_operands(a, b))
    if not dtypes.is_inexact(aval_of(a).dtype):
        a, b = (cast_operand(value, dtypes.float64, False) for value in (a, b))
    bound = add(multiply(absolute(b), rtol), atol)  # tolerances may be traced, of another dtype
    near = and_(less_equal(absolute(subtract(a, b)), bound), and_(isfinite(a), isfinite(b)))
    near = or_(near, eq(a, b))
    return or_(near, and_(isnan(a), isnan(b))) if equal_nan else near


def _are_keys(*values: Any) -> bool:
    return all(dtypes.is_key(aval_of(value).dtype) for value in values)


def _all(x: Any) -> Any:
    return reduce_and(x, range(len(shape_of(x))))


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Return whether all elements are close, in the sense of `isclose`.

    >>> bool(allclose([1.0, 2.0], [1.0, 2.0 + 1e-9]))
    True
    """
    return _all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Return whether two arrays have the same shape and the same elements.

    >>> bool(array_equal([1, 2], [1, 2])), bool(array_equal([1, 2], [1]))
    (True, False)
    """
    a, b = operands(a1, a2)
    if shape_of(a) != shape_of(b):
        unequal = [] if len(shape_of(a)) != len(shape_of(b)) else [
            pair for pair in zip(shape_of(a), shape_of(b), strict=True) if pair[0] != pair[1]]
        if unequal and not any(surely_less(one, other) or surely_less(other, one) for one, other in unequal):
            refuse_undecided(f"array_equal: whether the shapes {shape_of(a)} and {shape_of(b)} are equal", *unequal[0])
        return np.bool_(False)
    same = equal(a, b)
    return _all(or_(same, and_(isnan(a), isnan(b))) if equal_nan and not _are_keys(a, b) else same)


def array_equiv(a1: Any, a2: Any) -> Any:
    """Return whether two arrays are equal when broadcast to one shape.

    >>> bool(array_equiv([1, 1], 1))
    True
    """
    a, b = operands(a1, a2)
    try:
        if shape_of(a) != shape_of(b):  # of symbolic size too
            np.broadcast_shapes(shape_of(a), shape_of(b))
    except ValueError:
        return np.bool_(False)
    return _all(equal(a, b))
