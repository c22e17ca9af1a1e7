"""The settings of jax under which a function was imported, and under which later derivatives are taken, too."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple

import jax


class Settings(NamedTuple):
    """Whether jax keeps 64-bit dtypes, the default precision of products, the order of random bits."""

    wide: bool
    precision: Any
    partitionable: bool

    @classmethod
    def now(cls) -> Settings:
        """Return the current settings."""
        config: Any = jax.config  # its attributes are not declared
        return cls(bool(config.jax_enable_x64), config.jax_default_matmul_precision,
                   bool(config.jax_threefry_partitionable))

    def scope(self) -> AbstractContextManager[Any]:
        """Return a context manager in which they hold."""
        stack = ExitStack()
        stack.enter_context(jax.enable_x64(self.wide))
        stack.enter_context(jax.default_matmul_precision(self.precision))
        stack.enter_context(jax.threefry_partitionable(self.partitionable))
        return stack
