"""Functions that change a row, a slice or another part of an array of their callers: as NumPy's views, or refused."""

# ruff: noqa: PLW2901  (what changes rows of a loop is tested)

from __future__ import annotations

import inspect
import runpy
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import jit, python_control_flow, vmap
from fxgrad.errors import CheckError, ControlFlowError
from tests.support.converted import assert_as_numpy, assert_differentiable, assert_refused


def bump(a, i):
    a[i] += 1.0  # here


def normalize(v):
    total = 0.0
    for k in range(len(v)):
        total += v[k] ** 2
    for k in range(len(v)):
        v[k] /= np.sqrt(total + 1.0)


def add_to(a, x):
    if x > 0:
        a[0] += x
    a += 1
    a *= 2


def taken(a, x):
    a[0] += x
    return a[0] + a[1]


def rows_of_a_matrix(x, n):
    m = np.arange(12.0).reshape(3, 4) * x
    bump(m[1], 0)
    for i in range(n):
        bump(m[i], i)
        normalize(m[i % 3])
        if x > 0:
            add_to(m[:, i], x)
        add_to(m[i, 1:], x * i)
    if x > n - 3:
        normalize(m[2])
    return m


def known_rows(x, n):
    m = np.arange(12.0).reshape(3, 4)
    bump(m[1], 0)
    add_to(m[0], x)
    bump(m[n % 3], 1)
    m[2] = 7.0
    bump(m[2][1:], 1)
    return m * x


def slices(x, n):
    a, part = np.cos(np.arange(8.0) * x), 0
    for i in range(n):
        bump(a[2:4], i % 2)
        add_to(a[1:], x)
        part += partition(a[2:7])
    part += partition(a[:5])
    return a, part


def partition(a):
    pivot, i = a[-1], 0
    for j in range(len(a) - 1):
        if a[j] < pivot:
            a[i], a[j] = a[j], a[i]
            i += 1
    a[i], a[-1] = a[-1], a[i]
    return i


def rows_in_containers(x, n):
    rows, tables = [np.ones(3) * x, np.arange(1, 4.0)], {"u": np.ones((2, 3))}
    for i in range(n):
        normalize(rows[i % 2])
        bump(rows[i % 2][1:], i % 2)
        bump(tables["u"][i % 2], i % 3)
    return rows, tables


class Net:
    def __init__(self, x):
        self.w = np.ones((3, 4)) * x

    def step(self, n):
        for i in range(n):
            normalize(self.w[i])
            self.tick(self.w[:, i], i)

    def tick(self, column, i):
        column += i
        if column[0] > 1:
            bump(column, 1)


def attributes(x, n):
    net = Net(x)
    net.step(n)
    for i in range(n):
        add_row(net.w[i - 1], net.w[i], x)
    bump(net.w[1, 1:], 0)
    return net.w


def merge_sort(a):
    if len(a) <= 1:
        return
    middle = len(a) // 2
    merge_sort(a[:middle])
    merge_sort(a[middle:])
    out, i, j = np.zeros(len(a)), 0, middle
    for k in range(len(a)):
        if j >= len(a) or (i < middle and a[i] <= a[j]):
            out[k] = a[i]
            i += 1
        else:
            out[k] = a[j]
            j += 1
    a[:] = out


def recursion(x, n):
    a = np.cos(np.arange(7.0) * x + n)
    merge_sort(a)
    return a


def cube(x, n):
    t = np.ones((3, 4, 2)) * x
    for i in range(n):
        bump(t[i][1], 0)
        bump(t[i, 1], 1)
        bump(t[:, i][1], 1)
        fill_rows(t[i], x)
    return t


def fill_rows(m, x):
    for k in range(2):
        bump(m[k], 0)
        m[k, 1] = x
        if x > 1:
            bump(m[k, :1], 0)


def with_results(x, n):
    m, total, found = np.ones((4, 3)) * x, 0.0, np.zeros(3)
    for i in range(n):
        total += taken(m[i], x)
        found[i] = 2 * taken(m[i], total) - 1
    values = [taken(m[i], x) for i in range(2)]
    one = lambda i: taken(m[i], x)
    both = one(1) + one(0)
    return m, total, found, values, both


def arguments_by_keyword(x, n):
    m = np.ones((3, 4)) * x
    for i in range(n):
        bump(i=i, a=m[i])
        bump(m[i], i=1)
        decorated(m[i], x)
    return m


@python_control_flow
def decorated(a, x):
    a[1] = x


def indices_are_computed_once(x, n):
    m, calls = np.ones((4, 3)) * x, []
    i = 0

    def following():
        nonlocal i
        i += 1
        calls.append(i)
        return i % 3
    bump(m[i], following())
    bump(m[following()], following())
    for k in range(n):
        bump(m[k], k)
    return m, calls


def nested_function(x, n):
    m = np.ones((4, 3)) * x

    def step(i):
        bump(m[i], 1)
        if x > 1:
            bump(m[i, 1:], 0)
    for i in range(n):
        step(i)
    return m


def integers(x, n):
    m = np.arange(12).reshape(3, 4)
    for i in range(n):
        add_to(m[i], i)
        cut(m[i], i)
    return m


def cut(a, i):
    a[i] = 3.7


def early(a, v):
    if v > 1:
        a[0] = v
        return 1
    a[1] = v
    return 2


def early_returns(x, n):
    m, total = np.ones((3, 4)) * x, 0
    for i in range(n):
        total += early(m[i], x * i)
    return m, total


def sorted_rows(x, n):
    m = np.cos(np.arange(12.0).reshape(3, 4) * x)
    for i in range(n):
        sort(m[i])
    sort(m[:, 1])
    return m


def sort(a):
    a.sort()


def orthogonalized(x, n):
    a = np.sin(np.arange(9.0).reshape(3, 3) ** 2 * x + n) + np.eye(3)
    for j in range(3):
        for i in range(j):
            subtract(a[:, j], a[:, i].copy())
        normalize(a[:, j])
    return a


def subtract(u, v):
    u -= (u @ v) * v


def add_row(a, b, factor):
    for k in range(len(a)):
        a[k] += factor * b[k]


def rows_beside_rows(x, n):
    m, t = np.sin(np.arange(12.0).reshape(3, 4) ** 2 * x), np.arange(24.0).reshape(2, 3, 4) * x
    add_row(m[0], m[1], x)
    add_row(m[-1], m[1], 2.0)
    for i in range(n):
        add_row(m[i], m[i - 1], x)
        add_row(m[:, i], m[:, i + 1], 0.5)
        add_row(m[i, 1:], m[i - 1, :-1], x)
        add_row(b=t[1, i % 3], a=t[0, i % 3], factor=x)
    return m, t


def eliminated(x, n):
    a = np.sin(np.arange(16.0).reshape(4, 4) ** 2 * x) + 3 * np.eye(4)
    for k in range(n + 1):
        for i in range(k + 1, 4):
            add_row(a[i], a[k], -a[i, k] / a[k, k])
    return a


def exchange(a, b):
    kept = a.copy()
    a[:] = b
    b[:] = kept


def rotate(a, b, c, s):
    for k in range(len(a)):
        one, other = a[k], b[k]
        a[k], b[k] = c * one + s * other, c * other - s * one


def combine(a, b, other, x):
    a += x * other
    if x > 1:
        b -= other
        exchange(a, b)
    return a[0] - b[-1]


def two_rows(x, n):
    m, t = np.sin(np.arange(16.0).reshape(4, 4) ** 2 * x), {"u": np.arange(24.0).reshape(2, 3, 4) * x}
    total = 0.0
    exchange(m[0], m[-1])
    for i in range(n):
        exchange(m[i], m[i + 1])
        rotate(m[:, i], m[:, 3], 0.6, 0.8)
        rotate(m[i, :2], m[i, 2:], 0.8, x)
        exchange(t["u"][0, i % 3], t["u"][1][i % 3])
        if x > 1:
            exchange(m[i, ::2], m[3, ::2])
        total += combine(m[i], m[3], m[(i + 1) % 3], x)
    exchange(m[:2], m[2:])
    return m, t["u"], total


def two_rows_of_a_known_array(x, n):
    m = np.arange(12.0).reshape(4, 3)
    exchange(m[0], m[2])
    rotate(m[1], m[3], x, 2.0)
    exchange(b=m[0], a=m[1])
    return m


def pivoted(x, n):
    a = np.sin(np.arange(16.0).reshape(4, 4) ** 2 * x + n)
    for k in range(4):
        p = k
        for i in range(k + 1, 4):
            if abs(a[i, k]) > abs(a[p, k]):
                p = i
        if p != k:
            exchange(a[k], a[p])
        for i in range(k + 1, 4):
            add_row(a[i], a[k], -a[i, k] / a[k, k])
    return a


class Pair:
    def __init__(self, x):
        self.rows = np.arange(6.0).reshape(3, 2) * x

    def turn(self, i, j):
        rotate(self.rows[i], self.rows[j], 0.6, 0.8)


def rows_of_attributes(x, n):
    pair = Pair(x)
    for i in range(n):
        pair.turn(i % 3, (i + 1) % 3)
    rotate(pair.rows[0], pair.rows[1], x, 0.5)
    return pair.rows


def loops_over_rows(x, n):
    m, t, total, kept = np.sin(np.arange(12.0).reshape(3, 4) * x + n), np.ones((3, 4)) * x, 0.0, []
    for row in m:
        normalize(row)
    for row in m:
        row[0] += x
        row *= 2.0
        if row[0] > 1:
            bump(row, 1)
            continue
        total += row[1]
        if total > 5:
            break
    for k, row in enumerate(m):
        row[k] = x * k
        row -= m[0, 3]
        kept.append(row.copy())
    for one, other in zip(m, t, strict=True):
        add_row(one, other, x)
        exchange(one, other)
    for i in range(n):
        for row in t:
            row += i
            row.sort()
    if x > n - 2:
        for row in t:
            bump(row, n)
    for row, factor in zip(m, np.arange(3.0)):  # noqa: B905  (the factors are numbers)
        total += factor * row[0]
    for value in m[0]:
        total += value
    return m, t, total, kept


def rows_of_slices(x, n):
    m, k = np.arange(12.0).reshape(6, 2) * x, 2
    for row in m[1:]:
        row *= 2
    for row in m[-2::-2]:
        if x > 0:
            row[0] += row[1]
    for i in range(5):
        for row in m[i + 1:]:
            row -= m[i] * 0.1
    for row in m[k - 1:k + 2]:
        normalize(row)
    for row in m[:0]:
        row += 100.0
    for _ in range(n):
        for row in m[3:]:
            row += m[0]
    return m


def columns_and_several_sources(x, n):
    m, w, cube = np.sin(np.arange(12.0).reshape(4, 3) * x), np.arange(1.0, 5.0) * x, np.ones((2, 3, 2)) * x
    for column in m.T:
        if column[0] < n - 1.5:
            column /= np.sum(np.abs(column)) + 1.0
    for row, factor in zip(m, w):  # noqa: B905  (the factors are numbers)
        row *= factor
    for i, (row, factor) in enumerate(zip(m[1:], w)):  # noqa: B905
        row[0] = factor * i
    for k, row in enumerate(m[::-1], start=n):
        row += k * m[0]
    for j, column in enumerate(m.T[1:]):
        normalize(column)
        column[j] += x
    for one, other in zip(m.T, m.T[1:]):  # noqa: B905  (of unequal length)
        other -= one
    for plane in cube:
        for row in plane:
            if row[0] > x - 0.5:
                row += plane[0] * x
    return m, cube


def elements_of_changed_arrays(x, n):
    a, total, numbers = np.cos(np.arange(5.0) * x), 0.0, [x, 0.5, -x]
    for i, value in enumerate(a):
        if value > x - n:
            a[i] = -value
        a[(i + 1) % 5] += value * x
        total += value
    for value in a:
        a[0] += value
        value *= 2.0
        total += value
    for one, other in zip(a, a[1:]):  # noqa: B905, RUF007  (of unequal length)
        if one > other:
            a[0], a[2] = one, other + one
    for k, value in enumerate(a[::-1]):
        a[k] -= value * n
        if a[k] > 3.0:
            break
    for i, value in enumerate(numbers):
        if value > 0:
            numbers[i] = value * 2.0
    return a, total, value, k, numbers


def orthogonal_columns(x, n):
    q = np.cos(np.outer(np.arange(4.0), np.arange(1.0, 4.0)) * x + n)
    for j, column in enumerate(q.T):
        for other in q.T[:j]:
            column -= (other @ column) * other
        size = np.sqrt(column @ column)
        if size > 1e-8:
            column /= size
    return q


class Temperatures:
    def __init__(self, x):
        self.T = np.ones((3, 3)) * x
        self.w = np.arange(9.0).reshape(3, 3) * x

    def cool(self):
        for row in self.T:
            row -= 0.5
            if row[0] > 0:
                row *= 2.0
        for column in self.w.T:
            column[0] -= np.sum(column)
            if column[0] < -5.0:
                break


def attributes_of_that_name(x, n):
    temperatures = Temperatures(x)
    for _ in range(n):
        temperatures.cool()
    return temperatures.T, temperatures.w


def last_rows(x, n):
    m, t, u, v = np.arange(6.0).reshape(3, 2) * x, np.ones((3, 2)), np.ones((3, 2)), np.ones((3, 2)) * x
    w = np.cos(v)
    for row in m:
        row += 1.0
        if row[0] > 2:
            break
    for k, one in enumerate(t):
        one += k * x
    for first, second in zip(w, u, strict=True):
        second += first
    for last in v[:2]:
        last *= n
    return m, t, u, v, np.sum(row), k, one * 2, first, second + 1, last


def returns_from_a_loop_over_rows(m, x):
    for row in m:
        row += x
        if row[0] > 1:
            return row[1]
    return 0.0


def rows_of_parameters_and_attributes(x, n):
    net, m = Net(x), np.arange(12.0).reshape(3, 4)
    for row in net.w:
        normalize(row)
        net.w[0, 0] += 1.0
    return net.w, returns_from_a_loop_over_rows(m, x), m


def loops_over_others(x, n):
    tables, total = {"a": 1.0, "b": x}, 0.0
    for name in tables:  # noqa: PLC0206  (over keys)
        str(name)
        total += tables[name]
    for pair in ((1.0, x), (2.0, x)):
        sum(pair)
        total += pair[1]
    for value in np.arange(3.0) * x:
        abs(value)
        total += value
    return total


def nested_loops_over_rows(x, n):
    t = np.cos(np.arange(12.0).reshape(2, 2, 3) * x)
    for plane in t:
        for row in plane:
            for i, value in enumerate(row):
                if value > 0.2:
                    row[i] = value * x
                row[(i + 1) % 3] += value
            row -= plane[0, 0]
    for _ in range(n):
        for row in t[1]:
            for j in range(n):
                row[j % 3] += t[0, 1, 1] * x
                if row[0] > 2.0:
                    break
            row *= 0.5
    for plane in t:
        for column in plane.T[1:]:
            column -= plane[:, 0] * x
    return t


def rows_of_items(x, n):
    tables = {"a": np.ones((2, 2)) * x, "b": [np.ones((3, 2)) * n, np.arange(4.0).reshape(2, 2) * x]}
    for row in tables["a"]:
        row -= x * n
        if row[0] < 0.0:
            row[1] = n
    for row, other in zip(tables["b"][1], tables["b"][0][1:], strict=True):
        row += other
        other *= row
    return tables


def doubles_first(rows, x):
    total = 0.0
    for row in rows:
        row[0] = 2.0 * row[0]
        if row[0] > 2.0:
            row[1] = x
        row += [1.0, x]
        total = total + row[1] + len(row)
    return total


def rows_of_lists_and_arrays(x, n):
    lists, table = [[1.0, 2.0], [x, x]], np.ones((3, 2)) * x
    return doubles_first(lists, x), doubles_first(table, x), lists[0][0], lists[1][1], len(lists[1]), table


def empty_sequences(x, n):
    row, m = 3.0, np.ones((2, 2)) * x
    for value in []:
        value += 1
    for row in m[:0]:
        row += 1
    for other in np.ones((0, 2)) * x:
        other += n
    return row, m


def rows_with_else(x, n):
    m = np.arange(8.0).reshape(4, 2) * x
    for row in m:
        row *= 2
        if row[0] > n:
            break
    else:
        m[0] += 100
        for other in m[1:]:
            other[1] = -1
    total = 0.0
    for k in range(2):
        for i, part in enumerate(m[1:]):
            part -= m[0] * x
            if part[1] < -1:
                total += i
                continue
            if part[1] > 5:
                break
        else:
            total += 10
            m[0] = m[0] + k
    return m, total


def rows_and_elements(x, n):
    m, v = np.ones((3, 2)) * x, np.arange(3.0) * x
    for row, value in zip(m, v):  # noqa: B905  (both change)
        row[0] = value
        v[2] += 1.0
        row[1] = value + v[2]
    for i, (value, row) in enumerate(zip(v, m, strict=True)):
        if value > x:
            v[i] = row[0]
            row[1] = value
        row[:] = row[::-1]
        row[1:] = row[:-1]
    return m, v


def rows_by_another_function(x, n):
    m, total = np.arange(6.0).reshape(3, 2) * x, 0.0

    def first():
        return row[0]

    for row in m:
        total += first()
        print_nothing(row)
    return total


def print_nothing(*values):
    pass


def copies_do_not_change(x, n):
    m, chosen = np.ones((4, 3)) * x, np.array([0, 2])
    for i in range(n):
        bump(m[chosen], 0)
        bump(m[i].copy(), 0)
    return m


def an_exception_that_is_caught(x, n):
    m = np.arange(12.0).reshape(3, 4)
    try:
        fails(m[0], x)
    except ValueError:
        m[1, 0] = x
    return m


def fails(a, x):
    a[0] = x
    raise ValueError


def dead_views(x, n):
    """Views that names have, and that nobody reads after the condition: Householder's reflections."""
    m = np.arange(12.0).reshape(4, 3) * x + np.ones((4, 3))
    m[0, 1] = x
    for k in range(3):
        column = m[k:, k]
        v = column.copy()
        v[0] = v[0] + np.copysign(np.linalg.norm(column), column[0])
        size = np.sum(v * v)
        if size < 1e-14:
            continue
        m[k:, :] -= 2.0 / size * np.outer(v, v @ m[k:, :])
    last = m[n - 1]
    total = np.sum(last)
    while total > 1.0:
        m[0] *= 0.5
        total = np.sum(m[0])
    return m + 10.0


class Tableau:
    def __init__(self, rows):
        self.rows = rows


def dead_names_of_attributes(x, n):
    """An object has the array of a name that nobody reads after it."""
    rows = np.arange(6.0).reshape(3, 2) - 2.0 * x
    tableau = Tableau(rows)
    while np.min(tableau.rows[0]) < n:
        place = np.argmin(tableau.rows[0])
        tableau.rows[:, place] += 1.0
        for k in range(3):
            if tableau.rows[k, 0] < 0:
                tableau.rows[k] += tableau.rows[0] ** 2
    last = tableau.rows[-1]
    total = np.sum(last)
    if total > 2.0:
        tableau.rows[n % 3] -= 0.5 * total
    return tableau.rows


CASES = [dead_views, dead_names_of_attributes,
         rows_of_a_matrix, known_rows, slices, rows_in_containers, attributes, recursion, cube, with_results,
         arguments_by_keyword, indices_are_computed_once, nested_function, integers, early_returns, sorted_rows,
         orthogonalized, rows_beside_rows, eliminated, two_rows, two_rows_of_a_known_array, pivoted, rows_of_attributes,
         loops_over_rows, rows_of_slices, last_rows, rows_of_parameters_and_attributes, loops_over_others,
         columns_and_several_sources, orthogonal_columns, attributes_of_that_name, elements_of_changed_arrays,
         nested_loops_over_rows, rows_of_items, rows_of_lists_and_arrays, empty_sequences, rows_and_elements,
         rows_with_else,
         rows_by_another_function, copies_do_not_change, an_exception_that_is_caught]


@pytest.mark.slow
@pytest.mark.parametrize("function", CASES)
@pytest.mark.parametrize("args", [(1.5, 2), (-0.5, 3), (0.7, 0)])
def test_parts_change_as_in_numpy(function: Any, args: tuple[float, int]) -> None:
    assert_as_numpy(function, args)


@pytest.mark.slow
@pytest.mark.parametrize("function", [rows_of_a_matrix, slices, attributes, two_rows, pivoted, loops_over_rows,
                                      rows_of_slices, columns_and_several_sources, orthogonal_columns,
                                      elements_of_changed_arrays, nested_loops_over_rows, rows_and_elements,
                                      rows_with_else])
def test_gradients_and_batches(function: Any) -> None:
    assert_differentiable(function)


def test_the_code_of_loops_over_rows_grows_with_their_number(tmp_path: Path) -> None:
    sizes = []
    for depth in range(1, 6):
        lines = ["def f(" + "".join(f"m{k}, " for k in range(depth)) + "x):"]
        for k in range(depth):
            lines += [f"{'    ' * (k + 1)}for i{k}, v{k} in enumerate(m{k}):",
                      f"{'    ' * (k + 2)}m{k}[i{k}] = v{k} * x"]
        path = tmp_path / f"loops{depth}.py"
        path.write_text("\n".join([*lines, "    return m0"]) + "\n")
        sizes.append(_size(python_control_flow(runpy.run_path(str(path))["f"]).converted.__code__))
    steps = np.diff(sizes)
    assert max(steps) < 1.2 * min(steps)


def _size(code: CodeType) -> int:
    """Return the number of bytes of code, with that of functions in it."""
    return len(code.co_code) + sum(_size(each) for each in code.co_consts if isinstance(each, CodeType))


# --- parameters that get another array --------------------------------------------------------------------------------


def changes_and_doubles(a, v):
    a[0] = v
    a = a * 2
    a[1] = 7.0
    return a


def changes_in_blocks_and_begins_anew(a, v):
    for k in range(2):
        a[k] += v
    if v > 1:
        a[2] = v
    a: Any = np.zeros(3)
    for k in range(3):
        a[k] = v * k
    return a.sum()


def first(a, v):
    a[0] = v
    return a


def gets_the_result(a, v):
    a = first(a, v)
    if v > 1:
        v = v + 1
    a = a + v
    a[1] = 2.0
    return a


def exchanges(a, b, v):
    a[0] = v
    a, b = b, a
    return a[0] + b[0]


def begins_with_a_copy(a, v):
    a = a.copy()
    a[0] = v
    return a.sum()


def parameters_with_another_array(x, n):
    a, m, c = np.ones(3), np.ones((3, 3)) * x, np.zeros(3)
    b = changes_and_doubles(a, x)
    for i in range(n):
        b = changes_and_doubles(a, x * i)
        a[2] += 1.0
        x = x + changes_in_blocks_and_begins_anew(a, x) / 10
        x = x + gets_the_result(m[i], x)[1] / 10
        x = x + exchanges(a, c, x) / 10
        x = x + begins_with_a_copy(c, x) / 10
    return a, b, c, m, x


@pytest.mark.slow
@pytest.mark.parametrize("args", [(1.5, 2), (-0.5, 3), (0.7, 0)])
def test_a_caller_keeps_what_changed_before_a_parameter_gets_another_array(args: tuple[float, int]) -> None:
    assert_as_numpy(parameters_with_another_array, args)


# --- what is refused --------------------------------------------------------------------------------------------------


def keeps(a, kept, x):
    a[0] = x
    kept.append(a)


def a_kept_part(x, n):
    m, kept = np.ones((2, 3)) * x, []
    keeps(m[0], kept, x)
    m[0, 1] = 7.0  # here
    return m, kept[0]


def a_kept_part_that_changes(x, n):
    m, kept = np.ones((2, 3)) * x, []
    keeps(m[0], kept, x)
    kept[0][1] = 7.0  # here
    return m, kept[0]


def a_kept_part_of_a_known_array(x, n):
    m, kept = np.ones((2, 3)), []
    keeps(m[0], kept, 3.0)  # here
    m[0, 1] = 7.0
    return m * x, kept[0]


def a_returned_part(x, n):
    m = np.ones((2, 3)) * x
    row = first(m[0], x)
    row[1] = 7.0  # here
    return m, row


def read_by_another_name(x, n):
    m = np.ones((3, 4)) * x

    def change(a):
        a[0] = 5.0
        return m[0, 0] + 1  # here
    return change(m[0])


def add_first(a, b):
    a[0] += b[0]  # here


def one_row_twice(x, n):
    m = np.ones((3, 4)) * x
    add_first(m[0], m[-3])
    return m


def two_parts_that_may_overlap(x, n):
    a = np.ones(8) * x
    add_first(a[1:], a[:4])
    return a


def one_row_by_two_parameters(x, n):
    m = np.ones((3, 4)) * x
    exchange(m[0], m[-3])  # here
    return m


def a_row_and_its_column(x, n):
    m = np.ones((4, 4)) * x
    exchange(m[n], m[:, 1])  # here
    return m


def a_row_and_its_column_in_a_dict(x, n):
    tables = {"w": np.ones((4, 4)) * x}
    exchange(tables["w"][:, 2], tables["w"][0])  # here
    return tables


def slices_with_common_elements(x, n):
    a = np.ones(8) * x
    exchange(a[:4], a[3:7])  # here
    return a


def a_row_changes_after_its_loop(x, n):
    m = np.ones((3, 4)) * x
    for row in m:
        row[0] = x
    row[1] = x  # here
    return m


def fill_first(value, *arrays):
    arrays[0][1] = value  # here


def further_arguments(x, n):
    a = np.ones(3) * x
    fill_first(x, a)
    return a


def a_row_is_kept_as_a_default(x, n):
    m, firsts = np.ones((3, 2)) * x, []
    for row in m:
        row *= 2  # here
        firsts.append(lambda kept=row: kept[0])
    return m, [first() for first in firsts]


def an_array_changes_whose_row_is_used_after(x, n):
    m = np.ones((3, 4)) * x
    for row in m:
        row[0] = x
    m[2, 1] = x  # here
    return row


def one_array_by_two_rows(x, n):
    m = np.ones((3, 4)) * x
    for one, other in zip(m, m, strict=True):
        exchange(one, other)  # here
    return m


def exchange_and_return(a, b):
    exchange(a, b)
    return a, b


def a_returned_row_of_two(x, n):
    m = np.ones((2, 3)) * x
    row, _ = exchange_and_return(m[0], m[1])
    m[1, 1] = 7.0  # here
    return m, row


def an_array_and_its_row(x, n):
    m = np.ones((2, 3)) * x
    add_first_and_all(m[0], m)
    return m


def add_first_and_all(a, m):
    a[0] += 1.0  # here
    m += 1.0


def keeps_what_it_reads(a, b, kept):
    a[0] = b[0]
    kept.append(b)


def a_kept_part_that_was_read(x, n):
    m, kept = np.ones((2, 3)) * x, []
    keeps_what_it_reads(m[0], m[1], kept)
    m[1, 0] = 9.0  # here
    return m, kept


def a_kept_part_that_was_read_of_a_known_array(x, n):
    m, kept = np.ones((2, 3)), []
    keeps_what_it_reads(m[0], m[1], kept)  # here
    m[1, 0] = 9.0
    return m * x, kept


def a_part_with_a_name(x, n):
    m = np.ones((3, 4)) * x
    row = m[0]
    bump(m[0], 0)
    return m, row


def a_named_part_changes(x, n):
    m = np.ones((3, 4)) * x
    for i in range(n):
        row = m[i]
        row[0] = 5.0  # here
    return m


def chosen_by_an_expression(x, n):
    m = np.ones((3, 4)) * x
    found = taken_here(m[0]) if x > n else taken_here(m[1])
    return m, found


def taken_here(a):
    a[0] += 1.0  # here
    return a[1]


def condition_of_a_while(x, n):
    m, k = np.ones((3, 4)) * x, n
    while taken_here(m[0]) > k:
        k = k + 1
    return m, k


def may_get_another_array(a, v):
    a[0] = v  # here
    if v > 1:
        a = a + 1
    a[1] = v


def parameter_in_a_branch(x, n):
    a = np.ones(3)
    may_get_another_array(a, x)
    return a


_OTHERS = "which another name, a container or a view has too and would see change in NumPy. Write"
_CALLER = "which the caller, another name or a view has too and would see change in NumPy. Write"
_KEPT = ("a function changes a part of an array, and keeps it or another one, which in NumPy is a view of the array. "
         "Keep a copy")
_IN_COMMON = ("a function changes two parts of one array, which have elements in common, or may have them: in NumPy it "
              "would change both by each. Give it rows at different indices, or copies")
_NOT_BACK = ("which does not give it back: an expression, the condition of a `while`, or a call by another name. Call "
             "the function in a statement of its own, and use the result")


@pytest.mark.parametrize(("function", "at", "message"), [
    (a_kept_part, None, f"m[...] = v changes the array of `m`, {_OTHERS} m = m.copy() before"),
    (a_kept_part_that_changes, None, (
        f"kept[0][...] = v changes the array of `kept[0]`, {_OTHERS} kept[0] = kept[0].copy() before")),
    (a_kept_part_of_a_known_array, None, _KEPT),
    (a_kept_part_that_was_read, None, f"m[...] = v changes the array of `m`, {_OTHERS} m = m.copy() before"),
    (a_kept_part_that_was_read_of_a_known_array, None, _KEPT),
    (a_returned_part, None, f"row[...] = v changes the array of `row`, {_OTHERS} row = row.copy() before"),
    (read_by_another_name, None, (
        "an array is read by another name while a function that it was passed to changes it. Read it by the name of "
        "the parameter")),
    (one_row_twice, add_first, f"a[...] = v changes the array of `a`, {_CALLER} a = a.copy() before, and return a"),
    (two_parts_that_may_overlap, add_first, (
        f"a[...] = v changes the array of `a`, {_CALLER} a = a.copy() before, and return a")),
    (one_row_by_two_parameters, None, _IN_COMMON),
    (a_row_and_its_column, None, _IN_COMMON),
    (a_row_and_its_column_in_a_dict, None, _IN_COMMON),
    (slices_with_common_elements, None, _IN_COMMON),
    (one_array_by_two_rows, None, _IN_COMMON),
    (further_arguments, fill_first, (
        "arrays[0][...] = v changes an array in a tuple, which cannot get another array in its place. Give the array a "
        "name, or a parameter, of its own; or keep it in a list that the function makes")),
    (a_row_is_kept_as_a_default, None, f"m[...] = v changes the array of `m`, {_OTHERS} m = m.copy() before"),
    (an_array_changes_whose_row_is_used_after, None,
     f"m[...] = v changes the array of `m`, {_OTHERS} m = m.copy() before"),
    (a_row_changes_after_its_loop, None, (
        "row[...] = v changes the array of `row`, which is a view of another array, and NumPy would change both. Write "
        "x[i][j] = v in the place of row = x[i] and row[j] = v; or row = row.copy() before")),
    (a_returned_row_of_two, None, f"m[...] = v changes the array of `m`, {_OTHERS} m = m.copy() before"),
    (an_array_and_its_row, add_first_and_all, (
        f"a[...] = v changes the array of `a`, {_CALLER} a = a.copy() before, and return a")),
    (a_part_with_a_name, bump, f"a[...] = v changes the array of `a`, {_CALLER} a = a.copy() before, and return a"),
    (a_named_part_changes, None, (
        "row[...] = v changes the array of `row`, which is a view of another array, and NumPy would change both. Write "
        "x[i][j] = v in the place of row = x[i] and row[j] = v; or row = row.copy() before")),
    (chosen_by_an_expression, taken_here, (
        "a[...] = v changes an array of the caller inside the traced `if` at test_changed_parts.py:"
        f"{inspect.getsourcelines(chosen_by_an_expression)[1] + 2} (in chosen_by_an_expression), {_NOT_BACK}")),
    (condition_of_a_while, taken_here, (
        "a[...] = v changes an array of the caller inside the traced `while` at test_changed_parts.py:"
        f"{inspect.getsourcelines(condition_of_a_while)[1] + 2} (in condition_of_a_while), {_NOT_BACK}")),
    (parameter_in_a_branch, may_get_another_array, (
        f"a[...] = v changes the array of `a`, {_CALLER} a = a.copy() before, and return a")),
])
def test_parts_that_others_would_see_change_are_refused_by_line(function: Any, at: Any, message: str) -> None:
    assert_refused(function, at, message, "change" if function is read_by_another_name else None)


def test_rows_at_traced_indices_differ_when_the_program_runs() -> None:
    def added(x: Any, n: Any) -> Any:
        m = np.arange(12.0).reshape(3, 4) * x
        for i in range(n):
            add_row(m[i], m[2], x)
        return m
    converted = jit(python_control_flow(added))
    np.testing.assert_allclose(converted(1.5, 2), added(1.5, 2))
    with pytest.raises(CheckError) as failed:
        converted(1.5, 3)
    assert str(failed.value).startswith(
        "a function changes a row and reads another one of the same array, and here they are one row. Write "
        "x[k].copy() for the one that it reads\n  at test_changed_parts.py:")
    batched = jit(vmap(python_control_flow(added)))
    np.testing.assert_allclose(batched(np.array([1.5, 0.5]), np.array([2, 1])), [added(1.5, 2), added(0.5, 1)])


def test_two_rows_that_change_at_traced_indices_differ_when_the_program_runs() -> None:
    def turned(m: Any, i: Any, j: Any) -> Any:
        m = m.copy()
        rotate(m[i], m[j], 0.6, 0.8)
        return m

    def turned_if_they_differ(m: Any, i: Any, j: Any) -> Any:
        m = m.copy()
        if i != j:
            rotate(m[i], m[j], 0.6, 0.8)
        return m
    m = np.arange(12.0).reshape(4, 3)
    for i, j in ((0, 1), (3, 0), (-1, 2)):
        for function in (turned, turned_if_they_differ):
            np.testing.assert_allclose(jit(python_control_flow(function))(m, i, j), function(m, i, j))
    with pytest.raises(CheckError) as failed:
        jit(python_control_flow(turned))(m, -1, 3)
    assert str(failed.value).startswith(
        "a function changes two rows of one array, and here they are one row. Write `if i != j:` around the call\n"
        "  at test_changed_parts.py:")
    np.testing.assert_array_equal(jit(python_control_flow(turned_if_they_differ))(m, 1, 1), m)


def test_what_the_refusal_of_a_condition_says_works() -> None:
    def counted(x: Any, n: Any) -> Any:
        m, k = np.ones((3, 4)) * x, n
        found = taken_here(m[0])
        while found > k:
            k = k + 1
            found = taken_here(m[0])
        return m, k
    assert_as_numpy(counted, (3.5, 2))


def test_the_parts_that_only_a_read_function_gets_are_no_variables_of_the_loop() -> None:
    def total(x: Any, n: Any) -> Any:
        m, found = x * np.ones((3, 4)), 0.0
        for i in range(n):
            found = found + np.sum(m[i])
        return found
    program = fxgrad.make_program(python_control_flow(total))(1.5, 2)
    loop = next(each for each in program.equations if each.primitive.name == "for")
    assert [var.aval.shape for var in loop.outputs] == [(), ()]


def test_a_slice_of_a_row_without_elements_changes_nothing() -> None:
    def total(x: Any, n: int) -> Any:
        m = np.sin(np.arange(6.0).reshape(3, 2) * x)
        m[0][:n] = m[0][1]
        for row in m:
            row[:n] = row[1]
        return np.sum(m)
    step = 1e-6
    for n in (0, 1):
        expected = (total(0.7 + step, n) - total(0.7 - step, n)) / (2 * step)
        np.testing.assert_allclose(fxgrad.grad(python_control_flow(total))(0.7, n), expected, rtol=1e-7)


# --- views that are read for the last time where the array changes ----------------------------------------------------


def steps_by_rows(x, n=4):
    rows = np.zeros((n + 1, 2))
    rows[0] = x
    for k in range(n):
        now = rows[k]
        slope = -now
        rows[k + 1] = now + 0.1 * slope
    return rows


def steps_until(x, limit=0.5):
    rows = np.zeros((9, 2))
    rows[0] = x
    k = 0
    while k < 8 and rows[k, 0] > limit:
        now, last = rows[k], rows[k - 1]
        rows[k + 1] = now * 0.75 + 0.0 * last
        k += 1
    return rows


def second_name_and_row(x):
    rows = np.ones((3, 2)) * x
    other = rows
    rows[0] += other[1] * 2
    row = rows[0]
    rows[2] -= row + x
    return rows


@pytest.mark.parametrize("function", [steps_by_rows, steps_until, second_name_and_row])
def test_a_view_may_be_read_for_the_last_time_in_the_value_of_an_item(function):
    x = np.array([2.0, -1.0])
    np.testing.assert_allclose(jit(python_control_flow(function))(x), function(x), rtol=1e-15)


def test_a_view_that_is_read_again_is_another_holder():
    def function(x):
        rows = np.zeros((4, 2)) * x
        first = rows[0]
        for k in range(1, 4):
            rows[k - 1] = first + x
        return rows

    with pytest.raises(ControlFlowError, match=r"changes the array of `rows`, which another name"):
        jit(python_control_flow(function))(np.ones(2))
