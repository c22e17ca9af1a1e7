"""Dataflow: any order of the operations that are ready, on any number of threads, gives the same bits."""

from __future__ import annotations

import threading
import time
from typing import Any

import hypothesis
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import fxgrad
from fxgrad.engine.core import backends
from fxgrad.engine.executors import dataflow
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.errors import ArgumentError
from tests.support.random_programs import build, recipes, shapes

RNG = np.random.default_rng(0)
MATRICES = [m @ m.T + 3 * np.eye(80) for m in RNG.normal(size=(6, 80, 80))]


def logdets(*matrices: Any) -> Any:
    """A sum of what does not wait for each other."""
    return sum(np.linalg.slogdet(matrix)[1] + np.sum(np.tanh(matrix @ matrix)) for matrix in matrices)


def primitive_of(kernel: Any, name: str = "made") -> fxgrad.Primitive:
    """A primitive that NumPy alone computes, with results of the type of its operand."""
    def refuse(*_: Any, **__: Any) -> Any:
        raise NotImplementedError
    return fxgrad.Primitive(name, abstract=lambda x: [x], numpy=kernel, xla=refuse, jvp=refuse, transpose=refuse,
                            batch=refuse, cost=refuse)


def assert_same_bits(one: Any, other: Any) -> None:
    one, other = fxgrad.tree.leaves(one), fxgrad.tree.leaves(other)
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        assert type(left) is type(right)
        assert left.dtype == right.dtype
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes()


@pytest.fixture(autouse=True)
def _small_operations_are_large(monkeypatch, request) -> None:
    """Every operation wakes other threads, so that small programs use them."""
    if "sizes" not in request.fixturenames:
        monkeypatch.setattr(dataflow, "_LARGE", 0)


@pytest.fixture
def sizes() -> None:
    """A test of what is large."""


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(recipes(), shapes, st.integers(0, 2**32), st.integers(1, 4))
def test_row_a17_any_order_gives_the_same_bits(steps, shape, seed, threads) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=shape), rng.normal(size=shape)
    program = fxgrad.make_program(fxgrad.value_and_grad(build(steps, np), (0, 1)))(x, y)
    expected = numpy_executor.run_reference(program, [x, y])
    with fxgrad.dataflow(threads, seed=seed):
        got = backends.executor.execute(program, [x, y])
    assert [np.asarray(value).tobytes() for value in got] == [np.asarray(value).tobytes() for value in expected]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_transformations_give_the_same_bits(threads, seed) -> None:
    ways = {
        "grad": lambda: fxgrad.grad(logdets, (0, 1, 2))(*MATRICES[:3]),
        "vjp": lambda: fxgrad.vjp(logdets, *MATRICES[:2])[1](1.0),
        "jvp": lambda: fxgrad.jvp(logdets, MATRICES[:2], MATRICES[1:3]),
        "vmap": lambda: fxgrad.vmap(lambda a: logdets(a, 2.0 * a))(np.array(MATRICES[:3])),
        "hessian": lambda: fxgrad.hessian(lambda x: np.sum(np.sin(x) * x[::-1]))(np.arange(4.0)),
        "scan": lambda: fxgrad.grad(lambda x: np.sum(fxgrad.lax.scan(
            lambda c, y: (np.sin(c) + y, c), x, np.ones((5, 3)))[1]))(np.arange(3.0)),
        "float32": lambda: fxgrad.grad(logdets)(np.float32(MATRICES[0])),
        "library": lambda: fxgrad.grad(lambda x: np.sum(fxgrad.nn.softmax(x)[0]))(MATRICES[0][:3]),
        "scalars": lambda: fxgrad.grad(lambda x: np.sin(x) * np.cos(x))(0.5),
    }
    for way in ways.values():
        expected = way()
        for _ in range(2):
            with fxgrad.dataflow(threads, seed=seed):
                assert_same_bits(way(), expected)


def test_large_operations_run_at_the_same_time(sizes) -> None:
    large = np.ones((400, 400))
    running: list[int] = []
    most: list[int] = []
    lock = threading.Lock()

    def kernel(x: Any) -> list[Any]:
        with lock:
            running.append(1)
            most.append(len(running))
        time.sleep(0.05)
        with lock:
            running.pop()
        return [x + 1]
    slow = primitive_of(kernel)
    program = fxgrad.make_program(lambda x: sum(fxgrad.bind(slow, x * number)[0] for number in range(4)))(large)
    with fxgrad.dataflow(4):
        backends.executor.execute(program, [large])
    assert max(most) > 1
    most.clear()
    with fxgrad.dataflow(1):
        backends.executor.execute(program, [large])
    assert max(most) == 1


def test_effects_keep_their_order_and_their_thread() -> None:
    seen: list[tuple[int, str]] = []

    def note(number: int) -> Any:
        return lambda *_: seen.append((number, threading.current_thread().name))

    def function(x: Any) -> Any:
        parts = []
        for number in range(8):
            part = np.sin(x * number)
            fxgrad.debug.callback(note(number), part)
            parts.append(part)
        return np.sum(sum(parts))
    program = fxgrad.make_program(function)(np.ones(3))
    for seed in range(5):
        seen.clear()
        with fxgrad.dataflow(3, seed=seed):
            backends.executor.execute(program, [np.ones(3)])
        assert seen == [(number, threading.current_thread().name) for number in range(8)]


@pytest.mark.parametrize("seed", [None, *range(10)])
def test_the_error_is_that_of_the_first_operation(seed) -> None:
    def fail(text: str) -> Any:
        def kernel(x: Any) -> list[Any]:
            raise ValueError(text)
        return primitive_of(kernel, text)
    first, second = fail("first"), fail("second")

    def function(x: Any) -> Any:
        y = np.sin(x)
        return fxgrad.bind(first, np.cos(y))[0] + fxgrad.bind(second, x)[0] + np.sum(y)
    program = fxgrad.make_program(function)(np.ones(3))
    names = [equation.primitive for equation in program.equations if equation.primitive in (first, second)]
    expected = "first" if names[0] is first else "second"
    with fxgrad.dataflow(3, seed=seed), pytest.raises(ValueError, match=expected):
        backends.executor.execute(program, [np.ones(3)])


def test_values_are_dropped_after_their_last_use() -> None:
    program = fxgrad.make_program(lambda x: np.sum(np.sin(np.cos(np.tanh(x)))))(np.ones(3))
    run = dataflow._Run(program, [np.ones(3)], None)
    run.work(True)
    assert [*run.values] == [*program.outputs]


def test_results_share_no_memory() -> None:
    x = np.ones(3)
    with fxgrad.dataflow(2):
        one, other = fxgrad.vjp(lambda x: (x, x), x)[0]
        _, pullback = fxgrad.vjp(lambda x: x * x, x)
        gradient = fxgrad.grad(lambda x: np.sum(x * 1.0))(x)
    x[:] = 5.0
    np.testing.assert_array_equal(one, np.ones(3))
    np.testing.assert_array_equal(other, np.ones(3))
    np.testing.assert_array_equal(gradient, np.ones(3))
    np.testing.assert_array_equal(pullback(np.ones(3))[0], 2 * np.ones(3))


def test_settings_of_the_thread_hold_on_all_threads() -> None:
    def function(x: Any) -> Any:
        return sum(fxgrad.numpy.zeros(3) + fxgrad.numpy.log(x * 0.0) for _ in range(4))
    with np.errstate(all="raise"), fxgrad.default_dtype("float64"), fxgrad.dataflow(3):
        value = fxgrad.vmap(function)(np.ones((2, 3)))
    assert value.dtype == np.float64
    assert np.isneginf(value).all()


def test_arrays_of_jax_and_jitted_functions_are_left_to_xla() -> None:
    x = jnp.arange(3.0)
    with fxgrad.dataflow(2):
        got = fxgrad.grad(lambda x: (x ** 2).sum())(x)
        compiled = fxgrad.jit(fxgrad.grad(lambda x: np.sum(x ** 2)))(np.arange(3.0))
    assert isinstance(got, type(x))
    np.testing.assert_array_equal(got, 2 * np.arange(3.0))
    np.testing.assert_array_equal(compiled, 2 * np.arange(3.0))


def test_calls_within_callbacks_and_from_several_threads() -> None:
    results: list[Any] = []

    def inner(x: Any) -> Any:
        return np.asarray(fxgrad.grad(logdets)(np.eye(4) * float(x)))

    def outer(x: Any) -> Any:
        found = fxgrad.pure_callback(inner, fxgrad.ShapeDtypeStruct((4, 4), np.float64), x,
                                    vmap_method="sequential")
        return np.sum(found) * x

    def run() -> None:
        results.append(fxgrad.vmap(outer)(np.array([1.0, 2.0])))
    expected = fxgrad.vmap(outer)(np.array([1.0, 2.0]))
    with fxgrad.dataflow(2):
        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(results) == 3
    for result in results:
        assert_same_bits(result, expected)


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_wrong_counts_are_refused(threads) -> None:
    with pytest.raises(ArgumentError) as caught, fxgrad.dataflow(threads):
        pass
    assert str(caught.value).split("\n")[0] == (
        f"dataflow: threads={threads!r}, where a positive integer is needed, such as threads=2")


def test_what_is_large(sizes) -> None:
    def larges(function: Any, *args: Any) -> list[bool]:
        program = fxgrad.make_program(function)(*args)
        return [dataflow._is_large(equation) for equation in program.equations]
    assert not any(larges(lambda x: np.sin(x) * x, np.ones(1000)))
    assert all(larges(lambda x: np.sin(x) * x, np.ones(60_000)))
    assert any(larges(np.linalg.cholesky, np.eye(160)))
    assert not any(larges(np.linalg.cholesky, np.eye(100)))


def test_the_block_ends_with_its_threads() -> None:
    before = threading.active_count()
    with fxgrad.dataflow(4):
        fxgrad.grad(logdets)(MATRICES[0])
    assert threading.active_count() == before
    assert not isinstance(backends.executor, dataflow.DataflowExecutor)
