"""`stabilize`: formulas are found however they are written, replaced under all transformations, and accurate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lint, make_program, stabilize
from tests.support.naive_formulas import (
    FORMULAS,
    Formula,
    Names,
    columns,
    near_zero,
    points,
    slope_at,
    ulps,
    value_at,
    weighted,
)
from tests.support.random_programs import build, recipes, shapes
from tests.support.tiers import examples

ULPS = 8.0
OF_PRIMITIVES = {"erfc": 128.0, "log of erfc": 128.0, "cumulative log-sum-exp": 64.0}
"""Of derivatives: that of erfc is a density, exp(-x**2), as accurate as the square; running sums have shares."""
OURS = Names(np, fxgrad.scipy.special)


def log_sum_exp(x):
    return np.log(np.sum(np.exp(x)))


def worst(formula: Formula, dtype: Any, count: int) -> tuple[float, float]:
    """The largest errors of the value and of the derivative, in units of the last place."""
    rows = points(formula, dtype, count)
    arguments = columns(formula, rows, dtype)
    function = stabilize(lambda *given: formula.function(OURS, *given))
    with np.errstate(all="ignore"):
        values = np.asarray(function(*arguments))
        slopes = np.asarray(fxgrad.grad(lambda *given: np.sum(
            weighted(function(*given)) if formula.vector and values.ndim == 2 else function(*given)))(*arguments))
    assert values.dtype == dtype
    found = [0.0, 0.0]
    for row, value, slope in zip(rows, values, slopes, strict=True):
        exact = value_at(formula, row)
        if exact is None or near_zero(formula, row, exact):
            continue
        found[0] = max(found[0], ulps(value, exact, dtype))
        if formula.slope and (exact_slope := slope_at(formula, row)) is not None:
            found[1] = max(found[1], ulps(slope, exact_slope, dtype, formula.vector, formula.least))
    return found[0], found[1]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_certificates(formula: Formula, dtype: Any) -> None:
    """The naive formula itself, in as many digits as it takes, agrees over the exponent range."""
    value, slope = worst(formula, dtype, 6)
    assert value <= ULPS
    assert slope <= OF_PRIMITIVES.get(formula.rule, ULPS)


def test_every_formula_is_rewritten_by_its_rule_and_every_rule_has_one() -> None:
    for formula in FORMULAS:
        row = points(formula, np.float64, 4)[0]
        arguments = columns(formula, [row, row], np.float64)
        program = make_program(lambda *given, f=formula: f.function(OURS, *given))(*arguments)
        found = fxgrad.tools.numerics.rewriting.find_forms(program)
        assert formula.rule in {each.rule.name for each in found.all()}, formula.name
    others = {"solve", "log of a determinant", "cancelling exponentials", "difference of inverses"}
    assert {rule.name for rule in fxgrad.tools.numerics.RULES} - {formula.rule for formula in FORMULAS} <= others


# --- however it is written ------------------------------------------------------------------------------------------

WRITTEN: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "axis": (lambda x: np.log(np.sum(np.exp(x), axis=0)), lambda x: jax.nn.logsumexp(x, axis=0)),
    "negative axis": (lambda x: np.log(np.exp(x).sum(-2)), lambda x: jax.nn.logsumexp(x, axis=-2)),
    "two axes": (lambda x: np.log(np.sum(np.exp(x), axis=(0, 2))), lambda x: jax.nn.logsumexp(x, axis=(0, 2))),
    "kept": (lambda x: np.log(np.sum(np.exp(x), axis=1, keepdims=True)),
             lambda x: jax.nn.logsumexp(x, axis=1, keepdims=True)),
    "of ours": (lambda x: fnp.log(fnp.sum(fnp.exp(x), axis=2)), lambda x: jax.nn.logsumexp(x, axis=2)),
    "where": (lambda x: np.log(np.sum(np.exp(x), axis=2, where=x * x > 0.1)),
              lambda x: jax.nn.logsumexp(x, axis=2, where=x * x > 0.1)),
    "mean": (lambda x: np.log(np.mean(np.exp(x), axis=1)), lambda x: jax.nn.logsumexp(x, axis=1) - np.log(3.0)),
    "sum over count": (lambda x: np.log(np.sum(np.exp(x), axis=1) / 3),
                       lambda x: jax.nn.logsumexp(x, 1) - np.log(3.0)),
    "softmax over the first": (lambda x: np.exp(x) / np.exp(x).sum(0), lambda x: jax.nn.softmax(x, 0)),
    "softmax over the middle": (lambda x: np.exp(x) / np.exp(x).sum(1)[:, None, :], lambda x: jax.nn.softmax(x, 1)),
    "softmax over all": (lambda x: np.exp(x) / np.exp(x).sum(), lambda x: jax.nn.softmax(x, (0, 1, 2))),
    "softmax of a part": (lambda x: np.exp(x[..., 0]) / np.exp(x).sum(-1), lambda x: jax.nn.softmax(x)[..., 0]),
    "negated": (lambda x: -np.log(np.exp(-x).sum(-1)), lambda x: -jax.nn.logsumexp(-x, -1)),
    "softplus by adding a negative": (lambda x: np.log(np.exp(x) - (-1)), jax.nn.softplus),
    "expm1 by adding a negative": (lambda x: (-1.0 + np.exp(x * 1e-9)), lambda x: jnp.expm1(x * 1e-9)),
    "log of an index": (lambda x: np.log((np.exp(x) / np.exp(x).sum(-1, keepdims=True))[:, 1]),
                        lambda x: jax.nn.log_softmax(x)[:, 1]),
    "log of the library's softmax": (lambda x: np.log(fxgrad.nn.softmax(x, axis=1)),
                                  lambda x: jax.nn.log_softmax(x, 1)),
    "binary cross-entropy": (
        lambda x: -(0.25 * np.log(1 / (1 + np.exp(-x))) + 0.75 * np.log(1 - 1 / (1 + np.exp(-x)))),
        lambda x: -(0.25 * jax.nn.log_sigmoid(x) + 0.75 * jax.nn.log_sigmoid(-x))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
def test_forms_are_found_however_they_are_written(name: str) -> None:
    naive, right = WRITTEN[name]
    x = np.linspace(-900.0, 900.0, 24).reshape(2, 3, 4)[:, ::-1]
    with jax.enable_x64(True):
        expected = np.asarray(right(jnp.asarray(x)))
    np.testing.assert_allclose(stabilize(naive)(x), expected, rtol=1e-14, atol=1e-30)
    np.testing.assert_allclose(fxgrad.jit(stabilize(naive))(x), expected, rtol=1e-14, atol=1e-30)
    for dtype in (np.float32, np.float16):
        small = np.linspace(-3.0, 3.0, 24, dtype=dtype).reshape(2, 3, 4)
        found = stabilize(naive)(small)
        assert found.dtype == np.asarray(naive(small)).dtype
        if name != "expm1 by adding a negative":
            np.testing.assert_allclose(found, naive(small), rtol=40 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps)


def test_inverse_times_vector_and_determinants() -> None:
    a = np.random.default_rng(0).normal(size=(5, 5)) + 3 * np.eye(5)
    b = np.arange(5.0)
    solve = make_program(stabilize(lambda a, b: np.linalg.inv(a) @ b))(a, b)
    assert "dot_general" not in {equation.primitive.name for equation in solve.equations}
    np.testing.assert_allclose(solve(a, b), np.linalg.solve(a, b), rtol=1e-14)
    np.testing.assert_allclose(stabilize(lambda a, b: np.linalg.inv(a) @ b)(a, np.stack([b, b], 1))[:, 1],
                               np.linalg.solve(a, b), rtol=1e-14)
    log_det = stabilize(lambda a: np.log(np.linalg.det(a)))
    for scale in (1.0, 1e-90, 1e90):
        expected = np.linalg.slogdet(a * scale)[1]
        np.testing.assert_allclose(log_det(a * scale), expected, rtol=1e-13)
        np.testing.assert_allclose(fxgrad.grad(log_det)(a * scale), np.linalg.inv(a * scale).T, rtol=1e-12)


# --- under transformations ------------------------------------------------------------------------------------------

LARGE = np.array([1000.0, 999.0, -5.0])
SHARES = np.exp(LARGE - 1000.0) / np.exp(LARGE - 1000.0).sum()
NESTED: dict[str, Callable[[], Any]] = {
    "grad of": lambda: fxgrad.grad(stabilize(log_sum_exp))(LARGE),
    "of grad": lambda: stabilize(fxgrad.grad(log_sum_exp))(LARGE),
    "jit of grad of": lambda: fxgrad.jit(fxgrad.grad(stabilize(log_sum_exp)))(LARGE),
    "of jit of grad": lambda: stabilize(fxgrad.jit(fxgrad.grad(log_sum_exp)))(LARGE),
    "grad of jit within": lambda: fxgrad.grad(stabilize(fxgrad.jit(log_sum_exp)))(LARGE),
    "of vjp": lambda: stabilize(lambda x: fxgrad.vjp(log_sum_exp, x)[1](1.0)[0])(LARGE),
    "of jacfwd": lambda: stabilize(fxgrad.jacfwd(log_sum_exp))(LARGE),
    "jacrev of": lambda: fxgrad.jacrev(stabilize(log_sum_exp))(LARGE),
    "of vmap of grad": lambda: stabilize(fxgrad.vmap(fxgrad.grad(log_sum_exp)))(np.stack([LARGE, LARGE]))[1],
    "vmap of": lambda: fxgrad.vmap(stabilize(fxgrad.grad(log_sum_exp)))(np.stack([LARGE, LARGE]))[1],
    "grad of checkpoint of": lambda: fxgrad.grad(fxgrad.checkpoint(stabilize(log_sum_exp)))(LARGE),
    "grad of, of checkpoint": lambda: fxgrad.grad(stabilize(fxgrad.checkpoint(log_sum_exp)))(LARGE),
    "of itself": lambda: fxgrad.grad(stabilize(stabilize(log_sum_exp)))(LARGE),
    "of scan": lambda: fxgrad.grad(stabilize(lambda x: fxgrad.lax.scan(
        lambda c, row: (c + log_sum_exp(row), None), 0.0, fnp.stack([x]))[0]))(LARGE),
    "in scan": lambda: fxgrad.grad(lambda x: fxgrad.lax.scan(
        lambda c, row: (c + stabilize(log_sum_exp)(row), None), 0.0, fnp.stack([x]))[0])(LARGE),
    "of cond": lambda: fxgrad.grad(stabilize(lambda x: fxgrad.cond(x[0] > 0, log_sum_exp, np.sum, x)))(LARGE),
    "custom rule": lambda: fxgrad.grad(stabilize(_custom()))(LARGE),
}


def _custom() -> Callable[..., Any]:
    function = fxgrad.custom_jvp(log_sum_exp)
    function.defjvp(lambda primals, tangents: (
        function(*primals), fnp.sum(tangents[0] * fxgrad.nn.softmax(primals[0]))))
    return function


@pytest.mark.slow
@pytest.mark.parametrize("name", NESTED)
def test_nestings(name: str) -> None:
    np.testing.assert_allclose(NESTED[name](), SHARES, rtol=1e-12)


def test_before_and_after_differentiation() -> None:
    np.testing.assert_allclose(NESTED["grad of"](), SHARES, rtol=1e-14)
    np.testing.assert_allclose(NESTED["of grad"](), SHARES, rtol=1e-14)
    second = stabilize(fxgrad.hessian(log_sum_exp))(LARGE)
    np.testing.assert_allclose(second, np.diag(SHARES) - np.outer(SHARES, SHARES), atol=1e-15, rtol=1e-12)
    assert np.isnan(fxgrad.grad(log_sum_exp)(LARGE)).any()  # and outside nothing is changed


def test_what_the_gradient_does_not_depend_on_is_part_of_a_form() -> None:
    def share(x, y):
        return np.exp(x) / (np.exp(x) + np.exp(y))

    for first in (0, 1):
        found = stabilize(fxgrad.grad(share, argnums=first))(1000.0, 999.0)
        assert found == fxgrad.grad(stabilize(share), argnums=first)(1000.0, 999.0)
        assert abs(found) == pytest.approx(math.exp(-1.0) / (1.0 + math.exp(-1.0)) ** 2, rel=1e-15)
    value, slope, aux = *fxgrad.value_and_grad(log_sum_exp)(np.zeros(2)), 1.0
    seen = stabilize(fxgrad.value_and_grad(lambda x, y: (log_sum_exp(x), (np.exp(y), aux)), has_aux=True))
    (found_value, (power, one)), found_slope = seen(np.zeros(2), 0.0)
    assert (found_value, power, one, *found_slope) == (value, 1.0, 1.0, *slope)


def test_a_jitted_function_is_traced_apart_within() -> None:
    jitted = fxgrad.jit(fxgrad.grad(log_sum_exp))
    np.testing.assert_allclose(stabilize(jitted)(LARGE), SHARES, rtol=1e-14)
    assert np.isnan(stabilize(lambda x: x * 1.0)(jitted(LARGE))).any()
    np.testing.assert_allclose(stabilize(lambda x: jitted(x) * 1.0)(LARGE), SHARES, rtol=1e-14)


def test_backward_programs_of_naive_forms() -> None:
    for function in (lambda x: np.log(1 + np.exp(x)), lambda x: 1 / (1 + np.exp(-x)), lambda x: np.log(np.exp(x) * 2),
                     lambda x: np.log(np.cosh(x))):
        program = stabilize(make_program(fxgrad.grad(function))(1.0))
        assert np.isfinite([program(800.0), program(-800.0)]).all()


def test_arguments_and_results_of_all_kinds() -> None:
    @stabilize
    def model(parameters, *, scale):
        if scale > 1.0:  # Python decides by values
            return {"loss": np.log(np.sum(np.exp(parameters["w"] * scale))), "kept": parameters["w"]}
        return {"loss": 0.0, "kept": parameters["w"]}

    found = model({"w": np.array([500.0, 400.0])}, scale=2.0)
    assert (found["loss"], found["kept"].tolist()) == (1000.0, [500.0, 400.0])
    assert model({"w": np.ones(2)}, scale=1.0)["loss"] == 0.0
    with pytest.raises(fxgrad.errors.ArgumentError) as raised:
        stabilize(log_sum_exp)("no")
    assert str(raised.value).splitlines()[0] == (
        "stabilize: x is a str, where an array or a number is needed. Pass it by closure (functools.partial), or leave "
        "it out of the arguments that are transformed")


def test_programs() -> None:
    program = make_program(log_sum_exp)(LARGE)
    better = stabilize(program)
    assert better is not program
    assert better.signature == program.signature
    assert float(better(LARGE)) == pytest.approx(1000.0 + math.log1p(math.exp(-1.0)), rel=1e-15)
    assert stabilize(better) is better
    closed = make_program(lambda x: np.log(np.sum(np.exp(x) * np.array([1.0, 2.0]))))(np.ones(2))
    assert float(stabilize(closed)(np.array([0.0, 800.0]))) == 800.0 + math.log(2.0)


def test_what_is_not_naive_is_left_as_it_is() -> None:
    def good(x):
        shifted = np.exp(x - np.max(x, keepdims=True))
        return fxgrad.nn.softmax(x) + np.log1p(x) + np.exp(x) / 2 + shifted / np.sum(shifted) + np.log(x + 2)

    program = make_program(good)(np.ones(3))
    assert stabilize(program) is program
    of_complex = make_program(lambda z: np.log(1 + np.exp(z)))(np.ones(2, complex))
    assert stabilize(of_complex) is of_complex
    of_integers = make_program(lambda n, m: n ** 2 - m ** 2)(np.arange(3), np.arange(3))
    assert stabilize(of_integers) is of_integers


def test_ones_of_a_shape_give_the_result_that_shape() -> None:
    """The 1 of a form may be an array of ones, of which the formula in its place knows nothing."""
    ones, x = np.ones(3), 0.5
    found = {
        "softplus": stabilize(lambda x, y: np.log(fnp.full_like(y, 1.0) + np.exp(x)))(x, ones),
        "expm1": stabilize(lambda x, y: np.exp(x) - fnp.full_like(y, 1.0))(x, ones),
        "sigmoid": stabilize(lambda x, y: fnp.full_like(y, 1.0) / (1 + np.exp(-x)))(x, ones)}
    expected = {"softplus": math.log1p(math.exp(0.5)), "expm1": math.expm1(0.5), "sigmoid": 1 / (1 + math.exp(-0.5))}
    for name, result in found.items():
        assert result.shape == (3,), name
        np.testing.assert_allclose(result, expected[name], rtol=1e-15)


def test_numbers_are_not_multiplied_beyond_what_dtypes_hold() -> None:
    def function(x):
        return np.exp(x) * 1e200 / np.sum(np.exp(x)) * 1e-200 * 1e250 / 1e250

    x = np.array([1.0, 0.5])
    np.testing.assert_allclose(stabilize(function)(x), function(x), rtol=1e-15)
    of_zero = stabilize(lambda x: x / (1 + np.exp(-x)) * 0.0 + 0.0 / (1 + np.exp(-x)))
    assert of_zero(x).tolist() == [0.0, 0.0]
    quarters = np.array([3.0, 4.0])
    length = stabilize(lambda x: np.sqrt(np.sum((x * 1e200) ** 2)))
    assert length(quarters) == pytest.approx(5e200, rel=1e-15)
    np.testing.assert_allclose(fxgrad.grad(length)(quarters), [6e199, 8e199], rtol=1e-15)


def test_shares_along_leading_axes() -> None:
    x = np.arange(12.0).reshape(2, 2, 3) * 200.0
    for axis in (0, (0, 1)):
        shares = stabilize(lambda x, axis=axis: np.exp(x) / np.sum(np.exp(x), axis=axis))(x)
        np.testing.assert_allclose(np.sum(shares, axis=axis), 1.0, rtol=1e-15)


def test_a_program_is_rewritten_once() -> None:
    numbers = [3.25, 4.75]
    first, second = (make_program(lambda x, k=k: log_sum_exp(x) * k)(LARGE) for k in numbers)
    assert stabilize(first) is not first
    assert stabilize(second) is not second
    traced = make_program(stabilize(log_sum_exp))
    assert fxgrad.tools.numerics.rewriting.rewrite_forms(first) is fxgrad.tools.numerics.rewriting.rewrite_forms(first)
    assert not traced(LARGE).diff(traced(LARGE))


# --- never worse ----------------------------------------------------------------------------------------------------

UNARY = [np.exp, np.tanh, np.sqrt, np.log, np.cos, np.abs, lambda x: 1 - x, lambda x: 1 + x, lambda x: 1 / x,
         lambda x: x ** 2, lambda x: -x, np.cosh, np.log1p, lambda x: np.exp(x) / np.sum(np.exp(x)), np.square,
         lambda x: np.sum(x, keepdims=True), lambda x: np.mean(x, keepdims=True)]
BINARY = [np.add, np.subtract, np.multiply, np.divide]


@examples(25)
@given(recipes(), shapes)
def test_random_programs_keep_their_values(steps: Any, shape: Any) -> None:
    x, y = np.random.default_rng(0).uniform(-1.0, 1.0, (2, *shape))
    function = build(steps, np)
    np.testing.assert_allclose(stabilize(function)(x, y), function(x, y), rtol=1e-12, atol=1e-15)


@pytest.mark.slow
def test_random_formulas_are_no_worse() -> None:
    """Formulas drawn from what rules are made of: where float64 is right, so is what is written in its place."""
    random, rewritten = np.random.default_rng(1), 0
    for _ in range(250):
        chosen = [(UNARY[random.integers(len(UNARY))], BINARY[random.integers(len(BINARY))], random.integers(2))
                  for _ in range(4)]

        def function(x, chosen=chosen):
            values = [x, x]
            for unary, binary, both in chosen:
                values.append(binary(unary(values[-1]), values[-2]) if both else unary(values[-1]))
            return values[-1]

        x = random.uniform(0.2, 1.5, 4)
        with np.errstate(all="ignore"):
            program = make_program(function)(x)
            better = stabilize(program)
            rewritten += better is not program
            exact = np.asarray(function(x.astype(np.longdouble)), np.float64)
            naive, stable = np.asarray(program(x)), np.asarray(better(x))
        regular = np.isfinite(exact) & np.isfinite(naive) & (np.abs(exact) > 1e-290)
        error, before = np.abs(stable - exact)[regular], np.abs(naive - exact)[regular]
        assert np.all(error <= 4 * before + 60 * np.abs(exact)[regular] * np.finfo(float).eps + 1e-14)
    assert rewritten > 60


EDGES = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 5e-324, 1.7e308, -1.7e308, 1.0, -1.0])


@pytest.mark.slow
def test_values_at_the_edges() -> None:
    """What is NaN stays it, unless it is a number; and where the naive form has a number, the stable one has it."""
    for formula in FORMULAS:
        if len(formula.ranges) > 1 or formula.vector or formula.name == "log(gamma(x))":
            continue
        low, high = formula.ranges[0]
        x = EDGES[np.isnan(EDGES) | ((low <= EDGES) & (high >= EDGES))]
        program = make_program(lambda x, f=formula: f.function(OURS, x))(x)
        with np.errstate(all="ignore"):
            naive, stable = program(x), stabilize(program)(x)
        assert np.isnan(stable[np.isnan(x)]).all(), formula.name
        signs = np.isinf(naive) & np.isnan(stable)
        assert not (np.isfinite(naive) & ~np.isfinite(stable) | signs).any(), (formula.name, x, naive, stable)


@pytest.mark.slow
def test_empty_arrays() -> None:
    for formula in FORMULAS:
        if not formula.vector:
            arguments = [np.ones((0, 3))] * len(formula.ranges)
            assert stabilize(lambda *given, f=formula: f.function(OURS, *given))(*arguments).shape == (0, 3)
    assert stabilize(lambda x: np.log(np.sum(np.exp(x), axis=-1)))(np.ones((2, 0))).tolist() == [-np.inf, -np.inf]


# --- rows of the checklist ------------------------------------------------------------------------------------------


def test_row_w9_log_sum_exp_is_accurate_where_the_naive_form_is_not() -> None:
    for dtype in (np.float64, np.float32):
        for scale in (1.0, 1e2, 1e4):
            z = np.linspace(-scale, scale, 7, dtype=dtype)
            exact = scale + math.log(math.fsum(math.exp(float(each) - scale) for each in z))
            for value in (stabilize(log_sum_exp)(z), fxgrad.nn.logsumexp(z)):
                assert abs(float(value) - exact) <= 4 * np.spacing(dtype(exact))
        assert np.all(np.isfinite(fxgrad.grad(stabilize(log_sum_exp))(np.linspace(-1e4, 1e4, 7, dtype=dtype))))
    assert lint(log_sum_exp)(np.ones(3))
