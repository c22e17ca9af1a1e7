"""NumPy's functions of arrays whose length a mask, a traced bound or their values decide."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, python_control_flow, vmap
from fxgrad.errors import CheckError, ControlFlowError
from tests.support.converted import assert_refused

CASES = []


def case(function: Any) -> Any:
    CASES.append(function)
    return function


@case
def distinct_numbers(x, n):
    numbers, counts = np.unique((x * 4).astype(int), return_counts=True)
    some, places, inverse = np.unique(x[:n + 3].round(1), return_index=True, return_inverse=True)
    return (numbers[np.argmax(counts)], counts.max(), len(numbers), some.sum(), places[-1], inverse.sum(),
            np.unique(x)[n])


@case
def groups(x, n):
    labels, total = (x * 4).astype(int), 0.0
    _, inverse, counts = np.unique(labels[x > 0.2], return_inverse=True, return_counts=True)
    for label in np.unique(labels):
        total = total * 0.5 + x[labels == label].mean()
    return total, inverse.max(), counts.max(), np.unique(labels, return_inverse=True)[1]


@case
def least_squares(x, n):
    chosen = x > 0.2
    a, b = np.column_stack([x[chosen], x[chosen] ** 2]), x[chosen] * 3 - 1
    fitted = np.linalg.lstsq(a, b, rcond=None)[0]
    return np.linalg.solve(a.T @ a + np.eye(2), a.T @ b), fitted, np.polyfit(x[chosen], x[chosen] ** 2, 1)


@case
def spreads(x, n):
    rows = np.column_stack([x[x > 0.2], np.cos(x[x > 0.2])])
    return (np.cov(rows.T), np.corrcoef(rows, rowvar=False), np.cov(rows[:, 0], rows[:, 1], bias=True),
            np.cov(rows[:, 0]), np.corrcoef(x[:n + 2], x[n:2 * n + 2])[0, 1])


@case
def orders(x, n):
    y = x[x > 0.25]
    return (np.percentile(y, [25, 70]), np.percentile(y, 30), np.quantile(y, 0.1), np.median(y), np.ptp(y),
            np.sort(y)[::-1][0],
            np.quantile(np.stack([y, y * y], axis=1), 0.3, axis=0), np.median((y * 9).astype(int)))


@case
def sums(x, n):
    y = x[x > 0.25]
    return (np.average(y, weights=y), np.trapezoid(y), np.trapezoid(y, y * y), np.diff(y).sum(), np.diff(y, 2).max(),
            y.clip(0.3, 0.6).sum(), np.round(y, decimals=1).sum(), (y + 1j * y).imag.sum(),
            np.maximum.accumulate(y)[-1], np.add.reduce(y), np.multiply.reduce(y), np.cumsum(x[:n] * 2)[-1])


@case
def without_nan(x, n):
    y = np.where(np.arange(8) == n, np.nan, x)[x > 0.2]
    return np.nanmean(y), np.nansum(y), np.nanmax(y), np.nanmin(y), np.nanstd(y), np.isnan(np.median(y))


@case
def bins(x, n):
    y = x[x > 0.25]
    edges = [0, 0.3, 0.6, 1]
    return (np.histogram(y, bins=3, range=(0, 1))[0], np.histogram(y, 4), np.histogram(y, edges, density=True),
            np.digitize(y, [0.3, 0.6]).sum(), np.bincount((y * 3).astype(int), minlength=4),
            np.bincount((x * 3).astype(int), weights=x, minlength=4), np.histogram(y, 2, (0, 1), weights=y)[0])


@case
def members(x, n):
    y = x[x > 0.25]
    return np.isin(y, x[:3]).sum(), np.isin(x, y), np.isin(y, x[:3], invert=True).sum(), np.count_nonzero(y > 0.5)


@case
def searches(x, n):
    table = np.sort(x[x > 0.25])
    return (np.searchsorted(table, 0.5), np.searchsorted(table, [0.1, 0.5, 2.0], side="right"),
            np.interp([0.3, 0.5, 2.0], table, table ** 2), np.interp(table, [0.0, 1.0], [1.0, 3.0]).sum(),
            np.searchsorted([0.2, 0.4], table).sum(), np.searchsorted(table, table[1:]).sum())


@case
def joined(x, n):
    a, b, c = np.split(x, [n, n + 2])
    rows = x.reshape(4, 2)[x[::2] > 0.1]
    return (a.sum(), b.mean(), c.max(), np.hstack([a, c]).sum(), np.append(a, c).mean(), np.vstack([rows, rows]).sum(),
            np.hstack([rows, rows * 2]).sum(axis=0), np.concatenate([rows, rows], axis=1).max(), rows.ravel()[1:].sum(),
            np.vstack([rows, [[1.0, 2.0]]]).sum(), np.stack([rows, rows], axis=1).sum())


@case
def products(x, n):
    rows = x.reshape(4, 2)[x[::2] > 0.1]
    return (rows.T @ rows, np.dot(rows.T, rows[:, 0]), rows @ np.ones(2) @ rows[:, 1], (np.eye(2) @ rows.T).T.sum(),
            np.outer(rows[:, 0], [1.0, 2.0]).sum(), np.linalg.norm(rows), np.linalg.norm(rows, axis=1).max(),
            np.ones(2) @ rows.T @ rows)


@case
def left_out(x, n):
    a = np.outer(x[:3], x[:3]) + np.eye(3)
    minor = np.delete(np.delete(a, n, axis=0), 0, axis=1)
    determinant = minor[0, 0] * minor[1, 1] - minor[0, 1] * minor[1, 0]
    return (np.delete(x, n), np.delete(x.reshape(4, 2), n, axis=0), determinant,
            np.compress(x > 0.3, x).sum(), np.extract(x > 0.3, x).mean(), np.delete(x, -n))


@case
def loops_over_numbers(x, n):
    total = 0.0
    for i in np.arange(n):
        total += x[i]
    for i in np.arange(1, n + 3):
        total = total * x[i]
    for i in np.arange(6, n, -2):
        total -= i * x[i]
    return total, np.vectorize(lambda v: v if v > 0.5 else 0.0)(x)


@case
def filtered_lists(x, n):
    logarithms = np.array([math.log(v) for v in x if v > 0.3], dtype=np.float64)
    weighted = np.sum([i * v for i, v in enumerate(x) if v > 0.3 if i != n]), np.linalg.norm([v for v in x if v < 0.9])
    known = np.sum([v for v in [1.0, 2.0, 3.0] if v > 1.5]) * x[0]
    return (logarithms.std(), logarithms[-1], len(logarithms), weighted, known,
            np.median([v - n for v in x if v < 0.5]), np.max([v for v in x if v > 0.3]),
            np.array([2 * v for v in x[:3] if v > 0.1]).sum())


@case
def along_axes(x, n):
    rows = x.reshape(4, 2)[:n + 1]
    return (np.sort(rows)[1], np.sort(rows, axis=0)[0], np.sort(rows, axis=None)[2], np.argsort(rows)[:, 0].sum(),
            np.argsort(rows, axis=0)[0], np.flip(rows)[0], np.flip(rows, axis=1)[0], np.flipud(rows)[0],
            np.concatenate([rows, rows], axis=-2).sum(axis=0), np.concatenate([rows, x[:n]], axis=None)[3],
            np.concatenate([x[:n], x], axis=-1)[n], np.append(x[:n], x[n:], axis=-1).sum(), np.flip(x[:n], axis=-1)[0])


@case
def parts_of_known_length(x, n):
    first, second = np.split(x, 2)
    return first.sum(), [part.sum() for part in np.split(x, np.array([2, 5]))], second[n], np.bincount([1, 1, 2])


@case
def weights_of_known_length(x, n):
    weights = np.array([1.0, 2.0, 3.0])
    return (np.histogram(x[:n + 1], 2, (0, 1), weights=weights)[0], np.isin(x[:n], x[1:n + 1]).sum(),
            np.bincount((x[:n + 1] * 3).astype(int), weights, minlength=4))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("function", CASES)
def test_results_are_numpys(function: Any, seed: int) -> None:
    x = np.random.default_rng(seed).random(8)
    expected, converted = fxgrad.tree.leaves(function(x, 2)), python_control_flow(function)
    found = fxgrad.tree.leaves(jit(converted)(x, 2))
    batched = fxgrad.tree.leaves(vmap(converted)(x[None], np.array([2])))
    for one, other, batch in zip(found, expected, batched, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(batch[0], other, rtol=1e-10, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("function", [
    least_squares, spreads, orders, sums, searches, products, left_out, filtered_lists])
def test_gradients(function: Any) -> None:
    def total(f: Any) -> Any:
        return lambda x: sum(np.sum(np.cos(each)) for each in fxgrad.tree.leaves(f(x, 2)))
    rng, step = np.random.default_rng(0), 1e-6
    x, direction = rng.random(8), rng.normal(size=8)
    difference = total(function)(x + step * direction) - total(function)(x - step * direction)
    found = jit(grad(total(python_control_flow(function))))(x)
    np.testing.assert_allclose(np.sum(found * direction), difference / (2 * step), rtol=1e-5)


def test_counts_beyond_minlength_are_an_error() -> None:
    converted = jit(python_control_flow(lambda x: np.bincount(x[x > 0], minlength=3)))
    np.testing.assert_array_equal(converted(np.array([2, 1, 2, 0])), [0, 1, 2])
    with pytest.raises(CheckError, match=r"bincount of a number that is 3 at most, with minlength=3: the result has as "
                       r"many elements as minlength says. Write a greater one"):
        converted(np.array([2, 3, 2, 0]))


def test_columns_of_unequal_lengths_are_an_error() -> None:
    converted = jit(python_control_flow(lambda x, y: np.column_stack([x[x > 0], y[y > 0]]).sum()))
    assert converted(np.ones(3), np.array([1.0, 1.0, 2.0])) == 7
    with pytest.raises(ValueError, match="must match exactly"):  # NumPy's, with known values
        converted(np.ones(3), np.array([1.0, -1.0, 2.0]))
    with pytest.raises(CheckError, match="the slices and arrays must have one length, got 3 and 2"):
        vmap(converted)(np.ones((1, 3)), np.array([[1.0, -1.0, 2.0]]))


_LOOP = "does not take a slice with a traced bound, whose length is not known. Go over the items in a loop with an `if`"


def along_the_second_axis(x, n):
    return np.cov(np.ones((4, 2))[:n] * x)  # here


def stacked_rows(x, n):
    return np.vstack([np.arange(8.0)[:n] * x, np.arange(8.0)[:n]])  # here


def an_argument_that_is_not_taken(x, n):
    return np.median(np.arange(8.0)[:n] * x, keepdims=True)  # here


def pairs_of_variables_in_rows(x, n):
    return np.cov(np.ones((4, 2))[:n] * x, np.ones((4, 2))[:n])  # here


def median_of_complex_numbers(x, n):
    return np.median(np.arange(8.0)[:n] * x + 1j)  # here


@pytest.mark.parametrize(("function", "what"), [
    (along_the_second_axis, "cov of variables in rows"), (stacked_rows, "vstack of rows"),
    (pairs_of_variables_in_rows, "cov of variables in rows"),
    (median_of_complex_numbers, "quantile of complex numbers"),
    (an_argument_that_is_not_taken, "median with these arguments")])
def test_what_is_not_taken_is_refused_by_line(function: Any, what: str) -> None:
    assert_refused(function, None, f"{what} {_LOOP}")
    with pytest.raises(ControlFlowError):
        vmap(python_control_flow(function))(np.ones(2), np.array([1, 2]))


def of_small_integers(x):
    y = x[x > 0]
    return (np.nanmean(y), np.nansum(y), np.average(y, weights=y), np.unique(y).sum(), len(np.unique(y)),
            np.hstack([y, x]).sum(), np.vstack([y[:, None], x[:, None]]).sum(), np.quantile(y, 0.3), np.ptp(y))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32"])
def test_dtypes(dtype: str) -> None:
    x = np.array([200, 0, 2, 2, 101, 0]).astype(dtype)
    found = fxgrad.tree.leaves(jit(python_control_flow(of_small_integers))(x))
    for one, other in zip(found, of_small_integers(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("x", [np.zeros(0), np.full(4, -1.0), np.array([-1.0, 2.0])], ids=["empty", "none", "one"])
def test_few_elements(x: Any) -> None:
    def of_few(x: Any) -> Any:
        y = x[x > 0]
        return (np.median(y), y.var(), y.var(ddof=1), np.cov(y), np.unique(y).sum(), np.hstack([y, x]).sum(),
                np.diff(y).sum(), np.trapezoid(y), np.nansum(y), np.histogram(y, 3, (0, 1))[0], np.isin(y, [1.0]).sum())
    found = fxgrad.tree.leaves(jit(python_control_flow(of_few))(x))
    for one, other in zip(found, of_few(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_interpolation_needs_elements() -> None:
    converted = python_control_flow(lambda x: np.interp(0.5, x[x > 0], x[x > 0]))
    assert jit(converted)(np.array([-1.0, 0.2])) == 0.2
    with pytest.raises(CheckError, match="interp of a slice without elements"):
        vmap(converted)(np.array([[-1.0, -0.2]]))
