"""Containers of Python's library that traced blocks change by methods and functions: refused by line, or as Python."""

from __future__ import annotations

import array
import bisect
import heapq
from collections import Counter, OrderedDict, deque
from typing import Any

import numpy as np
import pytest

from fxgrad import jit, python_control_flow, vmap
from fxgrad.errors import ControlFlowError

XS = np.array([2.0, -1.0])


def appended(x: Any) -> Any:
    queue = deque([1.0, 2.0])
    if x > 0:
        queue.append(3.0)
    return x * sum(queue)


def taken(x: Any) -> Any:
    queue, y = deque([1.0, 2.0]), x
    while y < 3.0:
        y = y + queue.popleft()
    return y


def appended_before_the_end(x: Any) -> Any:
    queue = deque([1.0, 2.0])
    for k in range(3):
        queue.append(k)
        if x * k > 1:
            break
    return x * sum(queue)


def counted(x: Any) -> Any:
    found = Counter(a=1)
    if x > 0:
        found.update(a=5)
    return x * found["a"]


def moved(x: Any) -> Any:
    order = OrderedDict(a=1.0, b=2.0)
    if x > 0:
        order.move_to_end("a")
    return x * next(iter(order.values()))


def extended(x: Any) -> Any:
    numbers = array.array("d", [1.0])
    if x > 0:
        numbers.extend([2.0])
    return x * sum(numbers)


def advanced(x: Any) -> Any:
    items = iter([1.0, 2.0])
    if x > 0:
        next(items)
    return x * next(items)


def pushed(x: Any) -> Any:
    heap = [3.0, 4.0]
    if x > 0:
        heapq.heappush(heap, 1.0)
    return x * heap[0]


def inserted(x: Any) -> Any:
    numbers = [1.0, 3.0]
    if x > 0:
        bisect.insort(numbers, 2.0)
    return x * numbers[1]


def called_by_the_class(x: Any) -> Any:
    numbers = [1.0, 3.0]
    if x > 0:
        list.append(numbers, 2.0)
    return x * len(numbers)


@pytest.mark.parametrize("function", [pushed, inserted, called_by_the_class])
@pytest.mark.parametrize("x", [1.5, -1.5])
def test_lists_grow_on_a_traced_condition(function: Any, x: float) -> None:
    assert jit(python_control_flow(function))(x) == function(x)


@pytest.mark.parametrize(("function", "message"), [
    (appended, ".append() changes a deque"), (taken, ".popleft() changes a deque"), (counted, ".update() changes a C"),
    (appended_before_the_end, ".append() changes a deque"), (moved, ".move_to_end() changes an OrderedDict"),
    (extended, ".extend() changes an array"),
    (advanced, "next() takes an item from an iterator inside the traced `if`"),
])
def test_changes_that_depend_on_a_traced_condition_are_refused(function: Any, message: str) -> None:
    """They had happened once, whether the condition was true or not."""
    with pytest.raises(ControlFlowError) as raised:
        vmap(python_control_flow(function))(XS)
    first = function.__code__.co_firstlineno
    assert str(raised.value).startswith(message)
    assert any(f"test_library_containers.py:{line} (in {function.__name__})" in str(raised.value)
               for line in range(first + 2, first + 6))


class Box:
    def __init__(self) -> None:
        object.__init__(self)
        self.item, self.other = 1.0, 1.0


def changed_as_in_python(x: Any) -> Any:
    heap, pair, box = [3.0, 4.0], [1.0, 2.0], Box()
    if x > 0:
        heapq.heapreplace(heap, 9.0)
        pair.__setitem__(0, 5.0)
        setattr(box, "item", 2.0)  # noqa: B010
        object.__setattr__(box, "other", 3.0)
        queue = deque([x])
        queue.append(2.0)
        items = iter([7.0, 8.0])
        y = queue.popleft() + next(items) + next(items) + Box().item
    else:
        y = 0.0
    return x * (heap[0] + pair[0] + box.item + box.other) + y


def known_to_python(x: Any) -> Any:
    heap, queue, items = [3.0, 1.0, 2.0], deque([1.0]), iter([1.0, 2.0])
    heapq.heapify(heap)
    queue.append(2.0)
    y = heapq.heappop(heap) + queue.pop() + next(items) + next(items)
    return x * y if x > 0 else y + sum(heap)


@pytest.mark.parametrize("function", [changed_as_in_python, known_to_python])
def test_other_changes_are_those_of_python(function: Any) -> None:
    np.testing.assert_array_equal(vmap(python_control_flow(function))(XS), [function(x) for x in XS])
