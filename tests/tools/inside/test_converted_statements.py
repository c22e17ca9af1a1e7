"""Values of functions under `python_control_flow` by name: what their branches and loops leave."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad.errors import ArgumentError


def aliased(x: Any) -> Any:
    h1 = np.sin(x)
    if h1 > 0:
        h2 = np.exp(h1)
    else:
        h2 = h1
    return h2 * 2.0


def aliased_first(x: Any) -> Any:
    h2 = x
    if x > 0:
        h2 += 1.0
    return h2 * 2.0


def chained(x: Any) -> Any:
    if x > 0:
        h1 = h2 = np.exp(x)
    else:
        h1 = h2 = x
    return h1 * h2


def selected(x: Any) -> Any:
    y = 0.5 - x
    if x > 0:
        h2 = x
    else:
        h2 = y
    return h2 * y


def several(x: Any) -> Any:
    if x > 1:
        h2 = np.exp(x)
    elif x > 0:
        h2 = x
    else:
        h2 = np.sin(x)
    return h2 * 2.0


def in_one_of_two(x: Any) -> Any:
    h2 = x
    if x > 0:
        y = x * 2.0
        if y > 1:
            h2 = np.exp(y)
    return h2 + x


def in_loop(x: Any) -> Any:
    total = 0.0
    h2 = x
    while x * x > 0.1:
        h2 = x
        x = x * 0.5
        total = total + x
    return h2 * total


def of_loop(x: Any) -> Any:
    h2 = x * 1.0
    while abs(h2) > 0.1:
        h2 = h2 * 0.5
    return h2 + 1.0


def left_of(function: Callable[..., Any], x: float, name: str = "h2") -> Any:
    """Return what a local variable of a plain function is in the end."""
    found: dict[str, Any] = {}

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code is function.__code__:
            if event == "return":
                found.update(frame.f_locals)
            return trace
        return None
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(x)
    finally:
        sys.settrace(before)
    return found[name]


FUNCTIONS = [aliased, aliased_first, chained, selected, several, in_one_of_two, in_loop]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_name_is_what_the_statement_leaves(function: Any) -> None:
    """Also where a branch or a turn only gives another value this name: it was NaN, or had no path."""
    converted = fxgrad.python_control_flow(function)
    xs = np.array([1.7, 0.7, -0.3])
    expected = np.array([left_of(function, x) for x in xs])
    found = [fxgrad.capture(converted, "h2")(x) for x in xs]
    np.testing.assert_allclose([result for result, _ in found], [*map(function, xs)], rtol=1e-15)
    np.testing.assert_allclose([values["h2"] for _, values in found], expected, rtol=1e-15)
    np.testing.assert_allclose(fxgrad.vmap(fxgrad.capture(converted, "h2"))(xs)[1]["h2"], expected, rtol=1e-15)
    _, aux = fxgrad.vmap(fxgrad.grad(fxgrad.capture(converted, "h2"), has_aux=True))(xs)
    np.testing.assert_allclose(aux["h2"], expected, rtol=1e-15)


def test_compiled_functions_have_these_values_too() -> None:
    converted = fxgrad.jit(fxgrad.python_control_flow(aliased))
    for x in (0.7, -0.3):
        np.testing.assert_allclose(fxgrad.capture(converted, "h2")(x)[1]["h2"], left_of(aliased, x), rtol=1e-12)


def test_containers_and_attributes_have_names_too() -> None:
    class Model:
        def __init__(self, x: Any) -> None:
            self.h = x

    def pair(x: Any) -> Any:
        model = Model(x)
        state = {"a": x}
        if x > 0:
            p = (np.exp(x), x)
            state["a"] = x * 2.0
            model.h = np.cos(x)
        else:
            p = (x, np.sin(x))
        return p[0] * p[1] + state["a"] + model.h

    for x in (0.7, -0.3):
        values = fxgrad.capture(fxgrad.python_control_flow(pair), "p[0]", "p[1]", "state.a", "model.h")(x)[1]
        expected = (np.exp(x), x, x * 2.0, np.cos(x)) if x > 0 else (x, np.sin(x), x, x)
        np.testing.assert_allclose([*values.values()], expected, rtol=1e-15)


def test_programs_have_the_names_that_statements_leave() -> None:
    texts = [str(fxgrad.make_program(fxgrad.python_control_flow(function))(0.7))
             for function in (aliased, selected, in_loop)]
    for text, line in zip(texts, ("h2: f64* = cond(h1 > 0.0, h1):", "h2: f64* = where(x > 0.0, x, y)",
                                  "h2, total, x_1: f64* = while("), strict=True):
        assert line in text or line.replace("h2, total, x_1", "h2, x_1, total") in text, text


def test_values_before_and_after_a_loop_have_one_name() -> None:
    converted = fxgrad.python_control_flow(of_loop)
    with pytest.raises(ArgumentError, match=r"'h2' stands for 3 values of of_loop: 'h2#0', .*, 'h2#1'"):
        fxgrad.capture(converted, "h2")(3.0)
    values = fxgrad.capture(converted, "h2#0", "h2#1")(3.0)[1]
    np.testing.assert_allclose([*values.values()], [3.0, left_of(of_loop, 3.0)])


def test_values_that_statements_leave_are_replaced() -> None:
    converted = fxgrad.python_control_flow(aliased)
    for x in (0.7, -0.3):
        assert fxgrad.replace(converted, {"h2": 3.0})(x) == 6.0
        np.testing.assert_allclose(fxgrad.replace(converted, {"h2": lambda h: h + 1.0})(x), aliased(x) + 2.0)
        assert fxgrad.grad(converted, wrt="h2")(x) == 2.0
        head, tail = fxgrad.split(converted, "h2")
        assert tail(head(x), x) == aliased(x)


def test_uses_in_a_branch_are_replaced_or_it_is_refused() -> None:
    @fxgrad.python_control_flow
    def computed(x: Any) -> Any:
        if x > 0:
            h = np.exp(x)
            z = h * 2.0
        else:
            h = np.sin(x)
            z = h * 3.0
        return z + 100.0 * h

    @fxgrad.python_control_flow
    def used(x: Any) -> Any:
        if x > 0:
            h = np.exp(x)
            z = h * 2.0
        else:
            h = x
            z = h * 3.0
        return z + 100.0 * h

    assert [fxgrad.replace(computed, {"h": 7.0})(x) for x in (1.0, -1.0)] == [714.0, 721.0]
    line = used.__wrapped__.__code__.co_firstlineno + 2
    with pytest.raises(ArgumentError) as raised:
        fxgrad.replace(used, {"h": 7.0})(1.0)
    assert str(raised.value).split("\n")[0] == (
        f"replace: in a branch or turn of test_converted_statements.py:{line}, 'h' is another name of a value that is "
        "computed with there, and its uses cannot be told from others. Compute h by an operation of its own; or write "
        "'h#0' for its uses after the statement")
    assert fxgrad.replace(used, {"h#0": 7.0})(-1.0) == 697.0


def test_numbers_in_branches_have_no_names_of_variables() -> None:
    """The variables of a converted function are free in its branches, but a captured 2.0 is none of them."""
    @fxgrad.python_control_flow
    def f(x: Any) -> Any:
        if x > 0:
            h = np.exp(x)
            z = h * 2.0
        else:
            z = x * 3.0
        return z

    assert not [value for value in fxgrad.names(fxgrad.vmap(f))(np.ones(2)) if value.aval.shape == ()]


def test_an_argument_of_a_batch_is_the_argument() -> None:
    """The values that a branch computes with in a batch have its name inside, and are no values of the function."""
    def f(x: Any) -> Any:
        return fxgrad.lax.cond(x > 0, np.exp, lambda x: x * 2.0, x)

    x = np.array([1.0, -1.0])
    for function in (f, fxgrad.python_control_flow(several)):
        np.testing.assert_array_equal(fxgrad.capture(fxgrad.vmap(function), "x")(x)[1]["x"], x)


def test_a_variable_that_only_one_block_sets_is_no_argument() -> None:
    """Paths in the blocks of a converted function are those of the function, before the path of an argument."""
    @fxgrad.python_control_flow
    def f(x: Any, y: Any) -> Any:
        if x > 2.0:
            return x
        y += x * 0.5
        return x + y

    assert fxgrad.capture(f, "y")(1.0, 3.0)[1]["y"] == 3.5

    @fxgrad.python_control_flow
    def changed(x: Any) -> Any:
        x = x.copy()
        x[0] = 7.0
        if x[1] > 0:
            x[1] += 1.0
        return x.sum()

    np.testing.assert_array_equal(fxgrad.capture(changed, "x#1")(np.array([1.0, 2.0]))[1]["x#1"], [7.0, 3.0])
    np.testing.assert_array_equal(fxgrad.capture(changed, "x#1")(np.array([1.0, -2.0]))[1]["x#1"], [7.0, -2.0])
    assert "x: f64[2] = scatter(" in str(fxgrad.make_program(changed)(np.ones(2))).replace("x_1", "x")


def test_values_of_decorated_functions_whose_names_are_assigned_again_are_refused() -> None:
    @fxgrad.python_control_flow
    def f(x: Any) -> Any:
        if x > 0:
            h = x * 2.0
        else:
            h = np.sin(x)
        y = h + 1.0
        h = x
        return h * y

    with pytest.raises(ArgumentError, match="assigns something else to h, by no operation that a path leads to"):
        fxgrad.capture(f, "h")(1.0)
