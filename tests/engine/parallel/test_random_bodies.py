"""Random bodies and specs of `shard_map` against jax: values and derivatives, with NumPy and on devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import fxgrad
from tests.support.bodies import JAX, OURS, TRANSFORMS, Library
from tests.support.tiers import examples

MESH = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:4])
NAMES = ("a", "b")
SPECS = ((), ("a",), ("b",), ("a", "b"), ("b", "a"))
UNARY = ("sin", "tanh", "double")
STEPS = ("unary", "multiply", "matmul", "psum", "pmean", "gather", "scatter", "turn", "exchange", "index", "scan",
         "cond", "checkpoint", "grad", "vmap", "while")
Step = tuple[str, int, int, str]
"""What is done, with which two of the values so far, and over which mesh axis."""


def run(on: Library, steps: list[Step], w: Any, x: Any) -> Any:
    """A body of pieces [2, 2]; the value of each step has that shape too. Returns the sum of all values."""
    values = [w, x]
    varies = [on.varies(w), on.varies(x)]

    def add(value: Any, axes: frozenset[str]) -> None:
        values.append(value)
        varies.append(axes)

    for kind, first, second, name in steps:
        one, two = first % len(values), second % len(values)
        u, v, own = values[one], values[two], varies[one]
        both = own | varies[two]
        match kind:
            case "unary":
                add((on.np.sin, on.np.tanh, lambda z: z * 2.0)[second % 3](u), own)
            case "multiply":
                add(u * v, both)
            case "matmul":
                add(on.np.tanh(u @ v), both)
            case "psum" | "pmean" if name in own:
                add(getattr(on.lax, kind)(u, name), own - {name})
            case "gather" if name in own:
                add(on.np.sin(on.lax.all_gather(u, name).sum(0)), own)
            case "scatter" if name in own:
                add(on.np.tile(on.lax.psum_scatter(u, name, scatter_dimension=0, tiled=True), (2, 1)), own)
            case "turn" if name in own:
                add(on.lax.ppermute(u, name, [(0, 1), (1, 0)][:1 + second % 2]), own)
            case "exchange" if name in own:
                add(on.lax.all_to_all(u, name, 0, 1, tiled=True).reshape(2, 2), own)
            case "index":
                add(u * (1.0 + on.lax.axis_index(name)), own | {name})
            case "scan":
                begin = on.lax.pcast(u, tuple(varies[two] - own), to="varying") if varies[two] - own else u
                add(on.lax.scan(lambda c, _, v=v: (on.np.sin(c * v), None), begin, None, 2)[0], both)
            case "cond":
                more = tuple({name} - own)
                moved = on.lax.pcast(u, more, to="varying") if more else u
                add(on.lax.cond(on.lax.axis_index(name) > 0, lambda z: z * 3.0, on.np.sin, moved), own | {name})
            case "checkpoint":
                add(on.api.checkpoint(lambda s, t: on.np.sin(s) * t)(u, v), both)
            case "grad":
                add(on.api.grad(lambda z, v=v: on.np.sum(on.np.sin(z * v)))(u), own)
            case "vmap":
                add(on.api.vmap(lambda row, v=v: on.np.tanh(row @ v))(u), both)
            case "while":
                add(on.lax.fori_loop(0, 2, lambda _, c: on.np.sin(c) * 1.5, u), own)
    return functools.reduce(lambda total, value: total + value, values[2:], on.np.sin(w) + x), \
        frozenset().union(*varies)


def mapped(on: Library, case: Any, check_vma: bool) -> Callable[..., Any]:
    w_axes, x_axes, steps, out = case

    def body(w: Any, x: Any) -> Any:
        total, axes = run(on._replace(varies=lambda value: frozenset(w_axes if value is w else x_axes)), steps, w, x)
        left = tuple(name for name in NAMES if name in axes and name not in out)
        total = on.lax.psum(total, left) if left else total
        more = tuple(name for name in out if name not in axes)
        return on.lax.pcast(total, more, to="varying") if more and check_vma else total

    return on.api.shard_map(body, mesh=MESH, in_specs=(P(w_axes), P(None, x_axes)), out_specs=P(out),
                            check_vma=check_vma)


CASES = st.tuples(
    st.sampled_from(SPECS), st.sampled_from(SPECS),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5), st.integers(0, 5), st.sampled_from(NAMES)),
             min_size=1, max_size=5),
    st.sampled_from(SPECS))


@pytest.mark.slow
@examples(20)
@given(CASES, st.sampled_from(sorted(TRANSFORMS)), st.booleans())
def test_random_bodies(case: Any, kind: str, check_vma: bool) -> None:
    w_axes, x_axes, steps, _ = case
    if not check_vma and any(step[0] == "grad" for step in steps):
        check_vma = True  # of what is the same on several devices, jax gives another gradient then
    w = np.cos(np.arange(4.0 * 2 ** len(w_axes))).reshape(-1, 2)
    x = np.sin(np.arange(4.0 * 2 ** len(x_axes))).reshape(2, -1)
    kinds = ("value", "grad", kind)
    with jax.enable_x64(True):
        oracle = mapped(JAX, case, check_vma)
        wanted = jax.jit(lambda w, x: [TRANSFORMS[each](oracle, JAX)(w, x) for each in kinds])(
            jnp.asarray(w), jnp.asarray(x))
    f = mapped(OURS, case, check_vma)
    ours = [TRANSFORMS[each](f, OURS) for each in kinds]
    there = fxgrad.jit(lambda w, x: [each(w, x) for each in ours])(w, x)
    for each, on_devices, expected, name in zip(ours, there, wanted, kinds, strict=True):
        for one, other, leaf in zip(*map(jax.tree_util.tree_leaves, (each(w, x), on_devices, expected)), strict=True):
            np.testing.assert_allclose(one, leaf, rtol=5e-12, atol=5e-12, err_msg=f"{name} with NumPy")
            np.testing.assert_allclose(other, leaf, rtol=1e-12, atol=1e-12, err_msg=f"{name} on devices")
