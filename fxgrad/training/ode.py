"""Initial value problems, dy/dt = f(y, t), solved with adaptive steps, and two ways to their derivatives."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes, tree
from fxgrad.engine.api.arguments import transformation
from fxgrad.engine.api.closures import hoist_closure
from fxgrad.engine.api.custom import custom_vjp
from fxgrad.engine.api.forward import jvp
from fxgrad.engine.api.jacobians import jacobian
from fxgrad.engine.api.residuals import stop_gradient
from fxgrad.engine.api.reverse import vjp
from fxgrad.engine.api.sparse_derivatives import given_pattern
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.frontend.operands import as_array_operand, is_staging
from fxgrad.engine.higher_order.series import solution_program
from fxgrad.engine.ops.strong import strong_mul
from fxgrad.engine.ops.structural import convert, instantiate_zeros
from fxgrad.engine.ops.varying import pvary
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, ShapeError, TreeError
from fxgrad.lax.bodies import trace_body
from fxgrad.lax.loops import scan, while_loop
from fxgrad.training.linear_systems import real_vector
from fxgrad.training.rosenbrock import rosenbrock_step, weighted_sum

__all__ = ["odeint"]

Field = Callable[..., Any]

# The pair of Dormand and Prince (1980), of orders 5 and 4: the last stage is at the result, and the first of the next.
NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
STAGES = ((1 / 5,), (3 / 40, 9 / 40), (44 / 45, -56 / 15, 32 / 9),
          (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
          (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
          (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84))
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
# Coefficients of the solution in the middle of a step to fourth order (Shampine, 1986), for half the step.
MIDDLE = (6025192743 / 30085553152, 0.0, 51252292925 / 65400821598, -2691868925 / 45128329728,
          187940372067 / 1594534317056, -1776094331 / 19743644256, 11237099 / 235043384)
SAFETY, GROWTH, SHRINKAGE = 0.9, 10.0, 0.2


@hide_frames
def odeint(func: Field, y0: Any, t: Any, *args: Any, rtol: float = 1.4e-8, atol: float = 1.4e-8,
           mxstep: float = math.inf, hmax: float = math.inf, adjoint: str | None = None,
           method: str = "runge-kutta", order: int = 12, sparse: Any = False) -> Any:
    """Return the solution of dy/dt = func(y, t, *args) with y = y0 at t[0], at each of the times `t`.

    The arguments are those of `jax.experimental.ode.odeint`. `y0` is an array or a container, and `func` returns one
    like it; `t` has the shape (n,) and increases strictly. The result is like `y0` with a first axis of size n. Steps
    are of Dormand and Prince's fifth order, as large as the local error allows: `atol + rtol * |y|` in the root mean
    square, and at most `hmax`. Half precision is solved in float32, in which `func` gets the state, and rounded at the
    end. `func` is not evaluated beyond the last time. Times that `mxstep` steps from the time
    before do not reach, times after a solution that is no longer finite, and those that need steps shorter than the
    spacing of the dtype of `t`, have NaN, and so have the gradients of values that depend on them.

    `method="rosenbrock"` is for stiff equations, whose fast motions decay and are not of interest: explicit steps are
    as short as these, however smooth the solution is. A step, of order 5 as well, solves eight linear systems with one
    matrix, made of the Jacobian of `func` (Rodas5P, Steinebach, 2023). Steps end at each of the times, so that many
    times are many steps. Systems are dense, with n^3 operations a step, unless
    `sparse=True`: then the Jacobian is computed from as few products as its pattern allows, and the systems are solved
    by SciPy's sparse factors; compiled, in a band, if some order of the rows makes a narrow one of the pattern. Blocks
    of the band exchange no rows, which is accurate where fast motions decay. `sparse` may also be a matrix or a
    `Pattern` that has all places that are not 0; a complex array has a row for each real part, then one for each
    imaginary part.

    With `method="taylor"` a step is the Taylor polynomial of the solution, of degree `order`, as long as its last terms
    allow (Jorba and Zou, 2005): fewer and longer steps for smooth `func` and small tolerances. `func` is traced, and
    must have derivatives of that order. Steps end at kinks, where the slope at the end is not that of the polynomial;
    `hmax` bounds them where `func` changes for a short time alone.

    Gradients are with respect to `y0`, `t`, `args`, and closed-over values of `func`. `adjoint` is "continuous" by
    default, and "discrete" for `method="rosenbrock"`, as stiff solutions cannot be followed backwards:

    - `adjoint="continuous"` solves another equation. Reverse mode solves the adjoint equation backwards in time: memory
      does not depend on the number of steps; solutions that decay fast grow backwards, and lose the gradient. Forward
      mode solves the sensitivity equation with the solution, dS/dt = (∂func/∂y) S + (∂func/∂args) dargs. Both are as
      accurate as the tolerances, tangents relative to the largest entry of those that are given.
    - `adjoint="discrete"` differentiates the steps that were taken, with the step sizes as constants: the gradient of
      the computed values. It has all modes and orders. NumPy keeps every step's state for the backward pass, XLA up to
      128 and recomputes the others.

    Raises `ArgumentError` for times that do not rise or are not finite, another `adjoint` or `method`, an order below
    2, a pattern that does not fit, or a `func` that does not take (y, t, *args), and `ShapeError` or `TreeError` for a
    `func` that returns something unlike `y0`.

    Chen et al., "Neural ordinary differential equations" (2018). Hairer, Nørsett and Wanner, Solving Ordinary
    Differential Equations I, I.14, has the sensitivity equation.

    >>> import numpy as np, fxgrad
    >>> def decayed(rate):
    ...     return fxgrad.odeint(lambda y, t, rate: -rate * y, 1.0, np.array([0.0, 1.0]), rate)[-1]
    >>> value, slope = fxgrad.value_and_grad(decayed)(0.5)
    >>> round(float(value), 7), round(float(slope), 7)  # exp(-0.5) and -exp(-0.5)
    (0.6065307, -0.6065307)
    >>> round(float(fxgrad.jvp(decayed, (0.5,), (1.0,))[1]), 7)
    -0.6065307
    >>> def fast(y, t):  # forgets its start within 1e-6, and follows the cosine
    ...     return -1e6 * (y - np.cos(t))
    >>> ends = fxgrad.odeint(fast, 0.0, np.array([0.0, 1.0, 2.0]), method="rosenbrock", mxstep=200)
    >>> bool(np.allclose(ends[1:], np.cos([1.0, 2.0]), atol=1e-5))
    True
    """
    @transformation("odeint", func)
    def solve(y0: Any, t: Any, *args: Any) -> Any:
        _check_arity(func, args)
        times = _check_times(t)
        _check_options(adjoint, method, order, sparse)
        start, unpack = real_vector(tree.map(_widened, y0))
        controls: tuple[Any, ...] = (rtol, atol, mxstep, hmax)
        # The equations that the derivatives solve are other ones, with patterns of their own.
        solve_steps, solve_derived = (_steps_of(method, order, each) for each in (sparse, False))

        def field(state: Any, time: Any, *given: Any) -> Any:
            y = unpack(state)
            slope = func(y, time, *given)
            _check_match(func, y, slope)
            return real_vector(slope)[0].astype(state.dtype)

        def given_field(state: Any, time: Any) -> Any:
            return field(state, time, *args)

        if sparse is not True and sparse is not False and start.size:
            _check_pattern(given_field, start, times[0], sparse)
        if adjoint == "discrete" or (adjoint is None and method == "rosenbrock"):
            states = solve_steps(given_field, start, times, controls)
        else:
            converted, captured = hoist_closure(field, (start, times[0], *args), of_integers=True)
            traced, known = ([each if (type(each) is Tracer) is wanted else None for each in controls]
                             for wanted in (True, False))
            solve_with = _with_derivatives(converted, known, solve_steps, solve_derived)
            states = solve_with(start, times, (*args, *captured), traced)
        solution = scan(lambda _, state: (None, unpack(state)), None, states)[1]
        return tree.map(lambda values, leaf: convert(values, aval_of(leaf).dtype) if _is_half(leaf) else values,
                        solution, y0)
    return solve(y0, t, *args)


def _check_options(adjoint: Any, method: Any, order: Any, sparse: Any) -> None:
    if adjoint not in (None, "continuous", "discrete"):
        raise ArgumentError(at_user_line(f"odeint: adjoint is {adjoint!r}; it is 'continuous' or 'discrete'"))
    if method not in ("runge-kutta", "taylor", "rosenbrock"):
        raise ArgumentError(at_user_line(
            f"odeint: method is {method!r}; it is 'runge-kutta', 'taylor', or 'rosenbrock' for stiff equations"))
    if isinstance(order, bool) or not isinstance(order, int) or order < 2:
        raise ArgumentError(at_user_line(f"odeint: order is {order!r}, where an integer of at least 2 is needed"))
    if method != "rosenbrock" and sparse is not False:
        raise ArgumentError(at_user_line(
            f"odeint: sparse is for the matrices of method='rosenbrock', and method is {method!r}. Leave it out, or "
            "pass method='rosenbrock'"))


def _check_pattern(field: Field, start: Any, time: Any, sparse: Any) -> None:
    """Raise `ArgumentError` if a pattern has another shape, or lacks an entry that is known at the start."""
    given_pattern("odeint", sparse, (start.size, start.size))
    jacobian(lambda state: field(state, time), sparse=sparse)(start)


def _steps_of(method: str, order: int, sparse: Any) -> Callable[..., Any]:
    if method == "taylor":
        return functools.partial(_solve_by_series, order)
    scheme = Scheme(_runge_kutta_step, _runge_kutta_value) if method == "runge-kutta" else Scheme(
        functools.partial(_rosenbrock_step, sparse, not is_staging()), None)
    return functools.partial(_solve_adaptive, scheme)


def _check_times(t: Any) -> Any:
    """Return the times as an array of floats; raise unless there are some, and they increase as far as is known."""
    times = as_array_operand(t)
    if fnp.ndim(times) != 1 or not fnp.size(times):
        raise ShapeError(at_user_line(
            f"odeint: t has the shape {fnp.shape(times)}, where a vector of times is needed, the first of them that of "
            "y0: np.array([t0, t1])"))
    if isinstance(times, np.ndarray) and not np.isfinite(np.asarray(times, float)).all():
        raise ArgumentError(at_user_line("odeint: a time is infinite or NaN, where finite ones are needed"))
    if isinstance(times, np.ndarray) and not (np.diff(np.asarray(times)) > 0).all():
        raise ArgumentError(at_user_line(
            "odeint: the times must rise strictly. To go backwards, solve dy/ds = -func(y, -s) at s = -t"))
    return _widened(times) if dtypes.is_floating(times.dtype) else times.astype(dtypes.float64)


def _is_half(x: Any) -> bool:
    dtype = aval_of(as_array_operand(x)).dtype
    return dtypes.is_floating(dtype) and dtype.itemsize < 4


def _widened(x: Any) -> Any:
    """Return half precision as float32: errors of steps are smaller than its roundings."""
    return convert(as_array_operand(x), dtypes.float32) if _is_half(x) else x


def _check_arity(func: Field, args: tuple[Any, ...]) -> None:
    """Raise `ArgumentError` unless `func(y, t, *args)` is a call that its signature, if it has one, allows."""
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):
        return  # some builtins have none
    try:
        signature.bind(None, None, *args)
    except TypeError as error:
        names = ["y", "t", *(f"args[{number}]" for number in range(len(args)))]
        raise ArgumentError(at_user_line(
            f"odeint: {function_name(func)} takes {signature}, and is called as func({', '.join(names)}): {error}. "
            "Write func(y, t, *args), with as many arguments as odeint(func, y0, t, *args) has args")) from None


def _check_match(func: Field, y: Any, slope: Any) -> None:
    given: Any = tree.structure(slope)
    needed: Any = tree.structure(y)
    if given != needed:
        raise TreeError(at_user_line(
            f"odeint: {function_name(func)} returned the structure {given}, and y0 has {needed}; it must return dy/dt, "
            "which is like y0"))
    for one, other in zip(tree.leaves(slope), tree.leaves(y), strict=True):
        if fnp.shape(one) != fnp.shape(other):
            raise ShapeError(at_user_line(
                f"odeint: {function_name(func)} returned an array of shape {fnp.shape(one)} for a part of y0 of shape "
                f"{fnp.shape(other)}; it must return dy/dt, which is like y0"))


# --- steps ----------------------------------------------------------------------------------------------------------


def _runge_kutta_step(field: Field, state: Any, slope: Any, time: Any, size: Any) -> tuple[Any, Any, Any, Any]:
    stages = [slope]  # the seven slopes of a step
    for node, weights in zip(NODES, STAGES, strict=True):
        stages.append(field(state + _sum(weights, stages, size), time + node * size))
    moved = state + _sum(STAGES[-1], stages[:-1], size)
    return moved, stages[-1], _sum(ERROR, stages, size), (slope, state + _sum(MIDDLE, stages, 0.5 * size))


def _rosenbrock_step(sparse: Any, by_scipy: bool, field: Field, state: Any, slope: Any, time: Any, size: Any,
                     ) -> tuple[Any, Any, Any, Any]:
    moved, error = rosenbrock_step(field, sparse, by_scipy, state, slope, time, size)
    return moved, field(moved, time + size), error, ()


class Scheme(NamedTuple):
    """Steps of order 5 with an error of order 4.

    `step(field, state, slope, time, size)` returns the state and the slope after the step, the error, and two arrays
    for `interpolate(low, high, end_slope, inner, x, size)`, the solution at the fraction `x` of the step. Without
    `interpolate` steps end at the times: the error of a step bounds nothing within a long step of a stiff equation.
    """

    step: Callable[..., tuple[Any, Any, Any, Any]]
    interpolate: Callable[..., Any] | None


def _solve_adaptive(scheme: Scheme, field: Field, start: Any, times: Any, controls: Sequence[Any]) -> Any:
    """Return the states at the times, shape (n, size), by steps whose sizes have no derivative."""
    rtol, atol, mxstep, hmax = controls
    last, dtype = stop_gradient(times[-1]), start.dtype

    def advance(carry: Any, target: Any) -> Any:
        count, (state, slope, time, wanted), before = carry
        now = stop_gradient(time)
        planned = (now + wanted) - now  # by which the time moves: its dtype rounds every sum
        if scheme.interpolate is None:
            is_last = time + planned >= target
            size = fnp.where(is_last, target - time, planned)
        else:
            size = fnp.minimum(planned, last - now)
        moved, end_slope, error, inner = scheme.step(field, state, slope, time, size)
        error, limit = (stop_gradient(value) for value in (
            error, atol + rtol * fnp.maximum(fnp.abs(state), fnp.abs(moved))))
        ratio = _norm(error / limit) if start.size else fnp.asarray(0.0, dtype)
        accepted = ratio <= 1.0
        # Of what was wanted, where that was rounded up: a rejected step is followed by a shorter one.
        following = _next_size(fnp.minimum(stop_gradient(size), wanted), ratio, hmax)
        end = time + size
        if scheme.interpolate is None:  # a step cut short says nothing against the planned one
            end = fnp.where(is_last, target, end)
            following = fnp.where(is_last & accepted, fnp.maximum(following, planned), following)
        new = (moved, end_slope, end, following), (state, inner, time) if scheme.interpolate else ()
        old = (state, slope, time, following), before
        return count + 1, *tree.map(lambda one, other: fnp.where(accepted, one, other), new, old)

    def reach(carry: Any, target: Any) -> Any:
        def goes_on(carry: Any) -> Any:
            count, (_, _, time, size), _ = carry
            on = (time < target) & (time + size > time)
            return on if mxstep == math.inf else on & (count < mxstep)

        _, now, before = while_loop(goes_on, lambda carry: advance(carry, target), (np.int64(0), *carry))
        state = (_interpolate(scheme.interpolate, before, now, target) if scheme.interpolate else now[0]).astype(dtype)
        return (now, before), _nan_unless(now[2] >= target, state)

    slope = field(start, times[0])
    time = times[0]
    size = stop_gradient(_first_size(field, start, slope, time, controls)).astype(times.dtype)
    size = fnp.maximum(size, 10 * fnp.spacing(fnp.abs(stop_gradient(time))))  # a shorter one would not move the time
    carry = (start, slope, time, fnp.minimum(size, hmax).astype(times.dtype)), (
        (start, (slope, start), time) if scheme.interpolate else ())
    _, states = scan(reach, carry, times[1:])
    return fnp.concatenate([start[None], states])


def _nan_unless(reached: Any, state: Any) -> Any:
    """Return the state with its derivatives where it is reached; elsewhere NaN, with derivatives that are NaN, not 0.

    The product is strong: an unreached state that nothing depends on adds no NaN to a gradient.
    """
    factor = fnp.where(reached, 1.0, math.nan).astype(state.dtype)
    return strong_mul(state, factor) + fnp.where(reached, 0.0, math.nan).astype(state.dtype)


def _sum(weights: Sequence[float], stages: Sequence[Any], size: Any) -> Any:
    """Return size · Σ weight · stage, in the dtype of the stages."""
    return fnp.asarray(size).astype(stages[0].dtype) * weighted_sum(weights, stages)


def _norm(x: Any) -> Any:
    return fnp.sqrt(fnp.mean(x * x))


def _next_size(size: Any, ratio: Any, hmax: Any) -> Any:
    """Return the next step size by the error; no larger after a rejected step, NaN after a non-finite one."""
    least = fnp.where(ratio < 1.0, 1.0, SHRINKAGE)
    safe = fnp.where(ratio == 0.0, 1.0, ratio)
    factor = fnp.minimum(GROWTH, fnp.maximum(SAFETY * safe ** -0.2, least))
    factor = fnp.where(ratio == 0.0, GROWTH, factor)
    return fnp.minimum(size * factor.astype(size.dtype), hmax).astype(size.dtype)


def _first_size(field: Field, state: Any, slope: Any, time: Any, controls: Sequence[Any]) -> Any:
    """Return a small first step (Hairer, Nørsett and Wanner, Solving Ordinary Differential Equations I, II.4)."""
    if not state.size:
        return fnp.asarray(1.0)
    rtol, atol, *_ = controls
    scale = atol + fnp.abs(state) * rtol
    of_state, of_slope = _norm(state / scale), _norm(slope / scale)
    small = (of_state < 1e-5) | (of_slope < 1e-5)
    trial = fnp.where(small, 1e-6, 0.01 * of_state / fnp.where(small, 1.0, of_slope))
    bend = _norm((field(state + trial * slope, time + trial.astype(time.dtype)) - slope) / scale) / trial
    largest = fnp.maximum(of_slope, bend)
    flat = largest <= 1e-15
    size = fnp.where(flat, fnp.maximum(1e-6, trial * 1e-3), (0.01 / fnp.where(flat, 1.0, largest)) ** 0.2)
    return fnp.minimum(100.0 * trial, size)


def _interpolate(interpolate: Callable[..., Any], before: Any, now: Any, target: Any) -> Any:
    """Return the state at `target`, within the last step."""
    (low, inner, start), (high, end_slope, end, _) = before, now
    size = end - start
    x = ((target - start) / fnp.where(size == 0, 1, size)).astype(low.dtype)
    return interpolate(low, high, end_slope, inner, x, size.astype(low.dtype))


def _runge_kutta_value(low: Any, high: Any, end_slope: Any, inner: Any, x: Any, size: Any) -> Any:
    """Return the value at `x` of the quartic through the states, slopes and middle of a step."""
    slope, middle = inner
    first, last = size * slope, size * end_slope
    quartic = 2.0 * (last - first) - 8.0 * (high + low) + 16.0 * middle
    cubic = 5.0 * first - 3.0 * last + 18.0 * low + 14.0 * high - 32.0 * middle
    square = last - 4.0 * first - 11.0 * low - 5.0 * high + 16.0 * middle
    return low + x * (first + x * (square + x * (cubic + x * quartic)))


# --- steps by series -------------------------------------------------------------------------------------------------


def _solve_by_series(order: int, field: Field, start: Any, times: Any, controls: Sequence[Any]) -> Any:
    """Return the states at the times, shape (n, size), by Taylor polynomials whose lengths have no derivative."""
    rtol, atol, mxstep, hmax = controls
    body = trace_body("odeint", field, field, [aval_of(start).strong(), aval_of(times[0]).strong()], ["y", "t"])
    series = solution_program(body.program, order)

    def expand(state: Any, time: Any) -> tuple[Any, Any]:
        """Return the coefficients of the solution from here on, and the time to which they serve."""
        terms = series([*body.captured, state, time])
        scale = atol + rtol * fnp.abs(state)
        sizes = [SAFETY * fnp.where(size == 0, math.inf, size ** (-1.0 / level)) for level in (order - 1, order)
                 for size in [_norm(stop_gradient(terms[level - 1] / scale)) if start.size else fnp.asarray(0.0)]]
        size = functools.reduce(fnp.minimum, [*sizes, hmax, times[-1] - time]).astype(times.dtype)
        coefficients = fnp.stack([state, *terms])
        if start.size:
            size = stop_gradient(up_to_kinks(*stop_gradient((coefficients, time, size, scale))))
        return coefficients, time + size

    def up_to_kinks(coefficients: Any, time: Any, size: Any, scale: Any) -> Any:
        """Return the length halved until the polynomial's slope at its end is that of the field.

        Coefficients tell nothing of a kink, or of anything else that is not analytic, before the end.
        """
        def is_off(size: Any) -> Any:
            ago = size.astype(start.dtype)
            slope = functools.reduce(lambda total, level: total * ago + level * coefficients[level],
                                     range(order - 1, 0, -1), order * coefficients[order])
            defect = field(value(coefficients, size), time + size) - slope
            return ~(_norm(ago * defect / scale) <= order) & (time + size > time)
        return while_loop(is_off, lambda size: size / 2, size)

    def value(coefficients: Any, ago: Any) -> Any:
        ago = ago.astype(start.dtype)
        return functools.reduce(lambda total, term: total * ago + term, reversed([*coefficients]))

    def advance(carry: Any) -> Any:
        count, (coefficients, begin, end) = carry
        moved = value(coefficients, end - begin)
        terms, following = expand(moved, end)
        return count + 1, (terms, end, following)

    def reach(carry: Any, target: Any) -> Any:
        def goes_on(carry: Any) -> Any:
            count, (_, begin, end) = carry
            on = (end < target) & (end > begin)
            return on if mxstep == math.inf else on & (count < mxstep)

        _, now = while_loop(goes_on, advance, (np.int64(0), carry))
        coefficients, begin, end = now
        return now, _nan_unless(end >= target, value(coefficients, target - begin))

    terms, end = expand(start, times[0])
    _, states = scan(reach, (terms, times[0], end), times[1:])
    return fnp.concatenate([start[None], states])


# --- the equations of the derivatives --------------------------------------------------------------------------------


def _with_derivatives(field: Field, known: Sequence[Any], solve_steps: Callable[..., Any],
                      solve_derived: Callable[..., Any]) -> Callable[..., Any]:
    """Return the solution as a function of first state, times, arguments, and the controls that are not `known`.

    Its gradient solves the adjoint equation, and its tangent the sensitivity equation. They may run after the function
    around `odeint` has been recorded, so that `field` closes over no traced value.
    """
    def all_controls(traced: Sequence[Any]) -> list[Any]:
        return [one if other is None else other for one, other in zip(known, traced, strict=True)]

    def odeint_with_the_continuous_adjoint(start: Any, times: Any, args: Any, traced: Any) -> Any:  # as messages say
        return solve_steps(lambda state, time: field(state, time, *args), start, times, all_controls(traced))

    def forward(start: Any, times: Any, args: Any, traced: Any) -> Any:
        states = odeint_with_the_continuous_adjoint(start, times, args, traced)
        return states, (states, times, args, traced)

    def backward(residuals: Any, cotangents: Any) -> Any:
        states, times, args, traced = residuals
        leaves, structure = tree.flatten(args)
        moving = [dtypes.is_inexact(fnp.result_type(leaf)) for leaf in leaves]
        dynamics, parameters = _in_moving(field, args, moving)
        parameters = [*map(as_array_operand, parameters)]
        # On a mesh each device follows its own solution. Derivatives in what all devices share are added up at the end.
        axes = {name for each in (states, cotangents, *parameters) for name in aval_of(each).vma}
        parameters = [pvary(each, [*axes]) for each in parameters]
        d_state, d_times, d_found = _solve_backwards(dynamics, parameters, states, times, cotangents,
                                                     all_controls(traced), solve_derived)
        found = iter(d_found)
        return d_state, d_times, tree.unflatten(structure, [
            next(found).astype(fnp.result_type(leaf)) if moves else None for moves, leaf in
            zip(moving, leaves, strict=True)]), None

    def tangents(residuals: Any, moved: Any) -> Any:
        states, times, args, traced = residuals
        t_start, t_times, t_args, _ = moved
        t_leaves = tree.leaves(t_args)
        moving = [type(leaf) is not Zero for leaf in t_leaves]

        def both(state: Any, time: Any, args: Any, t_parameters: Any) -> Any:
            """Return the slopes of the solution and of its tangent."""
            y, t_y = fnp.split(state, 2)
            dynamics, parameters = _in_moving(field, args, moving)
            return fnp.concatenate(jvp(lambda y, *given: dynamics(y, time, *given), (y, *parameters),
                                       (t_y, *t_parameters)))

        def solve_both(first: Any, given: Any) -> Any:
            solve = _with_derivatives(both, known, solve_derived, solve_derived)
            return fnp.split(solve(fnp.concatenate([states[0], first]), times, (args, given), traced), 2, axis=1)[1]

        t_start = instantiate_zeros(t_start)
        slopes = None if type(t_times) is Zero else scan(
            lambda _, entry: (None, field(*entry, *args)), None, (states, times))[1] * (
                t_times.astype(states.dtype)[:, None])
        # A first time that is later leaves out a piece of the way, a later time moves its state along the slope.
        first = t_start if slopes is None else t_start - slopes[0]
        t_states = _homogeneous(solve_both, first, [*itertools.compress(t_leaves, moving)])[1:]
        t_states = t_states if slopes is None else t_states + slopes[1:]
        return fnp.concatenate([t_start[None], _nan_unless(~fnp.isnan(states[1:]), t_states)])

    solve = custom_vjp(odeint_with_the_continuous_adjoint)
    solve.defvjp(forward, backward)
    solve.tangents = tangents
    return solve


def _in_moving(field: Field, args: Any, moving: Sequence[bool]) -> tuple[Field, list[Any]]:
    """Return `field` as a function of state, time and those leaves of `args` that `moving` marks, and these leaves."""
    leaves, structure = tree.flatten(args)

    def dynamics(state: Any, time: Any, *parameters: Any) -> Any:
        found = iter(parameters)
        return field(state, time, *tree.unflatten(structure, [
            next(found) if moves else leaf for moves, leaf in zip(moving, leaves, strict=True)]))
    return dynamics, [*itertools.compress(leaves, moving)]


def _homogeneous(tangent: Callable[..., Any], first: Any, given: Sequence[Any]) -> Any:
    """Return `tangent(first, given)`, which is linear, computed for the multiple of these whose largest entry is 1.

    The absolute tolerance is for values of that size: of small tangents it would leave no digit.
    """
    sizes = [fnp.max(fnp.abs(each), initial=0.0) for each in (first, *given)]
    size = stop_gradient(functools.reduce(fnp.maximum, sizes))
    size = fnp.where(size == 0.0, 1.0, size)
    first, *given = ((each / size).astype(fnp.result_type(each)) for each in (first, *given))
    found = tangent(first, given)
    return (found * size).astype(found.dtype)


def _solve_backwards(field: Field, parameters: list[Any], states: Any, times: Any, cotangents: Any,
                     controls: Sequence[Any], solve_steps: Callable[..., Any]) -> tuple[Any, Any, list[Any]]:
    """Return the cotangents of the first state, the times and the parameters, stepping backwards from time to time."""
    def piece(carry: Any, entry: Any) -> Any:
        adjoint, d_parameters = carry
        state, end, begin, arriving = entry
        # A later time moves its state along the slope; earlier states do not change.
        d_time = fnp.sum(field(state, end, *parameters) * arriving).astype(times.dtype)
        packed, unpack = real_vector((state, adjoint + arriving, d_parameters))

        def turned(packed: Any, ago: Any) -> Any:
            y, a, _ = unpack(packed)
            slope, pullback = vjp(lambda y, *given: field(y, -ago, *given), y, *parameters)
            d_y, *d_rest = pullback(a)
            return real_vector((-slope, d_y, d_rest))[0].astype(packed.dtype)

        _, adjoint, d_parameters = unpack(solve_steps(turned, packed, fnp.stack([-end, -begin]), controls)[1])
        return (adjoint, d_parameters), d_time

    init = fnp.zeros_like(states[0]), [fnp.zeros_like(each) for each in parameters]
    entries = states[1:], times[1:], times[:-1], cotangents[1:]
    (adjoint, d_parameters), d_times = scan(piece, init, entries, reverse=True)
    # A first time that is later leaves out a piece of the way.
    d_first = -fnp.sum(field(states[0], times[0], *parameters) * adjoint).astype(times.dtype)
    return adjoint + cotangents[0], fnp.concatenate([d_first[None], d_times]), d_parameters
