"""`benchmark` times the ways of running a function, compares results, and says from which call on compiling pays."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad.tools.profiling.benchmarking import COMPILED, GENERATED, UNJITTED, BenchmarkWay, break_even
from fxgrad.tools.profiling.timing import Figures

X = np.linspace(0.1, 1.0, 50)
QUICK = {"seconds": 0.003, "rounds": 2}


def loss(x: Any) -> Any:
    return np.sum(np.sin(x) * x)


def way(first: float | None, median: float) -> BenchmarkWay:
    return BenchmarkWay("way", first, Figures(median, median, median, 1, 1))


@pytest.mark.slow
def test_all_ways_are_timed_and_agree() -> None:
    found = fxgrad.benchmark(fxgrad.grad(loss), **QUICK)(X)
    assert [*found.ways] == [UNJITTED, GENERATED, COMPILED]
    assert found.agrees
    for each in found.ways.values():
        assert each.first is not None
        assert each.figures is not None
        assert 0 < each.figures.lower <= each.figures.median <= each.figures.upper
    compiled = found.ways[COMPILED]
    assert {*compiled.parts} == {"trace", "lower", "compile"}
    assert all(part > 0 for part in compiled.parts.values())
    assert sum(compiled.parts.values()) <= compiled.first
    assert found.title == "grad(loss)"
    assert "later calls" in str(found)
    data = json.loads(found.to_json())
    assert data["ways"]["compiled"]["figures"]["median"] == compiled.figures.median


def test_the_break_even_call() -> None:
    assert break_even(way(1.0, 100.0), way(11.0, 50.0)) == 202  # 10 ms behind, 50 us a call: level after 200 more
    assert break_even(way(1.0, 100.0), way(1.01, 50.0)) == 2
    assert break_even(way(1.0, 100.0), way(0.5, 50.0)) == 1
    assert break_even(way(1.0, 50.0), way(2.0, 50.0)) is None
    for first, later, compiled_first, compiled_later in ((1.0, 100.0, 11.0, 50.0), (1.0, 90.0, 7.3, 11.0)):
        call = break_even(way(first, later), way(compiled_first, compiled_later))
        cost = [first * 1e3 + later * (n - 1) - compiled_first * 1e3 - compiled_later * (n - 1)
                for n in (call - 1, call)]
        assert cost[0] <= 0 < cost[1]


@pytest.mark.slow
def test_results_that_differ_are_told() -> None:
    wrong = fxgrad.Primitive(
        "wrong", abstract=lambda x: [x], numpy=lambda x: [x], xla=lambda lax, x: [lax.mul(x, lax.full_like(x, 1.5))],
        jvp=fxgrad.NO_TANGENT, transpose=fxgrad.NOT_LINEAR, batch=fxgrad.extend.TODO("a test"),
        cost=lambda x: fxgrad.Cost(0, 0))
    found = fxgrad.benchmark(lambda x: fxgrad.bind(wrong, x)[0], **QUICK)(X)
    assert not found.agrees
    assert found.ways[COMPILED].agrees is False
    assert found.ways[COMPILED].difference == pytest.approx(0.5)
    assert found.ways[GENERATED].agrees
    assert "DIFFERS by 5e-01" in str(found)


def branches(x: Any) -> Any:
    return x * x if x > 0 else -x


@pytest.mark.slow
def test_what_cannot_be_compiled_says_why() -> None:
    found = fxgrad.benchmark(fxgrad.grad(branches), **QUICK)(1.0)
    for name in (UNJITTED, GENERATED):  # the program of the path that these values take
        assert found.ways[name].figures is not None
    assert found.ways[COMPILED].figures is None
    assert found.ways[COMPILED].why_not.startswith("bool() needs the value of a traced array (bool[]) in branches")
    assert found.break_even is None
    assert found.advice == "not compiled, since it could not be traced without values"


@pytest.mark.slow
def test_a_jitted_function_is_taken_apart() -> None:
    compiled = fxgrad.jit(loss)
    compiled(X)
    found = fxgrad.benchmark(compiled, **QUICK)(X)
    assert found.title == "loss"
    assert found.ways[COMPILED].parts["compile"] > 0  # forgotten before


@pytest.mark.slow
def test_calls_end_when_results_are_there() -> None:
    """jax computes in the background: what is timed waits for it."""
    waited = []

    class Later(np.ndarray):
        def block_until_ready(self) -> Later:
            waited.append(1)
            return self

    fxgrad.benchmark(lambda x: x.view(Later) if type(x) is np.ndarray else x, **QUICK)(X)
    assert len(waited) > 1


@pytest.mark.slow
def test_static_arguments() -> None:
    found = fxgrad.benchmark(lambda x, n: x ** n, static_argnums=1, **QUICK)(X, 3)
    assert found.agrees
    assert not math.isnan(found.ways[COMPILED].figures.median)


def test_benchmark_of_no_function() -> None:
    with pytest.raises(fxgrad.errors.ArgumentError, match=r"benchmark takes a function, got a float\. Write benchmark"):
        fxgrad.benchmark(1.0)
