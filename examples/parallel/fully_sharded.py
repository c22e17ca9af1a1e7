"""Fully sharded: parameters, gradients and the optimiser's state are cut into as many pieces as there are devices.

A layer's weights are gathered when they are used and forgotten at once; on the way back they are gathered again, and
the gradient is summed and scattered in one. Run it with `python examples/parallel/fully_sharded.py`.
"""

from __future__ import annotations

from typing import Any

import jax
import optax
from jax.sharding import PartitionSpec as P
from setting import bytes_on_each, floats, make_mesh, show

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax

AXES = {"data": 8}
SPECS = (P(None, "data"), P("data"), P("data"))
"""Every layer's weights are cut along their first axis; the rows of the batch are divided by the same devices."""
OPTIMISER = optax.adam(1e-2)


def types(data: int, width: int = 16, layers: int = 4, rows: int = 4) -> tuple[Any, ...]:
    """Types of the parameters, those of all layers stacked, and of a batch with `rows` rows for each device."""
    params = {"w": floats(layers, width, width), "b": floats(layers, width)}
    return params, floats(data * rows, width), floats(data * rows, width)


def layer(weights: Any, x: Any) -> Any:
    """One layer, with all of its weights."""
    return x + fnp.tanh(x @ weights["w"] + weights["b"])


def loss(params: Any, x: Any, y: Any) -> Any:
    """The mean square error of the network, written for one device."""
    made, _ = lax.scan(lambda x, weights: (layer(weights, x), None), x, params)
    return fnp.mean((made - y) ** 2)


@fxgrad.checkpoint
def gathered_layer(shards: Any, x: Any) -> Any:
    """One layer, with the piece of its weights that this device has; the whole of them is not kept."""
    return layer(jax.tree.map(lambda shard: lax.all_gather(shard, "data", tiled=True), shards), x)


def parallel(mesh: Any) -> Any:
    """The loss and its gradient by the parameters, each device with its piece of both."""
    def mean_loss(shards: Any, x: Any, y: Any) -> Any:
        made, _ = lax.scan(lambda x, piece: (gathered_layer(piece, x), None), x, shards)
        return lax.pmean(fnp.mean((made - y) ** 2), "data")
    return fxgrad.value_and_grad(fxgrad.shard_map(mean_loss, mesh=mesh, in_specs=SPECS, out_specs=P()))


def training_step(mesh: Any) -> Any:
    """A step of Adam's, elementwise and so on pieces: from parameters, state and batch to loss, parameters, state."""
    gradient = parallel(mesh)
    update = fxgrad.from_jax(OPTIMISER.update)

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        value, slopes = gradient(params, x, y)
        changes, state = update(slopes, state, params)
        return value, jax.tree.map(lambda weight, change: weight + change, params, changes), state
    return fxgrad.jit(step, donate_argnums=(0, 1))


def initial_state(params: Any) -> Any:
    """The state of the optimiser, laid out as the parameters are."""
    with jax.enable_x64(True):  # without which jax has no float64
        return OPTIMISER.init(params)


def main() -> None:
    """Shows that one device and eight agree, what they say to each other, and what lies on each while training."""
    params, x, y = show(loss, parallel, types(**AXES), AXES, SPECS)
    state, step = initial_state(params), training_step(make_mesh(**AXES))
    for _ in range(20):
        value, params, state = step(params, state, x, y)
    whole = sum(leaf.nbytes for leaf in jax.tree.leaves((params, state)))
    print(f"loss after 20 steps {float(value):.4f}; parameters and state: {whole:,} bytes, "
          f"{max(bytes_on_each((params, state))):,} on each device")


if __name__ == "__main__":
    main()
