"""The table of granularities: its figures against what they are of, and what is shown where there are none."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.tools.granularity.comparison import count_nodes

RNG = np.random.default_rng(1)
PARAMS = {"W": RNG.normal(size=(4, 3)), "b": RNG.normal(size=4)}


def loss(params: Any, x: Any, kind: Any) -> Any:
    hidden = np.tanh(params["W"] @ x + params["b"])
    return -fxgrad.nn.log_softmax(hidden)[0] * kind


def test_figures() -> None:
    x = RNG.normal(size=3)
    found = fxgrad.compare_granularities(loss, repeat=1)(PARAMS, x, 2)
    program = fxgrad.make_program(loss)(PARAMS, x, 2)
    assert [row.name for row in found] == ["scalar", "tensor", "fused"]
    assert found["fused"].program is not None
    assert fxgrad.text.equal(found["fused"].program, program)
    assert found["tensor"].equations == len(fxgrad.inline(program, calls="*").equations)
    assert found["scalar"].equations == len(fxgrad.scalarize(program).equations)
    for row in found:
        assert row.program is not None
        assert row.nodes == count_nodes(row.program) == len(fxgrad.graph(row.program).nodes)
        assert row.equations == len(row.program.equations)
        assert row.seconds is not None
        assert 0 < row.seconds < 10
        assert row.difference is not None
        assert row.difference <= 1e-15
    residuals = fxgrad.saved_residuals(loss, PARAMS, x, 2)
    assert found["fused"].saved == len(residuals)
    assert found["fused"].saved_bytes == sum(residual.nbytes for residual in residuals)


def test_without_a_form_in_scalars_or_a_gradient() -> None:
    found = fxgrad.compare_granularities(lambda x: np.sort(x), repeat=1)(np.ones(3))
    assert found["scalar"].program is None
    assert found["scalar"].refusal.startswith("scalarize: sort(f64[3]) at test_comparison.py")
    assert "scalarize: sort(f64[3])" in " ".join(str(found).split())
    assert found["tensor"].difference == 0.0
    of_integers = fxgrad.compare_granularities(lambda x: x + 1, repeat=1)(np.arange(3))
    assert [(row.equations, row.seconds, row.saved) for row in of_integers] == [
        (3, None, None), (1, None, None), (1, None, None)]


def test_of_a_program_and_of_nothing() -> None:
    program = fxgrad.make_program(np.sin)(1.0)
    assert fxgrad.compare_granularities(program, repeat=1)(1.0)["fused"].program is program
    with pytest.raises(errors.ArgumentError, match=r"^compare_granularities takes a function, got a int\. "):
        fxgrad.compare_granularities(3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_loops_are_unrolled_for_scalars() -> None:
    found = fxgrad.compare_granularities(lambda x: fxgrad.lax.fori_loop(0, 3, lambda i, y: y * x, x), repeat=1)(2.0)
    assert found["scalar"].equations == 3
    assert found["tensor"].program is not None
    assert "scan" in {equation.primitive.name for equation in found["tensor"].program.equations}


def test_how_it_is_shown() -> None:
    found = fxgrad.compare_granularities(lambda x: np.exp(x) * 2.0, repeat=1)(np.ones(3))
    lines = str(found).splitlines()
    assert [cell.strip() for cell in lines[2].strip("┃").split("┃")] == [
        "granularity", "nodes", "equations", "time", "saved values", "saved bytes", "gradient differs by"]
    assert [line.split("│")[1].strip() for line in lines[4:7]] == ["scalar", "tensor", "fused"]
    assert "<pre style=" in found._repr_html_()
    assert repr(found) == "<granularities of function: equations: scalar 6, tensor 2, fused 2>"


@pytest.mark.parametrize("x", [
    np.ones(3, np.float32), np.ones(3, ml_dtypes.bfloat16), jnp.ones(3), np.ones((0, 3)), 2.0, np.float32(2.0)],
    ids=["float32", "bfloat16", "jax", "empty", "number", "scalar"])
def test_arguments_of_any_kind(x: Any) -> None:
    rows = {row.name: row for row in fxgrad.compare_granularities(lambda x: fnp.sum(x * x))(x)}
    assert rows["scalar"].equations is not None
    assert rows["scalar"].difference in (None, 0.0)
    assert rows["tensor"].difference == 0.0
