"""Un-jitted gradients through functions with derivatives of their own, whose rules run at every call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
from benchmarks.workload import Peer, Peers, Workload


def by_jvp(transforms: Any) -> Callable[[Any], Any]:
    """A square with the rule of a square, by `custom_jvp`."""
    square = transforms.custom_jvp(lambda x: x * x)
    square.defjvp(lambda primals, tangents: (square(*primals), 2.0 * primals[0] * tangents[0]))
    return square  # type: ignore[no-any-return]


def by_vjp(transforms: Any) -> Callable[[Any], Any]:
    """The same by `custom_vjp`."""
    square = transforms.custom_vjp(lambda x: x * x)
    square.defvjp(lambda x: (x * x, x), lambda x, cotangent: (2.0 * x * cotangent,))
    return square  # type: ignore[no-any-return]


def gradient(make: Callable[[Any], Callable[[Any], Any]], small: bool) -> Peers:
    """The gradient of a function that calls such a function five times."""
    x = np.linspace(0.1, 0.9, 5 if small else 100, dtype="float32")

    def of_library(transforms: Any, xp: Any) -> Any:
        square = make(transforms)

        def loss(x: Any) -> Any:
            for _ in range(5):
                x = square(x) * 0.5 + x
            return xp.sum(x)
        return transforms.grad(loss)

    ours, theirs, of_jax = of_library(fxgrad, np), of_library(jax, jnp), jnp.asarray(x)
    compiled = jax.jit(theirs)
    return {"fxgrad": Peer(lambda: ours(x)), "jax": Peer(lambda: theirs(of_jax)),
            "jax.jit": Peer(lambda: compiled(of_jax))}


WORKLOADS = [
    Workload("custom rules: custom_jvp", "The gradient of a function that calls a custom_jvp function five times",
             functools.partial(gradient, by_jvp), tolerance=1e-4),
    Workload("custom rules: custom_vjp", "The gradient of a function that calls a custom_vjp function five times",
             functools.partial(gradient, by_vjp), tolerance=1e-4),
]
