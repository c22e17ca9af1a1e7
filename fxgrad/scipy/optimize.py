"""Minima of functions of vectors, under the names of jax.scipy.optimize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes
from fxgrad.engine.frontend.flat import trace_flat
from fxgrad.engine.frontend.operands import inexact_operands, shape_of
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.transforms.joint import grad_program
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.lax.loops import while_loop
from fxgrad.lax.solves import custom_root
from fxgrad.scipy.sparse.linalg import cg

__all__ = ["OptimizeResults", "minimize"]


class OptimizeResults(NamedTuple):
    """The result of `minimize`.

    `x` is the minimum, `fun` the value and `jac` the gradient there, `hess_inv` an estimate of the inverse Hessian;
    `nit`, `nfev` and `njev` are the numbers of steps, values and gradients. `status` is 0 if the gradient is small
    enough (`success`), 1 after the maximal number of steps, 2 if no step along the search direction is acceptable.
    """

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


_OPTIONS = {"maxiter": None, "gtol": 1e-5, "norm": np.inf, "line_search_maxiter": 30}


def minimize(fun: Callable[..., Any], x0: Any, args: tuple[Any, ...] = (), *, method: str, tol: float | None = None,
             options: Mapping[str, Any] | None = None) -> OptimizeResults:
    """Return a minimum near `x0` of `fun(x, *args)`, a number for a vector x, by the BFGS method.

    BFGS is the method of Broyden, Fletcher, Goldfarb and Shanno, and the only `method`. It ends when the norm of the
    gradient is at most `gtol` (1e-5; or `tol`). `options` are `gtol`, `norm` (its order, inf), `maxiter` (200 for each
    element) and `line_search_maxiter`. `fun` is traced once, and its gradient derived. Derivatives of `x` in parameters
    of `fun` are those of the exact minimum, where the Hessian must be positive definite; the other results have none.
    Raises `ArgumentError` and `ShapeError`.

    J. Nocedal and S. Wright, "Numerical optimization" (2006), section 6.1; the line search is that of A. Lewis and
    M. Overton, "Nonsmooth optimization via quasi-Newton methods" (2013).

    >>> import numpy as np
    >>> found = minimize(lambda x, a: np.sum((x - a) ** 4) + np.sum(x ** 2), np.zeros(2), (np.ones(2),), method="BFGS")
    >>> found.x.round(4), bool(found.success)
    (array([0.4102, 0.4102]), True)
    """
    if not isinstance(method, str) or method.lower() != "bfgs":
        raise ArgumentError(at_user_line(f"minimize: method={method!r}; it is 'BFGS'"))
    unknown = [name for name in options or {} if name not in _OPTIONS]
    if unknown:
        raise ArgumentError(at_user_line(f"minimize: there is no option {', '.join(unknown)}; there are "
                                         f"{', '.join(_OPTIONS)}"))
    chosen = {**_OPTIONS, **({} if tol is None else {"gtol": tol}), **(options or {})}
    start, = inexact_operands(x0)
    if len(shape_of(start)) != 1 or dtypes.is_complex(start.dtype):
        raise ShapeError(at_user_line(f"minimize: x0 is {aval_of(start)}; a vector of real numbers is needed"))
    value_and_slope = _with_gradient(fun, args, start)
    steps = 200 * shape_of(start)[0] if chosen["maxiter"] is None else int(chosen["maxiter"])

    def solve(_: Any, x: Any) -> tuple[Any, Any]:
        state = _search(value_and_slope, x, chosen["gtol"], chosen["norm"], steps, int(chosen["line_search_maxiter"]))
        return state[0], state[1:]

    x, (f, g, inverse, count, calls, failed) = custom_root(
        lambda x: value_and_slope(x)[1], start, solve,
        lambda hessian, y: cg(hessian, y, tol=10 * float(dtypes.finfo(start.dtype).eps))[0], has_aux=True)
    is_small = fnp.linalg.norm(g, chosen["norm"]) <= chosen["gtol"]
    status = fnp.where(is_small, 0, fnp.where(failed, 2, 1))
    return OptimizeResults(x, is_small, status, f, g, inverse, calls, calls, count)


def _with_gradient(fun: Callable[..., Any], args: tuple[Any, ...], start: Any) -> Callable[[Any], Any]:
    """Return a function that computes the value of `fun` and its gradient."""
    traced = trace_flat(lambda x: fun(x, *args), [aval_of(start).strong()], "minimize", fun)
    avals = traced.program.out_avals
    if len(avals) != 1 or avals[0].shape or avals[0].dtype.kind != "f":
        raise ShapeError(at_user_line(f"minimize: the function returns {', '.join(map(str, avals)) or 'nothing'}; a "
                                      "real number is needed"))
    wrt = (*[False] * traced.program.captured, True)
    derived = grad_program(traced.program, wrt, True)

    def value_and_slope(x: Any) -> Any:
        return tuple(apply_program(derived.program, [*derived.captured, *traced.captured, x]))
    return value_and_slope


def _search(value_and_slope: Callable[[Any], Any], x: Any, bound: Any, order: Any, steps: int, tries: int) -> Any:
    """Return the last point, its value, gradient and inverse Hessian, counts, and whether the line search failed."""
    identity = np.eye(shape_of(x)[0], dtype=x.dtype)

    def going(state: Any) -> Any:
        _, _, g, _, count, _, failed = state
        return (fnp.linalg.norm(g, order) > bound) & (count < steps) & ~failed

    def step(state: Any) -> Any:
        x, f, g, inverse, count, calls, _ = state
        direction = -inverse @ g
        size, f_new, g_new, asked, good = _line_search(value_and_slope, x, f, g, direction, tries)
        move, change = size * direction, g_new - g
        curvature = move @ change
        usable = good & (curvature > 0)
        rho = 1.0 / fnp.where(usable, curvature, 1.0)
        left = identity - rho * fnp.outer(move, change)
        updated = left @ inverse @ left.T + rho * fnp.outer(move, move)
        return (fnp.where(good, x + move, x), fnp.where(good, f_new, f), fnp.where(good, g_new, g),
                fnp.where(usable, updated, inverse), count + 1, calls + asked, ~good)

    f, g = value_and_slope(x)
    return while_loop(going, step, (x, f, g, fnp.asarray(identity), np.int32(0), np.int32(1), np.bool_(False)))


def _line_search(value_and_slope: Callable[[Any], Any], x: Any, f: Any, g: Any, direction: Any, tries: int) -> Any:
    """Find a step that reduces value and slope enough: the interval of one is doubled at first, then halved."""
    slope = g @ direction

    def verdict(size: Any, f_new: Any, g_new: Any) -> tuple[Any, Any]:
        too_far = ~(f_new <= f + 1e-4 * size * slope)
        return too_far, ~too_far & (g_new @ direction < 0.9 * slope)

    def going(state: Any) -> Any:
        *_, tried, good = state
        return ~good & (tried < tries)

    def step(state: Any) -> Any:
        low, high, size, _, _, tried, _ = state
        f_new, g_new = value_and_slope(x + size * direction)
        too_far, too_near = verdict(size, f_new, g_new)
        low, high = fnp.where(too_near, size, low), fnp.where(too_far, size, high)
        good = ~too_far & ~too_near
        following = fnp.where(fnp.isinf(high), 2.0 * low, 0.5 * (low + high))
        return low, high, fnp.where(good, size, following), f_new, g_new, tried + 1, good

    zero, one = fnp.zeros((), x.dtype), fnp.ones((), x.dtype)
    _, _, size, f_new, g_new, tried, good = while_loop(
        going, step, (zero, one * np.inf, one, f, g, np.int32(0), np.bool_(False)))
    return size, f_new, g_new, tried, good
