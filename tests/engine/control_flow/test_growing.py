"""Lists of which a traced condition decides how long they are: grown, shortened and read in converted functions."""

# ruff: noqa: B905, C416, C419, PERF401, SIM102  (the functions are written as users write them)

from __future__ import annotations

import heapq
import itertools
import re
from collections import deque
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, python_control_flow, vmap
from fxgrad.errors import CheckError, ControlFlowError

X = np.array([1.5, -2.0, 3.25, 4.0, -1.0, 0.1])
OTHERS = [X, -X, X[::-1].copy(), np.abs(X)]
CASES = []


def case(function: Any) -> Any:
    CASES.append(function)
    return function


def positives(x: Any) -> Any:
    out = []
    for v in x:
        if v > 0:
            out.append(v)
    return out


@case
def folded(x):
    out = []
    for v in x:
        if v > 0:
            out.append(v)
    s = 0.0
    for v in out:
        s = s * 0.5 + v
    return s


@case
def counted(x):
    out = positives(x)
    return len(out)


@case
def asked(x):
    out = []
    for v in x:
        if v > 10:
            out.append(v)
    if out:
        return 1.0
    return 0.0


@case
def asked_not(x):
    out = []
    for v in x:
        if v > 10:
            out.append(v)
    if not out:
        return 1.0
    return 0.0


@case
def selected(x):
    out = positives(x)
    return out[0] + 10 * out[-1] + 100 * out[1]


@case
def sliced(x):
    out = positives(x)
    return np.sum(out[1:])


@case
def extremes(x):
    out = [0.1]
    for v in x:
        if v > 0:
            out.append(v)
    return max(out) - min(out)


@case
def in_order(x):
    out = positives(x)
    out2 = sorted(out)
    return out2[0]


@case
def numbered(x):
    out = positives(x)
    s = 0.0
    for i, v in enumerate(out):
        s += i * v
    return s


@case
def of_comprehension(x):
    out = positives(x)
    return sum(v * v for v in out)


@case
def any_and_all(x):
    out = []
    for v in x:
        if v > 0:
            out.append(v > 3)
    return any(out), all(out)


@case
def containing(x):
    out = positives(x)
    return 3.25 in out


@case
def runs(x):
    runs = []
    cur = 0
    for v in x:
        if v > 0:
            cur += 1
        else:
            if cur > 0:
                runs.append(cur)
            cur = 0
    if cur > 0:
        runs.append(cur)
    return max(runs), len(runs)


@case
def on_both_sides_inside(x):
    out = []
    for v in x:
        if v > 0:
            if v > 3:
                out.append(v)
            else:
                out.append(-v)
    return np.array(out).sum()


@case
def in_two_conditions(x):
    out = []
    for v in x:
        if v > 0:
            if v > 3:
                out.append(v)
    return np.sum(out)


@case
def stacked(x):
    st = []
    for v in x:
        if v > 0:
            st.append(v)
        elif st:
            st.pop()
    return sum(st)


@case
def monotonic_stack(x):
    st = []
    for v in x:
        while st and st[-1] < v:
            st.pop()
        st.append(v)
    return len(st)


@case
def taken_from_the_end(x):
    st = [1.0, 2.0, 3.0]
    s = 0.0
    for v in x:
        if v > 0 and st:
            s += st.pop() * v
    return s


@case
def two_lists(x):
    a = []
    b = []
    for v in x:
        if v > 0:
            a.append(v)
        else:
            b.append(v)
    return np.mean(a) - np.mean(b)


@case
def extended(x):
    a = []
    b = []
    for v in x:
        if v > 0:
            a.append(v)
        else:
            b.append(v)
    a.extend(b)
    return np.array(a) @ np.arange(6.0)


@case
def added(x):
    a = []
    b = []
    for v in x:
        if v > 0:
            a.append(v)
        else:
            b.append(v)
    c = a + b
    return c[0] + c[-1]


@case
def tuples(x):
    ev = []
    for i, v in enumerate(x):
        if v > 0:
            ev.append((i, v))
    s = 0.0
    for i, v in ev:
        s += i * v
    return s


@case
def number_of_tuples(x):
    ev = []
    for i, v in enumerate(x):
        if v > 0:
            ev.append((i, v))
    return len(ev)


@case
def returned_by_a_helper(x):
    def keep(xs):
        r = []
        for v in xs:
            if v > 0:
                r.append(v)
        return r

    k = keep(x)
    return len(k) + sum(k)


@case
def attribute(x):
    class A:
        def __init__(self):
            self.items = []

        def add(self, v):
            if v > 0:
                self.items.append(v)

    a = A()
    for v in x:
        a.add(v)
    return np.sum(a.items)


@case
def rows(x):
    ev = []
    for v in x:
        if v > 0:
            ev.append(np.array([v, v * v]))
    return np.array(ev).sum(axis=0)


@case
def stacked_rows(x):
    ev = []
    for v in x:
        if v > 0:
            ev.append(np.array([v, v * v]))
    return np.vstack(ev).sum()


@case
def places(x):
    ev = []
    for i in range(len(x)):
        if x[i] > 0:
            ev.append(i)
    return x[ev].sum()


@case
def places_in_a_loop(x):
    ev = []
    for i in range(len(x)):
        if x[i] > 0:
            ev.append(i)
    y = np.zeros(6)
    for i in ev:
        y[i] += 1.0
    return y


@case
def zipped(x):
    a = []
    b = []
    for v in x:
        if v > 0:
            a.append(v)
            b.append(v * v)
    s = 0.0
    for p, q in zip(a, b):
        s += p * q
    return s


@case
def two_lists_of_one_length(x):
    a = []
    b = []
    for v in x:
        if v > 0:
            a.append(v)
            b.append(v * v)
    return np.dot(a, b)


@case
def inserted_before(x):
    a = []
    for v in x:
        if v > 0:
            a.insert(0, v)
    return a[0]


@case
def turned(x):
    a = []
    for v in x:
        if v > 0:
            a.append(v)
    a.reverse()
    return a[0]


@case
def neighbours(x):
    a = positives(x)
    s = 0.0
    for i in range(len(a) - 1):
        s += a[i + 1] - a[i]
    return s


@case
def differences(x):
    a = positives(x)
    return np.diff(a).sum()


@case
def until_a_break(x):
    a = []
    for v in x:
        if v > 3:
            break
        a.append(v)
    return len(a), sum(a)


@case
def continued(x):
    a = []
    for v in x:
        if v < 0:
            continue
        a.append(v)
    return np.median(a)


@case
def last_or_default(x):
    a = positives(x)
    return a[-1] if a else 0.0


@case
def mean_or_default(x):
    a = []
    for v in x:
        if v > 100:
            a.append(v)
    return np.mean(a) if len(a) > 0 else 0.0


@case
def primes(n):
    ps = []
    for k in range(2, 12):
        ok = True
        for p in ps:
            if k % p == 0:
                ok = False
        if ok:
            ps.append(k)
    return ps[-1] + n[0]


@case
def heaped(x):
    heap = [2.0]
    for v in x:
        if v > 0:
            heap.append(v)
    again = [3.0, 4.0]
    if x[0] > 0:
        heapq.heappush(again, 1.0)
    return len(heap), again[0], len(again)


@case
def by_the_class(x):
    numbers = [1.0, 3.0]
    if x[0] > 0:
        list.append(numbers, 2.0)
    if x[1] > 0:
        list.append(numbers, 4.0)
    return len(numbers), list.pop(numbers), sum(numbers)


@case
def of_mapped_methods(x):
    found = []
    if x[0] > 0:
        list(map(found.append, [1.0, 2.0]))
    return len(found)


@case
def shortened_in_a_loop(x):
    out, n = [x[0], x[1], x[2]], 0
    while out and out[-1] < 3.0:
        n = n + 1
        out.pop()
    return n, len(out), sum(out)


@case
def two_lists_change_places(x):
    a, b = [], [0.5]
    for v in x:
        if v > 0:
            a.append(v)
            if len(a) > 1 or not b:
                b.append(a.pop())
    a, b = b, a
    return sum(a), len(b), sum(v * v for v in a if v > 1)


@case
def comprehension(x):
    out = [v for v in x if v > 0]
    return len(out), sum(out), out[-1], max(out)


@case
def places_of_comprehension(x):
    out = [i for i, v in enumerate(x) if v > 0]
    s = 0.0
    for i in out:
        s += x[i] * i
    return s, len(out)


@case
def comprehension_of_comprehension(x):
    out = [v for v in x if v > 0]
    big = [v * v for v in out if v > 2]
    return len(big), np.sum(big), np.mean(out)


@case
def comprehension_of_tuples(x):
    out = [(i, v) for i, v in enumerate(x) if v > 0 and i > 0]
    s = 0.0
    for i, v in out:
        s += i * v
    return s


@case
def comprehension_that_grows(x):
    out = [v for v in x if v > 0]
    out.append(7.0)
    return out[-1], len(out)


@case
def functions_of_comprehensions(x):
    n = np.log([v for v in x if v > 0]).sum()
    m = len([v for v in x if v > 0])
    return n, m


@case
def known_filters(x):
    return [v for v in (1.0, 2.0, 3.0) if v > 1], [k for k in range(4) if k % 2]


@case
def truth_of_comprehension(x):
    if [v for v in x if v > 10]:
        return 1.0
    return 2.0


@case
def any_of_comprehension(x):
    if any([v > 3 for v in x if v > 0]):
        return 1.0
    return 2.0


@case
def sum_of_comprehensions(x):
    a = [v for v in x if v > 0]
    b = [v for v in x if not v > 0]
    return sum(a + b), len(a + b), (a + b)[0]


@case
def loop_over_comprehension(x):
    for v in [v for v in x if v > 0]:
        if v > 3:
            return v
    return 0.0


@case
def sorted_comprehension(x):
    return sorted([v for v in x if v > 0])[0], min([v for v in x if v > 0]), np.array([v for v in x if v > 0]).max()


@case
def norm_of_comprehension(x):
    return np.linalg.norm([v for v in x if v > 0]), np.cumsum([v for v in x if v > 0])[-1]


@case
def mapped(x):
    out = [v for v in x if v > 0]
    ys = [v * v for v in out]
    return np.sum(ys), np.sum([np.sin(v) for v in out]), len(ys), sum([v for v in ys])


@case
def mapped_tuples(x):
    pairs = [(i, v) for i, v in enumerate(x) if v > 0]
    ws = [v * i for i, v in pairs]
    return max(ws), np.mean([v for _, v in pairs if v > 1])


@case
def extremes_by_key(x):
    out = positives(x)
    return max(out, key=lambda v: -v), min(out, key=lambda v: np.cos(v), default=1.0), max(out, default=0.5)


@case
def in_a_dtype(x):
    out = [v for v in x if v > 0]
    return np.array(out, dtype=np.float32).sum(), np.asarray(out, float)[0], np.array([v for v in x if v > 1], int)[0]


@case
def item_of_one_side(x):
    out = [x[0]]
    if x[1] > 0:
        out.append(x[1])
        first = out[0]
    else:
        return 0.5 * x[2]
    return first + len(out)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")
@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_lists_are_those_of_python(function: Any) -> None:
    compiled = jit(python_control_flow(function))
    for x in OTHERS:
        try:
            expected = function(x)
        except (IndexError, ValueError):  # of an empty list
            with pytest.raises((IndexError, ValueError, CheckError)):
                compiled(x)
            continue
        for one, other in zip(fxgrad.tree.leaves(compiled(x)), fxgrad.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_list_that_grows_in_a_loop_without_an_end_is_refused() -> None:
    def function(x: Any) -> Any:
        out = []
        for k in itertools.count():
            x = x * 0.5
            if x < 1.0:
                break
            out.append(x + k)
        return len(out)

    with pytest.raises(ControlFlowError, match=r"`out`, .* is 0 items long before a turn of this `for`"):
        jit(python_control_flow(function))(20.0)


def smooth(x: Any) -> Any:
    kept, total = [], 0.0
    for v in x:
        if v > 0.2:
            kept.append(np.sin(v))
        elif kept:
            total = total + kept.pop() * v
    for v in kept:
        total = total * 0.5 + v * v
    return total + np.mean(kept) * kept[-1]


def test_derivatives_and_batches() -> None:
    x, step = np.array([0.7, 0.4, -0.3, 0.9, 1.2]), 1e-6
    expected = [(smooth(x + step * unit) - smooth(x - step * unit)) / (2 * step) for unit in np.eye(5)]
    converted = python_control_flow(smooth)
    np.testing.assert_allclose(jit(grad(converted))(x), expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(grad(converted)(x), expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(jit(fxgrad.jacfwd(converted))(x), expected, rtol=1e-7, atol=1e-9)
    batch = np.stack([x, np.abs(x), x + 0.5])
    np.testing.assert_allclose(vmap(converted)(batch), [smooth(row) for row in batch], rtol=1e-12)
    np.testing.assert_allclose(jit(vmap(converted))(batch), [smooth(row) for row in batch], rtol=1e-12)


def test_steps_in_float32() -> None:
    """Items that are not there make no NaN, nor widen what is computed."""

    def step(x: Any) -> Any:
        large = []
        for v in x:
            if v > 0.1:
                large.append(np.log(v))
        return x - 0.1 * np.sum(large) if large else x

    x = y = np.array([0.5, -0.25, 0.1, 2.0], np.float32)
    compiled = jit(python_control_flow(step))
    for _ in range(3):
        x, y = compiled(x), step(y)
        assert x.dtype == np.float32
        np.testing.assert_allclose(x, y, rtol=2e-6)


def test_pop_from_an_empty_list_is_a_check() -> None:
    def taken(x: Any) -> Any:
        out: list[Any] = []
        if x > 0:
            out.append(x)
        return out.pop()

    assert jit(python_control_flow(taken))(2.0) == 2.0
    with pytest.raises(IndexError, match="pop from empty list"):
        jit(python_control_flow(taken))(-2.0)


def refusal(read: Any) -> str:
    """The error of code that reads or changes a list, at its line."""

    def function(x: Any) -> Any:
        out: list[Any] = [0.5]
        if x > 0:
            out.append(x)
        return read(out, x)

    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(function))(2.0)
    message, line = str(refused.value).split("\n")
    assert re.fullmatch(r"  at test_growing\.py:\d+ \(in .*\)", line)
    return message


def part_stored(out: Any, x: Any) -> Any:
    out[:1] = [x]
    return sum(out)


def copied_to_a_deque(out: Any, x: Any) -> Any:
    return len(deque(out))


def unpacked(out: Any, x: Any) -> Any:
    first, second = out
    return first + second


def returned(out: Any, x: Any) -> Any:
    return out


def as_array(out: Any, x: Any) -> Any:
    return np.array(out)


def taken_twice(out: Any, x: Any) -> Any:
    doubled = map(abs, out)
    return next(doubled) + next(doubled)


def made_text(out: Any, x: Any) -> Any:
    return len(f"{out}")


LENGTH = "of a list of which a traced condition decides how long it is"
REFUSED = {
    made_text: "a list of which a traced condition decides how long it is is made text. Go over its items in a loop",
    part_stored: f"a slice is assigned {LENGTH}. Join the parts, xs = xs[:a] + [v] + xs[b:]; or assign the items in a "
    "loop, xs[i] = v",
    taken_twice: f"next() takes an item of those {LENGTH}. Make a list of them, and write xs[0] if xs else default",
    copied_to_a_deque: "deque gets a list of which a traced condition decides how long it is. Read the list in "
    "converted code or by a function of NumPy, or pass an array of the greatest length and the "
    "number of its items",
    unpacked: f"an item is used {LENGTH}, and it may not be there. Go over the list in a `for` statement, or read it "
    "with len(x), sum(x), x[i] or a function of NumPy",
    returned: "function returns a list of which a traced condition decides how long it is. Return an array of the "
    "greatest length, and the number of its items; or what you read from the list: len(x), sum(x)",
    as_array: "function returns a slice with a traced bound, whose length is not known. Return the whole array, and "
    "the bounds beside it",
}


@pytest.mark.parametrize("read", REFUSED, ids=lambda read: read.__name__)
def test_what_needs_the_length_is_refused(read: Any) -> None:
    assert refusal(read) == REFUSED[read]


def test_items_that_are_no_arrays_must_be_as_many_on_both_sides() -> None:
    def function(x: Any) -> Any:
        out: list[Any] = []
        if x > 0:
            out.append({"a": x})
        return len(out)

    line = function.__code__.co_firstlineno
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(function))(2.0)
    assert str(refused.value) == (
        f"`out`, which changes at test_growing.py:{line + 3} (in function), is 1 item long if the condition of this "
        "`if` is true, and 0 items long otherwise. Both sides must leave as many items: choose a value first and "
        "change the list after the block; or begin with an array of the greatest length, write x[n] = v and n += 1 in "
        f"the place of .append(v), and read x[:n]\n  at test_growing.py:{line + 2} (in function)"
    )
