"""The rows of the checklist on granularity, scopes and size: each test is called after its row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad


def neuron(x: Any, W: Any, b: Any) -> Any:
    return np.exp(x @ W + b)


def neuron_program(n: int) -> fxgrad.Program:
    return fxgrad.make_program(neuron)(np.linspace(-0.5, 0.5, n), np.linspace(0.1, 0.4, n), 0.25)


def test_g6_three_leaves_and_three_operations() -> None:
    program = neuron_program(3)
    assert len(program.inputs) == 3
    assert [equation.primitive.name for equation in program.equations] == ["dot_general", "add", "exp"]
    assert len(program.outputs) == 1


@pytest.mark.parametrize("n", range(1, 7))
def test_g7_operations_of_one_neuron(n: int) -> None:
    """n multiplies, n - 1 adds, 1 bias add, 1 exp."""
    scalars = fxgrad.scalarize(neuron_program(n))
    assert [equation.primitive.name for equation in scalars.equations] == ["mul"] * n + ["add"] * n + ["exp"]
    assert len(scalars.equations) == 2 * n + 1
    assert len(scalars.inputs) == 2 * n + 1


def test_g5_gradients_are_the_same_at_both_granularities() -> None:
    for n in range(1, 7):
        program = neuron_program(n)
        x, W = np.linspace(-0.5, 0.5, n), np.linspace(0.1, 0.4, n)
        tensor = fxgrad.grad(program, argnums=(0, 1, 2))(x, W, 0.25)
        scalar = fxgrad.grad(fxgrad.scalarize(program), argnums=(0, 1, 2))(x.tolist(), W.tolist(), 0.25)
        for one, other in zip(tensor, scalar, strict=True):
            np.testing.assert_allclose(np.array(other), one, rtol=2 * n * np.finfo(float).eps)


def test_g8_local_rules_in_the_backward_program() -> None:
    """exp multiplies by its own value; add passes on; the product multiplies by the other operand."""
    program = fxgrad.make_program(fxgrad.grad(neuron, argnums=(0, 1, 2)))(np.ones(3), np.ones(3), 0.25)
    assert fxgrad.show.program_text(program, source=False, style="equations") == """\
program neuron(x: f64[3], W: f64[3], b: f64*[]) {
  a: f64[] = dot_general(x, W, dimension_numbers=(((0,), (0,)), ((), ())))
  c: f64[] = add(a, b)
  d: f64[] = exp(c)
  d_W: f64[3] = mul(x, d)
  d_x: f64[3] = mul(W, d)
  return d_x, d_W, d
}"""
    layer = fxgrad.make_program(fxgrad.grad(lambda x, W, b: np.sum(neuron(x, W, b)), argnums=(0, 1, 2)))(
        np.ones((2, 3)), np.ones((3, 4)), np.ones(4))
    text = fxgrad.show.program_text(layer, source=False)
    assert "d_x: f64[2,3] = a @ W.T" in text
    assert "d_W: f64[3,4] = x.T @ a" in text
    assert "d_b: f64[4] = sum(a, axis=0)" in text
