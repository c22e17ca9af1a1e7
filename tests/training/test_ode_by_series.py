"""`odeint(..., method="taylor")`: solutions and gradients are closed forms, and those of the other method."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError

odeint = functools.partial(fxgrad.odeint, method="taylor")
T = np.array([0.0, 0.7, 2.0])


@pytest.mark.slow
@pytest.mark.parametrize(("field", "solution"), [
    (lambda y, t: -y, lambda t: np.exp(-t)), (lambda y, t: y * np.cos(t), lambda t: np.exp(np.sin(t))),
    (lambda y, t: y * (1 - y / 3), lambda t: 3 / (1 + 2 * np.exp(-t))),
    (lambda y, t: 1 / y, lambda t: np.sqrt(1 + 2 * t)),
    (lambda y, t: 0.0 * y, lambda t: np.ones_like(t)), (lambda y, t: 2.0 * t + 0.0 * y, lambda t: 1 + t ** 2),
    (lambda y, t: fxgrad.lax.cond(y > 0, lambda y: -y, lambda y: y, y), lambda t: np.exp(-t)),
    (lambda y, t: fxgrad.lax.fori_loop(0, 3, lambda _, s: s - y / 3, 0.0), lambda t: np.exp(-t))])
@pytest.mark.parametrize("order", [5, 12])
def test_solutions_are_closed_forms(field, solution, order):
    found = odeint(field, 1.0, T, order=order, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(found, solution(T), rtol=1e-8)
    np.testing.assert_allclose(fxgrad.jit(lambda y: odeint(field, y, T, order=order, rtol=1e-11, atol=1e-11))(1.0),
                               solution(T), rtol=1e-8)


def pendulum(y, t, length):
    return {"angle": y["rate"], "rate": -fnp.sin(y["angle"]) / length}


START = {"angle": np.array([1.0, 0.5]), "rate": np.zeros(2)}


def test_containers_and_arguments_are_as_for_the_other_method():
    found = odeint(pendulum, START, T, 0.8, rtol=1e-11, atol=1e-11)
    expected = fxgrad.odeint(pendulum, START, T, 0.8, rtol=1e-12, atol=1e-12)
    for name in START:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("adjoint", ["continuous", "discrete"])
def test_gradients_are_those_of_the_other_method(adjoint):
    def loss(solve, length, start):
        return fnp.sum(solve(pendulum, start, T, length, rtol=1e-10, atol=1e-10, adjoint=adjoint)["angle"] ** 2)
    found = fxgrad.jit(fxgrad.grad(functools.partial(loss, odeint), (0, 1)))(0.8, START)
    expected = fxgrad.grad(functools.partial(loss, fxgrad.odeint), (0, 1))(0.8, START)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-7)
    np.testing.assert_allclose(found[1]["angle"], expected[1]["angle"], rtol=1e-7)


@pytest.mark.slow
def test_batches_second_derivatives_and_float32():
    final = lambda rate: odeint(lambda y, t: -rate * y, 1.0, T, adjoint="discrete")[-1]
    rates = np.array([0.3, 1.5])
    np.testing.assert_allclose(fxgrad.vmap(final)(rates), np.exp(-2 * rates), rtol=1e-8)
    np.testing.assert_allclose(fxgrad.hessian(final)(0.3), 4 * np.exp(-0.6), rtol=1e-6)
    found = odeint(lambda y, t: -0.1 * y, np.float32([1.0, 2.0]), np.float32([0.0, 1.0]), rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[-1], np.exp(-0.1) * np.array([1.0, 2.0]), rtol=1e-5)
    assert odeint(lambda y, t: y, np.zeros(0), T).shape == (3, 0)


def test_a_solution_that_blows_up_ends_in_nans():
    found = odeint(lambda y, t: y * y, 1.0, np.array([0.0, 0.5, 1.5]), mxstep=50)
    np.testing.assert_allclose(found[:2], [1.0, 2.0], rtol=1e-7)
    assert np.isnan(found[2])


@pytest.mark.parametrize(("options", "text"), [
    ({"method": "euler"},
     "odeint: method is 'euler'; it is 'runge-kutta', 'taylor', or 'rosenbrock' for stiff equations"),
    ({"method": "taylor", "order": 1}, "odeint: order is 1, where an integer of at least 2 is needed"),
    ({"method": "taylor", "order": 4.0}, "odeint: order is 4.0, where an integer of at least 2 is needed")])
def test_wrong_methods_and_orders_are_refused(options, text):
    with pytest.raises(ArgumentError) as caught:
        fxgrad.odeint(lambda y, t: y, 1.0, T, **options)
    assert str(caught.value).split("\n")[0] == text


@pytest.mark.slow
def test_steps_end_at_kinks():
    """Before a kink, coefficients tell nothing of what follows it; some are all zero."""
    times = np.linspace(0.0, 2.0, 6)
    late = np.maximum(times - 1.0, 0.0)
    cases = {
        "kink in time": (lambda y, t: fnp.abs(t - 1.0) + 0.0 * y, 0.0, times - times ** 2 / 2 + late ** 2),
        "at rest before": (lambda y, t: fnp.maximum(t - 1.0, 0.0) + 0.0 * y, 0.0, late ** 2 / 2),
        "jump": (lambda y, t: fnp.where(t < 1.0, 1.0, 3.0) + 0.0 * y, 0.0, times + 2 * late),
        "kink of the state": (lambda y, t: fnp.maximum(y, 1.0), 0.5, np.where(
            times < 0.5, 0.5 + times, np.exp(times - 0.5))),
    }
    for name, (field, start, expected) in cases.items():
        found = odeint(field, start, times, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(found, expected, atol=2e-8, err_msg=name)
        compiled = fxgrad.jit(lambda start, field=field: odeint(field, start, times, rtol=1e-10, atol=1e-10))(start)
        np.testing.assert_allclose(compiled, expected, atol=2e-8, err_msg=name)
    last = lambda rate: odeint(lambda y, t: rate * fnp.abs(t - 1.0) * y, 1.0, times, rtol=1e-10, atol=1e-10)[-1]
    np.testing.assert_allclose(fxgrad.grad(last)(0.3), np.exp(0.3), rtol=1e-7)  # y = exp(rate) at 2
    np.testing.assert_allclose(fxgrad.grad(fxgrad.grad(last))(0.3), np.exp(0.3), rtol=1e-6)
