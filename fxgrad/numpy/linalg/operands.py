"""Read the operands of linear algebra as inexact matrices; errors name the called function."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.frontend.operands import inexact_operands, shape_of
from fxgrad.engine.ops.arithmetic import mul
from fxgrad.engine.ops.comparison import eq, gt
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.matrices import adjoint, check_matrices
from fxgrad.engine.ops.parts import complex as complex_
from fxgrad.engine.ops.parts import real
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.select import where
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import DTypeError, ShapeError


def matrices(name: str, *values: Any, square: bool = False) -> list[Any]:
    """Return the operands as stacks of matrices of one inexact dtype; errors name the caller's function."""
    read = inexact_operands(*values)
    check_matrix_operands(name, *read, square=square)
    return read


def check_matrix_operands(name: str, *values: Any, square: bool = False) -> None:
    """Raise `ShapeError` or `DTypeError` with the user's line unless the operands are (square) matrices."""
    try:
        check_matrices(name, *map(aval_of, values), square=square)
    except (ShapeError, DTypeError) as error:
        raise type(error)(at_user_line(str(error))) from None


def symmetrize(a: Any) -> Any:
    """Return the means of the matrices and their conjugate transposes."""
    return mul(add(a, adjoint(a)), 0.5)


def from_triangle(a: Any, lower: bool) -> Any:
    """Return the Hermitian matrices with one triangle of `a`; the other, and imaginary diagonals, are ignored.

    So derivatives are those of a function of that triangle alone.
    """
    size = shape_of(a)[-1]
    other = np.tri(size, size, -1, dtype=bool) if not has_symbolic_dim(size) else gt(*_places(size))
    other = other.T if lower else other
    whole = where(other, adjoint(a), a)
    if not dtypes.is_complex(aval_of(a).dtype):
        return whole
    on_diagonal = np.eye(size, dtype=bool) if not has_symbolic_dim(size) else eq(*_places(size))
    return where(on_diagonal, complex_(real(a), 0.0), whole)


def _places(size: Any) -> tuple[Any, Any]:
    return iota(dtypes.int32, (size, size), 0), iota(dtypes.int32, (size, size), 1)
