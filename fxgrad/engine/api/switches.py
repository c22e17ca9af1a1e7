"""What callers see of jitted functions, and the switch that makes them run as they are."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Jitted(Protocol):
    """A compiled function: call it, or look at its stages with `lower` and `trace`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs, computed by XLA, or recorded if a transformation is under way."""

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """jax's `Lowered` stage for these arguments (arrays or `ShapeDtypeStruct`s): `as_text()`, `compile()`."""

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """jax's `Traced` stage for these arguments, with the jaxpr of the emitted operations."""

    def clear_cache(self) -> None:
        """Forgets all compiled versions."""


class Interruptible(Protocol):
    """The state of a jitted function."""

    def interrupt(self) -> None:
        """Has the next call ask whether jit is disabled."""


switched: weakref.WeakSet[Interruptible] = weakref.WeakSet()
"""The states of all jitted functions: calls do not look at the switch, but are told when it is turned."""
_disabled: list[bool] = []


def is_jit_disabled() -> bool:
    """Whether jitted functions are to run as they are."""
    return bool(_disabled)


@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """Within the block jitted functions run as they are, in all threads: to look at values, or step through them.

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
