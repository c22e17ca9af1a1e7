"""Containers registered with jax pass through every transformation as they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from tests.support.oracle import assert_close, draw


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    """As Flax's and Equinox's modules: arrays, and fields that are none."""

    weight: Any
    bias: Any
    activation: Any = dataclasses.field(metadata={"static": True}, default="tanh")


class State(NamedTuple):
    """As the states of Optax's optimisers."""

    count: Any
    mean: Any


@jax.tree_util.register_pytree_node_class
class Pair:
    """A class with methods of its own for being taken apart."""

    def __init__(self, first: Any, second: Any, name: str) -> None:
        self.first, self.second, self.name = first, second, name

    def tree_flatten(self) -> tuple[Any, str]:
        return (self.first, self.second), self.name

    @classmethod
    def tree_unflatten(cls, name: str, children: Any) -> Pair:
        return cls(*children, name)


TREES: dict[str, Callable[[], Any]] = {
    "dataclass": lambda: Layer(draw(2, 3), draw(2, seed=1)),
    "named tuple": lambda: State(draw(), draw(3, seed=1)),
    "class": lambda: Pair(draw(2), {"a": draw(2, seed=1)}, "p"),
    "nested": lambda: {"layers": [Layer(draw(2), State(draw(), draw(2)))], "pair": Pair(draw(), None, "q")},
}


def energy(sums: Any) -> Callable[[Any], Any]:
    def function(tree: Any) -> Any:
        return sum(sums.sum(sums.sin(leaf) * leaf) for leaf in jax.tree.leaves(tree))
    return function


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("imported", [False, True], ids=["fxgrad", "from_jax"])
def test_transformations(name: str, imported: bool) -> None:
    tree = TREES[name]()
    ours = fxgrad.from_jax(energy(jnp)) if imported else energy(fnp)
    with jax.enable_x64(True):
        wanted = jax.jit(jax.grad(energy(jnp)))(tree)
    for gradient in (fxgrad.grad(ours), fxgrad.jit(fxgrad.grad(ours))):
        found = gradient(tree)
        assert jax.tree.structure(found) == jax.tree.structure(tree)
        assert type(found) is type(tree)
        assert_close(found, wanted, "grad")
    _, tangent = fxgrad.jvp(ours, (tree,), (wanted,))
    assert_close(tangent, sum(np.sum(np.asarray(leaf) ** 2) for leaf in jax.tree.leaves(wanted)), "jvp")
    assert_close(fxgrad.vjp(ours, tree)[1](np.float64(1.0))[0], wanted, "vjp")
    batch = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), tree)
    assert_close(fxgrad.vmap(fxgrad.grad(ours))(batch), jax.tree.map(lambda leaf: np.stack([leaf, leaf]), wanted),
                 "vmap")


@pytest.mark.parametrize("name", TREES)
def test_results(name: str) -> None:
    """Containers that are returned are as jax would return them, from an import and from an export."""
    tree = TREES[name]()

    def doubled(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf * 2, tree)

    for found in (fxgrad.from_jax(doubled)(tree), fxgrad.jit(fxgrad.from_jax(doubled))(tree),
                  jax.jit(fxgrad.to_jax(doubled))(jax.tree.map(jnp.float32, tree))):
        assert jax.tree.structure(found) == jax.tree.structure(tree)
        assert_close(jax.tree.map(np.float32, found), jax.tree.map(lambda leaf: np.float32(leaf * 2), tree), "value",
                     1e-6)


def test_an_optimiser() -> None:
    """Adam in a few lines of jax, its state a named tuple: fxgrad's gradients drive it, and go through its steps."""
    def update(gradient: Any, state: State) -> tuple[Any, State]:
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state.mean, gradient)
        count = state.count + 1
        return jax.tree.map(lambda m: -0.1 * m / (1 - 0.9**count), mean), State(count, mean)

    def train(library: Any, loss: Any, update: Any, layer: Layer) -> Any:
        state = State(0, jax.tree.map(lambda leaf: leaf * 0, layer))
        for _ in range(3):
            step, state = update(library.grad(loss)(layer), state)
            layer = jax.tree.map(lambda leaf, change: leaf + change, layer, step)
        return loss(layer)

    layer = Layer(draw(2, 3), draw(2, seed=1))
    with jax.enable_x64(True):
        wanted = jax.jit(jax.value_and_grad(lambda layer: train(jax, energy(jnp), update, layer)))(layer)
    found = fxgrad.value_and_grad(
        lambda layer: train(fxgrad, energy(fnp), fxgrad.from_jax(update), layer))(layer)
    assert_close(found, wanted, "value and gradient", 1e-7)
