"""A small transformer that classifies handwritten digits: from data to checkpoint, on one device or on several.

    python examples/training.py                          # trains, with a bar; stops early
    python examples/training.py --checkpoint run.npz     # goes on where an earlier run was stopped, bit for bit
    python examples/training.py --half                   # in bfloat16 where that is harmless
    XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/training.py   # the batch lies on 8 devices

An image of 8 by 8 pixels is a sequence of its 8 rows. The data are those of `digits.py`.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import digits
import numpy as np
from rich.console import Console

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import nn, optim

WIDTH, HEADS, LAYERS, CLASSES, BATCH, PATIENCE = 32, 4, 2, 10, 128, 3
OPTIMISER = optim.adam(optim.cosine_decay(4e-3, 600, warmup=20))


def initial(seed: int = 0) -> Any:
    """Weights of the embedding of rows, of the layers, and of the head."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> Any:
        return (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
    layer = lambda: {"scale": np.ones(WIDTH, np.float32), "qkv": weights(WIDTH, 3 * WIDTH),  # noqa: E731
                     "out": weights(WIDTH, WIDTH), "scale2": np.ones(WIDTH, np.float32),
                     "up": weights(WIDTH, 4 * WIDTH), "down": weights(4 * WIDTH, WIDTH)}
    return {"rows": weights(8, WIDTH), "places": weights(8, WIDTH), "layers": [layer() for _ in range(LAYERS)],
            "head": weights(WIDTH, CLASSES)}


def logits(params: Any, images: Any) -> Any:
    """Scores of the classes for images of shape (batch, 64)."""
    x = fnp.reshape(images, (len(images), 8, 8)) @ params["rows"] + params["places"]
    for p in params["layers"]:
        q, k, v = fnp.split(fnp.reshape(nn.layer_norm(x, p["scale"]) @ p["qkv"], (*x.shape[:2], HEADS, -1)), 3, axis=-1)
        x = x + fnp.reshape(nn.dot_product_attention(q, k, v), x.shape) @ p["out"]
        x = x + nn.gelu(nn.layer_norm(x, p["scale2"]) @ p["up"]) @ p["down"]
    return fnp.mean(x, axis=1) @ params["head"]


def loss(params: Any, images: Any, labels: Any) -> Any:
    """The mean cross-entropy."""
    return nn.cross_entropy(logits(params, images), labels)


def step_of(half: bool) -> Any:
    """A compiled step: new parameters, the new state of the optimiser, the loss."""
    objective = fxgrad.autocast(loss) if half else loss

    @fxgrad.jit
    def step(params: Any, state: Any, images: Any, labels: Any) -> Any:
        value, gradients = fxgrad.value_and_grad(objective)(params, images, labels)
        return *OPTIMISER.update(optim.clip_by_global_norm(gradients, 1.0), state, params), value
    return step


def on_all_devices(batch: int) -> Any:
    """The places of parameters and of rows: on several devices each has its share of the rows."""
    count = fxgrad.device_count()
    if count == 1 or batch % count:
        return None
    mesh = fxgrad.make_mesh((count,), ("data",), (fxgrad.sharding.AxisType.Auto,))
    return fxgrad.NamedSharding(mesh, fxgrad.P()), fxgrad.NamedSharding(mesh, fxgrad.P("data"))


def save(path: Path, epoch: int, best: float, waited: int, state: Any) -> None:
    """Write all that the next epoch depends on; a process that ends while it writes leaves the last file whole."""
    new = path.with_suffix(".new.npz")
    np.savez(new, np.array(epoch), np.array(best), np.array(waited),
             *[np.asarray(leaf) for leaf in fxgrad.tree.leaves(state)])
    os.replace(new, path)


def restore(path: Path, like: Any) -> tuple[int, float, int, Any]:
    """What `save` wrote; `like` has the containers."""
    with np.load(path) as arrays:
        epoch, best, waited, *leaves = [arrays[name] for name in arrays.files]
    return int(epoch), float(best), int(waited), fxgrad.tree.unflatten(fxgrad.tree.structure(like), leaves)


def train(epochs: int, checkpoint: Path | None = None, half: bool = False, bar: bool = True) -> tuple[Any, float, int]:
    """Parameters, the held-out accuracy, and the number of epochs; stops when the held-out loss falls no more."""
    images, labels, held_images, held_labels = digits.load()
    params = initial()
    state = params, OPTIMISER.init(params)
    begin, best, waited = 0, np.inf, 0
    if checkpoint is not None and checkpoint.exists():
        begin, best, waited, state = restore(checkpoint, state)
    places = on_all_devices(BATCH)
    if places is not None:
        state = fxgrad.device_put(state, places[0])
    step, steps = step_of(half), len(labels) // BATCH
    if bar:
        step = fxgrad.debug.progress(step, (epochs - begin) * steps, "training") if epochs > begin else step
    evaluate = fxgrad.jit(loss)
    for epoch in range(begin, epochs):
        if waited == PATIENCE:
            break
        order = np.random.default_rng(epoch).permutation(len(labels))  # by its number: what goes on sees the same
        for rows in order[:steps * BATCH].reshape(steps, BATCH):
            batch = images[rows], labels[rows]
            params, optimiser, _ = step(*state, *(batch if places is None else fxgrad.device_put(batch, places[1])))
            state = params, optimiser
        value = float(evaluate(state[0], held_images, held_labels))
        best, waited = (value, 0) if value < best else (best, waited + 1)
        begin = epoch + 1
        if checkpoint is not None:
            save(checkpoint, begin, best, waited, state)
    found = np.argmax(np.asarray(fxgrad.jit(logits)(state[0], held_images)), axis=-1)
    return state[0], float(np.mean(found == held_labels)), begin


def main() -> None:
    """Trains, and says how many held-out images are told right."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--no-bar", action="store_true")
    given = parser.parse_args()
    params, accuracy, epochs = train(given.epochs, given.checkpoint, given.half, not given.no_bar)
    total = sum(float(np.sum(np.abs(np.asarray(leaf, np.float64)))) for leaf in fxgrad.tree.leaves(params))
    Console().print(f"{accuracy:.1%} of the held-out images are told right after {epochs} epochs, on "
                    f"{fxgrad.device_count()} device(s); sum of the weights {total.hex()}")


if __name__ == "__main__":
    main()
