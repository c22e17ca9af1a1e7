"""Containers that traced branches and loops change: their items are variables, and their length stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, python_control_flow, vmap
from fxgrad.errors import ControlFlowError


def appended_on_both_sides(x: Any) -> Any:
    out = []
    for i in range(3):
        if x > i:
            out.append(x * i)
        else:
            out.append(-x)
    return np.stack(out)


def assigned_by_traced_numbers(x: Any, n: Any) -> Any:
    table = [0] * 5
    i = 0
    while i < n:
        table[i] += i * x
        table[-1 - i] = table[i] + 1
        i += 1
    return table


def dynamic_programming(x: Any, n: Any) -> Any:
    steps = [1.0] * 6
    for i in range(2, n):
        steps[i] = x * steps[i - 1] + steps[i - 2]
    return steps[5]


def window(x: Any) -> Any:
    last = [1.0, x]
    while last[-1] > 0.1:
        last.append(last[-1] * 0.5 * last[0])
        last.pop(0)
    return last


def two_names_of_one_list(x: Any) -> Any:
    one = [x, 1.0]
    other = one
    while one[0] < 10:
        other[0] = other[0] * 2
        one[1] = one[1] + 1
    return one, other


def rows(x: Any, n: Any) -> Any:
    grid = [[0.0 * x, x], [2.0 * x, 3.0]]
    for _ in range(n):
        grid[0][1] = grid[0][1] + grid[1][0]
        grid[1][0] = grid[1][0] * 0.5
    return grid


def dictionary(x: Any) -> Any:
    state = {"x": x, "turns": 0}
    while state["x"] > 1:
        state["x"] = state["x"] / 2
        state["turns"] += 1
    return state["x"], len(next(iter(state))), state["turns"]


def add_to(container: Any, value: Any) -> None:
    container.append(value)


def changed_by_a_callee(x: Any) -> Any:
    out = []
    if x > 0:
        add_to(out, x)
    else:
        add_to(out, -x)
    return out[0]


def first_turn_is_a_guess(x: Any) -> Any:
    """The first condition is known; so a turn runs, and is undone."""
    root, error = [1.0], 1.0
    while error > 1e-9:
        root[0] = 0.5 * (root[0] + x / root[0])
        error = abs(root[0] * root[0] - x)
    return root[0]


def branch_in_a_loop(x: Any, n: Any) -> Any:
    counts = [0.0 * x, 0.0 * x]
    for i in range(n):
        if x > i:
            counts[0] = counts[0] + x
        else:
            counts[1] = counts[1] + x
    return counts


def one_side_changes(x: Any) -> Any:
    values = [1.0, 2.0, x]
    if x > 0:
        values[0] = x
        values.reverse()
    return values


def expression(x: Any) -> Any:
    out = [x]
    out.append(x) if x > 1 else out.append(2.0)
    return out


def grouped(x: Any) -> Any:
    groups: dict[str, list[Any]] = {}
    for i in range(3):
        if x > i:
            groups.setdefault("a", []).append(x)
        else:
            groups.setdefault("a", []).append(-x * i)
    return groups


def empty() -> list[Any]:
    return []


def stored_lists(x: Any) -> Any:
    rows: list[Any] = []
    if x > 0:
        rows.append([])
        rows[-1].append(x)
        rows += [[], [1.0]]
        rows[1].append(2 * x)
        rows.extend([[], empty()])
        rows[3].append(x)
        rows[4].append(x)
        rows.append(([], x))
        rows[5][0].append(x)
        rows.insert(0, {"b": []})
        rows[0]["b"].append(x)
    else:
        rows.extend([{"b": [2.0]}, [3.0], [x], [x * x], [4.0], [x], ([x], x)])
    return rows


def updated(x: Any) -> Any:
    state: dict[str, Any] = {}
    if x > 0:
        state.update(a=[], b={})
        state["a"].append(x)
        state["b"]["c"] = 1.0
    else:
        state.update({"a": [2 * x], "b": {"c": x}})
    return state


def last_row(x: Any, n: Any) -> Any:
    rows = [[0.0]]
    for k in range(n):
        rows.append([])
        rows[-1].append(x * k)
        rows.pop(0)
    return rows


CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (grouped, (1.5,)), (grouped, (-1.5,)), (stored_lists, (1.5,)), (stored_lists, (-1.5,)), (updated, (1.5,)),
    (updated, (-1.5,)), (last_row, (1.5, 3)), (last_row, (1.5, 0)),
    (appended_on_both_sides, (1.5,)), (appended_on_both_sides, (-1.5,)), (assigned_by_traced_numbers, (0.5, 3)),
    (assigned_by_traced_numbers, (0.5, 0)), (dynamic_programming, (0.5, 6)), (dynamic_programming, (0.5, 2)),
    (window, (1.0,)), (window, (0.05,)), (two_names_of_one_list, (1.5,)), (rows, (1.5, 3)), (dictionary, (9.0,)),
    (changed_by_a_callee, (-2.0,)), (first_turn_is_a_guess, (2.0,)), (branch_in_a_loop, (1.5, 4)),
    (one_side_changes, (3.0,)), (one_side_changes, (-3.0,)), (expression, (0.5,)), (expression, (1.5,))]


def assert_equal(found: Any, wanted: Any) -> None:
    for one, other in zip(fxgrad.tree_util.tree_leaves(found), fxgrad.tree_util.tree_leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12)


def total(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: sum(np.sum(leaf) * 1.0 for leaf in fxgrad.tree_util.tree_leaves(function(*args)))


@pytest.mark.slow
@pytest.mark.parametrize(("function", "args"), CASES, ids=[f"{case[0].__name__} {case[1]}" for case in CASES])
def test_lists_change_as_they_do_in_python(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    converted = python_control_flow(function)
    assert_equal(jit(converted)(*args), function(*args))
    assert_equal(converted(*args), function(*args))
    slope = grad(total(function))(*args)
    assert_equal(jit(grad(total(converted)))(*args), slope)
    assert_equal(grad(total(converted))(*args), slope)
    batch = np.array([args[0], 0.75 * args[0], 0.5 * args[0]])
    found = vmap(converted, in_axes=(0, *(None,) * (len(args) - 1)))(batch, *args[1:])
    wanted = [fxgrad.tree_util.tree_leaves(function(x, *args[1:])) for x in batch]
    assert_equal([*fxgrad.tree_util.tree_leaves(found)], [np.stack(column) for column in zip(*wanted, strict=True)])


def test_items_are_variables_in_the_printed_program() -> None:
    program = str(fxgrad.make_program(python_control_flow(dictionary))(9.0))
    assert "while(carry(state=x, state_1=0))" in program, program


def refusal(function: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(function))(*args)
    return str(refused.value)


def line_of(function: Callable[..., Any], number: int) -> str:
    return f"test_changing_lists.py:{function.__code__.co_firstlineno + number} (in {function.__name__})"


def test_lengths_that_depend_on_traced_values_are_refused_with_the_line_that_changes_the_list() -> None:
    def one_side(x: Any) -> Any:
        out = []
        for i in range(3):
            if x > i:
                out.append(x)  # noqa: PERF401
        return out

    def early(x: Any) -> Any:
        out = []
        for _ in range(5):
            x = x * 0.5
            if x < 1:
                break
            out.append(x)
        return out

    def each_turn(x: Any) -> Any:
        out = [x]
        while x > 1:
            x = x / 2
            out.append(x)
        return out

    def in_condition(x: Any) -> Any:
        out = [3.0, 2.0, x]
        while out.pop() > 1:
            x = x + 1
        return out

    for function in (one_side, early):
        assert refusal(function, 20.0).startswith(
            f"{function.__name__} returns a list of which a traced condition decides how long it is. ")
    assert refusal(each_turn, 5.0) == (
        f"`out`, which changes at {line_of(each_turn, 4)}, is 1 item long before a turn of this `while` and 2 items "
        "long after it; the number of turns is traced, so the length must stay. Begin with an array of the greatest "
        "length, and write into it with x[i] = v\n"
        f"  at {line_of(each_turn, 2)}")
    assert refusal(in_condition, 5.0) == (
        "the condition of this `while` changes a list or dict, and it is traced apart from the turn. Change it in the "
        f"turn, and write the condition without the change\n  at {line_of(in_condition, 2)}")


def test_lists_that_a_function_of_a_library_makes_need_a_name() -> None:
    def words(x: Any) -> Any:
        rows: list[Any] = []
        if x > 0:
            rows.append("a b".split())
            rows[-1].append(x)
        else:
            rows.append("c d".split())
            rows[-1].append(2 * x)
        return rows[0][2]

    def named(x: Any) -> Any:
        rows: list[Any] = []
        if x > 0:
            row = [*"ab"]
            rows.append(row)
            rows[-1].append(x)
        else:
            row = list("ab")
            rows.append(row)
            rows[-1].append(2 * x)
        return rows[0][2]

    assert refusal(words, 1.5) == (
        "a list or dict changes in this `if` that a function of a library made in it. Give it a name before it is "
        f"stored, as a copy: row = list(row)\n  at {line_of(words, 2)}")
    assert jit(python_control_flow(named))(1.5) == 1.5


def test_a_traced_index_assigns_items_of_one_shape_alone() -> None:
    def function(x: Any, n: Any) -> Any:
        out = [x, np.ones(2)]
        for i in range(n):
            out[i] = x
        return out

    assert refusal(function, 1.5, 1) == (
        "a traced index selects an item of a list to assign, and the items and the value are not arrays of one shape. "
        f"Keep them in one array, and write x[i] = v\n  at {line_of(function, 3)}")


OUTSIDE = [0.0]


def test_lists_of_others_are_left_alone() -> None:
    def argument(x: Any, values: Any) -> Any:
        if x > 0:
            values[0] = x
        return values

    def of_module(x: Any) -> Any:
        if x > 0:
            OUTSIDE[0] = x
        return x

    for function, args in ((argument, (1.0, [2.0])), (of_module, (1.0,))):
        assert refusal(function, *args) == (
            f"a list is changed inside the traced `if` at {line_of(function, 1)}, which is traced once and may run "
            "never or often. Change a copy of it: x = list(x)\n"
            f"  at {line_of(function, 2)}")
    assert OUTSIDE == [0.0]


def added_to_in_place(x: Any) -> Any:
    values = [x, 2.0]
    other = values
    if x > 0:
        values += [1.0]
        values.pop(0)
    values[0] = 7.0
    return other[0] + other[1]


def same_list_on_both_paths(x: Any) -> Any:
    values = [x, 2.0]
    pair = (values, x)
    if x > 0:
        pair = (values, 2 * x)
    pair[0][0] += pair[1]
    return values[0]


def replaced_on_one_side(x: Any) -> Any:
    state = [0.0, 3.0]
    if x > 0:
        state = [1.0, 2.0]
    state[0] += x
    state.append(x)
    return state[0] * state[1] + state[2]


def replaced_in_each_turn(x: Any) -> Any:
    state = [x, 1.0]
    while state[0] < 3:
        state = [state[0] + 1.0, x]
    state[0] += state[1]
    return state[0]


def replaced_in_turns_that_python_counts(x: Any) -> Any:
    number, state = 0, [0.0, 0.0]
    while number < 3:
        if x > number:
            state = [1.0 + number, 2.0]
        state[0] += x
        number += 1
    for number in range(3):
        if x > number:
            state = [state[0], state[1] + 1.0]
        state[1] += x
    return state[0] + state[1]


def bound_again_to_itself(x: Any) -> Any:
    values = [x, 0.0]
    other = values
    while values[0] < 3:
        values = values  # noqa: PLW0127
        values[0] += 1.0
        other[1] += values[0]
    return other


def pair_of_lists(x: Any) -> Any:
    left, right = [x], [0.0]
    pair = (left, right)
    while left[0] < 3:
        pair = (pair[0], pair[1])
        pair[0][0] += 1.0
        right[0] += left[0]
    return pair


class Box:
    def __init__(self, items: Any) -> None:
        self.items = items


def box_of_one_list(x: Any) -> Any:
    items = [x, 0.0]
    if x > 0:
        box, size = Box(items), 1.0
    else:
        box, size = Box(items), 2.0
    while size < 4:
        box.items[0] += size
        box = Box(box.items)
        size += 1
    return items


def inner_list_is_replaced(x: Any) -> Any:
    rows = [[x], [0.0]]
    while rows[0][0] < 3:
        rows[0] = [rows[0][0] + 1.0]
        rows[1] = [rows[1][0] + rows[0][0]]
        rows[1][0] *= 2
    return rows


@pytest.mark.parametrize("function", [added_to_in_place, same_list_on_both_paths, replaced_on_one_side,
                                      replaced_in_each_turn, replaced_in_turns_that_python_counts,
                                      bound_again_to_itself, pair_of_lists, inner_list_is_replaced, box_of_one_list])
@pytest.mark.parametrize("x", [1.5, -1.5])
def test_lists_stay_the_objects_that_they_are(function: Callable[..., Any], x: float) -> None:
    assert_equal(jit(python_control_flow(function))(x), function(x))


def test_a_list_that_is_one_of_two_does_not_change() -> None:
    def one_of_two(x: Any) -> Any:
        above, below = [0.0], [0.0]
        counts = above if x > 0 else below
        counts[0] += 1.0
        return above[0] - below[0]

    def of_a_loop(x: Any) -> Any:
        values = [x]
        other = values
        while x < 3:
            values = [x]
            x = x + 1
        other.append(2.0)
        return len(values)

    def message(function: Callable[..., Any], first: int, second: int) -> str:
        return (f"a list changes that is one of two, chosen by the traced condition at {line_of(function, first)}: "
                "whether the other one changes with it depends on the condition. Choose between copies, list(x), or "
                f"change the list in the block\n  at {line_of(function, second)}")

    def shared_by_two_names(x: Any) -> Any:
        above, below = [0.0], [0.0]
        if x > 0:
            above = below
        else:
            below = [2.0]
        below[0] += 1.0
        return above[0] - below[0]

    def made_in_the_block(x: Any) -> Any:
        above, below = [0.0], [0.0]
        if x > 0:
            above = below = [x]
        below[0] += 1.0
        return above[0] - below[0]

    def of_turns(x: Any) -> Any:
        values = [x]
        other = values
        while x < 3:
            values[0] += 1.0
            values = [x]
            x = x + 1
        return other

    def of_inner(x: Any) -> Any:
        inner = [x]
        rows = [inner, [0.0]]
        while x < 3:
            rows[0][0] += 1.0
            rows[0] = [x]
            x = x + 1
        return inner

    assert refusal(one_of_two, 1.5) == message(one_of_two, 2, 3)
    assert refusal(of_a_loop, 1.5) == message(of_a_loop, 3, 6)
    assert refusal(shared_by_two_names, 1.5) == message(shared_by_two_names, 2, 6)
    assert refusal(made_in_the_block, 1.5) == message(made_in_the_block, 2, 4)
    for function in (of_turns, of_inner):
        assert refusal(function, 1.5) == (
            f"a list is changed inside the traced `while` at {line_of(function, 3)}, which is traced once and may run "
            f"never or often. Change a copy of it: x = list(x)\n  at {line_of(function, 4)}")


def changed_in_a_loop_that_ends_early(x: Any, n: Any) -> Any:
    result = [0.0, 0.0]
    if x > 0.3:
        pair, box, rows, table = [x, 1.0], Holder(x), [np.zeros(2)], {"a": x}
        for k in range(4):
            pair[1] = pair[0] + x
            box.item = box.item + k
            rows[0][1] += x
            table["a"] += 1.0
            if box.item > n:
                break
            pair[0] += 1.0
        result = [pair[0] + 2.0 * pair[1] + rows[0][1], box.item + table["a"]]
    return result


class Holder:
    def __init__(self, item: Any) -> None:
        self.item = item


def changed_on_one_side_and_new_on_the_other(x: Any, n: Any) -> Any:
    pair = [x, x + 1.0]
    other = [x, x]
    for _ in range(n):
        pair = [pair[1], pair[0]]
        if x > 1.0:
            pair[-1] = x * 2.0
        elif x > 0.6:
            pair[0] = x * 3.0
        else:
            pair = [pair[0], x * 5.0]
        other[0] = pair[0]
    if x > 0.0:
        other = [x, 1.0]
    else:
        other[1] = x
    return pair[0] + pair[1] + other[0] + other[1]


@pytest.mark.parametrize("function", [changed_in_a_loop_that_ends_early, changed_on_one_side_and_new_on_the_other])
def test_lists_that_a_branch_changes_or_makes(function: Any) -> None:
    """What a recorded turn changed in a list of the branch around stayed, and the program used it unbound."""
    converted = python_control_flow(function)
    xs, ns = np.array([0.7, 2.0, 0.4, -0.5]), np.array([3, 1, 4, 2])
    expected = np.array([function(x, n) for x, n in zip(xs.tolist(), ns.tolist(), strict=True)])
    np.testing.assert_allclose(np.transpose(vmap(converted)(xs, ns)), expected, rtol=1e-12)
    np.testing.assert_allclose(jit(converted)(0.7, 3), expected[0], rtol=1e-12)


def raised_at(values: list[Any], place: int) -> list[Any]:
    if values[place] > 0:
        values[place] = values[place] + 1
    return values


def first_two(values: list[Any]) -> list[Any]:
    return values[:2]


def twice(values: list[Any]) -> list[Any]:
    return values + values


def lists_made_for_a_call(x: Any, n: Any) -> Any:
    values = [x, 2.0, n]
    parts = raised_at([x, n], 0) + raised_at(values[1:], 1)
    raised = raised_at(values + parts, 0)
    few, many = first_two(values), twice(parts)
    if x > 0:
        few[0] = 5.0
        many[1] = x
    return sum(raised) + sum(few) * 3 + sum(many) * 7 + sum(values) * 11 + sum(parts) * 13


def merged(left: list[Any], right: list[Any], values: list[Any]) -> list[Any]:
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            values[i + j] = left[i]
            i += 1
        else:
            values[i + j] = right[j]
            j += 1
    while i < len(left):
        values[i + j] = left[i]
        i += 1
    while j < len(right):
        values[i + j] = right[j]
        j += 1
    return values


def merged_halves(x: Any, n: Any) -> Any:
    values = [x, x * x, x + 1, n, 0.5]
    found = merged(sorted(values[:2]), sorted(values[2:]), values[:])
    return sum(k * each for k, each in enumerate(found))


@pytest.mark.parametrize("function", [lists_made_for_a_call, merged_halves])
def test_lists_that_an_argument_or_a_result_makes_may_change(function: Any) -> None:
    converted = jit(python_control_flow(function))
    for x, n in ((0.7, 3), (-1.5, 1)):
        np.testing.assert_allclose(converted(x, n), function(x, n), rtol=1e-12)
