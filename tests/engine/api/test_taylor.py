"""`jet`, `taylor` and `derivatives`: they are nested gradients and jax's jet, for functions of every kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.jet import jet as jax_jet

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import derivatives, jet, lax, nn, taylor
from fxgrad.errors import ArgumentError, DTypeError, TreeError
from fxgrad.scipy import special

ORDER = 4


@fxgrad.custom_jvp
def by_tangents(x):
    return fnp.sin(x)


by_tangents.defjvp(lambda primals, tangents: (by_tangents(*primals), tangents[0] * fnp.cos(primals[0])))


@fxgrad.custom_vjp
def by_cotangents(x):
    return fnp.sin(x)


by_cotangents.defvjp(lambda x: (fnp.sin(x), x), lambda x, cotangent: (cotangent * fnp.cos(x),))


def matrix(x):
    return fnp.array([[2.0, 0.3], [0.3, 1.5]], "float64") + x * fnp.array([[0.5, 0.1], [0.1, 0.2]], "float64")


VECTOR = np.array([0.3, -0.7, 1.1])
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sin": fnp.sin, "cos": fnp.cos, "tan": fnp.tan, "asin": fnp.arcsin, "acos": fnp.arccos, "atan": fnp.arctan,
    "atan2": lambda x: fnp.arctan2(x, 1 + x * x), "sinh": fnp.sinh, "cosh": fnp.cosh, "tanh": fnp.tanh,
    "asinh": fnp.arcsinh, "atanh": fnp.arctanh, "exp": fnp.exp, "expm1": fnp.expm1, "log": fnp.log,
    "log1p": fnp.log1p, "sqrt": fnp.sqrt, "rsqrt": lambda x: 1 / fnp.sqrt(x), "cbrt": fnp.cbrt,
    "integer power": lambda x: x ** 5 - x ** -2, "power": lambda x: x ** 2.5, "both": lambda x: x ** x,
    "quotient": lambda x: x / (1 + x * x), "erf": special.erf, "erfinv": special.erfinv, "gammaln": special.gammaln,
    "digamma": special.digamma, "i0e": special.i0e, "logistic": nn.sigmoid, "softplus": nn.softplus, "relu": nn.relu,
    "gelu": nn.gelu, "sinc": fnp.sinc, "abs": fnp.abs, "max": lambda x: fnp.maximum(x, x * x),
    "where": lambda x: fnp.where(x > 0, fnp.log(x), x), "sort": lambda x: fnp.sort(x * VECTOR)[1] * x,
    "prod": lambda x: fnp.prod(x + VECTOR), "cumsum": lambda x: fnp.cumsum(fnp.sin(x * VECTOR))[1],
    "scatter": lambda x: fnp.sum(fnp.zeros(3, "float64").at[1].set(fnp.sin(x)).at[0].add(x * x) ** 2),
    "softmax": lambda x: nn.softmax(x * VECTOR)[0], "logsumexp": lambda x: special.logsumexp(x * VECTOR),
    "cond": lambda x: lax.cond(x > 0, fnp.sin, fnp.cos, x),
    "scan": lambda x: lax.scan(lambda c, v: (fnp.sin(c) * x + v, c * c), x, VECTOR)[1].sum(),
    "fori": lambda x: lax.fori_loop(0, 4, lambda i, y: fnp.sin(y) * x, x),
    "traced fori": lambda x: lax.fori_loop(0, fnp.int32(x * 5), lambda i, y: fnp.sin(y) * x, x),
    "while": lambda x: lax.while_loop(lambda y: y < 2.0, lambda y: y * y + x, x),
    "until": lambda x: lax.scan(lambda c, _: (c * x + 1, c), x, None, length=6, until=lambda c: c > 2.0)[0],
    "solve": lambda x: fnp.linalg.solve(matrix(x), VECTOR[:2])[0], "inv": lambda x: fnp.linalg.inv(matrix(x))[0, 1],
    "det": lambda x: fnp.linalg.det(matrix(x)), "cholesky": lambda x: fnp.linalg.cholesky(matrix(x))[1, 1],
    "eigh": lambda x: fnp.linalg.eigvalsh(matrix(x))[0], "fft": lambda x: fnp.abs(fnp.fft.fft(x * VECTOR)[1]),
    "custom_jvp": by_tangents, "custom_vjp": by_cotangents, "jit": fxgrad.jit(fnp.sin),
    "checkpoint": fxgrad.checkpoint(lambda x: fnp.sin(x) * x),
}


def nested(function, order):
    for _ in range(order):
        function = fxgrad.grad(function)
    return function


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("until", "jit")))
                                  for name in FUNCTIONS])
def test_derivatives_are_those_of_nested_gradients(name):
    x, function = 0.6, FUNCTIONS[name]
    expected = [nested(function, order)(x) for order in range(ORDER + 1)]
    np.testing.assert_allclose(derivatives(function, ORDER)(x), expected, rtol=1e-9, atol=1e-9)
    scale = [math.factorial(order) for order in range(ORDER + 1)]
    np.testing.assert_allclose(taylor(function, ORDER)(x) * np.array(scale), expected, rtol=1e-9, atol=1e-9)


def test_rules_that_choose_by_the_tangent():
    @fxgrad.custom_jvp
    def sine(x):
        return fnp.sin(x)

    @sine.defjvp
    def rule(primals, tangents):
        size = fnp.abs(tangents[0])
        step = fnp.where(size > 1e-5, 2.0, size)  # of any size: it cancels
        return sine(*primals), fnp.cos(primals[0]) * tangents[0] * step / step

    np.testing.assert_allclose(derivatives(lambda x: sine(x * x), ORDER)(0.6),
                               derivatives(lambda x: fnp.sin(x * x), ORDER)(0.6), rtol=1e-12)


@pytest.mark.slow
def test_solutions_of_differential_equations():
    found = derivatives(lambda y: fxgrad.odeint(lambda y, t: -y ** 2, y, np.array([0.0, 1.0]))[-1], 4)(0.5)
    expected = [0.5 / 1.5, *(math.factorial(order) * (-1 / 1.5) ** (order + 1) for order in range(1, 5))]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_ones_are_the_same(name):
    found, expected = fxgrad.jit(derivatives(FUNCTIONS[name], ORDER))(0.6), derivatives(FUNCTIONS[name], ORDER)(0.6)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


OF_JAX = {"sin": (fnp.sin, jnp.sin), "exp": (fnp.exp, jnp.exp), "tanh": (fnp.tanh, jnp.tanh),
          "quotient": (lambda x: x / (1 + x * x),) * 2, "logistic": (nn.sigmoid, jax.nn.sigmoid)}


@pytest.mark.parametrize("name", OF_JAX)
def test_a_curve_as_jax(name):
    ours, theirs = OF_JAX[name]
    x = np.array([[0.2, -0.4, 1.0], [0.5, 0.1, -1.5]])
    series = [np.random.default_rng(order).normal(size=x.shape) for order in range(6)]
    with jax.enable_x64(True):
        value, expected = jax_jet(theirs, (x,), (series,))
    output, found = jet(ours, (x,), (series,))
    np.testing.assert_allclose(output, value, rtol=1e-13)
    np.testing.assert_allclose(found, np.array(expected), rtol=1e-10, atol=1e-11)


def test_tenth_derivatives_have_their_closed_forms():
    x = 0.3
    np.testing.assert_allclose(derivatives(fnp.sin, 10)(x)[10], -np.sin(x), rtol=1e-14)
    np.testing.assert_allclose(taylor(lambda x: 1 / (1 - x), 20)(0.0), np.ones(21), rtol=1e-14)
    np.testing.assert_allclose(taylor(fnp.log1p, 12)(0.0)[1:], [(-1) ** (k + 1) / k for k in range(1, 13)], rtol=1e-13)


COEFFICIENTS = {
    "sinc": (fnp.sinc, 0.0, lambda k: 0.0 if k % 2 else (-1) ** (k // 2) * np.pi ** k / math.factorial(k + 1)),
    "i0": (special.i0, 0.0, lambda k: 0.0 if k % 2 else 0.5 ** k / math.factorial(k // 2) ** 2),
    "i1": (special.i1, 0.0, lambda k: 0.5 ** k / math.factorial(k // 2) / math.factorial(k // 2 + 1) if k % 2 else 0.0),
    "sine integral": (lambda x: special.sici(x)[0], 0.0,
                      lambda k: (-1) ** (k // 2) / k / math.factorial(k) if k % 2 else 0.0),
    "spence": (special.spence, 1.0, lambda k: (-1) ** k / k ** 2 if k else 0.0),
    "log1p": (fnp.log1p, 0.0, lambda k: (-1) ** (k + 1) / k if k else 0.0),
    "expm1": (fnp.expm1, 0.0, lambda k: 1 / math.factorial(k) if k else 0.0),
}


@pytest.mark.parametrize("name", COEFFICIENTS)
@pytest.mark.parametrize("offset", [0.0, 1e-9, -1e-3, 0.08, 0.4])
def test_coefficients_at_removable_singularities_and_near(name, offset):
    """Where a derivative is a quotient of two zeros, and around there, by the series at that point, shifted."""
    function, center, coefficient = COEFFICIENTS[name]
    series = np.polynomial.Polynomial([coefficient(k) for k in range(80)])
    expected = [series.deriv(k)(offset) / math.factorial(k) if k else series(offset) for k in range(13)]
    found = taylor(function, 12)(center + offset)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9 if abs(offset) < 0.1 else 2e-7)
    single = np.array(taylor(function, 6)(np.float32(center + offset)))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected[:7], rtol=1e-4, atol=2e-5)


def test_programs_grow_with_the_square_of_the_order():
    def equations(order):
        return len(fxgrad.make_program(derivatives(lambda x: fnp.tanh(fnp.exp(x) * x), order))(0.3).equations)
    assert equations(16) <= 4.5 * equations(8)


def test_containers_directions_and_further_arguments():
    def function(p, scale):
        return {"sum": scale * fnp.sum(p["x"] ** 2 * p["y"])}
    point, along = {"x": np.array([1.0, 2.0]), "y": 3.0}, {"x": np.array([1.0, -1.0]), "y": 0.5}
    found = taylor(function, 3)(point, 2.0, direction=along)
    t = np.polynomial.Polynomial([0.0, 1.0])
    expected = sum(2.0 * (x + v * t) ** 2 * (3.0 + 0.5 * t) for x, v in zip(point["x"], along["x"], strict=True))
    np.testing.assert_allclose([each["sum"] for each in found], expected.coef, rtol=1e-14)


def test_outputs_without_derivatives_have_float0_and_unmoved_ones_zeros():
    found = derivatives(lambda x: (fnp.floor(x), fnp.int32(x), x * x), 2)(1.5)
    assert [each[0] for each in found] == [1.0, 0.0, 0.0]
    assert [np.asarray(each[1]).dtype for each in found] == [np.int32, fxgrad.float0, fxgrad.float0]
    assert [each[2] for each in found] == [2.25, 3.0, 2.0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "complex64", "complex128"])
def test_dtypes_are_those_of_the_function(dtype):
    x = fnp.asarray([0.5, 0.1]).astype(dtype)
    found = derivatives(lambda x: fnp.exp(x) * 0.1, 3)(x, direction=fnp.ones_like(x))
    assert [each.dtype for each in found] == [fnp.exp(x).dtype] * 4
    digits = {"float32": 1e-6, "complex64": 1e-6, "float64": 1e-14, "complex128": 1e-14}.get(dtype, 2e-2)
    for each in found:
        np.testing.assert_allclose(np.asarray(each).astype("complex128"),
                                   np.exp(np.asarray(x).astype("complex128")) * 0.1, rtol=digits)


def test_empty_arrays_and_order_zero():
    assert [each.shape for each in derivatives(fnp.sin, 2)(np.zeros((0, 3)), direction=np.ones((0, 3)))] == [(0, 3)] * 3
    assert derivatives(fnp.sin, 0)(0.5) == (np.sin(0.5),)
    assert jet(fnp.sin, (0.5,), ([],)) == (np.sin(0.5), [])


def test_they_nest_with_every_transformation():
    third = lambda x: derivatives(fnp.sin, 3)(x)[3]
    x, batch = 0.3, np.array([0.1, 0.3])
    np.testing.assert_allclose(fxgrad.grad(third)(x), np.sin(x), rtol=1e-14)
    np.testing.assert_allclose(fxgrad.vmap(third)(batch), -np.cos(batch), rtol=1e-14)
    np.testing.assert_allclose(derivatives(third, 2)(x), [-np.cos(x), np.sin(x), np.cos(x)], rtol=1e-14)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.hessian(third))(x), np.cos(x), rtol=1e-14)
    np.testing.assert_allclose(fxgrad.grad(lambda a: derivatives(lambda x: fnp.sin(a * x), 2)(x)[2])(2.0),
                               -4 * np.sin(0.6) - 4 * 0.3 * np.cos(0.6), rtol=1e-14)  # closes over an outer tracer


def test_wrong_arguments_are_refused():
    refused = {
        (ArgumentError, ("derivatives takes the highest order as an integer of at least 0, got -1. Write "
                        "derivatives(f, 3)")): lambda: derivatives(fnp.sin, -1),
        (ArgumentError, "taylor takes the highest order as an integer of at least 0, got True. Write taylor(f, 3)"):
            lambda: taylor(fnp.sin, True),
        (ArgumentError, ("derivatives(f, 2) needs a direction where x is no number: a container like x. Write "
                        "derivatives(f, 2)(x, direction=v) for the derivatives of f(x + t * v) by t")):
            lambda: derivatives(fnp.sin, 2)(np.ones(3)),
        (DTypeError, ("taylor needs floating-point arguments, and x is i64*[]. Convert it, float(x) or "
                     "x.astype('float32'), or leave it out of argnums")): lambda: taylor(lambda x: x, 2)(1),
        (ArgumentError, ("derivatives: the direction of x is f64[2], and the primal is f64[3]; shape and dtype must be "
                        "equal. Write t.astype(x.dtype), or np.broadcast_to(t, x.shape)")):
            lambda: derivatives(lambda x: x, 2)(np.ones(3), direction=np.ones(2)),
        (TreeError, ("derivatives: direction must be a container like x; x has the structure PyTreeDef(({'a': *, 'b': "
                    "*},)), and direction has PyTreeDef(({'a': *},))")):
            lambda: derivatives(lambda x: x, 2)({"a": 1.0, "b": 2.0}, direction={"a": 1.0}),
        (ArgumentError, ("jet takes the primals as a tuple, one entry for each argument, got a float. Write jet(f, "
                        "(x,), ([x1, x2],))")): lambda: jet(fnp.sin, 1.0, ([1.0],)),
        (ArgumentError, ("jet got 2 primals and 1 series, where one series for each argument is needed. Write jet(f, "
                        "(x,), ([x1, x2],))")): lambda: jet(lambda x, y: x, (1.0, 2.0), ([1.0],)),
        (ArgumentError, ("jet takes series that are lists of one length, one for each argument, got 1 terms, a float. "
                        "Write jet(f, (x,), ([x1, x2],))")): lambda: jet(lambda x, y: x, (1.0, 2.0), ([1.0], 2.0)),
    }
    for (kind, text), call in refused.items():
        with pytest.raises(kind) as caught:
            call()
        assert str(caught.value).split("\n")[0] == text


# --- operators of partial differential equations ---------------------------------------------------------------------

WEIGHTS = np.random.default_rng(5).normal(size=(2, 3, 3)) * 0.5
OPERANDS: dict[str, Callable[[Any], Any]] = {
    "network": lambda x: fnp.sum(fnp.tanh(WEIGHTS[1] @ fnp.tanh(WEIGHTS[0] @ x + 0.2))),
    "waves": lambda x: fnp.sin(x[0]) * fnp.exp(2.0 * x[1]) * fnp.cos(0.5 * x[2]),
    "quotient": lambda x: x[0] * x[1] / (1.0 + fnp.sum(x * x)),
}


def along(function: Any, order: int, x: Any, directions: Any) -> Any:
    return fxgrad.vmap(lambda v: derivatives(function, order)(x, direction=v)[order])(directions)


def biharmonic(function: Any, x: Any) -> Any:
    """The sum of fourth derivatives along axes, and along sums and differences of two axes, with their weights."""
    axes, count = np.eye(x.shape[0]), x.shape[0]
    pairs = np.array([axes[i] + sign * axes[j] for i in range(count) for j in range(i) for sign in (1, -1)])
    return (fnp.sum(along(function, 4, x, pairs)) / 6
            + (4 - count) / 3 * fnp.sum(along(function, 4, x, axes)))


def partial(function: Any, *axes: int) -> Any:
    if not axes:
        return function
    return lambda x: fxgrad.grad(partial(function, *axes[1:]))(x)[axes[0]]


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERANDS)
def test_the_biharmonic_operator_is_a_sum_of_fourth_derivatives(name: str) -> None:
    function = OPERANDS[name]
    nested = sum(partial(function, i, i, j, j)(VECTOR) for i in range(3) for j in range(3))
    np.testing.assert_allclose(biharmonic(function, VECTOR), nested, rtol=1e-11)
    np.testing.assert_allclose(fxgrad.jit(lambda x: biharmonic(function, x))(VECTOR), nested, rtol=1e-11)
    np.testing.assert_allclose(fxgrad.laplacian(fxgrad.laplacian(function))(VECTOR), nested, rtol=1e-11)
    if name == "waves":  # its Laplacian is -1 + 4 - 1/4 times it
        np.testing.assert_allclose(nested, 2.75 ** 2 * function(VECTOR), rtol=1e-12)


@pytest.mark.parametrize("name", OPERANDS)
def test_mixed_third_derivatives_are_differences(name: str) -> None:
    function, e = OPERANDS[name], np.eye(3)
    third = along(function, 3, VECTOR, np.array([e[0] + e[1], e[0] - e[1], e[1]]))
    expected = partial(function, 0, 0, 1)(VECTOR)
    np.testing.assert_allclose(third @ np.array([1.0, -1.0, -2.0]) / 6.0, expected, rtol=1e-11)
    by_jvp = fxgrad.jvp(lambda x: derivatives(function, 2)(x, direction=e[0])[2], (VECTOR,), (e[1],))[1]
    np.testing.assert_allclose(by_jvp, expected, rtol=1e-11)
    signs = np.array([[1.0, one, other] for one in (1.0, -1.0) for other in (1.0, -1.0)])
    found = along(function, 3, VECTOR, signs) @ (signs[:, 1] * signs[:, 2]) / 24.0
    np.testing.assert_allclose(found, partial(function, 0, 1, 2)(VECTOR), rtol=1e-11)


def test_losses_of_fourth_derivatives_are_differentiated() -> None:
    def loss(scale: Any) -> Any:
        return biharmonic(lambda x: fnp.sum(scale * x ** 5) + x[0] ** 2 * x[1] ** 2, VECTOR) ** 2

    total = 120.0 * VECTOR.sum()
    np.testing.assert_allclose(loss(2.0), (2.0 * total + 8.0) ** 2, rtol=1e-12)
    np.testing.assert_allclose(fxgrad.grad(loss)(2.0), 2.0 * (2.0 * total + 8.0) * total, rtol=1e-12)
