"""What reverse mode keeps is counted once: every report of it agrees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import lax
from fxgrad.engine.transforms.residuals import residuals

X = np.linspace(0.1, 1.0, 6).reshape(2, 3)
TABLE = np.arange(6.0).reshape(3, 2)


def network(x: Any) -> Any:
    return np.sum(np.tanh(x @ TABLE) * np.exp(x @ TABLE))


def looped(x: Any) -> Any:
    return np.sum(lax.fori_loop(0, 4, lambda _, c: np.sin(c) * x, x))


def checkpointed(x: Any) -> Any:
    return np.sum(np.sin(fxgrad.checkpoint(lambda y: np.exp(np.sin(y)))(x)) * x)


@pytest.mark.parametrize("function", [network, looped, checkpointed])
def test_the_reports_agree(function: Callable[..., Any]) -> None:
    found = residuals(fxgrad.make_program(function)(X))
    assert found is not None
    size = sum(each.var.aval.nbytes for each in found.kept)
    assert size > 0
    assert sum(each.nbytes for each in fxgrad.saved_residuals(function, X)) == size
    assert sum(each.nbytes for each in fxgrad.memory_analysis(function)(X).saved) == size
    assert fxgrad.tabulate(function)(X).saved_bytes == size


def test_nothing_is_kept_without_a_derivative() -> None:
    assert residuals(fxgrad.make_program(lambda x: np.sin(x))(X), (False,)) is None
    assert residuals(fxgrad.make_program(lambda x: x + 1)(np.arange(3))) is None
    assert residuals(fxgrad.make_program(lambda x: np.argmax(x))(X)) is None
