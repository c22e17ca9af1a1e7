"""Calls for an effect in traced blocks, of functions of Python and of libraries: refused before they are made."""

from __future__ import annotations

import io
import logging
import queue
import random
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import python_control_flow
from fxgrad.errors import ControlFlowError


class Host:
    """What functions have an effect on."""

    def __init__(self) -> None:
        self.items, self.queue, self.text = [3, 1, 2, 5, 4], queue.Queue[int](), io.StringIO()
        self.event, self.lock, self.random = threading.Event(), threading.Lock(), np.random.default_rng(0)
        self.array, self.matrix = np.array([3.0, 1.0, 2.0]), np.zeros((2, 2))

    def state(self) -> tuple[Any, ...]:
        return (self.items, self.queue.qsize(), self.text.getvalue(), self.event.is_set(), self.lock.locked(),
                self.array.tolist(), self.matrix.tolist(), random.getstate(), self.random.bit_generator.state,
                [part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()])  # noqa: NPY002


HOST = Host()
ARRAY, MATRIX = HOST.array, HOST.matrix


def shuffled(x: Any) -> Any:
    if x > 0:
        random.shuffle(HOST.items)
    return x


def shuffled_by_numpy(x: Any) -> Any:
    if x > 0:
        HOST.random.shuffle(HOST.items)
    return x


def seeded(x: Any) -> Any:
    if x > 0:
        np.random.seed(0)  # noqa: NPY002
    return x


def put(x: Any) -> Any:
    if x > 0:
        HOST.queue.put(1)
    return x


def write(x: Any) -> Any:
    while x < 3.0:
        HOST.text.write("turn")
        x = x + 1.0
    return x


def info(x: Any) -> Any:
    if x > 0:
        logging.info("positive")
    return x


def warn(x: Any) -> Any:
    if x > 0:
        warnings.warn("positive", stacklevel=1)
    return x


def set_(x: Any) -> Any:
    if x > 0:
        HOST.event.set()
    return x


def acquire(x: Any) -> Any:
    if x > 0:
        HOST.lock.acquire()
    return x


def sleep(x: Any) -> Any:
    if x > 0:
        time.sleep(1e-9)
    return x


@pytest.mark.parametrize("function", [
    shuffled, shuffled_by_numpy, seeded, put, write, info, warn, set_, acquire, sleep])
def test_calls_for_an_effect_are_refused(function: Any) -> None:
    block, line = "while" if function is write else "if", function.__code__.co_firstlineno + 1
    name = {"shuffled": "shuffle", "shuffled_by_numpy": "shuffle", "seeded": "seed", "set_": "set"}.get(
        function.__name__, function.__name__)
    before = HOST.state()
    with pytest.raises(ControlFlowError) as raised:
        fxgrad.jit(python_control_flow(function))(-1.0)
    first, place = str(raised.value).split("\n")
    assert first == (
        f"{name}() is called for an effect inside the traced `{block}` at test_effects.py:{line} (in "
        f"{function.__name__}), which is traced once and may run never or often. Print with print(), which runs with "
        "the program, hand a function of your own to fxgrad.debug.callback, or do it after the block, by a value that "
        "the block gives")
    assert place == f"  at test_effects.py:{line + 1} (in {function.__name__})"
    assert HOST.state() == before
    assert python_control_flow(function)(-1.0) == function(-1.0)  # Python's own condition is no traced block


def filled(x: Any) -> Any:
    if x > 0:
        ARRAY.fill(1.0)
    return x


def copied(x: Any) -> Any:
    if x > 0:
        np.copyto(ARRAY, 2.0)
    return x


def put_in(x: Any) -> Any:
    if x > 0:
        np.put(ARRAY, [0], 5.0)
    return x


def on_the_diagonal(x: Any) -> Any:
    if x > 0:
        np.fill_diagonal(MATRIX, 1.0)
    return x


def added(x: Any) -> Any:
    if x > 0:
        np.add.at(ARRAY, 0, 1.0)
    return x


def written(x: Any) -> Any:
    if x > 0:
        np.sin(ARRAY, out=ARRAY)
    return x


@pytest.mark.parametrize("function", [filled, copied, put_in, on_the_diagonal, added, written])
def test_global_arrays_are_not_changed(function: Any) -> None:
    before = HOST.state()
    with pytest.raises(ControlFlowError) as raised:
        fxgrad.jit(python_control_flow(function))(-1.0)
    assert str(raised.value).startswith(
        "an array is changed inside the traced `if` at test_effects.py:")
    assert HOST.state() == before


def asserted(x: Any) -> Any:
    if x > 0:
        np.testing.assert_equal(np.shape(x), ())
        x = x + 1.0
    return x


@pytest.mark.parametrize("x", [-1.0, 3.0])
def test_assertions_of_libraries_are_made_while_a_block_is_traced(x: float) -> None:
    assert fxgrad.jit(python_control_flow(asserted))(x) == asserted(x)


def appended_by_map(x: Any) -> Any:
    found: list[float] = []
    if x > 0:
        list(map(found.append, [1.0, 2.0]))
    return x + len(found)


@pytest.mark.parametrize("x", [-1.0, 3.0])
def test_methods_that_are_mapped_change_lists_as_called_ones(x: float) -> None:
    assert fxgrad.jit(python_control_flow(appended_by_map))(x) == appended_by_map(x)


def made_in_the_block(x: Any) -> Any:
    y = x
    if x > 0:
        waiting: queue.Queue[Any] = queue.Queue()
        waiting.put(2.0)
        y = x * waiting.get()
    return y


@pytest.mark.parametrize("x", [-1.0, 3.0])
def test_objects_that_the_block_makes_change(x: float) -> None:
    assert fxgrad.jit(python_control_flow(made_in_the_block))(x) == made_in_the_block(x)
