"""Hypergeometric and incomplete beta functions, and their derivatives in all parameters, beside mpmath's."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special

import fxgrad
from fxgrad import errors
from fxgrad.scipy.special import betainc, hyp1f1, hyp2f1

pytestmark = pytest.mark.slow  # kernels of one to three seconds

Function = Callable[..., Any]
CONFLUENT = [(1.5, 2.5, -60.0), (0.3, 4.0, 0.0), (30.0, 90.0, 101.0), (30.0, 90.0, 650.0), (-20.5, 1.5, 50.0),
             (30.0, 0.7, -50.0), (30.0, 0.7, -2000.0), (80.7, 1.0, -1.03), (-2.0, 0.7, 60.0), (-26.0, 4.3, 29.2),
             (1.8, 0.9, -35.4), (0.5, 50.0, 400.0), (2.5, 2.5, -3.0), (3.5, 2.5, -90.0)]
GAUSS = [(140.0, 1.0, 101.0, 0.5), (2100.0, 1.0, 101.0, 0.01), (4000.0, 1.0, 2001.0, 0.45), (0.5, 1.5, 2.5, 0.9999),
         (0.5, 0.5, 1.0, 1 - 1e-12), (2.0, 3.0, 1.0, 0.999), (1.0, 1.0, 2.0, 0.95), (0.5, 1.5, 2.5, -1e12),
         (90.2, 67.6, 2.9, -15.0), (5.0, 29.7, 3.6, -3.2), (8.5, 72.0, -4.55, -0.33), (-0.99, 92.0, 4.87, -0.7),
         (-22.0, 70.6, 1.8, 0.47), (-10.0, 83.0, 26.4, 0.93), (0.5, 0.7, 1.9, 0.0)]
BETA = [(0.05, 2000.0, 0.01), (100.0, 40.0, 0.8), (2000.0, 2000.0, 0.49), (1.0, 1.0, 0.1), (2.5, 0.7, 0.9),
        (7.0, 3.0, 1e-6), (0.5, 0.5, 0.9999)]


def exact_betainc(a: Any, b: Any, x: Any) -> Any:
    return mpmath.betainc(a, b, 0, x, regularized=True)


def columns(points: list[tuple[float, ...]]) -> list[Any]:
    return [*map(np.array, zip(*points, strict=True))]


@pytest.mark.parametrize(("function", "exact", "points"), [
    (hyp1f1, mpmath.hyp1f1, CONFLUENT), (hyp2f1, mpmath.hyp2f1, GAUSS), (betainc, exact_betainc, BETA)])
def test_values_and_derivatives_in_all_arguments(function: Function, exact: Function,
                                                 points: list[tuple[float, ...]]) -> None:
    """jax's value of hyp2f1(140, 1, 101, 0.5) is -153, that of hyp1f1(30, 90, 101) has four digits.

    XLA's value of betainc(1e5, 1e5, 0.5) in float32 is 0.42.
    """
    args = columns(points)
    places = range(len(args))
    slopes = fxgrad.grad(lambda *args: np.sum(function(*args)), argnums=tuple(places))(*args)
    with mpmath.workdps(80):
        np.testing.assert_allclose(function(*args), [float(exact(*point)) for point in points], rtol=1e-10)
        for place in places:
            wanted = [float(mpmath.diff(lambda at, point=point, place=place: exact(
                *point[:place], at, *point[place + 1:]), point[place])) for point in points]
            np.testing.assert_allclose(slopes[place], wanted, rtol=1e-10, err_msg=str(place))


NEGATIVE_LOWER = [(-11.54, -22.14, -21.77), (-0.99, -79.5, -48.0), (-2.6, -20.7, -32.0), (-21.1, -94.4, -1.6),
                  (5.0, -23.77, -5.0), (-5.95, -25.0000003, 1.9), (0.02, -17.2, -90.0), (2.0, -11.5, -6.15)]
HARD_GAUSS = [(-4.3, 0.145, -40.5, -1.59), (0.5, -66.0, -3.46, 0.999), (-13.5, -84.0, -95.9, 0.996),
              (-7.0, -80.0, -9.7, -0.69), (0.5, -0.036, -85.7, -8.5), (1.9999999, 0.5, -17.4, -1.93),
              (-84.0, 87.0, 53.0, 0.958), (-50.0, 62.4, 34.0, 0.99982), (-70.0, 0.0185, 2.5, 0.99894),
              (41.5, -17.0, 27.03, 0.985), (-20.0, 25.5, 3.5, 0.4)]


@pytest.mark.parametrize(("function", "exact", "points"), [
    (hyp1f1, mpmath.hyp1f1, NEGATIVE_LOWER), (hyp2f1, mpmath.hyp2f1, HARD_GAUSS)])
def test_negative_lower_parameters_and_polynomials_of_high_degree(function: Function, exact: Function,
                                                                  points: list[tuple[float, ...]]) -> None:
    """The first value had been 2.8e6, not -0.03; polynomials had no digit where their terms cancel."""
    args = columns(points)
    slopes = fxgrad.grad(lambda *args: np.sum(function(*args)))(*args)
    with mpmath.workdps(80):
        for at, point in enumerate(points):
            np.testing.assert_allclose(function(*args)[at], float(exact(*point)), rtol=1e-9, err_msg=str(point))
            wanted = float(mpmath.diff(lambda a, point=point: exact(a, *point[1:]), point[0]))
            np.testing.assert_allclose(slopes[at], wanted, rtol=1e-8, err_msg=str(point))


def test_small_terms_that_grow_again_are_summed() -> None:
    """Where a lower parameter is near a negative integer, the term of that number may be the largest."""
    found = hyp2f1(np.array([13.25, -29.7]), np.array([-1.875, 0.5]), np.array([-246.99999999, -125.0003]), 0.667)
    with mpmath.workdps(60):
        wanted = []
        for a, b, c in ((13.25, -1.875, -246.99999999), (-29.7, 0.5, -125.0003)):
            term = total = mpmath.mpf(1)
            for k in range(2000):
                term = term * (mpmath.mpf(a) + k) * (mpmath.mpf(b) + k) / (mpmath.mpf(c) + k) / (k + 1) * 0.667
                total += term
            wanted.append(float(total))
    np.testing.assert_allclose(found, wanted, rtol=1e-7)


def test_values_that_have_lost_half_of_their_digits_are_nan() -> None:
    assert np.isnan(hyp1f1(86.1, -17.5, -19.0))  # it had been 4389754658, wrong from the fourth digit on
    assert np.isnan(hyp2f1(0.5, 0.5, -2000.3, 0.7))  # terms underflow before they grow
    assert np.isnan(hyp1f1(np.float32(-0.0026), np.float32(-17.16), np.float32(-90.0)))
    points = columns([(-4.9, 51.8, -46.55, 0.9934), (31.9, 5.5, -85.0, -171.0), (0.1, -2.06, -59.1, -421.5)])
    assert np.isnan(hyp2f1(*points)).all()
    np.testing.assert_array_equal(hyp1f1(-1.0, 2.0, 2.0), 0.0)  # a zero is no loss
    np.testing.assert_allclose(hyp2f1(-2.0, 3.0, 1.0, np.array([0.21132486540518712])), 0.0, atol=1e-15)


def test_incomplete_beta_functions_of_large_parameters() -> None:
    """SciPy's values have all digits there, so that differences of them have eight."""
    points = [(10.0, 1e6, 1.3e-5), (1e4, 10.0, 0.9985), (1e4, 1e5, 0.092), (1e6, 1e6, 0.4995), (1e8, 1e8, 0.50002)]
    a, b, x = columns(points)
    np.testing.assert_allclose(betainc(a, b, x), scipy.special.betainc(a, b, x), rtol=1e-11)
    slopes = fxgrad.grad(lambda a, b: np.sum(betainc(a, b, x)), argnums=(0, 1))(a, b)
    for slope, steps in zip(slopes, ((1e-4 * np.sqrt(a), 0.0), (0.0, 1e-4 * np.sqrt(b))), strict=True):
        moved = [scipy.special.betainc(a + sign * steps[0], b + sign * steps[1], x) for sign in (1, -1)]
        np.testing.assert_allclose(slope, (moved[0] - moved[1]) / (2 * (steps[0] + steps[1])), rtol=1e-6)


def test_incomplete_beta_functions_of_one_large_parameter() -> None:
    """Its series had NaN near 1, after too many steps: betainc(3, 2e8, 3.6e-8) was NaN."""
    points = [(3.0, 2e8, 3.6e-8), (2e8, 3.0, 1 - 3.6e-8), (0.2, 1e6, 3e-6), (80.0, 3000.0, 0.04), (1e4, 90.0, 0.99)]
    args = columns(points)
    slopes = fxgrad.grad(lambda *args: np.sum(betainc(*args)), argnums=(0, 1))(*args)
    with mpmath.workdps(50):
        def exact(a: Any, b: Any, x: Any) -> Any:
            front = a * mpmath.log(x) + b * mpmath.log1p(-x) - mpmath.log(a) - mpmath.log(mpmath.beta(a, b))
            return mpmath.exp(front) * mpmath.hyp2f1(a + b, 1, a + 1, x)

        np.testing.assert_allclose(betainc(*args), [float(exact(*map(mpmath.mpf, point))) for point in points],
                                   rtol=1e-11)
        for at in (0, 1):
            wanted = [float(mpmath.diff(lambda value, point=point, at=at: exact(*(
                value if at == place else mpmath.mpf(each) for place, each in enumerate(point))), point[at]))
                for point in points]
            np.testing.assert_allclose(slopes[at], wanted, rtol=1e-9)


def test_derivatives_in_a_parameter_have_derivatives_in_x() -> None:
    for function, exact, point in ((hyp1f1, mpmath.hyp1f1, (1.3, 2.4, -4.0)),
                                   (hyp2f1, mpmath.hyp2f1, (0.6, 1.7, 2.1, 0.85)),
                                   (betainc, exact_betainc, (1.2, 3.4, 0.3))):
        last = len(point) - 1
        for place in range(last):
            slope = fxgrad.jit(fxgrad.grad(fxgrad.grad(function, argnums=place), argnums=last))(*point)
            orders = tuple(int(at in (place, last)) for at in range(last + 1))
            with mpmath.workdps(40):
                wanted = float(mpmath.diff(exact, point, orders))
            np.testing.assert_allclose(slope, wanted, rtol=1e-9, err_msg=f"{exact} {place}")


def test_single_precision_batches_and_shapes() -> None:
    points = [(0.7, 1.9, 3.1, x) for x in (-30.0, -0.4, 0.0, 0.1, 0.6, 0.97)]
    a, b, c, x = (column.astype(np.float32) for column in columns(points))
    with mpmath.workdps(30):
        wanted = [float(mpmath.diff(lambda at, x=x: mpmath.hyp2f1(at, 1.9, 3.1, x), 0.7)) for *_, x in points]
    slopes = fxgrad.vmap(fxgrad.grad(hyp2f1))(a, b, c, x)
    assert slopes.dtype == np.float32
    np.testing.assert_allclose(slopes, wanted, rtol=3e-6)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.vmap(fxgrad.grad(hyp2f1), in_axes=(None, None, None, 0)))(
        a[0], b[0], c[0], x), wanted, rtol=3e-6)
    wide = fxgrad.grad(lambda a: np.sum(hyp2f1(a, np.full((2, 1), 1.9), 3.1, np.array([0.1, 0.6]))))(0.7)
    np.testing.assert_allclose(wide, 2 * (wanted[3] + wanted[4]), rtol=1e-12)
    large = np.float32(1e5), np.float32(1e5), np.array([0.498, 0.5, 0.501], np.float32)
    np.testing.assert_allclose(betainc(*large), betainc(*(each.astype(float) for each in large)), atol=1e-5)
    assert hyp2f1(np.zeros((0, 3)), 1.0, 2.0, 0.5).shape == (0, 3)
    half = fxgrad.grad(hyp1f1)(np.float16(0.5), np.float16(1.5), np.float16(-2.0))
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, fxgrad.grad(hyp1f1)(0.5, 1.5, -2.0), rtol=2e-3)


def test_ends_of_the_domains() -> None:
    np.testing.assert_allclose(hyp2f1(0.5, 1.5, 2.5, 1.0), 0.75 * math.pi, rtol=1e-14)
    np.testing.assert_array_equal(hyp2f1(0.5, 1.5, 2.0, np.array([1.0, 1.5, np.inf, -np.inf, np.nan])),
                                  [np.inf, np.inf, np.inf, np.nan, np.nan])
    np.testing.assert_allclose(hyp2f1(-3.0, 2.0, 1.5, np.array([-7.0, 1.0, 2.5])), [
        float(mpmath.hyp2f1(-3, 2, 1.5, x)) for x in (-7, 1, 2.5)], rtol=1e-13)
    with mpmath.workdps(40):  # a slope from the one side where the function is
        slopes = [float(mpmath.diff(lambda at, place=place: mpmath.hyp2f1(
            *(at if place == index else value for index, value in enumerate((0.3, 0.4, 2.0))), 1), value))
            for place, value in enumerate((0.3, 0.4, 2.0))]
    np.testing.assert_allclose(fxgrad.grad(hyp2f1, argnums=(0, 1, 2))(0.3, 0.4, 2.0, 1.0), slopes, rtol=1e-12)
    for x, slope in ((0.0, 0.0), (1.0, 0.0), (1.5, math.nan)):
        np.testing.assert_array_equal(fxgrad.grad(lambda a, x=x: betainc(a, 2.0, x))(1.5), slope)
    np.testing.assert_array_equal(hyp1f1(np.array([0.0, 1.0, 1.0]), np.array([0.0, 0.0, 2.0]),
                                         np.array([2.0, 2.0, np.nan])), [1.0, np.inf, np.nan])


def test_second_derivatives_in_parameters_are_refused() -> None:
    with pytest.raises(errors.UnsupportedError, match=re.escape(
            "the derivative of hyp1f1(a, b, x) in b has no derivative in a: no closed form is known. Pass a as a "
            "constant (fxgrad.stop_gradient(a)), or differentiate with respect to the other arguments only")):
        fxgrad.grad(fxgrad.grad(hyp1f1, argnums=1))(0.5, 1.5, 2.0)


def test_limits_of_the_beta_function_at_infinite_parameters() -> None:
    a, b = np.array([1.0, np.inf, 200.0, np.inf, 2.0]), np.array([np.inf, 1.0, np.inf, 300.0, np.inf])
    x = np.array([0.5, 0.5, 0.1, 0.9, 0.0])
    for function in (betainc, fxgrad.jit(betainc)):
        np.testing.assert_array_equal(function(a, b, x), scipy.special.betainc(a, b, x))


def test_incomplete_beta_functions_of_a_tiny_parameter() -> None:
    """As 1 less something they had no digit: I_x(1, b) is 1 - (1 - x)^b."""
    x, b = np.array([1e-3, 0.7, 0.999, 0.7, 1 - 1e-9]), np.array([1e-10, 1e-10, 1e-6, 0.05, 1e-12])
    np.testing.assert_allclose(betainc(1.0, b, x), -np.expm1(b * np.log1p(-x)), rtol=1e-12)
    slopes = fxgrad.grad(lambda b: np.sum(betainc(1.0, b, x)))(b)
    np.testing.assert_allclose(slopes, -np.log1p(-x) * np.exp(b * np.log1p(-x)), rtol=1e-10)
