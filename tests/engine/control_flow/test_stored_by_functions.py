"""Arrays that `np.put`, `putmask`, `place`, `put_along_axis` and `copyto` change in converted functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fxgrad import grad, jit, python_control_flow, vmap
from fxgrad.errors import ControlFlowError

X = np.array([1.5, -2.0, 3.25, 4.0, -1.0, 0.1])
OTHERS = [X, -X, np.abs(X)]
CASES = []


def case(function: Any) -> Any:
    CASES.append(function)
    return function


@case
def at_places(x):
    y = x * 2
    np.put(y, [0, 2], [7.0, 8.0])
    return y


@case
def traced_values(x):
    y = np.zeros(6)
    np.put(y, np.array([0, 2]), x[:2])
    return y


@case
def by_the_method(x):
    y = x * 2
    y.put([0, 2], [7.0, 8.0])
    return y


@case
def one_value_at_a_mask(x):
    y = x * 2
    np.putmask(y, y > 0, -1.0)
    return y


@case
def values_at_a_mask(x):
    y = x * 2
    np.putmask(y, y > 0, x)
    return y


@case
def values_that_repeat(x):
    y = x * 2
    np.putmask(y, y > 0, np.array([1.0, 2.0]))
    return y


@case
def values_in_order(x):
    y = x * 2
    np.place(y, y > 0, [1.0, 2.0])
    return y


@case
def copied_where(x):
    y = x * 2
    np.copyto(y, 3.0, where=x > 0)
    return y


@case
def array_copied_where(x):
    y = x * 2
    np.copyto(y, x, where=x > 0)
    return y


@case
def along_an_axis(x):
    y = np.outer(x, x)
    np.put_along_axis(y, np.argmax(y, axis=1)[:, None], 0.0, axis=1)
    return y


@case
def on_a_condition(x):
    y = x * 2
    if x[0] > 0:
        np.put(y, 0, 3.0)
    return y


@case
def mask_on_a_condition(x):
    y = x * 2
    if x[0] > 0:
        np.putmask(y, x < 0, 3.0)
    return y


@case
def copied_on_a_condition(x):
    y = x * 2
    if x[0] > 0:
        np.copyto(y, 3.0, where=x > 0)
    return y


@case
def into_a_known_array(x):
    y = np.zeros(6)
    np.put(y, 0, x[0])
    return y


@case
def mask_of_a_known_array(x):
    y = np.zeros(6)
    np.putmask(y, x > 0, 1.0)
    return y


@case
def place_in_a_known_array(x):
    y = np.zeros(6)
    np.place(y, x > 0, 1.0)
    return y


@case
def places_from_the_end(x):
    y = x * 2
    np.put(y, [-1, 1], x[:2])
    return y


@case
def traced_places(x):
    y = x * 2
    np.put(y, [int(x[0] > 0), 3], 9.0)
    return y


@case
def places_that_are_clipped(x):
    y = x * 2
    np.put(y, [9, -9], [9.0, 8.0], mode="clip")
    return y


@case
def places_of_a_matrix(x):
    y = (x * 2).reshape(2, 3)
    np.put(y, [4, 1], [9.0, 8.0])
    return y


@case
def other_dtype(x):
    y = np.zeros(6, np.float32)
    np.put(y, [4, 1], x[:2])
    return y


@case
def mask_of_a_matrix(x):
    y = (x * 2).reshape(2, 3)
    np.putmask(y, y > 0, [1.0, 2.0, 3.0, 4.0])
    return y


@case
def empty_mask(x):
    y = x * 2
    np.place(y, x > 99, [1.0, 2.0])
    return y


@case
def in_a_loop(x):
    y = np.zeros(6)
    i = 0
    while i < 6:
        if x[i] > 0:
            np.put(y, [i, 0], x[i])
        np.putmask(y, y > 3, -1.0)
        i += 1
    return y


@case
def rows_of_a_matrix(x):
    y = np.zeros((2, 3))
    np.put(y[1], [0], x[0])
    np.putmask(y[0], x[:3] > 0, 2.0)
    return y


@case
def attribute(x):

    class A:
        pass
    a = A()
    a.y = np.zeros(3)
    np.put(a.y, [1], x[0])
    a.y.put([0], x[1])
    np.copyto(a.y, 7.0, where=x[:3] > 1)
    return a.y


@case
def array_of_the_caller(x):

    def f(y):
        np.put(y, [0], 5.0)
        np.place(y, y < 0, 0.0)
    y = x * 2
    f(y)
    return y


@case
def copied_along_rows(x):
    y = np.zeros((2, 3))
    np.copyto(y, x[:3])
    np.copyto(y, x[3], where=np.array([True, False, True]))
    return y


@case
def values_along_an_axis(x):
    y = np.outer(x, x)
    np.put_along_axis(y, np.array([[1], [2], [0], [0], [1], [5]]), x[:, None], 1)
    return y


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_arrays_are_those_of_numpy(function: Any) -> None:
    compiled = jit(python_control_flow(function))
    for x in OTHERS:
        found, expected = compiled(x.copy()), function(x.copy())
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_derivatives_batches_and_float32() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        np.putmask(y, x > 1, np.sin(x))
        if x[0] > 0:
            np.put(y, [1, 3], x[:2] ** 2)
        np.copyto(y, x * x, where=x < 0)
        return np.sum(y * x)

    step, converted = 1e-6, python_control_flow(function)
    expected = [(function(X + step * unit) - function(X - step * unit)) / (2 * step) for unit in np.eye(6)]
    np.testing.assert_allclose(jit(grad(converted))(X), expected, rtol=1e-7, atol=1e-8)
    batch = np.stack([X, -X])
    np.testing.assert_allclose(vmap(converted)(batch), [function(row) for row in batch], rtol=1e-12)
    narrow = X.astype(np.float32)
    assert jit(converted)(narrow).dtype == np.float32
    np.testing.assert_allclose(jit(converted)(narrow), function(narrow), rtol=1e-6)


def test_an_array_with_another_name_is_refused() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        z = y
        np.put(y, [0], 1.0)
        return z

    with pytest.raises(ControlFlowError, match="another name, a container or a view has too"):
        jit(python_control_flow(function))(X)
