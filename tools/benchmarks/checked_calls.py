"""Compiled calls with automatic checks, beside the same without, and jax's checkify."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify

import fxgrad
from benchmarks.models import FXGRAD, JAX, random
from benchmarks.workload import Peer, Peers, Ratio, Workload


def network(library: Any, weights: Any, x: Any) -> Any:
    """Four layers 256 wide, on 64 rows."""
    for w in weights:
        x = library.np.tanh(x @ w)
    return library.np.sum(x)


def recurrence(library: Any, x: Any) -> Any:
    """A scan of 500 steps on 100 numbers."""
    def step(carry: Any, _: Any) -> Any:
        return library.np.sin(carry) * 1.01 + 0.1, library.np.sum(carry)
    return library.lax.scan(step, x, None, length=500)


def short_loop(library: Any, x: Any) -> Any:
    """A while loop of ten steps on a number."""
    return library.lax.while_loop(lambda state: state[1] < 10, lambda state: (state[0] * 0.5 + 1.0, state[1] + 1),
                                  (x, np.int32(0)))


def division_loop(library: Any, x: Any) -> Any:
    """A while loop of ten steps on a number, any of which can make a NaN."""
    return library.lax.while_loop(lambda state: state[1] < 10, lambda state: (
        (state[0] * state[0] - 2.0) / (state[0] + 1.0), state[1] + 1), (x, np.int32(0)))


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "MLP": (network, (list(random(4, 256, 256, scale=0.05)), random(64, 256, scale=1))),
    "scan": (recurrence, (random(100, scale=1),)),
    "short while": (short_loop, (np.float32(1),)),
    "dividing while": (division_loop, (np.float32(1),)),
}
ERRORS = {"nan": checkify.nan_checks, "all": checkify.all_checks}


def with_checks(name: str, kind: str, small: bool) -> Peers:  # noqa: ARG001  (they are small)
    """Calls of one function, checked and not."""
    function, args = FUNCTIONS[name]
    args = jax.tree.map(jnp.asarray, args)
    ours, theirs = functools.partial(function, FXGRAD), functools.partial(function, JAX)

    def peer(jitted: Any, result: Callable[[Any], Any] = lambda found: found) -> Peer:
        return Peer(lambda: jax.block_until_ready(jitted(*args)), result)
    return {"fxgrad": peer(fxgrad.jit(fxgrad.checked(ours, kind))),
            "unchecked": peer(fxgrad.jit(ours)),
            "checkify": peer(jax.jit(checkify.checkify(theirs, ERRORS[kind])), lambda found: found[1]),
            "jax.jit": peer(jax.jit(theirs))}


WORKLOADS = [
    Workload(f"checks: {name}, {kind}", f"A compiled call of {function.__doc__[0].lower()}{function.__doc__[1:-1]}, "
             f"{'NaNs' if kind == 'nan' else 'everything'} checked",  # type: ignore[index]
             functools.partial(with_checks, name, kind), (Ratio("unchecked", 1.1),), tolerance=1e-4, jitted=True)
    for name, (function, _) in FUNCTIONS.items() for kind in ERRORS]
