"""Training on one or several processes, in three ways, with checkpoints from which it goes on after a crash.

Run it with `python examples/processes.py`, or on two processes of this machine with

    python examples/processes.py --coordinator localhost:9876 --processes 2 --process 0 &
    python examples/processes.py --coordinator localhost:9876 --processes 2 --process 1

On a cluster its launcher starts the processes, and `jax.distributed.initialize()` finds the rest: the command lines
are in docs/appendix/processes.md. With `--checkpoints FOLDER`, which all processes see, a run goes on where the last
one ended.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp

import fxgrad
from fxgrad import NamedSharding, P

FEATURES, HIDDEN, ROWS = 16, 16, 8  # what one to sixteen devices divide, rows up to eight
OPTIMISER = optax.adam(1e-2)

# How the weights and the rows of a batch lie along the one axis of the mesh, and what XLA adds for that:
WAYS = {
    "data": ({"w": P(), "b": P(), "v": P()}, P("i")),  # an all-reduce of the gradients
    "sharded": ({"w": P("i"), "b": P("i"), "v": P("i")}, P("i")),  # all-gathers of the weights, a reduce-scatter
    "tensor": ({"w": P(None, "i"), "b": P("i"), "v": P("i")}, P()),  # an all-reduce of what the halves add up to
}


def loss(params: Any, x: Any, y: Any) -> Any:
    """The mean square of what a network with one hidden layer is off."""
    return np.mean((np.tanh(x @ params["w"] + params["b"]) @ params["v"] - y) ** 2)


def step(state: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The state and the loss after one step of Adam."""
    params, moments = state
    value, gradient = fxgrad.value_and_grad(loss)(params, x, y)
    updates, moments = fxgrad.from_jax(OPTIMISER.update)(gradient, moments, params)
    return (jax.tree.map(lambda p, u: p + u, params, updates), moments), value


def initial() -> Any:
    """The state that training begins with, as NumPy's arrays of float64."""
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(FEATURES, HIDDEN)), "b": np.zeros(HIDDEN), "v": rng.normal(size=(HIDDEN, 1))}
    with jax.enable_x64(True):
        return params, jax.tree.map(np.asarray, OPTIMISER.init(params))


def batch(number: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a step: they follow from its number, so that a run that goes on sees the same ones."""
    x = np.random.default_rng(1000 + number).normal(size=(ROWS, FEATURES))
    return x, np.sin(x.sum(1, keepdims=True))


def shardings(way: str, mesh: Any) -> tuple[Any, Any]:
    """How the state and the rows lie: the moments of a weight as the weight does, all else in every process."""
    specs, rows = WAYS[way]
    params = {name: NamedSharding(mesh, spec) for name, spec in specs.items()}
    whole = NamedSharding(mesh, P())
    moments = jax.tree.map(lambda part: params if isinstance(part, dict) else whole, OPTIMISER.init(initial()[0]),
                           is_leaf=lambda part: isinstance(part, dict))
    return (params, moments), NamedSharding(mesh, rows)


def spread(values: Any, where: Any) -> Any:
    """Arrays that all processes have, as arrays that lie `where` is said."""
    return jax.tree.map(lambda value, sharding: fxgrad.make_array_from_callback(
        value.shape, sharding, lambda index, value=value: value[index]), values, where)


def train(way: str, steps: int, folder: Path | None = None, die_at: int | None = None) -> list[float]:
    """The losses of the steps that are still to be done; dies before step `die_at`, to show what happens then."""
    mesh = fxgrad.make_mesh((fxgrad.device_count(),), ("i",), (fxgrad.sharding.AxisType.Auto,))
    of_state, of_rows = shardings(way, mesh)
    state, begin, losses = spread(initial(), of_state), 0, []
    advance = fxgrad.jit(step, in_shardings=(of_state, of_rows, of_rows),
                         out_shardings=(of_state, NamedSharding(mesh, P())), donate_argnums=0)
    with contextlib.ExitStack() as stack:
        if folder is not None:
            options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
            manager = stack.enter_context(ocp.CheckpointManager(folder / way, options=options))
            last = manager.latest_step()
            if last is not None:
                begin, state = last + 1, restored(manager, last, state)
        for number in range(begin, steps):
            if number == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            state, value = advance(state, *(spread(part, of_rows) for part in batch(number)))
            losses.append(float(np.asarray(value)))  # waits: collectives of two steps at once may hang on CPUs
            if folder is not None:
                manager.save(number, args=ocp.args.StandardSave(state))
    return losses


def restored(manager: Any, number: int, like: Any) -> Any:
    """The state after a step, lying as `like` does, on whatever mesh it was saved from."""
    with jax.enable_x64(True):  # without it Orbax makes float32 of float64
        return manager.restore(number, args=ocp.args.StandardRestore(
            jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), like)))


def main() -> None:
    """Trains, and says the losses to the last bit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ways", nargs="*", default=[*WAYS])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--die-at", type=int)
    parser.add_argument("--coordinator")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--process", type=int, default=0)
    given = parser.parse_args()
    if given.coordinator is not None:
        jax.distributed.initialize(given.coordinator, given.processes, given.process)
    for way in given.ways:
        losses = train(way, given.steps, given.checkpoints, given.die_at)
        if fxgrad.process_index() == 0:
            print(way, *map(float.hex, losses), flush=True)


if __name__ == "__main__":
    main()
