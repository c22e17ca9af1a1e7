"""Functions and methods of Python's numbers and texts in converted functions: as in Python, or refused by line."""

# ruff: noqa: T201, UP030, UP031, UP032  (the functions are written as users write them)

from __future__ import annotations

import bisect
import io
import itertools
import math
import random
import typing
from collections.abc import Container, Hashable, Iterable, Sequence, Sized
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, python_control_flow, vmap
from fxgrad.errors import CheckError, ControlFlowError

# --- texts ------------------------------------------------------------------------------------------------------------


def compares_its_text(x):
    return x if str(x)[0] == "1" else 2 * x


def reads_its_digits(x):
    return sum(int(digit) for digit in format(x, "d"))


def formats_and_reads(x):
    return float("{:.1f}".format(x))


def chooses_by_repr(x):
    return len(repr(x))


@pytest.mark.parametrize(("function", "name"), [
    (compares_its_text, "str"), (reads_its_digits, "format"), (formats_and_reads, "format"), (chooses_by_repr, "repr")])
def test_texts_of_traced_values_are_refused(function: Any, name: str) -> None:
    with pytest.raises(ControlFlowError, match=rf"^{name}\(\) makes text of a traced value, whose digits are not"):
        jit(python_control_flow(function))(12)
    assert python_control_flow(function)(12) == function(12)


def prints_sums(x, n):
    print("x is " + str(x) + f", n is {n:3d}", repr(n))
    print(str(n) + "/" + str(2 * n))


def prints_formats(x, n):
    print("{} {:.2f}|{!r:>4}|{{}}".format(n, x, n))
    print("{1} and {0}".format(x, n))


def prints_percents(x, n):
    print("%d of %i%% is %5.2f|%-8.1e|%+g|%05d|%4s|%r" % (n, x, x, x, x, n, n, n))
    if x > 0:
        print("%s and %i" % (str(x), 3))


@pytest.mark.parametrize("function", [prints_sums, prints_formats, prints_percents])
def test_printed_texts_are_made_when_the_program_runs(function: Any) -> None:
    wanted, found = io.StringIO(), io.StringIO()
    with redirect_stdout(wanted):
        function(2.5, 7)
    with redirect_stdout(found):
        jit(python_control_flow(function))(2.5, 7)
    assert found.getvalue() == wanted.getvalue()


def prints_texts_in_other_expressions(x):
    print(", ".join(map(str, [x, 1])), *map(repr, [x]), "{x}".format(x=x), [str(each) for each in (x, 2)])
    return x


def test_print_takes_texts_of_tracers_that_are_parts_of_other_expressions() -> None:
    shown = io.StringIO()
    with redirect_stdout(shown):
        assert float(jit(python_control_flow(prints_texts_in_other_expressions))(2.5)) == 2.5
    assert shown.getvalue().count("Tracer(") == 4


def raises_with_a_text(x):
    turn = 0
    while turn < 3:
        turn += 1
        if x < 0 and turn == 2:  # noqa: SIM102
            if turn == 2:
                raise ValueError(f"{x:g} in turn {turn}")
        x = x / 2
    return x


def test_a_raise_that_python_runs_in_a_traced_side_has_a_text_of_traced_values() -> None:
    compiled = jit(python_control_flow(raises_with_a_text))
    assert float(compiled(8.0)) == 1.0
    with pytest.raises(ValueError, match=r"^-2 in turn 2"):
        compiled(-4.0)


def selects_a_character(n):
    return "abc"[n]


def selects_characters(n):
    return "abc"[:n]


@pytest.mark.parametrize("function", [selects_a_character, selects_characters])
def test_characters_are_not_selected_by_traced_values(function: Any) -> None:
    with pytest.raises(ControlFlowError, match=r"^a traced index selects from a str, and compiled functions compute"):
        jit(python_control_flow(function))(1)
    assert int(jit(python_control_flow(lambda n: [*map(ord, "abc")][n]))(1)) == ord("b")


# --- what a number is -------------------------------------------------------------------------------------------------


def kinds(x):
    return [isinstance(x, kind) for kind in (
        Iterable, Sized, Sequence, Container, Hashable, typing.Iterable, int, float)]


def attributes(x):
    return [hasattr(x, name) for name in ("__len__", "__iter__", "__float__", "real", "append", "is_integer")]


def is_one_of(x):
    return isinstance(x, list | Iterable), isinstance(x, (tuple, Sized)), np.isscalar(x)


@pytest.mark.parametrize("function", [kinds, attributes, is_one_of])
@pytest.mark.parametrize("value", [3, 2.5])
def test_traced_numbers_have_the_types_and_attributes_of_pythons(function: Any, value: Any) -> None:
    found: list[Any] = []

    def noted(x: Any) -> Any:
        found.append(python_control_flow(function)(x))
        return x

    jit(noted)(value)
    assert found == [function(value)]


def methods(n):
    return n.bit_length(), n.bit_count(), (n / 4).is_integer(), n.is_integer() if hasattr(n, "is_integer") else True


@pytest.mark.parametrize("n", [0, 1, -1, 12, -7, 2**62, 1 - 2**63])
def test_methods_of_pythons_numbers(n: int) -> None:
    assert [*map(int, jit(python_control_flow(methods))(n))] == [*map(int, methods(n))]
    assert [*map(int, vmap(lambda k: k.bit_length())(np.array([n, 5])))] == [n.bit_length(), 3]
    with pytest.raises(AttributeError):
        jit(lambda x: x.bit_length())(2.5)
    with pytest.raises(AttributeError):
        jit(lambda x: x.is_integer())(np.ones(2))


def numbers_of_an_array(x):
    rows = x.tolist()
    if x[0, 0] > 0:
        rows[0][1] = x.sum().item()
    return rows, x.item(3), x.item(1, 0)


def test_items_and_lists_of_arrays_are_pythons_numbers() -> None:
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert fxgrad.tree.leaves(jit(python_control_flow(numbers_of_an_array))(x)) == fxgrad.tree.leaves(
        numbers_of_an_array(x))
    assert grad(python_control_flow(lambda x: x.item() ** 2))(3.0) == 6.0
    assert jit(python_control_flow(lambda x: np.ones(2, np.float32) * x.item()))(x[0, :1]).dtype == np.float32
    with pytest.raises(ValueError, match="size 1"):
        jit(python_control_flow(lambda x: x.item()))(x)


# --- functions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [
    lambda x: math.frexp(x), lambda x: math.ldexp(x, 3), lambda x: math.modf(x),
    lambda x: math.nextafter(x, 10.0), lambda x: math.fsum([x, 1, x * x]), lambda x: math.fsum(v * x for v in (1, 2)),
    lambda x: math.dist((x, 1), [2, 3]), lambda x: round(x, 1) + round(x),
])
def test_functions_of_math(function: Any) -> None:
    for x in (2.5, -1.25, 0.0):
        found, wanted = (fxgrad.tree.leaves(call(x)) for call in (jit(python_control_flow(function)), function))
        np.testing.assert_allclose(found, wanted, rtol=1e-15)
        assert [np.asarray(one).dtype for one in found] == [np.asarray(one).dtype for one in wanted]


def test_rounding_to_a_traced_number_of_digits() -> None:
    rounded = jit(python_control_flow(lambda x, n: (round(x, n), round(12345, n))))
    for n in (2, 0, -1):
        found, whole = rounded(123.456, n)
        np.testing.assert_allclose([found, whole], [round(123.456, n), round(12345, n)], rtol=1e-15)


@pytest.mark.slow
def test_whole_roots() -> None:
    root = jit(python_control_flow(lambda n: math.isqrt(n)))
    random.seed(0)
    roots = [random.randrange(2**31) for _ in range(50)]
    for n in [0, 1, 2, 3, 2**63 - 1, *(k * k + d for k in [*roots, 3037000499] for d in (-1, 0, 1))]:
        assert int(root(n)) == math.isqrt(n)
    with pytest.raises(ValueError, match=r"^isqrt\(\) argument must be nonnegative"):
        root(-1)


def test_factorials() -> None:
    factorial = jit(python_control_flow(lambda n: math.factorial(n)))
    assert [int(factorial(n)) for n in range(21)] == [math.factorial(n) for n in range(21)]
    with pytest.raises(CheckError, match="n is at most 20"):
        factorial(21)


def test_powers_with_a_modulus() -> None:
    power = jit(python_control_flow(lambda x, n, m: pow(x, n, m)))
    inverse = jit(python_control_flow(lambda x, m: pow(x, -1, m)))
    random.seed(1)
    for _ in range(20):
        x, n, m = random.randrange(-999, 999), random.randrange(2**30), random.randrange(1, 2**31)
        m *= random.choice([1, -1])
        assert int(power(x, n, m)) == pow(x, n, m)
        if math.gcd(x, m) == 1:
            assert int(inverse(x, m)) == pow(x, -1, m)
    assert [*vmap(python_control_flow(lambda n: pow(3, n, 7)))(np.arange(6))] == [pow(3, n, 7) for n in range(6)]
    for args, text in (((2, 3, 0), "cannot be 0"), ((2, -1, 7), "n is at least 0"), ((2, 3, 2**40), "m is at most")):
        with pytest.raises((ValueError, OverflowError, CheckError), match=text):
            power(*args)
    with pytest.raises((ValueError, CheckError), match="not invertible"):
        inverse(2, 4)


def places(x, a):
    return bisect.bisect([a, 2.0, 3.0], x), bisect.bisect_left((1, 2, 3), x), bisect.bisect_right(np.arange(4.0), x)


def test_bisect_finds_places_of_traced_numbers() -> None:
    compiled = jit(python_control_flow(places))
    for x in (0.0, 1.0, 2.0, 2.5, 9.0):
        assert tuple(map(int, compiled(x, 1.0))) == places(x, 1.0)


def accumulated(x, y):
    return [*itertools.accumulate([x, y, 2.0], max)], [*map(float, [x, y])], [*itertools.accumulate([x, y])]


def test_functions_that_iterators_call_are_converted() -> None:
    found, wanted = jit(python_control_flow(accumulated))(3.0, 1.0), accumulated(3.0, 1.0)
    assert fxgrad.tree.leaves(found) == fxgrad.tree.leaves(wanted)


# --- lists ------------------------------------------------------------------------------------------------------------


def part_assigned(n):
    found = [1.0, 2.0, 3.0]
    found[:n] = [0.0]
    return found


def test_a_slice_of_a_list_that_is_assigned_has_known_bounds() -> None:
    with pytest.raises(ControlFlowError, match=r"^a bound of this slice of a list is traced, "):
        jit(python_control_flow(part_assigned))(2)


def test_a_slice_of_the_array_of_a_list_has_a_traced_bound() -> None:
    assert float(jit(python_control_flow(lambda n: np.sum(np.array([1.0, 2.0, 3.0])[:n])))(2)) == 3.0


# --- items of numbers -------------------------------------------------------------------------------------------------


def set_to_zero(x):
    try:
        x = x + 0.0
        x[abs(x) < 1e-3] = 0.0
    except TypeError:
        if abs(x) < 1e-3:
            x = 0.0
    return x


def greater_than_zero(x):
    try:
        return np.sum(x[x > 0])
    except TypeError:
        return max(x, 0.0)


@pytest.mark.parametrize("function", [set_to_zero, greater_than_zero])
def test_numbers_have_no_items(function: Any) -> None:
    compiled = jit(python_control_flow(function))
    for x in (1e-4, 2.0, np.array([1e-4, -2.0])):
        np.testing.assert_array_equal(compiled(x), function(x))
    with pytest.raises(TypeError, match=r"^'float' object is not subscriptable"):
        jit(python_control_flow(lambda x, k: x[k]))(1.0, 2)
