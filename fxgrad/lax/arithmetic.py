"""The elementwise functions of `jax.lax` of several arrays: arithmetic, comparison, bits, selection."""
# ruff: noqa: A001, A002  (the names are jax's)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.frontend.operands import shape_of
from fxgrad.engine.frontend.strict import (
    apply_elementwise,
    as_dtype_or_none,
    document_function,
    require_array,
    unify_dtypes,
)
from fxgrad.engine.ops import arithmetic, comparison, exponential, trigonometric
from fxgrad.engine.ops.families import check_kind
from fxgrad.engine.ops.parts import complex_p, nextafter_p
from fxgrad.engine.ops.pointwise import add_p
from fxgrad.engine.ops.random import equal_keys
from fxgrad.engine.ops.select import clamp_p
from fxgrad.engine.ops.select import select_n as choose_from
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import DTypeError, ShapeError

__all__ = [
    "add", "atan2", "bitwise_and", "bitwise_or", "bitwise_xor", "clamp", "complex", "div", "eq", "ge", "gt", "le",
    "lt", "max", "min", "mul", "mulhi", "ne", "nextafter", "pow", "rem", "select", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sub",
]

Function = Callable[..., Any]


def _binary(name: str, primitive: Primitive, doc: str) -> Function:
    def function(x: Any, y: Any) -> Any:
        return apply_elementwise(name, primitive, x, y)

    def equality(x: Any, y: Any) -> Any:
        if getattr(getattr(x, "dtype", None), "kind", "") == "V" and dtypes.is_key(x.dtype) and \
                dtypes.is_key(aval_of(y).dtype):
            return equal_keys(x, y) if primitive is comparison.eq_p else comparison.not_(equal_keys(x, y))
        return function(x, y)
    chosen = equality if primitive in (comparison.eq_p, comparison.ne_p) else function
    return document_function(chosen, name, doc, "Dtypes and shapes must be equal, or one operand a number or a scalar.")


# --- two operands -------------------------------------------------------------------------------------------------

add = _binary("add", add_p, """Return the sum.
>>> float(add(1.0, 2.0))
3.0""")
sub = _binary("sub", arithmetic.sub_p, """Return the difference.
>>> float(sub(1.0, 2.0))
-1.0""")
div = _binary("div", arithmetic.div_p, """Return the quotient, of integers toward zero.
>>> int(div(-7, 2))
-3""")
rem = _binary("rem", arithmetic.rem_p, """Return the remainder of that division; its sign is that of x.
>>> int(rem(-7, 2))
-1""")
max = _binary("max", arithmetic.max_p, """Return the greater one.
>>> float(max(1.0, 2.0))
2.0""")
min = _binary("min", arithmetic.min_p, """Return the lesser one.
>>> float(min(1.0, 2.0))
1.0""")
atan2 = _binary("atan2", trigonometric.atan2_p, """Return the angle of the point with abscissa y and ordinate x.
>>> float(atan2(0.0, 1.0))
0.0""")
mulhi = _binary("mulhi", arithmetic.mulhi_p, """Return the upper half of the bits of the product of integers.
>>> int(mulhi(2**62, 8))
2""")
eq = _binary("eq", comparison.eq_p, """Return whether x equals y.
>>> bool(eq(1.0, 2.0))
False""")
ne = _binary("ne", comparison.ne_p, """Return whether x differs from y.
>>> bool(ne(1.0, 2.0))
True""")
lt = _binary("lt", comparison.lt_p, """Return whether x is less than y.
>>> bool(lt(1.0, 2.0))
True""")
le = _binary("le", comparison.le_p, """Return whether x is not greater than y.
>>> bool(le(1.0, 2.0))
True""")
gt = _binary("gt", comparison.gt_p, """Return whether x is greater than y.
>>> bool(gt(1.0, 2.0))
False""")
ge = _binary("ge", comparison.ge_p, """Return whether x is not less than y.
>>> bool(ge(1.0, 2.0))
False""")
bitwise_and = _binary("bitwise_and", comparison.and_p, """Return bits that are 1 in both.
>>> int(bitwise_and(6, 3))
2""")
bitwise_or = _binary("bitwise_or", comparison.or_p, """Return bits that are 1 in either.
>>> int(bitwise_or(6, 3))
7""")
bitwise_xor = _binary("bitwise_xor", comparison.xor_p, """Return bits that are 1 in one only.
>>> int(bitwise_xor(6, 3))
5""")
shift_left = _binary("shift_left", comparison.shift_left_p, """Return the bits of x moved up by y.
>>> int(shift_left(3, 2))
12""")
shift_right_arithmetic = _binary(
    "shift_right_arithmetic", comparison.shift_right_arithmetic_p, """Return the bits of x moved down by y, sign kept.
>>> int(shift_right_arithmetic(-8, 1))
-4""")
shift_right_logical = _binary(
    "shift_right_logical", comparison.shift_right_logical_p, """Return the bits of x moved down by y, with zeros.
>>> int(shift_right_logical(8, 1))
4""")


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    """Return the product; operands have one dtype and shape, or one is a number or a scalar.

    Raises `DTypeError`, `ShapeError`.

    With `out_dtype` the operands are converted to it first.

    >>> float(mul(2.0, 3.0))
    6.0
    """
    wanted = as_dtype_or_none(out_dtype)
    if wanted is not None:
        x, y = (convert(require_array("mul", value), wanted) for value in (x, y))
    return apply_elementwise("mul", arithmetic.mul_p, x, y)


def pow(x: Any, y: Any) -> Any:
    """Return `x` to the power `y`: x is inexact, y of the same dtype or an integer. Raises `DTypeError`, `ShapeError`.

    >>> float(pow(2.0, 3.0)), float(pow(2.0, 3))
    (8.0, 8.0)
    """
    x, y = require_array("pow", x), require_array("pow", y)
    if dtypes.is_integer(aval_of(y).dtype):
        check_kind("pow", "inexact", aval_of(x))
        y = convert(y, aval_of(x).dtype, aval_of(x).weak)
    return apply_elementwise("pow", exponential.pow_p, x, y)


def complex(x: Any, y: Any) -> Any:
    """Return the complex number x + i y, of float32 or float64. Raises `DTypeError`, `ShapeError`.

    >>> bool(complex(1.0, 2.0) == 1 + 2j)
    True
    """
    return apply_elementwise("complex", complex_p, x, y)


def nextafter(x1: Any, x2: Any) -> Any:
    """Return the float next to `x1` in the direction of `x2`. Raises `DTypeError`, `ShapeError`.

    >>> import numpy as np
    >>> bool(nextafter(np.float32(1.0), np.float32(2.0)) > 1)
    True
    """
    return apply_elementwise("nextafter", nextafter_p, x1, x2)


# --- choosing -----------------------------------------------------------------------------------------------------


def clamp(min: Any, x: Any, max: Any) -> Any:
    """Return `x` clipped to bounds, each a scalar or of the shape of x. Raises `DTypeError`, `ShapeError`.

    >>> import numpy as np
    >>> clamp(0.0, np.array([-1.0, 0.5, 2.0]), 1.0)
    array([0. , 0.5, 1. ])
    """
    low, value, high = unify_dtypes("clamp", min, x, max)
    for bound in (low, high):
        if shape_of(bound) not in ((), shape_of(value)):
            raise ShapeError(at_user_line(f"clamp: a bound of shape {shape_of(bound)} for an array of shape "
                                          f"{shape_of(value)}; a scalar or an equal shape is needed"))
    return apply_elementwise("clamp", clamp_p, low, value, high)


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """Return `on_true` where `pred` is true, else `on_false`.

    Both have one shape and dtype; `pred` has that shape or is a scalar. Raises `DTypeError`, `ShapeError`.

    >>> import numpy as np
    >>> select(np.array([True, False]), np.ones(2), np.zeros(2))
    array([1., 0.])
    """
    return _select("select", pred, on_false, on_true)


def select_n(which: Any, *cases: Any) -> Any:
    """Return elements of `cases[which]`: cases have one shape and dtype; `which`, bool or integer, that shape or none.

    Raises `DTypeError`, `ShapeError`, `ArgumentError`.

    >>> import numpy as np
    >>> select_n(np.array([1, 0]), np.zeros(2), np.ones(2))
    array([1., 0.])
    """
    return _select("select_n", which, *cases)


def _select(name: str, which: Any, *cases: Any) -> Any:
    which, read = require_array(name, which), unify_dtypes(name, *cases) if cases else []
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
    return choose_from(which, *read)
