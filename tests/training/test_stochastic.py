"""Estimators against closed forms: straight-through, score functions, Gumbel-softmax, pathwise gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import stochastic
from fxgrad.errors import ArgumentError, DTypeError, ShapeError, TreeError
from fxgrad.training.stochastic import gumbel_softmax, score_function, straight_through

X = np.array([-1.6, -0.2, 0.3, 2.7])
KEY = fxgrad.random.key(7)


# --- straight through -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flat", [np.round, np.sign, lambda x: fnp.where(x > 0, 1.0, 0.0)])
def test_row_m15_values_are_exact_and_derivatives_those_of_the_identity(flat: Any) -> None:
    estimated = straight_through(flat)
    np.testing.assert_array_equal(estimated(X), flat(X))
    np.testing.assert_array_equal(fxgrad.jvp(estimated, (X,), (2.0 * X,))[1], 2.0 * X)
    for gradient in (fxgrad.grad(lambda x: np.sum(estimated(x) ** 3)), fxgrad.vmap(fxgrad.grad(
            lambda x: estimated(x) ** 3))):
        np.testing.assert_array_equal(gradient(X), 3.0 * flat(X) ** 2)
    second = fxgrad.vmap(fxgrad.grad(fxgrad.grad(lambda x: estimated(x) ** 3)))
    np.testing.assert_array_equal(second(X), 6.0 * flat(X))


@pytest.mark.slow
def test_row_m15_compiled_and_in_loops() -> None:
    rounded = straight_through(np.round)

    def loss(x):
        return np.sum(fxgrad.scan(lambda c, _: (rounded(1.5 * c), c), x, None, length=3)[0])

    for gradient in (fxgrad.grad(loss), fxgrad.jit(fxgrad.grad(loss)), fxgrad.grad(fxgrad.checkpoint(loss))):
        np.testing.assert_allclose(gradient(X), np.full(4, 1.5 ** 3), rtol=1e-12)
    assert np.asarray(fxgrad.jit(rounded)(X)).tolist() == np.round(X).tolist()


def test_argmax_as_one_hot_through_softmax() -> None:
    choose = straight_through(lambda x: fxgrad.nn.one_hot(fnp.argmax(x), 4, dtype=np.float64),
                              through=fxgrad.nn.softmax)
    weights = np.arange(4.0)
    np.testing.assert_array_equal(choose(X), [0, 0, 0, 1])
    np.testing.assert_allclose(fxgrad.grad(lambda x: choose(x) @ weights)(X),
                               fxgrad.grad(lambda x: fxgrad.nn.softmax(x) @ weights)(X), rtol=1e-12)


def test_containers_other_arguments_and_closures() -> None:
    quantised = straight_through(lambda tree, step: fxgrad.tree.map(lambda leaf: np.round(leaf / step) * step, tree))
    slopes = fxgrad.grad(lambda tree, step: np.sum(quantised(tree, step)["a"] * 2.0) + quantised(tree, step)["b"],
                         (0, 1))({"a": X, "b": 1.2}, 0.5)
    np.testing.assert_array_equal(slopes[0]["a"], np.full(4, 2.0))
    assert (slopes[0]["b"], slopes[1]) == (1.0, 0.0)

    def closed(w):  # the derivative of `through` is whole, that of the values nothing
        return straight_through(lambda x: np.round(w * x), through=lambda x: w * x)(3.0)
    assert fxgrad.value_and_grad(closed)(0.4) == (1.0, 3.0)
    half = straight_through(np.round)(np.float16(2.6))
    assert half.dtype == np.float16


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda: straight_through(np.round)(), ArgumentError,
     ("straight_through(round) was called without a positional argument, whose derivative it is to have; pass one, or "
     "say through= whose it has")),
    (lambda: straight_through(lambda x: x > 0)(2.0), DTypeError,
     ("straight_through(function) returned result of dtype bool, which has no derivative; convert it with "
     ".astype(float)")),
    (lambda: straight_through(np.round)(2), DTypeError,
     ("straight_through(round) returned result of dtype int64, which has no derivative; convert it with "
     ".astype(float)")),
    (lambda: straight_through(lambda x: x[0])(X), ShapeError,
     ("straight_through(function) returned result of shape (), and its first argument has (4,); the shapes must be the "
     "same, or through= must return one of that shape")),
    (lambda: straight_through(np.round, through=lambda x: (x, x))(X), TreeError,
     ("straight_through(round) returned the structure PyTreeDef(*), and through has PyTreeDef((*, *)); they must be "
     "the same, or through= must return one like it")),
    (lambda: score_function(X, X[:, None]), ShapeError,
     ("score_function: the values have the shape (4,), the log-probabilities (4, 1); each draw has one of both. Sum "
     "log_prob over the axes that are parts of one draw")),
    (lambda: score_function(X, X, "mean"), ArgumentError,
     "score_function: baseline is 'mean', where a number, an array or 'leave-one-out' is needed"),
    (lambda: score_function(X[:1], X[:1], "leave-one-out"), ShapeError,
     ("score_function: baseline='leave-one-out' of values of shape (1,) along axis 0; it is a mean of other draws, so "
     "at least 2 are needed")),
    (lambda: gumbel_softmax(KEY, X, 0.0), ArgumentError,
     "gumbel_softmax: temperature is 0.0, where a number above 0 is needed; for one-hot values pass hard=True"),
])
def test_mistakes(call: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).split("\n")[0] == text


# --- score functions ------------------------------------------------------------------------------------------------


def test_row_m13_it_is_unbiased_exactly_where_draws_are_all_of_a_distribution() -> None:
    """Four draws, weighted by their probabilities, are the whole expectation: both derivatives are exact."""
    logits, values = np.array([0.3, -1.0, 0.2, 0.8]), np.array([3.0, -2.0, 5.0, 1.0])

    def exact(logits):
        return np.sum(fxgrad.nn.softmax(logits) * values)

    probabilities = fxgrad.nn.softmax(logits)
    for baseline in (None, 2.0):
        def estimate(logits, baseline=baseline):
            return np.sum(probabilities * score_function(values, fxgrad.nn.log_softmax(logits), baseline))
        assert estimate(logits) == pytest.approx(exact(logits), rel=1e-14)
        np.testing.assert_allclose(fxgrad.grad(estimate)(logits), fxgrad.grad(exact)(logits), rtol=1e-12, atol=1e-14)
        if baseline is None:
            np.testing.assert_allclose(fxgrad.hessian(estimate)(logits), fxgrad.hessian(exact)(logits), rtol=1e-12,
                                       atol=1e-14)


@pytest.mark.slow
def test_row_m13_it_is_unbiased_and_baselines_take_variance_away() -> None:
    """The gradient of E[x²], x ~ N(mu, 1), is 2 mu; 2000 estimates of 50 draws each."""
    noise = np.asarray(fxgrad.random.normal(KEY, (2000, 50), np.float64))
    mu = 1.5

    def estimates(baseline: Any) -> Any:
        def estimate(mu, noise):
            draws = fxgrad.stop_gradient(mu + noise)
            return np.mean(score_function(draws ** 2, fxgrad.scipy.stats.norm.logpdf(draws, mu), baseline))
        return fxgrad.vmap(fxgrad.grad(estimate), in_axes=(None, 0))(mu, noise)

    found = {baseline: estimates(baseline) for baseline in (None, mu ** 2 + 1.0, "leave-one-out")}
    for each in found.values():
        assert abs(np.mean(each) - 2 * mu) < 4 * np.std(each) / np.sqrt(2000)
    spread = {baseline: np.std(each) for baseline, each in found.items()}
    assert spread[mu ** 2 + 1.0] < 0.8 * spread[None]
    assert spread["leave-one-out"] < 0.8 * spread[None]


@pytest.mark.slow
def test_row_m13_values_that_depend_on_parameters_and_discrete_draws() -> None:
    """E[(x - p)²] of a coin is p (1 - p): its derivative has a part through the value."""
    draws = np.asarray(fxgrad.random.bernoulli(KEY, 0.3, (40_000,))).astype(float)

    def estimate(p):
        return np.mean(score_function((draws - p) ** 2, fxgrad.scipy.stats.bernoulli.logpmf(draws, p), "leave-one-out"))

    for gradient in (fxgrad.grad(estimate), fxgrad.jit(fxgrad.grad(estimate))):
        assert gradient(0.3) == pytest.approx(1 - 2 * 0.3, abs=0.02)


# --- Gumbel-softmax, pathwise gradients -----------------------------------------------------------------------------


@pytest.mark.slow
def test_row_m14_hard_choices_have_the_probabilities_and_the_soft_gradient() -> None:
    logits = np.log(np.array([0.1, 0.2, 0.7]))
    many = np.broadcast_to(logits, (20_000, 3))
    hard = gumbel_softmax(KEY, many, 0.5, hard=True)
    assert set(np.unique(hard)) == {0.0, 1.0}
    np.testing.assert_array_equal(np.sum(hard, axis=1), 1.0)
    np.testing.assert_allclose(np.mean(hard, axis=0), [0.1, 0.2, 0.7], atol=0.015)

    weights = np.array([1.0, 5.0, 2.0])
    slopes = [fxgrad.grad(lambda x, hard=hard: gumbel_softmax(KEY, x, 0.5, hard=hard) @ weights)(logits)
              for hard in (False, True)]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-12)
    assert np.all(slopes[0] != 0.0)


@pytest.mark.slow
def test_row_m14_the_limit_of_the_temperature() -> None:
    """Soft weights go to the hard ones of the same key, and the mean gradient to that of the expectation."""
    logits, weights = np.log(np.array([0.1, 0.2, 0.7])), np.array([1.0, 5.0, 2.0])
    hard = gumbel_softmax(KEY, np.broadcast_to(logits, (2000, 3)), hard=True)
    many = np.broadcast_to(logits, (2000, 3))
    apart = [np.mean(np.abs(gumbel_softmax(KEY, many, temperature) - hard)) for temperature in (1.0, 0.1, 1e-3)]
    assert apart[0] > 3 * apart[1] > 30 * apart[2]

    def bias(temperature: float) -> Any:
        many = fxgrad.grad(lambda x: np.mean(gumbel_softmax(
            KEY, fnp.broadcast_to(x, (200_000, 3)), temperature) @ weights))(logits)
        return np.max(np.abs(many - fxgrad.grad(lambda x: fxgrad.nn.softmax(x) @ weights)(logits)))

    assert bias(0.1) < 0.05 < bias(2.0)


@pytest.mark.slow
@pytest.mark.parametrize(("draw", "parameters", "mean"), [
    (lambda noise, mu, sigma: mu + sigma * noise, (1.5, 0.7), lambda mu, sigma: mu ** 2 + sigma ** 2),
    (lambda _, a: fxgrad.random.gamma(KEY, a, (40_000,), np.float64), (2.5,), lambda a: a * (a + 1)),
    (lambda _, a, b: fxgrad.random.beta(KEY, a, b, (40_000,), np.float64), (2.5, 1.5),
     lambda a, b: a * (a + 1) / ((a + b) * (a + b + 1))),
    (lambda _, scale: scale * fxgrad.random.exponential(KEY, (40_000,), np.float64), (0.7,), lambda s: 2 * s ** 2),
    (lambda _, scale: scale * fxgrad.random.laplace(KEY, (40_000,), np.float64), (0.7,), lambda s: 2 * s ** 2),
], ids=["normal", "gamma", "beta", "exponential", "laplace"])
def test_row_m12_pathwise_gradients_are_those_of_the_closed_form(draw: Any, parameters: Any, mean: Any) -> None:
    """Of E[x²]; the draws of gamma and beta distributions have implicit derivatives in their shapes."""
    noise = np.asarray(fxgrad.random.normal(KEY, (40_000,), np.float64))
    every = tuple(range(len(parameters)))
    found = fxgrad.grad(lambda *p: np.mean(draw(noise, *p) ** 2), every)(*parameters)
    np.testing.assert_allclose(found, fxgrad.grad(mean, every)(*parameters), rtol=0.03)


def test_public_names() -> None:
    assert stochastic.straight_through is fxgrad.straight_through
