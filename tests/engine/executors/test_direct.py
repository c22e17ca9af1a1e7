"""New and long programs are differentiated equation by equation: the same numbers as ever, and no table pushed out."""

from __future__ import annotations

import gc
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine import config
from fxgrad.engine.core import backends
from fxgrad.engine.core.backends import use_executor
from fxgrad.engine.executors import direct
from fxgrad.engine.tracing import interning, tape

CALLS = 6
X = np.array([0.3, -0.7, 1.1])


def tanh_chain(w: Any) -> Any:
    x = np.full(3, 0.1)
    for _ in range(20):
        x = np.tanh(x * w + 0.01)
    return np.sum(x)


def branching(w: Any) -> Any:
    total = np.sum(w)
    for step in range(15):
        total = total * 1.1 if total < 2.0 + step else np.sin(total)
    return total * np.sum(w * w)


def slices(w: Any) -> Any:
    for _ in range(6):
        w = np.concatenate([w[1:] * w[:-1], w[:1]]) + w[:-1].sum() - w[:-1].sum() * 0.5
    return np.sum(w)


def many_outputs(w: Any) -> Any:
    for _ in range(4):
        q, r = np.linalg.qr(np.outer(w, w) + np.eye(3))
        first, second = np.split(q @ w * r[0, 0], [1])
        w = np.concatenate([second, first]) * 0.5
    return np.sum(w * w)


def scalars(w: Any) -> Any:
    position, speed = w[0], 0.0
    for _ in range(20):
        speed = speed - 0.1 * (w[1] * position + w[2] * speed)
        position = position + 0.1 * speed
    return position


def partly_idle(w: Any) -> Any:
    seen = np.floor(w) + np.argmax(w)
    for _ in range(10):
        w = fxgrad.stop_gradient(w) * np.cos(w) + seen
    return np.sum(w[:2])


def complex_parts(w: Any) -> Any:
    z = w + 1j * w[::-1]
    for _ in range(10):
        z = z * z / (1.0 + np.abs(z))
    return np.sum(np.real(z)) + np.sum(np.abs(z))


FUNCTIONS = [tanh_chain, branching, slices, many_outputs, scalars, partly_idle, complex_parts]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.usefixtures("fresh_tables")
def test_direct_gradients_are_those_of_the_gradient_program(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slope = fxgrad.value_and_grad(function)
    expected = slope(X)
    fxgrad.clear_caches()
    used: list[Any] = []
    original = direct.gradients
    monkeypatch.setattr(direct, "LONG", 1)
    monkeypatch.setattr(direct, "gradients", lambda *args: used.append(original(*args)) or used[-1])
    for call in range(CALLS):
        value, gradient = slope(X)
        assert value == expected[0]
        np.testing.assert_array_equal(gradient, expected[1])
        assert type(gradient) is np.ndarray
        assert gradient.flags.writeable
        assert not np.shares_memory(gradient, X)
        assert call >= 3 or used[call] is not None
    assert used[3] is None  # from then on there is a gradient program
    assert len(used) == (CALLS if function is branching else 4)
    monkeypatch.setattr(direct, "MAX_COMPILED_EQUATIONS", 1)
    value, gradient = fxgrad.value_and_grad(lambda x: function(x) * 1.0)(X)
    np.testing.assert_allclose(value, expected[0], rtol=1e-12)
    np.testing.assert_allclose(gradient, expected[1], atol=1e-15, rtol=1e-12)


@pytest.mark.usefixtures("fresh_tables")
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_direct_gradients_are_as_narrow_as_the_arguments(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "LONG", 1)
    x = X.astype(dtype)
    for function in (slices, lambda w: np.sum(np.sin(w) * w), lambda w: w[0] * w[1] * 2.0):
        value, gradient = fxgrad.value_and_grad(function)(x)
        assert value.dtype == gradient.dtype == dtype
        _, back = fxgrad.vjp(function, x)
        assert back(1.0)[0].dtype == dtype
        for found, wanted in ((gradient, fxgrad.grad(function)(X)), (back(1.0)[0], fxgrad.grad(function)(X))):
            np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2)


def test_what_is_not_known_of_single_operations_takes_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = [lambda x: fxgrad.lax.fori_loop(0, 3, lambda i, c: c * x, x).sum(),
                 lambda x: np.sum(fxgrad.checkpoint(np.sin)(x) * x), lambda x: np.sum(fxgrad.nn.softmax(x) * x)]
    expected = [fxgrad.grad(function)(X) for function in functions]
    monkeypatch.setattr(direct, "LONG", 1)
    fxgrad.clear_caches()
    for function, gradient in zip(functions, expected, strict=True):
        for _ in range(CALLS):
            np.testing.assert_allclose(fxgrad.grad(function)(X), gradient, rtol=1e-12)


def test_auxiliary_values_and_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "LONG", 1)

    def function(x: Any, n: Any) -> Any:
        y = np.sin(x) * n
        return np.sum(y), {"y": y, "n": n, "name": "aux", "x": x}

    for _ in range(CALLS):
        both = fxgrad.value_and_grad(function, argnums=(0, 1), has_aux=True, allow_int=True)
        (value, aux), (slope, none) = both(X, 2)
        np.testing.assert_allclose(slope, 2.0 * np.cos(X), rtol=1e-12)
        np.testing.assert_allclose(aux["y"], 2.0 * np.sin(X), rtol=1e-12)
        assert value == np.sum(aux["y"])
        assert aux["name"] == "aux"
        assert none.dtype == fxgrad.dtypes.float0
        assert not np.shares_memory(aux["x"], X)


def test_errors_are_those_of_any_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "LONG", 1)
    with pytest.raises(fxgrad.errors.ArgumentError, match="scalar output"):
        fxgrad.grad(np.sin)(X)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_tables")
def test_recordings_beyond_a_size_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fxgrad.grad(tanh_chain)(X)
    fxgrad.clear_caches()
    monkeypatch.setattr(tape, "MAX_INTERNED_STEPS", 25)
    monkeypatch.setattr(direct, "LONG", 30)
    monkeypatch.setattr(direct, "MAX_COMPILED_EQUATIONS", 30)
    for _ in range(CALLS):
        np.testing.assert_allclose(fxgrad.grad(tanh_chain)(X), expected, rtol=1e-12)
        assert interning.num_recorded_operations() <= 50  # operations, and calls remembered at them
        assert gc.isenabled()
    for function in FUNCTIONS:
        value, gradient = fxgrad.value_and_grad(function)(X)
        output, tangent = fxgrad.jvp(function, (X,), (np.ones(3),))
        np.testing.assert_allclose(output, value, rtol=1e-12)
        np.testing.assert_allclose(tangent, np.sum(gradient), atol=1e-15, rtol=1e-12)
    jitted, compiled = fxgrad.jit(fxgrad.value_and_grad(tanh_chain))(X)
    np.testing.assert_allclose(compiled, expected, atol=1e-15, rtol=1e-12)
    np.testing.assert_allclose(jitted, tanh_chain(X), rtol=1e-12)
    assert not fxgrad.grad(lambda x: fnp.sum(x * 0.0))(X).any()


def with_containers(w: Any) -> Any:
    total = w["a"] * w["b"][0]
    for _ in range(5):
        total = np.sin(total) + w["b"][1]
    return {"total": total, "first": w["a"], "both": (total, np.sum(total)), "rounded": np.round(total).astype(int),
            "constant": 2.0}


PULLED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    **{function.__name__: (function, (X,)) for function in FUNCTIONS},
    "its argument": (lambda x: (x, x * 2.0, np.exp(x), np.exp(x)[::-1]), (X,)),
    "containers": (with_containers, ({"a": X, "b": [0.5, np.float64(2.0)]},)),
    "float32": (lambda x: np.tanh(x * x) * x, (X.astype(np.float32),)),
    "integers": (lambda x, n, k: np.sin(x * n) + k, (X, 3, np.arange(3))),
    "complex": (lambda z: z * z / (1.0 + np.abs(z)), (X + 1j * X[::-1],)),
    "numbers": (lambda a, b: a * np.sin(b) + b, (1.5, 2)),
    "nothing": (lambda x: np.zeros(3) + np.round(x) * 0.0, (X,)),
}


@pytest.mark.parametrize("name", PULLED)
@pytest.mark.usefixtures("fresh_tables")
def test_direct_pullbacks_are_those_of_the_linearized_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, primals = PULLED[name]

    def drawn(aval: Any, seed: int) -> Any:
        if not np.issubdtype(aval.dtype, np.inexact):
            return np.zeros(np.shape(aval), fxgrad.dtypes.float0)
        return np.random.default_rng(seed).normal(size=np.shape(aval)).astype(aval.dtype)[()]

    output, ordinary = fxgrad.vjp(function, *primals)
    cotangents = [fxgrad.tree.map(lambda leaf, seed=seed: drawn(np.asarray(leaf), seed), output) for seed in (0, 1)]
    expected = [ordinary(cotangent) for cotangent in cotangents]
    monkeypatch.setattr(direct, "LONG", 1)
    for call in range(CALLS):
        given = fxgrad.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, primals)
        got, pullback = fxgrad.vjp(function, *given)
        assert type(pullback).__name__ == ("LongPullback" if call < 2 else "Pullback")  # two calls each time
        if name == "slices":  # an argument of a jitted function
            jitted = fxgrad.jit(lambda back, cotangent: back(cotangent))(pullback, cotangents[1])
            np.testing.assert_allclose(jitted[0], expected[1][0], rtol=1e-12)
        results = [pullback(cotangent) for cotangent in cotangents]
        for leaf in fxgrad.tree.leaves((got, given, results)):  # nothing that is handed out is what is kept
            if isinstance(leaf, np.ndarray) and leaf.dtype != fxgrad.dtypes.float0:
                leaf[...] = 7
        again = [pullback(cotangent) for cotangent in cotangents]
        for a, b in zip(fxgrad.tree.leaves(again), fxgrad.tree.leaves(expected), strict=True):
            assert (np.shape(a), a.dtype, type(a)) == (np.shape(b), b.dtype, type(b))
            if a.dtype != fxgrad.dtypes.float0:
                np.testing.assert_allclose(a, b, rtol=1e-12 if a.dtype != np.float32 else 1e-5, atol=1e-14)
        assert fxgrad.tree.structure(again) == fxgrad.tree.structure(expected)
        got, _ = fxgrad.vjp(function, *primals)
        fxgrad.tree.map(np.testing.assert_array_equal, got, output)


def test_direct_pullbacks_of_traced_cotangents_and_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "LONG", 1)
    (value, _), pullback, aux = fxgrad.vjp(lambda x, k: ((np.sin(x) * k, x), {"x": x, "n": "name"}), X, 2.0, argnums=0,
                                           has_aux=True)
    np.testing.assert_allclose(value, 2.0 * np.sin(X), rtol=1e-12)
    assert aux["n"] == "name"
    np.testing.assert_array_equal(aux["x"], X)
    np.testing.assert_allclose(pullback((np.ones(3), None)), 2.0 * np.cos(X), rtol=1e-12)
    np.testing.assert_allclose(fxgrad.vmap(lambda c: pullback((c, None)))(np.eye(3)), np.diag(2.0 * np.cos(X)),
                               rtol=1e-12)
    assert fxgrad.grad(lambda c: np.sum(pullback((c, None))))(np.ones(3)) == pytest.approx(2.0 * np.cos(X))
    with pytest.raises(fxgrad.errors.TreeError, match="the cotangent"):
        pullback(np.ones(3))


def test_arrays_of_this_library_give_such_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = fnp.array(X)

    def total(x: Any) -> Any:
        return fnp.sum(fnp.sin(x) * x)

    def kinds() -> list[list[type]]:
        found = []
        for x, cotangent in ((ours, np.ones(3)), (X, np.ones(3)), (X, fnp.ones(3, "float64"))):
            output, pullback = fxgrad.vjp(lambda x: fnp.sin(x) * x, x)
            value, slope = fxgrad.value_and_grad(total)(x)
            found.append([*map(type, (output, *pullback(cotangent), value, slope))])
        return found
    ordinary = kinds()
    monkeypatch.setattr(direct, "LONG", 1)
    fxgrad.clear_caches()
    assert kinds() == ordinary
    assert ordinary[0] == [fxgrad.Array] * 4


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_gradients_have_the_dtypes_of_the_arguments(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "LONG", 1)
    fxgrad.clear_caches()
    x = np.dtype(dtype).type(0.5)
    slope = fxgrad.grad(lambda x: np.sin(x) * x, holomorphic=dtype == "complex64")(x)
    assert slope.dtype == dtype
    output, pullback = fxgrad.vjp(lambda x: np.sin(x) * x, x)
    assert pullback(output)[0].dtype == dtype


# --- the first call of any program ------------------------------------------------------------------------------


def of_library_functions(w: Any) -> Any:
    return np.mean(np.log(1.0 + np.exp(-w * w))) + np.var(w) + np.linalg.norm(w)


def of_a_pair(w: Any) -> Any:
    return np.sum(w * 2.0), np.sin(w)


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The direct attempts since, each with whether it succeeded."""
    found: list[bool] = []
    original = direct.gradients

    def noted(*args: Any) -> Any:
        result = original(*args)
        found.append(result is not None)
        return result
    monkeypatch.setattr(direct, "gradients", noted)
    return found


@pytest.mark.parametrize("function", [*(f for f in FUNCTIONS if f is not branching), of_library_functions])
@pytest.mark.usefixtures("fresh_tables")
def test_the_first_call_is_direct_and_later_ones_are_not(function: Any, uses: list[bool]) -> None:
    results = [fxgrad.value_and_grad(function)(X) for _ in range(4)]
    assert uses == [True, False]
    for value, gradient in results[1:]:
        assert (value, type(value)) == (results[0][0], type(results[0][0]))
        np.testing.assert_array_equal(gradient, results[0][1])
        assert gradient.flags.writeable


@pytest.mark.usefixtures("fresh_tables")
def test_numbers_complex_integers_and_auxiliary_values_at_the_first_call(uses: list[bool]) -> None:
    slope = fxgrad.grad(of_a_pair, has_aux=True)
    for _ in range(3):
        gradient, aux = slope(X)
        np.testing.assert_array_equal(gradient, np.full(3, 2.0))
        np.testing.assert_allclose(aux, np.sin(X), rtol=1e-15)
    assert float(fxgrad.grad(lambda x, n: x ** 2 * n)(3.0, 2)) == 12.0
    z = np.complex64(0.5 + 0.25j)
    holomorphic = fxgrad.grad(lambda z: z * z, holomorphic=True)(z)
    assert (holomorphic, holomorphic.dtype) == (2 * z, "complex64")
    gradient = fxgrad.grad(lambda x: np.sum(x * X[:0]))(X[:0])
    assert (gradient.shape, gradient.dtype) == ((0,), "float64")
    assert uses == [True, False, False, True, True, True]  # each call with auxiliary values finds its recording anew


@pytest.mark.usefixtures("fresh_tables")
def test_the_first_call_takes_the_long_way_where_it_would_compute_twice_or_otherwise(uses: list[bool]) -> None:
    @fxgrad.custom_jvp
    def double(x: Any) -> Any:
        return 2.0 * x
    double.defjvp(lambda primals, tangents: (2.0 * primals[0], 3.0 * tangents[0]))
    assert fxgrad.grad(lambda x: double(x) * x)(1.0) == 5.0
    assert fxgrad.grad(lambda x: x * x if x > 0 else -x)(1.0) == 2.0  # values computed for the branch are reused
    drawn = fxgrad.random.normal(fxgrad.random.key(0), (9,), dtype="float64")
    slopes = fxgrad.grad(lambda x, y: np.mean(np.log(y ** 2 * x + x)), (0, 1))(0.5, drawn)
    assert [*map(type, slopes)] == [fxgrad.Array, fxgrad.Array]
    np.testing.assert_allclose(fxgrad.grad(lambda x: np.sum(fxgrad.lax.fori_loop(0, 3, lambda i, c: c * x, x)))(X),
                               4.0 * X ** 3, rtol=1e-12)
    assert not any(uses)
    fxgrad.grad(lambda x: np.sum(np.sin(x) * x), memory_budget="1 MiB")(X)
    fxgrad.grad(fxgrad.grad(lambda x: np.sin(x) * x))(1.0)
    fxgrad.vmap(fxgrad.grad(lambda x: np.cos(x) * x))(X)
    fxgrad.jit(fxgrad.grad(lambda x: np.sum(np.exp(x) * x)))(X)
    with use_executor(backends.executor):
        fxgrad.grad(lambda x: np.sum(np.tanh(x) * x))(X)
    assert not any(uses)


@pytest.mark.usefixtures("fresh_tables")
def test_arguments_and_results_of_the_first_call_are_apart() -> None:
    x = X.copy()
    value, gradient = fxgrad.value_and_grad(lambda w: np.sum(w * 1.0))(x)
    gradient[...] = 7.0
    np.testing.assert_array_equal(x, X)
    (value, aux), _ = fxgrad.value_and_grad(lambda w: (np.sum(w), w), has_aux=True)(x)
    assert not np.shares_memory(aux, x)
    slope = fxgrad.grad(lambda w: fnp.sum(w * w))(fnp.array(X))
    assert isinstance(slope, fxgrad.Array)
    assert value == np.sum(X)


@pytest.mark.usefixtures("fresh_tables")
def test_first_calls_in_several_threads(uses: list[bool]) -> None:
    expected = [fxgrad.grad(tanh_chain)(X) for _ in range(3)][-1]
    fxgrad.clear_caches()
    with ThreadPoolExecutor(4) as threads:
        for gradient in threads.map(fxgrad.grad(tanh_chain), [X] * 16):
            np.testing.assert_array_equal(gradient, expected)
    assert any(uses[2:])


@pytest.mark.usefixtures("fresh_tables")
def test_checks_compare_the_first_call_with_the_gradient_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check_level", 1)
    original = direct.gradients

    def wrong(*args: Any) -> Any:
        outputs, gradients = original(*args)
        return outputs, [gradient * 2.0 for gradient in gradients]
    monkeypatch.setattr(direct, "gradients", wrong)

    def square(x: Any) -> Any:
        return x * x
    message = ("grad of square is 12.0 if its equations run directly, and 6.0 by its gradient program; this is a bug "
               "in the rules of an operation")
    with pytest.raises(AssertionError, match=f"^{re.escape(message)}$"):
        fxgrad.grad(square)(3.0)


@pytest.mark.usefixtures("fresh_tables")
def test_checks_of_the_first_call_allow_for_the_order_of_additions(monkeypatch: pytest.MonkeyPatch) -> None:
    # The cotangent of `X @ w` is row-major in the direct run, column-major in the program: BLAS adds in another order.
    monkeypatch.setattr(config, "check_level", 1)
    generator = np.random.default_rng(18)
    data, targets, starts = generator.normal(size=(25, 3)), generator.normal(size=25), generator.normal(size=(6, 3))

    def loss(ws: Any) -> Any:
        return np.mean(fxgrad.vmap(lambda w: np.sum(np.square((targets - data @ w) / 2.0) * -0.5))(ws))
    wanted = -(starts @ data.T - targets) @ data / 24.0
    np.testing.assert_allclose(fxgrad.grad(loss)(starts), wanted, rtol=1e-12)


@pytest.mark.usefixtures("fresh_tables")
def test_programs_with_large_values_keep_no_more_than_their_gradient_program(uses: list[bool]) -> None:
    def loss(x: Any) -> Any:
        return np.mean(np.exp(np.sin(x)))
    for size, direct_first in ((2**17, True), (2**19, False)):  # of 8 bytes, and two values of each size
        del uses[:]
        fxgrad.grad(loss)(np.ones(size))
        assert uses == [direct_first]


@pytest.mark.usefixtures("small_heap", "fresh_tables")
def test_a_first_call_leaves_nothing_to_the_cyclic_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the table is emptied, counting references frees the program, its values and its tape."""
    monkeypatch.setattr(config, "check_level", 0)  # the gradient program that checks make refers to the program
    matrix = np.arange(6.0).reshape(2, 3)

    def first_call() -> None:
        fxgrad.grad(lambda x: np.mean(np.log(1.0 + np.exp(matrix @ x))) + np.sum(np.sin(x) * 0.5))(np.ones(3))
        interning.clear()

    first_call()
    gc.collect()
    gc.disable()
    try:
        first_call()
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("body", [
    "np.sum(u * np.sum(u[0]))", "np.sum(u * np.sum(np.outer(u[0], u[1])))", "np.sum(np.sin(u) * np.sum(u[0] * u[1]))",
    "np.sum(np.broadcast_to(u[:, 0], (5, 30)).dot(u))", "np.sum(u.T @ np.broadcast_to(u[0], (30, 20)))",
    "np.sum(np.sum(u, axis=0) * np.broadcast_to(u[:1], (30, 20)))"])
def test_first_and_later_calls_on_transposed_arrays_are_equal_to_the_bit(body: str) -> None:
    """Sums depend on the order of the elements in memory, and products on whether repeated ones are stored."""
    for seed in range(12):
        scope: dict[str, Any] = {"np": np}
        exec(f"def new(x):\n    u = np.transpose(x + {seed})\n    return {body}", scope)  # code that has not run before
        x = np.random.default_rng(seed).uniform(-1.0, 1.0, (20, 30))
        gradient = fxgrad.grad(scope["new"])
        first = gradient(x)
        for _ in range(2):
            assert first.tobytes() == gradient(x).tobytes()


@pytest.mark.parametrize("product", [lambda x: x @ x.T, lambda x: x.T @ x, lambda x: np.sin(x) @ x.T])
def test_first_and_later_calls_on_arrays_that_repeat_elements_are_equal_to_the_bit(product: Any) -> None:
    """Products took arguments as they are: NumPy copies columns for such arrays, kernels rows."""
    x = np.broadcast_to(np.random.default_rng(0).uniform(-1.0, 1.0, 100), (70, 100))
    gradient = fxgrad.value_and_grad(lambda x: np.sum(np.sin(product(x))))
    value, first = gradient(x)
    for _ in range(3):
        again, later = gradient(x)
        assert value == again
        assert first.tobytes() == later.tobytes()
