"""`Array`: NumPy's array as code in jax's idiom meets it; its methods come from `fxgrad.numpy.arrays`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Array(np.ndarray):
    """NumPy's array with what code in jax's idiom expects: traced indices, `x.at[i]`, jax's promotion, no changes.

    The functions of `fxgrad.numpy`, `fxgrad.random` and their kin return it where they compute on NumPy's arrays, for
    results of shape () too: those are strong, where NumPy's scalars give way to other dtypes. Nobody can write to such
    a result: `x[0] = 1.0` is refused, and `x += y` makes a new array; `x.copy()` is one to write to. Functions get
    the class also in the places of NumPy's arrays in which they are not differentiated and over which they are not
    mapped; there it shares its memory with the caller's array, and can be written to as that can.

    Operators promote as jax does: int32 with float32 is float32, int32 / int32 too. Only with one of NumPy's scalars
    on the left they are NumPy's, which asks nobody there: `np.float64(2.0) * x` is float64. NumPy and all that is built
    on it take the class for one of theirs, and `np.sum(x)` and `x.sum()` mean NumPy's.

    >>> import numpy as np, fxgrad, fxgrad.numpy as fnp
    >>> table, places = np.array([1.0, 2.0, 3.0]), np.array([2, 0])
    >>> fxgrad.vmap(lambda table, i: table[i], in_axes=(None, 0))(table, places)
    array([3., 1.])
    >>> fxgrad.grad(lambda w, x: np.sum(w * x.at[0].set(5.0)))(np.ones(3), table)
    array([5., 2., 3.])
    >>> fnp.arange(3) / np.float32([1.0, 2.0, 4.0])
    array([0. , 0.5, 0.5], dtype=float32)
    """

    def __repr__(self) -> str:
        return repr(np.asarray(self))


ARRAYS = frozenset({np.ndarray, Array})
"""The classes of arrays that all here compute with; others are looked at more closely."""


def handed(value: Any) -> Any:
    """What code in jax's idiom gets of NumPy's array: the same as an `Array`; anything else as it is."""
    return value.view(Array) if type(value) is np.ndarray else value


def made(value: Any, operands: Sequence[Any] = ()) -> Any:
    """What a kernel made of NumPy's `operands`, as an `Array` that cannot be written to, of shape () too.

    Where nobody else has its memory, what captures it later need not copy it.
    """
    kind = type(value)
    if kind is np.ndarray:
        if value.base is None and not any(value is operand for operand in operands):
            value.setflags(write=False)
            return value.view(Array)
    elif kind is np.void or not isinstance(value, np.generic):
        return value
    else:
        value = np.asarray(value)
    array = value.view(Array)
    array.setflags(write=False)
    return array


def scalar(value: Any) -> Any:
    """NumPy's array of shape () as NumPy's scalar; all else as it is."""
    return value[()] if type(value) is np.ndarray and not value.shape else value


def making(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which makes an array in other ways than by primitives, with it handed on as an `Array`."""
    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        return made(result, [result])  # which may be a caller's: to that one can write as before
    return wrapper


def returned(value: Any) -> Any:
    """What comes back of a function, as NumPy's array again."""
    return value.view(np.ndarray) if type(value) is Array else value
