"""How the functions of linear algebra read their operands: as inexact matrices, with the name of what was called."""

from __future__ import annotations

from typing import Any

from fxgrad.core.tape import aval_of
from fxgrad.errors import DTypeError, ShapeError, at_user_line
from fxgrad.numpy.operands import as_array, promoted_inexact, settled
from fxgrad.ops.arithmetic import mul
from fxgrad.ops.matrices import adjoint, check_matrices
from fxgrad.ops.pointwise import add


def matrices(name: str, *values: Any, square: bool = False) -> list[Any]:
    """The operands as stacks of matrices of one inexact dtype; raises with the name of the caller's function."""
    read: list[Any] = settled(promoted_inexact(*map(as_array, values)))
    check(name, *read, square=square)
    return read


def check(name: str, *values: Any, square: bool = False) -> None:
    """Raises `ShapeError` or `DTypeError` with the user's line unless the operands are (square) matrices."""
    try:
        check_matrices(name, *map(aval_of, values), square=square)
    except (ShapeError, DTypeError) as error:
        raise type(error)(at_user_line(str(error))) from None


def symmetrized(a: Any) -> Any:
    """The means of the matrices and their conjugate transposes."""
    return mul(add(a, adjoint(a)), 0.5)
