"""`stabilize` makes no loss worse: guards are kept, and so are infinities, zeros and NaNs; un-jitted and jitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

from fxgrad import grad, jit, make_program, stabilize
from tests.support.losses import LOSSES, Loss, error, exact_slope, exact_value, inputs, neighbours

UNITS = 4.0
"""The last places by which a result may differ where what was written was exact by luck."""
FLOATS = [np.dtype(np.float64), np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)]
Exact = Callable[[Loss, Any], Any]


# --- guards ---------------------------------------------------------------------------------------------------------

EPS = 1e-8


@pytest.mark.parametrize("transform", [lambda f: f, jit], ids=["plain", "jitted"])
def test_guards_are_kept(transform: Callable[..., Any]) -> None:
    def binary_cross_entropy(p, y, guard):  # an argument: XLA adds literals together, and loses it
        return -np.mean(y * np.log(p + guard) + (1 - y) * np.log(1 - p + guard))

    p, y = np.array([1.0, 0.9, 1.0], np.float32), np.array([1.0, 1.0, 0.0], np.float32)
    exact = -(np.log(0.9) + np.log(EPS)) / 3
    assert float(transform(stabilize(binary_cross_entropy))(p, y, EPS)) == pytest.approx(exact, rel=1e-6)
    assert np.isfinite(grad(transform(stabilize(binary_cross_entropy)))(p, y, EPS)).all()
    assert float(stabilize(lambda p, y: binary_cross_entropy(p, y, EPS))(p, y)) == pytest.approx(exact, rel=1e-6)
    u = np.array([0.0, 5.0, 30.0], np.float32)
    change = transform(stabilize(lambda u: np.log(1 - np.tanh(u) ** 2 + 1e-6)))
    wide = 1 - np.tanh(u.astype(float)) ** 2
    np.testing.assert_allclose(change(u), np.log(wide + 1e-6), rtol=1e-6)


@pytest.mark.parametrize("transform", [lambda f: f, jit], ids=["plain", "jitted"])
def test_infinite_arguments_of_sums_of_exponentials(transform: Callable[..., Any]) -> None:
    x, w = np.array([np.inf, 0.0]), np.array([1.0, 2.0])
    for f in (lambda x: np.log(np.sum(np.exp(x))), lambda x: np.log(np.mean(np.exp(x))),
              lambda x: np.log(np.sum(w * np.exp(x)))):
        assert transform(stabilize(f))(x) == np.inf
        assert transform(stabilize(f))(np.array([-np.inf, -np.inf])) == -np.inf
    shares = transform(stabilize(lambda x: np.exp(x) / np.sum(np.exp(x))))(x)
    assert np.isnan(shares[0])
    assert shares[1] == 0.0


def test_weights_of_all_sizes() -> None:
    """The peak is that of the terms: an exponent whose weight is 0 or tiny counts for little."""
    f = stabilize(lambda x, w: np.log(np.sum(w * np.exp(x))))
    assert f(np.array([709.0, 1.0]), np.array([0.0, 1.0])) == 1.0
    assert f(np.array([1000.0, 1.0]), np.array([0.0, 1.0])) == 1.0
    assert f(np.array([700.0, 0.0]), np.array([1e-308, 1.0])) == pytest.approx(np.log1p(1e-308 * np.exp(700.0)))
    assert f(np.array([0.0, 3.0]), np.array([1.7e308, 1.0])) == pytest.approx(np.log(1.7e308), rel=1e-15)
    slopes = grad(f, argnums=(0, 1))(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    np.testing.assert_allclose(slopes, [[0.0, 1.0], [np.exp(-1.0), 1.0]], rtol=1e-15)
    assert np.isnan(f(np.array([np.nan, 1.0]), np.array([0.0, 1.0])))


def test_exponentials_that_cancel_beside_numbers() -> None:
    f = stabilize(lambda x: np.exp(x) * 3.0 / np.exp(x))
    assert f(1.0) == 3.0
    assert f(np.array([0.0, 1e4])).tolist() == [3.0, 3.0]
    assert grad(f)(1.0) == 0.0
    assert np.isnan(f(np.nan))
    assert np.isnan(grad(f)(np.nan))
    assert stabilize(lambda x: 2 / np.exp(x) * np.exp(x) / 4.0)(1.0) == 0.5


# --- the law --------------------------------------------------------------------------------------------------------


def test_there_are_enough_losses_and_most_are_rewritten() -> None:
    x = {"r": 0.5, "p": 0.4, "+": 0.7, "l": 1.0, "c": 0.3}
    rewritten = 0
    for loss in LOSSES:
        arguments = [np.full((2, 3) if loss.vector else 2, x[kind]) for kind in loss.kinds]
        program = make_program(lambda *given, loss=loss: stabilize(lambda *each: loss.function(np, *each))(*given))
        rewritten += bool(program(*arguments).diff(make_program(
            lambda *given, loss=loss: loss.function(np, *given))(*arguments)))
    assert len(LOSSES) >= 80
    assert rewritten >= 50


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_no_loss_becomes_worse(loss: Loss) -> None:
    """No error is more than twice that of what was written, here or at the numbers next to it."""
    assert [problem for dtype in FLOATS for problem in _problems(loss, dtype)] == []


def _problems(loss: Loss, dtype: Any) -> list[str]:
    def written(*given: Any) -> Any:
        return loss.function(np, *given)

    def sloped(function: Callable[..., Any]) -> Callable[..., Any]:
        return grad(lambda *given: np.sum(function(*given)))

    columns = [column[:24] if loss.vector else column for column in inputs(loss, dtype)]
    stable = stabilize(written)
    with np.errstate(all="ignore"):
        program = make_program(written)(*columns)
        # Where guards are literals, XLA adds them to other numbers: the loss as it was written has that, too.
        compiled = jit(lambda *given: [each(*given) for f in (stable, written, program) for each in (f, sloped(f))])
        found = [np.asarray(each) for each in compiled(*columns)]
        near = [(moved, np.asarray(program(*moved)), np.asarray(sloped(program)(*moved)))
                for moved in (neighbours(columns, distance) for distance in (0, 1, -1, 2, -2))]
        plain = [np.asarray(stable(*columns)), np.asarray(sloped(stable)(*columns))]
    problems = _lost_nans(loss, dtype, written, stable)
    for what, exact_of, ours, compiled_ours, compiled_theirs in (
            ("value", exact_value, plain[0], found[0], (found[2], found[4])),
            ("slope", exact_slope, plain[1], found[1], (found[3], found[5]))):
        for place in range(len(columns[0])):
            row = [column[place] for column in columns]
            exact, naive = exact_of(loss, row), near[0][1 + (what == "slope")][place]
            if exact is None or not all(mpmath.isfinite(each) for each in np.ravel(exact)):
                if _is_lost(ours[place], naive, exact):
                    problems.append(f"{dtype} {what} at {row}: {ours[place]}, written {naive}")
                continue
            allowed = _NearErrors(loss, dtype, exact_of, [(moved, values[what == "slope"]) for moved, *values in near],
                                  place)
            for name, mine, others in (("", ours, ()), (", jitted", compiled_ours, compiled_theirs)):
                of = error(mine[place], exact, dtype, loss.least, bool(others))
                if of <= UNITS:
                    continue
                before = max([error(other[place], exact, dtype, loss.least, True) for other in others], default=0.0)
                if of > 2 * before + UNITS and of > 2 * allowed.worst() + UNITS:
                    problems.append(f"{dtype} {what}{name} at {row}: {mine[place]}, which is {of:.3g} units off; "
                                    f"written {naive}, {allowed.worst():.3g} units off")
    return problems


def _is_lost(stable: Any, naive: Any, exact: Any) -> bool:
    """Whether a number, or the right infinity, became a NaN."""
    stable, naive = np.asarray(stable, float), np.asarray(naive, float)
    if exact is not None and not np.ndim(exact):
        return bool(naive == float(exact) and stable != naive)
    return not np.isnan(naive).any() and bool(np.isnan(stable).any())


class _NearErrors:
    """The largest error of what was written at a point and those next to it, computed once it is asked for."""

    def __init__(self, loss: Loss, dtype: Any, exact_of: Exact, near: list[Any], place: int) -> None:
        self._given, self._worst = (loss, dtype, exact_of, near, place), -1.0

    def worst(self) -> float:
        """The error in units of the last place."""
        if self._worst < 0:
            loss, dtype, exact_of, near, place = self._given
            self._worst = 0.0
            for columns, values in near:
                exact = exact_of(loss, [column[place] for column in columns])
                if exact is not None:
                    self._worst = max(self._worst, error(values[place], exact, dtype, loss.least))
        return self._worst


def _lost_nans(loss: Loss, dtype: Any, written: Callable[..., Any], stable: Callable[..., Any]) -> list[str]:
    """Where an argument is NaN, and a value or a slope in it no longer is."""
    problems = []
    for place, kind in enumerate(loss.kinds):
        shape = (2, 3) if loss.vector else 2
        arguments = [np.full(shape, 0.3 + 0.2 * number, dtype) for number in range(len(loss.kinds))]
        if kind == "l":
            continue
        arguments[place][..., 0] = np.nan
        with np.errstate(all="ignore"):
            for what, function in (("value", lambda f: f), ("slope", lambda f, place=place: grad(
                    lambda *given: np.sum(f(*given)), argnums=place))):
                before, after = (np.asarray(function(f)(*arguments), float) for f in (written, stable))
                if loss.vector and what == "slope":
                    before, after = before[:, 0], after[:, 0]
                if (np.isnan(before) & ~np.isnan(after)).any():
                    problems.append(f"{dtype} {what} of NaN: {after}, written {before}")
    return problems
