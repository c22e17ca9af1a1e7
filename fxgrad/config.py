"""Settings of the library: the default float dtype, the level of checking, the size of the tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

_default_float: ContextVar[np.dtype[Any]] = ContextVar("default_float", default=np.dtype(np.float32))

check_level: int = int(os.environ.get("FXGRAD_CHECK", "0"))
"""0: no checks; 1: every finished program; 2: also every value a NumPy rule returns; 3: also text round-trips."""

interning_limit: int = 200_000
"""Recorded operations kept for recognition before the table of programs is emptied."""


default_float: Callable[[], np.dtype[Any]] = _default_float.get  # no function of ours: every jitted call asks
"""The dtype of a Python float that meets no array: float32 unless `default_dtype` says otherwise."""


def set_default_dtype(dtype: Any) -> None:
    """Sets the dtype of Python floats that meet no array, for this context (thread, task) and those begun from it.

    >>> import fxgrad
    >>> fxgrad.set_default_dtype("float32")

    Raises `ValueError` if `dtype` is not a real floating dtype.
    """
    _default_float.set(_checked(dtype))


@contextmanager
def default_dtype(dtype: Any) -> Iterator[None]:
    """Within the block, Python floats that meet no array are of `dtype`.

    >>> import fxgrad
    >>> with fxgrad.default_dtype("float64"):
    ...     print(fxgrad.grad(lambda x: x * x)(3.0).dtype)
    float64
    """
    token = _default_float.set(_checked(dtype))
    try:
        yield
    finally:
        _default_float.reset(token)


def _checked(dtype: Any) -> np.dtype[Any]:
    result: np.dtype[Any] = np.dtype(dtype)
    if result.name not in ("float16", "bfloat16", "float32", "float64"):
        raise ValueError(f"the default dtype must be a real floating dtype, got {result.name}; "
                         'write for example "float32" or "float64"')
    return result
