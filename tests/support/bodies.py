"""Bodies of `shard_map` written once, for fxgrad and for jax, and the functions derived from them that are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import fxgrad
import fxgrad.numpy as fnp


class Library(NamedTuple):
    """What a body is written with: ours, or jax's."""

    np: Any
    lax: Any
    api: Any
    varies: Any = None


OURS, JAX = Library(fnp, fxgrad.lax, fxgrad), Library(jnp, jax.lax, jax)


def scalar(f: Callable[..., Any], on: Library) -> Callable[..., Any]:
    """Return a function of the sum of the sines of all results, of which gradients are taken."""
    def loss(w: Any, x: Any) -> Any:
        outputs = f(w, x)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return sum(on.np.sum(on.np.sin(output)) for output in outputs)
    return loss


TRANSFORMS: dict[str, Callable[[Any, Library], Any]] = {
    "value": lambda f, on: f,
    "grad": lambda f, on: on.api.grad(scalar(f, on), (0, 1)),
    "jvp": lambda f, on: lambda w, x: on.api.jvp(f, (w, x), (w * 0.5, x * x))[1],
    "hvp": lambda f, on: lambda w, x: on.api.jvp(on.api.grad(scalar(f, on)), (w, x), (w + 1, x * x))[1],
    "reverse over reverse": lambda f, on: on.api.grad(
        lambda w, x: on.np.sum(on.np.cos(on.api.grad(scalar(f, on))(w, x)))),
    "vmap of grad": lambda f, on: lambda w, x: on.api.vmap(on.api.grad(scalar(f, on)), (0, None))(
        on.np.stack([w, w * 2, w - 1]), x),
    "grad of checkpoint": lambda f, on: on.api.grad(scalar(on.api.checkpoint(f), on), (0, 1)),
    "grad in scan": lambda f, on: lambda w, x: on.lax.scan(
        lambda w, _: (w - 0.1 * on.api.grad(scalar(f, on))(w, x), None), w, None, 2)[0],
}
