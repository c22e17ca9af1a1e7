"""Timing the peers of a workload in turn, after checking that they compute the same."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeVar

import jax
import numpy as np

from benchmarks.workload import OURS, Peer, Peers

SAMPLE_SECONDS = 0.01
"""How long one turn of a peer lasts: quick calls are repeated to fill it, since they are made in loops."""

PEER_SECONDS = 2.0
"""How long all turns of a peer may last together: slow ones get fewer turns, but at least `FEWEST`."""

FEWEST = 5

T = TypeVar("T")


class DifferentResultsError(Exception):
    """A peer computes something else."""


@dataclass(frozen=True)
class Figures:
    """Microseconds a call: the median and the quartiles over `samples` samples of `calls` calls each."""

    median: float
    lower: float
    upper: float
    samples: int
    calls: int


def arrays(result: Any) -> list[np.ndarray[Any, Any]]:
    """The leaves of a result of any library as NumPy arrays."""
    leaves = (leaf.detach().numpy() if hasattr(leaf, "detach") else leaf for leaf in jax.tree.leaves(result))
    return [np.asarray(leaf) for leaf in leaves]


def check_equal(peers: Peers, tolerance: float) -> None:
    """Raises `DifferentResultsError` unless all return what fxgrad returns, to `tolerance` of the largest entry."""
    expected = None
    for name, peer in peers.items():
        if peer.prepare:
            peer.prepare()
        if peer.result is None:
            continue
        found = arrays(peer.result(peer.call()))
        if expected is None:
            expected = found
        if len(found) != len(expected):
            raise DifferentResultsError(f"{name} returns {len(found)} arrays, {OURS} {len(expected)}")
        for theirs, ours in zip(found, expected, strict=True):
            if theirs.shape != ours.shape:
                raise DifferentResultsError(f"{name} returns an array {theirs.shape}, {OURS} {ours.shape}")
            scale = np.max(np.abs(ours), initial=0.0)
            if not np.allclose(theirs, ours, rtol=tolerance, atol=tolerance * scale):
                worst = np.max(np.abs(theirs - ours)) / scale
                raise DifferentResultsError(f"{name} differs from {OURS} by {worst:.1e} of the largest entry")


def measure(peers: Peers, rounds: int) -> dict[str, Figures]:
    """The figures of each peer: the peers take turns, `rounds` times, with Python's cyclic collector off."""
    calls, turns = {}, {}
    for name, peer in peers.items():
        seconds = typical_seconds(peer)
        calls[name] = 1 if peer.prepare else max(1, int(SAMPLE_SECONDS / seconds))
        turns[name] = min(rounds, max(FEWEST, int(PEER_SECONDS / (seconds * calls[name]))))
    times: dict[str, list[float]] = {name: [] for name in peers}
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for number in range(rounds):
            for name, peer in rotated([*peers.items()], number):
                # Those with fewer turns have them spread evenly over the rounds.
                if (number + 1) * turns[name] // rounds > number * turns[name] // rounds:
                    times[name].append(sample(peer, calls[name]))
            gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    return {name: figures(values, calls[name]) for name, values in times.items()}


def rotated(items: list[T], number: int) -> list[T]:
    """The items in the order of one round: each has its turn to be the first."""
    start = number % len(items)
    return items[start:] + items[:start]


def typical_seconds(peer: Peer) -> float:
    """Seconds a call, after some to warm up."""
    return max(min(sample(peer, 1) for _ in range(3)) * 1e-6, 1e-7)


def sample(peer: Peer, calls: int) -> float:
    """Microseconds a call, over `calls` of them."""
    call: Callable[[], Any] = peer.call
    if peer.prepare:
        peer.prepare()
    started = time.perf_counter()
    for _ in repeat(None, calls):
        call()
    return (time.perf_counter() - started) / calls * 1e6


def figures(values: list[float], calls: int) -> Figures:
    """Median and quartiles of samples."""
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return Figures(median, lower, upper, len(values), calls)
