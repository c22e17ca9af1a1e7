"""Arrays on jax's default mesh, of which the axes are Explicit: what runs on them, and how results lie."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, get_abstract_mesh
from jax.sharding import PartitionSpec as P

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, lax

RANDOM = np.random.default_rng(0)
A, B = RANDOM.normal(size=(2, 8, 8)).astype("float32")
V = RANDOM.normal(size=8).astype("float32")


@pytest.fixture(scope="module")
def mesh() -> Any:
    made = jax.make_mesh((4, 2), ("x", "y"))
    assert made.axis_types == (AxisType.Explicit,) * 2
    return made


def on(mesh: Any, value: Any, *spec: Any) -> Any:
    return jax.device_put(value, NamedSharding(mesh, P(*spec)))


def lies_on(mesh: Any, value: Any) -> bool:
    return isinstance(value.sharding, NamedSharding) and value.sharding.mesh == mesh


def everything(x: Any, y: Any) -> Any:
    """What jax refuses on Explicit axes, without being told how each result lies."""
    product = x @ y  # the contracted axis is cut
    ordered = np.sort(np.cumsum(product, 0), 0)
    joined = np.concatenate([ordered[1:3], y, B])[np.array([0, 3, 17])]  # axes that do not divide, and NumPy's array
    last, _ = lax.scan(lambda c, row: (np.tanh(c @ y + row), c), fnp.zeros(8), x)
    batch = fxgrad.vmap(lambda row: np.outer(row, row).sum())(x)
    return np.sum(joined) + np.sum(last * batch) + lax.cond(last[0] > 2, lambda p: p[0, 0], np.sum, product)


@pytest.mark.parametrize("how", [pytest.param("un-jitted", marks=pytest.mark.slow), "jitted"])
def test_a_gradient_of_what_jax_refuses(mesh: Any, how: str) -> None:
    x, y = on(mesh, A, "x", "y"), on(mesh, B, "y", None)
    function = fxgrad.value_and_grad(everything, argnums=(0, 1))
    value, gradients = (fxgrad.jit(function) if how == "jitted" else function)(x, y)
    expected, expected_gradients = function(A, B)
    np.testing.assert_allclose(value, expected, rtol=5e-5)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-3, atol=1e-4)
        assert lies_on(mesh, gradient)
    assert lies_on(mesh, value)
    assert not (x + gradients[0]).is_fully_replicated  # jax's own operators take both


def test_a_function_of_arrays_on_all_kinds_of_meshes(mesh: Any) -> None:
    """One executable for each, containers included; results lie on the mesh that the arguments lie on."""
    automatic = mesh.update(axis_types=(AxisType.Auto,) * 2)
    fast = fxgrad.jit(lambda t: {"out": t["a"] @ t["b"]})
    for _ in range(2):
        for where in (automatic, mesh, None):
            given = {"a": A, "b": B} if where is None else {"a": on(where, A, "x", "y"), "b": on(where, B, "y")}
            out = fast(given)["out"]
            np.testing.assert_allclose(out, A @ B, rtol=1e-4, atol=1e-5)
            if where is not None:
                assert lies_on(where, out), where
    flat = fxgrad.jit(lambda a, b: a @ b)
    for where in (mesh, automatic, mesh):
        assert lies_on(where, flat(on(where, A, "x", "y"), on(where, B, "y"))), where


def test_shared_executables_stages_donation_and_keywords(mesh: Any) -> None:
    x, y = on(mesh, A, "x", "y"), on(mesh, B, "y")

    def scaled(k: float) -> Any:
        return fxgrad.jit(lambda a, b: (a @ b) * k)

    for k in (2.0, 3.0, 4.0):
        function = scaled(k)
        for _ in range(2):
            out = function(x, b=y)
            np.testing.assert_allclose(out, (A @ B) * k, rtol=1e-4, atol=1e-5)
            assert lies_on(mesh, out)
    compiled = scaled(5.0).lower(x, y).compile()
    np.testing.assert_allclose(compiled(x, y), (A @ B) * 5, rtol=1e-4, atol=1e-5)
    updated = fxgrad.jit(lambda a, b: a + a @ b, donate_argnums=0)
    given = on(mesh, A, "x", "y")
    assert lies_on(mesh, updated(given, y))
    assert given.is_deleted()


def test_float64_and_arrays_that_are_closed_over(mesh: Any) -> None:
    wide = fxgrad.device_put(A.astype("float64"), NamedSharding(mesh, P("x", "y")))
    out = fxgrad.jit(fxgrad.grad(lambda x: np.sum((x @ wide) ** 2)))(wide)
    assert out.dtype == "float64"
    assert lies_on(mesh, out)
    expected = fxgrad.grad(lambda x: np.sum((x @ A.astype("float64")) ** 2))(A.astype("float64"))
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)


def test_what_comes_out_as_it_went_in_is_nobodys_loss(mesh: Any) -> None:
    """Results are donated on their way back; arguments, and what is closed over, are not."""
    automatic = mesh.update(axis_types=(AxisType.Auto,) * 2)
    x, y, w = on(mesh, A, "x"), on(automatic, A, "x"), on(automatic, B, "y")
    fast = fxgrad.jit(lambda x, y: (x, x, y, w, x @ y))
    for function in (fast, lambda x, y: fxgrad.vjp(lambda x: (x, x, y, w, x @ y), x)[0]):
        for _ in range(3):
            for out, expected in zip(function(x, y), (A, A, A, B, A @ A), strict=True):
                np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)
    for given, expected in ((x, A), (y, A), (w, B)):
        assert not given.is_deleted()
        np.testing.assert_array_equal(given, expected)


def test_operations_one_by_one(mesh: Any) -> None:
    x, y = on(mesh, A, "x", "y"), on(mesh, B, "y")
    for out, expected in ((fnp.matmul(x, y), A @ B), (fnp.sort(x, 0), np.sort(A, 0)), (fnp.sin(x), np.sin(A)),
                          (lax.scan(lambda c, r: (c + r, c), V, x)[0], V + A.sum(0))):
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)
        assert lies_on(mesh, out)


@pytest.mark.slow
def test_under_a_mesh_that_is_set(mesh: Any) -> None:
    """Arguments may come from NumPy then, and arrays made on the way are Explicit in jax's eyes too."""
    with jax.set_mesh(mesh):
        for x, y in ((A, B), (on(mesh, A, "x", "y"), on(mesh, B, "y"))):
            gradient = fxgrad.jit(fxgrad.grad(everything))(x, y)
            np.testing.assert_allclose(gradient, fxgrad.grad(everything)(A, B), rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(fxgrad.grad(everything)(x, y), gradient, rtol=1e-3, atol=1e-4)
        assert get_abstract_mesh().axis_types == (AxisType.Explicit,) * 2


def test_in_a_trace_of_jaxs_types_say_how_arrays_lie(mesh: Any) -> None:
    """What jax knows of an operation holds there, and where it asks, `jax.sharding.auto_axes` is its answer."""
    x, y = on(mesh, A, "x", "y"), on(mesh, B, "x")
    inner = fxgrad.jit(lambda a: np.sin(a) * 2.0)
    assert lies_on(mesh, inner(x))
    assert jax.jit(lambda a: inner(a) + a)(x).sharding.spec == P("x", "y")
    assert jax.jit(fxgrad.to_jax(fnp.sin))(x).sharding.spec == P("x", "y")
    held = fxgrad.to_jax(lambda a: lax.with_sharding_constraint(a * 2, NamedSharding(mesh, P(None, "y"))))
    out = jax.jit(lambda a: held(a) + jax.sharding.reshard(a, NamedSharding(mesh, P(None, "y"))))(x)
    assert out.sharding == NamedSharding(mesh, P(None, "y"))
    with jax.set_mesh(mesh):
        free = jax.sharding.auto_axes(fxgrad.to_jax(fxgrad.grad(everything)), out_sharding=P("x", "y"))
        out = jax.jit(lambda a, b: free(a, b) + a)(x, y)
    np.testing.assert_allclose(out, fxgrad.grad(everything)(A, B) + A, rtol=1e-3, atol=1e-4)
    assert lies_on(mesh, out)
    product = fxgrad.jit(lambda a, b: a @ b)
    assert lies_on(mesh, product(x, y))
    with pytest.raises(Exception, match=r"[Cc]ontracting dimensions"):
        jax.jit(lambda a, b: product(a, b))(x, y)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_stages_of_maps_under_a_mesh_that_is_set(kind: AxisType) -> None:
    """jax traces them then, and hands out no devices while it does."""
    x = np.arange(4, dtype=np.float32)

    def doubled(a: Any) -> Any:
        return fxgrad.shard_map(lambda a: a * 2, in_specs=P("x"), out_specs=P("x"))(a)

    def slope(a: Any) -> Any:
        return fxgrad.grad(lambda a: np.sum(doubled(a)))(a)

    with jax.set_mesh(jax.make_mesh((2,), ("x",), axis_types=(kind,))):
        for stage in (lambda jitted: jitted.lower(x).compile()(x), lambda jitted: jitted.trace(x).lower().compile()(x),
                      lambda jitted: jitted(x)):
            np.testing.assert_array_equal(stage(fxgrad.jit(doubled)), 2 * x)
        np.testing.assert_array_equal(fxgrad.jit(slope).lower(x).compile()(x), [2, 2, 2, 2])


def test_sums_that_are_not_taken_yet_are_for_arrays_with_values() -> None:
    x, partial = np.arange(4, dtype=np.float32), P(unreduced={"x"})
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        expected = jax.device_put(jnp.asarray(x), partial).sharding
        for to in (partial, NamedSharding(mesh, partial)):
            for value in (x, jnp.asarray(x), fnp.asarray(x)):
                assert fxgrad.device_put(value, to).sharding == expected
        refused: dict[str, Any] = {
            "device_put": fxgrad.jit(lambda x: fxgrad.device_put(x, partial)),
            "with_sharding_constraint": fxgrad.jit(lambda x: lax.with_sharding_constraint(x, partial)),
            "shard_map": fxgrad.shard_map(lambda x: x, in_specs=partial, out_specs=P())}
        for name, function in refused.items():
            with pytest.raises(errors.UnsupportedError) as caught:
                function(x)
            assert str(caught.value).startswith(f"{name}: {partial} says that ")
            assert "is not summed over a mesh axis yet, which programs of fxgrad do not track; " in str(caught.value)
