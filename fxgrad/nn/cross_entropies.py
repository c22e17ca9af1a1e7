"""Losses of probabilities: cross-entropies of labels and of distributions, from logits and from probabilities."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_integer,
    axis_of,
    inexact_operands,
    mask_of,
    refuse_complex,
    shape_of,
)
from fxgrad.engine.higher_order.call import library_function_of_arrays
from fxgrad.engine.ops.special import xlogy
from fxgrad.engine.ops.structural import broadcast_to, reshape
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, ShapeError
from fxgrad.nn.activations import log_sigmoid
from fxgrad.nn.exponentials import log_softmax
from fxgrad.nn.layers import broadcast_channels
from fxgrad.nn.losses import (
    REDUCTIONS,
    check_broadcasts,
    check_reduction,
    check_same_shapes,
    loss_operands,
    reduce_losses,
)
from fxgrad.numpy.arithmetic import add, divide, multiply, subtract
from fxgrad.numpy.creation import astype, widen_half
from fxgrad.numpy.elementwise import exp, log, log1p, negative
from fxgrad.numpy.logic import equal, greater_equal, less, logical_and, not_equal
from fxgrad.numpy.logic import where as choose
from fxgrad.numpy.rearranging import take_along_axis
from fxgrad.numpy.reductions import sum as sum_of

__all__ = ["binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "kl_div", "nll_loss"]

_LEAST_LOGARITHM = -100.0


# --- of two classes -------------------------------------------------------------------------------------------------


@hide_frames
def binary_cross_entropy(probabilities: Any, targets: Any, *, weights: Any = None, reduction: str = "mean") -> Any:
    """Return -(t · log(p) + (1 - t) · log(1 - p)) for probabilities p and targets t from 0 to 1, of one shape.

    A logarithm of 0 counts as -100 with derivative 0, as in PyTorch, so that the loss is finite; a number outside of 0
    to 1 gives NaN. `weights` broadcast to the losses, and multiply them before they are reduced. If there are logits,
    `binary_cross_entropy_with_logits` loses no digits. The result has the common dtype of the arguments, a float; half
    precision is computed in float32. Raises `ArgumentError` for a reduction other than `"mean"`, `"sum"` and `"none"`,
    `ShapeError` for shapes that differ, `DTypeError` for complex numbers.

    >>> binary_cross_entropy([0.5, 0.0], [1.0, 1.0], reduction="none")
    array([  0.69314718, 100.        ])
    """
    return _binary("binary_cross_entropy", _binary_cross_entropy, "probabilities", probabilities, targets,
                   reduction, weights=weights)


@hide_frames
def binary_cross_entropy_with_logits(logits: Any, targets: Any, *, weights: Any = None, pos_weight: Any = None,
                                     reduction: str = "mean") -> Any:
    """Return `binary_cross_entropy` of sigmoid(logits), exact also where that is 0 or 1 in floating point.

    Infinite logits are classes that are certain: their loss is 0 for the right target, and infinite for the other.
    `pos_weight` broadcasts to the losses and multiplies the part of the positive class, t · log(p). Otherwise as
    `binary_cross_entropy`.

    >>> binary_cross_entropy_with_logits([0.0, -1000.0], [1, 1], reduction="none")
    array([6.93147181e-01, 1.00000000e+03])
    """
    return _binary("binary_cross_entropy_with_logits", _binary_cross_entropy_with_logits, "logits", logits, targets,
                   reduction, weights=weights, pos_weight=pos_weight)


def _binary(name: str, loss: Any, first: str, predictions: Any, targets: Any, reduction: str, **factors: Any) -> Any:
    factors = {factor: value for factor, value in factors.items() if value is not None}
    arrays = loss_operands(name, reduction, predictions=predictions, targets=targets, **factors)
    check_same_shapes(name, **{first: arrays[0], "targets": arrays[1]})
    for factor, value in zip(factors, arrays[2:], strict=True):
        check_broadcasts(name, factor, shape_of(value), first, shape_of(arrays[0]))
    return loss(*arrays, reduction=reduction, given=(first, "targets", *factors))


@functools.partial(library_function_of_arrays, name="binary_cross_entropy")
def _binary_cross_entropy(*arrays: Any, reduction: str, given: tuple[str, ...]) -> Any:
    probabilities, targets, *factors = map(widen_half, arrays)
    least = dtypes.finfo(aval_of(probabilities).dtype).tiny  # below it XLA takes numbers for 0

    def held(logarithm: Any, of: Any, empty: Any, instead: float) -> Any:
        """Return the logarithm, and -100 without an infinite slope where its argument is 0."""
        return choose(empty, _LEAST_LOGARITHM, logarithm(choose(empty, instead, of)))

    nothing = logical_and(greater_equal(probabilities, 0), less(probabilities, least))
    positive = held(log, probabilities, nothing, 1.0)
    rest = held(lambda p: log1p(negative(p)), probabilities, equal(probabilities, 1), 0.0)
    losses = negative(add(multiply(targets, positive), multiply(subtract(1, targets), rest)))
    return reduce_losses(_weight(losses, dict(zip(given[2:], factors, strict=True)).get("weights")), reduction,
                         arrays[0])


@functools.partial(library_function_of_arrays, name="binary_cross_entropy_with_logits")
def _binary_cross_entropy_with_logits(*arrays: Any, reduction: str, given: tuple[str, ...]) -> Any:
    logits, targets, *factors = map(widen_half, arrays)
    factor = dict(zip(given[2:], factors, strict=True))
    positive = _product(targets, log_sigmoid(logits))
    if "pos_weight" in factor:
        positive = multiply(factor["pos_weight"], positive)
    losses = negative(add(positive, _product(subtract(1, targets), log_sigmoid(negative(logits)))))
    return reduce_losses(_weight(losses, factor.get("weights")), reduction, arrays[0])


# --- of several classes ---------------------------------------------------------------------------------------------


@hide_frames
def cross_entropy(logits: Any, labels: Any, *, axis: int = -1, weights: Any = None, label_smoothing: float = 0.0,
                  ignore_index: int = -100, where: Any = None, reduction: str = "mean") -> Any:
    """Return -log(softmax(logits)) at the labels, along the classes at `axis`, without overflow.

    Labels are integers, of the shape of the logits without `axis`; or probabilities q, floats of the shape of the
    logits, whose loss is the sum of -q · log(softmax(logits)). `label_smoothing` s replaces q by (1 - s) · q + s / n,
    for n classes. `weights`, shape (n,), multiply the terms of the classes. Integers equal to `ignore_index`, and
    elements where `where` is not true, have the loss 0 and do not count in the mean; other integers that are no class
    give NaN. With integers the mean is divided by the sum of the weights of the labels, with probabilities by the
    number of losses, as in PyTorch. The result has the dtype of the logits, a float; half precision is computed in
    float32; the mean of nothing is NaN.

    Raises `ArgumentError` for a reduction other than `"mean"`, `"sum"` and `"none"` and for a smoothing that is not a
    number from 0 to 1, `ShapeError` for other shapes, `DTypeError` for floating labels of the shape of integer ones.

    >>> cross_entropy([[0.0, 0.0], [1000.0, 0.0]], [1, 1], reduction="none")
    array([6.93147181e-01, 1.00000000e+03])
    >>> float(cross_entropy([[0.0, 0.0], [1000.0, 0.0]], [1, -100]))
    0.6931471805599453
    >>> float(cross_entropy([0.0, 0.0], [0.25, 0.75]))
    0.6931471805599453
    """
    if not isinstance(label_smoothing, int | float) or not 0 <= label_smoothing <= 1:
        raise ArgumentError(at_user_line(
            f"cross_entropy: label_smoothing is {label_smoothing!r}, where a number from 0 to 1 is needed"))
    return _class_loss("cross_entropy", "logits", logits, labels, axis, weights, ignore_index, where, reduction,
                       smoothing=float(label_smoothing))


@hide_frames
def nll_loss(log_probabilities: Any, labels: Any, *, axis: int = -1, weights: Any = None, ignore_index: int = -100,
             where: Any = None, reduction: str = "mean") -> Any:
    """Return `cross_entropy` for log-probabilities, such as `log_softmax` returns, and labels that are integers.

    >>> import numpy as np
    >>> float(nll_loss(np.log([[0.25, 0.75]]), [0]))
    1.3862943611198906
    """
    return _class_loss("nll_loss", "log_probabilities", log_probabilities, labels, axis, weights, ignore_index, where,
                       reduction, smoothing=0.0)


def _class_loss(name: str, first: str, x: Any, labels: Any, axis: int, weights: Any, ignore_index: int, where: Any,
                reduction: str, smoothing: float) -> Any:
    check_reduction(name, reduction)
    ignored = as_integer(name, ignore_index)
    x, labels = inexact_operands(x)[0], as_array_operand(labels)
    refuse_complex(name, x)
    shape = shape_of(x)
    place = axis_of(name, axis, len(shape))
    rest = (*shape[:place], *shape[place + 1:])
    _check_labels(name, first, shape, rest, labels, probabilities=name == "cross_entropy")
    arrays, given = [x, labels], [first, "labels"]
    if weights is not None:
        weights = inexact_operands(weights)[0]
        if shape_of(weights) != (shape[place],):
            raise ShapeError(at_user_line(f"{name}: weights has the shape {shape_of(weights)}, where "
                                          f"({shape[place]},), one number for each class, is needed"))
        arrays, given = [*arrays, weights], [*given, "weights"]
    if where is not None:
        where = mask_of(name, where)
        check_broadcasts(name, "where", shape_of(where), "the losses", rest)
        arrays, given = [*arrays, where], [*given, "where"]
    return (_cross_entropy if name == "cross_entropy" else _nll_loss)(
        *arrays, place=place, smoothing=smoothing, ignored=ignored, reduction=reduction, given=tuple(given))


def _check_labels(name: str, first: str, shape: Shape, rest: Shape, labels: Any, probabilities: bool) -> None:
    given, dtype = shape_of(labels), aval_of(labels).dtype
    if dtypes.kind_of(dtype) in "biu":
        if given != rest:
            advice = "; for probabilities write labels.astype(float)" if given == shape and probabilities else ""
            raise ShapeError(at_user_line(
                f"{name}: {first} has the shape {shape} and labels {given}; integers of the shape {rest}, the number "
                f"of a class for each, are needed{advice}"))
    elif not probabilities or not dtypes.is_floating(dtype):
        raise DTypeError(at_user_line(f"{name}: labels has the dtype {dtype.name}, where an integer dtype is needed"))
    elif given != shape:
        advice = "; for numbers of classes write labels.astype(int)" if given == rest else ""
        raise (DTypeError if given == rest else ShapeError)(at_user_line(
            f"{name}: {first} has the shape {shape} and labels, of dtype {dtype.name}, {given}; probabilities of the "
            f"shape of the {first} are needed{advice}"))


@functools.partial(library_function_of_arrays, name="cross_entropy")
def _cross_entropy(*arrays: Any, place: int, given: tuple[str, ...], **settings: Any) -> Any:
    return _loss_of_logarithms(log_softmax(widen_half(arrays[0]), place), arrays, place, given, **settings)


@functools.partial(library_function_of_arrays, name="nll_loss")
def _nll_loss(*arrays: Any, place: int, given: tuple[str, ...], **settings: Any) -> Any:
    return _loss_of_logarithms(widen_half(arrays[0]), arrays, place, given, **settings)


def _loss_of_logarithms(logarithms: Any, arrays: Sequence[Any], place: int, given: tuple[str, ...], *, smoothing: float,
                        ignored: int, reduction: str) -> Any:
    named = dict(zip(given[1:], arrays[1:], strict=True))
    labels, counted = named["labels"], named.get("where")
    shape, dtype = shape_of(logarithms), aval_of(logarithms).dtype
    rest = (*shape[:place], *shape[place + 1:])
    weights = None
    if "weights" in named:
        weights = broadcast_to(broadcast_channels(astype(named["weights"], dtype), place, len(shape)), shape)
    size = None  # the weight of each loss in the mean, if not 1
    if dtypes.kind_of(aval_of(labels).dtype) in "biu":
        labels, is_label = _places(labels, ignored)
        if is_label is not None:
            counted = is_label if counted is None else logical_and(is_label, counted)
        losses, size = _at_labels(logarithms, labels, weights, place, smoothing)
    else:
        share = add(multiply(1 - smoothing, astype(labels, dtype)), _evenly(smoothing, shape[place]))
        losses = negative(sum_of(_weight(_product(share, logarithms), weights), place))
    if counted is not None:
        counted = broadcast_to(counted, rest)
        losses = choose(counted, losses, 0.0)
        size = choose(counted, 1.0 if size is None else size, 0.0)
    if reduction != "mean" or size is None:
        return reduce_losses(losses, reduction, arrays[0])
    return reduce_losses(divide(sum_of(losses), sum_of(astype(size, dtype))), "none", arrays[0])


def _places(labels: Any, ignored: int) -> tuple[Any, Any]:
    """Return the labels as integers, and a mask of those that count (None: all)."""
    dtype = aval_of(labels).dtype
    if dtype == dtypes.bool_:
        return astype(labels, dtypes.int32), None
    limits = np.iinfo(dtype)
    return labels, not_equal(labels, ignored) if limits.min <= ignored <= limits.max else None


def _at_labels(logarithms: Any, labels: Any, weights: Any, place: int, smoothing: float) -> tuple[Any, Any]:
    """Return the loss for each integer label, and its weight; NaN for one that is no class."""
    shape = shape_of(logarithms)
    rest, classes = shape_of(labels), shape[place]
    is_class = greater_equal(labels, 0)
    if has_symbolic_dim(classes) or classes <= np.iinfo(aval_of(labels).dtype).max:
        is_class = logical_and(is_class, less(labels, classes))
    if not has_symbolic_dim(classes) and not classes:
        return broadcast_to(astype(math.nan, aval_of(logarithms).dtype), rest), None
    index = reshape(choose(is_class, labels, 0), (*shape[:place], 1, *shape[place + 1:]))

    def at_label(values: Any) -> Any:
        return reshape(take_along_axis(values, index, place), rest)

    size = None if weights is None else at_label(weights)
    losses = negative(_weight(at_label(logarithms), size))
    if smoothing:
        evenly = negative(sum_of(_weight(logarithms, weights), place))
        losses = add(multiply(1 - smoothing, losses), multiply(_evenly(smoothing, classes), evenly))
    return choose(is_class, losses, math.nan), size


def _evenly(smoothing: float, classes: int) -> Any:
    """Return the share of each class in the smoothing."""
    return divide(smoothing, classes) if has_symbolic_dim(classes) else smoothing / max(classes, 1)


def _weight(values: Any, weights: Any) -> Any:
    return values if weights is None else multiply(values, weights)


def _product(share: Any, logarithms: Any) -> Any:
    """Return share · logarithm, and 0 where a probability of 0 meets its logarithm."""
    nothing = logical_and(equal(share, 0), equal(logarithms, -math.inf))
    return multiply(share, choose(nothing, 0.0, logarithms))


# --- between distributions ------------------------------------------------------------------------------------------


@hide_frames
def kl_div(log_predictions: Any, targets: Any, *, log_target: bool = False, reduction: str = "mean") -> Any:
    """Return t · (log(t) - x): the terms of the divergence of distributions t from those with logarithms x.

    With `log_target` the targets are logarithms too. The reduction `"batchmean"` is the sum divided by the size of the
    first axis: the mean of the divergences. Terms of probability 0 are 0. Kullback and Leibler (1951). Otherwise as
    `binary_cross_entropy`.

    >>> import numpy as np
    >>> kl_div(np.log([0.25, 0.75]), [0.0, 1.0], reduction="none")
    array([0.        , 0.28768207])
    """
    x, t = loss_operands("kl_div", reduction, (*REDUCTIONS, "batchmean"), predictions=log_predictions, targets=targets)
    check_same_shapes("kl_div", log_predictions=x, targets=t)
    if reduction == "batchmean" and not shape_of(x):
        raise ShapeError(at_user_line("kl_div: reduction='batchmean' of a number; a first axis is needed"))
    return _kl_div(x, t, log_target=bool(log_target), reduction=reduction)


@functools.partial(library_function_of_arrays, name="kl_div")
def _kl_div(log_predictions: Any, targets: Any, *, log_target: bool, reduction: str) -> Any:
    x, t = widen_half(log_predictions), widen_half(targets)
    if log_target:
        never = equal(t, -math.inf)
        losses = choose(never, 0.0, multiply(exp(t), subtract(choose(never, 0.0, t), choose(never, 0.0, x))))
    else:
        losses = subtract(xlogy(t, t), _product(t, x))
    if reduction == "batchmean":
        return reduce_losses(divide(sum_of(losses), shape_of(x)[0]), "none", log_predictions)
    return reduce_losses(losses, reduction, log_predictions)
