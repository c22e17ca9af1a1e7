"""Every point of a budget curve is a budget: it is accepted, and NumPy holds no more; plans look into blocks once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, nn
from fxgrad.engine.analyses.flow import flow_of
from fxgrad.engine.analyses.liveness import liveness, peak_beside_results
from fxgrad.engine.rematerialization.plans import _joint_program, plans_for

RNG = np.random.default_rng(0)
OVERHEAD = 48 * 1024
"""What Python's own objects take."""
COPIES = 0.04
"""What part more NumPy may take: where an operand of a product is a view that BLAS does not take, it is copied."""


def drawn(*shape: int) -> Any:
    return (RNG.normal(size=shape) / 8).astype(np.float32)


def mlp(ws: Any, x: Any) -> Any:
    for first, second in ws:
        x = x + np.tanh(x @ first) @ second
    return np.sum(x * x)


def transformer(layers: Any, x: Any) -> Any:
    for *heads, out, up, down in layers:
        hidden = nn.standardize(x)
        batch, length, width = x.shape
        query, key, value = (fnp.swapaxes(fnp.reshape(hidden @ w, (batch, length, 4, width // 4)), 1, 2)
                             for w in heads)
        weights = nn.softmax(query @ fnp.swapaxes(key, 2, 3) / 4.0)
        x = x + fnp.reshape(fnp.swapaxes(weights @ value, 1, 2), (batch, length, width)) @ out
        x = x + nn.gelu(nn.standardize(x) @ up) @ down
    return fnp.mean(x * x)


def mixer(layers: Any, x: Any) -> Any:
    for first, second, up, down in layers:
        x = x + fnp.swapaxes(nn.gelu(fnp.swapaxes(nn.standardize(x), 1, 2) @ first) @ second, 1, 2)
        x = x + nn.gelu(nn.standardize(x) @ up) @ down
    return fnp.mean(x)


def lstm(p: Any, xs: Any) -> Any:
    w, u = p

    def step(carry: Any, x: Any) -> Any:
        h, cell = carry
        gate, new, forget, out = fnp.split(x @ w + h @ u, 4, axis=-1)
        cell = nn.sigmoid(forget) * cell + nn.sigmoid(gate) * fnp.tanh(new)
        h = nn.sigmoid(out) * fnp.tanh(cell)
        return (h, cell), fnp.mean(h)

    begin = fnp.zeros((xs.shape[1], u.shape[0]), np.float32)
    (h, _), means = lax.scan(step, (begin, begin), xs)
    return fnp.sum(h * h) + fnp.sum(means)


def convolutions(ws: Any, x: Any) -> Any:
    for w in ws:
        x = nn.relu(lax.conv(x, w, (1, 1), "SAME"))
    return fnp.mean(x * x)


def strided(ws: Any, x: Any) -> Any:
    first = nn.relu(lax.conv(x, ws[0], (1, 1), "SAME"))
    second = nn.relu(lax.conv(first, ws[1], (2, 2), "VALID"))
    grouped = lax.conv_general_dilated(second, ws[2], (1, 1), "SAME", rhs_dilation=(2, 2), feature_group_count=4)
    return fnp.mean(lax.conv_transpose(grouped, ws[3], (2, 2), "SAME", dimension_numbers=("NCHW", "IOHW", "NCHW")) ** 2)


def branches(w: Any, x: Any) -> Any:
    for _ in range(4):
        x = fxgrad.cond(fnp.sum(x) > 0, lambda x: fnp.sin(x @ w), fnp.cos, x)
    return fnp.sum(x)


def chain(x: Any) -> Any:
    for _ in range(10):
        x = fnp.sin(x) * fnp.exp(-x)
    return fnp.sum(x)


def bodies(p: Any, v: Any) -> Any:
    for _ in range(5):
        apart = p[:, None] - p[None]
        v = v - 0.1 * fnp.sum(apart / (1 + fnp.sum(apart ** 2, -1, keepdims=True)), 1)
        p = p + 0.1 * v
    return fnp.sum(p ** 2)


def factors(a: Any, b: Any) -> Any:
    m = a @ a.T + fnp.eye(len(a), dtype=a.dtype) * 10
    lower = fnp.linalg.cholesky(m)
    return fnp.sum(fnp.log(fnp.diag(lower))) + fnp.sum(fnp.linalg.solve(m, b) ** 2)


def frequencies(x: Any, w: Any) -> Any:
    for _ in range(4):
        x = fnp.tanh(fnp.real(fnp.fft.ifft(fnp.fft.fft(x) * w)))
    return fnp.sum(x)


Case = tuple[Callable[..., Any], tuple[Any, ...], Any]
CASES: dict[str, Case] = {
    "mlp": (mlp, ([(drawn(64, 256), drawn(256, 64)) for _ in range(6)], drawn(512, 64)), (0, 1)),
    "mlp, other arguments": (mlp, ([(drawn(64, 256), drawn(256, 64)) for _ in range(4)], drawn(512, 64)), 0),
    "transformer": (transformer, ([[*(drawn(64, 64) for _ in range(4)), drawn(64, 256), drawn(256, 64)]
                                   for _ in range(2)], drawn(4, 64, 64)), (0, 1)),
    "mixer, other arguments": (mixer, ([(drawn(64, 128), drawn(128, 64), drawn(64, 256), drawn(256, 64))
                                        for _ in range(2)], drawn(8, 64, 64)), 0),
    "lstm": (lstm, ((drawn(32, 128), drawn(32, 128)), drawn(40, 64, 32)), (0, 1)),
    "convolutions": (convolutions, ([drawn(16, 16, 3, 3) for _ in range(4)], drawn(4, 16, 32, 32)), (0, 1)),
    "convolutions, other arguments": (convolutions, ([drawn(16, 16, 3, 3) for _ in range(3)],
                                                     drawn(4, 16, 32, 32)), 0),
    "strides, holes and groups": (strided, ([drawn(16, 3, 3, 3), drawn(32, 16, 3, 3), drawn(32, 8, 3, 3),
                                             drawn(32, 8, 3, 3)], drawn(4, 3, 40, 40)), (0, 1)),
    "branches": (branches, (drawn(128, 128), drawn(256, 128)), (0, 1)),
    "chain": (chain, (drawn(400, 400),), 0),
    "bodies": (bodies, (drawn(150, 3), drawn(150, 3)), (0, 1)),
    "factors": (factors, (drawn(150, 150).astype(float), drawn(150, 50).astype(float)), (0, 1)),
    "frequencies": (frequencies, (drawn(256, 512).astype(float), drawn(512).astype(float)), (0, 1)),
    "linear": (lambda x, y: fnp.sum(x @ y), (drawn(300, 300), drawn(300, 300)), (0, 1)),
    "scalar": (lambda x: x * 2.0, (3.0,), 0),
}


def bytes_in(value: Any) -> int:
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(value))


def peak_of(gradient: Callable[..., Any], args: tuple[Any, ...], argnums: Any) -> int:
    """What NumPy holds at its peak beside results, and beside a copy of what is not differentiated in."""
    for _ in range(3):  # code is made in the second call
        result = gradient(*args)
    beside = bytes_in(result) + (bytes_in(args[1:]) if argnums == 0 else 0)
    del result
    peaks = []
    for _ in range(2):  # what NumPy holds is the same each time, and what Python allocates for others is not
        tracemalloc.start()
        gradient(*args)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return min(peaks) - beside


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_point_of_a_curve_is_accepted_and_bounds_what_numpy_holds(name: str) -> None:
    function, args, argnums = CASES[name]
    points = fxgrad.budget_curve(function, argnums)(*args).points
    measured = {point.peak: peak_of(fxgrad.grad(function, argnums, memory_budget=point.peak), args, argnums)
                for point in points}
    assert not {budget: peak for budget, peak in measured.items() if peak > (1 + COPIES) * budget + OVERHEAD}


@pytest.mark.parametrize("name", [
    pytest.param("mixer, other arguments", marks=pytest.mark.slow), "mlp, other arguments", "linear", "scalar"])
def test_least_points_are_accepted(name: str) -> None:
    function, args, argnums = CASES[name]
    least = fxgrad.budget_curve(function, argnums)(*args).points[-1].peak
    gradient = fxgrad.grad(function, argnums, memory_budget=least)
    expected = fxgrad.grad(function, argnums)(*args)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6),
                 gradient(*args), expected)


def peak_step_by_step(program: Any) -> int:
    """As `peak_beside_results`, with all calls opened."""
    flow, found = flow_of(program), liveness(program)
    live = [*found.live]
    for result in flow.bases(flow.results):
        first = result
        while first in found.taken:
            first = found.taken[first]
        for position in range(found.begin.get(first, len(live)), len(live)):
            live[position] -= found.held[result]
    return max(live, default=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "transformer", "lstm", "convolutions", "bodies", "factors", "chain"])
def test_calls_that_stay_steps_take_what_they_take_opened(name: str) -> None:
    function, args, _ = CASES[name]
    program = fxgrad.make_program(function)(*args)
    wrt = (True,) * len(program.inputs)
    largest = max(aval.nbytes for aval in program.in_avals)
    plans = plans_for(program, wrt)
    for number in range(len(plans)):
        both_ways = _joint_program(plans.at(number).program, wrt)
        opened = peak_step_by_step(both_ways)
        # An operand of a call is not written over by its last operation, which this does not know of opened calls.
        assert opened <= peak_beside_results(both_ways) <= opened + largest, number


def blocks_of(depth: int) -> list[Any]:
    program = fxgrad.make_program(mlp)([(drawn(8, 16), drawn(16, 8)) for _ in range(depth)], drawn(32, 8))
    plans = plans_for(program, (True,) * len(program.inputs))
    return [equation.params["program"] for number in range(len(plans))
            for equation in plans.at(number).program.equations if equation.primitive.name == "checkpoint"]


@pytest.mark.slow
def test_equal_blocks_hold_one_program() -> None:
    for depth in (16, 32):
        blocks = blocks_of(depth)
        assert len(blocks) > depth
        assert len({*map(id, blocks)}) <= 12
