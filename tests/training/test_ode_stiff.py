"""`odeint(..., method="rosenbrock")`: stiff solutions and gradients against SciPy, closed forms and sensitivities."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy.integrate import solve_ivp

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError
from fxgrad.training.linear_systems import _scipy_solver, _ScipySolver, shifted_jacobian

odeint = functools.partial(fxgrad.odeint, method="rosenbrock")
T = np.array([0.0, 0.7, 2.0])


def reference(field: Any, y0: Any, t: Any, *args: Any, rtol: float = 1e-11, atol: float = 1e-13) -> Any:
    """Return the solution by SciPy's Radau, an implicit Runge-Kutta method of order 5."""
    found = solve_ivp(lambda t, y: np.asarray(field(y, t, *args)), (t[0], t[-1]), y0, method="Radau", rtol=rtol,
                      atol=atol, t_eval=t)
    assert found.success
    return found.y.T


# --- problems --------------------------------------------------------------------------------------------------------

RATES, START = np.array([0.04, 1e4, 3e7]), np.array([1.0, 0.0, 0.0])
DECADES = np.array([0.0, 0.4, 4.0, 40.0, 400.0, 4e4])


def robertson(y, t, k):
    """Three reactions whose rates differ by nine orders (Robertson, 1966)."""
    first, second, third = k[0] * y[0], k[1] * y[1] * y[2], k[2] * y[1] ** 2
    return fnp.stack([second - first, first - second - third, third])


def van_der_pol(y, t, mu):
    return fnp.stack([y[1], mu * (1.0 - y[0] ** 2) * y[1] - y[0]])


def brusselator(y, t, diffusion):
    """Two species on a line, one after the other in `y`, with fixed values at the ends (Hairer and Wanner, IV.1)."""
    half = y.shape[0] // 2
    u, v = y[:half], y[half:]
    reaction = u * u * v

    def spread(w, end):
        wide = fnp.concatenate([fnp.full(1, end), w, fnp.full(1, end)])
        return diffusion * (half + 1) ** 2 * (wide[2:] - 2.0 * wide[1:-1] + wide[:-2])
    return fnp.concatenate([1.0 + reaction - 4.0 * u + spread(u, 1.0), 3.0 * u - reaction + spread(v, 3.0)])


def brusselator_start(half):
    x = np.arange(1, half + 1) / (half + 1)
    return np.concatenate([1.0 + np.sin(2 * np.pi * x), np.full(half, 3.0)])


def wave(y, t):
    """A nonlinear field that depends on time."""
    return fnp.stack([y[1], -fnp.sin(y[0]) + fnp.cos(t) * y[1]])


# --- solutions --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_order_is_five():
    """With steps of a given size, of a nonlinear field that depends on time."""
    y0 = np.array([1.0, 0.5])
    exact = solve_ivp(lambda t, y: np.asarray(wave(y, t)), (0.3, 1.3), y0, method="DOP853", rtol=1e-13, atol=1e-14)
    run = fxgrad.jit(lambda hmax: odeint(wave, y0, np.array([0.3, 1.3]), rtol=1e3, atol=1e3, hmax=hmax)[1])
    errors = [np.abs(run(1.0 / steps) - exact.y[:, -1]).max() for steps in (8, 16, 32)]
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert (np.abs(orders - 5.0) < 0.2).all(), orders


def test_times_within_long_steps_are_as_accurate():
    """A motion that follows the cosine (Prothero and Robinson, 1974); cut steps do not shorten the ones after."""
    rate, times = 1e6, np.linspace(0.0, 2.0, 12)
    found = odeint(lambda y, t: -rate * (y - fnp.cos(t)), 0.0, times, mxstep=60)
    exact = (rate ** 2 * np.cos(times) + rate * np.sin(times)) / (rate ** 2 + 1.0)
    np.testing.assert_allclose(found[1:], exact[1:], rtol=0.0, atol=1e-8)
    cut = odeint(lambda y, t: np.ones(1), np.ones(1), np.array([0.0, 1.0, 1.0 + 1e-9, 2.0]), mxstep=5)
    np.testing.assert_allclose(cut[:, 0], [1.0, 2.0, 2.0, 3.0], rtol=1e-8)


@pytest.mark.slow
def test_robertson():
    expected = reference(robertson, START, DECADES, RATES, atol=1e-16)
    for solve in (odeint, fxgrad.jit(odeint, static_argnums=0)):
        found = solve(robertson, START, DECADES, RATES, rtol=1e-8, atol=1e-14)
        np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-7)
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-10)  # mass is conserved


@pytest.mark.slow
def test_van_der_pol():
    """Slow motion with jumps; explicit steps do not reach the first time in 30 times as many steps."""
    y0, times = np.array([2.0, 0.0]), np.array([0.0, 300.0, 900.0, 2000.0])
    expected = reference(van_der_pol, y0, times, 1000.0)
    found = odeint(van_der_pol, y0, times, 1000.0, rtol=1e-8, atol=1e-8, mxstep=1500)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    explicit = fxgrad.jit(lambda y: fxgrad.odeint(van_der_pol, y, times[:2], 1000.0, mxstep=45000))(y0)
    assert np.isnan(explicit[1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
def test_brusselator(sparse):
    y0, times = brusselator_start(100), np.array([0.0, 1.0, 5.0])
    expected = reference(brusselator, y0, times, 0.02, rtol=1e-9, atol=1e-10)
    found = fxgrad.jit(lambda y: odeint(brusselator, y, times, 0.02, rtol=1e-8, atol=1e-8, sparse=sparse))(y0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
def test_a_heat_equation_is_its_closed_form(sparse):
    """Modes of the discrete Laplacian of 200 points decay with its eigenvalues; the fastest is 1.6e5 per unit of t."""
    points, times = 200, np.array([0.0, 1e-3, 0.1])
    x = np.arange(1, points + 1) / (points + 1)

    def heat(y, t):
        wide = fnp.concatenate([fnp.zeros(1), y, fnp.zeros(1)])
        return (points + 1) ** 2 * (wide[2:] - 2.0 * wide[1:-1] + wide[:-2])

    modes = [np.sin(count * np.pi * x) for count in (1, 4, 200)]
    rates = [-4.0 * (points + 1) ** 2 * np.sin(count * np.pi / 2 / (points + 1)) ** 2 for count in (1, 4, 200)]
    found = odeint(heat, sum(modes), times, rtol=1e-8, atol=1e-10, sparse=sparse, mxstep=200)
    expected = sum(np.exp(rate * times)[:, None] * mode for rate, mode in zip(rates, modes, strict=True))
    np.testing.assert_allclose(found, expected, atol=1e-8)


# --- derivatives ------------------------------------------------------------------------------------------------------


def robertson_ends(k):
    return fnp.log(odeint(robertson, START, DECADES[:4], k, rtol=1e-9, atol=1e-15)[1:])


@pytest.mark.slow
def test_derivatives_of_robertson_are_its_sensitivities():
    """dS/dt = J S + df/dk, solved by SciPy; forward and reverse mode have it, differences of values too."""
    jacobian, forcing = (fxgrad.jit(fxgrad.jacobian(robertson, argnums)) for argnums in (0, 2))

    def with_sensitivities(state, t):
        y, s = state[:3], state[3:].reshape(3, 3)
        return np.concatenate([robertson(y, t, RATES), (jacobian(y, t, RATES) @ s
                                                       + forcing(y, t, RATES) * RATES).ravel()])

    solved = reference(with_sensitivities, np.concatenate([START, np.zeros(9)]), DECADES[:4], rtol=1e-9, atol=1e-14)
    expected = solved[1:, 3:].reshape(3, 3, 3) / solved[1:, :3, None]
    scaled = lambda logs: robertson_ends(RATES * fnp.exp(logs))
    forward, reverse = (fxgrad.jit(derive(scaled))(np.zeros(3)) for derive in (fxgrad.jacfwd, fxgrad.jacrev))
    np.testing.assert_allclose(forward, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9, atol=1e-12)
    compiled = fxgrad.jit(scaled)
    for column, step in enumerate(1e-4 * np.eye(3)):
        differences = (compiled(step) - compiled(-step)) / 2e-4
        np.testing.assert_allclose(forward[..., column], differences, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_of_a_brusselator_are_differences(sparse):
    y0, direction = brusselator_start(40), np.sin(np.linspace(0.0, 3.0, 80))

    def loss(y, diffusion):
        return fnp.sum(odeint(brusselator, y, np.array([0.0, 1.0]), diffusion, rtol=1e-10, atol=1e-10,
                              sparse=sparse)[-1] ** 2)

    compiled = fxgrad.jit(loss)
    d_y, d_diffusion = fxgrad.jit(fxgrad.grad(loss, (0, 1)))(y0, 0.02)
    np.testing.assert_allclose(d_diffusion, (compiled(y0, 0.02 + 1e-6) - compiled(y0, 0.02 - 1e-6)) / 2e-6, rtol=1e-6)
    np.testing.assert_allclose(d_y @ direction, (compiled(y0 + 1e-5 * direction, 0.02)
                                                 - compiled(y0 - 1e-5 * direction, 0.02)) / 2e-5, rtol=1e-6)


@pytest.mark.slow
def test_gradients_in_times_states_and_arguments_are_those_of_the_other_method():
    """Un-jitted and compiled, by both adjoints, of a field that depends on time."""
    def loss(solve, y, t, length):
        field = lambda y, t, length: {"x": y["v"], "v": -fnp.sin(y["x"]) / length * (1.0 + 0.1 * t * t)}
        return fnp.sum(solve(field, y, t, length, rtol=1e-10, atol=1e-10)["x"] ** 2)

    arguments = {"x": np.array([1.0, 0.5]), "v": np.zeros(2)}, T, 0.8
    expected = fxgrad.tree.leaves(fxgrad.grad(functools.partial(
        loss, functools.partial(fxgrad.odeint, adjoint="discrete")), (0, 1, 2))(*arguments))
    for adjoint in (None, "discrete", "continuous"):
        gradient = fxgrad.grad(functools.partial(loss, functools.partial(odeint, adjoint=adjoint)), (0, 1, 2))
        for found in (gradient(*arguments), fxgrad.jit(gradient)(*arguments)) if adjoint else (gradient(*arguments),):
            for one, other in zip(fxgrad.tree.leaves(found), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-8)


def relaxed(rate, **options):
    """The end of a motion that follows the cosine, and forgets its start at once."""
    return odeint(lambda y, t: -rate * (y - fnp.cos(t)), 0.0, np.array([0.0, 1.0]), rtol=1e-10, atol=1e-10,
                  **options)[-1]


def relaxed_exactly(rate):
    return (rate ** 2 * fnp.cos(1.0) + rate * fnp.sin(1.0)) / (rate ** 2 + 1.0)  # and exp(-rate), which is nothing


@pytest.mark.slow
def test_derivatives_of_all_orders_and_batches():
    for order in range(4):
        ours, exact = relaxed, relaxed_exactly
        for _ in range(order):
            ours, exact = fxgrad.grad(ours), fxgrad.grad(exact)
        np.testing.assert_allclose(ours(1e3), exact(1e3), rtol=1e-5 * 10 ** order)
    rates = np.array([50.0, 1e3, 1e5])
    np.testing.assert_allclose(fxgrad.jit(fxgrad.vmap(fxgrad.grad(relaxed)))(rates),
                               fxgrad.vmap(fxgrad.grad(relaxed_exactly))(rates), rtol=1e-4)
    np.testing.assert_allclose(fxgrad.vmap(lambda rate: relaxed(rate))(rates), relaxed_exactly(rates), rtol=1e-8)


@pytest.mark.slow
def test_the_discrete_adjoint_is_the_default():
    """A stiff solution cannot be followed backwards, and that is NaN; its sensitivities are followed forwards."""
    tangent = fxgrad.jvp(relaxed, (1e3,), (1.0,))[1]
    np.testing.assert_allclose(tangent, fxgrad.grad(relaxed_exactly)(1e3), rtol=1e-5)
    forwards = fxgrad.jvp(lambda rate: relaxed(rate, adjoint="continuous"), (1e3,), (1.0,))[1]
    np.testing.assert_allclose(forwards, tangent, rtol=1e-5)
    assert np.isnan(fxgrad.grad(lambda rate: relaxed(rate, adjoint="continuous", mxstep=1000))(1e3))


# --- sparse systems ---------------------------------------------------------------------------------------------------


def banded(size: int, width: int, seed: int) -> Any:
    """Return a matrix with a band of this width under a random order of its rows and columns."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(size)
    return np.triu(np.tril(rng.normal(size=(size, size)), width), -width)[order][:, order]


@pytest.mark.parametrize("size", [1, 2, 13, 61, 70, 130, 203, 333])
@pytest.mark.parametrize("width", [0, 1, 2, 5])
def test_systems_are_solved_in_their_band(size, width):
    """Tridiagonal ones, any number of blocks, and those that are small or too wide, with their derivatives."""
    matrix = banded(size, width, size) / (2 * width + 1)
    b = np.cos(np.arange(float(size)))

    def solve(sparse):
        return fxgrad.make_program(fxgrad.value_and_grad(lambda scale, b, y: fnp.sum(fnp.sin(shifted_jacobian(
            lambda y: matrix @ fnp.sin(y), y, scale, sparse)(b))), (0, 1, 2)))(0.7, b, 0.1 * b)

    program = solve(True)
    largest = max((equation.inputs[0].aval.shape[-1] for equation in program.equations
                   if equation.primitive.name == "lu"), default=0)
    assert largest == size if 6 * min(width, size - 1) > size else largest <= (64 if width > 1 else 0)
    found, expected = program(0.7, b, 0.1 * b), solve(False)(0.7, b, 0.1 * b)
    for one, other in zip(fxgrad.tree.leaves(found), fxgrad.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 2])
def test_systems_in_a_band_have_batches_and_second_derivatives(width):
    matrix, b = banded(130, width, 0) / 5.0, np.cos(np.arange(130.0))

    def curvature(sparse):
        def value(scale):
            solve = shifted_jacobian(lambda y: matrix @ fnp.sin(scale * y), b * scale, scale, sparse)
            return fnp.sum(fnp.sin(solve(b)))
        return fxgrad.jit(fxgrad.vmap(lambda scale: fxgrad.jvp(fxgrad.grad(value), (scale,), (1.0,))[1]))

    scales = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(curvature(True)(scales), curvature(False)(scales), rtol=1e-9)


def scattered(size: int, seed: int) -> Any:
    """Return a matrix whose rows have four entries anywhere, of which no order makes a band."""
    rng = np.random.default_rng(seed)
    matrix = np.zeros((size, size))
    matrix[np.repeat(np.arange(size), 4), rng.integers(0, size, 4 * size)] = rng.normal(size=4 * size) / 4.0
    return matrix


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_systems_are_solved_by_scipy(dtype):
    """With their derivatives, in batches, and to the second order; each matrix is factored once for all solves."""
    size = 90
    matrix, b = scattered(size, 0).astype(dtype), np.cos(np.arange(size)).astype(dtype)
    factored = []

    def value(sparse, by_scipy):
        def function(scale, b, y):
            solve = shifted_jacobian(lambda y: matrix @ fnp.sin(y), y, scale, sparse, by_scipy)
            return fnp.sum(fnp.sin(solve(b)) * solve(b[::-1]))
        return function

    at = np.asarray(0.7, dtype), b, 0.1 * b
    tolerance = {"float64": 1e-9, "float32": 1e-4}[dtype]
    program = fxgrad.make_program(fxgrad.value_and_grad(value(True, True), (0, 1, 2)))(*at)
    names = {equation.primitive.name for equation in program.equations}
    assert "custom_linear_solve" in names
    assert "lu" not in names
    _scipy_solver.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        own = _ScipySolver._factor
        patch.setattr(_ScipySolver, "_factor", lambda self, entries: factored.append(0) or own(self, entries))
        found = program(*at)
    assert len(factored) == 1
    expected = fxgrad.value_and_grad(value(False, False), (0, 1, 2))(*at)
    for one, other in zip(fxgrad.tree.leaves(found), fxgrad.tree.leaves(expected), strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    scales = np.array([0.1, 0.5], dtype)

    def curvature(by_scipy):
        slope = fxgrad.grad(lambda scale: value(by_scipy, by_scipy)(scale, b, scale * b))
        return fxgrad.vmap(lambda scale: fxgrad.jvp(slope, (scale,), (np.ones((), dtype),))[1])(scales)
    np.testing.assert_allclose(curvature(True), curvature(False), rtol=10 * tolerance)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("offsets", "by_lapack"), [((0, 1, -1, 3, -2), True), ((0, 1), True), ((0, 60, -75), False)])
def test_direct_solvers_of_bands_and_of_other_patterns(dtype, offsets, by_lapack):
    """In any order of rows and columns, with the diagonal in two parts, transposed, and for a singular matrix."""
    size, draws = 150, np.random.default_rng(0)
    band = scipy.sparse.diags_array([draws.normal(size=size - abs(offset)) for offset in offsets], offsets=offsets)
    scattered_places = draws.permutation(size)
    entries = scipy.sparse.coo_array(band)
    far = [] if by_lapack else [(row, column) for row in range(0, size, 3) for column in range(0, size, 7)]
    more = np.array(far, np.int64).reshape(-1, 2).T
    rows, columns = (np.concatenate([scattered_places[places], others, np.arange(size)])
                     for places, others in zip((entries.row, entries.col), more, strict=True))
    values = np.concatenate([entries.data, 0.1 * draws.normal(size=len(far)), np.full(size, 4.0)]).astype(dtype)
    solver, b = _ScipySolver(rows, columns, size), draws.normal(size=size).astype(dtype)
    assert (solver._band is not None) == by_lapack
    dense = np.zeros((size, size))
    np.add.at(dense, (rows, columns), values)
    tolerance = {"float64": 1e-12, "float32": 1e-4}[dtype]
    for found, matrix in ((solver.solve(values, b), dense), (solver.solve_transposed(values, b), dense.T)):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, np.linalg.solve(matrix, b), rtol=tolerance, atol=tolerance)
    assert np.isnan(solver.solve(0 * values, b)).all()


def test_a_singular_system_is_nan():
    """I - J is singular: a step with it is refused, as one with NaN is."""
    rotated = scattered(90, 1)
    rotated[0] = np.eye(90)[0]
    program = fxgrad.make_program(lambda y: shifted_jacobian(lambda y: rotated @ y, y, 1.0, True, True)(y))(np.ones(90))
    assert np.isnan(program(np.ones(90))).all()


@pytest.mark.slow
def test_a_field_on_a_square_is_solved_un_jitted_as_compiled():
    points = 10

    def field(y, t):
        w = fnp.pad(y.reshape(points, points), 1)
        spread = w[2:, 1:-1] + w[:-2, 1:-1] + w[1:-1, 2:] + w[1:-1, :-2] - 4.0 * w[1:-1, 1:-1]
        return (100.0 * spread + fnp.cos(t) - w[1:-1, 1:-1] ** 3).ravel()

    def solve(y, t=T):
        return odeint(field, y, t, sparse=True, rtol=1e-8, atol=1e-8)

    y0 = np.sin(np.arange(points ** 2.0))
    expected = fxgrad.jit(solve)(y0)
    np.testing.assert_allclose(solve(y0), expected, rtol=1e-9, atol=1e-12)
    single = solve(*(jnp.asarray(each, "float32") for each in (y0, T)))
    np.testing.assert_allclose(single, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fxgrad.vmap(solve)(np.stack([y0, 2 * y0]))[0], expected, rtol=1e-6, atol=1e-8)
    gradient = fxgrad.grad(lambda y: fnp.sum(solve(y)[1] ** 2))
    np.testing.assert_allclose(gradient(y0), fxgrad.jit(gradient)(y0), rtol=1e-6, atol=1e-12)


@pytest.mark.slow
def test_a_pattern_can_be_given():
    size = 24
    field = lambda y, t: -100.0 * y + fnp.roll(y, 1)
    y0 = np.cos(np.arange(float(size)))
    places = np.eye(size) + np.roll(np.eye(size), 1, axis=0)
    expected = odeint(field, y0, T)
    for sparse in (True, places, fxgrad.sparsity(lambda y: field(y, 0.0))(y0).jacobian):
        np.testing.assert_allclose(odeint(field, y0, T, sparse=sparse), expected, rtol=1e-9, atol=1e-12)
        found = fxgrad.jit(lambda y, sparse=sparse: odeint(field, y, T, sparse=sparse))(y0)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_entries_that_are_zero_at_the_start_belong_to_the_pattern():
    """The time is 0 first, and the state too; the entries of the matrix are not."""
    def field(y, t):
        return t * (1.0 + fnp.roll(y, 1) * y) - 1000.0 * t * y

    found = odeint(field, np.zeros(24), T, sparse=True, rtol=1e-9, atol=1e-9, mxstep=100)
    np.testing.assert_allclose(found, odeint(field, np.zeros(24), T, rtol=1e-9, atol=1e-9), rtol=1e-7)


# --- kinds of states --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
def test_kinds_of_states(sparse):
    solve = functools.partial(odeint, sparse=sparse)
    turned = solve(lambda y, t: 1j * y, np.array([1.0 + 0j, 2.0]), T)
    np.testing.assert_allclose(turned, np.exp(1j * T)[:, None] * [1.0, 2.0], rtol=1e-6)
    single = solve(lambda y, t: -y, np.ones(2, np.float32), T.astype(np.float32), rtol=1e-5, atol=1e-5)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single[:, 0], np.exp(-T), rtol=1e-4)
    assert solve(lambda y, t: -y, 1, [0, 1]).dtype == np.float64
    assert solve(lambda y, t: y, np.zeros(0), T).shape == (3, 0)
    assert isinstance(solve(lambda y, t: -y, np.ones(2), T), np.ndarray)
    assert isinstance(solve(lambda y, t: -y, jnp.ones(2), jnp.asarray(T)), type(jnp.ones(2)))
    mixed = solve(lambda y, t: {"a": -y["a"], "b": y["a"][:1] * t}, {"a": np.ones(2), "b": np.zeros(1)}, T,
                  rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mixed["b"][:, 0], 1.0 - np.exp(-T) * (1.0 + T), atol=1e-7)


@pytest.mark.slow
def test_what_is_not_reached_is_nan():
    found = odeint(lambda y, t: y * y, 1.0, np.array([0.0, 0.5, 2.0]), rtol=1e-6, atol=1e-6, mxstep=40)
    np.testing.assert_allclose(found[:2], [1.0, 2.0], rtol=1e-4)
    assert np.isnan(found[2])
    slope = fxgrad.grad(lambda k: odeint(lambda y, t: -k * y, 1.0, np.array([0.0, 5.0]), mxstep=2)[-1])(2.0)
    assert np.isnan(slope)


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda: fxgrad.odeint(lambda y, t: y, 1.0, T, sparse=True), ArgumentError,
     ("odeint: sparse is for the matrices of method='rosenbrock', and method is 'runge-kutta'. Leave it out, or pass "
      "method='rosenbrock'")),
    (lambda: odeint(lambda y, t: y, np.ones(2), T, sparse="band"), ArgumentError,
     "odeint: sparse='band'; it must be True, False, a Pattern, or a matrix whose places are the pattern"),
    (lambda: odeint(lambda y, t: y, np.ones(2), T, sparse=np.eye(3)), ArgumentError,
     ("odeint: sparse= is a pattern of shape (3, 3), and the matrix has one row for each of 2 elements of the output "
      "and one column for each of 2 of the input")),
    (lambda: odeint(lambda y, t: y[::-1], np.ones(2), T, sparse=np.eye(2)), ArgumentError,
     ("jacobian: the pattern given as sparse= lacks 2 entries: the first is (0, 1), which is 1. Pass sparse=True to "
      "find the pattern")),
])
def test_mistakes(call, kind, text):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).split("\n")[0] == text
