"""`shard_map` against jax's: values and all derivatives, with NumPy without devices, and on eight of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import fxgrad
from tests.support.bodies import JAX, OURS, TRANSFORMS, Library

MESH = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
X = np.arange(32.0).reshape(8, 4) / 7 - 2
W = np.cos(np.arange(8.0)).reshape(4, 2)


class Case(NamedTuple):
    """A body of (w[4, 2], x[8, 4]) with its specs; `both` if it is right without checks as well."""

    body: Callable[..., Any]
    in_specs: Any
    out_specs: Any
    both: bool = True


CASES: dict[str, Case] = {}


def case(in_specs: Any, out_specs: Any, both: bool = True) -> Callable[[Any], Any]:
    def enter(body: Any) -> Any:
        CASES[body.__name__] = Case(body, in_specs, out_specs, both)
        return body
    return enter


@case((P(), P("data")), P())
def data_parallel(on: Library, w: Any, x: Any) -> Any:
    return on.lax.pmean(on.np.sum(on.np.tanh(x @ w) ** 2), "data")


@case((P(None, "model"), P("data")), P())
def tensor_parallel(on: Library, w: Any, x: Any) -> Any:
    return on.lax.pmean(on.lax.psum(on.np.sum(on.np.tanh(x @ w) ** 2), "model"), "data")


@case((P("data", "model"), P(("data", "model"))), P("data"))
def fully_sharded(on: Library, w: Any, x: Any) -> Any:
    whole = on.lax.all_gather(on.lax.all_gather(w, "data", axis=0, tiled=True), "model", axis=1, tiled=True)
    return on.lax.psum(on.np.sin(x @ whole), "model")


@case((P("data"), P("data")), P("data"))
def scattered(on: Library, w: Any, x: Any) -> Any:
    return on.lax.psum_scatter(on.lax.psum(x.T @ x, "model") * on.np.sum(w), "data", scatter_dimension=0, tiled=True)


@case((P(), P("data")), P("data"))
def ring(on: Library, w: Any, x: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        total, piece = carry
        turned = on.lax.ppermute(piece, "data", [(i, (i + 1) % 4) for i in range(4)])
        return (total + on.np.tanh(piece @ w), turned), None
    begin = (on.lax.pcast(on.np.zeros((2, 2), w.dtype), "data", to="varying"), x)
    return on.lax.scan(step, begin, None, 4)[0][0]


@case((P(), P("data", None)), P(None, "data"))
def exchanged(on: Library, w: Any, x: Any) -> Any:
    swapped = on.lax.all_to_all(x, "data", split_axis=1, concat_axis=0, tiled=True)
    return on.np.sin(swapped) * on.np.sum(w)


@case((P(None, "model"), P("data")), (P("data", "model"), P(), P("data")))
def several_results(on: Library, w: Any, x: Any) -> Any:
    y = x @ w
    return y, on.lax.psum(on.np.sum(y), ("data", "model")), x * on.lax.axis_index("data")


@case((P(), P("data")), P(), both=False)
def slope_inside(on: Library, w: Any, x: Any) -> Any:
    gradient = on.api.grad(lambda w: on.np.sum(on.np.tanh(x @ w)))(w)  # summed over the devices
    return w - 0.1 * on.lax.pmean(gradient, "data")


@case((P(), P("data")), P("data"))
def own_slope(on: Library, w: Any, x: Any) -> Any:
    own = on.lax.pcast(w, "data", to="varying")
    return x * on.np.sum(on.api.grad(lambda w: on.np.sum(on.np.tanh(x @ w)))(own) ** 2)


@case((P(), P("data")), P(), both=False)
def slope_in_a_loop(on: Library, w: Any, x: Any) -> Any:
    def step(w: Any, _: Any) -> Any:
        return w - 0.01 * on.api.grad(lambda w: on.np.sum(on.np.tanh(x @ w)))(w), None
    return on.lax.scan(step, w, None, 3)[0]


@case((P(), P("data")), P(), both=False)
def slopes_under_vmap(on: Library, w: Any, x: Any) -> Any:
    def slope(column: Any) -> Any:
        return on.api.grad(lambda c: on.np.sum(on.np.tanh(x @ c)))(column)
    return on.api.vmap(slope, in_axes=1, out_axes=1)(w)


@case((P(), P("data")), P(), both=False)
def slopes_of_rows(on: Library, w: Any, x: Any) -> Any:
    slopes = on.api.vmap(lambda row: on.api.grad(lambda w: on.np.sum(on.np.tanh(row @ w)))(w))(x)
    return on.np.sum(slopes, axis=0)


@case((P("model"), P("data")), P("data"))
def in_branches(on: Library, w: Any, x: Any) -> Any:
    chosen = on.lax.cond(on.lax.axis_index("data") % 2 == 0, lambda: x, lambda: on.np.sin(x))
    return chosen * on.lax.psum(on.np.sum(w), "model")


@case((P(), P("data")), P("data"))
def checkpointed(on: Library, w: Any, x: Any) -> Any:
    return on.lax.psum(on.api.checkpoint(lambda w, x: on.np.sin(on.np.tanh(x @ w)))(w, x), "model")


@case((P(), P("data")), P(("data", "model")))
def of_several_axes(on: Library, w: Any, x: Any) -> Any:
    index = on.lax.axis_index(("data", "model"))
    return on.np.sum(x @ w, axis=1)[:1] * (1.0 + index)


@case((P(), P("data")), P())
def extremes(on: Library, w: Any, x: Any) -> Any:
    top = on.lax.pmax(on.api.lax.stop_gradient(on.np.max(x @ w)), "data")
    return on.lax.psum(on.np.sum(on.np.exp(x @ w - top)), "data")


@case((P(), P("data")), P("data"), both=False)
def custom_rule(on: Library, w: Any, x: Any) -> Any:
    @on.api.custom_vjp
    def f(w: Any, x: Any) -> Any:
        return on.np.sin(x @ w)

    f.defvjp(lambda w, x: (f(w, x), (w, x)),
             lambda kept, ct: (on.lax.psum(kept[1].T @ (ct * on.np.cos(kept[1] @ kept[0])), "data") * 2.0,
                               (ct * on.np.cos(kept[1] @ kept[0])) @ kept[0].T))
    return f(w, x)


@case((P(), P("data")), P("data"))
def jitted(on: Library, w: Any, x: Any) -> Any:
    return on.api.jit(lambda w, x: on.np.tanh(x @ w) * on.lax.axis_size("data"))(w, x)


@case((P(), P()), P())
def nothing_varies(on: Library, w: Any, x: Any) -> Any:
    return on.np.sum(on.np.tanh(x @ w))


REVERSE = ("value", "grad", "reverse over reverse", "vmap of grad", "grad of checkpoint", "grad in scan")
"""Those that jax has of functions with a rule for reverse mode."""


def results(name: str, on: Library, check_vma: bool, kinds: Any) -> list[Any]:
    body, in_specs, out_specs, _ = CASES[name]
    f = on.api.shard_map(lambda w, x: body(on, w, x), mesh=MESH, in_specs=in_specs, out_specs=out_specs,
                         check_vma=check_vma)
    return [TRANSFORMS[kind](f, on) for kind in kinds]


def compare(name: str, check_vma: bool, kinds: Any) -> None:
    with jax.enable_x64(True):
        oracles = jax.jit(lambda w, x: [f(w, x) for f in results(name, JAX, check_vma, kinds)])(
            jnp.asarray(W), jnp.asarray(X))
    ours = results(name, OURS, check_vma, kinds)
    on_devices = fxgrad.jit(lambda w, x: [f(w, x) for f in ours])(W, X)
    for kind, f, oracle, there in zip(kinds, ours, oracles, on_devices, strict=True):
        here = f(W, X)
        for one, other, wanted in zip(*map(jax.tree_util.tree_leaves, (here, there, oracle)), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-10, atol=1e-10, err_msg=f"{kind} with NumPy")
            np.testing.assert_allclose(other, wanted, rtol=5e-11, atol=5e-11, err_msg=f"{kind} on devices")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_as_jax(name: str) -> None:
    compare(name, True, REVERSE if name == "custom_rule" else TRANSFORMS)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, each in CASES.items() if each.both])
def test_as_jax_without_checks(name: str) -> None:
    compare(name, False, TRANSFORMS)


@pytest.mark.slow
def test_gradients_of_a_position_that_values_along_different_axes_depend_on() -> None:
    """The backward pass computes it again, as its type does not say that it differs."""
    def mapped(w: Any, x: Any) -> Any:
        def body(piece: Any) -> Any:
            start = fxgrad.lax.pcast(fxgrad.lax.axis_index("data"), ("data", "model"), to="varying")
            loop = fxgrad.lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 1.2), (
                start, fxgrad.lax.pcast(w, ("data", "model"), to="varying")))[1]
            total = np.sum(np.sin(piece * fxgrad.lax.axis_index("data"))) + np.sum(loop)
            return fxgrad.lax.psum(total, "data").reshape(1)
        return fxgrad.shard_map(body, mesh=MESH, in_specs=P("data"), out_specs=P("model"))(x)

    def one_device(w: Any, x: Any) -> Any:
        total = np.sum(np.sin(x * np.arange(4.0))) + np.sum(w) * np.sum(1.2 ** np.arange(5.0, 1.0, -1.0))
        return total * np.ones(2)

    def slopes(f: Any) -> Any:
        return fxgrad.grad(lambda w, x: np.sum(np.sin(f(w, x))), (0, 1))

    w, x = W[0], X[:4, 0]
    for one, other in zip(slopes(mapped)(w, x), slopes(one_device)(w, x), strict=True):
        np.testing.assert_allclose(one, other, 1e-12)


def multiples_of(a: Any) -> Any:
    return np.stack([a, a + a, a + a + a, a + a + a + a])


MOVES: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "psum_scatter": (lambda a: fxgrad.lax.psum_scatter(multiples_of(a), "data"), [4, 8, 12, 16]),
    "all_to_all": (lambda a: fxgrad.lax.all_to_all(multiples_of(a), "data", 0, 0)[1], [1, 2, 3, 4]),
    "ppermute": (lambda a: fxgrad.lax.ppermute(a, "data", [(0, 1), (1, 3)]), [0, 1, 0, 1]),
    "groups": (lambda a: fxgrad.lax.psum(a, "data", axis_index_groups=[[0], [1, 2, 3]]), [1, 3, 3, 3]),
}
"""Functions of a value that all devices along "data" share, and the multiple of it that each device gets.

They are without numbers, which vary in such a function, and make varying what they meet.
"""


def slopes_of(f: Any) -> Any:
    return fxgrad.grad(lambda w, x: np.sum(np.sin(f(w, x))), (0, 1))


@pytest.mark.parametrize(("name", "run"), [
    pytest.param(name, run, marks=[pytest.mark.slow] * (run is fxgrad.jit))
    for name in MOVES for run in (fxgrad.jit, lambda f: f)])
def test_derivatives_inside_of_what_collectives_make_of_shared_values(name: str, run: Any) -> None:
    """Without checks functions inside take varying values; their programs run on those that all devices share."""
    move, multiples = MOVES[name]

    def mapped(w: Any, x: Any) -> Any:
        def body(piece: Any) -> Any:
            u = np.tanh(w)
            value, moved = fxgrad.jvp(lambda a: np.sin(move(a)), (u,), (u * u,))
            return fxgrad.lax.psum(np.sum(np.sin(piece * moved)) + np.sum(value), ("data", "model")).reshape(1)
        return fxgrad.shard_map(body, mesh=MESH, in_specs=P("data", "model"), out_specs=P(), check_vma=False)(x)

    def one_device(w: Any, x: Any) -> Any:
        u, k = np.tanh(w), np.array(multiples)[:, None]
        return np.sum(np.sin(x * np.cos(k * u) * k * u * u)) + 2 * np.sum(np.sin(k * u)) + np.zeros(1)

    w, x = W[0, 0], X[:4, :2]
    for one, other in zip(run(slopes_of(mapped))(w, x), slopes_of(one_device)(w, x), strict=True):
        np.testing.assert_allclose(one, other, 1e-11, 1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("check_vma", [True, False])
def test_gradients_of_values_that_depend_on_permuted_numbers(check_vma: bool) -> None:
    """Numbers have no axes, and what a collective makes of them differs nevertheless."""
    def mapped(w: Any, x: Any) -> Any:
        def body(piece: Any) -> Any:
            one = fxgrad.lax.ppermute(1, "data", [(0, 1), (2, 3)])
            start, slope = (fxgrad.lax.pcast(each, ("data", "model"), to="varying") for each in (one * 5 - 2, w))
            loop = fxgrad.lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 1.2), (start, slope))[1]
            return fxgrad.lax.psum(np.sum(np.sin(piece)) + np.sum(loop), "data").reshape(1)
        return fxgrad.shard_map(body, mesh=MESH, in_specs=P("data"), out_specs=P("model"), check_vma=check_vma)(x)

    def one_device(w: Any, x: Any) -> Any:
        return (np.sum(np.sin(x)) + 2 * np.sum(w) * (1.2 ** 7 + 1.2 ** 2)) * np.ones(2)

    w, x = W[0], X[:4, 0]
    program, wanted = fxgrad.make_program(mapped)(w, x), slopes_of(one_device)(w, x)
    for slopes in slopes_of(program)(w, x), fxgrad.jit(slopes_of(program))(w, x):
        for one, other in zip(slopes, wanted, strict=True):
            np.testing.assert_allclose(one, other, 1e-12)
