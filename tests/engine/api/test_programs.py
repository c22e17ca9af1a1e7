"""`make_program` and `checkpoint`: which arguments are static, counted from the front and from the back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad.errors import ArgumentError


def scaled(first: Any, x: Any, last: Any) -> Any:
    return np.sin(x) * len(first) + len(last)


@pytest.mark.parametrize("numbers", [(0, 2), (0, -1), (-3, 2), (-1, -3)])
def test_static_arguments(numbers: tuple[int, ...]) -> None:
    """Of texts, which are no arrays: they could be nothing but static."""
    x = np.array([0.5, 1.0])
    program = fxgrad.make_program(scaled, static_argnums=numbers)("ab", x, "abc")
    assert [aval.shape for aval in program.in_avals] == [(2,)]
    np.testing.assert_allclose(program(x), 2 * np.sin(x) + 3, rtol=1e-12)
    block = fxgrad.checkpoint(scaled, static_argnums=numbers)
    back = fxgrad.grad(lambda x: np.sum(block("ab", x, "abc")))(x)
    np.testing.assert_allclose(back, 2 * np.cos(x), rtol=1e-12)


def test_one_static_argument() -> None:
    power = lambda x, n: x ** n
    for number in (1, -1):
        assert fxgrad.make_program(power, static_argnums=number)(3.0, 2)(3.0) == 9.0
    assert fxgrad.make_program(lambda n, x: x ** n, static_argnums=0)(2, 3.0)(3.0) == 9.0


@pytest.mark.parametrize("number", [2, -3])
def test_static_arguments_that_are_not_there(number: int) -> None:
    with pytest.raises(ArgumentError, match=rf"static_argnums={number}, and the function was called with 2 positional"):
        fxgrad.make_program(lambda x, n: x ** n, static_argnums=number)(3.0, 2)
