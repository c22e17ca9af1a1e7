"""A convolutional Flax (nnx) model with an Optax loss, imported with `from_jax` and trained with fxgrad's gradients.

Run it with `python examples/flax_model.py`. The data are the images of digits that come with scikit-learn.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from rich.console import Console
from rich.progress import track
from sklearn.datasets import load_digits

import fxgrad


class Net(nnx.Module):
    """Two convolutions, a normalisation, and a linear layer over what they find."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Conv(1, 8, (3, 3), rngs=rngs)
        self.norm = nnx.LayerNorm(8, rngs=rngs)
        self.second = nnx.Conv(8, 16, (3, 3), strides=2, rngs=rngs)
        self.out = nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        """Scores of the ten classes of images (batch, 8, 8, 1)."""
        x = nnx.relu(self.norm(self.first(x)))
        x = nnx.gelu(self.second(x))
        return self.out(x.reshape(x.shape[0], -1))


def make_loss(definition: Any) -> Any:
    """The mean cross-entropy as a function of the state of the model, in jax alone."""
    def loss(state: Any, images: Any, labels: Any) -> Any:
        scores = nnx.merge(definition, state)(images)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()
    return loss


def data() -> tuple[np.ndarray, np.ndarray]:
    """Images scaled to 0..1, shape (1797, 8, 8, 1), and their digits."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.images[order, :, :, None] / 16.0).astype(np.float32)
    return images, digits.target[order].astype(np.int32)


def train(epochs: int, gradients: Any, state: Any, images: Any, labels: Any, batch: int = 64,
          ) -> tuple[list[float], Any]:
    """The losses on the way, and the state of the trained model; `gradients` gives the loss and its gradient."""
    optimiser = optax.adam(3e-3)
    optimising, losses = optimiser.init(state), []
    starts = [start for _ in range(epochs) for start in range(0, len(labels) - batch + 1, batch)]
    for start in track(starts, "training", transient=True):
        value, gradient = gradients(state, images[start:start + batch], labels[start:start + batch])
        updates, optimising = optimiser.update(gradient, optimising, state)
        state = optax.apply_updates(state, updates)
        losses.append(float(value))
    return losses, state


def main(epochs: int = 6) -> None:
    """Trains, and says how many of the held-out digits are recognised."""
    definition, state = nnx.split(Net(nnx.Rngs(0)))
    images, labels = data()
    imported = fxgrad.from_jax(make_loss(definition))
    console = Console()
    program = fxgrad.make_program(fxgrad.grad(imported))(state, images[:64], labels[:64])
    console.print(f"the gradient's program has {len(program.equations)} operations, of these for jax alone: "
                  f"{sum(str(equation.primitive) == 'jax_call' for equation in program.equations)}")
    losses, state = train(epochs, fxgrad.jit(fxgrad.value_and_grad(imported)), state, images[:1437], labels[:1437])
    scores = jax.jit(lambda state, x: nnx.merge(definition, state)(x))(state, images[1437:])
    console.print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; "
                  f"{np.mean(np.argmax(scores, -1) == labels[1437:]):.1%} of the held-out digits are recognised")


if __name__ == "__main__":
    main()
