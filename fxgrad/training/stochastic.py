"""Estimators: of gradients through rounding, choices and random draws, and of traces from random directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad import numpy as fnp
from fxgrad import random
from fxgrad.engine import dtypes, tree
from fxgrad.engine.api.arguments import transformation
from fxgrad.engine.api.custom_calls import is_traced
from fxgrad.engine.api.residuals import stop_gradient
from fxgrad.engine.frontend.operands import axis_of
from fxgrad.engine.higher_order.custom import bind_straight_through as with_derivative
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, DTypeError, ShapeError, TreeError
from fxgrad.nn.exponentials import one_hot, softmax
from fxgrad.training.trace_estimators import Estimate, divergence, hessian_diag, laplacian

__all__ = ["Estimate", "divergence", "gumbel_softmax", "hessian_diag", "laplacian", "score_function",
           "straight_through"]


# --- straight through -----------------------------------------------------------------------------------------------


def _replace_value(value: Any, like: Any) -> Any:
    """Return `value` with the derivative of `like`."""
    return with_derivative(value, like) if is_traced((value, like)) else value


def straight_through(fun: Callable[..., Any], through: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a function with the values of `fun` and the derivative of `through`, by default the first argument's.

    It is for functions that are flat or jump, such as rounding, signs, and one-hot choices (Bengio, Léonard and
    Courville, 2013). The values are exactly those of `fun`, and the derivatives, of every order and in both modes,
    exactly those of `through`, which is called with the same arguments. Arguments and results are containers of arrays;
    the results of both functions have the same structure and shapes, and `fun` returns floating-point numbers. Values
    that `fun` closes over have no derivative; those that `through` closes over have one. Raises `TreeError`,
    `ShapeError` or `DTypeError` otherwise.

    >>> import numpy as np, fxgrad
    >>> rounded = fxgrad.straight_through(np.round)
    >>> value, slope = fxgrad.value_and_grad(rounded)(2.7)
    >>> float(value), float(slope)
    (3.0, 1.0)
    >>> sign = fxgrad.straight_through(np.sign, through=np.tanh)  # flat far from the jump
    >>> bool(fxgrad.grad(sign)(5.0) < 1e-3)
    True
    """
    name = function_name(fun)

    @transformation("straight_through", fun)
    def estimated(*args: Any, **kwargs: Any) -> Any:
        if through is None and not args:
            raise ArgumentError(at_user_line(
                f"straight_through({name}) was called without a positional argument, whose derivative it is to have; "
                "pass one, or say through= whose it has"))
        values = fun(*args, **kwargs)
        likes = args[0] if through is None else through(*args, **kwargs)
        _check_match(f"straight_through({name})", values, likes, "its first argument" if through is None else "through")
        return tree.map(lambda value, like: _replace_value(stop_gradient(value), like), values, likes)
    return estimated


def _check_match(what: str, values: Any, likes: Any, whose: str) -> None:
    """Raise unless `values` can have the derivative of `likes`."""
    given: Any = tree.structure(values)
    needed: Any = tree.structure(likes)
    if given != needed:
        raise TreeError(at_user_line(
            f"{what} returned the structure {given}, and {whose} has {needed}; they must be the same, or through= "
            "must return one like it"))
    names = tree.leaf_names(values, "result")
    for name, value, like in zip(names, tree.leaves(values), tree.leaves(likes), strict=True):
        if fnp.shape(value) != fnp.shape(like):
            raise ShapeError(at_user_line(
                f"{what} returned {name} of shape {fnp.shape(value)}, and {whose} has {fnp.shape(like)}; the shapes "
                "must be the same, or through= must return one of that shape"))
        for dtype, has in ((fnp.result_type(value), f"returned {name}"), (fnp.result_type(like), f"got {whose}")):
            if not dtypes.is_inexact(dtype):
                raise DTypeError(at_user_line(
                    f"{what} {has} of dtype {dtype.name}, which has no derivative; convert it with .astype(float)"))


# --- score functions ------------------------------------------------------------------------------------------------


def score_function(value: Any, log_prob: Any, baseline: Any = None, *, axis: int = 0) -> Any:
    """Return `value` with the derivative of its expectation over draws: value · ∇log_prob, and ∇value itself.

    `value` has a function's values at draws, and `log_prob` the logarithm of the probability, or the density, of each
    draw, as a function of the parameters; both have one shape, which is that of the result. The draws themselves must
    not depend on the parameters: `stop_gradient` them. The mean of the result is an unbiased estimate of the
    expectation, and its derivatives of all orders are unbiased estimates of the expectation's (REINFORCE: Williams,
    1992; the form for all orders: DiCE, Foerster et al., 2018).

    `baseline` is subtracted from the value in the estimate of the first derivative. A number or an array near the
    expectation reduces the variance without bias, provided that it does not depend on the draw that it is used for.
    `"leave-one-out"` is the mean of the other draws along `axis` (Kool, van Hoof and Welling, 2019); there must be at
    least two draws.

    Raises `ShapeError` for shapes that differ, and `ArgumentError` for another word.

    >>> import numpy as np, fxgrad
    >>> draws = np.array([0.0, 1.0, 1.0, 1.0])  # of a coin that shows 1 with probability 3/4
    >>> def cost(p):
    ...     log_prob = fxgrad.scipy.stats.bernoulli.logpmf(draws, p)
    ...     return np.mean(fxgrad.stochastic.score_function(10.0 * draws, log_prob))
    >>> float(cost(0.75)), float(fxgrad.grad(cost)(0.75))  # the expectation is 10 p
    (7.5, 10.0)
    """
    shape = fnp.shape(value)
    if fnp.shape(log_prob) != shape:
        raise ShapeError(at_user_line(
            f"score_function: the values have the shape {shape}, the log-probabilities {fnp.shape(log_prob)}; each "
            "draw has one of both. Sum log_prob over the axes that are parts of one draw"))
    if isinstance(baseline, str):
        if baseline != "leave-one-out":
            raise ArgumentError(at_user_line(
                f"score_function: baseline is {baseline!r}, where a number, an array or 'leave-one-out' is needed"))
        shape = fnp.shape(value)
        if not shape or shape[axis_of("score_function", axis, len(shape))] < 2:
            raise ShapeError(at_user_line(
                f"score_function: baseline='leave-one-out' of values of shape {shape} along axis {axis}; it is a mean "
                "of other draws, so at least 2 are needed"))
        baseline = (fnp.sum(value, axis=axis, keepdims=True) - value) / (shape[axis] - 1)
    ones = fnp.exp(fnp.subtract(log_prob, stop_gradient(log_prob)))  # exactly 1, with the derivative of log_prob
    scored = fnp.multiply(value, ones)
    return scored if baseline is None else scored + stop_gradient(baseline) * (1.0 - ones)


# --- Gumbel-softmax -------------------------------------------------------------------------------------------------


def gumbel_softmax(key: Any, logits: Any, temperature: Any = 1.0, *, hard: bool = False, axis: int = -1) -> Any:
    """Return a random choice along `axis` with the probabilities softmax(logits), as weights that have a derivative.

    The weights, of the shape of `logits`, are positive with sum 1: softmax((logits + g) / temperature) with g of the
    Gumbel distribution, drawn by `key`. As the temperature goes to 0 they go to one-hot vectors, drawn by the
    probabilities exactly, and the variance of the derivative grows; the derivative is that of the weights, exactly,
    and a biased estimate for the choice (Jang, Gu and Poole, 2017; Maddison, Mnih and Teh, 2017). With `hard` the
    values are one-hot, and the derivative is that of the weights. `temperature` may be an array.

    Raises `ArgumentError` for a temperature that is a number and not above 0.

    >>> import numpy as np, fxgrad
    >>> choice = fxgrad.stochastic.gumbel_softmax(fxgrad.random.key(0), np.log([0.1, 0.2, 0.7]), 0.5, hard=True)
    >>> choice.tolist()
    [0.0, 0.0, 1.0]
    """
    if isinstance(temperature, int | float) and not temperature > 0:
        raise ArgumentError(at_user_line(
            f"gumbel_softmax: temperature is {temperature}, where a number above 0 is needed; for one-hot values pass "
            "hard=True"))
    logits = fnp.asarray(logits)
    dtype = fnp.result_type(logits)
    axis = axis_of("gumbel_softmax", axis, fnp.ndim(logits))
    noise = random.gumbel(key, fnp.shape(logits), dtype if dtypes.is_inexact(dtype) else None)
    weights = softmax((logits + noise) / temperature, axis=axis)
    if not hard:
        return weights
    chosen = one_hot(fnp.argmax(weights, axis=axis), fnp.shape(weights)[axis], dtype=fnp.result_type(weights),
                     axis=axis)
    return _replace_value(stop_gradient(chosen), weights)
