"""Calls of library functions on NumPy's values: replayed as generated code, with results that nobody can tell apart."""

from __future__ import annotations

import inspect
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, lax, nn, random
from fxgrad.engine.caches import clear_caches
from fxgrad.engine.core.arrays import Array, WeakArray
from fxgrad.engine.core.backends import use_executor
from fxgrad.engine.frontend import value_calls
from fxgrad.engine.frontend.value_calls import replay_on_values
from fxgrad.scipy import special, stats
from tests.engine.frontend.recorded_calls import plain, recorded
from tests.support.counting import Counting

pytestmark = pytest.mark.usefixtures("fresh_calls")
X = np.linspace(-1.5, 2.0, 12).reshape(3, 4)
POSITIVE = np.linspace(0.1, 2.0, 12).reshape(3, 4)
SQUARE = X[:, :3] + 4.0 * np.eye(3)
WHOLE = np.arange(12, dtype=np.int32).reshape(3, 4) - 5
KEY = random.key(3)

Call = Callable[[Any], Any]


def description(result: Any) -> Any:
    """All that can be told of a result."""
    if isinstance(result, tuple | list):
        return type(result), [*map(description, result)]
    if not isinstance(result, np.ndarray):
        return type(result), repr(result)
    return type(result), result.dtype, result.shape, result.strides, result.flags.num, result.tobytes()


def assert_replayed(function: Any, *args: Any) -> None:
    """Calls after the first few are replayed, and return what the function returns."""
    expected = description(plain(function, *args))
    for _ in range(value_calls.CALLS_BEFORE + 2):
        assert description(function(*args)) == expected
    assert any(call is not None for call in recorded()), "no call was recorded"


def often(function: Callable[..., Any], *args: Any) -> Any:
    """The result of the last of so many calls that it is replayed if any is."""
    return [function(*args) for _ in range(value_calls.CALLS_BEFORE + 1)][-1]


# --- results --------------------------------------------------------------------------------------------------------

REPLAYED: dict[str, Call] = {
    "exp": fnp.exp, "add": lambda x: fnp.add(x, x), "power": lambda x: fnp.power(x, 2),
    "number": lambda x: fnp.multiply(x, 0.1), "hypot": lambda x: fnp.hypot(x, x), "compare": lambda x: fnp.less(x, 1),
    "mean": fnp.mean, "mean of an axis": lambda x: fnp.mean(x, axis=0), "std": fnp.std, "var": fnp.var,
    "sum": lambda x: fnp.sum(x, axis=(0, 1), keepdims=True), "max": fnp.max, "argmax": fnp.argmax,
    "cumsum": fnp.cumsum, "median": fnp.median, "quantile": lambda x: fnp.quantile(x, 0.3),
    "sort": fnp.sort, "argsort": fnp.argsort, "flip": fnp.flip, "concatenate": lambda x: fnp.concatenate([x, x]),
    "stack": lambda x: fnp.stack((x, x), axis=-1), "split": lambda x: fnp.split(x, 2, axis=1),
    "reshape": lambda x: fnp.reshape(x, (4, 3)), "transpose": fnp.transpose, "tile": lambda x: fnp.tile(x, 2),
    "where": lambda x: fnp.where(x > 0, x, 0), "clip": lambda x: fnp.clip(x, 0, 1), "pad": lambda x: fnp.pad(x, 1),
    "linspace": lambda x: fnp.linspace(0.0, 1.0, 50), "arange": lambda x: fnp.arange(50), "eye": lambda x: fnp.eye(3),
    "zeros": lambda x: fnp.zeros((2, 3)), "zeros_like": fnp.zeros_like, "tril": fnp.tril,
    "matmul": lambda x: fnp.matmul(x, x.T), "einsum": lambda x: fnp.einsum("ij,kj->ik", x, x),
    "tensordot": lambda x: fnp.tensordot(x, x, 2), "outer": lambda x: fnp.outer(x, x),
    "norm": fnp.linalg.norm, "fft shift": lambda x: fnp.roll(x, 1, 1), "gradient": fnp.gradient,
    "polyval": lambda x: fnp.polyval(x[0], x), "cov": fnp.cov,
    "softmax": nn.softmax, "gelu": nn.gelu, "relu": nn.relu, "one_hot": lambda x: nn.one_hot(WHOLE[0], 5),
    "layer_norm": lambda x: nn.layer_norm(x, x[0], x[0]), "mse": lambda x: nn.mse_loss(x, x),
    "logsumexp": special.logsumexp, "logsumexp with factors": lambda x: special.logsumexp(x, 0, b=x[:, :1]),
    "gammaln": special.gammaln, "erf": special.erf, "logit": special.expit,
    "norm.logpdf": stats.norm.logpdf, "norm.cdf": lambda x: stats.norm.cdf(x, 0.5, scale=2.0),
    "gamma.logpdf": lambda x: stats.gamma.logpdf(x, 2.0), "poisson.logpmf": lambda x: stats.poisson.logpmf(WHOLE, 1.5),
    "operator %": lambda x: x.view(Array) % 2, "operator //": lambda x: x.view(Array) // 2,
    "operator **": lambda x: x.view(Array) ** 3,
}


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("name", REPLAYED)
def test_results_are_those_of_the_function(name: str, writable: bool) -> None:
    for dtype in ("float64", "float32"):
        x = X.astype(dtype)
        x.setflags(write=writable)
        assert_replayed(REPLAYED[name], x)


@pytest.mark.parametrize("name", ["exp", "mean", "std", "sum", "where", "sort", "power", "number", "softmax", "max"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool", "bfloat16", "float16", "complex64"])
def test_results_of_other_dtypes(name: str, dtype: str) -> None:
    x = (np.arange(12) % 5).reshape(3, 4).astype(fnp.bfloat16 if dtype == "bfloat16" else dtype)
    expected = plain(REPLAYED[name], x)
    assert description(often(REPLAYED[name], x)) == description(expected)
    assert (type(expected) is WeakArray) == (recorded()[-1] is None)  # of a bool and a number


LINEAR_ALGEBRA: dict[str, Call] = {
    "solve": lambda a: fnp.linalg.solve(a, a[0]), "inv": fnp.linalg.inv, "det": fnp.linalg.det,
    "slogdet": fnp.linalg.slogdet, "eigh": fnp.linalg.eigh, "qr": fnp.linalg.qr, "svd": fnp.linalg.svd,
}


@pytest.mark.parametrize("name", LINEAR_ALGEBRA)
def test_results_of_linear_algebra_and_named_tuples(name: str) -> None:
    assert_replayed(LINEAR_ALGEBRA[name], SQUARE)


DRAWS: dict[str, Call] = {
    "normal": lambda key: random.normal(key, (3, 4)), "uniform": lambda key: random.uniform(key, (3,), "float64"),
    "randint": lambda key: random.randint(key, (5,), 0, 10), "bits": lambda key: random.bits(key, (4,), "uint8"),
    "gumbel": lambda key: random.gumbel(key, (7,)), "split": random.split,
    "many": lambda key: random.normal(key, (300,)),
    "permutation": lambda key: random.permutation(key, X[0]),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_depend_on_the_key_alone(name: str) -> None:
    assert_replayed(DRAWS[name], KEY)
    for seed in range(3):
        key = random.key(seed)
        assert description(DRAWS[name](key)) == description(plain(DRAWS[name], key))


def test_layouts_are_part_of_the_key() -> None:
    base = np.linspace(0.0, 1.0, 60).reshape(5, 12)
    for x in (base[:3, :4], base[:3, :4].T.copy().T, base[::2, ::3], base[:3, 4:0:-1], base.T[:4, :3]):
        for f in (fnp.mean, nn.softmax, fnp.transpose, lambda x: fnp.sum(fnp.add(x, x), 0), fnp.ravel, fnp.exp):
            expected = description(plain(f, x))
            for _ in range(value_calls.CALLS_BEFORE + 2):
                assert description(f(x)) == expected


def test_empty_arrays_and_arrays_of_shape_() -> None:
    for x in (np.zeros((0, 3)), np.array(2.0), np.array(2, np.int32), np.ones((1, 1), np.float32)):
        for f in (fnp.sum, fnp.exp, lambda x: fnp.add(x, 1), lambda x: fnp.reshape(x, -1), fnp.std):
            with np.errstate(all="ignore"):
                assert description(often(f, x)) == description(plain(f, x))


# --- what sets two calls apart --------------------------------------------------------------------------------------


def test_numbers_are_told_apart_by_type_and_bits() -> None:
    x = WHOLE
    cases = [1, 1.0, True, 0, 0.0, -0.0, False, np.float32(1), np.float64(1), np.int64(1), float("nan"), float("inf"),
             1j, complex(0.0, -0.0), complex(-0.0, 0.0)]
    for f in (fnp.multiply, fnp.add, fnp.power):
        for number in cases * (value_calls.CALLS_BEFORE + 2):
            assert description(f(x, number)) == description(plain(f, x, number)), (f, number)
    for number in (float("nan"), -float("nan"), complex(1, float("nan")), complex(1, -float("nan"))) * 9:
        assert description(fnp.where(x > 1, x, number)) == description(plain(fnp.where, x > 1, x, number))
    signs = [fnp.copysign(np.ones(2), zero).tolist() for _ in range(9) for zero in (0.0, -0.0)]
    assert signs == [[1.0, 1.0], [-1.0, -1.0]] * 9


def test_a_nan_does_not_fill_the_table() -> None:
    for _ in range(20):
        fnp.clip(X, float("nan"), None)
    assert len(recorded(fnp.clip.__wrapped__)) == 1


BINARY = [name for name in fnp.__all__ if isinstance(function := getattr(fnp, name), fnp.ufunc) and function.nin == 2]
FLOATS = [0.1, 0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, float("nan"), float("inf"), -float("inf"), 1e300, -1e39, 1e-50,
          65520.0, 7.3, 1e-310]


QUICK = ("add", "divide", "maximum", "less", "remainder", "logaddexp", "power")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in BINARY])
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_any_float_may_stand_in_the_place_of_another(name: str, dtype: str) -> None:
    """Functions that only convert a float are recorded once for all."""
    function = getattr(fnp, name)
    x = (np.arange(7) - (0 if dtype in ("uint8", "bool") else 3)).astype(fnp.bfloat16 if dtype == "bfloat16" else dtype)
    for swapped in (False, True):
        for number in [*FLOATS[:1] * 6, *FLOATS, *FLOATS[::-1]]:
            args = (number, x) if swapped else (x, number)
            try:
                expected = plain(function, *args)
            except (errors.FxgradError, TypeError) as error:
                with pytest.raises(type(error)):
                    function(*args)
            else:
                assert description(function(*args)) == description(expected), number


def test_floats_are_one_call() -> None:
    for number in range(50):
        fnp.multiply(X, number / 7.0)
    assert len(value_calls._calls) == 1


def test_default_dtype_is_part_of_the_key() -> None:
    for dtype in ("float32", "float64", "float32", "bfloat16") * 3:
        with fxgrad.default_dtype(dtype):
            for f in (lambda: fnp.mean(WHOLE), lambda: fnp.zeros(3), lambda: fnp.linspace(0, 1, 5),
                      lambda: random.normal(KEY, (2,))):
                assert [str(often(f).dtype)] == [dtype]


def test_names_of_options_are_part_of_the_key() -> None:
    assert often(lambda: fnp.sum(X, axis=0)).shape == (4,)
    assert often(lambda: fnp.sum(X, axis=1)).shape == (3,)
    assert often(lambda: fnp.sum(X, keepdims=True)).shape == (1, 1)
    assert often(lambda: fnp.clip(X, min=0.0)).min() == 0.0
    assert often(lambda: fnp.clip(X, max=0.0)).max() == 0.0
    assert often(lambda: fnp.sum(X, dtype=np.float32)).dtype == np.float32
    assert often(lambda: fnp.sum(X, dtype=fnp.float16)).dtype == np.float16
    assert often(lambda: fnp.sum(X, dtype="float64")).dtype == np.float64


def test_operands_in_another_order_or_grouping() -> None:
    one, other = X[:1], X[1:2]
    assert description(often(fnp.subtract, one, other)) == description(plain(fnp.subtract, one, other))
    assert description(often(fnp.concatenate, [one, other])) == description(plain(fnp.concatenate, [one, other]))
    assert description(often(fnp.concatenate, [other, one])) == description(plain(fnp.concatenate, [other, one]))
    assert often(fnp.stack, [one[0], [1, 2, 3, 4]]).tolist() == [one[0].tolist(), [1, 2, 3, 4]]
    nested = often(lambda: fnp.array([[1.0, 2.0], [3.0, X[0, 0]]]))
    assert nested.shape == (2, 2)


def test_the_same_array_twice() -> None:
    assert_replayed(fnp.multiply, X, X)
    assert description(fnp.multiply(X, X + 1.0)) == description(plain(fnp.multiply, X, X + 1.0))


def test_other_classes_of_arguments_are_not_replayed() -> None:
    weak = fnp.where(X > 0, 1.0, 2.0)
    assert type(weak) is WeakArray
    for value in (weak, np.float32(2.0), 2, 0.5):
        value_calls._calls.clear()
        value_calls._counts.clear()
        result = often(fnp.square, value)
        assert description(result) == description(plain(fnp.square, value))
        assert not recorded(fnp.square.function)


def test_arrays_of_both_classes() -> None:
    own = fnp.asarray(X.astype(np.float32))
    for f in (fnp.exp, fnp.mean, fnp.ravel, fnp.asarray, lambda x: fnp.power(x, 2),
              lambda x: stats.expon.logsf(x, 0.1, 1.3)):
        for x in (np.asarray(own), own, own.copy(), np.asarray(own).copy()):
            assert description(often(f, x)) == description(plain(f, x))


# --- memory ---------------------------------------------------------------------------------------------------------


def test_arguments_may_change_in_place_between_calls() -> None:
    x = X.copy()
    for factor in range(8):
        x[0] = factor
        assert description(fnp.mean(x, axis=1)) == description(plain(fnp.mean, x, 1))


def test_views_stay_views_and_copies_copies() -> None:
    for f in (lambda x: fnp.reshape(x, (4, 3)), fnp.transpose, fnp.ravel, fnp.copy, fnp.positive, fnp.real, fnp.asarray,
              lambda x: fnp.broadcast_to(x, (2, 3, 4)), lambda x: fnp.squeeze(x[None]), lambda x: fnp.sum(x, ())):
        for x in (X.copy(), fnp.copy(X)):
            results = [f(x) for _ in range(8)]
            expected = plain(f, x)
            assert {np.shares_memory(result, x) for result in results} == {np.shares_memory(expected, x)}
            assert {result.flags.writeable for result in results} == {expected.flags.writeable}


def test_writability_follows_the_argument() -> None:
    frozen = X.copy()
    frozen.setflags(write=False)
    for f in (fnp.asarray, lambda x: stats.expon.logsf(x, 0.1, 1.3), lambda x: fnp.moveaxis(x[None], 0, 0), fnp.real):
        for x in (frozen, X.copy(), frozen) * 3:
            assert f(x).flags.writeable == plain(f, x).flags.writeable


def test_results_share_no_memory_with_each_other() -> None:
    for f in (lambda: fnp.linspace(0.0, 1.0, 5), lambda: fnp.zeros(3), lambda: fnp.eye(2), lambda: fnp.exp(X),
              lambda: fnp.tril(np.ones((2, 2)))):
        results = [f() for _ in range(8)]
        assert not any(np.shares_memory(one, other) for one in results for other in results if one is not other)


def test_large_constants_and_arrays_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert often(fnp.linspace, 0.0, 1.0, 100_000).shape == (100_000,)
    assert [*recorded()] == [None]
    monkeypatch.setattr(value_calls, "_LARGEST", 11)
    often(fnp.mean, X)
    assert recorded(fnp.mean.__wrapped__) == [None]


# --- functions that look at values ----------------------------------------------------------------------------------


def test_functions_that_need_values_run_as_they_are_written() -> None:
    for _ in range(3):
        assert often(fnp.unique, np.array([1, 2, 1])).tolist() == [1, 2]
        assert often(fnp.unique, np.array([1, 1, 1])).tolist() == [1]
        assert often(fnp.repeat, X[0, :2], np.array([1, 0])).shape == (1,)
        assert often(fnp.repeat, X[0, :2], np.array([2, 1])).shape == (3,)
        assert often(fnp.nonzero, np.array([0, 1]))[0].tolist() == [1]
    assert not any(recorded(fnp.repeat.__wrapped__))


def test_indices_out_of_range_are_found_at_every_call() -> None:
    for _ in range(8):
        assert fnp.take(X[0], np.array([0, 1])).shape == (2,)
        with pytest.raises(errors.IndexingError):
            fnp.take(X[0], np.array([0, 9]))
        assert fnp.take_along_axis(X, np.array([[1]]), 1).shape == (3, 1)
        with pytest.raises(errors.ArgumentError):
            fnp.quantile(X, np.array([0.5, 1.5]))


def test_a_question_whether_values_are_known_is_noted() -> None:
    """A function may do otherwise with known values, so it is not replayed; in programs inside it, too."""
    @replay_on_values
    def doubtful(x: Any) -> Any:
        lax.cond(True, lambda x: fnp.take(x, np.array([0])) if X.size else x, lambda x: x[:1], x)
        fnp.quantile(X, x[0] * 0.0)
        return fnp.add(x, 1.0)

    often(doubtful, X[0])
    assert recorded(doubtful.__wrapped__) == [None]


def test_a_function_that_goes_on_without_values_is_not_replayed() -> None:
    @replay_on_values
    def cautious(x: Any) -> Any:
        try:
            return fnp.add(x, float(x[0]))
        except errors.ConcretizationError:
            return fnp.add(x, 0.0)

    for first in range(8):
        x = np.array([float(first), 1.0])
        assert cautious(x).tolist() == (x + first).tolist()
    assert recorded(cautious.__wrapped__) == [None]


def test_results_that_are_one_array_stay_one() -> None:
    @replay_on_values
    def twice(x: Any) -> Any:
        y = fnp.exp(x)
        return [y, y]

    @replay_on_values
    def equal(x: Any) -> Any:
        return [fnp.exp(x), fnp.exp(x)]

    for function, shared in ((twice, True), (equal, False)):
        assert {np.shares_memory(*function(X)) for _ in range(8)} == {shared}


def test_errors_that_depend_on_values_come_at_every_call() -> None:
    singular = np.zeros((3, 3))
    for _ in range(8):
        assert fnp.linalg.inv(SQUARE).shape == (3, 3)
        with pytest.raises(np.linalg.LinAlgError) as raised:
            fnp.linalg.inv(singular)
        assert raised.value.__context__ is None
        with pytest.raises(np.linalg.LinAlgError):
            fnp.linalg.cholesky(-np.eye(3))
        assert fnp.linalg.cholesky(np.eye(3)).shape == (3, 3)


def test_errors_name_the_line_at_every_call() -> None:
    for _ in range(8):
        with pytest.raises(errors.ShapeError, match=r"test_value_calls\.py:"):
            fnp.add(X, X[0, :3])
        with pytest.raises(errors.AxisError, match=r"test_value_calls\.py:"):
            fnp.mean(X, axis=2)
        assert fnp.add(X, X).shape == fnp.mean(X[None], axis=0).shape


def test_effects_are_not_replayed() -> None:
    seen = []

    @replay_on_values
    def loud(x: Any) -> Any:
        fxgrad.debug.callback(lambda: seen.append("called"))
        return fnp.add(x, 1.0)

    for _ in range(8):
        loud(X)
    assert len(seen) >= 8
    assert recorded(loud.__wrapped__) == [None]


def test_user_functions_are_not_replayed() -> None:
    slope = [2.0]
    function = fnp.frompyfunc(lambda x: x * slope[0], 1, 1)
    assert often(function, X[0]).tolist() == (X[0] * 2.0).tolist()
    slope[0] = 3.0
    assert often(function, X[0]).tolist() == (X[0] * 3.0).tolist()
    assert fnp.apply_along_axis(lambda row: row * slope[0], 1, X).tolist() == (X * 3.0).tolist()


@pytest.mark.parametrize("level", [1, 3])
def test_checks_run_the_function_beside_its_code(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    """From `FXGRAD_CHECK=1` on, a function that depends on more than its arguments is found."""
    monkeypatch.setattr(fxgrad.config, "check_level", level)
    added = [1.0]

    @replay_on_values
    def impure(x: Any) -> Any:
        return fnp.add(x, added[0])

    often(impure, X)
    added[0] = 2.0
    with pytest.raises(AssertionError, match="impure: generated code for a call on values returned"):
        impure(X)


# --- where calls are not on values ----------------------------------------------------------------------------------


def test_transformed_functions_record_as_before() -> None:
    often(fnp.mean, X)
    often(fnp.linspace, 0.0, 1.0, 4)
    make = fxgrad.make_program(lambda x: fnp.mean(x) * fnp.sum(fnp.linspace(0.0, 1.0, 4)))
    program = make(X)
    value_calls._calls.clear()
    assert str(program) == str(make(X))
    assert fxgrad.grad(fnp.mean)(X).tolist() == np.full((3, 4), 1 / 12).tolist()
    assert fxgrad.vmap(nn.softmax)(X).shape == X.shape
    assert np.allclose(fxgrad.jit(fnp.std)(X), np.std(X))


def test_calls_within_a_traced_function_are_not_counted() -> None:
    for _ in range(8):
        fxgrad.grad(lambda w: fnp.sum(w * fnp.exp(fnp.mean(X))))(1.0)
    assert not recorded()


def test_a_leaked_tracer_is_found() -> None:
    leaked = []
    fxgrad.grad(lambda x: leaked.append(x) or x * 2.0)(1.0)
    for _ in range(8):
        with pytest.raises(errors.LeakedTracerError):
            fnp.add(X, leaked[0])
        fnp.add(X, 1.0)


def test_recordings_are_no_traces_of_the_user() -> None:
    with fxgrad.explain_retraces() as report:
        often(fnp.mean, X)
    assert "0 traces" in str(report)


def test_another_executor_computes_every_operation() -> None:
    often(fnp.std, X)
    counting = Counting()
    with use_executor(counting):
        fnp.std(X)
    assert len(counting.asked) > 3


def test_nans_are_found_in_replayed_calls() -> None:
    often(fnp.log, X[0])
    with fxgrad.debug_nans(True), pytest.raises(FloatingPointError):
        fnp.log(np.array([-1.0, 1.0, 2.0, 3.0]))


def test_warnings_stay_silent() -> None:
    with np.errstate(all="raise"):
        assert np.isnan(often(fnp.log, -POSITIVE)).all()
        assert np.isinf(often(fnp.divide, X, np.zeros_like(X))).all()


# --- the tables -----------------------------------------------------------------------------------------------------


def test_numbers_that_always_differ_leave_recorded_calls_alone() -> None:
    often(fnp.mean, X)
    before = recorded(fnp.mean.__wrapped__)
    for number in range(5000):
        fnp.clip(X[0], number + 0.5, None)
    assert len(value_calls._counts) <= value_calls._counts.size
    assert recorded(fnp.mean.__wrapped__) == before != []
    assert not recorded(fnp.clip.__wrapped__)


def test_more_types_than_the_table_holds_are_not_recorded_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording takes as long as many calls: after it was in vain, a call is recorded again after many more."""
    monkeypatch.setattr(value_calls._calls, "size", 3)
    recordings = []
    record = value_calls._record
    monkeypatch.setattr(value_calls, "_record", lambda *args: recordings.append(args) or record(*args))
    for _ in range(20):
        for n in range(5):
            fnp.mean(np.ones(n + 1))
    assert len(recordings) == 5
    assert len(value_calls._calls) <= 3
    for _ in range(60):
        for n in range(5):
            fnp.mean(np.ones(n + 1))
    assert len(recordings) <= 10


def test_calls_within_a_counted_call_are_not_recorded_for_themselves() -> None:
    often(nn.softmax, X)
    assert len(recorded()) == 1


def test_clear_caches_empties_the_tables() -> None:
    often(fnp.mean, X)
    clear_caches()
    assert not value_calls._calls
    assert not value_calls._counts
    assert_replayed(fnp.mean, X)


def test_threads() -> None:
    expected = {n: description(plain(fnp.std, np.arange(n) / 7.0)) for n in range(2, 20)}
    wrong = []

    def work() -> None:
        for _ in range(12):
            for n, found in expected.items():
                if description(fnp.std(np.arange(n) / 7.0)) != found:
                    wrong.append(n)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_functions_keep_their_names_and_are_pickled_where_they_were() -> None:
    assert fnp.mean.__name__ == "mean"
    assert "axis" in inspect.signature(fnp.mean).parameters
    assert pickle.loads(pickle.dumps(fnp.exp)) is fnp.exp
    assert str(inspect.signature(stats.norm.logpdf)) == "(x, loc=0, scale=1)"
