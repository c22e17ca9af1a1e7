"""Values inside functions by their names: captured, replaced, differentiated and cut, against the code written out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError, ConcretizationError, DTypeError, UnsupportedError
from fxgrad.extend.tracing import trace_for_rewrite

X = np.array([0.1, -0.7, 1.3])
W = np.array([[0.3, -0.2, 0.5], [0.1, 0.9, -0.4], [-0.6, 0.2, 0.7]])


def block(w: Any, x: Any) -> Any:
    h = np.tanh(x @ w)
    y = x + h
    return y


def model(weights: Any, x: Any) -> Any:
    for number, w in enumerate(weights):
        with fxgrad.named_scope(f"block{number}"):
            x = block(w, x)
    loss = np.sum(x ** 2)
    return loss


def step(carry: Any, x: Any) -> Any:
    carry = np.sin(carry) * x
    out = carry * 2.0
    return carry, out


def looped(x: Any, xs: Any) -> Any:
    last, outs = fxgrad.lax.scan(step, x, xs)
    return np.sum(last) + np.sum(outs)


XS = np.array([0.5, 1.5, -0.3, 0.9])


def hidden_of(weights: Any, x: Any) -> list[Any]:
    """What the blocks call h, by hand."""
    found = []
    for w in weights:
        found.append(np.tanh(x @ w))
        x = x + found[-1]
    return found


# --- capture ---------------------------------------------------------------------------------------------------------


def test_values_are_captured_by_scope_function_and_name() -> None:
    weights = [W, W.T]
    first, second = hidden_of(weights, X)
    result, values = fxgrad.capture(model, "block0.h", "block1.block.h", "loss")(weights, X)
    np.testing.assert_array_equal(result, model(weights, X))
    np.testing.assert_array_equal(values["block0.h"], first)
    np.testing.assert_array_equal(values["block1.block.h"], second)
    np.testing.assert_array_equal(values["loss"], result)
    assert [*values] == ["block0.h", "block1.block.h", "loss"]


def test_paths_of_a_caller_hold_for_the_function_itself() -> None:
    outer = lambda weights, x: model(weights, x) * 2.0
    path = next(value.path for value in fxgrad.names(outer)([W], X) if value.path.endswith("loss"))
    assert path == "model.loss"
    np.testing.assert_array_equal(fxgrad.capture(model, path)([W], X)[1][path], model([W], X))


@pytest.mark.parametrize(("path", "keys"), [
    ("block*.h", ["block0.block.h", "block1.block.h"]), ("h#*", ["block0.block.h", "block1.block.h"]),
    ("h#1", ["h#1"]), ("h#-1", ["h#-1"]), ("weights*", ["weights[0]", "weights[1]"]), ("block?.block.y", [
        "block0.block.y", "block1.block.y"]), ("block0/h", ["block0/h"])])
def test_wildcards_and_numbers(path: str, keys: list[str]) -> None:
    values = fxgrad.capture(model, path)([W, W.T], X)[1]
    assert [*values] == keys
    if path.startswith("h#") and path != "h#*":
        np.testing.assert_array_equal(values[path], hidden_of([W, W.T], X)[1])


def test_values_of_a_scan_are_stacked_and_turns_are_chosen() -> None:
    result, values = fxgrad.capture(looped, "scan.out", "scan.step.carry", "step[2].out", "scan[-1].out")(X, XS)
    carries, carry = [], X
    for x in XS:
        carry = np.sin(carry) * x
        carries.append(carry)
    np.testing.assert_array_equal(result, looped(X, XS))
    np.testing.assert_array_equal(values["scan.out"], 2.0 * np.stack(carries))
    np.testing.assert_array_equal(values["scan.step.carry"], np.stack(carries))
    np.testing.assert_array_equal(values["step[2].out"], 2.0 * carries[2])
    np.testing.assert_array_equal(values["scan[-1].out"], 2.0 * carries[3])


def test_nested_scans_stack_twice_and_reversed_ones_by_entry() -> None:
    def inner(total: Any, x: Any) -> Any:
        term = x * total
        return total + term, None

    def outer(total: Any, row: Any) -> Any:
        total, _ = fxgrad.lax.scan(inner, total, row, reverse=True)
        return total, None

    def f(table: Any) -> Any:
        return fxgrad.lax.scan(outer, 1.0, table)[0]

    table = np.array([[0.5, 0.25], [2.0, -1.0], [0.1, 0.3]])
    terms, total = np.zeros((3, 2)), 1.0
    for row in range(3):
        for place in (1, 0):
            terms[row, place] = table[row, place] * total
            total += terms[row, place]
    result, values = fxgrad.capture(f, "term", "outer[1].term", "inner[1].term", "outer[0].inner[1].term")(table)
    np.testing.assert_allclose(result, total, rtol=1e-15)
    np.testing.assert_allclose(values["term"], terms, rtol=1e-15)
    np.testing.assert_allclose(values["outer[1].term"], terms[1], rtol=1e-15)
    np.testing.assert_allclose(values["inner[1].term"], terms[:, 1], rtol=1e-15)
    np.testing.assert_allclose(values["outer[0].inner[1].term"], terms[0, 1], rtol=1e-15)


def test_a_branch_that_is_not_taken_has_no_value() -> None:
    def rise(x: Any) -> Any:
        up = np.exp(x)
        return up * 2.0

    def fall(x: Any) -> Any:
        down = -x
        return down

    def f(x: Any) -> Any:
        return fxgrad.lax.cond(x > 0, rise, fall, x)

    for function in (fxgrad.capture(f, "up", "down"), fxgrad.jit(fxgrad.capture(f, "up", "down"))):
        result, values = function(0.5)
        np.testing.assert_allclose(result, 2.0 * np.exp(0.5), rtol=1e-15)
        np.testing.assert_allclose(values["up"], np.exp(0.5), rtol=1e-15)
        assert np.isnan(values["down"])
        assert np.isnan(function(-0.5)[1]["up"])


@pytest.mark.parametrize("dtype", [float, int])
def test_a_name_in_every_branch_is_that_of_the_branch_taken(dtype: Any) -> None:
    def first(x: Any) -> Any:
        h = x * 2
        return h + 1

    def second(x: Any) -> Any:
        h = x * 3
        return h

    def f(x: Any) -> Any:
        return fxgrad.lax.cond(x > 0, first, second, x)

    for wrap in (lambda f: f, fxgrad.jit):
        assert wrap(fxgrad.capture(f, "h"))(dtype(4))[1]["h"] == 8
        assert wrap(fxgrad.capture(f, "h"))(dtype(-4))[1]["h"] == -12
        assert wrap(fxgrad.replace(f, {"h": lambda h: h * 10}))(dtype(4)) == 81
        assert wrap(fxgrad.replace(f, {"h": lambda h: h * 10}))(dtype(-4)) == -120
    assert fxgrad.capture(f, "first.h", "second.h")(4.0)[1]["first.h"] == 8
    assert fxgrad.grad(f, wrt="h")(4.0) == 1.0

    @fxgrad.python_control_flow
    def converted(x: Any) -> Any:
        if x > 0:
            h = x * 2
        else:
            h = x * 3
        return h + 1

    assert fxgrad.jit(fxgrad.capture(converted, "h"))(dtype(-4))[1]["h"] == -12


@pytest.mark.parametrize("wrap", [
    fxgrad.jit, fxgrad.checkpoint, fxgrad.named_call, fxgrad.nan_safe,
    lambda f: fxgrad.checkpoint(f, policy=fxgrad.checkpoint_policies.everything_saveable)],
    ids=["jit", "checkpoint", "named_call", "nan_safe", "policy"])
def test_calls_are_looked_into(wrap: Callable[[Any], Any]) -> None:
    inner = wrap(block)

    def f(w: Any, x: Any) -> Any:
        return np.sum(inner(w, x) ** 2)

    result, values = fxgrad.capture(f, "h")(W, X)
    np.testing.assert_allclose(result, f(W, X), rtol=1e-15)
    np.testing.assert_allclose(values["h"], np.tanh(X @ W), rtol=1e-15)
    gradient, values = fxgrad.grad(fxgrad.capture(f, "h"), has_aux=True)(W, X)
    np.testing.assert_allclose(gradient, fxgrad.grad(f)(W, X), rtol=1e-14)
    np.testing.assert_allclose(values["h"], np.tanh(X @ W), rtol=1e-15)
    replaced = fxgrad.replace(f, {"h": lambda h: h * 0.5})
    np.testing.assert_allclose(replaced(W, X), np.sum((X + 0.5 * np.tanh(X @ W)) ** 2), rtol=1e-15)


@fxgrad.custom_vjp
def clipped(x: Any) -> Any:
    inside = x * 3.0
    return np.sin(inside)


clipped.defvjp(lambda x: (clipped(x), None), lambda _, cotangent: (cotangent * 7.0,))


@fxgrad.custom_jvp
def bent(x: Any) -> Any:
    inside = x * 3.0
    return np.sin(inside)


bent.defjvp(lambda primals, tangents: (bent(*primals), tangents[0] * 7.0))


@pytest.mark.parametrize("function", [clipped, bent], ids=["custom_vjp", "custom_jvp"])
def test_functions_with_rules_of_their_own_keep_them(function: Any) -> None:
    def f(x: Any) -> Any:
        return function(x) * 2.0

    (result, values), slope = fxgrad.value_and_grad(fxgrad.capture(f, "inside"), has_aux=True)(0.4)
    np.testing.assert_allclose((result, values["inside"], slope), (2.0 * np.sin(1.2), 1.2, 14.0), rtol=1e-15)
    with pytest.raises(UnsupportedError, match=r"replace: a value is to be replaced inside a function with a derivative"
                                               r" rule of its own, which would stay that of the function as it is\. "
                                               r"Replace its result, or an argument"):
        fxgrad.replace(f, {"inside": 1.0})(0.4)


def test_results_of_scopes_functions_and_calls_have_their_names() -> None:
    def layer(x: Any) -> Any:
        return np.tanh(x * 2.0) + 1.0

    def f(x: Any) -> Any:
        with fxgrad.named_scope("encoder"):
            x = layer(np.exp(x))
        return fxgrad.nn.softmax(x) * 2.0

    values = fxgrad.capture(f, "encoder", "softmax", "layer")(X)[1]
    expected = np.tanh(np.exp(X) * 2.0) + 1.0
    np.testing.assert_array_equal(values["encoder"], expected)
    np.testing.assert_array_equal(values["layer"], expected)
    np.testing.assert_allclose(values["softmax"], np.exp(expected) / np.sum(np.exp(expected)), rtol=1e-15)


def test_entries_of_containers_have_paths() -> None:
    def f(x: Any) -> Any:
        low, high = np.split(np.sort(x), [1])
        pair = fxgrad.lax.cond(x[0] > 0, lambda x: {"a": x, "b": x * 2}, lambda x: {"a": -x, "b": x}, x)
        q, r = np.linalg.qr(np.outer(x, x) + np.eye(3))
        return low.sum() + high.sum() + pair["a"].sum() + pair["b"].sum() + q.sum() + r.sum()

    values = fxgrad.capture(f, "low", "high", "pair.a", "pair.b", "r")(X)[1]
    np.testing.assert_array_equal(values["low"], np.sort(X)[:1])
    np.testing.assert_array_equal(values["high"], np.sort(X)[1:])
    np.testing.assert_array_equal(values["pair.b"], X * 2)
    np.testing.assert_allclose(np.abs(values["r"]), np.abs(np.linalg.qr(np.outer(X, X) + np.eye(3))[1]), rtol=1e-12)


def test_transformed_functions_have_primals_tangents_and_cotangents() -> None:
    def f(x: Any) -> Any:
        h = np.sin(x)
        y = h * h * x
        return np.sum(y)

    gradient, values = fxgrad.capture(fxgrad.grad(f), "h", "d_h")(X)
    np.testing.assert_allclose(gradient, fxgrad.grad(f)(X), rtol=1e-15)
    np.testing.assert_allclose(values["h"], np.sin(X), rtol=1e-15)
    np.testing.assert_allclose(values["d_h"], 2.0 * np.sin(X) * X, rtol=1e-15)
    batch = np.stack([X, 2.0 * X])
    for function in (fxgrad.capture(fxgrad.vmap(f), "h"), fxgrad.vmap(fxgrad.capture(f, "h"))):
        result, values = function(batch)
        np.testing.assert_allclose(result, [f(row) for row in batch], rtol=1e-15)
        np.testing.assert_allclose(values["h"], np.sin(batch), rtol=1e-15)
    second = fxgrad.jit(fxgrad.vmap(fxgrad.hessian(fxgrad.capture(f, "h"), has_aux=True)))(batch)
    np.testing.assert_allclose(second[0], fxgrad.vmap(fxgrad.hessian(f))(batch), rtol=1e-12)
    np.testing.assert_allclose(second[1]["h"], np.sin(batch), rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "complex64", "int32", "bool"])
def test_dtypes_and_kinds_of_arrays_stay(dtype: str) -> None:
    def f(x: Any) -> Any:
        h = np.logical_not(x) if dtype == "bool" else x * x
        return h

    x = fnp.asarray([0, 1, 1]).astype(dtype)
    for given in (np.asarray(x), jnp.asarray(x)):
        result, values = fxgrad.capture(f, "h")(given)
        assert values["h"].dtype == result.dtype == given.dtype
        assert isinstance(values["h"], jax.Array if isinstance(given, jax.Array) else np.ndarray)
        np.testing.assert_array_equal(np.asarray(values["h"]), np.asarray(f(given)))
        empty = fxgrad.replace(f, {"h": lambda h: h})(given[:0])
        assert empty.shape == (0,)
        assert empty.dtype == given.dtype


def test_a_jitted_function_stays_jitted_with_its_static_arguments() -> None:
    calls = []

    @fxgrad.jit(static_argnames=("mode", "count"))
    def f(x: Any, mode: str, count: int = 2) -> Any:
        calls.append(mode)
        for _ in range(count):
            h = np.sin(x)
            x = x + h
        return x

    captured = fxgrad.capture(f, "h#*")
    for _ in range(3):
        result, values = captured(X, mode="plain", count=3)
    assert calls == ["plain"]
    assert [*values] == ["h#0", "h#1", "h#2"]
    np.testing.assert_allclose(values["h#1"], np.sin(X + np.sin(X)), rtol=1e-15)
    np.testing.assert_allclose(result, f(X, mode="plain", count=3), rtol=1e-15)
    assert isinstance(captured(jnp.asarray(X, "float32"), mode="plain")[0], jax.Array)


def test_arguments_that_are_no_arrays_and_pythons_control_flow_on_values() -> None:
    def f(x: Any, mode: str, *, scale: Any = None) -> Any:
        if np.sum(x) > 0:
            h = np.exp(x)
        else:
            h = -x
        return h if mode == "plain" else h * scale

    np.testing.assert_array_equal(fxgrad.capture(f, "h")(X, "plain")[1]["h"], np.exp(X))
    result, values = fxgrad.capture(f, "h")(-X, "scaled", scale=2.0)
    np.testing.assert_array_equal(values["h"], X)
    np.testing.assert_array_equal(result, 2.0 * X)


def test_pythons_control_flow_that_would_go_another_way_is_refused() -> None:
    def f(x: Any) -> Any:
        h = np.sum(x)
        if h > 0:
            return h * 2.0
        return h

    np.testing.assert_array_equal(fxgrad.replace(f, {"h": 3.0})(X), 6.0)
    with pytest.raises(ArgumentError, match=r"replace: with the values put in, Python's control flow in f goes "
                                            r"another way at test_capture\.py:.*Write fxgrad\.lax\.cond there, or "
                                            r"put in a value for which it goes the same way"):
        fxgrad.replace(f, {"h": -3.0})(X)


def test_derivatives_follow_pythons_control_flow() -> None:
    """Where they know the values: un-jitted, of any order, with respect to the value inside and to arguments."""
    def f(x: Any) -> Any:
        h = 2.0 * x
        if np.sum(h) > 0:
            return np.sum(np.sin(h))
        return np.sum(h)

    np.testing.assert_allclose(fxgrad.grad(f, wrt="h")(X), np.cos(2 * X), rtol=1e-14)
    np.testing.assert_allclose(fxgrad.hessian(f, wrt="h")(X), np.diag(-np.sin(2 * X)), rtol=1e-14)
    np.testing.assert_array_equal(fxgrad.grad(f, wrt="h")(-X), np.ones(3))
    head, tail = fxgrad.split(f, at="h")
    for inside in (fxgrad.replace(f, {"h": lambda h: h * 1.0}), lambda x: fxgrad.capture(f, "h")(x)[0],
                   lambda x: tail(head(x), x), lambda x: fxgrad.make_program(f)(x)(x)):
        np.testing.assert_allclose(fxgrad.grad(inside)(X), 2 * np.cos(2 * X), rtol=1e-14)
        np.testing.assert_allclose(fxgrad.hessian(inside)(X), np.diag(-4 * np.sin(2 * X)), rtol=1e-14)
        np.testing.assert_allclose(fxgrad.jvp(inside, (X,), (X,))[1], 2 * np.cos(2 * X) @ X, rtol=1e-14)
        with pytest.raises(ConcretizationError, match=r"bool\(\) needs the value of a traced array \(bool\[\]\) in "):
            fxgrad.jit(inside)(X)
    with pytest.raises(ArgumentError, match="goes another way"):
        fxgrad.grad(fxgrad.replace(f, {"h": lambda h: -h}))(X)


def test_closures_over_outer_tracers() -> None:
    def outer(a: Any) -> Any:
        def f(x: Any) -> Any:
            h = a * np.sin(x)
            return np.sum(h * h)

        result, values = fxgrad.capture(f, "h")(X)
        moved = fxgrad.replace(f, {"h": lambda h: h + a * X})(X)
        return result + np.sum(values["h"]) + moved

    def by_hand(a: Any) -> Any:
        h = a * jnp.sin(X)
        return jnp.sum(h * h) + jnp.sum(h) + jnp.sum((h + a * X) ** 2)

    with jax.enable_x64(True):
        np.testing.assert_allclose(fxgrad.grad(outer)(0.7), jax.grad(by_hand)(0.7), rtol=1e-14)
        np.testing.assert_allclose(fxgrad.jit(fxgrad.grad(fxgrad.grad(outer)))(0.7), jax.grad(jax.grad(by_hand))(0.7),
                                   rtol=1e-14)


def test_devices_of_a_mesh_come_first() -> None:
    mesh = AbstractMesh((2,), ("i",))

    def f(w: Any, x: Any) -> Any:
        h = w * x
        total = fxgrad.lax.psum(np.sum(h), "i")
        return total

    sharded = fxgrad.shard_map(f, mesh=mesh, in_specs=(P(), P("i")), out_specs=P())
    x = np.arange(4.0)
    result, values = fxgrad.capture(lambda w, x: sharded(w, x) * 2.0, "h", "total")(3.0, x)
    assert float(result) == 36.0
    np.testing.assert_array_equal(values["h"], 3.0 * x.reshape(2, 2))
    assert float(values["total"]) == 18.0
    whole = lambda w, x: sharded(w, x) * 2.0
    np.testing.assert_array_equal(fxgrad.grad(whole, wrt="h")(3.0, x), np.full((2, 2), 2.0))
    np.testing.assert_array_equal(fxgrad.grad(whole, wrt="shard_map[1].h")(3.0, x), [2.0, 2.0])
    assert float(fxgrad.replace(whole, {"h": lambda h: h * 0.5})(3.0, x)) == 18.0
    assert float(fxgrad.replace(whole, {"shard_map[1].h": 0.0})(3.0, x)) == 6.0
    assert float(fxgrad.replace(whole, {"h": x.reshape(2, 2)})(3.0, x)) == 12.0
    assert float(fxgrad.capture(whole, "shard_map[0].h")(3.0, x)[1]["shard_map[0].h"][1]) == 3.0
    inside = fxgrad.shard_map(lambda w, x: fxgrad.capture(f, "h")(w, x)[1]["h"], mesh=mesh, in_specs=(P(), P("i")),
                              out_specs=P("i"))
    np.testing.assert_array_equal(inside(3.0, x), 3.0 * x)


def test_sharded_runs_on_devices_keep_their_placement() -> None:
    if len(jax.devices()) < 2:
        pytest.skip("one device")
    mesh = jax.make_mesh((2,), ("i",))

    def f(w: Any, x: Any) -> Any:
        h = w * x
        return fxgrad.lax.psum(np.sum(h), "i")

    sharded = fxgrad.shard_map(f, mesh=mesh, in_specs=(P(), P("i")), out_specs=P())
    x = jax.device_put(jnp.arange(4.0), jax.sharding.NamedSharding(mesh, P("i")))
    for function in (sharded, fxgrad.jit(sharded)):
        result, values = fxgrad.capture(function, "h")(3.0, x)
        assert float(result) == 18.0
        assert len(values["h"].sharding.device_set) == 2
        np.testing.assert_array_equal(values["h"], 3.0 * np.arange(4.0).reshape(2, 2))
        np.testing.assert_array_equal(fxgrad.grad(function, wrt="h")(3.0, x), np.ones((2, 2)))
        seen: list[Any] = []
        watched = fxgrad.watch(function, "h.norm", to=lambda step, values, seen=seen: seen.append(values["h.norm"]))
        assert float(watched(3.0, x)) == 18.0
        np.testing.assert_allclose(seen, 3.0 * np.sqrt(14.0), rtol=1e-6)


def test_a_function_without_capture_has_the_same_program() -> None:
    tags: list[Any] = [lambda x, name: x, fxgrad.tag]

    def f(x: Any) -> Any:
        return tags[0](np.sin(x), "wave") * 2.0

    one, _ = trace_for_rewrite("a test", f, (X,), {})
    tags.reverse()
    fxgrad.capture(f, "wave")(X)
    other, _ = trace_for_rewrite("a test", f, (X,), {})
    assert other.program is one.program


# --- tag -------------------------------------------------------------------------------------------------------------


def test_tags_are_names() -> None:
    def f(x: Any) -> Any:
        parts = fxgrad.tag({"low": np.sin(x), "high": [np.cos(x)]}, "waves")
        return np.sum(parts["low"] * fxgrad.tag(parts["high"][0] * 2.0, "double") ** 2)

    values = fxgrad.capture(f, "waves.low", "waves.high[0]", "double")(X)[1]
    np.testing.assert_array_equal(values["waves.low"], np.sin(X))
    np.testing.assert_array_equal(values["double"], 2.0 * np.cos(X))
    assert "waves.low" in str(fxgrad.make_program(f)(X))
    np.testing.assert_allclose(fxgrad.capture(fxgrad.grad(f), "d_double")(X)[1]["d_double"],
                               4.0 * np.sin(X) * np.cos(X), rtol=1e-15)
    looped = lambda x: fxgrad.lax.fori_loop(0, 3, lambda i, y: fxgrad.tag(y * 0.5, "half"), x)
    np.testing.assert_array_equal(fxgrad.capture(looped, "half")(8.0)[1]["half"], [4.0, 2.0, 1.0])
    assert fxgrad.tag(X, "x") is X
    both = fxgrad.jit(lambda x: {"sine": np.sin(x), "double": x * 2.0})
    one = lambda x: fxgrad.tag(both(x)["double"], "one") + 1.0
    np.testing.assert_array_equal(fxgrad.capture(one, "one")(X)[1]["one"], X * 2.0)
    np.testing.assert_array_equal(fxgrad.capture(lambda x: fxgrad.tag(x, "given") + 1.0, "given")(X)[1]["given"], X)
    with pytest.raises(ArgumentError, match="tag: the name is 3, where a str is needed, such as \"features\""):
        fxgrad.tag(X, 3)  # type: ignore[arg-type]


# --- replace ---------------------------------------------------------------------------------------------------------


def test_values_are_replaced_by_functions_arrays_and_numbers() -> None:
    weights = [W, W.T]
    first, second = hidden_of(weights, X)
    np.testing.assert_array_equal(fxgrad.replace(model, {"block1.h": 0.0})(weights, X), np.sum((X + first) ** 2))
    np.testing.assert_array_equal(fxgrad.replace(model, {"block1.h": first})(weights, X),
                                  np.sum((X + first + first) ** 2))
    for zero in (np.zeros_like, lambda h: 0.0):
        np.testing.assert_array_equal(fxgrad.replace(model, {"block*.h": zero})(weights, X), np.sum(X ** 2))
    np.testing.assert_array_equal(fxgrad.replace(model, {"block0.h": lambda h: h})(weights, X), model(weights, X))
    np.testing.assert_array_equal(fxgrad.replace(model, {"x": 2.0 * X})(weights, X), model(weights, 2.0 * X))
    compiled = fxgrad.jit(fxgrad.replace(model, {"block1.h": lambda h: h * 0.5}))(weights, X)
    np.testing.assert_allclose(compiled, np.sum((X + first + 0.5 * second) ** 2), rtol=1e-15)


@pytest.mark.parametrize("jitted", [False, True])
def test_turns_of_loops_are_replaced_all_or_one(jitted: bool) -> None:
    def by_hand(change: Callable[[int, Any], Any]) -> Any:
        carry, total = X, 0.0
        for turn, x in enumerate(XS):
            carry = change(turn, np.sin(carry) * x)
            total = total + np.sum(carry * 2.0)
        return total + np.sum(carry)

    table = np.arange(12.0).reshape(4, 3)
    for replacement, change in [
            ({"step.carry": lambda carry: carry + 1.0}, lambda turn, carry: carry + 1.0),
            ({"step[2].carry": lambda carry: carry * 0.0}, lambda turn, carry: carry * (turn != 2)),
            ({"step[-4].carry": 5.0}, lambda turn, carry: np.full(3, 5.0) if turn == 0 else carry),
            ({"step.carry": table}, lambda turn, carry: table[turn]),
            ({"step.carry": table[0]}, lambda turn, carry: table[0])]:
        function = fxgrad.replace(looped, replacement)
        result = (fxgrad.jit(function) if jitted else function)(X, XS)
        np.testing.assert_allclose(result, by_hand(change), rtol=1e-14)


def test_values_in_loops_of_unknown_length_are_replaced() -> None:
    def halves(x: Any) -> Any:
        def half(x: Any) -> Any:
            smaller = x * 0.5
            return smaller
        return fxgrad.lax.while_loop(lambda x: x > 1.0, half, x)

    assert float(fxgrad.replace(halves, {"smaller": lambda y: y * 0.5})(10.0)) == 0.625
    assert float(fxgrad.jit(fxgrad.replace(halves, {"half[1].smaller": 0.25}))(10.0)) == 0.25
    counted = lambda n, x: fxgrad.lax.fori_loop(0, n, lambda i, x: fxgrad.tag(x + 1.0, "next"), x)
    assert float(fxgrad.jit(fxgrad.replace(counted, {"next": lambda y: y * 2.0}))(3, 1.0)) == 22.0
    with pytest.raises(UnsupportedError, match="capture: 'smaller' is inside a while loop, whose number of turns "
                                               "depends on values, so that they cannot be stacked. Carry it to the end "
                                               r"of the loop, or write fxgrad.lax.scan\(..., until=\)"):
        fxgrad.capture(halves, "smaller")(10.0)


def test_derivatives_flow_into_replacements() -> None:
    def patched(scale: Any) -> Any:
        return fxgrad.replace(looped, {"step[1].carry": lambda carry: carry * scale})(X, XS)

    eps = 1e-6
    np.testing.assert_allclose(fxgrad.grad(patched)(0.7), (patched(0.7 + eps) - patched(0.7 - eps)) / (2 * eps),
                               rtol=1e-8)
    np.testing.assert_allclose(fxgrad.grad(lambda w: fxgrad.replace(model, {"block0.h": lambda h: h})(w, X))([W, W]),
                               fxgrad.grad(model)([W, W], X), rtol=1e-14)


# --- derivatives ----------------------------------------------------------------------------------------------------


def test_gradients_with_respect_to_inner_values() -> None:
    weights = [W, W.T]

    def tail(h0: Any, h1: Any) -> Any:  # in jax, with both as arguments, each shifted
        x = X + h0
        return jnp.sum((x + jnp.tanh(x @ W.T) + h1) ** 2)

    first, second = hidden_of(weights, X)
    with jax.enable_x64(True):
        expected = jax.grad(tail, (0, 1))(first, second - np.tanh((X + first) @ W.T))
        wrt = ("block0.h", "block1.h")
        np.testing.assert_allclose(fxgrad.grad(model, wrt=wrt)(weights, X), expected, rtol=1e-13)
        value, gradient = fxgrad.value_and_grad(model, wrt={"first": wrt[0]})(weights, X)
        np.testing.assert_array_equal(value, model(weights, X))
        np.testing.assert_allclose(gradient["first"], expected[0], rtol=1e-13)
        found = fxgrad.grad(model, wrt="block*.h")(weights, X)
        np.testing.assert_allclose(found["block1.block.h"], expected[1], rtol=1e-13)
        np.testing.assert_allclose(fxgrad.jit(fxgrad.grad(model, wrt=wrt[0]))(weights, X), expected[0], rtol=1e-13)
        hessian = fxgrad.hessian(model, wrt=wrt[0])(weights, X)
        shift = second - np.tanh((X + first) @ W.T)
        np.testing.assert_allclose(hessian, jax.hessian(tail)(first, shift), rtol=1e-12, atol=1e-13)
        output, tangent = fxgrad.jvp(model, (weights, X), np.ones(3), wrt=wrt[0])
        np.testing.assert_allclose((output, tangent), (value, np.sum(expected[0])), rtol=1e-13)
        output, pullback = fxgrad.vjp(model, weights, X, wrt=wrt)
        np.testing.assert_allclose(pullback(2.0)[1], 2.0 * expected[1], rtol=1e-13)
        np.testing.assert_allclose(fxgrad.jacobian(block, wrt="h")(W, X), np.eye(3), rtol=1e-15)
        batch = np.stack([X, 2.0 * X])
        rows = fxgrad.vmap(fxgrad.grad(model, wrt=wrt[0]), in_axes=(None, 0))(weights, batch)
        np.testing.assert_allclose(rows[0], expected[0], rtol=1e-13)


def test_gradients_with_respect_to_values_in_loops() -> None:
    def by_hand(shifts: Any) -> Any:
        carry, total = jnp.asarray(X), 0.0
        for turn, x in enumerate(XS):
            carry = jnp.sin(carry) * x + shifts[turn]
            total = total + jnp.sum(carry * 2.0)
        return total + jnp.sum(carry)

    with jax.enable_x64(True):
        expected = np.stack(jax.grad(by_hand)([jnp.zeros(3)] * 4))
    np.testing.assert_allclose(fxgrad.grad(looped, wrt="step.carry")(X, XS), expected, rtol=1e-13)
    np.testing.assert_allclose(fxgrad.grad(looped, wrt="step[1].carry")(X, XS), expected[1], rtol=1e-13)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.grad(looped, wrt="step[-1].carry"))(X, XS), expected[3], rtol=1e-13)


def test_zeros_keep_their_signs_where_derivatives_are_taken() -> None:
    def f(x: Any) -> Any:
        h = x * 1.0
        return 1.0 / h

    with np.errstate(divide="ignore"):
        assert fxgrad.value_and_grad(f, wrt="h")(-0.0)[0] == -np.inf


# --- split -----------------------------------------------------------------------------------------------------------


def test_a_function_is_its_tail_of_its_head() -> None:
    weights = [W, W.T]
    for jit in (lambda f: f, fxgrad.jit):
        head, tail = map(jit, fxgrad.split(model, at="block0.y"))
        value = head(weights, X)
        np.testing.assert_allclose(value, X + np.tanh(X @ W), rtol=1e-15)
        np.testing.assert_allclose(tail(value, weights, X), model(weights, X), rtol=1e-14)
    head, tail = fxgrad.split(model, at=("block0.h", "block1.h"))
    one, other = head(weights, X)
    np.testing.assert_array_equal(tail((one, other), weights, X), model(weights, X))
    np.testing.assert_array_equal(tail((one, 0.0 * other), weights, X), np.sum((X + one) ** 2))


def test_neither_part_computes_what_the_other_needs() -> None:
    def f(x: Any) -> Any:
        h = np.tanh(x)
        y = np.exp(h)
        return y * 2.0

    head, tail = fxgrad.split(f, at="h")
    names = lambda function, *args: [each.primitive.name
                                     for each in fxgrad.make_program(function, as_recorded=True)(*args).equations]
    assert names(head, X) == ["tanh"]
    assert names(tail, X, X) == ["exp", "mul"]
    before, after = fxgrad.split(looped, at="step.out")
    np.testing.assert_array_equal(after(before(X, XS), X, XS), looped(X, XS))


# --- names -----------------------------------------------------------------------------------------------------------


def test_names_print_as_a_table() -> None:
    found = fxgrad.names(looped)(X, XS)
    assert [(value.path, value.shape) for value in found] == [
        ("x", (3,)), ("xs", (4,)), ("scan.step.carry#1", (4, 3)), ("scan.step.x", (4,)), ("scan.step.carry", (4, 3)),
        ("scan.step.out", (4, 3)), ("last", (3,)), ("outs", (4, 3))]
    assert re.search("scan.step.out +│ f64\\[3\\] x 4 +│ test_capture.py:", str(found))
    assert repr(found) == ("<8 values: x, xs, scan.step.carry#1, scan.step.x, scan.step.carry, scan.step.out, ...>")


def test_every_listed_path_captures_its_value() -> None:
    weights = [W, W.T]
    found = fxgrad.names(model)(weights, X)
    values = fxgrad.capture(model, *(value.path for value in found))(weights, X)[1]
    assert [*values] == [value.path for value in found]
    assert [np.shape(each) for each in values.values()] == [value.shape for value in found]


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "message"), [
    (lambda: fxgrad.capture(model, "blok1.h")([W, W], X),
     "capture: model has no value 'blok1.h'. Did you mean 'block1.block.h', 'block0.block.h', 'block1.x'?"),
    (lambda: fxgrad.capture(model, "h")([W, W], X),
     "capture: 'h' stands for 2 values of model: 'block0.block.h', 'block1.block.h'. Say which, or take all: 'h#*'"),
    (lambda: fxgrad.capture(model, "h#5")([W, W], X),
     "capture: 'h#5' is out of range: 'h' stands for 2 values of model"),
    (lambda: fxgrad.capture(looped, "scan[4].out")(X, XS), "capture: 'scan[4].out' names turn 4 of a loop of 4 turns"),
    (lambda: fxgrad.capture(model, "h", X),  # type: ignore[arg-type]
     ('capture: f64[3] is given, where a path is needed, such as "encoder.h". What capture returns takes the '
      'arguments: fxgrad.capture(f, "h")(x)')),
    (lambda: fxgrad.replace(model, {3: 0.0})([W, W], X),  # type: ignore[dict-item]
     'replace: values go by path, such as "encoder.h"; got 3. fxgrad.names(f)(*args) lists them'),
    (lambda: fxgrad.capture(model, "#0")([W, W], X),
     "capture: values go by path, such as \"encoder.h\"; got '#0'. fxgrad.names(f)(*args) lists them"),
    (lambda: fxgrad.capture(model),
     ('capture: no path is given. Write fxgrad.capture(f, "h"); fxgrad.names(f)(*args) lists the values that have '
      "names")),
    (lambda: fxgrad.capture(3, "h"), "capture takes a function, got a int. Write capture(f)(x), not capture(f(x))"),
    (lambda: fxgrad.replace(model, {"block0.h": np.ones(2)})([W, W], X),
     "replace: 'block0.h' is f64[3], and the value put in is f64[2]. Make it of that shape and dtype"),
    (lambda: fxgrad.replace(looped, {"scan.out": np.ones(2)})(X, XS),
     ("replace: 'scan.out' is f64[3], or (4, 3) for all turns, and the value put in is f64[2]. Make it of that shape "
      "and dtype")),
    (lambda: fxgrad.replace(model, {"block0.h": lambda h: h.astype("float32")})([W, W], X),
     "replace: 'block0.h' is f64[3], and the function returned is f32[3]. Make it of that shape and dtype"),
    (lambda: fxgrad.replace(model, {"block0.h": np.sum})([W, W], X),
     "replace: 'block0.h' is f64[3], and the function returned is f64[]. Make it of that shape and dtype"),
    (lambda: fxgrad.replace(model, {"block0.h": "zero"})([W, W], X),
     "replace: 'block0.h' is f64[3], and the value put in is 'zero'. Make it of that shape and dtype"),
    (lambda: fxgrad.replace(model, {}),
     'replace: a dict of paths and values or functions is needed, such as {"h": 0.0}; got {}'),
    (lambda: fxgrad.replace(model, {"block0.h": 0.0, "h#0": 1.0})([W, W], X),
     "replace: 'block0.h' and 'h#0' are the same value. Leave one out"),
    (lambda: fxgrad.grad(model, 1, wrt="block0.h"),
     "grad takes argnums or wrt, and got argnums=1 and wrt='block0.h'. Leave one out"),
    (lambda: fxgrad.hessian(model, argnames="x", wrt="block0.h"),
     "hessian takes argnames or wrt, and got argnames='x' and wrt='block0.h'. Leave one out"),
    (lambda: fxgrad.grad(model, wrt="block0.z")([W, W], X),
     "grad: model has no value 'block0.z'. Did you mean 'block0.x', 'block1.x', 'block0.block.y'?"),
    (lambda: fxgrad.split(model, "block*.h")[0]([W, W], X),
     "split: 'block*.h' stands for 2 values. Give the path of each: ['block0.block.h', 'block1.block.h']"),
    (lambda: fxgrad.capture(lambda x: np.sin(x) * 2.0, "h")(X),
     "capture: function has no value 'h'. It has x"),
])
def test_what_is_wrong_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        call()
    assert str(raised.value).partition("\n")[0] == message


def test_what_xla_alone_computes_has_no_names() -> None:
    from jax.experimental.custom_partitioning import custom_partitioning

    @custom_partitioning  # type: ignore[untyped-decorator]
    def inner(x: Any) -> Any:
        h = jnp.sin(x)
        return h * 2.0

    inner.def_partition(partition=lambda *_: None, infer_sharding_from_operands=lambda *_: None, sharding_rule="i -> i")
    imported = fxgrad.from_jax(lambda x: inner(x) + 1.0)
    with pytest.raises(ArgumentError, match=r"capture: function has no value 'h'\. It has x\. <custom_partitioning> at "
                                            r"test_capture\.py:.* is computed by XLA alone: return what is inside from "
                                            "there"):
        fxgrad.capture(imported, "h")(X)


def test_integers_have_no_derivatives() -> None:
    with pytest.raises(DTypeError, match=r"grad: 'sign' is i64\[3\], and derivatives are taken with respect to "
                                         "floating-point values"):
        fxgrad.grad(lambda x: np.sum(fxgrad.tag((x > 0).astype(int), "sign") * x), wrt="sign")(X)


def test_integers_in_one_branch_alone_and_solvers_are_refused() -> None:
    def f(x: Any) -> Any:
        return fxgrad.lax.cond(x > 0, lambda x: fxgrad.tag(x * 2, "twice"), lambda x: x, x)

    with pytest.raises(UnsupportedError, match=r"capture: 'twice' \(i64\[\]\) is computed in one branch alone, and "
                                               r"where that is not taken it has no value: only floating-point values "
                                               r"can be NaN then\. Return it from every branch"):
        fxgrad.capture(f, "twice")(3)

    def solved(b: Any) -> Any:
        return fxgrad.lax.custom_linear_solve(lambda x: fxgrad.tag(x * 2.0, "product"), b,
                                              lambda matvec, b: b / 2.0, symmetric=True)

    with pytest.raises(UnsupportedError, match=r"capture: 'product.*' is inside custom_linear_solve at "
                                               r"test_capture\.py:.*, which runs its program in a way of its own\. "
                                               r"Return the value from there"):
        fxgrad.capture(solved, "product#0")(X)
