"""Inner values in code as it is found in the field: names assigned twice, meshes, numbers of another kind."""

from __future__ import annotations

import functools
import linecache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError

X = np.array([0.3, -0.7, 1.3])


def smooth(x: Any) -> Any:
    h = np.sin(x)
    y = h * h
    return np.sum(y * h)


# --- replace ---------------------------------------------------------------------------------------------------------


def twice(x: Any) -> Any:
    first = np.tanh(x)
    second = np.tanh(x)
    return first + 2.0 * second


@pytest.mark.parametrize("mapped", [
    fxgrad.vmap(twice), fxgrad.jit(fxgrad.vmap(twice)), lambda x: fxgrad.vmap(fxgrad.vmap(twice))(x[None])[0],
    lambda x: fxgrad.vmap(lambda e: fxgrad.lax.cond(e < 9.0, twice, lambda e: e, e))(x)])
@pytest.mark.parametrize(("path", "line"), [("first", 1), ("second", 2)])
def test_a_value_that_a_batch_computes_as_one_with_an_equal_one_is_not_changed(mapped: Any, path: str, line: int,
                                                                              ) -> None:
    """Whatever replaces one of them would replace both."""
    place = f"test_inside_attacks.py:{twice.__code__.co_firstlineno + line}"
    expected = (f"the value {path!r} of {place} is equal to another one of the function, and its batch or derivative "
                "computes both as one. Change it in the function before that is transformed, such as "
                "fxgrad.vmap(fxgrad.")
    for what, advice, change in (
            ("replace", "replace", lambda: fxgrad.replace(mapped, {path: 0.0})(X)),
            ("replace", "replace", lambda: fxgrad.replace(mapped, {path: np.sin})(X)),
            ("split", "replace", lambda: fxgrad.split(mapped, path)[1](X, X)),
            ("grad", "grad", lambda: fxgrad.grad(lambda x: np.sum(mapped(x)), wrt=path)(X))):
        with pytest.raises(ArgumentError) as raised:
            change()
        assert str(raised.value).split("\n")[0] == f"{what}: {expected}{advice}(f, ...))"
    _, values = fxgrad.capture(mapped, path)(X)
    np.testing.assert_allclose(values[path].ravel(), np.tanh(X), rtol=1e-12)
    rest = np.tanh(X) * {"first": 2.0, "second": 1.0}[path]
    np.testing.assert_allclose(fxgrad.vmap(fxgrad.replace(twice, {path: 0.0}))(X), rest, rtol=1e-12)


def mapped_inside(x: Any) -> Any:
    value = np.tanh(x)
    rows = fxgrad.vmap(lambda a, b: a * b, in_axes=(0, None))(np.eye(3), value)
    return rows.sum(0) + value


@pytest.mark.parametrize("function", [
    mapped_inside, lambda x: fxgrad.lax.scan(lambda c, _: (mapped_inside(c), None), x, length=1)[0],
    lambda x: fxgrad.lax.fori_loop(0, 1, lambda _, c: mapped_inside(c), x), fxgrad.jit(mapped_inside),
    lambda x: fxgrad.lax.cond(x[0] < 9.0, mapped_inside, lambda x: x, x)])
def test_a_value_that_is_handed_to_a_mapped_function_keeps_its_name(function: Any) -> None:
    _, values = fxgrad.capture(function, "value")(X)
    np.testing.assert_allclose(values["value"].reshape(3), np.tanh(X), rtol=1e-12)
    np.testing.assert_allclose(fxgrad.replace(function, {"value": 1.0})(X), np.full(3, 2.0), rtol=1e-12)


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
        expected = jax.grad(lambda h: jnp.sum(h ** 3))(jnp.sin(X))
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


def test_gradients_of_values_on_a_mesh_are_those_of_each_device() -> None:
    x = np.arange(1.0, 5.0)
    with jax.enable_x64(True):
        full = jax.grad(lambda h: jnp.sum((h / jnp.sum(h)) ** 2))(2.0 * x)
        total = jax.grad(lambda total: jnp.sum((2.0 * x / total) ** 2))(20.0)
    loss = squared_shares(AbstractMesh((2,), ("i",)))
    np.testing.assert_allclose(fxgrad.grad(loss, wrt="h")(2.0, x), np.asarray(full).reshape(2, 2), atol=1e-15)
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


# --- names assigned twice --------------------------------------------------------------------------------------------


def error_of(params: Any, x: Any) -> Any:
    h = np.tanh(x @ params["w"])
    return np.mean((h - params["b"]) ** 2)


PARAMS = {"b": X, "w": np.outer(X, X)}
OPTIMIZER = fxgrad.optim.adam(0.1)


def clipped_step(params: Any, state: Any, x: Any) -> Any:
    loss, grads = fxgrad.value_and_grad(error_of)(params, x)
    grads = fxgrad.optim.clip_by_global_norm(grads, 0.01)
    params, state = OPTIMIZER.update(grads, state, params)
    return params, state, loss


def halved_step(params: Any, x: Any) -> Any:
    _, grads = fxgrad.value_and_grad(error_of)(params, x)
    grads = jax.tree.map(lambda g: g * 0.5, grads)
    params = jax.tree.map(lambda p, g: p - g, params, grads)
    return params


def receive(found: dict[str, Any], _: int, values: dict[str, Any]) -> None:
    found.update(values)


def norm(tree: Any) -> Any:
    return np.sqrt(sum(np.sum(leaf ** 2) for leaf in jax.tree.leaves(tree)))


@pytest.mark.parametrize("schedule", [False, True])
def test_a_training_step_is_watched_behind_the_update(schedule: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if schedule:
        monkeypatch.setitem(globals(), "OPTIMIZER", fxgrad.optim.sgd(lambda _: 0.1, 0.9))
    state = OPTIMIZER.init(PARAMS)
    new, new_state, _ = clipped_step(PARAMS, state, X)
    for step in (clipped_step, fxgrad.jit(clipped_step)):
        found: dict[str, Any] = {}
        watched = fxgrad.watch(step, "params.norm", "params#0.norm", "grads#0.norm", "grads#-1.norm", "params.w",
                               to=functools.partial(receive, found))
        watched(PARAMS, state, X)
        np.testing.assert_allclose(found["params.norm"], norm(new), rtol=1e-14)
        np.testing.assert_allclose(found["params#0.norm"], norm(new), rtol=1e-14)
        np.testing.assert_allclose(found["params.w"], new["w"], rtol=1e-14)
        np.testing.assert_allclose(found["grads#0.norm"], norm(fxgrad.grad(error_of)(PARAMS, X)), rtol=1e-14)
        np.testing.assert_allclose(found["grads#-1.norm"], 0.01, rtol=1e-14)
    paths = [value.path for value in fxgrad.names(clipped_step)(PARAMS, state, X) if not value.is_argument]
    assert "grads" not in paths
    path = "state[1].w" if schedule else "state.first.w"
    expected = new_state[1] if schedule else new_state.first
    np.testing.assert_allclose(fxgrad.capture(clipped_step, path)(PARAMS, state, X)[1][path], expected["w"], rtol=1e-14)


def contained(x: Any) -> Any:
    out = np.sin(x)
    out = {"a": out * 2.0, "b": out}
    return out["a"] + out["b"]


def renamed(x: Any) -> Any:
    h = np.sin(x)
    y = np.cos(h)
    h, z = y, h
    return h * z


def residual(x: Any) -> Any:
    inner = np.sin(x)
    x = inner
    return x * 2.0


@pytest.mark.parametrize(("call", "message"), [
    (lambda: fxgrad.capture(contained, "out")(X),
     (r"capture: 'out' is the value of test_inside_attacks\.py:\d+, and test_inside_attacks\.py:\d+ assigns something "
      r"else to out, by no operation that a path leads to\. For the first write 'out#0'; name the second by "
      r'fxgrad\.tag\(\.\.\., "out"\)')),
    (lambda: fxgrad.grad(lambda x: np.sum(renamed(x)), wrt="h")(X), "grad: 'h' is the value of .*'h#0'"),
    (lambda: fxgrad.replace(residual, {"x": 0.0})(X), "replace: 'x' is an argument, and .*'x#0'"),
    (lambda: fxgrad.capture(halved_step, "params.w")(PARAMS, X),
     r"capture: 'params\.w' is an argument, and .* to params, .*'params\.w#0'; .*\"params\"\)"),
    (lambda: fxgrad.watch(halved_step, "params.norm")(PARAMS, X), "watch: 'params' is an argument, and .*'params#0'"),
    (lambda: fxgrad.watch(halved_step, "grads.norm")(PARAMS, X), "watch: 'grads' is the value of .*'grads#0'"),
    (lambda: fxgrad.watch(clipped_step, "grads.norm")(PARAMS, OPTIMIZER.init(PARAMS), X),
     (r"watch: 'grads' stands for 2 containers, those of test_inside_attacks\.py:\d+, test_inside_attacks\.py:\d+\. "
      r"Say which, such as grads#0, or take all: grads#\*")),
])
def test_a_name_that_a_later_line_assigns_otherwise_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()


def test_the_first_of_two_values_has_a_number() -> None:
    np.testing.assert_array_equal(fxgrad.capture(contained, "out#0")(X)[1]["out#0"], np.sin(X))
    np.testing.assert_array_equal(fxgrad.replace(residual, {"x#0": 0.0})(X), np.zeros(3))
    sent: list[dict[str, Any]] = []
    fxgrad.watch(halved_step, "params#0.norm", to=lambda _, values: sent.append(values))(PARAMS, X)
    np.testing.assert_allclose(sent[0]["params#0.norm"], norm(PARAMS), rtol=1e-14)


def test_a_function_that_returns_its_argument_is_no_line_of_the_value() -> None:
    def dropout(x: Any, rate: float = 0.0) -> Any:
        return x * (1.0 - rate) if rate else x

    def f(w: Any, x: Any) -> Any:
        h = np.tanh(x)
        h = dropout(h @ w)
        return np.sum(h)

    with pytest.raises(ArgumentError, match=r"capture: 'h' is the value of test_inside_attacks\.py:\d+, and "
                                            r"test_inside_attacks\.py:\d+ assigns something else to h"):
        fxgrad.capture(f, "h")(np.eye(3), X)
    np.testing.assert_array_equal(fxgrad.capture(f, "h#0")(np.eye(3), X)[1]["h#0"], np.tanh(X))


def test_names_of_branches_and_of_equal_values_stay() -> None:
    def f(x: Any, wide: bool = False) -> Any:
        x = fnp.asarray(x)
        h = np.tanh(x)
        h = np.positive(h) if wide else h
        if wide:
            h = x
        h = h.reshape(3)
        return h * x[0]

    np.testing.assert_array_equal(fxgrad.capture(f, "h", "x")(X)[1]["h"], np.tanh(X))


def test_sums_over_generators_have_one_name() -> None:
    def f(x: Any) -> Any:
        total = sum(np.sin(x) * k for k in range(1, 4))
        for k in range(2):
            part = sum(np.cos(x) * j for j in (k + 1, k + 2))
            total = total + part
        doubled = sum(map(lambda y: y * x, [x, total]))  # noqa: C417  (a function that the builtin calls)
        return np.sum(total * doubled)

    values = fxgrad.capture(f, "total#0", "part#0", "part#1", "total#2", "doubled")(X)[1]
    sine, cosine = np.sin(X), np.cos(X)
    for path, expected in [("total#0", 6 * sine), ("part#0", 3 * cosine), ("part#1", 5 * cosine),
                           ("total#2", 6 * sine + 8 * cosine), ("doubled", X * (X + 6 * sine + 8 * cosine))]:
        np.testing.assert_allclose(values[path], expected, rtol=1e-14)
    paths = [value.path for value in fxgrad.names(f)(X) if not value.is_argument]
    assert paths == ["total#0", "part#0", "total#1", "part#1", "total#2", "doubled"]


class Own:
    @staticmethod
    def transpose(x: Any) -> Any:
        flipped = x[::-1]
        return flipped * 3.0


def normalized(x: Any) -> Any:
    return (x / np.sum(x)).astype("float64")


def test_calls_that_return_their_operand_give_it_the_name() -> None:
    def f(x: Any) -> Any:
        a = np.sin(x).reshape(3)
        a = (a * 2.0).astype("float64").ravel()
        b = +np.cos(a)
        c = np.exp(b).reshape(3, 1)
        d = fnp.asarray(c * 2.0).T.reshape(np.tan(b).shape)
        e = Own.transpose(d * 2.0)
        g = normalized(e)
        for _ in range(2):
            g = (g + 1.0).astype("float64")
        h = normalized(g * 2.0).astype(np.float64)
        k = normalized(h + 1.0).reshape(3, 1)
        return k * 2.0

    values = [np.sin(X), 2.0 * np.sin(X)]
    values += [np.cos(values[-1])]
    values += [np.exp(values[-1])[:, None], 2.0 * np.exp(values[-1])]
    values += [4.0 * values[-1][::-1] * 1.5]
    values += [values[-1] / np.sum(values[-1])]
    values += [values[-1] + 1.0, values[-1] + 2.0]  # the rounds of a loop
    values += [values[-1] / np.sum(values[-1])]
    values += [((values[-1] + 1.0) / np.sum(values[-1] + 1.0))[:, None]]
    paths = ["a#0", "a#1", "b", "c", "d", "e", "g#0", "g#1", "g#2", "h", "k"]
    found = fxgrad.capture(f, *paths)(X)[1]
    for path, expected in zip(paths, values, strict=True):
        np.testing.assert_allclose(found[path], expected, rtol=1e-14)
    listed = [value.path for value in fxgrad.names(f)(X) if not value.is_argument]
    assert listed == [*paths[:5], "Own.transpose.flipped", *paths[5:]]


def test_code_without_a_source_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    other = "def f(x):\n    g = np.cos(x)\n    return g * 3.0\n"  # of `python -c`, in Python 3.13
    monkeypatch.setitem(linecache.cache, "<string>", (len(other), None, other.splitlines(keepends=True), "<string>"))
    space: dict[str, Any] = {"np": np}
    exec("def f(x):\n    h = np.sin(x)\n    return h * 2.0\n", space)
    with pytest.raises(ArgumentError, match=r"capture: f has no value 'h'\. It has x\. The source of <string> cannot "
                                            r"be read, so that its lines give no names: write x = fxgrad\.tag\(x, "):
        fxgrad.capture(space["f"], "h")(X)
    text = str(fxgrad.make_program(space["f"])(X))
    assert "a = sin(x)" in text


# --- watch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_statistics_of_narrow_floats_do_not_overflow(dtype: str) -> None:
    found: dict[str, Any] = {}
    watched = fxgrad.watch(lambda x: fxgrad.tag(x * 2, "h"), "h.norm", "h.rms", "h.mean",
                           to=functools.partial(receive, found))
    watched(fnp.full((1024,), 300, dtype))
    assert {name: float(value) for name, value in found.items()} == {"h.norm": 19200.0, "h.rms": 600.0, "h.mean": 600.0}


# --- results of transformations --------------------------------------------------------------------------------------


def test_results_of_map_and_vjp_have_their_names() -> None:
    def f(x: Any) -> Any:
        doubled = fxgrad.lax.map(lambda y: y * 2.0, x)
        pair = fxgrad.lax.map(lambda y: {"a": y * 3.0, "b": y}, x)
        squares, pullback = fxgrad.vjp(lambda y: y ** 2, doubled)
        slopes, = pullback(pair["a"])
        return squares + slopes

    values = fxgrad.capture(f, "doubled", "pair.a", "squares", "slopes")(X)[1]
    for path, expected in {"doubled": 2 * X, "pair.a": 3 * X, "squares": 4 * X ** 2, "slopes": 12 * X ** 2}.items():
        np.testing.assert_allclose(values[path], expected, rtol=1e-14)


def scaled(u: Any) -> Any:
    z = np.sin(u)
    return z + u


@pytest.mark.parametrize("transform", [
    fxgrad.python_control_flow, fxgrad.nan_safe, fxgrad.autocast, fxgrad.stabilize, fxgrad.checked, fxgrad.roll])
def test_results_of_transformed_functions_have_their_names(transform: Any) -> None:
    transformed = transform(scaled)

    def f(x: Any) -> Any:
        h = transformed(x)
        return h * x
    assert [value.path for value in fxgrad.names(f)(X)][-2:] == ["scaled.z", "h"]
    np.testing.assert_allclose(fxgrad.capture(f, "h")(X)[1]["h"], np.sin(X) + X)
    np.testing.assert_allclose(fxgrad.replace(f, {"h": 2.0})(X), 2 * X)


@fxgrad.python_control_flow
def chosen(x: Any) -> Any:
    h = scaled(x)
    out = h * 2 if h[0] > 0 else x
    return out * x


def test_a_name_before_a_converted_branch_is_that_of_the_value_and_not_of_the_branch() -> None:
    for x in (X, -X):
        np.testing.assert_allclose(fxgrad.capture(fxgrad.jit(chosen), "h")(x)[1]["h"], np.sin(x) + x)
