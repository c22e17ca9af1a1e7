"""`Array`: NumPy's array with jax's idioms; its methods come from `fxgrad.numpy.arrays`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine.pytorch_names import HintAttribute, add_hint_attributes


@add_hint_attributes
class Array(np.ndarray):
    """A NumPy array with jax's idioms: traced indices, `x.at[i]`, jax's promotion, immutability.

    The functions of `fxgrad.numpy`, `fxgrad.random` and their kin return it for results computed on NumPy arrays, for
    results of shape () too: those are strong, while NumPy's scalars give way to other dtypes. Such a result is
    read-only: `x[0] = 1.0` is refused, and `x += y` makes a new array; `x.copy()` is writable. Functions also get this
    class for arguments that are neither differentiated nor mapped: NumPy's arrays, and those of jax's on the default
    CPU. There it shares its memory with the caller's array, and is writable if that is. Numbers computed from those do
    not change, as NumPy's scalars: `x += y` makes another one.

    Operators promote as jax does: int32 with float32 is float32, int32 / int32 too. It is a subclass of NumPy's array,
    so NumPy and its libraries accept it. Its methods, which NumPy's functions call, are those of traced arrays:
    `np.sum(x)` and `x.sum()` of integers are of 64 bits, as NumPy's.

    >>> import numpy as np, fxgrad, fxgrad.numpy as fnp
    >>> table, places = np.array([1.0, 2.0, 3.0]), np.array([2, 0])
    >>> fxgrad.vmap(lambda table, i: table[i], in_axes=(None, 0))(table, places)
    array([3., 1.])
    >>> fxgrad.grad(lambda w, x: np.sum(w * x.at[0].set(5.0)))(np.ones(3), table)
    array([5., 2., 3.])
    >>> fnp.arange(3) / np.float32([1.0, 2.0, 4.0])
    array([0. , 0.5, 0.5], dtype=float32)
    """

    origin: Any = None
    """The array of jax's whose memory this is, if `as_known` made it of one."""
    weak_type = False

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __str__(self) -> str:
        return str(np.asarray(self))


class WeakArray(Array):
    """A weakly typed `Array`: its dtype gives way to that of other arrays, as Python's numbers do.

    Operations on Python's numbers alone return it if the result has axes: `fnp.where(mask, 0.0, 1.0)`, or the batch of
    a number under `vmap`. Only `make_weak` creates one: NumPy's operations on it return a plain `Array`.

    >>> import numpy as np, fxgrad.numpy as fnp
    >>> chosen = fnp.where(np.array([True, False]), 0.1, 1.0)
    >>> chosen.dtype, (np.ones(2, np.float32) * chosen).dtype
    (dtype('float64'), dtype('float32'))
    """

    weak_type = True

    def __array_finalize__(self, _: Any) -> None:
        if type(self) is WeakArray:
            self.__class__ = Array  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return make_weak, (np.array(self),)


class Integer(int):
    """A Python int computed by a program; it also has the attributes of an array of shape ().

    Python's arithmetic on it returns plain ints. Like every Python int it gives way to the dtype of arrays; NumPy's
    float64 and complex128 scalars do so by themselves.

    >>> import fxgrad
    >>> count = fxgrad.jit(lambda n: n + 1)(2)
    >>> count, count.dtype, count.shape, 0.5 ** count
    (3, dtype('int64'), (), 0.125)
    """

    __slots__ = ()
    dtype, shape, ndim, size, itemsize, nbytes = np.dtype(np.int64), (), 0, 1, 8, 8
    weak_type = True

    def __getattr__(self, name: str) -> Any:
        """Return another attribute of NumPy's scalar, as `x.reshape`; results of its methods are strong."""
        if name.startswith("__") or not hasattr(np.int64, name):  # NumPy and jax know the class by protocols
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        return getattr(np.int64(self), name)

    def item(self) -> int:
        """Return the number as a plain int."""
        return int(self)

    def astype(self, dtype: Any) -> Any:
        """Return NumPy's scalar of a dtype, which is strong."""
        return np.asarray(int(self)).astype(dtype)[()]

    def block_until_ready(self) -> Integer:
        """Return the number itself: it is computed already."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Integer, (int(self),)


def make_weak(value: Any) -> Any:
    """Return a NumPy array or scalar as a weakly typed one: a number, or a `WeakArray` with axes."""
    if type(value) is np.float64:
        return value
    if value.shape == () and value.dtype in _NUMBERS:
        return _NUMBERS[value.dtype](value[()])
    array = np.asarray(value).view(Array)
    array.__class__ = WeakArray
    return array


_NUMBERS = {np.dtype(np.int64): Integer, np.dtype(np.float64): np.float64, np.dtype(np.complex128): np.complex128}

ARRAYS = frozenset({np.ndarray, Array})
"""The classes of arrays that need no further check."""
OWN = frozenset({Array, WeakArray})
"""fxgrad's own classes of arrays, with its rules of promotion."""
WEAK_CLASSES = frozenset({np.float64, np.complex128, Integer, WeakArray})
"""The weakly typed classes beside Python's own numbers."""


def copy_of(value: Any) -> Any:
    """Return a copy of a NumPy array, weakly typed if the array is."""
    return make_weak(np.array(value)) if type(value) is WeakArray else np.array(value)


def wrap_array(value: Any) -> Any:
    """Return NumPy's array as an `Array`; anything else unchanged."""
    return value.view(Array) if type(value) is np.ndarray else value


class _OriginAttribute(HintAttribute):
    """An attribute that jax's arrays alone have, such as `x.sharding`, if the memory is that of one."""

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return super().__get__(instance, owner)
        if instance.origin is None:  # without the user's line, whose search would make each `hasattr` slow
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}, which jax's arrays have: "
                                 f"this one is NumPy's. Write fxgrad.device_put(x).{self.name}", name=self.name)
        return getattr(instance.origin, self.name)


for _name in ("addressable_data", "addressable_shards", "committed", "copy_to_host_async", "delete", "format",
              "global_shards", "is_deleted", "is_fully_addressable", "is_fully_replicated", "is_ready",
              "on_device_size_in_bytes", "sharding", "unsafe_buffer_pointer"):
    setattr(Array, _name, _OriginAttribute(_name))


def origin_of(array: Any) -> Any:
    """Return the array of jax's that `as_known` made `array` of; `array` itself if it made none."""
    return array if type(array) is not Array or array.origin is None else array.origin


def freeze_result(value: Any, operands: Sequence[Any] = ()) -> Any:
    """Return a kernel's result on NumPy `operands` as a read-only `Array`, of shape () too.

    If no one else holds its memory, a later capture need not copy it.
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


def as_strong_scalar(value: Any) -> Any:
    """Return a strong NumPy array of shape () as a NumPy scalar, or as an `Array` where NumPy's scalar is weak."""
    number = as_scalar(value)
    return freeze_result(number) if type(number) in _WEAK_SCALARS else number


_WEAK_SCALARS = frozenset({np.float64, np.complex128})


def returns_array(function: Callable[..., Any], of_operands: bool = False) -> Callable[..., Any]:
    """Decorate a function that makes arrays without primitives: its result, or each of several, becomes an `Array`.

    One `of_operands` makes weakly typed results of these: they stay weak.
    """
    def own(result: Any) -> Any:
        if of_operands and type(result) in WEAK_CLASSES:
            return result
        return freeze_result(result, [result])  # it may be a caller's array, which stays writable

    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        kind = type(result)
        return kind(map(own, result)) if kind is tuple or kind is list else own(result)
    return wrapper


def as_numpy(value: Any) -> Any:
    """Return the result of a function as a NumPy array."""
    return value.view(np.ndarray) if type(value) in OWN else value
