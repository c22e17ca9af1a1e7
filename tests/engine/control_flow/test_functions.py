"""Sixty functions of numerical code, converted: equal to the functions themselves, or refused by line."""

from __future__ import annotations

import inspect
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, python_control_flow, tree
from fxgrad.errors import ControlFlowError
from tests.engine.control_flow.functions import CASES, Case
from tools.control_flow import page

CONVERTED = [case for case in CASES if not case.refusal]
REFUSED = [case for case in CASES if case.refusal]


def ids(cases: list[Case]) -> list[str]:
    return [f"{case.function.__name__}-{number}" for number, case in enumerate(cases)]


def numbers(value: Any) -> list[float]:
    return [float(each) for leaf in tree.leaves(value) for each in np.ravel(np.asarray(leaf, float))]


def test_there_are_sixty_functions_and_fifty_are_converted():
    assert len({case.function for case in CASES}) >= 60
    assert len({case.function for case in CONVERTED}) >= 50


@pytest.mark.parametrize("case", CONVERTED, ids=ids(CONVERTED))
def test_converted_functions_run_as_before_to_the_bit(case):
    expected, found = case.function(*case.args), python_control_flow(case.function)(*case.args)
    assert repr(found) == repr(expected)


@pytest.mark.slow
@pytest.mark.parametrize("case", CONVERTED, ids=ids(CONVERTED))
def test_compiled_functions_equal_the_function_to_rounding(case):
    expected = case.function(*case.args)
    found = jit(python_control_flow(case.function))(*case.args)
    np.testing.assert_allclose(numbers(found), numbers(expected), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CONVERTED if case.smooth],
                         ids=ids([case for case in CONVERTED if case.smooth]))
def test_compiled_gradients_equal_those_of_the_path_that_python_takes(case):
    expected = grad(case.function)(*case.args)
    found = jit(grad(python_control_flow(case.function)))(*case.args)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", REFUSED, ids=ids(REFUSED))
def test_other_functions_are_refused_by_line(case):
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(case.function))(*case.args)
    message, _, place = str(refused.value).partition("\n  at ")
    name = case.function.__name__
    lines, first = inspect.getsourcelines(case.function)
    starts = {"test": ("if ", "while "), "change": ("path.append",)}
    places = {word: f"functions.py:{first + number} (in {name})" for word, start in starts.items()
              for number, line in [*enumerate(lines)][::-1] if line.strip().startswith(start)}
    assert message == case.refusal.format(**places)
    file, _, rest = place.partition(":")
    assert file == "functions.py"
    assert rest.endswith(f"(in {name})")
    assert first <= int(rest.split(" ")[0]) < first + len(lines)


def test_the_page_of_functions_is_that_of_the_cases():
    written = Path(__file__).parents[3] / "docs" / "appendix" / "control-flow-functions.md"
    assert written.read_text(encoding="utf-8") == page(), "write it again with python tools/control_flow.py"


@python_control_flow
def half_or_zero(x):
    return x / 2 if x > 0 else 0.0


def test_a_decorated_function_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(half_or_zero)) is half_or_zero
    assert fxgrad.jit(half_or_zero)(3.0) == 1.5


UNPICKLABLE = threading.Lock()  # a global variable that nothing below reads


def test_functions_pickled_by_value_take_no_other_globals_along():
    cloudpickle = pytest.importorskip("cloudpickle")
    scale = 3.0

    @python_control_flow
    def scaled(x):
        return x * scale if x > 0 else x
    for function in (scaled, jit(scaled)):
        assert pickle.loads(cloudpickle.dumps(function))(2.0) == 6.0


def test_batches_take_their_own_turns():
    for case in CONVERTED:
        if case.function.__name__ in ("newton_root", "huber", "exponential_series", "safe_log", "kepler"):
            x = np.array([0.5, 1.0, case.args[0] or 1.0])
            rest = case.args[1:]
            expected = [case.function(each, *rest) for each in x]
            found = fxgrad.vmap(python_control_flow(case.function), in_axes=(0, *[None] * len(rest)))(x, *rest)
            np.testing.assert_allclose(found, expected, rtol=1e-12)
