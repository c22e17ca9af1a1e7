"""Settings of the library: the default float dtype, the level of checking, the size of the tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

_everywhere: np.dtype[Any] = np.dtype(np.float32)
_here: ContextVar[np.dtype[Any] | None] = ContextVar("default_float", default=None)

check_level: int = int(os.environ.get("FXGRAD_CHECK", "0"))
"""0: no checks; 1: every finished program, and every call of a library function that runs as generated code; 2: also
every value a NumPy rule returns; 3: also that new kinds of texts parse back to the same program; 4: the texts of every
program, and generated code of every library function from its second call on."""

interning_limit: int = 200_000
"""The maximal number of interned operations; beyond it the table of programs is cleared."""


traceback_filtering: bool = os.environ.get("FXGRAD_TRACEBACK_FILTERING", "on") != "off"
"""Whether to remove fxgrad's own frames from the tracebacks of errors."""


transparent: bool = os.environ.get("FXGRAD_TRANSPARENT", "off") != "off"
"""Whether un-jitted transformations skip functions that are shown to record the same program again."""
transparent_after: int = 1 if os.environ.get("FXGRAD_TRANSPARENT") == "at once" else 8
"""The call at which this is tried for a function that its user has not declared."""

executable_store: str | None = os.environ.get("FXGRAD_EXECUTABLE_STORE") or None
"""The folder in which jitted functions keep their executables for later processes; None for none."""
executable_store_bytes: int = 2**30
"""The bound of that folder: the executables that were not used for longest are removed."""
check_store: Callable[[str], Any] = os.fspath
"""Raises for a folder that cannot be used; entered by `fxgrad.engine.api.stored`."""


roll_repeats: bool = os.environ.get("FXGRAD_ROLL_REPEATS", "on") != "off"
"""Whether `jit` compiles repeated blocks of large programs once."""


def default_float() -> np.dtype[Any]:
    """Return the dtype of float arrays created without one: float32 unless set otherwise."""
    here = _here.get()
    return _everywhere if here is None else here


def set_default_dtype(dtype: Any) -> None:
    """Set the dtype of float arrays created without one, in all threads, later ones included.

    It is the dtype of `fxgrad.numpy.zeros(3)`, `fxgrad.random.normal(key)` and initialisers, and of floats made of
    integers of at most 32 bits. Python's floats stay float64. Within a block of `default_dtype` the block's dtype has
    priority.

    >>> import fxgrad
    >>> fxgrad.set_default_dtype("float32")

    Raises `ValueError` if `dtype` is not a real floating dtype.
    """
    global _everywhere
    _everywhere = _check_default_dtype(dtype)


@contextmanager
def default_dtype(dtype: Any) -> Iterator[None]:
    """Within the block, float arrays created without a dtype have `dtype`, in this thread or task alone.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> with fxgrad.default_dtype("float64"):
    ...     print(fnp.zeros(3).dtype)
    float64
    """
    token = _here.set(_check_default_dtype(dtype))
    try:
        yield
    finally:
        _here.reset(token)


def _check_default_dtype(dtype: Any) -> np.dtype[Any]:
    result: np.dtype[Any] = np.dtype(dtype)
    if result.name not in ("float16", "bfloat16", "float32", "float64"):
        raise ValueError(f"the default dtype must be a real floating dtype, got {result.name}; "
                         'write for example "float32" or "float64"')
    return result


def as_switch(value: Any) -> bool:
    """Return the value of an on-off setting as a bool; raise `ValueError` for anything else."""
    if value in (True, "on", "auto", "remove_frames", "tracebackhide", "quiet_remove_frames"):
        return True
    if value in (False, "off"):
        return False
    raise ValueError(f"a setting that is on or off was given {value!r}; write True or False")


def _set_filtering(value: Any) -> None:
    global traceback_filtering
    traceback_filtering = as_switch(value)


def _set_checks(value: Any) -> None:
    global check_level
    check_level = int(value)


def _set_limit(value: Any) -> None:
    global interning_limit
    interning_limit = int(value)


def _set_transparent(value: Any) -> None:
    global transparent
    transparent = as_switch(value)


def _set_executable_store(value: Any) -> None:
    global executable_store
    if value is not None and not isinstance(value, str | os.PathLike):
        raise ValueError(f"executable_store must be the path of a folder, or None, got {value!r}")
    path = None if value is None else os.fspath(value)
    if path is not None:
        check_store(path)
    executable_store = path


def _set_executable_store_bytes(value: Any) -> None:
    global executable_store_bytes
    executable_store_bytes = int(value)


def _set_roll_repeats(value: Any) -> None:
    global roll_repeats
    roll_repeats = as_switch(value)


class Setting(NamedTuple):
    """The functions that change a setting and read it."""

    change: Callable[[Any], None]
    read: Callable[[], Any]


_SETTINGS: dict[str, Setting] = {
    "default_dtype": Setting(set_default_dtype, lambda: default_float().name),
    "traceback_filtering": Setting(_set_filtering, lambda: traceback_filtering),
    "check_level": Setting(_set_checks, lambda: check_level),
    "executable_store": Setting(_set_executable_store, lambda: executable_store),
    "executable_store_bytes": Setting(_set_executable_store_bytes, lambda: executable_store_bytes),
    "interning_limit": Setting(_set_limit, lambda: interning_limit),
    "roll_repeats": Setting(_set_roll_repeats, lambda: roll_repeats),
    "transparent": Setting(_set_transparent, lambda: transparent),
    "enable_x64": Setting(lambda value: set_default_dtype("float64" if as_switch(value) else "float32"),
                          lambda: default_float() == np.float64),
}
of_jax: dict[str, Setting] = {}
"""The other settings of jax, by jax's names, entered by `fxgrad.engine.api.settings`."""


def update(name: str, value: Any) -> None:
    """Change a setting: `default_dtype`, `traceback_filtering`, `check_level`, `interning_limit`, `transparent`,
    `roll_repeats`, `executable_store` (a folder, or None) or `executable_store_bytes`.

    jax's names are accepted if they have a meaning here. `jax_enable_x64` sets the dtype of arrays created without one,
    since arrays keep theirs in any case; `jax_debug_nans`, `jax_debug_infs` and `jax_disable_jit` enter the blocks of
    these names, for the rest of the process; `jax_enable_checks` is `check_level`. Settings of XLA and its compiler,
    such as `jax_num_cpu_devices`, `jax_default_matmul_precision`, `jax_platforms`, `jax_log_compiles` and those of its
    caches, are passed to `jax.config`, and apply to `jit`. Raises `ValueError` for all others, and for values that
    fxgrad does not support.

    >>> import fxgrad
    >>> fxgrad.config.update("traceback_filtering", "on")
    >>> fxgrad.config.update("jax_debug_nans", False)
    """
    _setting(name).change(value)


def read(name: str) -> Any:
    """Return the value of a setting, also of one of jax's; raise `ValueError` for an unknown name.

    >>> import fxgrad
    >>> fxgrad.config.read("jax_debug_nans"), fxgrad.config.jax_enable_x64
    (False, False)
    """
    return _setting(name).read()


def _setting(name: str) -> Setting:
    found = _SETTINGS.get(name.removeprefix("jax_")) or of_jax.get(name)
    if found is None:
        raise ValueError(f"{name} is no setting of fxgrad; it has {', '.join(sorted(_SETTINGS))}, and settings of jax "
                         "under their names")
    return found


def __getattr__(name: str) -> Any:
    """Return jax's settings as attributes: `fxgrad.config.jax_enable_x64`."""
    if name.startswith("jax_"):
        try:
            return read(name)
        except ValueError as error:
            raise AttributeError(str(error), name=name) from None
    raise AttributeError(f"module 'fxgrad.config' has no attribute {name!r}", name=name)
