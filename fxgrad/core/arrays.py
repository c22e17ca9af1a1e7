"""`Array`: NumPy's array as code in jax's idiom meets it; its methods come from `fxgrad.numpy.arrays`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


class Array(np.ndarray):
    """NumPy's array that takes traced indices, `x[i]`, and has `x.at[i]` and what else code in jax's idiom expects.

    `fxgrad.numpy.arange` and the other functions that make arrays return it, and so do the samplers of `fxgrad.random`;
    what is computed of it is one too. Functions get it in the places of NumPy's arrays in which they are not
    differentiated and over which they are not mapped: there it shares its memory with the caller's array. NumPy and all
    that is built on it take it for one of theirs.

    >>> import numpy as np, fxgrad
    >>> table, places = np.array([1.0, 2.0, 3.0]), np.array([2, 0])
    >>> fxgrad.vmap(lambda table, i: table[i], in_axes=(None, 0))(table, places)
    array([3., 1.])
    >>> fxgrad.grad(lambda w, x: np.sum(w * x.at[0].set(5.0)))(np.ones(3), table)
    array([5., 2., 3.])
    """

    def __repr__(self) -> str:
        return repr(np.asarray(self))


ARRAYS = frozenset({np.ndarray, Array})
"""The classes of arrays that all here compute with; others are looked at more closely."""


def handed(value: Any) -> Any:
    """What code in jax's idiom gets of NumPy's array: the same as an `Array`; anything else as it is."""
    return value.view(Array) if type(value) is np.ndarray else value


def handing(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which makes an array, with it handed on as an `Array`."""
    @functools.wraps(function)
    def made(*args: Any, **options: Any) -> Any:
        return handed(function(*args, **options))
    return made


def returned(value: Any) -> Any:
    """What comes back of a function, as NumPy's array again."""
    return value.view(np.ndarray) if type(value) is Array else value
