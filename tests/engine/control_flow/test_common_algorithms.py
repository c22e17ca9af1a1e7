"""A hundred and fifty functions as people write them, converted and compiled, beside the functions themselves."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
from fxgrad import jit, python_control_flow
from fxgrad.engine.analyses.interval_values import Interval
from tests.engine.control_flow import common_algorithms, everyday_algorithms, textbook_algorithms

FUNCTIONS = [each for module in (common_algorithms, everyday_algorithms, textbook_algorithms)
             for _, each in inspect.getmembers(module, inspect.isfunction)
             if [*inspect.signature(each).parameters] == ["x", "n"]]


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiled_functions_equal_the_function(function: Any) -> None:
    compiled = jit(python_control_flow(function))
    for args in ((1.3, 2), (0.7, 3), (2.1, 1)):
        found, wanted = (fxgrad.tree.leaves(call(*args)) for call in (compiled, function))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_there_are_a_hundred_and_fifty() -> None:
    assert len(FUNCTIONS) == 150

@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bounds_of_a_hundred_and_fifty_functions_hold() -> None:
    """Those that people write with loops and branches on values."""
    broken, random = [], np.random.default_rng(0)
    for function in FUNCTIONS:
        results = fxgrad.bounds(fxgrad.python_control_flow(function))((0.5, 2.0), (0, 3)).results
        found = jax.tree.leaves(results, is_leaf=lambda each: isinstance(each, Interval))
        for x in (0.5, 2.0, *random.uniform(0.5, 2.0, 4)):
            n = int(random.integers(4))
            try:
                values = fxgrad.tree.leaves(function(x, n))
            except (ZeroDivisionError, IndexError):
                continue  # as in Python; compiled code goes on
            broken += [(function.__name__, x, n) for value, interval in zip(values, found, strict=True)
                       if np.any(value < interval.low) or np.any(value > interval.high)]
    assert broken == []
