"""An Optax optimiser drives a loss that is written in plain NumPy and differentiated by fxgrad.

Run it with `python examples/optax_training.py`. It fits two spirals with a small network: step by step un-jitted,
where Optax gets gradients as it gets jax's, and as one compiled step, for which `from_jax` imports the optimiser.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import numpy as np
import optax
from rich.console import Console
from rich.table import Table

import fxgrad

Params = dict[str, Any]
OPTIMISER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-2, weight_decay=1e-4))


def spirals(count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Points of two spirals that wind around each other, shape (2 count, 2), and which is which, 0 or 1."""
    rng = np.random.default_rng(0)
    turn = np.sqrt(rng.uniform(0.05, 1.0, count)) * 2.5 * np.pi
    one = np.stack([turn * np.cos(turn), turn * np.sin(turn)], 1) / 8.0
    points = np.concatenate([one, -one]) + rng.normal(scale=0.02, size=(2 * count, 2))
    return points.astype(np.float32), np.repeat([0.0, 1.0], count).astype(np.float32)


def initial(width: int = 32) -> Params:
    """Weights of a network with two hidden layers."""
    rng = np.random.default_rng(1)
    sizes = pairwise([2, width, width, 1])
    return {f"layer{number}": {"w": (rng.normal(size=size) / np.sqrt(size[0])).astype(np.float32),
                               "b": np.zeros(size[1], np.float32)}
            for number, size in enumerate(sizes)}


def scores(params: Params, x: Any) -> Any:
    """How likely a point belongs to the second spiral, as a logit."""
    for number in range(len(params)):
        layer = params[f"layer{number}"]
        x = x @ layer["w"] + layer["b"]
        if number < len(params) - 1:
            x = np.tanh(x)
    return x[:, 0]


def loss(params: Params, x: Any, y: Any) -> Any:
    """Mean cross-entropy."""
    z = scores(params, x)
    return np.mean(np.logaddexp(0.0, z) - y * z)


def step(params: Params, state: Any, x: Any, y: Any, update: Any) -> tuple[Any, Params, Any]:
    """One step: the loss, and the parameters and the state of the optimiser after it."""
    value, gradient = fxgrad.value_and_grad(loss)(params, x, y)
    updates, state = update(gradient, state, params)
    return value, jax.tree.map(lambda p, u: p + u, params, updates), state


def train(steps: int, compiled: bool) -> tuple[list[float], Params]:
    """The losses on the way, and the trained parameters."""
    x, y = spirals()
    params: Any = initial()
    state = OPTIMISER.init(params)
    if compiled:  # then the optimiser meets traced arrays too
        advance = fxgrad.jit(lambda *given: step(*given, update=fxgrad.from_jax(OPTIMISER.update)))
    else:
        def advance(*given: Any) -> Any:
            return step(*given, update=OPTIMISER.update)
    losses = []
    for _ in range(steps):
        value, params, state = advance(params, state, x, y)
        losses.append(float(value))
    return losses, params


def main() -> None:
    """Trains both ways and shows the losses."""
    few, _ = train(10, compiled=False)
    many, params = train(400, compiled=True)
    x, y = spirals()
    accuracy = np.mean((np.asarray(scores(params, x)) > 0) == (y > 0.5))
    table = Table("step", "loss, un-jitted", "loss, compiled")
    for number in (0, 1, 2, 5, 9, 99, 399):
        table.add_row(str(number + 1), f"{few[number]:.6f}" if number < len(few) else "", f"{many[number]:.6f}")
    console = Console()
    console.print(table)
    console.print(f"{accuracy:.1%} of the points are told apart after {len(many)} steps")


if __name__ == "__main__":
    main()
