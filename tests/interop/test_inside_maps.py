"""Functions of one library inside `shard_map` of the other: values, and gradients taken inside and outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import fxgrad
import fxgrad.numpy as fnp

pytestmark = pytest.mark.slow

RANDOM = np.random.default_rng(0)
W, X = RANDOM.normal(size=(4, 3)), RANDOM.normal(size=(8, 4))


def varying(lax: Any, x: Any) -> Any:
    return lax.pcast(x, "i", to="varying")


# Functions of (the lax and numpy of either library, weights that are the same for all, x[2, 4] of each device).
CASES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "sum": lambda lax, np, w, x: lax.psum(np.sum(np.sin(x @ w)), "i"),
    "gather": lambda lax, np, w, x: lax.pmean(np.sum(lax.all_gather(x, "i") @ w) ** 2, "i"),
    "gather of the same": lambda lax, np, w, x: np.sum(np.sin(lax.all_gather(x, "i", to="invarying") @ w)),
    "scan": lambda lax, np, w, x: lax.psum(lax.scan(lambda c, row: (np.sin(c) * np.sum(w) + np.sum(row), None), varying(
        lax, 0 * np.sum(w)), x)[0], "i"),
    "loop": lambda lax, np, w, x: lax.psum(lax.fori_loop(0, 3, lambda k, c: np.sin(c) * w[0, 0], np.sum(x)), "i"),
    "branch": lambda lax, np, w, x: lax.psum(lax.cond(np.sum(x) > 0, lambda w: np.sum(w) * x[0, 0], lambda w: np.sum(
        w * w), varying(lax, w)), "i"),
    "weight of each": lambda lax, np, w, x: lax.pmean(np.sum(x @ varying(lax, w)) ** 2, "i"),
    "kinks": lambda lax, np, w, x: lax.psum(np.sum(abs(x @ w)) + np.sum(np.maximum(x, 0.1)), "i"),
}


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_all_ways(name: str, check: bool) -> None:
    if name == "gather of the same" and not check:
        pytest.skip("without types jax's gradient is a quarter of that of the values")

    def of_jax(w: Any, x: Any) -> Any:
        return CASES[name](jax.lax, jnp, w, x)

    def ours(w: Any, x: Any) -> Any:
        return CASES[name](fxgrad.lax, fnp, w, x)

    def sharded(library: Any, function: Any, slopes: bool = False) -> Any:
        weights = P() if check else P("i")  # gradients of the same are summed if that is known of them
        mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,))
        return library.shard_map(function, mesh=mesh, in_specs=(P(), P("i")),
                                 out_specs=(weights, P("i")) if slopes else P(), check_vma=check)

    def all_of(library: Any, value: Any, inside: Any) -> Callable[[Any, Any], Any]:
        return lambda w, x: (value(w, x), library.grad(value, (0, 1))(w, x), inside(w, x))

    with jax.enable_x64(True):
        wanted = jax.jit(all_of(jax, sharded(jax, of_jax), sharded(jax, jax.grad(of_jax, (0, 1)), True)))(W, X)
        ways = [
            jax.jit(all_of(jax, sharded(jax, fxgrad.to_jax(ours)),
                           sharded(jax, fxgrad.to_jax(fxgrad.grad(ours, (0, 1))), True))),
            jax.jit(all_of(jax, sharded(jax, fxgrad.to_jax(ours)),
                           sharded(jax, jax.grad(fxgrad.to_jax(ours), (0, 1)), True))),
            jax.jit(all_of(jax, fxgrad.to_jax(sharded(fxgrad, ours)),
                           fxgrad.to_jax(sharded(fxgrad, fxgrad.grad(ours, (0, 1)), True)))),
            all_of(fxgrad, sharded(fxgrad, fxgrad.from_jax(of_jax)),
                   sharded(fxgrad, fxgrad.grad(fxgrad.from_jax(of_jax), (0, 1)), True)),
            all_of(fxgrad, sharded(fxgrad, fxgrad.from_jax(of_jax)),
                   sharded(fxgrad, fxgrad.from_jax(jax.grad(of_jax, (0, 1))), True)),
        ]
        results = [way(W, X) for way in ways]
    for got in results:
        for one, two in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(one, two, 1e-12, 1e-12)
