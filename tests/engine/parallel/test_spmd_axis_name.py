"""`vmap(spmd_axis_name=...)` around `shard_map`: the mapped axis is cut along mesh axes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors

RANDOM = np.random.default_rng(0)
W, X = RANDOM.normal(size=(3, 4)), RANDOM.normal(size=(4, 8, 3))


def mesh(abstract: bool = False) -> Any:
    return AbstractMesh((2, 2), ("i", "j")) if abstract else jax.make_mesh(
        (2, 2), ("i", "j"), axis_types=(AxisType.Auto,) * 2)


# Functions of (the lax and numpy of either library, w[3, 4] that is the same for all, x[8 / 2, 3] of each device).
CASES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "sums": lambda lax, np, w, x: (lax.psum(np.sin(x @ w).sum(0), "i"), lax.psum(w * w, "i")),
    "a loop": lambda lax, np, w, x: (lax.psum(lax.scan(lambda c, row: (np.sin(c) * w.sum() + row.sum(), None), x.sum(),
                                                       x)[0] * w[0], "i"), 2.0 * w),
}


@pytest.mark.slow
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_against_jax(name: str, check: bool) -> None:
    def mapped(library: Any, lax: Any, numpy: Any, mesh: Any) -> Callable[[Any, Any], Any]:
        one = library.shard_map(lambda w, x: CASES[name](lax, numpy, w, x), mesh=mesh, in_specs=(P(), P("i")),
                                out_specs=(P(), P()), check_vma=check)
        cut = {"spmd_axis_name": "j"} if library is fxgrad else {}  # of jax, some gradients fail
        return library.vmap(one, in_axes=(None, 0), out_axes=0, **cut)

    def all_of(library: Any, f: Any, numpy: Any) -> Callable[[Any, Any], Any]:
        def total(w: Any, x: Any) -> Any:
            return sum(numpy.sin(part).sum() for part in f(w, x))
        return lambda w, x: (f(w, x), library.grad(total, (0, 1))(w, x))

    with jax.enable_x64(True):
        wanted = jax.jit(all_of(jax, mapped(jax, jax.lax, jnp, mesh()), jnp))(W, X)
    ours = all_of(fxgrad, mapped(fxgrad, fxgrad.lax, fnp, mesh()), fnp)
    without = all_of(fxgrad, mapped(fxgrad, fxgrad.lax, fnp, mesh(abstract=True)), fnp)
    for got in (fxgrad.jit(ours)(W, X), without(W, X)):
        for one, two in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(one, two, 1e-12, 1e-12)


def test_each_device_has_some_of_the_entries() -> None:
    """With NumPy too; and XLA leaves the results where they are."""
    def shape_of_piece(x: Any) -> Any:
        return x * x.shape[0]
    one = fxgrad.shard_map(shape_of_piece, mesh=mesh(abstract=True), in_specs=P("i"), out_specs=P("i"))
    program = fxgrad.make_program(fxgrad.vmap(one, spmd_axis_name="j"))(X)
    equation, = program.equations
    assert equation.params["in_specs"] == ((("j",), ("i",), ()),)
    assert equation.params["program"].in_avals[0].shape == (2, 4, 3)


@pytest.mark.parametrize(("size", "names", "error", "message"), [
    (4, "i", errors.ArgumentError,
     ("vmap: spmd_axis_name has 'i', which a shard_map inside shards or reduces over already. Name mesh axes that it "
      "does not use")),
    (3, "j", errors.ShapeError,
     ("vmap: the mapped axis of size 3 is to be cut along the mesh axis 'j' (spmd_axis_name) into 2 equal pieces, and "
      "3 is not divisible by 2. Pad it")),
])
def test_messages(size: int, names: str, error: type[Exception], message: str) -> None:
    one = fxgrad.shard_map(lambda x: x, mesh=mesh(abstract=True), in_specs=P("i"), out_specs=P("i"))
    with pytest.raises(error, match=f"^{re.escape(message)}(\n  at .*)?$"):
        fxgrad.vmap(one, spmd_axis_name=names)(np.ones((size, 2)))
