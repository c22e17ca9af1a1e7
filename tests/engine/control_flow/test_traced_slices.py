"""Slices with traced bounds: read, reduced, and assigned to each other as NumPy does, or refused."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, python_control_flow, vmap
from fxgrad.errors import CheckError, ControlFlowError
from tests.support.converted import assert_as_numpy, assert_differentiable


def reversed_part(x, n):
    a = np.arange(8.0) * x
    a[1:n + 3] = a[1:n + 3][::-1]
    return a


def shifted(x, n):
    a = np.arange(8.0) * x
    a[2:n + 3] = a[1:n + 2]
    a[:n] = a[1:n + 1]
    return a


def changed_in_place(x, n):
    a, rows = np.arange(8.0) + x, [np.arange(6.0), np.cos(np.arange(8.0) * x)]
    a[n:] = a[n:] * 2 + 1
    a[:n] += a[:n]
    a[n:n + 3] -= np.array([1.0, 2.0, 3.0])
    a[1:n + 1] *= x
    rows[0][n:] += rows[1][:6][n:]
    rows[1][:n].sort()
    rows[1][n:] = np.sort(rows[1][n:])
    return a, rows


def rows_of_a_matrix(x, n):
    m = np.ones((5, 4)) * x
    m[n:] = np.arange(4.0)
    m[1:n + 1, 2] = 7.0
    m[0, :n] = m[1, :n] + 1
    m[:n, 1:] += np.arange(3.0)
    m[n:n + 1] = np.array([[9.0, 8.0, 7.0, 6.0]])
    m[:n] = m[:n] * 2
    return m, m[:n] @ np.arange(4.0) @ m[:n, 1], np.sum(m[:n], axis=0), m[2, n:].max()


def reductions(x, n):
    a, total = np.sin(np.arange(1.0, 9.0) * x), 0.0
    for i in range(1, n + 4):
        total += np.sum(a[:i]) + a[:i].max() - np.min(a[i - 1:]) + np.mean(a[:i]) + np.dot(a[:i], a[:i])
        total += len(a[:i]) + np.argmax(a[:i]) + a[:i].argmin() + sum(a[:i]) + max(a[:i]) + np.linalg.norm(a[:i])
        total += np.any(a[:i] > 0) + np.all(np.abs(a[i:]) < 2) + np.cumsum(a[:i])[-1] + np.sum(np.sqrt(a[i:] ** 2))
    return total


def of_integers(x, n):
    a, b, c = np.arange(8), np.arange(8, dtype=np.uint8), np.arange(8, dtype=np.float32)
    total = 0
    for i in range(n):
        total += a[:i].sum() // 2 + (a[i:] % 3 == 0).sum() + a[i:].min()
    return total, a[:n].mean(), b[:n].sum(), b[n:].max(), c[:n].sum(), c[:n].mean(), (c[:n] * 2).max()


def cholesky(x, n):
    a = np.eye(4) * 5 + np.cos(x * np.abs(np.subtract.outer(np.arange(4), np.arange(4))))
    factor = np.zeros((4, 4))
    for i in range(n + 1):
        for j in range(i + 1):
            rest = a[i, j] - factor[i, :j] @ factor[j, :j]
            if i == j:
                factor[i, j] = np.sqrt(rest)
            else:
                factor[i, j] = rest / factor[j, j]
    return factor


def eliminated(x, n):
    a = np.sin(np.arange(16.0).reshape(4, 4) ** 2 * x) + 3 * np.eye(4)
    for k in range(n + 1):
        pivot = k + np.argmax(np.abs(a[k:, k]))
        a[[k, pivot]] = a[[pivot, k]]
        a[k + 1:, k] /= a[k, k]
        for i in range(k + 1, 4):
            a[i, k + 1:] -= a[i, k] * a[k, k + 1:]
    return a


def inserted(x, n):
    a = np.zeros(8)
    for k in range(n + 4):
        value, place = np.sin(x * k), 0
        while place < k and a[place] < value:
            place += 1
        a[place + 1:k + 1] = a[place:k]
        a[place] = value
    return a


def steps_and_items(x, n):
    a = np.arange(8.0) * x
    a[n::2] = a[n::2] + 100
    a[:n:-1] = a[:n:-1] - 1
    b = a[2:n + 5]
    total = 0.0
    for value in a[n:]:
        total = 2 * total + value
    for i, value in enumerate(a[:n]):
        total += i * value
    return a, a[::n + 1].sum(), b[0], b[-1], b[n], b[1:].sum(), total


class Window:
    def __init__(self):
        self.buffer, self.n = np.zeros(8), 0

    def add(self, v):
        self.buffer[self.n] = v
        self.n += 1

    def drop(self):
        self.buffer[:self.n - 1] = self.buffer[1:self.n]
        self.n -= 1

    def mean(self):
        return np.mean(self.buffer[:self.n])


def of_an_object(x, n):
    window, out = Window(), np.zeros(6)
    for i in range(6):
        window.add(np.cos(x * i))
        if i > n:
            window.drop()
        out[i] = window.mean()
    return out, window.buffer


def probabilities(x, n):
    p = np.zeros(9)
    p[0] = 1.0
    for k in range(1, n + 5):
        p[1:k + 1] = p[1:k + 1] * 0.5 * x + p[:k] * 0.5
        p[0] *= 0.5
    return p


def chosen(x, n):
    a = np.arange(8.0) * x
    part = a[:n] if x > 1 else a[n:]
    low, high = a[:n], a[n:]
    if x > 0:
        low, high = high[1:], low
    return part.sum(), len(part), np.sum(low) - high.max(), of_a_function(a, n).sum()


def of_a_function(a, n):
    if n > 2:
        return a[:n]
    return a[1:n]


def halved(x, n):
    part, count = (np.arange(8.0) * x)[:n + 4], 0
    while len(part) > 1:
        middle = len(part) // 2
        if part[middle] > 3.0:
            part = part[:middle]
        else:
            part = part[middle:]
        count += 1
    return part[0], count


def in_lists(x, n):
    a, total = np.arange(8.0) * x, 0.0
    parts = [a[:n], a[n:]]
    for i in range(n):
        parts[0], parts[1] = parts[1], parts[0]
        total = total + parts[0].sum() * i
    rest, out, k = a[n:], np.zeros(8), 0
    while len(rest) > 0:
        out[k] = rest[0]
        rest = rest[2:] * 2
        k += 1
    return total, out, k


def joined(x, n):
    a, m, b = np.arange(8.0) * x, np.arange(24.0).reshape(6, 4) * x, np.zeros(8)
    around = np.concatenate([a[n:], a[:n]])
    around[0] += 5.0
    without = np.concatenate([a[:n], a[n + 1:]])
    replaced = np.concatenate((a[:n], [x], a[n + 1:]))
    longer = np.append(a[:n], x)
    b[:len(without)] = without
    return (around, np.concatenate([m[n:], m[:n]]), without.sum(), len(without), replaced.max(), longer[-1],
            len(longer), b, np.hstack([a[:n], a[2:n]]).sum(), np.concatenate([m[:1], m[:n]], axis=0).sum(axis=0))


def one_row(x, n):
    a, b, total = np.arange(8.0) * x, np.ones(8), 0.0
    for i in range(1, n + 3):
        total += np.sum(a[:i] * a[3:4]) + np.sum(a[i - 1:i] * a[:i + 2]) + np.sum(a[:i] + a[:i - i + 1])
    b[2:n + 3] = a[n:n + 1]
    return total, b, a[n:n + 1] * np.ones(3), (a[:n] + a[n:n + 1]).sum()


def membership(x, n):
    a, found = np.array([3, 1, 4, 1, 5, 9, 2, 6]), 0
    for i in range(len(a)):
        if a[i] in a[:i]:
            found += 1
        if n in a[i:]:
            found += 10
        if n not in a[:n]:
            found += 100
    return found, x


def read_at_places(x, n):
    a, b = np.sin(np.arange(8.0)) * x, np.arange(8.0)
    m = np.stack([a, b - 4.0 * x])
    places = np.nonzero(a > 0.2)[0]
    rows, columns = np.nonzero(m > 0.5)
    order = np.argsort(a)
    last = order[np.nonzero(a[order] > 0)[0]]
    total = 0.0
    if len(places) > n:
        total = a[places[1:]].prod()
    return (np.sum(a[np.where(a > 0.1)]), np.mean(a[places] * b[places]), np.max(a[places]), a[places][-1],
            a[places[0]], m[rows, columns].sum(), m.T[columns, rows].std(), m[rows, 0].sum(), m[rows].var(axis=0),
            np.var(a[places], ddof=1), (rows + columns).sum(), a[last].sum(), last.sum(),
            np.ones(1)[rows[:0]].sum(), total)


CASES = [chosen, halved, in_lists, joined, one_row, membership, of_an_object, probabilities, reversed_part, shifted,
         changed_in_place, rows_of_a_matrix, reductions, of_integers, cholesky, eliminated, inserted, steps_and_items,
         read_at_places]


@pytest.mark.slow
@pytest.mark.parametrize("function", CASES)
@pytest.mark.parametrize("args", [(1.3, 2), (0.7, 3), (2.1, 1)])
def test_slices_are_numpys(function: Any, args: tuple[float, int]) -> None:
    expected = fxgrad.tree.leaves(function(*args))
    for one, other in zip(fxgrad.tree.leaves(jit(python_control_flow(function))(*args)), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
        assert np.asarray(one).dtype == np.asarray(other).dtype


@pytest.mark.slow
@pytest.mark.parametrize("function", [cholesky, reductions, inserted, rows_of_a_matrix, chosen, joined, one_row,
                                      read_at_places])
def test_gradients_and_batches(function: Any) -> None:
    assert_differentiable(function)


def test_batches_of_slices_with_the_same_bounds_need_no_check() -> None:
    converted = python_control_flow(cholesky)
    found = jit(vmap(converted))(np.array([0.7, 1.5]), np.array([3, 1]))
    np.testing.assert_allclose(found, [cholesky(0.7, 3), cholesky(1.5, 1)])


def test_batches_whose_lengths_are_compared_in_branches_and_loops() -> None:
    def products(x: Any, n: Any) -> Any:
        a, total = np.arange(8.0) * x, 0.0
        for i in range(n):
            total = total + np.sum(a[:i] * a[2:i + 2])
            if x > 1:
                total = total + np.sum(a[:n] * a[3:])
        return total
    converted = python_control_flow(products)
    args = np.array([0.7, 1.5, 0.5]), np.array([3, 5, 1])
    expected = [products(*each) for each in zip(*args, strict=True)]
    np.testing.assert_allclose(vmap(converted)(*args), expected)
    np.testing.assert_allclose(jit(vmap(converted))(*args), expected)
    with pytest.raises(CheckError) as caught:
        jit(vmap(converted))(args[0], np.array([3, 4, 1]))
    assert "the slices and arrays must have one length, got 4 and 5\n" in str(caught.value)
    assert "in entry 1 of the batch" in str(caught.value)


def test_rows_that_do_not_count_leave_no_nan_in_a_gradient() -> None:
    def roots(x: Any, n: Any) -> Any:
        a = x * np.array([4.0, 9.0, 0.0, -1.0])
        return np.sum(np.sqrt(a[:n])) + np.sum(1.0 / a[:n]) + np.sum(np.log(a[:n]) / (a[:n] - 1.0))
    found = jit(grad(python_control_flow(roots)))(2.0, 2)
    np.testing.assert_allclose(found, (roots(2.0 + 1e-6, 2) - roots(2.0 - 1e-6, 2)) / 2e-6, rtol=1e-6)


def test_lengths_are_compared_in_the_program() -> None:
    def assigned(x: Any, n: Any) -> Any:
        a = np.arange(8.0) * x
        a[:n] = np.ones(3)
        return a

    def added(x: Any, n: Any) -> Any:
        a = np.arange(8.0) * x
        return np.sum(a[:n] * a[n:])

    def outside(x: Any, n: Any) -> Any:
        return (np.arange(8.0) * x)[:n][4]
    for function, right in ((assigned, 3), (added, 4), (outside, 5)):
        converted = jit(python_control_flow(function))
        np.testing.assert_allclose(converted(1.5, right), function(1.5, right))
        with pytest.raises((CheckError, ValueError, IndexError)):
            converted(1.5, 2)


# --- what is refused --------------------------------------------------------------------------------------------------


def array_changes_under_a_slice(x, n):
    a = np.arange(8.0) * x
    part = a[:n]
    a[0] = 100.0  # here
    return part.sum(), a


def known_array_changes_under_a_slice(x, n):
    a = np.arange(8.0)
    part = a[:n]
    a[0] = 100.0  # here
    return part.sum() * x, a


def items_of_a_slice(x, n):
    a = np.arange(8.0) * x
    part = a[:n]
    part[0] = 3.0  # here
    return a


def operator_on_a_slice(x, n):
    a = np.arange(8.0) * x
    part = a[:n]
    part += 3.0  # here
    return a


def shape_of_a_slice(x, n):
    return (np.arange(8.0) * x)[:n].shape[0]  # here


def stacked_slices(x, n):
    a = np.arange(8.0) * x
    return np.stack([a[:n], a[n:]])  # here


def greatest_complex_number(x, n):
    a = np.arange(8.0) * x + 1j
    return a[a.real > n].max().real  # here


def sorted_complex_numbers(x, n):
    a = np.arange(8.0) * x + 1j
    return np.sort(a[:n])[0].real  # here


def slice_in_array(x, n):
    a = np.arange(8.0) * x
    return a[:n] in a  # here


def slice_on_one_side(x, n):
    part = a = np.arange(8.0) * x
    if x > 1:  # here
        part = a[:n]
    return part.sum()


def slice_after_a_turn(x, n):
    a = np.arange(8.0) * x
    while len(a) > n:  # here
        a = a[n:]
    return a.sum()


def array_changes_under_a_chosen_slice(x, n):
    a = np.arange(8.0) * x
    part = a[:n] if x > 1 else a[n:]
    a[0] = 100.0  # here
    return part.sum(), a


def array_changes_under_a_carried_slice(x, n):
    a = np.arange(8.0) * x
    part = a[:n]
    for i in range(n):
        part = a[i:n]
        a[i] = 1.0  # here
    return part.sum(), a


def two_bounds(x, n):
    return (np.ones((4, 4, 4)) * x)[:n, :n].sum()  # here


def bound_of_a_tuple(x, n):
    return (x, 1.0, 2.0)[:n]  # here


_CHANGES = ("a slice with a traced bound changes in place. Write x[a:b] = v or x[i] = v on the array; give functions "
            "the array and the bounds")
_OTHERS = ("a[...] = v changes the array of `a`, which another name, a container or a view has too and would see "
           "change in NumPy. Write a = a.copy() before")
_LOOP = "does not take a slice with a traced bound, whose length is not known. Go over the items in a loop with an `if`"


@pytest.mark.parametrize(("function", "message"), [
    (array_changes_under_a_slice, _OTHERS),
    (known_array_changes_under_a_slice, (
        "`a` changes in place, and a traced array may be the same or a view of it: one that a traced condition chose, "
        "or a row at a traced index. Write a = a.copy() before")),
    (items_of_a_slice, _CHANGES),
    (operator_on_a_slice, _CHANGES),
    (shape_of_a_slice, (
        "the shape of a slice with traced bounds is traced. Write len(x) in converted code, or stop - start")),
    (stacked_slices, f"stack along a first axis {_LOOP}"),
    (greatest_complex_number, f"max of complex numbers {_LOOP}"),
    (sorted_complex_numbers, f"sort of complex numbers {_LOOP}"),
    (slice_in_array, ("`x[a:b] in y` has a traced bound, and compares element by element. Write np.any(y == x[a:b]), "
                      "or go over the places of y in a loop")),
    (slice_on_one_side, (
        "`part` is a slice with a traced bound of f64[8] if the condition of this `if` is true, and f64[8] otherwise. "
        "Choose the bounds of the slice on both sides, and slice the array after the block")),
    (slice_after_a_turn, (
        "`a` is f64[8] before a turn of this `while` and a slice with a traced bound of f64[8] after it; the number of "
        "turns is traced, so the type must stay. Keep the array, and the bounds in two numbers: x[start:stop] where it "
        "is read")),
    (array_changes_under_a_chosen_slice, _OTHERS),
    (array_changes_under_a_carried_slice, _OTHERS),
    (two_bounds, ("a slice with a traced bound is read along the first axis of the result, and this one is not. Write "
                  "x.T[a:b], or go over the items in a loop with an `if`")),
    (bound_of_a_tuple, (
        "a bound of this slice of a tuple is traced, and so would be its length. Make an array of the items before, "
        "x = np.array(xs), and write x[a:b]; or go over the items in a loop with an `if`")),
])
def test_what_a_slice_does_not_take_is_refused_by_line(function: Any, message: str) -> None:
    lines, first = inspect.getsourcelines(function)
    line = next(first + number for number, line in enumerate(lines) if line.rstrip().endswith("# here"))
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(function))(1.5, 2)
    assert str(refused.value) == f"{message}\n  at test_traced_slices.py:{line} (in {function.__name__})"


def test_what_the_refusals_of_carried_slices_say_works() -> None:
    def on_one_side(x: Any, n: Any) -> Any:
        a, stop = np.arange(8.0) * x, 8
        if x > 1:
            stop = n
        return a[:stop].sum()

    def after_a_turn(x: Any, n: Any) -> Any:
        a, start = np.arange(8.0) * x, 0
        while len(a[start:]) > n:
            start = start + n
        return a[start:].sum()

    def change(a: Any, start: Any, x: Any) -> None:
        a[start + 1] = x

    def given_bounds(x: Any, n: Any) -> Any:
        a = np.arange(8.0)
        for i in range(n):
            change(a, i, x)
        return a.sum()
    for function in (on_one_side, after_a_turn, given_bounds):
        for args in ((1.5, 2), (0.5, 3)):
            assert_as_numpy(function, args)


def test_options_of_reductions_are_refused() -> None:
    def least(x: Any, n: Any) -> Any:
        return x[:n].min(initial=0.0)
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(least))(np.ones(3), 2)
    assert str(refused.value).startswith(
        "min with initial= does not take a slice with a traced bound, whose length is not known. Go over the items in "
        "a loop with an `if`\n  at test_traced_slices.py:")


def test_slices_of_unknown_length_are_not_returned() -> None:
    def front(x: Any, n: Any) -> Any:
        return {"front": x[:n], "n": n}
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(front))(np.ones(3), 2)
    assert "front returns a slice with a traced bound, whose length is not known. Return the whole array" in str(
        refused.value)


def test_nans_are_the_extrema_of_a_slice() -> None:
    def places(x: Any, n: Any) -> Any:
        a = np.array([3.0, 1.0, np.nan, 7.0, np.nan, -2.0]) * x
        chosen = np.abs(a - 3.0) > -1.0  # false for a NaN
        return a[1:n].argmax(), a[:n].argmin(), a[chosen].argmax(), a[~(a == 1.0)].argmin()
    for args in ((1.0, 2), (2.0, 6), (-1.0, 3)):
        np.testing.assert_array_equal(jit(python_control_flow(places))(*args), places(*args))


def test_elements_that_are_not_assigned_keep_their_digits() -> None:
    def assigned(x: Any, n: Any) -> Any:
        big, other = np.array([2**60 + 1, 5, 2**61 + 3, 7]), np.arange(4.0) * x * 10
        rows, lists = big.reshape(2, 2).copy(), [big.copy(), big.copy()]
        some = big.copy()
        big[1:n] = x * 10
        some[some < x + 6] = other[some < x + 6]
        rows[1][:n - 1] = x * 3
        lists[n - 2][1] = x * 7
        return big, some, rows, lists
    for args in ((1.5, 2), (0.75, 3)):
        found, expected = jit(python_control_flow(assigned))(*args), assigned(*args)
        for one, other in zip(fxgrad.tree.leaves(found), fxgrad.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(one, other, strict=True)


def test_one_element_is_stored_at_all_places_of_a_mask() -> None:
    def stored(x: Any, n: Any) -> Any:
        a, b = np.sin(np.arange(6.0) * x), np.arange(6.0)
        a[a > 0] = b[b == n]
        return a
    for args in ((1.5, 2), (0.5, 3), (-0.4, 0)):
        assert_as_numpy(stored, args)
    with pytest.raises(CheckError, match=r"the slices and arrays must have one length, got 5 and 0"):
        vmap(python_control_flow(stored))(np.array([0.5, 0.5]), np.array([9, 3]))


def test_masks_and_arrays_of_places_whose_values_are_known_select_from_known_arrays() -> None:
    table, x = np.arange(4.0), np.array([1.0, -1.0, 2.0, 3.0])

    def chosen(x: Any) -> Any:
        mask = x > 0
        places = np.argsort(x)
        return np.sum(x[mask]) * np.sum(table[mask]) + np.sum(x * table[places])
    gradient = np.where(x > 0, 5.0, 0.0) + np.array([1.0, 0.0, 2.0, 3.0])
    for found in (grad(python_control_flow(chosen)), jit(grad(python_control_flow(chosen)))):
        np.testing.assert_array_equal(found(x), gradient)


def test_numbers_that_are_stored_or_joined_keep_their_digits() -> None:
    """They had those of float32."""
    def f(x: Any, n: Any) -> Any:
        a = np.zeros(4) + x
        a[:n] = 1.19
        a[a > 1.5] = 0.1
        b = a * 2.0
        b[:n] = [0.1, 0.2]
        return a, b, np.concatenate([a[:n], [0.1, x]]).sum(), np.append(b[:n], 0.7).sum(), a[:n] @ [0.1, 0.7]

    expected = f(1.7, 2)
    found = vmap(python_control_flow(f))(np.array([1.7]), np.array([2]))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one)[0], other, rtol=1e-15)
