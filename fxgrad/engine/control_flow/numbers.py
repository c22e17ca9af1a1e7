"""Numbers and arrays that converted code makes of traced ones by Python's types, NumPy's constructors and `math`."""

from __future__ import annotations

import copy
import enum
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, UnionType
from typing import Any

import numpy as np

from fxgrad import lax
from fxgrad import numpy as fnp
from fxgrad.engine import dtypes, tree
from fxgrad.engine.api.checking import check
from fxgrad.engine.control_flow.blocks import Thunk, is_caught, is_unknown, refuse
from fxgrad.engine.control_flow.containers import fresh
from fxgrad.engine.control_flow.slices import item
from fxgrad.engine.control_flow.structures import OptionalValue, UnknownLength, member_class, required
from fxgrad.engine.control_flow.variables import truth
from fxgrad.engine.control_flow.whole_numbers import OF_WHOLE_NUMBERS
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.numpy.number_methods import NUMBER_METHODS
from fxgrad.scipy import special


def _array(data: Any, *args: Any, **kwargs: Any) -> Any:
    """Return `numpy.array(data)`, of traced numbers too, in the dtype of NumPy's."""
    if isinstance(data, UnknownLength) and len(args) < 2 and kwargs.keys() <= {"dtype"}:
        dtype = args[0] if args else kwargs.get("dtype")
        return data.copy() if dtype is None else data.astype(dtype)
    if not _has_tracers(data) or kwargs.keys() - {"dtype", "copy", "order", "ndmin"} or len(args) > 1:
        return np.array(data, *args, **kwargs)
    array = _in_dtype(data, args[0] if args else kwargs.get("dtype"))
    if "ndmin" in kwargs:
        array = fnp.array(array, copy=False, ndmin=kwargs["ndmin"])
    return copy.copy(array) if kwargs.get("copy", True) else array


def divided(word: str, one: Any, other: Any) -> Any:
    """Return a quotient or remainder in a `try`, which may catch what Python raises for 0."""
    if all(type(each) in (int, float) or (type(each) is Tracer and each.aval.weak) for each in (one, other)):
        _check_caught("a division", [ZeroDivisionError], [other], lambda: fnp.not_equal(other, 0))
    elif np.geterr()["divide"] == "raise":
        _check_caught("a division", [FloatingPointError], [other], lambda: fnp.all(fnp.not_equal(other, 0)))
    return getattr(operator, word)(one, other)


def _check_caught(shown: str, raised: Sequence[type[Exception]], operands: Sequence[Any], is_fine: Thunk) -> None:
    """Add a check that Python would not raise for traced operands, if a `try` around the running code catches that."""
    found = [kind.__name__ for kind in raised if is_caught(kind)]
    if found and any(map(is_unknown, operands)):
        check(is_fine(), f"Python raises {' or '.join(found)} in {shown} for this number, which a `try` catches; what "
                         "is compiled goes to no `except`. Write an `if` in the place of the `try`")


def _asarray(function: Callable[..., Any], data: Any, *args: Any, **kwargs: Any) -> Any:
    """Return `numpy.asarray(data)`, or what a function like it returns: a traced array itself, if the dtype is its."""
    if isinstance(data, UnknownLength) and len(args) < 2 and kwargs.keys() <= {"dtype"}:
        dtype = args[0] if args else kwargs.get("dtype")
        return data if dtype in (None, data.dtype) else data.astype(dtype)
    if not _has_tracers(data) or kwargs.keys() - {"dtype", "copy", "order"} or len(args) > 1:
        return function(data, *args, **kwargs)
    array = _in_dtype(data, args[0] if args else kwargs.get("dtype"))
    if function is np.ascontiguousarray:
        array = fnp.atleast_1d(array)
    return copy.copy(array) if kwargs.get("copy") else array


def _in_dtype(data: Any, dtype: Any) -> Any:
    """Return an array, or a container of traced numbers, as an array; without a dtype in that of NumPy's."""
    if dtype is None:
        dtype = np.result_type(*[aval_of(value).dtype for value in tree.leaves(data)])
    if type(data) is Tracer and not data.weak_type and data.dtype == np.dtype(dtype):
        return data
    return fnp.asarray(data, dtype=dtype)


def _full(shape: Any, fill_value: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """Return `numpy.full(shape, fill_value)`, for a traced value too."""
    if type(fill_value) is not Tracer or kwargs:
        return np.full(shape, fill_value, dtype, **kwargs)
    return copy.copy(fnp.full(shape, fill_value, aval_of(fill_value).dtype if dtype is None else dtype))


def _has_tracers(data: Any) -> bool:
    return any(type(value) is Tracer for value in tree.leaves(data))


def numpy_number(kind: type, *args: Any) -> Any:
    """Return `kind(x)` for a type of numbers of NumPy's, for a traced scalar too."""
    if len(args) == 1 and type(args[0]) is Tracer and not args[0].shape and (
            dtypes.kind_of(args[0].dtype) != "c" or issubclass(kind, np.complexfloating)):
        return convert(args[0], np.dtype(kind))
    return kind(*args)


def _int(*args: Any, **kwargs: Any) -> Any:
    args = (*map(required, args),)
    if len(args) == 1 and not kwargs and is_unknown(args[0]) and dtypes.kind_of(args[0].dtype) in "biuf":
        return as_int(args[0])
    return int(*args, **kwargs)


def _float(*args: Any, **kwargs: Any) -> Any:
    args = (*map(required, args),)
    if len(args) == 1 and not kwargs and type(args[0]) is Tracer and dtypes.kind_of(args[0].dtype) in "biuf" and (
            args[0].size == 1):
        return _as_float(fnp.reshape(args[0], ()))
    return float(*args, **kwargs)


def as_int(value: Any) -> Any:
    """Return a traced value as a number of Python's, which gives way to the dtypes of arrays."""
    whole = fnp.trunc(value) if dtypes.kind_of(value.dtype) == "f" else value
    return convert(whole, dtypes.int64, weak=True)


def _as_float(value: Any) -> Any:
    """Return the same with all digits of Python's floats."""
    return convert(value, dtypes.float64, weak=True)


def _as_number(value: Any) -> Any:
    """Return a traced array as one of Python's numbers of its kind."""
    of_kind = {"b": lambda each: each, "f": _as_float, "c": _as_complex}.get(dtypes.kind_of(value.dtype), as_int)
    return of_kind(value)


def _to_list(array: Tracer) -> Any:
    """Return `x.tolist()`: nested lists of traced numbers."""
    return _rows_of(_as_number(array))


def _rows_of(array: Any) -> Any:
    return fresh([_rows_of(each) for each in fnp.unstack(array)]) if array.shape else array


def _item(array: Tracer, *index: Any) -> Any:
    """Return `x.item()`, or the number at an index: of the elements in their order, or of each axis."""
    if not index and array.size != 1:
        raise ValueError("can only convert an array of size 1 to a Python scalar")
    if not index or (len(index) == 1 and not isinstance(index[0], tuple)):
        return _as_number(item(fnp.ravel(array), *(index or (0,))))
    return _as_number(item(array, index[0] if len(index) == 1 else index))


def _rounded(number: Any, ndigits: Any = None) -> Any:
    """Return `round(number, ndigits)`, of a traced number of digits too."""
    number = required(number)
    if type(ndigits) is not Tracer:
        return round(number, ndigits)
    scale = 10.0 ** fnp.abs(ndigits)
    found = fnp.where(fnp.less(ndigits, 0), fnp.rint(number / scale) * scale, fnp.rint(number * scale) / scale)
    return as_int(found) if is_instance(number, int) else found


def _bool(*args: Any, **kwargs: Any) -> Any:
    return truth(args[0], "bool") if len(args) == 1 and not kwargs and is_unknown(args[0]) else bool(*args, **kwargs)


def _as_complex(value: Any) -> Any:
    """Return the same as a complex number of Python's."""
    return convert(value, dtypes.complex128, weak=True)


def _complex(*args: Any, **kwargs: Any) -> Any:
    args = (*map(required, args),)
    if len(args) == 1 and not kwargs and type(args[0]) is Tracer and args[0].dtype.kind == "c":
        return _as_complex(args[0])
    parts = [*args, 0.0] if len(args) == 1 else args
    if kwargs or len(parts) != 2 or not any(type(each) is Tracer for each in parts) or any(
            dtypes.kind_of(aval_of(each).dtype) not in "biuf" for each in parts if type(each) is Tracer):
        return complex(*args, **kwargs)
    real, imaginary = (convert(each, dtypes.float64) for each in parts)
    return convert(lax.complex(real, imaginary), dtypes.complex128, weak=True)


def is_instance(value: Any, kinds: Any) -> bool:
    """Return `isinstance(value, kinds)`, for a traced value of the type that it has in Python and NumPy."""
    if type(value) is OptionalValue:
        value.refused()
    if (chosen := member_class(value)) is not None:
        return issubclass(chosen, kinds)
    if type(value) is not Tracer:
        return isinstance(value, kinds)
    kind, each_kind = _type_of(value), [*_each_kind(kinds)]
    if any(_is_of(value, kind, each) for each in each_kind):
        return True
    if kind is int and any(isinstance(each, enum.EnumType) for each in each_kind):
        raise refuse("isinstance() asks for a member of an enumeration, and of a traced one only the number is known. "
                     "Compare it with the members")
    return False


def _each_kind(kinds: Any) -> Iterator[Any]:
    """Yield the types that `isinstance` takes."""
    if type(kinds) in (tuple, UnionType):
        for each in kinds if type(kinds) is tuple else kinds.__args__:
            yield from _each_kind(each)
    else:
        yield kinds


def _is_of(value: Tracer, kind: type, wanted: Any) -> bool:
    """Return whether a traced value is of a type, or the value of type `kind` that it stands for."""
    if getattr(wanted, "__module__", None) not in _PROTOCOLS and isinstance(value, wanted):
        return True
    try:
        return issubclass(kind, wanted)
    except TypeError:
        return False


def has_attribute(value: Any, name: str) -> bool:
    """Return `hasattr(value, name)`: a traced number has no `__len__`, as that which it stands for."""
    if type(value) is Tracer and isinstance(name, str) and (name.startswith("__") or name in NUMBER_METHODS):
        kind = _type_of(value)
        if not issubclass(kind, np.ndarray):
            return hasattr(kind, name)
    return hasattr(value, name)


def _is_scalar(value: Any) -> Any:
    """Return `numpy.isscalar(value)`, for a traced number too."""
    return np.isscalar(value) or (type(value) is Tracer and not issubclass(_type_of(value), np.ndarray))


def _type_of(*args: Any, **kwargs: Any) -> Any:
    """Return `type(x)`, for a traced value the type that it has in Python and NumPy."""
    if len(args) == 1 and type(args[0]) is OptionalValue:
        args[0].refused()
    if len(args) == 1 and (chosen := member_class(args[0])) is not None:
        return chosen
    if len(args) != 1 or type(args[0]) is not Tracer:
        return type(*args, **kwargs)
    aval = args[0].aval
    if aval.weak:
        return {"b": bool, "f": float, "c": complex}.get(dtypes.kind_of(aval.dtype), int)
    return np.ndarray if aval.shape else aval.dtype.type


def function_of_math(function: BuiltinFunctionType) -> Any:
    """Return a function of `math` or `cmath` that takes traced numbers: the one of its name in fxgrad's libraries."""
    name = {"fabs": "abs", "pow": "power", "atan2": "arctan2", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
            "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "phase": "angle"}.get(
                function.__name__, function.__name__)
    whole = name in ("floor", "ceil", "trunc")
    raised = [kind for kind, names in _RAISED.items() if name in names]
    as_operand = as_int if name in ("gcd", "lcm") else _as_float if function.__module__ == "math" else _as_complex

    def call(*args: Any) -> Any:
        args = (*map(required, args),)
        if not any(type(arg) is Tracer for arg in args):
            return function(*args)
        if name == "log" and len(args) == 2:
            return call(args[0]) / call(args[1])
        if name in _OF_NONE and len(args) != 2:
            return functools.reduce(call, args, _OF_NONE[name])
        operands = [arg if type(arg) is not Tracer else as_int(arg) if number and name == "ldexp" else as_operand(arg)
                    for number, arg in enumerate(args)]
        found = _library_function(name)(*operands)
        _check_caught(f"{function.__module__}.{function.__name__}()", raised, args, lambda: fnp.isfinite(
            found) | ~functools.reduce(fnp.logical_and, map(fnp.isfinite, operands)))
        if name == "frexp":
            return found[0], as_int(found[1])
        return as_int(found) if whole else found
    return call if name in _MATH or name in _SPECIAL else function


def _is_close(a: Any, b: Any, *, rel_tol: Any = 1e-09, abs_tol: Any = 0.0) -> Any:
    """Return `math.isclose` of traced numbers too."""
    if not any(type(each) is Tracer for each in (a, b, rel_tol, abs_tol)):
        return math.isclose(a, b, rel_tol=rel_tol, abs_tol=abs_tol)
    a, b, rel_tol, abs_tol = (_as_float(each) if type(each) is Tracer else each for each in (a, b, rel_tol, abs_tol))
    bound = fnp.maximum(rel_tol * fnp.maximum(abs(a), abs(b)), abs_tol)
    return (a == b) | (fnp.isfinite(a) & fnp.isfinite(b) & (abs(a - b) <= bound))


def _sum(items: Any) -> Any:
    """Return `math.fsum(items)`, of traced numbers too, with the rounding of sums."""
    items = items if isinstance(items, list | tuple | np.ndarray | Tracer) else [*items]
    return _as_float(fnp.sum(fnp.asarray(items, dtypes.float64))) if _has_tracers(items) else math.fsum(items)


def _distance(p: Any, q: Any) -> Any:
    """Return `math.dist(p, q)` of traced points too."""
    if not (_has_tracers(p) or _has_tracers(q)):
        return math.dist(p, q)
    one, other = (fnp.asarray(each, dtypes.float64) for each in (p, q))
    return function_of_math(math.hypot)(*fnp.unstack(one - other))  # type: ignore[arg-type]


def _numbered_elements(array: Any) -> Any:
    """Return `np.ndenumerate(x)`, of a traced array too."""
    is_traced = type(array) is Tracer
    return [(place, item(array, place)) for place in np.ndindex(array.shape)] if is_traced else np.ndenumerate(array)


def _library_function(name: str) -> Callable[..., Any]:
    if name == "remainder":
        return _nearest_remainder
    return getattr(special, _SPECIAL[name]) if name in _SPECIAL else getattr(fnp, name)


def _nearest_remainder(x: Any, y: Any) -> Any:
    """Return x - n y for the whole number n nearest to x / y, the even one of two: the remainder of IEEE 754."""
    part = fnp.fmod(fnp.abs(x), fnp.abs(y))  # exact, as the steps below are
    rest = fnp.abs(y) - part
    is_odd = fnp.fmod(fnp.abs(x) - part, 2 * fnp.abs(y)) != 0
    nearest = fnp.where((part > rest) | ((part == rest) & is_odd), -rest, part)
    return fnp.where(fnp.signbit(x), -nearest, nearest)


_PROTOCOLS = ("collections.abc", "typing")
"""Modules of types that have what has certain methods; traced numbers have those of arrays too."""
_MATH = {"sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos", "arctan",
         "arctan2", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "abs", "power", "hypot", "copysign",
         "floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "degrees", "radians", "fmod", "remainder", "cbrt",
         "exp2", "angle", "gcd", "lcm", "frexp", "ldexp", "modf", "nextafter"}
_RAISED: dict[type[Exception], set[str]] = {
    ValueError: {"sqrt", "log", "log2", "log10", "log1p", "arcsin", "arccos", "arccosh", "arctanh", "power", "fmod",
                 "remainder", "gamma", "lgamma"},
    OverflowError: {"exp", "exp2", "expm1", "sinh", "cosh", "power", "ldexp", "gamma", "lgamma"}}
"""What functions of `math` raise for some numbers, with the names that they have in fxgrad.numpy."""
_OF_NONE: dict[str, Any] = {"hypot": 0.0, "gcd": 0, "lcm": 1}
"""What functions of `math` of any number of arguments return for none."""
_SPECIAL = {"erf": "erf", "erfc": "erfc", "gamma": "gamma", "lgamma": "gammaln"}
"""Functions of `math`, with the names that they have in fxgrad.scipy.special."""
TYPES: dict[Any, Callable[..., Any]] = {
    int: _int, float: _float, bool: _bool, complex: _complex, type: _type_of, np.ndenumerate: _numbered_elements}
"""What converted code calls in the place of types of Python's and NumPy's."""
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    hasattr: has_attribute, round: _rounded, Tracer.tolist: _to_list, Tracer.item: _item, math.isclose: _is_close,
    math.fsum: _sum, math.dist: _distance, **OF_WHOLE_NUMBERS,
    np.array: _array, np.full: _full, np.isscalar: _is_scalar,
    **{each: functools.partial(_asarray, each) for each in (np.asarray, np.asanyarray, np.ascontiguousarray)}}
"""What it calls in the place of functions."""
