"""Names of jax outside of its libraries: they behave like jax's, under every transformation."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
from fxgrad import errors, grad, jit, jvp, vmap
from tests.support.versions import IS_OLDEST_JAX

X = np.array([0.3, 1.2, -2.0])


class Params(NamedTuple):
    """A container of arrays."""

    w: Any
    b: Any


def test_absent_names_say_what_to_write() -> None:
    for name, text in {
            "effects_barrier": "it is jax's, and holds for code that fxgrad compiles too. Write jax.effects_barrier",
            "new_ref": "arrays do not change. Return new ones, x.at[i].set(v), and carry them through loops",
            "ds": "write fxgrad.lax.dynamic_slice_in_dim(x, start, size)",
            "profiler": "it is jax's, and holds for code that fxgrad compiles too. Write jax.profiler",
            "tree_map": "write fxgrad.tree.map", "tree_multimap": "write fxgrad.tree.map(f, *trees)",
            "explain_cache_misses": "write fxgrad.explain_retraces(f)(x)"}.items():
        with pytest.raises(AttributeError) as caught:
            getattr(fxgrad, name)
        assert str(caught.value).split("\n")[0] == f"module 'fxgrad' has no attribute {name!r}: {text}"
    for name, text in {"minmax": "write fnp.min(x), fnp.max(x)", "top_k": "write fxgrad.lax.top_k(x, k)"}.items():
        with pytest.raises(AttributeError) as caught:
            getattr(fxgrad.numpy, name)
        assert str(caught.value).split("\n")[0] == f"module 'fxgrad.numpy' has no attribute {name!r}: {text}"
    for name in fxgrad._ABSENT:
        assert hasattr(jax, name) or name.startswith("tree_") or IS_OLDEST_JAX, name  # older jax had those
        assert not hasattr(fxgrad, name), name
    with jax.default_device(jax.devices()[1]):
        assert jit(lambda x: x * 2)(np.float32([1.0])).devices() == {jax.devices()[1]}


def test_modules_of_experimental_are_attributes() -> None:
    assert fxgrad.experimental.mesh_utils.create_device_mesh
    assert fxgrad.experimental.ode.odeint
    assert fxgrad.experimental.shard_map.shard_map


# --- containers -------------------------------------------------------------------------------------------------------


def test_ravel_pytree_as_jax() -> None:
    container = {"p": Params(np.ones((2, 3), np.float32), np.arange(2)), "s": 2.5}
    vector, unravel = fxgrad.flatten_util.ravel_pytree(container)
    expected, _ = jax.flatten_util.ravel_pytree(container)
    np.testing.assert_allclose(vector, expected)
    back = unravel(vector)
    assert back["p"].w.dtype == np.float32
    assert back["p"].b.dtype == container["p"].b.dtype
    np.testing.assert_array_equal(back["p"].w, container["p"].w)
    with pytest.raises(errors.ArgumentError, match="unravel: a vector"):
        unravel(vector[:-1])


def test_ravel_pytree_is_traced() -> None:
    def energy(p: Params) -> Any:
        vector, unravel = fxgrad.flatten_util.ravel_pytree(p)
        return np.sum(unravel(vector * vector).w) + np.sum(vector)
    p = Params(X, np.ones((2, 2)))
    for slope in (grad(energy)(p), jit(grad(energy))(p)):
        np.testing.assert_allclose(slope.w, 2 * X + 1, rtol=1e-12)
        np.testing.assert_allclose(slope.b, np.ones((2, 2)), rtol=1e-12)
    rows = vmap(lambda a: fxgrad.flatten_util.ravel_pytree([a, a])[0])(np.ones((4, 2)))
    assert rows.shape == (4, 4)
    assert fxgrad.flatten_util.ravel_pytree(())[0].shape == (0,)


def test_classes_registered_here_are_containers() -> None:
    @fxgrad.tree.register_pytree_node_class
    class Pair:
        def __init__(self, a: Any, b: Any) -> None:
            self.a, self.b = a, b

        def tree_flatten(self) -> Any:
            return (self.a, self.b), None

        @classmethod
        def tree_unflatten(cls, _: Any, leaves: Any) -> Any:
            return cls(*leaves)
    slope = grad(lambda p: np.sum(p.a * p.b))(Pair(X, X + 1))
    np.testing.assert_array_equal(slope.a, X + 1)
    assert fxgrad.tree_util.tree_map(lambda a: a, slope).b is slope.b
    assert set(fxgrad.tree_util.__all__) == {name for name in dir(jax.tree_util) if not name.startswith("_")}


CHECKED = """
[mypy]
follow_imports = skip
[mypy-fxgrad,fxgrad.tree_util,fxgrad.engine,fxgrad.engine.tree]
follow_imports = silent
"""
"""For the type checker, which need not read the rest of the package."""


@pytest.mark.slow
def test_a_strict_type_checker_takes_the_functions_of_trees(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program, settings = tmp_path / "program.py", tmp_path / "mypy.ini"
    settings.write_text(CHECKED)
    program.write_text("import fxgrad\nprint(fxgrad.tree.map(lambda x: x, [1.0]), fxgrad.tree.leaves([1.0]))\n"
                       "fxgrad.tree.register_static\nfxgrad.tree_util.tree_map(lambda x: x, [1.0])\n"
                       "fxgrad.tree.no_name\nfxgrad.tree_util.no_name\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--config-file", str(settings), "--cache-dir",
                           str(tmp_path / "cache"), str(program)], capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.partition(": error: ")[2].split("; ")[0] for line in found] == [
        'Module has no attribute "no_name"  [attr-defined]'] * 2, done.stdout  # so it reads what it is to check


# --- functions that are values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_jit_returns_pullbacks_and_linearized_functions(dtype: Any) -> None:
    x = X.astype(dtype)

    def function(x: Any) -> Any:
        return {"y": np.sin(x) * x, "n": np.sum(x)}
    output, pullback = jit(lambda x: fxgrad.vjp(function, x))(x)
    expected, expected_pullback = fxgrad.vjp(function, x)
    np.testing.assert_allclose(output["y"], expected["y"], rtol=1e-6)
    cotangent = {"y": np.ones(3, dtype), "n": dtype(2)}
    np.testing.assert_allclose(pullback(cotangent)[0], expected_pullback(cotangent)[0], rtol=1e-6)
    pulled = jit(lambda p, c: p(c))(pullback, cotangent)
    np.testing.assert_allclose(pulled[0], expected_pullback(cotangent)[0], rtol=1e-6)
    _, linear = jit(lambda x: fxgrad.linearize(function, x))(x)
    np.testing.assert_allclose(linear(x)["y"], jvp(function, (x,), (x,))[1]["y"], rtol=1e-6)
    doubled = fxgrad.tree.map(lambda residual: residual, expected_pullback)
    np.testing.assert_array_equal(doubled(cotangent)[0], expected_pullback(cotangent)[0])


def test_none_is_a_cotangent_of_zero() -> None:
    _, pullback = fxgrad.vjp(lambda a, b: (a * b, {"s": a + b, "t": a}), 2.0, 5.0)
    assert [float(c) for c in pullback((1.0, None))] == [5.0, 2.0]
    assert [float(c) for c in pullback((None, {"s": 1.0, "t": None}))] == [1.0, 1.0]
    with pytest.raises(errors.TreeError):
        pullback((1.0,))


# --- jit --------------------------------------------------------------------------------------------------------------


def test_jit_with_options_only_is_a_decorator() -> None:
    @jit(static_argnums=0)
    def power(n: int, x: Any) -> Any:
        return x ** n

    @fxgrad.jit(compiler_options={"xla_embed_ir_in_executable": True})
    def double(x: Any) -> Any:
        return x * 2.0

    @fxgrad.jit()
    def plain(x: Any) -> Any:
        return x + 1.0
    np.testing.assert_allclose(power(3, X), X ** 3, rtol=1e-12)
    np.testing.assert_allclose(double(X), X * 2, rtol=1e-12)
    np.testing.assert_allclose(plain(X), X + 1, rtol=1e-12)
    assert power.__name__ == "power"


def test_disable_jit() -> None:
    seen: list[Any] = []

    @jit
    def function(x: Any) -> Any:
        seen.append(x)
        return x * 2.0
    function(X)
    function(X)
    assert len(seen) <= 2
    del seen[:]
    with fxgrad.disable_jit():
        for _ in range(2):
            assert type(function(X)) is np.ndarray
        assert float(grad(lambda x: function(x) if x > 0 else x)(3.0)) == 2.0
    assert type(seen[0]) is np.ndarray
    assert len(seen) == 3
    function(X)
    assert len(seen) == 3
    with fxgrad.disable_jit(False):
        function(X)
    assert len(seen) == 3


# --- names, devices, settings -----------------------------------------------------------------------------------------


def test_named_call_shows_and_changes_nothing() -> None:
    @fxgrad.named_call
    def layer(p: Any, x: Any) -> Any:
        return np.tanh(p["w"] * x)
    p = {"w": X}
    program = fxgrad.make_program(layer)(p, X)
    assert [equation.params["name"] for equation in program.equations] == ["layer"]
    loss = lambda p: np.sum(layer(p, X))
    expected = X * (1 - np.tanh(X * X) ** 2)
    for slope in (grad(loss)(p), jit(grad(loss))(p), grad(jit(loss))(p)):
        np.testing.assert_allclose(slope["w"], expected, rtol=2e-11)
    np.testing.assert_allclose(vmap(layer, (None, 0))(p, np.stack([X, X]))[1], np.tanh(X * X), rtol=1e-12)
    with fxgrad.named_scope("scope"):
        np.testing.assert_allclose(fxgrad.named_call(np.sin, name="sine")(X), np.sin(X), rtol=1e-12)
    with pytest.raises(errors.ArgumentError, match="named_scope: the name is a int"):
        fxgrad.named_scope(3).__enter__()  # type: ignore[arg-type]


def test_devices() -> None:
    assert fxgrad.devices() == jax.devices()
    assert fxgrad.local_devices() == jax.local_devices()
    assert fxgrad.device_count() == fxgrad.local_device_count() == jax.device_count()
    assert fxgrad.default_backend() == jax.default_backend()
    put = fxgrad.device_put({"x": X, "n": 3}, fxgrad.devices()[0])
    assert isinstance(put["x"], jax.Array)
    assert put["x"].dtype == np.float64
    back = fxgrad.device_get(put)
    assert type(back["x"]) is np.ndarray
    np.testing.assert_array_equal(back["x"], X)
    assert fxgrad.block_until_ready(put) is put
    np.testing.assert_array_equal(grad(lambda x: np.sum(fxgrad.device_put(x) * 2.0))(X), [2.0, 2.0, 2.0])


def test_settings_by_name() -> None:
    with pytest.raises(ValueError, match=r"^jax_numpy_rank_promotion cannot be 'raise': shapes broadcast"):
        fxgrad.config.update("jax_numpy_rank_promotion", "raise")
    with pytest.raises(ValueError, match="on or off"):
        fxgrad.config.update("traceback_filtering", "maybe")
    try:
        fxgrad.config.update("jax_enable_x64", True)
        assert fxgrad.numpy.zeros(2).dtype == np.float64
    finally:
        fxgrad.config.update("jax_enable_x64", False)
    assert fxgrad.numpy.zeros(2).dtype == np.float32
    before = fxgrad.config.traceback_filtering
    try:
        fxgrad.config.update("jax_traceback_filtering", "off")
        assert fxgrad.config.traceback_filtering is False
    finally:
        fxgrad.config.update("traceback_filtering", before)


def test_debug_nans_names_the_line() -> None:
    def function(x: Any) -> Any:
        y = np.log(x)
        return np.sum(y * x)
    with fxgrad.debug_nans():
        with pytest.raises(FloatingPointError, match=(
                r"^NaN in the result of log; its operands have none\n  at test_names_of_jax\.py:\d+ ")):
            grad(function)(-np.ones(3))
        np.testing.assert_allclose(grad(function)(np.ones(3)), np.ones(3), rtol=1e-12)
        with pytest.raises(FloatingPointError):
            jit(np.log)(-np.ones(3, np.float32))
    assert np.isnan(grad(function)(-np.ones(3))).all()


def test_debug_infs_names_the_line() -> None:
    def function(x: Any) -> Any:
        return np.sum(np.exp(x) * x)
    with fxgrad.debug_infs():
        with pytest.raises(FloatingPointError, match=(
                r"^infinity in the result of exp; its operands have none\n  at test_names_of_jax\.py:\d+ ")):
            grad(function)(np.full(3, 1e3))
        with fxgrad.debug_nans(), pytest.raises(FloatingPointError, match=r"^NaN in the result of log"):
            fxgrad.value_and_grad(lambda x: np.log(x))(-1.0)
        assert np.isnan(grad(lambda x: np.log(x) * np.nan)(2.0))
        with pytest.raises(FloatingPointError):
            jit(np.exp)(np.full(3, 1e3, np.float32))
    assert np.isinf(grad(function)(np.full(3, 1e3))).all()


# --- functions with rules ---------------------------------------------------------------------------------------------


def test_custom_gradient_as_jax() -> None:
    def ours(x: Any, y: Any) -> Any:
        scale = np.exp(x)
        return x * y, lambda g: (g * scale, g * y * 7.0)

    def theirs(x: Any, y: Any) -> Any:
        scale = jnp.exp(x)
        return x * y, lambda g: (g * scale, g * y * 7.0)
    function, reference = fxgrad.custom_gradient(ours), jax.custom_gradient(theirs)
    expected = jax.grad(reference, (0, 1))(0.5, 2.0)
    slope = grad(function, (0, 1))
    for call in (slope, jit(slope), grad(jit(function), (0, 1))):
        np.testing.assert_allclose(call(0.5, 2.0), expected, rtol=1e-6)
    rows = vmap(grad(function), (0, None))(X, 2.0)
    np.testing.assert_allclose(rows, jax.vmap(jax.grad(reference), (0, None))(X.astype("f"), 2.0), rtol=1e-6)


def test_custom_gradient_by_the_pullback_of_a_function_with_integers() -> None:
    arguments = {"places": np.array([1, 2, 3]), "scale": np.float32(0.1)}, np.ones(3, np.float32)

    def function(p: Any, x: Any) -> Any:
        return (x * x * p["places"]).sum() * p["scale"]
    ours = fxgrad.custom_gradient(lambda p, x: fxgrad.vjp(function, p, x))
    theirs = jax.grad(jax.custom_gradient(lambda p, x: jax.vjp(function, p, x)), (0, 1), allow_int=True)(*arguments)
    for found in (grad(ours, (0, 1), allow_int=True), jit(grad(ours, (0, 1), allow_int=True))):
        (slopes, by_x) = found(*arguments)
        assert slopes["places"].dtype == theirs[0]["places"].dtype == fxgrad.float0
        np.testing.assert_allclose(slopes["scale"], theirs[0]["scale"], rtol=1e-6)
        np.testing.assert_allclose(by_x, theirs[1], rtol=1e-6)


def test_closure_convert_finds_what_is_closed_over() -> None:
    def outer(x: Any, n: Any) -> Any:
        inner, captured = fxgrad.closure_convert(lambda y: np.sin(y * x) + n, 1.0)
        assert len(captured) == 1
        ruled = fxgrad.custom_vjp(lambda y, c: inner(y, c))
        ruled.defvjp(lambda y, c: (inner(y, c), (y, c)), lambda kept, g: (g * 10.0, g * kept[0]))
        return ruled(2.0, captured[0])
    assert float(grad(outer)(3.0, np.arange(3)[2])) == 2.0
    inner, captured = fxgrad.closure_convert(lambda y: y * 3.0, 1.0)
    assert captured == []
    assert float(inner(2.0)) == 6.0


def batched_rule(calls: list[Any]) -> Callable[..., Any]:
    function = fxgrad.custom_batching.custom_vmap(lambda p, y: p["a"] * y)

    @function.def_vmap
    def rule(size: int, batched: Any, p: Any, y: Any) -> Any:
        calls.append((size, batched))
        return p["a"] * y + 100.0, True
    return function


def test_custom_vmap_calls_its_rule() -> None:
    calls: list[Any] = []
    function = batched_rule(calls)
    p = {"a": 2.0}
    assert float(function(p, 3.0)) == 6.0
    np.testing.assert_allclose(vmap(function, (None, 0))(p, X), 2 * X + 100, rtol=1e-12)
    assert calls == [(3, [{"a": False}, True])]
    np.testing.assert_allclose(vmap(function, ({"a": 1}, None), )({"a": X[None]}, np.ones(1))[:, 0], X + 100,
                               rtol=1e-12)
    np.testing.assert_allclose(jit(vmap(function, (None, 0)))(p, X), 2 * X + 100, rtol=1e-12)
    np.testing.assert_allclose(vmap(jit(function), (None, 0))(p, X), 2 * X + 100, rtol=1e-12)
    assert float(grad(lambda y: function(p, y))(3.0)) == 2.0
    calls.clear()
    np.testing.assert_allclose(vmap(function, (None, 0))(p, X), 2 * X + 100, rtol=1e-12)
    np.testing.assert_allclose(vmap(function, (None, 0))(p, X), 2 * X + 100, rtol=1e-12)
    assert len(calls) == 2  # the rule is called every time


def test_custom_vmap_checks_its_rule() -> None:
    function = fxgrad.custom_batching.custom_vmap(lambda x: x)
    np.testing.assert_array_equal(vmap(function)(X), X)
    function.def_vmap(lambda size, batched, x: (x, (True, True)))
    with pytest.raises(errors.TreeError, match="must return the output and a container of bools"):
        vmap(function)(X)
    function.def_vmap(lambda size, batched, x: (x[:2], True))
    with pytest.raises(errors.ShapeError, match=r"returned f64\[2\], where float64 of shape \(3,\) is needed"):
        vmap(function)(X)
    function.def_vmap(lambda size, batched, x: (x, True))
    keyword_only = fxgrad.custom_batching.custom_vmap(lambda x, *, y=1.0: x * y)
    with pytest.raises(errors.ArgumentError, match="has a custom rule and was called with keyword-only arguments"):
        keyword_only(X, y=2.0)


def test_sequential_vmap_as_jax() -> None:
    def body(x: Any, y: Any) -> Any:
        return {"s": x * y, "t": y}
    ours = vmap(fxgrad.custom_batching.sequential_vmap(body), (0, None))(X, 3.0)
    np.testing.assert_allclose(ours["s"], X * 3, rtol=1e-12)
    np.testing.assert_allclose(ours["t"], np.full(3, 3.0), rtol=1e-12)
    program = str(fxgrad.make_program(vmap(fxgrad.custom_batching.sequential_vmap(np.sin)))(X))
    assert "map" in program or "scan" in program
    np.testing.assert_allclose(
        grad(lambda x: np.sum(vmap(fxgrad.custom_batching.sequential_vmap(np.sin))(x)))(X), np.cos(X), rtol=1e-12)


def test_symbolic_zeros_of_custom_jvp_as_jax() -> None:
    seen: list[Any] = []

    def rule(zero: Any) -> Any:
        def differentiated(primals: Any, tangents: Any) -> Any:
            seen.append([type(tangent) is zero for tangent in tangents])
            (x, y), (dx, dy) = primals, tangents
            total = 0.0 * x
            if type(dx) is not zero:
                total = total + y * dx
            if type(dy) is not zero:
                total = total + x * dy
            else:
                assert dy.shape == ()
            return x * y, total
        return differentiated

    ours, theirs = fxgrad.custom_jvp(lambda x, y: x * y), jax.custom_jvp(lambda x, y: x * y)
    ours.defjvp(rule(fxgrad.custom_derivatives.SymbolicZero), symbolic_zeros=True)
    theirs.defjvp(rule(jax.custom_derivatives.SymbolicZero), symbolic_zeros=True)
    for argnums in (0, 1, (0, 1)):
        seen.clear()
        expected = jax.grad(theirs, argnums)(2.0, 5.0)
        wanted = seen[-1]
        for function in (ours, jit(ours)):
            np.testing.assert_allclose(grad(function, argnums)(2.0, 5.0), expected)
            assert seen[-1] == wanted
    np.testing.assert_allclose(vmap(grad(ours), (0, None))(X, 5.0), np.full(3, 5.0), rtol=1e-12)


def test_symbolic_zeros_of_custom_vjp_as_jax() -> None:
    seen: list[Any] = []

    def with_rule(library: Any) -> Any:
        module = library.custom_derivatives

        def forward(x: Any, y: Any) -> Any:
            seen.append([x.perturbed, y["y"].perturbed])
            x, y = module.custom_vjp_primal_tree_values((x, y))
            return (x * y["y"], 3.0 * x), (x, y["y"])

        def backward(residuals: Any, cotangents: Any) -> Any:
            seen.append([type(cotangent) is module.SymbolicZero for cotangent in cotangents])
            (x, y), (first, second) = residuals, cotangents
            dx, dy = 0.0 * x, 0.0 * y
            if type(first) is not module.SymbolicZero:
                dx, dy = dx + first * y, dy + first * x
            if type(second) is not module.SymbolicZero:
                dx = dx + 3.0 * second
            else:
                assert second.shape == ()
            return dx, {"y": dy}

        function = library.custom_vjp(lambda x, y: (x * y["y"], 3.0 * x))
        function.defvjp(forward, backward, symbolic_zeros=True, optimize_remat=False)
        return function

    ours, theirs = with_rule(fxgrad), with_rule(jax)
    for argnums in (0, 1, (0, 1)):
        for used in ([0], [1], [0, 1]):
            def loss(function: Any, x: Any, y: Any, used: list[int] = used) -> Any:
                outputs = function(x, y)
                return sum(outputs[index] for index in used)

            seen.clear()
            expected = jax.grad(lambda x, y, loss=loss: loss(theirs, x, y), argnums)(2.0, {"y": 5.0})
            wanted = [*seen]
            for transform in (lambda f: f, jit, fxgrad.checkpoint):
                seen.clear()
                got = grad(transform(lambda x, y, loss=loss: loss(ours, x, y)), argnums)(2.0, {"y": 5.0})
                assert jax.tree.leaves(got) == jax.tree.leaves(expected)
                assert seen[-2:] == wanted[-2:], (argnums, used)
            batch = vmap(grad(lambda x, y, loss=loss: loss(ours, x, y), argnums), (0, None))(X, {"y": 5.0})
            one = grad(lambda x, y, loss=loss: loss(ours, x, y), argnums)(X[1], {"y": 5.0})
            for many, single in zip(jax.tree.leaves(batch), jax.tree.leaves(one), strict=True):
                np.testing.assert_allclose(many[1], single, rtol=1e-12)


# --- options and arguments --------------------------------------------------------------------------------------------


class Wrapped:
    """An object that jax accepts as an array."""

    def __jax_array__(self) -> Any:
        return jnp.asarray(X.astype(np.float32))


def test_objects_that_are_arrays_to_jax() -> None:
    np.testing.assert_allclose(fxgrad.numpy.add(Wrapped(), 1.0), X + 1, rtol=1e-6)
    np.testing.assert_allclose(grad(lambda x: np.sum(fxgrad.numpy.multiply(x, Wrapped())))(X), X, rtol=1e-6)


WORDS = np.arange(4, dtype=np.int32)
SAME_AS_JAX: dict[str, Callable[[Any, Any, Any], Any]] = {
    "scan(unroll=0)": lambda np_, lax, x: lax.scan(lambda c, y: (c + y, c * y), x[0] * 0, x, unroll=0),
    "map(batch_size=0)": lambda np_, lax, x: lax.map(lambda y: y * 2, x, batch_size=0),
    "fori_loop of floats": lambda np_, lax, x: lax.fori_loop(0.0, 3.0, lambda i, c: c + i * x, x),
    "r_ as a row": lambda np_, lax, x: np_.r_["r", x, x],
    "r_ as a column": lambda np_, lax, x: np_.r_["c", x, x],
    "total_repeat_length": lambda np_, lax, x: np_.repeat(x, np_.array([1, 2, 1]), total_repeat_length=6),
    "total_repeat_length that cuts": lambda np_, lax, x: np_.repeat(x, np_.array([1, 2, 1]), total_repeat_length=2),
    "total_repeat_length of one number": lambda np_, lax, x: np_.repeat(x, 2, total_repeat_length=5),
    "a buffer": lambda np_, lax, x: x[0] * np_.asarray(memoryview(b"abc")),
    "argpartition": lambda np_, lax, x: x[x.argpartition(1)][:2].sum(),
    "compress": lambda np_, lax, x: x.compress(np.array([True, False, True])),
    "block_until_ready": lambda np_, lax, x: x.block_until_ready() if hasattr(x, "block_until_ready") else x,
}


@pytest.mark.parametrize("name", SAME_AS_JAX)
def test_the_same_as_jax(name: str) -> None:
    function, x = SAME_AS_JAX[name], X.astype(np.float32)
    expected = function(jnp, jax.lax, jnp.asarray(x))
    ours = lambda x: function(fxgrad.numpy, fxgrad.lax, x)
    for outputs in (jit(ours)(x), fxgrad.tree.map(lambda rows: rows[0], vmap(ours)(x[None]))):
        for got, wanted in zip(jax.tree.leaves(outputs), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize(("given", "wanted"), [
    ("float32", "int32"), ("float64", "int32"), ("int32", "float64"), ("uint8", "int16"), ("complex64", "float32"),
    ("float64", "complex128"), ("complex128", "uint8"), ("int16", "complex64")])
def test_view_and_byteswap_as_numpy(given: str, wanted: str) -> None:
    words = np.arange(16).reshape(2, 8)
    x = (words * (1 + 0.5j) if given.startswith("complex") else words).astype(given)
    for run in (jit, vmap):
        np.testing.assert_array_equal(np.asarray(run(lambda x: x.view(wanted))(x)), x.view(wanted))
        np.testing.assert_array_equal(np.asarray(run(lambda x: x.byteswap())(x)), x.byteswap())
    with pytest.raises(errors.ShapeError, match="view: a last axis of size 3"):
        jit(lambda x: x.view(np.int64))(np.arange(3, dtype=np.int32))


def test_insert_and_delete_at_traced_places() -> None:
    x, places = np.arange(12.0).reshape(3, 4), np.array([1, -1, 1])
    inserted = jit(lambda x, i: fxgrad.numpy.insert(x, i, 9.0, axis=1))(x, places)
    np.testing.assert_array_equal(inserted, np.insert(x, places, 9.0, axis=1))
    np.testing.assert_array_equal(jit(lambda x, i: fxgrad.numpy.insert(x, i, x[:, 0], axis=0))(x[:, :3], np.int32(1)),
                                  np.insert(x[:, :3], 1, x[:, 0], axis=0))
    kept = jit(lambda x, i: fxgrad.numpy.delete(x, i, axis=1, assume_unique_indices=True))(x, np.array([2, -4]))
    np.testing.assert_array_equal(kept, np.delete(x, [2, -4], axis=1))
    slope = jit(grad(lambda x, i: np.sum(fxgrad.numpy.insert(x, i, x[0] * 2.0) ** 2)))(X, np.array([1, 1]))
    np.testing.assert_allclose(slope, [2 * X[0] + 16 * X[0], 2 * X[1], 2 * X[2]], rtol=1e-12)


def test_tuples_stay_tuples() -> None:
    def function(x: Any) -> Any:
        assert type(np.gradient(x)) is tuple
        assert type(np.meshgrid(x[0], x[1])) is tuple
        return np.sum(x)
    for transformed in (grad, jit, vmap):
        transformed(function)(np.ones((2, 3) if transformed is not vmap else (1, 2, 3)))


def test_arguments_that_make_no_sense() -> None:
    for argnums in (0.5, None):
        with pytest.raises(errors.ArgumentError, match=rf"grad: argnums is {argnums}, where an int or a sequence of "):
            grad(np.sin, argnums=argnums)(1.0)  # type: ignore[arg-type]
    for transformed in (grad, fxgrad.value_and_grad, fxgrad.jacfwd, fxgrad.jacrev, fxgrad.hessian, fxgrad.divergence,
                        fxgrad.value_and_hessian, fxgrad.laplacian, fxgrad.sparsity, fxgrad.make_program):
        name = transformed.__name__
        option = "static_argnums" if name == "make_program" else "argnums"
        with pytest.raises(errors.ArgumentError) as raised:
            transformed(np.sin, np.ones(3))
        assert str(raised.value).split("\n")[0] == (
            f"{name}: {option} is an array of shape (3,), where an int or a sequence of ints is needed, such as "
            f"(0, 1). Arguments are given to the function that {name} returns: {name}(f)(x)")
    with pytest.raises(errors.DTypeError, match=r"is an array of float64 in foreign byte order; convert it first"):
        jit(np.sin)(np.ones(3, ">f8"))
    with pytest.raises(errors.ArgumentError, match=r"jit: an argument is a matrix, .* Write np\.asarray\(m\)"):
        jit(np.sin)(np.ones((1, 1)).view(np.matrix))
    with pytest.raises(errors.ArrayConversionError, match=r"Write x\.astype\('float32'\)"):
        grad(lambda x: np.float32(x) * x)(1.0)


def test_sylvester_broadcasts() -> None:
    A, B, C = np.ones((2, 2, 2)) + np.eye(2), np.eye(2), np.ones((2, 2))
    X_ = fxgrad.scipy.linalg.solve_sylvester(A, B, C)
    np.testing.assert_allclose(A @ X_ + X_ @ B, np.broadcast_to(C, (2, 2, 2)), rtol=1e-12)

