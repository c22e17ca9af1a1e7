"""The two executors: generated code, ownership of results, dtypes, and which one runs when."""

from __future__ import annotations

import threading
import types
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import fxgrad
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.executors import xla as xla_executor
from fxgrad.engine.executors.numpy import _RUNNER
from fxgrad.engine.executors.platforms import platform_of


def test_interpreted_first_then_generated_and_equal_to_the_bit() -> None:
    x = np.random.default_rng(0).normal(size=(5, 7))
    program = fxgrad.make_program(fxgrad.grad(lambda x: np.sum(np.tanh(x @ x.T) ** 3)))(x)
    assert _RUNNER.of(program) is None
    first = program(x)
    assert _RUNNER.of(program) is None
    second = program(x)
    assert _RUNNER.of(program) is not None
    np.testing.assert_array_equal(first, second)


def test_generated_code_drops_values_and_dead_equations() -> None:
    def f(x):
        np.cos(x)  # dead
        y = np.sin(x)
        return y * 2.0 + 1.0

    program = fxgrad.make_program(f)(np.ones(3))
    source, _ = numpy_executor.generate(program)
    assert source.count("=") == 3
    assert "del" in source


def test_results_are_no_views() -> None:
    x = np.arange(6.0).reshape(2, 3)
    program = fxgrad.make_program(lambda x: (x, x, x.T, x[0], np.broadcast_to(x[0], (4, 3)), x.reshape(6)))(x)
    for _ in range(2):  # interpreted, generated
        results = program(x)
        for index, result in enumerate(results):
            assert result.flags.writeable
            assert not np.shares_memory(result, x)
            assert not any(np.shares_memory(result, other) for other in results[index + 1:])


def test_scalars_are_numpy_scalars() -> None:
    for _ in range(2):
        assert isinstance(fxgrad.grad(lambda x: x * x)(np.array(2.0)), np.float64)
        assert isinstance(fxgrad.grad(lambda x: x)(np.array(2.0, np.float32)), np.float32)


def test_numpy_in_numpy_out_and_jax_in_jax_out() -> None:
    gradient = fxgrad.grad(lambda x, y: fxgrad.numpy.sum(x * y), argnums=(0, 1))
    assert all(type(result) is np.ndarray for result in gradient(np.ones(3), np.ones(3)))
    for mixed in ((jnp.ones(3), np.ones(3, np.float32)), (np.ones(3, np.float32), jnp.ones(3))):
        assert all(isinstance(result, jax.Array) for result in gradient(*mixed))


def test_float64_on_jax_arrays() -> None:
    with jax.enable_x64(True):
        x = jnp.arange(3.0, dtype=jnp.float64)
    result = fxgrad.grad(lambda x: np.sum(x ** 3))(x)
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, [0.0, 3.0, 12.0])
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64])
def test_both_executors_agree_in_shape_and_dtype(dtype) -> None:
    x = np.linspace(0.1, 0.9, 6).reshape(2, 3).astype(dtype)

    def f(x):
        return np.exp(x) @ np.sin(x).T, np.sum(x, axis=0), x * 2 + 1, np.mean(x), x[0, 1]

    for ours, compiled in zip(fxgrad.make_program(f)(x)(x), fxgrad.jit(f)(x), strict=True):
        assert ours.dtype == compiled.dtype == np.dtype(dtype)
        assert ours.shape == compiled.shape
        wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
        np.testing.assert_allclose(np.asarray(ours).astype(wide), np.asarray(compiled).astype(wide),
                                   rtol=4 * float(jnp.finfo(dtype).eps) + 1e-6 * (np.dtype(dtype).itemsize == 4))


def test_one_program_in_many_threads() -> None:
    program = fxgrad.make_program(lambda x: np.sum(np.sin(x) ** 2 + np.cos(x) ** 2))(np.ones(1000))
    failures = []

    def work() -> None:
        results = [program(np.random.default_rng().normal(size=1000)) for _ in range(100)]
        failures.extend(result for result in results if abs(result - 1000.0) > 1e-9)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures


def test_no_numpy_warnings_from_within() -> None:
    assert np.isinf(fxgrad.grad(lambda x: np.log(x))(0.0))
    assert fxgrad.numpy.divide(np.ones(2), np.zeros(2))[0] == np.inf


def test_kernels_are_checked_at_level_two(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = fxgrad.Primitive("wrong", lambda x: [x], lambda x: [x.astype(np.float16)], lambda lax, x: [x],
                             fxgrad.NO_TANGENT, fxgrad.NOT_LINEAR, lambda size, values, axes: (values, axes),
                             lambda x: fxgrad.Cost(0, 0))
    monkeypatch.setattr(fxgrad.config, "check_level", 2)
    program = fxgrad.make_program(lambda x: fxgrad.bind(wrong, x)[0])(1.0)
    with pytest.raises(AssertionError, match="the numpy rule of wrong returned float16"):
        program(1.0)


def test_compiled_programs_are_kept() -> None:
    program = fxgrad.make_program(np.sin)(1.0)
    xla_executor.run_compiled(program, [jnp.ones(())])
    kept = program.memo["xla", False]
    xla_executor.run_compiled(program, [jnp.zeros(())])
    assert program.memo["xla", False] is kept


def test_cost_counts_products() -> None:
    program = fxgrad.make_program(lambda x: x @ x)(np.ones((10, 10)))
    assert fxgrad.cost_analysis(program) == (2000, 2400)


def test_the_platform_of_arrays_on_several_devices() -> None:
    devices = jax.devices()[:2]
    spread = jax.device_put(np.arange(4.0, dtype=np.float32), jax.sharding.NamedSharding(
        jax.sharding.Mesh(devices, ("i",)), jax.sharding.PartitionSpec("i")))
    assert len(spread.devices()) == 2
    assert platform_of([1.0, spread], compiled=False) == platform_of([1.0], compiled=False) == "cpu"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The processor, where jax is said to have a GPU that is its first device."""
    first = types.SimpleNamespace(platform="gpu", client=types.SimpleNamespace(platform_version="PJRT C API, cuda 13"))
    here = jax.devices("cpu")[0]
    monkeypatch.setattr(jax, "local_devices", lambda backend=None: [here if backend == "cpu" else first])
    return here


def test_the_platform_of_compiled_code_is_that_of_the_default_device(here: Any) -> None:
    assert platform_of([], compiled=True) == "cuda"
    assert platform_of([], compiled=False) == "cpu"
    with jax.default_device(here):
        assert platform_of([], compiled=True) == "cpu"
    with jax.default_device("cpu"):
        assert platform_of([], compiled=True) == "cpu"


def test_code_of_another_default_device_is_traced_again(here: Any) -> None:
    function = fxgrad.jit(lambda x: fxgrad.lax.platform_dependent(x, cpu=lambda x: x + 1, cuda=lambda x: x + 100))
    for _ in range(3):
        assert function(np.float32(1)) == 101
        for device in ("cpu", here):
            with jax.default_device(device):
                assert function(np.float32(1)) == 2
