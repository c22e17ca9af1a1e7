"""Losses of numbers: squared and absolute errors, margins, negative log-likelihoods; their mean, sum, or all."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from fxgrad.engine.frontend.operands import common_shape, inexact_operands, refuse_complex, shape_of
from fxgrad.engine.higher_order.call import library_function_of_arrays
from fxgrad.engine.ops.exponential import rsqrt
from fxgrad.engine.ops.special import xlogy
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy.arithmetic import add, divide, maximum, multiply, subtract
from fxgrad.numpy.creation import astype, widen_half
from fxgrad.numpy.elementwise import absolute, exp, log, sqrt, square
from fxgrad.numpy.logic import equal, greater, less, where
from fxgrad.numpy.reductions import sum as sum_of
from fxgrad.numpy.statistics import mean as mean_of

__all__ = ["cosine_embedding_loss", "gaussian_nll_loss", "hinge_embedding_loss", "hinge_loss", "huber_loss", "l1_loss",
           "mse_loss", "poisson_nll_loss", "smooth_l1_loss", "triplet_margin_loss"]

REDUCTIONS = ("mean", "sum", "none")


# --- common to all losses -------------------------------------------------------------------------------------------


def loss_operands(name: str, reduction: str, reductions: tuple[str, ...] = REDUCTIONS, **arrays: Any) -> list[Any]:
    """Return the arrays in one real inexact dtype; raise `ArgumentError` for an unknown reduction."""
    check_reduction(name, reduction, reductions)
    read = inexact_operands(*arrays.values())
    refuse_complex(name, *read)
    return read


def check_reduction(name: str, reduction: Any, reductions: tuple[str, ...] = REDUCTIONS) -> None:
    """Raise `ArgumentError` for a reduction that is not among `reductions`."""
    if not isinstance(reduction, str) or reduction not in reductions:
        *most, last = map(repr, reductions)
        raise ArgumentError(at_user_line(f"{name}: reduction={reduction!r}; it is {', '.join(most)} or {last}"))


def check_not_negative(name: str, **settings: Any) -> None:
    """Raise `ArgumentError` for a setting that is not a non-negative number; traced ones are not checked."""
    for setting, value in settings.items():
        if type(value) is not Tracer and (not isinstance(value, int | float) or not value >= 0):
            raise ArgumentError(at_user_line(f"{name}: {setting} is {value!r}, where a number from 0 on is needed"))


def check_same_shapes(name: str, **arrays: Any) -> None:
    """Raise `ShapeError` unless all have the shape of the first: broadcasting would count numbers several times."""
    (first, shape), *others = ((argument, shape_of(array)) for argument, array in arrays.items())
    for argument, other in others:
        if other != shape:
            raise ShapeError(at_user_line(
                f"{name}: {first} has the shape {shape} and {argument} {other}; they must be equal. Write "
                f"{argument}.reshape({first}.shape), or broadcast one of them with np.broadcast_to"))


def reduce_losses(losses: Any, reduction: str, like: Any) -> Any:
    """Return the mean or the sum of the losses, or all of them, in the dtype of `like`."""
    result = mean_of(losses) if reduction == "mean" else sum_of(losses) if reduction == "sum" else losses
    dtype = aval_of(like).dtype
    return astype(result, dtype) if aval_of(result).dtype != dtype else result


def by_sign_of_label(labels: Any, positive: Any, negative: Any) -> Any:
    """Return `positive` where the label is 1, `negative` where it is -1, and NaN elsewhere."""
    return where(equal(labels, 1), positive, where(equal(labels, -1), negative, math.nan))


def _elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a loss of each element, of arrays and settings, as one line of a program, with its reduction.

    Settings that are traced are operands of that line; the others are numbers in the program.
    """
    @functools.partial(library_function_of_arrays, name=function.__name__.removeprefix("_"))
    @functools.wraps(function)
    def loss(*arrays: Any, reduction: str, given: tuple[str, ...] = (), **settings: Any) -> Any:
        count = len(arrays) - len(given)
        traced = dict(zip(given, arrays[count:], strict=True))
        return reduce_losses(function(*map(widen_half, arrays[:count]), **settings, **traced), reduction, arrays[0])

    @functools.wraps(function)
    def called(*arrays: Any, reduction: str, **settings: Any) -> Any:
        traced = {name: value for name, value in settings.items() if type(value) is Tracer}
        if not traced:
            return loss(*arrays, reduction=reduction, **settings)
        static = {name: value for name, value in settings.items() if name not in traced}
        return loss(*arrays, *traced.values(), reduction=reduction, given=(*traced,), **static)
    return called


def _number(setting: Any) -> Any:
    """Return a setting: a float, or a traced array without axes."""
    return setting if type(setting) is Tracer and not shape_of(setting) else float(setting)


# --- errors ---------------------------------------------------------------------------------------------------------


@hide_frames
def mse_loss(predictions: Any, targets: Any, *, reduction: str = "mean") -> Any:
    """Return the squared error (prediction - target)² of arrays of one shape: its mean, its sum, or one per element.

    The result has the common dtype of the arguments, a float; half precision is computed in float32. The mean of no
    elements is NaN, as NumPy's. Raises `ArgumentError` for a reduction other than `"mean"`, `"sum"` and `"none"`,
    `ShapeError` for shapes that differ, `DTypeError` for complex numbers. This holds for all losses.

    >>> float(mse_loss([1.0, 2.0], [0.0, 4.0]))
    2.5
    >>> mse_loss([1.0, 2.0], [0.0, 4.0], reduction="none")
    array([1., 4.])
    """
    predictions, targets = _same_shape_operands("mse_loss", reduction, predictions=predictions, targets=targets)
    return _mse_loss(predictions, targets, reduction=reduction)


def _same_shape_operands(name: str, reduction: str, **arrays: Any) -> list[Any]:
    read = loss_operands(name, reduction, **arrays)
    check_same_shapes(name, **dict(zip(arrays, read, strict=True)))
    return read


@_elementwise
def _mse_loss(predictions: Any, targets: Any) -> Any:
    return square(subtract(predictions, targets))


@hide_frames
def l1_loss(predictions: Any, targets: Any, *, reduction: str = "mean") -> Any:
    """Return the absolute error |prediction - target|, with derivative 0 where it is 0; otherwise as `mse_loss`.

    >>> float(l1_loss([1.0, 2.0], [0.0, 4.0]))
    1.5
    """
    predictions, targets = _same_shape_operands("l1_loss", reduction, predictions=predictions, targets=targets)
    return _l1_loss(predictions, targets, reduction=reduction)


@_elementwise
def _l1_loss(predictions: Any, targets: Any) -> Any:
    return absolute(subtract(predictions, targets))


@hide_frames
def huber_loss(predictions: Any, targets: Any, *, delta: float = 1.0, reduction: str = "mean") -> Any:
    """Return half the squared error where the error is at most `delta`, and delta · (|error| - delta / 2) beyond.

    Huber, "Robust estimation of a location parameter" (1964). Raises `ArgumentError` for a `delta` that is negative;
    otherwise as `mse_loss`.

    >>> huber_loss([0.5, 3.0], [0.0, 0.0], reduction="none")
    array([0.125, 2.5  ])
    """
    check_not_negative("huber_loss", delta=delta)
    predictions, targets = _same_shape_operands("huber_loss", reduction, predictions=predictions, targets=targets)
    return _huber_loss(predictions, targets, delta=_number(delta), reduction=reduction)


@_elementwise
def _huber_loss(predictions: Any, targets: Any, delta: float) -> Any:
    error = subtract(predictions, targets)
    size = absolute(error)
    # No square is computed for the branch that is not selected, since it may overflow.
    inside = where(greater(size, delta), 0.0, error)
    return where(greater(size, delta), multiply(delta, subtract(size, 0.5 * delta)), multiply(0.5, square(inside)))


@hide_frames
def smooth_l1_loss(predictions: Any, targets: Any, *, beta: float = 1.0, reduction: str = "mean") -> Any:
    """Return `huber_loss` divided by its `delta`, here `beta`: the absolute error for a `beta` of 0.

    Girshick, "Fast R-CNN" (2015). Raises as `huber_loss` does.

    >>> smooth_l1_loss([0.5, 3.0], [0.0, 0.0], beta=2.0, reduction="none")
    array([0.0625, 2.    ])
    """
    check_not_negative("smooth_l1_loss", beta=beta)
    predictions, targets = _same_shape_operands("smooth_l1_loss", reduction, predictions=predictions, targets=targets)
    return _smooth_l1_loss(predictions, targets, beta=_number(beta), reduction=reduction)


@_elementwise
def _smooth_l1_loss(predictions: Any, targets: Any, beta: float) -> Any:
    error = subtract(predictions, targets)
    size = absolute(error)
    if type(beta) is float:
        if not beta:
            return size
        twice: Any = 2 * beta
    else:
        twice = where(greater(beta, 0), 2 * beta, 1.0)  # no division by 0, whose derivative would be NaN
    inside = where(less(size, beta), error, 0.0)
    return where(less(size, beta), divide(square(inside), twice), subtract(size, 0.5 * beta))


# --- margins --------------------------------------------------------------------------------------------------------


@hide_frames
def hinge_loss(predictions: Any, labels: Any, *, margin: float = 1.0, reduction: str = "mean") -> Any:
    """Return max(0, margin - label · prediction), for labels 1 and -1; a label that is neither gives NaN.

    The loss of support vector machines (Cortes and Vapnik, 1995). Otherwise as `mse_loss`.

    >>> hinge_loss([0.5, 2.0], [1, -1], reduction="none")
    array([0.5, 3. ])
    """
    predictions, labels = _same_shape_operands("hinge_loss", reduction, predictions=predictions, labels=labels)
    return _hinge_loss(predictions, labels, margin=_number(margin), reduction=reduction)


@_elementwise
def _hinge_loss(predictions: Any, labels: Any, margin: float) -> Any:
    return by_sign_of_label(labels, maximum(0.0, subtract(margin, predictions)), maximum(0.0, add(margin, predictions)))


@hide_frames
def hinge_embedding_loss(distances: Any, labels: Any, *, margin: float = 1.0, reduction: str = "mean") -> Any:
    """Return the distance where the label is 1, and max(0, margin - distance) where it is -1; NaN for other labels.

    So it is in PyTorch. Otherwise as `mse_loss`.

    >>> hinge_embedding_loss([0.25, 0.25], [1, -1], reduction="none")
    array([0.25, 0.75])
    """
    distances, labels = _same_shape_operands("hinge_embedding_loss", reduction, distances=distances, labels=labels)
    return _hinge_embedding_loss(distances, labels, margin=_number(margin), reduction=reduction)


@_elementwise
def _hinge_embedding_loss(distances: Any, labels: Any, margin: float) -> Any:
    return by_sign_of_label(labels, distances, maximum(0.0, subtract(margin, distances)))


@hide_frames
def cosine_embedding_loss(first: Any, second: Any, labels: Any, *, margin: float = 0.0,
                          reduction: str = "mean") -> Any:
    """Return 1 - cos where the label is 1, max(0, cos - margin) where it is -1, NaN elsewhere; along the last axis.

    `first` and `second` have one shape (..., size), `labels` the shape (...). The cosine is that of PyTorch's loss:
    1e-12 is added to both squared lengths, so that vectors of zeros have a derivative. Otherwise as `mse_loss`.

    >>> cosine_embedding_loss([[1.0, 0.0], [1.0, 1.0]], [[0.0, 2.0], [1.0, 1.0]], [1, -1], reduction="none")
    array([1., 1.])
    """
    name = "cosine_embedding_loss"
    first, second, labels = loss_operands(name, reduction, first=first, second=second, labels=labels)
    check_same_shapes(name, first=first, second=second)
    _check_vectors(name, first)
    if shape_of(labels) != shape_of(first)[:-1]:
        raise ShapeError(at_user_line(f"{name}: labels has the shape {shape_of(labels)}, where {shape_of(first)[:-1]}, "
                                      "one label for each vector, is needed"))
    return _cosine_embedding_loss(first, second, labels, margin=_number(margin), reduction=reduction)


def _check_vectors(name: str, array: Any) -> None:
    if not shape_of(array):
        raise ShapeError(at_user_line(f"{name}: a number was given where vectors, along a last axis, are needed"))


@_elementwise
def _cosine_embedding_loss(first: Any, second: Any, labels: Any, margin: float) -> Any:
    along = [multiply(each, rsqrt(add(sum_of(square(each), -1, keepdims=True), 1e-12))) for each in (first, second)]
    cosine = sum_of(multiply(*along), -1)
    return by_sign_of_label(labels, subtract(1.0, cosine), maximum(0.0, subtract(cosine, margin)))


@hide_frames
def triplet_margin_loss(anchor: Any, positive: Any, negative: Any, *, margin: float = 1.0, epsilon: float = 1e-6,
                        swap: bool = False, reduction: str = "mean") -> Any:
    """Return max(0, distance to the positive - distance to the negative + margin), of vectors along the last axis.

    All three have one shape (..., size). The distance is the root of the sum of (difference + epsilon)², as in PyTorch.
    Equal vectors, with an `epsilon` of 0, have the derivative 0.
    With `swap` the distance from positive to negative is used if it is smaller (Balntas et al., 2016). Otherwise as
    `mse_loss`. Schroff et al., "FaceNet" (2015).

    >>> float(triplet_margin_loss([0.0, 0.0], [3.0, 4.0], [0.0, 2.0], epsilon=0.0))
    4.0
    """
    name = "triplet_margin_loss"
    arrays = _same_shape_operands(name, reduction, anchor=anchor, positive=positive, negative=negative)
    _check_vectors(name, arrays[0])
    return _triplet_margin_loss(*arrays, margin=_number(margin), epsilon=_number(epsilon), swap=bool(swap),
                                reduction=reduction)


@_elementwise
def _triplet_margin_loss(anchor: Any, positive: Any, negative: Any, margin: float, epsilon: float, swap: bool) -> Any:
    def distance(one: Any, other: Any) -> Any:
        squares = sum_of(square(add(subtract(one, other), epsilon)), -1)
        equals = equal(squares, 0)  # which have no direction to move in
        return where(equals, 0.0, sqrt(where(equals, 1.0, squares)))

    away = distance(anchor, negative)
    if swap:
        other = distance(positive, negative)
        away = where(less(other, away), other, away)
    return maximum(0.0, add(subtract(distance(anchor, positive), away), margin))


# --- negative log-likelihoods ---------------------------------------------------------------------------------------


@hide_frames
def poisson_nll_loss(predictions: Any, targets: Any, *, log_input: bool = True, full: bool = False,
                     epsilon: float = 1e-8, reduction: str = "mean") -> Any:
    """Return the negative Poisson log-likelihood of counts: exp(x) - target · x, with x = log(rate).

    Without `log_input` predictions are the rates: rate - target · log(rate + epsilon). `full` adds Stirling's
    approximation of log(target!) where the target is above 1. This is PyTorch's definition. Otherwise as `mse_loss`.

    >>> float(poisson_nll_loss([0.0], [3.0]))
    1.0
    """
    predictions, targets = _same_shape_operands("poisson_nll_loss", reduction, predictions=predictions, targets=targets)
    return _poisson_nll_loss(predictions, targets, log_input=bool(log_input), full=bool(full), epsilon=_number(epsilon),
                             reduction=reduction)


@_elementwise
def _poisson_nll_loss(predictions: Any, targets: Any, log_input: bool, full: bool, epsilon: float) -> Any:
    if log_input:
        loss = subtract(exp(predictions), multiply(targets, predictions))
    else:
        loss = subtract(predictions, xlogy(targets, add(predictions, epsilon)))
    if not full:
        return loss
    several = greater(targets, 1)
    counts = where(several, targets, 1.0)
    stirling = add(subtract(multiply(counts, log(counts)), counts), multiply(0.5, log(multiply(2 * math.pi, counts))))
    return add(loss, where(several, stirling, 0.0))


@hide_frames
def gaussian_nll_loss(predictions: Any, targets: Any, variances: Any, *, full: bool = False, epsilon: float = 1e-6,
                      reduction: str = "mean") -> Any:
    """Return the negative normal log-likelihood: half of log(variance) + (prediction - target)²/variance.

    `variances` broadcast to the predictions. Variances below `epsilon` count as `epsilon`, with derivative 0; negative
    ones give NaN. `full` adds half of log(2π). Nix and Weigend, "Estimating the mean and variance of the target
    probability distribution" (1994). Otherwise as `mse_loss`.

    >>> float(gaussian_nll_loss([1.0, 3.0], [0.0, 0.0], [1.0, 1.0]))
    2.5
    """
    name = "gaussian_nll_loss"
    arrays = loss_operands(name, reduction, predictions=predictions, targets=targets, variances=variances)
    check_same_shapes(name, predictions=arrays[0], targets=arrays[1])
    check_broadcasts(name, "variances", shape_of(arrays[2]), "predictions", shape_of(arrays[0]))
    return _gaussian_nll_loss(*arrays, full=bool(full), epsilon=_number(epsilon), reduction=reduction)


def check_broadcasts(name: str, argument: str, shape: Any, to: str, wanted: Any) -> None:
    """Raise `ShapeError` unless an argument of this shape broadcasts to the other, which keeps its own."""
    if common_shape(name, shape, wanted) != wanted:
        raise ShapeError(at_user_line(f"{name}: {argument} has the shape {shape}, which does not broadcast to that of "
                                      f"{to}, {wanted}"))


@_elementwise
def _gaussian_nll_loss(predictions: Any, targets: Any, variances: Any, full: bool, epsilon: float) -> Any:
    variances = where(less(variances, 0), math.nan, where(less(variances, epsilon), epsilon, variances))
    loss = multiply(0.5, add(log(variances), divide(square(subtract(predictions, targets)), variances)))
    return add(loss, 0.5 * math.log(2 * math.pi)) if full else loss
