"""Thirty problems from the literature: patterns are exact, and matrices jax's dense ones to 12 digits."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tools"))

problems = importlib.import_module("benchmarks.sparse_problems")
NAMES = [*((name, "jacobian", problem) for name, problem in problems.EQUATIONS.items()),
         *((name, "hessian", problem) for name, problem in problems.OBJECTIVES.items())]


def test_there_are_thirty() -> None:
    assert len(NAMES) == 30
    assert all(problem.size >= 10_000 for _, _, problem in NAMES)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "problem"), NAMES, ids=[name for name, _, _ in NAMES])
def test_patterns_are_exact_and_values_are_those_of_dense_matrices(name: str, kind: str, problem: Any) -> None:
    matrix = getattr(fxgrad, kind)(lambda x: problem.function(fnp, x), sparse=True)
    with jax.enable_x64(True):
        dense = jax.jit(getattr(jax, kind)(lambda x: problem.function(jnp, x)))
        seen: Any = False
        for seed in range(3):
            x = problems.start(problem, True) + np.random.default_rng(seed).uniform(0.0, 0.3, problem.small)
            found, expected = matrix(x), np.asarray(dense(x))
            np.testing.assert_allclose(found.toarray(), expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
            seen = seen | (expected != 0)
    assert found.nnz == np.count_nonzero(seen), name


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [
    ("ARWHEAD", 2), ("BDQRTIC", 8), ("Bratu", 5), ("Allen-Cahn", 5), ("Cahn-Hilliard", 20), ("Brusselator", 11),
    ("nonlinear diffusion", 5), ("minimal surface", 9), ("WOODS", 3), ("Powell singular", 3),
    ("van der Pol, Lagrangian", 2), ("cart and pole, Lagrangian", 2)])
def test_few_passes_suffice(name: str, most: int) -> None:
    _, kind, problem = next(each for each in NAMES if each[0] == name)
    pattern = getattr(fxgrad.sparsity(lambda x: problem.function(fnp, x))(problems.start(problem, False)), kind)
    compression = pattern.compression("symmetric" if kind == "hessian" else "auto")
    assert compression.columns.number + compression.rows.number <= most
