"""Lists that a traced condition returns or chooses: the one list stays itself, and two become one with all places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, python_control_flow, vmap
from fxgrad.errors import ControlFlowError

X = np.array([1.5, -2.0, 3.25, 4.0, -1.0, 0.1])
OTHERS = [X, -X, X[::-1].copy(), np.abs(X), -np.abs(X)]
CASES = []


def case(function: Any) -> Any:
    CASES.append(function)
    return function


def until_large(x: Any) -> Any:
    out = []
    for v in x:
        if v > 3:
            return out
        if v > 0:
            out.append(v)
    return out


@case
def read_by_the_caller(x):
    out = until_large(x)
    return len(out), sum(out), out[-1] if out else -1.0


@case
def changed_by_the_caller(x):
    out = until_large(x)
    out.append(8.0)
    return len(out), out[-1]


@case
def in_a_tuple(x):
    def first(x):
        out, n = [x[0], x[1]], 0
        for v in x:
            n += 1
            if v > 3:
                out.append(v)
                return out, out[0], n
            out.append(2 * v)
        return out, 0.0, n

    out, begin, n = first(x)
    return len(out), sum(out), begin, n


@case
def of_an_object(x):
    class Items:
        def __init__(self):
            self.items = []

        def fill(self, x):
            for v in x:
                if v > 3:
                    return self.items
                if v > 0:
                    self.items.append(v)
            return self.items

    items = Items()
    found = items.fill(x)
    found.append(1.0)
    return len(found), sum(items.items)


@case
def of_a_closure(x):
    out = []

    def fill():
        for v in x:
            if v > 3:
                return out
            out.append(v)
        return out

    found = fill()
    out.append(1.0)
    return len(found), len(out)


@case
def with_another_holder(x):
    kept = []

    def fill():
        out = [0.5]
        kept.append(out)
        for v in x:
            if v > 3:
                return out
            out.append(v)
        return out

    found = fill()
    found.append(1.0)
    return len(kept[0]), sum(found)


@case
def shortened_in_a_while(x):
    stack = [1.0, 2.0, 3.0, 4.0]

    def shorten():
        i = 0
        while i < 6:
            if x[i] > 3:
                return stack
            if stack:
                stack.pop()
            i += 1
        return stack

    found = shorten()
    found.append(1.0)
    return len(stack), len(found)


@case
def of_known_length(x):
    last = [0.0, 0.0]
    for i, v in enumerate(x):
        if v > 3:
            return last
        last[i % 2] = v
    return last


@case
def dict_of_a_loop(x):
    total = {"sum": 0.0, "count": 0}

    def add():
        for v in x:
            if v > 3:
                return total
            total["sum"] += v
            total["count"] += 1
        return total

    found = add()
    found["sum"] += 1.0
    return total["sum"], found["count"]


@case
def object_of_a_loop(x):
    class Total:
        def __init__(self):
            self.value = 0.0

        def add(self, x):
            for v in x:
                if v > 3:
                    return self
                self.value += v
            return self

    total = Total()
    total.add(x).value += 1.0
    return total.value


@case
def named_on_the_side_that_goes_on(x):
    out = [1.0, 0.5]
    if x[0] > 0:
        same = out
    else:
        return 0.5
    same.append(x[1])
    return sum(out) + len(same)


@case
def sides_of_their_own(x):
    def chosen(x):
        if x[0] > 0:
            return []
        return [x[1], x[2]]

    found = chosen(x)
    found.append(1.0)
    return len(found), sum(found)


@case
def expression_of_two(x):
    few, more = [1.0, 2.0], [x[0], x[1], x[2]]
    found = few if x[0] > 0 else more
    return len(found), sum(found), found[-1], len(few), sum(more)


@case
def one_of_two_that_nobody_has(x):
    few = [1.0, 2.0]
    if x[0] > 0:
        found = few
    else:
        found = [x[1]]
    found.append(9.0)
    return len(found), sum(found)


@case
def changed_on_another_condition(x):
    if x[0] > 0:
        found = [x[1]]
    else:
        found = [x[1], x[2]]
    if x[3] > 0:
        found.append(5.0)
    if x[2] > 0:
        found.append(6.0)
    return len(found), sum(found)


@case
def begun_again(x):
    run = []
    for v in x:
        if v > 0:
            run = run + [v]  # noqa: RUF005
        else:
            run = []
        if len(run) > 2:
            run.append(1.0)
    return len(run), sum(run)


@case
def longest_run(x):
    best, run = [], []
    for v in x:
        if v > 0:
            run.append(v)
        else:
            if len(run) > len(best):
                best = list(run)
            run = []
    return len(best), sum(best)


@case
def change_places(x):
    one, other = [x[0]], [x[1], x[2]]
    if x[3] > 0:
        one, other = other, one
    return len(one), sum(other), sum(one)


@case
def one_of_three(x):
    if x[0] > 1:
        found = [x[1]]
    elif x[0] > 0:
        found = []
    else:
        found = [x[1], x[2], x[3]]
    return len(found), sum(found)


@case
def row_of_a_loop(x):
    def first(x):
        rows, i = [[1.0, 2.0], [3.0, x[0]]], 0
        while i < 5:
            if x[i] > 3:
                return rows[int(x[i + 1] > 0)]
            i += 1
        return rows[0]

    found = first(x)
    return found[0], found[1]


@case
def list_in_a_dict_of_a_loop(x):
    def first(x):
        lists, i = {"k": [1.0, x[0]]}, 0
        while i < 5:
            if x[i] > 3:
                return lists["k"]
            lists["k"][0] += x[i]
            i += 1
        return lists["k"]

    found = first(x)
    found.append(3.0)
    return found[0], found[1], len(found)


@case
def list_named_items(x):
    total, y = 0.0, abs(x[0]) * 5
    for i in range(2):
        while True:
            y = y / 2
            if y < i:
                items = [y, 2.0]
                break
            if y < 0.1:
                items = [1.0, y]
                break
        items.append(1.0)
        total += items[1] * items[2]
    return total


@pytest.mark.slow
@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_lists_are_those_of_python(function: Any) -> None:
    compiled = jit(python_control_flow(function))
    for x in OTHERS:
        for one, other in zip(fxgrad.tree.leaves(compiled(x)), fxgrad.tree.leaves(function(x)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def returned(x: Any) -> Any:
    out = []
    for v in x:
        if v > 3:
            return out
        out.append(v)
    return out


def test_a_list_of_traced_length_does_not_leave_the_compiled_function() -> None:
    with pytest.raises(ControlFlowError, match="returned returns a list of which a traced condition decides how long"):
        jit(python_control_flow(returned))(X)


def held_by_another_name(x):
    few = [1.0, 2.0]
    found = few if x[0] > 0 else [x[1]]
    found.append(5.0)
    return len(found), len(few)


def two_names_on_one_side(x):
    if x[0] > 0:
        one = other = []
    else:
        one, other = [x[1]], [x[1], x[2]]
    one.append(9.0)
    return len(one), len(other)


def held_in_the_block_that_changes_it(x):
    few, count = [1.0, 2.0], 0
    if x[0] > 0:
        found = few if x[1] > 0 else [x[1]]
        found.append(5.0)
        count = len(found)
    return count, len(few)


def carried_by_a_loop(x):
    few = other = [0.0, x[0]]
    n = int(abs(x[1]))
    for k in range(n):
        if few[0] > x[2]:
            other = [x[0], x[1]]
        else:
            few[1] = x[3] + k
    return other[1], few[1]


def row_carried_by_a_loop(x):
    rows = [[1.0, 2.0], [x[0], 4.0]]
    row, total = [0.0, 0.0], 0.0
    for i in range(int(abs(x[1]))):
        total = total + row[0]
        row = rows[i % 2]
        rows[0][0] = rows[1][0] + i
    return total


@pytest.mark.parametrize("function", [
    held_by_another_name, two_names_on_one_side, held_in_the_block_that_changes_it, carried_by_a_loop,
    row_carried_by_a_loop], ids=lambda function: function.__name__)
def test_a_list_that_may_be_one_of_two_does_not_change_while_the_other_is_read(function: Any) -> None:
    with pytest.raises(ControlFlowError, match="a list changes that is one of two, chosen by the traced condition at"):
        jit(python_control_flow(function))(X)


def smooth(x: Any) -> Any:
    kept = returned(np.sin(x) * 4)
    total = 0.1 * x[0]
    for v in kept:
        total = total * 0.5 + v * v
    return total + kept[-1] if kept else total


@pytest.mark.slow
def test_derivatives_batches_and_float32() -> None:
    x, step = np.array([0.4, -0.3, 0.1, 1.2, 0.2]), 1e-6
    expected = [(smooth(x + step * unit) - smooth(x - step * unit)) / (2 * step) for unit in np.eye(5)]
    converted = python_control_flow(smooth)
    np.testing.assert_allclose(jit(grad(converted))(x), expected, rtol=1e-7, atol=1e-9)
    batch = np.stack([x, np.abs(x) + 1.0, -x])
    np.testing.assert_allclose(vmap(converted)(batch), [smooth(row) for row in batch], rtol=1e-12)
    np.testing.assert_allclose(jit(vmap(converted))(batch), [smooth(row) for row in batch], rtol=1e-12)
    narrow = x.astype(np.float32)
    found = jit(converted)(narrow)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, smooth(narrow), rtol=2e-6)
