"""Linear systems solved by iterations that only apply the matrix, under the names of jax.scipy.sparse.linalg.

The right side and the solution are containers of arrays; inside they are one vector. Derivatives are those of the exact
solution: they solve a system with the transposed matrix, by the same iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes, tree
from fxgrad.engine.frontend.operands import as_integer, inexact_operands, shape_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.lax.loops import fori_loop, while_loop
from fxgrad.lax.solves import custom_linear_solve

__all__ = ["bicgstab", "cg", "gmres"]

Apply = Callable[[Any], Any]


class _Space:
    """Containers of arrays with the structure of `example`, as vectors."""

    def __init__(self, name: str, example: Any) -> None:
        leaves, structure = tree.flatten(example)
        self.structure: Any = structure
        if not leaves:
            raise ArgumentError(at_user_line(f"{name}: b is a container without arrays"))
        leaves = inexact_operands(*leaves)
        self.shapes, self.dtype = [shape_of(leaf) for leaf in leaves], leaves[0].dtype
        self.name = name

    def vector(self, container: Any, what: str) -> Any:
        """Return the elements of a container, which must have the structure and the shapes of the example."""
        leaves, structure = tree.flatten(container)
        if self.structure != structure or [fnp.shape(leaf) for leaf in leaves] != self.shapes:
            raise ShapeError(at_user_line(f"{self.name}: {what} has the shapes {[fnp.shape(leaf) for leaf in leaves]}, "
                                          f"and b {self.shapes}; a container of the same shapes is needed"))
        return fnp.concatenate([fnp.ravel(leaf).astype(self.dtype) for leaf in leaves])

    def container(self, vector: Any) -> Any:
        """Return the container of these elements."""
        parts, begin = [], 0
        for shape in self.shapes:
            parts.append(fnp.reshape(vector[begin:begin + math.prod(shape)], shape))
            begin += math.prod(shape)
        return tree.unflatten(self.structure, parts)

    def operator(self, given: Any, what: str) -> Apply:
        """Return a caller's matrix, function or array as a function of vectors."""
        if callable(given):
            return lambda v: self.vector(given(self.container(v)), f"{what}(b)")
        matrix, = inexact_operands(given)
        size = sum(map(math.prod, self.shapes))
        if shape_of(matrix) != (size, size):
            raise ShapeError(at_user_line(f"{self.name}: {what} has the shape {shape_of(matrix)}, and b {size} "
                                          f"elements; a matrix of shape {(size, size)} or a function is needed"))
        return lambda v: matrix @ v


def _squared_norm(v: Any) -> Any:
    return fnp.real(fnp.vdot(v, v))


def _solve_iteratively(name: str, iterate: Callable[..., Any], A: Any, b: Any, x0: Any, tol: Any, atol: Any,
                       maxiter: Any, M: Any, rtol: Any, symmetric: bool) -> tuple[Any, None]:
    """Return `iterate(A, M, b, x0, bound, steps)` as a solution with derivatives."""
    space = _Space(name, b)
    apply, precondition = space.operator(A, "A"), (lambda v: v) if M is None else space.operator(M, "M")
    vector = space.vector(b, "b")
    begin = fnp.zeros_like(vector) if x0 is None else space.vector(x0, "x0")
    steps = 10 * max(shape_of(vector)[0], 1) if maxiter is None else as_integer(f"{name}: maxiter", maxiter)

    def solve(apply: Apply, b: Any) -> Any:
        bound = fnp.maximum((tol if rtol is None else rtol) * fnp.sqrt(_squared_norm(b)), atol)
        return iterate(apply, precondition, b, begin.astype(b.dtype), bound, steps)

    x = custom_linear_solve(apply, vector, solve, solve, symmetric and not dtypes.is_complex(space.dtype))
    return space.container(x), None


def cg(A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
       M: Any = None, rtol: float | None = None) -> tuple[Any, None]:
    """Return the solution x of `A(x) = b`, and None, for Hermitian positive definite `A`, by conjugate gradients.

    `A` is a linear function or a matrix, `b` an array or a container of arrays; `M`, a function or matrix too,
    approximates the inverse of `A`. Starting from `x0` (zeros), it takes at most `maxiter` steps (10 for each element),
    and ends when the norm of the residual is at most `tol` (jax's name; SciPy's is `rtol`) times that of `b`, or
    `atol`. Check `A(x) - b` for convergence. Raises `ShapeError` if shapes do not match.

    M. Hestenes and E. Stiefel, "Methods of conjugate gradients for solving linear systems" (1952).

    >>> import numpy as np
    >>> x, _ = cg(lambda x: x * np.array([1.0, 2.0, 4.0]), np.ones(3))
    >>> x.round(6)
    array([1.  , 0.5 , 0.25])
    """
    return _solve_iteratively("cg", _conjugate_gradients, A, b, x0, tol, atol, maxiter, M, rtol, symmetric=True)


def _conjugate_gradients(apply: Apply, precondition: Apply, b: Any, x: Any, bound: Any, steps: int) -> Any:
    def going(state: Any) -> Any:
        _, r, _, _, step = state
        return (_squared_norm(r) > bound ** 2) & (step < steps)

    def step(state: Any) -> Any:
        x, r, rz, p, step = state
        image = apply(p)
        alpha = (rz / fnp.real(fnp.vdot(p, image))).astype(p.dtype)
        x, r = x + alpha * p, r - alpha * image
        z = precondition(r)
        after = fnp.real(fnp.vdot(r, z))
        return x, r, after, z + (after / rz).astype(p.dtype) * p, step + 1

    r = b - apply(x)
    z = precondition(r)
    return while_loop(going, step, (x, r, fnp.real(fnp.vdot(r, z)), z, np.int32(0)))[0]


def bicgstab(A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
             M: Any = None, rtol: float | None = None) -> tuple[Any, None]:
    """Return the solution x of `A(x) = b`, and None, for any `A`, by stabilized biconjugate gradients; see `cg`.

    H. van der Vorst, "Bi-CGSTAB" (SIAM J. Sci. Stat. Comput. 13, 1992).

    >>> import numpy as np
    >>> x, _ = bicgstab(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([4.0, 8.0]))
    >>> x.round(6)
    array([1., 2.])
    """
    return _solve_iteratively("bicgstab", _bicgstab, A, b, x0, tol, atol, maxiter, M, rtol, symmetric=False)


def _bicgstab(apply: Apply, precondition: Apply, b: Any, x: Any, bound: Any, steps: int) -> Any:
    shadow = b - apply(x)

    def going(state: Any) -> Any:
        return (_squared_norm(state[1]) > bound ** 2) & (state[-1] < steps)

    def step(state: Any) -> Any:
        x, r, p, image, alpha, rho, omega, step = state
        rho_now = fnp.vdot(shadow, r)
        p = r + rho_now / rho * alpha / omega * (p - omega * image)
        towards = precondition(p)
        image = apply(towards)
        alpha = rho_now / fnp.vdot(shadow, image)
        s = r - alpha * image
        x = x + alpha * towards
        is_near = _squared_norm(s) <= bound ** 2
        again = precondition(s)
        t = apply(again)
        size = fnp.vdot(t, t)
        omega = fnp.where(is_near | (size == 0), 0.0, fnp.vdot(t, s) / fnp.where(size == 0, 1.0, size))
        # Without progress along s, or along the shadow residual, the iteration is stuck.
        stuck = (rho_now == 0) | (~is_near & (omega == 0))
        omega_kept = fnp.where(omega == 0, 1.0, omega)
        return (x + omega * again, s - omega * t, p, image, alpha, rho_now, omega_kept,
                fnp.where(stuck, steps, step + 1).astype(step.dtype))

    one, zeros = fnp.ones((), b.dtype), fnp.zeros_like(b)
    return while_loop(going, step, (x, shadow, zeros, zeros, one, one, one, np.int32(0)))[0]


def gmres(A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, restart: int = 20,
          maxiter: int | None = None, M: Any = None, solve_method: str = "batched",
          rtol: float | None = None) -> tuple[Any, None]:
    """Return the solution x of `A(x) = b`, and None, for any `A`, by least residuals in Krylov spaces.

    The spaces have `restart` dimensions; `maxiter` is their number. The residual of the preconditioned system is
    compared with `tol`. `solve_method` is jax's, "batched" or "incremental", and makes no difference. Other arguments
    are those of `cg`.

    Y. Saad and M. Schultz, "GMRES" (SIAM J. Sci. Stat. Comput. 7, 1986).

    >>> import numpy as np
    >>> x, _ = gmres(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([4.0, 8.0]))
    >>> x.round(6)
    array([1., 2.])
    """
    if solve_method not in ("batched", "incremental"):
        raise ArgumentError(at_user_line(f"gmres: solve_method={solve_method!r}; it is 'batched' or 'incremental'"))
    count = as_integer("gmres: restart", restart)

    def iterate(apply: Apply, precondition: Apply, b: Any, x: Any, bound: Any, steps: int) -> Any:
        dimensions = min(count, shape_of(b)[0])
        size = fnp.sqrt(_squared_norm(b))
        relative = fnp.minimum(1.0, bound / fnp.where(size == 0, 1.0, size))
        least = fnp.sqrt(_squared_norm(precondition(b))) * relative

        def going(state: Any) -> Any:
            return (_squared_norm(state[1]) > least ** 2) & (state[2] < steps)

        def step(state: Any) -> Any:
            x, r, step = state
            x = x + _least_residual(lambda v: precondition(apply(v)), r, dimensions)
            return x, precondition(b - apply(x)), step + 1

        return while_loop(going, step, (x, precondition(b - apply(x)), np.int32(0)))[0]

    return _solve_iteratively("gmres", iterate, A, b, x0, tol, atol, maxiter, M, rtol, symmetric=False)


def _least_residual(apply: Apply, r: Any, dimensions: int) -> Any:
    """Return the vector of the Krylov space of r whose image is nearest to r; its basis is orthogonalized twice."""
    size = fnp.sqrt(_squared_norm(r))
    nothing = dtypes.finfo(r.dtype).eps * 10

    def step(at: Any, state: Any) -> Any:
        basis, images = state
        image = apply(basis[at])
        before = fnp.sqrt(_squared_norm(image))
        parts = fnp.conj(basis) @ image
        image = image - parts @ basis
        again = fnp.conj(basis) @ image
        image = image - again @ basis
        left = fnp.sqrt(_squared_norm(image))
        left = fnp.where(left > nothing * before, left, 0.0)  # the space is exhausted
        following = fnp.where(left > 0, image / fnp.where(left > 0, left, 1.0), 0.0)
        column = fnp.at(parts + again)[at + 1].add(left.astype(r.dtype))
        return fnp.at(basis)[at + 1].set(following), fnp.at(images)[:, at].set(column)

    basis = fnp.at(fnp.zeros((dimensions + 1, shape_of(r)[0]), r.dtype))[0].set(r / fnp.where(size == 0, 1.0, size))
    basis, images = fori_loop(0, dimensions, step, (basis, fnp.zeros((dimensions + 1, dimensions), r.dtype)))
    wanted = fnp.at(fnp.zeros(dimensions + 1, r.dtype))[0].set(size.astype(r.dtype))
    return fnp.linalg.pinv(images) @ wanted @ basis[:dimensions]
