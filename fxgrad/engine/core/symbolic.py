"""Stand-ins for arrays that are never built: symbolic zeros and the marker of a linear input."""

from __future__ import annotations

import numpy as np

from fxgrad.engine.core.avals import Aval


class Zero:
    """A tangent or cotangent known to be zero; `aval` is the type of the primal it belongs to."""

    __slots__ = ("aval",)

    def __init__(self, aval: Aval) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Zero({self.aval})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the primal."""
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the primal."""
        return self.aval.dtype


class Linear:
    """In a transpose rule, a linear input of the operation; it has a type and no value."""

    __slots__ = ("aval",)

    def __init__(self, aval: Aval) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Linear({self.aval})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the input."""
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the input."""
        return self.aval.dtype
