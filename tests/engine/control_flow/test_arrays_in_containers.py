"""Items of arrays assigned where a list, a dict or an object holds the array: as NumPy's, or refused."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import jit, python_control_flow
from fxgrad.errors import ControlFlowError
from tests.support.converted import assert_as_numpy, assert_differentiable


class Grid:
    def __init__(self, n, x):
        self.cells, self.count, self.x = np.zeros((n, n)), 0, x
        self.__trace = np.zeros(3)

    def put(self, i, j, v):
        self.cells[i, j] = v
        self.count += 1
        self.__trace[i] += v

    def trace(self):
        return self.__trace


def attributes(x, n):
    grid = Grid(3, x)
    for i in range(n):
        if x * i > 1:
            grid.put(i, 1, x)
        else:
            grid.cells[0] += i
        grid.cells[:i, 2] -= 1.0
    return grid.cells, grid.count, grid.trace()


def items_of_a_dict(x, n):
    state = {"x": np.zeros(4), "turn": 0}
    while state["turn"] < n:
        state["x"][state["turn"]] = x * state["turn"]
        state["x"] += 1.0
        state["turn"] += 1
    state["x"][0] = -1
    return state


def items_of_a_list(x, n):
    rows = [np.zeros(3) for _ in range(3)]
    for k in range(n):
        rows[1][k] = x
        rows[k][0] += 2.5
        rows[k][1:] *= k
        rows[-1].sort()
        np.add.at(rows[0], k, x)
    return rows


@dataclasses.dataclass
class Ball:
    place: Any
    speed: Any


def fields(x, n):
    ball = Ball(np.zeros(3), np.ones(3))
    for i in range(n):
        ball.speed[i] -= x
        ball.place += 0.1 * ball.speed
        if ball.place[0] < 0:
            ball.place[0] = 0.0
            ball.speed[0] = -ball.speed[0]
    return ball.place, ball.speed


def containers_of_containers(x, n):
    world = {"bodies": [Ball(np.zeros(2), x * np.ones(2)), Ball(np.ones(2), np.zeros(2))]}
    for i in range(n):
        for body in world["bodies"]:
            body.place[0] += 0.5 * body.speed[1]
        world["bodies"][1].speed[i] = x
    return [body.place for body in world["bodies"]]


def two_names_of_a_list(x, n):
    rows = [np.zeros(3), np.ones(3)]
    same = rows
    for i in range(n):
        same[0][i] = x
        same[0], same[1] = same[1], same[0]
    return rows, same


def beside_an_array_of_the_caller(x, n):
    start = x * np.ones(3)
    state = {"start": start, "sum": np.zeros(3)}
    for i in range(n):
        state["sum"][i] += state["start"][i] + start[0]
    return state


CASES = [attributes, items_of_a_dict, items_of_a_list, fields, containers_of_containers, two_names_of_a_list,
         beside_an_array_of_the_caller]


@pytest.mark.slow
@pytest.mark.parametrize("function", CASES)
@pytest.mark.parametrize("args", [(1.5, 2), (-0.5, 1), (0.7, 0)])
def test_items_are_stored_as_numpy_does(function: Any, args: tuple[float, int]) -> None:
    assert_as_numpy(function, args)


@pytest.mark.slow
@pytest.mark.parametrize("function", [attributes, fields])
def test_gradients_and_batches(function: Any) -> None:
    assert_differentiable(function)


# --- what is refused --------------------------------------------------------------------------------------------------


def two_items_after_a_turn(x, n):
    state = {"x": np.zeros(3), "y": np.zeros(3)}
    for i in range(n):
        state["x"][i] += x  # here
        state["y"] = state["x"]
    return state


def two_items_before(x, n):
    a = np.zeros(3)
    state = {"x": a, "y": a, "z": np.zeros(3)}
    for _ in range(n):
        state["z"][0] += x
    state["x"][0] = 5.0  # here
    return state


def name_before(x, n):
    a = x * np.zeros(3)
    state = {"x": a, "z": np.zeros(3)}
    for _ in range(n):
        state["z"][0] += x
    a[0] = 5.0  # here
    return state, a


def item_after_such_a_loop(x, n):
    a = x * np.zeros(3)
    state = {"x": a, "z": np.zeros(3)}
    for _ in range(n):
        state["z"][0] += x
    state["x"][0] = 5.0  # here
    return state, a


def name_and_item_of_a_branch(x, n):
    state, a = {"x": np.zeros(3)}, np.ones(3)
    if x > n:
        a = state["x"] = np.zeros(3) + x
    state["x"][0] = 7.0  # here
    return state, a


def chosen_item(x, n):
    state = {"x": np.zeros(3), "y": np.ones(3)}
    if x > n:
        state["x"] = state["y"]
    state["x"][0] = 7.0  # here
    return state


def row(x, n):
    state = {"x": np.zeros((3, 3))}
    first = state["x"][0]
    for i in range(n):
        state["x"][i, 0] = x  # here
    return first, state


def operator(x, n):
    a = np.zeros(3)
    state = Ball(a, n)
    state.place += x  # here
    return a, state.place


_OTHERS = "which another name, a container or a view has too and would see change in NumPy. Write"


@pytest.mark.parametrize(("function", "where"), [
    (two_items_after_a_turn, "state['x']"), (two_items_before, "state['x']"), (name_before, "a"),
    (item_after_such_a_loop, "state['x']"), (name_and_item_of_a_branch, "state['x']"), (chosen_item, "state['x']"),
    (row, "state['x']"), (operator, "state.place")])
def test_changes_that_others_would_see_are_refused_by_line(function: Any, where: str) -> None:
    assert refusal(function, 1.5, 2) == (
        f"{where}[...] = v changes the array of `{where}`, {_OTHERS} {where} = {where}.copy() before\n"
        f"  at test_arrays_in_containers.py:{line_of(function)} (in {function.__name__})")


def refusal(function: Any, *args: Any) -> str:
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(function))(*args)
    return str(refused.value)


def line_of(function: Any) -> int:
    lines, first = inspect.getsourcelines(function)
    return next(first + number for number, line in enumerate(lines) if line.rstrip().endswith("# here"))


def of_the_caller(state, x, n):
    for i in range(n):
        state["x"][i] = x  # here
    return state


def test_containers_of_the_caller_are_refused_and_copies_change() -> None:
    assert refusal(of_the_caller, {"x": np.zeros(3)}, 1.5, 2) == (
        "state['x'][...] = v changes the array of `state['x']`, and the dict that holds it was not made by the "
        "converted code: others would see a traced array in it. Write x = dict(x) for the dict, and give x a copy of "
        f"the array\n  at test_arrays_in_containers.py:{line_of(of_the_caller)} (in of_the_caller)")

    def copied(state: Any, x: Any, n: Any) -> Any:
        state = dict(state)
        state["x"] = state["x"].copy()
        for i in range(n):
            state["x"][i] = x
        return state
    given = {"x": np.zeros(3)}
    np.testing.assert_array_equal(jit(python_control_flow(copied))(given, 1.5, 2)["x"], [1.5, 1.5, 0.0])
    np.testing.assert_array_equal(given["x"], np.zeros(3))


def test_numbers_that_are_computed_from_known_arrays_do_not_change_in_place() -> None:
    """As NumPy's scalars: `+=` on an attribute or item had changed the other name too, or it was refused."""
    class Box:
        pass

    def attribute(x: Any, v: Any) -> Any:
        box, total = Box(), np.sum(v)
        box.a = total
        box.a += 1.0
        if x > 0.0:
            box.a *= 2.0
        return x * box.a + total

    def item(x: Any, v: Any) -> Any:
        total = sum(e * e for e in v)
        pair = [total, total]
        pair[0] += x
        if x > 0.0:
            pair[1] -= 1.0
        return pair[0] * pair[1] + total

    v = np.array([0.5, 1.0, 3.0])
    for function in (attribute, item):
        converted = python_control_flow(function)
        expected = [function(x, v) for x in (2.0, -1.0)]
        np.testing.assert_allclose([fxgrad.value_and_grad(converted)(x, v)[0] for x in (2.0, -1.0)], expected)
        np.testing.assert_allclose(fxgrad.vmap(converted, (0, None))(np.array([2.0, -1.0]), v), expected)


def test_arrays_without_axes_change_in_loops_that_end_early() -> None:
    def f(x: Any, v: Any) -> Any:
        count = [np.zeros_like(v[0])]
        for k in range(4):
            count[0] += k
            if count[0] > x:
                break
        return x * count[0]

    xs, v = np.array([2.0, 0.5, 9.0]), np.ones(3)
    np.testing.assert_allclose(fxgrad.vmap(python_control_flow(f), (0, None))(xs, v), [f(x, v) for x in xs])
