"""Repeated blocks of jitted functions: beside the same unrolled, and beside a scan written by hand with jax."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
from benchmarks.models import FXGRAD, JAX
from benchmarks.workload import Bar, Memory, Peer, Peers, Ratio, Workload

BY_HAND, UNROLLED, ONE = "jax.jit, scan by hand", "unrolled", "one copy"


class Case(NamedTuple):
    """A function in two forms, `(lib, *args)`: a Python loop of so many copies, and the same with `lib.lax.scan`.

    `arguments(depth)` are those of the loop. `stack` makes the arguments of the
    scan of them, outside of what is measured.
    """

    title: str
    loop: Callable[[int], Callable[..., Any]]
    scan: Callable[[int], Callable[..., Any]]
    arguments: Callable[[int], tuple[Any, ...]]
    stack: Callable[..., tuple[Any, ...]] = lambda *args: args


def stacked(each: Any, *others: Any) -> tuple[Any, ...]:
    """The parameters of layers as one stack each."""
    return {name: np.stack([layer[name] for layer in each]) for name in each[0]}, *others


def random(*shape: int, seed: int) -> Any:
    """Normal random numbers in float32, other ones for each seed."""
    return np.random.default_rng(seed).normal(size=shape).astype("f")


# --- layers ----------------------------------------------------------------------------------------------------------

WIDTH = 128


def normalised(lib: Any, x: Any) -> Any:
    """Each row of x with the mean 0 and the variance 1."""
    centred = x - lib.np.mean(x, -1, keepdims=True)
    return centred / lib.np.sqrt(lib.np.mean(centred * centred, -1, keepdims=True) + 1e-5)


def residual(lib: Any, x: Any, layer: Any) -> Any:
    """A pre-norm residual layer 128-256-128."""
    hidden = (normalised(lib, x) * layer["gain"] + layer["shift"]) @ layer["into"]
    return x + lib.np.tanh(hidden) @ layer["out"]


def attention(lib: Any, x: Any, layer: Any) -> Any:
    """A block of attention with 4 heads and a residual layer."""
    length, width, heads = *x.shape, 4
    mixed = lib.np.reshape(normalised(lib, x) @ layer["mix"], (length, 3, heads, width // heads))
    q, k, v = (lib.np.transpose(part, (1, 0, 2)) for part in (mixed[:, 0], mixed[:, 1], mixed[:, 2]))
    scores = q @ lib.np.transpose(k, (0, 2, 1)) / (width / heads) ** 0.5
    weights = lib.np.exp(scores - lib.np.max(scores, -1, keepdims=True))
    seen = (weights / lib.np.sum(weights, -1, keepdims=True)) @ v
    return residual(lib, x + lib.np.reshape(lib.np.transpose(seen, (1, 0, 2)), (length, width)) @ layer["back"], layer)


def layer_of(with_attention: bool, seed: int) -> dict[str, Any]:
    """The parameters of a layer."""
    made = {"gain": np.ones(WIDTH, "f"), "shift": np.zeros(WIDTH, "f"),
            "into": random(WIDTH, 2 * WIDTH, seed=seed) / WIDTH ** 0.5,
            "out": random(2 * WIDTH, WIDTH, seed=seed + 1000) / WIDTH ** 0.5}
    if with_attention:
        made |= {"mix": random(WIDTH, 3 * WIDTH, seed=seed + 2000) / WIDTH ** 0.5,
                 "back": random(WIDTH, WIDTH, seed=seed + 3000) / WIDTH ** 0.5}
    return made


def layers(with_attention: bool, depth: int) -> tuple[Any, ...]:
    """Layers in separate arrays, and 64 rows."""
    return [layer_of(with_attention, seed) for seed in range(depth)], random(64, WIDTH, seed=7)


def loop_over_layers(layer: Any, depth: int) -> Callable[..., Any]:
    """The layers one after the other; their parameters are a list, or stacked."""
    def network(lib: Any, params: Any, x: Any) -> Any:
        for index in range(depth):
            x = layer(lib, x, params[index] if isinstance(params, list) else {
                name: array[index] for name, array in params.items()})
        return lib.np.sum(x * x)
    return network


def scan_over_layers(layer: Any, _: int) -> Callable[..., Any]:
    """The same by scan."""
    def network(lib: Any, params: Any, x: Any) -> Any:
        x = lib.lax.scan(lambda x, each: (layer(lib, x, each), None), x, params)[0]
        return lib.np.sum(x * x)
    return network


# --- steps -----------------------------------------------------------------------------------------------------------


def recurrent_step(lib: Any, params: Any, state: Any, x: Any) -> Any:
    """A step of a tanh RNN with 64 units."""
    return lib.np.tanh(x @ params["of_input"] + state @ params["of_state"] + params["bias"])


def recurrent_loop(depth: int) -> Callable[..., Any]:
    """An RNN over the entries of `xs`."""
    def network(lib: Any, params: Any, xs: Any, state: Any) -> Any:
        for index in range(depth):
            state = recurrent_step(lib, params, state, xs[index])
        return lib.np.sum(state * state)
    return network


def recurrent_scan(_: int) -> Callable[..., Any]:
    """The same by scan."""
    def network(lib: Any, params: Any, xs: Any, state: Any) -> Any:
        state = lib.lax.scan(lambda state, x: (recurrent_step(lib, params, state, x), None), state, xs)[0]
        return lib.np.sum(state * state)
    return network


def recurrent_arguments(depth: int) -> tuple[Any, ...]:
    """Parameters, entries and the first state."""
    params = {"of_input": random(32, 64, seed=1) / 6, "of_state": random(64, 64, seed=2) / 8,
              "bias": random(64, seed=3)}
    return params, random(depth, 16, 32, seed=4), np.zeros((16, 64), "f")


def oscillate(lib: Any, stiffness: Any, y: Any) -> Any:
    """A step of the classical Runge-Kutta method."""
    def slope(y: Any) -> Any:
        return lib.np.sin(y) * stiffness - y

    step = 0.05
    first = slope(y)
    second = slope(y + step / 2 * first)
    third = slope(y + step / 2 * second)
    return y + step / 6 * (first + 2 * second + 2 * third + slope(y + step * third))


def step_loop(step: Any, depth: int) -> Callable[..., Any]:
    """Steps in time."""
    def solve(lib: Any, stiffness: Any, y: Any) -> Any:
        for _ in range(depth):
            y = step(lib, stiffness, y)
        return lib.np.sum(y * y)
    return solve


def step_scan(step: Any, depth: int) -> Callable[..., Any]:
    """The same by scan."""
    def solve(lib: Any, stiffness: Any, y: Any) -> Any:
        y = lib.lax.scan(lambda y, _: (step(lib, stiffness, y), None), y, None, depth)[0]
        return lib.np.sum(y * y)
    return solve


def adam_step(lib: Any, state: Any, data: Any, corrections: Any) -> Any:
    """A step of Adam on a least-squares problem."""
    w, mean, square = state
    inputs, targets = data
    slope = inputs.T @ (inputs @ w - targets) / len(targets)
    mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope * slope
    return w - 0.05 * (mean / corrections[0]) / (lib.np.sqrt(square / corrections[1] + 1e-8) + 1e-4), mean, square


def adam_loop(depth: int) -> Callable[..., Any]:
    """Steps of Adam, unrolled: their corrections are numbers in the code."""
    def train(lib: Any, w: Any, *data: Any) -> Any:
        state = w, lib.np.zeros_like(w), lib.np.zeros_like(w)
        for step in range(1, depth + 1):
            state = adam_step(lib, state, data, (1 - 0.9 ** step, 1 - 0.99 ** step))
        return lib.np.sum((data[0] @ state[0] - data[1]) ** 2)
    return train


def adam_scan(depth: int) -> Callable[..., Any]:
    """The same by scan over the corrections."""
    steps = np.arange(1, depth + 1)
    corrections = (1 - 0.9 ** steps).astype("f"), (1 - 0.99 ** steps).astype("f")

    def train(lib: Any, w: Any, *data: Any) -> Any:
        state = w, lib.np.zeros_like(w), lib.np.zeros_like(w)
        state = lib.lax.scan(lambda state, each: (adam_step(lib, state, data, each), None), state, corrections)[0]
        return lib.np.sum((data[0] @ state[0] - data[1]) ** 2)
    return train


CASES = {
    "residual MLP": Case(
        "residual layers 128-256-128 in separate arrays, 64 rows", functools.partial(loop_over_layers, residual),
        functools.partial(scan_over_layers, residual), functools.partial(layers, False), stacked),
    "stacked MLP": Case(
        "residual layers 128-256-128 in stacked arrays, 64 rows", functools.partial(loop_over_layers, residual),
        functools.partial(scan_over_layers, residual), lambda depth: stacked(*layers(False, depth))),
    "transformer": Case(
        "transformer blocks in separate arrays, width 128, 64 tokens", functools.partial(loop_over_layers, attention),
        functools.partial(scan_over_layers, attention), functools.partial(layers, True), stacked),
    "RNN": Case("steps of a tanh RNN, 64 units", recurrent_loop, recurrent_scan, recurrent_arguments),
    "ODE": Case("steps of Runge-Kutta, 1000 numbers", functools.partial(step_loop, oscillate),
                functools.partial(step_scan, oscillate), lambda _: (np.float32(2.0), random(1000, seed=5))),
    "Adam": Case("steps of Adam on least squares, 64 x 16", adam_loop, adam_scan,
                 lambda _: (random(16, seed=6), random(64, 16, seed=8), random(64, seed=9))),
}


def functions(case: Case, depth: int, gradient: bool) -> dict[str, tuple[Callable[[], Any], tuple[Any, ...]]]:
    """For each peer a function that makes the jitted function, and its arguments; gradients are in the first one."""
    args = jax.tree.map(jnp.asarray, case.arguments(depth))
    one = jax.tree.map(jnp.asarray, case.arguments(1))
    by_hand = jax.tree.map(jnp.asarray, case.stack(*case.arguments(depth)))

    def ours(depth: int) -> Any:
        loop = functools.partial(case.loop(depth), FXGRAD)
        return fxgrad.jit(fxgrad.value_and_grad(loop) if gradient else loop)

    def theirs() -> Any:
        loop = functools.partial(case.scan(depth), JAX)
        return jax.jit(jax.value_and_grad(loop) if gradient else loop)

    return {"fxgrad": (lambda: ours(depth), args), BY_HAND: (theirs, by_hand), UNROLLED: (lambda: ours(depth), args),
            ONE: (lambda: ours(1), one)}


def lowered(name: str, make: Callable[[], Any], args: tuple[Any, ...]) -> Any:
    """jax's lowered stage, without rolling for the unrolled one."""
    fxgrad.config.update("roll_repeats", name != UNROLLED)
    try:
        return make().lower(*args)
    finally:
        fxgrad.config.update("roll_repeats", True)


@functools.lru_cache(maxsize=2)
def compiled_calls(name: str, depth: int, gradient: bool) -> Peers:
    """Calls of compiled functions; the last two are kept, for in tests the next depth has the same ones."""
    peers: Peers = {}
    for peer, (make, args) in functions(CASES[name], depth, gradient).items():
        if peer != ONE:
            stage = lowered(peer, make, args).compile()
            peers[peer] = Peer(functools.partial(_run, stage, args), functools.partial(_comparable, name),
                               memory=stage.memory_analysis().temp_size_in_bytes)
    return peers


def of_calls(name: str, depth: int, gradient: bool, small: bool) -> Peers:
    """Calls of compiled functions, of three copies in tests."""
    return compiled_calls(name, 3 if small else depth, gradient)


def _run(stage: Any, args: tuple[Any, ...]) -> Any:
    return jax.block_until_ready(stage(*args))


def _comparable(name: str, result: Any) -> Any:
    """A result with the gradients of layers in separate arrays stacked, as the scan has them."""
    if not isinstance(result, tuple) or not isinstance(result[1], list):
        return result
    return result[0], CASES[name].stack(result[1])[0]


def of_compilation(name: str, depth: int, gradient: bool, small: bool) -> Peers:
    """Compilation by XLA, each time of a function that is made and lowered anew."""
    peers: Peers = {}
    for peer, (make, args) in functions(CASES[name], 3 if small else depth, gradient).items():
        if peer != UNROLLED:
            compilation = _Compilation(functools.partial(lowered, peer, make, args))
            peers[peer] = Peer(compilation.run, None, prepare=compilation.prepare)
    return peers


class _Compilation:
    """A lowered function, and its compilation."""

    def __init__(self, lower: Callable[[], Any]) -> None:
        self._lower, self._stage = lower, None

    def prepare(self) -> None:
        """Lower the function again."""
        jax.clear_caches()
        self._stage = self._lower()

    def run(self) -> None:
        """Compile it."""
        assert self._stage is not None
        self._stage.compile()


BARS: tuple[Bar, ...] = (Ratio(UNROLLED, 1.05), Memory(BY_HAND, 1.1))


DEPTHS = {"residual MLP": (12, 48), "stacked MLP": (12, 48), "transformer": (12, 48), "RNN": (48,), "ODE": (12,),
          "Adam": (24,)}
"""Where unrolled code compiles within half a minute."""

WORKLOADS = [
    *(Workload(f"rolling: {name}, {depth}{', gradient' * gradient}",
               f"{'Value and gradient of ' * gradient}{depth} {CASES[name].title}",
               functools.partial(of_calls, name, depth, gradient), BARS, tolerance=1e-3, jitted=True)
      for name, depths in DEPTHS.items() for depth in depths for gradient in (False, True)),
    *(Workload(f"compilation: {name}, {depth}{', gradient' * gradient}",
               f"Compilation of {'the value and gradient of ' * gradient}{depth} {CASES[name].title}",
               functools.partial(of_compilation, name, depth, gradient),
               (Ratio(ONE, 1 + (depth - 1) / 3),) if name in ("residual MLP", "transformer") else (
                   Ratio(BY_HAND, 1.1),), jitted=True)
      for name in CASES for depth in (12, 128) for gradient in (False, True)),
]
