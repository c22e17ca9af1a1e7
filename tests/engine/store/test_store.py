"""The store of executables: a second process traces nothing, and its results are those of the first."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
from fxgrad.engine import config
from fxgrad.engine.api import jitted_functions, stored
from fxgrad.errors import ArgumentError
from fxgrad.training.autocast.classes import kinds
from tests.support.kept_by_jax import folder_of_jax

pytestmark = pytest.mark.usefixtures("compiled_anew")  # what jax reads from a folder of its own is not entered

ROOT = Path(__file__).resolve().parents[3]
X = np.array([0.1, -0.7, 1.3])


@pytest.fixture
def traces(tmp_path, monkeypatch) -> list[str]:
    """The names of the functions that were traced; there is a store, and no check traces what was loaded."""
    traced: list[str] = []
    plain = jitted_functions.trace_flat

    def trace(function: Any, avals: Any, what: str, fun: Any, **options: Any) -> Any:
        traced.append(getattr(fun, "__name__", "?"))
        return plain(function, avals, what, fun, **options)
    monkeypatch.setattr(jitted_functions, "trace_flat", trace)
    monkeypatch.setattr(config, "check_level", 0)
    monkeypatch.setattr(config, "executable_store", str(tmp_path / "store"))
    fxgrad.clear_caches()
    return traced


def new_process() -> None:
    """Forget what this process recorded and loaded; functions that are jitted anew begin as in another one."""
    fxgrad.clear_caches()


def entries(folder: Any = None) -> list[Path]:
    return sorted(Path(folder or config.executable_store).glob("*.fxgrad"))


def loss(w: Any, x: Any) -> Any:
    """A loss."""
    return np.sum(np.tanh(x * w) ** 2)


def gain(p: Any) -> Any:
    """A function of a container."""
    return {"sum": p["a"] + p["b"][0], "scaled": [p["a"] * 2.5]}


def outer(x: Any) -> Any:
    """A function that closes over an array."""
    return x + CLOSED


CLOSED = np.array([0.1, 0.2, 0.3])

CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "float64": (fxgrad.grad(loss), (X, X)),
    "float32": (fxgrad.grad(loss), (np.float32(X), np.float32(X))),
    "numbers": (lambda x, y: x * y, (0.1, 3)),
    "one weak number": (lambda x: x * 2, (1.0,)),
    "mixed": (lambda x, y: x * y, (np.float32(X), 0.1)),
    "integers": (lambda x, n: x + n, (np.arange(3), np.int8(3))),
    "bool": (lambda x: ~x, (np.array([True, False]),)),
    "complex": (lambda x: np.exp(x), (X * 1j,)),
    "half": (lambda x: x * x, (np.float16(X),)),
    "bfloat16": (lambda x: x * x, (X.astype(jnp.bfloat16),)),
    "empty": (lambda x: np.sum(x, axis=0), (np.zeros((0, 3)),)),
    "jax array": (lambda x: np.sin(x), (jnp.float32(X),)),
    "container": (gain, ({"a": np.float32(X), "b": [np.float32(X)]},)),
    "wide container": (gain, ({"a": X, "b": [0.1]},)),
    "many arguments": (lambda *x: sum(x), tuple(np.float32(X) for _ in range(20))),
    "keys": (lambda key: fxgrad.random.normal(key, (3,)), (fxgrad.random.key(7),)),
    "keys in a container": (lambda p: fxgrad.random.normal(p["key"], (3,)), ({"key": fxgrad.random.key(7)},)),
    "several outputs": (lambda x: (x, np.sum(x), None, {"n": x.shape[0] * x}), (X,)),
    "closure": (outer, (X,)),
    "none": (lambda x, y: x * 2.75, (X, None)),
    "loop": (lambda x: fxgrad.lax.scan(lambda c, y: (c * 0.9 + y, c), 0.0, x), (X,)),
    "value and gradient": (fxgrad.value_and_grad(loss, (0, 1)), (X, X)),
    "hessian": (fxgrad.hessian(loss), (X, X)),
    "vmap": (fxgrad.vmap(fxgrad.grad(loss)), (np.ones((4, 3)), np.ones((4, 3)))),
}


def assert_same(got: Any, expected: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert type(one) is type(other)
        assert one.dtype == other.dtype
        assert getattr(one, "weak_type", None) == getattr(other, "weak_type", None)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", [name if name in ("float64", "container", "keys") else pytest.param(
    name, marks=pytest.mark.slow) for name in CALLS])
def test_loaded_executables_return_what_compiled_ones_do(traces, name, monkeypatch) -> None:
    function, args = CALLS[name]
    with monkeypatch.context() as without:
        without.setattr(config, "executable_store", None)
        expected = fxgrad.jit(function)(*args)
    fxgrad.clear_caches()  # functions that record a program that another one recorded share its executable
    traces.clear()
    made = fxgrad.jit(function)
    for _ in range(3):
        assert_same(made(*args), expected)
    assert len(traces) == 1
    assert len(entries()) == 1
    new_process()
    loaded = fxgrad.jit(function)
    for _ in range(3):
        assert_same(loaded(*args), expected)
    assert_same(fxgrad.jit(function)(*args), expected)  # created anew: in the memory of this process
    assert len(traces) == 1


def test_calls_of_other_types_find_their_own(traces) -> None:
    calls = [(np.float32(X), np.float32(X)), (X, X), (np.float32(X), X), (jnp.float32(X), np.float32(X)),
             (np.ones((2, 3)), X), (0.5, X), (X, 0.5), (np.float32(0.5), X)]
    for _ in range(2):
        jitted = fxgrad.jit(fxgrad.grad(lambda w, x: np.sum(w * w * x)))
        for _ in range(2):
            for args in calls:
                got, expected = jitted(*args), fxgrad.grad(lambda w, x: np.sum(w * w * x))(*args)
                assert got.dtype == expected.dtype
                np.testing.assert_allclose(got, expected, rtol=1e-6)
        new_process()
    assert len(traces) == len(entries()) == 7  # NumPy's and jax's arrays of one type share


def test_containers_of_other_types_find_their_own(traces) -> None:
    calls = [{"a": np.float32(X), "b": [np.float32(X)]}, {"a": X, "b": [X]}, {"a": X, "b": [X, X]},
             {"a": 0.5, "b": [X]}]
    for _ in range(2):
        jitted = fxgrad.jit(gain)
        for _ in range(2):
            for p in calls:
                got = jitted(p)["sum"]
                assert got.dtype == gain(p)["sum"].dtype
                np.testing.assert_allclose(got, gain(p)["sum"], rtol=1e-6)
        new_process()
    assert len(traces) == len(entries()) == 4


class Pair:
    """A container that is flattened in an order that its file does not decide."""

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second


def _flatten(order: list[str], pair: Pair) -> Any:
    return [getattr(pair, name) for name in order], None


ORDER = ["first", "second"]
fxgrad.tree_util.register_pytree_node(Pair, functools.partial(_flatten, ORDER),
                                      lambda _, leaves: Pair(**dict(zip(ORDER, leaves, strict=True))))


def test_containers_flattened_in_another_order_find_their_own(traces) -> None:
    for order in (["first", "second"], ["second", "first"]) * 2:
        ORDER[:] = order
        assert fxgrad.jit(lambda pair: pair.first - pair.second)(Pair(3.0, 1.0)) == 2.0
        new_process()
    assert len(traces) == len(entries()) == 2


def test_weak_and_strong_values_are_told_apart(traces) -> None:
    strong, weak = jnp.float32(2.0), jax.jit(lambda x: x)(2.0)
    assert (strong.weak_type, weak.weak_type) == (False, True)
    for _ in range(2):
        jitted, of_container = fxgrad.jit(lambda x: x * 2), fxgrad.jit(lambda p: p["x"] * np.float16(2))
        for _ in range(2):
            for x in (strong, weak, strong, weak):
                assert jitted(x).weak_type == x.weak_type
                assert of_container({"x": x}).dtype == jax.jit(lambda x: x * jnp.float16(2))(x).dtype
            for number, dtype in ((0.5, np.float16), (np.float64(0.5), np.float16), (np.float32(0.5), np.float32)):
                assert of_container({"x": number}).dtype == dtype
        new_process()


@pytest.mark.parametrize("when", ["before", "afterwards"])
def test_nans_are_found(traces, when) -> None:
    jitted = fxgrad.jit(lambda x: np.log(x) + x)
    if when == "afterwards":
        jitted(X)
    with fxgrad.debug_nans(), pytest.raises(FloatingPointError) as caught:
        jitted(X)
    assert "NaN in the result of log" in str(caught.value)
    assert np.isnan(jitted(X)[1])


def test_static_arguments_choose_their_own(traces) -> None:
    for _ in range(2):
        jitted = fxgrad.jit(lambda x, n, scale=1: x ** n * scale, static_argnums=1, static_argnames="scale")
        for _ in range(2):
            for n, scale in ((2, 1), (3, 1), (2, 1.0), (2, 4), (3, 1)):
                np.testing.assert_allclose(jitted(X, n, scale=scale), X ** n * scale)
        new_process()
    assert len(traces) == len(entries()) == 4


def test_other_devices_are_compiled_for_by_jax(traces) -> None:
    if len(jax.devices()) < 2:
        pytest.skip("needs two devices")
    jitted = fxgrad.jit(lambda x: x * 2.5)
    here, there = (jax.device_put(jnp.float32(X), device) for device in jax.devices()[:2])
    for x in (here, there, here, there):
        got = jitted(x)
        assert got.devices() == x.devices()
        np.testing.assert_array_equal(got, np.float32(X) * np.float32(2.5))


def test_programs_for_several_devices_are_not_kept(traces) -> None:
    x = np.ones((4, 3), np.float32)
    for _ in range(2):
        mapped = fxgrad.pmap(lambda x, w: x * w, in_axes=(0, None))
        np.testing.assert_array_equal(mapped(x, np.float32(3.0)), 3 * x)
        new_process()
    mesh = fxgrad.make_mesh((4,), ("rows",))
    parts = fxgrad.shard_map(lambda x: x * 2, mesh=mesh, in_specs=fxgrad.P("rows"), out_specs=fxgrad.P("rows"))
    np.testing.assert_array_equal(fxgrad.jit(parts)(x), 2 * x)
    assert entries() == []


def test_donated_arguments_are_donated(traces) -> None:
    for _ in range(2):
        jitted = fxgrad.jit(lambda x: x + 1, donate_argnums=0)
        x = jnp.float32(X)
        np.testing.assert_array_equal(jitted(x), np.float32(X) + 1)
        assert x.is_deleted()
        new_process()
    assert len(traces) == 1


def test_a_changed_closure_and_global_are_seen(traces, monkeypatch) -> None:
    def made(scale: Any) -> Any:
        return fxgrad.jit(lambda x: x * scale)
    scales = [2.0, 3.0, np.float32(2.0), 2, True, np.array(2.0), np.array([2.0, 3.0, 4.0]), np.array([2.0, 3.0, 5.0])]
    for _ in range(2):
        for scale in scales:
            got = made(scale)(X)
            np.testing.assert_array_equal(got, X * scale)
        new_process()
    first = fxgrad.jit(outer)(X)
    monkeypatch.setattr(sys.modules[__name__], "CLOSED", np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(fxgrad.jit(outer)(X), X + np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(first, X + np.array([0.1, 0.2, 0.3]))


def test_settings_are_part_of_the_key(traces) -> None:
    def zeros(x: Any) -> Any:
        return fxgrad.numpy.zeros(3) + fxgrad.numpy.mean(x)
    x = np.arange(3, dtype=np.int32)
    assert fxgrad.jit(zeros)(x).dtype == np.float32
    with fxgrad.default_dtype("float64"):
        assert fxgrad.jit(zeros)(x).dtype == np.float64
    new_process()
    assert fxgrad.jit(zeros)(x).dtype == np.float32
    with fxgrad.default_matmul_precision("float32"):
        fxgrad.jit(zeros)(x)
    assert len(entries()) == 3


def test_facts_that_users_enter_are_part_of_the_key(traces) -> None:
    grow_p = fxgrad.Primitive(
        name="grow", abstract=lambda x: [x], numpy=lambda x: [np.exp(x)], xla=lambda lax, x: [lax.exp(x)],
        jvp=lambda primals, tangents: NotImplemented, transpose=fxgrad.NOT_LINEAR,
        batch=lambda size, values, axes: NotImplemented, cost=lambda x: fxgrad.Cost(x.size, x.nbytes))
    x = np.float32(X)

    def half(x: Any) -> Any:
        return fxgrad.bind(grow_p, x)[0]
    np.testing.assert_array_equal(fxgrad.jit(fxgrad.autocast(half))(x), jnp.exp(x))
    new_process()
    kinds.enter("half", grow_p)
    expected = jax.jit(lambda x: jnp.exp(x.astype(jnp.bfloat16)).astype(jnp.float32))(x)
    np.testing.assert_array_equal(fxgrad.jit(fxgrad.autocast(half))(x), expected)
    assert len(entries()) == 2


def test_functions_with_converted_control_flow_are_kept(traces) -> None:
    for _ in range(2):
        np.testing.assert_array_equal(fxgrad.jit(fxgrad.python_control_flow(branch))(X), 2 * X)
        new_process()
    assert len(traces) == len(entries()) == 1


def branch(x: Any) -> Any:
    """A function with a condition."""
    if x[0] > 0:
        return x * 2
    return x


def test_what_is_not_known_runs_as_without_a_store(traces) -> None:
    noise = fxgrad.jit(lambda x: x + np.random.normal() * 0)  # noqa: NPY002
    np.testing.assert_array_equal(noise(X), X)
    shown: list[Any] = []
    watched = fxgrad.jit(lambda x: (fxgrad.debug.callback(lambda y: shown.append(float(y)), x[0]), x * 2)[1])
    for _ in range(2):
        np.testing.assert_array_equal(watched(X), X * 2)
    jax.effects_barrier()
    assert shown == [0.1, 0.1]
    with pytest.raises(ArgumentError):
        fxgrad.jit(lambda x: x)("text")
    assert entries() == []


def test_inside_of_other_transformations_calls_are_recorded(traces) -> None:
    jitted = fxgrad.jit(lambda x: np.sum(np.sin(x)))
    np.testing.assert_allclose(jitted(X), np.sum(np.sin(X)))
    new_process()
    again = fxgrad.jit(lambda x: np.sum(np.sin(x)))
    np.testing.assert_allclose(again(X), np.sum(np.sin(X)))
    np.testing.assert_allclose(fxgrad.grad(again)(X), np.cos(X))
    assert "cosine" in again.lower(X).as_text() or "sine" in again.lower(X).as_text()
    np.testing.assert_allclose(again(X), np.sum(np.sin(X)))


def test_damaged_entries_are_made_again(traces) -> None:
    fxgrad.jit(outer)(X)
    (file,) = entries()
    content = file.read_bytes()
    for damage in (content[:40] + bytes([content[40] ^ 1]) + content[41:], content[:1000], b"", content[32:]):
        file.write_bytes(damage)
        new_process()
        np.testing.assert_array_equal(fxgrad.jit(outer)(X), X + CLOSED)
        assert file.stat().st_size > 1000
    assert len(traces) == 5


def test_an_entry_that_xla_cannot_load_is_made_again(traces) -> None:
    fxgrad.jit(outer)(X)
    folder, (file,) = stored.folder_in_use(), entries()
    folder.write(file.stem, b"signed, but of another version")
    new_process()
    np.testing.assert_array_equal(fxgrad.jit(outer)(X), X + CLOSED)
    assert len(traces) == 2
    assert file.stat().st_size > 1000


def test_what_jax_read_from_its_own_folder_is_not_entered(traces, tmp_path, monkeypatch) -> None:
    """XLA writes such an executable without its machine code: the next process would fail where it runs it."""
    def function(x: Any) -> Any:
        return np.sin(x) * 2.5 + x
    with folder_of_jax(tmp_path / "jax"):
        with monkeypatch.context() as without:
            without.setattr(config, "executable_store", None)
            expected = fxgrad.jit(function)(X)
        for _ in range(2):
            new_process()
            assert_same(fxgrad.jit(function)(X), expected)
            assert entries() == []
    new_process()
    assert_same(fxgrad.jit(function)(X), expected)
    assert len(entries()) == 1


def test_clear_caches_empties_the_memory(traces) -> None:
    fxgrad.jit(outer)(X)
    assert len(stored._loaded) == 1
    fxgrad.clear_caches()
    assert len(stored._loaded) == 0


def test_the_law_finds_another_program(traces, monkeypatch) -> None:
    hidden = {"scale": 2.0}
    monkeypatch.setattr(stored.Content, "digest", lambda _: "0" * 64)  # two functions of one key
    fxgrad.jit(lambda x: x * hidden["scale"])(X)
    monkeypatch.setattr(config, "check_level", 1)
    np.testing.assert_array_equal(fxgrad.jit(lambda x: x * hidden["scale"])(X), X * 2)
    hidden["scale"] = 3.0
    with pytest.raises(AssertionError) as caught:
        fxgrad.jit(lambda x: x * hidden["scale"])(X)
    assert str(caught.value).split("\n")[0] == (
        "the store of executables has another program for function than it records now; this is a bug in fxgrad, "
        "unless the function depends on what its code does not show (docs/appendix/stored-executables.md)")


def test_settings_of_the_store(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(config, "executable_store", None)
    monkeypatch.setattr(config, "executable_store_bytes", 2**30)
    assert fxgrad.config.read("executable_store") is None
    fxgrad.config.update("executable_store", tmp_path / "store")
    fxgrad.config.update("executable_store_bytes", 1000)
    assert fxgrad.config.read("executable_store") == str(tmp_path / "store")
    assert fxgrad.config.read("executable_store_bytes") == 1000
    fxgrad.jit(outer)(X)  # larger than the bound
    assert entries() == []
    fxgrad.config.update("executable_store", None)
    assert fxgrad.config.read("executable_store") is None


def test_what_is_no_function_and_no_folder_is_refused() -> None:
    with pytest.raises(ArgumentError) as raised:
        fxgrad.explain_store(loss(X, X))
    assert str(raised.value).split("\n")[0] == (
        "explain_store takes a function, got a float64. Write explain_store(f)(x), not explain_store(f(x))")
    with pytest.raises(ValueError, match=r"^executable_store must be the path of a folder, or None, got 3$"):
        fxgrad.config.update("executable_store", 3)


def test_a_folder_that_cannot_be_used_is_refused_where_it_is_set(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    before = config.executable_store
    with pytest.raises(ArgumentError, match=r"^the store of executables cannot use the folder .*/file/store: "):
        fxgrad.config.update("executable_store", tmp_path / "file" / "store")
    assert config.executable_store == before


def test_explanations() -> None:
    explained = fxgrad.explain_store(fxgrad.jit(fxgrad.grad(loss)))(X, X)
    line = loss.__code__.co_firstlineno
    assert str(explained) == ("the store keeps loss; the key covers the code and the values read by:\n"
                              f"  loss, {__file__}:{line}")
    assert explained.kept
    assert len(explained.key) == 64
    assert fxgrad.explain_store(fxgrad.grad(loss))(X, X).key == explained.key

    def noisy(x: Any) -> Any:
        return x + np.random.normal()  # noqa: NPY002
    refused = fxgrad.explain_store(noisy)(X)
    assert str(refused).replace("random.mtrand.", "random.") == (  # so before version 2.2 of NumPy
        f"the store does not keep noisy: {__file__}:{noisy.__code__.co_firstlineno + 1}: it uses "
        "numpy.random.RandomState.normal, whose results or effects its content does not decide")
    assert (refused.kept, refused.key, refused.line) == (False, "", noisy.__code__.co_firstlineno + 1)


# --- in other processes -----------------------------------------------------------------------------------------------

SCRIPT = """
import sys
import numpy as np, fxgrad
from fxgrad import optim
from fxgrad.engine.api import jitted_functions
count, plain = [], jitted_functions.trace_flat
jitted_functions.trace_flat = lambda *args, **options: (count.append(1), plain(*args, **options))[1]

def layer(x, p):
    return np.tanh(x @ p["w"] + p["b"]) * SCALE

def loss(params, x, y):
    for p in params:
        x = layer(x, p)
    return np.mean((x - y) ** 2)

SCALE = float(sys.argv[1])
adam = optim.adam(1e-2)

@fxgrad.jit
def step(params, state, x, y):
    value, gradients = fxgrad.value_and_grad(loss)(params, x, y)
    params, state = adam.update(gradients, state, params)
    return params, state, value

rng = np.random.default_rng(0)
params = [{"w": rng.normal(size=(4, 4)).astype("float32"), "b": np.zeros(4, "float32")} for _ in range(3)]
x, y = rng.normal(size=(2, 8, 4)).astype("float32")
state = adam.init(params)
for _ in range(3):
    params, state, value = step(params, state, x, y)
print(len(count), float(value).hex())
"""


def run(folder: Path, scale: str, script: str = SCRIPT, **variables: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FXGRAD_EXECUTABLE_STORE": str(folder), "FXGRAD_CHECK": "0",
                   "JAX_ENABLE_COMPILATION_CACHE": "0", **variables}
    done = subprocess.run([sys.executable, "-c", script, scale], capture_output=True, text=True, check=False,
                          timeout=300, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    count, value = done.stdout.split()
    return int(count), value


@pytest.mark.slow
def test_a_second_process_traces_nothing(tmp_path) -> None:
    first = run(tmp_path / "store", "1.0")
    assert first[0] > 0
    assert run(tmp_path / "store", "1.0", PYTHONHASHSEED="3") == (0, first[1])
    traced, value = run(tmp_path / "store", "0.5")  # another value of a global
    assert traced > 0
    assert value != first[1]
    assert run(tmp_path / "store", "0.5") == (0, value)
    changed = SCRIPT.replace("np.tanh", "np.sin")  # another helper
    traced, value = run(tmp_path / "store", "1.0", changed)
    assert traced > 0
    assert value != first[1]
    moved = SCRIPT.replace("def layer", "# A comment, and empty lines.\n\n\ndef layer")
    assert run(tmp_path / "store", "1.0", moved) == (0, first[1])
    assert run(tmp_path / "store", "1.0", XLA_FLAGS="--xla_cpu_enable_fast_math=false")[0] > 0
    assert run(tmp_path / "store", "1.0", FXGRAD_CHECK="1")[1] == first[1]  # the law
