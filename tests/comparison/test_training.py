"""Five small training scripts: their dtypes, traces and losses are the same on every path, and those of jax and Optax.

Each script is written once for a namespace, so that jax runs the same text: a network, a recurrent one over
characters, a variational autoencoder, deep Q-learning and a generative adversarial pair. Each trains with Adam from the
library, and with Adam written by hand, whose bias corrections are of a Python counter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, optim

STEPS = 5
RATE, BETA1, BETA2, EPSILON = 0.05, 0.9, 0.99, 1e-6
DTYPES = ["float32", "bfloat16", "float64"]


class Script(NamedTuple):
    """Parameters by their shapes, data by theirs, and the loss of a namespace: `loss(np, params, data)`."""

    params: dict[str, tuple[int, ...]]
    data: dict[str, tuple[int, ...]]
    loss: Callable[[Any, Any, Any], Any]


def network(np: Any, params: Any, data: Any) -> Any:
    hidden = np.tanh(data["x"] @ params["w"] + params["b"])
    return np.mean((hidden @ params["v"] - data["y"]) ** 2) * 0.5


def characters(np: Any, params: Any, data: Any) -> Any:
    state, loss = np.zeros_like(params["b"]), 0.0
    for row, following in zip(data["x"], data["y"], strict=True):
        state = np.tanh(row @ params["w"] + state @ params["u"] + params["b"])
        logits = state @ params["v"]
        loss = loss - np.sum(following * (logits - np.log(np.sum(np.exp(logits)))))
    return loss / len(data["x"])


def autoencoder(np: Any, params: Any, data: Any) -> Any:
    mean, spread = data["x"] @ params["w"], data["x"] @ params["u"]
    drawn = mean + np.exp(0.5 * spread) * data["noise"]
    divergence = -0.5 * np.sum(1 + spread - mean ** 2 - np.exp(spread))
    return np.mean((drawn @ params["v"] - data["x"]) ** 2) + 0.1 * divergence / len(data["x"])


def q_learning(np: Any, params: Any, data: Any) -> Any:
    value = np.sum((data["state"] @ params["w"]) * data["action"], axis=1)
    target = data["reward"] + 0.9 * np.max(data["next"] @ params["v"], axis=1)
    error = value - target
    return np.mean(np.where(abs(error) < 1.0, 0.5 * error ** 2, abs(error) - 0.5))


def adversaries(np: Any, params: Any, data: Any) -> Any:
    made = np.tanh(data["noise"] @ params["w"])
    judged = [np.sum(x @ params["v"], axis=1) for x in (data["x"], made)]
    return np.mean(np.log(1 + np.exp(-judged[0]))) + np.mean(np.log(1 + np.exp(judged[1]))) / 2


SCRIPTS = {
    "network": Script({"w": (3, 4), "b": (4,), "v": (4, 1)}, {"x": (5, 3), "y": (5, 1)}, network),
    "characters": Script({"w": (3, 4), "u": (4, 4), "b": (4,), "v": (4, 3)}, {"x": (3, 3), "y": (3, 3)}, characters),
    "autoencoder": Script({"w": (3, 2), "u": (3, 2), "v": (2, 3)}, {"x": (4, 3), "noise": (4, 2)}, autoencoder),
    "q_learning": Script({"w": (3, 2), "v": (3, 2)}, {"state": (4, 3), "next": (4, 3), "action": (4, 2),
                                                      "reward": (4,)}, q_learning),
    "adversaries": Script({"w": (2, 3), "v": (3, 1)}, {"x": (4, 3), "noise": (4, 2)}, adversaries),
}


def drawn(shapes: dict[str, tuple[int, ...]], dtype: str, seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    arrays = {name: (draw.standard_normal(shape) * 0.5).astype(jnp.dtype(dtype)) for name, shape in shapes.items()}
    # NumPy's own operators make float32 of bfloat16 and a Python number; those of fxgrad's arrays do not.
    return {name: fnp.asarray(array) if dtype == "bfloat16" else array for name, array in arrays.items()}


# --- a step, by hand and with the library ----------------------------------------------------------------------------


def by_hand(loss: Any, value_and_grad: Any, tree_map: Any) -> tuple[Any, Any]:
    def init(params: Any) -> Any:
        zeros = tree_map(lambda p: 0 * p, params)
        return params, zeros, zeros, 0

    def step(state: Any, data: Any) -> Any:
        params, first, second, count = state
        value, slopes = value_and_grad(loss)(params, data)
        count = count + 1
        first = tree_map(lambda m, g: BETA1 * m + (1 - BETA1) * g, first, slopes)
        second = tree_map(lambda s, g: BETA2 * s + (1 - BETA2) * g * g, second, slopes)
        scale = RATE / (1 - BETA1 ** count)
        params = tree_map(lambda p, m, s: p - scale * m / ((s / (1 - BETA2 ** count)) ** 0.5 + EPSILON),
                          params, first, second)
        return (params, first, second, count), value
    return init, step


def with_library(loss: Any) -> tuple[Any, Any]:
    optimizer = optim.adam(RATE, BETA1, BETA2, EPSILON)

    def step(state: Any, data: Any) -> Any:
        params, moments = state
        value, slopes = fxgrad.value_and_grad(loss)(params, data)
        return optimizer.update(slopes, moments, params), value
    return lambda params: (params, optimizer.init(params)), step


def with_optax(loss: Any) -> tuple[Any, Any]:
    optimizer = optax.adam(RATE, BETA1, BETA2, EPSILON)

    def step(state: Any, data: Any) -> Any:
        params, moments = state
        value, slopes = jax.value_and_grad(loss)(params, data)
        updates, moments = optimizer.update(slopes, moments, params)
        return (optax.apply_updates(params, updates), moments), value
    return lambda params: (params, optimizer.init(params)), step


# --- the paths -------------------------------------------------------------------------------------------------------


def stepped(step: Any, state: Any, data: Any) -> tuple[Any, list[Any]]:
    losses = []
    for _ in range(STEPS):
        state, loss = step(state, data)
        losses.append(loss)
    return state, losses


def in_scan(step: Any, state: Any, data: Any) -> tuple[Any, list[Any]]:
    state, losses = lax.scan(lambda state, _: step(state, data), state, None, length=STEPS)
    return state, [*losses]


def under_vmap(step: Any, state: Any, data: Any) -> tuple[Any, list[Any]]:
    """Two copies at once, the counter mapped too from the second step on; the second of them."""
    both = jax.tree.map(lambda leaf: fnp.stack([leaf, leaf]) if isinstance(leaf, np.ndarray) else leaf, state)
    axes = jax.tree.map(lambda leaf: 0 if isinstance(leaf, np.ndarray) else None, state)
    both, loss = fxgrad.vmap(step, in_axes=(axes, None))(both, data)
    losses = [loss[1]]
    for _ in range(STEPS - 1):
        both, loss = fxgrad.vmap(step, in_axes=(0, None))(both, data)
        losses.append(loss[1])
    return jax.tree.map(lambda leaf: leaf[1], both), losses


def restored(step: Any, state: Any, data: Any) -> tuple[Any, list[Any]]:
    """Stopped after every step, and gone on with from a copy in memory."""
    losses = []
    for _ in range(STEPS):
        state, loss = fxgrad.jit(step)(state, data)
        state = jax.tree.map(lambda leaf: leaf if isinstance(leaf, int) else leaf.copy(), state)
        losses.append(loss)
    return state, losses


PATHS: dict[str, Callable[[Any, Any, Any], tuple[Any, list[Any]]]] = {
    "un-jitted": stepped, "jitted": lambda step, state, data: stepped(fxgrad.jit(step), state, data),
    "scan": in_scan, "jitted scan": lambda step, state, data: fxgrad.jit(
        lambda state, data: in_scan(step, state, data))(state, data),
    "vmap": under_vmap, "jitted vmap": lambda step, state, data: under_vmap(fxgrad.jit(step), state, data),
    "restored": restored}


CASES = [pytest.param(name, dtype, optimizer, id=f"{name}-{dtype}-{optimizer}",
                      marks=[] if name == "network" and dtype == "float32" else pytest.mark.slow)
         for name in SCRIPTS for dtype in DTYPES for optimizer in ("by hand", "library")]


@pytest.mark.parametrize(("name", "dtype", "optimizer"), CASES)
def test_every_path_trains_alike(name: str, dtype: str, optimizer: str) -> None:
    script = SCRIPTS[name]
    params, data = drawn(script.params, dtype, 0), drawn(script.data, dtype, 1)
    tolerance = {"float32": 2e-5, "bfloat16": 0.04, "float64": 1e-12}[dtype]

    def of_ours(params: Any, data: Any) -> Any:
        return script.loss(fnp, params, data)

    def of_jax(params: Any, data: Any) -> Any:
        return script.loss(jnp, params, data)

    with jax.enable_x64(dtype == "float64"):
        start, step = with_optax(of_jax) if optimizer == "library" else by_hand(
            of_jax, jax.value_and_grad, jax.tree.map)
        wanted, wanted_losses = stepped(jax.jit(step), start(params), data)
        expected = [np.asarray(loss, np.float64) for loss in wanted_losses]
        assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(wanted[0]))

    for path, run in PATHS.items():
        start, step = with_library(of_ours) if optimizer == "library" else by_hand(
            of_ours, fxgrad.value_and_grad, fxgrad.tree.map)
        traces: list[Any] = []

        def counted(state: Any, data: Any, step: Any = step, traces: list[Any] = traces) -> Any:
            traces.append(state)
            return step(state, data)

        state, losses = run(counted, start(params), data)
        for leaf in jax.tree.leaves(state[0]):
            assert leaf.dtype == dtype, (path, leaf.dtype)
        np.testing.assert_allclose([np.asarray(loss, np.float64) for loss in losses], expected, tolerance, tolerance,
                                   err_msg=path)
        if path == "jitted":
            assert len(traces) <= 1, "a step is traced again"
