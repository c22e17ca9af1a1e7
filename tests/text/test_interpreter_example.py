"""The documented transformation: interval bounds contain sampled values, of a function and of its derivatives."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fxgrad.engine.api.programs import make_program
from fxgrad.engine.api.reverse import grad
from fxgrad.engine.core.program import Program
from fxgrad.engine.higher_order.call import library_function
from fxgrad.engine.ops.arithmetic import add, mul, neg, sub
from fxgrad.engine.ops.exponential import exp
from fxgrad.engine.ops.trigonometric import cos, sin, tan
from fxgrad.errors import UnsupportedError

ROOT = Path(__file__).resolve().parents[2]
SHIFT = np.array([0.5, -1.0, 2.0])


def load() -> Any:
    spec = importlib.util.spec_from_file_location("intervals_example", ROOT / "examples" / "intervals.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["intervals_example"] = module
    spec.loader.exec_module(module)
    return module


example = load()
Interval = example.Interval


@library_function
def damped(x: Any) -> Any:
    return mul(exp(neg(x)), sin(x))


FUNCTIONS = [
    lambda x: add(mul(x, x), 1.0),
    lambda x: sub(sin(mul(x, 3.0)), x),
    lambda x: mul(damped(x), cos(x)),
    lambda x: exp(sub(0.5, sin(neg(x)))),
]
RANGES = [(-3.0, 3.0), (0.1, 0.2), (-8.0, 1.0), (2.0, 2.0), (np.pi / 2, np.pi), (-np.pi, 0.0)]


def assert_bounds(program: Program, low: Any, high: Any) -> None:
    [result] = example.bounds(program, Interval(low, high))
    for part in np.linspace(0.0, 1.0, 201):
        value = program(low + part * (high - low))
        assert np.all(result.low <= value + 1e-12)
        assert np.all(value <= result.high + 1e-12)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("ends", RANGES)
def test_bounds_contain_what_is_sampled(function: Any, ends: tuple[float, float]) -> None:
    low, high = map(np.float64, ends)
    assert_bounds(make_program(function)(np.array(low)), low, high)
    assert_bounds(make_program(grad(function))(np.array(low)), low, high)
    assert_bounds(make_program(grad(grad(function)))(np.array(low)), low, high)


def test_arrays_and_constants() -> None:
    program = make_program(lambda x: mul(sin(add(x, SHIFT)), SHIFT))(np.zeros(3))
    assert_bounds(program, np.array([-1.0, 0.0, 2.0]), np.array([1.0, 0.5, 9.0]))


def test_bounds_of_monotone_functions_are_tight() -> None:
    program = make_program(lambda x: exp(sub(x, 1.0)))(np.float64(0))
    [result] = example.bounds(program, Interval(np.float64(0), np.float64(2)))
    assert (result.low, result.high) == (np.exp(-1.0), np.exp(1.0))


def test_a_missing_rule() -> None:
    with pytest.raises(UnsupportedError) as caught:
        example.bounds(make_program(lambda x: tan(x))(1.0), Interval(0.0, 1.0))
    assert str(caught.value) == \
        "interval bounds: there is no rule for tan, only for add, cos, exp, mul, neg, sin, sub"


def test_the_wrong_number_of_inputs() -> None:
    with pytest.raises(ValueError, match="the program takes 1 inputs, got 2"):
        example.bounds(make_program(lambda x: sin(x))(1.0), Interval(0.0, 1.0), Interval(0.0, 1.0))


def test_the_page_shows_the_same_code() -> None:
    page = (ROOT / "docs" / "appendix" / "interpreters.md").read_text(encoding="utf-8")
    for part in (example.Interval, example.product, example.wave, example.Intervals):
        assert inspect.getsource(part) in page
    assert inspect.getsource(example).split("RULES = ")[1].split("\n}\n")[0] in page


def test_the_main_program(capsys: pytest.CaptureFixture[str]) -> None:
    example.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["swing", "its derivative"]
