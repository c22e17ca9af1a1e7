"""Repeated blocks on meshes: those with collectives, and those of one device, stay as they are; loops keep theirs."""

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

MESH = jax.make_mesh((4,), ("model",), axis_types=(AxisType.Auto,), devices=jax.devices()[:4])
DEPTH = 16
X = np.linspace(-1.0, 1.0, 32, dtype="f").reshape(4, 8)
INTO = np.sin(np.arange(DEPTH * 8 * 16, dtype="f")).reshape(DEPTH, 8, 16) / 4
OUT = np.cos(np.arange(DEPTH * 16 * 8, dtype="f")).reshape(DEPTH, 16, 8) / 4
SPECS = {"in_specs": (P(), P(None, None, "model"), P(None, "model")), "out_specs": P()}


def layer(lib: Any, psum: Callable[[Any], Any], x: Any, into: Any, out: Any) -> Any:
    """A layer whose hidden units lie on the devices: one sum over them."""
    return x + lib.tanh(psum(lib.tanh(x @ into) @ out)) * 0.1


def unrolled(lib: Any, lax: Any) -> Callable[..., Any]:
    def network(x: Any, into: Any, out: Any) -> Any:
        for index in range(DEPTH):
            x = layer(lib, lambda value: lax.psum(value, "model"), x, into[index], out[index])
        return lib.sum(x * x)
    return network


def as_scan(x: Any, into: Any, out: Any) -> Any:
    def step(x: Any, each: Any) -> Any:
        return layer(fnp, lambda value: fxgrad.lax.psum(value, "model"), x, *each), None
    return fnp.sum(fxgrad.lax.scan(step, x, (into, out))[0] ** 2)


def expected() -> tuple[Any, Any]:
    """The value and the gradients, by jax on one device."""
    def network(x: Any, into: Any, out: Any) -> Any:
        for index in range(DEPTH):
            x = layer(jnp, lambda value: value, x, into[index], out[index])
        return jnp.sum(x * x)
    return jax.jit(jax.value_and_grad(network, argnums=(0, 1, 2)))(X, INTO, OUT)


def lowered(function: Callable[..., Any]) -> str:
    return fxgrad.jit(function).lower(X, INTO, OUT).as_text()


def all_equations(program: Any) -> list[Any]:
    return [each for equation in program.equations for each in (
        equation, *(inner for nested in equation.programs for inner in all_equations(nested)))]


@pytest.mark.slow
def test_layers_with_collectives_in_shard_map_are_compiled_as_they_are_written() -> None:
    """XLA combines the communication of several layers."""
    function = fxgrad.shard_map(unrolled(fnp, fxgrad.lax), mesh=MESH, **SPECS)
    gradient = fxgrad.value_and_grad(function, argnums=(0, 1, 2))
    for each, sums in ((function, DEPTH), (gradient, 2 * DEPTH - 1)):
        text = lowered(each)
        assert "stablehlo.while" not in text
        assert "inlineable" not in text
        assert text.count("stablehlo.all_reduce") >= sums
    for rolled in (gradient, fxgrad.roll(gradient), fxgrad.value_and_grad(fxgrad.roll(function), argnums=(0, 1, 2))):
        found = fxgrad.jit(rolled)(X, INTO, OUT)
        for one, other in zip(fxgrad.tree_util.tree_leaves(found), jax.tree.leaves(expected()), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


@pytest.mark.slow
def test_a_scan_with_a_collective_keeps_it_inside_of_the_loop() -> None:
    gradient = fxgrad.value_and_grad(fxgrad.shard_map(as_scan, mesh=MESH, **SPECS), argnums=(0, 1, 2))
    text = lowered(gradient)
    # One forward; one backward, for the input that all devices have.
    assert text.count("stablehlo.while") == 2
    assert text.count('"stablehlo.all_reduce"') <= 3
    for one, other in zip(fxgrad.tree_util.tree_leaves(fxgrad.jit(gradient)(X, INTO, OUT)),
                          jax.tree.leaves(expected()), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


@pytest.mark.slow
def test_blocks_between_collectives_are_rolled_under_vmap_and_stay_in_shard_map() -> None:
    def network(x: Any, w: Any) -> Any:
        for _ in range(3):
            for index in range(4):
                x = fnp.tanh(x * w[index]) + 1.0
            x = x * 0.5 + fxgrad.lax.psum(x, "model")
        return x

    def counts(function: Any) -> tuple[int, int]:
        names = [str(each.primitive) for each in all_equations(fxgrad.make_program(function)(xs, w))]
        return names.count("scan"), sum("sum" in name for name in names)

    xs, w = np.linspace(0.0, 1.0, 8).reshape(4, 2), np.linspace(0.5, 1.0, 4)
    wanted = np.asarray(fxgrad.vmap(network, (0, None), axis_name="model")(xs, w))
    rolled = fxgrad.roll(network, by="scan")
    mapped = fxgrad.vmap(rolled, (0, None), axis_name="model")
    assert counts(mapped) == (3, 3)
    np.testing.assert_allclose(mapped(xs, w), wanted, rtol=1e-12)
    for checks in (True, False):
        mapped = fxgrad.shard_map(rolled, mesh=MESH, in_specs=(P("model"), P()), out_specs=P("model"), check_vma=checks)
        assert counts(mapped) == (0, 3)
        np.testing.assert_allclose(mapped(xs, w), wanted, rtol=1e-12)


def test_layers_with_collectives_are_no_copies_of_one_block() -> None:
    mapped = fxgrad.vmap(fxgrad.roll(unrolled(fnp, fxgrad.lax)), (None, 2, 1), axis_size=16, axis_name="model")
    program = fxgrad.make_program(mapped)(X, INTO[..., None], OUT[:, :, None])
    assert not any(str(each.primitive) in ("scan", "jit_call") for each in all_equations(program))
