"""Training in half precision: `autocast` and a loss scale, with Optax, beside the same training in float32.

Run it with `python examples/mixed_precision.py`. A small transformer learns to copy the first half of a sequence into
the second. The weights and the state of Adam are float32 throughout; products are computed in bfloat16, or in float16
with a dynamic loss scale that starts too large and comes down.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
from rich.console import Console
from rich.table import Table

import fxgrad
from fxgrad import loss_scaling

TOKENS, LENGTH, WIDTH, BATCH = 8, 8, 32, 16
OPTIMISER = optax.adam(1e-2)
UPDATE = fxgrad.from_jax(OPTIMISER.update)


def initial() -> dict[str, Any]:
    """Float32 weights of one block: attention with one head, and two layers."""
    rng = np.random.default_rng(0)
    shapes = {"embedding": (TOKENS, WIDTH), "places": (LENGTH, WIDTH), "qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH),
              "up": (WIDTH, 2 * WIDTH), "down": (2 * WIDTH, WIDTH), "head": (WIDTH, TOKENS)}
    return {name: (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32) for name, shape in shapes.items()}


def batches(count: int) -> np.ndarray:
    """Sequences whose second half is the first, shape (count, BATCH, LENGTH)."""
    half = np.random.default_rng(1).integers(0, TOKENS, (count, BATCH, LENGTH // 2))
    return np.concatenate([half, half], -1).astype(np.int32)


def normalised(x: Any) -> Any:
    """Each vector with mean 0 and variance 1."""
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred ** 2, axis=-1, keepdims=True) + 1e-5)


def loss(weights: dict[str, Any], tokens: Any) -> Any:
    """Mean cross-entropy of each token given those before it."""
    x = weights["embedding"][tokens] + weights["places"]
    q, k, v = np.split(normalised(x) @ weights["qkv"], 3, axis=-1)
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(WIDTH)
    scores = np.where(np.tri(LENGTH, dtype=bool), scores, -1e4)
    x = x + (fxgrad.nn.softmax(scores) @ v) @ weights["out"]
    x = x + np.tanh(normalised(x) @ weights["up"]) @ weights["down"]
    logits = fxgrad.nn.log_softmax(normalised(x) @ weights["head"])[:, :-1]
    return -np.mean(np.sum(logits * fxgrad.nn.one_hot(tokens[:, 1:], TOKENS, dtype=np.float32), axis=-1))


def train(steps: int, policy: Any = None, scale: Any = None) -> tuple[list[float], Any]:
    """The losses on the way, and the loss scale at the end; without a `policy`, in float32."""
    function = loss if policy is None else fxgrad.autocast(loss, policy)
    gradient = loss_scaling.value_and_grad(function)

    def step(state: Any, tokens: Any) -> Any:
        weights, moments, scaling = state
        result = gradient(scaling, weights, tokens)
        updates, after = UPDATE(result.gradients, moments, weights)
        moved = jax.tree.map(lambda weight, update: weight + update, weights, updates)
        kept = loss_scaling.select(result.finite, (moved, after), (weights, moments))
        return (*kept, result.loss_scale), result.value

    weights = initial()
    state = (weights, OPTIMISER.init(weights), loss_scaling.Static(1.0) if scale is None else scale)
    (_, _, scaling), losses = fxgrad.jit(lambda state, data: fxgrad.lax.scan(step, state, data))(state, batches(steps))
    return [float(value) for value in losses], float(scaling.value)


def main() -> None:
    """Trains in three precisions and shows the losses."""
    policies = fxgrad.autocast_policies
    full, _ = train(300)
    bfloat16, _ = train(300, policies.bfloat16)
    float16, scale = train(300, policies.float16, loss_scaling.Dynamic(2.0**24, growth_interval=100))
    table = Table("step", "float32", "bfloat16", "float16, scaled")
    for number in (0, 1, 9, 49, 99, 199, 299):
        table.add_row(str(number + 1), f"{full[number]:.4f}", f"{bfloat16[number]:.4f}", f"{float16[number]:.4f}")
    console = Console()
    console.print(table)
    console.print(f"the loss scale came down from 2^24 to 2^{np.log2(scale):.0f}")


if __name__ == "__main__":
    main()
