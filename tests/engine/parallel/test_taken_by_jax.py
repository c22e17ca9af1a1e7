"""What jax takes of meshes, specs and constraints, fxgrad takes too, with the same values and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, lax
from tests.support.versions import IS_OLDEST_JAX

A = np.random.default_rng(0).normal(size=(8, 4))
UNEVEN = A[:7, :3]
MESH = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
LINE = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
ROWS = NamedSharding(LINE, P("d"))
OURS, JAXS = (fxgrad, lax, fnp), (jax, jax.lax, jnp)


def loss(library: Any, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def total(x: Any) -> Any:
        value = function(x)
        return (library.sin(value) * library.arange(1.0, 1 + value.size, dtype=value.dtype).reshape(value.shape)).sum()
    return total


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-13)


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    """jax's own functions keep 64 bits."""
    with jax.enable_x64(True):
        yield


# --- linear functions of arrays that lie nowhere, differentiated by jax -----------------------------------------------

LINEAR: dict[str, Callable[[Any], Any]] = {
    "shard_map": fxgrad.shard_map(lambda a: 2 * a, mesh=LINE, in_specs=P("d"), out_specs=P("d")),
    "shard_map with a sum": fxgrad.shard_map(lambda a: lax.psum(a.sum(0), "d"), mesh=LINE, in_specs=P("d"),
                                             out_specs=P()),
    "in a loop": lambda a: lax.scan(lambda c, _: (LINEAR["shard_map"](c), None), a, None, length=2)[0],
    "jitted": fxgrad.jit(fxgrad.shard_map(lambda a: 2 * a, mesh=LINE, in_specs=P("d"), out_specs=P("d"))),
    "constraint": lambda a: lax.with_sharding_constraint(a * 2, ROWS),
    "device_put": lambda a: fxgrad.device_put(a * 2, ROWS, src=NamedSharding(LINE, P(None))),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == "shard_map" else [pytest.mark.slow])
                                  for name in LINEAR])
def test_gradients_of_linear_functions_run_on_their_mesh(name: str) -> None:
    """Such a gradient needs no argument, so that jax knows the devices from the operations alone."""
    function = fxgrad.to_jax(LINEAR[name])
    found = jax.jit(jax.grad(lambda a: function(a).sum()))(A)
    close(found, fxgrad.grad(lambda a: LINEAR[name](a).sum())(A))
    mapped = jax.jit(jax.vmap(jax.grad(lambda a: function(a).sum())))(np.stack([A, A]))
    close(mapped, [found, found])


# --- meshes without devices -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_mesh_without_devices_has_those_of_the_arguments(kind: Any) -> None:
    """A message of jax's own would name a call within XLA where no argument lies on any."""
    def mapped(library: Any, names: Any) -> Any:
        return library.shard_map(lambda a: names.psum(a * a, "d"), mesh=AbstractMesh((8,), ("d",)), in_specs=P("d"),
                                 out_specs=P())
    ours, placed = mapped(fxgrad, lax), jax.device_put(A, ROWS)
    wanted = np.sum(A * A, axis=0, keepdims=True)
    if IS_OLDEST_JAX:  # newer versions refuse arrays of other meshes
        close(mapped(jax, jax.lax)(placed), wanted)
    given = fxgrad.device_put(A, NamedSharding(jax.make_mesh((8,), ("d",), axis_types=(kind,)), P("d")))
    for found in (ours(given), fxgrad.jit(ours)(given), ours(A)):
        close(found, wanted)
    assert fxgrad.jit(ours)(given).sharding.device_set == placed.sharding.device_set
    slopes = fxgrad.grad(lambda a: ours(a).sum())
    for found in (slopes(given), fxgrad.jit(slopes)(given)):
        close(found, 2 * A)
    message = ("shard_map: its mesh has no devices (jax.sharding.AbstractMesh), and none of its arrays is on a "
               "device. Make the mesh with fxgrad.make_mesh, call within jax.set_mesh(mesh), or pass arrays of "
               "NumPy and leave out jit, which needs none\n  at test_taken_by_jax.py:")
    for call in (lambda: fxgrad.jit(ours)(A), lambda: ours(jnp.asarray(A)), lambda: fxgrad.jit(ours)(jnp.asarray(A))):
        with pytest.raises(errors.UnsupportedError) as caught:
            call()
        assert str(caught.value).startswith(message)


# --- specs and constraints --------------------------------------------------------------------------------------------

# Functions of x[8, 4], of (the library, its lax, its numpy).
TAKEN: dict[str, Callable[[Any, Any, Any], Callable[[Any], Any]]] = {
    "a constraint along an axis that the map leaves": lambda library, lax, numpy: library.shard_map(
        lambda x: lax.with_sharding_constraint(numpy.sin(x), P(None, "b")) * 2, mesh=MESH, in_specs=P("a"),
        out_specs=P("a"), axis_names={"a"}),
    "one in a loop": lambda library, lax, numpy: library.shard_map(
        lambda x: lax.scan(lambda c, _: (lax.with_sharding_constraint(numpy.sin(c), P("b")), None), x, None, length=2)[
            0], mesh=MESH, in_specs=P("a"), out_specs=P("a"), axis_names={"a"}),
    "an open one": lambda library, lax, numpy: library.shard_map(
        lambda x: lax.with_sharding_constraint(numpy.sin(x), P(P.UNCONSTRAINED, "b")) * 2, mesh=MESH,
        in_specs=P("a"), out_specs=P("a"), axis_names={"a"}),
    "None for an array": lambda library, lax, numpy: lambda x: library.shard_map(
        lambda x, y: x * y, mesh=MESH, in_specs=(P("a"), None), out_specs=P("a"))(x, x[0]),
    "None for a container": lambda library, lax, numpy: lambda x: library.shard_map(
        lambda x, y: x * y["u"] + y["v"][0], mesh=MESH, in_specs=(P("a", "b"), None), out_specs=P("a", "b"))(
            x, {"u": x[0, 0], "v": (x[1, 1], None)}),
    "None within a container": lambda library, lax, numpy: lambda x: library.shard_map(
        lambda p: p["u"] * p["v"].sum(), mesh=MESH, in_specs=({"u": P("a"), "v": None},), out_specs=P("a"))(
            {"u": x, "v": x}),
    "None for None": lambda library, lax, numpy: lambda x: library.shard_map(
        lambda x, y: x * x, mesh=MESH, in_specs=(P("a"), None), out_specs=P("a"))(x, None),
    "a constraint on an uneven size": lambda library, lax, numpy: lambda x: lax.with_sharding_constraint(
        numpy.sin(x[:7, :3]), NamedSharding(MESH, P("a", "b"))),
    "on one size over both axes": lambda library, lax, numpy: lambda x: lax.with_sharding_constraint(
        x.ravel()[:13] * 2, NamedSharding(MESH, P(("a", "b")))),
    "on a size of less than the devices": lambda library, lax, numpy: lambda x: lax.with_sharding_constraint(
        numpy.cos(x[:1]), NamedSharding(MESH, P("a"))),
    "on an uneven size within a map": lambda library, lax, numpy: library.shard_map(
        lambda x: numpy.sin(lax.with_sharding_constraint(x[:, :3], P(None, "b"))), mesh=MESH, in_specs=P("a"),
        out_specs=P("a"), axis_names={"a"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TAKEN)
def test_against_jax(name: str) -> None:
    ours, theirs = TAKEN[name](*OURS), TAKEN[name](*JAXS)
    slopes = fxgrad.grad(loss(fnp, ours))
    for given in (A, jax.device_put(A, NamedSharding(MESH, P("a"))), jax.device_put(A, NamedSharding(MESH, P()))):
        value = jax.jit(theirs)(given)
        slope = jax.jit(jax.grad(loss(jnp, theirs)))(given)
        close(fxgrad.jit(ours)(given), value)
        close(slopes(given), slope)
        close(fxgrad.jit(slopes)(given), slope)
        close(jax.jit(jax.grad(loss(jnp, fxgrad.to_jax(ours))))(given), slope)
        close(fxgrad.jit(fxgrad.grad(loss(fnp, fxgrad.from_jax(theirs))))(given), slope)
        close(fxgrad.jit(fxgrad.vmap(slopes))(np.stack([A, A])), [slope, slope])


def test_an_array_cannot_lie_in_uneven_pieces() -> None:
    """Un-jitted, jax refuses what it takes within a program; so it is here, for arguments and results too."""
    where = NamedSharding(MESH, P("a"))
    for array in (UNEVEN, jnp.asarray(UNEVEN)):
        with pytest.raises(errors.ShapeError, match=r"with_sharding_constraint: .* 7 is not divisible by 4"):
            lax.with_sharding_constraint(array, where)
    for call in (lambda: fxgrad.device_put(UNEVEN, where), lambda: fxgrad.jit(fnp.sin, in_shardings=where)(UNEVEN),
                 lambda: fxgrad.jit(fnp.sin, out_shardings=where)(UNEVEN),
                 lambda: fxgrad.jit(lambda x: fxgrad.device_put(fnp.sin(x), where))(UNEVEN),
                 lambda: fxgrad.grad(lambda x: fxgrad.jit(fnp.sin, in_shardings=where)(x).sum())(UNEVEN)):
        with pytest.raises(errors.ShapeError, match="7 is not divisible by 4"):
            call()
