"""Python's own control flow on values: under every transformation that knows them, and refused where none does."""

from __future__ import annotations

import numpy as np
import pytest

import fxgrad
from fxgrad import checkpoint, grad, jacfwd, jit, jvp, linearize, value_and_grad, vjp, vmap
from fxgrad.engine.core.avals import Literal
from fxgrad.engine.higher_order.call import library_function
from fxgrad.errors import ConcretizationError


def branching(x):
    if x > 1.0:
        return x * x
    return np.sin(x)


def halving(x):
    steps = 0
    while x > 1.0:
        x = x * 0.5
        steps += 1
    return x * x * steps


def newton_square_root(a):
    x = a
    while np.abs(x * x - a) > 1e-6:
        x = 0.5 * (x + a / x)
    return x


@pytest.mark.parametrize(("x", "slope", "second"), [(2.0, 4.0, 2.0), (0.5, np.cos(0.5), -np.sin(0.5))])
def test_if(x: float, slope: float, second: float) -> None:
    assert grad(branching)(x) == pytest.approx(slope)
    assert grad(grad(branching))(x) == pytest.approx(second)
    assert jvp(branching, (x,), (1.0,))[1] == pytest.approx(slope)
    assert vjp(branching, x)[1](1.0)[0] == pytest.approx(slope)
    assert linearize(branching, x)[1](1.0) == pytest.approx(slope)
    assert jacfwd(branching)(x) == pytest.approx(slope)
    assert grad(lambda x: jvp(branching, (x,), (1.0,))[1])(x) == pytest.approx(second)
    assert grad(checkpoint(branching))(x) == pytest.approx(slope)


def test_while_and_nesting() -> None:
    assert grad(halving)(7.0) == pytest.approx(2 * 7 * 3 / 64)
    assert grad(grad(halving))(7.0) == pytest.approx(2 * 3 / 64)
    assert grad(halving)(0.5) == 0.0
    with fxgrad.default_dtype("float64"):
        for a in (2.0, 9.0, 0.3):
            assert grad(newton_square_root)(a) == pytest.approx(0.5 / np.sqrt(a), rel=1e-5)
            assert grad(grad(newton_square_root))(a) == pytest.approx(-0.25 * a ** -1.5, rel=1e-3)


def test_the_right_branch_every_time() -> None:
    slope = grad(branching)
    assert [round(float(slope(x)), 6) for x in (2.0, 0.5, 2.0, 3.0, 0.5)] == [
        round(float(value), 6) for value in np.float32([4.0, np.cos(0.5), 4.0, 6.0, np.cos(0.5)])]


def test_integers_indices_and_ranges() -> None:
    def f(x, n):
        for index in range(n):
            x = x * (index + 1)
        return x

    assert value_and_grad(f)(2.0, 3) == (12.0, 6.0)
    assert value_and_grad(lambda x: x[int(np.argmax(x))] * 2.0)(np.array([1.0, 5.0, 2.0]))[0] == 10.0
    np.testing.assert_array_equal(grad(lambda x: [x, 2 * x][np.argmax(x)][1])(np.array([1.0, 5.0])), [0.0, 2.0])


def test_logic_of_arrays() -> None:
    def f(x):
        if np.all(x > 0.0) and not np.any(x > 10.0):
            return np.sum(np.log(x))
        return np.sum(x)

    np.testing.assert_allclose(grad(f)(np.array([1.0, 2.0])), [1.0, 0.5], rtol=1e-12)
    np.testing.assert_allclose(grad(f)(np.array([-1.0, 2.0])), [1.0, 1.0], rtol=1e-12)


def test_boolean_masks_of_known_value() -> None:
    np.testing.assert_array_equal(grad(lambda x: np.sum(x[x > 1.0] ** 2))(np.array([0.5, 2.0, 3.0])), [0.0, 4.0, 6.0])


def test_values_already_computed_are_not_computed_again() -> None:
    """The forward pass up to the last question runs once; the gradient starts from its results."""
    computed = []
    counted = fxgrad.Primitive(
        name="counted", abstract=lambda x: [x], numpy=lambda x: (computed.append(1), [x * 2])[1],
        xla=lambda lax, x: [lax.mul(x, 2.0)],
        jvp=lambda primals, tangents: (fxgrad.bind(counted, *primals), [2.0 * tangents[0]]),
        transpose=fxgrad.NOT_LINEAR, batch=lambda size, values, axes: (fxgrad.bind(counted, *values), axes),
        cost=lambda x: fxgrad.Cost(0, 0))

    def f(x):
        y = fxgrad.bind(counted, x)[0]
        return y * y if y > 0 else y

    for _ in range(3):
        computed.clear()
        assert grad(f)(3.0) == 24.0
        assert len(computed) == 1


def test_asking_often_takes_linear_time() -> None:
    """A question for each of thousands of steps; with work that grew with every question this would not end soon."""
    def f(x):
        steps = 0
        while x > 1.0:
            x = x * 0.999
            steps += 1
        return x, steps

    slope, steps = grad(f, has_aux=True)(20.0)
    assert steps > 2900
    assert slope == pytest.approx(0.999 ** steps, rel=1e-3)


def test_one_program_with_a_value_asked_for_and_without() -> None:
    """What was asked for is computed before the rest, so that their gradients are two programs."""
    def made(decide):
        def function(x):
            y = np.sin(x)
            return y if decide(y > 5.0) else y * x
        return function

    for decisions in ((bool, lambda _: False), (lambda _: False, bool)):
        for function in [*map(made, decisions)] * 2:
            assert grad(function)(2.0) == pytest.approx(2.0 * np.cos(2.0) + np.sin(2.0), rel=1e-14)


def test_debug_value() -> None:
    seen = []

    def f(x):
        seen.append(fxgrad.debug.value(np.sin(x)))
        return x

    grad(grad(f))(0.0)
    assert [float(value) for value in seen] == [0.0]
    grad(lambda x: (seen.append(repr(x * 2)), x)[1])(1.5)
    assert seen[-1] == "Tracer(f64*[], value=np.float64(3.0))"


@pytest.mark.parametrize("transformed", [
    jit(branching), vmap(branching), jit(grad(branching)), vmap(grad(branching)), grad(jit(branching)),
    lambda x: fxgrad.make_program(branching)(fxgrad.ShapeDtypeStruct(x.shape, x.dtype)),
    lambda x: fxgrad.eval_shape(branching, x),
])
def test_refused_where_values_are_not_known(transformed) -> None:
    with pytest.raises(ConcretizationError, match=r"bool\(\) needs the value of a traced array"):
        transformed(np.ones(3) if "vmap" in repr(transformed) else np.ones(1))


def test_unmapped_values_are_known_under_vmap_of_grad() -> None:
    result = vmap(lambda x, y: grad(branching)(y) * x, in_axes=(0, None))(np.arange(3.0), 2.0)
    np.testing.assert_array_equal(result, [0.0, 4.0, 8.0])


def test_loops_are_given_what_they_use_alone() -> None:
    program = fxgrad.make_program(lambda x, y, z: fxgrad.lax.scan(
        lambda c, e: (c * z[0] + e[1], c), x, (y, y * 3.0))[0])(1.0, np.ones(3), (2.0, 5.0))
    loop = next(equation for equation in program.equations if equation.primitive.name == "scan")
    assert [atom.aval.shape for atom in loop.inputs if not isinstance(atom, Literal)] == [(), (), (3,)]


def test_library_functions_that_ask_for_values_are_named() -> None:
    with pytest.raises(ConcretizationError) as raised:
        fxgrad.make_program(library_function(lambda x: x if x > 0 else -x, "energy"))(1.0)
    assert " in energy, which is traced without values" in str(raised.value)


def test_second_derivatives_of_loops_without_a_number_of_steps() -> None:
    """Of x ** 4, with a counter and a constant that stand still."""
    def power(x, scale):
        return fxgrad.lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] * x * scale), (0, 1.0))[1]

    assert grad(power)(3.0, 1.0) == 4 * 27.0
    assert jvp(lambda x: grad(power)(x, 2.0), (3.0,), (1.0,))[1] == 16 * 12 * 9.0
    assert jvp(lambda scale: grad(power)(3.0, scale), (1.0,), (1.0,))[1] == 4 * 27 * 4.0


def test_slopes_of_library_functions_are_safe() -> None:
    """0 times the infinite slope of the logarithm, in a function that is a program of its own."""
    assert grad(fxgrad.nan_safe(fxgrad.scipy.special.xlogy), 1)(0.0, 0.0) == 0.0
    assert grad(fxgrad.nan_safe(fxgrad.scipy.special.xlogy), 1)(2.0, 4.0) == 0.5
