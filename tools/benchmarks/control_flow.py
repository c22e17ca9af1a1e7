"""Functions with Python's control flow, converted and compiled, beside the same written by hand with `lax`.

Most are among those of `tests/engine/control_flow/functions.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
import fxgrad.numpy as fnp
from benchmarks.models import FXGRAD, JAX, random
from benchmarks.workload import Peer, Peers, Ratio, Workload
from tests.engine.control_flow import functions


def huber_by_hand(lib: Any, x: Any) -> Any:
    """`huber` with `cond`."""
    return lib.lax.cond(abs(x) <= 1.0, lambda x: 0.5 * x * x, lambda x: abs(x) - 0.5, x)


def tax_by_hand(lib: Any, income: Any) -> Any:
    """`tax` with two `cond`."""
    def rest(income: Any) -> Any:
        return lib.lax.cond(income < 40.0, lambda x: 0.2 * (x - 10.0), lambda x: 6.0 + 0.4 * (x - 40.0), income)
    return lib.lax.cond(income < 10.0, lambda x: 0.0 * x, rest, income)


def newton_root(a: Any) -> Any:
    """A loop of known length that ends early."""
    x = a
    for _ in range(60):
        step = (x * x - a) / (2.0 * x)
        x = x - step
        if abs(step) < 1e-6:
            break
    return x


def newton_root_by_hand(lib: Any, a: Any) -> Any:
    """The same with `while_loop`."""
    def body(state: Any) -> Any:
        n, x, _ = state
        step = (x * x - a) / (2.0 * x)
        return n + 1, x - step, abs(step) < 1e-6
    return lib.lax.while_loop(lambda state: (state[0] < 60) & ~state[2], body, (0, a, lib.np.array(False)))[1]


def bisection(c: Any) -> Any:
    """A branch in a `while`."""
    low, high = 0.0, 2.0
    while high - low > 1e-5:
        middle = 0.5 * (low + high)
        if middle ** 3 + middle - c > 0:
            high = middle
        else:
            low = middle
    return 0.5 * (low + high)


def bisection_by_hand(lib: Any, c: Any) -> Any:
    """The same with `while_loop` and `where`."""
    def body(state: Any) -> Any:
        low, high = state
        middle = 0.5 * (low + high)
        above = middle ** 3 + middle - c > 0
        return lib.np.where(above, low, middle), lib.np.where(above, middle, high)
    low, high = lib.lax.while_loop(lambda state: state[1] - state[0] > 1e-5, body, (0.0, 2.0))
    return 0.5 * (low + high)


def mandelbrot_by_hand(lib: Any, re: Any, im: Any) -> Any:
    """`mandelbrot` with `while_loop`."""
    def body(state: Any) -> Any:
        x, y, n = state
        return x * x - y * y + re, 2.0 * x * y + im, n + 1
    return lib.lax.while_loop(lambda s: (s[2] < 50) & (s[0] * s[0] + s[1] * s[1] < 4.0), body, (0.0, 0.0, 0))[2]


def collatz_steps_by_hand(lib: Any, n: Any) -> Any:
    """`collatz_steps` with `while_loop` and `cond`."""
    def body(state: Any) -> Any:
        n, steps = state
        return lib.lax.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, n), steps + 1
    return lib.lax.while_loop(lambda state: state[0] != 1, body, (n, 0))[1]


def fibonacci_by_hand(lib: Any, n: Any) -> Any:
    """`fibonacci` with `fori_loop`."""
    return lib.lax.fori_loop(0, n, lambda _, state: (state[1], state[0] + state[1]), (0, 1))[0]


def binary_search_by_hand(lib: Any, values: Any, wanted: Any) -> Any:
    """`binary_search` with `while_loop` and `where`."""
    def body(state: Any) -> Any:
        low, high = state
        middle = (low + high) // 2
        below = values[middle] < wanted
        return lib.np.where(below, middle + 1, low), lib.np.where(below, high, middle)
    return lib.lax.while_loop(lambda state: state[0] < state[1], body, (0, len(values)))[0]


def maximum_subarray_by_hand(lib: Any, values: Any) -> Any:
    """The same, unrolled by Python, with `where` and `maximum`."""
    best = current = values[0]
    for k in range(1, len(values)):
        current = lib.np.where(current < 0, values[k], current + values[k])
        best = lib.np.maximum(best, current)
    return best


def edit_distance(one: Any, other: Any, n: Any, m: Any) -> Any:
    """A loop in a loop, which changes an array."""
    row = fnp.arange(32)
    for i in range(1, n + 1):
        diagonal = row[0]
        row = row.at[0].set(i)
        for j in range(1, m + 1):
            above = row[j]
            if one[i - 1] == other[j - 1]:
                cost = diagonal
            else:
                cost = 1 + min(diagonal, above, row[j - 1])
            diagonal = above
            row = row.at[j].set(cost)
    return row[m]


def edit_distance_by_hand(lib: Any, one: Any, other: Any, n: Any, m: Any) -> Any:
    """`maximum_subarray` with two `fori_loop` and `where`."""
    def outer(i: Any, row: Any) -> Any:
        def inner(j: Any, state: Any) -> Any:
            row, diagonal = state
            above = row[j]
            cheapest = lib.np.minimum(lib.np.minimum(diagonal, above), row[j - 1])
            cost = lib.np.where(one[i - 1] == other[j - 1], diagonal, 1 + cheapest)
            return row.at[j].set(cost), above
        return lib.lax.fori_loop(1, m + 1, inner, (row.at[0].set(i), row[0]))[0]
    return lib.lax.fori_loop(1, n + 1, outer, lib.np.arange(32))[m]


LETTERS = np.arange(31) % 5
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "branch": (functions.huber, huber_by_hand, (np.float32(0.7),)),
    "three branches": (functions.tax, tax_by_hand, (np.float32(25.0),)),
    "break": (newton_root, newton_root_by_hand, (np.float32(7.0),)),
    "branch in while": (bisection, bisection_by_hand, (np.float32(1.1),)),
    "two conditions": (functions.mandelbrot, mandelbrot_by_hand, (np.float32(-0.5), np.float32(0.1))),
    "integers": (functions.collatz_steps, collatz_steps_by_hand, (np.int32(27),)),
    "traced length": (functions.fibonacci, fibonacci_by_hand, (np.int32(40),)),
    "search": (functions.binary_search, binary_search_by_hand, (np.sort(random(1000, scale=1)), np.float32(0.3))),
    "over an array": (functions.maximum_subarray, maximum_subarray_by_hand, (random(24, scale=1),)),
    "nested loops": (edit_distance, edit_distance_by_hand, (
        LETTERS.astype(np.int32), (LETTERS * 3 % 5).astype(np.int32), np.int32(31), np.int32(31))),
}


def in_the_same_file(x: Any) -> Any:
    """Nothing to convert."""
    return x


def run(name: str, small: bool) -> Peers:  # noqa: ARG001  (they are small)
    """Calls of the compiled function."""
    function, by_hand, args = FUNCTIONS[name]
    args = jax.tree.map(jnp.asarray, args)

    def peer(jitted: Any) -> Peer:
        return Peer(lambda: jax.block_until_ready(jitted(*args)))
    return {"fxgrad": peer(fxgrad.jit(fxgrad.python_control_flow(function))),
            "by hand": peer(fxgrad.jit(functools.partial(by_hand, FXGRAD))),
            "jax.jit": peer(jax.jit(functools.partial(by_hand, JAX)))}


def first(name: str, small: bool, of_file: bool = False) -> Peers:  # noqa: ARG001  (they are small)
    """First calls: converting, tracing, compiling; with nothing kept from the call before.

    The file was read for another of its functions, unless the function is to be the first of its file.
    """
    function, by_hand, args = FUNCTIONS[name]

    def forget() -> None:
        fxgrad.clear_caches()
        jax.clear_caches()
        if not of_file:
            for other in (in_the_same_file, functions.clamp_all):
                fxgrad.python_control_flow(other)

    def peer(jitted: Callable[[], Any]) -> Peer:
        return Peer(lambda: jax.block_until_ready(jitted()(*args)), prepare=forget)
    return {"fxgrad": peer(lambda: fxgrad.jit(fxgrad.python_control_flow(function))),
            "by hand": peer(lambda: fxgrad.jit(functools.partial(by_hand, FXGRAD))),
            "jax.jit": peer(lambda: jax.jit(functools.partial(by_hand, JAX)))}


BARS = (Ratio("by hand", 1.1),)
WORKLOADS = [
    *(Workload(f"control flow: {name}", f"Call of a function with: {name}", functools.partial(run, name), BARS,
               jitted=True) for name in FUNCTIONS),
    *(Workload(f"control flow: {name}, first call", f"First call of a function with: {name}",
               functools.partial(first, name), BARS) for name in FUNCTIONS),
    Workload("control flow: break, first call of its file", "First call of the first function of a file of 250 lines",
             functools.partial(first, "break", of_file=True), BARS)]
