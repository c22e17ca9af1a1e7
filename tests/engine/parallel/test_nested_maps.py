"""`shard_map` inside of `shard_map`: the inner function speaks over the axes of both."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax

W, X = np.random.default_rng(0).normal(size=4), np.random.default_rng(1).normal(size=(8, 4))


@pytest.mark.parametrize("check", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_sum_over_both(check: bool, compiled: bool) -> None:
    mesh = jax.make_mesh((4, 2), ("i", "j"), axis_types=(AxisType.Auto,) * 2) if compiled else AbstractMesh(
        (4, 2), ("i", "j"))

    def outer(w: Any, x: Any) -> Any:
        inner = fxgrad.shard_map(lambda w, x: lax.psum(fnp.sin(x * w).sum(), ("i", "j")), axis_names={"j"},
                                 in_specs=(P("j"), P(None, "j")), out_specs=P(), check_vma=check)
        return inner(w, x)

    total = fxgrad.shard_map(outer, mesh=mesh, in_specs=(P(), P("i")), out_specs=P(), axis_names={"i"}, check_vma=check)
    both = fxgrad.value_and_grad(total, (0, 1))
    value, slopes = (fxgrad.jit(both) if compiled else both)(W, X)
    np.testing.assert_allclose(value, np.sin(X * W).sum(), 1e-12)
    np.testing.assert_allclose(slopes[0], (np.cos(X * W) * X).sum(0), 1e-12)
    np.testing.assert_allclose(slopes[1], np.cos(X * W) * W, 1e-12)
