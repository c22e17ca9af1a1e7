"""Settings of the library: the default float dtype, the level of checking, the size of the tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

_everywhere: np.dtype[Any] = np.dtype(np.float32)
_here: ContextVar[np.dtype[Any] | None] = ContextVar("default_float", default=None)

check_level: int = int(os.environ.get("FXGRAD_CHECK", "0"))
"""0: no checks; 1: every finished program; 2: also every value a NumPy rule returns; 3: also text round-trips."""

interning_limit: int = 200_000
"""Recorded operations kept for recognition before the table of programs is emptied."""


traceback_filtering: bool = os.environ.get("FXGRAD_TRACEBACK_FILTERING", "on") != "off"
"""Whether fxgrad's own frames are left out of the tracebacks of errors."""


def default_float() -> np.dtype[Any]:
    """The dtype of arrays of floats that are made without one: float32 unless set otherwise."""
    here = _here.get()
    return _everywhere if here is None else here


def set_default_dtype(dtype: Any) -> None:
    """Sets the dtype of arrays of floats that are made without one, in all threads, those of later included.

    That is the dtype of `fxgrad.numpy.zeros(3)`, `fxgrad.random.normal(key)` and initialisers, and of floats made of
    integers of at most 32 bits. Python's floats are float64 whatever is set here. Within a block of `default_dtype`
    the block's stays in force.

    >>> import fxgrad
    >>> fxgrad.set_default_dtype("float32")

    Raises `ValueError` if `dtype` is not a real floating dtype.
    """
    global _everywhere
    _everywhere = _checked(dtype)


@contextmanager
def default_dtype(dtype: Any) -> Iterator[None]:
    """Within the block, arrays of floats that are made without a dtype are of `dtype`, in this thread or task alone.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> with fxgrad.default_dtype("float64"):
    ...     print(fnp.zeros(3).dtype)
    float64
    """
    token = _here.set(_checked(dtype))
    try:
        yield
    finally:
        _here.reset(token)


def _checked(dtype: Any) -> np.dtype[Any]:
    result: np.dtype[Any] = np.dtype(dtype)
    if result.name not in ("float16", "bfloat16", "float32", "float64"):
        raise ValueError(f"the default dtype must be a real floating dtype, got {result.name}; "
                         'write for example "float32" or "float64"')
    return result


def _switch(value: Any) -> bool:
    if value in (True, "on", "auto", "remove_frames", "tracebackhide", "quiet_remove_frames"):
        return True
    if value in (False, "off"):
        return False
    raise ValueError(f"a setting that is on or off was given {value!r}; write True or False")


def _set_filtering(value: Any) -> None:
    global traceback_filtering
    traceback_filtering = _switch(value)


def _set_checks(value: Any) -> None:
    global check_level
    check_level = int(value)


def _set_limit(value: Any) -> None:
    global interning_limit
    interning_limit = int(value)


_SETTINGS: dict[str, Callable[[Any], None]] = {
    "default_dtype": set_default_dtype,
    "traceback_filtering": _set_filtering,
    "check_level": _set_checks,
    "interning_limit": _set_limit,
    "enable_x64": lambda value: set_default_dtype("float64" if _switch(value) else "float32"),
}


def update(name: str, value: Any) -> None:
    """Changes a setting: `default_dtype`, `traceback_filtering`, `check_level` or `interning_limit`.

    jax's names are known where they mean something here: `jax_traceback_filtering`, and `jax_enable_x64`, which chooses
    the dtype of arrays made without one, since arrays keep theirs in any case. Raises `ValueError` for all others.

    >>> import fxgrad
    >>> fxgrad.config.update("traceback_filtering", "on")
    """
    change = _SETTINGS.get(name.removeprefix("jax_"))
    if change is None:
        raise ValueError(f"{name} is no setting of fxgrad; it has {', '.join(sorted(_SETTINGS))}. Those of XLA are set "
                         "with jax.config.update, and hold for fxgrad.jit")
    change(value)
