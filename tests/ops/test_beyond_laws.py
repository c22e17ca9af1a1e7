"""What the laws do not see of the rules: how much is recorded, symbolic zeros, refusals where nothing checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import config, errors, lax

X = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("function", [
    lambda x: fnp.concatenate([x, x]), lambda x: fnp.stack([x, x]), lambda x: fnp.sort(x), lambda x: fnp.cumsum(x)])
def test_what_is_batched_along_one_axis_is_not_moved(function: Any) -> None:
    program = fxgrad.make_program(fxgrad.vmap(function, in_axes=1))(X)
    assert "transpose" not in {equation.primitive.name for equation in program.equations[:-1]}


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_results_that_are_the_same_for_all_are_repeated_along_any_axis(axis: int) -> None:
    found = fxgrad.vmap(lambda x: X, out_axes=axis)(np.ones(4))
    np.testing.assert_array_equal(found, np.stack([X] * 4, axis))


def test_cotangents_of_outputs_that_nobody_uses_pass_a_barrier() -> None:
    back = fxgrad.linear_transpose(lambda x: lax.optimization_barrier((x, 2 * x))[0], X)
    np.testing.assert_array_equal(back(X + 1)[0], X + 1)


@pytest.mark.parametrize("k", [-1, 4])
def test_more_elements_than_there_are_are_refused_unchecked_too(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check_level", 0)
    with pytest.raises(errors.FxgradError, match=f"k={k}"):
        lax.top_k(X, k)


@pytest.mark.parametrize("order", [12, 30, 60])
def test_polygamma_of_high_orders(order: int) -> None:
    """The higher the order, the later the expansion may begin; near 8 to 10 one sees where."""
    at = np.array([0.3, 2.5, 6.0, 8.0, 9.0, 9.9, 10.1, 14.0, 40.0])
    expected = scipy.special.polygamma(order, at)
    np.testing.assert_allclose(lax.polygamma(np.full_like(at, order), at), expected, rtol=5e-12)
    alone = [lax.polygamma(np.float64(order), each) for each in at]  # without others, for which the sum goes on
    np.testing.assert_allclose(alone, expected, rtol=5e-12)
