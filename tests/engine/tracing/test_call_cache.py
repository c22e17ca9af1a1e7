"""Calls seen before: what is replayed is what would be recorded; nothing grows, and arrays that change are noticed."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import config
from fxgrad.engine.tracing import call_cache, interning, op_cache
from fxgrad.engine.tracing.call_cache import replay_calls
from fxgrad.engine.user_source import parse_source


def counted(function: Any) -> tuple[Any, list[Any]]:
    calls: list[Any] = []

    def counting(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return function(*args, **options)
    return replay_calls(counting), calls


@pytest.mark.usefixtures("fresh_tables")
def test_a_library_function_runs_once_for_equal_arguments() -> None:
    total, calls = counted(lambda x, axis=None: fnp.sum(x, axis))
    gradient = fxgrad.grad(lambda x: fnp.sum(total(x, axis=0) * total(x, axis=0)))
    for scale in (1.0, 2.0, 3.0):
        x = scale * np.ones((2, 3))
        np.testing.assert_array_equal(gradient(x), 4.0 * x)
    assert len(calls) == 2  # at two places, at the first call of the gradient


@pytest.mark.usefixtures("fresh_tables")
@pytest.mark.parametrize(("first", "second"), [
    (1, 1.0), (1, True), (0.0, -0.0), (2, 2j), (complex(1.0, 0.0), complex(1.0, -0.0)), ((0, 1), [0, 1])])
def test_equal_arguments_of_other_types_are_other_calls(first: Any, second: Any) -> None:
    seen = []
    keep, calls = counted(lambda x, argument: (seen.append(repr(argument)), fnp.add(x, x))[1])
    for argument in (first, second, first, second):
        fxgrad.grad(lambda x, argument=argument: keep(x, argument))(1.0)
    assert len(calls) == 2
    assert seen == [repr(first), repr(second)]


@pytest.mark.usefixtures("fresh_tables")
def test_numbers_are_told_by_their_place_and_keep_the_sign_of_zero() -> None:
    slope = fxgrad.value_and_grad(lambda x, k: (x * k) * k)
    for k in (2.0, 3, 0.0, -0.0, np.float64(5.0), np.float32(7.0), -1.5, True):
        value, gradient = slope(3.0, k)
        assert value == 3.0 * float(k) ** 2
        assert gradient == float(k) ** 2
    # 1 / (x * k) tells the zeros apart
    signs = [fxgrad.value_and_grad(lambda x, k=k: 1.0 / (x * k))(1.0)[0] for k in (0.0, -0.0, 0.0)]
    assert signs == [np.inf, -np.inf, np.inf]


@pytest.mark.usefixtures("fresh_tables")
def test_wide_integers_are_not_narrowed() -> None:
    def f(k: int) -> Any:
        return fxgrad.jvp(lambda x: fnp.astype(x * 0, np.int64) + k, (1.0,), (1.0,))[0]
    assert [int(f(k)) for k in (3, 2**40, 5, 2**41)] == [3, 2**40, 5, 2**41]


def test_lists_of_numbers_beside_known_arrays_stay_known() -> None:
    """A list may hold tracers; one of numbers makes nothing traced, on either side of an array."""
    def f(w: Any, x: Any, n: Any) -> Any:
        known = [1.0, 2.0] @ x + float(np.sum(([2.0, 3.0] * x ** 0 + x) * [[1.0], [2.0]]) - ([2.0, 3.0] * x)[0])
        return w * known * len(range(([1, 2] * n)[1])) if known > 0 else w

    x, n = np.array([0.5, 1.5]), np.array([2, 3])
    expected = (3.5 + 3 * 7.0 - 1.0) * 6
    assert fxgrad.grad(f)(2.0, x, n) == expected
    np.testing.assert_array_equal(fxgrad.vmap(f, (0, None, None))(np.array([1.0, 2.0]), x, n),
                                  [expected, 2 * expected])
    doubled = fxgrad.vmap(lambda w: fnp.add([w, [1.0, w][1]], x))(np.array([1.0, 2.0]))  # those with tracers
    np.testing.assert_array_equal(doubled, [[1.5, 2.5], [2.5, 3.5]])


@pytest.mark.usefixtures("fresh_tables")
def test_what_a_value_decided_is_not_replayed() -> None:
    choose, calls = counted(lambda x: x * 2.0 if x > 0 else x * 3.0)
    gradient = fxgrad.grad(choose)
    assert [float(gradient(value)) for value in (1.0, -1.0, 2.0, -2.0)] == [2.0, 3.0, 2.0, 3.0]
    assert len(calls) == 4


@pytest.mark.usefixtures("fresh_tables")
def test_settings_of_the_tape_are_kept_apart() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(fnp.mean(x) * 2.0 + x)
    x = np.ones(3, np.int32)
    narrow = fxgrad.make_program(f)(x).out_avals[0].dtype
    with fxgrad.default_dtype("float64"):
        assert fxgrad.make_program(f)(x).out_avals[0].dtype == np.float64
        assert fxgrad.vmap(f)(np.ones((2, 3), np.int32)).dtype == np.float64
    assert fxgrad.vmap(f)(np.ones((2, 3), np.int32)).dtype == narrow == np.float32


@pytest.mark.usefixtures("fresh_tables")
def test_a_captured_array_may_change_between_its_uses() -> None:
    def f(x: Any, buffer: Any) -> Any:
        total = 0.0
        for step in range(4):
            buffer[:] = step
            total = total + np.sum(x * buffer) + np.sum(buffer @ x)
            buffer += 1.0
            total = total + np.sum(buffer * x)
        buffer[:] = -100.0
        return total

    for _ in range(3):
        got = fxgrad.grad(f)(np.ones(2), np.zeros(2))
        np.testing.assert_array_equal(got, np.full(2, sum(3 * step + 1 for step in range(4))))


@pytest.mark.usefixtures("fresh_tables")
def test_an_array_that_changes_through_a_view_is_noticed() -> None:
    base = np.zeros((2, 2))

    def f(x: Any) -> Any:
        row = base[0]
        row.flags.writeable = False
        base[0] = 1.0
        first = np.sum(x * row)
        base[0] = 5.0
        return first + np.sum(x * row)

    for _ in range(3):
        np.testing.assert_array_equal(fxgrad.grad(f)(np.ones(2)), [6.0, 6.0])


@pytest.mark.usefixtures("fresh_tables")
def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "interning_limit", 300)

    def collatz(x: Any, n: int) -> Any:
        while n != 1:
            x, n = (x * 0.5, n // 2) if n % 2 == 0 else (x + 1.0, 3 * n + 1)
        return x

    for n in range(1, 60):
        steps = halvings = 0
        m = n
        while m != 1:
            halvings, m = (halvings + 1, m // 2) if m % 2 == 0 else (halvings, 3 * m + 1)
            steps += 1
        assert float(fxgrad.grad(collatz)(1.0, n)) == 0.5**halvings
        assert interning.num_recorded_operations() <= 301


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_tables")
@pytest.mark.parametrize("calls", [200_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_calls_with_new_closures_and_numbers_do_not_grow_memory(calls: int) -> None:
    def call(step: int) -> None:
        rate = 0.5 + step * 1e-6
        array = np.full(3, rate)
        gradient = fxgrad.grad(lambda x: np.sum(x * rate + array) * step)(array)
        assert gradient[0] == rate * step

    for step in range(2000):
        call(step)
    recorded, blocks = interning.num_recorded_operations(), sys.getallocatedblocks()
    for step in range(calls):
        call(step)
    assert interning.num_recorded_operations() == recorded
    assert sys.getallocatedblocks() - blocks < calls // 1000


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_tables")
def test_many_threads_record_and_clear() -> None:
    def f(x: Any, k: float) -> Any:
        y = np.tanh(x * k)
        return np.sum(y[1:] * y[:-1] + np.mean(y))

    x = np.linspace(-1.0, 1.0, 7)
    expected = {k: fxgrad.grad(f)(x, k) for k in (0.5, 1.5, 2.5)}
    errors: list[Any] = []

    def work(k: float) -> None:
        for repeat in range(60):
            if repeat % 20 == 10:
                fxgrad.clear_caches()
            got = fxgrad.grad(f)(x, k)
            if not np.array_equal(got, expected[k]):
                errors.append(got)

    threads = [threading.Thread(target=work, args=(k,)) for k in expected for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_many_threads_read_sources() -> None:
    """Emptied caches have all threads parse the same files again, which `ast.parse` of Python 3.11 does not bear."""
    source, errors = Path(fxgrad.errors.__file__).read_text(encoding="utf-8"), []

    def work() -> None:
        for _ in range(10):
            try:
                parse_source(source)
            except SystemError as error:
                errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors


@pytest.mark.usefixtures("fresh_tables")
def test_programs_are_replayed_on_outer_tapes() -> None:
    """What an inner gradient records on the tape around it is the same the second time."""
    def f(x: Any) -> Any:
        return np.sum(np.sin(x) * x ** 3)

    x = np.linspace(0.5, 1.5, 4)
    first = fxgrad.hessian(f)(x)
    before = interning.num_recorded_operations()
    np.testing.assert_array_equal(fxgrad.hessian(f)(x), first)
    assert interning.num_recorded_operations() == before
    inner = fxgrad.grad(lambda x: np.sum(fxgrad.grad(f)(x) ** 2))
    expected = 2.0 * first @ fxgrad.grad(f)(x)
    for _ in range(3):
        np.testing.assert_allclose(inner(x), expected, rtol=1e-12)


@pytest.mark.parametrize("place", ["array first", "array last", "twice", "number first", "number last"])
def test_functions_at_one_place_are_told_apart(place: str) -> None:
    """The same code, at the same place, with another function: what the one before recorded is not taken for it."""
    array = np.array([0.5, -1.5, 2.0])
    at = {"array first": lambda function, x: function(array, x), "array last": lambda function, x: function(x, array),
          "twice": lambda function, x: function(x, x * 0.5), "number first": lambda function, x: function(0.25, x),
          "number last": lambda function, x: function(x, 0.25)}[place]
    x = np.array([1.0, -2.0, 0.75])
    for _ in range(2):
        for name in ("fmax", "fmin", "hypot", "subtract", "divide", "logaddexp2"):
            ours = getattr(fnp, name)
            value, _ = fxgrad.jvp(lambda x, f=ours: at(f, x), (x,), (x,))
            np.testing.assert_allclose(value, at(getattr(np, name), x), rtol=1e-12, err_msg=name)


def test_whole_numbers_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small and large ones; what later calls do with them is remembered."""
    learned: list[Any] = []

    def learn(*args: Any) -> Any:
        learned.append(args)
        return call_cache.record_call(*args)

    monkeypatch.setattr(op_cache, "record_call", learn)
    for slope in (fxgrad.grad(lambda x: x * 7), fxgrad.grad(lambda x: x * 5000), fxgrad.grad(lambda x: x * -(2**40))):
        learned.clear()
        for _ in range(4):
            slope(2.0)
        assert 1 <= len(learned) <= 2
