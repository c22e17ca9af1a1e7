"""Functions that change arrays of their callers, called from converted code: as NumPy's, or refused."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import jit, python_control_flow
from fxgrad.errors import ControlFlowError
from tests.support.converted import assert_as_numpy, assert_differentiable, assert_refused


def swap(a, i, j):
    a[i], a[j] = a[j], a[i]  # here


def push(heap, n, v):
    heap[n] = v
    i = n
    while i > 0 and heap[(i - 1) // 2] > heap[i]:
        swap(heap, i, (i - 1) // 2)
        i = (i - 1) // 2
    return n + 1


def pop(heap, n):
    top = heap[0]
    n = n - 1
    heap[0] = heap[n]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and heap[child + 1] < heap[child]:
            child = child + 1
        if heap[i] <= heap[child]:
            break
        swap(heap, i, child)
        i = child
    return top, n


def heap_sort(x, n):
    heap, size, out, count = np.zeros(8), 0, np.zeros(8), 0
    for i in range(n):
        size = push(heap, size, np.sin(x * i))
    while size > 0:
        out[count], size = pop(heap, size)
        count += 1
    return out, heap


class Heap:
    def __init__(self, n):
        self.data, self.n = np.zeros(n), 0

    def push(self, v):
        self.n = push(self.data, self.n, v)

    def pop(self):
        v, self.n = pop(heap=self.data, n=self.n)
        return v


def heap_object(x, n):
    heap = Heap(8)
    for i in range(n + 1):
        heap.push(np.sin(x * i))
    total = 0.0
    while heap.n > 0:
        total = 2 * total + heap.pop()
    return total


def bubble_sort(x, n):
    a = np.cos(x * np.arange(6.0))
    for i in range(n + 2):
        for j in range(5 - i):
            if a[j] > a[j + 1]:
                swap(a, j, j + 1)
    return a


def known_calls(x, n):
    a = np.arange(4.0)
    swap(a, 1, 2)
    swap(a, 0, n)
    swap(j=3, i=1, a=a)
    return a * x


def sort_part(a, low, high):
    if high - low <= 1:
        return
    middle = (low + high) // 2
    sort_part(a, low, middle)
    sort_part(a, middle, high)
    out, i, j = np.zeros(high - low), low, middle
    for k in range(high - low):
        if j >= high or (i < middle and a[i] <= a[j]):
            out[k] = a[i]
            i += 1
        else:
            out[k] = a[j]
            j += 1
    for k in range(high - low):
        a[low + k] = out[k]


def merge_sort(x, n):
    a = np.cos(x * np.arange(6.0) + n)
    sort_part(a, 0, 6)
    return a


def through_three_functions(x, n):
    a = np.zeros(4)
    for i in range(n):
        if x > 0:
            outer(a, i, x)
    return a


def outer(a, i, x):
    middle(a, i, x)
    if x > 1:
        middle(a, i, x)


def middle(b, j, x):
    for k in range(j + 1):
        inner(b, k, x)


def inner(c, k, x):
    c[k] += x


def of_containers(x, n):
    rows, columns = [np.zeros(3), np.ones(3)], {"u": np.arange(3.0)}
    for i in range(n):
        swap(rows[0], 0, i)
        inner(rows[1], i, x)
        inner(columns["u"], i, x)
    return rows, columns


def changed_by_operators(x, n):
    a, b = np.ones(3) * x, np.ones(3)
    scale(a, x)
    scale(b, x)
    for i in range(n):
        scale(a, i)
    return a, b


def scale(a, v):
    a += v
    a *= 2


def returned_again(x, n):
    a = np.ones(3)
    a = first(a, x)
    a[1] = 5.0
    for i in range(n):
        a = first(a, x * i)
    return a


def first(a, v):
    a[0] = v
    return a


def nested_functions(x, n):
    table, diagonal = np.zeros(5), np.zeros(3)

    def put(i, v):
        table[i] += v

    def twice(i):
        put(i, x)
        put(i + 1, 1.0)
        if x > i:
            swap(table, i, 4)

    def fill():
        for i in range(n):
            diagonal[i] = x
            if x > i:
                put(4, i)
    twice(0)
    fill()
    i = 0
    while i < n:
        twice(i)
        i += 1
    table[1] -= 1.0
    return table, diagonal


CASES = [heap_sort, heap_object, bubble_sort, known_calls, merge_sort, through_three_functions, of_containers,
         changed_by_operators, returned_again, nested_functions]


@pytest.mark.slow
@pytest.mark.parametrize("function", CASES)
@pytest.mark.parametrize("args", [(1.5, 2), (-0.5, 3), (0.7, 0)])
def test_arrays_change_as_in_numpy(function: Any, args: tuple[float, int]) -> None:
    assert_as_numpy(function, args)


@pytest.mark.slow
@pytest.mark.parametrize("function", [heap_object, through_three_functions])
def test_gradients_and_batches(function: Any) -> None:
    assert_differentiable(function)


def mean_of(a):
    return np.sum(a) / len(a)


def only_read(x, n):
    a, total = x * np.arange(4.0), 0.0
    for i in range(n):
        total = total + mean_of(a) * i
    return total


def test_an_array_that_a_function_only_reads_is_no_variable_of_the_loop() -> None:
    program = fxgrad.make_program(python_control_flow(only_read))(1.5, 2)
    loop = next(each for each in program.equations if each.primitive.name == "for")
    assert [var.aval.shape for var in loop.outputs] == [(), ()]


# --- what is refused --------------------------------------------------------------------------------------------------


def result_has_another_name(x, n):
    a = np.ones(3)
    b = first(a, x)
    b[1] = n  # here
    return a, b


def early(a, v):
    if v > 1:
        a[0] = v
        return a
    a[1] = v
    return a


def result_of_an_early_return(x, n):
    a = np.ones(3)
    b = early(a, x)
    a[2] = n  # here
    return a, b


def in_an_expression(x, n):
    a = np.zeros(3)
    taken = step(a, 0) if x > n else step(a, 1)
    return a, taken


def step(a, i):
    a[i] += 1.0  # here
    return a[i]


def two_parameters(x, n):
    a = np.zeros(3)
    both(a, a)
    return a


def both(a, b):
    a[0] = 1.0
    b[1] = 2.0


def both_traced(a, b, v):
    a[0] = v  # here
    b[1] = 2.0


def two_traced_parameters(x, n):
    a = np.zeros(3)
    both_traced(a, a, x)
    return a


def stores(a, kept, v):
    a[0] = v
    kept.append(a)


def kept_in_a_list(x, n):
    a, kept = np.zeros(3), []
    stores(a, kept, x)
    a[1] = x  # here
    return a, kept


def repeat(f, count):
    for i in range(count):
        f(i)


def nested_function_called_by_another(x, n):
    table = np.zeros(5)

    def put(i):
        table[i] += x  # here
    repeat(put, n)
    return table


_OTHERS = "which another name, a container or a view has too and would see change in NumPy. Write"
_CALLER = "which the caller, another name or a view has too and would see change in NumPy. Write"


@pytest.mark.parametrize(("function", "at", "message"), [
    (result_has_another_name, None, f"b[...] = v changes the array of `b`, {_OTHERS} b = b.copy() before"),
    (result_of_an_early_return, None, f"a[...] = v changes the array of `a`, {_OTHERS} a = a.copy() before"),
    (in_an_expression, step, (
        "a[...] = v changes an array of the caller inside the traced `if` at test_changed_arguments.py:"
        f"{inspect.getsourcelines(in_an_expression)[1] + 2} (in in_an_expression), which does not give it back: an "
        "expression, the condition of a `while`, or a call by another name. Call the function in a statement of its "
        "own, and use the result")),
    (two_traced_parameters, both_traced, (
        f"a[...] = v changes the array of `a`, {_CALLER} a = a.copy() before, and return a")),
    (kept_in_a_list, None, f"a[...] = v changes the array of `a`, {_OTHERS} a = a.copy() before"),
    (nested_function_called_by_another, None, (
        "table[...] = v changes the array of `table`, which belongs to a scope outside, inside the traced `for` at "
        f"test_changed_arguments.py:{inspect.getsourcelines(repeat)[1] + 1} (in repeat), which is traced once and may "
        "run never or often. Pass `table` as an argument")),
])
def test_changes_that_others_would_see_are_refused_by_line(function: Any, at: Any, message: str) -> None:
    assert_refused(function, at, message, "put" if function is nested_function_called_by_another else None)


def test_known_changes_of_two_parameters_are_numpys() -> None:
    np.testing.assert_array_equal(jit(python_control_flow(two_parameters))(1.5, 2), [1.0, 2.0, 0.0])


def test_an_array_is_not_read_by_another_name_while_a_function_changes_it() -> None:
    def closure(x: Any) -> Any:
        table = np.zeros(3)

        def put(a: Any) -> Any:
            a[0] = x
            return table[0]
        return put(table)
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(closure))(1.5)
    assert str(refused.value).startswith(
        "an array is read by another name while a function that it was passed to changes it. Read it by the name of "
        "the parameter\n  at test_changed_arguments.py:")


def test_what_the_refusal_of_a_nested_function_says_works() -> None:
    def filled(x: Any, n: Any) -> Any:
        table = np.zeros(5)

        def put(table: Any, i: Any) -> None:
            table[i] += x
        for i in range(n):
            put(table, i)
        return table
    np.testing.assert_array_equal(jit(python_control_flow(filled))(1.5, 2), [1.5, 1.5, 0.0, 0.0, 0.0])


def test_what_the_refusal_of_an_expression_says_works() -> None:
    def statements(x: Any, n: Any) -> Any:
        a = np.zeros(3)
        if x > n:
            taken = step(a, 0)
        else:
            taken = step(a, 1)
        return a, taken
    for args in ((1.5, 2), (2.5, 2)):
        found = jit(python_control_flow(statements))(*args)
        np.testing.assert_array_equal(found[0], statements(*args)[0])
        assert found[1] == 1.0


def test_changes_before_an_exception_remain() -> None:
    def failing(a: Any, x: Any) -> None:
        a[0] = x
        raise ValueError

    def caught(x: Any) -> Any:
        a = np.zeros(3)
        try:
            failing(a, x)
        except ValueError:
            a[1] = 2.0
        a[2] = x
        return a
    np.testing.assert_array_equal(jit(python_control_flow(caught))(1.5), [1.5, 2.0, 1.5])


def test_nested_functions_may_give_a_variable_around_another_array() -> None:
    def shifted(n: Any) -> Any:
        table = np.arange(4.0)

        def shift(i: Any) -> None:
            nonlocal table
            table = table + 1.0
            table[i] = 0.0
        for i in range(n):
            shift(i)
        return table
    np.testing.assert_array_equal(python_control_flow(shifted)(3), [2.0, 1.0, 0.0, 6.0])


@pytest.mark.parametrize("word", ["if", "and"])
def test_changes_in_expressions_that_a_traced_condition_chooses_are_refused(word: str) -> None:
    def sort_or_fill(x: Any) -> Any:
        table = np.array([2.0, 1.0])
        table.sort() if x > 0 else table.fill(x)
        return table

    def fill(x: Any) -> Any:
        table = np.zeros(2)
        filled = x > 0 and table.fill(x)
        return table, filled
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(sort_or_fill if word == "if" else fill))(1.5)
    assert str(refused.value).startswith(
        f"the array of `table` changes in an expression that the traced `{word}` at test_changed_arguments.py:")
    assert "chooses. Write an `if` statement\n" in str(refused.value)


def test_methods_of_nested_classes_and_constructors_are_converted() -> None:
    def simulated(x: Any, n: Any) -> Any:
        table = np.zeros(4)

        class Base:
            def __init__(self, v: Any) -> None:
                self.__v, self.log = v, np.array([v, 1.0])
                if v > 1:
                    self.log[1] = v

            def get(self) -> Any:
                return 2.0 * self.__v if self.__v > 1 else self.__v

        class Derived(Base):
            def __init__(self, v: Any) -> None:
                super().__init__(v)
                self.count = 0

            def get(self) -> Any:
                found = super().get()
                for i in range(n):
                    self.log[0] += found * i
                    self.count += 1
                table[0] = found
                return found
        one = Derived(x)
        return one.get() + one.get(), one.log, one.count, table
    for args in ((1.5, 2), (0.5, 3)):
        found = fxgrad.tree.leaves(jit(python_control_flow(simulated))(*args))
        for one, other in zip(found, fxgrad.tree.leaves(simulated(*args)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_method_that_changes_an_array_of_a_function_around_is_not_called_in_its_blocks() -> None:
    def filled(x: Any, n: Any) -> Any:
        table = np.zeros(4)

        class Writer:
            def put(self, i: Any) -> None:
                table[i] = x
        writer = Writer()
        for i in range(n):
            writer.put(i)
        return table
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(filled))(1.5, 2)
    assert str(refused.value).startswith(
        "table[...] = v changes the array of `table`, which belongs to a scope outside, inside the traced `for` at ")


def test_parameters_of_a_lambda_may_have_the_names_of_other_variables() -> None:
    def last(values: Any, erase: bool) -> Any:
        if erase:
            values[-1] = 0.0
        return values[-1]

    def function(a: Any) -> Any:
        x = np.zeros(3)
        read = lambda x: last(x, False)
        return read(np.ones(3) * a) + x[0]
    assert jit(python_control_flow(function))(1.5) == function(1.5)
