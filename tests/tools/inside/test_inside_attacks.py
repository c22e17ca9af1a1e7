"""Inner values in code as it is found in the field: names assigned twice, meshes, numbers of another kind."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import fxgrad
from fxgrad.errors import ArgumentError

X = np.array([0.3, -0.7, 1.3])


def smooth(x: Any) -> Any:
    h = np.sin(x)
    y = h * h
    return np.sum(y * h)


# --- replace ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "given", "message"), [
    (np.arange(3), 1.5, "replace: 'h' is i64[3], and the value put in is f64*[]. Make it of that shape and dtype"),
    (np.arange(3), lambda _: 1.5,
     "replace: 'h' is i64[3], and the function returned is f64*[]. Make it of that shape and dtype"),
    (X, 1j, "replace: 'h' is f64[3], and the value put in is c128*[]. Make it of that shape and dtype"),
])
def test_numbers_that_do_not_fit_the_dtype_are_refused(value: Any, given: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        fxgrad.replace(lambda x: fxgrad.tag(x * 2, "h") + 1, {"h": given})(value)
    assert str(raised.value).partition("\n")[0] == message


@pytest.mark.parametrize(("dtype", "given"), [("float32", 3), ("float32", 3.0), ("bfloat16", 0.5), ("complex64", 2),
                                              ("complex64", 2j), ("int32", 3), ("bool", True)])
def test_numbers_take_the_dtype_of_the_value(dtype: str, given: Any) -> None:
    x = jnp.ones(3, dtype)
    result = fxgrad.replace(lambda x: fxgrad.tag(~x if dtype == "bool" else x * 2, "h"), {"h": given})(x)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(result, complex), np.full(3, given, complex))


# --- derivatives -----------------------------------------------------------------------------------------------------


def test_a_path_that_is_asked_for_twice_has_its_gradient_twice() -> None:
    with jax.enable_x64(True):
        expected = jax.grad(lambda shift: (lambda h: jnp.sum(h ** 3))(jnp.sin(X) + shift))(jnp.zeros(3))
        first, second = fxgrad.grad(smooth, wrt=["h", "h"])(X)
        np.testing.assert_allclose(first, expected, rtol=1e-14)
        np.testing.assert_allclose(second, expected, rtol=1e-14)
        second = fxgrad.hessian(smooth, wrt=["h", "h"])(X)
        np.testing.assert_allclose(second[0][1], np.diag(6 * np.sin(X)), rtol=1e-14)


# --- meshes ----------------------------------------------------------------------------------------------------------


def shares(w: Any, x: Any) -> Any:
    h = w * x
    total = fxgrad.lax.psum(np.sum(h), "i")
    return h / total


def squared_shares(mesh: Any) -> Any:
    mapped = fxgrad.shard_map(shares, mesh=mesh, in_specs=(P(), P("i")), out_specs=P("i"))
    return lambda w, x: np.sum(mapped(w, x) ** 2)


def test_gradients_of_values_on_a_mesh_are_summed_over_its_devices() -> None:
    x = np.arange(1.0, 5.0)
    with jax.enable_x64(True):
        full = jax.grad(lambda h: jnp.sum((h / jnp.sum(h)) ** 2))(2.0 * x)
        total = jax.grad(lambda total: jnp.sum((2.0 * x / total) ** 2))(20.0)
    loss = squared_shares(AbstractMesh((2,), ("i",)))
    np.testing.assert_allclose(fxgrad.grad(loss, wrt="h")(2.0, x), np.asarray(full).reshape(2, 2).sum(0), atol=1e-15)
    np.testing.assert_allclose(fxgrad.grad(loss, wrt="total")(2.0, x), total, rtol=1e-14)


def test_a_jitted_function_on_devices_stays_on_them() -> None:
    x = np.arange(1.0, 5.0, dtype="float32")
    loss = squared_shares(fxgrad.make_mesh((1,), ("i",), devices=jax.devices()[:1]))
    result, values = fxgrad.capture(fxgrad.jit(loss), "h")(np.float32(2.0), x)
    np.testing.assert_allclose(result, loss(np.float32(2.0), x), rtol=1e-6)
    np.testing.assert_array_equal(values["h"], [2.0 * x])
    replaced = fxgrad.jit(fxgrad.replace(loss, {"total": 2.0}))(np.float32(2.0), x)
    np.testing.assert_allclose(replaced, np.sum(x ** 2), rtol=1e-6)


def test_a_rule_of_their_own_on_a_mesh_has_the_tangent_of_every_device() -> None:
    @fxgrad.custom_jvp
    def added(x: Any, shift: Any) -> Any:
        return x + shift

    added.defjvp(lambda primals, tangents: (added(*primals), tangents[0] + tangents[1]))

    def loss(function: Any) -> Any:
        def inner(shift: Any, x: Any) -> Any:
            h = function(2.0 * x, shift)
            return h / fxgrad.lax.psum(np.sum(h), "i")
        mapped = fxgrad.shard_map(inner, mesh=AbstractMesh((2,), ("i",)), in_specs=(P(), P("i")), out_specs=P("i"))
        return lambda shift: np.sum(mapped(shift, np.arange(1.0, 5.0)) ** 2)

    for derive in (fxgrad.grad, fxgrad.hessian):
        np.testing.assert_allclose(derive(loss(added))(np.zeros(2)), derive(loss(np.add))(np.zeros(2)), atol=1e-15)
