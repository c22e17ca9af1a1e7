"""Functions that mix what Python has, converted, beside the functions themselves: values, dtypes, gradients."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, python_control_flow, vmap
from fxgrad.errors import ControlFlowError
from tests.engine.control_flow import mixed_functions
from tests.support.converted import assert_as_numpy, assert_refused

FUNCTIONS = [each for _, each in inspect.getmembers(mixed_functions, inspect.isfunction)
             if [*inspect.signature(each).parameters] == ["x", "n"]]


def total(function: Any, x: Any, n: int) -> Any:
    """Return the sum of the results, each with a factor of its own."""
    return sum((place + 1.5) * np.sum(np.real(leaf) * 1.0)
               for place, leaf in enumerate(fxgrad.tree.leaves(function(x, n))))


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_and_dtypes_are_numpys(function: Any) -> None:
    compiled = jit(python_control_flow(function))
    for args in ((1.37, 3), (-0.71, 2), (0.23, 5)):
        assert_as_numpy(function, args)
        for one, other in zip(fxgrad.tree.leaves(compiled(*args)), fxgrad.tree.leaves(function(*args)), strict=True):
            assert np.asarray(one).dtype == np.asarray(other).dtype


@pytest.mark.slow
@pytest.mark.parametrize("function", [each for each in FUNCTIONS if each not in (
    mixed_functions.single_precision, mixed_functions.types_are_compared)])  # elements of batches are NumPy's numbers
def test_gradients_and_batches(function: Any) -> None:
    converted = python_control_flow(function)
    points, step = ((1.37, 3), (-0.71, 2), (0.23, 5)), 1e-6
    expected = [(total(function, x + step, n) - total(function, x - step, n)) / (2 * step) for x, n in points]
    compiled = (jit(grad(lambda x, n: total(converted, x, n))), jit(fxgrad.jacfwd(lambda x, n: total(converted, x, n))))
    for (x, n), slope in zip(points, expected, strict=True):
        for found in (grad(lambda x: total(converted, x, n))(x),  # noqa: B023
                      *(each(x, n) for each in compiled)):
            np.testing.assert_allclose(found, slope, rtol=1e-5, atol=1e-6)
    x, n = points[0]
    np.testing.assert_allclose(jit(grad(lambda x: total(converted, x, n)))(x), expected[0], rtol=1e-5, atol=1e-6)
    xs = np.array([1.37, -0.71, 0.23])
    np.testing.assert_allclose(jit(vmap(lambda x: total(converted, x, 3)))(xs), [total(function, x, 3) for x in [*xs]],
                               rtol=1e-12, atol=1e-12)
    slopes = jit(vmap(grad(lambda x, n: total(converted, x, n))))(xs, np.array([3, 2, 5]))
    np.testing.assert_allclose(slopes, [grad(lambda x: total(converted, x, n))(x)  # noqa: B023
                                        for x, n in points], rtol=1e-12, atol=1e-12)


def compared_with_true(x: Any) -> Any:
    flag = x > 0
    if flag is True:  # here
        return x
    return -x


def compared_with_false(x: Any) -> Any:
    return x if (x > 0) is not False else -x  # here


def matched_with_true(x: Any) -> Any:
    match x > 0:
        case True:  # here
            return x
        case _:
            return -x


def pair_matched_with_true(x: Any) -> Any:
    match [x > 0, x]:  # here
        case [True, value]:
            return value
        case _:
            return -x


@pytest.mark.parametrize("function", [
    compared_with_true, compared_with_false, matched_with_true, pair_matched_with_true])
@pytest.mark.parametrize("wrap", [jit, grad, lambda f: lambda x: vmap(f)(np.array([x]))], ids=["jit", "grad", "vmap"])
def test_conditions_are_not_compared_with_the_objects_of_python(function: Any, wrap: Any) -> None:
    lines, begin = inspect.getsourcelines(function)
    line = next(begin + number for number, each in enumerate(lines) if each.rstrip().endswith("# here"))
    with pytest.raises(ControlFlowError) as refused:
        wrap(python_control_flow(function))(1.5)
    assert str(refused.value) == (
        "`is True`, `is False`, and `case True` or `case False` of a `match`, ask for an object of Python's, which no "
        f"traced condition is. Write `if x:` or `if not x:`\n  at test_mixed_functions.py:{line} (in "
        f"{function.__name__})")


def sum_of_conditions(x: Any) -> Any:
    return x * ((x > 0) + (not x < 1) + (x < 9))  # here


@pytest.mark.parametrize("wrap", [jit, grad, lambda f: lambda x: vmap(f)(np.array([x]))], ids=["jit", "grad", "vmap"])
def test_the_sum_of_conditions_is_refused(wrap: Any) -> None:
    line = inspect.getsourcelines(sum_of_conditions)[1] + 1
    with pytest.raises(ControlFlowError) as refused:
        wrap(python_control_flow(sum_of_conditions))(1.5)
    assert str(refused.value) == (
        "the sum of two conditions is their number in Python, and True in NumPy, where one of them holds. Write int(a) "
        f"+ int(b), or `a or b`\n  at test_mixed_functions.py:{line} (in sum_of_conditions)")
    assert python_control_flow(sum_of_conditions)(1.5) == 4.5


def test_sums_of_conditions_on_arrays_and_of_whole_numbers_are_numpys() -> None:
    def sums(x: Any) -> Any:
        y = np.array([1.0, 2.0]) * x
        return (y > 1) + (y < 2), int(x > 0) + int(x < 9), (x > 0) + 1
    for found, wanted in zip(jit(python_control_flow(sums))(1.5), sums(1.5), strict=True):
        np.testing.assert_array_equal(found, wanted)


def first_above(x: Any) -> Any:
    return next(k for k in itertools.count() if k * k > x)  # here


def test_a_comprehension_without_an_end_is_refused() -> None:
    line = inspect.getsourcelines(first_above)[1] + 1
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(first_above))(1.5)
    assert str(refused.value) == (
        "the filter of a comprehension without an end is traced, in next(). Write `while True`, and count the turns: "
        f"k += 1\n  at test_mixed_functions.py:{line} (in first_above)")


def last_of_a_chain(x: Any) -> Any:
    if x > 0.5 and (part := x - 0.1) > 0.7 and (square := part * part) < 0.9:
        y = np.sin(square)
    elif x > 1.5 and (part := x - 0.2) > 1.7:
        y = part * 2.0
    elif x > 2.5 and not (x < 2.6 or (part := x - 0.3) < 2.7):
        y = part * 3.0
    elif x < -5 or (part := x * x) > 9:
        y = np.tan(x)
    else:
        y = np.cos(part)
    return y


def turns_of_two_tests(x: Any) -> Any:
    half = 0.0
    while x < 0.5 or (half := x / 2) < 0.7:
        x = x + np.exp(-x * x) + half * half
        if x > 1 or (part := x - 3) < -2.5:
            x = x + 0.1 + np.tan(x / 20) ** 2
        else:
            x = x + np.cos(part) ** 2
    return x


@pytest.mark.parametrize(("function", "words"), [
    (last_of_a_chain, {"sin(": 1, "cos(": 1, "tan(": 1, "* 2.0": 1, "* 3.0": 1}),
    (turns_of_two_tests, {"exp(": 1, "cos(": 1, "tan(": 1})])
def test_sides_that_several_operands_of_a_condition_reach_are_in_the_program_once(
        function: Any, words: dict[str, int]) -> None:
    converted = python_control_flow(function)
    text = str(fxgrad.make_program(converted)(0.3))
    assert {word: text.count(word) for word in words} == words
    points, step = np.array([-5.3, -3.2, -0.3, 0.3, 0.55, 0.9, 1.2, 1.37, 1.55, 1.95, 2.55, 2.8, 3.1, 5.9]), 1e-6
    np.testing.assert_allclose(jit(vmap(converted))(points), [function(x) for x in points], rtol=1e-12)
    np.testing.assert_allclose(jit(vmap(grad(converted)))(points), [
        (function(x + step) - function(x - step)) / (2 * step) for x in points], rtol=1e-5, atol=1e-8)


def read_where_it_may_not_be_bound(x: Any, n: Any) -> Any:
    if n > 0 and (root := np.sqrt(x)) < 3:  # here
        return root * 2.0
    return np.sin(root)


def test_a_name_that_a_condition_may_skip_is_refused_where_it_is_read() -> None:
    assert_refused(read_where_it_may_not_be_bound, None, (
        "`root` is set only if the condition of this `if` is true, and it is used after. Set it on both sides, or "
        "before"))


def greatest_of_some(x: Any, n: Any) -> Any:
    return max(x[k] for k in range(n))


def least_positive(x: Any, n: Any) -> Any:
    return min([v for v in x[:3] if v > n])


@pytest.mark.parametrize(("function", "n", "name"), [(greatest_of_some, 0, "max"), (least_positive, 4, "min")])
def test_the_extreme_of_nothing_is_an_error_when_the_program_runs(function: Any, n: int, name: str) -> None:
    x = np.array([1.0, 3.0, -2.0])
    compiled = jit(python_control_flow(function))
    assert compiled(x, 2) == function(x, 2)
    with pytest.raises(ValueError, match="empty") as expected:
        function(x, n)
    with pytest.raises(ValueError, match="empty") as raised:  # the checked run knows the values
        compiled(x, n)
    assert str(raised.value).startswith(str(expected.value))
    with pytest.raises(AssertionError) as failed:
        jit(vmap(python_control_flow(function), in_axes=(None, 0)))(x, np.array([2, n]))
    assert str(failed.value).startswith(f"{name}() iterable argument is empty"), str(failed.value)


def test_extremes_compare_nans_as_python_does() -> None:
    def extremes(x: Any, n: Any) -> Any:
        return max(x[k] for k in range(n)), min(x[k] for k in range(n)), max(v for v in x if not v < 1.5)
    for x in (np.array([1.0, np.nan, 3.0]), np.array([np.nan, 2.0, 1.0])):
        np.testing.assert_array_equal(jit(python_control_flow(extremes))(x, 3), extremes(x, 3))
