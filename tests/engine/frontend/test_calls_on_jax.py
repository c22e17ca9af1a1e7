"""Calls of library functions on arrays of jax: compiled once for each type of the arguments, with the same results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, lax, nn, random
from fxgrad.engine import config
from fxgrad.engine.executors import xla as xla_executor
from fxgrad.engine.frontend import value_calls
from fxgrad.scipy import linalg, signal, special, stats
from tests.engine.frontend.recorded_calls import plain, recorded

pytestmark = pytest.mark.usefixtures("fresh_calls")
X = np.linspace(-1.5, 2.0, 12, dtype=np.float32).reshape(3, 4)
SQUARE = X[:, :3] + 4.0 * np.eye(3, dtype=np.float32)
WHOLE = np.arange(12, dtype=np.int32).reshape(3, 4) - 5

Call = Callable[[Any], Any]


def types_of(result: Any) -> Any:
    """The classes of a result, and the types of its arrays."""
    if isinstance(result, tuple | list):
        return type(result), [*map(types_of, result)]
    return type(result), jax.typeof(result)


def assert_same(got: Any, expected: Any, rtol: float) -> None:
    assert types_of(got) == types_of(expected)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(*(np.asarray(each).astype(complex) for each in (one, other)), rtol=rtol, atol=rtol)


FUNCTIONS: dict[str, Call] = {
    "exp": fnp.exp, "add": lambda x: fnp.add(x, x), "power": lambda x: fnp.power(x, 2),
    "0.1": lambda x: fnp.add(x, 0.1),
    "hypot": lambda x: fnp.hypot(x, X), "less": lambda x: fnp.less(x, 1), "mean": fnp.mean, "std": fnp.std,
    "var": lambda x: fnp.var(x, axis=1, ddof=1), "sum": lambda x: fnp.sum(x, axis=(0, 1), keepdims=True),
    "argmax": lambda x: fnp.argmax(x, 0), "cumsum": fnp.cumsum, "median": lambda x: fnp.median(x, axis=1),
    "quantile": lambda x: fnp.quantile(x, 0.3), "sort": fnp.sort, "argsort": fnp.argsort,
    "split": lambda x: fnp.split(x, 2, axis=1), "stack": lambda x: fnp.stack((x, X), axis=-1),
    "where": lambda x: fnp.where(fnp.isfinite(x), x, 0), "clip": lambda x: fnp.clip(x, 0, 1),
    "pad": lambda x: fnp.pad(x, 1),
    "tril": fnp.tril, "einsum": lambda x: fnp.einsum("ij,kj->ik", x, x), "outer": lambda x: fnp.outer(x, x),
    "roll": lambda x: fnp.roll(x, 1, 1), "gradient": fnp.gradient, "polyval": lambda x: fnp.polyval(x[0], x),
    "cov": fnp.cov, "interp": lambda x: fnp.interp(x, x[0], x[1]), "histogram": lambda x: fnp.histogram(x, bins=3),
    "searchsorted": lambda x: fnp.searchsorted(x[0], x), "trapezoid": fnp.trapezoid, "diff": fnp.diff,
    "cross": lambda x: fnp.cross(x[:, :3], x[:, 1:]), "nanmean": fnp.nanmean, "average": fnp.average,
    "meshgrid": lambda x: fnp.meshgrid(x[0], x[1]), "fft": fnp.fft.fft, "softmax": nn.softmax,
    "norm": lambda x: fnp.linalg.norm(x), "solve": lambda x: fnp.linalg.solve(SQUARE, x[:, :2]),
    "svd": lambda x: fnp.linalg.svd(x), "det": lambda x: fnp.linalg.det(x[:, :3]), "lu": lambda x: linalg.lu(x),
    "expm": lambda x: linalg.expm(x[:, :3]), "convolve": lambda x: signal.convolve(x, x),
    "logsumexp": lambda x: special.logsumexp(x, axis=0), "gammaln": special.gammaln,
    "layer_norm": lambda x: nn.layer_norm(x, x[0], X[0]), "one_hot": lambda x: nn.one_hot(fnp.argmax(x, 1), 5),
}


def refusal(call: Callable[[], Any]) -> str:
    """The first line of the error of a call; "" without one."""
    try:
        call()
    except (errors.FxgradError, ValueError) as error:
        return str(error).split("\n")[0]
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "complex64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_the_function(name: str, dtype: str) -> None:
    with jax.enable_x64(True):
        x = jnp.asarray(X, dtype)
    if message := refusal(lambda: plain(FUNCTIONS[name], x)):
        assert refusal(lambda: FUNCTIONS[name](x)) == message
        return
    expected = plain(FUNCTIONS[name], x)
    rtol = {"float64": 1e-13, "bfloat16": 2e-2}.get(dtype, 2e-6)
    for _ in range(2):
        assert_same(FUNCTIONS[name](x), expected, rtol)
    assert any(call is not None for call in recorded()), "no function was compiled"


def test_second_calls_compute_no_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check_level", 0)  # checks compute it
    x = jnp.asarray(X)
    expected = nn.softmax(X)
    nn.softmax(x)
    evaluated: list[str] = []
    monkeypatch.setattr(xla_executor, "evaluate", lambda primitive, *_: evaluated.append(primitive.name))
    result = nn.softmax(x)
    assert not evaluated
    assert isinstance(result, jax.Array)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_operations_are_compiled_once() -> None:
    """One with a branch in its rule would be compiled by jax at every call."""
    x = jnp.asarray(X)
    xla_executor._operations.clear()
    for _ in range(3):
        np.testing.assert_array_equal(plain(fnp.sort, x), np.sort(X))
    assert [key[0].name for key in xla_executor._operations] == ["sort"]
    plain(fnp.sort, x.astype(jnp.int32))
    plain(lambda x: lax.sort(x, dimension=0), x)
    assert len(xla_executor._operations) == 3


def test_weak_types_are_part_of_the_key() -> None:
    """Both computed and compiled operations: a weak operand gives way."""
    weak, strong = jnp.asarray(2.0), jnp.asarray(2.0, jnp.float32)
    assert (weak.weak_type, strong.weak_type) == (True, False)
    half = jnp.ones(3, jnp.bfloat16)
    for call in (lambda *args: plain(fnp.multiply, *args), fnp.multiply):
        for _ in range(2):
            assert call(half, weak).dtype == jnp.bfloat16
            assert call(half, strong).dtype == jnp.float32
            assert call(weak, weak).weak_type
            assert not call(strong, weak).weak_type


def test_numbers_are_told_apart_by_type_and_bits() -> None:
    x = jnp.zeros(2, jnp.int32)
    for number in (1, True, 1.0, 1j):
        assert fnp.add(x, number).dtype == jnp.add(x, number).dtype
    y = jnp.asarray([-1.0, 1.0])
    for _ in range(2):
        for zero in (0.0, -0.0):
            np.testing.assert_array_equal(np.signbit(fnp.where(y > 5, y, zero)), [np.signbit(zero)] * 2)


def test_options_and_their_names_are_part_of_the_key() -> None:
    x = jnp.asarray(X)
    for _ in range(2):
        np.testing.assert_allclose(fnp.std(x, axis=0), np.std(X, axis=0), rtol=1e-6)
        np.testing.assert_allclose(fnp.std(x, ddof=0), np.std(X, ddof=0), rtol=1e-6)
        np.testing.assert_allclose(fnp.std(x, ddof=1), np.std(X, ddof=1), rtol=1e-6)
        assert fnp.sum(x, keepdims=True).shape == (1, 1)


def test_default_dtype_and_modes_of_jax() -> None:
    x = jnp.arange(4)
    assert fnp.mean(x).dtype == np.float32
    with jax.enable_x64(True):
        assert fnp.mean(jnp.arange(4)).dtype == np.float64
        assert fnp.mean(x).dtype == jnp.mean(x).dtype
    assert fnp.mean(x).dtype == np.float32


def test_wide_arrays_keep_their_dtype_without_x64_mode() -> None:
    with jax.enable_x64(True):
        x = jnp.asarray([0.1, 0.2, 0.3])
    for _ in range(2):
        result = fnp.std(x)
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, np.std([0.1, 0.2, 0.3]), rtol=1e-14)
        np.testing.assert_allclose(stats.norm.logpdf(x, 0.1, 2.0), scipy.stats.norm.logpdf(np.asarray(x), 0.1, 2.0),
                                   rtol=1e-14)
        np.testing.assert_allclose(fnp.hypot(jnp.ones(3), np.full(3, 0.1)), np.full(3, np.hypot(1, 0.1)), rtol=1e-15)


def test_changing_numbers_are_compiled_a_few_times_only() -> None:
    x = jnp.asarray(X)
    for step in range(3 * value_calls._VARIANTS_AT_ONCE):
        np.testing.assert_allclose(fnp.clip(x, 0.0, 0.1 * step), np.clip(X, 0.0, np.float32(0.1 * step)), rtol=1e-6)
    assert len([key for key in value_calls._calls if key[0].__name__ == "clip"]) <= value_calls._VARIANTS_AT_ONCE
    for _ in range(value_calls.CALLS_BEFORE):
        fnp.clip(x, 0.0, 100.0)
    assert any(100.0 in key for key in value_calls._calls), "a number that comes again is compiled"


def test_functions_that_need_values_run_as_they_are_written() -> None:
    x = jnp.asarray([2.0, 0.0, 2.0])
    for _ in range(2):
        np.testing.assert_array_equal(fnp.unique(x), [0.0, 2.0])
        np.testing.assert_array_equal(fnp.nonzero(x)[0], [0, 2])
        np.testing.assert_array_equal(fnp.repeat(x, jnp.asarray([1, 0, 2])), [2.0, 2.0, 2.0])
        np.testing.assert_array_equal(fnp.compress([True, False, True], x), [2.0, 2.0])


def test_known_indices_beside_arrays_of_jax_are_checked_at_every_call() -> None:
    x = jnp.asarray(X)
    for _ in range(3):
        np.testing.assert_array_equal(fnp.take(x, np.array([0, 2]), axis=0), X[[0, 2]])
        with pytest.raises(IndexError, match="take"):
            fnp.take(x, np.array([0, 3]), axis=0, mode="raise")


def test_results_that_depend_on_no_array_of_jax_stay_in_numpys_memory() -> None:
    x = jnp.asarray(X)
    for f in (fnp.zeros_like, fnp.shape, fnp.ones_like, lambda x: fnp.full_like(x, 2.0), fnp.size, fnp.ndim,
              lambda x: fnp.meshgrid(x[0], np.arange(3.0)), lambda x: fnp.broadcast_arrays(x, X)):
        expected = plain(f, x)
        for _ in range(2):
            assert jax.tree.map(type, f(x)) == jax.tree.map(type, expected)
    assert fnp.asarray(x) is x


def test_errors_name_the_line_at_every_call() -> None:
    x = jnp.asarray(X)
    for _ in range(2):
        with pytest.raises(errors.FxgradError) as raised:
            fnp.linalg.solve(x, x)
        assert "test_calls_on_jax.py" in str(raised.value)
        with pytest.raises(errors.FxgradError) as raised:
            fnp.add(x, jnp.ones(7))
        assert "test_calls_on_jax.py" in str(raised.value)


def test_tracers_of_jax() -> None:
    x = jnp.asarray(X)
    for _ in range(2):
        np.testing.assert_allclose(jax.jit(lambda x: fnp.std(x) + fnp.median(x))(x), np.std(X) + np.median(X),
                                   rtol=1e-6)
        np.testing.assert_allclose(jax.grad(lambda x: fnp.std(x))(x), (X - X.mean()) / (12 * X.std()), rtol=1e-5)
        np.testing.assert_allclose(jax.jit(lambda y: y + fnp.std(x))(1.0), 1 + np.std(X), rtol=1e-6)
    assert fxgrad.grad(lambda y: fnp.sum(y * fnp.std(x)))(jnp.ones(2)).shape == (2,)


def test_keys_of_jax() -> None:
    key = jax.random.key(3)
    own = random.key(3)
    for _ in range(2):
        for draw in (random.normal, random.uniform, lambda key, shape: random.gamma(key, 2.5, shape)):
            np.testing.assert_allclose(draw(key, (3,)), draw(own, (3,)), rtol=2e-6)
        one, other = random.split(key)
        assert jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key)
        np.testing.assert_array_equal(jax.random.key_data(other), random.key_data(random.split(own)[1]))


def test_placement_of_arguments() -> None:
    """Results lie where the arguments do; on Explicit axes each operation is computed on Auto ones."""
    first, second = jax.devices()[:2]
    for device in (first, second, first):
        assert fnp.std(jax.device_put(X, device)).devices() == {device}
    for kind in (AxisType.Auto, AxisType.Explicit):
        mesh = jax.make_mesh((2,), ("i",), axis_types=(kind,), devices=[first, second])
        x = jax.device_put(np.arange(8.0, dtype=np.float32), NamedSharding(mesh, PartitionSpec("i")))
        for _ in range(2):
            np.testing.assert_allclose(fnp.std(x), np.std(np.arange(8)), rtol=1e-6)
            np.testing.assert_array_equal(fnp.sort(-x), -np.arange(8.0)[::-1])
        with jax.set_mesh(mesh):
            np.testing.assert_allclose(fnp.std(x), np.std(np.arange(8)), rtol=1e-6)
            np.testing.assert_allclose(fnp.std(jnp.arange(8.0)), np.std(np.arange(8)), rtol=1e-6)


def test_nans_are_found() -> None:
    x = jnp.asarray([-1.0, 1.0])
    fnp.sqrt(x)
    fnp.std(x)
    message = r"NaN in the result of sqrt; its operands have none\n  at .*test_calls_on_jax\.py:\d+"
    with fxgrad.debug_nans(), pytest.raises(FloatingPointError, match=message):
        fnp.sqrt(x)
    with fxgrad.debug_nans():
        np.testing.assert_allclose(jax.jit(lambda x: fnp.sin(x))(x), np.sin([-1.0, 1.0]), rtol=1e-6)
        assert random.normal(jax.random.key(0), (2,)).shape == (2,)


def test_effects_happen_at_every_call() -> None:
    seen: list[int] = []

    def count(x: Any) -> Any:
        lax.optimization_barrier(x)
        fxgrad.debug.callback(lambda y: seen.append(int(y)), x)
        return fnp.add(x, 1)

    call = value_calls.replay_on_values(count)
    for number in range(3):
        call(jnp.asarray(number))
    jax.effects_barrier()
    assert seen == [0, 1, 2]


def test_checks_run_the_function_beside_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check_level", 1)
    call = value_calls.replay_on_values(lambda x: fnp.add(x, x))
    x = jnp.asarray(X)
    call(x)
    (key, other), = [(key, other) for key, other in value_calls._calls.items() if key[0] is call.__wrapped__]
    value_calls._calls[key] = value_calls._record_on_jax(fnp.exp, (x,), {}, [x], False)
    with pytest.raises(AssertionError, match="runs the program of another call"):
        call(x)
    value_calls._calls[key] = other
    np.testing.assert_array_equal(call(x), X + X)


def test_threads() -> None:
    x = jnp.asarray(X)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.extend(fnp.median(x, axis=1) for _ in range(5)))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20
    for result in results:
        np.testing.assert_allclose(result, np.median(X, axis=1), rtol=1e-6)
