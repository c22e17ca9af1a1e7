"""Initial value problems: solutions and both gradients against closed forms, jax's solver and each other."""

from __future__ import annotations

import tracemalloc
from typing import Any

import jax
import numpy as np
import pytest
import scipy.integrate
from jax.experimental.ode import odeint as odeint_of_jax

import fxgrad
from fxgrad import dtypes, odeint
from fxgrad.errors import ArgumentError, ShapeError, TreeError

ADJOINTS = ["continuous", "discrete"]
MATRIX = np.array([[-0.5, 1.0], [-1.0, -0.3]])
START, TIMES = np.array([1.0, 2.0]), np.array([0.0, 0.5, 1.2, 3.0])
WEIGHTS = np.arange(8.0).reshape(4, 2)


def forced(y: Any, t: Any, a: Any) -> Any:
    """A linear equation whose field depends on time."""
    return a @ y * (1.0 + 0.1 * t * t)


def weighed(solver: Any, **options: Any) -> Any:
    return lambda y0, t, a: (WEIGHTS * solver(forced, y0, t, a, **options)).sum()


@pytest.mark.slow
@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_an_exponential(adjoint: str) -> None:
    def end(y0, rate, t):
        return odeint(lambda y, _, k: k * y, y0, [0.0, t], rate, rtol=1e-6, atol=1e-6, adjoint=adjoint)[-1]

    value, slopes = fxgrad.value_and_grad(end, (0, 1, 2))(2.0, -0.7, 1.5)
    decay = np.exp(-0.7 * 1.5)
    np.testing.assert_allclose([value, *slopes], [2 * decay, decay, 3 * decay, -1.4 * decay], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_row_a13_gradients_are_jaxs(adjoint: str) -> None:
    """In the first state, all times and the parameters, of a field that depends on time; both executors."""
    with jax.enable_x64(True):
        expected = jax.jit(jax.value_and_grad(weighed(odeint_of_jax), (0, 1, 2)))(START, TIMES, MATRIX)
    ours = fxgrad.value_and_grad(weighed(odeint, adjoint=adjoint), (0, 1, 2))
    for found in (ours(START, TIMES, MATRIX), fxgrad.jit(ours)(START, TIMES, MATRIX)):
        for one, other in zip(fxgrad.tree.leaves(found), fxgrad.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_row_a13_the_adjoints_agree_to_tolerance() -> None:
    """Their difference falls with the tolerance, and both go to the gradient of the closed form."""
    def logistic(rate):  # y' = r y (1 - y)
        return 0.1 * np.exp(2 * rate) / (1 + 0.1 * (np.exp(2 * rate) - 1))

    exact = fxgrad.grad(logistic)(1.3)
    errors = []
    for tolerance in (1e-4, 1e-7, 1e-10):
        found = [fxgrad.grad(lambda r, adjoint=adjoint, tolerance=tolerance: odeint(
            lambda y, _, r: r * y * (1 - y), 0.1, np.array([0.0, 2.0]), r, rtol=tolerance, atol=tolerance,
            adjoint=adjoint)[-1])(1.3) for adjoint in ADJOINTS]
        errors.append([abs(float(slope - exact)) for slope in found])
        assert max(errors[-1]) < 100 * tolerance
    assert np.all(np.asarray(errors[-1]) < 1e-4 * np.asarray(errors[0]))


@pytest.mark.slow
def test_the_discrete_adjoint_is_the_derivative_of_the_steps_taken() -> None:
    """With coarse steps it is not the derivative of the solution, and it is that of the polynomial they compute."""
    def end(rate, adjoint):
        return odeint(lambda y, _, k: k * y, 1.0, np.array([0.0, 1.0]), rate, rtol=0.3, atol=0.3, adjoint=adjoint)[-1]

    value, slope = fxgrad.value_and_grad(end)(-1.0, "discrete")
    numeric = (end(-1.0 + 1e-6, "discrete") - end(-1.0 - 1e-6, "discrete")) / 2e-6
    assert abs(float(value) - np.exp(-1)) > 1e-5
    # The first step's size depends on the rate a little, and the result on it as little as the error does.
    np.testing.assert_allclose(slope, numeric, rtol=5e-3)
    forward = fxgrad.jvp(lambda rate: end(rate, "discrete"), (-1.0,), (1.0,))[1]
    np.testing.assert_allclose(forward, slope, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_containers_closures_and_integers(adjoint: str) -> None:
    """The harmonic oscillator as a dict, its frequency closed over; an integer argument has no gradient."""
    times = np.array([0.0, 0.4, 1.0])

    def place(frequency, count):
        def field(y, _, k):
            return {"x": y["v"], "v": -frequency ** 2 * y["x"] * k}
        return odeint(field, {"x": np.ones(2), "v": np.zeros(2)}, times, count, adjoint=adjoint)["x"][:, 1]

    np.testing.assert_allclose(place(2.0, 1), np.cos(2 * times), rtol=1e-6)
    slope = fxgrad.grad(lambda w: fxgrad.numpy.sum(place(w, np.int32(1))))(2.0)
    np.testing.assert_allclose(slope, -np.sum(times * np.sin(2 * times)), rtol=1e-6)
    tangent = fxgrad.jacfwd(lambda w: place(w, np.int32(1)))(2.0)
    np.testing.assert_allclose(tangent, -times * np.sin(2 * times), rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_batches_and_second_order(adjoint: str) -> None:
    def end(rate):
        return odeint(lambda y, _, k: k * y, 1.0, np.array([0.0, 1.0]), rate, rtol=1e-6, atol=1e-6, adjoint=adjoint)[-1]

    rates = np.array([-3.0, -0.1, 0.5])
    np.testing.assert_allclose(fxgrad.vmap(fxgrad.grad(end))(rates), np.exp(rates), rtol=1e-4)
    if adjoint == "continuous":  # of loops, which the other is made of, it is tested elsewhere
        np.testing.assert_allclose(fxgrad.jvp(fxgrad.grad(end), (0.5,), (1.0,))[1], np.exp(0.5), rtol=1e-4)


@pytest.mark.slow
def test_complex_states_and_narrow_dtypes() -> None:
    times = np.array([0.0, 1.0, 2.0])
    turned = odeint(lambda y, _: 1j * y, np.array([1.0 + 0j, 2.0]), times)
    np.testing.assert_allclose(turned[:, 0], np.exp(1j * times), rtol=1e-6)
    single = odeint(lambda y, _: -y, np.ones(2, np.float32), times.astype(np.float32), rtol=1e-5, atol=1e-5)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single[:, 0], np.exp(-times), rtol=1e-4)
    assert odeint(lambda y, _: -y, 1, [0, 1]).dtype == np.float64


def through_a_cosine(point: Any, solver: Any = odeint, **options: Any) -> Any:
    """The end of y' = k y cos(t) as a function of first value, rate, first and last time."""
    return solver(lambda y, t, k: k * y * np.cos(t), point[0], np.stack([point[2], point[3]]), point[1], rtol=1e-9,
                  atol=1e-9, **options)[-1]


def through_a_cosine_exactly(point: Any) -> Any:
    return point[0] * np.exp(point[1] * (np.sin(point[3]) - np.sin(point[2])))


POINT, DIRECTION = np.array([1.3, 0.8, 0.2, 1.4]), np.array([0.3, 0.2, 0.5, 0.1])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["runge-kutta", "taylor", "rosenbrock"])
def test_tangents_solve_the_sensitivity_equation(method: str) -> None:
    """In the first state, all times and a matrix: SciPy's solution, differences, and the tangent of the steps."""
    rng = np.random.default_rng(0)
    primals = START, TIMES, MATRIX
    tangents = [rng.normal(size=np.shape(each)) for each in primals]

    def solve(y0: Any, t: Any, a: Any, adjoint: str = "continuous") -> Any:
        return odeint(forced, y0, t, a, rtol=1e-10, atol=1e-10, method=method, adjoint=adjoint)

    def both(t: Any, state: Any) -> Any:
        y, s = state[:2], state[2:]
        return np.concatenate([forced(y, t, MATRIX), forced(s, t, MATRIX) + forced(y, t, tangents[2])])

    first = tangents[0] - forced(START, TIMES[0], MATRIX) * tangents[1][0]
    found = scipy.integrate.solve_ivp(both, TIMES[[0, -1]], np.concatenate([START, first]), t_eval=TIMES, rtol=1e-12,
                                      atol=1e-12, method="DOP853").y.T
    slopes = np.stack([forced(y, t, MATRIX) for y, t in zip(found[:, :2], TIMES, strict=True)])
    expected = found[:, 2:] + slopes * tangents[1][:, None]

    value, tangent = fxgrad.jvp(solve, primals, tangents)
    np.testing.assert_array_equal(value, solve(*primals))
    np.testing.assert_array_equal(tangent[0], tangents[0])
    np.testing.assert_allclose(tangent, expected, atol=3e-8)
    of_steps = fxgrad.jvp(lambda *given: solve(*given, "discrete"), primals, tangents)[1]
    np.testing.assert_allclose(of_steps, tangent, atol=3e-8)
    ahead, behind = (solve(*(each + step * along for each, along in zip(primals, tangents, strict=True)))
                     for step in (1e-5, -1e-5))
    np.testing.assert_allclose((ahead - behind) / 2e-5, tangent, atol=3e-8)
    compiled = fxgrad.jit(lambda *given: fxgrad.jvp(solve, given, tangents))(*primals)
    np.testing.assert_allclose(compiled[0], value, rtol=1e-12)
    np.testing.assert_allclose(compiled[1], tangent, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("outer", [fxgrad.jacfwd, fxgrad.jacrev])
@pytest.mark.parametrize("inner", [fxgrad.jacfwd, fxgrad.jacrev])
def test_hessians_in_all_orders_of_modes(outer: Any, inner: Any) -> None:
    expected = fxgrad.hessian(through_a_cosine_exactly)(POINT)
    found = outer(inner(through_a_cosine))
    np.testing.assert_allclose(found(POINT), expected, atol=1e-7)
    np.testing.assert_allclose(fxgrad.jit(found)(POINT), expected, atol=1e-7)


@pytest.mark.slow
def test_higher_orders_of_forward_mode() -> None:
    def thrice(f: Any) -> Any:
        def along(f: Any) -> Any:
            return lambda point: fxgrad.jvp(f, (point,), (DIRECTION,))[1]
        return fxgrad.value_and_grad(along(along(f)))(POINT)

    for one, other in zip(thrice(through_a_cosine), thrice(through_a_cosine_exactly), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)
    series = (DIRECTION, 2 * DIRECTION, -DIRECTION),
    found, expected = (fxgrad.jet(f, (POINT,), series)[1] for f in (through_a_cosine, through_a_cosine_exactly))
    np.testing.assert_allclose(found, expected, atol=1e-7)


@pytest.mark.slow
def test_tangents_are_linear_at_any_size() -> None:
    """The tolerances are for values near 1: tangents much smaller keep their digits, those much larger take no time."""
    slope = fxgrad.grad(through_a_cosine_exactly)(POINT)
    _, push = fxgrad.linearize(through_a_cosine, POINT)
    for size in (1e-200, 1e-13, 1.0, 1e13):
        np.testing.assert_allclose(push(size * DIRECTION) / size, slope @ DIRECTION, rtol=1e-8)
    assert push(np.zeros(4)) == 0.0
    np.testing.assert_allclose(fxgrad.linear_transpose(push, POINT)(1.0)[0], slope, rtol=1e-8)
    # At rest, the solution asks for no short steps.
    at_rest = fxgrad.jvp(lambda y0: odeint(lambda y, t: -y, y0, np.array([0.0, 5.0]))[-1], (0.0,), (1e-12,))[1]
    np.testing.assert_allclose(at_rest, 1e-12 * np.exp(-5.0), rtol=1e-5)


@pytest.mark.slow
def test_batches_and_loops_of_tangents() -> None:
    points = np.stack([POINT, 1.1 * POINT, 0.7 * POINT])

    def along(f: Any) -> Any:
        return lambda point: fxgrad.jvp(f, (point,), (DIRECTION,))[1]

    def with_a_shared_rate(f: Any) -> Any:
        batch = fxgrad.vmap(lambda y, k: f(np.stack([y, k, 0.2, 1.4])), in_axes=(0, None))
        return fxgrad.jacfwd(lambda k: batch(points[:, 0], k))(0.8)

    def repeated(f: Any) -> Any:
        return lambda k: fxgrad.lax.scan(lambda y, _: (f(np.stack([y, k, 0.2, 1.4])), None), 1.0, None, length=2)[0]

    expected = fxgrad.vmap(along(through_a_cosine_exactly))(points)
    np.testing.assert_allclose(fxgrad.vmap(along(through_a_cosine))(points), expected, atol=1e-8)
    batch = fxgrad.vmap(lambda point: through_a_cosine(point))
    of_batch = fxgrad.jvp(batch, (points,), (np.stack([DIRECTION] * 3),))[1]
    np.testing.assert_allclose(of_batch, expected, atol=1e-8)
    np.testing.assert_allclose(with_a_shared_rate(through_a_cosine), with_a_shared_rate(through_a_cosine_exactly),
                               atol=1e-8)
    loops = [fxgrad.jacfwd(repeated(f)) for f in (through_a_cosine, through_a_cosine_exactly)]
    np.testing.assert_allclose(loops[0](0.3), loops[1](0.3), atol=1e-8)
    np.testing.assert_allclose(fxgrad.jit(loops[0])(0.3), loops[1](0.3), atol=1e-8)


@pytest.mark.slow
def test_tangents_of_traced_controls_and_closed_over_integers() -> None:
    """The rule runs when the tangent is computed, after the function around it has been recorded."""
    def tangent(count: Any, rtol: Any, hmax: Any) -> Any:
        def end(rate: Any) -> Any:
            return odeint(lambda y, t: -rate * count * y, 1.0, np.array([0.0, 1.0]), rtol=rtol, hmax=hmax)[-1]
        return fxgrad.jvp(end, (0.5,), (1.0,))[1]

    given = np.int32(2), 1e-8, 0.5
    for found in (tangent(*given), fxgrad.jit(tangent)(*given), fxgrad.make_program(tangent)(*given)(*given)):
        np.testing.assert_allclose(found, -2.0 * np.exp(-1.0), rtol=1e-7)
    np.testing.assert_allclose(fxgrad.lax.scan(lambda c, n: (c, tangent(n, 1e-8, 0.5)), 0, np.arange(1, 3))[1],
                               [-np.exp(-0.5), -2.0 * np.exp(-1.0)], rtol=1e-7)


@pytest.mark.slow
def test_tangents_of_complex_and_narrow_states() -> None:
    times = np.array([0.0, 1.0, 2.0])
    given, along, starts = (0.3 + 1j, 1.0 + 0.5j), (0.2 - 1j, 0.3 + 0j), np.array([1.0, 2.0 + 0j])
    found = fxgrad.jvp(lambda w, z: odeint(lambda y, _, w: w * y, z * starts, times, w), given, along)[1]
    exact = fxgrad.jvp(lambda w, z: np.exp(w * times)[:, None] * z * starts, given, along)[1]
    np.testing.assert_allclose(found, exact, atol=3e-7)
    single = fxgrad.jacfwd(lambda k: odeint(lambda y, _, k: -k * y, np.ones(2, np.float32), times.astype(np.float32), k,
                                            rtol=1e-5, atol=1e-5))(np.float32(0.5))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single[:, 0], -times * np.exp(-0.5 * times), atol=1e-4)

    def turned(w: Any) -> Any:
        return odeint(lambda y, _, w: w @ y, np.ones(2, np.float32), np.float32([0, 1]), w, rtol=1e-3, atol=1e-3)[-1]
    w = MATRIX.astype(np.float32)
    tangent, cast = (fxgrad.jvp(f, (w,), (w,))[1] for f in (turned, fxgrad.autocast(turned)))
    assert cast.dtype == np.float32
    np.testing.assert_allclose(cast, tangent, atol=0.05)  # products in bfloat16


@pytest.mark.slow
@pytest.mark.parametrize("method", ["runge-kutta", "taylor", "rosenbrock"])
@pytest.mark.parametrize("half", [np.float16, dtypes.bfloat16])
def test_half_precision_is_solved_in_float32(half: Any, method: str) -> None:
    times = np.linspace(0, 5, 6).astype(half)
    start, rate = {"y": np.array([1.0, 0.5], half), "n": np.float32(2.0)}, np.array(0.5, half)

    def solve(start: Any, rate: Any) -> Any:
        return odeint(lambda state, t, rate: {"y": -rate * state["y"], "n": 0.0 * state["n"]}, start, times, rate,
                      method=method)

    exact = np.exp(-0.5 * times.astype(float))[:, None] * start["y"].astype(float)
    for found in (solve(start, rate), fxgrad.jit(solve)(start, rate)):
        assert found["y"].dtype == half
        assert found["n"].dtype == np.float32
        np.testing.assert_allclose(found["y"].astype(float), exact, rtol=float(dtypes.finfo(half).eps))
    slope = fxgrad.grad(lambda rate: np.sum(solve(start, rate)["y"][-1]))(rate)
    assert slope.dtype == half
    np.testing.assert_allclose(float(slope), -5 * exact[-1].sum(), rtol=2 * float(dtypes.finfo(half).eps))


@pytest.mark.slow
def test_what_is_not_reached_is_nan() -> None:
    def field(y, _):
        return y * y  # goes to infinity at 1

    found = odeint(field, 1.0, np.array([0.0, 0.5, 2.0]), rtol=1e-4, atol=1e-4, mxstep=40)
    np.testing.assert_allclose(found[:2], [1.0, 2.0], rtol=1e-3)
    assert np.isnan(found[2])


FAILING = {"too few steps": (2.0, 1.0, 3), "blowing up": (-16.0, 1.0, np.inf),
           "a parameter of NaN": (np.nan, 1.0, np.inf), "a state of NaN": (2.0, np.nan, np.inf)}


@pytest.mark.parametrize("method", ["runge-kutta", "rosenbrock"])
def test_steps_are_as_long_as_the_times_between_them(method: str) -> None:
    """The dtype of the times rounds them; a state that moves by more or less than the time is off by the sum."""
    times = np.array([1000, 1001], np.float32)
    clock = odeint(lambda y, t: np.ones_like(y), 0.0, times, hmax=0.01, method=method)
    np.testing.assert_allclose(clock, [0.0, 1.0], rtol=1e-12)
    # The first step that the equation asks for is shorter than the spacing of times there, the following are not.
    steady = odeint(lambda y, t: 1e-3 * y, 1.0, times * np.float32(1e3), rtol=1e-3, atol=1e-3, method=method)
    np.testing.assert_allclose(steady, [1.0, np.exp(1.0)], rtol=1e-3)


@pytest.mark.parametrize("method", ["runge-kutta", "taylor", "rosenbrock"])
def test_steps_that_do_not_move_the_time_end_the_solution(method: str) -> None:
    times = np.array([1e7, 1e7 + 10], np.float32)  # 1 apart
    turning = odeint(lambda y, t: 10 * np.stack([y[1], -y[0]]), np.array([0.0, 1.0]), times, method=method)
    np.testing.assert_array_equal(turning, [[0.0, 1.0], [np.nan, np.nan]])


@pytest.mark.slow
@pytest.mark.parametrize("adjoint", ["discrete", "continuous"])
def test_gradients_of_what_is_nan_are_nan(adjoint: str) -> None:
    def last(k, y0, t, mxstep):
        return fxgrad.odeint(lambda y, t: -k * y * y, y0, t, mxstep=mxstep, adjoint=adjoint)[-1]

    for f in (last, fxgrad.jit(last, static_argnums=3)):
        gradient = fxgrad.value_and_grad(f, argnums=(0, 1, 2))
        for name, (k, y0, mxstep) in FAILING.items():
            value, slopes = gradient(k, y0, np.array([0.0, 5.0]), mxstep)
            assert np.isnan(value), name
            assert np.isnan(np.hstack(slopes)).all(), (name, slopes)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILING)
def test_tangents_of_what_is_nan_are_nan(name: str) -> None:
    k, y0, mxstep = FAILING[name]
    given = k, y0, np.array([0.0, 5.0])

    def moved(step: Any, place: int) -> Any:
        k, y0, t = (each + step if at == place else each for at, each in enumerate(given))
        return odeint(lambda y, t: -k * y * y, y0, t, mxstep=mxstep)

    for place in range(3):
        first, last = fxgrad.jacfwd(moved)(0.0, place)
        assert np.isnan(last), (place, last)
        assert first == (1.0 if place == 1 else 0.0)
        assert np.isnan(fxgrad.grad(lambda step, place=place: fxgrad.jacfwd(moved)(step, place)[1])(0.0))


@pytest.mark.slow
def test_tangents_of_what_few_steps_do_not_reach_are_nan() -> None:
    """A parameter of no effect halves the mean of the errors, so that both are solved in fewer steps than one is."""
    def end(idle: Any, mxstep: int) -> Any:
        return odeint(lambda y, t, idle: -y * y + 0.0 * idle, 1.0, np.array([0.0, 5.0]), idle, mxstep=mxstep)[-1]

    reached = [(np.isfinite(value), np.isfinite(tangent)) for mxstep in range(18, 34)
               for value, tangent in [fxgrad.jvp(lambda idle, mxstep=mxstep: end(idle, mxstep), (2.0,), (1.0,))]]
    assert {value for value, _ in reached} == {True, False}
    assert all(value for value, tangent in reached if tangent)


@pytest.mark.slow
def test_times_that_are_not_looked_at_leave_discrete_gradients_alone() -> None:
    def second(k):
        times = np.array([0.0, 0.01, 500.0])
        return fxgrad.odeint(lambda y, t: -k * y, 1.0, times, mxstep=10, adjoint="discrete")[1]

    assert fxgrad.grad(second)(2.0) == pytest.approx(-0.01 * np.exp(-0.02), rel=1e-6)


def test_loss_scaling_sees_what_is_not_reached() -> None:
    def last(k):
        return fxgrad.odeint(lambda y, t: -k * y, 1.0, np.array([0.0, 5.0]), mxstep=3, adjoint="discrete")[-1]

    assert not fxgrad.loss_scaling.value_and_grad(last)(fxgrad.loss_scaling.Static(1.0), 2.0).finite



@pytest.mark.slow
def test_row_a13_memory_does_not_depend_on_the_number_of_steps() -> None:
    """NumPy's peak and XLA's temporary memory of a gradient, with 16 times as many steps."""
    weights = np.random.default_rng(0).normal(size=(64, 64)) / 8.0

    def loss(w, hmax, adjoint):
        states = odeint(lambda y, _, w: np.tanh(w @ y), np.ones(64), np.array([0.0, 1.0]), w, rtol=1e-2, atol=1e-2,
                        hmax=hmax, adjoint=adjoint)
        return np.sum(states[-1])

    peaks = {}
    for adjoint in ADJOINTS:
        gradient = fxgrad.grad(lambda w, hmax, adjoint=adjoint: loss(w, hmax, adjoint))
        program = fxgrad.make_program(gradient)(weights, 0.1)  # one program, whatever the number of steps
        for steps in (20, 320):
            program(weights, 1 / steps)
            tracemalloc.start()
            program(weights, 1 / steps)
            peaks[adjoint, steps] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    assert peaks["continuous", 320] < 1.02 * peaks["continuous", 20]
    assert peaks["discrete", 320] > 2.0 * peaks["discrete", 20]
    # XLA allocates for any number of steps; the slopes of 320 of them alone would take more.
    lowered = fxgrad.jit(fxgrad.grad(lambda w, hmax: loss(w, hmax, "continuous"))).lower(weights, 0.1)
    assert lowered.compile().memory_analysis().temp_size_in_bytes < 0.5 * 320 * 7 * 64 * 8


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda: odeint(lambda y, _: y, 1.0, 2.0), ShapeError,
     "odeint: t has the shape (), where a vector of times is needed, the first of them that of y0: np.array([t0, t1])"),
    (lambda: odeint(lambda y, _: y, 1.0, [1.0, 0.0]), ArgumentError,
     "odeint: the times must rise strictly. To go backwards, solve dy/ds = -func(y, -s) at s = -t"),
    (lambda: odeint(lambda y, _: y, 1.0, [0.0, np.inf]), ArgumentError,
     "odeint: a time is infinite or NaN, where finite ones are needed"),
    (lambda: odeint(lambda y: y, 1.0, [0.0, 1.0]), ArgumentError,
     ("odeint: function takes (y), and is called as func(y, t): too many positional arguments. Write func(y, t, "
      "*args), with as many arguments as odeint(func, y0, t, *args) has args")),
    (lambda: odeint(lambda y, _, a, b: y, 1.0, [0.0, 1.0], 2.0), ArgumentError,
     ("odeint: function takes (y, _, a, b), and is called as func(y, t, args[0]): missing a required argument: 'b'. "
      "Write func(y, t, *args), with as many arguments as odeint(func, y0, t, *args) has args")),
    (lambda: odeint(lambda y, _: y, 1.0, [0.0, 1.0], adjoint="both"), ArgumentError,
     "odeint: adjoint is 'both'; it is 'continuous' or 'discrete'"),
    (lambda: odeint(lambda y, _: np.ones(2), np.ones(3), [0.0, 1.0]), ShapeError,
     ("odeint: function returned an array of shape (2,) for a part of y0 of shape (3,); it must return dy/dt, which is "
     "like y0")),
    (lambda: odeint(lambda y, _: (y, y), 1.0, [0.0, 1.0]), TreeError,
     ("odeint: function returned the structure PyTreeDef((*, *)), and y0 has PyTreeDef(*); it must return dy/dt, which "
     "is like y0")),
])
def test_mistakes(call: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).split("\n")[0] == text


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"method": "rosenbrock"}, {"method": "rosenbrock", "sparse": True}],
                         ids=["explicit", "implicit", "sparse"])
def test_steps_are_recorded_once(options: dict[str, Any]) -> None:
    """A NumPy scalar among the first values is no reason to record them for another type: as often as under jit."""
    calls = []

    def field(y, t):
        calls.append(t)
        return -y * np.cos(y)

    def count(solve):
        calls.clear()
        solve(np.array([1.0, 2.0]), np.linspace(0.0, 1.0, 3))
        return len(calls)
    solve = lambda y, t: fxgrad.odeint(field, y, t, **options)
    assert count(solve) == count(fxgrad.make_program(solve))


@pytest.mark.slow
@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("closes", [True, False], ids=["closure", "argument"])
def test_derivatives_in_parameters_that_all_devices_share_are_added_up_once(closes: bool, check_vma: bool) -> None:
    """Each device solves its own equation; a step of the adjoint must not add up what all of them have done."""
    mesh, spec = jax.make_mesh((2,), ("i",)), jax.sharding.PartitionSpec

    def end(rate: Any, y0: Any) -> Any:
        if closes:
            return odeint(lambda y, t: -rate * y, y0, [0.0, 1.0], rtol=1e-9, atol=1e-9)[-1]
        return odeint(lambda y, t, rate: -rate * y, y0, [0.0, 1.0], rate, rtol=1e-9, atol=1e-9)[-1]

    mapped = fxgrad.shard_map(lambda rate, y0: fxgrad.lax.pmean(end(rate, y0[0]), "i"), mesh=mesh,
                              in_specs=(spec(), spec("i")), out_specs=spec(), check_vma=check_vma)
    starts, decay = np.array([1.0, 3.0]), np.exp(-0.7)
    for slopes in (fxgrad.grad(mapped, (0, 1)), fxgrad.jit(fxgrad.grad(mapped, (0, 1))), fxgrad.jacfwd(mapped, (0, 1))):
        of_rate, of_starts = slopes(0.7, starts)
        np.testing.assert_allclose(of_rate, -2.0 * decay, rtol=1e-7)
        np.testing.assert_allclose(of_starts, [0.5 * decay, 0.5 * decay], rtol=1e-7)
    for second in (fxgrad.jacfwd(fxgrad.grad(mapped)), fxgrad.grad(fxgrad.jacfwd(mapped))):
        np.testing.assert_allclose(second(0.7, starts), 2.0 * decay, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_forward_mode_of_a_batch_of_which_some_entries_solve_an_equation(adjoint: str) -> None:
    def decayed(x: Any) -> Any:
        return odeint(lambda y, _, x: -y * x, x, np.array([0.0, 1.0]), x, adjoint=adjoint)[-1]

    def if_large(x: Any) -> Any:
        return fxgrad.lax.cond(x > 1.5, decayed, lambda x: 2.0 * x, x)
    x = np.array([0.3, 1.7, 0.5, 1.9])
    found = fxgrad.jvp(fxgrad.vmap(if_large), (x,), (np.ones(4),))[1]
    np.testing.assert_allclose(found, np.where(x > 1.5, (1.0 - x) * np.exp(-x), 2.0), rtol=1e-6)
