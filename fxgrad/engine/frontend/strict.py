"""Operands of `jax.lax` functions: of one dtype and one shape, except for Python's numbers and scalars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.arrays import Integer
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.core.primitive import Primitive, infer_types
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.operands import as_array_operand, as_axis_number, as_integer, as_new_shape, shape_of
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, FxgradError, ShapeError, UnsupportedError


def require_array(name: str, value: Any) -> Any:
    """Return `value` if it is an array or a tracer; raise `ArgumentError` for lists, which lax does not convert."""
    if isinstance(value, list | tuple):
        raise ArgumentError(at_user_line(f"{name}: an operand is a {type(value).__name__}, where an array or a number "
                                         "is needed. Write fxgrad.numpy.asarray(values)"))
    return as_array_operand(value)


def unify_dtypes(name: str, *values: Any) -> list[Any]:
    """Return the operands; weakly typed ones take the dtype of the others, if it is of their kind.

    Raises `DTypeError` if dtypes differ, as nothing is promoted here.
    """
    read = [require_array(name, value) for value in values]
    avals = [aval_of(value) for value in values]  # a Python number is weak; NumPy's scalar made from it is not
    if all(aval.dtype == avals[0].dtype and aval.weak == avals[0].weak for aval in avals):
        return read
    strong = [aval.dtype for aval in avals if not aval.weak]
    common = strong[0] if strong else max((aval.dtype for aval in avals), key=lambda dtype: dtype.itemsize)
    if any(aval.dtype != common and not (aval.weak and promotion_kind(aval.dtype) == promotion_kind(common))
           for aval in avals):
        shown = " and ".join(f"{aval.dtype.name}{' (weak)' if aval.weak else ''}" for aval in avals)
        raise DTypeError(at_user_line(
            f"{name}: dtypes {shown}, where equal ones are needed: the functions of fxgrad.lax do not promote. "
            "Convert one with x.astype(...), or call the function of fxgrad.numpy, which promotes"))
    return [cast_weak(name, value, common, not strong) for value in read]


def promotion_kind(dtype: DType) -> str:
    """Return the kind that a Python number must share with an array: `i`, `f`, `c` or `b`."""
    return dtypes.kind_of(dtype).replace("u", "i")


def cast_weak(name: str, value: Any, dtype: DType, weak: bool = False) -> Any:
    """Return a weak operand in another dtype of its kind; raise `DTypeError` for an integer that does not fit."""
    aval = aval_of(value)
    if aval.dtype == dtype and aval.weak == weak:
        return value
    if isinstance(value, np.generic | Integer):
        if dtypes.is_integer(dtype) and not dtypes.iinfo(dtype).min <= int(value) <= dtypes.iinfo(dtype).max:
            raise DTypeError(at_user_line(f"{name}: {int(value)} does not fit into {dtype.name}; convert the other "
                                          "operand with x.astype(...)"))
        return dtype.type(value)
    return convert(value, dtype, weak)


def check_shapes(name: str, values: Sequence[Any]) -> None:
    """Raise `ShapeError` unless the operands are scalars, or of one rank with sizes that are equal or 1."""
    shapes = {shape_of(value) for value in values} - {()}
    if len(shapes) < 2:
        return
    sizes = [set(column) - {1} for column in zip(*shapes, strict=False)]
    if len({len(shape) for shape in shapes}) > 1 or any(len(found) > 1 for found in sizes):
        shown = " and ".join(str(shape_of(value)) for value in values)
        raise ShapeError(at_user_line(
            f"{name}: shapes {shown}; the functions of fxgrad.lax need scalars, or arrays of one rank whose sizes are "
            "equal or 1. Insert axes with lax.expand_dims, or call the function of fxgrad.numpy, which broadcasts"))


def apply_elementwise(name: str, primitive: Primitive, *values: Any, **params: Any) -> Any:
    """Return the output of an elementwise primitive; its operands follow the rules of `jax.lax`."""
    if len(values) == 1:
        read = [require_array(name, values[0])]
    else:
        read = unify_dtypes(name, *values)
        check_shapes(name, read)
    check_operands(primitive, *read, **params)
    return bind(primitive, *read, **params)[0]


def check_operands(primitive: Primitive, *values: Any, **params: Any) -> None:
    """Raise the errors of the abstract rule for operands that NumPy's kernels would compute without them."""
    if not any(type(value) is Tracer for value in values):
        infer_types(primitive, [aval_of(value) for value in values], params)


def strict_axis_of(name: str, axis: Any, rank: int, count: int | None = None) -> int:
    """Return an axis counted from the front, of `count` (by default `rank`) axes."""
    number, count = as_axis_number(name, axis), rank if count is None else count
    if not -count <= number < count:
        raise ShapeError(at_user_line(f"{name}: axis {number} of an array with {rank} axes; an axis from {-count} to "
                                      f"{count - 1} is needed"))
    return number % count


def as_integers(name: str, values: Any) -> Shape:
    """Return a sequence of integers as a tuple; raise `ArgumentError` for anything else."""
    try:
        return tuple(as_integer(name, entry) for entry in values)
    except FxgradError:
        raise
    except TypeError:
        raise ArgumentError(at_user_line(f"{name}: a sequence of integers is needed, got {values!r}")) from None


def as_sizes(name: str, values: Any) -> Shape:
    """Return the sizes of a new array, given as one integer or several; raise `ShapeError` for negative ones."""
    return as_new_shape(name, values if isinstance(values, int | np.integer) else as_integers(name, values))


def as_dtype_or_none(dtype: Any) -> DType | None:
    """Return a dtype argument, or None."""
    return None if dtype is None else dtypes.canonical(dtype)




def refuse_options(name: str, **options: Any) -> None:
    """Raise `UnsupportedError` for options that are not None: they have no meaning here."""
    for option, value in options.items():
        if value is not None:
            raise UnsupportedError(at_user_line(f"{name}: {option}= is not supported; leave it out"))


def document_function(function: Callable[..., Any], name: str, doc: str, rule: str) -> Callable[..., Any]:
    """Return a function made for a table, with its name and its documentation; `rule` is shared by all."""
    function.__name__ = function.__qualname__ = name
    first, *example = doc.split("\n")
    function.__doc__ = "\n".join([f"{first} {rule} Raises `DTypeError`, `ShapeError`.", "", *example, ""])
    return function
