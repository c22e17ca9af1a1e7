"""Elements that traced masks and arrays of places choose: read, computed with and stored as NumPy does, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, python_control_flow, vmap
from fxgrad.errors import CheckError, ShapeError
from tests.support.converted import assert_refused


def masks_beside_numbers_and_slices(v):
    v, w = v.copy(), np.ones((7, 4, 2))
    rows, row = v[:, 0] > 0.5, np.argmax(v[:, 1])
    v[rows, 1] = v[rows, 0] * 2 + 1
    v[~rows, 0] += 0.1
    v[row, v[row] > 0.4] = 0.3
    v[rows.sum() - 1, v[0] > 0.2] *= 1.1
    w[rows, 1] = v[rows]
    w[rows, 2:] -= v[rows][:, None]
    w[1, w[1, :, 0] > 0.5] = -2
    w[:, w[0, :, 1] < 0.9] += 7
    w[2, ..., v[1] > 0.2] /= 3
    return v, w


def rows_for_all_that_a_mask_selects(v):
    v, w = v.copy(), v.copy()
    v[v[:, 0] > 0.5] = (0.3, 0.7)
    v[v[:, 1] > 0.5] += np.array([1.0, 2.0])
    v[:, v[0] > 0.3] *= np.arange(7.0)[:, None]
    w[w[:, 0] > 0.5, 1] = [0.1]
    return v, w


def columns_that_change_places(v):
    v, rows = v.copy(), v[:, 0] > 0.4
    v[rows, 0], v[rows, 1] = v[rows, 1], v[rows, 0]
    return v


def reductions_along_axes(v):
    rows = v[v[:, 0] > 0.3]
    sums = rows.sum(axis=1).max() + rows.mean(1).sum() + rows[:, 0].sum() + np.sum(rows, axis=1, keepdims=True).sum()
    spreads = rows.std(axis=0).sum() + rows.var(axis=(0, 1)) + rows.var(1, ddof=1).sum() + rows.std(keepdims=True)[0, 0]
    lengths = np.linalg.norm(rows - np.array([0.1, 0.2]), axis=1)
    return sums, spreads, lengths.min() + (lengths ** 2).sum(), np.max(rows, axis=-1).sum(), rows[1:, 1].sum()


def chosen_of_chosen(v):
    x = v[:, 1]
    y = x[x > 0.2]
    return y[y < 0.8].sum(), np.median(y), np.count_nonzero(y < 0.5), len(y[y < 0.8]), y[[0, -1]], y[np.array([[1]])]


def in_another_order(v):
    rows = v[:, 0] > 0.2
    order = np.argsort(v[rows, 1])
    x = v[rows, 0][order]
    return x[0] + 2 * x[-1], np.cumsum(x)[-1], v[rows][order][0]


def centred(v):
    rows = v[:, 0] > 0.2
    v = v.copy()
    v[rows] = v[rows] - v[rows].mean(axis=0, keepdims=True)
    return v


def stored_at_places(v):
    v = v.copy()
    v[np.where(v > 0.9)] = 0.1
    v[np.nonzero(v[:, 0] < 0.2)[0]] = np.array([1.5, 2.5])
    places = np.flatnonzero(v[:, 1] < 0.6)
    v[places, 0] += v[places, 1]
    v[places, 1] = v[places, 0] * 2
    v[places] *= 2
    some = places[v[places, 0] > 0.5]
    v[some, 0] = -v[some, 1]
    return v


def scattered(v):
    a, b = np.zeros(7), np.zeros((7, 2))
    a[np.where(v[:, 0] > 0.3)[0]] = v[v[:, 0] > 0.3, 1]
    rows, columns = np.where(v > 0.6)
    b[rows, columns] = np.arange(7.0)[rows]
    b[rows, 0] -= 0.1
    return a, b, (rows * columns).sum()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("function", [
    masks_beside_numbers_and_slices, rows_for_all_that_a_mask_selects, columns_that_change_places,
    reductions_along_axes, chosen_of_chosen, in_another_order, centred, stored_at_places, scattered])
def test_chosen_elements_are_numpys(function: Any, seed: int) -> None:
    v = np.random.default_rng(seed).random((7, 2))
    converted = python_control_flow(function)
    expected = fxgrad.tree.leaves(function(v))
    for found in (jit(converted)(v), fxgrad.tree.map(lambda each: each[0], jit(vmap(converted))(v[None]))):
        for one, other in zip(fxgrad.tree.leaves(found), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("function", [masks_beside_numbers_and_slices, rows_for_all_that_a_mask_selects,
                                      reductions_along_axes, in_another_order, stored_at_places])
def test_gradients_of_chosen_elements(function: Any) -> None:
    def total(f: Any) -> Any:
        return lambda v: sum(np.sum(np.cos(each)) for each in fxgrad.tree.leaves(f(v)))
    rng, step = np.random.default_rng(0), 1e-6
    v, direction = rng.random((7, 2)), rng.normal(size=(7, 2))
    difference = total(function)(v + step * direction) - total(function)(v - step * direction)
    found = jit(grad(total(python_control_flow(function))))(v)
    np.testing.assert_allclose(np.sum(found * direction), difference / (2 * step), rtol=1e-6)


def test_places_out_of_a_choice_are_checked() -> None:
    def third(v: Any) -> Any:
        return v[v > 0.5][[2]]
    converted = jit(python_control_flow(third))
    np.testing.assert_array_equal(converted(np.array([0.6, 0.1, 0.7, 0.8])), [0.8])
    with pytest.raises((CheckError, IndexError)):
        converted(np.array([0.6, 0.1, 0.7, 0.2]))


def test_as_many_values_as_places_are_checked() -> None:
    def stored(v: Any) -> Any:
        v = v.copy()
        v[np.flatnonzero(v > 0.5)] = [0.1, 0.2]
        return v
    converted = jit(python_control_flow(stored))
    np.testing.assert_array_equal(converted(np.array([0.6, 0.3, 0.7])), [0.1, 0.3, 0.2])
    with pytest.raises((CheckError, ValueError)):
        converted(np.array([0.6, 0.8, 0.7]))


def test_values_that_differ_among_what_a_mask_selects_are_refused() -> None:
    def stored(v: Any) -> Any:
        v = v.copy()
        v[v[:, 0] > 0.5, 1] = np.arange(3.0)
        return v
    with pytest.raises(ShapeError) as raised:
        jit(python_control_flow(stored))(np.ones((3, 2)))
    assert str(raised.value).partition("\n")[0] == (
        "x.at[mask]: values of shape (3,) for a mask of shape (3,) that is traced, so that how many elements it "
        "selects is not known. Values for all of them must broadcast to (); to choose among arrays of the shape of x, "
        "write fxgrad.numpy.where(mask, values, x)")


def columns_at_places(x, n):
    a = np.ones((4, 2)) * x
    places = np.nonzero(a[:, 0] > n)[0]
    a[:, places] = 0.0  # here
    return a


def test_places_beside_slices_are_refused_by_line() -> None:
    assert_refused(columns_at_places, None, (
        "an index is an array whose length is traced, as of np.nonzero(mask). Write x[mask], or go over the places in "
        "a loop, for i in np.nonzero(mask)[0]"))
    assert columns_at_places(0.5, 2).shape == (4, 2)
