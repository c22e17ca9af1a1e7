"""Losses against PyTorch's formulas written in NumPy and Optax: values, dtypes, derivatives, edges, refusals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import optax
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import nn
from fxgrad.errors import ArgumentError, DTypeError, ShapeError
from fxgrad.testing import check_grads

RNG = np.random.default_rng(0)
SHAPE = (4, 3)
X, Y, Z = (RNG.normal(size=SHAPE) * 2 for _ in range(3))
PROBABILITIES, SHARES = RNG.uniform(0.05, 0.95, SHAPE), RNG.dirichlet(np.ones(3), 4)
COUNTS = np.array([[0.0, 1.0, 2.0], [3.0, 7.0, 1.0], [0.0, 0.0, 4.0], [2.0, 1.0, 0.0]])
SIGNS, ROW_SIGNS = RNG.choice([-1, 1], SHAPE), np.array([1, -1, -1, 1])
CLASSES, SOME = np.array([2, 0, 1, 1]), np.array([2, -100, 1, -100])
WEIGHTS, MASK = np.array([0.5, 2.0, 1.5]), np.array([True, False, True, True])


# --- PyTorch's formulas ---------------------------------------------------------------------------------------------


def log_softmax(x: Any, axis: int = -1) -> Any:
    return x - x.max(axis, keepdims=True) - np.log(np.exp(x - x.max(axis, keepdims=True)).sum(axis, keepdims=True))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def huber(d: Any, delta: float) -> Any:
    return np.where(abs(d) <= delta, 0.5 * d * d, delta * (abs(d) - 0.5 * delta))


def cosine(x: Any, y: Any) -> Any:
    return (x * y).sum(-1) / np.sqrt(((x * x).sum(-1) + 1e-12) * ((y * y).sum(-1) + 1e-12))


def embedded(x: Any, y: Any, signs: Any, margin: float) -> Any:
    return np.where(signs == 1, 1 - cosine(x, y), np.maximum(0, cosine(x, y) - margin))


def triplet(a: Any, p: Any, n: Any, margin: float = 1.0, swap: bool = False) -> Any:
    def distance(one: Any, other: Any) -> Any:
        return np.sqrt(((one - other + 1e-6) ** 2).sum(-1))
    away = np.minimum(distance(a, n), distance(p, n)) if swap else distance(a, n)
    return np.maximum(0, distance(a, p) - away + margin)


def stirling(t: Any) -> Any:
    return np.where(t > 1, t * np.log(np.maximum(t, 1)) - t + 0.5 * np.log(2 * np.pi * np.maximum(t, 1)), 0)


def of_labels(logs: Any, labels: Any, weights: Any = None, smoothing: float = 0.0, ignore: int = -100,
              ) -> tuple[Any, Any]:
    """Losses and their weights in the mean, one label after the other."""
    weights = np.ones(logs.shape[-1]) if weights is None else weights
    pairs = [(0.0, 0.0) if label == ignore else
             (-(1 - smoothing) * weights[label] * row[label] - smoothing / len(row) * (weights * row).sum(),
              weights[label]) for row, label in zip(logs, labels, strict=True)]
    return np.array([loss for loss, _ in pairs]), np.array([weight for _, weight in pairs])


class Case(NamedTuple):
    """A loss, its arguments (arrays of floats come first), options, and its formula without a reduction."""

    loss: Callable[..., Any]
    arrays: tuple[Any, ...]
    expected: Callable[..., Any]
    options: dict[str, Any] = {}  # noqa: RUF012
    fixed: tuple[Any, ...] = ()
    """Labels, which have no derivative."""


CASES: dict[str, Case] = {
    "mse": Case(nn.mse_loss, (X, Y), lambda x, y: (x - y) ** 2),
    "l1": Case(nn.l1_loss, (X, Y), lambda x, y: abs(x - y)),
    "huber": Case(nn.huber_loss, (X, Y), lambda x, y: huber(x - y, 1.0)),
    "huber, delta": Case(nn.huber_loss, (X, Y), lambda x, y: huber(x - y, 2.5), {"delta": 2.5}),
    "smooth l1": Case(nn.smooth_l1_loss, (X, Y), lambda x, y: huber(x - y, 0.5) / 0.5, {"beta": 0.5}),
    "smooth l1, 0": Case(nn.smooth_l1_loss, (X, Y), lambda x, y: abs(x - y), {"beta": 0}),
    "hinge": Case(nn.hinge_loss, (X,), lambda x, s: np.maximum(0, 1 - s * x), fixed=(SIGNS,)),
    "hinge embedding": Case(nn.hinge_embedding_loss, (abs(X),), lambda x, s: np.where(s == 1, x, np.maximum(0, 2 - x)),
                            {"margin": 2.0}, (SIGNS,)),
    "cosine embedding": Case(nn.cosine_embedding_loss, (X, Y), lambda x, y, s: embedded(x, y, s, 0.0),
                             fixed=(ROW_SIGNS,)),
    "cosine embedding, margin": Case(nn.cosine_embedding_loss, (X, Y), lambda x, y, s: embedded(x, y, s, -0.4),
                                     {"margin": -0.4}, (ROW_SIGNS,)),
    "triplet": Case(nn.triplet_margin_loss, (X, Y, Z), triplet),
    "triplet, swap": Case(nn.triplet_margin_loss, (X, Y, Z), lambda *a: triplet(*a, margin=3.0, swap=True),
                          {"margin": 3.0, "swap": True}),
    "poisson": Case(nn.poisson_nll_loss, (X,), lambda x, t: np.exp(x) - t * x, fixed=(COUNTS,)),
    "poisson, full": Case(nn.poisson_nll_loss, (X,), lambda x, t: np.exp(x) - t * x + stirling(t), {"full": True},
                          (COUNTS,)),
    "poisson of rates": Case(nn.poisson_nll_loss, (abs(X),), lambda x, t: x - t * np.log(x + 1e-8),
                             {"log_input": False}, (COUNTS,)),
    "gaussian": Case(nn.gaussian_nll_loss, (X, Y, PROBABILITIES),
                     lambda x, y, v: 0.5 * (np.log(v) + (x - y) ** 2 / v)),
    "gaussian, full": Case(nn.gaussian_nll_loss, (X, Y, PROBABILITIES[:, :1]), lambda x, y, v: (
        0.5 * (np.log(np.maximum(v, 0.3)) + (x - y) ** 2 / np.maximum(v, 0.3)) + 0.5 * np.log(2 * np.pi)),
                           {"full": True, "epsilon": 0.3}),
    "binary": Case(nn.binary_cross_entropy, (PROBABILITIES, SHARES),
                   lambda p, t: -(t * np.log(p) + (1 - t) * np.log(1 - p))),
    "binary, weights": Case(nn.binary_cross_entropy, (PROBABILITIES, SHARES), lambda p, t, weights: (
        -weights * (t * np.log(p) + (1 - t) * np.log(1 - p))), {"weights": WEIGHTS}),
    "binary, logits": Case(nn.binary_cross_entropy_with_logits, (X, SHARES), lambda x, t: (
        -(t * np.log(sigmoid(x)) + (1 - t) * np.log(sigmoid(-x))))),
    "binary, logits, weights": Case(
        nn.binary_cross_entropy_with_logits, (X, SHARES), lambda x, t, weights, pos_weight: (
            -weights * (pos_weight * t * np.log(sigmoid(x)) + (1 - t) * np.log(sigmoid(-x)))),
        {"weights": np.array([[1.0], [2.0], [3.0], [0.5]]), "pos_weight": WEIGHTS}),
    "probabilities": Case(nn.cross_entropy, (X, SHARES), lambda x, q: -(q * log_softmax(x)).sum(-1)),
    "probabilities, all": Case(nn.cross_entropy, (X, SHARES), lambda x, q, weights: (
        -(weights * (0.7 * q + 0.1) * log_softmax(x)).sum(-1)), {"weights": WEIGHTS, "label_smoothing": 0.3}),
    "kl": Case(nn.kl_div, (np.log(PROBABILITIES), SHARES), lambda x, t: t * (np.log(t) - x)),
    "kl, logarithms": Case(nn.kl_div, (np.log(PROBABILITIES), np.log(SHARES)), lambda x, t: np.exp(t) * (t - x),
                           {"log_target": True}),
}
DTYPES = {"float64": 1e-12, "float32": 2e-5, "bfloat16": 2e-2, "float16": 4e-3}


def cast(array: Any, dtype: Any) -> Any:
    return array.astype(dtype) if isinstance(array, np.ndarray) and array.dtype.kind == "f" else array


REDUCED: dict[str, Callable[[Any], Any]] = {"mean": np.mean, "sum": np.sum, "none": lambda losses: losses}


def test_losses_are_pytorchs_formulas_in_every_dtype_and_reduction() -> None:
    wrong = []
    for name, case in CASES.items():
        for dtype, tolerance in DTYPES.items():
            kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
            given = [cast(each, kind) for each in (*case.arrays, *case.fixed)]
            options = {key: cast(value, kind) for key, value in case.options.items()}
            exact = {key: value.astype("f8") for key, value in options.items() if isinstance(value, np.ndarray)}
            losses = case.expected(*(np.asarray(each, "f8") for each in given), **exact)
            for reduction, reduce in REDUCED.items():
                found = case.loss(*given, **options, reduction=reduction)
                error = abs(np.asarray(found, "f8") - reduce(losses)) / (abs(reduce(losses)) + 1)
                if found.dtype != kind or found.shape != reduce(losses).shape or not np.all(error <= tolerance):
                    wrong.append((name, dtype, reduction, found.dtype.name, float(np.max(error))))
    assert not wrong


def test_derivatives() -> None:
    for name, case in CASES.items():
        check_grads(lambda *arrays, case=case: case.loss(*arrays, *case.fixed, **case.options), case.arrays, order=1,
                    modes=("fwd", "rev"))
        program = fxgrad.make_program(lambda *arrays, case=case: case.loss(*arrays, *case.fixed, **case.options))(
            *case.arrays)
        names = [equation.params["name"] for equation in program.equations if "name" in equation.params]
        assert len(names) == 1, name
        assert case.loss.__name__.startswith(names[0]), name  # one line of a program


@pytest.mark.slow
def test_second_derivatives_and_compiled_and_batched() -> None:
    for name, case in CASES.items():
        if case.loss is not nn.l1_loss and name != "smooth l1, 0":  # which has none
            check_grads(lambda *arrays, case=case: case.loss(*arrays, *case.fixed, **case.options), case.arrays)

        def one(*arrays: Any, case: Case = case) -> Any:
            return case.loss(*arrays, *case.fixed, **case.options, reduction="none")
        np.testing.assert_allclose(fxgrad.jit(one)(*case.arrays), one(*case.arrays), rtol=1e-12, err_msg=name)
        batch = [np.stack([each, each * 0.9]) for each in case.arrays]
        expected = [one(*case.arrays), one(*(each * 0.9 for each in case.arrays))]
        np.testing.assert_allclose(fxgrad.vmap(one)(*batch), expected, rtol=1e-12, err_msg=name)


def test_sizes_may_have_names() -> None:
    for name, case in CASES.items():
        if any(len(value) == 4 for value in case.options.values() if isinstance(value, np.ndarray)):
            continue  # of a number for each row

        def loss(*arrays: Any, case: Case = case) -> Any:
            return case.loss(*arrays, **case.options)
        args = (*case.arrays, *case.fixed)
        program = fxgrad.make_program(loss)(*(fxgrad.symbolic_spec("n", *each.shape[1:], dtype=each.dtype)
                                              for each in args))
        np.testing.assert_allclose(program(*args), loss(*args), rtol=1e-12, err_msg=name)
    for smoothing, labels in itertools.product((0.0, 0.3), (CLASSES, SHARES)):
        def classified(x: Any, labels: Any, smoothing: float = smoothing) -> Any:
            return nn.cross_entropy(x, labels, label_smoothing=smoothing)
        sizes = ("n", "k")[:labels.ndim]
        program = fxgrad.make_program(classified)(fxgrad.symbolic_spec("n", "k"),
                                                  fxgrad.symbolic_spec(*sizes, dtype=labels.dtype))
        np.testing.assert_allclose(program(X, labels), classified(X, labels), rtol=1e-12)


# --- labels ---------------------------------------------------------------------------------------------------------

OF_LABELS: dict[str, tuple[dict[str, Any], Any]] = {
    "labels": ({}, CLASSES), "weights": ({"weights": WEIGHTS}, CLASSES),
    "smoothing": ({"label_smoothing": 0.3}, CLASSES),
    "ignored": ({}, SOME), "another ignored": ({"ignore_index": 1}, CLASSES),
    "all": ({"weights": WEIGHTS, "label_smoothing": 0.3}, SOME), "none": ({}, np.full(4, -100)),
}


@pytest.mark.parametrize("name", OF_LABELS)
def test_labels_that_are_integers(name: str) -> None:
    options, labels = OF_LABELS[name]
    ignore = options.get("ignore_index", -100)
    losses, sizes = of_labels(log_softmax(X), labels, options.get("weights"), options.get("label_smoothing", 0.0),
                              ignore)
    with np.errstate(invalid="ignore"):
        expected = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / sizes.sum()}
    for reduction, value in expected.items():
        ways = {"": lambda x, labels: nn.cross_entropy(x, labels, **options, reduction=reduction)}  # noqa: B023
        if "label_smoothing" not in options:
            ways["nll"] = lambda x, labels: nn.nll_loss(nn.log_softmax(x), labels, **options,
                                                        reduction=reduction)  # noqa: B023
        for way in ways.values():
            for kind in ("int64", "int32", "int16"):
                np.testing.assert_allclose(way(X, labels.astype(kind)), value, rtol=1e-12)
            np.testing.assert_allclose(fxgrad.jit(way)(X, labels), value, rtol=1e-12)
    if name != "none":
        check_grads(lambda x: nn.cross_entropy(x, labels, **options), (X,), order=1)
    single = nn.cross_entropy(X.astype("f"), labels, **options)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected["mean"], rtol=1e-6)
    assert nn.cross_entropy(X.astype(ml_dtypes.bfloat16), labels, **options).dtype == ml_dtypes.bfloat16


def test_classes_may_lie_at_any_axis_and_labels_at_places() -> None:
    image = RNG.normal(size=(2, 3, 4, 5))
    labels = RNG.integers(0, 3, (2, 4, 5))
    expected = np.moveaxis(np.take_along_axis(log_softmax(image, 1), labels[:, None], 1), 1, -1)[..., 0]
    found = nn.cross_entropy(image, labels, axis=1, reduction="none")
    np.testing.assert_allclose(found, -expected, rtol=1e-12)
    last = nn.cross_entropy(np.moveaxis(image, 1, -1), labels.astype("uint8"))
    np.testing.assert_allclose(last, -expected.mean(), rtol=1e-12)
    one_hot = np.moveaxis(np.eye(3)[labels], -1, 1)
    np.testing.assert_allclose(nn.cross_entropy(image, one_hot, axis=1, weights=WEIGHTS),
                               -(expected * WEIGHTS[labels]).mean(), rtol=1e-12)
    np.testing.assert_allclose(nn.cross_entropy(image, labels, axis=1, weights=WEIGHTS),
                               -(expected * WEIGHTS[labels]).sum() / WEIGHTS[labels].sum(), rtol=1e-12)
    np.testing.assert_allclose(nn.cross_entropy(X[:, :2], MASK), of_labels(log_softmax(X[:, :2]), MASK * 1)[0].mean(),
                               rtol=1e-12)
    np.testing.assert_allclose(fxgrad.vmap(nn.cross_entropy)(X, CLASSES), of_labels(log_softmax(X), CLASSES)[0],
                               rtol=1e-12)


def test_where_says_what_counts() -> None:
    for labels in (CLASSES, SHARES):
        each = np.asarray(nn.cross_entropy(X, labels, reduction="none"))
        np.testing.assert_allclose(nn.cross_entropy(X, labels, where=MASK), each[MASK].mean(), rtol=1e-12)
        np.testing.assert_allclose(nn.cross_entropy(X, labels, where=MASK, reduction="none"), each * MASK, rtol=1e-12)
        spoilt = np.where(MASK[:, None], X, np.nan)
        slope = fxgrad.grad(lambda x, labels=labels: nn.cross_entropy(x, labels, where=MASK))
        np.testing.assert_allclose(slope(spoilt)[MASK], slope(X)[MASK], rtol=1e-12)


# --- edges ----------------------------------------------------------------------------------------------------------


def test_nothing_overflows_and_no_label_is_taken_for_another() -> None:
    for dtype in ("float64", "float32", ml_dtypes.bfloat16):
        far = np.array([[800.0, -800.0], [-800.0, 800.0]]).astype(dtype)
        np.testing.assert_array_equal(nn.cross_entropy(far, [1, 1], reduction="none"), [1600.0, 0.0])
        np.testing.assert_array_equal(nn.cross_entropy(far, np.eye(2)[[1, 1]], reduction="none"), [1600.0, 0.0])
        np.testing.assert_array_equal(nn.binary_cross_entropy_with_logits(far[0], [0, 0], reduction="none"), [800, 0])
        np.testing.assert_array_equal(nn.binary_cross_entropy_with_logits(far[0], [1, 1], reduction="none"), [0, 800])
        for way in (nn.binary_cross_entropy, fxgrad.jit(nn.binary_cross_entropy, static_argnames="reduction")):
            ends = np.array([0.0, 1.0, 0.0, 1.0]).astype(dtype)
            np.testing.assert_array_equal(way(ends, np.array([1, 1, 0, 0]), reduction="none"), [100, 0, 0, 100])
            slopes = fxgrad.grad(lambda p, way=way: way(p, np.array([1, 1, 0, 0]), reduction="sum"))(ends)
            np.testing.assert_array_equal(slopes, [0.0, -1.0, 1.0, 0.0])
    huge = np.array([1e200, -1e200])
    np.testing.assert_array_equal(fxgrad.grad(lambda x: nn.huber_loss(x, 0 * x, reduction="sum"))(huge), [1.0, -1.0])
    np.testing.assert_array_equal(nn.smooth_l1_loss(huge, 0 * huge, reduction="none"), abs(huge))
    never = np.array([[0.0, -np.inf, 0.0]])  # a class that is ruled out
    share = np.array([[0.5, 0.0, 0.5]])
    for loss in (lambda x: nn.cross_entropy(x, share), lambda x: nn.cross_entropy(x, np.array([2]))):
        np.testing.assert_allclose(loss(never), np.log(2), rtol=1e-12)
        assert np.all(np.isfinite(fxgrad.grad(loss)(never)))
    np.testing.assert_allclose(nn.kl_div(never, share, reduction="sum"), -np.log(2), rtol=1e-12)
    with np.errstate(divide="ignore"):
        logs = np.log(share)
    np.testing.assert_allclose(nn.kl_div(never, logs, log_target=True, reduction="sum"), -np.log(2), rtol=1e-12)
    assert nn.cross_entropy(never, np.array([1])) == math.inf


def test_infinite_logits_are_certain() -> None:
    logits, targets = np.array([np.inf, -np.inf, 2.0]), np.array([1.0, 0.0, 1.0])
    loss = fxgrad.value_and_grad(lambda x, t: nn.binary_cross_entropy_with_logits(x, t, reduction="sum"))
    for function in (loss, fxgrad.jit(loss)):
        value, slopes = function(logits, targets)
        np.testing.assert_allclose(value, np.log1p(np.exp(-2)), rtol=1e-14)
        np.testing.assert_allclose(slopes, [0, 0, -1 / (1 + np.exp(2))], rtol=1e-14)
        assert function(logits, 1 - targets)[0] == np.inf


def test_equal_vectors_of_a_triplet_have_no_slope() -> None:
    anchor, negative = np.array([1.0, 2.0]), np.array([1.0, 5.0])
    slope = fxgrad.grad(lambda a, p: nn.triplet_margin_loss(a, p, negative, margin=5.0, epsilon=0.0), (0, 1))
    for function in (slope, fxgrad.jit(slope)):
        for found, expected in zip(function(anchor, anchor), ([0.0, 1.0], [0.0, 0.0]), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_what_is_no_label_and_no_probability_is_nan() -> None:
    for way in (lambda f: f, fxgrad.jit):
        found = way(lambda labels: nn.cross_entropy(X, labels, reduction="none"))(np.array([3, -1, 1, 0]))
        np.testing.assert_array_equal(np.isnan(found), [True, True, False, False])
        found = way(lambda labels: nn.nll_loss(X, labels, reduction="none"))(np.array([3, -4, -100, 0]))
        np.testing.assert_array_equal(np.isnan(found), [True, True, False, False])
        for loss in (nn.hinge_loss, nn.hinge_embedding_loss):
            found = way(lambda labels, loss=loss: loss(X[0], labels, reduction="none"))(np.array([1, 0, -1]))
            np.testing.assert_array_equal(np.isnan(found), [False, True, False])
        found = way(lambda labels: nn.cosine_embedding_loss(X, Y, labels, reduction="none"))(np.array([1, 0, -1, 2]))
        np.testing.assert_array_equal(np.isnan(found), [False, True, False, True])
        found = way(lambda p: nn.binary_cross_entropy(p, np.ones(4), reduction="none"))(
            np.array([-0.1, 0.5, np.nan, 0]))
        np.testing.assert_array_equal(np.isnan(found), [True, False, True, False])
        found = way(lambda p: nn.binary_cross_entropy(p, np.zeros(2), reduction="none"))(np.array([1.1, np.nan]))
        assert np.all(np.isnan(found))
        found = way(lambda v: nn.gaussian_nll_loss(X[0], Y[0], v, reduction="none"))(np.array([-0.1, 0.0, np.nan]))
        np.testing.assert_array_equal(np.isnan(found), [True, False, True])


def test_the_mean_of_nothing_is_nan_and_its_sum_0() -> None:
    for loss, arrays in ((nn.mse_loss, (X[:0], Y[:0])), (nn.triplet_margin_loss, (X[:0], Y[:0], Z[:0])),
                         (nn.cross_entropy, (X[:0], CLASSES[:0])), (nn.cross_entropy, (X[:0], SHARES[:0])),
                         (nn.binary_cross_entropy, (X[:0], SHARES[:0])), (nn.kl_div, (X[:0], SHARES[:0]))):
        assert np.isnan(loss(*arrays)), loss
        assert loss(*arrays, reduction="sum") == 0.0, loss
        assert loss(*arrays, reduction="none").size == 0, loss
        assert fxgrad.grad(lambda *arrays, loss=loss: loss(*arrays, reduction="sum"))(*arrays).shape == (0, 3)
    assert np.all(np.isnan(nn.cross_entropy(X[:, :0], CLASSES, reduction="none")))


def test_numbers_and_integers_are_floats() -> None:
    assert nn.mse_loss(1, 3) == 4.0
    assert nn.mse_loss(np.array([1, 2]), np.array([3, 3])).dtype == np.float64
    assert nn.mse_loss(np.array([1, 2], "i4"), np.array([3, 3], "i4")).dtype == np.float32
    assert nn.mse_loss(X.astype("f"), np.ones(SHAPE, int)).dtype == np.float32
    total = float(nn.kl_div(X, SHARES, reduction="sum"))
    assert nn.kl_div(X, SHARES, reduction="batchmean") == pytest.approx(total / 4, rel=1e-12)


@pytest.mark.slow
def test_losses_are_optaxs() -> None:
    x, y = X.astype("f"), Y.astype("f")
    pairs = [
        (nn.mse_loss, optax.squared_error, (x, y)), (nn.huber_loss, optax.huber_loss, (x, y)),
        (nn.hinge_loss, optax.hinge_loss, (x, SIGNS.astype("f"))),
        (nn.binary_cross_entropy_with_logits, optax.sigmoid_binary_cross_entropy, (x, SHARES.astype("f"))),
        (nn.cross_entropy, optax.softmax_cross_entropy_with_integer_labels, (x, CLASSES)),
        (nn.cross_entropy, optax.softmax_cross_entropy, (x, SHARES.astype("f"))),
        (lambda *a, **k: fnp.sum(nn.kl_div(*a, **k), -1), optax.kl_divergence,
         (np.log(PROBABILITIES).astype("f"), SHARES.astype("f"))),
    ]
    for own, other, arrays in pairs:
        np.testing.assert_allclose(own(*arrays, reduction="none"), other(*arrays), rtol=2e-6, atol=1e-7)


# --- refusals -------------------------------------------------------------------------------------------------------


def message(call: Callable[[], Any]) -> tuple[type, str]:
    with pytest.raises((ArgumentError, DTypeError, ShapeError)) as caught:
        call()
    return type(caught.value), str(caught.value).split("\n")[0]


def test_every_loss_refuses_reductions_and_complex_numbers() -> None:
    for case in CASES.values():
        name, args = case.loss.__name__, (*case.arrays, *case.fixed)
        last = "'none' or 'batchmean'" if name == "kl_div" else "'sum' or 'none'"
        others = "'mean', 'sum', " if name == "kl_div" else "'mean', "
        for wrong in ("average", None, True):
            assert message(lambda case=case, args=args, wrong=wrong: case.loss(*args, reduction=wrong)) == (
                ArgumentError, f"{name}: reduction={wrong!r}; it is {others}{last}")
        kind, text = message(lambda case=case, args=args: case.loss(args[0] + 0j, *args[1:]))
        assert kind is DTypeError
        assert text == f"{name}: not defined for complex numbers (complex128); use x.real, x.imag or abs(x)"


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda: nn.mse_loss(X, X[:, 0]), ShapeError, (
        "mse_loss: predictions has the shape (4, 3) and targets (4,); they must be equal. Write "
        "targets.reshape(predictions.shape), or broadcast one of them with np.broadcast_to")),
    (lambda: fxgrad.jit(nn.mse_loss)(X[:, :1], X[:, 0]), ShapeError, (
        "mse_loss: predictions has the shape (4, 1) and targets (4,); they must be equal. Write "
        "targets.reshape(predictions.shape), or broadcast one of them with np.broadcast_to")),
    (lambda: nn.huber_loss(X, Y, delta=-1.0), ArgumentError,
     "huber_loss: delta is -1.0, where a number from 0 on is needed"),
    (lambda: nn.smooth_l1_loss(X, Y, beta=math.nan), ArgumentError,
     "smooth_l1_loss: beta is nan, where a number from 0 on is needed"),
    (lambda: nn.gaussian_nll_loss(X, Y, np.ones(4)), ShapeError, (
        "gaussian_nll_loss: shapes (4,) and (4, 3) do not broadcast; counted from the last, sizes must be equal or 1. "
        "Insert an axis with x[:, None] or x.reshape(...), or transpose one of them")),
    (lambda: nn.gaussian_nll_loss(X[0], Y[0], np.ones((4, 3))), ShapeError, (
        "gaussian_nll_loss: variances has the shape (4, 3), which does not broadcast to that of predictions, (3,)")),
    (lambda: nn.cosine_embedding_loss(X, Y, SIGNS), ShapeError, (
        "cosine_embedding_loss: labels has the shape (4, 3), where (4,), one label for each vector, is needed")),
    (lambda: nn.triplet_margin_loss(1.0, 2.0, 3.0), ShapeError, (
        "triplet_margin_loss: a number was given where vectors, along a last axis, are needed")),
    (lambda: nn.cross_entropy(X, CLASSES[:2]), ShapeError, (
        "cross_entropy: logits has the shape (4, 3) and labels (2,); integers of the shape (4,), the number of a class "
        "for each, are needed")),
    (lambda: nn.cross_entropy(X, np.eye(3, dtype=int)[CLASSES]), ShapeError, (
        "cross_entropy: logits has the shape (4, 3) and labels (4, 3); integers of the shape (4,), the number of a "
        "class for each, are needed; for probabilities write labels.astype(float)")),
    (lambda: nn.cross_entropy(X, CLASSES * 1.0), DTypeError, (
        "cross_entropy: logits has the shape (4, 3) and labels, of dtype float64, (4,); probabilities of the shape of "
        "the logits are needed; for numbers of classes write labels.astype(int)")),
    (lambda: nn.cross_entropy(X, SHARES[:2]), ShapeError, (
        "cross_entropy: logits has the shape (4, 3) and labels, of dtype float64, (2, 3); probabilities of the shape "
        "of the logits are needed")),
    (lambda: nn.nll_loss(X, SHARES), DTypeError,
     "nll_loss: labels has the dtype float64, where an integer dtype is needed"),
    (lambda: nn.cross_entropy(X, CLASSES, weights=np.ones(4)), ShapeError, (
        "cross_entropy: weights has the shape (4,), where (3,), one number for each class, is needed")),
    (lambda: nn.cross_entropy(X, CLASSES, label_smoothing=1.5), ArgumentError,
     "cross_entropy: label_smoothing is 1.5, where a number from 0 to 1 is needed"),
    (lambda: nn.cross_entropy(X, CLASSES, where=CLASSES), DTypeError, (
        "cross_entropy: where must be an array of bools, and its dtype is int64. Write where != 0")),
    (lambda: nn.cross_entropy(X, CLASSES, where=np.ones((2, 4), bool)), ShapeError, (
        "cross_entropy: where has the shape (2, 4), which does not broadcast to that of the losses, (4,)")),
    (lambda: nn.binary_cross_entropy(X[:, 0], X), ShapeError, (
        "binary_cross_entropy: probabilities has the shape (4,) and targets (4, 3); they must be equal. Write "
        "targets.reshape(probabilities.shape), or broadcast one of them with np.broadcast_to")),
    (lambda: nn.kl_div(0.5, 0.5, reduction="batchmean"), ShapeError,
     "kl_div: reduction='batchmean' of a number; a first axis is needed"),
])
def test_mistakes(call: Callable[[], Any], kind: type, text: str) -> None:
    assert message(call) == (kind, text)
