"""`symbolic_spec`: the type of an argument without an array, with sizes that are numbers or names."""

from __future__ import annotations

import itertools
import operator
from typing import Any

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.sizes import SymbolicDim, named_size, parse_size
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError

_numbers = itertools.count(1)


def symbolic_spec(*shape: Any, dtype: Any = None, weak_type: bool = False) -> Any:
    """Return the type of an array as a `ShapeDtypeStruct`, for tracing, exporting and saving functions without data.

    `shape` is a size for each axis, or one tuple of sizes, followed by the dtype. A size is one of these: a whole
    number; a name, such as `"n"`, for any size from 1 on, the same in all specs; arithmetic of names, such as `"2*n"`,
    `"n + m - 1"`, `"floordiv(n, 2)"`, `"mod(n, 2)"`, `"max(n, 3)"`; None, a name that occurs nowhere else. The default
    dtype is float64, as that of Python's floats; `"f32"` and its like abbreviate `"float32"`.

    A program traced with names runs at every size without being retraced. Raises `ArgumentError` for all but sizes and
    dtypes.

    >>> import numpy as np, fxgrad
    >>> program = fxgrad.make_program(lambda x: np.mean(x, axis=0))(fxgrad.symbolic_spec("n", 3))
    >>> program.in_avals, program.out_avals
    ([f64[n,3]], [f64[3]])
    >>> program(np.ones((2, 3))), program(np.ones((5, 3)))
    (array([1., 1., 1.]), array([1., 1., 1.]))
    >>> fxgrad.symbolic_spec(("n", "2*n + 1", 4), "f32")
    ShapeDtypeStruct(shape=(n, 2*n+1, 4), dtype=float32)
    """
    sizes: Any = shape
    if shape and isinstance(shape[0], tuple | list):
        if len(shape) > 2 or (len(shape) == 2 and dtype is not None):
            raise ArgumentError(at_user_line(
                f"symbolic_spec: only the dtype may follow a tuple of sizes, got {shape[1:]!r}. Write "
                "fxgrad.symbolic_spec((\"n\", 3), \"f32\") or fxgrad.symbolic_spec(\"n\", 3, dtype=\"f32\")"))
        sizes, dtype = shape[0], shape[1] if len(shape) == 2 else dtype
    wanted = dtypes.float64 if dtype is None else _dtype(dtype)
    build: Any = tree.ShapeDtypeStruct
    return build(tuple(map(_size, sizes)), wanted, weak_type=weak_type)


def _dtype(dtype: Any) -> dtypes.DType:
    if isinstance(dtype, str) and (dtype in dtypes.SHORT_NAMES or dtype == dtypes.KEY_NAME):
        return dtypes.from_short_name(dtype)
    if not isinstance(dtype, str | type) and (dtypes.is_key(dtype) or dtypes.is_jax_key(dtype)):
        return dtypes.key_dtype
    return dtypes.canonical(dtype)


def _size(size: Any) -> Any:
    if type(size) is SymbolicDim:
        return size
    if size is None:
        return named_size(f"n_{next(_numbers)}")
    if isinstance(size, str):
        return _parse_sizes(size)
    try:
        number = operator.index(size)
    except TypeError:
        number = -1
    if number < 0 or isinstance(size, bool):
        raise ArgumentError(at_user_line(
            f"symbolic_spec: a size is a whole number from 0 on, a name such as \"n\", arithmetic of names such as "
            f"\"2*n\", or None for a size of its own; got {size!r}"))
    return number


def _parse_sizes(text: str) -> Any:
    is_dtype = text.strip() in dtypes.SHORT_NAMES or text.strip() in dtypes.SUPPORTED
    try:
        size = None if is_dtype else parse_size(text)
    except (ValueError, TypeError):
        size = None
    if size is None or (type(size) is int and size < 0) or not text.isascii():
        hint = " The dtype is given as dtype=, or after a tuple of sizes" if is_dtype else ""
        raise ArgumentError(at_user_line(
            f"symbolic_spec: {text!r} is no size: names, whole numbers, +, -, *, ^ and floordiv, mod, max, min of them "
            f"are read, as in \"2*n + 1\" or \"floordiv(n, 2)\".{hint}"))
    return size
