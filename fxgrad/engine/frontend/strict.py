"""Operands as `jax.lax` takes them: of one dtype and one shape, but for Python's numbers and for scalars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.arrays import Integer
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.core.primitive import Primitive, infer_types
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.operands import as_array, axis_number, shape_of, sizes_of, whole
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError


def array_of(name: str, value: Any) -> Any:
    """`value` as an array or a tracer; raises `ArgumentError` for lists, which no function of lax converts."""
    if isinstance(value, list | tuple):
        raise ArgumentError(at_user_line(f"{name}: an operand is a {type(value).__name__}, where an array or a number "
                                         "is needed. Write fxgrad.numpy.asarray(values)"))
    return as_array(value)


def of_one_dtype(name: str, *values: Any) -> list[Any]:
    """The operands; those of weak type (Python's numbers) in the dtype of the others, if it is of their kind.

    Raises `DTypeError` if dtypes differ, as nothing is promoted here.
    """
    read = [array_of(name, value) for value in values]
    avals = [aval_of(value) for value in values]  # a Python number is weak, and NumPy's, that it is read as, is not
    if all(aval.dtype == avals[0].dtype and aval.weak == avals[0].weak for aval in avals):
        return read
    strong = [aval.dtype for aval in avals if not aval.weak]
    common = strong[0] if strong else max((aval.dtype for aval in avals), key=lambda dtype: dtype.itemsize)
    if any(aval.dtype != common and not (aval.weak and kind_of(aval.dtype) == kind_of(common)) for aval in avals):
        shown = " and ".join(f"{aval.dtype.name}{' (weak)' if aval.weak else ''}" for aval in avals)
        raise DTypeError(at_user_line(
            f"{name}: dtypes {shown}, where equal ones are needed: the functions of fxgrad.lax do not promote. "
            "Convert one with x.astype(...), or call the function of fxgrad.numpy, which promotes"))
    return [in_dtype(name, value, common, not strong) for value in read]


def kind_of(dtype: DType) -> str:
    """`i` for all integers, `f` for all floats, `c` and `b`: what a Python number must share with an array."""
    return dtypes.kind_of(dtype).replace("u", "i")


def in_dtype(name: str, value: Any, dtype: DType, weak: bool = False) -> Any:
    """A weak operand in another dtype of its kind; raises `DTypeError` for an integer that does not fit."""
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
    """Raises `ShapeError` unless the operands are scalars, or of one rank with sizes that are equal or 1."""
    shapes = {shape_of(value) for value in values} - {()}
    if len(shapes) < 2:
        return
    sizes = [set(column) - {1} for column in zip(*shapes, strict=False)]
    if len({len(shape) for shape in shapes}) > 1 or any(len(found) > 1 for found in sizes):
        shown = " and ".join(str(shape_of(value)) for value in values)
        raise ShapeError(at_user_line(
            f"{name}: shapes {shown}; the functions of fxgrad.lax need scalars, or arrays of one rank whose sizes are "
            "equal or 1. Insert axes with lax.expand_dims, or call the function of fxgrad.numpy, which broadcasts"))


def applied(name: str, primitive: Primitive, *values: Any, **params: Any) -> Any:
    """The one output of an elementwise primitive; its operands are taken as `jax.lax` takes them."""
    if len(values) == 1:
        read = [array_of(name, values[0])]
    else:
        read = of_one_dtype(name, *values)
        check_shapes(name, read)
    check(primitive, *read, **params)
    return bind(primitive, *read, **params)[0]


def check(primitive: Primitive, *values: Any, **params: Any) -> None:
    """Raises what the abstract rule has to say: what is computed at once, by NumPy's kernels, is not held to it."""
    if not any(type(value) is Tracer for value in values):
        infer_types(primitive, [aval_of(value) for value in values], params)


def axis_of(name: str, axis: Any, rank: int, count: int | None = None) -> int:
    """An axis that may be counted from the end, as one from the front, of `count` (by default `rank`) axes."""
    number, count = axis_number(name, axis), rank if count is None else count
    if not -count <= number < count:
        raise ShapeError(at_user_line(f"{name}: axis {number} of an array with {rank} axes; an axis from {-count} to "
                                      f"{count - 1} is needed"))
    return number % count


def integers(name: str, values: Any) -> Shape:
    """A sequence of whole numbers as a tuple; raises `ArgumentError` for anything else."""
    try:
        return tuple(whole(name, entry) for entry in values)
    except TypeError:
        raise ArgumentError(at_user_line(f"{name}: a sequence of integers is needed, got {values!r}")) from None


def sizes(name: str, values: Any) -> Shape:
    """The sizes of a new array; raises `ShapeError` for negative ones."""
    return sizes_of(name, integers(name, values))


def wanted_dtype(dtype: Any) -> DType | None:
    """A dtype that a caller gave, or None."""
    return None if dtype is None else dtypes.canonical(dtype)




def refuse(name: str, **options: Any) -> None:
    """Raises `UnsupportedError` for options that are not None: they have no meaning here."""
    for option, value in options.items():
        if value is not None:
            raise UnsupportedError(at_user_line(f"{name}: {option}= is not supported; leave it out"))


def documented(function: Callable[..., Any], name: str, doc: str, rule: str) -> Callable[..., Any]:
    """A function that was made for a table, with its name and what its entry says; `rule` says what all share."""
    function.__name__ = function.__qualname__ = name
    first, *example = doc.split("\n")
    function.__doc__ = "\n".join([f"{first} {rule} Raises `DTypeError`, `ShapeError`.", "", *example, ""])
    return function
