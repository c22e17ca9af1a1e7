"""Repeated stretches are found with their data flow: planted, near and rotated ones, in time linear in the size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.analyses.repeats import Output, Repeat, find_repeats

X = np.ones(3)


def repeats(function: Callable[..., Any], *args: Any, at_least: int = 2) -> list[Repeat]:
    return find_repeats(fxgrad.make_program(function, as_recorded=True)(*args), at_least).repeats


def shapes(found: list[Repeat]) -> list[tuple[int, int]]:
    """Copies and equations of each repeat."""
    return [(len(repeat.copies), len(repeat.block)) for repeat in found]


def names(repeat: Repeat) -> list[str]:
    return [str(equation.primitive) for equation in repeat.block]


@pytest.mark.parametrize("copies", [2, 3, 7, 32, 100])
def test_a_planted_block_is_found_with_what_it_shares_and_carries(copies: int) -> None:
    def function(x: Any, w: Any) -> Any:
        x = fnp.exp(x) - 1.0
        for _ in range(copies):
            x = fnp.tanh(x * w) + fnp.sin(w)
        return fnp.cos(fnp.sqrt(x))

    found, = repeats(function, X, X)
    assert shapes([found]) == [(copies, 4)]
    assert len(found.flow.shared) == 1
    assert len(found.flow.carried) == 1
    assert not found.flow.by_copy


def test_operands_say_where_they_come_from() -> None:
    def function(x: Any, y: Any) -> Any:
        for _ in range(5):
            x = fnp.tanh(x) * y
        return x

    found, = repeats(function, X, X)
    assert names(found) == ["tanh", "mul"]
    assert found.flow.operands == [[1], [Output(0, 0), 0]]  # input 0 is shared, input 1 carried
    assert [carry.output for carry in found.flow.carried] == [Output(1, 0)]


def test_values_by_copy_are_columns() -> None:
    def function(x: Any, weights: Any) -> Any:
        for weight in weights:
            x = fnp.tanh(x * weight)
        return x

    found, = repeats(function, X, [X] * 6)
    column, = found.flow.by_copy
    assert len(column) == 6
    assert len({*column}) == 6


def test_literals_that_differ_are_values_by_copy_and_equal_ones_part_of_the_block() -> None:
    def function(x: Any) -> Any:
        for step in range(5):
            x = fnp.tanh(x * (step + 2.0)) + 0.5
        return x

    found, = repeats(function, X)
    column, = found.flow.by_copy
    assert [float(literal.value) for literal in column] == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert float(found.flow.operands[2][1].value) == 0.5


def test_a_copy_with_another_flow_ends_the_repeat() -> None:
    def function(x: Any, y: Any) -> Any:
        for step in range(9):
            inner = fnp.tanh(x)
            x = inner * y if step != 5 else x * y  # the same operations, of other operands
        return x

    found = repeats(function, X, X)
    assert shapes(found) == [(5, 2), (3, 2)]


@pytest.mark.parametrize("change", [
    lambda x: fnp.sinh(x), lambda x: fnp.tanh(x.astype("float32")).astype("float64"), lambda x: fnp.tanh(x)[::-1]],
    ids=["operation", "dtype", "parameters"])
def test_near_repeats_are_two_repeats(change: Callable[[Any], Any]) -> None:
    def function(x: Any) -> Any:
        for step in range(12):
            x = (fnp.tanh(x) if step != 6 else change(x)) * 2.0 + fnp.cos(x)
        return x

    found = repeats(function, X)
    assert shapes(found) == [(6, 4), (5, 4)]


def test_the_rotation_passes_the_fewest_values() -> None:
    """Three values pass from copy to copy at some places of the block, and one alone where it begins."""
    def function(x: Any) -> Any:
        for _ in range(8):
            a, b = fnp.sin(x), fnp.cos(x)
            x = (a * b) / (a + b)
        return x

    program = fxgrad.make_program(lambda x: function(fnp.cos(x) * fnp.sin(x)), as_recorded=True)(X)
    found, = find_repeats(program).repeats
    assert names(found) == ["sin", "cos", "mul", "add", "div"]
    assert len(found.flow.carried) == 1
    assert len(found.copies) == 8


def test_accumulated_values_are_carried_too() -> None:
    def function(x: Any, total: Any) -> Any:
        for _ in range(6):
            x = fnp.tanh(x)
            total = total + x * x
        return x, total

    found, = repeats(function, X, X)
    assert len(found.flow.carried) == 2


def test_entries_of_an_input_belong_to_no_copy() -> None:
    def function(x: Any, w: Any, v: Any) -> Any:
        for index in range(5):
            x = fnp.tanh(x @ w[index]) + v[:, 4 - index]
        return x

    program = fxgrad.make_program(function)(X, np.ones((5, 3, 3)), np.ones((3, 5)))
    found = find_repeats(program)
    repeat, = found.repeats
    assert names(repeat) == ["dot_general", "tanh", "add"]
    ways = [[(found.rows[atom].axis, found.rows[atom].place) for atom in column] for column in repeat.flow.by_copy]
    assert ways == [[(0, 0), (0, 1), (0, 2), (0, 3), (0, 4)], [(1, 4), (1, 3), (1, 2), (1, 1), (1, 0)]]


def test_entries_of_an_array_that_a_copy_computes_belong_to_the_copy() -> None:
    def function(x: Any) -> Any:
        for _ in range(4):
            parts = fnp.reshape(fnp.tanh(x), (6, 2))
            x = fnp.concatenate([parts[5] * parts[0], parts[4], parts[3], parts[2] + parts[1], x[:4]])
        return x

    found, = repeats(function, np.ones(12))
    assert len(found.copies) == 4
    assert "slice" in names(found)


def test_forward_and_backward_stretches_are_both_found() -> None:
    def function(x: Any, weights: Any) -> Any:
        for weight in weights:
            x = x + fnp.tanh(x @ weight)
        return fnp.sum(x)

    program = fxgrad.make_program(fxgrad.grad(function, argnums=1))(X, [np.ones((3, 3))] * 8)
    forward, backward = find_repeats(program, 3).repeats
    assert len(forward.copies) >= 7
    assert len(backward.copies) >= 6
    assert len(backward.flow.carried) == 1


def test_effects_repeat_nothing_and_pure_callbacks_do() -> None:
    def function(x: Any) -> Any:
        for _ in range(6):
            x = fnp.tanh(x) * 2.0
            fxgrad.debug.print("{}", x)
        return x

    def with_callback(x: Any) -> Any:
        for _ in range(6):
            x = fxgrad.pure_callback(np.sin, fxgrad.ShapeDtypeStruct((3,), "float64"), fnp.tanh(x) * 2.0)
        return x

    assert not repeats(function, X)
    assert shapes(repeats(with_callback, X)) == [(6, 3)]


def test_nothing_is_found_where_nothing_repeats() -> None:
    assert not repeats(lambda x: fnp.sin(fnp.cos(fnp.tanh(x))), X)
    assert not repeats(lambda x: x, X)


@pytest.mark.slow
def test_the_work_is_linear_in_the_number_of_equations() -> None:
    def function(depth: int) -> Callable[..., Any]:
        def network(x: Any, w: Any) -> Any:
            for _ in range(depth):
                x = x + fnp.tanh(x * w) * fnp.cos(x)
            return fnp.sum(x)
        return network

    work = {}
    for depth in (50, 500, 2000):
        program = fxgrad.make_program(fxgrad.grad(function(depth)), as_recorded=True)(X, X)
        found = find_repeats(program, 3)
        assert found.repeats
        assert max(len(repeat.copies) for repeat in found.repeats) >= depth - 3
        work[depth] = found.work / len(program.equations)
    assert len(program.equations) > 10_000
    assert max(work.values()) <= 1.2 * min(work.values())
    assert max(work.values()) < 8
