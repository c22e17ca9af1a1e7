"""The two passes of a function: equal to jax's, compiled once each, and equal to the gradient."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import fwd_and_bwd


@pytest.mark.parametrize("jitted", [True, False])
def test_passes_are_those_of_jax(jitted: bool) -> None:
    def results(m: Any, np_: Any) -> list[Any]:
        x, w = np.float32([[1.0, 2.0]]), np.float32([[3.0], [0.5]])
        found: list[Any] = []
        for argnums in (0, 1, (0, 1), (1,)):
            forward, backward = m.fwd_and_bwd(lambda x, w: np_.sin(x @ w), argnums=argnums, jitted=jitted)
            output, residuals = forward(x, w)
            found += [output, backward(residuals, np.float32([[2.0]]))]
        forward, backward = m.fwd_and_bwd(lambda x: (x * x, {"twice": 2 * x}), argnums=0, has_aux=True, jitted=jitted)
        output, residuals, aux = forward(x)
        return [*found, output, aux, backward(residuals, np.ones_like(x))]
    ours, theirs = results(fxgrad, fnp), results(jax, jnp)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_passes_are_traced_once() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(1)
        return fnp.sin(x) * x
    forward, backward = fwd_and_bwd(f, 0)
    for value in (1.0, 2.0, 3.0):
        _, residuals = forward(value)
        np.testing.assert_allclose(backward(residuals, 1.0), np.sin(value) + value * np.cos(value), rtol=1e-12)
    assert len(calls) == 1
