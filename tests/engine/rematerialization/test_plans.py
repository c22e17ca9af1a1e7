"""Plans of jitted calls: what their keys tell apart, what they leave to jax, and that no call runs by an exception."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.api import keys, plans
from fxgrad.engine.api.keys import FEW, key_of
from fxgrad.engine.api.static_arguments import StaticArguments

X = np.array([1.0, 2.0, 3.0], np.float32)


def counted(function: Callable[..., Any], **options: Any) -> tuple[Callable[..., Any], list[Any]]:
    """A jitted function, and the types that it was traced with."""
    traces: list[Any] = []

    @functools.wraps(function)
    def counting(*args: Any, **kwargs: Any) -> Any:
        traces.append([(x.shape, str(x.dtype)) for x in jax.tree.leaves((args, kwargs)) if hasattr(x, "shape")])
        return function(*args, **kwargs)
    return fxgrad.jit(counting, **options), traces


def wide(value: Any) -> jax.Array:
    with jax.enable_x64(True):
        return jnp.asarray(value)


# --- what keys tell apart, and what they do not -------------------------------------------------------------------


def recent(function: Any) -> tuple[plans.DispatchPlan, ...]:
    """The plans that a call of a jitted function asks first."""
    states = (cell.cell_contents for cell in function.__closure__)
    return next(state.plans for state in states if hasattr(state, "plans")).recent  # type: ignore[no-any-return]


def weak(value: Any) -> jax.Array:
    array = jnp.multiply(value, 1.0)
    assert array.weak_type
    return array


KINDS: dict[str, Callable[[], Any]] = {
    "float32": lambda: X, "float64": lambda: X.astype(np.float64), "int32": lambda: X.astype(np.int32),
    "again": lambda: X + 0, "shape": lambda: X[:2], "two axes": lambda: X[:, None],
    "jax": lambda: jnp.asarray(X), "jax float64": lambda: wide(X.astype(np.float64)),
    "jax int32": lambda: jnp.arange(3),
    "ours": lambda: fnp.asarray(X), "ours float64": lambda: fnp.asarray(X.astype(np.float64)),
    "float": lambda: 2.0, "int": lambda: 2, "bool": lambda: True, "complex": lambda: 2j, "minus zero": lambda: -0.0,
    "strong": lambda: jnp.float32(2.0), "weak": lambda: weak(2.0), "np.float32": lambda: np.float32(2.0),
    "np.float64": lambda: np.float64(2.0), "np.int8": lambda: np.int8(2), "shape ()": lambda: np.full((), 2.0),
    "list": lambda: [X, 2.0], "dict": lambda: {"a": X}, "none": lambda: None}


def doubled(tree: Any) -> Any:
    return jax.tree.map(lambda x: x * np.float16(2.0) if np.ndim(x) else x * 2, tree)


def kind_of(result: Any) -> Any:
    return [(type(x), x.dtype, x.shape, np.asarray(x).tobytes()) for x in jax.tree.leaves(result)]


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["own executable", "shared executable"])
@pytest.mark.parametrize("beside", [0, 1, FEW], ids=["alone", "beside another", "among many"])
def test_every_kind_of_argument_after_every_other(beside: int, shared: bool) -> None:
    """The answers are those of a function that was never called before, in two orders."""
    others = (X,) * beside

    def made() -> Any:
        return fxgrad.jit(lambda x, *others: (doubled(x), len(others)))

    expected = {name: kind_of(made()(value(), *others)) for name, value in KINDS.items()}
    if shared:
        made()(X, *others)
    function = made()
    for name in (*KINDS, *reversed(KINDS), *KINDS):
        assert kind_of(function(KINDS[name](), *others)) == expected[name], name


@pytest.mark.slow
def test_keys_are_equal_for_arguments_of_equal_types_alone() -> None:
    static = StaticArguments(lambda x: x, None, None)
    made = {name: key_of(static, (value(),), {}) for name, value in KINDS.items()}
    alike = {frozenset({"float32", "again"}), frozenset({"float", "minus zero"})}
    for (one, first), (other, second) in itertools.combinations(made.items(), 2):
        assert (first == second) == ({one, other} in alike), (one, other)
        assert first.fits()((KINDS[other](),), {}) == (first == second), (one, other)
    for name, key in made.items():
        assert key.fits()((KINDS[name](),), {}), name
        assert not key.fits()((KINDS[name](), 1.0), {})
        assert not key.fits()((), {"x": KINDS[name]()})
        assert key.is_full == (name not in ("list", "dict", "none"))


def test_equal_types_from_numpy_and_from_jax_are_one_trace() -> None:
    function, traces = counted(lambda x, y: x * y)
    for _ in range(3):
        for first, second in itertools.product([X, jnp.asarray(X), fnp.asarray(X)], repeat=2):
            np.testing.assert_array_equal(function(first, second), X * X)
    assert len(traces) == 1


def test_values_of_arguments_are_not_in_keys() -> None:
    function, traces = counted(lambda x: 1.0 / x)
    assert [float(function(x)) for x in (np.float64(2.0), np.float64(0.0), np.float64(-0.0))] == [0.5, np.inf, -np.inf]
    assert np.isnan(function(np.float64("nan")))
    assert len(traces) == 1


def test_positions_and_keywords() -> None:
    function, traces = counted(lambda x=1.0, y=2.0: 10.0 * x + y)
    for _ in range(3):
        assert [float(function(3.0)), float(function(x=3.0)), float(function(y=3.0)), float(function())] == [
            32.0, 32.0, 13.0, 12.0]
        assert float(function(3.0, y=4.0)) == float(function(y=4.0, x=3.0)) == float(function(3.0, 4.0)) == 34.0
    assert len(traces) == 7  # in whichever order keywords are given
    with pytest.raises(TypeError, match="unexpected keyword"):
        function(z=1.0)
    with pytest.raises(TypeError, match="positional arguments"):
        function(1.0, 2.0, 3.0)


class Alike:
    """Static arguments that are equal, and not the same."""

    def __init__(self, number: float) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    def __hash__(self) -> int:
        return 0


@pytest.mark.parametrize("maker", [fxgrad.jit, jax.jit], ids=["fxgrad", "jax"])
def test_static_arguments_by_value_and_class(maker: Any) -> None:
    seen = []
    function = maker(lambda x, tag: seen.append(tag) or x * 2.0, static_argnums=1)  # type: ignore[func-returns-value]
    first, second = Alike(1.0), Alike(2.0)
    for _ in range(3):
        for tag in (1, 1.0, True, "1", (1,), (1, 2), None, int, type, first, second):
            assert float(function(np.float32(1.0), tag)) == 2.0
    assert seen == [1, 1.0, True, "1", (1,), (1, 2), None, int, type, first]
    assert list(map(type, seen)) == [int, float, bool, str, tuple, tuple, type(None), type, type, Alike]


def test_static_arguments_beside_containers_and_by_name() -> None:
    function, traces = counted(lambda tree, n, *, mode: tree["a"] * n if mode == "times" else tree["a"] + n,
                               static_argnames=("n", "mode"))
    for _ in range(3):
        for n, mode in [(2, "times"), (3, "times"), (2, "plus"), (2.0, "times")]:
            expected = X * n if mode == "times" else X + n
            np.testing.assert_array_equal(function({"a": X}, n, mode=mode), expected.astype(np.float32))
            np.testing.assert_array_equal(function({"a": X}, mode=mode, n=n), expected.astype(np.float32))
    assert len(traces) == 8


# --- settings --------------------------------------------------------------------------------------------------------


def test_default_dtype_and_x64_mode() -> None:
    function, traces = counted(lambda n: n * 2.0)
    numbers = np.ones(2, np.int32)
    for _ in range(2):
        assert function(numbers).dtype == np.float32
        with fxgrad.default_dtype("float64"):
            assert function(numbers).dtype == np.float64
            assert type(function(numbers)) is fxgrad.Array
            with jax.enable_x64(True):
                assert isinstance(function(numbers), jax.Array)
    assert function(numbers).dtype == np.float32
    assert len(traces) <= 3


def test_a_default_dtype_of_another_thread() -> None:
    function, dtypes = fxgrad.jit(lambda n: n * 2.0), []
    numbers, inside, done = np.ones(2, np.int32), threading.Event(), threading.Event()

    def work() -> None:
        with fxgrad.default_dtype("float64"):
            dtypes.append(function(numbers).dtype)
            inside.set()
            done.wait(20)
            dtypes.append(function(numbers).dtype)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(20)
    dtypes.append(function(numbers).dtype)
    done.set()
    thread.join()
    assert dtypes == [np.float64, np.float32, np.float64]


def test_transformations_around_a_call_that_has_a_plan() -> None:
    function = fxgrad.jit(lambda x: x * x)
    for _ in range(2):
        assert float(function(3.0)) == 9.0
        assert fxgrad.grad(function)(3.0) == 6.0
        assert fxgrad.vmap(function)(np.array([3.0])) == [9.0]
        assert float(fxgrad.jit(lambda x: function(x) + 1.0)(3.0)) == 10.0
        assert fxgrad.grad(lambda x: x * float(function(3.0)))(2.0) == 9.0  # not of what is differentiated
        with fxgrad.disable_jit():
            assert type(function(3.0)) is float
        assert float(jax.jit(function)(np.float32(3.0))) == float(jax.grad(function)(4.5)) == 9.0


PLACES = """
import sys, jax, jax.numpy as jnp, numpy as np, fxgrad
x, (first, second) = np.arange(4, dtype=np.float32), jax.devices()
spread = jax.sharding.NamedSharding(jax.sharding.Mesh([first, second], ("i",)), jax.sharding.PartitionSpec("i"))
seen = []
for maker in (fxgrad.jit, jax.jit):
    traces = []
    function = maker(lambda x: traces.append(1) or x + 1.0)
    for place in (first, second, spread, None) * 2:
        result = function(jnp.asarray(x) if place is None else jax.device_put(x, place))
        np.testing.assert_array_equal(result, x + 1.0)
        seen.append((maker.__module__, [device.id for device in result.sharding.device_set], result.committed))
    seen.append(len(traces))
assert [each[1:] if type(each) is tuple else each for each in seen[:9]] == [
    each[1:] if type(each) is tuple else each for each in seen[9:]], seen
"""


@pytest.mark.slow
def test_devices_and_shardings_are_told_apart_by_jax() -> None:
    """In a process of two devices: results lie where jax's own do, by as many traces."""
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "2"}
    done = subprocess.run([sys.executable, "-c", PLACES], env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


# --- of 64 bits, without and with the scope ------------------------------------------------------------------------


def test_wide_values_computed_from_narrow_ones_are_one_more_trace() -> None:
    function, traces = counted(lambda x: x.astype("float64") / 3 if x.ndim == 2 else x / 3)
    square = np.ones((2, 2), np.float32)
    for _ in range(3):
        for given in (X, jnp.asarray(X), square, jnp.asarray(square)):
            result = function(given)
            assert result.dtype == (np.float64 if given.ndim == 2 else np.float32)
            assert isinstance(result, jax.Array) == (given.ndim == 1 or isinstance(given, jax.Array))
            np.testing.assert_allclose(result, np.asarray(given) / result.dtype.type(3), rtol=0)
    assert len(traces) == 2


def test_a_function_that_is_traced_anew_with_other_widths() -> None:
    """jax traces again when its caches are cleared; what the function closes over may be another then."""
    dtype = "float32"
    function, traces = counted(lambda x: x.astype(dtype) / 3)
    third = jnp.ones(2, "float32")
    for dtype in ("float32", "float64", "float32"):
        jax.clear_caches()
        for _ in range(2):
            result = function(third)
            assert result.dtype == dtype
            np.testing.assert_array_equal(result, np.ones(2, dtype) / np.array(3, dtype))
    assert len(traces) >= 3


def test_numpy_keys_in_containers_where_there_were_none() -> None:
    function = fxgrad.jit(lambda tree: fxgrad.random.uniform(tree["key"]) if "key" in tree else tree["x"] * 2.0)
    key = fxgrad.random.key(3)
    for _ in range(2):
        assert float(function({"x": np.float32(2.0)})) == 4.0
        assert float(function({"key": key})) == float(fxgrad.random.uniform(key))


def test_results_of_64_bits_are_arrays_of_ours_unless_an_argument_is_one_of_jax() -> None:
    x = np.ones(3)
    for _ in range(2):  # with an executable of its own, and with a shared one
        function = fxgrad.jit(doubled)
        for _ in range(3):
            for given, kind in [(x, fxgrad.Array), (fnp.asarray(x), fxgrad.Array), (wide(x), jax.Array)]:
                for result in (function(given), function([given])[0]):
                    assert isinstance(result, kind)
                    assert result.block_until_ready() is result


def test_the_scope_is_entered_where_there_are_64_bits_alone() -> None:
    for k in (2.0, 3.0, 4.0):  # the first has an executable of its own, the others share
        function = fxgrad.jit(lambda x, k=k: x * k)
        for given, is_scoped in [(X, False), (jnp.asarray(X), False), (np.ones(3), True), (2.0, True), (2, True)]:
            for _ in range(3):
                function(given)
            assert [plan.scoped for plan in recent(function) if plan.fits((given,), {})] == [is_scoped]


def test_what_jax_traced_for_a_stage_is_used_by_calls() -> None:
    function, traces = counted(lambda x: x * 2.0)
    function.lower(X)  # type: ignore[attr-defined]
    for _ in range(2):
        np.testing.assert_array_equal(function(X), X * 2)
        np.testing.assert_array_equal(function(jnp.asarray(X)), X * 2)
    assert len(traces) == 1


def test_a_call_with_a_plan_is_recorded_where_all_is_recorded() -> None:
    inner = fxgrad.jit(lambda x: x * x)
    for _ in range(3):
        assert float(inner(3.0)) == 9.0
    program = fxgrad.make_program(lambda x: inner(3.0) * x)(1.0)
    assert [equation.primitive.name for equation in program.equations] == ["jit_call", "mul"]


# --- tables ----------------------------------------------------------------------------------------------------------


def test_many_signatures_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_PLANS", 6)
    function, traces = counted(lambda x: x + 1.0)
    for _ in range(3):
        for size in range(9):
            np.testing.assert_array_equal(function(np.zeros(size, np.float32)), np.ones(size))
    assert len(traces) == 9


@pytest.mark.parametrize("given", [{"a": jnp.ones(3)}, jnp.ones(3), (jnp.ones(3),) * 20], ids=["dict", "array", "many"])
def test_every_function_has_a_plan_at_its_third_call(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where arrays of jax's were not met before, and with a shared executable."""
    monkeypatch.delitem(keys._ATTRIBUTES, type(jnp.ones(1)))
    for k in (2.0, 3.0, 4.0):
        def scaled(tree: Any, k: float = k) -> Any:
            return jax.tree.map(lambda x: x * k, tree)
        function = fxgrad.jit(scaled)
        for _ in range(2):
            function(given)
        assert [plan.fits((given,), {}) for plan in recent(function)] == [True]


@pytest.mark.parametrize("positional", [0, 6, FEW])
def test_arguments_by_keyword_count_among_many(positional: int) -> None:
    static = StaticArguments(lambda *args, **kwargs: None, None, None)
    for count in (FEW, FEW + 1):
        named = {f"x{number}": 1.0 for number in range(count - positional)}
        assert key_of(static, (1.0,) * positional, named).is_full == (count == FEW)


def test_clear_cache_traces_anew() -> None:
    k = 2.0
    function, traces = counted(lambda x: x * k)
    assert [float(function(3.0)) for _ in range(3)] == [6.0] * 3
    k = 5.0
    assert float(function(3.0)) == 6.0
    function.clear_cache()  # type: ignore[attr-defined]
    assert [float(function(3.0)) for _ in range(3)] == [15.0] * 3
    assert len(traces) == 2


def test_clear_cache_of_functions_that_share() -> None:
    held = [2.0]
    for _ in range(3):
        function = fxgrad.jit(lambda x: x * held[0])
        for held[0] in (2.0, 3.0):
            function.clear_cache()
            for _ in range(3):
                assert float(function(3.0)) == 3.0 * held[0]


def test_trees_with_the_same_leaves() -> None:
    for k in (2.0, 3.0, 4.0):
        function = fxgrad.jit(lambda tree, k=k: jax.tree.map(lambda x: x * k, tree))
        for _ in range(3):
            for tree in ({"a": X}, {"b": X}, [X], (X,)):
                result = function(tree)
                assert jax.tree.structure(result) == jax.tree.structure(tree)
                np.testing.assert_array_equal(jax.tree.leaves(result)[0], X * np.float32(k))


HERE = Path(plans.__file__).parent


def raised_in_jit(work: Callable[[], Any]) -> list[str]:
    """The exceptions that pass through the files of jitted calls while `work` runs."""
    found: list[str] = []

    def tracing(frame: Any, event: str, argument: Any) -> Any:
        if event == "exception" and Path(frame.f_code.co_filename).parent == HERE and argument[0] is not GeneratorExit:
            found.append(f"{argument[0].__name__} in {frame.f_code.co_name}")
        return tracing

    before = sys.gettrace()
    sys.settrace(tracing)
    try:
        work()
    finally:
        sys.settrace(before)
    return found


def calls() -> None:
    function = fxgrad.jit(lambda x, n=1: x.astype("float64") / n if np.ndim(x) == 2 else x * n)
    for x in (jnp.asarray(X), X, wide(np.ones(3)), X[:2], 2.0, 2**40, X[:, None], np.float64(2.0), fnp.asarray(X)):
        function(x), function(x, 2), function(x, n=jnp.asarray(2))
    for k in (2.0, 3.0, 4.0):
        shared = fxgrad.jit(lambda x, k=k: jax.tree.map(lambda y: y * k, x))
        for x in (X, X, X[:2], {"a": X}, {"a": X}, [X, 1.0], 1.0, (jnp.asarray(X),) * 20):
            shared(x)
    static = fxgrad.jit(lambda x, n: x * n, static_argnums=1, donate_argnums=0)
    static(X, 1), static(X, 2), static(jnp.asarray(X), 2)
    draw = fxgrad.jit(fxgrad.random.uniform)
    draw(fxgrad.random.key(0)), draw(fxgrad.random.key(1))
    fxgrad.grad(lambda x: np.sum(function(x)))(X)


@pytest.mark.slow
def test_no_call_is_run_by_way_of_an_exception() -> None:
    fxgrad.jit(lambda x: x + 1.0)(1.0)  # after which there is a scope to be used again
    assert raised_in_jit(calls) == []


def test_an_exception_is_seen_by_the_test_above() -> None:
    def failing() -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            fxgrad.jit(lambda x: x * int("no"))(X)
    assert "ValueError in call" in raised_in_jit(failing)
