"""Annotations: what functions take for arrays and dtypes, as in `jax.typing`.

>>> import fxgrad
>>> def scale(x: ArrayLike, dtype: DTypeLike = "float32") -> Array:
...     return fxgrad.numpy.asarray(x, dtype) * 2
>>> scale(1.5)
array(3., dtype=float32)
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import numpy as np

from fxgrad.engine.core.arrays import Array
from fxgrad.engine.tracing.tracer import Tracer


class SupportsDType(Protocol):
    """What has a dtype, and stands for it."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""


class DuckTypedArray(Protocol):
    """What has a shape and a dtype, and stands for an array of that type where types alone matter."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""


ArrayLike = Tracer | jax.Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
"""What functions take for an array: traced arrays, those of NumPy and jax, and numbers."""
DTypeLike = str | type[Any] | np.dtype | SupportsDType
"""What functions take for a dtype."""

__all__ = ["Array", "ArrayLike", "DTypeLike", "DuckTypedArray", "SupportsDType"]
