"""Collectives over axes that jax maps: in functions of `to_jax` under `jax.shard_map` and `jax.vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import fxgrad
from fxgrad.lax import collectives

X = np.random.default_rng(0).normal(size=(32, 12))
ROWS = PartitionSpec(("i", "j"))


def mesh() -> Any:
    return jax.make_mesh((4, 2), ("i", "j"), axis_types=(AxisType.Auto,) * 2)


def on_mesh(function: Callable[[Any], Any], out: Any = ROWS, check: bool = False) -> Callable[[Any], Any]:
    return jax.jit(jax.shard_map(function, mesh=mesh(), in_specs=ROWS, out_specs=out, check_vma=check))


# Functions of (the lax of either library, x[4, 12]) over the axes "i" and "j" of sizes 4 and 2.
CASES: dict[str, Callable[[Any, Any], Any]] = {
    "psum": lambda lax, x: lax.psum(x * x, "i") * x,
    "psum over two": lambda lax, x: lax.psum(x * x, ("i", "j")) * x,
    "pmean over two": lambda lax, x: lax.pmean(x * x, ("j", "i")) * x,
    "psum of a constant": lambda lax, x: lax.psum(2.0, ("i", "j")) * x,
    "ppermute": lambda lax, x: lax.ppermute(x * x, "i", [(0, 1), (1, 2), (2, 0)]),
    "pshuffle": lambda lax, x: lax.pshuffle(x * x, "i", [2, 0, 1, 3]),
    "all_gather": lambda lax, x: lax.all_gather(x * x, "j").sum(0),
    "all_gather over two": lambda lax, x: lax.all_gather(x * x, ("i", "j"), axis=1, tiled=True),
    "all_gather over two, turned": lambda lax, x: lax.all_gather(x * x, ("j", "i"), axis=1).sum(2) * x[:, :8],
    "psum_scatter": lambda lax, x: lax.psum_scatter(x * x, "i", tiled=True),
    "psum_scatter over two": lambda lax, x: lax.psum_scatter(x[:, :8] ** 2, ("i", "j"), scatter_dimension=1),
    "psum_scatter over two, turned": lambda lax, x: lax.psum_scatter(x[:, :8] ** 2, ("j", "i"), scatter_dimension=1),
    "all_to_all": lambda lax, x: lax.all_to_all(x * x, "i", 1, 0, tiled=True),
    "ppermute over two": lambda lax, x: lax.ppermute(x * x, ("j", "i"), [(0, 5), (1, 2), (7, 0)]),
    "all_to_all over two": lambda lax, x: lax.all_to_all(x[:, :8] ** 2, ("i", "j"), 1, 0, tiled=True),
    "axis_index": lambda lax, x: x * lax.axis_index(("j", "i")) + lax.axis_size("i"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_functions_for_jax(name: str) -> None:
    def of(lax: Any) -> tuple[Any, ...]:
        def function(x: Any) -> Any:
            return CASES[name](lax, x)
        value = on_mesh(fxgrad.to_jax(function) if lax is collectives else function)
        return value(X), jax.grad(lambda x: jax.numpy.sin(value(x)).sum())(X)

    with jax.enable_x64(True):
        for got, wanted in zip(of(collectives), of(jax.lax), strict=True):
            np.testing.assert_allclose(got, wanted, 1e-12, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pmax", "pmin"])
def test_extrema(name: str) -> None:
    for axes in ("i", ("i", "j")):
        got = on_mesh(fxgrad.to_jax(lambda x, axes=axes: getattr(collectives, name)(x, axes)))(X)
        np.testing.assert_array_equal(got, on_mesh(lambda x, axes=axes: getattr(jax.lax, name)(x, axes))(X))


def test_two_axes_are_one_all_reduce() -> None:
    """Gradients by fxgrad inside as well: each is summed once, over both axes."""
    def total(x: Any) -> Any:
        return collectives.psum(fxgrad.grad(lambda x: (x * x).sum())(x), ("i", "j"))
    text = on_mesh(fxgrad.to_jax(total)).lower(X.astype(np.float32)).compile().as_text()
    assert text.count(" all-reduce(") + text.count(" all-reduce-start(") == 1
    np.testing.assert_allclose(on_mesh(fxgrad.to_jax(total))(X.astype(np.float32))[:4], 2 * X.reshape(8, 4, 12).sum(0),
                               1e-5)


def test_operations_on_tracers_of_jaxs() -> None:
    """Without `to_jax` the operations of fxgrad are jax's at once."""
    def function(x: Any) -> Any:
        return collectives.psum(x, "i") * collectives.axis_index("i") + collectives.pmax(x, "i")
    x = X[:4].astype(np.float32)
    wanted = jax.vmap(lambda x: jax.lax.psum(x, "i") * jax.lax.axis_index("i") + jax.lax.pmax(x, "i"), axis_name="i")(x)
    np.testing.assert_allclose(jax.vmap(function, axis_name="i")(x), wanted, 1e-6)


def test_a_jitted_function_is_not_remembered_for_another_size() -> None:
    """Nor is one outside of `to_jax`."""
    inner = fxgrad.jit(lambda x: x * collectives.axis_size("i") + collectives.psum(x, "i"))
    for function in (fxgrad.to_jax(lambda x: inner(x)), inner):
        for size in (2, 3, 2):
            x = np.arange(size, dtype=np.float32)
            np.testing.assert_array_equal(jax.vmap(function, axis_name="i")(x), x * size + x.sum())
