"""Variables that are None until a traced condition gives them a value."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from fxgrad import jit, python_control_flow, vmap
from fxgrad.errors import CheckError
from tests.support.converted import assert_as_numpy, assert_differentiable, assert_refused


def least(x, n):
    best = None
    for v in np.sin(np.arange(5.0) * x):
        if best is None or v < best:
            best = v
    return best


def least_of_some(x, n):
    best, place = None, None
    xs = np.sin(np.arange(6.0) * x + 1.0)
    for i in range(n + 1):
        if best is None or xs[i] < best:
            best, place = xs[i], i
    return best, place


def found_or_not(x, n):
    found = None
    for v in np.sin(np.arange(5.0) * x):
        if v > 0.4:
            found = v
            break
    return -1.0 if found is None else found * 2


def last_if_any(x, n):
    last = None
    count = 0
    while x > 1:
        last, x = x, x / 2
    if last is not None:
        count += 1
        x = last * 2
    y = last if last is not None else 7.0
    if last is None:
        return x, y, 0
    return x + last, y, count


def optional_of_optional(x, n):
    a = None
    b = None
    for i in range(n + 2):
        if i * x > 1.0:
            b = a
            a = x * i
    if a is None:
        r = 0.0
    elif b is None:
        r = a
    else:
        r = a + b
    return r


def pairs(x, n):
    best = None
    t = np.cos(np.outer(np.arange(3.0), np.arange(4.0)) * x)
    for i in range(3):
        for j in range(4):
            if t[i, j] < 0.5:
                value = t[i, j]
                if best is None or value > best[0]:
                    best = (value, i, j)
    if best is not None:
        v, i, j = best
        return v * (i + 1) + j
    return -1.0


def arrays(x, n):
    best, cost = None, np.inf
    for k in range(n + 1):
        p = np.arange(3.0) * x + k
        c = abs(np.sum(p) - 5.0)
        if c < cost:
            best, cost = p, c
    return best, cost


def chosen(x, n):
    a = x if x > 0 else None
    b = None if x > 1 else 2 * x
    s = 0.0
    if a is not None and a > 0.5:
        s += a
    if not (b is None):  # noqa: E714
        s += b
    return s


def prev_rule(x, n):
    prev, total, swaps = None, 0.0, 0
    for v in np.sin(np.arange(6.0) * x):
        if v < -0.2:
            prev = None
            continue
        if prev is not None:
            total += (v - prev) ** 2
            if v < prev:
                swaps += 1
        prev = v
    return total, swaps


def default(x, n):
    return helper(x, n) + helper(x, n, 2.0) + helper(x, n, start=None)


def helper(x, n, start=None):
    if start is None:
        start = x
    for i in range(n):
        start = start * 0.5 + i
    return start


def truths(x, n):
    first, table = None, None
    for k in range(n + 2):
        if not first and k * x > 0.5:
            first = k * x
    if first:
        x += first
    while first and first > 0.1:
        first = first / 2 if first > 0.2 else None
    return x, 1.0 if first else 2.0, table is None


def returned_early(x, n):
    out = None
    for k in range(n):
        if out is None:
            out = np.zeros(3) + x
        if x + k > 2.0:
            return out
        out = out + 1.0
    if out is None:
        out = np.ones(3)
    out = out.copy()
    out[0] = x
    if x > 1:
        return out
    out[1] = 2.0
    return out


def resets(x, n):
    start, longest = None, 0
    k = 0
    while k < n * 3:
        if np.sin(k * x) > 0:
            if start is None:
                start = k
            longest = max(longest, k - start + 1)
        else:
            start = None
        k += 1
    return longest


CASES = [least, least_of_some, found_or_not, last_if_any, optional_of_optional, pairs, arrays, chosen, prev_rule,
         default, truths, returned_early, resets]


@pytest.mark.slow
@pytest.mark.parametrize("function", CASES)
@pytest.mark.parametrize("args", [(1.5, 2), (-0.5, 3), (0.7, 1)])
def test_names_are_none_until_they_have_a_value(function: Any, args: tuple[float, int]) -> None:
    assert_as_numpy(function, args)


@pytest.mark.slow
@pytest.mark.parametrize("function", [least, least_of_some, found_or_not, pairs, chosen, prev_rule])
def test_gradients_and_batches(function: Any) -> None:
    assert_differentiable(function)


def unasked(x, n):
    found = None
    for v in np.arange(3.0):
        if v > x:
            found = v
            break
    return found * n


def test_a_value_that_is_none_where_it_is_used_fails_a_check() -> None:
    compiled = jit(python_control_flow(unasked))
    assert float(compiled(0.5, 2)) == 2.0
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \*: 'NoneType' and 'int'"):
        compiled(5.0, 2)
    line = inspect.getsourcelines(unasked)[1] + 6
    with pytest.raises(CheckError) as failed:
        vmap(python_control_flow(unasked), in_axes=(0, None))(np.array([0.5, 5.0]), 2)
    assert str(failed.value) == (
        "`found` is None where a value is needed. Ask `if found is None` before\n"
        f"  at test_optional_values.py:{line} (in unasked)\n  in entry 1 of the batch")


def test_none_as_a_result_fails_a_check() -> None:
    def positive(x):
        y = None
        if x > 0:
            y = x
        return y

    assert float(jit(python_control_flow(positive))(2.0)) == 2.0
    with pytest.raises(CheckError, match=r"`y` is None where a value is needed. Ask `if y is None` before"):
        vmap(python_control_flow(positive))(np.array([2.0, -2.0]))


def of_a_list(x, n):
    kept = None
    if x > 0:  # here
        kept = [x, n]
    return 0.0 if kept is None else kept[0]


def given_by_a_function(x, n):
    kept = nothing()
    if x > 0:  # here
        kept = x
    return 0.0 if kept is None else kept


def nothing():
    return None


def read_by_a_function(x, n):
    kept = None
    if x > 0:  # here
        kept = x

    def value():
        return 0.0 if kept is None else kept
    return value()


@pytest.mark.parametrize(("function", "shown"), [
    (of_a_list, "[f64*[], i64*[]]"), (given_by_a_function, "f64*[]"), (read_by_a_function, "f64*[]")])
def test_other_names_that_may_be_none_are_refused(function: Any, shown: str) -> None:
    assert_refused(function, None, f"`kept` is {shown} if the condition of this `if` is true, and None otherwise. In "
                   "the place of None, give values of the same type, and beside them a flag: found = True on one side, "
                   "and False on the other")
