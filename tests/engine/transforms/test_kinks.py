"""Derivatives at kinks, ties and singular points: as jax has them, and where it has NaNs or no rule, as documented."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import nn
from fxgrad.engine.core.avals import array_aval
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.ops import arithmetic, exponential, parts
from fxgrad.engine.ops.cumulative import cumlogsumexp, cummax, cummin, cumprod, linear_recurrence
from fxgrad.engine.ops.exponential import sqrt
from fxgrad.engine.ops.ordering import argsort, sort
from fxgrad.engine.ops.reductions import reduce_max, reduce_min, reduce_prod
from fxgrad.engine.ops.select import clamp, select_n, where
from fxgrad.engine.ops.special import bessel_i0e, bessel_i1e
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.trace import UNSHARED, trace_at
from fxgrad.engine.transforms.forward import push_forward
from fxgrad.errors import FxgradError
from fxgrad.scipy import special
from fxgrad.testing import check_grads

INF, NAN = np.inf, np.nan


def jvp(function: Callable[..., Any], args: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The tangent alone; None marks an argument that is not moved."""
    program, captured = trace_at(lambda *inputs: [function(*inputs)], [array_aval(arg) for arg in args], mode=UNSHARED)
    seeds = [Zero(array_aval(arg)) if tangent is None else tangent
             for arg, tangent in zip(args, tangents, strict=True)]
    with np.errstate(all="ignore"):
        zeros = map(Zero, program.in_avals[:len(captured)])
        out = instantiate_zeros(push_forward(program, [*captured, *args], [*zeros, *seeds])[1][0])
    return getattr(out, "value", out)


def array(*numbers: float) -> Any:
    return np.array(numbers, np.float64)


# Ours, jax's, the arguments.
AS_JAX: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "max": (arithmetic.max, lax.max, (array(1, 2, 0, -0.0), array(1, 1, -0.0, 0))),
    "max infinite": (arithmetic.max, lax.max, (array(INF, -INF, INF), array(INF, -INF, 0))),
    "min": (arithmetic.min, lax.min, (array(1, 2, 0), array(1, 1, -0.0))),
    "abs complex": (parts.abs, lax.abs, (np.array([0j, 3 + 4j, -1j]),)),
    "sign": (parts.sign, lax.sign, (array(0, 1, -2),)),
    "clamp": (clamp, lax.clamp, (array(0, 0, 0, 0), array(0, 1, 2, -1), array(1, 1, 1, 1))),
    "reduce_max": (lambda x: reduce_max(x, (0,)), lambda x: lax.reduce_max(x, axes=(0,)), (array(2, 1, 2, 2),)),
    "reduce_min": (lambda x: reduce_min(x, (0,)), lambda x: lax.reduce_min(x, axes=(0,)), (array(1, 1, 2),)),
    "reduce_max rows": (lambda x: reduce_max(x, (1,)), lambda x: lax.reduce_max(x, axes=(1,)),
                        (np.array([[1.0, 1.0], [2.0, 3.0]]),)),
    "cummax": (lambda x: cummax(x, 0), lambda x: lax.cummax(x, 0), (array(1, 1, 0, 1, 3),)),
    "cummin": (lambda x: cummin(x, 0, True), lambda x: lax.cummin(x, 0, reverse=True), (array(1, 1, 0, 1, 3),)),
    "cummax with NaNs": (lambda x: cummax(x, 0), lambda x: lax.cummax(x, 0), (array(3, 1, NAN, 5, NAN, 2),)),
    "cummin with NaNs": (lambda x: cummin(x, 0, True), lambda x: lax.cummin(x, 0, reverse=True), (
        array(NAN, 5, NAN, 1, 3),)),
    "pow at 0": (exponential.pow, lax.pow, (array(0, 0, 0), array(1, 2, 3))),
    "pow of negative": (lambda x: exponential.pow(x, array(2, 3)), lambda x: lax.pow(x, array(2, 3)), (array(-2, -3),)),
    "sqrt": (sqrt, lax.sqrt, (array(0, 4),)),
    "i0e": (bessel_i0e, lax.bessel_i0e, (array(0, -1, 30),)),
    "i1e": (bessel_i1e, lax.bessel_i1e, (array(0, -1, 30),)),
    "select unchosen": (lambda x: where(x > 0, x, 0.0), lambda x: lax.select(x > 0, x, np.zeros(2)), (array(0, 1),)),
}


@pytest.mark.parametrize("name", AS_JAX)
def test_as_jax(name: str) -> None:
    ours, theirs, args = AS_JAX[name]
    random = np.random.default_rng(0)
    tangents = [random.standard_normal(np.shape(arg)).astype(arg.dtype) for arg in args]
    if name == "select unchosen":
        ours = lambda x: select_n(AS_JAX[name][2][0] > 0, np.zeros(2), x)
    with jax.enable_x64(True):
        expected = np.asarray(jax.jit(lambda *args: jax.jvp(theirs, args, tuple(tangents))[1])(*args))
    np.testing.assert_allclose(jvp(ours, args, tangents), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("function", "args", "tangents", "expected"), [
    # jax has 1: the mean of the slopes on both sides.
    (parts.abs, (array(0, -0.0, 2, -3),), (array(1, 1, 1, 1),), [0, 0, 1, -1]),
    # jax has 0 everywhere: a complex sign turns. (At 0 it does not.)
    (parts.sign, (np.array([0j, 2 + 0j, 2j]),), (np.array([1j, 1j, 1j]),), [0, 0.5j, 0]),
    # jax has NaN: x^0 is 1 also at 0.
    (exponential.pow, (array(0, 2), array(0, 0)), (array(1, 1), None), [0, 0]),
    # At 0 and exponent 0 there is no derivative in the exponent: 0, as in jax.
    (exponential.pow, (array(0, 0), array(0, 2)), (None, array(1, 1)), [0, 0]),
    # jax has 0: with bounds in the wrong order the upper one decides.
    (clamp, (array(0.7), array(0.0), array(0.2)), (None, None, array(3.0)), [3]),
    # jax has no rule: to rounding nextafter is its first operand.
    (parts.nextafter, (array(1), array(2)), (array(3), array(5)), [3]),
    # Nothing to choose from: a constant.
    (lambda x: reduce_max(x, (0,)), (np.zeros((0, 2)),), (np.zeros((0, 2)),), [0, 0]),
    (lambda x: reduce_prod(x, (0,)), (np.zeros((0, 2)),), (np.zeros((0, 2)),), [0, 0]),
    (lambda x: reduce_prod(x, (0,)), (array(2, 0, 3),), (array(1, 1, 1),), 6),
    (lambda x: reduce_prod(x, (0,)), (array(0, 0, 3),), (array(1, 1, 1),), 0),
    (lambda x: cumprod(x, 0), (array(2, 0, 3, 0),), (array(1, 1, 1, 1),), [1, 2, 6, 0]),
    (lambda x: cumlogsumexp(x, 0), (array(-INF, 0, 0),), (array(1, 1, 3),), [0, 1, 2]),
    # Equal keys keep their order, so their tangents do.
    (lambda x: sort([x], 0)[0], (array(2, 1, 2, 1),), (array(1, 2, 3, 4),), [2, 4, 1, 3]),
    # Cut on purpose.
    (lambda x: arithmetic.mul(x, arithmetic.stop_gradient(x)), (array(3),), (array(1),), [3]),
])
def test_documented(function: Callable[..., Any], args: tuple[Any, ...], tangents: tuple[Any, ...],
                    expected: Any) -> None:
    np.testing.assert_allclose(jvp(function, args, tangents), expected, rtol=1e-12)


@pytest.mark.slow
def test_products_with_zeros_to_the_fourth_order() -> None:
    check_grads(lambda x: reduce_prod(x, (0,)), (array(2, 0, 0, 3),), order=4)
    check_grads(lambda x: reduce_prod(x, (0, 1)), (np.array([[2.0, 0.0], [0.0, 3.0]]),), order=3)
    check_grads(lambda x: cumprod(x, 0, True), (array(2, 0, 0, 3),), order=3)


@pytest.mark.slow
def test_running_results_to_the_third_order() -> None:
    x = np.random.default_rng(0).standard_normal((2, 7))
    check_grads(lambda x: cumlogsumexp(x, 1), (x,), order=3)
    check_grads(lambda x: cumprod(x, 1), (x,), order=3)
    check_grads(lambda a, b: linear_recurrence(a, b, 1, True), (x, x[::-1].copy()), order=3)


def test_recurrence_is_a_loop() -> None:
    random = np.random.default_rng(0)
    for size in (0, 1, 2, 3, 8, 13, 100):
        a, b = random.standard_normal((2, size))
        expected, y = [], 0.0
        for factor, term in zip(a, b, strict=True):
            y = factor * y + term
            expected.append(y)
        np.testing.assert_allclose(linear_recurrence(a, b, 0), expected, rtol=1e-12)
        flipped = linear_recurrence(a[::-1].copy(), b[::-1].copy(), 0, True)[::-1]
        np.testing.assert_allclose(flipped, expected, rtol=1e-12)


def test_argsort() -> None:
    x = np.array([[3, 1, 2], [1, 1, 0]])
    np.testing.assert_array_equal(argsort(x, 1), [[1, 2, 0], [2, 0, 1]])
    assert argsort(x, 1).dtype == np.int32


# --- the second order at ties ---------------------------------------------------------------------------------------

POINTS = (0.0, 1.0, -1.0, 2.0, 3.0, -3.0, 0.5)
STEP = 1e-5


def smooth_functions() -> list[Any]:
    """Every function of one or two numbers of the libraries."""
    return [pytest.param(getattr(module, name), id=f"{module.__name__}.{name}") for module in (fnp, nn, special)
            for name in sorted(module.__all__) if callable(getattr(module, name)) and not isinstance(
                getattr(module, name), type) and name not in {"round", "around"}
            and not name.startswith(("from", "save", "load"))]


@pytest.mark.slow
@pytest.mark.parametrize("function", smooth_functions())
def test_second_derivatives_at_ties(function: Any) -> None:
    """Where the gradient is smooth, the Hessian is its slope, also where a rule looks which operand is greater."""
    for point in ([(x,) for x in POINTS] + [(x, x) for x in POINTS] + [(x, -x) for x in POINTS]):
        at = np.array(point)

        def value(v: Any, count: int = len(point)) -> Any:
            return function(*(v[place] for place in range(count)))

        try:
            with np.errstate(all="ignore"):
                if np.asarray(value(at)).dtype != np.float64 or np.shape(value(at)):
                    break
                hessian, here = fxgrad.hessian(value)(at), fxgrad.grad(value)(at)
                for place, step in enumerate(STEP * np.eye(len(at))):
                    above = (fxgrad.grad(value)(at + step) - here) / STEP
                    below = (here - fxgrad.grad(value)(at - step)) / STEP
                    if np.all(np.isfinite(above)) and np.all(np.abs(above) < 1e3) and np.allclose(
                            above, below, rtol=1e-2, atol=1e-3):
                        np.testing.assert_allclose(hessian[:, place], (above + below) / 2, rtol=2e-7, atol=2e-8)
        except (FxgradError, TypeError, ValueError, IndexError):
            break  # not a function of so many numbers, or without derivatives


def test_second_derivatives_of_hypot_where_its_operands_tie() -> None:
    for x, y in ((3.0, 3.0), (3.0, -3.0), (-2.0, -2.0), (1e200, 1e200)):
        r = np.hypot(x, y)
        ours = fxgrad.hessian(lambda v: np.hypot(v[0], v[1]))(np.array([x, y]))
        across = np.array([y, -x]) / r
        np.testing.assert_allclose(ours, np.outer(across, across) / r, rtol=1e-12)
    np.testing.assert_array_equal(fxgrad.grad(lambda v: np.hypot(v[0], v[1]))(np.zeros(2)), [0.0, 0.0])


def test_second_derivative_of_spence_at_1() -> None:
    curvature = fxgrad.grad(fxgrad.grad(special.spence))
    x = 1 + np.array([-2e-3, -9e-4, -1e-7, 0.0, 1e-9, 9e-4, 2e-3])
    d = 1 - x
    np.testing.assert_allclose([curvature(each) for each in x], 1 / 2 + 2 * d / 3 + 3 * d**2 / 4 + 4 * d**3 / 5,
                               rtol=1e-9)
