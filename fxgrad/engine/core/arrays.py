"""`Array`: NumPy's array as code in jax's idiom meets it; its methods come from `fxgrad.numpy.arrays`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine.pytorch_names import add_hint_attributes


@add_hint_attributes
class Array(np.ndarray):
    """NumPy's array with what code in jax's idiom expects: traced indices, `x.at[i]`, jax's promotion, no changes.

    The functions of `fxgrad.numpy`, `fxgrad.random` and their kin return it where they compute on NumPy's arrays, for
    results of shape () too: those are strong, where NumPy's scalars give way to other dtypes. Nobody can write to such
    a result: `x[0] = 1.0` is refused, and `x += y` makes a new array; `x.copy()` is one to write to. Functions get
    the class also in the places of NumPy's arrays in which they are not differentiated and over which they are not
    mapped; there it shares its memory with the caller's array, and can be written to as that can.

    Operators promote as jax does: int32 with float32 is float32, int32 / int32 too. NumPy and all that is built on it
    take the class for one of theirs, and `np.sum(x)` and `x.sum()` mean NumPy's.

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

    def __str__(self) -> str:
        return str(np.asarray(self))


class WeakArray(Array):
    """An `Array` whose dtype gives way to that of other arrays, as Python's numbers do.

    Operations on Python's numbers alone return it where the result has axes: `fnp.where(mask, 0.0, 1.0)`, or the
    batch of a number under `vmap`. Only `make_weak` makes one: what NumPy makes of it is a plain `Array`.

    >>> import numpy as np, fxgrad.numpy as fnp
    >>> chosen = fnp.where(np.array([True, False]), 0.1, 1.0)
    >>> chosen.dtype, (np.ones(2, np.float32) * chosen).dtype
    (dtype('float64'), dtype('float32'))
    """

    def __array_finalize__(self, _: Any) -> None:
        if type(self) is WeakArray:
            self.__class__ = Array  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return make_weak, (np.array(self),)


class Integer(int):
    """A Python int that a program computed: it has the attributes of an array of shape (), too.

    What Python computes with it are plain ints. Like every Python int it gives way to the dtype of arrays; NumPy's
    float64 and complex128 scalars do so by themselves.

    >>> import fxgrad
    >>> count = fxgrad.jit(lambda n: n + 1)(2)
    >>> count, count.dtype, count.shape, 0.5 ** count
    (3, dtype('int64'), (), 0.125)
    """

    __slots__ = ()
    dtype, shape, ndim, size, itemsize, nbytes = np.dtype(np.int64), (), 0, 1, 8, 8
    weak_type = True

    def item(self) -> int:
        """The number as a plain int."""
        return int(self)

    def astype(self, dtype: Any) -> Any:
        """NumPy's scalar of a dtype, which no longer gives way."""
        return np.asarray(int(self)).astype(dtype)[()]

    def block_until_ready(self) -> Integer:
        """The number itself: it is computed already."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Integer, (int(self),)


def make_weak(value: Any) -> Any:
    """Return a NumPy array or scalar as a weakly typed one: a number, or a `WeakArray` with axes."""
    if value.shape == () and value.dtype in _NUMBERS:
        return _NUMBERS[value.dtype](value[()])
    array = np.asarray(value).view(Array)
    array.__class__ = WeakArray
    return array


_NUMBERS = {np.dtype(np.int64): Integer, np.dtype(np.float64): np.float64, np.dtype(np.complex128): np.complex128}

ARRAYS = frozenset({np.ndarray, Array})
"""The classes of arrays that all here compute with; others are looked at more closely."""
OWN = frozenset({Array, WeakArray})
"""The classes of arrays that are fxgrad's own, with its rules of promotion."""
WEAK_CLASSES = frozenset({np.float64, np.complex128, Integer, WeakArray})
"""The classes beside Python's own numbers whose dtype gives way to that of arrays."""


def copy_of(value: Any) -> Any:
    """Return a copy of a NumPy array, weakly typed if the array is."""
    return make_weak(np.array(value)) if type(value) is WeakArray else np.array(value)


def wrap_array(value: Any) -> Any:
    """What code in jax's idiom gets of NumPy's array: the same as an `Array`; anything else as it is."""
    return value.view(Array) if type(value) is np.ndarray else value


def freeze_result(value: Any, operands: Sequence[Any] = ()) -> Any:
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


def as_scalar(value: Any) -> Any:
    """Return a NumPy array of shape () as a NumPy scalar; return anything else unchanged."""
    return value[()] if type(value) is np.ndarray and not value.shape else value


def returns_array(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that makes an array without primitives: its result becomes an `Array`."""
    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        return freeze_result(result, [result])  # which may be a caller's: to that one can write as before
    return wrapper


def as_numpy(value: Any) -> Any:
    """Return the result of a function as a NumPy array."""
    return value.view(np.ndarray) if type(value) in OWN else value
