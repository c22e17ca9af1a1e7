"""`implicit`: derivatives of what a solver of any kind returned, from the condition that it fulfils."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes, tree
from fxgrad.engine.api.arguments import transformation
from fxgrad.engine.api.callbacks import pure_callback
from fxgrad.engine.api.checking import check
from fxgrad.engine.api.custom import custom_jvp
from fxgrad.engine.api.eager import ensure_compile_time_eval
from fxgrad.engine.api.jacobians import jacobian
from fxgrad.engine.api.naming import named_scope
from fxgrad.engine.api.residuals import stop_gradient
from fxgrad.engine.api.reverse import grad
from fxgrad.engine.core.regions import dependent_outputs
from fxgrad.engine.frontend.flat import leaf_aval, trace_flat
from fxgrad.engine.frontend.operands import require_concrete
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.trace import UNSHARED
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line, function_name, named_as
from fxgrad.errors import ArgumentError, ConcretizationError, DTypeError, ShapeError, TreeError
from fxgrad.flatten_util import ravel_pytree
from fxgrad.lax.solves import custom_root
from fxgrad.numpy import linalg
from fxgrad.scipy.linalg.systems import lu_factor, lu_solve
from fxgrad.training.linear_systems import real_vector

Function = Callable[..., Any]

CONDITIONS = ("root", "argmin", "fixed_point")


def implicit(solver: Function | None = None, *, root: Function | None = None, argmin: Function | None = None,
             fixed_point: Function | None = None, equal: Function | None = None, at_most: Function | None = None,
             like: Any = None, solve: Function | None = None, tolerance: float | None = 1e-3) -> Any:
    """Decorate `solver(*args) -> x`: derivatives follow from the condition that `x` fulfils, not from its steps.

    The condition is one of these functions of `x`, an array or a container, and the solver's arguments:

    - `root(x, *args)`, a container like `x`, is 0.
    - `fixed_point(x, *args)` is `x`.
    - `argmin(x, *args)`, a scalar, is smallest; where given, subject to `equal(x, *args)` = 0 and `at_most(x, *args)`
      <= 0, arrays. A constraint is active that has less than `tolerance` and less than its multiplier to spare. Where
      an active one has a multiplier of 0, x(args) has a kink, and the derivative is that of one side.

    Arguments that are passed by keyword reach all of these functions by keyword.

    The solver is any function: a loop of fxgrad's or of Python's, or one of SciPy's. Where its arguments are known, it
    is called with their values. One that cannot be traced needs `like` under `jit` and `vmap`: a container with the
    shapes and dtypes of `x`, or a function of the arguments that returns it; then it is called from compiled code.
    Under `autocast` solver and condition stay in full precision, unless the policy has the block "@implicit".

    Derivatives of all modes and orders cost one linear system in `x`, and no memory for the solver's steps. The system
    is solved by its matrix, or by `solve(matvec, b)` for large ones, such as `fxgrad.scipy.sparse.linalg.gmres`
    without its second result. Raises `CheckError`, compiled too, where the condition does not hold at `x` within
    `tolerance` times the largest of 1 and `|x|`, or `x` is not finite; None leaves that out. Derivatives raise it where
    that of the condition in `x` is a matrix that is singular up to rounding; from other matrices they have the error
    that any solution of the system has, rounding times the condition number. They raise `ArgumentError` where the
    condition depends on no argument, and on no traced value that it closes over. Raises `ArgumentError` unless one
    condition is given, as a function, `x` has numbers, and `argmin` returns one, `TreeError` and `ShapeError` where the
    condition returns another container than `x` or other shapes, and `DTypeError` where `x` has integers, or real
    numbers and the condition complex ones. The formula is the implicit function theorem's, dx = -(dF/dx)^-1 (dF/da) da,
    with the conditions of Karush, Kuhn and Tucker for constraints.

    >>> import numpy as np, fxgrad
    >>> @fxgrad.implicit(root=lambda x, a: x ** 2 - a)
    ... def newton(a):
    ...     x = a
    ...     for _ in range(30):
    ...         x = (x + a / x) / 2
    ...     return x
    >>> float(newton(4.0)), float(fxgrad.grad(newton)(4.0)), float(fxgrad.grad(fxgrad.grad(newton))(4.0))
    (2.0, 0.25, -0.03125)
    """
    given = [name for name, function in zip(CONDITIONS, (root, argmin, fixed_point), strict=True)
             if function is not None]
    if len(given) != 1:
        raise ArgumentError(at_user_line(
            f"implicit takes one condition, root, argmin or fixed_point, got {' and '.join(given) or 'none'}. Write "
            "@fxgrad.implicit(root=lambda x, a: ...)"))
    for name, function in (*zip(CONDITIONS, (root, argmin, fixed_point), strict=True), ("equal", equal),
                           ("at_most", at_most), ("solve", solve)):
        if function is not None and not callable(function):
            raise ArgumentError(at_user_line(
                f"implicit takes functions as conditions, got a {type(function).__name__} as {name}. Write "
                f"{name}=lambda {'matvec, b' if name == 'solve' else 'x, a'}: ..."))
    if argmin is None and (equal is not None or at_most is not None):
        raise ArgumentError(at_user_line(
            f"implicit: equal and at_most are constraints of argmin, and {given[0]} was given. Put the equations into "
            "it"))
    if solver is None:
        return functools.partial(implicit, root=root, argmin=argmin, fixed_point=fixed_point, equal=equal,
                                 at_most=at_most, like=like, solve=solve, tolerance=tolerance)
    problem = _Problem(solver, root, argmin, fixed_point, equal, at_most, like, solve, tolerance)

    @transformation("implicit", solver)
    def solved(*args: Any, **kwargs: Any) -> Any:
        return (problem.by_position([*kwargs]) if kwargs else problem).solution((*args, *kwargs.values()))
    return solved


class _Problem(NamedTuple):
    """A solver and the condition that its result fulfils, as `implicit` takes them."""

    solver: Function
    root: Function | None
    argmin: Function | None
    fixed_point: Function | None
    equal: Function | None
    at_most: Function | None
    like: Any
    solve: Function | None
    tolerance: float | None

    def by_position(self, names: list[str]) -> _Problem:
        """Return the problem with functions whose last arguments are those of these names."""
        return self._replace(**{name: _by_position(getattr(self, name), names) for name in self._fields[:-2]})

    @property
    def kind(self) -> str:
        """The word for the condition."""
        return next(name for name in CONDITIONS if getattr(self, name) is not None)

    def solution(self, args: tuple[Any, ...]) -> Any:
        """Return what the solver returns, with the derivatives that follow from the condition."""
        with named_scope("implicit"):
            return self._checked_solution(args)

    def _checked_solution(self, args: tuple[Any, ...]) -> Any:
        x = _run(self.solver, args, self.like)
        if not tree.leaves(x):
            raise ArgumentError(at_user_line(
                f"implicit: {function_name(self.solver)} returned {x!r}, which has no numbers. Return x, an array or a "
                "container of arrays"))
        if self.equal is not None or self.at_most is not None:
            return self._constrained(x, args)
        what = f"{self.kind} of {function_name(self.solver)}"
        _verify(x, self._residual(x, args), self.tolerance, what, self.solver)
        return _differentiable(self._residual, x, args, self.solve, what)

    def _residual(self, x: Any, args: tuple[Any, ...]) -> Any:
        """Return what is 0 at the solution, a container like `x`."""
        if self.root is not None:
            found = self.root(x, *args)
        elif self.fixed_point is not None:
            found = self.fixed_point(x, *args)
        else:
            found = grad(lambda x: self._objective(x, args))(x)
        solver, what = function_name(self.solver), f"the condition {self.kind} of {function_name(self.solver)}"
        structure: Any = tree.structure(found)
        needed: Any = tree.structure(x)
        if structure != needed:
            raise TreeError(at_user_line(
                f"implicit: {what} returns {structure}, where a container like x is needed, {needed}"))
        for leaf, own, name in zip(tree.leaves(found), tree.leaves(x), tree.leaf_names(x, "x"), strict=True):
            given, expected = aval_of(leaf), aval_of(own)
            if not dtypes.is_inexact(expected.dtype):
                raise DTypeError(at_user_line(
                    f"implicit: {solver} returned {expected.strong()} for {name}, where floating-point numbers are "
                    "needed. Convert them, and pass on integers apart"))
            if dtypes.is_complex(given.dtype) and not dtypes.is_complex(expected.dtype):
                raise DTypeError(at_user_line(
                    f"implicit: {what} returns {given.strong()} for {name}, which is {expected.strong()}: twice as "
                    f"many equations as unknowns. Return complex numbers from {solver}, or a real condition"))
            if given.shape != expected.shape:
                raise ShapeError(at_user_line(
                    f"implicit: {what} returns {given.strong()} for {name}, which is {expected.strong()}: as many "
                    "equations as unknowns are needed, in the same shape"))
        if self.fixed_point is not None:
            found = tree.map(fnp.subtract, found, x)
        # SciPy returns float64 for arguments of float32 too.
        return tree.map(lambda leaf, own: fnp.asarray(leaf, aval_of(own).dtype), found, x)

    def _objective(self, x: Any, args: tuple[Any, ...]) -> Any:
        assert self.argmin is not None
        found = self.argmin(x, *args)
        aval = leaf_aval(found)
        if aval is None or aval.shape:
            raise ArgumentError(at_user_line(
                f"implicit: the objective argmin of {function_name(self.solver)} returns "
                f"{type(found).__name__ if aval is None else aval.strong()}, where a number is needed. Sum it, or pass "
                "equations as root="))
        return found

    def _constrained(self, x: Any, args: tuple[Any, ...]) -> Any:
        flat, rebuild = ravel_pytree(x)

        def objective(flat: Any, args: tuple[Any, ...]) -> Any:
            return self._objective(rebuild(flat), args)

        def equalities(flat: Any, args: tuple[Any, ...]) -> Any:
            return _raveled(self.equal, rebuild(flat), args, flat)

        def bounds(flat: Any, args: tuple[Any, ...]) -> Any:
            return _raveled(self.at_most, rebuild(flat), args, flat)

        margin = self.tolerance if self.tolerance is not None else 1e-3
        spare = -stop_gradient(bounds(flat, args))
        count = equalities(flat, args).shape[0]

        def multipliers(active: Any) -> tuple[Any, Any]:
            """Return those that come closest to a slope of 0, which are 0 where constraints are not active."""
            matrix = fnp.concatenate([jacobian(lambda flat: equalities(flat, args))(flat), fnp.where(
                active[:, None], jacobian(lambda flat: bounds(flat, args))(flat), 0)]).T
            found = stop_gradient(linalg.lstsq(matrix, -grad(lambda flat: objective(flat, args))(flat))[0])
            return found[:count], fnp.where(active, found[count:], 0)

        # A constraint that x merely comes close to has a multiplier of 0: it does not move x.
        near = spare < margin
        active = near & (multipliers(near)[1] > spare)

        def conditions(state: Any, args: tuple[Any, ...]) -> Any:
            flat, one, other = state
            slope = grad(lambda flat: objective(flat, args) + fnp.sum(one * equalities(flat, args)) + fnp.sum(
                other * bounds(flat, args)))(flat)
            return slope, equalities(flat, args), fnp.where(active, bounds(flat, args), other)

        state = flat, *multipliers(active)
        what = f"argmin of {function_name(self.solver)} with its constraints"
        _verify(state, conditions(state, args), self.tolerance, what, self.solver)
        return rebuild(_differentiable(conditions, state, args, self.solve, what)[0])


def _by_position(function: Any, names: list[str]) -> Any:
    """Return a function whose last arguments are those of these names; what is no function as it is."""
    if not callable(function):
        return function

    @named_as(function)
    def called(*args: Any) -> Any:
        first = len(args) - len(names)
        return function(*args[:first], **dict(zip(names, args[first:], strict=True)))
    return called


def _raveled(function: Function | None, x: Any, args: tuple[Any, ...], like: Any) -> Any:
    """Return the values of constraints as a vector, which is empty without any."""
    return fnp.zeros(0, like.dtype) if function is None else ravel_pytree(function(x, *args))[0].astype(like.dtype)


def _run(solver: Function, args: tuple[Any, ...], like: Any) -> Any:
    """Return what the solver returns, without derivatives: called with known values, from compiled code, or traced."""
    args = stop_gradient(args)
    try:
        known = tree.map(lambda leaf: require_concrete(leaf, "implicit")[()] if type(leaf) is Tracer else leaf, args)
    except ConcretizationError:
        pass  # under jit or vmap
    else:
        with ensure_compile_time_eval():  # what checks in other solvers look at is known, too
            return solver(*known)
    if like is not None:
        shapes = like(*args) if callable(like) else like
        shapes = tree.map(lambda leaf: leaf if hasattr(leaf, "shape") else np.asarray(leaf), shapes)
        return pure_callback(lambda *args: tree.map(
            lambda found, kind: np.asarray(found, kind.dtype), solver(*args), shapes), shapes, *args,
            vmap_method="sequential")
    try:
        return stop_gradient(solver(*args))
    except (ConcretizationError, TypeError) as error:
        raise type(error)(f"{error}\n(implicit: {function_name(solver)} cannot be traced. Under jit and vmap, pass "
                          "like=, an array or a container of the shapes and dtypes of its result)") from error


def _verify(x: Any, residual: Any, tolerance: float | None, what: str, solver: Function) -> None:
    """Raise `CheckError` unless `x` is finite and the residual small, without a part in derivatives."""
    if tolerance is None:
        return
    largest = lambda value: functools.reduce(  # noqa: E731
        fnp.maximum, [fnp.max(fnp.abs(leaf), initial=0.0) for leaf in tree.leaves(stop_gradient(value))])
    size, scale = largest(residual), fnp.maximum(1.0, largest(x))
    check(fnp.isfinite(scale), f"implicit: {function_name(solver)} returned numbers that are not finite, the largest "
          "of which is {largest}. Look at its steps and at where it starts", largest=scale)
    check(size <= tolerance * scale, f"implicit: {what} does not hold at what it returned: a residual of {{size}}, "
          f"where at most {{limit}} is allowed", size=size, limit=tolerance * scale)


def _differentiable(condition: Function, x: Any, args: tuple[Any, ...], solve: Function | None, what: str) -> Any:
    """Return `x` with the derivatives that `condition(x, args) = 0` gives it."""
    if any(type(leaf) is Tracer for leaf in tree.leaves(args)) and not _depends(condition, x, args):
        return _undetermined(what)(x, args)
    return custom_root(lambda x: condition(x, args), x, lambda f, x: x, _tangent_solver(solve, what))


def _depends(condition: Function, x: Any, args: tuple[Any, ...]) -> bool:
    """Return whether `condition(x, args)` depends on arguments, or on traced values that it closes over."""
    leaves, structure = tree.flatten((x, args))
    count = len(tree.leaves(x))
    places = [place for place, leaf in enumerate(leaves) if type(leaf) is Tracer or place < count]

    def flat(*values: Any) -> Any:
        given = list(leaves)
        for place, value in zip(places, values, strict=True):
            given[place] = value
        return condition(*tree.unflatten(structure, given))
    traced = trace_flat(flat, [aval_of(leaves[place]) for place in places], "implicit", condition, mode=UNSHARED)
    marks = [*(type(value) is Tracer for value in traced.captured), *(place >= count for place in places)]
    return any(dependent_outputs(traced.program, marks))


def _undetermined(what: str) -> Function:
    """Return a function of `x` and the arguments that returns `x`, and refuses to be differentiated."""
    @custom_jvp
    def found(x: Any, _: Any) -> Any:
        return x

    @found.defjvp
    def refuse(*_: Any) -> Any:
        raise ArgumentError(at_user_line(
            f"implicit: {what} depends on none of the solver's arguments, so the derivative of what it returned would "
            "be 0. Use the arguments in the condition, as in root=lambda x, a: x ** 2 - a, or pass "
            "fxgrad.lax.stop_gradient(a) to the solver if it is 0"))
    return found


def _tangent_solver(solve: Function | None, what: str) -> Function:
    """Return the solver of linear systems: by the matrix, or by the user's function of a product and a vector.

    That by the matrix raises `CheckError` if the matrix is singular: `what` does not determine x.
    """
    def by_matrix(linear: Function, right: Any) -> Any:
        # A condition on complex numbers need not be holomorphic: their real and imaginary parts are the unknowns.
        vector, rebuild = real_vector(right)
        # Matrices are factored in float32 at least.
        unknowns = fnp.astype(vector, np.promote_types(vector.dtype, np.float32))

        def whole(unknowns: Any) -> Any:
            return rebuild(fnp.astype(unknowns, vector.dtype))

        def product(unknowns: Any) -> Any:
            return fnp.astype(real_vector(linear(whole(unknowns)))[0], unknowns.dtype)

        factors, pivots = lu_factor(jacobian(product)(fnp.zeros_like(unknowns)))
        check(~fnp.any(_vanishing_pivots(factors)), f"implicit: the derivative of {what} in x, a matrix of shape "
              f"{factors.shape}, is singular up to rounding at what it returned: the condition does not determine x "
              "there, which has no derivative. Give as many independent equations as unknowns, or solve=, which "
              "chooses one of the solutions")
        return whole(lu_solve((factors, pivots), unknowns))

    def by_products(linear: Function, right: Any) -> Any:
        assert solve is not None
        found = solve(linear, right)
        structure: Any = tree.structure(found)
        needed: Any = tree.structure(right)
        if structure != needed:
            raise TreeError(at_user_line(
                f"implicit: solve={function_name(solve)} returns {structure}, where a container like x is needed, "
                f"{needed}. Of solvers that return more, such as gmres, take the first: lambda matvec, b: "
                "gmres(matvec, b)[0]"))
        for leaf, own, name in zip(tree.leaves(found), tree.leaves(right), tree.leaf_names(right, "x"), strict=True):
            if aval_of(leaf).shape != aval_of(own).shape:
                raise ShapeError(at_user_line(
                    f"implicit: solve={function_name(solve)} returns {aval_of(leaf).strong()} for {name}, where "
                    f"{aval_of(own).strong()} is needed"))
        return found
    return by_matrix if solve is None else by_products


def _vanishing_pivots(factors: Any) -> Any:
    """Return which pivots of an LU factorisation are no larger than the rounding error of the sums that they are.

    If one of them is, a matrix within rounding of the one factored is singular. Scales of rows and columns cancel.
    """
    size = fnp.abs(stop_gradient(factors))
    pivots = fnp.diagonal(size)
    sums = fnp.sum(fnp.tril(size, -1) * fnp.triu(size, 1).T, axis=1) + pivots
    return pivots <= fnp.finfo(size.dtype).eps * np.sqrt(size.shape[0]) * sums
