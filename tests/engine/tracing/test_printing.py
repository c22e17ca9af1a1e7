"""What printing an array says while it is traced: its type, and once for each line how to see the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad

HINT = ' (no value while it is traced: fxgrad.debug.print("{}", %s) prints it when the program runs)'
X = np.array([0.1, 0.2])


def printed(capsys: pytest.CaptureFixture[str], function: Callable[..., Any], *, times: int = 1) -> list[str]:
    """The lines that a function prints while it is traced so often."""
    for _ in range(times):
        fxgrad.jit(lambda x: function(x))(X)
    return capsys.readouterr().out.splitlines()


def by_name(y: Any) -> Any:
    print(y)
    return y


def with_words(y: Any) -> Any:
    print("y is", y)
    return y


def in_a_loop(y: Any) -> Any:
    for _ in range(3):
        print(y)
    return y


def in_containers(y: Any) -> Any:
    print({"a": y, "b": [y]})
    return y


def in_a_text(y: Any) -> Any:
    print(f"{y}", f"{y:.3f}", sep="\n")
    return y


def by_percent(y: Any) -> Any:
    print("%s" % y)  # noqa: UP031
    return y


def of_an_element(y: Any) -> Any:
    print(y[0])
    return y


SHOWN: dict[Callable[..., Any], list[str]] = {
    by_name: ["Tracer(f64[2])" + HINT % "y"],
    with_words: ["y is Tracer(f64[2])" + HINT % "y"],
    in_a_loop: ["Tracer(f64[2])" + HINT % "y", "Tracer(f64[2])", "Tracer(f64[2])"],
    in_containers: ["{'a': Tracer(f64[2])" + HINT % "x" + ", 'b': [Tracer(f64[2])]}"],
    in_a_text: ["Tracer(f64[2])" + HINT % "y", "Tracer(f64[2])"],
    by_percent: ["Tracer(f64[2])" + HINT % "x"],
    of_an_element: ["Tracer(f64[])" + HINT % "x"]}


@pytest.mark.parametrize("function", SHOWN, ids=lambda function: function.__name__)
def test_how_to_see_values_is_said_once_for_each_line(function: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fxgrad.clear_caches()
    expected = SHOWN[function]
    assert printed(capsys, function) == expected
    without = [line.replace(HINT % "x", "").replace(HINT % "y", "") for line in expected]
    assert printed(capsys, function, times=2) == 2 * without


def test_lines_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    fxgrad.clear_caches()

    def function(y: Any) -> Any:
        print(y)
        print(y)
        return y
    assert printed(capsys, function) == ["Tracer(f64[2])" + HINT % "y"] * 2


def test_values_that_are_known_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    fxgrad.clear_caches()
    fxgrad.grad(lambda x: by_name(x) * 2.0)(0.1)
    assert capsys.readouterr().out == "Tracer(f64*[], value=0.1)\n"


def test_what_is_not_printed_says_nothing() -> None:
    fxgrad.clear_caches()
    seen = []
    fxgrad.jit(lambda x: seen.append(repr(x)) or x)(X)
    fxgrad.vmap(lambda x: seen.append(repr([x])) or x)(X)
    assert seen == ["Tracer(f64[2])", "[Tracer(f64[])]"]


def test_debug_print_does_what_the_hint_says(capsys: pytest.CaptureFixture[str]) -> None:
    def function(y: Any) -> Any:
        fxgrad.debug.print("{}", y)
        return y
    np.testing.assert_array_equal(fxgrad.jit(function)(X), X)
    assert capsys.readouterr().out == "[0.1 0.2]\n"
