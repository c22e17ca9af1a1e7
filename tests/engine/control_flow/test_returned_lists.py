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
