"""The rows of the checklist on granularity, scopes and size: each test is called after its row."""

from __future__ import annotations

import runpy
import time
from collections.abc import Callable
from pathlib import Path
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
    assert fxgrad.text.program_text(program, source=False, style="equations") == """\
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
    text = fxgrad.text.program_text(layer, source=False)
    assert "d_x: f64[2,3] = a @ W.T" in text
    assert "d_W: f64[3,4] = x.T @ a" in text
    assert "d_b: f64[4] = sum(a, axis=0)" in text


def test_g9_finer_is_more_nodes_and_the_same_gradient() -> None:
    """One call gives the table: nodes, equations, time, greatest difference of the gradients."""
    logits, label = np.linspace(-1.0, 1.0, 8), np.eye(8)[2]
    found = fxgrad.compare_granularities(lambda z, y: -np.sum(y * fxgrad.nn.log_softmax(z)), repeat=1)(logits, label)
    scalar, tensor, fused = found
    for finer, coarser in ((scalar, tensor), (tensor, fused)):
        assert finer.nodes > coarser.nodes
        assert finer.equations > coarser.equations
    assert all(row.difference <= 4 * np.finfo(float).eps and row.seconds > 0 for row in found)


@fxgrad.custom_vjp
def log_softmax_cross_entropy(logits: Any, label: Any) -> Any:
    """One operation with a rule of its own, which keeps the gradient and nothing else."""
    return decomposed(logits, label)


def decomposed(logits: Any, label: Any) -> Any:
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    return -np.sum(label * (shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))))


log_softmax_cross_entropy.defvjp(
    lambda logits, label: (decomposed(logits, label), fxgrad.nn.softmax(logits) - label),
    lambda difference, cotangent: (cotangent * difference, None))


def test_w11_a_fused_primitive_against_its_parts() -> None:
    logits, label = np.linspace(-1.0, 1.0, 15).reshape(3, 5), np.eye(5)[[0, 3, 1]]
    fused, parts = (fxgrad.value_and_grad(f)(logits, label) for f in (log_softmax_cross_entropy, decomposed))
    np.testing.assert_allclose(fused[0], parts[0], rtol=1e-15)
    np.testing.assert_allclose(fused[1], parts[1], rtol=1e-14, atol=1e-16)
    kept, kept_of_parts = (fxgrad.saved_residuals(lambda z, f=f: f(z, label), logits)
                           for f in (log_softmax_cross_entropy, decomposed))
    assert len(kept) == 1
    assert len(kept) < len(kept_of_parts)
    assert sum(residual.nbytes for residual in kept) < sum(residual.nbytes for residual in kept_of_parts)
    table = fxgrad.compare_granularities(lambda z: log_softmax_cross_entropy(z, label), repeat=1)(logits)
    assert table["fused"].saved == 1
    assert table["fused"].saved < table["tensor"].saved < table["scalar"].saved


def unrolled(x: Any, W: Any, layers: int) -> Any:
    """As many layers of four operations, as a Python loop records them."""
    for _ in range(layers):
        x = np.tanh(x @ W + x * 0.5)
    return np.sum(x)


@pytest.mark.slow
def test_g22_nothing_recurses_into_long_programs() -> None:
    layers, x, W = 1200, np.ones((2, 4)), np.eye(4) * 0.1
    program = fxgrad.make_program(unrolled, static_argnums=2)(x, W, layers)
    gradient = fxgrad.make_program(fxgrad.grad(unrolled), static_argnums=2)(x, W, layers)
    assert len(program.equations) == 4 * layers + 1
    for each in (program, gradient):
        each.check()
        assert len(str(each).splitlines()) > layers
        assert fxgrad.inline(each, calls="*") is each
    assert len(fxgrad.graph(program).nodes) > len(program.equations)
    assert len(fxgrad.replace_pattern(program, np.tanh, np.sin).edit().find("sin")) == layers
    assert fxgrad.tabulate(lambda x: unrolled(x, W, layers))(x).cost == fxgrad.cost_analysis(program)
    scalars = fxgrad.scalarize(program)
    assert len(scalars.equations) == layers * 8 * (7 + 1 + 1 + 1) + 7


@pytest.mark.bench
def test_g22_seconds_for_50_000_equations() -> None:
    x, W = np.ones((2, 4)), np.eye(4) * 0.1

    def seconds(make: Callable[[], fxgrad.Program], at_least: int) -> float:
        begin = time.perf_counter()
        program = make()
        assert len(program.equations) >= at_least
        return time.perf_counter() - begin

    def best(function: Any, at_least: int) -> float:
        return min(seconds(lambda: fxgrad.make_program(function, static_argnums=2)(x, W, 12_500), at_least)
                   for _ in range(2))

    assert best(unrolled, 50_000) < 2.0
    assert best(fxgrad.grad(unrolled), 100_000) < 6.0


def test_v2_programs_are_edited_and_run_as_python() -> None:
    """Insert, replace, erase, rewrite a subgraph; the file that `to_python` writes computes the same."""
    program = neuron_program(3)
    editor = program.edit()
    editor.replace(editor.find("exp")[0], np.tanh)
    shifted = editor.insert(lambda x: x - 1.0, "x", name="shifted")
    editor.substitute("x", shifted)
    edited = fxgrad.replace_pattern(editor.program(), lambda p, b: np.tanh(p + b), lambda p, b: np.tanh(p) * b)
    assert [equation.primitive.name for equation in edited.equations] == ["sub", "dot_general", "tanh", "mul"]
    with pytest.raises(fxgrad.errors.ArgumentError, match="is used by tanh"):
        edited.edit().erase(edited.edit().find("dot_general")[0])
    x, W, b = np.arange(3.0), np.full(3, 0.1), 0.25
    space: dict[str, Any] = {"__name__": "edited"}
    exec(edited.to_python(), space)
    assert space["neuron"](x, W, b) == edited(x, W, b) == np.tanh((x - 1.0) @ W) * b


@pytest.mark.slow
def test_p10_the_page_has_what_its_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Three vocabularies of the same functions: the counts on the page are those of today, the times are measured."""
    root = Path(__file__).resolve().parents[3]
    runpy.run_path(str(root / "examples" / "granularity.py"), run_name="__main__")
    printed = counts_in(capsys.readouterr().out)
    assert len(printed) == 9
    assert {name for name, *_ in printed} == {"scalar", "tensor", "fused"}
    page = (root / "docs" / "appendix" / "granularity.md").read_text(encoding="utf-8")
    assert "`python examples/granularity.py` writes these tables" in page
    assert counts_in(page[page.index("## Too few, too many"):page.index("## Long programs")]) == printed


def counts_in(text: str) -> list[tuple[str, ...]]:
    """Of each row of the tables in a text the name, the nodes, the equations, the values and bytes that are saved."""
    rows = [[cell.strip() for cell in line.strip().strip("│").split("│")] for line in text.splitlines()
            if line.strip().startswith("│")]
    return [(name, nodes, equations, saved, size) for name, nodes, equations, _, saved, size, _ in rows]
