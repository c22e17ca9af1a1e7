"""Branches and loops that differ by device, in `shard_map`: their derivatives sum outside of them, where all come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import fxgrad
import fxgrad.numpy as fnp

RANDOM = np.random.default_rng(0)
W, X = RANDOM.normal(size=3), RANDOM.normal(size=(4, 3))

# Functions of (the lax and numpy of either library, weights that are the same for all, x[3] of each).
CASES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "cond": lambda lax, np, w, x: lax.cond(lax.axis_index("i") == 1, lambda: np.sum(np.sin(w) * x * w),
                                           lambda: np.sum(x)),
    "cond of operands": lambda lax, np, w, x: lax.cond(x[0] > 0, lambda w, x: np.sum(w * x), lambda w, x: np.sum(
        w * w), w, x),
    "switch": lambda lax, np, w, x: lax.switch(lax.axis_index("i"), [lambda: 2.0 * np.sum(w), lambda: np.sum(x),
                                                                    lambda: np.sum(w * x)]),
    "a loop in a branch": lambda lax, np, w, x: lax.cond(x[0] > 0, lambda: lax.scan(
        lambda c, e: (np.sin(c) * w[0] + e, None), w[1], w * x)[0], lambda: w[2]),
    "a branch in a branch": lambda lax, np, w, x: lax.cond(x[0] > 0, lambda: lax.cond(
        x[1] > 0, lambda: np.sum(w * x), lambda: w[1] * w[0]), lambda: w[2]),
    "while_loop": lambda lax, np, w, x: lax.while_loop(lambda c: c[0] < 3.0, lambda c: (
        c[0] + x[0] * x[0] + 1.0, np.sin(c[1]) * w[0] + w[1]), (x[0] - x[0], w[2]))[1],
    "fori_loop": lambda lax, np, w, x: lax.fori_loop(0, lax.axis_index("i"), lambda k, c: c * w[0] + x[1] * w[1], w[2]),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == "cond" else pytest.mark.slow)
                                  for name in CASES])
def test_derivatives(name: str) -> None:
    reverse = name not in ("while_loop", "fori_loop")  # jax has none of these

    def by_devices(mesh: Any) -> Callable[[Any, Any], Any]:
        return fxgrad.shard_map(lambda w, x: fxgrad.lax.psum(fnp.sin(CASES[name](fxgrad.lax, fnp, w, x[0])), "i"),
                                mesh=mesh, in_specs=(P(), P("i")), out_specs=P())

    def of_jax(w: Any, x: Any) -> Any:
        return jax.vmap(lambda x: jax.lax.psum(jnp.sin(CASES[name](jax.lax, jnp, w, x)), "i"), axis_name="i")(x)[0]

    with jax.enable_x64(True):
        wanted = jax.jit(lambda w, x: (of_jax(w, x), (jax.grad if reverse else jax.jacfwd)(of_jax, (0, 1))(w, x)))(W, X)
    sharded = by_devices(AbstractMesh((4,), ("i",)))
    compiled = fxgrad.jit(fxgrad.value_and_grad(by_devices(jax.make_mesh((4,), ("i",))), (0, 1)))
    for got in (fxgrad.value_and_grad(sharded, (0, 1))(W, X), compiled(W, X)):
        for one, two in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(one, two, 1e-12, 1e-12)
    hessian = fxgrad.jvp(fxgrad.grad(sharded), (W, X), (np.cos(W), np.cos(X)))[1]
    step = 1e-6
    ends = [fxgrad.grad(sharded)(W + sign * step * np.cos(W), X + sign * step * np.cos(X)) for sign in (1, -1)]
    np.testing.assert_allclose(hessian, (ends[0] - ends[1]) / (2 * step), 2e-8, 2e-9)


@pytest.mark.parametrize("check_vma", [True, False])
def test_a_jitted_branch_on_values_that_are_equal_on_all_devices(check_vma: bool) -> None:
    """XLA compiles the jitted function alone, where there is no axis that values of unchecked types would vary over."""
    @fxgrad.jit
    def branch(w: Any, x: Any) -> Any:
        return fxgrad.lax.cond(fnp.sum(x) > 0, lambda: fnp.sum(fnp.exp(-x * x)), lambda: fnp.sum(x * w))

    mapped = fxgrad.shard_map(branch, mesh=jax.make_mesh((2,), ("i",)), in_specs=(P(), P()), out_specs=P(),
                              check_vma=check_vma)
    positive, negative = np.array([0.5, 1.0, -0.2]), np.array([-0.5, -1.0, 0.2])
    np.testing.assert_allclose(fxgrad.grad(mapped, 1)(W, positive), -2.0 * positive * np.exp(-positive ** 2), 1e-14)
    np.testing.assert_allclose(fxgrad.grad(mapped, 1)(W, negative), W, 1e-14)


def unequal_steps(x: Any) -> Any:
    return fnp.sum(fxgrad.lax.while_loop(lambda c: fnp.sum(c) < 10.0, lambda c: c * 1.5 + fnp.sin(c), x))


@pytest.mark.slow
@pytest.mark.parametrize("check_vma", [True, False])
def test_reverse_over_reverse_of_a_while_loop_whose_steps_differ_by_device(check_vma: bool) -> None:
    def twice(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return fxgrad.grad(lambda x: fnp.sum(fxgrad.grad(lambda x: fnp.sum(function(x)))(x) ** 2))

    sharded = fxgrad.shard_map(lambda x: unequal_steps(x)[None], mesh=jax.make_mesh((2,), ("i",)),
                               in_specs=P("i"), out_specs=P("i"), check_vma=check_vma)
    x = np.array([0.3, 2.0])
    wanted = np.concatenate([twice(unequal_steps)(x[:1]), twice(unequal_steps)(x[1:])])
    np.testing.assert_allclose(twice(sharded)(x), wanted, 1e-12)
    np.testing.assert_allclose(fxgrad.jit(twice(sharded))(x), wanted, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("check_vma", [True, False])
def test_reverse_over_reverse_of_a_while_loop_that_communicates(check_vma: bool) -> None:
    def loss(lax: Any, np: Any, x: Any) -> Any:
        return np.sum(lax.fori_loop(0, 3, lambda _, c: c * 0.5 + np.sin(lax.psum(c, "i") * x), x) ** 2)

    def through_while(x: Any) -> Any:
        return fnp.sum(fxgrad.lax.while_loop(lambda c: c[1] < 3, lambda c: (
            c[0] * 0.5 + fnp.sin(fxgrad.lax.psum(c[0], "i") * x), c[1] + 1), (x, 0))[0] ** 2)

    def twice(grad: Any, np: Any, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return grad(lambda x: np.sum(np.sin(grad(function)(x))))

    with jax.enable_x64(True):
        wanted = jax.vmap(twice(jax.grad, jnp, lambda x: loss(jax.lax, jnp, x)), axis_name="i")(X[:2])
    sharded = fxgrad.shard_map(twice(fxgrad.grad, fnp, through_while), mesh=jax.make_mesh((2,), ("i",)),
                               in_specs=P("i"), out_specs=P("i"), check_vma=check_vma)
    for got in (sharded(X[:2].ravel()), fxgrad.jit(sharded)(X[:2].ravel())):
        np.testing.assert_allclose(got, np.ravel(wanted), 1e-12)
