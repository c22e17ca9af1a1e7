"""Initial value problems: solutions and both gradients against closed forms, jax's solver and each other."""

from __future__ import annotations

import tracemalloc
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.ode import odeint as odeint_of_jax

import fxgrad
from fxgrad import odeint
from fxgrad.errors import ArgumentError, ShapeError, TreeError, UnsupportedError

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


@pytest.mark.slow
def test_forward_mode_is_the_discrete_ones() -> None:
    def end(rate, adjoint):
        return odeint(lambda y, _, k: k * y, 1.0, np.array([0.0, 1.0]), rate, rtol=1e-3, atol=1e-3, adjoint=adjoint)[-1]

    assert fxgrad.jvp(lambda r: end(r, "discrete"), (0.5,), (1.0,))[1] == pytest.approx(np.exp(0.5), rel=1e-2)
    with pytest.raises(UnsupportedError, match="forward mode through the custom_vjp function odeint_with_the_continuo"):
        fxgrad.jvp(lambda r: end(r, "continuous"), (0.5,), (1.0,))


@pytest.mark.slow
def test_what_is_not_reached_is_nan() -> None:
    def field(y, _):
        return y * y  # goes to infinity at 1

    found = odeint(field, 1.0, np.array([0.0, 0.5, 2.0]), rtol=1e-4, atol=1e-4, mxstep=40)
    np.testing.assert_allclose(found[:2], [1.0, 2.0], rtol=1e-3)
    assert np.isnan(found[2])


FAILING = {"too few steps": (2.0, 1.0, 3), "blowing up": (-16.0, 1.0, np.inf),
           "a parameter of NaN": (np.nan, 1.0, np.inf), "a state of NaN": (2.0, np.nan, np.inf)}


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
    for slopes in (fxgrad.grad(mapped, (0, 1)), fxgrad.jit(fxgrad.grad(mapped, (0, 1)))):
        of_rate, of_starts = slopes(0.7, starts)
        np.testing.assert_allclose(of_rate, -2.0 * decay, rtol=1e-7)
        np.testing.assert_allclose(of_starts, [0.5 * decay, 0.5 * decay], rtol=1e-7)
