"""Plain NumPy code that cannot take traced arrays: the replacement that the message suggests works."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, value_and_grad
from fxgrad.errors import ArrayConversionError, ConcretizationError, LeakedTracerError
from tests.support.cures import REFUSALS, compiled, cured

X = np.array([0.3, 1.2, 2.0])

BODIES = {
    "np.array": "return np.sum(np.array([x[0], x[1] * 2.0]) ** 2)",
    "np.array of rows": "return np.sum(np.array([[x[0], 1.0], [0.0, x[1]]]) ** 2)",
    "np.asarray": "return np.sum(np.asarray([x[0], x[1]]))",
    "np.mean of a list": "return np.mean([x[0], x[1] ** 2])",
    "np.sum of a list": "return np.sum([x[0], x[1] ** 2])",
    "np.r_": "return np.sum(np.r_[x, 1.0] ** 2)",
    "np.c_": "return np.sum(np.c_[x, x] ** 2)",
    "np.full": "return np.sum(np.full(3, x[0]) * x)",
    "np.full of a shape": "return np.sum(np.full((2, 3), x[0]) * x)",
    "element of NumPy's array": "u = np.zeros(3)\nu[1] = x[0] * 2.0\nreturn np.sum(u * x)",
    "elements in a loop": "u = np.zeros(3)\nfor i in range(3):\n    u[i] = x[i] ** 2\nreturn np.sum(u * x)",
    "element of a matrix": "u = np.zeros((2, 3))\nu[1, 0] = x[0] * 2.0\nreturn np.sum(u @ x)",
    "slice of NumPy's array": "u = np.zeros(4)\nu[1:] = x * 2.0\nreturn np.sum(u ** 2)",
    "element of NumPy's array, increased": "u = np.ones(3)\nu[1] += x[0]\nreturn np.sum(u * x)",
    "NumPy's array, multiplied": "u = np.ones(3)\nu *= x[0]\nreturn np.sum(u * x)",
    "X.dot": "A = np.ones((2, 3))\nreturn np.sum(A.dot(x) ** 2)",
    "math.sin": "return math.sin(x[0]) * x[1]",
    "math.exp of an expression": "return 2.0 * math.exp(-x[0]) * x[1]",
    "math.lgamma": "return math.lgamma(x[1])",
    "math.atan2": "return math.atan2(x[1], x[0])",
    "math.pow": "return math.pow(x[1], 3)",
    "scipy.special": "return np.sum(scipy.special.softmax(x) * x)",
    "a distribution of SciPy's": "import scipy.stats\nreturn np.sum(scipy.stats.norm.logpdf(x))",
    "a distribution by its name": "from scipy.stats import norm\nreturn np.sum(norm.cdf(x, 0.5, 2.0))",
    "scipy.linalg": "return np.sum(scipy.linalg.solve(np.eye(3) * 2.0, x))",
    "an index of NumPy's array": "table = np.arange(3.0) * 2.0\nreturn np.sum(table[np.argsort(x)] * x)",
    "an index of two axes": "table = np.arange(9.0).reshape(3, 3)\nreturn np.sum(table[np.argsort(x), 1] * x)",
    "text": "text = '%.3f' % x[0]\nreturn float(text) * x[0] / float(text)",
    "text of several": "text = '%s %.3f' % ('a', x[0])\nreturn x[0]",
}


@pytest.mark.parametrize("name", BODIES)
def test_cure(name: str) -> None:
    expected = compiled(BODIES[name].split("\n"))(X.copy())
    with pytest.raises(REFUSALS):
        grad(compiled(BODIES[name].split("\n")))(X)
    value, slope = cured(BODIES[name], lambda function: value_and_grad(function)(X))
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    assert slope.shape == X.shape
    if "text" not in name:
        np.testing.assert_allclose(cured(BODIES[name], lambda function: jit(function)(X)), expected, rtol=2e-12)


def test_what_has_no_counterpart_names_the_bridge() -> None:
    said = r"^scipy\.special\.ellipk\(x\) is not supported.* fxgrad\.scipy has no function of this name"
    with pytest.raises(REFUSALS, match=said):
        grad(compiled(["return np.sum(scipy.special.ellipk(x))"]))(X)


def test_sizes_under_jit_are_static_arguments() -> None:
    function = compiled(["return np.zeros(x)"])
    with pytest.raises(ConcretizationError, match=r"^np\.zeros\(x\) needs the value .* make the argument static"):
        jit(function)(3)
    assert jit(function, static_argnums=0)(3).shape == (3,)


def test_formats_give_the_value_where_there_is_one() -> None:
    seen: list[str] = []

    def function(x):
        seen.append(f"{x:.3f} {x:>8.1e}")
        return x * x

    grad(function)(1.25)
    grad(grad(function))(1.25)
    assert seen == ["1.250  1.2e+00"] * 2
    jit(function)(1.25)
    assert "Tracer" in seen[-1]


def test_int_of_a_float_is_truncated_where_it_is_known() -> None:
    assert float(grad(lambda x: x * int(x))(-2.7)) == -2.0
    assert float(grad(grad(lambda x: x * x * int(x)))(np.array(2.7))) == 4.0
    with pytest.raises(ConcretizationError, match=r"int\(\) needs the value"):
        jit(lambda x: x * int(x))(2.7)
    with pytest.raises(TypeError, match=r"int\(x\.real\)"):
        grad(lambda x: int(x * 1j) * x)(2.7)


def test_an_error_of_the_users_own_stays() -> None:
    def function(x):
        with suppress(ArrayConversionError):
            float(x)
        raise ValueError("mine")
    with pytest.raises(ValueError, match=r"^mine$"):
        grad(function)(1.0)


def test_updates_of_numpys_arrays_as_in_the_messages() -> None:
    table = np.arange(4.0)
    np.testing.assert_array_equal(fxgrad.numpy.at(table)[1].set(7.0), [0.0, 7.0, 2.0, 3.0])
    np.testing.assert_array_equal(table, np.arange(4.0))


def test_a_rule_that_closes_over_a_mapped_array_is_told_to_take_it_as_an_argument() -> None:
    def closing(x, z):
        scaled = fxgrad.custom_jvp(lambda y: x * y)
        scaled.defjvp(lambda primals, tangents: (x * primals[0], x * tangents[0]))
        return scaled(z)

    def taking(x, z):
        scaled = fxgrad.custom_jvp(lambda x, y: x * y)
        scaled.defjvp(lambda primals, tangents: (primals[0] * primals[1], primals[0] * tangents[1]))
        return scaled(x, z)
    said = "^the jvp rule of function uses a traced array of a function that has returned .* Make that array"
    with pytest.raises(LeakedTracerError, match=said):
        fxgrad.jvp(lambda z: fxgrad.vmap(lambda x: closing(x, z))(X), (2.0,), (1.0,))
    np.testing.assert_allclose(fxgrad.jvp(lambda z: fxgrad.vmap(lambda x: taking(x, z))(X), (2.0,), (1.0,))[1], X,
                               rtol=1e-12)
