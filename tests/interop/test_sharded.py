"""`jax.shard_map` and what is in it, imported: values and derivatives are jax's, on NumPy and on eight devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import fxgrad

RANDOM = np.random.default_rng(0)
W, X = RANDOM.normal(size=(4, 3)), RANDOM.normal(size=(8, 4))


def mesh() -> Any:
    return jax.make_mesh((4, 2), ("i", "j"), axis_types=(AxisType.Auto,) * 2)


def looped(w: Any, x: Any) -> Any:
    """A ring: pieces of x go round, while each device adds up."""
    def step(carry: Any, _: Any) -> Any:
        total, piece = carry
        return (total + jnp.tanh(piece @ w), lax.ppermute(piece, "i", [(k, (k + 1) % 4) for k in range(4)])), None
    zeros = jnp.zeros((x.shape[0], w.shape[1]), x.dtype) + 0 * x[:, :1]
    return lax.scan(step, (zeros, x), None, 4)[0][0]


@jax.custom_vjp
def ruled(x: Any) -> Any:
    return jnp.sin(x)


ruled.defvjp(lambda x: (jnp.sin(x), x), lambda x, cotangent: (cotangent * x * 2.0,))


@jax.custom_jvp
def tripled(x: Any) -> Any:
    return jnp.sin(x)


tripled.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), tangents[0] * 3.0 * primals[0]))


# (function of w[4, 3] and x[8, 4], specs of both and of the result, whether jax can prove that the result is so)
CASES: dict[str, tuple[Callable[[Any, Any], Any], Any, Any, bool]] = {
    "data parallel": (lambda w, x: lax.pmean(jnp.sum((x @ w) ** 2), ("i", "j")), (P(), P(("i", "j"))), P(), True),
    "pieces": (lambda w, x: jnp.sin(x @ w), (P(), P("i")), P("i"), True),
    "tensor parallel": (lambda w, x: lax.psum(x @ w, "j"), (P("j"), P("i", "j")), P("i"), True),
    "gathered": (lambda w, x: lax.all_gather(x, "i", tiled=True) @ w, (P(), P("i", None)), P(None, None), False),
    "scattered": (lambda w, x: lax.psum_scatter(x.T @ jnp.sin(x), "i", tiled=True) * w[:1, :1], (P(), P("i")), P("i"),
                  True),
    "exchanged": (lambda w, x: lax.all_to_all(x @ w @ w.T, "i", 1, 0, tiled=True), (P(), P("i")), P("i"), True),
    "permuted": (lambda w, x: lax.ppermute(x @ w, ("j", "i"), [(0, 3), (3, 1), (4, 2)]), (P(), P("i")), P("i", "j"),
                 True),
    "positions": (lambda w, x: (x @ w) * lax.axis_index("j") + lax.axis_index("i"), (P(), P("i")), P("i", "j"), True),
    "extrema": (lambda w, x: lax.psum(jnp.sum(x @ w), "i") * lax.pmax(lax.stop_gradient(x.max()), "i"), (P(), P("i")),
                P(), True),
    "cast": (lambda w, x: lax.psum(lax.pcast(w, "i", to="varying") * x.sum(), "i"), (P(), P("i")), P(), True),
    "ring": (looped, (P(), P("i")), P("i"), True),
    "branch": (lambda w, x: lax.cond(lax.psum(x.sum(), "i") > 0, lambda: x @ w, lambda: jnp.sin(x @ w)),
               (P(), P("i")), P("i"), True),
    "jitted inside": (lambda w, x: jax.jit(lambda a, b: jnp.sin(a @ b) + lax.psum(jnp.cos(a @ b), "i"))(x, w),
                      (P(), P("i")), P("i"), True),
    "rules": (lambda w, x: lax.psum((jax.nn.relu(x @ w) * jax.nn.relu(w[:1]) * ruled(x @ w) * ruled(w[:1]) * tripled(
        x @ w) * tripled(w[:1])).sum(), "i"), (P(), P("i")), P(), True),
    "gradient inside": (lambda w, x: lax.psum(jax.grad(lambda w: jnp.sum(jnp.sin(x @ w)))(
        lax.pcast(w, ("i",), to="varying")), "i"), (P(), P("i")), P(), True),
}


def mapped(name: str, check: bool) -> Callable[[Any, Any], Any]:
    function, in_specs, out_specs, _ = CASES[name]
    return jax.shard_map(function, mesh=mesh(), in_specs=in_specs, out_specs=out_specs, check_vma=check)


@pytest.mark.slow
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_against_jax(name: str, check: bool) -> None:
    if check and not CASES[name][-1]:
        pytest.skip("jax cannot prove that the result is equal")
    if not check and name == "cast":
        pytest.skip("without types there is nothing to cast")
    function = mapped(name, check)

    def total(library: Any, f: Any) -> Callable[[Any, Any], Any]:
        return lambda w, x: (library.sin(f(w, x)) * 1.5).sum()

    @jax.jit
    def of_jax(w: Any, x: Any) -> Any:
        slopes = jax.grad(total(jnp, function), (0, 1))
        return function(w, x), slopes(w, x), jax.jvp(lambda x: slopes(w, x)[0], (x,), (jnp.cos(x),))[1]

    ours = fxgrad.from_jax(function)
    program = fxgrad.make_program(ours)(W, X)
    assert [equation.primitive.name for equation in program.equations] == ["shard_map"]
    assert "jax_call" not in str(program)

    def of_ours(w: Any, x: Any) -> Any:
        slopes = fxgrad.grad(total(np, ours), (0, 1))
        return ours(w, x), slopes(w, x), fxgrad.jvp(lambda x: slopes(w, x)[0], (x,), (np.cos(x),))[1]

    with jax.enable_x64(True):
        wanted = of_jax(W, X)
    for got in (of_ours(W, X), fxgrad.jit(of_ours)(W, X)):
        for one, two in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(one, two, 1e-12, 1e-12)


def test_what_has_no_counterpart_stays_jaxs() -> None:
    """The whole `shard_map`, for a collective that fxgrad has not; and a pmap is one of ours."""
    reduced = jax.shard_map(lambda x: lax.psum(lax.pcast(x, "i", to="reduced").sum() * lax.axis_index("i"), "i"),
                            mesh=mesh(), in_specs=P(), out_specs=P())
    for function, name in ((reduced, "jax_call"),
                           (lambda x: jax.pmap(lambda row: row * lax.psum(row, "k"), axis_name="k")(x), "shard_map")):
        ours, x = fxgrad.from_jax(function), X.astype(np.float32)
        program = fxgrad.make_program(ours)(x)
        assert [equation.primitive.name for equation in program.equations] == [name]
        np.testing.assert_allclose(ours(x), jax.jit(function)(x), 1e-5)
