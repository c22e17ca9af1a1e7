"""A classifier of handwritten digits, its loss written in plain NumPy: trace, check, differentiate, train.

Run it with `./tools/demo`. The data, in `digits.npz`, are 1797 images of 8 by 8 pixels: the test set of "Optical
Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, UCI Machine Learning Repository, CC BY 4.0).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import fxgrad

Params = dict[str, Any]
HIDDEN, CLASSES, BATCH, EPOCHS, RATE, DECAY = 48, 10, 64, 24, 0.5, 1e-4
console = Console()


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and held-out images (scaled to 0..1) and labels, shuffled with a fixed seed."""
    with np.load(Path(__file__).with_name("digits.npz")) as digits:
        images, labels = digits["images"].reshape(-1, 64) / 16.0, digits["labels"].astype(int)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order].astype(np.float32), labels[order]
    split = 1437
    return images[:split], labels[:split], images[split:], labels[split:]


def initial(seed: int = 0) -> Params:
    """Weights of a network with one hidden layer."""
    rng = np.random.default_rng(seed)
    return {
        "W1": (rng.normal(size=(64, HIDDEN)) / np.sqrt(64)).astype(np.float32), "b1": np.zeros(HIDDEN, np.float32),
        "W2": (rng.normal(size=(HIDDEN, CLASSES)) / np.sqrt(HIDDEN)).astype(np.float32),
        "b2": np.zeros(CLASSES, np.float32),
    }


# Plain NumPy from here on: these functions run as they are, and every transformation takes them.


def logits(params: Params, x: np.ndarray) -> np.ndarray:
    """Scores of the classes for images `x` of shape (..., 64)."""
    hidden = np.tanh(x @ params["W1"] + params["b1"])
    return hidden @ params["W2"] + params["b2"]


def loss(params: Params, x: np.ndarray, y: np.ndarray) -> Any:
    """Mean cross-entropy of one-hot labels `y`, with a little weight decay."""
    scores = logits(params, x)
    shifted = scores - np.max(scores, axis=-1, keepdims=True)
    log_probabilities = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    decay = np.sum(params["W1"] ** 2) + np.sum(params["W2"] ** 2)
    return -np.mean(np.sum(y * log_probabilities, axis=-1)) + DECAY * decay


def update(params: Params, x: np.ndarray, y: np.ndarray) -> tuple[Any, Params]:
    """One step of gradient descent: the loss before it, and the new parameters."""
    value, gradient = fxgrad.value_and_grad(loss)(params, x, y)
    return value, {name: params[name] - RATE * gradient[name] for name in params}


def one_hot(y: np.ndarray) -> np.ndarray:
    """Rows of the identity matrix."""
    return np.eye(CLASSES, dtype=np.float32)[y]


def show_programs(params: Params, x: np.ndarray, y: np.ndarray) -> None:
    """The traced loss, and the program of its gradient."""
    console.rule("the loss, traced")
    console.print(fxgrad.make_program(loss)(params, x[:5], y[:5]))
    console.rule("its gradient")
    console.print(fxgrad.make_program(fxgrad.grad(loss))(params, x[:5], y[:5]))


def check_gradient(params: Params, x: np.ndarray, y: np.ndarray) -> None:
    """The gradient against central differences along a random direction, in float64."""
    console.rule("checks")
    rng = np.random.default_rng(1)
    wide = {name: value.astype(np.float64) for name, value in params.items()}
    direction = {name: rng.normal(size=value.shape) for name, value in wide.items()}
    gradient = fxgrad.grad(loss)(wide, x, y)
    slope = sum(np.sum(gradient[name] * direction[name]) for name in wide)
    step = 1e-5
    ahead, behind = ({name: wide[name] + sign * step * direction[name] for name in wide} for sign in (1, -1))
    measured = (loss(ahead, x, y) - loss(behind, x, y)) / (2 * step)
    console.print(f"gradient along a random direction {slope:.10f}, by finite differences {measured:.10f}")
    assert abs(slope - measured) < 1e-7 * max(1.0, abs(slope))


def per_example(params: Params, x: np.ndarray, y: np.ndarray) -> None:
    """Gradients of single examples by `vmap(grad(...))`; without the decay their mean is the gradient of the batch."""
    each = fxgrad.vmap(fxgrad.grad(loss), in_axes=(None, 0, 0))(params, x, y)
    norms = np.sqrt(sum(np.sum(each[name] ** 2, axis=tuple(range(1, each[name].ndim))) for name in each))
    together = fxgrad.grad(loss)(params, x, y)
    difference = max(np.max(np.abs(np.mean(each[name], axis=0) - together[name])) for name in each)
    console.print(f"gradient norms of {len(x)} examples: {norms.min():.3f} to {norms.max():.3f}; "
                  f"their mean differs from the batch's gradient by at most {difference:.1e}")
    assert difference < 1e-5


def curvature(params: Params, x: np.ndarray, y: np.ndarray) -> None:
    """A Hessian-vector product for all parameters, and the exact Hessian for the last biases."""
    ones = {name: np.ones_like(value) for name, value in params.items()}
    product = fxgrad.hvp(loss, (params, x, y), (ones,))

    def of_bias(b2: np.ndarray) -> Any:
        return loss({**params, "b2": b2}, x, y)

    matrix = fxgrad.hessian(of_bias)(params["b2"])
    alone = fxgrad.hvp(of_bias, (params["b2"],), (ones["b2"],))
    console.print(f"Hessian times a vector of ones: norm {np.sqrt(sum(np.sum(v ** 2) for v in product.values())):.4f}; "
                  f"exact Hessian of the last biases: {matrix.shape}, eigenvalues "
                  f"{np.linalg.eigvalsh(matrix).min():.1e} to {np.linalg.eigvalsh(matrix).max():.4f}")
    np.testing.assert_allclose(matrix @ ones["b2"], alone, atol=1e-6)


class Training(NamedTuple):
    """Losses of all steps, the trained parameters, and the seconds of the first step and of all steps behind it."""

    losses: list[float]
    params: Params
    first: float
    later: float


def train(step: Any, params: Params, x: np.ndarray, y: np.ndarray, title: str) -> Training:
    """Trains by stochastic gradient descent."""
    rng, losses, batches, first = np.random.default_rng(2), [], len(x) // BATCH, 0.0
    with Progress(console=console) as progress:
        task = progress.add_task(title, total=EPOCHS * batches)
        started = time.perf_counter()
        for _ in range(EPOCHS):
            order = rng.permutation(len(x))
            for batch in range(batches):
                chosen = order[batch * BATCH:(batch + 1) * BATCH]
                value, params = step(params, x[chosen], y[chosen])
                losses.append(float(value))
                first = first or time.perf_counter() - started
                progress.update(task, advance=1, description=f"{title}, loss {losses[-1]:.3f}")
        return Training(losses, params, first, time.perf_counter() - started - first)


def main() -> None:
    """Everything in order; fails if a check or the accuracy does."""
    x, labels, x_test, labels_test = load()
    y, params = one_hot(labels), initial()
    show_programs(params, x, y)
    check_gradient(params, x[:50], y[:50])
    per_example(params, x[:100], y[:100])
    curvature(params, x[:100], y[:100])
    console.rule("training")
    jitted = train(fxgrad.jit(update), params, x, y, "jitted")
    plain = train(update, params, x, y, "un-jitted")
    steps = len(plain.losses)
    table = Table("training", "last loss", "held-out accuracy", "first step", f"{steps - 1} later steps")
    for name, each in (("fxgrad.jit(update)", jitted), ("update, plain NumPy", plain)):
        weights = jax.tree.map(np.asarray, each.params)
        accuracy = np.mean(np.argmax(logits(weights, x_test), axis=-1) == labels_test)
        table.add_row(name, f"{each.losses[-1]:.5f}", f"{accuracy:.1%}", f"{each.first:.2f} s", f"{each.later:.2f} s")
        assert accuracy >= 0.95, accuracy
    console.print(table)
    console.print("The first jitted step starts XLA and compiles, once for each shape; the first un-jitted one traces "
                  "and differentiates. A network this small is done before compiling it has paid: jit is for longer "
                  "trainings and larger arrays.")
    difference = float(np.max(np.abs(np.array(jitted.losses) - np.array(plain.losses))))
    console.print(f"the two trainings' losses differ by at most {difference:.1e}")
    assert difference < 1e-3


if __name__ == "__main__":
    main()
