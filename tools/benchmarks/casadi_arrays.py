"""Arrays of CasADi's expressions with NumPy's shapes and functions, as far as the sparse problems need them.

An array is a column of expressions and a shape. What moves elements is an index into the column, made by NumPy from
positions; arithmetic is CasADi's own on whole columns.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

casadi: Any = importlib.import_module("casadi") if find_spec("casadi") else None


class Array:
    """An array of expressions: `column` has the elements in row-major order."""

    __array_ufunc__ = None  # so that NumPy's arrays leave arithmetic to this class

    def __init__(self, column: Any, shape: tuple[int, ...]) -> None:
        self.column, self.shape = column, shape

    def take(self, positions: Any) -> Array:
        """The elements at positions in the column, in the shape of `positions`."""
        return Array(self.column[np.ravel(positions).tolist()], np.shape(positions))

    @property
    def positions(self) -> np.ndarray[Any, Any]:
        """The number of each element in the column."""
        return np.arange(math.prod(self.shape)).reshape(self.shape)

    @property
    def T(self) -> Array:  # noqa: N802  (NumPy's name)
        """The transpose."""
        return self.take(self.positions.T)

    def __getitem__(self, index: Any) -> Array:
        return self.take(self.positions[index])

    def __iter__(self) -> Iterator[Array]:
        return (self[place] for place in range(self.shape[0]))

    def _with(self, other: Any, operation: Callable[[Any, Any], Any]) -> Array:
        given = other if isinstance(other, Array) else Array(casadi.DM(np.ravel(other)), np.shape(other))
        assert self.shape == given.shape or () in (self.shape, given.shape), "only scalars are repeated"
        return Array(operation(self.column, given.column), self.shape or given.shape)

    def __add__(self, other: Any) -> Array:
        return self._with(other, lambda x, y: x + y)

    def __sub__(self, other: Any) -> Array:
        return self._with(other, lambda x, y: x - y)

    def __rsub__(self, other: Any) -> Array:
        return self._with(other, lambda x, y: y - x)

    def __mul__(self, other: Any) -> Array:
        return self._with(other, lambda x, y: x * y)

    def __truediv__(self, other: Any) -> Array:
        return self._with(other, lambda x, y: x / y)

    def __rtruediv__(self, other: Any) -> Array:
        return self._with(other, lambda x, y: y / x)

    def __pow__(self, exponent: int) -> Array:
        return self._with(exponent, lambda x, y: x ** y)

    def __neg__(self) -> Array:
        return Array(-self.column, self.shape)

    __radd__, __rmul__ = __add__, __mul__


def _function(name: str) -> Callable[[Array], Array]:
    return staticmethod(lambda x: Array(getattr(casadi, name)(x.column), x.shape))  # type: ignore[return-value]


class Library:
    """NumPy's functions of such arrays."""

    exp, sin, cos, tan, sqrt = map(_function, ("exp", "sin", "cos", "tan", "sqrt"))

    @staticmethod
    def sum(x: Array) -> Array:
        """The sum of all elements."""
        return Array(casadi.sum1(x.column), ())

    @staticmethod
    def reshape(x: Array, shape: Sequence[int]) -> Array:
        """The elements in another shape."""
        return Array(x.column, x.positions.reshape(shape).shape)

    @staticmethod
    def roll(x: Array, by: int, axis: int | None = None) -> Array:
        """The elements moved along an axis, those beyond the end to the beginning."""
        return x.take(np.roll(x.positions, by, axis))

    @staticmethod
    def pad(x: Array, width: int) -> Array:
        """The array with zeros around it."""
        count = x.column.shape[0]
        around = Array(casadi.vertcat(x.column, 0), (count + 1,))
        return around.take(np.pad(x.positions, width, constant_values=count))

    @staticmethod
    def concatenate(parts: Sequence[Any]) -> Array:
        """Vectors one behind the other."""
        column = casadi.vertcat(*(part.column if isinstance(part, Array) else part for part in parts))
        return Array(column, (column.shape[0],))

    @staticmethod
    def stack(parts: Sequence[Array]) -> Array:
        """Arrays of one shape along a new first axis."""
        return Array(casadi.vertcat(*(part.column for part in parts)), (len(parts), *parts[0].shape))


def sparse_matrix(symbols: Any, kind: str, function: Callable[[Any, Any], Any], size: int) -> Callable[[Any], Any]:
    """Return CasADi's function of x for the sparse "jacobian" or "hessian" of `function(library, x)`.

    `symbols` are `casadi.SX`, expressions of scalars, or `casadi.MX`, of whole columns.
    """
    x = symbols.sym("x", size)
    y = function(Library, Array(x, (size,))).column
    matrix = casadi.jacobian(y, x) if kind == "jacobian" else casadi.hessian(y, x)[0]
    return casadi.Function("matrix", [x], [matrix])
