"""Variables that are None until a traced condition gives them a value."""

from __future__ import annotations

import inspect
import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from fxgrad import jit, make_program, python_control_flow, vmap
from fxgrad.errors import CheckError, ControlFlowError
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


def bisected(f, a, b):
    if f(a) * f(b) > 0:
        return None
    for _ in range(60):
        m = 0.5 * (a + b)
        if f(a) * f(m) <= 0:
            b = m
        else:
            a = m
        if abs(b - a) < 1e-9:
            return m
    return a


def result_of_a_helper(x, n):
    root = bisected(lambda z: z * z - x, 0.0, 1.0)
    if root is None:
        root = 3 * x
    other = through_another(x + 0.3)
    return root, 1.0 if other is None else other, 0.0 if bisected(lambda z: z + x, 0.0, 1.0) is not None else 1.0


def through_another(x):
    return bisected(lambda z: z * z - x, 0.0, 1.0)


def given_by_a_function(x, n):
    kept = nothing()
    if x > 0:
        kept = x
    return 0.0 if kept is None else kept


def nothing():
    return None


class Found(NamedTuple):
    value: Any
    certain: Any


def sine(x):
    return (None, 0.0) if x > 1 else (np.sin(x), x)


def cosine(x):
    if x > 1:
        return {"value": None, "count": 0}
    return {"value": np.cos(x), "count": 2}


def square(x):
    if x > 1:
        return Found(None, False)
    return Found(x * x, True)


def first_above(xs, bound):
    for i in range(len(xs)):
        if xs[i] > bound:
            return i, xs[i]
    return None, None


def parts_of_results(x, n):
    value, error = sine(x)
    if value is None:
        value = error - x
    of_dict, of_tuple = cosine(x), square(x)
    total = -1.0 if of_dict["value"] is None else of_dict["value"] + of_dict["count"]
    if of_tuple.certain:
        total = total + 2 * of_tuple.value - of_tuple.value ** 2
    place, first = first_above(np.sin(np.arange(6.0) * x), 0.3)
    return value, total, -1.0 if place is None else first * place


class Least:
    def __init__(self):
        self.best, self.count = None, 0

    def update(self, value):
        if self.best is None or value < self.best:
            self.best = value
            self.count += 1


def attributes(x, n):
    least = Least()
    for v in np.sin(np.arange(5.0) * x):
        if v > -0.5:
            least.update(v)
    last, k = Least(), 0
    while k < 3 * x:
        if np.sin(k) < 0.5:
            last.update(np.cos(k * x))
        k += 1
    return -7.0 if least.best is None else least.best * least.count, 0.5 if last.best is None else last.best


class Means:
    def __init__(self):
        self.mean, self.other, self.counts = None, None, [None, 0.0]

    def add(self, value):
        self.mean = value if self.mean is None else 0.5 * (self.mean + value)
        if value > 0.3:
            self.counts[0] = value
            self.counts[1] += 1


def attributes_beside_a_list(x, n):
    means, total = Means(), 0.0
    for v in np.cos(np.arange(6.0) * x):
        total += 1.0 if means.mean is None else means.mean
        if v < -0.9:
            continue
        means.add(v)
        if v > 1.5:
            break
    return total, means.counts[1], 0.0 if means.counts[0] is None else means.counts[0]


def list_of_none(x, n):
    values, xs = [None] * 3, np.sin(np.arange(3.0) + x)
    for k in range(3):
        if xs[k] > 0:
            values[k] = xs[k]
    total = 0.0
    for each in values:
        if each is None:
            total -= 1
        else:
            total += each
    return total


def difference(v, last=None):
    if last is None:
        return v
    return v - last


class Weighted:
    def __init__(self, weight):
        self.weight = weight

    def of(self, v, last):
        return v * self.weight if last is None else last * v


def through_a_closure(v, last):
    def inner(w):
        return w if last is None else w * last
    return inner(v) + difference(v, last)


def put(a, i, v):
    a[i] = 0.0 if v is None else v


def arguments(x, n):
    last, total, weighted, table = None, 0.0, Weighted(2.0), np.zeros(6)
    choose = lambda v, w: v if w is None else w
    for i, v in enumerate(np.sin(np.arange(6.0) * x)):
        total += difference(v, last) + difference(v, last=last) + weighted.of(v, last) + through_a_closure(v, last)
        total += choose(v, last)
        put(table, i, last)
        if v > 0.4:
            last = v
        elif last is not None and v < -0.5:
            last = None
    return total, table, [difference(v, last) for v in (x, 2 * x)]


def stored_in_arrays(x, n):
    found, table, rows = sine(x / 4), np.zeros(3), {"a": np.zeros(2, np.float32)}
    table[0] = found[0]
    table += found[0]
    rows["a"][1] = found[0]
    for k in range(3):
        if x > k - 1:
            table[k] = found[0]
            table[:k] -= 2 * found[0]
    return table, rows["a"]


def items(x, n):
    state, ends = {"best": None, "at": None}, [None, None]
    previous, total = (None, 0.0), 0.0
    for i in range(4):
        v = np.cos(i * x)
        if state["best"] is None or v < state["best"]:
            state["best"], state["at"] = v, i
        if v > 0:
            ends[0] = v
            if previous[0] is not None:
                total += previous[0] * v
            previous = (v, previous[1] + 1)
        elif ends[1] is None:
            ends[1] = v
            previous = (None, previous[1])
    first, last = ends
    if first is None:
        first = 10.0
    if last is None:
        last = 20.0
    return state["best"], state["at"], first + last, total + previous[1]


CASES = [result_of_a_helper, given_by_a_function, parts_of_results, attributes,
         attributes_beside_a_list, list_of_none, arguments, stored_in_arrays, items, least, least_of_some,
         found_or_not, last_if_any, optional_of_optional, pairs, arrays, chosen, prev_rule, default, truths,
         returned_early, resets]


@pytest.mark.slow
@pytest.mark.parametrize("function", CASES)
@pytest.mark.parametrize("args", [(1.5, 2), (-0.5, 3), (0.7, 1)])
def test_names_are_none_until_they_have_a_value(function: Any, args: tuple[float, int]) -> None:
    assert_as_numpy(function, args)


@pytest.mark.slow
@pytest.mark.parametrize("function", [least, least_of_some, found_or_not, pairs, chosen, prev_rule,
                                      parts_of_results, attributes, items, attributes_beside_a_list,
                                      arguments])
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


def test_what_a_helper_gives_has_no_check_after_it_got_a_default() -> None:
    def with_default(x):
        root = bisected(lambda z: z * z - x, 0.0, 1.0)
        if root is None:
            root = x
        return root * 2

    assert "check(" not in str(make_program(python_control_flow(with_default))(0.3))


def asks_truth(x, n):
    found = sine(x)
    return 1.0 if found[0] else 2.0  # here


def asks_type(x, n):
    found = sine(x)
    return 1.0 if isinstance(found[0], float) else 2.0  # here


def writes_text(x, n):
    found = sine(x)
    return len(f"{found[0]}") * x  # here


@pytest.mark.parametrize("function", [asks_truth, asks_type, writes_text])
def test_more_than_the_value_of_what_may_be_none_is_refused(function: Any) -> None:
    assert_refused(function, None, "a traced condition chose whether this value is None, and its truth, text or type "
                   "is asked. Write `x is None` or `x is not None`")


def test_operators_use_the_value_with_a_check() -> None:
    def doubled(x):
        return (2 * sine(x)[0] - 0.5) ** 2 + np.maximum(sine(x)[0], 0.1)

    np.testing.assert_allclose(jit(python_control_flow(doubled))(0.3), doubled(0.3), rtol=1e-12)
    with pytest.raises(CheckError) as failed:
        vmap(python_control_flow(doubled))(np.array([0.3, 2.0]))
    line = inspect.getsourcelines(doubled)[1] + 1
    assert str(failed.value) == (
        "a value is None where one is needed. Ask `if x is None` before\n"
        f"  at test_optional_values.py:{line} (in doubled)\n  in entry 1 of the batch")


def test_none_as_a_result_fails_a_check() -> None:
    def positive(x):
        y = None
        if x > 0:
            y = x
        return y

    assert float(jit(python_control_flow(positive))(2.0)) == 2.0
    with pytest.raises(CheckError, match=r"positive returned None to code that is not converted, which needs a value"):
        vmap(python_control_flow(positive))(np.array([2.0, -2.0]))


def of_a_list(x, n):
    kept = None
    if x > 0:  # here
        kept = [x, n]
    return 0.0 if kept is None else kept[0]


def read_by_a_function(x, n):
    kept = None
    if x > 0:  # here
        kept = x

    def value():
        return 0.0 if kept is None else kept
    return value()


@pytest.mark.parametrize(("function", "shown"), [
    (of_a_list, "[f64*[], i64*[]]"), (read_by_a_function, "f64*[]")])
def test_other_names_that_may_be_none_are_refused(function: Any, shown: str) -> None:
    assert_refused(function, None, f"`kept` is {shown} if the condition of this `if` is true, and None otherwise. In "
                   "the place of None, give values of the same type, and beside them a flag: found = True on one side, "
                   "and False on the other")


# --- arrays that change in place, and may be None --------------------------------------------------------------------


def filled_if_there(x: Any, n: int) -> Any:
    rows = None
    if n > 0:
        rows = np.zeros(3)
    if rows is not None:
        rows[0] = x
        rows += x
    return np.ones(3) if rows is None else rows


def made_where_missing(x: Any, n: int) -> Any:
    if n > 1:
        rows = np.zeros(3)
    else:
        rows = None
    if rows is None:
        rows = np.ones(3)
    rows[n] += x
    rows.sort()
    return rows


def made_in_a_loop(x: Any, n: int) -> Any:
    rows = None
    while n > 0:
        if rows is None:
            rows = np.zeros(4)
        rows[n] += x
        n = n - 1
    return np.ones(4) if rows is None else rows


def with_another_name(x: Any, n: int) -> Any:
    rows = None
    if n > 0:
        rows = np.zeros(3)
    other = rows
    if rows is not None:
        rows[0] = x
    return np.ones(3) if other is None else other


def of_an_outer_array(x: Any, n: int) -> Any:
    base, rows = np.zeros(3), None
    if n > 0:
        rows = base
    if rows is not None:
        rows[0] = x
    return base


def with_a_view(x: Any, n: int) -> Any:
    rows = None
    if n > 0:
        rows = np.zeros(3)
    view = None if rows is None else rows[1:]
    if rows is not None:
        rows[1] = x
    return np.ones(2) if view is None else view


@pytest.mark.parametrize("function", [filled_if_there, made_where_missing, made_in_a_loop])
def test_arrays_that_may_be_none_change_in_place(function: Any) -> None:
    converted = jit(python_control_flow(function))
    for n in (0, 1, 2):
        np.testing.assert_array_equal(converted(2.0, n), function(2.0, n))


@pytest.mark.parametrize("function", [with_another_name, of_an_outer_array, with_a_view])
def test_changes_of_arrays_that_may_be_none_and_are_others_are_refused(function: Any) -> None:
    with pytest.raises(ControlFlowError) as caught:
        jit(python_control_flow(function))(2.0, 1)
    assert str(caught.value).split("\n")[0] == (
        "rows[...] = v changes the array of `rows`, which another name, a container or a view has too and would see "
        "change in NumPy. Write rows = rows.copy() before")


@pytest.mark.parametrize("function", [lambda x, y: x if y is None is x else -x,
                                      lambda x, y: x if x + 1.0 in [x, 1.0 + x] is not y else -x])  # noqa: F632
def test_chains_that_begin_with_is_or_in_have_a_rest(function: Any) -> None:
    for y in (None, 1.0):
        assert jit(python_control_flow(lambda x, y=y: function(x, y)))(2.0) == function(2.0, y)


def sector(x):
    if x > 2:
        return 1.5 * x
    if x > 0:
        return -x
    return None


def as_numbers(x):
    found = sector(x)
    return float(found), int(sector(x)), round(sector(x), 1), complex(sector(x)), math.cos(found), greater(found, 0.5)


def greater(x, y):
    return max(x, y)


def test_types_of_numbers_and_functions_of_math_take_what_may_be_none():
    compiled = jit(python_control_flow(as_numbers))
    for x in (0.5, 3.0):
        np.testing.assert_allclose(compiled(x), as_numbers(x), rtol=1e-15)
    with pytest.raises(TypeError, match="not 'NoneType'"):
        compiled(-1.0)
