"""Functions of arrays against jax's: value, jit, derivatives of both modes and orders, batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
import fxgrad.numpy as fnp


def drawn(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def agree(ours: Any, theirs: Any, tolerance: float = 2e-5) -> None:
    ours, theirs = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype
        assert mine.shape == other.shape
        np.testing.assert_allclose(np.asarray(mine, "complex128"), np.asarray(other, "complex128"), tolerance,
                                   tolerance)


def compare(ours: Callable[..., Any], theirs: Callable[..., Any], *args: Any, tolerance: float = 2e-5,
            second: bool = True) -> None:
    """Value, jit, jvp, vjp, second order and vmap of two functions of arrays."""
    tangents = tuple(drawn(*arg.shape, dtype=arg.dtype, seed=5 + place) for place, arg in enumerate(args))
    out, pull = fxgrad.vjp(ours, *args)
    cotangents = jax.tree.map(lambda x: drawn(*x.shape, dtype=x.dtype, seed=9), out)
    every = tuple(range(len(args)))

    def energy(function: Callable[..., Any], square: Any) -> Callable[..., Any]:
        return lambda *values: square(function(*values))

    ours_energy, theirs_energy = (energy(ours, lambda y: fnp.sum(y ** 3)), energy(theirs, lambda y: jnp.sum(y ** 3)))
    batch = tuple(np.stack([arg, 2 * arg, -arg], 1) for arg in args)
    choices = sorted({tuple(1 if place == only else None for place in every) for only in every} | {(1,) * len(args)},
                     key=str)
    batches = [[value if axis else arg for value, arg, axis in zip(batch, args, axes, strict=True)]
               for axes in choices]

    @jax.jit  # one program to compile
    def expected(args: Any, tangents: Any, cotangents: Any, batches: Any) -> Any:
        moved = jax.jvp(jax.grad(theirs_energy, every), args, tangents) if second else None
        batched = [jax.vmap(theirs, in_axes=axes)(*given) for axes, given in zip(choices, batches, strict=True)]
        return jax.jvp(theirs, args, tangents), jax.vjp(theirs, *args)[1](cotangents), moved, batched

    forward, back, moved, batched = expected(args, tangents, cotangents, batches)
    agree(ours(*args), forward[0], tolerance)
    agree(fxgrad.jit(ours)(*args), forward[0], tolerance)
    agree(fxgrad.jvp(ours, args, tangents), forward, tolerance)
    agree(pull(cotangents), back, tolerance)
    agree(out, forward[0], tolerance)
    if second:
        agree(fxgrad.jvp(fxgrad.grad(ours_energy, every), args, tangents), moved, 50 * tolerance)
    for axes, given, wanted in zip(choices, batches, batched, strict=True):
        agree(fxgrad.vmap(ours, in_axes=axes)(*given), wanted, tolerance)
