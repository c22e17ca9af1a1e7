"""Positions in lists of traced length, and traced ones in others: items set, deleted, inserted, found, joined."""

# ruff: noqa: B905, C417, PERF401, RUF005, RUF007, RUF015  (the functions are written as users write them)

from __future__ import annotations

import bisect
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, python_control_flow, vmap
from fxgrad.errors import ControlFlowError, FxgradError

X = np.array([1.5, -2.0, 3.25, 4.0, -1.0, 0.1])
OTHERS = [X, -X, X[::-1].copy(), np.abs(X), -np.abs(X)]
CASES = []


def case(function: Any) -> Any:
    CASES.append(function)
    return function


def pos(x: Any) -> Any:
    out = [0.5, 0.25]
    for v in x:
        if v > 0:
            out.append(v)
    return out


def rows_(x: Any) -> Any:
    out = [np.array([0.5, 0.25])]
    for v in x:
        if v > 0:
            out.append(np.array([v, v * v]))
    return out


def idx(x: Any) -> Any:
    return int(x[0] > 0) + 1


@case
def joined_rows(x):
    return np.concatenate(rows_(x)).sum()


@case
def joined_parts(x):
    out = [np.zeros(1)]
    for v in x:
        if v > 0:
            out.append(np.array([v]))
    return np.concatenate(out).sum()


@case
def rows_side_by_side(x):
    return np.hstack(rows_(x)).max()


@case
def columns_of_rows(x):
    return np.column_stack(rows_(x)).sum(axis=1)


@case
def stacked_as_columns(x):
    return np.stack(rows_(x), axis=1).sum(axis=1)


@case
def stacked_by_keyword(x):
    return np.stack(rows_(x), axis=0).mean(axis=0)


@case
def columns_by_unpacking(x):
    a, b = np.array(rows_(x)).T
    return (a.sum(), b.sum())


@case
def matrices_below_each_other(x):
    out = [np.zeros((2, 2))]
    for v in x:
        if v > 0:
            out.append(np.full((1, 2), v) * np.ones((2, 2)))
    return (np.concatenate(out).sum(axis=0), np.vstack(out).sum(axis=0))


@case
def matrices_side_by_side(x):
    out = [np.zeros((2, 2))]
    for v in x:
        if v > 0:
            out.append(np.full((2, 2), v))
    return (np.concatenate(out, axis=1).sum(axis=1), np.hstack(out).sum(axis=1))


@case
def lists_joined(x):
    return (np.concatenate([pos(x), [1.0]]).sum(), np.concatenate((pos(x), pos(x))).sum())


@case
def array_of_tuples(x):
    ev = [(0.0, 1.0)]
    for v in x:
        if v > 0:
            ev.append((v, 2 * v))
    return (np.array(ev)[:, 1].sum(), np.array(ev).sum())


@case
def array_of_tuples_of_two_types(x):
    ev = [(0, 1.0)]
    for i, v in enumerate(x):
        if v > 0:
            ev.append((i, 2 * v))
    return (np.array(ev)[:, 1].sum(), np.array(ev)[-1])


@case
def sum_of_map(x):
    return sum(map(lambda v: v * v, pos(x)))


@case
def list_of_map(x):
    r = list(map(lambda v: v * v, pos(x)))
    return (len(r), r[-1])


@case
def loop_over_map(x):
    s = 0.0
    for w in map(abs, pos(x)):
        s = s * 0.5 + w
    return s


@case
def sum_of_filter(x):
    return sum(filter(lambda v: v > 1, pos(x)))


@case
def filter_of_an_array(x):
    r = list(filter(lambda v: v > 1, x))
    return (len(r), sum(r))


@case
def extremes_with_a_default(x):
    return (max(pos(x), default=0), max(pos(x)[1:], default=0.0), min((v for v in pos(x)), default=1.0))


@case
def list_of_reversed(x):
    r = list(reversed(pos(x)))
    return (r[0], len(r))


@case
def index_of_a_value(x):
    return pos(x).index(4.0)


@case
def count_of_a_value(x):
    return (pos(x).count(4.0), pos(x).count(x[0]))


@case
def copied_by_a_slice(x):
    a = pos(x)
    b = a[:]
    b.append(1.0)
    return (len(a), len(b), b[-1])


@case
def part_that_grows(x):
    a = pos(x)
    b = a[1:]
    b.append(1.0)
    return (len(a), len(b), b[-1])


@case
def sorted_in_place(x):
    a = pos(x)
    a.sort()
    return (a[0], a[-1], len(a))


@case
def sorted_backwards(x):
    a = pos(x)
    a.sort(reverse=True)
    return (a[0], a[-1], len(a))


@case
def sorted_by_a_key(x):
    a = pos(x)
    a.sort(key=lambda v: np.sin(v))
    return (a[0], a[-1], len(a))


@case
def sorted_tuples(x):
    ev = [(0.5, 1)]
    for i, v in enumerate(x):
        if v > 0:
            ev.append((v, i))
    s = 0.0
    for v, i in sorted(ev):
        s = s * 0.5 + v * i
    return s


@case
def one_or_the_other(x):
    a = [v for v in x if v > 3]
    return len(a or [1.0, 2.0])


@case
def truth_by_bool(x):
    return (not pos(x), len(pos(x)) == 0, bool(pos(x)))


@case
def taken_from_the_front(x):
    a = pos(x)
    f = a.pop(0)
    return (f, len(a), sum(a))


@case
def stored_at_a_traced_place(x):
    a = pos(x)
    a[idx(x)] = 7.0
    return (sum(a), a[1])


@case
def stored_at_the_end(x):
    a = pos(x)
    a[-1] = 7.0
    return (sum(a), a[-1])


@case
def added_to_at_a_traced_place(x):
    a = pos(x)
    a[idx(x)] += 7.0
    return (sum(a), a[1])


@case
def two_items_change_places(x):
    a = pos(x)
    a[0], a[-1] = (a[-1], a[0])
    return (a[0], a[-1], sum(a))


@case
def deleted_at_a_traced_place(x):
    a = [1.0, 2.0, 3.0]
    del a[idx(x)]
    return (sum(a), len(a))


@case
def deleted_of_a_grown_list(x):
    a = pos(x)
    del a[idx(x)]
    return (sum(a), len(a))


@case
def inserted_at_a_traced_place(x):
    a = pos(x)
    a.insert(idx(x), 9.0)
    return (a[1], len(a), sum(a))


@case
def popped_at_a_traced_place(x):
    a = pos(x)
    v = a.pop(idx(x))
    return (v, len(a), sum(a))


@case
def popped_at_the_end(x):
    a = pos(x)
    v = a.pop(-1)
    return (v, len(a), sum(a), a[0])


@case
def removed(x):
    a = pos(x)
    a.remove(0.25)
    return (len(a), sum(a))


@case
def part_deleted(x):
    a = pos(x)
    del a[2:]
    return (len(a), sum(a))


@case
def part_of_a_known_list_deleted(x):
    a = [1.0, 2.0, 3.0]
    del a[idx(x):]
    return (len(a), sum(a))


@case
def inserted_in_order(x):
    a = [0.0]
    for v in x:
        a.insert(bisect.bisect(a, v), v)
    return (a[0], a[3], a[-1])


@case
def inserted_by_a_search(x):
    a = []
    for v in x:
        i = 0
        while i < len(a) and a[i] < v:
            i += 1
        a.insert(i, v)
    return (a[0], a[3], a[-1])


@case
def equality(x):
    a = [v for v in x if v > 0]
    b = [v for v in x if v > 1]
    return (a == b, a != b)


@case
def equality_with_known_lists(x):
    a = [v for v in x if v > 3]
    return (a == [4.0], a == [])


@case
def order(x):
    a = [v for v in x if v > 0]
    b = [v for v in x if v > 1]
    return a < b


@case
def grown_beside_a_grown_list(x):
    a = [v for v in x if v > 0]
    b = []
    for v in a:
        b.append(v * v)
    return (len(b), sum(b))


@case
def grown_on_a_condition_beside_one(x):
    a = [v for v in x if v > 0]
    b = []
    for v in a:
        if v > 2:
            b.append(v * v)
    return (len(b), sum(b))


@case
def grown_until_a_break(x):
    a = [v for v in x if v > 0]
    b = []
    for v in a:
        if v > 3:
            break
        b.append(v * v)
    return (len(b), sum(b))


@case
def grown_by_numbers(x):
    a = [v for v in x if v > 0]
    b = []
    for i, v in enumerate(a):
        b.append(v * i)
    return (len(b), sum(b))


@case
def grown_by_pairs(x):
    a = [v for v in x if v > 0]
    b = []
    for p, q in zip(a, a[1:]):
        b.append(p * q)
    return (len(b), sum(b))


@case
def grown_beside_a_mask(x):
    b = []
    for v in x[x > 0]:
        b.append(v * v)
    return (len(b), sum(b))


@case
def sorted_list_is_joined(x):
    return len(sorted(pos(x)) + [1.0])


@case
def part_is_joined(x):
    return (len(pos(x)[1:] + [1.0]), sum(pos(x)[1:] + [1.0]))


@case
def part_is_repeated(x):
    return len(pos(x)[1:] * 2)


@case
def joined_before_a_part(x):
    return (len([1.0] + pos(x)[1:]), sum([1.0] + pos(x)[:-1]))


@case
def part_is_extended(x):
    a = pos(x)[1:]
    a += [2.0]
    return (len(a), sum(a))


@case
def parts_are_joined(x):
    return sum(pos(x)[1:] + pos(x)[:1])


@case
def every_second(x):
    a = pos(x)[::2]
    return (len(a), sum(a))


@case
def last_two(x):
    a = pos(x)[-2:]
    return (len(a), sum(a), a[0])


@case
def two_halves(x):
    a = pos(x)
    k = len(a) // 2
    return (sum(a[:k]), sum(a[k:]), len(a[:k]))


@case
def parts_of_a_known_list(x):
    a = [1.0, 2.0, 3.0]
    k = int(x[0] > 0)
    return (len(a[k:] + [5.0]), sum(a[:k]), sum(a[k:] + a[:k]))


@case
def each_is_stored(x):
    a = pos(x)
    for i in range(len(a)):
        a[i] = a[i] * 2 + i
    return sum(a)


@case
def neighbours_change_places(x):
    a = pos(x)
    for i in range(len(a) - 1):
        if a[i] > a[i + 1]:
            a[i], a[i + 1] = (a[i + 1], a[i])
    return (sum(a[:1]), a[-1])


@case
def deleted_in_a_while(x):
    a = pos(x)
    i = 0
    while i < len(a):
        if a[i] > 3:
            del a[i]
        else:
            i += 1
    return (len(a), sum(a))


@case
def inserted_everywhere(x):
    a = pos(x)
    a.insert(0, 5.0)
    a.insert(len(a), 6.0)
    a.insert(-1, 7.0)
    a.insert(100, 8.0)
    a.insert(2, 9.0)
    s = 0.0
    for v in a:
        s = s * 0.5 + v
    return (s, len(a))


@case
def removed_if_there(x):
    a = pos(x)
    if 4.0 in a:
        a.remove(4.0)
    return (len(a), sum(a))


@case
def list_of_zip(x):
    a = pos(x)
    return list(zip(a, a[1:]))[0][1] if len(a) > 1 else 0.0


@case
def list_of_enumerate(x):
    a = pos(x)
    b = list(enumerate(a))
    return (b[-1][0], b[-1][1])


@case
def index_of_the_greatest(x):
    a = pos(x)
    return (a.index(max(a)), a.index(min(a)), a.count(0.5))


@case
def tuples_sorted_by_a_key(x):
    ev = [(v, i) for i, v in enumerate(x) if v > 0]
    ev.sort(key=lambda p: (-p[1], p[0]), reverse=True)
    s = 0.0
    for v, i in ev:
        s = s * 0.5 + v * i
    return s


@case
def tuple_in_a_list(x):
    ev = [(v, i) for i, v in enumerate(x) if v > 0]
    return ((4.0, 3) in ev, len(sorted(ev, key=lambda p: p[0], reverse=True)))


@case
def known_list_at_a_traced_place(x):
    a = [1.0, 2.0, 3.0, 4.0]
    k = int(x[0] > 0)
    del a[k]
    a.insert(k, x[1])
    a.pop(k)
    return a


@case
def tuples_at_a_traced_place(x):
    a = [(1.0, 2), (3.0, 4)]
    k = int(x[0] > 0)
    a[k] = (x[0], 5)
    a.insert(k, (x[1], 6))
    return a


@case
def inserted_into_few(x):
    a = []
    k = int(x[0] > 0)
    a.insert(k, x[1])
    a.insert(k, x[2])
    a.insert(k - 1, x[3])
    return a


@case
def stored_beyond_the_end(x):
    a = pos(x)
    a[5] = 1.0
    return sum(a)


@case
def removed_that_may_not_be_there(x):
    a = pos(x)
    a.remove(4.0)
    return sum(a)


@case
def deleted_beyond_the_end(x):
    a = pos(x)
    del a[4]
    return sum(a)


@case
def popped_beyond_the_end(x):
    a = pos(x)
    return (a.pop(3), sum(a))


@case
def sorted_into_buckets(x):
    b = [[], [], []]
    for v in x:
        i = 2 if v > 3 else 1 if v > 0 else 0
        b[i].append(v)
    return ([len(e) for e in b], sum(b[1]))


@case
def neighbours_of_a_graph(x):
    adj = [[] for _ in range(3)]
    e = (np.abs(x) > 1).astype(int)
    for i in range(5):
        adj[e[i]].append(e[i + 1])
    return ([len(a) for a in adj], sum(adj[0]))


@case
def one_list_at_two_places(x):
    r = [1.0]
    b = [r, r]
    b[idx(x) - 1].append(x[0])
    return len(r)


@case
def list_with_a_name(x):
    r = [1.0]
    b = [r, [2.0]]
    b[idx(x) - 1].append(x[0])
    return (len(r), len(b[1]))


@case
def popped_of_a_chosen_list(x):
    b = [[1.0, 2.0], [3.0, 4.0]]
    v = b[idx(x) - 1].pop()
    return (v, len(b[0]), len(b[1]))


@case
def chosen_list_is_extended(x):
    b = [[1.0, 2.0], [3.0, 4.0]]
    b[idx(x) - 1].extend([x[0], x[1]])
    return (len(b[0]), sum(b[1]))


@case
def loop_over_a_chosen_list(x):
    b = [[1.0], [3.0, 4.0]]
    s = 0.0
    for v in b[idx(x) - 1]:
        s += v
    return s


def side(x: Any) -> Any:
    return int(x[0] > 0)


@case
def chosen_row_is_joined(x):
    g = [[1.0, 2.0], [x[0], 4.0]]
    return len(g[side(x)] + g[0])


@case
def chosen_row_is_repeated(x):
    g = [[1.0, 2.0], [x[0], 4.0]]
    return len(g[side(x)] * 2)


@case
def chosen_row_is_returned(x):
    g = [[1.0, 2.0], [x[0], 4.0]]
    return g[side(x)]


@case
def chosen_row_is_read(x):
    g = [[1.0, 2.0], [x[0], 4.0]]
    return ([v * 2 for v in g[side(x)]], sum(g[side(x)]), g[side(x)] == [1.0, 2.0])


@case
def chosen_list_of_rows(x):
    g = [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, x[0]]]]
    return (len(g[side(x)][0] + [1.0]), g[side(x)][1][side(x)])


@case
def rows_of_many_lengths(x):
    g = [[1.0], [x[0], 4.0], []]
    return (len(g[side(x)]), g[side(x)][-1], sum(g[side(x) + 1]), len(g[side(x)] + [2.0]))


@case
def walk_in_a_graph(x):
    adj = [[1, 2], [0], [0, 1]]
    s = 0.0
    i = side(x)
    for j in adj[i]:
        s += x[j] * j
    for j in adj[i]:
        if j > 0:
            i = j
    return (s, i)


@case
def stacks(x):
    st = [[1.0, 2.0, 3.0], [], [x[0]]]
    i = side(x) * 2
    if st[i]:
        v = st[i].pop()
        st[1].append(v)
    return (len(st[0]), len(st[1]), len(st[2]), st[1][-1])


@case
def list_among_several_places(x):
    r = [1.0]
    b = [r, r, [2.0]]
    b[side(x) + 1].append(5.0)
    b[side(x)].append(6.0)
    return (len(r), len(b[2]), sum(r))


@case
def last_two_of_each(x):
    b = [[] for _ in range(3)]
    for k, v in enumerate(x):
        i = int(abs(v)) % 3
        b[i].append(v * k)
        if len(b[i]) > 2:
            b[i].pop(0)
    return ([sum(e) for e in b], [len(e) for e in b])


@case
def rows_in_buckets(x):
    b = [[], []]
    b[int(x[0] > 0)].append(np.array([x[0], x[1]]))
    b[0].append(np.ones(2))
    return (np.sum(b[0], axis=0), len(b[1]))


@case
def table_as_rows(x):
    dp = [[0.0] * 4 for _ in range(4)]
    for i in range(1, 4):
        for j in range(1, 4):
            k = int(x[i] > 0)
            dp[i][j] = dp[i - k][j - 1] + x[j] * dp[k][j] + 1
    return (dp[3][3], dp[int(x[0] > 0) + 1][2])


@case
def beyond_the_lists(x):
    b = [[], [1.0]]
    b[5 * side(x)].append(1.0)
    return len(b[0])


@case
def buckets_of_an_object(x):

    class S:

        def __init__(self):
            self.b = [[], []]

        def add(self, v):
            self.b[int(v > 0)].append(v)
    s = S()
    for v in x:
        s.add(v)
    return (len(s.b[0]), sum(s.b[1]), len(max(s.b, key=len)))


@case
def buckets_in_a_dict(x):
    d = {"a": [[], []]}
    for v in x:
        d["a"][int(v > 0)].append(v)
    return (len(d["a"][0]), len(d["a"][1]))


@pytest.mark.slow
@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_lists_are_those_of_python(function: Any) -> None:
    compiled = jit(python_control_flow(function))
    for x in OTHERS:
        try:
            expected = function(x)
        except (IndexError, ValueError):
            with pytest.raises((IndexError, ValueError)):
                compiled(x)
            continue
        for one, other in zip(fxgrad.tree.leaves(compiled(x)), fxgrad.tree.leaves(expected), strict=True):
            assert np.shape(one) == np.shape(other)
            np.testing.assert_allclose(one, other, rtol=1e-12)


def smooth(x: Any) -> Any:
    kept = []
    for v in x:
        if v > 0.2:
            kept.append(np.sin(v))
            kept.insert(len(kept) // 2, v * v)
    kept.sort(reverse=True)
    if len(kept) > 2:
        kept[1] *= kept[-1]
        del kept[2]
    total = 0.1 * x[0]
    for v in map(np.tanh, kept[1:] + kept[:1]):
        total = total * 0.5 + v * v
    return total


def smooth_of_rows(x: Any) -> Any:
    kept = [np.array([1.0, 0.5])]
    for v in x:
        if v > 0.2:
            kept.append(np.array([v, np.sin(v)]))
    first, second = np.array(kept).T
    return np.sum(first * second) + np.prod(np.hstack(kept)) + np.sum(np.stack(kept, axis=1) @ np.array(kept))


@pytest.mark.slow
@pytest.mark.parametrize("function", [smooth, smooth_of_rows], ids=lambda function: function.__name__)
def test_derivatives_batches_and_float32(function: Any) -> None:
    x, step = np.array([0.7, 0.4, -0.3, 0.9, 1.2]), 1e-6
    expected = [(function(x + step * unit) - function(x - step * unit)) / (2 * step) for unit in np.eye(5)]
    converted = python_control_flow(function)
    np.testing.assert_allclose(jit(grad(converted))(x), expected, rtol=1e-6, atol=1e-8)
    batch = np.stack([x, np.abs(x), -np.abs(x)])
    np.testing.assert_allclose(vmap(converted)(batch), [function(row) for row in batch], rtol=1e-12)
    np.testing.assert_allclose(jit(vmap(converted))(batch), [function(row) for row in batch], rtol=1e-12)
    narrow = (x + 0.1).astype(np.float32)
    np.testing.assert_allclose(jit(converted)(narrow), function(narrow), rtol=1e-5)


def changed_in_a_loop(x):
    out = rows_(x)
    for row in out:
        row *= 2  # noqa: PLW2901
    return np.sum(out)


def named_and_changed(x):
    out = rows_(x)
    row = out[0]
    row[0] = 5.0
    return np.sum(out)


def changed_by_two_indices(x):
    out = rows_(x)
    out[0][0] = 5.0
    return np.sum(out)


def added_to(x):
    out = rows_(x)
    out[-1] += 5.0
    return np.sum(out)


def changed_by_a_function(x):
    def double(row):
        row *= 2

    out = rows_(x)
    double(out[0])
    return np.sum(out)


def sorted_within(x):
    out = rows_(x)
    out[0].sort()
    return np.sum(out)


@pytest.mark.parametrize("function", [changed_in_a_loop, named_and_changed, changed_by_two_indices, added_to,
                                      changed_by_a_function, sorted_within], ids=lambda function: function.__name__)
def test_arrays_in_such_lists_do_not_change_in_place(function: Any) -> None:
    with pytest.raises(FxgradError, match=r"changes? (in place|the array)|would change a traced array"):
        jit(python_control_flow(function))(X)


def changed_by_another_name(x):
    lists = [[1.0], [2.0]]
    chosen = lists[side(x)]
    lists[0].append(3.0)
    return len(chosen)


def changed_as_itself(x):
    lists = [[1.0], [2.0]]
    chosen = lists[side(x)]
    chosen.append(3.0)
    return len(lists[0])


@pytest.mark.parametrize("function", [changed_by_another_name, changed_as_itself], ids=lambda each: each.__name__)
def test_a_chosen_list_does_not_change_while_the_others_are_read(function: Any) -> None:
    with pytest.raises(ControlFlowError, match="a list changes that is one of two"):
        jit(python_control_flow(function))(X)


def test_other_changes_of_a_chosen_list_say_what_to_write() -> None:
    def function(x: Any) -> Any:
        lists = [[1.0, 2.0], [3.0]]
        lists[side(x)].reverse()
        return lists[0][0]

    def written(x: Any) -> Any:
        lists = [[1.0, 2.0], [3.0]]
        for k, items in enumerate(lists):
            if k == side(x):
                items.reverse()
        return lists[0][0]

    with pytest.raises(ControlFlowError, match=r"\.reverse\(\) changes one of several lists, .* `if k == i:`"):
        jit(python_control_flow(function))(X)
    for x in (X, -X):
        assert jit(python_control_flow(written))(x) == written(x)


def test_items_of_other_shapes_are_refused() -> None:
    def function(x: Any) -> Any:
        out = rows_(x)
        out[0] = 1.0
        return np.sum(out)

    with pytest.raises(ControlFlowError, match="the items and the value are not arrays of one shape"):
        jit(python_control_flow(function))(X)
