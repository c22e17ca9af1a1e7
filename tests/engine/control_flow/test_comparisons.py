"""Tuples, lists and dataclasses of traced numbers are compared as Python does, item by item."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from fxgrad import jit, python_control_flow, vmap

Pair = namedtuple("Pair", "first second")  # noqa: PYI024  (its items have no types here)


@dataclasses.dataclass(order=True)
class Place:
    row: Any
    column: Any
    name: str = dataclasses.field(default="", compare=False)


class Parity:
    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return self.number % 2 == other.number % 2

    __hash__ = None


def walk(n, x):
    place, goal, steps = (n, 0), (3, 2), 0
    while place != goal and steps < 20:
        row, column = place
        place = (row + 1, column) if row < 3 else (row, column + 1)
        steps += 1
    return steps * x


def in_order(n, x):
    one, other = (n, x), (2, 0.3)
    if one < other:
        return x * 2 + (one <= other)
    if one >= other:
        return x * 3 + (other > one)
    return x


def of_unequal_lengths(n, x):
    one, other = [n], [n, 1]
    return (one < other) + 2 * (one == other) + 4 * (one != other) + 8 * (other >= one) + 16 * (one > other) + 0 * x


def nested(n, x):
    one, other = (n, (x, 1)), (2, (x, 2))
    return (one < other) + 2 * (one == (n, (x, 1))) + 4 * (other <= one)


def not_a_number(n, x):
    nan = x * np.nan
    one, other = (nan, 1), (nan, 1)
    return (one == other) + 2 * (one <= other) + 4 * ((nan,) <= (x,)) + 8 * ((x, nan) < (x + 1, nan))


def among_others(n, x):
    walls, place = [(1, 1), (2, n), [2, n]], (n, n)
    if place in walls:
        x = x * 5
    return x + walls.index((2, n)) + walls.count((n, n)) + (place not in walls)


def of_classes(n, x):
    one, other, pair = Place(n, 1, "a"), Place(2, 1, "b"), Pair(n, 2)
    found = (one == other) + 2 * (one < other) + 4 * (one >= other)
    found += 8 * (pair == Pair(2, 2)) + 16 * (pair < Pair(2, 3))
    return found + 32 * (Parity(n) == Parity(n + 2)) + x


def chained(n, x):
    low, high, middle = (0, 0.0), (2, 0.5), (n, x)
    return (low < middle < high) + 2 * (low <= (0, 0.0) <= middle)


@pytest.mark.parametrize("function", [
    walk, in_order, of_unequal_lengths, nested, not_a_number, among_others, of_classes, chained])
def test_containers_compare_as_in_python(function: Any) -> None:
    numbers, xs = np.array([0, 1, 2, 2, 3]), np.array([0.1, 0.7, 0.1, 0.7, 0.3])
    expected = [function(int(n), float(x)) for n, x in zip(numbers, xs, strict=True)]
    converted = python_control_flow(function)
    np.testing.assert_allclose(vmap(converted)(numbers, xs), expected, rtol=1e-15)
    np.testing.assert_allclose([jit(converted)(n, x) for n, x in zip(numbers, xs, strict=True)], expected, rtol=1e-15)
