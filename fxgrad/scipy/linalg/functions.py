"""Functions of square matrices: exponentials, square roots, Sylvester's equation."""
# ruff: noqa: ARG001  (signatures are jax's, with arguments that mean nothing here)

from __future__ import annotations

from typing import Any

from fxgrad.engine.frontend.operands import as_integer, common_shape, inexact_operands, shape_of
from fxgrad.engine.ops import matrix_functions
from fxgrad.engine.ops.structural import broadcast_to
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError
from fxgrad.numpy.linalg.operands import check_matrix_operands, matrices


def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Any:
    """Return the exponentials of square matrices, the limit of (1 + A/n)ⁿ; NaN if more than `max_squarings` are needed.

    `upper_triangular` is a hint, and not needed. Derivatives of every order are exact.

    >>> expm([[0.0, 1.0], [0.0, 0.0]])
    array([[1., 1.],
           [0., 1.]])
    """
    A, = matrices("expm", A, square=True)
    return matrix_functions.expm(A, as_integer("expm", max_squarings))


def expm_frechet(A: Any, E: Any, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """Return the exponential of `A` and its derivative along `E`, or the latter only. `method` is ignored.

    >>> expm_frechet([[0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [3.0, 4.0]], compute_expm=False)
    array([[1., 2.],
           [3., 4.]])
    """
    A, E = matrices("expm_frechet", A, E, square=True)
    derivative = matrix_functions.expm_frechet(A, E)
    return (matrix_functions.expm(A), derivative) if compute_expm else derivative


def sqrtm(A: Any, blocksize: int = 1) -> Any:
    """Return the square roots of square matrices whose eigenvalues have no negative real part; complex.

    Derivatives are right if no two eigenvalues of the root add up to 0. Under `jit` there is a kernel for CPUs only.

    >>> sqrtm([[4.0, 0.0], [0.0, 9.0]]).real
    array([[2., 0.],
           [0., 3.]])
    """
    if as_integer("sqrtm", blocksize) > 1:
        raise ArgumentError(at_user_line(f"sqrtm: blocksize={blocksize!r}; only 1 is supported"))
    A, = matrices("sqrtm", A, square=True)
    return matrix_functions.sqrtm(A)


def solve_sylvester(A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Any:
    """Return the X with `A @ X + X @ B = C`, computed by Schur forms; `method` and `tol` are ignored.

    Raises `ShapeError` if the shapes do not match. If an eigenvalue of A and one of B add up to 0, the solution is not
    unique, and the result is not finite or far off.

    >>> solve_sylvester([[1.0]], [[2.0]], [[6.0]])
    array([[2.]])
    """
    A, B, C = inexact_operands(A, B, C)
    check_matrix_operands("solve_sylvester", A, B, square=True)
    check_matrix_operands("solve_sylvester", C)
    front = common_shape("solve_sylvester", *(shape_of(each)[:-2] for each in (A, B, C)))
    A, B, C = (broadcast_to(each, (*front, *shape_of(each)[-2:])) for each in (A, B, C))
    return matrix_functions.sylvester(A, B, C)
