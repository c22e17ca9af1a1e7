"""The tape and the table of programs: identity, capture, closing, threads, memory."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import config
from fxgrad.engine.api import custom
from fxgrad.engine.core.avals import Aval, is_unchanged
from fxgrad.engine.core.program import Program
from fxgrad.engine.ops.pointwise import add_p
from fxgrad.engine.tracing import interning
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.trace import SELECTIVE, SHARED, Mode, trace_at
from fxgrad.errors import LeakedTracerError

F64 = Aval((3,), np.dtype(np.float64))


def traced(function, *avals: Aval, mode: Mode = SELECTIVE):
    return trace_at(lambda *inputs: [function(*inputs)], avals, mode=mode)


def test_the_same_operations_give_the_same_program() -> None:
    first, _ = traced(lambda x: np.sin(x) * 2.0, F64)
    second, captured = traced(lambda x: np.sin(x) * 3.5, F64)
    assert first is second
    assert captured == [3.5]
    assert traced(lambda x: np.cos(x) * 2.0, F64)[0] is not first
    assert traced(lambda x: np.sin(x) * 2.0, Aval((4,), F64.dtype))[0] is not first


@pytest.mark.parametrize("number", [2 ** 63, 2 ** 64, -2 ** 63 - 1])
def test_integers_beyond_64_bits_are_refused(number: int) -> None:
    """A Python integer is an int64: NumPy's own choice for these would be uint64, or an array of objects."""
    for mode in (SELECTIVE, SHARED):
        with pytest.raises(OverflowError):
            traced(lambda x: bind(add_p, x, number)[0], Aval((), np.dtype(np.int64)), mode=mode)
    _, captured = traced(lambda x: bind(add_p, x, 2 ** 63 - 1)[0], Aval((), np.dtype(np.int64)))
    assert captured == [2 ** 63 - 1]
    assert captured[0].dtype == np.int64


def test_static_parameters_are_part_of_the_identity() -> None:
    square = Aval((2, 2), F64.dtype)
    assert traced(lambda x: np.sum(x, axis=0), square)[0] is not traced(lambda x: np.sum(x, axis=1), square)[0]
    assert traced(lambda x: x ** 2, F64)[0] is not traced(lambda x: x ** 3, F64)[0]


def test_transformations_are_remembered_on_the_program() -> None:
    made = []
    original = fxgrad.engine.derivation.derive.trace_at

    def f(x, k):
        return np.sum(np.sin(x) * k)

    fxgrad.clear_caches()
    for _ in range(2):  # the first run may need no program
        fxgrad.grad(f)(np.ones(3), 1.0)
    try:
        fxgrad.engine.derivation.derive.trace_at = lambda *args, **kwargs: (made.append(1),
                                                                            original(*args, **kwargs))[1]
        for k in (2.0, 3.0):
            fxgrad.grad(lambda x, k=k: f(x, k))(np.ones(3))
            fxgrad.grad(f)(np.full(3, k), k)
    finally:
        fxgrad.engine.derivation.derive.trace_at = original
    assert len(made) == 1  # the new lambda is another function, and its program is derived once


def test_selective_tapes_record_what_depends_on_their_inputs() -> None:
    outer = np.arange(3.0)
    program, captured = traced(lambda x: x + np.exp(outer), F64)
    assert [equation.primitive.name for equation in program.equations] == ["add"]
    np.testing.assert_array_equal(captured[0], np.exp(outer))
    staged, _ = traced(lambda x: x + fxgrad.numpy.exp(outer), F64, mode=SHARED)
    assert [equation.primitive.name for equation in staged.equations] == ["exp", "add"]


def test_one_captured_input_for_one_array() -> None:
    constant = np.arange(3.0)
    program, captured = traced(lambda x: (x * constant) + constant, F64)
    assert program.captured == len(captured) == 1


def test_leaked_tracers_are_refused() -> None:
    kept = []
    fxgrad.grad(lambda x: (kept.append(x * 2), x)[1])(1.0)
    uses = (lambda: kept[0] + 1.0, lambda: fxgrad.grad(lambda x: x * kept[0])(1.0),
            lambda: fxgrad.jit(np.sin)(kept[0]), lambda: bool(kept[0]))
    for use in uses:
        with pytest.raises(LeakedTracerError, match="was used after"):
            use()


def test_an_exception_leaves_no_tape_behind() -> None:
    def fail(x):
        raise KeyError("mine")

    for transformation in (fxgrad.grad, fxgrad.vmap, fxgrad.jit, fxgrad.checkpoint):
        with pytest.raises(KeyError):
            transformation(lambda x, t=transformation: fail(x))(np.ones(2))
        assert fxgrad.engine.tracing.tape.current.get() is None


def test_threads_and_tasks_do_not_meet() -> None:
    results = {}

    def work(k: int) -> None:
        for _ in range(50):
            results[k] = fxgrad.grad(lambda x: np.sum(x ** 2 * k))(np.full(3, 1.0 + k))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for k, result in results.items():
        np.testing.assert_array_equal(result, 2.0 * k * np.full(3, 1.0 + k))

    async def task(k: int) -> float:
        return float(fxgrad.grad(lambda x: x * k)(1.0))

    async def gather() -> list[float]:
        return await asyncio.gather(*(task(k) for k in range(5)))

    assert asyncio.run(gather()) == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_tables")
def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "interning_limit", 100)

    def f(x, n):
        for _ in range(n):
            x = np.sin(x)
        return x

    for n in range(1, 40):
        assert np.isfinite(fxgrad.grad(f)(0.5, n))
        assert interning.num_recorded_operations() <= 100


@pytest.mark.slow
@pytest.mark.usefixtures("small_heap", "fresh_tables")
def test_arrays_and_functions_are_not_kept_alive() -> None:
    class Held(np.ndarray):
        pass

    data = np.ones(3).view(Held)
    scale = np.full(3, 2.0).view(Held)

    def make(scale):
        return lambda x: np.sum(x * scale)

    f = make(scale)
    held = [weakref.ref(data), weakref.ref(scale)]
    fxgrad.grad(f)(data)
    fxgrad.grad(f)(data)
    function = weakref.ref(f)
    del data, scale, f
    gc.collect()
    assert [reference() for reference in held] == [None, None]
    assert function() is None


@pytest.mark.usefixtures("fresh_tables")
def test_changing_constants_do_not_grow_the_table() -> None:
    def call(k):
        return fxgrad.grad(lambda x: x * k + k ** 2)(1.0)

    call(0.5), call(0.7)
    before = interning.num_recorded_operations()
    for k in range(200):
        call(float(k))
    assert interning.num_recorded_operations() == before


def _custom_jvp() -> Callable[[Any], Any]:
    sine = fxgrad.custom_jvp(lambda x: np.sin(x))
    sine.defjvp(lambda primals, tangents: (sine(*primals), np.cos(primals[0]) * tangents[0]))
    return lambda x: fxgrad.grad(lambda x: sine(x) * x)(x)


def _custom_vjp() -> Callable[[Any], Any]:
    sine = fxgrad.custom_vjp(lambda x: np.sin(x))
    sine.defvjp(lambda x: (sine(x), x), lambda x, cotangent: (cotangent * np.cos(x),))
    return lambda x: fxgrad.grad(lambda x: sine(x) * x)(x)


def _custom_vmap() -> Callable[[Any], Any]:
    double = fxgrad.custom_batching.custom_vmap(lambda x: 2.0 * x)
    double.def_vmap(lambda size, batched, x: (2.0 * x, batched[0]))
    return lambda x: fxgrad.vmap(double)(np.full(2, x))


def _callback() -> Callable[[Any], Any]:
    return lambda x: fxgrad.vmap(lambda x: fxgrad.pure_callback(lambda x: 2.0 * x, x, x, vmap_method="expand_dims"))(
        np.full(2, x))


@pytest.mark.usefixtures("small_heap", "fresh_tables")
@pytest.mark.parametrize("make", [_custom_jvp, _custom_vjp, _custom_vmap, _callback])
def test_rules_made_anew_in_each_step_are_not_kept(
        make: Callable[[], Callable[[Any], Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interning, "MAX_FUNCTIONS", 32)
    monkeypatch.setattr(custom, "MAX_FUNCTIONS", 32)

    def run(count: int) -> int:
        for step in range(count):
            make()(float(step))
        gc.collect()
        return sum(type(held) is Program for held in gc.get_objects())

    few, many = run(64), run(128)  # the last 32 are kept
    assert many <= few


@pytest.mark.usefixtures("fresh_tables")
def test_rules_that_are_dropped_from_the_table_work_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interning, "MAX_FUNCTIONS", 32)
    monkeypatch.setattr(custom, "MAX_FUNCTIONS", 32)

    def make(factor: float) -> Callable[[Any], Any]:
        scaled = fxgrad.custom_jvp(lambda x: factor * x)
        scaled.defjvp(lambda primals, tangents: (scaled(*primals), 10.0 * factor * tangents[0]))
        return lambda x: scaled(x) * x

    functions = [make(float(number)) for number in range(80)]
    for _ in range(3):
        slopes = [fxgrad.grad(function)(2.0) for function in functions]
        assert slopes == [number * 2.0 + 10.0 * number * 2.0 for number in range(80)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "bool", "bfloat16"])
@pytest.mark.parametrize("size", [1, 100_000])
def test_captured_arrays_are_compared_bit_for_bit(dtype: str, size: int) -> None:
    array = np.zeros((size, 2), fxgrad.numpy.zeros((), dtype).dtype)
    changed = array.copy()
    assert is_unchanged(array, changed)
    assert is_unchanged(array[:, 1], changed[:, 0])
    changed[-1, 1] = True if dtype == "bool" else -0.0
    assert not is_unchanged(array, changed)
    assert is_unchanged(array[:, 0], changed[:, 0])
    assert not is_unchanged(array[:, 1], changed[:, 1])
    if dtype != "bool":
        changed[0, 0] = array[0, 0] = np.nan
        assert is_unchanged(array[:, 0], changed[:, 0])
