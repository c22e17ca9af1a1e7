"""The public protocol of jitted functions, and `disable_jit`, which runs them without compilation."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import jax


@runtime_checkable
class Jitted(Protocol):
    """A compiled function: call it, or inspect its stages with `lower` and `trace`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs, computed by XLA, or recorded inside a running transformation."""

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Return jax's `Lowered` stage for these arguments (arrays or `ShapeDtypeStruct`s): `as_text`, `compile`."""

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """Return jax's `Traced` stage for these arguments, with the jaxpr of the emitted operations."""

    def clear_cache(self) -> None:
        """Forget all compiled versions."""


class Interruptible(Protocol):
    """The state of a jitted function."""

    def interrupt(self) -> None:
        """Make the next call check whether jit is disabled."""


switched: weakref.WeakSet[Interruptible] = weakref.WeakSet()
"""The states of all jitted functions: `disable_jit` interrupts them, so that calls need not check the switch."""
_disabled: list[bool] = []


def is_jit_disabled() -> bool:
    """Return whether jitted functions run without compilation, by this switch or by jax's own."""
    return bool(_disabled) or jax.config.jax_disable_jit  # type: ignore[attr-defined]


@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """Within the block run jitted functions without compilation, in all threads: to see values, or step through them.

    >>> import numpy as np, fxgrad
    >>> with fxgrad.disable_jit():
    ...     fxgrad.jit(lambda x: print(x))(np.arange(2))
    [0 1]
    """
    if not disable:
        yield
        return
    _disabled.append(True)
    try:
        for state in [*switched]:
            state.interrupt()
        yield
    finally:
        _disabled.pop()
