"""An Equinox model, its loss imported with `from_jax`: gradients by fxgrad, its program to read, training with Optax.

Run it with `python examples/equinox_model.py`. The model stays what it is, a pytree of Equinox's; the gradients have
its structure.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.console import Console

import fxgrad


def model_and_data() -> tuple[eqx.nn.MLP, np.ndarray, np.ndarray]:
    """A network with two hidden layers, points in the plane, and a wave over them."""
    model = eqx.nn.MLP(in_size=2, out_size=1, width_size=24, depth=2, activation=jnp.tanh, key=jax.random.key(0))
    x = np.random.default_rng(0).uniform(-1.0, 1.0, (128, 2)).astype(np.float32)
    return model, x, np.sin(3.0 * x[:, :1]) * np.cos(2.0 * x[:, 1:])


def make_loss(static: Any) -> Any:
    """The mean squared error as a function of the arrays in the model, in jax alone."""
    def loss(arrays: Any, x: Any, y: Any) -> Any:
        model = eqx.combine(arrays, static)
        return jnp.mean((jax.vmap(model)(x) - y) ** 2)
    return loss


def train(steps: int, gradients: Any, arrays: Any, x: Any, y: Any) -> tuple[list[float], Any]:
    """The losses on the way, and the arrays of the trained model; `gradients` gives the loss and its gradient."""
    optimiser = optax.adam(1e-2)
    state, losses = optimiser.init(arrays), []
    for _ in range(steps):
        value, gradient = gradients(arrays, x, y)
        updates, state = optimiser.update(gradient, state)
        arrays = eqx.apply_updates(arrays, updates)
        losses.append(float(value))
    return losses, arrays


def main(steps: int = 200) -> None:
    """Prints the gradient's program, and trains with fxgrad's gradients and with jax's."""
    model, x, y = model_and_data()
    arrays, static = eqx.partition(model, eqx.is_array)
    loss = make_loss(static)
    imported = fxgrad.from_jax(loss)
    console = Console()
    console.print(fxgrad.make_program(fxgrad.grad(imported))(arrays, x, y))
    ours, _ = train(steps, fxgrad.jit(fxgrad.value_and_grad(imported)), arrays, x, y)
    theirs, _ = train(steps, jax.jit(jax.value_and_grad(loss)), arrays, x, y)
    console.print(f"loss after {steps} steps: {ours[-1]:.6f} with fxgrad's gradients, {theirs[-1]:.6f} with jax's")
    difference = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    console.print(f"largest difference on the way: {difference:.1e}")


if __name__ == "__main__":
    main()
