"""Timing the peers of a workload in turn, after checking that they compute the same."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from benchmarks.workload import OURS, Peers

if TYPE_CHECKING:
    from fxgrad.tools.profiling.timing import Figures, Timed, figures, in_turns, rotated, sample, typical_seconds
else:  # from here, whichever commit of fxgrad is measured: earlier ones have none
    _found = importlib.util.spec_from_file_location(
        "fxgrad_timing", Path(__file__).resolve().parents[2] / "fxgrad" / "tools" / "profiling" / "timing.py")
    timing = sys.modules["fxgrad_timing"] = importlib.util.module_from_spec(_found)
    _found.loader.exec_module(timing)
    Figures, Timed, figures, in_turns = timing.Figures, timing.Timed, timing.figures, timing.in_turns
    rotated, sample, typical_seconds = timing.rotated, timing.sample, timing.typical_seconds

__all__ = ["FEWEST", "PEER_SECONDS", "SAMPLE_SECONDS", "DifferentResultsError", "Figures", "arrays", "check_equal",
           "figures", "measure", "rotated", "sample", "typical_seconds"]

SAMPLE_SECONDS = 0.01
"""How long one turn of a peer lasts: quick calls are repeated to fill it, since they are made in loops."""

PEER_SECONDS = 2.0
"""How long all turns of a peer may last together: slow ones get fewer turns, but at least `FEWEST`."""

FEWEST = 5

class DifferentResultsError(Exception):
    """A peer computes something else."""


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
    return in_turns({name: Timed(peer.call, peer.prepare) for name, peer in peers.items()}, rounds,
                    sample_seconds=SAMPLE_SECONDS, seconds=PEER_SECONDS, fewest=FEWEST)
