"""`jit` of functions made anew at every call: what they share, what stays their own, and what dies with them."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, vmap
from fxgrad.engine.api import plans, switches
from fxgrad.engine.api.executables import Sharing
from fxgrad.engine.executors import xla as xla_executor
from fxgrad.engine.tracing import interning

pytestmark = pytest.mark.usefixtures("fresh_tables")
X = np.array([1.0, 2.0, 3.0], np.float32)


@pytest.fixture
def emissions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs emitted to XLA, one entry for each time that jax traces one of them."""
    emitted: list[Any] = []
    original = xla_executor.emit_results

    def counted(program: Any, inputs: Any) -> Any:
        emitted.append(program)
        return original(program, inputs)
    monkeypatch.setattr("fxgrad.engine.api.executables.emit_results", counted)
    return emitted


def scaled(k: Any) -> Callable[..., Any]:
    return jit(lambda x: x * k + k)


def test_floats_differ_and_nothing_is_compiled_anew(emissions: list[Any]) -> None:
    for k in (0.5, -1.5, 2.5, 1e30, 0.0, -0.0, float("nan")):
        expected = X * np.float32(k) + np.float32(k)
        np.testing.assert_array_equal(scaled(k)(X), expected)
    assert len(emissions) == 2  # the first function has one of its own
    assert np.signbit(np.asarray(jit(lambda x: x * -0.0)(np.zeros(1, np.float32)))).all()


def test_arrays_differ_and_are_frozen_by_the_first_call(emissions: list[Any]) -> None:
    def made(weight: np.ndarray) -> Callable[..., Any]:
        return jit(lambda x: np.sum(weight * x))

    for factor in range(4):
        weight = np.full(3, float(factor), np.float32)
        function = made(weight)
        assert float(function(X)) == 6.0 * factor
        weight[:] = -1.0  # as with jax, what a compiled function closed over is what it was
        assert float(function(X)) == float(function(X)) == 6.0 * factor
    assert len(emissions) == 2


def test_jax_arrays_and_keys_closed_over(emissions: list[Any]) -> None:
    for seed in range(4):
        weight, key = jnp.full(3, float(seed)), fxgrad.random.key(seed)
        result = jit(lambda x, weight=weight, key=key: np.sum(weight * x) + fxgrad.random.normal(key))(X)
        expected = 6.0 * seed + fxgrad.random.normal(fxgrad.random.key(seed))
        np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_keys_closed_over_by_cells(emissions: list[Any]) -> None:
    def drawn(seed: int) -> Any:
        key = fxgrad.random.key(seed)
        return jit(lambda x: x + fxgrad.random.normal(key))

    for seed in range(4):
        function = drawn(seed)
        np.testing.assert_allclose(function(X), X + fxgrad.random.normal(fxgrad.random.key(seed)), rtol=1e-6)
        np.testing.assert_allclose(function(X), function(X))
    assert len(emissions) == 2


def test_many_numbers_of_several_dtypes(emissions: list[Any]) -> None:
    def made(start: float) -> Any:
        def f(x: Any) -> Any:
            for index in range(12):
                x = x * (start + index) + np.float32(index) - np.int32(index)
            return x, x.astype(np.float64) * np.float64(start)
        return jit(f)

    for start in (0.25, 0.5, 0.75):
        function = made(start)
        for _ in range(3):
            x = X
            for index in range(12):
                x = x * np.float32(start + index) + np.float32(index) - np.float32(index)
            np.testing.assert_allclose(function(X)[0], x, rtol=1e-5)
            assert function(X)[1].dtype == np.float64
    assert len(emissions) == 2


def test_other_operations_are_compiled_anew(emissions: list[Any]) -> None:
    def made(squared: bool) -> Any:
        return jit(lambda x: x * x if squared else x + x)

    results = [made(squared)(X).tolist() for squared in (True, False, True, False, True)]
    assert results == [[1, 4, 9], [2, 4, 6]] * 2 + [[1, 4, 9]]
    assert len(emissions) == 4


def test_the_function_runs_once_for_each_signature(emissions: list[Any]) -> None:
    runs: list[Any] = []

    def made(k: float) -> Any:
        def f(x: Any) -> Any:
            runs.append((k, x.shape))
            return x * k
        return jit(f)

    for k in (1.5, 2.5, 3.5):
        function = made(k)
        for size in (2, 3, 2, 3, 4, 4):
            assert function(np.ones(size)).tolist() == [k] * size
    assert runs == [(k, (size,)) for k in (1.5, 2.5, 3.5) for size in (2, 3, 4)]
    # The first has three of its own; the second shares what it makes with the third.
    assert len(emissions) == 6


def test_static_arguments_and_containers(emissions: list[Any]) -> None:
    def made(k: float) -> Any:
        @functools.partial(jit, static_argnums=(1,), static_argnames=("mode",))
        def f(tree: Any, n: int, mode: str = "sum") -> Any:
            value = tree["a"] * k * n + tree["b"]
            return {"out": np.sum(value)} if mode == "sum" else {"all": value}
        return f

    tree = {"a": X, "b": np.float32(1.0)}
    for k in (1.5, 2.5, 3.5):
        f = made(k)
        for _ in range(2):
            assert float(f(tree, 2)["out"]) == 12.0 * k + 3.0
            assert f(tree, 2, mode="none")["all"].tolist() == (X * k * 2 + 1).tolist()
            assert float(f(tree, n=3)["out"]) == 18.0 * k + 3.0
    with pytest.raises(fxgrad.errors.ArgumentError, match="static argument n of f is a list"):
        f(tree, [2])


def test_integers_keep_their_width(emissions: list[Any]) -> None:
    for k in (1, 2, 3):
        function = jit(lambda n, k=k: n + k)
        assert function(3).dtype == np.int64
        assert int(function(2 ** 40)) == 2 ** 40 + k
        assert int(function(n=-2 ** 35)) == -2 ** 35 + k
        assert function(X).dtype == np.float32


def test_the_default_dtype(emissions: list[Any]) -> None:
    for k in (0.1, 0.2, 0.3):
        function, three = jit(lambda x, k=k: x * k), np.int32(3)
        assert function(three).dtype == np.float32
        with fxgrad.default_dtype("float64"):
            assert float(function(three)) == 3.0 * k
        assert function(three).dtype == np.float32


def test_output_containers_that_differ() -> None:
    def made(name: str) -> Any:
        return jit(lambda x: {name: x * 2.0, "none": None})

    for name in ("a", "b", "a", "b"):
        result = made(name)(X)
        assert sorted(result) == sorted([name, "none"])
        assert result[name].tolist() == [2.0, 4.0, 6.0]


def test_donation_stays_with_its_function(emissions: list[Any]) -> None:
    for _ in range(3):
        x = jnp.ones(1000)
        jit(lambda x: x + 1.0, donate_argnums=0)(x)
        assert x.is_deleted()
    assert len(emissions) == 3


def test_inside_of_jax_transformations() -> None:
    x = jnp.array([1.0, 2.0])
    for k in (1.5, 2.5, 3.5):
        function = jit(lambda x, k=k: jnp_free(x, k))
        np.testing.assert_allclose(function(x), x * x * k)
        np.testing.assert_allclose(jax.grad(lambda x, f=function: f(x).sum())(x), 2 * x * k)
        np.testing.assert_allclose(jax.vmap(function)(x), x * x * k)
        np.testing.assert_allclose(jax.jit(function)(x), x * x * k)
    for _ in range(3):  # a closure over a tracer of jax holds for one call
        np.testing.assert_allclose(jax.grad(lambda y: jit(lambda x: x * y)(2.0))(3.0), 2.0)


def jnp_free(x: Any, k: float) -> Any:
    return x * x * k


def test_un_jitted_derivatives_of_functions_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    original = xla_executor.emit
    monkeypatch.setattr(xla_executor, "emit", lambda program, inputs: compiled.append(program) or original(
        program, inputs))
    for k in (1.5, 2.5, 3.5):
        inner = jit(lambda x, k=k: np.sum(np.sin(x) * k))
        np.testing.assert_allclose(grad(inner)(X), np.cos(X) * np.float32(k), rtol=1e-6)
        counted = len(compiled)
    grad(jit(lambda x: np.sum(np.sin(x) * 1.0)))(X)

    def made(k: float) -> Any:
        return jit(lambda x: np.sum(np.sin(x) * k))
    counts = []
    for k in (1.5, 2.5, 3.5):
        np.testing.assert_allclose(grad(made(k))(X), np.cos(X) * np.float32(k), rtol=1e-6)
        np.testing.assert_allclose(vmap(lambda x, k=k: made(k)(x))(np.stack([X, X])),
                                   [np.sum(np.sin(X)) * k] * 2, rtol=1e-6)
        counts.append(len(compiled))
    assert counted > 0
    assert counts[1] == counts[2] == counts[0]


@pytest.mark.slow
def test_what_was_closed_over_dies_with_the_function() -> None:
    def made(k: float) -> tuple[Any, Any]:
        weight = jnp.full(3, k)
        alive = weakref.ref(weight)
        function = jit(lambda x: x * weight)
        function(X), function(X)
        return function, alive

    kept = [made(float(index)) for index in range(3)]
    functions, alive = [weakref.ref(function) for function, _ in kept], [reference for _, reference in kept]
    assert all(reference() is not None for reference in alive)
    kept.clear()
    gc.collect()
    assert [reference() for reference in functions] == [None] * 3
    assert [reference() for reference in alive[1:]] == [None] * 2


@pytest.mark.usefixtures("small_heap")
def test_a_dropped_function_is_freed_without_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            function = jit(lambda x: x * 2.0)
            function(X), function(X)
            alive = weakref.ref(function)
            del function
            assert alive() is None
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.usefixtures("small_heap")
def test_the_plans_of_a_dropped_function_are_freed_without_the_collector() -> None:
    def alive() -> int:
        return sum(isinstance(each, plans.DispatchPlan | plans.DispatchPlans) for each in gc.get_objects())

    gc.collect()
    before = alive()
    gc.disable()
    try:
        for _ in range(3):  # the first has executables of its own, the others share
            function = jit(lambda x, y=1.0: jax.tree.map(lambda leaf: leaf * y, x))
            for tree in (X, {"a": X}, {"a": np.ones(3)}, X, [X] * 20):
                function(tree), function(tree, 2.0), function(tree, y=X[0])
            assert alive() > before
            del function
            assert alive() == before
    finally:
        gc.enable()


def recorded_programs() -> list[weakref.ref[Any]]:
    """All programs that the table of recorded operations holds."""
    nodes = [root for root, _ in interning._roots.values()]
    found: list[Any] = []
    while nodes:
        node = nodes.pop()
        nodes += node.children.values()
        found += map(weakref.ref, node.programs.values())
    return found


def test_the_shared_executable_dies_with_the_program() -> None:
    for k in (1.5, 2.5, 3.5):
        scaled(k)(X)
    programs = recorded_programs()
    assert len(programs) == 1
    fxgrad.clear_caches()
    gc.collect()
    assert programs[0]() is None
    np.testing.assert_array_equal(scaled(4.5)(X), X * 4.5 + 4.5)


def test_after_jax_forgets_what_it_compiled() -> None:
    functions = [scaled(k) for k in (1.5, 2.5)]
    before = [function(X).tolist() for function in functions]
    jax.clear_caches()
    assert [function(X).tolist() for function in functions] == before


def test_threads() -> None:
    failures: list[Any] = []
    shared_function = scaled(0.5)

    def work(number: int) -> None:
        try:
            for index in range(20):
                k = number + index / 4
                np.testing.assert_array_equal(scaled(k)(X), X * np.float32(k) + np.float32(k))
                np.testing.assert_array_equal(shared_function(np.ones(1 + index % 3)), np.ones(1 + index % 3))
        except Exception as error:  # noqa: BLE001  (reported below, by the thread of the test)
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_an_error_in_the_function_comes_through_and_the_next_call_is_right() -> None:
    for k in (1.5, 2.5, 3.5):
        def f(x: Any, k: float = k) -> Any:
            if x.ndim == 2:
                raise KeyError("mine")
            return x * k
        function = jit(f)
        assert function(X).tolist() == (X * np.float32(k)).tolist()
        with pytest.raises(KeyError, match="mine"):
            function(np.ones((2, 2)))
        assert function(X).tolist() == (X * np.float32(k)).tolist()


def test_methods_and_keywords() -> None:
    class Model:
        def __init__(self, weight: float) -> None:
            self.weight = weight
            self.apply = jit(self._apply)

        def _apply(self, x: Any, *, shift: Any = 0.0) -> Any:
            return x * self.weight + shift

    for weight in (1.5, 2.5, 3.5):
        model = Model(weight)
        assert model.apply(X).tolist() == (X * weight).tolist()
        assert model.apply(X, shift=1.0).tolist() == (X * weight + 1).tolist()
        assert model.apply(X, shift=X).tolist() == (X * weight + X).tolist()


def test_bad_arguments_are_explained_where_executables_are_shared() -> None:
    for k in (1.5, 2.5, 3.5):
        function = scaled(k)
        function(X)
        with pytest.raises(fxgrad.errors.ArgumentError, match="is a str, where an array or a number is needed"):
            function("text")
        with pytest.raises(TypeError):
            function(X, X)
        assert function(X).tolist() == (X * np.float32(k) + np.float32(k)).tolist()


def test_scopes_are_used_again_and_nested() -> None:
    seen = []

    def inner(x: Any) -> Any:
        return np.asarray(scaled(2.0)(x))

    def called_back(x: Any) -> Any:
        seen.append(jax.config.jax_enable_x64)
        return inner(np.asarray(x))

    function = jit(lambda x: fxgrad.pure_callback(called_back, fxgrad.ShapeDtypeStruct((2,), np.float64), x))
    for _ in range(3):
        assert function(np.ones(2)).tolist() == [4.0, 4.0]
        assert not jax.config.jax_enable_x64
    assert xla_executor.idle_scopes


def test_weak_arrays_of_jax_and_others_of_the_same_shape(emissions: list[Any]) -> None:
    strong, weak = jnp.asarray(np.float32(2.0)), jnp.multiply(1.0, 2.0)
    assert weak.weak_type
    assert not strong.weak_type
    half = np.float16(0.5)
    for k in (1.5, 2.5, 3.5):
        function = jit(lambda x, y, k=k: x * y * k)
        for _ in range(2):
            for x, expected in ((strong, np.float32), (weak, np.float16), (2.0, np.float16)):
                for y in (half, np.full(2, half)):
                    result = function(x, y)
                    assert result.dtype == expected
                    np.testing.assert_array_equal(result, np.full(np.shape(y), k, expected))


def test_results_are_as_weak_as_those_of_jax() -> None:
    """Weak where the argument is all that they are made of, handed through or computed with."""
    weak, strong = jnp.multiply(1.0, 2.0), jnp.float32(2.0)
    for function in (lambda x: x, lambda x: [x, np.sin(x)], lambda x: fxgrad.lax.cond(x > 1, lambda x: x, np.sin, x)):
        compiled = jit(function)
        for _ in range(3):
            for x in (weak, strong):
                assert all(leaf.weak_type == x.weak_type for leaf in jax.tree.leaves(
                    (compiled(x), jit(compiled)(x), compiled(x * x))))


# --- the states -----------------------------------------------------------------------------------------------------


def sharing(jitted: Callable[..., Any]) -> Sharing:
    """The state of a jitted function under the default dtype."""
    state, = (each for each in switches.switched if each.lower == jitted.lower)  # type: ignore[attr-defined]
    return state._current_executables().sharing


def test_which_executables_a_function_calls_is_one_state() -> None:
    first, second, lowered = (jit(lambda x: x * 2.5) for _ in range(3))
    assert sharing(first) is Sharing.UNDECIDED
    for function, state in ((first, Sharing.OWN), (second, Sharing.SHARED)):
        function(X)
        assert sharing(function) is state
    lowered.lower(X)
    assert sharing(lowered) is Sharing.OWN
    donating = jit(lambda x: x * 2.5, donate_argnums=0)
    donating(jnp.array(X))
    assert sharing(donating) is Sharing.OWN
    before, changing = (jit(lambda x: x * 2.5 if x.ndim == 1 else fxgrad.debug.print("{}", x) or x) for _ in range(2))
    before(X)
    changing(X)
    assert sharing(changing) is Sharing.SHARED
    changing(X[:, None])  # has an effect
    assert sharing(changing) is Sharing.OWN
    np.testing.assert_array_equal(changing(X), X * 2.5)


def test_a_closure_on_several_devices_is_bound() -> None:
    mesh = jax.sharding.Mesh(jax.devices()[:2], ("i",))
    weights = jax.device_put(np.ones(2, np.float32), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i")))
    closed = [1.0]
    function = jit(lambda x: x * closed[0])
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(function(x), x)
    assert sharing(function) is Sharing.OWN
    closed[0] = weights
    np.testing.assert_array_equal(function(np.ones((1, 2), np.float32)), [x])
    assert sharing(function) is Sharing.BOUND
    at_once = jit(lambda x: x + weights)
    np.testing.assert_array_equal(at_once(x), x * 2)
    assert sharing(at_once) is Sharing.BOUND
    assert jit(lambda x: x - weights).lower(x).compile()(x).shape == (2,)
