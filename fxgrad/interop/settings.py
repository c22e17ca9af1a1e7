"""The settings of jax under which a function was imported, and under which later derivatives are taken, too."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple

import jax


class Settings(NamedTuple):
    """Whether jax keeps 64-bit dtypes; the default precision of products; the order of random bits, and the generator
    of keys; how dtypes and ranks promote.
    """

    wide: bool
    precision: Any
    partitionable: bool
    generator: str
    dtype_promotion: Any
    rank_promotion: Any

    @classmethod
    def now(cls) -> Settings:
        """Return the current settings."""
        config: Any = jax.config  # its attributes are not declared
        return cls(bool(config.jax_enable_x64), config.jax_default_matmul_precision,
                   bool(config.jax_threefry_partitionable), config.jax_default_prng_impl,
                   config.jax_numpy_dtype_promotion, config.jax_numpy_rank_promotion)

    def scope(self) -> AbstractContextManager[Any]:
        """Return a context manager in which they hold."""
        stack = ExitStack()
        stack.enter_context(jax.enable_x64(self.wide))
        stack.enter_context(jax.default_matmul_precision(self.precision))
        stack.enter_context(jax.threefry_partitionable(self.partitionable))
        stack.enter_context(jax.default_prng_impl(self.generator))
        stack.enter_context(jax.numpy_dtype_promotion(self.dtype_promotion))
        stack.enter_context(jax.numpy_rank_promotion(self.rank_promotion))
        return stack
