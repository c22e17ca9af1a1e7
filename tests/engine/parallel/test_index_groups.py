"""Collectives in groups of entries: against jax on eight devices, which has them in `shard_map` alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

import fxgrad
from fxgrad.lax import collectives
from fxgrad.testing import check_grads

X = np.random.default_rng(0).normal(size=(8, 4, 3))
PAIRS = [[0, 3], [1, 2], [5, 4], [7, 6]]
FOURS = [[0, 2, 4, 6], [7, 5, 3, 1]]
UNEQUAL = [[6], [0, 2], [1, 3, 4], [7, 5]]

# Functions of (the lax of either library, x[4, 3]) over the axis "i" of size 8.
CASES: dict[str, Callable[[Any, Any], Any]] = {
    "psum": lambda lax, x: lax.psum(x * x, "i", axis_index_groups=FOURS) * x,
    "psum in unequal groups": lambda lax, x: lax.psum(x * x, "i", axis_index_groups=UNEQUAL) * x,
    "psum of constants": lambda lax, x: x * lax.psum(2.0, "i", axis_index_groups=PAIRS) + lax.psum(
        np.arange(3.0), "i", axis_index_groups=FOURS),
    "pmean": lambda lax, x: lax.pmean(x * x, "i", axis_index_groups=PAIRS) * x,
    "all_gather": lambda lax, x: lax.all_gather(x * x, "i", axis_index_groups=PAIRS, axis=1),
    "all_gather tiled": lambda lax, x: lax.all_gather(x * x, "i", axis_index_groups=FOURS, axis=1, tiled=True),
    "psum_scatter": lambda lax, x: lax.psum_scatter(x * x, "i", axis_index_groups=FOURS),
    "psum_scatter tiled": lambda lax, x: lax.psum_scatter(x * x, "i", axis_index_groups=PAIRS, tiled=True),
    "all_to_all": lambda lax, x: lax.all_to_all(x * x, "i", 0, 0, axis_index_groups=FOURS),
    "all_to_all tiled": lambda lax, x: lax.all_to_all(x * x, "i", 0, 1, axis_index_groups=PAIRS, tiled=True),
}


def by_jax(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`function` on each of eight devices, as `vmap` would have it."""
    mesh = jax.make_mesh((8,), ("i",), axis_types=(AxisType.Auto,))
    rows = PartitionSpec("i")
    return jax.shard_map(lambda x: function(x[0])[None], mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_against_jax(name: str) -> None:
    def function(x: Any) -> Any:
        return CASES[name](collectives, x)

    @jax.jit
    def wanted(x: Any) -> Any:
        mapped = by_jax(lambda x: CASES[name](jax.lax, x))
        emitted = by_jax(fxgrad.to_jax(function))
        return mapped(x), jax.grad(lambda x: jax.numpy.sin(mapped(x)).sum())(x), emitted(x), jax.grad(
            lambda x: jax.numpy.sin(emitted(x)).sum())(x)

    mapped = fxgrad.vmap(function, axis_name="i")
    with jax.enable_x64(True):
        value, slope, *emitted = wanted(X)
    got = mapped(X), fxgrad.grad(lambda x: np.sum(np.sin(mapped(x))))(X)
    for one, two in zip([*got, *emitted], [value, slope] * 2, strict=True):
        np.testing.assert_allclose(one, two, 1e-12, 1e-12)
    check_grads(mapped, (X[:, :, :1],) if "to_all" not in name and "tiled" not in name else (X,), order=2)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == "psum" else pytest.mark.slow)
                                  for name in CASES])
def test_on_a_mesh(name: str, check: bool) -> None:
    """As under `vmap`: what groups have differs from device to device."""
    def entry(x: Any) -> Any:
        return CASES[name](collectives, x)

    def total(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: np.sum(np.sin(f(x)))

    mapped = fxgrad.vmap(entry, axis_name="i")
    for mesh in (AbstractMesh((8,), ("i",)), jax.make_mesh((8,), ("i",), axis_types=(AxisType.Auto,))):
        sharded = fxgrad.shard_map(lambda x: entry(x[0])[None], mesh=mesh, in_specs=PartitionSpec("i"),
                                   out_specs=PartitionSpec("i"), check_vma=check)
        run = (lambda f: f) if isinstance(mesh, AbstractMesh) else fxgrad.jit
        np.testing.assert_allclose(run(sharded)(X), mapped(X), 1e-12)
        np.testing.assert_allclose(run(fxgrad.grad(total(sharded)))(X), fxgrad.grad(total(mapped))(X), 1e-12, 1e-14)


def test_extrema_and_unequal_means() -> None:
    groups = [group for group in UNEQUAL for _ in group]
    order = [position for group in UNEQUAL for position in group]
    x = X[:, 0, 0]
    for collective, reduce in ((collectives.pmax, np.max), (collectives.pmin, np.min), (collectives.pmean, np.mean)):
        mapped = fxgrad.vmap(lambda x, collective=collective: collective(x, "i", axis_index_groups=UNEQUAL),
                             axis_name="i")
        np.testing.assert_allclose(mapped(x)[order], [reduce(x[group]) for group in groups], 1e-14)
        check_grads(mapped, (x,), order=2)


def test_beside_other_axes() -> None:
    """Batched along another axis, before it and after it, each batch has its own groups."""
    def function(x: Any) -> Any:
        return collectives.all_to_all(x, "i", 0, 1, axis_index_groups=PAIRS, tiled=True)
    one = fxgrad.vmap(function, axis_name="i")
    wanted = np.stack([one(X), one(2 * X)])
    both = np.stack([X, 2 * X])
    np.testing.assert_array_equal(fxgrad.vmap(one)(both), wanted)
    inside = fxgrad.vmap(fxgrad.vmap(function, in_axes=1, out_axes=2), in_axes=1, out_axes=3, axis_name="i")
    np.testing.assert_array_equal(inside(both.transpose(2, 1, 0, 3)), np.moveaxis(wanted, (0, 1), (2, 3)))
