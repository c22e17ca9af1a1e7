"""Timing calls in turn: rounds in which each has its turn to be the first, medians and quartiles."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Timed(NamedTuple):
    """A timed function: `call`, and an optional `prepare`, which is called before each sample of one call."""

    call: Callable[[], Any]
    prepare: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Figures:
    """Microseconds a call: the median and the quartiles over `samples` samples of `calls` calls each."""

    median: float
    lower: float
    upper: float
    samples: int
    calls: int


def in_turns(timed: Mapping[str, Timed], rounds: int, *, sample_seconds: float, seconds: float, fewest: int,
             after_round: Callable[[], Any] | None = None) -> dict[str, Figures]:
    """Return the figures of each; they take turns, `rounds` times, with Python's cyclic collector off.

    A sample takes about `sample_seconds`: quick calls are repeated to fill it. All turns of one together take about
    `seconds`; slow ones get fewer turns, but at least `fewest`. `after_round` is called after each round.
    """
    calls, turns = {}, {}
    for name, each in timed.items():
        typical = typical_seconds(each)
        calls[name] = 1 if each.prepare else max(1, int(sample_seconds / typical))
        turns[name] = min(rounds, max(fewest, int(seconds / (typical * calls[name]))))
    times: dict[str, list[float]] = {name: [] for name in timed}
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for number in range(rounds):
            for name, each in rotated([*timed.items()], number):
                # Functions with fewer turns have them spread evenly over the rounds.
                if (number + 1) * turns[name] // rounds > number * turns[name] // rounds:
                    times[name].append(sample(each, calls[name]))
            gc.collect()
            if after_round is not None:
                after_round()
    finally:
        gc.enable()
        gc.unfreeze()
    return {name: figures(values, calls[name]) for name, values in times.items()}


def rotated(items: Sequence[T], number: int) -> list[T]:
    """Return the items in the order of one round, rotated so that each is first in turn."""
    start = number % len(items)
    return [*items[start:], *items[:start]]


def typical_seconds(timed: Timed) -> float:
    """Return seconds a call, after some to warm up."""
    return max(min(sample(timed, 1) for _ in range(3)) * 1e-6, 1e-7)


def sample(timed: Timed, calls: int) -> float:
    """Return the microseconds per call, over `calls` calls."""
    call = timed.call
    if timed.prepare:
        timed.prepare()
    started = time.perf_counter()
    for _ in repeat(None, calls):
        call()
    return (time.perf_counter() - started) / calls * 1e6


def figures(values: list[float], calls: int) -> Figures:
    """Return median and quartiles of samples."""
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return Figures(median, lower, upper, len(values), calls)
